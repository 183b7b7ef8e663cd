//! Steps that a rule holds on every worker with room. They are set aside in their queues, so that rounds pass them
//! over at no cost, and judged again when their time comes or when a worker gains room that would take them.

use super::Engine;
use crate::ids::{ClassId, QueueId, StepKey};
use crate::job::QueuedStep;
use crate::plan::placement::{self, Ineligible};
use crate::score::weights;
use crate::time::{NS_PER_MS, NS_PER_S, Time};
use std::collections::{BTreeMap, BTreeSet};

/// How soon a held step is judged again.
const AGAIN_NS: u64 = NS_PER_S;
/// What one look at a worker is taken to cost, in tenths: judging all held steps again takes a tenth of the time.
const LOOK_NS: u64 = 10_000;

/// A step that is set aside.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct VetoedStep {
    queue: QueueId,
    class: ClassId,
    queued_step: QueuedStep,
    /// When it is judged again.
    again: Time,
    /// Workers that were looked at to find that it is held.
    looks: u32,
    /// What holds it, on the first of them.
    pub(crate) why: Ineligible,
}

/// All of them.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct VetoedSteps {
    steps: BTreeMap<StepKey, VetoedStep>,
    by_time: BTreeSet<(Time, StepKey)>,
    by_class: BTreeMap<ClassId, BTreeSet<StepKey>>,
    /// What judging all of them once takes.
    looks: u64,
}

impl VetoedSteps {
    /// The steps that are held, by class.
    pub(super) fn by_class(&self) -> &BTreeMap<ClassId, BTreeSet<StepKey>> {
        &self.by_class
    }

    /// True if some step of the class is held.
    pub(super) fn has_class(&self, class: ClassId) -> bool {
        self.by_class.contains_key(&class)
    }

    /// When the first of them is judged again.
    pub(super) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    fn insert(&mut self, step: VetoedStep) {
        let key = step.queued_step.step();
        self.remove(key);
        self.looks += u64::from(step.looks);
        self.by_time.insert((step.again, key));
        self.by_class.entry(step.class).or_default().insert(key);
        self.steps.insert(key, step);
    }

    /// A step stands elsewhere in its queue, or nowhere.
    pub(super) fn remove_step(&mut self, key: StepKey) {
        self.remove(key);
    }

    fn remove(&mut self, key: StepKey) -> Option<VetoedStep> {
        let step = self.steps.remove(&key)?;
        self.looks -= u64::from(step.looks);
        self.by_time.remove(&(step.again, key));
        if let Some(steps) = self.by_class.get_mut(&step.class) {
            steps.remove(&key);
            if steps.is_empty() {
                self.by_class.remove(&step.class);
            }
        }
        Some(step)
    }
}

impl Engine {
    /// What holds a step that is set aside.
    pub(crate) fn held_step(&self, key: StepKey) -> Option<&VetoedStep> {
        self.held.steps.get(&key)
    }

    /// The steps that a rule holds on every worker with room.
    pub fn held_steps(&self) -> impl Iterator<Item = StepKey> + '_ {
        self.held.steps.keys().copied()
    }

    /// A round found that a rule holds a step on every worker with room. `looks` is how many workers it judged.
    pub(super) fn set_aside(
        &mut self,
        queue: QueueId,
        class: ClassId,
        queued_step: QueuedStep,
        (why, looks): (Ineligible, u32),
    ) {
        self.queues.set_aside(queue, class, queued_step);
        let interval_ns = AGAIN_NS.max(self.held.looks.saturating_mul(LOOK_NS));
        let again = self.now.after(interval_ns);
        let since = self.step(queued_step.step()).map_or(self.now, |step| step.ready_since);
        let hold_ends = weights::HOLDS_MS.map(|ms| since.after(ms * NS_PER_MS));
        let again = hold_ends.into_iter().filter(|at| *at > self.now).chain([again]).min().unwrap_or(again);
        self.held.insert(VetoedStep { queue, class, queued_step, again, looks, why });
    }

    fn take_back(&mut self, key: StepKey) {
        if let Some(VetoedStep { queue, class, queued_step, .. }) = self.held.remove(key) {
            self.queues.take_back(queue, class, queued_step);
            self.needs_round = true;
        }
    }

    /// Steps whose time has come are judged again by the next round.
    pub(super) fn readmit_due(&mut self) {
        while let Some((_, key)) = self.held.by_time.first().copied().filter(|(at, _)| *at <= self.now) {
            self.take_back(key);
        }
    }

    /// Steps that a worker with new room would take are judged again by this round; of each class no more are
    /// looked at than a round may find held.
    pub(super) fn readmit_for_gains(&mut self) {
        if self.held.steps.is_empty() {
            return;
        }
        let gained = self.workers.gained_workers();
        if gained.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let gained =
            gained.map(|ids| ids.into_iter().filter_map(|id| self.workers.get(id)).collect::<Vec<_>>());
        let mut back = Vec::new();
        for (class, steps) in &self.held.by_class {
            let asks = self.classes.get(*class);
            let roomy: Option<Vec<_>> = gained
                .as_ref()
                .map(|gained| gained.iter().filter(|w| placement::fits_now(asks, w)).collect());
            if roomy.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            let context = self.match_context();
            let some = steps.iter().take(self.bounds.step_misses).filter(|key| {
                let Some(roomy) = &roomy else { return true };
                let queue = self.held.steps[*key].queue;
                let request = self.placement_request(**key, queue);
                request
                    .is_some_and(|request| roomy.iter().any(|worker| context.judge(&request, worker).is_ok()))
            });
            back.extend(some.copied());
        }
        back.into_iter().for_each(|key| self.take_back(key));
    }

    /// What is held is what stands aside in the queues.
    pub(super) fn check_held(&self) -> Result<(), String> {
        let wrong = |(key, held): &(&StepKey, &VetoedStep)| {
            self.step(**key).and_then(|step| step.enlisted) != Some(held.queued_step)
                || !self.queues.is_aside(held.queue, held.class, &held.queued_step)
        };
        if let Some((key, held)) = self.held.steps.iter().find(wrong) {
            return Err(format!("{key:?} is held and does not stand aside: {held:?}"));
        }
        let (aside, held) = (self.queues.aside(), self.held.steps.len());
        if aside != held {
            return Err(format!("{aside} steps stand aside, {held} are held"));
        }
        Ok(())
    }
}
