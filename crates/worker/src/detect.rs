//! What this machine has and is.

use std::collections::BTreeSet;
use std::fs;
use windlass_core::Resources;
use windlass_core::tags::Attributes;

/// What tasks may hold on this machine: the cpus that this process may use, as the scheduler's mask
/// and the cgroup's quota allow, and memory as far as the machine or the cgroup has it.
pub fn capacity() -> Resources {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    Resources::new(cpus * 100, memory().unwrap_or(0))
}

/// Bytes of memory; `None` if nobody says.
fn memory() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024;
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    Some(limits.fold(total, u64::min))
}

/// What this machine is: operating system, architecture, kernel, host name.
pub fn attributes() -> Attributes {
    let mut attributes = Attributes::new();
    let mut set = |key: &str, value: &str| {
        attributes.insert(key.to_owned(), BTreeSet::from([value.trim().to_owned()]));
    };
    set("os", std::env::consts::OS);
    set("arch", std::env::consts::ARCH);
    let uname = rustix::system::uname();
    set("kernel", &uname.release().to_string_lossy());
    set("host", &uname.nodename().to_string_lossy());
    attributes
}
