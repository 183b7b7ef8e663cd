//! Detection of a worker's capacity and attributes: cpus, memory, GPUs, operating system and host name. A worker that
//! starts reports them, unless an operator declares other values. The driver of GPUs may be stuck, so a start goes on
//! without its answer, and the agent declares the GPUs when the answer comes. Nothing here changes the machine.

use crate::confinement::{allowed_cpus, cpu_quota, memory_limit};
use crate::late::{Late, NoAnswer, run_within};
use crate::mounts::Mounts;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use windlass_core::Resources;
use windlass_core::tags::Attributes;

/// How long the start of a worker waits for the driver of GPUs. A driver that loads takes a second or two.
pub const GPUS_START_WAIT: Duration = Duration::from_secs(3);
/// How long a command waits for it that tells a person what this machine has.
pub const GPUS_TOLD_WAIT: Duration = Duration::from_secs(10);
/// The time after which `nvidia-smi` is taken for stuck, and killed.
const GPUS_MAX: Duration = Duration::from_secs(600);

/// Said of a start without the driver's answer.
pub const GPUS_ARE_LATE: &str = "nvidia-smi has not answered within 3 s: the worker starts without gpus, and declares \
                                 them when it answers; --gpus 0 asks for none";

/// The capacity of this machine.
#[derive(Clone, Debug)]
pub struct Detected {
    /// What is known now. Cpus are those that the affinity mask and the quotas of control groups leave to this process,
    /// and at least one. Memory is the machine's, or the limit of a control group above if that is less; 0 if it is
    /// unknown.
    pub capacity: Resources,
    /// The GPUs, if the driver has not answered yet.
    pub late_gpus: Option<LateGpus>,
}

/// The GPUs of a machine whose driver is asked.
#[derive(Clone, Debug)]
pub struct LateGpus {
    found: Late<FoundGpus>,
    /// How many an operator declares.
    declared: Option<u32>,
}

/// What `nvidia-smi` says, or does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundGpus {
    /// Number of devices, and their memory together in bytes; zeros without the driver.
    Known(u32, u64),
    /// It was killed without an answer, after 10 minutes.
    Stuck,
}

/// Capacity of this machine. `gpus` is how many GPUs an operator declares; the driver is not asked if that is 0, and
/// has no longer than `wait` to answer.
pub fn capacity(gpus: Option<u32>, wait: Duration) -> Detected {
    // The mask of a machine with more cpus than it can name is not known.
    let cpus = Some(allowed_cpus().len()).filter(|cpus| *cpus > 0);
    let cpus = cpus.or_else(|| Some(std::thread::available_parallelism().ok()?.get())).unwrap_or(1);
    let mut capacity = below(Path::new("/"), cpus);
    capacity.gpus = gpus.unwrap_or(0);
    if gpus == Some(0) {
        return Detected { capacity, late_gpus: None };
    }
    let late = LateGpus::ask(nvidia_smi(), gpus);
    let is_known = late.within(wait).is_some_and(|found| late.declare(found, &mut capacity));
    Detected { capacity, late_gpus: (!is_known).then_some(late) }
}

/// Cpus and memory, by the files of `/proc` and `/sys` below `root`, of a process whose affinity mask has `cpus`.
fn below(root: &Path, cpus: usize) -> Resources {
    let mounts = Mounts::read(root).unwrap_or_default();
    let all = 100 * cpus as u32;
    // With less than a core no task that asks for nothing would fit.
    let cpu = cpu_quota(&mounts).map_or(all, |quota| all.min(quota.max(100)));
    let memory =
        total_memory(root).map(|total| memory_limit(&mounts).map_or(total, |limit| total.min(limit)));
    Resources::new(cpu, memory.unwrap_or(0))
}

/// Bytes of the machine's memory; `None` if `/proc/meminfo` cannot be read.
fn total_memory(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The program that tells the devices.
fn nvidia_smi() -> Command {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=memory.total", "--format=csv,noheader,nounits"]);
    command
}

impl LateGpus {
    fn ask(mut driver: Command, declared: Option<u32>) -> LateGpus {
        let found = Late::ask(move || match run_within(&mut driver, GPUS_MAX) {
            Ok(answer) => {
                let (count, bytes) = parse_gpus(&String::from_utf8_lossy(&answer));
                FoundGpus::Known(count, bytes)
            }
            Err(NoAnswer::Late(_)) => FoundGpus::Stuck,
            Err(_) => FoundGpus::Known(0, 0),
        });
        LateGpus { found, declared }
    }

    /// The driver's answer; `None` if it takes longer than `wait`.
    pub fn within(&self, wait: Duration) -> Option<FoundGpus> {
        self.found.within(wait)
    }

    /// Adds them to a capacity. False if nothing is known of them.
    pub fn declare(&self, found: FoundGpus, capacity: &mut Resources) -> bool {
        let FoundGpus::Known(count, bytes) = found else { return false };
        let gpus = self.declared.unwrap_or(count);
        // Which of the devices are meant is not known: each counts with the mean of their memory.
        let mean = bytes.checked_div(count.into()).unwrap_or(0);
        capacity.gpu_memory = if gpus == count { bytes } else { mean * u64::from(gpus) };
        capacity.gpus = gpus;
        true
    }
}

/// What the driver says, if it answers within `wait`.
pub fn gpus(wait: Duration) -> Option<FoundGpus> {
    LateGpus::ask(nvidia_smi(), None).within(wait)
}

/// Parses one line for each device: its memory in MiB, or words where the driver does not know it.
fn parse_gpus(text: &str) -> (u32, u64) {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.fold((0, 0), |(count, bytes), line| {
        (count + 1, bytes + (line.trim().parse::<u64>().unwrap_or(0) << 20))
    })
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
    use std::time::Instant;

    #[test]
    fn devices_are_counted_and_their_memory_added() {
        assert_eq!(parse_gpus("24576\n24576\n"), (2, 48 << 30));
        assert_eq!(parse_gpus("[N/A]\n"), (1, 0));
        assert_eq!(parse_gpus("\n"), (0, 0));
    }

    /// A driver that is a line for the shell.
    fn driver(line: &str, declared: Option<u32>) -> LateGpus {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        LateGpus::ask(command, declared)
    }

    const AMPLE: Duration = Duration::from_secs(60);

    #[test]
    fn a_driver_that_does_not_answer_holds_up_nothing_and_declares_its_devices_later() {
        let dir = tempfile::tempdir().unwrap();
        let answers = dir.path().join("answers");
        let waits = format!("until [ -e {} ]; do sleep 0.01; done; echo 1024; echo 1024", answers.display());
        let (late, some) = (driver(&waits, None), driver(&waits, Some(1)));
        let began = Instant::now();
        assert_eq!(late.within(Duration::from_millis(50)), None);
        assert!(began.elapsed() < AMPLE);
        fs::write(&answers, "").unwrap();
        let (mut all, mut one) = (Resources::new(100, 0), Resources::new(100, 0));
        assert!(late.declare(late.within(AMPLE).unwrap(), &mut all));
        assert!(some.declare(some.within(AMPLE).unwrap(), &mut one));
        assert_eq!((all.gpus, all.gpu_memory, one.gpus, one.gpu_memory), (2, 2 << 30, 1, 1 << 30));
        assert!(!late.declare(FoundGpus::Stuck, &mut all) && all.gpus == 2);
    }

    #[test]
    fn without_a_driver_there_are_no_devices() {
        assert_eq!(driver("exit 9", None).within(AMPLE), Some(FoundGpus::Known(0, 0)));
        let absent = LateGpus::ask(Command::new("/nonexistent/nvidia-smi"), Some(3));
        let mut capacity = Resources::new(100, 0);
        assert!(absent.declare(absent.within(AMPLE).unwrap(), &mut capacity));
        assert_eq!((capacity.gpus, capacity.gpu_memory), (3, 0), "an operator knows better");
    }

    #[test]
    fn the_capacity_is_what_the_control_groups_leave() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(below(dir.path(), 4), Resources::new(400, 0), "nothing is known");
        write("proc/meminfo", "MemTotal:       24641536 kB\nMemFree: 1 kB\n");
        write("proc/self/cgroup", "4:memory:/job\n0::/\n");
        write(
            "proc/self/mountinfo",
            "35 25 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
        );
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(below(dir.path(), 4), Resources::new(400, 24_641_536 << 10));
        write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
        assert_eq!(below(dir.path(), 4), Resources::new(400, 1 << 30));
        write("sys/fs/cgroup/unified/cpu.max", "250000 100000\n");
        assert_eq!(below(dir.path(), 4).cpu, 250);
        assert_eq!(below(dir.path(), 2).cpu, 200);
        write("sys/fs/cgroup/unified/cpu.max", "20000 100000\n");
        assert_eq!(below(dir.path(), 2).cpu, 100, "a task that asks for nothing has its cpu");
    }
}
