// When to read again: at once if the last reading is long enough ago, else as soon as it is; never twice meanwhile.

/** The clock and the timer, so that tests have their own. */
export interface Timer {
  now(): number;
  /** Calls back after so many milliseconds; returns what cancels it. */
  after(ms: number, call: () => void): () => void;
}

export const realTimer: Timer = {
  now: () => performance.now(),
  after(ms, call) {
    const id = setTimeout(call, ms);
    return () => clearTimeout(id);
  },
};

/** Runs a reading at most once in `gap_ms`, and never two at a time. A wish during a reading leads to one more. */
export class Pacer {
  private last = -Infinity;
  private busy = false;
  private again = false;
  private cancel: (() => void) | undefined;
  private stopped = false;

  constructor(
    private readonly read: () => Promise<void>,
    public gap_ms: number,
    private readonly timer: Timer = realTimer,
  ) {}

  /** Asks for a reading. */
  want(): void {
    if (this.stopped) return;
    if (this.busy) {
      this.again = true;
      return;
    }
    if (this.cancel) return;
    const wait = this.last + this.gap_ms - this.timer.now();
    if (wait <= 0) void this.run();
    else
      this.cancel = this.timer.after(wait, () => {
        this.cancel = undefined;
        void this.run();
      });
  }

  /** No further reading begins. */
  stop(): void {
    this.stopped = true;
    this.cancel?.();
    this.cancel = undefined;
  }

  private async run(): Promise<void> {
    if (this.stopped) return;
    this.busy = true;
    this.last = this.timer.now();
    try {
      await this.read();
    } finally {
      this.busy = false;
      if (this.again) {
        this.again = false;
        this.want();
      }
    }
  }
}
