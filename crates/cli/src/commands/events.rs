//! `windlass events`: prints events as they happen. Where the server is started again, or another one takes over, it goes
//! on there. Of one job, the start and the end of each task are then printed once, wherever the streams were cut. The
//! events of one job end with the job.

use crate::client::context::Context;
use crate::client::link::{ServerLink, hung_up};
use crate::commands::follow::Events;
use crate::commands::list::counts;
use crate::commands::run::exit_code;
use crate::commands::select::JobRef;
use crate::commands::story::Story;
use crate::ui::error::{CliError, Doing, end_with};
use crate::ui::failure::{StderrLines, tell_failures};
use crate::ui::output::{Format, fit, paint, print_json, print_jsonl, print_text};
use clap::Args;
use std::fmt::Write;
use windlass_api::client::{Client, ClientError, TasksQuery};
use windlass_api::{Counts, Job, JobEvent, JobState, ServerEvent, Task, TaskEvent, TaskState, TasksEvent};

/// The purpose of this command, for errors.
const DOING: &str = "listen to events";
/// Tasks in one page of a list.
const PAGE: usize = 1000;

/// Shows events as they happen.
#[derive(Args, Debug)]
#[command(
    after_help = "The events of one job end with the job, at once if it has ended. The command then says why tasks
failed, and exits with the job's code, as 'windlass job wait' does.

When the server ends, the command goes on with the next one, for which it waits up to 60 s. Of one job it
then tells what happened meanwhile: each start and end of a task once, of several attempts the last. Of
all jobs it says 'lagged': some events were missed."
)]
pub struct EventsArgs {
    /// Only events of this job, until it has ended
    job: Option<JobRef>,
}

/// The reason for which a stream of events ended.
enum Broken {
    /// The connection, or the server.
    Client(ClientError),
    /// This program's own output.
    Output(CliError),
}

impl From<ClientError> for Broken {
    fn from(error: ClientError) -> Self {
        Broken::Client(error)
    }
}

impl From<CliError> for Broken {
    fn from(error: CliError) -> Self {
        Broken::Output(error)
    }
}

/// Runs the command `windlass events`.
pub async fn events(context: &Context, args: &EventsArgs) -> Result<(), CliError> {
    let mut link = ServerLink::open(context).await?;
    let job = match args.job {
        Some(job) => {
            let id = job.resolve(&link.client).await?;
            // A missing job would have no events, and the command would wait for ever.
            link.client.job(id).await.doing(format_args!("show the events of job {id}"))?;
            Some(id)
        }
        None => None,
    };
    let mut listener =
        Listener { format: context.format, job, story: Story::default(), ended: None, missed: false };
    if job.is_some() {
        let client = link.client.clone();
        // What happened before is not told.
        while let Err(error) = listener.read(&client).await {
            link.pause(DOING, error).await?;
        }
        // Its end is told, whenever that was.
        listener.ended = None;
    }
    loop {
        match listener.listen(&mut link).await {
            Ok(job) => {
                let code = exit_code(&mut link, &job).await?;
                if !context.format.is_json() {
                    tell_failures(&link.client, &job, StderrLines::Quoted).await;
                }
                return end_with(code);
            }
            Err(Broken::Output(error)) => return Err(error),
            Err(Broken::Client(error)) => {
                listener.missed = true;
                link.pause(DOING, error).await?;
            }
        }
    }
}

struct Listener {
    format: Format,
    job: Option<u64>,
    /// The story of the job's tasks so far.
    story: Story,
    /// The end of the job that was told.
    ended: Option<JobState>,
    /// True if events of all jobs were missed.
    missed: bool,
}

impl Listener {
    /// Tells what one server says, until the job has ended, which is returned. It listens before it reads the state, so
    /// that no change is missed between the two.
    async fn listen(&mut self, link: &mut ServerLink) -> Result<Job, Broken> {
        let mut events = Events::open(&link.client, self.job).await?;
        self.catch_up(&link.client).await?;
        link.calm();
        if let Some(job) = self.ended_job(link).await? {
            return Ok(job);
        }
        while let Some(event) = events.receiver.recv().await {
            let event = event?;
            let is_lagged = matches!(event, ServerEvent::Lagged);
            let may_end = is_lagged || matches!(&event, ServerEvent::Job(job) if job.state.is_end());
            if let Some(event) = self.news(event) {
                self.tell(&event)?;
            }
            if is_lagged {
                self.catch_up(&link.client).await?;
            }
            if may_end && let Some(job) = self.ended_job(link).await? {
                return Ok(job);
            }
        }
        Err(hung_up(&events.address).into())
    }

    /// The job, if it is the one whose events are told and has ended. Its end is told then, if it was not.
    async fn ended_job(&mut self, link: &ServerLink) -> Result<Option<Job>, Broken> {
        let Some(id) = self.job else { return Ok(None) };
        let job = link.client.job(id).await?;
        if !job.state.is_end() {
            return Ok(None);
        }
        // The ends of its last tasks come first.
        self.catch_up(&link.client).await?;
        if self.ended != Some(job.state) {
            self.ended = Some(job.state);
            self.tell(&ServerEvent::Job(JobEvent { job: id, state: job.state, counts: job.counts }))?;
        }
        Ok(Some(job))
    }

    /// The part of an event that was not told yet; `None` if all was.
    fn news(&mut self, event: ServerEvent) -> Option<ServerEvent> {
        if self.job.is_none() {
            return Some(event);
        }
        match event {
            ServerEvent::Tasks(mut event) => {
                event.tasks.retain(|task| self.story.take_event(task));
                (!event.tasks.is_empty()).then_some(ServerEvent::Tasks(event))
            }
            ServerEvent::Job(event) => {
                let ended = event.state.is_end().then_some(event.state);
                let is_news = ended.is_none() || ended != self.ended;
                self.ended = ended;
                is_news.then_some(ServerEvent::Job(event))
            }
            event => Some(event),
        }
    }

    /// Tells what the state has that no event said.
    async fn catch_up(&mut self, client: &Client) -> Result<(), Broken> {
        if self.job.is_some() {
            for event in self.read(client).await? {
                self.tell(&event)?;
            }
        } else if std::mem::take(&mut self.missed) {
            self.tell(&ServerEvent::Lagged)?;
        }
        Ok(())
    }

    /// Reads the state of the job, and returns what of it was not told.
    async fn read(&mut self, client: &Client) -> Result<Vec<ServerEvent>, ClientError> {
        let Some(id) = self.job else { return Ok(Vec::new()) };
        let job = client.job(id).await?;
        let mut states = Vec::new();
        if job.counts.running > 0 {
            states.push("running");
        }
        if self.story.ended() < job.counts.ended() - job.counts.skipped {
            states.extend(["succeeded", "failed", "canceled"]);
        }
        let mut read = Vec::new();
        let mut query = TasksQuery { state: Some(states.join(",")), limit: Some(PAGE), cursor: None };
        while !states.is_empty() {
            let page = client.tasks(id, &query).await?;
            read.extend(page.items);
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
        // Only now: what is noted is told, and reading may have broken off before.
        let tasks = read.iter().flat_map(|task| self.task_news(task)).collect();
        let mut events = tasks_event(id, job.counts, tasks);
        if job.state.is_end() && self.ended != Some(job.state) {
            self.ended = Some(job.state);
            events.push(ServerEvent::Job(JobEvent { job: id, state: job.state, counts: job.counts }));
        }
        Ok(events)
    }

    /// The start and the end of a task's last attempt, as far as they were not told.
    fn task_news(&mut self, task: &Task) -> Vec<TaskEvent> {
        let news = self.story.take_task(task);
        let attempt = &task.attempt;
        let bare = TaskEvent {
            index: task.index,
            state: TaskState::Running,
            attempt: attempt.attempt,
            exit_code: None,
            out_bytes: 0,
            err_bytes: 0,
        };
        let end = TaskEvent {
            state: task.state,
            exit_code: attempt.exit_code,
            out_bytes: attempt.out_bytes,
            err_bytes: attempt.err_bytes,
            ..bare.clone()
        };
        // No event tells the end of a task that never started.
        let has_ended = news.ended && attempt.attempt > 0;
        news.started.then_some(bare).into_iter().chain(has_ended.then_some(end)).collect()
    }

    fn tell(&self, event: &ServerEvent) -> Result<(), CliError> {
        match self.format {
            Format::Json => print_json(event),
            Format::Jsonl => print_jsonl(event),
            Format::Table => print_text(&event_text(event)),
            Format::Name => print_text(&format!("{}\n", event.name())),
        }
    }
}

fn tasks_event(job: u64, counts: Counts, tasks: Vec<TaskEvent>) -> Vec<ServerEvent> {
    match tasks.is_empty() {
        true => Vec::new(),
        false => vec![ServerEvent::Tasks(TasksEvent { job, counts, tasks })],
    }
}

fn event_text(event: &ServerEvent) -> String {
    match event {
        ServerEvent::Job(event) => {
            format!("job {} {} ({})\n", event.job, paint(event.state.shown()), counts(&event.counts))
        }
        ServerEvent::Tasks(event) => {
            let mut text = String::new();
            for task in &event.tasks {
                let code = task.exit_code.map(|code| format!(", exit {code}")).unwrap_or_default();
                let state = paint(task.state.shown());
                let _ = writeln!(
                    text,
                    "task {}.{} {state}, attempt {}{code}",
                    event.job, task.index, task.attempt
                );
            }
            text
        }
        ServerEvent::Worker(event) => {
            format!("worker {} {}\n", fit(&event.worker, None), fit(&event.what, None))
        }
        ServerEvent::Lagged => "some events were missed\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_move_the_cursor() {
        let event = windlass_api::WorkerEvent { worker: "a\u{1b}[2J".to_owned(), what: "came".to_owned() };
        assert!(!event_text(&ServerEvent::Worker(event)).contains('\u{1b}'));
    }

    #[test]
    fn the_end_of_a_job_is_told_once_and_a_second_end_too() {
        let mut listener = Listener {
            format: Format::Table,
            job: Some(1),
            story: Story::default(),
            ended: None,
            missed: false,
        };
        let event = |state| ServerEvent::Job(JobEvent { job: 1, state, counts: Counts::default() });
        assert!(listener.news(event(JobState::Failed)).is_some());
        assert!(listener.news(event(JobState::Failed)).is_none(), "another server said it");
        assert!(listener.news(event(JobState::Running)).is_some(), "it is retried");
        assert!(listener.news(event(JobState::Failed)).is_some());
    }
}
