//! Sessions of browsers, and codes that make one.
//!
//! Both are in memory only, and only their hashes are: they end with the server. A session or code is `ID_SECRET`, of
//! which the id is not secret.

use crate::caller::Right;
use crate::random::{NoRandom, hash_of_secret, random};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use subtle::ConstantTimeEq as _;
use windlass_core::Time;
use windlass_core::time::NS_PER_MS;

/// How long a session lasts.
pub(crate) const SESSION_MS: u64 = 12 * 3_600_000;
/// How long a code may be used.
pub(crate) const CODE_MS: u64 = 60_000;
/// Sessions at a time, and of one token. One more ends the oldest.
const SESSIONS_MAX: usize = 10_000;
const SESSIONS_OF_ONE_MAX: usize = 20;
/// Codes at a time, and for one token. One more ends the oldest.
const CODES_MAX: usize = 1_000;
const CODES_OF_ONE_MAX: usize = 8;
/// Random bytes of an id and of a secret.
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;
/// Bytes of a session or code as text.
pub(crate) const SHOWN_BYTES: usize = 2 * (ID_BYTES + SECRET_BYTES) + 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionInForce {
    /// Its id, which is not secret.
    pub id: String,
    pub right: Right,
    pub process_user: ProcessUser,
}

/// The user of this machine whose processes alone may show a session; `None`: any client that has it may show it.
pub(crate) type ProcessUser = Option<u32>;

/// Something that is shown, and stands for a right until it ends.
struct Ticket {
    hash: [u8; 32],
    right: Right,
    process_user: ProcessUser,
    /// Which was made first.
    number: u64,
    ends: Time,
    used: Time,
}

#[derive(Default)]
struct Tickets {
    by_id: BTreeMap<String, Ticket>,
    next: u64,
}

#[derive(Default)]
pub(crate) struct Sessions {
    sessions: Mutex<Tickets>,
    codes: Mutex<Tickets>,
}

impl Sessions {
    /// Makes a session, and says what the browser is to show.
    pub fn begin(&self, right: Right, process_user: ProcessUser, now: Time) -> Result<String, NoRandom> {
        let bounds = (SESSIONS_MAX, SESSIONS_OF_ONE_MAX);
        self.sessions.lock().make((right, process_user), now, SESSION_MS, bounds)
    }

    pub fn find(&self, shown: &str, now: Time) -> Option<SessionInForce> {
        let mut sessions = self.sessions.lock();
        let id = sessions.id_of(shown, now)?;
        let session = sessions.by_id.get_mut(&id)?;
        session.used = now;
        Some(SessionInForce { id, right: session.right.clone(), process_user: session.process_user })
    }

    /// True while the session of this id lets anybody in; counts as a use of it.
    pub fn is_in_force(&self, id: &str, now: Time) -> bool {
        let mut sessions = self.sessions.lock();
        let session = sessions.by_id.get_mut(id).filter(|session| session.ends > now);
        session.map(|session| session.used = now).is_some()
    }

    pub fn count(&self, now: Time) -> usize {
        self.sessions.lock().by_id.values().filter(|session| session.ends > now).count()
    }

    pub fn end(&self, id: &str) {
        self.sessions.lock().by_id.remove(id);
    }

    /// Makes a code that stands for the right once.
    pub fn make_code(&self, right: Right, now: Time) -> Result<String, NoRandom> {
        self.codes.lock().make((right, None), now, CODE_MS, (CODES_MAX, CODES_OF_ONE_MAX))
    }

    /// Takes a code, which is of no use from then on.
    pub fn redeem(&self, shown: &str, now: Time) -> Option<Right> {
        let mut codes = self.codes.lock();
        let id = codes.id_of(shown, now)?;
        codes.by_id.remove(&id).map(|code| code.right)
    }

    /// True if a browser signed in with the right of a user of the unix socket within the last `within_ms`, or may do so
    /// by a code.
    pub fn is_own_in_use(&self, now: Time, within_ms: u64) -> bool {
        let is_own = |ticket: &Ticket| !matches!(ticket.right, Right::Token(_)) && ticket.ends > now;
        let within_ns = within_ms * NS_PER_MS;
        self.codes.lock().by_id.values().any(is_own)
            || self
                .sessions
                .lock()
                .by_id
                .values()
                .any(|session| is_own(session) && now.since(session.used) < within_ns)
    }
}

impl Tickets {
    fn make(
        &mut self,
        (right, process_user): (Right, ProcessUser),
        now: Time,
        lasts_ms: u64,
        (max, of_one_max): (usize, usize),
    ) -> Result<String, NoRandom> {
        let (id, secret) = (random::<ID_BYTES>()?, random::<SECRET_BYTES>()?);
        self.by_id.retain(|_, ticket| ticket.ends > now);
        let of_one = self.by_id.values().filter(|ticket| ticket.right == right).count();
        if of_one >= of_one_max {
            self.drop_oldest(|ticket| ticket.right == right);
        }
        if self.by_id.len() >= max {
            self.drop_oldest(|_| true);
        }
        let number = self.next;
        self.next += 1;
        let ends = now.after(lasts_ms * NS_PER_MS);
        let shown = format!("{id}_{secret}");
        self.by_id.insert(
            id,
            Ticket { hash: hash_of_secret(&secret), right, process_user, number, ends, used: now },
        );
        Ok(shown)
    }

    fn drop_oldest(&mut self, of: impl Fn(&Ticket) -> bool) {
        let some = self.by_id.iter().filter(|(_, ticket)| of(ticket));
        if let Some(id) = some.min_by_key(|(_, ticket)| ticket.number).map(|(id, _)| id.clone()) {
            self.by_id.remove(&id);
        }
    }

    /// The id of what is shown, if its secret is the right one and its time is not over.
    fn id_of(&self, shown: &str, now: Time) -> Option<String> {
        if shown.len() != SHOWN_BYTES {
            return None;
        }
        let (id, secret) = shown.split_once('_')?;
        let ticket = self.by_id.get(id)?;
        let is_secret = bool::from(ticket.hash.ct_eq(&hash_of_secret(secret)));
        (is_secret && ticket.ends > now).then(|| id.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Time = Time(1_000 * NS_PER_MS);

    fn at(ms: u64) -> Time {
        START.after(ms * NS_PER_MS)
    }

    fn token(id: &str) -> Right {
        Right::Token(id.to_owned())
    }

    #[test]
    fn a_session_lasts_twelve_hours_or_until_it_is_ended() {
        let sessions = Sessions::default();
        let (one, two) = (
            sessions.begin(token("a"), Some(7), START).unwrap(),
            sessions.begin(Right::Own, None, START).unwrap(),
        );
        assert_eq!((one.len(), one == two), (SHOWN_BYTES, false));
        let found = sessions.find(&one, at(SESSION_MS - 1)).unwrap();
        assert_eq!((&found.right, found.process_user), (&token("a"), Some(7)));
        assert!(sessions.find(&one, at(SESSION_MS)).is_none());
        assert!(!sessions.is_in_force(&found.id, at(SESSION_MS)));
        let own = sessions.find(&two, at(1)).unwrap();
        assert!(sessions.is_in_force(&own.id, at(1)));
        sessions.end(&own.id);
        assert!(sessions.find(&two, at(1)).is_none() && !sessions.is_in_force(&own.id, at(1)));
        assert_eq!((sessions.count(at(1)), sessions.count(at(SESSION_MS))), (1, 0));
    }

    #[test]
    fn the_secret_is_what_counts() {
        let sessions = Sessions::default();
        let shown = sessions.begin(Right::Own, None, START).unwrap();
        let last = if shown.ends_with('0') { "1" } else { "0" };
        let forged = format!("{}{last}", &shown[..shown.len() - 1]);
        for wrong in [forged.as_str(), &shown[..shown.len() - 1], shown.split('_').next().unwrap(), "", "_"] {
            assert!(sessions.find(wrong, at(1)).is_none(), "{wrong}");
        }
        // A code does not stand for a session, nor a session for a code.
        let code = sessions.make_code(Right::Own, START).unwrap();
        assert!(sessions.find(&code, at(1)).is_none() && sessions.redeem(&shown, at(1)).is_none());
    }

    #[test]
    fn a_code_is_good_once_and_for_a_minute() {
        let sessions = Sessions::default();
        let code = |right| sessions.make_code(right, START).unwrap();
        let (once, late) = (code(token("a")), code(Right::Own));
        assert_eq!(sessions.redeem(&once, at(1)), Some(token("a")));
        assert_eq!(sessions.redeem(&once, at(2)), None);
        assert_eq!(sessions.redeem(&late, at(CODE_MS)), None);
    }

    #[test]
    fn one_token_s_sessions_and_codes_end_each_other_and_nobody_else_s() {
        let sessions = Sessions::default();
        let other = sessions.begin(token("b"), None, START).unwrap();
        let first = sessions.begin(token("a"), None, START).unwrap();
        let all: Vec<String> =
            (0..SESSIONS_OF_ONE_MAX).map(|_| sessions.begin(token("a"), None, START).unwrap()).collect();
        assert!(sessions.find(&first, at(1)).is_none());
        assert!(all.iter().chain([&other]).all(|shown| sessions.find(shown, at(1)).is_some()));
        let code = sessions.make_code(token("a"), START).unwrap();
        for _ in 0..CODES_OF_ONE_MAX {
            sessions.make_code(token("a"), START).unwrap();
        }
        assert_eq!(sessions.redeem(&code, at(1)), None);
        for n in 0..CODES_MAX {
            sessions.make_code(token(&n.to_string()), START).unwrap();
        }
        assert_eq!(sessions.codes.lock().by_id.len(), CODES_MAX);
        // What is over takes no room.
        sessions.make_code(Right::Own, at(CODE_MS)).unwrap();
        assert_eq!(sessions.codes.lock().by_id.len(), 1);
    }

    #[test]
    fn the_own_user_s_board_is_in_use_while_a_browser_looks() {
        let sessions = Sessions::default();
        sessions.begin(token("a"), None, START).unwrap();
        assert!(!sessions.is_own_in_use(at(1), 1_000));
        sessions.make_code(Right::Own, START).unwrap();
        assert!(
            sessions.is_own_in_use(at(CODE_MS - 1), 1_000) && !sessions.is_own_in_use(at(CODE_MS), 1_000)
        );
        let shown = sessions.begin(Right::Own, None, START).unwrap();
        assert!(sessions.is_own_in_use(at(999), 1_000) && !sessions.is_own_in_use(at(CODE_MS), 1_000));
        sessions.find(&shown, at(CODE_MS)).unwrap();
        assert!(sessions.is_own_in_use(at(CODE_MS + 999), 1_000));
    }

    proptest! {
        #[test]
        fn garbage_is_neither_session_nor_code(shown in "\\PC{0,100}") {
            let sessions = Sessions::default();
            sessions.begin(Right::Own, None, START).unwrap();
            sessions.make_code(Right::Own, START).unwrap();
            prop_assert!(sessions.find(&shown, at(1)).is_none() && sessions.redeem(&shown, at(1)).is_none());
        }
    }
}
