//! Actions on existing jobs: wait, cancel, retry, hold, release.

use crate::client::context::Context;
use crate::client::link::ServerLink;
use crate::commands::args::parent_task;
use crate::commands::run::{exit_code, summary};
use crate::commands::select::{Jobs, Outcomes, resolve_all};
use crate::ui::error::{CliError, Doing, end_with};
use crate::ui::failure::{JobWithFailures, StderrLines, tell_failures};
use crate::ui::message::message;
use crate::ui::output::{Format, print_json, print_jsonl, print_lines};
use clap::Args;
use windlass_api::client::Client;
use windlass_api::{Job, JobState};

/// The jobs to act on.
#[derive(Args, Debug)]
pub struct IdsArgs {
    /// The jobs: 12, 1-5, 1,3 or last
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<Jobs>,
}

/// The jobs that get another priority.
#[derive(Args, Debug)]
pub struct PriorityArgs {
    /// The jobs: 12, 1-5, 1,3 or last
    #[arg(value_name = "JOB")]
    jobs: Jobs,
    /// The priority inside the queue: higher goes first
    #[arg(value_name = "N", allow_negative_numbers = true)]
    priority: i32,
}

/// An action on a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Kill its running tasks, and start no more.
    Cancel,
    /// Run its failed and cancelled tasks again.
    Retry,
    /// Start no further task.
    Hold,
    /// Start tasks again after a hold.
    Release,
}

impl Verb {
    /// The verb as the server knows it.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Cancel => "cancel",
            Verb::Retry => "retry",
            Verb::Hold => "hold",
            Verb::Release => "release",
        }
    }

    /// The message after success. A cancelled job may still have tasks that are being killed.
    pub fn done(self, job: &Job) -> String {
        let id = job.id;
        match self {
            Verb::Cancel if job.state.is_end() => format!("job {id} is {}", job.state.shown()),
            Verb::Cancel => format!("job {id} is being cancelled"),
            Verb::Retry => format!("job {id}: failed and cancelled tasks run again"),
            Verb::Hold => format!("job {id} is held; 'windlass job release {id}' releases it"),
            Verb::Release => format!("job {id} is released"),
        }
    }
}

/// Runs the command `windlass job hold|release`.
pub async fn act(context: &Context, args: &IdsArgs, verb: Verb) -> Result<(), CliError> {
    let client = context.client().await?;
    let mut outcomes = Outcomes::default();
    let mut jobs = Vec::new();
    for named in resolve_all(&client, &args.jobs).await? {
        let word = verb.word();
        let result = client.act(named.id, word).await.doing(format_args!("{word} job {}", named.id));
        if let Some(job) = outcomes.take(named, result, context.format.is_json()) {
            if context.format == Format::Table {
                message!("{}", verb.done(&job));
            }
            jobs.push(job);
        }
    }
    print_jobs(context.format, &jobs)?;
    outcomes.finish()
}

/// Runs the command `windlass job priority`.
pub async fn prioritize(context: &Context, args: &PriorityArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let (mut outcomes, mut jobs) = (Outcomes::default(), Vec::new());
    for named in resolve_all(&client, std::slice::from_ref(&args.jobs)).await? {
        let id = named.id;
        let result = client.set_priority(id, args.priority).await;
        let result = result.doing(format_args!("change the priority of job {id}"));
        if let Some(job) = outcomes.take(named, result, context.format.is_json()) {
            if context.format == Format::Table {
                message!("job {id} has priority {} in queue {}", job.priority, job.queue);
            }
            jobs.push(job);
        }
    }
    print_jobs(context.format, &jobs)?;
    outcomes.finish()
}

/// `windlass job wait`: exits with the first code that is not 0, in the order in which the jobs are given.
pub async fn wait(context: &Context, args: &IdsArgs) -> Result<(), CliError> {
    let mut link = ServerLink::open(context).await?;
    let named = resolve_all(&link.client, &args.jobs).await?;
    let mut outcomes = Outcomes::default();
    let (mut jobs, mut code) = (Vec::new(), 0);
    for named in named {
        let Some(job) = outcomes.take(named, wait_for(&mut link, named.id).await, context.format.is_json())
        else {
            continue;
        };
        let own = exit_code(&mut link, &job).await?;
        if context.format == Format::Table && job.state != JobState::Succeeded {
            message!("{}", summary(&job));
            tell_failures(&link.client, &job, StderrLines::Quoted).await;
        }
        code = if code == 0 { own } else { code };
        jobs.push(job);
    }
    print_ended(&link.client, context.format, &jobs).await?;
    outcomes.finish()?;
    end_with(code)
}

/// Waits for one job. If this process runs in a task, that task lends its cpus meanwhile: on a small machine the job
/// could not start otherwise.
pub async fn wait_for(link: &mut ServerLink, id: u64) -> Result<Job, CliError> {
    let lend = parent_task(link.client.address());
    link.ask(&format!("wait for job {id}"), |client| {
        let lend = lend.clone();
        async move { client.wait(id, lend.as_deref()).await }
    })
    .await
}

/// Prints jobs that have ended for programs, with their failures.
async fn print_ended(client: &Client, format: Format, jobs: &[Job]) -> Result<(), CliError> {
    if !format.is_json() {
        return print_jobs(format, jobs);
    }
    let mut told = Vec::new();
    for job in jobs {
        told.push(JobWithFailures::read(client, job).await);
    }
    match format {
        Format::Jsonl => told.iter().try_for_each(print_jsonl),
        _ => print_json(&told),
    }
}

/// Prints the jobs for programs. For people a message was printed for each.
pub fn print_jobs(format: Format, jobs: &[Job]) -> Result<(), CliError> {
    match format {
        Format::Table => Ok(()),
        Format::Json => print_json(jobs),
        Format::Jsonl => jobs.iter().try_for_each(print_jsonl),
        Format::Name => print_lines(jobs.iter().map(|job| job.id.to_string())),
    }
}
