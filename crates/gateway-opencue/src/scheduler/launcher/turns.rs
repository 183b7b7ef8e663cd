//! Calls about one frame on one host come one after another. RQD knows a frame by its key alone, so a kill of an
//! earlier run would end a later one whose launch overtook it.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::Notify;

/// Host and frame of the calls that are under way or come next: one for each launch and kill.
#[derive(Default)]
pub(super) struct CallTurns {
    taken: Mutex<BTreeSet<(String, String)>>,
    given_back: Notify,
}

/// The turn of a call. Dropping it gives it back.
pub(super) struct CallTurn<'a> {
    turns: &'a CallTurns,
    key: (String, String),
}

impl CallTurns {
    /// Waits until no other call about the frame is under way to the host.
    pub(super) async fn take(&self, host: &str, frame: &str) -> CallTurn<'_> {
        let key = (host.to_owned(), frame.to_owned());
        loop {
            // Made before the look: what is given back between both is heard.
            let given_back = self.given_back.notified();
            if self.taken.lock().insert(key.clone()) {
                return CallTurn { turns: self, key };
            }
            given_back.await;
        }
    }
}

impl Drop for CallTurn<'_> {
    fn drop(&mut self) {
        self.turns.taken.lock().remove(&self.key);
        self.turns.given_back.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_turn_is_waited_for_and_other_frames_and_hosts_are_not() {
        let turns = CallTurns::default();
        let first = turns.take("h1", "a").await;
        let (_other_frame, _other_host) = (turns.take("h1", "b").await, turns.take("h2", "a").await);
        let mut second = std::pin::pin!(turns.take("h1", "a"));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        drop(second.await);
        assert_eq!(turns.taken.lock().len(), 2, "what was given back is forgotten");
    }
}
