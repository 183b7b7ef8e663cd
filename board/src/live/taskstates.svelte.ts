// The states of all tasks of a job: read once in runs, then kept by the event stream.

import { get } from '../api/client';
import type { TaskGrid } from '../api/types';
import { applyChanges, decodeRuns, emptyGrid, tally } from '../lib/grid';
import type { Batch } from './batch';

export class TaskStates {
  /** One byte a task. It is changed in place; `version` grows when it was. */
  grid: Uint8Array = new Uint8Array(0);
  version = $state(0);
  private missed: Batch[] | undefined;

  constructor(private readonly job: number) {}

  /** Reads all states. What the stream tells meanwhile is applied afterwards, so that it is not overwritten. */
  async read(signal: AbortSignal): Promise<number> {
    this.missed = [];
    try {
      let from = 0;
      let next: TaskGrid | undefined;
      let grid: Uint8Array | undefined;
      do {
        next = await get<TaskGrid>(`/api/v1/jobs/${this.job}/grid?from=${from}`, signal);
        grid ??= this.grid.length === next.tasks ? this.grid : emptyGrid(next.tasks);
        from = decodeRuns(grid, next.from, next.runs);
        this.grid = grid;
        this.version += 1;
        // A page that brings nothing would be asked for without end.
      } while (next.next != null && next.next > next.from && (from = next.next) < grid.length);
      return grid.length;
    } finally {
      const missed = this.missed ?? [];
      this.missed = undefined;
      for (const batch of missed) this.apply(batch);
    }
  }

  apply(batch: Batch): void {
    if (this.missed) {
      this.missed.push(batch);
      return;
    }
    const tasks = batch.jobs.get(this.job)?.tasks;
    if (tasks && applyChanges(this.grid, tasks) > 0) this.version += 1;
  }

  /** Tasks in each state, of all or of a step. */
  counts(from?: number, to?: number): number[] {
    void this.version;
    return tally(this.grid, from, to);
  }
}
