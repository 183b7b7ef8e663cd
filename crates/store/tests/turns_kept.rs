//! Turns survive the engine: one that starts from what a store has makes the bookings, one by one, that the engine
//! before it would have made.

use crate::support::{commit, on_all};
use proptest::prelude::*;
use std::collections::BTreeMap;
use windlass_core::engine::{
    Engine, Event, Held, HeldPhase, Hello, Inventory, NextBatch, Pipeline, Report, Settings, Submit,
    WorkerCommand, Write,
};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
use windlass_core::plan::{PlanSettings, Policy};
use windlass_core::queues::{
    Charge, ClockOf, ClockRecord, QueueRecord, QueueTurn, SavedTurns, TurnClock, TurnRecord, TurnSettings,
};
use windlass_core::score::policy::policy_by_name;
use windlass_core::time::NS_PER_S;
use windlass_core::{Epoch, RequestId, Resources, TaskId, Time, WorkerId};
use windlass_store::Memory;

const QUEUES: [&str; 5] = ["ann", "bob", "cyn", "vip", "idle"];
const USERS: [&str; 3] = ["ann", "bob", "cyn"];

/// A farm of one worker of three slots, its engine and its store.
struct Farm {
    settings: Settings,
    engine: Engine,
    pipeline: Pipeline,
    store: Memory,
    now: Time,
    /// What runs, in the order in which it was booked, and since when.
    running: BTreeMap<u64, (TaskId, u32, Time)>,
    /// Bookings in their order, with their queue and user.
    booked: Vec<(TaskId, String, String)>,
    /// The largest number of records of turns in one write.
    written_max: usize,
}

impl Farm {
    fn new(charge: Charge, express: Option<u32>, cache_steps: usize) -> Farm {
        let turn = TurnSettings { charge, express };
        // With this policy all steps suit all workers alike.
        let policy = Policy(policy_by_name("simple").0);
        let plan = PlanSettings { turn, policy, ..PlanSettings::default() };
        let settings = Settings { plan, cache_steps, lease_ns: None, ..Settings::default() };
        let mut farm = Farm {
            settings,
            engine: Engine::new(settings),
            pipeline: Pipeline::default(),
            store: Memory::default(),
            now: Time(1_000_000 * NS_PER_S),
            running: BTreeMap::new(),
            booked: Vec::new(),
            written_max: 0,
        };
        farm.greet();
        farm
    }

    fn greet(&mut self) {
        let held = |(task, attempt, since): &(TaskId, u32, Time)| Held {
            task: *task,
            attempt: *attempt,
            phase: HeldPhase::Running(*since),
        };
        let held: Vec<Held> = self.running.values().map(held).collect();
        let inventory = Inventory { seq: u64::MAX / 2, held };
        let inventory = if self.running.is_empty() { Inventory::default() } else { inventory };
        let hello = Hello { inventory, ..Hello::new("w", 1, Resources::new(300, 0)) };
        self.tell(Event::Hello(Box::new(hello)));
    }

    /// The server is killed, and another one starts from the store at once. Its worker says hello.
    fn restart(&mut self) {
        let snapshot = self.store.load();
        let settings = Settings { first_job: snapshot.next_job, ..self.settings };
        self.engine = Engine::restore(settings, snapshot.ground);
        self.pipeline = Pipeline::default();
        self.engine.settle_restored(self.now, &mut self.pipeline.forming);
        self.settle(false);
        self.greet();
    }

    fn tell(&mut self, event: Event) {
        self.engine.handle(self.now, event, &mut self.pipeline.forming);
        self.settle(true);
    }

    /// Places what fits, and commits and reads at once, until nothing happens.
    fn settle(&mut self, with_rounds: bool) {
        loop {
            if with_rounds {
                self.engine.round(self.now, 1, &mut self.pipeline.forming);
            }
            let batch = match self.pipeline.next_batch(&mut self.engine) {
                None => break,
                Some(NextBatch::Deliver(batch)) => *batch,
                Some(NextBatch::Commit(batch)) => {
                    let turns = |write: &Write| match write {
                        Write::Turns(turns) => Some(turns.turns.len() + turns.clocks.len()),
                        _ => None,
                    };
                    let turns: Vec<usize> = batch.writes.iter().filter_map(turns).collect();
                    assert!(turns.len() <= 1, "{:?}", batch.writes);
                    self.written_max = turns.into_iter().fold(self.written_max, usize::max);
                    assert!(self.store.apply(&batch.writes).is_empty());
                    drop(batch);
                    self.pipeline.committed(&mut self.engine, &[]).batch
                }
            };
            self.engine.committed(&batch);
            for send in &batch.sends {
                let WorkerCommand::Start { task, attempt, .. } = send.command else { continue };
                let spec = &self.engine.job(task.job).unwrap().spec;
                let (queue, user) = (spec.queue.clone(), spec.user.clone());
                self.running.insert(self.booked.len() as u64, (task, attempt, self.now));
                self.booked.push((task, queue, user));
                let by = Report { worker: WorkerId(1), epoch: Epoch(1), task, attempt };
                let event = Event::Started { by, at: self.now };
                self.engine.handle(self.now, event, &mut self.pipeline.forming);
            }
            for fetch in batch.fetches {
                let records = Some(self.store.fetch(&fetch));
                let event = Event::Fetched { number: fetch.number, records };
                self.engine.handle(self.now, event, &mut self.pipeline.forming);
            }
            self.engine.check().unwrap();
        }
    }

    fn submit(&mut self, queue: &str, user: &str, priority: i32, tasks: u32) {
        self.handle_job(queue, user, priority, tasks);
        self.settle(true);
    }

    /// The same, and nothing is committed.
    fn handle_job(&mut self, queue: &str, user: &str, priority: i32, tasks: u32) {
        let step = StepSpec {
            name: "main".to_owned(),
            tasks,
            request: Resources::new(100, 0),
            ..StepSpec::default()
        };
        let (queue, user) = (queue.to_owned(), user.to_owned());
        let spec = JobSpec { queue, user, priority, steps: vec![step], ..JobSpec::default() };
        let event = Event::Submit(Box::new(Submit::new(RequestId(1), spec)));
        self.engine.handle(self.now, event, &mut self.pipeline.forming);
    }

    fn set(&mut self, queue: QueueRecord) {
        self.tell(Event::SetQueue { request: RequestId(1), queue });
    }

    /// The task that was booked first of those that run ends.
    fn end(&mut self) {
        if let Some(number) = self.running.keys().next().copied() {
            self.end_of(number);
        }
    }

    /// The task of the booking with this number ends.
    fn end_of(&mut self, number: u64) {
        let Some((task, attempt, began)) = self.running.remove(&number) else { return };
        let by = Report { worker: WorkerId(1), epoch: Epoch(1), task, attempt };
        let (started, finished) = (Some(began), Some(self.now));
        let result = TaskResult { started, finished, ..TaskResult::bare(End::Exited(0)) };
        self.tell(Event::Finished { by, result });
    }

    /// Seconds pass, and a task ends.
    fn run(&mut self, seconds: u64) {
        self.now = self.now.after(seconds * NS_PER_S);
        self.end();
    }

    /// Of the bookings from the `from`th on, how many were of the queue.
    fn booked_of(&self, from: usize, queue: &str) -> usize {
        self.booked[from..].iter().filter(|(_, of, _)| of == queue).count()
    }

    fn act(&mut self, op: &Op) {
        self.now = self.now.after(NS_PER_S);
        match op {
            Op::Submit(queue, user, priority, tasks) => {
                self.submit(QUEUES[*queue], USERS[*user], *priority, *tasks)
            }
            Op::Set(queue, weight, users) => {
                let user_weights =
                    USERS.iter().zip(users).map(|(user, weight)| ((*user).to_owned(), *weight)).collect();
                let record = QueueRecord::named(QUEUES[*queue]);
                self.set(QueueRecord { weight: *weight, user_weights, ..record });
            }
            Op::Ends => self.end(),
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A job of a queue, a user, a priority and a number of tasks.
    Submit(usize, usize, i32, u32),
    /// A queue has another weight, and its users have others.
    Set(usize, u32, [u32; 3]),
    /// The task that runs and was booked first ends.
    Ends,
}

fn ops(queues: usize, users: usize) -> impl Strategy<Value = Vec<(Op, bool)>> {
    let submit = (0..queues, 0..users, -1i32..2, 1u32..12);
    let submit = submit.prop_map(|(queue, user, priority, tasks)| Op::Submit(queue, user, priority, tasks));
    let set = (0..queues, 1u32..=300, [1u32..=300, 1..=300, 1..=300]);
    let set = set.prop_map(|(queue, weight, users)| Op::Set(queue, weight, users));
    let op = prop_oneof![3 => submit, 1 => set, 12 => Just(Op::Ends)];
    prop::collection::vec((op, prop::bool::weighted(0.1)), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Three users have work in three queues all the time. A queue forgets users who are idle and owe nothing.
    #[test]
    fn an_engine_that_starts_again_books_what_one_that_goes_on_books(ops in ops(3, USERS.len())) {
        let [mut on, mut again] = both(None);
        for farm in [&mut on, &mut again] {
            for (queue, user) in (0..3).flat_map(|queue| (0..3).map(move |user| (queue, user))) {
                farm.act(&Op::Submit(queue, user, 0, 30));
            }
        }
        prop_assert_eq!(booked(on, &ops, false), booked(again, &ops, true));
    }

    /// Whether a first user's task goes out of turn depends on whether the engine has seen other users of the queue.
    #[test]
    fn first_tasks_go_out_of_turn_as_they_would_have(ops in ops(QUEUES.len(), 1), every in 1u32..9) {
        let [on, again] = both(Some(every));
        prop_assert_eq!(booked(on, &ops, false), booked(again, &ops, true));
    }
}

/// What the property above found once.
#[test]
fn the_weight_that_a_queue_has_set_again_before_a_restart_changes_no_turn() {
    let ops = [(Op::Ends, false), (Op::Ends, false), (Op::Set(0, 100, [1, 1, 1]), true)];
    let [mut on, mut again] = both(None);
    for farm in [&mut on, &mut again] {
        for (queue, user) in (0..3).flat_map(|queue| (0..3).map(move |user| (queue, user))) {
            farm.act(&Op::Submit(queue, user, 0, 30));
        }
    }
    let (on, again) = (booked(on, &ops, false), booked(again, &ops, true));
    assert_eq!(on, again);
}

fn both(express: Option<u32>) -> [Farm; 2] {
    [(); 2].map(|()| Farm::new(Charge::Task, express, 100_000))
}

/// What a farm books when all this happens, and sixty more tasks end. It is restarted where `ops` say so.
fn booked(mut farm: Farm, ops: &[(Op, bool)], with_restarts: bool) -> Vec<(TaskId, String, String)> {
    for (op, restarts) in ops {
        farm.act(op);
        if *restarts && with_restarts {
            farm.restart();
        }
    }
    (0..60).for_each(|_| farm.act(&Op::Ends));
    farm.booked
}

#[test]
fn a_queue_that_was_served_waits_for_the_one_that_was_not_also_after_a_restart() {
    let [on, again] = [false, true].map(|restarts| {
        let mut farm = Farm::new(Charge::Task, None, 100_000);
        farm.set(QueueRecord { weight: 1, ..QueueRecord::named("bob") });
        farm.set(QueueRecord { weight: 99, ..QueueRecord::named("ann") });
        farm.submit("bob", "bob", 0, 1_000);
        farm.submit("ann", "ann", 0, 1_000);
        let from = farm.booked.len();
        for done in 1..=500 {
            farm.run(1);
            if restarts && done % 7 == 0 {
                farm.restart();
            }
            let bob = farm.booked_of(from, "bob");
            assert!((bob as f64 - f64::from(done) / 100.0).abs() <= 1.0, "{bob} of {done}");
        }
        farm.booked
    });
    assert_eq!(on, again);
}

/// Queues that always have work take machine time in equal parts, though one's tasks take ten times as long and the
/// server is killed again and again in the middle of them. A restart may lose what running tasks were charged since the
/// last write.
#[test]
fn machine_time_is_shared_over_restarts() {
    for every in [3, 10] {
        let mut farm = Farm::new(Charge::Time, None, 100_000);
        farm.submit("ann", "ann", 0, 300);
        farm.submit("bob", "bob", 0, 2_500);
        let mut had: BTreeMap<String, u64> = BTreeMap::new();
        for second in 1..=1_000_u64 {
            farm.now = farm.now.after(NS_PER_S);
            let lasts_s = |farm: &Farm, task: TaskId| {
                if farm.engine.job(task.job).unwrap().spec.queue == "ann" { 10 } else { 1 }
            };
            let due = |(_, (task, _, began)): &(&u64, &(TaskId, u32, Time))| {
                farm.now.since(*began) >= lasts_s(&farm, *task) * NS_PER_S
            };
            let ended: Vec<u64> = farm.running.iter().filter(due).map(|(number, _)| *number).collect();
            for number in ended {
                let (task, ..) = farm.running[&number];
                let queue = farm.engine.job(task.job).unwrap().spec.queue.clone();
                *had.entry(queue).or_default() += lasts_s(&farm, task);
                farm.end_of(number);
            }
            farm.tell(Event::Tick);
            if second % every == 0 {
                farm.restart();
            }
        }
        let (ann, bob) = (had["ann"], had["bob"]);
        let restarts = 1_000 / every;
        assert!(ann.abs_diff(bob) <= 30 + restarts / 4, "every {every} s: {ann} s of ann, {bob} s of bob");
    }
}

fn some_turns() -> SavedTurns {
    let turn = QueueTurn {
        band: 9,
        start: (5 << 56) + 7,
        rest: 299,
        weight: 300,
        task: i64::MAX as u64,
        since: 12,
        waits: true,
        passed: true,
        express: true,
        ahead: i64::MAX as u64,
        rate: 400,
        at: Time(1 << 60),
    };
    let (low, user) = (QueueTurn { start: -1, waits: false, ..turn.clone() }, Some(String::new()));
    let record = |queue: &str, user: &Option<String>, turn: &QueueTurn| TurnRecord {
        queue: queue.to_owned(),
        user: user.clone(),
        turn: Some(turn.clone()),
    };
    let clock = |of, virtual_time, charge| ClockRecord {
        of,
        clock: Some(TurnClock { virtual_time, express_in: 7, charge }),
    };
    SavedTurns {
        turns: vec![record("a", &None, &turn), record("a", &user, &low), record("b'\n", &None, &low)],
        clocks: vec![
            clock(ClockOf::Band(0), -3, Charge::Time),
            clock(ClockOf::Band(9), 9 << 100, Charge::Task),
            clock(ClockOf::Users("a".to_owned()), 1, Charge::Time),
        ],
    }
}

#[test]
fn stores_keep_turns_as_they_were_written_last() {
    on_all(async |store| {
        assert!(commit(&store, vec![Write::Turns(some_turns())]).await.is_empty());
        assert_eq!(store.load().await.unwrap().ground.turns, some_turns());
        let mut left = some_turns();
        left.turns[0].turn.as_mut().unwrap().start += 1;
        let (gone, old) = (left.turns.remove(1), left.clocks.remove(2));
        let change = SavedTurns {
            turns: vec![
                TurnRecord { turn: None, ..gone.clone() },
                left.turns[0].clone(),
                TurnRecord { turn: None, queue: "never".to_owned(), ..gone },
            ],
            clocks: vec![ClockRecord { clock: None, ..old }],
        };
        assert!(commit(&store, vec![Write::Turns(change)]).await.is_empty());
        assert_eq!(store.load().await.unwrap().ground.turns, left);
    });
}

/// Who owed tasks owes no machine time.
#[test]
fn turns_of_another_charge_are_dropped() {
    let mut farm = Farm::new(Charge::Task, None, 100_000);
    farm.submit("ann", "ann", 0, 10);
    farm.submit("bob", "bob", 0, 10);
    assert_eq!(farm.store.load().ground.turns.turns.len(), 2);
    farm.settings.plan.turn.charge = Charge::Time;
    farm.restart();
    farm.run(1);
    let turns = farm.store.load().ground.turns;
    assert!(turns.clocks.iter().all(|clock| clock.clock.unwrap().charge == Charge::Time), "{turns:?}");
}

#[test]
fn what_is_written_follows_what_changed_and_no_record_outlives_its_debt() {
    let mut farm = Farm::new(Charge::Task, None, 100_000);
    for number in 0..200 {
        farm.submit(&format!("q{number}"), "ann", 0, 3);
    }
    // The queue of the task that ended, the one that was served instead, and the clock.
    farm.written_max = 0;
    (0..300).for_each(|_| farm.run(1));
    assert!(farm.written_max <= 3, "{}", farm.written_max);
    while !farm.running.is_empty() {
        farm.run(1);
    }
    farm.submit("last", "ann", 0, 30);
    (0..40).for_each(|_| farm.run(1));
    // Debts that the clock has passed since are found bit by bit.
    for _ in 0..10 {
        farm.now = farm.now.after(60 * NS_PER_S);
        farm.submit("last", "ann", 0, 1);
        farm.run(1);
    }
    let turns = farm.store.load().ground.turns;
    assert!(turns.turns.len() <= 1, "{} records: {turns:?}", turns.turns.len());
}

/// The batch with a booking and its turns fails, or its outcome is unknown. The next batch has both as they are then.
#[test]
fn turns_of_a_failed_batch_are_written_again() {
    let mut farm = Farm::new(Charge::Task, None, 100_000);
    farm.submit("ann", "ann", 0, 10);
    farm.submit("bob", "bob", 0, 10);
    let before = farm.store.load().ground.turns;
    farm.now = farm.now.after(NS_PER_S);
    let request = Event::SetQueue { request: RequestId(1), queue: QueueRecord::named("cyn") };
    farm.engine.handle(farm.now, request, &mut farm.pipeline.forming);
    farm.engine.handle(farm.now, Event::Lost { worker: WorkerId(1) }, &mut farm.pipeline.forming);
    farm.handle_job("cyn", "cyn", 0, 5);
    let Some(NextBatch::Commit(batch)) = farm.pipeline.next_batch(&mut farm.engine) else {
        panic!("it writes")
    };
    assert!(batch.writes.iter().any(|write| matches!(write, Write::Turns(_))));
    drop(batch);
    farm.pipeline.failed(&mut farm.engine);
    assert_eq!(farm.store.load().ground.turns, before);
    let jobs = farm.pipeline.stalled().cloned().unwrap();
    let records = farm.store.records(&jobs);
    farm.pipeline.reload(&mut farm.engine, farm.now, records, farm.store.parked_counts());
    farm.settle(true);
    farm.greet();
    for _ in 0..20 {
        farm.run(1);
        let saved = farm.store.load().ground.turns;
        for (_, queue) in farm.engine.queues().wholes_in_turn() {
            let record =
                saved.turns.iter().find(|record| record.queue == queue.name() && record.user.is_none());
            let turn = record.and_then(|record| record.turn.clone()).expect("it waits");
            let start = turn.start + ((i128::from(turn.rest)) << 56) / i128::from(turn.weight);
            assert_eq!(start, queue.share().start_tag(), "{}", queue.name());
        }
    }
}
