//! What workers are told of the cpus that their tasks with a jobserver share: how many these are, and in which
//! proportion they are divided. The keeper gives out tokens by that, and queues are charged by it while the tasks run.
//! Nothing of it is booked or stored.
//!
//! Properties:
//! - After a round each connected worker on which such tasks run was told what holds now, once over each link.
//! - The cost of a round follows the workers on which such tasks run and of which something changed, never what waits.

use super::Books;
use super::charge::charge_part;
use super::commands::send;
use crate::bounds::CPU_WEIGHT_MAX;
use crate::ids::WorkerId;
use crate::outbox::{CpuShare, Outbox, WorkerCommand};

/// What tasks with a jobserver share of a worker: hundredths of a core that nothing else holds, and the part of each
/// task. `None` where no such task runs.
pub(crate) fn shares_on(books: &Books, id: WorkerId) -> Option<(u32, Vec<CpuShare>)> {
    let worker = books.plan.workers.get(id).filter(|worker| !worker.booked.jobservers().is_empty())?;
    let (mut parts, mut shares) = (Vec::new(), Vec::new());
    for task in worker.booked.jobservers() {
        let Some(attempt) = books.ledger.attempts.get(task) else { continue };
        let Some(job) = books.ledger.jobs.get(&task.job) else { continue };
        parts.push(job.queue);
        shares.push(CpuShare { task: *task, attempt: attempt.number, weight: 0 });
    }
    for (share, weight) in shares.iter_mut().zip(books.plan.queues.cpu_weights(&parts)) {
        share.weight = weight;
    }
    let others_cpu = worker.booked.sum().cpu.saturating_sub(worker.booked.of_jobservers_cpu());
    Some((worker.record.capacity.cpu.saturating_sub(others_cpu), shares))
}

/// The round is over: tells the workers of which something changed what their tasks with a jobserver share now, unless
/// they know.
pub(crate) fn tell_shares(books: &mut Books, out: &mut Outbox) {
    for id in books.plan.workers.sharing.take_changed() {
        let is_connected = books.plan.workers.get(id).is_some_and(|worker| worker.link.connected);
        // One that is not is told when it says hello.
        let Some(due) = shares_on(books, id).filter(|_| is_connected) else {
            books.ledger.shares_told.remove(&id);
            continue;
        };
        if books.ledger.shares_told.get(&id) == Some(&due) {
            continue;
        }
        let (cpu, shares) = due.clone();
        for share in &shares {
            let part = u64::from(cpu) * u64::from(share.weight) / u64::from(CPU_WEIGHT_MAX);
            charge_part(books, share.task, part as u32);
        }
        books.ledger.shares_told.insert(id, due);
        send(&mut books.plan, id, WorkerCommand::ShareCpus { cpu, shares }, out);
    }
}

/// A worker said hello: what it was told over an earlier link may have been lost.
pub(super) fn tell_again(books: &mut Books, id: WorkerId) {
    books.ledger.shares_told.remove(&id);
    books.plan.workers.sharing.note(id);
}

/// Each connected worker was told what holds, unless that changed since the last round. What others were told is
/// forgotten.
pub(super) fn check_shares(books: &Books) -> Result<(), String> {
    let told = &books.ledger.shares_told;
    for worker in books.plan.workers.iter() {
        let (id, due) = (worker.record.id, shares_on(books, worker.record.id));
        let is_current = worker.link.connected && !books.plan.workers.sharing.is_changed(id);
        if is_current && told.get(&id) != due.as_ref() {
            let told = told.get(&id);
            return Err(format!("worker {}: shares {due:?}, and was told {told:?}", worker.record.name));
        }
    }
    let sharing = &books.plan.workers.sharing;
    match told.keys().find(|id| !sharing.has(**id) && !sharing.is_changed(**id)) {
        Some(id) => Err(format!("worker {id} was told of shares, and no task with a jobserver runs there")),
        None => Ok(()),
    }
}
