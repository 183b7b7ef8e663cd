//! The rotation in which a worker tries the servers of its farm. One server owns the scheduling and takes the worker's
//! stream. The others refuse it, and may name the owner.
//!
//! 1. Each server is tried once in a circle, and there is no pause inside a circle.
//! 2. Only servers that the operator listed are tried, because a worker shows its token only to these. A server's word
//!    on the owner only changes their order.
//! 3. Between circles without success the worker pauses, twice as long each time. While servers answer and none owns the
//!    scheduling yet, the pauses stay short.

use std::collections::VecDeque;
use std::time::Duration;
use windlass_api::Address;

/// Bounds of the pause before another circle. It doubles from one to the other.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The longest pause while one of several servers is about to take over.
const OWNERLESS_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause after all servers refused this worker, because an operator has to change something first.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// A stream that lasted for this long was a success.
const LASTING: Duration = PAUSE_MAX;
/// Time that a server has to accept a connection, to answer, and then to send its greeting.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same in the first circle of several servers. It doubles with each circle, because servers that all workers
/// reach at once are slow, and not gone.
const PATIENCE_AMONG: Duration = Duration::from_secs(2);

/// How a stream ended, or why there was none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The server does not let this worker in.
    Refused,
    /// The server lives, and does not own the scheduling.
    NotOwner,
    /// The server is not reached, or the connection broke.
    Lost,
}

/// The server that is tried now, and those that follow.
#[derive(Debug)]
pub struct ServerRotation {
    /// `HOST:PORT` of each, in the operator's order.
    listed: Vec<String>,
    now: usize,
    /// The rest of the circle.
    next: VecDeque<usize>,
    /// The owner, as the last server named it.
    owner: Option<usize>,
    /// The endings of this circle's attempts.
    endings: Vec<Ending>,
    pause: Duration,
    patience: Duration,
}

impl ServerRotation {
    /// All servers, by their addresses. There is at least one.
    pub fn new(urls: &[String]) -> Self {
        let listed: Vec<String> = urls.iter().map(|url| name_of(url)).collect();
        let patience = if listed.len() > 1 { PATIENCE_AMONG } else { PATIENCE };
        ServerRotation {
            now: 0,
            next: (1..listed.len()).collect(),
            listed,
            owner: None,
            endings: Vec::new(),
            pause: PAUSE_MIN,
            patience,
        }
    }

    /// The place of the server that is tried now.
    pub fn now(&self) -> usize {
        self.now
    }

    /// How long it may take to answer.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The stream ended after that time, or there was none. `owner` is the address that the server gave for the owner's.
    /// Returns the pause before the next server is tried; `None` is none.
    pub fn ended(&mut self, how: Ending, owner: Option<&str>, lasted: Duration) -> Option<Duration> {
        let count = self.listed.len();
        if lasted > LASTING {
            (self.pause, self.owner) = (PAUSE_MIN, None);
            self.patience = if count > 1 { PATIENCE_AMONG } else { PATIENCE };
            self.endings.clear();
            self.next = (1..=count).map(|by| (self.now + by) % count).collect();
            if count == 1 {
                self.begin();
                return Some(self.pause);
            }
        } else {
            self.endings.push(how);
        }
        let said = owner.map(name_of);
        let listed = said.and_then(|said| self.listed.iter().position(|name| *name == said));
        if listed.is_some() {
            self.owner = listed;
        }
        if let Some(place) = self.next.iter().position(|server| Some(*server) == self.owner)
            && let Some(owner) = self.next.remove(place)
        {
            self.next.push_front(owner);
        }
        match self.next.pop_front() {
            Some(server) => {
                self.now = server;
                None
            }
            None => Some(self.go_around()),
        }
    }

    /// Ends a circle without success; returns the pause after it.
    fn go_around(&mut self) -> Duration {
        let several = self.listed.len() > 1;
        let mut pause = (self.pause * 2).min(PAUSE_MAX);
        if self.endings.iter().all(|ending| *ending == Ending::Refused) {
            pause = REFUSED_PAUSE;
        } else if several && self.endings.contains(&Ending::NotOwner) {
            pause = pause.min(OWNERLESS_PAUSE_MAX);
        }
        self.pause = pause;
        self.patience = (self.patience * 2).min(PATIENCE);
        self.begin();
        pause
    }

    /// Begins a circle: with the owner, if one was named, and then in the operator's order.
    fn begin(&mut self) {
        self.endings.clear();
        let owner = self.owner.take();
        let others = (0..self.listed.len()).filter(|server| Some(*server) != owner);
        self.next = owner.into_iter().chain(others).collect();
        self.now = self.next.pop_front().unwrap_or(0);
    }
}

/// By what two addresses of one server are recognized: the scheme may differ, or be left out.
fn name_of(address: &str) -> String {
    let address = Address::parse(address.trim());
    address.host_and_port().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHORT: Duration = Duration::from_millis(1);

    fn order(count: usize) -> ServerRotation {
        let urls: Vec<String> = (0..count).map(|n| format!("https://s{n}.example:7117")).collect();
        ServerRotation::new(&urls)
    }

    #[test]
    fn one_server_is_tried_again_with_pauses_that_double() {
        let mut order = order(1);
        let mut pause = |how, lasted| order.ended(how, None, lasted).map(|pause| pause.as_millis());
        assert_eq!(pause(Ending::Lost, SHORT), Some(200));
        assert_eq!(pause(Ending::Lost, SHORT), Some(400));
        assert_eq!(pause(Ending::NotOwner, SHORT), Some(800));
        assert_eq!(pause(Ending::Refused, SHORT), Some(10_000));
        assert_eq!(pause(Ending::Lost, SHORT), Some(5_000));
        assert_eq!(pause(Ending::Lost, Duration::from_secs(60)), Some(100), "a stream that lasted");
    }

    #[test]
    fn all_are_tried_at_once_and_the_pause_comes_after_the_circle() {
        let mut order = order(3);
        let mut seen = vec![order.now()];
        for _ in 0..2 {
            assert_eq!(order.ended(Ending::Lost, None, SHORT), None);
            seen.push(order.now());
        }
        assert_eq!(seen, [0, 1, 2]);
        assert_eq!(order.ended(Ending::Lost, None, SHORT), Some(PAUSE_MIN * 2));
        assert_eq!(order.now(), 0);
    }

    #[test]
    fn the_owner_that_a_server_names_is_tried_next() {
        let mut order = order(4);
        assert_eq!(order.ended(Ending::NotOwner, Some("s3.example:7117"), SHORT), None);
        assert_eq!(order.now(), 3);
        assert_eq!(order.ended(Ending::Lost, None, SHORT), None);
        assert_eq!(order.now(), 1, "the rest of the circle follows");
    }

    #[test]
    fn an_owner_that_was_tried_before_begins_the_next_circle() {
        let mut order = order(2);
        order.ended(Ending::NotOwner, None, SHORT);
        assert!(order.ended(Ending::NotOwner, Some("http://S1.example:7117/"), SHORT).is_some());
        assert_eq!(order.now(), 1);
        order.ended(Ending::Lost, None, SHORT);
        assert_eq!(order.now(), 0);
    }

    #[test]
    fn while_none_is_the_owner_pauses_stay_short() {
        let mut order = order(2);
        for _ in 0..10 {
            assert_eq!(order.ended(Ending::NotOwner, None, SHORT), None);
            assert!(order.ended(Ending::Lost, None, SHORT).unwrap() <= OWNERLESS_PAUSE_MAX);
        }
    }

    #[test]
    fn only_if_all_refuse_an_operator_is_waited_for() {
        let mut order = order(2);
        order.ended(Ending::Refused, None, SHORT);
        assert!(order.ended(Ending::Lost, None, SHORT).unwrap() < REFUSED_PAUSE);
        order.ended(Ending::Refused, None, SHORT);
        assert_eq!(order.ended(Ending::Refused, None, SHORT), Some(REFUSED_PAUSE));
    }

    #[test]
    fn a_stream_that_lasted_is_followed_by_a_whole_circle_that_ends_with_its_server() {
        let mut order = order(3);
        order.ended(Ending::Lost, None, SHORT);
        assert_eq!(order.now(), 1);
        assert_eq!(order.ended(Ending::Lost, None, Duration::from_secs(60)), None);
        let mut seen = vec![order.now()];
        while order.ended(Ending::Lost, None, SHORT).is_none() {
            seen.push(order.now());
        }
        assert_eq!(seen, [2, 0, 1]);
    }

    #[test]
    fn servers_have_more_time_in_later_circles() {
        let mut order = order(2);
        let mut had = Vec::new();
        for _ in 0..4 {
            had.push(order.patience().as_secs());
            while order.ended(Ending::Lost, None, SHORT).is_none() {}
        }
        assert_eq!(had, [2, 4, 8, 10]);
    }

    proptest! {
        /// Whatever servers say, each listed one is tried once in a circle, and none besides.
        #[test]
        fn a_circle_tries_each_listed_server_once(
            count in 1usize..6,
            said in prop::collection::vec((0u8..3, prop::option::of("(https?://)?s[0-9].example:7117|evil:1"), any::<bool>()), 1..60),
        ) {
            let mut order = order(count);
            let mut circle = vec![order.now()];
            for (how, owner, lasting) in said {
                let how = [Ending::Refused, Ending::NotOwner, Ending::Lost][usize::from(how)];
                let lasted = if lasting { Duration::from_secs(60) } else { SHORT };
                let pause = order.ended(how, owner.as_deref(), lasted);
                prop_assert!(order.now() < count);
                prop_assert!(pause.is_none_or(|pause| pause >= PAUSE_MIN && pause <= REFUSED_PAUSE));
                if lasting {
                    circle.clear();
                }
                if pause.is_some() && !lasting {
                    circle.sort_unstable();
                    prop_assert_eq!(&circle, &(0..count).collect::<Vec<_>>());
                }
                if pause.is_some() {
                    circle.clear();
                }
                prop_assert!(!circle.contains(&order.now()));
                circle.push(order.now());
            }
        }
    }
}
