//! A worker of a farm, as a library: two processes on the worker's machine.
//!
//! The *keeper* owns the tasks' processes, their limits, exit codes and logs. It has one thread, opens no
//! network connection, and where the system allows it is pid 1 of PID and mount namespaces of its own, so
//! that the kernel ends everything under it when it ends. The *agent* talks to the server. It can be killed
//! or replaced while tasks run, because the keeper keeps every result until it is acknowledged.
//! `windlass-cli` starts both: the keeper by [`keeper_main`], the agent by [`Agent`] inside a server or by
//! [`run_remote`] on a worker of a farm. This crate never decides what runs where; it does what the engine's
//! commands say.

mod admin_sockets;
mod agent;
mod caches;
mod call_error;
mod cgroup;
mod clock;
mod confinement;
mod core_speed;
mod detect;
mod doctor;
mod files;
mod gpu_devices;
mod identity;
mod keep;
mod keeper;
mod kept;
mod late;
mod launcher;
mod load;
mod logs;
mod make_version;
mod mask;
mod measure;
mod memory;
mod mounts;
mod names;
mod network;
mod old_output;
mod outgoing;
mod process;
mod protocol;
mod random;
mod remote;
mod server_rotation;
mod spawn;
mod syscall;
mod token_notice;
mod unshare;
mod users;
mod watch;
mod wire;

pub use admin_sockets::ADMIN_SOCKET;
pub use agent::{Agent, AgentError, AgentOptions, FromAgent};
pub use caches::{BadCache, CacheDir};
pub use cgroup::own_oom_kills;
pub use core_speed::measure as measure_core;
pub use detect::{Detected, GPUS_ARE_LATE, GpusFor, LateGpus, NoGpus, ShownGpus, attributes, capacity};
pub use doctor::{Examined, Finding, doctor, doctor_worker};
pub use files::{
    AgentFiles, BlobReader, BlobStore, FileCache, FileCall, FileFault, FileServer, FileTrouble, InputBlobs,
    Patience, TakeBlob, TakePart, UploadBytes, patiently,
};
pub use gpu_devices::{AskedGpus, BadGpuDevices, GpuDevice};
pub use identity::{expected_name, identity, name};
pub use keeper::{KeeperOptions, keeper_main};
pub use late::{Late, NoAnswer, run_within};
pub use logs::{LogDir, Stream};
pub use measure::MeasureCore;
pub use names::Names;
pub use process::{close_inherited, heed_children, protect_from_oom, raise_file_limit};
pub use protocol::{Body, Hidden, NO_CONTROL_GROUPS, TaskRef, ToKeeper};
pub use remote::{RemoteError, RemoteOptions, ServerAddress, run_remote};
pub use users::{BadUser, RunAs, UserEntry, UserMap, group_number, name_of_user, peer_groups};
pub use wire::keeper_message;
