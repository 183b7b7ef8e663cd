//! The rows of the lists: workers, jobs, queues and tasks, with the fields that are shown.

use crate::commands::list::{how_ended, progress};
use crate::commands::top::list::{ColumnSpec, Listed};
use serde::Deserialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use windlass_api::board::ServerLoad;
use windlass_api::figures::QueueCpus;
use windlass_api::{Counts, Job, JobState, Queue, Task, TaskState, WorkerState};

/// A worker as the board's list has it, with no more than is shown here. Queues and a note are absent where the server is
/// of an earlier release.
#[derive(Clone, Debug, Deserialize)]
pub struct SeenWorker {
    pub name: String,
    /// Whether it gets new work.
    pub state: WorkerState,
    /// Tasks that run there, prefetched tasks, and allocations of outside clients.
    pub assigned_jobs: usize,
    /// Cpus that it declares.
    pub cpus: f64,
    /// When it was last heard from; `None` for a worker without heartbeats.
    pub heard_at: Option<u64>,
    /// The queues that hold most of its cpus, the most first.
    #[serde(default)]
    pub queues: Vec<QueueCpus>,
    /// The note that was given when it was drained.
    #[serde(default)]
    pub note: Option<String>,
}

#[derive(Clone, Debug)]
pub struct WorkerRow {
    pub seen: SeenWorker,
    /// Cpus that are booked; `None` for a worker without cpus.
    pub booked: Option<f64>,
    /// Percent of time with stalls for a cpu, memory, and input and output.
    pub pressure: [Option<f64>; 3],
    /// The load by which workers are compared.
    pub load: Option<f64>,
    /// Why it gets no work; `None` if it does.
    pub reason: Option<String>,
}

impl WorkerRow {
    /// Joins the two lists by name. They are of two moments, and the state of the first is what keys act on: that the
    /// worker was draining in the other one is not told.
    pub fn join(seen: Vec<SeenWorker>, loads: Vec<ServerLoad>) -> Vec<WorkerRow> {
        let mut loads: BTreeMap<String, ServerLoad> =
            loads.into_iter().map(|load| (load.server_id.clone(), load)).collect();
        let row = |seen: SeenWorker| {
            let load = loads.remove(&seen.name);
            let booked = load.as_ref().and_then(|load| Some(load.job_load? * load.num_cpus));
            let pressure =
                load.as_ref().map(|load| [load.cpu_pressure, load.memory_pressure, load.io_pressure]);
            let reason = load.as_ref().and_then(|load| load.reason.clone());
            let reason = reason.filter(|reason| !reason.starts_with(WorkerState::Draining.as_str()));
            let effective = load.and_then(|load| load.effective_load);
            WorkerRow { seen, booked, pressure: pressure.unwrap_or_default(), load: effective, reason }
        };
        seen.into_iter().map(row).collect()
    }

    /// Why it gets no work, in a few words; empty if it does.
    pub fn why(&self) -> String {
        let state = self.seen.state.as_str();
        match (self.seen.state, &self.seen.note, &self.reason) {
            (WorkerState::Up, _, None) => String::new(),
            (WorkerState::Up, _, Some(reason)) => reason.clone(),
            (WorkerState::Draining, Some(note), _) => format!("{state}: {note}"),
            _ => state.to_owned(),
        }
    }
}

const fn column(title: &'static str, width: u16, most: u16, right: bool, rank: u8) -> ColumnSpec {
    ColumnSpec { title, width, most, right, rank }
}

/// `None` stands behind all numbers.
fn numbers(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

impl Listed for WorkerRow {
    const COLUMNS: &'static [ColumnSpec] = &[
        column("NAME", 11, 30, false, 0),
        column("JOBS", 10, 34, false, 0),
        column("SLOTS", 7, 7, true, 0),
        column("TASKS", 5, 5, true, 4),
        column("PCPU", 4, 4, true, 1),
        column("PMEM", 4, 4, true, 1),
        column("PIO", 4, 4, true, 1),
        column("LOAD", 4, 4, true, 2),
        column("BEAT", 4, 4, true, 2),
        column("WHY NO WORK", 20, 100, false, 1),
    ];
    type Id = String;

    fn id(&self) -> String {
        self.seen.name.clone()
    }

    fn field(&self, key: &str) -> Option<&str> {
        match key {
            "name" => Some(&self.seen.name),
            "state" => Some(self.seen.state.as_str()),
            _ => None,
        }
    }

    fn name(&self) -> &str {
        &self.seen.name
    }

    /// Numbers that are greatest stand first: those are looked for.
    fn compare(&self, other: &Self, column: usize) -> Ordering {
        let part = |row: &WorkerRow| Some(row.booked? / row.seen.cpus);
        match column {
            0 => self.seen.name.cmp(&other.seen.name),
            1 => numbers(part(self), part(other)),
            2 => numbers(Some(self.seen.cpus), Some(other.seen.cpus)),
            3 => other.seen.assigned_jobs.cmp(&self.seen.assigned_jobs),
            4..=6 => numbers(self.pressure[column - 4], other.pressure[column - 4]),
            7 => numbers(self.load, other.load),
            8 => self.seen.heard_at.cmp(&other.seen.heard_at),
            _ => (self.why().is_empty(), self.why()).cmp(&(other.why().is_empty(), other.why())),
        }
    }
}

#[derive(Clone, Debug)]
pub struct JobRow {
    pub id: u64,
    pub name: String,
    pub queue: String,
    pub user: String,
    pub priority: i32,
    pub state: JobState,
    pub counts: Counts,
    /// When it was accepted.
    pub created_ms: u64,
}

impl From<Job> for JobRow {
    fn from(job: Job) -> Self {
        let Job { id, name, queue, user, priority, state, counts, created_ms, .. } = job;
        JobRow { id, name, queue, user, priority, state, counts, created_ms }
    }
}

impl JobRow {
    /// The part of its tasks that succeeded, from 0 to 1.
    pub fn done(&self) -> f64 {
        f64::from(self.counts.succeeded) / f64::from(self.counts.total.max(1))
    }
}

impl Listed for JobRow {
    const COLUMNS: &'static [ColumnSpec] = &[
        column("ID", 6, 7, true, 0),
        column("STATE", 9, 9, false, 0),
        column("NAME", 9, 60, false, 0),
        column("PROGRESS", 10, 40, false, 0),
        column("DONE", 13, 17, true, 5),
        column("RUN", 5, 5, true, 1),
        column("FAIL", 5, 5, true, 1),
        column("QUEUE", 8, 20, false, 1),
        column("USER", 6, 14, false, 2),
        column("AGE", 4, 4, true, 1),
        column("PRI", 4, 4, true, 3),
    ];
    type Id = u64;

    fn id(&self) -> u64 {
        self.id
    }

    fn field(&self, key: &str) -> Option<&str> {
        match key {
            "name" => Some(&self.name),
            "state" => Some(self.state.as_str()),
            "queue" => Some(&self.queue),
            "user" => Some(&self.user),
            _ => None,
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn compare(&self, other: &Self, column: usize) -> Ordering {
        match column {
            1 => self.state.as_str().cmp(other.state.as_str()),
            2 => self.name.cmp(&other.name),
            3 => numbers(Some(self.done()), Some(other.done())),
            4 => other.counts.total.cmp(&self.counts.total),
            5 => other.counts.running.cmp(&self.counts.running),
            6 => other.counts.failed.cmp(&self.counts.failed),
            7 => self.queue.cmp(&other.queue),
            8 => self.user.cmp(&other.user),
            9 => self.created_ms.cmp(&other.created_ms),
            10 => other.priority.cmp(&self.priority),
            _ => other.id.cmp(&self.id),
        }
    }
}

#[derive(Clone, Debug)]
pub struct QueueRow(pub Queue);

impl Listed for QueueRow {
    const COLUMNS: &'static [ColumnSpec] = &[
        column("NAME", 10, 40, false, 0),
        column("BAND", 4, 4, true, 3),
        column("WEIGHT", 6, 7, true, 0),
        column("RUNNING", 7, 8, true, 0),
        column("CPUS", 6, 8, true, 1),
        column("WAITING", 8, 9, true, 0),
        column("DEMAND", 7, 9, true, 1),
        column("ENTITLED", 8, 9, true, 0),
        column("PAUSED", 10, 100, false, 0),
    ];
    type Id = String;

    fn id(&self) -> String {
        self.0.name.clone()
    }

    fn field(&self, key: &str) -> Option<&str> {
        match key {
            "name" => Some(&self.0.name),
            "state" => Some(if self.0.paused.is_some() { "paused" } else { "open" }),
            _ => None,
        }
    }

    fn name(&self) -> &str {
        &self.0.name
    }

    fn compare(&self, other: &Self, column: usize) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        match column {
            1 => b.band.cmp(&a.band),
            2 => b.weight.cmp(&a.weight),
            3 => b.running.cmp(&a.running),
            4 => numbers(Some(a.running_cpus), Some(b.running_cpus)),
            5 => b.waiting.cmp(&a.waiting),
            6 => numbers(a.demand_cpus, b.demand_cpus),
            7 => numbers(a.entitled_cpus, b.entitled_cpus),
            8 => b.paused.cmp(&a.paused),
            _ => a.name.cmp(&b.name),
        }
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct TaskRow {
    /// The task's id, `JOB.INDEX`.
    pub id: String,
    pub index: u32,
    /// Its state; `None` where only the id is known.
    pub state: Option<TaskState>,
    /// Its value, or the name of its step.
    pub what: String,
    pub worker: Option<String>,
    pub attempt: u32,
    /// The end of the last attempt, in words.
    pub ended: String,
    /// When that started and ended.
    pub ran: (Option<u64>, Option<u64>),
    /// Most bytes of memory that it held.
    pub peak_bytes: Option<u64>,
    /// The progress that the task reported, in words.
    pub progress: String,
}

impl From<Task> for TaskRow {
    fn from(task: Task) -> Self {
        let ended = how_ended(&task.attempt);
        // Only a task that is booked or runs has progress, and only a failed one a failure.
        let failure = task.failure.as_ref().map(|failure| failure.summary.clone());
        let progress = failure.unwrap_or_else(|| progress(&task));
        TaskRow {
            index: task.index,
            state: Some(task.state),
            what: task.value.unwrap_or(task.step),
            worker: task.attempt.worker,
            attempt: task.attempt.attempt,
            ended,
            ran: (task.attempt.started_ms, task.attempt.finished_ms),
            peak_bytes: task.attempt.peak_memory,
            progress,
            id: task.id,
        }
    }
}

impl TaskRow {
    /// A task of which only the id is known.
    pub fn named(id: String) -> Self {
        let index = id.split_once('.').and_then(|(_, index)| index.parse().ok()).unwrap_or_default();
        let unknown = "-".to_owned();
        TaskRow { id, index, ended: unknown.clone(), progress: unknown, ..TaskRow::default() }
    }
}

impl Listed for TaskRow {
    const COLUMNS: &'static [ColumnSpec] = &[
        column("TASK", 10, 14, true, 0),
        column("STATE", 9, 9, false, 0),
        column("VALUE", 8, 60, false, 1),
        column("WORKER", 8, 30, false, 0),
        column("TRY", 3, 3, true, 2),
        column("EXIT", 6, 14, false, 0),
        column("TIME", 7, 8, true, 0),
        column("MEMORY", 8, 9, true, 1),
        column("PROGRESS", 8, 40, false, 3),
    ];
    type Id = String;

    fn id(&self) -> String {
        self.id.clone()
    }

    fn field(&self, key: &str) -> Option<&str> {
        match key {
            "state" => self.state.map(TaskState::as_str),
            "worker" => self.worker.as_deref(),
            _ => None,
        }
    }

    fn name(&self) -> &str {
        &self.what
    }

    fn compare(&self, other: &Self, column: usize) -> Ordering {
        let took = |row: &TaskRow| Some(row.ran.1?.saturating_sub(row.ran.0?));
        match column {
            1 => self.state.cmp(&other.state),
            2 => self.what.cmp(&other.what),
            3 => self.worker.cmp(&other.worker),
            4 => other.attempt.cmp(&self.attempt),
            5 => other.ended.cmp(&self.ended),
            6 => took(other).cmp(&took(self)),
            7 => other.peak_bytes.cmp(&self.peak_bytes),
            8 => other.progress.cmp(&self.progress),
            _ => self.index.cmp(&other.index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The two lists are of two moments, and a person acts on what the row says.
    #[test]
    fn a_row_says_that_its_worker_is_draining_only_where_d_would_resume_it() {
        let row = |state: &str, note: Option<&str>, reason: &str| {
            let seen = json!({"name": "box", "state": state, "assigned_jobs": 0, "cpus": 1.0, "heard_at": null, "note": note});
            let load = json!({"server_id": "box", "num_cpus": 1.0, "jobs_assigned": 0, "job_load": 0.0, "cpu_pressure": null,
                "memory_pressure": null, "io_pressure": null, "network_use": null, "state_free_bytes": null,
                "session_free_bytes": null, "cache_free_bytes": null, "effective_load": null, "accepting_jobs": false,
                "reason": reason});
            let of = |value| serde_json::from_value(value).unwrap();
            let seen: SeenWorker = serde_json::from_value(seen).unwrap();
            WorkerRow::join(vec![seen], vec![of(load)]).remove(0).why()
        };
        assert_eq!(row("up", None, "draining: hot"), "", "drained or resumed in between");
        assert_eq!(row("up", None, "draining"), "");
        assert_eq!(row("draining", Some("hot"), "its cpus are all booked"), "draining: hot");
        assert_eq!(row("up", None, "its cpus are all booked"), "its cpus are all booked");
    }
}
