//! Log lines of servers and workers, and where traces of a server go. Only a build with the feature `otlp` has the code
//! that sends them (`traces.rs`); others refuse the setting.

use std::io::IsTerminal as _;
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt};

#[cfg(feature = "otlp")]
pub use super::traces::start;

/// The variables by which all programs with OTLP are told where traces go.
pub const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variable among them that is set.
pub fn endpoint_in_environment() -> Option<&'static str> {
    ENDPOINTS.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Writes log lines to standard error, filtered by `WINDLASS_LOG`.
pub fn start_logging() {
    tracing_subscriber::registry().with(log_lines()).init();
}

/// The log lines as a part of a subscriber.
pub fn log_lines<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let filter = EnvFilter::try_from_env("WINDLASS_LOG");
    fmt::layer()
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_writer(std::io::stderr)
        // Otherwise it reports failed writes on standard error, and panics if that fails too, as on a full disk.
        .log_internal_errors(false)
        .with_filter(filter.unwrap_or_else(|_| EnvFilter::new("info,refinery_core=warn,tokio_postgres=warn")))
}

/// Traces that this build cannot send.
#[cfg(not(feature = "otlp"))]
pub struct NoTraces;

#[cfg(not(feature = "otlp"))]
impl NoTraces {
    /// Nothing is left to send.
    pub async fn finish(self) {}
}

/// Starts the log. A setting that cannot be followed is refused. The variables may be meant for other programs of the
/// machine, so they only make a warning.
#[cfg(not(feature = "otlp"))]
pub fn start(config: &windlass_server::TelemetryConfig) -> anyhow::Result<NoTraces> {
    const BUILD: &str = "'cargo build --release --locked --features windlass-cli/otlp' makes one that can";
    anyhow::ensure!(
        config.otlp.is_none(),
        "telemetry.otlp is set, and this build of windlass cannot send traces; {BUILD}"
    );
    start_logging();
    if let Some(name) = endpoint_in_environment() {
        tracing::warn!("{name} is set, and this build of windlass cannot send traces; {BUILD}");
    }
    Ok(NoTraces)
}
