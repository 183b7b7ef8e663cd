//! Leases: what a beat costs, and that no worker expires before the last lease that it was granted is over.

use crate::kit::{Farm, REQUEST, cores, spec, starts, step, task};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{
    Event, Hello, Inventory, Outbox, Settings, StoredState, Submit, WorkerCommand, Write,
};
use windlass_core::plan::PlanSettings;
use windlass_core::worker::{WorkerRecord, WorkerState};
use windlass_core::{JobId, Resources, Time, WorkerId};

const LEASE_NS: u64 = 300;
const SUSPECT_NS: u64 = 90;

fn settings() -> Settings {
    Settings {
        lease_ns: Some(LEASE_NS),
        plan: PlanSettings { suspect_ns: SUSPECT_NS, ..PlanSettings::default() },
        ..Settings::default()
    }
}

fn hello(name: u64, incarnation: u64, fences: bool, sent: u64) -> Event {
    Event::Hello(Box::new(Hello {
        incarnation,
        fences,
        sent,
        new_link: false,
        ..Hello::new(&format!("w{name}"), name, cores(1))
    }))
}

/// The batch of the event and one round at that time.
fn tell(farm: &mut Farm, now: u64, event: Event) -> Outbox {
    farm.now = Time(now);
    farm.handle(event);
    farm.round();
    farm.take()
}

/// A job of one task.
fn submit(farm: &mut Farm, now: u64, request: Resources) -> Outbox {
    let spec = spec("", [step(1, request)]);
    tell(farm, now, Event::Submit(Box::new(Submit::new(REQUEST, spec))))
}

fn beat(farm: &mut Farm, now: u64, worker: u64, sent: u64) -> Outbox {
    tell(farm, now, Event::Beat { worker: WorkerId(worker), sent, inventory: Inventory::default() })
}

fn grants(out: &Outbox) -> Vec<(WorkerId, u64, u64)> {
    let leases = out.sends.iter().filter_map(|send| match send.command {
        WorkerCommand::Lease { sent, lasts_ns } => Some((send.worker, sent, lasts_ns)),
        _ => None,
    });
    leases.collect()
}

#[test]
fn a_keepers_number_alone_takes_over_no_worker() {
    let mut farm = Farm::new(settings());
    tell(&mut farm, 1000, hello(1, 7, true, 0));
    // Another machine, under a name that nobody has, with the number that every task of the first knows.
    tell(&mut farm, 1001, hello(2, 7, true, 0));
    let names: Vec<String> = farm.engine.workers().iter().map(|worker| worker.record.name.clone()).collect();
    assert_eq!(names, ["w1", "w2"]);
    assert!(farm.engine.workers().by_name("w1").is_some_and(|worker| worker.link.connected));
}

#[test]
fn a_beat_renews_and_writes_once_in_half_a_lease() {
    let mut farm = Farm::new(settings());
    let welcome = tell(&mut farm, 1000, hello(1, 7, true, 55));
    assert_eq!(grants(&welcome), [(WorkerId(1), 55, 300)]);
    let idle = beat(&mut farm, 1150, 1, 66);
    assert_eq!((grants(&idle), idle.sends.len()), (vec![(WorkerId(1), 66, 150)], 1));
    assert!(idle.writes.is_empty() && idle.facts.is_empty(), "{idle:?}");
    let renewed = beat(&mut farm, 1151, 1, 77);
    assert_eq!(renewed.writes, [Write::Lease { worker: WorkerId(1), until: Time(1451) }]);
    assert_eq!(grants(&renewed), [(WorkerId(1), 77, 300)]);
}

#[test]
fn silence_is_suspect_and_the_end_of_the_lease_raises_the_epoch() {
    let mut farm = Farm::new(settings());
    tell(&mut farm, 1000, hello(1, 7, true, 0));
    let state =
        |farm: &Farm| farm.engine.workers().get(WorkerId(1)).map(|w| (w.record.state, w.record.epoch.0));
    assert_eq!(farm.engine.next_wakeup(), Some(Time(1090)));
    tell(&mut farm, 1089, Event::Tick);
    assert_eq!(state(&farm), Some((WorkerState::Up, 1)));
    tell(&mut farm, 1090, Event::Tick);
    assert_eq!(state(&farm), Some((WorkerState::Suspect, 1)));
    assert_eq!(farm.engine.next_wakeup(), Some(Time(1300)));
    // It must say hello before it is granted more: what it holds is not known.
    assert_eq!(beat(&mut farm, 1200, 1, 0).sends.first().map(|s| &s.command), Some(&WorkerCommand::Resync));
    let out = tell(&mut farm, 1300, Event::Tick);
    assert_eq!(state(&farm), Some((WorkerState::Expired, 2)));
    assert!(matches!(&out.writes[..], [Write::Worker(WorkerRecord { lease_until: None, .. })]), "{out:?}");
    assert_eq!(farm.engine.next_wakeup(), None);
}

/// Two beats of a stalled line come one after the other, both from before a start: neither says that it was lost.
#[test]
fn beats_from_before_a_start_do_not_say_that_it_was_lost() {
    let mut farm = Farm::new(settings());
    tell(&mut farm, 1000, hello(1, 7, true, 0));
    let started = submit(&mut farm, 1010, Resources::default());
    assert_eq!(starts(&started), [(WorkerId(1), task(JobId(1), 0))], "{started:?}");
    tell(&mut farm, 1020, Event::Cancel { request: REQUEST, job: JobId(1) });
    for sent in [1, 2] {
        let out = beat(&mut farm, 1030 + sent, 1, sent);
        assert!(!out.writes.iter().any(|write| matches!(write, Write::End { .. })), "{out:?}");
    }
    // Once a later message arrived, the start never will.
    let inventory = Inventory { seq: u64::MAX, held: Vec::new() };
    let out = tell(&mut farm, 1040, Event::Beat { worker: WorkerId(1), sent: 3, inventory });
    assert!(out.writes.iter().any(|write| matches!(write, Write::End { .. })), "{out:?}");
}

/// Of one connection, what was sent earlier and comes later is out of date.
#[test]
fn an_old_hello_or_beat_that_comes_late_changes_nothing() {
    let mut farm = Farm::new(settings());
    tell(&mut farm, 1000, hello(1, 7, true, 50));
    submit(&mut farm, 1010, Resources::default());
    beat(&mut farm, 1020, 1, 60);
    tell(&mut farm, 1030, Event::Cancel { request: REQUEST, job: JobId(1) });
    for late in [
        hello(1, 7, true, 55),
        Event::Beat { worker: WorkerId(1), sent: 55, inventory: Inventory { seq: 9, held: Vec::new() } },
    ] {
        let out = tell(&mut farm, 1040, late);
        assert!(out.writes.is_empty() && out.sends.is_empty(), "{out:?}");
    }
    // Another keeper's clock is another.
    assert!(!tell(&mut farm, 1050, hello(1, 8, true, 5)).sends.is_empty());
}

/// The worker does not know of the epoch that the end of its lease began. It would run what it is sent in its earlier
/// epoch, and its reports of that would count for nothing.
#[test]
fn an_old_hello_that_comes_after_the_end_of_the_lease_opens_no_epoch() {
    let mut farm = Farm::new(settings());
    tell(&mut farm, 1000, hello(1, 7, true, 50));
    beat(&mut farm, 1020, 1, 60);
    tell(&mut farm, 1400, Event::Tick);
    let out = tell(&mut farm, 1410, hello(1, 7, true, 50));
    assert!(out.writes.is_empty() && out.sends.is_empty(), "{out:?}");
    assert_eq!(starts(&submit(&mut farm, 1420, cores(1))), []);
    let asked = beat(&mut farm, 1430, 1, 70).sends;
    assert_eq!(asked.iter().map(|send| &send.command).collect::<Vec<_>>(), [&WorkerCommand::Resync]);
    let out = tell(&mut farm, 1440, hello(1, 7, true, 75));
    assert_eq!(starts(&out), [(WorkerId(1), task(JobId(1), 0))]);
}

#[test]
fn the_room_of_a_lost_start_goes_to_the_next_task_at_once() {
    let mut farm = Farm::new(settings());
    tell(&mut farm, 1000, hello(1, 7, true, 0));
    for _ in 1..=2 {
        submit(&mut farm, 1010, cores(1));
    }
    tell(&mut farm, 1020, Event::Cancel { request: REQUEST, job: JobId(1) });
    let inventory = Inventory { seq: u64::MAX, held: Vec::new() };
    let out = tell(&mut farm, 1040, Event::Beat { worker: WorkerId(1), sent: 3, inventory });
    let booked = |write: &Write| matches!(write, Write::Book { task, .. } if task.job == JobId(2));
    assert!(out.writes.iter().any(booked), "{out:?}");
}

#[test]
fn without_a_lease_nothing_expires() {
    let never = Settings { lease_ns: None, ..settings() };
    for (settings, fences) in [(settings(), false), (never, true)] {
        let mut farm = Farm::new(settings);
        assert_eq!(grants(&tell(&mut farm, 1000, hello(1, 7, fences, 0))), []);
        assert_eq!(grants(&beat(&mut farm, 1001, 1, 0)), []);
        tell(&mut farm, 1_000_000, Event::Tick);
        assert_eq!(
            farm.engine.workers().get(WorkerId(1)).map(|w| w.record.state),
            Some(WorkerState::Suspect)
        );
        assert_eq!(farm.engine.next_wakeup(), None);
    }
}

/// What happens next to a farm of two workers.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Hello(u64),
    NewKeeper(u64),
    Beat(u64),
    Lost(u64),
    Tick,
    /// The next batch is not durable.
    Fail,
    /// Another engine takes over what is durable, with a clock that differs.
    Restart(i64),
}

fn steps() -> impl Strategy<Value = Step> {
    let worker = 1u64..3;
    prop_oneof![
        4 => (1u64..120).prop_map(Step::Pass),
        2 => worker.clone().prop_map(Step::Hello),
        1 => worker.clone().prop_map(Step::NewKeeper),
        4 => worker.clone().prop_map(Step::Beat),
        1 => worker.prop_map(Step::Lost),
        3 => Just(Step::Tick),
        1 => Just(Step::Fail),
        1 => (-1000i64..1000).prop_map(Step::Restart),
    ]
}

/// A farm, what is durable of its workers, and what they were told, by true time.
struct Leases {
    farm: Farm,
    rows: BTreeMap<WorkerId, WorkerRecord>,
    true_now: u64,
    clock_off: i64,
    incarnations: BTreeMap<u64, u64>,
    granted_until: BTreeMap<WorkerId, u64>,
}

impl Leases {
    fn clock(&self) -> u64 {
        (1_000_000 + self.true_now).saturating_add_signed(self.clock_off)
    }

    /// Handles the event; commits, and sends, or loses the batch.
    fn event(&mut self, event: Event, durable: bool) {
        self.farm.now = Time(self.clock());
        self.farm.handle(event);
        if durable {
            self.farm.round();
        } else {
            // The pipeline would deliver a batch without writes. Here it is lost with the leases that it grants.
            let Farm { engine, pipeline, now, .. } = &mut self.farm;
            engine.round(*now, 1_000, &mut pipeline.forming);
            let lost = std::mem::take(&mut pipeline.forming);
            assert!(engine.failed([&lost]).is_empty());
            engine.reload(*now, &BTreeSet::new(), Vec::new(), Vec::new(), &mut pipeline.forming);
            self.farm.commit();
        }
        let out = self.farm.take();
        for write in &out.writes {
            match write {
                Write::Worker(record) => _ = self.rows.insert(record.id, record.clone()),
                Write::Lease { worker, until } => {
                    let row = self.rows.get_mut(worker).expect("a lease of a worker that is not stored");
                    row.lease_until = Some(*until);
                }
                _ => {}
            }
        }
        for (worker, _, lasts_ns) in grants(&out) {
            let durable = self.rows[&worker].lease_until.expect("granted and not durable");
            assert!(durable.0 >= self.clock() + lasts_ns, "granted for longer than is durable");
            let until = self.granted_until.entry(worker).or_default();
            *until = self.true_now.saturating_add(lasts_ns).max(*until);
        }
    }

    fn step(&mut self, step: Step, durable: bool) {
        match step {
            Step::Pass(ns) => self.true_now += ns,
            Step::Hello(name) => {
                let incarnation = self.incarnations[&name];
                self.event(hello(name, incarnation, true, 0), durable);
            }
            Step::NewKeeper(name) => {
                let incarnation = self.incarnations.get_mut(&name).expect("one of two");
                *incarnation += 10;
                let event = hello(name, *incarnation, true, 0);
                self.event(event, durable);
            }
            Step::Beat(worker) => {
                let inventory = Inventory::default();
                self.event(Event::Beat { worker: WorkerId(worker), sent: 0, inventory }, durable);
            }
            Step::Lost(worker) => self.event(Event::Lost { worker: WorkerId(worker) }, durable),
            Step::Tick => self.event(Event::Tick, durable),
            Step::Fail => {}
            Step::Restart(clock_off) => {
                self.clock_off = clock_off;
                let workers = self.rows.values().cloned().collect();
                let stored = StoredState { workers, ..StoredState::default() };
                self.farm = Farm::restored(settings(), stored, Time(self.clock()));
            }
        }
    }
}

proptest! {
    #[test]
    fn no_worker_expires_before_its_lease_is_over(steps in prop::collection::vec(steps(), 1..200)) {
        let mut leases = Leases {
            farm: Farm::new(settings()),
            rows: BTreeMap::new(),
            true_now: 0,
            clock_off: 0,
            incarnations: BTreeMap::from([(1, 1), (2, 2)]),
            granted_until: BTreeMap::new(),
        };
        let mut durable = true;
        for step in steps {
            let fails = matches!(step, Step::Fail);
            let before: Vec<WorkerState> = leases.farm.engine.workers().iter().map(|w| w.record.state).collect();
            leases.step(step, durable);
            durable = !fails;
            prop_assert_eq!(leases.farm.engine.check(), Ok(()));
            let fresh = leases.farm.engine.workers().iter().enumerate().filter(|(number, w)| {
                w.record.state == WorkerState::Expired && before.get(*number) != Some(&WorkerState::Expired)
            });
            for (_, worker) in fresh {
                let until = leases.granted_until.get(&worker.record.id).copied().unwrap_or(0);
                prop_assert!(until <= leases.true_now, "expired {} early", until - leases.true_now);
            }
        }
    }
}
