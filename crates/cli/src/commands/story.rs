//! The story of a job's tasks, in which each start and each end is told once. Events come from one server after
//! another. Some are missed, and some repeat the state that was read between them.

use std::collections::BTreeMap;
use windlass_api::{Task, TaskEvent, TaskState};
use windlass_core::ranges::RangeSet;

/// How far an attempt has come, as it is told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// The program of the task runs.
    Started,
    /// It is over, and the task will be tried again.
    Over,
    /// It is over, and so is the task.
    Ended,
}

/// How far a task has come: its attempt, and that one's stage. A task only goes on, so the greater is the later.
type Mark = (u32, Stage);

/// The news in a task's state that were not told before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// Its last attempt has started.
    pub started: bool,
    /// The task has ended.
    pub ended: bool,
}

/// The story of each task so far. Of the many tasks that ended in their first attempt only the numbers are kept.
#[derive(Debug, Default)]
pub struct Story {
    ended_at_first: RangeSet,
    others: BTreeMap<u32, Mark>,
    skipped: RangeSet,
    /// Tasks of `others` that have ended.
    others_ended: u32,
}

impl Story {
    /// Takes an event in; true if it says something new.
    pub fn take_event(&mut self, event: &TaskEvent) -> bool {
        match event.state {
            // It has no attempt that could tell it from an earlier one.
            TaskState::Skipped => self.skipped.insert(event.index),
            state => self.advance(event.index, (event.attempt, stage_of(state))),
        }
    }

    /// Takes a task in as a list has it.
    pub fn take_task(&mut self, task: &Task) -> News {
        let attempt = task.attempt.attempt;
        let has_started = task.state == TaskState::Running || task.attempt.started_ms.is_some();
        let mut news = News::default();
        if task.state == TaskState::Running || (task.state.is_end() && task.state != TaskState::Skipped) {
            news.started = has_started && self.advance(task.index, (attempt, Stage::Started));
            news.ended = task.state.is_end() && self.advance(task.index, (attempt, Stage::Ended));
        }
        news
    }

    /// How many tasks are known to have ended, without those that were skipped.
    pub fn ended(&self) -> u32 {
        self.ended_at_first.len() + self.others_ended
    }

    fn mark(&self, index: u32) -> Option<Mark> {
        match self.others.get(&index) {
            Some(mark) => Some(*mark),
            None => self.ended_at_first.contains(index).then_some((1, Stage::Ended)),
        }
    }

    /// Notes that a task has come so far; true if that is further than was known.
    fn advance(&mut self, index: u32, mark: Mark) -> bool {
        let known = self.mark(index);
        if known >= Some(mark) {
            return false;
        }
        let before = self.others.remove(&index);
        self.others_ended -= u32::from(before.is_some_and(|(_, stage)| stage == Stage::Ended));
        self.ended_at_first.remove(index);
        match mark {
            (1, Stage::Ended) => _ = self.ended_at_first.insert(index),
            (_, stage) => {
                self.others_ended += u32::from(stage == Stage::Ended);
                self.others.insert(index, mark);
            }
        }
        true
    }
}

fn stage_of(state: TaskState) -> Stage {
    match state {
        TaskState::Running => Stage::Started,
        state if state.is_end() => Stage::Ended,
        _ => Stage::Over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_api::Attempt;

    /// A change of a task: its index, the attempt, and its state.
    type Change = (u32, u32, TaskState);

    fn event((index, attempt, state): Change) -> TaskEvent {
        TaskEvent { index, state, attempt, exit_code: None, out_bytes: 0, err_bytes: 0 }
    }

    fn listed((index, attempt, state): Change) -> Task {
        let started_ms = (attempt > 0).then_some(1);
        Task {
            expected_end_ms: None,
            id: format!("1.{index}"),
            job: 1,
            index,
            step: "main".to_owned(),
            value: None,
            state,
            progress: None,
            status: None,
            jobserver: None,
            attempt: Attempt { attempt, started_ms, ..Attempt::default() },
            failure: None,
            history: Vec::new(),
        }
    }

    /// What tasks do, each by itself: some attempts that are tried again, then an end.
    fn histories() -> impl Strategy<Value = Vec<Change>> {
        let one = (0u32..3, prop_oneof![Just(TaskState::Succeeded), Just(TaskState::Failed)]);
        prop::collection::vec((one, any::<u64>()), 1..8).prop_map(|tasks| {
            let mut all: Vec<(u64, Change)> = Vec::new();
            for (index, ((retries, end), seed)) in tasks.into_iter().enumerate() {
                let index = index as u32;
                // The changes of a task are in order, and those of several are mixed.
                let mut at = seed % 16;
                for attempt in 1..=retries + 1 {
                    let over = if attempt > retries { end } else { TaskState::Ready };
                    for state in [TaskState::Running, over] {
                        all.push((at, (index, attempt, state)));
                        at += 1 + (seed >> (4 * attempt)) % 7;
                    }
                }
            }
            all.sort_by_key(|(at, _)| *at);
            all.into_iter().map(|(_, change)| change).collect()
        })
    }

    /// The state of all tasks after the first changes.
    fn state_after(changes: &[Change]) -> Vec<Task> {
        let latest: BTreeMap<u32, Change> = changes.iter().map(|change| (change.0, *change)).collect();
        latest.into_values().map(listed).collect()
    }

    proptest! {
        /// Streams are cut anywhere. The next server may be behind, and repeat what the one before said; and the state is
        /// read while events come.
        #[test]
        fn each_start_and_each_end_is_told_once(
            changes in histories(),
            cuts in prop::collection::vec((0usize..12, 0usize..6, 0usize..6), 0..8),
        ) {
            let (mut story, mut told, mut heard) = (Story::default(), Vec::new(), 0usize);
            let last = (changes.len(), 0, 0);
            for (heard_more, behind, missed) in cuts.into_iter().chain([last]) {
                let end = changes.len();
                let from = (heard + missed).min(end).saturating_sub(behind);
                let read = (heard + missed).min(end).max(from);
                for task in state_after(&changes[..read]) {
                    let (index, attempt, state) = (task.index, task.attempt.attempt, task.state);
                    let News { started, ended } = story.take_task(&task);
                    told.extend(started.then_some((index, attempt, TaskState::Running)));
                    told.extend(ended.then_some((index, attempt, state)));
                }
                heard = (read + heard_more).min(end);
                told.extend(changes[from..heard].iter().copied().filter(|change| story.take_event(&event(*change))));
            }
            let mut once = told.clone();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), told.len(), "told twice: {:?}", told);
            for task in state_after(&changes) {
                let of_it: Vec<_> = told.iter().filter(|(index, ..)| *index == task.index).collect();
                let last = [
                    (task.index, task.attempt.attempt, TaskState::Running),
                    (task.index, task.attempt.attempt, task.state),
                ];
                prop_assert!(of_it.ends_with(&[&last[0], &last[1]]), "{:?}", of_it);
                prop_assert!(of_it.is_sorted_by_key(|(_, attempt, _)| *attempt), "{:?}", of_it);
            }
            prop_assert_eq!(story.ended() as usize, state_after(&changes).len());
        }
    }

    #[test]
    fn a_task_that_is_retried_ends_a_second_time() {
        let mut story = Story::default();
        assert!(story.take_event(&event((0, 1, TaskState::Failed))));
        assert_eq!(story.ended(), 1);
        assert!(story.take_event(&event((0, 2, TaskState::Running))));
        assert_eq!(story.ended(), 0);
        assert!(!story.take_event(&event((0, 1, TaskState::Failed))), "a server that is behind");
        assert!(story.take_event(&event((0, 2, TaskState::Succeeded))));
        assert_eq!(story.ended(), 1);
    }

    #[test]
    fn a_task_that_never_started_ends_once_and_may_start_later() {
        let mut story = Story::default();
        let canceled = listed((3, 0, TaskState::Canceled));
        assert_eq!(story.take_task(&canceled), News { started: false, ended: true });
        assert_eq!(story.take_task(&canceled), News::default());
        assert!(story.take_event(&event((3, 1, TaskState::Running))));
    }

    #[test]
    fn waiting_and_skipped_tasks_are_no_news() {
        let mut story = Story::default();
        for state in [TaskState::Waiting, TaskState::Ready, TaskState::Booked, TaskState::Skipped] {
            assert_eq!(story.take_task(&listed((0, 0, state))), News::default(), "{state:?}");
        }
        assert!(story.take_event(&event((0, 0, TaskState::Skipped))));
        assert!(!story.take_event(&event((0, 0, TaskState::Skipped))));
        assert_eq!(story.ended(), 0);
    }
}
