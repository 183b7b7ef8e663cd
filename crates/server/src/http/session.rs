//! Signing in to the board, and out of it. The rules for requests of browsers are the guard's.

use super::App;
use super::identity::SignIn;
use crate::api_error::{ApiError, read_body};
use crate::auth::{Caller, Denied, Peer, Role};
use crate::caller::{Right, known_as};
use crate::csrf::Addressed;
use crate::door::cookie;
use crate::door::sessions::CODE_MS;
use crate::local_users::LocalClient;
use crate::random::NoRandom;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use windlass_api::{BoardCode, BoardMe, BoardSignIn, ErrorCode};

/// The headers that give a browser its session, and keep the answer out of caches.
type Cookie = [(HeaderName, String); 2];

fn cookie_of(written: String) -> Cookie {
    [(header::SET_COOKIE, written), (header::CACHE_CONTROL, "no-store".to_owned())]
}

/// Signs in to the board: for a token or a code, the browser gets a session as a cookie. It lasts for twelve hours, or
/// until the token is revoked or the server is restarted, and acts as the token would.
#[utoipa::path(post, path = "/api/v1/board/session", tag = "board", request_body = BoardSignIn, responses(
    (status = 204, description = "Signed in; the cookie is the session"),
    (status = 401, description = "The token or the code is not valid", body = windlass_api::ErrorBody),
    (status = 403, description = "The request is not of the board's own page, or the token is a worker's or a submitter's",
        body = windlass_api::ErrorBody),
    (status = 404, description = "This server has no board", body = windlass_api::ErrorBody)))]
pub async fn sign_in(
    State(app): State<App>,
    Extension(addressed): Extension<Addressed>,
    connection: Option<Extension<ConnectInfo<Peer>>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Cookie), Response> {
    check_enabled(&app).map_err(IntoResponse::into_response)?;
    let shown: BoardSignIn = read_body(body).map_err(IntoResponse::into_response)?;
    let now = app.handle.now();
    let (caller, right) = match shown {
        BoardSignIn { token: Some(token), code: None } => {
            let caller =
                app.shared.front.auth.check_token(token.trim()).map_err(IntoResponse::into_response)?;
            let right = right_of(&caller, None);
            (caller, right)
        }
        BoardSignIn { token: None, code: Some(code) } => {
            let right = app.shared.sessions.redeem(&code, now);
            let found = right.and_then(|right| Some((app.shared.front.auth.of_right(&right)?, right)));
            found.ok_or(Denied::Code).map_err(IntoResponse::into_response)?
        }
        _ => {
            let error = ApiError::new(ErrorCode::BadRequest, "give either a token or a code");
            return Err(error.into_response());
        }
    };
    known_as(&caller);
    // Both are for programs.
    if matches!(caller.role, Role::Worker | Role::Submitter) {
        return Err(Denied::Role.into_response());
    }
    // Behind a proxy all are its processes.
    let by_proxy = app.shared.board.hosts.iter().any(|host| host.eq_ignore_ascii_case(&addressed.host));
    let process_user = match connection {
        Some(Extension(ConnectInfo(peer))) if !by_proxy => peer.process_user().await,
        _ => None,
    };
    // A code that another user of the machine got hold of is of no use.
    if let Right::Local(user) = &right
        && process_user != Some(user.uid)
    {
        return Err(Denied::Code.into_response());
    }
    let session = app.shared.sessions.begin(right, process_user, now);
    let session = session.map_err(|e| no_random(&e).into_response())?;
    let written = cookie::set(&addressed.host, &session, addressed.is_tls);
    Ok((StatusCode::NO_CONTENT, cookie_of(written)))
}

/// Signs out of the board: ends the session that the request shows. Without one there is nothing to do.
#[utoipa::path(delete, path = "/api/v1/board/session", tag = "board", responses(
    (status = 204, description = "Signed out"),
    (status = 403, description = "The request is not of the board's own page", body = windlass_api::ErrorBody),
    (status = 404, description = "This server has no board", body = windlass_api::ErrorBody)))]
pub async fn sign_out(
    State(app): State<App>,
    Extension(addressed): Extension<Addressed>,
    by: Option<Extension<SignIn>>,
) -> Result<(StatusCode, Cookie), ApiError> {
    check_enabled(&app)?;
    if let Some(Extension(SignIn::Session(id))) = by {
        app.shared.sessions.end(&id);
    }
    Ok((StatusCode::NO_CONTENT, cookie_of(cookie::clear(&addressed.host, addressed.is_tls))))
}

/// Says who the caller is, and by what.
#[utoipa::path(get, path = "/api/v1/board/me", tag = "board", responses(
    (status = 200, body = BoardMe),
    (status = 401, description = "Nobody is signed in", body = windlass_api::ErrorBody),
    (status = 404, description = "This server has no board", body = windlass_api::ErrorBody)))]
pub async fn me(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(by): Extension<SignIn>,
) -> Result<Json<BoardMe>, ApiError> {
    check_enabled(&app)?;
    Ok(Json(BoardMe {
        name: caller.user,
        role: caller.role,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time_ms: app.handle.now().as_ms(),
        signed_in_by: by.word(),
    }))
}

/// Makes a code that signs in to the board once, with the caller's rights, so that no token needs to be in an address.
/// To a caller on the unix socket it also says where the board is. A server without a port opens one on this machine
/// for the time that the board is used.
#[utoipa::path(post, path = "/api/v1/board/codes", tag = "board", responses(
    (status = 201, body = BoardCode),
    (status = 403, description = "A session makes no codes", body = windlass_api::ErrorBody),
    (status = 404, description = "This server has no board", body = windlass_api::ErrorBody)))]
pub async fn make_code(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(by): Extension<SignIn>,
    connection: Option<Extension<ConnectInfo<Peer>>>,
) -> Result<(StatusCode, Json<BoardCode>), ApiError> {
    check_enabled(&app)?;
    if by.session().is_some() {
        // Otherwise a session would not end.
        let error = ApiError::new(ErrorCode::Forbidden, "a session makes no codes");
        return Err(error.hint("'windlass board' makes one with your token"));
    }
    if caller.role == Role::Submitter {
        let why = "the board is for people, and a token of the role submitter is another system's";
        return Err(ApiError::new(ErrorCode::Forbidden, why).hint("give --role viewer or user"));
    }
    let now = app.handle.now();
    let peer = connection.as_ref().map(|Extension(ConnectInfo(peer))| peer);
    // The code comes first: it keeps the port open.
    let code = app.shared.sessions.make_code(right_of(&caller, peer), now).map_err(|e| no_random(&e))?;
    let is_local = peer.is_some_and(|peer| peer.address.is_none());
    let address = if is_local { Some(own_address(&app).await?) } else { None };
    Ok((StatusCode::CREATED, Json(BoardCode { code, expires_in_ms: CODE_MS, address })))
}

/// Where browsers of this machine reach the board.
async fn own_address(app: &App) -> Result<String, ApiError> {
    if let Some(address) = &app.shared.url_here {
        return Ok(address.clone());
    }
    match app.shared.door.open().await {
        Some(Ok(address)) => Ok(address),
        Some(Err(error)) => {
            let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
            Err(ApiError::new(ErrorCode::Unavailable, format!("the board has no port: {error}{why}")))
        }
        None => Err(ApiError::new(ErrorCode::Unavailable, "the server is ending")),
    }
}

/// The caller's right, for a session that acts as them.
fn right_of(caller: &Caller, peer: Option<&Peer>) -> Right {
    match (&caller.token, peer.and_then(|peer| peer.local.as_ref())) {
        (Some(token), _) => Right::Token(token.clone()),
        (None, Some(LocalClient::Known(user))) => Right::Local(user.clone()),
        // Others of that socket are no callers.
        (None, _) => Right::Own,
    }
}

fn check_enabled(app: &App) -> Result<(), ApiError> {
    if app.shared.board.enabled {
        return Ok(());
    }
    let error = ApiError::new(ErrorCode::NotFound, "this server has no board");
    Err(error.hint("an administrator sets enabled = true in [board] of the server's settings"))
}

fn no_random(error: &NoRandom) -> ApiError {
    ApiError::new(ErrorCode::Internal, error.to_string())
}
