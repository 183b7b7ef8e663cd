// What a person can do, each with its question.

import { change } from '../api/client';
import type { Job, Limit, Queue, SetLimit, SetQueue, Task, Token } from '../api/types';
import { plural } from '../lib/format';
import { jobserverWord, queueChanges } from '../lib/queuechanges';
import { type JobAction, type TaskAction, actionsOf, maySteer, taskActionsOf } from '../lib/rights';
import { wordOf } from '../lib/states';
import { type Field, ask } from './ask.svelte';
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
      fields: [
        {
          label: 'Priority',
          kind: 'number',
          value: String(first.priority),
          min: -1_000_000,
          max: 1_000_000,
          required: true,
        },
      ],
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

const JOB_LETTERS: Record<string, JobAction[]> = {
  c: ['cancel'],
  t: ['retry'],
  h: ['hold', 'release'],
  p: ['priority'],
};

/** What a letter does to a job in its state; null if nothing. */
function jobActionOf(key: string, job: Pick<Job, 'state' | 'counts'>): JobAction | null {
  return actionsOf(job).find((action) => JOB_LETTERS[key]?.includes(action)) ?? null;
}

/** Takes a letter for a job; true if it means an action that the person may do. One without an effect is told. */
export function actByKey(key: string, job: Job, after: After): boolean {
  if (!maySteer(session.me, job) || !(key in JOB_LETTERS)) return false;
  const action = jobActionOf(key, job);
  if (action) actOnJobs(action, [job], after);
  else ask.tell(`Job ${job.id} is ${wordOf(job.state)}: nothing to ${key === 'p' ? 'set' : JOB_LETTERS[key]![0]!}`);
  return true;
}

/** Takes a letter for a task; true if it means an action that the person may do. */
export function actOnTaskByKey(key: string, job: Pick<Job, 'user'>, task: Task, after: After): boolean {
  const action = key === 't' ? 'retry' : key === 'c' ? 'cancel' : null;
  if (!action || !maySteer(session.me, job)) return false;
  // It is taken in any case: it must not reach the job, which a person does not mean here.
  if (taskActionsOf(task.state).includes(action)) actOnTask(action, task.id, after);
  else ask.tell(`Task ${task.id} is ${wordOf(task.state)}: nothing to ${action}`);
  return true;
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
    fields: [{ label: 'Note (why, for others to read)', kind: 'text', value: '' }],
    run: async (note = '') => {
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
    fields: [{ label: 'Note (why, for others to read)', kind: 'text', value: '', required: true }],
    run: (note = '') => setQueue(queue.name, { paused: note.trim() }, after),
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

/** The most weight of a queue. */
const WEIGHT_MAX = 10_000;

/** Asks for the settings of a queue; only those that differ are sent. */
export function editQueue(queue: Queue, after: After): void {
  const text = (n: number | null | undefined) => (n == null ? '' : String(n));
  const before = [
    String(queue.band),
    String(queue.weight),
    text(queue.quota_cpus),
    text(queue.burst_cpus),
    queue.turns ?? 'users',
    (queue.users ?? []).join(', '),
    jobserverWord(queue),
  ];
  ask.about({
    title: `Edit queue ${queue.name}`,
    text: 'The settings count from the next placement on. Running tasks go on.',
    verb: 'Save',
    fields: [
      {
        label: 'Band, 0 to 9',
        kind: 'number',
        value: before[0]!,
        min: 0,
        max: 9,
        required: true,
        note: 'A higher band is served first, whatever the weights.',
      },
      {
        label: `Weight, 1 to ${WEIGHT_MAX}`,
        kind: 'number',
        value: before[1]!,
        min: 1,
        max: WEIGHT_MAX,
        required: true,
        note: 'Against the other queues of its band.',
      },
      { label: 'Quota in cpus', kind: 'number', value: before[2]!, min: 0, step: 'any', note: 'Empty: no quota.' },
      {
        label: 'Burst in cpus',
        kind: 'number',
        value: before[3]!,
        min: 0,
        step: 'any',
        note: 'What it may hold while no other queue can use it. Empty: the quota.',
      },
      {
        label: 'Turns',
        kind: 'choice',
        value: before[4]!,
        options: [
          { value: 'users', text: 'its users take turns' },
          { value: 'jobs', text: 'all jobs are in one order' },
        ],
      },
      {
        label: 'Users who may submit to it',
        kind: 'text',
        value: before[5]!,
        note: 'Names, separated by commas; * is all users. Administrators and the user of its name always may.',
      },
      {
        label: 'Jobservers of tasks that say nothing of one',
        kind: 'choice',
        value: before[6]!,
        options: [
          { value: 'auto', text: 'builds such as make have one' },
          { value: 'on', text: 'all have one' },
          { value: 'off', text: 'none has one' },
        ],
        note: 'For jobs that are submitted from now on.',
      },
    ],
    run: (...values) => setQueue(queue.name, queueChanges(before, values), after),
    done: `Queue ${queue.name} is changed`,
  });
}

const limitFields = (limit: Pick<Limit, 'max' | 'per_worker'>): Field[] => [
  {
    label: 'Tasks that may hold it at a time',
    kind: 'number',
    value: limit.max == null ? '' : String(limit.max),
    min: 0,
    note: 'Such as the number of licences. 0: none starts. Empty: any number.',
  },
  {
    label: 'On one worker',
    kind: 'number',
    value: limit.per_worker == null ? '' : String(limit.per_worker),
    min: 1,
    note: 'Empty: any number.',
  },
];

/** Asks for the numbers of a limit. */
export function editLimit(limit: Limit, after: After): void {
  ask.about({
    title: `Edit limit ${limit.name}`,
    text: 'Tasks that hold it go on; the numbers count for those that start.',
    verb: 'Save',
    fields: limitFields(limit),
    run: (max, perWorker) => setLimit(limit.name, max, perWorker, after),
    done: `Limit ${limit.name} is changed`,
  });
}

/** Asks for a new limit. */
export function addLimit(after: After): void {
  ask.about({
    title: 'Add a limit',
    text: 'A step that names it, such as with --limit maya, holds one for each of its tasks that runs.',
    verb: 'Add',
    fields: [{ label: 'Name', kind: 'text', value: '', required: true }, ...limitFields({})],
    run: (name = '', max, perWorker) => setLimit(name.trim(), max, perWorker, after),
    done: 'The limit is added',
  });
}

async function setLimit(name: string, max = '', perWorker = '', after: After): Promise<void> {
  const amount = (text: string) => (text.trim() === '' ? null : Number(text));
  const body: SetLimit = { max: amount(max), per_worker: amount(perWorker) };
  await change('PUT', `/api/v1/limits/${encodeURIComponent(name)}`, body);
  after();
}

async function setQueue(queue: string, changes: SetQueue, after: After): Promise<void> {
  await change('PUT', `/api/v1/queues/${encodeURIComponent(queue)}`, changes);
  after();
}

/** Asks, and ends what a token is good for. */
export function revokeToken(token: Token, after: After): void {
  ask.about({
    title: `Revoke a token of ${token.user}?`,
    text: `Role ${token.role}${token.note ? `, with the note: ${token.note}` : ''}. Its sessions end, and it opens no others.`,
    verb: 'Revoke',
    danger: true,
    run: async () => {
      await change('DELETE', `/api/v1/tokens/${encodeURIComponent(token.id)}`);
      after();
    },
    done: `The token of ${token.user} is revoked`,
  });
}
