//! When a task is expected to start: a copy of the engine is run forward, and each task takes as long as its kind took
//! before.

use super::trial::{Goal, Trial};
use crate::engine::Engine;
use crate::ids::TaskId;
use crate::plan::{self, placement};
use crate::time::Time;
use std::collections::BTreeSet;

/// Ends of tasks that one forecast looks ahead. What starts later than that has no expected start.
const ENDS_MAX: usize = 10_000;

/// When the goal is expected to start. `None` where the past does not tell: a task has a part in it whose length is not
/// known, work is parked, or it is too far off.
pub(super) fn expected_start(engine: &Engine, goal: Goal) -> Option<Time> {
    if engine.subqueues().iter().any(|(_, subqueue)| subqueue.away().ready > 0) {
        return None;
    }
    let mut forecast = Forecast { trial: Trial::of(engine, goal), ends: BTreeSet::new() };
    let running: Vec<TaskId> = engine.attempts().map(|(task, _)| task).collect();
    forecast.note(running)?;
    forecast.run()
}

struct Forecast {
    trial: Trial,
    /// When running tasks are expected to end.
    ends: BTreeSet<(Time, TaskId)>,
}

impl Forecast {
    fn run(&mut self) -> Option<Time> {
        for _ in 0..ENDS_MAX {
            if self.trial.is_placed() {
                return Some(self.trial.engine().planner().now());
            }
            let booked = self.trial.take_booked();
            let now = self.trial.engine().planner().now();
            booked.iter().for_each(|task| self.trial.start(now, *task));
            self.note(booked)?;
            let (at, task) = self.ends.pop_first()?;
            self.trial.end(at.max(now), task);
            self.trial.settle();
        }
        None
    }

    /// Notes when these tasks end; `None` if that is not known of one that holds what the goal could use.
    fn note(&mut self, tasks: Vec<TaskId>) -> Option<()> {
        let engine = self.trial.engine();
        for task in tasks {
            // What is sent ahead starts when another task ends, and what rides ends with its head.
            let Some(attempt) = engine.attempt(task).filter(|attempt| !attempt.rides) else { continue };
            match plan::ends_at(engine, task) {
                Some(at) => _ = self.ends.insert((at, task)),
                None => {
                    let worker = engine.workers().get(attempt.worker)?;
                    if placement::could_take_part(self.trial.class()?, worker) {
                        return None;
                    }
                }
            }
        }
        Some(())
    }
}
