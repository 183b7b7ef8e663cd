// A reading: data of the server that a view shows, read again when something happened and now and then.

import { untrack } from 'svelte';
import { ApiFailure, get } from '../api/client';
import { session } from './session.svelte';
import type { Batch } from './batch';
import { live } from './live.svelte';
import { Pacer } from './pacer';

/** The least time between two readings of the same data. */
const GAP_MS = 1_000;
/** A reading that took long is repeated after this many times its length at the earliest. */
const REST = 20;

export interface ReadOptions {
  /** Milliseconds after which it is read again though nothing happened. */
  every_ms?: number;
  /** Whether what happened concerns this data; by default nothing does. */
  wants?: (batch: Batch) => boolean;
  /** The least time between two readings. */
  gap_ms?: number;
  /** True if a refusal is no fault of the view, such as an answer that only administrators get. */
  optional?: boolean;
  /** True if its age counts for the mark in the header; by default it does. */
  counts?: boolean;
}

export class Reading<T> {
  data = $state.raw<T | undefined>(undefined);
  failure = $state.raw<ApiFailure | undefined>(undefined);
  /** When it was last read, by `performance.now()`; 0 is never. */
  read_at = $state(0);
  private pacer: Pacer | undefined;

  /** Reads again as soon as it may. */
  refresh = () => this.pacer?.want();

  /** Puts in a newer value, such as the answer to an action. */
  put(data: T): void {
    this.data = data;
  }

  /** Reads until the returned function is called. */
  start(load: (signal: AbortSignal) => Promise<T>, options: ReadOptions): () => void {
    const abort = new AbortController();
    const gap = options.gap_ms ?? GAP_MS;
    const pacer: Pacer = new Pacer(async () => {
      const began = performance.now();
      await this.once(load, abort.signal, options);
      pacer.gap_ms = Math.max(gap, (performance.now() - began) * REST);
    }, gap);
    this.pacer = pacer;
    pacer.want();
    const timer = setInterval(() => {
      if (!document.hidden) pacer.want();
    }, options.every_ms ?? 10_000);
    const shown = () => {
      if (!document.hidden) pacer.want();
    };
    document.addEventListener('visibilitychange', shown);
    const deaf = live.listen((batch) => {
      if (batch.lagged || options.wants?.(batch)) pacer.want();
    });
    return () => {
      abort.abort();
      pacer.stop();
      clearInterval(timer);
      document.removeEventListener('visibilitychange', shown);
      deaf();
    };
  }

  private async once(load: (signal: AbortSignal) => Promise<T>, signal: AbortSignal, options: ReadOptions) {
    try {
      const data = await load(signal);
      if (signal.aborted) return;
      this.data = data;
      this.failure = undefined;
      this.read_at = performance.now();
    } catch (e) {
      if (signal.aborted) return;
      const failure = e instanceof ApiFailure ? e : new ApiFailure(0, String(e));
      if (failure.status === 401) session.lost();
      this.failure = failure;
      if (options.optional) this.read_at = performance.now();
    }
  }
}

/**
 * Keeps a reading as long as the component is shown. `path` may use reactive values: when it changes, the data of
 * the path before is dropped. A path of null reads nothing.
 */
export function useRead<T>(path: () => string | null, options: ReadOptions = {}): Reading<T> {
  return useLoad<T>(path, (at, signal) => get<T>(at, signal), options);
}

/** The same, for data that takes more than one request; `key` says what it depends on. */
export function useLoad<T>(
  key: () => string | null,
  load: (key: string, signal: AbortSignal) => Promise<T>,
  options: ReadOptions = {},
): Reading<T> {
  const reading = new Reading<T>();
  let before: string | undefined;
  $effect(() => {
    const at = key();
    return untrack(() => {
      if (before !== undefined && before !== at) {
        reading.data = undefined;
        reading.failure = undefined;
        reading.read_at = 0;
      }
      before = at ?? '';
      if (at === null) return undefined;
      const stop = reading.start((signal) => load(at, signal), options);
      if (options.counts === false) return stop;
      live.readings.all = [...live.readings.all, reading];
      return () => {
        stop();
        live.readings.all = live.readings.all.filter((other) => other !== reading);
      };
    });
  });
  return reading;
}
