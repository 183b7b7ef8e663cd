//! Accounts. An account is a user who has a token of the role user. Nothing else of an account is stored.

use super::table::{LOOKED_MAX, Words, table};
use crate::access::check_look;
use crate::answer::{Refused, tell};
use crate::app::App;
use crate::caller::{Who, who};
use crate::format::{Fields, text_of};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use windlass_api::CreateToken;
use windlass_core::bounds::NAME_BYTES_MAX;
use windlass_server::auth::{Auth, Caller, Role, TokenError};
use windlass_server::{JsonLimits, read_json};

/// The note of tokens that are created here.
const NOTE: &str = "account of Compass CI";

/// Creates an account, which is a token of that user. The token is shown in this answer alone. For administrators,
/// whose token comes in the header or as `admin_token`.
pub(super) async fn create(
    State(app): State<App>,
    caller: Who,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let body = body.map_err(IntoResponse::into_response)?;
    let fields = match app.front.parse(body, |body| read_json::<Value>(body, JsonLimits::GATEWAY)).await {
        Ok(Value::Object(fields)) => fields,
        _ => return Err(error(StatusCode::BAD_REQUEST, "Invalid JSON in request body").into()),
    };
    let admin = administrator(&app, who(&caller), &fields);
    let admin = admin.ok_or_else(|| error(StatusCode::UNAUTHORIZED, "Invalid or missing admin token"))?;
    app.front.known_as(&admin);
    let word = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(|c: char| c.is_control() || c == '/');
    if !word {
        let why = format!("an account's name is a word of up to {NAME_BYTES_MAX} bytes");
        return Err(error(StatusCode::BAD_REQUEST, &why).into());
    }
    if text_of(&fields, "my_account").is_some_and(|account| account != name) {
        return Err(error(StatusCode::BAD_REQUEST, "my_account does not match the account of the URL").into());
    }
    if users(app.front.auth()).contains_key(&name) {
        let had = "the account has a token; 'windlass token create --role user' makes another one".to_owned();
        let message = std::iter::once(had).chain(left_out(&fields)).collect::<Vec<_>>().join("; ");
        let answer = json!({"status": "success", "account_name": name, "message": message});
        return Ok(Json(answer).into_response());
    }
    let user = Some(name.clone());
    let request = CreateToken { user, note: NOTE.to_owned(), ..CreateToken::of(Role::User) };
    let made = app.front.auth().create(request, &admin).await.map_err(|failed| {
        let status = match failed {
            TokenError::Bad(_) => StatusCode::BAD_REQUEST,
            TokenError::Full => StatusCode::CONFLICT,
            TokenError::Random(_) | TokenError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        tell(status, json!({"error": failed.to_string(), "account_name": name}))
    })?;
    let message = left_out(&fields).join("; ");
    let answer =
        json!({"status": "success", "account_name": name, "my_token": made.bearer, "message": message});
    Ok(Json(answer).into_response())
}

/// Says which of the sent fields were ignored, and why.
fn left_out(fields: &Fields) -> Vec<String> {
    const NOT_TAKEN: [(&str, &str); 2] = [
        ("my_token", "my_token is not taken, for the server makes tokens itself"),
        ("weight", "weight is not taken: use 'windlass queue set NAME --weight N'"),
    ];
    let sent = NOT_TAKEN.iter().filter(|(key, _)| fields.get(*key).is_some_and(|value| !value.is_null()));
    sent.map(|(_, why)| (*why).to_owned()).collect()
}

fn error(status: StatusCode, why: &str) -> Response {
    tell(status, json!({"error": why}))
}

/// The administrator that the header or the fields show, if any.
fn administrator(app: &App, caller: Option<&Caller>, fields: &Fields) -> Option<Caller> {
    let is_admin = |caller: &Caller| caller.role == Role::Admin;
    if let Some(caller) = caller.filter(|caller| is_admin(caller)) {
        return Some(caller.clone());
    }
    let token = text_of(fields, "admin_token")?;
    app.front.auth().of_token(&token).filter(is_admin)
}

/// The users that may submit, each with the number of their tokens.
fn users(auth: &Auth) -> BTreeMap<String, u64> {
    let mut users = BTreeMap::new();
    for token in
        auth.tokens().into_iter().filter(|token| token.role == Role::User && auth.is_in_force(&token.id))
    {
        *users.entry(token.user).or_insert(0) += 1;
    }
    users
}

/// Lists accounts: those with a token, and those whose jobs wait or run.
pub(super) async fn list(
    State(app): State<App>,
    caller: Who,
    Query(query): Query<Words>,
) -> Result<Response, Refused> {
    check_look(who(&caller))?;
    let tokens = users(app.front.auth());
    let known: BTreeSet<String> = tokens.keys().take(LOOKED_MAX).cloned().collect();
    let all = move |engine: &windlass_core::Engine| {
        let (mut names, mut jobs) = (known, BTreeMap::<String, u64>::new());
        for job in engine.jobs().take(LOOKED_MAX) {
            *jobs.entry(job.spec.user.clone()).or_default() += 1;
            names.insert(job.spec.user.clone());
        }
        let own = engine.queues().by_name().filter(|queue| names.contains(queue.name()));
        let queues: BTreeMap<String, _> = own.map(|queue| (queue.name().to_owned(), queue)).collect();
        let row = |name: &String| {
            let queue = queues.get(name);
            let row = json!({
                "my_account": name,
                "weight": queue.map(|queue| queue.share().weight()),
                "priority": queue.map(|queue| queue.band()),
                "nr_waiting": queue.map_or(0, |queue| queue.steps()),
                "nr_running": queue.map_or(0, |queue| queue.active),
                "nr_jobs": jobs.get(name),
            });
            row.as_object().cloned().unwrap_or_default()
        };
        names.iter().map(row).collect::<Vec<Fields>>()
    };
    let mut rows = app.handle.query(all).await?;
    for row in &mut rows {
        let name = text_of(row, "my_account").unwrap_or_default();
        row.insert("nr_tokens".to_owned(), tokens.get(&name).copied().unwrap_or(0).into());
    }
    let columns = ["my_account", "nr_tokens", "priority", "weight", "nr_jobs", "nr_waiting", "nr_running"];
    Ok(table("Accounts", rows, &columns, &query))
}
