// Reads the output of an attempt as it is written: one of its two streams, or both.
//
// Of an attempt that has ended, the server gives the lines of both in the order in which they were written, with their
// times. A server of an earlier release does not, and then standard error follows standard output. Of an attempt that runs,
// both are read at once, and their lines stand in the order in which they arrive.
//
// A browser keeps six connections to a server, over all pages that show it. So of two streams only standard output keeps
// one open; standard error is asked for again and again.

import { ApiFailure, get, send, withParams } from '../api/client';
import type { LogPage } from '../api/types';
import { LogLines, type LogStream } from '../lib/log';

/** Bytes from the end of a stream with which it begins to be shown; the whole is a link. */
export const TAIL_BYTES = 4 << 20;
/** Wait before a log that was cut is asked for again. */
const RETRY_MS = 2_000;
/** Between two requests for standard error. */
const POLL_MS = 1_000;
/** The place of the first byte of an answer that begins before the end. */
const OFFSET_HEADER = 'windlass-log-offset';

/** Where the output of an attempt is. */
export function logPath(task: string, stream: LogStream, attempt: number | null): string {
  return withParams(`/api/v1/tasks/${task}/log`, { stream: stream === 'stdout' ? null : stream, attempt });
}

/** What is read: streams of an attempt. */
export interface LogSource {
  task: string;
  attempt: number | null;
  streams: readonly LogStream[];
  /** True if nothing more will be written, so that the streams can be read one after the other. */
  ended: boolean;
}

export class LogReader {
  /** The lines are changed in place; `version` grows when they were. */
  log = new LogLines();
  version = $state(0);
  failure = $state.raw<ApiFailure | undefined>(undefined);
  /** True once all was read and no more will come. */
  complete = $state(false);
  /** Bytes that were read of the streams. */
  bytes = $state(0);
  /** True if a stream is shown from somewhere after its beginning, so that lines cannot be numbered from there. */
  cut = $state(false);
  /** True if the lines of both streams stand in the order in which they were written. */
  ordered = $state(false);
  /** True if the times of lines are known. */
  timed = $state(false);
  private frame = 0;
  /** All was read; `complete` follows with the last lines. */
  private done = false;

  /** Reads until it ends, or until the returned function is called. */
  start(source: LogSource): () => void {
    const abort = new AbortController();
    void this.read(source, abort.signal);
    return () => {
      abort.abort();
      cancelAnimationFrame(this.frame);
      this.frame = 0;
    };
  }

  private async read(source: LogSource, signal: AbortSignal): Promise<void> {
    this.done = false;
    this.complete = false;
    while (!signal.aborted) {
      this.log = new LogLines();
      this.bytes = 0;
      this.cut = false;
      this.ordered = false;
      this.timed = false;
      // A stream that breaks ends the other: both are read again from what is shown of them.
      const attempt = new AbortController();
      const both = AbortSignal.any([signal, attempt.signal]);
      try {
        if (source.ended) await this.readEnded(source, both);
        else if (source.streams.length === 1) await this.readStream(source, source.streams[0]!, both);
        else await this.readBoth(source, both);
        this.failure = undefined;
        this.done = true;
        this.changed();
        return;
      } catch (e) {
        attempt.abort();
        if (signal.aborted) return;
        this.failure = e instanceof ApiFailure ? e : new ApiFailure(0, 'the log was cut off; it is asked for again');
        this.changed();
        if (this.failure.status >= 400 && this.failure.status < 500) return;
        await pause(RETRY_MS);
      }
    }
  }

  private async readEnded(source: LogSource, signal: AbortSignal): Promise<void> {
    if (source.streams.length === 2 && (await this.readLines(source, signal))) return;
    for (const stream of source.streams) await this.readStream(source, stream, signal);
  }

  /** Reads the lines of both streams in their order. False if the server is of an earlier release. */
  private async readLines(source: LogSource, signal: AbortSignal): Promise<boolean> {
    const begun = new Set<LogStream>();
    let at = { stdout_offset: -TAIL_BYTES, stderr_offset: -TAIL_BYTES };
    for (;;) {
      const path = withParams(`/api/v1/tasks/${source.task}/log/lines`, { attempt: source.attempt, ...at });
      let page: LogPage;
      try {
        page = await get<LogPage>(path, signal);
      } catch (e) {
        if (e instanceof ApiFailure && e.status === 404 && !this.ordered) return false;
        throw e;
      }
      this.failure = undefined;
      this.ordered = true;
      let text = '';
      page.lines.forEach((line, i) => {
        if (line.offset > 0 && !begun.has(line.stream)) this.cut = true;
        begun.add(line.stream);
        if (line.at_ms != null) this.timed = true;
        this.bytes += line.bytes;
        text += `${line.text}\n`;
        // Lines of one stream and time are added together.
        const next = page.lines[i + 1];
        if (next && next.stream === line.stream && next.at_ms === line.at_ms) return;
        this.log.push(text, line.stream, line.at_ms ?? null);
        text = '';
      });
      this.changed();
      if (!page.more) return true;
      at = { stdout_offset: page.next_stdout, stderr_offset: page.next_stderr };
    }
  }

  private async readBoth(source: LogSource, signal: AbortSignal): Promise<void> {
    let isOver = false;
    const output = this.readStream(source, 'stdout', signal).then(() => {
      isOver = true;
    });
    await Promise.all([output, this.poll(source, 'stderr', () => isOver, signal)]);
  }

  /** Asks for what was written since, until the attempt is over. */
  private async poll(source: LogSource, stream: LogStream, isOver: () => boolean, signal: AbortSignal): Promise<void> {
    const decoder = new TextDecoder();
    let at = -TAIL_BYTES;
    for (;;) {
      const isLast = isOver();
      try {
        const path = withParams(logPath(source.task, stream, source.attempt), { offset: at });
        const answer = await send(path, { signal });
        if (at < 0) {
          at = Number(answer.headers.get(OFFSET_HEADER) ?? 0);
          if (at > 0) this.cut = true;
        }
        const bytes = new Uint8Array(await answer.arrayBuffer());
        at += bytes.length;
        this.bytes += bytes.length;
        this.log.push(decoder.decode(bytes, { stream: true }), stream);
        this.changed();
      } catch (e) {
        // The worker may be back soon; standard output is waited for meanwhile.
        if (!(e instanceof ApiFailure) || (e.status >= 400 && e.status < 500)) throw e;
      }
      if (isLast) return;
      await pause(POLL_MS);
      signal.throwIfAborted();
    }
  }

  private async readStream(source: LogSource, stream: LogStream, signal: AbortSignal): Promise<void> {
    const path = withParams(logPath(source.task, stream, source.attempt), { follow: true, offset: -TAIL_BYTES });
    const answer = await send(path, { signal });
    this.failure = undefined;
    if (Number(answer.headers.get(OFFSET_HEADER) ?? 0) > 0) this.cut = true;
    const decoder = new TextDecoder();
    const reader = answer.body!.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this.bytes += value.length;
      this.log.push(decoder.decode(value, { stream: true }), stream);
      this.changed();
    }
  }

  // Pieces come faster than pictures: one change a frame.
  private changed(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.version += 1;
      this.complete = this.done;
    });
  }
}

const pause = (ms: number) =>
  new Promise<void>((resolve) => {
    setTimeout(resolve, ms);
  });
