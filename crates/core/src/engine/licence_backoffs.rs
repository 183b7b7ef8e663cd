//! Licences that were busy although one was booked: people at their desks take some too. Such an attempt is
//! nobody's fault; its step starts nothing for a while, twice as long each time in a row.

use super::{Attempt, Engine, Outbox, Write};
use crate::bounds::BACK_OFF_FACTOR_MAX;
use crate::ids::{JobId, StepKey, TaskId};
use crate::job::{BackOff, End};
use crate::queues::Busy;
use crate::time::{NS_PER_MS, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The steps that found a licence busy.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct LicenceBackoffs {
    /// Kept when they are over, until a task succeeds: the next is longer.
    all: BTreeMap<StepKey, BackOff>,
    /// Those in force, by their end.
    ends: BTreeSet<(Time, StepKey)>,
}

impl LicenceBackoffs {
    /// What keeps a step from starting anything now.
    pub(super) fn in_force(&self, key: StepKey) -> Option<&BackOff> {
        self.all.get(&key).filter(|known| self.ends.contains(&(known.until, key)))
    }

    /// How many steps there are that found a licence busy.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// When the next one is over.
    pub(super) fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(at, _)| *at)
    }

    pub(super) fn insert(&mut self, key: StepKey, back_off: BackOff) {
        self.remove(key);
        self.ends.insert((back_off.until, key));
        self.all.insert(key, back_off);
    }

    pub(super) fn remove(&mut self, key: StepKey) -> Option<BackOff> {
        let known = self.all.remove(&key)?;
        self.ends.remove(&(known.until, key));
        Some(known)
    }

    fn of(&self, job: JobId) -> impl Iterator<Item = (StepKey, &BackOff)> {
        let steps = StepKey { job, step: 0 }..=StepKey { job, step: u16::MAX };
        self.all.range(steps).map(|(key, back_off)| (*key, back_off))
    }

    /// What a store keeps of a job: all of its steps but those that found this limit busy.
    fn write(&self, job: JobId, but: Option<&str>) -> Write {
        let kept = self.of(job).filter(|(_, back_off)| Some(&*back_off.limit) != but);
        Write::LicenceBackoffs { job, steps: kept.map(|(key, known)| (key.step, known.clone())).collect() }
    }

    /// A job is not here any more.
    pub(super) fn forget(&mut self, job: JobId) {
        let keys: Vec<StepKey> = self.of(job).map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| _ = self.remove(key));
    }

    /// After a restart: none lasts longer than it was to, whatever clocks did meanwhile.
    pub(super) fn clip(&mut self, now: Time) {
        let late = |known: &BackOff| now.after(known.until.since(known.since));
        let ahead = self.all.iter().filter(|(_, known)| known.until > late(known));
        let ahead: Vec<(StepKey, BackOff)> =
            ahead.map(|(key, known)| (*key, BackOff { until: late(known), ..known.clone() })).collect();
        ahead.into_iter().for_each(|(key, known)| self.insert(key, known));
    }
}

impl Engine {
    /// What keeps a step from starting anything now: a licence was busy.
    pub fn back_off(&self, key: StepKey) -> Option<&BackOff> {
        self.back_offs.in_force(key)
    }

    /// The steps that start nothing for now because this limit was busy.
    pub fn backing_off(&self, limit: &str) -> usize {
        let ends = self.back_offs.ends.iter();
        ends.filter(|(_, key)| self.back_offs.all.get(key).is_some_and(|known| known.limit == limit)).count()
    }

    /// The limit of its step of which an attempt says by its end that there was none for it.
    pub(super) fn busy_limit(&self, key: StepKey, end: &End) -> Option<String> {
        let End::Exited(exit) = end else { return None };
        let spec = self.jobs.get(&key.job)?.spec.steps.get(usize::from(key.step))?;
        let busy = |name: &&String| self.limits.get(*name).is_some_and(|limit| limit.is_busy(*exit));
        spec.limits.iter().find(busy).cloned()
    }

    /// A licence was busy: the step starts nothing for a while. Attempts that were booked before the last time
    /// say nothing new.
    pub(super) fn begin_back_off(&mut self, key: StepKey, limit: String, booked: Time, out: &mut Outbox) {
        let rule = self.limits.get(&limit).and_then(|limit| limit.busy.as_ref());
        let Some(Busy { back_off_ms, .. }) = rule else { return };
        let known = self.back_offs.all.get(&key);
        if known.is_some_and(|known| booked <= known.since) {
            return;
        }
        let before = known.map_or(0, |known| known.times);
        let factor = 1_u64.checked_shl(before).unwrap_or(u64::MAX).min(BACK_OFF_FACTOR_MAX);
        let until = self.now.after(back_off_ms * factor * NS_PER_MS);
        let times = before.saturating_add(1);
        self.back_offs.insert(key, BackOff { limit, since: self.now, until, times });
        out.writes.push(self.back_offs.write(key.job, None));
        self.recall_step(key, out);
    }

    /// Asks for the attempts of a step that wait in backlogs.
    fn recall_step(&mut self, key: StepKey, out: &mut Outbox) {
        let of_step = |(task, attempt): &(TaskId, &Attempt)| attempt.queued && self.key_of(*task) == key;
        let queued = self.attempts_of(key.job).filter(of_step);
        let queued: Vec<_> = queued.map(|(task, attempt)| (task, attempt.number, attempt.worker)).collect();
        self.recall(queued, out);
    }

    /// A task of the step succeeded: there were licences, and the next back-off is as short as the first. One
    /// in force lasts.
    pub(super) fn had_licence(&mut self, key: StepKey, out: &mut Outbox) {
        if self.back_offs.in_force(key).is_some_and(|known| known.times == 0) {
            return;
        }
        let Some(known) = self.back_offs.remove(key) else { return };
        if known.until > self.now {
            self.back_offs.insert(key, BackOff { times: 0, ..known });
        }
        out.writes.push(self.back_offs.write(key.job, None));
    }

    /// Back-offs that are over: their steps are looked at again.
    pub(super) fn end_back_offs(&mut self) {
        while let Some((at, key)) = self.back_offs.ends.first().copied().filter(|(at, _)| *at <= self.now) {
            self.back_offs.ends.remove(&(at, key));
            self.refresh(key);
        }
    }

    /// Somebody sets a limit: what backs off for it is tried again when that is durable.
    pub(super) fn write_tried_again(&self, limit: &str, out: &mut Outbox) {
        let jobs: BTreeSet<JobId> = self.found_busy(limit).map(|key| key.job).collect();
        out.writes.extend(jobs.into_iter().map(|job| self.back_offs.write(job, Some(limit))));
    }

    /// What backs off for a limit is tried again.
    pub(super) fn try_again(&mut self, limit: &str) {
        let keys: Vec<StepKey> = self.found_busy(limit).collect();
        for key in keys {
            self.back_offs.remove(key);
            self.refresh(key);
        }
    }

    fn found_busy(&self, limit: &str) -> impl Iterator<Item = StepKey> {
        self.back_offs.all.iter().filter(move |(_, known)| known.limit == limit).map(|(key, _)| *key)
    }
}
