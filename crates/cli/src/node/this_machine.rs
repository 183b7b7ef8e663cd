//! This machine's declaration as a worker: its capacity and its attributes.

use windlass_api::{Resources, Worker, WorkerState};
use windlass_core::tags::Attributes;
use windlass_worker::{AskedGpus, BadGpuDevices, GpuDevice};

/// What this machine gives to tasks.
pub struct Offer {
    /// The detected capacity, overridden by what is given.
    pub capacity: windlass_core::Resources,
    /// The names of its gpus; `None` if nothing is known of any.
    pub gpu_devices: Option<Vec<String>>,
}

impl Offer {
    /// What the operator gives of this machine.
    ///
    /// # Errors
    /// If the operator names gpus that it does not have.
    pub fn of_this_machine(
        cpus: Option<f64>,
        memory: Option<u64>,
        gpus: &AskedGpus,
    ) -> Result<Offer, BadGpuDevices> {
        let devices = windlass_worker::usable_gpus(gpus)?;
        let mut capacity = windlass_worker::capacity(devices.as_deref().unwrap_or_default());
        if let Some(cpus) = cpus {
            capacity.cpu = (cpus * 100.0).round() as u32;
        }
        capacity.memory = memory.unwrap_or(capacity.memory);
        let names = |devices: Vec<GpuDevice>| devices.into_iter().map(|device| device.name).collect();
        Ok(Offer { capacity, gpu_devices: devices.map(names) })
    }
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
    let gpus = windlass_worker::usable_gpus(&AskedGpus::here(None, None)).ok().flatten().unwrap_or_default();
    Worker {
        id: 0,
        name: host.unwrap_or_else(|| "local".to_owned()),
        state: WorkerState::Up,
        note: None,
        capacity: Resources::from_core(&windlass_worker::capacity(&gpus)),
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
