//! What an explanation says.

use super::entitlement::Pool;
use crate::ids::{JobId, TaskId, WorkerId};
use crate::job::{RunningCap, Stop, TaskState};
use crate::plan::Judged;
use crate::plan::placement::Ineligible;
use crate::queues::Ahead;
use crate::tags::{EXECUTOR, Need};
use crate::time::Time;

/// Why a task is not running, or where it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The state of the task.
    pub state: TaskState,
    /// The one reason that counts.
    pub reason: Reason,
    /// The step's place in its queue, where it stands in one.
    pub turn: Option<Turn>,
    /// What rules workers out now, most frequent first, with names of some.
    pub ruled_out: Vec<(Ineligible, usize, Vec<String>)>,
    /// The number of workers with room for it.
    pub open_workers: usize,
    /// How the best of these are judged, or how those were among which the decision was made.
    pub judged: Vec<Judged>,
    /// When that was, where it is over.
    pub decided: Option<Time>,
    /// What would make it run, smallest first. Each was tried on a copy of the engine.
    pub changes: Vec<Advice>,
}

impl Explanation {
    pub(super) fn bare(state: TaskState, reason: Reason) -> Self {
        Explanation {
            state,
            reason,
            turn: None,
            ruled_out: Vec::new(),
            open_workers: 0,
            judged: Vec::new(),
            decided: None,
            changes: Vec::new(),
        }
    }
}

/// The one reason that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Reason {
    /// The task is over.
    Ended,
    /// It runs there, or is about to.
    Placed {
        worker: WorkerId,
        /// Since when its process runs, if it does.
        started: Option<Time>,
        /// It waits at its worker for a running task to end.
        queued: bool,
    },
    /// Nothing of its job starts any more.
    Stopped(Stop),
    /// Its job, this one, is held.
    Held(JobId),
    /// Its job comes after these.
    AfterJobs(Vec<JobId>),
    /// It comes after this task of another job, which has not succeeded.
    FirstTask {
        task: TaskId,
        /// That one failed or was cancelled, or never started: only a retry of it would help.
        is_over: bool,
    },
    /// It waits for other steps: name, tasks still to succeed, tasks failed.
    Steps(Vec<(String, u32, u32)>),
    /// The farm has no workers that take work.
    NoWorkers,
    /// No worker could run it even if it were empty.
    FitsNowhere,
    /// Its queue starts nothing, with the note of who said so.
    Paused(String),
    /// Its queue holds as much as it may.
    Quota {
        /// Hundredths of a core that it may hold.
        quota_cpu: u32,
        /// Hundredths of a core that it holds.
        booked_cpu: u64,
    },
    /// A licence was busy when its step was tried last; the step starts nothing until then.
    BackOff {
        name: String,
        until: Time,
        /// How often in a row it was busy; 0 where a task succeeded since.
        times: u32,
    },
    /// All licences of this name are taken.
    Limit {
        name: String,
        /// How many there are.
        max: u32,
        /// What gets the next one that is given back, if that is not its own queue and user.
        first: Option<FirstForLimit>,
        /// A task that holds some, and waits for this job. With it and others like it too few are left for this task.
        waiting_holder: Option<TaskId>,
    },
    /// The memory of its signature is not known yet, and `running` tasks that are to show it run.
    Probing { running: u32 },
    /// Every worker that could run it is closed to it for this one reason.
    Closed(Ineligible),
    /// Its job is parked: `ahead` others of its queue come first.
    Parked {
        ahead: u64,
        /// Some of them are other users', who take turns with its user.
        is_at_most: bool,
    },
    /// As many tasks of its step or job run as may.
    MaxRunning(RunningCap),
    /// It starts together with others, and not all have a worker with room.
    Together {
        /// How many start together.
        tasks: u32,
        /// How many have one.
        placed: u32,
    },
    /// It starts together with others, and some are not ready.
    Mates {
        /// How many are not.
        waiting: u32,
        /// Some failed for good.
        lost: bool,
    },
    /// Every worker that could run it is full, or takes no new work.
    Full,
    /// The same, and what becomes free goes to this queue first.
    Behind(String),
    /// The same, and what its queue gets goes to this user first.
    BehindUser(String),
    /// There is room; the next round starts it, or others before it.
    Turn,
}

/// What stands first for a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstForLimit {
    /// Another queue, by its name.
    Queue(String),
    /// Another user of the same queue.
    User(String),
}

impl FirstForLimit {
    pub(super) fn of(ahead: Ahead<'_>) -> FirstForLimit {
        match ahead {
            Ahead::Queue(queue) => FirstForLimit::Queue(queue.to_owned()),
            Ahead::User(user) => FirstForLimit::User(user.to_owned()),
        }
    }
}

impl Reason {
    pub(super) fn behind(ahead: Ahead<'_>) -> Reason {
        match ahead {
            Ahead::Queue(queue) => Reason::Behind(queue.to_owned()),
            Ahead::User(user) => Reason::BehindUser(user.to_owned()),
        }
    }

    /// True if it waits for room, or for its turn.
    pub fn is_of_room(&self) -> bool {
        matches!(self, Reason::Turn | Reason::Full | Reason::Behind(_) | Reason::BehindUser(_))
    }
}

/// Where a step stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Turn {
    /// The name of its queue.
    pub queue: String,
    /// The band of the queue.
    pub band: u8,
    /// Queues with work whose turn is before.
    pub queues_ahead: usize,
    /// Other users of its queue with work whose turn is before.
    pub users_ahead: usize,
    /// Steps of its own user in its queue that come before.
    pub steps_ahead: usize,
    /// Tasks of its own step that come before.
    pub tasks_ahead: u32,
    /// Smaller tasks that come later may start before it: they take room that is not enough for it, and no worker is
    /// reserved for it.
    pub may_be_overtaken: bool,
    /// The weight of the queue in its band.
    pub weight: u32,
    /// How the workers that could run it are shared out.
    pub pool: Pool,
    /// When it is expected to start, where the lengths of what runs and comes before are known.
    pub starts: Option<Time>,
    /// Between which times, where these lengths are those of a profile whose earlier tasks took very different times.
    pub starts_between: Option<(Time, Time)>,
}

/// A change after which the task runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// What a person has to do for it.
    pub change: Change,
    /// When the task starts then.
    pub starts: Starts,
}

/// When a task starts after a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Starts {
    /// Now, without a wait for room.
    AtOnce,
    /// As soon as enough of the worker of this name is free for it: nothing else gets that.
    WhenFree(String),
    /// The same, and smaller tasks start there before, each in room that is not enough for it.
    AfterSmaller(String),
    /// Once tasks that run on the worker of this name have ended. It has room, and pressure or a rule keeps further tasks
    /// off while those run.
    AfterTasks(String),
}

/// Who can make a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// The user who submitted the task.
    Submitter,
    /// An administrator of the farm.
    Administrator,
}

/// A change after which a task would run.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum Change {
    /// Nothing has to be done.
    Wait,
    /// All of these; one alone does not help.
    All(Vec<Change>),
    /// All that is in the way on a worker is taken away there.
    Worker {
        worker: String,
        /// What is in the way there.
        unmet: Vec<Ineligible>,
    },
    /// It is submitted a second time with these changes, so that this worker suits it.
    Resubmit { worker: String, edits: Vec<Edit> },
    /// A larger quota of its queue: at least this many hundredths of a core.
    Quota(String, u64),
    /// Resume the queue of this name.
    Resume(String),
    /// More licences of a name: at least this number.
    Limit(String, u32),
    /// Try again at once what found this limit busy, by setting it as it is: milliseconds of its back-off.
    TryAgain(String, u64),
    /// Its job, this one, is let go on.
    Release(JobId),
    /// Connect a host of another system: only its hosts run this work.
    Connect {
        system: String,
        /// What the host must be.
        needs: Vec<Need>,
    },
    /// Connect a worker for a step with which it starts: none that is there fits that.
    Mate {
        step: String,
        /// The only workers that it may have; none is any.
        targets: Vec<String>,
    },
    /// Its job, this one, gets this priority in its queue.
    Priority(JobId, i32),
    /// This queue starts nothing for a while.
    Pause(String),
    /// A queue gets this weight.
    Weight(String, u32),
    /// A queue is moved into this band.
    Band(String, u8),
    /// A user gets this weight in a queue.
    UserWeight { queue: String, user: String, weight: u32 },
}

/// A change of what a submission asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Edit {
    /// No more than this much of a resource: `cpu` in hundredths of a core, memory in bytes.
    Less(String, u64),
    /// It goes to another queue.
    Queue(String),
    /// This worker, in place of those that it names.
    Target(String),
    /// It does not ask for an attribute.
    Without(Need),
}

impl Change {
    /// For work of another system; `None` for other work.
    pub(super) fn connect(needs: &[Need]) -> Option<Change> {
        let executor = needs.iter().find(|need| need.key == EXECUTOR)?;
        let system = executor.any_of.first().cloned().unwrap_or_default();
        let needs = needs.iter().filter(|need| need.key != EXECUTOR).cloned().collect();
        Some(Change::Connect { system, needs })
    }

    /// True if it changes who is next.
    pub(super) fn is_of_turns(&self) -> bool {
        matches!(
            self,
            Change::Priority(..)
                | Change::Pause(_)
                | Change::Weight(..)
                | Change::Band(..)
                | Change::UserWeight { .. }
        )
    }

    /// Who can make it; `None` where nobody has to.
    pub fn who(&self) -> Option<Who> {
        match self {
            Change::Wait => None,
            Change::All(changes) => {
                let all: Vec<Who> = changes.iter().filter_map(Change::who).collect();
                all.iter().find(|who| **who == Who::Administrator).or(all.first()).copied()
            }
            Change::Release(_) | Change::Resubmit { .. } | Change::Priority(..) => Some(Who::Submitter),
            _ => Some(Who::Administrator),
        }
    }
}
