//! Counts of the scheduler, in OpenMetrics text: those of OpenCue's own scheduler, by its names, and others that begin
//! as these do.

use super::rate::RecentRate;
pub use super::stock_metrics::PassLooks;
use super::stock_metrics::{StockMetrics, histogram, registered};
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Upper ends of the buckets of passes, in seconds.
const PASS_BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];

/// The load from which an instance counts as busy, and that below which it does no longer. Between them a load that
/// rises and falls would fill the log.
const BUSY_FROM: f64 = 0.9;
const BUSY_TO: f64 = 0.6;

/// Serves the counts at `/metrics`, and at `/health` whether the last pass reached the database.
pub fn routes(metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(text)).route("/health", get(health)).with_state(metrics)
}

async fn text(State(metrics): State<Arc<Metrics>>) -> ([(HeaderName, &'static str); 1], String) {
    ([(CONTENT_TYPE, OPEN_METRICS)], metrics.text())
}

async fn health(State(metrics): State<Arc<Metrics>>) -> (StatusCode, &'static str) {
    match metrics.is_healthy() {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the last pass did not reach the database\n"),
    }
}

/// What a pass did: hosts that were up and open, layers with frames that wait, frames that were placed, and those of
/// them that were booked.
#[allow(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassCounts {
    pub hosts: u64,
    pub layers: u64,
    pub placed: u64,
    pub booked: u64,
    pub took_s: f64,
}

/// The counts of an instance, since it started.
pub struct Metrics {
    registry: Registry,
    /// Frames that a host took.
    pub(crate) launched: Counter,
    launches_failed: Counter,
    /// Bookings of instances that ended which were taken back.
    pub(crate) recovered: Counter,
    refused: Counter,
    passes_failed: Counter,
    hosts: Gauge,
    hosts_judged: Counter,
    layers_waiting: Gauge,
    load: Gauge<f64, AtomicU64>,
    pass_seconds: Histogram,
    stock: StockMetrics,
    is_failing: AtomicBool,
    is_busy: AtomicBool,
    latest: Mutex<Latest>,
}

/// The last pass that read the farm, with the time of its end, the rate of bookings, and the microseconds of each
/// second in which the instance was at work.
#[derive(Default)]
struct Latest {
    pass: Option<(SystemTime, PassCounts)>,
    rate: RecentRate,
    busy_us: RecentRate,
}

impl Latest {
    fn load(&mut self, now: Instant) -> Option<f64> {
        // A pass counts in the second in which it ends, also where it took longer.
        self.busy_us.per_s(now).map(|us| (us / 1e6).min(1.0))
    }
}

/// The counts that people look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tally {
    /// When the last pass that read the farm ended, and what it did; `None` before the first.
    pub last: Option<(SystemTime, PassCounts)>,
    /// Frames a second that were booked lately; `None` before that is known.
    pub booked_per_s: Option<f64>,
    /// The part of the last ten seconds in which the instance read, planned and booked, from 0 to 1; `None` before that
    /// is known.
    pub load: Option<f64>,
    /// Frames that hosts took, since the start.
    pub launched: u64,
    /// Frames that no host took, since the start.
    pub launches_failed: u64,
    /// Placements that no longer held, since the start.
    pub refused: u64,
    /// True if the last pass reached the database.
    pub is_healthy: bool,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("scheduler");
        let r = &mut registry;
        Metrics {
            launched: registered(r, "frames_launched", "Frames that a host took"),
            launches_failed: registered(r, "launches_failed", "Frames that no host took"),
            recovered: registered(r, "bookings_recovered", "Bookings of ended instances"),
            refused: registered(r, "bookings_refused", "Placements that no longer held"),
            passes_failed: registered(r, "passes_failed", "Passes without a database"),
            hosts: registered(r, "hosts", "Hosts that are up and open"),
            hosts_judged: registered(r, "hosts_judged", "Hosts with room that searches judged"),
            layers_waiting: registered(r, "layers_waiting", "Layers with waiting frames"),
            load: registered(r, "instance_load", "Part of ten seconds in which it was at work, 0 to 1"),
            pass_seconds: histogram(r, "pass_duration_seconds", "Time of a pass", &PASS_BUCKETS),
            stock: StockMetrics::new(r),
            is_failing: AtomicBool::default(),
            is_busy: AtomicBool::default(),
            latest: Mutex::default(),
            registry,
        }
    }
}

impl Metrics {
    /// A pass came to nothing, for the database failed.
    pub fn pass_failed(&self) {
        self.passes_failed.inc();
        self.stock.pass_failed();
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// True if the last pass did not fail.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing.load(Ordering::Relaxed)
    }

    /// Counts a pass that reached the database.
    pub fn passed(&self, counts: PassCounts, looks: &PassLooks) {
        self.is_failing.store(false, Ordering::Relaxed);
        self.pass_seconds.observe(counts.took_s);
        let refused = counts.placed - counts.booked;
        self.refused.inc_by(refused);
        self.hosts.set(counts.hosts as i64);
        self.hosts_judged.inc_by(looks.plan.judged);
        self.layers_waiting.set(counts.layers as i64);
        self.stock.passed(looks, counts.hosts, (counts.booked, refused));
        let now = Instant::now();
        let load = {
            let mut latest = self.latest.lock();
            latest.pass = Some((SystemTime::now(), counts));
            latest.rate.add(counts.booked, now);
            latest.busy_us.add((looks.busy_s * 1e6) as u64, now);
            latest.load(now)
        };
        if let Some(load) = load {
            self.tell_load(load);
        }
    }

    /// Says in the log when the instance becomes busy, and when it is so no longer.
    fn tell_load(&self, load: f64) {
        let was_busy = self.is_busy.load(Ordering::Relaxed);
        let percent = (load * 100.0).round();
        if !was_busy && load >= BUSY_FROM {
            self.is_busy.store(true, Ordering::Relaxed);
            tracing::info!(
                percent,
                "this instance is busy; a second one with the same file takes turns with it, show by show"
            );
        } else if was_busy && load < BUSY_TO {
            self.is_busy.store(false, Ordering::Relaxed);
            tracing::info!(percent, "this instance is busy no longer");
        }
    }

    /// The counts that people look at, as they are now.
    pub fn tally(&self) -> Tally {
        let (mut latest, now) = (self.latest.lock(), Instant::now());
        Tally {
            last: latest.pass,
            booked_per_s: latest.rate.per_s(now),
            load: latest.load(now),
            launched: self.launched.get(),
            launches_failed: self.launches_failed.get(),
            refused: self.refused.get(),
            is_healthy: self.is_healthy(),
        }
    }

    /// A frame of a show was booked, this many seconds after it became ready.
    pub fn booked(&self, show: &str, waited_s: f64) {
        self.stock.booked(show, waited_s);
    }

    /// A host refused a frame, or did not answer for it.
    pub fn launch_failed(&self) {
        self.launches_failed.inc();
        self.stock.launch_failed();
    }

    /// Figures that Cuebot leaves to the scheduler were recounted, in this many seconds.
    pub fn recounted(&self, took_s: f64) {
        self.stock.recounted(took_s);
    }

    /// All of them as text.
    pub fn text(&self) -> String {
        self.load.set(self.latest.lock().load(Instant::now()).unwrap_or(0.0));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}
