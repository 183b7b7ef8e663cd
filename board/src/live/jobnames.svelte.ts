// Names and users of jobs, for lists that have their ids alone. Neither ever changes, so each job is asked for once.

import { ApiFailure, get } from '../api/client';
import type { Job } from '../api/types';

/** Jobs that are remembered; beyond that the memory begins again. */
const JOBS_MAX = 500;
/** Requests under way. */
const OPEN_MAX = 4;

export class JobNames {
  private version = $state(0);
  /** Null where the server has none. */
  private readonly known = new Map<number, Pick<Job, 'name' | 'user'> | null>();
  private waiting: number[] = [];
  private open = 0;

  /** The name and the user of a job, once they were read. */
  of(id: number): Pick<Job, 'name' | 'user'> | undefined {
    void this.version;
    return this.known.get(id) ?? undefined;
  }

  /** Reads what is not known of these jobs. */
  want(ids: readonly number[]): void {
    if (this.known.size > JOBS_MAX) this.known.clear();
    this.waiting = [...new Set(ids)].filter((id) => !this.known.has(id));
    this.go();
  }

  private go(): void {
    while (this.open < OPEN_MAX) {
      const id = this.waiting.shift();
      if (id === undefined) return;
      void this.read(id);
    }
  }

  private async read(id: number): Promise<void> {
    this.open += 1;
    this.known.set(id, null);
    try {
      const { name, user } = await get<Job>(`/api/v1/jobs/${id}`);
      this.known.set(id, { name, user });
      this.version += 1;
    } catch (e) {
      // A job that is gone stays without a name; one that could not be asked for is asked for again.
      if (!(e instanceof ApiFailure) || e.status !== 404) this.known.delete(id);
    } finally {
      this.open -= 1;
      this.go();
    }
  }
}
