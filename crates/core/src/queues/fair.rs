//! Turns inside a band by WF2Q+ (Bennett, Zhang 1996): the smallest finish tag first among the eligible queues.
//!
//! A queue's start tag is what it was charged, over its weight. The queue is eligible while its start tag is not past the
//! band's virtual time, that is, while it has had no more than its share. Its finish tag is the start tag after one more task.
//!
//! Virtual time is at least the smallest start tag of the backlogged queues. With `charge = task` it also advances by the
//! cost of each booking over the weights of these queues. With `charge = time` it does not. Estimates, or total usage,
//! would move it past queues that demand less than their share, and a newcomer would get every slot until the others
//! had caught up.

use super::record::WEIGHT_DEFAULT;
use crate::time::Time;

/// Bits of virtual time after the point.
const FRACTION_BITS: u32 = 56;

/// Virtual time: charge over weight, in units of 2^-56.
pub type Virtual = i128;

/// What the running tasks of a queue were charged and have not run yet, by the hundredth of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Advance {
    /// Of tasks that run: the sum of each one's rate times the millisecond through which it was charged.
    pub through: i128,
    /// The sum of their rates: hundredths of a core.
    pub rate: i128,
    /// All that tasks were charged which have not started: hundredths of core-milliseconds.
    pub unstarted: i128,
    /// The sum of the rates of these.
    pub unstarted_rate: i128,
}

impl Advance {
    /// Hundredths of core-milliseconds that are still to run.
    fn left(&self, now: Time) -> i128 {
        self.unstarted + (self.through - self.rate * i128::from(now.as_ms())).max(0)
    }

    /// Hundredths of a core that its tasks hold, those too that have not started.
    pub(super) fn held_cpu(&self) -> i128 {
        self.rate + self.unstarted_rate
    }

    /// Hundredths of core-milliseconds that running tasks had beyond what they were charged; below 0 while they have less.
    pub(super) fn uncharged(&self, now: Time) -> i128 {
        self.rate * i128::from(now.as_ms()) - self.through
    }

    /// Hundredths of core-milliseconds that are still to run, and how many of them do in a millisecond. No write tells of
    /// starts, so what has not started is taken to start now.
    pub(super) fn unrun(&self, now: Time) -> (u64, u64) {
        let bounded = |amount: i128| amount.clamp(0, i64::MAX.into()) as u64;
        (bounded(self.left(now)), bounded(self.rate + self.unstarted_rate))
    }

    /// One part of it is something else from now on.
    pub fn change(&mut self, before: &Advance, after: &Advance) {
        self.sub(before);
        self.add(after);
    }

    /// Adds what another says.
    pub fn add(&mut self, other: &Advance) {
        self.through += other.through;
        self.rate += other.rate;
        self.unstarted += other.unstarted;
        self.unstarted_rate += other.unstarted_rate;
    }

    /// Takes off what another says.
    pub fn sub(&mut self, other: &Advance) {
        self.through -= other.through;
        self.rate -= other.rate;
        self.unstarted -= other.unstarted;
        self.unstarted_rate -= other.unstarted_rate;
    }
}

/// What a queue has had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueShare {
    weight: u32,
    /// The start tag when `had` was nothing.
    base: Virtual,
    /// Charge since; below 0 where more was given back.
    had: i128,
    /// What the queue's next task is expected to cost.
    task: u64,
    tasks: u64,
    /// The part of `had` that its tasks have still to run.
    pub advance: Advance,
}

impl Default for QueueShare {
    fn default() -> Self {
        QueueShare { weight: WEIGHT_DEFAULT, base: 0, had: 0, task: 1, tasks: 0, advance: Advance::default() }
    }
}

impl QueueShare {
    /// The virtual time at which its next task would start if every queue got just its share. Without a
    /// rounding error that adds up, however many tasks it has had.
    pub fn start_tag(&self) -> Virtual {
        self.base + (self.had << FRACTION_BITS).div_euclid(i128::from(self.weight))
    }

    /// The start tag by what its tasks have run, without what they were charged in advance.
    pub fn served(&self, now: Time) -> Virtual {
        self.served_with(now, 0)
    }

    /// The same with `more` hundredths of core-milliseconds.
    pub(super) fn served_with(&self, now: Time, more: i128) -> Virtual {
        let had = self.had - self.advance.left(now) + more;
        self.base + self.over_weight(had)
    }

    /// An amount of charge in virtual time, by its weight.
    pub(super) fn over_weight(&self, charge: i128) -> Virtual {
        (charge << FRACTION_BITS).div_euclid(i128::from(self.weight))
    }

    /// It loses credit: it is later by this much virtual time.
    pub(super) fn raise(&mut self, by: Virtual) {
        self.base += by;
    }

    /// The virtual time by which its next task should have been had.
    pub fn finish_tag(&self) -> Virtual {
        self.base + ((self.had + i128::from(self.task)) << FRACTION_BITS).div_euclid(i128::from(self.weight))
    }

    /// The start tag in two parts, so that nothing of it is rounded: in whole units of charge over weight, and what was
    /// charged beyond, which is less than the weight.
    pub(super) fn exact_start(&self) -> (Virtual, u32) {
        let weight = i128::from(self.weight);
        let start = self.base + (self.had.div_euclid(weight) << FRACTION_BITS);
        (start, self.had.rem_euclid(weight) as u32)
    }

    /// It is where it was saved: at `start`, and charged by `rest` beyond that while it had `saved_weight`. Its next task is
    /// expected to cost `task`.
    pub(super) fn restore(&mut self, start: Virtual, rest: u32, saved_weight: u32, task: u64) {
        let weight = self.weight;
        (self.base, self.had, self.weight) = (start, rest.into(), saved_weight.max(1));
        self.task = task.max(1);
        self.set_weight(weight);
    }

    /// What its next task is expected to cost.
    pub(super) fn task(&self) -> u64 {
        self.task
    }

    /// Its weight, 1 to 10,000.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// What is charged from now on counts by this weight. The same weight again changes nothing: rounding would make a queue
    /// stand elsewhere than one that was restored meanwhile.
    pub fn set_weight(&mut self, weight: u32) {
        if weight == self.weight {
            return;
        }
        (self.base, self.had, self.weight) = (self.start_tag(), 0, weight);
    }

    /// Tasks charged so far.
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// It has work again: debt is kept, credit is not. One that owes nothing starts where a new queue would, to the last
    /// bit, so that nothing need be kept of it.
    pub fn wake(&mut self, clock: Virtual) {
        if self.start_tag() <= clock {
            self.restart(clock);
        }
    }

    /// It starts at that time.
    pub fn restart(&mut self, at: Virtual) {
        (self.base, self.had) = (at, 0);
    }

    /// It could not run for a while and can again: credit is kept up to one task.
    pub fn forgive(&mut self, clock: Virtual) {
        self.wake(clock - (self.finish_tag() - self.start_tag()));
    }

    /// One task was booked, at this cost.
    pub fn charge(&mut self, cost: u64) {
        self.task = cost.max(1);
        self.had += i128::from(cost);
        self.tasks += 1;
    }

    /// Corrects what was charged by `by`, and the expected cost of the next task to `task`, where that is known
    /// better now.
    pub fn correct(&mut self, by: i64, task: Option<u64>) {
        self.had += i128::from(by);
        self.task = task.unwrap_or(self.task).max(1);
    }
}

/// The virtual clock of a band.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VirtualClock {
    virtual_time: Virtual,
    /// Of the queues that take part.
    weights: i128,
}

impl VirtualClock {
    /// The virtual time that the clock shows.
    pub fn virtual_time(&self) -> Virtual {
        self.virtual_time
    }

    /// It shows this from now on.
    pub fn set(&mut self, virtual_time: Virtual) {
        self.virtual_time = virtual_time;
    }

    /// A queue takes part from now on.
    pub fn join(&mut self, share: &QueueShare) {
        self.weights += i128::from(share.weight);
    }

    /// A queue takes part no longer.
    pub fn leave(&mut self, share: &QueueShare) {
        self.weights -= i128::from(share.weight);
    }

    /// Queues that take part were charged `had`.
    pub fn run(&mut self, had: i128) {
        if self.weights > 0 {
            self.virtual_time += (had << FRACTION_BITS).div_euclid(self.weights);
        }
    }

    /// It shows no less than this.
    pub fn catch_up(&mut self, start: Virtual) {
        self.virtual_time = self.virtual_time.max(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_charges_add_up_exactly() {
        let mut share = QueueShare::default();
        share.set_weight(7);
        (0..7_000_000).for_each(|_| share.charge(1));
        assert_eq!(share.start_tag(), 1_000_000 << FRACTION_BITS);
    }

    #[test]
    fn the_same_weight_again_rounds_nothing() {
        let mut share = QueueShare::default();
        share.charge(1);
        let before = share;
        share.set_weight(before.weight());
        assert_eq!(share, before);
    }

    #[test]
    fn the_clock_runs_by_the_weights_of_those_that_take_part() {
        let (mut clock, mut heavy, light) =
            (VirtualClock::default(), QueueShare::default(), QueueShare::default());
        heavy.set_weight(300);
        clock.join(&heavy);
        clock.join(&light);
        clock.run(800);
        assert_eq!(clock.virtual_time(), 2 << FRACTION_BITS);
        clock.leave(&heavy);
        clock.run(-100);
        assert_eq!(clock.virtual_time(), 1 << FRACTION_BITS);
        clock.leave(&light);
        clock.run(100);
        assert_eq!(clock.virtual_time(), 1 << FRACTION_BITS, "nobody's charge");
        clock.catch_up(5);
        assert_eq!(clock.virtual_time(), 1 << FRACTION_BITS, "it is past that");
    }

    #[test]
    fn idle_queues_keep_debt_and_gather_no_credit() {
        let mut share = QueueShare::default();
        share.charge(300);
        let start = share.start_tag();
        share.wake(start - 1);
        assert_eq!(share.start_tag(), start);
        share.wake(start + 5);
        assert_eq!(share.start_tag(), start + 5);
        let task = share.finish_tag() - share.start_tag();
        share.forgive(start + 5 + task + 9);
        assert_eq!(share.start_tag(), start + 5 + 9, "credit of one task");
    }
}
