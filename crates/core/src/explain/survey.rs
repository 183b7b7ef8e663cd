//! A look at every worker: what rules it out, what would have to change there, how it is judged.

use super::explanation::{Change, Explanation};
use crate::bounds;
use crate::engine::Engine;
use crate::plan::Judged;
use crate::plan::placement::{self, Ineligible, PlacementRequest};
use crate::tags::asks_executor;
use std::collections::BTreeMap;

/// What a look over all workers found.
#[derive(Default)]
pub(super) struct Survey {
    /// All workers of the farm.
    pub(super) workers: usize,
    /// Those of them that could run it if they were empty.
    pub(super) could: usize,
    /// The one reason that closes all workers that could run it, unless they are busy or it differs.
    pub(super) closed: Option<Ineligible>,
}

/// Looks at every worker: what rules it out, what would have to change there, how it is judged.
pub(super) fn look_over(
    engine: &Engine,
    request: &PlacementRequest,
    explanation: &mut Explanation,
) -> Survey {
    let context = engine.planner().match_context();
    let mut found = Survey::default();
    let mut counts: BTreeMap<Ineligible, (usize, Vec<String>)> = BTreeMap::new();
    let (mut changes, mut open, mut mixed) = (Vec::new(), Vec::new(), false);
    for worker in engine.workers().present() {
        found.workers += 1;
        let could = placement::eligible_when_idle(request.class, worker);
        found.could += usize::from(could);
        let mut unmet: Vec<Ineligible> = placement::ineligibilities(request.class, worker, true).collect();
        if unmet.is_empty() {
            match context.judge(request, worker) {
                Ok(ranked) => {
                    open.push((ranked, worker));
                    continue;
                }
                Err(reason) => unmet.push(reason),
            }
        }
        let first = &unmet[0];
        if could {
            let closed = found.closed.get_or_insert_with(|| first.clone());
            mixed |= matches!(first, Ineligible::Busy(_));
            mixed |= std::mem::discriminant(closed) != std::mem::discriminant(first);
        }
        let (count, examples) = counts.entry(first.clone()).or_default();
        *count += 1;
        if examples.len() < bounds::EXAMPLES_MAX {
            examples.push(worker.record.name.clone());
        }
        // Nobody gives an ordinary worker what makes it a host of another system.
        let is_other = unmet.iter().any(|why| matches!(why, Ineligible::Attribute(_)));
        if !(is_other && asks_executor(&request.class.needs)) {
            changes.push((effort(&unmet), Change::Worker { worker: worker.record.name.clone(), unmet }));
        }
    }
    if mixed {
        found.closed = None;
    }
    explanation.open_workers = open.len();
    explanation.ruled_out = counts.into_iter().map(|(why, (n, examples))| (why, n, examples)).collect();
    explanation.ruled_out.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    changes.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    explanation.changes = changes.into_iter().take(bounds::EXAMPLES_MAX).map(|(_, change)| change).collect();
    if open.is_empty() && explanation.changes.is_empty() {
        explanation.changes.extend(Change::connect(&request.class.needs));
    }
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
    found
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
        | Ineligible::NetworkInUse
        | Ineligible::Limit { .. }
        | Ineligible::Vetoed { .. } => 0.5,
        _ => 1.0,
    });
    (unmet.iter().filter(|why| why.is_lasting()).count(), far.sum())
}
