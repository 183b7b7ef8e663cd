//! Whose turn it is: the bounds on shares and waits, judged by the order in which tasks are booked.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{
    Engine, Event, Hello, Inventory, Outbox, Report, Settings, Submit, WorkerCommand,
};
use windlass_core::ids::{ClassId, StepKey};
use windlass_core::job::{End, JobSpec, QueuedStep, StepSpec, TaskResult};
use windlass_core::licences::Limit;
use windlass_core::queues::{Charge, QueueRecord, Queues, RoundFilter, TurnSettings};
use windlass_core::time::{NS_PER_MS, NS_PER_S};
use windlass_core::{JobId, RequestId, Resources, TaskId, Time};

/// Queues of these weights that always have work, and the queues that `n` bookings went to.
fn served(weights: &[u32], n: usize) -> Vec<usize> {
    let mut queues = Queues::new(turn(Charge::Task, None));
    let ids: Vec<_> = (0..weights.len())
        .map(|number| {
            let name = format!("q{number:03}");
            queues.set(&QueueRecord { weight: weights[number], ..QueueRecord::named(&name) });
            let id = queues.intern(&name);
            let step = StepKey { job: JobId(number as u64 + 1), step: 0 };
            queues.insert(id, ClassId(0), QueuedStep::new(0, Time(0), step));
            id
        })
        .collect();
    let next = |_| {
        let mut skip = RoundFilter::default();
        let (queue, ..) = queues.next(&mut skip, &|_| true).expect("all have work");
        queues.charge(queue, 1, &mut skip);
        queues.resume_exhausted(&mut skip);
        ids.iter().position(|id| *id == queue).expect("it is one of them")
    };
    (0..n).map(next).collect()
}

/// The largest distance of any queue from its share, in tasks, over all prefixes.
fn largest_error(weights: &[u32], n: usize) -> f64 {
    let total: u32 = weights.iter().sum();
    let mut had = vec![0.0; weights.len()];
    let mut largest: f64 = 0.0;
    for (done, queue) in (1..).zip(served(weights, n)) {
        had[queue] += 1.0;
        for (had, weight) in had.iter().zip(weights) {
            largest = largest.max((had - f64::from(done) * f64::from(*weight) / f64::from(total)).abs());
        }
    }
    largest
}

#[test]
fn shares_are_within_one_task_at_every_prefix() {
    let many_light: Vec<u32> = [100].into_iter().chain([1; 100]).collect();
    let heavies: Vec<u32> = [50; 20].into_iter().chain([10]).collect();
    for weights in [vec![50, 30, 20, 10, 10], heavies, many_light] {
        let error = largest_error(&weights, 3_000);
        assert!(error <= 1.0, "{weights:?}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shares_of_any_weights_are_within_one_task(weights in prop::collection::vec(1_u32..=100, 2..=40)) {
        let error = largest_error(&weights, 2_000);
        prop_assert!(error <= 1.0, "{}", error);
    }
}

/// An engine with one worker, on which a task runs as many seconds as its step's time limit says.
struct Farm {
    engine: Engine,
    now: Time,
    ends: BTreeMap<(Time, TaskId), (u32, Time)>,
    /// What started, in order: when, and of which queue.
    starts: Vec<(Time, String)>,
}

impl Farm {
    fn new(slots: u32, turn: TurnSettings) -> Self {
        let engine = Engine::new(Settings { turn, ..Settings::default() });
        let now = Time(1_000_000 * NS_PER_S);
        let mut farm = Farm { engine, now, ends: BTreeMap::new(), starts: Vec::new() };
        farm.tell(Event::Hello(Box::new(Hello {
            name: "w".to_owned(),
            identity: 1,
            incarnation: 1,
            fences: false,
            sent: 0,
            new_link: true,
            capacity: Resources::new(slots * 100, 1 << 40),
            attributes: BTreeMap::new(),
            inventory: Inventory::default(),
        })));
        farm
    }

    fn tell(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        self.go_out(&out);
    }

    fn go_out(&mut self, out: &Outbox) {
        self.engine.committed(out);
        for send in &out.sends {
            if let WorkerCommand::Start { task, attempt, .. } = &send.order {
                let epoch = self.engine.attempt(*task).expect("it is booked").epoch;
                let by = Report { worker: send.worker, epoch, task: *task, attempt: *attempt };
                self.engine.handle(self.now, Event::Started { by, at: self.now }, &mut Outbox::default());
                let spec = &self.engine.job(task.job).expect("what starts is known").spec;
                let ms = spec.steps[0].time_limit_ms.expect("each step says how long its tasks run");
                self.starts.push((self.now, spec.queue.clone()));
                self.ends.insert((self.now.after(ms * NS_PER_MS), *task), (*attempt, self.now));
            }
        }
    }

    fn queue(&mut self, record: QueueRecord) {
        self.tell(Event::SetQueue { request: RequestId(1), queue: record });
    }

    /// A job of so many tasks that run so many seconds each.
    fn submit(&mut self, queue: &str, tasks: u32, seconds: u8) -> JobId {
        self.submit_step(queue, StepSpec { request: Resources::new(100, 0), ..step(tasks, seconds) })
    }

    fn submit_step(&mut self, queue: &str, step: StepSpec) -> JobId {
        let (name, user) = ("j".to_owned(), "u".to_owned());
        let spec = JobSpec { name, user, queue: queue.to_owned(), steps: vec![step], ..JobSpec::default() };
        let submit = Submit::new(RequestId(1), spec);
        let mut out = Outbox::default();
        self.engine.handle(self.now, Event::Submit(Box::new(submit)), &mut out);
        self.go_out(&out);
        self.engine.jobs().last().expect("it was taken in").id
    }

    fn settle(&mut self) {
        loop {
            let mut out = Outbox::default();
            let booked = self.engine.round(self.now, 1_000, &mut out);
            self.go_out(&out);
            if booked == 0 {
                return;
            }
        }
    }

    /// Lets that much time pass, in which tasks end and others start.
    fn advance(&mut self, seconds: u64) {
        self.settle();
        let until = self.now.after(seconds * NS_PER_S);
        loop {
            let wakes = self.engine.next_wakeup().map(|at| at.max(self.now));
            let ends = self.ends.keys().next().map(|(at, _)| *at);
            let Some(at) = [wakes, ends].into_iter().flatten().min().filter(|at| *at <= until) else { break };
            self.now = at;
            if wakes == Some(at) {
                self.tell(Event::Tick);
            }
            while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= at) {
                let ((_, task), (attempt, began)) = entry.remove_entry();
                let Some(held) = self.engine.attempt(task) else { continue };
                let by = Report { worker: held.worker, epoch: held.epoch, task, attempt };
                let mut result = TaskResult::bare(End::Exited(0));
                (result.started, result.finished) = (Some(began), Some(at));
                self.tell(Event::Finished { by, result });
            }
            self.settle();
        }
        self.now = until;
    }

    fn check(&self) {
        self.engine.check().expect("its books are right");
    }

    /// Of the starts from the `from`th on, how many were of the queue.
    fn started(&self, from: usize, queue: &str) -> usize {
        self.starts[from..].iter().filter(|(_, of)| of == queue).count()
    }
}

fn step(tasks: u32, seconds: u8) -> StepSpec {
    let name = "s".to_owned();
    StepSpec {
        name,
        tasks,
        request: Resources::new(100, 0),
        time_limit_ms: Some(u64::from(seconds) * 1000),
        ..StepSpec::default()
    }
}

fn turn(charge: Charge, express: Option<u32>) -> TurnSettings {
    TurnSettings { charge, express }
}

/// After how many bookings the only task of a light queue starts that comes when twenty heavy queues have
/// been served for a while.
fn light_wait(backlog: u32, express: Option<u32>) -> usize {
    let mut farm = Farm::new(1, turn(Charge::Task, express));
    for number in 0..20 {
        let name = format!("heavy{number}");
        farm.queue(QueueRecord { weight: 50, ..QueueRecord::named(&name) });
        farm.submit(&name, backlog, 1);
    }
    farm.queue(QueueRecord { weight: 10, ..QueueRecord::named("light") });
    farm.advance(400);
    let before = farm.starts.len();
    farm.submit("light", 1, 1);
    farm.advance(200);
    farm.starts[before..].iter().position(|(_, queue)| queue == "light").expect("it starts") + 1
}

#[test]
fn a_light_queue_waits_as_long_whatever_the_backlog_of_others() {
    let waits = [100, 1_000_000].map(|backlog| light_wait(backlog, None));
    assert_eq!(waits[0], waits[1]);
    assert!(waits[0] <= 1010_usize.div_ceil(10) + 1, "{waits:?}");
    assert_eq!([100, 1_000_000].map(|backlog| light_wait(backlog, Some(8))), [1, 1]);
}

#[test]
fn the_only_task_of_a_user_starts_with_the_next_free_slot() {
    for charge in [Charge::Task, Charge::Time] {
        let mut farm = Farm::new(4, turn(charge, Some(8)));
        farm.submit("a", 10_000, 7);
        farm.advance(60);
        let before = farm.starts.len();
        farm.submit("b", 1, 7);
        farm.advance(10);
        assert_eq!(farm.starts[before].1, "b", "{charge:?}");
    }
}

/// Two queues go on while a third cannot run for want of a licence; how many of the next bookings are whose.
fn after_blocked(charge: Charge) -> (usize, usize, Vec<usize>) {
    let mut farm = Farm::new(2, turn(charge, None));
    let limit =
        |max| Event::SetLimit { request: RequestId(1), name: "sim".to_owned(), limit: Some(Limit::of(max)) };
    farm.tell(limit(0));
    for queue in ["a", "b"] {
        farm.submit(queue, 10_000, 1);
    }
    farm.submit_step("c", StepSpec { limits: BTreeSet::from(["sim".to_owned()]), ..step(10_000, 1) });
    farm.advance(2_000);
    let (a, b) = (farm.started(0, "a"), farm.started(0, "b"));
    let before = farm.starts.len();
    farm.tell(limit(1_000));
    farm.advance(300);
    farm.check();
    (a, b, ["a", "b", "c"].map(|queue| farm.started(before, queue)).to_vec())
}

#[test]
fn a_queue_that_was_blocked_takes_its_share_and_one_task() {
    for charge in [Charge::Task, Charge::Time] {
        let (a, b, after) = after_blocked(charge);
        assert!(a.abs_diff(b) <= 2 && a + b >= 4_000, "the others were not slowed: {a} {b}");
        let total: usize = after.iter().sum();
        assert!(total >= 600);
        assert!(after[2] <= total / 3 + 2 && after[2] + 2 >= total / 3, "{charge:?}: {after:?}");
    }
}

#[test]
fn machine_time_is_shared_whatever_the_length_of_tasks() {
    let mut farm = Farm::new(10, turn(Charge::Time, Some(8)));
    farm.submit("short", 100_000, 1);
    farm.submit("long", 100_000, 40);
    farm.advance(4_000);
    farm.check();
    let (short, long) = (farm.started(0, "short"), 40 * farm.started(0, "long"));
    // A slot's worth of the longest task, on every slot.
    assert!(short.abs_diff(long) <= 40 * 10, "{short} s against {long} s");
    let mut farm = Farm::new(10, turn(Charge::Task, Some(8)));
    farm.submit("short", 100_000, 1);
    farm.submit("long", 100_000, 40);
    farm.advance(4_000);
    assert!(farm.started(0, "short").abs_diff(farm.started(0, "long")) <= 2);
}

#[test]
fn what_runs_long_is_charged_while_it_runs() {
    let mut farm = Farm::new(10, turn(Charge::Time, None));
    // Nothing is known of either, and `long` holds nine of ten slots for minutes.
    farm.submit("long", 9, 250);
    farm.advance(1);
    farm.submit("short", 1, 1);
    farm.advance(200);
    farm.submit("long", 1_000, 250);
    farm.submit("short", 1_000, 1);
    let before = farm.starts.len();
    farm.advance(40);
    assert!(farm.started(before, "short") >= 39, "{:?}", &farm.starts[before..]);
}

#[test]
fn many_that_come_at_once_do_not_take_all_slots_out_of_turn() {
    let mut farm = Farm::new(1, turn(Charge::Task, Some(8)));
    farm.queue(QueueRecord { weight: 10_000, ..QueueRecord::named("heavy") });
    farm.submit("heavy", 100_000, 1);
    farm.advance(100);
    let before = farm.starts.len();
    for number in 0..100 {
        let name = format!("light{number}");
        farm.queue(QueueRecord { weight: 1, ..QueueRecord::named(&name) });
        farm.submit(&name, 1, 1);
    }
    farm.advance(80);
    let heavy = farm.started(before, "heavy");
    assert!((69..=71).contains(&heavy), "seven of eight: {heavy}");
}

#[test]
fn sleeping_and_waking_gains_nothing() {
    let mut farm = Farm::new(1, turn(Charge::Task, Some(2)));
    farm.submit("steady", 100_000, 1);
    farm.advance(10);
    let before = farm.starts.len();
    for _ in 0..300 {
        farm.submit("now-and-then", 1, 1);
        farm.advance(1);
    }
    farm.advance(400);
    let after = &farm.starts[before..before + 500];
    let steady = after.iter().filter(|(_, queue)| queue == "steady").count();
    assert!(steady >= 249, "{steady} of 500");
}

#[test]
fn a_lower_band_gets_what_nothing_higher_fits() {
    let mut farm = Farm::new(4, TurnSettings::default());
    farm.submit("idle", 100, 50);
    farm.submit_step("q", StepSpec { request: Resources::new(300, 0), ..step(2, 50) });
    farm.submit("vip", 1, 50);
    farm.settle();
    let first: Vec<&str> = farm.starts.iter().map(|(_, queue)| queue.as_str()).collect();
    assert_eq!(first, ["vip", "q"], "idle waits while higher work fits");
    farm.advance(51);
    farm.check();
    assert_eq!((farm.started(2, "q"), farm.started(2, "idle")), (1, 1), "the slot that q has no use for");
}

#[test]
fn a_paused_queue_starts_nothing_until_it_goes_on() {
    let mut farm = Farm::new(1, TurnSettings::default());
    let paused = Some("moving the disks".to_owned());
    farm.queue(QueueRecord { paused, ..QueueRecord::named("q") });
    let job = farm.submit("q", 2, 1);
    farm.advance(100);
    assert!(farm.starts.is_empty());
    let why = windlass_core::explain::task(&farm.engine, TaskId { job, index: 0 });
    assert!(format!("{why:?}").contains("moving the disks"), "{why:?}");
    farm.queue(QueueRecord::named("q"));
    farm.advance(3);
    assert_eq!(farm.starts.len(), 2);
}

#[test]
fn a_queue_goes_beyond_its_quota_only_where_nobody_else_can_use_it() {
    let mut farm = Farm::new(10, turn(Charge::Task, None));
    let (quota_cpu, burst_cpu) = (Some(300), Some(800));
    farm.queue(QueueRecord { quota_cpu, burst_cpu, ..QueueRecord::named("q") });
    farm.submit("q", 1_000, 10);
    farm.settle();
    assert_eq!(farm.starts.len(), 8, "alone it has its burst");
    farm.submit("other", 1_000, 10);
    farm.advance(10);
    let held = farm.engine.queues().by_name().find(|queue| queue.name() == "q").map(|q| q.booked_cpu);
    assert_eq!(held, Some(300), "with others it has its quota");
}

#[test]
fn a_queue_that_moves_to_another_band_has_its_turn_there() {
    let mut farm = Farm::new(1, TurnSettings::default());
    farm.submit("a", 100, 1);
    farm.submit("b", 100, 1);
    farm.advance(10);
    let before = farm.starts.len();
    farm.queue(QueueRecord { band: Some(8), ..QueueRecord::named("b") });
    farm.advance(20);
    assert_eq!(farm.started(before, "a"), 0);
}
