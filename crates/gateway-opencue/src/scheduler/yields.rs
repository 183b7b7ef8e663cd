//! Hosts that layers leave to others, which few hosts suit. Otherwise a layer that runs anywhere would fill these
//! hosts, and the others would wait for them.
//!
//! A pass plans twice where it matters: first each layer keeps off the hosts that it leaves to others, and then all
//! layers may have what is left. Properties:
//!
//! - What suits a layer follows from tags, allocation, facility, operating system and threads, and not from amounts:
//!   frames that are too wide for what is idle get a host reserved.
//! - A layer leaves a host to another one that it suits, too, if at most half as many hosts suit the other one.
//! - A layer leaves half of its hosts at most, and no host to one of the same queue whose priority is lower.
//! - No host stays idle for it: what nobody takes at first is for all.
//! - No host is reserved for a layer that leaves it to others.

use super::caps::set_closed;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::WorkerId;
use windlass_core::class::Class;
use windlass_core::ids::QueueId;
use windlass_core::job::QueuedStep;
use windlass_core::tags::{Attributes, Need};
use windlass_core::workers::Workers;

/// The need that a layer has for hosts of one size, where it asks for whole hosts. Such a layer has a class for each
/// size, and all of them together suit it.
pub const SIZE: &str = "cores";
/// Groups of layers that are compared. Layers of further ones leave no hosts, and are left none.
const GROUPS_MAX: usize = 64;
/// Pairs of a host and a group that one pass keeps apart at first. Each search for a frame passes over those of its
/// group, of up to 2,000 frames in a pass.
const CLOSED_MAX: usize = 2_048;
/// A group leaves hosts to those that one in this many of its hosts suit, or fewer.
const WIDER: usize = 2;

/// Layers of one queue that ask the same of a host.
struct Group {
    /// The name by which hosts are closed to the group.
    name: String,
    /// The hosts that suit it.
    hosts: BTreeSet<WorkerId>,
    /// Its step that comes first; `None` where nothing of it waits.
    first: Option<QueuedStep>,
}

/// A group of which frames wait.
struct Waiting<'a> {
    queue: QueueId,
    group: &'a Group,
    first: QueuedStep,
}

/// The groups of layers, and what is closed to them.
#[derive(Default)]
pub struct Yields {
    groups: BTreeMap<QueueId, BTreeMap<Vec<Need>, Group>>,
    /// Number of all groups.
    count: usize,
    next: u64,
    /// The hosts that groups leave to others in this pass, by the name of the group.
    left: BTreeMap<String, BTreeSet<WorkerId>>,
    closed: Vec<(WorkerId, String)>,
}

impl Yields {
    /// Nothing waits, as far as is known.
    pub fn begin(&mut self) {
        self.groups.values_mut().flat_map(BTreeMap::values_mut).for_each(|group| group.first = None);
    }

    /// Adds a step that waits, and the name of its group to its class.
    pub fn join(&mut self, class: &mut Class, queue: QueueId, step: QueuedStep, workers: &Workers) {
        let needs = match class.needs.split_last() {
            Some((last, others)) if last.key == SIZE => others,
            _ => &class.needs[..],
        };
        let groups = self.groups.entry(queue).or_default();
        if !groups.contains_key(needs) {
            if self.count == GROUPS_MAX {
                return;
            }
            let suits = |attributes: &Attributes| needs.iter().all(|need| need.met_by(attributes));
            let hosts = workers.iter().filter(|worker| suits(&worker.record.attributes));
            let hosts = hosts.map(|worker| worker.record.id).collect();
            groups
                .insert(needs.to_vec(), Group { name: format!("leaves {}", self.next), hosts, first: None });
            self.next += 1;
            self.count += 1;
        }
        let Some(group) = groups.get_mut(needs) else { return };
        group.first = Some(group.first.map_or(step, |first| first.min(step)));
        class.limits.insert(group.name.clone());
    }

    /// Forgets groups of which nothing waits.
    pub fn forget_unused(&mut self) {
        for groups in self.groups.values_mut() {
            groups.retain(|_, group| group.first.is_some());
        }
        self.groups.retain(|_, groups| !groups.is_empty());
        self.count = self.groups.values().map(BTreeMap::len).sum();
    }

    /// There is a host with these attributes.
    pub fn add_host(&mut self, host: WorkerId, attributes: &Attributes) {
        for (needs, group) in self.groups.values_mut().flatten() {
            if needs.iter().all(|need| need.met_by(attributes)) {
                group.hosts.insert(host);
            }
        }
    }

    /// A host is gone.
    pub fn drop_host(&mut self, host: WorkerId) {
        for group in self.groups.values_mut().flat_map(BTreeMap::values_mut) {
            group.hosts.remove(&host);
        }
    }

    /// Closes hosts with room to groups that leave them to others, but for `reserved` ones. True if some are closed.
    pub fn close(&mut self, workers: &mut Workers, reserved: &BTreeSet<WorkerId>) -> bool {
        self.left = self.left_hosts();
        for (name, hosts) in &self.left {
            for host in hosts {
                let is_open = !reserved.contains(host) && has_room(workers, *host);
                if is_open && self.closed.len() < CLOSED_MAX {
                    self.closed.push((*host, name.clone()));
                }
            }
        }
        for (host, name) in &self.closed {
            set_closed(workers, *host, name, true);
        }
        !self.closed.is_empty()
    }

    /// Opens to all what was closed.
    pub fn open(&mut self, workers: &mut Workers) {
        for (host, name) in std::mem::take(&mut self.closed) {
            set_closed(workers, host, &name, false);
        }
    }

    /// True if the class leaves the host to others that wait.
    pub fn leaves(&self, class: &Class, host: WorkerId) -> bool {
        let mut left = class.limits.iter().filter_map(|name| self.left.get(name));
        left.any(|hosts| hosts.contains(&host))
    }

    /// The hosts that groups leave to others, by the name of the group.
    fn left_hosts(&self) -> BTreeMap<String, BTreeSet<WorkerId>> {
        let mut groups = Vec::new();
        for (queue, of_queue) in &self.groups {
            groups.extend(of_queue.values().filter_map(|group| Waiting::of(*queue, group)));
        }
        let mut left = BTreeMap::new();
        for wide in &groups {
            let hosts = wide.left_to(&groups);
            if !hosts.is_empty() {
                left.insert(wide.group.name.clone(), hosts);
            }
        }
        left
    }
}

fn has_room(workers: &Workers, host: WorkerId) -> bool {
    let worker = workers.get(host);
    worker.is_some_and(|worker| worker.booked.sum().cpu < worker.record.capacity.cpu)
}

impl<'a> Waiting<'a> {
    fn of(queue: QueueId, group: &'a Group) -> Option<Waiting<'a>> {
        Some(Waiting { queue, group, first: group.first? })
    }

    /// The hosts that this group leaves to others: to those first that fewest hosts suit.
    fn left_to(&self, groups: &[Waiting]) -> BTreeSet<WorkerId> {
        let mut others: Vec<&Waiting> = groups.iter().filter(|other| self.leaves_to(other)).collect();
        others.sort_by_key(|other| other.group.hosts.len());
        let most = self.group.hosts.len() / WIDER;
        let mut left: BTreeSet<WorkerId> = BTreeSet::new();
        for other in others {
            let both = other.group.hosts.intersection(&self.group.hosts);
            let more: Vec<WorkerId> = both.copied().filter(|host| !left.contains(host)).collect();
            if left.len() + more.len() > most {
                break;
            }
            left.extend(more);
        }
        left
    }

    /// True if this group leaves hosts that suit both to the other one.
    fn leaves_to(&self, narrow: &Waiting) -> bool {
        let is_lower =
            self.queue == narrow.queue && self.first < narrow.first && !self.first.is_peer(&narrow.first);
        !is_lower
            && !narrow.group.hosts.is_empty()
            && narrow.group.hosts.len() * WIDER <= self.group.hosts.len()
    }
}
