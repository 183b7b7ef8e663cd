//! Rows of messages between shards, and of the tasks that these move.

use super::write::int;
use crate::mail::{LastNumbers, Mail, MailPage, MailPlace, PageBuilder, with_guest};
use crate::message::{message_from_json, message_to_json};
use crate::spec;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use windlass_core::JobId;
use windlass_core::ids::ShardId;
use windlass_core::ranges::RangeSet;
use windlass_core::shards::Message;

/// 0 rows if there is a message of this number, or was one.
pub fn tell(
    tx: &Transaction<'_>,
    from: ShardId,
    to: ShardId,
    number: u64,
    message: &Message,
) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "INSERT INTO messages (sender, receiver, number, body) SELECT ?1, ?2, ?3, ?4
         WHERE NOT EXISTS (SELECT 1 FROM messages_heard WHERE sender = ?1 AND receiver = ?2 AND number >= ?3)
         ON CONFLICT DO NOTHING",
    )?
    .execute((from.0, to.0, int(number), message_to_json(message)))
}

/// 0 rows if there is no such message.
pub fn heard(tx: &Transaction<'_>, from: ShardId, to: ShardId, number: u64) -> rusqlite::Result<usize> {
    let key = (from.0, to.0, int(number));
    let rows = tx
        .prepare_cached("DELETE FROM messages WHERE sender = ?1 AND receiver = ?2 AND number = ?3")?
        .execute(key)?;
    if rows > 0 {
        tx.prepare_cached(
            "INSERT INTO messages_heard (sender, receiver, number) VALUES (?1, ?2, ?3)
             ON CONFLICT (receiver, sender) DO UPDATE SET number = excluded.number",
        )?
        .execute(key)?;
    }
    Ok(rows)
}

/// Replaces the tasks of a job that are with a shard.
pub fn delegate(
    tx: &Transaction<'_>,
    job: JobId,
    shard: ShardId,
    tasks: &RangeSet,
) -> rusqlite::Result<usize> {
    if tasks.is_empty() {
        tx.prepare_cached("DELETE FROM delegated WHERE job = ?1 AND shard = ?2")?
            .execute((int(job.0), shard.0))?;
        return Ok(1);
    }
    tx.prepare_cached("INSERT OR REPLACE INTO delegated (job, shard, tasks) VALUES (?1, ?2, ?3)")?.execute((
        int(job.0),
        shard.0,
        spec::ranges_to_json(tasks),
    ))
}

/// The tasks of a job that are with other shards, by shard.
pub fn delegated(db: &Connection, job: JobId) -> rusqlite::Result<BTreeMap<ShardId, RangeSet>> {
    let mut rows = db.prepare_cached("SELECT shard, tasks FROM delegated WHERE job = ?1 ORDER BY shard")?;
    let rows = rows.query_map([int(job.0)], |row| {
        let tasks = spec::ranges_from_json(row.get_ref(1)?.as_str()?).map_err(|e| unreadable(1, e))?;
        Ok((ShardId(row.get(0)?), tasks))
    })?;
    rows.collect()
}

/// The tasks of a job of another shard that this shard has.
pub fn guest(
    db: &Connection,
    job: JobId,
    home: ShardId,
    shard: ShardId,
    away: RangeSet,
) -> rusqlite::Result<RangeSet> {
    if away.is_empty() {
        return Ok(away);
    }
    let mut rows = db.prepare_cached(
        "SELECT body FROM messages WHERE (sender = ?1 AND receiver = ?2) OR (sender = ?2 AND receiver = ?1)",
    )?;
    let between: Vec<Message> =
        rows.query_map((home.0, shard.0), |row| message(row, 0))?.collect::<rusqlite::Result<_>>()?;
    Ok(with_guest(job, away, &between))
}

/// The jobs of other shards of which a shard has tasks, or gets them.
pub fn guests(db: &Connection, shard: ShardId) -> rusqlite::Result<BTreeSet<JobId>> {
    let mut rows = db.prepare_cached("SELECT job FROM delegated WHERE shard = ?1")?;
    rows.query_map([shard.0], |row| Ok(JobId(row.get::<_, i64>(0)? as u64)))?.collect()
}

/// A page of the messages to a shard.
pub fn mail(db: &Connection, shard: ShardId, after: MailPlace) -> rusqlite::Result<MailPage> {
    let mut statement = db.prepare_cached(
        "SELECT sender, number, body FROM messages WHERE receiver = ?1 AND (sender, number) > (?2, ?3)
         ORDER BY sender, number",
    )?;
    let mut rows = statement.query((shard.0, after.from.0, int(after.number)))?;
    let mut page = PageBuilder::default();
    while !page.is_full()
        && let Some(row) = rows.next()?
    {
        let (from, number) = (ShardId(row.get(0)?), row.get::<_, i64>(1)? as u64);
        let bytes = row.get_ref(2)?.as_str()?.len();
        page.add(Mail { from, number, message: message(row, 2)? }, bytes);
    }
    Ok(page.finish())
}

/// The numbers of the last messages from a shard, and of those to it that were heard.
pub fn last_numbers(db: &Connection, shard: ShardId) -> rusqlite::Result<LastNumbers> {
    let read = |sql: &str| -> rusqlite::Result<BTreeMap<ShardId, u64>> {
        let mut rows = db.prepare_cached(sql)?;
        let rows =
            rows.query_map([shard.0], |row| Ok((ShardId(row.get(0)?), row.get::<_, i64>(1)? as u64)))?;
        rows.collect()
    };
    let sent = read(
        "SELECT receiver, max(number) FROM
             (SELECT receiver, number FROM messages WHERE sender = ?1
              UNION ALL SELECT receiver, number FROM messages_heard WHERE sender = ?1) GROUP BY receiver",
    )?;
    Ok((sent, read("SELECT sender, number FROM messages_heard WHERE receiver = ?1")?))
}

/// All shards of the farm but one.
pub fn peers(db: &Connection, shard: ShardId) -> rusqlite::Result<BTreeSet<ShardId>> {
    let mut rows = db.prepare_cached("SELECT id FROM farm_shards WHERE id <> ?1")?;
    rows.query_map([shard.0], |row| Ok(ShardId(row.get(0)?)))?.collect()
}

/// Sets the shards of the farm.
pub fn set_shards(db: &mut Connection, shards: &BTreeSet<ShardId>) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    tx.execute("DELETE FROM farm_shards", [])?;
    for shard in shards {
        tx.execute("INSERT INTO farm_shards (id) VALUES (?1)", [shard.0])?;
    }
    tx.commit()
}

/// Takes the next numbers of jobs and workers.
pub fn lease_numbers(db: &mut Connection, count: u64) -> rusqlite::Result<(Range<u64>, Range<u64>)> {
    let tx = db.transaction()?;
    let next = |name: &str| -> rusqlite::Result<u64> {
        let found: Option<i64> =
            tx.query_row("SELECT value FROM meta WHERE key = ?1", [name], |row| row.get(0)).optional()?;
        Ok(found.unwrap_or(1).max(1) as u64)
    };
    let last: i64 = tx.query_row("SELECT coalesce(max(id), 0) FROM workers", [], |row| row.get(0))?;
    let (job, worker) = (next("next_job")?, next("next_worker")?.max(last as u64 + 1));
    for (name, value) in [("next_job", job + count), ("next_worker", worker + count)] {
        let set = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        tx.execute(set, (name, int(value)))?;
    }
    tx.commit()?;
    Ok((job..job + count, worker..worker + count))
}

fn message(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Message> {
    message_from_json(row.get_ref(column)?.as_str()?).map_err(|e| unreadable(column, e))
}

fn unreadable(column: usize, error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
