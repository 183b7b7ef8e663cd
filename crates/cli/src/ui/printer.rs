//! Shows the output of the tasks of a followed job, one task after the other, and how they failed.

use crate::ui::error::may_pass;
use crate::ui::failure::{failed_line, shortage};
use crate::ui::log_place::LogPlace;
use crate::ui::results::{KeepError, Results};
use crate::ui::writer::{Sink, Writer};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use windlass_api::client::{Client, ClientError, LogQuery};
use windlass_api::{Job, Task, TaskEvent, TaskState};
use windlass_core::job::End;

pub const STREAMS: [(&str, Sink); 2] = [("stdout", Sink::Out), ("stderr", Sink::Err)];
/// How often the output of one task is requested without a byte of it before the others go on without it.
const TRIES_MAX: u32 = 5;
/// The same where another server may be taking over: with the pauses between them they outlast that, and the workers' way
/// to the new owner. After an output that stayed away so long, the next ones are not waited for any more.
const TAKEOVER_TRIES_MAX: u32 = 16;
/// The pauses between two requests of an output.
const OUTPUT_PAUSE_MIN: Duration = Duration::from_millis(100);
const OUTPUT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a stream that is followed live may go on after its task has ended.
const LIVE_END_MAX: Duration = Duration::from_secs(10);
/// Attempts to read a live stream without a byte of it, and the pauses between them. The rest is shown when the task has
/// ended.
const LIVE_TRIES: u32 = 60;
const LIVE_PAUSE_MIN: Duration = Duration::from_millis(100);
const LIVE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long an output that is followed may be silent before it is asked for again from the byte where it was, if there is
/// another server to ask.
const FOLLOW_SILENT_MAX: Duration = Duration::from_secs(30);

/// The parts of the tasks' output that are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownOutput {
    /// The output of ended tasks, without further messages.
    Output,
    /// The same, with the task's id before each line.
    Prefixed,
    /// The output of tasks that failed.
    Failed,
    /// One JSON object per task.
    Records,
    /// No output of any task.
    Nothing,
}

impl ShownOutput {
    /// True if a task's output is shown while it runs, where the job has only that task.
    pub fn is_live(self) -> bool {
        matches!(self, ShownOutput::Output | ShownOutput::Prefixed)
    }

    /// True if the output of a task that has ended is shown.
    fn is_of(self, state: TaskState) -> bool {
        self.is_live() || (self == ShownOutput::Failed && state == TaskState::Failed)
    }
}

/// The end of a task.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The task's place in its job.
    pub index: u32,
    /// Its state, which is an end.
    pub state: TaskState,
    /// The number of its last attempt; 0 if it never started.
    pub attempt: u32,
    exit_code: Option<i32>,
    /// Bytes of standard output and standard error.
    bytes: [u64; 2],
}

impl Ended {
    pub fn of_event(event: &TaskEvent) -> Self {
        Ended {
            index: event.index,
            state: event.state,
            attempt: event.attempt,
            exit_code: event.exit_code,
            bytes: [event.out_bytes, event.err_bytes],
        }
    }

    pub fn of_task(task: &Task) -> Self {
        let attempt = &task.attempt;
        Ended {
            index: task.index,
            state: task.state,
            attempt: attempt.attempt,
            exit_code: attempt.exit_code,
            bytes: [attempt.out_bytes, attempt.err_bytes],
        }
    }
}

/// How far both streams were shown already.
type Places = Arc<[LogPlace; 2]>;

/// Shows tasks as they end.
pub struct Printer {
    writer: Writer,
    pub show: ShownOutput,
    quiet: bool,
    /// Where the results of the tasks are kept; `None` keeps none.
    pub results: Option<Results>,
    /// Where the index of each task that ran and has ended is told.
    pub told: Option<mpsc::UnboundedSender<u32>>,
    live: Option<Live>,
    /// The last attempt whose end was shown: a list may report it before the event of its start comes.
    ended_attempt: u32,
    /// The task during whose output the connection broke.
    unfinished: Option<Unfinished>,
    /// True if the last output that was asked for came.
    comes: bool,
    /// How long to wait before the output of that task is asked for again, if the last failure was that it did not come.
    /// The servers answered until then: a worker that is away is not an outage of the server.
    pub pause: Option<Duration>,
}

struct Live {
    attempt: u32,
    places: Places,
    writer: Writer,
    streams: Vec<JoinHandle<()>>,
    /// True once the task has ended.
    is_over: watch::Sender<bool>,
}

struct Unfinished {
    ended: Ended,
    places: Places,
    writer: Writer,
    tries: u32,
}

impl Printer {
    /// A printer that has shown nothing yet.
    pub fn new(writer: Writer, show: ShownOutput, quiet: bool) -> Self {
        Printer {
            writer,
            show,
            quiet,
            results: None,
            told: None,
            live: None,
            ended_attempt: 0,
            unfinished: None,
            comes: true,
            pause: None,
        }
    }

    /// Notes that a task started. The only task of a job is shown live if it will not be retried: only the last attempt
    /// is shown.
    pub fn started(&mut self, client: &Client, job: &Job, attempt: u32) {
        let retries = job.steps.first().map_or(0, |step| step.retries);
        let is_live = self.live.as_ref().is_some_and(|live| live.attempt >= attempt);
        let is_shown = is_live || self.ended_attempt >= attempt;
        if job.counts.total != 1 || attempt <= retries || is_shown || !self.show.is_live() {
            return;
        }
        let (places, (is_over, over)) = (Places::default(), watch::channel(false));
        let shown_by = self.writer_of(job, 0);
        let streams = (0..STREAMS.len()).map(|which| {
            let (client, writer, places) = (client.clone(), shown_by.clone(), places.clone());
            tokio::spawn(copy_live(
                client,
                (format!("{}.0", job.id), attempt),
                which,
                writer,
                places,
                over.clone(),
            ))
        });
        let streams = streams.collect();
        self.live = Some(Live { attempt, streams, places: places.clone(), writer: shown_by, is_over });
    }

    /// The writer of a task's output.
    fn writer_of(&self, job: &Job, index: u32) -> Writer {
        match self.show {
            ShownOutput::Prefixed => self.writer.prefixed(task_prefix(&format!("{}.{index}", job.id))),
            _ => self.writer.clone(),
        }
    }

    /// Says why a task runs again that lost a process because memory was short, once its output so far is shown. Of
    /// other retries nothing is said.
    pub async fn again(&mut self, client: &Client, job: &Job, event: &TaskEvent) {
        if self.quiet || event.exit_code != Some(End::OutOfMemory.exit_code()) {
            return;
        }
        if let Some(live) = self.live.take_if(|live| live.attempt == event.attempt) {
            live.settle().await;
        }
        let id = format!("{}.{}", job.id, event.index);
        // Where no answer comes, 'windlass why' says it.
        let Ok(task) = client.task(&id).await else { return };
        if let Some(why) = shortage(&task, event.attempt) {
            self.writer.say(&format!("task {id}: {why}")).await;
        }
    }

    /// Shows a task that has ended. After an error, [`resume`](Self::resume) continues with it.
    pub async fn ended(&mut self, client: &Client, job: &Job, ended: Ended) -> Result<(), ClientError> {
        self.ended_attempt = self.ended_attempt.max(ended.attempt);
        if let Some(told) = self.told.as_ref().filter(|_| ended.attempt > 0) {
            // If nobody listens any more, that was said.
            _ = told.send(ended.index);
        }
        let live = self.live.take_if(|live| live.attempt == ended.attempt);
        let (places, writer) = match live {
            Some(live) => live.settle().await,
            None => (Places::default(), self.writer_of(job, ended.index)),
        };
        self.unfinished = Some(Unfinished { ended, places, writer, tries: 0 });
        self.resume(client, job).await
    }

    /// Continues with the task during whose output the connection broke.
    pub async fn resume(&mut self, client: &Client, job: &Job) -> Result<(), ClientError> {
        let Some(mut unfinished) = self.unfinished.take() else { return Ok(()) };
        let shown = |places: &Places| places.iter().map(LogPlace::bytes).sum::<u64>();
        let before = shown(&unfinished.places);
        let Err(error) = self.print(client, job, &unfinished).await else {
            self.comes = true;
            return Ok(());
        };
        if shown(&unfinished.places) > before {
            unfinished.tries = 0;
        }
        let tries_max = if self.comes && client.servers() > 1 { TAKEOVER_TRIES_MAX } else { TRIES_MAX };
        if may_pass(&error) && unfinished.tries < tries_max {
            self.pause = Some((OUTPUT_PAUSE_MIN * 2u32.pow(unfinished.tries)).min(OUTPUT_PAUSE_MAX));
            unfinished.tries += 1;
            self.unfinished = Some(unfinished);
            return Err(error);
        }
        self.comes = false;
        let index = unfinished.ended.index;
        if let Some(results) = &self.results {
            results.miss();
        }
        self.writer
            .say(&format!("note: the output of task {}.{index} cannot be shown: {error}", job.id))
            .await;
        Ok(())
    }

    async fn print(&self, client: &Client, job: &Job, task: &Unfinished) -> Result<(), ClientError> {
        let Unfinished { ended, places, writer, .. } = task;
        let id = format!("{}.{}", job.id, ended.index);
        if self.show.is_of(ended.state) {
            for (which, (stream, sink)) in STREAMS.into_iter().enumerate() {
                if ended.bytes[which] > places[which].bytes() {
                    let query = LogQuery { stream, attempt: Some(ended.attempt), ..Default::default() };
                    copy(client, &id, query, writer, sink, &places[which]).await?;
                }
            }
            writer.end_lines().await;
        }
        let failed = ended.state == TaskState::Failed;
        let recorded = self.show == ShownOutput::Records && (failed || ended.attempt > 0);
        if !recorded && (!failed || self.quiet) && self.results.is_none() {
            return Ok(());
        }
        let task = client.task(&id).await?;
        self.keep(client, job, &task).await?;
        if recorded {
            let line = serde_json::to_string(&task).unwrap_or_default();
            self.writer.write(Sink::Out, format!("{line}\n").into_bytes()).await;
        }
        // The end of the only task of a job is told with its output once the job has ended.
        let is_told_later = self.show != ShownOutput::Output && job.counts.total == 1;
        if failed && !self.quiet && !is_told_later {
            self.writer.say(&failed_line(&task, ended.exit_code)).await;
        }
        Ok(())
    }

    /// Keeps the results of a task. A file that cannot be written does not stop the job.
    async fn keep(&self, client: &Client, job: &Job, task: &Task) -> Result<(), ClientError> {
        let Some(results) = &self.results else { return Ok(()) };
        match results.keep(client, task, job.counts.total).await {
            Ok(()) => Ok(()),
            Err(KeepError::Request(error)) => Err(error),
            Err(KeepError::Write { path, source }) => {
                results.miss();
                let why = format!("cannot write {}: {source}", path.display());
                self.writer.say(&format!("note: the results of task {} are not kept: {why}", task.id)).await;
                Ok(())
            }
        }
    }
}

impl Live {
    /// Waits until both streams have ended, and returns how far they were shown, and the writer that shows them. The
    /// rest is shown like the output of any other task.
    async fn settle(self) -> (Places, Writer) {
        _ = self.is_over.send(true);
        for mut stream in self.streams {
            if tokio::time::timeout(LIVE_END_MAX, &mut stream).await.is_err() {
                stream.abort();
                let _ = stream.await;
            }
        }
        (self.places, self.writer)
    }
}

/// Shows a stream of the attempt of a task while it runs, at one server after another.
async fn copy_live(
    client: Client,
    (task, attempt): (String, u32),
    which: usize,
    writer: Writer,
    places: Places,
    mut over: watch::Receiver<bool>,
) {
    let ((stream, sink), place) = (STREAMS[which], &places[which]);
    let (mut tries, mut pause) = (0, LIVE_PAUSE_MIN);
    while tries < LIVE_TRIES {
        let before = place.bytes();
        let query = LogQuery { stream, attempt: Some(attempt), follow: true, ..Default::default() };
        match copy(&client, &task, query, &writer, sink, place).await {
            Ok(()) => {}
            Err(error) if may_pass(&error) => client.pass(&error),
            Err(_) => return,
        }
        if place.bytes() > before {
            (tries, pause) = (0, LIVE_PAUSE_MIN);
        }
        // A stream that ended well is of a task that has ended, or of a server that stops.
        if tokio::time::timeout(pause, over.wait_for(|over| *over)).await.is_ok() {
            return;
        }
        (tries, pause) = (tries + 1, (pause * 2).min(LIVE_PAUSE_MAX));
    }
}

/// Writes a stream from a place on, and advances it.
pub async fn copy(
    client: &Client,
    task: &str,
    mut query: LogQuery,
    writer: &Writer,
    sink: Sink,
    place: &LogPlace,
) -> Result<(), ClientError> {
    query.silent_max = Some(FOLLOW_SILENT_MAX).filter(|_| query.follow && client.servers() > 1);
    'asking: loop {
        query.offset = place.offset().flatten();
        let (begins, parts) = client.log(task, &query).await?;
        place.begin(begins);
        let mut parts = Box::pin(parts);
        while let Some(part) = parts.next().await {
            match part {
                Ok(part) => {
                    let bytes = part.len();
                    writer.write(sink, part).await;
                    place.advance(bytes);
                }
                // A task may be silent for hours, and so is a server that is gone without a word.
                Err(ClientError::Silent { .. }) if place.offset().is_some() => continue 'asking,
                Err(error) => return Err(error),
            }
        }
        return Ok(());
    }
}

/// What is before each line of a task's output where that of several is shown.
pub fn task_prefix(id: &str) -> String {
    format!("{id} | ")
}
