//! Ends of frames that wait for the database. RQD tells an end once and forgets it, whatever the answer is. So an end
//! that the tables did not take is kept in memory and applied as soon as they take it.
//!
//! - Each end that waits has one of a bounded number of places. Without a free one the host's call waits.
//! - Of each end only what is applied is kept. No key is longer than its column.
//! - A gateway that is killed loses the ends that wait. Two reports of their hosts then leave the frames out, and the
//!   hosts are asked: the frames wait again.

use crate::generated::report::{FrameCompleteReport, RenderHost, RunningFrameInfo};
use crate::names::width::{HOST, KEY};
use parking_lot::Mutex;
use std::collections::VecDeque;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Notify, Semaphore};

/// Ends that wait at most: those of the busiest farm, some hundred a second, in the minute in which a database is
/// started again. Each has some hundred bytes.
const KEPT_ENDS_MAX: usize = 16_384;

/// Ends that wait, in the order in which they came.
pub(crate) struct KeptEnds {
    places: Semaphore,
    waiting: Mutex<VecDeque<FrameCompleteReport>>,
    added: Notify,
    turn: AsyncMutex<()>,
}

impl Default for KeptEnds {
    fn default() -> KeptEnds {
        KeptEnds {
            places: Semaphore::new(KEPT_ENDS_MAX),
            waiting: Mutex::default(),
            added: Notify::new(),
            turn: AsyncMutex::default(),
        }
    }
}

impl KeptEnds {
    /// Keeps an end, once there is a place for it. Returns the number of ends that wait.
    pub(crate) async fn keep(&self, end: FrameCompleteReport) -> usize {
        // The place is given back in `settle_first`. The semaphore is never closed.
        if let Ok(place) = self.places.acquire().await {
            place.forget();
        }
        let mut waiting = self.waiting.lock();
        waiting.push_back(end);
        self.added.notify_one();
        waiting.len()
    }

    /// Returns when an end was added since the last call.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }

    /// The turn to apply ends, so that the first end stays the same until it is settled.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The end that waits longest. It stays in its place until it is settled.
    pub(crate) fn first(&self) -> Option<FrameCompleteReport> {
        self.waiting.lock().front().cloned()
    }

    /// The first end was applied, or nothing is left to be done about it.
    pub(crate) fn settle_first(&self) {
        if self.waiting.lock().pop_front().is_some() {
            self.places.add_permits(1);
        }
    }

    /// The first end is tried again after all others, which it does not hold up.
    pub(crate) fn postpone_first(&self) {
        let mut waiting = self.waiting.lock();
        if !waiting.is_empty() {
            waiting.rotate_left(1);
        }
    }

    /// True if the end of a proc waits.
    pub(crate) fn has(&self, proc_id: &str) -> bool {
        let waiting = self.waiting.lock();
        waiting.iter().filter_map(|end| end.frame.as_ref()).any(|run| run.resource_id == proc_id)
    }
}

/// What of a report is applied. `None` where no row can have its keys.
pub(crate) fn essence(report: FrameCompleteReport) -> Option<FrameCompleteReport> {
    let run = report.frame?;
    let is_long = report.host.as_ref().is_some_and(|host| host.name.len() > HOST);
    if run.frame_id.len() > KEY || run.resource_id.len() > KEY || is_long {
        return None;
    }
    let frame = RunningFrameInfo {
        resource_id: run.resource_id,
        frame_id: run.frame_id,
        max_rss: run.max_rss,
        llu_time: run.llu_time,
        ..RunningFrameInfo::default()
    };
    let host = report.host.map(|host| RenderHost {
        name: host.name,
        nimby_locked: host.nimby_locked,
        ..RenderHost::default()
    });
    Some(FrameCompleteReport { host, frame: Some(frame), ..report })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(proc_id: &str) -> FrameCompleteReport {
        let run = RunningFrameInfo { resource_id: proc_id.to_owned(), ..RunningFrameInfo::default() };
        FrameCompleteReport { frame: Some(run), ..FrameCompleteReport::default() }
    }

    #[tokio::test]
    async fn ends_are_settled_in_turn_and_their_number_is_bounded() {
        let kept = KeptEnds::default();
        assert_eq!((kept.keep(end("p")).await, kept.keep(end("q")).await), (1, 2));
        assert!(kept.has("p") && kept.has("q") && !kept.has("r"));
        kept.postpone_first();
        assert_eq!(kept.first(), Some(end("q")));
        kept.settle_first();
        assert!(kept.has("p") && !kept.has("q"));
        for number in 1..KEPT_ENDS_MAX {
            kept.keep(end(&number.to_string())).await;
        }
        assert_eq!(kept.places.available_permits(), 0, "the next call waits");
        kept.settle_first();
        assert_eq!(kept.places.available_permits(), 1);
        kept.keep(end("r")).await;
        assert!(kept.has("r") && !kept.has("p"));
    }

    #[test]
    fn only_what_is_applied_is_kept() {
        let run = RunningFrameInfo {
            frame_id: "f".repeat(KEY),
            job_name: "j".repeat(1 << 20),
            ..Default::default()
        };
        let host = RenderHost {
            name: "h".to_owned(),
            tags: vec!["t".to_owned()],
            nimby_locked: true,
            ..Default::default()
        };
        let report = FrameCompleteReport {
            host: Some(host),
            frame: Some(run),
            exit_status: 1,
            exit_signal: 9,
            run_time: 7,
        };
        let kept = essence(report.clone()).unwrap();
        assert_eq!((kept.exit_status, kept.exit_signal, kept.run_time), (1, 9, 7));
        let (host, run) = (kept.host.unwrap(), kept.frame.unwrap());
        assert_eq!((host.name.as_str(), host.nimby_locked, host.tags.len()), ("h", true, 0));
        assert_eq!((run.frame_id.len(), run.job_name.len()), (KEY, 0));
        let long = RunningFrameInfo { frame_id: "f".repeat(KEY + 1), ..Default::default() };
        assert_eq!(essence(FrameCompleteReport { frame: Some(long), ..report.clone() }), None);
        assert_eq!(essence(FrameCompleteReport { host: None, ..report }).unwrap().host, None);
        assert_eq!(essence(FrameCompleteReport::default()), None);
    }
}
