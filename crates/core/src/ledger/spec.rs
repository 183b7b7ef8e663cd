//! The checks of a submitted job.

use crate::bounds;
use crate::job::{BUILD_CPU, ChunkSize, DependencyKind, EqualRuns, Hints, JobSpec, Jobserver, StepSpec};
use crate::outbox::Refusal;
use std::collections::BTreeSet;

/// Refuses a job that breaks a limit or can never end.
pub(super) fn check_spec(spec: &JobSpec) -> Result<(), Refusal> {
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
    check_gangs(spec)?;
    check_chunks(spec)?;
    check_jobservers(spec)?;
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

/// Refuses tasks that can never start together.
fn check_gangs(spec: &JobSpec) -> Result<(), Refusal> {
    if !spec.has_gangs() {
        return Ok(());
    }
    for (number, step) in spec.steps.iter().enumerate() {
        let bad = |why: String| Err(Refusal::BadGang { step: step.name.clone(), why });
        if let Some(nodes) = step.nodes
            && (nodes == 0 || step.tasks % nodes != 0)
        {
            let tasks =
                if step.tasks == 1 { "1 task is".to_owned() } else { format!("{} tasks are", step.tasks) };
            return bad(format!("{tasks} not a multiple of {nodes} nodes"));
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

/// True if the runs together are a block.
fn divides(runs: &[EqualRuns], block: u32) -> bool {
    let mut begin = 0;
    for EqualRuns { tasks, end } in runs {
        if *tasks == 0 || *end <= begin || !(end - begin).is_multiple_of(*tasks) {
            return false;
        }
        begin = *end;
    }
    begin == block
}

/// Refuses chunks that no process can run.
fn check_chunks(spec: &JobSpec) -> Result<(), Refusal> {
    for step in &spec.steps {
        let bad = |why| Err(Refusal::BadChunk { step: step.name.clone(), why });
        let Some(chunks) = &step.chunks else { continue };
        if step.nodes.is_some() || step.with.is_some() || step.is_external {
            return bad(
                "tasks that start together with others, or that a client runs, cannot share a process",
            );
        }
        // A row says by what it booked whether a task rode with another.
        if step.request.cpu == 0 && step.request.memory == 0 {
            return bad("tasks of a chunk must book some cpu or memory");
        }
        if chunks.block == 0 || chunks.size == ChunkSize::Fixed(0) {
            return bad("a chunk has at least one task");
        }
        if chunks.runs.len() > bounds::CHUNK_RUNS_MAX {
            return bad("its numbers have too many gaps; divide them into several steps");
        }
        if !chunks.runs.is_empty() && !divides(&chunks.runs, chunks.block) {
            return bad("its runs do not make up a block");
        }
    }
    Ok(())
}

/// Refuses a jobserver where no keeper can give its tokens to one task alone.
fn check_jobservers(spec: &JobSpec) -> Result<(), Refusal> {
    for (number, step) in spec.steps.iter().enumerate().filter(|(_, step)| step.hints.jobserver.is_some()) {
        if let Some(why) = why_no_tokens(spec, number) {
            return Err(Refusal::BadJobserver { step: step.name.clone(), why });
        }
    }
    Ok(())
}

/// Why no keeper can give tokens to the tasks of a step; `None` if one can.
fn why_no_tokens(spec: &JobSpec, number: usize) -> Option<&'static str> {
    let step = &spec.steps[number];
    if step.nodes.is_some() || step.with.is_some() || spec.followers(number).next().is_some() {
        return Some(
            "its tasks start together with others, each on another worker; let them start one by one",
        );
    }
    if step.chunks.is_some() {
        return Some("one process runs several of its tasks; leave out the chunks");
    }
    if step.is_external {
        return Some("the client that submitted it runs its tasks, and no worker; leave out the jobserver");
    }
    if step.request.cpu == 0 {
        return Some("its tasks book no cpu, and each runs one process at least; book 0.1 cpus or more");
    }
    None
}

/// Decides whether steps have a jobserver that leave it to their queue. `of_queue` is the queue's setting. A step that
/// cannot have one goes without.
pub(super) fn settle_jobservers(spec: &mut JobSpec, open: &[u16], of_queue: Option<bool>) {
    let steps = spec.steps.len();
    for number in open.iter().map(|number| usize::from(*number)).filter(|number| *number < steps) {
        let hints = &spec.steps[number].hints;
        let is_build = hints.jobserver.is_some();
        let is_wanted = of_queue.unwrap_or(is_build) && !hints.cpus_auto;
        let has = is_wanted && why_no_tokens(spec, number).is_none();
        let step = &mut spec.steps[number];
        step.hints.jobserver = has.then_some(Jobserver::Auto);
        if has && is_build {
            step.request.cpu = step.request.cpu.min(BUILD_CPU);
        }
    }
}
