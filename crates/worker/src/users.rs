//! The map from submitters to the users of this machine whose rights their tasks have. `--map-user` fills the map;
//! `names` asks it for each submitter, and `doctor` checks it. It reads the machine's user database and never changes
//! it. No map gives a task root, or the rights of a server's administrator.

use crate::admin_sockets::{AdminSocket, admin_sockets};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Groups that one user may be in.
const GROUPS_MAX: usize = 1_024;
/// How often a lookup that fails is tried.
const LOOK_UPS_MAX: u32 = 3;
/// The user of an entry that stands for the one of the submitter's own name.
const SAME_NAME: &str = "*";
/// Numbers below it belong to accounts of the system, such as daemons, by convention. A submitter chooses no name that
/// makes tasks run as one of them.
const PEOPLE_UID_MIN: u32 = 1_000;
/// Bytes of one user's entry in the user database.
const ENTRY_BYTES_MAX: usize = 64 << 10;
/// The same of a group, which lists its members.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// The option of a unix socket that tells the groups of the process at the other end. Not all versions of libc have it.
const SO_PEERGROUPS: libc::c_int = 59;

/// Which submitter's tasks run as which user. Without entries all tasks run as the worker's own user. With
/// entries, submitters without one are refused.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserMap {
    entries: BTreeMap<String, String>,
}

/// One entry, `SUBMITTER=USER`. The submitter `*` stands for all that have no entry of their own, and the user `*` for the
/// one of the submitter's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserEntry {
    submitter: String,
    user: String,
}

/// A user of this machine, as the kernel and the environment need it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunAs {
    /// Number of the user.
    pub uid: u32,
    /// Number of the user's primary group.
    pub gid: u32,
    /// Numbers of all of the user's groups.
    pub groups: Vec<u32>,
    /// Name of the user.
    pub name: String,
    /// The user's home directory.
    pub home: String,
}

/// Why a submitter's tasks do not run on this worker.
#[allow(missing_docs, reason = "the texts of the errors show what each field is")]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadUser {
    #[error("submitter '{0}' is mapped to no user of this worker; its operator adds --map-user {0}=USER")]
    NotMapped(String),
    #[error("submitter '{submitter}' is mapped to user '{user}', which this worker does not have")]
    Unknown { submitter: String, user: String },
    /// The submitter is mapped to the user of the same name, which is an account of the system.
    #[error(
        "submitter '{0}' is mapped to an account of the system; its operator adds --map-user {0}=USER, or map_users of [machine]"
    )]
    System(String),
    #[error(
        "user '{user}' cannot be looked up on this worker: {why}; submit it again when its user database answers"
    )]
    LookUp { user: String, why: String },
    #[error("submitter '{0}' is mapped to root, or to a user in root's group, which is never done")]
    Root(String),
    /// The entry names a user who administers a server of this machine.
    #[error(
        "submitter '{submitter}' is mapped to user '{user}', whose tasks could administer the server of {}; give that \
         server a user of its own, or map the submitter to another",
        .socket.display()
    )]
    Administrator { submitter: String, user: String, socket: PathBuf },
    #[error("submitters can be mapped to users only by a worker that runs as root")]
    NotRoot,
}

impl UserEntry {
    /// An entry that maps one submitter, or `*`, to one user, or to `*`.
    pub fn new(submitter: &str, user: &str) -> Self {
        UserEntry { submitter: submitter.to_owned(), user: user.to_owned() }
    }

    /// The submitter, or `*`.
    pub fn submitter(&self) -> &str {
        &self.submitter
    }

    /// Whether it maps one user, who can be looked up before anyone submits: all entries but `*=*`.
    pub fn names_one_user(&self) -> bool {
        self.user != SAME_NAME || self.submitter != "*"
    }
}

impl UserMap {
    /// A map with these entries.
    ///
    /// # Errors
    /// If there are entries and this process is not root.
    pub fn new(entries: impl IntoIterator<Item = UserEntry>) -> Result<Self, BadUser> {
        let entries: BTreeMap<_, _> = entries.into_iter().map(|e| (e.submitter, e.user)).collect();
        if !entries.is_empty() && !rustix::process::geteuid().is_root() {
            return Err(BadUser::NotRoot);
        }
        Ok(UserMap { entries })
    }

    /// The user for a submitter's tasks; `None` for the worker's own user. Asks the user database, which may block.
    pub fn resolve(&self, submitter: &str) -> Result<Option<RunAs>, BadUser> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        let user = self.entries.get(submitter).or_else(|| self.entries.get("*"));
        let user = user.ok_or_else(|| BadUser::NotMapped(submitter.to_owned()))?;
        let is_same_name = user == SAME_NAME;
        let user = if is_same_name { submitter } else { user };
        let mut found = look_up(user);
        for _ in 1..LOOK_UPS_MAX {
            if found.is_ok() {
                break;
            }
            found = look_up(user);
        }
        let found = found.map_err(|e| BadUser::LookUp { user: user.to_owned(), why: e.to_string() })?;
        let Some(found) = found else {
            return Err(BadUser::Unknown { submitter: submitter.to_owned(), user: user.to_owned() });
        };
        check(submitter, &found, &admin_sockets(Path::new(&found.home)))?;
        if is_same_name && found.uid < PEOPLE_UID_MIN {
            return Err(BadUser::System(submitter.to_owned()));
        }
        Ok(Some(found))
    }
}

/// Refuses a user as whom no submitter's tasks run, whatever the map says. `sockets` are those for administrators on
/// this machine.
fn check(submitter: &str, user: &RunAs, sockets: &[AdminSocket]) -> Result<(), BadUser> {
    if user.uid == 0 || user.gid == 0 || user.groups.contains(&0) {
        return Err(BadUser::Root(submitter.to_owned()));
    }
    match sockets.iter().find(|socket| socket.uid == user.uid) {
        Some(socket) => Err(BadUser::Administrator {
            submitter: submitter.to_owned(),
            user: user.name.clone(),
            socket: socket.path.clone(),
        }),
        None => Ok(()),
    }
}

impl UserMap {
    /// Whether all tasks run as the worker's own user.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A map with these entries, also for a process that is not root.
    #[cfg(test)]
    pub fn for_test(entries: &[&str]) -> UserMap {
        let entries = entries.iter().map(|text| text.parse::<UserEntry>().unwrap());
        UserMap { entries: entries.map(|e| (e.submitter, e.user)).collect() }
    }
}

impl BadUser {
    /// Whether the cause is this worker's and passes, and not the submission's.
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
            _ => Err(format!("'{text}' is not a valid mapping; one looks like SUBMITTER=USER or *=USER")),
        }
    }
}

/// Looks a user up in the machine's user database; `None` if there is no such user.
fn look_up(name: &str) -> io::Result<Option<RunAs>> {
    let Ok(c_name) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0; ENTRY_BYTES_MAX];
    // SAFETY: all pointers are to storage that outlives the call, and the entry's strings point into
    // `buffer`, which outlives their use below.
    let (uid, gid, home) = unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let (text, bytes) = (buffer.as_mut_ptr(), buffer.len());
        let failed = libc::getpwnam_r(c_name.as_ptr(), &raw mut entry, text, bytes, &raw mut found);
        if found.is_null() {
            return is_absent(failed);
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

/// The name of the user with a number; `None` if this machine has none. Asks the user database, which may block.
pub fn name_of_user(uid: u32) -> io::Result<Option<String>> {
    let mut buffer = vec![0; ENTRY_BYTES_MAX];
    // SAFETY: all pointers are to storage that outlives the call, and the entry's strings point into
    // `buffer`, which outlives their use below.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let (text, bytes) = (buffer.as_mut_ptr(), buffer.len());
        let failed = libc::getpwuid_r(uid, &raw mut entry, text, bytes, &raw mut found);
        if found.is_null() {
            return is_absent(failed);
        }
        Ok(Some(CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned()))
    }
}

/// The number of a group; `None` if this machine has none of that name. Asks the user database, which may block.
pub fn group_number(name: &str) -> io::Result<Option<u32>> {
    let Ok(c_name) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0; GROUP_BYTES_MAX];
    // SAFETY: all pointers are to storage that outlives the call.
    unsafe {
        let mut entry: libc::group = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let (text, bytes) = (buffer.as_mut_ptr(), buffer.len());
        let failed = libc::getgrnam_r(c_name.as_ptr(), &raw mut entry, text, bytes, &raw mut found);
        if found.is_null() {
            return is_absent(failed);
        }
        Ok(Some(entry.gr_gid))
    }
}

/// The answer of the user database that has found nothing. Some databases report that as an error.
fn is_absent<T>(failed: libc::c_int) -> io::Result<Option<T>> {
    let absent = [0, libc::ENOENT, libc::ESRCH].contains(&failed);
    if absent { Ok(None) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// The groups of the process at the other end of a unix socket, as they were when it connected, besides its first one.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; GROUPS_MAX];
    let mut bytes = (GROUPS_MAX * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: `groups` has room for `bytes` bytes.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_number_and_by_name() {
        assert_eq!(name_of_user(0).unwrap().as_deref(), Some("root"));
        assert_eq!(name_of_user(u32::MAX - 7).unwrap(), None);
        assert_eq!(group_number("root").unwrap(), Some(0));
        assert_eq!(group_number("no-such-group-here").unwrap(), None);
    }

    #[test]
    fn the_kernel_tells_the_groups_of_the_other_end() {
        use std::os::fd::AsFd as _;
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        let mut told = peer_groups(one.as_fd()).unwrap();
        told.sort_unstable();
        own.sort_unstable();
        assert_eq!(told, own);
    }

    fn map(entries: &[&str]) -> UserMap {
        UserMap::for_test(entries)
    }

    #[test]
    fn nobody_is_mapped_without_entries() {
        assert_eq!(map(&[]).resolve("anybody"), Ok(None));
    }

    #[test]
    fn a_submitter_that_is_not_mapped_is_refused() {
        let map = map(&["alice=nobody"]);
        assert_eq!(map.resolve("alice").unwrap().unwrap().name, "nobody");
        assert_eq!(map.resolve("bob"), Err(BadUser::NotMapped("bob".to_owned())));
    }

    #[test]
    fn nobody_becomes_root() {
        assert_eq!(map(&["*=root"]).resolve("alice"), Err(BadUser::Root("alice".to_owned())));
    }

    #[test]
    fn a_name_may_stand_for_itself_and_never_for_an_account_of_the_system() {
        let map = map(&["*=*", "ann=nobody"]);
        assert_eq!(map.resolve("nobody").unwrap().unwrap().name, "nobody");
        assert_eq!(map.resolve("ann").unwrap().unwrap().name, "nobody");
        assert_eq!(map.resolve("root"), Err(BadUser::Root("root".to_owned())));
        assert_eq!(map.resolve("daemon"), Err(BadUser::System("daemon".to_owned())));
        assert!(matches!(map.resolve("no-such-user-here"), Err(BadUser::Unknown { .. })));
    }

    #[test]
    fn nobody_becomes_a_member_of_root_s_group_or_an_administrator_of_a_server() {
        let of = |uid: u32, gid: u32, groups: &[u32]| {
            let (name, home) = ("box".to_owned(), "/home/box".to_owned());
            RunAs { uid, gid, groups: groups.to_vec(), name, home }
        };
        let sockets = [AdminSocket { path: "/srv/farm/admin.sock".into(), uid: 1_001 }];
        let root = Err(BadUser::Root("ann".to_owned()));
        for user in [of(0, 1_000, &[1_000]), of(1_000, 0, &[0]), of(1_000, 1_000, &[1_000, 0, 42])] {
            assert_eq!(check("ann", &user, &sockets), root, "{user:?}");
        }
        assert_eq!(check("ann", &of(1_000, 1_000, &[1_000, 42]), &sockets), Ok(()));
        let refused = check("ann", &of(1_001, 1_001, &[1_001]), &sockets).unwrap_err();
        assert!(matches!(&refused, BadUser::Administrator { user, .. } if user == "box"), "{refused}");
        assert!(refused.to_string().contains("/srv/farm/admin.sock") && !refused.is_worker_s(), "{refused}");
    }

    #[test]
    fn a_user_must_be_there() {
        let unknown = map(&["*=no-such-user-here"]).resolve("alice");
        assert!(matches!(unknown, Err(BadUser::Unknown { .. })));
        assert!("alice".parse::<UserEntry>().is_err());
        assert!("=x".parse::<UserEntry>().is_err());
    }
}
