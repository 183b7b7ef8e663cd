//! Submissions: whether a job is taken in, and what it waits for.

use super::classes::class_with_mates;
use super::first_tasks::{check_first, first_succeeded};
use super::lifecycle::{settle_job, stop_job};
use super::records::insert_record;
use super::spec::{check_spec, settle_jobservers};
use super::{Books, Ledger, Lookups};
use crate::class::Class;
use crate::ids::{JobId, RequestId};
use crate::job::{JobRecord, JobSpec, JobState, Stop};
use crate::outbox::{Fact, Outbox, Refusal, Reply, Unplaceable, Write};
use crate::plan;
use crate::plan::Planner;
use crate::plan::placement::{self, Ineligible};
use crate::queues::Queues;
use crate::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A submission with what the shell looked up for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Submit {
    /// Who waits.
    pub request: RequestId,
    /// The job.
    pub spec: JobSpec,
    /// The numbers of the steps that leave it to the queue's setting whether they have a jobserver. One of them that has
    /// one in the spec is a build, whose client named no cpus; it keeps it where the queue has no setting.
    pub jobservers_open: Vec<u16>,
    /// Refuse it where no worker of the farm could ever run some step.
    pub placeable_only: bool,
    /// Machines that can be started: what one of them could run is not what no worker could ever run.
    pub startable: Arc<[StartableMachine]>,
    /// Hold it back from the start, until a user lets it go on.
    pub held: bool,
    /// The job that the store already has under the submission's key.
    pub existing: Option<JobId>,
    /// The number of the store's next job when `existing` was read. The read did not see jobs from this number on.
    pub read_before: JobId,
    /// What the store says of the jobs in `spec.after` that it knows.
    pub outcomes: BTreeMap<JobId, JobState>,
}

/// A kind of machine that another program starts when it is wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct StartableMachine {
    /// A worker of it, just started.
    pub model: Worker,
    /// Workers that there are of it at most.
    pub max: u32,
}

impl Submit {
    /// A submission with no extra conditions: the store knows no job under its key, and none that it waits for.
    pub fn new(request: RequestId, spec: JobSpec) -> Self {
        Submit {
            request,
            spec,
            jobservers_open: Vec::new(),
            placeable_only: false,
            startable: Arc::default(),
            held: false,
            existing: None,
            read_before: JobId(u64::MAX),
            outcomes: BTreeMap::new(),
        }
    }

    /// Decides what it leaves to the setting of its queue.
    pub fn settle(&mut self, queues: &Queues) {
        let open = std::mem::take(&mut self.jobservers_open);
        if !open.is_empty() {
            let queue = queues.id(&self.spec.queue).map(|id| queues.get(id));
            settle_jobservers(&mut self.spec, &open, queue.and_then(|queue| queue.record.jobserver));
        }
    }
}

pub(crate) fn submit(books: &mut Books, submit: Submit, lookups: &Lookups, out: &mut Outbox) {
    let request = submit.request;
    let answer = match accept(books, submit, lookups, out) {
        Ok(answer) => answer,
        Err(refusal) => Reply::Refused(refusal),
    };
    if let Reply::Submitted { job, .. } = &answer {
        out.about.insert(request, *job);
    }
    out.replies.push((request, answer));
}

fn accept(
    books: &mut Books,
    mut submit: Submit,
    lookups: &Lookups,
    out: &mut Outbox,
) -> Result<Reply, Refusal> {
    submit.settle(&books.plan.queues);
    let Submit { spec, placeable_only, startable, held, existing, read_before, outcomes, .. } = submit;
    let key = spec.key.clone().map(|key| (spec.user.clone(), key));
    // The store's answer is out of date if the job was deleted since.
    let existing = existing.filter(|job| !books.ledger.gone.contains(job));
    let known = key.as_ref().and_then(|key| books.ledger.keys.get(key).copied()).or(existing);
    if let Some(job) = known {
        return Ok(Reply::Submitted { job, existing: true, unplaceable: Vec::new() });
    }
    if key.is_some() && read_before < books.ledger.keys_from {
        return Err(Refusal::KeyReadTooEarly);
    }
    check_spec(&spec)?;
    let unplaceable = unplaceable(&books.plan, &spec, &startable);
    if placeable_only && !unplaceable.is_empty() {
        return Err(Refusal::Unplaceable(unplaceable));
    }
    let (mut open, mut stop) = (BTreeSet::new(), None);
    for id in &spec.after {
        let told = || match lookups.get(id) {
            Some(found) => found.as_ref().map(|record| record.state),
            None => outcomes.get(id).copied(),
        };
        match books.ledger.outcome(*id).or_else(told) {
            Some(JobState::Active) => _ = open.insert(*id),
            Some(state) if spec.may_follow(*id, state) => {}
            Some(_) => stop = stop.or(Some(Stop::After(*id))),
            None => return Err(Refusal::NoJob(*id)),
        }
    }
    let first_tasks = check_first(&books.ledger, &spec, lookups)?;
    for first in &open {
        books.ledger.effects.touch(*first);
    }
    let id = JobId(books.ledger.next_job);
    books.ledger.next_job += 1;
    if let Some(key) = key {
        books.ledger.keys.insert(key, id);
    }
    // The store has what the tasks run; the engine does not need it.
    let whole = Arc::new(spec);
    let spec = Arc::new(whole.without_bodies());
    let follows = spec.after_tasks.is_some();
    out.writes.push(Write::Job { id, spec: whole, created: books.plan.now() });
    if held {
        out.writes.push(Write::JobHeld { job: id, held });
    }
    out.facts.push(Fact::Job { job: id, state: JobState::Active });
    let record =
        JobRecord { held, first_succeeded: first_tasks, ..JobRecord::new(id, spec, books.plan.now()) };
    insert_record(books, record, open);
    out.writes.extend(first_succeeded(&books.ledger, id));
    match stop {
        Some(stop) => stop_job(books, id, stop, out),
        // Of the job after whose tasks its own come, none may have succeeded.
        None if follows => settle_job(books, id, out),
        None => {}
    }
    Ok(Reply::Submitted { job: id, existing: false, unplaceable })
}

/// Jobs are gone from the store: their keys name nothing any more.
pub(crate) fn deleted(ledger: &mut Ledger, jobs: &BTreeSet<JobId>) {
    ledger.keys.retain(|_, job| !jobs.contains(job));
    ledger.recent.remove(jobs);
    ledger.gone.extend(jobs);
    while ledger.gone.len() > ledger.recent_max {
        ledger.gone.pop_first();
    }
}

/// The steps that no worker could run even if it were empty, and no machine that can be started.
fn unplaceable(plan: &Planner, spec: &JobSpec, startable: &[StartableMachine]) -> Vec<Unplaceable> {
    let mut known: BTreeMap<Class, Option<Vec<(Ineligible, usize)>>> = BTreeMap::new();
    let (mut present, has_gangs): (Option<usize>, _) = (None, spec.has_gangs());
    let steps = spec.steps.iter().enumerate().filter_map(|(number, step)| {
        let reasons = known.entry(class_with_mates(plan, spec, number, has_gangs));
        let reasons = reasons.or_insert_with_key(|class| {
            all_ruled_out(plan, class, &mut present).filter(|_| !could_be_started(plan, class, startable))
        });
        let reasons = reasons.clone();
        Some(Unplaceable { step: step.name.clone(), reasons: reasons? })
    });
    steps.collect()
}

/// True if the class could run once more of these machines are started, together with the workers that there are.
fn could_be_started(plan: &Planner, class: &Class, startable: &[StartableMachine]) -> bool {
    let more_for = |part: &Class| {
        let able = startable.iter().filter(|machine| placement::eligible_when_idle(part, &machine.model));
        able.fold(0, |sum: u32, machine| sum.saturating_add(machine.max))
    };
    let has_enough = |part: &Class| {
        let (wanted, more) = (part.nodes.unwrap_or(1), more_for(part));
        more >= wanted || (class.is_gang() && workers_for(plan, part).saturating_add(more) >= wanted)
    };
    class.parts().any(|part| more_for(part) > 0) && class.parts().all(has_enough)
}

fn workers_for(plan: &Planner, part: &Class) -> u32 {
    let able = plan.workers.present().filter(|worker| placement::eligible_when_idle(part, worker));
    able.count() as u32
}

/// What rules out each worker for a class even if it were empty; `None` if one could run it. `present` is how
/// many workers there are, once they were counted.
fn all_ruled_out(
    plan: &Planner,
    class: &Class,
    present: &mut Option<usize>,
) -> Option<Vec<(Ineligible, usize)>> {
    if let Some(need) = plan.workers.unmet(&class.needs).filter(|_| class.targets.is_empty()) {
        // No need to look at each of them.
        let workers = *present.get_or_insert_with(|| plan.workers.present().count());
        return Some(Vec::from_iter((workers > 0).then(|| (Ineligible::Attribute(need.clone()), workers))));
    }
    let mut reasons: BTreeMap<Ineligible, usize> = BTreeMap::new();
    for worker in plan.workers.present() {
        let mut ruled_out = placement::ineligibilities(class, worker, false);
        match ruled_out.next() {
            None => return plan::too_few_at_a_time(plan, class).map(|why| vec![(why, 1)]),
            // What is not known yet refuses nothing.
            Some(Ineligible::GpusLate) if ruled_out.all(|why| why == Ineligible::GpusLate) => return None,
            Some(why) => *reasons.entry(why).or_default() += 1,
        }
    }
    Some(reasons.into_iter().collect())
}
