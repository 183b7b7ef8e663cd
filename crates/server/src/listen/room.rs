//! Room for connections over TCP.
//!
//! A connection is a stranger's until a request on it was let in. Strangers have half of the room at
//! most, and a machine's strangers a part of that; when they are too many, the oldest is hung up on. Who floods
//! the server thus hangs up on itself, and workers and users, who are let in within milliseconds, get in.

use crate::auth::{Caller, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore};

/// Descriptors that are left for the store, unix sockets, files, and whatever else this process opens.
const DESCRIPTORS_LEFT: usize = 512;
/// Connections at a time where nothing is set.
const CONNECTIONS_MAX: usize = 60_000;
/// Strangers' connections of one machine at a time where nothing is set.
pub const PER_MACHINE_MAX: usize = 1024;

/// How many connections there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoomLimits {
    /// Of all.
    total: usize,
    /// Of one machine, before a request was let in.
    per_machine: usize,
}

impl RoomLimits {
    /// As many as the limit on open files leaves room for, and not more than was set.
    pub fn new(max: Option<usize>, per_machine: Option<usize>) -> RoomLimits {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
        RoomLimits::of(files, max, per_machine)
    }

    fn of(files: usize, max: Option<usize>, per_machine: Option<usize>) -> RoomLimits {
        let fit = files - (files / 2).min(DESCRIPTORS_LEFT);
        let total = max.unwrap_or(CONNECTIONS_MAX).min(fit).max(2);
        let per_machine = per_machine.unwrap_or(PER_MACHINE_MAX);
        RoomLimits { total, per_machine }
    }

    /// Strangers' connections at a time.
    fn strangers(self) -> usize {
        self.total / 2
    }

    /// Connections of one user at a time.
    fn per_user(self) -> usize {
        (self.total / 4).max(1)
    }
}

/// The room that all sockets over TCP share.
pub struct Room {
    free: Arc<Semaphore>,
    limits: RoomLimits,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    strangers: BTreeMap<u64, Stranger>,
    machines: BTreeMap<IpAddr, BTreeSet<u64>>,
    users: BTreeMap<String, usize>,
}

struct Stranger {
    machine: IpAddr,
    leave: Arc<Notify>,
}

impl Taken {
    fn forget(&mut self, number: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&number)?;
        if let Some(numbers) = self.machines.get_mut(&stranger.machine) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.machines.remove(&stranger.machine);
            }
        }
        Some(stranger)
    }
}

impl Room {
    /// An empty one.
    pub fn new(limits: RoomLimits) -> Arc<Room> {
        let free = Arc::new(Semaphore::new(limits.total));
        Arc::new(Room { free, limits, taken: Mutex::default() })
    }

    /// Comes when one more connection fits.
    pub async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes the semaphore.
        self.free.clone().acquire_owned().await.ok()
    }

    /// Takes a place for a connection from that address. Where strangers are too many, the oldest is asked to
    /// leave; the second value says of whom there were too many.
    pub fn enter(
        self: &Arc<Room>,
        permit: OwnedSemaphorePermit,
        address: IpAddr,
    ) -> (Arc<ConnectionPlace>, Option<Crowd>) {
        let machine = machine_of(address);
        let leave = Arc::new(Notify::new());
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        taken.strangers.insert(number, Stranger { machine, leave: leave.clone() });
        let numbers = taken.machines.entry(machine).or_default();
        numbers.insert(number);
        let (oldest, crowd) = if numbers.len() > self.limits.per_machine {
            (numbers.first().copied(), Some(Crowd::Machine))
        } else if taken.strangers.len() > self.limits.strangers() {
            (taken.strangers.keys().next().copied(), Some(Crowd::All))
        } else {
            (None, None)
        };
        if let Some(stranger) = oldest.and_then(|oldest| taken.forget(oldest)) {
            stranger.leave.notify_one();
        }
        drop(taken);
        let place = ConnectionPlace {
            _permit: permit,
            room: self.clone(),
            number,
            leave,
            user: OnceLock::new(),
            process_user: OnceCell::new(),
        };
        (Arc::new(place), crowd)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has too many connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crowd {
    /// One machine.
    Machine,
    /// All who were not let in yet.
    All,
}

/// A network of IPv6 addresses is one machine's.
fn machine_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_none() => {
            IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into())
        }
        other => other,
    }
}

/// The room that one connection takes as long as it lives.
pub struct ConnectionPlace {
    _permit: OwnedSemaphorePermit,
    room: Arc<Room>,
    number: u64,
    leave: Arc<Notify>,
    /// Whom it counts for, once a request was let in.
    user: OnceLock<Option<String>>,
    /// The user of the machine whose process is at the other end, once somebody asked; `None` if that is not known.
    pub(crate) process_user: OnceCell<Option<u32>>,
}

impl ConnectionPlace {
    /// Notes that a request on it was let in. False if the caller has too many connections; those of
    /// administrators and workers are not counted.
    pub fn admit(&self, caller: &Caller) -> bool {
        if self.user.get().is_some() {
            return true;
        }
        let counted =
            matches!(caller.role, Role::User | Role::Submitter | Role::Viewer).then(|| caller.user.clone());
        let mut taken = self.room.taken();
        if let Some(user) = &counted {
            let open = taken.users.entry(user.clone()).or_default();
            if *open >= self.room.limits.per_user() {
                return false;
            }
            *open += 1;
        }
        if self.user.set(counted.clone()).is_err() {
            // Another request of the same connection was faster.
            leave_user(&mut taken, counted.as_ref());
        }
        taken.forget(self.number);
        true
    }

    /// Comes when it must give way.
    pub async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

fn leave_user(taken: &mut Taken, user: Option<&String>) {
    let Some(user) = user else { return };
    if let Some(open) = taken.users.get_mut(user) {
        *open -= 1;
        if *open == 0 {
            taken.users.remove(user);
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.forget(self.number);
        leave_user(&mut taken, self.user.get().and_then(Option::as_ref));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Rights;
    use futures_util::FutureExt as _;

    fn room(total: usize, per_machine: usize) -> Arc<Room> {
        Room::new(RoomLimits::of(usize::MAX, Some(total), Some(per_machine)))
    }

    fn enter(room: &Arc<Room>, address: &str) -> (Arc<ConnectionPlace>, Option<Crowd>) {
        let permit = room.free.clone().try_acquire_owned().unwrap();
        room.enter(permit, address.parse().unwrap())
    }

    fn must_leave(place: &ConnectionPlace) -> bool {
        place.must_leave().now_or_never().is_some()
    }

    fn user(name: &str, role: Role) -> Caller {
        Caller { user: name.to_owned(), role, worker: None, token: None, rights: Rights::default() }
    }

    #[test]
    fn descriptors_are_left() {
        assert_eq!(RoomLimits::of(1 << 20, None, None).total, CONNECTIONS_MAX);
        assert_eq!(RoomLimits::of(4096, None, None).total, 4096 - DESCRIPTORS_LEFT);
        assert_eq!(RoomLimits::of(300, Some(1000), None).total, 150);
        assert_eq!(RoomLimits::of(1 << 20, Some(1000), None).total, 1000);
    }

    #[test]
    fn a_machine_s_strangers_hang_up_on_each_other() {
        let room = room(100, 2);
        // Addresses of one network are one machine's.
        let (first, crowd) = enter(&room, "2001:db8::1");
        assert_eq!(crowd, None);
        let (second, _) = enter(&room, "2001:db8::2");
        let (other, _) = enter(&room, "2001:db8:0:1::1");
        let (third, crowd) = enter(&room, "2001:db8::3");
        assert_eq!(crowd, Some(Crowd::Machine));
        assert!(must_leave(&first));
        assert!(![&second, &third, &other].into_iter().any(|place| must_leave(place)));
        drop((second, third));
        assert_eq!(enter(&room, "2001:db8::4").1, None);
    }

    #[test]
    fn whoever_was_let_in_does_not_give_way() {
        let room = room(4, 100);
        let (worker, _) = enter(&room, "10.0.0.1");
        assert!(worker.admit(&user("box", Role::Worker)));
        let strangers: Vec<_> = (0..3).map(|n| enter(&room, &format!("10.0.1.{n}"))).collect();
        assert_eq!(strangers[2].1, Some(Crowd::All));
        assert!(must_leave(&strangers[0].0) && !must_leave(&worker));
    }

    #[test]
    fn one_user_takes_a_quarter() {
        let room = room(8, 100);
        let places: Vec<_> = (0..3).map(|_| enter(&room, "10.0.0.1").0).collect();
        let ann = user("ann", Role::User);
        assert!(places[0].admit(&ann) && places[0].admit(&ann) && places[1].admit(&ann));
        assert!(!places[2].admit(&ann));
        assert!(places[2].admit(&user("bob", Role::User)));
        drop(places);
        assert!(room.taken().users.is_empty() && room.taken().machines.is_empty());
    }
}
