//! The ledger: jobs that are active, attempts that are booked or run, and what is remembered of jobs that ended.
//!
//! [`Ledger`] owns these facts and answers for them. The rules that change them are functions of this module's files.
//! One that changes workers, queues or profiles as well gets all of the [`Books`].

pub(crate) mod booking;
pub(crate) mod check;
pub(crate) mod classes;
pub(crate) mod commands;
pub(crate) mod first_tasks;
pub(crate) mod greeting;
pub(crate) mod holding;
pub(crate) mod learning;
pub(crate) mod lease;
pub(crate) mod lend;
pub(crate) mod licensing;
pub(crate) mod lifecycle;
pub(crate) mod records;
pub(crate) mod reload;
pub(crate) mod reports;
pub(crate) mod requests;
pub(crate) mod retire;
pub(crate) mod settings;
pub(crate) mod shares;
pub(crate) mod submit;
pub(crate) mod task_requests;
pub(crate) mod turns;
pub(crate) mod wide;

mod attempt;
mod charge;
mod effects;
mod enlist;
mod hello;
mod mates;
mod recent_outcomes;
mod shortage;
mod spec;

pub use attempt::Attempt;
pub(crate) use attempt::{Charged, Lent, WideTask};
pub use hello::{BadHello, CheckedHello, Held, HeldPhase, Hello, Inventory, Report, SERVABLE};
pub use shares::Processes;
pub use submit::{StartableMachine, Submit};

use crate::ids::{JobId, RequestId, StepKey, TaskId, WorkerId};
use crate::job::{Job, JobRecord, JobState, Step, StepSpec, SubmissionKey};
use crate::licences::LicencePool;
use crate::outbox::{CpuShare, Refusal, Write};
use crate::plan::Planner;
use crate::profiles::Profiles;
use crate::queues::Charge;
use crate::resources::Resources;
use crate::time::Time;
use crate::worker::Successes;
use effects::Effects;
use recent_outcomes::RecentOutcomes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What a change of jobs and attempts may touch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Books {
    pub(crate) ledger: Ledger,
    /// Workers, queues and classes, what rounds remember, and the time.
    pub(crate) plan: Planner,
    /// What earlier tasks teach of the next ones.
    pub(crate) profiles: Profiles,
}

/// What was looked up for an event, by job: what the store has of it, if anything.
pub(crate) type Lookups = BTreeMap<JobId, Option<JobRecord>>;

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Ledger {
    /// What bookings cost their queues.
    pub(crate) charge: Charge,
    /// How long the tasks of a worker that is not heard from may run; `None`: for ever.
    lease_ns: Option<u64>,
    /// Jobs that are remembered, of those that ended and of those that were deleted.
    recent_max: usize,
    /// The number of the next job.
    pub(crate) next_job: u64,
    /// Active jobs that are resident, and jobs whose end is not durable yet.
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// Attempts that are booked or run.
    pub(crate) attempts: BTreeMap<TaskId, Attempt>,
    /// Jobs that come after a job.
    pub(crate) dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Jobs whose tasks come after those of a job, also after that one has ended.
    pub(crate) followers: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Jobs by the key of their submission.
    pub(crate) keys: BTreeMap<SubmissionKey, JobId>,
    /// The ledger may have forgotten keys of jobs with smaller numbers: for these the store answers.
    pub(crate) keys_from: JobId,
    /// Jobs that were deleted lately, the newest of them.
    pub(crate) gone: BTreeSet<JobId>,
    /// What became of jobs that ended lately.
    pub(crate) recent: RecentOutcomes,
    /// Requests that wait until a task has its cpus again.
    pub(crate) reclaims: BTreeMap<TaskId, Vec<RequestId>>,
    /// Steps whose tasks are so short that they are sent ahead, to wait in a worker's backlog.
    pub(crate) short: BTreeSet<StepKey>,
    /// When attempts will have run longer than they were charged for.
    pub(crate) accruals: BTreeSet<(Time, TaskId)>,
    /// Ends that were learned from and are not durable: they come again.
    pub(crate) learned: BTreeSet<(TaskId, u32)>,
    /// Steps of all resident jobs.
    pub(crate) steps: usize,
    /// The limits of the farm, and what attempts take of them.
    pub(crate) licences: LicencePool,
    /// Tasks that succeeded since the engine started.
    successes: Successes,
    /// What workers were told over the link that they have now of the cpus that their tasks with a jobserver share: how
    /// many, in hundredths of a core, and the part of each task.
    pub(crate) shares_told: BTreeMap<WorkerId, (u32, Vec<CpuShare>)>,
    /// Tasks booked in the round under way that can use more cpus.
    pub(crate) wide: Vec<WideTask>,
    /// The turns were restored from the engine before this one, which has charged what is booked.
    pub(crate) turns_continue: bool,
    /// What the other modules have still to look at.
    pub(crate) effects: Effects,
}

impl Ledger {
    /// No jobs. The first one has the number `first_job`, and the outcomes of the last `recent_max` are remembered.
    /// Bookings cost their queues what `charge` says, and leases last for `lease_ns`.
    pub(crate) fn new(first_job: u64, recent_max: usize, charge: Charge, lease_ns: Option<u64>) -> Self {
        Ledger {
            charge,
            lease_ns,
            recent_max,
            next_job: first_job.max(1),
            keys_from: JobId(first_job),
            recent: RecentOutcomes::new(recent_max),
            ..Ledger::default()
        }
    }

    /// True if other jobs wait for this one, or for its tasks.
    pub(crate) fn is_awaited(&self, id: JobId) -> bool {
        [&self.dependents, &self.followers]
            .into_iter()
            .any(|jobs| jobs.get(&id).is_some_and(|waiting| !waiting.is_empty()))
    }

    /// The attempts of a job, by task.
    pub(crate) fn attempts_of(&self, job: JobId) -> impl Iterator<Item = (TaskId, &Attempt)> {
        self.attempts_from(job, 0)
    }

    /// The attempts of those tasks of a job that have an index of at least `from`, by task.
    pub(crate) fn attempts_from(&self, job: JobId, from: u32) -> impl Iterator<Item = (TaskId, &Attempt)> {
        let range = TaskId { job, index: from }..=TaskId { job, index: u32::MAX };
        self.attempts.range(range).map(|(task, attempt)| (*task, attempt))
    }

    /// True if a report is about the attempt that its task has now.
    pub(crate) fn is_current(&self, by: &Report) -> bool {
        self.attempts
            .get(&by.task)
            .is_some_and(|a| a.number == by.attempt && a.worker == by.worker && a.epoch == by.epoch)
    }

    /// What became of a job, as far as the engine remembers.
    pub(crate) fn outcome(&self, id: JobId) -> Option<JobState> {
        if let Some(job) = self.jobs.get(&id) {
            return Some(job.ended.unwrap_or(JobState::Active));
        }
        self.recent.get(id)
    }

    /// An error unless the job is active.
    pub(crate) fn active(&self, id: JobId) -> Result<(), Refusal> {
        match self.jobs.get(&id) {
            None if self.outcome(id).is_some() => Err(Refusal::Ended(id)),
            None => Err(Refusal::NoJob(id)),
            Some(job) if job.ended.is_some() => Err(Refusal::Ended(id)),
            Some(_) => Ok(()),
        }
    }

    /// Those of `after` that are active.
    pub(crate) fn open_among(&self, after: &[JobId]) -> BTreeSet<JobId> {
        after.iter().filter(|id| self.active(**id).is_ok()).copied().collect()
    }

    /// A job was read because a request named it. If it ended so long ago that it is not remembered, the store answers
    /// for its key again.
    pub(crate) fn leave_key_to_store(&mut self, id: JobId) {
        let Some(spec) = self.jobs.get(&id).map(|job| job.spec.clone()) else { return };
        if let Some(key) = spec.key.clone().filter(|_| self.recent.get(id).is_none()) {
            self.forget_key(id, &(spec.user.clone(), key));
        }
    }

    /// Remembers how a job ended. Where that is one too many, the job that ended first is forgotten with its key.
    pub(crate) fn remember_end(&mut self, id: JobId, state: JobState, key: Option<SubmissionKey>) {
        if let Some((old, key)) = self.recent.push(id, state, key)
            && self.keys.get(&key) == Some(&old)
        {
            self.forget_key(old, &key);
        }
    }

    /// From now on the store alone answers for the key of a job.
    pub(crate) fn forget_key(&mut self, id: JobId, key: &SubmissionKey) {
        self.keys.remove(key);
        self.keys_from = self.keys_from.max(JobId(id.0 + 1));
    }

    /// The first step of a job that has ready tasks.
    pub(crate) fn first_ready(&self, id: JobId) -> Option<StepKey> {
        let step = self.jobs.get(&id)?.steps.iter().position(|step| !step.ready.is_empty())?;
        Some(StepKey { job: id, step: step as u16 })
    }

    /// A step of an active job.
    pub(crate) fn step(&self, key: StepKey) -> Option<&Step> {
        self.jobs.get(&key.job)?.steps.get(usize::from(key.step))
    }

    /// A step of an active job, as submitted.
    pub(crate) fn spec_of(&self, key: StepKey) -> Option<&StepSpec> {
        self.jobs.get(&key.job)?.spec.steps.get(usize::from(key.step))
    }

    /// The step of a task; step 0 of a job that is not there.
    pub(crate) fn key_of(&self, task: TaskId) -> StepKey {
        let step = self.jobs.get(&task.job).map_or(0, |job| job.step_of(task.index));
        StepKey { job: task.job, step }
    }

    /// What an attempt of the task holds while it runs; nothing of a task that is not booked.
    pub(crate) fn request_of(&self, task: TaskId) -> Resources {
        self.attempts.get(&task).map_or_else(Resources::default, |attempt| attempt.request.clone())
    }

    /// Predicted run time of a task in milliseconds; 0 where nothing is known.
    pub(crate) fn predicted_ms(&self, task: TaskId) -> f64 {
        self.step(self.key_of(task)).and_then(|s| s.mean_ms).unwrap_or(0.0)
    }
}

/// Ends that are not durable.
impl Ledger {
    /// Ends that are not durable come again, and teach nothing then.
    pub(crate) fn learned_early<'a>(&mut self, writes: impl IntoIterator<Item = &'a Write>) {
        self.learned.extend(writes.into_iter().filter_map(|write| match write {
            Write::End { task, attempt, .. } | Write::Requeued { task, attempt, .. } => {
                Some((*task, *attempt))
            }
            _ => None,
        }));
    }

    /// A job ended and that is durable: its ends do not come again.
    pub(crate) fn forget_learned(&mut self, job: JobId) {
        let done: Vec<_> = self.learned.range(all_ends(job)).copied().collect();
        done.iter().for_each(|end| _ = self.learned.remove(end));
    }

    /// A job was read from the store. Of what was learned early, an end that turns out to be durable does not come
    /// again: the commit that was thought to have failed had not.
    pub(crate) fn forget_ended(&mut self, job: JobId) {
        let is_open = |(task, number): &(TaskId, u32)| {
            self.attempts.get(task).is_some_and(|attempt| attempt.number == *number)
        };
        let ended: Vec<_> = self.learned.range(all_ends(job)).filter(|end| !is_open(end)).copied().collect();
        ended.iter().for_each(|end| _ = self.learned.remove(end));
    }
}

/// All ends of a job's attempts.
fn all_ends(job: JobId) -> RangeInclusive<(TaskId, u32)> {
    (TaskId { job, index: 0 }, 0)..=(TaskId { job, index: u32::MAX }, u32::MAX)
}
