//! Machines of clients' `builders` that run no worker of Windlass. The gateway makes each a worker of the engine, and
//! plays the worker's side. A machine belongs to one user: the properties that a user gives it, and the outcome of
//! builds there, do not affect another user who names the same address.
//!
//! No agent reports their load. The gateway knows the number of builds that a machine accepts, the paths that were
//! copied to it or built on it through this server, and whether it could be connected.

use super::needs;
use crate::wire::{Machine, host};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_core::cache_keys::{CacheKeys, RecentKeys};
use windlass_core::engine::{CheckedHello, Hello, WorkerCommand};
use windlass_core::hash::Fnv;
use windlass_core::worker::Origin;
use windlass_core::{Resources, WorkerId};
use windlass_server::{Delivery, WorkerLink};

/// How long a machine is remembered after its user named it last.
pub const UNNAMED_MAX: Duration = Duration::from_secs(900);
/// How long a machine gets no builds after it could not be connected: the first time, and at most.
const OUT_MIN: Duration = Duration::from_secs(5);
const OUT_MAX: Duration = Duration::from_secs(300);
/// Machines that are remembered. Further ones are not accepted.
const MACHINES_MAX: usize = 10_000;
/// Machines of one user.
pub const MACHINES_OF_USER_MAX: usize = 256;
/// Bytes of the user's name and of the host that a machine's name shows.
const SHOWN_BYTES_MAX: usize = 64;

/// A machine of a user.
#[derive(Debug)]
struct Known {
    machine: Machine,
    /// The largest number of cpus that a build asked for.
    cores: u32,
    /// The owner; empty for a machine of an earlier start of the server that its user has not named again.
    user: String,
    named: Instant,
    link: u64,
    /// The store paths that were last copied to it or built on it, as cache keys.
    paths: RecentKeys,
    /// The number of failed connections in a row.
    failures: u32,
    /// The time until which it gets no builds.
    out_until: Option<Instant>,
}

/// A message for the engine about a machine.
#[derive(Debug)]
pub enum Change {
    /// The machine is new or has changed.
    Hello(CheckedHello, CacheKeys),
    /// The machine has these paths.
    Caches(CacheKeys),
    /// The machine cannot be connected.
    Lost,
}

/// The machines, by the names of their workers. Pure: methods return the messages that the caller has to send.
#[derive(Debug, Default)]
pub struct Machines {
    known: BTreeMap<String, Known>,
    /// The hosts of Windlass's workers. A client's line for such a host means that worker.
    workers: BTreeSet<String>,
}

/// A URI without its parameters, which may name files of its client.
pub fn address(uri: &str) -> &str {
    uri.split('?').next().unwrap_or(uri)
}

/// The name of the worker for a user's machine at this address. It shows user and host to people. The hash of both
/// makes it unique.
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
    /// Remembers a machine that a user names. `next_link` gives the number of a new connection. Returns the name of its
    /// worker, and a connection with the message for the engine if there is news; `None` if the machine is not
    /// accepted.
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
            paths: RecentKeys::default(),
            failures: 0,
            out_until: None,
        };
        let change = known.hello(name)?;
        self.known.insert(name.to_owned(), known);
        Some(change)
    }

    /// Remembers a machine on which an earlier start of the server had builds. It gets no others until its user names
    /// it again, because its properties were not stored.
    pub fn restore(&mut self, known: &InEngine, now: Instant, link: u64) -> Option<(u64, Change)> {
        let builds = known.capacity.custom.get(needs::BUILDS).copied().unwrap_or(1);
        let max_jobs = builds.clamp(1, u32::MAX.into()) as u32;
        let cores = (known.capacity.cpu / 100 / max_jobs).max(1);
        let machine = Machine { max_jobs, ..Machine::default() };
        self.insert(&known.name, machine, (cores, "", now, link))
    }

    /// The URI by which its user named a machine last.
    pub fn uri(&self, name: &str) -> Option<String> {
        self.known.get(name).map(|known| known.machine.uri.clone())
    }

    /// True if no more machines of the user are accepted.
    pub fn is_full(&self, user: &str) -> bool {
        let of_user = self.known.values().filter(|known| known.user == user).count();
        self.known.len() >= MACHINES_MAX || of_user >= MACHINES_OF_USER_MAX
    }

    /// A machine was connected. Returns the message for the engine if it got no builds before.
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

    /// Adds store paths of a machine. Returns the message for the engine if one of them is new.
    pub fn has(&mut self, name: &str, paths: impl Iterator<Item = String>) -> Option<(u64, Change)> {
        let known = self.known.get_mut(name)?;
        let learned = known.paths.learned();
        paths.for_each(|path| _ = known.paths.add(needs::cache_key(&path)));
        let is_news = known.paths.learned() > learned && known.out_until.is_none();
        is_news.then(|| (known.link, Change::Caches(CacheKeys::of(known.paths.iter()))))
    }

    /// The machines whose pause is over.
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

    /// Greets the engine again over a connection, as it asked for.
    pub fn again(&self, link: u64) -> Option<(u64, Change)> {
        let known = self.known.iter().find(|(_, known)| known.link == link && known.out_until.is_none());
        known.and_then(|(name, known)| known.hello(name))
    }

    /// Sets the hosts of Windlass's workers.
    pub fn set_workers(&mut self, hosts: BTreeSet<String>) {
        self.workers = hosts;
    }

    /// The machines that can be forgotten, because their users have not named them for long or because they run a
    /// worker now. They stay while a build runs there.
    pub fn unneeded(&self, now: Instant) -> Vec<String> {
        let unneeded = self.known.iter().filter(|(_, known)| {
            let is_old = now.saturating_duration_since(known.named) > UNNAMED_MAX;
            is_old || self.workers.contains(host(&known.machine.uri))
        });
        unneeded.map(|(name, _)| name.clone()).collect()
    }

    /// Forgets a machine on which no build runs. Returns the end of its connection, which the engine must be told.
    /// Otherwise the server would keep the connection of each machine that was ever named.
    #[must_use]
    pub fn remove(&mut self, name: &str) -> Option<(u64, Change)> {
        self.known.remove(name).map(|known| (known.link, Change::Lost))
    }

    /// True for the name of a client's machine.
    pub fn knows(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// The number of machines, and of those that could not be connected.
    pub fn counts(&self) -> (usize, usize) {
        (self.known.len(), self.known.values().filter(|known| known.out_until.is_some()).count())
    }
}

impl Known {
    /// The hello of a machine; `None` if its description is not valid for a worker.
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
            Ok(hello) => Some((self.link, Change::Hello(hello, CacheKeys::of(self.paths.iter())))),
            Err(why) => {
                tracing::warn!(%why, "a machine of Nix's builders is not taken in");
                None
            }
        }
    }
}

/// The engine's state of a client's machine.
pub struct InEngine {
    pub id: WorkerId,
    pub name: String,
    pub capacity: Resources,
    /// True if a build runs there.
    pub is_used: bool,
}

/// The machines of clients that the engine has.
pub fn in_engine(engine: &windlass_core::Engine) -> Vec<InEngine> {
    let of_clients =
        engine.workers().present().filter(|worker| Origin::of(&worker.record.name) == Origin::Nix);
    let each = of_clients.map(|worker| InEngine {
        id: worker.record.id,
        name: worker.record.name.clone(),
        capacity: worker.record.capacity.clone(),
        is_used: worker.booked.has_attempts(),
    });
    each.collect()
}

/// The hosts of Windlass's workers that build for Nix.
pub fn hosts_of_workers(engine: &windlass_core::Engine) -> BTreeSet<String> {
    let workers =
        engine.workers().present().filter(|worker| Origin::of(&worker.record.name) == Origin::Agent);
    let uris = workers.filter_map(|worker| needs::uri_of(&worker.record.attributes));
    uris.map(|uri| host(uri).to_owned()).collect()
}

/// The engine's link to a machine. It sends nothing there, because clients run their builds themselves.
pub struct MachineLink {
    /// The number of the connection.
    pub id: u64,
    /// Receives the number when the engine asks for a new hello.
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

/// The link that goes with a hello.
pub fn link(id: u64, again: &mpsc::UnboundedSender<u64>) -> Arc<dyn WorkerLink> {
    Arc::new(MachineLink { id, again: again.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::bounds::CACHE_KEYS_MAX;

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
