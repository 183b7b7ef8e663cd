// Which rows of a long list are on the screen.

/** The tallest element, in pixels: browsers cut taller ones, the first at 17.8 million. */
export const HEIGHT_MAX = 10_000_000;
/** Rows that are drawn above and below what is seen. */
export const OVERSCAN = 6;

export interface Window {
  /** The first row that is drawn. */
  first: number;
  /** The row after the last that is drawn. */
  end: number;
  /** Pixels from the top of the list to the first drawn row. */
  offset: number;
  /** Height of the whole list in pixels. */
  height: number;
}

/**
 * The rows to draw. Where all rows together would be taller than the browser allows, the list is made shorter, and
 * the place of the scroll bar is taken as a part of the whole.
 */
export function windowOf(rows: number, rowHeight: number, scrollTop: number, viewHeight: number): Window {
  const full = rows * rowHeight;
  const height = Math.min(full, HEIGHT_MAX);
  const top = Math.max(0, Math.min(scrollTop, Math.max(0, height - viewHeight)));
  const hidden = Math.max(1, height - viewHeight);
  const virtual = full > height ? (top / hidden) * (full - viewHeight) : top;
  const seen = Math.floor(virtual / rowHeight);
  const first = Math.max(0, seen - OVERSCAN);
  const end = Math.min(rows, Math.ceil((virtual + viewHeight) / rowHeight) + OVERSCAN);
  // Where the list is shortened, rows are placed by what is seen; else each has its own place. Whole pixels: text
  // between two pixels is blurred.
  const offset = full > height ? Math.round(top - (virtual - first * rowHeight)) : first * rowHeight;
  return { first, end: Math.max(first, end), offset, height };
}

/** The place of the scroll bar that brings a row into view; `scrollTop` if it is in view already. */
export function scrollTo(row: number, rows: number, rowHeight: number, scrollTop: number, viewHeight: number): number {
  const full = rows * rowHeight;
  const height = Math.min(full, HEIGHT_MAX);
  const hidden = Math.max(1, height - viewHeight);
  const scale = full > height ? (full - viewHeight) / hidden : 1;
  const virtual = scrollTop * scale;
  const top = row * rowHeight;
  if (top < virtual) return Math.max(0, top / scale);
  if (top + rowHeight > virtual + viewHeight) {
    return Math.min(hidden, Math.max(0, (top + rowHeight - viewHeight) / scale));
  }
  return scrollTop;
}
