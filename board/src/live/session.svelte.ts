// Who looks at the board. The token goes to the server once and is kept nowhere in the page.

import { ApiFailure, change, get } from '../api/client';
import type { Me } from '../api/types';
import { clock } from './clock.svelte';

const SESSION = '/api/v1/board/session';

class Session {
  /** The caller; undefined until the server said so. */
  me = $state.raw<Me | undefined>(undefined);
  state = $state<'asking' | 'in' | 'out' | 'unreachable'>('asking');
  /** Why signing in did not work. */
  failure = $state.raw<ApiFailure | undefined>(undefined);

  /** Takes a one-time code out of the address, and asks who the caller is. */
  async begin(): Promise<void> {
    const code = new URLSearchParams(location.hash.slice(1)).get('code');
    if (code !== null) {
      history.replaceState(history.state, '', location.pathname + location.search);
      await this.enter({ code });
    } else {
      await this.ask();
    }
  }

  /** Signs in with a token, or with the code of a link. */
  async enter(secret: { token: string } | { code: string }): Promise<void> {
    this.failure = undefined;
    try {
      await change('POST', SESSION, secret);
    } catch (e) {
      this.failure = e as ApiFailure;
    }
    await this.ask();
  }

  async leave(): Promise<void> {
    try {
      await change('DELETE', SESSION);
    } finally {
      this.me = undefined;
      this.state = 'out';
    }
  }

  /** The server does not know the caller any more. */
  lost(): void {
    this.state = 'out';
  }

  async ask(): Promise<void> {
    try {
      this.me = await get<Me>('/api/v1/board/me');
      clock.set(this.me.time_ms);
      this.state = 'in';
    } catch (e) {
      const failure = e as ApiFailure;
      this.state = failure.status === 401 || failure.status === 403 ? 'out' : 'unreachable';
      if (this.state === 'unreachable') this.failure = failure;
    }
  }
}

export const session = new Session();
