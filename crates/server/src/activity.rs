//! The requests under way, by which an idle server knows that it is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts the requests and conversations under way.
pub(crate) struct Activity {
    started: Instant,
    open: AtomicUsize,
    /// Milliseconds from `started` to the end of the last request.
    last_ms: AtomicU64,
}

impl Activity {
    /// Starts to count now, with no request under way.
    pub fn new() -> Arc<Activity> {
        let (open, last_ms) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Activity { started: Instant::now(), open, last_ms })
    }

    /// The server is not idle until the result is dropped.
    pub fn begin(self: &Arc<Self>) -> OpenRequest {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenRequest(self.clone())
    }

    pub fn is_busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// When the last request ended; before the first one, when the server was started.
    pub fn last_end(&self) -> Instant {
        self.started + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }
}

/// A request, or a conversation, under way.
pub struct OpenRequest(Arc<Activity>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let Activity { started, open, last_ms } = &*self.0;
        open.fetch_sub(1, Ordering::Relaxed);
        last_ms.store(started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}
