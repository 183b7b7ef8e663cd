//! Room for connections over TCP.
//!
//! A connection is a stranger's until a request on it was let in. Strangers have a part of the room at most, and a
//! machine's strangers a part of that. Where they are too many, one is hung up on:
//!
//! - the oldest that has brought no request, if those are more than half;
//! - otherwise the oldest without a request under way;
//! - otherwise the oldest.
//!
//! A flood of silent connections thus hangs up on itself, and so does a flood of slow requests. Workers and users, who
//! are let in within milliseconds, get in.

use crate::caller::Caller;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use windlass_api::Role;

/// Descriptors that are left for the store, unix sockets, files, and whatever else this process opens.
const DESCRIPTORS_LEFT: usize = 512;
/// Connections at a time where nothing is set.
const CONNECTIONS_MAX: usize = 60_000;
/// Strangers' connections of one machine at a time where nothing is set.
pub const PER_MACHINE_MAX: usize = 1024;
/// Requests under way at a time on one connection on which nobody was let in.
pub const STRANGERS_REQUESTS_MAX: usize = 16;

/// How many connections there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoomLimits {
    /// Connections of all clients.
    total: usize,
    /// Connections on which no request was let in.
    strangers: usize,
    /// Connections of one machine on which no request was let in.
    per_machine: usize,
}

impl RoomLimits {
    /// As many as the limit on open files leaves room for, and not more than was set.
    pub fn new(max: Option<usize>, per_machine: Option<usize>) -> RoomLimits {
        RoomLimits::of(files_max(), max, per_machine)
    }

    fn of(files: usize, max: Option<usize>, per_machine: Option<usize>) -> RoomLimits {
        let fit = files - (files / 2).min(DESCRIPTORS_LEFT);
        let total = max.unwrap_or(CONNECTIONS_MAX).min(fit).max(2);
        let per_machine = per_machine.unwrap_or(PER_MACHINE_MAX);
        RoomLimits { total, strangers: total / 2, per_machine }
    }

    /// For a port on which each request shows for itself what it may, so that all connections are strangers'. An eighth
    /// is left for those that come while others leave. Half of the descriptors stay for other ports of the process.
    pub(crate) fn of_port(max: usize, per_machine: usize) -> RoomLimits {
        let total = max.min(RoomLimits::new(None, None).total / 2).max(2);
        let strangers = total - (total / 8).max(1);
        RoomLimits { total, strangers, per_machine: per_machine.min(strangers) }
    }

    /// The same for a machine's server, which has as many connections over its unix socket as over the board's port.
    pub(crate) fn halved(self) -> RoomLimits {
        RoomLimits { total: (self.total / 2).max(2), strangers: (self.strangers / 2).max(1), ..self }
    }

    /// Connections of all clients.
    pub(crate) fn total(self) -> usize {
        self.total
    }

    fn per_user(self) -> usize {
        (self.total / 4).max(1)
    }
}

fn files_max() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
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
    all: Standings,
    machines: BTreeMap<IpAddr, Standings>,
    users: BTreeMap<String, usize>,
}

struct Stranger {
    machine: IpAddr,
    standing: Standing,
    leave: Arc<Notify>,
}

/// The state of a stranger's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// It has brought no request.
    Silent,
    /// It has brought some, and none is under way.
    Idle,
    /// A request is under way.
    Busy,
}

/// Strangers' connections by what they do. Numbers rise, so the first is the oldest.
#[derive(Default)]
struct Standings {
    silent: BTreeSet<u64>,
    idle: BTreeSet<u64>,
    busy: BTreeSet<u64>,
}

impl Standings {
    fn of(&mut self, standing: Standing) -> &mut BTreeSet<u64> {
        match standing {
            Standing::Silent => &mut self.silent,
            Standing::Idle => &mut self.idle,
            Standing::Busy => &mut self.busy,
        }
    }

    fn len(&self) -> usize {
        self.silent.len() + self.idle.len() + self.busy.len()
    }

    /// The one that gives way where there are more than `max`.
    fn to_leave(&self, max: usize) -> Option<u64> {
        if self.len() <= max {
            return None;
        }
        // Those that have come just now are silent: they have time for a request as long as they are few.
        let silent = self.silent.first().filter(|_| self.silent.len() > max.div_ceil(2));
        let asked = || self.idle.first().or(self.busy.first());
        silent.or_else(asked).or(self.silent.first()).copied()
    }
}

impl Taken {
    fn come(&mut self, stranger: Stranger) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.of(stranger.standing).insert(number);
        self.machines.entry(stranger.machine).or_default().of(stranger.standing).insert(number);
        self.strangers.insert(number, stranger);
        number
    }

    /// Notes what a connection does now, if it is a stranger's.
    fn stands(&mut self, number: u64, standing: Standing) {
        let Some(stranger) = self.strangers.get_mut(&number) else { return };
        let before = std::mem::replace(&mut stranger.standing, standing);
        for standings in self.machines.get_mut(&stranger.machine).into_iter().chain([&mut self.all]) {
            standings.of(before).remove(&number);
            standings.of(standing).insert(number);
        }
    }

    fn forget(&mut self, number: u64) -> Option<Stranger> {
        let stranger = self.strangers.remove(&number)?;
        self.all.of(stranger.standing).remove(&number);
        if let Some(own) = self.machines.get_mut(&stranger.machine) {
            own.of(stranger.standing).remove(&number);
            if own.len() == 0 {
                self.machines.remove(&stranger.machine);
            }
        }
        Some(stranger)
    }
}

impl Room {
    pub fn new(limits: RoomLimits) -> Arc<Room> {
        let free = Arc::new(Semaphore::new(limits.total));
        Arc::new(Room { free, limits, taken: Mutex::default() })
    }

    /// Comes when one more connection fits.
    pub async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes the semaphore.
        self.free.clone().acquire_owned().await.ok()
    }

    /// Takes a place for a connection from that address. Where strangers are too many, one is asked to leave; the
    /// second value says of whom there were too many.
    pub fn enter(
        self: &Arc<Room>,
        permit: OwnedSemaphorePermit,
        address: IpAddr,
    ) -> (Arc<ConnectionPlace>, Option<Crowd>) {
        let machine = machine_of(address);
        let leave = Arc::new(Notify::new());
        let mut taken = self.taken.lock();
        let number = taken.come(Stranger { machine, standing: Standing::Silent, leave: leave.clone() });
        let RoomLimits { strangers, per_machine, .. } = self.limits;
        let of_machine = taken.machines.get(&machine).and_then(|own| own.to_leave(per_machine));
        let of_all = taken.all.to_leave(strangers);
        let (leaves, crowd) = match (of_machine, of_all) {
            (Some(own), _) => (Some(own), Some(Crowd::Machine)),
            (None, Some(any)) => (Some(any), Some(Crowd::All)),
            (None, None) => (None, None),
        };
        if let Some(stranger) = leaves.and_then(|leaves| taken.forget(leaves)) {
            stranger.leave.notify_one();
        }
        drop(taken);
        let place = ConnectionPlace {
            _permit: permit,
            room: self.clone(),
            number,
            leave,
            user: OnceLock::new(),
            under_way: Mutex::new(UnderWay { requests: 0, since: Instant::now() }),
            strangers: Arc::new(Semaphore::new(STRANGERS_REQUESTS_MAX)),
            process_user: OnceCell::new(),
        };
        (Arc::new(place), crowd)
    }
}

/// The strangers that have too many connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crowd {
    Machine,
    /// Those of all machines together.
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
    under_way: Mutex<UnderWay>,
    /// Requests on which nobody was let in.
    strangers: Arc<Semaphore>,
    /// The user of the machine whose process is at the other end, once it was looked up; `None` if that is not known.
    pub(crate) process_user: OnceCell<Option<u32>>,
}

struct UnderWay {
    requests: usize,
    /// When that number last changed.
    since: Instant,
}

pub struct OngoingRequest(Arc<ConnectionPlace>);

impl Drop for OngoingRequest {
    fn drop(&mut self) {
        self.0.note(false);
    }
}

impl ConnectionPlace {
    /// Notes that a request on it was let in. False if the caller has too many connections; those of
    /// administrators and workers are not counted.
    pub fn admit(&self, caller: &Caller) -> bool {
        if self.is_known() {
            return true;
        }
        let counted =
            matches!(caller.role, Role::User | Role::Submitter | Role::Viewer).then(|| caller.user.clone());
        let mut taken = self.room.taken.lock();
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

    /// True once a request on it was let in.
    pub fn is_known(&self) -> bool {
        self.user.get().is_some()
    }

    /// Notes a request, which lasts until the result is dropped.
    pub fn begin(self: &Arc<ConnectionPlace>) -> OngoingRequest {
        self.note(true);
        OngoingRequest(self.clone())
    }

    fn note(&self, begins: bool) {
        let mut under_way = self.under_way.lock();
        let before = under_way.requests;
        under_way.requests = if begins { before + 1 } else { before - 1 };
        under_way.since = Instant::now();
        let standing = match (before, under_way.requests) {
            (0, _) => Standing::Busy,
            (_, 0) => Standing::Idle,
            _ => return,
        };
        if !self.is_known() {
            self.room.taken.lock().stands(self.number, standing);
        }
    }

    /// How long it has had no request; `None` while it has one.
    pub fn idle_for(&self) -> Option<Duration> {
        let under_way = self.under_way.lock();
        (under_way.requests == 0).then(|| under_way.since.elapsed())
    }

    /// A turn for a request on which nobody was let in; `None` if it has too many of them.
    pub fn take_strangers_turn(&self) -> Option<OwnedSemaphorePermit> {
        self.strangers.clone().try_acquire_owned().ok()
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
        let mut taken = self.room.taken.lock();
        taken.forget(self.number);
        leave_user(&mut taken, self.user.get().and_then(Option::as_ref));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Rights;
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
    fn a_caller_who_was_let_in_does_not_give_way() {
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
        assert!(room.taken.lock().users.is_empty() && room.taken.lock().machines.is_empty());
    }
    #[test]
    fn those_that_asked_outlast_a_flood_of_silent_ones() {
        let room = room(100, 8);
        let (asked, _) = enter(&room, "10.0.0.1");
        drop(asked.begin());
        let (asking, _) = enter(&room, "10.0.0.1");
        let request = asking.begin();
        assert!(asking.idle_for().is_none() && asked.idle_for().is_some());
        let silent: Vec<_> = (0..50).map(|_| enter(&room, "10.0.0.1").0).collect();
        let left: Vec<bool> = silent.iter().map(|place| must_leave(place)).collect();
        assert!(left[..44].iter().all(|left| *left) && !left[44..].contains(&true), "{left:?}");
        assert!(!must_leave(&asked) && !must_leave(&asking));
        drop(request);
        assert!(asking.idle_for().is_some());
    }

    #[test]
    fn a_newcomer_has_time_for_a_request_where_all_others_are_busy() {
        let room = room(100, 4);
        let busy: Vec<_> = (0..4).map(|_| enter(&room, "10.0.0.1").0).collect();
        let mut requests: Vec<_> = busy.iter().map(|place| place.begin()).collect();
        let (newcomer, crowd) = enter(&room, "10.0.0.1");
        assert_eq!(crowd, Some(Crowd::Machine));
        assert!(must_leave(&busy[0]) && !must_leave(&newcomer));
        // Without a request under way, a connection gives way before those that have one.
        drop(requests.pop());
        let _other = enter(&room, "10.0.0.1");
        assert!(must_leave(&busy[3]) && !must_leave(&busy[1]) && !must_leave(&newcomer));
    }

    #[test]
    fn a_port_has_room_for_those_that_come() {
        let limits = RoomLimits::of_port(64, 1_000);
        assert_eq!((limits.total, limits.strangers, limits.per_machine), (64, 56, 56));
    }

    #[test]
    fn requests_without_a_caller_are_few_on_a_connection() {
        let room = room(4, 4);
        let (place, _) = enter(&room, "10.0.0.1");
        let turns: Vec<_> = (0..20).filter_map(|_| place.take_strangers_turn()).collect();
        assert_eq!(turns.len(), STRANGERS_REQUESTS_MAX);
        drop(turns);
        assert!(place.take_strangers_turn().is_some());
    }
}
