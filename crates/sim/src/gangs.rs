//! Checks of tasks that start together, by trying all choices of workers on small farms. The engine finds a choice in
//! another way. `promises` and `waits` judge what is said of gangs that wait, `scheduler` what is reserved for them.

use std::collections::{BTreeMap, BTreeSet};
use windlass_core::class::Class;
use windlass_core::engine::Engine;
use windlass_core::explain::{self, Explanation, Reason};
use windlass_core::ids::{ClassId, StepKey};
use windlass_core::job::Job;
use windlass_core::plan;
use windlass_core::plan::placement::{eligible_when_idle, fits_now};
use windlass_core::worker::Worker;
use windlass_core::{Resources, TaskId, WorkerId};

/// Workers of which all choices are tried: each task of a gang may have any of them. Of larger farms nothing is said.
const TRIED_WORKERS_MAX: usize = 6;

/// Checks what is said of the gang that each step leads and that could start next: all of its tasks wait for one
/// reason, and none waits for room where some choice of workers has it.
pub(crate) fn judge_gangs(engine: &Engine, job: &Job) -> Result<(), String> {
    if !job.has_gangs {
        return Ok(());
    }
    for leader in 0..job.steps.len() {
        if !job.is_in_gang(leader) || job.spec.steps[leader].with.is_some() {
            continue;
        }
        let Some(tasks) = job.next_gang(leader) else { continue };
        let mut first: Option<(TaskId, Explanation)> = None;
        for step in job.gang_steps(leader) {
            // Tasks of one step are alike.
            let Some(index) = tasks.iter().find(|task| task.step == step).map(|task| task.index) else {
                continue;
            };
            let task = TaskId { job: job.id, index };
            let Some(why) = explain::reason(engine, task) else { continue };
            let Some((other, known)) = &first else {
                judge_room(engine, job, leader, &why)?;
                first = Some((task, why));
                continue;
            };
            if !are_alike(&known.reason, &why.reason) || known.turn.is_some() != why.turn.is_some() {
                return Err(format!(
                    "{task} and {other} start together, and wait for different things: {why:?}, {known:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Whether two tasks wait for the same. What closes the workers of one may differ from what closes those of the other.
fn are_alike(one: &Reason, other: &Reason) -> bool {
    one == other || matches!((one, other), (Reason::Closed(_), Reason::Closed(_)))
}

fn judge_room(engine: &Engine, job: &Job, leader: usize, why: &Explanation) -> Result<(), String> {
    let finds = match &why.reason {
        Reason::Together { .. } => could_start_now(engine, job, leader),
        Reason::FitsNowhere => {
            let workers: Vec<&Worker> = engine.workers().present().collect();
            let class = engine.class_of(StepKey { job: job.id, step: leader as u16 });
            class.is_some_and(|class| could_start_empty(class, &workers))
        }
        _ => false,
    };
    match finds {
        true => {
            Err(format!("some choice of workers fits the gang of step {leader} of job {}: {why:?}", job.id))
        }
        false => Ok(()),
    }
}

/// The workers that are reserved for gangs, as the last full round left them.
#[derive(Default)]
pub(crate) struct ReservedGangs(BTreeMap<ClassId, BTreeSet<WorkerId>>);

impl ReservedGangs {
    /// After a round with budget left: a gang of whose reserved workers some are gone has others, or none. Those that
    /// are left would stand empty for nothing, unless they suffice.
    pub fn judge(&mut self, engine: &Engine) -> Result<(), String> {
        let plan = engine.planner();
        let mut reserved: BTreeMap<ClassId, BTreeSet<WorkerId>> = BTreeMap::new();
        for (worker, class) in plan.reservations().holders() {
            if plan.classes.find(class).is_some_and(Class::is_gang) {
                reserved.entry(class).or_default().insert(worker);
            }
        }
        let before = std::mem::replace(&mut self.0, reserved);
        for (id, left) in &self.0 {
            let had = before.get(id).filter(|had| had.len() > left.len() && left.is_subset(had));
            let (Some(had), Some(class)) = (had, plan.classes.find(*id)) else { continue };
            let workers: Vec<&Worker> = left.iter().filter_map(|id| engine.workers().get(*id)).collect();
            if workers.len() <= TRIED_WORKERS_MAX && !could_start_empty(class, &workers) {
                return Err(format!(
                    "of workers {had:?}, reserved for the gang of class {id:?}, {left:?} are left"
                ));
            }
        }
        Ok(())
    }
}

/// Tasks of one step that start with others.
struct GangPart<'a> {
    class: &'a Class,
    tasks: usize,
    /// For each worker, whether a task may have it.
    may: Vec<bool>,
}

/// Whether all tasks that a leader starts next have workers with room now.
fn could_start_now(engine: &Engine, job: &Job, leader: usize) -> bool {
    let workers: Vec<&Worker> = engine.workers().present().collect();
    let Some(tasks) = job.next_gang(leader).filter(|_| workers.len() <= TRIED_WORKERS_MAX) else {
        return false;
    };
    let context = engine.planner().match_context();
    let mut parts = Vec::new();
    for step in job.gang_steps(leader) {
        let count = tasks.iter().filter(|task| task.step == step).count();
        if count == 0 {
            continue;
        }
        let key = StepKey { job: job.id, step: step as u16 };
        let request = plan::part_request(engine, key, job.queue, job.steps[leader].class);
        let Some(request) = request else { return false };
        let may =
            |worker: &&Worker| fits_now(request.class, worker) && context.judge(&request, worker).is_ok();
        parts.push(GangPart { class: request.class, tasks: count, may: workers.iter().map(may).collect() });
    }
    let has_room = |worker: usize, sum: &Resources| workers[worker].has_room(sum);
    is_possible(&parts, &mut vec![Vec::new(); workers.len()], &has_room)
}

/// Whether these workers, were they empty, could run all tasks that start together; false of more workers than are
/// tried.
fn could_start_empty(class: &Class, workers: &[&Worker]) -> bool {
    if workers.len() > TRIED_WORKERS_MAX {
        return false;
    }
    let parts = class.parts().map(|part| GangPart {
        class: part,
        tasks: part.nodes.unwrap_or(1) as usize,
        may: workers.iter().map(|worker| eligible_when_idle(part, worker)).collect(),
    });
    let parts: Vec<GangPart> = parts.collect();
    let has_room = |worker: usize, sum: &Resources| sum.fits(&workers[worker].record.capacity);
    is_possible(&parts, &mut vec![Vec::new(); workers.len()], &has_room)
}

/// Tells whether a worker, by its place, has room for such amounts together.
type HasRoom<'a> = &'a dyn Fn(usize, &Resources) -> bool;

/// Tries all ways to give each part as many workers as it has tasks, beside those that are `on` the workers before.
fn is_possible<'a>(parts: &[GangPart<'a>], on: &mut [Vec<&'a Class>], has_room: HasRoom<'_>) -> bool {
    let Some((part, rest)) = parts.split_first() else { return true };
    for set in (0..1_u32 << on.len()).filter(|set| set.count_ones() as usize == part.tasks) {
        let chosen: Vec<usize> = (0..on.len()).filter(|worker| set & (1_u32 << *worker) != 0).collect();
        if !chosen.iter().all(|worker| part.may[*worker]) {
            continue;
        }
        chosen.iter().for_each(|worker| on[*worker].push(part.class));
        let fit = chosen.iter().all(|worker| fit_together(*worker, &on[*worker], has_room));
        if fit && is_possible(rest, on, has_room) {
            return true;
        }
        chosen.iter().for_each(|worker| _ = on[*worker].pop());
    }
    false
}

/// Whether a worker has room for a task of each class together. Two that take of one limit do not go to one worker.
fn fit_together(worker: usize, classes: &[&Class], has_room: HasRoom<'_>) -> bool {
    let (mut sum, mut limits) = (Resources::default(), BTreeSet::new());
    for class in classes {
        if !class.limits.iter().all(|name| limits.insert(name)) {
            return false;
        }
        sum.add(&class.request);
    }
    has_room(worker, &sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether workers with these numbers of cores could run a gang. A step is its number of tasks and the cores of each.
    fn could(cores: &[u32], steps: &[(usize, u32)]) -> bool {
        let classes: Vec<Class> = steps
            .iter()
            .map(|(_, cores)| Class { request: Resources::new(cores * 100, 0), ..Class::default() })
            .collect();
        let parts = classes.iter().zip(steps).map(|(class, (tasks, asks))| GangPart {
            class,
            tasks: *tasks,
            may: cores.iter().map(|has| asks <= has).collect(),
        });
        let parts: Vec<GangPart> = parts.collect();
        let has_room = |worker: usize, sum: &Resources| sum.fits(&Resources::new(cores[worker] * 100, 0));
        is_possible(&parts, &mut vec![Vec::new(); cores.len()], &has_room)
    }

    #[test]
    fn all_choices_are_tried() {
        assert!(could(&[2, 4, 2], &[(2, 1), (1, 1), (1, 4)]));
        assert!(!could(&[2, 4], &[(2, 1), (1, 1), (1, 4)]), "tasks of one step go to different workers");
        assert!(!could(&[2, 4, 2], &[(2, 2), (1, 1), (1, 4)]));
        assert!(could(&[3, 3], &[(1, 2), (1, 2), (2, 1)]));
        assert!(!could(&[3, 3], &[(1, 2), (1, 2), (1, 2)]));
    }
}
