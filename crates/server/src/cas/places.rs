//! What may be under way at a time, of all users and of one, and what one may upload in a day.
//!
//! With all places taken the cache holds at most [`MEMORY_BYTES_MAX`] of memory, however slowly clients send and read.

use super::trouble::CacheTrouble;
use crate::auth::{Caller, Role};
use crate::user_budget::{UserBudget, UserShare};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Blobs that come at a time, of all users and of one. Others wait in line.
const UPLOADS_MAX: usize = 32;
const UPLOADS_OF_USER_MAX: usize = 24;
/// Blobs that are sent at a time.
const DOWNLOADS_MAX: usize = 256;
const DOWNLOADS_OF_USER_MAX: usize = 192;
/// Bytes of requests and answers that are held whole: of small ones, and of large ones.
const SMALL_BYTES_MAX: usize = 16 << 20;
const SMALL_BYTES_OF_USER_MAX: usize = 8 << 20;
const LARGE_BYTES_MAX: usize = 96 << 20;
const LARGE_BYTES_OF_USER_MAX: usize = 64 << 20;

/// Bytes of a message that is small.
pub(super) const SMALL_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a message of gRPC, without streams.
pub(super) const MESSAGE_BYTES_MAX: usize = 5 << 20;
/// Bytes of one message of an upload, which clients of gRPC believe to be the most that is taken.
pub(super) const WRITE_MESSAGE_BYTES_MAX: usize = (4 << 20) + (64 << 10);
/// Bytes of a part of a blob, which is read or written at once.
pub(crate) const PART_BYTES: usize = 128 << 10;
/// What a large message may take: it comes, and what is made of it.
pub(super) const LARGE_SHARE_BYTES: usize = 2 * MESSAGE_BYTES_MAX;

/// An upload has a message, the part that is filled and the part that is written, and the window of a compressed one.
const UPLOAD_BYTES_MAX: usize = WRITE_MESSAGE_BYTES_MAX + 2 * PART_BYTES + super::packing::WINDOW_BYTES_MAX;
/// A download has a part that is sent and one that waits, each perhaps beside itself compressed.
const DOWNLOAD_BYTES_MAX: usize = 4 * PART_BYTES;
/// Bytes of memory that requests to the cache hold at most.
pub(super) const MEMORY_BYTES_MAX: usize = UPLOADS_MAX * UPLOAD_BYTES_MAX
    + DOWNLOADS_MAX * DOWNLOAD_BYTES_MAX
    + SMALL_BYTES_MAX
    + LARGE_BYTES_MAX
    + super::results::TREES_BYTES_MAX;

const _: () = assert!(MEMORY_BYTES_MAX <= 640 << 20);

pub(crate) struct CachePlaces {
    uploads: UserBudget,
    downloads: UserBudget,
    small: UserBudget,
    large: UserBudget,
}

impl Default for CachePlaces {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        CachePlaces {
            uploads: UserBudget::new(UPLOADS_MAX, UPLOADS_OF_USER_MAX, 1),
            downloads: UserBudget::new(DOWNLOADS_MAX, DOWNLOADS_OF_USER_MAX, 1),
            small: UserBudget::new(SMALL_BYTES_MAX, SMALL_BYTES_OF_USER_MAX, SMALL_MESSAGE_BYTES_MAX),
            large: UserBudget::new(LARGE_BYTES_MAX, LARGE_BYTES_OF_USER_MAX, MIB),
        }
    }
}

impl CachePlaces {
    pub async fn upload(&self, user: &str) -> Result<UserShare, CacheTrouble> {
        self.uploads.share(user, 1).await.ok_or(CacheTrouble::Busy)
    }

    pub async fn download(&self, user: &str) -> Result<UserShare, CacheTrouble> {
        self.downloads.share(user, 1).await.ok_or(CacheTrouble::Busy)
    }

    /// Room for a small message. Who has it may wait for room for a large one, and never the reverse.
    pub async fn small(&self, user: &str) -> Result<UserShare, CacheTrouble> {
        self.small.share(user, SMALL_MESSAGE_BYTES_MAX).await.ok_or(CacheTrouble::Busy)
    }

    pub async fn large(&self, user: &str) -> Result<UserShare, CacheTrouble> {
        self.large.share(user, LARGE_SHARE_BYTES).await.ok_or(CacheTrouble::Busy)
    }
}

const DAY_MS: u64 = 86_400_000;
/// Users whose uploads of a day are counted. A server has fewer tokens.
const COUNTED_USERS_MAX: usize = 100_000;

/// Whose day an upload counts for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Payer {
    pub user: String,
    /// An administrator, or the job of one.
    pub is_exempt: bool,
}

impl Payer {
    pub fn of(caller: &Caller) -> Payer {
        Payer { user: caller.user.clone(), is_exempt: caller.role == Role::Admin }
    }
}

/// How much each user has uploaded today. It is not kept: a server that starts again counts from 0.
pub(crate) struct DayQuota {
    bytes_max: u64,
    used: Mutex<UsedToday>,
}

#[derive(Default)]
struct UsedToday {
    /// Since the Unix epoch.
    day: u64,
    bytes: BTreeMap<String, u64>,
}

impl DayQuota {
    pub fn new(bytes_max: u64) -> DayQuota {
        DayQuota { bytes_max, used: Mutex::default() }
    }

    /// Counts an upload, and refuses one that is more than its user may have.
    pub fn charge(&self, payer: &Payer, bytes: u64, now_ms: u64) -> Result<(), CacheTrouble> {
        let Payer { user, is_exempt } = payer;
        if *is_exempt {
            return Ok(());
        }
        let day = now_ms / DAY_MS;
        let mut today = self.used.lock();
        if today.day != day {
            *today = UsedToday { day, bytes: BTreeMap::new() };
        }
        let is_known = today.bytes.contains_key(user);
        let used = today.bytes.get(user).copied().unwrap_or(0);
        let with_it = used.saturating_add(bytes);
        if with_it > self.bytes_max || (!is_known && today.bytes.len() >= COUNTED_USERS_MAX) {
            return Err(CacheTrouble::Quota { user: user.clone(), used, of: self.bytes_max });
        }
        today.bytes.insert(user.clone(), with_it);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Rights;

    #[test]
    fn a_user_s_uploads_of_a_day_are_bounded() {
        let caller = |user: &str, role| {
            let rights = Rights::default();
            Payer::of(&Caller { user: user.to_owned(), role, worker: None, token: None, rights })
        };
        let (quota, ann) = (DayQuota::new(100), caller("ann", Role::User));
        assert!(quota.charge(&ann, 60, 5).is_ok() && quota.charge(&ann, 40, 6).is_ok());
        let refused = quota.charge(&ann, 1, DAY_MS - 1).unwrap_err();
        assert_eq!(refused.to_string(), "'ann' has uploaded 100 B of 100 B today");
        assert!(quota.charge(&caller("bob", Role::User), 100, 7).is_ok(), "each user has a day's bytes");
        assert!(quota.charge(&caller("ann", Role::Admin), 1 << 40, 7).is_ok());
        assert!(quota.charge(&ann, 100, DAY_MS).is_ok(), "another day");
        assert!(quota.charge(&ann, u64::MAX, DAY_MS).is_err());
    }
}
