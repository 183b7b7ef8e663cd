// Keys that work on every page. A list takes j, k, enter and the letters of actions while it is shown; what it does not
// take goes to the view. The letters are those of `windlass top`.

import { router } from './router.svelte';

export interface KeyList {
  /** Moves the current row, and takes the focus, so that enter opens the row and presses no button. */
  move(by: number): void;
  open(): void;
  toggle?(): void;
  /** Acts on the current row; true if the key was taken. */
  act?(key: string): boolean;
}

/** The letters of actions, as the help lists them. */
export const ACTION_KEYS: [string, string][] = [
  ['l', 'output of the task'],
  ['w', 'why it waits, or why it ran there'],
  ['c', 'cancel the job or the task'],
  ['t', 'retry the job or the task'],
  ['h', 'hold the job, or release it'],
  ['p', 'priority of the job; pause or resume the queue'],
  ['d', 'drain or resume the worker'],
  ['e', 'edit the queue'],
];

/** Where g and a letter lead. */
export const PLACES: Record<string, { path: string; name: string }> = {
  o: { path: '/', name: 'Overview' },
  j: { path: '/jobs', name: 'Jobs' },
  w: { path: '/workers', name: 'Workers' },
  q: { path: '/queues', name: 'Queues' },
  l: { path: '/limits', name: 'Limits' },
  s: { path: '/scheduler', name: 'Scheduler' },
  t: { path: '/tokens', name: 'Tokens, for administrators' },
  h: { path: '/history', name: 'History' },
};

class Keys {
  helpShown = $state(false);
  /** Where g and a letter lead now. */
  places = $state.raw(PLACES);
  private lists: KeyList[] = [];
  private views: ((key: string) => boolean)[] = [];
  private go = false;

  start(): void {
    addEventListener('keydown', (event) => this.press(event));
  }

  /** Lets a list have the keys while it is shown; the last one shown has them. */
  attach(list: KeyList): () => void {
    this.lists.push(list);
    return () => {
      this.lists = this.lists.filter((other) => other !== list);
    };
  }

  /** Lets a view have the letters that no list takes. */
  attachView(act: (key: string) => boolean): () => void {
    this.views.push(act);
    return () => {
      this.views = this.views.filter((other) => other !== act);
    };
  }

  private press(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    if (document.querySelector('dialog[open]')) return;
    // The field of a dialog that has just closed keeps the focus for a moment.
    if (target.matches('input, textarea, select') && !target.closest('dialog')) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    const went = this.go;
    this.go = false;
    const place = went ? this.places[event.key] : undefined;
    if (place) router.go(place.path);
    else if (!this.command(event, target)) return;
    event.preventDefault();
  }

  /** True if the key was taken. */
  private command(event: KeyboardEvent, target: HTMLElement): boolean {
    const list = this.lists[this.lists.length - 1];
    // Enter and the space bar belong to a link or a button that has the focus.
    const free = !target.matches('a, button, summary, [role="tab"], [role="slider"]');
    switch (event.key) {
      case '/':
        return focusFilter();
      case '?':
        this.helpShown = true;
        return true;
      case 'g':
        this.go = true;
        return true;
      case 'j':
        list?.move(1);
        return list !== undefined;
      case 'k':
        list?.move(-1);
        return list !== undefined;
      case 'Enter':
        if (free) list?.open();
        return free && list !== undefined;
      case 'x':
        list?.toggle?.();
        return list?.toggle !== undefined;
      default:
        if (list?.act?.(event.key)) return true;
        return this.views[this.views.length - 1]?.(event.key) ?? false;
    }
  }
}

function focusFilter(): boolean {
  const filter = document.querySelector<HTMLInputElement>('[data-filter]');
  filter?.focus();
  filter?.select();
  return filter !== null;
}

export const keys = new Keys();
