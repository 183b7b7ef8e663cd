//! The worker protocol: messages generated from `proto/windlass/worker/v1/worker.proto`, and their conversions to and
//! from the core's types.
//!
//! A message that lacks a required field is ignored.

#[allow(missing_docs, clippy::all, clippy::pedantic)]
mod generated {
    include!("generated/windlass.worker.v1.rs");
}

/// Converts two structs with the same fields into each other. `field.map` is an option whose value is converted, too.
macro_rules! same_fields {
    ($core:ty, $message:ty: $($field:ident $(. $each:ident)?),+) => {
        impl From<$core> for $message {
            fn from(from: $core) -> Self {
                Self { $($field: from.$field $(.$each(Into::into))?),+ }
            }
        }

        impl From<$message> for $core {
            fn from(from: $message) -> Self {
                Self { $($field: from.$field $(.$each(Into::into))?),+ }
            }
        }
    };
}

mod load;

pub use generated::*;
pub use load::BadLoad;

use crate::session::TaskValue;
use crate::task::{HeldBack, JobserverUse};
use crate::wire::{held::Phase, order::What};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{self, CpuShare as CoreShare, HeldPhase, WorkerCommand as CoreOrder};
use windlass_core::job::{self as core, End as CoreEnd, Hints, LaunchFault, TaskResult};
use windlass_core::tags::Attributes;
use windlass_core::{JobId, Resources, TaskId, Time, bounds};

/// Most jobs of one question about old output.
pub const OUTPUTS_MAX: usize = 1_024;
/// Most bytes that are kept of a text for people.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// Why a worker's hello or inventory cannot be read.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMessage {
    #[error("the worker does not say {0}")]
    Lacks(&'static str),
    #[error("attempts: {0} is more than the limit of {max}", max = bounds::HELD_MAX)]
    Held(usize),
    #[error("the worker says that it saw message {0}, and no message has that number")]
    Seq(u64),
}

/// Cuts a text for people to [`TEXT_BYTES_MAX`] bytes.
pub fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

impl Task {
    /// The attempt of a task.
    pub fn new(task: TaskId, attempt: u32) -> Self {
        Task { job: task.job.0, index: task.index, attempt }
    }

    /// The task and the attempt's number.
    pub fn key(&self) -> (TaskId, u32) {
        (TaskId { job: JobId(self.job), index: self.index }, self.attempt)
    }
}

same_fields!(TaskValue, Value: name, value, raw);

impl From<Resources> for Amounts {
    fn from(from: Resources) -> Self {
        let Resources { cpu, memory, gpus, gpu_memory, custom } = from;
        Amounts { cpu, memory, gpus, gpu_memory, custom: custom.into_iter().collect() }
    }
}

impl From<Amounts> for Resources {
    fn from(from: Amounts) -> Self {
        let Amounts { cpu, memory, gpus, gpu_memory, custom } = from;
        Resources { cpu, memory, gpus, gpu_memory, custom: custom.into_iter().collect() }
    }
}

/// The message with the attributes.
pub fn attributes_to_wire(from: &Attributes) -> Vec<Attribute> {
    let each = from.iter();
    each.map(|(key, values)| Attribute { key: key.clone(), values: values.iter().cloned().collect() })
        .collect()
}

impl Hello {
    /// The hello for the engine, on a new connection. It is to be checked: see
    /// [`CheckedHello`](engine::CheckedHello).
    pub fn into_core(self) -> Result<engine::Hello, BadMessage> {
        let zero = [(self.identity, "which machine it is"), (self.incarnation, "which keeper it has")];
        if let Some((_, what)) =
            zero.into_iter().find(|(number, _)| *number == 0 || *number > i64::MAX as u64)
        {
            return Err(BadMessage::Lacks(what));
        }
        let capacity = self.capacity.ok_or(BadMessage::Lacks("what it has"))?.into();
        let attributes = self.attributes.into_iter();
        let attributes: BTreeMap<String, BTreeSet<String>> =
            attributes.map(|Attribute { key, values }| (key, values.into_iter().collect())).collect();
        Ok(engine::Hello {
            name: self.name,
            identity: self.identity,
            incarnation: self.incarnation,
            fences: self.fences,
            sent: self.sent,
            new_link: true,
            capacity,
            attributes,
            inventory: self.inventory.unwrap_or_default().into_core()?,
        })
    }
}

impl Inventory {
    /// The inventory for the engine. Entries without a task are ignored. One in a phase of a later release is there all
    /// the same: the engine must not take it for lost.
    pub fn into_core(self) -> Result<engine::Inventory, BadMessage> {
        if self.held.len() > bounds::HELD_MAX {
            return Err(BadMessage::Held(self.held.len()));
        }
        // The next message has the number after it.
        if self.seq > i64::MAX as u64 {
            return Err(BadMessage::Seq(self.seq));
        }
        let held = self.held.iter().filter_map(|held| {
            let (task, attempt) = held.task.as_ref()?.key();
            let phase = match held.phase() {
                Phase::Unknown => HeldPhase::Unknown,
                Phase::Queued => HeldPhase::Queued,
                Phase::Running => HeldPhase::Running(Time(held.started)),
                Phase::Lent => HeldPhase::Lent(Time(held.started)),
                Phase::Ended => HeldPhase::Ended,
            };
            Some(engine::Held { task, attempt, phase })
        });
        Ok(engine::Inventory { seq: self.seq, held: held.collect() })
    }
}

impl Finished {
    /// The attempt's result for the engine.
    pub fn result(self) -> TaskResult {
        let unknown = finished::End::Other(finished::Other::Unknown.into());
        let fault = if self.job_at_fault { LaunchFault::Job } else { LaunchFault::Worker };
        let end = match self.end.unwrap_or(unknown) {
            finished::End::Exited(code) => CoreEnd::Exited(code),
            finished::End::Signaled(signal) => CoreEnd::Signaled(signal),
            finished::End::NotStarted(why) => CoreEnd::NotStarted { why: cut(why), fault },
            finished::End::OutputsLost(why) => CoreEnd::OutputsLost { why: cut(why), fault },
            finished::End::Other(other) => match finished::Other::try_from(other).unwrap_or_default() {
                finished::Other::TimeLimit => CoreEnd::TimeLimit,
                finished::Other::OutOfMemory => CoreEnd::OutOfMemory,
                finished::Other::Canceled => CoreEnd::Canceled,
                finished::Other::Recalled => CoreEnd::Recalled,
                finished::Other::Fenced => CoreEnd::Lost,
                // A later release may report an end that this one does not know: the attempt failed.
                finished::Other::Unknown => CoreEnd::NotStarted {
                    why: "it ended in a way that this server does not know".to_owned(),
                    fault: LaunchFault::Unknown,
                },
            },
        };
        TaskResult {
            end,
            started: self.started.map(Time),
            finished: self.finished.map(Time),
            cpu_ms: self.cpu_ms,
            peak_memory: self.peak_memory,
            disk_bytes: self.disk_bytes,
            out_bytes: self.out_bytes,
            err_bytes: self.err_bytes,
            message: self.message.map(cut),
            token_cpu_ms: self.token_cpu_ms,
            process_memory: self.process_memory,
        }
    }
}

/// The message with an order. The caller sends a start's body before it, and fills in its value and what is known of
/// its step.
pub fn order_to_wire(seq: u64, order: CoreOrder) -> Order {
    let what = match order {
        CoreOrder::Registered { epoch } => What::Welcome(Welcome { epoch: epoch.0 }),
        CoreOrder::Lease { sent, lasts_ns } => What::Lease(Lease { sent, lasts_ns }),
        CoreOrder::Start {
            task,
            step,
            attempt,
            request,
            headroom_bytes,
            memory_limit,
            time_limit_ms,
            gang,
            riders,
        } => What::Start(Start {
            task: Some(Task::new(task, attempt)),
            step: step.into(),
            request: Some(request.into()),
            time_limit_ms,
            value: None,
            values: Vec::new(),
            memory_limit: Some(memory_limit.unwrap_or(0)),
            nodes: gang.map(|gang| Nodes { rank: gang.rank, workers: gang.workers }),
            riders: riders.into_iter().map(|(index, attempt)| Rider { index, attempt }).collect(),
            chunk_values: Vec::new(),
            network_bound: false,
            jobserver: None,
            headroom: headroom_bytes,
        }),
        CoreOrder::Kill { task, attempt } => What::Kill(Task::new(task, attempt)),
        CoreOrder::Recall { task, attempt } => What::Recall(Task::new(task, attempt)),
        CoreOrder::Ack { task, attempt } => What::Ack(Task::new(task, attempt)),
        CoreOrder::Lend { task, attempt } => What::Lend(Task::new(task, attempt)),
        CoreOrder::Reclaim { task, attempt } => What::Reclaim(Task::new(task, attempt)),
        CoreOrder::ShareCpus { cpu, shares } => {
            What::ShareCpus(ShareCpus { cpu, shares: shares.into_iter().map(share_to_wire).collect() })
        }
        CoreOrder::Resync => What::Resync(Resync {}),
    };
    Order { seq, what: Some(what) }
}

fn share_to_wire(share: CoreShare) -> CpuShare {
    CpuShare { task: Some(Task::new(share.task, share.attempt)), weight: share.weight }
}

impl Jobserver {
    /// The jobserver of a step's tasks; `None` of a step without one.
    pub fn of_step(hints: &Hints) -> Option<Jobserver> {
        let form = match hints.jobserver? {
            core::Jobserver::Auto => jobserver::Form::Auto,
            core::Jobserver::Fifo => jobserver::Form::Fifo,
            core::Jobserver::Pipes => jobserver::Form::Pipes,
        };
        // A part of a core is a process, too.
        let processes_max = hints.cpus_max.map(|cpu| cpu.div_ceil(100).max(1));
        Some(Jobserver { form: form.into(), processes_max })
    }
}

impl Cpus {
    /// What it says of its task.
    pub fn to_use(self) -> JobserverUse {
        let held_back = match self.held_back() {
            cpus::HeldBack::Nothing => None,
            cpus::HeldBack::Memory => Some(HeldBack::Memory),
            cpus::HeldBack::Pressure => Some(HeldBack::Pressure),
        };
        JobserverUse { share: self.share, used: self.used, wants: self.wants, held_back }
    }
}

impl Order {
    /// The encoded size in bytes.
    pub fn bytes(&self) -> usize {
        prost::Message::encoded_len(self)
    }

    /// An order without a sequence number.
    pub fn plain(what: What) -> Self {
        Order { seq: 0, what: Some(what) }
    }
}
