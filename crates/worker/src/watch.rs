//! A watchdog over the keeper, with its lease as the deadline. A keeper ends its tasks when its lease runs
//! out, because the server may book them elsewhere from then on. A keeper that is stopped cannot do that, so
//! the agent kills it, and the kernel ends everything under it. The agent calls [`Watch::look`] every
//! [`LOOK_EVERY`]; nothing here sends a message or a signal.

use parking_lot::Mutex;
use std::time::Duration;

/// Interval between two looks.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long before the end of its lease the keeper is asked whether it is alive, in nanoseconds.
const ASK_BEFORE_NS: u64 = 2_000_000_000;
/// How long the keeper has for that answer, in nanoseconds.
const ANSWER_NS: u64 = 1_000_000_000;
/// How long a question may be open before it is logged, in nanoseconds.
const SILENT_NS: u64 = 10_000_000_000;

/// The agent's knowledge of the current keeper. Times are nanoseconds since boot.
#[derive(Default)]
pub struct Watch(Mutex<WatchState>);

#[derive(Clone, Copy, Default, Debug)]
struct WatchState {
    /// End of the lease; `None` is never.
    until: Option<u64>,
    /// When the oldest unanswered question was asked.
    asked: Option<u64>,
    /// Whether its silence was logged.
    said: bool,
}

/// The action that is due for a keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Nothing is due before the next look.
    Nothing,
    /// Ask it whether it is alive.
    Ask,
    /// Log that it has not answered for long.
    Say,
    /// Kill it: its lease is over, and it does not answer.
    End,
}

impl Watch {
    /// Notes a renewal of the lease. As in the keeper, an earlier end does not shorten the lease.
    pub fn leased(&self, until: Option<u64>) {
        let mut state = self.0.lock();
        state.until = match (state.until, until) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (_, now) => now,
        };
    }

    /// Notes a question that the keeper has to answer.
    pub fn asked(&self, now: u64) {
        self.0.lock().asked.get_or_insert(now);
    }

    /// Notes any message of the keeper.
    pub fn heard(&self) {
        let mut state = self.0.lock();
        (state.asked, state.said) = (None, false);
    }

    /// The action that is due now.
    pub fn look(&self, now: u64) -> Due {
        let mut state = self.0.lock();
        let due = state.due(now);
        match due {
            Due::Say => state.said = true,
            // The killed keeper's lease is forgotten. The next message is of another keeper.
            Due::End => *state = WatchState::default(),
            Due::Nothing | Due::Ask => {}
        }
        due
    }
}

impl WatchState {
    fn due(&self, now: u64) -> Due {
        match (self.until, self.asked) {
            (Some(until), Some(asked)) if now >= until && now >= asked + ANSWER_NS => Due::End,
            (_, Some(asked)) if now >= asked + SILENT_NS && !self.said => Due::Say,
            (Some(until), None) if now < until && now + ASK_BEFORE_NS >= until => Due::Ask,
            _ => Due::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_keeper_that_answers_is_left_alone_however_its_lease_ends() {
        let watch = Watch::default();
        watch.leased(Some(300 * S));
        assert_eq!(watch.look(297 * S), Due::Nothing);
        assert_eq!(watch.look(298 * S), Due::Ask);
        watch.asked(298 * S);
        watch.heard();
        assert_eq!([299, 301, 900].map(|s| watch.look(s * S)), [Due::Ask, Due::Nothing, Due::Nothing]);
    }

    #[test]
    fn one_that_stands_still_ends_with_its_lease() {
        let watch = Watch::default();
        watch.leased(Some(300 * S));
        watch.asked(20 * S);
        assert_eq!(watch.look(29 * S), Due::Nothing);
        assert_eq!(watch.look(30 * S), Due::Say);
        assert_eq!(watch.look(299 * S), Due::Nothing, "its tasks may run until then");
        assert_eq!(watch.look(300 * S), Due::End);
        assert_eq!(watch.look(301 * S), Due::Nothing, "once");
    }

    #[test]
    fn a_question_at_the_last_moment_has_its_time() {
        let watch = Watch::default();
        watch.leased(Some(300 * S));
        watch.asked(299 * S + S / 2);
        assert_eq!(watch.look(300 * S), Due::Nothing);
        assert_eq!(watch.look(300 * S + S / 2), Due::End);
    }

    #[test]
    fn without_a_lease_its_silence_is_only_said() {
        let watch = Watch::default();
        watch.asked(S);
        assert_eq!(
            [5, 11, 12, 1_000].map(|s| watch.look(s * S)),
            [Due::Nothing, Due::Say, Due::Nothing, Due::Nothing]
        );
        watch.heard();
        watch.leased(Some(9 * S));
        watch.leased(Some(5 * S));
        assert_eq!(watch.look(8 * S), Due::Ask, "an earlier end counts for nothing");
        watch.leased(None);
        assert_eq!(watch.look(8 * S), Due::Nothing);
    }
}
