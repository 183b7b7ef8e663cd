//! What a search for a place asks of a worker, worked out when the worker changes. A search looks at many workers for each
//! task, a worker is large, and a booking changes one of them.

use crate::class::Class;
use crate::load::formula::{LoadSettings, LoadTerms};
use crate::score::context::{Amounts, WorkerContext};
use crate::score::weights::BESIDE_FOREIGN_CPU_MIN;
use crate::worker::Worker;

/// A worker and its summary.
#[derive(Clone, PartialEq, Debug)]
pub struct ListedWorker {
    summary: WorkerSummary,
    worker: Worker,
}

/// What is asked of a worker most often. It is far smaller than a [`Worker`], so those of many fit into a cache.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerSummary {
    takes_work: bool,
    takes_builds: bool,
    only_lends: bool,
    /// It takes the work of all queues, also of steps that do not name it.
    is_for_all: bool,
    /// [`Worker::room`] without the named amounts.
    room: Amounts,
    load: LoadTerms,
    context: WorkerContext,
}

impl ListedWorker {
    pub(super) fn new(worker: Worker, settings: &LoadSettings) -> Self {
        ListedWorker { summary: WorkerSummary::of(&worker, settings), worker }
    }

    /// The worker itself, with all that is known of it.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// The summary, as of the last change of the worker.
    pub fn summary(&self) -> &WorkerSummary {
        &self.summary
    }

    /// The worker, to be changed. Until [`ListedWorker::summarize`] its summary is that of before.
    pub(super) fn worker_mut(&mut self) -> &mut Worker {
        &mut self.worker
    }

    /// Works the summary out again.
    pub(super) fn summarize(&mut self, settings: &LoadSettings) {
        self.summary = WorkerSummary::of(&self.worker, settings);
    }
}

impl WorkerSummary {
    /// The summary of a worker.
    pub fn of(worker: &Worker, settings: &LoadSettings) -> Self {
        let (has, booked) = (&worker.record.capacity, worker.booked.sum());
        let room = Amounts {
            cpu: has.cpu.saturating_sub(booked.cpu),
            gpus: has.gpus.saturating_sub(booked.gpus),
            memory: worker.memory_room(),
            gpu_memory: has.gpu_memory.saturating_sub(booked.gpu_memory),
        };
        WorkerSummary {
            takes_work: worker.takes_work(),
            takes_builds: worker.takes_builds(),
            only_lends: worker.booked.only_lends(),
            is_for_all: !worker.flags.class.is_exclusive && !worker.flags.is_for_queues,
            room,
            load: worker.load_terms(settings),
            context: context_of(worker, settings),
        }
    }

    /// The same as [`Worker::takes_work`].
    pub fn takes_work(&self) -> bool {
        self.takes_work
    }

    /// The same as [`Worker::takes_builds`].
    pub fn takes_builds(&self) -> bool {
        self.takes_builds
    }

    /// Hundredths of a core and bytes of memory that are free.
    pub(super) fn free(&self) -> (u32, u64) {
        (self.room.cpu, self.room.memory)
    }

    /// The same as [`Booked::only_lends`](crate::worker::Booked::only_lends).
    pub fn only_lends(&self) -> bool {
        self.only_lends
    }

    /// What rules see of the worker.
    pub fn context(&self) -> &WorkerContext {
        &self.context
    }

    /// The same as [`Worker::load_with`].
    pub fn load_with(&self, task_cpu: u32) -> f64 {
        self.load.load_with(task_cpu)
    }

    /// How loaded the worker is with one more task that has a jobserver; see [`LoadTerms::load_with_jobserver`].
    pub fn load_with_jobserver(&self) -> f64 {
        self.load.load_with_jobserver()
    }

    /// True if the worker takes work and has room for a task of the class. Amounts of named resources are not compared.
    pub fn has_room(&self, class: &Class) -> bool {
        let WorkerSummary { takes_work, takes_builds, only_lends, room, context, .. } = self;
        let request = &class.request;
        let memory = if *only_lends { context.capacity.memory } else { room.memory };
        let takes = if class.has_jobserver { *takes_builds } else { *takes_work };
        takes
            && request.cpu <= room.cpu
            && request.memory <= memory
            && request.gpus <= room.gpus
            && request.gpu_memory <= room.gpu_memory
    }

    /// True if no condition of the class needs more than [`WorkerSummary::has_room`].
    pub fn suffices_for(&self, class: &Class) -> bool {
        self.is_for_all
            && class.limits.is_empty()
            && class.needs.is_empty()
            && class.targets.is_empty()
            && class.request.custom.is_empty()
    }
}

fn context_of(worker: &Worker, settings: &LoadSettings) -> WorkerContext {
    let report = worker.reported.load().filter(|_| settings.pressure);
    let clients_cpu = worker.booked.of_clients_cpu();
    let tasks_cpu = worker.booked.sum().cpu.saturating_sub(worker.booked.of_jobservers_cpu());
    let tasks_cpu = tasks_cpu.saturating_sub(clients_cpu);
    // Other programs do not keep a worker idle on which the farm runs nothing of the kind. Otherwise a farm of one busy
    // machine would stand still. Its load makes such a worker the last choice.
    let foreign_beside = |booked_cpu: u32| {
        report.and_then(|report| report.cpu_foreign).filter(|_| booked_cpu >= BESIDE_FOREIGN_CPU_MIN)
    };
    WorkerContext {
        capacity: (&worker.record.capacity).into(),
        booked: (worker.booked.sum()).into(),
        memory_free: (worker.record.capacity.memory > 0).then(|| worker.memory_room()),
        memory_available: report
            .and_then(|report| report.memory_available)
            .filter(|_| !worker.booked.is_idle()),
        foreign_cpu: foreign_beside(tasks_cpu),
        foreign_cpu_beside_clients: foreign_beside(clients_cpu),
        core_score: worker.core_score(),
        disk_mb_s: report.and_then(|report| report.disk_mb_s),
        network_mbit_s: report.and_then(|report| report.network_mbit_s),
        fetches: worker.flags.fetches,
        has_arch: worker.flags.has_arch,
    }
}
