//! Lists of jobs and tasks. All pages of a list are fetched, up to a limit.

use crate::client::context::Context;
use crate::commands::select::{JobRef, jobs_of};
use crate::ui::error::{CliError, Doing};
use crate::ui::output::{Format, Grid, or_dash, print_jsonl, print_lines, print_list};
use crate::ui::quantity::{age, elapsed, now_ms};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use windlass_api::client::{Client, JobsQuery, TasksQuery};
use windlass_api::{Attempt, Counts, End, Job, JobState, Resources, Task, TaskState, state_word};
use windlass_core::resources::Bytes;

/// Entries in one page of a list.
const TASKS_PAGE: usize = 1000;
/// Jobs in a table without --limit.
const JOBS_IN_TABLE: usize = 50;

/// Lists jobs, newest first.
#[derive(Args, Debug)]
pub struct JobsArgs {
    /// Only jobs in these states, separated by commas: pending, running, held, succeeded, failed, cancelled
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = states_of(JobState::ALL, JobState::shown))]
    state: Vec<String>,
    /// Only jobs of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only jobs of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs whose name contains this text
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// At most N jobs [default: 50 in a table, otherwise all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Lists the tasks of a job.
#[derive(Args, Debug)]
pub struct TasksArgs {
    /// The job: 12, or last
    job: JobRef,
    /// Only tasks in these states, separated by commas
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = states_of(TaskState::ALL, TaskState::shown))]
    state: Vec<String>,
    /// At most N tasks [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Runs the command `windlass jobs`.
pub async fn jobs(context: &Context, args: &JobsArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let in_table = context.format == Format::Table;
    let limit = args.limit.unwrap_or(if in_table { JOBS_IN_TABLE } else { usize::MAX });
    let query = JobsQuery {
        state: words(&args.state),
        user: args.user.clone(),
        queue: args.queue.clone(),
        name: args.name.clone(),
        limit: None,
        cursor: None,
    };
    let (jobs, more) = jobs_of(&client, query, limit).await?;
    print_list(context.format, &jobs, |job| job.id.to_string(), jobs_grid)?;
    if in_table && more && args.limit.is_none() {
        crate::ui::message::message!("there are more jobs; --limit N shows N of them");
    }
    Ok(())
}

fn jobs_grid(jobs: &[Job]) -> Grid {
    let row = |job: &Job| {
        vec![
            job.id.to_string(),
            job.state.shown().to_owned(),
            job.name.clone(),
            job.queue.clone(),
            format!("{}/{}", job.counts.succeeded + job.counts.failed, job.counts.total),
            job.counts.running.to_string(),
            job.counts.failed.to_string(),
            job.priority.to_string(),
            age(job.created_ms),
            or_dash(job.ended_ms.map(|ended| elapsed(ended.saturating_sub(job.created_ms)))),
        ]
    };
    Grid {
        header: &["ID", "STATE", "NAME", "QUEUE", "DONE", "RUNNING", "FAILED", "PRIORITY", "AGE", "TOOK"],
        rows: jobs.iter().map(row).collect(),
        empty: "no jobs; 'windlass run -- COMMAND' submits one",
    }
}

/// `windlass job tasks`. Output for programs is printed page by page: a job may have millions of tasks.
pub async fn tasks(context: &Context, args: &TasksArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let job = args.job.resolve(&client).await?;
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut kept: Vec<Task> = Vec::new();
    each_task(&client, job, words(&args.state), limit, |part| {
        match context.format {
            Format::Jsonl => part.iter().try_for_each(print_jsonl)?,
            Format::Name => print_lines(part.iter().map(|task| task.id.clone()))?,
            Format::Table | Format::Json => kept.extend(part),
        }
        Ok(())
    })
    .await?;
    match context.format {
        Format::Table | Format::Json => print_list(context.format, &kept, |task| task.id.clone(), tasks_grid),
        Format::Jsonl | Format::Name => Ok(()),
    }
}

/// Hands over up to `limit` tasks of a job page by page, in order of their numbers.
pub async fn each_task(
    client: &Client,
    job: u64,
    state: Option<String>,
    limit: usize,
    mut take: impl FnMut(Vec<Task>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut query = TasksQuery { state, limit: None, cursor: None };
    let mut left = limit;
    while left > 0 {
        query.limit = Some(TASKS_PAGE.min(left));
        let page = client.tasks(job, &query).await.doing(format_args!("list the tasks of job {job}"))?;
        let mut part = page.items;
        part.truncate(left);
        left -= part.len();
        take(part)?;
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    Ok(())
}

fn tasks_grid(tasks: &[Task]) -> Grid {
    let row = |task: &Task| {
        let attempt = &task.attempt;
        vec![
            task.id.clone(),
            task.state.shown().to_owned(),
            or_dash(task.value.clone()),
            or_dash(attempt.worker.clone()),
            attempt.attempt.to_string(),
            how_ended(attempt),
            or_dash(took(attempt).map(elapsed)),
            or_dash(attempt.cpu_ms.map(elapsed)),
            or_dash(attempt.peak_memory.map(|bytes| Bytes(bytes).to_string())),
            Bytes(attempt.out_bytes + attempt.err_bytes).to_string(),
            progress(task),
        ]
    };
    Grid {
        header: &[
            "ID", "STATE", "VALUE", "WORKER", "ATTEMPT", "EXIT", "TIME", "CPU", "MEMORY", "OUTPUT",
            "PROGRESS",
        ],
        rows: tasks.iter().map(row).collect(),
        empty: "no matching tasks",
    }
}

/// The progress that a running task reports: "42.5% loading".
pub fn progress(task: &Task) -> String {
    let percent = task.progress.map(|percent| format!("{percent}%"));
    let parts: Vec<String> = percent.into_iter().chain(task.status.clone()).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(" ") }
}

/// The exit code, with a word if the code alone does not tell how the attempt ended.
pub fn how_ended(attempt: &Attempt) -> String {
    match (attempt.end, attempt.exit_code) {
        (None, _) => "-".to_owned(),
        (Some(End::Exited), Some(code)) => code.to_string(),
        (Some(end), Some(code)) => format!("{code} {}", end.shown()),
        (Some(end), None) => end.shown().to_owned(),
    }
}

/// Milliseconds that an attempt ran, or has run so far.
pub fn took(attempt: &Attempt) -> Option<u64> {
    let started = attempt.started_ms?;
    Some(attempt.finished_ms.unwrap_or_else(now_ms).saturating_sub(started))
}

/// Amounts in words: "2 cpus, 512 MiB, 1 gpu".
pub fn resources(amounts: &Resources) -> String {
    let mut parts = vec![format!("{} cpus", amounts.cpus)];
    if amounts.memory > 0 {
        parts.push(Bytes(amounts.memory).to_string());
    }
    if amounts.gpus > 0 {
        parts.push(crate::ui::output::count(u64::from(amounts.gpus), "gpu"));
    }
    if amounts.gpu_memory > 0 {
        parts.push(format!("{} of gpu memory", Bytes(amounts.gpu_memory)));
    }
    parts.extend(amounts.custom.iter().map(|(name, amount)| format!("{amount} {name}")));
    parts.join(", ")
}

/// The task counts that are not 0: "98 succeeded, 2 running".
pub fn counts(counts: &Counts) -> String {
    let parts = [
        (counts.waiting, "waiting"),
        (counts.ready, "ready"),
        (counts.running, "running"),
        (counts.succeeded, "succeeded"),
        (counts.failed, "failed"),
        (counts.canceled, "cancelled"),
        (counts.skipped, "skipped"),
    ];
    let some = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    some.collect::<Vec<_>>().join(", ")
}

/// Takes the words of these values.
pub fn words_of<T: Copy>(all: &[T], as_str: fn(T) -> &'static str) -> PossibleValuesParser {
    PossibleValuesParser::new(all.iter().map(|value| as_str(*value)))
}

/// Takes the words of these states, as texts show them and as the wire has them.
pub fn states_of<T: Copy>(all: &[T], shown: fn(T) -> &'static str) -> PossibleValuesParser {
    PossibleValuesParser::new(all.iter().map(|state| {
        let word = shown(*state);
        let value = PossibleValue::new(word);
        if state_word(word) == word { value } else { value.alias(state_word(word)) }
    }))
}

/// The states as the server knows them.
fn words(states: &[String]) -> Option<String> {
    let words: Vec<&str> = states.iter().map(|state| state_word(state)).collect();
    (!words.is_empty()).then(|| words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_by_code_and_word() {
        let attempt = |end, exit_code| Attempt { end, exit_code, ..Default::default() };
        assert_eq!(how_ended(&attempt(None, None)), "-");
        assert_eq!(how_ended(&attempt(Some(End::Exited), Some(3))), "3");
        assert_eq!(how_ended(&attempt(Some(End::Oom), Some(137))), "137 oom");
        assert_eq!(how_ended(&attempt(Some(End::Lost), None)), "lost");
    }

    #[test]
    fn amounts_in_words() {
        let amounts = Resources { cpus: 0.5, memory: 512 << 20, gpus: 1, ..Default::default() };
        assert_eq!(resources(&amounts), "0.5 cpus, 512 MiB, 1 gpu");
    }
}
