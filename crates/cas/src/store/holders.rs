//! Presence by user: a blob of jobs is there for those who have uploaded it themselves.

use super::pins::PINS_A_CHANGE;
use super::{Cas, LOOKUPS_A_TURN, seconds};
use crate::digest::Digest;
use crate::error::CasError;
use crate::holders::HOLDERS_MAX;
use crate::index::Space;
use crate::rows::statements;

impl Cas {
    /// The digests of jobs' blobs that are not there, or that this user does not hold. The use of the others is noted, as by
    /// [`Cas::missing`].
    pub fn missing_of(&self, user: &str, digests: &[Digest], now_ms: u64) -> Vec<Digest> {
        let now_s = seconds(now_ms);
        let mut missing = Vec::new();
        for turn in digests.chunks(LOOKUPS_A_TURN) {
            let mut index = self.0.index.lock();
            let number = index.holders.number(user);
            for digest in turn {
                let slot = index.seek(*digest, Space::Jobs);
                let is_held = |slot: &u32| number.is_some_and(|number| index.holders.has(*slot, number));
                match slot.filter(is_held) {
                    Some(slot) => index.touch(slot, now_s),
                    None if *digest == Digest::EMPTY => {}
                    None => missing.push(*digest),
                }
            }
        }
        missing
    }

    /// Notes that a user has uploaded these blobs of jobs, whose bytes the caller has verified. Those that are gone
    /// meanwhile are passed over. It lasts as long as the blob.
    pub fn hold(&self, user: &str, digests: &[Digest]) -> Result<(), CasError> {
        for change in digests.chunks(PINS_A_CHANGE) {
            let (number, slots, gone) = {
                let mut index = self.0.index.lock();
                let number = index.holders.number_or_new(user).ok_or(CasError::TooManyUsers)?;
                let mut slots: Vec<u32> =
                    change.iter().filter_map(|digest| index.seek(*digest, Space::Jobs)).collect();
                slots.retain(|slot| !index.holders.has(*slot, number));
                // Held from now on, so that no eviction comes between.
                slots.iter().for_each(|slot| index.hold(*slot));
                let gone = index.holders.make_room(slots.len(), HOLDERS_MAX);
                (number, slots, gone)
            };
            if slots.is_empty() {
                continue;
            }
            let noted = self
                .0
                .rows
                .write("noted who has files", |db| statements::hold(db, (user, number), &slots, &gone));
            {
                let mut index = self.0.index.lock();
                for slot in &slots {
                    if noted.is_ok() && index.is_linked(*slot) {
                        index.holders.add(*slot, number);
                    }
                    index.release(*slot);
                }
            }
            noted?;
        }
        Ok(())
    }
}
