//! Queues as administrators set them.

use super::bands::band_of;
use crate::bounds::{BUSY_EXITS_MAX, NAME_BYTES_MAX, NOTE_BYTES_MAX, QUEUE_USERS_MAX, WEIGHT_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// The weight of a queue that was not set, and of a user in a queue.
pub const WEIGHT_DEFAULT: u32 = 100;

/// The weight of a queue that was not set, by its name. `single-build` and `bisect` are projects of all users, which
/// Compass CI weighs so against a user's own queue.
fn weight_of_name(name: &str) -> u32 {
    match name {
        "single-build" => 3 * WEIGHT_DEFAULT,
        "bisect" => 2 * WEIGHT_DEFAULT,
        _ => WEIGHT_DEFAULT,
    }
}

/// Stands for all users in the list of a queue's users.
const EVERYBODY: &str = "*";
/// The queue for work that may wait. It is open to all users until an administrator lists some.
const IDLE: &str = "idle";
/// In a higher band, even a user's own queue is open only to those who are listed.
const BAND_OPEN_MAX: u8 = 3;

/// The highest band, which is served first.
pub const BAND_MAX: u8 = 9;

/// What takes turns inside a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TurnsBy {
    /// Its users, each by a weight; the jobs of one user in order of priority and time.
    #[default]
    Users,
    /// Its jobs, in order of priority and time, whatever their users.
    Jobs,
}

/// A queue as an administrator set it, and as a store keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueRecord {
    /// Unique on the farm; [`check_name`] says what it may be.
    pub name: String,
    /// Its share of what its band gets, against others': 1 to 10,000.
    pub weight: u32,
    /// 0 to 9, higher first, strictly; `None` is what its name says.
    pub band: Option<u8>,
    /// Hundredths of a core that its tasks may hold together while other queues have work that could run;
    /// `None`: no cap.
    pub quota_cpu: Option<u32>,
    /// Hundredths of a core that they may hold while no other queue can use them; `None` is the quota.
    pub burst_cpu: Option<u32>,
    /// Why it starts nothing; `None`: it does.
    pub paused: Option<String>,
    /// The users who may submit to it besides administrators, and besides the user whose name it has; `*` stands for all.
    pub users: BTreeSet<String>,
    /// What takes turns inside it.
    pub turns: TurnsBy,
    /// Each user's share of what the queue gets, against the other users': 1 to 10,000; [`WEIGHT_DEFAULT`] of one
    /// that is not listed.
    pub user_weights: BTreeMap<String, u32>,
    /// Whether steps that say nothing of a jobserver have one; `None`: builds have one.
    pub jobserver: Option<bool>,
}

impl QueueRecord {
    /// A queue of that name that was not set.
    pub fn named(name: &str) -> Self {
        QueueRecord {
            name: name.to_owned(),
            weight: weight_of_name(name),
            band: None,
            quota_cpu: None,
            burst_cpu: None,
            paused: None,
            users: BTreeSet::new(),
            turns: TurnsBy::Users,
            user_weights: BTreeMap::new(),
            jobserver: None,
        }
    }

    /// A user's weight inside the queue.
    pub fn weight_of(&self, user: &str) -> u32 {
        self.user_weights.get(user).copied().unwrap_or(WEIGHT_DEFAULT)
    }

    /// True if that user may submit to it: those who are listed may. All may submit to the queue of their own name, unless
    /// it is in a higher band than the queues of others, and to `idle`.
    pub fn is_open_to(&self, user: &str) -> bool {
        let listed = self.users.contains(user) || self.users.contains(EVERYBODY);
        let own = self.name == user && self.band() <= BAND_OPEN_MAX;
        listed || own || (self.users.is_empty() && self.name == IDLE)
    }

    /// The band that it is in.
    pub fn band(&self) -> u8 {
        self.band.unwrap_or_else(|| band_of(&self.name))
    }

    /// Refuses a record with a value that is not valid.
    pub fn check(&self) -> Result<(), BadSetting> {
        check_name("the name of the queue", &self.name)?;
        if let Some(band) = self.band.filter(|band| *band > BAND_MAX) {
            return Err(BadSetting::Band(band));
        }
        if let Some(bytes) = self.paused.as_ref().map(String::len).filter(|bytes| *bytes > NOTE_BYTES_MAX) {
            return Err(BadSetting::Note(bytes));
        }
        if let Some(users) =
            [self.users.len(), self.user_weights.len()].into_iter().find(|users| *users > QUEUE_USERS_MAX)
        {
            return Err(BadSetting::Users(users));
        }
        for user in self.users.iter().chain(self.user_weights.keys()) {
            check_name("the name of a user", user)?;
        }
        if let Some((user, weight)) =
            self.user_weights.iter().find(|(_, weight)| !(1..=WEIGHT_MAX).contains(*weight))
        {
            return Err(BadSetting::UserWeight { user: user.clone(), weight: *weight });
        }
        match (self.quota_cpu, self.burst_cpu) {
            _ if !(1..=WEIGHT_MAX).contains(&self.weight) => Err(BadSetting::Weight(self.weight)),
            (Some(0), _) => Err(BadSetting::Quota),
            (None, Some(_)) => Err(BadSetting::BurstAlone),
            (Some(quota), Some(burst)) if burst < quota => Err(BadSetting::Burst { quota, burst }),
            _ => Ok(()),
        }
    }
}

/// Why a queue or a limit is not set: the field and what it may be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the names and types of most fields say it all")]
pub enum BadSetting {
    /// A name that is empty or too long.
    #[error("{what} has {bytes} bytes, and must have from 1 to {NAME_BYTES_MAX}")]
    Name { what: &'static str, bytes: usize },
    /// A weight out of range.
    #[error("weight must be from 1 to {WEIGHT_MAX}, not {0}")]
    Weight(u32),
    /// The weight of a user out of range.
    #[error("the weight of '{user}' must be from 1 to {WEIGHT_MAX}, not {weight}")]
    UserWeight { user: String, weight: u32 },
    /// A band out of range.
    #[error("band must be from 0 to {BAND_MAX}, not {0}")]
    Band(u8),
    /// A quota under which nothing could ever run.
    #[error("quota must be more than 0 cpus; pause the queue to let nothing run")]
    Quota,
    /// A burst without what it goes beyond.
    #[error("burst is how far a queue may go beyond its quota: set a quota too")]
    BurstAlone,
    /// A burst below the quota.
    #[error("burst must be at least the quota of {} cpus, not {}", f64::from(*quota) / 100.0, f64::from(*burst) / 100.0)]
    Burst {
        /// Hundredths of a core.
        quota: u32,
        /// Hundredths of a core.
        burst: u32,
    },
    /// A note that is too long.
    #[error("the note has {0} bytes, and may have {NOTE_BYTES_MAX}")]
    Note(usize),
    /// More users than one queue may list.
    #[error("a queue has {0} users, and may have {QUEUE_USERS_MAX}; '*' is everybody")]
    Users(usize),
    /// A limit that limits nothing.
    #[error("a limit needs max, per_worker or busy_exits; remove it to hold nothing back")]
    LimitsNothing,
    /// A limit under which no worker could run anything.
    #[error("per_worker must be more than 0; set max to 0 to let nothing start")]
    PerWorker,
    /// An exit code that no failed process has.
    #[error("busy_exits must be from 1 to 255, not {0}")]
    BusyExit(i32),
    /// Too many exit codes.
    #[error("busy_exits has {0} codes, and may have {BUSY_EXITS_MAX}")]
    BusyExits(usize),
    /// A back-off that nothing begins.
    #[error("back_off_ms is how long to wait after one of busy_exits: set these too")]
    BackOffAlone,
    /// A back-off out of range.
    #[error("back_off_ms must be from 100 to 86400000, not {0}")]
    BackOff(u64),
}

/// Refuses a name that is empty or too long.
pub fn check_name(what: &'static str, name: &str) -> Result<(), BadSetting> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        bytes => Err(BadSetting::Name { what, bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_its_user_s_and_theirs_who_are_listed() {
        let open = |name: &str, band: Option<u8>, users: &[&str], user: &str| {
            let users = users.iter().map(ToString::to_string).collect();
            QueueRecord { band, users, ..QueueRecord::named(name) }.is_open_to(user)
        };
        assert!(open("ann", None, &[], "ann") && !open("ann", None, &[], "bob"));
        assert!(open("ann", None, &["bob"], "bob") && open("ann", None, &["bob"], "ann"));
        assert!(open("film", None, &["*"], "bob") && !open("film", None, &[], "bob"));
        assert!(!open("vip", None, &[], "vip") && open("vip", None, &["vip"], "vip"));
        assert!(!open("ann", Some(4), &[], "ann") && open("ann", Some(4), &["ann"], "ann"));
        assert!(open("idle", None, &[], "bob") && !open("idle", None, &["ann"], "bob"));
    }
}
