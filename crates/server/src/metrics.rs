//! Metrics in OpenMetrics text: counters and histograms of a registry, and gauges that are read at each scrape.

use crate::figures::Tally;
use crate::figures::worker_metrics::{self, WorkerGauges};
use crate::metric_text::MetricFamily;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use windlass_core::Engine;
use windlass_core::engine::Fact;
use windlass_core::explain::{Entitlement, Word};
use windlass_core::job::{Counts, TaskState};
use windlass_core::plan::Searches;
use windlass_core::scaling::{ClassScaling, NO_CLASS, Scaling};
use windlass_core::worker::WorkerState;

type CounterFamily = Family<[(&'static str, &'static str); 1], Counter>;

/// The names of tables, and how many entries each has.
pub type Entries = Vec<(&'static str, usize)>;

/// Queues that the text names: those that want most cpus. Each is four lines.
const QUEUES_MAX: usize = 250;

/// The metrics that the server counts and shows at `/metrics`.
pub struct Metrics {
    registry: Registry,
    jobs_accepted: Counter,
    jobs_ended: CounterFamily,
    jobs_read: Counter,
    tasks_booked: Counter,
    searches: Counter,
    searches_without_candidate: Counter,
    candidates: Counter,
    attempts_ended: CounterFamily,
    results_late: Counter,
    wait_seconds: Histogram,
    /// How far expected starts were from the real ones, as logarithms.
    pub start_estimate_error: Histogram,
    /// Waiting tasks that were asked when they start, and for which nothing tells.
    pub starts_without_estimate: Counter,
    round_seconds: Histogram,
    commit_seconds: Histogram,
    store_read_seconds: Histogram,
    /// The same events once more, for rates and quantiles of the last minutes.
    tally: Mutex<Tally>,
    pub batch_writes: Histogram,
    store_failures: Counter,
    /// Connections and requests that were refused for what they are or who sent them.
    pub refusals: Counter,
    /// What workers measured and said, and that cannot be.
    pub load_reports_refused: Counter,
    /// Lines that could not be written to the audit log.
    pub audit_lost: Counter,
    /// Requests that the engine has taken up and not answered.
    pub requests_waiting: AtomicU64,
    /// Notices that their addresses took.
    pub notices_delivered: Counter,
    /// Notices that were given up after a day.
    pub notices_failed: Counter,
    /// Notices for which there was no room.
    pub notices_dropped: Counter,
    /// Tries to deliver a notice that failed.
    pub notice_tries_failed: Counter,
    /// Notices that are owed.
    pub notices_owed: AtomicU64,
    /// Requests that this server passed on to the owner of the farm.
    pub requests_passed: Counter,
    /// Requests of other servers that this one answered as the owner.
    pub requests_served: Counter,
    /// `None` on a server that owns nothing.
    farm_epoch: Option<u64>,
}

/// Registers a metric whose text begins at 0.
fn counter<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a histogram of durations: of `shortest_s` seconds and less, of up to four times as long, and so on.
fn seconds(registry: &mut Registry, name: &str, help: &str, shortest_s: f64, buckets: u16) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(shortest_s, 4.0, buckets));
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}

/// Registers a histogram of counts: of 1, of up to 4, and so on.
fn counts(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(1.0, 4.0, 8));
    registry.register(name, help, histogram.clone());
    histogram
}

/// Registers a histogram of errors of estimates, as logarithms: 0.7 is twice as much as estimated, or half.
fn errors(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = Histogram::new([0.1, 0.25, 0.5, 1.0, 2.0, 4.0]);
    registry.register(name, help, histogram.clone());
    histogram
}

impl Metrics {
    /// All at 0, of a server that owns the farm under this epoch.
    pub fn new(farm_epoch: Option<u64>) -> Self {
        let mut registry = Registry::with_prefix("windlass");
        let r = &mut registry;
        Metrics {
            jobs_accepted: counter(r, "jobs_accepted", "Jobs accepted"),
            jobs_ended: counter(r, "jobs_ended", "Jobs ended, by their state"),
            jobs_read: counter(r, "jobs_read", "Jobs read from the store for the engine"),
            tasks_booked: counter(r, "tasks_booked", "Bookings made"),
            searches: counter(r, "searches", "Looks for a worker for a step's next task"),
            searches_without_candidate: counter(
                r,
                "searches_without_candidate",
                "Looks for a worker that found none with room",
            ),
            candidates: counter(r, "candidates", "Workers with room that looks for a worker judged"),
            attempts_ended: counter(r, "attempts_ended", "Attempts ended, by the task's state"),
            results_late: counter(r, "results_late", "Results refused: another attempt is booked"),
            wait_seconds: seconds(r, "wait", "From ready to booked", 0.001, 12),
            start_estimate_error: errors(
                r,
                "start_estimate_error",
                "Natural logarithm of the estimated wait of a task over the real one, without its sign",
            ),
            starts_without_estimate: counter(
                r,
                "starts_without_estimate",
                "Waiting tasks asked for their expected start for which the past gave none",
            ),
            round_seconds: seconds(r, "round", "A round that booked", 0.000_01, 10),
            commit_seconds: seconds(r, "commit", "A batch until durable", 0.000_1, 10),
            store_read_seconds: seconds(r, "store_read", "A read of jobs for the engine", 0.000_1, 10),
            tally: Mutex::default(),
            batch_writes: counts(r, "batch_writes", "Writes of a batch"),
            store_failures: counter(r, "store_failures", "Batches the store did not take"),
            refusals: counter(r, "refusals", "Connections and requests refused"),
            load_reports_refused: counter(r, "load_reports_refused", "Measures not taken"),
            audit_lost: counter(r, "audit_lost", "Lines lost to the audit log"),
            notices_delivered: counter(r, "notices_delivered", "Notices that their addresses took"),
            notices_failed: counter(r, "notices_failed", "Notices given up after a day"),
            notices_dropped: counter(r, "notices_dropped", "Notices dropped for want of room"),
            notice_tries_failed: counter(r, "notice_tries_failed", "Tries to deliver a notice that failed"),
            notices_owed: AtomicU64::new(0),
            requests_waiting: AtomicU64::new(0),
            requests_passed: counter(
                r,
                "requests_passed",
                "Requests passed on to the server that owns the farm",
            ),
            requests_served: counter(
                r,
                "requests_served",
                "Requests of other servers answered as the farm's owner",
            ),
            farm_epoch,
            registry,
        }
    }

    /// A round that booked something took so long.
    pub fn round_took(&self, took: Duration) {
        self.round_seconds.observe(took.as_secs_f64());
        let mut tally = self.tally.lock();
        tally.rounds += 1;
        tally.round_times.add(took);
    }

    /// How the engine looked for workers since it began.
    pub fn searched(&self, all: Searches) {
        let counted = [
            (&self.searches, all.searches),
            (&self.searches_without_candidate, all.without_candidate),
            (&self.candidates, all.candidates),
        ];
        for (counter, now) in counted {
            counter.inc_by(now - counter.get());
        }
    }

    /// It took so long until the store had a batch, or said that it could not take it.
    pub fn commit_took(&self, took: Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.tally.lock().commit_times.add(took);
    }

    /// It took so long to read jobs for the engine.
    pub fn read_took(&self, took: Duration, jobs: usize) {
        self.store_read_seconds.observe(took.as_secs_f64());
        self.jobs_read.inc_by(jobs as u64);
    }

    /// The store did not take a batch.
    pub fn store_failed(&self) {
        self.store_failures.inc();
        self.tally.lock().store_failures += 1;
    }

    /// What happened since the server started.
    pub fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// Results since the server started that were refused because another attempt is booked.
    pub fn results_late(&self) -> u64 {
        self.results_late.get()
    }

    pub fn count(&self, facts: &[Fact]) {
        if !facts.is_empty() {
            self.tally.lock().count(facts);
        }
        for fact in facts {
            match fact {
                Fact::Job { .. } => _ = self.jobs_accepted.inc(),
                Fact::Booked { waited_ns, .. } => {
                    self.tasks_booked.inc();
                    self.wait_seconds.observe(*waited_ns as f64 / 1e9);
                }
                Fact::Ended { state, .. } => {
                    self.attempts_ended.get_or_create(&[("state", word(*state))]).inc();
                }
                Fact::Late { .. } => _ = self.results_late.inc(),
                Fact::JobEnded { state, .. } => {
                    let state = windlass_api::JobState::from_core(*state, false, &Counts::default()).as_str();
                    self.jobs_ended.get_or_create(&[("state", state)]).inc();
                }
                Fact::Started { .. } | Fact::Worker { .. } => {}
            }
        }
    }

    /// The text of what this process counts, without the gauges of the engine and without the last line. `sessions` are
    /// those of browsers, `free_bytes` those of the store's disk.
    pub fn encode(&self, free_bytes: Option<u64>, sessions: usize, entries: &Entries) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry).expect("writing to a string does not fail");
        gauge("windlass_requests_waiting", "Requests that the engine has taken up and not answered")
            .write_one(&mut text, self.requests_waiting.load(Ordering::Relaxed) as f64);
        gauge("windlass_notices_owed", "Notices that are owed to their addresses")
            .write_one(&mut text, self.notices_owed.load(Ordering::Relaxed) as f64);
        if let Some(epoch) = self.farm_epoch {
            gauge(
                "windlass_farm_epoch",
                "Number of this server's ownership of the farm: rises with each takeover",
            )
            .write_one(&mut text, epoch as f64);
        }
        if let Some(bytes) = free_bytes {
            gauge("windlass_store_free_bytes", "Free on the store's disk").write_one(&mut text, bytes as f64);
        }
        gauge("windlass_board_sessions", "Sessions of browsers that are open")
            .write_one(&mut text, sessions as f64);
        let entries = entries.iter().map(|(table, count)| (*table, *count as f64));
        gauge("windlass_entries", "Entries of tables of what is under way")
            .write(&mut text, "table", entries);
        text
    }
}

/// Shorter where many stand below each other.
fn gauge(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily::gauge(name, help)
}

pub struct Gauges {
    counts: Counts,
    workers: BTreeMap<&'static str, u32>,
    held: HeldWorkers,
    reserved: usize,
    waiting: BTreeMap<Word, u64>,
    /// Hundredths of a core.
    stranded_cpu: u64,
    queues: Vec<QueueNumbers>,
    each_worker: Vec<WorkerGauges>,
}

/// Cpus are hundredths of a core.
struct QueueNumbers {
    name: String,
    booked_cpu: u64,
    entitlement: Entitlement,
}

/// Queues with work, those that want most first.
fn read_queues(engine: &Engine) -> Vec<QueueNumbers> {
    let all = windlass_core::explain::entitlements(engine).into_iter();
    let number = |entitlement: Entitlement| {
        let queue = engine.queues().get(entitlement.queue);
        QueueNumbers { name: queue.name().to_owned(), booked_cpu: queue.booked_cpu, entitlement }
    };
    let mut queues: Vec<QueueNumbers> = all.filter(|own| own.demand_cpu > 0).map(number).collect();
    queues.sort_by(|a, b| {
        b.entitlement.demand_cpu.cmp(&a.entitlement.demand_cpu).then_with(|| a.name.cmp(&b.name))
    });
    queues.truncate(QUEUES_MAX);
    queues
}

/// Workers that lack something for new work.
#[derive(Default)]
struct HeldWorkers {
    pressed: u32,
    network: u32,
    low_space: u32,
    left_out: u32,
}

impl Gauges {
    /// In a walk over jobs, steps and workers.
    pub fn read(engine: &Engine) -> Gauges {
        let mut workers = BTreeMap::from([("up", 0), ("draining", 0), ("suspect", 0), ("expired", 0)]);
        let mut held = HeldWorkers::default();
        for worker in engine.workers().present() {
            let word = match worker.record.state {
                WorkerState::Up => "up",
                WorkerState::Draining => "draining",
                WorkerState::Suspect => "suspect",
                WorkerState::Expired => "expired",
                WorkerState::Forgotten => continue,
            };
            *workers.entry(word).or_default() += 1;
            held.pressed += u32::from(worker.reported.saturated().is_pressed());
            held.network += u32::from(worker.reported.saturated().network);
            held.low_space += u32::from(worker.reported.saturated().lacks_space());
            held.left_out += u32::from(worker.health.out().is_some());
        }
        Gauges {
            counts: engine.counts(),
            workers,
            held,
            reserved: engine.planner().reservations().holders().count(),
            waiting: windlass_core::explain::waiting_tasks(engine),
            stranded_cpu: engine.planner().stranded_cpu(),
            queues: read_queues(engine),
            each_worker: worker_metrics::read(engine),
        }
    }

    pub fn write(&self, text: &mut String) {
        let Counts { waiting, ready, active, .. } = self.counts;
        let tasks = [("waiting", waiting), ("ready", ready), ("active", active)];
        gauge("windlass_tasks", "Tasks of active jobs, by state").write(text, "state", tasks.map(floats));
        let reasons = Word::OF_WAITING.into_iter().map(|word| {
            let tasks = self.waiting.get(&word).copied().unwrap_or(0);
            (word.as_str(), tasks as f64)
        });
        gauge("windlass_waiting_tasks", "Ready tasks, by why they wait").write(text, "reason", reasons);
        let states = self.workers.iter().map(|(state, count)| floats((*state, *count)));
        gauge("windlass_workers", "Workers, by state").write(text, "state", states);
        let HeldWorkers { pressed, network, low_space, left_out } = self.held;
        let single: [(&'static str, &'static str, f64); 6] = [
            ("windlass_workers_saturated", "Workers that pressure holds", pressed.into()),
            (
                "windlass_workers_network_saturated",
                "Workers that get no network-bound work, for their network is in use",
                network.into(),
            ),
            (
                "windlass_workers_low_space",
                "Workers that get no work, for a directory of theirs has too little free space",
                low_space.into(),
            ),
            ("windlass_workers_left_out", "Workers left out for their faults", left_out.into()),
            ("windlass_workers_reserved", "Workers reserved for blocked work", self.reserved as f64),
            (
                "windlass_stranded_cores",
                "Cores idle beside work that waits",
                self.stranded_cpu as f64 / 100.0,
            ),
        ];
        for (name, help, value) in single {
            gauge(name, help).write_one(text, value);
        }
        for (name, help, value) in QUEUE_GAUGES {
            let queues = self.queues.iter().filter_map(|queue| Some((&*queue.name, value(queue)?)));
            gauge(name, help).write(text, "queue", queues);
        }
        worker_metrics::write(text, &self.each_worker);
    }
}

/// Writes how many workers of each class of machines are wanted, and how many classes of work no worker could run.
pub fn write_scaling(text: &mut String, scaling: &Scaling) {
    let none = (NO_CLASS, f64::from(scaling.unrunnable.classes));
    gauge(
        "windlass_workers_wanted",
        "Workers that a machine class should have, so that what waits starts within the target",
    )
    .write(text, "class", by_class(scaling, |class| class.wanted).chain([none]));
    gauge("windlass_workers_spare", "Idle workers of a machine class beyond those that are wanted").write(
        text,
        "class",
        by_class(scaling, |class| class.spare),
    );
}

fn by_class(scaling: &Scaling, of: fn(&ClassScaling) -> u32) -> impl Iterator<Item = (&str, f64)> {
    scaling.classes.iter().map(move |class| (&*class.name, f64::from(of(class))))
}

/// Name, help and value of a gauge that each queue has; `None` is unknown, and has no line.
type QueueGauge = (&'static str, &'static str, fn(&QueueNumbers) -> Option<f64>);

const QUEUE_GAUGES: [QueueGauge; 4] = [
    ("windlass_queue_demand_cpus", "Cpus that a queue holds or could use", |queue| {
        Some(queue.entitlement.demand_cpu as f64 / 100.0)
    }),
    ("windlass_queue_booked_cpus", "Cpus that a queue holds", |queue| Some(queue.booked_cpu as f64 / 100.0)),
    ("windlass_queue_entitled_cpus", "Cpus that a queue is entitled to", |queue| {
        Some(queue.entitlement.entitled_cpu / 100.0)
    }),
    ("windlass_queue_effective_weight", "Weight that a queue counts with in a contended band", |queue| {
        queue.entitlement.effective_weight
    }),
];

fn floats((label, count): (&str, u32)) -> (&str, f64) {
    (label, count.into())
}

fn word(state: TaskState) -> &'static str {
    windlass_api::TaskState::from(state).as_str()
}
