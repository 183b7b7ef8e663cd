//! Baselines: the rows of a farm, written to the schema of its store in statements that were written by hand.

use super::work;
use anyhow::Context as _;
use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls};
use windlass_core::engine::Write;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};
use windlass_store::Store;

/// Books a task in SQLite.
const BOOK_ONE: &str = "INSERT INTO tasks (job, idx, state, attempt, worker, epoch, booked, cpu, memory)
    VALUES (1, ?1, 1, 1, 1, 1, 1, 100, 0) ON CONFLICT DO NOTHING";
const END_ONE: &str =
    "UPDATE tasks SET state = 2, failures = 0, losses = 0, end = 0, code = 0, out_bytes = 0, err_bytes = 0
    WHERE job = 1 AND idx = ?1 AND attempt = 1 AND state = 1";
/// Books many tasks in PostgreSQL, one for each place of the arrays.
const BOOK_MANY: &str = "INSERT INTO tasks (job, idx, state, attempt, worker, epoch, booked, cpu, memory)
    SELECT job, idx, 1, attempt, worker, epoch, booked, cpu, memory
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[]) AS v(job, idx, attempt, worker, epoch, booked, cpu, memory)
    ON CONFLICT DO NOTHING RETURNING job, idx";
/// Where the sockets of a database on this machine are, if the address names no host. The store looks there, too.
const SOCKETS: &str = "/var/run/postgresql";
/// Turns of the store and of the statements by hand, so that both meet the same disk.
const TURNS: u32 = 4;
/// The jobs whose tasks are booked: by the store, and by hand. No farm reaches these numbers.
const JOBS: [u64; 2] = [u64::MAX >> 2, (u64::MAX >> 2) - 1];

/// Rows a second of a bare loop over a new SQLite file, with the schema and the settings of the store. Each transaction
/// ends one batch of rows and books the next.
pub fn sqlite_rows(path: &Path, rows: u32, batch: u32) -> anyhow::Result<f64> {
    // The store makes the schema, and puts the file into WAL mode.
    drop(work::open(path)?);
    let mut db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(10))?;
    db.pragma_update(None, "synchronous", "full")?;
    db.pragma_update(None, "wal_autocheckpoint", 8_192)?;
    db.pragma_update(None, "journal_size_limit", 64 << 20)?;
    db.pragma_update(None, "cache_size", -16_384)?;
    let clock = Instant::now();
    let mut first = 0;
    while first < rows {
        let transaction = db.transaction()?;
        for index in first.saturating_sub(batch)..first {
            transaction.prepare_cached(END_ONE)?.execute([index])?;
        }
        for index in first..(first + batch).min(rows) {
            transaction.prepare_cached(BOOK_ONE)?.execute([index])?;
        }
        transaction.commit()?;
        first += batch;
    }
    Ok(f64::from(rows) / clock.elapsed().as_secs_f64())
}

/// Bookings a second in one PostgreSQL database, in transactions of the same size.
pub struct BookingRates {
    /// By [`Store::commit`], under an epoch.
    pub by_store: f64,
    /// By [`BOOK_MANY`] and a counter.
    pub by_hand: f64,
}

/// Books `rows` tasks in batches of `batch`, by the store and by hand in turns, and deletes them. No server may own the
/// farm meanwhile.
pub async fn bookings(address: &str, rows: u32, batch: u32) -> anyhow::Result<BookingRates> {
    let owner = work::own(&Store::connect(address).await?).await?;
    let client = connect(address).await?;
    let rates = take_turns(&owner, &client, rows, batch).await;
    let jobs = JOBS.map(|job| job as i64).to_vec();
    let deleted = client.execute("DELETE FROM tasks WHERE job = ANY($1)", &[&jobs]).await;
    owner.release().await?;
    deleted.context("cannot delete the rows of the measurement")?;
    rates
}

/// A connection beside the store's, without TLS.
async fn connect(address: &str) -> anyhow::Result<Client> {
    let mut config = address.parse::<Config>().context("the statements by hand cannot use the address")?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host_path(SOCKETS);
    }
    let (client, connection) =
        config.connect(NoTls).await.context("the statements by hand have no connection")?;
    tokio::spawn(connection);
    // As in the store's sessions.
    client.batch_execute("SET plan_cache_mode = force_generic_plan; SET jit = off").await?;
    Ok(client)
}

async fn take_turns(owner: &Store, client: &Client, rows: u32, batch: u32) -> anyhow::Result<BookingRates> {
    client.batch_execute("CREATE TEMP TABLE floor (batch bigint); INSERT INTO floor VALUES (0)").await?;
    let book = client.prepare(BOOK_MANY).await?;
    let (mut store, mut hand, mut booked) = (Duration::ZERO, Duration::ZERO, 0);
    let each = (rows / TURNS).max(batch);
    for turn in 0..TURNS {
        let range = turn * each..(turn + 1) * each;
        let clock = Instant::now();
        for first in range.clone().step_by(batch as usize) {
            work::commit(owner, (first..(first + batch).min(range.end)).map(booking).collect()).await?;
        }
        store += clock.elapsed();
        let clock = Instant::now();
        for first in range.clone().step_by(batch as usize) {
            let numbers: Vec<i64> = (first..(first + batch).min(range.end)).map(i64::from).collect();
            let all = |value: i64| vec![value; numbers.len()];
            let (job, one, cpu, none) = (all(JOBS[1] as i64), all(1), all(100), all(0));
            client.batch_execute("BEGIN").await?;
            let row: [&(dyn ToSql + Sync); 8] = [&job, &numbers, &one, &one, &one, &one, &cpu, &none];
            client.query(&book, &row).await?;
            client.batch_execute("UPDATE floor SET batch = batch + 1; COMMIT").await?;
        }
        hand += clock.elapsed();
        booked += each;
    }
    let per_second = |time: Duration| f64::from(booked) / time.as_secs_f64();
    Ok(BookingRates { by_store: per_second(store), by_hand: per_second(hand) })
}

fn booking(index: u32) -> Write {
    let (task, worker, epoch) = (TaskId { job: JobId(JOBS[0]), index }, WorkerId(1), Epoch(1));
    Write::Book { task, attempt: 1, worker, epoch, at: Time(1), amounts: (100, 0) }
}
