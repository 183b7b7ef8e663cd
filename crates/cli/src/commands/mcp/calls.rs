//! What the tools do: the same as the commands of those names, by the same functions.

use crate::client::context::Context;
use crate::client::link::ServerLink;
use crate::commands::args::{self, Inherit};
use crate::commands::dry_run;
use crate::commands::list::{jobs_grid, tasks_grid, words};
use crate::commands::log_lines::last_lines;
use crate::commands::mcp::answer::{PART_BYTES_MAX, ToolAnswer, fields_of, fits, tail};
use crate::commands::mcp::arguments::{
    CancelArguments, ListArguments, LogsArguments, NoArguments, ShowArguments, TasksArguments, WaitArguments,
    WhyArguments, WorkArguments, read,
};
use crate::commands::mcp::protocol::progress;
use crate::commands::mcp::tools::Tool;
use crate::commands::run::{exit_code, submit_once, summary};
use crate::commands::select::{JobRef, TaskOrJob};
use crate::commands::show::job_text;
use crate::commands::targets;
use crate::commands::template;
use crate::commands::verbs::{Verb, wait_for};
use crate::commands::why::{explain, task_text};
use crate::commands::{list, worker};
use crate::ui::error::{CliError, Doing};
use crate::ui::failure::JobWithFailures;
use crate::ui::output::count;
use crate::ui::printer::STREAMS;
use crate::ui::quantity::now_ms;
use anstream::adapter::strip_str;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use windlass_api::client::{Client, JobsQuery, LogQuery, TasksQuery, dry_run as try_submission, task_sets};
use windlass_api::{Job, Page, SubmitRequest, Task, TaskSet};

/// Seconds between two messages about a wait. Clients that hear of progress go on waiting.
const PROGRESS_EVERY_S: u64 = 2;
/// Bytes of a stream that are read for its last lines. More than an answer has, so that lines are not cut twice.
const LOG_BYTES_READ_MAX: u32 = 64 << 10;
/// Bytes of the output in an answer. The rest is for the words around it.
const LOG_BYTES_MAX: usize = PART_BYTES_MAX - (1 << 10);
/// Workers in an answer.
const WORKERS_SHOWN_MAX: usize = 50;

/// Fields of a job in a list.
const JOB_FIELDS: [&str; 11] = [
    "id",
    "name",
    "state",
    "queue",
    "user",
    "priority",
    "created_ms",
    "ended_ms",
    "expected_end_ms",
    "counts",
    "reason",
];
/// Fields of a task in a list.
const TASK_FIELDS: [&str; 13] = [
    "id",
    "step",
    "value",
    "state",
    "progress",
    "status",
    "attempt",
    "worker",
    "started_ms",
    "finished_ms",
    "end",
    "exit_code",
    "failure",
];
/// Fields of a worker in a list.
const WORKER_FIELDS: [&str; 7] = ["name", "state", "note", "capacity", "booked", "running", "connected"];

/// Where progress of a call is told.
pub struct CallProgress {
    /// By this the client knows which call it is.
    pub token: Value,
    /// Takes messages for the client. What finds no place is not said.
    pub sender: mpsc::Sender<Value>,
}

/// Does what a call asks for.
pub async fn call(
    context: &Context,
    tool: Tool,
    arguments: Map<String, Value>,
    told: Option<CallProgress>,
) -> Result<ToolAnswer, CliError> {
    match tool {
        Tool::Submit => submit(context, read(arguments)?).await,
        Tool::Preview => preview(context, read(arguments)?).await,
        Tool::Wait => wait(context, read(arguments)?, told).await,
        Tool::Why => why(context, read(arguments)?).await,
        Tool::Logs => logs(context, read(arguments)?).await,
        Tool::Cancel => cancel(context, read(arguments)?).await,
        Tool::List => list_jobs(context, read(arguments)?).await,
        Tool::Tasks => list_tasks(context, read(arguments)?).await,
        Tool::Show => show(context, read(arguments)?).await,
        Tool::Workers => workers(context, read(arguments)?).await,
    }
}

/// Why a call failed: what, why and what to do, for the model.
pub fn told_error(error: &CliError) -> String {
    match error.hint() {
        Some(hint) => format!("{}\nhint: {hint}", error.message()),
        None => error.message(),
    }
}

/// The request of `submit` and `preview`, and a link to the server that is asked.
async fn request(context: &Context, work: WorkArguments) -> Result<(SubmitRequest, ServerLink), CliError> {
    let tasks = work.task_args()?;
    let mut request = template::submission(&tasks, Inherit::at(context.server.as_ref()))?.request;
    if args::is_empty(&request) {
        return Err(CliError::usage("there are no values, so there is no task to submit"));
    }
    let link = ServerLink::open(context).await?;
    tasks.complete(&mut request, &link.client, false).await?;
    Ok((request, link))
}

async fn submit(context: &Context, work: WorkArguments) -> Result<ToolAnswer, CliError> {
    let (mut request, mut link) = request(context, work).await?;
    // As `windlass run` does: a job that no worker can run is refused at once, while its client can still mend it.
    request.placeable_only = true;
    let submitted = submit_once(&mut link, &request).await?;
    let (job, tasks) = (submitted.job, args::tasks_of(&request));
    let text = match submitted.existing {
        true => format!("job {job} was submitted before with this key"),
        false => format!("submitted job {job} ({}); call wait for its end", count(tasks, "task")),
    };
    let structured = json!({
        "job": job, "tasks": tasks, "existing": submitted.existing, "queue_created": submitted.queue_created,
    });
    Ok(ToolAnswer { text, structured })
}

async fn preview(context: &Context, work: WorkArguments) -> Result<ToolAnswer, CliError> {
    let (request, link) = request(context, work).await?;
    let tried = try_submission(&link.client, &request).await.doing("try the submission")?;
    let starting: u64 = tried.steps.iter().flat_map(|step| &step.starts).map(|on| u64::from(on.tasks)).sum();
    let waiting: u64 = tried.steps.iter().map(|step| u64::from(step.waiting)).sum();
    let text = plain(&dry_run::text_of(&tried, now_ms()));
    let mut fields = fields_of(json_of(&tried));
    fields.insert("starting".to_owned(), starting.into());
    fields.insert("waiting".to_owned(), waiting.into());
    Ok(ToolAnswer { text, structured: Value::Object(fields) })
}

async fn wait(
    context: &Context,
    arguments: WaitArguments,
    told: Option<CallProgress>,
) -> Result<ToolAnswer, CliError> {
    let mut link = ServerLink::open(context).await?;
    let id = arguments.job.parsed::<JobRef>("job")?.resolve(&link.client).await?;
    let (client, seconds) = (link.client.clone(), arguments.seconds());
    let ended = tokio::select! {
        ended = wait_for(&mut link, id) => Some(ended?),
        () = pass_time(&client, id, seconds, told) => None,
    };
    let job = match ended {
        Some(job) => job,
        None => link.client.job(id).await.doing(format_args!("show job {id}"))?,
    };
    let failures = JobWithFailures::read(&link.client, &job).await;
    let mut fields = fields_of(json_of(&failures));
    fields.insert("ended".to_owned(), job.state.is_end().into());
    let text = match job.state.is_end() {
        true => format!("{}\n{}", summary(&job), plain(&failures.text())),
        false => format!(
            "job {id} has not ended after {seconds} s: it is {} ({}). Call wait again, or why.",
            job.state.shown(),
            list::counts(&job.counts)
        ),
    };
    if job.state.is_end() {
        fields.insert("exit_code".to_owned(), exit_code(&mut link, &job).await?.into());
    }
    Ok(ToolAnswer { text: text.trim_end().to_owned(), structured: Value::Object(fields) })
}

/// Lets that time pass, and tells meanwhile how far the job is.
async fn pass_time(client: &Client, id: u64, seconds: u64, told: Option<CallProgress>) {
    let mut passed = 0;
    while passed < seconds {
        let pause = PROGRESS_EVERY_S.min(seconds - passed);
        tokio::time::sleep(Duration::from_secs(pause)).await;
        passed += pause;
        let Some(told) = &told else { continue };
        // A server that does not answer now may do so the next time.
        if let Ok(job) = client.job(id).await {
            let message = format!("job {id} is {} ({})", job.state.shown(), list::counts(&job.counts));
            _ = told.sender.try_send(progress(&told.token, passed, seconds, &message));
        }
    }
}

async fn why(context: &Context, arguments: WhyArguments) -> Result<ToolAnswer, CliError> {
    let id = arguments.id.parsed::<TaskOrJob>("id")?;
    let why = explain(&context.client().await?, id).await?;
    Ok(ToolAnswer { text: plain(&task_text(&why, now_ms(), 0)), structured: json_of(&why) })
}

async fn logs(context: &Context, arguments: LogsArguments) -> Result<ToolAnswer, CliError> {
    let client = context.client().await?;
    let task = match arguments.id.parsed::<TaskOrJob>("id")? {
        TaskOrJob::Task(job, index) => format!("{}.{index}", job.resolve(&client).await?),
        TaskOrJob::Job(job) => written_task(&client, job.resolve(&client).await?).await?,
    };
    let mut outputs: Vec<(&str, String, u64)> = Vec::new();
    for (stream, _) in STREAMS.into_iter().filter(|(stream, _)| arguments.wants(stream)) {
        let query = LogQuery { stream, attempt: arguments.attempt, ..LogQuery::default() };
        let read = last_lines(&client, &task, query, arguments.lines(), LOG_BYTES_READ_MAX).await;
        let (bytes, place) = read.doing(format_args!("show the output of task {task}"))?;
        outputs.push((stream, plain(&String::from_utf8_lossy(&bytes)), place.bytes()));
    }
    // One stream may have the room of both, as most tasks write to one.
    let written = outputs.iter().filter(|(_, output, _)| !output.is_empty()).count();
    let room = LOG_BYTES_MAX / written.max(1);
    let (mut text, mut is_cut, mut fields) = (String::new(), false, Map::new());
    for (stream, output, bytes) in outputs {
        let last = tail(&output, room);
        is_cut |= last.len() < output.len();
        if !last.is_empty() {
            text.push_str(&format!("{stream} of task {task}:\n{last}"));
            text.push_str(if last.ends_with('\n') { "" } else { "\n" });
        }
        fields.insert(stream.to_owned(), last.into());
        fields.insert(format!("{stream}_bytes"), bytes.into());
    }
    if text.is_empty() {
        text = format!("task {task} wrote nothing");
    } else if is_cut {
        text.push_str("(only the end fits in an answer: earlier lines are in 'windlass logs')\n");
    }
    fields.insert("task".to_owned(), task.into());
    fields.insert("cut".to_owned(), is_cut.into());
    Ok(ToolAnswer { text, structured: Value::Object(fields) })
}

/// The task of a job whose output says most: the first one that failed, or else runs, or else succeeded.
async fn written_task(client: &Client, job: u64) -> Result<String, CliError> {
    let counts = client.job(job).await.doing(format_args!("show job {job}"))?.counts;
    let each = [("failed", counts.failed), ("running", counts.running), ("succeeded", counts.succeeded)];
    // A search for what is not there would go through all tasks.
    for (states, _) in each.into_iter().filter(|(_, tasks)| *tasks > 0) {
        let first = client.first_task(job, states).await;
        if let Some(task) = first.doing(format_args!("list the tasks of job {job}"))? {
            return Ok(task.id);
        }
    }
    Ok(format!("{job}.0"))
}

/// Cancels by number alone: the job submitted last may be another agent's of the same user.
async fn cancel(context: &Context, arguments: CancelArguments) -> Result<ToolAnswer, CliError> {
    let JobRef::Id(id) = arguments.job.parsed("job")? else {
        return Err(CliError::Usage {
            message: "job: cancel takes the number of a job, because 'last' may be another one's".to_owned(),
            hint: Some("list has the numbers".to_owned()),
        });
    };
    let tasks = arguments.tasks.map(|tasks| tasks.parsed::<TaskSet>("tasks")).transpose()?;
    let client = context.client().await?;
    let word = Verb::Cancel.word();
    let (job, text) = match tasks {
        None => {
            let job = client.act(id, word).await.doing(format_args!("cancel job {id}"))?;
            let text = Verb::Cancel.done(&job);
            (job, text)
        }
        Some(tasks) => {
            let one = tasks.only();
            let what = match one {
                Some(index) => format!("task {id}.{index}"),
                None => format!("tasks {id}.{tasks}"),
            };
            let job = task_sets::act_on_tasks(&client, id, word, &tasks).await;
            (job.doing(format_args!("cancel {what}"))?, targets::done(Verb::Cancel, &what, one.is_some()))
        }
    };
    Ok(ToolAnswer { text, structured: brief(&job, &JOB_FIELDS) })
}

async fn list_jobs(context: &Context, arguments: ListArguments) -> Result<ToolAnswer, CliError> {
    let client = context.client().await?;
    let entries = arguments.limit.entries();
    let query = JobsQuery {
        state: words(&arguments.state),
        user: arguments.user,
        queue: arguments.queue,
        name: arguments.name,
        limit: None,
        cursor: arguments.cursor,
        reasons: true,
    };
    let read = async |limit: usize| -> Result<Page<Job>, CliError> {
        client.jobs(&JobsQuery { limit: Some(limit), ..query.clone() }).await.doing("list the jobs")
    };
    page(entries, read, &JOB_FIELDS, |jobs| jobs_grid(jobs).render(None)).await
}

async fn list_tasks(context: &Context, arguments: TasksArguments) -> Result<ToolAnswer, CliError> {
    let client = context.client().await?;
    let job = arguments.job.parsed::<JobRef>("job")?.resolve(&client).await?;
    let query = TasksQuery { state: words(&arguments.state), limit: None, cursor: arguments.cursor };
    let read = async |limit: usize| -> Result<Page<Task>, CliError> {
        let page = client.tasks(job, &TasksQuery { limit: Some(limit), ..query.clone() }).await;
        page.doing(format_args!("list the tasks of job {job}"))
    };
    page(arguments.limit.entries(), read, &TASK_FIELDS, |tasks| tasks_grid(tasks).render(None)).await
}

/// A page of a list. If its entries are too large for an answer, fewer are asked for, so that the cursor goes on behind
/// the last one that is shown.
async fn page<T: Serialize>(
    mut entries: usize,
    read: impl AsyncFn(usize) -> Result<Page<T>, CliError>,
    fields: &[&str],
    table: impl Fn(&[T]) -> String,
) -> Result<ToolAnswer, CliError> {
    loop {
        let page = read(entries).await?;
        let items: Vec<Value> = page.items.iter().map(|item| brief(item, fields)).collect();
        let mut structured = json!({"items": items});
        let mut text = plain(&table(&page.items));
        if let Some(next) = page.next {
            text.push_str(&format!("there are more: give cursor \"{next}\"\n"));
            structured["next"] = next.into();
        }
        if entries == 1 || (fits(&text) && structured.to_string().len() <= PART_BYTES_MAX) {
            return Ok(ToolAnswer { text, structured });
        }
        entries /= 2;
    }
}

async fn show(context: &Context, arguments: ShowArguments) -> Result<ToolAnswer, CliError> {
    let client = context.client().await?;
    let id = arguments.job.parsed::<JobRef>("job")?.resolve(&client).await?;
    let job = client.job(id).await.doing(format_args!("show job {id}"))?;
    let told = JobWithFailures::read(&client, &job).await;
    Ok(ToolAnswer { text: plain(&(job_text(&job) + &told.text())), structured: json_of(&told) })
}

async fn workers(context: &Context, _: NoArguments) -> Result<ToolAnswer, CliError> {
    let client = context.client().await?;
    let farm = client.overview().await.doing("read the overview of the farm")?;
    let mut workers = client.workers(false).await.doing("list the workers")?;
    let more = workers.len().saturating_sub(WORKERS_SHOWN_MAX);
    workers.truncate(WORKERS_SHOWN_MAX);
    let mut text = format!(
        "{}, {} of {} cpus booked; tasks: {}\n",
        count(farm.workers.total as u64, "worker"),
        farm.cpus.booked,
        farm.cpus.total,
        list::counts(&farm.tasks)
    );
    for hold in &farm.holds {
        text.push_str(&format!("the farm stands still: {hold}\n"));
    }
    text.push_str(&worker::workers_grid(&workers, false).render(None));
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    let items: Vec<Value> = workers.iter().map(|worker| brief(worker, &WORKER_FIELDS)).collect();
    let structured = json!({
        "workers": farm.workers, "cpus": farm.cpus, "tasks": farm.tasks, "jobs": farm.jobs,
        "waiting": farm.waiting, "holds": farm.holds, "items": items, "more": more,
    });
    Ok(ToolAnswer { text: plain(&text), structured })
}

/// Some fields of an item.
fn brief(item: &impl Serialize, fields: &[&str]) -> Value {
    let mut all = fields_of(json_of(item));
    all.retain(|name, _| fields.contains(&name.as_str()));
    Value::Object(all)
}

fn json_of(item: &impl Serialize) -> Value {
    serde_json::to_value(item).expect("types of the interface always serialize")
}

/// A text without colours.
fn plain(text: &str) -> String {
    strip_str(text).to_string()
}
