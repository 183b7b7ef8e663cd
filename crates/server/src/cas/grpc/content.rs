//! Blobs over gRPC, as far as they go into one message.

use super::super::blobs::SpaceBlobs;
use super::super::packing::{pack, unpack};
use super::super::places::Payer;
use super::super::results::{digest_in, message_of};
use super::super::state::CacheState;
use super::super::trouble::CacheTrouble;
use super::parts::{CallScope, check, told};
use super::tree::TreeWalk;
use futures_util::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tonic::{Code, Request, Response, Status};
use windlass_cas::Digest;
use windlass_cas::proto::re::content_addressable_storage_server::ContentAddressableStorage;
use windlass_cas::proto::re::{
    BatchReadBlobsRequest, BatchReadBlobsResponse, BatchUpdateBlobsRequest, BatchUpdateBlobsResponse,
    FindMissingBlobsRequest, FindMissingBlobsResponse, GetTreeRequest, GetTreeResponse,
    batch_read_blobs_response, batch_update_blobs_request, batch_update_blobs_response, compressor,
};
use windlass_cas::proto::rpc;

/// Bytes of all blobs of a batch: what fits into a message of 4 MiB, which clients take at most, with what is around them.
pub(super) const BATCH_BYTES_MAX: usize = (4 << 20) - (64 << 10);
/// Bytes of an answer that are counted for a blob besides its own.
const AROUND_BYTES: u64 = 128;
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Bytes that come out of all compressed blobs of a batch.
const UNPACKED_BYTES_MAX: u64 = 32 << 20;
/// A smaller blob is sent as it is.
const PACKED_BYTES_MIN: usize = 1 << 10;

const PLAIN: i32 = compressor::Value::Identity as i32;
const ZSTD: i32 = compressor::Value::Zstd as i32;

pub(super) struct ContentCalls(pub Arc<CacheState>);

impl ContentCalls {
    async fn find_missing(
        &self,
        scope: CallScope,
        asked: FindMissingBlobsRequest,
    ) -> Result<FindMissingBlobsResponse, CacheTrouble> {
        scope.check(&asked.instance_name, asked.digest_function)?;
        let missing = scope.store.with(move |blobs| {
            let digests: Result<Vec<Digest>, _> =
                asked.blob_digests.iter().map(|digest| digest_in(Some(digest))).collect();
            Ok(blobs.missing(&digests?).into_iter().map(message_of).collect::<Vec<_>>())
        });
        Ok(FindMissingBlobsResponse { missing_blob_digests: missing.await? })
    }

    async fn update(
        &self,
        scope: CallScope,
        asked: BatchUpdateBlobsRequest,
    ) -> Result<BatchUpdateBlobsResponse, CacheTrouble> {
        scope.check(&asked.instance_name, asked.digest_function)?;
        check_batch(asked.requests.iter().map(|request| request.data.len() as u64).sum())?;
        let (cache, CallScope { store, payer, .. }) = (self.0.clone(), scope);
        let responses = store.with(move |blobs| {
            let mut batch = UpdateBatch { cache, payer, unpacked_bytes: 0 };
            let keep = |request: batch_update_blobs_request::Request| {
                let status = Some(status_of(batch.keep(blobs, &request)));
                batch_update_blobs_response::Response { digest: request.digest, status }
            };
            Ok(asked.requests.into_iter().map(keep).collect::<Vec<_>>())
        });
        Ok(BatchUpdateBlobsResponse { responses: responses.await? })
    }

    async fn read(
        &self,
        scope: CallScope,
        asked: BatchReadBlobsRequest,
    ) -> Result<BatchReadBlobsResponse, CacheTrouble> {
        scope.check(&asked.instance_name, asked.digest_function)?;
        let digests: Result<Vec<Digest>, _> =
            asked.digests.iter().map(|digest| digest_in(Some(digest))).collect();
        let digests = digests?;
        check_batch(digests.iter().fold(0, |sum, digest| sum.saturating_add(digest.size)))?;
        let takes_zstd = asked.acceptable_compressors.contains(&ZSTD);
        let cache = self.0.clone();
        let responses = scope.store.with(move |blobs| {
            let mut bytes = 0;
            let read = |digest: Digest| {
                bytes += digest.size + AROUND_BYTES;
                let found = match bytes <= ANSWER_BYTES_MAX {
                    true => read_one(&cache, blobs, digest, takes_zstd),
                    false => Err(CacheTrouble::Bad("these are too many blobs for one answer".to_owned())),
                };
                let digest = Some(message_of(digest));
                let ((data, compressor), status) = match found {
                    Ok(found) => (found, status_of(Ok(()))),
                    Err(trouble) => ((Vec::new(), PLAIN), status_of(Err(trouble))),
                };
                let (data, status) = (data.into(), Some(status));
                batch_read_blobs_response::Response { digest, data, compressor, status }
            };
            Ok(digests.into_iter().map(read).collect::<Vec<_>>())
        });
        Ok(BatchReadBlobsResponse { responses: responses.await? })
    }

    async fn tree(&self, asked: GetTreeRequest) -> Result<TreeStream, CacheTrouble> {
        check(&asked.instance_name, asked.digest_function)?;
        let root = digest_in(asked.root_digest.as_ref())?;
        let walk = TreeWalk::begin(self.0.store.clone(), root, asked.page_size, &asked.page_token)?;
        Ok(Box::pin(walk.pages(self.0.clone())))
    }
}

fn check_batch(bytes: u64) -> Result<(), CacheTrouble> {
    match bytes <= BATCH_BYTES_MAX as u64 {
        true => Ok(()),
        false => {
            let why = format!("a batch has at most {BATCH_BYTES_MAX} bytes of blobs, and this one {bytes}");
            Err(CacheTrouble::Bad(why))
        }
    }
}

/// The blobs of one message that are uploaded.
struct UpdateBatch {
    cache: Arc<CacheState>,
    payer: Payer,
    /// Bytes that came out of compressed blobs so far.
    unpacked_bytes: u64,
}

impl UpdateBatch {
    fn keep(
        &mut self,
        blobs: &SpaceBlobs,
        request: &batch_update_blobs_request::Request,
    ) -> Result<(), CacheTrouble> {
        let digest = digest_in(request.digest.as_ref())?;
        if blobs.has(digest) {
            return Ok(());
        }
        self.cache.quota.charge(&self.payer, digest.size, blobs.now_ms)?;
        let kept = match request.compressor {
            PLAIN => blobs.put(digest, &request.data),
            ZSTD => {
                self.unpacked_bytes = self.unpacked_bytes.saturating_add(digest.size);
                if self.unpacked_bytes > UNPACKED_BYTES_MAX {
                    let why = "the blobs of this batch are too large without compression; send some alone";
                    return Err(CacheTrouble::Bad(why.to_owned()));
                }
                blobs.put(digest, &unpack(&request.data, digest.size)?)
            }
            other => Err(CacheTrouble::Bad(format!("the cache knows no compressor {other}"))),
        };
        if kept.is_ok() {
            self.cache.counts.upload_bytes.fetch_add(digest.size, Ordering::Relaxed);
        }
        kept.inspect_err(|trouble| self.cache.tell("BatchUpdateBlobs", trouble))
    }
}

/// The bytes of a blob, and how they are compressed.
fn read_one(
    cache: &CacheState,
    blobs: &SpaceBlobs,
    digest: Digest,
    takes_zstd: bool,
) -> Result<(Vec<u8>, i32), CacheTrouble> {
    let found = blobs.read_small(digest, BATCH_BYTES_MAX as u64);
    let found = found.inspect_err(|trouble| cache.tell("BatchReadBlobs", trouble))?;
    let bytes = found.ok_or(CacheTrouble::NoBlob(digest))?;
    cache.counts.read_bytes.fetch_add(digest.size, Ordering::Relaxed);
    if takes_zstd && bytes.len() >= PACKED_BYTES_MIN {
        let packed = pack(&bytes)?;
        if packed.len() < bytes.len() {
            return Ok((packed, ZSTD));
        }
    }
    Ok((bytes, PLAIN))
}

/// What became of one blob of a batch.
fn status_of(outcome: Result<(), CacheTrouble>) -> rpc::Status {
    let (code, message) = match outcome {
        Ok(()) => (Code::Ok, String::new()),
        Err(trouble) => {
            let status = trouble.into_status();
            (status.code(), status.message().to_owned())
        }
    };
    rpc::Status { code: code as i32, message, ..rpc::Status::default() }
}

type TreeStream = Pin<Box<dyn Stream<Item = Result<GetTreeResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ContentAddressableStorage for ContentCalls {
    async fn find_missing_blobs(
        &self,
        request: Request<FindMissingBlobsRequest>,
    ) -> Result<Response<FindMissingBlobsResponse>, Status> {
        let scope = CallScope::of(&self.0, &request)?;
        told(&self.0, "FindMissingBlobs", self.find_missing(scope, request.into_inner()).await)
    }

    async fn batch_update_blobs(
        &self,
        request: Request<BatchUpdateBlobsRequest>,
    ) -> Result<Response<BatchUpdateBlobsResponse>, Status> {
        let scope = CallScope::of(&self.0, &request)?;
        told(&self.0, "BatchUpdateBlobs", self.update(scope, request.into_inner()).await)
    }

    async fn batch_read_blobs(
        &self,
        request: Request<BatchReadBlobsRequest>,
    ) -> Result<Response<BatchReadBlobsResponse>, Status> {
        let scope = CallScope::of(&self.0, &request)?;
        told(&self.0, "BatchReadBlobs", self.read(scope, request.into_inner()).await)
    }

    type GetTreeStream = TreeStream;

    async fn get_tree(
        &self,
        request: Request<GetTreeRequest>,
    ) -> Result<Response<Self::GetTreeStream>, Status> {
        told(&self.0, "GetTree", self.tree(request.into_inner()).await)
    }
}
