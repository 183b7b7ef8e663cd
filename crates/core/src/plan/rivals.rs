//! Another step of the same queue and priority may suit the worker that was found better than the step whose turn it
//! is. A round asks this for each booking, mostly of the same few steps: what it found of them counts until the turn is
//! another step's.

use super::placement::{self, PlacementRequest, ScoredWorker};
use super::request::{cpu_turn, request_with};
use super::work::{StepFacts, Work};
use crate::cache_keys::Reads;
use crate::ids::{ClassId, QueueId, StepKey, WorkerId};
use crate::job::QueuedStep;
use crate::queues::RoundFilter;
use crate::score::context::JobContext;
use crate::worker::Worker;
use crate::workers::ListedWorker;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

static NO_READS: Reads = Reads::none();
static NO_PREFERENCES: BTreeSet<String> = BTreeSet::new();

/// By queue, the step whose turn it last was, and behind it its rivals.
pub(super) type KnownRivals = BTreeMap<QueueId, Vec<RivalStep>>;

/// A step as a round sees it until its end.
pub(super) struct RivalStep {
    queued_step: QueuedStep,
    class: ClassId,
    job: JobContext,
    profile: u64,
    avoids: Option<WorkerId>,
    longest_ms: Option<f64>,
    /// It reads from caches or prefers workers, so it is looked up again.
    has_wishes: bool,
    /// It gets the same points as the step before it, where a worker has as much to do with both.
    is_like_before: bool,
}

/// What a worker has to do with a step.
#[derive(Clone, Copy, PartialEq)]
struct Standing {
    /// What its tasks hold there, in hundredths of a core.
    step_cpu: Option<u32>,
    warmth: f64,
    is_avoided: bool,
}

impl RivalStep {
    fn step(&self) -> StepKey {
        self.queued_step.step()
    }

    fn standing(&self, worker: &Worker) -> Standing {
        Standing {
            step_cpu: worker.booked.steps().get(&self.step()).copied(),
            warmth: worker.warmth.of(&self.profile),
            is_avoided: self.avoids == Some(worker.record.id),
        }
    }

    fn request<'a, W: Work>(&self, work: &'a W, queue: QueueId) -> Option<PlacementRequest<'a>> {
        // A rule spreads the tasks of a step over workers. It must not make another step look better.
        let (others_wait, locality) = (false, true);
        if self.has_wishes {
            let request = request_with(work, self.step(), queue, work.facts(self.step())?);
            return Some(PlacementRequest { others_wait, locality, ..request });
        }
        let plan = work.plan();
        let class = plan.classes.get(self.class);
        Some(PlacementRequest {
            step: self.step(),
            class_id: self.class,
            class,
            band: plan.queues.get(queue).band(),
            job: self.job,
            reads: &NO_READS,
            profile: self.profile,
            avoids: self.avoids,
            longest_ms: self.longest_ms,
            others_wait,
            locality,
            prefers: &NO_PREFERENCES,
            turn: Some(cpu_turn(plan, queue, class)),
        })
    }
}

/// The step whose turn it is with the workers that were found for it, or a rival that suits the first of them better,
/// with that one alone.
pub(super) fn prefer_rival<W: Work>(
    work: &W,
    queue: QueueId,
    (queued_step, class): (QueuedStep, ClassId),
    ranked: Vec<ScoredWorker>,
    all_known: &mut KnownRivals,
    (filter, in_burst): (&RoundFilter, bool),
) -> (QueuedStep, ClassId, Vec<ScoredWorker>) {
    let plan = work.plan();
    let Some(listed) = plan.workers.listed(ranked[0].worker) else { return (queued_step, class, ranked) };
    let worker = listed.worker();
    if worker.flags.class.keeps_queue_order {
        return (queued_step, class, ranked);
    }
    // A gang has more to find than this worker.
    let is_open = |class| {
        // A class is gone when the last that asked for it was booked.
        let Some(asks) = plan.classes.find(class) else { return false };
        !asks.is_gang()
            && (!plan.full.contains(class) || placement::fits_now(asks, worker))
            && !work.is_limit_reached(asks)
            && plan.queues.over_quota(queue, asks.request.cpu, in_burst).is_none()
    };
    let waiting = plan.queues.get(queue);
    let steps = if waiting.has_few_classes(&queued_step) {
        let known = all_known.entry(queue).or_default();
        if known.first().is_none_or(|first| (first.queued_step, first.class) != (queued_step, class)) {
            *known = rivals(work, queue, (queued_step, class), filter, &|_| true);
        }
        &*known
    } else {
        // Which of many classes are among the rivals depends on the worker.
        &rivals(work, queue, (queued_step, class), filter, &is_open)
    };
    let Some((step, score)) = best_for(work, queue, listed, steps, &is_open) else {
        return (queued_step, class, ranked);
    };
    let Some(rival) = steps.iter().skip(1).find(|rival| rival.step() == step) else {
        return (queued_step, class, ranked);
    };
    let (rival, its_class) = (rival.queued_step, rival.class);
    // It may have been closed since, or its next task may have failed there.
    if !waiting.is_taken_from(queue, its_class, &rival, filter)
        || work.facts(step).is_none_or(|facts| facts.avoids == Some(worker.record.id))
    {
        all_known.remove(&queue);
        return (queued_step, class, ranked);
    }
    (rival, its_class, vec![ScoredWorker { worker: worker.record.id, score, load: ranked[0].load }])
}

/// The step and its rivals of classes that are open.
fn rivals<W: Work>(
    work: &W,
    queue: QueueId,
    first: (QueuedStep, ClassId),
    filter: &RoundFilter,
    is_open: &dyn Fn(ClassId) -> bool,
) -> Vec<RivalStep> {
    let rivals = work.plan().queues.get(queue).rivals(queue, &first.0, filter, is_open);
    let mut before: Option<StepFacts> = None;
    let steps = iter::once(first).chain(rivals).filter_map(|(queued_step, class)| {
        let facts = work.facts(queued_step.step())?;
        let is_like_before = before.is_some_and(|before| facts.is_judged_like(&before));
        before = Some(facts);
        Some(RivalStep {
            queued_step,
            class,
            job: request_with(work, queued_step.step(), queue, facts).job,
            profile: facts.profile,
            avoids: facts.avoids,
            longest_ms: facts.longest_ms(),
            has_wishes: !facts.reads.is_empty() || !facts.hints.prefers.is_empty(),
            is_like_before,
        })
    });
    steps.collect()
}

/// The step that gets most points on the worker, of equals the first, with its points.
fn best_for<W: Work>(
    work: &W,
    queue: QueueId,
    listed: &ListedWorker,
    steps: &[RivalStep],
    is_open: &dyn Fn(ClassId) -> bool,
) -> Option<(StepKey, f64)> {
    if steps.len() == 1 {
        return None;
    }
    let mut before = None;
    // Steps of a class come one after the other.
    let mut asked: Option<(ClassId, bool)> = None;
    let requests = steps.iter().filter_map(|rival| {
        let is_open = match asked {
            Some((class, is_open)) if class == rival.class => is_open,
            _ => is_open(rival.class),
        };
        asked = Some((rival.class, is_open));
        let standing = is_open.then(|| rival.standing(listed.worker()));
        // Most steps of a queue are alike, and of those the first one wins.
        let is_alike = rival.is_like_before && standing == before;
        before = standing;
        if is_open && !is_alike { rival.request(work, queue) } else { None }
    });
    placement::pick_for_worker(listed, requests, &work.plan().match_context())
}
