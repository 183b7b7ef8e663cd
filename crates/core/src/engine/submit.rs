//! What people ask for: submit, cancel, hold, retry.

use super::{Engine, Fact, Outbox, Refusal, Reply, Submit, Unplaceable, WorkerCommand, Write};
use crate::bounds;
use crate::cache_keys::Reads;
use crate::class::Class;
use crate::ids::{ClassId, JobId, RequestId, StepKey, TaskId};
use crate::job::{DependencyKind, Hints, JobRecord, JobSpec, JobState, Step, StepSpec, Stop, TriesMap};
use crate::plan::placement::{self, Ineligible};
use crate::plan::room_when_empty;
use crate::ranges::RangeSet;
use crate::residency::Lookups;
use crate::score::dependents::dependents;
use crate::time::Time;
use crate::workers::Workers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Engine {
    pub(super) fn submit(&mut self, submit: Submit, lookups: &Lookups, out: &mut Outbox) {
        let request = submit.request;
        let answer = match self.accept(submit, lookups, out) {
            Ok(answer) => answer,
            Err(refusal) => Reply::Refused(refusal),
        };
        if let Reply::Submitted { job, .. } = &answer {
            out.about.insert(request, *job);
        }
        out.answers.push((request, answer));
    }

    fn accept(&mut self, submit: Submit, lookups: &Lookups, out: &mut Outbox) -> Result<Reply, Refusal> {
        let Submit { request: _, spec, placeable_only, held, existing, read_before, outcomes } = submit;
        let key = spec.key.clone().map(|key| (spec.user.clone(), key));
        // What the store was asked before it deleted the job is not so any more.
        let existing = existing.filter(|job| !self.ledger.gone.contains(job));
        let known = key.as_ref().and_then(|key| self.ledger.keys.get(key).copied()).or(existing);
        if let Some(job) = known {
            return Ok(Reply::Submitted { job, existing: true, unplaceable: Vec::new() });
        }
        if key.is_some() && read_before < self.ledger.keys_from {
            return Err(Refusal::KeyReadTooEarly);
        }
        check_spec(&spec)?;
        let unplaceable = self.unplaceable(&spec);
        if placeable_only && !unplaceable.is_empty() {
            return Err(Refusal::Unplaceable(unplaceable));
        }
        let (mut open, mut stop) = (BTreeSet::new(), None);
        for id in &spec.after {
            let told = || match lookups.get(id) {
                Some(found) => found.as_ref().map(|record| record.state),
                None => outcomes.get(id).copied(),
            };
            match self.ledger.outcome(*id).or_else(told) {
                Some(JobState::Active) => _ = open.insert(*id),
                Some(JobState::Succeeded) => {}
                Some(JobState::Failed | JobState::Canceled) => stop = stop.or(Some(Stop::After(*id))),
                None => return Err(Refusal::NoJob(*id)),
            }
        }
        for first in &open {
            self.residency.pin(*first, &self.plan.queues, out);
        }
        let id = JobId(self.ledger.next_job);
        self.ledger.next_job += 1;
        if let Some(key) = key {
            self.ledger.keys.insert(key, id);
        }
        // The store has what the tasks run; the engine does not need it.
        let whole = Arc::new(spec);
        let spec = Arc::new(whole.without_bodies());
        out.writes.push(Write::Job { id, spec: whole, created: self.now });
        if held {
            out.writes.push(Write::JobHeld { job: id, held });
        }
        out.notes.push(Fact::Job { job: id, state: JobState::Active });
        let record = JobRecord { held, ..JobRecord::new(id, spec, self.now) };
        self.insert_record(record, open);
        if let Some(stop) = stop {
            self.stop_job(id, stop, out);
        }
        self.evict_if_behind(id, out);
        Ok(Reply::Submitted { job: id, existing: false, unplaceable })
    }

    /// Jobs are gone from the store: their keys name nothing any more.
    pub(super) fn deleted(&mut self, jobs: &BTreeSet<JobId>) {
        self.ledger.keys.retain(|_, job| !jobs.contains(job));
        self.ledger.recent.remove(jobs);
        self.ledger.gone.extend(jobs);
        while self.ledger.gone.len() > self.bounds.recent_jobs {
            self.ledger.gone.pop_first();
        }
    }

    /// The steps that no worker could run even if it were empty.
    fn unplaceable(&self, spec: &JobSpec) -> Vec<Unplaceable> {
        let mut known: BTreeMap<Class, Option<Vec<(Ineligible, usize)>>> = BTreeMap::new();
        let (mut present, has_gangs): (Option<usize>, _) = (None, spec.has_gangs());
        let steps = spec.steps.iter().enumerate().filter_map(|(number, step)| {
            let reasons = known.entry(self.class_with_mates(spec, number, has_gangs));
            let reasons = reasons.or_insert_with_key(|class| self.all_ruled_out(class, &mut present)).clone();
            Some(Unplaceable { step: step.name.clone(), reasons: reasons? })
        });
        steps.collect()
    }

    /// What rules out each worker for a class even if it were empty; `None` if one could run it. `present` is how
    /// many workers there are, once they were counted.
    fn all_ruled_out(&self, class: &Class, present: &mut Option<usize>) -> Option<Vec<(Ineligible, usize)>> {
        if let Some(need) = self.plan.workers.unmet(&class.needs).filter(|_| class.targets.is_empty()) {
            // No need to look at each of them.
            let workers = *present.get_or_insert_with(|| self.plan.workers.present().count());
            return Some(Vec::from_iter(
                (workers > 0).then(|| (Ineligible::Attribute(need.clone()), workers)),
            ));
        }
        let mut reasons: BTreeMap<Ineligible, usize> = BTreeMap::new();
        for worker in self.plan.workers.present() {
            let Some(why) = placement::ineligibilities(class, worker, false).next() else {
                return self.too_few_at_a_time(class).map(|why| vec![(why, 1)]);
            };
            *reasons.entry(why).or_default() += 1;
        }
        Some(reasons.into_iter().collect())
    }

    /// Why tasks that start together never could, although each alone could.
    pub(crate) fn too_few_at_a_time(&self, class: &Class) -> Option<Ineligible> {
        if !class.is_gang() {
            return None;
        }
        let (could, tasks) = room_when_empty(&self.plan, class);
        (could < tasks).then_some(Ineligible::TooFew { tasks, could })
    }

    pub(super) fn cancel(&mut self, request: RequestId, job: JobId, out: &mut Outbox) {
        out.about.insert(request, job);
        let answer = match self.ledger.active(job) {
            Ok(()) => {
                self.stop_job(job, Stop::Canceled, out);
                Reply::Done
            }
            Err(refusal) => Reply::Refused(refusal),
        };
        out.answers.push((request, answer));
    }

    pub(super) fn hold(&mut self, request: RequestId, id: JobId, held: bool, out: &mut Outbox) {
        out.about.insert(request, id);
        if let Err(refusal) = self.ledger.active(id) {
            out.answers.push((request, Reply::Refused(refusal)));
            return;
        }
        self.residency.pin(id, &self.plan.queues, out);
        if let Some(job) = self.ledger.jobs.get_mut(&id) {
            job.held = held;
        }
        self.refresh_all(id);
        if held {
            self.recall_queued(id, out);
        } else {
            self.join_subqueue(id, None);
        }
        out.writes.push(Write::JobHeld { job: id, held });
        out.notes.push(Fact::Job { job: id, state: JobState::Active });
        out.answers.push((request, Reply::Done));
        self.evict_if_behind(id, out);
    }

    /// Its tasks take their turn by the new priority from the next round on; what runs goes on.
    pub(super) fn prioritize(&mut self, request: RequestId, id: JobId, priority: i32, out: &mut Outbox) {
        out.about.insert(request, id);
        if let Err(refusal) = self.ledger.active(id) {
            out.answers.push((request, Reply::Refused(refusal)));
            return;
        }
        self.residency.pin(id, &self.plan.queues, out);
        if let Some(job) = self.ledger.jobs.get_mut(&id) {
            Arc::make_mut(&mut job.spec).priority = priority;
        }
        self.refresh_all(id);
        // Its line is in order of priority too.
        self.join_subqueue(id, None);
        out.writes.push(Write::JobPriority { job: id, priority });
        out.notes.push(Fact::Job { job: id, state: JobState::Active });
        out.answers.push((request, Reply::Done));
        self.evict_if_behind(id, out);
    }

    pub(super) fn retry(
        &mut self,
        request: RequestId,
        id: JobId,
        record: Option<JobRecord>,
        out: &mut Outbox,
    ) {
        out.about.insert(request, id);
        let is_read = !self.ledger.jobs.contains_key(&id);
        if is_read {
            match record {
                Some(record) => self.insert_record(record, BTreeSet::new()),
                None => {
                    out.answers.push((request, Reply::Refused(Refusal::NoJob(id))));
                    return;
                }
            }
        }
        let Some(job) = self.ledger.jobs.get_mut(&id) else { return };
        let unstarted = job.ended.map_or(job.stop.is_some(), |state| state != JobState::Succeeded);
        if !unstarted && job.steps.iter().all(|s| s.failed.is_empty() && s.canceled.is_empty()) {
            // One that ended just now is forgotten when that is durable.
            if is_read && job.ended.is_some() {
                self.ledger.drop_key(id);
                self.forget(id);
            }
            out.answers.push((request, Reply::Refused(Refusal::NothingToRetry(id))));
            return;
        }
        job.stop = None;
        job.ended = None;
        for step in &mut job.steps {
            // The others keep their failures, as in their rows.
            let again = [std::mem::take(&mut step.failed), std::mem::take(&mut step.canceled)];
            for range in again.iter().flat_map(RangeSet::ranges) {
                step.tries.change(range, |tries| tries.failures = 0);
            }
        }
        // Jobs before it that failed do not stop it again; those that are active it waits for.
        let spec = job.spec.clone();
        let open = self.ledger.open_among(&spec.after);
        for first in &open {
            self.residency.pin(*first, &self.plan.queues, out);
            self.ledger.dependents.entry(*first).or_default().insert(id);
        }
        if let Some(job) = self.ledger.jobs.get_mut(&id) {
            job.after = open;
        }
        out.ended.retain(|ended| *ended != id);
        self.ledger.recent.remove(&BTreeSet::from([id]));
        self.recompute_ready(id, None);
        self.end_broken_gangs(id, out);
        out.writes.push(Write::JobRetry { job: id });
        out.notes.push(Fact::Job { job: id, state: JobState::Active });
        out.answers.push((request, Reply::Done));
    }

    /// Asks for the attempts of a job that wait in backlogs.
    fn recall_queued(&mut self, id: JobId, out: &mut Outbox) {
        let queued = self.ledger.attempts_of(id).filter(|(_, attempt)| attempt.queued);
        let queued: Vec<_> = queued.map(|(task, attempt)| (task, attempt.number, attempt.worker)).collect();
        self.recall(queued, out);
    }

    /// Lets no further task of the job start, and kills what runs where the stop asks for that.
    pub(super) fn stop_job(&mut self, id: JobId, stop: Stop, out: &mut Outbox) {
        self.residency.pin(id, &self.plan.queues, out);
        let Some(job) = self.ledger.jobs.get_mut(&id) else { return };
        // A cancel overrides an earlier stop, so that running tasks are killed too.
        if job.stop.is_none() || stop == Stop::Canceled {
            job.stop = Some(stop);
            out.writes.push(Write::JobStop { job: id, stop });
        }
        self.refresh_all(id);
        if self.ledger.jobs[&id].kills() {
            self.kill_attempts(id, out);
        } else {
            self.recall_queued(id, out);
        }
        self.settle_job(id, out);
    }

    fn kill_attempts(&mut self, id: JobId, out: &mut Outbox) {
        let range = TaskId { job: id, index: 0 }..=TaskId { job: id, index: u32::MAX };
        let mut orders = Vec::new();
        for (task, attempt) in self.ledger.attempts.range_mut(range) {
            attempt.killing = true;
            if attempt.rides {
                // That of its process is its own.
                continue;
            }
            orders.push((attempt.worker, WorkerCommand::Kill { task: *task, attempt: attempt.number }));
        }
        for (worker, order) in orders {
            self.send(worker, order, out);
        }
    }

    /// Takes in a job: its steps from its rows, its place in the queues. `after` are the jobs that it
    /// still waits for.
    pub(super) fn insert_record(&mut self, record: JobRecord, after: BTreeSet<JobId>) {
        self.ledger.next_job = self.ledger.next_job.max(record.id.0 + 1);
        let queue = self.plan.queues.intern_for(&record.spec.queue, &record.spec.user);
        self.plan.queues.count_job(queue, 1);
        if let Some(key) = &record.spec.key {
            self.ledger.keys.insert((record.spec.user.clone(), key.clone()), record.id);
        }
        for first in &after {
            self.ledger.dependents.entry(*first).or_default().insert(record.id);
            self.residency.pin_in_next_batch(*first);
        }
        let steps = self.new_steps(record.id, &record.spec, record.created);
        let has_gangs = record.spec.has_gangs();
        let job = crate::job::Job {
            id: record.id,
            spec: record.spec.without_caches(),
            queue,
            has_gangs,
            ended_mates: BTreeMap::new(),
            active: 0,
            created: record.created,
            stop: record.stop,
            held: record.held,
            ended: (record.state != JobState::Active).then_some(record.state),
            after,
            steps,
            failed_attempts: 0,
        };
        self.residency.add_steps(job.steps.len());
        self.ledger.jobs.insert(record.id, job);
        for ended in record.ended {
            self.adopt_ended(record.id, ended);
        }
        for row in record.tasks {
            self.adopt_row(record.id, row);
        }
        self.ledger.adopt_mates(record.id, record.mates);
        for (step, back_off) in record.back_offs {
            self.licences.restore_back_off(StepKey { job: record.id, step }, back_off);
        }
        self.recompute_ready(record.id, record.parked.map(|parked| parked.ready));
        self.ledger.mark_broken_gangs(record.id);
        self.join_subqueue(record.id, record.parked);
    }

    fn new_steps(&mut self, id: JobId, spec: &JobSpec, created: Time) -> Vec<Step> {
        self.plan.workers.learn(spec.steps.iter().flat_map(|step| &step.needs));
        let mut profile = Vec::new();
        for (number, step) in spec.steps.iter().enumerate() {
            profile.push(self.profiles.join(StepKey { job: id, step: number as u16 }, &spec.queue, step));
        }
        let known_ms = |step: usize| self.profiles.prediction(profile[step]).and_then(|known| known.wall_ms);
        let dependents = dependents(&spec.steps, known_ms);
        let (mut base, has_gangs) = (0, spec.has_gangs());
        let all = spec.steps.iter().zip(&profile).zip(dependents).enumerate();
        let steps = all.map(|(number, ((step_spec, profile_id), dependents))| {
            let class = self.sized_class(spec, number, has_gangs, |step| profile[step]);
            let step = Step {
                profile: *profile_id,
                dependents: dependents.weight(),
                reads: Reads::of(&step_spec.hints.caches),
                ..new_step(base, self.plan.classes.intern(class), created)
            };
            base += step_spec.tasks;
            step
        });
        steps.collect()
    }

    /// What a step of a job and those that start with it ask of workers, as submitted.
    pub(super) fn class_with_mates(&self, spec: &JobSpec, number: usize, has_gangs: bool) -> Class {
        let as_submitted = |step: usize| class_of(&spec.steps[step], &spec.queue, &self.plan.workers);
        let mates =
            has_gangs.then(|| spec.followers(number)).into_iter().flatten().map(as_submitted).collect();
        Class { mates, ..as_submitted(number) }
    }
}

/// What a step asks of workers, as submitted to a queue.
pub(crate) fn class_of(step: &StepSpec, queue: &str, workers: &Workers) -> Class {
    Class {
        queue: workers.queue_in_class(queue),
        request: step.request.clone(),
        needs: step.needs.clone(),
        targets: step.targets.clone(),
        limits: step.limits.clone(),
        guess: 0,
        is_external: step.is_external,
        nodes: step.nodes,
        mates: Vec::new(),
    }
}

fn new_step(base: u32, class: ClassId, created: Time) -> Step {
    Step {
        base,
        class,
        ready: RangeSet::default(),
        succeeded: RangeSet::default(),
        failed: RangeSet::default(),
        canceled: RangeSet::default(),
        active: 0,
        riding: 0,
        ready_since: created,
        enlisted: None,
        tries: TriesMap::default(),
        noted: 0,
        mean_ms: None,
        profile: 0,
        chunk_lengths: None,
        reads: Reads::default(),
        dependents: 0.0,
    }
}

/// Refuses a job that breaks a limit or can never end.
fn check_spec(spec: &JobSpec) -> Result<(), Refusal> {
    let limit = |what, is: usize, max: usize| at_most(what, is as u64, max as u64);
    if spec.steps.is_empty() {
        return Err(Refusal::NoStep);
    }
    limit("steps of a job", spec.steps.len(), bounds::STEPS_PER_JOB_MAX)?;
    limit("jobs to come after", spec.after.len(), bounds::AFTER_MAX)?;
    let depends = spec.steps.iter().map(|step| step.depends.len()).sum();
    limit("steps that wait for others, over all steps", depends, bounds::DEPENDS_PER_JOB_MAX)?;
    let tasks: u64 = spec.steps.iter().map(|s| u64::from(s.tasks)).sum();
    limit("tasks of a job", tasks as usize, bounds::TASKS_PER_JOB_MAX as usize)?;
    for name in [&spec.name, &spec.queue, &spec.user].into_iter().chain(spec.key.as_ref()) {
        limit("bytes of a name", name.len(), bounds::NAME_BYTES_MAX)?;
    }
    let mut names = BTreeSet::new();
    for step in &spec.steps {
        limit("bytes of a name", step.name.len(), bounds::NAME_BYTES_MAX)?;
        limit("requirements of a step", step.needs.len() + step.targets.len(), bounds::NEEDS_PER_STEP_MAX)?;
        limit("retries", step.retries as usize, bounds::RETRIES_MAX as usize)?;
        check_hints(step)?;
        check_needs(step)?;
        if step.tasks == 0 {
            return Err(Refusal::NoTask(step.name.clone()));
        }
        if !names.insert(&step.name) {
            return Err(Refusal::DuplicateStep(step.name.clone()));
        }
        check_dependencies(spec, step)?;
    }
    super::gangs::check_gangs(spec)?;
    super::chunks::check_chunks(spec)?;
    check_cycles(spec)
}

fn at_most(what: &'static str, is: u64, max: u64) -> Result<(), Refusal> {
    if is > max { Err(Refusal::TooMany { what, is, max }) } else { Ok(()) }
}

/// Refuses requirements, amounts and dependencies that exceed a limit of [`crate::bounds`].
fn check_needs(step: &StepSpec) -> Result<(), Refusal> {
    let name = |what, name: &String| at_most(what, name.len() as u64, bounds::NAME_BYTES_MAX as u64);
    for need in &step.needs {
        name("bytes of a requirement's key", &need.key)?;
        at_most("values of a requirement", need.any_of.len() as u64, bounds::VALUES_PER_NEED_MAX as u64)?;
        need.any_of.iter().try_for_each(|value| name("bytes of a requirement's value", value))?;
    }
    step.targets.iter().try_for_each(|target| name("bytes of a target's name", target))?;
    step.hints.prefers.iter().try_for_each(|worker| name("bytes of a preferred worker's name", worker))?;
    let custom = &step.request.custom;
    at_most("named amounts of a step", custom.len() as u64, bounds::CUSTOM_PER_STEP_MAX as u64)?;
    custom.keys().try_for_each(|amount| name("bytes of the name of an amount", amount))?;
    at_most("steps that a step waits for", step.depends.len() as u64, bounds::DEPENDS_PER_STEP_MAX as u64)
}

/// Refuses limits and hints that exceed a limit of [`crate::bounds`].
fn check_hints(step: &StepSpec) -> Result<(), Refusal> {
    let Hints { caches, shape, deadline_ms, prefers, .. } = &step.hints;
    at_most("limits of a step", step.limits.len() as u64, bounds::LIMITS_PER_STEP_MAX as u64)?;
    at_most("caches of a step", caches.len() as u64, bounds::CACHES_PER_STEP_MAX as u64)?;
    at_most("preferred workers of a step", prefers.len() as u64, bounds::PREFERS_PER_STEP_MAX as u64)?;
    at_most("bytes of a shape", shape.len() as u64, bounds::SHAPE_BYTES_MAX as u64)?;
    at_most("deadline_ms", deadline_ms.unwrap_or(0), bounds::DEADLINE_MS_MAX)?;
    for name in &step.limits {
        at_most("bytes of the name of a limit", name.len() as u64, bounds::NAME_BYTES_MAX as u64)?;
    }
    for (key, bytes) in caches {
        at_most("bytes of a cache key", key.len() as u64, bounds::NAME_BYTES_MAX as u64)?;
        at_most("bytes of a cache", bytes.unwrap_or(0), bounds::CACHE_BYTES_MAX)?;
    }
    Ok(())
}

fn check_dependencies(spec: &JobSpec, step: &StepSpec) -> Result<(), Refusal> {
    for dependency in &step.depends {
        let bad = |on: String, why| Err(Refusal::BadDependency { step: step.name.clone(), on, why });
        let Some(on) = spec.steps.get(usize::from(dependency.on)) else {
            return bad(dependency.on.to_string(), "there is no such step");
        };
        if dependency.kind == DependencyKind::Task && on.tasks != step.tasks {
            return bad(on.name.clone(), "task by task needs as many tasks in both");
        }
    }
    Ok(())
}

/// Follows dependencies from each step; a step met again on the way is a cycle. Steps that start together wait for each
/// other, so they are looked at as one, by the number of the step that leads them.
fn check_cycles(spec: &JobSpec) -> Result<(), Refusal> {
    let leader_of = |step: usize| spec.steps[step].with.map_or(step, usize::from);
    // Which step of those that start together waits for which.
    let mut waits: Vec<Vec<(usize, usize)>> = vec![Vec::new(); spec.steps.len()];
    for (i, step) in spec.steps.iter().enumerate() {
        waits[leader_of(i)].extend(step.depends.iter().map(|dependency| (i, usize::from(dependency.on))));
    }
    let mut open: Vec<usize> = waits.iter().map(Vec::len).collect();
    let mut free: Vec<usize> = (0..open.len()).filter(|i| open[*i] == 0).collect();
    let mut waiting = vec![Vec::new(); open.len()];
    for (leader, on) in waits.iter().enumerate().flat_map(|(i, waits)| waits.iter().map(move |w| (i, w.1))) {
        waiting[leader_of(on)].push(leader);
    }
    while let Some(done) = free.pop() {
        for next in std::mem::take(&mut waiting[done]) {
            open[next] -= 1;
            if open[next] == 0 {
                free.push(next);
            }
        }
    }
    let Some(mut at) = open.iter().position(|n| *n > 0) else { return Ok(()) };
    // Every step left waits for another step left: walking back must come round.
    let mut path: Vec<(usize, usize, usize)> = Vec::new();
    while !path.iter().any(|(leader, ..)| *leader == at)
        && let Some((step, on)) = waits[at].iter().find(|(_, on)| open[leader_of(*on)] > 0)
    {
        path.push((at, *step, *on));
        at = leader_of(*on);
    }
    let cycle = path.iter().skip_while(|(leader, ..)| *leader != at);
    // The step that is waited for at the end is the one at the beginning.
    let mut waited_for = path.last().map_or(at, |(.., on)| *on);
    let name = |step: usize| &spec.steps[step].name;
    let mut names: Vec<String> = Vec::new();
    for (_, step, on) in cycle {
        names.push(match *step == waited_for {
            true => name(*step).clone(),
            false => format!("{} with {}", name(waited_for), name(*step)),
        });
        waited_for = *on;
    }
    let first = names.first().cloned();
    names.extend(first);
    Err(Refusal::Cycle(names))
}
