// Keys that work on every page. A list takes j, k and enter while it is shown.

import { router } from './router.svelte';

export interface KeyList {
  move(by: number): void;
  open(): void;
  toggle?(): void;
}

/** Where g and a letter lead. */
export const PLACES: Record<string, { path: string; name: string }> = {
  o: { path: '/', name: 'Overview' },
  j: { path: '/jobs', name: 'Jobs' },
  w: { path: '/workers', name: 'Workers' },
  q: { path: '/queues', name: 'Queues' },
  s: { path: '/scheduler', name: 'Scheduler' },
  h: { path: '/history', name: 'History' },
};

class Keys {
  helpShown = $state(false);
  /** Where g and a letter lead now. */
  places = $state.raw(PLACES);
  private lists: KeyList[] = [];
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

  private press(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    if (document.querySelector('dialog[open]')) return;
    if (target.matches('input, textarea, select')) {
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
        return false;
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
