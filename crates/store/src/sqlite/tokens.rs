//! Rows of tokens. The server creates and revokes them outside of the engine's batches, and looks
//! them up for callers. A row has the hash of the secret, never the secret.

use super::numbers::time;
use crate::spec;
use crate::view::{TokenRecord, TokenWrite};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use windlass_core::Time;

const TOKEN: &str =
    "SELECT id, hash, role, user, worker, note, created, expires, revoked, serves, for_users, queue
                     FROM tokens";

/// Applies a change; false if the id of a new token is taken, or if there is no such token to revoke.
pub fn apply(db: &Connection, write: &TokenWrite) -> rusqlite::Result<bool> {
    let rows = match write {
        TokenWrite::Create(token) => db
            .prepare_cached(
                "INSERT INTO tokens
                     (id, hash, role, user, worker, note, created, expires, revoked, serves, for_users, queue)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                token.id,
                token.hash,
                token.role,
                token.user,
                token.worker,
                token.note,
                time(token.created),
                token.expires.map(time),
                token.revoked.map(time),
                (!token.serves.is_empty()).then(|| spec::names_to_json(&token.serves)),
                (!token.for_users.is_empty()).then(|| spec::names_to_json(&token.for_users)),
                token.queue,
            ])?,
        TokenWrite::Revoke(id, at) => db
            .prepare_cached("UPDATE tokens SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL")?
            .execute(params![id, time(*at)])?,
    };
    Ok(rows > 0)
}

pub fn all(db: &Connection) -> rusqlite::Result<Vec<TokenRecord>> {
    db.prepare_cached(&format!("{TOKEN} ORDER BY id"))?.query_map([], token_from)?.collect()
}

pub fn one(db: &Connection, id: &str) -> rusqlite::Result<Option<TokenRecord>> {
    db.prepare_cached(&format!("{TOKEN} WHERE id = ?1"))?.query_row([id], token_from).optional()
}

fn token_from(row: &Row<'_>) -> rusqlite::Result<TokenRecord> {
    let at = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(|ns| Time(ns as u64)));
    let created = at(6)?.ok_or_else(|| {
        rusqlite::Error::FromSqlConversionFailure(6, Type::Null, "a token without a beginning".into())
    })?;
    let names = |column| {
        spec::names_from_json(row.get(column)?)
            .map_err(|e| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(e)))
    };
    Ok(TokenRecord {
        id: row.get(0)?,
        hash: row.get(1)?,
        role: row.get(2)?,
        user: row.get(3)?,
        worker: row.get(4)?,
        note: row.get(5)?,
        created,
        expires: at(7)?,
        revoked: at(8)?,
        serves: names(9)?,
        // An empty list gives a submitter no right.
        for_users: names(10)?,
        queue: row.get(11)?,
    })
}

/// Deletes up to `limit` tokens that were revoked or expired before `before`; returns how many were deleted.
pub fn forget(tx: &Transaction<'_>, before: Time, limit: usize) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "DELETE FROM tokens WHERE id IN
             (SELECT id FROM tokens WHERE revoked < ?1 OR expires < ?1 ORDER BY id LIMIT ?2)",
    )?
    .execute((time(before), limit as i64))
}
