//! Machines of clients' `builders` that are no workers: the gateway makes a worker of the engine of each, and plays its
//! part.
//!
//! Nobody reports their load. What is known of a machine is how many builds it takes, what was copied to it and built on
//! it through this server, and whether it could be connected.

use super::needs;
use crate::wire::{Machine, host};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_core::bounds::CACHE_KEYS_MAX;
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{Hello, WorkerCommand};
use windlass_core::hash::Fnv;
use windlass_core::{Resources, WorkerId};
use windlass_server::{Delivery, WorkerLink};

/// A machine that no client has named for this long is forgotten.
pub const UNNAMED_MAX: Duration = Duration::from_secs(900);
/// How long a machine that could not be connected gets no builds: at first, and at most.
const OUT_MIN: Duration = Duration::from_secs(5);
const OUT_MAX: Duration = Duration::from_secs(300);
/// A machine that worked for a user within this time can be connected, whatever another user reports.
const WORKED_LATELY: Duration = Duration::from_secs(600);
/// The most machines; others are not taken in.
const MACHINES_MAX: usize = 10_000;
/// The most machines that one user describes.
const MACHINES_OF_USER_MAX: usize = 1_000;
/// Users of whom it is known that a machine works for them.
const USERS_MAX: usize = 64;

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
    /// Who described it.
    by: String,
    named: Instant,
    link: u64,
    paths: Paths,
    /// Times in a row that it could not be connected.
    failures: u32,
    /// It gets no builds until then.
    out_until: Option<Instant>,
    /// When it was last connected, by user.
    worked: BTreeMap<String, Instant>,
}

/// What the engine is to be told of a machine.
#[derive(Debug)]
pub enum Change {
    /// It is there, or is another than before.
    Hello(Box<Hello>, CacheKeys),
    /// It has these paths.
    Caches(CacheKeys),
    /// It cannot be connected.
    Lost,
}

/// All such machines, by the URI of their store. Pure: what comes of it is for the caller to do.
#[derive(Debug, Default)]
pub struct Machines {
    known: BTreeMap<String, Known>,
    /// The hosts of workers: a client's line for one of these is that worker.
    workers: BTreeSet<String>,
}

/// The name of a machine's worker: its URI without parameters, which may name files of its client.
pub fn name_of(uri: &str) -> &str {
    uri.split('?').next().unwrap_or(uri)
}

/// True if both descriptions are alike but for the URI, which may hold what concerns one client alone.
fn is_same(a: &Machine, b: &Machine) -> bool {
    let Machine { uri: _, systems, max_jobs, speed, supported, mandatory } = a;
    (systems, max_jobs, speed, supported, mandatory)
        == (&b.systems, &b.max_jobs, &b.speed, &b.supported, &b.mandatory)
}

/// The name of a machine that somebody describes otherwise than others do. It is a worker of its own, so that nobody's
/// description is another's; then the machine may have more builds than each description says.
fn variant(base: &str, machine: &Machine) -> String {
    let mut description = Fnv::default();
    description.bytes(format!("{:?}", Machine { uri: String::new(), ..machine.clone() }).as_bytes());
    format!("{base}#{:08x}", description.value() as u32)
}

impl Machines {
    /// A client names a machine. `next_link` gives the number of a new connection. Returns the name of its worker, and its
    /// connection with what the engine is to be told, if that is news; `None` of a machine that is not taken in.
    pub fn name(
        &mut self,
        machine: &Machine,
        cores: u32,
        user: &str,
        now: Instant,
        next_link: impl FnOnce() -> u64,
    ) -> Option<(String, Option<(u64, Change)>)> {
        let base = name_of(&machine.uri);
        if base.is_empty() || machine.max_jobs == 0 || self.workers.contains(host(base)) {
            return None;
        }
        let is_theirs = |known: &Known| known.by.is_empty() || known.by == user;
        let name = match self.known.get(base) {
            Some(known) if !is_theirs(known) && !is_same(&known.machine, machine) => variant(base, machine),
            _ => base.to_owned(),
        };
        if let Some(known) = self.known.get_mut(&name) {
            known.named = now;
            if known.by.is_empty() {
                user.clone_into(&mut known.by);
            }
            let is_changed = !is_same(&known.machine, machine);
            if is_changed {
                known.machine = machine.clone();
            }
            let is_larger = cores > known.cores;
            known.cores = known.cores.max(cores);
            let is_news = (is_changed || is_larger) && known.out_until.is_none();
            let change = is_news.then(|| (known.link, known.hello(&name)));
            return Some((name, change));
        }
        let of_user = self.known.values().filter(|known| known.by == user).count();
        if self.known.len() >= MACHINES_MAX || of_user >= MACHINES_OF_USER_MAX {
            return None;
        }
        let change = self.insert(&name, machine.clone(), (cores, user, now, next_link()));
        Some((name, Some(change)))
    }

    fn insert(
        &mut self,
        name: &str,
        machine: Machine,
        (cores, by, named, link): (u32, &str, Instant, u64),
    ) -> (u64, Change) {
        let known = Known {
            machine,
            cores,
            by: by.to_owned(),
            named,
            link,
            paths: Paths::default(),
            failures: 0,
            out_until: None,
            worked: BTreeMap::new(),
        };
        let change = (known.link, known.hello(name));
        self.known.insert(name.to_owned(), known);
        change
    }

    /// A machine that an earlier start of the server knew by this name. Who described it is not known any more: the next
    /// who names it may.
    pub fn restore(
        &mut self,
        name: &str,
        machine: Machine,
        capacity: &Resources,
        (now, link): (Instant, u64),
    ) -> Change {
        let max_jobs =
            capacity.custom.get(needs::BUILDS).copied().unwrap_or(1).clamp(1, u32::MAX.into()) as u32;
        let cores = (capacity.cpu / 100 / max_jobs).max(1);
        self.insert(name, Machine { max_jobs, ..machine }, (cores, "", now, link)).1
    }

    /// A machine was connected by this user. Returns what the engine is to be told, if it got no builds before.
    pub fn worked(&mut self, name: &str, user: &str, now: Instant) -> Option<(u64, Change)> {
        let known = self.known.get_mut(name)?;
        known.failures = 0;
        if known.worked.len() >= USERS_MAX {
            known.worked.clear();
        }
        known.worked.insert(user.to_owned(), now);
        known.out_until.take()?;
        Some((known.link, known.hello(name)))
    }

    /// A machine could not be connected by this user. It gets no builds for a while, unless it works for others: then it is
    /// this user whose access is missing.
    pub fn failed(&mut self, name: &str, user: &str, now: Instant) -> Option<(u64, Change)> {
        let known = self.known.get_mut(name)?;
        let lately = |at: &Instant| now.saturating_duration_since(*at) < WORKED_LATELY;
        known.worked.remove(user);
        if known.worked.values().any(lately) || known.out_until.is_some() {
            return None;
        }
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
                changes.push((known.link, known.hello(name)));
            }
        }
        changes
    }

    /// The engine wants everything said again over a connection.
    pub fn again(&self, link: u64) -> Option<(u64, Change)> {
        let known = self.known.iter().find(|(_, known)| known.link == link && known.out_until.is_none());
        known.map(|(name, known)| (link, known.hello(name)))
    }

    /// These hosts are workers.
    pub fn set_workers(&mut self, hosts: BTreeSet<String>) {
        self.workers = hosts;
    }

    /// The machines that are needed no more, because nobody has named them for long or because they are workers now. They
    /// stay for as long as something is built there.
    pub fn unneeded(&self, now: Instant) -> Vec<String> {
        let is_old = |known: &Known| now.saturating_duration_since(known.named) > UNNAMED_MAX;
        let old =
            self.known.iter().filter(|(name, known)| is_old(known) || self.workers.contains(host(name)));
        old.map(|(name, _)| name.clone()).collect()
    }

    /// Nothing is built there any more.
    pub fn remove(&mut self, name: &str) {
        self.known.remove(name);
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
    fn hello(&self, name: &str) -> Change {
        let mut number = Fnv::default();
        number.bytes(name.as_bytes());
        let attributes = needs::attributes_of_clients(&self.machine, name);
        let capacity = needs::capacity(self.machine.max_jobs, self.cores);
        let hello = Hello { attributes, ..Hello::new(name, number.value() >> 1, capacity) };
        Change::Hello(Box::new(hello), self.paths.keys())
    }
}

/// A machine in the engine that only clients know.
pub struct InEngine {
    pub id: WorkerId,
    pub name: String,
    pub machine: Machine,
    pub capacity: Resources,
    /// Something is built there.
    pub is_used: bool,
}

/// All machines in the engine that only clients know.
pub fn in_engine(engine: &windlass_core::Engine) -> Vec<InEngine> {
    let ours = engine.workers().present().filter_map(|worker| {
        let machine = needs::machine_of(&worker.attributes).filter(|_| is_of_clients(worker))?;
        let (name, capacity) = (worker.name.to_string(), worker.capacity.clone());
        Some(InEngine { id: worker.id, name, machine, capacity, is_used: worker.has_attempts() })
    });
    ours.collect()
}

/// The hosts of the workers that take builds.
pub fn hosts_of_workers(engine: &windlass_core::Engine) -> BTreeSet<String> {
    let workers = engine.workers().present().filter(|worker| !is_of_clients(worker));
    let machines = workers.filter_map(|worker| needs::machine_of(&worker.attributes));
    machines.map(|machine| host(&machine.uri).to_owned()).collect()
}

/// True of a worker that stands for a machine of clients: it has no agent, and so no lease.
fn is_of_clients(worker: &windlass_core::worker::Worker) -> bool {
    needs::is_of_clients(&worker.attributes)
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
        tracing::warn!("a machine of Nix's builders is not taken in: {why}");
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

    #[test]
    fn a_machine_is_shared_by_those_who_describe_it_alike() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        let Some((7, Change::Hello(hello, _))) = named(&mut machines, 2, "ann", now) else { panic!() };
        assert_eq!((hello.name.as_str(), hello.capacity.custom[needs::BUILDS]), ("ssh://b1", 2));
        assert!(named(&mut machines, 2, "ann", now).is_none(), "nothing is new");
        let other_key = Machine { uri: "ssh://b1".to_owned(), ..machine(2) };
        let (name, change) = machines.name(&other_key, 1, "bob", now, || 8).unwrap();
        assert!(name == "ssh://b1" && change.is_none(), "it is the same one");
        assert!(matches!(named(&mut machines, 3, "ann", now), Some((7, Change::Hello(..)))));
    }

    #[test]
    fn one_user_s_description_is_nobody_else_s() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "mallory", now);
        let (name, change) = machines.name(&machine(9), 1, "ann", now, || 8).unwrap();
        assert!(name.starts_with("ssh://b1#") && matches!(change, Some((8, Change::Hello(..)))));
        let (same, change) = machines.name(&machine(9), 1, "bob", now, || 9).unwrap();
        assert!(same == name && change.is_none());
        let many = |n: usize| Machine { uri: format!("ssh://m{n}"), ..machine(1) };
        let taken =
            (0..3_000).filter(|n| machines.name(&many(*n), 1, "mallory", now, || 9).is_some()).count();
        assert_eq!(taken, MACHINES_OF_USER_MAX - 1);
        assert!(machines.name(&many(5_000), 1, "ann", now, || 9).is_some());
    }

    #[test]
    fn a_machine_that_cannot_be_connected_gets_nothing_for_longer_and_longer() {
        let (mut machines, start) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "ann", start);
        let mut now = start;
        for out_s in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert!(matches!(machines.failed("ssh://b1", "ann", now), Some((7, Change::Lost))));
            assert!(machines.failed("ssh://b1", "bob", now).is_none(), "it is out already");
            assert!(
                machines.tried_again(now + Duration::from_secs(out_s) - Duration::from_millis(1)).is_empty()
            );
            now += Duration::from_secs(out_s);
            assert_eq!(machines.tried_again(now).len(), 1);
        }
        assert!(machines.worked("ssh://b1", "ann", now).is_none());
        machines.failed("ssh://b1", "ann", now);
        assert_eq!(machines.tried_again(now + OUT_MIN).len(), 1, "it is new again");
    }

    #[test]
    fn one_user_without_access_takes_no_machine_from_others() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "ann", now);
        machines.worked("ssh://b1", "ann", now);
        assert!(machines.failed("ssh://b1", "bob", now).is_none());
        let later = now + WORKED_LATELY;
        assert!(
            machines.failed("ssh://b1", "bob", later).is_some(),
            "it has worked for nobody within that time"
        );
    }

    #[test]
    fn a_machine_that_becomes_a_worker_is_no_machine_of_clients() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "ann", now);
        machines.set_workers(["b1".to_owned()].into());
        assert_eq!(machines.unneeded(now), ["ssh://b1"]);
        machines.remove("ssh://b1");
        assert!(named(&mut machines, 1, "ann", now).is_none());
    }

    #[test]
    fn a_machine_is_known_to_have_what_was_used_there_last() {
        let (mut machines, now) = (Machines::default(), Instant::now());
        named(&mut machines, 1, "ann", now);
        let paths = |from: usize, to: usize| (from..to).map(|n| format!("{n:032}-x"));
        let Some((_, Change::Caches(keys))) = machines.has("ssh://b1", paths(0, 5_000)) else { panic!() };
        assert_eq!(keys.len(), CACHE_KEYS_MAX);
        assert_eq!(machines.unneeded(now + UNNAMED_MAX).len(), 0);
        assert_eq!(machines.unneeded(now + UNNAMED_MAX + OUT_MIN), ["ssh://b1"]);
    }
}
