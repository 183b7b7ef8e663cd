// The attempts that took most, put together by what they belong to.

import type { History } from '../api/types';

type Expensive = History['expensive'][number];

export interface ExpensiveGroup {
  key: string;
  job: number | null;
  queue: string | null;
  tasks: number;
  /** The longest of them. */
  ms: number;
  /** Run time times cpus, of all of them. */
  cost: number;
}

/** Sums attempts by the word that `by` says of each, the most first. */
export function groupExpensive(
  tasks: readonly Expensive[],
  by: 'job' | 'queue' | 'user',
  userOf: (job: number) => string | undefined,
): ExpensiveGroup[] {
  const groups = new Map<string, ExpensiveGroup>();
  for (const one of tasks) {
    const key = by === 'job' ? String(one.job) : by === 'queue' ? one.queue : (userOf(one.job) ?? '');
    const group = groups.get(key) ?? {
      key,
      job: by === 'job' ? one.job : null,
      queue: by === 'user' ? null : one.queue,
      tasks: 0,
      ms: 0,
      cost: 0,
    };
    group.tasks += 1;
    group.ms = Math.max(group.ms, one.ms);
    group.cost += one.ms * one.cpus;
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.cost - a.cost);
}
