//! Tasks that start together: how they are booked, and what the end of one does to the others. See [`Gang`].

use super::{Engine, GangPlace, Outbox, Refusal, WorkerCommand};
use crate::bounds;
use crate::ids::{JobId, QueueId, StepKey, TaskId, WorkerId};
use crate::job::{End, Gang, Job, JobSpec, QueuedStep, TaskState};
use crate::plan::{Booking, TogetherTask};
use crate::queues::RoundFilter;
use std::collections::BTreeSet;

impl Engine {
    /// Gives a step that leads gangs the class of its next one: what of that has succeeded needs no room.
    pub(super) fn fit_class_to_gang(&mut self, leader: StepKey) {
        let Some(job) = self.ledger.jobs.get(&leader.job).filter(|job| job.has_gangs) else { return };
        let Some(nodes) = job.next_nodes(leader.step.into()) else { return };
        let class = self.plan.classes.get(job.steps[usize::from(leader.step)].class);
        if !class.has_nodes(&nodes) {
            let class = class.clone().with_nodes(&nodes);
            self.set_class(leader, class);
        }
    }

    /// Books tasks that start together. Their workers are told when all are booked, so that each learns of all.
    pub(super) fn book_together(
        &mut self,
        tasks: &[TogetherTask],
        leader: QueuedStep,
        queue: QueueId,
        filter: &mut RoundFilter,
        out: &mut Outbox,
    ) {
        for TogetherTask { step, index, worker } in tasks {
            let queued_step = leader.of_step(*step);
            let booking = Booking { queue, queued_step, worker: *worker, is_ahead: false };
            self.book_task(&booking, *index, filter, out);
        }
        for TogetherTask { step, index, .. } in tasks {
            // Several on one worker have a number each, which they could not know when they were booked.
            self.send_start(TaskId { job: step.job, index: *index }, out);
            self.refresh_capped(*step);
        }
        self.refresh(leader.step());
    }

    /// Where a booked task stands among those that were booked with it. A start may be lost and sent again after some of
    /// these have ended. They keep their places, since the others count them.
    pub(super) fn gang_place(&self, task: TaskId) -> Option<GangPlace> {
        let job = self.ledger.jobs.get(&task.job)?;
        let gang = job.gang_of(task.index)?;
        let mut place = GangPlace::default();
        for mate in job.gang_tasks(gang) {
            let attempt = self.ledger.attempts.get(&TaskId { index: mate.index, ..task });
            let booked_on = attempt.map(|attempt| attempt.worker);
            let Some(worker) = booked_on.or_else(|| job.ended_mates.get(&mate.index).copied()) else {
                continue;
            };
            if mate.index == task.index {
                place.rank = place.workers.len() as u32;
            }
            let name = self.plan.workers.get(worker).map(|worker| worker.name.to_string());
            place.workers.push(name.unwrap_or_default());
        }
        Some(place)
    }

    /// An attempt of a gang is over. The others end too if the task is to run again, since all of them start together
    /// then; if it never ran; and if it failed, those of its own step.
    pub(super) fn end_mates(
        &mut self,
        (task, worker): (TaskId, WorkerId),
        gang: Gang,
        (state, end): (TaskState, &End),
        out: &mut Outbox,
    ) {
        self.ledger.keep_place((task, worker), gang, state);
        let never_ran = matches!(end, End::NotStarted { .. } | End::Lost | End::Recalled);
        let all = state == TaskState::Ready || never_ran;
        if !all && state != TaskState::Failed {
            self.refresh(StepKey { job: task.job, step: gang.leader as u16 });
            return;
        }
        let Some(job) = self.ledger.jobs.get(&task.job) else { return };
        let own = usize::from(job.step_of(task.index));
        let mates = job.gang_tasks(gang).filter(|mate| all || mate.step == own);
        let mates: Vec<TaskId> = mates.map(|mate| TaskId { index: mate.index, ..task }).collect();
        for mate in mates {
            self.kill(mate, out);
        }
        // What was ready alone is not any more, or is once the others have ended.
        self.refresh(StepKey { job: task.job, step: gang.leader as u16 });
    }

    fn kill(&mut self, task: TaskId, out: &mut Outbox) {
        let Some(attempt) = self.ledger.attempts.get_mut(&task).filter(|attempt| !attempt.killing) else {
            return;
        };
        attempt.killing = true;
        let (worker, attempt) = (attempt.worker, attempt.number);
        self.send(worker, WorkerCommand::Kill { task, attempt }, out);
    }

    /// Failed tasks of a job are to run again: those with which they start end first.
    pub(super) fn end_broken_gangs(&mut self, id: JobId, out: &mut Outbox) {
        for task in self.ledger.in_broken_gangs(id) {
            self.kill(task, out);
        }
    }

    /// Tasks of a gang that run were booked together, those of one step on different workers, and no other task of
    /// the gang is about to start.
    pub(super) fn check_gangs(&self, job: &Job) -> Result<(), String> {
        let mut known: BTreeSet<Gang> = BTreeSet::new();
        for (task, _) in self.ledger.attempts_of(job.id) {
            let Some(gang) = job.gang_of(task.index).filter(|gang| known.insert(*gang)) else { continue };
            let mut workers: BTreeSet<(usize, WorkerId)> = BTreeSet::new();
            let mut booked = BTreeSet::new();
            let mut is_ending = true;
            for mate in job.gang_tasks(gang) {
                let Some(attempt) = self.ledger.attempts.get(&TaskId { job: job.id, index: mate.index })
                else {
                    continue;
                };
                booked.insert(attempt.booked);
                is_ending &= attempt.killing;
                if !workers.insert((mate.step, attempt.worker)) {
                    return Err(format!("{task}: two tasks of one gang and step on one worker"));
                }
            }
            if booked.len() > 1 {
                return Err(format!("{task}: its gang was not booked together: {booked:?}"));
            }
            let waits = job.gang_tasks(gang).find(|mate| job.steps[mate.step].ready.contains(mate.index));
            if let Some(waits) = waits.filter(|_| !is_ending) {
                return Err(format!("{task} runs, and task {} of its gang waits", waits.index));
            }
        }
        let is_alone = |index: &&u32| job.gang_of(**index).is_none_or(|gang| !known.contains(&gang));
        if let Some(index) = job.ended_mates.keys().find(is_alone) {
            return Err(format!("task {index} of job {} keeps its place, and its gang is over", job.id));
        }
        for leader in (0..job.steps.len()).filter(|step| job.steps[*step].enlisted.is_some()) {
            let class = self.plan.classes.get(job.steps[leader].class);
            if let Some(nodes) = job.next_nodes(leader).filter(|nodes| !class.has_nodes(nodes)) {
                return Err(format!(
                    "job {}: step {leader} starts {nodes:?}, and its class is {class:?}",
                    job.id
                ));
            }
        }
        Ok(())
    }
}

/// Refuses tasks that can never start together.
pub(super) fn check_gangs(spec: &JobSpec) -> Result<(), Refusal> {
    if !spec.has_gangs() {
        return Ok(());
    }
    for (number, step) in spec.steps.iter().enumerate() {
        let bad = |why: String| Err(Refusal::BadGang { step: step.name.clone(), why });
        if let Some(nodes) = step.nodes
            && (nodes == 0 || step.tasks % nodes != 0)
        {
            return bad(format!("{} tasks are not a number of times {nodes} nodes", step.tasks));
        }
        if let Some(leader) = step.with.map(usize::from) {
            let Some(first) = spec.steps.get(leader).filter(|_| leader < number) else {
                return bad(format!("it starts with step number {leader}, which does not come before it"));
            };
            if first.with.is_some() {
                return bad(format!("'{}' starts with another step itself; name that one", first.name));
            }
            let gangs = |step: &crate::job::StepSpec| step.tasks / step.nodes.unwrap_or(1).max(1);
            if gangs(first) != gangs(step) {
                return bad(format!(
                    "'{}' starts {} times, and this step {} times",
                    first.name,
                    gangs(first),
                    gangs(step)
                ));
            }
        }
        check_gang_of(spec, number)?;
    }
    Ok(())
}

/// Looks at all steps of the gangs that a step leads.
fn check_gang_of(spec: &JobSpec, leader: usize) -> Result<(), Refusal> {
    if spec.steps[leader].with.is_some() {
        return Ok(());
    }
    let members: BTreeSet<usize> = std::iter::once(leader).chain(spec.followers(leader)).collect();
    if members.len() == 1 && spec.steps[leader].nodes.is_none() {
        return Ok(());
    }
    let mut tasks: u32 = 0;
    for number in &members {
        let step = &spec.steps[*number];
        let bad = |why: String| Err(Refusal::BadGang { step: step.name.clone(), why });
        let nodes = step.nodes.unwrap_or(1);
        tasks = tasks.saturating_add(nodes);
        if let Some(on) = step.depends.iter().find(|on| members.contains(&usize::from(on.on))) {
            let on = &spec.steps[usize::from(on.on)].name;
            return bad(format!("it waits for '{on}' and starts together with it"));
        }
        if let Some(max) = step.max_running.filter(|max| *max < nodes) {
            return bad(format!("its max_running is {max}, and {nodes} tasks start together"));
        }
    }
    let (is, max) = (u64::from(tasks), u64::from(bounds::GANG_TASKS_MAX));
    if is > max {
        return Err(Refusal::TooMany { what: "tasks that start together", is, max });
    }
    match spec.max_running.filter(|max| *max < tasks) {
        Some(max) => {
            let why = format!("max_running of the job is {max}, and {tasks} tasks start together");
            Err(Refusal::BadGang { step: spec.steps[leader].name.clone(), why })
        }
        None => Ok(()),
    }
}
