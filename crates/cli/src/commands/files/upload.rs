//! Uploads what the server lacks of the files that a submission names: large blobs each by itself, small ones together,
//! several requests at a time.

use crate::client::link::ServerLink;
use crate::commands::files::gather::{BlobSource, GatheredFiles};
use crate::ui::error::CliError;
use crate::ui::message::message;
use crate::ui::transfer::{FileAmount, Transfer};
use serde::Serialize;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::{JoinSet, spawn_blocking};
use windlass_api::client::files::{ask_missing, upload_blob, upload_blobs};
use windlass_api::client::{Client, ClientError};
use windlass_cas::tree::TreeError;
use windlass_cas::{Digest, Hasher};

/// Requests with blobs at a time.
const UPLOADS_MAX: usize = 8;
/// Bytes of a blob that goes together with others.
const BATCHED_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the blobs of one request, half of what a server takes. With [`UPLOADS_MAX`] it bounds the memory.
const BATCH_BYTES_MAX: u64 = 4 << 20;
/// Blobs of one request.
const BATCH_BLOBS_MAX: usize = 1_000;
/// The purpose of all requests here, for errors.
const DOING: &str = "upload the files";

/// What a submission would upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct UploadPlan {
    /// Files that its tasks would find, and their bytes.
    pub files: u64,
    pub bytes: u64,
    /// Those that the server lacks. Files with the same content are counted once.
    pub new_files: u64,
    pub new_bytes: u64,
    /// Whether the server has all that names these files, too.
    #[serde(skip)]
    pub is_there: bool,
}

impl UploadPlan {
    /// In words, for a dry run.
    pub fn text(&self) -> String {
        let all = FileAmount { files: self.files, bytes: self.bytes };
        let new = FileAmount { files: self.new_files, bytes: self.new_bytes };
        format!("inputs: {all}; would upload {new}\n")
    }
}

/// Why blobs were not uploaded.
enum UploadFailure {
    /// Something is wrong on this machine.
    Here(CliError),
    Request(ClientError),
}

impl From<ClientError> for UploadFailure {
    fn from(error: ClientError) -> Self {
        UploadFailure::Request(error)
    }
}

/// Asks what would be uploaded.
pub async fn plan(client: &Client, files: &GatheredFiles) -> Result<UploadPlan, ClientError> {
    let missing = missing(client, files).await?;
    let (new, is_there) = (amount_of(&missing), missing.is_empty());
    let FileAmount { files, bytes } = files.amount;
    Ok(UploadPlan { files, bytes, new_files: new.files, new_bytes: new.bytes, is_there })
}

/// Uploads what is missing. After a failure that may pass, it goes on with what is still missing.
pub async fn upload(
    link: &mut ServerLink,
    files: &GatheredFiles,
    is_quiet: bool,
    is_verbose: bool,
) -> Result<(), CliError> {
    if files.is_empty() {
        return Ok(());
    }
    let mut left_before = usize::MAX;
    loop {
        let client = link.client.clone();
        let failure = match missing(&client, files).await {
            Err(error) => UploadFailure::Request(error),
            Ok(missing) => {
                // Where some came through since the last failure, the next one is another outage.
                if missing.len() < left_before {
                    left_before = missing.len();
                    link.calm();
                }
                let transfer = Transfer::start("uploading", Some(amount_of(&missing)), !is_quiet);
                let transfer = Arc::new(transfer);
                match send_all(&client, missing, &transfer).await {
                    Ok(()) => {
                        link.calm();
                        let (sent, pace) = (transfer.done(), transfer.pace());
                        // The line of the progress is taken away before another one is printed.
                        drop(transfer);
                        if sent.files > 0 && !is_quiet {
                            message!("uploaded {sent} {pace}; the tasks have {}", files.amount);
                        } else if sent.files == 0 && is_verbose {
                            message!("note: nothing is uploaded: the server has all of {}", files.amount);
                        }
                        return Ok(());
                    }
                    Err(failure) => failure,
                }
            }
        };
        match failure {
            UploadFailure::Here(error) => return Err(error),
            UploadFailure::Request(error) => link.pause(DOING, error).await?,
        }
    }
}

/// Of the blobs those that the server lacks.
async fn missing(client: &Client, files: &GatheredFiles) -> Result<Vec<(Digest, BlobSource)>, ClientError> {
    let asked: Vec<String> = files.blobs.keys().map(Digest::to_string).collect();
    let missing: HashSet<String> = ask_missing(client, &asked).await?.into_iter().collect();
    let named = files.blobs.iter().zip(&asked).filter(|(_, name)| missing.contains(*name));
    Ok(named.map(|((digest, source), _)| (*digest, source.clone())).collect())
}

fn amount_of(blobs: &[(Digest, BlobSource)]) -> FileAmount {
    let files = blobs.iter().filter(|(_, source)| source.is_file());
    let (files, bytes) = files.fold((0, 0), |(files, bytes): (u64, u64), (digest, _)| {
        (files + 1, bytes.saturating_add(digest.size))
    });
    FileAmount { files, bytes }
}

async fn send_all(
    client: &Client,
    blobs: Vec<(Digest, BlobSource)>,
    transfer: &Arc<Transfer>,
) -> Result<(), UploadFailure> {
    let mut batches = batches_of(blobs).into_iter();
    let mut sending = JoinSet::new();
    loop {
        while sending.len() < UPLOADS_MAX
            && let Some(batch) = batches.next()
        {
            sending.spawn(send(client.clone(), batch, transfer.clone()));
        }
        // The others end with the first failure, because the set is dropped.
        match sending.join_next().await {
            None => return Ok(()),
            Some(sent) => sent.map_err(|ended| here(&ended))??,
        }
    }
}

/// The blobs of each request: of one that is large it alone. Large ones come first, so that none is left alone at the end.
fn batches_of(mut blobs: Vec<(Digest, BlobSource)>) -> Vec<Vec<(Digest, BlobSource)>> {
    blobs.sort_by_key(|(digest, _)| digest.size <= BATCHED_BYTES_MAX);
    let mut batches: Vec<Vec<(Digest, BlobSource)>> = Vec::new();
    let mut bytes = 0;
    for blob in blobs {
        let size = blob.0.size;
        match batches.last_mut() {
            Some(batch)
                if size <= BATCHED_BYTES_MAX
                    && bytes + size <= BATCH_BYTES_MAX
                    && batch.len() < BATCH_BLOBS_MAX =>
            {
                batch.push(blob);
                bytes += size;
            }
            _ => {
                // A large one leaves no room.
                bytes = size;
                batches.push(vec![blob]);
            }
        }
    }
    batches
}

async fn send(
    client: Client,
    batch: Vec<(Digest, BlobSource)>,
    transfer: Arc<Transfer>,
) -> Result<(), UploadFailure> {
    if let [(digest, _)] = &batch[..]
        && digest.size > BATCHED_BYTES_MAX
    {
        return send_large(client, batch, transfer).await;
    }
    let FileAmount { files, bytes } = amount_of(&batch);
    let read = spawn_blocking(move || read_whole(batch)).await.map_err(|ended| here(&ended))?;
    upload_blobs(&client, &read.map_err(UploadFailure::Here)?).await?;
    transfer.add(files, bytes);
    Ok(())
}

async fn send_large(
    client: Client,
    batch: Vec<(Digest, BlobSource)>,
    transfer: Arc<Transfer>,
) -> Result<(), UploadFailure> {
    for (digest, source) in batch {
        let files = u64::from(source.is_file());
        let sent = Arc::new(SentBlob {
            digest,
            source,
            transfer: transfer.clone(),
            counted: AtomicU64::new(0),
            failed: Mutex::new(None),
        });
        let (name, read) = (digest.to_string(), sent.clone());
        let uploaded = upload_blob(&client, &name, move || read.clone().open()).await;
        // If the file cannot be read as it was, that is why the request failed.
        if let Some(error) = sent.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(UploadFailure::Here(error));
        }
        uploaded?;
        transfer.add(files, 0);
    }
    Ok(())
}

/// A large blob that is read while it is sent.
struct SentBlob {
    digest: Digest,
    source: BlobSource,
    transfer: Arc<Transfer>,
    /// Bytes that were counted. A second try begins at the beginning, and counts only what goes beyond them.
    counted: AtomicU64,
    /// Why it cannot be read as it was.
    failed: Mutex<Option<CliError>>,
}

impl SentBlob {
    fn open(self: Arc<Self>) -> io::Result<Box<dyn Read + Send>> {
        let opened = open(&self.source);
        let from = opened.inspect_err(|error| self.fail(unreadable(&self.source, error)))?;
        Ok(Box::new(CheckedReader { from, hasher: Hasher::default(), blob: self }))
    }

    fn fail(&self, error: CliError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Reads a blob, and fails at its end if it is not what it was: then its body must not look whole.
struct CheckedReader {
    from: Box<dyn Read + Send>,
    hasher: Hasher,
    blob: Arc<SentBlob>,
}

impl Read for CheckedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let SentBlob { digest, source, transfer, counted, .. } = &*self.blob;
        let read = self.from.read(into);
        let read = read.inspect_err(|error| self.blob.fail(unreadable(source, error)))?;
        self.hasher.update(&into[..read]);
        let at = self.hasher.size();
        if at > digest.size || (read == 0 && !into.is_empty() && self.hasher.clone().finish() != *digest) {
            self.blob.fail(changed(source));
            return Err(io::Error::other("the file changed"));
        }
        transfer.add(0, at.saturating_sub(counted.fetch_max(at, Ordering::Relaxed)));
        Ok(read)
    }
}

fn here(ended: &tokio::task::JoinError) -> UploadFailure {
    UploadFailure::Here(anyhow::anyhow!("the upload ended: {ended}").into())
}

/// The bytes of small blobs.
fn read_whole(batch: Vec<(Digest, BlobSource)>) -> Result<Vec<(String, Vec<u8>)>, CliError> {
    let mut read = Vec::with_capacity(batch.len());
    for (digest, source) in batch {
        let mut bytes = Vec::new();
        let whole = open(&source).and_then(|from| from.take(digest.size + 1).read_to_end(&mut bytes));
        whole.map_err(|error| unreadable(&source, &error))?;
        if Digest::of(&bytes) != digest {
            return Err(changed(&source));
        }
        read.push((digest.to_string(), bytes));
    }
    Ok(read)
}

fn open(source: &BlobSource) -> io::Result<Box<dyn Read + Send>> {
    Ok(match source {
        BlobSource::Message(bytes) | BlobSource::Bytes(bytes) => Box::new(io::Cursor::new(bytes.clone())),
        BlobSource::Path(path) => Box::new(File::open(path)?),
        BlobSource::Spool(file) => {
            // All handles of it have one place, and it is sent by one request at a time.
            let mut file = file.try_clone()?;
            file.rewind()?;
            Box::new(file)
        }
    })
}

fn unreadable(source: &BlobSource, error: &io::Error) -> CliError {
    let what = match source {
        BlobSource::Path(path) => path.display().to_string(),
        _ => "standard input".to_owned(),
    };
    CliError::Failed { message: format!("cannot {DOING}: cannot read {what}: {error}"), hint: None }
}

fn changed(source: &BlobSource) -> CliError {
    let message = match source {
        BlobSource::Path(path) => TreeError::Changed(path.clone()).to_string(),
        _ => "what was kept of standard input changed".to_owned(),
    };
    CliError::Failed { message: format!("cannot {DOING}: {message}"), hint: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(number: u64, size: u64) -> (Digest, BlobSource) {
        (Digest { hash: [number as u8; 32], size }, BlobSource::Path(format!("{number}").into()))
    }

    #[test]
    fn small_blobs_go_together_and_large_ones_alone() {
        let small = BATCHED_BYTES_MAX;
        let blobs = vec![blob(1, small), blob(2, small + 1), blob(3, 5), blob(4, small), blob(5, 9 << 30)];
        let sizes: Vec<Vec<u64>> = batches_of(blobs)
            .iter()
            .map(|batch| batch.iter().map(|(digest, _)| digest.size).collect())
            .collect();
        assert_eq!(sizes, [vec![small + 1], vec![9 << 30], vec![small, 5, small]]);
        let many = (0..BATCH_BLOBS_MAX as u64 + 1).map(|number| blob(number, 1)).collect();
        assert_eq!(batches_of(many).iter().map(Vec::len).collect::<Vec<_>>(), [BATCH_BLOBS_MAX, 1]);
        let full = (0..5).map(|number| blob(number, small)).collect();
        assert_eq!(batches_of(full).iter().map(Vec::len).collect::<Vec<_>>(), [4, 1]);
        assert!(batches_of(Vec::new()).is_empty());
    }

    #[test]
    fn a_file_that_changed_is_not_sent_as_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "before").unwrap();
        let digest = Digest::of(b"before");
        let source = BlobSource::Path(path.clone());
        let whole = read_whole(vec![(digest, source.clone())]).unwrap();
        assert_eq!(whole, [(digest.to_string(), b"before".to_vec())]);
        let transfer = Arc::new(Transfer::start("uploading", None, false));
        let sent = || {
            let (source, transfer) = (source.clone(), transfer.clone());
            let (counted, failed) = (AtomicU64::new(0), Mutex::new(None));
            Arc::new(SentBlob { digest, source, transfer, counted, failed })
        };
        let (good, mut bytes) = (sent(), Vec::new());
        for _ in 0..2 {
            // Another server gets it from its beginning, and it is counted once.
            good.clone().open().unwrap().read_to_end(&mut bytes).unwrap();
        }
        assert_eq!((bytes.as_slice(), transfer.done().bytes), (&b"beforebefore"[..], 6));
        for now in ["after!", "longer than before", "less", ""] {
            std::fs::write(&path, now).unwrap();
            let refused = read_whole(vec![(digest, source.clone())]).unwrap_err();
            assert!(refused.message().contains("changed while it was read"), "{refused}");
            let bad = sent();
            assert!(
                bad.clone().open().unwrap().read_to_end(&mut bytes).is_err(),
                "{now}: the body breaks off"
            );
            assert!(bad.failed.lock().unwrap().as_ref().unwrap().message().contains("changed"), "{now}");
        }
        std::fs::remove_file(&path).unwrap();
        let gone = sent();
        assert!(gone.clone().open().is_err() && gone.failed.lock().unwrap().is_some());
    }
}
