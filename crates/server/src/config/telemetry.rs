//! Where traces go, and what is logged.

use super::setting::settings;

/// What may be logged, from least to most.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

settings! {
    /// Traces for a collector, and the server's own log.
    pub struct TelemetryConfig {
        /// The URL of a collector that takes [traces](../board.md#traces) by OTLP over HTTP, such as
        /// `http://127.0.0.1:4318`. By default what `OTEL_EXPORTER_OTLP_ENDPOINT` names, if it is set. Needs a build with
        /// the feature `otlp`.
        otlp: Option<String> = None;
        /// What is logged: `error`, `warn`, `info`, `debug` or `trace`, for all or by part, as in
        /// `info,windlass_store=debug`. The variable `WINDLASS_LOG` goes before it.
        log: Option<String> = None;
    }
}

impl TelemetryConfig {
    /// Says what makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(log) = &self.log {
            let is_level = |part: &str| {
                let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
                LEVELS.contains(&level.trim().to_ascii_lowercase().as_str())
            };
            if !log.split(',').all(is_level) {
                let levels = LEVELS.join(", ");
                return Err(format!(
                    "telemetry.log must be levels ({levels}), alone or as PART=LEVEL, not '{log}'"
                ));
            }
        }
        match self.otlp.as_deref().filter(|url| !is_url(url)) {
            Some(url) => Err(format!("telemetry.otlp must be http(s)://HOST:PORT, not '{url}'")),
            None => Ok(()),
        }
    }
}

fn is_url(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains([' ', '?', '#']))
}
