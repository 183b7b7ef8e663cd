//! `windlass job show` and `windlass version`.

use crate::client::connect::connect_running;
use crate::client::context::Context;
use crate::commands::files::shown::{files_of, files_text};
use crate::commands::list::{counts, progress, resources};
use crate::commands::select::JobRef;
use crate::node::own;
use crate::ui::error::{CliError, Doing, UNREACHABLE};
use crate::ui::failure::{JobWithFailures, shortage};
use crate::ui::fields::FieldLines;
use crate::ui::output::{Format, count, cpus, paint, print_one};
use crate::ui::quantity::{elapsed, exact, moment};
use crate::ui::shell::quoted;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use windlass_api::client::{Client, TasksQuery};
use windlass_api::{By, Hints, Job, JobFiles, JobState, Jobserver, Kind, NoticeFailure, Step, Task, Version};
use windlass_core::resources::Bytes;

/// Shows one job in detail.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The job: 12, or last
    job: JobRef,
}

/// Most cache keys of a step that are shown to people.
const CACHES_SHOWN_MAX: usize = 5;
/// Most running tasks whose progress is shown.
const PROGRESS_LINES_MAX: usize = 20;

/// A job with what is told beside its own fields.
#[derive(Serialize)]
struct JobWithFiles<'a> {
    #[serde(flatten)]
    told: JobWithFailures<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<JobFiles>,
}

/// Runs the command `windlass job show`.
pub async fn job(context: &Context, args: &ShowArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let id = args.job.resolve(&client).await?;
    let job = client.job(id).await.doing(format_args!("show job {id}"))?;
    let query =
        TasksQuery { state: Some("running".to_owned()), limit: Some(PROGRESS_LINES_MAX), cursor: None };
    let running = match context.format {
        Format::Table => {
            client.tasks(id, &query).await.doing(format_args!("list the tasks of job {id}"))?.items
        }
        Format::Json | Format::Jsonl | Format::Name => Vec::new(),
    };
    let told = JobWithFailures::read(&client, &job).await;
    let shown = JobWithFiles { told, files: files_of(&client, id).await };
    let again = again_text(&client, &running).await?;
    let text = |shown: &JobWithFiles<'_>| {
        let files = shown.files.as_ref().map(|files| files_text(id, files)).unwrap_or_default();
        job_text(shown.told.job) + &files + &shown.told.text() + &progress_text(&running) + &again
    };
    print_one(context.format, &shown, |shown| shown.told.job.id.to_string(), text)
}

/// The fields of a job, in a line each.
pub fn job_text(job: &Job) -> String {
    let mut fields = FieldLines::for_stdout();
    fields.add("job", &job.id.to_string());
    fields.add("name", &job.name);
    fields.push("state", &paint(job.state.shown()));
    let mut line = |name: &str, value: String| fields.add(name, &value);
    if let Some(why) = job.stopped.as_ref().filter(|_| job.state != JobState::Canceled) {
        line("stopped", why.clone());
    }
    if let Some(reason) = &job.reason {
        line("reason", reason.message.clone());
    }
    line("tasks", format!("{} ({})", job.counts.total, counts(&job.counts)));
    line("queue", job.queue.clone());
    line("user", job.user.clone());
    line("priority", job.priority.to_string());
    line("created", moment(job.created_ms));
    if let Some(ended) = job.ended_ms {
        line("ended", moment(ended));
    }
    if let Some(ended) = job.ended_ms {
        line("took", elapsed(ended.saturating_sub(job.created_ms)));
    }
    if !job.after.is_empty() {
        line("after", job.after.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    }
    let others = [("after any", &job.after_any), ("after fail", &job.after_not_ok)];
    for (name, jobs) in others.into_iter().filter(|(_, jobs)| !jobs.is_empty()) {
        line(name, jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    }
    if let Some(first) = job.after_tasks {
        line("after tasks of", first.to_string());
    }
    if let Some(parent) = &job.parent {
        line("parent", parent.clone());
    }
    for told in &job.on_end {
        let of = if told.only_failures { "if it fails, " } else { "" };
        line("tells", format!("{of}{}", told.url));
    }
    for text in not_told(&job.notice_failures) {
        line("not told", text);
    }
    for step in &job.steps {
        line("step", step_text(step));
        if !step.command.is_empty() {
            line("command", quoted(&step.command));
        }
        if let Some(cwd) = &step.cwd {
            line("directory", cwd.clone());
        }
        if let Some(umask) = &step.umask {
            line("umask", umask.clone());
        }
    }
    fields.text()
}

/// The notices that were not delivered, in a line each. Several addresses may be of one host, and only that is told.
fn not_told(failures: &[NoticeFailure]) -> Vec<String> {
    let mut addresses: BTreeMap<String, u64> = BTreeMap::new();
    for failure in failures {
        let end = if failure.given_up { ", given up" } else { "" };
        let tries = count(failure.tries.into(), "time");
        *addresses.entry(format!("{} (tried {tries}{end}", failure.why)).or_default() += 1;
    }
    let lines = addresses.into_iter().map(|(text, addresses)| match addresses {
        1 => format!("{text})"),
        _ => format!("{text}, {addresses} addresses)"),
    });
    lines.collect()
}

/// The progress that running tasks report, and what their jobservers give them.
fn progress_text(tasks: &[Task]) -> String {
    let said = tasks.iter().filter(|t| t.progress.is_some() || t.status.is_some() || t.jobserver.is_some());
    let mut fields = FieldLines::for_stdout();
    for task in said {
        fields.add("running", &format!("{} {}", task.id, progress(task)));
    }
    fields.text()
}

/// Why running tasks run again, of those that lost a process because memory was short.
async fn again_text(client: &Client, running: &[Task]) -> Result<String, CliError> {
    let mut fields = FieldLines::for_stdout();
    for task in running.iter().filter(|task| task.attempt.attempt > 1) {
        let task = client.task(&task.id).await.doing(format_args!("show task {}", task.id))?;
        if let Some(why) = shortage(&task, task.attempt.attempt.saturating_sub(1)) {
            fields.add("again", &format!("{}: {why}", task.id));
        }
    }
    Ok(fields.text())
}

/// A step in one line: its tasks, what each asks for, and what it waits for.
pub fn step_text(step: &Step) -> String {
    let tasks = count(u64::from(step.tasks), "task");
    let tasks = match step.processes {
        Some(1) => format!("{tasks} in 1 process"),
        Some(processes) => format!("{tasks} in {processes} processes"),
        None => tasks,
    };
    let mut parts = vec![tasks, resources(&step.resources)];
    parts.extend(step.time_limit_ms.map(|limit| format!("time limit {}", exact(limit))));
    parts.extend(step.nodes.map(|nodes| format!("{nodes} start together")));
    parts.extend(step.with.as_ref().map(|with| format!("starts with {with}")));
    parts.extend(step.max_running.map(|max| format!("at most {max} at a time")));
    if step.retries > 0 {
        parts.push(if step.retries == 1 {
            "1 retry".to_owned()
        } else {
            format!("{} retries", step.retries)
        });
    }
    if !step.tags.is_empty() {
        parts.push(format!("needs {}", step.tags.join(" ")));
    }
    if !step.workers.is_empty() {
        parts.push(format!("only on {}", step.workers.join(", ")));
    }
    if !step.limits.is_empty() {
        parts.push(format!("one of each limit {}", step.limits.join(", ")));
    }
    parts.extend(hints(&step.hints));
    parts.extend(step.depends.iter().map(|depends| match depends.by {
        By::Step => format!("after {}", depends.on),
        By::Task => format!("after {} task by task", depends.on),
    }));
    format!("{}: {}", step.name, parts.join(", "))
}

fn hints(hints: &Hints) -> Vec<String> {
    let Hints { kind, network_bound, prefer_local, fetches, caches, deadline_ms, cpus_auto, .. } = hints;
    let flags = [
        (*kind == Some(Kind::Evaluation), "an evaluation"),
        (*network_bound, "network-bound"),
        (*prefer_local, "prefer-local"),
        (*fetches, "fetches"),
        (*cpus_auto, "cpus auto"),
    ];
    let mut words: Vec<String> =
        flags.iter().filter(|(said, _)| *said).map(|(_, word)| (*word).to_owned()).collect();
    if !caches.is_empty() {
        let all = caches.iter().map(|(key, bytes)| match bytes {
            Some(bytes) => format!("{key} of {}", Bytes(*bytes)),
            None => key.clone(),
        });
        let shown: Vec<String> = all.take(CACHES_SHOWN_MAX).collect();
        let more = if caches.len() > CACHES_SHOWN_MAX { ", …" } else { "" };
        words.push(format!("cached {}{more}", shown.join(", ")));
    }
    if !hints.prefers.is_empty() {
        let shown: Vec<&str> = hints.prefers.iter().map(String::as_str).collect();
        words.push(format!("at first only on {}", shown.join(", ")));
    }
    match hints.jobserver {
        None => words.extend(hints.cpus_max.map(|max| format!("up to {} where idle", cpus(max)))),
        Some(form) => {
            let form = if form == Jobserver::Auto { String::new() } else { format!(" ({})", form.as_str()) };
            let most = hints.cpus_max.map(|max| format!(" of up to {}", cpus(max))).unwrap_or_default();
            words.push(format!("jobserver{form}{most}"));
        }
    }
    words.extend(deadline_ms.map(|ms| format!("to start within {}", exact(ms))));
    words
}

/// The versions of this program and of the server.
#[derive(Serialize)]
struct Versions {
    client: &'static str,
    server: Option<Version>,
}

/// Runs the command `windlass version`.
pub async fn version(context: &Context) -> Result<(), CliError> {
    let server = match connect_running(context.server.as_ref()).await {
        Ok(client) => client.version().await.doing("ask the server for its version"),
        Err(error) => Err(error),
    };
    let server = match server {
        Ok(version) => Some(version),
        // That no server runs is an answer, unless the user named one.
        Err(error) if context.server.is_none() && (error.exit_code() == UNREACHABLE || !own::CAN_RUN) => None,
        Err(error) => return Err(error),
    };
    let versions = Versions { client: env!("CARGO_PKG_VERSION"), server };
    print_one(
        context.format,
        &versions,
        |versions| versions.client.to_owned(),
        |versions| {
            let server = versions.server.as_ref().map_or_else(
                || "server not running".to_owned(),
                |server| {
                    format!("server {} (process {}, store {})", server.version, server.pid, server.store)
                },
            );
            format!("windlass {}\n{server}\n", versions.client)
        },
    )
}

/// The lines of `server status`.
pub fn server_grid(version: &Version, rows: Vec<(&str, String)>) -> String {
    let mut fields = FieldLines::for_stdout();
    let fixed = [
        ("version", version.version.clone()),
        ("process", version.pid.to_string()),
        ("store", version.store.clone()),
    ];
    for (name, value) in fixed.into_iter().chain(rows) {
        fields.add(name, &value);
    }
    fields.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_that_failed_alike_are_one_line() {
        let failure =
            |why: &str, tries| NoticeFailure { why: why.to_owned(), tries, ..NoticeFailure::default() };
        let all = [failure("'a' is gone", 3), failure("'a' is gone", 3), failure("'a' is gone", 1)];
        let lines = ["'a' is gone (tried 1 time)", "'a' is gone (tried 3 times, 2 addresses)"];
        assert_eq!(not_told(&all), lines);
    }
}
