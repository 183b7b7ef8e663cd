//! What callers may do with the cache.

use crate::auth::{Caller, Role};
use windlass_api::CacheRight;

/// What a caller may do. Each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum CacheAccess {
    /// Neither reads nor writes.
    Nothing,
    /// Read blobs and results.
    Read,
    /// Also upload blobs, which nobody can falsify: their names are their hashes.
    Upload,
    /// Also write results of actions and values of keys, which readers take for true.
    Write,
}

impl CacheAccess {
    /// `users_write`: users write results without a right of their tokens.
    pub fn of(caller: &Caller, users_write: bool) -> CacheAccess {
        match (caller.role, caller.rights.cache) {
            (Role::Admin, _) | (Role::User, Some(CacheRight::Write)) => CacheAccess::Write,
            (Role::User | Role::Viewer, Some(CacheRight::Read)) => CacheAccess::Read,
            (Role::User, None) if users_write => CacheAccess::Write,
            (Role::User, None) => CacheAccess::Upload,
            (Role::Viewer | Role::Submitter | Role::Worker, _) => CacheAccess::Nothing,
        }
    }

    /// In words, behind "may".
    pub fn as_str(self) -> &'static str {
        match self {
            CacheAccess::Nothing => "not use the cache",
            CacheAccess::Read => "read the cache",
            CacheAccess::Upload => "read the cache and upload files",
            CacheAccess::Write => "write results to the cache",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Rights;

    #[test]
    fn each_role_has_its_part_of_the_cache() {
        let of = |role, cache, users_write| {
            let rights = Rights { cache, ..Rights::default() };
            let caller = Caller { user: "ann".to_owned(), role, worker: None, token: None, rights };
            CacheAccess::of(&caller, users_write)
        };
        let (read, write) = (Some(CacheRight::Read), Some(CacheRight::Write));
        assert_eq!(of(Role::Admin, None, false), CacheAccess::Write);
        assert_eq!(of(Role::User, None, false), CacheAccess::Upload);
        assert_eq!(of(Role::User, None, true), CacheAccess::Write);
        assert_eq!(of(Role::User, write, false), CacheAccess::Write);
        assert_eq!(of(Role::User, read, true), CacheAccess::Read, "a token may have less than its role");
        assert_eq!(of(Role::Viewer, read, false), CacheAccess::Read);
        for role in [Role::Viewer, Role::Submitter, Role::Worker] {
            assert_eq!(of(role, None, true), CacheAccess::Nothing, "{role:?}");
        }
    }
}
