// The event stream, and what the mark in the header says of it.

import { Batch, parseEvent } from './batch';

export type Freshness = 'live' | 'stale' | 'connecting';

type Listener = (batch: Batch) => void;
type Reading = { read_at: number };

/** Data older than this is called stale. Views read again at least every ten seconds. */
export const STALE_MS = 20_000;
/** Waits between attempts to open the stream again; the last one repeats. */
const RETRY_MS = [1_000, 2_000, 5_000, 10_000];

class Live {
  /** True while the stream is open. */
  open = $state(false);
  /** True once the stream was open. */
  opened = $state(false);
  /** True where there is no stream: views read again by themselves. */
  polls = $state(false);
  /** The job whose changes are wanted task by task; null asks for all jobs, without tasks. */
  private job: number | null = null;
  private source: EventSource | undefined;
  private brief = true;
  private attempts = 0;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private batch = new Batch();
  private frame = 0;
  private readonly listeners = new Set<Listener>();
  /** The readings that the shown view is made of. */
  readonly readings = $state<{ all: Reading[] }>({ all: [] });
  private running = false;

  start(): void {
    this.running = true;
    this.connect();
    document.addEventListener('visibilitychange', this.visibility);
  }

  stop(): void {
    this.running = false;
    document.removeEventListener('visibilitychange', this.visibility);
    this.disconnect();
  }

  /** Goes on without a stream, until the returned function is called. */
  poll(): () => void {
    this.open = this.opened = this.polls = true;
    return () => {
      this.open = this.polls = false;
    };
  }

  /** Asks for the changes of one job, or of all. */
  follow(job: number | null): void {
    if (this.job === job) return;
    this.job = job;
    if (this.running) this.connect();
  }

  /** Calls back once a frame with what happened; returns what ends that. */
  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  // Nobody looks at a page in the background: it holds no stream, and reads everything again when it is shown.
  private readonly visibility = () => {
    if (document.hidden) this.disconnect();
    else this.connect();
  };

  private connect(): void {
    this.disconnect();
    if (document.hidden) return;
    const query = this.job !== null ? `?job=${this.job}` : this.brief ? '?brief=true' : '';
    const source = new EventSource(`/api/v1/events${query}`);
    this.source = source;
    source.onopen = () => {
      this.attempts = 0;
      this.open = true;
      // What happened before the stream was open is missing.
      if (this.opened) this.take('"lagged"');
      this.opened = true;
    };
    for (const name of ['job', 'tasks', 'worker', 'lagged']) {
      source.addEventListener(name, (event) => this.take((event as MessageEvent<string>).data));
    }
    source.onerror = () => this.failed(source);
  }

  private failed(source: EventSource): void {
    if (source !== this.source) return;
    const refused = source.readyState === EventSource.CLOSED;
    if (refused && !this.opened && this.brief && this.job === null) {
      // A server of an earlier release does not know `brief`.
      this.brief = false;
      this.connect();
      return;
    }
    this.open = false;
    source.close();
    const wait = RETRY_MS[Math.min(this.attempts, RETRY_MS.length - 1)];
    this.attempts += 1;
    this.retry = setTimeout(() => this.connect(), wait);
  }

  private disconnect(): void {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = undefined;
    this.open = false;
  }

  private take(data: string): void {
    const event = parseEvent(data);
    if (event === null) return;
    this.batch.add(event);
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.flush());
  }

  private flush(): void {
    this.frame = 0;
    const batch = this.batch;
    this.batch = new Batch();
    for (const listener of [...this.listeners]) listener(batch);
  }
}

export const live = new Live();
