// The lines of a log as they arrive: a bounded number of the last ones, with the style in which each begins. Lines of
// both outputs stand in the order in which they arrive, and each is of one of them.

import { PLAIN, type Style, parseLine, stripped } from './ansi';

/** Lines that are kept; the oldest are dropped first. */
export const LOG_LINES_MAX = 100_000;
/** Characters that are kept, over all lines. */
export const LOG_CHARS_MAX = 16_000_000;
/** A longer line is broken, so that one line cannot hold up the page. */
export const LINE_CHARS_MAX = 4_000;

export type LogStream = 'stdout' | 'stderr';

export interface Line {
  text: string;
  start: Style;
  stream: LogStream;
  /** When it was written; null where that is not known. */
  at_ms: number | null;
}

/** The end of one output: its line that may still grow, and the style in which its next line begins. */
interface Tail {
  line: Line | undefined;
  style: Style;
}

/** Takes text in pieces and keeps its last lines. */
export class LogLines {
  /** The lines, oldest first. The last of each output may still grow. */
  lines: Line[] = [];
  /** Number of lines that were dropped at the beginning. */
  dropped = 0;
  private chars = 0;
  /** When the text was written that is added now. */
  private at_ms: number | null = null;
  private readonly tails: Record<LogStream, Tail> = {
    stdout: { line: undefined, style: PLAIN },
    stderr: { line: undefined, style: PLAIN },
  };

  /** Adds text of an output; what follows its last line feed stays open for the next piece. */
  push(text: string, stream: LogStream = 'stdout', at_ms: number | null = null): void {
    this.at_ms = at_ms;
    const pieces = text.split('\n');
    pieces.forEach((piece, i) => {
      this.extend(piece, stream);
      if (i < pieces.length - 1) this.close(stream);
    });
    this.trim();
  }

  private begin(text: string, stream: LogStream): Line {
    const line = { text, start: this.tails[stream].style, stream, at_ms: this.at_ms };
    this.lines.push(line);
    this.tails[stream].line = line;
    return line;
  }

  private extend(piece: string, stream: LogStream): void {
    if (piece === '') return;
    const line = this.tails[stream].line ?? this.begin('', stream);
    const whole = overwrite(line.text + piece);
    this.chars += whole.length - line.text.length;
    line.text = whole;
    if (whole.length > LINE_CHARS_MAX) this.breakUp(line);
  }

  private breakUp(line: Line): void {
    const tail = this.tails[line.stream];
    const rest = line.text;
    line.text = rest.slice(0, LINE_CHARS_MAX);
    tail.style = parseLine(line.text, line.start).end;
    for (let at = LINE_CHARS_MAX; at < rest.length; at += LINE_CHARS_MAX) {
      const text = rest.slice(at, at + LINE_CHARS_MAX);
      this.begin(text, line.stream);
      tail.style = parseLine(text, tail.style).end;
    }
  }

  private close(stream: LogStream): void {
    const tail = this.tails[stream];
    const line = tail.line ?? this.begin('', stream);
    if (line.text.endsWith('\r')) {
      line.text = line.text.slice(0, -1);
      this.chars -= 1;
    }
    tail.style = parseLine(line.text, line.start).end;
    tail.line = undefined;
  }

  private trim(): void {
    let cut = Math.max(0, this.lines.length - LOG_LINES_MAX);
    for (let i = 0; i < cut; i += 1) this.chars -= this.lines[i]!.text.length;
    while (this.chars > LOG_CHARS_MAX && cut < this.lines.length - 1) {
      this.chars -= this.lines[cut]!.text.length;
      cut += 1;
    }
    if (cut === 0) return;
    const gone = new Set(this.lines.splice(0, cut));
    this.dropped += cut;
    // A line that still grew is gone, too: what follows of it begins another.
    for (const tail of Object.values(this.tails)) if (tail.line && gone.has(tail.line)) tail.line = undefined;
  }
}

/** The last line that says something, as a terminal shows it, without its styles. */
export function lastLine(text: string): string {
  const log = new LogLines();
  log.push(text);
  const shown = log.lines.map((line) => stripped(line.text).trim());
  return shown.findLast((line) => line !== '') ?? '';
}

/** What a terminal shows of a line in which carriage returns begin it again. A return at its end waits for what comes. */
function overwrite(text: string): string {
  const last = text.lastIndexOf('\r', text.length - 2);
  return last < 0 ? text : text.slice(last + 1);
}

/** The numbers of the lines that contain a text, whatever its case. */
export function search(lines: readonly Line[], wanted: string): number[] {
  const text = wanted.toLowerCase();
  if (text === '') return [];
  const found: number[] = [];
  lines.forEach((line, i) => {
    if (stripped(line.text).toLowerCase().includes(text)) found.push(i);
  });
  return found;
}

/** Cuts a text where a searched text begins and ends, for marking it. */
export function marked(text: string, wanted: string): { text: string; hit: boolean }[] {
  const low = text.toLowerCase();
  const find = wanted.toLowerCase();
  // Some letters change their length with their case; then places in the two texts differ.
  if (find === '' || low.length !== text.length) return [{ text, hit: false }];
  const pieces: { text: string; hit: boolean }[] = [];
  let at = 0;
  for (let hit = low.indexOf(find); hit >= 0; hit = low.indexOf(find, at)) {
    if (hit > at) pieces.push({ text: text.slice(at, hit), hit: false });
    pieces.push({ text: text.slice(hit, hit + find.length), hit: true });
    at = hit + find.length;
  }
  if (at < text.length) pieces.push({ text: text.slice(at), hit: false });
  return pieces;
}
