//! Parsing of bodies: a large one on a thread of its own, so that no other request waits for it.

use crate::panics::in_request_here;
use axum::body::Bytes;
use tokio::sync::Semaphore;

/// A body of more bytes is parsed on a thread of its own.
const PARSED_HERE_BYTES_MAX: usize = 256 << 10;
/// Of these, one of more bytes is parsed alone: parsed, it may have several times as many.
const PARSED_ALONE_BYTES: usize = 4 << 20;
/// Bodies that are parsed at a time.
const PARSED_MAX: u32 = 2;

/// The threads that parse large bodies, [`PARSED_MAX`] at a time.
pub(crate) struct Parsers(Semaphore);

impl Default for Parsers {
    fn default() -> Self {
        Parsers(Semaphore::new(PARSED_MAX as usize))
    }
}

impl Parsers {
    /// Parses a body, on a thread of its own if the body is large.
    pub async fn parse<T: Send + 'static>(
        &self,
        body: Bytes,
        parse: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> T {
        if body.len() <= PARSED_HERE_BYTES_MAX {
            return parse(&body);
        }
        let turns = if body.len() > PARSED_ALONE_BYTES { PARSED_MAX } else { 1 };
        // Nobody closes the semaphore.
        let _turn = self.0.acquire_many(turns).await;
        match tokio::task::spawn_blocking(move || in_request_here(|| parse(&body))).await {
            Ok(parsed) => parsed,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_body_is_parsed_on_another_thread() {
        let parsers = Parsers::default();
        let here = std::thread::current().id();
        let on = |bytes: usize| parsers.parse(vec![0; bytes].into(), |_| std::thread::current().id());
        assert_eq!(on(1000).await, here);
        assert_ne!(on(PARSED_HERE_BYTES_MAX + 1).await, here);
    }
}
