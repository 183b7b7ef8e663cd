//! The messages to the state, and the effects that it asks for.

use crate::commands::top::keys::Key;
use crate::commands::top::rows::{QueueRow, TaskRow, WorkerRow};
use std::collections::VecDeque;
use windlass_api::figures::{FarmSeries, Overview, WorkerSeries};
use windlass_api::{Job, Page, ServerEvent, Why, Worker, WorkerWhy};
use windlass_core::TaskId;

/// A point in time, by the program's clock and by the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// By the server's clock, in milliseconds since the Unix epoch: what times of the server are compared with.
    pub wall_ms: u64,
    /// Milliseconds since the program started. It never goes back.
    pub run_ms: u64,
}

/// An event to which the state reacts.
#[derive(Debug)]
pub enum Message {
    Key(Key),
    /// The terminal has this many columns and rows.
    Size(u16, u16),
    /// The interval between two ticks is over.
    Tick,
    /// The server at this address answers.
    At(String),
    /// The stream of events opened.
    Listening,
    /// The stream of events ended, or could not be opened.
    Unheard(String),
    Event(ServerEvent),
    Answer(Read, Result<Answer, String>),
    /// Output of the task that is followed; the number says which following it is.
    Output(u64, LogNews),
    Acted(Deed, Result<(), String>),
}

/// A message from a task's output that is followed.
#[derive(Debug)]
pub enum LogNews {
    /// Bytes of standard output, or of standard error if true.
    Bytes(bool, Vec<u8>),
    /// The streams ended; the text says why, if the task's end is not the reason.
    End(Option<String>),
}

/// The task or worker whose state is explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A task, by its id.
    Task(String),
    /// The first task of a job that waits; if none does, the first that has not ended.
    Job(u64),
    /// A worker, by its name.
    Worker(String),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Read {
    Overview,
    Series,
    Workers,
    Jobs(JobsPart),
    Queues,
    Job(u64, Option<String>),
    Worker(String),
    /// The explanation of why this task or worker waits.
    Why(Subject),
    /// The task of a job whose output is worth a look.
    LogTask(u64),
}

/// A page of jobs: which filter, and from which job down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobsPart {
    /// Words as in a filter.
    pub filter: String,
    /// True if only jobs that have not ended are wanted.
    pub active: bool,
    /// Jobs with smaller ids; `None` is from the newest.
    pub before: Option<u64>,
}

#[derive(Debug)]
pub enum Answer {
    Overview(Box<Overview>),
    Series(Box<FarmSeries>),
    Workers(Vec<WorkerRow>),
    Jobs(Page<Job>),
    Queues(Vec<QueueRow>),
    Job(Box<Job>, Vec<TaskRow>, Option<String>),
    Worker(Box<Worker>, Box<WorkerSeries>),
    TaskWhy(Box<Why>, Box<Job>),
    WorkerWhy(Box<WorkerWhy>),
    /// The id of a task; `None` if the job has none whose output is there.
    LogTask(Option<String>),
}

/// A change of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskVerb {
    Cancel,
    Retry,
}

impl TaskVerb {
    /// The verb as the server knows it.
    pub fn word(self) -> &'static str {
        match self {
            TaskVerb::Cancel => "cancel",
            TaskVerb::Retry => "retry",
        }
    }
}

/// A change that a person asked for and confirmed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// A worker gets no new work; the note says why.
    Drain(String, String),
    /// A drained worker gets work again.
    ResumeWorker(String),
    Cancel(u64),
    /// The failed and cancelled tasks of a job run again.
    Retry(u64),
    /// A job starts no task.
    Hold(u64),
    /// A held job starts tasks again.
    Release(u64),
    /// A task is cancelled, or runs again.
    Task(TaskId, TaskVerb),
    /// A queue starts no task; the note says why.
    Pause(String, String),
    /// A paused queue starts tasks again.
    ResumeQueue(String),
}

impl Deed {
    /// The note for people, where there is one.
    pub fn note(&mut self) -> Option<&mut String> {
        match self {
            Deed::Drain(_, note) | Deed::Pause(_, note) => Some(note),
            Deed::ResumeWorker(_)
            | Deed::Cancel(_)
            | Deed::Retry(_)
            | Deed::Hold(_)
            | Deed::Release(_)
            | Deed::Task(..)
            | Deed::ResumeQueue(_) => None,
        }
    }

    /// The action, to complete "cannot …".
    pub fn doing(&self) -> String {
        match self {
            Deed::Drain(worker, _) => format!("drain worker {worker}"),
            Deed::ResumeWorker(worker) => format!("resume worker {worker}"),
            Deed::Cancel(job) => format!("cancel job {job}"),
            Deed::Retry(job) => format!("retry job {job}"),
            Deed::Hold(job) => format!("hold job {job}"),
            Deed::Release(job) => format!("release job {job}"),
            Deed::Task(task, verb) => format!("{} task {task}", verb.word()),
            Deed::Pause(queue, _) => format!("pause queue {queue}"),
            Deed::ResumeQueue(queue) => format!("resume queue {queue}"),
        }
    }

    /// The message when the action is done.
    pub fn done(&self) -> String {
        match self {
            Deed::Drain(worker, _) => format!("worker {worker} takes no new work"),
            Deed::ResumeWorker(worker) => format!("worker {worker} takes work again"),
            Deed::Cancel(job) => format!("job {job} is being cancelled"),
            Deed::Retry(job) => format!("job {job} runs again what failed"),
            Deed::Hold(job) => format!("job {job} is held"),
            Deed::Release(job) => format!("job {job} is released"),
            Deed::Task(task, TaskVerb::Cancel) => format!("task {task} is being cancelled"),
            Deed::Task(task, TaskVerb::Retry) => format!("task {task} runs again"),
            Deed::Pause(queue, _) => format!("queue {queue} is paused"),
            Deed::ResumeQueue(queue) => format!("queue {queue} starts tasks again"),
        }
    }
}

/// An action outside of the state.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Read, and tell the answer.
    Read(Read),
    /// Open the stream of events after this many milliseconds.
    Listen(u64),
    /// Follow a task's output from its last part on, and tell it with this number. Whatever was followed before is not
    /// wanted any more.
    Follow(u64, String),
    /// Make a change, and tell how that went.
    Act(Deed),
    /// End with this exit code.
    Quit(i32),
}

/// Effects in the order in which they are wanted.
pub type Effects = VecDeque<Effect>;
