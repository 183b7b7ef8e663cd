// The last lines that tasks wrote, for the rows in view: of those that run, to standard output; of those that failed, to
// standard error.
//
// - A task that failed writes nothing more, and is asked about once.
// - At most `TASKS_MAX` tasks are asked about, `OPEN_MAX` at a time, and each again only after `EVERY_MS`.
// - Nothing is asked while the page is hidden, nor after the server refused it: output is not for everybody.

import { ApiFailure, send } from '../api/client';
import { lastLine } from '../lib/log';
import { type Timer, realTimer } from './pacer';

/** Tasks that are asked about: rows of a high screen. */
export const TASKS_MAX = 60;
/** Requests under way. */
export const OPEN_MAX = 3;
/** Between two requests about a task. */
export const EVERY_MS = 5_000;
/** Bytes from the end in which a line is looked for. */
const TAIL_BYTES = 1_000;
/** Characters that are kept of a line. */
const CHARS_MAX = 300;

/** Answers the end of a task's output; of standard error if it failed. */
export type ReadTail = (task: string, failed: boolean) => Promise<string>;

async function readTail(task: string, failed: boolean): Promise<string> {
  const path = `/api/v1/tasks/${task}/log?offset=-${TAIL_BYTES}`;
  const text = await (await send(failed ? `${path}&stream=stderr` : path, {})).text();
  // Some programs tell their errors on standard output.
  return failed && text.trim() === '' ? readTail(task, false) : text;
}

export class LastLines {
  private readonly known = new Map<string, { line: string; asked_ms: number }>();
  private readonly open = new Set<string>();
  private wanted: readonly string[] = [];
  private failed: ReadonlySet<string> = new Set();
  private cancel: (() => void) | undefined;
  private stopped = false;

  constructor(
    private readonly changed: () => void,
    private readonly read: ReadTail = readTail,
    private readonly timer: Timer = realTimer,
    private readonly isHidden: () => boolean = () => document.hidden,
  ) {}

  /** The last line of a task, if it was read. */
  line(task: string): string | undefined {
    return this.known.get(task)?.line;
  }

  /** Asks about these tasks from now on, and about no others; `failed` are those of them that failed. */
  want(tasks: readonly string[], failed: ReadonlySet<string> = new Set()): void {
    this.wanted = tasks.slice(0, TASKS_MAX);
    const wanted = new Set(this.wanted);
    // What a task wrote while it ran is not what it failed with.
    for (const task of this.known.keys())
      if (!wanted.has(task) || failed.has(task) !== this.failed.has(task)) this.known.delete(task);
    this.failed = failed;
    this.go();
  }

  /** Asks about nothing any more. */
  stop(): void {
    this.stopped = true;
    this.cancel?.();
    this.cancel = undefined;
  }

  private go(): void {
    this.cancel?.();
    this.cancel = undefined;
    if (this.stopped || this.wanted.length === 0) return;
    const now = this.timer.now();
    const due = (task: string) => (this.known.get(task)?.asked_ms ?? -Infinity) + EVERY_MS;
    const isDone = (task: string) => this.failed.has(task) && this.known.has(task);
    const waiting = this.wanted
      .filter((task) => !this.open.has(task) && !isDone(task))
      .toSorted((a, b) => due(a) - due(b));
    for (const task of this.isHidden() ? [] : waiting) {
      if (due(task) > now || this.open.size >= OPEN_MAX) break;
      void this.ask(task, now);
    }
    const next = waiting.find((task) => !this.open.has(task));
    // The end of a request looks again, too.
    if (next !== undefined && !this.stopped) {
      this.cancel = this.timer.after(Math.max(EVERY_MS / 5, due(next) - now), () => this.go());
    }
  }

  private async ask(task: string, now: number): Promise<void> {
    this.open.add(task);
    const known = this.known.get(task);
    this.known.set(task, { line: known?.line ?? '', asked_ms: now });
    try {
      const line = lastLine(await this.read(task, this.failed.has(task))).slice(0, CHARS_MAX);
      if (this.known.has(task) && line !== known?.line) {
        this.known.set(task, { line, asked_ms: now });
        this.changed();
      }
    } catch (e) {
      // A worker that is not connected may be back later.
      if (e instanceof ApiFailure && (e.status === 401 || e.status === 403)) this.stop();
    } finally {
      this.open.delete(task);
      this.go();
    }
  }
}
