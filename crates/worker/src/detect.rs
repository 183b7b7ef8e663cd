//! Detection of a worker's capacity and attributes: cpus, memory, GPUs, operating system and host name. A worker that
//! starts reports them, unless an operator declares other values. Nothing here changes the machine.

use crate::gpu_devices::{AskedGpus, BadGpuDevices, GpuDevice, QUERY, ShownDevice, choose, parse};
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use windlass_core::Resources;
use windlass_core::tags::Attributes;

/// Capacity of this machine. Cpus are those that the affinity mask and the control group's quota leave to this process.
/// Memory is the machine's, or the limit of its control group if that is less; 0 if it is unknown. GPUs are `devices`.
pub fn capacity(devices: &[GpuDevice]) -> Resources {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let (gpus, gpu_memory) = (devices.len() as u32, devices.iter().map(|device| device.memory_bytes).sum());
    Resources { gpus, gpu_memory, ..Resources::new(cpus * 100, memory().unwrap_or(0)) }
}

/// The GPUs that tasks may use; `None` if nothing is known of any. Those that do not work are logged.
///
/// # Errors
/// If the operator's words contradict each other or what is found.
pub fn usable_gpus(asked: &AskedGpus) -> Result<Option<Vec<GpuDevice>>, BadGpuDevices> {
    // A worker without GPUs need not wait for the driver.
    let shown = if asked.count == Some(0) { Vec::new() } else { gpus() };
    for device in &shown {
        if let Some(fault) = &device.fault {
            tracing::warn!("gpu {} is left out: nvidia-smi says '{fault}'", device.index);
        }
    }
    choose(&shown, asked)
}

/// The NVIDIA devices of this machine, working or not; none without the driver.
pub fn gpus() -> Vec<ShownDevice> {
    let mut asked = Command::new("nvidia-smi");
    asked.args(QUERY);
    match asked.stdin(Stdio::null()).stderr(Stdio::null()).output() {
        // It fails where one of several devices does.
        Ok(output) => parse(&String::from_utf8_lossy(&output.stdout)),
        Err(_) => Vec::new(),
    }
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
