//! The board: pending steps, decisions with their scores, and workers.

use super::App;
use super::extract::Query;
use super::lists::{PAGE_DEFAULT, PAGE_MAX, within};
use crate::api_error::ApiError;
use crate::view;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use windlass_api::board::{
    Board, BoardDecision, BoardWorker, PendingJob, PendingJobs, RuleEntry, ScoringSummary, WinnerPoints,
};
use windlass_core::score::policy::rule_catalog;
use windlass_core::time::NS_PER_S;
use windlass_core::{Engine, Time};

/// Steps that one answer names.
const JOBS_MAX: usize = 500;
/// Workers that one answer names.
const WORKERS_MAX: usize = 10_000;
/// Decisions of which a summary is made, where the caller does not say, and at most.
const SAMPLE_DEFAULT: usize = 2_000;
const SAMPLE_MAX: usize = 10_000;
/// Hours that a summary looks back, the same.
const WINDOW_HOURS_DEFAULT: u64 = 24;
const WINDOW_HOURS_MAX: u64 = 24 * 365;

type BoardReply<T> = Result<Json<Board<T>>, ApiError>;

fn answer<T>(message: T) -> BoardReply<T> {
    Ok(Json(Board::new(message)))
}

/// Names the rules of all scoring policies.
#[utoipa::path(get, path = "/api/v1/board/scoring/rules", tag = "board",
    responses((status = 200, description = "The rules by name", body = Board<Vec<RuleEntry>>)))]
pub async fn rules() -> BoardReply<Vec<RuleEntry>> {
    let entry = |(rule, description): (&str, &str)| RuleEntry {
        rule: rule.to_owned(),
        description: description.to_owned(),
    };
    answer(rule_catalog().into_iter().map(entry).collect())
}

/// Of which decisions to make a summary.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct SummaryQuery {
    /// Hours back from now in which they were made: 24 by default.
    window_hours: Option<u64>,
    /// Decisions that are summed up, the last ones: 2000 by default, 10000 at most. Behind the last 1000 they are a sample
    /// of the day.
    limit: Option<usize>,
}

/// Sums up how the tasks that were placed of late were scored where they went.
#[utoipa::path(get, path = "/api/v1/board/scoring/summary", tag = "board", params(SummaryQuery),
    responses((status = 200, description = "The summary", body = Board<ScoringSummary>)))]
pub async fn summary(
    State(app): State<App>,
    Query(query): Query<SummaryQuery>,
) -> BoardReply<ScoringSummary> {
    let hours = within("window_hours", query.window_hours, WINDOW_HOURS_DEFAULT, WINDOW_HOURS_MAX)?;
    let limit = within("limit", query.limit, SAMPLE_DEFAULT, SAMPLE_MAX)?;
    let from = Time(app.handle.now().0.saturating_sub(hours * 3600 * NS_PER_S));
    let look = move |engine: &Engine| {
        let recent = engine.planner().decisions().take_while(|decision| decision.at >= from).take(limit);
        recent
            .filter_map(|decision| Some((decision.at, decision.ranked().into_iter().next()?.breakdown)))
            .collect::<Vec<_>>()
    };
    let recent = app.handle.query(look).await?;
    let oldest_ms = recent.last().map_or(u64::MAX, |(at, _)| at.as_ms());
    let mut winners: Vec<WinnerPoints> =
        recent.iter().map(|(_, breakdown)| WinnerPoints::from_core(breakdown)).collect();
    let mut kept = kept_decisions(&app, oldest_ms, limit - winners.len()).await;
    kept.retain(|decision| decision.at >= from.as_ms());
    winners.extend(kept.iter().filter_map(WinnerPoints::of));
    answer(ScoringSummary::of(&winners))
}

/// Up to `limit` decisions that are kept of those before a time, newest first.
async fn kept_decisions(app: &App, before_ms: u64, limit: usize) -> Vec<BoardDecision> {
    if limit == 0 {
        return Vec::new();
    }
    let kept = app.shared.figures.kept_decisions();
    // They are compressed.
    let read = tokio::task::spawn_blocking(move || kept.before(before_ms, limit));
    // A server that ends has none.
    read.await.unwrap_or_default()
}

/// Lists steps with tasks that wait and may start, in the order of their turns, and why they wait.
#[utoipa::path(get, path = "/api/v1/board/jobs/pending", tag = "board",
    responses((status = 200, description = "The first 500", body = Board<PendingJobs>)))]
pub async fn pending(State(app): State<App>) -> BoardReply<PendingJobs> {
    answer(app.handle.query(look_pending).await?)
}

fn look_pending(engine: &Engine) -> PendingJobs {
    let mut known = windlass_core::explain::Known::default();
    let steps = engine.queues().in_turn().flat_map(|(_, queue)| queue.in_order()).take(JOBS_MAX);
    let jobs = steps.filter_map(|(candidate, _)| {
        let reason = windlass_core::explain::wait_reason(engine, candidate.step(), &mut known)?;
        view::pending_job(engine, candidate.step(), &reason)
    });
    let jobs: Vec<PendingJob> = jobs.collect();
    let shown: u64 = jobs.iter().map(|job| u64::from(job.tasks)).sum();
    let ready = u64::from(engine.counts().ready);
    PendingJobs { jobs, other_pending: ready.saturating_sub(shown) }
}

/// Which decisions to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DecisionsQuery {
    /// Entries of the answer: 100 by default, 1000 at most. Behind the last 1000 they are a sample of the day.
    limit: Option<usize>,
    /// Milliseconds since 1970 before which they were made: all by default. The `at` of an answer's last entry asks for
    /// older ones.
    before: Option<u64>,
}

/// Lists the last decisions, newest first, with what each rule said of the winner and the next best. A task
/// looked for a worker each time, so the candidates are workers. For administrators.
#[utoipa::path(get, path = "/api/v1/board/jobs/decisions", tag = "board", params(DecisionsQuery),
    responses((status = 200, description = "The decisions", body = Board<Vec<BoardDecision>>),
              (status = 403, description = "For administrators alone", body = windlass_api::ErrorBody)))]
pub async fn decisions(
    State(app): State<App>,
    Query(query): Query<DecisionsQuery>,
) -> BoardReply<Vec<BoardDecision>> {
    let limit = within("limit", query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let before = query.before.unwrap_or(u64::MAX);
    let placed = app.handle.parts().placed.clone();
    let look = move |engine: &Engine| {
        let recent =
            engine.planner().decisions().skip_while(|decision| decision.at.as_ms() >= before).take(limit);
        recent.map(|decision| view::decision(engine, decision, &placed)).collect::<Vec<_>>()
    };
    let mut found = app.handle.query(look).await?;
    let oldest = found.last().map_or(before, |decision| decision.at);
    found.extend(kept_decisions(&app, oldest, limit - found.len()).await);
    answer(found)
}

/// Lists what workers have and use.
#[utoipa::path(get, path = "/api/v1/board/workers", tag = "board",
    responses((status = 200, description = "The first 10000 by id", body = Board<Vec<BoardWorker>>)))]
pub async fn workers(State(app): State<App>) -> BoardReply<Vec<BoardWorker>> {
    let look = |engine: &Engine| {
        let workers = engine.workers().present().take(WORKERS_MAX);
        workers.map(|worker| view::board_worker(engine, worker)).collect::<Vec<_>>()
    };
    answer(app.handle.query(look).await?)
}
