//! Runs: the jobs that hosts have, and their ends.

use crate::format::{Health, Stage};
use crate::number::{number_of, task_of};
use crate::record::{BookedHost, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;
use windlass_api::StepBody;
use windlass_core::job::{End, TaskResult};
use windlass_core::{Epoch, JobId, TaskId, Time};
use windlass_server::WorkerMessage;

/// Seconds after which a host's free memory no longer includes the memory of a job that it got.
const SETTLE_S: u64 = 10;

/// The sender of an update of a job.
pub(crate) enum Speaker {
    /// An administrator, or the job's user.
    Trusted,
    /// The token of the host with this name.
    Host(String),
    /// The job's own token.
    Token(String),
    /// An address, which identifies the bare machine that booted from it.
    Address(IpAddr),
}

/// A job that a host has, or had until the engine heard of its end.
pub(crate) struct Run {
    pub record: Record,
    /// The body of the job's step; `None` until it is read for a run that was taken over from an earlier server.
    pub(super) body: Option<Arc<StepBody>>,
    /// The result for the engine; `None` while the job runs.
    pub(super) told: Option<TaskResult>,
    /// True once the engine has the end durably.
    pub(super) acknowledged: bool,
    pub(super) kill: Option<Kill>,
}

/// All runs, by task and by host.
#[derive(Default)]
pub(crate) struct Runs {
    all: BTreeMap<TaskId, Run>,
    by_host: BTreeMap<String, BTreeSet<JobId>>,
}

impl Runs {
    pub fn get(&self, job: JobId) -> Option<&Run> {
        self.all.get(&task_of(job))
    }

    pub fn get_mut(&mut self, job: JobId) -> Option<&mut Run> {
        self.all.get_mut(&task_of(job))
    }

    pub fn iter(&self) -> impl Iterator<Item = (JobId, &Run)> {
        self.all.iter().map(|(task, run)| (number_of(*task), run))
    }

    /// The numbers of all runs of a job's nodes.
    pub(super) fn of_job(&self, job: JobId) -> impl Iterator<Item = JobId> {
        let nodes = TaskId { job, index: 0 }..=TaskId { job, index: u32::MAX };
        self.all.range(nodes).map(|(task, _)| number_of(*task))
    }

    pub fn on(&self, host: &str) -> impl Iterator<Item = (JobId, &Run)> {
        let jobs = self.by_host.get(host).into_iter().flatten();
        jobs.filter_map(|job| Some((*job, self.get(*job)?)))
    }

    /// The runs on a host that have not ended.
    pub(super) fn open_on(&self, host: &str) -> impl Iterator<Item = (JobId, &Run)> {
        self.on(host).filter(|(_, run)| !run.record.stage.is_end())
    }

    /// Bytes that a host's jobs hold. With `shown_by`, a time in seconds, only of jobs whose memory showed by then.
    pub(super) fn memory_on(&self, host: &str, shown_by: Option<u64>) -> u64 {
        let shown = self.open_on(host).filter(|(_, run)| {
            let at = run.record.times.get("dispatch").copied().unwrap_or(0);
            shown_by.is_none_or(|by| at + SETTLE_S <= by)
        });
        shown.map(|(_, run)| run.place().memory).sum()
    }

    pub(super) fn insert(&mut self, job: JobId, run: Run) {
        self.remove(job);
        self.by_host.entry(run.host().to_owned()).or_default().insert(job);
        self.all.insert(task_of(job), run);
    }

    pub(super) fn remove(&mut self, job: JobId) -> Option<Run> {
        let run = self.all.remove(&task_of(job))?;
        if let Some(jobs) = self.by_host.get_mut(run.host()) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.by_host.remove(run.host());
            }
        }
        Some(run)
    }
}

/// A job that is to end.
pub(super) struct Kill {
    pub reason: KillReason,
    /// When the host was asked to end it, on the present connection.
    pub sent: Option<Instant>,
}

/// Why a job is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KillReason {
    /// The engine cancelled the attempt.
    Unwanted,
    /// The job exceeded the time limit of its stage.
    TooLong,
    /// Its user ended this node of a cluster. The engine was not asked to cancel the job.
    Terminated,
}

impl Run {
    /// True until the job is filled in, before its machine is told of it. Records of earlier releases name no server,
    /// and their machines were told.
    pub(super) fn awaits_filling(&self) -> bool {
        self.record.filled.is_none() && !self.place().reached.server.is_empty()
    }

    pub fn place(&self) -> &BookedHost {
        self.record.place.as_ref().expect("a run has a place")
    }

    pub fn host(&self) -> &str {
        &self.place().host
    }

    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.place().epoch)
    }
}

/// The result of a job for the engine.
pub(super) fn result_of(record: &Record, kill: Option<&Kill>) -> TaskResult {
    let time = |stage: Stage| record.times.get(stage.as_str()).map(|s| Time(s.saturating_mul(1_000_000_000)));
    let end = match Health::to_end(record.health, record.stage) {
        // A job that was told to end and reports no health has not succeeded.
        End::Exited(0) if kill.is_none() || record.health == Some(Health::Success) => End::Exited(0),
        _ if kill.is_some_and(|kill| kill.reason == KillReason::Unwanted) => End::Canceled,
        _ if kill.is_some_and(|kill| kill.reason == KillReason::TooLong) => End::TimeLimit,
        // The end was not requested here. The engine must not run the job again for it.
        End::Canceled => End::Exited(1),
        end => end,
    };
    let failed = end != End::Exited(0);
    TaskResult {
        started: time(Stage::Dispatch),
        finished: time(record.stage),
        message: failed
            .then(|| record.why.clone().or(record.health.map(|health| health.to_string())))
            .flatten(),
        ..TaskResult::bare(end)
    }
}

/// The message that tells the engine of an attempt's end.
pub(super) fn finished(task: TaskId, attempt: u32, epoch: Epoch, result: TaskResult) -> WorkerMessage {
    WorkerMessage::Finished { task, attempt, epoch, result }
}
