//! Lists of jobs and tasks. All pages of a list are fetched, up to a limit.

use crate::client::context::Context;
use crate::commands::select::{JobRef, jobs_since};
use crate::commands::view::ViewArgs;
use crate::ui::error::{CliError, Doing};
use crate::ui::output::{Format, numbers, print_jsonl, print_lines};
use crate::ui::quantity::{age, elapsed, now_ms};
use crate::ui::since::Since;
use crate::ui::table::{Cell, Column, Grid};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use windlass_api::client::{Client, JobsQuery, TasksQuery};
use windlass_api::{
    Attempt, Counts, End, HeldBack, Job, JobState, JobserverUse, Resources, Task, TaskState, state_word,
};
use windlass_core::resources::Bytes;

/// Entries in one page of a list.
const TASKS_PAGE: usize = 1000;
/// Jobs in a table without --limit.
const JOBS_IN_TABLE: usize = 50;
/// Jobs that are read to sort them, the newest ones. An old farm has millions.
const JOBS_SORTED_MAX: usize = 10_000;

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
    /// Only jobs submitted since then: 2h ago, or a time such as '2026-03-01 14:30'
    #[arg(long, value_name = "DURATION|TIME")]
    since: Option<Since>,
    /// At most N jobs [default: 50 in a table, otherwise all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    view: ViewArgs,
}

/// Lists the tasks of a job.
#[derive(Args, Debug)]
pub struct TasksArgs {
    /// The job: 12, or last
    job: JobRef,
    /// Only tasks in these states, separated by commas
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = states_of(TaskState::ALL, TaskState::shown))]
    state: Vec<String>,
    /// Only tasks that ended since then: 2h ago, or a time such as '2026-03-01 14:30'
    #[arg(long, value_name = "DURATION|TIME")]
    since: Option<Since>,
    /// At most N tasks [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    view: ViewArgs,
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
        reasons: in_table,
    };
    // Those that come first by a column may be anywhere in the list.
    let read_max = if args.view.sort.is_some() { limit.max(JOBS_SORTED_MAX) } else { limit };
    let more = std::cell::Cell::new(false);
    let read = async || -> Result<Vec<Job>, CliError> {
        let since_ms = args.since.map_or(0, Since::server_ms);
        let (jobs, has_more) = jobs_since(&client, query.clone(), read_max, since_ms).await?;
        more.set(has_more || jobs.len() > limit);
        Ok(jobs)
    };
    args.view.show(context, Some(limit), read, |job| job.id.to_string(), jobs_grid).await?;
    if in_table && more.get() && args.limit.is_none() {
        crate::ui::message::message!("there are more jobs; --limit N shows N of them");
    }
    Ok(())
}

/// The table of jobs.
pub fn jobs_grid(jobs: &[Job]) -> Grid {
    let row = |job: &Job| {
        let Counts { total, succeeded, failed, running, .. } = job.counts;
        let took_ms = job.ended_ms.map(|ended| ended.saturating_sub(job.created_ms));
        vec![
            Cell::number(job.id),
            job.state.shown().into(),
            job.name.as_str().into(),
            job.queue.as_str().into(),
            // A task that failed is not done.
            Cell::figure(format!("{succeeded}/{total}"), f64::from(succeeded) / f64::from(total.max(1))),
            Cell::number(running),
            Cell::number(failed),
            Cell::number(job.priority),
            Cell::figure(age(job.created_ms), now_ms().saturating_sub(job.created_ms) as f64),
            took_ms.map(duration).into(),
            job.reason.as_ref().map(|reason| reason.message.as_str()).into(),
        ]
    };
    Grid {
        columns: vec![
            Column::whole("ID", 0),
            Column::whole("STATE", 0),
            Column::text("NAME", 1, 12),
            Column::text("QUEUE", 7, 8),
            Column::whole("DONE", 2),
            Column::whole("RUNNING", 6),
            Column::whole("FAILED", 3),
            Column::whole("PRIORITY", 8),
            Column::whole("AGE", 4),
            Column::whole("TOOK", 5),
            Column::text("REASON", 1, 16),
        ],
        rows: jobs.iter().map(row).collect(),
        empty: "no jobs; 'windlass run -- COMMAND' submits one",
    }
}

/// A time that passed, in milliseconds.
fn duration(ms: u64) -> Cell {
    Cell::figure(elapsed(ms), ms as f64)
}

/// `windlass job tasks`. Output for programs is printed page by page unless it is sorted: a job may have millions of
/// tasks.
pub async fn tasks(context: &Context, args: &TasksArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let job = args.job.resolve(&client).await?;
    let by_page = matches!(context.format, Format::Jsonl | Format::Name) && args.view.sort.is_none();
    // Those that come first by a column may be anywhere in the list.
    let read_max = args.limit.filter(|_| args.view.sort.is_none()).unwrap_or(usize::MAX);
    if by_page && args.view.watch.is_none() {
        let since_ms = args.since.map(Since::server_ms);
        return each_task(&client, job, words(&args.state), since_ms, read_max, |part| {
            match context.format {
                Format::Name => print_lines(part.into_iter().map(|task| task.id)),
                Format::Jsonl | Format::Json | Format::Table => part.iter().try_for_each(print_jsonl),
            }
        })
        .await;
    }
    let read = async || -> Result<Vec<Task>, CliError> {
        let (mut kept, since_ms) = (Vec::new(), args.since.map(Since::server_ms));
        each_task(&client, job, words(&args.state), since_ms, read_max, |part| {
            kept.extend(part);
            Ok(())
        })
        .await?;
        Ok(kept)
    };
    args.view.show(context, args.limit, read, |task| task.id.clone(), tasks_grid).await
}

/// True if the task ended at that moment of the server's clock or later, or if none is asked for.
fn ended_since(task: &Task, since_ms: Option<u64>) -> bool {
    since_ms.is_none_or(|since| {
        task.state.is_end() && task.attempt.finished_ms.is_some_and(|finished| finished >= since)
    })
}

/// Hands over up to `limit` tasks of a job page by page, in order of their numbers; only those that ended since that
/// moment of the server's clock, if there is one.
pub async fn each_task(
    client: &Client,
    job: u64,
    state: Option<String>,
    since_ms: Option<u64>,
    limit: usize,
    mut take: impl FnMut(Vec<Task>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut query = TasksQuery { state, limit: None, cursor: None };
    let mut left = limit;
    while left > 0 {
        // Tasks that are left out do not count.
        query.limit = Some(if since_ms.is_some() { TASKS_PAGE } else { TASKS_PAGE.min(left) });
        let page = client.tasks(job, &query).await.doing(format_args!("list the tasks of job {job}"))?;
        let mut part = page.items;
        part.retain(|task| ended_since(task, since_ms));
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

/// The table of tasks.
pub fn tasks_grid(tasks: &[Task]) -> Grid {
    let row = |task: &Task| {
        let attempt = &task.attempt;
        let output_bytes = attempt.out_bytes + attempt.err_bytes;
        vec![
            Cell::figure(task.id.as_str(), f64::from(task.index)),
            task.state.shown().into(),
            task.value.as_deref().into(),
            attempt.worker.as_deref().into(),
            Cell::number(attempt.attempt),
            how_ended(attempt).into(),
            took(attempt).map(duration).into(),
            attempt.cpu_ms.map(duration).into(),
            attempt.peak_memory.map(amount).into(),
            amount(output_bytes),
            progress(task).into(),
            task.failure.as_ref().map(|failure| failure.summary.as_str()).into(),
        ]
    };
    Grid {
        columns: vec![
            Column::whole("ID", 0),
            Column::whole("STATE", 0),
            Column::text("VALUE", 2, 10),
            Column::text("WORKER", 4, 8),
            Column::whole("ATTEMPT", 8),
            Column::whole("EXIT", 1),
            Column::whole("TIME", 3),
            Column::whole("CPU", 6),
            Column::whole("MEMORY", 5),
            Column::whole("OUTPUT", 7),
            Column::text("PROGRESS", 9, 10),
            Column::text("REASON", 1, 16),
        ],
        rows: tasks.iter().map(row).collect(),
        empty: "no matching tasks",
    }
}

/// An amount of bytes.
fn amount(bytes: u64) -> Cell {
    Cell::figure(Bytes(bytes).to_string(), bytes as f64)
}

/// The progress that a running task reports, and the processes of its jobserver: "42.5% loading, runs 2 of 3 processes".
pub fn progress(task: &Task) -> String {
    let percent = task.progress.map(|percent| format!("{percent}%"));
    let words: Vec<String> = percent.into_iter().chain(task.status.clone()).collect();
    let said = Some(words.join(" ")).filter(|said| !said.is_empty());
    let parts: Vec<String> = said.into_iter().chain(task.jobserver.map(processes)).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// How many processes a build runs, of those that it may run at a time now.
fn processes(of: JobserverUse) -> String {
    let wants = match (of.wants, of.held_back) {
        (false, _) => "",
        (true, None) => ", wants more",
        (true, Some(HeldBack::Memory)) => ", memory is short",
        (true, Some(HeldBack::Pressure)) => ", held by pressure",
    };
    format!("runs {} of {} processes{wants}", of.used, of.share)
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
    let mut parts = vec![crate::ui::output::cpus(amounts.cpus)];
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
    numbers(&[
        (counts.waiting, "waiting"),
        (counts.ready, "ready"),
        (counts.running, "running"),
        (counts.succeeded, "succeeded"),
        (counts.failed, "failed"),
        (counts.canceled, "cancelled"),
        (counts.skipped, "skipped"),
    ])
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
pub fn words(states: &[String]) -> Option<String> {
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
    fn progress_has_what_the_task_says_and_what_its_jobserver_gives() {
        let task = |more: serde_json::Value| {
            let mut all = serde_json::json!({"id": "1.0", "job": 1, "index": 0, "step": "main", "state": "running", "attempt": 1});
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            progress(&serde_json::from_value(all).unwrap())
        };
        let jobserver = |wants, held_back| serde_json::json!({"share": 3, "used": 2, "wants": wants, "held_back": held_back});
        assert_eq!(task(serde_json::json!({})), "-");
        assert_eq!(task(serde_json::json!({"progress": 42.5, "status": "loading"})), "42.5% loading");
        let idle = serde_json::json!({"progress": 42.5, "jobserver": jobserver(false, None::<&str>)});
        assert_eq!(task(idle), "42.5%, runs 2 of 3 processes");
        for (why, says) in [
            (None, "wants more"),
            (Some("memory"), "memory is short"),
            (Some("pressure"), "held by pressure"),
        ] {
            let held = task(serde_json::json!({"jobserver": jobserver(true, why)}));
            assert_eq!(held, format!("runs 2 of 3 processes, {says}"));
        }
    }

    #[test]
    fn amounts_in_words() {
        let amounts = Resources { cpus: 0.5, memory: 512 << 20, gpus: 1, ..Default::default() };
        assert_eq!(resources(&amounts), "0.5 cpus, 512 MiB, 1 gpu");
        assert_eq!(resources(&Resources { cpus: 1.0, ..Default::default() }), "1 cpu");
    }
}
