//! Figures for those who look at the farm: overview, scheduler, series, history, grid.

use super::App;
use super::extract::{Path, Query};
use super::lists::within;
use super::workers::look;
use crate::api_error::ApiError;
use crate::auth;
use crate::figures::{HistoryQuestion, USAGE_DAYS_MAX, USAGE_ROWS_MAX, usage_day, usage_told};
use crate::reader::Reader;
use crate::view;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::collections::BTreeSet;
use utoipa::IntoParams;
use windlass_api::figures::{
    EndedJobs, FarmSeries, History, Overview, SchedulerFigures, Span, TaskGrid, Usage, WorkerSeries,
};
use windlass_core::job::JobState;
use windlass_core::{Engine, JobId};
use windlass_store::{EndedTotals, usage_since};

/// Milliseconds that rates look back, and quantiles.
const MINUTE_MS: u64 = 60_000;
const FIVE_MINUTES_MS: u64 = 300_000;

/// Shows the farm at a glance. The answer is at most a second old.
#[utoipa::path(get, path = "/api/v1/board/overview", tag = "board", responses((status = 200, body = Overview)))]
pub async fn overview(State(app): State<App>) -> Result<Response, ApiError> {
    let make = async || {
        let now = app.handle.now();
        let ends = app.handle.parts().links.token_ends();
        let look = move |engine: &Engine| {
            let mut overview = view::overview(engine, now);
            overview.suffering.extend(view::ending_tokens(engine, ends, auth::now()));
            overview
        };
        let overview = app.handle.query(look).await?;
        let (figures, tally) = (&app.shared.figures, app.handle.parts().metrics.tally());
        let minute = figures.last(MINUTE_MS, now.as_ms(), &tally);
        let five = figures.last(FIVE_MINUTES_MS, now.as_ms(), &tally);
        let mut overview = view::with_rates(overview, &minute, &five);
        let EndedTotals { succeeded, failed, canceled } = app.handle.store().ended_totals().await?;
        overview.ended = Some(EndedJobs { succeeded, failed, canceled });
        overview.holds.extend(app.handle.parts().disk.may_submit().err().map(|why| why.to_string()));
        Ok::<_, ApiError>(overview)
    };
    Ok(Json(&*app.shared.figures.overview.get(make).await?).into_response())
}

/// Shows the scheduler at work. The answer is at most a second old.
#[utoipa::path(get, path = "/api/v1/board/scheduler", tag = "board",
    responses((status = 200, body = SchedulerFigures)))]
pub async fn scheduler(State(app): State<App>) -> Result<Response, ApiError> {
    let make = async || {
        let now = app.handle.now();
        let shown = app.handle.query(move |engine| view::scheduler(engine, now)).await?;
        let (metrics, figures) = (&app.handle.parts().metrics, &app.shared.figures);
        let tally = metrics.tally();
        let since_start = (metrics.results_late(), tally.store_failures);
        let minute = figures.last(MINUTE_MS, now.as_ms(), &tally);
        let five = figures.last(FIVE_MINUTES_MS, now.as_ms(), &tally);
        Ok::<_, ApiError>(view::with_scheduler_rates(shown, &minute, &five, since_start))
    };
    Ok(Json(&*app.shared.figures.scheduler.get(make).await?).into_response())
}

/// Which stretch of time.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SeriesQuery {
    /// `hour`, in steps of ten seconds, which is the default; or `day`, in steps of five minutes.
    #[serde(default)]
    #[param(inline)]
    span: Span,
}

/// Shows the farm and its busiest queues over time. It is looked at every ten seconds, in the middle of each step; a day
/// is told up to the last five minutes that are over.
#[utoipa::path(get, path = "/api/v1/board/series", tag = "board", params(SeriesQuery),
    responses((status = 200, body = FarmSeries)))]
pub async fn series(
    State(app): State<App>,
    Query(SeriesQuery { span }): Query<SeriesQuery>,
) -> Result<Json<FarmSeries>, ApiError> {
    Ok(Json(app.shared.figures.farm_series(span, app.handle.now().as_ms())))
}

/// Shows a worker over time.
#[utoipa::path(get, path = "/api/v1/workers/{name}/series", tag = "workers",
    params(("name" = String, Path), SeriesQuery),
    responses((status = 200, body = WorkerSeries)))]
pub async fn worker_series(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(SeriesQuery { span }): Query<SeriesQuery>,
) -> Result<Json<WorkerSeries>, ApiError> {
    let (id, cpu) =
        look(&app, name, |_, worker| Some((worker.record.id, worker.record.capacity.cpu))).await?;
    let cpus = f64::from(cpu) / 100.0;
    Ok(Json(app.shared.figures.worker_series(id, cpus, span, app.handle.now().as_ms())))
}

/// Hours that a history looks back, where the caller does not say, and at most.
const HISTORY_HOURS: u64 = 24;
const HISTORY_HOURS_MAX: u64 = 24 * 365;

/// Which attempts the history is of.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// Hours back from now in which they ended: 24 by default.
    hours: Option<u64>,
    /// That ran on this worker.
    worker: Option<String>,
}

/// Shows what came of the attempts that ended: the last 20000 are remembered, those of earlier servers too. Others' tasks
/// are named only to callers who may read them.
#[utoipa::path(get, path = "/api/v1/board/history", tag = "board", params(HistoryQuery),
    responses((status = 200, body = History)))]
pub async fn history(
    State(app): State<App>,
    reader: Reader,
    Query(HistoryQuery { hours, worker }): Query<HistoryQuery>,
) -> Result<Json<History>, ApiError> {
    let hours = within("hours", hours, HISTORY_HOURS, HISTORY_HOURS_MAX)?;
    let since_ms = app.handle.now().as_ms().saturating_sub(hours * 60 * MINUTE_MS);
    let question = HistoryQuestion { since_ms, worker };
    Ok(Json(app.handle.parts().ended.history(&question, |user| reader.may_read(user))))
}

/// Days that the sums are of, where the caller does not say.
const USAGE_DAYS: u64 = 30;

/// For how many days the sums are told.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Days back from now, today among them: 30 by default, 400 at most, which is how long they are kept.
    days: Option<u64>,
}

/// Shows the cpu time that attempts took, by day, user and queue. The sums are kept as attempts end, so they outlive the
/// jobs. They are the same for all callers, as a job's user and queue are.
#[utoipa::path(get, path = "/api/v1/board/usage", tag = "board", params(UsageQuery),
    responses((status = 200, body = Usage)))]
pub async fn usage(
    State(app): State<App>,
    Query(UsageQuery { days }): Query<UsageQuery>,
) -> Result<Json<Usage>, ApiError> {
    let days = within("days", days, USAGE_DAYS, USAGE_DAYS_MAX)?;
    let today = usage_day(app.handle.now());
    let since = (today + 1).saturating_sub(days);
    let found = usage_since(app.handle.store(), since, USAGE_ROWS_MAX + 1).await?;
    Ok(Json(usage_told(found, since, today)))
}

/// From which task on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GridQuery {
    /// `next` of the part before; 0 by default.
    #[serde(default)]
    from: u32,
}

/// Shows the states of a job's tasks as runs, in order of their index.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/grid", tag = "jobs", params(("id" = u64, Path), GridQuery),
    responses((status = 200, body = TaskGrid)))]
pub async fn grid(
    State(app): State<App>,
    Path(id): Path<u64>,
    Query(GridQuery { from }): Query<GridQuery>,
) -> Result<Json<TaskGrid>, ApiError> {
    let id = JobId(id);
    if let Some(grid) = app.handle.query(move |engine| view::active_grid(engine, id, from)).await? {
        return Ok(Json(grid));
    }
    let store = app.handle.store();
    let job = store.job(id).await?.ok_or_else(|| ApiError::no_job(id))?;
    if job.state == JobState::Active {
        return Ok(Json(view::parked_grid(&job.spec, from)));
    }
    let record = store.records(BTreeSet::from([id])).await?.pop().ok_or_else(|| ApiError::no_job(id))?;
    Ok(Json(view::ended_grid(&record, from)))
}
