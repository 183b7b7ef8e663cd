//! The log and the traces of a server. Only a build with the feature `otlp` has the code that sends traces
//! (`traces.rs`). Other builds refuse the setting.

#[cfg(not(feature = "otlp"))]
use crate::node::log_level::{LogLevel, start_logging};
#[cfg(not(feature = "otlp"))]
use crate::node::otlp::endpoint_in_environment;

#[cfg(feature = "otlp")]
pub use super::traces::start;

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
