// Tasks of a job as the table needs them: pages of a hundred, read when they come into view.

import { get, withParams } from '../api/client';
import type { Page, Task } from '../api/types';
import { TASK_STATES } from '../lib/states';
import type { Batch } from './batch';

const PAGE = 100;
/** Pages that are kept; the ones that were not looked at for longest are dropped. */
const PAGES_MAX = 60;

export class TaskPages {
  /** Grows when a task was read or changed. */
  version = $state(0);
  private readonly pages = new Map<number, Map<number, Task>>();
  private readonly open = new Set<number>();
  private wanted: number[] = [];

  constructor(private readonly job: number) {}

  /** A task, if its page was read. */
  task(index: number): Task | undefined {
    void this.version;
    return this.pages.get(Math.floor(index / PAGE))?.get(index);
  }

  /** Reads the pages of these tasks that are not there. */
  want(indexes: Iterable<number>): void {
    this.wanted = [...new Set([...indexes].map((index) => Math.floor(index / PAGE)))];
    for (const page of this.wanted) {
      const known = this.pages.get(page);
      if (known) {
        // The last in the map is the one that was looked at last.
        this.pages.delete(page);
        this.pages.set(page, known);
      } else {
        void this.read(page);
      }
    }
  }

  /** Reads what is in view again. */
  refresh(): void {
    for (const page of this.wanted) void this.read(page);
  }

  /** Takes new states into tasks; true if some of those in view changed, so that their other values are old. */
  apply(batch: Batch): boolean {
    let touched = false;
    for (const { index, state } of batch.jobs.get(this.job)?.tasks ?? []) {
      const page = this.pages.get(Math.floor(index / PAGE));
      const task = page?.get(index);
      if (!page || !task || !TASK_STATES.includes(state)) continue;
      page.set(index, { ...task, state });
      touched = true;
    }
    if (touched) this.version += 1;
    return touched;
  }

  private async read(page: number): Promise<void> {
    if (this.open.has(page)) return;
    this.open.add(page);
    try {
      const path = withParams(`/api/v1/jobs/${this.job}/tasks`, { cursor: page * PAGE, limit: PAGE });
      const { items } = await get<Page<Task>>(path);
      this.pages.delete(page);
      this.pages.set(page, new Map(items.map((task) => [task.index, task])));
      for (const oldest of this.pages.keys()) {
        if (this.pages.size <= PAGES_MAX) break;
        this.pages.delete(oldest);
      }
      this.version += 1;
    } catch {
      // The row stays empty; the mark in the header tells that the server does not answer.
    } finally {
      this.open.delete(page);
    }
  }
}
