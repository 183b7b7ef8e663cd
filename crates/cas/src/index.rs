//! What the store has, in memory: for each blob its digest, its last use, its pins, and who may see it.
//!
//! Properties:
//! - A blob costs at most 64 bytes: 48 for its entry, and up to 11 in the table that finds it.
//! - The slot of a blob is the number of its row. No slot is given to a blob before the row of the last one is removed.
//! - A pinned blob is never evicted. A blob that was used after it was chosen as a victim is not evicted either.
//! - The sums are those of the entries.

use crate::digest::Digest;
use crate::error::CasError;
use crate::holders::Holders;
use hashbrown::HashTable;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

/// Pins of all owners, which bounds the table of pins: some 300 MB of disk.
pub(crate) const PINS_MAX: u64 = 4_000_000;
/// Uploads under way. Each has an open file, or up to 16 KiB of memory.
pub(crate) const WRITERS_MAX: u64 = 512;
/// Blobs of a store: 480 MB of memory.
pub(crate) const BLOBS_MAX: u64 = 8_000_000;
/// Rows of slots above these are not read. Slots of removed rows are given again, so numbers stay near those of blobs.
pub(crate) const SLOTS_MAX: u64 = BLOBS_MAX + (1 << 20);
/// Seconds after which another use of a blob is noted. Uses within them change nothing, so that they cost no write.
pub(crate) const USE_STEP_S: u32 = 60;

/// Readers that a blob is for. A reader of one space learns nothing of what is in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The remote cache of build tools.
    Cache,
    /// Inputs and outputs of jobs.
    Jobs,
}

impl Space {
    /// The bit of this space in a set of spaces.
    pub(crate) fn bit(self) -> u8 {
        match self {
            Space::Cache => 1,
            Space::Jobs => 2,
        }
    }
}

/// How much a store has, and what became of it since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CasFigures {
    /// Sum of the sizes of all blobs.
    pub bytes: u64,
    /// Blobs, small ones and files.
    pub blobs: u64,
    /// Bytes that uploads under way have announced.
    pub reserved_bytes: u64,
    /// Uploads that have begun and not ended.
    pub writers: u64,
    /// Sum of the sizes of pinned blobs.
    pub pinned_bytes: u64,
    /// Pins of all owners. A blob that two owners pin counts twice.
    pub pins: u64,
    /// Results of actions that are kept.
    pub actions: u64,
    /// Sum of the sizes of these results.
    pub action_bytes: u64,
    /// Sum of the sizes of notes.
    pub note_bytes: u64,
    /// Blobs evicted since the store was opened.
    pub evicted: u64,
    /// Sum of the sizes of evicted blobs.
    pub evicted_bytes: u64,
    /// Uploads refused because nothing could be evicted.
    pub refused: u64,
    /// Blobs that were not on the disk as they were stored, found when they were read.
    pub damaged: u64,
}

impl CasFigures {
    /// Bytes that count against the store's bound.
    pub(crate) fn total(&self) -> u64 {
        self.bytes + self.reserved_bytes + self.action_bytes + self.note_bytes
    }
}

/// How much a store may have.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub bytes: u64,
    pub blobs: u64,
}

impl Limits {
    /// These parts of a hundred of both.
    pub fn percent(self, part: u64) -> Limits {
        let of = |all: u64| (u128::from(all) * u128::from(part) / 100) as u64;
        Limits { bytes: of(self.bytes), blobs: of(self.blobs) }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    hash: [u8; 32],
    size: u64,
    /// Unix time, which fits until 2106.
    used_s: u32,
    /// Spaces in the lowest 8 bits, two flags, and the number of pins.
    state: u32,
}

const SPACES: u32 = 0xff;
/// The table finds the entry.
const LINKED: u32 = 1 << 8;
/// The row has an earlier use.
const USED: u32 = 1 << 9;
const PIN: u32 = 1 << 10;

const VACANT: Entry = Entry { hash: [0; 32], size: 0, used_s: 0, state: 0 };

const _: () = assert!(size_of::<Entry>() == 48);
// Calls under way hold blobs as pins do.
const _: () = assert!(PINS_MAX + 2 * WRITERS_MAX < 1 << 22);

#[derive(Default)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    /// Slots of linked entries, by a keyed hash: clients choose digests.
    table: HashTable<u32>,
    hasher: RandomState,
    free: Vec<u32>,
    /// Slots whose last use is to be written to their rows.
    used: Vec<u32>,
    /// The latest time of a write. Later writes are never stamped earlier, even if the clock is set back.
    latest_s: u32,
    /// Hashes of blobs whose rows and files are being written. Another upload of one waits, so no blob has two rows.
    pub coming: HashSet<[u8; 32]>,
    /// Who holds which blobs of jobs.
    pub holders: Holders,
    /// Number and bytes of results.
    actions: (i64, i64),
    note_bytes: i64,
    pub figures: CasFigures,
}

impl Index {
    /// The blob's slot, in any space.
    pub fn get(&self, digest: Digest) -> Option<u32> {
        self.find(&digest.hash).filter(|slot| self.entries[*slot as usize].size == digest.size)
    }

    /// The blob's slot, if it is in the space.
    pub fn seek(&self, digest: Digest, space: Space) -> Option<u32> {
        self.get(digest).filter(|slot| self.is_in(*slot, space))
    }

    /// The blob of this hash, if it is in the space.
    pub fn by_hash(&self, hash: &[u8; 32], space: Space) -> Option<Digest> {
        let slot = self.find(hash).filter(|slot| self.is_in(*slot, space))?;
        Some(self.digest(slot))
    }

    pub fn is_in(&self, slot: u32, space: Space) -> bool {
        self.entries[slot as usize].state & u32::from(space.bit()) != 0
    }

    pub fn digest(&self, slot: u32) -> Digest {
        let Entry { hash, size, .. } = self.entries[slot as usize];
        Digest { hash, size }
    }

    /// The slot of the blob of this hash, whatever its size, in any space.
    pub fn find(&self, hash: &[u8; 32]) -> Option<u32> {
        let is_it = |slot: &u32| self.entries[*slot as usize].hash == *hash;
        self.table.find(self.hasher.hash_one(hash), is_it).copied()
    }

    /// Notes a use of the blob.
    pub fn touch(&mut self, slot: u32, now_s: u32) {
        let entry = &mut self.entries[slot as usize];
        if now_s < entry.used_s.saturating_add(USE_STEP_S) {
            return;
        }
        entry.used_s = now_s;
        if entry.state & USED == 0 {
            entry.state |= USED;
            self.used.push(slot);
        }
    }

    /// Last uses that the rows do not have yet. The caller writes them, or gives them back to [`Index::untake`].
    pub fn take_uses(&mut self) -> Vec<(u32, u32)> {
        let mut uses = Vec::new();
        for slot in std::mem::take(&mut self.used) {
            let entry = &mut self.entries[slot as usize];
            // Evicted ones have lost the flag.
            if entry.state & USED != 0 {
                entry.state &= !USED;
                uses.push((slot, entry.used_s));
            }
        }
        uses
    }

    pub fn untake(&mut self, uses: &[(u32, u32)]) {
        for (slot, _) in uses {
            let entry = &mut self.entries[*slot as usize];
            if entry.state & (LINKED | USED) == LINKED {
                entry.state |= USED;
                self.used.push(*slot);
            }
        }
    }

    /// The stamp of a write at this time.
    pub fn stamp(&mut self, now_s: u32) -> u32 {
        self.latest_s = self.latest_s.max(now_s);
        self.latest_s
    }

    /// Takes the bytes and the place of an upload out of the limits. False if there is not enough room.
    pub fn reserve(&mut self, bytes: u64, limits: Limits) -> Result<bool, CasError> {
        if self.figures.writers >= WRITERS_MAX {
            return Err(CasError::Busy { writers_max: WRITERS_MAX });
        }
        let fits = self.figures.total().saturating_add(bytes) <= limits.bytes
            && self.figures.blobs + self.figures.writers < limits.blobs;
        if fits {
            self.figures.reserved_bytes += bytes;
            self.figures.writers += 1;
        }
        Ok(fits)
    }

    /// Counts an upload for which nothing can be evicted.
    pub fn refuse(&mut self, wanted: u64, limits: Limits) -> CasError {
        self.figures.refused += 1;
        let CasFigures { pinned_bytes, reserved_bytes, .. } = self.figures;
        CasError::Full { wanted, bytes_max: limits.bytes, pinned_bytes, reserved_bytes }
    }

    /// Counts results that were kept, or dropped where the numbers are negative. Changes are counted after they are
    /// committed, so one that drops may be counted before the one that kept.
    pub fn count_actions(&mut self, count: i64, bytes: i64) {
        self.actions.0 += count;
        self.actions.1 += bytes;
        self.figures.actions = self.actions.0.max(0) as u64;
        self.figures.action_bytes = self.actions.1.max(0) as u64;
    }

    /// Counts the bytes of notes that were kept, or dropped where the number is negative, as [`Index::count_actions`] does.
    pub fn count_notes(&mut self, bytes: i64) {
        self.note_bytes += bytes;
        self.figures.note_bytes = self.note_bytes.max(0) as u64;
    }

    /// Gives back what is left of a reservation.
    pub fn unreserve(&mut self, bytes: u64) {
        self.figures.reserved_bytes -= bytes;
        self.figures.writers -= 1;
    }

    /// True if there is more than this.
    pub fn is_above(&self, limits: Limits) -> bool {
        self.figures.total() > limits.bytes || self.figures.blobs + self.figures.writers > limits.blobs
    }

    /// A slot for a new blob's row.
    pub fn claim(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.add_vacant();
            self.entries.len() as u32 - 1
        })
    }

    fn add_vacant(&mut self) {
        if self.entries.len() == self.entries.capacity() {
            // Doubling would keep up to 48 unused bytes for each blob.
            self.entries.reserve_exact(self.entries.len() / 8 + 1024);
        }
        self.entries.push(VACANT);
    }

    /// Takes slots back whose rows are removed. A slot whose damaged blob is pinned stays taken until the store is
    /// opened again, so that the owner's end unpins no other blob.
    pub fn free(&mut self, slots: &[u32]) {
        for slot in slots {
            if !self.is_pinned(*slot) {
                self.entries[*slot as usize] = VACANT;
                self.free.push(*slot);
            }
        }
    }

    /// Takes the slot of a stored row, which is above those of all rows before.
    pub fn restore(&mut self, slot: u32) {
        while self.entries.len() < slot as usize {
            self.free.push(self.entries.len() as u32);
            self.add_vacant();
        }
        self.add_vacant();
    }

    pub fn is_linked(&self, slot: u32) -> bool {
        self.entries.get(slot as usize).is_some_and(|entry| entry.state & LINKED != 0)
    }

    /// Slots of all blobs.
    pub fn linked(&self) -> impl Iterator<Item = u32> {
        (0..self.slots()).filter(|slot| self.is_linked(*slot))
    }

    /// Slots so far, free ones included.
    pub fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Lets the blob be found in its slot, whose row is durable. Its hash is not linked yet.
    pub fn link(&mut self, slot: u32, digest: Digest, spaces: u8, used_s: u32) {
        let Digest { hash, size } = digest;
        self.entries[slot as usize] = Entry { hash, size, used_s, state: LINKED | u32::from(spaces) };
        let (entries, hasher) = (&self.entries, &self.hasher);
        let again = |slot: &u32| hasher.hash_one(entries[*slot as usize].hash);
        self.table.insert_unique(hasher.hash_one(hash), slot, again);
        self.figures.bytes += size;
        self.figures.blobs += 1;
    }

    pub fn add_space(&mut self, slot: u32, spaces: u8) {
        self.entries[slot as usize].state |= u32::from(spaces);
    }

    /// Keeps the blob from being evicted until [`Index::release`].
    pub fn hold(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        if entry.state < PIN {
            self.figures.pinned_bytes += entry.size;
        }
        entry.state += PIN;
        self.figures.pins += 1;
    }

    pub fn release(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.state -= PIN;
        // The bytes of one that was lost meanwhile are not counted any more.
        if entry.state < PIN && entry.state & LINKED != 0 {
            self.figures.pinned_bytes -= entry.size;
        }
        self.figures.pins -= 1;
    }

    pub fn is_pinned(&self, slot: u32) -> bool {
        self.entries[slot as usize].state >= PIN
    }

    /// Blobs of these slots that may be evicted, as last use and slot. Those used at `before_s` and later stay.
    pub fn evictable(&self, slots: Range<u32>, before_s: u32, into: &mut Vec<(u32, u32)>) {
        for slot in slots {
            let entry = &self.entries[slot as usize];
            if entry.state < PIN && entry.state & LINKED != 0 && entry.used_s < before_s {
                into.push((entry.used_s, slot));
            }
        }
    }

    /// Takes a victim out, unless it was used or pinned since it was chosen. The slot stays taken.
    pub fn evict(&mut self, slot: u32, used_s: u32) -> Option<Digest> {
        let entry = self.entries[slot as usize];
        if entry.state >= PIN || entry.state & LINKED == 0 || entry.used_s != used_s {
            return None;
        }
        self.unlink(slot);
        self.figures.evicted += 1;
        self.figures.evicted_bytes += entry.size;
        Some(Digest { hash: entry.hash, size: entry.size })
    }

    /// Lets the blob be found no more. Its slot stays taken, and so do its pins.
    pub fn unlink(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let (hash, size, is_pinned) = (entry.hash, entry.size, entry.state >= PIN);
        entry.state &= !(SPACES | LINKED | USED);
        if let Ok(found) = self.table.find_entry(self.hasher.hash_one(hash), |other| *other == slot) {
            found.remove();
        }
        self.figures.bytes -= size;
        self.figures.blobs -= 1;
        self.figures.pinned_bytes -= if is_pinned { size } else { 0 };
        self.holders.forget(slot);
    }
}
