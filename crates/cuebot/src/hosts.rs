//! What Cuebot asks of hosts, once the tables have it.

use std::collections::BTreeMap;

/// A run of a frame: RQD knows it by both keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrameRun {
    /// The key of the frame in OpenCue's tables.
    pub frame: String,
    /// The key of the proc that the frame holds for this run.
    pub proc_id: String,
}

/// Amounts of a host that a frame or a host has, or that are in use there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amounts {
    /// Hundredths of a core.
    pub cores: i64,
    /// Main memory in KiB.
    pub mem_kib: i64,
    /// Number of whole gpus.
    pub gpus: i64,
    /// Memory of the gpus in KiB.
    pub gpu_mem_kib: i64,
}

/// A command to be ended, because a client killed its frame or took its proc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The name of the host that runs it.
    pub host: String,
    /// The key of the frame that it was started for.
    pub frame: String,
    /// The key of its proc. `None` if the frame had none.
    pub proc_id: Option<String>,
}

/// Calls to hosts. The launcher of frames makes them, so that launches and kills of one frame on one host take turns.
/// Each call returns at once, and its work goes on beside the caller.
pub trait HostCalls: Send + Sync {
    /// True if Windlass workers are among the hosts.
    fn has_workers(&self) -> bool;

    /// True if a host is a Windlass worker. Such a host has no RQD, and the gateway reports for it.
    fn is_worker(&self, host: &str) -> bool;

    /// Asks hosts to end commands. Each host reports the end of its command, which frees the proc.
    fn end(&self, victims: Vec<Victim>, why: String);

    /// Ends runs that a host reports and does not hold. Each run is asked for once. Runs of an earlier report of the
    /// host that still wait are left out.
    fn end_strays(&self, host: String, strays: Vec<FrameRun>);

    /// Asks a host which of these runs it has, because it started, or because its reports leave them out. The frames of
    /// the others wait again. A host that gives no answer is asked again after its next report.
    fn ask_about(&self, host: String, runs: Vec<FrameRun>);

    /// Asks hosts by their names which of these runs they have, because their ends may have been told while nobody was
    /// there to hear them. The frames of the others wait again, but not those of a host that tells an end until it is
    /// heard.
    fn ask_all(&self, hosts: BTreeMap<String, Vec<FrameRun>>);
}
