// What a person can do, each with its question.

import { change } from '../api/client';
import type { Job, Queue, SetQueue } from '../api/types';
import { plural } from '../lib/format';
import { type JobAction, type TaskAction, actionsOf, maySteer } from '../lib/rights';
import { ask } from './ask.svelte';
import { session } from './session.svelte';

type After = () => void;

const JOB_TEXT: Record<JobAction, { title: string; text: string; verb: string; done: string }> = {
  cancel: {
    title: 'Cancel',
    verb: 'Cancel',
    done: 'cancelled',
    text: 'Running tasks are killed, and waiting tasks never start. A retry runs them again from the beginning.',
  },
  retry: {
    title: 'Retry',
    verb: 'Retry',
    done: 'retried',
    text: 'Failed and cancelled tasks run again. Tasks that succeeded keep their results.',
  },
  hold: {
    title: 'Hold',
    verb: 'Hold',
    done: 'held',
    text: 'Running tasks go on, and nothing new starts until the job is released.',
  },
  release: { title: 'Release', verb: 'Release', done: 'released', text: 'Its tasks may start again.' },
  priority: {
    title: 'Set the priority of',
    verb: 'Set',
    done: 'has a new priority',
    text: 'The priority counts inside the queue. A higher one goes first.',
  },
};

export const JOB_VERB: Record<JobAction, string> = {
  cancel: 'Cancel',
  retry: 'Retry',
  hold: 'Hold',
  release: 'Release',
  priority: 'Priority',
};

/** Asks, and acts on one job or on several. */
export function actOnJobs(action: JobAction, jobs: Pick<Job, 'id' | 'name' | 'priority'>[], after: After): void {
  const first = jobs[0];
  if (!first) return;
  const words = JOB_TEXT[action];
  const one = jobs.length === 1;
  const what = one ? `job ${first.id} (${first.name})` : plural(jobs.length, 'job');
  ask.about({
    title: `${words.title} ${what}?`,
    text: one ? words.text : `${words.text} Jobs: ${jobs.map((job) => job.id).join(', ')}.`,
    verb: words.verb,
    danger: action === 'cancel',
    ...(action === 'priority' && {
      field: {
        label: 'Priority',
        kind: 'number',
        value: String(first.priority),
        min: -1_000_000,
        max: 1_000_000,
        required: true,
      },
    }),
    run: async (value) => {
      const body = action === 'priority' ? { priority: Number(value) } : undefined;
      // One after the other: the first refusal stops, and the dialog says which job it was.
      for (const job of jobs) await change('POST', `/api/v1/jobs/${job.id}/${action}`, body);
      after();
    },
    done: `${one ? `Job ${first.id}` : plural(jobs.length, 'job')} ${words.done}`,
  });
}

/** What a letter does to a job in its state; null if nothing. */
export function jobActionOf(key: string, job: Pick<Job, 'state' | 'counts'>): JobAction | null {
  const letters: Record<string, JobAction[]> = { c: ['cancel'], t: ['retry'], h: ['hold', 'release'], p: ['priority'] };
  return actionsOf(job).find((action) => letters[key]?.includes(action)) ?? null;
}

/** Takes a letter for a job; true if it means an action that the person may do. */
export function actByKey(key: string, job: Job, after: After): boolean {
  const action = maySteer(session.me, job) ? jobActionOf(key, job) : null;
  if (action) actOnJobs(action, [job], after);
  return action !== null;
}

export const TASK_VERB: Record<TaskAction, string> = { retry: 'Retry', cancel: 'Cancel' };

const TASK_TEXT: Record<TaskAction, { text: string; done: string }> = {
  retry: { text: 'It runs again from the beginning. The other tasks of its job stay as they are.', done: 'retried' },
  cancel: {
    text: 'It is killed if it runs, and else never starts. The other tasks of its job go on.',
    done: 'cancelled',
  },
};

/** Asks, and acts on one task. */
export function actOnTask(action: TaskAction, id: string, after: After): void {
  ask.about({
    title: `${TASK_VERB[action]} task ${id}?`,
    text: TASK_TEXT[action].text,
    verb: TASK_VERB[action],
    danger: action === 'cancel',
    run: async () => {
      await change('POST', `/api/v1/tasks/${id}/${action}`);
      after();
    },
    done: `Task ${id} ${TASK_TEXT[action].done}`,
  });
}

/** Asks, and drains a worker. */
export function drain(worker: string, after: After): void {
  ask.about({
    title: `Drain worker ${worker}?`,
    text: 'Its running tasks go on, and it gets no new work until it is resumed.',
    verb: 'Drain',
    field: { label: 'Note (why, for others to read)', kind: 'text', value: '' },
    run: async (note) => {
      await change('POST', workerApi(worker, 'drain'), note.trim() === '' ? undefined : { note: note.trim() });
      after();
    },
    done: `Worker ${worker} is draining`,
  });
}

/** Asks, and lets a drained worker take work again. */
export function resumeWorker(worker: string, after: After): void {
  ask.about({
    title: `Resume worker ${worker}?`,
    text: 'It gets new work again.',
    verb: 'Resume',
    run: async () => {
      await change('POST', workerApi(worker, 'resume'));
      after();
    },
    done: `Worker ${worker} takes work again`,
  });
}

const workerApi = (worker: string, action: string) => `/api/v1/workers/${encodeURIComponent(worker)}/${action}`;

/** Asks, and pauses a queue with a note. */
export function pauseQueue(queue: Queue, after: After): void {
  ask.about({
    title: `Pause queue ${queue.name}?`,
    text: 'Running tasks go on, and nothing new starts. Jobs are still accepted.',
    verb: 'Pause',
    field: { label: 'Note (why, for others to read)', kind: 'text', value: '', required: true },
    run: (note) => setQueue(queue.name, { paused: note.trim() }, after),
    done: `Queue ${queue.name} is paused`,
  });
}

/** Asks, and lets a paused queue start tasks again. */
export function resumeQueue(queue: Queue, after: After): void {
  ask.about({
    title: `Resume queue ${queue.name}?`,
    text: `It was paused with the note: ${queue.paused ?? ''}`,
    verb: 'Resume',
    run: () => setQueue(queue.name, { paused: null }, after),
    done: `Queue ${queue.name} is resumed`,
  });
}

/** Asks for the weight of a queue. */
export function weighQueue(queue: Queue, after: After): void {
  ask.about({
    title: `Set the weight of queue ${queue.name}?`,
    text: 'Queues of a band that want more than there is share it in proportion to their weights.',
    verb: 'Set',
    field: {
      label: 'Weight, 1 to 10000',
      kind: 'number',
      value: String(queue.weight),
      min: 1,
      max: 10_000,
      required: true,
    },
    run: (weight) => setQueue(queue.name, { weight: Number(weight) }, after),
    done: `Queue ${queue.name} has a new weight`,
  });
}

async function setQueue(queue: string, changes: SetQueue, after: After): Promise<void> {
  await change('PUT', `/api/v1/queues/${encodeURIComponent(queue)}`, changes);
  after();
}
