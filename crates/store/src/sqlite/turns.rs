//! Rows of turns: upserts and deletes by key in a batch's transaction, and all rows when an engine starts.

use crate::rows;
use crate::turns::{clock_key, clock_numbers, numbers};
use rusqlite::types::Value;
use rusqlite::{Connection, Transaction, params_from_iter};
use windlass_core::queues::{ClockRecord, SavedTurns, TurnRecord};

/// Replaces rows, and deletes those that are to go. It is never refused: the result is always 1.
pub fn save(tx: &Transaction<'_>, saved: &SavedTurns) -> rusqlite::Result<usize> {
    for TurnRecord { queue, user, turn } in &saved.turns {
        let (part, user) = (user.is_some(), user.as_deref().unwrap_or(""));
        let Some(turn) = turn else {
            tx.prepare_cached("DELETE FROM turns WHERE queue = ?1 AND part = ?2 AND user = ?3")?
                .execute((queue, part, user))?;
            continue;
        };
        let key = [Value::from(queue.clone()), part.into(), user.to_owned().into()];
        tx.prepare_cached(
            "INSERT OR REPLACE INTO turns (queue, part, user, band, start, frac, rest, weight, task, since, flags,
                 ahead, rate, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute(params_from_iter(key.into_iter().chain(numbers(turn).map(Value::from))))?;
    }
    for ClockRecord { of, clock } in &saved.clocks {
        let (band, queue) = clock_key(of);
        let Some(clock) = clock else {
            tx.prepare_cached("DELETE FROM turn_clocks WHERE band = ?1 AND queue = ?2")?
                .execute((band, queue))?;
            continue;
        };
        let [whole, frac, express_in, charge] = clock_numbers(clock);
        tx.prepare_cached(
            "INSERT OR REPLACE INTO turn_clocks (band, queue, time, frac, express_in, charge)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute((band, queue, whole, frac, express_in, charge))?;
    }
    Ok(1)
}

/// All rows, in the order of their keys.
pub fn load(db: &Connection) -> rusqlite::Result<SavedTurns> {
    let mut turns = db.prepare_cached(
        "SELECT queue, part, user, band, start, frac, rest, weight, task, since, flags, ahead, rate, at FROM turns
         ORDER BY queue, part, user",
    )?;
    let turns = turns.query_map([], |row| Ok(rows::turn(row)?))?;
    let mut clocks = db.prepare_cached(
        "SELECT band, queue, time, frac, express_in, charge FROM turn_clocks
         ORDER BY band < 0, band, queue",
    )?;
    let clocks = clocks.query_map([], |row| Ok(rows::clock(row)?))?;
    Ok(SavedTurns {
        turns: turns.collect::<rusqlite::Result<_>>()?,
        clocks: clocks.collect::<rusqlite::Result<_>>()?,
    })
}
