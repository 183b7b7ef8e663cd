//! The gate of the calls: who asks is known before anything of a message is read, and messages are in a budget. A client
//! of the cache is let in by its rights, a worker by the attempt for which it asks.

use super::super::access::CacheAccess;
use super::super::attempts::BookedAttempt;
use super::super::held::held;
use super::super::places::{MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX};
use super::super::state::CacheState;
use super::super::trouble::CacheTrouble;
use crate::auth::{Access, Caller, Denied};
use crate::listen::body::BodyReader;
use crate::user_budget::UserShare;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use tonic::Status;
use windlass_api::ATTEMPT_METADATA;

/// How many bytes a second a message must bring after its first half minute.
const MESSAGE_BYTES_PER_S: u32 = 256 << 10;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A call that the cache serves.
struct CacheCall {
    path: &'static str,
    takes: CacheAccess,
    messages: Messages,
}

/// What a call sends, and what it is answered with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Messages {
    /// One message, which is small as a rule.
    One,
    /// One message, and a large answer.
    LargeAnswer,
    /// A stream, which has bounds of its own.
    Stream,
}

macro_rules! calls {
    ($($service:literal { $($call:literal $takes:ident $messages:ident),+ })+) => {
        /// The calls of all services.
        const CALLS: &[CacheCall] = &[$($(CacheCall {
            path: concat!("/", $service, "/", $call),
            takes: CacheAccess::$takes,
            messages: Messages::$messages,
        },)+)+];
    };
}

calls! {
    "build.bazel.remote.execution.v2.Capabilities" { "GetCapabilities" Read One }
    "build.bazel.remote.execution.v2.ActionCache" {
        "GetActionResult" Read LargeAnswer,
        "UpdateActionResult" Write One
    }
    "build.bazel.remote.execution.v2.ContentAddressableStorage" {
        "FindMissingBlobs" Read One,
        "BatchUpdateBlobs" Upload One,
        "BatchReadBlobs" Read LargeAnswer,
        "GetTree" Read LargeAnswer
    }
    "google.bytestream.ByteStream" {
        "Read" Read Stream,
        "Write" Upload Stream,
        "QueryWriteStatus" Upload One
    }
}

impl CacheCall {
    fn of(path: &str) -> Option<&'static CacheCall> {
        CALLS.iter().find(|call| call.path == path)
    }

    /// The name without that of its service.
    fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// True if it is also for files of jobs.
    fn is_for_workers(&self) -> bool {
        let of_blobs = ["FindMissingBlobs", "BatchUpdateBlobs", "BatchReadBlobs"];
        of_blobs.contains(&self.name())
            || self.messages == Messages::Stream
            || self.name() == "QueryWriteStatus"
    }
}

/// True of the path of a call.
pub fn is_call(path: &str) -> bool {
    CacheCall::of(path).is_some()
}

/// Lets a call in whose caller may make it, with its message.
pub(super) async fn admit(State(cache): State<Arc<CacheState>>, request: Request, next: Next) -> Response {
    let Some(call) = CacheCall::of(request.uri().path()) else {
        return Status::unimplemented("the cache has no such call").into_http();
    };
    cache.counts.request(call.name());
    match take_in(&cache, call, request).await {
        Ok((request, shares)) => next.run(request).await.map(|body| held(body, shares)),
        Err(trouble) => {
            cache.tell(call.name(), &trouble);
            trouble.into_status().into_http()
        }
    }
}

/// Reads the message of a call, within the budget of its user. Returns the shares of it, too.
async fn take_in(
    cache: &CacheState,
    call: &CacheCall,
    mut request: Request,
) -> Result<(Request, Vec<UserShare>), CacheTrouble> {
    let user = match attempt_of(cache, call, request.headers(), request.extensions()).await? {
        Some(attempt) => {
            let user = attempt.spec.user.clone();
            request.extensions_mut().insert(attempt);
            user
        }
        None => cache.let_in(request.extensions(), call.takes)?.user,
    };
    if call.messages == Messages::Stream {
        return Ok((request, Vec::new()));
    }
    let mut shares = vec![cache.places.small(&user).await?];
    let mut is_large = call.messages == Messages::LargeAnswer;
    if is_large {
        shares.push(cache.places.large(&user).await?);
    }
    let (head, body) = request.into_parts();
    let (mut reader, mut read) = (BodyReader::new(body, MESSAGE_BYTES_PER_S), Vec::new());
    while let Some(part) = reader.next().await? {
        let bytes = read.len() + part.len();
        if bytes > MESSAGE_BYTES_MAX + PREFIX_BYTES {
            return Err(CacheTrouble::TooLarge(MESSAGE_BYTES_MAX as u64));
        }
        if bytes > SMALL_MESSAGE_BYTES_MAX && !is_large {
            shares.push(cache.places.large(&user).await?);
            is_large = true;
        }
        read.extend_from_slice(&part);
    }
    Ok((Request::from_parts(head, Body::from(read)), shares))
}

/// The attempt for which a worker asks; `None` of a client of the cache.
async fn attempt_of(
    cache: &CacheState,
    call: &CacheCall,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<Option<BookedAttempt>, CacheTrouble> {
    let Some(named) = headers.get(ATTEMPT_METADATA) else { return Ok(None) };
    let caller = extensions.get::<Caller>().ok_or(Denied::Missing)?;
    if !Access::Worker.is_for(caller.role) {
        return Err(Denied::of_role(caller, Access::Worker).into());
    }
    if !call.is_for_workers() {
        return Err(CacheTrouble::Bad(format!("{} is not for files of jobs", call.name())));
    }
    let bad = || CacheTrouble::Bad(format!("'{ATTEMPT_METADATA}' is not JOB.INDEX.ATTEMPT"));
    let (task, attempt) = named.to_str().ok().and_then(BookedAttempt::parse).ok_or_else(bad)?;
    let handle = cache.handle.get().ok_or(CacheTrouble::Defect)?;
    BookedAttempt::find(handle, Some(caller), task, attempt).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_read_and_write_blobs_and_nothing_else() {
        let calls = CALLS.iter().filter(|call| call.is_for_workers()).map(CacheCall::name);
        let names: Vec<&str> = calls.collect();
        let expected =
            ["FindMissingBlobs", "BatchUpdateBlobs", "BatchReadBlobs", "Read", "Write", "QueryWriteStatus"];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_a_call_takes_is_known_before_its_message() {
        let takes = |path: &str| CacheCall::of(path).map(|call| call.takes);
        let content = "/build.bazel.remote.execution.v2.ContentAddressableStorage";
        assert_eq!(takes(&format!("{content}/FindMissingBlobs")), Some(CacheAccess::Read));
        assert_eq!(takes("/google.bytestream.ByteStream/Write"), Some(CacheAccess::Upload));
        let update = "/build.bazel.remote.execution.v2.ActionCache/UpdateActionResult";
        assert_eq!(takes(update), Some(CacheAccess::Write));
        assert!(!is_call("/google.bytestream.ByteStream/") && !is_call("/windlass.worker.v1.Workers/Work"));
        assert!(CALLS.iter().all(|call| call.takes != CacheAccess::Nothing));
    }
}
