//! One queue, or the part of it that is one user's: settings, what it holds, and its steps with ready tasks by class.

use super::fair::QueueShare;
use super::filter::RoundFilter;
use super::record::QueueRecord;
use super::turn::QueueTags;
use super::users::Users;
use crate::ids::{ClassId, QueueId};
use crate::job::QueuedStep;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Of how many classes, and how many steps of each, a worker that was found is offered others in the place
/// of the step that it was found for.
const RIVAL_CLASSES_MAX: usize = 8;
const RIVALS_PER_CLASS_MAX: usize = 8;

/// One queue, or one user's part of it: its share, and its steps with ready tasks by class.
///
/// The steps of a queue's first user are the queue's own. The second user brings `Users`: from then on each other user
/// has a part with an id of its own, and they take turns.
#[derive(Clone, PartialEq, Debug)]
pub struct Queue {
    /// As an administrator set it, or as its name says. In a user's part the weight is the user's.
    pub record: QueueRecord,
    /// Whose steps are here: the first user of the queue, or the user of this part of a queue.
    pub(super) user: Option<String>,
    /// Of which queue this is a part.
    pub(super) whole: Option<QueueId>,
    /// The turns of its users, once it has several.
    pub(super) users: Option<Box<Users>>,
    /// Booked or running tasks.
    pub active: u32,
    /// Hundredths of a core that these hold or will, without those that waiting tasks lend.
    pub booked_cpu: u64,
    /// Milliseconds that a task of the queue runs, as a mean over the last ones.
    pub mean_ms: Option<f64>,
    /// What its tasks were charged since the engine started, by the setting of [`Charge`](super::Charge): hundredths of
    /// core-milliseconds, or tasks.
    pub charged: i128,
    pub(super) tags: QueueTags,
    /// Jobs of it that the engine holds.
    pub(super) jobs: u32,
    /// When it was last used.
    pub(super) used: Time,
    /// It was unused for long: its place is free.
    pub(super) gone: bool,
    /// Parked work of it is not resident.
    pub(super) away: bool,
    /// No step of it is resident, and it waits for parked ones to be read.
    pub(super) awaits: bool,
    pub(super) by_class: BTreeMap<ClassId, Waiting>,
    /// The first open step of each class, in the queue's order.
    pub(super) heads: BTreeSet<(QueuedStep, ClassId)>,
}

/// The steps of one class that have ready tasks.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Waiting {
    pub(super) open: BTreeSet<QueuedStep>,
    /// Held by a rule when they were judged last: no round looks at them until they are taken back.
    pub(super) aside: BTreeSet<QueuedStep>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.aside.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len() + self.aside.len()
    }

    pub(super) fn first(&self) -> Option<&QueuedStep> {
        self.open.first().into_iter().chain(self.aside.first()).min()
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &QueuedStep> {
        self.open.iter().chain(&self.aside)
    }

    /// The first after this one, if any.
    fn after(&self, queued_step: &QueuedStep) -> Option<&QueuedStep> {
        let after = (Bound::Excluded(queued_step), Bound::Unbounded);
        self.open.range(after).next().into_iter().chain(self.aside.range(after).next()).min()
    }
}

impl Queue {
    /// True if it has jobs, or places of outside clients.
    pub fn has_work(&self) -> bool {
        self.jobs > 0 || self.active > 0 || !self.by_class.is_empty()
    }

    /// Rounds look at a step from now on.
    pub(super) fn open(&mut self, class: ClassId, queued_step: QueuedStep) {
        let open = &mut self.by_class.entry(class).or_default().open;
        let before = open.first().copied();
        open.insert(queued_step);
        if before.is_none_or(|head| queued_step < head) {
            self.heads.extend([(queued_step, class)]);
            before.map(|head| self.heads.remove(&(head, class)));
        }
    }

    /// Rounds do not look at a step any more; true if they did.
    pub(super) fn close(&mut self, class: ClassId, queued_step: &QueuedStep) -> bool {
        let Some(steps) = self.by_class.get_mut(&class) else { return false };
        let was_open = steps.open.remove(queued_step);
        if self.heads.remove(&(*queued_step, class)) {
            self.heads.extend(steps.open.first().map(|head| (*head, class)));
        }
        was_open
    }

    /// A round passes over a class in this queue, or in the whole of which this is a part.
    fn is_passed_over(&self, id: QueueId, class: ClassId, filter: &RoundFilter) -> bool {
        filter.is_blocked(id, self.whole.unwrap_or(id), class)
    }

    /// The first step in the queue's order that is not skipped and whose class is open.
    pub(super) fn first(
        &self,
        id: QueueId,
        filter: &mut RoundFilter,
        is_open: &dyn Fn(ClassId) -> bool,
    ) -> Option<(QueuedStep, ClassId)> {
        let mut best: Option<(QueuedStep, ClassId)> = None;
        let mut passed = None;
        let from = filter.cursors.get(&id).map_or(Bound::Unbounded, Bound::Included);
        for head in self.heads.range((from, Bound::Unbounded)) {
            if best.is_some_and(|best| best < *head) {
                break;
            }
            if self.is_passed_over(id, head.1, filter) || !is_open(head.1) {
                if best.is_none() {
                    passed = Some(*head);
                }
                continue;
            }
            let open = self.by_class.get(&head.1).into_iter().flat_map(|waiting| &waiting.open);
            let open = open.copied().find(|queued_step| !filter.blocked_steps.contains(&queued_step.step()));
            best = open.map(|queued_step| (queued_step, head.1)).into_iter().chain(best).min();
        }
        if let Some(passed) = passed {
            filter.cursors.insert(id, passed);
        }
        best
    }

    /// Steps that may be taken in the place of `queued_step`: of its priority, the first of some classes that
    /// are open and not skipped, in no order.
    pub fn rivals<'a>(
        &'a self,
        id: QueueId,
        queued_step: &'a QueuedStep,
        filter: &'a RoundFilter,
        is_open: &'a dyn Fn(ClassId) -> bool,
    ) -> impl Iterator<Item = (QueuedStep, ClassId)> + 'a {
        let heads = self.heads.iter().take_while(|(head, _)| head.is_peer(queued_step) || head < queued_step);
        let open =
            heads.filter(move |(_, class)| !self.is_passed_over(id, *class, filter) && is_open(*class));
        let open = open.take(RIVAL_CLASSES_MAX);
        let steps = open.flat_map(|(_, class)| {
            self.by_class
                .get(class)
                .into_iter()
                .flat_map(|waiting| &waiting.open)
                .map(|queued_step| (*queued_step, *class))
                .take(RIVALS_PER_CLASS_MAX)
        });
        steps.filter(move |(rival, _)| {
            rival.is_peer(queued_step)
                && rival != queued_step
                && !filter.blocked_steps.contains(&rival.step())
        })
    }

    /// True if [`Queue::rivals`] has room for all classes of the step's priority.
    pub fn has_few_classes(&self, queued_step: &QueuedStep) -> bool {
        let next = self.heads.iter().nth(RIVAL_CLASSES_MAX);
        next.is_none_or(|(head, _)| !head.is_peer(queued_step) && head > queued_step)
    }

    /// True if the round may take this step of the class from the queue.
    pub fn is_taken_from(
        &self,
        id: QueueId,
        class: ClassId,
        queued_step: &QueuedStep,
        filter: &RoundFilter,
    ) -> bool {
        !self.is_passed_over(id, class, filter)
            && !filter.blocked_steps.contains(&queued_step.step())
            && self.by_class.get(&class).is_some_and(|waiting| waiting.open.contains(queued_step))
    }

    /// The name of the queue, also of a user's part.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// 0 to 9, higher first, strictly.
    pub fn band(&self) -> u8 {
        self.record.band()
    }

    /// What it has had of its band, or a user's part of its queue.
    pub fn share(&self) -> &QueueShare {
        &self.tags.share
    }

    /// Whose part of a queue this is, and, of a whole queue, its first user.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The quota that this many hundredths of a core more would exceed; with `alone` the burst, for no other queue can
    /// use them.
    pub(super) fn over_quota(&self, cpu: u32, alone: bool) -> Option<u32> {
        let burst = self.record.burst_cpu.filter(|_| alone);
        let cap = burst.or(self.record.quota_cpu);
        cap.filter(|cap| self.booked_cpu + u64::from(cpu) > u64::from(*cap))
    }

    /// A new part of a queue, or a new queue, without work.
    pub(super) fn new(record: QueueRecord, now: Time) -> Queue {
        let mut tags = QueueTags::default();
        tags.share.set_weight(record.weight);
        Queue {
            record,
            user: None,
            whole: None,
            users: None,
            active: 0,
            booked_cpu: 0,
            mean_ms: None,
            charged: 0,
            tags,
            jobs: 0,
            used: now,
            gone: false,
            away: false,
            awaits: false,
            by_class: BTreeMap::new(),
            heads: BTreeSet::new(),
        }
    }

    /// True if a step of it, or of one of its users, is here and may be placed.
    pub(super) fn is_waiting(&self) -> bool {
        let waits = !self.by_class.is_empty() || self.users.as_ref().is_some_and(|users| users.waiting > 0);
        waits && self.record.paused.is_none()
    }

    /// The first step of each class, in the queue's order.
    pub fn heads(&self) -> impl Iterator<Item = (QueuedStep, ClassId)> + '_ {
        self.heads.iter().copied()
    }

    /// Its steps that have ready tasks, in the queue's order; no more of them are looked at than are taken.
    pub fn in_order(&self) -> impl Iterator<Item = (QueuedStep, ClassId)> + '_ {
        let firsts = self.by_class.iter().filter_map(|(class, waiting)| Some((*waiting.first()?, *class)));
        let mut firsts: BTreeSet<(QueuedStep, ClassId)> = firsts.collect();
        std::iter::from_fn(move || {
            let (first, class) = firsts.pop_first()?;
            let next = self.by_class.get(&class)?.after(&first);
            firsts.extend(next.map(|next| (*next, class)));
            Some((first, class))
        })
    }

    /// All of its steps that have ready tasks, by class.
    pub fn steps_by_class(&self) -> impl Iterator<Item = (ClassId, &QueuedStep)> {
        self.by_class.iter().flat_map(|(class, steps)| steps.all().map(|step| (*class, step)))
    }

    /// How many steps have ready tasks.
    pub fn steps(&self) -> usize {
        self.by_class.values().map(Waiting::len).sum()
    }

    /// True if more than one step has ready tasks.
    pub fn has_choice(&self) -> bool {
        self.by_class.len() > 1 || self.by_class.values().any(|steps| steps.len() > 1)
    }

    /// How many of its steps come before `queued_step`.
    pub fn position(&self, queued_step: &QueuedStep) -> usize {
        let before = |steps: &BTreeSet<QueuedStep>| steps.range(..queued_step).count();
        self.by_class.values().map(|steps| before(&steps.open) + before(&steps.aside)).sum()
    }
}
