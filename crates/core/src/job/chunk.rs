//! Chunks: tasks of a step that one process runs together, because starting it costs more than a task.
//!
//! Each is booked, ends and is counted by itself. One of them, the head, holds the worker's room for all; the others
//! ride with it and hold nothing.
//!
//! How many go together is learned. A chunk of n tasks takes `start + n * task` milliseconds; both are estimated by
//! least squares over the chunks that ended, the later ones counting for more.

use super::{Step, Tries};
use crate::bounds;

/// Tasks of a step may be run together by one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunks {
    /// The step's tasks are divided into blocks of this size, and a chunk never reaches from one block into the next.
    pub block: u32,
    /// How many.
    pub size: ChunkSize,
}

/// How many tasks go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkSize {
    /// Always this number.
    Fixed(u32),
    /// As many as the lengths of earlier chunks suggest.
    Learned {
        /// How many until a length is known.
        first: u32,
        /// Milliseconds that a chunk should run; `None` is long enough for its start not to matter.
        target_ms: Option<u64>,
    },
}

/// Of the time of a chunk whose length nobody asked for, its start takes this part at most: 1 in 20. More would be waste
/// that users see, and less would make chunks longer for little.
const START_PART: f64 = 20.0;
/// What a chunk weighs of the one that ended after it. A tenth less each: about the last ten count, as machines and inputs
/// change.
const DECAY: f64 = 0.9;
/// How fast it is forgotten that more chunks ran at a time: by half in some 70 chunks.
const MOST_DECAY: f64 = 0.99;
/// Two sizes must be known to tell the start from the tasks. Until then every other chunk is this many times as large.
const PROBE: u32 = 4;

/// How far expectations are off before any was seen to be right. With this, half of what is left is given out, as in
/// factoring (Hummel, Schonberg and Flynn 1992).
const ERROR_AT_FIRST: f64 = 0.25;

/// The lengths of a step's chunks so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChunkLengths {
    weight: f64,
    tasks: f64,
    ms: f64,
    tasks_squared: f64,
    tasks_by_ms: f64,
    /// What is known since chunks of two sizes were seen.
    known: Option<(f64, f64)>,
    /// Chunks that were formed.
    formed: u32,
    /// The most chunks that ran at a time lately: room for as many is expected again.
    most_running: f64,
    /// By which part of what was expected chunks took longer or shorter, as a mean.
    error: f64,
    /// When the chunks that run are expected to end, in milliseconds, all together.
    ends_ms: f64,
}

/// What a step has left to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeftToRun {
    /// The time in milliseconds.
    pub now_ms: f64,
    /// Tasks that are ready.
    pub ready: u32,
    /// Chunks that run.
    pub running: u32,
    /// The time limit of a chunk.
    pub limit_ms: Option<u64>,
}

impl Default for ChunkLengths {
    fn default() -> Self {
        let (weight, tasks, ms, tasks_squared, tasks_by_ms) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (formed, most_running, error, ends_ms) = (0, 0.0, ERROR_AT_FIRST, 0.0);
        let known = None;
        ChunkLengths {
            weight,
            tasks,
            ms,
            tasks_squared,
            tasks_by_ms,
            known,
            formed,
            most_running,
            error,
            ends_ms,
        }
    }
}

impl ChunkLengths {
    /// A chunk of so many tasks took so long.
    pub fn learn(&mut self, tasks: u32, ms: f64) {
        if let Some(expected_ms) = self.expected_ms(tasks).filter(|ms| *ms > 0.0) {
            self.error =
                self.error * DECAY + (1.0 - DECAY) * ((ms - expected_ms).abs() / expected_ms).min(1.0);
        }
        let tasks = f64::from(tasks);
        self.weight = self.weight * DECAY + 1.0;
        self.tasks = self.tasks * DECAY + tasks;
        self.ms = self.ms * DECAY + ms;
        self.tasks_squared = self.tasks_squared * DECAY + tasks * tasks;
        self.tasks_by_ms = self.tasks_by_ms * DECAY + tasks * ms;
        self.known = self.fitted().or(self.known);
    }

    /// Milliseconds that the start of a chunk takes, and each of its tasks; `None` until two sizes were seen.
    pub fn start_and_task_ms(&self) -> Option<(f64, f64)> {
        self.known
    }

    /// The same by the latest chunks alone; `None` if they had one size.
    fn fitted(&self) -> Option<(f64, f64)> {
        let (tasks, ms) = (self.tasks / self.weight, self.ms / self.weight);
        let spread = self.tasks_squared / self.weight - tasks * tasks;
        if self.weight < 2.0 || spread < 1e-3 * tasks * tasks {
            return None;
        }
        let task = (self.tasks_by_ms / self.weight - tasks * ms) / spread;
        // Noise may make either negative: a task takes some time, and no more than all of it.
        let task = task.clamp(1e-3, (ms / tasks).max(1e-3));
        Some(((ms - task * tasks).max(0.0), task))
    }

    /// Milliseconds that a chunk of so many tasks is expected to take; `None` until two sizes were seen.
    pub fn expected_ms(&self, tasks: u32) -> Option<f64> {
        self.start_and_task_ms().map(|(start_ms, task_ms)| start_ms + task_ms * f64::from(tasks))
    }

    /// A chunk is expected to end then, in milliseconds.
    pub fn began(&mut self, ends_ms: f64) {
        self.ends_ms += ends_ms;
    }

    /// A chunk that was expected to end then did.
    pub fn ended(&mut self, ends_ms: f64) {
        self.ends_ms -= ends_ms;
    }

    /// How many tasks go into the next chunk.
    pub fn next(&mut self, size: ChunkSize, left: &LeftToRun) -> u32 {
        self.formed = self.formed.wrapping_add(1);
        // Workers that have room at the same time get theirs one after the other.
        self.most_running = (self.most_running * MOST_DECAY).max(f64::from(left.running) + 1.0);
        self.size_of_next(size, left)
    }

    fn size_of_next(&self, size: ChunkSize, left: &LeftToRun) -> u32 {
        let (first, target_ms) = match size {
            ChunkSize::Fixed(tasks) => return tasks,
            ChunkSize::Learned { first, target_ms } => (first.max(1), target_ms),
        };
        let Some((start_ms, task_ms)) = self.start_and_task_ms() else {
            return if self.formed.is_multiple_of(2) { first.saturating_mul(PROBE) } else { first };
        };
        let within = |ms: f64| ((ms - start_ms) / task_ms).max(1.0);
        let mut tasks = match target_ms {
            Some(ms) => within(ms as f64),
            None => (start_ms * (START_PART - 1.0) / task_ms).max(1.0),
        };
        // All should end together: no chunk lasts longer than all that is left does on all that run. The less
        // expectations are right, the more is kept back for a later chunk. But no start takes longer than what it starts.
        let running = f64::from(left.running);
        let running_ms = (self.ends_ms - running * left.now_ms).max(0.0);
        let slots = self.most_running.max(running + 1.0);
        let together_ms = (running_ms + f64::from(left.ready) * task_ms) / slots + start_ms;
        let share = within(together_ms) / (1.0 + self.error / ERROR_AT_FIRST);
        tasks = tasks.min(share.max(start_ms / task_ms).max(1.0));
        if let Some(limit_ms) = left.limit_ms {
            tasks = tasks.min(within(limit_ms as f64 / 2.0));
        }
        // Not one more for an error of rounding.
        libm::ceil(tasks - 1e-6).min(f64::from(bounds::CHUNK_TASKS_MAX)) as u32
    }

    /// Milliseconds that the next chunk is expected to take; `None` until two sizes were seen.
    pub fn expected_next_ms(&self, size: ChunkSize, left: &LeftToRun) -> Option<f64> {
        self.expected_ms(self.size_of_next(size, left))
    }
}

impl Step {
    /// The tasks that ride with `head`, which is not ready any more, in a chunk of `size` tasks: those that follow it
    /// and did not fail before. One that did runs alone, so that it harms no others.
    pub fn riders(&self, head: u32, block: u32, size: u32) -> Vec<u32> {
        let end = self.base + ((head - self.base) / block.max(1) + 1).saturating_mul(block.max(1));
        let size = size.min(bounds::CHUNK_TASKS_MAX);
        let unharmed = |tries: &Tries| tries.failures + tries.losses == 0;
        let free = |index: &u32| self.ready.contains(*index) && self.tries.get(*index).is_none_or(unharmed);
        (head + 1..end.min(head.saturating_add(size))).take_while(free).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AUTO: ChunkSize = ChunkSize::Learned { first: 1, target_ms: None };

    fn known(start_ms: f64, task_ms: f64) -> ChunkLengths {
        let mut lengths = ChunkLengths::default();
        for tasks in [1_u32, 4, 1, 4] {
            lengths.learn(tasks, start_ms + f64::from(tasks) * task_ms);
        }
        lengths
    }

    fn left(ready: u32, running: u32, limit_ms: Option<u64>) -> LeftToRun {
        LeftToRun { now_ms: 0.0, ready, running, limit_ms }
    }

    #[test]
    fn a_start_takes_little_of_a_chunk_and_the_last_ones_end_together() {
        let mut lengths = known(1_000.0, 20.0);
        let (start_ms, task_ms) = lengths.start_and_task_ms().expect("two sizes were seen");
        assert!((start_ms - 1_000.0).abs() < 1e-6 && (task_ms - 20.0).abs() < 1e-6);
        (0..100).for_each(|_| lengths.learn(10, 1_200.0));
        (0..100).for_each(|n| lengths.learn(n % 2 * 100, 1_000.0 + f64::from(n % 2) * 2_000.0));
        assert_eq!(lengths.next(AUTO, &left(1_000_000, 1, None)), 950, "19 times the start");
        assert_eq!(lengths.next(AUTO, &left(1_000, 9, None)), 100, "a tenth of what is left");
        lengths.began(40_000.0);
        assert_eq!(lengths.next(AUTO, &left(1_000, 9, None)), 300, "others run for 40 s more, all together");
        lengths.ended(40_000.0);
        assert_eq!(lengths.next(AUTO, &left(10, 9, None)), 50, "no start takes longer than what it starts");
        assert_eq!(lengths.next(AUTO, &left(1_000_000, 1, Some(4_000))), 50, "half of the limit");
        let target = ChunkSize::Learned { first: 1, target_ms: Some(5_000) };
        assert_eq!(lengths.next(target, &left(1_000_000, 1, None)), 200);
        assert_eq!(lengths.next(ChunkSize::Fixed(7), &left(1, 1, None)), 7);
    }

    #[test]
    fn long_tasks_run_alone_and_nothing_is_known_at_first() {
        assert_eq!(known(1_000.0, 60_000.0).next(AUTO, &left(1_000, 1, None)), 1);
        let mut lengths = ChunkLengths::default();
        let sizes: Vec<u32> = (0..4).map(|_| lengths.next(AUTO, &left(1_000, 0, None))).collect();
        assert_eq!(sizes, [1, 4, 1, 4]);
    }

    proptest! {
        #[test]
        fn any_lengths_give_a_size(
            seen in prop::collection::vec((1_u32..2_000, 0.0_f64..1e9), 0..50), ready: u32, running in 0_u32..1_000,
        ) {
            let mut lengths = ChunkLengths::default();
            seen.into_iter().for_each(|(tasks, ms)| lengths.learn(tasks, ms));
            let size = lengths.next(AUTO, &left(ready, running, None));
            prop_assert!((1..=bounds::CHUNK_TASKS_MAX).contains(&size));
        }
    }
}
