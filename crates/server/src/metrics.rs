//! Numbers for monitoring, in OpenMetrics text.

use crate::figures::Tally;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use windlass_core::Engine;
use windlass_core::engine::Fact;
use windlass_core::explain::{BlockedReason, Entitlement};
use windlass_core::job::{Counts, TaskState};
use windlass_core::plan::Searches;
use windlass_core::worker::WorkerState;

type Labels = [(&'static str, &'static str); 1];
/// A number of each queue.
type ByQueue = Family<[(&'static str, String); 1], Gauge<f64, AtomicU64>>;

/// The names of tables, and how many entries each has.
pub type Entries = Vec<(&'static str, usize)>;

/// Queues that the text names: those that want most cpus. Each is four lines.
const QUEUES_MAX: usize = 250;

/// The metrics that the server counts and shows at `/metrics`.
pub struct Metrics {
    registry: Registry,
    jobs_accepted: Counter,
    jobs_ended: Family<Labels, Counter>,
    jobs_read: Counter,
    tasks_booked: Counter,
    searches: Counter,
    searches_without_candidate: Counter,
    candidates: Counter,
    attempts_ended: Family<Labels, Counter>,
    results_late: Counter,
    tasks: Family<Labels, Gauge>,
    workers: Family<Labels, Gauge>,
    workers_saturated: Gauge,
    workers_network_saturated: Gauge,
    workers_low_space: Gauge,
    workers_left_out: Gauge,
    workers_reserved: Gauge,
    board_sessions: Gauge,
    entries: Family<Labels, Gauge>,
    waiting_tasks: Family<Labels, Gauge>,
    stranded_cores: Gauge<f64, AtomicU64>,
    queues: QueueGauges,
    /// One text at a time, because queues that are gone are removed before the others are set.
    encoding: Mutex<()>,
    wait_seconds: Histogram,
    round_seconds: Histogram,
    commit_seconds: Histogram,
    store_read_seconds: Histogram,
    /// The same events once more, for rates and quantiles of the last minutes.
    tally: Mutex<Tally>,
    /// Writes of a batch.
    pub batch_writes: Histogram,
    store_failures: Counter,
    /// Without a value where the store is on no disk.
    store_free: Family<[(&'static str, &'static str); 0], Gauge>,
    /// Connections and requests that were refused for what they are or who sent them.
    pub refusals: Counter,
    /// What workers measured and said, and that cannot be.
    pub load_reports_refused: Counter,
    /// Lines that could not be written to the audit log.
    pub audit_lost: Counter,
    /// Requests that the engine has taken up and not answered.
    pub requests_waiting: Gauge,
    /// Requests that this server passed on to the owner of the farm.
    pub requests_passed: Counter,
    /// Requests of other servers that this one answered as the owner.
    pub requests_served: Counter,
    /// Without a value on a server that owns nothing.
    farm_epoch: Family<[(&'static str, &'static str); 0], Gauge>,
}

impl Metrics {
    /// All at 0.
    pub fn new() -> Self {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("windlass"),
            jobs_accepted: Counter::default(),
            jobs_ended: Family::default(),
            jobs_read: Counter::default(),
            tasks_booked: Counter::default(),
            searches: Counter::default(),
            searches_without_candidate: Counter::default(),
            candidates: Counter::default(),
            attempts_ended: Family::default(),
            results_late: Counter::default(),
            tasks: Family::default(),
            workers: Family::default(),
            workers_saturated: Gauge::default(),
            workers_network_saturated: Gauge::default(),
            workers_low_space: Gauge::default(),
            workers_left_out: Gauge::default(),
            workers_reserved: Gauge::default(),
            board_sessions: Gauge::default(),
            entries: Family::default(),
            waiting_tasks: Family::default(),
            stranded_cores: Gauge::default(),
            queues: QueueGauges::default(),
            encoding: Mutex::default(),
            wait_seconds: Histogram::new(exponential_buckets(0.001, 4.0, 12)),
            round_seconds: Histogram::new(exponential_buckets(0.000_01, 4.0, 10)),
            commit_seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            store_read_seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 10)),
            tally: Mutex::default(),
            batch_writes: Histogram::new(exponential_buckets(1.0, 4.0, 8)),
            store_failures: Counter::default(),
            store_free: Family::default(),
            refusals: Counter::default(),
            load_reports_refused: Counter::default(),
            audit_lost: Counter::default(),
            requests_waiting: Gauge::default(),
            requests_passed: Counter::default(),
            requests_served: Counter::default(),
            farm_epoch: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("jobs_accepted", "Jobs accepted", self.jobs_accepted.clone());
        r.register("jobs_ended", "Jobs ended, by their state", self.jobs_ended.clone());
        r.register("jobs_read", "Jobs read from the store for the engine", self.jobs_read.clone());
        r.register("tasks_booked", "Bookings made", self.tasks_booked.clone());
        r.register("searches", "Looks for a worker for a step's next task", self.searches.clone());
        let help = "Looks for a worker that found none with room";
        r.register("searches_without_candidate", help, self.searches_without_candidate.clone());
        r.register("candidates", "Workers with room that looks for a worker judged", self.candidates.clone());
        r.register("attempts_ended", "Attempts ended, by the task's state", self.attempts_ended.clone());
        r.register("results_late", "Results refused: another attempt is booked", self.results_late.clone());
        r.register("tasks", "Tasks of active jobs, by state", self.tasks.clone());
        r.register("workers", "Workers, by state", self.workers.clone());
        r.register("workers_saturated", "Workers that pressure holds", self.workers_saturated.clone());
        let help = "Workers that get no network-bound work, for their network is in use";
        r.register("workers_network_saturated", help, self.workers_network_saturated.clone());
        let help = "Workers that get no work, for a directory of theirs has too little free space";
        r.register("workers_low_space", help, self.workers_low_space.clone());
        r.register("workers_left_out", "Workers left out for their faults", self.workers_left_out.clone());
        r.register("workers_reserved", "Workers reserved for blocked work", self.workers_reserved.clone());
        r.register("board_sessions", "Sessions of browsers that are open", self.board_sessions.clone());
        r.register("entries", "Entries of tables of what is under way", self.entries.clone());
        r.register("waiting_tasks", "Ready tasks, by why they wait", self.waiting_tasks.clone());
        r.register("stranded_cores", "Cores idle beside work that waits", self.stranded_cores.clone());
        self.queues.register(r);
        let seconds = Unit::Seconds;
        r.register_with_unit("wait", "From ready to booked", seconds.clone(), self.wait_seconds.clone());
        r.register_with_unit("round", "A round that booked", seconds.clone(), self.round_seconds.clone());
        let help = "A read of jobs for the engine";
        r.register_with_unit("store_read", help, seconds.clone(), self.store_read_seconds.clone());
        r.register_with_unit("commit", "A batch until durable", seconds, self.commit_seconds.clone());
        r.register("batch_writes", "Writes of a batch", self.batch_writes.clone());
        r.register_with_unit("store_free", "Free on the store's disk", Unit::Bytes, self.store_free.clone());
        r.register("store_failures", "Batches the store did not take", self.store_failures.clone());
        r.register("refusals", "Connections and requests refused", self.refusals.clone());
        r.register("load_reports_refused", "Measures not taken", self.load_reports_refused.clone());
        r.register("audit_lost", "Lines lost to the audit log", self.audit_lost.clone());
        let help = "Requests that the engine has taken up and not answered";
        r.register("requests_waiting", help, self.requests_waiting.clone());
        let help = "Requests passed on to the server that owns the farm";
        r.register("requests_passed", help, self.requests_passed.clone());
        let help = "Requests of other servers answered as the farm's owner";
        r.register("requests_served", help, self.requests_served.clone());
        let help = "Number of this server's ownership of the farm: rises with each takeover";
        r.register("farm_epoch", help, self.farm_epoch.clone());
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

    /// This server owns the farm under that epoch.
    pub fn owns_farm(&self, epoch: u64) {
        self.farm_epoch.get_or_create(&[]).set(epoch as i64);
    }

    /// Tables have that many entries now.
    pub fn set_entries(&self, entries: &[(&'static str, usize)]) {
        for (table, count) in entries {
            self.entries.get_or_create(&[("table", *table)]).set(*count as i64);
        }
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

    /// Counts what happened.
    pub fn count(&self, notes: &[Fact]) {
        if !notes.is_empty() {
            self.tally.lock().count(notes);
        }
        for note in notes {
            match note {
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

    /// The text, with gauges as they are now; a server that stands by has none of the engine. `sessions` are those of
    /// browsers.
    pub fn encode(&self, now: Option<&Gauges>, free_bytes: Option<u64>, sessions: usize) -> String {
        if let Some(bytes) = free_bytes {
            self.store_free.get_or_create(&[]).set(bytes as i64);
        }
        let _alone = self.encoding.lock();
        self.board_sessions.set(sessions as i64);
        if let Some(now) = now {
            self.set(now);
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }

    fn set(&self, now: &Gauges) {
        let Gauges { counts, workers, held, left_out, reserved, waiting, stranded_cpu, queues } = now;
        self.queues.set(queues);
        let gauges = [("waiting", counts.waiting), ("ready", counts.ready), ("active", counts.active)];
        for (state, n) in gauges {
            self.tasks.get_or_create(&[("state", state)]).set(i64::from(n));
        }
        for (state, n) in workers {
            self.workers.get_or_create(&[("state", *state)]).set(*n);
        }
        for (reason, word) in BlockedReason::ALL {
            let tasks = waiting.get(&reason).copied().unwrap_or(0);
            self.waiting_tasks.get_or_create(&[("reason", word)]).set(tasks as i64);
        }
        self.workers_saturated.set(held.pressed);
        self.workers_network_saturated.set(held.network);
        self.workers_low_space.set(held.low_space);
        self.workers_left_out.set(*left_out);
        self.workers_reserved.set(*reserved);
        self.stranded_cores.set(*stranded_cpu as f64 / 100.0);
    }
}

/// What is as it is now, read from the engine.
pub struct Gauges {
    counts: Counts,
    workers: BTreeMap<&'static str, i64>,
    held: HeldWorkers,
    left_out: i64,
    reserved: i64,
    waiting: BTreeMap<BlockedReason, u64>,
    /// Hundredths of a core.
    stranded_cpu: u64,
    queues: Vec<QueueNumbers>,
}

/// Cpus are hundredths of a core.
struct QueueNumbers {
    name: String,
    booked_cpu: u64,
    entitlement: Entitlement,
}

/// What queues want, have, and are entitled to.
#[derive(Default)]
struct QueueGauges {
    demand_cpus: ByQueue,
    booked_cpus: ByQueue,
    entitled_cpus: ByQueue,
    effective_weight: ByQueue,
}

impl QueueGauges {
    fn register(&self, r: &mut Registry) {
        r.register("queue_demand_cpus", "Cpus that a queue holds or could use", self.demand_cpus.clone());
        r.register("queue_booked_cpus", "Cpus that a queue holds", self.booked_cpus.clone());
        r.register("queue_entitled_cpus", "Cpus that a queue is entitled to", self.entitled_cpus.clone());
        let help = "Weight that a queue counts with in a contended band";
        r.register("queue_effective_weight", help, self.effective_weight.clone());
    }

    fn set(&self, queues: &[QueueNumbers]) {
        for family in [&self.demand_cpus, &self.booked_cpus, &self.entitled_cpus, &self.effective_weight] {
            family.clear();
        }
        for QueueNumbers { name, booked_cpu, entitlement } in queues {
            let put = |family: &ByQueue, value| {
                family.get_or_create(&[("queue", name.clone())]).set(value);
            };
            put(&self.demand_cpus, entitlement.demand_cpu as f64 / 100.0);
            put(&self.booked_cpus, *booked_cpu as f64 / 100.0);
            put(&self.entitled_cpus, entitlement.entitled_cpu / 100.0);
            if let Some(weight) = entitlement.effective_weight {
                put(&self.effective_weight, weight);
            }
        }
    }
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

/// How many workers lack something for new work.
#[derive(Default)]
struct HeldWorkers {
    pressed: i64,
    network: i64,
    low_space: i64,
}

impl Gauges {
    /// In a walk over jobs, steps and workers.
    pub fn read(engine: &Engine) -> Gauges {
        let mut workers = BTreeMap::from([("up", 0), ("draining", 0), ("suspect", 0), ("expired", 0)]);
        let (mut held, mut left_out) = (HeldWorkers::default(), 0);
        for worker in engine.workers().present() {
            let word = match worker.state {
                WorkerState::Up => "up",
                WorkerState::Draining => "draining",
                WorkerState::Suspect => "suspect",
                WorkerState::Expired => "expired",
                WorkerState::Forgotten => continue,
            };
            *workers.entry(word).or_default() += 1;
            held.pressed += i64::from(worker.saturated.is_pressed());
            held.network += i64::from(worker.saturated.network);
            held.low_space += i64::from(worker.saturated.lacks_space());
            left_out += i64::from(worker.health.out().is_some());
        }
        Gauges {
            counts: engine.counts(),
            workers,
            held,
            left_out,
            reserved: engine.planner().reservations().holders().count() as i64,
            waiting: windlass_core::explain::waiting_tasks(engine),
            stranded_cpu: engine.planner().stranded_cpu(),
            queues: read_queues(engine),
        }
    }
}

fn word(state: TaskState) -> &'static str {
    windlass_api::TaskState::from(state).as_str()
}
