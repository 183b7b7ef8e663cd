// Output of tasks: escape sequences become spans with classes, and everything else stays text. Nothing here makes
// markup; views put the text of a span into a text node, so that a task that prints a tag shows it as it is.

/** What the spans of a line look like. Colours are 0 to 15, or `#rrggbb`. */
export interface Style {
  fg: number | string | null;
  bg: number | string | null;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
}

export interface Span {
  text: string;
  style: Style;
}

export const PLAIN: Style = Object.freeze({
  fg: null,
  bg: null,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  inverse: false,
});

// A control sequence (CSI), an operating system command (OSC, ended by BEL or ST), another two-character escape, or
// an escape at the end of the text.
// eslint-disable-next-line no-control-regex
const ESCAPE = /\u001b(?:\[([0-9;:]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_a-z]|$)/g;
// Other control characters, but for the tab.
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f]/g;

/** Splits a line into spans, beginning in `start`; returns them and the style in which the next line begins. */
export function parseLine(line: string, start: Style = PLAIN): { spans: Span[]; end: Style } {
  const spans: Span[] = [];
  let style = start;
  let at = 0;
  if (line.includes('\u001b')) {
    for (const match of line.matchAll(ESCAPE)) {
      push(spans, line.slice(at, match.index), style);
      at = match.index + match[0].length;
      if (match[2] === 'm') style = restyle(style, match[1] ?? '');
    }
  }
  push(spans, line.slice(at), style);
  return { spans, end: style };
}

/** A line without escape sequences and control characters: what search looks at. */
export function stripped(line: string): string {
  return (line.includes('\u001b') ? line.replace(ESCAPE, '') : line).replace(CONTROL, '');
}

function push(spans: Span[], raw: string, style: Style): void {
  const text = raw.replace(CONTROL, '');
  if (text !== '') spans.push({ text, style });
}

function restyle(from: Style, codes: string): Style {
  const style: Style = { ...from };
  const list = codes === '' ? [0] : codes.split(/[;:]/).map((code) => (code === '' ? 0 : Number(code)));
  for (let i = 0; i < list.length; i += 1) {
    const code = list[i]!;
    if (code === 0) Object.assign(style, PLAIN);
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code === 27) style.inverse = false;
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code === 39) style.fg = null;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code === 49) style.bg = null;
    else if (code >= 90 && code <= 97) style.fg = code - 82;
    else if (code >= 100 && code <= 107) style.bg = code - 92;
    else if (code === 38 || code === 48) {
      const { colour, used } = extended(list, i + 1);
      if (colour !== undefined) style[code === 38 ? 'fg' : 'bg'] = colour;
      i += used;
    }
  }
  return style;
}

/** A colour of 256 (`5;N`) or of red, green and blue (`2;R;G;B`). */
function extended(list: number[], at: number): { colour?: number | string; used: number } {
  if (list[at] === 5) return { colour: indexed(list[at + 1]), used: 2 };
  if (list[at] === 2) {
    const rgb = list.slice(at + 1, at + 4);
    return rgb.length === 3 && rgb.every(isByte) ? { colour: hex(rgb), used: 4 } : { used: 4 };
  }
  return { used: 0 };
}

function indexed(n: number | undefined): number | string | undefined {
  if (n === undefined || !isByte(n)) return undefined;
  if (n < 16) return n;
  if (n >= 232) return hex([0, 0, 0].map(() => 8 + (n - 232) * 10));
  const cube = n - 16;
  return hex([Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((level) => (level ? 55 + level * 40 : 0)));
}

const isByte = (n: number) => Number.isInteger(n) && n >= 0 && n <= 255;
const hex = (rgb: number[]) => `#${rgb.map((n) => n.toString(16).padStart(2, '0')).join('')}`;
