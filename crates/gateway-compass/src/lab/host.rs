//! A host: what is registered of it, what it says of itself, and how the engine reaches it.

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
use windlass_core::tags::Attributes;
use windlass_core::{Epoch, JobId, Resources};

/// Hundredths of a core of a host that does not say how many it has.
const CPU_UNKNOWN: u32 = 6_553_600;

/// Services that a host may name, and bytes of each.
const SERVICES_MAX: usize = 32;
const SERVICE_BYTES_MAX: usize = 256;

/// By what a machine that boots is known: the first of these by which a host is registered.
#[derive(Clone, Default, Debug)]
pub(crate) struct MachineName {
    pub mac: Option<String>,
    pub hostname: Option<String>,
    pub ip: Option<String>,
}

/// A machine that boots, and asks what.
pub(crate) struct Machine {
    pub name: MachineName,
    pub arch: Option<String>,
    /// The host for which whoever asks may speak; `None` is any.
    pub worker: Option<String>,
    pub boot: BootType,
    /// Where it asks again.
    pub server: Option<String>,
    /// How it came here.
    pub reached: Reached,
    pub ticket: u64,
    pub reply: oneshot::Sender<BootReply>,
}

/// What a machine boots by.
pub(crate) struct BootReply {
    /// It is a job.
    pub found: bool,
    pub text: String,
}

/// A host.
pub(crate) struct Host {
    pub name: String,
    /// As somebody registered it.
    pub info: Fields,
    /// As it said itself last.
    pub said: Fields,
    pub request: Option<HostRequest>,
    pub(super) heard: Option<Instant>,
    /// When it said what is in `request`, in seconds since the Unix epoch.
    pub(super) said_s: u64,
    pub attributes: Attributes,
    pub capacity: Resources,
    pub session: Option<Session>,
    /// Where its provider reached this server.
    pub(super) server: String,
    pub ticket: Option<Machine>,
    /// Set while the engine gives it work.
    pub(super) link: Option<Arc<HostLink>>,
    pub(super) epoch: Epoch,
    pub(super) seq: u64,
    pub(super) incarnation: Option<u64>,
    /// Jobs that are elsewhere by now and must not go on here.
    pub(super) orphans: BTreeMap<JobId, u32>,
}

/// The addresses of a host's network interfaces.
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
        Host {
            name,
            info,
            said: Fields::new(),
            request: None,
            heard: None,
            said_s: 0,
            attributes: Attributes::new(),
            capacity: Resources::default(),
            session: None,
            server: String::new(),
            ticket: None,
            link: None,
            epoch: Epoch(0),
            seq: 0,
            incarnation: None,
            orphans: BTreeMap::new(),
        }
    }

    /// The machine's number: the same for the same name.
    pub(super) fn identity(&self) -> u64 {
        // FNV-1a: any function of the name will do that is the same in every release.
        let name = b"compass-ci:".iter().chain(self.name.as_bytes());
        name.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    }

    /// What it is, for jobs to be held against: what it said, or what somebody registered.
    pub fn described(&self) -> Attributes {
        if !self.attributes.is_empty() {
            return self.attributes.clone();
        }
        HostRequest::bare_metal(&self.name, &self.info).map(|(attributes, ..)| attributes).unwrap_or_default()
    }

    /// True if one of its network addresses is this.
    pub(super) fn has_mac(&self, mac: &str) -> bool {
        macs_of(&self.info).iter().any(|known| known == mac)
    }

    /// False of what is registered of a size of guests, such as `vm-2p8g`.
    pub fn is_machine(&self) -> bool {
        TboxType::of(&self.name) == TboxType::Hw || self.session.is_some() || self.request.is_some()
    }

    /// True if it is registered at this address.
    pub(super) fn has_ip(&self, ip: &str) -> bool {
        self.info.get("ip").and_then(texts).is_some_and(|all| all.iter().any(|known| known == ip))
    }

    /// How it reaches the scheduler.
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

    /// Takes in what it asks for work by. True if the engine must be told what it is.
    pub(super) fn describe(&mut self, request: HostRequest, held: u64) -> bool {
        let registered = text_of(&self.info, "memory").and_then(|text| parse_memory(&text));
        // By the gibibyte, so that small changes of what is free are none of what it has.
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

/// A network address as it is compared.
pub(super) fn normal_mac(mac: &str) -> String {
    mac.to_ascii_lowercase().replace(':', "-")
}

/// What a machine gets that was given a job and asks again.
pub(super) enum Again {
    /// The job that it was given, for it never got it.
    Text(String),
    /// The same, once it is filled in.
    Soon,
    /// It had that job.
    Over,
}
