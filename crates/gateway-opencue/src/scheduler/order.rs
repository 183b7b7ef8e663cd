//! The order in which shows and jobs get their turns.

use super::snapshot::{Layer, Snapshot};
use std::collections::BTreeMap;
use windlass_core::Time;
use windlass_core::ids::{JobId, QueueId, StepKey};
use windlass_core::job::QueuedStep;
use windlass_core::queues::{QueueRecord, Queues, TurnsBy};

/// Shares are brought to this scale, the greatest weight of a queue.
const WEIGHT_MAX: i64 = 10_000;
/// Turns of a pass that are told apart. Layers that had all of them are equal from then on.
const TURNS_MAX: i32 = 64;
const US_PER_DAY: i64 = 86_400_000_000;

/// The order of the jobs of a show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobOrder {
    /// Those of the highest priority; among equals, those that were submitted first.
    #[default]
    Priority,
    /// Those that were submitted first.
    Fifo,
    /// By priority, which grows by up to 100 for a job below its minimum of cores, and by 1 a day.
    Balanced,
}

/// The order of shows, and of the jobs of a show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// True if all shows share one queue. Otherwise they take turns by the sizes of their subscriptions.
    pub is_strict: bool,
    /// The order of the jobs of a show.
    pub jobs: JobOrder,
}

impl Order {
    /// The places of a layer's steps in their queue. In each further turn of a pass the layer stands behind all layers
    /// of its priority that have had fewer.
    pub fn steps(self, layer: &Layer, id: JobId, count: usize, turn: i32) -> Vec<QueuedStep> {
        let priority = match self.jobs {
            JobOrder::Priority => layer.priority,
            JobOrder::Fifo => 0,
            JobOrder::Balanced => balanced(layer),
        };
        // As a part of the priority, because layers of one priority may take each other's turns on a host.
        let priority = priority.saturating_mul(TURNS_MAX).saturating_sub(turn.min(TURNS_MAX - 1));
        // The layer's place is a part of the microsecond, so that layers of a job keep their order.
        let order = u64::try_from(layer.order.clamp(0, 999)).unwrap_or(0);
        let ranked = Time(u64::try_from(layer.submitted_us).unwrap_or(0).saturating_mul(1_000) + order);
        (0..).take(count).map(|step| QueuedStep::new(priority, ranked, StepKey { job: id, step })).collect()
    }
}

/// Cuebot's formula of this name. Days are counted from one time for all jobs, which leaves their order as it is.
fn balanced(layer: &Layer) -> i32 {
    let day = i32::try_from(layer.submitted_us / US_PER_DAY).unwrap_or(0);
    layer.priority.saturating_add(below_minimum(layer)).saturating_sub(day)
}

/// 100 for a job without cores, and less the nearer it is to its minimum.
fn below_minimum(layer: &Layer) -> i32 {
    let (has, min) = (layer.job_used.cores.max(0), layer.job_cores_min);
    if min <= has { 0 } else { (100 * (min - has) / min) as i32 }
}

/// The queue of each show, with its weight.
pub fn queues_of(snapshot: &Snapshot, order: Order, queues: &mut Queues) -> BTreeMap<String, QueueId> {
    let mut sizes: BTreeMap<&str, (&str, i64)> = BTreeMap::new();
    for subscription in &snapshot.subscriptions {
        let (_, size) = sizes.entry(&subscription.show).or_insert((&subscription.show_name, 0));
        *size += subscription.size.max(0);
    }
    let largest = sizes.values().map(|(_, size)| *size).max().unwrap_or(0).max(1);
    let mut found = BTreeMap::new();
    for (show, (name, size)) in sizes {
        let name = if order.is_strict { "shows".to_owned() } else { format!("show {name}") };
        // A show without a size has the smallest weight, and so gets what others leave, as nearly as turns can.
        let weight = (size.saturating_mul(WEIGHT_MAX) / largest).clamp(1, WEIGHT_MAX) as u32;
        let weight = if order.is_strict { 100 } else { weight };
        let id = queues.intern(&name);
        if queues.get(id).record.weight != weight || queues.get(id).record.turns != TurnsBy::Jobs {
            queues.set(&QueueRecord { weight, turns: TurnsBy::Jobs, ..QueueRecord::named(&name) });
        }
        found.insert(show.to_owned(), id);
    }
    found
}
