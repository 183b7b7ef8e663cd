//! Pins: an owner, as a rule a job, names blobs that stay until it ends.

use super::{Cas, Inner};
use crate::digest::Digest;
use crate::error::CasError;
use crate::index::{PINS_MAX, Space};
use crate::rows::statements;

/// Bytes of an owner's name.
pub(super) const OWNER_BYTES_MAX: usize = 256;
/// Blobs that one transaction pins, so that other changes get their turn.
pub(super) const PINS_A_CHANGE: usize = 4_096;

impl Cas {
    /// Keeps blobs of the space from being evicted until [`Cas::unpin`], also by later processes. Returns those that
    /// are not there, which are not pinned. Pins of an owner add up; a blob that it has pinned stays pinned once. After
    /// an error some may be pinned, and `unpin` takes them back.
    pub fn pin(&self, space: Space, owner: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        if owner.len() > OWNER_BYTES_MAX {
            return Err(CasError::LongName { bytes: owner.len(), bytes_max: OWNER_BYTES_MAX });
        }
        let mut missing = Vec::new();
        for change in digests.chunks(PINS_A_CHANGE) {
            // Held from now on, so that no eviction comes between.
            let slots = self.0.hold(space, change, &mut missing)?;
            match self.0.rows.write("pinned blobs", |db| statements::pin(db, owner, &slots)) {
                Ok(known) => self.0.release(&known),
                Err(error) => {
                    self.0.release(&slots);
                    return Err(error);
                }
            }
        }
        Ok(missing)
    }

    /// Gives up all pins of an owner, if it has any.
    pub fn unpin(&self, owner: &str) -> Result<(), CasError> {
        let slots = self.0.rows.write("unpinned blobs", |db| statements::unpin(db, owner))?;
        self.0.release(&slots);
        Ok(())
    }
}

impl Inner {
    /// Holds the blobs that are in the space, and adds the others to those that are missing.
    fn hold(
        &self,
        space: Space,
        digests: &[Digest],
        missing: &mut Vec<Digest>,
    ) -> Result<Vec<u32>, CasError> {
        let mut index = self.index.lock();
        if index.figures.pins + digests.len() as u64 > PINS_MAX {
            return Err(CasError::TooManyPins { pins_max: PINS_MAX });
        }
        let mut slots = Vec::new();
        for digest in digests {
            if let Some(slot) = index.seek(*digest, space) {
                index.hold(slot);
                slots.push(slot);
            } else if *digest != Digest::EMPTY {
                missing.push(*digest);
            }
        }
        Ok(slots)
    }

    pub(super) fn release(&self, slots: &[u32]) {
        let mut index = self.index.lock();
        for slot in slots {
            index.release(*slot);
        }
    }
}
