// Rows of a timeline: bars that do not overlap share a lane.

export interface Bar {
  from: number;
  to: number;
}

/** The lane of each bar, in the order given; a bar takes the first lane that is free from its beginning on. */
export function lanes(bars: readonly Bar[]): { lane: number[]; count: number } {
  const order = bars.map((_, i) => i).sort((a, b) => bars[a]!.from - bars[b]!.from);
  const free: number[] = [];
  const lane = new Array<number>(bars.length).fill(0);
  for (const i of order) {
    const bar = bars[i]!;
    let at = free.findIndex((until) => until <= bar.from);
    if (at < 0) at = free.push(0) - 1;
    free[at] = bar.to;
    lane[i] = at;
  }
  return { lane, count: free.length };
}

/** Round moments for the axis of a span of time: at most `most` of them, with the same distance. */
export function ticks(from: number, to: number, most: number): number[] {
  const steps = [
    100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 864e5,
  ];
  const span = Math.max(1, to - from);
  const step = steps.find((size) => span / size <= most) ?? Math.ceil(span / most / 864e5) * 864e5;
  const found: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}
