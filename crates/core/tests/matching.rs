//! The index finds what a scan of all workers would find, whatever was booked and given back.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::cache_keys::Reads;
use windlass_core::class::Class;
use windlass_core::ids::{AllocId, ClassId, Epoch, JobId, QueueId, StepKey};
use windlass_core::job::QueuedStep;
use windlass_core::load::formula::LoadSettings;
use windlass_core::plan::placement::{self, MatchContext, PlacementOutcome, PlacementRequest};
use windlass_core::queues::{Charge, Queues, RoundFilter, TurnSettings};
use windlass_core::score::context::{InstanceContext, JobContext};
use windlass_core::score::policy::policy_by_name;
use windlass_core::tags::{Attributes, Need};
use windlass_core::worker::{Saturation, Worker, WorkerRecord, WorkerState};
use windlass_core::workers::Workers;
use windlass_core::{Resources, Time, WorkerId};

/// It prefers no worker.
static NONE: BTreeSet<String> = BTreeSet::new();

fn worker(id: u64, capacity: Resources, tag: u8, state: WorkerState) -> Worker {
    let record = WorkerRecord {
        id: WorkerId(id),
        name: format!("w{id}"),
        epoch: Epoch(1),
        identity: 1,
        incarnation: 1,
        state,
        draining: false,
        note: None,
        lease_until: None,
        capacity,
        attributes: Attributes::from([("kind".to_owned(), BTreeSet::from([tag.to_string()]))]),
    };
    if state == WorkerState::Suspect { Worker::unheard(record) } else { Worker::linked(record) }
}

fn states() -> impl Strategy<Value = WorkerState> {
    prop_oneof![6 => Just(WorkerState::Up), 1 => Just(WorkerState::Draining), 1 => Just(WorkerState::Suspect)]
}

fn amounts() -> impl Strategy<Value = Resources> {
    (0u32..6, 0u64..40, 0u32..2)
        .prop_map(|(cpu, memory, gpus)| Resources { gpus, ..Resources::new(cpu * 50, memory << 28) })
}

/// Where a task of the class goes, no step being anything special.
fn push(class: &Class, workers: &Workers) -> Option<WorkerId> {
    let reads = Reads::default();
    let ask = PlacementRequest {
        step: StepKey { job: JobId(1), step: 0 },
        class_id: ClassId(0),
        band: 3,
        class,
        job: JobContext::default(),
        reads: &reads,
        profile: 0,
        avoids: None,
        longest_ms: None,
        others_wait: false,
        locality: false,
        prefers: &NONE,
        turn: None,
    };
    let context = MatchContext {
        now: Time(0),
        workers,
        reserved: &BTreeMap::new(),
        policy: policy_by_name("simple").0,
        instance: &InstanceContext::default(),
        known: None,
        key_bytes: None,
    };
    match placement::place_task(&ask, &context, None) {
        PlacementOutcome::Best(ranked) => Some(ranked[0].worker),
        PlacementOutcome::NoRoom | PlacementOutcome::Vetoed(..) => None,
    }
}

proptest! {
    #[test]
    fn the_index_is_a_scan(
        farm in prop::collection::vec((amounts(), 0u8..3, states()), 1..20),
        steps in prop::collection::vec((amounts(), prop::option::of(0u8..4), 0usize..20, any::<bool>()), 1..60),
        (cores, memory) in any::<(bool, bool)>(),
    ) {
        let mut workers = Workers::new(Saturation { cores, memory }, 0, LoadSettings::default());
        for (id, (capacity, tag, state)) in (1u64..).zip(farm) {
            workers.insert(worker(id, capacity, tag, state));
        }
        let (mut booked, mut places): (Vec<(WorkerId, AllocId)>, u64) = (Vec::new(), 0);
        for (request, tag, give_back, targeted) in steps {
            let needs = tag.map(|tag| Need::parse(&format!("kind={tag}"))).into_iter().collect();
            let targets = if targeted { BTreeSet::from(["w1".to_owned(), "w2".to_owned()]) } else { BTreeSet::new() };
            let class = Class { request: request.clone(), needs, targets, ..Class::default() };
            workers.learn(class.needs.iter());
            let found = push(&class, &workers);
            let fitting: Vec<&Worker> = workers.iter().filter(|w| placement::fits_now(&class, w)).collect();
            prop_assert_eq!(found.is_some(), !fitting.is_empty());
            if let Some(id) = found {
                let chosen = workers.get(id).unwrap();
                prop_assert!(placement::fits_now(&class, chosen) && placement::eligible_when_idle(&class, chosen));
                // Of equal points the least loaded of those that fit, or that with least free.
                let rank = |w: &Worker| {
                    let load = w.load_with(request.cpu, workers.load_settings());
                    if memory { w.free().memory as f64 } else if cores { w.free().cpu.into() } else { load }
                };
                prop_assert!(fitting.iter().all(|w| rank(chosen) <= rank(w)));
                places += 1;
                workers.update(id, |w| w.booked.give_place(AllocId(places), request));
                booked.push((id, AllocId(places)));
            }
            if give_back < booked.len() {
                let (id, place) = booked.swap_remove(give_back);
                workers.update(id, |w| w.booked.free_place(place));
            }
            prop_assert!(workers.iter().all(|w| w.booked.sum().fits(&w.record.capacity)));
        }
    }

    /// Two queues of equal weight that always have work never differ by more than one task of each. One that
    /// comes later waits for nobody's past.
    #[test]
    fn turns_are_fair(queues in 2u32..7, rounds in 1usize..60, late in 0usize..40) {
        let mut all = Queues::new(TurnSettings { charge: Charge::Task, express: None });
        let candidate = |q: u32| QueuedStep::new(0, Time(0), StepKey { job: JobId(u64::from(q)), step: 0 });
        let ids: Vec<QueueId> = (0..queues).map(|q| all.intern(&format!("q{q}"))).collect();
        for (q, id) in (0..queues).zip(&ids).skip(1) {
            all.insert(*id, ClassId(0), candidate(q));
        }
        let mut had: BTreeMap<QueueId, u64> = ids.iter().map(|id| (*id, 0)).collect();
        let serve = |all: &mut Queues, had: &mut BTreeMap<QueueId, u64>| {
            let mut skip = RoundFilter::default();
            let (id, ..) = all.next(&mut skip, &|_| true).unwrap();
            all.charge(id, 1, &mut skip);
            *had.get_mut(&id).unwrap() += 1;
            id
        };
        for _ in 0..late {
            serve(&mut all, &mut had);
        }
        all.insert(ids[0], ClassId(0), candidate(0));
        let before = had.clone();
        for round in 1..=rounds * queues as usize {
            serve(&mut all, &mut had);
            let since: Vec<u64> = ids.iter().map(|id| had[id] - before[id]).collect();
            let (least, most) = (since.iter().min().unwrap(), since.iter().max().unwrap());
            prop_assert!(most - least <= 2, "{since:?} after {round}");
        }
    }
}
