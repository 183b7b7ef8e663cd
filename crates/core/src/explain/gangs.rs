//! What tasks wait for that start together.

use super::explanation::{Change, Explanation, Reason};
use crate::bounds;
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::StepKey;
use crate::job::Job;
use crate::plan::placement::{self, Ineligible, PlacementRequest};
use crate::plan::{self, GangOutcome};

/// The step that stands in a queue for a step: itself, or the one with which it starts.
pub(super) fn leader_of(job: &Job, key: StepKey) -> StepKey {
    StepKey { step: job.leader_of(key.step.into()) as u16, ..key }
}

/// What a task of a step asks of workers, as a round sees it.
pub(super) fn request_of<'a>(engine: &'a Engine, job: &Job, key: StepKey) -> Option<PlacementRequest<'a>> {
    match job.is_in_gang(key.step.into()) {
        true => plan::part_request(engine, key, job.queue, engine.ledger().step(leader_of(job, key))?.class),
        false => plan::placement_request(engine, key, job.queue),
    }
}

/// The farm never has room for all tasks that start together. What these workers have room for now is of no use then.
pub(super) fn say_too_few(engine: &Engine, class: &Class, why: &Ineligible, explanation: &mut Explanation) {
    let present = engine.workers().present();
    let mut fitting = present.filter(|worker| placement::eligible_when_idle(class, worker));
    let first = fitting.by_ref().take(bounds::EXAMPLES_MAX);
    let names: Vec<String> = first.map(|worker| worker.record.name.clone()).collect();
    let workers = names.len() + fitting.count();
    explanation.ruled_out.retain(|(why, ..)| why.is_lasting());
    explanation.ruled_out.insert(0, (why.clone(), workers, names));
    (explanation.open_workers, explanation.judged) = (0, Vec::new());
}

/// Workers for the steps that start with this one and fit no worker of the farm.
pub(super) fn missing_mates(engine: &Engine, own: StepKey, leader: StepKey) -> Vec<Change> {
    let Some(job) = engine.job(own.job) else { return Vec::new() };
    let mates = job.gang_steps(leader.step.into()).map(|step| StepKey { step: step as u16, ..own });
    let fits_none = |mate: &StepKey| {
        let mut present = engine.workers().present();
        let class = engine.class_of(*mate);
        *mate != own
            && class.is_some_and(|class| !present.any(|worker| placement::eligible_when_idle(class, worker)))
    };
    let say = |mate: StepKey| {
        let step = &job.spec.steps[usize::from(mate.step)];
        let targets = step.targets.iter().take(bounds::EXAMPLES_MAX).cloned().collect();
        Change::Mate { step: step.name.clone(), targets }
    };
    mates.filter(fits_none).take(bounds::EXAMPLES_MAX).map(say).collect()
}

/// Why a task waits for those with which it starts; `None` if it does not.
pub(super) fn unready_mates(job: &Job, index: u32) -> Option<Reason> {
    let gang = job.gang_of(index)?;
    let mut waiting = 0;
    for mate in job.gang_tasks(gang).filter(|mate| mate.index != index) {
        let is_ready = job.steps[mate.step].ready.contains(mate.index);
        waiting += u32::from(!is_ready && !job.has_succeeded(&mate));
    }
    (waiting > 0).then(|| Reason::Mates { waiting, lost: job.is_broken(&gang) })
}

/// Why tasks that start together do not, although each is ready; `None` if all have a worker with room.
pub(super) fn too_little_room(engine: &Engine, job: &Job, leader: StepKey) -> Option<Reason> {
    if !job.is_in_gang(leader.step.into()) {
        return None;
    }
    match plan::place_gang(engine, leader, job.queue)? {
        GangOutcome::Placed(_) => None,
        GangOutcome::Short { placed, tasks, .. } => Some(Reason::Together { tasks, placed }),
    }
}
