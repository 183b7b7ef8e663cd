//! The JSON of failures: how a task failed, and how the failed tasks of a job did, by cause.

use crate::word::CauseWord;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::explain::FailedAttempt;
use windlass_core::job as core;

/// How a task failed in its last attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// The cause in one word, for programs.
    pub cause: CauseWord,
    /// The cause as a sentence for people, such as `exit code 4`.
    pub summary: String,
    /// What the task itself said of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What to do about it; absent where only the output of the task can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The last lines of its standard error; absent in lists, where it wrote none, and while its worker is away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
}

/// A failed task, with its failure. What is not known is absent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailedTask {
    /// The task's id, `JOB.INDEX`.
    pub task: String,
    /// The name of its step.
    pub step: String,
    /// Its value, if the step has values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The number of the attempt that failed last, from 1.
    pub attempt: u32,
    /// Name of the worker of that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When the end of that attempt was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_ms: Option<u64>,
    /// How it failed, whose fields stand beside these.
    #[serde(flatten)]
    pub failure: Failure,
}

/// Failed tasks of one job with the same cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureGroup {
    /// The cause in one word, for programs.
    pub cause: CauseWord,
    /// The cause as a sentence for people, which all of these tasks have.
    pub summary: String,
    /// Number of these tasks.
    pub tasks: u32,
    /// Ids of the first of them.
    pub task_examples: Vec<String>,
    /// Number of workers on which they failed.
    pub workers: usize,
    /// Names of some of these workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worker_examples: Vec<String>,
    /// The first of these tasks, with the last lines of its standard error.
    pub first: FailedTask,
}

/// How the tasks of a job failed. The tasks of all groups, `other_tasks` and `not_looked_at` are `failed` together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Failures {
    /// Id of the job, unique on the farm.
    pub job: u64,
    /// Number of its failed tasks.
    pub failed: u32,
    /// Its failed tasks by cause, the most frequent cause first.
    pub groups: Vec<FailureGroup>,
    /// Failed tasks with causes that are not among the groups.
    #[serde(default)]
    pub other_tasks: u32,
    /// Failed tasks that were not looked at, because there are more than one request looks at.
    #[serde(default)]
    pub not_looked_at: u32,
    /// Why no further task of the job starts; absent if the job was not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// Why a job is where it is: how the first failed task of a failed one did, or why the first waiting task of another
/// waits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct JobReason {
    /// One word for programs: the `cause` of a failure, or the `reason` for which a task waits.
    pub word: String,
    /// A sentence for people.
    pub message: String,
}

impl Failure {
    /// The failure of an attempt, without its output.
    pub fn from_core(attempt: &FailedAttempt<'_>) -> Self {
        // The sentence has all that the worker said.
        let quotes =
            |end: &core::End| matches!(end, core::End::NotStarted { .. } | core::End::OutputsLost { .. });
        let result = attempt.result.filter(|result| !quotes(&result.end));
        Failure {
            cause: attempt.cause().into(),
            summary: attempt.summary(),
            message: result.and_then(|result| result.message.clone()),
            advice: attempt.advice(),
            stderr: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::explain::Cause;
    use windlass_core::job::{End, StepSpec, TaskResult};
    use windlass_core::{JobId, TaskId};

    fn failure(end: End) -> Failure {
        let result = TaskResult { message: Some("no film".to_owned()), ..TaskResult::bare(end) };
        let (task, step) = (TaskId { job: JobId(3), index: 1 }, StepSpec::default());
        Failure::from_core(&FailedAttempt { task, result: Some(&result), memory_bytes: None, step: &step })
    }

    #[test]
    fn the_fields_of_a_failure_stand_beside_those_of_its_task() {
        let first = FailedTask {
            task: "3.1".to_owned(),
            step: "main".to_owned(),
            value: None,
            attempt: 2,
            worker: Some("box2".to_owned()),
            finished_ms: Some(7),
            failure: Failure { stderr: vec!["dark".to_owned()], ..failure(End::Exited(4)) },
        };
        let group = FailureGroup {
            cause: Cause::ExitCode.into(),
            summary: "exit code 4".to_owned(),
            tasks: 1,
            task_examples: vec!["3.1".to_owned()],
            workers: 1,
            worker_examples: vec!["box2".to_owned()],
            first,
        };
        let failures = Failures { job: 3, failed: 1, groups: vec![group], ..Failures::default() };
        let told = serde_json::to_value(&failures).unwrap();
        let first = serde_json::json!({
            "task": "3.1", "step": "main", "attempt": 2, "worker": "box2", "finished_ms": 7,
            "cause": "exit_code", "summary": "exit code 4", "message": "no film", "stderr": ["dark"],
        });
        assert_eq!(told["groups"][0]["first"], first);
        assert_eq!(serde_json::from_value::<Failures>(told).unwrap(), failures);
    }

    #[test]
    fn what_a_worker_said_of_a_start_is_said_once() {
        let failure = failure(End::refused("cannot start 'x': No such file or directory (os error 2)"));
        assert_eq!(failure.cause, Cause::Program.into());
        assert!(failure.summary.contains("No such file") && failure.message.is_none(), "{failure:?}");
    }
}
