import { describe, expect, it } from 'vitest';
import { PLAIN, parseLine, stripped } from '../src/lib/ansi';

const text = (line: string) =>
  parseLine(line)
    .spans.map((span) => span.text)
    .join('');

describe('escape sequences', () => {
  it('become styles', () => {
    const { spans, end } = parseLine('a\u001b[1;31mred\u001b[0mb\u001b[38;5;208mc\u001b[48;2;1;2;3md');
    expect(spans.map((span) => [span.text, span.style.fg, span.style.bg, span.style.bold])).toEqual([
      ['a', null, null, false],
      ['red', 1, null, true],
      ['b', null, null, false],
      ['c', '#ff8700', null, false],
      ['d', '#ff8700', '#010203', false],
    ]);
    expect(end.bg).toBe('#010203');
  });

  it('carry their style to the next line', () => {
    const first = parseLine('\u001b[32mgreen');
    expect(parseLine('still', first.end).spans[0]!.style.fg).toBe(2);
    expect(parseLine('\u001b[mplain', first.end).spans[0]!.style).toEqual(PLAIN);
  });

  it('that move the cursor, set titles or make links are left out', () => {
    expect(
      text('\u001b[2J\u001b[1;1Htop\u001b[K \u001b]0;title\u0007x \u001b]8;;http://a\u001b\\link\u001b]8;;\u001b\\'),
    ).toBe('top x link');
    expect(text('cut \u001b')).toBe('cut ');
    expect(text('cut \u001b]0;never ended')).toBe('cut ');
  });

  it('that are broken change nothing', () => {
    for (const codes of ['38;5', '38;5;999', '38;2;1;2', '48;2;a;b;c', '999', ';;;']) {
      expect(
        parseLine(`\u001b[${codes}mx`)
          .spans.map((span) => span.text)
          .join(''),
      ).toContain('x');
    }
  });
});

describe('markup in output', () => {
  it('stays text', () => {
    const line = '<script>alert(1)</script> & <img src=x onerror=alert(1)> "\'';
    expect(parseLine(line).spans).toEqual([{ text: line, style: PLAIN }]);
  });

  it('loses control characters, but not tabs and letters of all languages', () => {
    expect(text('a\u0000b\u0008c\td\u007f é 日本 🦀')).toBe('abc\td é 日本 🦀');
    expect(stripped('\u001b[31ma\u0007b\u001b[0m')).toBe('ab');
  });

  it('cannot make the parser slow or lose text, whatever bytes come', () => {
    let seed = 7;
    const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
    const alphabet = ['\u001b', '[', ']', ';', '3', '1', 'm', 'K', '\u0007', '\\', 'x', '<', ' '];
    for (let round = 0; round < 500; round += 1) {
      const line = Array.from({ length: random(60) }, () => alphabet[random(alphabet.length)]).join('');
      expect(text(line)).toBe(stripped(line));
      expect(text(line)).not.toContain('\u001b');
    }
    const long = '\u001b['.repeat(20_000) + '\u001b]' + ';'.repeat(100_000);
    const began = performance.now();
    parseLine(long);
    expect(performance.now() - began).toBeLessThan(2_000);
  });
});
