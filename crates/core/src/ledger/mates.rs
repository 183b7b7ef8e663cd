//! Tasks that start together, and tasks that share a process.

use super::{Attempt, Ledger};
use crate::ids::{StepKey, TaskId};
use crate::plan::TogetherPart;

impl Ledger {
    /// The step that leads the gangs of another one; `None` of a step that stands in its queue itself.
    pub(crate) fn leader_of(&self, key: StepKey) -> Option<StepKey> {
        let step = self.jobs.get(&key.job)?.spec.steps.get(usize::from(key.step))?.with?;
        Some(StepKey { step, ..key })
    }

    /// The next tasks that the step's turn starts together, by step.
    pub(crate) fn next_gang(&self, leader: StepKey) -> Option<Vec<TogetherPart>> {
        let job = self.jobs.get(&leader.job)?;
        let tasks = job.next_gang(leader.step.into())?;
        let parts = job.gang_steps(leader.step.into()).map(|step| TogetherPart {
            step: StepKey { step: step as u16, ..leader },
            tasks: tasks.iter().filter(|task| task.step == step).map(|task| task.index).collect(),
        });
        Some(parts.filter(|part| !part.tasks.is_empty()).collect())
    }

    /// The tasks that ride with a booked one, whose `attempt` this is, each with its attempt's number. One start carries
    /// them all, so its number tells them from those of another process.
    pub(crate) fn riders_of(&self, head: TaskId, attempt: &Attempt) -> Vec<(u32, u32)> {
        let range =
            TaskId { index: head.index.saturating_add(1), ..head }..=TaskId { index: attempt.last, ..head };
        if attempt.rides || range.is_empty() {
            return Vec::new();
        }
        let with_it =
            |rider: &Attempt| rider.rides && rider.worker == attempt.worker && rider.seq == attempt.seq;
        let riders = self.attempts.range(range).filter(|(_, rider)| with_it(rider));
        riders.map(|(task, rider)| (task.index, rider.number)).collect()
    }

    /// True if the task with which this one rides is booked.
    pub(crate) fn has_head(&self, task: TaskId, rider: &Attempt) -> bool {
        let mut before = self.attempts.range(TaskId { index: 0, ..task }..task).rev();
        let head = before.find(|(_, attempt)| !attempt.rides).map(|(_, attempt)| attempt);
        head.is_some_and(|head| {
            (head.worker, head.seq, head.booked) == (rider.worker, rider.seq, rider.booked)
        })
    }

    /// Some that rode with a task are given back.
    pub(crate) fn shorten_chunk(&mut self, head: TaskId) {
        let Some(attempt) = self.attempts.get(&head) else { return };
        let last = self.riders_of(head, attempt).last().map_or(head.index, |(index, _)| *index);
        if let Some(attempt) = self.attempts.get_mut(&head) {
            attempt.last = last;
        }
    }
}
