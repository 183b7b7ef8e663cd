//! All workers, an index of their free room, and their deadlines.

mod index;
mod sharing;
mod summary;

pub use index::Index;
pub use summary::{ListedWorker, WorkerSummary};

use crate::ids::WorkerId;
use crate::load::formula::{LoadSettings, Saturated};
use crate::load::pressure::LoadReport;
use crate::resources::Resources;
use crate::tags::{Attributes, Need};
use crate::time::Time;
use crate::worker::{Saturation, Worker, WorkerFlags, WorkerState};
use sharing::Sharing;
use std::collections::{BTreeMap, BTreeSet};

/// All workers. A worker's room changes only through [`Workers::update`], which takes it out of the
/// index (checkout) and puts it back by its new room (checkin).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Workers {
    /// By id. A sorted list, because a search for a place looks up many workers, and they come and go rarely. Boxed,
    /// because a worker is large.
    all: Vec<(WorkerId, Box<ListedWorker>)>,
    by_name: BTreeMap<String, WorkerId>,
    index: Index,
    /// The queues that workers of the farm are for alone, each with the number of these workers.
    for_queues: BTreeMap<String, u32>,
    /// Queues that came to be, or ceased to be, among these since [`Workers::take_new_or_gone_queues`].
    new_or_gone_queues: BTreeSet<String>,
    /// The workers that learned sizes go by, by their bytes of memory.
    by_memory: BTreeSet<(u64, WorkerId)>,
    /// Counts changes of these workers.
    sizes_version: u64,
    /// When which worker must be looked at, if it is not heard from before.
    deadlines: BTreeSet<(Time, WorkerId)>,
    suspect_ns: u64,
    load: LoadSettings,
    /// Workers that have more room, or take work again, since the last full round.
    gained: BTreeSet<WorkerId>,
    /// Workers that run something and may be sent a little more ahead of time.
    ahead: BTreeSet<WorkerId>,
    /// Workers that run nothing but what waits for jobs of its own.
    only_lending: BTreeSet<WorkerId>,
    /// Workers on which tasks with a jobserver run.
    pub(crate) sharing: Sharing,
    /// Workers that take work, and those of them that are idle.
    open: u32,
    idle: u32,
    /// All workers are held by pressure.
    strained: bool,
    /// Counts the times that a worker came, or took work again.
    opened_count: u64,
    /// The same, and the times that one ceased to.
    change_count: u64,
    /// Workers whose lacks for new work changed since [`Workers::take_pressed`]: what they lacked, and lack now.
    pressed: BTreeMap<WorkerId, (Saturated, Saturated)>,
}

impl Workers {
    /// Without workers. They are filled by the given policy, and suspect after `suspect_ns` of silence.
    pub fn new(saturation: Saturation, suspect_ns: u64, load: LoadSettings) -> Self {
        Workers { index: Index::new(saturation), suspect_ns, load, ..Default::default() }
    }

    /// How many workers are scored for one task.
    pub fn with_candidates(mut self, max: usize) -> Self {
        self.index.set_candidates(max);
        self
    }

    /// A requirement that no worker meets for want of the attribute.
    pub fn unmet<'a>(&self, needs: &'a [Need]) -> Option<&'a Need> {
        self.index.unmet(needs)
    }

    /// Workers that run nothing but what waits for jobs of its own.
    pub fn only_lending(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.only_lending.iter().copied()
    }

    /// The workers that may be sent more ahead of time, each once, from this one on.
    pub fn with_room_ahead(&self, from: WorkerId) -> impl Iterator<Item = &Worker> {
        let ids = self.ahead.range(from..).chain(self.ahead.range(..from));
        ids.filter_map(|id| self.get(*id))
    }

    /// How loads are judged.
    pub fn load_settings(&self) -> &LoadSettings {
        &self.load
    }

    fn deadline(&self, worker: &Worker) -> Option<Time> {
        worker.deadline(self.suspect_ns, self.load.stale_ns)
    }

    /// The queue as a part of a class: only if some worker of the farm is for that queue alone. Workers do not tell the
    /// work of other queues apart.
    pub fn queue_in_class(&self, queue: &str) -> Option<String> {
        self.for_queues.contains_key(queue).then(|| queue.to_owned())
    }

    /// The queues of which [`queue_in_class`](Workers::queue_in_class) may say something else than when this was asked
    /// last.
    pub fn take_new_or_gone_queues(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.new_or_gone_queues)
    }

    /// The workers that learned sizes go by, those with most memory first: see [`Worker::counts_for_sizes`].
    pub fn largest_first(&self) -> impl Iterator<Item = &Worker> {
        self.by_memory.iter().rev().filter_map(|(_, id)| self.get(*id))
    }

    /// A number that changes when [`largest_first`](Workers::largest_first) gives other workers, or when the capacity
    /// or the attributes of one of them change.
    pub fn sizes_version(&self) -> u64 {
        self.sizes_version
    }

    /// Adds a worker or replaces the one with its id.
    pub fn insert(&mut self, worker: Worker) {
        if worker.is_present() {
            // Before the old one is counted out: a queue that keeps its worker is neither new nor gone.
            count_queues(&mut self.for_queues, &mut self.new_or_gone_queues, &worker, 1);
        }
        note(&mut self.ahead, worker.record.id, worker.has_room_ahead());
        note(&mut self.only_lending, worker.record.id, worker.booked.only_lends());
        let place = self.place_of(worker.record.id);
        let (mut sized_before, mut is_other) = (None, true);
        if let Ok(known) = place {
            let (_, old) = self.all.remove(known);
            let old = old.worker();
            self.sharing.follow(old.record.id, old.booked.shared(), None);
            sized_before = memory_for_sizes(old);
            is_other = old.record.capacity != worker.record.capacity
                || old.record.attributes != worker.record.attributes;
            if old.is_present() {
                count_queues(&mut self.for_queues, &mut self.new_or_gone_queues, old, -1);
            }
            self.count(old, -1);
            self.index.unlist(old);
            let deadline = self.deadline(old);
            reorder(&mut self.deadlines, old.record.id, deadline, None);
        }
        self.by_name.insert(worker.record.name.clone(), worker.record.id);
        // It may have other cpus than before.
        self.sharing.follow(worker.record.id, None, worker.booked.shared());
        self.gained.insert(worker.record.id);
        let sized = memory_for_sizes(&worker);
        let is_moved = reorder(&mut self.by_memory, worker.record.id, sized_before, sized);
        self.sizes_version += u64::from(is_moved || (is_other && sized.is_some()));
        self.opened_count += 1;
        self.change_count += 1;
        self.count(&worker, 1);
        self.index.list(&worker);
        let deadline = self.deadline(&worker);
        reorder(&mut self.deadlines, worker.record.id, None, deadline);
        let listed = Box::new(ListedWorker::new(worker, &self.load));
        let worker = listed.worker();
        self.index.place(worker, listed.summary());
        let (Ok(at) | Err(at)) = place;
        self.all.insert(at, (worker.record.id, listed));
        self.narrow();
    }

    /// Removes a worker and its name.
    pub fn remove(&mut self, id: WorkerId) {
        let Ok(known) = self.place_of(id) else { return };
        let (_, old) = self.all.remove(known);
        let old = old.worker();
        self.count(old, -1);
        if old.is_present() {
            count_queues(&mut self.for_queues, &mut self.new_or_gone_queues, old, -1);
        }
        let is_moved = reorder(&mut self.by_memory, id, memory_for_sizes(old), None);
        self.sizes_version += u64::from(is_moved);
        self.index.unlist(old);
        let deadline = self.deadline(old);
        reorder(&mut self.deadlines, id, deadline, None);
        self.by_name.remove(&old.record.name);
        self.gained.remove(&id);
        self.ahead.remove(&id);
        self.only_lending.remove(&id);
        self.sharing.forget(id);
        self.change_count += 1;
    }

    /// A worker says what it has and is.
    pub fn describe(&mut self, id: WorkerId, capacity: Resources, attributes: Attributes) {
        let Some(mut worker) = self.get(id).cloned() else { return };
        worker.record.capacity = capacity;
        worker.flags = WorkerFlags::of(&attributes);
        worker.record.attributes = attributes;
        self.insert(worker);
    }

    /// Steps will ask for these: workers are told apart by them from now on.
    pub fn learn<'a>(&mut self, needs: impl Iterator<Item = &'a Need>) {
        if self.index.learn(needs) {
            self.rebuild();
        }
    }

    /// True if a worker with these attributes would bring one that no worker has.
    pub fn is_news(&self, attributes: &Attributes) -> bool {
        self.index.is_news(attributes)
    }

    /// Drops the keys with too many values from what tells groups of workers apart.
    fn narrow(&mut self) {
        if self.index.unlearn() {
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        let mut index = self.index.emptied();
        for (_, listed) in &self.all {
            index.list(listed.worker());
            index.place(listed.worker(), listed.summary());
        }
        self.index = index;
    }

    /// Changes a worker, but for its name and attributes. Returns what `change` returns, `None` if there is no such
    /// worker.
    pub fn update<T>(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        let (load, suspect_ns) = (self.load, self.suspect_ns);
        let at = self.place_of(id).ok()?;
        let listed = &mut self.all[at].1;
        let (took_work, took_builds) = (listed.summary().takes_work(), listed.summary().takes_builds());
        let worker = listed.worker_mut();
        let deadline = worker.deadline(suspect_ns, load.stale_ns);
        let before = (took_work, worker.booked.is_idle(), worker.room());
        let (sized_before, was_present) = (memory_for_sizes(worker), worker.is_present());
        let shared_before = worker.booked.shared();
        let result = change(worker);
        self.sharing.follow(id, shared_before, worker.booked.shared());
        if !worker.booked.is_idle() {
            worker.reported.end_quiet();
        }
        let is_moved = reorder(&mut self.by_memory, id, sized_before, memory_for_sizes(worker));
        self.sizes_version += u64::from(is_moved);
        if was_present != worker.is_present() {
            let by = if was_present { -1 } else { 1 };
            count_queues(&mut self.for_queues, &mut self.new_or_gone_queues, worker, by);
        }
        listed.summarize(&load);
        let (worker, summary) = (listed.worker(), listed.summary());
        let after = (summary.takes_work(), worker.booked.is_idle());
        if after != (before.0, before.1) {
            self.open = self.open + u32::from(after.0) - u32::from(before.0);
            self.idle = self.idle + u32::from(after == (true, true)) - u32::from(before.0 && before.1);
        }
        self.opened_count += u64::from(after.0 && !before.0);
        self.change_count += u64::from(after.0 != before.0);
        let is_open = (after.0 && !before.0) || (summary.takes_builds() && !took_builds);
        if is_open || (summary.takes_builds() && !worker.room().fits(&before.2)) {
            self.gained.insert(id);
        }
        note(&mut self.ahead, id, worker.has_room_ahead());
        if note(&mut self.only_lending, id, summary.only_lends()) {
            self.gained.insert(id);
        }
        self.index.place(worker, summary);
        reorder(&mut self.deadlines, id, deadline, worker.deadline(suspect_ns, load.stale_ns));
        Some(result)
    }

    /// Drops a report that is stale, and ends a quarantine that is over. True if it did either.
    pub fn drop_outdated(&mut self, id: WorkerId, now: Time) -> bool {
        let Some(worker) = self.get(id) else { return false };
        let stale = worker.reported.dated_load().is_some_and(|(at, _)| at.after(self.load.stale_ns) <= now);
        let readmitted = worker.health.out().is_some_and(|(until, _)| until <= now);
        if stale {
            self.update_load(id, now, None);
        }
        if readmitted {
            self.update(id, |worker| worker.health.readmit());
        }
        stale || readmitted
    }

    fn count(&mut self, worker: &Worker, by: i32) {
        let takes = i32::from(worker.takes_work());
        self.open = self.open.saturating_add_signed(by * takes);
        self.idle = self.idle.saturating_add_signed(by * takes * i32::from(worker.booked.is_idle()));
    }

    /// If pressure holds all workers, each goes on with one task at a time until one of them is free of pressure.
    /// Otherwise the farm would stand still. Workers without space are left out, because tasks would fail there.
    pub fn resort(&mut self) {
        if self.open > 0 && !self.strained {
            return;
        }
        let up = |w: &&Worker| {
            w.record.state == WorkerState::Up
                && w.health.out().is_none()
                && !w.reported.saturated().lacks_space()
        };
        let strained = self.iter().filter(up).all(|w| w.reported.saturated().is_pressed());
        let held: Vec<WorkerId> = self
            .iter()
            .filter(|w| w.reported.last_resort != (strained && w.reported.saturated().is_pressed()))
            .map(|w| w.record.id)
            .collect();
        for id in held {
            self.update(id, |worker| worker.reported.last_resort = !worker.reported.last_resort);
        }
        self.strained = strained;
    }

    /// A number that changes when a worker came or takes work again.
    pub fn opened_count(&self) -> u64 {
        self.opened_count
    }

    /// A number that changes when a worker came, takes work again or ceases to.
    pub fn change_count(&self) -> u64 {
        self.change_count
    }

    /// How many workers take work.
    pub fn open_count(&self) -> u32 {
        self.open
    }

    /// How many workers take work and are idle.
    pub fn idle_count(&self) -> u32 {
        self.idle
    }

    /// A worker may take what it might not take before.
    pub fn gained(&mut self, id: WorkerId) {
        self.gained.insert(id);
    }

    /// The workers that may take what they might not when the last full round ended; `None`: more than are looked
    /// through sooner than the index finds one.
    pub fn gained_workers(&self) -> Option<Vec<WorkerId>> {
        let few = self.gained.len() <= self.index.candidates_max();
        few.then(|| self.gained.iter().copied().collect())
    }

    /// A full round ended: what could not be placed fits nowhere.
    pub fn settle_gains(&mut self) {
        self.gained.clear();
    }

    /// A worker says how loaded it is; `None`: what it said is stale. True if it may take work now that it
    /// might not take before.
    pub fn update_load(&mut self, id: WorkerId, now: Time, report: Option<Box<LoadReport>>) -> bool {
        let load = self.load;
        let before = self.get(id).map(|worker| worker.reported.saturated());
        let eased = self.update(id, |worker| {
            let network = worker.reported.saturated().network;
            let (took_work, took_builds, room) =
                (worker.takes_work(), worker.takes_builds(), worker.memory_room());
            let (is_idle, is_trusted) = (worker.booked.is_idle(), worker.flags.class.trusts_reported_memory);
            let clients_cpu = worker.booked.take_clients_cpu_max();
            worker.booked.count_what_is_used();
            worker.reported.set_load(now, report, (is_idle, is_trusted), clients_cpu, &load);
            let network_eased = network && !worker.reported.saturated().network;
            let is_open = (worker.takes_work() && !took_work) || (worker.takes_builds() && !took_builds);
            let has_more = worker.memory_room() > room || network_eased;
            (is_open || (worker.takes_builds() && has_more), network_eased)
        });
        let (eased, network_eased) = eased.unwrap_or_default();
        if network_eased {
            // Steps that are network-bound are judged again, although no room was gained.
            self.gained.insert(id);
        }
        let after = self.get(id).map(|worker| worker.reported.saturated());
        if before != after {
            let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
            self.pressed.entry(id).or_insert((before, after)).1 = after;
        }
        eased
    }

    /// Workers that lack something else for new work than when this was asked last: what they lacked, and lack now.
    pub fn take_pressed(&mut self) -> BTreeMap<WorkerId, (Saturated, Saturated)> {
        std::mem::take(&mut self.pressed)
    }

    /// Gives a worker a name that no other has.
    pub fn rename(&mut self, id: WorkerId, name: &str) {
        let Ok(at) = self.place_of(id) else { return };
        let worker = self.all[at].1.worker_mut();
        if &*worker.record.name == name {
            return;
        }
        self.by_name.remove(&worker.record.name);
        worker.record.name = name.into();
        self.by_name.insert(worker.record.name.clone(), id);
        // Steps may name it.
        self.sizes_version += 1;
    }

    /// The number of the next message to a worker.
    pub fn next_seq(&mut self, id: WorkerId) -> u64 {
        self.worker_mut(id).map_or(0, |worker| worker.link.next_seq())
    }

    /// A worker said what it holds: the number of the last message that had gone out when it did so the last time.
    pub fn beat(&mut self, id: WorkerId, now: Time, sent: u64) -> u64 {
        self.change_lease(id, |worker| worker.link.beat(now, sent)).unwrap_or(0)
    }

    /// A message to a worker goes out.
    pub fn note_out(&mut self, id: WorkerId, seq: u64) {
        if let Some(worker) = self.worker_mut(id) {
            worker.link.note_out(seq);
        }
    }

    /// [`Link::note_overdue`](crate::worker::Link::note_overdue) of a worker.
    pub fn note_overdue(&mut self, id: WorkerId, lacked: usize, overdue: usize) -> bool {
        self.worker_mut(id).is_some_and(|worker| worker.link.note_overdue(lacked, overdue))
    }

    /// A worker said something.
    pub fn hear(&mut self, id: WorkerId, now: Time) {
        self.change_lease(id, |worker| worker.link.hear(now));
    }

    /// A worker's lease is renewed.
    pub fn renew(&mut self, id: WorkerId, until: Time) {
        self.change_lease(id, |worker| worker.record.lease_until = Some(until));
    }

    /// Changes a worker in nothing but what its deadline follows: the index of room is left alone.
    fn change_lease<T>(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        let (suspect_ns, stale_ns) = (self.suspect_ns, self.load.stale_ns);
        let worker = self.worker_mut(id)?;
        let deadline = worker.deadline(suspect_ns, stale_ns);
        let result = change(worker);
        let after = worker.deadline(suspect_ns, stale_ns);
        reorder(&mut self.deadlines, id, deadline, after);
        Some(result)
    }

    /// When the first worker must be looked at.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A worker that must be looked at now.
    pub fn due(&self, now: Time) -> Option<WorkerId> {
        self.deadlines.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// The worker with this id.
    pub fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.listed(id).map(ListedWorker::worker)
    }

    /// Where the worker with this id is in the list, or where it would be.
    fn place_of(&self, id: WorkerId) -> Result<usize, usize> {
        // Numbers are given in order, so mostly the place follows from the number.
        let first = self.all.first().map_or(0, |(first, _)| first.0);
        let guess = id.0.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        if let Some(place) = guess
            && self.all.get(place).is_some_and(|(known, _)| *known == id)
        {
            return Ok(place);
        }
        self.all.binary_search_by_key(&id, |(known, _)| *known)
    }

    /// The worker with this id, to be changed in nothing that its summary has.
    fn worker_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.place_of(id).ok().map(|at| self.all[at].1.worker_mut())
    }

    /// The worker with this id, and its summary.
    pub fn listed(&self, id: WorkerId) -> Option<&ListedWorker> {
        self.place_of(id).ok().map(|at| &*self.all[at].1)
    }

    /// The worker of this name.
    pub fn by_name(&self, name: &str) -> Option<&Worker> {
        self.get(*self.by_name.get(name)?)
    }

    /// The workers of the farm by id: all but those that an administrator forgot.
    pub fn present(&self) -> impl Iterator<Item = &Worker> {
        self.iter().filter(|worker| worker.is_present())
    }

    /// The workers of the farm by id, from this one on.
    pub fn present_from(&self, first: WorkerId) -> impl Iterator<Item = &Worker> {
        let (Ok(from) | Err(from)) = self.place_of(first);
        let workers = self.all[from..].iter().map(|(_, listed)| listed.worker());
        workers.filter(|worker| worker.is_present())
    }

    /// All workers by id, also those that are gone.
    pub fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.all.iter().map(|(_, listed)| listed.worker())
    }

    /// How many there are, forgotten ones too.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if there never was any.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The largest id that any worker has; `None` without workers.
    pub fn last_id(&self) -> Option<WorkerId> {
        self.all.last().map(|(id, _)| *id)
    }

    /// The index of free room.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// True if every index is what the workers make.
    pub fn is_consistent(&self) -> bool {
        let mut rebuilt = Workers::new(self.index.saturation(), self.suspect_ns, self.load)
            .with_candidates(self.index.candidates_max());
        rebuilt.index = self.index.emptied();
        for worker in self.iter() {
            rebuilt.insert(worker.clone());
        }
        rebuilt.gained = self.gained.clone();
        rebuilt.sharing.changed = self.sharing.changed.clone();
        rebuilt.strained = self.strained;
        rebuilt.new_or_gone_queues = self.new_or_gone_queues.clone();
        rebuilt.sizes_version = self.sizes_version;
        (rebuilt.opened_count, rebuilt.change_count) = (self.opened_count, self.change_count);
        rebuilt == *self
    }

    /// All capacity of workers that get work.
    pub fn capacity(&self) -> Resources {
        let mut sum = Resources::default();
        for worker in self.iter().filter(|worker| worker.record.state == WorkerState::Up) {
            sum.add(&worker.record.capacity);
        }
        sum
    }
}

/// Counts a worker of the farm in or out (`by` is 1 or -1) at the queues that it is for alone. A queue that has its
/// first worker, or lost its last one, is put into `new_or_gone`.
fn count_queues(
    counts: &mut BTreeMap<String, u32>,
    new_or_gone: &mut BTreeSet<String>,
    worker: &Worker,
    by: i32,
) {
    for queue in worker.for_queues().into_iter().flatten() {
        let before = counts.get(queue).copied().unwrap_or(0);
        let after = before.saturating_add_signed(by);
        if before == 0 || after == 0 {
            new_or_gone.insert(queue.clone());
        }
        match after {
            0 => _ = counts.remove(queue),
            _ => _ = counts.insert(queue.clone(), after),
        }
    }
}

/// The bytes of memory of a worker that learned sizes go by.
fn memory_for_sizes(worker: &Worker) -> Option<u64> {
    worker.counts_for_sizes().then_some(worker.record.capacity.memory)
}

/// Moves a worker in an order from one key to another; true if these differ.
fn reorder<K: Ord>(
    order: &mut BTreeSet<(K, WorkerId)>,
    id: WorkerId,
    from: Option<K>,
    to: Option<K>,
) -> bool {
    if from == to {
        return false;
    }
    if let Some(key) = from {
        order.remove(&(key, id));
    }
    if let Some(key) = to {
        order.insert((key, id));
    }
    true
}

/// Puts a worker into a set or takes it out; true if it came in.
fn note(set: &mut BTreeSet<WorkerId>, id: WorkerId, is_in: bool) -> bool {
    if is_in {
        return set.insert(id);
    }
    set.remove(&id);
    false
}
