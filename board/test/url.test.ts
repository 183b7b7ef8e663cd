import { describe, expect, it } from 'vitest';
import {
  compare,
  filterOf,
  filterParams,
  formatFilter,
  formatSort,
  parseFilter,
  parseSort,
  parseWords,
  sortKeys,
  sortList,
  withQuery,
} from '../src/lib/query';
import {
  parseRoute,
  queuePath,
  splitTask,
  taskLogPath,
  taskPath,
  whyPath,
  wholeNumber,
  workerPath,
} from '../src/lib/route';

describe('addresses', () => {
  it('lead to the views', () => {
    const views: [string, object][] = [
      ['/', { view: 'overview' }],
      ['/jobs', { view: 'jobs' }],
      ['/jobs/', { view: 'jobs' }],
      ['/jobs/12', { view: 'job', job: 12 }],
      ['/jobs/12/why', { view: 'why', job: 12 }],
      ['/workers', { view: 'workers' }],
      ['/workers/a%2Fb', { view: 'worker', worker: 'a/b' }],
      ['/queues', { view: 'queues' }],
      ['/queues/film', { view: 'queue', queue: 'film' }],
      ['/queues/film/x', { view: 'unknown' }],
      ['/limits', { view: 'limits' }],
      ['/tokens', { view: 'tokens' }],
      ['/scheduler', { view: 'scheduler' }],
      ['/history', { view: 'history' }],
      ['/jobs/x', { view: 'unknown' }],
      ['/jobs/1/2/3', { view: 'unknown' }],
      ['/workers/%ff', { view: 'worker', worker: '%ff' }],
      ['/nothing', { view: 'unknown' }],
    ];
    for (const [path, route] of views) expect(parseRoute(path)).toEqual(route);
  });

  it('of workers and queues with any name are found again', () => {
    for (const name of ['box1', 'a b', 'ä/ö?#%', '..', 'x\'y"z']) {
      expect(parseRoute(workerPath(name))).toEqual({ view: 'worker', worker: name });
      expect(parseRoute(queuePath(name))).toEqual({ view: 'queue', queue: name });
    }
  });

  it('of tasks have the job and the index', () => {
    expect([taskPath('12.3'), whyPath('12.3'), taskLogPath('12.3')]).toEqual([
      '/jobs/12?task=3',
      '/jobs/12/why?task=3',
      '/jobs/12?tab=log&task=3',
    ]);
    expect(splitTask('12')).toEqual({ job: '12', index: '0' });
    expect([wholeNumber('7'), wholeNumber('-1'), wholeNumber('1e3'), wholeNumber(null)]).toEqual([7, null, null, null]);
  });
});

describe('the query string', () => {
  it('keeps what is not changed, and leaves empty values out', () => {
    expect(withQuery('?state=running&name=a+b', { name: null, sort: '-age' })).toBe('?state=running&sort=-age');
    expect(withQuery('?a=1', { a: '' })).toBe('');
    expect(withQuery('', { state: 'running,failed' })).toBe('?state=running,failed');
    expect(new URLSearchParams(withQuery('', { name: 'x&y=z #%' })).get('name')).toBe('x&y=z #%');
  });

  it('has a filter that reads back as it was typed', () => {
    const filter = parseFilter('  user=ann film  harbour=x queue= ', ['user', 'queue']);
    expect(filter).toEqual({ text: 'film harbour=x queue=', fields: { user: 'ann' } });
    expect(formatFilter(filter)).toBe('user=ann film harbour=x queue=');
    expect(parseFilter(formatFilter(filter), ['user', 'queue'])).toEqual(filter);
  });

  it('gives back the filter that was put into it, and loses a field that the next filter leaves out', () => {
    const fields = ['show', 'user'];
    const typed = parseFilter('user=ann film', fields);
    expect(filterParams(typed, fields)).toEqual({ name: 'film', show: '', user: 'ann' });
    const search = withQuery('?show=old&cursor=7', filterParams(typed, fields));
    expect(formatFilter(filterOf(new URLSearchParams(search), fields))).toBe('user=ann film');
    expect(search).not.toContain('old');
    expect(search).toContain('cursor=7');
    expect(filterOf(new URLSearchParams(''), fields)).toEqual({ text: '', fields: { show: '', user: '' } });
  });

  it('takes only words and columns that are there', () => {
    expect(parseWords('failed,nonsense,running', ['running', 'failed'])).toEqual(['running', 'failed']);
    expect(parseWords(null, ['running'])).toEqual([]);
    const by = { key: 'id', down: true };
    expect([parseSort('-age', ['age'], by), parseSort('drop', ['age'], by), parseSort(null, ['age'], by)]).toEqual([
      { key: 'age', down: true },
      by,
      by,
    ]);
    expect(formatSort({ key: 'age', down: true })).toBe('-age');
  });
});

describe('sorting', () => {
  it('puts unknown last both ways, and numbers in names in order', () => {
    const values = [3, null, 1, undefined, 2];
    expect(values.toSorted((a, b) => compare(a, b, false)).slice(0, 3)).toEqual([1, 2, 3]);
    expect(values.toSorted((a, b) => compare(a, b, true)).slice(0, 3)).toEqual([3, 2, 1]);
    expect(['box10', 'box9', 'box1'].toSorted((a, b) => compare(a, b, false))).toEqual(['box1', 'box9', 'box10']);
  });

  it('of a list goes by the value of a column, then by the tie, and without one keeps the order', () => {
    interface Host {
      name: string;
      free: number | null;
    }
    const columns = [
      { key: 'name', value: (host: Host) => host.name },
      { key: 'bar' },
      { key: 'free', value: (host: Host) => host.free },
    ];
    const list: Host[] = [
      { name: 'box10', free: 4 },
      { name: 'box2', free: 4 },
      { name: 'box3', free: null },
      { name: 'box1', free: 8 },
    ];
    const names = (key: string, down: boolean, tie?: (host: Host) => unknown) =>
      sortList(list, columns, { key, down }, tie).map((host) => host.name);
    expect(sortKeys(columns)).toEqual(['name', 'free']);
    expect(names('name', false)).toEqual(['box1', 'box2', 'box3', 'box10']);
    expect(names('free', true)).toEqual(['box1', 'box10', 'box2', 'box3']);
    expect(names('free', true, (host) => host.name)).toEqual(['box1', 'box2', 'box10', 'box3']);
    expect(names('bar', true)).toEqual(['box10', 'box2', 'box3', 'box1']);
  });
});
