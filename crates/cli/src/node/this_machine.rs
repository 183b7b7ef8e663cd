//! This machine's declaration as a worker: its capacity and its attributes.

use crate::ui::message::message;
use windlass_api::{Resources, Worker, WorkerState};
use windlass_core::tags::Attributes;
use windlass_worker::{AskedGpus, Detected, GpusFor, NoGpus};

/// What this machine gives to tasks, overridden by what is given. The driver of gpus has 3 s to answer.
///
/// # Errors
/// If the operator names gpus that it does not have.
pub fn offer(cpus: Option<f64>, memory: Option<u64>, gpus: &AskedGpus) -> Result<Detected, NoGpus> {
    let mut detected = windlass_worker::capacity(gpus, GpusFor::Start)?;
    if let Some(cpus) = cpus {
        detected.capacity.cpu = (cpus * 100.0).round() as u32;
    }
    detected.capacity.memory = memory.unwrap_or(detected.capacity.memory);
    Ok(detected)
}

/// The detected attributes of this machine, and tags: `key` or `key=value`.
pub fn attributes(tags: &[String]) -> Attributes {
    let mut attributes = windlass_worker::attributes();
    for tag in tags {
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        let values = attributes.entry(key.to_owned()).or_default();
        values.extend((!value.is_empty()).then(|| value.to_owned()));
    }
    attributes
}

/// This machine as a worker, with the detected capacity and attributes.
pub fn detect() -> Worker {
    let attributes = windlass_worker::attributes();
    let host = attributes.get("host").and_then(|names| names.first().cloned());
    // Nothing is asked for that could be refused.
    let detected = windlass_worker::capacity(&AskedGpus::here(None, None), GpusFor::Person).ok();
    if detected.as_ref().is_some_and(|detected| detected.late_gpus.is_some()) {
        message!("note: nvidia-smi has not answered within 10 s: this machine's gpus are unknown");
    }
    let capacity = detected.map(|detected| detected.capacity).unwrap_or_default();
    Worker {
        id: 0,
        name: host.unwrap_or_else(|| "local".to_owned()),
        state: WorkerState::Up,
        note: None,
        capacity: Resources::from_core(&capacity),
        booked: Resources::default(),
        attributes,
        running: 0,
        queued: 0,
        epoch: 0,
        connected: None,
        heard_ms: None,
        lease_until_ms: None,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        token_expires_ms: None,
        token_ends_soon: false,
        load: None,
        core_score: windlass_worker::measure_core(),
        cache_keys: None,
        tasks: None,
    }
}
