//! The machines of Nix's setting `builders`.

use crate::wire::{MACHINES_MAX, Machine, host};
use std::path::Path;

/// Bytes of a file of machines.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Files of machines may name files of machines.
const DEPTH_MAX: u32 = 8;

/// A machine, and what only its client needs to reach it.
#[derive(Clone, PartialEq, Debug)]
pub struct Builder {
    /// The machine.
    pub machine: Machine,
    /// The file with the key for it, or `-`.
    key: String,
    /// Its public host key, or `-`.
    host_key: String,
}

impl Builder {
    /// The line that has Nix's own hook build one derivation on this machine: the slots there are counted elsewhere, and the
    /// machine is known to fit.
    pub fn line(&self, system: &str, features: &[String]) -> String {
        line(&self.machine.uri, system, features, (&self.key, &self.host_key))
    }

    /// True if the machine has this address.
    fn is_at(&self, uri: &str) -> bool {
        host(&self.machine.uri) == host(uri)
    }
}

fn line(uri: &str, system: &str, features: &[String], (key, host_key): (&str, &str)) -> String {
    let features = if features.is_empty() { "-".to_owned() } else { features.join(",") };
    format!("{uri} {system} {key} 64 1 {features} - {host_key}")
}

/// The line for a machine with this URI: the client's own where it has one for the host.
pub fn line_for(builders: &[Builder], uri: &str, system: &str, features: &[String]) -> String {
    let own = builders.iter().find(|builder| builder.machine.uri == uri);
    match own.or_else(|| builders.iter().find(|builder| builder.is_at(uri))) {
        Some(builder) => builder.line(system, features),
        None => line(uri, system, features, ("-", "-")),
    }
}

/// Reads the setting; `system` is the client's own. What cannot be read is left out, as Nix's own hook would refuse it with a
/// better message than we could.
pub fn read(setting: &str, system: &str) -> Vec<Builder> {
    let mut builders = Vec::new();
    add(setting, system, DEPTH_MAX, &mut builders);
    builders
}

fn add(text: &str, system: &str, depth: u32, builders: &mut Vec<Builder>) {
    for line in text.split(['\n', ';']) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if builders.len() >= MACHINES_MAX {
            return;
        }
        match line.strip_prefix('@') {
            Some(file) if depth > 0 => {
                let read = crate::hook::read_bounded(Path::new(file.trim()), FILE_BYTES_MAX);
                let read = read.ok().and_then(|bytes| String::from_utf8(bytes).ok());
                add(&read.unwrap_or_default(), system, depth - 1, builders);
            }
            Some(_) => {}
            None => builders.extend(one(line, system)),
        }
    }
}

fn one(line: &str, system: &str) -> Option<Builder> {
    let mut fields = line.split_ascii_whitespace();
    let uri = fields.next()?;
    let mut field = || fields.next().filter(|field| *field != "-");
    let list = |text: Option<&str>| -> Vec<String> {
        text.into_iter()
            .flat_map(|text| text.split(','))
            .filter(|t| !t.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let systems = list(Some(field().unwrap_or(system)));
    let key = field().unwrap_or("-").to_owned();
    let max_jobs = field().map_or(Some(1), |n| n.parse().ok())?;
    let speed = field().map_or(Some(1.0), |n| n.parse().ok())?;
    let machine = Machine {
        uri: full_uri(uri),
        systems,
        max_jobs,
        speed: if speed > 0.0 && speed < 1e9 { speed } else { 1.0 },
        supported: list(field()),
        mandatory: list(field()),
    };
    Some(Builder { machine, key, host_key: field().unwrap_or("-").to_owned() })
}

/// A bare host is reached by ssh.
fn full_uri(uri: &str) -> String {
    let is_store = ["local", "remote", "auto", "daemon"]
        .iter()
        .any(|kind| uri.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('?')));
    if uri.contains("://") || uri.contains('/') || is_store { uri.to_owned() } else { format!("ssh://{uri}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write as _;

    #[test]
    fn lines_are_read_as_nix_reads_them() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(
            file,
            "# a farm\nssh-ng://u@b2:22?compress=true i686-linux,x86_64-linux /k 4 2.5 kvm,perf perf AAAA"
        )
        .unwrap();
        let text = format!("b1; ssh://b3 - - 0\n@{}\nssh://b4 x y not-a-number", file.path().display());
        let all = read(&text, "x86_64-linux");
        let uris: Vec<&str> = all.iter().map(|b| b.machine.uri.as_str()).collect();
        assert_eq!(uris, ["ssh://b1", "ssh://b3", "ssh-ng://u@b2:22?compress=true"]);
        assert_eq!((all[0].machine.max_jobs, all[1].machine.max_jobs), (1, 0));
        assert_eq!(all[0].machine.systems, ["x86_64-linux"]);
        let b2 = &all[2].machine;
        assert_eq!((b2.max_jobs, b2.speed, b2.systems.len()), (4, 2.5, 2));
        assert_eq!(
            (b2.supported.as_slice(), b2.mandatory.as_slice()),
            (&["kvm".to_owned(), "perf".to_owned()][..], &["perf".to_owned()][..])
        );
        let kvm = ["kvm".to_owned()];
        let line = line_for(&all, "ssh-ng://b2", "x86_64-linux", &kvm);
        assert_eq!(line, "ssh-ng://u@b2:22?compress=true x86_64-linux /k 64 1 kvm - AAAA");
        assert_eq!(line_for(&all, "ssh-ng://b9", "i686-linux", &[]), "ssh-ng://b9 i686-linux - 64 1 - - -");
    }

    proptest! {
        #[test]
        fn no_text_is_too_much(text in "[@#;\\n a-z0-9,:/?-]{0,200}") {
            let all = read(&text, "x86_64-linux");
            prop_assert!(all.len() <= MACHINES_MAX && all.iter().all(|b| !b.machine.uri.is_empty()));
        }
    }
}
