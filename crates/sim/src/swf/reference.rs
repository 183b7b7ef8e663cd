//! Plain schedulers to compare with: first come, first served, and the same with backfill. They share
//! nothing with the engine but the workload.

use super::workload::{Schedule, Workload, fits};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Instant;
use windlass_core::Resources;
use windlass_core::tags::Need;

/// A plain scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Baseline {
    /// First come, first served: nothing starts before what was submitted earlier.
    Fifo,
    /// The same, but what is behind may start if by the times that submitters asked for it does not delay
    /// the first that waits (EASY; Lifka 1995).
    Backfill,
}

/// Plays a workload through a plain scheduler.
pub fn reference(workload: &Workload, baseline: Baseline) -> Schedule {
    let clock = Instant::now();
    let mut stage = ReferenceRun::new(workload, baseline);
    stage.play();
    Schedule { starts_ms: stage.starts_ms, took: clock.elapsed() }
}

/// The end of what may run as long as it likes.
const NEVER: u64 = u64::MAX;

/// Free cores and memory.
type Room = (u32, u64);

/// Tasks that nothing tells apart but their order.
struct Class<'a> {
    request: &'a Resources,
    limit_ms: Option<u64>,
    /// Machines that could run them when empty.
    machines: Vec<usize>,
    /// Places of jobs, and how many of their tasks wait.
    waiting: VecDeque<(usize, u32)>,
}

struct Running {
    /// When it ends at the latest by what its submitter said, or [`NEVER`].
    due_ms: u64,
    room: Room,
}

struct ReferenceRun<'a> {
    workload: &'a Workload,
    baseline: Baseline,
    now_ms: u64,
    classes: Vec<Class<'a>>,
    class_of: Vec<Option<usize>>,
    free: Vec<Room>,
    running: Vec<BTreeMap<u64, Running>>,
    /// When, which machine, which number.
    ends: BinaryHeap<Reverse<(u64, usize, u64)>>,
    started: u64,
    starts_ms: Vec<Option<u64>>,
}

/// The first task that waits has this machine from then on, and leaves so much of it to others.
struct Shadow {
    machine: usize,
    at_ms: u64,
    spare: Room,
}

impl Shadow {
    /// True if what ends then holds something when the machine is due.
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
        let class_of = workload.jobs.iter().map(|job| {
            let class = *known.entry((&job.request, &job.needs, job.limit_ms)).or_insert_with(|| {
                let fitting = machines.iter().enumerate().filter(|(_, m)| fits(&job.request, &job.needs, m));
                let machines = fitting.map(|(place, _)| place).collect();
                classes.push(Class {
                    request: &job.request,
                    limit_ms: job.limit_ms,
                    machines,
                    waiting: VecDeque::new(),
                });
                classes.len() - 1
            });
            job.fits.then_some(class)
        });
        let class_of = class_of.collect();
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
                if let Some(class) = self.class_of[coming] {
                    self.classes[class].waiting.push_back((coming, job.tasks));
                }
                coming += 1;
            }
            self.schedule();
        }
    }

    /// Starts what may start: in order until one finds no room, then, with backfill, what does not delay it.
    fn schedule(&mut self) {
        // The first of each class that waits, in order; what is not put back has no chance any more today.
        let heads = self.classes.iter().enumerate();
        let heads = heads.filter_map(|(class, c)| Some(Reverse((c.waiting.front()?.0, class))));
        let mut heads: BinaryHeap<_> = heads.collect();
        let mut shadow: Option<Shadow> = None;
        while let Some(Reverse((_, class))) = heads.pop() {
            match self.place(class, shadow.as_ref()) {
                Some(machine) => {
                    self.start(class, machine, &mut shadow);
                    let next = self.classes[class].waiting.front();
                    heads.extend(next.map(|(job, _)| Reverse((*job, class))));
                }
                None if self.baseline == Baseline::Fifo => return,
                None if shadow.is_none() => shadow = self.shadow(class),
                None => {}
            }
        }
    }

    /// The machine with room that has least of it left then.
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
        let Some((place, left)) = class.waiting.front_mut() else { return };
        let job = &self.workload.jobs[*place];
        let index = job.first_task + (job.tasks - *left) as usize;
        *left -= 1;
        if *left == 0 {
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

    /// Where and when the first of a class could start if all that runs ran as long as was asked for.
    fn shadow(&self, class: usize) -> Option<Shadow> {
        let Class { request, machines, .. } = &self.classes[class];
        let shadows = machines.iter().filter_map(|machine| {
            let mut due: Vec<(u64, Room)> = self.running[*machine]
                .values()
                // What runs longer than was asked for may end any moment; a task never ends before its end.
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
