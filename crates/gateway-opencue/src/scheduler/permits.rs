//! Shows that an instance plans now. Two instances that plan the same frames would refuse each other's bookings, so
//! each show is planned by one instance at a time, under an advisory lock of PostgreSQL that ends with the instance.
//!
//! Where other instances plan all shows, an instance takes a second lock, which says that it is next, and looks for
//! the first one. An instance whose pass ended does not plan a show again while another one is next. PostgreSQL could
//! let it wait in a queue instead, but would hold a snapshot for it all the time. Until then no row that the others
//! change could be pruned, and they change the counts of layers, jobs and hosts with every batch.

use super::snapshot::Scope;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// The first half of the keys of the locks of instances that plan a show: "show" as a number.
const PLANS: i32 = 0x7368_6f77;
/// The same of instances that plan it next: "next" as a number.
const IS_NEXT: i32 = 0x6e65_7874;
/// The time between looks of an instance that is next.
const NEXT_LOOK_TIME: Duration = Duration::from_millis(5);
/// The time between looks of an instance that is not next.
const LATER_LOOK_TIME: Duration = Duration::from_millis(20);

/// Takes the free shows of a scope: no other instance plans them, and no other is next. If no show is free, it waits
/// up to `wait` for one of them. Returns `None` if none is free by then: a pass over no show would read the farm in
/// vain, and slow down the instances that plan. The caller releases all locks when its pass ends.
pub async fn take(
    client: &Client,
    scope: &Scope,
    wait: Duration,
) -> Result<Option<Vec<String>>, tokio_postgres::Error> {
    let (free, taken) = take_free(client, scope).await?;
    let Some(key) = taken.filter(|_| free.is_empty()) else { return Ok(Some(free)) };
    if !wait_for(client, key, wait).await? {
        return Ok(None);
    }
    // Others may have become free.
    let (free, _) = take_free(client, scope).await?;
    client.execute("SELECT pg_advisory_unlock($1, $2)", &[&IS_NEXT, &key]).await?;
    Ok(Some(free))
}

/// Takes the shows that are free; returns them, and the second half of the keys of one that is not.
async fn take_free(
    client: &Client,
    scope: &Scope,
) -> Result<(Vec<String>, Option<i32>), tokio_postgres::Error> {
    let sql = format!(
        "WITH own AS MATERIALIZED (SELECT w.pk_show, hashtext(w.pk_show) AS key FROM show w WHERE {}),
            tried AS MATERIALIZED (SELECT pk_show, key, CASE WHEN pg_try_advisory_lock($3, key)
                THEN pg_try_advisory_lock($2, key) END AS is_free FROM own)
         SELECT pk_show, key, coalesce(is_free, false),
            CASE WHEN is_free IS NOT NULL THEN pg_advisory_unlock($3, key) END FROM tried",
        scope.owned()
    );
    let (mut free, mut taken) = (Vec::new(), None);
    for row in client.query(&sql, &[&scope.shows, &PLANS, &IS_NEXT]).await? {
        match row.get(2) {
            true => free.push(row.get(0)),
            false => taken = taken.or(Some(row.get(1))),
        }
    }
    Ok((free, taken))
}

/// Waits until this instance plans a show, and is still the next one. False if that took too long.
async fn wait_for(client: &Client, key: i32, most: Duration) -> Result<bool, tokio_postgres::Error> {
    let began = Instant::now();
    let lock = client.prepare("SELECT pg_try_advisory_lock($1, $2)").await?;
    let mut is_next = false;
    loop {
        is_next = is_next || client.query_one(&lock, &[&IS_NEXT, &key]).await?.get(0);
        if is_next && client.query_one(&lock, &[&PLANS, &key]).await?.get(0) {
            return Ok(true);
        }
        let left = most.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        let pause = if is_next { NEXT_LOOK_TIME } else { LATER_LOOK_TIME };
        tokio::time::sleep(pause.min(left)).await;
    }
}
