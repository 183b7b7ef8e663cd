//! Hosts, with their registered fields, their last request for work, and their link to the engine.

use super::clients::Session;
use super::link::HostLink;
use crate::boot::BootType;
use crate::format::{Fields, HostRequest, TboxType, is_variable, parse_memory, scalar, text_of, texts};
use crate::record::Reached;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_core::hash::Fnv;
use windlass_core::tags::Attributes;
use windlass_core::{Epoch, JobId, Resources};

/// Hundredths of a core, for a host that does not report its cores. Memory alone limits its jobs then.
const CPU_UNKNOWN: u32 = 6_553_600;

/// Services of one host, and bytes of each.
const SERVICES_MAX: usize = 32;
const SERVICE_BYTES_MAX: usize = 256;

/// The names by which a machine that boots is looked up among the registered hosts, in this order.
#[derive(Clone, Default, Debug)]
pub(crate) struct MachineName {
    pub mac: Option<String>,
    pub hostname: Option<String>,
    pub ip: Option<String>,
}

/// A machine that boots and waits for a job.
pub(crate) struct Machine {
    pub name: MachineName,
    pub arch: Option<String>,
    /// The only host for which the request's token may act; `None` is any host.
    pub worker: Option<String>,
    pub boot: BootType,
    /// The address at which the machine asks again; `None` is the one of this request.
    pub server: Option<String>,
    /// The address by which the machine reached the server.
    pub reached: Reached,
    pub ticket: u64,
    pub reply: oneshot::Sender<BootReply>,
}

/// The answer to a machine that boots.
pub(crate) struct BootReply {
    /// True if `text` starts a job. False if it makes the machine ask again.
    pub found: bool,
    pub text: String,
}

/// A provider's host or a bare machine, which is a worker of the engine.
#[derive(Default)]
pub(crate) struct Host {
    pub name: String,
    /// The registered fields. Empty for a host that was not registered.
    pub info: Fields,
    /// The fields of the host's last request for work, or its reported metrics.
    pub said: Fields,
    pub request: Option<HostRequest>,
    pub(super) heard: Option<Instant>,
    /// The time of the last request for work, in seconds since the Unix epoch.
    pub(super) said_s: u64,
    pub attributes: Attributes,
    pub capacity: Resources,
    pub session: Option<Session>,
    /// The address at which its provider reached this server.
    pub(super) server: String,
    pub ticket: Option<Machine>,
    /// The link to the engine; `None` while the host takes no work.
    pub(super) link: Option<Arc<HostLink>>,
    pub(super) epoch: Epoch,
    pub(super) seq: u64,
    pub(super) incarnation: Option<u64>,
    /// Jobs that the engine took from the host while it was away, with their attempts. The host must end them.
    pub(super) orphans: BTreeMap<JobId, u32>,
}

/// The MAC addresses in a host's fields.
pub(super) fn macs_of(fields: &Fields) -> Vec<String> {
    let all = match fields.get("mac_addr") {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    all.into_iter().map(normal_mac).collect()
}

impl Host {
    pub fn new(name: String, info: Fields) -> Host {
        Host { name, info, ..Host::default() }
    }

    /// The machine's identity for the engine, which depends on its name alone.
    pub(super) fn identity(&self) -> u64 {
        let mut hash = Fnv::default();
        hash.bytes(b"compass-ci:");
        hash.bytes(self.name.as_bytes());
        hash.value()
    }

    /// The attributes by which jobs ask for the host: reported ones, otherwise those of the registered fields.
    pub fn described(&self) -> Attributes {
        if !self.attributes.is_empty() {
            return self.attributes.clone();
        }
        HostRequest::bare_metal(&self.name, &self.info).map(|(attributes, ..)| attributes).unwrap_or_default()
    }

    /// True if the host is registered with this MAC address.
    pub(super) fn has_mac(&self, mac: &str) -> bool {
        macs_of(&self.info).iter().any(|known| known == mac)
    }

    /// False for registered fields of a size of guests, such as `vm-2p8g`.
    pub fn is_machine(&self) -> bool {
        TboxType::of(&self.name) == TboxType::Hw || self.session.is_some() || self.request.is_some()
    }

    /// True if the host is registered with this IP address.
    pub(super) fn has_ip(&self, ip: &str) -> bool {
        self.info.get("ip").and_then(texts).is_some_and(|all| all.iter().any(|known| known == ip))
    }

    /// The addresses at which the host reaches the scheduler.
    pub(super) fn reached(&self) -> Reached {
        if let Some(machine) = self.ticket.as_ref().filter(|_| self.session.is_none()) {
            return machine.reached.clone();
        }
        let said = self.said.get("services").and_then(Value::as_object).into_iter().flatten();
        let services = said.filter_map(|(key, value)| {
            let text = scalar(value).filter(|text| !text.is_empty() && text.len() <= SERVICE_BYTES_MAX)?;
            let fits = is_variable(key) && !text.contains(|c: char| c.is_control() || c.is_whitespace());
            fits.then(|| (key.clone(), text))
        });
        Reached {
            server: self.server.clone(),
            services: services.take(SERVICES_MAX).collect(),
            address: None,
        }
    }

    /// Applies a request for work. True if capacity or attributes changed, which the engine must learn.
    pub(super) fn describe(&mut self, request: HostRequest, held: u64) -> bool {
        let registered = text_of(&self.info, "memory").and_then(|text| parse_memory(&text));
        // Rounded up to a gibibyte, so that small changes of free memory do not change the capacity.
        let seen = request.free_memory.saturating_add(held).div_ceil(1 << 30).saturating_mul(1 << 30);
        let memory = match registered {
            Some(bytes) => bytes.max(request.free_memory),
            None => seen.max(self.capacity.memory),
        };
        let cpu = request.nr_cpu.map_or(CPU_UNKNOWN, |cpus| cpus * 100);
        let (capacity, attributes) = (Resources::new(cpu, memory), request.attributes());
        let changed = capacity != self.capacity || attributes != self.attributes;
        (self.capacity, self.attributes, self.request) = (capacity, attributes, Some(request));
        changed
    }
}

/// A MAC address in the form in which addresses are compared.
pub(super) fn normal_mac(mac: &str) -> String {
    mac.to_ascii_lowercase().replace(':', "-")
}

/// The answer to a machine that was given a job and asks again.
pub(super) enum Again {
    /// The text that starts the job. The machine did not get it the first time.
    Text(String),
    /// The job is not filled in yet. The machine waits.
    Soon,
    /// The machine had the job, and boots because it is over.
    Over,
}
