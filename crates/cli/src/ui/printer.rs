//! Shows the output of the tasks of a followed job, one task after the other, and how they failed.

use crate::node::link::may_pass;
use crate::ui::quantity::exact;
use crate::ui::writer::{Sink, Writer};
use futures_util::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use windlass_api::client::{Client, ClientError, LogQuery};
use windlass_api::{End, Job, Step, Task, TaskEvent, TaskState};
use windlass_core::resources::Bytes;

/// The two streams of a task.
pub const STREAMS: [(&str, Sink); 2] = [("stdout", Sink::Out), ("stderr", Sink::Err)];
/// How often the output of one task is requested before the others go on without it.
const TRIES_MAX: u32 = 5;
/// How long a stream that is followed live may go on after its task has ended.
const LIVE_END_MAX: Duration = Duration::from_secs(10);
/// Attempts to read a live stream, one per second.
const LIVE_TRIES: u32 = 60;

/// What is shown of the tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShownOutput {
    /// Their output.
    Output,
    /// One JSON object per task.
    Records,
    /// Nothing.
    Nothing,
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
    /// From an event.
    pub fn of_event(event: &TaskEvent) -> Self {
        Ended {
            index: event.index,
            state: event.state,
            attempt: event.attempt,
            exit_code: event.exit_code,
            bytes: [event.out_bytes, event.err_bytes],
        }
    }

    /// From a list.
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

/// Bytes of both streams that were shown already.
type Offsets = Arc<[AtomicU64; 2]>;

/// Shows tasks as they end.
pub struct Printer {
    writer: Writer,
    show: ShownOutput,
    quiet: bool,
    live: Option<Live>,
    /// The last attempt whose end was shown: a list may report it before the event of its start comes.
    ended_attempt: u32,
    /// The task during whose output the connection broke.
    unfinished: Option<Unfinished>,
}

struct Live {
    attempt: u32,
    offsets: Offsets,
    streams: Vec<JoinHandle<()>>,
}

struct Unfinished {
    ended: Ended,
    offsets: Offsets,
    tries: u32,
}

impl Printer {
    /// A printer that has shown nothing yet.
    pub fn new(writer: Writer, show: ShownOutput, quiet: bool) -> Self {
        Printer { writer, show, quiet, live: None, ended_attempt: 0, unfinished: None }
    }

    /// True if the output of tasks is shown.
    pub fn shows_output(&self) -> bool {
        self.show == ShownOutput::Output
    }

    /// Notes that a task started. The only task of a job is shown live if it will not be retried: only the last attempt
    /// is shown.
    pub fn started(&mut self, client: &Client, job: &Job, attempt: u32) {
        let retries = job.steps.first().map_or(0, |step| step.retries);
        let is_live = self.live.as_ref().is_some_and(|live| live.attempt >= attempt);
        let is_shown = is_live || self.ended_attempt >= attempt;
        if job.counts.total != 1 || attempt <= retries || is_shown || self.show != ShownOutput::Output {
            return;
        }
        let offsets = Offsets::default();
        let streams = (0..STREAMS.len()).map(|place| {
            let (client, writer, offsets) = (client.clone(), self.writer.clone(), offsets.clone());
            tokio::spawn(copy_live(client, format!("{}.0", job.id), attempt, place, writer, offsets))
        });
        self.live = Some(Live { attempt, streams: streams.collect(), offsets: offsets.clone() });
    }

    /// Shows a task that has ended. After an error, [`resume`](Self::resume) continues with it.
    pub async fn ended(&mut self, client: &Client, job: &Job, ended: Ended) -> Result<(), ClientError> {
        self.ended_attempt = self.ended_attempt.max(ended.attempt);
        let live = self.live.take_if(|live| live.attempt == ended.attempt);
        let offsets = match live {
            Some(live) => live.settle().await,
            None => Offsets::default(),
        };
        self.unfinished = Some(Unfinished { ended, offsets, tries: 0 });
        self.resume(client, job).await
    }

    /// Continues with the task during whose output the connection broke.
    pub async fn resume(&mut self, client: &Client, job: &Job) -> Result<(), ClientError> {
        let Some(mut unfinished) = self.unfinished.take() else { return Ok(()) };
        let Err(error) = self.print(client, job, &unfinished).await else { return Ok(()) };
        if may_pass(&error) && unfinished.tries < TRIES_MAX {
            unfinished.tries += 1;
            self.unfinished = Some(unfinished);
            return Err(error);
        }
        let index = unfinished.ended.index;
        self.writer
            .say(&format!("note: the output of task {}.{index} cannot be shown: {error}", job.id))
            .await;
        Ok(())
    }

    async fn print(&self, client: &Client, job: &Job, task: &Unfinished) -> Result<(), ClientError> {
        let Unfinished { ended, offsets, .. } = task;
        let id = format!("{}.{}", job.id, ended.index);
        if self.show == ShownOutput::Output {
            for (place, (stream, sink)) in STREAMS.into_iter().enumerate() {
                if ended.bytes[place] > offsets[place].load(Ordering::SeqCst) {
                    let query = LogQuery { stream, attempt: Some(ended.attempt), ..Default::default() };
                    copy(client, &id, query, &self.writer, sink, &offsets[place]).await?;
                }
            }
        }
        let failed = ended.state == TaskState::Failed;
        let recorded = self.show == ShownOutput::Records && (failed || ended.attempt > 0);
        if !recorded && (!failed || self.quiet) {
            return Ok(());
        }
        let task = client.task(&id).await?;
        if recorded {
            let line = serde_json::to_string(&task).unwrap_or_default();
            self.writer.write(Sink::Out, format!("{line}\n").into_bytes()).await;
        }
        if failed && !self.quiet {
            let step = job.steps.iter().find(|step| step.name == task.step);
            self.writer.say(&failure(&task, step, ended.exit_code)).await;
        }
        Ok(())
    }
}

impl Live {
    /// Waits until both streams have ended, and returns how far they were shown. The rest is shown like the output of
    /// any other task.
    async fn settle(self) -> Offsets {
        for mut stream in self.streams {
            if tokio::time::timeout(LIVE_END_MAX, &mut stream).await.is_err() {
                stream.abort();
                let _ = stream.await;
            }
        }
        self.offsets
    }
}

async fn copy_live(
    client: Client,
    task: String,
    attempt: u32,
    place: usize,
    writer: Writer,
    offsets: Offsets,
) {
    let (stream, sink) = STREAMS[place];
    for _ in 0..LIVE_TRIES {
        let query = LogQuery { stream, attempt: Some(attempt), follow: true, ..Default::default() };
        match copy(&client, &task, query, &writer, sink, &offsets[place]).await {
            Err(error) if may_pass(&error) => tokio::time::sleep(Duration::from_secs(1)).await,
            Ok(()) | Err(_) => return,
        }
    }
}

/// Writes a stream from `offset` on, and advances it.
pub async fn copy(
    client: &Client,
    task: &str,
    mut query: LogQuery,
    writer: &Writer,
    sink: Sink,
    offset: &AtomicU64,
) -> Result<(), ClientError> {
    let done = offset.load(Ordering::SeqCst);
    if done > 0 {
        query.offset = i64::try_from(done).ok();
    }
    let mut parts = Box::pin(client.log(task, &query).await?);
    while let Some(part) = parts.next().await {
        let part = part?;
        let bytes = part.len() as u64;
        writer.write(sink, part).await;
        offset.fetch_add(bytes, Ordering::SeqCst);
    }
    Ok(())
}

/// A failed task in one line.
fn failure(task: &Task, step: Option<&Step>, exit_code: Option<i32>) -> String {
    let value = task.value.as_ref().map(|value| format!(" ({})", crate::ui::output::fit(value, Some(60))));
    let mut how = reason(task, step, exit_code);
    if let Some(message) = task.attempt.message.as_ref().filter(|message| !how.contains(*message)) {
        how = format!("{how}: {}", crate::ui::output::fit(message, None));
    }
    let tries = match task.attempt.attempt {
        0 | 1 => String::new(),
        n => format!(" (attempt {n})"),
    };
    format!("task {}{} failed: {how}{tries}", task.id, value.unwrap_or_default())
}

/// How the last attempt ended, in words.
pub fn reason(task: &Task, step: Option<&Step>, exit_code: Option<i32>) -> String {
    let code = task.attempt.exit_code.or(exit_code);
    match task.attempt.end {
        Some(End::Signal) => {
            let number = code.unwrap_or(128) - 128;
            signal_name(number)
                .map_or_else(|| format!("killed by signal {number}"), |name| format!("killed by {name}"))
        }
        Some(End::TimeLimit) => match step.and_then(|step| step.time_limit_ms) {
            Some(limit) => format!("killed at its time limit of {}", exact(limit)),
            None => "killed at its time limit".to_owned(),
        },
        Some(End::Oom) => match step.map(|step| step.resources.memory).filter(|memory| *memory > 0) {
            Some(memory) => format!("out of memory at {} (reason oom)", Bytes(memory)),
            None => "out of memory (reason oom)".to_owned(),
        },
        Some(End::NotStarted) => {
            let why = task.attempt.message.as_deref().unwrap_or("the worker gave no reason");
            format!("could not be started: {why}")
        }
        Some(End::Lost) => "its worker was lost while it ran".to_owned(),
        Some(End::Canceled | End::Recalled) => "cancelled".to_owned(),
        Some(End::Exited) | None => {
            code.map_or_else(|| "in an unknown way".to_owned(), |code| format!("exit {code}"))
        }
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::{Attempt, Resources};

    fn task(end: End, exit_code: Option<i32>) -> Task {
        Task {
            id: "12.7".to_owned(),
            job: 12,
            index: 7,
            step: "main".to_owned(),
            value: Some("a\nb".to_owned()),
            progress: None,
            status: None,
            state: TaskState::Failed,
            attempt: Attempt { attempt: 1, end: Some(end), exit_code, ..Default::default() },
            history: Vec::new(),
        }
    }

    fn step() -> Step {
        Step {
            name: "main".to_owned(),
            command: Vec::new(),
            cwd: None,
            first_task: 0,
            tasks: 9,
            resources: Resources { cpus: 1.0, memory: 512 << 20, ..Default::default() },
            tags: Vec::new(),
            workers: Vec::new(),
            time_limit_ms: Some(2000),
            max_running: None,
            nodes: None,
            with: None,
            retries: 0,
            depends: Vec::new(),
            limits: Vec::new(),
            hints: Default::default(),
        }
    }

    #[test]
    fn failures_are_told_in_words() {
        let say = |end, code| failure(&task(end, code), Some(&step()), None);
        assert_eq!(say(End::Exited, Some(3)), "task 12.7 (a\\nb) failed: exit 3");
        assert_eq!(say(End::Signal, Some(139)), "task 12.7 (a\\nb) failed: killed by SIGSEGV");
        assert_eq!(
            say(End::TimeLimit, Some(124)),
            "task 12.7 (a\\nb) failed: killed at its time limit of 2s"
        );
        assert_eq!(
            say(End::Oom, Some(137)),
            "task 12.7 (a\\nb) failed: out of memory at 512 MiB (reason oom)"
        );
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let mut lost = task(End::Lost, None);
        lost.attempt.attempt = 3;
        lost.value = None;
        assert_eq!(
            failure(&lost, None, None),
            "task 12.7 failed: its worker was lost while it ran (attempt 3)"
        );
        let mut missing = task(End::NotStarted, Some(127));
        missing.attempt.message = Some("No such file or directory".to_owned());
        assert_eq!(reason(&missing, None, None), "could not be started: No such file or directory");
        missing.attempt.end = None;
        missing.attempt.exit_code = None;
        assert_eq!(reason(&missing, None, Some(4)), "exit 4");
    }
}
