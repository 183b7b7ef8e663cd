//! What is booked on a worker.

use crate::ids::{AllocId, QueueId, StepKey, TaskId};
use crate::resources::Resources;
use crate::time::Time;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is booked on a worker: the tasks that run there, those that wait there, and the places of outside clients. The
/// planner books, and the ledger gives back.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Booked {
    sum: Resources,
    headroom_bytes: u64,
    running: BTreeSet<TaskId>,
    backlog: VecDeque<TaskId>,
    backlog_ms: f64,
    lending: u32,
    /// Of those that run, the tasks that another one's process runs. They hold nothing.
    riding: u32,
    places: BTreeMap<AllocId, Resources>,
    /// The sum of these.
    of_places: Resources,
    /// Of places whose clients say what their work holds.
    unused: BTreeMap<AllocId, UnusedMemory>,
    /// The sum of these bytes, as counted.
    unused_bytes: u64,
    /// By step, hundredths of a core.
    steps: BTreeMap<StepKey, u32>,
    /// Of these, the steps whose tasks their submitters run.
    external: BTreeSet<StepKey>,
    /// The most hundredths of a core that outside clients had since the last report of load.
    of_clients_cpu_max: u32,
    /// Of those that run, the tasks with a jobserver.
    jobservers: BTreeMap<TaskId, Build>,
    /// Hundredths of a core that these hold together.
    of_jobservers_cpu: u32,
}

/// Bytes of a place that its work does not use yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UnusedMemory {
    /// As its client said last.
    told_bytes: u64,
    /// The most since the worker's last report of load. What work began to use since then is not yet among what the
    /// report says is in use, so it would count as free.
    counted_bytes: u64,
}

/// A running task with a jobserver, as its worker's part of the planner knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Build {
    /// The part of a queue whose task it is.
    pub queue: QueueId,
    /// Hundredths of a core that it can use at most; `None` is all of the worker.
    pub cpus_max: Option<u32>,
    /// Its part of what the builds of the worker share, of [`CPU_WEIGHT_MAX`](crate::bounds::CPU_WEIGHT_MAX); 0 before the
    /// first round after its booking.
    pub weight: u32,
    /// What its keeper said last; `None` before it said anything.
    pub runs: Option<BuildRuns>,
}

/// What a build runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuildRuns {
    /// Processes, with the one that needs no token.
    pub processes: u32,
    /// Since when it takes all that it is given, and would take more; `None` if it does not.
    pub wants_since: Option<Time>,
}

impl Build {
    /// True if it takes all cpus that it is given.
    pub fn wants_more(&self) -> bool {
        self.runs.is_some_and(|runs| runs.wants_since.is_some())
    }

    /// Hundredths of a core that it can use at most, of a worker with `worker_cpu`.
    pub fn most_cpu(&self, worker_cpu: u32) -> u32 {
        self.cpus_max.map_or(worker_cpu, |max| max.min(worker_cpu))
    }

    /// Hundredths of a core that it has a use for now, of a worker with `worker_cpu`; `None` before its keeper said
    /// anything.
    pub fn use_cpu(&self, worker_cpu: u32) -> Option<u32> {
        let (runs, most) = (self.runs?, self.most_cpu(worker_cpu));
        Some(if self.wants_more() { most } else { runs.processes.saturating_mul(100).min(most) })
    }
}

impl Booked {
    /// Amounts of running attempts, of places, and of cpus that a task asked back.
    pub fn sum(&self) -> &Resources {
        &self.sum
    }

    /// Bytes that running attempts are predicted to hold beyond what they booked.
    pub fn headroom_bytes(&self) -> u64 {
        self.headroom_bytes
    }

    /// Attempts that hold resources.
    pub fn running(&self) -> &BTreeSet<TaskId> {
        &self.running
    }

    /// Attempts that were sent ahead. They start here in this order when there is room, and hold nothing until then.
    pub fn backlog(&self) -> &VecDeque<TaskId> {
        &self.backlog
    }

    /// Predicted milliseconds of work in the backlog.
    pub fn backlog_ms(&self) -> f64 {
        self.backlog_ms
    }

    /// The number of attempts that wait for jobs that they submitted, and lend their cpus meanwhile.
    pub fn lending(&self) -> u32 {
        self.lending
    }

    /// The number of attempts among [`Booked::running`] whose tasks run in the process of another task.
    pub fn riding(&self) -> u32 {
        self.riding
    }

    /// Places of outside clients, with the amounts of each.
    pub fn places(&self) -> &BTreeMap<AllocId, Resources> {
        &self.places
    }

    /// The sum of their amounts. What clients use of it counts as other programs' in what a worker reports, because it does
    /// not start their work.
    pub fn of_places(&self) -> &Resources {
        &self.of_places
    }

    /// Bytes of places that work of outside clients uses. A client that does not say what its work holds is taken to use
    /// its whole place.
    pub fn used_by_places_bytes(&self) -> u64 {
        self.of_places.memory.saturating_sub(self.unused_bytes)
    }

    /// Bytes of places that their work does not use yet, where clients say what that holds.
    pub fn unused(&self) -> BTreeMap<AllocId, u64> {
        self.unused.iter().map(|(alloc, unused)| (*alloc, unused.told_bytes)).collect()
    }

    /// The steps whose tasks hold cpus here, with hundredths of a core.
    pub fn steps(&self) -> &BTreeMap<StepKey, u32> {
        &self.steps
    }

    /// Of these, the steps whose tasks their submitters run.
    pub fn external(&self) -> &BTreeSet<StepKey> {
        &self.external
    }

    /// Hundredths of a core that outside clients have: by their places, and for tasks that they run themselves.
    pub fn of_clients_cpu(&self) -> u32 {
        let of_tasks = self.external.iter().filter_map(|step| self.steps.get(step));
        of_tasks.fold(self.of_places.cpu, |sum, cpu| sum.saturating_add(*cpu))
    }

    /// Tasks with a jobserver that hold resources.
    pub fn jobservers(&self) -> &BTreeMap<TaskId, Build> {
        &self.jobservers
    }

    /// True if some task with a jobserver takes all cpus that it is given.
    pub fn wants_more(&self) -> bool {
        self.jobservers.values().any(Build::wants_more)
    }

    /// Hundredths of a core that tasks with a jobserver use or would use beyond what they booked, of a worker with
    /// `worker_cpu`.
    pub fn used_unbooked_cpu(&self, worker_cpu: u32) -> u32 {
        let uses = self.jobservers.values().filter_map(|build| build.use_cpu(worker_cpu));
        uses.fold(0, u32::saturating_add).saturating_sub(self.of_jobservers_cpu)
    }

    /// What tasks with a jobserver hold together, in hundredths of a core.
    pub fn of_jobservers_cpu(&self) -> u32 {
        self.of_jobservers_cpu
    }

    /// Changes when other cpus, or other tasks, are shared by tasks with a jobserver; `None` without such a task.
    pub fn shared(&self) -> Option<(u32, usize)> {
        (!self.jobservers.is_empty()).then_some((self.sum.cpu, self.jobservers.len()))
    }

    /// True if neither a task nor an outside client holds anything.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.places.is_empty()
    }

    /// True if tasks run or wait here.
    pub fn has_attempts(&self) -> bool {
        !self.running.is_empty() || !self.backlog.is_empty()
    }

    /// True if processes of tasks run here, and each of them waits for jobs that it submitted. A process that runs several
    /// tasks lends as the first of these.
    pub fn only_lends(&self) -> bool {
        self.lending > 0 && (self.lending + self.riding) as usize == self.running.len()
    }

    /// A task of a step holds amounts from now on, and is predicted to hold more bytes. `cpu` counts for its step also
    /// while it is lent.
    pub fn hold(&mut self, task: TaskId, step: StepKey, held: &Resources, headroom_bytes: u64, cpu: u32) {
        self.sum.add(held);
        self.headroom_bytes += headroom_bytes;
        self.running.insert(task);
        *self.steps.entry(step).or_default() += cpu;
    }

    /// A task that runs here has a jobserver, and holds `cpu` hundredths of a core.
    pub fn note_jobserver(&mut self, task: TaskId, cpu: u32, build: Build) {
        if let Entry::Vacant(vacant) = self.jobservers.entry(task) {
            vacant.insert(build);
            self.of_jobservers_cpu += cpu;
        }
    }

    /// The tasks of a step that hold cpus here are run by their submitter.
    pub fn note_external(&mut self, step: StepKey) {
        if self.steps.get(&step).is_some_and(|cpu| *cpu > 0) {
            self.external.insert(step);
            self.note_clients();
        }
    }

    /// The keeper of a task with a jobserver says what that runs.
    pub fn note_runs(&mut self, task: TaskId, runs: BuildRuns) {
        if let Some(build) = self.jobservers.get_mut(&task) {
            build.runs = Some(runs);
        }
    }

    /// A task with a jobserver has this part of what such tasks share here.
    pub fn note_weight(&mut self, task: TaskId, weight: u32) {
        if let Some(build) = self.jobservers.get_mut(&task) {
            build.weight = weight;
        }
    }

    /// A task of the step, which runs here, gets `cpu` more, in hundredths of a core.
    pub fn widen(&mut self, step: StepKey, cpu: u32) {
        self.sum.cpu += cpu;
        *self.steps.entry(step).or_default() += cpu;
        self.note_clients();
    }

    /// A task gives back what [`Booked::hold`] gave it.
    pub fn let_go(&mut self, task: TaskId, step: StepKey, held: &Resources, headroom_bytes: u64, cpu: u32) {
        self.running.remove(&task);
        if self.jobservers.remove(&task).is_some() {
            self.of_jobservers_cpu = self.of_jobservers_cpu.saturating_sub(held.cpu);
        }
        self.sum.sub(held);
        self.headroom_bytes = self.headroom_bytes.saturating_sub(headroom_bytes);
        if let Some(sum) = self.steps.get_mut(&step) {
            *sum = sum.saturating_sub(cpu);
            // A step of tasks that ask for no cpu has no part of the worker either.
            if *sum == 0 {
                self.steps.remove(&step);
                self.external.remove(&step);
            }
        }
    }

    /// A task lends its cpus, and gives up its headroom.
    pub fn lend(&mut self, task: TaskId, cpu: u32, headroom_bytes: u64) {
        self.sum.cpu = self.sum.cpu.saturating_sub(cpu);
        if self.jobservers.contains_key(&task) {
            self.of_jobservers_cpu = self.of_jobservers_cpu.saturating_sub(cpu);
        }
        self.headroom_bytes = self.headroom_bytes.saturating_sub(headroom_bytes);
    }

    /// A task asks its cpus back. Nothing new is booked on them from now on.
    pub fn reclaim(&mut self, task: TaskId, cpu: u32) {
        self.sum.cpu += cpu;
        if self.jobservers.contains_key(&task) {
            self.of_jobservers_cpu += cpu;
        }
    }

    /// The number of tasks that lend grows by `more` and falls by `fewer`.
    pub fn count_lending(&mut self, more: u32, fewer: u32) {
        self.lending = self.lending + more - fewer;
    }

    /// The number of tasks that run here in the process of another one grows by `more` and falls by `fewer`.
    pub fn count_riding(&mut self, more: u32, fewer: u32) {
        self.riding = self.riding + more - fewer;
    }

    /// A task that is predicted to run for `ms` milliseconds waits here for room.
    pub fn send_ahead(&mut self, task: TaskId, ms: f64) {
        self.backlog.push_back(task);
        self.backlog_ms += ms;
    }

    /// A task that was taken for running waits here, before all others.
    pub fn send_back(&mut self, task: TaskId, ms: f64) {
        self.backlog.push_front(task);
        self.backlog_ms += ms;
    }

    /// A task leaves the backlog.
    pub fn leave_backlog(&mut self, task: TaskId, ms: f64) {
        self.backlog.retain(|waiting| *waiting != task);
        self.backlog_ms = if self.backlog.is_empty() { 0.0 } else { (self.backlog_ms - ms).max(0.0) };
    }

    /// An outside client gets a place.
    pub fn give_place(&mut self, alloc: AllocId, amounts: Resources) {
        self.sum.add(&amounts);
        self.of_places.add(&amounts);
        self.places.insert(alloc, amounts);
        self.note_clients();
    }

    /// A place has `memory` bytes from now on, of which its work does not use `unused_bytes` yet; `None` where its client
    /// does not say so.
    pub fn size_place(&mut self, alloc: AllocId, memory: u64, unused_bytes: Option<u64>) {
        let Some(amounts) = self.places.get_mut(&alloc) else { return };
        let before = std::mem::replace(&mut amounts.memory, memory);
        for sum in [&mut self.sum.memory, &mut self.of_places.memory] {
            *sum = sum.saturating_sub(before).saturating_add(memory);
        }
        let counted = self.forget_unused(alloc);
        if let Some(told_bytes) = unused_bytes {
            let counted_bytes = counted.min(memory).max(told_bytes);
            self.unused_bytes += counted_bytes;
            self.unused.insert(alloc, UnusedMemory { told_bytes, counted_bytes });
        }
    }

    /// The worker reported its load: what clients said that their work uses is now among what is in use there.
    pub fn count_what_is_used(&mut self) {
        self.unused.values_mut().for_each(|unused| unused.counted_bytes = unused.told_bytes);
        self.unused_bytes = self.unused.values().map(|unused| unused.counted_bytes).sum();
    }

    /// The most hundredths of a core that outside clients had since this was asked last: what they used of the worker
    /// meanwhile is among what other programs did.
    pub fn take_clients_cpu_max(&mut self) -> u32 {
        let now_cpu = self.of_clients_cpu();
        std::mem::replace(&mut self.of_clients_cpu_max, now_cpu)
    }

    fn note_clients(&mut self) {
        self.of_clients_cpu_max = self.of_clients_cpu_max.max(self.of_clients_cpu());
    }

    /// An outside client gives its place back.
    pub fn free_place(&mut self, alloc: AllocId) {
        if let Some(amounts) = self.places.remove(&alloc) {
            self.sum.sub(&amounts);
            self.of_places.sub(&amounts);
        }
        self.forget_unused(alloc);
    }

    /// Returns the bytes that were counted.
    fn forget_unused(&mut self, alloc: AllocId) -> u64 {
        let counted_bytes = self.unused.remove(&alloc).map_or(0, |unused| unused.counted_bytes);
        self.unused_bytes -= counted_bytes;
        counted_bytes
    }

    /// Replaces all that is booked by a sum that another system says, which names no tasks.
    pub fn replace(&mut self, sum: Resources) {
        *self = Booked { sum, ..Booked::default() };
    }

    /// A task runs here whose amounts the sum of [`Booked::replace`] has.
    pub fn note_running(&mut self, task: TaskId) {
        self.running.insert(task);
    }
}
