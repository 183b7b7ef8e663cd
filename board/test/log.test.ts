import { describe, expect, it } from 'vitest';
import { LINE_CHARS_MAX, LOG_CHARS_MAX, LOG_LINES_MAX, LogLines, lastLine, marked, search } from '../src/lib/log';

const lines = (log: LogLines) => log.lines.map((line) => line.text);

function fed(...pieces: string[]): LogLines {
  const log = new LogLines();
  for (const piece of pieces) log.push(piece);
  return log;
}

describe('lines of a log', () => {
  it('are the same however the text is cut', () => {
    const whole = 'one\ntwo\r\n\nthree \u001b[31mred\nfour\u001b[0m\n10%\r50%\r100%\nend';
    const expected = lines(fed(whole));
    expect(expected).toEqual(['one', 'two', '', 'three \u001b[31mred', 'four\u001b[0m', '100%', 'end']);
    for (let at = 1; at < whole.length; at += 1)
      expect(lines(fed(whole.slice(0, at), whole.slice(at)))).toEqual(expected);
  });

  it('begin in the style that the line before ended with', () => {
    const log = fed('\u001b[31mred\nstill\n\u001b[0mplain\nlast');
    expect(log.lines.map((line) => line.start.fg)).toEqual([null, 1, 1, null]);
  });

  it('of both outputs stand as they came, and each is whole', () => {
    const log = new LogLines();
    log.push('one\n\u001b[31mtw', 'stdout');
    log.push('err', 'stderr');
    log.push('o\nthree\n', 'stdout');
    log.push('or\n', 'stderr');
    expect(log.lines.map((line) => [line.stream, line.text, line.start.fg])).toEqual([
      ['stdout', 'one', null],
      ['stdout', '\u001b[31mtwo', null],
      ['stderr', 'error', null],
      ['stdout', 'three', 1],
    ]);
  });

  it('have the time of their first piece', () => {
    const log = new LogLines();
    log.push('one\n', 'stdout', 5);
    log.push('t', 'stderr', 7);
    log.push('wo\nthree\n', 'stderr', 9);
    log.push('x'.repeat(LINE_CHARS_MAX + 1), 'stdout');
    expect(log.lines.map((line) => line.at_ms)).toEqual([5, 7, 9, null, null]);
  });

  it('that still grow when they are dropped begin again', () => {
    const log = new LogLines();
    log.push('open', 'stderr');
    log.push('x\n'.repeat(LOG_LINES_MAX), 'stdout');
    log.push(' end\n', 'stderr');
    expect([log.dropped, log.lines.at(-1)]).toMatchObject([2, { stream: 'stderr', text: ' end' }]);
  });

  it('are bounded in number and in length; the oldest go first', () => {
    const log = fed(Array.from({ length: LOG_LINES_MAX + 10 }, (_, i) => `${i}\n`).join(''));
    expect(log.lines.length).toBe(LOG_LINES_MAX);
    expect([log.dropped, log.lines[0]!.text]).toEqual([10, '10']);
    const wide = fed('x'.repeat(LINE_CHARS_MAX * 3 + 1));
    expect(lines(wide).map((line) => line.length)).toEqual([LINE_CHARS_MAX, LINE_CHARS_MAX, LINE_CHARS_MAX, 1]);
  });

  it('are bounded in all their characters', () => {
    const log = new LogLines();
    const piece = `${'y'.repeat(3_999)}\n`.repeat(500);
    for (let i = 0; i < 12; i += 1) log.push(piece);
    expect(log.lines.reduce((sum, line) => sum + line.text.length, 0)).toBeLessThanOrEqual(LOG_CHARS_MAX);
    expect(log.dropped).toBeGreaterThan(0);
  });
});

describe('search', () => {
  it('passes over escape sequences and case', () => {
    const log = fed('an \u001b[31mErr\u001b[0mor\nnothing\nERROR again\n');
    expect(search(log.lines, 'error')).toEqual([0, 2]);
    expect(search(log.lines, '')).toEqual([]);
  });

  it('marks what was found and loses nothing', () => {
    expect(marked('aXbxc', 'x')).toEqual([
      { text: 'a', hit: false },
      { text: 'X', hit: true },
      { text: 'b', hit: false },
      { text: 'x', hit: true },
      { text: 'c', hit: false },
    ]);
    for (const [text, find] of [
      ['İİx', 'x'],
      ['', 'x'],
      ['aaa', 'aa'],
      ['<b>', '<'],
    ] as const) {
      expect(
        marked(text, find)
          .map((piece) => piece.text)
          .join(''),
      ).toBe(text);
    }
  });
});

describe('the last line of a text', () => {
  it('is what a terminal shows last, without styles and empty lines', () => {
    expect(lastLine('')).toBe('');
    expect(lastLine('\n \n')).toBe('');
    expect(lastLine('one\ntwo\n\n')).toBe('two');
    expect(lastLine('cut line\n10%\r50%')).toBe('50%');
    expect(lastLine('\u001b[32mdone\u001b[0m\r\n')).toBe('done');
  });
});
