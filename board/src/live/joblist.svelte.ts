// The list of jobs as it was read so far: the first page again and again, the others once, as a person scrolls.

import { get } from '../api/client';
import type { Job, JobState, Page } from '../api/types';
import { hasEnded } from '../lib/states';
import type { Batch } from './batch';

/** Jobs that are kept at most; who wants older ones filters. */
export const JOBS_MAX = 20_000;

export class JobList {
  jobs = $state.raw<Job[]>([]);
  /**
   * Jobs from this id on were looked at; 0 if all were, null if none were yet. A page may have few jobs or none and still
   * not be the last: for each the server looks at a bounded number.
   */
  reach: number | null = $state(null);
  private address = '';
  private busy = false;

  /** Begins again, for another filter. */
  reset(address: string): void {
    if (address === this.address) return;
    this.address = address;
    this.jobs = [];
    this.reach = null;
  }

  /** True if there are no further jobs. */
  get complete(): boolean {
    return this.reach === 0;
  }

  /** Takes the newest jobs; those that were read before and are older stay. */
  first(page: Page<Job>): void {
    const end = Number(page.next ?? 0);
    this.jobs = [...page.items, ...this.jobs.filter((job) => job.id < end)];
    this.reach = Math.min(this.reach ?? end, end);
  }

  /** Reads the next page, if there is one. */
  async more(address: string): Promise<void> {
    if (this.busy || !this.reach || this.jobs.length >= JOBS_MAX || address !== this.address) return;
    this.busy = true;
    try {
      const page = await get<Page<Job>>(`${address}&cursor=${this.reach}`);
      if (address !== this.address) return;
      const known = new Set(this.jobs.map((job) => job.id));
      this.jobs = [...this.jobs, ...page.items.filter((job) => !known.has(job.id))];
      this.reach = Number(page.next ?? 0);
    } catch {
      // The mark in the header tells that the server does not answer; scrolling asks again.
    } finally {
      this.busy = false;
    }
  }

  /** True if something happened that the entries alone cannot show: a new job, or one that leaves the filter. */
  wants(batch: Batch): boolean {
    for (const [id, change] of batch.jobs) if (change.state !== undefined || !this.has(id)) return true;
    return false;
  }

  /** Takes new counts and states into the entries. */
  apply(batch: Batch, states: readonly JobState[]): void {
    let touched = false;
    const jobs = this.jobs.map((job) => {
      const change = batch.jobs.get(job.id);
      if (!change) return job;
      touched = true;
      return { ...job, counts: change.counts ?? job.counts, state: change.state ?? job.state };
    });
    if (!touched) return;
    // A job that left the states asked for goes at the next reading, so that rows do not jump under the pointer;
    // one that ended meanwhile shows it.
    this.jobs = states.length === 0 ? jobs : jobs.filter((job) => states.includes(job.state) || hasEnded(job.state));
  }

  private has(id: number): boolean {
    return this.jobs.some((job) => job.id === id);
  }
}
