//! Which user of this machine a submitter's tasks run as, with a cache over the user database. The database
//! may be remote and may never answer, so it is asked on another thread, not on the one that reads the
//! server's stream. `remote` asks before it passes a body to the keeper. A failed lookup never replaces an
//! earlier success.

use crate::users::{BadUser, RunAs, UserMap};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that the user database has to answer.
const LOOK_UP_MAX: Duration = Duration::from_secs(2);
/// How long a lookup counts that found a user, that found none, and that failed.
const FOUND: Duration = Duration::from_secs(600);
const ABSENT: Duration = Duration::from_secs(60);
const FAILED: Duration = Duration::from_secs(10);
/// Submitters that are remembered.
const NAMES_MAX: usize = 10_000;

/// Result of a lookup; `Ok(None)` is the worker's own user.
pub type Resolved = Result<Option<RunAs>, BadUser>;

/// The cache of lookups.
pub struct Names {
    map: Arc<UserMap>,
    known: BTreeMap<String, (Instant, Resolved)>,
}

impl Names {
    /// A cache without entries, for a map of users.
    pub fn new(map: UserMap) -> Names {
        Names { map: Arc::new(map), known: BTreeMap::new() }
    }

    /// The cached result for a submitter; `None` if it has to be looked up first.
    pub fn get(&self, submitter: &str, now: Instant) -> Option<Resolved> {
        if self.map.is_empty() {
            return Some(Ok(None));
        }
        self.known.get(submitter).filter(|(until, _)| now < *until).map(|(_, resolved)| resolved.clone())
    }

    /// The result for a submitter, who is looked up if that is not cached. It waits for at most `LOOK_UP_MAX`.
    pub fn resolve(&mut self, submitter: &str) -> Resolved {
        if let Some(known) = self.get(submitter, Instant::now()) {
            return known;
        }
        let (map, asked) = (self.map.clone(), submitter.to_owned());
        let (tell, told) = std::sync::mpsc::channel();
        // Nobody listens any more where it took too long.
        std::thread::spawn(move || _ = tell.send(map.resolve(&asked)));
        let late = |_| Err(failed(submitter, "the user database does not answer"));
        let resolved = told.recv_timeout(LOOK_UP_MAX).unwrap_or_else(late);
        let now = Instant::now();
        self.keep(submitter.to_owned(), resolved.clone(), now);
        self.get(submitter, now).unwrap_or(resolved)
    }

    /// Looks a submitter up on a blocking thread, for at most `LOOK_UP_MAX`.
    pub fn look_up(&self, submitter: String) -> impl Future<Output = (String, Resolved)> + use<> {
        let (map, asked) = (self.map.clone(), submitter.clone());
        async move {
            let looked = tokio::task::spawn_blocking(move || map.resolve(&asked));
            let resolved = match tokio::time::timeout(LOOK_UP_MAX, looked).await {
                Ok(Ok(resolved)) => resolved,
                Ok(Err(_)) => Err(failed(&submitter, "it was not looked up")),
                Err(_) => Err(failed(&submitter, "the user database does not answer")),
            };
            (submitter, resolved)
        }
    }

    /// Caches a result. If the user database failed, its earlier answer stays valid.
    pub fn keep(&mut self, submitter: String, resolved: Resolved, now: Instant) {
        let before = self.known.remove(&submitter).map(|(_, before)| before);
        let (lasts, resolved) = match (resolved, before) {
            (Err(BadUser::LookUp { .. }), Some(Ok(before))) => (FAILED, Ok(before)),
            (Err(failed @ BadUser::LookUp { .. }), _) => (FAILED, Err(failed)),
            (Err(absent), _) => (ABSENT, Err(absent)),
            (Ok(found), _) => (FOUND, Ok(found)),
        };
        if self.known.len() >= NAMES_MAX {
            self.known.retain(|_, (until, _)| now < *until);
            if self.known.len() >= NAMES_MAX {
                self.known.clear();
            }
        }
        self.known.insert(submitter, (now + lasts, resolved));
    }
}

fn failed(submitter: &str, why: &str) -> BadUser {
    BadUser::LookUp { user: submitter.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(UserMap::for_test(&["ann=nobody"]))
    }

    fn failed() -> Resolved {
        Err(super::failed("ann", "sssd"))
    }

    #[test]
    fn who_is_asked_for_is_looked_up_and_known_from_then_on() {
        let mut names = names();
        assert_eq!(names.resolve("ann").unwrap().unwrap().name, "nobody");
        assert!(names.get("ann", Instant::now()).is_some());
        assert_eq!(names.resolve("bob"), Err(BadUser::NotMapped("bob".to_owned())));
    }

    #[test]
    fn where_nobody_is_mapped_nothing_is_looked_up() {
        assert_eq!(Names::new(UserMap::default()).get("ann", Instant::now()), Some(Ok(None)));
    }

    #[tokio::test]
    async fn what_was_found_counts_for_a_while_and_longer_where_the_database_fails() {
        let (mut names, now) = (names(), Instant::now());
        assert_eq!(names.get("ann", now), None);
        let (submitter, found) = names.look_up("ann".to_owned()).await;
        assert_eq!(found.as_ref().unwrap().as_ref().unwrap().name, "nobody");
        names.keep(submitter, found.clone(), now);
        assert_eq!(names.get("ann", now + FOUND / 2), Some(found.clone()));
        assert_eq!(names.get("ann", now + FOUND), None);
        names.keep("ann".to_owned(), failed(), now + FOUND);
        assert_eq!(names.get("ann", now + FOUND), Some(found));
        assert_eq!(names.get("ann", now + FOUND + FAILED), None);
        let (_, other) = names.look_up("bob".to_owned()).await;
        assert_eq!(other, Err(BadUser::NotMapped("bob".to_owned())));
        names.keep("bob".to_owned(), other.clone(), now);
        assert_eq!(names.get("bob", now), Some(other));
        names.keep("cy".to_owned(), failed(), now);
        assert_eq!(names.get("cy", now), Some(failed()));
        assert_eq!(names.get("cy", now + FAILED), None);
    }
}
