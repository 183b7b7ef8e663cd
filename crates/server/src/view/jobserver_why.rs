//! What a running build with a jobserver has of its worker, who has the rest, and what would give it more.

use std::collections::BTreeMap;
use windlass_api::{HeldBack, JobserverUse, JobserverWhy};
use windlass_core::bounds::WEIGHT_MAX;
use windlass_core::engine::Engine;
use windlass_core::explain::{Advice, Change, Starts};
use windlass_core::job::JobSpec;
use windlass_core::resources::Cpus;
use windlass_core::worker::Worker;
use windlass_core::{TaskId, WorkerId};

/// Other builds of its worker that are named: those with most processes.
const BUILDS_NAMED_MAX: usize = 3;

/// Another build on the same worker.
struct OtherBuild<'a> {
    task: TaskId,
    spec: &'a JobSpec,
    share: u32,
}

/// What it says of a task; `None` of one that runs without a jobserver. `use_of` is what the keeper of a task's worker
/// said of an attempt last.
pub fn jobserver_why(
    engine: &Engine,
    task: TaskId,
    use_of: impl Fn(TaskId, u32) -> Option<JobserverUse>,
) -> Option<JobserverWhy> {
    let attempt = engine.attempt(task)?;
    let now = use_of(task, attempt.number)?;
    let worker = engine.workers().get(attempt.worker)?;
    let job = engine.job(task.job)?;
    let cpus_max = job.spec.steps[usize::from(job.step_of(task.index))].hints.cpus_max;
    let cores = worker.record.capacity.cpu.div_ceil(100).max(1);
    let most = cpus_max.map_or(cores, |max| max.div_ceil(100).max(1)).min(cores);
    // What the tasks without a jobserver and the clients hold.
    let mut plain_cpu = worker.booked.sum().cpu.saturating_sub(attempt.request.cpu);
    let mut others = Vec::new();
    for other in worker.booked.running().iter().filter(|other| **other != task) {
        let Some((attempt, job)) = engine.attempt(*other).zip(engine.job(other.job)) else { continue };
        let Some(said) = use_of(*other, attempt.number) else { continue };
        plain_cpu = plain_cpu.saturating_sub(attempt.request.cpu);
        others.push(OtherBuild { task: *other, spec: &job.spec, share: said.share });
    }
    others.sort_by_key(|other| (std::cmp::Reverse(other.share), other.task));
    let runs = format!("runs {} of up to {most} processes", now.used);
    let (message, helps) = if !now.wants {
        (format!("{runs}, and needs no more now"), Vec::new())
    } else if now.share >= most {
        let more =
            if most < cores { "a larger range, such as --cpus 2-16" } else { "a worker with more cpus" };
        (format!("{runs}, which is all that it may run here"), vec![more.to_owned()])
    } else {
        let why = reasons(now, worker, &others, plain_cpu).join("; ");
        (format!("{runs}; wants more: {why}"), helps(engine, now, &job.spec, &others, plain_cpu))
    };
    Some(JobserverWhy { now, most, message, helps })
}

/// How many processes builds with a jobserver run on each worker, by its name. `said` is what keepers said last: task,
/// attempt and what.
pub fn jobserver_processes(engine: &Engine, said: &[(TaskId, u32, JobserverUse)]) -> Vec<(String, f64)> {
    let mut by_worker: BTreeMap<WorkerId, f64> = BTreeMap::new();
    for (task, number, now) in said {
        // What an attempt said that is over may still be there.
        if let Some(attempt) = engine.attempt(*task).filter(|attempt| attempt.number == *number) {
            *by_worker.entry(attempt.worker).or_default() += f64::from(now.used);
        }
    }
    let name = |worker: WorkerId| Some(engine.workers().get(worker)?.record.name.clone());
    by_worker.into_iter().filter_map(|(worker, used)| Some((name(worker)?, used))).collect()
}

/// Who has what it wants.
fn reasons(now: JobserverUse, worker: &Worker, others: &[OtherBuild<'_>], plain_cpu: u32) -> Vec<String> {
    let name = &worker.record.name;
    let mut reasons = Vec::new();
    match now.held_back {
        Some(HeldBack::Memory) => reasons.push(format!("{name} has too little free memory for another one")),
        Some(HeldBack::Pressure) => reasons.push(format!("processes on {name} wait for memory")),
        None => {}
    }
    let named = others.iter().take(BUILDS_NAMED_MAX).map(|other| {
        let (job, JobSpec { name, user, .. }) = (other.task.job, other.spec);
        format!("job {job} ({name}, user {user}) has {}", other.share)
    });
    reasons.extend(named);
    let rest = others.get(BUILDS_NAMED_MAX..).unwrap_or_default();
    if !rest.is_empty() {
        let shares = rest.iter().fold(0_u32, |sum, other| sum.saturating_add(other.share));
        reasons.push(format!("{} more have {shares}", rest.len()));
    }
    if plain_cpu > 0 {
        reasons.push(format!("other tasks hold {} cpus", Cpus(plain_cpu.into())));
    }
    if reasons.is_empty() {
        reasons.push(format!("{name} is about to give it more"));
    }
    reasons
}

/// What would give it more, the most likely first.
fn helps(
    engine: &Engine,
    now: JobserverUse,
    own: &JobSpec,
    others: &[OtherBuild<'_>],
    plain_cpu: u32,
) -> Vec<String> {
    let mut helps = Vec::new();
    match now.held_back {
        Some(HeldBack::Memory) => helps.push("more free memory, or a worker with more of it".to_owned()),
        Some(HeldBack::Pressure) => helps.push("the end of what takes the memory".to_owned()),
        None => {}
    }
    if !others.is_empty() || plain_cpu > 0 {
        helps.push("the end of any of the others".to_owned());
    }
    // Memory is what it lacks: a larger part of the cpus would not help.
    if now.held_back.is_none() {
        helps.extend(weight_change(engine, own, others).map(|change| {
            let advice = Advice { change, starts: Starts::AtOnce };
            format!("an administrator can {}", advice.steps().join("; "))
        }));
    }
    helps
}

/// A larger weight, where another queue or another user has a part.
fn weight_change(engine: &Engine, own: &JobSpec, others: &[OtherBuild<'_>]) -> Option<Change> {
    let queue = engine.queues().by_name().find(|queue| queue.name() == own.queue)?;
    let larger = |weight: u32| weight.saturating_mul(2).min(WEIGHT_MAX);
    if others.iter().any(|other| other.spec.queue != own.queue) {
        let weight = queue.record.weight;
        return (weight < WEIGHT_MAX).then(|| Change::Weight(own.queue.clone(), larger(weight)));
    }
    let weight = queue.record.weight_of(&own.user);
    let is_contended = others.iter().any(|other| other.spec.user != own.user) && weight < WEIGHT_MAX;
    let (queue, user) = (own.queue.clone(), own.user.clone());
    is_contended.then(|| Change::UserWeight { queue, user, weight: larger(weight) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::engine::{Event, Hello, Outbox, Settings, Submit};
    use windlass_core::job::{Hints, Jobserver, StepSpec};
    use windlass_core::{JobId, RequestId, Resources, Time};

    fn task(job: u64) -> TaskId {
        TaskId { job: JobId(job), index: 0 }
    }

    /// A worker of four cores, with a job of each of these: user, queue, the cpus of its only task and whether that has a
    /// jobserver.
    fn engine(jobs: &[(&str, &str, u32, bool)]) -> Engine {
        let (mut engine, mut out) = (Engine::new(Settings::default()), Outbox::default());
        let hello = Hello::new("box", 1, Resources::new(400, 1 << 33));
        engine.handle(Time(1 << 40), Event::Hello(Box::new(hello)), &mut out);
        for (number, (user, queue, cpu, builds)) in (1..).zip(jobs) {
            let jobserver = builds.then_some(Jobserver::Auto);
            let step = StepSpec {
                name: "main".to_owned(),
                tasks: 1,
                request: Resources::new(*cpu, 0),
                hints: Hints { jobserver, ..Hints::default() },
                ..StepSpec::default()
            };
            let (user, queue) = ((*user).to_owned(), (*queue).to_owned());
            let spec =
                JobSpec { name: "make".to_owned(), user, queue, steps: vec![step], ..JobSpec::default() };
            let submit = Submit::new(RequestId(number), spec);
            engine.handle(Time(1 << 40), Event::Submit(Box::new(submit)), &mut out);
        }
        engine.round(Time(1 << 40), 100, &mut out);
        assert_eq!(engine.attempts().len(), jobs.len(), "all of them are booked");
        engine
    }

    fn uses(share: u32, used: u32, wants: bool, held_back: Option<HeldBack>) -> JobserverUse {
        JobserverUse { share, used, wants, held_back }
    }

    /// What it says of the first job's task, where keepers said this of the first tasks of jobs.
    fn said(engine: &Engine, uses: &[(u64, JobserverUse)]) -> (String, Vec<String>) {
        let by_task: BTreeMap<TaskId, JobserverUse> =
            uses.iter().map(|(job, said)| (task(*job), *said)).collect();
        let why = jobserver_why(engine, task(1), |task, _| by_task.get(&task).copied()).unwrap();
        (why.message, why.helps)
    }

    #[test]
    fn a_build_that_wants_more_is_told_who_has_it_and_what_would_help() {
        let of_two =
            engine(&[("ann", "ann", 10, true), ("bob", "bob", 10, true), ("eve", "eve", 150, false)]);
        let both = [(1, uses(2, 2, true, None)), (2, uses(3, 3, true, None))];
        let (message, helps) = said(&of_two, &both);
        assert_eq!(
            message,
            "runs 2 of up to 4 processes; wants more: job 2 (make, user bob) has 3; other tasks hold 1.5 cpus"
        );
        let weight = "an administrator can give queue ann more weight: 'windlass queue set ann --weight 200'";
        assert_eq!(helps, ["the end of any of the others", weight]);
        let (_, helps) = said(&engine(&[("ann", "q", 10, true), ("bob", "q", 10, true)]), &both);
        assert_eq!(
            helps[1],
            "an administrator can give ann more weight in the queue: 'windlass queue set q --user-weight ann=200'"
        );
        let own = engine(&[("ann", "q", 10, true), ("ann", "q", 10, true)]);
        assert_eq!(said(&own, &both).1, ["the end of any of the others"], "her builds are equals");
    }

    #[test]
    fn what_lacks_memory_or_nothing_is_not_told_to_take_cpus() {
        let alone = engine(&[("ann", "ann", 10, true)]);
        let (message, helps) = said(&alone, &[(1, uses(2, 2, true, Some(HeldBack::Memory)))]);
        assert!(message.ends_with("wants more: box has too little free memory for another one"), "{message}");
        assert_eq!(helps, ["more free memory, or a worker with more of it"]);
        let (message, helps) = said(&alone, &[(1, uses(4, 1, false, None))]);
        assert_eq!((&*message, helps.len()), ("runs 1 of up to 4 processes, and needs no more now", 0));
        let (message, helps) = said(&alone, &[(1, uses(4, 4, true, None))]);
        assert!(message.ends_with("which is all that it may run here"), "{message}");
        assert_eq!(helps, ["a worker with more cpus"]);
        assert_eq!(jobserver_why(&alone, task(1), |_, _| None), None, "it has no jobserver");
    }

    #[test]
    fn many_builds_are_counted() {
        let engine = engine(&[("ann", "ann", 10, true); 6]);
        let all: Vec<_> = (1..=6).map(|job| (job, uses(1, 1, true, None))).collect();
        let (message, _) = said(&engine, &all);
        assert!(message.ends_with("job 4 (make, user ann) has 1; 2 more have 2"), "{message}");
        let used: Vec<_> = all.iter().map(|(job, said)| (task(*job), 1, *said)).collect();
        assert_eq!(jobserver_processes(&engine, &used), [("box".to_owned(), 6.0)]);
        let earlier = [(task(1), 7, uses(1, 1, true, None))];
        assert!(jobserver_processes(&engine, &earlier).is_empty(), "another attempt runs");
    }
}
