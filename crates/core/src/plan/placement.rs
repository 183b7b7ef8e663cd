//! What fits where, and where it fits best: pure functions over workers, the same for all three ways that
//! work and machines meet, and the same predicates that [`explain`](crate::explain) counts.
//!
//! - [`place_task`]: a task looks for a worker.
//! - [`pick_for_worker`]: a worker that was found is offered the queue's other tasks.
//!
//! A worker that a rule vetoes is not a candidate, whatever its points. Among candidates the most points win, then the
//! least load (or the fullest worker, where workers are to be filled), then the name.

use crate::bounds;
use crate::cache_keys::{self, Missing, MissingMemo, Reads};
use crate::class::Class;
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::queues::{Queues, behind_build};
use crate::resources::{Bytes, Cpus, Resources, Short};
use crate::score::context::{InstanceContext, JobContext, Pair, WorkerContext};
use crate::score::policy::{FREE_MEMORY, ScoringPolicy, Verdict};
use crate::score::rule::{CORES_IN_USE, CORES_IN_USE_BESIDE_CLIENTS, MEMORY_IN_USE, MEMORY_SHORT};
use crate::score::weights;
use crate::tags::{GPUS_LATE, Need, asks_executor};
use crate::time::{NS_PER_MS, Time};
use crate::worker::{Build, Fault, Worker, WorkerState};
use crate::workers::{ListedWorker, WorkerSummary, Workers};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, iter};

/// Why a worker does not get a task, most lasting reason first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Ineligible {
    /// The step names other workers.
    NotTarget,
    /// It is another system's executor, and the step is not for that.
    Executor,
    /// It is for other queues alone.
    OtherQueues(BTreeSet<String>),
    /// An attribute is absent or has another value.
    Attribute(Need),
    /// The step needs GPUs, and the worker does not know yet which it has.
    GpusLate,
    /// Even an empty worker is too small.
    TooSmall(Short),
    /// It could run a task, and the farm never has room for all that start together with it.
    TooFew {
        /// How many start together.
        tasks: u32,
        /// How many of these could run at a time if all workers were empty.
        could: u32,
    },
    /// It has been silent for too long.
    Suspect,
    /// Told to take nothing new, with the operator's note.
    Draining(Option<String>),
    /// In quarantine because of its tasks, until then.
    Quarantined { until: Time, fault: Fault },
    /// Too little is free in one of its directories.
    LowSpace {
        directory: &'static str,
        /// Bytes that are free.
        free: u64,
        /// Bytes that must be free before it gets work again.
        needs: u64,
    },
    /// Held by pressure on this: `cpu`, `memory` or `io`.
    UnderPressure(&'static str),
    /// Its network is in use, and the step is network-bound.
    NetworkInUse,
    /// Its tasks hold all of a limit that a worker may.
    Limit {
        name: String,
        /// How many a worker may.
        max: u32,
    },
    /// Other tasks hold what it needs.
    Busy(Short),
    /// Other programs hold the memory that it needs.
    Foreign(Short),
    /// Reserved for tasks of another class, whose start this one could delay.
    Reserved(ClassId),
    /// It would take cpus that a build uses, and whose turn comes first.
    BuildTurn(BuildTurn),
    /// A rule of the scoring policy vetoes the pair.
    Vetoed { rule: &'static str, reason: &'static str },
}

/// A build that uses cpus of a worker in its turn.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BuildTurn {
    /// The worker on which it runs.
    pub worker: WorkerId,
    /// The task with the jobserver.
    pub task: TaskId,
    /// Hundredths of a core that it has there.
    pub cpu: u32,
    /// The name of its job, for people; a round leaves it empty.
    pub job: String,
    /// The name of its queue, likewise.
    pub queue: String,
}

impl fmt::Display for BuildTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BuildTurn { task, cpu, job, queue, .. } = self;
        let cpus = if *cpu == 100 { "cpu" } else { "cpus" };
        write!(f, "job {} ({job}, queue {queue}) uses {} {cpus} in its turn", task.job, Cpus((*cpu).into()))
    }
}

impl Ineligible {
    /// True where no end of other tasks helps.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Ineligible::NotTarget
                | Ineligible::Executor
                | Ineligible::OtherQueues(_)
                | Ineligible::Attribute(_)
                | Ineligible::GpusLate
                | Ineligible::TooSmall(_)
                | Ineligible::TooFew { .. }
        )
    }

    /// What is in use, where a rule vetoes the worker for that: the veto lasts until the use ends.
    pub fn vetoed_use(&self) -> Option<VetoedUse> {
        match self {
            Ineligible::Vetoed { reason: CORES_IN_USE | CORES_IN_USE_BESIDE_CLIENTS, .. } => {
                Some(VetoedUse::Cores)
            }
            Ineligible::Vetoed { reason: MEMORY_IN_USE | MEMORY_SHORT, .. } => Some(VetoedUse::Memory),
            _ => None,
        }
    }
}

/// What is in use on a worker that has room, so that a rule vetoes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VetoedUse {
    /// Other programs use its cores.
    Cores,
    /// Its tasks and other programs use its memory.
    Memory,
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ineligible::NotTarget => write!(f, "the step names other workers"),
            Ineligible::Executor => write!(f, "takes only the work of another system"),
            Ineligible::OtherQueues(queues) => {
                let names: Vec<&str> = queues.iter().map(String::as_str).collect();
                let noun = if names.len() == 1 { "queue" } else { "queues" };
                write!(f, "takes only the work of {noun} {}", names.join(", "))
            }
            Ineligible::Attribute(need) => write!(f, "lacks {need}"),
            Ineligible::GpusLate => {
                write!(f, "does not know its gpus yet, because nvidia-smi has not answered")
            }
            Ineligible::TooSmall(short) if short.is_closed() => {
                write!(f, "gives no places for a while, because it did not take jobs")
            }
            Ineligible::TooSmall(short) => write!(f, "too small, {short}"),
            Ineligible::TooFew { tasks, could } => {
                write!(f, "{tasks} tasks start together, and the empty farm has room for {could} of them")
            }
            Ineligible::Suspect => write!(f, "not heard from"),
            Ineligible::Draining(None) => write!(f, "draining"),
            Ineligible::Draining(Some(note)) => write!(f, "draining: {note}"),
            Ineligible::Quarantined { fault, .. } => write!(f, "in quarantine: {fault}"),
            Ineligible::LowSpace { directory, free, needs } => {
                let (free, needs) = (Bytes(*free), Bytes(*needs));
                write!(f, "its {directory} directory has {free} free, and needs {needs}")
            }
            Ineligible::UnderPressure(what) => write!(f, "under {what} pressure"),
            Ineligible::NetworkInUse => write!(f, "its network is in use, and the step is network-bound"),
            Ineligible::Limit { name, max: 1 } => {
                write!(f, "its tasks hold the one of the limit '{name}' that one worker may hold")
            }
            Ineligible::Limit { name, max } => {
                write!(f, "its tasks hold all {max} of the limit '{name}' that one worker may hold")
            }
            Ineligible::Busy(short) => write!(f, "busy, {short}"),
            Ineligible::Foreign(short) => write!(f, "something else holds what it needs, {short}"),
            Ineligible::Reserved(_) => write!(f, "reserved for work that has waited long"),
            Ineligible::BuildTurn(build) => write!(f, "{build}"),
            Ineligible::Vetoed { reason, .. } => write!(f, "ruled out for now: {reason}"),
        }
    }
}

/// All that rules the worker out for the class; with `now`, what others hold and its state count too.
/// Lazy: a caller that wants a yes or no stops at the first.
pub fn ineligibilities<'a>(
    class: &'a Class,
    worker: &'a Worker,
    now: bool,
) -> impl Iterator<Item = Ineligible> + 'a {
    let target = class.targets.is_empty() || class.targets.contains(&*worker.record.name);
    let executor = worker.flags.class.is_exclusive && !class.suits_exclusive();
    let executor = executor.then_some(Ineligible::Executor);
    let queues = worker.for_queues().filter(|queues| !class.suits_queues(Some(queues)));
    let queues = queues.map(|queues| Ineligible::OtherQueues(queues.clone()));
    let target = (!target).then_some(Ineligible::NotTarget).into_iter().chain(executor).chain(queues);
    let needs = class.needs.iter().filter(|need| !need.met_by(&worker.record.attributes));
    let needs = needs.map(|need| Ineligible::Attribute(need.clone()));
    let small = class.shorts(&worker.record.capacity).map(move |short| match &*short.resource {
        "gpus" | "gpu_memory" if worker.record.attributes.contains_key(GPUS_LATE) => Ineligible::GpusLate,
        _ => Ineligible::TooSmall(short),
    });
    let busy = iter::once_with(|| worker.room()).flat_map(|room| {
        let shorts: Vec<Short> = class.shorts(&room).collect();
        // What is too small when empty is said above.
        let shorts = shorts.into_iter().filter(|s| s.need <= amount(&worker.record.capacity, &s.resource));
        shorts.map(|short| {
            let free = amount(&worker.free(), &short.resource);
            let expected = if short.resource == "memory" { worker.booked.headroom_bytes() } else { 0 };
            let ours = short.need > free.saturating_sub(expected);
            if ours { Ineligible::Busy(short) } else { Ineligible::Foreign(short) }
        })
    });
    let full = worker.licences.full().filter(|(name, _)| class.limits.contains(*name));
    let full = full.map(|(name, max)| Ineligible::Limit { name: name.to_owned(), max });
    let is_counted = move |why: &Ineligible| !class.has_jobserver || *why != Ineligible::UnderPressure("cpu");
    let blockers = worker_blockers(worker).filter(is_counted);
    target.chain(needs).chain(small).chain(blockers.chain(full).chain(busy).filter(move |_| now))
}

/// Why a worker gets no work at all.
pub fn worker_blockers(worker: &Worker) -> impl Iterator<Item = Ineligible> + '_ {
    let state = match worker.record.state {
        WorkerState::Up => None,
        WorkerState::Draining => Some(Ineligible::Draining(worker.record.note.clone())),
        WorkerState::Suspect | WorkerState::Expired | WorkerState::Forgotten => Some(Ineligible::Suspect),
    };
    let out = worker.health.out().map(|(until, fault)| Ineligible::Quarantined { until, fault });
    let saturated = worker.reported.saturated();
    let pressures = [("memory", saturated.memory), ("io", saturated.io), ("cpu", saturated.cpu)];
    let held = !worker.takes_work();
    let pressures = pressures.into_iter().filter(move |(_, by)| held && *by);
    let pressures = pressures.map(|(what, _)| Ineligible::UnderPressure(what));
    state.into_iter().chain(out).chain(low_spaces(worker)).chain(pressures)
}

/// The worker's directories in which too little is free.
fn low_spaces(worker: &Worker) -> impl Iterator<Item = Ineligible> {
    let spaces = worker.reported.load().map(|report| {
        let (mut needs, has) = (worker.reported.saturated(), report);
        // Mostly they are one file system, and one reason is enough.
        if needs.state.is_some() && has.state_space == has.session_space {
            needs.session = None;
        }
        [("state", needs.state, has.state_space), ("session", needs.session, has.session_space)]
    });
    spaces.into_iter().flatten().filter_map(|(directory, needs, space)| {
        Some(Ineligible::LowSpace { directory, free: space?.free_bytes, needs: needs? })
    })
}

fn amount(of: &Resources, name: &str) -> u64 {
    match name {
        "cpu" => of.cpu.into(),
        "memory" => of.memory,
        "gpus" => of.gpus.into(),
        "gpu_memory" => of.gpu_memory,
        custom => of.custom.get(custom).copied().unwrap_or(0),
    }
}

/// True if the worker could run the class when it is empty and gets work: nothing lasting rules it out. Says
/// what [`ineligibilities`] says, and makes no reasons.
pub fn eligible_when_idle(class: &Class, worker: &Worker) -> bool {
    class.request.fits(&worker.record.capacity)
        && (!worker.flags.class.is_exclusive || class.suits_exclusive())
        && class.suits_queues(worker.for_queues())
        && (class.targets.is_empty() || class.targets.contains(&*worker.record.name))
        && class.needs.iter().all(|need| need.met_by(&worker.record.attributes))
}

/// True if the worker can take a task of the class now: nothing rules it out, as [`ineligibilities`] says it. What
/// fails most often is asked first.
pub fn fits_now(class: &Class, worker: &Worker) -> bool {
    let takes = if class.has_jobserver { worker.takes_builds() } else { worker.takes_work() };
    worker.has_room(&class.request)
        && takes
        && worker.licences.first_full(&class.limits).is_none()
        && eligible_when_idle(class, worker)
}

/// The same of a listed worker, of which mostly the summary is enough.
fn listed_fits_now(class: &Class, listed: &ListedWorker) -> bool {
    let (summary, worker) = (listed.summary(), listed.worker());
    let fits = summary.has_room(class) && (summary.suffices_for(class) || fits_now(class, worker));
    debug_assert_eq!(fits, fits_now(class, worker), "{}", worker.record.name);
    fits
}

/// True if the worker can take a task of the class now, or one of those that start with it.
pub fn takes_part_now(class: &Class, worker: &Worker) -> bool {
    class.parts().any(|part| fits_now(part, worker))
}

/// True if the worker could run a task of the class when it is empty, or one of those that start with it.
pub fn could_take_part(class: &Class, worker: &Worker) -> bool {
    class.parts().any(|part| eligible_when_idle(part, worker))
}

/// A step of which a task looks for a worker.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// The step whose next task is placed.
    pub step: StepKey,
    /// The class under which workers are reserved for it.
    pub class_id: ClassId,
    /// What its tasks require of a worker.
    pub class: &'a Class,
    /// The band of its queue.
    pub band: u8,
    /// What rules see of it.
    pub job: JobContext,
    /// What it reads from caches.
    pub reads: &'a Reads,
    /// The number of its signature, by which the warmth of workers counts.
    pub profile: u64,
    /// The worker on which its tasks failed the last time: they wait for another one that could run them, as long
    /// as one takes work.
    pub avoids: Option<WorkerId>,
    /// Milliseconds that a task runs at most; see [`StepFacts::longest_ms`](super::StepFacts::longest_ms).
    pub longest_ms: Option<f64>,
    /// Other steps want room too.
    pub others_wait: bool,
    /// What ran on a worker counts for it. It does not for tasks that share no inputs, which would crowd on one worker while
    /// others are idle.
    pub locality: bool,
    /// Workers that it waits for a little before it goes elsewhere, by name; empty is none.
    pub prefers: &'a BTreeSet<String>,
    /// Its turn at cpus that builds use; `None` takes no notice of builds.
    pub turn: Option<CpuTurn<'a>>,
}

/// The turn of a step at cpus that builds use.
#[derive(Clone, Copy, Debug)]
pub struct CpuTurn<'a> {
    /// All queues, with what each has had.
    pub queues: &'a Queues,
    /// The part of a queue in which the step stands.
    pub part: QueueId,
    /// Hundredths of a core: what a task takes, or what an earlier step of the part that waits for its turn would, if that
    /// is more. Otherwise narrow tasks would take each turn that a wide one before them waits for.
    pub cpu: u32,
}

impl PlacementRequest<'_> {
    /// The load of a worker with one more task of the step. A task with a jobserver books little and uses its share of
    /// what is left, so by its booking many of them would crowd on one worker.
    pub(super) fn load_on(&self, summary: &WorkerSummary) -> f64 {
        if self.job.has_jobserver {
            summary.load_with_jobserver()
        } else {
            summary.load_with(self.class.request.cpu)
        }
    }
}

/// A worker reserved for a class.
#[derive(Clone, PartialEq, Debug)]
pub struct Reservation {
    /// The class for which it is reserved.
    pub class: ClassId,
    /// The highest band in which the class waits. Work of higher bands ignores the reservation.
    pub band: u8,
    /// When enough of it will be free; `None` is unknown.
    pub starts: Option<Time>,
    /// What will be free there beside the holder's task. What fits into it never delays the holder.
    pub spare: Resources,
}

impl Reservation {
    /// True if a task that starts now and ends by then at the latest still runs when the holder could start.
    pub fn is_met_by(&self, ends: Option<Time>) -> bool {
        ends.zip(self.starts).is_none_or(|(ends, starts)| ends > starts)
    }
}

/// What a choice is made among, and by.
#[derive(Clone, Copy)]
pub struct MatchContext<'a> {
    /// The time of the round.
    pub now: Time,
    /// The workers of the farm, with the index of their room.
    pub workers: &'a Workers,
    /// Those that are reserved.
    pub reserved: &'a BTreeMap<WorkerId, Reservation>,
    /// How pairs are judged.
    pub policy: &'static dyn ScoringPolicy,
    /// What rules see of the farm.
    pub instance: &'a InstanceContext,
    /// What workers lack, as far as it was looked up before.
    pub known: Option<&'a RefCell<MissingMemo>>,
    /// Mean bytes of a key in workers' caches.
    pub key_bytes: Option<u64>,
}

/// A worker as it was judged for a task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScoredWorker {
    /// The worker that was scored.
    pub worker: WorkerId,
    /// Its points; more is better.
    pub score: f64,
    /// Its load with the task.
    pub load: f64,
}

/// Where a task goes.
#[derive(Clone, PartialEq, Debug)]
pub enum PlacementOutcome {
    /// The best worker, and the next best behind it.
    Best(Vec<ScoredWorker>),
    /// No worker has room for the class.
    NoRoom,
    /// A rule vetoes the step on each worker with room: the first veto, and how many workers were judged.
    Vetoed(Ineligible, u32),
}

impl MatchContext<'_> {
    /// What keeps a task of the step off a worker that has room for its class, or how it is judged there.
    pub fn judge(&self, request: &PlacementRequest, worker: &Worker) -> Result<ScoredWorker, Ineligible> {
        let summary = WorkerSummary::of(worker, self.workers.load_settings());
        self.judge_by(request, worker, &summary, &mut None)
    }

    /// The same of a worker whose `summary` is known. `before` is the pair with the same step that was judged before, and
    /// its verdict: most workers of a farm are alike.
    fn judge_by<'a>(
        &'a self,
        request: &'a PlacementRequest,
        worker: &Worker,
        summary: &'a WorkerSummary,
        before: &mut Option<(Pair<'a>, Verdict)>,
    ) -> Result<ScoredWorker, Ineligible> {
        if let Some(build) = build_before(request, worker) {
            return Err(Ineligible::BuildTurn(build));
        }
        let reserved = self.reserved.get(&worker.record.id);
        if let Some(reserved) = reserved.filter(|r| r.class != request.class_id && r.band >= request.band)
            && !request.class.request.fits(&reserved.spare)
            && reserved.is_met_by(request.longest_ms.map(|ms| self.now.after((ms * NS_PER_MS as f64) as u64)))
        {
            return Err(Ineligible::Reserved(reserved.class));
        }
        if !request.prefers.is_empty()
            && request.job.waited_ms < weights::PREFERRED_HOLD_MS
            && !request.prefers.contains(&*worker.record.name)
        {
            let reason = "a worker that it prefers may become free";
            return Err(Ineligible::Vetoed { rule: "PreferredWorkers", reason });
        }
        if request.job.network_bound
            && worker.reported.saturated().network
            && (!worker.booked.is_idle() || self.has_free_network(request.class))
        {
            return Err(Ineligible::NetworkInUse);
        }
        if request.avoids == Some(worker.record.id) && self.has_other(request.class, worker.record.id) {
            return Err(Ineligible::Vetoed { rule: "retry", reason: "the task failed there the last time" });
        }
        let (load, context) = (request.load_on(summary), summary.context());
        let policy = self.policy_for(request);
        let verdict = if summary.only_lends() {
            let mut context = *context;
            context.memory_free =
                context.memory_free.map(|free| free.saturating_add(request.class.request.memory));
            context.booked.memory = 0;
            policy.score(&self.pair(request, worker, &context, load))
        } else {
            let pair = self.pair(request, worker, context, load);
            match before {
                Some((known, verdict)) if known.is_of_like_worker(&pair) => *verdict,
                _ => {
                    let verdict = policy.score(&pair);
                    *before = Some((pair, verdict));
                    verdict
                }
            }
        };
        match verdict {
            Verdict::Score(score) => Ok(ScoredWorker { worker: worker.record.id, score, load }),
            Verdict::Vetoed { rule, reason } => Err(Ineligible::Vetoed { rule, reason }),
        }
    }

    /// True if another worker takes work and could run the class.
    pub(crate) fn has_other(&self, class: &Class, but: WorkerId) -> bool {
        let could = |worker: &Worker| {
            worker.record.id != but && worker.takes_work() && eligible_when_idle(class, worker)
        };
        if class.targets.is_empty() {
            return self.workers.present().any(could);
        }
        class.targets.iter().filter_map(|name| self.workers.by_name(name)).any(could)
    }

    /// True if a worker whose network is not in use takes work and could run the class. Where there is none,
    /// network-bound work goes on with one task at a time on each worker, as all work does under pressure.
    fn has_free_network(&self, class: &Class) -> bool {
        self.workers.present().any(|worker| {
            !worker.reported.saturated().network && worker.takes_work() && eligible_when_idle(class, worker)
        })
    }

    /// How pairs with the step are judged: what is for another system's executors goes by free memory.
    pub fn policy_for(&self, request: &PlacementRequest) -> &'static dyn ScoringPolicy {
        if asks_executor(&request.class.needs) { FREE_MEMORY } else { self.policy }
    }

    /// What the step reads and the worker lacks; `None` of one that has not said what its caches hold.
    pub fn missing(&self, request: &PlacementRequest, worker: &Worker) -> Option<Missing> {
        if request.reads.is_empty() {
            return Some(Missing::default());
        }
        let held = worker.reported.caches()?;
        let Some(known) = self.known else {
            return Some(cache_keys::missing(request.reads, held, self.key_bytes));
        };
        let pair = (request.step, worker.record.id);
        Some(known.borrow_mut().missing(
            pair,
            worker.reported.caches_version(),
            request.reads,
            held,
            self.key_bytes,
        ))
    }

    /// The pair as rules see it.
    pub fn pair<'a>(
        &'a self,
        request: &'a PlacementRequest,
        worker: &Worker,
        context: &'a WorkerContext,
        load: f64,
    ) -> Pair<'a> {
        Pair {
            job: &request.job,
            worker: context,
            instance: self.instance,
            missing: self.missing(request, worker),
            step_cpu: if request.locality {
                worker.booked.steps().get(&request.step).copied().unwrap_or(0)
            } else {
                0
            },
            warmth: if request.locality { worker.warmth.of(&request.profile) } else { 0.0 },
            others_wait: request.others_wait,
            load,
        }
    }
}

/// A build of the worker that would have less with a task of the step there, and whose turn comes first.
fn build_before(request: &PlacementRequest, worker: &Worker) -> Option<BuildTurn> {
    let (builds, worker_cpu) = (worker.booked.jobservers(), worker.record.capacity.cpu);
    if builds.is_empty() || request.job.has_jobserver || worker.booked.only_lends() {
        return None;
    }
    let turn = request.turn.filter(|turn| turn.cpu > 0)?;
    let others_cpu = worker.booked.sum().cpu.saturating_sub(worker.booked.of_jobservers_cpu());
    let shared_cpu = u64::from(worker_cpu.saturating_sub(others_cpu));
    let left_cpu = shared_cpu.saturating_sub(turn.cpu.into());
    let use_of = |build: &Build| u64::from(build.use_cpu(worker_cpu).unwrap_or(0));
    if builds.values().map(use_of).sum::<u64>() <= left_cpu {
        return None;
    }
    let weights: u64 = builds.values().map(|build| u64::from(build.weight)).sum();
    let (task, build) = builds.iter().find(|&(_, build)| {
        // One process always runs. What has enough by its weight loses nothing.
        let (uses, weight) = (use_of(build), u64::from(build.weight));
        uses > 100
            && uses * weights > left_cpu * weight
            && behind_build(turn.queues, turn.part, build.queue, turn.cpu).is_some()
    })?;
    let part_cpu = shared_cpu * u64::from(build.weight) / weights.max(1);
    let cpu = u32::try_from(part_cpu.min(use_of(build)).max(100)).unwrap_or(u32::MAX);
    let (job, queue) = (String::new(), String::new());
    Some(BuildTurn { worker: worker.record.id, task: *task, cpu, job, queue })
}

/// The worker for a task of the step, among these where some are named.
pub fn place_task(
    request: &PlacementRequest,
    context: &MatchContext,
    among: Option<&[WorkerId]>,
) -> PlacementOutcome {
    search(request, context, among).0
}

/// The same, and how many workers with room were judged.
pub(super) fn search(
    request: &PlacementRequest,
    context: &MatchContext,
    among: Option<&[WorkerId]>,
) -> (PlacementOutcome, u32) {
    let Ranking { mut ranked, held, looks } = rank(request, context, among, 1);
    if ranked.is_empty() {
        let outcome = held.map_or(PlacementOutcome::NoRoom, |why| PlacementOutcome::Vetoed(why, looks));
        return (outcome, looks);
    }
    ranked.truncate(bounds::RANKED_MAX);
    (PlacementOutcome::Best(ranked), looks)
}

/// Workers with room for a step, as they were judged.
pub(super) struct Ranking {
    /// Those that may have a task of it, best first: as many as are wanted and some more.
    pub(super) ranked: Vec<ScoredWorker>,
    /// The first reason that keeps it off a worker with room.
    pub(super) held: Option<Ineligible>,
    /// How many workers with room were judged.
    pub(super) looks: u32,
}

/// Judges workers for a step of which `wanted` tasks go to different workers.
pub(super) fn rank(
    request: &PlacementRequest,
    context: &MatchContext,
    among: Option<&[WorkerId]>,
    wanted: usize,
) -> Ranking {
    let saturation = context.workers.index().saturation();
    // Among equals, what is taken first: rising.
    let tie = |worker: &Worker, load: f64| match (saturation.memory, saturation.cores) {
        // The policy has ranked them by memory already; then the name decides.
        _ if worker.flags.class.most_memory_first => 0.0,
        // Its share is least on the fullest worker.
        _ if request.job.has_jobserver => load,
        (true, _) => worker.memory_room() as f64,
        (false, true) => f64::from(worker.free().cpu),
        (false, false) => load,
    };
    let order = |a: &(ScoredWorker, f64, &str), b: &(ScoredWorker, f64, &str)| {
        b.0.score.total_cmp(&a.0.score).then(a.1.total_cmp(&b.1)).then(a.2.cmp(b.2))
    };
    let most = wanted.max(bounds::RANKED_MAX);
    // Best first. Candidates come nearly in this order.
    let mut ranked: Vec<(ScoredWorker, f64, &str)> = Vec::with_capacity(most.min(context.workers.len()) + 1);
    let (mut held, mut looks, mut before) = (None, 0, None);
    let mut consider = |id: WorkerId| {
        let listed = context.workers.listed(id).filter(|listed| listed_fits_now(request.class, listed));
        let Some(listed) = listed else { return false };
        looks += 1;
        let worker = listed.worker();
        match context.judge_by(request, worker, listed.summary(), &mut before) {
            Ok(judged) => {
                let judged = (judged, tie(worker, judged.load), &*worker.record.name);
                let is_last = ranked.last().is_none_or(|last| order(last, &judged).is_lt());
                let at = match is_last {
                    true => ranked.len(),
                    false => ranked.partition_point(|known| order(known, &judged).is_lt()),
                };
                if at < most {
                    ranked.truncate(most - 1);
                    ranked.insert(at, judged);
                }
                true
            }
            Err(reason) => {
                held.get_or_insert(reason);
                false
            }
        }
    };
    if let Some(among) = among {
        for id in among {
            consider(*id);
        }
    } else if request.class.targets.is_empty() {
        consider_all(request.class, context.workers, wanted, &mut consider);
    } else {
        // A step names few workers.
        for worker in request.class.targets.iter().filter_map(|name| context.workers.by_name(name)) {
            consider(worker.record.id);
        }
    }
    ranked.dedup_by_key(|(judged, ..)| judged.worker);
    Ranking { ranked: ranked.into_iter().map(|(ranked, ..)| ranked).collect(), held, looks }
}

/// Shows `consider` the workers that seem to have room for the class, until it has accepted as many as are `wanted`; one
/// on which all tasks wait may come twice.
fn consider_all(class: &Class, workers: &Workers, wanted: usize, consider: &mut dyn FnMut(WorkerId) -> bool) {
    let mut found = 0;
    workers.index().candidates(class, wanted, |id| {
        let is_accepted = consider(id);
        found += usize::from(is_accepted);
        is_accepted
    });
    // The index goes by the memory that is left, so it has not named those that have room only because all wait there.
    for id in workers.only_lending() {
        if found >= wanted {
            return;
        }
        let left = workers.get(id).map_or(0, Worker::memory_room);
        if left < class.request.memory {
            found += usize::from(consider(id));
        }
    }
}

/// The best of several steps for a worker that has room: the one with most points, then the first.
pub fn pick_for_worker<'a>(
    listed: &ListedWorker,
    asks: impl IntoIterator<Item = PlacementRequest<'a>>,
    context: &MatchContext,
) -> Option<(StepKey, f64)> {
    let mut best: Option<(StepKey, f64)> = None;
    for request in asks {
        if !listed_fits_now(request.class, listed) {
            continue;
        }
        let judged = context.judge_by(&request, listed.worker(), listed.summary(), &mut None);
        let Ok(judged) = judged else { continue };
        if best.is_none_or(|(_, score)| judged.score.total_cmp(&score).is_gt()) {
            best = Some((request.step, judged.score));
        }
    }
    best
}
