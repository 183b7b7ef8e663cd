//! The watch over the owner's lease, by which a server that stands by decides to claim the farm.

use std::time::Duration;
use windlass_store::OwnerRow;

/// Looks, without one that failed, that must have shown the same before an owner counts as gone.
const LOOKS_MIN: u32 = 4;

/// The owner's lease as a server that stands by sees it. It counts the owner's silence by its own clock, and only
/// while it reaches the database itself. After an outage of the database the owner so has a whole lease to renew.
#[derive(Debug)]
pub struct OwnerWatch {
    lease: Duration,
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    epoch: u64,
    renewed_us: i64,
    since: Duration,
    looks: u32,
}

impl OwnerWatch {
    /// For owners whose lease lasts `lease`.
    pub fn new(lease: Duration) -> OwnerWatch {
        OwnerWatch { lease, seen: None }
    }

    /// A look at the row of the farm's owner; `None` if it never had one. `now` is any clock that does not go back. True if
    /// the farm may be claimed.
    pub fn looked(&mut self, now: Duration, row: Option<&OwnerRow>) -> bool {
        let Some(row) = row.filter(|row| row.server.is_some()) else { return true };
        match &mut self.seen {
            Some(seen) if (seen.epoch, seen.renewed_us) == (row.epoch, row.renewed_us) => {
                seen.looks += 1;
                seen.looks >= LOOKS_MIN && now.saturating_sub(seen.since) >= self.lease
            }
            _ => {
                let (epoch, renewed_us) = (row.epoch, row.renewed_us);
                self.seen = Some(Seen { epoch, renewed_us, since: now, looks: 1 });
                false
            }
        }
    }

    /// A look failed: what was seen before says nothing about the owner any more.
    pub fn failed(&mut self) {
        self.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_store::ServerId;

    fn row(server: Option<i64>, epoch: u64, renewed_us: i64) -> OwnerRow {
        let (age, left) = (None, Duration::ZERO);
        OwnerRow { server: server.map(ServerId), epoch, batch: 0, age, left, renewed_us }
    }

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_farm_without_an_owner_is_taken_at_once() {
        let mut watch = OwnerWatch::new(5 * S);
        assert!(watch.looked(S, None));
        assert!(watch.looked(S, Some(&row(None, 3, 7))));
    }

    #[test]
    fn an_owner_that_renews_keeps_it_and_one_that_is_silent_loses_it() {
        let mut watch = OwnerWatch::new(5 * S);
        for second in 0..20 {
            assert!(!watch.looked(second * S, Some(&row(Some(1), 1, i64::from(second)))));
        }
        let silent = row(Some(1), 1, 19);
        let taken: Vec<u32> = (20..30).filter(|s| watch.looked(*s * S, Some(&silent))).collect();
        assert_eq!(taken[0], 24, "five seconds after it was seen first, at 19");
        assert!(!watch.looked(40 * S, Some(&row(Some(2), 2, 19))), "another owner has its own time");
    }

    #[test]
    fn after_an_outage_the_owner_has_a_whole_lease() {
        let mut watch = OwnerWatch::new(5 * S);
        let silent = row(Some(1), 1, 0);
        assert!(!watch.looked(S, Some(&silent)));
        watch.failed();
        for second in 31..36 {
            assert!(!watch.looked(second * S, Some(&silent)), "{second}");
        }
        assert!(watch.looked(36 * S, Some(&silent)));
    }

    #[test]
    fn a_server_that_was_stopped_for_a_while_looks_several_times() {
        let mut watch = OwnerWatch::new(5 * S);
        let silent = row(Some(1), 1, 0);
        assert!(!watch.looked(S, Some(&silent)));
        assert!(!watch.looked(100 * S, Some(&silent)) && !watch.looked(101 * S, Some(&silent)));
        assert!(watch.looked(102 * S, Some(&silent)));
    }
}
