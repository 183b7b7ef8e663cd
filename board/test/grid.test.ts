import { describe, expect, it } from 'vitest';
import {
  GRID_TASKS_MAX,
  UNREAD,
  applyChanges,
  decodeRuns,
  emptyGrid,
  indexesOf,
  layOut,
  mostUrgent,
  tally,
} from '../src/lib/grid';
import { codeOf } from '../src/lib/states';

const [RUNNING, FAILED, DONE, READY] = [codeOf('running'), codeOf('failed'), codeOf('succeeded'), codeOf('ready')];

describe('runs of states', () => {
  it('are decoded in order, over several pages', () => {
    const grid = emptyGrid(10);
    const next = decodeRuns(grid, 0, [
      ['s', 3],
      ['r', 2],
    ]);
    expect(next).toBe(5);
    expect(
      decodeRuns(grid, next, [
        ['f', 1],
        ['w', 4],
      ]),
    ).toBe(10);
    expect([...grid]).toEqual([DONE, DONE, DONE, RUNNING, RUNNING, FAILED, READY, READY, READY, READY]);
  });

  it('leave tasks unread that no run names, and letters that are not known', () => {
    const grid = emptyGrid(4);
    decodeRuns(grid, 1, [
      ['z', 1],
      ['s', 1],
    ]);
    expect([...grid]).toEqual([UNREAD, UNREAD, DONE, UNREAD]);
  });

  it('cannot write beyond the job, whatever the server says', () => {
    const grid = emptyGrid(3);
    expect(
      decodeRuns(grid, 0, [
        ['s', 1e12],
        ['f', 5],
        ['r', -4],
      ]),
    ).toBe(3);
    expect([...grid]).toEqual([DONE, DONE, DONE]);
    expect(emptyGrid(-1).length).toBe(0);
    expect(emptyGrid(1e18).length).toBe(GRID_TASKS_MAX);
  });

  it('decode to what was encoded, for any states', () => {
    const letters = 'bwprsfcl';
    let seed = 1;
    const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
    for (let round = 0; round < 50; round += 1) {
      const runs: [string, number][] = Array.from({ length: Math.floor(random() * 40) }, () => [
        letters[Math.floor(random() * 8)]!,
        Math.floor(random() * 9),
      ]);
      const whole = runs.map(([letter, n]) => letter.repeat(n)).join('');
      const grid = emptyGrid(whole.length);
      expect(decodeRuns(grid, 0, runs)).toBe(whole.length);
      expect([...grid].map((code) => letters[code])).toEqual([...whole]);
    }
  });
});

describe('states of tasks', () => {
  it('change by events, and count only real changes', () => {
    const grid = emptyGrid(3);
    decodeRuns(grid, 0, [['w', 3]]);
    expect(
      applyChanges(grid, [
        { index: 0, state: 'running' },
        { index: 0, state: 'running' },
        { index: 9, state: 'failed' },
      ]),
    ).toBe(1);
    expect(tally(grid)).toEqual([0, 2, 0, 1, 0, 0, 0, 0]);
    expect(tally(grid, 1, 3)).toEqual([0, 2, 0, 0, 0, 0, 0, 0]);
  });

  it('are found by state; no list is made of all', () => {
    const grid = emptyGrid(5);
    decodeRuns(grid, 0, [
      ['s', 2],
      ['f', 1],
      ['s', 1],
      ['f', 1],
    ]);
    expect([...indexesOf(grid, new Set([FAILED]))!]).toEqual([2, 4]);
    expect(indexesOf(grid, new Set())).toBeNull();
  });

  it('show a failure first where a cell is many tasks', () => {
    const grid = emptyGrid(6);
    decodeRuns(grid, 0, [
      ['s', 2],
      ['r', 1],
      ['f', 1],
      ['s', 2],
    ]);
    expect([mostUrgent(grid, 0, 2), mostUrgent(grid, 0, 3), mostUrgent(grid, 0, 6), mostUrgent(grid, 4, 99)]).toEqual([
      DONE,
      RUNNING,
      FAILED,
      DONE,
    ]);
  });
});

describe('the layout of cells', () => {
  it('gives few tasks large cells and fits a million into the height', () => {
    expect(layOut(10, 1000, 200, 0)).toMatchObject({ pitch: 16, perCell: 1 });
    for (const tasks of [1, 999, 50_000, 1_000_000, 16_000_000]) {
      const { pitch, columns, rows, perCell } = layOut(tasks, 1200, 220, 0);
      expect(rows * pitch).toBeLessThanOrEqual(220);
      expect(rows * columns * perCell).toBeGreaterThanOrEqual(tasks);
      expect(columns * pitch).toBeLessThanOrEqual(1200);
    }
  });

  it('gives each task a cell if a size is chosen, and survives no width', () => {
    expect(layOut(1_000_000, 1200, 220, 4)).toEqual({ pitch: 4, columns: 300, rows: 3334, perCell: 1 });
    expect(layOut(100, 0, 0, 0).columns).toBe(1);
    expect(layOut(0, 500, 200, 0).rows).toBe(0);
  });
});
