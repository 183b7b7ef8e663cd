//! How hosts connect, ask for work, boot, fall silent and are registered, and what the engine is told of them.

use super::clients::Session;
use super::host::{Again, BootReply, Host, Machine, MachineName, macs_of, normal_mac};
use super::link::HostLink;
use super::run::finished;
use super::{Effect, Lab};
use crate::format::{BOX, Fields, Health, HostRequest};
use crate::number::task_of;
use crate::record::Record;
use crate::time::now_s;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::bounds::{SUSPECT_NS, WORKERS_MAX};
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{CheckedHello, Held, HeldPhase, Hello, Inventory};
use windlass_core::load::pressure::LoadReport;
use windlass_core::worker::Origin;
use windlass_core::{Epoch, JobId, Resources, Time};
use windlass_server::{WorkerLink as _, WorkerMessage};
use windlass_store::ForeignWrite;

/// The age at which a host's report of free memory expires. After that the host counts as having none.
const FREE_FOR: Duration = Duration::from_secs(10);
/// The silence after which a provider's socket is closed and the host gets no work.
const SILENT_FOR: Duration = Duration::from_nanos(SUSPECT_NS);
/// Bytes of memory of a machine whose memory is neither registered nor in its name.
const MEMORY_UNKNOWN: u64 = 1 << 50;

impl Lab {
    /// A provider connected. It replaces an earlier connection of the same name.
    pub(super) fn opened(&mut self, name: String, session: Session, server: String) {
        if !self.hosts.contains_key(&name) && self.hosts.len() >= WORKERS_MAX {
            return;
        }
        let host = self.hosts.entry(name.clone()).or_insert_with(|| Host::new(name.clone(), Fields::new()));
        // Messages of two connections may arrive in the wrong order. The later connection stays.
        if host.session.as_ref().is_some_and(|known| known.id > session.id) {
            return;
        }
        (host.session, host.server) = (Some(session), server);
        host.heard = Some(Instant::now());
        self.go_down(&name);
    }

    pub(super) fn closed(&mut self, name: &str, session: u64) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        if host.session.as_ref().is_some_and(|known| known.id == session) {
            host.session = None;
            self.go_down(name);
        }
    }

    /// Applies a provider's request for work. True if the host was greeted again, because it was away or has changed.
    pub(super) fn requested(&mut self, name: &str, session: u64, fields: Fields) -> bool {
        let held = self.runs.memory_on(name, None);
        let Some(host) = self.hosts.get_mut(name) else { return false };
        let Some(speaker) = host.session.clone().filter(|known| known.id == session) else { return false };
        let request = match HostRequest::parse(&fields) {
            Ok(request) if request.hostname == name => request,
            bad => {
                let why =
                    bad.err().map_or("hostname is not that of the path".to_owned(), |bad| bad.to_string());
                complain(&speaker, &why);
                return false;
            }
        };
        let before = host.request.as_ref();
        let rebooted = before.and_then(|b| b.uptime_minutes) > request.uptime_minutes
            && request.uptime_minutes.is_some();
        let cached = before.map(|before| &before.cache_dirs) != Some(&request.cache_dirs);
        let changed = host.describe(request, held);
        (host.heard, host.said_s, host.said) = (Some(Instant::now()), now_s(), fields);
        if rebooted {
            self.rebooted(name);
        }
        let again = changed || rebooted || self.hosts.get(name).is_some_and(|host| host.link.is_none());
        if again {
            self.say_hello(name);
            self.repeat_kills(name);
        }
        let mut messages = Vec::new();
        if cached && let Some(request) = self.hosts.get(name).and_then(|host| host.request.as_ref()) {
            messages.push(WorkerMessage::Caches(CacheKeys::of(request.cache_dirs.iter())));
        }
        messages.extend(self.free(name, true));
        self.tell(name, messages);
        again
    }

    /// The report of a host's free memory, and of the memory that its jobs already hold of it.
    fn free(&self, name: &str, fresh: bool) -> Option<WorkerMessage> {
        let host = self.hosts.get(name).filter(|host| host.link.is_some())?;
        let request = host.request.as_ref()?;
        let (free, own) = match fresh {
            true => (request.free_memory, self.runs.memory_on(name, Some(host.said_s))),
            false => (0, 0),
        };
        let report =
            LoadReport { memory_available: Some(free), memory_own: Some(own), ..LoadReport::default() };
        Some(WorkerMessage::Load(Box::new(report)))
    }

    pub(super) fn tick_hosts(&mut self, at: Instant) {
        let silent = |host: &Host| host.heard.is_some_and(|heard| at.duration_since(heard) >= SILENT_FOR);
        let provider = self.hosts.values().filter(|host| host.session.is_some());
        let providers: Vec<(String, bool, bool)> = provider
            .map(|host| {
                let fresh = host.heard.is_some_and(|heard| at.duration_since(heard) < FREE_FOR);
                (host.name.clone(), fresh, silent(host))
            })
            .collect();
        for (name, fresh, silent) in providers {
            if silent {
                tracing::warn!(
                    "provider '{name}' is silent: it is disconnected, and its jobs stay where they are"
                );
                if let Some(host) = self.hosts.get_mut(&name) {
                    host.session = None;
                }
                self.go_down(&name);
            } else {
                // Reported each second, because the engine takes an older report for unknown.
                let free = self.free(&name, fresh);
                self.tell(&name, free.into_iter().collect());
            }
        }
    }

    /// The machine restarted, so all jobs on it have ended.
    fn rebooted(&mut self, name: &str) {
        let gone: Vec<JobId> = self.runs.open_on(name).map(|(job, _)| job).collect();
        tracing::warn!("host '{name}' restarted: {} jobs ended with it", gone.len());
        for job in gone {
            self.forget_run(job);
        }
        let Some(host) = self.hosts.get_mut(name) else { return };
        host.orphans.clear();
        host.incarnation = host.incarnation.map(|number| number.wrapping_add(1));
    }

    /// Tells the engine what a host is and holds, and that it takes work.
    pub(super) fn say_hello(&mut self, name: &str) {
        let (id, lab) = (self.handle.next_link(), self.itself.clone());
        let Some(host) = self.hosts.get_mut(name) else { return };
        let link = HostLink { id, host: name.to_owned(), lab };
        let link = host.link.get_or_insert_with(|| Arc::new(link)).clone();
        if let Some((hello, mut ended)) = self.hello(name, &link) {
            // In one batch. In a round between the messages all of the host would seem free.
            let mut messages = vec![hello];
            messages.append(&mut ended);
            let request = self.hosts.get(name).and_then(|host| host.request.as_ref());
            messages.extend(
                request.map(|request| WorkerMessage::Caches(CacheKeys::of(request.cache_dirs.iter()))),
            );
            messages.extend(self.free(name, true));
            self.tell(name, messages);
        }
    }

    /// The hello of a host, and the ends of its jobs that the engine has not acknowledged.
    fn hello(&mut self, name: &str, link: &Arc<HostLink>) -> Option<(WorkerMessage, Vec<WorkerMessage>)> {
        let known = self.known.get(name).map(|(incarnation, ..)| *incarnation);
        let host = self.hosts.get_mut(name)?;
        let identity = host.identity();
        let incarnation = *host.incarnation.get_or_insert(known.unwrap_or(identity));
        let (mut held, mut ended) = (Vec::new(), Vec::new());
        for (job, run) in self.runs.on(name).filter(|(_, run)| !run.acknowledged) {
            let (task, attempt) = (task_of(job), run.place().attempt);
            let phase = match &run.told {
                Some(_) => HeldPhase::Ended,
                None => HeldPhase::Running(dispatched(&run.record)),
            };
            held.push(Held { task, attempt, phase });
            ended.extend(
                run.told.clone().map(|result| finished(task, run.place().attempt, run.epoch(), result)),
            );
        }
        let host = self.hosts.get(name)?;
        let hello = Hello {
            name: name.to_owned(),
            identity,
            incarnation,
            // A silent host does not end its jobs when a lease expires, so the engine must not assume their end.
            fences: false,
            sent: 0,
            new_link: true,
            capacity: host.capacity.clone(),
            attributes: host.attributes.clone(),
            inventory: Inventory { seq: host.seq, held },
        };
        match CheckedHello::of_gateway(Origin::Compass, hello) {
            Ok(hello) => Some((WorkerMessage::Hello { hello, link: link.clone() }, ended)),
            Err(why) => {
                link.refuse(&why.to_string());
                None
            }
        }
    }

    /// The host gets no work for now. Its jobs go on.
    pub(super) fn go_down(&mut self, name: &str) {
        let Some(link) = self.hosts.get_mut(name).and_then(|host| host.link.take()) else { return };
        let (host, messages) = (name.to_owned(), vec![WorkerMessage::Lost]);
        self.effects.push(Effect::Tell { host, link: Some(link), messages });
    }

    /// Sends messages to the engine in the name of a host, whether it takes work or not.
    pub(super) async fn tell_now(
        &mut self,
        name: &str,
        link: Option<Arc<HostLink>>,
        messages: Vec<WorkerMessage>,
    ) {
        if let Some(link) = link {
            self.handle.worker_tells(link.id, messages).await;
            return;
        }
        let (id, lab) = (self.handle.next_link(), self.itself.clone());
        let link = Arc::new(HostLink { id, host: name.to_owned(), lab });
        self.describe_as_known(name);
        let Some((hello, _)) = self.hello(name, &link) else { return };
        // In one batch. In a round between the messages the host would be given work.
        let mut all = vec![hello];
        all.extend(messages);
        all.push(WorkerMessage::Lost);
        self.handle.worker_tells(id, all).await;
    }

    /// The engine refused a host, or another connection of the host replaced this link.
    pub(super) fn refused(&mut self, name: &str, link: u64, why: &str) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        if host.link.as_ref().is_none_or(|known| known.id != link) {
            return;
        }
        tracing::warn!("host '{name}' is not taken: {why}");
        host.link = None;
        if let Some(session) = host.session.take() {
            complain(&session, why);
        }
    }

    /// Registers a host, or takes in its metrics.
    pub(super) fn register(&mut self, name: String, fields: Fields, metrics: bool) -> Result<(), String> {
        if !self.hosts.contains_key(&name) && self.hosts.len() >= WORKERS_MAX {
            return Err(format!("there are {WORKERS_MAX} hosts already"));
        }
        if name.contains('/') {
            return Err(format!("a host's name has no '/', and '{name}' has one"));
        }
        HostRequest::bare_metal(&name, &fields).map_err(|bad| bad.to_string())?;
        if let Some((mac, other)) = self.others_mac(&name, &fields) {
            return Err(format!(
                "mac_addr {mac} is the one of host '{other}'; register that without it first"
            ));
        }
        let host = self.hosts.entry(name.clone()).or_insert_with(|| Host::new(name.clone(), Fields::new()));
        if metrics {
            // Metrics change by the second and are not stored.
            host.said.extend(fields);
            return Ok(());
        }
        host.info = fields;
        let doc = Value::Object(host.info.clone()).to_string();
        self.writes.push(ForeignWrite::Host { name, doc });
        Ok(())
    }

    /// A MAC address in the fields that another host is registered with, and that host's name. A machine is looked up
    /// by its address when it boots, so an address belongs to one host.
    fn others_mac(&self, name: &str, fields: &Fields) -> Option<(String, &str)> {
        macs_of(fields).into_iter().find_map(|mac| {
            let other = self.hosts.values().find(|host| host.name != name && host.has_mac(&mac))?;
            Some((mac, other.name.as_str()))
        })
    }

    /// Restores capacity and attributes of a host that has not reported since the server started.
    fn describe_as_known(&mut self, name: &str) {
        let Some(host) = self.hosts.get_mut(name).filter(|host| host.attributes.is_empty()) else { return };
        match self.known.get(name) {
            Some((_, capacity, attributes)) => {
                (host.capacity, host.attributes) = (capacity.clone(), attributes.clone());
            }
            None => self.describe_registered(name, None),
        }
    }

    /// Takes capacity and attributes of bare metal from the registered fields.
    fn describe_registered(&mut self, name: &str, arch: Option<&str>) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        let Ok((mut attributes, cpus, memory)) = HostRequest::bare_metal(name, &host.info) else { return };
        if let Some(arch) = arch.filter(|arch| !arch.is_empty()) {
            // Boot loaders say `arm64` where operating systems say `aarch64`.
            let arch = if arch == "arm64" { "aarch64" } else { arch };
            attributes.entry("arch".to_owned()).or_insert_with(|| BTreeSet::from([arch.to_owned()]));
        }
        host.attributes = attributes;
        host.capacity = Resources {
            custom: BTreeMap::from([(BOX.to_owned(), 1)]),
            ..Resources::new(cpus.map_or(100, |cpus| cpus * 100), memory.unwrap_or(MEMORY_UNKNOWN))
        };
    }

    /// The registered host that a machine is, among those for which its token may act.
    fn registered(&self, machine: &Machine) -> Option<String> {
        let may = |host: &&Host| machine.worker.as_ref().is_none_or(|name| *name == host.name);
        let hosts = || self.hosts.values().filter(may);
        let MachineName { mac, hostname, ip } = &machine.name;
        let by_mac =
            mac.as_ref().map(|mac| normal_mac(mac)).and_then(|mac| hosts().find(|host| host.has_mac(&mac)));
        // Neither a provider's host nor one that was not registered boots from here.
        let registered = |host: &&Host| !host.info.is_empty() && host.session.is_none();
        let by_name = || hosts().filter(registered).find(|host| hostname.as_ref() == Some(&host.name));
        let by_ip = || ip.as_ref().and_then(|ip| hosts().filter(registered).find(|host| host.has_ip(ip)));
        by_mac.or_else(by_name).or_else(by_ip).map(|host| host.name.clone())
    }

    /// A machine boots. Any job that it had before is over.
    pub(super) async fn booting(&mut self, machine: Machine) {
        let Some(name) = self.registered(&machine) else {
            let why = "No job now: this machine is not registered";
            let text = machine.boot.no_job(why, machine.server.as_deref());
            return self.after(move || _ = machine.reply.send(BootReply { found: false, text }));
        };
        let here: Vec<JobId> = self.runs.open_on(&name).map(|(job, _)| job).collect();
        for job in here {
            match self.boot_again(job, machine.boot).await {
                Again::Text(text) => {
                    return self.after(move || _ = machine.reply.send(BootReply { found: true, text }));
                }
                Again::Soon => {
                    let before = self.hosts.get_mut(&name).and_then(|host| host.ticket.replace(machine));
                    before.into_iter().for_each(give_up);
                    return self.fill(job).await;
                }
                // The machine booted again, so the job is over.
                Again::Over => self.end_run(job, Health::Abort),
            }
        }
        self.describe_registered(&name, machine.arch.as_deref());
        let Some(host) = self.hosts.get_mut(&name) else { return };
        if let Some(before) = host.ticket.replace(machine) {
            give_up(before);
        }
        self.say_hello(&name);
    }

    /// A machine stopped waiting.
    pub(super) fn left(&mut self, ticket: u64) {
        let waits = |host: &&mut Host| host.ticket.as_ref().is_some_and(|machine| machine.ticket == ticket);
        let Some(host) = self.hosts.values_mut().find(waits) else { return };
        let name = host.name.clone();
        if let Some(machine) = host.ticket.take() {
            give_up(machine);
        }
        self.go_down(&name);
    }

    pub(super) fn epoch_of(&self, name: &str) -> Epoch {
        self.hosts.get(name).map_or(Epoch(0), |host| host.epoch)
    }
}

/// Answers a machine that it has to ask again later.
fn give_up(machine: Machine) {
    let text = machine.boot.no_job("No job now", machine.server.as_deref());
    _ = machine.reply.send(BootReply { found: false, text });
}

/// Tells a provider why its message was refused.
fn complain(session: &Session, why: &str) {
    _ = session.send(json!({"type": "error", "message": why}).to_string());
}

/// The time at which a job was given to its host.
fn dispatched(record: &Record) -> Time {
    Time(record.times.get("dispatch").copied().unwrap_or(0).saturating_mul(1_000_000_000))
}
