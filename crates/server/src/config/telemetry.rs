//! Where traces go.

use serde::Deserialize;

/// Where traces of the server go.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// The URL of a collector that takes traces by OTLP over HTTP, such as `http://127.0.0.1:4318`; absent is what
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` names, if it is set. Needs a build with the feature `otlp`.
    pub otlp: Option<String>,
}

impl TelemetryConfig {
    /// Says what makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_url = |url: &str| {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            rest.is_some_and(|rest| {
                !rest.is_empty() && !rest.starts_with('/') && !rest.contains([' ', '?', '#'])
            })
        };
        match self.otlp.as_deref().filter(|url| !is_url(url)) {
            Some(url) => Err(format!("telemetry.otlp must be http(s)://HOST:PORT, not '{url}'")),
            None => Ok(()),
        }
    }
}
