//! Promises of residency, over random histories on every store: an engine that keeps few steps resident, a
//! store that answers late or not at all, commits that fail, engines that die.

use crate::support;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use windlass_core::engine::{
    Engine, Event, Fetch, Hello, Inventory, Outbox, Reply, Report, Settings, Submit, WorkerCommand, Write,
};
use windlass_core::explain::Reason;
use windlass_core::ids::Epoch;
use windlass_core::job::{
    Dependency, DependencyKind, End, JobRecord, JobSpec, JobState, StepSpec, TaskResult, TaskState,
};
use windlass_core::tags::Need;
use windlass_core::time::{NS_PER_MS, NS_PER_S};
use windlass_core::{JobId, RequestId, Resources, TaskId, Time, WorkerId};
use windlass_store::{JobFilter, Store};

/// Size of the engines' cache in steps.
const CACHE: usize = 6;
const QUEUES: [&str; 4] = ["ann", "bob", "cyn", "vip"];
/// Number of workers, each with two cpus. Work of the last class fits only the first.
const WORKERS: usize = 2;

/// One event of a history.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A job of this queue, class and priority. The last number makes some jobs have two tasks or two steps,
    /// and some come after earlier jobs.
    Submit(usize, u8, i32, u8),
    Cancel(usize),
    Hold(usize, bool),
    Retry(usize),
    /// The first running task succeeds or fails.
    Ends(bool),
    Round,
    Commit,
    FailedCommit,
    /// The store is asked for the first outstanding fetch, whose answer arrives later.
    Read,
    /// The first answer arrives, or a failure in its place.
    Arrives(bool),
    /// The engine dies, and its uncommitted batch is lost.
    Dies,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0..QUEUES.len(), 0u8..4, -1i32..2, 0u8..6).prop_map(|(q, c, p, more)| Op::Submit(q, c, p, more)),
        1 => (0usize..40).prop_map(Op::Cancel),
        2 => (0usize..40, any::<bool>()).prop_map(|(job, held)| Op::Hold(job, held)),
        1 => (0usize..40).prop_map(Op::Retry),
        3 => prop::bool::weighted(0.8).prop_map(Op::Ends),
        2 => Just(Op::Round),
        3 => Just(Op::Commit),
        1 => Just(Op::FailedCommit),
        2 => Just(Op::Read),
        2 => prop::bool::weighted(0.9).prop_map(Op::Arrives),
        1 => Just(Op::Dies),
    ];
    prop::collection::vec(op, 1..60)
}

/// A scheduler over a store, and workers that follow its commands.
struct World {
    store: Store,
    runtime: tokio::runtime::Runtime,
    engine: Engine,
    out: Outbox,
    now: Time,
    wanted: VecDeque<Fetch>,
    arriving: VecDeque<(u64, Vec<JobRecord>)>,
    running: BTreeMap<TaskId, (WorkerId, u32)>,
    /// How many times each attempt of a task was durably booked.
    booked: BTreeMap<(TaskId, u32), u32>,
    requests: u64,
    answered: BTreeSet<u64>,
    lost: BTreeSet<u64>,
    known: Vec<JobId>,
    incarnation: u64,
}

fn settings(first_job: u64) -> Settings {
    Settings { cache_steps: CACHE, first_job, lease_ns: None, ..Settings::default() }
}

impl World {
    fn new(store: Store) -> World {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut world = World {
            engine: Engine::new(settings(1)),
            store,
            runtime,
            out: Outbox::default(),
            now: Time(1_000_000 * NS_PER_S),
            wanted: VecDeque::new(),
            arriving: VecDeque::new(),
            running: BTreeMap::new(),
            booked: BTreeMap::new(),
            requests: 0,
            answered: BTreeSet::new(),
            lost: BTreeSet::new(),
            known: Vec::new(),
            incarnation: 1,
        };
        world.workers_come();
        world
    }

    fn workers_come(&mut self) {
        for number in 0..WORKERS {
            let hello = Hello {
                name: format!("w{number}"),
                identity: number as u64,
                incarnation: self.incarnation,
                fences: false,
                sent: 0,
                new_link: true,
                capacity: Resources::new(200, 8 << 30),
                attributes: [("arch".to_owned(), BTreeSet::from(["x86".to_owned()]))].into(),
                inventory: Inventory::default(),
            };
            self.tell(Event::Hello(Box::new(hello)));
        }
        self.commit();
    }

    fn tell(&mut self, event: Event) {
        self.now = self.now.after(NS_PER_MS);
        self.engine.handle(self.now, event, &mut self.out);
        self.checked();
    }

    fn checked(&self) {
        if let Err(what) = self.engine.check() {
            panic!("{what}");
        }
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn job(&self, number: usize) -> Option<JobId> {
        self.known.get(number % self.known.len().max(1)).copied()
    }

    fn records(&self, ids: BTreeSet<JobId>) -> Vec<JobRecord> {
        self.runtime.block_on(self.store.records(ids)).unwrap()
    }

    fn submit(&mut self, queue: usize, class: u8, priority: i32, more: u8) {
        let step = |name: String| StepSpec {
            name,
            tasks: 1 + u32::from(more % 2),
            request: Resources::new(if class == 1 { 200 } else { 100 }, 0),
            needs: if class == 2 { vec![Need::parse("arch=x86")] } else { Vec::new() },
            targets: if class == 3 { BTreeSet::from(["w0".to_owned()]) } else { BTreeSet::new() },
            retries: 1,
            ..StepSpec::default()
        };
        let mut steps = vec![step(format!("class{class}"))];
        if more == 2 {
            steps.push(step("second".to_owned()));
            steps[1].depends = vec![Dependency { on: 0, kind: DependencyKind::Task }];
        }
        let after: Vec<JobId> = self.known.last().copied().filter(|_| more == 3).into_iter().collect();
        let after: Vec<JobId> =
            after.into_iter().chain(self.known.first().copied().filter(|_| more == 3)).collect();
        let outcomes = after
            .iter()
            .filter_map(|id| Some((*id, self.runtime.block_on(self.store.job(*id)).unwrap()?.state)));
        let outcomes = outcomes.collect();
        let queue = QUEUES[queue].to_owned();
        let spec = JobSpec { queue, priority, after, steps, ..JobSpec::default() };
        let request = self.request();
        let submit = Submit { outcomes, ..Submit::new(request, spec) };
        self.tell(Event::Submit(Box::new(submit)));
    }

    fn act(&mut self, op: Op) {
        match op {
            Op::Submit(queue, class, priority, more) => self.submit(queue, class, priority, more),
            Op::Cancel(number) => {
                let Some(job) = self.job(number) else { return };
                let request = self.request();
                self.tell(Event::Cancel { request, job });
            }
            Op::Hold(number, held) => {
                let Some(job) = self.job(number) else { return };
                let request = self.request();
                self.tell(Event::Hold { request, job, held });
            }
            Op::Retry(number) => {
                let Some(job) = self.job(number) else { return };
                let request = self.request();
                self.tell(Event::Retry { request, job });
            }
            Op::Ends(well) => {
                if let Some((task, (worker, attempt))) = self.running.pop_first() {
                    self.ends(task, worker, attempt, well);
                }
            }
            Op::Round => self.round(2),
            Op::Commit => self.commit(),
            Op::FailedCommit => self.fail(),
            Op::Read => self.read(),
            Op::Arrives(well) => self.arrives(well),
            Op::Dies => self.die(),
        }
    }

    fn ends(&mut self, task: TaskId, worker: WorkerId, attempt: u32, well: bool) {
        let epoch = self.engine.workers().get(worker).map_or(Epoch(0), |w| w.record.epoch);
        let by = Report { worker, epoch, task, attempt };
        let result = TaskResult::bare(End::Exited(i32::from(!well)));
        self.tell(Event::Finished { by, result });
    }

    fn round(&mut self, budget: usize) {
        self.now = self.now.after(NS_PER_MS);
        self.engine.round(self.now, budget, &mut self.out);
        self.checked();
    }

    fn commit(&mut self) {
        let batch = std::mem::take(&mut self.out);
        for write in &batch.writes {
            if let Write::Book { task, attempt, .. } = write {
                *self.booked.entry((*task, *attempt)).or_default() += 1;
            }
        }
        let refused = self.runtime.block_on(self.store.commit(Arc::new(batch.clone()))).unwrap();
        let lost: Vec<&Write> = refused.iter().map(|number| &batch.writes[*number]).collect();
        assert!(lost.is_empty(), "the store refused {lost:?}");
        self.engine.committed(&batch);
        self.checked();
        self.wanted.extend(batch.fetches);
        for send in batch.sends {
            match send.command {
                WorkerCommand::Start { task, attempt, .. } => {
                    _ = self.running.insert(task, (send.worker, attempt))
                }
                WorkerCommand::Kill { task, attempt } | WorkerCommand::Recall { task, attempt }
                    if self.running.remove(&task).is_some() =>
                {
                    let epoch = self.engine.workers().get(send.worker).map_or(Epoch(0), |w| w.record.epoch);
                    let by = Report { worker: send.worker, epoch, task, attempt };
                    self.tell(Event::Finished { by, result: TaskResult::bare(End::Canceled) });
                }
                _ => {}
            }
        }
        for (request, answer) in batch.replies {
            assert!(self.answered.insert(request.0), "{request} is answered twice");
            if let Reply::Submitted { job, .. } = answer {
                self.known.push(job);
            }
        }
    }

    /// A commit fails, and the store answers again at once.
    fn fail(&mut self) {
        let batch = std::mem::take(&mut self.out);
        self.lost.extend(batch.replies.iter().map(|(request, _)| request.0));
        let touched = self.engine.failed([&batch]);
        let records = self.records(touched.clone());
        let parked = self.runtime.block_on(self.store.parked_counts()).unwrap();
        self.engine.reload(self.now, &touched, records, parked, &mut self.out);
        self.checked();
        // Workers are asked for their inventory. Here they restart without tasks instead.
        self.incarnation += 1;
        self.running.clear();
        self.workers_come();
    }

    fn read(&mut self) {
        if let Some(fetch) = self.wanted.pop_front() {
            let number = fetch.number;
            let mut found = self.runtime.block_on(self.store.fetch(vec![fetch])).unwrap();
            self.arriving.push_back((number, found.remove(0)));
        }
    }

    fn arrives(&mut self, well: bool) {
        if let Some((number, records)) = self.arriving.pop_front() {
            self.tell(Event::Fetched { number, records: well.then_some(records) });
        }
    }

    fn die(&mut self) {
        self.out = Outbox::default();
        (self.wanted, self.arriving, self.running) = Default::default();
        self.lost.extend(1..=self.requests);
        assert_eq!(self.runtime.block_on(self.store.audit_parked()).unwrap(), []);
        let snapshot = self.runtime.block_on(self.store.load()).unwrap();
        self.engine = Engine::restore(settings(snapshot.next_job), snapshot.ground);
        self.engine.settle_restored(self.now, &mut self.out);
        self.checked();
        self.incarnation += 1;
        self.workers_come();
    }

    /// Runs until nothing more happens by itself.
    fn settle(&mut self) {
        for _ in 0..1000 {
            self.round(100);
            self.commit();
            while !self.wanted.is_empty() {
                self.read();
            }
            while !self.arriving.is_empty() {
                self.arrives(true);
            }
            if !self.out.is_empty() || self.engine.next_wakeup().is_some_and(|at| at <= self.now) {
                self.tell(Event::Tick);
                continue;
            }
            // A veto or a reservation may end after some time, so the waiting steps are judged again.
            self.now = self.now.after(2 * NS_PER_S);
            self.tell(Event::Tick);
            self.round(100);
            if self.out.is_empty() {
                return;
            }
        }
        panic!("it does not settle: {:?}", self.out);
    }

    /// Active jobs that have a task that could start, as the store has them.
    fn ready_in_store(&self) -> Vec<JobRecord> {
        let filter = JobFilter { states: vec![JobState::Active], ..JobFilter::default() };
        let active =
            self.runtime.block_on(self.store.jobs(filter, None, usize::MAX, usize::MAX)).unwrap().jobs;
        let ids: BTreeSet<JobId> = active.iter().map(|view| view.id).collect();
        let ready = |record: &JobRecord| {
            let open = !record.held && record.stop.is_none();
            let open = open && record.spec.after.iter().all(|first| !ids.contains(first));
            let rows = self.runtime.block_on(self.store.tasks(record.id, 0..u32::MAX)).unwrap();
            let rows: BTreeMap<u32, TaskState> = rows.iter().map(|t| (t.row.index, t.row.state)).collect();
            let first = 0..record.spec.steps[0].tasks;
            open && first.into_iter().any(|index| rows.get(&index).is_none_or(|s| *s == TaskState::Ready))
        };
        self.records(ids.clone()).into_iter().filter(ready).collect()
    }

    /// The resident jobs that have ready tasks of their first step.
    fn ready_in_cache(&self) -> Vec<&Arc<JobSpec>> {
        let ready = self.engine.jobs().filter(|job| !job.steps[0].ready.is_empty() && !job.held);
        ready.map(|job| &job.spec).collect()
    }
}

type Check = fn(&mut World);

/// Runs a history, checks the world after each settled part of it, and then ends all tasks. Every queue must
/// be served, whatever was parked.
fn history(world: &mut World, ops: &[Op], check: Check) {
    for (number, op) in ops.iter().enumerate() {
        world.act(*op);
        if number % 16 == 15 {
            world.settle();
            check(world);
        }
    }
    world.settle();
    check(world);
    let unanswered: Vec<u64> =
        (1..=world.requests).filter(|r| !world.answered.contains(r) && !world.lost.contains(r)).collect();
    assert_eq!(unanswered, [0; 0], "requests without an answer");
    for number in 0..world.known.len() {
        world.act(Op::Hold(number, false));
    }
    world.settle();
    // Workers on which tasks failed may be in quarantine for a while.
    for _ in 0..10 {
        world.now = world.now.after(3600 * NS_PER_S);
        world.tell(Event::Tick);
        world.settle();
        while let Some((task, (worker, attempt))) = world.running.pop_first() {
            world.ends(task, worker, attempt, true);
            world.settle();
            check(world);
        }
    }
    let left = world.ready_in_store();
    assert!(left.is_empty(), "never served: {left:?}");
    assert_eq!(world.engine.subqueues().away().jobs, 0);
}

fn on_memory(ops: &[Op], check: Check) {
    history(&mut World::new(Store::open("memory").unwrap()), ops, check);
}

fn on_sqlite(ops: &[Op], check: Check) {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", dir.path().join("w.db").display());
    history(&mut World::new(Store::open(&address).unwrap()), ops, check);
}

fn on_postgres(ops: &[Op], check: Check) {
    let Some(address) = support::postgres::database() else { return };
    // Connections live as long as their runtime, which is the world's.
    let mut world = World::new(Store::open("memory").unwrap());
    world.store = world.runtime.block_on(support::owned(&address));
    world.engine = Engine::new(settings(1));
    world.workers_come();
    history(&mut world, ops, check);
}

/// Each property has one test on memory, and one on SQLite and PostgreSQL, whose commits take time.
macro_rules! invariants {
    ($($(#[$doc:meta])* $name:ident, $on_sqlite:ident, $on_postgres:ident: $check:expr;)*) => { $(
        proptest! {
            #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
            $(#[$doc])*
            #[test]
            fn $name(ops in ops()) {
                on_memory(&ops, $check);
            }
        }
        proptest! {
            #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]
            $(#[$doc])*
            #[test]
            fn $on_sqlite(ops in ops()) {
                on_sqlite(&ops, $check);
            }
        }
        proptest! {
            #![proptest_config(ProptestConfig { cases: 4, failure_persistence: None, ..ProptestConfig::default() })]
            $(#[$doc])*
            #[test]
            fn $on_postgres(ops in ops()) {
                on_postgres(&ops, $check);
            }
        }
    )* };
}

invariants! {
    i1_every_queue_with_ready_work_has_some_in_the_cache, i1_on_sqlite, i1_on_postgres: |world| {
        let stored: BTreeSet<String> = world.ready_in_store().iter().map(|r| r.spec.queue.clone()).collect();
        let cached: BTreeSet<String> = world.ready_in_cache().iter().map(|spec| spec.queue.clone()).collect();
        let missing: Vec<_> = stored.difference(&cached).collect();
        assert!(missing.is_empty(), "{missing:?} are in the store alone");
    };
    i2_every_target_and_class_with_ready_work_has_some_in_the_cache, i2_on_sqlite, i2_on_postgres: |world| {
        // Classes of these histories have the names of their steps. All work with a target is of the last one.
        let key = |spec: &JobSpec| (spec.queue.clone(), spec.steps[0].name.clone(), spec.steps[0].targets.clone());
        let stored: BTreeSet<_> = world.ready_in_store().iter().map(|record| key(&record.spec)).collect();
        let cached: BTreeSet<_> = world.ready_in_cache().iter().map(|spec| key(spec)).collect();
        let missing: Vec<_> = stored.difference(&cached).collect();
        assert!(missing.is_empty(), "{missing:?} are in the store alone");
    };
    i3_the_cache_is_bounded, i3_on_sqlite, i3_on_postgres: |world| {
        // Pinned jobs, and beyond the size of the cache what keeps each subqueue stocked: a job of at most two steps.
        let lines = world.engine.subqueues();
        let fixed = world.engine.resident_steps() - lines.steps();
        let most = CACHE.max(fixed) + 2 * lines.len();
        assert!(world.engine.resident_steps() <= most, "{} steps are held", world.engine.resident_steps());
    };
    i4_every_index_entry_is_in_the_cache_and_the_store_counts_right, i4_on_sqlite, i4_on_postgres: |world| {
        world.checked();
        assert_eq!(world.runtime.block_on(world.store.audit_parked()).unwrap(), []);
        let counts = world.runtime.block_on(world.store.parked_counts()).unwrap();
        let known = world.engine.subqueues().iter().filter(|(_, line)| line.parked().jobs > 0);
        let known: BTreeMap<_, _> = known
            .map(|((queue, class), line)| ((world.engine.queues().get(queue).name().to_owned(), class), line.parked()))
            .collect();
        let stored: BTreeMap<_, _> =
            counts.into_iter().map(|count| ((count.queue, count.class), count.backlog)).collect();
        assert_eq!(known, stored);
    };
    i5_a_task_is_booked_once, i5_on_sqlite, i5_on_postgres: |world| {
        let twice: Vec<_> = world.booked.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    };
    i6_no_worker_is_booked_beyond_what_it_has, i6_on_sqlite, i6_on_postgres: |world| {
        for worker in world.engine.workers().iter() {
            assert!(worker.booked.sum().fits(&worker.record.capacity), "{}: {:?}", worker.record.name, worker.booked.sum());
        }
    };
    i7_no_worker_is_idle_that_fits_ready_work, i7_on_sqlite, i7_on_postgres: |world| {
        // Vetoed work may leave a worker idle. Where the engine has a vetoed step of a queue and class, the
        // next step of that subqueue may be vetoed as well.
        let of = |spec: &JobSpec| (spec.queue.clone(), spec.steps[0].name.clone());
        let held = world.engine.planner().vetoed_steps().filter_map(|step| world.engine.job(step.job));
        let held: BTreeSet<_> = held.map(|job| of(&job.spec)).collect();
        for record in world.ready_in_store().into_iter().filter(|record| !held.contains(&of(&record.spec))) {
            let task = (0..).map(|index| TaskId { job: record.id, index }).find(|task| {
                let row = record.tasks.iter().find(|row| row.index == task.index);
                row.is_none_or(|row| row.state == TaskState::Ready)
            });
            let Some(task) = task else { continue };
            let why = match windlass_core::explain::task(&world.engine, task) {
                Some(why) => why,
                None => {
                    let parked = world.runtime.block_on(world.store.parked(task.job)).unwrap().unwrap();
                    let why = windlass_core::explain::parked_task(&world.engine, task, &parked.spec, &parked.parked, parked.ahead);
                    why.unwrap()
                }
            };
            assert_eq!(why.open_workers, 0, "{task}: {why:?}");
            assert!(why.reason != Reason::Turn, "{task}: {why:?}");
        }
    };
}

/// Two requests retry the same parked job. The answer to the second fetch is stale when it arrives, because
/// the job has run to its end meanwhile.
#[test]
fn a_job_that_ended_since_it_was_read_is_not_run_again() {
    let mut world = World::new(Store::open("memory").unwrap());
    world.submit(0, 0, -1, 0);
    world.commit();
    world.submit(1, 0, 0, 3);
    world.commit();
    let (first, then) = (world.known[0], world.known[1]);
    world.act(Op::Cancel(1));
    world.commit();
    // The next engine has no dependent of the first job, so that job can be parked.
    world.die();
    (0..8).for_each(|_| world.submit(0, 0, 1, 0));
    world.commit();
    assert!(world.engine.job(first).is_none(), "parked: others go before it");
    world.wanted.clear();
    world.act(Op::Retry(1));
    world.act(Op::Retry(1));
    world.commit();
    world.read();
    world.arrives(true);
    world.commit();
    // The second request's fetch of the job arrives after the first request's fetch of the job before it.
    world.read();
    world.read();
    world.arriving.rotate_left(1);
    world.arrives(true);
    assert!(world.engine.job(then).is_some());
    while world.engine.job(then).is_some() {
        world.round(100);
        world.commit();
        world.act(Op::Ends(true));
        world.commit();
    }
    world.arrives(true);
    world.settle();
    let state = world.runtime.block_on(world.store.job(then)).unwrap().map(|job| job.state);
    assert_eq!(state, Some(JobState::Succeeded));
    assert!(world.booked.values().all(|times| *times == 1), "{:?}", world.booked);
}

/// Two jobs come after the same parked job and after another one each. Each request evicts what it loaded,
/// and neither may make the other wait for ever.
#[test]
fn requests_that_look_for_the_same_parked_jobs_are_all_answered() {
    let submit = |queue, class, priority, more| Op::Submit(queue, class, priority, more);
    let plain = |queue, class| submit(queue, class, 0, 0);
    let ops = [
        submit(3, 0, -1, 0),
        plain(0, 1),
        plain(1, 0),
        plain(0, 0),
        Op::Read,
        plain(0, 0),
        plain(0, 0),
        submit(3, 1, 0, 1),
        plain(2, 2),
        submit(2, 2, 0, 3),
        Op::Read,
        Op::Read,
        Op::Cancel(0),
        Op::Cancel(0),
        Op::Read,
        Op::Read,
        submit(0, 0, 0, 3),
        plain(3, 0),
        submit(0, 0, 0, 3),
    ];
    on_memory(&ops, |world| world.checked());
}
