//! Why a task is where it is: the same predicates as placement, counted instead of decided.

mod entitlement;
mod gangs;
mod parked;
mod place;
mod waits;
mod words;
mod worker;

pub use entitlement::{Entitlement, Pool, entitlements, pool};
use gangs::{leader_of, request_of, say_missing, say_too_few, too_little_room, unready_mates};
pub use parked::parked_task;
pub use place::{held_place, waiting_place};
use waits::over_quota;
pub use waits::{BlockedReason, wait_reason, waiting_tasks};
pub use words::Word;
pub use worker::{Lost, Passed, PassedVerdict, ReservedFor, WorkerExplanation, WorkerReason, worker};

use crate::bounds;
use crate::engine::Engine;
use crate::ids::{JobId, StepKey, TaskId, WorkerId};
use crate::job::{BackOff, DependencyKind, RunningCap, Stop, TaskState};
use crate::plan::placement::{self, Ineligible, PlacementRequest};
use crate::plan::{self, Decision, Judged};
use crate::queues::Ahead;
use crate::tags::{EXECUTOR, Need, asks_executor};
use crate::time::Time;
use std::collections::BTreeMap;

/// Why a task is not running, or where it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// The task's state.
    pub state: TaskState,
    /// The one reason that counts.
    pub reason: Reason,
    /// The step's place in its queue, where it stands in one.
    pub turn: Option<Turn>,
    /// What rules workers out now, most frequent first, with names of some.
    pub ruled_out: Vec<(Ineligible, usize, Vec<String>)>,
    /// Workers with room.
    pub open_workers: usize,
    /// How the best of these are judged, or how those were among which the decision was made.
    pub judged: Vec<Judged>,
    /// When that was, where it is over.
    pub decided: Option<Time>,
    /// What would make it run, smallest first.
    pub changes: Vec<Change>,
}

/// The one reason that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It is over.
    Ended,
    /// It runs there, or is about to.
    Placed {
        /// Where.
        worker: WorkerId,
        /// Since when its process runs, if it does.
        started: Option<Time>,
        /// It waits at its worker for a running task to end.
        queued: bool,
    },
    /// Nothing of its job starts any more.
    Stopped(Stop),
    /// Its job is held.
    Held,
    /// Its job comes after these.
    AfterJobs(Vec<JobId>),
    /// It waits for other steps: name, tasks still to succeed, tasks failed.
    Steps(Vec<(String, u32, u32)>),
    /// The farm has no workers that take work.
    NoWorkers,
    /// No worker could run it even if it were empty.
    FitsNowhere,
    /// Its queue starts nothing, with the note of who said so.
    Paused(String),
    /// Its queue holds as much as it may.
    Quota {
        /// Hundredths of a core that it may hold.
        quota_cpu: u32,
        /// Hundredths of a core that it holds.
        booked_cpu: u64,
    },
    /// A licence was busy when its step was tried last; the step starts nothing until then.
    BackOff {
        /// The limit.
        name: String,
        /// Until when.
        until: Time,
        /// How often in a row it was busy; 0 where a task succeeded since.
        times: u32,
    },
    /// All licences of this name are taken.
    Limit {
        /// Its name.
        name: String,
        /// How many there are.
        max: u32,
    },
    /// Its kind's memory is not known yet, and so many tasks that are to show it run.
    Probing {
        /// How many.
        running: u32,
    },
    /// Every worker that could run it is closed to it for this one reason.
    Closed(Ineligible),
    /// Its job is parked: so many others of its queue come first.
    Parked {
        /// How many jobs.
        ahead: u64,
        /// Some of them are other users', who take turns with its user.
        is_at_most: bool,
    },
    /// As many tasks of its step or job run as may.
    MaxRunning(RunningCap),
    /// It starts together with others, and not all have a worker with room.
    Together {
        /// How many start together.
        tasks: u32,
        /// How many have one.
        placed: u32,
    },
    /// It starts together with others, and some are not ready.
    Mates {
        /// How many are not.
        waiting: u32,
        /// Some failed for good.
        lost: bool,
    },
    /// Every worker that could run it is full, or takes no new work.
    Full,
    /// The same, and what becomes free goes to this queue first.
    Behind(String),
    /// The same, and what its queue gets goes to this user first.
    BehindUser(String),
    /// There is room; the next round starts it, or others before it.
    Turn,
}

impl Reason {
    fn behind(ahead: Ahead<'_>) -> Reason {
        match ahead {
            Ahead::Queue(queue) => Reason::Behind(queue.to_owned()),
            Ahead::User(user) => Reason::BehindUser(user.to_owned()),
        }
    }

    /// True if it waits for room, or for its turn.
    pub fn is_of_room(&self) -> bool {
        matches!(self, Reason::Turn | Reason::Full | Reason::Behind(_) | Reason::BehindUser(_))
    }
}

/// Where a step stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Turn {
    /// Its queue.
    pub queue: String,
    /// The queue's band.
    pub band: u8,
    /// Queues with work whose turn is before.
    pub queues_ahead: usize,
    /// Other users of its queue with work whose turn is before.
    pub users_ahead: usize,
    /// Steps of its own user in its queue that come before.
    pub steps_ahead: usize,
    /// Tasks of its own step that come before.
    pub tasks_ahead: u32,
    /// The queue's weight.
    pub weight: u32,
    /// How the workers that could run it are shared out.
    pub pool: Pool,
    /// When it is expected to start, where the lengths of what runs and comes before are known.
    pub starts: Option<Time>,
}

/// A change after which the task would run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// All that is in the way on a worker.
    Worker {
        /// The worker.
        worker: String,
        /// What is in the way there.
        unmet: Vec<Ineligible>,
    },
    /// A larger quota of its queue: at least so many hundredths of a core.
    Quota(String, u64),
    /// Resume this queue.
    Resume(String),
    /// More licences of a name: at least so many.
    Limit(String, u32),
    /// Try again at once what found this limit busy, by setting it as it is: milliseconds of its back-off.
    TryAgain(String, u64),
    /// Its job is let go on.
    Release,
    /// Connect a host of another system: only its hosts run this work.
    Connect {
        /// The system.
        system: String,
        /// What the host must be.
        needs: Vec<Need>,
    },
    /// Connect a worker for a step with which it starts: none that is there fits that.
    Mate {
        /// The step's name.
        step: String,
        /// The only workers that it may have; none is any.
        targets: Vec<String>,
    },
    /// Less work of this queue before it, or more weight for its own.
    Ahead(String),
    /// More weight for its user in its queue.
    UserAhead {
        /// The queue.
        queue: String,
        /// Its user.
        user: String,
    },
}

impl Change {
    /// For work of another system; `None` for other work.
    fn connect(needs: &[Need]) -> Option<Change> {
        let executor = needs.iter().find(|need| need.key == EXECUTOR)?;
        let system = executor.any_of.first().cloned().unwrap_or_default();
        let needs = needs.iter().filter(|need| need.key != EXECUTOR).cloned().collect();
        Some(Change::Connect { system, needs })
    }

    /// For a task of this queue and user.
    fn behind(ahead: Ahead<'_>, queue: &str, user: &str) -> Change {
        match ahead {
            Ahead::Queue(ahead) => Change::Ahead(ahead.to_owned()),
            Ahead::User(_) => Change::UserAhead { queue: queue.to_owned(), user: user.to_owned() },
        }
    }
}

/// Explains a task of an active job; `None` if the engine does not hold the job or it has no such
/// task.
pub fn task(engine: &Engine, task: TaskId) -> Option<Explanation> {
    let job = engine.job(task.job)?;
    let total: u32 = job.spec.steps.iter().map(|s| s.tasks).sum();
    if task.index >= total {
        return None;
    }
    if let Some(attempt) = engine.attempt(task) {
        let state = if attempt.started.is_some() { TaskState::Running } else { TaskState::Booked };
        // Whether an adopted attempt waits or runs, only its worker knows.
        let heard = engine.workers().get(attempt.worker).is_some_and(|worker| worker.link.connected);
        let reason = Reason::Placed {
            worker: attempt.worker,
            started: attempt.started,
            queued: attempt.is_queued() && heard,
        };
        return Some(with_decision(engine, task, Explanation::bare(state, reason)));
    }
    let state = job.state_of(task.index);
    let key = StepKey { job: task.job, step: job.step_of(task.index) };
    let reason = match state {
        TaskState::Succeeded | TaskState::Failed => Reason::Ended,
        TaskState::Canceled | TaskState::Skipped => job.stop.map_or(Reason::Ended, Reason::Stopped),
        _ if job.held => Reason::Held,
        _ if !job.after.is_empty() => Reason::AfterJobs(job.after.iter().copied().collect()),
        TaskState::Waiting => waiting_for(engine, key, task.index),
        _ => return Some(explain_ready(engine, key, task, state)),
    };
    let mut explanation = Explanation::bare(state, reason);
    if explanation.reason == Reason::Held {
        explanation.changes.push(Change::Release);
    }
    Some(with_decision(engine, task, explanation))
}

/// The decision that placed the task last, if it is remembered.
pub fn decision(engine: &Engine, task: TaskId) -> Option<&Decision> {
    engine.planner().decisions().find(|decision| decision.task == task)
}

fn with_decision(engine: &Engine, task: TaskId, mut explanation: Explanation) -> Explanation {
    if let Some(decision) = decision(engine, task) {
        explanation.judged = decision.ranked();
        explanation.decided = Some(decision.at);
    }
    explanation
}

fn waiting_for(engine: &Engine, key: StepKey, index: u32) -> Reason {
    let Some(job) = engine.job(key.job) else { return Reason::Ended };
    if let Some(mates) = unready_mates(job, index).filter(|_| job.is_unlocked_alone(key.step.into(), index)) {
        return mates;
    }
    let (step, spec) = (&job.steps[usize::from(key.step)], &job.spec.steps[usize::from(key.step)]);
    let open = spec.depends.iter().filter_map(|dependency| {
        let on = usize::from(dependency.on);
        let (first, name) = (&job.steps[on], job.spec.steps[on].name.clone());
        match dependency.kind {
            DependencyKind::Step => {
                let left = job.spec.steps[on].tasks - first.succeeded.len();
                (left > 0).then(|| (name, left, first.failed.len()))
            }
            DependencyKind::Task => {
                let first_index = index - step.base + first.base;
                let failed = u32::from(first.failed.contains(first_index));
                (!first.succeeded.contains(first_index)).then_some((name, 1, failed))
            }
        }
    });
    Reason::Steps(open.collect())
}

fn explain_ready(engine: &Engine, key: StepKey, task: TaskId, state: TaskState) -> Explanation {
    let mut explanation = Explanation::bare(state, Reason::Turn);
    let Some(job) = engine.job(key.job) else { return explanation };
    // What starts together is held back together.
    let leader = leader_of(job, key);
    let Some(request) = request_of(engine, job, key) else { return explanation };
    let queue = engine.queues().get(engine.queues().whole(job.queue));
    let (found, ahead) =
        (look_over(engine, &request, &mut explanation), engine.queues().first_ahead(job.queue));
    let Some(whole) = engine.class_of(leader) else { return explanation };
    let too_few = plan::too_few_at_a_time(engine.planner(), whole).filter(|_| found.could > 0);
    if let Some(why) = &too_few {
        say_too_few(engine, &request, why, &mut explanation);
        say_missing(engine, key, leader, &mut explanation);
    }
    // What keeps one of those with which it starts keeps it, too.
    let mates = || job.gang_steps(leader.step.into());
    let throttled = mates().find_map(|step| engine.profiles().throttled(job.steps[step].profile));
    let back_off = mates().find_map(|step| engine.licences().back_off(StepKey { step: step as u16, ..key }));
    let limit = engine.licences().reached(whole).map(|(name, max, _)| (name.to_owned(), max));
    explanation.reason = match () {
        () if found.workers == 0 => Reason::NoWorkers,
        () if found.could == 0 || too_few.is_some() => Reason::FitsNowhere,
        () if queue.record.paused.is_some() => {
            explanation.changes.insert(0, Change::Resume(queue.name().to_owned()));
            Reason::Paused(queue.record.paused.clone().unwrap_or_default())
        }
        () if let Some(known) = back_off => {
            explanation.changes.insert(0, try_again_now(engine, known));
            Reason::BackOff { name: known.limit.clone(), until: known.until, times: known.times }
        }
        () if let Some(cap) = job.cap_reached(leader.step.into()) => Reason::MaxRunning(cap),
        () if throttled.is_some() => Reason::Probing { running: throttled.unwrap_or(0) },
        () => match (over_quota(engine, job.queue, leader), limit, found.closed) {
            (Some(quota_cpu), ..) => {
                let booked_cpu = queue.booked_cpu;
                let needed = booked_cpu + u64::from(whole.cpu_at_a_time());
                explanation.changes.insert(0, Change::Quota(queue.name().to_owned(), needed));
                Reason::Quota { quota_cpu, booked_cpu }
            }
            (None, Some((name, max)), _) => {
                explanation.changes.insert(0, Change::Limit(name.clone(), max + 1));
                Reason::Limit { name, max }
            }
            _ if let Some(mates) = unready_mates(job, task.index) => mates,
            _ if let Some(together) = too_little_room(engine, job, leader) => together,
            // What its hold hung on has changed since it was judged last: it is judged again soon.
            _ if explanation.open_workers > 0 => match engine.planner().vetoed_step(leader) {
                Some(held) => Reason::Closed(held.why.clone()),
                None => Reason::Turn,
            },
            (_, _, Some(closed)) => Reason::Closed(closed),
            _ => match ahead {
                Some(ahead) => {
                    explanation.changes.push(Change::behind(ahead, queue.name(), &job.spec.user));
                    Reason::behind(ahead)
                }
                None => Reason::Full,
            },
        },
    };
    explanation.changes.truncate(bounds::EXAMPLES_MAX);
    explanation.turn = turn_of(engine, &request, task, &explanation.reason);
    explanation
}

/// Where a task's step, or the one with which it starts, stands in its queue; `None` if it does not.
fn turn_of(engine: &Engine, request: &PlacementRequest, task: TaskId, reason: &Reason) -> Option<Turn> {
    let (step, job) = (engine.ledger().step(request.step)?, engine.job(task.job)?);
    let queued_step = engine.ledger().step(leader_of(job, request.step))?.enlisted.as_ref()?;
    let queue = engine.queues().get(engine.queues().whole(job.queue));
    let steps_ahead = engine.queues().get(job.queue).position(queued_step);
    let tasks_ahead = step.ready.ranges().map(|r| r.end.min(task.index).saturating_sub(r.start)).sum();
    // When a queue, a licence or a kind is let go on is not for workers to say.
    let by_room = reason.is_of_room() || matches!(reason, Reason::Closed(_));
    // When all workers of a gang have room at once is not known.
    let by_room = by_room && !job.is_in_gang(request.step.step.into());
    Some(Turn {
        queue: queue.name().to_owned(),
        band: queue.band(),
        queues_ahead: engine.queues().queues_ahead(job.queue),
        users_ahead: engine.queues().users_ahead(job.queue),
        steps_ahead,
        tasks_ahead,
        weight: queue.share().weight(),
        pool: pool(engine, request.class, queue.name()),
        starts: by_room.then(|| expected_start(engine, request, tasks_ahead, steps_ahead)).flatten(),
    })
}

fn try_again_now(engine: &Engine, known: &BackOff) -> Change {
    let rule = engine.licences().limits().get(&known.limit).and_then(|limit| limit.busy.as_ref());
    Change::TryAgain(known.limit.clone(), rule.map_or(bounds::BACK_OFF_MS_DEFAULT, |busy| busy.back_off_ms))
}

/// Looks at every worker: what rules it out, what would have to change there, how it is judged.
fn look_over(engine: &Engine, request: &PlacementRequest, explanation: &mut Explanation) -> Survey {
    let context = engine.planner().match_context();
    let mut found = Survey::default();
    let mut counts: BTreeMap<Ineligible, (usize, Vec<String>)> = BTreeMap::new();
    let (mut changes, mut open, mut mixed) = (Vec::new(), Vec::new(), false);
    for worker in engine.workers().present() {
        found.workers += 1;
        let could = placement::eligible_when_idle(request.class, worker);
        found.could += usize::from(could);
        let mut unmet: Vec<Ineligible> = placement::ineligibilities(request.class, worker, true).collect();
        if unmet.is_empty() {
            match context.judge(request, worker) {
                Ok(ranked) => {
                    open.push((ranked, worker));
                    continue;
                }
                Err(reason) => unmet.push(reason),
            }
        }
        let first = &unmet[0];
        if could {
            let alike = |closed: &Ineligible| std::mem::discriminant(closed) == std::mem::discriminant(first);
            mixed |= matches!(first, Ineligible::Busy(_)) || found.closed.as_ref().is_some_and(|c| !alike(c));
            found.closed.get_or_insert_with(|| first.clone());
        }
        let (count, examples) = counts.entry(first.clone()).or_default();
        *count += 1;
        if examples.len() < bounds::EXAMPLES_MAX {
            examples.push(worker.record.name.clone());
        }
        // Nobody gives an ordinary worker what makes it a host of another system.
        let is_other = unmet.iter().any(|why| matches!(why, Ineligible::Attribute(_)));
        if !(is_other && asks_executor(&request.class.needs)) {
            changes.push((effort(&unmet), Change::Worker { worker: worker.record.name.clone(), unmet }));
        }
    }
    if mixed {
        found.closed = None;
    }
    explanation.open_workers = open.len();
    explanation.ruled_out = counts.into_iter().map(|(why, (n, examples))| (why, n, examples)).collect();
    explanation.ruled_out.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    changes.sort_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    explanation.changes = changes.into_iter().take(bounds::EXAMPLES_MAX).map(|(_, change)| change).collect();
    if open.is_empty() && explanation.changes.is_empty() {
        explanation.changes.extend(Change::connect(&request.class.needs));
    }
    open.sort_by(|(a, w), (b, v)| {
        b.score.total_cmp(&a.score).then(a.load.total_cmp(&b.load)).then(w.record.name.cmp(&v.record.name))
    });
    explanation.judged = open
        .iter()
        .take(bounds::RANKED_MAX)
        .filter_map(|(ranked, worker)| {
            let seen = context.workers.listed(worker.record.id)?.summary().context();
            let breakdown =
                context.policy_for(request).detail(&context.pair(request, worker, seen, ranked.load));
            Some(Judged { worker: worker.record.id, load: ranked.load, breakdown })
        })
        .collect();
    found
}

/// When a task is expected to start that has `tasks_ahead` others of its step before it. Each running task that ends on
/// a worker of its class makes room for one of them.
fn expected_start(
    engine: &Engine,
    request: &PlacementRequest,
    tasks_ahead: u32,
    steps_ahead: usize,
) -> Option<Time> {
    let mut starts = Vec::new();
    for worker in engine
        .workers()
        .present()
        .filter(|w| w.takes_work() && placement::eligible_when_idle(request.class, w))
    {
        starts.push(plan::starts_at(engine, request.class, worker)?);
        starts.extend(worker.booked.running().iter().filter_map(|task| plan::ends_at(engine, *task)));
    }
    starts.sort_unstable();
    // Nobody knows how long the steps before it will hold what becomes free.
    starts.get(tasks_ahead as usize).copied().filter(|_| steps_ahead == 0)
}

/// What a look over all workers found.
#[derive(Default)]
struct Survey {
    workers: usize,
    could: usize,
    /// The one reason that closes all workers that could run it, unless they are busy or it differs.
    closed: Option<Ineligible>,
}

/// How much would have to change: first by how many things of which somebody must do something, then by how
/// far each is off, of what is asked for.
fn effort(unmet: &[Ineligible]) -> (usize, f64) {
    let far = unmet.iter().map(|why| match why {
        Ineligible::TooSmall(short) | Ineligible::Busy(short) | Ineligible::Foreign(short) => {
            (short.need - short.have) as f64 / short.need as f64
        }
        Ineligible::Draining(_)
        | Ineligible::Reserved(_)
        | Ineligible::NetworkInUse
        | Ineligible::Limit { .. }
        | Ineligible::Vetoed { .. } => 0.5,
        _ => 1.0,
    });
    (unmet.iter().filter(|why| why.is_lasting()).count(), far.sum())
}

impl Explanation {
    fn bare(state: TaskState, reason: Reason) -> Self {
        Explanation {
            state,
            reason,
            turn: None,
            ruled_out: Vec::new(),
            open_workers: 0,
            judged: Vec::new(),
            decided: None,
            changes: Vec::new(),
        }
    }
}
