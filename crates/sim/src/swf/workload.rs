//! A workload: the jobs of a trace as tasks that the machines of a farm can run. Both the engine and the
//! baselines play it. Jobs that lack what a replay needs are counted and left out.

use super::farm::{Farm, MachineGroup};
use super::matching::{Group, Room, choose_machines};
use super::nodes::NodeSpec;
use super::read::{Record, Trace};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_core::Resources;
use windlass_core::bounds::GANG_TASKS_MAX;
use windlass_core::tags::{Attributes, Need};

/// The jobs of a trace on the machines of a farm.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Jobs, in the order of their submission.
    pub jobs: Vec<Work>,
    /// Names of users, by the index that [`Work::user`] has.
    pub users: Vec<String>,
    /// The machines that run them.
    pub farm: Farm,
    /// Number of jobs that are left out, by reason.
    pub left_out: BTreeMap<Omitted, usize>,
    /// Tags that jobs ask for and no machine has, with the number of such jobs. They are not required.
    pub ignored_tags: BTreeMap<String, usize>,
}

/// One job: tasks that start together, one for each machine of its node specification, or a single task without one.
#[derive(Clone, PartialEq, Debug)]
pub struct Work {
    /// Index of its user in [`Workload::users`].
    pub user: usize,
    /// Name of its queue.
    pub queue: String,
    /// Name of its program, which groups jobs for predictions.
    pub name: String,
    /// Milliseconds from the first submission to this one.
    pub submit_ms: u64,
    /// Run time of each task.
    pub run_ms: u64,
    /// The requested run time; `None` if it is unknown.
    pub limit_ms: Option<u64>,
    /// Index of its first task among those of all jobs.
    pub first_task: usize,
    /// Number of tasks of all parts.
    pub tasks: u32,
    /// Its tasks by the kind of machine that they need, in order; at least one part.
    pub parts: Vec<WorkPart>,
    /// Whether its tasks could run together if all machines were empty.
    pub fits: bool,
}

/// Equal tasks of a job, each for a machine of its own. Tasks of different parts may share a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkPart {
    /// Number of tasks of this part.
    pub tasks: u32,
    /// Amounts of each task.
    pub request: Resources,
    /// Requirements on the machine of each task.
    pub needs: Vec<Need>,
    /// Processor time of each task.
    pub cpu_ms: Option<u64>,
    /// Peak memory of each task, in bytes.
    pub peak_memory: Option<u64>,
}

/// The reason why a job is left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Omitted {
    /// Its run time is unknown.
    RunTime,
    /// Its number of processors is unknown.
    Processors,
    /// Its number of processors is too large.
    Amount,
    /// It has more tasks than can start together.
    Nodes,
}

impl Omitted {
    /// The reason, to follow a number of jobs.
    pub fn as_str(self) -> &'static str {
        match self {
            Omitted::RunTime => "without a run time",
            Omitted::Processors => "without a number of processors",
            Omitted::Amount => "of more processors or memory than can be said",
            Omitted::Nodes => "on more machines than tasks can start together",
        }
    }
}

/// The outcome of a replay: when each task started, and how long the decisions took.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Schedule {
    /// Milliseconds from the first submission to the start, by index of the task; `None` if it never started.
    pub starts_ms: Vec<Option<u64>>,
    /// What some tasks that waited were told of their start.
    pub estimates: Vec<Estimate>,
    /// Real time that the scheduler took for all decisions.
    pub took: Duration,
}

/// When a task was expected to start. Times are milliseconds from the first submission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Index of the task.
    pub task: usize,
    /// When that was asked.
    pub asked_ms: u64,
    /// The expected start; `None` where the past gave no ground for one.
    pub expected_ms: Option<u64>,
}

impl Workload {
    /// The jobs of a trace for these machines. Each user has a queue, or with `queues` the queues are the trace's.
    pub fn new(trace: &Trace, farm: Farm, queues: bool) -> Workload {
        let machines: Vec<(Attributes, MachineGroup)> =
            farm.each().map(|(name, machine)| (machine.attributes(&name), machine.clone())).collect();
        let mut workload = Workload {
            jobs: Vec::with_capacity(trace.jobs.len()),
            users: Vec::new(),
            farm,
            left_out: BTreeMap::new(),
            ignored_tags: BTreeMap::new(),
        };
        let begin_ms = trace.jobs.first().map_or(0, |job| job.submit_ms);
        let (mut users, mut tasks) = (BTreeMap::new(), 0);
        for record in &trace.jobs {
            let asked = match Asked::of(record, &machines, &workload.farm) {
                Ok(asked) => asked,
                Err(why) => {
                    *workload.left_out.entry(why).or_default() += 1;
                    continue;
                }
            };
            for tag in asked.iter().flat_map(|asked| asked.ignored.iter().cloned()) {
                *workload.ignored_tags.entry(tag).or_default() += 1;
            }
            let user = *users.entry(record.user).or_insert_with(|| {
                workload.users.push(name_of(&trace.users, record.user, "user"));
                workload.users.len() - 1
            });
            let queue = match queues {
                true => name_of(&trace.queues, record.queue, "queue"),
                false => workload.users[user].clone(),
            };
            let parts: Vec<WorkPart> = asked.into_iter().map(|asked| asked.part(record)).collect();
            let job_tasks = parts.iter().map(|part| part.tasks).sum();
            workload.jobs.push(Work {
                user,
                queue,
                name: name_of(&trace.programs, record.executable, "program"),
                submit_ms: record.submit_ms - begin_ms,
                run_ms: record.run_ms.unwrap_or(0),
                limit_ms: record.asked_ms.filter(|ms| *ms > 0),
                first_task: tasks,
                tasks: job_tasks,
                fits: fit_together(&parts, &machines),
                parts,
            });
            tasks += job_tasks as usize;
        }
        workload
    }

    /// Number of tasks of all jobs.
    pub fn tasks(&self) -> usize {
        self.jobs.last().map_or(0, |job| job.first_task + job.tasks as usize)
    }

    /// Milliseconds from the first submission to the last.
    pub fn span_ms(&self) -> u64 {
        self.jobs.last().map_or(0, |job| job.submit_ms)
    }
}

impl Work {
    /// When its last task started; `None` if one never did.
    pub fn start_ms(&self, schedule: &Schedule) -> Option<u64> {
        self.starts_ms(schedule).iter().copied().reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten()
    }

    /// The part that its task with this index belongs to.
    pub fn part_of(&self, task: u32) -> &WorkPart {
        let mut first = 0;
        let part = self.parts.iter().find(|part| {
            first += part.tasks;
            task < first
        });
        part.unwrap_or(&self.parts[0])
    }

    /// When each of its tasks started.
    pub fn starts_ms<'a>(&self, schedule: &'a Schedule) -> &'a [Option<u64>] {
        &schedule.starts_ms[self.first_task..self.first_task + self.tasks as usize]
    }
}

/// Whether the tasks could run together if all machines were empty.
fn fit_together(parts: &[WorkPart], machines: &[(Attributes, MachineGroup)]) -> bool {
    let empty = |place: usize| {
        let machine = &machines[place].1;
        (machine.cpu, machine.memory.unwrap_or(0))
    };
    choose_machines(&groups_of(parts, machines), &empty).is_some()
}

/// The tasks of a job, with the machines that could run each when empty, in the farm's order.
pub(super) fn groups_of(parts: &[WorkPart], machines: &[(Attributes, MachineGroup)]) -> Vec<Group> {
    let groups = parts.iter().map(|part| {
        let fitting = machines.iter().enumerate();
        let fitting = fitting.filter(|(_, machine)| fits(&part.request, &part.needs, machine));
        let machines = fitting.map(|(place, _)| place).collect();
        Group { tasks: part.tasks as usize, each: room_of(part), machines }
    });
    groups.collect()
}

pub(super) fn room_of(part: &WorkPart) -> Room {
    (part.request.cpu, part.request.memory)
}

/// Whether the machine could run the task when empty.
fn fits(request: &Resources, needs: &[Need], machine: &(Attributes, MachineGroup)) -> bool {
    let (attributes, machine) = machine;
    request.cpu <= machine.cpu
        && request.memory <= machine.memory.unwrap_or(0)
        && needs.iter().all(|need| need.met_by(attributes))
}

fn name_of(names: &BTreeMap<u64, String>, number: Option<u64>, what: &str) -> String {
    match number {
        Some(number) => names.get(&number).cloned().unwrap_or_else(|| format!("{what}{number}")),
        None => format!("some {what}"),
    }
}

fn bytes(kib_per_cpu: u64, cpu: u32) -> u64 {
    kib_per_cpu.saturating_mul(1024).saturating_mul(u64::from(cpu)) / 100
}

/// The requirements of a job on machines of one kind.
struct Asked {
    tasks: u32,
    request: Resources,
    needs: Vec<Need>,
    ignored: Vec<String>,
}

impl Asked {
    fn of(
        record: &Record,
        machines: &[(Attributes, MachineGroup)],
        farm: &Farm,
    ) -> Result<Vec<Asked>, Omitted> {
        record.run_ms.ok_or(Omitted::RunTime)?;
        let cpus = record.asked_cpus.filter(|cpus| *cpus > 0).or(record.cpus).filter(|cpus| *cpus > 0);
        let hundredths = |cpus: u64| u32::try_from(cpus.saturating_mul(100)).map_err(|_| Omitted::Amount);
        let asked_memory = record.asked_memory.filter(|_| farm.has_memory()).unwrap_or(0);
        if record.nodes.is_empty() {
            let cpu = hundredths(cpus.ok_or(Omitted::Processors)?)?;
            return Ok(vec![Asked::on_any_machine(cpu, bytes(asked_memory, cpu))]);
        }
        let nodes: u64 = record.nodes.iter().map(|spec| u64::from(spec.nodes)).sum();
        let each = cpus.map(|cpus| hundredths(cpus.div_ceil(nodes))).transpose()?;
        let cpu_of = |spec: &NodeSpec| spec.cpu.or(each).ok_or(Omitted::Processors);
        if farm.is_pool() {
            // Slots are not on machines that could differ: the job holds all of its cpus at once.
            let cpus = record.nodes.iter().map(|spec| Ok(u64::from(cpu_of(spec)?) * u64::from(spec.nodes)));
            let cpu = u32::try_from(cpus.sum::<Result<u64, _>>()?).map_err(|_| Omitted::Amount)?;
            let ignored = record.nodes.iter().flat_map(|spec| spec.tags.iter().cloned()).collect();
            return Ok(vec![Asked { ignored, ..Asked::on_any_machine(cpu, 0) }]);
        }
        if nodes > u64::from(GANG_TASKS_MAX) {
            return Err(Omitted::Nodes);
        }
        let asked =
            record.nodes.iter().map(|spec| Ok(Asked::of_kind(spec, cpu_of(spec)?, asked_memory, machines)));
        asked.collect()
    }

    fn on_any_machine(cpu: u32, memory: u64) -> Asked {
        Asked { tasks: 1, request: Resources::new(cpu, memory), needs: Vec::new(), ignored: Vec::new() }
    }

    /// `cpu` in hundredths of a core, and the memory, are for each machine.
    fn of_kind(
        spec: &NodeSpec,
        mut cpu: u32,
        asked_memory: u64,
        machines: &[(Attributes, MachineGroup)],
    ) -> Asked {
        let (needs, ignored) = needs(spec, machines);
        if spec.exclusive {
            // All cores of the smallest machine that fits, so that nothing else finds a core there.
            let request = Resources::new(cpu, asked_memory);
            let open = machines.iter().filter(|machine| fits(&request, &needs, machine));
            cpu = open.map(|(_, machine)| machine.cpu).min().unwrap_or(cpu);
        }
        Asked { tasks: spec.nodes, request: Resources::new(cpu, asked_memory), needs, ignored }
    }

    fn part(self, record: &Record) -> WorkPart {
        WorkPart {
            tasks: self.tasks,
            cpu_ms: record.cpu_ms.map(|ms| ms.saturating_mul(u64::from(self.request.cpu)) / 100),
            peak_memory: record.memory_kib.map(|kib| bytes(kib, self.request.cpu)),
            request: self.request,
            needs: self.needs,
        }
    }
}

/// The needs of a specification, and the tags that no machine has. Traces have full host names, and farms the
/// first part.
fn needs(spec: &NodeSpec, machines: &[(Attributes, MachineGroup)]) -> (Vec<Need>, Vec<String>) {
    let need_of = |tag: &String| {
        let host = tag.split('.').next().unwrap_or(tag);
        [Need::parse(&format!("host={host}")), Need::parse(tag)]
            .into_iter()
            .find(|need| machines.iter().any(|(attributes, _)| need.met_by(attributes)))
    };
    let (mut needs, mut ignored) = (Vec::new(), Vec::new());
    for tag in &spec.tags {
        match need_of(tag) {
            Some(need) => needs.push(need),
            None => ignored.push(tag.clone()),
        }
    }
    let unwanted: Vec<Need> = spec.without.iter().filter_map(need_of).collect();
    if !unwanted.is_empty() {
        let open = machines.iter().filter(|(attributes, _)| !unwanted.iter().any(|n| n.met_by(attributes)));
        let mut open: BTreeSet<String> =
            open.flat_map(|(attributes, _)| attributes["host"].clone()).collect();
        if open.is_empty() {
            // An empty set would accept any host. No host has an empty name.
            open.insert(String::new());
        }
        needs.push(Need { key: "host".to_owned(), any_of: open });
    }
    (needs, ignored)
}
