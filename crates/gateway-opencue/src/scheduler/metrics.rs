//! Counts of the scheduler, as text for Prometheus. Names begin as those of OpenCue's own scheduler do, so that panels
//! made for it go on.

use super::rate::BookingRate;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use windlass_server::PortLimits;

/// Limits of the port of counts. Its requests have no body.
pub const LIMITS: PortLimits = PortLimits {
    connections_max: 128,
    per_machine_max: 64,
    connection_lasts_max: Some(Duration::from_secs(3_600)),
    body_bytes_max: |_| 0,
    requests_bytes_max: 1 << 20,
};

/// Serves the counts at `/metrics`, and at `/health` whether the last pass reached the database.
pub fn routes(metrics: Arc<Metrics>) -> Router {
    let health = |State(metrics): State<Arc<Metrics>>| async move {
        match metrics.is_healthy() {
            true => (StatusCode::OK, "ok\n"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "the last pass did not reach the database\n"),
        }
    };
    let text = |State(metrics): State<Arc<Metrics>>| async move { metrics.text() };
    Router::new().route("/metrics", get(text)).route("/health", get(health)).with_state(metrics)
}

/// Upper ends of the buckets of passes, in seconds.
const PASS_BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassCounts {
    /// Hosts that were up and open.
    pub hosts: u64,
    /// Layers with frames that wait.
    pub layers: u64,
    /// Frames that were placed.
    pub placed: u64,
    /// Of these, the ones that were booked.
    pub booked: u64,
    /// Duration of the pass in seconds.
    pub took_s: f64,
}

/// The counts of an instance, since it started.
#[derive(Default)]
pub struct Metrics {
    launched: AtomicU64,
    launches_failed: AtomicU64,
    recovered: AtomicU64,
    passes_failed: AtomicU64,
    is_failing: AtomicBool,
    passes: Mutex<Passes>,
}

/// The counts that people look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tally {
    /// When the last pass that read the farm ended, and what it did; `None` before the first.
    pub last: Option<(SystemTime, PassCounts)>,
    /// Frames a second that were booked lately; `None` before that is known.
    pub booked_per_s: Option<f64>,
    /// Frames that hosts took, since the start.
    pub launched: u64,
    /// Frames that no host took, since the start.
    pub launches_failed: u64,
    /// Placements that no longer held, since the start.
    pub refused: u64,
    /// True if the last pass reached the database.
    pub is_healthy: bool,
}

#[derive(Default)]
struct Passes {
    last: PassCounts,
    last_ended: Option<SystemTime>,
    rate: BookingRate,
    took_s: f64,
    buckets: [u64; PASS_BUCKETS.len()],
    count: u64,
    refused: u64,
    booked_of_shows: BTreeMap<String, u64>,
}

impl Metrics {
    /// A host took a frame.
    pub fn launched(&self) {
        self.launched.fetch_add(1, Ordering::Relaxed);
    }

    /// A host refused a frame, or did not answer.
    pub fn launch_failed(&self) {
        self.launches_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// A booking of an instance that ended was taken back.
    pub fn recovered(&self) {
        self.recovered.fetch_add(1, Ordering::Relaxed);
    }

    /// A pass came to nothing, for the database failed.
    pub fn pass_failed(&self) {
        self.passes_failed.fetch_add(1, Ordering::Relaxed);
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// True if the last pass did not fail.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing.load(Ordering::Relaxed)
    }

    /// Counts a pass that reached the database.
    pub fn passed(&self, counts: PassCounts) {
        self.is_failing.store(false, Ordering::Relaxed);
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        passes.count += 1;
        passes.took_s += counts.took_s;
        passes.refused += counts.placed - counts.booked;
        for (end_s, bucket) in PASS_BUCKETS.iter().zip(&mut passes.buckets) {
            *bucket += u64::from(counts.took_s <= *end_s);
        }
        passes.last = counts;
        passes.last_ended = Some(SystemTime::now());
        passes.rate.add(counts.booked, Instant::now());
    }

    /// The counts that people look at, as they are now.
    pub fn tally(&self) -> Tally {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        Tally {
            last: passes.last_ended.map(|at| (at, passes.last)),
            booked_per_s: passes.rate.per_s(Instant::now()),
            launched: self.launched.load(Ordering::Relaxed),
            launches_failed: self.launches_failed.load(Ordering::Relaxed),
            refused: passes.refused,
            is_healthy: self.is_healthy(),
        }
    }

    /// Frames of a show were booked.
    pub fn booked(&self, show: &str, frames: u64) {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        *passes.booked_of_shows.entry(show.to_owned()).or_default() += frames;
    }

    /// All of them as text.
    pub fn text(&self) -> String {
        let passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut text = String::new();
        let single = [
            ("scheduler_frames_launched_total", "counter", "Frames that a host took.", count(&self.launched)),
            (
                "scheduler_launches_failed_total",
                "counter",
                "Frames that no host took.",
                count(&self.launches_failed),
            ),
            (
                "scheduler_bookings_recovered_total",
                "counter",
                "Bookings of ended instances.",
                count(&self.recovered),
            ),
            (
                "scheduler_bookings_refused_total",
                "counter",
                "Placements that no longer held.",
                passes.refused,
            ),
            (
                "scheduler_passes_failed_total",
                "counter",
                "Passes without a database.",
                count(&self.passes_failed),
            ),
            ("scheduler_hosts", "gauge", "Hosts that are up and open.", passes.last.hosts),
            ("scheduler_layers_waiting", "gauge", "Layers with waiting frames.", passes.last.layers),
        ];
        for (name, kind, help, value) in single {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
        text.push_str("# HELP scheduler_frames_dispatched_total Frames that were booked.\n");
        text.push_str("# TYPE scheduler_frames_dispatched_total counter\n");
        for (show, booked) in &passes.booked_of_shows {
            let show = show.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = writeln!(text, "scheduler_frames_dispatched_total{{show_name=\"{show}\"}} {booked}");
        }
        let name = "scheduler_pass_duration_seconds";
        let _ = write!(text, "# HELP {name} Time of a pass.\n# TYPE {name} histogram\n");
        for (end_s, bucket) in PASS_BUCKETS.iter().zip(&passes.buckets) {
            let _ = writeln!(text, "{name}_bucket{{le=\"{end_s}\"}} {bucket}");
        }
        let (took_s, count) = (passes.took_s, passes.count);
        let _ =
            write!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {took_s}\n{name}_count {count}\n");
        text
    }
}
