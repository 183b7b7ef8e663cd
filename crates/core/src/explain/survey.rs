//! A look at every worker: what rules it out, what would have to change there, how it is judged.

use super::explanation::Explanation;
use crate::bounds;
use crate::engine::Engine;
use crate::plan::Judged;
use crate::plan::placement::{self, BuildTurn, Ineligible, MatchContext, PlacementRequest, ScoredWorker};
use crate::worker::Worker;
use std::collections::BTreeMap;

/// Workers whose obstacles are told at most.
const OBSTACLES_MAX: usize = 8;

/// What is in the way on a worker.
pub(super) struct Obstacles {
    /// The name of the worker.
    pub(super) worker: String,
    /// All that is in the way there.
    pub(super) unmet: Vec<Ineligible>,
}

/// How a task that asks for this is judged on a worker, or what rules that out.
pub(super) fn judged(
    engine: &Engine,
    context: &MatchContext,
    request: &PlacementRequest,
    worker: &Worker,
) -> Result<ScoredWorker, Vec<Ineligible>> {
    let unmet: Vec<Ineligible> = placement::ineligibilities(request.class, worker, true).collect();
    if !unmet.is_empty() {
        return Err(unmet);
    }
    context.judge(request, worker).map_err(|held| vec![named(engine, held)])
}

/// The same reason, with the names of the build whose turn it is.
pub(super) fn named(engine: &Engine, why: Ineligible) -> Ineligible {
    match why {
        Ineligible::BuildTurn(build) => {
            let spec = engine.job(build.task.job).map(|job| &job.spec);
            let job = spec.map_or_else(String::new, |spec| spec.name.clone());
            let queue = spec.map_or_else(String::new, |spec| spec.queue.clone());
            Ineligible::BuildTurn(BuildTurn { job, queue, ..build })
        }
        why => why,
    }
}

/// What is in the way on the workers where least would have to change.
pub(super) fn obstacles(engine: &Engine, request: &PlacementRequest) -> Vec<Obstacles> {
    let context = engine.planner().match_context();
    let present = engine.workers().present();
    let mut all: Vec<((usize, f64), Obstacles)> = present
        .filter_map(|worker| {
            let unmet = judged(engine, &context, request, worker).err()?;
            Some((effort(&unmet), Obstacles { worker: worker.record.name.clone(), unmet }))
        })
        .collect();
    all.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    all.into_iter().take(OBSTACLES_MAX).map(|(_, obstacles)| obstacles).collect()
}

/// Looks at every worker: what rules it out, and how it is judged.
pub(super) fn look_over(engine: &Engine, request: &PlacementRequest, explanation: &mut Explanation) {
    let context = engine.planner().match_context();
    let mut counts: BTreeMap<Ineligible, (usize, Vec<String>)> = BTreeMap::new();
    let mut open = Vec::new();
    for worker in engine.workers().present() {
        let mut unmet = match judged(engine, &context, request, worker) {
            Ok(ranked) => {
                open.push((ranked, worker));
                continue;
            }
            Err(unmet) => unmet,
        };
        let (count, examples) = counts.entry(unmet.swap_remove(0)).or_default();
        *count += 1;
        if examples.len() < bounds::EXAMPLES_MAX {
            examples.push(worker.record.name.clone());
        }
    }
    explanation.open_workers = open.len();
    explanation.ruled_out = counts.into_iter().map(|(why, (n, examples))| (why, n, examples)).collect();
    explanation.ruled_out.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    open.sort_by(|(a, w), (b, v)| {
        b.score.total_cmp(&a.score).then(a.load.total_cmp(&b.load)).then(w.record.name.cmp(&v.record.name))
    });
    explanation.judged = open
        .iter()
        .take(bounds::RANKED_MAX)
        .filter_map(|(ranked, worker)| {
            let seen = context.workers.listed(worker.record.id)?.summary().context();
            let breakdown =
                context.policy_for(request).detail(&context.pair(request, worker, seen, ranked.load));
            Some(Judged { worker: worker.record.id, load: ranked.load, breakdown })
        })
        .collect();
}

/// How much would have to change: first the number of causes that do not pass by themselves, then how far each amount is
/// off, as a part of what is asked for.
fn effort(unmet: &[Ineligible]) -> (usize, f64) {
    let far = unmet.iter().map(|why| match why {
        Ineligible::TooSmall(short) | Ineligible::Busy(short) | Ineligible::Foreign(short) => {
            (short.need - short.have) as f64 / short.need as f64
        }
        Ineligible::Draining(_)
        | Ineligible::Reserved(_)
        | Ineligible::BuildTurn(_)
        | Ineligible::NetworkInUse
        | Ineligible::Limit { .. }
        | Ineligible::Vetoed { .. } => 0.5,
        _ => 1.0,
    });
    (unmet.iter().filter(|why| why.is_lasting()).count(), far.sum())
}
