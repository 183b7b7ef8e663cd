// Why tasks of a job failed: its failures by cause, as the server groups them, or as the board does for a server that
// does not.

import type { Task } from '../api/types';
import { stripped } from './ansi';
import { plural } from './format';
import { endOf } from './task';

/** The first task that failed for a cause. What is not known is absent. */
export interface FirstFailure {
  /** The task's id, `JOB.INDEX`. */
  task: string;
  step: string;
  value?: string | null;
  attempt: number;
  worker?: string | null;
  /** What the task said of its failure. */
  message?: string | null;
  /** What a person can do about it. */
  advice?: string | null;
  /** The last lines that it wrote to standard error. */
  stderr?: string[];
}

/** Tasks that failed for one cause. */
export interface FailureGroup {
  cause: string;
  /** The cause in words. */
  summary: string;
  tasks: number;
  /** Ids of the first of them. */
  task_examples: string[];
  /** Number of workers on which they failed. */
  workers: number;
  first: FirstFailure;
}

/** The answer to `GET /jobs/{id}/failures`. */
export interface JobFailures {
  job: number;
  failed: number;
  groups: FailureGroup[];
  /** Failed tasks with causes that are not among the groups. */
  other_tasks?: number;
  /** Failed tasks that were not looked at. */
  not_looked_at?: number;
}

/** How a task failed, in the words that are shown of it. */
export interface TaskFailure {
  /** The cause in words. */
  summary: string;
  message?: string | null;
  advice?: string | null;
}

/** How a task failed, as the server says it; one that does not has how the attempt ended. */
export function failureOf(task: Task & { failure?: TaskFailure | null }): TaskFailure {
  return task.failure ?? { summary: endOf(task) || 'failed', message: task.message };
}

/** Ids of tasks that a group of the board's own names. */
const EXAMPLES_MAX = 8;

/** Groups failed tasks by how they ended, the largest group first; `failed` are all that failed. */
export function groupFailures(job: number, tasks: readonly Task[], failed: number): JobFailures {
  const groups = new Map<string, { group: FailureGroup; workers: Set<string> }>();
  for (const task of tasks) {
    const end = endOf(task) || 'failed';
    // Messages name files and frames, so they part only tasks that never started.
    const summary = task.end === 'not_started' && task.message ? `${end}: ${task.message}` : end;
    let found = groups.get(summary);
    if (!found) {
      const { id, step, value, attempt, worker, message } = task;
      const first = { task: id, step, value, attempt, worker, message };
      const group = { cause: task.end ?? 'failed', summary, tasks: 0, task_examples: [], workers: 0, first };
      groups.set(summary, (found = { group, workers: new Set() }));
    }
    found.group.tasks += 1;
    if (found.group.task_examples.length < EXAMPLES_MAX) found.group.task_examples.push(task.id);
    if (task.worker) found.workers.add(task.worker);
    found.group.workers = found.workers.size;
  }
  const sorted = [...groups.values()].map((one) => one.group).toSorted((a, b) => b.tasks - a.tasks);
  return { job, failed, groups: sorted, not_looked_at: Math.max(0, failed - tasks.length) };
}

/** Where tasks of a group ran, such as `on box2`, or `first on box2, on 5 workers`. */
export function whereOf(group: FailureGroup): string {
  const first = group.first.worker;
  if (!first) return '';
  return group.workers > 1 ? `first on ${first}, on ${plural(group.workers, 'worker')}` : `on ${first}`;
}

/** The last lines of an output that say something, without their styles. */
export function lastLines(text: string, most: number): string[] {
  const lines = text
    .split('\n')
    .map((line) => stripped(line.slice(line.lastIndexOf('\r', line.length - 2) + 1)).trimEnd())
    .filter((line) => line !== '');
  return lines.slice(-most);
}
