// The lines of a log as they arrive: a bounded number of the last ones, with the style in which each begins.

import { PLAIN, type Style, parseLine, stripped } from './ansi';

/** Lines that are kept; the oldest are dropped first. */
export const LOG_LINES_MAX = 100_000;
/** Characters that are kept, over all lines. */
export const LOG_CHARS_MAX = 16_000_000;
/** A longer line is broken, so that one line cannot hold up the page. */
export const LINE_CHARS_MAX = 4_000;

export interface Line {
  text: string;
  start: Style;
}

/** Takes text in pieces and keeps its last lines. */
export class LogLines {
  /** The lines, oldest first. The last may still grow. */
  lines: Line[] = [];
  /** Number of lines that were dropped at the beginning. */
  dropped = 0;
  private chars = 0;
  private open = false;
  private style: Style = PLAIN;

  /** Adds text; what follows its last line feed stays open for the next piece. */
  push(text: string): void {
    const pieces = text.split('\n');
    pieces.forEach((piece, i) => {
      this.extend(piece);
      if (i < pieces.length - 1) this.close();
    });
    this.trim();
  }

  private extend(piece: string): void {
    if (piece === '') return;
    if (!this.open) {
      this.lines.push({ text: '', start: this.style });
      this.open = true;
    }
    const line = this.lines[this.lines.length - 1]!;
    const whole = overwrite(line.text + piece);
    this.chars += whole.length - line.text.length;
    line.text = whole;
    if (whole.length > LINE_CHARS_MAX) this.breakUp(line);
  }

  private breakUp(line: Line): void {
    const rest = line.text;
    line.text = rest.slice(0, LINE_CHARS_MAX);
    this.style = parseLine(line.text, line.start).end;
    for (let at = LINE_CHARS_MAX; at < rest.length; at += LINE_CHARS_MAX) {
      const text = rest.slice(at, at + LINE_CHARS_MAX);
      this.lines.push({ text, start: this.style });
      this.style = parseLine(text, this.style).end;
    }
  }

  private close(): void {
    if (!this.open) this.lines.push({ text: '', start: this.style });
    const line = this.lines[this.lines.length - 1]!;
    if (line.text.endsWith('\r')) {
      line.text = line.text.slice(0, -1);
      this.chars -= 1;
    }
    this.style = parseLine(line.text, line.start).end;
    this.open = false;
  }

  private trim(): void {
    let cut = Math.max(0, this.lines.length - LOG_LINES_MAX);
    for (let i = 0; i < cut; i += 1) this.chars -= this.lines[i]!.text.length;
    while (this.chars > LOG_CHARS_MAX && cut < this.lines.length - 1) {
      this.chars -= this.lines[cut]!.text.length;
      cut += 1;
    }
    if (cut > 0) {
      this.lines.splice(0, cut);
      this.dropped += cut;
    }
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
