//! A farm's own history as a trace.

use crate::client::context::Context;
use crate::commands::list::each_task;
use crate::commands::select::jobs_of;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use clap::Args;
use std::collections::BTreeMap;
use std::io::{self, BufWriter};
use windlass_api::client::JobsQuery;
use windlass_api::{Job, Step, Task, TaskState};
use windlass_sim::swf::{self, Record, Trace};

/// Flags of `sim export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Only jobs of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only jobs of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Keep milliseconds, for short tasks; the format has none, and some readers do not accept them
    #[arg(long)]
    fractions: bool,
}

/// `windlass sim export`: each task that ran and ended is a job of the trace.
pub async fn export(context: &Context, args: &ExportArgs) -> Result<(), CliError> {
    let client = context.client().await?;
    let query = JobsQuery { user: args.user.clone(), queue: args.queue.clone(), ..JobsQuery::default() };
    let (mut jobs, _) = jobs_of(&client, query, usize::MAX).await?;
    jobs.sort_by_key(|job| (job.created_ms, job.id));
    let cpus: f64 =
        client.workers(false).await.doing("list the workers")?.iter().map(|w| w.capacity.cpus).sum();
    let mut history = History::new(jobs.first().map_or(0, |job| job.created_ms));
    for job in &jobs {
        let ended = Some("succeeded,failed,canceled".to_owned());
        each_task(&client, job.id, ended, None, usize::MAX, |tasks| {
            tasks.iter().for_each(|task| history.add(job, task));
            Ok(())
        })
        .await?;
    }
    let trace = history.into_trace(cpus);
    if trace.jobs.is_empty() {
        message!("note: no task has ended yet");
    }
    let mut out = BufWriter::new(io::stdout().lock());
    swf::write(&trace, args.fractions, &mut out)
        .and_then(|()| io::Write::flush(&mut out))
        .map_err(CliError::output)
}

/// A trace that grows. Names get numbers from 1, in the order of their first use.
struct History {
    begin_ms: u64,
    trace: Trace,
    users: BTreeMap<String, u64>,
    queues: BTreeMap<String, u64>,
    programs: BTreeMap<String, u64>,
}

fn number(names: &mut BTreeMap<String, u64>, name: &str) -> Option<u64> {
    let next = names.len() as u64 + 1;
    Some(*names.entry(name.to_owned()).or_insert(next))
}

impl History {
    fn new(begin_ms: u64) -> Self {
        History {
            begin_ms: begin_ms / 1000 * 1000,
            trace: Trace::default(),
            users: BTreeMap::new(),
            queues: BTreeMap::new(),
            programs: BTreeMap::new(),
        }
    }

    /// Adds a task, unless it never ran or its times are not known.
    fn add(&mut self, job: &Job, task: &Task) {
        let Some((started_ms, finished_ms)) = task.attempt.started_ms.zip(task.attempt.finished_ms) else {
            return;
        };
        let Some(step) = job.steps.iter().find(|step| step.name == task.step) else { return };
        let cpus = (step.resources.cpus.ceil() as u64).max(1);
        let kib = |bytes: u64| bytes.div_ceil(1024 * cpus);
        self.trace.jobs.push(Record {
            number: self.trace.jobs.len() as u64 + 1,
            submit_ms: job.created_ms - self.begin_ms,
            wait_ms: Some(started_ms.saturating_sub(job.created_ms)),
            run_ms: Some(finished_ms.saturating_sub(started_ms)),
            cpus: Some(cpus),
            cpu_ms: task.attempt.cpu_ms.map(|ms| ms / cpus),
            memory_kib: task.attempt.peak_memory.map(kib),
            asked_cpus: Some(cpus),
            asked_ms: step.time_limit_ms,
            asked_memory: Some(step.resources.memory).filter(|bytes| *bytes > 0).map(kib),
            status: status(task.state),
            user: number(&mut self.users, &job.user),
            queue: number(&mut self.queues, &job.queue),
            executable: number(&mut self.programs, &program(step)),
            ..Record::default()
        });
    }

    fn into_trace(self, cpus: f64) -> Trace {
        let turned =
            |names: BTreeMap<String, u64>| names.into_iter().map(|(name, number)| (number, name)).collect();
        let mut trace = self.trace;
        let header = [
            ("Version", "2.2".to_owned()),
            ("Computer", "Windlass".to_owned()),
            ("UnixStartTime", (self.begin_ms / 1000).to_string()),
            ("TimeZoneString", "UTC".to_owned()),
            ("MaxJobs", trace.jobs.len().to_string()),
            ("MaxRecords", trace.jobs.len().to_string()),
            ("MaxProcs", cpus.ceil().to_string()),
            ("Note", "a job is one task; its wait counts from the submission of its job".to_owned()),
        ];
        trace.header = header.map(|(word, value)| (word.to_owned(), value)).into();
        trace.users = turned(self.users);
        trace.queues = turned(self.queues);
        trace.programs = turned(self.programs);
        trace
    }
}

/// The program of a step: steps of one name and shape are taken to run the same one.
fn program(step: &Step) -> String {
    [&*step.name, &*step.hints.shape].join(" ").trim_end().to_owned()
}

fn status(state: TaskState) -> Option<u64> {
    match state {
        TaskState::Succeeded => Some(1),
        TaskState::Failed => Some(0),
        TaskState::Canceled => Some(5),
        _ => None,
    }
}
