//! Queues, in one shard or in all shards of a farm.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_api::Queue;
use windlass_core::engine::Engine;
use windlass_core::queues as core;

/// Queues as one engine has them, ordered by name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct QueueList {
    queues: Vec<ChargedQueue>,
    /// What all queues of each band were charged since the engine started.
    charged_by_band: BTreeMap<u8, f64>,
}

/// A queue without its share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct ChargedQueue {
    queue: Queue,
    /// What it was charged since the engine started.
    charged: f64,
}

impl QueueList {
    /// The first `max` queues that pass.
    pub fn of(engine: &Engine, max: usize, passes: impl Fn(&core::Queue) -> bool) -> QueueList {
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
        let charge = match engine.turn().charge {
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
            running: from.active,
            running_cpus: from.booked_cpu as f64 / 100.0,
            waiting: waiting.get(from.name()).copied().unwrap_or(0) + away(from).1,
            ready_steps: parts(from).map(core::Queue::steps).sum(),
            parked_jobs: away(from).0,
            booked: from.share().tasks(),
            charge: charge.to_owned(),
            share: None,
            demand_cpus: entitlement(from).map(|own| own.demand_cpu as f64 / 100.0),
            entitled_cpus: entitlement(from).map(|own| own.entitled_cpu.round() / 100.0),
            effective_weight: entitlement(from).and_then(|own| own.effective_weight),
        };
        let some = engine.queues().by_name().filter(|queue| passes(queue)).take(max);
        let charged =
            |from: &core::Queue| ChargedQueue { queue: queue(from), charged: from.charged.max(0) as f64 };
        QueueList {
            queues: some.map(charged).collect(),
            charged_by_band: had.into_iter().map(|(band, charged)| (band, charged as f64)).collect(),
        }
    }

    /// Without the queues that have and had no work here.
    pub fn in_use(mut self) -> QueueList {
        self.queues.retain(|ChargedQueue { queue, charged }| {
            queue.running > 0 || queue.waiting > 0 || queue.booked > 0 || *charged > 0.0
        });
        self
    }

    /// These queues with what they have in other shards too. Settings, and the weight with which a queue counts, are those
    /// here: every shard shares its own workers by them.
    pub fn join(self, others: &[&QueueList]) -> Vec<Queue> {
        let mut had = self.charged_by_band;
        for (band, charged) in others.iter().flat_map(|other| &other.charged_by_band) {
            *had.entry(*band).or_default() += charged;
        }
        let joined = self.queues.into_iter().map(|ChargedQueue { mut queue, mut charged }| {
            let there: Vec<&ChargedQueue> =
                others.iter().filter_map(|other| other.find(&queue.name)).collect();
            for there in there {
                add(&mut queue, &there.queue);
                charged += there.charged;
            }
            let all = had.get(&queue.band).filter(|all| **all > 0.0);
            queue.share = all.map(|all| (charged / all * 10_000.0).round() / 10_000.0);
            queue
        });
        joined.collect()
    }

    fn find(&self, name: &str) -> Option<&ChargedQueue> {
        let place = self.queues.binary_search_by(|known| known.queue.name.as_str().cmp(name)).ok()?;
        self.queues.get(place)
    }
}

fn add(queue: &mut Queue, there: &Queue) {
    let sum = |one: Option<f64>, other: Option<f64>| {
        let cpus = [one, other].into_iter().flatten().reduce(|one, other| one + other);
        cpus.map(|cpus| (cpus * 100.0).round() / 100.0)
    };
    queue.running += there.running;
    queue.running_cpus += there.running_cpus;
    queue.waiting += there.waiting;
    queue.ready_steps += there.ready_steps;
    queue.booked += there.booked;
    queue.demand_cpus = sum(queue.demand_cpus, there.demand_cpus);
    queue.entitled_cpus = sum(queue.entitled_cpus, there.entitled_cpus);
}

fn cores(hundredths: u32) -> f64 {
    f64::from(hundredths) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::engine::{Event, Hello, Outbox, Settings, Submit};
    use windlass_core::job::{JobSpec, StepSpec};
    use windlass_core::{RequestId, Resources, Time};

    /// An engine with a worker of so many cpus, and a job of as many tasks in each of these queues.
    fn engine(cpus: u32, queues: &[(&str, u32)]) -> Engine {
        let mut engine = Engine::new(Settings::default());
        let (now, mut out) = (Time(1 << 40), Outbox::default());
        let hello = Hello::new("w1", 1, Resources::new(cpus * 100, 64 << 30));
        engine.handle(now, Event::Hello(Box::new(hello)), &mut out);
        for (request, (queue, tasks)) in (1..).zip(queues) {
            let name = "s".to_owned();
            let step =
                StepSpec { name, tasks: *tasks, request: Resources::new(100, 0), ..StepSpec::default() };
            let spec = JobSpec {
                queue: (*queue).to_owned(),
                user: "ann".to_owned(),
                steps: vec![step],
                ..JobSpec::default()
            };
            engine.handle(now, Event::Submit(Box::new(Submit::new(RequestId(request), spec))), &mut out);
        }
        engine.round(now, 1024, &mut out);
        engine
    }

    #[test]
    fn a_queue_has_what_it_has_in_all_shards() {
        let (one, two) = (engine(2, &[("films", 1), ("tests", 1)]), engine(6, &[("films", 3)]));
        let told = serde_json::to_string(&QueueList::of(&two, 9, |_| true).in_use()).unwrap();
        let there: QueueList = serde_json::from_str(&told).unwrap();
        let own = QueueList::of(&one, 9, |queue| queue.name() == "films");
        let queues = own.clone().join(&[&there]);
        let films = &queues[0];
        assert_eq!((queues.len(), films.name.as_str()), (1, "films"));
        assert_eq!((films.running, films.running_cpus, films.booked), (4, 4.0, 4));
        assert_eq!((films.demand_cpus, films.entitled_cpus), (Some(4.0), Some(4.0)));
        let shares = (own.join(&[])[0].share.unwrap(), films.share.unwrap());
        assert!(
            shares.0 < shares.1 && shares.1 < 1.0,
            "{shares:?}: it had more of the band in the other shard"
        );
        let absent = QueueList::of(&one, 9, |queue| queue.name() == "tests").join(&[&there]);
        assert_eq!((absent[0].running, absent[0].running_cpus), (1, 1.0));
    }
}
