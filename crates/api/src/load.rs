//! The JSON of a worker's load. Unknown values are absent.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::Time;
use windlass_core::load::pressure as core;

/// A worker's last load report.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Load {
    /// When the server received it.
    pub at_ms: u64,
    /// True if the worker has only a part of its machine: then the pressure of its own control group counts.
    pub confined: bool,
    /// Pressures of the whole machine.
    pub machine: Pressures,
    /// Pressures of the control group in which the worker was started.
    pub own: Pressures,
    /// Mean number of runnable tasks over 1, 5 and 15 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_average: Option<[f64; 3]>,
    /// Bytes of available memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available: Option<u64>,
    /// Bytes of memory that its tasks hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_own: Option<u64>,
    /// Cpus in use, of those that the worker may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_used: Option<f64>,
    /// Foreign load: declared cpus that processes outside of Windlass use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_foreign: Option<f64>,
    /// Speed of its disks in MB/s, as measured with tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb_s: Option<f64>,
    /// Speed of its network in Mbit/s, as measured with tasks that fetched something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mbit_s: Option<f64>,
    /// Speed of one of its cores, as it measured that; 1000 is the reference core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_score: Option<f64>,
    /// What its network links receive, in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_in_mbit_s: Option<f64>,
    /// What its network links send, in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_out_mbit_s: Option<f64>,
    /// Percent of its speed in use on the busiest link, mean of about 10 seconds; absent where no link tells its speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_percent: Option<f64>,
    /// Space of its state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_space: Option<DiskSpace>,
    /// Space of its session directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_space: Option<DiskSpace>,
    /// Space of the cache directory that has least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_space: Option<DiskSpace>,
}

/// Space of the file system that holds a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskSpace {
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes of the file system.
    pub total_bytes: u64,
}

impl From<core::DiskSpace> for DiskSpace {
    fn from(core::DiskSpace { free_bytes, total_bytes }: core::DiskSpace) -> Self {
        DiskSpace { free_bytes, total_bytes }
    }
}

/// Stall time by what was waited for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Pressures {
    /// Stalls for a cpu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Pressure>,
    /// Stalls of processes for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Pressure>,
    /// Stalls for input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<Pressure>,
}

/// Stall time by how many processes stalled, as in the kernel's pressure information.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Pressure {
    /// At least one process stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub some: Option<Stall>,
    /// All processes that were not idle stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<Stall>,
}

/// Stall time, in percent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Stall {
    /// Mean of about 10 seconds.
    pub avg10: f64,
    /// Mean of about a minute.
    pub avg60: f64,
    /// Mean of about 5 minutes.
    pub avg300: f64,
    /// Total stall time in microseconds since the machine started.
    pub total_us: u64,
    /// The exact share since the previous report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<f64>,
}

impl Load {
    /// The core's report, received at that time.
    pub fn from_core(at: Time, from: &core::LoadReport) -> Self {
        Load {
            at_ms: at.as_ms(),
            confined: from.confined,
            machine: Pressures::from_core(&from.machine),
            own: Pressures::from_core(&from.own),
            load_average: from.load_average,
            memory_available: from.memory_available,
            memory_own: from.memory_own,
            cpu_used: from.cpu_used,
            cpu_foreign: from.cpu_foreign,
            disk_mb_s: from.disk_mb_s,
            network_mbit_s: from.network_mbit_s,
            core_score: from.core_score,
            network_in_mbit_s: from.network_in_mbit_s,
            network_out_mbit_s: from.network_out_mbit_s,
            network_percent: from.network_percent,
            state_space: from.state_space.map(Into::into),
            session_space: from.session_space.map(Into::into),
            cache_space: from.cache_space.map(Into::into),
        }
    }
}

impl Pressures {
    fn from_core(core::Pressures { cpu, memory, io }: &core::Pressures) -> Self {
        let each = |from: &Option<core::Pressure>| from.map(Pressure::from_core);
        Pressures { cpu: each(cpu), memory: each(memory), io: each(io) }
    }
}

impl Pressure {
    fn from_core(core::Pressure { some, full }: core::Pressure) -> Self {
        let each = |from: Option<core::Stall>| {
            let core::Stall { avg10, avg60, avg300, total_us, window } = from?;
            Some(Stall { avg10, avg60, avg300, total_us, window })
        };
        Pressure { some: each(some), full: each(full) }
    }
}
