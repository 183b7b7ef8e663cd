// Who used how many cpu hours: rows by day, user and queue, summed as a person asks.

import type { Usage } from '../api/types';

type UsageRow = Usage['rows'][number];

export type UsageKey = 'user' | 'queue' | 'day';

/** A line of the table: some of the three, with their sums. */
export interface UsageSum {
  user?: string;
  queue?: string;
  day_ms?: number;
  cpu_ms: number;
  tasks: number;
  failed: number;
}

/** Sums the rows by what is asked for; days stand newest first, all others by cpu hours. */
export function sumUsage(rows: readonly UsageRow[], by: readonly UsageKey[]): UsageSum[] {
  const sums = new Map<string, UsageSum>();
  for (const row of rows) {
    const key = JSON.stringify(by.map((part) => (part === 'day' ? row.day_ms : row[part])));
    const sum = sums.get(key) ?? {
      ...(by.includes('user') && { user: row.user }),
      ...(by.includes('queue') && { queue: row.queue }),
      ...(by.includes('day') && { day_ms: row.day_ms }),
      cpu_ms: 0,
      tasks: 0,
      failed: 0,
    };
    sum.cpu_ms += row.cpu_ms;
    sum.tasks += row.tasks;
    sum.failed += row.failed;
    sums.set(key, sum);
  }
  return [...sums.values()].sort((a, b) => (b.day_ms ?? 0) - (a.day_ms ?? 0) || b.cpu_ms - a.cpu_ms);
}

/** Cpu hours, in at most four digits. */
export function cpuHours(cpu_ms: number): string {
  const hours = cpu_ms / 3_600_000;
  if (hours > 0 && hours < 0.005) return '<0.01';
  return hours.toLocaleString('en-GB', { maximumFractionDigits: hours < 10 ? 2 : hours < 100 ? 1 : 0 });
}

/** The day as it stands in files: `2026-11-23`. */
export const dayOf = (day_ms: number) => new Date(day_ms).toISOString().slice(0, 10);
