//! Blobs of jobs that come in.

use super::error::{FilesError, FilesTrouble};
use super::names::digest_of;
use super::state::FilesState;
use crate::auth::Caller;
use crate::cas::{BookedAttempt, CacheTrouble, Packing, Payer, now_ms};
use crate::listen::body::BodyReader;
use axum::body::Body;
use std::ops::Range;
use std::sync::atomic::Ordering;
use windlass_api::BLOB_BATCH_BYTES_MAX;
use windlass_cas::{BlobWriter, Digest};
use windlass_core::TaskId;

/// How many bytes a second a body must bring after its first half minute.
const BODY_BYTES_PER_S: u32 = 64 << 10;
/// Bytes of the line before a blob in a batch: a hash, a size, and what is between them.
const LINE_BYTES_MAX: usize = 100;

impl FilesState {
    /// Of these, the blobs that a user must upload.
    pub async fn missing_of(
        &self,
        caller: &Caller,
        digests: Vec<Digest>,
    ) -> Result<Vec<Digest>, FilesTrouble> {
        let user = (!self.cache.users_share).then(|| caller.user.clone());
        self.with(move |blobs| match user {
            Some(user) => Ok(blobs.cas.missing_of(&user, &digests, blobs.now_ms)),
            None => Ok(blobs.missing(&digests)),
        })
        .await
    }

    /// Takes a blob in, as its bytes come. Its user holds it from then on.
    pub async fn take_blob(
        &self,
        caller: &Caller,
        digest: Digest,
        body: &mut Option<Body>,
    ) -> Result<(), FilesTrouble> {
        let payer = Payer::of(caller);
        let _place = self.cache.places.upload(&payer.user).await?;
        let is_known = self.missing_of(caller, vec![digest]).await?.is_empty();
        let mut upload = match is_known {
            true => None,
            false => Some(self.cache.begin_upload(&self.store, &payer, (digest, Packing::Plain)).await?),
        };
        let mut reader = reader(body);
        while let Some(part) = reader.next().await.map_err(CacheTrouble::from)? {
            if let Some(upload) = &mut upload {
                upload.add(&part).await?;
            }
        }
        let Some(upload) = upload else { return Ok(()) };
        upload.finish().await?;
        self.cache.counts.upload_bytes.fetch_add(digest.size, Ordering::Relaxed);
        self.with(move |blobs| Ok(blobs.cas.hold(&payer.user, &[digest])?)).await
    }

    /// Takes several small blobs in: before each its `HASH BYTES` in a line.
    pub async fn take_batch(&self, caller: &Caller, body: &mut Option<Body>) -> Result<(), FilesTrouble> {
        let payer = Payer::of(caller);
        let _share = self.cache.places.large(&payer.user).await?;
        let (mut reader, mut bytes) = (reader(body), Vec::new());
        while let Some(part) = reader.next().await.map_err(CacheTrouble::from)? {
            if bytes.len() + part.len() > BLOB_BATCH_BYTES_MAX {
                return Err(CacheTrouble::TooLarge(BLOB_BATCH_BYTES_MAX as u64).into());
            }
            bytes.extend_from_slice(&part);
        }
        let batch = batch_of(&bytes)?;
        let sum: u64 = batch.iter().map(|(digest, _)| digest.size).sum();
        self.cache.quota.charge(&payer, sum, now_ms())?;
        self.with(move |blobs| {
            let digests: Vec<Digest> = batch.iter().map(|(digest, _)| *digest).collect();
            for (digest, range) in batch {
                blobs.put(digest, &bytes[range])?;
            }
            Ok(blobs.cas.hold(&payer.user, &digests)?)
        })
        .await?;
        self.cache.counts.upload_bytes.fetch_add(sum, Ordering::Relaxed);
        Ok(())
    }

    /// Begins to upload a blob for an attempt on the worker in this process.
    pub(super) async fn writer(
        &self,
        task: TaskId,
        attempt: u32,
        digest: Digest,
    ) -> Result<JobBlobWriter, FilesTrouble> {
        let booked = BookedAttempt::find(&self.handle, None, task, attempt).await?;
        self.cache.quota.charge(&self.cache.payer_of(&booked), digest.size, now_ms())?;
        self.with(move |blobs| Ok(JobBlobWriter(blobs.writer(digest)?))).await
    }
}

fn reader(body: &mut Option<Body>) -> BodyReader {
    BodyReader::new(body.take().unwrap_or_default(), BODY_BYTES_PER_S)
}

/// Where the blobs of a batch are in it.
fn batch_of(bytes: &[u8]) -> Result<Vec<(Digest, Range<usize>)>, FilesTrouble> {
    let bad = |why: &str, at: usize| {
        let why = format!("at byte {at} of the batch {why}; before each blob stands a line 'HASH BYTES'");
        FilesTrouble::from(CacheTrouble::Bad(why))
    };
    let (mut batch, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| bad("no line ends", at))?;
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| bad("stands no text", at))?;
        let (hash, size) = line.split_once(' ').ok_or_else(|| bad("stands no hash with a size", at))?;
        let digest = digest_of(&format!("{hash}/{size}"), format!("what stands at byte {at} of the batch"))?;
        let from = at + end + 1;
        let size = usize::try_from(digest.size).ok().filter(|size| *size <= bytes.len() - from);
        let size = size.ok_or_else(|| bad("fewer bytes follow than the line says", at))?;
        batch.push((digest, from..from + size));
        at = from + size;
    }
    Ok(batch)
}

/// An upload of the agent in this process. Dropped before [`JobBlobWriter::commit`] it leaves nothing.
pub struct JobBlobWriter(BlobWriter);

impl JobBlobWriter {
    /// Takes the next bytes. More than the digest says are refused at once.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        self.0.write(bytes).map_err(|error| FilesTrouble::from(error).into())
    }

    /// Keeps the blob if the bytes are what its digest names.
    pub fn commit(self) -> Result<(), FilesError> {
        self.0.commit(now_ms()).map_err(|error| FilesTrouble::from(error).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(blobs: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for blob in blobs {
            bytes.extend(format!("{} {}\n", Digest::of(blob).hex(), blob.len()).into_bytes());
            bytes.extend(*blob);
        }
        bytes
    }

    #[test]
    fn the_blobs_of_a_batch_stand_one_after_the_other() {
        let blobs: [&[u8]; 3] = [b"hello", b"", b"line\nfeed"];
        let bytes = batch(&blobs);
        let read = batch_of(&bytes).unwrap();
        let read: Vec<(Digest, &[u8])> =
            read.into_iter().map(|(digest, range)| (digest, &bytes[range])).collect();
        assert_eq!(read, blobs.map(|blob| (Digest::of(blob), blob)));
        assert!(batch_of(b"").unwrap().is_empty());
    }

    #[test]
    fn a_batch_that_is_none_is_refused_with_the_place() {
        let good = batch(&[b"hello"]);
        let hex = Digest::of(b"x").hex();
        for (bytes, why) in [
            (b"hello".to_vec(), "at byte 0 of the batch no line ends"),
            (vec![b'a'; 300], "no line ends"),
            (vec![0xff, b'\n'], "stands no text"),
            (format!("{hex}\n").into_bytes(), "stands no hash with a size"),
            (format!("{hex} 9\nhello").into_bytes(), "fewer bytes follow"),
            (format!("{hex} 18446744073709551616\n").into_bytes(), "is not HASH/BYTES"),
            (format!("{hex} -1\n").into_bytes(), "is not HASH/BYTES"),
            ([&good[..], b"rest"].concat(), "no line ends"),
        ] {
            let said = batch_of(&bytes).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_batch_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            cut in 0..200_usize,
        ) {
            _ = batch_of(&bytes);
            let whole = batch(&[&bytes, b"second"]);
            let read = batch_of(&whole[..whole.len().min(cut)]);
            prop_assert!(read.is_err() || cut == 0 || cut >= whole.len() || read.unwrap().len() < 2);
            prop_assert_eq!(batch_of(&whole).unwrap().len(), 2);
        }
    }
}
