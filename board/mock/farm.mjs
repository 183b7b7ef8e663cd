// A made-up farm that moves: workers, queues, jobs, and a clock that starts and ends their tasks. Nothing here is the
// scheduler's; it only makes answers of the right shape and size.

import { pastOf, rollSeries } from './series.mjs';

export const STATES = ['waiting', 'ready', 'booked', 'running', 'succeeded', 'failed', 'canceled', 'skipped'];
const [WAITING, READY, BOOKED, RUNNING, SUCCEEDED, FAILED, CANCELED, SKIPPED] = STATES.keys();
export const LETTERS = ['b', 'w', 'p', 'r', 's', 'f', 'c', 'l'];

/** Numbers that look random and are the same in each run. */
export function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const SIZES = {
  small: { workers: 14, cpus: [8, 16, 32], tick_ms: 250, jobs: 40, big: 0, task_ms: 9_000 },
  big: { workers: 10_000, cpus: [16, 32, 64], tick_ms: 1_000, jobs: 3_000, big: 1_000_000, task_ms: 90_000 },
};
const QUEUES = [
  ['film', 3, 300],
  ['simulation', 3, 200],
  ['ann', 3, 100],
  ['ben', 3, 100],
  ['nightly', 3, 50],
  ['vip', 9, 100],
  ['idle', 1, 100],
  ['texture-bakes-of-the-second-unit', 3, 100],
  ['compile', 5, 400],
  ['carla', 3, 100],
];
const NAMES = [
  'render',
  'comp',
  'bake',
  'link',
  'test',
  'transcode',
  'denoise',
  'solve',
  'cc',
  'deploy-of-the-review-environment',
];

export class Farm {
  constructor(mode) {
    this.size = SIZES[mode];
    this.mode = mode;
    this.random = random(7);
    this.listeners = new Set();
    this.now = Date.now();
    this.decisions = [];
    this.ended = [];
    this.started = 0;
    this.minute = [];
    this.makeQueues();
    this.makeWorkers();
    this.jobs = [];
    this.open = [];
    this.makeJobs();
    this.series = pastOf(this);
  }

  pick(list) {
    return list[Math.floor(this.random() * list.length)];
  }

  makeQueues() {
    this.queues = QUEUES.map(([name, band, weight]) => ({
      name,
      band,
      weight,
      booked: 0,
      running: 0,
      running_cpus: 0,
      waiting: 0,
      paused: null,
      charged: 0,
      turns: 'users',
      users: name === 'compile' ? ['*'] : [],
      user_weights: name === 'film' ? { ann: 300 } : {},
      ...(name === 'nightly' && { quota_cpus: 64, burst_cpus: 128 }),
    }));
    this.queueOf = new Map(this.queues.map((queue) => [queue.name, queue]));
    const created_ms = this.now - 40 * 86_400_000;
    this.tokens = [
      { id: 't1', user: 'root', role: 'admin', note: 'the first', created_ms },
      { id: 't2', user: 'ann', role: 'user', note: 'laptop', created_ms, expires_ms: this.now + 20 * 86_400_000 },
      { id: 't3', user: 'ci', role: 'submitter', note: 'nightly builds', queue: 'nightly', created_ms },
      { id: 't4', user: 'box1', role: 'worker', note: '', worker: 'box1', created_ms },
      { id: 't5', user: 'ben', role: 'viewer', note: 'lost phone', created_ms, revoked_ms: this.now - 86_400_000 },
    ];
    this.limits = [
      { name: 'maya', max: 20, per_worker: 1, busy_exits: [5], back_off_ms: 30_000, backing_off: 1 },
      { name: 'nuke', max: 8 },
      { name: 'uplink', per_worker: 2 },
    ];
    /** How many of each limit are taken. */
    this.taken = new Map(this.limits.map((limit) => [limit.name, 0]));
  }

  makeWorkers() {
    this.workers = Array.from({ length: this.size.workers }, (_, i) => {
      const cpus = this.pick(this.size.cpus);
      const name =
        this.mode === 'small'
          ? `box${i + 1}`
          : `rack${String(Math.floor(i / 40)).padStart(3, '0')}-n${String(i % 40).padStart(2, '0')}`;
      return {
        id: i + 1,
        name,
        cpus,
        free: cpus,
        memory: cpus * 4 * 2 ** 30,
        tasks: new Set(),
        state: 'up',
        draining: false,
        note: null,
        arch: this.random() < 0.1 ? 'aarch64' : 'x86_64',
        heard: this.now,
        psi: { cpu: this.random() * 20, memory: this.random() * 4, io: this.random() * 9 },
        reason: null,
        failed: 0,
        ended: 0,
      };
    });
    const special = (i, change) => Object.assign(this.workers[i % this.workers.length], change);
    special(4, { state: 'suspect', reason: 'not heard from' });
    special(7, { state: 'draining', draining: true, note: 'new memory', reason: 'draining: new memory' });
    special(9, { psi: { cpu: 22, memory: 61, io: 18 }, reason: 'under memory pressure' });
    if (this.mode === 'big') {
      for (let i = 0; i < 160; i += 1)
        special(300 + i * 17, { psi: { cpu: 88, memory: 6, io: 30 }, reason: 'under cpu pressure' });
      for (let i = 0; i < 30; i += 1) special(5_000 + i, { state: 'expired', reason: 'not heard from' });
    }
    this.byName = new Map(this.workers.map((worker) => [worker.name, worker]));
  }

  makeJobs() {
    for (let i = 0; i < this.size.jobs; i += 1) this.submit(this.size.jobs - i);
    if (this.size.big > 0) this.submit(0, this.size.big);
    const film = this.submit(0, this.mode === 'small' ? 1200 : 5000, true);
    film.name = 'film: shots of the harbour';
    // A typical job that failed: one task.
    const single = this.submit(20, 1);
    single.state = 'failed';
    single.states[0] = FAILED;
    single.counts = single.counts.map((_n, code) => Number(code === FAILED));
    single.ended_ms = single.created_ms + 38_000;
    const held = this.submit(0, 80);
    held.state = 'held';
    const impossible = this.submit(0, 3);
    Object.assign(impossible, { name: 'needs a gpu', impossible: true, queue: 'ann', user: 'ann' });
    impossible.steps[0].resources = { cpus: 4, gpus: 8, memory: 2 ** 36 };
  }

  /** Adds a job that was submitted some minutes ago. */
  submit(minutesAgo, tasks, graph = false) {
    const id = this.jobs.length + 1;
    const total = tasks ?? Math.ceil(10 ** (0.5 + this.random() * 2.4));
    const queue = this.pick(QUEUES)[0];
    const steps = [];
    const add = (name, share, depends) => {
      const first = steps.reduce((sum, step) => sum + step.tasks, 0);
      steps.push({
        name,
        first_task: first,
        tasks: share,
        retries: 2,
        resources: { cpus: this.pick([1, 1, 2, 4]), memory: this.pick([1, 2, 4]) * 2 ** 30 },
        ...(depends && { depends }),
        command: [name, '--frame', '{}', '--out', '/films/a b/{}.exr'],
        cwd: '/films/harbour',
        time_limit_ms: 3_600_000,
        ...(name === 'render' && { limits: ['maya'] }),
        ...(name === 'comp' && { limits: ['nuke', 'uplink'] }),
        ...(name === 'textures' && { jobserver: 'auto' }),
      });
    };
    if (graph) {
      const part = Math.floor(total / 4);
      add('simulate', part);
      add('render', part, [{ on: 'simulate', by: 'task' }]);
      add('denoise', part, [{ on: 'render', by: 'task' }]);
      add('textures', total - 3 * part - 2);
      add('comp', 1, [{ on: 'denoise' }, { on: 'textures' }]);
      add('deliver', 1, [{ on: 'comp' }]);
    } else add(this.pick(NAMES), total);
    const name = graph
      ? 'film'
      : `${steps[0].name}${this.random() < 0.5 ? `-${1000 + Math.floor(this.random() * 9000)}` : ''}`;
    const states = new Uint8Array(total).fill(READY);
    for (const step of steps) if (step.depends) states.fill(WAITING, step.first_task, step.first_task + step.tasks);
    const counts = new Array(8).fill(0);
    for (const code of states) counts[code] += 1;
    const job = {
      id,
      name,
      queue,
      user: QUEUES.find(([other]) => other === queue)[0].length < 6 ? queue : this.pick(['ann', 'ben', 'carla']),
      priority: Math.floor(this.random() * 3) * 10,
      steps,
      state: 'pending',
      created_ms: this.now - minutesAgo * 47_000 - 30_000,
      ended_ms: null,
      states,
      counts,
      next: 0,
      tasks: new Map(),
      changed: [],
    };
    this.jobs.push(job);
    if (minutesAgo > 12) this.finish(job);
    else this.open.push(job);
    return job;
  }

  /** Ends a job of the past at once. */
  finish(job) {
    const bad = this.random() < 0.12;
    const canceled = !bad && this.random() < 0.06;
    job.states.fill(canceled ? CANCELED : SUCCEEDED);
    if (bad) for (let i = 0; i < job.states.length; i += 1 + Math.floor(this.random() * 30)) job.states[i] = FAILED;
    job.counts.fill(0);
    for (const code of job.states) job.counts[code] += 1;
    job.state = canceled ? 'canceled' : bad ? 'failed' : 'succeeded';
    job.ended_ms = Math.min(this.now - 5_000, job.created_ms + 60_000 + this.random() * 400_000);
  }

  tick() {
    this.now = Date.now();
    this.end();
    this.start();
    this.minute = this.minute.filter((event) => event.at > this.now - 60_000);
    for (const worker of this.workers)
      if (worker.state === 'up' || worker.draining) worker.heard = this.now - Math.floor(this.random() * 4_000);
    this.tell();
    if (this.mode === 'small' && this.open.length < 8)
      this.announce(this.submit(0, 20 + Math.floor(this.random() * 300)));
    rollSeries(this);
  }

  end() {
    for (const job of this.open) {
      for (const [index, task] of job.tasks) {
        if (task.finished_ms !== null || task.until > this.now) continue;
        const failed = this.random() < 0.03;
        this.close(job, index, task, failed ? FAILED : SUCCEEDED);
      }
    }
    this.open = this.open.filter((job) => job.ended_ms === null);
  }

  /** Ends a task, and frees its part of the worker. */
  close(job, index, task, code) {
    const step = this.stepOf(job, index);
    const queue = this.queueOf.get(job.queue);
    task.finished_ms = this.now;
    task.worker.free += step.resources.cpus;
    task.worker.tasks.delete(`${job.id}.${index}`);
    task.worker.ended += 1;
    queue.running -= 1;
    queue.running_cpus -= step.resources.cpus;
    this.take(step, -1);
    queue.charged += step.resources.cpus * (this.now - task.started_ms);
    if (code === FAILED) task.worker.failed += 1;
    this.set(job, index, code);
    this.minute.push({ at: this.now, what: STATES[code] });
    this.ended.push({ job, index, task, step, code });
    if (this.ended.length > 20_000) this.ended.splice(0, 5_000);
    if (code === SUCCEEDED) this.unblock(job, index);
    // A large job keeps what its latest tasks did; the others are made up when they are asked for.
    if (job.tasks.size > 20_000) job.tasks.delete(job.tasks.keys().next().value);
  }

  /** Takes, or gives back, one of each limit of a step. */
  take(step, by) {
    for (const name of step.limits ?? []) this.taken.set(name, this.taken.get(name) + by);
  }

  /** True if a limit of the step has none left. */
  isTaken(step) {
    return this.limits.some(
      ({ name, max }) => max != null && step.limits?.includes(name) && this.taken.get(name) >= max,
    );
  }

  /** What depends on a task that succeeded may start. */
  unblock(job, index) {
    const done = this.stepOf(job, index);
    for (const step of job.steps) {
      for (const on of step.depends ?? []) {
        if (on.on !== done.name) continue;
        if (on.by === 'task') {
          const other = step.first_task + (index - done.first_task);
          if (job.states[other] === WAITING) this.set(job, other, READY);
        } else if (step.depends.every((need) => this.isDone(job, need.on))) {
          for (let i = step.first_task; i < step.first_task + step.tasks; i += 1)
            if (job.states[i] === WAITING) this.set(job, i, READY);
        }
      }
    }
    job.next = 0;
  }

  isDone(job, name) {
    const step = job.steps.find((one) => one.name === name);
    for (let i = step.first_task; i < step.first_task + step.tasks; i += 1) if (job.states[i] < SUCCEEDED) return false;
    return true;
  }

  start() {
    const startsMax = this.mode === 'small' ? 6 : 3_000;
    let starts = 0;
    const queues = this.queues
      .filter((queue) => queue.paused === null)
      .sort((a, b) => b.band - a.band || a.running_cpus / a.weight - b.running_cpus / b.weight);
    const free = this.workers.filter((worker) => worker.state === 'up' && worker.reason === null && worker.free >= 1);
    for (const queue of queues) {
      for (const job of this.open) {
        if (job.queue !== queue.name || job.state === 'held' || job.impossible) continue;
        let scanned = 0;
        while (starts < startsMax && free.length > 0 && job.next < job.states.length && scanned < 400_000) {
          scanned += 1;
          const index = job.next;
          job.next += 1;
          if (job.states[index] !== READY) continue;
          const step = this.stepOf(job, index);
          if (this.isTaken(step)) {
            job.next -= 1;
            break;
          }
          const at = Math.floor(this.random() * free.length);
          const worker = free[at];
          if (worker.free < step.resources.cpus) {
            job.next -= 1;
            free.splice(at, 1);
            continue;
          }
          this.run(job, index, step, worker, queue);
          starts += 1;
          if (starts % Math.ceil(startsMax / queues.length) === 0) break;
        }
      }
    }
  }

  run(job, index, step, worker, queue) {
    const before = job.tasks.get(index);
    worker.free -= step.resources.cpus;
    worker.tasks.add(`${job.id}.${index}`);
    queue.booked += 1;
    queue.running += 1;
    queue.running_cpus += step.resources.cpus;
    this.take(step, 1);
    job.tasks.set(index, {
      worker,
      attempt: (before?.attempt ?? 0) + 1,
      booked_ms: this.now - 40,
      started_ms: this.now,
      finished_ms: null,
      until: this.now + this.size.task_ms * (0.3 + this.random() * 1.4),
      history: before ? [before, ...before.history] : [],
    });
    if (job.state === 'pending') job.state = 'running';
    this.set(job, index, RUNNING);
    this.minute.push({ at: this.now, what: 'started' });
    this.decide(job, index, step, worker);
  }

  decide(job, index, step, worker) {
    const others = [worker, ...Array.from({ length: 4 }, () => this.pick(this.workers))].filter(
      (one, i, all) => all.indexOf(one) === i,
    );
    const candidates = others.map((one, i) => this.judge(one, i));
    this.decisions.unshift({
      at: this.now,
      task: `${job.id}.${index}`,
      kind: 'build',
      queue: job.queue,
      name: step.name,
      job_name: job.name,
      user: job.user,
      job_id: job.id,
      policy: 'resource-aware',
      worker_id: worker.id,
      winner: worker.name,
      candidates,
    });
    this.decisions.length = Math.min(this.decisions.length, 1000);
  }

  judge(worker, place) {
    const base = 400 - place * 60;
    const rules = [
      {
        rule: 'MissingPathsRule',
        points: 200 - place * 50,
        reason: place === 0 ? 'no key is missing' : `${place} keys are missing`,
      },
      { rule: 'MissingNarSizeRule', points: base * 0.7, reason: 'nothing is to be fetched' },
      { rule: 'LoadRule', points: -20 - place * 31.5, reason: `its load is ${(0.2 + place / 8).toFixed(2)}` },
      {
        rule: 'PressureRule',
        points: place === 2 ? -80 : 0,
        reason: place === 2 ? 'its memory is short' : 'no pressure counts',
      },
      { rule: 'CoreScoreRule', points: place % 2 ? -12 : 31, reason: 'its cores are faster than the mean' },
    ];
    return {
      id: worker.id,
      name: worker.name,
      load: 0.2 + place / 8,
      won: place === 0,
      rules,
      score: rules.reduce((sum, rule) => sum + rule.points, 0),
    };
  }

  stepOf(job, index) {
    for (const step of job.steps) if (index < step.first_task + step.tasks) return step;
    return job.steps.at(-1);
  }

  set(job, index, code) {
    job.counts[job.states[index]] -= 1;
    job.counts[code] += 1;
    job.states[index] = code;
    job.changed.push(index);
    this.settle(job);
  }

  settle(job) {
    const left = job.counts[WAITING] + job.counts[READY] + job.counts[BOOKED] + job.counts[RUNNING];
    if (left > 0) return;
    job.state = job.counts[FAILED] > 0 ? 'failed' : job.counts[CANCELED] > 0 ? 'canceled' : 'succeeded';
    job.ended_ms = this.now;
  }

  tell() {
    for (const queue of this.queues) queue.waiting = 0;
    for (const job of this.open) this.queueOf.get(job.queue).waiting += job.counts[READY];
    for (const job of this.jobs) {
      if (job.changed.length === 0) continue;
      const tasks = job.changed.map((index) => ({
        index,
        state: STATES[job.states[index]],
        attempt: 1,
        out_bytes: 0,
        err_bytes: 0,
      }));
      job.changed = [];
      this.emit({ tasks: { job: job.id, counts: this.counts(job), tasks } });
      if (job.ended_ms === this.now) this.announce(job);
    }
  }

  announce(job) {
    this.emit({ job: { job: job.id, state: job.state, counts: this.counts(job) } });
  }
  emit(event) {
    for (const listener of this.listeners) listener(event);
  }

  counts(job) {
    const c = job.counts;
    return {
      total: job.states.length,
      waiting: c[WAITING],
      ready: c[READY],
      running: c[BOOKED] + c[RUNNING],
      succeeded: c[SUCCEEDED],
      failed: c[FAILED],
      canceled: c[CANCELED],
      skipped: c[SKIPPED],
    };
  }

  act(job, action, body) {
    if (action === 'hold') job.state = 'held';
    else if (action === 'release') job.state = job.counts[RUNNING] > 0 ? 'running' : 'pending';
    else if (action === 'priority') job.priority = body.priority;
    else if (action === 'cancel') this.cancel(job);
    else if (action === 'retry') this.retry(job);
    this.announce(job);
    this.tell();
  }

  actOnTask(job, index, action) {
    const task = job.tasks.get(index);
    if (action === 'retry') {
      this.set(job, index, READY);
      Object.assign(job, { state: 'running', ended_ms: null, next: 0 });
      if (!this.open.includes(job)) this.open.push(job);
    } else if (job.states[index] === RUNNING) this.close(job, index, task, CANCELED);
    else if (job.states[index] < RUNNING) this.set(job, index, CANCELED);
    this.announce(job);
    this.tell();
  }

  cancel(job) {
    for (const [index, task] of job.tasks) if (job.states[index] === RUNNING) this.close(job, index, task, CANCELED);
    for (let i = 0; i < job.states.length; i += 1) if (job.states[i] < RUNNING) this.set(job, i, CANCELED);
    job.stopped = 'cancelled by an administrator';
  }

  retry(job) {
    for (let i = 0; i < job.states.length; i += 1)
      if (job.states[i] === FAILED || job.states[i] === CANCELED) this.set(job, i, READY);
    Object.assign(job, { state: 'running', ended_ms: null, stopped: undefined, next: 0 });
    if (!this.open.includes(job)) this.open.push(job);
  }

  drain(worker, draining, note) {
    Object.assign(worker, {
      draining,
      state: draining ? 'draining' : 'up',
      note,
      reason: draining ? (note ? `draining: ${note}` : 'draining') : null,
    });
    this.emit({ worker: { worker: worker.name, what: draining ? 'draining' : 'up' } });
  }
}
