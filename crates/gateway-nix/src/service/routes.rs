//! The paths: access checks, and answers.

use super::builds::BuildSession;
use super::machines::MACHINES_OF_USER_MAX;
use super::needs::{self, FarmView};
use super::state::Service;
use crate::wire::{
    BUILDS_PATH, BadRequest, BuildEvent, BuildRequest, Report, TRY_PATH, TryAnswer, TryRequest, Wanted,
};
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use tokio::sync::mpsc;
use windlass_api::ErrorCode;
use windlass_core::class::Class;
use windlass_core::plan::placement::{self, Ineligible};
use windlass_core::worker::Origin;
use windlass_core::{Engine, JobId};
use windlass_server::auth::{Access, Caller};
use windlass_server::{ApiError, JsonLimits, read_json};

/// Bytes of a request with the largest number of inputs and machines, generously.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Unread lines of a hook's answer.
const LINES_MAX: usize = 16;
/// Builds of one user that wait or run.
const BUILDS_OF_USER_MAX: usize = 1_000;
/// Reasons that an answer gives for a derivation that cannot be built.
const REASONS_MAX: usize = 3;

pub fn routes(service: Service) -> Router {
    Router::new()
        .route(TRY_PATH, post(ask))
        .route(BUILDS_PATH, post(build))
        .route(&format!("{BUILDS_PATH}/{{job}}/report"), post(report))
        .with_state(service)
}

type Who = Option<Extension<Caller>>;

/// The caller, if it may build.
fn admit(caller: Who) -> Result<Caller, ApiError> {
    match caller {
        Some(Extension(caller)) if Access::User.is_for(caller.role) => Ok(caller),
        Some(Extension(caller)) => {
            let why = format!("'{}' may not build: that is for users and administrators", caller.user);
            Err(ApiError::new(ErrorCode::Forbidden, why).hint("create a token with --role user"))
        }
        None => Err(ApiError::new(ErrorCode::Unauthorized, "builds need a token")
            .hint("give the hook a token: WINDLASS_TOKEN_FILE")),
    }
}

async fn read<T: DeserializeOwned + Send + 'static>(service: &Service, body: Bytes) -> Result<T, ApiError> {
    let read = service.front().parse(body, |body| read_json::<T>(body, JsonLimits::GATEWAY)).await;
    read.map_err(|e| ApiError::new(ErrorCode::BadRequest, format!("invalid request body: {e}")))
}

/// Answers whether a derivation may be built elsewhere.
async fn ask(State(service): State<Service>, caller: Who, body: Bytes) -> Result<Json<TryAnswer>, ApiError> {
    let caller = admit(caller)?;
    service.front().may_ask(&caller)?;
    let TryRequest { wanted, in_flight_max } = read(&service, body).await?;
    check(wanted.check())?;
    let named = service.name_machines(&wanted, 1, &caller.user).await;
    let (of_user, in_flight) = service.held(&caller.user, &wanted.client);
    let answer = if of_user >= BUILDS_OF_USER_MAX || (in_flight_max > 0 && in_flight >= in_flight_max) {
        TryAnswer::Postpone
    } else {
        match service.handle().query(move |engine| why_nowhere(engine, &wanted, named)).await? {
            None => TryAnswer::Accept,
            Some(why) if service.state().machines.is_full(&caller.user) => {
                let max = MACHINES_OF_USER_MAX;
                let full =
                    format!("{why}; a user has {max} machines in 'builders' at most, each for 15 minutes");
                TryAnswer::Decline { why: full }
            }
            Some(why) => TryAnswer::Decline { why },
        }
    };
    let mut state = service.state();
    match answer {
        TryAnswer::Accept => state.counts.accepted += 1,
        TryAnswer::Postpone => state.counts.postponed += 1,
        TryAnswer::Decline { .. } => state.counts.declined += 1,
    }
    Ok(Json(answer))
}

fn check(bad: Result<(), BadRequest>) -> Result<(), ApiError> {
    bad.map_err(|why| ApiError::new(ErrorCode::BadRequest, why.to_string()))
}

/// Why no machine could ever build the derivation; `None` if one could.
fn why_nowhere(engine: &Engine, wanted: &Wanted, named: Vec<String>) -> Option<String> {
    let own: BTreeSet<String> = named.iter().cloned().collect();
    let farm = FarmView::of(engine, &wanted.store, named, BTreeSet::new());
    let needs = needs::needs(wanted, &farm);
    let class = Class { request: needs::amounts(None), needs, is_external: true, ..Class::default() };
    let mut reasons: Vec<(Ineligible, usize)> = Vec::new();
    let mut machines = 0;
    for worker in engine.workers().present() {
        // Leaves out workers that do not build for Nix, and other users' machines, which this user must not see.
        let is_others = Origin::of(&worker.record.name) == Origin::Nix && !own.contains(&*worker.record.name);
        if is_others || !needs::takes_builds(&worker.record.attributes) {
            continue;
        }
        machines += 1;
        let reason = placement::ineligibilities(&class, worker, false).next()?;
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    if machines == 0 {
        return Some("the farm has no machine that builds for Nix: 'windlass worker start --nix'".to_owned());
    }
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told = reasons.iter().take(REASONS_MAX).map(|(reason, count)| format!("{count}: {reason}"));
    let told = told.collect::<Vec<_>>().join("; ");
    Some(format!("none of the farm's {machines} machines for Nix could build it ({told})"))
}

/// Serves a hook that asks for a place. The answer lasts as long as the build.
async fn build(State(service): State<Service>, caller: Who, body: Bytes) -> Result<Response, ApiError> {
    let caller = admit(caller)?;
    let request: BuildRequest = read(&service, body).await?;
    check(request.check())?;
    if service.held(&caller.user, "").0 >= BUILDS_OF_USER_MAX {
        let why = format!("{BUILDS_OF_USER_MAX} builds of '{}' wait or run, and no more may", caller.user);
        return Err(ApiError::new(ErrorCode::Unavailable, why));
    }
    if *service.handle().closing().borrow() {
        return Err(ApiError::new(ErrorCode::Unavailable, "the server is ending"));
    }
    let (lines, told) = mpsc::channel(LINES_MAX);
    tokio::spawn(BuildSession::new(service, caller, request, lines).run());
    let told = tokio_stream::wrappers::ReceiverStream::new(told);
    let body = Body::from_stream(told.map(|event| Ok::<_, std::convert::Infallible>(line(&event))));
    Ok(([("content-type", "application/jsonl")], body).into_response())
}

fn line(event: &BuildEvent) -> Vec<u8> {
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Applies a hook's report about an attempt.
async fn report(
    State(service): State<Service>,
    caller: Who,
    Path(job): Path<u64>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    let caller = admit(caller)?;
    let mut report: Report = read(&service, body).await?;
    report.outcome.cut();
    match service.report(&caller, JobId(job), report).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::new(ErrorCode::Conflict, "this attempt is not under way any more")),
    }
}
