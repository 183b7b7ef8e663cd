//! `run` and `submit`: submit a job, show its output and exit with its code.

use crate::client::context::Context;
use crate::client::link::ServerLink;
use crate::client::signals::Stop;
use crate::commands::args::{self, Inherit, TaskArgs};
use crate::commands::dry_run::dry_run;
use crate::commands::files::args::{FetchArgs, UnreadInput};
use crate::commands::files::fetch::Fetching;
use crate::commands::files::gather::{GatheredFiles, gather};
use crate::commands::files::upload::upload;
use crate::commands::follow::{self, follow};
use crate::commands::shown::{self, ShownArgs};
use crate::commands::template::{self, Submission};
use crate::commands::value_stream::ValueStream;
use crate::node::foreground;
use crate::ui::error::{
    BROKEN_PIPE, CliError, DENIED, Doing, FAILED, INTERRUPTED, UNREACHABLE, end_with, may_pass,
};
use crate::ui::failure::{JobWithFailures, StderrLines, tell_failures};
use crate::ui::message::message;
use crate::ui::output::{Format, count, numbers, print_json, print_jsonl, print_lines};
use crate::ui::printer;
use crate::ui::progress;
use crate::ui::quantity::elapsed;
use crate::ui::results::Results;
use clap::Args;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinHandle;
use windlass_api::client::{Client, ClientError};
use windlass_api::{Job, JobState, Param, SubmitRequest, Submitted};

/// How often a submission is sent again after an answer that cannot be read: it may have been truncated, and the key
/// makes sure that there is one job.
const GARBLED_MAX: u32 = 3;
/// Attempts, one per second, at the wait that lends cpus.
const LEND_TRIES: u32 = 60;

/// Runs a command once or for many values, shows its output and exits with its code.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  windlass run -- make test
  windlass run --each *.c -- cc -c {} -o {.}.o
  find . -name '*.png' | windlass run --each-line - --memory 2GiB -- optipng {}
  windlass run --array 1-100 --cpus 2 --time-limit 1h -- render --frame {}
  windlass run --show failed --results out --each *.c -- cc -c {}
  windlass run --input src --outputs '*.o' --fetch --flat --each src/*.c -- cc -c {}
  windlass run -f job.yaml -p Frames=1-10

Ctrl-C cancels the job, a second one exits without waiting. With -o json or jsonl the output of the
tasks is not shown, and the job is printed at the end as JSON; with jsonl each task before it.")]
pub struct RunArgs {
    #[command(flatten)]
    tasks: TaskArgs,
    /// Return at once and leave the job running
    #[arg(long, conflicts_with = "foreground", help_heading = "Output")]
    detach: bool,
    /// Run server and worker inside this process, for containers and CI
    #[arg(long, help_heading = "Work")]
    foreground: bool,
    /// Show the progress even if there is no terminal
    #[arg(long, help_heading = "Output")]
    progress: bool,
    /// Show only the output of the tasks
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
    #[command(flatten)]
    shown: ShownArgs,
    #[command(flatten)]
    fetch: FetchArgs,
}

/// Submits a job and prints its id.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  windlass submit --array 1-1000 -- ./simulate --seed {}
  windlass submit -f job.yaml -p @params.yaml
  id=$(windlass submit -o name -- make); windlass submit --after $id -- make install
  windlass submit --after last --wait --progress -- ./report")]
pub struct SubmitArgs {
    #[command(flatten)]
    tasks: TaskArgs,
    /// Submit a list of --each-line that is still being written as several jobs, each with the values that have come
    #[arg(
        long, requires = "each_line", conflicts_with_all = ["wait", "progress", "key", "dry_run"],
        help_heading = "Work"
    )]
    stream: bool,
    /// Wait until the job has ended, and exit with its code
    #[arg(long, help_heading = "Output")]
    wait: bool,
    /// Wait, and show the progress
    #[arg(long, help_heading = "Output")]
    progress: bool,
    /// Print only the id
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

/// Runs the command `windlass run`.
pub async fn run(context: &Context, args: &RunArgs) -> Result<(), CliError> {
    if args.tasks.template.parameters {
        return template::list_parameters(context.format, &args.tasks);
    }
    let server = context.server.as_ref().filter(|_| !args.foreground);
    let Submission { mut request, inputs } = template::submission(&args.tasks, Inherit::at(server))?;
    if args::is_empty(&request) {
        message!("note: there are no values, so there is nothing to run");
        return Ok(());
    }
    request.placeable_only = true;
    let (mut results, mut fetch_dir) = (None, None);
    if !args.tasks.dry_run {
        results = args.shown.open_results()?;
        fetch_dir = args.fetch.directory()?;
    }
    if fetch_dir.is_some() && !keeps_outputs(&request) {
        return Err(CliError::Usage {
            message: "--fetch: no step keeps outputs that could be fetched".to_owned(),
            hint: Some("say what is kept, such as --outputs '*.o'".to_owned()),
        });
    }
    let files = gather(&mut request, &inputs, !args.quiet)?;
    let prepared = PreparedRun { request, files, results, fetch_dir };
    if args.foreground {
        let foreground = foreground::start().await?;
        let link = ServerLink::to_own(foreground.client.clone());
        let result = run_on(context, args, prepared, link).await;
        foreground.stop().await;
        return result;
    }
    let link = ServerLink::open(context).await?;
    run_on(context, args, prepared, link).await
}

/// What is known of a run before a server is asked.
struct PreparedRun {
    request: SubmitRequest,
    /// What is uploaded first.
    files: GatheredFiles,
    results: Option<Results>,
    /// Where the outputs of its tasks go.
    fetch_dir: Option<PathBuf>,
}

fn keeps_outputs(request: &SubmitRequest) -> bool {
    request.steps.iter().any(|step| step.files.as_ref().is_some_and(|files| !files.outputs.is_empty()))
}

async fn run_on(
    context: &Context,
    args: &RunArgs,
    prepared: PreparedRun,
    mut link: ServerLink,
) -> Result<(), CliError> {
    let PreparedRun { mut request, files, results, fetch_dir } = prepared;
    if args.tasks.dry_run {
        return dry_run(context, &args.tasks, request, &files, &link.client).await;
    }
    args.tasks.complete(&mut request, &link.client, !args.detach).await?;
    upload(&mut link, &files, args.quiet, context.verbose > 0).await?;
    let mut unread = UnreadInput::new(args.tasks.reads_input(), args.quiet);
    unread.tell();
    let stop = Stop::listen(link.client.clone(), args.foreground)?;
    let submitted = submit_once(&mut link, &request).await?;
    let job = submitted.job;
    if submitted.queue_created && !args.quiet {
        say_new_queue(&request);
    }
    if args.detach {
        print_submitted(context.format, &submitted, &request, args.quiet)?;
        if !args.quiet {
            message!(
                "'windlass job wait {job}' waits for it, 'windlass logs -f {job}' shows its output, \
                 'windlass job cancel {job}' cancels it"
            );
        }
        return Ok(());
    }
    if submitted.existing && !args.quiet {
        message!("note: job {job} was submitted before with this key");
    }
    if context.format == Format::Name {
        print_lines([job.to_string()].into_iter())?;
    }
    let show = args.shown.in_format(context.format);
    let progress = match (args.quiet, args.progress) {
        (true, _) => progress::Show::Never,
        (false, true) => progress::Show::Always,
        (false, false) => progress::Show::OnTerminal,
    };
    let fetching = fetch_dir.map(|dir| Fetching::start(link.beside(), job, dir, args.fetch.put));
    let told = fetching.as_ref().map(Fetching::ended);
    let options = follow::Options { show, progress, quiet: args.quiet, results: results.clone(), told };
    let (job, code) = watch(&mut link, job, request.parent.as_deref(), options, &stop).await?;
    unread.tell();
    let fetched = match fetching {
        Some(fetching) => fetching.finish(args.quiet).await,
        None => Ok(()),
    };
    print_end(&link.client, context.format, &job, code).await?;
    if code != 0
        && let Err(error) = &fetched
    {
        // The exit code is the job's own.
        error.print(context.format.is_json());
    }
    end_with(code)?;
    shown::check_kept(results.as_ref())?;
    fetched
}

/// Runs the command `windlass submit`.
pub async fn submit(context: &Context, args: &SubmitArgs) -> Result<(), CliError> {
    if args.tasks.template.parameters {
        return template::list_parameters(context.format, &args.tasks);
    }
    if let Some(source) = args.tasks.each_line.as_deref().filter(|_| args.stream) {
        return submit_stream(context, args, source).await;
    }
    if let Some(job) = crate::commands::compass::read(&args.tasks)? {
        if args.tasks.dry_run {
            return Err(CliError::usage(
                "--dry-run does not work for jobs of Compass CI, which have a suite",
            ));
        }
        return submit_compass(context, args, &job).await;
    }
    let inherit = Inherit::at(context.server.as_ref());
    let Submission { mut request, inputs } = template::submission(&args.tasks, inherit)?;
    if args::is_empty(&request) {
        return Err(CliError::usage("there are no values, so there is no task to submit"));
    }
    let files = gather(&mut request, &inputs, !args.quiet)?;
    let mut link = ServerLink::open(context).await?;
    if args.tasks.dry_run {
        return dry_run(context, &args.tasks, request, &files, &link.client).await;
    }
    let waits = args.wait || args.progress;
    args.tasks.complete(&mut request, &link.client, waits).await?;
    upload(&mut link, &files, args.quiet, context.verbose > 0).await?;
    UnreadInput::new(args.tasks.reads_input(), args.quiet).tell();
    let stop = if waits { Some(Stop::listen(link.client.clone(), false)?) } else { None };
    let submitted = submit_once(&mut link, &request).await?;
    if submitted.queue_created && !args.quiet {
        say_new_queue(&request);
    }
    if !waits || !context.format.is_json() {
        print_submitted(context.format, &submitted, &request, args.quiet)?;
    }
    if !submitted.unplaceable.is_empty() {
        say_unplaceable(&submitted);
        return end_with(crate::ui::error::CANNOT_BE_PLACED);
    }
    let Some(stop) = stop else { return Ok(()) };
    wait_for_end(context, args, &mut link, submitted.job, request.parent.as_deref(), &stop).await
}

/// Waits for a job that was submitted, without its output, and exits with its code.
async fn wait_for_end(
    context: &Context,
    args: &SubmitArgs,
    link: &mut ServerLink,
    job: u64,
    parent: Option<&str>,
    stop: &Stop,
) -> Result<(), CliError> {
    let progress = if args.progress { progress::Show::Always } else { progress::Show::Never };
    let options = follow::Options {
        show: printer::ShownOutput::Nothing,
        progress,
        quiet: args.quiet,
        results: None,
        told: None,
    };
    let (job, code) = watch(link, job, parent, options, stop).await?;
    if context.format.is_json() {
        print_end(&link.client, context.format, &job, code).await?;
    }
    end_with(code)
}

/// Submits a list that is still being written: one job after the other, each with the values that have come.
async fn submit_stream(context: &Context, args: &SubmitArgs, source: &str) -> Result<(), CliError> {
    args.tasks.check_input()?;
    let without_values = TaskArgs { each: Some(Vec::new()), each_line: None, ..args.tasks.clone() };
    let inherit = Inherit::at(context.server.as_ref());
    let Submission { mut request, inputs } = template::submission(&without_values, inherit)?;
    let files = gather(&mut request, &inputs, !args.quiet)?;
    let mut link = ServerLink::open(context).await?;
    args.tasks.complete(&mut request, &link.client, false).await?;
    upload(&mut link, &files, args.quiet, context.verbose > 0).await?;
    let mut values = ValueStream::open(source, args.tasks.separator())?;
    let mut jobs = 0;
    loop {
        let part = values.next_part().await?;
        if part.is_empty() && jobs == 0 {
            return Err(CliError::usage("there are no values, so there is no task to submit"));
        }
        if part.is_empty() {
            return Ok(());
        }
        jobs += 1;
        // A command is one step.
        if let Some(step) = request.steps.first_mut() {
            step.param = Some(Param::Values(part));
        }
        request.key = Some(args::fresh_key());
        let submitted = submit_once(&mut link, &request).await?;
        if submitted.queue_created && !args.quiet {
            say_new_queue(&request);
        }
        print_submitted(context.format, &submitted, &request, args.quiet)?;
        if !submitted.unplaceable.is_empty() {
            say_unplaceable(&submitted);
        }
    }
}

/// Submits a Compass CI job, which is submitted to that interface.
async fn submit_compass(
    context: &Context,
    args: &SubmitArgs,
    fields: &crate::commands::compass::Fields,
) -> Result<(), CliError> {
    let mut link = ServerLink::new(context.client().await?, context.server.clone());
    let (jobs, notes) = link.client.submit_compass(fields).await.doing("submit the job")?;
    notes.iter().for_each(|note| message!("{note}"));
    let waits = args.wait || args.progress;
    if waits && jobs.len() > 1 {
        let all = jobs.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        return Err(CliError::usage(format!(
            "the matrix became several jobs; wait for them: windlass job wait {all}"
        )));
    }
    for job in &jobs {
        let submitted =
            Submitted { job: *job, existing: false, queue_created: false, unplaceable: Vec::new() };
        // It has one step of one task.
        let request = SubmitRequest { steps: vec![Default::default()], ..SubmitRequest::default() };
        if !waits || !context.format.is_json() {
            print_submitted(context.format, &submitted, &request, args.quiet)?;
        }
    }
    let Some(job) = jobs.first().copied().filter(|_| waits) else { return Ok(()) };
    let stop = Stop::listen(link.client.clone(), false)?;
    wait_for_end(context, args, &mut link, job, None, &stop).await
}

/// Follows a job to its end; returns it with its exit code.
async fn watch(
    link: &mut ServerLink,
    job: u64,
    parent: Option<&str>,
    options: follow::Options,
    stop: &Stop,
) -> Result<(Job, i32), CliError> {
    stop.set_job(job);
    let shows_output = options.show.is_live();
    let quiet = options.quiet;
    let lent = parent.map(|task| lend(link.client.clone(), job, task.to_owned()));
    let job = match follow(link, job, options, stop).await {
        Ok(job) => job,
        Err(error) => {
            say_goes_on(job, &error);
            return Err(error);
        }
    };
    // The cpus that this task lent are in use until the wait has ended.
    if let Some(lent) = lent {
        let _ = lent.await;
    }
    let code = match stop.code() {
        Some(code) if code == BROKEN_PIPE || job.state != JobState::Succeeded => code,
        _ => exit_code(link, &job).await?,
    };
    let one_failed = job.counts.total == 1 && job.counts.failed == 1;
    // A single task that failed was reported when it did.
    let wants_summary = (code != 0 || std::io::stderr().is_terminal()) && !one_failed;
    if wants_summary && !quiet && code != BROKEN_PIPE {
        message!("{}", summary(&job));
    }
    if !quiet && code != BROKEN_PIPE && !(one_failed && shows_output) {
        tell_failures(&link.client, &job, StderrLines::Quoted).await;
    }
    Ok((job, code))
}

/// Says that a job which can be followed no more is not over: no server answers, or it lets this user in no more.
fn say_goes_on(job: u64, error: &CliError) {
    match error.exit_code() {
        DENIED => message!("job {job} goes on; with another token 'windlass job wait {job}' waits for it"),
        UNREACHABLE => message!("job {job} goes on; 'windlass job wait {job}' waits for it"),
        _ => {}
    }
}

/// Lends the cpus of `task` for as long as the job that it waits for runs.
fn lend(client: Client, job: u64, task: String) -> JoinHandle<()> {
    tokio::spawn(async move {
        for _ in 0..LEND_TRIES {
            match client.wait(job, Some(&task)).await {
                Err(error) if may_pass(&error) => tokio::time::sleep(Duration::from_secs(1)).await,
                Ok(_) | Err(_) => return,
            }
        }
    })
}

/// Submits, and again if the answer was lost: the request's key makes sure that there is one job.
pub async fn submit_once(link: &mut ServerLink, request: &SubmitRequest) -> Result<Submitted, CliError> {
    const DOING: &str = "submit the job";
    let mut tries = 0;
    loop {
        let error = match link.client.submit(request).await {
            Ok(submitted) => {
                link.calm();
                return Ok(submitted);
            }
            Err(error) => error,
        };
        tries += 1;
        let again = match &error {
            // Several servers may be changing places.
            error if error.is_temporary() && link.is_to_several() => true,
            // A named server that never answered is not waited for.
            error if error.is_unreachable() => tries > 1 || error.was_sent() || !link.is_named(),
            ClientError::Garbled { .. } => tries < GARBLED_MAX,
            _ => false,
        };
        if !again {
            return Err(error).doing(DOING);
        }
        link.pause(DOING, error).await?;
    }
}

/// The exit code of a job that has ended: 0, that of its first failed task, or that of a cancelled job.
pub async fn exit_code(link: &mut ServerLink, job: &Job) -> Result<i32, CliError> {
    match job.state {
        JobState::Succeeded => return Ok(0),
        JobState::Canceled => return Ok(INTERRUPTED),
        _ => {}
    }
    let id = job.id;
    let failed =
        link.ask(&format!("read how job {id} failed"), |client| async move {
            client.first_task(id, "failed").await
        })
        .await?;
    match failed {
        Some(task) => Ok(task.attempt.exit_code.filter(|code| *code != 0).unwrap_or(FAILED)),
        None => {
            let why = job.stopped.as_deref().unwrap_or("none of its tasks failed");
            message!("job {id} did not run to its end: {why}");
            Ok(FAILED)
        }
    }
}

fn print_submitted(
    format: Format,
    submitted: &Submitted,
    request: &SubmitRequest,
    quiet: bool,
) -> Result<(), CliError> {
    let job = submitted.job;
    match format {
        Format::Json => return print_json(submitted),
        Format::Jsonl => return print_jsonl(submitted),
        Format::Table if !quiet => {
            let tasks = count(args::tasks_of(request), "task");
            let verb = if submitted.existing { "Submitted before: job" } else { "Submitted job" };
            message!("{verb} {job} ({tasks})");
        }
        Format::Table | Format::Name => {}
    }
    // On a terminal the sentence above has the id.
    if format == Format::Name || quiet || !std::io::stdout().is_terminal() {
        print_lines([job.to_string()].into_iter())?;
    }
    Ok(())
}

fn say_new_queue(request: &SubmitRequest) {
    let queue = request.queue.as_deref().unwrap_or_default();
    message!("note: queue '{queue}' was created; 'windlass queues' lists those that there are");
}

fn say_unplaceable(submitted: &Submitted) {
    for step in &submitted.unplaceable {
        message!("note: no worker that the farm has now can run step '{}'", step.step);
        for reason in &step.reasons {
            message!("  {}: {}", count(reason.workers as u64, "worker"), reason.message);
        }
    }
    let job = submitted.job;
    message!("job {job} is accepted and waits for a worker that can; 'windlass job cancel {job}' cancels it");
}

/// The job with its failures and its exit code, for programs.
async fn print_end(client: &Client, format: Format, job: &Job, code: i32) -> Result<(), CliError> {
    if !format.is_json() {
        return Ok(());
    }
    let told = JobWithFailures::read(client, job).await;
    let mut value = serde_json::to_value(told).map_err(anyhow::Error::from)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("exit_code".to_owned(), code.into());
    }
    match format {
        Format::Json => print_json(&value),
        Format::Jsonl => print_jsonl(&value),
        Format::Table | Format::Name => Ok(()),
    }
}

/// "job 12: 98 succeeded, 2 failed in 3.2 s".
pub fn summary(job: &Job) -> String {
    let counts = &job.counts;
    let parts = numbers(&[
        (counts.succeeded, "succeeded"),
        (counts.failed, "failed"),
        (counts.canceled, "cancelled"),
        (counts.skipped, "skipped"),
    ]);
    let parts = if parts.is_empty() { job.state.shown() } else { parts.as_str() };
    match job.ended_ms {
        Some(ended) => {
            format!("job {}: {parts} in {}", job.id, elapsed(ended.saturating_sub(job.created_ms)))
        }
        None => format!("job {}: {parts}", job.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::Counts;

    fn job(counts: Counts) -> Job {
        Job {
            id: 12,
            name: "x".to_owned(),
            queue: "q".to_owned(),
            user: "u".to_owned(),
            priority: 0,
            max_running: None,
            state: JobState::Failed,
            stopped: None,
            reason: None,
            created_ms: 1_000,
            ended_ms: Some(4_249),
            expected_end_ms: None,
            after: Vec::new(),
            after_any: Vec::new(),
            after_not_ok: Vec::new(),
            after_tasks: None,
            on_end: Vec::new(),
            notice_failures: Vec::new(),
            parent: None,
            counts,
            steps: Vec::new(),
        }
    }

    #[test]
    fn the_summary_names_what_there_is() {
        let counts = Counts { total: 100, succeeded: 98, failed: 2, ..Default::default() };
        assert_eq!(summary(&job(counts)), "job 12: 98 succeeded, 2 failed in 3.2 s");
        let nothing = Counts { total: 0, ..Default::default() };
        assert_eq!(summary(&job(nothing)), "job 12: failed in 3.2 s");
    }

    #[test]
    fn a_code_of_zero_is_success() {
        assert!(end_with(0).is_ok());
        assert_eq!(end_with(124).unwrap_err().exit_code(), 124);
    }
}
