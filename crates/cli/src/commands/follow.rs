//! Follows a job to its end: every task's output and every failure is shown once, even if the connection breaks or the
//! server restarts.

use crate::client::link::{ServerLink, hung_up};
use crate::client::signals::Stop;
use crate::commands::story::Story;
use crate::ui::error::CliError;
use crate::ui::printer::{Ended, Printer, ShownOutput};
use crate::ui::progress::{self, Progress};
use crate::ui::results::Results;
use crate::ui::writer::Writer;
use futures_util::StreamExt;
use std::time::Duration;
use tokio::sync::mpsc;
use windlass_api::client::{Address, Client, ClientError, TasksQuery};
use windlass_api::{Job, ServerEvent, TaskState, TasksEvent};

/// Tasks in one page of a list.
const PAGE: usize = 1000;
/// How often progress is drawn while nothing happens.
const TICK: Duration = Duration::from_millis(500);

/// How a job is followed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The parts of its tasks' output that are shown.
    pub show: ShownOutput,
    /// When its progress is shown.
    pub progress: progress::Show,
    /// Failed tasks are not reported.
    pub quiet: bool,
    /// Where the results of its tasks are kept; `None` keeps none.
    pub results: Option<Results>,
    /// Where the index of each task that ran and has ended is told.
    pub told: Option<mpsc::UnboundedSender<u32>>,
}

struct Follow<'a> {
    link: &'a mut ServerLink,
    job: u64,
    printer: Printer,
    progress: Progress,
    /// The events of the tasks so far.
    story: Story,
}

/// Follows the job until it has ended.
pub async fn follow(link: &mut ServerLink, job: u64, options: Options, stop: &Stop) -> Result<Job, CliError> {
    let progress = Progress::new(options.progress, job);
    let writer = Writer::start(progress.bar(), stop.on_broken());
    let mut printer = Printer::new(writer.clone(), options.show, options.quiet);
    printer.results = options.results;
    printer.told = options.told;
    let mut follow = Follow { link, job, printer, progress, story: Story::default() };
    let ended = loop {
        match follow.session().await {
            Ok(job) => break Ok(job),
            Err(error) => {
                let pause = follow.printer.pause.take();
                if let Err(error) = wait(follow.link, &format!("follow job {job}"), error, pause).await {
                    break Err(error);
                }
            }
        }
    };
    let written = writer.flush().await;
    follow.progress.finish();
    let ended = ended?;
    // A reader that went away has cancelled the job, and the run exits with the code for that.
    match written {
        Err(error) if stop.code().is_none() => Err(CliError::output(error)),
        _ => Ok(ended),
    }
}

/// Waits a moment after a failure. Where it has a pause of its own, an output did not come from a server that answered
/// everything else, and that is counted for the output alone.
async fn wait(
    link: &mut ServerLink,
    doing: &str,
    error: ClientError,
    pause: Option<Duration>,
) -> Result<(), CliError> {
    let Some(pause) = pause else { return link.pause(doing, error).await };
    link.calm();
    link.client.pass(&error);
    tokio::time::sleep(pause).await;
    Ok(())
}

impl Follow<'_> {
    /// Follows the job over one connection. It subscribes to events before it reads the state, so that no change is
    /// missed between the two.
    async fn session(&mut self) -> Result<Job, ClientError> {
        let mut events = Events::open(&self.link.client, Some(self.job)).await?;
        let mut known = self.sync().await?;
        self.link.calm();
        let mut ticks = tokio::time::interval(TICK);
        while !known.state.is_end() {
            let event = tokio::select! {
                event = events.receiver.recv() => event,
                _ = ticks.tick() => {
                    self.progress.tick();
                    continue;
                }
            };
            match event.unwrap_or_else(|| Err(hung_up(&events.address)))? {
                ServerEvent::Tasks(event) => self.tasks(&known, event).await?,
                ServerEvent::Job(event) => {
                    self.progress.update(&event.counts);
                    if event.state.is_end() {
                        known = self.sync().await?;
                    }
                }
                ServerEvent::Lagged => known = self.sync().await?,
                ServerEvent::Worker(_) => {}
            }
        }
        Ok(known)
    }

    async fn tasks(&mut self, job: &Job, event: TasksEvent) -> Result<(), ClientError> {
        self.progress.update(&event.counts);
        for task in event.tasks {
            let is_news = self.story.take_event(&task);
            if is_news && task.state == TaskState::Running {
                self.printer.started(&self.link.client, job, task.attempt);
            } else if is_news && task.state.is_end() && task.state != TaskState::Skipped {
                self.printer.ended(&self.link.client, job, Ended::of_event(&task)).await?;
            } else if is_news && task.state == TaskState::Ready {
                self.printer.again(&self.link.client, job, &task).await;
            }
        }
        Ok(())
    }

    /// Reads the whole state, and shows tasks whose end was missed.
    async fn sync(&mut self) -> Result<Job, ClientError> {
        let client = self.link.client.clone();
        let job = client.job(self.job).await?;
        if job.counts.total == 1 && self.printer.show.is_live() {
            self.progress.hide();
        }
        self.progress.update(&job.counts);
        self.printer.resume(&client, &job).await?;
        if self.story.ended() < job.counts.ended() - job.counts.skipped {
            self.sync_tasks(&client, &job).await?;
        }
        if job.counts.total == 1 && job.counts.running == 1 {
            let task = client.task(&format!("{}.0", job.id)).await?;
            if task.state == TaskState::Running {
                self.printer.started(&client, &job, task.attempt.attempt);
            }
        }
        Ok(job)
    }

    async fn sync_tasks(&mut self, client: &Client, job: &Job) -> Result<(), ClientError> {
        let state = Some("succeeded,failed,canceled".to_owned());
        let mut query = TasksQuery { state, limit: Some(PAGE), cursor: None };
        loop {
            let page = client.tasks(self.job, &query).await?;
            for task in &page.items {
                if self.story.take_task(task).ended {
                    self.printer.ended(&self.link.client, job, Ended::of_task(task)).await?;
                }
            }
            query.cursor = page.next;
            if query.cursor.is_none() {
                return Ok(());
            }
        }
    }
}

/// The events of a job, read as fast as they come: while a task's long output is shown, the server must not drop events
/// for a slow reader.
pub struct Events {
    /// The next event; `None` when the server ends the stream.
    pub receiver: mpsc::UnboundedReceiver<Result<ServerEvent, ClientError>>,
    /// Address of the server that sent the events.
    pub address: Address,
    reader: tokio::task::JoinHandle<()>,
}

impl Events {
    /// Listens to the events of a job from now on; of all if `None`.
    pub async fn open(client: &Client, job: Option<u64>) -> Result<Self, ClientError> {
        let mut stream = Box::pin(client.events(job).await?);
        let address = client.address().clone();
        let (sender, receiver) = mpsc::unbounded_channel();
        let reader = tokio::spawn(async move {
            while let Some(event) = stream.next().await {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Events { receiver, address, reader })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::{ErrorCode, ErrorDetail};

    fn unavailable() -> ClientError {
        let message = "no owner now".to_owned();
        ClientError::Refused(ErrorDetail { code: ErrorCode::Unavailable, message, hint: None })
    }

    fn link() -> ServerLink {
        let addresses = windlass_api::Addresses::parse("http://127.0.0.1:1,http://127.0.0.1:2").unwrap();
        let client = crate::client::connect::client_of(&addresses).unwrap();
        ServerLink::new(client, Some(addresses))
    }

    #[tokio::test]
    async fn an_output_that_does_not_come_is_no_outage_of_the_servers() {
        let mut link = link();
        link.set_outage(Duration::from_secs(70));
        assert!(wait(&mut link, "follow job 1", unavailable(), None).await.is_err(), "they are given up");
        assert!(wait(&mut link, "follow job 1", unavailable(), Some(Duration::ZERO)).await.is_ok());
        assert!(
            wait(&mut link, "follow job 1", unavailable(), None).await.is_ok(),
            "they have answered since"
        );
    }
}
