//! The run of one seed: random requests, tasks that submit jobs of their own, and faults, and at the end a
//! quiet time in which everything must end. The tests of this crate call [`run_seed`]. Everything random
//! comes from the seed, so a run can be repeated.

use crate::cache::Cache;
use crate::clock::{CLOCK_START, MS, S};
use crate::delays::Delays;
use crate::events::{Alarm, Observation, SimEvent};
use crate::faults::Faults;
use crate::jobs::{self, Profile};
use crate::machine::{AttemptKey, BuildConduct, Defect, Machine};
use crate::people::People;
use crate::promises::bases;
use crate::scheduler::Scheduler;
use crate::tally::Tally;
use crate::trace::Transcript;
use crate::twists::Twists;
use crate::waits::Waits;
use crate::world::World;
use std::fmt;
use windlass_core::engine::{Fact, Settings};
use windlass_core::explain::Reason;
use windlass_core::job::{End, JobState};
use windlass_core::plan::Policy;
use windlass_core::queues::Charge;
use windlass_core::score::policy::{POLICIES, policy_by_name};
use windlass_core::worker::Saturation;
use windlass_core::{JobId, TaskId};

/// Virtual time after the last fault within which every job must end.
const QUIET: u64 = 6 * 3600 * S;
/// Machines of one seed, with those that claim another's name.
const MACHINES_MAX: usize = 18;
/// Machines that claim another's name at a time.
const RIVALS_MAX: usize = 3;

/// Outcome of a run without a broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The seed of the run.
    pub seed: u64,
    /// Jobs that were accepted and not deleted.
    pub jobs: u64,
    /// Virtual time of the run, in milliseconds.
    pub virtual_ms: u64,
    /// Number of events of each kind.
    pub tally: Tally,
    /// Hash of the whole transcript.
    pub hash: u64,
}

/// A promise that broke, and when.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}\n\nseed {seed}, step {step}: {what}\nagain: {replay}", .trace.join("\n"))]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// Number of the step.
    pub step: u64,
    /// The promise, and what happened instead.
    pub what: String,
    /// The last lines of the transcript.
    pub trace: Vec<String>,
    /// The shell command that runs this seed again.
    pub replay: String,
}

/// As [`Display`](fmt::Display), so that a test's failure is readable.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Runs a seed to its end under these faults.
///
/// # Errors
///
/// The first promise that broke, with the last lines of the transcript and the command that runs it again.
pub fn run_seed(seed: u64, faults: &Faults) -> Result<Summary, Violation> {
    run(seed, faults, Transcript::new(false)).0
}

/// Like [`run_seed`], and also returns all lines of the transcript.
pub fn run_seed_traced(seed: u64, faults: &Faults) -> (Result<Summary, Violation>, Vec<String>) {
    let (outcome, trace) = run(seed, faults, Transcript::new(true));
    (outcome, trace.lines().map(str::to_owned).collect())
}

fn run(seed: u64, faults: &Faults, trace: Transcript) -> (Result<Summary, Violation>, Transcript) {
    let mut run = Run::new(seed, faults, trace);
    while run.world.violation.is_none() && !run.is_over() {
        run.step();
    }
    let world = &mut run.world;
    let outcome = match world.violation.take() {
        None => Ok(Summary {
            seed,
            jobs: world.promises.accepted_count(),
            virtual_ms: world.now_ns / MS,
            tally: world.tally,
            hash: world.trace.hash(),
        }),
        Some(what) => Err(Violation {
            seed,
            step: world.tally.steps,
            what,
            trace: world.trace.last_lines(),
            replay: crate::replay_command(seed),
        }),
    };
    let trace = std::mem::replace(&mut world.trace, Transcript::new(false));
    (outcome, trace)
}

#[derive(Clone, Copy)]
enum Fault {
    Keeper,
    Link,
    Absence,
    Claim,
    Scheduler,
    Disk,
    Clock,
    Retention,
    Retire,
}

struct Run {
    world: World,
    people: People,
    /// Faults that strike after a number of steps. Counting steps strikes more often while much is under way.
    armed: Vec<(u64, Fault)>,
    /// Machines that claimed another's name.
    rivals: Vec<usize>,
    /// Virtual time in nanoseconds at which the disturbances end.
    quiet_ns: u64,
    waits: Waits,
    /// The special circumstance of this world.
    twists: Twists,
    over: bool,
}

impl Run {
    fn new(seed: u64, faults: &Faults, trace: Transcript) -> Self {
        let mut world = World::new(seed, *faults, trace);
        world.faults = faults.vary(&mut world.rng);
        let lease_s = [Some(3), Some(3), Some(30), Some(30), Some(300), None][world.rng.below(6) as usize];
        world.settings.lease_ns = lease_s.map(|s| s * S);
        world.settings.plan.suspect_ns = lease_s.map_or(20, |s| s / 3) * S;
        world.settings.plan.load.pressure = world.rng.chance(700);
        // Where tasks count, turns after a restart can be compared with those before it, bit by bit.
        world.settings.plan.turn.charge = if seed / 4 % 2 == 1 { Charge::Task } else { Charge::Time };
        let policies = POLICIES.map(|name| policy_by_name(name).0);
        world.settings.plan.policy = Policy(policies[world.rng.below(4) as usize]);
        world.settings.plan.saturation =
            Saturation { cores: world.rng.chance(300), memory: world.rng.chance(200) };
        world.settings.plan.reserve.after_ns = [2, 5, 60][world.rng.below(3) as usize] * S;
        world.settings.plan.reserve.holders_max = [1, 2, 8][world.rng.below(3) as usize];
        world.settings.plan.turn.express = [None, Some(2), Some(8)][world.rng.below(3) as usize];
        world.settings.cache_steps = match seed % 4 {
            0 => 3,
            1 => 12,
            _ => world.settings.cache_steps,
        };
        if seed % 2 == 1 {
            small_bounds(&mut world);
        }
        world.keeps_order = world.faults.lose_permille == 0 && world.rng.chance(700);
        if *faults != Faults::none() {
            world.delays = Delays::random(&mut world.rng);
        }
        world.leases_vary = world.faults.clock_permille == 0;
        let machines = if seed % 16 == 9 { world.rng.between(8, 16) } else { world.rng.between(1, 4) };
        let mut twists = Twists::of(seed, faults);
        twists.set(&mut world);
        for number in 0..twists.machines(machines) {
            let name = format!("w{number}");
            add_machine(&mut world, &name, &name);
        }
        twists.equip(&mut world);
        let quiet_ns = world.rng.between(20, 120) * S;
        world.after(0, SimEvent::Alarm(Alarm::Disturb));
        world.after(S, SimEvent::Alarm(Alarm::Inspect));
        world.after(quiet_ns, SimEvent::Alarm(Alarm::Tidy));
        Run {
            world,
            people: People::default(),
            armed: Vec::new(),
            rivals: Vec::new(),
            quiet_ns,
            waits: Waits::default(),
            twists,
            over: false,
        }
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn step(&mut self) {
        if !self.world.step() {
            self.over = true;
        }
        while let Some(observation) = self.world.observations.pop_front() {
            match observation {
                Observation::Starts(machine, key) => self.task_starts(machine, key),
                Observation::Fact(Fact::Worker { what: "expired", .. }) => self.world.tally.expiries += 1,
                Observation::Fact(Fact::Worker { what: "forgotten", .. }) => self.world.tally.forgotten += 1,
                Observation::Fact(Fact::Booked { task, worker, .. }) => {
                    self.waits.booked(&self.world, task, worker)
                }
                Observation::Ends(..) | Observation::Fact(_) => {}
                Observation::Reply(request, answer) => self.people.answered(&mut self.world, request, answer),
                Observation::Unavailable(request) => self.people.unavailable(request),
                Observation::SchedulerDied => self.people.scheduler_died(),
                Observation::Alarm(Alarm::Disturb) => self.disturb(),
                Observation::Alarm(Alarm::Parent(key)) => self.people.parent(&mut self.world, key),
                Observation::Alarm(Alarm::Tidy) => self.tidy(),
                Observation::Alarm(Alarm::Inspect) => self.inspect(),
            }
        }
        self.strike();
    }

    fn task_starts(&mut self, machine: usize, key: AttemptKey) {
        let world = &mut self.world;
        if world.machines[machine].rides(key) {
            return;
        }
        let Some(job) = world.store.job(key.0.job) else { return };
        let step = bases(&job.spec).partition_point(|base| *base <= key.0.index) - 1;
        let body = world.store.body(key.0.job, step as u16).unwrap_or_default();
        let profile = Profile::of(&body);
        if profile == Profile::Parent {
            self.people.parent_starts(world, machine, key);
            return;
        }
        let delay_ns = profile.duration_ns(&mut world.rng);
        let mut end = jobs::end_of(&body, &mut world.rng);
        world.read(machine, &job.spec.steps[step].hints.caches);
        if jobs::holds(&body).is_some_and(|bytes| world.machines[machine].occupy(key, bytes)) {
            end = End::OutOfMemory;
        } else if world.machines[machine].defect == Defect::FailsTasks {
            end = End::Exited(1);
        } else if world.machines[machine].defect == Defect::GivesBack {
            end = End::Canceled;
        }
        let incarnation = world.machines[machine].keepers;
        world.after(delay_ns, SimEvent::TaskEnds(machine, incarnation, key, end));
    }

    fn disturb(&mut self) {
        let world = &mut self.world;
        if world.now_ns >= self.quiet_ns {
            return;
        }
        let delay_ns = world.rng.between(20 * MS, 2 * S);
        world.after(delay_ns, SimEvent::Alarm(Alarm::Disturb));
        let faults = world.faults;
        let kinds = [
            (faults.keeper_permille, Fault::Keeper),
            (faults.link_permille, Fault::Link),
            (faults.absence_permille, Fault::Absence),
            (faults.claim_permille, Fault::Claim),
            (faults.scheduler_permille, Fault::Scheduler),
            (faults.disk_permille, Fault::Disk),
            (faults.clock_permille, Fault::Clock),
            (faults.retention_permille, Fault::Retention),
            (faults.retire_permille, Fault::Retire),
        ];
        let mut dice = world.rng.below(1000) as u32;
        for (permille, fault) in kinds {
            if dice < permille {
                self.armed.push((world.tally.steps + world.rng.below(30), fault));
                return;
            }
            dice -= permille;
        }
        if world.rng.chance(200) {
            let machine = world.rng.below(world.machines.len() as u64) as usize;
            let load = world.rng.chance(700).then(|| Box::new(jobs::random_load(&mut world.rng)));
            world.machines[machine].load = load;
            world.machines[machine].defect = match world.rng.below(9) {
                0 => Defect::FailsTasks,
                1 => Defect::StartsNone,
                2 => Defect::GivesBack,
                _ => Defect::None,
            };
        }
        if !self.twists.act(world, &mut self.people) {
            self.people.act(world);
        }
    }

    /// Checks the waiting work, each second.
    fn inspect(&mut self) {
        self.world.after(S, SimEvent::Alarm(Alarm::Inspect));
        // Settings that are lower than before count from now on, while no write is under way.
        if self.world.scheduler.as_ref().is_some_and(Scheduler::is_idle) {
            self.world.promises.counted.settle(&self.world.store);
        }
        if let Err(what) = self.waits.inspect(&self.world) {
            self.world.broken(what);
        }
    }

    fn strike(&mut self) {
        let now = self.world.tally.steps;
        let (due, later) = self.armed.drain(..).partition(|(at, _)| *at <= now);
        self.armed = later;
        let due: Vec<(u64, Fault)> = due;
        for (_, fault) in due {
            self.strike_now(fault);
        }
    }

    fn strike_now(&mut self, fault: Fault) {
        let world = &mut self.world;
        let machine = world.rng.below(world.machines.len() as u64) as usize;
        let seen_ns = if world.rng.chance(600) { 0 } else { world.rng.between(5, 100) * S };
        if world.machines[machine].retired && !matches!(fault, Fault::Retention) {
            return;
        }
        match fault {
            Fault::Keeper if world.machines[machine].keeper.is_some() => {
                world.kill_keeper(machine, seen_ns);
                let delay_ns = world.rng.between(100 * MS, 20 * S);
                world.after(delay_ns, SimEvent::KeeperStarts(machine));
            }
            Fault::Keeper => {}
            Fault::Link => {
                world.cut_link(machine, seen_ns);
                let delay_ns = world.rng.between(MS, 8 * S);
                world.after(delay_ns, SimEvent::Connects(machine));
            }
            Fault::Absence => {
                let lease_ns = world.settings.lease_ns.unwrap_or(30 * S);
                let away_ns = world.rng.between(lease_ns / 4, lease_ns * 5 / 2);
                let keeper_dies = world.rng.chance(300);
                world.take_away(machine, away_ns, seen_ns, keeper_dies);
            }
            Fault::Claim if world.machines.len() < MACHINES_MAX && self.rivals.len() < RIVALS_MAX => {
                let name = world.machines[machine].name.clone();
                let label = format!("x{}", world.machines.len());
                let number = add_machine(world, &label, &name);
                self.rivals.push(number);
            }
            Fault::Claim => {}
            Fault::Scheduler => {
                world.kill_scheduler();
                let delay_ns = world.rng.between(10 * MS, 10 * S);
                world.after(delay_ns, SimEvent::SchedulerStarts);
            }
            Fault::Disk => {
                world.trace.line("the disk is full");
                world.disk_full = true;
                let delay_ns = world.rng.between(10 * MS, 5 * S);
                world.after(delay_ns, SimEvent::DiskHasRoom);
            }
            Fault::Retention => {
                let age_ns = world.rng.below(20) * S;
                world.delete_old_jobs(age_ns);
            }
            Fault::Retire if world.machines_left() > 1 => world.retire(machine, seen_ns),
            Fault::Retire => {}
            Fault::Clock => {
                let by_ns = world.rng.between(MS, 3600 * S) as i64;
                world.tally.clock_steps += 1;
                let back = world.rng.chance(500);
                world.clock_skew_ns = if back { -by_ns } else { by_ns };
                world.trace.line(&format!("the clock is off by {} ms", world.clock_skew_ns / MS as i64));
            }
        }
    }

    /// Ends the disturbances and undoes all requests, so that everything must end.
    fn tidy(&mut self) {
        let world = &mut self.world;
        self.armed.clear();
        world.faults = Faults::none();
        world.delays = Delays::default();
        (world.disk_full, world.loses_results) = (false, false);
        for number in std::mem::take(&mut self.rivals) {
            world.kill_keeper(number, 0);
            world.machines[number].retired = true;
        }
        world.after(10 * S, SimEvent::Alarm(Alarm::Tidy));
        world.after(0, SimEvent::SchedulerStarts);
        for number in 0..world.machines.len() {
            (world.machines[number].load, world.machines[number].defect) = (None, Defect::None);
            world.after(S, SimEvent::KeeperStarts(number));
            world.after(2 * S, SimEvent::Connects(number));
        }
        if let Err(what) = world.promises.all_accepted(&world.store) {
            world.broken(what);
        }
        if self.people.unanswered() == 0 && self.all_ended() {
            if let Some(Err(what)) = self.world.engine().map(|engine| engine.check_empty()) {
                self.world.broken(what);
            }
            self.over = true;
            return;
        }
        let hopeless = hopeless(&self.world);
        self.people.tidy(&mut self.world, &hopeless);
        if self.world.now_ns > self.quiet_ns + QUIET {
            let what = self.still_open();
            self.world.broken(what);
        }
    }

    fn all_ended(&self) -> bool {
        let world = &self.world;
        let Some(scheduler) = &world.scheduler else { return false };
        let idle = |m: &Machine| m.retired || m.keeper.as_ref().is_some_and(|k| k.is_empty());
        let idle = world.machines.iter().all(idle);
        let ground = world.store.load().ground;
        idle && scheduler.is_idle()
            && ground.jobs.is_empty()
            && ground.parked.is_empty()
            && scheduler.engine.jobs().next().is_none()
            && world.promises.is_quiet()
    }

    fn still_open(&self) -> String {
        let requests = self.people.unanswered();
        let held: Vec<_> = self.world.machines.iter().flat_map(Machine::held).collect();
        let Some(engine) = self.world.engine() else { return "no scheduler".to_owned() };
        let jobs = engine.jobs().map(|job| {
            let total: u32 = job.spec.steps.iter().map(|step| step.tasks).sum();
            let tasks =
                (0..total).map(|index| windlass_core::explain::reason(engine, TaskId { job: job.id, index }));
            let open = tasks.flatten().find(|e| e.reason != Reason::Ended);
            format!("job {} ({:?}): {open:?}", job.id, job.counts())
        });
        let jobs: Vec<String> = jobs.collect();
        format!(
            "without faults it does not come to an end; {requests} requests have no answer; \
             machines hold {held:?}; {}",
            jobs.join("; ")
        )
    }
}

/// Small bounds of what the engine examines and remembers, so that a small farm exceeds them.
fn small_bounds(world: &mut World) {
    let mut few = |most: u64| world.rng.between(2, most) as usize;
    let Settings { plan, recent_jobs_max, .. } = &mut world.settings;
    (plan.step_misses_max, plan.candidates_max) = (few(4), few(4));
    (*recent_jobs_max, plan.prefetch_looks_max) = (few(8), few(4));
    plan.reserve.watched_max = 2 + few(4);
}

/// Adds a random machine.
fn add_machine(world: &mut World, label: &str, name: &str) -> usize {
    let (capacity, attributes) = jobs::random_machine(&mut world.rng);
    let mut machine = Machine::new(label, name, capacity, attributes);
    machine.skew_ns = world.rng.below(S) as i64;
    if world.rng.chance(world.faults.absurd_clock_permille) {
        // Its clock starts at 0, or is a century ahead.
        machine.skew_ns =
            if world.rng.chance(500) { -(CLOCK_START as i64) } else { 3_000_000_000 * S as i64 };
    }
    machine.repeats = !world.keeps_order;
    machine.lies = world.rng.chance(world.faults.liar_permille);
    machine.drift_permille = world.rng.between(0, 80) as i64 - 40;
    machine.fences = world.settings.lease_ns.is_some() && world.rng.chance(850);
    machine.cache = world.rng.chance(700).then(|| Cache::new(3, false));
    machine.builds = BuildConduct::Varying;
    world.add_machine(machine)
}

/// Active jobs with a task that no machine could run.
fn hopeless(world: &World) -> Vec<JobId> {
    let Some(engine) = world.engine() else { return Vec::new() };
    let jobs = engine.jobs().filter(|job| {
        let total: u32 = job.spec.steps.iter().map(|step| step.tasks).sum();
        let mut tasks =
            (0..total).map(|index| windlass_core::explain::reason(engine, TaskId { job: job.id, index }));
        job.ended != Some(JobState::Canceled)
            && tasks.any(|why| {
                why.is_some_and(|why| matches!(why.reason, Reason::FitsNowhere | Reason::NoWorkers))
            })
    });
    jobs.map(|job| job.id).collect()
}
