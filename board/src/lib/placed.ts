// Why a task was placed where it was, in a sentence: the rules by which its worker was ahead.

import type { Why } from '../api/types';
import { points } from './format';

type Judged = NonNullable<Why['judged']>[number];

/** Rules that are named. */
const RULES_SHOWN = 3;
/** Points by which a rule must be ahead to be worth a word. */
const POINTS_MIN = 0.05;

/** What spoke for the worker against the one that came second; null where its decision is not known. */
export function placedBecause(judged: readonly Judged[], worker: string): string | null {
  const winner = judged.find((one) => one.worker === worker);
  if (!winner) return null;
  const others = judged.filter((one) => one !== winner);
  if (others.length === 0) return 'no other worker had room for it';
  const second = others.reduce((best, one) => (one.score > best.score ? one : best));
  const of = (one: Judged, rule: string) => one.rules.find((other) => other.rule === rule)?.points ?? 0;
  const ahead = winner.rules
    .map((rule) => ({ reason: rule.reason, by: rule.points - of(second, rule.rule) }))
    .filter((rule) => rule.by >= POINTS_MIN && rule.reason !== '')
    .toSorted((a, b) => b.by - a.by)
    .slice(0, RULES_SHOWN);
  const margin = points(winner.score - second.score).replace(/^[+]/, '');
  const next = `in all it was ${margin} points ahead of ${second.worker}`;
  if (ahead.length === 0) {
    return winner.score > second.score ? next : `it was as good as ${second.worker}, and one of them had to be chosen`;
  }
  // The first margin says over whom; it is that of the others, too.
  const margins = ahead.map(
    ({ reason, by }, i) => `${reason} (${points(by)}${i === 0 ? ` over ${second.worker}` : ''})`,
  );
  return `${margins.join(', ')}; ${next}`;
}
