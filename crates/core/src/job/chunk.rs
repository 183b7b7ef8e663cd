//! Chunks: tasks of a step that one process runs together, because starting it costs more than a task.
//!
//! Each is booked, ends and is counted by itself. One of them, the head, holds the worker's room for all; the others
//! ride with it and hold nothing.
//!
//! How many go together is learned. A chunk of n tasks takes `start + n * task` milliseconds; both are estimated by
//! least squares over the chunks that ended, the later ones counting for more.

use crate::bounds;

/// Tasks of a step may be run together by one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunks {
    /// The step's tasks are divided into blocks of this size, and a chunk never reaches from one block into the next.
    pub block: u32,
    /// The runs of a block, in order: a chunk never reaches from one into the next either. Chunks of a fixed size divide
    /// each run into equal parts, as few as there can be. Without any, a block is one run whose last chunk is what the
    /// others leave.
    pub runs: Vec<EqualRuns>,
    /// How many tasks a chunk has.
    pub size: ChunkSize,
}

/// Runs that follow each other in a block and have equally many tasks: frames without a gap between them, for example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EqualRuns {
    /// Tasks of each, at least 1.
    pub tasks: u32,
    /// Tasks of the block up to the end of the last of them: more than those before them end at, by a multiple of
    /// `tasks`. The last ones of a block end where it ends.
    pub end: u32,
}

impl Chunks {
    /// The end of the chunk of a task, both as indexes in the step: no task from there on runs in the same process. A
    /// chunk of a learned size may end earlier, as may one that began in the middle of its part.
    pub fn end(&self, place: u32) -> u32 {
        let block = self.block.max(1);
        let first = place - place % block;
        let at = self.runs.partition_point(|runs| runs.end <= place - first);
        let Some(EqualRuns { tasks, .. }) = self.runs.get(at) else { return first.saturating_add(block) };
        let first = first + at.checked_sub(1).map_or(0, |before| self.runs[before].end);
        let in_run = (place - first) % tasks;
        first.saturating_add(place - first - in_run).saturating_add(self.part_end(*tasks, in_run))
    }

    /// The end of the part of a run that has this task of it.
    fn part_end(&self, tasks: u32, in_run: u32) -> u32 {
        let ChunkSize::Fixed(size) = self.size else { return tasks };
        let parts = u64::from(parts_of(tasks, size));
        let tasks = u64::from(tasks);
        // Part n begins at n * tasks / parts, rounded up.
        let part = u64::from(in_run) * parts / tasks;
        u32::try_from(((part + 1) * tasks).div_ceil(parts)).unwrap_or(u32::MAX)
    }

    /// How many chunks that many tasks of the step are, if none of them fails and no limit cuts one short; `None` of a
    /// size that is learned. The tasks are whole blocks, but for the last block of a step without runs.
    pub fn count(&self, tasks: u32) -> Option<u32> {
        let ChunkSize::Fixed(size) = self.size else { return None };
        let block = self.block.clamp(1, tasks.max(1));
        let of_block = match self.runs.is_empty() {
            true => parts_of(block, size),
            false => {
                let begins = std::iter::once(0).chain(self.runs.iter().map(|runs| runs.end));
                let each = self.runs.iter().zip(begins);
                each.map(|(runs, begin)| (runs.end - begin) / runs.tasks * parts_of(runs.tasks, size)).sum()
            }
        };
        let rest = Some(tasks % block).filter(|rest| *rest > 0).map_or(0, |rest| parts_of(rest, size));
        Some((tasks / block).saturating_mul(of_block).saturating_add(rest))
    }
}

/// How many chunks of at most `size` tasks a run has.
fn parts_of(tasks: u32, size: u32) -> u32 {
    tasks.div_ceil(size.clamp(1, bounds::CHUNK_TASKS_MAX))
}

/// How many tasks go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkSize {
    /// Always this number of tasks.
    Fixed(u32),
    /// As many as the lengths of earlier chunks suggest.
    Learned {
        /// How many until a length is known.
        first: u32,
        /// Milliseconds that a chunk should run; `None` is long enough for its start not to matter.
        target_ms: Option<u64>,
    },
}

/// Where the user set no length, the start of a chunk takes at most this part of its time: 1 in 20. More would be waste
/// that users see, and less would make chunks longer for little.
const START_PART: f64 = 20.0;
/// What a chunk weighs of the next one of about its size. A tenth less each: about the last ten count, as machines and
/// inputs change.
const DECAY: f64 = 0.9;
/// The same of the next one of another size.
const OTHERS_DECAY: f64 = 0.99;
/// How fast it is forgotten that more chunks ran at a time: by a tenth while as many are formed. All may end at once, and
/// the next are formed one after the other.
const MOST_DECAY: f64 = 0.1;
/// Two sizes must be known to tell the start from the tasks. Until then every other chunk is this many times as large.
const PROBE: u32 = 4;
/// The largest size must take this many times as long as the smallest before the two tell the start from the tasks. Were
/// it less, the noise of starts would be taken for the length of tasks.
const TELLING: f64 = 2.0;
/// Sizes are told apart by powers of two.
const SIZES: usize = bounds::CHUNK_TASKS_MAX.ilog2() as usize + 1;

/// A chunk that lasts for this part of all that is left is the last of its slot.
const NEARLY_ALL: f64 = 0.9;

/// How far expectations are off before any was seen to be right. With this, half of what is left is given out, as in
/// factoring (Hummel, Schonberg and Flynn 1992).
const ERROR_AT_FIRST: f64 = 0.25;

/// Chunks of about one size: how many, their tasks and their milliseconds, the later ones counting for more.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct OfSize {
    weight: f64,
    tasks: f64,
    ms: f64,
}

impl OfSize {
    /// The mean size and the mean time in milliseconds.
    fn means(&self) -> (f64, f64) {
        (self.tasks / self.weight, self.ms / self.weight)
    }
}

/// The lengths of a step's chunks so far.
#[derive(Clone, PartialEq, Debug)]
pub struct ChunkLengths {
    /// By the power of two of the size.
    sizes: [OfSize; SIZES],
    /// Chunks that were formed.
    formed: u32,
    /// The most chunks that ran at a time lately: room for as many is expected again.
    most_running: f64,
    /// By which part of what was expected chunks took longer or shorter, as a mean.
    error: f64,
    /// When the chunks that run are expected to end, in milliseconds, as a sum.
    ends_ms: f64,
    /// When all that was left was expected to end, as the latest chunk was formed.
    all_end_ms: f64,
    /// Chunks that run and were to be the last of their slots.
    last_ones: u32,
}

/// What is expected of the end of a chunk that runs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ChunkEnd {
    /// When, in milliseconds. Not in the future where nothing is known.
    pub at_ms: f64,
    /// Nothing is left to begin after it.
    is_last: bool,
}

/// What a step has left to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeftToRun {
    /// The time in milliseconds.
    pub now_ms: f64,
    /// Tasks that are ready.
    pub ready: u32,
    /// Chunks that run now.
    pub running: u32,
    /// The time limit of a chunk.
    pub limit_ms: Option<u64>,
}

impl Default for ChunkLengths {
    fn default() -> Self {
        let (formed, most_running, error, ends_ms) = (0, 0.0, ERROR_AT_FIRST, 0.0);
        let (sizes, all_end_ms, last_ones) = ([OfSize::default(); SIZES], 0.0, 0);
        ChunkLengths { sizes, formed, most_running, error, ends_ms, all_end_ms, last_ones }
    }
}

impl ChunkLengths {
    /// A chunk of `tasks` tasks took `ms` milliseconds.
    pub fn learn(&mut self, tasks: u32, ms: f64) {
        if let Some(expected_ms) = self.expected_ms(tasks).filter(|ms| *ms > 0.0) {
            self.error =
                self.error * DECAY + (1.0 - DECAY) * ((ms - expected_ms).abs() / expected_ms).min(1.0);
        }
        let place = (tasks.max(1).ilog2() as usize).min(SIZES - 1);
        for (other, size) in self.sizes.iter_mut().enumerate() {
            let decay = if other == place { DECAY } else { OTHERS_DECAY };
            *size = OfSize { weight: size.weight * decay, tasks: size.tasks * decay, ms: size.ms * decay };
        }
        let size = &mut self.sizes[place];
        *size = OfSize { weight: size.weight + 1.0, tasks: size.tasks + f64::from(tasks), ms: size.ms + ms };
    }

    fn known(&self) -> impl DoubleEndedIterator<Item = &OfSize> {
        self.sizes.iter().filter(|size| size.weight > 0.0)
    }

    /// The means of the smallest and of the largest size; `None` until two were seen.
    fn extremes(&self) -> Option<((f64, f64), (f64, f64))> {
        let (smallest, largest) = (self.known().next()?.means(), self.known().next_back()?.means());
        (smallest.0 < largest.0).then_some((smallest, largest))
    }

    /// Milliseconds that the start of a chunk takes, and each of its tasks; `None` until two sizes were seen whose times
    /// differ enough.
    pub fn start_and_task_ms(&self) -> Option<(f64, f64)> {
        let ((_, small_ms), (_, large_ms)) = self.extremes()?;
        if large_ms < TELLING * small_ms {
            return None;
        }
        let weight: f64 = self.known().map(|size| size.weight).sum();
        let tasks = self.known().map(|size| size.tasks).sum::<f64>() / weight;
        let ms = self.known().map(|size| size.ms).sum::<f64>() / weight;
        let (mut spread, mut together) = (0.0, 0.0);
        for size in self.known() {
            let (size_tasks, size_ms) = size.means();
            spread += size.weight * (size_tasks - tasks) * (size_tasks - tasks);
            together += size.weight * (size_tasks - tasks) * (size_ms - ms);
        }
        // Noise may make either negative: a task takes some time, and no more than all of it.
        let task_ms = (together / spread).clamp(1e-3, (ms / tasks).max(1e-3));
        Some(((ms - task_ms * tasks).max(0.0), task_ms))
    }

    /// The most that a start may take, and a task of a chunk larger than any that was seen, in milliseconds: as if one
    /// chunk were all start, and another had none.
    fn bounds_ms(&self) -> Option<(f64, f64)> {
        let ((_, small_ms), (large, large_ms)) = self.extremes()?;
        Some((small_ms, (large_ms / large).max(1e-3)))
    }

    /// Milliseconds that a chunk of `tasks` tasks is expected to take; `None` while start and tasks cannot be told apart.
    pub fn expected_ms(&self, tasks: u32) -> Option<f64> {
        self.start_and_task_ms().map(|(start_ms, task_ms)| start_ms + task_ms * f64::from(tasks))
    }

    /// A chunk of `tasks` tasks began.
    pub fn began(&mut self, tasks: u32, now_ms: f64) -> ChunkEnd {
        let at_ms = now_ms + self.expected_ms(tasks).unwrap_or(0.0);
        let is_last = at_ms > now_ms && at_ms - now_ms >= NEARLY_ALL * (self.all_end_ms - now_ms);
        self.ends_ms += at_ms;
        self.last_ones += u32::from(is_last);
        ChunkEnd { at_ms, is_last }
    }

    /// A chunk of which that was expected ended.
    pub fn ended(&mut self, expected: ChunkEnd) {
        self.ends_ms -= expected.at_ms;
        self.last_ones -= u32::from(expected.is_last);
    }

    /// How many tasks go into the next chunk.
    pub fn next(&mut self, size: ChunkSize, left: &LeftToRun) -> u32 {
        self.formed = self.formed.wrapping_add(1);
        // Workers that have room at the same time get theirs one after the other.
        self.most_running = (self.most_running - MOST_DECAY).max(f64::from(left.running) + 1.0);
        let fitted = self.start_and_task_ms();
        self.all_end_ms = fitted.map_or(0.0, |fitted| left.now_ms + self.together_ms(fitted, left));
        self.size_of_next(size, left)
    }

    /// Milliseconds until all that is left would end, if what runs goes on and the rest is divided so that all slots end
    /// together. Each slot has one more start, but for those whose last chunk runs.
    fn together_ms(&self, (start_ms, task_ms): (f64, f64), left: &LeftToRun) -> f64 {
        let running = f64::from(left.running);
        let running_ms = (self.ends_ms - running * left.now_ms).max(0.0);
        let slots = self.most_running.max(running + 1.0);
        let starts = (slots - f64::from(self.last_ones)).max(1.0);
        (running_ms + f64::from(left.ready) * task_ms + starts * start_ms) / slots
    }

    fn size_of_next(&self, size: ChunkSize, left: &LeftToRun) -> u32 {
        let (first, target_ms) = match size {
            ChunkSize::Fixed(tasks) => return tasks,
            ChunkSize::Learned { first, target_ms } => (first.max(1), target_ms),
        };
        // While start and tasks cannot be told apart, chunks grow as fast as is safe if starts took no time.
        let fitted = self.start_and_task_ms();
        let Some((start_ms, task_ms)) = fitted.or_else(|| self.bounds_ms()) else {
            let small_known = self.known().next().is_some_and(|size| size.means().0 <= f64::from(first));
            let small = self.formed.is_multiple_of(2) && !small_known;
            return if small { first } else { first.saturating_mul(PROBE) };
        };
        let part_ms = if fitted.is_some() { start_ms } else { 0.0 };
        let within = |ms: f64| ((ms - part_ms) / task_ms).max(1.0);
        let mut tasks = match target_ms {
            Some(ms) => within(ms as f64),
            None => (start_ms * (START_PART - 1.0) / task_ms).max(1.0),
        };
        // All should end together: no chunk lasts longer than all that is left does on all that run. The less
        // expectations are right, the more is kept back for a later chunk. But no start takes longer than what it starts.
        let together_ms = self.together_ms((part_ms, task_ms), left);
        let share = within(together_ms) / (1.0 + self.error / ERROR_AT_FIRST);
        tasks = tasks.min(share.max(start_ms / task_ms).max(1.0));
        if let Some(limit_ms) = left.limit_ms {
            tasks = tasks.min(within(limit_ms as f64 / 2.0));
        }
        // Not one more for an error of rounding.
        libm::ceil(tasks - 1e-6).min(f64::from(bounds::CHUNK_TASKS_MAX)) as u32
    }

    /// Milliseconds that the next chunk is expected to take; `None` while start and tasks cannot be told
    /// apart.
    pub fn expected_next_ms(&self, size: ChunkSize, left: &LeftToRun) -> Option<f64> {
        self.expected_ms(self.size_of_next(size, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AUTO: ChunkSize = ChunkSize::Learned { first: 1, target_ms: None };

    fn known(start_ms: f64, task_ms: f64) -> ChunkLengths {
        let mut lengths = ChunkLengths::default();
        for tasks in [1_u32, 4, 400, 1, 4, 400] {
            lengths.learn(tasks, start_ms + f64::from(tasks) * task_ms);
        }
        // As often as it takes until expectations are known to be right.
        (0..200).for_each(|_| lengths.learn(400, start_ms + 400.0 * task_ms));
        lengths
    }

    fn left(ready: u32, running: u32, limit_ms: Option<u64>) -> LeftToRun {
        LeftToRun { now_ms: 0.0, ready, running, limit_ms }
    }

    #[test]
    fn a_start_takes_little_of_a_chunk_and_the_last_ones_end_together() {
        let mut lengths = known(1_000.0, 20.0);
        let (start_ms, task_ms) = lengths.start_and_task_ms().expect("sizes that tell were seen");
        assert!((start_ms - 1_000.0).abs() < 1e-6 && (task_ms - 20.0).abs() < 1e-6);
        assert_eq!(lengths.next(AUTO, &left(1_000_000, 1, None)), 950, "19 times the start");
        assert_eq!(lengths.next(AUTO, &left(1_000, 9, None)), 100, "a tenth of what is left");
        let long = lengths.began(1_950, 0.0);
        assert_eq!(
            lengths.next(AUTO, &left(1_000, 9, None)),
            295,
            "one of ten runs for 40 s, and needs no start"
        );
        lengths.ended(long);
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
        assert_eq!(sizes, [4, 1, 4, 1]);
        lengths.learn(1, 1_000.0);
        assert_eq!(lengths.next(AUTO, &left(1_000, 0, None)), 4, "the smaller one is known");
    }

    #[test]
    fn sizes_grow_until_their_times_tell_the_start_from_the_tasks() {
        let mut lengths = ChunkLengths::default();
        // Noise makes four tasks look shorter than one.
        lengths.learn(1, 1_100.0);
        lengths.learn(4, 1_000.0);
        assert_eq!(lengths.start_and_task_ms(), None);
        let size = lengths.next(AUTO, &left(1_000_000, 1, None));
        assert_eq!(size, 84, "20 times what the shortest took, if four took no start");
        lengths.learn(size, 1_000.0 + 84.0 * 20.0);
        let (_, task_ms) = lengths.start_and_task_ms().expect("it took more than twice as long");
        assert!((task_ms - 20.0).abs() < 2.0, "{task_ms}");
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
