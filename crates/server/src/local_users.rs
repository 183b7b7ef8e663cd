//! The users of one machine who share its server: each is known by the process at the other end of the unix socket.
//!
//! - The kernel says whose process it is, and in which groups. What a client says of itself does not count.
//! - Each user has a part of the connections, and some are left for administrators: turns hold a connection each.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_core::bounds::NAME_BYTES_MAX;

/// Connections that are left for administrators, or a quarter of all where that is less.
const FOR_ADMINS: usize = 256;
/// Connections at a time that are only told that their user has too many.
const REFUSED_MAX: usize = 64;
/// How long a name counts that was found, and how long none was.
const NAME_LASTS: Duration = Duration::from_secs(600);
const NO_NAME_LASTS: Duration = Duration::from_secs(10);
/// Users whose names are remembered.
const NAMES_MAX: usize = 10_000;
/// Time that the user database has to answer, and how many are asked for at a time.
const LOOK_UP_MAX: Duration = Duration::from_secs(5);
const LOOK_UPS_MAX: usize = 16;

/// A user of this machine whose process is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalUser {
    /// The user's number in the system.
    pub uid: u32,
    /// The user's name in the machine's user database.
    pub name: String,
    /// Root, or a process in the group of administrators.
    pub is_admin: bool,
}

/// The client at the other end of a unix socket that many users may open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalClient {
    /// The user is known.
    Known(LocalUser),
    /// The user of this number has no name, or the user database does not answer.
    Nameless(u32),
    /// The user of this number has too many connections.
    TooMany(u32),
}

impl LocalClient {
    /// The user's number in the system.
    pub fn uid(&self) -> u32 {
        match self {
            LocalClient::Known(user) => user.uid,
            LocalClient::Nameless(uid) | LocalClient::TooMany(uid) => *uid,
        }
    }
}

/// How the machine's user database and the kernel are asked.
#[derive(Clone, Copy)]
pub struct AccountLookup {
    /// The name of the user with this number; `None` where there is none. It may block.
    pub name_of: fn(u32) -> io::Result<Option<String>>,
    /// The groups of the process at the other end of a unix socket, besides its first one.
    pub groups_of: fn(BorrowedFd<'_>) -> io::Result<Vec<u32>>,
}

/// A process at the other end, as the kernel tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalProcess {
    pub uid: u32,
    pub is_admin: bool,
}

/// The users of this machine, and how many connections each has.
pub struct MachineUsers {
    /// The group of administrators; `None` where root is the only one.
    admins: Option<u32>,
    lookup: AccountLookup,
    names: Mutex<BTreeMap<u32, KnownName>>,
    look_ups: Semaphore,
    refused: Arc<Semaphore>,
    open: Mutex<OpenConnections>,
}

#[derive(Clone)]
struct KnownName {
    until: Instant,
    name: Option<String>,
}

/// Connections of users who are no administrators.
#[derive(Default)]
struct OpenConnections {
    all: usize,
    of_users: BTreeMap<u32, usize>,
}

impl MachineUsers {
    /// No user is connected yet. Members of the group `admins` are administrators, besides root.
    pub fn new(admins: Option<u32>, lookup: AccountLookup) -> MachineUsers {
        MachineUsers {
            admins,
            lookup,
            names: Mutex::default(),
            look_ups: Semaphore::new(LOOK_UPS_MAX),
            refused: Arc::new(Semaphore::new(REFUSED_MAX)),
            open: Mutex::default(),
        }
    }

    /// The process that connected.
    pub(crate) fn process_of(&self, stream: &UnixStream) -> io::Result<LocalProcess> {
        let credentials = stream.peer_cred()?;
        let (uid, gid) = (credentials.uid(), credentials.gid());
        let is_admin = match self.admins {
            _ if uid == 0 => true,
            None => false,
            Some(admins) => gid == admins || (self.lookup.groups_of)(stream.as_fd())?.contains(&admins),
        };
        Ok(LocalProcess { uid, is_admin })
    }

    /// A place for a connection, where there may be `max` of all users; `None` if the user has too many, or if those
    /// that are left are for administrators.
    pub(crate) fn enter(self: &Arc<Self>, process: LocalProcess, max: usize) -> Option<LocalPlace> {
        let counted = (!process.is_admin).then_some(process.uid);
        if let Some(uid) = counted {
            let mut open = self.open.lock();
            let own = open.of_users.get(&uid).copied().unwrap_or(0);
            if own >= (max / 4).max(1) || open.all >= max.saturating_sub(FOR_ADMINS.min(max / 4)) {
                return None;
            }
            open.of_users.insert(uid, own + 1);
            open.all += 1;
        }
        Some(LocalPlace { users: self.clone(), counted })
    }

    /// A turn to tell a client that it has too many connections; `None` if many are told so now.
    pub(crate) fn take_refusal(&self) -> Option<OwnedSemaphorePermit> {
        self.refused.clone().try_acquire_owned().ok()
    }

    /// The user of a process, by name.
    pub(crate) async fn user_of(&self, process: LocalProcess) -> LocalClient {
        let LocalProcess { uid, is_admin } = process;
        match self.name_of(uid).await {
            Some(name) => LocalClient::Known(LocalUser { uid, name, is_admin }),
            None => LocalClient::Nameless(uid),
        }
    }

    async fn name_of(&self, uid: u32) -> Option<String> {
        // Root gets in whatever the user database does.
        if uid == 0 {
            return Some("root".to_owned());
        }
        if let Some(known) = self.known(uid) {
            return known;
        }
        // Nobody closes the semaphore.
        let _turn = self.look_ups.acquire().await.ok()?;
        if let Some(known) = self.known(uid) {
            return known;
        }
        let look_up = self.lookup.name_of;
        let asked = tokio::task::spawn_blocking(move || look_up(uid));
        let answer = tokio::time::timeout(LOOK_UP_MAX, asked).await;
        self.keep(uid, answer.ok().and_then(Result::ok).and_then(Result::ok), Instant::now())
    }

    fn known(&self, uid: u32) -> Option<Option<String>> {
        let names = self.names.lock();
        names.get(&uid).filter(|known| Instant::now() < known.until).map(|known| known.name.clone())
    }

    /// Keeps an answer of the user database. Where there was none, its earlier one stays. Returns the name.
    fn keep(&self, uid: u32, answer: Option<Option<String>>, now: Instant) -> Option<String> {
        let mut names = self.names.lock();
        let before = names.remove(&uid).and_then(|known| known.name);
        let name = answer.map_or(before, |found| found.filter(|name| is_name(name)));
        let is_found = name.is_some();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        let lasts = if is_found { NAME_LASTS } else { NO_NAME_LASTS };
        names.insert(uid, KnownName { until: now + lasts, name: name.clone() });
        name
    }
}

/// Whether jobs and queues may have it.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control)
}

/// The room that one connection takes as long as it lives.
pub(crate) struct LocalPlace {
    users: Arc<MachineUsers>,
    /// The user for whom it counts; `None` for an administrator.
    counted: Option<u32>,
}

impl Drop for LocalPlace {
    fn drop(&mut self) {
        let Some(uid) = self.counted else { return };
        let mut open = self.users.open.lock();
        open.all -= 1;
        if let Some(own) = open.of_users.get_mut(&uid) {
            *own -= 1;
            if *own == 0 {
                open.of_users.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: AccountLookup = AccountLookup { name_of: name, groups_of: no_groups };

    fn name(uid: u32) -> io::Result<Option<String>> {
        match uid {
            1 => Ok(None),
            2 => Err(io::Error::other("it does not answer")),
            3 => Ok(Some("a\nb".to_owned())),
            _ => Ok(Some(format!("user{uid}"))),
        }
    }

    fn no_groups(_: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
        Ok(Vec::new())
    }

    fn process(uid: u32) -> LocalProcess {
        LocalProcess { uid, is_admin: uid == 0 }
    }

    #[test]
    fn one_user_takes_a_quarter_and_all_leave_some_for_administrators() {
        let users = Arc::new(MachineUsers::new(None, LOOKUP));
        let all = |uid: u32| std::iter::from_fn(|| users.enter(process(uid), 16)).collect::<Vec<_>>();
        let ann = all(1000);
        assert_eq!(ann.len(), 4);
        let others: Vec<_> = (1001..1010).map(all).collect();
        assert_eq!(others.iter().map(Vec::len).sum::<usize>(), 8, "a quarter is left for administrators");
        assert!(users.enter(process(0), 16).is_some());
        drop(ann);
        assert_eq!(all(1000).len(), 4);
        drop(others);
        assert!(users.open.lock().of_users.is_empty() && users.open.lock().all == 0);
    }

    #[test]
    fn one_connection_is_there_for_each_user_however_few_there_are() {
        let users = Arc::new(MachineUsers::new(None, LOOKUP));
        assert!(users.enter(process(1000), 2).is_some());
    }

    #[tokio::test]
    async fn a_user_without_a_name_is_nobody() {
        let users = MachineUsers::new(None, LOOKUP);
        let ann = LocalUser { uid: 1000, name: "user1000".to_owned(), is_admin: false };
        assert_eq!(users.user_of(process(1000)).await, LocalClient::Known(ann));
        for uid in [1, 2, 3] {
            assert_eq!(users.user_of(process(uid)).await, LocalClient::Nameless(uid));
        }
        let LocalClient::Known(root) = users.user_of(process(0)).await else { panic!("root has a name") };
        assert!(root.name == "root" && root.is_admin);
    }

    #[test]
    fn a_name_stays_where_the_user_database_fails_and_goes_where_it_says_so() {
        let users = MachineUsers::new(None, LOOKUP);
        let now = Instant::now();
        assert_eq!(users.keep(7, Some(Some("ann".to_owned())), now).as_deref(), Some("ann"));
        assert_eq!(users.keep(7, None, now).as_deref(), Some("ann"));
        assert_eq!(users.known(7).flatten().as_deref(), Some("ann"));
        assert_eq!(users.keep(7, Some(None), now), None);
        assert_eq!(users.known(7), Some(None));
    }

    #[tokio::test]
    async fn the_kernel_says_whose_process_it_is() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (own, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let of = |admins| MachineUsers::new(admins, LOOKUP).process_of(&one).unwrap();
        assert_eq!(of(None), LocalProcess { uid: own, is_admin: own == 0 });
        assert!(of(Some(group)).is_admin);
    }
}
