//! The statements of the store's changes and questions.

use crate::digest::Digest;
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql};
use std::collections::BTreeSet;

/// Pages that one transaction returns to the file system. The number is small because changes wait meanwhile.
const SHRINK_PAGES: u32 = 1_000;

/// The row of a blob, and its body if it is a small one.
pub(crate) struct NewBlob<'a> {
    pub slot: u32,
    pub digest: Digest,
    pub spaces: u8,
    pub used_s: u32,
    pub written_s: u32,
    pub body: Option<&'a [u8]>,
}

/// Inserts a blob's rows. A row that could not be removed from the slot before is replaced.
pub(crate) fn insert(db: &Connection, blob: &NewBlob<'_>) -> rusqlite::Result<()> {
    let NewBlob { slot, digest, spaces, used_s, written_s, body } = blob;
    let mut row = db.prepare_cached("INSERT OR REPLACE INTO blobs VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    row.execute((slot, &digest.hash[..], digest.size as i64, spaces, used_s, written_s))?;
    if let Some(body) = body {
        db.prepare_cached("INSERT OR REPLACE INTO bodies VALUES (?1, ?2)")?.execute((slot, body))?;
    }
    Ok(())
}

/// Removes blobs' rows and bodies, and who holds them.
pub(crate) fn remove(db: &Connection, slots: &[impl ToSql]) -> rusqlite::Result<()> {
    let mut row = db.prepare_cached("DELETE FROM blobs WHERE id = ?1")?;
    let mut body = db.prepare_cached("DELETE FROM bodies WHERE id = ?1")?;
    let mut holders = db.prepare_cached("DELETE FROM holders WHERE id = ?1")?;
    for slot in slots {
        row.execute([slot])?;
        body.execute([slot])?;
        holders.execute([slot])?;
    }
    Ok(())
}

/// Adds spaces to a blob.
pub(crate) fn add_spaces(db: &Connection, slot: u32, spaces: u8) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached("UPDATE blobs SET spaces = spaces | ?2 WHERE id = ?1")?;
    update.execute((slot, spaces)).map(|_| ())
}

/// Writes last uses of blobs: slot and second.
pub(crate) fn set_uses(db: &Connection, uses: &[(u32, u32)]) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached("UPDATE blobs SET used_s = ?2 WHERE id = ?1")?;
    uses.iter().try_for_each(|(slot, used_s)| update.execute((slot, used_s)).map(|_| ()))
}

/// A small blob's bytes.
pub(crate) fn body(db: &Connection, slot: u32) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut select = db.prepare_cached("SELECT bytes FROM bodies WHERE id = ?1")?;
    select.query_row([slot], |row| row.get(0)).optional()
}

/// Returns some empty pages to the file system, which other files need as well.
pub(crate) fn shrink(db: &Connection) -> rusqlite::Result<()> {
    db.pragma(None, "incremental_vacuum", SHRINK_PAGES, |_| Ok(()))
}

/// A row as it is stored. The values may be anything: the file was on a disk.
pub(crate) struct StoredBlob {
    pub id: i64,
    /// None if the row has none.
    pub digest: Option<Digest>,
    pub spaces: u8,
    pub used_s: u32,
    pub written_s: u32,
}

/// Shows all rows of blobs by rising slot.
pub(crate) fn each_blob(db: &Connection, mut show: impl FnMut(StoredBlob)) -> rusqlite::Result<()> {
    let mut select = db.prepare("SELECT id, hash, size, spaces, used_s, written_s FROM blobs ORDER BY id")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let seconds =
            |column: usize| row.get::<_, i64>(column).map(|s| s.clamp(0, i64::from(u32::MAX)) as u32);
        let spaces = row.get::<_, i64>(3)?.clamp(0, i64::from(u8::MAX)) as u8;
        let (used_s, written_s) = (seconds(4)?, seconds(5)?);
        show(StoredBlob { id: row.get(0)?, digest: digest(row)?, spaces, used_s, written_s });
    }
    Ok(())
}

fn digest(row: &Row<'_>) -> rusqlite::Result<Option<Digest>> {
    let hash = <[u8; 32]>::try_from(row.get_ref(1)?.as_blob()?);
    let size = u64::try_from(row.get::<_, i64>(2)?);
    Ok(hash.ok().zip(size.ok()).map(|(hash, size)| Digest { hash, size }))
}

/// Slots of the blobs larger than `above` that were written at `since_s` or later.
pub(crate) fn written_since(db: &Connection, since_s: u32, above: u64) -> rusqlite::Result<Vec<i64>> {
    let mut select = db.prepare("SELECT id FROM blobs WHERE written_s >= ?1 AND size > ?2")?;
    select.query_map((since_s, above as i64), |row| row.get(0))?.collect()
}

/// Removes pins and holders of blobs that are not there.
pub(crate) fn remove_stale(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM pins WHERE id NOT IN (SELECT id FROM blobs)", [])?;
    db.execute("DELETE FROM holders WHERE id NOT IN (SELECT id FROM blobs)", []).map(|_| ())
}

/// Takes back stamps that a clock in the future has given.
pub(crate) fn bound_stamps(db: &Connection, now_s: u32) -> rusqlite::Result<()> {
    db.execute("UPDATE blobs SET written_s = ?1 WHERE written_s > ?1", [now_s]).map(|_| ())
}

/// Pins blobs for an owner. Returns the slots that the owner had pinned before, or that were named twice.
pub(crate) fn pin(db: &Connection, owner: &str, slots: &[u32]) -> rusqlite::Result<Vec<u32>> {
    let mut insert = db.prepare_cached("INSERT OR IGNORE INTO pins VALUES (?1, ?2)")?;
    let mut known = Vec::new();
    for slot in slots {
        if insert.execute((owner, slot))? == 0 {
            known.push(*slot);
        }
    }
    Ok(known)
}

/// Removes an owner's pins, and returns their slots.
pub(crate) fn unpin(db: &Connection, owner: &str) -> rusqlite::Result<Vec<u32>> {
    let mut delete = db.prepare_cached("DELETE FROM pins WHERE owner = ?1 RETURNING id")?;
    delete.query_map([owner], |row| row.get(0))?.collect()
}

/// Slots of all pins, once for each owner.
pub(crate) fn pins(db: &Connection, mut show: impl FnMut(i64)) -> rusqlite::Result<()> {
    let mut select = db.prepare("SELECT id FROM pins")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        show(row.get(0)?);
    }
    Ok(())
}

/// Notes that a user holds blobs, and forgets other pairs of a slot and a user.
pub(crate) fn hold(
    db: &Connection,
    (user, number): (&str, u32),
    slots: &[u32],
    gone: &[(u32, u32)],
) -> rusqlite::Result<()> {
    let mut delete = db.prepare_cached("DELETE FROM holders WHERE id = ?1 AND user = ?2")?;
    gone.iter().try_for_each(|(slot, user)| delete.execute((slot, user)).map(|_| ()))?;
    db.prepare_cached("INSERT OR IGNORE INTO users VALUES (?1, ?2)")?.execute((number, user))?;
    let mut insert = db.prepare_cached("INSERT OR IGNORE INTO holders VALUES (?1, ?2)")?;
    slots.iter().try_for_each(|slot| insert.execute((slot, number)).map(|_| ()))
}

/// Shows the users, by name and number.
pub(crate) fn users(db: &Connection, mut show: impl FnMut(String, i64)) -> rusqlite::Result<()> {
    let mut select = db.prepare("SELECT name, number FROM users")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        show(row.get(0)?, row.get(1)?);
    }
    Ok(())
}

/// Shows who holds which blobs: slot and number of the user.
pub(crate) fn holders(db: &Connection, mut show: impl FnMut(i64, i64)) -> rusqlite::Result<()> {
    let mut select = db.prepare("SELECT id, user FROM holders")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        show(row.get(0)?, row.get(1)?);
    }
    Ok(())
}

/// Keeps a note. Returns the bytes of the one that it replaces.
pub(crate) fn set_note(db: &Connection, owner: &str, number: u64, value: &[u8]) -> rusqlite::Result<u64> {
    let select = "SELECT length(value) FROM notes WHERE owner = ?1 AND number = ?2";
    let replaced = db.prepare_cached(select)?.query_row((owner, number as i64), bytes).optional()?;
    let set = "INSERT OR REPLACE INTO notes VALUES (?1, ?2, ?3)";
    db.prepare_cached(set)?.execute((owner, number as i64, value))?;
    Ok(replaced.unwrap_or(0))
}

/// Notes of an owner by rising number, from one on.
pub(crate) fn notes(
    db: &Connection,
    owner: &str,
    from: u64,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, Vec<u8>)>> {
    let select = "SELECT number, value FROM notes WHERE owner = ?1 AND number >= ?2 ORDER BY number LIMIT ?3";
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    let note = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?));
    db.prepare_cached(select)?.query_map((owner, from, limit as i64), note)?.collect()
}

/// The sum of the bytes of all notes.
pub(crate) fn count_notes(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("SELECT coalesce(sum(length(value)), 0) FROM notes", [], |row| row.get(0))
}

/// Removes pins and notes of an owner, and of those whose names go on with a slash. Returns the slots of the pins, and the
/// bytes of the notes.
pub(crate) fn forget(db: &Connection, owner: &str) -> rusqlite::Result<(Vec<u32>, u64)> {
    // In the order of bytes, 0 is what follows the slash.
    let (from, below) = (format!("{owner}/"), format!("{owner}0"));
    let mut slots = unpin(db, owner)?;
    let pins = "DELETE FROM pins WHERE owner >= ?1 AND owner < ?2 RETURNING id";
    let mut delete = db.prepare_cached(pins)?;
    for slot in delete.query_map((&from, &below), |row| row.get(0))? {
        slots.push(slot?);
    }
    let mut sum = 0;
    let notes = "DELETE FROM notes WHERE owner = ?1 RETURNING length(value)";
    for note in db.prepare_cached(notes)?.query_map([owner], bytes)? {
        sum += note?;
    }
    let notes = "DELETE FROM notes WHERE owner >= ?1 AND owner < ?2 RETURNING length(value)";
    for note in db.prepare_cached(notes)?.query_map((&from, &below), bytes)? {
        sum += note?;
    }
    Ok((slots, sum))
}

/// What follows a prefix that ends with a slash, up to the next one, in the names of all owners.
pub(crate) fn owners(db: &Connection, prefix: &str) -> rusqlite::Result<Vec<String>> {
    let below = format!("{}0", prefix.trim_end_matches('/'));
    let mut names = BTreeSet::new();
    for table in ["pins", "notes"] {
        let select = format!("SELECT min(owner) FROM {table} WHERE owner >= ?1 AND owner < ?2");
        let mut select = db.prepare_cached(&select)?;
        let mut from = prefix.to_owned();
        // Each name costs two searches, however many rows it has.
        while let Some(owner) = select.query_row((&from, &below), |row| row.get::<_, Option<String>>(0))? {
            let Some(rest) = owner.strip_prefix(prefix) else { break };
            from = match rest.split_once('/') {
                Some((name, _)) => format!("{prefix}{name}0"),
                None => format!("{owner}\0"),
            };
            names.insert(rest.split('/').next().unwrap_or_default().to_owned());
        }
    }
    Ok(names.into_iter().collect())
}

/// A kept result of an action.
pub(crate) struct ActionRow {
    pub id: i64,
    pub used_s: u32,
    pub result: Vec<u8>,
}

pub(crate) fn action(db: &Connection, instance: &str, of: Digest) -> rusqlite::Result<Option<ActionRow>> {
    let select = "SELECT id, used_s, result FROM actions WHERE instance = ?1 AND hash = ?2 AND size = ?3";
    let read = |row: &Row<'_>| Ok(ActionRow { id: row.get(0)?, used_s: row.get(1)?, result: row.get(2)? });
    db.prepare_cached(select)?.query_row((instance, &of.hash[..], of.size as i64), read).optional()
}

/// Keeps a result. Returns the bytes of the one that it replaces.
pub(crate) fn set_action(
    db: &Connection,
    instance: &str,
    of: Digest,
    result: &[u8],
    now_s: u32,
) -> rusqlite::Result<Option<u64>> {
    let select = "SELECT bytes FROM actions WHERE instance = ?1 AND hash = ?2 AND size = ?3";
    let key = (instance, &of.hash[..], of.size as i64);
    let replaced = db.prepare_cached(select)?.query_row(key, bytes).optional()?;
    let set = "INSERT INTO actions (instance, hash, size, used_s, bytes, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
               ON CONFLICT (instance, hash, size) DO UPDATE \
               SET used_s = excluded.used_s, bytes = excluded.bytes, result = excluded.result";
    let (instance, hash, size) = key;
    db.prepare_cached(set)?.execute((instance, hash, size, now_s, result.len() as i64, result))?;
    Ok(replaced)
}

/// Writes last uses of results: row and second.
pub(crate) fn set_action_uses(db: &Connection, uses: &[(i64, u32)]) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached("UPDATE actions SET used_s = ?2 WHERE id = ?1")?;
    uses.iter().try_for_each(|(id, used_s)| update.execute((id, used_s)).map(|_| ()))
}

/// Removes up to `limit` results that were last used before a time, from the oldest. Returns the bytes of each.
pub(crate) fn drop_actions(db: &Connection, before_s: u32, limit: u32) -> rusqlite::Result<Vec<u64>> {
    let delete = "DELETE FROM actions WHERE id IN \
                  (SELECT id FROM actions WHERE used_s < ?1 ORDER BY used_s LIMIT ?2) RETURNING bytes";
    db.prepare_cached(delete)?.query_map((before_s, limit), bytes)?.collect()
}

/// Number of results, and the sum of their bytes.
pub(crate) fn count_actions(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let count = "SELECT count(*), coalesce(sum(bytes), 0) FROM actions";
    db.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

fn bytes(row: &Row<'_>) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(0)? as u64)
}
