//! Messages from the gateway to RQD, the program that runs frames on each host. The numbers of the fields are
//! OpenCue's.

#![allow(missing_docs, reason = "what has no comment is what its name or its message says")]

use std::collections::HashMap;
use windlass_cuebot::{Amounts, FrameRun};

/// The port on which RQD listens where the config names none.
pub const PORT: u16 = 8444;
/// The call that starts a frame.
pub const LAUNCH: &str = "/rqd.RqdInterface/LaunchFrame";
/// The call that kills a frame. RQD gives the same answer if the frame does not run.
pub const KILL: &str = "/rqd.RqdInterface/KillRunningFrame";

/// A frame to be run, with its command and its limits.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RunFrame {
    /// The key of the proc that it runs in.
    #[prost(string, tag = "1")]
    pub resource_id: String,
    #[prost(string, tag = "2")]
    pub job_id: String,
    #[prost(string, tag = "3")]
    pub job_name: String,
    #[prost(string, tag = "4")]
    pub frame_id: String,
    /// The name of the frame, as `NNNN-layer`.
    #[prost(string, tag = "5")]
    pub frame_name: String,
    #[prost(string, tag = "6")]
    pub layer_id: String,
    /// The command line, in which tokens are replaced.
    #[prost(string, tag = "7")]
    pub command: String,
    #[prost(string, tag = "8")]
    pub user_name: String,
    #[prost(string, tag = "9")]
    pub log_dir: String,
    #[prost(string, tag = "10")]
    pub show: String,
    #[prost(string, tag = "11")]
    pub shot: String,
    /// Time of the launch, in milliseconds of Unix time.
    #[prost(int64, tag = "16")]
    pub start_time: i64,
    /// The user's id. RQD refuses a frame without one.
    #[prost(int32, optional, tag = "17")]
    pub uid: Option<i32>,
    /// Hundredths of a core.
    #[prost(int32, tag = "18")]
    pub num_cores: i32,
    /// True if it runs even while a person works at the machine.
    #[prost(bool, tag = "20")]
    pub ignore_nimby: bool,
    #[prost(map = "string, string", tag = "21")]
    pub environment: HashMap<String, String>,
    #[prost(int32, tag = "23")]
    pub num_gpus: i32,
    #[prost(string, tag = "25")]
    pub os: String,
    /// KiB beyond which the frame is asked to end.
    #[prost(int64, tag = "26")]
    pub soft_memory_limit: i64,
    /// KiB beyond which the frame is killed.
    #[prost(int64, tag = "27")]
    pub hard_memory_limit: i64,
    /// The address of the Loki that takes its log; empty where there is none.
    #[prost(string, tag = "29")]
    pub loki_url: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LaunchRequest {
    #[prost(message, optional, tag = "1")]
    pub run_frame: Option<RunFrame>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct KillRequest {
    #[prost(string, tag = "1")]
    pub frame_id: String,
    /// The reason, for the frame's log.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The answer of both calls, which has no fields.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Empty {}

/// A launch of a frame that is running by the tables.
pub struct Launch {
    pub host_id: String,
    /// The name by which the host is reached.
    pub host: String,
    pub frame: RunFrame,
    pub amounts: Amounts,
}

impl Launch {
    /// The run that the launch begins: its frame, in its proc.
    pub fn run(&self) -> FrameRun {
        FrameRun { frame: self.frame.frame_id.clone(), proc_id: self.frame.resource_id.clone() }
    }
}
