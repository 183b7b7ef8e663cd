// Why a worker takes no work: what ails it, what an administrator asked for, or that it is full.

import type { ServerLoad, WorkerState } from '../api/types';
import { wordOf } from './states';

/** What the server says of a worker with which nothing is wrong, and that has no room. */
const FULL = 'its cpus are all booked';

/** Nothing is wrong with one that is full, and a drained one is as its administrator wants it. */
export type Standing = 'open' | 'full' | 'drained' | 'troubled';

export interface Stands {
  state: WorkerState;
  draining: boolean;
  load?: Pick<ServerLoad, 'accepting_jobs' | 'reason'>;
}

export function standingOf({ state, draining, load }: Stands): Standing {
  if (state === 'suspect' || state === 'expired') return 'troubled';
  if (draining || state === 'draining') return 'drained';
  if (!load || load.accepting_jobs) return 'open';
  return load.reason === FULL ? 'full' : 'troubled';
}

/** For an order with the troubled last. */
export function rankOf(worker: Stands): number {
  const standing = standingOf(worker);
  return standing === 'troubled' ? 2 : standing === 'drained' ? 1 : 0;
}

/** The reason in one or two words, for a narrow screen. */
export function shortReason(worker: Stands): string {
  const { state, load } = worker;
  if (standingOf(worker) === 'open') return '';
  if (standingOf(worker) === 'full') return 'full';
  if (state !== 'up') return wordOf(state);
  const reason = load?.reason ?? '';
  if (reason.includes('pressure')) return 'pressure';
  if (reason.startsWith('in quarantine')) return 'quarantine';
  return reason.includes('directory has') ? 'low space' : 'no work';
}
