//! Bodies of requests that are too large for memory.

use futures_util::stream;
use reqwest::Body;
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes that are read at a time.
const PART_BYTES: usize = 256 << 10;

/// What opens the bytes of a body at their beginning.
type Opening = dyn Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync;

/// A body that is read while it is sent. Each server that is tried gets it from its beginning.
#[derive(Clone)]
pub(super) struct BodySource(Arc<Opening>);

impl BodySource {
    pub fn new(open: impl Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync + 'static) -> BodySource {
        BodySource(Arc::new(open))
    }

    /// The body of one try. The disk is read on threads that may wait for it.
    pub fn body(&self) -> Body {
        let open = self.0.clone();
        let parts = stream::try_unfold(None, move |from: Option<Box<dyn Read + Send>>| {
            let open = open.clone();
            let read = move || {
                let mut from = match from {
                    Some(from) => from,
                    None => open()?,
                };
                let mut part = vec![0; PART_BYTES];
                let bytes = from.read(&mut part)?;
                part.truncate(bytes);
                Ok::<_, io::Error>((part, from))
            };
            async move {
                let (part, from) = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
                Ok::<_, io::Error>(if part.is_empty() { None } else { Some((part, Some(from))) })
            }
        });
        Body::wrap_stream(parts)
    }
}
