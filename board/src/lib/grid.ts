// The states of all tasks of a job: one byte a task, from the run-length coded answer of the server.

import type { TaskChange } from '../live/batch';
import { TASK_STATES, codeOf } from './states';

/** Tasks that are kept at most: the most that a job can have. A larger answer is cut, so that it cannot fill memory. */
export const GRID_TASKS_MAX = 16_000_000;

/** The code of a task that no answer has named yet. */
export const UNREAD = 255;

const CODES: Record<string, number> = {
  b: codeOf('waiting'),
  w: codeOf('ready'),
  p: codeOf('booked'),
  r: codeOf('running'),
  s: codeOf('succeeded'),
  f: codeOf('failed'),
  c: codeOf('canceled'),
  l: codeOf('skipped'),
};

export type Run = [string, number];

/** Makes room for a job of `tasks` tasks, all of them unread. */
export function emptyGrid(tasks: number): Uint8Array {
  return new Uint8Array(Math.min(Math.max(0, tasks), GRID_TASKS_MAX)).fill(UNREAD);
}

/** Writes runs into the grid from a task on; returns the task after the last. Letters that are not known stay unread. */
export function decodeRuns(grid: Uint8Array, from: number, runs: readonly Run[]): number {
  let at = Math.max(0, from);
  for (const [letter, length] of runs) {
    const end = Math.min(grid.length, at + Math.max(0, length));
    grid.fill(CODES[letter] ?? UNREAD, at, end);
    at = end;
  }
  return at;
}

/** Applies changes from the event stream; returns how many tasks changed their state. */
export function applyChanges(grid: Uint8Array, changes: readonly TaskChange[]): number {
  let changed = 0;
  for (const { index, state } of changes) {
    const code = codeOf(state);
    if (code < 0 || index >= grid.length || grid[index] === code) continue;
    grid[index] = code;
    changed += 1;
  }
  return changed;
}

/** Counts tasks by the code of their state, over a part of the grid. */
export function tally(grid: Uint8Array, from = 0, to = grid.length): number[] {
  const counts = new Array<number>(TASK_STATES.length).fill(0);
  const end = Math.min(to, grid.length);
  for (let i = from; i < end; i += 1) {
    const code = grid[i]!;
    if (code < counts.length) counts[code]! += 1;
  }
  return counts;
}

/** The indexes of the tasks in one of the states; `null` stands for all tasks, so that no list is made of them. */
export function indexesOf(grid: Uint8Array, codes: ReadonlySet<number>): Uint32Array | null {
  if (codes.size === 0) return null;
  let found = 0;
  for (let i = 0; i < grid.length; i += 1) if (codes.has(grid[i]!)) found += 1;
  const indexes = new Uint32Array(found);
  let at = 0;
  for (let i = 0; i < grid.length; i += 1) if (codes.has(grid[i]!)) indexes[at++] = i;
  return indexes;
}

/** What a cell shows that stands for several tasks: the state that a person must see first. */
const URGENCY = [
  codeOf('failed'),
  codeOf('running'),
  codeOf('booked'),
  codeOf('canceled'),
  codeOf('skipped'),
  codeOf('ready'),
  codeOf('waiting'),
  codeOf('succeeded'),
];
const RANK = new Uint8Array(256).fill(URGENCY.length);
URGENCY.forEach((code, rank) => (RANK[code] = rank));

/** The most urgent state of the tasks `from..to`. */
export function mostUrgent(grid: Uint8Array, from: number, to: number): number {
  let best = UNREAD;
  const end = Math.min(to, grid.length);
  for (let i = from; i < end; i += 1) {
    const code = grid[i]!;
    if (RANK[code]! < RANK[best]!) {
      best = code;
      if (RANK[best] === 0) break;
    }
  }
  return best;
}

/** How the cells of a grid are laid out. */
export interface Layout {
  /** Pixels from one cell to the next. */
  pitch: number;
  columns: number;
  rows: number;
  /** Tasks that a cell stands for. */
  perCell: number;
}

/** Sizes of cells that a person can choose; 0 fits all tasks into the height. */
export const PITCHES = [0, 4, 8, 16] as const;

/** Lays tasks out in rows. A pitch of 0 takes the largest cells with which all tasks fit into the height. */
export function layOut(tasks: number, width: number, height: number, pitch: number): Layout {
  const room = Math.max(1, Math.floor(width));
  if (pitch > 0) {
    const columns = Math.max(1, Math.floor(room / pitch));
    return { pitch, columns, rows: Math.ceil(tasks / columns), perCell: 1 };
  }
  for (let size = 16; size >= 2; size -= 1) {
    const columns = Math.max(1, Math.floor(room / size));
    const rows = Math.ceil(tasks / columns);
    if (rows * size <= height) return { pitch: size, columns, rows, perCell: 1 };
  }
  const columns = Math.max(1, Math.floor(room / 2));
  const rowsMax = Math.max(1, Math.floor(height / 2));
  const perCell = Math.ceil(tasks / (columns * rowsMax));
  return { pitch: 2, columns, rows: Math.ceil(Math.ceil(tasks / perCell) / columns), perCell };
}
