//! Files of tasks for the agent in the server's process: the server's own store, without a network and without a cache.

use std::io::SeekFrom;
use windlass_api::wire::{KeptOutputs, TaskFiles};
use windlass_cas::{Blob, Digest};
use windlass_core::{JobId, TaskId};
use windlass_server::{FilesError, FilesFault, JobFiles};
use windlass_worker::{BlobStore, FileCall, FileServer, FileTrouble, UploadBytes, patiently};

/// Bytes of an upload that are in memory at a time.
const PART_BYTES: usize = 1 << 20;

/// The server's own store.
pub struct LocalFiles(pub JobFiles);

impl FileServer for LocalFiles {
    fn files_of(&self, call: &FileCall) -> Result<TaskFiles, FileTrouble> {
        patiently(call, |_| self.0.files_of(task_of(call), call.task.attempt).map_err(trouble))
    }

    fn missing(&self, call: &FileCall, digests: &[Digest]) -> Result<Vec<Digest>, FileTrouble> {
        patiently(call, |_| self.0.missing(digests).map_err(trouble))
    }

    fn upload_many(&self, call: &FileCall, blobs: &[(Digest, Vec<u8>)]) -> Result<(), FileTrouble> {
        for (digest, bytes) in blobs {
            patiently(call, |_| {
                let put = self.0.put(task_of(call), call.task.attempt, *digest, bytes);
                put.map_err(trouble_of_upload)
            })?;
        }
        Ok(())
    }

    fn upload(&self, call: &FileCall, digest: Digest, from: &mut dyn UploadBytes) -> Result<(), FileTrouble> {
        let unreadable =
            |error: std::io::Error| FileTrouble::Job(format!("an output cannot be read: {error}"));
        patiently(call, |_| {
            from.seek(SeekFrom::Start(0)).map_err(unreadable)?;
            let writer = self.0.writer(task_of(call), call.task.attempt, digest);
            let mut writer = writer.map_err(trouble_of_upload)?;
            let mut part = vec![0; PART_BYTES];
            loop {
                call.check()?;
                match from.read(&mut part).map_err(unreadable)? {
                    0 => return writer.commit().map_err(trouble_of_upload),
                    read => writer.write(&part[..read]).map_err(trouble_of_upload)?,
                }
            }
        })
    }

    fn keep_outputs(&self, call: &FileCall, kept: KeptOutputs) -> Result<(), FileTrouble> {
        patiently(call, |_| self.0.keep_outputs(kept.clone()).map_err(trouble))
    }
}

impl BlobStore for LocalFiles {
    fn open(&self, digest: Digest) -> Result<Option<Blob>, FileTrouble> {
        self.0.read(digest).map_err(trouble)
    }
}

fn task_of(call: &FileCall) -> TaskId {
    TaskId { job: JobId(call.task.job), index: call.task.index }
}

fn trouble(error: FilesError) -> FileTrouble {
    let why = error.to_string();
    match error.fault {
        FilesFault::Attempt => FileTrouble::NotBooked(why),
        FilesFault::Job => FileTrouble::Job(why),
        FilesFault::Outputs => FileTrouble::Outputs(why),
        FilesFault::Passing => FileTrouble::Passing(why),
        FilesFault::Server => FileTrouble::Server(why),
    }
}

/// Of an upload, what passes is a lack of room.
fn trouble_of_upload(error: FilesError) -> FileTrouble {
    match trouble(error) {
        FileTrouble::Passing(why) => FileTrouble::Full(why),
        other => other,
    }
}
