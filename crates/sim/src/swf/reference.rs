//! Baselines to compare the engine with: first come, first served, and the same with EASY backfill. They are
//! short enough to check by reading, and share no code with the engine but its types. `windlass sim run`
//! plays a workload through them beside the engine.

use super::workload::{Schedule, WorkPart, Workload, fits};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Instant;
use windlass_core::Resources;
use windlass_core::tags::Need;

/// A baseline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Baseline {
    /// First come, first served: no task starts before those that were submitted earlier.
    Fifo,
    /// FIFO with EASY backfill (Lifka 1995): a later task may start if, by the requested run times, it does
    /// not delay the first task that waits.
    Backfill,
}

/// Plays a workload through a baseline.
pub fn reference(workload: &Workload, baseline: Baseline) -> Schedule {
    let clock = Instant::now();
    let mut stage = ReferenceRun::new(workload, baseline);
    stage.play();
    Schedule { starts_ms: stage.starts_ms, took: clock.elapsed() }
}

/// End of a task whose run time is unlimited.
const NEVER: u64 = u64::MAX;

/// Free hundredths of a core, and bytes of memory.
type Room = (u32, u64);

/// Tasks that differ only in their order.
struct Class<'a> {
    request: &'a Resources,
    limit_ms: Option<u64>,
    /// Machines that could run them when empty.
    machines: Vec<usize>,
    /// Parts of jobs, in the order of submission.
    waiting: VecDeque<WaitingPart>,
}

/// Tasks of one part of a job that wait.
struct WaitingPart {
    /// The job's index in the workload.
    job: usize,
    /// Index of the next task among those of all jobs.
    next_task: usize,
    /// How many wait.
    left: u32,
}

struct Running {
    /// When it ends at the latest by its requested run time, or [`NEVER`].
    due_ms: u64,
    room: Room,
}

struct ReferenceRun<'a> {
    workload: &'a Workload,
    baseline: Baseline,
    now_ms: u64,
    classes: Vec<Class<'a>>,
    /// The class of each part of each job; none of a job that fits nowhere.
    class_of: Vec<Vec<usize>>,
    free: Vec<Room>,
    running: Vec<BTreeMap<u64, Running>>,
    /// Time of the end, machine, and number of the start.
    ends: BinaryHeap<Reverse<(u64, usize, u64)>>,
    started: u64,
    starts_ms: Vec<Option<u64>>,
}

/// The reservation of the first task that waits: its machine and start time, and what it leaves free there.
struct Shadow {
    machine: usize,
    at_ms: u64,
    spare: Room,
}

impl Shadow {
    /// Whether a task that is due at `due_ms` still holds something when the reservation starts.
    fn is_met_by(&self, due_ms: u64) -> bool {
        due_ms > self.at_ms || due_ms == NEVER
    }
}

impl Class<'_> {
    /// When a task that starts now ends at the latest.
    fn due_ms(&self, now_ms: u64) -> u64 {
        self.limit_ms.map_or(NEVER, |ms| now_ms.saturating_add(ms))
    }
}

impl<'a> ReferenceRun<'a> {
    fn new(workload: &'a Workload, baseline: Baseline) -> Self {
        let machines: Vec<_> =
            workload.farm.each().map(|(name, m)| (m.attributes(&name), m.clone())).collect();
        let mut classes: Vec<Class> = Vec::new();
        let mut known: BTreeMap<(&Resources, &[Need], Option<u64>), usize> = BTreeMap::new();
        let mut class_of = Vec::with_capacity(workload.jobs.len());
        for job in &workload.jobs {
            let parts = job.parts.iter().filter(|_| job.fits).map(|WorkPart { request, needs, .. }| {
                *known.entry((request, needs, job.limit_ms)).or_insert_with(|| {
                    let fitting = machines.iter().enumerate().filter(|(_, m)| fits(request, needs, m));
                    let machines = fitting.map(|(place, _)| place).collect();
                    let waiting = VecDeque::new();
                    classes.push(Class { request, limit_ms: job.limit_ms, machines, waiting });
                    classes.len() - 1
                })
            });
            class_of.push(parts.collect());
        }
        ReferenceRun {
            workload,
            baseline,
            now_ms: 0,
            classes,
            class_of,
            free: machines.iter().map(|(_, machine)| (machine.cpu, machine.memory.unwrap_or(0))).collect(),
            running: machines.iter().map(|_| BTreeMap::new()).collect(),
            ends: BinaryHeap::new(),
            started: 0,
            starts_ms: vec![None; workload.tasks()],
        }
    }

    fn play(&mut self) {
        let mut coming = 0;
        loop {
            let submit = self.workload.jobs.get(coming).map(|job| job.submit_ms);
            let end = self.ends.peek().map(|Reverse((at_ms, ..))| *at_ms);
            let Some(next) = submit.into_iter().chain(end).min() else { break };
            self.now_ms = next;
            while let Some(Reverse((_, machine, number))) =
                self.ends.peek().copied().filter(|Reverse((at_ms, ..))| *at_ms <= next)
            {
                self.ends.pop();
                if let Some(task) = self.running[machine].remove(&number) {
                    self.free[machine].0 += task.room.0;
                    self.free[machine].1 += task.room.1;
                }
            }
            while let Some(job) = self.workload.jobs.get(coming).filter(|job| job.submit_ms <= next) {
                let mut next_task = job.first_task;
                for (class, part) in self.class_of[coming].iter().zip(&job.parts) {
                    let waiting = WaitingPart { job: coming, next_task, left: part.tasks };
                    self.classes[*class].waiting.push_back(waiting);
                    next_task += part.tasks as usize;
                }
                coming += 1;
            }
            self.schedule();
        }
    }

    /// Starts tasks in order until one has no room, and with backfill later ones that do not delay it.
    fn schedule(&mut self) {
        // The first job of each waiting class, in order. A class that is not put back cannot start anything
        // at this time.
        let heads = self.classes.iter().enumerate();
        let heads = heads.filter_map(|(class, c)| Some(Reverse((c.waiting.front()?.job, class))));
        let mut heads: BinaryHeap<_> = heads.collect();
        let mut shadow: Option<Shadow> = None;
        while let Some(Reverse((_, class))) = heads.pop() {
            match self.place(class, shadow.as_ref()) {
                Some(machine) => {
                    self.start(class, machine, &mut shadow);
                    let next = self.classes[class].waiting.front();
                    heads.extend(next.map(|part| Reverse((part.job, class))));
                }
                None if self.baseline == Baseline::Fifo => return,
                None if shadow.is_none() => shadow = self.shadow(class),
                None => {}
            }
        }
    }

    /// The machine with room for a task of the class and with the least free.
    fn place(&self, class: usize, shadow: Option<&Shadow>) -> Option<usize> {
        let Class { request, machines, .. } = &self.classes[class];
        let due_ms = self.classes[class].due_ms(self.now_ms);
        let delays = |machine: usize| {
            let shadow = shadow.filter(|shadow| shadow.machine == machine && shadow.is_met_by(due_ms));
            shadow.is_some_and(|shadow| request.cpu > shadow.spare.0 || request.memory > shadow.spare.1)
        };
        let open = machines.iter().copied().filter(|machine| {
            let (cpu, memory) = self.free[*machine];
            request.cpu <= cpu && request.memory <= memory && !delays(*machine)
        });
        open.min_by_key(|machine| (self.free[*machine], *machine))
    }

    fn start(&mut self, class: usize, machine: usize, shadow: &mut Option<Shadow>) {
        let class = &mut self.classes[class];
        let Some(part) = class.waiting.front_mut() else { return };
        let (job, index) = (&self.workload.jobs[part.job], part.next_task);
        part.left -= 1;
        part.next_task += 1;
        if part.left == 0 {
            class.waiting.pop_front();
        }
        let room = (class.request.cpu, class.request.memory);
        let due_ms = class.due_ms(self.now_ms);
        self.free[machine].0 -= room.0;
        self.free[machine].1 -= room.1;
        if let Some(shadow) = shadow.as_mut().filter(|s| s.machine == machine && s.is_met_by(due_ms)) {
            shadow.spare.0 -= room.0;
            shadow.spare.1 -= room.1;
        }
        self.starts_ms[index] = Some(self.now_ms);
        self.started += 1;
        let ends_ms = self.now_ms.saturating_add(job.run_ms);
        self.running[machine].insert(self.started, Running { due_ms, room });
        self.ends.push(Reverse((ends_ms, machine, self.started)));
    }

    /// Where and when the first task of a class could start if all running tasks took their requested run time.
    fn shadow(&self, class: usize) -> Option<Shadow> {
        let Class { request, machines, .. } = &self.classes[class];
        let shadows = machines.iter().filter_map(|machine| {
            let mut due: Vec<(u64, Room)> = self.running[*machine]
                .values()
                // A task over its requested run time may end at any moment, but not before the next millisecond.
                .map(|task| {
                    (if task.due_ms > self.now_ms { task.due_ms } else { self.now_ms + 1 }, task.room)
                })
                .collect();
            due.sort_unstable();
            let (mut cpu, mut memory) = self.free[*machine];
            let at_ms = due.into_iter().find_map(|(at_ms, room)| {
                cpu += room.0;
                memory += room.1;
                (request.cpu <= cpu && request.memory <= memory).then_some(at_ms)
            })?;
            Some(Shadow { machine: *machine, at_ms, spare: (cpu - request.cpu, memory - request.memory) })
        });
        shadows.min_by_key(|shadow| (shadow.at_ms, shadow.machine))
    }
}
