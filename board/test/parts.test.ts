import { describe, expect, it } from 'vitest';
import type { Job, Task } from '../src/api/types';
import { toCsv } from '../src/lib/csv';
import { etaOfJob } from '../src/lib/eta';
import { groupExpensive } from '../src/lib/expensive';
import { failureOf, groupFailures, lastLines, whereOf } from '../src/lib/failures';
import { place } from '../src/lib/graph';
import { HUES, Hues } from '../src/lib/hues';
import { lanes, ticks } from '../src/lib/lanes';
import { actionsOf, mayReadSurely, mayRunFarm, maySteer, taskActionsOf } from '../src/lib/rights';
import { holdersOf } from '../src/lib/limits';
import { placedBecause } from '../src/lib/placed';
import { LETTERS, TASK_STATES } from '../src/lib/states';
import { queueChanges } from '../src/lib/queuechanges';
import { turnsOf } from '../src/lib/turns';
import { cpuHours, dayOf, sumUsage, usageOfSeries } from '../src/lib/usage';

describe('tables as files', () => {
  it('quote what must be quoted, and defuse formulas', () => {
    expect(
      toCsv(
        ['a', 'b'],
        [
          ['x,y', 'say "hi"'],
          [1.5, null],
          ['=1+2', '-3\nline'],
        ],
      ),
    ).toBe('a,b\r\n"x,y","say ""hi"""\r\n1.5,\r\n\'=1+2,"\'-3\nline"\r\n');
  });
});

describe('the picture of steps', () => {
  it('puts each step right of what it depends on', () => {
    const steps = [
      { name: 'd', depends: ['b', 'c'] },
      { name: 'a', depends: [] },
      { name: 'b', depends: ['a'] },
      { name: 'c', depends: ['a'] },
    ];
    expect(place(steps).map((one) => [one.name, one.column])).toEqual([
      ['d', 2],
      ['a', 0],
      ['b', 1],
      ['c', 1],
    ]);
    expect(new Set(place(steps).map((one) => `${one.column}/${one.row}`)).size).toBe(4);
  });

  it('survives names that are not there, and circles', () => {
    expect(
      place([
        { name: 'a', depends: ['b', 'gone'] },
        { name: 'b', depends: ['a'] },
      ]).length,
    ).toBe(2);
    expect(place([])).toEqual([]);
  });
});

describe('lanes of a timeline', () => {
  it('hold bars that do not overlap, and are as few as can be', () => {
    const bars = [
      { from: 0, to: 10 },
      { from: 5, to: 8 },
      { from: 10, to: 12 },
      { from: 8, to: 9 },
    ];
    const { lane, count } = lanes(bars);
    expect(count).toBe(2);
    bars.forEach((a, i) =>
      bars.forEach((b, j) => {
        if (i < j && lane[i] === lane[j]) expect(a.to <= b.from || b.to <= a.from).toBe(true);
      }),
    );
  });

  it('have round moments on their axis', () => {
    expect(ticks(1_500, 9_900, 5)).toEqual([2_000, 4_000, 6_000, 8_000]);
    for (const span of [1, 1e3, 1e6, 1e9, 1e12]) expect(ticks(0, span, 8).length).toBeLessThanOrEqual(9);
  });
});

describe('rights', () => {
  it('leave a viewer nothing, a user their jobs, an administrator all', () => {
    const job = { user: 'ann' };
    expect([
      maySteer(undefined, job),
      maySteer({ name: 'ann', role: 'viewer' }, job),
      maySteer({ name: 'ben', role: 'user' }, job),
      maySteer({ name: 'ann', role: 'user' }, job),
      maySteer({ name: 'root', role: 'admin' }, job),
    ]).toEqual([false, false, false, true, true]);
    expect([
      mayReadSurely(undefined, job),
      mayReadSurely({ name: 'ann', role: 'viewer' }, job),
      mayReadSurely({ name: 'ben', role: 'user' }, job),
      mayReadSurely({ name: 'root', role: 'admin' }, job),
    ]).toEqual([false, true, false, true]);
    expect([mayRunFarm({ name: 'ann', role: 'user' }), mayRunFarm({ name: 'r', role: 'admin' })]).toEqual([
      false,
      true,
    ]);
  });

  it('offer what a job in its state can take', () => {
    const counts = { total: 1, waiting: 0, ready: 0, running: 0, succeeded: 0, failed: 0, canceled: 0, skipped: 0 };
    expect(actionsOf({ state: 'held', counts })).toContain('release');
    expect(actionsOf({ state: 'running', counts })).not.toContain('retry');
    expect(actionsOf({ state: 'running', counts: { ...counts, failed: 1 } })).toContain('retry');
    expect(actionsOf({ state: 'succeeded', counts })).toEqual([]);
  });
});

describe('colours and letters', () => {
  it('of ten queues all differ, and stay the same', () => {
    const hues = new Hues();
    const names = Array.from({ length: HUES }, (_, i) => `queue ${i}`);
    expect(new Set(names.map((name) => hues.of(name))).size).toBe(HUES);
    expect(names.map((name) => hues.of(name))).toEqual(names.map((name) => hues.of(name)));
  });

  it('of states of tasks all differ', () => {
    expect(new Set(TASK_STATES.map((state) => LETTERS[state])).size).toBe(TASK_STATES.length);
  });
});

describe('the actions of a task', () => {
  it('are to run it again once it has failed, and to cancel it before it ends', () => {
    expect(TASK_STATES.filter((state) => taskActionsOf(state).includes('retry'))).toEqual(['failed', 'canceled']);
    expect(TASK_STATES.filter((state) => taskActionsOf(state).includes('cancel'))).toEqual([
      'waiting',
      'ready',
      'booked',
      'running',
    ]);
  });
});

describe('failures of a job', () => {
  const task = (index: number, more: Partial<Task>): Task =>
    ({
      id: `7.${index}`,
      job: 7,
      index,
      step: 'main',
      state: 'failed',
      attempt: 1,
      worker: `box${index % 2}`,
      ...more,
    }) as Task;

  it('are grouped by cause, the most frequent first, with what the first of them said', () => {
    const exit = (index: number) => task(index, { end: 'exited', exit_code: 4, message: `frame ${index} is missing` });
    const found = groupFailures(7, [task(0, { end: 'oom' }), exit(1), exit(2), exit(3)], 6);
    expect(found.groups.map((group) => [group.summary, group.tasks, group.workers, group.task_examples])).toEqual([
      ['exit code 4', 3, 2, ['7.1', '7.2', '7.3']],
      ['out of memory', 1, 1, ['7.0']],
    ]);
    expect(found.groups[0]!.first.message).toBe('frame 1 is missing');
    expect(found.not_looked_at).toBe(2);
    expect(found.groups.map(whereOf)).toEqual(['first on box1, on 2 workers', 'on box0']);
  });

  it('before a start are told apart by their messages', () => {
    const apart = ['no /a', 'no /b', 'no /a'].map((message, i) => task(i, { end: 'not_started', message }));
    expect(groupFailures(7, apart, 3).groups.map((group) => [group.summary, group.tasks])).toEqual([
      ['not started: no /a', 2],
      ['not started: no /b', 1],
    ]);
  });

  it('of one task are told in the words of the server, where it has some', () => {
    const failed = task(0, { end: 'exited', exit_code: 4, message: 'no film' });
    expect(failureOf(failed)).toEqual({ summary: 'exit code 4', message: 'no film' });
    const failure = { summary: 'out of memory', advice: 'give it more' };
    expect(failureOf({ ...failed, failure } as Task)).toEqual(failure);
  });

  it('end in the last lines that say something, as a terminal shows them', () => {
    expect(lastLines('one\n\u001b[31mred\u001b[0m\n\n10%\r99%\r\n', 2)).toEqual(['red', '99%']);
    expect(lastLines('', 3)).toEqual([]);
  });
});

describe('the expected end of a job', () => {
  const counts = { total: 100, waiting: 0, ready: 70, running: 10, succeeded: 18, failed: 2, canceled: 0, skipped: 0 };
  const eta = (changes: object, now = 20_000) => etaOfJob({ state: 'running', counts, created_ms: 0, ...changes }, now);

  it('goes by the pace of its tasks, and by what the server says where it does', () => {
    expect(eta({})).toBe(80_000);
    expect(eta({ expected_end_ms: 25_000 })).toBe(5_000);
    expect(eta({ expected_end_ms: 5_000 })).toBe(0);
  });

  it('is not told where nothing runs, where little has ended, and after the end', () => {
    expect(eta({ counts: { ...counts, running: 0 } })).toBeNull();
    expect(eta({ counts: { ...counts, succeeded: 2 } })).toBeNull();
    expect(eta({ state: 'failed' })).toBeNull();
  });
});

describe('usage', () => {
  const rows = [
    { day_ms: 0, user: 'ann', queue: 'film', cpu_ms: 3_600_000, tasks: 2, failed: 1 },
    { day_ms: 0, user: 'ben', queue: 'film', cpu_ms: 7_200_000, tasks: 1, failed: 0 },
    { day_ms: 86_400_000, user: 'ann', queue: 'comp', cpu_ms: 1_800_000, tasks: 5, failed: 0 },
  ];

  it('is summed by user, by queue and by day', () => {
    expect(sumUsage(rows, ['user']).map((one) => [one.user, cpuHours(one.cpu_ms), one.tasks, one.failed])).toEqual([
      ['ben', '2', 1, 0],
      ['ann', '1.5', 7, 1],
    ]);
    expect(sumUsage(rows, ['queue']).map((one) => [one.queue, one.user])).toEqual([
      ['film', undefined],
      ['comp', undefined],
    ]);
    expect(sumUsage(rows, ['day']).map((one) => dayOf(one.day_ms!))).toEqual(['1970-01-02', '1970-01-01']);
  });

  it('of queues is known of a series, too; a gap counts as nothing', () => {
    const series = {
      step_ms: 1_800_000,
      queues: [
        { queue: 'film', busy_cpus: [2, null, 4], entitled_cpus: [] },
        { queue: 'idle', busy_cpus: [null, 0], entitled_cpus: [] },
      ],
    };
    expect(usageOfSeries(series).map((one) => [one.queue, cpuHours(one.cpu_ms)])).toEqual([['film', '3']]);
  });

  it('of the costliest attempts is grouped by job, queue and user', () => {
    const one = (job: number, queue: string, ms: number) => ({
      job,
      queue,
      ms,
      cpus: 2,
      task: '',
      step: '',
      worker: '',
    });
    const some = [one(1, 'film', 10), one(2, 'film', 30), one(1, 'film', 15)];
    const by = (what: 'job' | 'queue' | 'user') =>
      groupExpensive(some, what, (job) => (job === 1 ? 'ann' : undefined)).map((group) => [group.key, group.cost]);
    expect(by('job')).toEqual([
      ['2', 60],
      ['1', 50],
    ]);
    expect(by('queue')).toEqual([['film', 110]]);
    expect(by('user')).toEqual([
      ['', 60],
      ['ann', 50],
    ]);
  });
});

describe('why a task was placed where it was', () => {
  const judged = (worker: string, ...rules: [string, number, string][]) => ({
    worker,
    load: 0.5,
    score: rules.reduce((sum, [, points]) => sum + points, 0),
    rules: rules.map(([rule, points, reason]) => ({ rule, points, reason })),
  });
  const box1 = judged('box1', ['Keys', 200, 'no key is missing'], ['Load', -20, 'its load is 0.2']);
  const box2 = judged('box2', ['Keys', 150, '1 key is missing'], ['Load', -10, 'its load is 0.1']);

  it('is told by the rules by which its worker was ahead of the second', () => {
    expect(placedBecause([box1, box2], 'box1')).toBe('no key is missing (+50.0); box2 came second, 40.0 points behind');
  });

  it('needs no rule where there was no choice, or where the workers were equal', () => {
    expect(placedBecause([box1], 'box1')).toBe('no other worker had room for it');
    expect(placedBecause([box1, { ...box1, worker: 'box3' }], 'box1')).toContain('it was as good as box3');
    expect(placedBecause([box1], 'box9')).toBeNull();
  });
});

describe('the users of a queue', () => {
  it('stand by what they run, and one with a weight of their own stands there without jobs', () => {
    const counts = { total: 9, waiting: 0, ready: 4, running: 2, succeeded: 0, failed: 0, canceled: 0, skipped: 0 };
    const job = (user: string, running: number) => ({ user, counts: { ...counts, running } }) as Job;
    const turns = turnsOf({ user_weights: { zoe: 300 } }, [job('ann', 2), job('ben', 5), job('ann', 1)]);
    expect(turns.map((one) => [one.user, one.weight, one.jobs, one.running, one.waiting])).toEqual([
      ['ben', 100, 1, 5, 4],
      ['ann', 100, 2, 3, 8],
      ['zoe', 300, 0, 0, 0],
    ]);
  });
});

describe('what changes of a queue', () => {
  it('is sent alone; an empty quota is none', () => {
    const before = ['3', '100', '64', '', 'users', 'ann, ben'];
    expect(queueChanges(before, before)).toEqual({});
    expect(queueChanges(before, ['3', '300', '', '8', 'jobs', ' ann ,, zoe'])).toEqual({
      weight: 300,
      quota_cpus: null,
      burst_cpus: 8,
      turns: 'jobs',
      users: ['ann', 'zoe'],
    });
  });
});

describe('the jobs of a limit', () => {
  it('are those whose steps name it, those with most running tasks first', () => {
    const job = (id: number, running: number, limits: string[]) =>
      ({ id, counts: { running }, steps: [{ limits }, { limits }] }) as unknown as Job;
    const holders = holdersOf([job(1, 2, ['maya']), job(2, 5, ['maya', 'nuke']), job(3, 1, [])]);
    expect([...holders].map(([limit, jobs]) => [limit, jobs.map((one) => one.id)])).toEqual([
      ['maya', [2, 1]],
      ['nuke', [2]],
    ]);
  });
});
