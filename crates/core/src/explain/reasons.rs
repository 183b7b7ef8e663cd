//! The one reason for which a ready task waits. `windlass why`, the lists, the overview and the metrics all ask here, so
//! they say the same of a task at the same time.

use super::explanation::{FirstForLimit, Reason};
use super::gangs::{leader_of, too_little_room, unready_mates};
use super::survey::named;
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::{ClassId, JobId, QueueId, StepKey, TaskId};
use crate::job::{Job, QueuedStep};
use crate::ledger::lend;
use crate::plan;
use crate::plan::placement::{self, Ineligible};
use crate::queues::{Ahead, Queue};
use crate::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};

/// What was found out of classes, for many questions at one moment.
#[derive(Default)]
pub struct Known {
    looks: BTreeMap<ClassId, Look>,
    /// By the class of a gang's leader: whether the empty farm has too little room, and whether the farm has now.
    too_few: BTreeMap<ClassId, bool>,
    short: BTreeMap<ClassId, Option<Reason>>,
    ahead: BTreeMap<(QueueId, ClassId), Option<Reason>>,
    /// What stands first for the limit that a class waits for.
    limits: BTreeMap<(QueueId, ClassId), Option<FirstForLimit>>,
    /// Whether some worker could run tasks of both classes.
    both: BTreeMap<(ClassId, ClassId), bool>,
}

/// What the workers of the farm are to a class.
#[derive(Clone)]
struct Look {
    /// Some worker could run it if it were empty.
    could: bool,
    /// Some worker has room for it now.
    has_room: bool,
    /// The one reason that closes all workers that could run it, unless they are busy or it differs.
    closed: Option<Ineligible>,
}

impl Look {
    fn at(engine: &Engine, class: &Class) -> Look {
        let mut look = Look { could: false, has_room: false, closed: None };
        let mut mixed = false;
        for worker in engine.workers().present().filter(|w| placement::eligible_when_idle(class, w)) {
            look.could = true;
            if placement::fits_now(class, worker) {
                return Look { has_room: true, closed: None, ..look };
            }
            // Once two reasons are known only room can still change the answer.
            if mixed {
                continue;
            }
            let Some(first) = placement::ineligibilities(class, worker, true).next() else { continue };
            let closed = look.closed.get_or_insert_with(|| first.clone());
            mixed = matches!(first, Ineligible::Busy(_))
                || std::mem::discriminant(closed) != std::mem::discriminant(&first);
        }
        look.closed = look.closed.filter(|_| !mixed);
        look
    }
}

impl Known {
    fn look(&mut self, engine: &Engine, id: ClassId, class: &Class) -> &Look {
        self.looks.entry(id).or_insert_with(|| Look::at(engine, class))
    }

    fn has_too_few(&mut self, engine: &Engine, id: ClassId, class: &Class) -> bool {
        *self.too_few.entry(id).or_insert_with(|| plan::too_few_at_a_time(engine.planner(), class).is_some())
    }
}

/// Why a task of a step waits that has become ready; `None` if the step does not exist.
pub(super) fn of_ready(
    engine: &Engine,
    job: &Job,
    key: StepKey,
    index: u32,
    known: &mut Known,
) -> Option<Reason> {
    // What starts together is held back together.
    let leader = leader_of(job, key);
    let own = job.steps.get(usize::from(key.step))?.class;
    let class = engine.class(own)?;
    let (whole_id, whole) = (engine.ledger().step(leader)?.class, engine.class_of(leader)?);
    if engine.workers().present().next().is_none() {
        return Some(Reason::NoWorkers);
    }
    if !known.look(engine, own, class).could || known.has_too_few(engine, whole_id, whole) {
        return Some(Reason::FitsNowhere);
    }
    if let Some(reason) = held_back(engine, job, leader, (whole_id, whole), known) {
        return Some(reason);
    }
    if let Some(reason) = unready_mates(job, index) {
        return Some(reason);
    }
    if job.is_in_gang(leader.step.into()) {
        let short = known.short.entry(whole_id).or_insert_with(|| too_little_room(engine, job, leader));
        if let Some(reason) = short.clone() {
            return Some(reason);
        }
    }
    Some(of_room(engine, leader, (job.queue, own, class), known))
}

/// Why no worker starts a step that nothing else holds back.
pub(super) fn of_room(
    engine: &Engine,
    leader: StepKey,
    (queue, id, class): (QueueId, ClassId, &Class),
    known: &mut Known,
) -> Reason {
    let look = known.look(engine, id, class);
    if look.has_room {
        // Without a veto, what vetoed it has changed since it was judged last: it is judged again soon.
        let vetoed = engine.planner().vetoed.get(leader).map(|vetoed| vetoed.why.clone());
        let build = engine.planner().blocked.build_turns.get(&(queue, id));
        let why = vetoed.or_else(|| Some(Ineligible::BuildTurn(build?.clone())));
        return why.map_or(Reason::Turn, |why| Reason::Closed(named(engine, why)));
    }
    if let Some(closed) = look.closed.clone() {
        return Reason::Closed(closed);
    }
    if let Some(ahead) = known.ahead.get(&(queue, id)) {
        return ahead.clone().unwrap_or(Reason::Full);
    }
    let reason = first_ahead(engine, queue, (id, class), known).map(Reason::behind);
    known.ahead.insert((queue, id), reason.clone());
    reason.unwrap_or(Reason::Full)
}

/// What keeps a step from being started whatever room there is.
fn held_back(
    engine: &Engine,
    job: &Job,
    leader: StepKey,
    (id, whole): (ClassId, &Class),
    known: &mut Known,
) -> Option<Reason> {
    let queue = engine.queues().get(engine.queues().whole(job.queue));
    if let Some(note) = &queue.record.paused {
        return Some(Reason::Paused(note.clone()));
    }
    // What keeps one of those with which it starts keeps it, too.
    let mates = || job.gang_steps(leader.step.into());
    let back_off =
        mates().find_map(|step| engine.licences().back_off(StepKey { step: step as u16, ..leader }));
    if let Some(busy) = back_off {
        return Some(Reason::BackOff { name: busy.limit.clone(), until: busy.until, times: busy.times });
    }
    if let Some(cap) = job.cap_reached(leader.step.into()) {
        return Some(Reason::MaxRunning(cap));
    }
    if let Some(running) = mates().find_map(|step| engine.profiles().throttled(job.steps[step].profile)) {
        return Some(Reason::Probing { running });
    }
    if let Some(quota_cpu) = over_quota(engine, job.queue, id) {
        return Some(Reason::Quota { quota_cpu, booked_cpu: queue.booked_cpu });
    }
    let held = engine.licences().all_reached(whole).find_map(|(name, max, _)| {
        let holder = waiting_holder(engine, job.id, name, max.checked_sub(whole.takes(name))?)?;
        Some(Reason::Limit { name: name.to_owned(), max, first: None, waiting_holder: Some(holder) })
    });
    if held.is_some() {
        return held;
    }
    let (name, max, _) = engine.licences().reached(whole)?;
    let first = match known.limits.get(&(job.queue, id)) {
        Some(first) => first.clone(),
        // No task gets any of a limit of which there are none.
        None => (max > 0).then(|| first_for_limit(engine, job.queue, (id, whole), name, known)).flatten(),
    };
    known.limits.insert((job.queue, id), first.clone());
    Some(Reason::Limit { name: name.to_owned(), max, first, waiting_holder: None })
}

/// The nearest of the tasks that wait for a job and hold a limit, if these hold more of it than `spared`.
fn waiting_holder(engine: &Engine, job: JobId, limit: &str, spared: u32) -> Option<TaskId> {
    let ledger = engine.ledger();
    let holds = |task: &TaskId| {
        let spec = ledger.spec_of(ledger.key_of(*task));
        spec.is_some_and(|spec| spec.limits.contains(limit))
    };
    let holders: Vec<TaskId> = lend::waiting_for(ledger, job).into_iter().filter(holds).collect();
    holders.first().copied().filter(|_| holders.len() > spared as usize)
}

/// The first of the other queues, and of the other users of the queue, whose turn is before and that waits for this
/// limit.
fn first_for_limit(
    engine: &Engine,
    part: QueueId,
    class: (ClassId, &Class),
    limit: &str,
    known: &mut Known,
) -> Option<FirstForLimit> {
    let takes = |_: &QueuedStep, theirs: &Class| theirs.takes(limit) > 0;
    let (first, _) = parts_before(engine, part)
        .find(|(other, _)| could_use(engine, (part, *other), class, known, takes))?;
    ahead_by(engine, part, first).map(FirstForLimit::of)
}

/// The quota, or the burst, that keeps tasks of a class from being placed: the same caps as a round's.
pub(super) fn over_quota(engine: &Engine, queue: QueueId, class: ClassId) -> Option<u32> {
    let plan = engine.planner();
    let cpu = plan.classes.get(class).cpu_at_a_time();
    let of_queue = plan.queues.over_quota(queue, cpu, true);
    of_queue.or_else(|| plan.blocked.over_quota.get(&(plan.queues.whole(queue), class)).copied())
}

/// What stands before a part of a queue and could use a worker that could run this class. Others do not delay it.
pub(super) struct AheadOf {
    /// Other queues, each as a whole.
    pub(super) queues: BTreeSet<QueueId>,
    /// The other users of the same queue.
    pub(super) users: BTreeSet<QueueId>,
}

/// All parts of queues that come before this one and could use what could run the class.
pub(super) fn ahead_of(
    engine: &Engine,
    part: QueueId,
    class: (ClassId, &Class),
    known: &mut Known,
) -> AheadOf {
    let whole = engine.queues().whole(part);
    let mut ahead = AheadOf { queues: BTreeSet::new(), users: BTreeSet::new() };
    for (other, _) in parts_before(engine, part) {
        if could_use(engine, (part, other), class, known, |_, _| true) {
            let other_whole = engine.queues().whole(other);
            if other_whole == whole {
                ahead.users.insert(other)
            } else {
                ahead.queues.insert(other_whole)
            };
        }
    }
    ahead
}

/// The first of these: a queue, or a user of the same queue.
pub(super) fn first_ahead<'a>(
    engine: &'a Engine,
    part: QueueId,
    class: (ClassId, &Class),
    known: &mut Known,
) -> Option<Ahead<'a>> {
    let (first, _) = parts_before(engine, part)
        .find(|(other, _)| could_use(engine, (part, *other), class, known, |_, _| true))?;
    ahead_by(engine, part, first)
}

/// How a part of a queue that comes before this one is named.
fn ahead_by(engine: &Engine, part: QueueId, first: QueueId) -> Option<Ahead<'_>> {
    match engine.queues().whole(first) {
        other if other != engine.queues().whole(part) => {
            Some(Ahead::Queue(engine.queues().get(other).name()))
        }
        _ => engine.queues().get(first).user().map(Ahead::User),
    }
}

/// True if smaller work that comes after a step may start before it, in room that is not enough for its class. Once a
/// worker is reserved for the class, only what does not delay it may.
pub(super) fn may_be_overtaken(
    engine: &Engine,
    part: QueueId,
    queued: &QueuedStep,
    class: (ClassId, &Class),
    known: &mut Known,
) -> bool {
    if engine.planner().reservations().held_by(class.0) > 0 {
        return false;
    }
    let mut not_before = engine.queues().in_turn().skip_while(|(other, _)| *other != part);
    not_before.any(|(other, _)| {
        let is_smaller = |step: &QueuedStep, theirs: &Class| {
            (other != part || step > queued) && !class.1.request.fits(&theirs.request)
        };
        could_use(engine, (part, other), class, known, is_smaller)
    })
}

/// The parts of queues whose turn comes before, in order. A part that has no ready step stands behind all that have.
fn parts_before(engine: &Engine, part: QueueId) -> impl Iterator<Item = (QueueId, &Queue)> {
    engine.queues().in_turn().take_while(move |(other, _)| *other != part)
}

/// True if some ready step of a part of a queue that is meant could start on a worker that could run the class, and
/// only what the class waits for, too, keeps it: room, its own queue's quota, or limits.
fn could_use(
    engine: &Engine,
    (own, part): (QueueId, QueueId),
    (id, class): (ClassId, &Class),
    known: &mut Known,
    is_meant: impl Fn(&QueuedStep, &Class) -> bool,
) -> bool {
    let queues = engine.queues();
    let waits_for_quota = queues.whole(own) == queues.whole(part) && over_quota(engine, own, id).is_some();
    let waits_for: BTreeSet<&str> = engine.licences().all_reached(class).map(|(name, ..)| name).collect();
    queues.get(part).heads().any(|(step, other)| {
        let Some(theirs) = engine.class(other) else { return false };
        if !is_meant(&step, theirs) {
            return false;
        }
        let shared = |worker: &Worker| {
            worker.takes_work()
                && placement::could_take_part(class, worker)
                && placement::could_take_part(theirs, worker)
        };
        let pair = (id.min(other), id.max(other));
        let both = *known.both.entry(pair).or_insert_with(|| engine.workers().present().any(shared));
        both && (waits_for_quota || over_quota(engine, part, other).is_none())
            && engine.licences().all_reached(theirs).all(|(name, ..)| waits_for.contains(name))
    })
}
