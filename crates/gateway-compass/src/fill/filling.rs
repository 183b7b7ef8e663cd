//! The fields that the server fills in, made of a job and the host that got it.

use crate::files::LabDir;
use crate::format::{Fields, TboxType, Testbox, parse_memory, scalar, text_of};
use crate::record::BookedHost;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::JobId;

/// The address at which a machine reaches the scheduler, unless its host or the request names one.
pub(crate) const DEFAULT_SERVER: &str = "172.17.0.1:3000";

/// Size of the logical volume of a machine that boots from its own disk.
pub(super) const VOLUME_SIZE: &str = "20G";

/// True for registered fields that only administrators see. They tell how to switch the host's power.
pub(crate) fn is_private(key: &str) -> bool {
    key.starts_with("ipmi") || key.starts_with("bmc") || key.contains("pass")
}

/// Why a job cannot be started as it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Unfilled {
    #[error(
        "there is no kernel for it: the job has no kernel_uri, and this server has no directory of files; \
         set srv of [compass]"
    )]
    WithoutDirectory,
    #[error(
        "there is no kernel for it: neither {0} is in the directory of files; put one there, or give kernel_uri"
    )]
    MissingKernel(String),
    #[error("{0} is not in the directory of files; put it there, or give initrds_uri")]
    MissingInitrd(String),
}

/// A job that a host got, and what is known of the job and of the host.
pub(crate) struct Filling<'a> {
    /// The job's number in Compass CI.
    pub job: JobId,
    /// The job as submitted.
    pub fields: &'a Fields,
    /// The host that has the job.
    pub place: &'a BookedHost,
    /// The host's architecture; `None` if unknown.
    pub arch: Option<&'a str>,
    /// The registered fields of the testbox that the job names.
    pub testbox: &'a Fields,
    /// The directory of files; `None` if the server has none.
    pub dir: Option<&'a LabDir>,
    /// The beginning of URLs; `None` if it is the address by which the host reaches the scheduler.
    pub url: Option<&'a str>,
}

/// A job's operating system, by the fields that name it.
pub(super) struct System {
    pub mount: String,
    pub os: String,
    pub arch: String,
    pub version: String,
    pub osv: String,
}

impl System {
    /// The directory of the system's files: `OS/ARCH/VERSION`.
    pub fn dir(&self) -> String {
        format!("{}/{}/{}", self.os, self.arch, self.version)
    }
}

impl Filling<'_> {
    /// Makes the fields. They hold neither secrets nor the job's token.
    pub fn fill(&self) -> Result<Fields, Unfilled> {
        let mut filled = Fields::new();
        let system = self.system();
        filled.insert("os_arch".to_owned(), system.arch.clone().into());
        filled.insert("host_machine".to_owned(), self.place.host.clone().into());
        filled.insert("services".to_owned(), Value::from_iter(self.services()));
        let hardware = self.hardware();
        filled.insert("hw".to_owned(), Value::Object(hardware));
        filled.extend(self.crashkernel());
        filled.extend(mount_repositories(self.fields));
        if system.mount != "container" {
            self.put_kernel(&system, &mut filled)?;
            filled.insert("kernel_params".to_owned(), self.kernel_params(&system).into());
        }
        if system.mount == "local" && text_of(self.fields, "os_lv_size").is_none() {
            filled.insert("os_lv_size".to_owned(), VOLUME_SIZE.into());
        }
        self.put_initrds(&system, &mut filled)?;
        Ok(filled)
    }

    fn system(&self) -> System {
        let word = |key: &str| text_of(self.fields, key).unwrap_or_default();
        let arch = text_of(self.fields, "os_arch").or_else(|| text_of(self.fields, "arch"));
        let arch = arch.or_else(|| self.arch.map(str::to_owned)).unwrap_or_default();
        let (os, version) = (word("os"), word("os_version"));
        System { mount: word("os_mount"), osv: format!("{os}@{version}"), os, arch, version }
    }

    /// The beginning of the URL of this server's files.
    fn prefix(&self) -> String {
        match self.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => format!("http://{}", self.server()),
        }
    }

    /// The URL of a file beneath the directory of files.
    pub(super) fn url_of(&self, path: &str) -> String {
        format!("{}/srv/{}", self.prefix(), url_path(path))
    }

    /// The address, `HOST:PORT`, at which the host reaches the scheduler: the one that it names, or the one by which it
    /// came.
    fn server(&self) -> String {
        let reached = &self.place.reached;
        let said = reached.services.get("sched_host").map(|host| {
            let port = reached.services.get("sched_port").map_or("3000", String::as_str);
            format!("{host}:{port}")
        });
        let server = said.unwrap_or_else(|| reached.server.clone());
        if server.is_empty() { DEFAULT_SERVER.to_owned() } else { server }
    }

    /// The host part of that address.
    pub(super) fn server_host(&self) -> String {
        let server = self.server();
        server.rsplit_once(':').map_or(server.clone(), |(host, _)| host.to_owned())
    }

    fn services(&self) -> BTreeMap<String, String> {
        let server = self.server();
        let (host, port) = server.rsplit_once(':').unwrap_or((&server, "80"));
        let mut services = BTreeMap::from([
            ("sched_host".to_owned(), host.to_owned()),
            ("sched_port".to_owned(), port.to_owned()),
            ("result_host".to_owned(), host.to_owned()),
            ("result_port".to_owned(), port.to_owned()),
        ]);
        services.extend(self.place.reached.services.clone());
        services
    }

    /// The testbox's hardware: the job's own `hw`, overridden by the testbox's name and booking, overridden by its
    /// registered fields. Memory is in mebibytes, because the scripts that start machines read a number without a unit
    /// as such.
    fn hardware(&self) -> Fields {
        let mut hardware = match self.fields.get("hw") {
            Some(Value::Object(said)) => said.clone(),
            _ => Fields::new(),
        };
        let name = text_of(self.fields, "testbox").unwrap_or_default();
        let named = Testbox::parse(&name).ok();
        let guest = named.as_ref().is_some_and(|testbox| testbox.kind != TboxType::Hw);
        if let Some(cpus) = named.as_ref().and_then(|testbox| testbox.cpus) {
            hardware.insert("nr_cpu".to_owned(), cpus.to_string().into());
        } else if let Some(cpus) = text_of(self.fields, "nr_cpu") {
            hardware.entry("nr_cpu").or_insert_with(|| cpus.into());
        }
        let booked = Some(self.place.memory).filter(|bytes| guest && *bytes > 0);
        if let Some(bytes) = booked.or(named.and_then(|testbox| testbox.memory)) {
            hardware.insert("memory".to_owned(), (bytes >> 20).to_string().into());
        }
        for (key, value) in self.testbox.iter().filter(|(key, _)| !is_private(key)) {
            let text = match value {
                Value::Array(all) => Some(all.iter().filter_map(scalar).collect::<Vec<_>>().join("\n")),
                value => scalar(value),
            };
            // A guest gets the booked memory and not the registered one.
            if let Some(text) = text.filter(|_| key != "memory" || booked.is_none()) {
                hardware.insert(key.clone(), text.into());
            }
        }
        hardware
    }

    /// Memory that the kernel reserves for a crash dump, where the machine is registered.
    fn crashkernel(&self) -> Option<(String, Value)> {
        if self.testbox.is_empty() || text_of(self.fields, "crashkernel").is_some() {
            return None;
        }
        let memory = text_of(self.testbox, "memory")
            .and_then(|text| parse_memory(&text))
            .map_or(0, |bytes| bytes >> 30);
        let reserve = match memory {
            0..=8 => "auto",
            9..=16 => "256M",
            _ => "512M",
        };
        Some(("crashkernel".to_owned(), reserve.into()))
    }
}

/// The repositories that a machine mounts: the local ones, then those of its bootstrap.
fn mount_repositories(fields: &Fields) -> Fields {
    let mut all = Fields::new();
    for key in ["name", "addr", "priority"] {
        let texts = ["local", "bootstrap"].map(|from| text_of(fields, &format!("{from}_mount_repo_{key}")));
        let text = texts.into_iter().flatten().collect::<Vec<_>>().join(" ");
        if !text.is_empty() {
            all.insert(format!("mount_repo_{key}"), text.clone().into());
            all.insert(format!("external_mount_repo_{key}"), text.into());
        }
    }
    all
}

/// A path with the escapes of a URL.
fn url_path(path: &str) -> String {
    let escaped = path.bytes().map(|byte| match byte {
        plain if plain.is_ascii_alphanumeric() || b"_./@+=,:~-".contains(&plain) => {
            char::from(plain).to_string()
        }
        other => format!("%{other:02X}"),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests;
