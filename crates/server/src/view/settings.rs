//! Queues and limits.

use std::collections::BTreeMap;
use windlass_api::{Limit, LimitHolder, Queue};
use windlass_core::engine::Engine;
use windlass_core::job::Job;
use windlass_core::{licences, queues as core};

/// Tasks that are named of those that hold a limit, and turns.
pub const HOLDERS_MAX: usize = 20;

/// The limit of that name; `None` if there is none.
pub fn limit(engine: &Engine, name: &str) -> Option<Limit> {
    let licences::Limit { max, per_worker, busy } = engine.licences().limits().get(name)?.clone();
    let (exits, back_off_ms) = busy.map(|busy| (busy.exits, busy.back_off_ms)).unzip();
    Some(Limit {
        name: name.to_owned(),
        max,
        used: engine.licences().taken().get(name).copied().unwrap_or(0),
        per_worker,
        busy_exits: exits.into_iter().flatten().collect(),
        back_off_ms,
        backing_off: engine.licences().backing_off(name),
        holders: Vec::new(),
        turns: Vec::new(),
    })
}

/// The limit of that name, with tasks that hold it; `None` if there is none.
pub fn held_limit(engine: &Engine, name: &str) -> Option<Limit> {
    let limit = limit(engine, name)?;
    if limit.used == 0 {
        return Some(limit);
    }
    let holders = engine.jobs().flat_map(|job| holders(engine, job, name)).take(HOLDERS_MAX);
    Some(Limit { holders: holders.collect(), ..limit })
}

/// The tasks of a job that hold a limit. Those that another task's process runs hold none.
fn holders<'a>(engine: &'a Engine, job: &'a Job, name: &'a str) -> impl Iterator<Item = LimitHolder> + 'a {
    let holds = move |index| job.spec.steps[usize::from(job.step_of(index))].limits.contains(name);
    // Most jobs name no limit, and need no look at their tasks.
    let may_hold = job.active > 0 && job.spec.steps.iter().any(|step| step.limits.contains(name));
    let attempts = may_hold.then(|| engine.attempts_of(job.id)).into_iter().flatten();
    let held = attempts.filter(move |(task, attempt)| !attempt.rides && holds(task.index));
    held.map(|(task, attempt)| LimitHolder {
        task: task.to_string(),
        user: job.spec.user.clone(),
        worker: engine.workers().get(attempt.worker).map_or_else(String::new, |on| on.record.name.clone()),
    })
}

/// The first `max` queues that pass, ordered by name.
pub fn queues(engine: &Engine, max: usize, passes: impl Fn(&core::Queue) -> bool) -> Vec<Queue> {
    let (mut had, mut waiting) = (BTreeMap::<u8, i128>::new(), BTreeMap::<&str, u64>::new());
    for queue in engine.queues().iter() {
        *had.entry(queue.band()).or_default() += queue.charged.max(0);
    }
    for job in engine.jobs().filter(|job| job.stop.is_none() && job.after.is_empty()) {
        let ready = job.steps.iter().map(|step| u64::from(step.ready.len())).sum::<u64>();
        *waiting.entry(engine.queues().get(job.queue).name()).or_default() += ready;
    }
    let parts = |from: &core::Queue| {
        let whole = engine.queues().id(from.name()).into_iter();
        whole.flat_map(|id| engine.queues().parts(id)).map(|id| engine.queues().get(id))
    };
    let away = |from: &core::Queue| {
        let lines = engine.queues().id(from.name()).into_iter().flat_map(|id| engine.subqueues().of(id));
        lines.fold((0, 0), |(jobs, ready), line| (jobs + line.away().jobs, ready + line.away().ready))
    };
    let charge = match engine.charge() {
        core::Charge::Time => "time",
        core::Charge::Task => "task",
    };
    let entitlements = windlass_core::explain::entitlements(engine).into_iter();
    let entitlements: BTreeMap<_, _> = entitlements.map(|own| (own.queue, own)).collect();
    let entitlement = |from: &core::Queue| entitlements.get(&engine.queues().id(from.name())?);
    let queue = |from: &core::Queue| Queue {
        name: from.name().to_owned(),
        band: from.band(),
        weight: from.share().weight(),
        quota_cpus: from.record.quota_cpu.map(cores),
        burst_cpus: from.record.burst_cpu.map(cores),
        paused: from.record.paused.clone(),
        users: from.record.users.clone(),
        turns: from.record.turns.into(),
        user_weights: from.record.user_weights.clone(),
        jobserver: from.record.jobserver,
        running: from.active,
        running_cpus: from.booked_cpu as f64 / 100.0,
        waiting: waiting.get(from.name()).copied().unwrap_or(0) + away(from).1,
        ready_steps: parts(from).map(core::Queue::steps).sum(),
        parked_jobs: away(from).0,
        booked: from.share().tasks(),
        charge: charge.to_owned(),
        share: had.get(&from.band()).filter(|all| **all > 0).map(|all| {
            let part = from.charged.max(0) as f64 / *all as f64;
            (part * 10_000.0).round() / 10_000.0
        }),
        demand_cpus: entitlement(from).map(|own| own.demand_cpu as f64 / 100.0),
        entitled_cpus: entitlement(from).map(|own| own.entitled_cpu.round() / 100.0),
        effective_weight: entitlement(from).and_then(|own| own.effective_weight),
    };
    engine.queues().by_name().filter(|queue| passes(queue)).take(max).map(queue).collect()
}

fn cores(hundredths: u32) -> f64 {
    f64::from(hundredths) / 100.0
}
