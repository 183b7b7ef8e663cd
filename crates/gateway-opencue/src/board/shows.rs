//! Shows with their subscriptions, and how much work they have.

use super::data::Board;
use super::pages::{page, page_size, text};
use super::trouble::BoardTrouble;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use windlass_api::Page;

/// Subscriptions of one show that are listed.
const SUBSCRIPTIONS_MAX: i64 = 1_000;

/// Shows, with their names as cursors. `$1` is what [`Scope::owned`](crate::scheduler::snapshot::Scope::owned) asks for.
/// Windlass books the frames of a scheduled show, and not Cuebot; of a paused one nothing is booked. Jobs are those that
/// have not ended. A share is a show's part of the sizes of all active shows.
const SHOWS: &str = "SELECT json_build_object('name', w.str_name, 'scheduled', coalesce(({owned}), false),
        'paused', w.b_paused OR NOT w.b_booking_enabled, 'jobs', f.jobs, 'waiting', f.waiting, 'running', f.running,
        'size', b.size / 100.0, 'burst', b.burst / 100.0, 'cores', b.cores / 100.0,
        'share', b.size / nullif((SELECT sum(o.int_size) FROM subscription o JOIN show v USING (pk_show)
            WHERE v.b_active), 0)::numeric,
        'subscriptions', ARRAY(SELECT json_build_object('alloc', a.str_name, 'size', u.int_size / 100.0,
                'burst', u.int_burst / 100.0, 'cores', u.int_cores / 100.0)
            FROM subscription u JOIN alloc a USING (pk_alloc) WHERE u.pk_show = w.pk_show
            ORDER BY a.str_name LIMIT $4))::text, w.str_name
    FROM show w
        CROSS JOIN LATERAL (SELECT count(*) AS jobs, coalesce(sum(s.int_waiting_count), 0) AS waiting,
            coalesce(sum(s.int_running_count), 0) AS running FROM job j JOIN job_stat s USING (pk_job)
            WHERE j.pk_show = w.pk_show AND j.str_state = 'PENDING') f
        CROSS JOIN LATERAL (SELECT coalesce(sum(int_size), 0) AS size, coalesce(sum(int_burst), 0) AS burst,
            coalesce(sum(int_cores), 0) AS cores FROM subscription u WHERE u.pk_show = w.pk_show) b
    WHERE w.b_active AND ($2::text IS NULL OR w.str_name > $2) ORDER BY w.str_name LIMIT $3";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowsQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// Lists active shows by name.
pub(super) async fn list(
    State(board): State<Arc<Board>>,
    query: Result<Query<ShowsQuery>, QueryRejection>,
) -> Result<Json<Page<Value>>, BoardTrouble> {
    let Query(asked) = query?;
    let (size, after) = (page_size(asked.limit)?, text("cursor", asked.cursor)?);
    let client = board.client().await?;
    let statement = SHOWS.replace("{owned}", board.scope.owned());
    let most = size as i64 + 1;
    let rows = client.query(&statement, &[&board.scope.shows, &after, &most, &SUBSCRIPTIONS_MAX]).await?;
    Ok(Json(page(&rows, size)))
}
