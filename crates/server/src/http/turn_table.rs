//! The turns of commands on clients' machines: those that wait for their room and those that have it. Each lasts as long
//! as its connection. Nothing of it is kept: after a restart the clients come again, and say that their commands run.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use windlass_api::{ClientTurn, LimitTurn, TurnState};
use windlass_core::ids::AllocId;
use windlass_core::score::history::Signature;
use windlass_core::{RequestId, Time};

/// Turns of all users at a time, and of one.
const TURNS_MAX: usize = 50_000;
const TURNS_OF_USER_MAX: usize = 4_096;
/// How long after its start a server books what clients say that they hold. Later they wait for it like others: without
/// this bound a client could pass by all that wait, by saying so.
const TAKE_UP_FOR: Duration = Duration::from_secs(600);
/// How long after its start a server without workers waits for one.
const FIRST_WORKER_MAX: Duration = Duration::from_secs(10);

/// A turn that waits or runs.
#[derive(Clone, Debug)]
pub(super) struct OpenTurn {
    pub user: String,
    pub queue: String,
    pub machine: String,
    pub worktree: Option<String>,
    pub command: Option<String>,
    /// What is learned of by its end.
    pub signatures: Vec<Signature>,
    /// Limits of which it holds one each while it runs.
    pub limits: BTreeSet<String>,
    /// Cpus that it asks for, in hundredths.
    pub cpu: u32,
    /// Since when it waits, or runs.
    pub since: Time,
    pub stands: Stands,
}

/// Where a turn stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stands {
    /// It waits; the engine knows it by this request, once that has one.
    Waits(Option<RequestId>),
    /// It has this place, on the worker of that name.
    Runs(AllocId, String),
}

/// Why there is no room for a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum TableFull {
    #[error("{TURNS_OF_USER_MAX} turns of this user wait or run, and no more may")]
    OfUser,
    #[error("{TURNS_MAX} turns wait or run, and no more may")]
    OfAll,
}

/// All turns, by number.
pub(super) struct TurnTable {
    started: Instant,
    inside: Mutex<Inside>,
}

struct Inside {
    next: u64,
    all: BTreeMap<u64, OpenTurn>,
    of_users: BTreeMap<String, usize>,
}

impl TurnTable {
    /// No turns yet, on a server that starts `now`. No number is one of an earlier start.
    pub fn new(now: Time) -> TurnTable {
        let inside = Inside { next: now.as_ms().max(1), all: BTreeMap::new(), of_users: BTreeMap::new() };
        TurnTable { started: Instant::now(), inside: Mutex::new(inside) }
    }

    /// Adds a turn, and returns its number.
    ///
    /// # Errors
    ///
    /// There are as many as may be.
    pub fn add(&self, turn: OpenTurn) -> Result<u64, TableFull> {
        let mut inside = self.inside.lock();
        if inside.all.len() >= TURNS_MAX {
            return Err(TableFull::OfAll);
        }
        let of_user = inside.of_users.entry(turn.user.clone()).or_default();
        if *of_user >= TURNS_OF_USER_MAX {
            return Err(TableFull::OfUser);
        }
        *of_user += 1;
        let number = inside.next;
        inside.next += 1;
        inside.all.insert(number, turn);
        Ok(number)
    }

    /// A turn stands elsewhere from now on.
    pub fn stands(&self, number: u64, stands: Stands, now: Time) {
        if let Some(turn) = self.inside.lock().all.get_mut(&number) {
            if matches!((&turn.stands, &stands), (Stands::Waits(_), Stands::Runs(..))) {
                turn.since = now;
            }
            turn.stands = stands;
        }
    }

    /// A turn is over. Returns it, if it was not taken out before.
    pub fn remove(&self, number: u64) -> Option<OpenTurn> {
        let mut inside = self.inside.lock();
        let turn = inside.all.remove(&number)?;
        if let Some(of_user) = inside.of_users.get_mut(&turn.user) {
            *of_user -= 1;
            if *of_user == 0 {
                inside.of_users.remove(&turn.user);
            }
        }
        Some(turn)
    }

    /// A turn by its number.
    pub fn get(&self, number: u64) -> Option<OpenTurn> {
        self.inside.lock().all.get(&number).cloned()
    }

    /// All turns, by number.
    pub fn all(&self) -> Vec<(u64, OpenTurn)> {
        self.inside.lock().all.iter().map(|(number, turn)| (*number, turn.clone())).collect()
    }

    /// The first turns that hold a limit, by number.
    pub fn holding(&self, limit: &str, max: usize) -> Vec<LimitTurn> {
        let inside = self.inside.lock();
        let held = inside.all.iter().filter_map(|(number, turn)| {
            let Stands::Runs(_, worker) = &turn.stands else { return None };
            let (user, worker) = (turn.user.clone(), worker.clone());
            turn.limits.contains(limit).then_some(LimitTurn { turn: *number, user, worker })
        });
        held.take(max).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inside.lock().all.len()
    }

    /// Until when a server without workers waits for one: the worker of a user's own server starts with it.
    pub fn first_worker_by(&self) -> Instant {
        self.started + FIRST_WORKER_MAX
    }

    /// True while clients may say what they held before the server was started.
    pub fn takes_up(&self) -> bool {
        self.started.elapsed() < TAKE_UP_FOR
    }
}

impl OpenTurn {
    /// The turn as its user reads it, without what the engine knows of it.
    pub fn view(&self, number: u64) -> ClientTurn {
        let (state, worker) = match &self.stands {
            Stands::Waits(_) => (TurnState::Waits, None),
            Stands::Runs(_, worker) => (TurnState::Runs, Some(worker.clone())),
        };
        ClientTurn {
            turn: number,
            state,
            user: self.user.clone(),
            queue: self.queue.clone(),
            machine: self.machine.clone(),
            worktree: self.worktree.clone(),
            command: self.command.clone(),
            since_ms: self.since.as_ms(),
            cpus: f64::from(self.cpu) / 100.0,
            memory: None,
            held_memory: None,
            worker,
            why: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use windlass_core::time::NS_PER_MS;

    fn at(ms: u64) -> Time {
        Time(ms * NS_PER_MS)
    }

    fn turn(user: &str) -> OpenTurn {
        OpenTurn {
            user: user.to_owned(),
            queue: user.to_owned(),
            machine: "box".to_owned(),
            worktree: None,
            command: None,
            signatures: Vec::new(),
            limits: ["link".to_owned()].into(),
            cpu: 100,
            since: at(5),
            stands: Stands::Waits(None),
        }
    }

    #[test]
    fn a_user_has_so_many_turns_and_no_more() {
        let table = TurnTable::new(at(1));
        let first = table.add(turn("ann")).unwrap();
        for _ in 1..TURNS_OF_USER_MAX {
            table.add(turn("ann")).unwrap();
        }
        assert_eq!(table.add(turn("ann")), Err(TableFull::OfUser));
        assert!(table.add(turn("bob")).is_ok());
        assert!(table.remove(first).is_some() && table.remove(first).is_none());
        assert!(table.add(turn("ann")).is_ok());
    }

    #[test]
    fn a_turn_runs_since_it_began_to() {
        let table = TurnTable::new(at(1));
        let number = table.add(turn("ann")).unwrap();
        table.stands(number, Stands::Waits(Some(RequestId(7))), at(6));
        assert_eq!(table.get(number).unwrap().view(number).since_ms, 5);
        let runs = Stands::Runs(AllocId(3), "w".to_owned());
        table.stands(number, runs.clone(), at(9));
        let shown = table.get(number).unwrap().view(number);
        assert_eq!((shown.since_ms, shown.state, shown.worker.as_deref()), (9, TurnState::Runs, Some("w")));
        let held = |limit| table.holding(limit, 9).into_iter().map(|held| held.turn).collect::<Vec<u64>>();
        assert_eq!((held("link"), held("other")), (vec![number], Vec::new()));
        // It was booked again.
        table.stands(number, runs, at(20));
        assert_eq!(table.get(number).unwrap().since, at(9));
    }

    proptest! {
        /// Whatever comes and goes, each user is counted by the turns that are there, and nothing stays.
        #[test]
        fn users_are_counted_by_their_turns(steps in vec((0..3_usize, any::<bool>()), 0..60)) {
            let table = TurnTable::new(at(1));
            let mut open: Vec<u64> = Vec::new();
            for (user, comes) in steps {
                if comes {
                    open.push(table.add(turn(["ann", "bob", "eve"][user])).unwrap());
                } else if let Some(number) = open.pop() {
                    prop_assert!(table.remove(number).is_some());
                }
                let counted: usize = table.inside.lock().of_users.values().sum();
                prop_assert_eq!((table.len(), counted), (open.len(), open.len()));
            }
            open.into_iter().for_each(|number| _ = table.remove(number));
            prop_assert!(table.inside.lock().of_users.is_empty());
        }
    }
}
