// The answer to why a task is where it is: one line, and how good or bad its news is.

import type { Why } from '../api/types';
import { capitalised } from './format';
import { TASK_MEANING, wordOf } from './states';

/** Reasons for which no worker of the farm would ever run the task. */
const NEVER: ReadonlySet<string> = new Set(['fits_nowhere', 'no_workers']);
/** Reasons for which a worker takes no work though it has room. */
const OUT_OF_SERVICE: ReadonlySet<string> = new Set(['draining', 'suspect', 'saturated', 'low_space', 'left_out']);

export type Tone = 'bad' | 'warn' | 'good' | undefined;

/** True if what the farm has now could never run it. */
export const canNeverRun = (reason: string) => NEVER.has(reason);

/** True of a worker whose free cpus are of no use to what waits. */
export const isOutOfService = (reason: string) => OUT_OF_SERVICE.has(reason);

type Answered = Pick<Why, 'state' | 'reason' | 'message'> & {
  failure?: { summary: string; message?: string | null } | null;
};

/** The answer in a line. */
export function headlineOf({ state, reason, message, failure }: Answered): string {
  if (state === 'failed' && failure) {
    const said = failure.message && !failure.summary.includes(failure.message) ? `, ${failure.message}` : '';
    return `Failed: ${failure.summary}${said}`;
  }
  if (reason === 'ended') return capitalised(state === 'skipped' ? TASK_MEANING.skipped : wordOf(state));
  if (reason === 'stopped') return `${capitalised(wordOf(state))}: ${message}`;
  if (reason === 'fits_nowhere') return `Can never run: ${message}`;
  return capitalised(message);
}

/** Which colour the answer has. */
export function toneOf({ state, reason }: Pick<Why, 'state' | 'reason'>): Tone {
  if (state === 'failed') return 'bad';
  if (state === 'succeeded') return 'good';
  return canNeverRun(reason) ? 'warn' : undefined;
}
