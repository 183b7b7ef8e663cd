//! How much of some workers each queue is entitled to: band after band, and weighted max-min inside a band.
//!
//! The workers count as one pool of cpus. Where tasks fit only some of them, a queue may have less than this.

use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{ClassId, QueueId};
use crate::load::share::{Claim, level};
use crate::plan::placement;
use crate::queues::Queue;
use crate::worker::Worker;
use std::collections::BTreeMap;

/// What a queue may expect of a pool of workers. Cpu in hundredths of a core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Entitlement {
    /// The queue that is entitled.
    pub queue: QueueId,
    /// What the queue holds anywhere and could use in the pool, as far as its quota and a pause let it.
    pub demand_cpu: u64,
    /// Its part by weighted max-min of what higher bands leave.
    pub entitled_cpu: f64,
    /// The weight that it counts with in its band: less than its own if its own entitles it to more than it wants.
    /// `None` if all queues of its band get what they want, so that no weight makes a difference.
    pub effective_weight: Option<f64>,
}

/// How the workers that could run a class are shared out between queues. All in hundredths of a core.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pool {
    /// What these workers have.
    pub cpu: u64,
    /// What all queues hold and could use there.
    pub demand_cpu: u64,
    /// What the queue holds and could use there, as far as its quota lets it.
    pub own_demand_cpu: u64,
    /// What the queue holds.
    pub booked_cpu: u64,
    /// What its band and its weight entitle it to.
    pub entitled_cpu: f64,
    /// There is not enough for all.
    pub contended: bool,
}

/// What each queue is entitled to of all workers that take work.
pub fn entitlements(engine: &Engine) -> Vec<Entitlement> {
    let workers: Vec<&Worker> = engine.workers().present().filter(|worker| worker.takes_work()).collect();
    divide(capacity(&workers), claims(engine, &workers))
}

/// How the workers that could run a class are shared out, and what that is for a queue.
pub fn pool(engine: &Engine, class: &Class, of: &str) -> Pool {
    let could = |worker: &&Worker| worker.takes_work() && placement::eligible_when_idle(class, worker);
    let workers: Vec<&Worker> = engine.workers().present().filter(could).collect();
    let cpu = capacity(&workers);
    let all = divide(cpu, claims(engine, &workers));
    let demand_cpu = all.iter().map(|entitlement| entitlement.demand_cpu).sum();
    let mut pool =
        Pool { cpu, demand_cpu, contended: demand_cpu > 0 && demand_cpu >= cpu, ..Pool::default() };
    if let Some(id) = engine.queues().id(of) {
        pool.booked_cpu = engine.queues().get(id).booked_cpu;
        if let Some(own) = all.iter().find(|entitlement| entitlement.queue == id) {
            (pool.own_demand_cpu, pool.entitled_cpu) = (own.demand_cpu, own.entitled_cpu);
        }
    }
    pool
}

fn capacity(workers: &[&Worker]) -> u64 {
    workers.iter().map(|worker| u64::from(worker.record.capacity.cpu)).sum()
}

/// Each queue's claim by its band: what it holds anywhere, and what of its ready work fits one of these workers.
fn claims(engine: &Engine, workers: &[&Worker]) -> BTreeMap<u8, Vec<Claim>> {
    let mut claims: BTreeMap<u8, Vec<Claim>> = BTreeMap::new();
    let mut fitting: BTreeMap<ClassId, bool> = BTreeMap::new();
    for (id, queue) in engine.queues().with_ids() {
        let mut demand = queue.booked_cpu;
        if queue.record.paused.is_none() {
            demand += ready_demand(engine, id, workers, &mut fitting) + parked_demand(engine, id, workers);
        }
        let demand = queue.record.quota_cpu.map_or(demand, |quota| demand.min(quota.into()));
        let claim = Claim { id: u64::from(id.0), weight: queue.share().weight(), demand };
        claims.entry(queue.band()).or_default().push(claim);
    }
    claims
}

/// What the ready tasks of a queue that are in memory could use on some of these workers.
fn ready_demand(
    engine: &Engine,
    queue: QueueId,
    workers: &[&Worker],
    fitting: &mut BTreeMap<ClassId, bool>,
) -> u64 {
    let mut demand = 0;
    let mut add = |id: ClassId, ready: u32| {
        let Some(class) = engine.class(id) else { return };
        let fits = || workers.iter().any(|worker| placement::eligible_when_idle(class, worker));
        if *fitting.entry(id).or_insert_with(fits) {
            demand += u64::from(ready) * u64::from(class.request.cpu);
        }
    };
    let parts = engine.queues().parts(queue).map(|part| engine.queues().get(part));
    for (id, queued_step) in parts.flat_map(Queue::steps_by_class) {
        let key = queued_step.step();
        match engine.job(key.job) {
            // The steps that start with it stand in no queue.
            Some(job) => {
                job.gang_steps(key.step.into()).for_each(|step| {
                    add(job.steps[step].class, job.steps[step].ready.len());
                });
            }
            // A request of an outside client is one.
            None => add(id, 1),
        }
    }
    demand
}

/// Bands are strict, so each has what the bands above it leave.
fn divide(cpu: u64, claims: BTreeMap<u8, Vec<Claim>>) -> Vec<Entitlement> {
    let mut left = cpu;
    let mut entitlements = Vec::new();
    for claims in claims.values().rev() {
        let level = level(left, claims);
        for claim in claims {
            let share = level.share(claim);
            entitlements.push(Entitlement {
                queue: QueueId(claim.id as u32),
                demand_cpu: claim.demand,
                entitled_cpu: share.whole as f64 + share.part as f64 / share.of as f64,
                effective_weight: level.effective_weight(claim),
            });
        }
        let wanted = claims.iter().map(|claim| claim.demand).sum();
        left = left.saturating_sub(wanted);
    }
    entitlements
}

/// Hundredths of a core that the parked tasks of a queue could use on some of these workers.
fn parked_demand(engine: &Engine, queue: QueueId, workers: &[&Worker]) -> u64 {
    let subqueues = engine.subqueues().of(queue).filter(|subqueue| subqueue.away().ready > 0);
    let demand = subqueues.filter_map(|subqueue| {
        let first = engine.ledger().first_ready(subqueue.positions().next()?.job)?;
        let class = engine.class_of(first)?;
        let fits = workers.iter().any(|worker| placement::eligible_when_idle(class, worker));
        fits.then(|| subqueue.away().ready * u64::from(class.request.cpu))
    });
    demand.sum()
}
