//! What the agent asks of the server about files. The server is elsewhere, or its store is on this machine.

use super::trouble::FileTrouble;
use crate::protocol::TaskRef;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use windlass_api::wire::{KeptOutputs, TaskFiles};
use windlass_cas::{Blob, Digest};

/// Bytes up to which a blob travels with others in one message.
pub const BATCHED_BYTES_MAX: u64 = 1 << 20;
/// Bytes of all blobs of one message, which servers take with what is around them.
pub const BATCH_BYTES_MAX: u64 = (4 << 20) - (64 << 10);
/// Blobs of one message.
pub const BATCH_BLOBS_MAX: usize = 4_096;
/// Bytes that a blob takes of a message besides its own.
pub const AROUND_BYTES: u64 = 128;

/// For how long a server is asked again that gives no answer, or none that counts, ...
pub const PATIENCE: Duration = Duration::from_secs(600);
/// ... and one that has no room, or none for this user. That seldom passes, and the attempts of others wait meanwhile.
const FULL_PATIENCE: Duration = Duration::from_secs(30);
/// Pauses between two such tries: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// An attempt on whose behalf the server is asked.
#[derive(Clone, Debug)]
pub struct FileCall {
    /// The attempt whose files these are.
    pub task: TaskRef,
    /// The worker's epoch when it started, which the server compares.
    pub epoch: u64,
    over: Arc<AtomicBool>,
}

impl FileCall {
    /// On behalf of an attempt that the keeper has.
    pub fn new(task: TaskRef, epoch: u64) -> FileCall {
        FileCall { task, epoch, over: Arc::default() }
    }

    /// Whether it is the same call, and not a later one of the attempt.
    pub fn is(&self, other: &FileCall) -> bool {
        Arc::ptr_eq(&self.over, &other.over)
    }

    /// The keeper has no use for the files any more. What is under way for them ends soon.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// An error once the keeper has no use for the files any more.
    pub fn check(&self) -> Result<(), FileTrouble> {
        if self.over.load(Ordering::Relaxed) { Err(FileTrouble::Over) } else { Ok(()) }
    }
}

/// Takes the next bytes of a blob.
pub type TakePart<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), FileTrouble>;
/// Takes a whole blob, whose digest comes with it.
pub type TakeBlob<'a> = &'a mut dyn FnMut(Digest, &[u8]) -> Result<(), FileTrouble>;

/// The bytes of an upload, which goes on somewhere in them when the connection was lost.
pub trait UploadBytes: Read + Seek {}

impl<T: Read + Seek> UploadBytes for T {}

/// The server's side of files of attempts. All calls block: they wait for a lost connection for `PATIENCE`, and end
/// early when the attempt is over.
pub trait FileServer: Send + Sync {
    /// Which files an attempt finds, and what is kept of its directory.
    fn files_of(&self, call: &FileCall) -> Result<TaskFiles, FileTrouble>;

    /// Of these, the blobs that the server lacks.
    fn missing(&self, call: &FileCall, digests: &[Digest]) -> Result<Vec<Digest>, FileTrouble>;

    /// Uploads blobs of at most `BATCH_BYTES_MAX` together.
    fn upload_many(&self, call: &FileCall, blobs: &[(Digest, Vec<u8>)]) -> Result<(), FileTrouble>;

    /// Uploads a blob of any size. The server takes only what the digest names.
    fn upload(&self, call: &FileCall, digest: Digest, from: &mut dyn UploadBytes) -> Result<(), FileTrouble>;

    /// Keeps the outputs of an attempt, whose blobs were uploaded before. The task and the epoch are the call's.
    fn keep_outputs(&self, call: &FileCall, kept: KeptOutputs) -> Result<(), FileTrouble>;
}

/// Blobs of a server elsewhere, which are fetched into a cache. Calls wait as those of [`FileServer`].
pub trait BlobReader: Send + Sync {
    /// Reads blobs of at most `BATCHED_BYTES_MAX`, in any order.
    fn read_many(&self, call: &FileCall, digests: &[Digest], take: TakeBlob<'_>) -> Result<(), FileTrouble>;

    /// Reads a blob of any size from its beginning, in parts.
    fn read(&self, call: &FileCall, digest: Digest, take: TakePart<'_>) -> Result<(), FileTrouble>;
}

/// The server's own store, where that is on this machine.
pub trait BlobStore: Send + Sync {
    /// A blob; `None` if it is not there.
    fn open(&self, digest: Digest) -> Result<Option<Blob>, FileTrouble>;
}

/// The server lost a blob that a job needs.
pub fn no_blob(digest: Digest) -> FileTrouble {
    FileTrouble::Job(format!(
        "the server does not have {digest} any more; submit the job again, which uploads it"
    ))
}

/// How long a server is asked again.
pub struct Patience {
    since: Instant,
    pause: Duration,
}

impl Patience {
    fn new() -> Patience {
        Patience { since: Instant::now(), pause: PAUSE_FIRST }
    }

    /// It gave or took something, so the time begins again.
    pub fn went_on(&mut self) {
        *self = Patience::new();
    }

    /// Waits before the next try, or gives up.
    fn wait(&mut self, trouble: FileTrouble) -> Result<(), FileTrouble> {
        let is_full = matches!(trouble, FileTrouble::Full(_));
        let patience = if is_full { FULL_PATIENCE } else { PATIENCE };
        if self.since.elapsed() >= patience {
            return Err(match is_full {
                true => trouble,
                false => FileTrouble::Patience { minutes: PATIENCE.as_secs() / 60, why: trouble.told() },
            });
        }
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// Asks a server until it answers what counts, for `PATIENCE` or until the attempt is over.
pub fn patiently<T>(
    call: &FileCall,
    mut once: impl FnMut(&mut Patience) -> Result<T, FileTrouble>,
) -> Result<T, FileTrouble> {
    let mut patience = Patience::new();
    loop {
        call.check()?;
        match once(&mut patience) {
            Err(trouble) if trouble.is_worth_another_try() => patience.wait(trouble)?,
            done => return done,
        }
    }
}

/// Divides blobs into parts that one message takes each.
pub fn batches(digests: &[Digest]) -> Vec<&[Digest]> {
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, digest) in digests.iter().enumerate() {
        let with_it = bytes + digest.size + AROUND_BYTES;
        if at > start && (with_it > BATCH_BYTES_MAX || at - start == BATCH_BLOBS_MAX) {
            parts.push(&digests[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += digest.size + AROUND_BYTES;
    }
    if start < digests.len() {
        parts.push(&digests[start..]);
    }
    parts
}
