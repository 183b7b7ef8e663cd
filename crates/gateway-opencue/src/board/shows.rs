//! Shows with their subscriptions, and how much work they have.

use super::trouble::BoardTrouble;
use super::{Board, cores, page_size, part, text};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_api::Page;

/// Subscriptions of all shows of a page that are listed.
const SUBSCRIPTIONS_MAX: i64 = 10_000;

/// `$1` is what [`Scope::owned`](crate::scheduler::snapshot::Scope::owned) asks for.
const SHOWS: &str = "SELECT w.pk_show, w.str_name, coalesce(({owned}), false), w.b_paused OR NOT w.b_booking_enabled,
        f.jobs, f.waiting, f.running, b.size, b.burst, b.cores,
        (SELECT coalesce(sum(o.int_size), 0)::bigint FROM subscription o JOIN show v USING (pk_show) WHERE v.b_active)
    FROM show w
        CROSS JOIN LATERAL (SELECT count(*) AS jobs, coalesce(sum(s.int_waiting_count), 0)::bigint AS waiting,
            coalesce(sum(s.int_running_count), 0)::bigint AS running FROM job j JOIN job_stat s USING (pk_job)
            WHERE j.pk_show = w.pk_show AND j.str_state = 'PENDING') f
        CROSS JOIN LATERAL (SELECT coalesce(sum(int_size), 0)::bigint AS size,
            coalesce(sum(int_burst), 0)::bigint AS burst, coalesce(sum(int_cores), 0)::bigint AS cores
            FROM subscription u WHERE u.pk_show = w.pk_show) b
    WHERE w.b_active AND ($2::text IS NULL OR w.str_name > $2) ORDER BY w.str_name LIMIT $3";
const SUBSCRIPTIONS: &str = "SELECT s.pk_show, a.str_name, s.int_size::bigint, s.int_burst::bigint, s.int_cores::bigint
    FROM subscription s JOIN alloc a USING (pk_alloc) WHERE s.pk_show = ANY($1::text[]) ORDER BY a.str_name LIMIT $2";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowsQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct ShowFigures {
    #[serde(skip)]
    key: String,
    name: String,
    /// Windlass books its frames, and not Cuebot.
    scheduled: bool,
    /// Nothing of it is booked.
    paused: bool,
    /// Jobs that have not ended.
    jobs: i64,
    waiting: i64,
    running: i64,
    /// Cores of all its subscriptions.
    size: f64,
    burst: f64,
    cores: f64,
    /// Its part of the sizes of all shows; null where all are 0.
    share: Option<f64>,
    subscriptions: Vec<SubscriptionFigures>,
}

/// What a show may use of an allocation, in cores.
#[derive(Serialize)]
struct SubscriptionFigures {
    alloc: String,
    size: f64,
    burst: f64,
    cores: f64,
}

/// Lists active shows by name.
pub(super) async fn list(
    State(board): State<Arc<Board>>,
    query: Result<Query<ShowsQuery>, QueryRejection>,
) -> Result<Json<Page<ShowFigures>>, BoardTrouble> {
    let Query(asked) = query?;
    let (size, after) = (page_size(asked.limit)?, text("cursor", asked.cursor)?);
    let client = board.client().await?;
    let statement = SHOWS.replace("{owned}", board.scope.owned());
    let rows = client.query(&statement, &[&board.scope.shows, &after, &(size as i64 + 1)]).await?;
    let mut shows = Vec::new();
    for row in &rows {
        let (size, all): (i64, i64) = (row.get(7), row.get(10));
        shows.push(ShowFigures {
            key: row.get(0),
            name: row.get(1),
            scheduled: row.get(2),
            paused: row.get(3),
            jobs: row.get(4),
            waiting: row.get(5),
            running: row.get(6),
            size: cores(size),
            burst: cores(row.get(8)),
            cores: cores(row.get(9)),
            share: (all > 0).then(|| size as f64 / all as f64),
            subscriptions: Vec::new(),
        });
    }
    let mut page = part(shows, size, |show| show.name.clone());
    let keys: Vec<&String> = page.items.iter().map(|show| &show.key).collect();
    let mut of_shows: BTreeMap<String, Vec<SubscriptionFigures>> = BTreeMap::new();
    for row in client.query(SUBSCRIPTIONS, &[&keys, &SUBSCRIPTIONS_MAX]).await? {
        of_shows.entry(row.get(0)).or_default().push(SubscriptionFigures {
            alloc: row.get(1),
            size: cores(row.get(2)),
            burst: cores(row.get(3)),
            cores: cores(row.get(4)),
        });
    }
    for show in &mut page.items {
        show.subscriptions = of_shows.remove(&show.key).unwrap_or_default();
    }
    Ok(Json(page))
}
