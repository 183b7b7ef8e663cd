//! Baselines to compare the engine with: first come, first served, and the same with EASY backfill. They are
//! short enough to check by reading, and share no code with the engine but its types. `windlass sim run`
//! plays a workload through them beside the engine. The tasks of a job start together or not at all.

use super::matching::{Group, Room, choose_machines, has_room};
use super::workload::{Schedule, Workload, groups_of, room_of};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Instant;
use windlass_core::tags::Need;

/// A scheduler to compare the engine with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Baseline {
    /// First come, first served: no job starts before those that were submitted earlier.
    Fifo,
    /// FIFO with EASY backfill (Lifka 1995): a later job may start if, by the requested run times, it does
    /// not delay the first job that waits.
    Backfill,
}

/// Plays a workload through a baseline.
pub fn reference(workload: &Workload, baseline: Baseline) -> Schedule {
    let clock = Instant::now();
    let mut stage = ReferenceRun::new(workload, baseline);
    stage.play();
    Schedule { starts_ms: stage.starts_ms, estimates: Vec::new(), took: clock.elapsed() }
}

/// End of a task whose run time is unlimited.
const NEVER: u64 = u64::MAX;

/// Jobs that differ only in their order.
struct Class {
    /// The resources of the tasks, and the machines that could run them when empty, in the farm's order.
    groups: Vec<Group>,
    limit_ms: Option<u64>,
    /// Jobs by their index in the workload, in the order of submission.
    waiting: VecDeque<usize>,
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
    classes: Vec<Class>,
    /// The class of each job; `None` of a job that fits nowhere.
    class_of: Vec<Option<usize>>,
    free: Vec<Room>,
    running: Vec<BTreeMap<u64, Running>>,
    /// Time of the end, machine, and number of the start.
    ends: BinaryHeap<Reverse<(u64, usize, u64)>>,
    started: u64,
    starts_ms: Vec<Option<u64>>,
}

/// The reservation of the first job that waits: its start time, and what it leaves free on each of its machines.
struct Shadow {
    at_ms: u64,
    spare: BTreeMap<usize, Room>,
}

impl Shadow {
    /// Whether a task that is due at `due_ms` still holds something when the reservation starts.
    fn is_met_by(&self, due_ms: u64) -> bool {
        due_ms > self.at_ms || due_ms == NEVER
    }
}

impl Class {
    /// When a task that starts now ends at the latest.
    fn due_ms(&self, now_ms: u64) -> u64 {
        self.limit_ms.map_or(NEVER, |ms| now_ms.saturating_add(ms))
    }

    /// A machine for each task among those with room, by rising `rank`.
    fn choose<K: Ord>(&self, free: impl Fn(usize) -> Room, rank: impl Fn(usize) -> K) -> Option<Vec<usize>> {
        let mut groups = Vec::with_capacity(self.groups.len());
        for Group { tasks, each, machines } in &self.groups {
            let roomy = machines.iter().copied().filter(|machine| has_room(*each, free(*machine)));
            let mut machines: Vec<usize> = roomy.collect();
            machines.sort_by_key(|machine| rank(*machine));
            groups.push(Group { tasks: *tasks, each: *each, machines });
        }
        choose_machines(&groups, &free)
    }

    /// The resources of each task, group by group.
    fn rooms(&self) -> impl Iterator<Item = Room> + '_ {
        self.groups.iter().flat_map(|group| std::iter::repeat_n(group.each, group.tasks))
    }
}

impl<'a> ReferenceRun<'a> {
    fn new(workload: &'a Workload, baseline: Baseline) -> Self {
        let machines: Vec<_> =
            workload.farm.each().map(|(name, m)| (m.attributes(&name), m.clone())).collect();
        let mut classes: Vec<Class> = Vec::new();
        type Kind<'a> = (Vec<(u32, Room, &'a [Need])>, Option<u64>);
        let mut known: BTreeMap<Kind, usize> = BTreeMap::new();
        let mut class_of = Vec::with_capacity(workload.jobs.len());
        for job in &workload.jobs {
            let parts = job.parts.iter().map(|part| (part.tasks, room_of(part), &*part.needs));
            let class = job.fits.then(|| {
                *known.entry((parts.collect(), job.limit_ms)).or_insert_with(|| {
                    let groups = groups_of(&job.parts, &machines);
                    classes.push(Class { groups, limit_ms: job.limit_ms, waiting: VecDeque::new() });
                    classes.len() - 1
                })
            });
            class_of.push(class);
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
            while self.workload.jobs.get(coming).is_some_and(|job| job.submit_ms <= next) {
                if let Some(class) = self.class_of[coming] {
                    self.classes[class].waiting.push_back(coming);
                }
                coming += 1;
            }
            self.schedule();
        }
    }

    /// Starts jobs in order until one has no room, and with backfill later ones that do not delay it.
    fn schedule(&mut self) {
        // The first job of each waiting class, in order. A class that is not put back cannot start anything
        // at this time.
        let heads = self.classes.iter().enumerate();
        let heads = heads.filter_map(|(class, c)| Some(Reverse((*c.waiting.front()?, class))));
        let mut heads: BinaryHeap<_> = heads.collect();
        let mut shadow: Option<Shadow> = None;
        while let Some(Reverse((job, class))) = heads.pop() {
            match self.place(class, shadow.as_ref()) {
                Some(machines) => {
                    self.classes[class].waiting.pop_front();
                    self.start(job, class, &machines, &mut shadow);
                    heads.extend(self.classes[class].waiting.front().map(|next| Reverse((*next, class))));
                }
                None if self.baseline == Baseline::Fifo => return,
                None if shadow.is_none() => shadow = self.shadow(class),
                None => {}
            }
        }
    }

    /// The machines for a job of the class: those with room that have the least free.
    fn place(&self, class: usize, shadow: Option<&Shadow>) -> Option<Vec<usize>> {
        let class = &self.classes[class];
        let shadow = shadow.filter(|shadow| shadow.is_met_by(class.due_ms(self.now_ms)));
        let open = |machine: usize| {
            let (cpu, memory) = self.free[machine];
            let spare = shadow.and_then(|shadow| shadow.spare.get(&machine));
            spare.map_or((cpu, memory), |spare| (cpu.min(spare.0), memory.min(spare.1)))
        };
        class.choose(open, |machine| (self.free[machine], machine))
    }

    fn start(&mut self, job: usize, class: usize, machines: &[usize], shadow: &mut Option<Shadow>) {
        let class = &self.classes[class];
        let due_ms = class.due_ms(self.now_ms);
        let mut shadow = shadow.as_mut().filter(|shadow| shadow.is_met_by(due_ms));
        let job = &self.workload.jobs[job];
        let ends_ms = self.now_ms.saturating_add(job.run_ms);
        for ((index, machine), room) in (job.first_task..).zip(machines).zip(class.rooms()) {
            take(&mut self.free[*machine], room);
            if let Some(spare) = shadow.as_mut().and_then(|shadow| shadow.spare.get_mut(machine)) {
                take(spare, room);
            }
            self.starts_ms[index] = Some(self.now_ms);
            self.started += 1;
            self.running[*machine].insert(self.started, Running { due_ms, room });
            self.ends.push(Reverse((ends_ms, *machine, self.started)));
        }
    }

    /// When and where a job of a class could start if all running tasks took their requested run time: the first moment
    /// at which there is room for all of its tasks. Of the machines with room then, it gets those that have it latest,
    /// so that the others are open to later jobs until then.
    fn shadow(&self, class: usize) -> Option<Shadow> {
        let class = &self.classes[class];
        let (mut free, mut gained_ms) = (self.free.clone(), vec![0; self.free.len()]);
        let mut ends = self.due(class);
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let mut is_roomier = false;
        while let Some((at_ms, machine, room)) = ends.next() {
            free[machine].0 += room.0;
            free[machine].1 += room.1;
            gained_ms[machine] = at_ms;
            is_roomier |= class.groups.iter().any(|group| has_room(group.each, free[machine]));
            // Tasks that are due at one moment free their machines together.
            if !is_roomier || ends.peek().is_some_and(|(next_ms, ..)| *next_ms == at_ms) {
                continue;
            }
            is_roomier = false;
            let rank = |machine: usize| (Reverse(gained_ms[machine]), machine);
            let Some(machines) = class.choose(|machine| free[machine], rank) else { continue };
            let mut spare = BTreeMap::new();
            for (machine, room) in machines.into_iter().zip(class.rooms()) {
                take(spare.entry(machine).or_insert(free[machine]), room);
            }
            return Some(Shadow { at_ms, spare });
        }
        None
    }

    /// When the tasks on the machines of a class are due, where, and what they hold.
    fn due(&self, class: &Class) -> Vec<(u64, usize, Room)> {
        let mut machines: Vec<usize> = class.groups.iter().flat_map(|group| group.machines.clone()).collect();
        machines.sort_unstable();
        machines.dedup();
        let due = machines.into_iter().flat_map(|machine| {
            // A task over its requested run time may end at any moment, but not before the next millisecond.
            let due_ms = |task: &Running| task.due_ms.max(self.now_ms + 1);
            self.running[machine].values().map(move |task| (due_ms(task), machine, task.room))
        });
        due.collect()
    }
}

fn take(room: &mut Room, task: Room) {
    room.0 -= task.0;
    room.1 -= task.1;
}
