//! The cache over plain HTTP, for Bazel, ccache and sccache: `/cache/[INSTANCE/]ac/HASH`, `…/cas/HASH` and `…/kv/KEY`.

use super::access::CacheAccess;
use super::blobs::now_ms;
use super::download::{Cut, parts_of};
use super::held::held;
use super::names::{CachePath, InstanceName, Packing};
use super::places::{Payer, SMALL_MESSAGE_BYTES_MAX};
use super::results::RESULT_BYTES_MAX;
use super::spool::Spool;
use super::state::CacheState;
use super::trouble::CacheTrouble;
use super::webdav;
use crate::auth::{Caller, Denied};
use crate::listen::body::{BodyReader, drain};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use prost::Message as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_cas::Digest;
use windlass_cas::proto::re::ActionResult;

/// The beginning of all paths.
pub(super) const CACHE_PATHS: &str = "/cache/";
/// How many bytes a second a body must bring after its first half minute.
const BODY_BYTES_PER_S: u32 = 64 << 10;
/// Bytes of the value of a key.
const VALUE_BYTES_MAX: u64 = 1 << 30;

/// Answers a request. Nothing of its body is read before its caller is known.
pub(super) async fn serve(State(cache): State<Arc<CacheState>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let mut body = Some(body);
    let trouble = match answer(&cache, &head, &mut body).await {
        Ok(response) => return response,
        Err(trouble) => trouble,
    };
    cache.tell(head.method.as_str(), &trouble);
    // A client that is still sending does not hear the answer. One that waits to be asked sends nothing.
    if let Some(body) = body.filter(|_| !head.headers.contains_key(header::EXPECT)) {
        drain(body).await;
    }
    let is_denied = matches!(trouble, CacheTrouble::Access { .. });
    let mut response = trouble.into_api_error().into_response();
    if is_denied {
        // The audit log says why.
        response.extensions_mut().insert(Denied::Role);
    }
    response
}

async fn answer(cache: &CacheState, head: &Parts, body: &mut Option<Body>) -> Result<Response, CacheTrouble> {
    let (method, path) = (head.method.as_str(), head.uri.path());
    let named = CachePath::parse(path.strip_prefix(CACHE_PATHS).unwrap_or_default());
    let takes = match (method, &named) {
        ("GET" | "HEAD" | "PROPFIND", _) => CacheAccess::Read,
        ("PUT", Ok(CachePath::Blob(_))) => CacheAccess::Upload,
        _ => CacheAccess::Write,
    };
    let caller = cache.let_in(&head.extensions, takes)?;
    let put = PutRequest { cache, caller: &caller, headers: &head.headers };
    match (method, named?) {
        ("GET", path) => {
            cache.counts.request("GET");
            show(cache, &caller, path).await
        }
        ("HEAD", path) => Ok(sized(find(cache, &path).await?.bytes(), Body::empty())),
        ("PUT", path) => {
            cache.counts.request("PUT");
            put.take(path, body).await?;
            Ok(StatusCode::OK.into_response())
        }
        ("DELETE", CachePath::Value(instance, key)) => {
            cache.results.set_value(&instance, &key, None).await?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        ("PROPFIND", CachePath::Directory) => Ok(webdav::properties(path, None)),
        ("PROPFIND", value @ CachePath::Value(..)) => {
            Ok(webdav::properties(path, Some(find(cache, &value).await?.bytes())))
        }
        ("MKCOL", CachePath::Directory) => Ok(StatusCode::CREATED.into_response()),
        _ => Err(CacheTrouble::Method),
    }
}

/// What a path leads to.
enum Found {
    Result(Vec<u8>),
    Blob(Digest),
}

impl Found {
    fn bytes(&self) -> u64 {
        match self {
            Found::Result(bytes) => bytes.len() as u64,
            Found::Blob(digest) => digest.size,
        }
    }
}

async fn find(cache: &CacheState, path: &CachePath) -> Result<Found, CacheTrouble> {
    let found = match path {
        CachePath::Result(instance, action) => {
            let result = cache.results.get(instance, *action).await?;
            result.map(|result| Found::Result(result.encode_to_vec()))
        }
        CachePath::Value(instance, key) => cache.results.value(instance, key).await?.map(Found::Blob),
        CachePath::Blob(hash) => {
            let hash = *hash;
            let found = cache.store.with(move |blobs| Ok(blobs.digest_of(hash))).await?;
            return found.map(Found::Blob).ok_or(CacheTrouble::Nothing);
        }
        CachePath::Directory => return Err(CacheTrouble::Nothing),
    };
    cache.counts.answered(found.is_some());
    found.ok_or(CacheTrouble::Nothing)
}

async fn show(cache: &CacheState, caller: &Caller, path: CachePath) -> Result<Response, CacheTrouble> {
    let shares = match &path {
        CachePath::Result(..) => vec![cache.places.large(&caller.user).await?],
        _ => Vec::new(),
    };
    let digest = match find(cache, &path).await? {
        Found::Result(bytes) => return Ok(sized(bytes.len() as u64, held(bytes.into(), shares))),
        Found::Blob(digest) => digest,
    };
    let place = cache.places.download(&caller.user).await?;
    let blob = cache.store.with(move |blobs| blobs.read(digest)).await?;
    let parts = parts_of(blob.ok_or(CacheTrouble::Nothing)?, Cut::WHOLE, place).await?;
    cache.counts.read_bytes.fetch_add(digest.size, Ordering::Relaxed);
    // A body that breaks off is shorter than its head said, which clients notice.
    Ok(sized(digest.size, Body::from_stream(parts.map(|part| part.map_err(io::Error::other)))))
}

fn sized(bytes: u64, body: Body) -> Response {
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
    ];
    (head, body).into_response()
}

/// A request that brings something.
struct PutRequest<'a> {
    cache: &'a CacheState,
    caller: &'a Caller,
    headers: &'a HeaderMap,
}

impl PutRequest<'_> {
    async fn take(&self, path: CachePath, body: &mut Option<Body>) -> Result<(), CacheTrouble> {
        let bytes = self.announced()?;
        match path {
            CachePath::Blob(hash) => self.take_blob(Digest { hash, size: bytes }, body).await,
            CachePath::Result(instance, action) => self.take_result(&instance, action, bytes, body).await,
            CachePath::Value(instance, key) => self.take_value(&instance, &key, bytes, body).await,
            CachePath::Directory => Err(CacheTrouble::Method),
        }
    }

    /// Bytes of the body, which every client of a cache knows.
    fn announced(&self) -> Result<u64, CacheTrouble> {
        let said = self.headers.get(header::CONTENT_LENGTH);
        let bytes = said.and_then(|bytes| bytes.to_str().ok()?.parse::<u64>().ok());
        bytes.ok_or_else(|| CacheTrouble::Bad("the header Content-Length is missing".to_owned()))
    }

    async fn take_blob(&self, digest: Digest, body: &mut Option<Body>) -> Result<(), CacheTrouble> {
        let (cache, payer) = (self.cache, Payer::of(self.caller));
        let _place = cache.places.upload(&payer.user).await?;
        let is_there = cache.store.with(move |blobs| Ok(blobs.has(digest))).await?;
        let mut upload = match is_there {
            true => None,
            false => Some(cache.begin_upload(&cache.store, &payer, (digest, Packing::Plain)).await?),
        };
        let mut reader = reader(body);
        while let Some(part) = reader.next().await? {
            if let Some(upload) = &mut upload {
                upload.add(&part).await?;
            }
        }
        if let Some(upload) = upload {
            upload.finish().await?;
            cache.counts.upload_bytes.fetch_add(digest.size, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn take_result(
        &self,
        instance: &InstanceName,
        action: [u8; 32],
        bytes: u64,
        body: &mut Option<Body>,
    ) -> Result<(), CacheTrouble> {
        if bytes > RESULT_BYTES_MAX as u64 {
            return Err(CacheTrouble::TooLarge(RESULT_BYTES_MAX as u64));
        }
        let (places, user) = (&self.cache.places, &self.caller.user);
        let _share = match bytes <= SMALL_MESSAGE_BYTES_MAX as u64 {
            true => places.small(user).await?,
            false => places.large(user).await?,
        };
        let (mut reader, mut read) = (reader(body), Vec::with_capacity(bytes as usize));
        while let Some(part) = reader.next().await? {
            if (read.len() + part.len()) as u64 > bytes {
                return Err(CacheTrouble::TooLarge(bytes));
            }
            read.extend_from_slice(&part);
        }
        let result = ActionResult::decode(&read[..]).map_err(|error| {
            CacheTrouble::Bad(format!(
                "this is not the result of an action: {error}; any bytes may be put to …/kv/KEY"
            ))
        })?;
        self.cache.results.set(instance, action, &result).await
    }

    async fn take_value(
        &self,
        instance: &InstanceName,
        key: &str,
        bytes: u64,
        body: &mut Option<Body>,
    ) -> Result<(), CacheTrouble> {
        if bytes > VALUE_BYTES_MAX {
            return Err(CacheTrouble::TooLarge(VALUE_BYTES_MAX));
        }
        let cache = self.cache;
        let _place = cache.places.upload(&self.caller.user).await?;
        cache.quota.charge(&Payer::of(self.caller), bytes, now_ms())?;
        let (mut spool, mut reader, mut read) = (Spool::new(cache.store.spool_dir()), reader(body), 0);
        while let Some(part) = reader.next().await? {
            read += part.len() as u64;
            if read > bytes {
                return Err(CacheTrouble::TooLarge(bytes));
            }
            spool = spool.add(&part).await?;
        }
        let value = cache.store.with(move |blobs| spool.keep(blobs)).await?;
        cache.counts.upload_bytes.fetch_add(value.size, Ordering::Relaxed);
        cache.results.set_value(instance, key, Some(value)).await
    }
}

fn reader(body: &mut Option<Body>) -> BodyReader {
    BodyReader::new(body.take().unwrap_or_default(), BODY_BYTES_PER_S)
}
