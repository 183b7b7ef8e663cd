//! Executors of other systems: what they get, what they do not, and in which order they are asked.

use proptest::prelude::*;
use std::collections::BTreeSet;
use windlass_core::engine::{Engine, Event, Hello, Outbox, Reply, Settings, Submit, WorkerCommand};
use windlass_core::job::{Hints, JobSpec, StepSpec};
use windlass_core::load::pressure::LoadReport;
use windlass_core::tags::{EXECUTOR, Need};
use windlass_core::time::NS_PER_S;
use windlass_core::{RequestId, Resources, Time};

const GIB: u64 = 1 << 30;
const REQUEST: RequestId = RequestId(1);

struct Farm {
    engine: Engine,
    now: Time,
}

impl Farm {
    fn new() -> Farm {
        Farm { engine: Engine::new(Settings::default()), now: Time(NS_PER_S) }
    }

    fn tell(&mut self, event: Event) -> Outbox {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        self.engine.committed(&out);
        out
    }

    fn worker(&mut self, name: &str, gib: u64, executor: bool) {
        let attributes =
            executor.then(|| (EXECUTOR.to_owned(), BTreeSet::from(["x".to_owned()]))).into_iter().collect();
        let number = self.engine.workers().len() as u64 + 1;
        self.tell(Event::Hello(Box::new(Hello {
            attributes,
            ..Hello::new(name, number, Resources::new(6_400, gib * GIB))
        })));
    }

    /// It says that so much is free, of which the booked is taken off already or not.
    fn free(&mut self, name: &str, bytes: u64, own: u64) {
        let worker = self.engine.workers().by_name(name).unwrap().id;
        let report =
            LoadReport { memory_available: Some(bytes), memory_own: Some(own), ..LoadReport::default() };
        self.tell(Event::Load { worker, report: Box::new(report) });
    }

    fn submit(&mut self, memory: u64, for_executor: bool, held: bool) -> Outbox {
        let needs = if for_executor { vec![Need::parse("executor=x")] } else { Vec::new() };
        let hints = Hints::default();
        let step = StepSpec {
            name: "main".to_owned(),
            tasks: 1,
            request: Resources::new(100, memory),
            needs,
            hints,
            ..StepSpec::default()
        };
        let spec = JobSpec { queue: "q".to_owned(), steps: vec![step], ..JobSpec::default() };
        let submit = Submit { held, ..Submit::new(REQUEST, spec) };
        self.tell(Event::Submit(Box::new(submit)))
    }

    /// Where what starts now starts.
    fn starts(&mut self) -> Vec<String> {
        let mut out = Outbox::default();
        while self.engine.round(self.now, 1_000, &mut out) > 0 {}
        self.engine.committed(&out);
        let starts = out.sends.iter().filter(|send| matches!(send.order, WorkerCommand::Start { .. }));
        starts.map(|send| self.engine.workers().get(send.worker).unwrap().name.to_string()).collect()
    }
}

#[test]
fn each_takes_only_its_own_kind_of_work() {
    let mut farm = Farm::new();
    farm.worker("host", 64, true);
    let out = farm.submit(GIB, false, false);
    let Reply::Submitted { unplaceable, .. } = &out.answers[0].1 else { panic!("{out:?}") };
    assert_eq!(unplaceable.len(), 1, "no worker of the farm is for it");
    assert_eq!(farm.starts(), [""; 0]);
    farm.worker("plain", 8, false);
    assert_eq!(farm.starts(), ["plain"]);
    farm.submit(GIB, true, false);
    assert_eq!(farm.starts(), ["host"]);
}

#[test]
fn what_it_says_is_free_counts_though_nothing_of_ours_runs_there() {
    let mut farm = Farm::new();
    farm.worker("host", 64, true);
    farm.free("host", 3 * GIB, 0);
    farm.submit(4 * GIB, true, false);
    assert_eq!(farm.starts(), [""; 0], "something else holds the rest");
    farm.free("host", 9 * GIB, 0);
    assert_eq!(farm.starts(), ["host"]);
    // It goes on saying nine until it has seen what was booked, of which five are left.
    farm.submit(6 * GIB, true, false);
    farm.free("host", 9 * GIB, 0);
    assert_eq!(farm.starts(), [""; 0]);
    farm.free("host", 9 * GIB, 4 * GIB);
    assert_eq!(farm.starts(), ["host"]);
    // What it said is not forgotten when it is old.
    farm.now = farm.now.after(60 * NS_PER_S);
    farm.tell(Event::Tick);
    farm.submit(8 * GIB, true, false);
    assert_eq!(farm.starts(), [""; 0]);
}

#[test]
fn a_job_may_be_held_from_the_start() {
    let mut farm = Farm::new();
    farm.worker("host", 64, true);
    let out = farm.submit(GIB, true, true);
    let Reply::Submitted { job, .. } = out.answers[0].1 else { panic!("{out:?}") };
    assert_eq!(out.writes.len(), 2, "in one batch with its row: {out:?}");
    assert_eq!(farm.starts(), [""; 0]);
    farm.tell(Event::Hold { request: REQUEST, job, held: false });
    assert_eq!(farm.starts(), ["host"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// On any number of hosts each job goes where most is free, and the index is what the workers make.
    #[test]
    fn most_free_memory_comes_first(free in prop::collection::vec(1u64..5_000, 1..60), jobs in 1usize..80) {
        let mut farm = Farm::new();
        for (number, mib) in free.iter().enumerate() {
            let name = format!("h{number:02}");
            farm.worker(&name, 8_192, true);
            farm.free(&name, mib << 20, 0);
        }
        let mut left: Vec<(u64, String)> = (0..free.len()).map(|n| (free[n], format!("h{n:02}"))).collect();
        for _ in 0..jobs {
            farm.submit(256 << 20, true, false);
            let best = left.iter_mut().filter(|(mib, _)| *mib >= 256).max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let expected = best.map(|(mib, name)| {
                *mib -= 256;
                name.clone()
            });
            prop_assert_eq!(farm.starts(), expected.into_iter().collect::<Vec<_>>());
        }
        prop_assert!(farm.engine.workers().is_consistent());
    }
}
