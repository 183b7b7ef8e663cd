//! Steps that found a licence busy although one was booked, because people take licences at their desks too.

use crate::ids::{JobId, StepKey};
use crate::job::BackOff;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// The steps that found a licence busy.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct BackOffs {
    /// Kept when they are over, until a task succeeds: the next is longer.
    all: BTreeMap<StepKey, BackOff>,
    /// Those in force, by their end.
    ends: BTreeSet<(Time, StepKey)>,
}

impl BackOffs {
    pub(super) fn get(&self, step: StepKey) -> Option<&BackOff> {
        self.all.get(&step)
    }

    pub(super) fn in_force(&self, step: StepKey) -> Option<&BackOff> {
        self.all.get(&step).filter(|known| self.ends.contains(&(known.until, step)))
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (StepKey, &BackOff)> {
        self.all.iter().map(|(step, known)| (*step, known))
    }

    /// The back-offs of a job's steps, in force or over: the next one is longer.
    pub(crate) fn of(&self, job: JobId) -> impl Iterator<Item = (StepKey, &BackOff)> {
        let steps = StepKey { job, step: 0 }..=StepKey { job, step: u16::MAX };
        self.all.range(steps).map(|(step, known)| (*step, known))
    }

    pub(crate) fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(at, _)| *at)
    }

    pub(crate) fn insert(&mut self, step: StepKey, back_off: BackOff) {
        self.remove(step);
        self.ends.insert((back_off.until, step));
        self.all.insert(step, back_off);
    }

    pub(crate) fn remove(&mut self, step: StepKey) -> Option<BackOff> {
        let known = self.all.remove(&step)?;
        self.ends.remove(&(known.until, step));
        Some(known)
    }

    /// Ends one back-off that is over by now, and returns its step.
    pub(crate) fn end_next(&mut self, now: Time) -> Option<StepKey> {
        let (_, step) = *self.ends.first().filter(|(at, _)| *at <= now)?;
        self.ends.pop_first();
        Some(step)
    }

    /// Drops what is known of a job's steps.
    pub(crate) fn forget(&mut self, job: JobId) {
        let steps: Vec<StepKey> = self.of(job).map(|(step, _)| step).collect();
        steps.into_iter().for_each(|step| _ = self.remove(step));
    }

    /// After a restart no back-off lasts longer than it was set to, even if the clock was set back.
    pub(crate) fn clip(&mut self, now: Time) {
        let latest = |known: &BackOff| now.after(known.until.since(known.since));
        let ahead = self.iter().filter(|(_, known)| known.until > latest(known));
        let ahead: Vec<(StepKey, BackOff)> =
            ahead.map(|(step, known)| (step, BackOff { until: latest(known), ..known.clone() })).collect();
        ahead.into_iter().for_each(|(step, known)| self.insert(step, known));
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let is_known = |(at, step): &&(Time, StepKey)| self.all.get(step).is_some_and(|k| k.until == *at);
        match self.ends.iter().find(|end| !is_known(end)) {
            Some(end) => Err(format!("the end of no back-off: {end:?}")),
            None => Ok(()),
        }
    }
}
