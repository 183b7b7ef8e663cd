//! The messages between agent and keeper: JSON objects, one on each line, over a unix socket. Agent and
//! keeper are upgraded at different times, so fields are only added, each with a default. A receiver ignores
//! what a later release added: fields, kinds of messages, phases, ends. Recordings in
//! `crates/cli/tests/golden` hold this. Nothing here does I/O.

use crate::users::RunAs;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::error::Category;
use std::collections::BTreeMap;
use std::path::PathBuf;
use windlass_api::wire::Task;
use windlass_api::{Session, StepFiles, TaskValue};
use windlass_core::{Resources, TaskId};

/// Bytes of one line; a longer one ends the connection.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// The note of a keeper whose user has no control groups. That is usual for a user without privileges, so it is told in
/// one line of information.
pub const NO_CONTROL_GROUPS: &str = "no control groups for this user: memory limits are watched by \
                                     sampling /proc; 'windlass doctor' says more";

/// A task that another one's process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rider {
    pub index: u32,
    pub attempt: u32,
}

/// Where an attempt stands among the tasks with which it starts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// Its place in `workers`.
    pub rank: u32,
    pub workers: Vec<String>,
}

/// An attempt of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TaskRef {
    /// Number of the job in its store.
    pub job: u64,
    /// Index of the task in its job.
    pub index: u32,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

impl TaskRef {
    /// An attempt of a task of the engine.
    pub fn new(task: TaskId, attempt: u32) -> Self {
        TaskRef { job: task.job.0, index: task.index, attempt }
    }
}

impl From<Task> for TaskRef {
    fn from(Task { job, index, attempt }: Task) -> Self {
        TaskRef { job, index, attempt }
    }
}

impl From<TaskRef> for Task {
    fn from(TaskRef { job, index, attempt }: TaskRef) -> Self {
        Task { job, index, attempt }
    }
}

/// The files that a keeper hides from tasks besides its directory, and the exceptions below the directory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Hidden {
    /// Files that tasks see empty, such as that of the worker's token.
    pub files: Vec<PathBuf>,
    /// Directories of tasks, such as caches. Those that are not below the worker's directory are seen anyway.
    pub kept: Vec<PathBuf>,
}

/// Messages from agent to keeper.
#[allow(missing_docs, reason = "a field that is named by its type says no more")]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToKeeper {
    /// The first message on a connection. The keeper answers with `State`.
    Hello {
        /// The capacity that all tasks may use together.
        #[serde(with = "Amounts")]
        capacity: Resources,
        /// Time of sending in nanoseconds since boot; the answer returns it.
        #[serde(default)]
        sent: u64,
        /// Files to hide from tasks besides the worker's directory; `None` hides nothing, not even the directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hide: Option<Hidden>,
        /// The names of the GPUs that tasks may use, one for each GPU of the capacity. Tasks without GPUs are told that they
        /// have none. `None` leaves those alone, and names GPUs by number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu_devices: Option<Vec<String>>,
    },
    /// Asks for the inventory. The keeper answers with `Beat`.
    Beat {
        /// Time of sending in nanoseconds since boot; the answer returns it.
        sent: u64,
    },
    /// Renews the lease of all running attempts.
    Lease {
        /// Its end in nanoseconds since boot; `None` is never.
        until: Option<u64>,
    },
    /// The command of a step's tasks. It comes before the step's first start.
    Body {
        job: u64,
        step: u16,
        #[serde(flatten)]
        body: Body,
    },
    /// Forgets the body of a step. The server sends it again before another start of that step.
    DropBody { job: u64, step: u16 },
    /// Runs an attempt as soon as there is room, in the order of starts.
    Start(StartMessage),
    /// Ends an attempt with all of its processes.
    Kill(TaskCommand),
    /// Ends an attempt if it has not started.
    Recall(TaskCommand),
    /// The result of an attempt is durable; the keeper forgets it.
    Ack(TaskCommand),
    /// A task lends its cpus, because it waits for jobs of its own.
    Lend(TaskCommand),
    /// A task wants its cpus back. It gets them before any attempt starts, and the keeper reports that.
    Reclaim(TaskCommand),
    /// What the tasks with a jobserver share. It replaces what was said before.
    ShareCpus {
        /// Hundredths of a core that no other task holds.
        cpu: u32,
        /// All of these tasks that run or start.
        shares: Vec<TaskShare>,
    },
    /// The answer to `Prepare`. Without a directory the attempt does not start, for the reason `why`.
    Prepared {
        task: TaskRef,
        /// The epoch that `Prepare` had.
        epoch: u64,
        /// The attempt's new directory with its inputs, as an absolute path.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        directory: Option<String>,
        /// The file that is its standard input, as an absolute path; `None` for an empty one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stdin: Option<String>,
        /// Why there is no directory, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        /// Whether `why` is the submission's fault, and not this worker's.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        job_at_fault: bool,
        /// Whether `why` passes, such as a full disk. The keeper asks again later.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        passing: bool,
    },
    /// The answer to `Collect`. The attempt's result goes out.
    Collected {
        task: TaskRef,
        /// The epoch that `Collect` had.
        epoch: u64,
        /// Why its outputs could not be kept, for people; `None` if they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        /// Whether `why` is the job's fault, such as a quota that is used up, so that another worker would not help.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        job_at_fault: bool,
    },
    /// The release of GNU make on this machine.
    MakeVersion {
        /// `None` where there is none.
        version: Option<[u32; 2]>,
    },
    /// The keeper becomes this program, under running tasks.
    Upgrade { program: PathBuf },
    /// The keeper kills all tasks and ends.
    Shutdown,
    /// The keeper ends if it has no attempts.
    ShutdownIfIdle,
    /// The keeper ends if no attempt waits or runs. Results are dropped, because no server will acknowledge them.
    ShutdownIfEnded,
}

/// The command of a step's tasks, and as whom they run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Body {
    /// Program and arguments, with placeholders.
    pub command: Vec<String>,
    /// Environment of the command, by variable name.
    pub env: BTreeMap<String, String>,
    /// Working directory of the command, on this worker.
    pub cwd: String,
    /// Their umask; `None` for the keeper's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// The session that the step's tasks share on this worker; `None` for tasks without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// The user whose rights the tasks have; `None` for the keeper's own user.
    #[serde(default)]
    pub run_as: Option<RunAs>,
    /// Why the tasks must not run here, for people.
    #[serde(default)]
    pub refused: Option<String>,
    /// Whether `refused` is this worker's fault and passes, and not the submission's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused_now: bool,
    /// The files of the step; `None` of a step without. With them each task runs in a directory that the agent makes, and
    /// `cwd` is a path in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<BodyFiles>,
}

/// What a keeper needs to know of a step's files. All else of them is the agent's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BodyFiles {
    /// Whether something of the directory is kept when a task ends.
    #[serde(default)]
    pub outputs: bool,
}

impl From<&StepFiles> for BodyFiles {
    fn from(files: &StepFiles) -> Self {
        BodyFiles { outputs: !files.outputs.is_empty() }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StartMessage {
    pub task: TaskRef,
    pub step: u16,
    /// The worker's epoch, which reports about this attempt carry.
    pub epoch: u64,
    /// Number of this message. A start is ignored unless its number is above all that the keeper has seen.
    pub seq: u64,
    /// The amounts that are booked for the attempt.
    #[serde(with = "Amounts")]
    pub request: Resources,
    /// Memory in bytes beyond which it is killed; 0 for none. `None` means the memory of `request`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Run time in milliseconds after which it is killed.
    pub time_limit_ms: Option<u64>,
    /// Replaces the placeholders of the command.
    pub value: Option<String>,
    /// Values that references in a session's texts stand for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<TaskValue>,
    /// The tasks with which it starts; `None` of one that starts by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// The other tasks that its process runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub riders: Vec<Rider>,
    /// Values that take the place of an argument that is `{}`; empty where there is one value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunk_values: Vec<String>,
    /// Whether its step is marked as network-bound. For the agent, which measures the network meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network_bound: bool,
    /// The jobserver that it finds in its environment; `None` of a task without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobserver: Option<JobserverSpec>,
}

/// A GNU make jobserver for one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobserverSpec {
    /// How the task reaches it.
    #[serde(default, deserialize_with = "known_form")]
    pub form: JobserverForm,
    /// Processes that the task may run at a time at most; `None` is what the worker has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes_max: Option<u32>,
    /// Bytes that one of its processes may need, by what those of earlier tasks held. `None` if nothing is known, or if
    /// the task asked for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_bytes: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobserverForm {
    /// As the command and the machine's make understand it.
    #[default]
    Auto,
    /// By the path of a named pipe.
    Fifo,
    /// By two inherited descriptors.
    Pipes,
}

/// The weight of a task with a jobserver among the others, from 1 to 1,000,000.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskShare {
    pub task: TaskRef,
    pub weight: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskCommand {
    pub task: TaskRef,
    pub seq: u64,
}

/// Messages from keeper to agent. `epoch` is that of the start of `task`, the attempt that a message is about.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromKeeper {
    /// The answer to `Hello`. Unacknowledged results follow it.
    State {
        /// Number that tells this keeper from every other.
        incarnation: u64,
        /// The largest message number that the keeper has seen.
        seq: u64,
        #[serde(deserialize_with = "known_held")]
        held: Vec<Held>,
        /// Restrictions that the keeper found when it was set up, for the log.
        notes: Vec<String>,
        /// `sent` of the hello.
        #[serde(default)]
        sent: u64,
        /// Whether everything that the keeper started ends with it, so that it can be granted a lease.
        #[serde(default)]
        fences: bool,
        /// Identifies the keeper's executable, so that an agent of another one can tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<String>,
        /// Whether it runs tasks in directories of their own. A keeper of an earlier release would pass over a body's
        /// `files`, and run the command elsewhere.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        files: bool,
    },
    /// The answer to `Beat`, whose `sent` it returns.
    Beat {
        sent: u64,
        seq: u64,
        #[serde(deserialize_with = "known_held")]
        held: Vec<Held>,
    },
    Started {
        task: TaskRef,
        epoch: u64,
        /// Nanoseconds since the Unix epoch.
        at: u64,
    },
    /// An attempt ended. Repeated on every connection until it is acknowledged.
    Finished {
        task: TaskRef,
        epoch: u64,
        /// How the attempt ended, and what it used.
        result: WireResult,
    },
    Progress {
        task: TaskRef,
        epoch: u64,
        /// Percent done, 0 to 100.
        #[serde(default)]
        percent: Option<f64>,
        /// Status text, for people.
        #[serde(default)]
        status: Option<String>,
    },
    /// A task says that it fetched a cache key.
    Fetched {
        task: TaskRef,
        /// The key as jobs name it.
        key: String,
        bytes: u64,
        /// How long the fetch took, in milliseconds.
        ms: u64,
    },
    /// A task that lent its cpus has them again.
    Reclaimed { task: TaskRef, epoch: u64 },
    /// An attempt waits for its directory. Repeated after every hello until it is answered by `Prepared`. An attempt that
    /// ends meanwhile has its `Finished`, and needs no answer.
    Prepare {
        task: TaskRef,
        epoch: u64,
        step: u16,
        /// The user to whom the directory belongs; `None` for the keeper's own user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<RunAs>,
    },
    /// An attempt has ended, and its outputs are to be kept. Repeated after every hello until it is answered by `Collected`.
    /// An attempt that is given up meanwhile has its `Finished`, and needs no answer.
    Collect { task: TaskRef, epoch: u64, directory: String },
    /// A directory is needed no more.
    Discard { directory: String },
    /// How many processes a task with a jobserver may run and runs. Both numbers count the one that needs no token.
    Cpus {
        task: TaskRef,
        epoch: u64,
        share: u32,
        used: u32,
        /// Whether it takes all that it is given, and could be given more.
        wants: bool,
        /// Why it has no more than its share; `None` if that is for the other tasks' sake.
        #[serde(default)]
        held_back: Option<HeldBack>,
    },
}

/// Why no further process of a task is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBack {
    /// It would not fit into the memory that is free.
    Memory,
    /// Processes wait for memory.
    Pressure,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    pub task: TaskRef,
    pub phase: HeldPhase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldPhase {
    Queued,
    /// It runs since then, in nanoseconds since the Unix epoch.
    Running(u64),
    /// It runs since then, in nanoseconds since the Unix epoch, and its cpus are lent.
    Lent(u64),
    /// It has ended, and its result is not acknowledged.
    Ended,
    /// A phase that a later release added.
    Unknown,
}

/// A value of a known form, or one that a later release added.
#[derive(Deserialize)]
#[serde(untagged)]
enum OrLater<T> {
    Known(T),
    Later(IgnoredAny),
}

fn known_end<'de, D: Deserializer<'de>>(from: D) -> Result<WireEnd, D::Error> {
    Ok(match OrLater::deserialize(from)? {
        OrLater::Known(end) => end,
        OrLater::Later(_) => WireEnd::Unknown,
    })
}

fn known_form<'de, D: Deserializer<'de>>(from: D) -> Result<JobserverForm, D::Error> {
    Ok(match OrLater::deserialize(from)? {
        OrLater::Known(form) => form,
        OrLater::Later(_) => JobserverForm::Auto,
    })
}

fn known_held<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Held>, D::Error> {
    #[derive(Deserialize)]
    struct Any {
        task: TaskRef,
        phase: OrLater<HeldPhase>,
    }
    let held = Vec::<Any>::deserialize(from)?.into_iter().map(|Any { task, phase }| match phase {
        OrLater::Known(phase) => Held { task, phase },
        OrLater::Later(_) => Held { task, phase: HeldPhase::Unknown },
    });
    Ok(held.collect())
}

/// The JSON of [`Resources`], whose units it has. An amount that is absent is 0.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Resources")]
pub struct Amounts {
    cpu: u32,
    #[serde(default)]
    memory: u64,
    #[serde(default)]
    gpus: u32,
    #[serde(default)]
    gpu_memory: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    custom: BTreeMap<String, u64>,
}

/// How an attempt ended, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireEnd {
    Exited(i32),
    /// Ended by this signal, which the keeper did not send.
    Signaled(i32),
    TimeLimit,
    OutOfMemory,
    Canceled,
    Recalled,
    NotStarted(String),
    Fenced,
    /// It succeeded, and what was to be kept of its directory could not be kept.
    OutputsLost(String),
    /// An end that a later release added.
    #[default]
    Unknown,
}

/// The result of an attempt, as JSON. Times are nanoseconds since the Unix epoch. `None` is unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WireResult {
    /// The end of the first process, or why none started.
    #[serde(deserialize_with = "known_end")]
    pub end: WireEnd,
    /// When its process started; `None` if it did not start.
    pub started: Option<u64>,
    /// When the keeper saw its end.
    pub finished: Option<u64>,
    pub cpu_ms: Option<u64>,
    /// Peak memory of its processes together, in bytes.
    pub peak_memory: Option<u64>,
    pub out_bytes: u64,
    pub err_bytes: u64,
    /// Why it failed, in the task's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Bytes read from disks and written to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Whether it did not start, or its outputs are lost, because of what its job asked for, which says nothing about this
    /// worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub job_at_fault: bool,
    /// Time for which tokens of its jobserver were given, in milliseconds: two tokens for a second are 2,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_cpu_ms: Option<u64>,
    /// Peak memory of the largest of its processes, in bytes; of a task with a jobserver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_memory: Option<u64>,
}

/// Splits a stream of bytes into lines.
#[derive(Default)]
pub struct Lines {
    buffer: Vec<u8>,
    scanned: usize,
}

impl Lines {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes out all complete lines, parsed. JSON that is not a known message comes from a later release and
    /// is ignored.
    ///
    /// # Errors
    /// If a line is not JSON, or longer than [`LINE_BYTES_MAX`].
    pub fn take<T: for<'a> Deserialize<'a>>(&mut self) -> Result<Vec<T>, String> {
        let Some(last) = self.buffer[self.scanned..].iter().rposition(|byte| *byte == b'\n') else {
            self.scanned = self.buffer.len();
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(format!("a line of more than {LINE_BYTES_MAX} bytes"));
            }
            return Ok(Vec::new());
        };
        let end = self.scanned + last + 1;
        let whole = self.buffer[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let parsed = whole.filter_map(|line| match serde_json::from_slice(line) {
            Err(e) if e.classify() == Category::Data => None,
            parsed => Some(parsed.map_err(|e| e.to_string())),
        });
        let parsed = parsed.collect();
        self.buffer.drain(..end);
        self.scanned = 0;
        parsed
    }
}

/// Appends a message as one line.
pub fn to_line<T: Serialize>(message: &T, into: &mut Vec<u8>) {
    serde_json::to_writer(&mut *into, message).expect("strings and numbers always serialize");
    into.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same messages come out, however the bytes are cut.
        #[test]
        fn lines_survive_any_cut(cuts in prop::collection::vec(1usize..40, 1..60)) {
            let sent: Vec<ToKeeper> = (0..20).map(|n| ToKeeper::Ack(TaskCommand {
                task: TaskRef { job: n, index: 1, attempt: 1 }, seq: n * 3,
            })).collect();
            let mut bytes = Vec::new();
            sent.iter().for_each(|message| to_line(message, &mut bytes));
            let (mut lines, mut got, mut rest) = (Lines::default(), Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                lines.push(head);
                got.extend(lines.take::<ToKeeper>().unwrap());
                rest = tail;
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn garbage_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut lines = Lines::default();
            lines.push(&bytes);
            lines.push(b"\n");
            _ = lines.take::<ToKeeper>();
            prop_assert!(lines.buffer.is_empty());
        }
    }

    fn read<T: for<'a> Deserialize<'a>>(text: &str) -> Result<Vec<T>, String> {
        let mut lines = Lines::default();
        lines.push(text.as_bytes());
        lines.take()
    }

    #[test]
    fn what_a_later_release_says_is_passed_over() {
        let to_keeper = r#"{"pause":{"task":{"job":1,"index":0,"attempt":1}}}
"levitate"
{"kill":{"task":{"job":1,"index":0,"attempt":1,"lane":3},"seq":4,"how":"gently"}}
{"kill":{"task":"none"}}
"#;
        let task = TaskRef { job: 1, index: 0, attempt: 1 };
        assert_eq!(read(to_keeper), Ok(vec![ToKeeper::Kill(TaskCommand { task, seq: 4 })]));
        let from_keeper = r#"{"beat":{"sent":1,"seq":2,"held":[
            {"task":{"job":1,"index":0,"attempt":1},"phase":{"paused":7}},
            {"task":{"job":1,"index":0,"attempt":1},"phase":{"running":7}}]}}"#;
        let finished = r#"{"finished":{"task":{"job":1,"index":0,"attempt":1},"epoch":1,"result":
            {"end":{"evicted":{"by":"x"}},"started":null,"finished":5,"cpu_ms":null,"peak_memory":null,
            "out_bytes":0,"err_bytes":0}}}"#;
        let text = [from_keeper, finished].map(|line| line.replace('\n', "") + "\n").concat();
        let read = read::<FromKeeper>(&text).unwrap();
        let held = [HeldPhase::Unknown, HeldPhase::Running(7)].map(|phase| Held { task, phase });
        assert_eq!(read[0], FromKeeper::Beat { sent: 1, seq: 2, held: held.to_vec() });
        let FromKeeper::Finished { result, .. } = &read[1] else { panic!("{:?}", read[1]) };
        assert_eq!(result.end, WireEnd::Unknown);
    }

    /// A recorded exchange between agent and keeper in the first version of this protocol.
    const AGENT: &str = include_str!("../../cli/tests/golden/worker-v1/agent.jsonl");
    const KEEPER: &str = include_str!("../../cli/tests/golden/worker-v1/keeper.jsonl");

    fn recorded<T: for<'a> Deserialize<'a> + Serialize + PartialEq + std::fmt::Debug>(text: &str) {
        let messages = read::<T>(text).unwrap();
        assert_eq!(messages.len(), text.lines().count());
        let mut again = Vec::new();
        messages.iter().for_each(|message| to_line(message, &mut again));
        assert_eq!(String::from_utf8(again).unwrap(), text);
        let later =
            text.replace("}\n", ",\"later\":{\"a\":[1]}}\n").replace("{\"task\"", "{\"x\":\"y\",\"task\"");
        // A field after a message's last one belongs to the message, not to its envelope.
        let later = later.replace("},\"later\":{\"a\":[1]}}", ",\"later\":{\"a\":[1]}}}");
        assert_eq!(read::<T>(&later).unwrap(), messages);
    }

    #[test]
    fn recorded_lines_mean_what_they_meant_and_a_later_releases_fields_are_passed_over() {
        recorded::<ToKeeper>(AGENT);
        recorded::<FromKeeper>(KEEPER);
    }

    #[test]
    fn lines_without_the_fields_that_were_added_later_are_read() {
        let task = r#""task":{"job":1,"index":0,"attempt":1}"#;
        let to_keeper = [
            r#"{"hello":{"capacity":{"cpu":100}}}"#.to_owned(),
            r#"{"body":{"job":1,"step":0,"command":["true"],"env":{},"cwd":"/"}}"#.to_owned(),
            format!(
                r#"{{"start":{{{task},"step":0,"epoch":1,"seq":1,"request":{{"cpu":1}},"time_limit_ms":null,"value":null}}}}"#
            ),
        ];
        assert_eq!(read::<ToKeeper>(&(to_keeper.join("\n") + "\n")).unwrap().len(), to_keeper.len());
        let from_keeper = [
            r#"{"state":{"incarnation":1,"seq":0,"held":[],"notes":[]}}"#.to_owned(),
            format!(r#"{{"progress":{{{task},"epoch":1}}}}"#),
            format!(
                r#"{{"finished":{{{task},"epoch":1,"result":{{"end":"time_limit","out_bytes":0,"err_bytes":0}}}}}}"#
            ),
        ];
        assert_eq!(read::<FromKeeper>(&(from_keeper.join("\n") + "\n")).unwrap().len(), from_keeper.len());
    }

    /// Both sides of an upgrade speak these words.
    #[test]
    fn what_is_said_of_files_is_read_as_it_was_written() {
        let task = r#""task":{"job":1,"index":0,"attempt":1},"epoch":7"#;
        let to_keeper = [
            r#"{"body":{"job":1,"step":0,"command":["cc"],"env":{},"cwd":"","run_as":null,"refused":null,"files":{"outputs":true}}}"#
                .to_owned(),
            format!(r#"{{"prepared":{{{task},"directory":"/w/files/1.0.1","stdin":"/w/in"}}}}"#),
            format!(r#"{{"prepared":{{{task},"why":"two files","job_at_fault":true}}}}"#),
            format!(r#"{{"prepared":{{{task},"why":"the disk is full","passing":true}}}}"#),
            format!(r#"{{"collected":{{{task}}}}}"#),
            format!(r#"{{"collected":{{{task},"why":"the quota","job_at_fault":true}}}}"#),
        ];
        recorded::<ToKeeper>(&(to_keeper.join("\n") + "\n"));
        let ann = r#"{"uid":1001,"gid":1001,"groups":[1001],"name":"ann","home":"/home/ann"}"#;
        let from_keeper = [
            r#"{"state":{"incarnation":1,"seq":0,"held":[],"notes":[],"sent":0,"fences":true,"files":true}}"#
                .to_owned(),
            format!(r#"{{"prepare":{{{task},"step":3}}}}"#),
            format!(r#"{{"prepare":{{{task},"step":3,"user":{ann}}}}}"#),
            format!(r#"{{"collect":{{{task},"directory":"/w/files/1.0.1"}}}}"#),
            r#"{"discard":{"directory":"/w/files/1.0.1"}}"#.to_owned(),
            format!(
                r#"{{"finished":{{{task},"result":{{"end":{{"outputs_lost":"why"}},"started":1,"finished":2,"cpu_ms":3,"peak_memory":4,"out_bytes":0,"err_bytes":0}}}}}}"#
            ),
        ];
        recorded::<FromKeeper>(&(from_keeper.join("\n") + "\n"));
    }

    #[test]
    fn a_form_of_a_later_release_is_chosen_here() {
        let spec = |text| serde_json::from_str::<JobserverSpec>(text).unwrap();
        let auto = JobserverSpec { processes_max: Some(4), ..JobserverSpec::default() };
        assert_eq!(spec(r#"{"form":{"vsock":3},"processes_max":4}"#), auto);
        let pipes = JobserverSpec { form: JobserverForm::Pipes, ..JobserverSpec::default() };
        assert_eq!(spec(r#"{"form":"pipes"}"#), pipes);
    }

    #[test]
    fn what_is_no_json_ends_the_connection() {
        for line in ["{\"beat\":\n", "beat\n", "{\"kill\":{\"task\":}}\n"] {
            assert!(read::<ToKeeper>(line).is_err(), "{line}");
        }
    }
}
