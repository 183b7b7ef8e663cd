//! Bookings per second, beside a floor of the same rows in statements that were written by hand.

use super::Postgres;
use super::statements::WriteKind;
use super::trouble::Trouble;
use crate::{Store, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use windlass_core::engine::{Outbox, Write};
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

/// The lease of the farm for the time of the measurement.
const LEASE: Duration = Duration::from_secs(600);
/// How often commits and the floor take turns, so that both meet the same disk.
const TURNS: u32 = 4;
/// The jobs whose tasks are booked: by commits, and by the floor.
const JOBS: [u64; 2] = [u64::MAX >> 2, (u64::MAX >> 2) - 1];

/// Bookings per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BookingRates {
    /// By [`Store::commit`](crate::Store::commit), under an epoch.
    pub commit: f64,
    /// By the same statement and a counter, sent by hand in a transaction.
    pub floor: f64,
    /// SQL statements that a commit ran for each booking.
    pub statements_per_task: f64,
    /// Bookings of a transaction.
    pub batch: u32,
}

/// Books `rows` tasks in batches of `batch`, by commits and by hand in turns, and deletes them. No server may use the
/// database meanwhile.
pub async fn bench_bookings(address: &str, rows: u32, batch: u32) -> Result<BookingRates, StoreError> {
    let postgres = Postgres::connect(address).await?;
    let store = Store::Postgres(postgres.clone());
    let server = store.register_server("bench", &[], env!("CARGO_PKG_VERSION"), None).await?;
    let Some(ownership) = store.claim(server, LEASE).await? else {
        return Err(StoreError::Owned {
            database: postgres.shown().to_owned(),
            by: "another server".to_owned(),
        });
    };
    let owner = store.as_owner(ownership);
    let (client, driver) = postgres.database.target.connect(&postgres.database.runtime).await?;
    let result = take_turns(&owner, &postgres, &client, rows, batch).await;
    let jobs = JOBS.map(|job| job as i64).to_vec();
    let deleted = client.execute("DELETE FROM tasks WHERE job = ANY($1)", &[&jobs]).await;
    driver.abort();
    store.server_leaves(server).await?;
    deleted.map_err(|e| Trouble::Sql(e).while_it("deleted what it measured with"))?;
    result
}

async fn take_turns(
    owner: &Store,
    postgres: &Postgres,
    client: &Client,
    rows: u32,
    batch: u32,
) -> Result<BookingRates, StoreError> {
    let failed = |e| Trouble::Sql(e).while_it("measured");
    client
        .batch_execute("CREATE TEMP TABLE floor (batch bigint); INSERT INTO floor VALUES (0)")
        .await
        .map_err(failed)?;
    let book = client.prepare(WriteKind::First.sql()).await.map_err(failed)?;
    let (mut commits, mut by_hand, mut booked) = (Duration::ZERO, Duration::ZERO, 0);
    let before = postgres.statements();
    let each = (rows / TURNS).max(batch);
    for turn in 0..TURNS {
        let range = turn * each..(turn + 1) * each;
        let clock = Instant::now();
        for first in range.clone().step_by(batch as usize) {
            let writes =
                (first..(first + batch).min(range.end)).map(|index| booking(JOBS[0], index)).collect();
            owner.commit(Arc::new(Outbox { writes, ..Outbox::default() })).await?;
        }
        commits += clock.elapsed();
        let clock = Instant::now();
        for first in range.clone().step_by(batch as usize) {
            let numbers: Vec<i64> = (first..(first + batch).min(range.end)).map(i64::from).collect();
            let all = |value: i64| vec![value; numbers.len()];
            let (job, one, cpu, none) = (all(JOBS[1] as i64), all(1), all(100), all(0));
            client.batch_execute("BEGIN").await.map_err(failed)?;
            let row: [&(dyn ToSql + Sync); 8] = [&job, &numbers, &one, &one, &one, &one, &cpu, &none];
            client.query(&book, &row).await.map_err(failed)?;
            client.batch_execute("UPDATE floor SET batch = batch + 1; COMMIT").await.map_err(failed)?;
        }
        by_hand += clock.elapsed();
        booked += each;
    }
    let statements = (postgres.statements() - before) as f64;
    let per_second = |time: Duration| f64::from(booked) / time.as_secs_f64();
    Ok(BookingRates {
        commit: per_second(commits),
        floor: per_second(by_hand),
        statements_per_task: statements / f64::from(booked),
        batch,
    })
}

fn booking(job: u64, index: u32) -> Write {
    let (task, worker, epoch) = (TaskId { job: JobId(job), index }, WorkerId(1), Epoch(1));
    Write::Book { task, attempt: 1, worker, epoch, at: Time(1), amounts: (100, 0) }
}
