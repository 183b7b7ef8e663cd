// Colours of queues: ten that people tell apart, also those who see few colours. A queue keeps its colour while the
// page is open.

/** Number of colours; the stylesheet has `--q0` to `--q9`. */
export const HUES = 10;

export class Hues {
  private readonly given = new Map<string, number>();
  private readonly taken = new Array<number>(HUES).fill(0);

  /** The number of a queue's colour: by its name, or the next that fewer queues have. */
  of(queue: string): number {
    const known = this.given.get(queue);
    if (known !== undefined) return known;
    const least = Math.min(...this.taken);
    let hue = hash(queue) % HUES;
    while (this.taken[hue]! > least) hue = (hue + 1) % HUES;
    this.taken[hue]! += 1;
    this.given.set(queue, hue);
    return hue;
  }
}

function hash(text: string): number {
  let h = 2166136261;
  for (let i = 0; i < text.length; i += 1) h = Math.imul(h ^ text.charCodeAt(i), 16777619) >>> 0;
  return h;
}
