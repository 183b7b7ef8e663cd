// The answers of the interface, made from the farm.

import { LETTERS, STATES, random } from './farm.mjs';
import { messageOf, pending } from './figures.mjs';

const RUNNING = 3;

export function jobJson(farm, job, whole, readable = true) {
  const steps = job.steps.map(({ command, cwd, ...step }) => (whole && readable ? { ...step, command, cwd } : step));
  return {
    id: job.id,
    name: job.name,
    user: job.user,
    queue: job.queue,
    priority: job.priority,
    state: job.state,
    counts: farm.counts(job),
    steps,
    created_ms: job.created_ms,
    ...(job.ended_ms && { ended_ms: job.ended_ms }),
    ...(job.stopped && { stopped: job.stopped }),
  };
}

export function jobsPage(farm, query) {
  const limit = Math.min(1000, Number(query.get('limit') ?? 100));
  const states = query.get('state')?.split(',');
  const before = Number(query.get('cursor') ?? Infinity);
  const items = [];
  for (let i = farm.jobs.length - 1; i >= 0 && items.length <= limit; i -= 1) {
    const job = farm.jobs[i];
    if (job.id >= before || (states && !states.includes(job.state))) continue;
    if (query.get('name') && !job.name.includes(query.get('name'))) continue;
    if (query.get('user') && job.user !== query.get('user')) continue;
    if (query.get('queue') && job.queue !== query.get('queue')) continue;
    items.push(jobJson(farm, job, false));
  }
  const more = items.length > limit;
  items.length = Math.min(items.length, limit);
  return { items, ...(more && { next: String(items.at(-1).id) }) };
}

function attemptJson(job, task, code) {
  return {
    attempt: task.attempt,
    worker: task.worker.name,
    booked_ms: task.booked_ms,
    started_ms: task.started_ms,
    ...(task.finished_ms && {
      finished_ms: task.finished_ms,
      cpu_ms: Math.round((task.finished_ms - task.started_ms) * 0.93),
      peak_memory: 2 ** 29 + job.id * 7_777_777,
      ...endOf(task.index ?? 0, code),
      out_bytes: 184_000,
      err_bytes: 1_024,
    }),
  };
}

/** How tasks fail here: most by an exit code, some for other causes. */
function endOf(index, code) {
  if (code === 6) return { end: 'canceled' };
  if (code !== 5) return { end: 'exited', exit_code: 0 };
  if (index % 11 === 4) return { end: 'oom', exit_code: 137 };
  if (index % 13 === 5)
    return {
      end: 'not_started',
      exit_code: 127,
      message: "cannot enter the working directory '/films/harbour': No such file or directory",
    };
  return { end: 'exited', exit_code: 4 };
}

export function taskJson(farm, job, index, whole = false) {
  const code = job.states[index];
  const step = farm.stepOf(job, index);
  let task = job.tasks.get(index);
  if (!task && code > RUNNING && code < 7) task = made(farm, job, index);
  const attempt = task ? attemptJson(job, { ...task, index }, code) : { attempt: 0 };
  const said = code === 5 && index % 5 === 0 ? { message: 'texture harbour_<b>wall</b>.exr is missing' } : {};
  const ended = { ...said, ...attempt };
  return {
    id: `${job.id}.${index}`,
    job: job.id,
    index,
    step: step.name,
    value: String(index - step.first_task + 1),
    state: STATES[code],
    ...ended,
    ...(code === 5 && { failure: failureJson(job, index, ended, whole) }),
    ...(code === RUNNING && {
      progress: Math.min(99, (100 * (farm.now - task.started_ms)) / (task.until - task.started_ms)),
      status: 'rendering tiles',
      expected_end_ms: Math.round(task.until),
      ...(step.jobserver && {
        jobserver: {
          share: 6,
          used: 2 + (index % 5),
          wants: index % 5 === 4,
          ...(index % 2 && { held_back: 'memory' }),
        },
      }),
    }),
    ...(whole &&
      task && {
        history: task.history.map((one) => ({
          ...attemptJson(job, { ...one, index, finished_ms: one.finished_ms ?? farm.now }, 5),
        })),
      }),
  };
}

// What a task of the past did, the same each time it is asked for.
function made(farm, job, index) {
  const next = random(job.id * 1_000_003 + index);
  const started = job.created_ms + 20_000 + next() * 200_000;
  return {
    worker: farm.workers[Math.floor(next() * farm.workers.length)],
    attempt: 1,
    booked_ms: started - 60,
    started_ms: started,
    finished_ms: started + 3_000 + next() * 90_000,
    history: [],
  };
}

export function tasksPage(farm, job, query) {
  const limit = Math.min(1000, Number(query.get('limit') ?? 100));
  const states = query
    .get('state')
    ?.split(',')
    .map((word) => STATES.indexOf(word));
  const items = [];
  let index = Number(query.get('cursor') ?? 0);
  for (; index < job.states.length && items.length < limit; index += 1) {
    if (!states || states.includes(job.states[index])) items.push(taskJson(farm, job, index));
  }
  return { items, ...(index < job.states.length && { next: String(index) }) };
}

const CAUSES = { exited: 'exit_code', oom: 'out_of_memory', not_started: 'not_started' };
const SUMMARIES = { exited: 'exit code 4', oom: 'out of memory', not_started: 'not started' };
const ADVICE = {
  oom: 'it booked 2 GiB; give it more with --memory, or find what grew',
  not_started: 'share the directory with the worker, or name another one with --cwd',
};

/** How a failed task failed; `whole` adds what it wrote last. */
function failureJson(job, index, { end, message }, whole) {
  const isStart = end === 'not_started';
  return {
    cause: CAUSES[end],
    summary: isStart ? `not started: ${message}` : SUMMARIES[end],
    ...(!isStart && message && { message }),
    ...(ADVICE[end] && { advice: ADVICE[end] }),
    ...(whole && { stderr: isStart ? [] : logText(job, index, 'stderr').trimEnd().split('\n') }),
  };
}

/** Failed tasks by cause. */
export function failures(farm, job) {
  const groups = new Map();
  job.states.forEach((code, index) => {
    if (code !== 5) return;
    const { id, step, value, attempt, worker, end, failure } = taskJson(farm, job, index, true);
    const group = groups.get(end) ?? {
      cause: failure.cause,
      summary: failure.summary,
      tasks: 0,
      task_examples: [],
      workers: 0,
      worker_examples: [],
      first: { task: id, step, value, attempt, worker, ...failure },
    };
    group.tasks += 1;
    if (group.task_examples.length < 5) group.task_examples.push(id);
    if (!group.worker_examples.includes(worker)) group.worker_examples.push(worker);
    group.workers = group.worker_examples.length;
    groups.set(end, group);
  });
  const all = [...groups.values()].sort((a, b) => b.tasks - a.tasks);
  return { job: job.id, failed: all.reduce((sum, group) => sum + group.tasks, 0), groups: all };
}

export function gridPage(job, from) {
  const runs = [];
  let at = from;
  while (at < job.states.length && runs.length < 50_000) {
    const code = job.states[at];
    let end = at + 1;
    while (end < job.states.length && job.states[end] === code) end += 1;
    runs.push([LETTERS[code], end - at]);
    at = end;
  }
  return { tasks: job.states.length, from, runs, ...(at < job.states.length && { next: at }) };
}

export function why(farm, job, index) {
  const code = job.states[index];
  const queue = farm.queueOf.get(job.queue);
  const base = { task: `${job.id}.${index}`, state: STATES[code], open_workers: 0 };
  const pool = farm.workers.filter((worker) => worker.state === 'up').reduce((sum, worker) => sum + worker.cpus, 0);
  const demand = farm.queues.reduce((sum, one) => sum + one.running_cpus + one.waiting, 0);
  const turn = {
    queue: job.queue,
    band: queue.band,
    weight: queue.weight,
    queues_ahead: 1,
    users_ahead: 0,
    steps_ahead: 2,
    tasks_ahead: Math.max(0, index - job.next),
    demand_cpus: demand,
    pool_cpus: pool,
    entitled_cpus: 40,
    held_cpus: queue.running_cpus,
    contended: demand > pool,
    expected_start_ms: farm.now + 180_000,
  };
  if (code > RUNNING)
    return {
      ...base,
      reason: 'ended',
      message: 'it has ended',
      ...(code === 5 && { failure: taskJson(farm, job, index, true).failure }),
      ...judged(farm, job, taskJson(farm, job, index).worker),
    };
  if (code === RUNNING)
    return {
      ...base,
      reason: 'running',
      message: `it runs on ${job.tasks.get(index)?.worker.name}`,
      ...judged(farm, job, job.tasks.get(index)?.worker.name),
    };
  if (job.impossible) {
    return {
      ...base,
      reason: 'fits_nowhere',
      message: messageOf(farm, job, 'fits_nowhere'),
      turn: {
        ...turn,
        demand_cpus: 0,
        pool_cpus: 0,
        entitled_cpus: 0,
        held_cpus: 0,
        contended: false,
        expected_start_ms: undefined,
      },
      ruled_out: [
        {
          reason: 'too_small',
          message: 'gpus: needs 8, has 0',
          workers: farm.workers.length - 2,
          examples: ['box1', 'box2'],
        },
        { reason: 'too_small', message: 'memory: needs 64 GiB, has 32 GiB', workers: 2, examples: ['box3'] },
      ],
      changes: [{ steps: ['add a worker with 8 gpus and 64 GiB of memory'] }],
    };
  }
  if (job.state === 'held')
    return {
      ...base,
      reason: 'held',
      message: messageOf(farm, job, 'held'),
      turn,
      changes: [{ steps: [`windlass job release ${job.id}`] }],
    };
  if (queue.paused !== null)
    return {
      ...base,
      reason: 'paused',
      message: messageOf(farm, job, 'paused'),
      turn,
      changes: [{ steps: [`windlass queue resume ${queue.name}`] }],
    };
  if (code === 0) return { ...base, reason: 'steps', message: 'it waits for a step before it' };
  return {
    ...base,
    reason: 'full',
    message: messageOf(farm, job, 'full'),
    turn,
    ruled_out: [
      {
        reason: 'busy',
        message: 'busy, cpus: needs 2, has 0',
        workers: Math.ceil(farm.workers.length * 0.7),
        examples: farm.workers.slice(0, 3).map((worker) => worker.name),
      },
      {
        reason: 'attribute',
        message: 'lacks gpu',
        workers: Math.ceil(farm.workers.length * 0.2),
        examples: [farm.workers[3].name],
      },
      { reason: 'saturated', message: 'under memory pressure', workers: 1, examples: [farm.workers[9].name] },
    ],
    changes: [
      { worker: farm.workers[0].name, steps: ['wait until it has another 2 cpus free'] },
      { worker: farm.workers[7].name, steps: ['resume it', 'wait until it has another cpu free'] },
    ],
  };
}

/** The scores of a decision; the worker of the task stands in the winner's place. */
function judged(farm, job, winner) {
  const decision = farm.decisions.find((one) => one.job_id === job.id) ?? farm.decisions[0];
  if (!decision) return {};
  return {
    policy: decision.policy,
    decided_ms: decision.at,
    open_workers: decision.candidates.length,
    judged: decision.candidates.map((one, i) => ({
      worker: i === 0 ? winner : one.name === winner ? decision.candidates[0].name : one.name,
      score: one.score,
      load: one.load,
      rules: one.rules,
    })),
  };
}

export function queueJson(farm, queue) {
  const total = farm.workers.reduce((sum, worker) => sum + worker.cpus, 0);
  const wants = queue.running_cpus + queue.waiting;
  const weights = farm.queues
    .filter((one) => one.band === queue.band && one.running_cpus + one.waiting > 0)
    .reduce((sum, one) => sum + one.weight, 0);
  const charged = farm.queues.filter((one) => one.band === queue.band).reduce((sum, one) => sum + one.charged, 0);
  const { charged: own, paused, ...rest } = queue;
  return {
    ...rest,
    ready_steps: queue.waiting > 0 ? 1 : 0,
    demand_cpus: wants,
    charge: 'time',
    entitled_cpus: wants > 0 ? Math.min(wants, (total * queue.weight) / Math.max(1, weights)) : 0,
    share: charged > 0 ? own / charged : null,
    ...(paused !== null && { paused }),
  };
}

/** Tasks that a limit names as its holders. */
const HOLDERS_MAX = 20;

/** A limit; `whole` names the tasks that hold it. */
export function limitJson(farm, limit, whole = false) {
  const holders = farm.workers.flatMap((worker) =>
    [...worker.tasks]
      .map((task) => ({ task, job: farm.jobs[task.split('.')[0] - 1], index: Number(task.split('.')[1]) }))
      .filter(({ job, index }) => farm.stepOf(job, index).limits?.includes(limit.name))
      .map(({ task, job }) => ({ task, user: job.user, worker: worker.name })),
  );
  return { ...limit, used: holders.length, ...(whole && { holders: holders.slice(0, HOLDERS_MAX) }) };
}

export function boardWorkers(farm) {
  return farm.workers.map((worker) => {
    const sums = new Map();
    for (const id of worker.tasks) {
      const job = farm.jobs[Number(id.split('.')[0]) - 1];
      sums.set(job.queue, (sums.get(job.queue) ?? 0) + farm.stepOf(job, Number(id.split('.')[1])).resources.cpus);
    }
    return {
      id: worker.id,
      name: worker.name,
      state: worker.state,
      draining: worker.draining,
      assigned_jobs: worker.tasks.size,
      cpus: worker.cpus,
      fetch: false,
      architectures: [worker.arch],
      cpu_usage_pct: Math.round(((worker.cpus - worker.free) / worker.cpus) * 96),
      ram_free_mb: Math.round((worker.memory / 2 ** 20) * (0.3 + worker.free / worker.cpus / 2)),
      ram_total_mb: worker.memory / 2 ** 20,
      heard_at: worker.heard,
      note: worker.note,
      queues: [...sums]
        .map(([queue, cpus]) => ({ queue, cpus }))
        .sort((a, b) => b.cpus - a.cpus)
        .slice(0, 4),
    };
  });
}

export function serverLoads(farm) {
  return {
    servers: farm.workers.map((worker) => ({
      server_id: worker.name,
      num_cpus: worker.cpus,
      jobs_assigned: worker.tasks.size,
      job_load: (worker.cpus - worker.free) / worker.cpus,
      cpu_pressure: worker.psi.cpu,
      memory_pressure: worker.psi.memory,
      io_pressure: worker.id % 11 === 0 ? null : worker.psi.io,
      effective_load: ((worker.cpus - worker.free + 1) / worker.cpus) * (1 + worker.psi.cpu / 100),
      accepting_jobs: worker.reason === null && worker.free > 0,
      ...(worker.reason !== null && { reason: worker.reason }),
      ...(worker.reason === null && worker.free === 0 && { reason: 'its cpus are all booked' }),
    })),
  };
}

export function workerJson(farm, worker) {
  const pressure = (value) => ({ some: { avg10: value, avg60: value * 0.9, avg300: value * 0.8, total_us: 1e9 } });
  const pressures = { cpu: pressure(worker.psi.cpu), memory: pressure(worker.psi.memory), io: pressure(worker.psi.io) };
  return {
    id: worker.id,
    name: worker.name,
    state: worker.state,
    connected: worker.state !== 'suspect' && worker.state !== 'expired',
    epoch: 3,
    running: worker.tasks.size,
    queued: 0,
    capacity: { cpus: worker.cpus, memory: worker.memory },
    booked: { cpus: worker.cpus - worker.free, memory: (worker.cpus - worker.free) * 2 ** 31 },
    attributes: { os: ['linux'], arch: [worker.arch], kernel: ['6.1'], rack: ['a1'], fast: [] },
    heard_ms: worker.heard,
    lease_until_ms: farm.now + 240_000,
    version: '0.4.0',
    cache_keys: 1_843,
    core_score: 960 + (worker.id % 9) * 20,
    tasks: [...worker.tasks].slice(0, 1000),
    ...(worker.note && { note: worker.note }),
    load: {
      at_ms: worker.heard,
      confined: false,
      machine: pressures,
      own: pressures,
      cpu_used: worker.cpus - worker.free,
      cpu_foreign: 0.2,
      memory_available: worker.memory * 0.4,
      network_in_mbit_s: 310.5,
      network_out_mbit_s: 42.1,
      state_space: { free_bytes: 310e9, total_bytes: 500e9 },
      session_space: { free_bytes: 310e9, total_bytes: 500e9 },
    },
  };
}

export function workerWhy(farm, worker) {
  const busy = worker.free < 1;
  const reason = worker.draining ? 'draining' : worker.reason ? 'saturated' : busy ? 'busy' : 'turn';
  const message = {
    draining: 'an administrator drains it',
    saturated: worker.reason,
    busy: 'its tasks hold all of its cpus',
    turn: 'it has room, and gets work in one of the next rounds',
  }[reason];
  return {
    worker: worker.name,
    state: worker.state,
    reason,
    message,
    running: worker.tasks.size,
    cpus: worker.cpus,
    booked_cpus: worker.cpus - worker.free,
    load: 0.62,
    waiting_queues: 3,
    pressure_counts: true,
    pressure: { ...worker.psi, network: 12 },
    thresholds: { cpu: 80, memory: 50, io: 75, network: 80 },
    steps: pending(farm)
      .slice(0, 4)
      .map((step) => ({
        job: step.job_id,
        step: step.name,
        queue: step.queue,
        tasks: step.tasks,
        reason: 'busy',
        message: 'busy, cpus: needs 2, has 0',
      })),
  };
}

/** A log with colours, markup that must stay text, long lines and a progress line. */
export function logText(job, index, stream, lines = 900) {
  if (stream === 'stderr')
    return `\u001b[33mwarning:\u001b[0m texture cache is cold\n<script>document.title = 'broken'</script>\n`;
  const out = [`\u001b[1mrender\u001b[0m job ${job.id} task ${index} <img src=x onerror=alert(1)>\n`];
  for (let i = 0; i < lines; i += 1) {
    if (i % 97 === 0) out.push(`\u001b[31merror: tile ${i} & its neighbours: <b>out of samples</b>\u001b[0m\n`);
    else if (i % 31 === 0)
      out.push(
        `\u001b[32mok\u001b[0m \u001b[38;5;208msaved\u001b[0m /films/harbour/${index}/tile-${String(i).padStart(4, '0')}.exr\n`,
      );
    else
      out.push(
        `\u001b[2m[${String(i).padStart(5, '0')}]\u001b[0m tile ${i % 64},${Math.floor(i / 64)} samples 512 noise ${(1 / (i + 1)).toFixed(5)}\n`,
      );
  }
  out.push('progress 10%\rprogress 60%\rprogress 100%\n');
  return out.join('');
}
