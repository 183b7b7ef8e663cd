// When a job is expected to end.

import type { Counts, Job } from '../api/types';
import { ended, hasEnded } from './states';

/** Tasks that must have ended before their pace says anything. */
const ENDED_MIN = 5;

/**
 * Milliseconds until a job is expected to end: what the server says, else by the pace of its tasks since it was
 * submitted. Null where nothing runs, and where too few tasks have ended to tell.
 */
export function etaOfJob(
  job: Pick<Job, 'state' | 'counts' | 'created_ms' | 'expected_end_ms'>,
  now: number,
): number | null {
  if (hasEnded(job.state)) return null;
  if (job.expected_end_ms != null) return Math.max(0, job.expected_end_ms - now);
  const done = paced(job.counts);
  const left = job.counts.total - ended(job.counts);
  if (job.counts.running === 0 || done < ENDED_MIN || left <= 0) return null;
  return (Math.max(0, now - job.created_ms) / done) * left;
}

/** Tasks that ended by running. Those that were cancelled or skipped took no time. */
const paced = (counts: Counts) => counts.succeeded + counts.failed;
