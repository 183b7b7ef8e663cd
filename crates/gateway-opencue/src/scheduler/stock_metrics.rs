//! Counts by the names of OpenCue's own scheduler, so that panels made for it go on. Each has a value of the same
//! meaning here. Names that it has for its clusters, which do not exist here, are left out.

use super::caps::CapKind;
use super::planning::PlanLooks;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::collections::BTreeMap;

/// Upper ends of the buckets of waits for a booking, in seconds.
const WAIT_BUCKETS: [f64; 9] = [0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Upper ends of the buckets of reads of the database, in seconds.
const READ_BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// Upper ends of the buckets of recounts, in seconds.
const RECOUNT_BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0];
/// Upper ends of the buckets of hosts for a layer.
const HOSTS_BUCKETS: [f64; 6] = [1.0, 5.0, 10.0, 20.0, 50.0, 100.0];
/// Upper ends of the buckets of frames of a pass.
const FRAMES_BUCKETS: [f64; 10] = [0.0, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 250.0, 500.0, 2_000.0];

/// What a pass read and looked for, beside its counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassLooks {
    /// Jobs that the pass read, because frames of them wait.
    pub jobs: u64,
    /// Of these, those that it planned, by the name of the show.
    pub planned_jobs: BTreeMap<String, u64>,
    /// Seconds in which the database was read.
    pub read_s: f64,
    /// Seconds of the whole pass, but for the wait for a show that another instance plans.
    pub busy_s: f64,
    /// For each layer with a placement, the number of hosts on which its frames were to be booked.
    pub hosts_of_layers: Vec<u64>,
    /// How the planner looked for hosts.
    pub plan: PlanLooks,
}

type ByLabel = Family<[(&'static str, &'static str); 1], Counter>;

/// The counts by these names.
pub(super) struct StockMetrics {
    jobs_queried: Counter,
    jobs_processed: Family<[(&'static str, String); 1], Counter>,
    frames_dispatched: Family<[(&'static str, String); 1], Counter>,
    no_candidate: Counter,
    cache_size: Gauge,
    cache_hits: Counter,
    cache_misses: Counter,
    limit_exceeded: ByLabel,
    job_cap_skips: Counter,
    passes_by_end: ByLabel,
    outcomes: ByLabel,
    wait_seconds: Histogram,
    read_seconds: Histogram,
    recount_seconds: Histogram,
    hosts_per_layer: Histogram,
    frames_per_pass: Histogram,
}

impl StockMetrics {
    pub(super) fn new(registry: &mut Registry) -> StockMetrics {
        let r = registry;
        StockMetrics {
            jobs_queried: registered(r, "jobs_queried", "Jobs with waiting frames that passes read"),
            jobs_processed: registered(r, "jobs_processed", "Jobs that passes planned"),
            frames_dispatched: registered(r, "frames_dispatched", "Frames that were booked"),
            no_candidate: registered(r, "no_candidate_iterations", "Searches that found no host"),
            cache_size: registered(r, "host_cache_size", "Hosts that the planner holds"),
            cache_hits: registered(r, "host_cache_hits", "Searches that found a host"),
            cache_misses: registered(r, "host_cache_misses", "Searches that found no host"),
            limit_exceeded: registered(r, "accounting_limit_exceeded", "Looks that a cap ended"),
            job_cap_skips: registered(r, "job_cap_precheck_skip", "Looks that a job's maximum ended"),
            passes_by_end: registered(r, "pass_terminated_reason", "Passes by how they ended"),
            outcomes: registered(r, "checkout_outcome", "Placements and searches by their outcome"),
            wait_seconds: histogram(r, "time_to_book_seconds", "From ready to booked", &WAIT_BUCKETS),
            read_seconds: histogram(r, "job_query_duration_seconds", "Reads of the database", &READ_BUCKETS),
            recount_seconds: histogram(r, "recompute_cycle_duration_seconds", "Recounts", &RECOUNT_BUCKETS),
            hosts_per_layer: histogram(r, "candidates_per_layer", "Hosts for a layer", &HOSTS_BUCKETS),
            frames_per_pass: histogram(r, "frames_dispatched_per_pass", "Frames of a pass", &FRAMES_BUCKETS),
        }
    }

    /// Counts a pass: the hosts that it saw, and how many of its placements were booked and refused.
    pub(super) fn passed(&self, looks: &PassLooks, hosts: u64, (booked, refused): (u64, u64)) {
        let PassLooks { jobs, planned_jobs, read_s, busy_s: _, hosts_of_layers, plan } = looks;
        self.jobs_queried.inc_by(*jobs);
        for (show, jobs) in planned_jobs {
            self.jobs_processed.get_or_create(&[("show_name", show.clone())]).inc_by(*jobs);
        }
        self.read_seconds.observe(*read_s);
        hosts_of_layers.iter().for_each(|hosts| self.hosts_per_layer.observe(*hosts as f64));
        self.frames_per_pass.observe(booked as f64);
        self.cache_size.set(hosts as i64);
        self.cache_hits.inc_by(plan.searches - plan.without_host);
        self.cache_misses.inc_by(plan.without_host);
        self.no_candidate.inc_by(plan.without_host);
        for (kind, count) in &plan.capped {
            self.limit_exceeded.get_or_create(&[("table", kind.name())]).inc_by(*count);
        }
        self.job_cap_skips.inc_by(plan.capped.get(&CapKind::Job).copied().unwrap_or(0));
        for (outcome, count) in
            [("booked", booked), ("no_progress", refused), ("no_match", plan.without_host)]
        {
            self.outcomes.get_or_create(&[("outcome", outcome)]).inc_by(count);
        }
        self.ended(match (*jobs, booked) {
            (0, _) => "no_jobs",
            (_, 0) => "saturated",
            _ => "booked",
        });
    }

    /// A pass came to nothing, because the database failed.
    pub(super) fn pass_failed(&self) {
        self.ended("query_error");
    }

    fn ended(&self, reason: &'static str) {
        self.passes_by_end.get_or_create(&[("reason", reason)]).inc();
    }

    /// A frame of a show was booked, this many seconds after it became ready.
    pub(super) fn booked(&self, show: &str, waited_s: f64) {
        self.frames_dispatched.get_or_create(&[("show_name", show.to_owned())]).inc();
        self.wait_seconds.observe(waited_s);
    }

    /// Figures that Cuebot leaves to the scheduler were recounted.
    pub(super) fn recounted(&self, took_s: f64) {
        self.recount_seconds.observe(took_s);
    }

    /// A host did not take a frame that was booked on it.
    pub(super) fn launch_failed(&self) {
        self.outcomes.get_or_create(&[("outcome", "dispatch_error")]).inc();
    }
}

/// A new count, which the text of the registry has from now on.
pub(super) fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let count = M::default();
    registry.register(name, help, count.clone());
    count
}

pub(super) fn histogram(registry: &mut Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let histogram = Histogram::new(buckets.iter().copied());
    registry.register(name, help, histogram.clone());
    histogram
}
