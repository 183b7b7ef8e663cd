//! Conversion between the messages of the keeper and the worker protocol of `windlass-api`. `remote` uses it
//! in both directions. It is pure, and drops what it cannot express.

use crate::agent::FromAgent;
use crate::protocol::{Held, HeldPhase, Nodes, Rider, TaskRef, ToKeeper, WireEnd, WireResult};
use windlass_api::wire::{
    self, Beat, Caches, Finished, Hello, Inventory, Lost, Progress, Reclaimed, Report, Start, Started, Task,
    attributes_to_wire, finished, held, report,
};
use windlass_core::Resources;
use windlass_core::tags::Attributes;

/// A worker's description of itself, which its hello carries.
pub struct Introduction<'a> {
    /// The worker's name, unique on the farm.
    pub name: &'a str,
    /// Number that tells this machine from another with the same name.
    pub identity: u64,
    /// The amounts that tasks may use together.
    pub capacity: &'a Resources,
    /// Detected attributes and the tags of the operator.
    pub attributes: &'a Attributes,
}

/// A report for the server.
pub fn report_to_wire(message: FromAgent, worker: &Introduction<'_>) -> Report {
    use report::What;
    let what = match message {
        FromAgent::Hello { incarnation, seq, held, sent, fences, .. } => What::Hello(Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: worker.name.to_owned(),
            identity: worker.identity,
            incarnation,
            fences,
            sent,
            capacity: Some(worker.capacity.clone().into()),
            attributes: attributes_to_wire(worker.attributes),
            inventory: Some(inventory(seq, held)),
        }),
        FromAgent::Beat { sent, seq, held } => {
            What::Beat(Beat { sent, inventory: Some(inventory(seq, held)) })
        }
        FromAgent::Lost => What::Lost(Lost {}),
        FromAgent::Started { task, epoch, at } => {
            What::Started(Started { task: Some(task_to_wire(task)), epoch, at })
        }
        FromAgent::Finished { task, epoch, result } => What::Finished(finished_to_wire(task, epoch, result)),
        FromAgent::Progress { task, epoch, percent, status } => {
            What::Progress(Progress { task: Some(task_to_wire(task)), epoch, percent, status })
        }
        FromAgent::Load(report) => What::Load((*report).into()),
        FromAgent::Caches(keys) => What::Caches(Caches::from(keys)),
        FromAgent::Reclaimed { task, epoch } => {
            What::Reclaimed(Reclaimed { task: Some(task_to_wire(task)), epoch })
        }
    };
    Report { what: Some(what) }
}

fn inventory(seq: u64, all: Vec<Held>) -> Inventory {
    let held = all.into_iter().map(|Held { task, phase }| {
        let (phase, started) = match phase {
            HeldPhase::Queued => (held::Phase::Queued, 0),
            HeldPhase::Running(at) => (held::Phase::Running, at),
            HeldPhase::Lent(at) => (held::Phase::Lent, at),
            HeldPhase::Ended => (held::Phase::Ended, 0),
            HeldPhase::Unknown => (held::Phase::Unknown, 0),
        };
        wire::Held { task: Some(task_to_wire(task)), phase: phase.into(), started }
    });
    Inventory { seq, held: held.collect() }
}

fn finished_to_wire(task: TaskRef, epoch: u64, result: WireResult) -> Finished {
    use finished::{End, Other};
    let end = match result.end {
        WireEnd::Exited(code) => End::Exited(code),
        WireEnd::Signaled(signal) => End::Signaled(signal),
        WireEnd::NotStarted(why) => End::NotStarted(why),
        WireEnd::TimeLimit => End::Other(Other::TimeLimit.into()),
        WireEnd::OutOfMemory => End::Other(Other::OutOfMemory.into()),
        WireEnd::Canceled => End::Other(Other::Canceled.into()),
        WireEnd::Recalled => End::Other(Other::Recalled.into()),
        WireEnd::Fenced => End::Other(Other::Fenced.into()),
        WireEnd::Unknown => End::Other(Other::Unknown.into()),
    };
    Finished {
        task: Some(task_to_wire(task)),
        epoch,
        end: Some(end),
        started: result.started,
        finished: result.finished,
        cpu_ms: result.cpu_ms,
        peak_memory: result.peak_memory,
        out_bytes: result.out_bytes,
        err_bytes: result.err_bytes,
        message: result.message,
        disk_bytes: result.disk_bytes,
        job_at_fault: result.job_at_fault,
    }
}

/// A start for the keeper; `None` if it lacks the attempt or the request.
pub fn start_from_wire(start: Start, epoch: u64, seq: u64) -> Option<ToKeeper> {
    Some(ToKeeper::Start {
        task: task_from_wire(start.task?),
        step: u16::try_from(start.step).ok()?,
        epoch,
        seq,
        request: Resources::from(start.request?).into(),
        memory_limit: start.memory_limit,
        time_limit_ms: start.time_limit_ms,
        value: start.value,
        params: start.values.into_iter().map(Into::into).collect(),
        riders: start.riders.into_iter().map(|r| Rider { index: r.index, attempt: r.attempt }).collect(),
        chunk_values: start.chunk_values,
        nodes: start.nodes.map(|nodes| Nodes { rank: nodes.rank, workers: nodes.workers }),
        network_bound: start.network_bound,
    })
}

pub fn task_from_wire(task: Task) -> TaskRef {
    TaskRef { job: task.job, index: task.index, attempt: task.attempt }
}

fn task_to_wire(task: TaskRef) -> Task {
    Task { job: task.job, index: task.index, attempt: task.attempt }
}
