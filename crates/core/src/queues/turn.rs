//! The order of queues that have work: bands strictly, inside a band the eligible by deadline, then the
//! others by start time, so that being eligible orders and never leaves a slot idle.

use super::fair::{Clock, Share, Virtual};
use super::{Charge, TurnSettings};
use crate::ids::QueueId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The order of all queues.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Turns {
    bands: BTreeMap<Reverse<u8>, Band>,
    activations: u64,
    charge: Charge,
    /// One booking in so many may go to a queue that became active just now, out of turn; `None`: none.
    express: Option<u32>,
}

/// What a queue has of its band.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// What it has had.
    pub share: Share,
    /// Which activation it is in: of equals the older goes first.
    since: u64,
    /// It stands in line.
    stands: bool,
    /// It takes part in the clock.
    counted: bool,
    /// It has work that waits.
    waits: bool,
    /// Others were served since while it could not be.
    passed: bool,
    /// It became active without debt and was not served since.
    fresh: bool,
}

/// One band: who stands where, and its clock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Band {
    order: BTreeSet<Place>,
    /// The same queues by start time, with their deadlines and activations.
    starts: BTreeMap<(Virtual, QueueId), (Virtual, u64)>,
    clock: Clock,
    /// What the clock showed when the order was made.
    sorted: Virtual,
    /// Those in line that are fresh, oldest first.
    fresh: BTreeSet<(u64, QueueId)>,
    /// Bookings until another may be out of turn.
    express_in: u32,
}

/// Where a queue stands in its band.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    /// It had more than its share; these come last.
    ahead: bool,
    /// The deadline, or the start time of one that is ahead.
    key: Virtual,
    since: u64,
    id: QueueId,
}

impl Turns {
    /// No queues yet.
    pub fn new(settings: TurnSettings) -> Self {
        Turns { express: settings.express, charge: settings.charge, ..Turns::default() }
    }

    /// The queue of a band that stands in line and had least.
    pub fn least(&self, band: u8) -> Option<QueueId> {
        self.bands.get(&Reverse(band))?.starts.keys().next().map(|(_, id)| *id)
    }

    /// The clock of a band shows no less than this.
    pub fn catch_up(&mut self, band: u8, served: Virtual) {
        let line = self.line(band);
        line.clock.catch_up(served);
        line.sort();
    }

    /// A queue has work again.
    pub fn wake(&mut self, id: QueueId, band: u8, standing: &mut Standing) {
        self.activations += 1;
        standing.since = self.activations;
        let express = self.express.is_some();
        let line = self.line(band);
        let clock = line.clock.shows();
        standing.fresh = express && standing.share.start() <= clock;
        standing.share.wake(clock);
        (standing.waits, standing.passed) = (true, false);
        line.count(standing);
        line.enter(id, standing);
    }

    /// A queue comes from another band, whose clock shows something else.
    pub fn arrive(&mut self, band: u8, standing: &mut Standing) {
        let clock = self.line(band).clock.shows();
        standing.share.restart(clock);
    }

    /// A queue has no work any more.
    pub fn rest(&mut self, id: QueueId, band: u8, standing: &mut Standing) {
        let line = self.line(band);
        line.exit(id, standing);
        standing.waits = false;
        line.count(standing);
    }

    /// A queue has nothing more that could be placed in this round: it does not stand in line until it is
    /// told to.
    pub fn sit(&mut self, id: QueueId, band: u8, standing: &mut Standing) {
        self.line(band).exit(id, standing);
    }

    /// It stands in line again.
    pub fn stand(&mut self, id: QueueId, band: u8, standing: &mut Standing) {
        self.line(band).enter(id, standing);
    }

    /// Others were served while it could not be: the clock goes on without it.
    pub fn pass_over(&mut self, band: u8, standing: &mut Standing) {
        standing.passed = true;
        self.line(band).count(standing);
    }

    /// A task of the queue was booked, for so much.
    pub fn charge(&mut self, id: QueueId, band: u8, standing: &mut Standing, cost: u64) {
        let (express, by_task) = (self.express, self.charge == Charge::Task);
        let line = self.line(band);
        let out_of_turn = line.order.first().is_some_and(|place| place.id != id);
        line.express_in = match express.filter(|_| standing.fresh && out_of_turn) {
            Some(every) => every.saturating_sub(1),
            None => line.express_in.saturating_sub(1),
        };
        let passed = std::mem::replace(&mut standing.passed, false);
        line.count(standing);
        line.catch_up();
        let clock = line.clock.shows();
        line.change(id, standing, |standing| {
            standing.fresh = false;
            if passed {
                standing.share.forgive(clock);
            }
            standing.share.charge(cost);
        });
        if by_task {
            line.clock.run(cost.into());
        }
        line.sort();
    }

    /// What a task of the queue was charged is corrected by so much; see [`Share::correct`].
    pub fn correct(&mut self, id: QueueId, band: u8, standing: &mut Standing, by: i64, task: Option<u64>) {
        let by_task = self.charge == Charge::Task;
        let line = self.line(band);
        line.change(id, standing, |standing| standing.share.correct(by, task));
        if by_task {
            line.clock.run(by.into());
        }
        line.sort();
    }

    /// The queue has another weight.
    pub fn weigh(&mut self, id: QueueId, band: u8, standing: &mut Standing, weight: u32) {
        self.line(band).change(id, standing, |standing| standing.share.set_weight(weight));
    }

    /// The queue whose turn it is.
    pub fn first(&self) -> Option<QueueId> {
        self.bands.values().find_map(|line| {
            let fresh = line.fresh.first().filter(|_| line.express_in == 0).map(|(_, id)| *id);
            fresh.or_else(|| line.order.first().map(|place| place.id))
        })
    }

    /// All that stand in line, in order.
    pub fn iter(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.bands.values().flat_map(|line| line.order.iter().map(|place| place.id))
    }

    /// How many stand in line.
    pub fn len(&self) -> usize {
        self.bands.values().map(|line| line.order.len()).sum()
    }

    /// A band.
    fn line(&mut self, band: u8) -> &mut Band {
        self.bands.entry(Reverse(band)).or_default()
    }
}

impl Band {
    fn enter(&mut self, id: QueueId, standing: &mut Standing) {
        if std::mem::replace(&mut standing.stands, true) {
            return;
        }
        let (share, since) = (&standing.share, standing.since);
        self.starts.insert((share.start(), id), (share.deadline(), since));
        self.order.insert(Place::of(id, share.start(), share.deadline(), since, self.sorted));
        if standing.fresh {
            self.fresh.insert((since, id));
        }
    }

    fn exit(&mut self, id: QueueId, standing: &mut Standing) {
        if !std::mem::replace(&mut standing.stands, false) {
            return;
        }
        let start = standing.share.start();
        if let Some((deadline, since)) = self.starts.remove(&(start, id)) {
            self.order.remove(&Place::of(id, start, deadline, since, self.sorted));
            self.fresh.remove(&(since, id));
        }
    }

    /// A queue takes part while it waits and is not passed over.
    fn count(&mut self, standing: &mut Standing) {
        let counted = standing.waits && !standing.passed;
        if std::mem::replace(&mut standing.counted, counted) != counted {
            if counted { self.clock.join(&standing.share) } else { self.clock.leave(&standing.share) }
        }
    }

    fn change(&mut self, id: QueueId, standing: &mut Standing, change: impl FnOnce(&mut Standing)) {
        let stands = standing.stands;
        self.exit(id, standing);
        if standing.counted {
            self.clock.leave(&standing.share);
        }
        change(standing);
        if standing.counted {
            self.clock.join(&standing.share);
        }
        if stands {
            self.enter(id, standing);
        }
    }

    /// The clock is never behind all queues that stand in line.
    fn catch_up(&mut self) {
        if let Some(((start, _), _)) = self.starts.first_key_value() {
            self.clock.catch_up(*start);
        }
    }

    /// Brings the order in line with the clock: who became eligible since, or is no more.
    fn sort(&mut self) {
        let (before, now) = (self.sorted, self.clock.shows());
        self.sorted = now;
        let (low, high) = (before.min(now), before.max(now));
        for (&(start, id), &(deadline, since)) in
            self.starts.range((low + 1, QueueId(0))..(high + 1, QueueId(0)))
        {
            self.order.remove(&Place::of(id, start, deadline, since, before));
            self.order.insert(Place::of(id, start, deadline, since, now));
        }
    }
}

impl Place {
    fn of(id: QueueId, start: Virtual, deadline: Virtual, since: u64, clock: Virtual) -> Self {
        let ahead = start > clock;
        Place { ahead, key: if ahead { start } else { deadline }, since, id }
    }
}
