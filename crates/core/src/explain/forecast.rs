//! When a task is expected to start: a copy of the engine is run forward, and each task takes as long as its kind took
//! before.

use super::lengths::{Length, Lengths};
use super::trial::{Goal, Trial};
use crate::engine::{Engine, Event};
use crate::ids::{AllocId, JobId, TaskId, WorkerId};
use crate::plan::placement;
use crate::time::{NS_PER_MS, NS_PER_S, Time};
use std::collections::BTreeSet;

/// Ends of tasks that one forecast looks ahead. What starts later than that has no expected start.
const ENDS_MAX: usize = 10_000;
/// Shorter waits count as this long where a forecast is judged. Otherwise milliseconds that no person notices would be a
/// large error.
const WAIT_MIN_NS: u64 = NS_PER_S;

/// When the goal is expected to start. `None` where the past does not tell: what holds something that the goal could use
/// runs for a time that is not known, parked work comes before, or the start is too far off.
pub(super) fn forecast_start(engine: &Engine, goal: Goal) -> Option<Time> {
    let (at, _) = start_with(engine, goal, Length::Mean)?;
    Some(at)
}

/// The same, and between which times it is if that rests on tasks of a profile whose earlier ones took very different
/// times: one time would be a guess there.
pub(super) fn forecast_range(engine: &Engine, goal: Goal) -> Option<(Time, Option<(Time, Time)>)> {
    let (mean, rests_on_spread) = start_with(engine, goal, Length::Mean)?;
    if !rests_on_spread {
        return Some((mean, None));
    }
    let (short, _) = start_with(engine, goal, Length::Short)?;
    let (long, _) = start_with(engine, goal, Length::Long)?;
    // Tasks that take longer may be placed otherwise, so that the goal starts earlier.
    let (first, last) = (mean.min(short).min(long), mean.max(short).max(long));
    Some((mean, (first < last).then_some((first, last))))
}

/// When the goal starts if tasks take these lengths, and whether other lengths are as likely.
fn start_with(engine: &Engine, goal: Goal, length: Length) -> Option<(Time, bool)> {
    let trial = Trial::of(engine, goal);
    let mut forecast = Forecast {
        waiting_for_goal: trial.waiting_for_goal(),
        trial,
        lengths: Lengths::new(length, engine),
        ends: BTreeSet::new(),
        sent_ahead: BTreeSet::new(),
        places: BTreeSet::new(),
    };
    let booked: Vec<TaskId> = engine.attempts().map(|(task, _)| task).collect();
    forecast.note(booked)?;
    let at = forecast.run()?;
    Some((at, forecast.lengths.rests_on_spread()))
}

/// How far an expected start was from the real one, as of the time when it was asked: the natural logarithm of the expected
/// wait over the real one, without its sign. 0 is right, 0.69 is a wait twice as long as expected, or half as long.
pub fn start_error(asked: Time, expected: Time, started: Time) -> f64 {
    let wait = |until: Time| until.since(asked).max(WAIT_MIN_NS) as f64;
    libm::log(wait(expected) / wait(started)).abs()
}

struct Forecast<'a> {
    trial: Trial,
    lengths: Lengths<'a>,
    /// When tasks that run, and places of outside clients, are expected to end.
    ends: BTreeSet<(Time, Occupant)>,
    /// Tasks that wait on their workers for others there to end.
    sent_ahead: BTreeSet<(WorkerId, TaskId)>,
    /// Places whose ends are noted, or do not matter.
    places: BTreeSet<AllocId>,
    /// Tasks that wait for the goal's job, and do not end before it.
    waiting_for_goal: Vec<TaskId>,
}

/// What holds a part of a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Occupant {
    Task(TaskId),
    Place(AllocId),
}

impl Forecast<'_> {
    fn run(&mut self) -> Option<Time> {
        let mut ended = 0;
        while ended < ENDS_MAX {
            self.unless_parked_work_is_next()?;
            if self.trial.is_started() {
                return Some(self.trial.engine().planner().now());
            }
            let booked = self.trial.take_booked();
            self.start(booked)?;
            self.note_places()?;
            let workers = self.end_next()?;
            ended += workers.len().max(1);
            self.trial.settle();
            for worker in workers {
                let begun = self.take_begun(worker);
                self.start(begun)?;
            }
        }
        None
    }

    /// Ends all that ends next at one moment, and then a round may follow: what needs the room of several finds it. Returns
    /// the worker of each; `None` if nothing is left to end.
    fn end_next(&mut self) -> Option<Vec<WorkerId>> {
        let now = self.ends.first()?.0.max(self.trial.engine().planner().now());
        let mut workers = Vec::new();
        while let Some((at, occupant)) = self.ends.first().copied()
            && at <= now
        {
            self.ends.pop_first();
            workers.extend(self.end(now, occupant));
        }
        Some(workers)
    }

    /// Returns where it ended; `None` if it had ended before.
    fn end(&mut self, at: Time, occupant: Occupant) -> Option<WorkerId> {
        match occupant {
            Occupant::Task(task) => {
                let worker = self.trial.engine().attempt(task)?.worker;
                self.trial.end(at, task);
                Some(worker)
            }
            Occupant::Place(alloc) => {
                let worker = self.trial.engine().places().get(alloc)?.worker;
                self.trial.hear(at, Event::Release { alloc });
                Some(worker)
            }
        }
    }

    /// The tasks that waited on this worker and do not any more.
    fn take_begun(&mut self, worker: WorkerId) -> Vec<TaskId> {
        let first = TaskId { job: JobId(0), index: 0 };
        let last = TaskId { job: JobId(u64::MAX), index: u32::MAX };
        let waited = self.sent_ahead.range((worker, first)..=(worker, last)).map(|(_, task)| *task);
        let engine = self.trial.engine();
        let begun = waited.filter(|task| engine.attempt(*task).is_none_or(|attempt| !attempt.queued));
        let begun: Vec<TaskId> = begun.collect();
        for task in &begun {
            self.sent_ahead.remove(&(worker, *task));
        }
        begun
    }

    /// Tasks that have room from now on start, and it is noted when they end.
    fn start(&mut self, tasks: Vec<TaskId>) -> Option<()> {
        let now = self.trial.engine().planner().now();
        for task in &tasks {
            self.trial.start(now, *task);
        }
        self.note(tasks)
    }

    /// Notes when these tasks end; `None` if that is not known of one that holds what the goal could use.
    fn note(&mut self, tasks: Vec<TaskId>) -> Option<()> {
        let engine = self.trial.engine();
        for task in tasks {
            // What rides ends with its head.
            let Some(attempt) = engine.attempt(task).filter(|attempt| !attempt.rides) else { continue };
            if self.waiting_for_goal.contains(&task) {
                continue;
            }
            if attempt.queued {
                self.sent_ahead.insert((attempt.worker, task));
                continue;
            }
            match self.lengths.ends_at(engine, task) {
                Some(at) => _ = self.ends.insert((at, Occupant::Task(task))),
                None => self.unless_usable(attempt.worker)?,
            }
        }
        Some(())
    }

    /// Notes when places that were given meanwhile end: they are held for as long as those of their queue were before.
    fn note_places(&mut self) -> Option<()> {
        let engine = self.trial.engine();
        let now = engine.planner().now();
        for (alloc, place) in engine.places().held() {
            if !self.places.insert(alloc) {
                continue;
            }
            match engine.queues().mean_ms(place.queue) {
                Some(ms) => {
                    let due = place.since.after((ms * NS_PER_MS as f64) as u64);
                    // One that is overdue is assumed to be half done, as tasks are.
                    let at = if due > now { due } else { now.after(now.since(place.since)) };
                    self.ends.insert((at, Occupant::Place(alloc)));
                }
                None => self.unless_usable(place.worker)?,
            }
        }
        Some(())
    }

    /// `None` once all resident jobs of a subqueue have been placed, and the next ones are only in the store. Until then those
    /// come after its resident jobs, and change nothing.
    fn unless_parked_work_is_next(&self) -> Option<()> {
        let subqueues = self.trial.engine().subqueues();
        if subqueues.away().ready == 0 {
            return Some(());
        }
        let is_next = subqueues
            .iter()
            .any(|(_, subqueue)| subqueue.away().ready > 0 && subqueue.positions().next().is_none());
        (!is_next).then_some(())
    }

    /// `None` if the goal could use this worker.
    fn unless_usable(&self, worker: WorkerId) -> Option<()> {
        let worker = self.trial.engine().workers().get(worker)?;
        (!placement::could_take_part(self.trial.class()?, worker)).then_some(())
    }
}
