//! `windlass logs`: the output of tasks.

use crate::Context;
use crate::commands::follow::{self, follow};
use crate::commands::list::each_task;
use crate::commands::select::TaskOrJob;
use crate::node::link::ServerLink;
use crate::node::signals::Stop;
use crate::ui::error::{CliError, Doing};
use crate::ui::output::{Format, talk};
use crate::ui::printer::{STREAMS, ShownOutput, copy};
use crate::ui::progress;
use crate::ui::writer::Writer;
use clap::Args;
use std::sync::atomic::AtomicU64;
use windlass_api::client::{Client, ClientError, LogQuery};
use windlass_api::{Task, TaskState};

/// Shows the output of a task, or of all tasks of a job in order.
#[derive(Args, Debug)]
#[command(
    after_help = "With -f the output of a task is shown live. A job with several tasks is shown task by task as
they end, so that their lines do not mix."
)]
pub struct LogsArgs {
    /// A task (12.3) or a job (12, last)
    id: TaskOrJob,
    /// Follow the output until the task or the job has ended
    #[arg(long, short)]
    follow: bool,
    /// Only standard output
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Only standard error
    #[arg(long)]
    stderr: bool,
    /// This attempt instead of the last
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Only the last N bytes of each stream
    #[arg(long, value_name = "N")]
    tail_bytes: Option<u32>,
}

/// `windlass logs`.
pub async fn logs(context: &Context, args: &LogsArgs) -> Result<(), CliError> {
    if context.format != Format::Table {
        talk!("note: logs are raw bytes; --output does not change them");
    }
    let client = context.client().await?;
    let stop = Stop::never(client.clone());
    match args.id {
        TaskOrJob::Task(job, index) => {
            let id = format!("{}.{index}", job.resolve(&client).await?);
            let writer = Writer::start(None, stop.on_broken());
            let shown = show_task(&client, &id, args, &writer).await;
            writer.flush().await.map_err(CliError::output)?;
            shown.doing(format_args!("show the output of task {id}"))
        }
        TaskOrJob::Job(job) => {
            let id = job.resolve(&client).await?;
            if args.follow && !args.is_partial() {
                let mut link = ServerLink::new(client, context.server.clone());
                let options = follow::Options {
                    show: ShownOutput::Output,
                    progress: progress::Show::Never,
                    quiet: true,
                };
                return follow(&mut link, id, options, &stop).await.map(|_| ());
            }
            show_job(&client, id, args, &stop).await
        }
    }
}

/// Shows all tasks of a job that may have written something, in order of their numbers.
async fn show_job(client: &Client, job: u64, args: &LogsArgs, stop: &Stop) -> Result<(), CliError> {
    let mut tasks: Vec<String> = Vec::new();
    each_task(client, job, None, usize::MAX, |part| {
        tasks.extend(part.into_iter().filter(may_have_written).map(|task| task.id));
        Ok(())
    })
    .await?;
    let writer = Writer::start(None, stop.on_broken());
    let mut shown = Ok(());
    for id in tasks {
        shown = show_task(client, &id, args, &writer).await;
        shown = match shown {
            // The output of one task may be deleted while that of the others is there.
            Err(ClientError::Refused(detail)) => {
                writer
                    .say(&format!("note: the output of task {id} cannot be shown: {}", detail.message))
                    .await;
                Ok(())
            }
            other => other,
        };
        if shown.is_err() {
            break;
        }
    }
    writer.flush().await.map_err(CliError::output)?;
    shown.doing(format_args!("show the output of job {job}"))
}

/// True if the task may have output. That of a running task is not known in advance.
fn may_have_written(task: &Task) -> bool {
    let attempt = &task.attempt;
    task.state == TaskState::Running || attempt.out_bytes > 0 || attempt.err_bytes > 0
}

async fn show_task(client: &Client, id: &str, args: &LogsArgs, writer: &Writer) -> Result<(), ClientError> {
    let show = |place: usize| {
        let (stream, sink) = STREAMS[place];
        let query = LogQuery {
            stream,
            attempt: args.attempt,
            offset: args.tail_bytes.map(|bytes| -i64::from(bytes)),
            follow: args.follow,
        };
        async move {
            let offset = AtomicU64::new(0);
            if args.wants(place) { copy(client, id, query, writer, sink, &offset).await } else { Ok(()) }
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

    /// True if only a part of the output is wanted.
    fn is_partial(&self) -> bool {
        self.stdout || self.stderr || self.attempt.is_some() || self.tail_bytes.is_some()
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
        assert!(parse("12.3 --stderr --stdout").is_err());
        assert!(parse("").is_err());
        assert!(parse("x").is_err());
    }
}
