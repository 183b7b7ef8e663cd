//! What the gateway says to RQD, the program that runs frames on each host. The numbers of the fields are OpenCue's.

use std::collections::HashMap;

/// Where RQD listens.
pub const PORT: u16 = 8444;
/// Starts a frame.
pub const LAUNCH: &str = "/rqd.RqdInterface/LaunchFrame";
/// Kills a frame. RQD answers the same if it does not run.
pub const KILL: &str = "/rqd.RqdInterface/KillRunningFrame";

/// A frame to be run.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RunFrame {
    /// The proc that it runs in.
    #[prost(string, tag = "1")]
    pub resource_id: String,
    /// Its job.
    #[prost(string, tag = "2")]
    pub job_id: String,
    /// The job's name.
    #[prost(string, tag = "3")]
    pub job_name: String,
    /// The frame.
    #[prost(string, tag = "4")]
    pub frame_id: String,
    /// `NNNN-layer`.
    #[prost(string, tag = "5")]
    pub frame_name: String,
    /// Its layer.
    #[prost(string, tag = "6")]
    pub layer_id: String,
    /// The command line, without tokens.
    #[prost(string, tag = "7")]
    pub command: String,
    /// The user that it runs as.
    #[prost(string, tag = "8")]
    pub user_name: String,
    /// Where its log goes.
    #[prost(string, tag = "9")]
    pub log_dir: String,
    /// The show's name.
    #[prost(string, tag = "10")]
    pub show: String,
    /// The shot.
    #[prost(string, tag = "11")]
    pub shot: String,
    /// Milliseconds since the epoch.
    #[prost(int64, tag = "16")]
    pub start_time: i64,
    /// The user's number. RQD refuses a frame without one.
    #[prost(int32, optional, tag = "17")]
    pub uid: Option<i32>,
    /// Hundredths of a core.
    #[prost(int32, tag = "18")]
    pub num_cores: i32,
    /// Runs even where somebody works at the machine.
    #[prost(bool, tag = "20")]
    pub ignore_nimby: bool,
    /// Variables.
    #[prost(map = "string, string", tag = "21")]
    pub environment: HashMap<String, String>,
    /// Devices.
    #[prost(int32, tag = "23")]
    pub num_gpus: i32,
    /// The job's operating system.
    #[prost(string, tag = "25")]
    pub os: String,
    /// KiB from which on the frame is asked to end.
    #[prost(int64, tag = "26")]
    pub soft_memory_limit: i64,
    /// KiB that it may hold at most.
    #[prost(int64, tag = "27")]
    pub hard_memory_limit: i64,
    /// Where Loki takes its log; empty is nowhere.
    #[prost(string, tag = "29")]
    pub loki_url: String,
}

/// What [`LAUNCH`] takes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LaunchRequest {
    /// The frame.
    #[prost(message, optional, tag = "1")]
    pub run_frame: Option<RunFrame>,
}

/// What [`KILL`] takes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KillRequest {
    /// The frame.
    #[prost(string, tag = "1")]
    pub frame_id: String,
    /// Why.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The answer of both, which says nothing.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Empty {}
