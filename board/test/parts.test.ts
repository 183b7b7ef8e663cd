import { describe, expect, it } from 'vitest';
import type { FailureGroup, Job } from '../src/api/types';
import { toCsv } from '../src/lib/csv';
import { etaOfJob } from '../src/lib/eta';
import { groupExpensive } from '../src/lib/expensive';
import { place } from '../src/lib/graph';
import { HUES, Hues } from '../src/lib/hues';
import { lanes, ticks } from '../src/lib/lanes';
import { actionsOf, mayReadSurely, mayRunFarm, maySteer, taskActionsOf } from '../src/lib/rights';
import { holdingJobs } from '../src/lib/limits';
import { placedBecause } from '../src/lib/placed';
import { LETTERS, TASK_STATES } from '../src/lib/states';
import { etaOf, processesOf, whereOf, wishOf } from '../src/lib/task';
import { jobserverWord, queueChanges } from '../src/lib/queuechanges';
import { rankOf, shortReason, standingOf } from '../src/lib/trouble';
import { turnsOf } from '../src/lib/turns';
import { cpuHours, dayOf, sumUsage } from '../src/lib/usage';
import { headlineOf, toneOf } from '../src/lib/why';

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
  it('say where they were, the first worker first', () => {
    const group = (worker: string | null, workers: number) =>
      ({ first: { worker }, workers }) as unknown as FailureGroup;
    const groups = [group('box1', 2), group('box0', 1), group(null, 1)];
    expect(groups.map(whereOf)).toEqual(['first on box1, on 2 workers', 'on box0', '']);
  });
});

describe('the expected end of a task', () => {
  it('is told in seconds, late or not, and only while it runs', () => {
    const at = (left: number) => etaOf({ state: 'running', expected_end_ms: 100_000 + left }, 100_000);
    expect([61_000, 849, -849, -12_000].map(at)).toEqual(['1m 1s', 'now', 'now', '12s late']);
    expect(etaOf({ state: 'ready', expected_end_ms: 1 }, 0)).toBe('');
  });
});

describe('the processes of a build', () => {
  it('are told with what holds it back, and only of a task with a jobserver', () => {
    const build = { share: 3, used: 2, wants: true };
    expect(processesOf({ jobserver: build })).toBe('2 of 3');
    expect(wishOf({ jobserver: build })).toBe('wants more');
    expect(wishOf({ jobserver: { ...build, held_back: 'memory' } })).toBe('wants more: memory is short');
    expect(wishOf({ jobserver: { ...build, held_back: 'pressure' } })).toContain('wait for memory');
    expect(wishOf({ jobserver: { ...build, wants: false } })).toBe('');
    expect([processesOf({}), wishOf({ jobserver: null })]).toEqual(['', '']);
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
    expect([0, 9_000, 36_000].map(cpuHours)).toEqual(['0', '<0.01', '0.01']);
    expect(sumUsage(rows, ['queue']).map((one) => [one.queue, one.user])).toEqual([
      ['film', undefined],
      ['comp', undefined],
    ]);
    expect(sumUsage(rows, ['day']).map((one) => dayOf(one.day_ms!))).toEqual(['1970-01-02', '1970-01-01']);
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
    expect(placedBecause([box1, box2], 'box1')).toBe(
      'no key is missing (+50.0 over box2); in all it was 40.0 points ahead of box2',
    );
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
    const before = ['3', '100', '64', '', 'users', 'ann, ben', 'auto'];
    expect(queueChanges(before, before)).toEqual({});
    expect(queueChanges(before, ['3', '300', '', '8', 'jobs', ' ann ,, zoe', 'auto'])).toEqual({
      weight: 300,
      quota_cpus: null,
      burst_cpus: 8,
      turns: 'jobs',
      users: ['ann', 'zoe'],
    });
  });

  it('has jobservers as a word', () => {
    for (const [jobserver, word] of [
      [true, 'on'],
      [false, 'off'],
      [null, 'auto'],
    ] as const) {
      expect(jobserverWord({ jobserver })).toBe(word);
      const before = ['3', '100', '', '', 'users', '', word === 'auto' ? 'on' : 'auto'];
      expect(queueChanges(before, [...before.slice(0, 6), word])).toEqual({ jobserver });
    }
  });
});

describe('the holders of a limit', () => {
  it('stand by job, the job with most of them first', () => {
    const holder = (task: string, user: string) => ({ task, user, worker: 'box1' });
    const jobs = holdingJobs([holder('2.0', 'ben'), holder('7.4', 'ann'), holder('7.5', 'ann'), holder('3.1', 'cleo')]);
    expect(jobs.map((one) => [one.job, one.user, one.tasks.map(({ task }) => task)])).toEqual([
      [7, 'ann', ['7.4', '7.5']],
      [2, 'ben', ['2.0']],
      [3, 'cleo', ['3.1']],
    ]);
  });
});

describe('the answer to why', () => {
  const why = { state: 'ready', reason: 'full', message: 'every worker is busy' } as const;
  it('is one line that says how it failed', () => {
    const failure = { summary: 'exit code 4', message: 'texture wall.exr is missing' };
    const failed = { state: 'failed', reason: 'ended', message: 'it has ended', failure } as const;
    expect(headlineOf(failed)).toBe('Failed: exit code 4, texture wall.exr is missing');
    expect(headlineOf({ ...failed, failure: { ...failure, summary: `not started: ${failure.message}` } })).toBe(
      'Failed: not started: texture wall.exr is missing',
    );
    expect(headlineOf({ ...failed, failure: null })).toBe('Failed');
    expect(toneOf(failed)).toBe('bad');
  });

  it('warns where no worker could ever run it, and has no words for programs', () => {
    expect(headlineOf(why)).toBe('Every worker is busy');
    expect(toneOf(why)).toBeUndefined();
    const never = { ...why, reason: 'fits_nowhere', message: 'no worker of the farm could run it' } as const;
    expect(headlineOf(never)).toBe('Can never run: no worker of the farm could run it');
    expect(toneOf(never)).toBe('warn');
    const canceled = { state: 'canceled', reason: 'stopped', message: 'a person cancelled its job' } as const;
    expect(headlineOf(canceled)).toBe('Cancelled: a person cancelled its job');
    expect(headlineOf({ ...canceled, reason: 'ended' })).toBe('Cancelled');
  });
});

describe('what ails a worker', () => {
  const up = { state: 'up', draining: false, load: { accepting_jobs: true } } as const;
  const refusing = (reason: string) => ({ ...up, load: { accepting_jobs: false, reason } });

  it('is told apart from a full one and from one that an administrator drains', () => {
    expect(standingOf(up)).toBe('open');
    expect(standingOf(refusing('its cpus are all booked'))).toBe('full');
    expect(standingOf({ ...refusing('draining: new memory'), state: 'draining', draining: true })).toBe('drained');
    expect(standingOf({ ...refusing('not heard from'), state: 'suspect' })).toBe('troubled');
    expect(standingOf(refusing('under io pressure'))).toBe('troubled');
    // Full and open ones change places all the time, and have one rank.
    expect(rankOf(refusing('its cpus are all booked'))).toBe(rankOf(up));
  });

  it('has a word for a narrow screen', () => {
    const words = ['under cpu pressure', 'in quarantine: 3 failed', 'its state directory has 1 MiB free', 'else'];
    expect(words.map((reason) => shortReason(refusing(reason)))).toEqual([
      'pressure',
      'quarantine',
      'low space',
      'no work',
    ]);
    expect(shortReason({ ...refusing('not heard from'), state: 'suspect' })).toBe('suspect');
    expect(shortReason(up)).toBe('');
  });
});
