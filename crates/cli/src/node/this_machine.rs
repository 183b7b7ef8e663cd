//! This machine's declaration as a worker: its capacity and its attributes.

use windlass_api::{Resources, Worker, WorkerState};
use windlass_core::tags::Attributes;

/// The detected capacity of this machine, overridden by what is given.
pub fn capacity(cpus: Option<f64>, memory: Option<u64>, gpus: Option<u32>) -> windlass_core::Resources {
    let mut capacity = windlass_worker::capacity();
    if let Some(cpus) = cpus {
        capacity.cpu = (cpus * 100.0).round() as u32;
    }
    capacity.memory = memory.unwrap_or(capacity.memory);
    if let Some(gpus) = gpus.filter(|gpus| *gpus != capacity.gpus) {
        // Which of the devices are meant is not known: each counts with the mean of their memory.
        capacity.gpu_memory =
            capacity.gpu_memory.checked_div(capacity.gpus.into()).unwrap_or(0) * u64::from(gpus);
        capacity.gpus = gpus;
    }
    capacity
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
    Worker {
        id: 0,
        name: host.unwrap_or_else(|| "local".to_owned()),
        state: WorkerState::Up,
        note: None,
        capacity: Resources::from_core(&windlass_worker::capacity()),
        booked: Resources::default(),
        attributes,
        running: 0,
        queued: 0,
        epoch: 0,
        connected: None,
        heard_ms: None,
        lease_until_ms: None,
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        load: None,
        core_score: windlass_worker::measure_core(),
        cache_keys: None,
        tasks: None,
    }
}
