//! Detection of a worker's capacity and attributes: cpus, memory, GPUs, operating system and host name. A worker that
//! starts reports them, unless an operator declares other values. Nothing here changes the machine.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use windlass_core::Resources;
use windlass_core::tags::Attributes;

/// Capacity of this machine. Cpus are those that the affinity mask and the control group's quota leave to this process.
/// Memory is the machine's, or the limit of its control group if that is less; 0 if it is unknown.
pub fn capacity() -> Resources {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let (gpus, gpu_memory) = gpus();
    Resources { gpus, gpu_memory, ..Resources::new(cpus * 100, memory().unwrap_or(0)) }
}

/// Number of NVIDIA devices and their memory together, in bytes; zeros without the driver.
pub fn gpus() -> (u32, u64) {
    let mut asked = Command::new("nvidia-smi");
    asked.args(["--query-gpu=memory.total", "--format=csv,noheader,nounits"]);
    match asked.stdin(Stdio::null()).stderr(Stdio::null()).output() {
        Ok(output) if output.status.success() => parse_gpus(&String::from_utf8_lossy(&output.stdout)),
        _ => (0, 0),
    }
}

/// Parses one line for each device: its memory in MiB, or words where the driver does not know it.
fn parse_gpus(text: &str) -> (u32, u64) {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.fold((0, 0), |(count, bytes), line| {
        (count + 1, bytes + (line.trim().parse::<u64>().unwrap_or(0) << 20))
    })
}

/// Bytes of memory; `None` if `/proc/meminfo` cannot be read.
fn memory() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024;
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    Some(limits.fold(total, u64::min))
}

/// The attributes `os`, `arch`, `kernel` and `host` of this machine.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_and_their_memory_added() {
        assert_eq!(parse_gpus("24576\n24576\n"), (2, 48 << 30));
        assert_eq!(parse_gpus("[N/A]\n"), (1, 0));
        assert_eq!(parse_gpus("\n"), (0, 0));
    }
}
