//! Random farms: each piece of advice for a waiting task starts it, and each queue or user that is named before it could
//! use what it waits for. `WHY_FARMS=0..10000` says which farms.

use crate::kit::{Farm, GIB, REQUEST, cores, hello, set_limit, set_queue, spec, task};
use std::collections::BTreeSet;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Engine, Event, Hello, Settings};
use windlass_core::explain::{self, Advice, Change, Edit, Explanation, FirstForLimit, Known, Reason, Starts};
use windlass_core::ids::StepKey;
use windlass_core::job::{Dependency, DependencyKind, End, JobSpec, StepSpec, TaskResult, TaskState};
use windlass_core::licences::{Busy, Limit};
use windlass_core::load::pressure::{DiskSpace, LoadReport, Pressure, Pressures, Stall};
use windlass_core::plan::placement::{Ineligible, could_take_part, fits_now};
use windlass_core::queues::QueueRecord;
use windlass_core::tags::Need;
use windlass_core::{JobId, RequestId, Resources, TaskId, Time, WorkerId};

/// Farms that each run of the tests makes.
const FARMS: std::ops::Range<u64> = 0..300;
/// Tasks of a farm that are explained.
const TASKS_MAX: usize = 6;
const QUEUES: [&str; 4] = ["q0", "q1", "q2", "q3"];
const USERS: [&str; 3] = ["ann", "bob", "cat"];

/// SplitMix64 by Steele, Lea and Flood.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in `n` times.
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn worker(random: &mut Random, farm: &mut Farm, number: u64) {
    let capacity = Resources::new(100 * (1 + random.below(8) as u32), GIB * (1 + random.below(8)));
    let mut hello = Hello { new_link: false, ..hello(&format!("w{number}"), capacity) };
    for tag in ["gpu", "ssd"] {
        if random.one_in(3) {
            hello.attributes.insert(tag.to_owned(), BTreeSet::new());
        }
    }
    if random.one_in(8) {
        hello.attributes.insert("queue".to_owned(), BTreeSet::from([random.of(&QUEUES).to_owned()]));
    }
    farm.join(hello);
}

fn queue(random: &mut Random, name: &str) -> QueueRecord {
    let some = |random: &mut Random, n| {
        if random.one_in(n) { Some(100 * (1 + random.below(6) as u32)) } else { None }
    };
    QueueRecord {
        weight: random.of(&[50, 100, 400]),
        band: if random.one_in(2) { Some(random.of(&[2, 3, 5])) } else { None },
        quota_cpu: some(random, 4),
        paused: random.one_in(10).then(|| "backup".to_owned()),
        ..QueueRecord::named(name)
    }
}

fn limit(random: &mut Random) -> Limit {
    let busy = random.one_in(2).then(|| Busy { exits: [11].into(), back_off_ms: 20_000 });
    let per_worker = random.one_in(3).then(|| 1 + random.below(2) as u32);
    Limit { max: Some(random.below(4) as u32), per_worker, busy }
}

fn step(random: &mut Random, number: u16) -> StepSpec {
    let tasks = 1 + random.below(6) as u32;
    let request = Resources::new(100 * (1 + random.below(5) as u32), GIB / 2 * random.below(6));
    let mut step = StepSpec { name: format!("s{number}"), tasks, request, ..StepSpec::default() };
    for tag in ["gpu", "ssd"] {
        if random.one_in(6) {
            step.needs.push(Need::parse(tag));
        }
    }
    if random.one_in(8) {
        step.targets = BTreeSet::from([format!("w{}", 1 + random.below(5))]);
    }
    if random.one_in(5) {
        step.limits = BTreeSet::from([random.of(&["l0", "l1"]).to_owned()]);
    }
    match random.below(8) {
        0 => {
            let nodes = 2 + random.below(2) as u32;
            (step.tasks, step.nodes) = (nodes * (1 + random.below(2) as u32), Some(nodes));
        }
        1 => step.max_running = Some(1 + random.below(2) as u32),
        2 if number > 0 => step.depends = vec![Dependency { on: 0, kind: DependencyKind::Step }],
        _ => {}
    }
    step
}

fn job(random: &mut Random) -> JobSpec {
    let steps: Vec<StepSpec> = (0..1 + random.below(2) as u16).map(|number| step(random, number)).collect();
    let user = random.of(&USERS).to_owned();
    let priority = random.below(3) as i32 - 1;
    JobSpec { user, priority, ..spec(random.of(&QUEUES), steps) }
}

fn load(random: &mut Random) -> LoadReport {
    let stall = |percent: f64| {
        Some(Pressure { some: Some(Stall { avg10: percent, ..Stall::default() }), full: None })
    };
    let percent = if random.one_in(2) { 70.0 } else { 0.0 };
    let machine = Pressures { memory: stall(percent), io: stall(0.0), cpu: stall(0.0) };
    let free_bytes = if random.one_in(3) { GIB / 64 } else { 500 * GIB };
    let space = Some(DiskSpace { free_bytes, total_bytes: 1_000 * GIB });
    LoadReport {
        machine,
        memory_available: Some(GIB * random.below(9)),
        memory_own: Some(0),
        state_space: space,
        session_space: space,
        ..LoadReport::default()
    }
}

fn ask_for_place(random: &mut Random, farm: &mut Farm) -> (RequestId, &'static str) {
    let queue = random.of(&QUEUES);
    let (amounts, queue_name) = (cores(1 + random.below(3) as u32), queue.to_owned());
    let place = PlaceRequest { queue: queue_name, amounts, wait_max_ms: 1 << 40, ..PlaceRequest::default() };
    let request = farm.ask(|request| Event::Alloc { request, place: Box::new(place) });
    farm.settle();
    (request, queue)
}

/// Something happens to a farm.
fn happen(random: &mut Random, farm: &mut Farm) {
    let running: Vec<TaskId> = farm.engine.attempts().map(|(task, _)| task).collect();
    let workers: Vec<WorkerId> = farm.engine.workers().present().map(|worker| worker.record.id).collect();
    match random.below(11) {
        0..=4 => _ = farm.submit(job(random)),
        5 | 6 if !running.is_empty() => {
            let exit = random.of(&[0, 0, 0, 1, 11]);
            farm.end(random.of(&running), exit);
        }
        7 => {
            let draining = !random.one_in(3);
            let (worker, request) = (random.of(&workers), REQUEST);
            farm.tell(Event::Drain { request, worker, draining, note: None });
        }
        8 => {
            let (worker, report) = (random.of(&workers), Box::new(load(random)));
            farm.tell(Event::Load { worker, report });
        }
        9 if random.one_in(3) => farm.tell(Event::Lost { worker: random.of(&workers) }),
        _ => farm.pass(random.of(&[1, 5, 20])),
    }
}

/// A farm, and the requests of outside clients by queue.
fn farm(seed: u64) -> (Farm, Vec<(RequestId, &'static str)>) {
    let mut random = Random(seed);
    let mut requests = Vec::new();
    let mut farm = Farm::new(Settings::default());
    farm.checks = false;
    for number in 1..2 + random.below(4) {
        worker(&mut random, &mut farm, number);
    }
    for name in QUEUES {
        if random.one_in(2) {
            farm.tell(set_queue(queue(&mut random, name)));
        }
    }
    for name in ["l0", "l1"] {
        farm.tell(set_limit(name, limit(&mut random)));
    }
    for _ in 0..8 + random.below(16) {
        if random.one_in(12) {
            requests.push(ask_for_place(&mut random, &mut farm));
        } else {
            happen(&mut random, &mut farm);
        }
    }
    if random.one_in(4) {
        let jobs: Vec<JobId> = farm.engine.jobs().map(|job| job.id).collect();
        if !jobs.is_empty() {
            farm.tell(Event::Hold { request: REQUEST, job: random.of(&jobs), held: true });
        }
    }
    farm.settle();
    (farm, requests)
}

/// What a user or an administrator would do who follows the advice, by the same words as the commands that it names.
fn follow(farm: &mut Farm, waiting: TaskId, change: &Change) -> TaskId {
    let record = |farm: &Farm, name: &str| {
        let id = farm.engine.queues().id(name).expect("it is named");
        farm.engine.queues().get(id).record.clone()
    };
    let limit =
        |farm: &Farm, name: &str| farm.engine.licences().limits().get(name).cloned().unwrap_or_default();
    let event = match change {
        Change::Wait => return waiting,
        Change::All(_) => panic!("no advice for these farms has several parts"),
        Change::Worker { worker, unmet } => {
            unmet.iter().for_each(|why| mend(farm, worker, why));
            return waiting;
        }
        Change::Resubmit { edits, .. } => return resubmit(farm, waiting, edits),
        Change::Quota(name, cpu) => {
            set_queue(QueueRecord { quota_cpu: Some(*cpu as u32), ..record(farm, name) })
        }
        Change::Resume(name) => set_queue(QueueRecord { paused: None, ..record(farm, name) }),
        Change::Pause(name) => set_queue(QueueRecord { paused: Some("x".to_owned()), ..record(farm, name) }),
        Change::Weight(name, weight) => set_queue(QueueRecord { weight: *weight, ..record(farm, name) }),
        Change::Band(name, band) => set_queue(QueueRecord { band: Some(*band), ..record(farm, name) }),
        Change::UserWeight { queue, user, weight } => {
            let mut queue = record(farm, queue);
            queue.user_weights.insert(user.clone(), *weight);
            set_queue(queue)
        }
        Change::Limit(name, max) => set_limit(name, Limit { max: Some(*max), ..limit(farm, name) }),
        Change::TryAgain(name, _) => set_limit(name, limit(farm, name)),
        Change::Release(job) => Event::Hold { request: REQUEST, job: *job, held: false },
        Change::Priority(job, priority) => {
            Event::Prioritize { request: REQUEST, job: *job, priority: *priority }
        }
        Change::Connect { .. } => panic!("no work of these farms is another system's"),
        Change::Mate { .. } => panic!("no step of these farms starts with another one"),
    };
    farm.tell(event);
    waiting
}

fn mend(farm: &mut Farm, name: &str, why: &Ineligible) {
    let worker = farm.engine.workers().by_name(name).expect("it is named").clone();
    let number = worker.record.id;
    let back = |farm: &Farm| {
        let mut hello = Hello { new_link: false, ..hello(name, worker.record.capacity.clone()) };
        hello.attributes.clone_from(&worker.record.attributes);
        hello.inventory.seq = worker.link.seq;
        let held = worker.booked.running().iter().chain(worker.booked.backlog());
        let held = held.map(|task| windlass_core::engine::Held {
            task: *task,
            attempt: farm.engine.attempt(*task).expect("it is booked").number,
            phase: windlass_core::engine::HeldPhase::Queued,
        });
        hello.inventory.held = held.collect();
        hello
    };
    let report = || worker.reported.load().cloned().expect("it has reported");
    match why {
        Ineligible::Attribute(need) => {
            let mut hello = back(farm);
            hello.attributes.insert(need.key.clone(), need.any_of.clone());
            farm.join(hello);
        }
        Ineligible::Suspect => _ = farm.join(back(farm)),
        Ineligible::Draining(_) => {
            farm.tell(Event::Drain { request: REQUEST, worker: number, draining: false, note: None });
        }
        Ineligible::LowSpace { needs, .. } => {
            let space = Some(DiskSpace { free_bytes: *needs, total_bytes: 1_000 * GIB });
            let report = LoadReport { state_space: space, session_space: space, ..report() };
            farm.tell(Event::Load { worker: number, report: Box::new(report) });
        }
        Ineligible::UnderPressure(_) => {
            let none = Some(Pressure { some: Some(Stall::default()), full: None });
            let machine = Pressures { cpu: none, memory: none, io: none };
            farm.tell(Event::Load { worker: number, report: Box::new(LoadReport { machine, ..report() }) });
        }
        // Of these farms no machine has other programs that use its cores.
        Ineligible::Foreign(_) | Ineligible::Vetoed { .. } => {
            let report = LoadReport { memory_available: Some(100 * GIB), ..report() };
            farm.tell(Event::Load { worker: number, report: Box::new(report) });
        }
        Ineligible::Limit { name, max } => {
            let limit = farm.engine.licences().limits()[name].clone();
            farm.tell(set_limit(name, Limit { per_worker: Some(max + 1), ..limit }));
        }
        Ineligible::TooFew { tasks, could } => {
            for more in 0..tasks - could {
                let hello = hello(&format!("more{more}"), worker.record.capacity.clone());
                farm.join(Hello { attributes: worker.record.attributes.clone(), ..hello });
            }
        }
        other => panic!("nobody can do anything about '{other}'"),
    }
}

fn resubmit(farm: &mut Farm, waiting: TaskId, edits: &[Edit]) -> TaskId {
    let job = farm.engine.job(waiting.job).expect("it waits");
    let step = &job.spec.steps[usize::from(job.step_of(waiting.index))];
    let mut step = StepSpec { tasks: 1, depends: Vec::new(), ..step.clone() };
    let mut again = JobSpec { steps: Vec::new(), ..(*job.spec).clone() };
    for edit in edits {
        match edit {
            Edit::Less(name, amount) if name == "cpu" => step.request.cpu = *amount as u32,
            Edit::Less(name, amount) if name == "memory" => step.request.memory = *amount,
            Edit::Less(name, _) => panic!("no step of these farms asks for {name}"),
            Edit::Queue(name) => again.queue.clone_from(name),
            Edit::Target(name) => step.targets = [name.clone()].into(),
            Edit::Without(need) => step.needs.retain(|other| other != need),
        }
    }
    again.steps = vec![step];
    task(farm.submit(again), 0)
}

/// All rounds that a server would run: it asks the engine whether it wants another one.
fn rest(farm: &mut Farm) {
    for _ in 0..8 {
        if farm.round() == 0 && !farm.engine.planner().needs_round() {
            break;
        }
    }
}

/// Tasks on a worker end, those first that are expected to, until there is room for the task. True if others started
/// there before.
fn free(farm: &mut Farm, worker: &str, waiting: TaskId) -> bool {
    let id = farm.engine.workers().by_name(worker).expect("it is named").record.id;
    let mut after_others = false;
    loop {
        let Some(class) = class_of(&farm.engine, waiting) else { return after_others };
        let known = farm.engine.workers().get(id).expect("it is there");
        if farm.is_placed(waiting) || fits_now(class, known) || !end_next_of(farm, id) {
            break;
        }
        let Some(class) = class_of(&farm.engine, waiting) else { return after_others };
        let has_room = fits_now(class, farm.engine.workers().get(id).expect("it is there"));
        let before: BTreeSet<TaskId> = farm.engine.attempts().map(|(task, _)| task).collect();
        rest(farm);
        if has_room {
            break;
        }
        let mut attempts = farm.engine.attempts();
        let is_new = attempts
            .any(|(task, attempt)| attempt.worker == id && !attempt.queued && !before.contains(&task));
        after_others |= is_new && !farm.is_placed(waiting);
    }
    after_others
}

/// Tasks on a worker end, those first that are expected to, until the task is placed.
fn end_until_placed(farm: &mut Farm, worker: &str, waiting: TaskId) {
    let id = farm.engine.workers().by_name(worker).expect("it is named").record.id;
    while !farm.is_placed(waiting) && end_next_of(farm, id) {
        rest(farm);
    }
}

/// The task of a worker ends that is expected to end first, or a place there. False if it has neither.
fn end_next_of(farm: &mut Farm, id: WorkerId) -> bool {
    let known = farm.engine.workers().get(id).expect("it is there");
    let last = Time(u64::MAX);
    let running = known.booked.running().iter().copied();
    let next = running.min_by_key(|task| (farm.engine.expected_end(*task).unwrap_or(last), *task));
    let place = known.booked.places().keys().next().copied();
    match (next, place) {
        (Some(next), _) => {
            let by = farm.report(next);
            // As its worker would say it, with its times.
            let started = farm.engine.attempt(next).and_then(|attempt| attempt.started);
            let finished = Some(farm.now);
            let result = TaskResult { started, finished, ..TaskResult::bare(End::Exited(0)) };
            farm.hear(Event::Finished { by, result });
        }
        (None, Some(alloc)) => farm.hear(Event::Release { alloc }),
        (None, None) => return false,
    }
    true
}

fn class_of(engine: &Engine, task: TaskId) -> Option<&windlass_core::class::Class> {
    let step = engine.job(task.job)?.step_of(task.index);
    engine.class_of(StepKey { job: task.job, step })
}

fn copy(farm: &Farm) -> Farm {
    let mut copy = Farm::new(Settings::default());
    (copy.engine, copy.now, copy.checks) = (farm.engine.clone(), farm.now, false);
    copy
}

fn check_advice(farm: &Farm, waiting: TaskId, advice: &Advice) -> Result<(), String> {
    let mut farm = copy(farm);
    let goal = follow(&mut farm, waiting, &advice.change);
    rest(&mut farm);
    let room = match &advice.starts {
        Starts::AtOnce => None,
        Starts::WhenFree(worker) | Starts::AfterTasks(worker) => Some((worker, false)),
        Starts::AfterSmaller(worker) => Some((worker, true)),
    };
    if let Some((worker, after_others)) = room {
        if farm.is_placed(goal) {
            return Err("it starts at once".to_owned());
        }
        if matches!(advice.starts, Starts::AfterTasks(_)) {
            end_until_placed(&mut farm, worker, goal);
        } else if free(&mut farm, worker, goal) != after_others {
            return Err(format!("others start on {worker} before it: {}", !after_others));
        }
    }
    let on = farm.engine.attempt(goal).and_then(|attempt| farm.engine.workers().get(attempt.worker));
    match (on, room) {
        (Some(on), Some((worker, _))) if on.record.name != *worker => {
            return Err(format!("it starts on {}", on.record.name));
        }
        (Some(_), _) => return Ok(()),
        (None, _) => {}
    }
    let why = explain::reason(&farm.engine, goal).map(|why| why.reason);
    Err(format!("it does not start then, for {why:?}"))
}

/// A queue or user that is named before a task has a step that could start on a worker that could run the task.
fn check_named(farm: &Farm, waiting: TaskId, why: &Explanation) -> Result<(), String> {
    let engine = &farm.engine;
    let class = class_of(engine, waiting).ok_or("it has no class")?;
    let own = engine.job(waiting.job).ok_or("it has no job")?;
    let is_named = |job: &windlass_core::job::Job| match &why.reason {
        Reason::Behind(queue) | Reason::Limit { first: Some(FirstForLimit::Queue(queue)), .. } => {
            job.spec.queue == *queue && job.spec.queue != own.spec.queue
        }
        Reason::BehindUser(user) | Reason::Limit { first: Some(FirstForLimit::User(user)), .. } => {
            job.spec.queue == own.spec.queue && job.spec.user == *user
        }
        _ => false,
    };
    let limit = match &why.reason {
        Reason::Behind(_) | Reason::BehindUser(_) => None,
        Reason::Limit { name, first: Some(_), .. } => Some(name),
        _ => return Ok(()),
    };
    let could_use = |theirs: &windlass_core::class::Class| {
        let takes = limit.is_none_or(|name| theirs.takes(name) > 0);
        takes
            && engine
                .workers()
                .present()
                .any(|worker| could_take_part(class, worker) && could_take_part(theirs, worker))
    };
    let mut steps = engine.jobs().filter(|job| is_named(job) && !job.held).flat_map(|job| {
        let keys = (0..job.steps.len()).map(|step| StepKey { job: job.id, step: step as u16 });
        keys.filter(|key| !job.steps[usize::from(key.step)].ready.is_empty())
    });
    let queue = match &why.reason {
        Reason::Behind(queue) | Reason::Limit { first: Some(FirstForLimit::Queue(queue)), .. } => queue,
        _ => &own.spec.queue,
    };
    // Clients that wait for places have no job.
    let has_places = engine.places().waiting_count() > 0;
    let paused = engine.queues().by_name().any(|q| q.name() == queue && q.record.paused.is_some());
    if !paused && (has_places || steps.any(|key| engine.class_of(key).is_some_and(could_use))) {
        return Ok(());
    }
    Err(format!("'{queue}' could not use what it waits for"))
}

/// All that tells of the task says the same.
fn check_words(farm: &Farm, waiting: TaskId, why: &Explanation) -> Result<(), String> {
    let job = farm.engine.job(waiting.job).ok_or("it has no job")?;
    let step = job.step_of(waiting.index);
    if job.steps[usize::from(step)].ready.first() != Some(waiting.index) {
        return Ok(());
    }
    let listed = explain::wait_reason(&farm.engine, StepKey { job: job.id, step }, &mut Known::default());
    match listed {
        Some(listed) if listed == why.reason => Ok(()),
        other => Err(format!("lists say {other:?}")),
    }
}

/// A client that waits for a place gets it by the advice that its queue's explanation gives.
fn check_places(farm: &Farm, requests: &[(RequestId, &'static str)]) -> Result<(), String> {
    for queue in QUEUES {
        let Some(why) = explain::waiting_place(&farm.engine, queue) else { continue };
        let own = requests.iter().filter(|(_, of)| *of == queue);
        let waiting = own.filter_map(|(request, _)| farm.engine.places().key_of(*request));
        let Some(first) = waiting.min() else { return Err(format!("nobody waits in {queue}")) };
        for advice in &why.changes {
            let mut farm = copy(farm);
            // Only advice for tasks is about a task.
            follow(&mut farm, task(JobId(u64::MAX), 0), &advice.change);
            rest(&mut farm);
            if let Starts::WhenFree(worker) | Starts::AfterSmaller(worker) | Starts::AfterTasks(worker) =
                &advice.starts
            {
                free_all(&mut farm, worker, first);
            }
            if farm.engine.places().waits(first) {
                return Err(format!("a place in {queue}, {:?}: {advice:?} does not give it", why.reason));
            }
        }
    }
    Ok(())
}

/// What runs on a worker ends, one after the other, until a client has its place.
fn free_all(farm: &mut Farm, worker: &str, waiting: StepKey) {
    let id = farm.engine.workers().by_name(worker).expect("it is named").record.id;
    while farm.engine.places().waits(waiting) {
        let known = farm.engine.workers().get(id).expect("it is there");
        let last = Time(u64::MAX);
        let running = known.booked.running().iter().copied();
        let next = running.min_by_key(|task| (farm.engine.expected_end(*task).unwrap_or(last), *task));
        let place = known.booked.places().keys().next().copied();
        match (next, place) {
            (Some(next), _) => farm.end(next, 0),
            (None, Some(alloc)) => farm.tell(Event::Release { alloc }),
            (None, None) => break,
        }
    }
}

fn check(seed: u64) -> (usize, Result<(), String>) {
    let (farm, requests) = farm(seed);
    let waiting = farm.engine.jobs().flat_map(|job| {
        let total: u32 = job.spec.steps.iter().map(|step| step.tasks).sum();
        (0..total).map(|index| task(job.id, index))
    });
    let waits = |task: &TaskId| {
        let state = explain::reason(&farm.engine, *task).map(|why| why.state);
        state == Some(TaskState::Ready)
    };
    let waiting: Vec<TaskId> = waiting.filter(waits).collect();
    let stride = waiting.len().div_ceil(TASKS_MAX).max(1);
    let mut advices = 0;
    if let Err(what) = check_places(&farm, &requests) {
        return (advices, Err(format!("farm {seed}: {what}")));
    }
    for waiting in waiting.into_iter().step_by(stride) {
        let why = farm.why(waiting);
        let named = check_named(&farm, waiting, &why).and_then(|()| check_words(&farm, waiting, &why));
        if let Err(what) = named {
            return (advices, Err(format!("farm {seed}: {waiting} waits for {:?}: {what}", why.reason)));
        }
        for advice in &why.changes {
            advices += 1;
            if let Err(what) = check_advice(&farm, waiting, advice) {
                let reason = &why.reason;
                return (
                    advices,
                    Err(format!("farm {seed}: {waiting} waits for {reason:?}: {advice:?}: {what}")),
                );
            }
        }
    }
    (advices, Ok(()))
}

#[test]
fn advice_starts_the_task_and_who_is_named_could_use_the_worker() {
    let wanted = std::env::var("WHY_FARMS").ok();
    let range = wanted.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    let (mut advices, mut wrong) = (0, Vec::new());
    for seed in range.unwrap_or(FARMS) {
        let (given, outcome) = check(seed);
        advices += given;
        wrong.extend(outcome.err());
    }
    println!("{advices} pieces of advice were followed");
    assert!(advices > 0);
    assert!(wrong.is_empty(), "{} farms:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}
