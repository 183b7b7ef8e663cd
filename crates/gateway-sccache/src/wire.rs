//! The messages of sccache's distributed compilation.
//!
//! Bodies are bincode 1.3 with fixed integers, little endian; bytes behind a message are ignored. A response is JSON for
//! clients that ask for it. The order of fields and variants is the format: it never changes.

use bincode::Options as _;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// Bytes of the largest request to a scheduler: a heartbeat with a certificate is about 1.2 KiB.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Characters of an archive's id: BLAKE3 in hexadecimal.
const ARCHIVE_ID_CHARS: usize = 64;
/// What begins the tail of a heartbeat that only newer build servers and observers send.
const TAIL_MAGIC: [u8; 4] = *b"WLT1";

/// A body that is no such message.
#[derive(Debug, thiserror::Error)]
pub enum BadBody {
    /// It is too long.
    #[error("the body has {0} bytes, and may have {BODY_BYTES_MAX}")]
    TooLong(usize),
    /// It cannot be read.
    #[error("the body is not what it should be: {0}")]
    Unreadable(#[from] bincode::Error),
}

fn options() -> impl bincode::Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .allow_trailing_bytes()
        .with_limit(BODY_BYTES_MAX as u64)
}

/// Reads a message. Bytes behind it are ignored.
///
/// # Errors
///
/// Too long, too short, or not such a message.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, BadBody> {
    if body.len() > BODY_BYTES_MAX {
        return Err(BadBody::TooLong(body.len()));
    }
    Ok(options().deserialize(body)?)
}

/// A message as bytes.
pub fn write<T: Serialize>(message: &T) -> Vec<u8> {
    // Messages to clients are small, and have no maps and no unsized sequences.
    bincode::serialize(message).unwrap_or_default()
}

/// A toolchain, by the BLAKE3 of its archive in lower-case hexadecimal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Toolchain {
    /// The id.
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

/// A random number of a build server's process: another number is another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerNonce(pub u64);

/// What a build server says every 30 seconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The key by which it knows the tokens of its jobs.
    pub jwt_key: Vec<u8>,
    /// Its cores, as it counts them.
    pub num_cpus: u64,
    /// The number of its process.
    pub server_nonce: ServerNonce,
    /// SHA-256 of its certificate.
    pub cert_digest: Vec<u8>,
    /// The certificate.
    pub cert_pem: Vec<u8>,
}

/// What may follow the five fields of a heartbeat: how loaded the machine is.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HeartbeatTail {
    /// Percent of the last ten seconds in which something waited for a cpu; `None` is unknown, in all fields.
    pub cpu_percent: Option<f64>,
    /// The same for memory.
    pub memory_percent: Option<f64>,
    /// The same for input and output.
    pub io_percent: Option<f64>,
    /// Bytes that could be had without swapping.
    pub memory_available: Option<u64>,
}

impl Heartbeat {
    /// Reads a heartbeat, and its tail if it has one. Stock servers send none, and what else may follow is ignored.
    ///
    /// # Errors
    ///
    /// The five fields are not there.
    pub fn read(body: &[u8]) -> Result<(Heartbeat, Option<HeartbeatTail>), BadBody> {
        let heartbeat: Heartbeat = read(body)?;
        let fields = options().serialized_size(&heartbeat)? as usize;
        let tail = body.get(fields..).and_then(|rest| rest.strip_prefix(&TAIL_MAGIC));
        let tail: Option<HeartbeatTail> = tail.and_then(|tail| options().deserialize(tail).ok());
        Ok((heartbeat, tail.filter(HeartbeatTail::is_sane)))
    }

    /// The heartbeat with a tail. Stock schedulers ignore what follows the fields that they know.
    pub fn with_tail(&self, tail: &HeartbeatTail) -> Vec<u8> {
        [&*write(self), &TAIL_MAGIC, &*write(tail)].concat()
    }
}

impl HeartbeatTail {
    /// Percents are percents.
    fn is_sane(&self) -> bool {
        let percents = [self.cpu_percent, self.memory_percent, self.io_percent];
        percents.into_iter().flatten().all(|percent| (0.0..=100.0).contains(&percent))
    }
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeartbeatResult {
    /// The scheduler did not know this process before.
    pub is_new: bool,
}

/// A place for a compile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobAlloc {
    /// The token that the build server asks for.
    pub auth: String,
    /// The job.
    pub job_id: JobId,
    /// The build server.
    pub server_id: ServerId,
}

/// The answer to a client that asks for a place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AllocJobResult {
    /// Here is one.
    Success {
        /// The place.
        job_alloc: JobAlloc,
        /// The client must send the toolchain first.
        need_toolchain: bool,
        /// SHA-256 of the build server's certificate.
        cert_digest: Vec<u8>,
    },
    /// There is none, and the client compiles by itself.
    Fail {
        /// Why, for its log.
        msg: String,
    },
}

/// A build server's certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerCertificate {
    /// SHA-256 of it.
    pub cert_digest: Vec<u8>,
    /// Itself.
    pub cert_pem: Vec<u8>,
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum JobState {
    /// Its server waits for the toolchain.
    Pending,
    /// It may be started.
    Ready,
    /// It compiles.
    Started,
    /// It is over, well or not.
    Complete,
}

/// The answer to a build server that says how far a job is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum UpdateJobStateResult {
    /// Noted.
    Success,
    /// Not noted.
    Fail {
        /// Why.
        msg: String,
    },
}

/// The whole farm in three numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchedulerStatus {
    /// Build servers.
    pub num_servers: u64,
    /// Their cores.
    pub num_cpus: u64,
    /// Jobs that are allocated and not complete.
    pub in_progress: u64,
}

/// A build server's answer to a job that is assigned to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AssignJobResult {
    /// Ready, or pending if the toolchain must come first.
    pub state: JobState,
    /// The toolchain must come first.
    pub need_toolchain: bool,
}

/// The body of a refusal: stock peers show it in their logs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What failed.
    pub description: String,
    /// Why.
    pub cause: Option<Box<ErrorBody>>,
}
