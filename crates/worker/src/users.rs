//! As which user of this machine a submitter's tasks run.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::str::FromStr;

/// Groups that one user may be in.
const GROUPS_MAX: usize = 1_024;
/// How often a user database that fails is asked.
const LOOK_UPS_MAX: u32 = 3;
/// Bytes of one user's entry in the user database.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// Whose tasks run as whom. Without entries all run as the worker's own user; with entries whoever is
/// not in it is refused.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserMap {
    entries: BTreeMap<String, String>,
}

/// One entry: `SUBMITTER=USER`; the submitter `*` is everybody else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserEntry {
    submitter: String,
    user: String,
}

/// A user of this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunAs {
    /// The user's number.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
    /// The numbers of all of its groups.
    pub groups: Vec<u32>,
    /// The user's name.
    pub name: String,
    /// The user's own directory.
    pub home: String,
}

/// Why a submitter's tasks do not run here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadUser {
    /// Not in the map.
    #[error("submitter '{0}' is mapped to no user of this worker; its operator adds --map-user {0}=USER")]
    NotMapped(String),
    /// Mapped to somebody who is not there.
    #[error("submitter '{submitter}' is mapped to user '{user}', which this worker does not have")]
    Unknown {
        /// Who submitted.
        submitter: String,
        /// As whom it is to run.
        user: String,
    },
    /// The user database does not answer.
    #[error(
        "user '{user}' cannot be looked up on this worker: {why}; submit it again when its user database answers"
    )]
    LookUp {
        /// Whom.
        user: String,
        /// Why.
        why: String,
    },
    /// Mapped to root.
    #[error("submitter '{0}' is mapped to root, which is never done")]
    Root(String),
    /// Only root may become somebody else.
    #[error("submitters can be mapped to users only by a worker that runs as root")]
    NotRoot,
}

impl UserEntry {
    /// That submitter's tasks run as that user.
    pub fn new(submitter: &str, user: &str) -> Self {
        UserEntry { submitter: submitter.to_owned(), user: user.to_owned() }
    }

    /// Whose tasks.
    pub fn submitter(&self) -> &str {
        &self.submitter
    }
}

impl UserMap {
    /// The map of these entries; only root can have any.
    pub fn new(entries: impl IntoIterator<Item = UserEntry>) -> Result<Self, BadUser> {
        let entries: BTreeMap<_, _> = entries.into_iter().map(|e| (e.submitter, e.user)).collect();
        if !entries.is_empty() && !rustix::process::geteuid().is_root() {
            return Err(BadUser::NotRoot);
        }
        Ok(UserMap { entries })
    }

    /// As whom this submitter's tasks run; `None` is the worker's own user.
    pub fn resolve(&self, submitter: &str) -> Result<Option<RunAs>, BadUser> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        let user = self.entries.get(submitter).or_else(|| self.entries.get("*"));
        let user = user.ok_or_else(|| BadUser::NotMapped(submitter.to_owned()))?;
        let unknown = || BadUser::Unknown { submitter: submitter.to_owned(), user: user.clone() };
        let mut found = look_up(user);
        for _ in 1..LOOK_UPS_MAX {
            if found.is_ok() {
                break;
            }
            found = look_up(user);
        }
        let found = found.map_err(|e| BadUser::LookUp { user: user.clone(), why: e.to_string() })?;
        let found = found.ok_or_else(unknown)?;
        if found.uid == 0 || found.gid == 0 {
            return Err(BadUser::Root(submitter.to_owned()));
        }
        Ok(Some(found))
    }
}

impl UserMap {
    /// True where all tasks run as the worker's own user.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The map of these entries, whoever this process is.
    #[cfg(test)]
    pub fn for_test(entries: &[&str]) -> UserMap {
        let entries = entries.iter().map(|text| text.parse::<UserEntry>().unwrap());
        UserMap { entries: entries.map(|e| (e.submitter, e.user)).collect() }
    }
}

impl BadUser {
    /// True where that is a matter of the worker and passes, and not of the one who submits.
    pub fn is_worker_s(&self) -> bool {
        matches!(self, BadUser::LookUp { .. })
    }
}

impl FromStr for UserEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((submitter, user)) if !submitter.is_empty() && !user.is_empty() => {
                Ok(UserEntry::new(submitter, user))
            }
            _ => Err(format!("'{text}' is no mapping; one looks like SUBMITTER=USER or *=USER")),
        }
    }
}

/// The user as the machine's user database has it.
fn look_up(name: &str) -> io::Result<Option<RunAs>> {
    let Ok(c_name) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0; ENTRY_BYTES_MAX];
    // SAFETY: all pointers are to storage of ours that outlives the call; the entry's strings point
    // into `buffer`, which outlives their use below.
    let (uid, gid, home) = unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let (text, bytes) = (buffer.as_mut_ptr(), buffer.len());
        let failed = libc::getpwnam_r(c_name.as_ptr(), &raw mut entry, text, bytes, &raw mut found);
        if found.is_null() {
            // Some say that there is no such user by an error.
            let absent = [0, libc::ENOENT, libc::ESRCH].contains(&failed);
            return if absent { Ok(None) } else { Err(io::Error::from_raw_os_error(failed)) };
        }
        let home = CStr::from_ptr(entry.pw_dir).to_string_lossy().into_owned();
        (entry.pw_uid, entry.pw_gid, home)
    };
    let mut groups = vec![0; GROUPS_MAX];
    let mut count = GROUPS_MAX as libc::c_int;
    // SAFETY: `groups` has room for `count` numbers.
    let whole = unsafe { libc::getgrouplist(c_name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    if whole < 0 {
        return Err(io::Error::other("it is in too many groups"));
    }
    groups.truncate(count as usize);
    Ok(Some(RunAs { uid, gid, groups, name: name.to_owned(), home }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[&str]) -> UserMap {
        UserMap::for_test(entries)
    }

    #[test]
    fn nobody_is_mapped_without_entries() {
        assert_eq!(map(&[]).resolve("anybody"), Ok(None));
    }

    #[test]
    fn whoever_is_not_mapped_is_refused() {
        let map = map(&["alice=nobody"]);
        assert_eq!(map.resolve("alice").unwrap().unwrap().name, "nobody");
        assert_eq!(map.resolve("bob"), Err(BadUser::NotMapped("bob".to_owned())));
    }

    #[test]
    fn nobody_becomes_root() {
        assert_eq!(map(&["*=root"]).resolve("alice"), Err(BadUser::Root("alice".to_owned())));
    }

    #[test]
    fn a_user_must_be_there() {
        let unknown = map(&["*=no-such-user-here"]).resolve("alice");
        assert!(matches!(unknown, Err(BadUser::Unknown { .. })));
        assert!("alice".parse::<UserEntry>().is_err());
        assert!("=x".parse::<UserEntry>().is_err());
    }
}
