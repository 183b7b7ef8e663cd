//! Explanations in words: one word for programs, and sentences for people. The API, the command line and the
//! simulator's scripts all show these.

use super::explanation::{Explanation, FirstForLimit, Reason};
use super::worker::{PassedVerdict, WorkerReason};
use crate::WorkerId;
use crate::job::{RunningCap, Stop};
use crate::plan::placement::Ineligible;
use crate::resources::{Bytes, Cpus};
use crate::time::NS_PER_S;
use crate::worker::REST_NS;

macro_rules! words {
    ($($value:ident $word:literal,)*) => {
        /// One word for why a task, or work for a worker, is where it is. Programs compare these, so they never change.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[allow(missing_docs)]
        pub enum Word {
            $($value,)*
            /// A word of a newer release.
            Other,
        }

        impl Word {
            /// All words, those of newer releases as one.
            pub const ALL: &[Word] = &[$(Word::$value,)* Word::Other];

            /// The word as programs read it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Word::$value => $word,)*
                    Word::Other => "other",
                }
            }

            /// The value of a word; [`Word::Other`] of one that this release does not know.
            pub fn parse(word: &str) -> Word {
                Word::ALL.iter().copied().find(|known| known.as_str() == word).unwrap_or(Word::Other)
            }
        }
    };
}

words! {
    Ended "ended",
    Running "running",
    Booked "booked",
    Stopped "stopped",
    Held "held",
    AfterJobs "after_jobs",
    AfterTask "after_task",
    Steps "steps",
    NoWorkers "no_workers",
    FitsNowhere "fits_nowhere",
    Paused "paused",
    Quota "quota",
    Limit "limit",
    LicenceBusy "licence_busy",
    Probing "probing",
    MaxRunning "max_running",
    Together "together",
    Parked "parked",
    Full "full",
    Behind "behind",
    Turn "turn",
    NotTarget "not_target",
    Executor "executor",
    OtherQueues "other_queues",
    Attribute "attribute",
    TooSmall "too_small",
    Suspect "suspect",
    Draining "draining",
    LeftOut "left_out",
    Saturated "saturated",
    LowSpace "low_space",
    WorkerLimit "worker_limit",
    Busy "busy",
    Foreign "foreign",
    Reserved "reserved",
    HeldByRule "held_by_rule",
    NothingWaits "nothing_waits",
    OthersPreferred "others_preferred",
    HeldBack "held_back",
    FitsNone "fits_none",
    Preferred "preferred",
}

impl Word {
    /// The words of ready tasks that wait.
    pub const OF_WAITING: [Word; 23] = [
        Word::Turn,
        Word::Full,
        Word::Behind,
        Word::Parked,
        Word::Together,
        Word::Reserved,
        Word::HeldByRule,
        Word::Limit,
        Word::WorkerLimit,
        Word::LicenceBusy,
        Word::Quota,
        Word::MaxRunning,
        Word::Probing,
        Word::Saturated,
        Word::LowSpace,
        Word::Foreign,
        Word::Draining,
        Word::LeftOut,
        Word::Suspect,
        Word::Paused,
        Word::Held,
        Word::FitsNowhere,
        Word::NoWorkers,
    ];

    /// A sentence about all tasks that wait for this.
    pub fn of_tasks(self) -> &'static str {
        match self {
            Word::Turn => "There is room, and these tasks are about to start.",
            Word::Full => "Every worker that could run these is busy or takes no new work.",
            Word::Behind => {
                "Every worker that could run these is busy, and other queues or users come first."
            }
            Word::Parked => "These come behind others of their queue.",
            Word::Together => "These start together with others, and not all have room.",
            Word::Reserved => "Workers with room for these are reserved for work that has waited long.",
            Word::HeldByRule => "A rule keeps these off workers that have room, for now.",
            Word::Limit => "All of a limit, such as a licence, are taken.",
            Word::WorkerLimit => "The tasks of each worker hold all of a limit that one worker may hold.",
            Word::LicenceBusy => "A licence was busy, and their steps back off.",
            Word::Quota => "Their queue holds as many cpus as its quota allows.",
            Word::MaxRunning => "As many tasks of their job or step run as may at a time.",
            Word::Probing => "The first tasks of their kind run, to show how much memory they need.",
            Word::Saturated => "Every worker that could run these is under pressure.",
            Word::LowSpace => "Every worker that could run these has too little free disk space.",
            Word::Foreign => "Other processes hold the memory of the workers that could run these.",
            Word::Draining => "Every worker that could run these is drained.",
            Word::LeftOut => "Every worker that could run these is in quarantine.",
            Word::Suspect => "Every worker that could run these has not been heard from.",
            Word::Paused => "Their queue is paused.",
            Word::Held => "Their job is held.",
            Word::FitsNowhere => "No worker of the farm could ever run these.",
            Word::NoWorkers => "The farm has no worker.",
            _ => "These wait for another reason.",
        }
    }
}

impl Explanation {
    /// The reason as one word, and as a sentence about the task. `name_of` returns a worker's name.
    pub fn say(&self, name_of: impl Fn(WorkerId) -> String) -> (Word, String) {
        self.reason.say(name_of)
    }
}

impl Reason {
    /// One word for it.
    pub fn word(&self) -> Word {
        match self {
            Reason::Ended => Word::Ended,
            Reason::Placed { started: Some(_), .. } => Word::Running,
            Reason::Placed { .. } => Word::Booked,
            Reason::Stopped(_) => Word::Stopped,
            Reason::Held(_) => Word::Held,
            Reason::AfterJobs(_) => Word::AfterJobs,
            Reason::FirstTask { .. } => Word::AfterTask,
            Reason::Steps(_) => Word::Steps,
            Reason::Closed(closed) => closed.word(),
            Reason::NoWorkers => Word::NoWorkers,
            Reason::FitsNowhere => Word::FitsNowhere,
            Reason::Paused(_) => Word::Paused,
            Reason::Quota { .. } => Word::Quota,
            Reason::BackOff { .. } => Word::LicenceBusy,
            Reason::Limit { .. } => Word::Limit,
            Reason::MaxRunning(_) => Word::MaxRunning,
            Reason::Together { .. } | Reason::Mates { .. } => Word::Together,
            Reason::Probing { .. } => Word::Probing,
            Reason::Parked { .. } => Word::Parked,
            Reason::Full => Word::Full,
            Reason::Behind(_) | Reason::BehindUser(_) => Word::Behind,
            Reason::Turn => Word::Turn,
        }
    }

    /// The reason as one word, and as a sentence about the task. `name_of` returns a worker's name.
    pub fn say(&self, name_of: impl Fn(WorkerId) -> String) -> (Word, String) {
        let sentence = match self {
            Reason::Ended => "it has ended".to_owned(),
            Reason::Placed { worker, started: Some(_), .. } => format!("it runs on {}", name_of(*worker)),
            Reason::Placed { worker, queued: true, .. } => {
                format!("it was sent ahead to {} and starts when a task there ends", name_of(*worker))
            }
            Reason::Placed { worker, .. } => format!("it is about to start on {}", name_of(*worker)),
            Reason::Stopped(stop) => say_stop(*stop),
            Reason::Held(job) => format!("its job is held; 'windlass job release {job}' releases it"),
            Reason::AfterJobs(jobs) => {
                let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                format!("it comes after job {}, which has not ended", jobs.join(", "))
            }
            Reason::FirstTask { task, is_over: false } => format!("it waits for task {task}"),
            Reason::FirstTask { task, is_over: true } => {
                format!(
                    "task {task}, which it comes after, did not succeed; it can start once a retry of that does"
                )
            }
            Reason::Steps(steps) => say_steps(steps),
            Reason::Closed(closed) => say_closed(closed),
            waits => say_waits(waits),
        };
        (self.word(), sentence)
    }
}

/// Why a task waits that could start by itself.
fn say_waits(reason: &Reason) -> String {
    match reason {
        Reason::NoWorkers => "the farm has no worker".to_owned(),
        Reason::FitsNowhere => "no worker of the farm could run it, even if it were empty".to_owned(),
        Reason::Paused(note) if note.is_empty() => "its queue is paused".to_owned(),
        Reason::Paused(note) => format!("its queue is paused: {note}"),
        Reason::Quota { quota_cpu, booked_cpu } => {
            let (holds, quota) = (Cpus(*booked_cpu), Cpus((*quota_cpu).into()));
            let cpus = if *quota_cpu == 100 { "cpu" } else { "cpus" };
            // Tasks that take their cpus back do not wait for it, and it may have been set lower.
            if *booked_cpu > u64::from(*quota_cpu) {
                return format!("its queue holds more than its quota, {holds} of {quota} {cpus}");
            }
            format!("its queue holds {holds} of the {quota} {cpus} of its quota")
        }
        Reason::BackOff { name, times, .. } => {
            let row = if *times > 1 { format!(", {times} times in a row") } else { String::new() };
            format!("its step backs off: licence '{name}' was busy{row}")
        }
        Reason::Limit { name, max, waiting_holder: Some(task), .. } => {
            let of = if *max == 1 { "the one".to_owned() } else { format!("some of the {max}") };
            format!(
                "task {task} holds {of} of the limit '{name}', and waits for this job: neither goes on unless there \
                 are more of the limit, or one of the two is run without it"
            )
        }
        Reason::Limit { name, max, first, .. } => say_limit(name, *max, first.as_ref()),
        Reason::MaxRunning(RunningCap { max, is_of_job }) => {
            let run = match is_of_job {
                true => counted(*max, "task of its job runs", "tasks of its job run"),
                false => counted(*max, "task of its step runs", "tasks of its step run"),
            };
            format!("{run}, and no more may at a time (max_running)")
        }
        Reason::Together { .. } | Reason::Mates { .. } => say_together(reason),
        Reason::Probing { running } => {
            let (one, many) = ("task of its profile runs first", "tasks of its profile run first");
            let need = if *running == 1 { "it needs" } else { "they need" };
            format!("{}, to show how much memory {need}", counted(*running, one, many))
        }
        Reason::Parked { ahead, is_at_most } => {
            let at_most = if *is_at_most { "at most " } else { "" };
            let ahead = counted(*ahead, "other of its queue", "others of its queue");
            format!("it is behind {at_most}{ahead}, and waits in the store until its turn is near")
        }
        Reason::Full => "every worker that could run it is busy or takes no new work".to_owned(),
        Reason::Behind(queue) => {
            format!("every worker that could run it is busy, and freed slots go to queue {queue} first")
        }
        Reason::BehindUser(user) => {
            format!("every worker that could run it is busy, and {user} is next in its queue")
        }
        _ => "there is room; it starts as soon as its turn comes".to_owned(),
    }
}

/// A number with what it counts.
pub(super) fn counted(n: impl Into<u64>, one: &str, many: &str) -> String {
    let n = n.into();
    format!("{n} {}", if n == 1 { one } else { many })
}

fn say_limit(name: &str, max: u32, first: Option<&FirstForLimit>) -> String {
    let taken = match max {
        0 => return format!("the limit '{name}' is 0: no task may hold it"),
        1 => format!("the one of the limit '{name}' is taken"),
        max => format!("all {max} of the limit '{name}' are taken"),
    };
    match first {
        None => taken,
        Some(FirstForLimit::Queue(queue)) => format!("{taken}, and queue {queue} is first for the next"),
        Some(FirstForLimit::User(user)) => format!("{taken}, and {user} is first for the next in its queue"),
    }
}

/// The same of tasks that start together.
fn say_together(reason: &Reason) -> String {
    match reason {
        Reason::Together { tasks: 1, .. } => {
            "the others with which it starts have succeeded, and no worker has room for it now".to_owned()
        }
        Reason::Together { tasks, placed } => {
            let others = counted(tasks - 1, "other", "others");
            let have = if *placed == 1 { "has" } else { "have" };
            format!("it starts together with {others}, and {placed} of these {tasks} tasks {have} room now")
        }
        Reason::Mates { waiting, lost: true } => format!(
            "a task with which it starts failed, so it cannot run unless that is retried ({waiting} are not ready)"
        ),
        Reason::Mates { waiting, .. } => {
            format!("it starts together with others, of which {waiting} are not ready yet")
        }
        _ => String::new(),
    }
}

fn say_stop(stop: Stop) -> String {
    match stop {
        Stop::Canceled => "its job was cancelled".to_owned(),
        Stop::FailFast => "another task of its job failed, and the job asked for fail-fast".to_owned(),
        Stop::After(job) => format!("job {job}, which it comes after, did not succeed"),
    }
}

/// An operator's note, behind what it is about.
fn noted(note: &Option<String>) -> String {
    note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default()
}

/// Pressure on cpus is named with the rule by which it counts: a worker whose tasks cause the same pressure is not held.
fn under_pressure(what: &str) -> String {
    match what {
        "cpu" => format!("under cpu pressure, and no task has run there for {} s", REST_NS / NS_PER_S),
        what => format!("under {what} pressure"),
    }
}

fn say_closed(closed: &Ineligible) -> String {
    let every = "every worker that could run it";
    // What judges a worker that has room: others are busy.
    let with_room = "every worker that has room for it";
    match closed {
        Ineligible::Suspect => format!("{every} has not been heard from"),
        Ineligible::Draining(note) => format!("{every} is drained{}", noted(note)),
        Ineligible::Quarantined { .. } => format!("{every} is in quarantine"),
        Ineligible::LowSpace { directory, free, needs } => format!(
            "{every} has too little free space in its {directory} directory ({} free, {} needed)",
            Bytes(*free),
            Bytes(*needs)
        ),
        Ineligible::UnderPressure(what) => format!("{every} is {}", under_pressure(what)),
        Ineligible::TooSmall(short) if short.is_closed() => format!("{every} {closed}"),
        Ineligible::NetworkInUse => {
            format!("{with_room} uses its network already, and its step is network-bound")
        }
        Ineligible::Limit { name, max } => {
            let all = if *max == 1 { "the one".to_owned() } else { format!("all {max}") };
            format!("{every} holds {all} of the limit '{name}' that one worker may hold")
        }
        Ineligible::Reserved(_) => format!("{with_room} is reserved for work that has waited long"),
        Ineligible::BuildTurn(build) => format!("it waits for its turn at cpus that builds use: {build}"),
        Ineligible::Vetoed { reason, .. } => format!("{with_room} is ruled out for now: {reason}"),
        closed => format!("{every} cannot run it now: {closed}"),
    }
}

fn say_steps(steps: &[(String, u32, u32)]) -> String {
    let each = steps.iter().map(|(name, left, failed)| match failed {
        0 => format!("step '{name}' ({left} to go)"),
        _ => format!(
            "step '{name}' ({left} to go, {failed} of them failed: it cannot run unless they are retried)"
        ),
    });
    format!("it waits for {}", each.collect::<Vec<_>>().join(" and "))
}

impl Ineligible {
    /// One word for it.
    pub fn word(&self) -> Word {
        match self {
            Ineligible::NotTarget => Word::NotTarget,
            Ineligible::Executor => Word::Executor,
            Ineligible::OtherQueues(_) => Word::OtherQueues,
            Ineligible::Attribute(_) => Word::Attribute,
            Ineligible::GpusLate | Ineligible::TooSmall(_) => Word::TooSmall,
            Ineligible::TooFew { .. } => Word::Together,
            Ineligible::Suspect => Word::Suspect,
            Ineligible::Draining(_) => Word::Draining,
            Ineligible::Quarantined { .. } => Word::LeftOut,
            Ineligible::LowSpace { .. } => Word::LowSpace,
            Ineligible::UnderPressure(_) | Ineligible::NetworkInUse => Word::Saturated,
            Ineligible::Limit { .. } => Word::WorkerLimit,
            Ineligible::Busy(_) => Word::Busy,
            Ineligible::Foreign(_) => Word::Foreign,
            Ineligible::Reserved(_) => Word::Reserved,
            Ineligible::BuildTurn(_) => Word::Behind,
            Ineligible::Vetoed { .. } => Word::HeldByRule,
        }
    }
}

impl WorkerReason {
    /// The reason as one word, and as a sentence about the worker.
    pub fn say(&self) -> (Word, String) {
        match self {
            WorkerReason::Unfit(why) | WorkerReason::Closed(why) => (why.word(), say_of_worker(why)),
            WorkerReason::NothingWaits => (Word::NothingWaits, "no ready task waits".to_owned()),
            WorkerReason::Turn => (Word::Turn, "it gets work as soon as its turn comes".to_owned()),
            WorkerReason::Together => (
                Word::Together,
                "the waiting work starts together with tasks for which other workers have too little room"
                    .to_owned(),
            ),
            WorkerReason::OthersPreferred => (
                Word::OthersPreferred,
                "other workers with room score better for the waiting work".to_owned(),
            ),
            WorkerReason::HeldBack => (
                Word::HeldBack,
                "the waiting work may not start anywhere: a quota or a limit is used up".to_owned(),
            ),
            WorkerReason::FitsNone => {
                (Word::FitsNone, "no waiting work would fit it, even if it were empty".to_owned())
            }
        }
    }
}

/// Why a worker gets none of the waiting work.
fn say_of_worker(reason: &Ineligible) -> String {
    match reason {
        Ineligible::Suspect => "it has not been heard from".to_owned(),
        Ineligible::Draining(note) => format!("it is drained{}", noted(note)),
        Ineligible::LowSpace { directory, free, needs } => format!(
            "it has too little free space in its {directory} directory: {} are free, and it gets work again from {} on",
            Bytes(*free),
            Bytes(*needs)
        ),
        Ineligible::UnderPressure(what) => format!("it is {}", under_pressure(what)),
        Ineligible::NetworkInUse => "its network is in use, and the waiting work is network-bound".to_owned(),
        Ineligible::Busy(_) => "it is full: its tasks hold what the waiting work needs".to_owned(),
        Ineligible::Foreign(_) => "processes outside of Windlass hold what the waiting work needs".to_owned(),
        Ineligible::Reserved(_) => "it is reserved for work that has waited long".to_owned(),
        Ineligible::BuildTurn(build) => {
            format!("the waiting work waits for its turn at cpus that builds use: {build}")
        }
        Ineligible::Vetoed { reason, .. } => format!("a rule vetoes the waiting work here: {reason}"),
        other => other.to_string(),
    }
}

impl PassedVerdict {
    /// Why a waiting step is not on a worker, as one word and as a sentence.
    pub fn say(&self, name_of: impl Fn(WorkerId) -> String) -> (Word, String) {
        match self {
            PassedVerdict::Unmet(unmet) => {
                let all: Vec<String> = unmet.iter().map(ToString::to_string).collect();
                (unmet.first().map_or(Word::Other, Ineligible::word), all.join("; "))
            }
            PassedVerdict::Quota => (Word::Quota, "its queue's quota is used up".to_owned()),
            PassedVerdict::Limit(name) => (Word::Limit, format!("all of the limit '{name}' are taken")),
            PassedVerdict::Preferred { best, .. } => {
                (Word::Preferred, format!("{} scores better", name_of(best.worker)))
            }
            PassedVerdict::Together { tasks, placed } => {
                let have = if *placed == 1 { "has" } else { "have" };
                (Word::Together, format!("{placed} of the {tasks} tasks that start together {have} room now"))
            }
            PassedVerdict::Turn => (Word::Turn, "it starts as soon as its turn comes".to_owned()),
        }
    }
}
