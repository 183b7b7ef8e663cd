//! The order of backlogged queues: bands strictly; inside a band the eligible queues by finish tag, then the others by
//! start tag. So eligibility orders queues and never leaves a slot idle.

use super::cost::Charge;
use super::fair::{Advance, QueueShare, Virtual, VirtualClock};
use super::saved::{QueueTurn, TurnClock};
use crate::ids::QueueId;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// How turns are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnSettings {
    /// What bookings cost a queue.
    pub charge: Charge,
    /// A queue that becomes active and owes nothing gets its first task out of turn. At most one of this number of
    /// bookings is out of turn; `None`: none is.
    pub express: Option<u32>,
}

impl Default for TurnSettings {
    fn default() -> Self {
        TurnSettings { charge: Charge::Time, express: Some(8) }
    }
}

/// The order of all queues.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TurnOrder {
    bands: BTreeMap<Reverse<u8>, Band>,
    activations: u64,
    charge: Charge,
    express: Option<u32>,
    /// Queues that are not as they were saved last.
    changed: Vec<QueueId>,
    /// The bands whose clock is not, a bit for each.
    moved: u16,
}

/// What a queue has of its band.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueTags {
    /// What it has had.
    pub share: QueueShare,
    /// Of its places of outside clients, what they were charged through. Unlike tasks they are charged for more at their
    /// end alone.
    pub places: Advance,
    /// Its builds that want more cpus.
    pub(super) wanting: u32,
    /// When the last of these ceased to want more.
    pub(super) content_since: Time,
    /// Which activation it is in: of equals the older goes first.
    since: u64,
    /// It stands in line.
    listed: bool,
    /// It takes part in the clock.
    counted: bool,
    /// It has work that waits.
    waits: bool,
    /// Others were served since while it could not be.
    passed: bool,
    /// It became active without debt and was not served since.
    express_eligible: bool,
    /// It is not as it was saved last, and [`TurnOrder`] knows it.
    changed: bool,
    /// A store may have a record of it.
    pub(super) saved: bool,
}

/// One band: who stands where, and its clock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Band {
    order: BTreeSet<OrderKey>,
    /// The same queues by start tag, with their finish tags and activations.
    starts: BTreeMap<(Virtual, QueueId), (Virtual, u64)>,
    clock: VirtualClock,
    /// What the clock showed when the order was made.
    sorted: Virtual,
    /// Those in line that are fresh, oldest first.
    express_eligible: BTreeSet<(u64, QueueId)>,
    /// Bookings until another may be out of turn.
    express_in: u32,
}

/// Where a queue stands in its band.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct OrderKey {
    /// It had more than its share; these come last.
    ahead: bool,
    /// The finish tag, or the start tag of a queue that is ahead.
    key: Virtual,
    since: u64,
    id: QueueId,
}

impl QueueTags {
    /// True if it has work that waits.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// True if its next task may go out of turn: it became active without debt and was not served since.
    pub(super) fn is_express(&self) -> bool {
        self.express_eligible
    }
}

impl TurnOrder {
    /// An order without queues.
    pub fn new(settings: TurnSettings) -> Self {
        TurnOrder { express: settings.express, charge: settings.charge, ..TurnOrder::default() }
    }

    /// Another order with the same settings, without queues.
    pub fn alike(&self) -> TurnOrder {
        TurnOrder { express: self.express, charge: self.charge, ..TurnOrder::default() }
    }

    /// True if bookings cost one each, whatever time they take.
    pub fn counts_tasks(&self) -> bool {
        self.charge == Charge::Task
    }

    /// The queue of a band that stands in line and had least.
    pub fn least(&self, band: u8) -> Option<QueueId> {
        self.bands.get(&Reverse(band))?.starts.keys().next().map(|(_, id)| *id)
    }

    /// The clock of a band shows no less than this.
    pub fn catch_up(&mut self, band: u8, served: Virtual) {
        self.note_clock(band);
        let queues = self.band(band);
        queues.clock.catch_up(served);
        queues.sort();
    }

    /// A queue has work again.
    pub fn activate(&mut self, id: QueueId, band: u8, tags: &mut QueueTags) {
        self.note(id, tags);
        // A start tag means nothing without its clock, which may not have moved yet.
        self.note_clock(band);
        self.activations += 1;
        tags.since = self.activations;
        let express = self.express.is_some();
        let queues = self.band(band);
        let clock = queues.clock.virtual_time();
        tags.express_eligible = express && tags.share.start_tag() <= clock;
        tags.share.wake(clock);
        (tags.waits, tags.passed) = (true, false);
        queues.count(tags);
        queues.enter(id, tags);
    }

    /// A queue comes from another band, whose clock shows something else.
    pub fn join_band(&mut self, id: QueueId, band: u8, tags: &mut QueueTags) {
        self.note(id, tags);
        let clock = self.band(band).clock.virtual_time();
        tags.share.restart(clock);
    }

    /// A queue has no work any more.
    pub fn deactivate(&mut self, id: QueueId, band: u8, tags: &mut QueueTags) {
        self.note(id, tags);
        let queues = self.band(band);
        queues.exit(id, tags);
        tags.waits = false;
        queues.count(tags);
    }

    /// A queue has nothing more that could be placed in this round: it does not stand in line until it is
    /// told to.
    pub fn suspend(&mut self, id: QueueId, band: u8, tags: &mut QueueTags) {
        self.band(band).exit(id, tags);
    }

    /// It stands in line again.
    pub fn resume(&mut self, id: QueueId, band: u8, tags: &mut QueueTags) {
        self.band(band).enter(id, tags);
    }

    /// Others were served while it could not be: the clock goes on without it.
    pub fn pass_over(&mut self, id: QueueId, band: u8, tags: &mut QueueTags) {
        if !std::mem::replace(&mut tags.passed, true) {
            self.note(id, tags);
            self.band(band).count(tags);
        }
    }

    /// A task of the queue was booked, at this cost.
    pub fn charge(&mut self, id: QueueId, band: u8, tags: &mut QueueTags, cost: u64) {
        self.note(id, tags);
        self.note_clock(band);
        let (express, by_task) = (self.express, self.charge == Charge::Task);
        let queues = self.band(band);
        let out_of_turn = queues.order.first().is_some_and(|place| place.id != id);
        queues.express_in = match express.filter(|_| tags.express_eligible && out_of_turn) {
            Some(every) => every.saturating_sub(1),
            None => queues.express_in.saturating_sub(1),
        };
        let passed = std::mem::replace(&mut tags.passed, false);
        queues.count(tags);
        queues.catch_up();
        let clock = queues.clock.virtual_time();
        queues.change(id, tags, |tags| {
            tags.express_eligible = false;
            if passed {
                tags.share.forgive(clock);
            }
            tags.share.charge(cost);
        });
        if by_task {
            queues.clock.run(cost.into());
        }
        queues.sort();
    }

    /// Corrects what a task of the queue was charged; see [`QueueShare::correct`].
    pub fn correct(&mut self, id: QueueId, band: u8, tags: &mut QueueTags, by: i64, task: Option<u64>) {
        self.note(id, tags);
        let by_task = self.charge == Charge::Task;
        self.moved |= u16::from(by_task) << band;
        let queues = self.band(band);
        queues.change(id, tags, |tags| tags.share.correct(by, task));
        if by_task {
            queues.clock.run(by.into());
        }
        queues.sort();
    }

    /// A queue loses credit: its start tag is later by this much.
    pub fn raise(&mut self, id: QueueId, band: u8, tags: &mut QueueTags, by: Virtual) {
        self.note(id, tags);
        let queues = self.band(band);
        queues.change(id, tags, |tags| tags.share.raise(by));
        queues.sort();
    }

    /// The queue has another weight.
    pub fn set_weight(&mut self, id: QueueId, band: u8, tags: &mut QueueTags, weight: u32) {
        self.note(id, tags);
        self.band(band).change(id, tags, |tags| tags.share.set_weight(weight));
    }

    /// The queue whose turn it is.
    pub fn first(&self) -> Option<QueueId> {
        self.bands.values().find_map(|queues| {
            let express_eligible =
                queues.express_eligible.first().filter(|_| queues.express_in == 0).map(|(_, id)| *id);
            express_eligible.or_else(|| queues.order.first().map(|place| place.id))
        })
    }

    /// All that stand in line, in order.
    pub fn iter(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.bands.values().flat_map(|queues| queues.order.iter().map(|place| place.id))
    }

    /// How many stand in line.
    pub fn len(&self) -> usize {
        self.bands.values().map(|queues| queues.order.len()).sum()
    }

    /// A queue is to be saved, for it has changed.
    pub fn note(&mut self, id: QueueId, tags: &mut QueueTags) {
        if !std::mem::replace(&mut tags.changed, true) {
            self.changed.push(id);
        }
    }

    /// The queue is gone. Its id may be given to another one, or to a user's part, before the next save.
    pub fn forget(&mut self, id: QueueId) {
        self.changed.retain(|changed| *changed != id);
    }

    /// The clock of a band is to be saved.
    pub fn note_clock(&mut self, band: u8) {
        self.moved |= 1 << band;
    }

    /// True if something is to be saved.
    pub fn has_changes(&self) -> bool {
        self.moved != 0 || !self.changed.is_empty()
    }

    /// The queues and the bands' clocks that are to be saved. Each queue is asked for [`TurnOrder::to_save`].
    pub fn take_changed(&mut self) -> (Vec<QueueId>, u16) {
        (std::mem::take(&mut self.changed), std::mem::take(&mut self.moved))
    }

    /// What is to be saved of a queue; `None` if nothing is, and `Some(None)` if its record is to go.
    pub fn to_save(&self, band: u8, tags: &mut QueueTags, now: Time) -> Option<Option<QueueTurn>> {
        if !std::mem::take(&mut tags.changed) {
            return None;
        }
        let is_needed = self.is_needed(band, tags);
        let was_saved = std::mem::replace(&mut tags.saved, is_needed);
        let (start, rest) = tags.share.exact_start();
        let (ahead, rate) = tags.share.advance.unrun(now);
        let turn = QueueTurn {
            band,
            start,
            rest,
            weight: tags.share.weight(),
            task: tags.share.task(),
            since: tags.since,
            waits: tags.waits,
            passed: tags.passed,
            express: tags.express_eligible,
            ahead,
            rate,
            at: now,
        };
        (is_needed || was_saved).then_some(Some(turn).filter(|_| is_needed))
    }

    /// True unless the queue stands where one would that nothing is known of.
    pub fn is_needed(&self, band: u8, tags: &QueueTags) -> bool {
        let debt = tags.share.start_tag() > self.virtual_time(band);
        debt || tags.waits || tags.share.advance != Default::default()
    }

    /// What the clock of a band shows.
    pub fn virtual_time(&self, band: u8) -> Virtual {
        self.bands.get(&Reverse(band)).map_or(0, |queues| queues.clock.virtual_time())
    }

    /// The clock of a band as it is saved.
    pub fn clock_to_save(&self, band: u8) -> TurnClock {
        let express_in = self.bands.get(&Reverse(band)).map_or(0, |queues| queues.express_in);
        TurnClock { virtual_time: self.virtual_time(band), express_in, charge: self.charge }
    }

    /// The clock of a band goes on from where it was saved. No queue is in the band yet.
    pub fn restore_clock(&mut self, band: u8, clock: &TurnClock) {
        let queues = self.band(band);
        queues.clock.set(clock.virtual_time);
        (queues.sorted, queues.express_in) = (clock.virtual_time, clock.express_in);
    }

    /// A queue goes on from where it was saved. It stands in line when it is told to.
    pub fn restore(&mut self, band: u8, tags: &mut QueueTags, turn: &QueueTurn) {
        self.activations = self.activations.max(turn.since);
        tags.share.restore(turn.start, turn.rest, turn.weight, turn.task);
        tags.since = turn.since;
        tags.express_eligible = turn.express && self.express.is_some();
        (tags.waits, tags.passed, tags.saved) = (turn.waits, turn.passed, true);
        self.band(band).count(tags);
    }

    fn band(&mut self, band: u8) -> &mut Band {
        self.bands.entry(Reverse(band)).or_default()
    }
}

impl Band {
    fn enter(&mut self, id: QueueId, tags: &mut QueueTags) {
        if std::mem::replace(&mut tags.listed, true) {
            return;
        }
        let (share, since) = (&tags.share, tags.since);
        self.starts.insert((share.start_tag(), id), (share.finish_tag(), since));
        self.order.insert(OrderKey::of(id, share.start_tag(), share.finish_tag(), since, self.sorted));
        if tags.express_eligible {
            self.express_eligible.insert((since, id));
        }
    }

    fn exit(&mut self, id: QueueId, tags: &mut QueueTags) {
        if !std::mem::replace(&mut tags.listed, false) {
            return;
        }
        let start = tags.share.start_tag();
        if let Some((finish, since)) = self.starts.remove(&(start, id)) {
            self.order.remove(&OrderKey::of(id, start, finish, since, self.sorted));
            self.express_eligible.remove(&(since, id));
        }
    }

    /// A queue takes part while it waits and is not passed over.
    fn count(&mut self, tags: &mut QueueTags) {
        let counted = tags.waits && !tags.passed;
        if std::mem::replace(&mut tags.counted, counted) != counted {
            if counted { self.clock.join(&tags.share) } else { self.clock.leave(&tags.share) }
        }
    }

    fn change(&mut self, id: QueueId, tags: &mut QueueTags, change: impl FnOnce(&mut QueueTags)) {
        let was_listed = tags.listed;
        self.exit(id, tags);
        if tags.counted {
            self.clock.leave(&tags.share);
        }
        change(tags);
        if tags.counted {
            self.clock.join(&tags.share);
        }
        if was_listed {
            self.enter(id, tags);
        }
    }

    /// The clock is never behind all queues that stand in line.
    fn catch_up(&mut self) {
        if let Some(((start, _), _)) = self.starts.first_key_value() {
            self.clock.catch_up(*start);
        }
    }

    /// Brings the order in line with the clock: queues became eligible since, or ceased to be.
    fn sort(&mut self) {
        let (before, now) = (self.sorted, self.clock.virtual_time());
        self.sorted = now;
        let (low, high) = (before.min(now), before.max(now));
        for (&(start, id), &(finish, since)) in
            self.starts.range((low + 1, QueueId(0))..(high + 1, QueueId(0)))
        {
            self.order.remove(&OrderKey::of(id, start, finish, since, before));
            self.order.insert(OrderKey::of(id, start, finish, since, now));
        }
    }
}

impl OrderKey {
    fn of(id: QueueId, start: Virtual, finish: Virtual, since: u64, clock: Virtual) -> Self {
        let ahead = start > clock;
        OrderKey { ahead, key: if ahead { start } else { finish }, since, id }
    }
}
