//! What goes when the store is nearly full: blobs that no job pins, by their last use, and results of that age.

use super::{Cas, Inner, seconds};
use crate::error::CasError;
use crate::index::Limits;
use crate::rows::statements;

/// A sweep begins above this part of the bounds, in percent, ...
const HIGH_PERCENT: u64 = 95;
/// ... and ends at this one. What is between them is uploaded without a wait for evictions.
const LOW_PERCENT: u64 = 85;
/// Entries that are looked at before other calls get their turn.
const ENTRIES_A_TURN: u32 = 65_536;
/// Blobs, results or last uses whose rows one transaction changes.
const ROWS_A_CHANGE: usize = 1_024;

/// What a sweep has evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Blobs, small ones and files.
    pub blobs: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Number of results of actions.
    pub actions: u64,
}

impl Cas {
    /// Evicts blobs above the high water, down to the low one. Those that were used lately go only from a store that is
    /// above its bounds. It also writes last uses, so it is called every minute or so.
    pub fn sweep(&self, now_ms: u64) -> Result<Swept, CasError> {
        let inner = &self.0;
        let _evicting = inner.evicting.lock();
        // On a full disk this fails, and evictions go on: they make room for it.
        let flushed = inner.flush_uses();
        let mut swept = Swept::default();
        if inner.is_above(inner.limits.percent(HIGH_PERCENT)) {
            let aim = inner.limits.percent(LOW_PERCENT);
            let unused_since_s = seconds(now_ms).saturating_sub(inner.keep_s);
            let evicted = inner.evict(aim, unused_since_s, &mut swept);
            if inner.is_above(inner.limits) {
                inner.evict(aim, u32::MAX, &mut swept)?;
            }
            evicted?;
        }
        inner.remove_rows(&[])?;
        inner.rows.write("returned room to the disk", statements::shrink)?;
        flushed.map(|()| swept)
    }
}

impl Inner {
    fn is_above(&self, limits: Limits) -> bool {
        self.index.lock().is_above(limits)
    }

    /// Makes room for an upload, and reserves it. Here blobs go that were used lately, too.
    pub(super) fn make_room(&self, bytes: u64) -> Result<(), CasError> {
        let _evicting = self.evicting.lock();
        let mut aim = self.limits.percent(LOW_PERCENT);
        aim.bytes = aim.bytes.min(self.limits.bytes - bytes);
        loop {
            {
                let mut index = self.index.lock();
                if index.reserve(bytes, self.limits)? {
                    return Ok(());
                }
                let figures = index.figures;
                if figures.total() - figures.bytes + figures.pinned_bytes + bytes > self.limits.bytes {
                    // To look for victims would be in vain.
                    return Err(index.refuse(bytes, self.limits));
                }
            }
            let mut swept = Swept::default();
            let evicted = self.evict(aim, u32::MAX, &mut swept);
            // Where rows could not be removed, blobs and files are gone nevertheless. Another upload may take the room
            // that was made, so this one looks again.
            if swept.blobs == 0 {
                return evicted.and_then(|()| Err(self.index.lock().refuse(bytes, self.limits)));
            }
        }
    }

    /// Evicts blobs that were last used before a time, the oldest first, until the store is within the aim. Results of
    /// actions that were not used since then go as well: blobs of theirs went.
    fn evict(&self, aim: Limits, before_s: u32, swept: &mut Swept) -> Result<(), CasError> {
        let mut victims = self.victims(before_s);
        victims.sort_unstable();
        let mut last_s = 0;
        for change in victims.chunks(ROWS_A_CHANGE) {
            let mut gone = Vec::new();
            for (used_s, slot) in change {
                if !self.is_above(aim) {
                    break;
                }
                let _names = self.names.lock();
                let evicted = self.index.lock().evict(*slot, *used_s);
                let Some(digest) = evicted else { continue };
                self.remove_file(digest);
                gone.push(*slot);
                swept.blobs += 1;
                swept.bytes += digest.size;
                last_s = *used_s;
            }
            if gone.is_empty() && !self.is_above(aim) {
                break;
            }
            self.remove_rows(&gone)?;
        }
        loop {
            let dropped = self.drop_actions(last_s, ROWS_A_CHANGE as u32)?;
            swept.actions += dropped;
            if dropped < ROWS_A_CHANGE as u64 {
                return Ok(());
            }
        }
    }

    /// What may be evicted, as last use and slot: 8 bytes for each blob while it is evicted.
    fn victims(&self, before_s: u32) -> Vec<(u32, u32)> {
        let mut victims = Vec::new();
        let mut from = 0;
        loop {
            let index = self.index.lock();
            let to = index.slots().min(from + ENTRIES_A_TURN);
            index.evictable(from..to, before_s, &mut victims);
            if to == index.slots() {
                return victims;
            }
            from = to;
        }
    }

    /// Writes last uses, so that the order of evictions survives the process.
    pub(super) fn flush_uses(&self) -> Result<(), CasError> {
        let uses = self.index.lock().take_uses();
        for (at, change) in uses.chunks(ROWS_A_CHANGE).enumerate() {
            let written = self.rows.write("kept last uses", |db| statements::set_uses(db, change));
            if written.is_err() {
                self.index.lock().untake(&uses[at * ROWS_A_CHANGE..]);
                return written;
            }
        }
        self.flush_action_uses()
    }
}
