//! `windlass job fetch` and `run --fetch`: the outputs of tasks, into a directory of this machine.

use crate::client::context::Context;
use crate::client::link::ServerLink;
use crate::commands::files::args::PutArgs;
use crate::commands::files::download::{Download, FetchSummary, broke_off, has_some};
use crate::commands::files::known::KnownFiles;
use crate::commands::select::JobRef;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::{Format, print_json, print_jsonl, print_lines};
use crate::ui::transfer::Transfer;
use clap::{Args, ValueHint};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use windlass_api::client::files::job_files;
use windlass_api::{Job, TaskOutputs, TaskSet};
use windlass_core::ranges::RangeSet;

/// Ends of tasks that are taken in together.
const ENDS_MAX: usize = 1_000;

/// The job whose outputs are fetched, and where to.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  windlass job fetch last
  windlass job fetch 12 out --task 3-9
  windlass job fetch 12 film --flat --force

Of a job of one task, and of one task of a job, the outputs are in DIR itself; of several tasks those of task
12.3 are in DIR/STEP.3. What is there with the same content is not written again.")]
pub struct JobFetchArgs {
    /// The job: 12, or last
    #[arg(value_name = "JOB")]
    job: JobRef,
    /// Directory for the outputs, which is made if it is not there
    #[arg(value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// Only the outputs of these tasks: 6, 3-9 or 1,4-6
    #[arg(long, value_name = "TASKS")]
    task: Option<TaskSet>,
    #[command(flatten)]
    put: PutArgs,
}

/// Runs the command `windlass job fetch`.
pub async fn fetch(context: &Context, args: &JobFetchArgs) -> Result<(), CliError> {
    let mut link = ServerLink::open(context).await?;
    let id = args.job.resolve(&link.client).await?;
    let job = link.client.job(id).await.doing(format_args!("fetch the outputs of job {id}"))?;
    let wanted = args.task.clone().map(TaskSet::into_ranges);
    let is_one = job.counts.total == 1 || args.task.as_ref().is_some_and(|tasks| tasks.only().is_some());
    let mut fetch = Download::new(&job, &args.dir, args.put, is_one)?;
    let mut known = KnownFiles::load();
    let transfer = Arc::new(Transfer::start("fetching", None, true));
    let mut from = wanted.as_ref().and_then(RangeSet::first).unwrap_or(0);
    loop {
        let doing = format!("list the outputs of job {id}");
        let page = link.ask(&doing, |client| async move { job_files(&client, id, from).await }).await?;
        let mut outputs = page.outputs;
        outputs.retain(|of| wanted.as_ref().is_none_or(|wanted| wanted.contains(of.index)));
        outputs.retain(|of| has_some(id, of) && !fetch.is_there(of, &mut known));
        fetch.all(&mut link, outputs, &transfer).await?;
        match page.next {
            Some(next) if next > from => from = next,
            _ => break,
        }
    }
    known.save();
    let (pace, summary) = (transfer.pace(), fetch.summary);
    drop(transfer);
    if summary.tasks == 0 {
        return Err(none_of(&job, args.task.as_ref()));
    }
    match context.format {
        Format::Json => print_json(&summary)?,
        Format::Jsonl => print_jsonl(&summary)?,
        Format::Name => print_lines([summary.dir.display().to_string()].into_iter())?,
        Format::Table => message!("{} {pace}", summary.text()),
    }
    summary.check()
}

fn none_of(job: &Job, tasks: Option<&TaskSet>) -> CliError {
    let id = job.id;
    let what = tasks.map_or_else(|| format!("job {id}"), |tasks| format!("tasks {id}.{tasks}"));
    let hint = if job.state.is_end() {
        format!("--outputs of 'windlass run' says what is kept; 'windlass job show {id}' shows what it was")
    } else {
        format!("outputs are there when their task has ended; 'windlass job wait {id}' waits for all")
    };
    CliError::NotFound { message: format!("there are no outputs of {what}"), hint: Some(hint) }
}

/// The outputs of a run's tasks, which are fetched while it goes on.
pub struct Fetching {
    ended: mpsc::UnboundedSender<u32>,
    done: JoinHandle<Result<FetchSummary, CliError>>,
}

impl Fetching {
    /// Begins, and waits for the first task that has ended.
    pub fn start(link: ServerLink, job: u64, dir: PathBuf, put: PutArgs) -> Fetching {
        let (ended, ends) = mpsc::unbounded_channel();
        let done = tokio::spawn(async move {
            let fetched = as_they_end(link, job, &dir, put, ends).await;
            if let Err(error) = &fetched {
                message!("note: outputs are not fetched any more: {}", error.message());
            }
            fetched
        });
        Fetching { ended, done }
    }

    /// Where the index of each task that has ended is told. There are no more than tasks of the job.
    pub fn ended(&self) -> mpsc::UnboundedSender<u32> {
        self.ended.clone()
    }

    /// Waits for the outputs of all tasks that were told. Nobody may hold what [`Fetching::ended`] gave any more.
    pub async fn finish(self, is_quiet: bool) -> Result<(), CliError> {
        drop(self.ended);
        let summary = self.done.await.map_err(|ended| broke_off(&ended))?;
        let summary = summary.map_err(|error| CliError::Failed {
            message: error.message(),
            hint: Some("'windlass job fetch JOB DIR' gets what is missing".to_owned()),
        })?;
        if !is_quiet && summary.tasks > 0 {
            message!("{}", summary.text());
        }
        summary.check()
    }
}

async fn as_they_end(
    mut link: ServerLink,
    id: u64,
    dir: &Path,
    put: PutArgs,
    mut ends: mpsc::UnboundedReceiver<u32>,
) -> Result<FetchSummary, CliError> {
    let doing = format!("fetch the outputs of job {id}");
    let job = link.ask(&doing, |client| async move { client.job(id).await }).await?;
    let mut fetch = Download::new(&job, dir, put, job.counts.total == 1)?;
    let transfer = Arc::new(Transfer::start("fetching", None, false));
    let mut ended = Vec::new();
    while ends.recv_many(&mut ended, ENDS_MAX).await > 0 {
        let wanted: BTreeSet<u32> = ended.drain(..).collect();
        let outputs = outputs_of(&mut link, id, &wanted, &doing).await?;
        fetch.all(&mut link, outputs, &transfer).await?;
    }
    Ok(fetch.summary)
}

/// The outputs of those of the tasks that have some.
async fn outputs_of(
    link: &mut ServerLink,
    job: u64,
    wanted: &BTreeSet<u32>,
    doing: &str,
) -> Result<Vec<TaskOutputs>, CliError> {
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(Vec::new()) };
    let (mut from, mut found) = (*first, Vec::new());
    loop {
        let page = link.ask(doing, |client| async move { job_files(&client, job, from).await }).await?;
        found.extend(page.outputs.into_iter().filter(|of| wanted.contains(&of.index) && has_some(job, of)));
        match page.next {
            Some(next) if next > from && next <= *last => from = next,
            _ => return Ok(found),
        }
    }
}
