//! Blobs that come in: in parts, of which one is filled while the one before is written.

use super::blobs::{BlobStore, EndsInBackground, in_background, now_ms};
use super::names::Packing;
use super::packing::UploadSink;
use super::places::PART_BYTES;
use super::trouble::CacheTrouble;
use tokio::task::JoinHandle;
use windlass_cas::{BlobWriter, Digest};

/// A blob that comes in. What came is gone if this is dropped before [`Upload::finish`].
pub(crate) struct Upload {
    digest: Digest,
    packing: Packing,
    part: Vec<u8>,
    /// Bytes that have come, compressed if they are.
    bytes: u64,
    sink: SinkPlace,
}

enum SinkPlace {
    Here(EndsInBackground<Box<UploadSink>>),
    /// On the thread that writes a part.
    Away(JoinHandle<Result<Box<UploadSink>, CacheTrouble>>),
    /// Its thread failed, and said why.
    Lost,
}

impl SinkPlace {
    fn here(sink: UploadSink) -> SinkPlace {
        SinkPlace::Here(EndsInBackground::new(Box::new(sink)))
    }
}

impl Upload {
    pub async fn begin(store: &BlobStore, digest: Digest, packing: Packing) -> Result<Upload, CacheTrouble> {
        let sink = store.with(move |blobs| {
            let writer = blobs.writer(digest)?;
            match packing {
                Packing::Plain => Ok(UploadSink::Plain(Box::new(writer))),
                Packing::Zstd => UploadSink::zstd(writer, digest.size),
            }
        });
        let sink = SinkPlace::here(sink.await?);
        Ok(Upload { digest, packing, part: Vec::new(), bytes: 0, sink })
    }

    /// Goes on with what an earlier upload has left.
    pub fn resume(digest: Digest, writer: BlobWriter, bytes: u64) -> Upload {
        let sink = SinkPlace::here(UploadSink::Plain(Box::new(writer)));
        Upload { digest, packing: Packing::Plain, part: Vec::new(), bytes, sink }
    }

    /// Bytes that have come.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub async fn add(&mut self, mut bytes: &[u8]) -> Result<(), CacheTrouble> {
        self.bytes += bytes.len() as u64;
        if self.packing == Packing::Plain && self.bytes > self.digest.size {
            return Err(CacheTrouble::Bad(format!("more bytes came than the digest {} says", self.digest)));
        }
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - self.part.len()));
            self.part.extend_from_slice(now);
            bytes = later;
            if self.part.len() == PART_BYTES {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// All bytes have come. They are the blob's, or are refused.
    pub async fn finish(mut self) -> Result<(), CacheTrouble> {
        let mut sink = self.take_sink().await?;
        let part = self.part;
        in_background(move || {
            sink.write(&part)?;
            sink.commit(now_ms())
        })
        .await
    }

    /// No more bytes come for now. Returns what a later upload goes on with: the writer, and the bytes that it has. Nothing
    /// of a compressed one, because no client can say how far it came.
    pub async fn pause(mut self) -> Option<(BlobWriter, u64)> {
        let mut sink = self.take_sink().await.ok()?;
        let part = self.part;
        let written = in_background(move || {
            sink.write(&part)?;
            Ok(sink)
        });
        match *written.await.ok()? {
            UploadSink::Plain(writer) => Some((*writer, self.bytes)),
            UploadSink::Zstd(_) => None,
        }
    }

    /// Lets the part be written, once the one before is.
    async fn send_part(&mut self) -> Result<(), CacheTrouble> {
        let mut sink = self.take_sink().await?;
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART_BYTES));
        self.sink = SinkPlace::Away(tokio::spawn(in_background(move || {
            sink.write(&part)?;
            Ok(sink)
        })));
        Ok(())
    }

    async fn take_sink(&mut self) -> Result<Box<UploadSink>, CacheTrouble> {
        match std::mem::replace(&mut self.sink, SinkPlace::Lost) {
            SinkPlace::Here(sink) => Ok(sink.take()),
            SinkPlace::Away(writing) => writing.await.unwrap_or(Err(CacheTrouble::Defect)),
            SinkPlace::Lost => Err(CacheTrouble::Defect),
        }
    }
}
