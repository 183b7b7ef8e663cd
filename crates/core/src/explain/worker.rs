//! Why a worker gets no work: the same predicates, asked of one worker and the steps whose turn comes first.

use super::reasons::over_quota;
use super::survey::judged;
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::job::QueuedStep;
use crate::plan::placement::{self, Ineligible, PlacementOutcome, PlacementRequest, ScoredWorker};
use crate::plan::{self, GangOutcome, Work};
use crate::time::Time;
use crate::worker::Worker;

/// Steps that are looked at: the first of each class, queue by queue in turn.
const STEPS_LOOKED_MAX: usize = 32;
/// Steps of which it is told what keeps the worker from them.
const STEPS_TOLD_MAX: usize = 5;
/// Workers of which [`vetoed_workers`] asks the rules. Each is judged for up to [`STEPS_LOOKED_MAX`] steps.
const VETO_LOOKS_MAX: usize = 64;
/// Decisions for others that are told.
const LOST_MAX: usize = 3;

/// Why a worker gets no work, or that it does.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerExplanation {
    /// The worker that is explained.
    pub worker: WorkerId,
    /// The one reason that counts.
    pub reason: WorkerReason,
    /// All for which it would get no work at all.
    pub worker_blockers: Vec<Ineligible>,
    /// For whom it is reserved.
    pub reserved: Option<ReservedFor>,
    /// Its load with one more task of one core.
    pub load: f64,
    /// Queues in which steps with ready tasks stand.
    pub waiting_queues: usize,
    /// The steps whose turn comes first, and what each is to the worker.
    pub steps: Vec<Passed>,
    /// The last tasks for which it was judged and another won.
    pub lost: Vec<Lost>,
}

/// The one reason that counts.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkerReason {
    /// It takes no work at all.
    Unfit(Ineligible),
    /// No task waits that may start.
    NothingWaits,
    /// A round gives it work.
    Turn,
    /// What waits and fits starts together with tasks for which other workers have too little room.
    Together,
    /// Others are better places for what waits.
    OthersPreferred,
    /// What waits and would fit is kept off by this: others' tasks, a reservation, a rule.
    Closed(Ineligible),
    /// The queues, licences or rules of what waits hold that back wherever it might go.
    HeldBack,
    /// Nothing that waits fits it, even when it is empty.
    FitsNone,
}

/// A reservation of a worker.
#[derive(Clone, PartialEq, Debug)]
pub struct ReservedFor {
    /// The first step of its class, while one waits.
    pub step: Option<StepKey>,
    /// Since when that waits.
    pub waits_since: Option<Time>,
    /// When it is expected to start there; `None` is unknown.
    pub starts: Option<Time>,
}

/// A step whose tasks wait, as it is to the worker.
#[derive(Clone, PartialEq, Debug)]
pub struct Passed {
    /// The step that was passed over.
    pub step: StepKey,
    /// How many of its tasks could start.
    pub tasks: u32,
    /// What it is to the worker.
    pub verdict: PassedVerdict,
}

/// What a step is to a worker.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum PassedVerdict {
    /// These keep it off.
    Unmet(Vec<Ineligible>),
    /// Its queue holds as much as it may.
    Quota,
    /// All licences of this name are taken.
    Limit(String),
    /// Another worker is a better place.
    Preferred {
        /// How it is judged there.
        best: ScoredWorker,
        here: ScoredWorker,
    },
    /// It starts together with others, and not all have a worker with room.
    Together {
        /// How many start together.
        tasks: u32,
        /// How many have one.
        placed: u32,
    },
    /// The next round starts it here.
    Turn,
}

/// A task for which the worker was judged and another won.
#[derive(Clone, PartialEq, Debug)]
pub struct Lost {
    /// The task that went elsewhere.
    pub task: TaskId,
    /// When that was decided.
    pub at: Time,
    /// The worker that got the task.
    pub winner: WorkerId,
    /// The points of that worker.
    pub winner_score: f64,
    /// The points of this worker.
    pub score: f64,
}

/// Explains why a worker of the farm gets no work; `None` if there is no such worker. Looks at a bounded
/// number of steps, those whose turn comes first.
pub fn worker(engine: &Engine, id: WorkerId) -> Option<WorkerExplanation> {
    let worker = engine.workers().get(id)?;
    let worker_blockers: Vec<Ineligible> = placement::worker_blockers(worker).collect();
    let mut steps: Vec<Passed> =
        heads(engine).filter_map(|(queue, head)| pass(engine, queue, head, worker)).collect();
    let reason = match worker_blockers.first() {
        Some(first) => WorkerReason::Unfit(first.clone()),
        None => reason_of(&steps),
    };
    // What is nearest to the reason is told first; the order of turns decides among the rest.
    steps.sort_by_key(|passed| rank(&passed.verdict));
    steps.truncate(STEPS_TOLD_MAX);
    Some(WorkerExplanation {
        worker: id,
        reason,
        worker_blockers,
        reserved: reservation_of(engine, id),
        load: worker.load_with(100, engine.workers().load_settings()),
        waiting_queues: engine.queues().waiting(),
        steps,
        lost: lost_by(engine, id),
    })
}

/// Workers that take work and have room, and on which a rule vetoes the first of what waits and would fit, with that veto:
/// nothing else that waits can start there. Looks at a bounded number of workers and of steps.
pub fn vetoed_workers(engine: &Engine) -> Vec<(WorkerId, Ineligible)> {
    let requests = waiting_requests(engine);
    if requests.is_empty() {
        return Vec::new();
    }
    let open = engine.workers().present().filter(|worker| worker.takes_work() && worker.room().cpu > 0);
    let vetoed = |worker: &Worker| Some((worker.record.id, veto_of(engine, &requests, worker)?));
    open.take(VETO_LOOKS_MAX).filter_map(vetoed).collect()
}

/// The veto that keeps all of this from a worker; `None` where something can start there, or nothing but room is missing.
fn veto_of(engine: &Engine, requests: &[PlacementRequest], worker: &Worker) -> Option<Ineligible> {
    let mut nearest = None;
    let context = engine.planner().match_context();
    for request in requests {
        match judged(engine, &context, request, worker) {
            Ok(_) => return None,
            Err(unmet) if unmet.iter().any(Ineligible::is_lasting) => {}
            Err(unmet) => nearest = nearest.or(unmet.into_iter().next()),
        }
    }
    nearest.filter(|why| matches!(why, Ineligible::Vetoed { .. }))
}

/// What the steps whose turn comes first ask for, unless their queues or limits hold them back.
fn waiting_requests(engine: &Engine) -> Vec<PlacementRequest<'_>> {
    let mut requests = Vec::new();
    for (queue, (head, id)) in heads(engine) {
        let Some(class) = engine.class(id) else { continue };
        if over_quota(engine, queue, id).is_some() || engine.licences().reached(class).is_some() {
            continue;
        }
        if class.is_gang() {
            let parts = engine.gang(head.step()).into_iter().flatten();
            requests.extend(parts.filter_map(|part| plan::part_request(engine, part.step, queue, id)));
        } else {
            requests.extend(plan::placement_request(engine, head.step(), queue));
        }
    }
    requests
}

/// The first step of each class that waits, in the order of turns, and those that rules veto.
fn heads(engine: &Engine) -> impl Iterator<Item = (QueueId, (QueuedStep, ClassId))> {
    let heads = engine.queues().in_turn().flat_map(|(id, queue)| queue.heads().map(move |head| (id, head)));
    heads.chain(engine.planner().vetoed.heads()).take(STEPS_LOOKED_MAX)
}

/// What the first step of a class is to a worker.
fn pass(engine: &Engine, queue: QueueId, head: (QueuedStep, ClassId), worker: &Worker) -> Option<Passed> {
    let key = head.0.step();
    let (class, step) = (engine.class(head.1)?, engine.ledger().step(key)?);
    let verdict = match engine.licences().reached(class) {
        _ if over_quota(engine, queue, head.1).is_some() => PassedVerdict::Quota,
        Some((name, ..)) => PassedVerdict::Limit(name.to_owned()),
        None if class.is_gang() => pass_gang(engine, queue, (key, head.1), worker)?,
        None => pass_task(engine, &plan::placement_request(engine, key, queue)?, worker),
    };
    Some(Passed { step: key, tasks: step.ready.len(), verdict })
}

/// What a task that asks for this is to the worker.
fn pass_task(engine: &Engine, request: &PlacementRequest, worker: &Worker) -> PassedVerdict {
    let context = engine.planner().match_context();
    match judged(engine, &context, request, worker) {
        Err(unmet) => PassedVerdict::Unmet(unmet),
        Ok(here) => match placement::place_task(request, &context, None) {
            PlacementOutcome::Best(ranked) if ranked[0].worker != worker.record.id => {
                PassedVerdict::Preferred { best: ranked[0], here }
            }
            _ => PassedVerdict::Turn,
        },
    }
}

/// What tasks that start together are to the worker: what the one that is nearest to a start there is, unless others of
/// them find no room elsewhere.
fn pass_gang(
    engine: &Engine,
    queue: QueueId,
    (leader, class): (StepKey, ClassId),
    worker: &Worker,
) -> Option<PassedVerdict> {
    let parts = engine.gang(leader)?;
    let requests = parts.iter().filter_map(|part| plan::part_request(engine, part.step, queue, class));
    let nearest = requests.map(|request| pass_task(engine, &request, worker)).min_by_key(rank)?;
    if !matches!(nearest, PassedVerdict::Turn | PassedVerdict::Preferred { .. }) {
        return Some(nearest);
    }
    match plan::place_gang(engine, leader, queue)? {
        GangOutcome::Short { placed, tasks, .. } => Some(PassedVerdict::Together { tasks, placed }),
        GangOutcome::Placed(_) => Some(nearest),
    }
}

fn reservation_of(engine: &Engine, worker: WorkerId) -> Option<ReservedFor> {
    let class = engine.planner().reservations().holder(worker)?;
    let heads = engine.queues().in_turn().flat_map(|(_, queue)| queue.heads());
    let mut heads = heads.chain(engine.planner().vetoed.heads().map(|(_, head)| head));
    let step = heads.find(|(_, other)| *other == class).map(|(head, _)| head.step());
    let starts_at = |asks| match Class::is_gang(asks) {
        // When the last of its workers has room.
        true => engine.planner().reserved().get(&worker)?.starts,
        false => plan::starts_at(engine, asks, engine.workers().get(worker)?),
    };
    Some(ReservedFor {
        step,
        waits_since: step.and_then(|key| engine.ledger().step(key)).map(|step| step.ready_since),
        starts: engine.class(class).and_then(starts_at),
    })
}

fn lost_by(engine: &Engine, worker: WorkerId) -> Vec<Lost> {
    let lost = engine.planner().decisions().filter_map(|decision| {
        let ranked = decision.ranked();
        let (winner, others) = ranked.split_first()?;
        let own = others.iter().find(|judged| judged.worker == worker)?;
        Some(Lost {
            task: decision.task,
            at: decision.at,
            winner: winner.worker,
            winner_score: winner.breakdown.total,
            score: own.breakdown.total,
        })
    });
    lost.take(LOST_MAX).collect()
}

/// How near a verdict is to a start, nearest first.
fn rank(verdict: &PassedVerdict) -> u8 {
    match verdict {
        PassedVerdict::Turn => 0,
        PassedVerdict::Preferred { .. } => 1,
        PassedVerdict::Unmet(unmet) if unmet.iter().any(Ineligible::is_lasting) => 4,
        PassedVerdict::Unmet(_) | PassedVerdict::Together { .. } => 2,
        PassedVerdict::Quota | PassedVerdict::Limit(_) => 3,
    }
}

/// The reason of a worker that takes work: what the step nearest to a start says.
fn reason_of(steps: &[Passed]) -> WorkerReason {
    let Some(nearest) = steps.iter().min_by_key(|passed| rank(&passed.verdict)) else {
        return WorkerReason::NothingWaits;
    };
    match &nearest.verdict {
        PassedVerdict::Turn => WorkerReason::Turn,
        PassedVerdict::Preferred { .. } => WorkerReason::OthersPreferred,
        PassedVerdict::Together { .. } => WorkerReason::Together,
        PassedVerdict::Unmet(unmet) if unmet.iter().any(Ineligible::is_lasting) => WorkerReason::FitsNone,
        PassedVerdict::Unmet(unmet) => {
            unmet.first().map_or(WorkerReason::Turn, |first| WorkerReason::Closed(first.clone()))
        }
        PassedVerdict::Quota | PassedVerdict::Limit(_) => WorkerReason::HeldBack,
    }
}
