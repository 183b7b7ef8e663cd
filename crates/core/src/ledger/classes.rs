//! What steps ask of workers: their classes, which follow what earlier tasks teach and which workers there are.

use super::Books;
use super::enlist::set_class;
use crate::class::Class;
use crate::ids::StepKey;
use crate::job::{Job, JobSpec, StepSpec};
use crate::plan::Planner;
use crate::profiles::SizedPart;
use crate::workers::Workers;
use std::collections::{BTreeMap, BTreeSet};

/// What a step of a job and those that start with it ask of workers, as submitted.
pub(super) fn class_with_mates(plan: &Planner, spec: &JobSpec, number: usize, has_gangs: bool) -> Class {
    let as_submitted = |step: usize| class_of(&spec.steps[step], &spec.queue, &plan.workers);
    let mates = has_gangs.then(|| spec.followers(number)).into_iter().flatten().map(as_submitted).collect();
    Class { mates, ..as_submitted(number) }
}

/// What a step asks of workers, as submitted to a queue.
pub(crate) fn class_of(step: &StepSpec, queue: &str, workers: &Workers) -> Class {
    Class {
        queue: workers.queue_in_class(queue),
        request: step.request.clone(),
        needs: step.needs.clone(),
        targets: step.targets.clone(),
        limits: step.limits.clone(),
        guess: 0,
        is_external: step.is_external,
        has_jobserver: step.hints.jobserver.is_some(),
        nodes: step.nodes,
        mates: Vec::new(),
    }
}

/// The class of a step as it is sized now. What starts together is sized together, and the class of the step that
/// leads has those of the others. `profile_of` returns the number of a step's signature.
pub(super) fn sized_class(
    books: &mut Books,
    spec: &JobSpec,
    number: usize,
    has_gangs: bool,
    profile_of: impl Fn(usize) -> u64,
) -> Class {
    let (place, parts) = parts_of(spec, number, has_gangs, profile_of);
    let asked = class_with_mates(&books.plan, spec, leader_in(spec, number, has_gangs), has_gangs);
    part_of(books.profiles.size(asked, &parts, &books.plan), place)
}

/// What a step of a job asks for, and its class as it is sized now, worked out from scratch.
pub(super) fn asked_and_sized(books: &Books, job: &Job, number: usize) -> (Class, Class) {
    let (spec, has_gangs) = (&job.spec, job.has_gangs);
    let (place, parts) = parts_of(spec, number, has_gangs, |step| job.steps[step].profile);
    let asked = class_with_mates(&books.plan, spec, leader_in(spec, number, has_gangs), has_gangs);
    let sized = books.profiles.size_now(asked.clone(), &parts, &books.plan);
    (part_of(asked, place), part_of(sized, place))
}

/// Gives the steps of a signature, and those that start with them, the class that they are of now.
pub(super) fn resize(books: &mut Books, profile: u64) {
    let mut steps: BTreeSet<StepKey> = BTreeSet::new();
    for key in books.profiles.steps(profile) {
        let Some(job) = books.ledger.jobs.get(&key.job) else { continue };
        let together = job.gang_steps(job.leader_of(key.step.into()));
        steps.extend(together.map(|step| StepKey { step: step as u16, ..key }));
    }
    steps.into_iter().for_each(|key| refresh_class(books, key));
}

/// A worker for one of these queues alone came first or left last. Only while there is one do that queue's steps have
/// classes of their own.
pub(crate) fn refresh_classes(books: &mut Books, queues: &BTreeSet<String>) {
    let of_queues = books.ledger.jobs.values().filter(|job| queues.contains(&job.spec.queue));
    let steps =
        of_queues.flat_map(|job| (0..job.steps.len()).map(|step| StepKey { job: job.id, step: step as u16 }));
    let steps: Vec<StepKey> = steps.collect();
    steps.into_iter().for_each(|key| refresh_class(books, key));
}

/// The workers changed: what is learned may be sized otherwise.
pub(crate) fn follow_sizes(books: &mut Books) {
    let resized = books.profiles.follow_workers(&books.plan);
    resized.into_iter().for_each(|profile| resize(books, profile));
}

/// Gives a step the class that it is of now.
fn refresh_class(books: &mut Books, key: StepKey) {
    let Some(job) = books.ledger.jobs.get(&key.job) else { return };
    let number = usize::from(key.step);
    let together = job.gang_steps(job.leader_of(number));
    let profiles: BTreeMap<usize, u64> = together.map(|step| (step, job.steps[step].profile)).collect();
    let (next, has_gangs) = (job.next_nodes(number), job.has_gangs);
    let class = sized_class(books, &job.spec.clone(), number, has_gangs, |step| profiles[&step]);
    let class = match &next {
        Some(nodes) => class.with_nodes(nodes),
        None => class,
    };
    set_class(books, key, class);
}

/// The step that leads this one's gang, or the step itself.
fn leader_in(spec: &JobSpec, number: usize, has_gangs: bool) -> usize {
    spec.steps[number].with.filter(|_| has_gangs).map_or(number, usize::from)
}

/// What sizes a step and those that start together with it, and its place among them. The one that leads is the first.
fn parts_of(
    spec: &JobSpec,
    number: usize,
    has_gangs: bool,
    profile_of: impl Fn(usize) -> u64,
) -> (usize, Vec<SizedPart>) {
    let leader = leader_in(spec, number, has_gangs);
    let followers = has_gangs.then(|| spec.followers(leader)).into_iter().flatten();
    let (mut place, mut parts) = (0, Vec::with_capacity(1));
    for step in std::iter::once(leader).chain(followers) {
        if step == number {
            place = parts.len();
        }
        // What a task with a jobserver used says how many cpus were left, and not what it must have.
        let hints = &spec.steps[step].hints;
        let cpus_auto = hints.cpus_auto && hints.jobserver.is_none();
        parts.push(SizedPart { profile: profile_of(step), cpus_auto });
    }
    (place, parts)
}

/// The part at this place of a class and those that start with it: the whole class for the first.
fn part_of(mut class: Class, place: usize) -> Class {
    match place.checked_sub(1) {
        Some(mate) => class.mates.swap_remove(mate),
        None => class,
    }
}
