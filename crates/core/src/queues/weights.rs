//! How the cpus of a worker are divided among tasks that share them: by the weights of their queues and users.
//!
//! Properties:
//! - Queues get parts in the proportion of their weights, and users in that of theirs inside what their queue gets. Tasks
//!   of one user get equal parts.
//! - A queue or a user without a task among them does not count.
//! - Each part is within 1 of its exact value, and at least 1. All exact values together make [`CPU_WEIGHT_MAX`].

use super::record::WEIGHT_DEFAULT;
use super::state::Queues;
use crate::bounds::CPU_WEIGHT_MAX;
use crate::ids::QueueId;
use std::collections::BTreeMap;

impl Queues {
    /// The parts of tasks that share cpus, given by the part of a queue that each task is of, and in the same order.
    pub fn cpu_weights(&self, tasks: &[QueueId]) -> Vec<u32> {
        // By queue: the weights of its users together, and the number of tasks of each.
        let mut queues: BTreeMap<QueueId, (u128, BTreeMap<QueueId, u128>)> = BTreeMap::new();
        for part in tasks {
            let (of_users, users) = queues.entry(self.whole(*part)).or_default();
            let count = users.entry(*part).or_default();
            if *count == 0 {
                *of_users += user_weight(self, *part);
            }
            *count += 1;
        }
        let of_queues: u128 = queues.keys().map(|whole| queue_weight(self, *whole)).sum();
        let weight = |part: &QueueId| {
            let whole = self.whole(*part);
            let (of_users, users) = &queues[&whole];
            let part_of = queue_weight(self, whole) * user_weight(self, *part);
            let weight = u128::from(CPU_WEIGHT_MAX) * part_of / (of_queues * of_users * users[part]);
            (weight as u32).max(1)
        };
        tasks.iter().map(weight).collect()
    }
}

fn queue_weight(queues: &Queues, whole: QueueId) -> u128 {
    queues.get(whole).record.weight.max(1).into()
}

/// A user's weight against those of the other users of the queue.
fn user_weight(queues: &Queues, part: QueueId) -> u128 {
    let queue = queues.get(part);
    let weight = match (queue.whole, queue.user()) {
        (Some(_), _) => queue.record.weight,
        (None, Some(first)) => queue.record.weight_of(first),
        (None, None) => WEIGHT_DEFAULT,
    };
    weight.max(1).into()
}
