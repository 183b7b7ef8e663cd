//! Rows of turns: upserts and deletes by key in a batch's transaction, and all rows when an engine starts.

use super::numbers::{int, time};
use crate::turns::{charge, clock_key, clock_of, flags, from_charge, from_flags, join, split};
use rusqlite::{Connection, Transaction, params};
use windlass_core::Time;
use windlass_core::queues::{ClockRecord, QueueTurn, SavedTurns, TurnClock, TurnRecord};

/// Replaces rows, and deletes those that are to go. It is never refused: the result is always 1.
pub fn save(tx: &Transaction<'_>, saved: &SavedTurns) -> rusqlite::Result<usize> {
    for TurnRecord { queue, user, turn } in &saved.turns {
        let (part, user) = (user.is_some(), user.as_deref().unwrap_or(""));
        let Some(turn) = turn else {
            tx.prepare_cached("DELETE FROM turns WHERE queue = ?1 AND part = ?2 AND user = ?3")?
                .execute((queue, part, user))?;
            continue;
        };
        let (start, frac) = split(turn.start);
        tx.prepare_cached(
            "INSERT OR REPLACE INTO turns (queue, part, user, band, start, frac, rest, weight, task, since, flags,
                 ahead, rate, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute(params![
            queue,
            part,
            user,
            turn.band,
            start,
            frac,
            turn.rest,
            turn.weight,
            int(turn.task),
            int(turn.since),
            flags(turn),
            int(turn.ahead),
            int(turn.rate),
            time(turn.at),
        ])?;
    }
    for ClockRecord { of, clock } in &saved.clocks {
        let (band, queue) = clock_key(of);
        let Some(clock) = clock else {
            tx.prepare_cached("DELETE FROM turn_clocks WHERE band = ?1 AND queue = ?2")?
                .execute((band, queue))?;
            continue;
        };
        let (whole, frac) = split(clock.virtual_time);
        tx.prepare_cached(
            "INSERT OR REPLACE INTO turn_clocks (band, queue, time, frac, express_in, charge)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute((band, queue, whole, frac, clock.express_in, charge(clock.charge)))?;
    }
    Ok(1)
}

/// All rows, in the order of their keys.
pub fn load(db: &Connection) -> rusqlite::Result<SavedTurns> {
    let mut turns = db.prepare_cached(
        "SELECT queue, part, user, band, start, frac, rest, weight, task, since, flags, ahead, rate, at FROM turns
         ORDER BY queue, part, user",
    )?;
    let turns = turns.query_map([], |row| {
        let (waits, passed, express) = from_flags(row.get(10)?);
        let unsigned = |column| row.get::<_, i64>(column).map(|number| number.max(0) as u64);
        let turn = QueueTurn {
            band: row.get(3)?,
            start: join(row.get(4)?, row.get(5)?),
            rest: row.get(6)?,
            weight: row.get(7)?,
            task: unsigned(8)?,
            since: unsigned(9)?,
            waits,
            passed,
            express,
            ahead: unsigned(11)?,
            rate: unsigned(12)?,
            at: Time(unsigned(13)?),
        };
        let user = if row.get(1)? { Some(row.get(2)?) } else { None };
        Ok(TurnRecord { queue: row.get(0)?, user, turn: Some(turn) })
    })?;
    let mut clocks = db.prepare_cached(
        "SELECT band, queue, time, frac, express_in, charge FROM turn_clocks
         ORDER BY band < 0, band, queue",
    )?;
    let clocks = clocks.query_map([], |row| {
        let clock = TurnClock {
            virtual_time: join(row.get(2)?, row.get(3)?),
            express_in: row.get(4)?,
            charge: from_charge(row.get(5)?),
        };
        let of = clock_of(row.get(0)?, row.get_ref(1)?.as_str()?);
        Ok(ClockRecord { of, clock: Some(clock) })
    })?;
    Ok(SavedTurns {
        turns: turns.collect::<rusqlite::Result<_>>()?,
        clocks: clocks.collect::<rusqlite::Result<_>>()?,
    })
}
