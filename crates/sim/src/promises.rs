//! The promises that must hold after every step, checked against what the machines really run and what the
//! store really has, never against what the engine believes. `world`, `scheduler` and `people` report each
//! event here. The checks change nothing that the scheduler sees.

use crate::counted::Counted;
use crate::gangs::judge_gangs;
use crate::machine::{AttemptKey, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::bounds::CPU_WEIGHT_MAX;
use windlass_core::class::Class;
use windlass_core::engine::{CpuShare, Engine, Fetch, FetchQuery, GangPlace, Write};
use windlass_core::explain::Reason;
use windlass_core::ids::StepKey;
use windlass_core::job::{
    BacklogCounts, DependencyKind, End, Job, JobRecord, JobSpec, JobState, QueuePos, TaskRow, TaskState,
};
use windlass_core::plan::placement::{Ineligible, eligible_when_idle};
use windlass_core::queues::QueueRecord;
use windlass_core::worker::{Worker, WorkerState};
use windlass_core::{JobId, Resources, TaskId, Time, WorkerId};
use windlass_store::Memory;

/// Tasks of one job whose explanations one check examines.
const EXPLAINED_MAX: u32 = 16;

type Checked = Result<(), String>;

/// Facts about the run that the checks compare with.
#[derive(Default)]
pub(crate) struct Promises {
    running: BTreeMap<TaskId, (String, u32)>,
    ended: BTreeMap<AttemptKey, End>,
    /// The first start of each attempt of a gang: its rank, and how many tasks started together.
    places: BTreeMap<AttemptKey, (u32, usize)>,
    /// Attempts whose processes wait for jobs of their own and use no cpu.
    waiting: BTreeSet<AttemptKey>,
    worker_names: BTreeMap<WorkerId, String>,
    accepted: BTreeMap<JobId, Arc<JobSpec>>,
    keys: BTreeMap<(String, String), JobId>,
    /// Jobs that were deleted for their age, with the virtual time of that.
    deleted: BTreeMap<JobId, u64>,
    /// Jobs that were retried. They need not wait for failed jobs that they come after.
    retried: BTreeSet<JobId>,
    pub counted: Counted,
}

impl Promises {
    pub fn starts(&mut self, store: &Memory, machine: &Machine, key: AttemptKey) -> Checked {
        let (task, attempt) = key;
        if let Some((name, other)) = self.running.insert(task, (machine.name.clone(), attempt)) {
            return Err(format!(
                "attempt {attempt} of {task} starts on {} while attempt {other} runs on {name}",
                machine.name
            ));
        }
        if self.ended.contains_key(&key) {
            return Err(format!("attempt {attempt} of {task} is executed twice"));
        }
        let Some(record) = full_records(store, &BTreeSet::from([task.job])).pop() else {
            return Err(format!("{task} starts and its job is not in the store"));
        };
        let row = record.tasks.iter().find(|row| row.index == task.index);
        let durable = row.is_some_and(|row| {
            row.state == TaskState::Booked
                && row.attempt == attempt
                && self.worker_names.get(&row.worker) == Some(&machine.name)
        });
        if !durable {
            return Err(format!("attempt {attempt} of {task} starts without a durable booking: {row:?}"));
        }
        self.dependencies(store, &record, task)
    }

    fn dependencies(&self, store: &Memory, record: &JobRecord, task: TaskId) -> Checked {
        let bases: Vec<u32> = bases(&record.spec);
        let step = bases.partition_point(|base| *base <= task.index) - 1;
        let succeeded: BTreeSet<u32> = with_state(record, TaskState::Succeeded).collect();
        for dependency in &record.spec.steps[step].depends {
            let on = usize::from(dependency.on);
            let needed = match dependency.kind {
                DependencyKind::Step => bases[on]..bases[on] + record.spec.steps[on].tasks,
                DependencyKind::Task => {
                    let first = bases[on] + task.index - bases[step];
                    first..first + 1
                }
            };
            if let Some(missing) = needed.clone().find(|index| !succeeded.contains(index)) {
                return Err(format!("{task} starts before task {missing}, on which it depends, succeeded"));
            }
        }
        if let Some(first) = record.spec.after_tasks.filter(|first| !self.is_deleted(*first)) {
            let record = full_records(store, &BTreeSet::from([first])).pop();
            let has_succeeded = |record: JobRecord| {
                with_state(&record, TaskState::Succeeded).any(|index| index == task.index)
            };
            if !record.is_some_and(has_succeeded) {
                let before = TaskId { job: first, ..task };
                return Err(format!("{task} starts before {before}, after which it comes, succeeded"));
            }
        }
        if self.retried.contains(&task.job) {
            return Ok(());
        }
        for first in &record.spec.after {
            let state = store.job(*first).map(|job| job.state);
            let may_start = state.is_some_and(|state| record.spec.may_follow(*first, state));
            // A job that had failed may have been retried since.
            let was_other = self.retried.contains(first) && record.spec.after_ends.contains_key(first);
            if !may_start && !self.is_deleted(*first) && !was_other {
                return Err(format!("{task} starts before job {first} ended so that it may: {state:?}"));
            }
        }
        Ok(())
    }

    /// Checks that all starts of an attempt of a gang say the same place.
    pub fn place(&mut self, (task, attempt): AttemptKey, place: &GangPlace) -> Checked {
        let said = (place.rank, place.workers.len());
        let first = *self.places.entry((task, attempt)).or_insert(said);
        if first != said {
            return Err(format!("attempt {attempt} of {task} is in place {said:?}, and was in {first:?}"));
        }
        Ok(())
    }

    /// Checks that a machine is told of cpus that it has, and of parts of them that make no more than the whole, each of
    /// another task.
    pub fn shares(&self, machine: &Machine, cpu: u32, shares: &[CpuShare]) -> Checked {
        let tasks: BTreeSet<TaskId> = shares.iter().map(|share| share.task).collect();
        let sum: u64 = shares.iter().map(|share| u64::from(share.weight)).sum();
        let most = u64::from(CPU_WEIGHT_MAX) + shares.len() as u64;
        let has_none = shares.iter().any(|share| share.weight == 0);
        if shares.is_empty() || tasks.len() < shares.len() || has_none || sum > most {
            return Err(format!("{} is told to divide cpus by {shares:?}", machine.name));
        }
        if cpu > machine.capacity.cpu {
            return Err(format!("{} is told to share {cpu} hundredths of a core", machine.name));
        }
        Ok(())
    }

    pub fn ends(&mut self, key: AttemptKey, end: End) {
        if self.running.get(&key.0).is_some_and(|(_, attempt)| *attempt == key.1) {
            self.running.remove(&key.0);
        }
        self.waiting.remove(&key);
        self.ended.insert(key, end);
    }

    /// Notes that a running process waits and uses no cpu, or runs on.
    pub fn waits(&mut self, key: AttemptKey, waits: bool) {
        if waits {
            self.waiting.insert(key);
            self.counted.lends(key.0);
        } else {
            self.waiting.remove(&key);
        }
    }

    /// Checks that what runs on a machine fits it.
    pub fn capacity(&self, machine: &Machine) -> Checked {
        let mut used = Resources::default();
        for (key, request, _) in machine.keeper.iter().flat_map(|keeper| keeper.running()) {
            let mut held = request.clone();
            if self.waiting.contains(&key) {
                held.cpu = 0;
            }
            used.add(&held);
        }
        match used.shorts(&machine.capacity).next() {
            Some(short) => Err(format!("{} runs more than it has: {short}", machine.name)),
            None => Ok(()),
        }
    }

    /// Whether nothing runs anywhere.
    pub fn is_quiet(&self) -> bool {
        self.running.is_empty()
    }

    /// The name of the machine on which an attempt runs; `None` if it does not run.
    pub fn runs_on(&self, key: AttemptKey) -> Option<&str> {
        self.running.get(&key.0).filter(|(_, attempt)| *attempt == key.1).map(|(name, _)| name.as_str())
    }

    /// Makes writes durable and checks what that changed. Returns the indexes of the refused writes.
    pub fn apply(&mut self, store: &Memory, writes: &[Write]) -> (Vec<usize>, Checked) {
        let touched: BTreeSet<JobId> = writes.iter().filter_map(Write::job).collect();
        let before = full_records(store, &touched);
        let refused = store.apply(writes);
        let retried: BTreeSet<JobId> = writes
            .iter()
            .filter_map(|write| match write {
                Write::JobRetry { job, .. } => Some(*job),
                _ => None,
            })
            .collect();
        self.retried.extend(&retried);
        let mut checked = Ok(());
        for write in writes {
            checked = checked.and(self.judge_write(write));
        }
        let after = full_records(store, &touched);
        for old in before {
            let new = after.iter().find(|record| record.id == old.id);
            let was_retried = retried.contains(&old.id);
            checked = checked.and(compare(&old, new, was_retried));
            if let Some(new) = new.filter(|_| !was_retried) {
                checked = checked.and(stays_cancelled(&old, new));
            }
        }
        for record in &after {
            if record.state != JobState::Active
                && let Some(open) = with_state(record, TaskState::Booked).next()
            {
                checked = checked.and(Err(format!("job {} ended with task {open} booked", record.id)));
            }
        }
        (refused, checked)
    }

    /// Checks that an end that becomes durable is the real end of an attempt that does not run.
    fn judge_write(&mut self, write: &Write) -> Checked {
        self.counted.note(write);
        let (task, attempt, result) = match write {
            Write::End { task, attempt, result, .. } | Write::Requeued { task, attempt, result, .. } => {
                (*task, *attempt, result)
            }
            Write::Worker(record) => {
                self.worker_names.insert(record.id, record.name.clone());
                return Ok(());
            }
            _ => return Ok(()),
        };
        if let Some(name) = self.runs_on((task, attempt)) {
            return Err(format!("attempt {attempt} of {task} is said to have ended and runs on {name}"));
        }
        let real = self.ended.get(&(task, attempt));
        // A riding attempt may be recalled before its process exists.
        let never_began = result.end == End::Recalled && real.is_none();
        let lost = never_began || matches!(result.end, End::Lost | End::Canceled);
        if real != Some(&result.end) && !lost {
            return Err(format!(
                "attempt {attempt} of {task} is said to have ended {:?}: {real:?}",
                result.end
            ));
        }
        Ok(())
    }

    /// Checks the lease that a worker has, which ends `until` on the clock of the scheduler. `more_ns` is by how much a
    /// scheduler before this one may have granted longer leases, to a worker that was forgotten since.
    pub fn lease(&self, store: &Memory, worker: WorkerId, until: Time, more_ns: u64) -> Checked {
        let record = store.load().ground.workers.into_iter().find(|record| record.id == worker);
        match record.and_then(|record| record.lease_until) {
            Some(durable) if until <= durable.after(more_ns) => Ok(()),
            durable => Err(format!("worker {worker} has a lease until {until:?}, durable is {durable:?}")),
        }
    }

    pub fn accepted(&mut self, store: &Memory, job: JobId, spec: &Arc<JobSpec>, existing: bool) -> Checked {
        if let Some(key) = &spec.key {
            let known = *self.keys.entry((spec.user.clone(), key.clone())).or_insert(job);
            if known != job {
                return Err(format!("key '{key}' was job {known} and is now job {job}"));
            }
        }
        let Some(record) = full_records(store, &BTreeSet::from([job])).pop() else {
            return Err(format!("job {job} is accepted and is not in the store"));
        };
        let spec = Arc::new(spec.without_bodies());
        let same = if existing { record.spec.key == spec.key } else { record.spec == spec };
        if !same {
            return Err(format!("job {job} is accepted and the store has another: {record:?}"));
        }
        self.accepted.insert(job, record.spec);
        Ok(())
    }

    /// Notes jobs that were deleted for their age. Nothing is promised of them any more.
    pub fn deleted(&mut self, jobs: &BTreeSet<JobId>, now_ns: u64) {
        self.deleted.extend(jobs.iter().map(|job| (*job, now_ns)));
        self.keys.retain(|_, job| !jobs.contains(job));
        self.accepted.retain(|job, _| !jobs.contains(job));
    }

    pub fn is_deleted(&self, job: JobId) -> bool {
        self.deleted.contains_key(&job)
    }

    /// Virtual time of that deletion, in nanoseconds.
    pub fn deleted_ns(&self, job: JobId) -> Option<u64> {
        self.deleted.get(&job).copied()
    }

    /// Checks that every accepted job is in the store as it was submitted.
    pub fn all_accepted(&self, store: &Memory) -> Checked {
        let records = store.records(&self.accepted.keys().copied().collect());
        let stored: BTreeMap<JobId, &Arc<JobSpec>> = records.iter().map(|r| (r.id, &r.spec)).collect();
        // People change priorities.
        let same = |stored: Option<&&Arc<JobSpec>>, spec: &Arc<JobSpec>| {
            stored.is_some_and(|stored| JobSpec { priority: spec.priority, ..(***stored).clone() } == **spec)
        };
        match self.accepted.iter().find(|(job, spec)| !same(stored.get(job), spec)) {
            Some((job, _)) => Err(format!("job {job} was accepted and is not in the store")),
            None => Ok(()),
        }
    }

    /// Number of accepted jobs that were not deleted.
    pub fn accepted_count(&self) -> u64 {
        self.accepted.len() as u64
    }

    pub fn was_retried(&self, job: JobId) -> bool {
        self.retried.contains(&job)
    }

    /// Checks the explanations of one job after a round with budget left: every task that does not run has a
    /// reason, and none could have been placed.
    pub fn explanations(&self, engine: &Engine, random: u64) -> Checked {
        let jobs = engine.jobs().count() as u64;
        let Some(job) = engine.jobs().nth(random.checked_rem(jobs).unwrap_or(0) as usize) else {
            return Ok(());
        };
        let total: u32 = job.spec.steps.iter().map(|step| step.tasks).sum();
        // Of a large job only some tasks are examined.
        let stride = total.div_ceil(EXPLAINED_MAX).max(1);
        for index in ((random >> 32) as u32 % stride..total).step_by(stride as usize) {
            let task = TaskId { job: job.id, index };
            let Some(explanation) = windlass_core::explain::reason(engine, task) else {
                return Err(format!("{task} has no explanation"));
            };
            let sensible = match &explanation.reason {
                // The round would have placed it.
                Reason::Turn => false,
                Reason::AfterJobs(jobs) => !jobs.is_empty(),
                Reason::FirstTask { task: first, .. } => {
                    job.spec.after_tasks == Some(first.job) && first.index == task.index
                }
                Reason::Steps(steps) => !steps.is_empty(),
                Reason::Full | Reason::FitsNowhere | Reason::Behind(_) | Reason::BehindUser(_) => {
                    !explanation.ruled_out.is_empty()
                }
                // Turns at cpus of builds come with time, and with what the queues run. It is asked again then, and within a
                // second.
                Reason::Closed(Ineligible::BuildTurn(_)) => true,
                // A vetoed step is judged again within a second.
                Reason::Closed(_) => {
                    let leader = job.leader_of(job.step_of(task.index).into());
                    let step = StepKey { job: task.job, step: leader as u16 };
                    !explanation.ruled_out.is_empty()
                        || engine.planner().vetoed_steps().any(|held| held == step)
                }
                Reason::Quota { quota_cpu, .. } => {
                    let queue = engine.queues().get(engine.queues().whole(job.queue));
                    queue.record.quota_cpu.is_some_and(|quota| quota <= *quota_cpu)
                }
                Reason::Limit { name, .. } => engine.licences().limits().contains_key(name),
                Reason::BackOff { until, .. } => *until > engine.planner().now(),
                Reason::Paused(note) => {
                    let queue = engine.queues().get(engine.queues().whole(job.queue));
                    queue.record.paused.as_ref() == Some(note)
                }
                Reason::Probing { running } => *running > 0,
                Reason::MaxRunning(cap) => cap.max > 0,
                Reason::Together { tasks, placed } => placed < tasks,
                Reason::Mates { waiting, .. } => *waiting > 0,
                Reason::NoWorkers => engine.workers().present().next().is_none(),
                Reason::Placed { worker, .. } => engine.workers().get(*worker).is_some(),
                // Only jobs that are not resident have this reason.
                Reason::Parked { .. } => false,
                Reason::Held(id) => job.held && *id == job.id,
                Reason::Stopped(_) => job.stop.is_some(),
                Reason::Ended => !matches!(explanation.state, TaskState::Ready | TaskState::Waiting),
            };
            if explanation.reason == Reason::FitsNowhere && fits_as_asked(engine, job, task) {
                return Err(format!(
                    "{task} is said to fit nowhere, and as it was asked for it does: {explanation:?}"
                ));
            }
            if !sensible {
                return Err(format!("{task} does not run, and the reason given is {explanation:?}"));
            }
        }
        judge_gangs(engine, job)
    }

    /// Checks that the engine knows what the store knows, while no write is under way.
    pub fn durable(&self, store: &Memory, engine: &Engine) -> Checked {
        let ids: BTreeSet<JobId> = store.load().ground.jobs.iter().map(|record| record.id).collect();
        let records = full_records(store, &ids);
        let mut extra = engine.jobs().filter(|job| !ids.contains(&job.id) && store.parked(job.id).is_none());
        if let Some(extra) = extra.next() {
            return Err(format!("the engine has job {}, which is not active in the store", extra.id));
        }
        for record in &records {
            same_job(engine, record)?;
        }
        same_parked(store, engine)
    }
}

/// Jobs with the rows of all of their tasks.
fn full_records(store: &Memory, ids: &BTreeSet<JobId>) -> Vec<JobRecord> {
    let mut records = store.records(ids);
    for record in &mut records {
        record.tasks = store.tasks(record.id, 0..u32::MAX).into_iter().map(|task| task.row).collect();
    }
    records
}

/// Index of the first task of each step.
pub(crate) fn bases(spec: &JobSpec) -> Vec<u32> {
    let sizes = spec.steps.iter().scan(0, |base, step| {
        let mine = *base;
        *base += step.tasks;
        Some(mine)
    });
    sizes.collect()
}

fn with_state(record: &JobRecord, state: TaskState) -> impl Iterator<Item = u32> {
    record.tasks.iter().filter(move |row| row.state == state).map(|row| row.index)
}

fn is_end(state: TaskState) -> bool {
    matches!(state, TaskState::Succeeded | TaskState::Failed | TaskState::Canceled)
}

/// Checks that ended jobs and tasks stay as they ended, unless they were retried.
fn compare(old: &JobRecord, new: Option<&JobRecord>, retried: bool) -> Checked {
    let Some(new) = new else { return Err(format!("job {} is gone from the store", old.id)) };
    if old.state != JobState::Active && new.state != old.state && !retried {
        return Err(format!("job {} had ended {:?} and is {:?}", old.id, old.state, new.state));
    }
    let rows: BTreeMap<u32, &TaskRow> = new.tasks.iter().map(|row| (row.index, row)).collect();
    for row in &old.tasks {
        let Some(now) = rows.get(&row.index) else {
            return Err(format!("{}.{}: its row is gone", old.id, row.index));
        };
        let reopened = retried && row.state != TaskState::Succeeded;
        if is_end(row.state) && row != *now && !reopened {
            return Err(format!("{}.{} was {row:?} and is {now:?}", old.id, row.index));
        }
        if now.attempt < row.attempt {
            return Err(format!("{}.{}: attempt {} after {}", old.id, row.index, now.attempt, row.attempt));
        }
    }
    Ok(())
}

/// Checks that no task that was cancelled by itself is booked before it is retried.
fn stays_cancelled(old: &JobRecord, new: &JobRecord) -> Checked {
    let attempts: BTreeMap<u32, u32> = old.tasks.iter().map(|row| (row.index, row.attempt)).collect();
    let cancelled = new.tasks.iter().filter(|row| old.cancels.contains(row.index));
    for row in cancelled {
        if attempts.get(&row.index) != Some(&row.attempt) {
            return Err(format!("{}.{} was cancelled and is booked: {row:?}", old.id, row.index));
        }
    }
    Ok(())
}

/// Checks that what is in force is what the store has, while no write is under way.
pub(crate) fn same_settings(store: &Memory, engine: &Engine) -> Checked {
    let ground = store.load().ground;
    if ground.limits != *engine.licences().limits() {
        return Err(format!(
            "the store has limits {:?}, the engine {:?}",
            ground.limits,
            engine.licences().limits()
        ));
    }
    for record in &ground.queues {
        let known = engine.queues().id(&record.name).map(|id| engine.queues().get(id).record.clone());
        // A queue with default settings is forgotten after a while.
        if known.as_ref().unwrap_or(&QueueRecord::named(&record.name)) != record {
            return Err(format!("the store has {record:?}, the engine {known:?}"));
        }
    }
    Ok(())
}

/// Whether some worker that takes work could run a task as it was asked for, whatever was learned of it. Not of tasks
/// that start together: each may fit, and not all of them.
fn fits_as_asked(engine: &Engine, job: &Job, task: TaskId) -> bool {
    let step = job.step_of(task.index);
    let (key, spec) = (StepKey { job: task.job, step }, &job.spec.steps[usize::from(step)]);
    let Some(class) = engine.class_of(key).filter(|_| !job.is_in_gang(step.into())) else {
        return false;
    };
    let asked = Class { request: spec.request.clone(), guess: 0, ..class.clone() };
    let up = engine.workers().present().filter(|worker| worker.record.state == WorkerState::Up);
    up.filter(|worker| worker.link.connected).any(|worker| eligible_when_idle(&asked, worker))
}

/// Checks that no step waits for what was learned of it alone: where workers that get work, or get none for a moment
/// only, could run what it asks for, some of them could run what it is sized to.
pub(crate) fn sizes_follow_workers(engine: &Engine) -> Checked {
    let workers: Vec<&Worker> = engine.workers().present().filter(|worker| may_get_work(worker)).collect();
    let could = |class: &Class| workers.iter().any(|worker| eligible_when_idle(class, worker));
    for job in engine.jobs() {
        for (number, spec) in job.spec.steps.iter().enumerate() {
            let key = StepKey { job: job.id, step: number as u16 };
            let Some(sized) = engine.class_of(key).filter(|class| class.request != spec.request) else {
                continue;
            };
            let asked = Class { request: spec.request.clone(), guess: 0, ..sized.clone() };
            if could(&asked) && !could(sized) {
                let (is, asks) = (&sized.request, &spec.request);
                return Err(format!(
                    "job {}, step {number}: no worker that gets work has {is:?}, and it asks for {asks:?}",
                    job.id
                ));
            }
        }
    }
    Ok(())
}

/// Whether a worker is up, or silent while its lease runs. Pressure is over in a moment.
fn may_get_work(worker: &Worker) -> bool {
    let is_heard = match worker.record.state {
        WorkerState::Up => true,
        WorkerState::Suspect => worker.record.lease_until.is_some(),
        WorkerState::Draining | WorkerState::Expired | WorkerState::Forgotten => false,
    };
    is_heard && worker.health.out().is_none() && !worker.reported.saturated().lacks_space()
}

/// Checks the engine's counts of parked jobs, and that every parked job before `resident_before` is resident.
fn same_parked(store: &Memory, engine: &Engine) -> Checked {
    let drifts = store.audit_parked();
    if !drifts.is_empty() {
        return Err(format!("the store miscounts parked jobs: {drifts:?}"));
    }
    let mut counts: BTreeMap<_, _> = BTreeMap::new();
    for count in store.parked_counts() {
        let queue = engine.queues().id(&count.queue).ok_or("a parked queue that the engine does not know")?;
        counts.insert((queue, count.class), count.backlog);
    }
    let lines = engine.subqueues().iter().filter(|(_, line)| line.parked() != BacklogCounts::default());
    let known: BTreeMap<_, _> = lines.map(|(key, line)| (key, line.parked())).collect();
    if counts != known {
        return Err(format!("the store has parked {counts:?}, the engine counts {known:?}"));
    }
    for ((queue, class), line) in engine.subqueues().iter() {
        let queue = engine.queues().get(queue).name().to_owned();
        let all = FetchQuery::Page { queue, class, from: QueuePos::FIRST, steps: usize::MAX };
        let parked = store.fetch(&Fetch { number: 0, wanted: all });
        let before = |place: QueuePos| line.resident_before().is_none_or(|beyond| place < beyond);
        let mut positions = parked.iter().filter_map(|record| record.parked).map(|parked| parked.position);
        if let Some(lost) = positions.find(|place| before(*place) && engine.job(place.job).is_none()) {
            return Err(format!("job {} is parked before what is away, and not here", lost.job));
        }
    }
    Ok(())
}

fn same_job(engine: &Engine, record: &JobRecord) -> Checked {
    let id = record.id;
    let Some(job) = engine.job(id) else {
        return Err(format!("job {id} is active in the store, and the engine has it not"));
    };
    if job.held != record.held || job.stop != record.stop || job.cancels != record.cancels {
        return Err(format!(
            "job {id}: the store says {:?} {:?} {:?}",
            record.held, record.stop, record.cancels
        ));
    }
    if let Some(first) = &job.first_tasks
        && !first.is_active
        && first.succeeded != record.first_succeeded
    {
        return Err(format!(
            "job {id}: the store says that {:?} succeeded before it",
            record.first_succeeded
        ));
    }
    let open = job.not_ended(&job.cancels);
    if let Some(open) = open.iter().find(|index| engine.attempt(TaskId { job: id, index: *index }).is_none())
    {
        return Err(format!("task {open} of job {id} was cancelled and has not ended"));
    }
    let booked = with_state(record, TaskState::Booked).count();
    if engine.attempts_of(id).count() != booked {
        return Err(format!("job {id}: the store has {booked} bookings, the engine others"));
    }
    for row in &record.tasks {
        let task = TaskId { job: id, index: row.index };
        let step = &job.steps[usize::from(job.step_of(row.index))];
        let tries = step.tries.get(row.index).map(|t| (t.attempt, t.failures, t.losses));
        let attempt = engine.attempt(task);
        let same = match row.state {
            TaskState::Succeeded => step.succeeded.contains(row.index),
            TaskState::Failed => step.failed.contains(row.index),
            TaskState::Canceled => step.canceled.contains(row.index),
            TaskState::Booked => attempt.is_some_and(|a| {
                let told = (a.number, a.worker, a.epoch, a.failures, a.losses);
                told == (row.attempt, row.worker, row.epoch, row.failures, row.losses)
            }),
            _ => attempt.is_none() && tries == Some((row.attempt, row.failures, row.losses)),
        };
        if !same {
            return Err(format!("{task}: the store says {row:?}, the engine {attempt:?} {tries:?}"));
        }
    }
    Ok(())
}
