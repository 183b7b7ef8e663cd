//! What workers are told of the cpus that their tasks with a jobserver share: how many these are, and in which
//! proportion they are divided. The keeper gives out tokens by that, and says how many a task uses. Queues are charged by
//! both while the tasks run. Nothing of it is booked or stored.
//!
//! Properties:
//! - After a round each connected worker on which such tasks run was told what holds now, once over each link.
//! - The cost of a round follows the workers on which such tasks run and of which something changed, never what waits.
//! - The builds of one worker are charged at a time for what they share there, and each for what it booked at least.

use super::charge::charge_part;
use super::commands::send;
use super::{Attempt, Books};
use crate::ids::{TaskId, WorkerId};
use crate::load::share::{Claim, level};
use crate::outbox::{CpuShare, Outbox, WorkerCommand};
use crate::queues::note_wanting;
use crate::worker::{BuildRuns, Worker};

/// What a keeper says of a task with a jobserver. Both numbers count the process that needs no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processes {
    /// Processes that it may run.
    pub share: u32,
    /// Processes that it runs.
    pub used: u32,
    /// Something else than cpus keeps it from more: memory, as a rule.
    pub is_held_back: bool,
}

/// A keeper says what an attempt runs. A build that takes all that it is given wants more; between two of its processes
/// one of its tokens lies idle for a moment, and that changes nothing.
pub(crate) fn note_processes(
    books: &mut Books,
    id: WorkerId,
    (task, attempt): (TaskId, u32),
    said: Processes,
) {
    let is_of = |known: &Attempt| known.number == attempt && known.worker == id;
    if !books.ledger.attempts.get(&task).is_some_and(is_of) {
        return;
    }
    let worker = books.plan.workers.get(id);
    let Some(build) = worker.and_then(|worker| worker.booked.jobservers().get(&task)).copied() else {
        return;
    };
    let wanted_since = build.runs.and_then(|runs| runs.wants_since);
    let wants = match said.share.saturating_sub(said.used) {
        _ if said.is_held_back => false,
        0 => true,
        1 => wanted_since.is_some(),
        _ => false,
    };
    let wants_since = wants.then(|| wanted_since.unwrap_or(books.plan.now()));
    let runs = BuildRuns { processes: said.used.max(1), wants_since };
    if build.runs == Some(runs) {
        return;
    }
    books.plan.workers.update(id, |worker| worker.booked.note_runs(task, runs));
    if wants != wanted_since.is_some() {
        note_wanting(&mut books.plan.queues, build.queue, wants);
    }
    charge_builds(books, id);
    // What it leaves, a task that waits for its turn may take.
    if !books.plan.blocked.build_turns.is_empty() {
        books.plan.request_round();
    }
}

/// What tasks with a jobserver share of a worker: hundredths of a core that nothing else holds, and the part of each
/// task. `None` where no such task runs.
pub(crate) fn shares_on(books: &Books, id: WorkerId) -> Option<(u32, Vec<CpuShare>)> {
    let worker = books.plan.workers.get(id).filter(|worker| !worker.booked.jobservers().is_empty())?;
    let (mut parts, mut shares) = (Vec::new(), Vec::new());
    for task in worker.booked.jobservers().keys() {
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

/// The queues of a worker's builds are charged for what these have of it from now on. That is up to date before each choice
/// of whose turn it is: a task that was booked or ended since has taken cpus, or left some.
pub(crate) fn charge_builds(books: &mut Books, id: WorkerId) {
    let Some((cpu, shares)) = shares_on(books, id) else { return };
    let Some(worker) = books.plan.workers.get(id) else { return };
    let parts = parts_on(worker, cpu, &shares);
    let weight_of = |share: &CpuShare| worker.booked.jobservers().get(&share.task).map(|build| build.weight);
    if shares.iter().any(|share| weight_of(share) != Some(share.weight)) {
        books.plan.workers.update(id, |worker| {
            shares.iter().for_each(|share| worker.booked.note_weight(share.task, share.weight));
        });
    }
    for (share, part_cpu) in shares.iter().zip(parts) {
        charge_part(books, share.task, part_cpu);
    }
}

/// A round begins: the same of all workers of which something changed.
pub(crate) fn charge_changed(books: &mut Books) {
    let changed: Vec<WorkerId> = books.plan.workers.sharing.changed().collect();
    changed.into_iter().for_each(|id| charge_builds(books, id));
}

/// What each build has of the `cpu` hundredths of a core that a worker's builds share: by its weight. Where one wants more
/// the others have what they use, and leave it the rest, as the keeper divides the tokens.
fn parts_on(worker: &Worker, cpu: u32, shares: &[CpuShare]) -> Vec<u32> {
    let worker_cpu = worker.record.capacity.cpu;
    let is_contended = worker.booked.wants_more();
    let claims = (0..).zip(shares).map(|(id, share)| {
        let build = worker.booked.jobservers().get(&share.task);
        let most = build.map_or(worker_cpu, |build| build.most_cpu(worker_cpu));
        let uses = build.filter(|_| is_contended).and_then(|build| build.use_cpu(worker_cpu));
        Claim { id, weight: share.weight, demand: uses.unwrap_or(most).into() }
    });
    let claims: Vec<Claim> = claims.collect();
    let level = level(cpu.into(), &claims);
    claims.iter().map(|claim| u32::try_from(level.share(claim).whole).unwrap_or(u32::MAX)).collect()
}

/// The round is over: tells the workers of which something changed what their tasks with a jobserver share now, unless
/// they know.
pub(crate) fn tell_shares(books: &mut Books, out: &mut Outbox) {
    for id in books.plan.workers.sharing.take_changed() {
        charge_builds(books, id);
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
        let weight_of =
            |share: &CpuShare| worker.booked.jobservers().get(&share.task).map(|build| build.weight);
        let mut shares = due.iter().flat_map(|(_, shares)| shares);
        if is_current && shares.any(|share| weight_of(share) != Some(share.weight)) {
            return Err(format!("worker {}: counts other weights than {due:?}", worker.record.name));
        }
    }
    let sharing = &books.plan.workers.sharing;
    match told.keys().find(|id| !sharing.has(**id) && !sharing.is_changed(**id)) {
        Some(id) => Err(format!("worker {id} was told of shares, and no task with a jobserver runs there")),
        None => Ok(()),
    }
}
