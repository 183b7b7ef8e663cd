//! `windlass logs`: the output of tasks.

use crate::client::context::Context;
use crate::client::link::ServerLink;
use crate::client::signals::Stop;
use crate::commands::follow::{self, follow};
use crate::commands::list::each_task;
use crate::commands::log_lines::{LineArgs, TAIL_BYTES_MAX, last_lines};
use crate::commands::log_order::{LinesInOrder, WantedLines};
use crate::commands::select::TaskOrJob;
use crate::commands::shown;
use crate::system::is_one_place;
use crate::ui::error::{CliError, Doing, may_pass};
use crate::ui::failure::{StderrLines, failed_line, tell_failures};
use crate::ui::log_place::LogPlace;
use crate::ui::message::message;
use crate::ui::output::Format;
use crate::ui::printer::{STREAMS, ShownOutput, copy, task_prefix};
use crate::ui::progress;
use crate::ui::writer::Writer;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_api::client::{Client, ClientError, LogQuery};
use windlass_api::{ErrorCode, Task, TaskState};

/// Pause before a stream is asked for again that ended well before its task did: its server stops.
const AGAIN_PAUSE: Duration = Duration::from_millis(100);
/// Interval between two looks for more lines of an attempt that are shown with their times.
const LINES_EVERY: Duration = Duration::from_millis(500);

/// Shows the output of a task, or of all tasks of a job in order.
#[derive(Args, Debug)]
#[command(
    after_help = "With -f the output of a task is shown live. A job with several tasks is shown task by task as
they end, so that their lines do not mix. How tasks failed is told on standard error.

Lines of standard output and standard error of a task that has ended stand in the order in which they were
written, to a quarter of a second, if both go to the same terminal or file."
)]
pub struct LogsArgs {
    /// A task (12.3) or a job (12, last)
    id: TaskOrJob,
    /// Follow the output until the task or the job has ended
    #[arg(long, short)]
    follow: bool,
    /// Only the tasks of the job that failed, each with how it failed
    #[arg(long, conflicts_with_all = ["follow", "attempt"])]
    failed: bool,
    /// Only what went to standard output
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Only what went to standard error
    #[arg(long)]
    stderr: bool,
    /// This attempt instead of the last
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Only the last N bytes of each stream
    #[arg(long, value_name = "N")]
    tail_bytes: Option<u32>,
    #[command(flatten)]
    lines: LineArgs,
    /// Put the time before each line, to a quarter of a second. A line that is not UTF-8 is shown as text
    #[arg(long)]
    timestamps: bool,
    /// Write the results of ended tasks to this directory instead: for each a directory with stdout, stderr and
    /// result.json
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with_all = [
        "follow", "stdout", "stderr", "attempt", "tail_bytes", "timestamps",
    ])]
    results: Option<PathBuf>,
}

/// Runs the command `windlass logs`.
pub async fn logs(context: &Context, args: &LogsArgs) -> Result<(), CliError> {
    if context.format != Format::Table {
        message!("note: logs are raw bytes; --output does not change them");
    }
    let mut link = match args.follow {
        true => ServerLink::open(context).await?,
        false => ServerLink::new(context.client().await?, context.server.clone()),
    };
    let client = link.client.clone();
    if let Some(dir) = &args.results {
        let (job, index) = match args.id {
            TaskOrJob::Task(job, index) => (job, Some(index)),
            TaskOrJob::Job(job) => (job, None),
        };
        return shown::keep_ended(&link, job.resolve(&client).await?, index, dir).await;
    }
    let stop = Stop::never(client.clone());
    match args.id {
        TaskOrJob::Task(..) if args.failed => {
            Err(CliError::usage("--failed chooses among the tasks of a job: give a job, such as 12"))
        }
        TaskOrJob::Task(job, index) => {
            let id = format!("{}.{index}", job.resolve(&client).await?);
            let writer = Writer::start(None, stop.on_broken());
            let shown = show_or_follow(&mut link, &id, args, (&writer, args.lines.has_prefix(1))).await;
            if shown.is_ok() && args.attempt.is_none() {
                // What follows the output says more about it, and is not missed where the server is gone by now.
                let task = link.client.task(&id).await.ok().filter(|task| task.state == TaskState::Failed);
                if let Some(task) = task {
                    writer.say(&failed_line(&task, None)).await;
                }
            }
            writer.flush().await.map_err(CliError::output)?;
            shown
        }
        TaskOrJob::Job(job) => {
            let id = job.resolve(&client).await?;
            if args.follow && !args.is_partial() && !args.timestamps {
                let job = link.client.job(id).await.doing(format_args!("show job {id}"))?;
                let has_prefixes = args.lines.has_prefix(job.counts.total as usize);
                let options = follow::Options {
                    show: if has_prefixes { ShownOutput::Prefixed } else { ShownOutput::Output },
                    progress: progress::Show::Never,
                    quiet: true,
                    results: None,
                    told: None,
                };
                let job = follow(&mut link, id, options, &stop).await?;
                tell_failures(&link.client, &job, StderrLines::Omitted).await;
                return Ok(());
            }
            show_job(&mut link, id, args, &stop).await?;
            let doing = format!("show job {id}");
            let job = match args.follow {
                true => link.ask(&doing, |client| async move { client.job(id).await }).await?,
                false => link.client.job(id).await.doing(doing)?,
            };
            if job.state.is_end() {
                tell_failures(&link.client, &job, StderrLines::Omitted).await;
            }
            Ok(())
        }
    }
}

/// Shows all tasks of a job that may have written something, in order of their numbers; or all that failed.
async fn show_job(link: &mut ServerLink, job: u64, args: &LogsArgs, stop: &Stop) -> Result<(), CliError> {
    // Each with how it failed, where only such tasks are shown.
    let mut tasks: Vec<(String, Option<String>)> = Vec::new();
    let states = args.failed.then(|| "failed".to_owned());
    each_task(&link.client, job, states, None, usize::MAX, |part| {
        let wanted = part.into_iter().filter(|task| args.failed || may_have_written(task));
        tasks.extend(wanted.map(|task| {
            let failed = args.failed.then(|| failed_line(&task, None));
            (task.id, failed)
        }));
        Ok(())
    })
    .await?;
    if args.failed && tasks.is_empty() {
        message!("no task of job {job} has failed");
    }
    let writer = Writer::start(None, stop.on_broken());
    let has_prefix = args.lines.has_prefix(tasks.len());
    let mut shown = Ok(());
    for (id, failed) in tasks {
        shown = show_or_follow(link, &id, args, (&writer, has_prefix)).await;
        shown = match shown {
            // The output of one task may be deleted while that of the others is there.
            Err(CliError::Request { source: ClientError::Refused(detail), .. }) => {
                writer
                    .say(&format!("note: the output of task {id} cannot be shown: {}", detail.message))
                    .await;
                Ok(())
            }
            other => other,
        };
        if let Some(line) = failed {
            writer.say(&line).await;
        }
        if shown.is_err() {
            break;
        }
    }
    writer.flush().await.map_err(CliError::output)?;
    shown
}

/// True if the task may have output. That of a running task is not known in advance.
fn may_have_written(task: &Task) -> bool {
    let attempt = &task.attempt;
    task.state == TaskState::Running || attempt.out_bytes > 0 || attempt.err_bytes > 0
}

async fn show_or_follow(
    link: &mut ServerLink,
    id: &str,
    args: &LogsArgs,
    (writer, has_prefix): (&Writer, bool),
) -> Result<(), CliError> {
    let writer = if has_prefix { writer.prefixed(task_prefix(id)) } else { writer.clone() };
    let doing = format!("show the output of task {id}");
    let shown = match (args.follow, args.timestamps) {
        (true, false) => follow_task(link, id, args, &writer, &doing).await,
        (true, true) => follow_lines(link, id, args, &writer, &doing).await,
        (false, _) => show_now(&link.client, id, args, &writer).await.doing(doing),
    };
    writer.end_lines().await;
    shown
}

/// Shows what an attempt wrote until now.
async fn show_now(client: &Client, id: &str, args: &LogsArgs, writer: &Writer) -> Result<(), ClientError> {
    let mut lacks_times = false;
    if args.timestamps || (args.wants(0) && args.wants(1) && is_one_place()) {
        let task = client.task(id).await?;
        let attempt = args.attempt.unwrap_or(task.attempt.attempt);
        if attempt > 0 && (args.timestamps || (is_over(&task, attempt) && wrote_both(&task, attempt))) {
            match args.lines_in_order(attempt).show(client, id, writer).await {
                // A server of an earlier release. If it is the attempt that does not exist, the next request says so.
                Err(ClientError::Refused(detail)) if detail.code == ErrorCode::NotFound => {
                    lacks_times = args.timestamps;
                }
                shown => return shown,
            }
        }
    }
    if let Some(lines) = args.lines.lines {
        show_last(client, id, args, args.attempt, (lines, writer)).await?;
    } else {
        show_task(client, id, args, args.attempt, (&args.places(), writer)).await?;
    }
    if lacks_times {
        writer.say("note: the server does not tell when lines were written").await;
    }
    Ok(())
}

/// True if the attempt wrote to both streams.
fn wrote_both(task: &Task, attempt: u32) -> bool {
    let mut tried = std::iter::once(&task.attempt).chain(&task.history);
    tried.any(|tried| tried.attempt == attempt && tried.out_bytes > 0 && tried.err_bytes > 0)
}

/// Shows the last lines of both streams of an attempt, and returns the places behind them.
async fn show_last(
    client: &Client,
    id: &str,
    args: &LogsArgs,
    attempt: Option<u32>,
    (lines, writer): (u32, &Writer),
) -> Result<[LogPlace; 2], ClientError> {
    let mut places = <[LogPlace; 2]>::default();
    for (which, (stream, sink)) in STREAMS.into_iter().enumerate().filter(|(which, _)| args.wants(*which)) {
        let query = LogQuery { stream, attempt, ..LogQuery::default() };
        let (last, place) = last_lines(client, id, query, lines, TAIL_BYTES_MAX).await?;
        writer.write(sink, last).await;
        places[which] = place;
    }
    Ok(places)
}

/// Follows an attempt to its end, at one server after another: each byte is shown once.
async fn follow_task(
    link: &mut ServerLink,
    id: &str,
    args: &LogsArgs,
    writer: &Writer,
    doing: &str,
) -> Result<(), CliError> {
    let (mut places, mut attempt) = (args.places(), args.attempt);
    if let Some(lines) = args.lines.lines {
        let task = link.client.task(id).await.doing(doing)?;
        // A task that has not started has no lines yet.
        if let Some(number) = attempt.or(Some(task.attempt.attempt).filter(|number| *number > 0)) {
            attempt = Some(number);
            places = show_last(&link.client, id, args, attempt, (lines, writer)).await.doing(doing)?;
        }
    }
    let shown = || places.iter().map(LogPlace::bytes).sum::<u64>();
    loop {
        let before = shown();
        let followed = follow_once(&link.client, id, args, &mut attempt, (&places, writer)).await;
        if shown() > before {
            link.calm();
        }
        match followed {
            Ok(true) => return Ok(()),
            Ok(false) => {
                link.calm();
                tokio::time::sleep(AGAIN_PAUSE).await;
            }
            // The place in the output is unknown: going on would repeat lines, or leave lines out.
            Err(error) if may_pass(&error) && places.iter().any(|place| place.offset().is_none()) => {
                return Err(error).doing(doing);
            }
            Err(error) => link.pause(doing, error).await?,
        }
    }
}

/// Follows the lines of an attempt to its end, with their times, at one server after another.
async fn follow_lines(
    link: &mut ServerLink,
    id: &str,
    args: &LogsArgs,
    writer: &Writer,
    doing: &str,
) -> Result<(), CliError> {
    let mut lines = None;
    loop {
        match follow_lines_once(&link.client, id, args, &mut lines, writer).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                link.calm();
                tokio::time::sleep(LINES_EVERY).await;
            }
            Err(error) => link.pause(doing, error).await?,
        }
    }
}

/// Shows the lines that are there now; true if no more will come. The attempt is that which is the last one at the
/// beginning.
async fn follow_lines_once(
    client: &Client,
    id: &str,
    args: &LogsArgs,
    lines: &mut Option<(u32, LinesInOrder)>,
    writer: &Writer,
) -> Result<bool, ClientError> {
    let task = client.task(id).await?;
    let (number, lines) = lines.get_or_insert_with(|| {
        let number = args.attempt.unwrap_or(task.attempt.attempt.max(1));
        (number, args.lines_in_order(number))
    });
    // Asked before the lines are read: what is written before the end is not missed.
    let is_over = is_over(&task, *number);
    if args.attempt.is_some() || *number <= task.attempt.attempt {
        lines.show(client, id, writer).await?;
    }
    Ok(is_over)
}

/// Shows what one server sends; true if that was all. The attempt is that which is the last one at the beginning.
async fn follow_once(
    client: &Client,
    id: &str,
    args: &LogsArgs,
    attempt: &mut Option<u32>,
    shown: (&[LogPlace; 2], &Writer),
) -> Result<bool, ClientError> {
    let task = client.task(id).await?;
    let number = *attempt.get_or_insert_with(|| task.attempt.attempt.max(1));
    let is_over = is_over(&task, number);
    // A server knows no attempt by its number that was not booked yet.
    let asked = Some(number).filter(|number| args.attempt.is_some() || *number <= task.attempt.attempt);
    show_task(client, id, args, asked, shown).await?;
    Ok(is_over)
}

/// True if the attempt writes no more.
fn is_over(task: &Task, attempt: u32) -> bool {
    let runs = matches!(task.state, TaskState::Booked | TaskState::Running);
    match task.attempt.attempt.cmp(&attempt) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => !runs,
        std::cmp::Ordering::Less => task.state.is_end(),
    }
}

async fn show_task(
    client: &Client,
    id: &str,
    args: &LogsArgs,
    attempt: Option<u32>,
    (places, writer): (&[LogPlace; 2], &Writer),
) -> Result<(), ClientError> {
    let show = |which: usize| {
        let (stream, sink) = STREAMS[which];
        let query = LogQuery { stream, attempt, follow: args.follow, ..LogQuery::default() };
        async move {
            match args.wants(which) {
                true => copy(client, id, query, writer, sink, &places[which]).await,
                false => Ok(()),
            }
        }
    };
    if args.follow {
        return tokio::try_join!(show(0), show(1)).map(|_| ());
    }
    show(0).await?;
    show(1).await
}

impl LogsArgs {
    fn wants(&self, place: usize) -> bool {
        match STREAMS[place].0 {
            "stdout" => !self.stderr,
            _ => !self.stdout,
        }
    }

    /// The lines of an attempt that are wanted.
    fn lines_in_order(&self, attempt: u32) -> LinesInOrder {
        let wanted = WantedLines {
            streams: [self.wants(0), self.wants(1)],
            timestamps: self.timestamps,
            tail_bytes: self.tail_bytes,
            lines: self.lines.lines,
        };
        LinesInOrder::new(attempt, wanted)
    }

    /// Where both streams begin.
    fn places(&self) -> [LogPlace; 2] {
        [(); 2].map(|()| self.tail_bytes.map_or_else(LogPlace::default, LogPlace::tail))
    }

    /// True if only a part of the output is wanted.
    fn is_partial(&self) -> bool {
        let is_tail = self.tail_bytes.is_some() || self.lines.lines.is_some();
        self.stdout || self.stderr || self.attempt.is_some() || is_tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        logs: LogsArgs,
    }

    fn parse(line: &str) -> Result<LogsArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("logs").chain(line.split_whitespace())).map(|line| line.logs)
    }

    #[test]
    fn streams_are_chosen() {
        let both = parse("12.3").unwrap();
        assert!(both.wants(0) && both.wants(1) && !both.is_partial());
        let err = parse("-f 12.3 --stderr --tail-bytes 100").unwrap();
        assert!(!err.wants(0) && err.wants(1) && err.is_partial() && err.follow);
        let last = parse("12 -n 20 --prefix").unwrap();
        assert!(last.is_partial() && last.lines.lines == Some(20) && last.lines.has_prefix(1));
        assert!(!parse("12 --prefix=never").unwrap().lines.has_prefix(9));
        assert!(parse("12.3 -n 3 --tail-bytes 100").is_err());
        assert!(parse("12.3 --stderr --stdout").is_err());
        assert!(parse("12.3 --timestamps --tail-bytes 100").unwrap().timestamps);
        assert!(
            parse("12.3 --timestamps -f -n 3").is_ok() && parse("12 --timestamps --results out").is_err()
        );
        assert!(parse("").is_err());
        assert!(parse("x").is_err());
    }

    #[test]
    fn an_attempt_is_over_when_it_writes_no_more() {
        let task = |state, attempt| Task {
            expected_end_ms: None,
            id: "1.0".to_owned(),
            job: 1,
            index: 0,
            step: "main".to_owned(),
            value: None,
            state,
            progress: None,
            status: None,
            jobserver: None,
            attempt: windlass_api::Attempt { attempt, ..Default::default() },
            failure: None,
            history: Vec::new(),
        };
        assert!(!is_over(&task(TaskState::Ready, 0), 1), "it waits for its first attempt");
        assert!(!is_over(&task(TaskState::Booked, 1), 1) && !is_over(&task(TaskState::Running, 1), 1));
        assert!(is_over(&task(TaskState::Ready, 1), 1), "it failed and is tried again");
        assert!(is_over(&task(TaskState::Running, 2), 1) && is_over(&task(TaskState::Succeeded, 1), 1));
        assert!(is_over(&task(TaskState::Canceled, 0), 1), "it never started");
    }
}
