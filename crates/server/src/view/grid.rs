//! The tasks of a job as runs of states, in order of their index. The cost follows runs, not tasks.

use std::iter::Peekable;
use std::ops::Range;
use windlass_api::figures::{GridRun, TaskGrid};
use windlass_core::JobId;
use windlass_core::engine::Engine;
use windlass_core::job::{JobRecord, JobSpec, TaskState, unstarted_state};
use windlass_core::ranges::RangeSet;

/// Runs of one answer.
const RUNS_MAX: usize = 50_000;

/// Tasks in one state, by index, each index once and in order.
type Source<'a> = Peekable<Box<dyn Iterator<Item = (Range<u32>, char)> + 'a>>;

/// The grid of a job that the engine holds, from a task on; `None` if it does not hold it.
pub fn active_grid(engine: &Engine, id: JobId, from: u32) -> Option<TaskGrid> {
    let job = engine.job(id)?;
    let mut grid = GridBuilder::new(&job.spec, from);
    let is_over = job.stop.is_some() || job.ended.is_some();
    let rest = if is_over { letter(unstarted_state(job.stop)) } else { 'b' };
    for (step, spec) in job.steps.iter().zip(&job.spec.steps) {
        let tasks = step.base..step.base + spec.tasks;
        let start = from.max(tasks.start);
        if tasks.end <= from {
            continue;
        }
        let attempts = engine.attempts_from(id, start).map(|(task, attempt)| {
            (task.index..task.index + 1, if attempt.started.is_some() { 'r' } else { 'p' })
        });
        let end = tasks.end;
        let attempts = attempts.take_while(move |(task, _)| task.end <= end);
        let mut sources: Vec<Source<'_>> = vec![boxed(attempts)];
        let mut sets = vec![(&step.succeeded, 's'), (&step.failed, 'f'), (&step.canceled, 'c')];
        if !is_over && job.after.is_empty() {
            sets.push((&step.ready, 'w'));
        }
        sources.extend(
            sets.into_iter()
                .map(|(set, letter)| boxed(set.ranges_from(start).map(move |range| (range, letter)))),
        );
        if !grid.cover(end, sources, rest) {
            break;
        }
    }
    Some(grid.finish())
}

/// The grid of a parked job, whose tasks are as they were submitted.
pub fn parked_grid(spec: &JobSpec, from: u32) -> TaskGrid {
    let mut grid = GridBuilder::new(spec, from);
    let mut end = 0;
    for step in &spec.steps {
        end += step.tasks;
        grid.push(end, if step.depends.is_empty() { 'w' } else { 'b' });
    }
    grid.finish()
}

pub fn ended_grid(record: &JobRecord, from: u32) -> TaskGrid {
    let mut grid = GridBuilder::new(&record.spec, from);
    let mut ended: Vec<(Range<u32>, char)> =
        record.ended.iter().map(|ended| (ended.tasks.clone(), letter(ended.state))).collect();
    let mut canceled = record.cancels.clone();
    for (tasks, _) in &ended {
        canceled.subtract(&RangeSet::from_range(tasks.clone()));
    }
    ended.extend(canceled.ranges().map(|tasks| (tasks, letter(TaskState::Canceled))));
    ended.sort_by_key(|(tasks, _)| tasks.start);
    let end = grid.grid.tasks;
    grid.cover(end, vec![boxed(ended.into_iter())], letter(unstarted_state(record.stop)));
    grid.finish()
}

fn boxed<'a>(source: impl Iterator<Item = (Range<u32>, char)> + 'a) -> Source<'a> {
    let source: Box<dyn Iterator<Item = (Range<u32>, char)> + 'a> = Box::new(source);
    source.peekable()
}

fn letter(state: TaskState) -> char {
    match state {
        TaskState::Waiting => 'b',
        TaskState::Ready => 'w',
        TaskState::Booked => 'p',
        TaskState::Running => 'r',
        TaskState::Succeeded => 's',
        TaskState::Failed => 'f',
        TaskState::Canceled => 'c',
        TaskState::Skipped => 'l',
    }
}

struct GridBuilder {
    grid: TaskGrid,
    /// The first task that no run has.
    at: u32,
}

impl GridBuilder {
    fn new(spec: &JobSpec, from: u32) -> GridBuilder {
        let tasks = spec.steps.iter().map(|step| step.tasks).sum();
        GridBuilder { grid: TaskGrid { tasks, from, runs: Vec::new(), next: None }, at: from }
    }

    /// Covers the tasks up to `end` with what the sources say, which have each task at most once, and the others with
    /// `rest`. False if there is no room for more runs.
    fn cover(&mut self, end: u32, mut sources: Vec<Source<'_>>, rest: char) -> bool {
        loop {
            let starts = sources.iter_mut().enumerate();
            let first = starts.filter_map(|(n, source)| Some((source.peek()?.0.start, n))).min();
            let Some((range, letter)) = first.and_then(|(_, n)| sources[n].next()) else { break };
            if !(self.push(range.start, rest) && self.push(range.end, letter)) {
                return false;
            }
        }
        self.push(end, rest)
    }

    /// Covers the tasks up to `end`. False if there is no room for the run.
    fn push(&mut self, end: u32, letter: char) -> bool {
        let Some(tasks) = end.checked_sub(self.at).filter(|tasks| *tasks > 0) else { return true };
        let runs = &mut self.grid.runs;
        let is_full = runs.len() == RUNS_MAX;
        match runs.last_mut() {
            Some(GridRun(last, before)) if *last == letter => *before += tasks,
            _ if is_full => return false,
            _ => runs.push(GridRun(letter, tasks)),
        }
        self.at = end;
        true
    }

    fn finish(mut self) -> TaskGrid {
        self.grid.next = Some(self.at).filter(|next| *next < self.grid.tasks);
        self.grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use windlass_core::job::{EndedTasks, JobState, StepSpec};
    use windlass_core::{Time, job::Stop};

    fn record(tasks: u32, stop: Option<Stop>, ended: Vec<EndedTasks>) -> JobRecord {
        let spec = JobSpec { steps: vec![StepSpec { tasks, ..StepSpec::default() }], ..JobSpec::default() };
        let record = JobRecord::new(JobId(1), Arc::new(spec), Time(1));
        JobRecord { state: JobState::Failed, stop, ended, ..record }
    }

    fn ended(tasks: Range<u32>, state: TaskState) -> EndedTasks {
        EndedTasks { tasks, state, tries: Default::default() }
    }

    fn letters(grid: &TaskGrid) -> String {
        grid.runs.iter().flat_map(|GridRun(letter, tasks)| (0..*tasks).map(move |_| *letter)).collect()
    }

    #[test]
    fn a_job_that_ended_is_shown_with_what_never_started() {
        let ends = vec![ended(4..6, TaskState::Failed), ended(0..3, TaskState::Succeeded)];
        let grid = ended_grid(&record(8, Some(Stop::Canceled), ends.clone()), 0);
        assert_eq!((letters(&grid).as_str(), grid.next), ("ssscffcc", None));
        let grid = ended_grid(&record(8, None, ends), 5);
        assert_eq!((letters(&grid).as_str(), grid.from, grid.tasks), ("fll", 5, 8));
        let ends = vec![ended(0..3, TaskState::Succeeded)];
        let job = JobRecord { cancels: RangeSet::from_range(2..5), ..record(8, None, ends) };
        assert_eq!(letters(&ended_grid(&job, 0)), "ssscclll");
    }

    #[test]
    fn a_part_has_no_more_runs_than_it_may_and_says_where_to_go_on() {
        let every_other = |n: u32| ended(2 * n..2 * n + 1, TaskState::Failed);
        let job = record(200_000, None, (0..100_000).map(every_other).collect());
        let (mut from, mut all, mut parts) = (0, String::new(), 0);
        loop {
            let grid = ended_grid(&job, from);
            assert!(grid.runs.len() <= RUNS_MAX);
            all += &letters(&grid);
            parts += 1;
            match grid.next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!((all.len(), parts), (200_000, 4));
        assert!(all.chars().enumerate().all(|(n, letter)| letter == if n % 2 == 0 { 'f' } else { 'l' }));
    }

    proptest! {
        #[test]
        fn runs_say_of_each_task_what_its_range_says(cuts in prop::collection::btree_set(0u32..100, 0..20),
                                                     from in 0u32..120) {
            let cuts: Vec<u32> = cuts.into_iter().collect();
            let ends: Vec<EndedTasks> =
                cuts.chunks_exact(2).map(|cut| ended(cut[0]..cut[1], TaskState::Succeeded)).collect();
            let expected: String = (from..100)
                .map(|n| if ends.iter().any(|ended| ended.tasks.contains(&n)) { 's' } else { 'l' })
                .collect();
            let grid = ended_grid(&record(100, None, ends), from);
            prop_assert_eq!(letters(&grid), expected);
            prop_assert!(grid.runs.windows(2).all(|pair| pair[0].0 != pair[1].0));
        }
    }
}
