//! The outputs of attempts: from their directories to the server, which keeps them.

use super::server::{
    AROUND_BYTES, BATCH_BLOBS_MAX, BATCH_BYTES_MAX, BATCHED_BYTES_MAX, FileCall, FileServer,
};
use super::trouble::FileTrouble;
use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use windlass_api::wire::KeptOutputs;
use windlass_cas::Digest;
use windlass_cas::tree::{CollectedTree, ENTRIES_MAX, PathGlobs, TreeBounds, TreeError, collect_tree};

/// Bytes of the outputs of one task: 1 TiB.
const OUTPUTS_BYTES_MAX: u64 = 1 << 40;
/// Blobs that the server is asked about at a time.
const ASKED_MAX: usize = 4_096;
/// Texts that say what was not kept. The server keeps as many.
const TOLD_MAX: usize = 100;
/// How often blobs are uploaded that the server loses before it keeps the outputs.
const ROUNDS_MAX: usize = 3;

/// Lists and hashes what is to be kept of a directory. As root, only what its user may read.
pub fn find(directory: &Path, globs: &[String]) -> Result<CollectedTree, FileTrouble> {
    let globs = PathGlobs::parse(globs)?;
    let found = directory.symlink_metadata();
    let owner = found.map_err(|error| FileTrouble::io("look at", directory, error))?.uid();
    let owner = rustix::process::geteuid().is_root().then_some(owner);
    let bounds = TreeBounds { entries_max: ENTRIES_MAX, bytes_max: OUTPUTS_BYTES_MAX };
    Ok(collect_tree(directory, &globs, &bounds, owner)?)
}

/// Uploads what the server lacks, and lets it keep the outputs. `told` hears how many of how many bytes were uploaded.
pub fn keep(
    server: &dyn FileServer,
    call: &FileCall,
    found: &CollectedTree,
    told: &dyn Fn(u64, u64),
) -> Result<(), FileTrouble> {
    let kept = KeptOutputs {
        task: Some(call.task.into()),
        epoch: call.epoch,
        root: (found.entries > 0).then(|| found.tree.root.to_string()),
        files: found.file_count,
        bytes: found.bytes,
        skipped: skipped(found),
    };
    if found.entries == 0 {
        return server.keep_outputs(call, kept);
    }
    let mut round = 1;
    loop {
        upload(server, call, found, told)?;
        match server.keep_outputs(call, kept.clone()) {
            Err(FileTrouble::Outputs(_)) if round < ROUNDS_MAX => round += 1,
            done => return done,
        }
    }
}

/// Where the bytes of a blob are.
enum OutputBytes<'a> {
    Message(&'a [u8]),
    File(&'a Path),
}

/// Uploads what the server lacks of the blobs of a tree.
fn upload(
    server: &dyn FileServer,
    call: &FileCall,
    found: &CollectedTree,
    told: &dyn Fn(u64, u64),
) -> Result<(), FileTrouble> {
    let messages = found.tree.messages.iter();
    let messages = messages.map(|(digest, message)| (*digest, OutputBytes::Message(message)));
    let files = found.files.iter().map(|(digest, path)| (*digest, OutputBytes::File(path)));
    let mut all: BTreeMap<Digest, OutputBytes<'_>> = files.chain(messages).collect();
    all.remove(&Digest::EMPTY);
    let digests: Vec<Digest> = all.keys().copied().collect();
    let mut missing = Vec::new();
    for asked in digests.chunks(ASKED_MAX) {
        missing.extend(server.missing(call, asked)?);
    }
    let bytes = missing.iter().map(|digest| digest.size).sum();
    let (mut done, mut batch) = (0, UploadBatch::default());
    for digest in missing {
        call.check()?;
        let Some(from) = all.get(&digest) else { continue };
        match from {
            OutputBytes::Message(message) if digest.size > BATCHED_BYTES_MAX => {
                server.upload(call, digest, &mut Cursor::new(*message))?;
            }
            OutputBytes::File(path) if digest.size > BATCHED_BYTES_MAX => {
                let opened = found.open(path);
                let mut file = opened.map_err(|error| FileTrouble::io("read", path, error))?;
                server.upload(call, digest, &mut file)?;
            }
            from => {
                let blob = from.read(found, digest)?;
                if !batch.takes(&blob) {
                    server.upload_many(call, &std::mem::take(&mut batch).blobs)?;
                }
                batch.add(digest, blob);
            }
        }
        done += digest.size;
        told(done, bytes);
    }
    if batch.blobs.is_empty() { Ok(()) } else { server.upload_many(call, &batch.blobs) }
}

impl OutputBytes<'_> {
    /// The bytes of a small blob.
    fn read(&self, found: &CollectedTree, digest: Digest) -> Result<Vec<u8>, FileTrouble> {
        match self {
            OutputBytes::Message(message) => Ok(message.to_vec()),
            OutputBytes::File(path) => {
                let mut bytes = Vec::with_capacity(digest.size as usize);
                let opened = found.open(path);
                // One byte more shows a file that has grown.
                let read = opened.and_then(|file| file.take(digest.size + 1).read_to_end(&mut bytes));
                read.map_err(|error| FileTrouble::io("read", path, error))?;
                // The server would refuse it, and with it all others of the message.
                if Digest::of(&bytes) != digest {
                    return Err(TreeError::Changed(path.to_path_buf()).into());
                }
                Ok(bytes)
            }
        }
    }
}

/// Blobs that are uploaded in one message.
#[derive(Default)]
struct UploadBatch {
    blobs: Vec<(Digest, Vec<u8>)>,
    bytes: u64,
}

impl UploadBatch {
    /// Whether it has room for another blob. An empty one takes any.
    fn takes(&self, blob: &[u8]) -> bool {
        let bytes = self.bytes + blob.len() as u64 + AROUND_BYTES;
        self.blobs.is_empty() || (bytes <= BATCH_BYTES_MAX && self.blobs.len() < BATCH_BLOBS_MAX)
    }

    fn add(&mut self, digest: Digest, blob: Vec<u8>) {
        self.bytes += blob.len() as u64 + AROUND_BYTES;
        self.blobs.push((digest, blob));
    }
}

/// What was not kept, for people.
fn skipped(found: &CollectedTree) -> Vec<String> {
    let named = found.skipped.named.iter().map(|skip| format!("{}: {}", skip.path, skip.why));
    let unmatched = found.unmatched.iter().map(|glob| format!("{glob}: nothing matches it"));
    let mut all: Vec<String> = named.chain(unmatched).collect();
    let count = all.len() + found.skipped.more;
    if count > TOLD_MAX {
        all.truncate(TOLD_MAX - 1);
        all.push(format!("and {} more", count - all.len()));
    }
    all
}
