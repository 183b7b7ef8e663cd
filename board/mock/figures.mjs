// Figures of the whole farm: what it does now, what waits, what ended.

import { random } from './farm.mjs';

const READY = 1;

export const RULES = [
  [
    'MissingPathsRule',
    'Prefers workers that already have the cache keys that the task reads: fewer missing keys are better.',
  ],
  ['MissingNarSizeRule', 'Prefers workers that have to fetch fewer bytes before the task can start.'],
  ['LoadRule', 'Prefers workers that are less loaded, with the task already counted.'],
  ['PressureRule', 'Keeps tasks from workers whose memory, cpu or disks are under pressure.'],
  ['CoreScoreRule', 'For tasks that take more processor time than most, prefers workers with faster cores.'],
].map(([rule, description]) => ({ rule, description }));

export function overview(farm) {
  const states = {
    total: farm.workers.length,
    online: 0,
    draining: 0,
    suspect: 0,
    lost: 0,
    pressed: 0,
    low_space: 0,
    left_out: 0,
  };
  for (const worker of farm.workers) {
    states[{ up: 'online', expired: 'lost' }[worker.state] ?? worker.state] += 1;
    if (worker.state === 'up' && worker.reason) states.pressed += 1;
  }
  const up = farm.workers.filter((worker) => worker.state === 'up');
  const freeOf = (some) => some.reduce((sum, worker) => sum + worker.free, 0);
  const tasks = { total: 0, waiting: 0, ready: 0, running: 0, succeeded: 0, failed: 0, canceled: 0, skipped: 0 };
  for (const job of farm.open) for (const [key, n] of Object.entries(farm.counts(job))) tasks[key] += n;
  const rate = (what) => farm.minute.filter((event) => event.what === what).length;
  const waiting = pending(farm).reduce(
    (sums, step) => sums.set(step.reason, (sums.get(step.reason) ?? 0) + step.tasks),
    new Map(),
  );
  const text = {
    full: 'Every worker that could run these is busy or takes no new work.',
    fits_nowhere: 'No worker of the farm could ever run these.',
    held: 'Their job is held.',
    paused: 'Their queue is paused.',
    turn: 'There is room, and these tasks are about to start.',
  };
  return {
    time_ms: farm.now,
    workers: states,
    suffering: farm.workers
      .filter((worker) => worker.reason && !worker.draining)
      .slice(0, 50)
      .map((worker) => ({ worker: worker.name, reason: worker.reason })),
    cpus: {
      total: up.reduce((sum, worker) => sum + worker.cpus, 0),
      usable: freeOf(up.filter((worker) => worker.reason === null)),
      out_of_service: freeOf(farm.workers.filter((worker) => worker.reason !== null && worker.state !== 'expired')),
      booked: farm.queues.reduce((sum, queue) => sum + queue.running_cpus, 0),
      by_queue: farm.queues
        .filter((queue) => queue.running_cpus > 0)
        .map((queue) => ({ queue: queue.name, cpus: queue.running_cpus }))
        .sort((a, b) => b.cpus - a.cpus),
    },
    tasks,
    jobs: {
      running: farm.jobs.filter((job) => job.state === 'running').length,
      waiting: farm.jobs.filter((job) => job.state === 'pending').length,
      held: farm.jobs.filter((job) => job.state === 'held').length,
    },
    ended: Object.fromEntries(
      ['succeeded', 'failed', 'canceled'].map((state) => [
        state,
        farm.jobs.filter((job) => job.state === state).length,
      ]),
    ),
    waiting: [...waiting].sort((a, b) => b[1] - a[1]).map(([reason, n]) => ({ reason, text: text[reason], tasks: n })),
    per_minute: { started: rate('started'), succeeded: rate('succeeded'), failed: rate('failed') },
    wait_ms: { p50: 3_900, p95: 21_400 },
    holds: farm.holds ?? [],
  };
}

/** Why tasks of a job wait, as a sentence. */
export function messageOf(farm, job, reason) {
  return {
    held: `its job is held; 'windlass job release ${job.id}' releases it`,
    fits_nowhere: 'no worker of the farm could run it, even if it were empty',
    paused: `its queue is paused: ${farm.queueOf.get(job.queue).paused}`,
    full: 'every worker that could run it is busy or takes no new work',
  }[reason];
}

export function pending(farm) {
  return farm.open
    .filter((job) => job.counts[READY] > 0)
    .flatMap((job) => job.steps.map((step) => ({ job, step })))
    .map(({ job, step }) => {
      let n = 0;
      let first = -1;
      for (let i = step.first_task; i < step.first_task + step.tasks; i += 1)
        if (job.states[i] === READY) {
          n += 1;
          if (first < 0) first = i;
        }
      const reason =
        job.state === 'held'
          ? 'held'
          : job.impossible
            ? 'fits_nowhere'
            : farm.queueOf.get(job.queue).paused !== null
              ? 'paused'
              : 'full';
      return {
        kind: 'build',
        queue: job.queue,
        job_id: job.id,
        job_name: job.name,
        user: job.user,
        name: step.name,
        task_id: `${job.id}.${first}`,
        tasks: n,
        queued_at: job.created_ms,
        dependency_count: step.depends?.length ?? 0,
        dependents: 0,
        reason,
        message: messageOf(farm, job, reason),
      };
    })
    .filter((step) => step.tasks > 0)
    .slice(0, 500);
}

export function workerSeries(farm, worker, span) {
  const from = farm.series[span];
  const next = random(worker.id);
  const like = (base, noise) =>
    from.running.map((_, i) => Math.max(0, base * (1 + 0.3 * Math.sin(i / 30 + worker.id)) + noise * (next() - 0.5)));
  return {
    step_ms: from.step_ms,
    end_ms: from.end_ms,
    busy_cpus: like(worker.cpus * 0.7, 3).map((n) => Math.min(worker.cpus, Math.round(n))),
    cpu_pressure: like(worker.psi.cpu, 6),
    memory_pressure: like(worker.psi.memory, 1),
    io_pressure: like(worker.psi.io, 4),
    load: like(0.6, 0.1),
    network_mbit_s: like(350, 120),
    cache_used: worker.id % 3 === 0 ? [] : like(62, 1).map((n) => Math.min(100, Math.round(n))),
  };
}

export function scheduler(farm) {
  return {
    time_ms: farm.now,
    decisions_per_s: farm.minute.filter((event) => event.what === 'started').length / 60,
    rounds_per_s: 3.4,
    round_ms: { p50: 0.21, p95: 1.4 },
    commit_ms: { p50: 2.1, p95: 6.8 },
    late_results: 2,
    store_failures: 0,
    leases: { workers: farm.workers.length - 1, oldest_ms: 128_000 },
    reservations: 1,
    left_out: 0,
    stranded_cores: 3,
  };
}

export function scoring(farm) {
  const scores = farm.decisions.map((one) => one.candidates[0].score);
  if (scores.length === 0) return { sample_size: 0, histogram: [], rules: [] };
  const [lo, hi] = [Math.min(...scores), Math.max(...scores) + 1];
  const width = (hi - lo) / 12;
  const histogram = Array.from({ length: 12 }, (_, i) => ({
    lo: lo + i * width,
    hi: lo + (i + 1) * width,
    count: scores.filter((s) => s >= lo + i * width && s < lo + (i + 1) * width).length,
  }));
  const rules = RULES.map(({ rule }, i) => ({ rule, avg: 240 - i * 71, min: 120 - i * 90, max: 300 - i * 40 }));
  return {
    sample_size: scores.length,
    score_min: lo,
    score_max: hi,
    score_avg: scores.reduce((a, b) => a + b, 0) / scores.length,
    histogram,
    rules,
  };
}

export function history(farm, query) {
  const worker = query.get('worker');
  const since = farm.now - Number(query.get('hours') ?? 24) * 3_600_000;
  const rows = farm.ended.filter(
    (one) => one.task.finished_ms >= since && (!worker || one.task.worker.name === worker),
  );
  const count = (code) => rows.filter((one) => one.code === code).length;
  const bounds = [100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5];
  const tasks = new Array(bounds.length + 1).fill(0);
  const byWorker = new Map();
  for (const { task, code } of rows) {
    const at = bounds.findIndex((bound) => task.finished_ms - task.started_ms < bound);
    tasks[at < 0 ? bounds.length : at] += 1;
    const sums = byWorker.get(task.worker.name) ?? { worker: task.worker.name, failed: 0, tasks: 0 };
    sums.tasks += 1;
    sums.failed += code === 5 ? 1 : 0;
    byWorker.set(task.worker.name, sums);
  }
  const failed = count(5);
  return {
    since_ms: Math.max(since, farm.now - 7_200_000),
    tasks: rows.length,
    succeeded: count(4),
    failed,
    canceled: count(6),
    failures:
      failed === 0
        ? []
        : [
            { cause: 'exit 4', tasks: Math.ceil(failed * 0.7), jobs: [{ job: 17, tasks: Math.ceil(failed * 0.7) }] },
            { cause: 'oom', tasks: Math.floor(failed * 0.2) },
            { cause: 'time_limit', tasks: Math.floor(failed * 0.1) },
          ].filter((one) => one.tasks > 0),
    workers: [...byWorker.values()]
      .filter((one) => one.failed > 0)
      .sort((a, b) => b.failed - a.failed)
      .slice(0, 20),
    durations: { bounds_ms: bounds, tasks },
    expensive: rows
      .map(({ job, index, task, step }) => ({
        job: job.id,
        task: `${job.id}.${index}`,
        step: step.name,
        queue: job.queue,
        worker: task.worker.name,
        ms: task.finished_ms - task.started_ms,
        cpus: step.resources.cpus,
        peak_bytes: job.id % 5 === 0 ? null : 2 ** 29 + job.id * 7_777_777,
      }))
      .sort((a, b) => b.ms * b.cpus - a.ms * a.cpus)
      .slice(0, 50),
  };
}

const DAY_MS = 86_400_000;

/** Cpu hours by user, queue and day, made up. */
export function usage(farm, days) {
  const next = random(11);
  const today = Math.floor(farm.now / DAY_MS) * DAY_MS;
  const rows = [];
  for (let day = 0; day < days; day += 1) {
    for (const queue of farm.queues) {
      for (const user of ['ann', 'ben', 'carla']) {
        const tasks = Math.floor(next() * 400);
        if (next() < 0.4) continue;
        const cpu_ms = Math.round(tasks * (queue.weight / 100) * 400_000 * next());
        const failed = Math.floor(tasks * next() * 0.05);
        rows.push({ day_ms: today - day * DAY_MS, user, queue: queue.name, cpu_ms, tasks, failed });
      }
    }
  }
  return { since_ms: today - (days - 1) * DAY_MS, rows };
}
