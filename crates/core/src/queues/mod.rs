//! Whose turn it is: strict bands first, inside a band the queue that has had least for its weight, inside a queue
//! the user who has had least for theirs, and of one user priority, then the time since when a step is ready less the
//! head start that the tasks behind it give it, then its id.
//!
//! Properties: a band with work that fits is served before any lower band; a queue that was idle
//! comes in at the clock of its band, so it neither gathers credit nor pays for others, and keeps its debt;
//! one whose work fits nowhere stops no other, and has credit for one task when it fits again; the cost of
//! finding the next step follows queues and classes, never tasks.

mod bands;
mod cost;
mod fair;
mod filter;
mod queue;
mod record;
mod saved;
mod turn;
mod users;

pub use bands::band_of;
pub(crate) use cost::{ADVANCE, UNKNOWN_MS, cost, dominant_share, first_cost};
pub use fair::{Advance, QueueShare};
pub use filter::RoundFilter;
pub use queue::Queue;
pub use record::{BAND_MAX, BadSetting, QueueRecord, TurnsBy, WEIGHT_DEFAULT, check_name};
pub use saved::{ClockOf, ClockRecord, QueueTurn, RestoredAdvance, SavedTurns, TurnClock, TurnRecord};

use crate::bounds;
use crate::ids::{ClassId, QueueId, StepKey};
use crate::job::QueuedStep;
use crate::time::Time;
use queue::Waiting;
use saved::RestoredTurns;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use turn::TurnOrder;

/// What bookings cost a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Charge {
    /// The time that they hold of a worker: an estimate at first, corrected when they end.
    #[default]
    Time,
    /// One each. In this mode no queue that always has work is ever more than one task from its share.
    Task,
}

/// How turns are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnSettings {
    /// What bookings cost a queue.
    pub charge: Charge,
    /// A queue that becomes active and owes nothing gets its first task out of turn, one booking in so many
    /// at most; `None`: it waits for its turn.
    pub express: Option<u32>,
}

impl Default for TurnSettings {
    fn default() -> Self {
        TurnSettings { charge: Charge::Time, express: Some(8) }
    }
}

/// Who has the next turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead<'a> {
    /// Another queue.
    Queue(&'a str),
    /// Another user of the same queue.
    User(&'a str),
}

/// All queues.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Queues {
    all: Vec<Queue>,
    by_name: BTreeMap<String, QueueId>,
    turns: TurnOrder,
    /// Queues of which something is booked.
    active: BTreeSet<QueueId>,
    /// Places of queues that are gone.
    free: Vec<QueueId>,
    /// Where the next look for queues that nobody uses begins.
    looked: usize,
    now: Time,
    /// Queues that wait with steps of a class.
    by_class: BTreeMap<ClassId, BTreeSet<QueueId>>,
    /// Classes of which nothing waits any more, since somebody asked.
    vanished: BTreeSet<ClassId>,
    /// Queues of whose users some are not as they were saved last.
    changed_users: Vec<QueueId>,
    /// Records of turns that are to go.
    forgotten: SavedTurns,
    /// Turns that were taken up from a store, until all of its work was.
    restored: RestoredTurns,
}

impl Queues {
    /// No queues yet.
    pub fn new(settings: TurnSettings) -> Self {
        Queues { turns: TurnOrder::new(settings), ..Queues::default() }
    }

    /// The queue of that name, made if there is none.
    pub fn intern(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.by_name.get(name) {
            self.all[id.0 as usize].used = self.now;
            return *id;
        }
        let id = self.add(Queue::new(QueueRecord::named(name), self.now));
        self.by_name.insert(name.to_owned(), id);
        id
    }

    fn add(&mut self, queue: Queue) -> QueueId {
        match self.free.pop() {
            Some(id) => {
                self.all[id.0 as usize] = queue;
                id
            }
            None => {
                self.all.push(queue);
                QueueId(self.all.len() as u32 - 1)
            }
        }
    }

    /// The queue of that name, if there is one.
    pub fn id(&self, name: &str) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

    /// Sets a queue as a record says, made if there is none.
    pub fn set(&mut self, record: &QueueRecord) {
        let id = self.intern(&record.name);
        let queue = &mut self.all[id.0 as usize];
        let (waited, band) = (queue.is_waiting(), queue.band());
        if std::mem::take(&mut queue.awaits) {
            self.turns.deactivate(id, band, &mut queue.tags);
        }
        queue.record = record.clone();
        let moved = band != queue.band();
        if waited && (moved || !queue.is_waiting()) {
            self.turns.deactivate(id, band, &mut queue.tags);
        }
        if moved {
            self.turns.join_band(id, queue.band(), &mut queue.tags);
        }
        self.turns.set_weight(id, queue.band(), &mut queue.tags, record.weight);
        let queue_wakes = queue.is_waiting() && (moved || !waited);
        if queue_wakes {
            self.wake(id);
        }
        self.set_users(id);
        let waits = self.get(id).is_waiting();
        let parts = self.parts(id).collect::<Vec<_>>();
        let classes =
            parts.into_iter().flat_map(|part| self.get(part).by_class.keys().map(move |c| (part, *c)));
        let classes: Vec<(QueueId, ClassId)> = classes.collect();
        classes.into_iter().for_each(|(part, class)| self.note_class(part, class, waits));
    }

    fn note_class(&mut self, id: QueueId, class: ClassId, waits: bool) {
        if waits {
            self.by_class.entry(class).or_default().insert(id);
        } else if let Some(queues) = self.by_class.get_mut(&class) {
            queues.remove(&id);
            if queues.is_empty() {
                self.by_class.remove(&class);
                self.vanished.insert(class);
            }
        }
    }

    /// The queue with this id.
    pub fn get(&self, id: QueueId) -> &Queue {
        &self.all[id.0 as usize]
    }

    /// All queues as wholes, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.with_ids().map(|(_, queue)| queue)
    }

    /// All queues as wholes, with their ids.
    pub fn with_ids(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.parts_with_ids().filter(|(_, queue)| queue.whole.is_none())
    }

    /// All queues and all users' parts, with their ids.
    pub fn parts_with_ids(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        (0..).map(QueueId).zip(&self.all).filter(|(_, queue)| !queue.gone)
    }

    /// A job of the queue is held from now on, or no more.
    pub fn count_job(&mut self, id: QueueId, by: i32) {
        for id in self.with_whole(id) {
            let queue = &mut self.all[id.0 as usize];
            queue.jobs = queue.jobs.saturating_add_signed(by);
            queue.used = self.now;
        }
    }

    /// Forgets queues that nobody set and nobody has used for long, with what they had; looks at some of them.
    /// `is_needed` tells of one whether something else still names it.
    pub fn prune(&mut self, is_needed: impl Fn(QueueId) -> bool) {
        for _ in 0..bounds::PRUNED_MAX.min(self.all.len()) {
            self.looked = (self.looked + 1) % self.all.len();
            let id = QueueId(self.looked as u32);
            self.drop_paid_turn(id);
            let queue = &self.all[self.looked];
            let idle = queue.jobs == 0 && queue.active == 0 && queue.by_class.is_empty();
            let unset = queue.whole.is_some() || queue.record == QueueRecord::named(&queue.record.name);
            let old = self.now.since(queue.used) >= bounds::QUEUE_IDLE_NS;
            let named = queue.parked || queue.awaits || self.has_users(id) || self.is_user_parked(id);
            if queue.gone || !idle || !unset || !old || named || is_needed(id) {
                continue;
            }
            match queue.whole {
                Some(_) => self.forget_user(id),
                None => self.forget_name(id),
            }
            self.all[self.looked].gone = true;
            self.free.push(id);
        }
    }

    fn forget_name(&mut self, id: QueueId) {
        let queue = &mut self.all[id.0 as usize];
        let (name, tags) = (queue.record.name.clone(), std::mem::take(&mut queue.tags));
        self.by_name.remove(&name);
        self.turns.forget(id);
        if tags.saved {
            self.forget_turn(name, None);
        }
    }

    /// All queues by name.
    pub fn by_name(&self) -> impl Iterator<Item = &Queue> {
        self.by_name.values().map(|id| self.get(*id))
    }

    /// Adds a step that has ready tasks.
    pub fn insert(&mut self, id: QueueId, class: ClassId, queued_step: QueuedStep) {
        let whole = self.whole(id);
        let waited = self.get(whole).is_waiting();
        let queue = &mut self.all[id.0 as usize];
        let (is_first, was_empty) = (!queue.by_class.contains_key(&class), queue.by_class.is_empty());
        queue.open(class, queued_step);
        if was_empty {
            self.user_waits(id);
        }
        let queue = &mut self.all[whole.0 as usize];
        if !waited && queue.is_waiting() {
            // Who waited for its own work to be read was never idle.
            if std::mem::take(&mut queue.awaits) {
                self.turns.resume(whole, queue.band(), &mut queue.tags);
            } else {
                self.wake(whole);
            }
        }
        if is_first && self.get(whole).is_waiting() {
            self.note_class(id, class, true);
        }
    }

    /// Takes out a step that has no ready tasks any more.
    pub fn remove(&mut self, id: QueueId, class: ClassId, queued_step: &QueuedStep) {
        let whole = self.whole(id);
        let waited = self.get(whole).is_waiting();
        let queue = &mut self.all[id.0 as usize];
        queue.close(class, queued_step);
        let Some(steps) = queue.by_class.get_mut(&class) else { return };
        steps.aside.remove(queued_step);
        if !steps.is_empty() {
            return;
        }
        queue.by_class.remove(&class);
        if queue.by_class.is_empty() {
            self.user_is_done(id);
        }
        let is_restored = self.restored.has_queue(whole);
        let queue = &mut self.all[whole.0 as usize];
        if waited && !queue.is_waiting() {
            queue.awaits = queue.parked || is_restored;
            if queue.awaits {
                self.turns.suspend(whole, queue.band(), &mut queue.tags);
            } else {
                self.turns.deactivate(whole, queue.band(), &mut queue.tags);
            }
        }
        self.note_class(id, class, false);
    }

    /// What time it is.
    pub fn tell_time(&mut self, now: Time) {
        self.now = now;
    }

    /// A queue has work again, and nothing that waited before. What others had until now they did not take from
    /// it: it comes in level with the one that waits with least, by what that one's tasks have run. Where nobody
    /// waits, it comes in level with all that run.
    fn wake(&mut self, id: QueueId) {
        let band = self.get(id).band();
        let served = |id: &QueueId| self.get(*id).share().served(self.now);
        let level = match self.turns.least(band) {
            Some(least) => Some(served(&least)),
            None => self.active.iter().filter(|id| self.get(**id).band() == band).map(served).max(),
        };
        if let Some(level) = level {
            self.turns.catch_up(band, level);
        }
        self.turns.activate(id, band, &mut self.all[id.0 as usize].tags);
    }

    /// What a queue's tasks were charged in advance is something else from now on.
    pub fn advance(&mut self, id: QueueId, before: &Advance, after: &Advance) {
        self.with_user(id, |_, tags| tags.share.advance.change(before, after));
        let whole = self.whole(id);
        self.all[whole.0 as usize].tags.share.advance.change(before, after);
    }

    /// A rule holds a step on every worker with room: rounds do not look at it until it is taken back.
    pub fn set_aside(&mut self, id: QueueId, class: ClassId, queued_step: QueuedStep) {
        let queue = &mut self.all[id.0 as usize];
        if queue.close(class, &queued_step)
            && let Some(steps) = queue.by_class.get_mut(&class)
        {
            steps.aside.insert(queued_step);
        }
    }

    /// Rounds look at a step again that was set aside.
    pub fn take_back(&mut self, id: QueueId, class: ClassId, queued_step: QueuedStep) {
        let queue = &mut self.all[id.0 as usize];
        if queue.by_class.get_mut(&class).is_some_and(|steps| steps.aside.remove(&queued_step)) {
            queue.open(class, queued_step);
        }
    }

    /// True if a step was set aside and not taken back.
    pub fn is_aside(&self, id: QueueId, class: ClassId, queued_step: &QueuedStep) -> bool {
        self.get(id).by_class.get(&class).is_some_and(|steps| steps.aside.contains(queued_step))
    }

    /// How many steps are set aside.
    pub fn aside(&self) -> usize {
        self.all.iter().flat_map(|queue| queue.by_class.values()).map(|steps| steps.aside.len()).sum()
    }

    /// Whether more work of the queue is parked. While it is the queue does not count as idle, though nothing
    /// of it is here.
    pub fn set_parked(&mut self, id: QueueId, parked: bool) {
        let queue = &mut self.all[id.0 as usize];
        queue.parked = parked;
        if queue.awaits && !parked {
            queue.awaits = false;
            self.turns.deactivate(id, queue.band(), &mut queue.tags);
        }
    }

    /// The queues that have ready steps, in the order of their turns.
    pub fn wholes_in_turn(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.turns.iter().map(|id| (id, self.get(id)))
    }

    /// The queues that have ready steps, in the order of their turns; of one with several users, each user's part
    /// in the order of theirs.
    pub fn in_turn(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.turns.iter().flat_map(|id| self.users_in_turn(id)).map(|id| (id, self.get(id)))
    }

    /// How many queues have ready steps.
    pub fn waiting(&self) -> usize {
        self.turns.len()
    }

    /// The classes of steps that wait, in order.
    pub fn classes(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.by_class.keys().copied()
    }

    /// How many classes of steps wait.
    pub fn class_count(&self) -> usize {
        self.by_class.len()
    }

    /// Classes of which nothing waits any more, since this was asked last.
    pub fn take_vanished(&mut self) -> BTreeSet<ClassId> {
        std::mem::take(&mut self.vanished)
    }

    /// True if a step of this class waits.
    pub fn has_class(&self, class: ClassId) -> bool {
        self.by_class.contains_key(&class)
    }

    /// The steps of a class that wait, of all queues.
    pub fn steps_of(&self, class: ClassId) -> impl Iterator<Item = StepKey> + '_ {
        let queues = self.by_class.get(&class).into_iter().flatten();
        let of_class = move |id: &QueueId| self.get(*id).by_class.get(&class);
        let steps = queues.filter_map(of_class).flat_map(Waiting::all);
        steps.map(QueuedStep::step)
    }

    /// True if it is out of turn to place this step while work of a class waits: that waits in a higher band,
    /// in a queue of its band that had no more of its share, with a user of its queue who had no more of theirs, or
    /// with its user in no lower priority.
    pub fn overtakes(&self, id: QueueId, queued_step: &QueuedStep, waiting: ClassId) -> bool {
        let (whole, band) = (self.whole(id), self.get(id).band());
        let start = |id: QueueId| self.get(self.whole(id)).share().start_tag();
        self.by_class.get(&waiting).into_iter().flatten().any(|other| {
            let queue = self.get(*other);
            match queue.band().cmp(&band) {
                Ordering::Equal if *other == id => {
                    let first = queue.by_class.get(&waiting).and_then(Waiting::first);
                    first.is_some_and(|first| first.is_peer(queued_step) || first < queued_step)
                }
                Ordering::Equal if self.whole(*other) == whole => {
                    let start = |id: QueueId| self.user_share(id).map(QueueShare::start_tag);
                    start(*other) <= start(id)
                }
                Ordering::Equal => start(*other) <= start(id),
                order => order == Ordering::Greater,
            }
        })
    }

    /// The highest band in which work of a class waits.
    pub fn band_of(&self, class: ClassId) -> Option<u8> {
        self.by_class.get(&class)?.iter().map(|id| self.get(*id).band()).max()
    }

    /// The step whose turn it is, of those that are not skipped. `is_open` tells of a class whether something of it
    /// may be placed; what is closed once stays so for as long as the same `filter` is used.
    pub fn next(
        &mut self,
        filter: &mut RoundFilter,
        is_open: &dyn Fn(ClassId) -> bool,
    ) -> Option<(QueueId, QueuedStep, ClassId)> {
        while let Some(id) = self.turns.first() {
            if let Some(next) = self.next_of(id, filter, is_open) {
                return Some(next);
            }
            let queue = &mut self.all[id.0 as usize];
            self.turns.suspend(id, queue.band(), &mut queue.tags);
            filter.exhausted.all.push(id);
        }
        None
    }

    /// Who had nothing that fitted stands in line again.
    pub fn resume_exhausted(&mut self, filter: &mut RoundFilter) {
        filter.cursors.clear();
        for exhausted in std::mem::take(&mut filter.exhausted_users).into_values() {
            exhausted.all.into_iter().for_each(|id| self.resume_user(id));
        }
        for id in std::mem::take(&mut filter.exhausted).all {
            let queue = &mut self.all[id.0 as usize];
            if queue.is_waiting() {
                self.turns.resume(id, queue.band(), &mut queue.tags);
            }
        }
    }

    /// One task of the queue was booked, at this cost. Queues of its band, and users of the queue, whose turn it was
    /// and that had nothing that fitted were passed over.
    pub fn charge(&mut self, id: QueueId, cost: u64, filter: &mut RoundFilter) {
        self.charge_user(id, cost, filter);
        let (whole, band) = (self.whole(id), self.get(id).band());
        for passed in filter.exhausted.take_passed() {
            let queue = &mut self.all[passed.0 as usize];
            if *passed != whole && queue.band() == band {
                self.turns.pass_over(*passed, band, &mut queue.tags);
            }
        }
        let queue = &mut self.all[whole.0 as usize];
        queue.charged += i128::from(cost);
        self.turns.charge(whole, band, &mut queue.tags, cost);
    }

    /// An attempt of the queue holds this many hundredths of a core from now on.
    pub fn hold(&mut self, id: QueueId, cpu: u32) {
        for id in self.with_whole(id) {
            let queue = &mut self.all[id.0 as usize];
            queue.active += 1;
            queue.booked_cpu += u64::from(cpu);
        }
        let whole = self.whole(id);
        self.active.insert(whole);
        self.user_holds(id);
    }

    /// A booked task of the queue gets `cpu` more, in hundredths of a core.
    pub fn widen(&mut self, id: QueueId, cpu: u32) {
        for id in self.with_whole(id) {
            self.all[id.0 as usize].booked_cpu += u64::from(cpu);
        }
    }

    /// Hundredths of a core that a queue may book beyond what it has before it is at its quota; `None` without one.
    pub fn room_in_quota(&self, id: QueueId) -> Option<u32> {
        let queue = self.get(self.whole(id));
        let booked = u32::try_from(queue.booked_cpu).unwrap_or(u32::MAX);
        queue.record.quota_cpu.map(|quota| quota.saturating_sub(booked))
    }

    /// What a task of the queue was charged is corrected by this much; see [`QueueShare::correct`].
    pub fn correct(&mut self, id: QueueId, by: i64, task: Option<u64>) {
        self.correct_user(id, by, task);
        let whole = self.whole(id);
        let queue = &mut self.all[whole.0 as usize];
        queue.charged += i128::from(by);
        let band = queue.band();
        self.turns.correct(whole, band, &mut queue.tags, by, task);
        if self.turns.least(band).is_none() {
            // Nobody waits: what this queue had it took from nobody.
            let served = self.get(whole).share().served(self.now);
            self.turns.catch_up(band, served);
        }
    }

    /// Milliseconds that a task of the queue runs, as a mean over the last ones; `None` before the first.
    pub fn mean_ms(&self, id: QueueId) -> Option<f64> {
        self.get(self.whole(id)).mean_ms
    }

    /// A task of the queue ran to its end in this many milliseconds.
    pub fn learn(&mut self, id: QueueId, ms: f64) {
        let whole = self.whole(id);
        let mean = &mut self.all[whole.0 as usize].mean_ms;
        *mean = Some(mean.map_or(ms, |mean| mean + (ms - mean) / 8.0));
    }

    /// An attempt of the queue ended.
    pub fn settle(&mut self, id: QueueId, cpu: u32) {
        self.user_settles(id);
        for id in self.with_whole(id) {
            let queue = &mut self.all[id.0 as usize];
            queue.active = queue.active.saturating_sub(1);
            if queue.active == 0 {
                self.active.remove(&id);
            }
            queue.booked_cpu = queue.booked_cpu.saturating_sub(u64::from(cpu));
        }
    }

    /// The quota of a queue that would be exceeded by this many hundredths of a core more; `alone`: nobody else can use
    /// them.
    pub fn over_quota(&self, id: QueueId, cpu: u32, alone: bool) -> Option<u32> {
        self.get(self.whole(id)).over_quota(cpu, alone)
    }

    /// Who is next, if it is not this queue or this user's part of it.
    pub fn first_ahead(&self, id: QueueId) -> Option<Ahead<'_>> {
        let whole = self.whole(id);
        match self.turns.first() {
            Some(first) if first != whole => Some(Ahead::Queue(self.get(first).name())),
            _ => {
                let first = self.users_in_turn(whole).next().filter(|first| *first != id)?;
                self.get(first).user().map(Ahead::User)
            }
        }
    }

    /// How many queues with ready steps come before this one.
    pub fn queues_ahead(&self, id: QueueId) -> usize {
        let whole = self.whole(id);
        self.turns.iter().take_while(|other| *other != whole).count()
    }

    /// How many other users of its queue come before this user.
    pub fn users_ahead(&self, id: QueueId) -> usize {
        self.users_in_turn(self.whole(id)).take_while(|other| *other != id).count()
    }
}
