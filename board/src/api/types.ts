// Short names for the generated types that the board uses.

import type { components } from './schema';

type Schemas = components['schemas'];

export type Attempt = Schemas['Attempt'];
export type BoardDecision = Schemas['BoardDecision'];
export type BoardWorker = Schemas['BoardWorker'];
export type Counts = Schemas['Counts'];
export type ErrorBody = Schemas['ErrorBody'];
export type FailureGroup = Schemas['FailureGroup'];
export type Failures = Schemas['Failures'];
export type History = Schemas['History'];
export type Job = Schemas['Job'];
export type JobState = Schemas['JobState'];
export type Limit = Schemas['Limit'];
/** Lines of both outputs of an attempt in the order in which they were written. */
export type LogPage = Schemas['LogLines'];
/** Who looks. The gateway of another scheduler adds whose farm it shows; a server says nothing of it. */
export type Me = Schemas['BoardMe'] & { farm?: 'opencue' };
export type Overview = Schemas['Overview'];
export type PendingJobs = Schemas['PendingJobs'];
export type Percents = Schemas['Percents'];
export type Queue = Schemas['Queue'];
export type RuleEntry = Schemas['RuleEntry'];
export type Scheduler = Schemas['SchedulerFigures'];
export type ScoringSummary = Schemas['ScoringSummary'];
export type Series = Schemas['FarmSeries'];
export type ServerLoad = Schemas['ServerLoad'];
export type ServerLoads = Schemas['ServerLoads'];
export type SetLimit = Schemas['SetLimit'];
export type SetQueue = Schemas['SetQueue'];
export type Step = Schemas['Step'];
export type Task = Schemas['Task'];
export type TaskState = Schemas['TaskState'];
export type Token = Schemas['Token'];
export type Usage = Schemas['Usage'];
export type Why = Schemas['Why'];
export type Worker = Schemas['Worker'];
export type WorkerSeries = Schemas['WorkerSeries'];
export type WorkerState = Schemas['WorkerState'];
export type WorkerWhy = Schemas['WorkerWhy'];

/** Figures over time, oldest first; null where nothing is known. */
export type Values = Series['running'];

/** States of tasks in runs. The description of the interface has no pairs, so those are added here. */
export type TaskGrid = Omit<Schemas['TaskGrid'], 'runs'> & { runs: [state: string, tasks: number][] };

/** A part of a list. */
export interface Page<T> {
  items: T[];
  next?: string | null;
}
