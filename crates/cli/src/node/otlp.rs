//! The environment variables of OTLP.

/// The variables by which all programs with OTLP are told where traces go.
pub const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variable among them that is set.
pub fn endpoint_in_environment() -> Option<&'static str> {
    ENDPOINTS.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}
