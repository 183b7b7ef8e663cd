//! How a store is opened: from its rows alone if it was closed, with a look at each file if it was not.
//!
//! The end of a process leaves temporary files, rows without files (a row is written before its file is named) and
//! files without rows (a file that is evicted goes before its row, but a row may be lost with the power). A loss of
//! power may also leave a named file without its bytes; that happens to what was written shortly before.

use crate::digest::Digest;
use crate::error::CasError;
use crate::files::{Files, SMALL_BYTES_MAX, is_file};
use crate::index::{Index, SLOTS_MAX};
use crate::rows::{Left, Rows, statements};
use std::collections::HashSet;

/// Age of a write that was surely on its disk when the power was lost. Linux writes after 30 s by default.
const UNSURE_S: u32 = 60;

/// Makes the index from what is on the disk, and removes what is not whole.
pub fn load(files: &Files, rows: &Rows, left: &Left, now_s: u32) -> Result<Index, CasError> {
    let mut index = Index::default();
    let mut wrong: Vec<i64> = Vec::new();
    let mut latest_s = 0;
    let link = |row: statements::StoredBlob| {
        let slot = u32::try_from(row.id).ok().filter(|slot| u64::from(*slot) < SLOTS_MAX);
        let (Some(slot), Some(digest)) = (slot, row.digest) else { return wrong.push(row.id) };
        latest_s = latest_s.max(row.written_s);
        if index.find(&digest.hash).is_some() {
            return wrong.push(row.id);
        }
        index.restore(slot);
        // Uses in the future, by a clock that was set back since, would outlive all others.
        index.link(slot, digest, row.spaces, row.used_s.min(now_s));
    };
    rows.read("read its blobs", |db| statements::each_blob(db, link))?;

    let mut lost = if left.is_clean { Vec::new() } else { compare(files, &index)? };
    if !(left.is_clean && left.is_same_boot) {
        lost.extend(verify(files, rows, &index, latest_s)?);
    }
    lost.sort_unstable();
    lost.dedup();
    for slot in &lost {
        if is_file(index.digest(*slot)) {
            files.remove(index.digest(*slot))?;
        }
        index.unlink(*slot);
        wrong.push(i64::from(*slot));
    }
    if !wrong.is_empty() {
        rows.write("removed what is not whole", |db| statements::remove(db, &wrong))?;
    }
    index.free(&lost);
    if latest_s > now_s {
        rows.write("noted the time", |db| statements::bound_stamps(db, now_s))?;
    }
    index.stamp(latest_s.min(now_s));
    count(rows, &mut index)?;
    Ok(index)
}

/// Removes files that are not blobs of the index. Returns the slots of blobs whose files are not there.
fn compare(files: &Files, index: &Index) -> Result<Vec<u32>, CasError> {
    let mut seen = HashSet::new();
    files.each(|digest, path| {
        let slot = digest.filter(|digest| is_file(*digest)).and_then(|digest| index.get(digest));
        match slot {
            Some(slot) => {
                seen.insert(slot);
                Ok(())
            }
            None => files.remove_path(path),
        }
    })?;
    let linked = index.linked().filter(|slot| is_file(index.digest(*slot)));
    Ok(linked.filter(|slot| !seen.contains(slot)).collect())
}

/// Slots of the files written within the last minute that are not what their digests name.
fn verify(files: &Files, rows: &Rows, index: &Index, latest_s: u32) -> Result<Vec<u32>, CasError> {
    let since_s = latest_s.saturating_sub(UNSURE_S);
    let unsure =
        rows.read("read its last blobs", |db| statements::written_since(db, since_s, SMALL_BYTES_MAX))?;
    let mut torn = Vec::new();
    for id in unsure {
        let Some(slot) = u32::try_from(id).ok().filter(|slot| index.is_linked(*slot)) else { continue };
        let digest = index.digest(slot);
        let is_whole = match files.open_blob(digest)? {
            Some((mut file, path)) => {
                Digest::of_reader(&mut file).map_err(|error| CasError::io(&path, error))? == digest
            }
            None => false,
        };
        if !is_whole {
            torn.push(slot);
        }
    }
    Ok(torn)
}

/// Takes pins, holders and the sums of results and notes into the index.
fn count(rows: &Rows, index: &mut Index) -> Result<(), CasError> {
    let mut is_stale = false;
    let hold = |id: i64| match u32::try_from(id).ok().filter(|slot| index.is_linked(*slot)) {
        Some(slot) => index.hold(slot),
        None => is_stale = true,
    };
    rows.read("read its pins", |db| statements::pins(db, hold))?;
    is_stale |= restore_holders(rows, index)?;
    if is_stale {
        // A later blob of the slot would be unpinned by an owner that never pinned it, and be a user's who never had it.
        rows.write("removed pins of lost blobs", statements::remove_stale)?;
    }
    let note_bytes = rows.read("counted its notes", statements::count_notes)?;
    index.count_notes(note_bytes);
    let (actions, bytes) = rows.read("counted its results", statements::count_actions)?;
    index.count_actions(actions, bytes);
    Ok(())
}

/// Takes in who holds which blobs. True if some of these blobs are not there.
fn restore_holders(rows: &Rows, index: &mut Index) -> Result<bool, CasError> {
    let user = |name: String, number: i64| {
        if let Ok(number) = u32::try_from(number) {
            index.holders.restore_user(name, number);
        }
    };
    rows.read("read its users", |db| statements::users(db, user))?;
    let mut is_stale = false;
    let pair = |id: i64, user: i64| {
        let slot = u32::try_from(id).ok().filter(|slot| index.is_linked(*slot));
        match (slot, u32::try_from(user)) {
            (Some(slot), Ok(user)) => index.holders.add(slot, user),
            _ => is_stale = true,
        }
    };
    rows.read("read who holds blobs", |db| statements::holders(db, pair))?;
    Ok(is_stale)
}

/// A number of this run of the machine; 0 if it is unknown.
pub fn boot() -> i64 {
    let Ok(id) = std::fs::read("/proc/sys/kernel/random/boot_id") else { return 0 };
    let mut first = [0; 8];
    first.copy_from_slice(&Digest::of(&id).hash[..8]);
    i64::from_le_bytes(first)
}
