//! How a machine learns which job to start: the message to a provider, or the text for a boot loader.

use crate::fill::job_archive_path;
use crate::format::{Fields, TboxType, parse_memory, text_of};
use crate::record::BookedHost;
use serde_json::{Value, json};
use windlass_core::JobId;

/// The suites, by the beginning of their names, whose jobs may bring a boot script of their own.
const OWN_SCRIPT_SUITES: &str = "install-iso";
/// The port to which older machines upload results, unless the job's services name one.
const WEBDAV_PORT: &str = "3080";

/// A job that a machine is to start.
pub(crate) struct Boot<'a> {
    pub job: JobId,
    /// The fields that the machine may read.
    pub fields: &'a Fields,
    pub place: &'a BookedHost,
}

/// The form in which a machine asks for its boot script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BootType {
    Ipxe,
    Grub,
    Native,
    Libvirt,
}

impl BootType {
    pub fn parse(word: &str) -> Option<BootType> {
        Some(match word {
            "ipxe" => BootType::Ipxe,
            "grub" => BootType::Grub,
            "native" => BootType::Native,
            "libvirt" => BootType::Libvirt,
            _ => return None,
        })
    }

    /// The answer to a machine for which there is no job. It makes the machine ask again, at `server` if the machine
    /// named one, otherwise with the scheme, port and password of this request.
    pub fn no_job(self, why: &str, server: Option<&str>) -> String {
        let server = server.map(|server| format!("http://{server}")).unwrap_or_default();
        match self {
            BootType::Native => json!({"job_id": "0"}).to_string(),
            BootType::Libvirt => json!({"job_id": ""}).to_string(),
            BootType::Grub => format!("#!grub\necho ...\necho {why}\necho ...\nsleep 5\nreboot\n"),
            BootType::Ipxe => format!(
                "#!ipxe\necho ...\necho {why}\necho ...\nchain {server}/boot.ipxe/mac/${{mac:hexhyp}}\
                 ?arch=${{buildarch}}&hostname=${{hostname}}&ip=${{net0/ip}}\n"
            ),
        }
    }
}

impl Boot<'_> {
    pub fn result_root(&self) -> String {
        text_of(self.fields, "result_root").unwrap_or_default()
    }

    /// The message by which a provider starts the job.
    pub fn message(&self) -> String {
        let kind = if self.place.dc { TboxType::Dc } else { TboxType::Vm };
        let mut message = Fields::new();
        let mut put = |key: &str, value: String| _ = message.insert(key.to_owned(), Value::from(value));
        put("type", "boot-job".to_owned());
        put("job_id", self.job.to_string());
        put("job_token", self.place.token.clone());
        put("result_root", self.result_root());
        put("tbox_type", kind.to_string());
        put("tbox_group", text_of(self.fields, "tbox_group").unwrap_or_default());
        if let Some(dirs) = self.list("cache_dirs") {
            put("cache_dirs", dirs.join(" "));
        }
        match kind {
            TboxType::Dc => {
                put("initrds", Value::from(self.archives()).to_string());
                for key in ["docker_image", "os", "osv"] {
                    put(key, text_of(self.fields, key).unwrap_or_default());
                }
                let some = ["build_mini_docker", "cpu_minimum", "ccache_enable", "bin_shareable"];
                for key in some {
                    if let Some(text) = text_of(self.fields, key) {
                        put(key, text);
                    }
                }
                if let Some(least) = text_of(self.fields, "memory_minimum") {
                    put("memory_minimum", least.chars().filter(char::is_ascii_digit).collect());
                }
                if let Some(cpus) = self.hardware("nr_cpu") {
                    put("nr_cpu", cpus);
                }
                if let Some(memory) = self.memory_gb() {
                    put("memory", memory.to_string());
                }
            }
            _ => put("ipxe_script", self.ipxe()),
        }
        Value::Object(message).to_string()
    }

    /// The text by which bare metal starts the job.
    pub fn text(&self, boot: BootType) -> String {
        match boot {
            BootType::Ipxe => self.ipxe(),
            BootType::Grub => self.grub(),
            BootType::Native => {
                let initrds = Value::from(self.archives()).to_string();
                json!({"job_id": self.job.to_string(), "initrds": initrds}).to_string()
            }
            BootType::Libvirt => self.libvirt(),
        }
    }

    fn libvirt(&self) -> String {
        let service = |key: &str| {
            let services = self.fields.get("services").and_then(Value::as_object);
            services.and_then(|services| text_of(services, key))
        };
        let (host, port) =
            (service("sched_host").unwrap_or_default(), service("sched_port").unwrap_or_default());
        let text = json!({
            "job_id": self.job.to_string(),
            "kernel_uri": self.fields.get("kernel_uri"),
            "initrds_uri": self.archives(),
            "kernel_params": self.list("kernel_params").map(|params| params.join(" ")),
            "result_root": self.result_root(),
            "LKP_SERVER": service("LKP_SERVER").unwrap_or_else(|| host.clone()),
            "vt": self.fields.get("vt").cloned().unwrap_or_else(|| json!({})),
            "RESULT_WEBDAV_PORT": service("RESULT_WEBDAV_PORT").unwrap_or_else(|| WEBDAV_PORT.to_owned()),
            "SRV_HTTP_CCI_HOST": host,
            "SRV_HTTP_CCI_PORT": port,
        });
        text.to_string()
    }

    /// A property of the testbox's hardware.
    fn hardware(&self, key: &str) -> Option<String> {
        text_of(self.fields.get("hw")?.as_object()?, key)
    }

    /// Memory of a container in whole gibibytes, without a unit. The provider's script adds the unit.
    fn memory_gb(&self) -> Option<u64> {
        let booked = Some(self.place.memory).filter(|bytes| *bytes > 0);
        let bytes = booked.or_else(|| parse_memory(&self.hardware("memory")?))?;
        Some(bytes.div_ceil(1 << 30))
    }

    fn ipxe(&self) -> String {
        let suite = text_of(self.fields, "suite").unwrap_or_default();
        if let Some(own) =
            text_of(self.fields, "custom_ipxe").filter(|_| suite.starts_with(OWN_SCRIPT_SUITES))
        {
            return own;
        }
        let mut text = String::from("#!ipxe\n\n");
        for key in ["nr_nic", "nr_disk", "disk_size"] {
            if let Some(value) = self.word(key) {
                text.push_str(&format!("# {key}={value}\n"));
            }
        }
        let initrds = self.initrds();
        for uri in &initrds {
            text.push_str(&format!("initrd {uri}\n"));
        }
        if let Some(kernel) = self.word("kernel_uri") {
            text.push_str(&format!("kernel {kernel}"));
            for param in self.kernel_params(&initrds) {
                text.push_str(&format!(" {param}"));
            }
            text.push('\n');
        }
        let (job, root) = (self.job, self.result_root());
        text.push_str(&format!("echo ipxe will boot job id={job}, ip=${{ip}}, mac=${{mac}}\n"));
        text.push_str(&format!("echo result_root={root}\n\nboot\n"));
        text
    }

    fn grub(&self) -> String {
        let (initrds, mut text) = (self.initrds(), String::from("#!grub\n\n"));
        if let Some(kernel) = self.word("kernel_uri") {
            let params = self.list("kernel_params").unwrap_or_default().join(" ");
            text.push_str(&format!("linux {} {params} RESULT_ROOT=/result/job\n", in_grub(&kernel)));
        }
        if !initrds.is_empty() {
            let all: Vec<String> = initrds.iter().map(|uri| in_grub(uri)).collect();
            text.push_str(&format!("initrd {}\n", all.join(" ")));
        }
        text.push_str(&format!("echo job id={}\n\nboot\n", self.job));
        text
    }

    /// The archives, with the kernel's modules right after the first one.
    fn initrds(&self) -> Vec<String> {
        let mut all = self.archives();
        let modules = self.list("modules_uri").unwrap_or_default();
        let at = all.len().min(1);
        all.splice(at..at, modules);
        all
    }

    /// The archives of the job. The URL of the job's own archive contains its token.
    fn archives(&self) -> Vec<String> {
        let (plain, token) = (job_archive_path(self.job, None), Some(self.place.token.as_str()));
        let mut all = self.list("initrds_uri").unwrap_or_default();
        for uri in &mut all {
            if let Some(start) = uri.strip_suffix(&plain) {
                *uri = format!("{start}{}", job_archive_path(self.job, token));
            }
        }
        all
    }

    fn kernel_params(&self, initrds: &[String]) -> Vec<String> {
        let mut params = self.list("kernel_params").unwrap_or_default();
        params.extend(initrds.iter().map(|uri| format!("initrd={}", uri.rsplit('/').next().unwrap_or(uri))));
        params.extend(
            self.hardware("rootfs_disk")
                .map(|disk| format!("rootfs_disk={}", one_line(&disk.replace('\n', ".")))),
        );
        if let Some(reserve) = self.word("crashkernel")
            && !params.iter().any(|param| param.starts_with("crashkernel="))
        {
            params.push(format!("crashkernel={reserve}"));
        }
        params
    }

    fn word(&self, key: &str) -> Option<String> {
        text_of(self.fields, key).map(|text| one_line(&text))
    }

    /// A list of words without line breaks.
    fn list(&self, key: &str) -> Option<Vec<String>> {
        let all = self.fields.get(key)?.as_array()?.iter();
        Some(all.filter_map(|value| value.as_str().map(one_line)).collect())
    }
}

/// The name that grub has for a file on a server.
fn in_grub(uri: &str) -> String {
    let (host, path) = uri.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap_or(("", uri));
    if host.is_empty() { path.to_owned() } else { format!("(http,{host})/{path}") }
}

/// The text without line breaks, because a field of a job must not add a line to a script.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dc: bool) -> BookedHost {
        let token = "secret".to_owned();
        BookedHost { host: "h".to_owned(), dc, token, attempt: 1, epoch: 1, ..BookedHost::default() }
    }

    fn fields() -> Fields {
        let fields = json!({
            "suite": "lkp", "os": "openeuler", "os_version": "22.03", "os_arch": "aarch64",
            "tbox_group": "vm-2p8g", "submit_date": "2026-01-02", "docker_image": "centos:7",
            "kernel_uri": "http://os/vmlinuz", "kernel_params": ["user=lkp", "a\nb"],
            "initrds_uri": ["http://os/root.cgz", "http://s/srv/scheduler/pending-jobs/7/job.cgz"],
            "result_root": "/result/lkp/7", "services": {"sched_host": "s"}, "modules_uri": ["http://os/modules.cgz"],
            "cache_dirs": ["1-ccache/a", "1-git/b"], "hw": {"nr_cpu": 2, "memory": "8g"},
            "memory_minimum": "12g",
        });
        fields.as_object().unwrap().clone()
    }

    #[test]
    fn a_provider_gets_what_it_needs() {
        let (fields, place) = (fields(), place(true));
        let boot = Boot { job: JobId(7), fields: &fields, place: &place };
        let said: Value = serde_json::from_str(&boot.message()).unwrap();
        assert_eq!(said["type"], "boot-job");
        assert_eq!((&said["job_id"], &said["job_token"]), (&json!("7"), &json!("secret")));
        let own = "http://s/srv/scheduler/pending-jobs/7/secret/job.cgz";
        assert_eq!(said["initrds"], format!(r#"["http://os/root.cgz","{own}"]"#));
        assert_eq!((&said["memory"], &said["memory_minimum"]), (&json!("8"), &json!("12")));
        assert_eq!((&said["nr_cpu"], &said["cache_dirs"]), (&json!("2"), &json!("1-ccache/a 1-git/b")));
        assert_eq!(said["result_root"], "/result/lkp/7");
    }

    #[test]
    fn bare_metal_gets_a_script_of_which_a_job_cannot_add_lines() {
        let (fields, place) = (fields(), place(false));
        let boot = Boot { job: JobId(7), fields: &fields, place: &place };
        let text = boot.text(BootType::Ipxe);
        let kernel =
            "kernel http://os/vmlinuz user=lkp a b initrd=root.cgz initrd=modules.cgz initrd=job.cgz";
        assert!(text.starts_with("#!ipxe\n") && text.lines().any(|line| line == kernel), "{text}");
        assert!(text.ends_with("\nboot\n"));
        assert!(
            boot.text(BootType::Grub)
                .contains("linux (http,os)/vmlinuz user=lkp a b RESULT_ROOT=/result/job\n")
        );
        assert!(boot.text(BootType::Libvirt).contains("\"LKP_SERVER\":\"s\""));
        assert!(boot.text(BootType::Native).contains("\"job_id\":\"7\""));
        let again = |server| BootType::Ipxe.no_job("No job now", server);
        assert!(again(Some("s:3000")).contains("chain http://s:3000/boot.ipxe/mac/"));
        assert!(again(None).contains("chain /boot.ipxe/mac/"));
        assert_eq!(BootType::parse("lilo"), None);
    }
}
