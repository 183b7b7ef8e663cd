//! Sends the server's [spans](windlass_server::SPANS) to a collector, by OTLP over HTTP.
//!
//! - A thread of the SDK sends batches. What does not fit its queue is dropped: a slow collector never delays the server.
//! - Warnings and errors inside a span go along as its events.
//! - The variables of OpenTelemetry apply: headers, timeouts, the sampler, the size of batches, the service's name.

use crate::node::log_level::{LogLevel, log_lines, start_logging};
use crate::node::otlp::endpoint_in_environment;
use anyhow::Context as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, Key, KeyValue, Value};
use opentelemetry_otlp::{Protocol, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::Metadata;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use windlass_server::{SPANS, TelemetryConfig};

/// How long the last spans may take when the server ends.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The path of traces below a collector's URL.
const TRACES_PATH: &str = "/v1/traces";

/// Traces that are sent, if there is a collector.
pub struct Traces {
    provider: Option<SdkTracerProvider>,
}

/// Starts the log and, if a collector is named, traces. The setting goes before the variables.
pub fn start(config: &TelemetryConfig) -> anyhow::Result<(Traces, LogLevel)> {
    let to = match (&config.otlp, endpoint_in_environment()) {
        (Some(url), _) => url.clone(),
        (None, Some(name)) => format!("the collector of {name}"),
        (None, None) => {
            return Ok((Traces { provider: None }, start_logging(config.log.as_deref())));
        }
    };
    let builder = opentelemetry_otlp::SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let builder = match &config.otlp {
        Some(url) => builder.with_endpoint(format!("{}{TRACES_PATH}", url.trim_end_matches('/'))),
        // The exporter reads the variables.
        None => builder,
    };
    let exporter = builder.build().context("cannot send traces")?;
    let exporter = LoggedExporter { exporter, to: to.clone(), is_failing: AtomicBool::new(false) };
    let provider = SdkTracerProvider::builder()
        .with_span_processor(WithoutIdleRounds(BatchSpanProcessor::builder(exporter).build()))
        .with_resource(resource())
        .build();
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("windlass"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(is_traced));
    let (lines, level) = log_lines(config.log.as_deref());
    tracing_subscriber::registry().with(lines).with(spans).init();
    tracing::info!("traces are sent to {to}");
    Ok((Traces { provider: Some(provider) }, level))
}

impl Traces {
    /// Sends the last spans.
    pub async fn finish(self) {
        let Some(provider) = self.provider else { return };
        // It blocks, and what it waits for was logged where it failed.
        _ = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_MAX)).await;
    }
}

/// The server's spans, and what goes wrong inside them.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    match metadata.is_span() {
        true => metadata.target() == SPANS,
        false => *metadata.level() <= tracing::Level::WARN,
    }
}

/// The name of the sender: `windlass`, unless the variables name the service otherwise.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let detected = Resource::builder().with_attribute(version.clone()).build();
    let is_named = detected
        .get(&Key::from_static_str("service.name"))
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    match is_named {
        true => detected,
        false => Resource::builder().with_attribute(version).with_service_name("windlass").build(),
    }
}

/// Leaves out rounds that booked nothing, of which there may be thousands a second.
#[derive(Debug)]
struct WithoutIdleRounds(BatchSpanProcessor);

impl SpanProcessor for WithoutIdleRounds {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        let is_idle =
            |attribute: &KeyValue| attribute.key.as_str() == "bookings" && attribute.value == Value::I64(0);
        if !span.attributes.iter().any(is_idle) {
            self.0.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// Says once in the log that spans cannot be sent, and once that they are again.
#[derive(Debug)]
struct LoggedExporter {
    exporter: opentelemetry_otlp::SpanExporter,
    /// The collector, as the log names it.
    to: String,
    is_failing: AtomicBool,
}

impl SpanExporter for LoggedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        let failed_before = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !failed_before => {
                tracing::warn!(
                    "{spans} spans cannot be sent to {}, and neither can those that follow: {error}",
                    self.to
                );
            }
            Ok(()) if failed_before => tracing::info!("spans are sent to {} again", self.to),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
