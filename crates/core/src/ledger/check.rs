//! Compares jobs and attempts with what workers, queues, licences and profiles say of them: for tests and the
//! simulator.

use super::classes::asked_and_sized;
use super::enlist::wanted_place;
use super::shares::check_shares;
use super::{Books, Lent};
use crate::class::Class;
use crate::ids::{QueueId, StepKey, TaskId, WorkerId};
use crate::job::{Gang, Job};
use crate::plan::{self, placement};
use crate::resources::Resources;
use crate::worker::{Licences, Worker, WorkerState};
use std::collections::{BTreeMap, BTreeSet};

/// `Ok` if jobs and attempts are consistent with each other and with what the rest of the books say of them. `outside`
/// is each limit that outside clients hold one of on a worker.
pub(crate) fn check<'a>(
    books: &'a Books,
    outside: impl Iterator<Item = (WorkerId, &'a String)>,
) -> Result<(), String> {
    let Books { ledger, plan, profiles } = books;
    check_steps(books)?;
    check_workers(books)?;
    check_sizes(books)?;
    check_licences(books, outside)?;
    check_shares(books)?;
    ledger.check_charges(&plan.queues)?;
    ledger.check_followers()?;
    profiles.check(|key| ledger.step(key).map_or(0, |step| step.active))?;
    let steps: usize = ledger.jobs.values().map(|job| job.steps.len()).sum();
    if steps != ledger.steps {
        return Err(format!("{steps} steps are resident, counted {}", ledger.steps));
    }
    Ok(())
}

/// Tasks of a gang that run were booked together, those of one step on different workers, and no other task of
/// the gang is about to start.
fn check_gangs(books: &Books, job: &Job) -> Result<(), String> {
    let mut known: BTreeSet<Gang> = BTreeSet::new();
    for (task, _) in books.ledger.attempts_of(job.id) {
        let Some(gang) = job.gang_of(task.index).filter(|gang| known.insert(*gang)) else { continue };
        let mut workers: BTreeSet<(usize, WorkerId)> = BTreeSet::new();
        let mut booked = BTreeSet::new();
        let mut is_ending = true;
        for mate in job.gang_tasks(gang) {
            let Some(attempt) = books.ledger.attempts.get(&TaskId { job: job.id, index: mate.index }) else {
                continue;
            };
            booked.insert(attempt.booked);
            is_ending &= attempt.killing;
            if !workers.insert((mate.step, attempt.worker)) {
                return Err(format!("{task}: two tasks of one gang and step on one worker"));
            }
        }
        if booked.len() > 1 {
            return Err(format!("{task}: its gang was not booked together: {booked:?}"));
        }
        let waits = job.gang_tasks(gang).find(|mate| job.steps[mate.step].ready.contains(mate.index));
        if let Some(waits) = waits.filter(|_| !is_ending) {
            return Err(format!("{task} runs, and task {} of its gang waits", waits.index));
        }
    }
    let is_alone = |index: &&u32| job.gang_of(**index).is_none_or(|gang| !known.contains(&gang));
    if let Some(index) = job.ended_mates.keys().find(is_alone) {
        return Err(format!("task {index} of job {} keeps its rank, and its gang is over", job.id));
    }
    for leader in (0..job.steps.len()).filter(|step| job.steps[*step].enlisted.is_some()) {
        let class = books.plan.classes.get(job.steps[leader].class);
        if let Some(nodes) = job.next_nodes(leader).filter(|nodes| !class.has_nodes(nodes)) {
            return Err(format!(
                "job {}: step {leader} starts {nodes:?}, and its class is {class:?}",
                job.id
            ));
        }
    }
    Ok(())
}

fn check_steps(books: &Books) -> Result<(), String> {
    for job in books.ledger.jobs.values() {
        let attempts: BTreeSet<u32> = books.ledger.attempts_of(job.id).map(|(task, _)| task.index).collect();
        let mut active = 0;
        for (number, step) in job.steps.iter().enumerate() {
            let key = StepKey { job: job.id, step: number as u16 };
            let range = step.base..step.base + job.spec.steps[number].tasks;
            let running = attempts.range(range.clone()).count() as u32;
            active += running;
            if running != step.active {
                return Err(format!("{key:?}: {running} attempts, counted {}", step.active));
            }
            if job.spec.steps[number].max_running.is_some_and(|max| step.active > max) {
                return Err(format!("{key:?}: {} tasks, more than may run at a time", step.active));
            }
            let mut seen = BTreeSet::new();
            for set in [&step.ready, &step.succeeded, &step.failed, &step.canceled] {
                for index in set.iter() {
                    if !range.contains(&index) || attempts.contains(&index) || !seen.insert(index) {
                        return Err(format!("{key:?}: task {index} is in two states, or not of this step"));
                    }
                }
            }
            if job.stop.is_none() && job.ended.is_none() {
                let mut unlocked = job.unlocked(number);
                for set in [&step.ready, &step.succeeded, &step.failed, &step.canceled] {
                    unlocked.subtract(set);
                }
                if let Some(lost) = unlocked.iter().find(|index| !attempts.contains(index)) {
                    return Err(format!("{key:?}: task {lost} could start and is not ready"));
                }
            }
            let follows = job.spec.steps[number].with.is_some();
            if wanted_place(books, key).filter(|_| !follows) != step.enlisted {
                return Err(format!("{key:?}: stands in its queue as {:?}", step.enlisted));
            }
        }
        if job.active != job.steps.iter().map(|step| step.active).sum::<u32>() {
            return Err(format!("job {}: counts {} active tasks", job.id, job.active));
        }
        if job.spec.max_running.is_some_and(|max| job.active > max) {
            return Err(format!("job {}: more tasks than may run at a time", job.id));
        }
        books.ledger.check_chunks(job)?;
        check_cancels(job, &attempts)?;
        if job.has_gangs {
            check_gangs(books, job)?;
        }
        if job.ended.is_some() && active > 0 {
            return Err(format!("job {} ended with {active} attempts", job.id));
        }
        if job.ended.is_none() && job.is_settled() {
            return Err(format!("job {} has nothing to do and has not ended", job.id));
        }
    }
    Ok(())
}

/// A task that was cancelled has ended, or its process is being killed.
fn check_cancels(job: &Job, attempts: &BTreeSet<u32>) -> Result<(), String> {
    match job.not_ended(&job.cancels).iter().find(|index| !attempts.contains(index)) {
        Some(index) => Err(format!("task {index} of job {} was cancelled and has not ended", job.id)),
        None => Ok(()),
    }
}

/// What the attempts on one worker add up to.
#[derive(Default)]
struct OnWorker {
    running: BTreeSet<TaskId>,
    /// With the part of a queue that each is of, and the most hundredths of a core that it can use.
    jobservers: BTreeMap<TaskId, (QueueId, Option<u32>)>,
    of_jobservers_cpu: u32,
    /// Steps whose tasks their submitters run.
    external: BTreeSet<StepKey>,
    backlog: BTreeSet<TaskId>,
    held: Resources,
    headroom: u64,
    lending: u32,
    riding: u32,
    /// Hundredths of a core that are held again in the books and not yet granted by the worker.
    reclaiming: u32,
}

fn check_workers(books: &Books) -> Result<(), String> {
    let mut placed: BTreeMap<WorkerId, OnWorker> = BTreeMap::new();
    for (task, attempt) in &books.ledger.attempts {
        let Some(job) = books.ledger.jobs.get(&task.job) else {
            return Err(format!("{task}: an attempt without a job"));
        };
        let on = placed.entry(attempt.worker).or_default();
        on.lending += u32::from(attempt.lent != Lent::No);
        if attempt.queued {
            on.backlog.insert(*task);
            continue;
        }
        on.running.insert(*task);
        on.riding += u32::from(attempt.rides);
        on.held.add(&attempt.held());
        on.headroom += attempt.headroom_bytes;
        let key = books.ledger.key_of(*task);
        if attempt.request.cpu > 0 && books.ledger.spec_of(key).is_some_and(|spec| spec.is_external) {
            on.external.insert(key);
        }
        let hints = books.ledger.spec_of(key).map(|spec| &spec.hints);
        if let Some(hints) = hints.filter(|hints| hints.jobserver.is_some()) {
            on.jobservers.insert(*task, (job.queue, hints.cpus_max));
            on.of_jobservers_cpu += attempt.held().cpu;
        }
        if attempt.lent == Lent::Reclaiming {
            on.reclaiming += attempt.request.cpu;
        }
    }
    for worker in books.plan.workers.iter() {
        let on = placed.remove(&worker.record.id).unwrap_or_default();
        let checked = check_state(worker).and_then(|()| check_booked(worker, &on));
        checked.map_err(|what| format!("worker {}: {what}", worker.record.name))?;
    }
    match placed.keys().next() {
        Some(unknown) => Err(format!("attempts on worker {unknown}, which is not there")),
        None => Ok(()),
    }
}

fn check_state(worker: &Worker) -> Result<(), String> {
    let state = worker.record.state;
    if state == WorkerState::Up && !worker.link.connected {
        return Err("gets work and is not connected".to_owned());
    }
    let gone = matches!(state, WorkerState::Expired | WorkerState::Forgotten);
    if gone && (worker.link.connected || worker.booked.has_attempts() || worker.record.lease_until.is_some())
    {
        return Err(format!("is {state:?} and still has a link, attempts or a lease"));
    }
    if worker.record.draining != (state == WorkerState::Draining) && !gone {
        return Err(format!("is {state:?}, and that does not match draining"));
    }
    Ok(())
}

/// What is booked on a worker is what its attempts and places hold.
fn check_booked(worker: &Worker, on: &OnWorker) -> Result<(), String> {
    if on.running != *worker.booked.running()
        || on.backlog != worker.booked.backlog().iter().copied().collect()
    {
        return Err("holds other tasks than are booked on it".to_owned());
    }
    let builds = worker.booked.jobservers().iter();
    if !builds.map(|(task, build)| (*task, (build.queue, build.cpus_max))).eq(on.jobservers.clone())
        || on.of_jobservers_cpu != worker.booked.of_jobservers_cpu()
    {
        return Err(format!("counts {:?} as tasks with a jobserver", worker.booked.jobservers()));
    }
    if on.external != *worker.booked.external() {
        return Err(format!("counts {:?} as steps that clients run", worker.booked.external()));
    }
    if on.headroom != worker.booked.headroom_bytes() {
        return Err(format!("expects {} bytes, its tasks {}", worker.booked.headroom_bytes(), on.headroom));
    }
    if on.lending != worker.booked.lending() {
        return Err(format!("{} tasks lend, counted {}", on.lending, worker.booked.lending()));
    }
    if on.riding != worker.booked.riding() {
        return Err(format!("{} tasks ride, counted {}", on.riding, worker.booked.riding()));
    }
    let mut booked = on.held.clone();
    for amounts in worker.booked.places().values() {
        booked.add(amounts);
    }
    if booked != *worker.booked.sum() {
        return Err(format!("books {:?}, tasks hold {booked:?}", worker.booked.sum()));
    }
    // Places of outside clients do not count here: the worker does not know of them when it
    // gives cpus back, so they may stand over its capacity until a task ends.
    if !on.held.less(&Resources::new(on.reclaiming, 0)).fits(&worker.record.capacity) {
        return Err("is booked beyond its capacity".to_owned());
    }
    Ok(())
}

/// Steps are of the classes that follow from what is learned and from the workers, and no task waits for what was
/// learned where a worker could run what was asked for.
fn check_sizes(books: &Books) -> Result<(), String> {
    let could_run = |class: &Class| match class.is_gang() {
        true => plan::too_few_at_a_time(&books.plan, class).is_none(),
        false => books.plan.workers.present().any(|worker| placement::eligible_when_idle(class, worker)),
    };
    for job in books.ledger.jobs.values() {
        for (number, step) in job.steps.iter().enumerate() {
            let (asked, sized) = asked_and_sized(books, job, number);
            let class = books.plan.classes.get(step.class);
            // What of a gang has succeeded does not count.
            let nodes: Vec<_> = job.gang_steps(number).map(|step| job.spec.steps[step].nodes).collect();
            if class.clone().with_nodes(&nodes) != sized {
                return Err(format!("job {}, step {number}: is of {class:?}, not {sized:?}", job.id));
            }
            if sized != asked && could_run(&asked) && !could_run(&sized) {
                let id = job.id;
                return Err(format!(
                    "job {id}, step {number}: waits although what it asked for would fit: {sized:?}"
                ));
            }
        }
    }
    Ok(())
}

/// What workers hold of each limit is what is booked on them.
fn check_licences<'a>(
    books: &'a Books,
    outside: impl Iterator<Item = (WorkerId, &'a String)>,
) -> Result<(), String> {
    let mut held: BTreeMap<WorkerId, Licences> = BTreeMap::new();
    let mut names: Vec<&String> = Vec::new();
    for (worker, name) in outside {
        held.entry(worker).or_default().take(name, books.ledger.licences.max_per_worker(name), 1);
        names.push(name);
    }
    for (task, attempt) in books.ledger.attempts.iter().filter(|(_, attempt)| !attempt.rides) {
        let key = books.ledger.key_of(*task);
        let Some(job) = books.ledger.jobs.get(&key.job) else { continue };
        for name in &job.spec.steps[usize::from(key.step)].limits {
            let max = books.ledger.licences.max_per_worker(name);
            held.entry(attempt.worker).or_default().take(name, max, 1);
            names.push(name);
        }
    }
    books.ledger.licences.check(names.into_iter())?;
    let none = Licences::default();
    let wrong = |w: &&Worker| *held.get(&w.record.id).unwrap_or(&none) != w.licences;
    match books.plan.workers.iter().find(wrong) {
        Some(worker) => Err(format!("worker {}: counts {:?}", worker.record.name, worker.licences)),
        None => Ok(()),
    }
}
