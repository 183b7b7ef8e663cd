import { describe, expect, it } from 'vitest';
import {
  CUE_NAV,
  FRAME_STATES,
  countsText,
  cueHostPath,
  cueJobPath,
  cueTitle,
  cueWhyPath,
  framesOf,
  markOf,
  parseCueRoute,
  segmentsOf,
} from '../src/lib/cue';

const NONE = { waiting: 0, running: 0, depend: 0, dead: 0, succeeded: 0, eaten: 0, checkpoint: 0 };

describe('addresses of an OpenCue farm', () => {
  it('names each view by a path that the server serves', () => {
    for (const entry of CUE_NAV) expect(entry.views).toContain(parseCueRoute(entry.path).view);
    expect(parseCueRoute('/jobs/a1-b2')).toEqual({ view: 'job', job: 'a1-b2' });
    expect(parseCueRoute('/jobs/a1/why')).toEqual({ view: 'why', job: 'a1' });
    for (const path of ['/jobs/a1/log', '/jobs/a1/why/more', '/queues/x', '/workers/a/b', '/history', '/x']) {
      expect(parseCueRoute(path)).toEqual({ view: 'unknown' });
    }
  });

  it('finds what it wrote, whatever the names are', () => {
    for (const name of ['render 01', 'a/b', '100%', 'é?#']) {
      expect(parseCueRoute(cueHostPath(name))).toEqual({ view: 'host', host: name });
      expect(parseCueRoute(cueJobPath(name))).toEqual({ view: 'job', job: name });
    }
    const [path, query] = cueWhyPath('j', '0001-a&b').split('?');
    expect(parseCueRoute(path!)).toEqual({ view: 'why', job: 'j' });
    expect(new URLSearchParams(query).get('part')).toBe('0001-a&b');
    expect(cueWhyPath('j')).toBe('/jobs/j/why');
  });

  it('has a title for each view', () => {
    expect(cueTitle(parseCueRoute('/queues'))).toBe('Shows');
    expect(cueTitle(parseCueRoute('/workers/render01'))).toBe('render01');
    expect(cueTitle(parseCueRoute('/nothing'))).toBe('Not found');
  });
});

describe('counts of frames', () => {
  it('are told without the empty ones', () => {
    expect(countsText({ ...NONE, waiting: 1200, dead: 1 })).toBe('1,200 waiting, 1 dead');
    expect(countsText(NONE)).toBe('no frames');
  });

  it('are drawn as parts that make up the whole', () => {
    const counts = { waiting: 3, running: 2, depend: 1, dead: 4, succeeded: 5, eaten: 6, checkpoint: 7 };
    const segments = segmentsOf(counts);
    expect(segments.map((segment) => segment.label).toSorted()).toEqual([...FRAME_STATES].toSorted());
    expect(segments.reduce((sum, segment) => sum + segment.value, 0)).toBe(framesOf(counts));
    expect(segmentsOf(NONE)).toEqual([]);
  });
});

describe('states', () => {
  it('have a letter and a colour each, also those that are not known', () => {
    const letters = FRAME_STATES.map((state) => markOf(state).letter);
    expect(new Set(letters).size).toBe(letters.length);
    expect(markOf('setup')).toEqual({ letter: '?', tone: 'waiting' });
    expect(markOf('constructor').letter).toBe('?');
  });
});
