//! Procs whose hosts reported their ends lately. A status report that still names such a proc is older than the end:
//! it was made, or was on its way, while the command ended.

use crate::names::width::{HOST, KEY};
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};

/// Ends that are remembered, the latest. A farm has some hundred a second, and a report is on its way for seconds.
const ENDED_MAX: usize = 16_384;

/// Ends that hosts reported, by host and proc.
#[derive(Default)]
pub(crate) struct EndedProcs(Mutex<EndedList>);

#[derive(Default)]
struct EndedList {
    known: BTreeSet<(String, String)>,
    order: VecDeque<(String, String)>,
}

impl EndedProcs {
    /// Notes that a host reported the end of a proc. The end is noted before the tables change, so that a report
    /// which misses the proc in the tables finds it here.
    pub(crate) fn note(&self, host: &str, proc_id: &str) {
        // What the tables cannot hold is not kept here either.
        if host.len() > HOST || proc_id.len() > KEY {
            return;
        }
        let key = (host.to_owned(), proc_id.to_owned());
        let mut list = self.0.lock();
        if !list.known.insert(key.clone()) {
            return;
        }
        list.order.push_back(key);
        if list.order.len() > ENDED_MAX
            && let Some(oldest) = list.order.pop_front()
        {
            list.known.remove(&oldest);
        }
    }

    /// True if the host reported the end of the proc.
    pub(crate) fn has(&self, host: &str, proc_id: &str) -> bool {
        let list = self.0.lock();
        list.known.contains(&(host.to_owned(), proc_id.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_ends_are_known_of_the_host_that_told_them() {
        let ended = EndedProcs::default();
        ended.note("h1", "p");
        ended.note("h1", "p");
        assert!(ended.has("h1", "p") && !ended.has("h2", "p") && !ended.has("h1", "q"));
        ended.note("h1", &"x".repeat(KEY + 1));
        assert_eq!(ended.0.lock().order.len(), 1, "no key is that long");
        for number in 0..ENDED_MAX {
            ended.note("h1", &number.to_string());
        }
        assert!(!ended.has("h1", "p") && ended.has("h1", "0"));
        assert_eq!(ended.0.lock().known.len(), ENDED_MAX);
    }
}
