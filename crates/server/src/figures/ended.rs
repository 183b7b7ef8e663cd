//! The attempts that ended last, for figures about the past: a bounded ring in memory, filled from the store at the start.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use windlass_api::figures::{CauseJob, Durations, ExpensiveTask, FailureCause, History, WorkerRecord};
use windlass_core::engine::{Engine, Fact};
use windlass_core::job::{End, JobSpec, TaskResult, TaskState};
use windlass_core::{JobId, TaskId, Time, WorkerId, worker};
use windlass_store::{EndedJob, Store};

/// Attempts that are remembered: at most 3 MB of them, and their names. Attempts of a step that end one after the other share
/// its names. Where many steps alternate, and all names have 255 bytes, they take 20 MB.
const ENDED_MAX: usize = 20_000;
/// Jobs, active ones and those that ended last, whose attempts are read from the store.
const ENDED_JOBS_MAX: usize = 500;
/// Causes, workers and tasks of one answer.
const CAUSES_MAX: usize = 20;
const WORKERS_TOLD_MAX: usize = 20;
const EXPENSIVE_MAX: usize = 50;
/// Jobs that an answer names of each cause.
const CAUSE_JOBS_MAX: usize = 5;
/// Milliseconds up to which the columns of the histogram of durations go: two for each factor of ten.
const DURATIONS_MS: [u64; 15] = [
    10,
    30,
    100,
    300,
    1_000,
    3_000,
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
];

/// The outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Succeeded,
    Failed,
    Canceled,
}

impl Outcome {
    /// The outcome of an attempt with this end, whose task is in this state now; `None` of one that never began, and for
    /// which nobody waited.
    pub fn of(state: TaskState, end: &End) -> Option<Outcome> {
        match (state, end) {
            (_, End::Recalled) => None,
            (TaskState::Succeeded, _) => Some(Outcome::Succeeded),
            (TaskState::Canceled, _) | (_, End::Canceled) => Some(Outcome::Canceled),
            _ => Some(Outcome::Failed),
        }
    }
}

/// How an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cause {
    Exit(i32),
    Signal(i32),
    Word(&'static str),
}

impl Cause {
    fn of(end: &End) -> Cause {
        match end {
            End::Exited(code) => Cause::Exit(*code),
            End::Signaled(signal) => Cause::Signal(*signal),
            End::TimeLimit => Cause::Word("time_limit"),
            End::OutOfMemory => Cause::Word("oom"),
            End::NotStarted { .. } => Cause::Word("not_started"),
            End::Lost => Cause::Word("lost"),
            End::OutputsLost { .. } => Cause::Word("outputs_lost"),
            End::Canceled => Cause::Word("canceled"),
            End::Recalled => Cause::Word("recalled"),
        }
    }

    fn text(self) -> String {
        match self {
            Cause::Exit(code) => format!("exit {code}"),
            Cause::Signal(signal) => format!("signal {signal}"),
            Cause::Word(word) => word.to_owned(),
        }
    }
}

/// An attempt that ended, with what figures are made of.
#[derive(Clone, Debug)]
struct EndedAttempt {
    at_ms: u64,
    task: TaskId,
    /// Milliseconds that it ran.
    ran_ms: Option<u64>,
    /// Hundredths of a core that it held.
    cpu: u32,
    peak_bytes: Option<u64>,
    outcome: Outcome,
    cause: Cause,
    names: Arc<StepNames>,
    worker: Arc<str>,
}

#[derive(Debug)]
struct StepNames {
    step: String,
    queue: String,
    user: String,
}

/// The attempts that ended last.
#[derive(Debug, Default)]
pub struct EndedAttempts(Mutex<EndedRing>);

#[derive(Debug, Default)]
struct EndedRing {
    /// In the order in which they ended.
    attempts: VecDeque<EndedAttempt>,
    /// The first task of the last attempt's step, whose names the next attempt has as a rule.
    last: Option<(TaskId, Arc<StepNames>)>,
}

#[derive(Clone, Debug)]
pub struct HistoryQuestion {
    /// Those that ended since then.
    pub since_ms: u64,
    pub worker: Option<String>,
}

impl EndedAttempts {
    /// Takes in what is durable. The engine must still hold the jobs that ended in this batch.
    pub fn take(&self, engine: &Engine, facts: &[Fact], now: Time) {
        let mut ends = facts.iter().filter_map(|fact| match fact {
            Fact::Ended { task, worker, cpu, state, result, .. } => {
                Some((*task, *worker, *cpu, *state, result))
            }
            _ => None,
        });
        let Some(first) = ends.next() else { return };
        let mut ring = self.0.lock();
        for (task, worker, cpu, state, result) in std::iter::once(first).chain(ends) {
            let Some(job) = engine.job(task.job) else { continue };
            let step = job.step_of(task.index);
            let first = TaskId { job: task.job, index: job.steps[usize::from(step)].base };
            let names = ring.names_of(first, &job.spec, step);
            let worker = Arc::from(engine.workers().get(worker).map_or("", |known| &*known.record.name));
            ring.push(task, (names, worker), cpu, state, result, now);
        }
    }

    /// Takes in what a store has of earlier times, before anything else is taken. `workers` are those that the store knows.
    /// What cannot be read is lacking in figures about the past, and nothing else.
    pub async fn restore_from(&self, store: &Store, workers: &[worker::WorkerRecord]) {
        let names: BTreeMap<WorkerId, Arc<str>> =
            workers.iter().map(|known| (known.id, Arc::from(&*known.name))).collect();
        match store.last_ended(ENDED_JOBS_MAX, ENDED_MAX).await {
            Ok(jobs) => self.restore(&jobs, &names),
            Err(error) => tracing::warn!("the history of attempts begins again: {error}"),
        }
    }

    fn restore(&self, jobs: &[EndedJob], workers: &BTreeMap<WorkerId, Arc<str>>) {
        let mut ring = self.0.lock();
        for EndedJob { view, tasks, attempts } in jobs {
            for task in tasks {
                let (row, Some(result)) = (&task.row, &task.result) else { continue };
                let index = TaskId { job: view.id, index: row.index };
                let cpu = row.amounts.map(|(cpu, _)| cpu);
                ring.restore_one(&view.spec, index, (row.worker, cpu), row.state, result, workers);
            }
            for (index, attempt) in attempts {
                let task = TaskId { job: view.id, index: *index };
                let by = (attempt.worker, None);
                ring.restore_one(&view.spec, task, by, TaskState::Ready, &attempt.result, workers);
            }
        }
        ring.attempts.make_contiguous().sort_by_key(|attempt| attempt.at_ms);
        let over = ring.attempts.len().saturating_sub(ENDED_MAX);
        ring.attempts.drain(..over);
    }

    /// What came of them. `may_read` says of a user whether the caller may see that user's tasks by name; what others'
    /// tasks came to is only counted.
    pub fn history(&self, question: &HistoryQuestion, may_read: impl Fn(&str) -> bool) -> History {
        let ring = self.0.lock();
        let is_full = ring.attempts.len() >= ENDED_MAX;
        let oldest = ring.attempts.front().map(|attempt| attempt.at_ms).filter(|_| is_full);
        let wanted = ring.attempts.iter().filter(|attempt| {
            attempt.at_ms >= question.since_ms
                && question.worker.as_ref().is_none_or(|worker| **worker == *attempt.worker)
        });
        let mut made = HistoryMaker::default();
        wanted.clone().for_each(|attempt| made.add(attempt));
        let mut readable: BTreeMap<&str, bool> = BTreeMap::new();
        let mut expensive: Vec<&EndedAttempt> = wanted
            .filter(|attempt| {
                let user = &*attempt.names.user;
                attempt.cost() > 0 && *readable.entry(user).or_insert_with(|| may_read(user))
            })
            .collect();
        expensive.sort_by_key(|attempt| std::cmp::Reverse(attempt.cost()));
        expensive.truncate(EXPENSIVE_MAX);
        let expensive = expensive.into_iter().map(EndedAttempt::told).collect();
        made.finish(oldest.unwrap_or(0).max(question.since_ms), expensive)
    }
}

impl EndedAttempt {
    /// What it took of the farm, in hundredths of a core times milliseconds.
    fn cost(&self) -> u64 {
        u64::from(self.cpu).saturating_mul(self.ran_ms.unwrap_or(0))
    }

    fn told(&self) -> ExpensiveTask {
        ExpensiveTask {
            job: self.task.job.0,
            task: self.task.to_string(),
            step: self.names.step.clone(),
            queue: self.names.queue.clone(),
            worker: self.worker.to_string(),
            ms: self.ran_ms.unwrap_or(0),
            cpus: f64::from(self.cpu) / 100.0,
            peak_bytes: self.peak_bytes,
        }
    }
}

impl EndedRing {
    fn push(
        &mut self,
        task: TaskId,
        (names, worker): (Arc<StepNames>, Arc<str>),
        cpu: u32,
        state: TaskState,
        result: &TaskResult,
        now: Time,
    ) {
        let Some(outcome) = Outcome::of(state, &result.end) else { return };
        let ran = result.started.zip(result.finished);
        if self.attempts.len() >= ENDED_MAX {
            self.attempts.pop_front();
        }
        self.attempts.push_back(EndedAttempt {
            at_ms: result.finished.unwrap_or(now).as_ms(),
            task,
            ran_ms: ran.map(|(started, finished)| finished.as_ms().saturating_sub(started.as_ms())),
            cpu,
            peak_bytes: result.peak_memory,
            outcome,
            cause: Cause::of(&result.end),
            names,
            worker,
        });
    }

    fn restore_one(
        &mut self,
        spec: &JobSpec,
        task: TaskId,
        (worker, cpu): (WorkerId, Option<u32>),
        state: TaskState,
        result: &TaskResult,
        workers: &BTreeMap<WorkerId, Arc<str>>,
    ) {
        let Some((step, base)) = step_of(spec, task.index) else { return };
        let names = self.names_of(TaskId { job: task.job, index: base }, spec, step);
        let worker = workers.get(&worker).cloned().unwrap_or_else(|| "".into());
        let cpu = cpu.unwrap_or(spec.steps[usize::from(step)].request.cpu);
        // Without a time it is as old as can be.
        self.push(task, (names, worker), cpu, state, result, Time(0));
    }

    /// The names of a step whose first task that is.
    fn names_of(&mut self, first: TaskId, spec: &JobSpec, step: u16) -> Arc<StepNames> {
        if let Some((_, names)) = self.last.as_ref().filter(|(last, _)| *last == first) {
            return names.clone();
        }
        let step = spec.steps.get(usize::from(step)).map_or("", |step| &step.name).to_owned();
        let names = Arc::new(StepNames { step, queue: spec.queue.clone(), user: spec.user.clone() });
        self.last = Some((first, names.clone()));
        names
    }
}

/// The step of a task and the index of its first one.
fn step_of(spec: &JobSpec, index: u32) -> Option<(u16, u32)> {
    let mut base = 0u32;
    for (number, step) in (0u16..).zip(&spec.steps) {
        let end = base.checked_add(step.tasks)?;
        if index < end {
            return Some((number, base));
        }
        base = end;
    }
    None
}

#[derive(Default)]
struct HistoryMaker<'a> {
    succeeded: u64,
    failed: u64,
    canceled: u64,
    /// The failures of each job.
    causes: BTreeMap<Cause, BTreeMap<JobId, u64>>,
    /// Failed ones, and all.
    workers: BTreeMap<&'a str, (u64, u64)>,
    durations: [u64; DURATIONS_MS.len() + 1],
}

impl<'a> HistoryMaker<'a> {
    fn add(&mut self, attempt: &'a EndedAttempt) {
        let (failed, tasks) = self.workers.entry(&attempt.worker).or_default();
        *tasks += 1;
        match attempt.outcome {
            Outcome::Succeeded => self.succeeded += 1,
            Outcome::Canceled => self.canceled += 1,
            Outcome::Failed => {
                self.failed += 1;
                *failed += 1;
                let jobs = self.causes.entry(attempt.cause).or_default();
                *jobs.entry(attempt.task.job).or_default() += 1;
            }
        }
        if let Some(ms) = attempt.ran_ms {
            self.durations[DURATIONS_MS.partition_point(|bound| *bound < ms)] += 1;
        }
    }

    fn finish(self, since_ms: u64, expensive: Vec<ExpensiveTask>) -> History {
        let counted = self.causes.into_iter().map(|(cause, jobs)| (jobs.values().sum::<u64>(), cause, jobs));
        let mut causes: Vec<(u64, Cause, BTreeMap<JobId, u64>)> = counted.collect();
        causes.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        causes.truncate(CAUSES_MAX);
        let mut workers: Vec<(&str, (u64, u64))> =
            self.workers.into_iter().filter(|(name, _)| !name.is_empty()).collect();
        workers.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        workers.truncate(WORKERS_TOLD_MAX);
        let worker = |(worker, (failed, tasks)): (&str, (u64, u64))| WorkerRecord {
            worker: worker.to_owned(),
            failed,
            tasks,
        };
        History {
            since_ms,
            tasks: self.succeeded + self.failed + self.canceled,
            succeeded: self.succeeded,
            failed: self.failed,
            canceled: self.canceled,
            failures: causes
                .into_iter()
                .map(|(tasks, cause, jobs)| FailureCause { cause: cause.text(), tasks, jobs: most(jobs) })
                .collect(),
            workers: workers.into_iter().map(worker).collect(),
            durations: Durations { bounds_ms: DURATIONS_MS.to_vec(), tasks: self.durations.to_vec() },
            expensive,
        }
    }
}

/// The jobs with most failures, the most first; of those with as many, the newest.
fn most(jobs: BTreeMap<JobId, u64>) -> Vec<CauseJob> {
    let mut jobs: Vec<CauseJob> =
        jobs.into_iter().map(|(job, tasks)| CauseJob { job: job.0, tasks }).collect();
    jobs.sort_by_key(|cause| std::cmp::Reverse((cause.tasks, cause.job)));
    jobs.truncate(CAUSE_JOBS_MAX);
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::job::StepSpec;

    fn spec(user: &str, step: &str) -> JobSpec {
        let steps = vec![StepSpec { name: step.to_owned(), tasks: u32::MAX, ..StepSpec::default() }];
        JobSpec { user: user.to_owned(), queue: "films".to_owned(), steps, ..JobSpec::default() }
    }

    /// The task of that job and index, which began at 1 s and ran so long on one core. Each job has a worker.
    fn end(attempts: &EndedAttempts, (user, job, index): (&str, u64, u32), end: End, ms: u64) {
        let (task, ns) = (TaskId { job: JobId(job), index }, 1_000_000);
        let state = if end == End::Exited(0) { TaskState::Succeeded } else { TaskState::Failed };
        let result = TaskResult {
            started: Some(Time(1_000 * ns)),
            finished: Some(Time((1_000 + ms) * ns)),
            ..TaskResult::bare(end)
        };
        let mut ring = attempts.0.lock();
        let names = ring.names_of(TaskId { index: 0, ..task }, &spec(user, &format!("step{job}")), 0);
        ring.push(task, (names, format!("box{job}").into()), 100, state, &result, Time(0));
    }

    fn all() -> HistoryQuestion {
        HistoryQuestion { since_ms: 0, worker: None }
    }

    #[test]
    fn what_ended_is_counted_and_the_dearest_is_named() {
        let attempts = EndedAttempts::default();
        end(&attempts, ("anna", 1, 0), End::Exited(0), 5);
        end(&attempts, ("anna", 1, 1), End::Exited(3), 2_000);
        end(&attempts, ("bob", 2, 0), End::OutOfMemory, 40_000);
        end(&attempts, ("bob", 2, 1), End::Exited(3), 10);
        end(&attempts, ("bob", 2, 2), End::Canceled, 10);
        end(&attempts, ("bob", 2, 3), End::Recalled, 10);
        let history = attempts.history(&all(), |_| true);
        assert_eq!((history.tasks, history.succeeded, history.failed, history.canceled), (5, 1, 3, 1));
        let causes: Vec<(&str, u64)> = history.failures.iter().map(|f| (&*f.cause, f.tasks)).collect();
        assert_eq!(causes, [("exit 3", 2), ("oom", 1)]);
        let jobs: Vec<(u64, u64)> = history.failures[0].jobs.iter().map(|of| (of.job, of.tasks)).collect();
        assert_eq!(jobs, [(2, 1), (1, 1)]);
        assert_eq!((history.workers[0].failed, history.workers[0].tasks), (2, 3));
        assert_eq!(history.durations.bounds_ms.len() + 1, history.durations.tasks.len());
        assert_eq!(history.durations.tasks[..9], [3, 0, 0, 0, 0, 1, 0, 0, 1]);
        let dearest = &history.expensive[0];
        assert_eq!((&*dearest.task, &*dearest.step, dearest.ms, dearest.cpus), ("2.0", "step2", 40_000, 1.0));
        // Others' tasks are only counted.
        let own = attempts.history(&all(), |user| user == "anna");
        assert_eq!((own.tasks, own.failures.len()), (5, 2));
        assert!(own.expensive.len() == 2 && own.expensive.iter().all(|task| task.job == 1));
        let late = HistoryQuestion { since_ms: 3_000, worker: Some("box1".to_owned()) };
        assert_eq!(attempts.history(&late, |_| true).tasks, 1);
        let other = HistoryQuestion { worker: Some("other".to_owned()), ..all() };
        assert_eq!(attempts.history(&other, |_| true).tasks, 0);
    }

    #[test]
    fn a_cause_names_the_jobs_with_most_of_its_failures() {
        let attempts = EndedAttempts::default();
        for job in 1..=9 {
            for index in 0..job {
                end(&attempts, ("anna", u64::from(job), index), End::Exited(3), 1);
            }
        }
        let history = attempts.history(&all(), |_| false);
        let jobs: Vec<(u64, u64)> = history.failures[0].jobs.iter().map(|of| (of.job, of.tasks)).collect();
        assert_eq!((history.failures[0].tasks, jobs), (45, vec![(9, 9), (8, 8), (7, 7), (6, 6), (5, 5)]));
    }

    #[test]
    fn no_more_is_remembered_than_may_be() {
        let attempts = EndedAttempts::default();
        for job in 0..ENDED_MAX as u64 + 500 {
            end(&attempts, ("anna", 1_000_000 + job, 0), End::Recalled, job);
            end(&attempts, ("anna", job, 0), End::Exited(0), job);
        }
        assert_eq!(attempts.0.lock().attempts.len(), ENDED_MAX);
        let history = attempts.history(&all(), |_| true);
        assert_eq!((history.tasks, history.since_ms), (ENDED_MAX as u64, 1_500));
        assert_eq!(history.expensive.len(), EXPENSIVE_MAX);
        println!("{} bytes of an attempt", std::mem::size_of::<EndedAttempt>());
        const { assert!(std::mem::size_of::<EndedAttempt>() * ENDED_MAX <= 3 << 20) };
    }
}
