// The address bar as state: each view, filter and choice is in it.

import { parseRoute } from '../lib/route';
import { withQuery } from '../lib/query';

class Router {
  path = $state(location.pathname);
  search = $state(location.search);
  route = $derived(parseRoute(this.path));
  query = $derived(new URLSearchParams(this.search));

  start(): void {
    addEventListener('popstate', () => this.read());
    document.addEventListener('click', (event) => this.click(event));
  }

  /** Goes to another address of the board. */
  go(to: string): void {
    history.pushState(null, '', to);
    this.read();
  }

  /** Changes values of the query string; the back button passes over such changes. */
  set(changes: Record<string, string | number | null | undefined>): void {
    history.replaceState(history.state, '', this.path + withQuery(this.search, changes));
    this.read();
  }

  /** The address with some values changed, for a link. */
  link(changes: Record<string, string | number | null | undefined>): string {
    return this.path + withQuery(this.search, changes);
  }

  private read(): void {
    this.path = location.pathname;
    this.search = location.search;
  }

  // Links of the board change the view without loading the page again; all others are left to the browser.
  private click(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest('a');
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return;
    if (link.pathname.startsWith('/api/')) return;
    event.preventDefault();
    if (link.href !== location.href) this.go(link.pathname + link.search);
  }
}

export const router = new Router();
