// Reads why a job failed.

import { ApiFailure, get, send, withParams } from '../api/client';
import type { Page, Task } from '../api/types';
import { type JobFailures, groupFailures, lastLines } from '../lib/failures';

/** Failed tasks that the board groups itself, where the server does not. */
const TASKS_MAX = 1000;
/** Bytes from the end of standard error in which the last lines are looked for. */
const TAIL_BYTES = 4_000;
/** Lines of standard error that are shown of a task. */
export const LINES_SHOWN = 8;
/** Groups whose first task is asked for its output, where the server did not tell it. */
const GROUPS_READ = 3;

/** The last lines that an attempt wrote to standard error; none where they cannot be read. */
export async function readStderr(task: string, attempt: number | null, signal: AbortSignal): Promise<string[]> {
  try {
    const path = withParams(`/api/v1/tasks/${task}/log`, { stream: 'stderr', attempt, offset: -TAIL_BYTES });
    return lastLines(await (await send(path, { signal })).text(), LINES_SHOWN);
  } catch (e) {
    // The worker may be away, and the output may be another user's: the cause is shown without it.
    if (e instanceof ApiFailure) return [];
    throw e;
  }
}

/**
 * Failures of a job by cause. A server that does not group them is asked for its failed tasks, and for what the first
 * of them wrote if `mayRead`.
 */
export async function readFailures(
  job: number,
  failed: number,
  mayRead: boolean,
  signal: AbortSignal,
): Promise<JobFailures> {
  try {
    return await get<JobFailures>(`/api/v1/jobs/${job}/failures`, signal);
  } catch (e) {
    if (!(e instanceof ApiFailure) || (e.status !== 404 && e.status !== 405)) throw e;
  }
  const path = withParams(`/api/v1/jobs/${job}/tasks`, { state: 'failed', limit: TASKS_MAX });
  const found = groupFailures(job, (await get<Page<Task>>(path, signal)).items, failed);
  if (!mayRead) return found;
  const read = found.groups.slice(0, GROUPS_READ).map(async ({ first }) => {
    first.stderr = await readStderr(first.task, null, signal);
  });
  await Promise.all(read);
  return found;
}
