//! The initial file systems of a job's machine, in the order in which the machine unpacks them.

use super::filling::{Filling, System, Unfilled};
use crate::files::LabDir;
use crate::format::{Fields, scalar, text_of};
use serde_json::Value;
use windlass_core::JobId;

/// The path of a job's own archive beneath `/srv`. It contains the job's token where the program that fetches it shows
/// only a URL. The name comes last, because such a program takes it from there.
pub(crate) fn job_archive_path(job: JobId, token: Option<&str>) -> String {
    let token = token.map(|token| format!("{token}/")).unwrap_or_default();
    format!("scheduler/pending-jobs/{job}/{token}job.cgz")
}

impl Filling<'_> {
    /// Sets the archives that the machine unpacks. The job's own comes last, so that its files replace others.
    pub(super) fn put_initrds(&self, system: &System, filled: &mut Fields) -> Result<(), Unfilled> {
        let (deps, packages) = self.packages(system);
        let mut all = match self.own_initrds() {
            Some(own) => own,
            None => {
                let mut all = self.of_system(system)?;
                if system.mount == "initramfs" {
                    all.extend(deps.iter().chain(&packages).cloned());
                }
                all.extend(self.of_job(system));
                all
            }
        };
        all.push(self.url_of(&job_archive_path(self.job, None)));
        for (key, urls) in [("initrd_deps", deps), ("initrd_pkgs", packages)] {
            if !urls.is_empty() {
                filled.insert(key.to_owned(), urls.into());
            }
        }
        filled.insert("initrds_uri".to_owned(), all.into());
        Ok(())
    }

    /// The author's list, without the archive of an earlier run of the job.
    fn own_initrds(&self) -> Option<Vec<String>> {
        let all = self.fields.get("initrds_uri")?.as_array()?.iter().filter_map(scalar);
        Some(all.filter(|uri| !uri.ends_with("/job.cgz")).collect())
    }

    fn of_system(&self, system: &System) -> Result<Vec<String>, Unfilled> {
        match (system.mount.as_str(), self.dir) {
            ("initramfs", Some(dir)) => {
                let images = format!("initrd/osimage/{}", system.dir());
                let store = |what: &str| format!("file-store/{what}");
                let mut all = Vec::new();
                all.extend(dir.real(&format!("{images}/current")));
                all.extend(first(dir, &[store(&format!("docker2os/{}/{}.cgz", system.arch, system.osv))]));
                let tools = [
                    store(&format!("busybox/{}/busybox-static.cgz", system.arch)),
                    format!("{images}/run-ipconfig.cgz"),
                ];
                all.extend(first(dir, &tools));
                Ok(all.iter().map(|path| self.url_of(path)).collect())
            }
            ("nfs" | "cifs" | "local", Some(dir)) => {
                let path = format!("os/{}/initrd.lkp", system.dir());
                let real = dir.real(&path).ok_or(Unfilled::MissingInitrd(path))?;
                Ok(vec![self.url_of(&real)])
            }
            ("nfs" | "cifs" | "local", None) => Err(Unfilled::WithoutDirectory),
            _ => Ok(Vec::new()),
        }
    }

    /// The archives of the job's programs: those of their dependencies, and their own.
    fn packages(&self, system: &System) -> (Vec<String>, Vec<String>) {
        let (mut deps, mut packages) = (Vec::new(), Vec::new());
        let Some(dir) = self.dir else { return (deps, packages) };
        let mount = if system.mount == "cifs" { "nfs" } else { &system.mount };
        let place = format!("{mount}/{}", system.dir());
        let programs =
            ["monitor", "monitors", "pp"].map(|key| self.fields.get(key).and_then(Value::as_object));
        let names = programs.into_iter().flatten().flatten().map(|(name, _)| without_number(name));
        for name in std::iter::once("lkp").chain(names) {
            let version =
                text_of(self.fields, &format!("{name}_version")).unwrap_or_else(|| "latest".to_owned());
            let add = |urls: &mut Vec<String>, path: String| {
                let url = dir.real(&path).filter(|real| dir.has(real)).map(|real| self.url_of(&real));
                urls.extend(url.filter(|url| !urls.contains(url)));
            };
            add(&mut deps, format!("initrd/deps/{place}/{name}/{name}.cgz"));
            if name != "lkp" {
                add(&mut packages, format!("initrd/pkg/{place}/{name}/{version}.cgz"));
            }
        }
        (deps, packages)
    }

    /// The archives that the submission uploaded or names.
    fn of_job(&self, system: &System) -> Vec<String> {
        let needed = self.needed_files();
        if self.fields.get("need_file_store").is_some_and(Value::is_array) {
            let archives = needed.iter().filter(|path| path.ends_with(".cgz"));
            return archives.map(|path| self.url_of(&format!("file-store/{path}"))).collect();
        }
        let mut all = Vec::new();
        for (repo, package) in self.fields.get("pkg_data").and_then(Value::as_object).into_iter().flatten() {
            let Some(package) = package.as_object() else { continue };
            let place = format!("scheduler/upload-files/{repo}");
            if let Some(tag) = text_of(package, "tag") {
                all.push(format!("{place}/{}/{tag}.cgz", system.arch));
            }
            if let Some(md5) = text_of(package, "md5").filter(|md5| md5.len() == 32 && md5.is_ascii()) {
                all.push(format!("{place}/{}/{md5}.cgz", &md5[..2]));
            }
        }
        // Only an administrator stores the archive of a tag.
        let there = |path: &&String| self.dir.is_some_and(|dir| dir.has(path));
        all.iter().filter(there).map(|path| self.url_of(path)).collect()
    }

    /// The paths of `need_file_store`, beneath the file store.
    pub(super) fn needed_files(&self) -> Vec<String> {
        let needed = self.fields.get("need_file_store").and_then(Value::as_array);
        needed.into_iter().flatten().filter_map(scalar).collect()
    }
}

/// A program's name without its number: `iperf` of `iperf-2`.
fn without_number(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((name, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => name,
    }
}

/// The first of these paths at which the directory has a file.
fn first(dir: &LabDir, paths: &[String]) -> Option<String> {
    paths.iter().find(|path| dir.has(path)).cloned()
}
