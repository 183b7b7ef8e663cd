//! How many workers of each class are wanted: what runs and what waits is packed onto the workers that there are, and onto
//! further ones of the first class that fits.

use super::machine_class::{MachineClass, machine_classes};
use super::packing::Bins;
use super::running::{
    JOBSERVER_CPU_MIN, confined_sums, confined_workers, is_busy, running_work, stride, with_all_limits,
    with_limits,
};
use super::settings::ScalingSettings;
use super::waiting::{Backlog, JOBS_MAX, WaitingWork, backlog};
use crate::class::Class;
use crate::engine::Engine;
use crate::ids::JobId;
use crate::plan::placement;
use crate::resources::Resources;
use crate::worker::{Worker, WorkerState};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Workers of one class that are named as those that may go.
const SPARE_NAMED_MAX: usize = 100;

/// Looks at a worker for whether it could run a class of work that no machine of a class could.
const LOOKS_MAX: usize = 500_000;

/// Gangs of one class of work whose tasks get workers of their own. Those of further gangs are packed like other tasks: by
/// then they mostly find as many workers.
const GANGS_APART_MAX: u64 = 8;

/// How many workers the farm wants.
#[derive(Clone, PartialEq, Debug)]
pub struct Scaling {
    /// Milliseconds within which all tasks that wait should have started.
    pub target_wait_ms: u64,
    /// By class of machines, those of the smallest workers first.
    pub classes: Vec<ClassScaling>,
    /// What no worker could run.
    pub unrunnable: UnrunnableWork,
    /// Waiting tasks that some workers of the farm could run, and that one more of any class could not: they name their
    /// workers, for example.
    pub bound_tasks: u64,
    /// Waiting tasks that a quota, a limit or a cap keeps from starting, so that more workers would not help.
    pub blocked_tasks: u64,
    /// Ready tasks of paused queues and of held jobs.
    pub paused_tasks: u64,
    /// Classes of work that were not looked at, because there are too many.
    pub work_classes_left_out: usize,
}

/// How many workers of one class of machines are wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassScaling {
    /// The name of the class.
    pub name: String,
    /// What one worker of it has at least.
    pub capacity: Resources,
    /// Workers of the class, without those that are drained or expired.
    pub here: u32,
    /// Of these, workers that run something.
    pub busy: u32,
    /// Of these, idle workers that take no work now: silent, in quarantine, under pressure, or short of space. Where more
    /// workers are wanted, these are wanted besides.
    pub unusable: u32,
    /// Workers that the class should have.
    pub wanted: u32,
    /// Workers that run nothing and are more than are wanted.
    pub spare: u32,
    /// The names of some of these: those that take no work, then those that came last.
    pub spare_workers: Vec<String>,
    /// Waiting tasks that count for the class.
    pub tasks: u64,
    /// Of these, tasks of unknown length.
    pub unknown_tasks: u64,
    /// Milliseconds that the waiting tasks of known length take, one after the other.
    pub work_ms: u64,
    /// Of the waiting tasks, how many at a time start all of them within the target.
    pub tasks_at_a_time: u64,
    /// Tasks at a time that have room here, and count for another class.
    pub for_others: u64,
    /// Of the busy workers, those that get no more than they run: under pressure, for example.
    pub confined: u32,
    /// Workers that the class has at most.
    pub max: u32,
    /// More than these would be wanted.
    pub is_at_max: bool,
    /// It may have more workers than it has.
    pub grows: bool,
}

/// Work that no worker could run, not even one more of some class.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct UnrunnableWork {
    /// How many classes of work, each of which needs another worker.
    pub classes: u32,
    /// How many tasks of these wait.
    pub tasks: u64,
    /// Some of their jobs.
    pub jobs: Vec<JobId>,
}

/// The classes of machines, by their places in the list, that could run a class of work.
type Homes = Vec<usize>;

/// Requests of waiting tasks, the classes that could run them, and how many start together, each on another worker; with the
/// number of these tasks that run at a time.
type Requests = BTreeMap<(Homes, Resources, u32), f64>;

/// What is found out of one class of machines.
struct Tally {
    bins: Bins,
    busy: u32,
    unusable: u32,
    confined: u32,
    /// What the tasks that run leave of a slot.
    shared: SharedSlot,
    for_others: u64,
    is_at_max: bool,
    tasks: f64,
    unknown: f64,
    work_ms: f64,
    at_a_time: f64,
}

/// Works out how many workers of each class are wanted. It looks at workers, classes of work and a bounded number of their
/// steps; the caller asks every few seconds, and not in each round.
pub fn survey(engine: &Engine, settings: &ScalingSettings) -> Scaling {
    let target_ms = settings.target_wait_ms.max(1) as f64;
    let classes = machine_classes(engine.workers().present(), settings);
    let mut tallies = tallies_of(engine, &classes, target_ms);
    let Backlog { by_class, blocked, paused, classes_left_out } = backlog(engine, target_ms);
    let mut answer = Scaling {
        target_wait_ms: settings.target_wait_ms,
        classes: Vec::new(),
        unrunnable: UnrunnableWork::default(),
        bound_tasks: 0,
        blocked_tasks: whole(blocked),
        paused_tasks: paused,
        work_classes_left_out: classes_left_out,
    };
    let (mut requests, mut looks) = (Requests::new(), LOOKS_MAX);
    for (id, work) in by_class {
        let Some(class) = engine.class(id) else { continue };
        let homes: Vec<Homes> = class.parts().map(|part| homes_of(part, &classes)).collect();
        let home = homes.first().and_then(|homes| preferred(homes, &classes));
        match home.filter(|_| homes.iter().all(|homes| !homes.is_empty())) {
            Some(home) => {
                tallies[home].count(&work, class);
                for (part, homes) in class.parts().zip(homes) {
                    let apart = part.nodes.unwrap_or(1);
                    let cpu = used_cpu(part, &work, &homes, &classes);
                    let request = Resources { cpu, ..part.request.clone() };
                    let request = with_limits(&request, &part.limits, engine.licences());
                    *requests.entry((homes, request, apart)).or_default() +=
                        work.at_a_time * f64::from(apart);
                }
            }
            None if could_run(engine, class, &mut looks) => answer.bound_tasks += whole(work.tasks),
            None => answer.unrunnable.add(&work),
        }
    }
    pack(requests, &classes, &mut tallies);
    answer.classes = classes.iter().zip(&tallies).map(|(class, tally)| told(class, tally)).collect();
    answer
}

/// Hundredths of a core that a task will use. One with a jobserver books little and uses its range of cpus, where it has
/// one, and else one cpu at least: all of them on the smallest worker that could run it, if that has no more.
fn used_cpu(part: &Class, work: &WaitingWork, homes: &[usize], classes: &[MachineClass<'_>]) -> u32 {
    if !part.has_jobserver {
        return part.request.cpu;
    }
    let smallest = homes.iter().map(|home| classes[*home].model.record.capacity.cpu).min();
    let uses = work.cpus_max.max(JOBSERVER_CPU_MIN).min(smallest.unwrap_or(u32::MAX));
    uses.max(part.request.cpu)
}

/// The classes with what their workers run, before anything that waits.
fn tallies_of(engine: &Engine, classes: &[MachineClass<'_>], target_ms: f64) -> Vec<Tally> {
    let stride = stride(classes);
    let confined = confined_workers(engine, classes);
    let tally = |class: &MachineClass<'_>| {
        let model = with_all_limits(&class.model.record.capacity, engine.licences());
        let work = running_work(engine, class, target_ms, stride);
        let busy = class.workers.iter().filter(|worker| is_busy(worker)).count() as u32;
        let unusable = class.workers.iter().filter(|worker| is_unusable(worker)).count() as u32;
        let sums = confined_sums(class, &confined);
        let confined_count: u64 = sums.values().sum();
        let others = class.workers.len() as u64 - u64::from(unusable) - confined_count;
        let mut bins = Bins::new(model.clone(), others);
        for (sum, count) in sums {
            bins.confine(with_all_limits(&sum, engine.licences()), count);
        }
        let mut shared = SharedSlot::default();
        for (request, tasks) in largest_first(work.at_a_time, |request| request) {
            let slots = shared.slots(&request, tasks);
            // What is larger than the class says has a worker for itself.
            let left = bins.fill(&request, slots);
            bins.fill(&model, left);
        }
        bins.fill(&model, whole(work.more_workers));
        Tally {
            bins,
            busy,
            unusable,
            confined: small(confined_count),
            shared,
            for_others: 0,
            is_at_max: false,
            tasks: 0.0,
            unknown: 0.0,
            work_ms: 0.0,
            at_a_time: 0.0,
        }
    };
    classes.iter().map(tally).collect()
}

/// Gives what waits room: on workers that there are first, then on further ones.
fn pack(requests: Requests, classes: &[MachineClass<'_>], tallies: &mut [Tally]) {
    let mut shared: BTreeMap<Homes, SharedSlot> = BTreeMap::new();
    for ((homes, request, apart), mut tasks) in largest_first(requests, |(_, request, _)| request) {
        if apart > 1 {
            let gangs = whole(tasks / f64::from(apart)).min(GANGS_APART_MAX);
            for _ in 0..gangs {
                give_room(&homes, &request, apart.into(), true, classes, tallies);
            }
            tasks = (tasks - (gangs * u64::from(apart)) as f64).max(0.0);
        }
        for home in &homes {
            tasks -= tallies[*home].shared.take(&request, tasks);
        }
        let slots = shared.entry(homes.clone()).or_default().slots(&request, tasks);
        give_room(&homes, &request, slots, false, classes, tallies);
    }
}

/// Gives tasks that run at a time room on workers of the classes that could run them, each on another worker if they are to
/// be apart.
fn give_room(
    homes: &[usize],
    request: &Resources,
    tasks: u64,
    apart: bool,
    classes: &[MachineClass<'_>],
    tallies: &mut [Tally],
) {
    let counted_for = preferred(homes, classes);
    let mut left = tasks;
    for home in homes {
        let tally = &mut tallies[*home];
        let bins = &mut tally.bins;
        let rest = if apart { bins.fill_apart(request, left) } else { bins.fill(request, left) };
        tally.gave_room(left - rest, counted_for == Some(*home));
        left = rest;
    }
    for home in homes.iter().filter(|home| classes[**home].grows) {
        let (class, tally) = (&classes[*home], &mut tallies[*home]);
        let bins = &mut tally.bins;
        let most = u64::from(class.max).saturating_sub(class.workers.len() as u64 + bins.opened());
        let rest = if apart { bins.open_apart(request, left, most) } else { bins.open(request, left, most) };
        tally.is_at_max |= rest > 0;
        tally.gave_room(left - rest, counted_for == Some(*home));
        left = rest;
    }
}

fn told(class: &MachineClass<'_>, tally: &Tally) -> ClassScaling {
    let here = class.workers.len() as u32;
    let used = (here - tally.unusable).saturating_sub(small(tally.bins.empty()));
    let more = small(tally.bins.opened());
    let besides = if more > 0 { tally.unusable } else { 0 };
    let needed = used.max(tally.busy).saturating_add(more).saturating_add(besides);
    let most = if class.grows { class.max } else { here };
    let wanted = needed.max(class.min).min(most.max(tally.busy));
    let mut idle: Vec<&Worker> = class.workers.iter().copied().filter(|worker| is_idle(worker)).collect();
    idle.sort_by_key(|worker| (worker.takes_work(), Reverse(worker.record.id)));
    idle.truncate(here.saturating_sub(wanted) as usize);
    ClassScaling {
        name: class.name.clone(),
        capacity: class.model.record.capacity.clone(),
        here,
        busy: tally.busy,
        unusable: tally.unusable,
        wanted,
        spare: idle.len() as u32,
        spare_workers: idle.iter().take(SPARE_NAMED_MAX).map(|worker| worker.record.name.clone()).collect(),
        tasks: whole(tally.tasks),
        unknown_tasks: whole(tally.unknown),
        work_ms: whole(tally.work_ms),
        tasks_at_a_time: whole(tally.at_a_time),
        for_others: tally.for_others,
        confined: tally.confined,
        max: most,
        is_at_max: tally.is_at_max,
        grows: class.grows,
    }
}

/// One that is silent may run what it says nothing of.
fn is_idle(worker: &Worker) -> bool {
    worker.record.state == WorkerState::Up && !is_busy(worker)
}

fn is_unusable(worker: &Worker) -> bool {
    !is_busy(worker) && !worker.takes_work()
}

fn homes_of(part: &Class, classes: &[MachineClass<'_>]) -> Homes {
    let places = classes.iter().enumerate();
    let able = places.filter(|(_, class)| placement::eligible_when_idle(part, &class.model));
    able.map(|(place, _)| place).collect()
}

/// The class for which work counts: the one that would get more workers for it.
fn preferred(homes: &[usize], classes: &[MachineClass<'_>]) -> Option<usize> {
    homes.iter().find(|home| classes[**home].grows).or_else(|| homes.first()).copied()
}

/// True if workers of the farm could run the class, were they empty. After the last look they count as able to.
fn could_run(engine: &Engine, class: &Class, looks: &mut usize) -> bool {
    let mut could = true;
    for part in class.parts() {
        let mut left = *looks;
        could &= engine.workers().present().take(*looks).any(|worker| {
            left -= 1;
            placement::eligible_when_idle(part, worker)
        });
        *looks = left;
    }
    could || *looks == 0
}

impl Tally {
    fn gave_room(&mut self, tasks: u64, is_counted_here: bool) {
        if !is_counted_here {
            self.for_others += tasks;
        }
    }

    fn count(&mut self, work: &WaitingWork, class: &Class) {
        self.tasks += work.tasks;
        self.unknown += work.unknown;
        self.work_ms += work.work_ms;
        self.at_a_time += work.at_a_time * f64::from(class.tasks_at_a_time().max(1));
    }
}

impl UnrunnableWork {
    fn add(&mut self, work: &WaitingWork) {
        self.classes += 1;
        self.tasks += whole(work.tasks);
        let known: BTreeSet<JobId> = self.jobs.iter().copied().chain(work.jobs.iter().copied()).collect();
        self.jobs = known.into_iter().take(JOBS_MAX).collect();
    }
}

/// What is left of the last slot, for smaller tasks that the same classes could run: a slot that short tasks of one class
/// fill for half of the target has room for those of another.
#[derive(Default)]
struct SharedSlot {
    request: Resources,
    left: f64,
}

impl SharedSlot {
    /// How many of the tasks that run at a time have room in what is left.
    fn take(&mut self, request: &Resources, tasks: f64) -> f64 {
        let shared = if request.fits(&self.request) { self.left.min(tasks) } else { 0.0 };
        self.left -= shared;
        shared
    }

    /// The number of further slots for a number of tasks that run at a time.
    fn slots(&mut self, request: &Resources, tasks: f64) -> u64 {
        let tasks = tasks - self.take(request, tasks);
        let slots = whole(tasks);
        if slots > 0 {
            *self = SharedSlot { request: request.clone(), left: (slots as f64 - tasks).max(0.0) };
        }
        slots
    }
}

/// Tasks that take much of a worker come first, so that small ones fill the gaps.
fn largest_first<K>(all: BTreeMap<K, f64>, request: impl Fn(&K) -> &Resources) -> Vec<(K, f64)> {
    let mut all: Vec<(K, f64)> = all.into_iter().collect();
    all.sort_by_key(|(key, _)| {
        let Resources { cpu, memory, gpus, gpu_memory, .. } = request(key);
        Reverse((*gpus, *cpu, *memory, *gpu_memory))
    });
    all
}

/// Rounded up, but for what only the inexactness of sums adds.
fn whole(number: f64) -> u64 {
    (number - 1e-6).ceil().max(0.0) as u64
}

fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
