import { describe, expect, it } from 'vitest';
import { HEIGHT_MAX, OVERSCAN, scrollTo, windowOf } from '../src/lib/virtual';

describe('the rows on the screen', () => {
  it('are those that the scroll bar shows, and a few more', () => {
    expect(windowOf(1000, 20, 0, 100)).toEqual({ first: 0, end: 5 + OVERSCAN, offset: 0, height: 20_000 });
    expect(windowOf(1000, 20, 2_000, 100)).toEqual({
      first: 100 - OVERSCAN,
      end: 105 + OVERSCAN,
      offset: (100 - OVERSCAN) * 20,
      height: 20_000,
    });
  });

  it('are few and within the list, for any length and place', () => {
    for (const rows of [0, 1, 7, 10_000, 1_000_000, 16_000_000]) {
      const { height } = windowOf(rows, 28, 0, 600);
      expect(height).toBeLessThanOrEqual(HEIGHT_MAX);
      for (let part = 0; part <= 1; part += 0.05) {
        const { first, end } = windowOf(rows, 28, part * height, 600);
        expect(first).toBeGreaterThanOrEqual(0);
        expect(end).toBeLessThanOrEqual(rows);
        expect(end - first).toBeLessThanOrEqual(Math.ceil(600 / 28) + 2 * OVERSCAN + 1);
      }
    }
  });

  it('reach the first and the last row of a list that is taller than a browser allows', () => {
    const rows = 1_000_000;
    expect(windowOf(rows, 28, 0, 600).first).toBe(0);
    const last = windowOf(rows, 28, HEIGHT_MAX, 600);
    expect(last.end).toBe(rows);
    // The last row ends where the list does.
    expect(Math.abs(last.offset + (rows - last.first) * 28 - HEIGHT_MAX)).toBeLessThanOrEqual(1);
  });

  it('survive a place from before the list became shorter', () => {
    const { first, end } = windowOf(3, 20, 50_000, 100);
    expect([first, end]).toEqual([0, 3]);
  });
});

describe('bringing a row into view', () => {
  it('does not move what is seen already', () => {
    expect(scrollTo(3, 100, 20, 0, 100)).toBe(0);
  });

  it('moves as little as it can, and always far enough', () => {
    for (const rows of [50, 10_000, 1_000_000]) {
      for (const row of [0, 1, Math.floor(rows / 2), rows - 1]) {
        for (const from of [0, 1_000, 1e9]) {
          const { height } = windowOf(rows, 28, 0, 600);
          const start = Math.min(from, Math.max(0, height - 600));
          const top = scrollTo(row, rows, 28, start, 600);
          const { first, end } = windowOf(rows, 28, top, 600);
          expect(row).toBeGreaterThanOrEqual(first);
          expect(row).toBeLessThan(end);
        }
      }
    }
    expect(scrollTo(10, 100, 20, 0, 100)).toBe(120);
    expect(scrollTo(2, 100, 20, 400, 100)).toBe(40);
  });
});
