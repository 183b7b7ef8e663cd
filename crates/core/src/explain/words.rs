//! Explanations in words: one word for programs, and sentences for people. The API, the command line and the
//! simulator's scripts all show these.

use super::explanation::{Change, Explanation, Reason};
use super::worker::{PassedVerdict, WorkerReason};
use crate::WorkerId;
use crate::job::{RunningCap, Stop};
use crate::plan::placement::Ineligible;
use crate::resources::{Bytes, Cpus, Short};

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

impl Explanation {
    /// The reason as one word, and as a sentence about the task. `name_of` returns a worker's name.
    pub fn say(&self, name_of: impl Fn(WorkerId) -> String) -> (Word, String) {
        match &self.reason {
            Reason::Ended => (Word::Ended, "it has ended".to_owned()),
            Reason::Placed { worker, started: Some(_), .. } => {
                (Word::Running, format!("it runs on {}", name_of(*worker)))
            }
            Reason::Placed { worker, queued: true, .. } => (
                Word::Booked,
                format!("it was sent ahead to {} and starts when a task there ends", name_of(*worker)),
            ),
            Reason::Placed { worker, .. } => {
                (Word::Booked, format!("it is about to start on {}", name_of(*worker)))
            }
            Reason::Stopped(stop) => (Word::Stopped, say_stop(*stop)),
            Reason::Held => (Word::Held, "its job is held; 'windlass job release' releases it".to_owned()),
            Reason::AfterJobs(jobs) => {
                let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                (Word::AfterJobs, format!("it comes after job {}, which has not ended", jobs.join(", ")))
            }
            Reason::Steps(steps) => (Word::Steps, say_steps(steps)),
            Reason::Closed(closed) => (closed.word(), say_closed(closed)),
            waits => say_waits(waits),
        }
    }
}

/// Why a task waits that could start by itself.
fn say_waits(reason: &Reason) -> (Word, String) {
    match reason {
        Reason::NoWorkers => (Word::NoWorkers, "the farm has no worker".to_owned()),
        Reason::FitsNowhere => {
            (Word::FitsNowhere, "no worker of the farm could run it, even if it were empty".to_owned())
        }
        Reason::Paused(note) if note.is_empty() => (Word::Paused, "its queue is paused".to_owned()),
        Reason::Paused(note) => (Word::Paused, format!("its queue is paused: {note}")),
        Reason::Quota { quota_cpu, booked_cpu } => {
            let (holds, quota) = (Cpus(*booked_cpu), Cpus((*quota_cpu).into()));
            (Word::Quota, format!("its queue holds {holds} of the {quota} cpus of its quota"))
        }
        Reason::BackOff { name, times, .. } => {
            let row = if *times > 1 { format!(", {times} times in a row") } else { String::new() };
            (Word::LicenceBusy, format!("its step backs off: licence '{name}' was busy{row}"))
        }
        Reason::Limit { name, max: 0 } => {
            (Word::Limit, format!("the limit '{name}' is 0: no task may hold it"))
        }
        Reason::Limit { name, max } => (Word::Limit, format!("all {max} of the limit '{name}' are taken")),
        Reason::MaxRunning(RunningCap { max, is_of_job }) => {
            let of = if *is_of_job { "job" } else { "step" };
            (
                Word::MaxRunning,
                format!("{max} tasks of its {of} run, and no more may at a time (max_running)"),
            )
        }
        Reason::Together { .. } | Reason::Mates { .. } => (Word::Together, say_together(reason)),
        Reason::Probing { running } => (
            Word::Probing,
            format!("{running} tasks of its profile run first, to show how much memory they need"),
        ),
        Reason::Parked { ahead, is_at_most } => {
            let at_most = if *is_at_most { "at most " } else { "" };
            let ahead = format!("it is behind {at_most}{ahead} others of its queue");
            (Word::Parked, format!("{ahead}, and waits in the store until they start"))
        }
        Reason::Full => {
            (Word::Full, "every worker that could run it is busy or takes no new work".to_owned())
        }
        Reason::Behind(queue) => (
            Word::Behind,
            format!("every worker that could run it is busy, and freed slots go to queue {queue} first"),
        ),
        Reason::BehindUser(user) => {
            (Word::Behind, format!("every worker that could run it is busy, and {user} is next in its queue"))
        }
        _ => (Word::Turn, "there is room; it starts as soon as its turn comes".to_owned()),
    }
}

/// The same of tasks that start together.
fn say_together(reason: &Reason) -> String {
    match reason {
        Reason::Together { tasks: 1, .. } => {
            "the others with which it starts have succeeded, and no worker has room for it now".to_owned()
        }
        Reason::Together { tasks, placed } => {
            let others = tasks - 1;
            format!(
                "it starts together with {others} others, and {placed} of these {tasks} tasks have room now"
            )
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

fn say_closed(closed: &Ineligible) -> String {
    let every = "every worker that could run it";
    match closed {
        Ineligible::Suspect => format!("{every} has not been heard from"),
        Ineligible::Draining(note) => format!("{every} is drained{}", noted(note)),
        Ineligible::Quarantined { .. } => format!("{every} is in quarantine"),
        Ineligible::LowSpace { directory, free, needs } => format!(
            "{every} has too little free space in its {directory} directory ({} free, {} needed)",
            Bytes(*free),
            Bytes(*needs)
        ),
        Ineligible::UnderPressure(what) => format!("{every} is under {what} pressure"),
        Ineligible::NetworkInUse => {
            format!("{every} uses its network already, and its step is network-bound")
        }
        Ineligible::Limit { name, max } => {
            format!("{every} holds all {max} of the limit '{name}' that one worker may hold")
        }
        Ineligible::Reserved(_) => format!("{every} is reserved for work that has waited long"),
        Ineligible::Vetoed { reason, .. } => format!("{every} is vetoed by a rule: {reason}"),
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
            Ineligible::TooSmall(_) => Word::TooSmall,
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
            Ineligible::Vetoed { .. } => Word::HeldByRule,
        }
    }

    /// What an operator or the submitter could do about it on that worker.
    fn remedy(&self, worker: &str) -> String {
        match self {
            Ineligible::NotTarget => format!("let the step name {worker}, or no worker"),
            Ineligible::Executor => format!("run it on another worker: {worker} {self}"),
            Ineligible::OtherQueues(queues) => format!(
                "submit it to queue {}: {worker} {self}",
                queues.first().map_or("of that worker", String::as_str)
            ),
            Ineligible::Attribute(need) => format!("give {worker} the tag {need}, or do not ask for it"),
            Ineligible::TooSmall(short) if short.asked() <= short.have => {
                format!("let its tasks hold less: earlier ones of its profile held more than {worker} has")
            }
            Ineligible::TooSmall(short) => ask_for(short),
            Ineligible::TooFew { could, .. } => {
                format!(
                    "connect more workers like {worker}, or let no more than {could} tasks start together"
                )
            }
            Ineligible::Suspect => format!("bring {worker} back: it has not been heard from"),
            Ineligible::Draining(_) => format!("resume {worker}"),
            Ineligible::Quarantined { .. } => format!("repair {worker}; it is tried again after a while"),
            Ineligible::LowSpace { directory, free, needs } => format!(
                "delete files in the file system of the {directory} directory of {worker} until {} are free \
                 ({} are), or lower the server's setting 'load.min_free_bytes'",
                Bytes(*needs),
                Bytes(*free)
            ),
            Ineligible::UnderPressure(what) => format!("reduce the {what} pressure on {worker}"),
            Ineligible::NetworkInUse => format!("wait until other transfers of {worker} have ended"),
            Ineligible::Limit { name, max } => format!(
                "wait until a task on {worker} releases the limit '{name}', or raise it: \
                 'windlass limit set {name} --per-worker {}'",
                max.saturating_add(1)
            ),
            // The step did not ask for what was learned, so asking for less does not help.
            Ineligible::Busy(short) if short.have == 0 || short.learned > 0 => {
                format!("wait until {}", can_be_had(short, worker))
            }
            Ineligible::Busy(short) => {
                format!("{}, or wait until {}", ask_for(short), can_be_had(short, worker))
            }
            Ineligible::Foreign(short) if short.learned > 0 => {
                format!("end other processes that hold memory on {worker}")
            }
            Ineligible::Foreign(short) => {
                format!("end other processes that hold memory on {worker}, or {}", ask_for(short))
            }
            Ineligible::Reserved(_) => {
                format!("wait until the work for which {worker} is reserved has started")
            }
            Ineligible::Vetoed { rule, reason } => {
                format!("wait: the rule {rule} vetoes {worker} ({reason})")
            }
        }
    }
}

fn ask_for(short: &Short) -> String {
    match &*short.resource {
        "cpu" => format!("ask for --cpus {} or less", Cpus(short.have)),
        "memory" => format!("ask for --memory {} or less", Bytes(short.have).to_string().replace(' ', "")),
        name => format!("ask for {} {name} or less", short.have),
    }
}

fn can_be_had(short: &Short, worker: &str) -> String {
    let more = short.amount(short.need - short.have);
    match &*short.resource {
        "cpu" => format!("{worker} has another {more} free"),
        "memory" => format!("{worker} has another {more} of memory free"),
        name => format!("{worker} has another {more} {name} free"),
    }
}

impl Change {
    /// The worker that the change is about, if it is about one.
    pub fn worker(&self) -> Option<&str> {
        if let Change::Worker { worker, .. } = self { Some(worker) } else { None }
    }

    /// What to do; all of it is needed.
    pub fn steps(&self) -> Vec<String> {
        let step = match self {
            Change::Worker { worker, unmet } => {
                return unmet.iter().map(|reason| reason.remedy(worker)).collect();
            }
            Change::Resume(queue) => format!("resume the queue: 'windlass queue resume {queue}'"),
            Change::Quota(queue, cpu) => {
                let cpus = Cpus(*cpu);
                format!("raise the quota of queue {queue}: 'windlass queue set {queue} --quota {cpus}'")
            }
            Change::Limit(name, max) => format!("raise the limit: 'windlass limit set {name} {max}'"),
            Change::TryAgain(name, back_off_ms) => format!(
                "wait, or end the back-off now: 'windlass limit set {name} --back-off {back_off_ms}ms'"
            ),
            Change::Release => "release its job: 'windlass job release'".to_owned(),
            Change::Connect { system, needs } if needs.is_empty() => {
                format!("connect a provider of {system}, or register a machine and boot it")
            }
            Change::Connect { system, needs } => {
                let needs = needs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                format!("connect a provider of {system}, or register a machine and boot it, with {needs}")
            }
            Change::Mate { step, targets } if targets.is_empty() => {
                format!("connect a worker for step '{step}', which starts together with it and fits none")
            }
            Change::Mate { step, targets } => {
                let targets = targets.join(" or ");
                format!(
                    "connect {targets} for step '{step}', which starts together with it and fits no worker"
                )
            }
            Change::Ahead(queue) => format!(
                "hold work of queue {queue}, or give its own queue more weight: 'windlass queue set --weight'"
            ),
            Change::UserAhead { queue, user } => format!(
                "wait, or give {user} more weight in the queue: 'windlass queue set {queue} --user-weight {user}=N'"
            ),
        };
        vec![step]
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
        Ineligible::UnderPressure(what) => format!("it is under {what} pressure"),
        Ineligible::NetworkInUse => "its network is in use, and the waiting work is network-bound".to_owned(),
        Ineligible::Busy(_) => "it is full: its tasks hold what the waiting work needs".to_owned(),
        Ineligible::Foreign(_) => "processes outside of Windlass hold what the waiting work needs".to_owned(),
        Ineligible::Reserved(_) => "it is reserved for work that has waited long".to_owned(),
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
                (Word::Together, format!("{placed} of the {tasks} tasks that start together have room now"))
            }
            PassedVerdict::Turn => (Word::Turn, "it starts as soon as its turn comes".to_owned()),
        }
    }
}
