// The time on the server, in steps of a second: relative times and ages follow it.

class Clock {
  /** Milliseconds since the epoch on the server. */
  now = $state(Date.now());
  private offset_ms = 0;

  constructor() {
    setInterval(() => {
      if (!document.hidden) this.tick();
    }, 1000);
    document.addEventListener('visibilitychange', () => this.tick());
  }

  /** Takes over the server's time, so that a wrong clock of this machine does not show wrong ages. */
  set(server_ms: number): void {
    this.offset_ms = server_ms - Date.now();
    this.tick();
  }

  private tick(): void {
    this.now = Date.now() + this.offset_ms;
  }
}

export const clock = new Clock();
