//! What people ask of jobs and tasks: cancel, retry, hold. Each question stays until it is answered.

use crate::commands::top::detail::Opened;
use crate::commands::top::message::{Deed, TaskVerb};
use crate::commands::top::rows::{JobRow, TaskRow};
use crate::commands::top::state::{Overlay, State};
use crate::ui::output::count;
use windlass_api::{JobState, TaskState};
use windlass_core::TaskId;

impl State {
    pub(super) fn ask_cancel(&mut self) {
        if let Some(task) = self.selected_task() {
            return self.ask_of_task(&task, TaskVerb::Cancel);
        }
        let Some(job) = self.selected_job() else { return };
        if job.state.is_end() {
            return self.say(format!("job {} has ended already", job.id));
        }
        let (running, others) = (job.counts.running, job.counts.waiting + job.counts.ready);
        let says = format!(
            "It kills {}, and gives up {}.",
            count(running.into(), "running task"),
            count(others.into(), "waiting task")
        );
        self.confirm(asked("Cancel", &job), says, Deed::Cancel(job.id));
    }

    pub(super) fn ask_retry(&mut self) {
        if let Some(task) = self.selected_task() {
            return self.ask_of_task(&task, TaskVerb::Retry);
        }
        let Some(job) = self.selected_job() else { return };
        let again = job.counts.failed + job.counts.canceled + job.counts.skipped;
        if again == 0 {
            return self.say(format!("job {} has no failed or cancelled task", job.id));
        }
        let says = format!("It runs {} again.", count(again.into(), "failed, cancelled or skipped task"));
        self.confirm(asked("Retry", &job), says, Deed::Retry(job.id));
    }

    pub(super) fn ask_hold(&mut self) {
        let Some(job) = self.selected_job() else { return };
        if job.state.is_end() {
            return self.say(format!("job {} has ended already", job.id));
        }
        match job.state == JobState::Held {
            true => {
                let says = "Its tasks may start again.".to_owned();
                self.confirm(asked("Release", &job), says, Deed::Release(job.id));
            }
            false => {
                let says = "It starts no task; running tasks go on.".to_owned();
                self.confirm(asked("Hold", &job), says, Deed::Hold(job.id));
            }
        }
    }

    /// The selected task of an open job.
    fn selected_task(&self) -> Option<TaskRow> {
        let detail = self.shown_detail().filter(|detail| matches!(detail.opened, Opened::Job(..)))?;
        detail.tasks.selected().cloned()
    }

    /// The open job, or the selected one of the list.
    fn selected_job(&self) -> Option<JobRow> {
        match self.shown_detail().map(|detail| &detail.opened) {
            Some(Opened::Job(_, job)) => job.as_ref().map(|job| JobRow::from((**job).clone())),
            Some(Opened::Worker(..)) => None,
            None => self.jobs.list.selected().cloned(),
        }
    }

    fn ask_of_task(&mut self, task: &TaskRow, verb: TaskVerb) {
        let Ok(id) = task.id.parse::<TaskId>() else { return };
        let is_over = task.state.is_some_and(TaskState::is_end);
        let is_unsuccessful = matches!(task.state, Some(TaskState::Failed | TaskState::Canceled));
        let (question, says) = match verb {
            TaskVerb::Cancel if is_over => return self.say(format!("task {id} has ended already")),
            TaskVerb::Retry if !is_unsuccessful => {
                return self.say(format!("task {id} neither failed nor was cancelled"));
            }
            TaskVerb::Cancel => (format!("Cancel task {id}?"), "What waits for it will be skipped."),
            TaskVerb::Retry => (format!("Retry task {id}?"), "It runs again."),
        };
        self.confirm(question, says.to_owned(), Deed::Task(id, verb));
    }

    fn confirm(&mut self, question: String, says: String, deed: Deed) {
        self.overlay = Some(Overlay::Confirm(vec![question, says], deed));
    }
}

fn asked(verb: &str, job: &JobRow) -> String {
    format!("{verb} job {} '{}' of {}?", job.id, job.name, job.user)
}
