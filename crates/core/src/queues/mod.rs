//! Whose turn it is: strict bands first, inside a band the queue that has had least for its weight,
//! inside a queue priority, then the time since when a step is ready less the head start that the tasks
//! behind it give it, then its id.
//!
//! Properties: a band with work that fits is served before any lower band; a queue that was idle
//! comes in at the clock of its band, so it neither gathers credit nor pays for others, and keeps its debt;
//! one whose work fits nowhere stops no other, and has credit for one task when it fits again; the cost of
//! finding the next step follows queues and classes, never tasks.

mod bands;
mod fair;
mod record;
mod turn;

pub use bands::band_of;
pub use fair::{Advance, QueueShare};
pub use record::{BAND_MAX, BadSetting, QueueRecord, WEIGHT_DEFAULT, check_name};

use crate::bounds;
use crate::ids::{ClassId, QueueId, StepKey};
use crate::job::QueuedStep;
use crate::time::Time;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use turn::{QueueTags, TurnOrder};

/// Of how many classes, and how many steps of each, a worker that was found is offered others in the place
/// of the step that it was found for.
const RIVAL_CLASSES_MAX: usize = 8;
const RIVALS_PER_CLASS_MAX: usize = 8;

/// What bookings cost a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Charge {
    /// The time that they hold of a worker: an estimate at first, corrected when they end.
    #[default]
    Time,
    /// One each. In this mode no queue that always has work is ever more than one task from its share.
    Task,
}

/// How turns are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnSettings {
    /// What bookings cost a queue.
    pub charge: Charge,
    /// A queue that becomes active and owes nothing gets its first task out of turn, one booking in so many
    /// at most; `None`: it waits for its turn.
    pub express: Option<u32>,
}

impl Default for TurnSettings {
    fn default() -> Self {
        TurnSettings { charge: Charge::Time, express: Some(8) }
    }
}

/// One queue: its name, its band, its share, and its steps with ready tasks by class.
#[derive(Clone, PartialEq, Debug)]
pub struct Queue {
    /// As somebody set it, or as it is by its name.
    pub record: QueueRecord,
    /// Booked or running tasks.
    pub active: u32,
    /// Hundredths of a core that these hold or will.
    pub booked_cpu: u64,
    /// Milliseconds that a task of the queue runs, as a mean over the last ones.
    pub mean_ms: Option<f64>,
    /// What its tasks were charged since the engine started, by the setting of [`Charge`]: hundredths of
    /// core-milliseconds, or tasks.
    pub charged: i128,
    tags: QueueTags,
    /// Jobs of it that the engine holds.
    jobs: u32,
    /// When somebody last had to do with it.
    used: Time,
    /// Nobody does any more: its place is free.
    gone: bool,
    /// More of its work is parked.
    parked: bool,
    /// It has no step here and waits for parked ones to be read.
    awaits: bool,
    by_class: BTreeMap<ClassId, Waiting>,
    /// The first open step of each class, in the queue's order.
    heads: BTreeSet<(QueuedStep, ClassId)>,
}

/// The steps of one class that have ready tasks.
#[derive(Clone, PartialEq, Debug, Default)]
struct Waiting {
    open: BTreeSet<QueuedStep>,
    /// Held by a rule when they were judged last: no round looks at them until they are taken back.
    aside: BTreeSet<QueuedStep>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.aside.is_empty()
    }

    fn len(&self) -> usize {
        self.open.len() + self.aside.len()
    }

    fn first(&self) -> Option<&QueuedStep> {
        self.open.first().into_iter().chain(self.aside.first()).min()
    }

    /// All of them, in no order.
    fn all(&self) -> impl Iterator<Item = &QueuedStep> {
        self.open.iter().chain(&self.aside)
    }

    /// The first after this one, if any.
    fn after(&self, queued_step: &QueuedStep) -> Option<&QueuedStep> {
        let after = (Bound::Excluded(queued_step), Bound::Unbounded);
        self.open.range(after).next().into_iter().chain(self.aside.range(after).next()).min()
    }
}

/// What a round has given up on, each until the next round. Nothing comes off it, and no step is added to a
/// queue during a round, so a queue is walked through once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RoundFilter {
    /// Classes that are passed over.
    pub blocked_classes: BTreeSet<ClassId>,
    /// Classes of one queue that are passed over for the queue's own reasons.
    pub blocked_in_queue: BTreeSet<(QueueId, ClassId)>,
    /// Steps that are passed over for reasons of their own.
    pub blocked_steps: BTreeSet<StepKey>,
    /// The last head of each queue that was passed over: nothing before it is open in this round.
    cursors: BTreeMap<QueueId, (QueuedStep, ClassId)>,
    /// Queues of which nothing is left.
    exhausted: Vec<QueueId>,
    /// How many of these are known to have been passed over.
    passed: usize,
}

impl RoundFilter {
    fn class(&self, queue: QueueId, class: ClassId) -> bool {
        self.blocked_classes.contains(&class) || self.blocked_in_queue.contains(&(queue, class))
    }
}

impl Queue {
    /// Rounds look at a step from now on.
    fn open(&mut self, class: ClassId, queued_step: QueuedStep) {
        let open = &mut self.by_class.entry(class).or_default().open;
        let before = open.first().copied();
        open.insert(queued_step);
        if before.is_none_or(|head| queued_step < head) {
            self.heads.extend([(queued_step, class)]);
            before.map(|head| self.heads.remove(&(head, class)));
        }
    }

    /// Rounds do not look at a step any more; true if they did.
    fn close(&mut self, class: ClassId, queued_step: &QueuedStep) -> bool {
        let Some(steps) = self.by_class.get_mut(&class) else { return false };
        let was_open = steps.open.remove(queued_step);
        if self.heads.remove(&(*queued_step, class)) {
            self.heads.extend(steps.open.first().map(|head| (*head, class)));
        }
        was_open
    }

    /// The first step in the queue's order that is not skipped and whose class is open.
    fn first(
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
            if filter.class(id, head.1) || !is_open(head.1) {
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
        let open = heads.filter(move |(_, class)| !filter.class(id, *class) && is_open(*class));
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// 0 to 9, higher first, strictly.
    pub fn band(&self) -> u8 {
        self.record.band()
    }

    /// What it has had of its band.
    pub fn share(&self) -> &QueueShare {
        &self.tags.share
    }

    /// The quota that would be exceeded by so many hundredths of a core more; `alone`: nobody else can use
    /// them.
    pub fn over_quota(&self, cpu: u32, alone: bool) -> Option<u32> {
        let burst = self.record.burst_cpu.filter(|_| alone);
        let cap = burst.or(self.record.quota_cpu);
        cap.filter(|cap| self.booked_cpu + u64::from(cpu) > u64::from(*cap))
    }

    fn is_waiting(&self) -> bool {
        !self.by_class.is_empty() && self.record.paused.is_none()
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

/// All queues.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Queues {
    all: Vec<Queue>,
    by_name: BTreeMap<String, QueueId>,
    turns: TurnOrder,
    /// Queues of which something is booked.
    active: BTreeSet<QueueId>,
    /// Places of queues that are gone.
    free: Vec<QueueId>,
    /// Where the next look for queues that nobody uses begins.
    looked: usize,
    now: Time,
    /// Queues that wait with steps of a class.
    by_class: BTreeMap<ClassId, BTreeSet<QueueId>>,
    /// Classes of which nothing waits any more, since somebody asked.
    vanished: BTreeSet<ClassId>,
}

impl Queues {
    /// No queues yet.
    pub fn new(settings: TurnSettings) -> Self {
        Queues { turns: TurnOrder::new(settings), ..Queues::default() }
    }

    /// The queue of that name, made if there is none.
    pub fn intern(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.by_name.get(name) {
            self.all[id.0 as usize].used = self.now;
            return *id;
        }
        let queue = Queue {
            record: QueueRecord::named(name),
            active: 0,
            booked_cpu: 0,
            mean_ms: None,
            charged: 0,
            tags: QueueTags::default(),
            jobs: 0,
            used: self.now,
            gone: false,
            parked: false,
            awaits: false,
            by_class: BTreeMap::new(),
            heads: BTreeSet::new(),
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id.0 as usize] = queue;
                id
            }
            None => {
                self.all.push(queue);
                QueueId(self.all.len() as u32 - 1)
            }
        };
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// The queue of that name, if there is one.
    pub fn id(&self, name: &str) -> Option<QueueId> {
        self.by_name.get(name).copied()
    }

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
            self.turns.join_band(queue.band(), &mut queue.tags);
        }
        self.turns.set_weight(id, queue.band(), &mut queue.tags, record.weight);
        let queue_wakes = queue.is_waiting() && (moved || !waited);
        if queue_wakes {
            self.wake(id);
        }
        let queue = &mut self.all[id.0 as usize];
        let (waits, classes) = (queue.is_waiting(), queue.by_class.keys().copied().collect::<Vec<_>>());
        classes.into_iter().for_each(|class| self.note_class(id, class, waits));
    }

    fn note_class(&mut self, id: QueueId, class: ClassId, waits: bool) {
        if waits {
            self.by_class.entry(class).or_default().insert(id);
        } else if let Some(queues) = self.by_class.get_mut(&class) {
            queues.remove(&id);
            if queues.is_empty() {
                self.by_class.remove(&class);
                self.vanished.insert(class);
            }
        }
    }

    /// The queue with this id.
    pub fn get(&self, id: QueueId) -> &Queue {
        &self.all[id.0 as usize]
    }

    /// All queues, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.all.iter().filter(|queue| !queue.gone)
    }

    /// All queues with their ids.
    pub fn with_ids(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        (0..).map(QueueId).zip(&self.all).filter(|(_, queue)| !queue.gone)
    }

    /// A job of the queue is held from now on, or no more.
    pub fn count_job(&mut self, id: QueueId, by: i32) {
        let queue = &mut self.all[id.0 as usize];
        queue.jobs = queue.jobs.saturating_add_signed(by);
        queue.used = self.now;
    }

    /// Forgets queues that nobody set and nobody has used for long, with what they had; looks at some of them.
    /// `is_needed` tells of one whether something else still names it.
    pub fn prune(&mut self, is_needed: impl Fn(QueueId) -> bool) {
        for _ in 0..bounds::PRUNED_MAX.min(self.all.len()) {
            self.looked = (self.looked + 1) % self.all.len();
            let (id, queue) = (QueueId(self.looked as u32), &mut self.all[self.looked]);
            let idle = queue.jobs == 0 && queue.active == 0 && queue.by_class.is_empty();
            let unset = queue.record == QueueRecord::named(&queue.record.name);
            let old = self.now.since(queue.used) >= bounds::QUEUE_IDLE_NS;
            if queue.gone || !idle || !unset || !old || queue.parked || queue.awaits || is_needed(id) {
                continue;
            }
            queue.gone = true;
            self.by_name.remove(&queue.record.name);
            self.free.push(id);
        }
    }

    /// All queues by name.
    pub fn by_name(&self) -> impl Iterator<Item = &Queue> {
        self.by_name.values().map(|id| self.get(*id))
    }

    /// Adds a step that has ready tasks.
    pub fn insert(&mut self, id: QueueId, class: ClassId, queued_step: QueuedStep) {
        let queue = &mut self.all[id.0 as usize];
        let waited = queue.is_waiting();
        let is_first = !queue.by_class.contains_key(&class);
        queue.open(class, queued_step);
        if !waited && queue.is_waiting() {
            // Who waited for its own work to be read was never idle.
            if std::mem::take(&mut queue.awaits) {
                self.turns.resume(id, queue.band(), &mut queue.tags);
            } else {
                self.wake(id);
            }
        }
        if is_first && self.all[id.0 as usize].is_waiting() {
            self.note_class(id, class, true);
        }
    }

    /// Takes out a step that has no ready tasks any more.
    pub fn remove(&mut self, id: QueueId, class: ClassId, queued_step: &QueuedStep) {
        let queue = &mut self.all[id.0 as usize];
        let waited = queue.is_waiting();
        queue.close(class, queued_step);
        let Some(steps) = queue.by_class.get_mut(&class) else { return };
        steps.aside.remove(queued_step);
        if !steps.is_empty() {
            return;
        }
        queue.by_class.remove(&class);
        if waited && !queue.is_waiting() {
            queue.awaits = queue.parked;
            if queue.awaits {
                self.turns.suspend(id, queue.band(), &mut queue.tags);
            } else {
                self.turns.deactivate(id, queue.band(), &mut queue.tags);
            }
        }
        self.note_class(id, class, false);
    }

    /// What time it is.
    pub fn tell_time(&mut self, now: Time) {
        self.now = now;
    }

    /// A queue has work again, and nothing that waited before. What others had until now they did not take from
    /// it: it comes in level with the one that waits with least, by what that one's tasks have run. Where nobody
    /// waits, it comes in level with all that run.
    fn wake(&mut self, id: QueueId) {
        let band = self.get(id).band();
        let served = |id: &QueueId| self.get(*id).share().served(self.now);
        let level = match self.turns.least(band) {
            Some(least) => Some(served(&least)),
            None => self.active.iter().filter(|id| self.get(**id).band() == band).map(served).max(),
        };
        if let Some(level) = level {
            self.turns.catch_up(band, level);
        }
        self.turns.activate(id, band, &mut self.all[id.0 as usize].tags);
    }

    /// What a queue's tasks were charged in advance is something else from now on.
    pub fn advance(&mut self, id: QueueId, before: &Advance, after: &Advance) {
        let advance = &mut self.all[id.0 as usize].tags.share.advance;
        advance.sub(before);
        advance.add(after);
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

    /// Whether more work of the queue is parked. While it is the queue does not count as idle, though nothing
    /// of it is here.
    pub fn set_parked(&mut self, id: QueueId, parked: bool) {
        let queue = &mut self.all[id.0 as usize];
        queue.parked = parked;
        if queue.awaits && !parked {
            queue.awaits = false;
            self.turns.deactivate(id, queue.band(), &mut queue.tags);
        }
    }

    /// The queues that have ready steps, in the order of their turns.
    pub fn in_turn(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        self.turns.iter().map(|id| (id, self.get(id)))
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

    /// True if a step of this class waits.
    pub fn has_class(&self, class: ClassId) -> bool {
        self.by_class.contains_key(&class)
    }

    /// The steps of a class that wait, of all queues.
    pub fn steps_of(&self, class: ClassId) -> impl Iterator<Item = StepKey> + '_ {
        let queues = self.by_class.get(&class).into_iter().flatten();
        let of_class = move |id: &QueueId| self.get(*id).by_class.get(&class);
        let steps = queues.filter_map(of_class).flat_map(Waiting::all);
        steps.map(QueuedStep::step)
    }

    /// True if it is out of turn to place this step while work of a class waits: that waits in a higher band,
    /// in a queue of its band that had no more of its share, or in its queue with no lower priority.
    pub fn overtakes(&self, id: QueueId, queued_step: &QueuedStep, waiting: ClassId) -> bool {
        let (band, start) = (self.get(id).band(), self.get(id).share().start_tag());
        self.by_class.get(&waiting).into_iter().flatten().any(|other| {
            let queue = self.get(*other);
            match queue.band().cmp(&band) {
                Ordering::Equal if *other == id => {
                    let first = queue.by_class.get(&waiting).and_then(Waiting::first);
                    first.is_some_and(|first| first.is_peer(queued_step) || first < queued_step)
                }
                Ordering::Equal => queue.share().start_tag() <= start,
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
            let queue = &mut self.all[id.0 as usize];
            if let Some((queued_step, class)) = queue.first(id, filter, is_open) {
                return Some((id, queued_step, class));
            }
            self.turns.suspend(id, queue.band(), &mut queue.tags);
            filter.exhausted.push(id);
        }
        None
    }

    /// Who had nothing that fitted stands in line again.
    pub fn resume_exhausted(&mut self, filter: &mut RoundFilter) {
        filter.passed = 0;
        filter.cursors.clear();
        for id in filter.exhausted.drain(..) {
            let queue = &mut self.all[id.0 as usize];
            if queue.is_waiting() {
                self.turns.resume(id, queue.band(), &mut queue.tags);
            }
        }
    }

    /// One task of the queue was booked and costs it so much. Queues of its band whose turn it was and that
    /// had nothing that fitted were passed over.
    pub fn charge(&mut self, id: QueueId, cost: u64, filter: &mut RoundFilter) {
        let band = self.get(id).band();
        let before = std::mem::replace(&mut filter.passed, filter.exhausted.len());
        for passed in &filter.exhausted[before..] {
            let queue = &mut self.all[passed.0 as usize];
            if *passed != id && queue.band() == band {
                self.turns.pass_over(band, &mut queue.tags);
            }
        }
        let queue = &mut self.all[id.0 as usize];
        queue.charged += i128::from(cost);
        self.turns.charge(id, band, &mut queue.tags, cost);
    }

    /// An attempt of the queue holds so many hundredths of a core from now on.
    pub fn hold(&mut self, id: QueueId, cpu: u32) {
        let queue = &mut self.all[id.0 as usize];
        queue.active += 1;
        self.active.insert(id);
        queue.booked_cpu += u64::from(cpu);
    }

    /// What a task of the queue was charged is corrected by so much; see [`QueueShare::correct`].
    pub fn correct(&mut self, id: QueueId, by: i64, task: Option<u64>) {
        let queue = &mut self.all[id.0 as usize];
        queue.charged += i128::from(by);
        let band = queue.band();
        self.turns.correct(id, band, &mut queue.tags, by, task);
        if self.turns.least(band).is_none() {
            // Nobody waits: what this queue had it took from nobody.
            let served = self.get(id).share().served(self.now);
            self.turns.catch_up(band, served);
        }
    }

    /// A task of the queue ran to its end in so many milliseconds.
    pub fn learn(&mut self, id: QueueId, ms: f64) {
        let mean = &mut self.all[id.0 as usize].mean_ms;
        *mean = Some(mean.map_or(ms, |mean| mean + (ms - mean) / 8.0));
    }

    /// An attempt of the queue ended.
    pub fn settle(&mut self, id: QueueId, cpu: u32) {
        let queue = &mut self.all[id.0 as usize];
        queue.active = queue.active.saturating_sub(1);
        if queue.active == 0 {
            self.active.remove(&id);
        }
        queue.booked_cpu = queue.booked_cpu.saturating_sub(u64::from(cpu));
    }

    /// The queue with ready steps whose turn is next, if it is not this one.
    pub fn first_ahead(&self, id: QueueId) -> Option<&str> {
        self.turns.first().filter(|first| *first != id).map(|first| self.get(first).name())
    }

    /// How many queues with ready steps come before this one.
    pub fn queues_ahead(&self, id: QueueId) -> usize {
        self.turns.iter().take_while(|other| *other != id).count()
    }
}
