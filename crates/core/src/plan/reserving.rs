//! Which worker is reserved for which class, when the class could start there, and when the reservation ends.

use super::forecast::{longest_end, room_when};
use super::gang::{self, GangTarget};
use super::placement::{self, Reservation};
use super::planner::Planner;
use super::work::Work;
use crate::bounds;
use crate::class::Class;
use crate::ids::{ClassId, WorkerId};
use crate::resources::Resources;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Orders workers by when they are expected to have room, unknown last, then by what is free, then by name.
type FreeFirst<'a> = (bool, Option<Time>, Reverse<u32>, &'a str);

impl Planner {
    /// Drops reservations that are not needed, and returns the workers that become free for all.
    fn drop_unneeded(&mut self, blocked: &BTreeSet<ClassId>) -> Vec<WorkerId> {
        let (workers, classes) = (&self.workers, &self.classes);
        let (mut freed, mut refused) = (Vec::new(), Vec::new());
        // Tasks that start together wait until all their workers have room.
        let waiting = self.reservations.holders().filter_map(|(id, class)| {
            let asks = classes.find(class).filter(|asks| asks.is_gang())?;
            let is_open = workers.get(id).is_some_and(|worker| placement::takes_part_now(asks, worker));
            (!is_open).then_some(class)
        });
        let waiting: BTreeSet<ClassId> = waiting.chain(self.reservations.incomplete_gangs()).collect();
        self.reservations.retain(|id, class| {
            // A task that waits for jobs of its own does not end before these have run, perhaps on this worker.
            let is_lending = workers.get(id).is_some_and(|worker| worker.booked.lending() > 0);
            let worker = workers.get(id).filter(|worker| worker.takes_work());
            let both = worker.zip(classes.find(class));
            let needed = blocked.contains(&class)
                && !is_lending
                && both.is_some_and(|(worker, class)| placement::could_take_part(class, worker));
            // The round that ends left the room free: a rule, a limit or a quota keeps the holder from it. Two
            // classes that each wait for the worker of the other would otherwise wait for ever.
            let unused = both.is_some_and(|(worker, class)| placement::takes_part_now(class, worker))
                && !waiting.contains(&class);
            if needed && unused {
                refused.push(class);
            }
            if !needed || unused {
                freed.push(id);
            }
            needed && !unused
        });
        refused.into_iter().for_each(|class| self.reservations.disappoint(class));
        freed
    }
}

/// Gives each class that was blocked for long a worker, and drops reservations that are not needed.
pub(super) fn reserve<W: Work>(work: &mut W, placed: &BTreeSet<ClassId>) {
    let plan = work.plan_mut();
    // A class that no working worker could run would wait for a reservation for ever, and keep others from one.
    let mut blocked: BTreeSet<ClassId> = plan.reservations.watched().collect();
    blocked.retain(|class| plan.full.contains(*class) || plan.vetoed.by_class.contains_key(class));
    let mut newcomers = plan.reservations.newcomers(&plan.full.all, &plan.vetoed.by_class);
    let Planner { feasible_workers, classes, workers, .. } = &mut *plan;
    blocked.retain(|class| feasible_workers.could_run(*class, classes, workers));
    newcomers.retain(|class| feasible_workers.could_run(*class, classes, workers));
    // A gang that started needs the rest of its reservation no longer.
    let started: BTreeSet<ClassId> =
        plan.reservations.incomplete_gangs().intersection(placed).copied().collect();
    let mut freed = plan.drop_unneeded(&blocked.difference(&started).copied().collect());
    mend_gangs(work, &mut freed);
    let plan = work.plan_mut();
    for class in plan.reservations.observe(plan.now, &blocked, &newcomers, placed) {
        if work.plan().reservations.is_full() {
            break;
        }
        if work.plan().classes.find(class).is_some_and(Class::is_gang) {
            if !reserve_gang(work, class) {
                break;
            }
            continue;
        }
        let target = target(work, class);
        let reservations = &mut work.plan_mut().reservations;
        match target {
            Some(worker) => reservations.reserve(worker, class),
            None => reservations.disappoint(class),
        }
    }
    let plan = work.plan_mut();
    for id in freed {
        plan.workers.gained(id);
        plan.needs_round = true;
    }
}

/// A gang that lost some of the workers that are reserved for it gets others at once, or gives up the rest: they would
/// stand empty for nothing. It keeps its blocked time, so it gets all that it needs as soon as it can. That time drains only
/// while the farm has too few workers for it.
fn mend_gangs<W: Work>(work: &mut W, freed: &mut Vec<WorkerId>) {
    for class in work.plan().reservations.incomplete_gangs() {
        let asks = work.plan().classes.find(class);
        let workers = asks.and_then(|asks| gang::replacement(work, class, asks)).unwrap_or_default();
        freed.extend(work.plan_mut().reservations.reserve_all(&workers, class));
    }
}

/// Reserves all workers that a gang needs, or none. Returns false where some are reserved for others: no other class gets
/// one then before the gang, or it would find some reserved each time.
fn reserve_gang<W: Work>(work: &mut W, class: ClassId) -> bool {
    let plan = work.plan();
    let Some(asks) = plan.classes.find(class).filter(|_| plan.reservations.held_by(class) == 0) else {
        return true;
    };
    match gang::target(work, asks) {
        GangTarget::Workers(workers) => _ = work.plan_mut().reservations.reserve_all(&workers, class),
        GangTarget::Taken => return false,
        GangTarget::Lending => work.plan_mut().reservations.postpone(class),
        GangTarget::TooFew => {
            let Planner { feasible_workers, workers, .. } = work.plan_mut();
            feasible_workers.found_too_few(class, workers);
        }
    }
    true
}

/// Works out when the holders of reservations could start. A task that is overdue is assumed to end now. If it were
/// assumed to run on, other work would be let in front for as long as anything is late, and would itself be late in
/// turn.
pub(super) fn update_reservation_starts<W: Work>(work: &mut W) {
    let plan = work.plan();
    let mut reserved = BTreeMap::new();
    for (id, class) in plan.reservations.holders() {
        let Some((worker, asks)) = plan.workers.get(id).zip(plan.classes.find(class)) else { continue };
        let band = plan.queues.band_of(class).unwrap_or(0);
        let fitting = asks.parts().filter(|part| placement::eligible_when_idle(part, worker));
        let rooms = fitting.filter_map(|part| {
            let (at, mut free) = room_when(work, part, worker, |running| running.ends_by)?;
            free.sub(&part.request);
            Some((at, free))
        });
        let (starts, spare) = rooms.min_by_key(|(at, _)| *at).unzip();
        // Which part of a gang comes here is open, and so is what is spare beside it.
        let spare = spare.filter(|_| asks.mates.is_empty()).unwrap_or_default();
        reserved.insert(id, Reservation { class, band, starts, spare });
    }
    start_together(plan, &mut reserved);
    work.plan_mut().reserved = reserved;
}

/// Tasks that start together do so when the last of their workers has room.
fn start_together(plan: &Planner, reserved: &mut BTreeMap<WorkerId, Reservation>) {
    let mut last: BTreeMap<ClassId, Option<Time>> = BTreeMap::new();
    for reservation in reserved.values() {
        if plan.classes.find(reservation.class).is_some_and(Class::is_gang) {
            let starts = last.entry(reservation.class).or_insert(reservation.starts);
            *starts = starts.zip(reservation.starts).map(|(a, b)| a.max(b));
        }
    }
    for reservation in reserved.values_mut() {
        if let Some(starts) = last.get(&reservation.class) {
            reservation.starts = *starts;
        }
    }
}

/// The worker to reserve for a class: of those that would fit it when empty, the one that is expected to have room
/// first. Wide work is given up to half of its workers, and no more than it has tasks. Other work is given one, when
/// nothing of it was placed for long. Where no end is known, a class is given one at most.
fn target<W: Work>(work: &W, class: ClassId) -> Option<WorkerId> {
    let plan = work.plan();
    let asks = plan.classes.find(class)?;
    let avoided = avoided_by_all(work, class);
    let (mut fitting, mut widest) = (0, Resources::default());
    let mut best: Option<(FreeFirst, WorkerId)> = None;
    for worker in plan.workers.present().filter(|worker| placement::eligible_when_idle(asks, worker)) {
        fitting += 1;
        widest.cpu = widest.cpu.max(worker.record.capacity.cpu);
        widest.memory = widest.memory.max(worker.record.capacity.memory);
        let reserved = plan.reservations.holder(worker.record.id).is_some();
        // Where there is room already, it is something else that the class waits for.
        let useless =
            !worker.takes_work() || avoided == Some(worker.record.id) || placement::fits_now(asks, worker);
        let is_left = || work.is_left_to_others(asks, worker.record.id);
        if useless || reserved || worker.booked.lending() > 0 || is_left() {
            continue;
        }
        let starts =
            room_when(work, asks, worker, |running| longest_end(running, plan.now)).map(|(at, _)| at);
        let rank = (starts.is_none(), starts, Reverse(worker.free().cpu), &*worker.record.name);
        if best.as_ref().is_none_or(|(first, _)| rank < *first) {
            best = Some((rank, worker.record.id));
        }
    }
    let wide = asks.request.cpu >= widest.cpu.div_ceil(2).max(1)
        || asks.request.memory >= widest.memory.div_ceil(2).max(1);
    let held = plan.reservations.held_by(class);
    let may = wide || (held == 0 && plan.reservations.is_starving(class));
    // More workers than tasks would stand empty for nothing.
    let mut tasks = 0;
    let wanted = plan.queues.steps_of(class).filter_map(|key| work.facts(key)).any(|facts| {
        tasks += facts.ready as usize;
        tasks > held
    });
    let ((unknown, ..), worker) = best.filter(|_| may && wanted && held < (fitting / 2).max(1))?;
    (!unknown || held == 0).then_some(worker)
}

/// The worker on which the first steps of a class that wait all failed, and to which they do not go back as long as
/// another could run them.
fn avoided_by_all<W: Work>(work: &W, class: ClassId) -> Option<WorkerId> {
    let plan = work.plan();
    let steps = plan.queues.steps_of(class).take(bounds::PICKS_MAX);
    let mut avoided = steps.map(|key| work.facts(key).and_then(|facts| facts.avoids));
    let first = avoided.next()??;
    let asks = plan.classes.find(class)?;
    (avoided.all(|worker| worker == Some(first)) && plan.match_context().has_other(asks, first))
        .then_some(first)
}
