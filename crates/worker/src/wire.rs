//! Conversion between the keeper's messages and the worker protocol of `windlass-api`. An agent speaks the messages of
//! that protocol to its server, also where the server is in the same process. This module is pure, and drops what it
//! cannot express.

use crate::protocol::{
    FromKeeper, Held, HeldBack, HeldPhase, JobserverForm, JobserverSpec, Nodes, Rider, StartMessage,
    TaskCommand, TaskShare, ToKeeper, WireEnd, WireResult,
};
use windlass_api::wire::{
    self, Beat, Cpus, Finished, Inventory, Jobserver, Order, Progress, Reclaimed, ShareCpus, Start, Started,
    Task, cpus, finished, held, jobserver, order, report,
};
use windlass_core::Resources;

/// The report of a keeper's message. `None` if it has none: what tasks fetched is the agent's to count, files are the
/// agent's to fetch and keep, and the answer to a hello is a part of the agent's own.
pub fn report_of(message: FromKeeper) -> Option<report::What> {
    use report::What;
    Some(match message {
        FromKeeper::Beat { sent, seq, held } => {
            What::Beat(Beat { sent, inventory: Some(inventory(seq, held)) })
        }
        FromKeeper::Started { task, epoch, at } => {
            What::Started(Started { task: Some(task.into()), epoch, at })
        }
        FromKeeper::Finished { task, epoch, result } => {
            What::Finished(finished_to_wire(task.into(), epoch, result))
        }
        FromKeeper::Progress { task, epoch, percent, status } => {
            What::Progress(Progress { task: Some(task.into()), epoch, percent, status })
        }
        FromKeeper::Reclaimed { task, epoch } => {
            What::Reclaimed(Reclaimed { task: Some(task.into()), epoch })
        }
        FromKeeper::Cpus { task, epoch, share, used, wants, held_back } => {
            let held_back = match held_back {
                None => cpus::HeldBack::Nothing,
                Some(HeldBack::Memory) => cpus::HeldBack::Memory,
                Some(HeldBack::Pressure) => cpus::HeldBack::Pressure,
            };
            let (task, held_back) = (Some(task.into()), held_back.into());
            What::Cpus(Cpus { task, epoch, share, used, wants, held_back })
        }
        FromKeeper::State { .. }
        | FromKeeper::Fetched { .. }
        | FromKeeper::Prepare { .. }
        | FromKeeper::Collect { .. }
        | FromKeeper::Discard { .. } => return None,
    })
}

/// The inventory of a keeper that has seen messages up to number `seq`.
pub fn inventory(seq: u64, all: Vec<Held>) -> Inventory {
    let held = all.into_iter().map(|Held { task, phase }| {
        let (phase, started) = match phase {
            HeldPhase::Queued => (held::Phase::Queued, 0),
            HeldPhase::Running(at) => (held::Phase::Running, at),
            HeldPhase::Lent(at) => (held::Phase::Lent, at),
            HeldPhase::Ended => (held::Phase::Ended, 0),
            HeldPhase::Unknown => (held::Phase::Unknown, 0),
        };
        wire::Held { task: Some(task.into()), phase: phase.into(), started }
    });
    Inventory { seq, held: held.collect() }
}

fn finished_to_wire(task: Task, epoch: u64, result: WireResult) -> Finished {
    use finished::{End, Other};
    let end = match result.end {
        WireEnd::Exited(code) => End::Exited(code),
        WireEnd::Signaled(signal) => End::Signaled(signal),
        WireEnd::NotStarted(why) => End::NotStarted(why),
        WireEnd::OutputsLost(why) => End::OutputsLost(why),
        WireEnd::TimeLimit => End::Other(Other::TimeLimit.into()),
        WireEnd::OutOfMemory => End::Other(Other::OutOfMemory.into()),
        WireEnd::Canceled => End::Other(Other::Canceled.into()),
        WireEnd::Recalled => End::Other(Other::Recalled.into()),
        WireEnd::Fenced => End::Other(Other::Fenced.into()),
        WireEnd::Unknown => End::Other(Other::Unknown.into()),
    };
    Finished {
        task: Some(task),
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
        token_cpu_ms: result.token_cpu_ms,
        process_memory: result.process_memory,
    }
}

/// The keeper's message of a server's order. `None` if the order is not for the keeper as it is, or lacks a required
/// field. A start that comes before the welcome has no message either, because the welcome gives the epoch of reports. The
/// server sends that start again.
pub fn keeper_message(order: Order, epoch: u64) -> Option<ToKeeper> {
    use order::What;
    let Order { seq, what } = order;
    let about = |task: Task| TaskCommand { task: task.into(), seq };
    Some(match what? {
        What::Start(_) if epoch == 0 => return None,
        What::Start(start) => ToKeeper::Start(start_from_wire(start, epoch, seq)?),
        What::DropBody(body) => ToKeeper::DropBody { job: body.job, step: u16::try_from(body.step).ok()? },
        What::Kill(task) => ToKeeper::Kill(about(task)),
        What::Recall(task) => ToKeeper::Recall(about(task)),
        What::Ack(task) => ToKeeper::Ack(about(task)),
        What::Lend(task) => ToKeeper::Lend(about(task)),
        What::Reclaim(task) => ToKeeper::Reclaim(about(task)),
        What::ShareCpus(ShareCpus { cpu, shares }) => {
            let shares = shares
                .into_iter()
                .filter_map(|share| Some(TaskShare { task: share.task?.into(), weight: share.weight }));
            ToKeeper::ShareCpus { cpu, shares: shares.collect() }
        }
        // The agent acts on these itself, or asks others before the keeper gets a message.
        What::Greeting(_)
        | What::Refused(_)
        | What::Welcome(_)
        | What::Lease(_)
        | What::Body(_)
        | What::Resync(_)
        | What::ReadLog(_)
        | What::DropLogs(_) => return None,
    })
}

fn start_from_wire(start: Start, epoch: u64, seq: u64) -> Option<StartMessage> {
    let request: Resources = start.request?.into();
    // What a build asked for is for all of its processes. Otherwise it is booked with what one of them may need.
    let process_bytes = Some(start.headroom).filter(|bytes| *bytes > 0 && request.memory == 0);
    Some(StartMessage {
        task: start.task?.into(),
        step: u16::try_from(start.step).ok()?,
        epoch,
        seq,
        request,
        memory_limit: start.memory_limit,
        time_limit_ms: start.time_limit_ms,
        value: start.value,
        params: start.values.into_iter().map(Into::into).collect(),
        riders: start.riders.into_iter().map(|r| Rider { index: r.index, attempt: r.attempt }).collect(),
        chunk_values: start.chunk_values,
        nodes: start.nodes.map(|nodes| Nodes { rank: nodes.rank, workers: nodes.workers }),
        network_bound: start.network_bound,
        jobserver: start.jobserver.map(|wanted| spec_of(wanted, process_bytes)),
    })
}

fn spec_of(wanted: Jobserver, process_bytes: Option<u64>) -> JobserverSpec {
    // A form that a later release added is chosen here.
    let form = match wanted.form() {
        jobserver::Form::Auto => JobserverForm::Auto,
        jobserver::Form::Fifo => JobserverForm::Fifo,
        jobserver::Form::Pipes => JobserverForm::Pipes,
    };
    JobserverSpec { form, processes_max: wanted.processes_max, process_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::TaskRef;
    use windlass_api::wire::{Amounts, Body, Lease};

    #[test]
    fn a_command_keeps_its_number_and_a_start_needs_the_epoch_of_a_welcome() {
        let task = TaskRef { job: 3, index: 1, attempt: 2 };
        let order = |what| Order { seq: 7, what: Some(what) };
        let kill = order(order::What::Kill(task.into()));
        assert_eq!(keeper_message(kill, 0), Some(ToKeeper::Kill(TaskCommand { task, seq: 7 })));
        let request = Some(Amounts { cpu: 100, ..Amounts::default() });
        let start = |step| {
            order(order::What::Start(Start {
                task: Some(task.into()),
                step,
                request: request.clone(),
                ..Start::default()
            }))
        };
        assert_eq!(keeper_message(start(1), 0), None);
        let Some(ToKeeper::Start(message)) = keeper_message(start(1), 5) else { panic!("it has an epoch") };
        assert_eq!((message.task, message.epoch, message.seq, message.request.cpu), (task, 5, 7, 100));
        assert_eq!(keeper_message(start(1 << 16), 5), None, "a job has fewer steps");
    }

    #[test]
    fn a_jobserver_and_its_shares_are_passed_on() {
        let task = TaskRef { job: 3, index: 1, attempt: 2 };
        let form = jobserver::Form::Pipes.into();
        let told = |memory, headroom| {
            let start = Start {
                task: Some(task.into()),
                request: Some(Amounts { memory, ..Amounts::default() }),
                jobserver: Some(Jobserver { form, processes_max: Some(9) }),
                headroom,
                ..Start::default()
            };
            let order = Order { seq: 7, what: Some(order::What::Start(start)) };
            let Some(ToKeeper::Start(message)) = keeper_message(order, 5) else { panic!("it is whole") };
            message.jobserver
        };
        let spec = |process_bytes| JobserverSpec {
            form: JobserverForm::Pipes,
            processes_max: Some(9),
            process_bytes,
        };
        assert_eq!(told(0, 0), Some(spec(None)));
        assert_eq!(told(0, 1 << 30), Some(spec(Some(1 << 30))));
        assert_eq!(told(1 << 30, 1 << 30), Some(spec(None)), "the task is booked with what it asked for");
        let share = |task| wire::CpuShare { task, weight: 4 };
        let shared = ShareCpus { cpu: 150, shares: vec![share(None), share(Some(task.into()))] };
        let told = keeper_message(Order { seq: 8, what: Some(order::What::ShareCpus(shared)) }, 0);
        let shares = vec![TaskShare { task, weight: 4 }];
        assert_eq!(told, Some(ToKeeper::ShareCpus { cpu: 150, shares }));
        let held_back = Some(HeldBack::Memory);
        let said = FromKeeper::Cpus { task, epoch: 5, share: 4, used: 3, wants: true, held_back };
        let Some(report::What::Cpus(cpus)) = report_of(said) else { panic!("it is for the server") };
        assert_eq!((cpus.share, cpus.used, cpus.held_back()), (4, 3, cpus::HeldBack::Memory));
    }

    #[test]
    fn an_order_that_the_agent_acts_on_has_no_message() {
        let lease = Order::plain(order::What::Lease(Lease { sent: 1, lasts_ns: 1 }));
        let body = Order::plain(order::What::Body(Body::default()));
        let lacking = Order::plain(order::What::Start(Start::default()));
        let later = Order { seq: 1, what: None };
        for order in [lease, body, lacking, later] {
            assert_eq!(keeper_message(order.clone(), 5), None, "{order:?}");
        }
    }
}
