//! Bytes of strangers' requests that are held at a time.
//!
//! - All of a request counts: its head, its body as it comes, and what the server keeps for it besides.
//! - Where the bytes are too many, the oldest request whose body is still coming gives way. So requests that come slowly
//!   to hold memory make room for those that come at once, and no request waits for another one.
//! - A request whose body is complete stays until it is answered. A new one is refused where only such requests are left.

use axum::http::request::Parts;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Bytes that a request counts for besides its head and its body: its stream, its task, its buffers.
const REQUEST_BYTES: usize = 2 << 10;
/// Bytes that a header counts for besides its name and its value.
const HEADER_BYTES: usize = 32;

/// Bytes that a request takes before anything of its body has come.
pub(crate) fn head_bytes(head: &Parts) -> usize {
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let headers = head.headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_BYTES);
    REQUEST_BYTES + path + headers.sum::<usize>()
}

pub(crate) struct RequestBudget {
    bytes_max: usize,
    held: Mutex<HeldBytes>,
}

#[derive(Default)]
struct HeldBytes {
    bytes: usize,
    next: u64,
    /// Requests whose bodies are coming, by numbers that rise.
    coming: BTreeMap<u64, ComingRequest>,
}

struct ComingRequest {
    bytes: usize,
    give_way: Arc<Notify>,
}

impl HeldBytes {
    /// Lets the oldest requests give way until the others fit.
    fn fit(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some((_, oldest)) = self.coming.pop_first()
        {
            self.bytes -= oldest.bytes;
            oldest.give_way.notify_one();
        }
    }
}

impl RequestBudget {
    /// For that number of bytes.
    pub fn new(bytes_max: usize) -> Arc<RequestBudget> {
        Arc::new(RequestBudget { bytes_max, held: Mutex::default() })
    }

    /// A request comes, with that number of bytes so far. `None` where it does not fit.
    pub fn begin(self: &Arc<RequestBudget>, bytes: usize) -> Option<RequestShare> {
        let give_way = Arc::new(Notify::new());
        let mut held = self.held.lock();
        let number = held.next;
        held.next += 1;
        held.bytes += bytes;
        held.coming.insert(number, ComingRequest { bytes, give_way: give_way.clone() });
        held.fit(self.bytes_max);
        let fits = held.coming.contains_key(&number);
        drop(held);
        fits.then(|| RequestShare { budget: self.clone(), number, complete_bytes: 0, give_way })
    }

    pub fn coming_count(&self) -> usize {
        self.held.lock().coming.len()
    }
}

/// The share of the budget that one request has until it is dropped.
pub(crate) struct RequestShare {
    budget: Arc<RequestBudget>,
    number: u64,
    /// Its bytes, once all have come.
    complete_bytes: usize,
    give_way: Arc<Notify>,
}

impl RequestShare {
    /// More of its body has come. False where it has to give way.
    #[must_use]
    pub fn add(&mut self, bytes: usize) -> bool {
        let mut held = self.budget.held.lock();
        let Some(own) = held.coming.get_mut(&self.number) else { return false };
        own.bytes += bytes;
        held.bytes += bytes;
        held.fit(self.budget.bytes_max);
        held.coming.contains_key(&self.number)
    }

    /// All of it has come, and it stays. False where it had to give way before.
    #[must_use]
    pub fn complete(&mut self) -> bool {
        let own = self.budget.held.lock().coming.remove(&self.number);
        self.complete_bytes = own.as_ref().map_or(self.complete_bytes, |own| own.bytes);
        own.is_some()
    }

    pub async fn must_give_way(&self) {
        self.give_way.notified().await;
    }
}

impl Drop for RequestShare {
    fn drop(&mut self) {
        let mut held = self.budget.held.lock();
        // What gave way is counted no more.
        let coming = held.coming.remove(&self.number).map_or(0, |own| own.bytes);
        held.bytes -= coming + self.complete_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn gives_way(share: &RequestShare) -> bool {
        share.must_give_way().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_that_still_sends_makes_room() {
        let budget = RequestBudget::new(100);
        let mut slow = budget.begin(40).unwrap();
        let mut done = budget.begin(10).unwrap();
        assert!(done.complete());
        let mut new = budget.begin(10).unwrap();
        assert!(new.add(40), "all of the budget is in use now");
        assert!(new.add(30));
        assert!(gives_way(&slow) && !gives_way(&new) && !gives_way(&done));
        assert!(!slow.add(1) && !slow.complete());
        // The oldest gives way also where it is the one that brings more.
        assert!(!new.add(20));
        assert!(budget.begin(100).is_none(), "what is complete stays");
        assert!(budget.begin(90).is_some());
        drop((slow, done, new));
        assert_eq!(budget.held.lock().bytes, 0);
        assert!(budget.held.lock().coming.is_empty());
    }

    #[test]
    fn a_head_counts() {
        let request = axum::http::Request::builder().uri("/a?b").header("x", "yz").body(()).unwrap();
        assert_eq!(head_bytes(&request.into_parts().0), REQUEST_BYTES + 4 + 3 + HEADER_BYTES);
    }
}
