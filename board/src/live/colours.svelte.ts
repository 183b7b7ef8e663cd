// Colours of the stylesheet, for what is drawn on a canvas.

import { Hues } from '../lib/hues';
import { TASK_STATES } from '../lib/states';
import { theme } from './theme.svelte';

let probe: HTMLElement | undefined;

/** The value that a colour of the stylesheet has now. Reading it in an effect runs the effect again on light or dark. */
export function colour(name: string): string {
  void theme.dark;
  if (!probe) {
    probe = document.createElement('span');
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

/** Colours of the states of tasks, by code: of the cell, and of the letter on it. */
export function stateColours(): { fill: string[]; ink: string[] } {
  return {
    fill: TASK_STATES.map((state) => colour(`--s-${state}`)),
    ink: TASK_STATES.map((state) => colour(`--i-${state}`)),
  };
}

const hues = new Hues();

/** The name of a queue's colour. */
export const queueColour = (queue: string) => `--q${hues.of(queue)}`;

/** Pixels of one rem. */
export const remPx = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

/** Height of a row of a list in pixels. */
export const rowPx = () =>
  Math.round(parseFloat(getComputedStyle(document.documentElement).getPropertyValue('--row')) * remPx());
