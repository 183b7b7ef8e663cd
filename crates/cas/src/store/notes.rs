//! Notes: short values of an owner, as a rule a job, by number. They stay as its pins do, whatever is evicted.

use super::Cas;
use super::pins::OWNER_BYTES_MAX;
use crate::error::CasError;
use crate::rows::statements;

/// Bytes of one note.
const NOTE_BYTES_MAX: u64 = 1 << 20;

impl Cas {
    /// Keeps a value under an owner and a number, in the place of an earlier one, until [`Cas::forget`].
    pub fn set_note(&self, owner: &str, number: u64, value: &[u8]) -> Result<(), CasError> {
        if owner.len() > OWNER_BYTES_MAX {
            return Err(CasError::LongName { bytes: owner.len(), bytes_max: OWNER_BYTES_MAX });
        }
        let bytes = value.len() as u64;
        if bytes > NOTE_BYTES_MAX {
            return Err(CasError::TooLarge { bytes, bytes_max: NOTE_BYTES_MAX });
        }
        let _room = self.reserve(bytes)?;
        let replaced =
            self.0.rows.write("kept a note", |db| statements::set_note(db, owner, number, value))?;
        self.0.index.lock().count_notes(bytes as i64 - replaced as i64);
        Ok(())
    }

    /// Up to `limit` notes of an owner, by rising number from `from` on.
    pub fn notes(&self, owner: &str, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, CasError> {
        self.0.rows.read("read notes", |db| statements::notes(db, owner, from, limit))
    }

    /// Gives up all pins and notes of an owner, and of the owners whose names go on with a slash: with `job/7` those of
    /// `job/7/3`, too.
    pub fn forget(&self, owner: &str) -> Result<(), CasError> {
        let (slots, bytes) = self.0.rows.write("forgot an owner", |db| statements::forget(db, owner))?;
        self.0.release(&slots);
        self.0.index.lock().count_notes(-(bytes as i64));
        Ok(())
    }

    /// What follows a prefix that ends with a slash, up to the next one, in the names of all owners.
    pub fn owners(&self, prefix: &str) -> Result<Vec<String>, CasError> {
        self.0.rows.read("listed owners", |db| statements::owners(db, prefix))
    }
}
