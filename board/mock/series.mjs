// The farm over time: made up for the past, and what really moved from then on.

/** The last hour and the last day of a farm, made up. */
export function pastOf(farm) {
  return { hour: past(farm, 360, 10_000), day: past(farm, 288, 300_000) };
}

function past(farm, length, step_ms) {
  const up = farm.workers.filter((worker) => worker.state === 'up');
  const total = up.reduce((sum, worker) => sum + worker.cpus, 0);
  const ready = farm.open.reduce((sum, job) => sum + farm.counts(job).ready, 0);
  const wave = (i, base, swing, noise) =>
    Math.max(0, base * (1 + swing * Math.sin(i / 40 + (base % 7)) + noise * (farm.random() - 0.5)));
  const make = (base, swing, noise, whole = true) =>
    Array.from({ length }, (_, i) => {
      const n = wave(i, base, swing, noise);
      return whole ? Math.round(n) : Math.round(n * 10) / 10;
    });
  const per = step_ms / 1000;
  const rate = total / (farm.size.task_ms / 1000) / 2;
  const gap = (values) => values.map((value, i) => (i < length * 0.06 ? null : value));
  return {
    step_ms,
    end_ms: farm.now,
    running: gap(make(total / 2, 0.15, 0.08)),
    waiting: gap(make(ready * 0.8, 0.6, 0.1)),
    started: make(rate * per, 0.2, 0.3),
    succeeded: make(rate * per * 0.98, 0.2, 0.3),
    failed: make(rate * per * 0.02, 0.5, 1.2),
    busy_cpus: gap(make(total * 0.8, 0.12, 0.05)).map((n) => (n === null ? null : Math.min(n, total))),
    total_cpus: gap(make(total, 0, 0)),
    cpu_pressure: make(14, 0.4, 0.3, false),
    memory_pressure: make(3, 0.3, 0.5, false),
    io_pressure: make(7, 0.5, 0.6, false),
    wait_p50_ms: make(4_000, 0.6, 0.4),
    wait_p95_ms: make(21_000, 0.5, 0.5),
    decisions: make(rate * per, 0.2, 0.3),
    queues: farm.queues.slice(0, 8).map((queue, q) => ({
      queue: queue.name,
      busy_cpus: make((total / 9) * (1 + (q % 3) / 3), 0.3, 0.12),
      entitled_cpus: make((total / 9) * (1 + (q % 3) / 3), 0.12, 0),
    })),
  };
}

/** Adds a step to the last hour when it is over. */
export function rollSeries(farm) {
  const s = farm.series.hour;
  if (farm.now - s.end_ms < s.step_ms) return;
  s.end_ms += s.step_ms;
  const push = (list, value) => {
    list.shift();
    list.push(value);
  };
  const since = farm.minute.filter((event) => event.at > farm.now - s.step_ms);
  push(
    s.running,
    farm.queues.reduce((sum, queue) => sum + queue.running, 0),
  );
  push(
    s.waiting,
    farm.queues.reduce((sum, queue) => sum + queue.waiting, 0),
  );
  push(s.started, since.filter((event) => event.what === 'started').length);
  push(s.succeeded, since.filter((event) => event.what === 'succeeded').length);
  push(s.failed, since.filter((event) => event.what === 'failed').length);
  push(
    s.busy_cpus,
    farm.queues.reduce((sum, queue) => sum + queue.running_cpus, 0),
  );
  for (const name of [
    'total_cpus',
    'cpu_pressure',
    'memory_pressure',
    'io_pressure',
    'wait_p50_ms',
    'wait_p95_ms',
    'decisions',
  ])
    push(s[name], s[name].at(-1));
  for (const one of s.queues) {
    push(one.busy_cpus, farm.queueOf.get(one.queue).running_cpus);
    push(one.entitled_cpus, one.entitled_cpus.at(-1));
  }
}
