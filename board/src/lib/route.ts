// Addresses of the views.

export type Route =
  | { view: 'overview' }
  | { view: 'jobs' }
  | { view: 'job'; job: number }
  | { view: 'why'; job: number }
  | { view: 'workers' }
  | { view: 'worker'; worker: string }
  | { view: 'queues' }
  | { view: 'queue'; queue: string }
  | { view: 'limits' }
  | { view: 'tokens' }
  | { view: 'scheduler' }
  | { view: 'history' }
  | { view: 'unknown' };

/** Finds the view of a path. */
export function parseRoute(path: string): Route {
  const parts = splitPath(path);
  const [first, second, third] = parts;
  if (first === undefined) return { view: 'overview' };
  if (parts.length === 1) {
    switch (first) {
      case 'jobs':
      case 'workers':
      case 'queues':
      case 'limits':
      case 'tokens':
      case 'scheduler':
      case 'history':
        return { view: first };
    }
  }
  if (first === 'jobs' && second !== undefined && /^\d{1,15}$/.test(second)) {
    if (parts.length === 2) return { view: 'job', job: Number(second) };
    if (parts.length === 3 && third === 'why') return { view: 'why', job: Number(second) };
  }
  if (first === 'workers' && second !== undefined && parts.length === 2) return { view: 'worker', worker: second };
  if (first === 'queues' && second !== undefined && parts.length === 2) return { view: 'queue', queue: second };
  return { view: 'unknown' };
}

/** The parts of a path, decoded. */
export function splitPath(path: string): string[] {
  return path
    .split('/')
    .filter((part) => part !== '')
    .map(decode);
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const jobPath = (job: number | string) => `/jobs/${job}`;
export const workerPath = (worker: string) => `/workers/${encodeURIComponent(worker)}`;

export const queuePath = (queue: string) => `/queues/${encodeURIComponent(queue)}`;

/** The page of a task, given its id `JOB.INDEX`. */
export function taskPath(id: string): string {
  const { job, index } = splitTask(id);
  return `/jobs/${job}?task=${index}`;
}

/** The page that says why a task waits. */
export function whyPath(id: string): string {
  const { job, index } = splitTask(id);
  return `/jobs/${job}/why?task=${index}`;
}

export function splitTask(id: string): { job: string; index: string } {
  const at = id.indexOf('.');
  return at < 0 ? { job: id, index: '0' } : { job: id.slice(0, at), index: id.slice(at + 1) };
}

/** The page of a task's output. */
export function taskLogPath(id: string): string {
  const { job, index } = splitTask(id);
  return `/jobs/${job}?tab=log&task=${index}`;
}

/** A whole number of the query string; null if there is none. */
export function wholeNumber(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}
