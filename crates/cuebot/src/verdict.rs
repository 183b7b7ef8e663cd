//! What becomes of a frame whose command ended.
//!
//! - A frame succeeds only with exit status 0.
//! - A failed frame waits again while it has retries left; then it is dead, or eaten where the job says so.
//! - A frame that ran out of memory waits again however often it failed: its layer asks for more.
//! - A frame that its host gave up, or whose command asks for it, waits again, too.

/// Exit status that RQD and Cuebot use when a frame used too much memory.
pub const EXIT_MEMORY: i32 = 33;
/// The same from a container whose kernel ended the command.
pub const EXIT_MEMORY_CONTAINER: i32 = 137;
/// The command could not be started.
pub const EXIT_FAILED_LAUNCH: i32 = 256;
/// The command asks to run again without spending a retry.
pub const EXIT_SKIP_RETRY: i32 = 286;
/// The host went away while the frame ran.
pub const EXIT_HOST_DOWN: i32 = 399;
/// The proc of the frame was cleared.
pub const EXIT_CLEARED: i32 = 299;
/// The signal with which RQD ends frames whose command asks to run again.
const SIGNAL_RETRY: i32 = 119;
/// SIGTERM, with which RQD ends frames when a person sits down at the host.
const SIGNAL_NIMBY: i32 = 15;
/// A frame that ran longer and failed is not run again, in seconds: twelve hours, as in OpenCue.
pub const RETRY_RUN_S_MAX: i64 = 3600 * 12;

/// What a host says of a command that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ending {
    /// The exit status of the command; 0 is success.
    pub exit_status: i32,
    /// The signal that ended the command; 0 where none did.
    pub exit_signal: i32,
    /// True if the host was locked because a person used it.
    pub nimby_locked: bool,
    /// Seconds that the command ran.
    pub run_s: i64,
    /// Seconds since the last line of its log. `None` where the host does not know.
    pub silent_s: Option<i64>,
    /// True if this gateway had the frame killed for its memory.
    pub killed_for_memory: bool,
}

/// What the job and the layer say about failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// Retries that the frame has spent.
    pub retries: i64,
    /// Retries that its job allows.
    pub retries_max: i64,
    /// True if failed frames are eaten.
    pub auto_eat: bool,
    /// Minutes that a command may run; 0 is unlimited.
    pub timeout_min: i64,
    /// Minutes that a log may be silent; 0 is unlimited.
    pub timeout_llu_min: i64,
}

/// The state that a frame gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The command succeeded, and the frame is done.
    Succeeded,
    /// The frame waits for another run.
    Waiting,
    /// The frame failed, and stays dead until a client retries or eats it.
    Dead,
    /// The frame failed, and counts as done.
    Eaten,
}

impl Verdict {
    /// The state's name in the table of frames.
    pub fn state(self) -> &'static str {
        match self {
            Verdict::Succeeded => "SUCCEEDED",
            Verdict::Waiting => "WAITING",
            Verdict::Dead => "DEAD",
            Verdict::Eaten => "EATEN",
        }
    }
}

impl Ending {
    /// True if the command used more memory than it may.
    pub fn is_memory_failure(&self) -> bool {
        self.killed_for_memory
            || self.exit_status == EXIT_MEMORY
            || self.exit_status == EXIT_MEMORY_CONTAINER
            || self.exit_signal == EXIT_MEMORY
    }
}

/// Decides the state of a running frame whose command ended.
pub fn decide(ending: &Ending, terms: &Terms) -> Verdict {
    if ending.exit_status == 0 && !ending.killed_for_memory {
        return Verdict::Succeeded;
    }
    let asks_again = ending.exit_status == EXIT_SKIP_RETRY
        || (terms.retries_max != 0 && ending.exit_signal == SIGNAL_RETRY)
        || (ending.nimby_locked && ending.exit_signal == SIGNAL_NIMBY);
    let launch_failed = ending.exit_status == EXIT_FAILED_LAUNCH || ending.exit_signal == EXIT_FAILED_LAUNCH;
    if asks_again || (launch_failed && terms.retries < terms.retries_max) {
        return Verdict::Waiting;
    }
    if terms.auto_eat {
        return Verdict::Eaten;
    }
    let silent = ending.silent_s.is_some_and(|silent_s| silent_s / 60 >= terms.timeout_llu_min);
    let timed_out = (terms.timeout_llu_min > 0 && silent)
        || (terms.timeout_min > 0 && ending.run_s / 60 >= terms.timeout_min)
        || ending.run_s > RETRY_RUN_S_MAX;
    let spent = terms.retries >= terms.retries_max && !ending.is_memory_failure();
    if timed_out || spent { Verdict::Dead } else { Verdict::Waiting }
}
