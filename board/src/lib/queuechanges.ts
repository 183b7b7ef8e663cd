// What a person changed in the settings of a queue.

import type { Queue, SetQueue } from '../api/types';

/** A queue's setting of jobservers as a word. */
export const jobserverWord = ({ jobserver }: Pick<Queue, 'jobserver'>): 'auto' | 'on' | 'off' =>
  jobserver == null ? 'auto' : jobserver ? 'on' : 'off';

/** The settings that differ from those before: band, weight, quota, burst, turns, users, jobservers. */
export function queueChanges(before: readonly string[], values: readonly string[]): SetQueue {
  const differs = (i: number) => (values[i] ?? '').trim() !== before[i];
  const amount = (i: number) => ((values[i] ?? '').trim() === '' ? null : Number(values[i]));
  return {
    ...(differs(0) && { band: Number(values[0]) }),
    ...(differs(1) && { weight: Number(values[1]) }),
    ...(differs(2) && { quota_cpus: amount(2) }),
    ...(differs(3) && { burst_cpus: amount(3) }),
    ...(differs(4) && { turns: values[4] as SetQueue['turns'] }),
    ...(differs(5) && {
      users: (values[5] ?? '')
        .split(',')
        .map((user) => user.trim())
        .filter((user) => user !== ''),
    }),
    ...(differs(6) && { jobserver: values[6] === 'auto' ? null : values[6] === 'on' }),
  };
}
