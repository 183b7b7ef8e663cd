import { describe, expect, it } from 'vitest';
import type { Counts } from '../src/api/types';
import { Batch, CHANGES_MAX, parseEvent } from '../src/live/batch';
import { EVERY_MS, LastLines, OPEN_MAX, TASKS_MAX } from '../src/live/lastlines';
import { Pacer, type Timer } from '../src/live/pacer';
import { ApiFailure } from '../src/api/client';
import { etaOf } from '../src/lib/task';

const counts = (running: number): Counts => ({
  total: 9,
  waiting: 0,
  ready: 0,
  running,
  succeeded: 0,
  failed: 0,
  canceled: 0,
  skipped: 0,
});

describe('events of one frame', () => {
  it('are put together by job, the last counts winning', () => {
    const batch = new Batch();
    expect(batch.isEmpty).toBe(true);
    batch.add({ tasks: { job: 1, counts: counts(1), tasks: [{ index: 0, state: 'running' }] } });
    batch.add({ tasks: { job: 1, counts: counts(2), tasks: [{ index: 1, state: 'running' }] } });
    batch.add({ job: { job: 1, state: 'failed', counts: counts(0) } });
    batch.add({ worker: { worker: 'box1', what: 'up' } });
    expect(batch.jobs.get(1)).toEqual({
      state: 'failed',
      counts: counts(0),
      tasks: [
        { index: 0, state: 'running' },
        { index: 1, state: 'running' },
      ],
    });
    expect([...batch.workers]).toEqual(['box1']);
    expect([batch.isEmpty, batch.lagged]).toEqual([false, false]);
  });

  it('do not pile up where no frame comes', () => {
    const batch = new Batch();
    const tasks = Array.from({ length: 1000 }, (_, index) => ({ index, state: 'running' as const }));
    for (let i = 0; i <= CHANGES_MAX / 1000; i += 1) batch.add({ tasks: { job: i, counts: counts(1), tasks } });
    expect(batch.lagged).toBe(true);
    expect([...batch.jobs.values()].reduce((sum, job) => sum + job.tasks.length, 0)).toBeLessThanOrEqual(CHANGES_MAX);
  });

  it('are read from the wire, and what is none is passed over', () => {
    expect(parseEvent('"lagged"')).toBe('lagged');
    expect(parseEvent('{"worker":{"worker":"a","what":"up"}}')).toEqual({ worker: { worker: 'a', what: 'up' } });
    for (const bad of ['', 'nonsense', 'null', '7', '{}', '{"other":1}']) expect(parseEvent(bad)).toBeNull();
    // A brief event of a job has no tasks.
    const batch = new Batch();
    batch.add({ tasks: { job: 3, counts: counts(1) } });
    expect(batch.jobs.get(3)?.tasks).toEqual([]);
  });
});

/** A clock that a test moves. */
class Hand implements Timer {
  time = 0;
  private calls: { at: number; call: () => void }[] = [];
  now = () => this.time;
  after(ms: number, call: () => void) {
    const entry = { at: this.time + ms, call };
    this.calls.push(entry);
    return () => {
      this.calls = this.calls.filter((other) => other !== entry);
    };
  }
  move(ms: number): void {
    this.time += ms;
    const due = this.calls.filter((entry) => entry.at <= this.time);
    this.calls = this.calls.filter((entry) => entry.at > this.time);
    for (const entry of due) entry.call();
  }
}
const settle = () =>
  new Promise<void>((resolve) => {
    setImmediate(resolve);
  });

describe('reading again', () => {
  it('happens at once, then at most once in the gap, and not in vain', async () => {
    const timer = new Hand();
    let reads = 0;
    const pacer = new Pacer(
      async () => {
        reads += 1;
      },
      1_000,
      timer,
    );
    for (let i = 0; i < 50; i += 1) pacer.want();
    await settle();
    expect(reads).toBe(1);
    for (let i = 0; i < 10; i += 1) {
      timer.move(90);
      pacer.want();
      await settle();
    }
    expect(reads).toBe(1);
    timer.move(100);
    await settle();
    expect(reads).toBe(2);
    timer.move(60_000);
    await settle();
    expect(reads).toBe(2);
  });

  it('never runs twice at a time; a wish meanwhile leads to one more', async () => {
    const timer = new Hand();
    const ends: (() => void)[] = [];
    const pacer = new Pacer(
      () =>
        new Promise<void>((resolve) => {
          ends.push(resolve);
        }),
      1_000,
      timer,
    );
    pacer.want();
    timer.move(5_000);
    pacer.want();
    pacer.want();
    expect(ends.length).toBe(1);
    ends[0]!();
    await settle();
    expect(ends.length).toBe(2);
    ends[1]!();
    await settle();
    expect(ends.length).toBe(2);
  });

  it('ends when it is stopped', async () => {
    const timer = new Hand();
    let reads = 0;
    const pacer = new Pacer(
      async () => {
        reads += 1;
      },
      1_000,
      timer,
    );
    pacer.want();
    await settle();
    pacer.want();
    pacer.stop();
    timer.move(2_000);
    pacer.want();
    await settle();
    expect(reads).toBe(1);
  });
});

/** A clock that a test sets, and what waits for it. */
class SetTimer implements Timer {
  ms = 0;
  private calls: { at: number; call: () => void }[] = [];
  now = () => this.ms;
  after(ms: number, call: () => void): () => void {
    const one = { at: this.ms + ms, call };
    this.calls.push(one);
    return () => {
      this.calls = this.calls.filter((other) => other !== one);
    };
  }
  /** Lets time pass, with the answers that come meanwhile. */
  async pass(ms: number): Promise<void> {
    const end = this.ms + ms;
    for (;;) {
      for (let i = 0; i < 500; i += 1) await Promise.resolve();
      const next = this.calls.toSorted((a, b) => a.at - b.at)[0];
      if (next === undefined || next.at > end) break;
      this.calls = this.calls.filter((other) => other !== next);
      this.ms = Math.max(this.ms, next.at);
      next.call();
    }
    this.ms = end;
  }
}

describe('the last lines of running tasks', () => {
  const tasks = Array.from({ length: 100 }, (_, i) => `1.${i}`);

  it('are asked for a few at a time, and each again after a pause', async () => {
    const timer = new SetTimer();
    const asked: string[] = [];
    let [open, most] = [0, 0];
    const read = async (task: string) => {
      asked.push(task);
      most = Math.max(most, (open += 1));
      await Promise.resolve();
      open -= 1;
      return `one\nof ${task} at ${timer.ms}\n`;
    };
    let changes = 0;
    const lines = new LastLines(
      () => (changes += 1),
      read,
      timer,
      () => false,
    );
    lines.want(tasks);
    await timer.pass(0);
    expect([asked.length, new Set(asked).size, most]).toEqual([TASKS_MAX, TASKS_MAX, OPEN_MAX]);
    expect([lines.line('1.3'), changes]).toEqual(['of 1.3 at 0', TASKS_MAX]);
    await timer.pass(EVERY_MS - 1);
    expect(asked.length).toBe(TASKS_MAX);
    await timer.pass(EVERY_MS);
    expect(asked.length).toBe(2 * TASKS_MAX);
    // What is scrolled out of view is forgotten.
    lines.want(['1.99']);
    await timer.pass(0);
    expect([lines.line('1.3'), lines.line('1.99')]).toEqual([undefined, `of 1.99 at ${timer.ms}`]);
    lines.stop();
    const before = asked.length;
    await timer.pass(10 * EVERY_MS);
    expect(asked.length).toBe(before);
  });

  it('of a task that failed are asked for once, and not those that it wrote while it ran', async () => {
    const timer = new SetTimer();
    const asked: [string, boolean][] = [];
    const read = async (task: string, failed: boolean) => {
      asked.push([task, failed]);
      return failed ? 'boom' : 'tile 7';
    };
    const lines = new LastLines(
      () => undefined,
      read,
      timer,
      () => false,
    );
    lines.want(['1.0']);
    await timer.pass(EVERY_MS / 2);
    expect(lines.line('1.0')).toBe('tile 7');
    lines.want(['1.0'], new Set(['1.0']));
    await timer.pass(10 * EVERY_MS);
    expect(lines.line('1.0')).toBe('boom');
    expect(asked).toEqual([
      ['1.0', false],
      ['1.0', true],
    ]);
  });

  it('are not asked for again by who may not read them, nor while the page is hidden', async () => {
    const timer = new SetTimer();
    let asked = 0;
    const refuse = async (): Promise<string> => {
      asked += 1;
      throw new ApiFailure(403, "the output of task 1.0 is somebody else's");
    };
    const lines = new LastLines(
      () => undefined,
      refuse,
      timer,
      () => false,
    );
    lines.want(tasks);
    await timer.pass(10 * EVERY_MS);
    expect(asked).toBeLessThanOrEqual(OPEN_MAX);
    let hidden = true;
    const later = new LastLines(
      () => undefined,
      async (task) => task,
      timer,
      () => hidden,
    );
    later.want(['2.0']);
    await timer.pass(EVERY_MS);
    expect(later.line('2.0')).toBeUndefined();
    hidden = false;
    await timer.pass(EVERY_MS);
    expect(later.line('2.0')).toBe('2.0');
  });
});

describe('the expected end of a task', () => {
  it('is told while it runs, and when it is late', () => {
    const eta = (state: 'running' | 'booked', end?: number) => etaOf({ state, expected_end_ms: end }, 100_000);
    expect([eta('running', 190_000), eta('running', 40_000)]).toEqual(['1m 30s', '1m late']);
    expect([eta('running'), eta('booked', 190_000)]).toEqual(['', '']);
  });
});
