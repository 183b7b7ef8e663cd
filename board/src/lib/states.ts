// The states of tasks, jobs and workers: one word, one letter and one colour each.

import type { Counts, JobState, TaskState, WorkerState } from '../api/types';

/** The states of tasks. A task's code in the grid is its place in this list. */
export const TASK_STATES = [
  'waiting',
  'ready',
  'booked',
  'running',
  'succeeded',
  'failed',
  'canceled',
  'skipped',
] as const satisfies readonly TaskState[];

/** The letter that stands for a state wherever its colour does. */
export const LETTERS: Record<TaskState | JobState | WorkerState, string> = {
  waiting: 'W',
  ready: 'Y',
  booked: 'B',
  running: 'R',
  succeeded: 'S',
  failed: 'F',
  canceled: 'C',
  skipped: 'K',
  pending: 'P',
  held: 'H',
  up: 'U',
  draining: 'D',
  suspect: '?',
  expired: 'X',
  forgotten: '-',
};

/** Which colours a state has: those of a task's state that means as much. */
const TONES: Record<keyof typeof LETTERS, TaskState> = {
  waiting: 'waiting',
  ready: 'ready',
  booked: 'booked',
  running: 'running',
  succeeded: 'succeeded',
  failed: 'failed',
  canceled: 'canceled',
  skipped: 'skipped',
  pending: 'ready',
  held: 'skipped',
  up: 'succeeded',
  draining: 'ready',
  suspect: 'ready',
  expired: 'failed',
  forgotten: 'canceled',
};

/** The name of a state's colours. One that this page does not know looks as if it waited. */
export function toneOf(state: string): TaskState {
  return Object.hasOwn(TONES, state) ? TONES[state as keyof typeof TONES] : 'waiting';
}

/** The word that people read. The interface spells one state as Americans do, and everything else says `cancelled`. */
export function wordOf(state: string): string {
  return state === 'canceled' ? 'cancelled' : state;
}

/** What a state means, in a sentence. */
export const TASK_MEANING: Record<TaskState, string> = {
  waiting: 'waits for another task, step or job',
  ready: 'could start when a worker has room',
  booked: 'has a worker and is about to start',
  running: 'runs',
  succeeded: 'succeeded',
  failed: 'failed, and its retries are spent',
  canceled: 'was cancelled',
  skipped: 'never started, because what it depends on failed',
};

export const JOB_STATES = [
  'running',
  'pending',
  'held',
  'succeeded',
  'failed',
  'canceled',
] as const satisfies readonly JobState[];

/** The code of a task's state. */
export function codeOf(state: TaskState): number {
  return TASK_STATES.indexOf(state);
}

/** True if only a retry changes the state. */
export function hasEnded(state: TaskState | JobState): boolean {
  return state === 'succeeded' || state === 'failed' || state === 'canceled' || state === 'skipped';
}

/** Parts of a progress bar in their order, without the empty ones. */
export function parts(counts: Counts): { state: TaskState; tasks: number }[] {
  const order = ['succeeded', 'failed', 'canceled', 'skipped', 'running', 'ready', 'waiting'] as const;
  return order.map((state) => ({ state, tasks: counts[state] })).filter((part) => part.tasks > 0);
}

/** Tasks that need nothing any more. */
export function ended(counts: Counts): number {
  return counts.succeeded + counts.failed + counts.canceled + counts.skipped;
}
