// What the views of an OpenCue farm share: their addresses, and the words, letters and colours of states.

import type { CueCounts } from '../api/opencue';
import { count } from './format';
import { splitPath } from './route';

/** The gateway has no stream of events, so views read again after this time. */
export const POLL = { every_ms: 2_000 };
/** Where the gateway answers. */
export const CUE_API = '/api/v1/opencue';

export type CueRoute =
  | { view: 'overview' }
  | { view: 'jobs' }
  | { view: 'job'; job: string }
  | { view: 'why'; job: string }
  | { view: 'shows' }
  | { view: 'hosts' }
  | { view: 'host'; host: string }
  | { view: 'unknown' };

// Shows stand where a server has queues, and hosts where it has workers: both serve the same paths.
export const CUE_NAV = [
  { path: '/', name: 'Overview', views: ['overview'] },
  { path: '/jobs', name: 'Jobs', views: ['jobs', 'job', 'why'] },
  { path: '/queues', name: 'Shows', views: ['shows'] },
  { path: '/workers', name: 'Hosts', views: ['hosts', 'host'] },
];

/** Where g and a letter lead. */
export const CUE_PLACES: Record<string, { path: string; name: string }> = {
  o: { path: '/', name: 'Overview' },
  j: { path: '/jobs', name: 'Jobs' },
  s: { path: '/queues', name: 'Shows' },
  h: { path: '/workers', name: 'Hosts' },
};

/** Finds the view of a path. */
export function parseCueRoute(path: string): CueRoute {
  const parts = splitPath(path);
  const [first, second, third] = parts;
  if (first === undefined) return { view: 'overview' };
  if (first === 'jobs') {
    if (second === undefined) return { view: 'jobs' };
    if (parts.length === 2) return { view: 'job', job: second };
    if (parts.length === 3 && third === 'why') return { view: 'why', job: second };
  }
  if (first === 'queues' && parts.length === 1) return { view: 'shows' };
  if (first === 'workers' && second === undefined) return { view: 'hosts' };
  if (first === 'workers' && second !== undefined && parts.length === 2) return { view: 'host', host: second };
  return { view: 'unknown' };
}

/** What stands in the title of the page. */
export function cueTitle(route: CueRoute): string {
  switch (route.view) {
    case 'job':
      return 'Job';
    case 'why':
      return 'Why';
    case 'host':
      return route.host;
    case 'unknown':
      return 'Not found';
    default:
      return CUE_NAV.find((entry) => entry.views.includes(route.view))?.name ?? '';
  }
}

export const cueJobPath = (job: string) => `/jobs/${encodeURIComponent(job)}`;
export const cueHostPath = (host: string) => `/workers/${encodeURIComponent(host)}`;

/** The page that says why a job, or a layer or frame of it, waits. */
export function cueWhyPath(job: string, part: string | null = null): string {
  return `${cueJobPath(job)}/why${part === null ? '' : `?part=${encodeURIComponent(part)}`}`;
}

export const FRAME_STATES = [
  'waiting',
  'running',
  'depend',
  'dead',
  'succeeded',
  'eaten',
  'checkpoint',
] as const satisfies readonly (keyof CueCounts)[];

/** What a state means, in a sentence. */
export const FRAME_MEANING: Record<keyof CueCounts, string> = {
  waiting: 'could start when a host has room',
  running: 'runs on a host',
  depend: 'waits for frames that it depends on',
  dead: 'failed, and its retries are spent',
  succeeded: 'succeeded',
  eaten: 'was eaten: nobody wants it any more',
  checkpoint: 'wrote a checkpoint, and waits to go on',
};

/** The colours of the stylesheet, by the states of tasks for which they were made. */
type Tone = 'waiting' | 'ready' | 'booked' | 'running' | 'succeeded' | 'failed' | 'canceled' | 'skipped';

/** The letter and the colour of a word. */
export interface StateMark {
  letter: string;
  tone: Tone;
}

const MARKS: Record<string, StateMark> = {
  // Frames.
  waiting: { letter: 'W', tone: 'ready' },
  running: { letter: 'R', tone: 'running' },
  depend: { letter: 'D', tone: 'waiting' },
  dead: { letter: 'X', tone: 'failed' },
  succeeded: { letter: 'S', tone: 'succeeded' },
  eaten: { letter: 'E', tone: 'canceled' },
  checkpoint: { letter: 'C', tone: 'booked' },
  // Jobs.
  pending: { letter: 'P', tone: 'ready' },
  paused: { letter: 'H', tone: 'skipped' },
  finished: { letter: 'F', tone: 'succeeded' },
  // Hosts.
  open: { letter: 'O', tone: 'succeeded' },
  locked: { letter: 'L', tone: 'skipped' },
  away: { letter: 'A', tone: 'failed' },
};

/** The letter and the colour of a state; OpenCue has more states than have a colour here. */
export function markOf(word: string): StateMark {
  const mark = Object.hasOwn(MARKS, word) ? MARKS[word] : undefined;
  return mark ?? { letter: '?', tone: 'waiting' };
}

/** The order of the parts of a bar: what is done, what runs, what waits. */
const BAR = ['succeeded', 'eaten', 'dead', 'running', 'checkpoint', 'waiting', 'depend'] as const;

/** Parts of a bar of frames, without the empty ones. */
export function segmentsOf(counts: CueCounts): { value: number; colour: string; label: string }[] {
  return BAR.filter((state) => counts[state] > 0).map((state) => ({
    value: counts[state],
    colour: `--s-${markOf(state).tone}`,
    label: state,
  }));
}

/** Counts as a person says them: `245 waiting, 2 running`. */
export function countsText(counts: CueCounts): string {
  const some = FRAME_STATES.filter((state) => counts[state] > 0);
  return some.map((state) => `${count(counts[state])} ${state}`).join(', ') || 'no frames';
}

/** Frames of all states. */
export function framesOf(counts: CueCounts): number {
  return FRAME_STATES.reduce((sum, state) => sum + counts[state], 0);
}
