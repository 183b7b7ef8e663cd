//! This machine's declaration as a worker: its capacity and its attributes.

use crate::ui::message::message;
use windlass_api::{Resources, Worker, WorkerState};
use windlass_core::tags::Attributes;
use windlass_worker::{Detected, GPUS_START_WAIT, GPUS_TOLD_WAIT};

/// The detected capacity of this machine, overridden by what is given. The driver of gpus has 3 s to answer.
pub fn capacity(cpus: Option<f64>, memory: Option<u64>, gpus: Option<u32>) -> Detected {
    let mut detected = windlass_worker::capacity(gpus, GPUS_START_WAIT);
    if let Some(cpus) = cpus {
        detected.capacity.cpu = (cpus * 100.0).round() as u32;
    }
    detected.capacity.memory = memory.unwrap_or(detected.capacity.memory);
    detected
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
    let Detected { capacity, late_gpus } = windlass_worker::capacity(None, GPUS_TOLD_WAIT);
    if late_gpus.is_some() {
        message!("note: nvidia-smi has not answered within 10 s: this machine's gpus are unknown");
    }
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
        load: None,
        core_score: windlass_worker::measure_core(),
        cache_keys: None,
        tasks: None,
    }
}
