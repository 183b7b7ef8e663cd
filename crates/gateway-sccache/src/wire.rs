//! The messages of sccache's distributed compilation.
//!
//! Bodies are bincode 1.3 with fixed integers, little endian; bytes behind a message are ignored. A response is JSON for
//! clients that ask for it. The order of fields and variants is the format: it never changes.

#![allow(missing_docs, reason = "what has no comment is what its name or its message says")]

use bincode::Options as _;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// Bytes of the largest request to a scheduler. A heartbeat with a certificate has about 1.2 KiB.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Characters of an archive's id: BLAKE3 in hexadecimal.
const ARCHIVE_ID_CHARS: usize = 64;
/// Bytes of a [`ServerLoadMetrics`] behind a heartbeat, with the byte that says that it is there.
const LOAD_BYTES: usize = 33;

/// Why a body is not a message.
#[derive(Debug, thiserror::Error)]
pub enum BadBody {
    #[error("the body has {0} bytes, and may have {BODY_BYTES_MAX}")]
    TooLong(usize),
    #[error("the body is not what it should be: {0}")]
    Unreadable(#[from] bincode::Error),
}

fn options() -> impl bincode::Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .allow_trailing_bytes()
        .with_limit(BODY_BYTES_MAX as u64)
}

/// Reads a message. Bytes after it are ignored.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, BadBody> {
    if body.len() > BODY_BYTES_MAX {
        return Err(BadBody::TooLong(body.len()));
    }
    Ok(options().deserialize(body)?)
}

pub fn write<T: Serialize>(message: &T) -> Vec<u8> {
    // Serialization cannot fail: messages are small, and have no maps and no unsized sequences.
    bincode::serialize(message).unwrap_or_default()
}

/// A toolchain, by the BLAKE3 of its archive in lower-case hexadecimal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Toolchain {
    pub archive_id: String,
}

impl<'de> Deserialize<'de> for Toolchain {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "Toolchain")]
        struct Raw {
            archive_id: String,
        }
        let mut archive_id = Raw::deserialize(from)?.archive_id;
        if archive_id.len() != ARCHIVE_ID_CHARS || !archive_id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(D::Error::custom("an archive's id is 64 hexadecimal digits"));
        }
        archive_id.make_ascii_lowercase();
        Ok(Toolchain { archive_id })
    }
}

/// The number of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// A build server, by the address at which clients reach it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ServerId(pub SocketAddr);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A random number that identifies a build server's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerNonce(pub u64);

/// The message that a build server sends every 30 seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The key with which it checks the tokens of its jobs.
    pub jwt_key: Vec<u8>,
    pub num_cpus: u64,
    pub server_nonce: ServerNonce,
    /// SHA-256 of its certificate.
    pub cert_digest: Vec<u8>,
    pub cert_pem: Vec<u8>,
}

/// The load of the machine, which may follow the five fields of a heartbeat: the sixth field, `load_metrics`, of build
/// servers that tell of their load. Stock ones of 0.17 to 0.19 do not.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ServerLoadMetrics {
    /// Percent of the last ten seconds in which processes waited for a cpu; 0 where the machine cannot tell.
    pub cpu_pressure_avg10: f32,
    /// Percent of that time in which processes waited for memory.
    pub memory_pressure_avg10: f32,
    /// Percent of that time in which processes waited for input and output.
    pub io_pressure_avg10: f32,
    /// Jobs that the build server counts. The scheduler goes by its own count.
    pub active_jobs: u64,
    /// Mean number of runnable processes over a minute.
    pub load_average_1min: f32,
    /// Mebibytes of memory that are available without swapping; 0 where the machine cannot tell.
    pub available_memory_mb: u64,
}

impl Heartbeat {
    /// Reads a heartbeat, and the load behind its fields if it has one. What has another length there is of a release
    /// that is not known, and is ignored.
    pub fn read(body: &[u8]) -> Result<(Heartbeat, Option<ServerLoadMetrics>), BadBody> {
        let heartbeat: Heartbeat = read(body)?;
        let fields = options().serialized_size(&heartbeat)? as usize;
        let rest = body.get(fields..).filter(|rest| rest.len() == LOAD_BYTES);
        let load: Option<Option<ServerLoadMetrics>> = rest.and_then(|rest| options().deserialize(rest).ok());
        Ok((heartbeat, load.flatten()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeartbeatResult {
    /// True if the scheduler did not know this process before.
    pub is_new: bool,
}

/// A place for a compile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobAlloc {
    /// The token that the build server checks.
    pub auth: String,
    pub job_id: JobId,
    pub server_id: ServerId,
}

/// The answer to a client that asks for a place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AllocJobResult {
    /// The client has a place.
    Success {
        job_alloc: JobAlloc,
        /// True if the client must send the toolchain first.
        need_toolchain: bool,
        cert_digest: Vec<u8>,
    },
    /// The client has no place, and compiles by itself.
    Fail { msg: String },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerCertificate {
    /// SHA-256 of the certificate.
    pub cert_digest: Vec<u8>,
    pub cert_pem: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum JobState {
    /// The build server waits for the toolchain.
    Pending,
    /// The job may be started.
    Ready,
    /// The job compiles until it is complete.
    Started,
    /// The job is over, successful or not.
    Complete,
}

/// The answer to a build server that reports a job's state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UpdateJobStateResult {
    Success,
    Fail { msg: String },
}

/// The sums over a farm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchedulerStatus {
    pub num_servers: u64,
    pub num_cpus: u64,
    /// The number of jobs that are allocated and not complete.
    pub in_progress: u64,
}

/// A build server's answer to a job that is assigned to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AssignJobResult {
    /// The state: ready, or pending if the toolchain must come first.
    pub state: JobState,
    /// True if the toolchain must come first.
    pub need_toolchain: bool,
}

/// The body of a refusal, which stock peers show in their logs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    pub description: String,
    pub cause: Option<Box<ErrorBody>>,
}
