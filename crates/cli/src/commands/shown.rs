//! What `run` shows of its tasks, and where it keeps their results.

use crate::client::link::ServerLink;
use crate::commands::list::each_task;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::{Format, count};
use crate::ui::printer::ShownOutput;
use crate::ui::results::{KeepError, Results};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use windlass_api::{Task, TaskState};

/// What is shown and kept of the tasks of a run.
#[derive(Args, Clone, Debug)]
pub struct ShownArgs {
    /// Output that is shown: grouped, each task's in one piece when it ends, and that of a single task live; prefixed,
    /// the same with the task's id before each line; failed, only that of failed tasks; none
    #[arg(
        long,
        value_enum,
        default_value = "grouped",
        hide_possible_values = true,
        value_name = "grouped|prefixed|failed|none",
        conflicts_with = "detach",
        help_heading = "Output"
    )]
    pub show: ShowArg,
    /// Keep the results in this directory: for each task a directory with stdout, stderr and result.json
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, conflicts_with = "detach", help_heading = "Output")]
    pub results: Option<PathBuf>,
}

/// The tasks whose output is shown, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ShowArg {
    /// Each task's output in one piece when it ends; live, if there is one task.
    Grouped,
    /// The same, with the task's id before each line.
    Prefixed,
    /// Only the output of tasks that failed.
    Failed,
    /// No output of any task.
    None,
}

impl ShownArgs {
    /// The parts of the output that are shown in this format.
    pub fn in_format(&self, format: Format) -> ShownOutput {
        match (format, self.show) {
            (Format::Table, ShowArg::Grouped) => ShownOutput::Output,
            (Format::Table, ShowArg::Prefixed) => ShownOutput::Prefixed,
            (Format::Table, ShowArg::Failed) => ShownOutput::Failed,
            (Format::Jsonl, _) => ShownOutput::Records,
            (Format::Table, ShowArg::None) | (Format::Json | Format::Name, _) => ShownOutput::Nothing,
        }
    }

    /// The directory of the results, which is created here.
    pub fn open_results(&self) -> Result<Option<Results>, CliError> {
        self.results.as_deref().map(open).transpose()
    }
}

fn open(dir: &Path) -> Result<Results, CliError> {
    Results::in_dir(dir).map_err(|error| CliError::Usage {
        message: format!("--results: cannot use the directory {}: {error}", dir.display()),
        hint: Some("name a directory that you may write to; it is created if it does not exist".to_owned()),
    })
}

/// The error of a run of which not all results are kept.
pub fn check_kept(results: Option<&Results>) -> Result<(), CliError> {
    let Some(results) = results.filter(|results| results.missed() > 0) else { return Ok(()) };
    let missed = count(u64::from(results.missed()), "task");
    Err(CliError::Failed {
        message: format!("the results of {missed} are not in {}", results.dir().display()),
        hint: Some(
            "'windlass logs JOB --results DIR' writes them, while the server has the output".to_owned(),
        ),
    })
}

/// Keeps the results of the tasks of a job that have ended; of the one with this index, if it is given.
pub async fn keep_ended(link: &ServerLink, job: u64, index: Option<u32>, dir: &Path) -> Result<(), CliError> {
    let client = &link.client;
    let results = open(dir)?;
    let total = client.job(job).await.doing(format_args!("show job {job}"))?.counts.total;
    let mut tasks: Vec<Task> = Vec::new();
    match index {
        Some(index) => {
            let id = format!("{job}.{index}");
            tasks.push(client.task(&id).await.doing(format_args!("show task {id}"))?);
        }
        None => {
            each_task(client, job, None, None, usize::MAX, |part| {
                tasks.extend(part);
                Ok(())
            })
            .await?;
        }
    }
    let all = tasks.len();
    tasks.retain(|task| task.state.is_end() && task.state != TaskState::Skipped);
    for task in &tasks {
        match results.keep(client, task, total).await {
            Ok(()) => {}
            Err(KeepError::Request(error)) => {
                return Err(error).doing(format_args!("read the output of task {}", task.id));
            }
            Err(error @ KeepError::Write { .. }) => return Err(anyhow::Error::new(error).into()),
        }
    }
    let (kept, shown) = (count(tasks.len() as u64, "task"), results.dir().display());
    message!("the results of {kept} are in {shown}");
    if tasks.len() < all {
        let others = count((all - tasks.len()) as u64, "task");
        message!("note: without {others} of job {job} that did not run to an end");
    }
    Ok(())
}
