// Numbers and times as people read them. Unknown is shown as a dash, and is never 0.

export const UNKNOWN = '–';

type Maybe = number | null | undefined;

const WHOLE = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 0 });
const ONE = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 1 });
const TWO = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 2 });

/** A count with separators: `12,345`. */
export function count(n: Maybe): string {
  return n == null ? UNKNOWN : WHOLE.format(n);
}

/** A count in at most five characters, for axes and narrow places: `1.2M`. */
export function short(n: Maybe): string {
  if (n == null) return UNKNOWN;
  for (const [unit, size] of [
    ['G', 1e9],
    ['M', 1e6],
    ['k', 1e3],
  ] as const) {
    if (Math.abs(n) >= size * 0.9995) {
      const scaled = n / size;
      return `${Math.abs(scaled) >= 99.95 ? Math.round(scaled) : ONE.format(scaled)}${unit}`;
    }
  }
  return ONE.format(n);
}

/** A number with few digits: two decimals below 10, one below 100. */
export function figure(n: Maybe): string {
  if (n == null) return UNKNOWN;
  const size = Math.abs(n);
  return (size < 10 ? TWO : size < 100 ? ONE : WHOLE).format(n);
}

/** Cpus, in hundredths at the finest. */
export function cpus(n: Maybe): string {
  if (n == null) return UNKNOWN;
  return (Math.abs(n) < 10 ? TWO : Math.abs(n) < 1000 ? ONE : WHOLE).format(n);
}

/** Points of a scoring rule, with their sign. */
export function points(n: Maybe): string {
  if (n == null) return UNKNOWN;
  const sign = n > 0 ? '+' : n < 0 ? '−' : '';
  return sign + Math.abs(n).toFixed(1);
}

/** Percent from a part of 1. */
export function percent(part: Maybe): string {
  if (part == null) return UNKNOWN;
  const value = part * 100;
  if (value > 0 && value < 0.05) return '<0.1%';
  return `${value > 0 && value < 9.95 ? ONE.format(value) : WHOLE.format(value)}%`;
}

const BYTES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;

/** Bytes with three digits: `1.53 GiB`. */
export function bytes(n: Maybe): string {
  if (n == null) return UNKNOWN;
  let unit = 0;
  let value = n;
  while (Math.abs(value) >= 999.5 && unit < BYTES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) return `${Math.round(value)} B`;
  const digits = Math.abs(value) < 9.995 ? 2 : Math.abs(value) < 99.95 ? 1 : 0;
  return `${value.toFixed(digits)} ${BYTES[unit]}`;
}

/** A span of time in its two largest units, as the commands print it: `4m 59s`. */
export function duration(ms: Maybe): string {
  if (ms == null) return UNKNOWN;
  const size = Math.max(0, ms);
  if (size > 0 && size < 9.95) return `${TWO.format(Number(size.toPrecision(2)))} ms`;
  if (size < 999.5) return `${Math.round(size)} ms`;
  if (size < 9_950) return `${(size / 1000).toFixed(1)}s`;
  const seconds = Math.round(size / 1000);
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), 'm', seconds % 60, 's');
  const minutes = Math.round(seconds / 60);
  if (minutes < 24 * 60) return two(Math.floor(minutes / 60), 'h', minutes % 60, 'm');
  const hours = Math.round(minutes / 60);
  return two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

function two(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large}${largeUnit}` : `${large}${largeUnit} ${small}${smallUnit}`;
}

/** How long ago something was, or how far off it is. */
export function ago(at: Maybe, now: number): string {
  if (at == null) return UNKNOWN;
  const passed = now - at;
  if (Math.abs(passed) < 1000) return 'now';
  // Whole seconds: a figure that ticks must not show a decimal point.
  const span = duration(Math.floor(Math.abs(passed) / 1000) * 1000).replace('.0s', 's');
  return passed < 0 ? `in ${span}` : `${span} ago`;
}

const pad = (n: number, width = 2) => String(n).padStart(width, '0');

/** A moment in the reader's own zone: `2026-11-23 17:42:31`. */
export function absolute(at: Maybe): string {
  if (at == null) return UNKNOWN;
  const d = new Date(at);
  return `${pad(d.getFullYear(), 4)}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${clock(at)}`;
}

/** The time of day: `17:42:31`. */
export function clock(at: number): string {
  const d = new Date(at);
  return `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

/** The time of day to a tenth of a second: `17:42:31.2`. */
export function exactClock(at: number): string {
  return `${clock(at)}.${Math.floor(new Date(at).getMilliseconds() / 100)}`;
}

/** `1 task`, `2 tasks`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** A sentence of the server, which begins in lower case, as the first of a line. */
export function capitalised(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
