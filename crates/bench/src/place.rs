//! Cost of placing a task: on a large farm of many queues and classes through the whole engine, and by the policy
//! `packing` through the engine, through the matcher alone, and by a plain scan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hint::black_box;
use std::time::Instant;
use windlass_core::cache_keys::Reads;
use windlass_core::class::Class;
use windlass_core::engine::{
    Engine, Event, Hello, Outbox, Report, Settings, StoredState, Submit, WorkerCommand,
};
use windlass_core::ids::{ClassId, StepKey};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
use windlass_core::load::formula::LoadSettings;
use windlass_core::plan::placement::{self, MatchContext, PlacementOutcome, PlacementRequest, Reservation};
use windlass_core::plan::{PlanSettings, Policy};
use windlass_core::score::context::{InstanceContext, JobContext};
use windlass_core::score::history::{Sample, Signature};
use windlass_core::score::policy::{ScoringPolicy, policy_by_name};
use windlass_core::tags::{Attributes, Need};
use windlass_core::worker::{Saturation, Worker, WorkerRecord, WorkerState};
use windlass_core::workers::Workers;
use windlass_core::{Epoch, JobId, RequestId, Resources, TaskId, Time, WorkerId};

/// A step that prefers no worker.
static NONE: BTreeSet<String> = BTreeSet::new();
static NO_RESERVATIONS: BTreeMap<WorkerId, Reservation> = BTreeMap::new();

const GIB: u64 = 1 << 30;
/// Placements of the large farm.
const PLACEMENTS: u32 = 100_000;
const QUEUES: u32 = 100;
const CLASSES: u32 = 1_000;
/// Bookings of one round at most, as in the server.
const BUDGET: usize = 1_000;

pub fn run(workers: u64) {
    large_farm(workers);
    packing(1_000);
}

/// An engine whose workers take what they are sent and end it when they are asked.
pub(super) struct Farm {
    pub(super) engine: Engine,
    pub(super) now: Time,
    running: VecDeque<(WorkerId, TaskId, u32)>,
}

impl Farm {
    /// `history` is of tasks that held half of what they ask for: without it the first of each step would
    /// have to show that it is enough.
    pub(super) fn new(
        policy: &'static dyn ScoringPolicy,
        workers: u64,
        history: Vec<(String, Vec<Sample>)>,
    ) -> Self {
        let plan = PlanSettings { policy: Policy(policy), ..PlanSettings::default() };
        let settings = Settings { plan, lease_ns: None, ..Settings::default() };
        let mut farm = Farm {
            engine: Engine::restore(settings, StoredState { history, ..StoredState::default() }),
            now: Time(1),
            running: VecDeque::new(),
        };
        (1..=workers).for_each(|id| farm.join(id, capacity()));
        farm
    }

    pub(super) fn join(&mut self, id: u64, capacity: Resources) {
        let hello = Hello {
            incarnation: 1,
            attributes: attributes(id),
            ..Hello::new(&format!("w{id:05}"), id, capacity)
        };
        self.tell(Event::Hello(Box::new(hello)));
    }

    pub(super) fn submit(&mut self, spec: JobSpec) {
        let request = RequestId(1);
        let submit = Submit::new(request, spec);
        self.tell(Event::Submit(Box::new(submit)));
    }

    pub(super) fn tell(&mut self, event: Event) {
        let mut out = Outbox::default();
        self.engine.handle(self.now, event, &mut out);
        self.engine.committed(&out);
    }

    /// Rounds and commits; returns bookings.
    pub(super) fn round(&mut self) -> usize {
        let mut out = Outbox::default();
        let booked = self.engine.round(self.now, BUDGET, &mut out);
        self.engine.committed(&out);
        for send in &out.sends {
            if let WorkerCommand::Start { task, attempt, .. } = send.command {
                self.running.push_back((send.worker, task, attempt));
            }
        }
        booked
    }

    pub(super) fn end_oldest(&mut self) {
        let Some((worker, task, attempt)) = self.running.pop_front() else { return };
        self.now = self.now.after(100_000);
        let by = Report { worker, epoch: Epoch(1), task, attempt };
        self.tell(Event::Finished { by, result: TaskResult::bare(End::Exited(0)) });
    }
}

fn capacity() -> Resources {
    Resources::new(800, 32 * GIB)
}

/// Each worker's own host name, and one of three architectures.
fn attributes(id: u64) -> Attributes {
    let arch = ["x86_64", "aarch64", "riscv64"][(id % 3) as usize];
    [("host", format!("w{id:05}")), ("arch", arch.to_owned())]
        .map(|(key, value)| (key.to_owned(), BTreeSet::from([value])))
        .into()
}

/// A class for each number: half a core to two, and memory; a quarter of them need an architecture.
fn class(number: u32) -> Class {
    let request = Resources::new(50 + 10 * (number % 16), u64::from(1 + number / 16) * (32 << 20));
    let needs = if number.is_multiple_of(4) { vec![Need::parse("arch=x86_64|aarch64")] } else { Vec::new() };
    Class { request, needs, ..Class::default() }
}

/// Fills a farm, then ends `ends` tasks and runs a round after each. Callgrind counts it.
pub fn count(ends: u32, workers: u64, classes: u32) {
    let (policy, _) = policy_by_name("resource-aware");
    let mut farm = with_backlog(policy, workers, classes);
    while farm.round() > 0 {}
    for _ in 0..ends {
        farm.end_oldest();
        farm.round();
    }
}

/// A farm whose queues have more work of each class than it can run.
fn with_backlog(policy: &'static dyn ScoringPolicy, workers: u64, classes: u32) -> Farm {
    let history = (0..classes).map(|number| {
        let (queue, step) = (format!("q{}", number % QUEUES), format!("s{number}"));
        let peak_memory = Some(class(number).request.memory / 2);
        let sample = Sample { peak_memory, wall_ms: Some(1_000), ..Sample::default() };
        (Signature { queue, step, shape: String::new() }.to_string(), vec![sample; 20])
    });
    let mut farm = Farm::new(policy, workers, history.collect());
    for queue in 0..QUEUES {
        let numbers = (0..classes).filter(|class| class % QUEUES == queue);
        let steps = numbers.map(|number| {
            let Class { request, needs, .. } = class(number);
            StepSpec { name: format!("s{number}"), tasks: PLACEMENTS, request, needs, ..StepSpec::default() }
        });
        let spec = JobSpec { queue: format!("q{queue}"), steps: steps.collect(), ..JobSpec::default() };
        farm.submit(spec);
    }
    farm
}

fn large_farm(workers: u64) {
    let (policy, _) = policy_by_name("resource-aware");
    let mut farm = with_backlog(policy, workers, CLASSES);
    let clock = Instant::now();
    let mut filled = 0;
    loop {
        let booked = farm.round();
        filled += booked as u32;
        if booked < BUDGET || filled >= PLACEMENTS {
            break;
        }
    }
    let fill_s = clock.elapsed().as_secs_f64();
    let clock = Instant::now();
    let (mut placed, mut ended) = (0, 0_u32);
    while filled + placed < PLACEMENTS {
        farm.end_oldest();
        ended += 1;
        placed += farm.round() as u32;
    }
    let full_s = clock.elapsed().as_secs_f64();
    let scan_us = scan(policy, workers);
    let all_us = (fill_s + full_s) * 1e6 / f64::from(filled + placed);
    println!(
        "{workers} workers of a host name each, {QUEUES} queues, {CLASSES} classes, resource-aware, {PLACEMENTS} placements"
    );
    println!(
        "  {all_us:.1} µs each; {:.1} while the farm fills ({filled})",
        fill_s * 1e6 / f64::from(filled)
    );
    println!("  full: {:.1} µs for each end and the round after it", full_s * 1e6 / f64::from(ended.max(1)));
    println!("  a scan of all workers {scan_us:.0} µs; ratio {:.0}", scan_us / all_us);
}

/// Microseconds to look at every worker for one task.
fn scan(policy: &'static dyn ScoringPolicy, workers: u64) -> f64 {
    let empty = plain_workers(workers);
    let class = class(1);
    let (reads, instance) = (Reads::default(), InstanceContext::default());
    let ask = ask(&class, &reads);
    let context = context(&empty, policy, &instance);
    let clock = Instant::now();
    for _ in 0..20 {
        black_box(best_by_scan(&ask, &context));
    }
    clock.elapsed().as_secs_f64() * 1e6 / 20.0
}

/// The context of a placement without reservations.
fn context<'a>(
    workers: &'a Workers,
    policy: &'static dyn ScoringPolicy,
    instance: &'a InstanceContext,
) -> MatchContext<'a> {
    MatchContext {
        now: Time(1),
        workers,
        reserved: &NO_RESERVATIONS,
        policy,
        instance,
        known: None,
        key_bytes: None,
    }
}

fn best_by_scan(ask: &PlacementRequest, context: &MatchContext) -> Option<WorkerId> {
    let fitting = context.workers.iter().filter(|worker| placement::fits_now(ask.class, worker));
    let judged = fitting.filter_map(|worker| Some((context.judge(ask, worker).ok()?, worker)));
    let best = judged.max_by(|(a, w), (b, v)| {
        a.score
            .total_cmp(&b.score)
            .then(b.load.total_cmp(&a.load))
            .then_with(|| v.record.name.cmp(&w.record.name))
    });
    best.map(|(ranked, _)| ranked.worker)
}

fn ask<'a>(class: &'a Class, reads: &'a Reads) -> PlacementRequest<'a> {
    PlacementRequest {
        step: StepKey { job: JobId(1), step: 0 },
        class_id: ClassId(0),
        band: 3,
        class,
        job: JobContext { request: (&class.request).into(), ..JobContext::default() },
        reads,
        profile: 0,
        avoids: None,
        longest_ms: None,
        others_wait: false,
        locality: false,
        prefers: &NONE,
        turn: None,
    }
}

fn plain_workers(count: u64) -> Workers {
    let mut workers = Workers::new(Saturation::default(), 0, LoadSettings::default());
    for id in 1..=count {
        let record = WorkerRecord {
            id: WorkerId(id),
            name: format!("w{id:05}"),
            epoch: Epoch(1),
            identity: id,
            incarnation: 1,
            state: WorkerState::Up,
            draining: false,
            note: None,
            lease_until: None,
            capacity: capacity(),
            attributes: attributes(id),
        };
        workers.insert(Worker::linked(record));
    }
    workers
}

fn packing(count: u64) {
    let (policy, _) = policy_by_name("packing");
    let mut farm = Farm::new(policy, count, Vec::new());
    let step = StepSpec {
        name: "s".to_owned(),
        tasks: 1_000_000,
        request: Resources::new(10, 0),
        ..StepSpec::default()
    };
    farm.submit(JobSpec { queue: "q".to_owned(), steps: vec![step], ..JobSpec::default() });
    let clock = Instant::now();
    let mut placed = 0;
    loop {
        let booked = farm.round();
        placed += booked;
        if booked < BUDGET {
            break;
        }
    }
    let engine = placed as f64 / clock.elapsed().as_secs_f64();
    let class = Class { request: Resources::new(10, 64 << 20), ..Class::default() };
    let (matched, by_matcher) =
        fill(&class, policy, count, |ask, context| match placement::place_task(ask, context, None) {
            PlacementOutcome::Best(ranked) => Some(ranked[0].worker),
            PlacementOutcome::NoRoom | PlacementOutcome::Vetoed(..) => None,
        });
    let (_, by_scan) = fill(&class, policy, count, best_by_scan);
    println!(
        "packing on {count} workers until they are full: {placed} placements through the engine, {matched} by the matcher"
    );
    println!(
        "  engine {engine:.0}/s, matcher {by_matcher:.0}/s, a scan of all workers {by_scan:.0}/s; ratios {:.0}, {:.0}",
        engine / by_scan,
        by_matcher / by_scan
    );
}

/// Fills workers, by a choice of one at a time, for at most two seconds. Returns placements, and how many a
/// second.
fn fill(
    class: &Class,
    policy: &'static dyn ScoringPolicy,
    count: u64,
    choose: impl Fn(&PlacementRequest, &MatchContext) -> Option<WorkerId>,
) -> (u64, f64) {
    let mut workers = plain_workers(count);
    let (reads, instance) = (Reads::default(), InstanceContext::default());
    let ask = ask(class, &reads);
    let clock = Instant::now();
    let mut placed = 0;
    while clock.elapsed().as_secs() < 2 {
        let Some(id) = choose(&ask, &context(&workers, policy, &instance)) else { break };
        let task = TaskId { job: JobId(1), index: placed as u32 };
        workers.update(id, |worker| worker.booked.hold(task, ask.step, &class.request, 0, class.request.cpu));
        placed += 1;
    }
    (placed, placed as f64 / clock.elapsed().as_secs_f64())
}
