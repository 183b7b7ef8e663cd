//! Bodies of requests as they come: how long one may take, and how long it may pause.

use super::budget::RequestShare;
use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::StreamExt as _;
use std::time::Duration;
use tokio::time::Instant;

/// How long a body may take besides the time for its bytes.
pub(crate) const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// How long a body may bring nothing.
pub(crate) const BODY_PAUSE_MAX: Duration = Duration::from_secs(20);

/// Bytes, and the time, that a request which is refused may take to bring its body: a client that is still sending does
/// not hear the answer.
const DRAINED_BYTES_MAX: usize = 64 << 10;
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);

/// Why a body is not read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body of the request comes too slowly")]
    Slow,
    #[error("too many requests are under way")]
    GaveWay,
    #[error("the body of the request does not come: {0}")]
    Broken(axum::Error),
}

pub(crate) struct BodyReader {
    parts: BodyDataStream,
    pace: Pace,
}

/// How fast the parts of a body must come.
pub(crate) struct Pace {
    begun: Instant,
    bytes: u64,
    bytes_per_s: u32,
}

impl Pace {
    /// For a body that must bring `bytes_per_s` after its first time.
    pub fn new(bytes_per_s: u32) -> Pace {
        Pace { begun: Instant::now(), bytes: 0, bytes_per_s }
    }

    /// When the next part must be there.
    pub fn deadline(&self) -> Instant {
        let grace = Duration::from_secs(self.bytes) / self.bytes_per_s;
        (self.begun + BODY_PATIENCE + grace).min(Instant::now() + BODY_PAUSE_MAX)
    }

    /// A part has come.
    pub fn came(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl BodyReader {
    /// For a body that must bring `bytes_per_s` after its first time.
    pub fn new(body: Body, bytes_per_s: u32) -> BodyReader {
        BodyReader { parts: body.into_data_stream(), pace: Pace::new(bytes_per_s) }
    }

    /// The next part; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        let next = tokio::time::timeout_at(self.pace.deadline(), self.parts.next()).await;
        let Some(part) = next.map_err(|_| BodyError::Slow)? else { return Ok(None) };
        let part = part.map_err(BodyError::Broken)?;
        self.pace.came(part.len());
        Ok(Some(part))
    }

    pub async fn next_within(&mut self, share: &mut RequestShare) -> Result<Option<Bytes>, BodyError> {
        let next = tokio::select! {
            next = self.next() => next?,
            () = share.must_give_way() => return Err(BodyError::GaveWay),
        };
        match next {
            Some(part) if !share.add(part.len()) => Err(BodyError::GaveWay),
            next => Ok(next),
        }
    }
}

/// Reads what a request that is refused still sends, within bounds, and keeps none of it.
pub(crate) async fn drain(body: Body) {
    let mut parts = body.into_data_stream();
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(part)) = parts.next().await {
            bytes += part.len();
            if bytes > DRAINED_BYTES_MAX {
                return;
            }
        }
    };
    _ = tokio::time::timeout(DRAIN_PATIENCE, read).await;
}
