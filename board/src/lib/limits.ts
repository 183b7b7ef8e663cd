// Who holds a limit: its tasks, of which the server names the first, by job.

import type { Limit } from '../api/types';
import { count } from './format';
import { splitTask } from './route';

type Holder = NonNullable<Limit['holders']>[number];

/** The tasks of a job that hold a limit. */
export interface HoldingJob {
  job: number;
  user: string;
  tasks: Holder[];
}

/** The jobs whose tasks hold a limit, those with most of these tasks first. */
export function holdingJobs(holders: readonly Holder[]): HoldingJob[] {
  const jobs = new Map<number, HoldingJob>();
  for (const holder of holders) {
    const job = Number(splitTask(holder.task).job);
    const known = jobs.get(job);
    if (known) known.tasks.push(holder);
    else jobs.set(job, { job, user: holder.user, tasks: [holder] });
  }
  return [...jobs.values()].sort((a, b) => b.tasks.length - a.tasks.length || a.job - b.job);
}

/** Tasks that may hold a limit at a time; without a number any may. */
export const mostOf = (limit: Pick<Limit, 'max'>) => (limit.max == null ? 'any' : count(limit.max));
