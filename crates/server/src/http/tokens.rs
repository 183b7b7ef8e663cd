//! Tokens: list, make, revoke. The guard lets administrators in alone.

use super::App;
use super::extract::{JsonBody, Path, Query};
use super::lists::{page_size, part};
use crate::api_error::ApiError;
use crate::auth::{self, Caller, TokenError};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;
use windlass_api::{CLOCK_HEADER, CreateToken, CreatedToken, ErrorCode, Page, Token};
use windlass_store::TOKENS;

/// The clock of an answer's times, as a header. Tokens end by the wall clock, all else goes by the engine's.
type WallClock = [(&'static str, String); 1];

fn wall_clock() -> WallClock {
    [(CLOCK_HEADER, auth::now().as_ms().to_string())]
}

/// Which tokens to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct TokensQuery {
    /// Only tokens of this user.
    user: Option<String>,
    /// Entries of the answer: 100 by default, 1000 at most.
    limit: Option<usize>,
    /// `next` of the part before.
    cursor: Option<String>,
}

/// Lists the tokens by id, without their secrets; those that are not in force any more too.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", params(TokensQuery), responses(
    (status = 200, description = "A part of the list", body = Page<Token>),
    (status = 403, description = "For administrators alone", body = windlass_api::ErrorBody)))]
pub async fn list(
    State(app): State<App>,
    Query(query): Query<TokensQuery>,
) -> Result<(WallClock, Json<Page<Token>>), ApiError> {
    let limit = page_size(query.limit)?;
    let all = app.shared.front.auth.tokens().into_iter();
    let some = all.filter(|token| query.cursor.as_ref().is_none_or(|after| token.id > *after));
    let some = some.filter(|token| query.user.as_ref().is_none_or(|user| token.user == *user));
    let page = part(some.take(limit + 1).collect(), limit, |token: &Token| token.id.clone());
    Ok((wall_clock(), Json(page)))
}

/// Makes a token. Its secret is told this once.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", request_body = CreateToken, responses(
    (status = 201, description = "Made and durable", body = CreatedToken),
    (status = 403, description = "For administrators alone", body = windlass_api::ErrorBody)))]
pub async fn create(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<CreateToken>,
) -> Result<(StatusCode, WallClock, Json<CreatedToken>), ApiError> {
    let made = app.shared.front.auth.create(request, &caller).await.map_err(|error| match error {
        TokenError::Bad(why) => ApiError::new(ErrorCode::BadRequest, why),
        TokenError::Full => ApiError::new(ErrorCode::Conflict, error.to_string()),
        TokenError::Random(_) => ApiError::new(ErrorCode::Internal, error.to_string()),
        TokenError::Store(error) => error.into(),
    })?;
    tell_other_servers(&app).await;
    Ok((StatusCode::CREATED, wall_clock(), Json(made)))
}

/// Ends a token, at once.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens", params(("id" = String, Path)), responses(
    (status = 200, body = Token)))]
pub async fn revoke(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<(WallClock, Json<Token>), ApiError> {
    let revoked = app.shared.front.auth.revoke(&id).await?;
    tell_other_servers(&app).await;
    revoked.map(|token| (wall_clock(), Json(token))).ok_or_else(|| {
        ApiError::new(ErrorCode::NotFound, format!("there is no token '{id}'"))
            .hint("'windlass token list' lists them")
    })
}

/// Other servers of the same store would find it by themselves, but only after a while.
async fn tell_other_servers(app: &App) {
    if let Err(error) = app.handle.store().notify(TOKENS, "").await {
        tracing::warn!("other servers know of a changed token a little later: {error}");
    }
}
