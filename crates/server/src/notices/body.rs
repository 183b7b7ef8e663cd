//! What a notice says. The text is kept with the notice, so that it tells of the end that was its reason, even if the job
//! was retried since. What is read later, such as how the first failed task ended, is added when the notice is sent.

use serde::{Deserialize, Serialize};
use windlass_api::{Attempt, Counts, JobState};
use windlass_core::TaskId;
use windlass_core::job::TaskResult;

/// Bytes of a task's message that a notice repeats.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// What happened. In JSON the field `event` says which.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum NoticeBody {
    /// A job ended, in one of three states.
    JobEnded(Box<JobNotice>),
    /// A worker's lease ran out.
    WorkerLost(WorkerNotice),
}

/// A job that ended. Times are in milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct JobNotice {
    pub job: u64,
    pub name: String,
    pub user: String,
    pub queue: String,
    pub state: JobState,
    pub counts: Counts,
    pub submitted_ms: u64,
    /// The first start among the last attempts of its first tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    pub ended_ms: u64,
    /// The first task that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureNotice>,
    /// Its page of the board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// How a task failed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct FailureNotice {
    pub task: String,
    /// How its last attempt ended, in a word of the interface, such as `time_limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why, in the words of the task or of its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A worker whose lease ran out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerNotice {
    pub worker: String,
    pub lost_ms: u64,
}

/// A notice as it is sent.
#[derive(Serialize)]
struct Sent<'a> {
    /// The same each time that it is sent.
    id: &'a str,
    #[serde(flatten)]
    body: &'a NoticeBody,
}

impl NoticeBody {
    /// As it is kept.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always serialize")
    }

    /// As it was kept; `None` of a text of another release.
    pub fn from_text(text: &str) -> Option<NoticeBody> {
        serde_json::from_str(text).ok()
    }

    /// The JSON that a webhook gets.
    pub fn to_send(&self, id: &str) -> String {
        serde_json::to_string(&Sent { id, body: self }).expect("strings and numbers always serialize")
    }

    /// A line for people: what happened.
    pub fn subject(&self) -> String {
        match self {
            NoticeBody::JobEnded(job) => {
                format!("windlass: job {} ({}) {}", job.job, job.name, said(job.state))
            }
            NoticeBody::WorkerLost(lost) => format!("windlass: worker {} is lost", lost.worker),
        }
    }

    /// The text for people, line by line.
    pub fn lines(&self) -> Vec<String> {
        let job = match self {
            NoticeBody::JobEnded(job) => job,
            NoticeBody::WorkerLost(lost) => {
                return vec![format!(
                    "Worker {} was not heard until its lease ran out. Its tasks run again elsewhere.",
                    lost.worker
                )];
            }
        };
        let Counts { total, succeeded, failed, canceled, skipped, .. } = job.counts;
        let tasks = if total == 1 { "task" } else { "tasks" };
        let mut lines = vec![
            format!("Job {} ({}) {}.", job.job, job.name, said(job.state)),
            format!("User {}, queue {}.", job.user, job.queue),
            format!(
                "Of {total} {tasks} {succeeded} succeeded, {failed} failed, {canceled} were cancelled and {skipped} \
                 skipped."
            ),
        ];
        if let Some(failure) = &job.failure {
            lines.push(failure.line());
        }
        lines.extend(job.url.clone());
        lines
    }
}

fn said(state: JobState) -> &'static str {
    match state {
        JobState::Canceled => "was cancelled",
        state => state.as_str(),
    }
}

impl FailureNotice {
    /// A task that failed, of which nothing else is known.
    pub fn of(task: TaskId) -> FailureNotice {
        FailureNotice { task: task.to_string(), end: None, exit_code: None, message: None }
    }

    /// Adds how its last attempt ended.
    pub fn tell(&mut self, result: &TaskResult) {
        let attempt = Attempt::default().with_result(result);
        self.end = attempt.end.map(|end| end.as_str().to_owned());
        self.exit_code = attempt.exit_code;
        self.message = attempt.message.map(|message| beginning(message, MESSAGE_BYTES_MAX));
    }

    fn line(&self) -> String {
        let mut line = format!("Task {} failed first", self.task);
        match (self.end.as_deref(), self.exit_code) {
            (Some("exited"), Some(code)) => line.push_str(&format!(": exit code {code}")),
            (Some(end), _) => line.push_str(&format!(": {}", end.replace('_', " "))),
            (None, _) => {}
        }
        if let Some(message) = &self.message {
            line.push_str(&format!(", {message}"));
        }
        line
    }
}

/// The beginning of a text, cut between characters.
fn beginning(mut text: String, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}
