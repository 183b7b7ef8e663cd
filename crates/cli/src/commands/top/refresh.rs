//! When the program reads again. Events say that something changed, and reads bring the new values.
//!
//! - One read at a time.
//! - At most four re-reads a second, for any number of events.
//! - After a read that took long, its next one waits nine times as long. A large farm then costs at most a tenth of
//!   the server's time and of this program's.
//! - A read that was never made, or that a person asked for, does not wait.

use crate::commands::top::message::Read;
use std::collections::VecDeque;

/// The least time between the starts of two re-reads.
pub const GAP_MS: u64 = 250;
/// A read's rest, as a multiple of the time that it took.
const REST: u64 = 9;
/// Reads that wait because a person asked for them.
const ASKED_MAX: usize = 8;

/// How long nothing is read because it was asked for, after a read that failed.
const ASKS_REST_MS: u64 = 2_000;

/// The data that is kept up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    Overview,
    /// The farm over time.
    Series,
    /// The rows or the text of the screen.
    Shown,
}

impl Need {
    const ALL: [Need; 3] = [Need::Shown, Need::Overview, Need::Series];
}

/// How one need is kept up to date.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// Something changed since the last read began.
    changed: bool,
    /// When the last read began; `None` if there was none yet.
    began_ms: Option<u64>,
    took_ms: u64,
    /// The least time between two reads if something changed.
    least_ms: u64,
    /// The time after which it is read even if nothing changed.
    most_ms: u64,
}

impl Kept {
    fn due_ms(&self) -> u64 {
        let Some(began) = self.began_ms else { return 0 };
        let pause = if self.changed { self.least_ms } else { self.most_ms };
        began + pause.max(self.rest_ms())
    }

    /// The pause after its last read.
    fn rest_ms(&self) -> u64 {
        self.took_ms.saturating_mul(REST)
    }
}

/// Reads that run, that are due, and that were asked for.
#[derive(Debug)]
pub struct Refresh {
    needs: [Kept; 3],
    asked: VecDeque<Read>,
    running: Option<(Read, Option<Need>)>,
    /// Something was done since the one that runs began: its answer may be of before.
    is_outdated: bool,
    running_since_ms: u64,
    last_ms: Option<u64>,
    asks_from_ms: u64,
}

impl Default for Refresh {
    fn default() -> Self {
        let kept = |least_ms, most_ms| Kept { least_ms, most_ms, ..Kept::default() };
        Refresh {
            needs: [kept(GAP_MS, 2_000), kept(1_000, 5_000), kept(10_000, 10_000)],
            asked: VecDeque::new(),
            running: None,
            is_outdated: false,
            running_since_ms: 0,
            last_ms: None,
            asks_from_ms: 0,
        }
    }
}

impl Refresh {
    fn kept(&mut self, need: Need) -> &mut Kept {
        let [shown, overview, series] = &mut self.needs;
        match need {
            Need::Shown => shown,
            Need::Overview => overview,
            Need::Series => series,
        }
    }

    /// The pause after the last read of what is shown, because that read took long. What is shown grows that much older
    /// although the server answers.
    pub fn rest_ms(&self) -> u64 {
        self.needs[0].rest_ms()
    }

    /// Notes that what `need` reads has changed on the server.
    pub fn changed(&mut self, need: Need) {
        self.kept(need).changed = true;
    }

    /// Something else is shown now: it is read at once, and then between these times.
    pub fn show(&mut self, least_ms: u64, most_ms: u64) {
        self.needs[0] = Kept { least_ms, most_ms, ..Kept::default() };
    }

    /// Something was done: what is being read may be of before that, and is read again.
    pub fn outdated(&mut self) {
        self.is_outdated = self.running.is_some();
        self.missed();
    }

    /// All is read again: something was missed.
    pub fn missed(&mut self) {
        self.needs.iter_mut().for_each(|kept| kept.changed = true);
    }

    /// Reads something once, because a person asked for it.
    pub fn ask(&mut self, read: Read) {
        let is_running = self.running.as_ref().is_some_and(|(running, _)| *running == read);
        if !is_running && self.asked.len() < ASKED_MAX && !self.asked.contains(&read) {
            self.asked.push_back(read);
        }
    }

    /// The read that is due now. `shown` is the read for the shown screen, if it has one.
    pub fn next(&mut self, now_ms: u64, shown: Option<&Read>) -> Option<Read> {
        if self.running.is_some() {
            return None;
        }
        let asked = if now_ms >= self.asks_from_ms { self.asked.pop_front() } else { None };
        let (read, need) = match asked {
            Some(read) => (read, None),
            None => self.due(now_ms, shown)?,
        };
        if let Some(need) = need {
            let kept = self.kept(need);
            (kept.changed, kept.began_ms) = (false, Some(now_ms));
            self.last_ms = Some(now_ms);
        }
        self.running_since_ms = now_ms;
        self.running = Some((read.clone(), need));
        Some(read)
    }

    fn due(&mut self, now_ms: u64, shown: Option<&Read>) -> Option<(Read, Option<Need>)> {
        let mut due: Vec<(bool, u64, Need)> = Vec::new();
        for need in Need::ALL {
            let kept = self.kept(need);
            let is_first = kept.began_ms.is_none();
            if kept.due_ms() <= now_ms && (need != Need::Shown || shown.is_some()) {
                due.push((!is_first, kept.due_ms(), need));
            }
        }
        // What is due longest goes first, and what was never read before that.
        let (is_again, _, need) = due.into_iter().min_by_key(|(again, due_ms, _)| (*again, *due_ms))?;
        if is_again && self.last_ms.is_some_and(|last| now_ms < last + GAP_MS) {
            return None;
        }
        let read = match need {
            Need::Overview => Read::Overview,
            Need::Series => Read::Series,
            Need::Shown => shown?.clone(),
        };
        Some((read, Some(need)))
    }

    /// A read has ended; false if it is not the one that runs, or if its answer may be outdated. After a failure nothing that was asked for is read for a
    /// while: a page that cannot be read is asked for again and again.
    pub fn ended(&mut self, read: &Read, now_ms: u64, failed: bool) -> bool {
        let Some((_, need)) = self.running.take_if(|(running, _)| running == read) else { return false };
        if failed {
            self.asks_from_ms = now_ms + ASKS_REST_MS;
        }
        if std::mem::take(&mut self.is_outdated) {
            if need.is_none() {
                self.asked.push_front(read.clone());
            }
            return false;
        }
        let took_ms = now_ms.saturating_sub(self.running_since_ms);
        if let Some(need) = need {
            self.kept(need).took_ms = took_ms;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_never_read_and_what_was_asked_for_does_not_wait() {
        let mut refresh = Refresh::default();
        let shown = Read::Queues;
        for expected in [Read::Queues, Read::Overview, Read::Series] {
            assert_eq!(refresh.next(0, Some(&shown)), Some(expected.clone()));
            assert_eq!(refresh.next(0, Some(&shown)), None, "one at a time");
            assert!(refresh.ended(&expected, 0, false));
            assert!(!refresh.ended(&expected, 0, false));
        }
        assert_eq!(refresh.next(1, Some(&shown)), None);
        refresh.ask(Read::LogTask(1));
        assert_eq!(refresh.next(1, Some(&shown)), Some(Read::LogTask(1)));
        refresh.ended(&Read::LogTask(1), 2, false);
        refresh.show(GAP_MS, 500);
        assert_eq!(refresh.next(2, Some(&Read::Workers)), Some(Read::Workers));
        refresh.ended(&Read::Workers, 3, false);
        assert_eq!((refresh.next(501, Some(&shown)), refresh.next(502, Some(&shown))), (None, Some(shown)));
    }

    #[test]
    fn an_answer_of_before_a_deed_is_not_shown() {
        let mut refresh = Refresh::default();
        assert_eq!(refresh.next(0, Some(&Read::Workers)), Some(Read::Workers));
        refresh.outdated();
        assert!(!refresh.ended(&Read::Workers, 1, false));
        refresh.ask(Read::LogTask(1));
        assert_eq!(refresh.next(2, Some(&Read::Workers)), Some(Read::LogTask(1)));
        refresh.outdated();
        assert!(!refresh.ended(&Read::LogTask(1), 3, false));
        assert_eq!(refresh.next(4, Some(&Read::Workers)), Some(Read::LogTask(1)), "asked for again");
        assert!(refresh.ended(&Read::LogTask(1), 5, false));
        let later = GAP_MS + 1;
        let reads: Vec<_> = (0..3)
            .filter_map(|n| {
                let read = refresh.next(later * (n + 1), Some(&Read::Workers))?;
                assert!(refresh.ended(&read, later * (n + 1), false));
                Some(read)
            })
            .collect();
        assert!(reads.contains(&Read::Workers), "{reads:?}");
    }

    #[test]
    fn a_read_that_takes_long_is_made_less_often() {
        let mut refresh = Refresh::default();
        let (mut begun, mut running) = (Vec::new(), None::<(Read, u64)>);
        for now_ms in 0..10_000 {
            refresh.changed(Need::Shown);
            // All take 100 ms.
            if let Some((read, _)) = running.take_if(|(_, since_ms)| *since_ms + 100 <= now_ms) {
                refresh.ended(&read, now_ms, false);
            }
            if let Some(read) = refresh.next(now_ms, Some(&Read::Workers)) {
                begun.extend((read == Read::Workers).then_some(now_ms));
                running = Some((read, now_ms));
            }
        }
        assert!((8..=12).contains(&begun.len()), "{begun:?}");
    }

    proptest! {
        #[test]
        fn at_most_four_re_reads_a_second_and_one_at_a_time(steps in prop::collection::vec((0_u64..200, 0_u8..4, 0_u64..60), 1..300)) {
            let mut refresh = Refresh::default();
            let (mut now_ms, mut begun, mut running) = (0, Vec::new(), None::<(Read, u64)>);
            for (passed_ms, what, takes_ms) in steps {
                now_ms += passed_ms;
                match what {
                    0 => refresh.changed(Need::Overview),
                    1 => refresh.missed(),
                    _ => refresh.changed(Need::Shown),
                }
                if let Some((read, _)) = running.take_if(|(_, until_ms)| *until_ms <= now_ms) {
                    refresh.ended(&read, now_ms, false);
                }
                if let Some(read) = refresh.next(now_ms, Some(&Read::Queues)) {
                    prop_assert!(running.is_none());
                    begun.push(now_ms);
                    running = Some((read, now_ms + takes_ms));
                }
            }
            // The first three are no re-reads.
            let again = begun.get(3..).unwrap_or_default();
            prop_assert!(again.windows(2).all(|pair| pair[1] - pair[0] >= GAP_MS), "{:?}", again);
        }
    }
}
