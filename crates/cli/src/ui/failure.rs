//! Why tasks failed, as all commands say it.

use crate::ui::message::message;
use crate::ui::output::{count, fit};
use serde::Serialize;
use windlass_api::client::{Client, failures_of};
use windlass_api::{End, FailedTask, Failure, FailureGroup, Failures, Job, Task};
use windlass_core::explain::{Cause, SHORT_OF_MEMORY};

/// Characters of a task's value in one line.
const VALUE_CHARS_MAX: usize = 60;
/// Characters of a line of output that is quoted. `windlass logs` shows whole lines.
const QUOTED_CHARS_MAX: usize = 300;

/// Whether the last lines of failed tasks' standard error are quoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StderrLines {
    /// They are quoted, indented.
    Quoted,
    /// They are left out: the whole output stands above.
    Omitted,
}

/// A job for programs, with the failures of its tasks.
#[derive(Serialize)]
pub struct JobWithFailures<'a> {
    /// The job itself, whose fields stand beside `failures`.
    #[serde(flatten)]
    pub job: &'a Job,
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<Failures>,
}

impl<'a> JobWithFailures<'a> {
    /// Reads the failures of a job that has any.
    pub async fn read(client: &Client, job: &'a Job) -> JobWithFailures<'a> {
        JobWithFailures { job, failures: read_failures(client, job).await }
    }

    /// The failures as lines of text; empty of a job without.
    pub fn text(&self) -> String {
        self.failures.as_ref().map_or_else(String::new, |all| failures_text(all, StderrLines::Quoted))
    }
}

/// Why the tasks of a job failed; `None` where none did, or where the server does not say.
pub async fn read_failures(client: &Client, job: &Job) -> Option<Failures> {
    match job.counts.failed {
        0 => None,
        // It says more about an end that was told already: without it, the command has done what it was asked to.
        _ => failures_of(client, job.id).await.ok(),
    }
}

/// Says on standard error why the tasks of a job failed; nothing where none did.
pub async fn tell_failures(client: &Client, job: &Job, stderr: StderrLines) {
    if let Some(failures) = read_failures(client, job).await {
        let text = failures_text(&failures, stderr);
        if !text.is_empty() {
            message!("{}", text.trim_end());
        }
    }
}

/// Why the tasks of a job failed, as lines of text; empty where none did.
pub fn failures_text(failures: &Failures, stderr: StderrLines) -> String {
    let mut lines = Vec::new();
    if let ([one], 1) = (&*failures.groups, failures.failed) {
        lines.push(format!(
            "task {} failed{}: {}",
            id_of(&one.first),
            on_worker(&one.first),
            said(&one.first)
        ));
        lines.extend(details(&one.first.failure, stderr).into_iter().map(|line| format!("  {line}")));
    } else if failures.failed > 0 {
        lines.push(format!("{} failed:", count(failures.failed.into(), "task")));
        for group in &failures.groups {
            let more = details(&group.first.failure, stderr);
            let end = if more.is_empty() { "" } else { ":" };
            lines.push(format!("  {}{end}", group_line(group)));
            lines.extend(more.into_iter().map(|line| format!("    {line}")));
        }
        if failures.other_tasks > 0 {
            lines.push(format!("  {} failed for other reasons", count(failures.other_tasks.into(), "task")));
        }
        if failures.not_looked_at > 0 {
            let rest = count(failures.not_looked_at.into(), "more failed task");
            lines.push(format!("  {rest} were not looked at"));
        }
        lines.push(format!("  to see all: windlass logs --failed {}", failures.job));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// `2 x exit code 4, first 22.2 on box2`.
fn group_line(group: &FailureGroup) -> String {
    let workers = match group.workers {
        0 | 1 => String::new(),
        workers => format!(" on {workers} workers"),
    };
    let first = if group.tasks > 1 { "first " } else { "" };
    let (summary, task) = (fit(&group.summary, None), id_of(&group.first));
    format!("{} x {summary}{workers}, {first}{task}{}", group.tasks, on_worker(&group.first))
}

/// What is known of a failure beside its sentence: the task's own words, the end of its standard error, and what to do.
pub fn details(failure: &Failure, stderr: StderrLines) -> Vec<String> {
    // How much a task held that memory was too short for, nobody says but Windlass.
    let said = if failure.cause.0 == Cause::OutOfMemory { "" } else { "it said: " };
    let mut lines: Vec<String> =
        failure.message.iter().map(|message| format!("{said}{}", fit(message, None))).collect();
    if stderr == StderrLines::Quoted {
        lines.extend(failure.stderr.iter().map(|line| fit(line, Some(QUOTED_CHARS_MAX))));
    }
    lines.extend(failure.advice.iter().map(|advice| format!("to do: {}", fit(advice, None))));
    lines
}

/// The id of a task, with its value where it has one.
fn id_of(first: &FailedTask) -> String {
    format!("{}{}", first.task, in_brackets(first.value.as_deref()))
}

fn in_brackets(value: Option<&str>) -> String {
    value.map(|value| format!(" ({})", fit(value, Some(VALUE_CHARS_MAX)))).unwrap_or_default()
}

fn on_worker(first: &FailedTask) -> String {
    first.worker.as_ref().map(|name| format!(" on {}", fit(name, None))).unwrap_or_default()
}

fn said(first: &FailedTask) -> String {
    format!("{}{}", fit(&first.failure.summary, None), in_attempt(first.attempt))
}

fn in_attempt(attempt: u32) -> String {
    if attempt > 1 { format!(" (attempt {attempt})") } else { String::new() }
}

/// That an earlier attempt of a task lost a process because memory was short, and what it held. `None` of one that
/// ended otherwise, and of a task from a list, which has no earlier attempts.
pub fn shortage(task: &Task, attempt: u32) -> Option<String> {
    let earlier = task.history.iter().find(|earlier| earlier.attempt == attempt && !earlier.late)?;
    let held = earlier.message.as_ref().filter(|_| earlier.end == Some(End::Oom))?;
    Some(format!("{SHORT_OF_MEMORY}: {}", fit(held, None)))
}

/// A failed task in one line. `exit_code` is that of the event which told its end.
pub fn failed_line(task: &Task, exit_code: Option<i32>) -> String {
    let how = match &task.failure {
        Some(failure) => {
            let message = failure.message.iter().map(|message| format!(": {message}"));
            let advice = failure.advice.iter().map(|advice| format!("; {advice}"));
            let more: String = message.chain(advice).collect();
            fit(&format!("{}{more}", failure.summary), None)
        }
        // A server of an earlier release says its end alone.
        None => match (task.attempt.exit_code.or(exit_code), &task.attempt.message) {
            (_, Some(message)) => fit(message, None),
            (Some(code), None) => format!("exit code {code}"),
            (None, None) => {
                task.attempt.end.map_or("in an unknown way", windlass_api::End::as_str).to_owned()
            }
        },
    };
    let value = in_brackets(task.value.as_deref());
    format!("task {}{value} failed: {how}{}", task.id, in_attempt(task.attempt.attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::{Attempt, TaskState};

    fn first(task: &str, value: Option<&str>, summary: &str) -> FailedTask {
        FailedTask {
            task: task.to_owned(),
            step: "main".to_owned(),
            value: value.map(str::to_owned),
            attempt: 1,
            worker: Some("box2".to_owned()),
            finished_ms: None,
            failure: Failure {
                cause: Cause::ExitCode.into(),
                summary: summary.to_owned(),
                message: None,
                advice: None,
                stderr: Vec::new(),
            },
        }
    }

    fn group(tasks: u32, first: FailedTask) -> FailureGroup {
        FailureGroup {
            cause: first.failure.cause,
            summary: first.failure.summary.clone(),
            tasks,
            task_examples: vec![first.task.clone()],
            workers: 1,
            worker_examples: vec!["box2".to_owned()],
            first,
        }
    }

    #[test]
    fn failures_are_told_by_cause() {
        let mut exit = first("22.2", Some("a\nb"), "exit code 4");
        exit.failure.stderr = vec!["cc: \u{1b}[31merror".to_owned(), "no film".to_owned()];
        let mut oom = first("22.9", None, "over its memory limit of 2 GiB");
        oom.failure.advice = Some("ask for more memory: --memory 4GiB".to_owned());
        let many = FailureGroup { workers: 3, ..group(329, exit) };
        let failures = Failures {
            job: 22,
            failed: 340,
            groups: vec![many, group(1, oom)],
            other_tasks: 1,
            not_looked_at: 9,
            stopped: None,
        };
        assert_eq!(
            failures_text(&failures, StderrLines::Quoted),
            "340 tasks failed:\n  329 x exit code 4 on 3 workers, first 22.2 (a\\nb) on box2:\n    \
             cc: \\u{1b}[31merror\n    no film\n  1 x over its memory limit of 2 GiB, 22.9 on box2:\n    \
             to do: ask for more memory: --memory 4GiB\n  1 task failed for other reasons\n  \
             9 more failed tasks were not looked at\n  to see all: windlass logs --failed 22\n"
        );
        let shown = failures_text(&failures, StderrLines::Omitted);
        assert!(!shown.contains("no film") && shown.contains("--memory 4GiB"), "{shown}");
    }

    #[test]
    fn one_failed_task_needs_no_list() {
        let mut one = first("15.0", None, "exit code 4");
        (one.attempt, one.failure.message) = (3, Some("too dark".to_owned()));
        let failures = Failures { job: 15, failed: 1, groups: vec![group(1, one)], ..Failures::default() };
        assert_eq!(
            failures_text(&failures, StderrLines::Quoted),
            "task 15.0 failed on box2: exit code 4 (attempt 3)\n  it said: too dark\n"
        );
        assert_eq!(failures_text(&Failures::default(), StderrLines::Quoted), "");
    }

    fn task(attempt: Attempt, failure: Option<Failure>) -> Task {
        Task {
            id: "12.7".to_owned(),
            job: 12,
            index: 7,
            step: "main".to_owned(),
            value: Some("a\nb".to_owned()),
            progress: None,
            status: None,
            jobserver: None,
            expected_end_ms: None,
            state: TaskState::Failed,
            attempt,
            failure,
            history: Vec::new(),
        }
    }

    #[test]
    fn a_failed_task_is_told_in_one_line() {
        let mut failure = first("12.7", None, "exit code 3").failure;
        failure.advice = Some("give it more".to_owned());
        let attempt = Attempt { attempt: 2, ..Attempt::default() };
        assert_eq!(
            failed_line(&task(attempt, Some(failure)), None),
            "task 12.7 (a\\nb) failed: exit code 3; give it more (attempt 2)"
        );
    }

    #[test]
    fn what_a_build_held_before_it_runs_again_is_told_without_a_word_of_its_own() {
        let held = "it held 1.5 GiB of the 3 GiB of box2; it runs again with 1.9 GiB booked";
        let earlier = |attempt, end, late| Attempt {
            attempt,
            end: Some(end),
            late,
            message: Some(held.to_owned()),
            ..Attempt::default()
        };
        let mut of = task(Attempt { attempt: 4, ..Attempt::default() }, None);
        of.history =
            vec![earlier(1, End::Exited, false), earlier(3, End::Oom, true), earlier(3, End::Oom, false)];
        let told = format!("a process of it was killed because memory was short: {held}");
        assert_eq!([1, 2, 3].map(|attempt| shortage(&of, attempt)), [None, None, Some(told)]);
        let mut failure = first("12.7", None, SHORT_OF_MEMORY).failure;
        (failure.cause, failure.message) = (Cause::OutOfMemory.into(), Some("it held 2 GiB".to_owned()));
        assert_eq!(details(&failure, StderrLines::Quoted), ["it held 2 GiB"]);
    }

    #[test]
    fn an_earlier_release_says_less_and_nothing_is_made_up() {
        let line = |end, exit_code, code| {
            let attempt = Attempt { attempt: 1, end, exit_code, ..Attempt::default() };
            failed_line(&task(attempt, None), code)
        };
        assert_eq!(line(Some(End::Exited), Some(3), None), "task 12.7 (a\\nb) failed: exit code 3");
        assert_eq!(line(None, None, Some(4)), "task 12.7 (a\\nb) failed: exit code 4");
        assert_eq!(line(Some(End::Lost), None, None), "task 12.7 (a\\nb) failed: lost");
    }
}
