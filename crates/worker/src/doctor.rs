//! Whether this machine has what a worker needs, and what to do where it has not.

use crate::cgroup::Cgroups;
use std::fs;
use std::process::Command;

/// One thing looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Works, or is not needed.
    pub ok: bool,
    /// What.
    pub what: String,
    /// What was found.
    pub detail: String,
    /// What to do, where something is missing.
    pub advice: Option<String>,
}

/// Looks at namespaces, control groups, pressure files and limits of this machine.
pub fn doctor() -> Vec<Finding> {
    vec![namespaces(), cgroups(), pressure(), descriptors()]
}

fn found(ok: bool, what: &str, detail: impl Into<String>, advice: &str) -> Finding {
    let advice = (!ok).then(|| advice.to_owned());
    Finding { ok, what: what.to_owned(), detail: detail.into(), advice }
}

fn namespaces() -> Finding {
    // In a process of its own: the answer must not change this one.
    let tries = [&["--pid", "--mount", "--fork", "true"][..], &["-U", "-r", "--pid", "--fork", "true"][..]];
    let ok = tries
        .iter()
        .any(|args| Command::new("unshare").args(*args).output().is_ok_and(|o| o.status.success()));
    found(
        ok,
        "PID namespaces",
        if ok { "available: nothing outlives the keeper" } else { "refused" },
        "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1) or run as root; without them tasks \
         are tied to the keeper by parent-death signals",
    )
}

fn cgroups() -> Finding {
    let advice = "run under systemd with Delegate=yes or as root; without control groups, memory limits are \
                  watched by sampling";
    match Cgroups::open(&format!("windlass-doctor-{}", std::process::id()), false) {
        Ok(groups) if groups.limits_memory() => {
            found(true, "control groups", "kill and memory limits", advice)
        }
        Ok(_) => found(false, "control groups", "kill, but no memory controller", advice),
        Err(why) => found(false, "control groups", why, advice),
    }
}

fn pressure() -> Finding {
    let text = fs::read_to_string("/proc/pressure/cpu");
    let detail =
        text.as_ref().map_or_else(ToString::to_string, |text| text.lines().next().unwrap_or("").to_owned());
    found(
        text.is_ok(),
        "pressure (PSI)",
        detail,
        "boot with psi=1; without it load is known by booking counts alone",
    )
}

fn descriptors() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let shown = limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    found(limit.is_none_or(|n| n >= 1024), "open files", shown, "raise it with 'ulimit -n 4096'")
}
