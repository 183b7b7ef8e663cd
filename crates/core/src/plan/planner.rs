//! The state of planning, and what changes it outside of a round.

use super::Reservations;
use super::booking::{Booking, HeldAmounts};
use super::decision::{BlockedWork, Decision, SeenRoom};
use super::feasible::FeasibleWorkers;
use super::full_classes::FullClasses;
use super::placement::{MatchContext, Reservation};
use super::settings::{PlanSettings, Policy};
use super::vetoed::VetoedSteps;
use crate::bounds;
use crate::cache_keys::MissingMemo;
use crate::class::Classes;
use crate::ids::{ClassId, QueueId, StepKey, TaskId, WorkerId};
use crate::job::QueuedStep;
use crate::queues::{Queues, RoundFilter};
use crate::score::context::InstanceContext;
use crate::score::policy::ScoringPolicy;
use crate::score::windows::{InstanceWindows, Metric, RECOMPUTE_NS, Windows};
use crate::time::Time;
use crate::worker::Worker;
use crate::workers::Workers;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

/// What a round plans over, and what it remembers between rounds. The owner of the work changes `workers`, `queues`
/// and `classes` as things happen; everything else changes in rounds only.
#[derive(Clone, PartialEq, Debug)]
pub struct Planner {
    /// The workers, with what is booked on each.
    pub workers: Workers,
    /// The queues, with the steps that have ready tasks.
    pub queues: Queues,
    /// The classes of all steps.
    pub classes: Classes,
    pub(super) now: Time,
    pub(super) policy: Policy,
    pub(super) step_misses_max: usize,
    pub(super) prefetch_looks_max: usize,
    /// Classes without room anywhere.
    pub(super) full: FullClasses,
    /// Steps that a rule vetoes on every worker with room.
    pub(crate) vetoed: VetoedSteps,
    pub(super) reservations: Reservations,
    /// The reserved workers, and when the holders of the reservations could start there.
    pub(super) reserved: BTreeMap<WorkerId, Reservation>,
    pub(super) feasible_workers: FeasibleWorkers,
    /// What workers lack of what steps read. A cache: it decides nothing by being there.
    missing: RefCell<MissingMemo>,
    windows: Windows,
    pub(super) instance: InstanceContext,
    /// When the means of `instance` were computed last, and after how many nanoseconds they are again.
    computed: Time,
    means_ns: u64,
    /// When [`Planner::refresh_statistics`] said last that half a minute had passed.
    refreshed: Time,
    /// What the last full round could not place for other reasons than room.
    pub blocked: BlockedWork,
    /// By part of a queue, the most hundredths of a core that a step of it would take from builds whose turn comes first,
    /// as the last round found; and when the first of these turns is over.
    pub(super) yielding_cpu: BTreeMap<QueueId, u32>,
    pub(super) yields_until: Option<Time>,
    pub(super) decisions: VecDeque<Decision>,
    pub(super) seen_room: SeenRoom,
    /// Counts alone: nothing is decided by them, and a search only reads the plan.
    searches: Cell<Searches>,
    /// Where the next search for a worker to send work ahead to begins.
    pub(super) prefetch_from: WorkerId,
    /// Something changed since the last full round.
    pub(super) needs_round: bool,
}

/// How rounds looked for workers, since the engine was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Searches {
    /// Searches for a worker for a task, or for the workers of tasks that start together.
    pub searches: u64,
    /// Of these, the ones that found no worker with room.
    pub without_candidate: u64,
    /// Workers with room that they judged.
    pub candidates: u64,
}

impl Planner {
    /// A planner without workers or work.
    pub fn new(settings: PlanSettings) -> Self {
        Planner {
            workers: Workers::new(settings.saturation, settings.suspect_ns, settings.load)
                .with_candidates(settings.candidates_max),
            queues: Queues::new(settings.turn),
            classes: Classes::default(),
            now: Time::default(),
            policy: settings.policy,
            step_misses_max: settings.step_misses_max,
            prefetch_looks_max: settings.prefetch_looks_max,
            full: FullClasses::default(),
            vetoed: VetoedSteps::default(),
            reservations: Reservations::new(settings.reserve),
            reserved: BTreeMap::new(),
            feasible_workers: FeasibleWorkers::default(),
            missing: RefCell::default(),
            windows: Windows::default(),
            instance: InstanceContext {
                deadline_ms: Some(settings.wait_deadline_ms),
                ..InstanceContext::default()
            },
            computed: Time::default(),
            means_ns: settings.means_ns,
            refreshed: Time::default(),
            blocked: BlockedWork::default(),
            yielding_cpu: BTreeMap::new(),
            yields_until: None,
            decisions: VecDeque::new(),
            seen_room: SeenRoom::default(),
            searches: Cell::default(),
            prefetch_from: WorkerId(0),
            needs_round: false,
        }
    }

    /// Sets the time, before anything that happens at that time. It never goes back.
    pub fn set_now(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.queues.tell_time(self.now);
    }

    /// The time that was set last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Something changed that a round may act on.
    pub fn request_round(&mut self) {
        self.needs_round = true;
    }

    /// True if a round may find something to do.
    pub fn needs_round(&self) -> bool {
        self.needs_round
    }

    /// How pairs of step and worker are judged.
    pub fn policy(&self) -> &'static dyn ScoringPolicy {
        self.policy.0
    }

    /// Which worker is reserved for which class.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The reserved workers, and when the holders could start there, as of the last round.
    pub fn reserved(&self) -> &BTreeMap<WorkerId, Reservation> {
        &self.reserved
    }

    /// The last decisions, newest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().rev()
    }

    /// How rounds looked for workers so far.
    pub fn searches(&self) -> Searches {
        self.searches.get()
    }

    /// Counts a search of a round that judged this number of workers with room.
    pub(super) fn searched(&self, candidates: u32) {
        let mut all = self.searches.get();
        all.searches += 1;
        all.without_candidate += u64::from(candidates == 0);
        all.candidates += u64::from(candidates);
        self.searches.set(all);
    }

    /// True if a class fitted no worker when it was tried last, and none has gained room for it since.
    pub fn is_full(&self, class: ClassId) -> bool {
        self.full.contains(class)
    }

    /// The steps that a rule vetoes on every worker with room.
    pub fn vetoed_steps(&self) -> impl Iterator<Item = StepKey> + '_ {
        self.vetoed.steps()
    }

    /// Rounds look at a vetoed step again.
    pub(super) fn take_back(&mut self, key: StepKey) {
        self.needs_round |= self.vetoed.take_back(&mut self.queues, key);
    }

    /// Drops classes of which nothing waits any more.
    pub(super) fn forget_vanished(&mut self, filter: &mut RoundFilter) {
        for class in self.queues.take_vanished() {
            self.full.remove(class);
            filter.blocked_classes.remove(&class);
        }
    }

    /// Keeps a decision, and forgets the oldest where there are too many.
    pub(super) fn remember(&mut self, decision: Decision) {
        if self.decisions.len() == bounds::DECISIONS_MAX
            && let Some(oldest) = self.decisions.pop_front()
        {
            self.seen_room = SeenRoom::of(oldest);
        }
        self.decisions.push_back(decision);
    }

    /// Hundredths of a core that are idle although work waits, because nothing that waits fits there.
    pub fn stranded_cpu(&self) -> u64 {
        if self.full.is_empty() {
            return 0;
        }
        self.workers.iter().filter(|worker| worker.takes_work()).map(|w| u64::from(w.free().cpu)).sum()
    }

    /// Puts a step into its queue.
    pub fn enlist(&mut self, queue: QueueId, class: ClassId, queued_step: QueuedStep) {
        self.queues.insert(queue, class, queued_step);
        self.needs_round = true;
    }

    /// Takes a step out of its queue.
    pub fn withdraw(&mut self, queue: QueueId, class: ClassId, queued_step: &QueuedStep) {
        self.queues.remove(queue, class, queued_step);
        self.vetoed.remove(queued_step.step());
    }

    /// A step is of another class from now on: of `new`, which counts it already. It stands in its queue as
    /// `queued_step`, if it does.
    pub fn change_class(
        &mut self,
        queue: QueueId,
        (old, new): (ClassId, ClassId),
        queued_step: Option<&QueuedStep>,
    ) {
        if let Some(queued_step) = queued_step {
            // The new place first: a queue without a step for a moment would count as idle, and come in again behind
            // others.
            self.enlist(queue, new, *queued_step);
            self.withdraw(queue, old, queued_step);
            self.reservations.carry_over(old, new);
        }
        self.classes.release(old);
    }

    /// A step is gone: drops what was remembered of it.
    pub fn forget_step(&mut self, step: StepKey, class: ClassId, reads_nothing: bool) {
        self.classes.release(class);
        if !reads_nothing {
            self.missing.borrow_mut().forget(step);
        }
    }

    /// Pairs of step and worker of which it is remembered what the worker lacks.
    pub fn remembered_pairs(&self) -> usize {
        self.missing.borrow().len()
    }

    /// Drops some of the queues that were not set and have been unused for long, except those that `is_needed` names.
    pub fn prune_queues(&mut self, is_needed: impl Fn(QueueId) -> bool) {
        let over_quota = &self.blocked.over_quota;
        self.queues.prune(|id| is_needed(id) || over_quota.keys().any(|(queue, _)| *queue == id));
    }

    /// Takes away what was set of a queue. It is forgotten if it is unused and `is_needed` does not name it.
    pub fn unset_queue(&mut self, name: &str, is_needed: impl Fn(QueueId) -> bool) {
        let over_quota = &self.blocked.over_quota;
        self.queues.unset(name, |id| is_needed(id) || over_quota.keys().any(|(queue, _)| *queue == id));
    }

    /// Drops a worker, and the reservation of it.
    pub fn remove_worker(&mut self, id: WorkerId) {
        self.reservations.release(id);
        self.workers.remove(id);
    }

    /// A task of a step with that `profile` holds amounts of its worker and queue from now on.
    pub fn take(&mut self, booking: &Booking, task: TaskId, profile: u64, held: &HeldAmounts) {
        self.workers.update(booking.worker, |worker| {
            worker.warmth.ran(profile);
            if booking.is_ahead {
                worker.booked.send_ahead(task, held.expected_ms);
            } else {
                let step = booking.queued_step.step();
                worker.booked.hold(task, step, held.request, held.headroom_bytes, held.request.cpu);
                worker.booked.count_riding(u32::from(held.rides), 0);
            }
        });
        self.queues.hold(booking.queue, held.request.cpu);
    }

    /// Time passed: steps whose time has come are judged again, and so are reservations.
    pub fn tick(&mut self) {
        self.needs_round |= self.vetoed.take_back_due(&mut self.queues, self.now);
        self.needs_round |= self.reservations.next_full().is_some_and(|at| at <= self.now);
        self.needs_round |= self.yields_until.is_some_and(|at| at <= self.now);
    }

    /// When the planner wants a tick and a round although nothing happens.
    pub fn next_wakeup(&self) -> Option<Time> {
        [self.reservations.next_full(), self.vetoed.next(), self.yields_until].into_iter().flatten().min()
    }

    /// What the matcher chooses among, and by which settings.
    pub fn match_context(&self) -> MatchContext<'_> {
        let windows = &self.instance.windows;
        let mean = windows[Metric::MissingBytes].w1h.zip(windows[Metric::MissingKeys].w1h);
        MatchContext {
            now: self.now,
            workers: &self.workers,
            reserved: &self.reserved,
            policy: self.policy.0,
            instance: &self.instance,
            known: Some(&self.missing),
            key_bytes: mean.filter(|(_, keys)| *keys > 0.0).map(|(bytes, keys)| (bytes / keys) as u64),
        }
    }

    /// Adds to the means that rules compare with.
    pub fn record(&mut self, metric: Metric, value: f64) {
        self.windows.record(self.now, metric, value);
    }

    /// What rules see of the farm, as the last round had it.
    pub fn instance(&self) -> &InstanceContext {
        &self.instance
    }

    /// The means of the farm until `now`. What rules see of them is a little older.
    pub fn means(&self, now: Time) -> InstanceWindows {
        self.windows.recompute(now)
    }

    /// When [`refresh_statistics`](Planner::refresh_statistics) is true next.
    pub fn next_refresh(&self) -> Time {
        self.refreshed.after(RECOMPUTE_NS)
    }

    /// Computes the means that rules compare with, where their time has come. Returns true if half a minute has passed,
    /// whatever the settings say of the means.
    pub fn refresh_statistics(&mut self) -> bool {
        if self.is_over(self.computed, self.means_ns) {
            self.compute_means();
        }
        let is_due = self.is_over(self.refreshed, RECOMPUTE_NS);
        if is_due {
            self.refreshed = self.now;
        }
        is_due
    }

    /// True if this time has passed since `at`, or if that never was.
    fn is_over(&self, at: Time, ns: u64) -> bool {
        at == Time::default() || self.now.since(at) >= ns
    }

    fn compute_means(&mut self) {
        self.computed = self.now;
        self.instance.windows = self.windows.recompute(self.now);
        let speeds = self.workers.present().filter_map(Worker::core_score);
        let (sum, count) = speeds.fold((0.0, 0.0), |(sum, count), speed| (sum + speed, count + 1.0));
        self.instance.core_score = (count > 0.0).then(|| sum / count);
    }

    /// Compares what is remembered with the queues. `queued` returns the position at which a step stands in its
    /// queue.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub fn check(&self, queued: impl Fn(StepKey) -> Option<QueuedStep>) -> Result<(), String> {
        if !self.workers.is_consistent() {
            return Err(
                "the indexes of names, free room or deadlines are not what the workers make".to_owned()
            );
        }
        self.vetoed.check(&self.queues, queued)
    }
}
