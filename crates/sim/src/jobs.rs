//! Random jobs and machines, and the behaviour of tasks. A task's behaviour is encoded in its step's body:
//! the profile, the percentage of failures, and the memory that it comes to hold. `people` submits the jobs,
//! and `run` plays the tasks.

use crate::clock::{MS, S};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass_core::job::{
    AfterEnd, ChunkSize, Chunks, Dependency, DependencyKind, End, FailFast, FailLimit, JobSpec, Jobserver,
    StepSpec,
};
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures, Stall};
use windlass_core::tags::{Attributes, Need};
use windlass_core::{JobId, Resources, TaskId};

const MIB: u64 = 1 << 20;

/// Behaviour of a task, the first byte of its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Runs for a few milliseconds.
    Short,
    /// Runs for up to three seconds.
    Medium,
    /// Runs for up to half a minute.
    Long,
    /// Submits a job, lends its cpus, waits for the job, takes its cpus back.
    Parent,
}

impl Profile {
    /// The body of tasks of which `fail_percent` of a hundred fail.
    pub fn body(self, fail_percent: u8) -> Arc<[u8]> {
        Arc::from([self as u8, fail_percent])
    }

    /// A body of tasks that come to hold `holds` times 64 MiB.
    pub fn hungry_body(self, fail_percent: u8, holds: u8) -> Arc<[u8]> {
        Arc::from([self as u8, fail_percent, holds])
    }

    pub fn of(body: &[u8]) -> Profile {
        match body.first() {
            Some(0) => Profile::Short,
            Some(1) => Profile::Medium,
            Some(3) => Profile::Parent,
            _ => Profile::Long,
        }
    }

    /// Run time of a task, in nanoseconds.
    pub fn duration_ns(self, rng: &mut Rng) -> u64 {
        match self {
            Profile::Short => rng.between(MS, 15 * MS),
            Profile::Medium => rng.between(50 * MS, 3 * S),
            Profile::Long => rng.between(3 * S, 30 * S),
            Profile::Parent => 50 * MS,
        }
    }
}

pub fn end_of(body: &[u8], rng: &mut Rng) -> End {
    let fail_percent = body.get(1).copied().unwrap_or(0);
    if !rng.chance(u32::from(fail_percent) * 10) {
        return End::Exited(0);
    }
    match rng.below(5) {
        0 => End::Signaled(11),
        1 => End::OutOfMemory,
        2 => End::TimeLimit,
        _ => End::Exited(1),
    }
}

/// Bytes of memory that a task with this body comes to hold; `None` if the body does not say.
pub fn holds(body: &[u8]) -> Option<u64> {
    body.get(2).map(|holds| u64::from(*holds) * 64 * MIB)
}

/// A random report of a machine's load, in which any part may be unknown.
pub fn random_load(rng: &mut Rng) -> LoadReport {
    let mut stalled = || {
        let known = rng.chance(700);
        let stall = Stall { avg10: rng.below(101) as f64, ..Stall::default() };
        known.then_some(Pressure { some: Some(stall), full: None })
    };
    let machine = Pressures { cpu: stalled(), memory: stalled(), io: stalled() };
    LoadReport {
        machine,
        cpu_foreign: rng.chance(300).then(|| rng.below(5) as f64),
        memory_available: rng.chance(300).then(|| rng.below(8) * 1024 * MIB),
        memory_own: rng.chance(600).then(|| rng.below(4) * 1024 * MIB),
        ..LoadReport::default()
    }
}

/// A random machine: its capacity and attributes.
pub fn random_machine(rng: &mut Rng) -> (Resources, Attributes) {
    let cpu = [100, 100, 200, 400, 800][rng.below(5) as usize];
    let memory = rng.between(2, 8) * 1024 * MIB;
    let mut attributes = Attributes::new();
    if rng.chance(500) {
        attributes.insert("gpu".to_owned(), BTreeSet::new());
    }
    if rng.chance(700) {
        let arch = if rng.chance(500) { "x86_64" } else { "aarch64" };
        attributes.insert("arch".to_owned(), BTreeSet::from([arch.to_owned()]));
    }
    if rng.chance(120) {
        let queue = ["a", "b"][rng.below(2) as usize];
        attributes.insert("for_queue".to_owned(), BTreeSet::from([queue.to_owned()]));
    }
    (Resources::new(cpu, memory), attributes)
}

fn random_step(rng: &mut Rng, number: usize, equal_tasks: u32) -> StepSpec {
    let profile = [Profile::Short, Profile::Medium, Profile::Medium, Profile::Long][rng.below(4) as usize];
    let tasks = match profile {
        Profile::Short => rng.between(1, 20) as u32,
        _ if rng.chance(500) => equal_tasks,
        _ => rng.between(1, 6) as u32,
    };
    let cpu = [10, 50, 100, 100, 100, 200, 400][rng.below(7) as usize];
    let memory = [64, 256, 512, 1024, 3000][rng.below(5) as usize] * MIB;
    let mut step = StepSpec {
        name: format!("s{number}"),
        tasks,
        request: Resources::new(cpu, memory),
        max_running: rng.chance(60).then(|| rng.between(1, 3) as u32),
        retries: [0, 0, 1, 2][rng.below(4) as usize],
        body: profile.body([0, 0, 10, 50][rng.below(4) as usize]),
        ..StepSpec::default()
    };
    if rng.chance(100) {
        step.needs
            .push(Need::parse(["gpu", "arch=x86_64", "arch=x86_64|aarch64", "moon"][rng.below(4) as usize]));
    }
    if rng.chance(100) {
        step.hints.cpus_max = Some(cpu * 3);
    }
    if rng.chance(250) {
        step.tasks = rng.between(2, 30) as u32;
        let size = match rng.below(3) {
            0 => ChunkSize::Fixed(rng.between(1, 6) as u32),
            1 => ChunkSize::Learned { first: rng.between(1, 3) as u32, target_ms: None },
            _ => ChunkSize::Learned { first: 1, target_ms: Some(rng.between(10, 3000)) },
        };
        step.chunks = Some(Chunks { block: rng.between(1, 12) as u32, runs: Vec::new(), size });
    }
    if rng.chance(150) {
        step.body = profile.hungry_body(0, rng.between(1, 80) as u8);
    }
    if rng.chance(50) && step.chunks.is_none() {
        step.is_external = true;
    }
    if rng.chance(150) {
        step.hints.caches.insert(format!("k{}", rng.below(5)), rng.chance(500).then_some(MIB));
    }
    if rng.chance(100) {
        step.limits.insert(format!("l{}", rng.below(2)));
    }
    if rng.chance(100) {
        step.targets.insert(format!("w{}", rng.below(4)));
    }
    if rng.chance(80) && step.chunks.is_none() && !step.is_external {
        step.hints.jobserver = Some(Jobserver::Auto);
    }
    step
}

fn random_dependencies(rng: &mut Rng, steps: &mut [StepSpec]) {
    for number in 1..steps.len() {
        for _ in 0..rng.below(3) {
            // Rarely a step depends on itself or a later one. Such a cycle must be refused.
            let on = if rng.chance(20) { rng.below(steps.len() as u64) } else { rng.below(number as u64) };
            let alike = steps[on as usize].tasks == steps[number].tasks;
            let kind = if (alike && rng.chance(700)) || rng.chance(20) {
                DependencyKind::Task
            } else {
                DependencyKind::Step
            };
            steps[number].depends.push(Dependency { on: on as u16, kind });
        }
    }
}

/// Makes some tasks start together. Rarely they cannot, which must be refused.
fn random_gangs(rng: &mut Rng, steps: &mut [StepSpec]) {
    if !rng.chance(120) {
        return;
    }
    let nodes = rng.between(1, 3) as u32;
    steps[0].nodes = Some(nodes);
    for step in steps.iter_mut() {
        (step.chunks, step.is_external) = (None, false);
        step.hints.jobserver = step.hints.jobserver.filter(|_| rng.chance(50));
    }
    if rng.chance(950) {
        steps[0].tasks = nodes * rng.between(1, 3) as u32;
    }
    let gangs = steps[0].tasks / nodes;
    for step in &mut steps[1..] {
        if rng.chance(500) {
            (step.with, step.max_running) = (Some(0), None);
            if rng.chance(900) {
                step.tasks = gangs;
            }
            if rng.chance(700) {
                step.depends.clear();
            }
        }
    }
}

/// A random job. `known` are jobs that it may come after.
pub fn random_job(rng: &mut Rng, known: &[JobId]) -> JobSpec {
    let equal_tasks = rng.between(1, 5) as u32;
    let mut steps: Vec<StepSpec> =
        (0..rng.between(1, 4) as usize).map(|number| random_step(rng, number, equal_tasks)).collect();
    random_dependencies(rng, &mut steps);
    random_gangs(rng, &mut steps);
    if rng.chance(150) {
        steps.truncate(1);
        steps[0].nodes = None;
        steps[0].chunks = None;
        steps[0].tasks = rng.between(1, 2) as u32;
        steps[0].request = Resources::new(100, 64 * MIB);
        steps[0].body = Profile::Parent.body(10);
        steps[0].depends.clear();
        steps[0].needs.clear();
        steps[0].targets.clear();
    }
    let mut after = Vec::new();
    while rng.chance(300) && after.len() < 3 {
        after.extend(rng.pick(known).copied());
    }
    let mut after_ends = BTreeMap::new();
    for first in &after {
        if rng.chance(400) {
            after_ends.insert(*first, [AfterEnd::Any, AfterEnd::NotOk][rng.below(2) as usize]);
        }
    }
    JobSpec {
        name: format!("j{}", rng.below(1000)),
        queue: ["a", "b", "c", "vip", "idle"][rng.below(5) as usize].to_owned(),
        user: ["ann", "bob"][rng.below(2) as usize].to_owned(),
        priority: rng.below(3) as i32,
        key: rng.chance(300).then(|| format!("k{}", rng.below(20))),
        parent: None,
        after,
        after_ends,
        after_tasks: None,
        fail_fast: [FailFast::No, FailFast::No, FailFast::Finish, FailFast::Kill][rng.below(4) as usize],
        fail_limit: [FailLimit::Tasks(1), FailLimit::Tasks(2), FailLimit::Percent(40)][rng.below(3) as usize],
        max_running: rng.chance(100).then(|| rng.between(1, 4) as u32),
        on_end: Vec::new(),
        steps,
    }
}

/// The job with its tasks after those of `first`, of which there are `tasks`.
pub fn made_following(mut spec: JobSpec, first: JobId, tasks: u32) -> JobSpec {
    spec.after_tasks = Some(first);
    if spec.tasks() != tasks {
        spec.steps.truncate(1);
        let step = &mut spec.steps[0];
        (step.tasks, step.nodes, step.chunks, step.with) = (tasks, None, None, None);
        step.depends.clear();
    }
    spec
}

/// The job with the request of many others, so that one subqueue becomes long.
pub fn made_alike(mut spec: JobSpec) -> JobSpec {
    for step in &mut spec.steps {
        step.request = Resources::new(100, 64 * MIB);
        step.needs.clear();
        step.targets.clear();
        step.limits.clear();
    }
    if spec.queue != "vip" {
        "a".clone_into(&mut spec.queue);
    }
    spec
}

/// Jobs of one queue: some that only absent machines could run, two wide tasks of `widest` hundredths of a
/// core (a whole machine), and a stream of narrow tasks that could overtake them.
pub fn stream(rng: &mut Rng, widest: u32) -> Vec<JobSpec> {
    let step = |name: &str, tasks, cpu| StepSpec {
        name: name.to_owned(),
        tasks,
        request: Resources::new(cpu, MIB),
        body: Profile::Medium.body(0),
        ..StepSpec::default()
    };
    let job = |step: StepSpec| JobSpec {
        name: step.name.clone(),
        queue: "a".to_owned(),
        user: "ann".to_owned(),
        steps: vec![step],
        ..JobSpec::default()
    };
    let pinned = (0..rng.between(0, 6)).map(|number| {
        let targets = BTreeSet::from([format!("gone{number}")]);
        job(StepSpec { targets, ..step("pinned", 1, 100) })
    });
    let mut jobs: Vec<JobSpec> = pinned.collect();
    jobs.push(job(step("narrow", 300, 100)));
    jobs.push(job(step("wide", 2, widest)));
    jobs
}

pub fn child_job(rng: &mut Rng, task: TaskId, attempt: u32) -> JobSpec {
    let profile = if rng.chance(500) { Profile::Short } else { Profile::Medium };
    let step = StepSpec {
        name: "child".to_owned(),
        tasks: rng.between(1, 2) as u32,
        request: Resources::new(100, 64 * MIB),
        body: profile.body(20),
        ..StepSpec::default()
    };
    JobSpec {
        name: format!("child of {task}"),
        queue: "a".to_owned(),
        user: "ann".to_owned(),
        key: Some(format!("child-{task}-{attempt}")),
        parent: Some(task),
        steps: vec![step],
        ..JobSpec::default()
    }
}
