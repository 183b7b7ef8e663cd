//! What Cuebot asks of hosts, after the tables say it.

/// A frame in a proc.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FrameRun {
    /// The frame's key.
    pub frame: String,
    /// The proc's key.
    pub proc_id: String,
}

/// What a frame or a host has, or what is in use there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amounts {
    /// Hundredths of a core.
    pub cores: i64,
    /// Memory in KiB.
    pub mem_kib: i64,
    /// Gpus.
    pub gpus: i64,
    /// Memory of the gpus in KiB.
    pub gpu_mem_kib: i64,
}

/// A command that shall end, because a client killed its frame or took its proc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Victim {
    /// The host's name.
    pub host: String,
    /// The frame's id.
    pub frame: String,
    /// The id of the proc that it ran in, if it had one.
    pub proc_id: Option<String>,
}

/// Calls to hosts. The part that launches frames makes them, so that launches and kills of one frame on one host take
/// turns. Each call returns at once, and what it asks for happens beside the caller.
pub trait HostCalls: Send + Sync {
    /// True if Windlass workers are among the hosts.
    fn has_workers(&self) -> bool;

    /// True if a host is a Windlass worker. The gateway reports for it.
    fn is_worker(&self, host: &str) -> bool;

    /// Asks hosts to end commands. Each host reports the end of its command, which frees the proc.
    fn end(&self, victims: Vec<Victim>, why: String);

    /// Ends runs that a host reports and does not hold. Each is asked for once. What waits of an earlier report of the
    /// host is left out.
    fn end_strays(&self, host: String, strays: Vec<FrameRun>);

    /// Asks a host that started which of these runs it has. The frames of the others wait again.
    fn ask_survivors(&self, host: String, runs: Vec<FrameRun>);
}
