//! Turns do not depend on residency: an engine with a small cache makes the same bookings, one by one, as an
//! engine in which all jobs are resident.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{Engine, Event, Hello, Outbox, Report, Settings, Submit, WorkerCommand};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
use windlass_core::plan::{PlanSettings, Policy};
use windlass_core::queues::{Charge, TurnSettings};
use windlass_core::score::policy::policy_by_name;
use windlass_core::time::{NS_PER_MS, NS_PER_S};
use windlass_core::{Epoch, RequestId, Resources, TaskId, Time, WorkerId};
use windlass_store::Memory;

const QUEUES: [&str; 5] = ["ann", "bob", "cyn", "vip", "idle"];
const USERS: [&str; 3] = ["ann", "bob", "cyn"];

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A number of jobs of a queue, user, class and priority.
    Submit(usize, usize, u8, i32, u8),
    /// The task that has run longest ends.
    Ends,
}

struct Farm {
    engine: Engine,
    store: Memory,
    now: Time,
    running: BTreeMap<u64, (TaskId, u32)>,
    /// Bookings in their order.
    booked: Vec<TaskId>,
    /// The largest number of resident steps.
    held_max: usize,
}

impl Farm {
    fn new(cache_steps: usize) -> Farm {
        let turn = TurnSettings { charge: Charge::Task, ..TurnSettings::default() };
        // With more resident steps another one might suit a worker better. With this policy all suit alike.
        let policy = Policy(policy_by_name("simple").0);
        let mut farm = Farm {
            engine: Engine::new(Settings {
                cache_steps,
                lease_ns: None,
                plan: PlanSettings { turn, policy, ..PlanSettings::default() },
                ..Settings::default()
            }),
            store: Memory::default(),
            now: Time(1_000_000 * NS_PER_S),
            running: BTreeMap::new(),
            booked: Vec::new(),
            held_max: 0,
        };
        let hello = Hello::new("w", 1, Resources::new(300, 0));
        farm.tell(Event::Hello(Box::new(hello)));
        farm
    }

    fn tell(&mut self, event: Event) {
        self.now = self.now.after(NS_PER_MS);
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        self.settle(out);
    }

    /// Places what fits, and commits and reads at once, until nothing happens.
    fn settle(&mut self, mut out: Outbox) {
        loop {
            self.engine.round(self.now, 1, &mut out);
            if out.is_empty() {
                break;
            }
            let batch = std::mem::take(&mut out);
            assert!(self.store.apply(&batch.writes).is_empty());
            self.engine.committed(&batch);
            for send in &batch.sends {
                if let WorkerCommand::Start { task, attempt, .. } = send.command {
                    self.running.insert(self.booked.len() as u64, (task, attempt));
                    self.booked.push(task);
                }
            }
            for fetch in batch.fetches {
                let records = Some(self.store.fetch(&fetch));
                self.engine.handle(self.now, Event::Fetched { number: fetch.number, records }, &mut out);
            }
            self.engine.check().unwrap();
            self.held_max = self.held_max.max(self.engine.resident_steps());
        }
    }

    fn act(&mut self, op: Op) {
        match op {
            Op::Submit(queue, user, class, priority, jobs) => {
                for _ in 0..jobs {
                    let step = StepSpec {
                        name: "main".to_owned(),
                        tasks: 1,
                        request: Resources::new(if class == 1 { 200 } else { 100 }, 0),
                        targets: if class == 2 { BTreeSet::from(["w".to_owned()]) } else { BTreeSet::new() },
                        ..StepSpec::default()
                    };
                    let (queue, user) = (QUEUES[queue].to_owned(), USERS[user].to_owned());
                    let spec = JobSpec { queue, user, priority, steps: vec![step], ..JobSpec::default() };
                    let request = RequestId(1);
                    let submit = Submit::new(request, spec);
                    self.tell(Event::Submit(Box::new(submit)));
                }
            }
            Op::Ends => {
                let Some((_, (task, attempt))) = self.running.pop_first() else { return };
                let by = Report { worker: WorkerId(1), epoch: Epoch(1), task, attempt };
                self.tell(Event::Finished { by, result: TaskResult::bare(End::Exited(0)) });
            }
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let submit = (0..QUEUES.len(), 0..USERS.len(), 0u8..3, -1i32..2, 1u8..8);
    let submit = submit
        .prop_map(|(queue, user, class, priority, jobs)| Op::Submit(queue, user, class, priority, jobs));
    prop::collection::vec(prop_oneof![1 => submit, 3 => Just(Op::Ends)], 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_small_cache_books_what_a_large_one_books(ops in ops(), cache_steps in 1usize..24) {
        let (mut small, mut large) = (Farm::new(cache_steps), Farm::new(100_000));
        for op in ops {
            small.act(op);
            large.act(op);
            prop_assert_eq!(&small.booked, &large.booked);
        }
        while !large.running.is_empty() {
            small.act(Op::Ends);
            large.act(Op::Ends);
        }
        prop_assert_eq!(&small.booked, &large.booked);
        // At most two steps of each queue, user and class beyond the cache, and what runs.
        prop_assert!(small.held_max <= cache_steps + 2 * 45 + 4, "{} steps were held", small.held_max);
    }
}
