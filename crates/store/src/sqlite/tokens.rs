//! Rows of tokens. The server creates and revokes them outside of the engine's batches, and looks
//! them up for callers. A row has the hash of the secret, never the secret.

use super::read::Reader;
use crate::codes::time;
use crate::view::{TokenRecord, TokenWrite};
use crate::{rows, spec};
use rusqlite::{Connection, Transaction, params};
use windlass_core::Time;

const TOKEN: &str =
    "id, hash, role, user, worker, note, created, expires, revoked, serves, for_users, queue, cache";

/// Adds or revokes a token. False if the new id is taken, or if the token to revoke does not exist.
pub fn apply(db: &Connection, write: &TokenWrite) -> rusqlite::Result<bool> {
    let rows = match write {
        TokenWrite::Create(token) => db
            .prepare_cached(&format!(
                "INSERT INTO tokens ({TOKEN}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
                 ON CONFLICT DO NOTHING"
            ))?
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
                (!token.serves.is_empty()).then(|| spec::to_json(&token.serves)),
                (!token.for_users.is_empty()).then(|| spec::to_json(&token.for_users)),
                token.queue,
                token.cache,
            ])?,
        TokenWrite::Revoke(id, at) => db
            .prepare_cached("UPDATE tokens SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL")?
            .execute(params![id, time(*at)])?,
    };
    Ok(rows > 0)
}

impl Reader {
    pub fn tokens(&self) -> rusqlite::Result<Vec<TokenRecord>> {
        let mut all = self.db.prepare_cached(&format!("SELECT {TOKEN} FROM tokens ORDER BY id"))?;
        all.query_map([], |row| Ok(rows::token(row)?))?.collect()
    }
}

/// Deletes up to `limit` tokens that were revoked or expired before `before`; returns how many were deleted.
pub fn forget(tx: &Transaction<'_>, before: Time, limit: usize) -> rusqlite::Result<usize> {
    tx.prepare_cached(
        "DELETE FROM tokens WHERE id IN
             (SELECT id FROM tokens WHERE revoked < ?1 OR expires < ?1 ORDER BY id LIMIT ?2)",
    )?
    .execute((time(before), limit as i64))
}
