//! Files of jobs: inputs that users upload once, and outputs that are kept.
//!
//! [`JobFiles`] is the way to them: of the handlers of requests, of the calls of workers, and of the agent in this process.
//!
//! - A user names only files that the same user has uploaded ([`inputs`]). Who knows a digest reads nothing by it.
//! - Inputs are pinned before a submission is answered, and until the job ends ([`submission`], [`state`]).
//! - Workers read blobs of jobs by an attempt that is booked on them. They know digests from the trees that they were sent.
//! - Outputs are read through their job, by users who may read what its tasks wrote ([`outputs`], [`archive`]).

mod archive;
mod error;
mod given;
mod inputs;
mod names;
mod outputs;
mod state;
mod step_files;
mod submission;
mod upkeep;
mod uploads;
mod walk;

pub(crate) use archive::{TarAsked, tar_of};
pub(crate) use error::FilesTrouble;
pub use error::{FilesError, FilesFault};
pub(crate) use names::digest_of;
pub(crate) use state::FilesState;
pub(crate) use submission::{SubmissionKind, SubmittedFiles, submitted};
pub(crate) use upkeep::keep_up;
pub use uploads::JobBlobWriter;

use crate::cas::RemoteCache;
use crate::handle::Handle;
use std::sync::Arc;
use tokio::runtime::Handle as Runtime;
use windlass_api::wire::{KeptOutputs, TaskFiles};
use windlass_cas::{Blob, Digest};
use windlass_core::TaskId;

/// The files of jobs of a server that owns its farm. Cheap to clone.
///
/// The methods are for the agent in the server's own process: they wait for the disk, the engine and the database, and so
/// are for threads that may wait, and never for tasks of the runtime. Agents elsewhere make the same requests over gRPC.
#[derive(Clone)]
pub struct JobFiles {
    state: Arc<FilesState>,
    runtime: Runtime,
}

impl JobFiles {
    /// In the store of that cache. Called inside the runtime in which it works; nothing is opened before its first use.
    pub fn new(cache: &RemoteCache, handle: &Handle) -> JobFiles {
        let state = Arc::new(FilesState::new(cache.state().clone(), handle.clone()));
        JobFiles { state, runtime: Runtime::current() }
    }

    pub(crate) fn state(&self) -> &Arc<FilesState> {
        &self.state
    }

    /// What a booked attempt finds in its directory, and what is kept of it.
    pub fn files_of(&self, task: TaskId, attempt: u32) -> Result<TaskFiles, FilesError> {
        Ok(self.runtime.block_on(self.state.files_of(None, task, attempt))?)
    }

    /// Of these, the blobs that are not there.
    pub fn missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, FilesError> {
        let digests = digests.to_vec();
        let missing = self.state.with(move |blobs| Ok(blobs.missing(&digests)));
        Ok(self.runtime.block_on(missing)?)
    }

    /// A blob; `None` if it is not there. The path of one that is a file is for hard links and copies, and may be gone
    /// by then.
    pub fn read(&self, digest: Digest) -> Result<Option<Blob>, FilesError> {
        let read = self.state.with(move |blobs| Ok(blobs.read(digest)?));
        Ok(self.runtime.block_on(read)?)
    }

    /// Begins to upload a blob for a booked attempt. It counts for the day of the job's user.
    pub fn writer(&self, task: TaskId, attempt: u32, digest: Digest) -> Result<JobBlobWriter, FilesError> {
        Ok(self.runtime.block_on(self.state.writer(task, attempt, digest))?)
    }

    /// Uploads a blob that is in memory.
    pub fn put(&self, task: TaskId, attempt: u32, digest: Digest, bytes: &[u8]) -> Result<(), FilesError> {
        let mut writer = self.writer(task, attempt, digest)?;
        writer.write(bytes)?;
        writer.commit()
    }

    /// Keeps the outputs of a booked attempt, whose blobs were uploaded before.
    pub fn keep_outputs(&self, kept: KeptOutputs) -> Result<(), FilesError> {
        Ok(self.runtime.block_on(self.state.keep_outputs(None, kept))?)
    }
}

#[cfg(test)]
#[path = "server/tests.rs"]
mod test_server;

#[cfg(test)]
mod tests;
