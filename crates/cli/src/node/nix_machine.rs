//! This machine as a machine for Nix. Nix itself is asked for its properties.

use anyhow::Context as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use windlass_core::Resources;
use windlass_core::tags::Attributes;
use windlass_gateway_nix::hook::builders::is_ssh;
use windlass_gateway_nix::service::{BUILDS, attributes};
use windlass_gateway_nix::wire::Machine;
use windlass_worker::{CacheDir, NoAnswer, run_within};

/// How long Nix may take to tell its settings.
pub const NIX_WAIT: Duration = Duration::from_secs(30);

const STORE: &str = "/nix/store";

/// This machine as Nix sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct NixMachine(Machine);

impl NixMachine {
    /// Asks Nix for systems, features and builds at a time. Clients reach the store at `uri`, by default with ssh at `host`.
    pub fn detect(uri: &str, host: Option<&str>) -> anyhow::Result<NixMachine> {
        let uri = match (uri, host) {
            ("", Some(host)) => format!("ssh-ng://{host}"),
            ("", None) => anyhow::bail!("this machine has no name; give its address: --nix ssh-ng://HOST"),
            (uri, _) => uri.to_owned(),
        };
        anyhow::ensure!(
            is_ssh(&uri),
            "'{uri}' is not an address that clients take from the server: give ssh-ng://[USER@]HOST[:PORT]"
        );
        anyhow::ensure!(
            Path::new(STORE).is_dir(),
            "there is no {STORE}: --nix is for machines that have Nix"
        );
        let settings = settings()?;
        anyhow::ensure!(
            setting(&settings, "system").is_some_and(|system| !system.is_empty()),
            "'nix show-config' names no system, so no build could come here"
        );
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(NixMachine(machine(uri, &settings, cpus as u32)))
    }

    pub fn attributes(&self) -> Attributes {
        attributes(&self.0)
    }

    /// The worker's capacity, with room for builds.
    pub fn add_to(&self, mut capacity: Resources) -> Resources {
        capacity.custom.insert(BUILDS.to_owned(), self.0.max_jobs.into());
        capacity
    }

    /// The store as a cache: builds go where their inputs are.
    pub fn store() -> CacheDir {
        CacheDir { name: windlass_gateway_nix::service::NIX.to_owned(), dir: STORE.into() }
    }
}

pub fn setting<'a>(settings: &'a str, wanted: &str) -> Option<&'a str> {
    let pairs = settings.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.trim(), value.trim()))
        .find(|(name, _)| *name == wanted)
        .map(|(_, value)| value)
}

/// The settings of Nix, `NAME = VALUE` on lines.
pub fn settings() -> anyhow::Result<String> {
    // The first is of newer releases, and unknown to older ones.
    for words in [&["config", "show"][..], &["show-config"]] {
        let mut nix = Command::new("nix");
        nix.args(["--extra-experimental-features", "nix-command"]).args(words);
        match run_within(&mut nix, NIX_WAIT) {
            Ok(shown) => return Ok(String::from_utf8_lossy(&shown).into_owned()),
            Err(NoAnswer::Failed(..)) => {}
            Err(e) => return Err(e).context("cannot ask 'nix' what this machine builds"),
        }
    }
    anyhow::bail!("'nix show-config' fails: this machine's Nix does not say what it builds")
}

fn machine(uri: String, settings: &str, cpus: u32) -> Machine {
    let list = |name: &str| {
        setting(settings, name)
            .unwrap_or_default()
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let max_jobs = setting(settings, "max-jobs").and_then(|jobs| jobs.parse().ok()).unwrap_or(cpus);
    Machine {
        uri,
        systems: list("system").into_iter().chain(list("extra-platforms")).collect(),
        max_jobs,
        speed: 1.0,
        supported: list("system-features"),
        mandatory: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_what_nix_says() {
        let shown = "cores = 2\nextra-platforms = i686-linux\nmax-jobs = auto\nsystem = x86_64-linux\n\
                     system-features = benchmark kvm\n";
        let machine = machine("ssh-ng://b1".to_owned(), shown, 8);
        assert_eq!((machine.systems.join(" "), machine.max_jobs), ("x86_64-linux i686-linux".to_owned(), 8));
        assert_eq!(machine.supported, ["benchmark", "kvm"]);
        assert_eq!(super::machine(String::new(), "max-jobs = 3", 8).max_jobs, 3);
    }
}
