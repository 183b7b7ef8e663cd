// What became of an attempt, in a few words.

import type { Attempt, FailureGroup, Job, Step, Task } from '../api/types';
import { bytes, cpus, duration, plural } from './format';

/** How an attempt ended; empty while it has not, and if it simply succeeded. */
export function endOf(attempt: Attempt): string {
  switch (attempt.end) {
    case undefined:
    case null:
      return '';
    case 'exited':
      return attempt.exit_code ? `exit code ${attempt.exit_code}` : '';
    case 'signal':
      return attempt.exit_code && attempt.exit_code > 128 ? `signal ${attempt.exit_code - 128}` : 'killed by a signal';
    case 'time_limit':
      return 'time limit';
    case 'oom':
      return 'out of memory';
    case 'canceled':
      return 'cancelled';
    case 'recalled':
      return 'recalled';
    case 'not_started':
      return 'not started';
    case 'lost':
      return 'lost with its worker';
    case 'outputs_lost':
      return 'its outputs were lost';
  }
}

/** How long a running task is expected to go on; empty where that is not known. */
export function etaOf(task: Pick<Task, 'state' | 'expected_end_ms'>, now: number): string {
  if (task.state !== 'running' || task.expected_end_ms == null) return '';
  const left = task.expected_end_ms - now;
  if (Math.abs(left) < 1_000) return 'now';
  return left >= 0 ? duration(left) : `${duration(-left)} late`;
}

/** How many processes a build runs of how many it may run now; empty of a task without a jobserver. */
export function processesOf({ jobserver }: Pick<Task, 'jobserver'>): string {
  return jobserver ? `${jobserver.used} of ${jobserver.share}` : '';
}

/** Whether a build wants more processes, and what holds it back; empty of one that has enough. */
export function wishOf({ jobserver }: Pick<Task, 'jobserver'>): string {
  if (!jobserver?.wants) return '';
  switch (jobserver.held_back) {
    case undefined:
    case null:
      return 'wants more';
    case 'memory':
      return 'wants more: memory is short';
    case 'pressure':
      return 'wants more: its processes wait for memory';
  }
}

/** Where the failed tasks of a cause ran, such as `on box2`, or `first on box2, on 5 workers`. */
export function whereOf(group: Pick<FailureGroup, 'first' | 'workers'>): string {
  const first = group.first.worker;
  if (!first) return '';
  return group.workers > 1 ? `first on ${first}, on ${plural(group.workers, 'worker')}` : `on ${first}`;
}

/** A cause of failures, as the history counts them. */
export function causeText(cause: string): string {
  if (cause === 'oom') return 'out of memory';
  if (cause === 'lost') return 'lost with its worker';
  return cause.replace(/^exit (\d+)$/, 'exit code $1').replaceAll('_', ' ');
}

/** The step of a task, by the task's index. */
export function stepOf(job: Pick<Job, 'steps'>, index: number): Step | undefined {
  return job.steps.find((step) => index >= step.first_task && index < step.first_task + step.tasks);
}

/** What each task of a step books. */
export function bookedBy({ resources: { cpus: n, memory, gpus } }: Step): string {
  const parts = [
    n ? `${cpus(n)} ${n === 1 ? 'cpu' : 'cpus'}` : '',
    memory ? bytes(memory) : '',
    gpus ? plural(gpus, 'gpu') : '',
  ];
  return parts.filter((part) => part !== '').join(', ');
}

/** What each task of a step books and may use. */
export function needsOf(step: Step): string {
  const time = step.time_limit_ms ? `at most ${duration(step.time_limit_ms)}` : '';
  return [bookedBy(step), time].filter((part) => part !== '').join(', ');
}
