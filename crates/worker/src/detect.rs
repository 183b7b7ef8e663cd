//! Detection of a worker's capacity and attributes: cpus, memory, GPUs, operating system and host name. A worker that
//! starts reports them, unless an operator declares other values. The driver of GPUs may be stuck, so a start goes on
//! without its answer, and the agent declares the GPUs when the answer comes. Nothing here changes the machine.

use crate::confinement::{allowed_cpus, cpu_quota, memory_limit};
use crate::gpu_devices::{AskedGpus, BadGpuDevices, GpuDevice, QUERY, ShownDevice, choose, parse};
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
const START_WAIT: Duration = Duration::from_secs(3);
/// The time after which a worker takes `nvidia-smi` for stuck, and kills it.
const START_MAX: Duration = Duration::from_secs(600);
/// The same of a command that tells a person what this machine has.
pub const GPUS_TOLD_MAX: Duration = Duration::from_secs(10);
/// How much longer such a command waits for a program that is killed then. The kernel kills the program with the command,
/// but not what the program started.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// Who asks the driver of GPUs, and what becomes of a late answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GpusFor {
    /// A worker that starts. It goes on after 3 s, and hears the answer when it comes.
    Start,
    /// A command that tells a person what this machine has. It ends `nvidia-smi` after 10 s.
    Person,
}

impl GpusFor {
    /// How long the asker waits.
    fn wait(self) -> Duration {
        match self {
            GpusFor::Start => START_WAIT,
            GpusFor::Person => GPUS_TOLD_MAX + KILL_WAIT,
        }
    }

    /// How long `nvidia-smi` may take.
    fn max(self) -> Duration {
        match self {
            GpusFor::Start => START_MAX,
            GpusFor::Person => GPUS_TOLD_MAX,
        }
    }
}

/// Said of a start without the driver's answer.
pub const GPUS_ARE_LATE: &str = "nvidia-smi has not answered within 3 s: the worker starts without gpus, and declares \
                                 them when it answers; --gpus 0 asks for none";

/// What this machine gives to tasks.
#[derive(Clone, Debug)]
pub struct Detected {
    /// What is known now. Cpus are those that the affinity mask and the quotas of control groups leave to this process,
    /// and at least one. Memory is the machine's, or the limit of a control group above if that is less; 0 if it is
    /// unknown.
    pub capacity: Resources,
    /// The names of its GPUs; `None` if nothing is known of any.
    pub gpu_devices: Option<Vec<String>>,
    /// The GPUs, if the driver has not answered yet.
    pub late_gpus: Option<LateGpus>,
}

/// The GPUs of a machine whose driver is asked.
#[derive(Clone, Debug)]
pub struct LateGpus {
    shown: Late<ShownGpus>,
    asked: AskedGpus,
}

/// What `nvidia-smi` says, or does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShownGpus {
    /// All devices, working or not; none without the driver.
    Known(Vec<ShownDevice>),
    /// It was killed without an answer.
    Stuck,
}

/// Why a machine's GPUs cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoGpus {
    /// The driver is stuck.
    #[error("nvidia-smi does not answer; see whether the driver is stuck ('dmesg')")]
    Stuck,
    /// The operator's words contradict each other or what is shown.
    #[error(transparent)]
    Bad(#[from] BadGpuDevices),
}

/// What this machine gives to tasks. The driver of its GPUs is not asked if an operator declares none.
///
/// # Errors
/// If the operator's words contradict each other or what is found.
pub fn capacity(asked: &AskedGpus, by: GpusFor) -> Result<Detected, NoGpus> {
    // The mask of a machine with more cpus than it can name is not known.
    let cpus = Some(allowed_cpus().len()).filter(|cpus| *cpus > 0);
    let cpus = cpus.or_else(|| Some(std::thread::available_parallelism().ok()?.get())).unwrap_or(1);
    let mut capacity = below(Path::new("/"), cpus);
    let late = match asked.count {
        Some(0) => None,
        _ => Some(LateGpus::ask(nvidia_smi(), asked, by.max())),
    };
    let devices = match &late {
        None => choose(&[], asked)?,
        Some(late) => match late.within(by.wait()) {
            Some(shown @ ShownGpus::Known(_)) => late.usable(shown)?,
            Some(ShownGpus::Stuck) | None => {
                return Ok(Detected { capacity, gpu_devices: None, late_gpus: Some(late.clone()) });
            }
        },
    };
    let gpu_devices = declare(devices, &mut capacity);
    Ok(Detected { capacity, gpu_devices, late_gpus: None })
}

/// Puts GPUs into a capacity, and returns their names; `None` if nothing is known of any.
pub fn declare(devices: Option<Vec<GpuDevice>>, capacity: &mut Resources) -> Option<Vec<String>> {
    let known = devices.as_deref().unwrap_or_default();
    capacity.gpus = known.len() as u32;
    capacity.gpu_memory = known.iter().map(|device| device.memory_bytes).sum();
    devices.map(|devices| devices.into_iter().map(|device| device.name).collect())
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
    command.args(QUERY);
    command
}

impl LateGpus {
    fn ask(mut driver: Command, asked: &AskedGpus, max: Duration) -> LateGpus {
        let shown = Late::ask(move || match run_within(&mut driver, max) {
            // It fails where one of several devices does.
            Ok(answer) | Err(NoAnswer::Failed(_, answer)) => {
                ShownGpus::Known(parse(&String::from_utf8_lossy(&answer)))
            }
            Err(NoAnswer::Late(_)) => ShownGpus::Stuck,
            Err(_) => ShownGpus::Known(Vec::new()),
        });
        LateGpus { shown, asked: asked.clone() }
    }

    /// The driver's answer; `None` if it takes longer than `wait`.
    pub fn within(&self, wait: Duration) -> Option<ShownGpus> {
        self.shown.within(wait)
    }

    /// The GPUs that tasks may use; `None` if nothing is known of any. Those that do not work are logged.
    ///
    /// # Errors
    /// If there is no answer, or the operator's words contradict each other or what is shown.
    pub fn usable(&self, shown: ShownGpus) -> Result<Option<Vec<GpuDevice>>, NoGpus> {
        let ShownGpus::Known(shown) = shown else { return Err(NoGpus::Stuck) };
        for device in &shown {
            if let Some(fault) = &device.fault {
                tracing::warn!("gpu {} is left out: nvidia-smi says '{fault}'", device.index);
            }
        }
        Ok(choose(&shown, &self.asked)?)
    }
}

/// The NVIDIA devices of this machine, for a person, if the driver answers.
pub fn gpus() -> Option<ShownGpus> {
    let by = GpusFor::Person;
    LateGpus::ask(nvidia_smi(), &AskedGpus::default(), by.max()).within(by.wait())
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

    /// A driver that is a line for the shell, on a worker that has at most `count` GPUs.
    fn driver(line: &str, count: Option<u32>) -> LateGpus {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        LateGpus::ask(command, &AskedGpus { count, ..AskedGpus::default() }, AMPLE)
    }

    /// The number of GPUs, their memory and their names, once the driver has answered.
    fn declared(late: &LateGpus) -> (u32, u64, Option<Vec<String>>) {
        let mut capacity = Resources::new(100, 0);
        let names = declare(late.usable(late.within(AMPLE).unwrap()).unwrap(), &mut capacity);
        (capacity.gpus, capacity.gpu_memory, names)
    }

    const AMPLE: Duration = Duration::from_secs(60);

    #[test]
    fn a_driver_that_does_not_answer_holds_up_nothing_and_declares_its_devices_later() {
        let dir = tempfile::tempdir().unwrap();
        let answers = dir.path().join("answers");
        let waits = format!(
            "until [ -e {} ]; do sleep 0.01; done; echo 0, GPU-aa, 1024; echo 1, GPU-bb, 1024",
            answers.display()
        );
        let (late, some) = (driver(&waits, None), driver(&waits, Some(1)));
        let began = Instant::now();
        assert_eq!(late.within(Duration::from_millis(50)), None);
        assert!(began.elapsed() < AMPLE);
        fs::write(&answers, "").unwrap();
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(declared(&late), (2, 2 << 30, names(&["0", "1"])));
        assert_eq!(declared(&some), (1, 1 << 30, names(&["0"])));
        assert_eq!(late.usable(ShownGpus::Stuck), Err(NoGpus::Stuck));
    }

    #[test]
    fn without_a_driver_there_are_no_devices_but_those_that_an_operator_knows() {
        assert_eq!(declared(&driver("exit 9", None)), (0, 0, None));
        assert_eq!(declared(&driver("echo 0, GPU-aa, 1024; exit 9", None)).0, 1, "another one failed");
        let absent = LateGpus::ask(
            Command::new("/nonexistent/nvidia-smi"),
            &AskedGpus { count: Some(3), ..AskedGpus::default() },
            AMPLE,
        );
        assert_eq!(declared(&absent).0, 3, "an operator knows better");
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
