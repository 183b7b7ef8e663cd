//! Two layers of the router: a request waits for the turn of its user, then its body is read. Both are bounded.

use super::App;
use super::intake::{self, Holding, Reading};
use super::turns::{UserTurn, is_long, is_stream};
use crate::auth::Caller;
use crate::listen::body::drain;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;

/// Lets a request wait for its turn.
pub(super) async fn take_turn(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return next.run(request).await;
    };
    let (turns, path) = (&app.shared.turns, request.uri().path());
    let gateway = app.shared.gateways.of(path);
    let is_long = is_long(path) || gateway.is_some_and(|gateway| gateway.lasts(path));
    let is_stream = is_stream(path);
    let turn = match is_long || is_stream {
        true => turns.take_long(&caller),
        false => turns.take(&caller).await,
    };
    let turn = match turn {
        Ok(turn) => turn,
        Err(why) => return why.into_response(),
    };
    let response = next.run(request).await;
    match turn {
        Some(turn) if is_stream => response.map(|body| lasting(body, turn)),
        _ => response,
    }
}

fn lasting(body: Body, turn: UserTurn) -> Body {
    let parts = body.into_data_stream();
    Body::from_stream(parts.inspect(move |_| {
        let _lasts = &turn;
    }))
}

/// Reads the body of a request before its handler runs.
pub(super) async fn take_in(State(app): State<App>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let path = request.uri().path().to_owned();
    let gateway = app.shared.gateways.of(&path);
    let Some(limit) = intake::limit(request.method(), &path, caller.as_ref(), gateway) else {
        return next.run(request).await;
    };
    let (head, body) = request.into_parts();
    let (intake, turns) = (&app.shared.intake, &app.shared.turns);
    let reading = Reading { intake, turns, auth: &app.shared.front.auth, gateway, limit };
    let taken = match &caller {
        Some(caller) => reading.of_user(&caller.user, body).await,
        None if limit == 0 => {
            // The handler says that nobody is let in.
            drain(body).await;
            Ok((Bytes::new(), Holding::default()))
        }
        None => reading.of_stranger(&head, body).await,
    };
    match taken {
        Ok((body, holding)) => {
            // What waits has parsed its body long before it is answered.
            let _holding = Some(holding).filter(|_| !is_long(&path));
            next.run(Request::from_parts(head, Body::from(body))).await
        }
        Err(bad) => bad.into_response(),
    }
}
