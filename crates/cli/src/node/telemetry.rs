//! Log lines of servers and workers, and where traces of a server go. Only a build with the feature `otlp` has the code
//! that sends them (`traces.rs`); others refuse the setting.

use crate::node::log_level::{LogLevel, log_lines};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[cfg(feature = "otlp")]
pub use super::traces::start;

/// The variables by which all programs with OTLP are told where traces go.
pub const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variable among them that is set.
pub fn endpoint_in_environment() -> Option<&'static str> {
    ENDPOINTS.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Writes log lines to standard error. `setting` is what is logged where `WINDLASS_LOG` does not say.
pub fn start_logging(setting: Option<&str>) -> LogLevel {
    let (lines, level) = log_lines(setting);
    tracing_subscriber::registry().with(lines).init();
    level
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
pub fn start(config: &windlass_server::TelemetryConfig) -> anyhow::Result<(NoTraces, LogLevel)> {
    const BUILD: &str = "'cargo build --release --locked --features windlass-cli/otlp' makes one that can";
    anyhow::ensure!(
        config.otlp.is_none(),
        "telemetry.otlp is set, and this build of windlass cannot send traces; {BUILD}"
    );
    let level = start_logging(config.log.as_deref());
    if let Some(name) = endpoint_in_environment() {
        tracing::warn!("{name} is set, and this build of windlass cannot send traces; {BUILD}");
    }
    Ok((NoTraces, level))
}
