// What the event stream told since the last frame, put together: one entry a job, the last state of each task.

import type { Counts, JobState, TaskState } from '../api/types';

export interface TaskChange {
  index: number;
  state: TaskState;
}

/** An event as it stands on the wire. */
export type WireEvent =
  | { job: { job: number; state: JobState; counts: Counts } }
  | { tasks: { job: number; counts: Counts; tasks?: TaskChange[] } }
  | { worker: { worker: string; what: string } }
  | 'lagged';

/** Changes of tasks that are kept until the next frame. Beyond that the state is read again instead. */
export const CHANGES_MAX = 50_000;

export interface JobChange {
  state?: JobState;
  counts?: Counts;
  tasks: TaskChange[];
}

export class Batch {
  jobs = new Map<number, JobChange>();
  workers = new Set<string>();
  /** True if something was missed: read the state again. */
  lagged = false;
  private changes = 0;

  get isEmpty(): boolean {
    return this.jobs.size === 0 && this.workers.size === 0 && !this.lagged;
  }

  add(event: WireEvent): void {
    if (event === 'lagged') {
      this.lagged = true;
    } else if ('job' in event) {
      const job = this.jobOf(event.job.job);
      job.state = event.job.state;
      job.counts = event.job.counts;
    } else if ('tasks' in event) {
      this.addTasks(event.tasks);
    } else if ('worker' in event) {
      this.workers.add(event.worker.worker);
    }
  }

  private addTasks({ job: id, counts, tasks = [] }: { job: number; counts: Counts; tasks?: TaskChange[] }): void {
    const job = this.jobOf(id);
    job.counts = counts;
    this.changes += tasks.length;
    if (this.changes > CHANGES_MAX) {
      // A page in the background gets no frames: drop what would pile up.
      this.lagged = true;
      for (const change of this.jobs.values()) change.tasks = [];
      this.changes = 0;
      return;
    }
    for (const { index, state } of tasks) job.tasks.push({ index, state });
  }

  private jobOf(id: number): JobChange {
    let job = this.jobs.get(id);
    if (!job) this.jobs.set(id, (job = { tasks: [] }));
    return job;
  }
}

/** Reads the data of an event; null if it is none that the board knows. */
export function parseEvent(data: string): WireEvent | null {
  try {
    const event: unknown = JSON.parse(data);
    if (event === 'lagged') return event;
    if (typeof event !== 'object' || event === null) return null;
    return 'job' in event || 'tasks' in event || 'worker' in event ? (event as WireEvent) : null;
  } catch {
    return null;
  }
}
