//! Steps that a rule vetoes on every worker with room. They are set aside in their queues, so that rounds pass them
//! over at no cost. They are judged again when their time comes, or when a worker gains room that would take them.

use super::placement::Ineligible;
use crate::ids::{ClassId, QueueId, StepKey};
use crate::job::QueuedStep;
use crate::queues::Queues;
use crate::score::weights;
use crate::time::{NS_PER_MS, NS_PER_S, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// How soon a vetoed step is judged again, at the earliest.
const AGAIN_NS: u64 = NS_PER_S;
/// Ten times the assumed cost of judging one worker, so that judging all vetoed steps again takes a tenth of the time.
const LOOK_NS: u64 = 10_000;

/// A step that is set aside.
#[derive(Clone, PartialEq, Debug)]
pub struct VetoedStep {
    pub(super) queue: QueueId,
    class: ClassId,
    queued_step: QueuedStep,
    /// When it is judged again.
    pub again: Time,
    /// Workers that were judged to find that it is vetoed.
    looks: u32,
    /// The veto on the first of these workers.
    pub why: Ineligible,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct VetoedSteps {
    steps: BTreeMap<StepKey, VetoedStep>,
    by_time: BTreeSet<(Time, StepKey)>,
    pub(super) by_class: BTreeMap<ClassId, BTreeSet<StepKey>>,
    /// The step of a class that was looked at in its turn, the last time that a worker gained room.
    looked_last: BTreeMap<ClassId, StepKey>,
    /// Workers that must be judged to judge all of them once.
    looks: u64,
}

impl VetoedSteps {
    /// Why a step is set aside, if a rule vetoes it on every worker with room.
    pub(crate) fn get(&self, key: StepKey) -> Option<&VetoedStep> {
        self.steps.get(&key)
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = StepKey> + '_ {
        self.steps.keys().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps of a class that a round looks at when a worker gained room, fewer than `max`: the first ones, and one
    /// more in turn, which is returned apart. Without that one, a step behind the first would only be judged again at
    /// its own time, and might then find the room taken each time. If all were in turn, rounds would read the jobs of
    /// all vetoed steps from memory. The first ones stay in the processor's cache.
    pub(super) fn to_look_at(
        &self,
        class: ClassId,
        max: usize,
    ) -> (impl Iterator<Item = StepKey> + '_, Option<StepKey>) {
        let first_max = (max - max / 8).min(max.saturating_sub(1));
        let steps = self.by_class.get(&class);
        let first = steps.into_iter().flat_map(move |steps| steps.iter().take(first_max));
        let after = self.looked_last.get(&class).map(|last| (Bound::Excluded(*last), Bound::Unbounded));
        let next = steps.zip(after).and_then(|(steps, after)| steps.range(after).next());
        let in_turn = next.or_else(|| steps?.iter().nth(first_max));
        (first.copied(), in_turn.copied())
    }

    /// The step of a class that was looked at in its turn.
    pub(super) fn looked_at(&mut self, class: ClassId, key: StepKey) {
        if self.by_class.contains_key(&class) {
            self.looked_last.insert(class, key);
        }
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
    pub(super) fn remove(&mut self, key: StepKey) -> Option<VetoedStep> {
        let step = self.steps.remove(&key)?;
        self.looks -= u64::from(step.looks);
        self.by_time.remove(&(step.again, key));
        if let Some(steps) = self.by_class.get_mut(&step.class) {
            steps.remove(&key);
            if steps.is_empty() {
                self.by_class.remove(&step.class);
                self.looked_last.remove(&step.class);
            }
        }
        Some(step)
    }

    /// A vetoed step of each class, with its queue. Rounds pass over these steps, and they wait all the same.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (QueueId, (QueuedStep, ClassId))> + '_ {
        let firsts = self.by_class.values().filter_map(|keys| self.get(*keys.first()?));
        firsts.map(|vetoed| (vetoed.queue, (vetoed.queued_step, vetoed.class)))
    }

    /// A rule vetoes a step on every worker with room. `since` is when the step became ready, `looks` how many workers
    /// were judged.
    pub(super) fn set_aside(
        &mut self,
        queues: &mut Queues,
        now: Time,
        (queue, class, queued_step): (QueueId, ClassId, QueuedStep),
        since: Time,
        (why, looks): (Ineligible, u32),
    ) {
        queues.set_aside(queue, class, queued_step);
        let interval_ns = AGAIN_NS.max(self.looks.saturating_mul(LOOK_NS));
        let mut again = now.after(interval_ns);
        // Rules that wait for something better give up after these times.
        for hold_ms in weights::HOLDS_MS {
            let ends = since.after(hold_ms * NS_PER_MS);
            if ends > now {
                again = again.min(ends);
            }
        }
        self.insert(VetoedStep { queue, class, queued_step, again, looks, why });
    }

    /// Rounds look at a step again. False if it was not vetoed.
    pub(super) fn take_back(&mut self, queues: &mut Queues, key: StepKey) -> bool {
        let Some(VetoedStep { queue, class, queued_step, .. }) = self.remove(key) else { return false };
        queues.take_back(queue, class, queued_step);
        true
    }

    /// Rounds look again at the steps whose time has come. False if there are none.
    pub(super) fn take_back_due(&mut self, queues: &mut Queues, now: Time) -> bool {
        let mut some = false;
        while let Some((_, key)) = self.by_time.first().copied().filter(|(at, _)| *at <= now) {
            some |= self.take_back(queues, key);
        }
        some
    }

    /// Compares with the steps that are set aside in the queues.
    pub(super) fn check(
        &self,
        queues: &Queues,
        queued: impl Fn(StepKey) -> Option<QueuedStep>,
    ) -> Result<(), String> {
        for (key, vetoed) in &self.steps {
            let is_aside = queues.is_aside(vetoed.queue, vetoed.class, &vetoed.queued_step);
            if queued(*key) != Some(vetoed.queued_step) || !is_aside {
                return Err(format!("{key:?} is vetoed and does not stand aside: {vetoed:?}"));
            }
        }
        let (aside, vetoed) = (queues.aside(), self.steps.len());
        if aside != vetoed {
            return Err(format!("{aside} steps stand aside, {vetoed} are vetoed"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;

    #[test]
    fn each_step_of_a_class_is_looked_at_in_its_turn() {
        let (mut vetoed, class) = (VetoedSteps::default(), ClassId(7));
        let key = |job| StepKey { job: JobId(job), step: 0 };
        for job in 1..=5 {
            let queued_step = QueuedStep::new(0, Time(0), key(job));
            let (queue, why) = (QueueId(0), Ineligible::Reserved(ClassId(8)));
            vetoed.insert(VetoedStep { queue, class, queued_step, again: Time(1), looks: 1, why });
        }
        let look = |vetoed: &mut VetoedSteps| {
            let (first, in_turn) = vetoed.to_look_at(class, 2);
            let looked: Vec<u64> = first.chain(in_turn).map(|key| key.job.0).collect();
            in_turn.into_iter().for_each(|key| vetoed.looked_at(class, key));
            looked
        };
        let looks: Vec<_> = (0..5).map(|_| look(&mut vetoed)).collect();
        assert_eq!(looks, [[1, 2], [1, 3], [1, 4], [1, 5], [1, 2]]);
        vetoed.remove(key(3));
        assert_eq!(look(&mut vetoed), [1, 4]);
        assert_eq!(vetoed.to_look_at(class, 1).1, Some(key(5)));
        (1..=5).for_each(|job| _ = vetoed.remove(key(job)));
        assert_eq!(vetoed, VetoedSteps::default(), "nothing is left of a class that is gone");
    }
}
