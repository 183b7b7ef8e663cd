//! What a worker reports of its load once a second. Unknown is `None`, never 0.

/// One line of a pressure file: the share of time, in percent from 0 to 100, in which tasks stalled.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stall {
    /// Mean of about 10 seconds.
    pub avg10: f64,
    /// Mean of about a minute.
    pub avg60: f64,
    /// Mean of about 5 minutes.
    pub avg300: f64,
    /// Microseconds stalled since the machine started.
    pub total_us: u64,
    /// The exact share since the reading before; `None` of a first reading.
    pub window: Option<f64>,
}

/// One pressure file.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pressure {
    /// Some task stalled.
    pub some: Option<Stall>,
    /// All tasks that were not idle stalled. Older kernels do not say it of cpus.
    pub full: Option<Stall>,
}

/// The pressure files of a machine or of a control group; `None` where a file is absent.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pressures {
    /// Waiting for a cpu.
    pub cpu: Option<Pressure>,
    /// Waiting for memory.
    pub memory: Option<Pressure>,
    /// Waiting for input and output.
    pub io: Option<Pressure>,
}

/// The load of a worker's machine.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LoadReport {
    /// The worker has only a part of its machine: some of the cpus, or a limit on memory. Its own control
    /// group's pressure is then what counts.
    pub confined: bool,
    /// Of the whole machine.
    pub machine: Pressures,
    /// Of the control group in which the worker was started, with its tasks and whatever else is there.
    pub own: Pressures,
    /// Mean number of runnable tasks over 1, 5 and 15 minutes.
    pub load_average: Option<[f64; 3]>,
    /// Bytes that could be had without swapping, within the worker's own limit.
    pub memory_available: Option<u64>,
    /// Bytes that the worker's tasks hold.
    pub memory_own: Option<u64>,
    /// Cores in use, of those that the worker may use.
    pub cpu_used: Option<f64>,
    /// Of these, cores that something else than the worker's tasks uses.
    pub cpu_foreign: Option<f64>,
    /// Speed of the disks in MB/s, as tasks had it.
    pub disk_mb_s: Option<f64>,
    /// Speed of the network in Mbit/s, as transfers had it.
    pub network_mbit_s: Option<f64>,
}
