//! What agent and keeper say to each other: one JSON object a line over a unix socket. They are upgraded
//! apart, so fields are only ever added, each with a default, and what a later release added is passed
//! over: fields, kinds of messages, phases, ends.

use crate::users::RunAs;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::error::Category;
use std::collections::BTreeMap;
use std::path::PathBuf;
use windlass_api::{Session, TaskValue};
use windlass_core::job::{End, TaskResult};
use windlass_core::{JobId, Resources, TaskId, Time, engine};

/// Bytes of one line; a longer one ends the connection.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// An attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TaskRef {
    /// The job.
    pub job: u64,
    /// The task's place in the job.
    pub index: u32,
    /// From 1.
    pub attempt: u32,
}

impl TaskRef {
    /// The attempt of a task.
    pub fn new(task: TaskId, attempt: u32) -> Self {
        TaskRef { job: task.job.0, index: task.index, attempt }
    }

    /// The task.
    pub fn task(&self) -> TaskId {
        TaskId { job: JobId(self.job), index: self.index }
    }
}

/// From agent to keeper.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToKeeper {
    /// First on a connection: what tasks may hold together. Answered with `State`.
    Hello {
        /// What tasks may hold.
        capacity: Amounts,
        /// The agent's clock, for the answer.
        #[serde(default)]
        sent: u64,
    },
    /// Say what you hold, with `sent` in the answer.
    Beat {
        /// The agent's clock.
        sent: u64,
    },
    /// How long tasks may run without another word.
    Lease {
        /// Until then, in nanoseconds since this machine booted; absent is for ever.
        until: Option<u64>,
    },
    /// What tasks of this step run; comes before their first start.
    Body {
        /// The job.
        job: u64,
        /// The step's place in the job.
        step: u16,
        /// Program and arguments with replacement strings.
        command: Vec<String>,
        /// The environment.
        env: BTreeMap<String, String>,
        /// The working directory.
        cwd: String,
        /// What its tasks share.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<Session>,
        /// As whom they run; absent is the keeper's own user.
        #[serde(default)]
        run_as: Option<RunAs>,
        /// Why they must not run here.
        #[serde(default)]
        refused: Option<String>,
        /// That is a matter of this worker and passes, and not of the one who submits.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused_now: bool,
    },
    /// No start with this body is coming.
    DropBody {
        /// The job.
        job: u64,
        /// The step's place in the job.
        step: u16,
    },
    /// Run it as soon as there is room, in the order in which starts come.
    Start {
        /// The attempt.
        task: TaskRef,
        /// The step's place in the job.
        step: u16,
        /// Reports carry it.
        epoch: u64,
        /// The message's number: a start whose number is not above all seen is ignored.
        seq: u64,
        /// What it holds.
        request: Amounts,
        /// Bytes beyond which it is killed; 0 is no limit. Absent, the memory of its request is its limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory_limit: Option<u64>,
        /// Milliseconds that it may run.
        time_limit_ms: Option<u64>,
        /// Stands in for the replacement strings.
        value: Option<String>,
        /// Stand in for references.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        params: Vec<TaskValue>,
    },
    /// End it with all of its processes.
    Kill {
        /// The attempt.
        task: TaskRef,
        /// The message's number.
        seq: u64,
    },
    /// Give it back if it has not started.
    Recall {
        /// The attempt.
        task: TaskRef,
        /// The message's number.
        seq: u64,
    },
    /// Its result is durable; forget it.
    Ack {
        /// The attempt.
        task: TaskRef,
        /// The message's number.
        seq: u64,
    },
    /// It needs no cpu for now.
    Lend {
        /// The attempt.
        task: TaskRef,
        /// The message's number.
        seq: u64,
    },
    /// Give it its cpus again before anything else starts, and say so.
    Reclaim {
        /// The attempt.
        task: TaskRef,
        /// The message's number.
        seq: u64,
    },
    /// Go on as this program, under running tasks.
    Upgrade {
        /// Its path.
        program: PathBuf,
    },
    /// End all tasks and then yourself.
    Shutdown,
    /// End if you hold nothing.
    ShutdownIfIdle,
    /// End if nothing of yours runs: nobody will ask for your results.
    ShutdownIfEnded,
}

/// From keeper to agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromKeeper {
    /// The answer to `Hello`; unacknowledged results follow.
    State {
        /// This keeper's own number.
        incarnation: u64,
        /// The largest number of a message that it has seen.
        seq: u64,
        /// What it holds.
        #[serde(deserialize_with = "known_held")]
        held: Vec<Held>,
        /// What it could not set up, for the log.
        notes: Vec<String>,
        /// As in the hello.
        #[serde(default)]
        sent: u64,
        /// All that it started ends with it, so that it can keep a lease.
        #[serde(default)]
        fences: bool,
        /// Which file its program is, so that an agent of another one can tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<String>,
    },
    /// The answer to `Beat`.
    Beat {
        /// As it came.
        sent: u64,
        /// The largest number of a message that it has seen.
        seq: u64,
        /// What it holds.
        #[serde(deserialize_with = "known_held")]
        held: Vec<Held>,
    },
    /// Its process started.
    Started {
        /// The attempt.
        task: TaskRef,
        /// As in its start.
        epoch: u64,
        /// Nanoseconds since the Unix epoch.
        at: u64,
    },
    /// It ended. Said again on every connection until acknowledged.
    Finished {
        /// The attempt.
        task: TaskRef,
        /// As in its start.
        epoch: u64,
        /// How.
        result: WireResult,
    },
    /// How far it says that it is.
    Progress {
        /// The attempt.
        task: TaskRef,
        /// As in its start.
        epoch: u64,
        /// In percent.
        #[serde(default)]
        percent: Option<f64>,
        /// What it does, for people.
        #[serde(default)]
        status: Option<String>,
    },
    /// It says that it brought something into a cache of this machine.
    Fetched {
        /// The attempt.
        task: TaskRef,
        /// What, as jobs name it.
        key: String,
        /// How much.
        bytes: u64,
        /// Milliseconds that it took.
        ms: u64,
    },
    /// It has its cpus again.
    Reclaimed {
        /// The attempt.
        task: TaskRef,
        /// As in its start.
        epoch: u64,
    },
}

/// An attempt that a keeper holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The attempt.
    pub task: TaskRef,
    /// How far it is.
    pub phase: HeldPhase,
}

/// How far an attempt is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldPhase {
    /// Waits for room.
    Queued,
    /// Runs since then, in nanoseconds since the Unix epoch.
    Running(u64),
    /// Runs since then, and its cpus are lent.
    Lent(u64),
    /// Ended, not acknowledged.
    Ended,
    /// A phase that a later release added.
    Unknown,
}

/// What is known, or what a later release says in its place.
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

impl Held {
    /// For the engine; `None` of a phase that is not known.
    pub fn into_core(self) -> Option<engine::Held> {
        use windlass_core::engine::HeldPhase as Phase;
        let Held { task, phase } = self;
        let phase = match phase {
            HeldPhase::Queued => Phase::Queued,
            HeldPhase::Running(at) => Phase::Running(Time(at)),
            HeldPhase::Lent(at) => Phase::Lent(Time(at)),
            HeldPhase::Ended => Phase::Ended,
            HeldPhase::Unknown => return None,
        };
        Some(engine::Held { task: task.task(), attempt: task.attempt, phase })
    }
}

/// Amounts, as in [`Resources`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Amounts {
    /// Hundredths of a core.
    pub cpu: u32,
    /// Bytes.
    #[serde(default)]
    pub memory: u64,
    /// Whole devices.
    #[serde(default)]
    pub gpus: u32,
    /// Bytes.
    #[serde(default)]
    pub gpu_memory: u64,
    /// Named amounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, u64>,
}

impl From<Resources> for Amounts {
    fn from(from: Resources) -> Self {
        let Resources { cpu, memory, gpus, gpu_memory, custom } = from;
        Amounts { cpu, memory, gpus, gpu_memory, custom }
    }
}

impl From<Amounts> for Resources {
    fn from(from: Amounts) -> Self {
        let Amounts { cpu, memory, gpus, gpu_memory, custom } = from;
        Resources { cpu, memory, gpus, gpu_memory, custom }
    }
}

/// How an attempt ended, on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireEnd {
    /// Exited by itself.
    Exited(i32),
    /// A signal that the keeper did not send.
    Signaled(i32),
    /// Killed at its time limit.
    TimeLimit,
    /// Killed at its memory limit.
    OutOfMemory,
    /// Killed on request.
    Canceled,
    /// Given back unstarted.
    Recalled,
    /// Could not be started.
    NotStarted(String),
    /// The lease ran out.
    Fenced,
    /// A way that a later release added.
    Unknown,
}

/// The result of an attempt, on the wire. Times are nanoseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WireResult {
    /// How.
    #[serde(deserialize_with = "known_end")]
    pub end: WireEnd,
    /// When its process started.
    pub started: Option<u64>,
    /// When its end was seen.
    pub finished: Option<u64>,
    /// Processor time in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Most bytes of memory held.
    pub peak_memory: Option<u64>,
    /// Bytes on standard output.
    pub out_bytes: u64,
    /// Bytes on standard error.
    pub err_bytes: u64,
    /// Why it failed, in the task's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Bytes read from disks and written for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// It did not start because of what its job asked for: that says nothing of this worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub job_at_fault: bool,
}

impl From<WireResult> for TaskResult {
    fn from(from: WireResult) -> Self {
        let end = match from.end {
            WireEnd::Exited(code) => End::Exited(code),
            WireEnd::Signaled(signal) => End::Signaled(signal),
            WireEnd::TimeLimit => End::TimeLimit,
            WireEnd::OutOfMemory => End::OutOfMemory,
            WireEnd::Canceled => End::Canceled,
            WireEnd::Recalled => End::Recalled,
            WireEnd::NotStarted(why) => End::NotStarted(why),
            WireEnd::Fenced => End::Lost,
            WireEnd::Unknown => {
                End::NotStarted("it ended in a way that this worker's agent does not know".to_owned())
            }
        };
        TaskResult {
            end,
            started: from.started.map(Time),
            finished: from.finished.map(Time),
            cpu_ms: from.cpu_ms,
            peak_memory: from.peak_memory,
            disk_bytes: from.disk_bytes,
            out_bytes: from.out_bytes,
            err_bytes: from.err_bytes,
            message: from.message,
            job_at_fault: from.job_at_fault,
        }
    }
}

/// Splits a stream of bytes into lines.
#[derive(Default)]
pub struct Lines {
    buffer: Vec<u8>,
    scanned: usize,
}

impl Lines {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes out all whole lines, parsed. What is JSON and no message that we know is a later release's,
    /// and is passed over. `Err` says why a line is none of ours.
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

/// A message as a line.
pub fn to_line<T: Serialize>(message: &T, into: &mut Vec<u8>) {
    serde_json::to_writer(&mut *into, message).expect("strings and numbers always serialize");
    into.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the pieces in which bytes arrive, the same messages come out.
        #[test]
        fn lines_survive_any_cut(cuts in prop::collection::vec(1usize..40, 1..60)) {
            let sent: Vec<ToKeeper> = (0..20).map(|n| ToKeeper::Ack {
                task: TaskRef { job: n, index: 1, attempt: 1 }, seq: n * 3,
            }).collect();
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
{"kill":{"task":{"job":1,"index":0,"attempt":1,"shard":3},"seq":4,"how":"gently"}}
{"kill":{"task":"none"}}
"#;
        let task = TaskRef { job: 1, index: 0, attempt: 1 };
        assert_eq!(read(to_keeper), Ok(vec![ToKeeper::Kill { task, seq: 4 }]));
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

    /// What an agent and a keeper said to each other, of the first version of this protocol.
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
        // The field after the last of a message is one of the message, not of its envelope.
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

    #[test]
    fn what_is_no_json_ends_the_connection() {
        for line in ["{\"beat\":\n", "beat\n", "{\"kill\":{\"task\":}}\n"] {
            assert!(read::<ToKeeper>(line).is_err(), "{line}");
        }
    }
}
