//! Jobs enter memory: from a submission, or as the store has them.

use super::charge::adopted_charge;
use super::classes::sized_class;
use super::enlist::recompute_ready;
use super::first_tasks::look_at_first;
use super::learning::profile_booked;
use super::licensing::take_licences;
use super::{Attempt, Books, Ledger, Lent};
use crate::cache_keys::Reads;
use crate::ids::{JobId, StepKey, TaskId};
use crate::job::{
    ChunkEnd, EndedTasks, FirstTasks, JobRecord, JobSpec, JobState, Step, TaskRow, TaskState, Tries,
};
use crate::resources::Resources;
use crate::score::dependents::dependents;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Takes in a job: its steps from its rows, its place in the queues. `after` are the jobs that it
/// still waits for.
pub(crate) fn insert_record(books: &mut Books, record: JobRecord, after: BTreeSet<JobId>) {
    books.ledger.next_job = books.ledger.next_job.max(record.id.0 + 1);
    let queue = books.plan.queues.intern_for(&record.spec.queue, &record.spec.user);
    books.plan.queues.count_job(queue, 1);
    if let Some(key) = &record.spec.key {
        books.ledger.keys.insert((record.spec.user.clone(), key.clone()), record.id);
    }
    for first in &after {
        books.ledger.dependents.entry(*first).or_default().insert(record.id);
        books.ledger.effects.touch(*first);
    }
    let after_tasks = record.spec.after_tasks;
    if let Some(first) = after_tasks {
        books.ledger.followers.entry(first).or_default().insert(record.id);
    }
    let steps = new_steps(books, record.id, &record.spec, record.created);
    let has_gangs = record.spec.has_gangs();
    let job = crate::job::Job {
        id: record.id,
        spec: record.spec.without_caches(),
        queue,
        has_gangs,
        ended_mates: BTreeMap::new(),
        active: 0,
        created: record.created,
        stop: record.stop,
        held: record.held,
        ended: (record.state != JobState::Active).then_some(record.state),
        after,
        first_tasks: after_tasks.map(|_| FirstTasks { succeeded: record.first_succeeded, is_active: false }),
        steps,
        failed_attempts: 0,
        cancels: record.cancels,
    };
    books.ledger.steps += job.steps.len();
    books.ledger.jobs.insert(record.id, job);
    for ended in record.ended {
        adopt_ended(&mut books.ledger, record.id, ended);
    }
    for row in record.tasks {
        adopt_row(books, record.id, row);
    }
    books.ledger.adopt_mates(record.id, record.mates);
    books.ledger.adopt_cancels(record.id);
    for (step, back_off) in record.back_offs {
        books.ledger.licences.back_offs.insert(StepKey { job: record.id, step }, back_off);
    }
    recompute_ready(books, record.id, record.parked.map(|parked| parked.ready));
    look_at_first(books, record.id);
    books.ledger.mark_split_gangs(record.id);
    match record.parked {
        Some(parked) => books.ledger.effects.loaded.push((record.id, parked)),
        None if record.state == JobState::Active => books.ledger.effects.touch(record.id),
        None => {}
    }
}

fn new_steps(books: &mut Books, id: JobId, spec: &JobSpec, created: Time) -> Vec<Step> {
    books.plan.workers.learn(spec.steps.iter().flat_map(|step| &step.needs));
    let mut profile = Vec::new();
    for (number, step) in spec.steps.iter().enumerate() {
        profile.push(books.profiles.join(StepKey { job: id, step: number as u16 }, &spec.queue, step));
    }
    let known_ms = |step: usize| books.profiles.prediction(profile[step]).and_then(|known| known.wall_ms);
    let dependents = dependents(&spec.steps, known_ms);
    let (mut base, has_gangs) = (0, spec.has_gangs());
    let all = spec.steps.iter().zip(&profile).zip(dependents).enumerate();
    let steps = all.map(|(number, ((step_spec, profile_id), dependents))| {
        let class = sized_class(books, spec, number, has_gangs, |step| profile[step]);
        let step = Step {
            base,
            class: books.plan.classes.intern(class),
            ready_since: created,
            profile: *profile_id,
            dependents: dependents.weight(),
            reads: Reads::of(&step_spec.hints.caches),
            ..Step::default()
        };
        base += step_spec.tasks;
        step
    });
    steps.collect()
}

/// Takes in a task's row: an end, or an attempt that its worker has.
fn adopt_row(books: &mut Books, id: JobId, row: TaskRow) {
    let Some(job) = books.ledger.jobs.get_mut(&id) else { return };
    let number = job.step_of(row.index);
    let step = &mut job.steps[usize::from(number)];
    let (attempt, failures, losses) = (row.attempt, row.failures, row.losses);
    let tries = Tries { attempt, failures, losses, failed_on: None };
    match row.state {
        TaskState::Succeeded => _ = step.succeeded.insert(row.index),
        TaskState::Failed => _ = step.failed.insert(row.index),
        TaskState::Canceled => _ = step.canceled.insert(row.index),
        TaskState::Booked | TaskState::Running => {
            step.active += 1;
            job.active += 1;
            adopt_attempt(books, id, number, &row);
            return;
        }
        TaskState::Waiting | TaskState::Ready | TaskState::Skipped => {}
    }
    if row.state != TaskState::Succeeded {
        step.tries.insert(row.index..row.index + 1, tries);
    }
}

/// Takes in tasks that ended.
fn adopt_ended(ledger: &mut Ledger, id: JobId, ended: EndedTasks) {
    let Some(job) = ledger.jobs.get_mut(&id) else { return };
    let EndedTasks { tasks, state, tries } = ended;
    for (number, part) in job.by_step(tasks) {
        let step = &mut job.steps[number];
        match state {
            TaskState::Succeeded => step.succeeded.insert_range(part.clone()),
            TaskState::Failed => step.failed.insert_range(part.clone()),
            _ => step.canceled.insert_range(part.clone()),
        }
        if state != TaskState::Succeeded {
            step.tries.insert(part.clone(), tries);
        }
        step.noted = step.succeeded.len();
    }
}

/// Takes in an attempt that its worker has. It holds nothing until the worker says that it runs; until
/// that worker is heard from it gets no new work, so nothing is booked twice over meanwhile.
fn adopt_attempt(books: &mut Books, id: JobId, number: u16, row: &TaskRow) {
    let Some(job) = books.ledger.jobs.get(&id) else { return };
    let task = TaskId { job: id, index: row.index };
    books.plan.workers.update(row.worker, |w| w.booked.send_ahead(task, 0.0));
    let mut request = job.spec.steps[usize::from(number)].request.clone();
    let (cpu, memory) = row.amounts.unwrap_or((request.cpu, request.memory));
    // A rider holds nothing, and was booked so.
    let rides = job.spec.steps[usize::from(number)].chunks.is_some()
        && row.amounts == Some((0, 0))
        && request != Resources::default();
    let (queue, mut headroom_bytes) = (job.queue, memory.saturating_sub(request.memory));
    let charged = match rides {
        true => adopted_charge(&books.plan, row.worker, &request, 0),
        false => {
            request.cpu = cpu;
            adopted_charge(&books.plan, row.worker, &request, headroom_bytes)
        }
    };
    if rides {
        (request, headroom_bytes) = (Resources::default(), 0);
    }
    books.plan.queues.hold(queue, request.cpu);
    // Any message that was sent to the worker so far may have been its start.
    let seq = books.plan.workers.get(row.worker).map_or(0, |worker| worker.link.seq);
    let attempt = Attempt {
        number: row.attempt,
        worker: row.worker,
        epoch: row.epoch,
        booked: row.booked,
        started: None,
        failures: row.failures,
        losses: row.losses,
        request,
        headroom_bytes,
        rides,
        last: row.index,
        chunk_end: ChunkEnd::default(),
        seq,
        queued: true,
        killing: job.kills(),
        recalled: false,
        lent: Lent::No,
        charged,
    };
    let profile = job.steps[usize::from(number)].profile;
    if let Some(job) = books.ledger.jobs.get_mut(&id).filter(|_| rides) {
        job.steps[usize::from(number)].riding += 1;
    }
    books.ledger.count_advance(id, &attempt, true, &mut books.plan.queues);
    books.ledger.attempts.insert(task, attempt);
    if !rides {
        take_licences(books, StepKey { job: id, step: number }, row.worker, 1);
    }
    profile_booked(books, profile, row.booked);
}
