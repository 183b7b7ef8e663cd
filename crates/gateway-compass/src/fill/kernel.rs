//! The kernel of a job's machine, and its parameters.

use super::filling::{Filling, System, Unfilled, VOLUME_SIZE};
use crate::format::{Fields, scalar, text_of};
use serde_json::Value;

impl Filling<'_> {
    /// Sets the kernel and its modules: those of the job's packages, the author's, or the system's.
    pub(super) fn put_kernel(&self, system: &System, filled: &mut Fields) -> Result<(), Unfilled> {
        let needed = self.needed_files().into_iter().find(|path| path.ends_with("/vmlinuz"));
        if let Some(path) = needed {
            filled.insert("kernel_uri".to_owned(), self.url_of(&format!("file-store/{path}")).into());
            return Ok(());
        }
        if text_of(self.fields, "kernel_uri").is_some() {
            return Ok(());
        }
        let dir = self.dir.ok_or(Unfilled::WithoutDirectory)?;
        let places = [
            format!("file-store/boot2os/{}/{}", system.arch, system.osv),
            format!("os/{}/boot", system.dir()),
        ];
        // The target of the link to a kernel names the version.
        let version = text_of(self.fields, "kernel_version").or_else(|| {
            let real = places.iter().find_map(|place| dir.real(&format!("{place}/vmlinuz")))?;
            real.rsplit('/').next()?.strip_prefix("vmlinuz-").map(str::to_owned)
        });
        let named = |place: &String| match &version {
            Some(version) => format!("{place}/vmlinuz-{version}"),
            None => format!("{place}/vmlinuz"),
        };
        let missing = || Unfilled::MissingKernel(places.iter().map(named).collect::<Vec<_>>().join(" nor "));
        let place = places.iter().find(|place| dir.has(&named(place))).ok_or_else(missing)?;
        // The URL names the target of a link. Hosts cache files by name and do not fetch them again.
        let url = |path: String| self.url_of(&dir.real(&path).unwrap_or(path));
        filled.insert("kernel_uri".to_owned(), url(named(place)).into());
        let Some(version) = version else { return Ok(()) };
        let modules = format!("{place}/modules-{version}.cgz");
        filled.insert("kernel_version".to_owned(), version.into());
        if system.mount != "local" && self.fields.get("modules_uri").is_none() && dir.has(&modules) {
            filled.insert("modules_uri".to_owned(), vec![url(modules)].into());
        }
        Ok(())
    }

    /// The kernel's parameters, as single words.
    pub(super) fn kernel_params(&self, system: &System) -> Vec<String> {
        if let Some(Value::Array(own)) = self.fields.get("kernel_params") {
            return own.iter().filter_map(scalar).collect();
        }
        let mut words: Vec<String> =
            ["user=lkp", "job=/lkp/scheduled/job.yaml", "ip=dhcp"].map(str::to_owned).into();
        match system.mount.as_str() {
            "local" => words.extend(self.volumes(system)),
            _ => words.extend(["rootovl", "ro"].map(str::to_owned)),
        }
        for (key, value) in self.fields.get("boot_params").and_then(Value::as_object).into_iter().flatten() {
            let name =
                key.strip_prefix("bp").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
            let name = name.and_then(|rest| rest.strip_prefix('_')).unwrap_or(key);
            words.push(match scalar(value).filter(|value| !value.is_empty()) {
                Some(value) => format!("{name}={value}"),
                None => name.to_owned(),
            });
        }
        let own = text_of(self.fields, "kernel_custom_params").unwrap_or_default();
        words.extend(own.split_whitespace().map(str::to_owned));
        words.extend(self.root(system));
        words.push("console=tty0".to_owned());
        words.extend(match system.arch.as_str() {
            "x86_64" => Some("console=ttyS0,115200".to_owned()),
            "aarch64" => Some("console=ttyAMA0,115200".to_owned()),
            _ => None,
        });
        words
    }

    /// The logical volumes of a machine that boots from its own disk.
    fn volumes(&self, system: &System) -> Vec<String> {
        let volume = |suffix: &str| {
            let version = system.version.replace('-', "_");
            format!("/dev/mapper/os-{}_{}_{version}_{suffix}", system.os, system.arch)
        };
        let word = |key: &str| text_of(self.fields, key).filter(|text| !text.is_empty());
        let mut words = vec!["local".to_owned(), "rw".to_owned(), format!("os_version={}", system.version)];
        words.extend(word("os_lv").map(|lv| format!("os_partition={}", volume(&lv.replace('-', "_")))));
        words.extend(word("src_lv_suffix").map(|suffix| format!("use_root_partition={}", volume(&suffix))));
        words.extend(word("boot_lv_suffix").map(|suffix| format!("save_root_partition={}", volume(&suffix))));
        words.push(format!("os_lv_size={}", word("os_lv_size").unwrap_or_else(|| VOLUME_SIZE.to_owned())));
        words
    }

    /// The root file system on the network.
    fn root(&self, system: &System) -> Option<String> {
        let path = format!("os/{}", system.dir());
        let path = self.dir.and_then(|dir| dir.real(&path)).unwrap_or(path);
        let host = self.server_host();
        match system.mount.as_str() {
            "nfs" | "local" => Some(format!("root={host}:/srv/{path}")),
            "cifs" => Some(format!(
                "root=cifs://{host}/srv/{path},guest,ro,hard,vers=1.0,noacl,nouser_xattr,noserverino"
            )),
            _ => None,
        }
    }
}
