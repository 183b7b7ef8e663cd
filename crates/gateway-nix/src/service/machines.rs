//! Machines of clients' `builders` that are no workers: the gateway makes a worker of the engine of each, and plays its
//! part. A machine is its user's alone: what one user says of a machine, and what becomes of builds there, is nothing to
//! another user who names the same address.
//!
//! No agent reports their load. What is known of a machine is how many builds it takes, what was copied to it and built on
//! it through this server, and whether it could be connected.

use super::needs;
use crate::wire::{Machine, host};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_core::bounds::CACHE_KEYS_MAX;
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{CheckedHello, Hello, WorkerCommand};
use windlass_core::hash::Fnv;
use windlass_core::worker::Origin;
use windlass_core::{Resources, WorkerId};
use windlass_server::{Delivery, WorkerLink};

/// A machine that its user has not named for this long is forgotten.
pub const UNNAMED_MAX: Duration = Duration::from_secs(900);
/// How long a machine that could not be connected gets no builds: at first, and at most.
const OUT_MIN: Duration = Duration::from_secs(5);
const OUT_MAX: Duration = Duration::from_secs(300);
/// The most machines; others are not taken in.
const MACHINES_MAX: usize = 10_000;
/// The most machines of one user.
pub const MACHINES_OF_USER_MAX: usize = 256;
/// Bytes of the user's name and of the host that a machine's name shows.
const SHOWN_BYTES_MAX: usize = 64;

/// The store paths that a machine has, as cache keys: the last ones that were copied to it or built on it.
#[derive(Debug, Default)]
struct Paths {
    known: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Paths {
    /// Adds the paths of these names. Returns true if one of them is new.
    fn add(&mut self, names: impl Iterator<Item = String>) -> bool {
        let mut is_new = false;
        for name in names {
            let key = needs::cache_key(&name);
            if self.known.insert(key.clone()) {
                self.order.push_back(key);
                is_new = true;
            }
        }
        while self.order.len() > CACHE_KEYS_MAX {
            let oldest = self.order.pop_front();
            oldest.map(|key| self.known.remove(&key));
        }
        is_new
    }

    fn keys(&self) -> CacheKeys {
        CacheKeys::of(self.known.iter())
    }
}

/// A machine.
#[derive(Debug)]
struct Known {
    machine: Machine,
    /// The most cpus that a build asked for.
    cores: u32,
    /// Whose it is; empty where an earlier start of the server knew it and its user has not named it again.
    user: String,
    named: Instant,
    link: u64,
    paths: Paths,
    /// Times in a row that it could not be connected.
    failures: u32,
    /// It gets no builds until then.
    out_until: Option<Instant>,
}

/// What the engine is to be told of a machine.
#[derive(Debug)]
pub enum Change {
    /// It is there, or is another than before.
    Hello(CheckedHello, CacheKeys),
    /// It has these paths.
    Caches(CacheKeys),
    /// It cannot be connected.
    Lost,
}

/// All such machines, by the names of their workers. Pure: what comes of it is for the caller to do.
#[derive(Debug, Default)]
pub struct Machines {
    known: BTreeMap<String, Known>,
    /// The hosts of workers: a client's line for one of these is that worker.
    workers: BTreeSet<String>,
}

/// A URI without parameters, which may name files of its client.
pub fn address(uri: &str) -> &str {
    uri.split('?').next().unwrap_or(uri)
}

/// The name of the worker that stands for a user's machine at this address. It shows user and host to people; what tells
/// it from all others is the hash of both.
fn name_of(user: &str, address: &str) -> String {
    let shown = |text: &str| -> String {
        let kept = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' };
        text.chars().take(SHOWN_BYTES_MAX).map(kept).collect()
    };
    let mut hash = Sha256::new();
    hash.update((user.len() as u64).to_le_bytes());
    hash.update(user);
    hash.update(address);
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Origin::Nix.worker_name(&format!("{}:{}:{hash}", shown(user), shown(host(address))))
}

impl Machines {
    /// A user names a machine. `next_link` gives the number of a new connection. Returns the name of its worker, and its
    /// connection with what the engine is to be told, if that is news; `None` of a machine that is not taken in.
    pub fn name(
        &mut self,
        machine: &Machine,
        cores: u32,
        user: &str,
        now: Instant,
        next_link: impl FnOnce() -> u64,
    ) -> Option<(String, Option<(u64, Change)>)> {
        let address = address(&machine.uri);
        if address.is_empty() || machine.max_jobs == 0 || self.workers.contains(host(address)) {
            return None;
        }
        let name = name_of(user, address);
        if let Some(known) = self.known.get_mut(&name) {
            known.named = now;
            user.clone_into(&mut known.user);
            let is_news = known.machine != *machine || cores > known.cores;
            if is_news {
                known.machine = machine.clone();
                known.cores = known.cores.max(cores);
            }
            let change = (is_news && known.out_until.is_none()).then(|| known.hello(&name)).flatten();
            return Some((name, change));
        }
        if self.is_full(user) {
            return None;
        }
        let change = self.insert(&name, machine.clone(), (cores, user, now, next_link()))?;
        Some((name, Some(change)))
    }

    fn insert(
        &mut self,
        name: &str,
        machine: Machine,
        (cores, user, named, link): (u32, &str, Instant, u64),
    ) -> Option<(u64, Change)> {
        let known = Known {
            machine,
            cores,
            user: user.to_owned(),
            named,
            link,
            paths: Paths::default(),
            failures: 0,
            out_until: None,
        };
        let change = known.hello(name)?;
        self.known.insert(name.to_owned(), known);
        Some(change)
    }

    /// A machine on which an earlier start of the server had builds. It gets no others until its user names it again,
    /// because what it is was not kept.
    pub fn restore(&mut self, known: &InEngine, now: Instant, link: u64) -> Option<(u64, Change)> {
        let builds = known.capacity.custom.get(needs::BUILDS).copied().unwrap_or(1);
        let max_jobs = builds.clamp(1, u32::MAX.into()) as u32;
        let cores = (known.capacity.cpu / 100 / max_jobs).max(1);
        let machine = Machine { max_jobs, ..Machine::default() };
        self.insert(&known.name, machine, (cores, "", now, link))
    }

    /// The URI of a machine, as its user named it last.
    pub fn uri(&self, name: &str) -> Option<String> {
        self.known.get(name).map(|known| known.machine.uri.clone())
    }

    /// True if no more machines of the user are taken in.
    pub fn is_full(&self, user: &str) -> bool {
        let of_user = self.known.values().filter(|known| known.user == user).count();
        self.known.len() >= MACHINES_MAX || of_user >= MACHINES_OF_USER_MAX
    }

    /// A machine was connected. Returns what the engine is to be told, if it got no builds before.
    pub fn worked(&mut self, name: &str) -> Option<(u64, Change)> {
        let known = self.known.get_mut(name)?;
        known.failures = 0;
        known.out_until.take()?;
        known.hello(name)
    }

    /// A machine could not be connected. It gets no builds for a while.
    pub fn failed(&mut self, name: &str, now: Instant) -> Option<(u64, Change)> {
        let known = self.known.get_mut(name).filter(|known| known.out_until.is_none())?;
        let out = OUT_MIN.saturating_mul(1 << known.failures.min(16)).min(OUT_MAX);
        known.failures += 1;
        known.out_until = Some(now + out);
        Some((known.link, Change::Lost))
    }

    /// A machine has these store paths. Returns what the engine is to be told, if one of them is new.
    pub fn has(&mut self, name: &str, paths: impl Iterator<Item = String>) -> Option<(u64, Change)> {
        let known = self.known.get_mut(name)?;
        let is_new = known.paths.add(paths);
        (is_new && known.out_until.is_none()).then(|| (known.link, Change::Caches(known.paths.keys())))
    }

    /// Machines that are tried again.
    pub fn tried_again(&mut self, now: Instant) -> Vec<(u64, Change)> {
        let mut changes = Vec::new();
        for (name, known) in &mut self.known {
            if known.out_until.is_some_and(|until| until <= now) {
                known.out_until = None;
                changes.extend(known.hello(name));
            }
        }
        changes
    }

    /// The engine wants everything said again over a connection.
    pub fn again(&self, link: u64) -> Option<(u64, Change)> {
        let known = self.known.iter().find(|(_, known)| known.link == link && known.out_until.is_none());
        known.and_then(|(name, known)| known.hello(name))
    }

    /// These hosts are workers.
    pub fn set_workers(&mut self, hosts: BTreeSet<String>) {
        self.workers = hosts;
    }

    /// The machines that are needed no more, because their users have not named them for long or because they are workers
    /// now. They stay for as long as something is built there.
    pub fn unneeded(&self, now: Instant) -> Vec<String> {
        let is_old = |known: &Known| now.saturating_duration_since(known.named) > UNNAMED_MAX;
        let is_worker = |known: &Known| self.workers.contains(host(&known.machine.uri));
        let old = self.known.iter().filter(|(_, known)| is_old(known) || is_worker(known));
        old.map(|(name, _)| name.clone()).collect()
    }

    /// Nothing is built there any more. Returns the end of its connection, which the engine is to be told: otherwise the
    /// server keeps the connection of each machine that was ever named.
    #[must_use]
    pub fn remove(&mut self, name: &str) -> Option<(u64, Change)> {
        self.known.remove(name).map(|known| (known.link, Change::Lost))
    }

    /// True of a machine of clients.
    pub fn knows(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Machines, and those that could not be connected.
    pub fn counts(&self) -> (usize, usize) {
        (self.known.len(), self.known.values().filter(|known| known.out_until.is_some()).count())
    }
}

impl Known {
    /// What the engine is to be told; `None` of a description that no worker may have.
    fn hello(&self, name: &str) -> Option<(u64, Change)> {
        let mut number = Fnv::default();
        number.bytes(name.as_bytes());
        let attributes = match self.machine.uri.is_empty() {
            true => Default::default(),
            false => needs::attributes_of_clients(&self.machine, name),
        };
        let capacity = needs::capacity(self.machine.max_jobs, self.cores);
        let own_name = Origin::Nix.own_name(name)?;
        let hello = Hello { attributes, ..Hello::new(own_name, number.value() >> 1, capacity) };
        match CheckedHello::of_gateway(Origin::Nix, hello) {
            Ok(hello) => Some((self.link, Change::Hello(hello, self.paths.keys()))),
            Err(why) => {
                tracing::warn!(%why, "a machine of Nix's builders is not taken in");
                None
            }
        }
    }
}

/// A machine in the engine that only clients know.
pub struct InEngine {
    pub id: WorkerId,
    pub name: String,
    pub capacity: Resources,
    /// Something is built there.
    pub is_used: bool,
}

/// All machines in the engine that only clients know.
pub fn in_engine(engine: &windlass_core::Engine) -> Vec<InEngine> {
    let of_clients = engine.workers().present().filter(|worker| Origin::of(&worker.name) == Origin::Nix);
    let each = of_clients.map(|worker| InEngine {
        id: worker.id,
        name: worker.name.to_string(),
        capacity: worker.capacity.clone(),
        is_used: worker.has_attempts(),
    });
    each.collect()
}

/// The hosts of the workers that take builds.
pub fn hosts_of_workers(engine: &windlass_core::Engine) -> BTreeSet<String> {
    let workers = engine.workers().present().filter(|worker| Origin::of(&worker.name) == Origin::Agent);
    let uris = workers.filter_map(|worker| needs::uri_of(&worker.attributes));
    uris.map(|uri| host(uri).to_owned()).collect()
}

/// The engine's way to a machine: nothing is sent there, for builds are run by their clients.
pub struct MachineLink {
    /// Its number.
    pub id: u64,
    /// Told when the engine wants everything said again.
    pub again: mpsc::UnboundedSender<u64>,
}

impl WorkerLink for MachineLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn deliver(&self, parcel: Vec<Delivery>) {
        if parcel.iter().any(|delivery| matches!(delivery.order, WorkerCommand::Resync)) {
            _ = self.again.send(self.id);
        }
    }

    fn refuse(&self, why: &str) {
        tracing::warn!(?why, "a machine of Nix's builders is not taken in");
    }

    fn begin_again(&self) {
        _ = self.again.send(self.id);
    }
}

/// The way back that goes with a hello.
pub fn link(id: u64, again: &mpsc::UnboundedSender<u64>) -> Arc<dyn WorkerLink> {
    Arc::new(MachineLink { id, again: again.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(max_jobs: u32) -> Machine {
        let systems = vec!["x86_64-linux".to_owned()];
        Machine { uri: "ssh://b1?ssh-key=/k".to_owned(), systems, max_jobs, ..Machine::default() }
    }

    fn named(machines: &mut Machines, max_jobs: u32, user: &str, now: Instant) -> Option<(u64, Change)> {
        machines.name(&machine(max_jobs), 1, user, now, || 7)?.1
    }

    fn b1(user: &str) -> String {
        name_of(user, "ssh://b1")
    }

    #[test]
    fn a_machine_is_known_by_its_address() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        let Some((7, Change::Hello(hello, _))) = named(&mut machines, 2, "ann", now) else { panic!() };
        assert!(hello.name().starts_with("nix:ann:b1:"), "{}", hello.name());
        assert_eq!(hello.get().capacity.custom[needs::BUILDS], 2);
        assert!(named(&mut machines, 2, "ann", now).is_none(), "nothing is new");
        assert!(matches!(named(&mut machines, 3, "ann", now), Some((7, Change::Hello(..)))));
    }

    #[test]
    fn one_user_s_machines_are_nothing_to_another() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "mallory", now);
        let (name, change) = machines.name(&machine(9), 1, "ann", now, || 8).unwrap();
        assert!(name == b1("ann") && matches!(change, Some((8, Change::Hello(..)))));
        assert!(machines.failed(&b1("mallory"), now).is_some());
        assert!(machines.known[&b1("ann")].out_until.is_none());
        let many = |n: usize| Machine { uri: format!("ssh://m{n}"), ..machine(1) };
        let taken =
            (0..3_000).filter(|n| machines.name(&many(*n), 1, "mallory", now, || 9).is_some()).count();
        assert_eq!(taken, MACHINES_OF_USER_MAX - 1);
        assert!(machines.name(&many(5_000), 1, "ann", now, || 9).is_some());
    }

    #[test]
    fn no_user_has_another_s_names() {
        for (user, address) in
            [("mallory", "ssh://b1"), ("an", "nssh://b1"), ("ann:b1", ""), ("a\nn", "ssh://b1")]
        {
            assert_ne!(name_of(user, address), b1("ann"), "{user}");
        }
    }

    #[test]
    fn a_machine_that_cannot_be_connected_gets_nothing_for_longer_and_longer() {
        let (mut machines, start) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "ann", start);
        let mut now = start;
        for out_s in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert!(matches!(machines.failed(&b1("ann"), now), Some((7, Change::Lost))));
            assert!(machines.failed(&b1("ann"), now).is_none(), "it is out already");
            assert!(
                machines.tried_again(now + Duration::from_secs(out_s) - Duration::from_millis(1)).is_empty()
            );
            now += Duration::from_secs(out_s);
            assert_eq!(machines.tried_again(now).len(), 1);
        }
        assert!(machines.worked(&b1("ann")).is_none());
        machines.failed(&b1("ann"), now);
        assert_eq!(machines.tried_again(now + OUT_MIN).len(), 1, "it is new again");
    }

    #[test]
    fn a_machine_that_becomes_a_worker_is_no_machine_of_clients() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "ann", now);
        machines.set_workers(["b1".to_owned()].into());
        assert_eq!(machines.unneeded(now), [b1("ann")]);
        assert!(
            matches!(machines.remove(&b1("ann")), Some((7, Change::Lost))),
            "its connection ends with it"
        );
        assert!(machines.remove(&b1("ann")).is_none());
        assert!(named(&mut machines, 1, "ann", now).is_none());
    }

    #[test]
    fn a_machine_is_known_to_have_what_was_used_there_last() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "ann", now);
        let paths = |from: usize, to: usize| (from..to).map(|n| format!("{n:032}-x"));
        let Some((_, Change::Caches(keys))) = machines.has(&b1("ann"), paths(0, 5_000)) else { panic!() };
        assert_eq!(keys.len(), CACHE_KEYS_MAX);
        assert_eq!(machines.unneeded(now + UNNAMED_MAX).len(), 0);
        assert_eq!(machines.unneeded(now + UNNAMED_MAX + OUT_MIN), [b1("ann")]);
    }

    #[test]
    fn what_was_built_somewhere_before_a_restart_ends_there() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        let capacity = needs::capacity(2, 4);
        let before = InEngine { id: WorkerId(1), name: b1("ann"), capacity: capacity.clone(), is_used: true };
        let Some((7, Change::Hello(hello, _))) = machines.restore(&before, now, 7) else { panic!() };
        assert!(hello.get().attributes.is_empty() && hello.get().capacity == capacity);
        let Some((7, Change::Hello(hello, _))) = named(&mut machines, 2, "ann", now) else { panic!() };
        assert!(!hello.get().attributes.is_empty(), "its user names it again");
    }
}
