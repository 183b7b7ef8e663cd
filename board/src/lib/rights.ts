// What a person may do. The server decides; the board only leaves out what would be refused.

import type { Job, Me, TaskState } from '../api/types';

type Caller = Pick<Me, 'name' | 'role'> | undefined;

/** Workers and queues belong to administrators. */
export function mayRunFarm(me: Caller): boolean {
  return me?.role === 'admin';
}

/** Jobs belong to their user, and to administrators. */
export function maySteer(me: Caller, job: Pick<Job, 'user'>): boolean {
  return me?.role === 'admin' || (me?.role === 'user' && me.name === job.user);
}

/** What tasks write is for their user and for administrators; a server may show it to all, which is not known here. */
export function mayReadSurely(me: Caller, job: Pick<Job, 'user'>): boolean {
  return me?.role === 'admin' || me?.name === job.user;
}

export type JobAction = 'cancel' | 'retry' | 'hold' | 'release' | 'priority';

/** The actions that make sense for a job in its state. */
export function actionsOf(job: Pick<Job, 'state' | 'counts'>): JobAction[] {
  switch (job.state) {
    case 'held':
      return ['release', 'priority', 'cancel'];
    case 'pending':
    case 'running': {
      const again = job.counts.failed > 0 ? (['retry'] as const) : [];
      return [...again, 'hold', 'priority', 'cancel'];
    }
    case 'failed':
    case 'canceled':
      return ['retry'];
    case 'succeeded':
      return [];
  }
}

export type TaskAction = 'retry' | 'cancel';

/** The actions that make sense for a task in its state. */
export function taskActionsOf(state: TaskState): TaskAction[] {
  switch (state) {
    case 'failed':
    case 'canceled':
      return ['retry'];
    case 'waiting':
    case 'ready':
    case 'booked':
    case 'running':
      return ['cancel'];
    case 'succeeded':
    case 'skipped':
      return [];
  }
}
