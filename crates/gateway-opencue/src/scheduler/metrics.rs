//! Counts of the scheduler, in OpenMetrics text. Names begin as those of OpenCue's own scheduler do, so that panels made
//! for it go on.

use super::rate::BookingRate;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Frames that a host refused, or did not answer for.
    pub(crate) launches_failed: Counter,
    /// Bookings of instances that ended which were taken back.
    pub(crate) recovered: Counter,
    refused: Counter,
    passes_failed: Counter,
    hosts: Gauge,
    layers_waiting: Gauge,
    booked_of_shows: Family<[(&'static str, String); 1], Counter>,
    pass_seconds: Histogram,
    is_failing: AtomicBool,
    latest: Mutex<Latest>,
}

/// The last pass that read the farm, with the time of its end, and the rate of bookings.
#[derive(Default)]
struct Latest {
    pass: Option<(SystemTime, PassCounts)>,
    rate: BookingRate,
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
            layers_waiting: registered(r, "layers_waiting", "Layers with waiting frames"),
            booked_of_shows: registered(r, "frames_dispatched", "Frames that were booked"),
            pass_seconds: {
                let seconds = Histogram::new(PASS_BUCKETS);
                r.register("pass_duration_seconds", "Time of a pass", seconds.clone());
                seconds
            },
            is_failing: AtomicBool::default(),
            latest: Mutex::default(),
            registry,
        }
    }
}

/// A new count, which the text of the registry has from now on.
fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let count = M::default();
    registry.register(name, help, count.clone());
    count
}

impl Metrics {
    /// A pass came to nothing, for the database failed.
    pub fn pass_failed(&self) {
        self.passes_failed.inc();
        self.is_failing.store(true, Ordering::Relaxed);
    }

    /// True if the last pass did not fail.
    pub fn is_healthy(&self) -> bool {
        !self.is_failing.load(Ordering::Relaxed)
    }

    /// Counts a pass that reached the database.
    pub fn passed(&self, counts: PassCounts) {
        self.is_failing.store(false, Ordering::Relaxed);
        self.pass_seconds.observe(counts.took_s);
        self.refused.inc_by(counts.placed - counts.booked);
        self.hosts.set(counts.hosts as i64);
        self.layers_waiting.set(counts.layers as i64);
        let mut latest = self.latest.lock();
        latest.pass = Some((SystemTime::now(), counts));
        latest.rate.add(counts.booked, Instant::now());
    }

    /// The counts that people look at, as they are now.
    pub fn tally(&self) -> Tally {
        let mut latest = self.latest.lock();
        Tally {
            last: latest.pass,
            booked_per_s: latest.rate.per_s(Instant::now()),
            launched: self.launched.get(),
            launches_failed: self.launches_failed.get(),
            refused: self.refused.get(),
            is_healthy: self.is_healthy(),
        }
    }

    /// A frame of a show was booked.
    pub fn booked(&self, show: &str) {
        self.booked_of_shows.get_or_create(&[("show_name", show.to_owned())]).inc();
    }

    /// All of them as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}
