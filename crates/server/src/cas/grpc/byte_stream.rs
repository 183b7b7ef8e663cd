//! Blobs over gRPC that are larger than a message.

use super::super::download::{Cut, parts_of};
use super::super::names::{Packing, ReadName, WriteName};
use super::super::partial::PartialKey;
use super::super::places::WRITE_MESSAGE_BYTES_MAX;
use super::super::state::CacheState;
use super::super::trouble::CacheTrouble;
use super::super::upload::Upload;
use super::parts::{CallScope, told};
use crate::listen::body::{BodyError, Pace};
use crate::panics::in_request;
use futures_util::{Stream, StreamExt as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tonic::{Code, Request, Response, Status, Streaming};
use windlass_cas::Digest;
use windlass_cas::proto::bytestream::byte_stream_server::ByteStream;
use windlass_cas::proto::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};

/// How many bytes a second an upload must bring after its first half minute.
const UPLOAD_BYTES_PER_S: u32 = 64 << 10;
/// What an upload of a compressed blob is answered with that another upload has made needless.
const NEEDLESS: i64 = -1;

pub(super) struct ByteStreamCalls(pub Arc<CacheState>);

type ReadStream = Pin<Box<dyn Stream<Item = Result<ReadResponse, Status>> + Send>>;

impl ByteStreamCalls {
    async fn open(&self, scope: CallScope, asked: ReadRequest) -> Result<ReadStream, CacheTrouble> {
        let ReadName { is_of_jobs, packing, digest } = ReadName::parse(&asked.resource_name)?;
        scope.check_names(is_of_jobs)?;
        let cut = cut_of(&asked, digest, packing)?;
        let place = self.0.places.download(&scope.payer.user).await?;
        let blob = scope.store.with(move |blobs| blobs.read(digest)).await?;
        let blob = blob.ok_or(CacheTrouble::NoBlob(digest))?;
        self.0.counts.read_bytes.fetch_add(digest.size - cut.offset, Ordering::Relaxed);
        let cache = self.0.clone();
        let parts = parts_of(blob, cut, place).await?.map(move |part| {
            part.map(|data| ReadResponse { data }).map_err(|trouble| {
                cache.tell("Read", &trouble);
                trouble.into_status()
            })
        });
        Ok(Box::pin(parts))
    }

    async fn status(
        &self,
        scope: CallScope,
        asked: QueryWriteStatusRequest,
    ) -> Result<QueryWriteStatusResponse, CacheTrouble> {
        let WriteName { is_of_jobs, upload, digest, .. } = WriteName::parse(&asked.resource_name)?;
        scope.check_names(is_of_jobs)?;
        if scope.store.with(move |blobs| Ok(blobs.has(digest))).await? {
            return Ok(QueryWriteStatusResponse { committed_size: digest.size as i64, complete: true });
        }
        // An upload that the server does not know begins at 0, and need not be told from one that was never begun.
        let bytes = self.0.partials.bytes(&scope.key(upload, digest));
        Ok(QueryWriteStatusResponse { committed_size: bytes as i64, complete: false })
    }
}

fn cut_of(asked: &ReadRequest, digest: Digest, packing: Packing) -> Result<Cut, CacheTrouble> {
    let bad = || CacheTrouble::Range { offset: asked.read_offset, size: digest.size };
    let offset = u64::try_from(asked.read_offset).map_err(|_| bad())?;
    if offset > digest.size {
        return Err(bad());
    }
    let limit = match (asked.read_limit, packing) {
        (0, _) => None,
        (1.., Packing::Plain) => Some(asked.read_limit as u64),
        (1.., Packing::Zstd) => {
            return Err(CacheTrouble::Bad("a compressed blob is read without a limit".to_owned()));
        }
        (_, _) => return Err(CacheTrouble::Bad("read_limit is negative".to_owned())),
    };
    Ok(Cut { offset, limit, packing })
}

/// The messages of an upload.
struct WriteMessages {
    stream: Streaming<WriteRequest>,
    pace: Pace,
}

impl WriteMessages {
    /// The next one; `None` at the end.
    async fn next(&mut self) -> Result<Option<WriteRequest>, CacheTrouble> {
        let next = tokio::time::timeout_at(self.pace.deadline(), self.stream.message()).await;
        let next = next.map_err(|_| BodyError::Slow)?;
        let message = next.map_err(|status| match status.code() {
            Code::OutOfRange => CacheTrouble::TooLarge(WRITE_MESSAGE_BYTES_MAX as u64),
            _ => BodyError::Broken(axum::Error::new(status)).into(),
        })?;
        self.pace.came(message.as_ref().map_or(0, |message| message.data.len()));
        Ok(message)
    }
}

/// Takes an upload in. Returns what its client is told to be there.
async fn receive(
    cache: Arc<CacheState>,
    scope: CallScope,
    stream: Streaming<WriteRequest>,
) -> Result<i64, CacheTrouble> {
    let _place = cache.places.upload(&scope.payer.user).await?;
    let mut messages = WriteMessages { stream, pace: Pace::new(UPLOAD_BYTES_PER_S) };
    let none = || CacheTrouble::Bad("an upload has at least one message".to_owned());
    let first = messages.next().await?.ok_or_else(none)?;
    let WriteName { is_of_jobs, upload, packing, digest } = WriteName::parse(&first.resource_name)?;
    scope.check_names(is_of_jobs)?;
    if scope.store.with(move |blobs| Ok(blobs.has(digest))).await? {
        return Ok(if packing == Packing::Zstd { NEEDLESS } else { digest.size as i64 });
    }
    let key = scope.key(upload, digest);
    let mut upload = begin(&cache, &scope, &key, packing, first.write_offset).await?;
    match fill(&mut upload, first, &mut messages).await {
        Ok(true) => {
            let bytes = upload.bytes();
            upload.finish().await?;
            cache.counts.upload_bytes.fetch_add(digest.size, Ordering::Relaxed);
            Ok(bytes as i64)
        }
        // The client may come back.
        broken @ (Ok(false) | Err(CacheTrouble::Body(_))) => {
            let kept = upload.pause().await;
            let bytes = kept.as_ref().map_or(0, |(_, bytes)| *bytes);
            if let Some((writer, bytes)) = kept {
                cache.partials.keep(key, writer, bytes);
            }
            broken.map(|_| bytes as i64)
        }
        Err(trouble) => Err(trouble),
    }
}

/// Begins an upload, or goes on with one that broke off.
async fn begin(
    cache: &CacheState,
    scope: &CallScope,
    key: &PartialKey,
    packing: Packing,
    offset: i64,
) -> Result<Upload, CacheTrouble> {
    let kept = cache.partials.bytes(key);
    if offset == 0 {
        cache.partials.forget(key);
        return cache.begin_upload(&scope.store, &scope.payer, (key.2, packing)).await;
    }
    if packing == Packing::Plain
        && u64::try_from(offset) == Ok(kept)
        && let Some((writer, bytes)) = cache.partials.take(key)
    {
        return Ok(Upload::resume(key.2, writer, bytes));
    }
    Err(CacheTrouble::Bad(format!("this upload goes on at offset {kept}, and not at {offset}")))
}

/// Takes the messages in. True once the client says that all bytes have come.
async fn fill(
    upload: &mut Upload,
    first: WriteRequest,
    messages: &mut WriteMessages,
) -> Result<bool, CacheTrouble> {
    let (name, mut offset) = (first.resource_name.clone(), first.write_offset);
    let mut message = first;
    loop {
        if message.write_offset != offset {
            let why = format!("a message is for offset {}, and {offset} is next", message.write_offset);
            return Err(CacheTrouble::Bad(why));
        }
        if !message.resource_name.is_empty() && message.resource_name != name {
            return Err(CacheTrouble::Bad("one upload is for one blob".to_owned()));
        }
        upload.add(&message.data).await?;
        offset = offset.saturating_add(message.data.len() as i64);
        if message.finish_write {
            return Ok(true);
        }
        let Some(next) = messages.next().await? else { return Ok(false) };
        message = next;
    }
}

#[tonic::async_trait]
impl ByteStream for ByteStreamCalls {
    type ReadStream = ReadStream;

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let scope = CallScope::of(&self.0, &request)?;
        told(&self.0, "Read", self.open(scope, request.into_inner()).await)
    }

    async fn write(
        &self,
        request: Request<Streaming<WriteRequest>>,
    ) -> Result<Response<WriteResponse>, Status> {
        let scope = CallScope::of(&self.0, &request)?;
        // It goes on without its client, so that what has come is kept for the client's next try.
        let receiving = tokio::spawn(in_request(receive(self.0.clone(), scope, request.into_inner())));
        let written = receiving.await.unwrap_or(Err(CacheTrouble::Defect));
        told(&self.0, "Write", written.map(|committed_size| WriteResponse { committed_size }))
    }

    async fn query_write_status(
        &self,
        request: Request<QueryWriteStatusRequest>,
    ) -> Result<Response<QueryWriteStatusResponse>, Status> {
        let scope = CallScope::of(&self.0, &request)?;
        told(&self.0, "QueryWriteStatus", self.status(scope, request.into_inner()).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_blob_is_inside_of_it() {
        let digest = Digest { hash: [7; 32], size: 100 };
        let cut = |read_offset, read_limit, packing| {
            let asked = ReadRequest { read_offset, read_limit, ..ReadRequest::default() };
            cut_of(&asked, digest, packing)
        };
        let plain = |offset, limit| cut(offset, limit, Packing::Plain);
        assert_eq!(plain(0, 0).unwrap(), Cut::WHOLE);
        assert_eq!(plain(100, 5).unwrap(), Cut { offset: 100, limit: Some(5), ..Cut::WHOLE });
        for offset in [-1, 101, i64::MIN, i64::MAX] {
            assert!(matches!(plain(offset, 0), Err(CacheTrouble::Range { size: 100, .. })), "{offset}");
        }
        assert!(matches!(plain(0, -1), Err(CacheTrouble::Bad(_))));
        assert!(cut(3, 0, Packing::Zstd).is_ok() && cut(3, 1, Packing::Zstd).is_err());
    }
}
