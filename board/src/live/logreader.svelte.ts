// Reads the output of an attempt as it is written.

import { ApiFailure, send, withParams } from '../api/client';
import { LogLines } from '../lib/log';

/** Bytes from the end with which a log begins to be shown; the whole is a link. */
export const TAIL_BYTES = 4 << 20;
/** Wait before a log that was cut is asked for again. */
const RETRY_MS = 2_000;

export type LogStream = 'stdout' | 'stderr';

/** Where the output of an attempt is. */
export function logPath(task: string, stream: LogStream, attempt: number | null): string {
  return withParams(`/api/v1/tasks/${task}/log`, { stream: stream === 'stdout' ? null : stream, attempt });
}

export class LogReader {
  /** The lines are changed in place; `version` grows when they were. */
  log = new LogLines();
  version = $state(0);
  failure = $state.raw<ApiFailure | undefined>(undefined);
  /** True once all was read and no more will come. */
  complete = $state(false);
  /** True if only the last bytes were asked for. */
  bytes = $state(0);
  private frame = 0;

  /** Reads until it ends, or until the returned function is called. */
  start(path: string): () => void {
    const abort = new AbortController();
    void this.read(path, abort.signal);
    return () => {
      abort.abort();
      cancelAnimationFrame(this.frame);
      this.frame = 0;
    };
  }

  private async read(path: string, signal: AbortSignal): Promise<void> {
    this.log = new LogLines();
    this.complete = false;
    this.bytes = 0;
    const decoder = new TextDecoder();
    let offset = -TAIL_BYTES;
    while (!signal.aborted) {
      try {
        const join = path.includes('?') ? '&' : '?';
        const answer = await send(`${path}${join}follow=true&offset=${offset}`, { signal });
        this.failure = undefined;
        const reader = answer.body!.getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          this.bytes += value.length;
          this.log.push(decoder.decode(value, { stream: true }));
          this.changed();
        }
        this.complete = true;
        this.changed();
        return;
      } catch (e) {
        if (signal.aborted) return;
        this.failure = e instanceof ApiFailure ? e : new ApiFailure(0, 'the log was cut off; it is asked for again');
        this.changed();
        if (this.failure.status >= 400 && this.failure.status < 500) return;
        await new Promise((resolve) => {
          setTimeout(resolve, RETRY_MS);
        });
        // From the beginning of what is shown: the place in the file is not known after a tail.
        this.log = new LogLines();
        this.bytes = 0;
        offset = -TAIL_BYTES;
      }
    }
  }

  // Pieces come faster than pictures: one change a frame.
  private changed(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.version += 1;
    });
  }
}
