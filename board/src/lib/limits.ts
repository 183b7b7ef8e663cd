// Who uses a limit. The server tells how many of it are taken, and jobs tell which limits their tasks hold.

import type { Job, Limit } from '../api/types';
import { count } from './format';

/** The active jobs of each limit, those with most running tasks first. */
export function holdersOf(jobs: readonly Job[]): Map<string, Job[]> {
  const holders = new Map<string, Job[]>();
  for (const job of jobs) {
    for (const limit of new Set(job.steps.flatMap((step) => step.limits ?? []))) {
      const known = holders.get(limit);
      if (known) known.push(job);
      else holders.set(limit, [job]);
    }
  }
  for (const some of holders.values()) some.sort((a, b) => b.counts.running - a.counts.running || a.id - b.id);
  return holders;
}

/** Tasks that may hold a limit at a time; without a number any may. */
export const mostOf = (limit: Pick<Limit, 'max'>) => (limit.max == null ? 'any' : count(limit.max));
