//! Whose turn it is. Bands are strict. Inside a band the queue is next that has had least for its weight, and inside a
//! queue the user who has had least for theirs. A user's steps are ordered by priority, then by the time since which they
//! are ready, less the head start that the tasks behind them give, then by id.
//!
//! Properties:
//! - A band with work that fits is served before any lower band.
//! - A queue that was idle enters at the clock of its band. So it gathers no credit and pays for no other queue. It keeps
//!   its debt.
//! - A queue whose work fits nowhere stops no other, and has credit for one task when it fits again.
//! - The cost of finding the next step follows queues and classes, never tasks.

mod bands;
mod build_turns;
mod by_user;
mod cost;
mod fair;
mod filter;
mod queue;
mod record;
mod saved;
mod saving;
mod state;
mod turn;
mod users;
mod weights;

pub use bands::band_of;
pub(crate) use build_turns::{
    again_ms, behind_build, change_place, check_counts, limit_credit, note_wanting,
};
pub use cost::Charge;
pub(crate) use cost::{ADVANCE, UNKNOWN_MS, cost, dominant_share, first_cost};
pub use fair::{Advance, QueueShare};
pub use filter::RoundFilter;
pub use queue::Queue;
pub use record::{BAND_MAX, BadSetting, QueueRecord, TurnsBy, WEIGHT_DEFAULT, check_name};
pub use saved::{ClockOf, ClockRecord, QueueTurn, RestoredAdvance, SavedTurns, TurnClock, TurnRecord};
pub use state::Queues;
pub use turn::TurnSettings;

use crate::bounds;
use crate::ids::{ClassId, QueueId, StepKey};
use crate::job::QueuedStep;
use crate::time::Time;
use queue::Waiting;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// The queue or the user that has the next turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead<'a> {
    /// Another queue, by its name.
    Queue(&'a str),
    /// Another user of the same queue.
    User(&'a str),
}

impl Queues {
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
            wake(self, id);
        }
        by_user::set_users(self, id);
        let waits = self.get(id).is_waiting();
        let parts = self.parts(id).collect::<Vec<_>>();
        let classes =
            parts.into_iter().flat_map(|part| self.get(part).by_class.keys().map(move |c| (part, *c)));
        let classes: Vec<(QueueId, ClassId)> = classes.collect();
        classes.into_iter().for_each(|(part, class)| note_class(self, part, class, waits));
    }

    /// The engine has one more job of the queue, or one fewer.
    pub fn count_job(&mut self, id: QueueId, by: i32) {
        for id in self.with_whole(id) {
            let queue = &mut self.all[id.0 as usize];
            queue.jobs = queue.jobs.saturating_add_signed(by);
            queue.used = self.now;
        }
    }

    /// Forgets queues that were not set and have been unused for long, with what they had. Looks at some of them.
    /// `is_needed` says whether something else still names a queue.
    pub fn prune(&mut self, is_needed: impl Fn(QueueId) -> bool) {
        for _ in 0..bounds::PRUNED_MAX.min(self.all.len()) {
            self.looked = (self.looked + 1) % self.all.len();
            let id = QueueId(self.looked as u32);
            saving::drop_paid_turn(self, id);
            let is_old = self.now.since(self.all[self.looked].used) >= bounds::QUEUE_IDLE_NS;
            if is_old && is_unused(self, id) && !is_needed(id) {
                forget(self, id);
            }
        }
    }

    /// Takes away what was set of a queue. It is forgotten at once, with what its users have had, if it is unused and
    /// `is_needed` does not name it; otherwise it goes on as one that was never set.
    pub fn unset(&mut self, name: &str, is_needed: impl Fn(QueueId) -> bool) {
        let Some(whole) = self.id(name) else { return };
        self.set(&QueueRecord::named(name));
        // The queue's own place is the last: it has users as long as one of the others is there.
        let users: Vec<QueueId> = self.parts(whole).filter(|part| *part != whole).collect();
        for id in users.into_iter().chain([whole]) {
            if is_unused(self, id) && !is_needed(id) {
                forget(self, id);
            }
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
            by_user::user_waits(self, id);
        }
        let queue = &mut self.all[whole.0 as usize];
        if !waited && queue.is_waiting() {
            // A queue that waited for its own work to be read was never idle.
            if std::mem::take(&mut queue.awaits) {
                self.turns.resume(whole, queue.band(), &mut queue.tags);
            } else {
                wake(self, whole);
            }
        }
        if is_first && self.get(whole).is_waiting() {
            note_class(self, id, class, true);
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
            by_user::user_is_done(self, id);
        }
        let is_restored = self.restored.queues.contains_key(&whole);
        let queue = &mut self.all[whole.0 as usize];
        if waited && !queue.is_waiting() {
            queue.awaits = queue.away || is_restored;
            if queue.awaits {
                self.turns.suspend(whole, queue.band(), &mut queue.tags);
            } else {
                self.turns.deactivate(whole, queue.band(), &mut queue.tags);
            }
        }
        note_class(self, id, class, false);
    }

    /// What time it is.
    pub fn tell_time(&mut self, now: Time) {
        self.now = now;
    }

    /// Replaces a part of what a queue's tasks were charged in advance.
    pub fn advance(&mut self, id: QueueId, before: &Advance, after: &Advance) {
        by_user::with_user(self, id, |_, tags| tags.share.advance.change(before, after));
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

    /// Whether parked work of the queue is not resident. While some is, the queue does not count as idle, even if none
    /// of its work is resident.
    pub fn set_away(&mut self, id: QueueId, is_away: bool) {
        let queue = &mut self.all[id.0 as usize];
        queue.away = is_away;
        if queue.awaits && !is_away {
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
        self.turns.iter().flat_map(|id| by_user::users_in_turn(self, id)).map(|id| (id, self.get(id)))
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
            if let Some(next) = by_user::next_of(self, id, filter, is_open) {
                return Some(next);
            }
            let queue = &mut self.all[id.0 as usize];
            self.turns.suspend(id, queue.band(), &mut queue.tags);
            filter.exhausted.all.push(id);
        }
        None
    }

    /// Queues and users of which nothing fitted take part in turns again.
    pub fn resume_exhausted(&mut self, filter: &mut RoundFilter) {
        filter.cursors.clear();
        for exhausted in std::mem::take(&mut filter.exhausted_users).into_values() {
            exhausted.all.into_iter().for_each(|id| by_user::resume_user(self, id));
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
        by_user::charge_user(self, id, cost, filter);
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
        by_user::user_holds(self, id);
    }

    /// An attempt of the queue holds `after` hundredths of a core from now on, in the place of `before`.
    pub fn recount(&mut self, id: QueueId, before: u32, after: u32) {
        for id in self.with_whole(id) {
            let queue = &mut self.all[id.0 as usize];
            queue.booked_cpu = (queue.booked_cpu + u64::from(after)).saturating_sub(before.into());
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
        by_user::correct_user(self, id, by, task);
        let whole = self.whole(id);
        let queue = &mut self.all[whole.0 as usize];
        queue.charged += i128::from(by);
        let band = queue.band();
        self.turns.correct(whole, band, &mut queue.tags, by, task);
        if self.turns.least(band).is_none() {
            // No queue waits, so this one took its charge from no other.
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

    /// An attempt of the queue ended, which held this many hundredths of a core.
    pub fn settle(&mut self, id: QueueId, cpu: u32) {
        by_user::user_settles(self, id);
        for id in self.with_whole(id) {
            let queue = &mut self.all[id.0 as usize];
            queue.active = queue.active.saturating_sub(1);
            if queue.active == 0 {
                self.active.remove(&id);
            }
            queue.booked_cpu = queue.booked_cpu.saturating_sub(u64::from(cpu));
        }
    }

    /// The quota of a queue that `cpu` more hundredths of a core would exceed; `alone`: no other queue can use them.
    pub fn over_quota(&self, id: QueueId, cpu: u32, alone: bool) -> Option<u32> {
        self.get(self.whole(id)).over_quota(cpu, alone)
    }
}

fn note_class(queues: &mut Queues, id: QueueId, class: ClassId, waits: bool) {
    if waits {
        queues.by_class.entry(class).or_default().insert(id);
    } else if let Some(waiting) = queues.by_class.get_mut(&class) {
        waiting.remove(&id);
        if waiting.is_empty() {
            queues.by_class.remove(&class);
            queues.vanished.insert(class);
        }
    }
}

/// A queue becomes backlogged. It enters at the level of the least served backlogged queue, by what that queue's tasks have
/// run: others took nothing from it while it was idle. Where no queue is backlogged, it enters at the level of the most
/// served queue that still runs tasks.
fn wake(queues: &mut Queues, id: QueueId) {
    let band = queues.get(id).band();
    let served = |id: &QueueId| queues.get(*id).share().served(queues.now);
    let active = || queues.active.iter().filter(|id| queues.get(**id).band() == band);
    let level = match queues.turns.least(band) {
        Some(least) => Some(served(&least)),
        None => {
            // A queue whose build wants more waits, too.
            let wanting = active().filter(|id| queues.get(**id).tags.wanting > 0).map(served).min();
            wanting.or_else(|| active().map(served).max())
        }
    };
    if let Some(level) = level {
        queues.turns.catch_up(band, level);
    }
    queues.turns.activate(id, band, &mut queues.all[id.0 as usize].tags);
}

/// True of a queue, or of a user's part of one, that is as if it had never been: nothing was set, and nothing is here.
fn is_unused(queues: &Queues, id: QueueId) -> bool {
    let queue = queues.get(id);
    let idle = queue.jobs == 0 && queue.active == 0 && queue.by_class.is_empty();
    let unset = queue.whole.is_some() || queue.record == QueueRecord::named(&queue.record.name);
    let named = queue.away || queue.awaits || queues.has_users(id) || by_user::is_user_away(queues, id);
    !queue.gone && idle && unset && !named
}

fn forget(queues: &mut Queues, id: QueueId) {
    match queues.get(id).whole {
        Some(_) => by_user::forget_user(queues, id),
        None => forget_name(queues, id),
    }
    queues.all[id.0 as usize].gone = true;
    queues.free.push(id);
}

fn forget_name(queues: &mut Queues, id: QueueId) {
    let queue = &mut queues.all[id.0 as usize];
    let (name, tags) = (queue.record.name.clone(), std::mem::take(&mut queue.tags));
    queues.by_name.remove(&name);
    queues.turns.forget(id);
    if tags.saved {
        queues.forgotten.forget_turn(name, None);
    }
}
