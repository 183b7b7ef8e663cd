// The users of a queue, with what each has in it.

import type { Job, Queue } from '../api/types';

/** The weight of a user who has none of their own. */
const USER_WEIGHT = 100;

export interface UserTurn {
  user: string;
  /** Against the queue's other users. */
  weight: number;
  jobs: number;
  /** Tasks of these jobs that run, and that are ready. */
  running: number;
  waiting: number;
}

/** The users with jobs in the queue and those with a weight of their own, those with most running first. */
export function turnsOf(queue: Pick<Queue, 'user_weights'>, jobs: readonly Job[]): UserTurn[] {
  const users = new Map<string, UserTurn>();
  const of = (user: string) => {
    const known = users.get(user);
    if (known) return known;
    const weight = queue.user_weights?.[user] ?? USER_WEIGHT;
    const made = { user, weight, jobs: 0, running: 0, waiting: 0 };
    users.set(user, made);
    return made;
  };
  for (const user of Object.keys(queue.user_weights ?? {})) of(user);
  for (const job of jobs) {
    const turn = of(job.user);
    turn.jobs += 1;
    turn.running += job.counts.running;
    turn.waiting += job.counts.ready;
  }
  return [...users.values()].sort(
    (a, b) => b.running - a.running || b.waiting - a.waiting || a.user.localeCompare(b.user, 'en'),
  );
}
