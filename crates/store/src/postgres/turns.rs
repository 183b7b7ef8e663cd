//! Rows of turns: one statement for those that a batch changes or deletes, and all rows when an engine starts.

use super::column::{Column, text, transposed};
use super::trouble::Trouble;
use crate::rows;
use crate::turns::{clock_key, clock_numbers, numbers};
use std::collections::BTreeMap;
use tokio_postgres::Transaction;
use windlass_core::engine::Write;
use windlass_core::queues::{ClockRecord, SavedTurns, TurnRecord};

/// Replaces rows of turns and of clocks, and deletes those that are to go.
pub const TURNS: &str = "WITH t AS (SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::bool[], $5::bigint[],
            $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
            $13::bigint[], $14::bigint[], $15::bigint[])
            AS v(queue, part, submitter, gone, band, start, frac, rest, weight, task, since, flags, ahead, rate, at)),
        c AS (SELECT * FROM unnest($16::bigint[], $17::text[], $18::bool[], $19::bigint[], $20::bigint[], $21::bigint[],
            $22::bigint[]) AS v(band, queue, gone, time, frac, express_in, charge)),
        no_turn AS (DELETE FROM turns USING t WHERE t.gone AND turns.queue = t.queue AND turns.part = t.part
            AND turns.submitter = t.submitter),
        no_clock AS (DELETE FROM turn_clocks USING c WHERE c.gone AND turn_clocks.band = c.band
            AND turn_clocks.queue = c.queue),
        clock AS (INSERT INTO turn_clocks (band, queue, time, frac, express_in, charge)
            SELECT band, queue, time, frac, express_in, charge FROM c WHERE NOT gone
            ON CONFLICT (band, queue) DO UPDATE SET time = excluded.time, frac = excluded.frac,
                express_in = excluded.express_in, charge = excluded.charge)
    INSERT INTO turns (queue, part, submitter, band, start, frac, rest, weight, task, since, flags, ahead, rate, at)
        SELECT queue, part, submitter, band, start, frac, rest, weight, task, since, flags, ahead, rate, at
        FROM t WHERE NOT gone
        ON CONFLICT (queue, part, submitter) DO UPDATE SET band = excluded.band, start = excluded.start,
            frac = excluded.frac, rest = excluded.rest, weight = excluded.weight, task = excluded.task,
            since = excluded.since, flags = excluded.flags, ahead = excluded.ahead, rate = excluded.rate,
            at = excluded.at";

/// The parameters of [`TURNS`]. Of two rows with one key the later counts.
pub fn columns<'a>(writes: &[&'a Write]) -> Vec<Column<'a>> {
    let (mut turns, mut clocks) = (BTreeMap::new(), BTreeMap::new());
    for write in writes {
        let Write::Turns(saved) = write else { continue };
        for TurnRecord { queue, user, turn } in &saved.turns {
            let user_text = text(user.as_deref().unwrap_or("")).into_owned();
            let key = (text(queue).into_owned(), i16::from(user.is_some()), user_text);
            turns.insert(key, turn.as_ref().map(numbers));
        }
        for ClockRecord { of, clock } in &saved.clocks {
            let (band, queue) = clock_key(of);
            clocks.insert((band, text(queue).into_owned()), clock.as_ref().map(clock_numbers));
        }
    }
    let mut columns: Vec<Column<'a>> = vec![
        Box::new(turns.keys().map(|key| key.0.clone()).collect::<Vec<String>>()),
        Box::new(turns.keys().map(|key| key.1).collect::<Vec<i16>>()),
        Box::new(turns.keys().map(|key| key.2.clone()).collect::<Vec<String>>()),
        Box::new(turns.values().map(Option::is_none).collect::<Vec<bool>>()),
    ];
    columns.extend(transposed(turns.values().map(|row| row.unwrap_or_default()).collect()));
    columns.push(Box::new(clocks.keys().map(|key| key.0).collect::<Vec<i64>>()));
    columns.push(Box::new(clocks.keys().map(|key| key.1.clone()).collect::<Vec<String>>()));
    columns.push(Box::new(clocks.values().map(Option::is_none).collect::<Vec<bool>>()));
    columns.extend(transposed(clocks.values().map(|row| row.unwrap_or_default()).collect()));
    columns
}

/// All rows, in the order of their keys.
pub async fn load(at: &Transaction<'_>) -> Result<SavedTurns, Trouble> {
    let turns =
        "SELECT queue, part, submitter, band, start, frac, rest, weight, task, since, flags, ahead, rate, at
        FROM turns ORDER BY queue, part, submitter";
    let clocks =
        "SELECT band, queue, time, frac, express_in, charge FROM turn_clocks ORDER BY band < 0, band, queue";
    let turns = at.query(turns, &[]).await?;
    let clocks = at.query(clocks, &[]).await?;
    Ok(SavedTurns {
        turns: turns.iter().map(rows::turn).collect::<Result<_, _>>()?,
        clocks: clocks.iter().map(rows::clock).collect::<Result<_, _>>()?,
    })
}
