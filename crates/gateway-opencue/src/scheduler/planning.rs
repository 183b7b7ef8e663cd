//! Placement of a snapshot's frames by the planner of the core, which the engine of a farm uses, too. Hosts are its
//! workers, shows its queues, and layers its steps.
//!
//! The tables are the only truth. Each pass brings the planner up to date with a snapshot, and what a pass placed
//! counts in the next one only if it was booked. Two facts last between passes: whose turn it is, and which host is
//! reserved for frames that were passed over.

use super::amounts::{self, AmountRules, THREADS_ALL};
use super::caps::{CapKind, Caps};
use super::order::{Order, queues_of};
use super::snapshot::{Host, Layer, Snapshot};
use super::yields::{SIZE, Yields};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::cache_keys::Reads;
use windlass_core::class::Class;
use windlass_core::ids::{ClassId, Epoch, QueueId, StepKey};
use windlass_core::job::{Hints, QueuedStep};
use windlass_core::plan::placement::{self, Ineligible};
use windlass_core::plan::{self, HeldAmounts, PlanSettings, Planner, RunningTask, Searches, StepFacts, Work};
use windlass_core::queues::{Charge, RoundFilter, TurnSettings};
use windlass_core::tags::{Attributes, Need};
use windlass_core::worker::{Saturation, Worker, WorkerRecord, WorkerState};
use windlass_core::{JobId, Resources, TaskId, Time, WorkerId};
use windlass_cuebot::Amounts;

/// Frames that one pass places at most, so that a commit follows soon.
pub const PASS_FRAMES_MAX: usize = 2_000;
/// Assumed run time of a frame in seconds, before one of its layer has succeeded.
const UNKNOWN_FRAME_S: f64 = 60.0;
const KIB: u64 = 1 << 10;
/// The attribute of all hosts but Windlass workers.
const RQD: &str = "rqd";

/// The operator's rules of planning.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanningRules {
    /// The rules for the cores of a frame.
    pub amounts: AmountRules,
    /// The rule for the host that is filled first.
    pub saturation: Saturation,
    /// The order of shows and jobs.
    pub order: Order,
    /// Frames that a layer gets in a pass before the others of its priority have had their turn; `None` is all that
    /// there is room for.
    pub layer_frames_max: Option<u32>,
}

/// A placement: a frame of a layer on a host.
#[allow(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub layer: String,
    pub host: String,
    pub amounts: Amounts,
}

/// How a pass looked for hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanLooks {
    /// Searches for a host for a frame.
    pub searches: u64,
    /// Of these, those that found no host with room.
    pub without_host: u64,
    /// Hosts with room that they judged.
    pub judged: u64,
    /// Looks at frames of one kind that ended at a cap, before a search.
    pub capped: BTreeMap<CapKind, u64>,
}

/// A layer in the planner. A layer that asks for whole hosts is a step for each size of host, all with the same
/// frames.
struct Queued {
    layer: Layer,
    queue: QueueId,
    steps: Vec<(ClassId, QueuedStep)>,
    classes: Vec<Class>,
    is_listed: bool,
    left: u32,
    /// Turns that it has had in this pass, and its frames in the one under way.
    turn: i32,
    turn_frames: u32,
}

/// A running frame, as far as planning needs it.
struct Running {
    request: Resources,
    began: Time,
    due: Option<Time>,
}

/// The planner with its hosts and layers.
pub struct Planning {
    plan: Planner,
    rules: PlanningRules,
    now: Time,
    hosts: BTreeMap<WorkerId, Host>,
    host_ids: BTreeMap<String, WorkerId>,
    layers: BTreeMap<JobId, Queued>,
    layer_ids: BTreeMap<String, JobId>,
    running: BTreeMap<TaskId, Running>,
    caps: Caps,
    yields: Yields,
    /// Layers that have had a turn in the last pass.
    turned: Vec<JobId>,
    /// Looks of the pass that ended at a cap.
    capped: RefCell<BTreeMap<CapKind, u64>>,
    /// The planner's searches before the pass.
    searched: Searches,
    placed: u32,
    next: u64,
    no_limits: BTreeSet<String>,
    reads: Reads,
    hints: Hints,
}

impl Planning {
    /// A planner that knows nothing yet.
    pub fn new(rules: PlanningRules) -> Planning {
        let turn = TurnSettings { charge: Charge::Task, express: None };
        let settings = PlanSettings { turn, saturation: rules.saturation, ..PlanSettings::default() };
        Planning {
            plan: Planner::new(settings),
            rules,
            now: Time::default(),
            hosts: BTreeMap::new(),
            host_ids: BTreeMap::new(),
            layers: BTreeMap::new(),
            layer_ids: BTreeMap::new(),
            running: BTreeMap::new(),
            caps: Caps::default(),
            yields: Yields::default(),
            turned: Vec::new(),
            capped: RefCell::default(),
            searched: Searches::default(),
            placed: 0,
            next: 1,
            no_limits: BTreeSet::new(),
            reads: Reads::default(),
            hints: Hints::default(),
        }
    }

    /// True if the next snapshot should have procs: work waits for a host to be reserved, and the running frames say
    /// when a host will be free.
    pub fn wants_procs(&self) -> bool {
        !self.plan.reserved().is_empty() || self.plan.reservations().next_full().is_some()
    }

    /// Places the frames of a snapshot that may start.
    pub fn pass(&mut self, snapshot: &Snapshot) -> Vec<Placement> {
        self.now = Time(u64::try_from(snapshot.now_us).unwrap_or(0).saturating_mul(1_000)).max(self.now);
        self.plan.set_now(self.now);
        self.searched = self.plan.searches();
        self.capped.get_mut().clear();
        self.set_hosts(snapshot);
        self.set_running(snapshot);
        self.set_layers(snapshot);
        self.caps.block_full_subscriptions(&mut self.plan.workers, &self.hosts);
        self.plan.tick();
        self.plan.request_round();
        self.plan.refresh_statistics();
        let mut placements = Vec::new();
        self.placed = 0;
        let reserved: BTreeSet<WorkerId> = self.plan.reserved().keys().copied().collect();
        let is_closed = self.yields.close(&mut self.plan.workers, &reserved);
        plan::round(self, PASS_FRAMES_MAX, &mut placements);
        if is_closed {
            self.yields.open(&mut self.plan.workers);
            self.plan.request_round();
            plan::round(self, PASS_FRAMES_MAX.saturating_sub(placements.len()), &mut placements);
        }
        placements
    }

    /// How the last pass looked for hosts.
    pub fn looks(&self) -> PlanLooks {
        let (before, now) = (self.searched, self.plan.searches());
        let mut capped = self.capped.borrow().clone();
        let bursts = self.caps.bursts_reached();
        if bursts > 0 {
            capped.insert(CapKind::Subscription, bursts);
        }
        PlanLooks {
            searches: now.searches - before.searches,
            without_host: now.without_candidate - before.without_candidate,
            judged: now.candidates - before.candidates,
            capped,
        }
    }

    /// The reasons why frames of a layer were not placed by a pass: caps, and for each reason the number of hosts
    /// that it rules out. The predicates are the planner's.
    pub fn explain(&self, layer: &str) -> Vec<String> {
        let queued = self.layer_ids.get(layer).and_then(|id| self.layers.get(id));
        let Some(queued) = queued.filter(|queued| queued.left > 0) else { return Vec::new() };
        let mut reasons = Vec::new();
        for class in &queued.classes {
            reasons.extend(self.caps.reached(class).map(cap_reason));
        }
        if queued.classes.is_empty() {
            reasons.push("no host is wide enough for what the layer asks".to_owned());
        }
        let mut hosts: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for worker in self.plan.workers.iter() {
            for class in &queued.classes {
                // A layer that asks for whole hosts has a class for each size, and this host one size.
                if !class.needs.iter().all(|need| is_of_size(need, worker)) {
                    continue;
                }
                if let Some(reason) = placement::ineligibilities(class, worker, true).next() {
                    hosts.entry(host_reason(&reason)).or_insert((0, worker.record.name.clone())).0 += 1;
                }
            }
        }
        let mut hosts: Vec<(String, (usize, String))> = hosts.into_iter().collect();
        hosts.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        reasons.extend(hosts.into_iter().map(|(reason, (count, example))| {
            let noun = if count == 1 { "host" } else { "hosts" };
            format!("{count} {noun}: {reason} ({example})")
        }));
        if self.plan.workers.iter().next().is_none() {
            reasons.push("no open host has reported lately".to_owned());
        }
        reasons
    }

    fn set_hosts(&mut self, snapshot: &Snapshot) {
        let present: BTreeSet<&str> = snapshot.hosts.iter().map(|host| host.id.as_str()).collect();
        let gone: Vec<WorkerId> =
            self.hosts.iter().filter(|(_, host)| !present.contains(&*host.id)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.drop_host(id));
        for host in &snapshot.hosts {
            let known = self.host_ids.get(&host.id).copied();
            let same = known.filter(|id| is_same_machine(&self.hosts[id], host));
            let id = match same {
                Some(id) => id,
                None => {
                    known.into_iter().for_each(|id| self.drop_host(id));
                    self.add_host(host)
                }
            };
            let booked = resources(host.size).less(&resources(host.idle));
            let is_changed =
                self.plan.workers.get(id).is_some_and(|worker| {
                    *worker.booked.sum() != booked || !worker.booked.running().is_empty()
                });
            if is_changed {
                self.plan.workers.update(id, |worker| worker.booked.replace(booked));
            }
            self.hosts.insert(id, host.clone());
        }
    }

    fn add_host(&mut self, host: &Host) -> WorkerId {
        let id = WorkerId(self.take_number());
        let record = WorkerRecord {
            id,
            name: host.name.clone(),
            epoch: Epoch(1),
            identity: id.0,
            incarnation: 1,
            state: WorkerState::Up,
            draining: false,
            note: None,
            lease_until: None,
            capacity: resources(host.size),
            attributes: attributes_of(host),
        };
        self.yields.add_host(id, &record.attributes);
        self.plan.workers.insert(Worker::linked(record));
        self.host_ids.insert(host.id.clone(), id);
        self.caps.block_host(&mut self.plan.workers, id, &host.alloc);
        id
    }

    fn drop_host(&mut self, id: WorkerId) {
        self.plan.remove_worker(id);
        self.yields.drop_host(id);
        if let Some(host) = self.hosts.remove(&id) {
            self.host_ids.remove(&host.id);
        }
    }

    fn set_running(&mut self, snapshot: &Snapshot) {
        self.running.clear();
        for (index, proc) in (0..).zip(&snapshot.procs) {
            let Some(worker) = self.host_ids.get(&proc.host) else { continue };
            let began = Time(u64::try_from(proc.began_us).unwrap_or(0).saturating_mul(1_000));
            let due = proc.mean_s.map(|mean_s| began.after((mean_s * 1e9) as u64));
            let request = Resources::new(narrow(proc.cores), bytes(proc.mem_kib));
            // No layer has this number.
            let task = TaskId { job: JobId(0), index };
            self.plan.workers.update(*worker, |worker| worker.booked.note_running(task));
            self.running.insert(task, Running { request, began, due });
        }
    }

    fn set_layers(&mut self, snapshot: &Snapshot) {
        self.end_turns();
        self.caps.read(snapshot);
        self.yields.begin();
        let queues = queues_of(snapshot, self.rules.order, &mut self.plan.queues);
        let sizes: BTreeSet<i64> = snapshot.hosts.iter().map(|host| host.size.cores).collect();
        let present: BTreeSet<&str> = snapshot.layers.iter().map(|layer| layer.id.as_str()).collect();
        let gone: Vec<JobId> =
            self.layers.iter().filter(|(_, q)| !present.contains(&*q.layer.id)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.drop_layer(id));
        for layer in &snapshot.layers {
            let Some(queue) = queues.get(&layer.show).copied() else { continue };
            let classes = classes_of(layer, snapshot, &sizes);
            let mut classes: Vec<Class> =
                classes.into_iter().map(|class| self.caps.limit_class(class, layer, snapshot)).collect();
            let id = match self.layer_ids.get(&layer.id) {
                Some(id) => *id,
                None => JobId(self.take_number()),
            };
            let steps = self.rules.order.steps(layer, id, classes.len(), 0);
            for (class, step) in classes.iter_mut().zip(&steps) {
                self.yields.join(class, queue, *step, &self.plan.workers);
            }
            let same = self.layers.get(&id).is_some_and(|queued| {
                queued.queue == queue
                    && queued.classes == classes
                    && queued.steps.iter().map(|(_, step)| *step).eq(steps.iter().copied())
            });
            if !same {
                self.drop_layer(id);
                self.add_layer(id, layer, queue, classes, &steps);
            }
            if let Some(queued) = self.layers.get_mut(&id) {
                (queued.layer, queued.left) = (layer.clone(), layer.waiting);
            }
            self.enlist(id);
        }
        self.yields.forget_unused();
        self.caps.set_widths(self.layers.values().map(|queued| (&queued.layer, queued.classes.as_slice())));
    }

    fn add_layer(
        &mut self,
        id: JobId,
        layer: &Layer,
        queue: QueueId,
        classes: Vec<Class>,
        steps: &[QueuedStep],
    ) {
        let mut numbered = Vec::new();
        for (class, step) in classes.iter().zip(steps) {
            self.plan.workers.learn(class.needs.iter());
            numbered.push((self.plan.classes.intern(class.clone()), *step));
        }
        self.layer_ids.insert(layer.id.clone(), id);
        let queued = Queued {
            layer: layer.clone(),
            queue,
            steps: numbered,
            classes,
            is_listed: false,
            left: 0,
            turn: 0,
            turn_frames: 0,
        };
        self.layers.insert(id, queued);
    }

    fn enlist(&mut self, id: JobId) {
        let Some(queued) = self.layers.get_mut(&id).filter(|queued| !queued.is_listed && queued.left > 0)
        else {
            return;
        };
        queued.is_listed = true;
        for (class, step) in &queued.steps {
            self.plan.enlist(queued.queue, *class, *step);
        }
    }

    fn withdraw(&mut self, id: JobId) {
        let Some(queued) = self.layers.get_mut(&id).filter(|queued| queued.is_listed) else { return };
        queued.is_listed = false;
        for (class, step) in &queued.steps {
            self.plan.withdraw(queued.queue, *class, step);
        }
    }

    /// All layers stand where their jobs put them.
    fn end_turns(&mut self) {
        for id in std::mem::take(&mut self.turned) {
            if let Some(queued) = self.layers.get_mut(&id) {
                queued.turn_frames = 0;
            }
            self.stand_in(id, 0);
        }
    }

    /// The layer stands in its queue as in this turn of the pass.
    fn stand_in(&mut self, id: JobId, turn: i32) {
        let Some(queued) = self.layers.get_mut(&id) else { return };
        if queued.turn == turn {
            return;
        }
        let is_listed = queued.is_listed;
        let steps = self.rules.order.steps(&queued.layer, id, queued.steps.len(), turn);
        queued.turn = turn;
        for ((class, step), new) in queued.steps.iter_mut().zip(steps) {
            let old = std::mem::replace(step, new);
            if is_listed && old != new {
                // The new place first: a queue that is empty for a moment would lose its turn.
                self.plan.enlist(queued.queue, *class, new);
                self.plan.withdraw(queued.queue, *class, &old);
            }
        }
    }

    /// A frame of the layer was placed. One that has had its frames lets others go first.
    fn count_turn(&mut self, id: JobId) {
        let Some((frames_max, queued)) = self.rules.layer_frames_max.zip(self.layers.get_mut(&id)) else {
            return;
        };
        if queued.turn_frames == 0 && queued.turn == 0 {
            self.turned.push(id);
        }
        queued.turn_frames += 1;
        if queued.turn_frames >= frames_max {
            queued.turn_frames = 0;
            let turn = queued.turn.saturating_add(1);
            self.stand_in(id, turn);
        }
    }

    fn drop_layer(&mut self, id: JobId) {
        self.withdraw(id);
        let Some(queued) = self.layers.remove(&id) else { return };
        self.layer_ids.remove(&queued.layer.id);
        for (class, step) in queued.steps {
            self.plan.forget_step(step.step(), class, true);
        }
    }

    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Work for Planning {
    type Out = Vec<Placement>;

    fn plan(&self) -> &Planner {
        &self.plan
    }

    fn plan_mut(&mut self) -> &mut Planner {
        &mut self.plan
    }

    fn facts(&self, step: StepKey) -> Option<StepFacts<'_>> {
        let queued = self.layers.get(&step.job)?;
        let (class, _) = queued.steps.get(step.step as usize)?;
        Some(StepFacts {
            class: *class,
            first_ready: (queued.left > 0).then_some(0),
            ready: queued.left,
            ready_since: Time(u64::try_from(queued.layer.submitted_us).unwrap_or(0).saturating_mul(1_000)),
            dependents: 0.0,
            profile: step.job.0,
            reads: &self.reads,
            hints: &self.hints,
            avoids: None,
            mean_ms: queued.layer.mean_s.map(|mean_s| mean_s * 1e3),
            prediction: None,
            time_limit_ms: queued.layer.timeout_s.map(|s| s * 1_000),
        })
    }

    fn is_limit_reached(&self, class: &Class) -> bool {
        let Some(kind) = self.caps.first_reached(class) else { return false };
        *self.capped.borrow_mut().entry(kind).or_default() += 1;
        true
    }

    fn is_left_to_others(&self, class: &Class, worker: WorkerId) -> bool {
        self.yields.leaves(class, worker)
    }

    fn running(&self, task: TaskId) -> Option<RunningTask<'_>> {
        let Running { request, began, due } = self.running.get(&task)?;
        Some(RunningTask { request, limits: &self.no_limits, began: *began, due: *due, ends_by: *due })
    }

    fn book(&mut self, booking: &plan::Booking, filter: &mut RoundFilter, out: &mut Vec<Placement>) -> usize {
        let (id, step) = (booking.queued_step.job(), booking.queued_step.step());
        let (Some(queued), Some(host)) = (self.layers.get_mut(&id), self.hosts.get(&booking.worker)) else {
            return 0;
        };
        let Some(class) = queued.classes.get(step.step as usize) else { return 0 };
        let Some(worker) = self.plan.workers.get(booking.worker) else { return 0 };
        let idle = (i64::from(worker.free().cpu), kib(worker.memory_room()));
        let least = i64::from(class.request.cpu);
        let allowed = self.caps.allowed(class, &queued.layer.show, &host.alloc);
        let cores = amounts::cores(&queued.layer, host, least, idle, allowed, &self.rules.amounts);
        let extra = narrow(cores - least);
        queued.left -= 1;
        let is_last = queued.left == 0;
        self.placed += 1;
        // No proc of the snapshot has such a number.
        let task = TaskId { job: id, index: self.placed };
        let held = HeldAmounts { request: &class.request, headroom_bytes: 0, expected_ms: 0.0, rides: false };
        self.plan.take(booking, task, id.0, &held);
        if extra > 0 {
            self.plan.workers.update(booking.worker, |worker| worker.booked.widen(step, extra));
            self.plan.queues.recount(booking.queue, 0, extra);
        }
        // Shares are of cores and time. Otherwise a show of long frames would get more than its part.
        let cost = cores as f64 * queued.layer.mean_s.unwrap_or(UNKNOWN_FRAME_S).max(1.0);
        self.plan.queues.charge(booking.queue, (cost as u64).max(1), filter);
        out.push(Placement {
            layer: queued.layer.id.clone(),
            host: host.id.clone(),
            amounts: amounts_of(&queued.layer, cores),
        });
        let class = class.clone();
        let show = queued.layer.show.clone();
        self.caps.take(&class, (cores, queued.layer.gpus_min), (&show, &host.alloc));
        self.caps.block_full_subscriptions(&mut self.plan.workers, &self.hosts);
        if is_last {
            self.withdraw(id);
        }
        self.count_turn(id);
        1
    }
}

fn is_of_size(need: &Need, worker: &Worker) -> bool {
    need.key != SIZE || need.met_by(&worker.record.attributes)
}

/// The reason why a frame cannot run on a host, in OpenCue's words.
fn host_reason(reason: &Ineligible) -> String {
    match reason {
        Ineligible::Attribute(need) => match need.key.as_str() {
            "alloc" => "not in an allocation that the show subscribes to".to_owned(),
            "facility" => "of another facility than the job".to_owned(),
            "tag" => {
                let tags: Vec<&str> = need.any_of.iter().map(String::as_str).collect();
                format!("has none of the layer's tags: {}", tags.join(", "))
            }
            "os" => {
                let oses: Vec<&str> = need.any_of.iter().map(String::as_str).collect();
                format!("has another operating system than {}", oses.join(", "))
            }
            RQD => "a Windlass worker, and 'windlass.workers.users' leaves out the job's user".to_owned(),
            _ => "takes only threadable frames".to_owned(),
        },
        Ineligible::NotTarget => "a limit counts hosts, and this one would be one more".to_owned(),
        Ineligible::Limit { .. } => "the show is at its burst in the host's allocation".to_owned(),
        other => other.to_string(),
    }
}

/// The reason of a cap that is reached, from the name of the cap.
fn cap_reason(cap: &str) -> String {
    match cap.split_once(' ') {
        Some(("job", _)) => "the job has all cores or gpus that it may have".to_owned(),
        Some(("folder", _)) => "the job's folder has all cores or gpus that it may have".to_owned(),
        Some(("limit", name)) => format!("the limit {name} has none left"),
        _ => cap.to_owned(),
    }
}

/// The classes of a layer's frames: one, or one for each size of host where a frame asks for all cores of one. None
/// where no host can fit.
fn classes_of(layer: &Layer, snapshot: &Snapshot, sizes: &BTreeSet<i64>) -> Vec<Class> {
    let allocs = snapshot.subscriptions.iter().filter(|s| s.show == layer.show && s.burst > 0);
    let allocs: BTreeSet<String> = allocs.map(|s| s.alloc.clone()).collect();
    // An empty list of values would ask for nothing.
    if allocs.is_empty() || layer.tags.is_empty() {
        return Vec::new();
    }
    let need = |key: &str, any_of: BTreeSet<String>| Need { key: key.to_owned(), any_of };
    let mut needs = vec![
        need("alloc", allocs),
        need("facility", BTreeSet::from([layer.facility.clone()])),
        need("tag", layer.tags.clone()),
    ];
    if !layer.oses.is_empty() {
        needs.push(need("os", layer.oses.clone()));
    }
    if !layer.is_threadable {
        needs.push(need("single_threaded", BTreeSet::new()));
    }
    if layer.needs_rqd {
        needs.push(need(RQD, BTreeSet::new()));
    }
    let class = |cores: i64, needs: Vec<Need>| Class {
        request: resources(amounts_of(layer, cores)),
        needs,
        ..Class::default()
    };
    if layer.cores_min > 0 {
        return vec![class(layer.cores_min, needs)];
    }
    let mut classes = Vec::new();
    for size in sizes {
        if let Some(cores) = amounts::least(layer, *size) {
            let mut needs = needs.clone();
            needs.push(need(SIZE, BTreeSet::from([size.to_string()])));
            classes.push(class(cores, needs));
        }
    }
    classes
}

/// True if two states of a host differ in nothing but idle amounts.
fn is_same_machine(a: &Host, b: &Host) -> bool {
    (&a.name, &a.alloc, &a.facility, &a.oses, &a.tags, a.is_worker)
        == (&b.name, &b.alloc, &b.facility, &b.oses, &b.tags, b.is_worker)
        && (a.thread_mode, a.size) == (b.thread_mode, b.size)
}

fn attributes_of(host: &Host) -> Attributes {
    let one = |value: &str| BTreeSet::from([value.to_owned()]);
    let mut attributes = Attributes::from([
        ("alloc".to_owned(), one(&host.alloc)),
        ("facility".to_owned(), one(&host.facility)),
        ("tag".to_owned(), host.tags.clone()),
        ("os".to_owned(), host.oses.clone()),
        (SIZE.to_owned(), one(&host.size.cores.to_string())),
    ]);
    if host.thread_mode != THREADS_ALL {
        attributes.insert("single_threaded".to_owned(), BTreeSet::new());
    }
    if !host.is_worker {
        attributes.insert(RQD.to_owned(), BTreeSet::new());
    }
    attributes
}

/// What a frame of a layer gets with these cores.
fn amounts_of(layer: &Layer, cores: i64) -> Amounts {
    let Layer { mem_min_kib, gpus_min, gpu_mem_min_kib, .. } = layer;
    Amounts { cores, mem_kib: *mem_min_kib, gpus: *gpus_min, gpu_mem_kib: *gpu_mem_min_kib }
}

/// Amounts of the tables in the units of the planner.
fn resources(amounts: Amounts) -> Resources {
    Resources {
        cpu: narrow(amounts.cores),
        memory: bytes(amounts.mem_kib),
        gpus: narrow(amounts.gpus),
        gpu_memory: bytes(amounts.gpu_mem_kib),
        ..Resources::default()
    }
}

fn narrow(amount: i64) -> u32 {
    u32::try_from(amount.max(0)).unwrap_or(u32::MAX)
}

fn bytes(kib: i64) -> u64 {
    u64::try_from(kib).unwrap_or(0).saturating_mul(KIB)
}

fn kib(bytes: u64) -> i64 {
    i64::try_from(bytes / KIB).unwrap_or(i64::MAX)
}
