//! The server of requests, on the owner: it runs those that other servers have left in the database as if their clients
//! had come here.
//! Only a row that its server has signed is served. Who asks is said by the token's own record; without a token it is the
//! administrator whom that server let in. What is changed for others is in the audit log here, too.
//!
//! A request that this server does not answer, because it ends or does not reach the database, keeps its row. This server
//! or the next owner answers it later. What it did is not done again ([`Once`]).

use super::{ChangeRequest, OnePart};
use crate::api_error::ApiError;
use crate::auth::Caller;
use crate::http::App;
use crate::http::guard::PassedOn;
use crate::peers::signature::{self, Begun, Unproven};
use crate::peers::{KeysUnderWay, Once, REQUEST_KIND, RequestHead, Untold, request_rows};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};
use tower_http::catch_panic::CatchPanicLayer;
use windlass_api::ErrorCode;
use windlass_store::{ASKED, AskId, Asked, Notice, ServerId, Store, TOKENS};

/// Requests that are answered at a time. Most of them wait for the ends of jobs.
const UNDER_WAY_MAX: usize = 8_192;
/// Requests that are read at a time.
const READ_MAX: usize = 256;
/// How often requests are looked for whose notice was lost, and those whose clients are gone.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long after an answer could not be written it is written again.
const ANSWER_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Bytes of an answer. Output of tasks goes part by part.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Answers requests of other servers until this one ends.
pub(crate) async fn serve_others(app: App, routes: Router) {
    let routes = routes.layer(CatchPanicLayer::new());
    let mut server = RequestServer {
        runner: RequestRunner { app, routes, keys: KeysUnderWay::default() },
        after: AskId(0),
        under_way: BTreeMap::new(),
        begun: Begun::default(),
        tasks: JoinSet::new(),
        is_away: false,
    };
    let handle = server.runner.app.handle.clone();
    let mut listener = handle.store().listen(&[ASKED, TOKENS]);
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            // Dropped, the tasks end.
            () = handle.ends() => return,
            notice = listener.next() => match notice {
                Notice::Said { channel, .. } if channel == TOKENS => server.runner.app.shared.front.auth.refresh_or_warn().await,
                Notice::Said { .. } => server.take_in().await,
                Notice::Listens => {
                    server.after = AskId(0);
                    server.take_in().await;
                }
            },
            _ = tick.tick() => {
                server.after = AskId(0);
                server.end_withdrawn().await;
                server.take_in().await;
            }
            Some(ended) = server.tasks.join_next() => {
                if let Ok(id) = ended {
                    server.under_way.remove(&id);
                }
            }
        }
    }
}

struct RequestServer {
    runner: RequestRunner,
    /// Requests up to this number were looked at.
    after: AskId,
    under_way: BTreeMap<AskId, AbortHandle>,
    begun: Begun,
    tasks: JoinSet<AskId>,
    /// The last read of requests failed.
    is_away: bool,
}

impl RequestServer {
    /// Begins to answer what is new.
    async fn take_in(&mut self) {
        // In doubt, the next owner answers.
        while self.runner.app.handle.is_sure() && self.under_way.len() < UNDER_WAY_MAX {
            let store = self.runner.app.handle.store();
            let asked = match store.asked(self.after, READ_MAX).await {
                Ok(asked) => asked,
                Err(error) => {
                    // Said once, and not again by each look.
                    if !std::mem::replace(&mut self.is_away, true) {
                        tracing::warn!("cannot read requests of other servers: {error}");
                    }
                    return;
                }
            };
            self.is_away = false;
            let count = asked.len();
            for asked in asked {
                self.after = asked.id;
                if !self.under_way.contains_key(&asked.id) {
                    self.begin(asked);
                }
            }
            if count < READ_MAX {
                return;
            }
        }
    }

    fn begin(&mut self, asked: Asked) {
        let (id, runner, begun) = (asked.id, self.runner.clone(), self.begun.clone());
        let task = self.tasks.spawn(async move {
            let store = runner.app.handle.store();
            let proven = signature::check(store.id(), &asked).and_then(|()| begun.begin(&asked));
            let answer = match &proven {
                Ok(()) => runner.answer(asked).await,
                Err(why) => Some(packed_answer(refuse(&runner.app, &asked, why).into_response()).await),
            };
            match answer {
                Some(answer) => write_answer(store, id, answer).await,
                None => begun.give_back(id),
            }
            id
        });
        self.under_way.insert(id, task);
    }

    /// Ends what nobody waits for any more.
    async fn end_withdrawn(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let ids: Vec<AskId> = self.under_way.keys().copied().collect();
        let Ok(waited_for) = self.runner.app.handle.store().still_asked(ids).await else { return };
        self.under_way.retain(|id, task| {
            let stays = waited_for.binary_search(id).is_ok() || task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
    }
}

/// Writes an answer, until the database has it or the request is there no more. The request is not run again for it.
async fn write_answer(store: &Store, id: AskId, (status, row): (i32, Vec<u8>)) {
    let mut is_told = false;
    while let Err(error) = store.answer(id, status, row.clone()).await {
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!("the answer to another server is written later: {error}");
        }
        tokio::time::sleep(ANSWER_AGAIN_AFTER).await;
    }
}

#[derive(Clone)]
struct RequestRunner {
    app: App,
    routes: Router,
    keys: KeysUnderWay,
}

impl RequestRunner {
    /// Status and row of the answer; `None` if it is left for later.
    async fn answer(&self, asked: Asked) -> Option<(i32, Vec<u8>)> {
        let app = &self.app;
        let (response, noted) = match open(app, &asked).await {
            Ok((head, caller, mut request)) => {
                let what = (request.method().to_string(), request.uri().path().to_owned());
                request.extensions_mut().insert(caller.clone());
                let head = Arc::new(head);
                (self.run(&head, request).await?, Some((head, caller, what)))
            }
            Err(error) => (error.into_response(), None),
        };
        let ends = *app.handle.closing().borrow() || !app.handle.is_sure();
        if response.status() == StatusCode::SERVICE_UNAVAILABLE && ends {
            return None;
        }
        app.handle.parts().metrics.requests_served.inc();
        if let Some((head, caller, (method, path))) = &noted {
            let session = head.session.as_deref();
            let (caller, peer, server) = (Some(caller), head.peer.as_str(), asked.server.as_str());
            app.note_passed(&PassedOn { caller, session, peer, server, method, path }, response.status());
        }
        Some(packed_answer(response).await)
    }

    /// The answer to a request; `None` if it is left for later.
    async fn run(&self, head: &Arc<RequestHead>, request: Request<Body>) -> Option<Response> {
        let Some(once) = once_of(&self.app, head) else {
            return Some(routed(self.routes.clone(), head, request).await);
        };
        let turn = self.keys.take(once.key())?;
        let (runner, head) = (self.clone(), head.clone());
        // What changes something runs to its end, whether its row is still there or not: a request of the same key waits
        // until it is known what this one did.
        let run = tokio::spawn(async move {
            let _turn = turn;
            runner.run_once(once, &head, request).await
        });
        run.await.unwrap_or_else(|_| {
            let why = "internal server error; see the log of the server that owns the farm";
            Some(ApiError::new(ErrorCode::Internal, why).into_response())
        })
    }

    async fn run_once(&self, once: Once, head: &RequestHead, mut request: Request<Body>) -> Option<Response> {
        let store = self.app.handle.store();
        let done = match once.done(store).await {
            Ok(done) => done,
            Err(why @ (Untold::Unproven(_) | Untold::Broken(_))) => {
                tracing::warn!("a request of another server is not done: {why}");
                let why = format!("the server that owns the farm does not do this request: {why}");
                return Some(ApiError::new(ErrorCode::Forbidden, why).into_response());
            }
            Err(Untold::Store(error)) => {
                tracing::warn!("a request of another server is answered later: {error}");
                return None;
            }
        };
        let was_done = done.is_some();
        request.extensions_mut().insert(ChangeRequest::new(once.clone(), done));
        let response = routed(self.routes.clone(), head, request).await;
        if response.status() != StatusCode::SERVICE_UNAVAILABLE {
            return Some(response);
        }
        // The engine may not know what became of the commit, or what is to be told was not read after it.
        match !was_done && matches!(once.done(store).await, Ok(None)) {
            true => Some(response),
            false => None,
        }
    }
}

/// The key and the signer of a request that is done once. `None` if it changes nothing, or if this server has no key.
fn once_of(app: &App, head: &RequestHead) -> Option<Once> {
    let (key, signer) = (head.key.clone()?, app.shared.key.clone()?);
    let by = app.own_number().unwrap_or(ServerId(0));
    Some(Once::new(key, signer, app.handle.store().id(), by))
}

async fn open(app: &App, asked: &Asked) -> Result<(RequestHead, Caller, Request<Body>), ApiError> {
    let unpacked = match asked.kind == REQUEST_KIND {
        true => request_rows::unpack_request(&asked.body).map_err(|bad| bad.to_string()),
        false => Err(format!("its kind '{}' is not known", asked.kind)),
    };
    let (head, request) = unpacked.map_err(|why| {
        let why = format!("another server asks what this release does not understand: {why}");
        ApiError::new(ErrorCode::BadRequest, why)
    })?;
    let caller = caller_of(app, &head).await.ok_or_else(|| {
        let why = "the token of this request is not in force on the server that owns the farm";
        ApiError::new(ErrorCode::Unauthorized, why)
    })?;
    Ok((head, caller, request))
}

/// The caller; `None` if the token is not in force. The other server's word counts for a caller without a token alone.
async fn caller_of(app: &App, head: &RequestHead) -> Option<Caller> {
    let Some(id) = &head.token else { return Some(head.caller()) };
    if let Some(caller) = app.shared.front.auth.of_id(id) {
        return Some(caller);
    }
    // Another server may have just made it.
    app.shared.front.auth.refresh_or_warn().await;
    app.shared.front.auth.of_id(id)
}

/// The answer to a row that is not served. It is noted, with what the row asks.
fn refuse(app: &App, asked: &Asked, why: &Unproven) -> ApiError {
    let (method, path) = match request_rows::unpack_request(&asked.body) {
        Ok((_, request)) => (request.method().to_string(), request.uri().path().to_owned()),
        Err(_) => ("?".to_owned(), "?".to_owned()),
    };
    let row = format!("request {} in the database", asked.id.0);
    let (method, path, peer, server) = (&*method, &*path, &*row, &*asked.server);
    app.note_unproven(&PassedOn { caller: None, session: None, peer, server, method, path }, why);
    // A client of a server of the release before goes on with another one.
    let code = match why {
        Unproven::Unsigned(_) => ErrorCode::Unavailable,
        Unproven::Forged(_) | Unproven::Served => ErrorCode::Forbidden,
    };
    ApiError::new(code, format!("the server that owns the farm does not serve this request: {why}"))
}

/// An answer as status and row.
async fn packed_answer(response: Response) -> (i32, Vec<u8>) {
    let (parts, body) = response.into_parts();
    match axum::body::to_bytes(body, ANSWER_BYTES_MAX).await {
        Ok(body) => {
            let row = request_rows::pack_answer(&parts.headers, &body);
            (i32::from(parts.status.as_u16()), row)
        }
        Err(error) => {
            let why = format!("the answer cannot be passed on: {error}");
            let answer = serde_json::to_vec(
                &serde_json::json!({ "error": { "code": ErrorCode::Internal, "message": why } }),
            );
            let row = request_rows::pack_answer(&Default::default(), &answer.unwrap_or_default());
            (i32::from(StatusCode::INTERNAL_SERVER_ERROR.as_u16()), row)
        }
    }
}

async fn routed(routes: Router, head: &RequestHead, mut request: Request<Body>) -> Response {
    if head.one_part {
        request.extensions_mut().insert(OnePart);
    }
    match TowerToHyperService::new(routes).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests;
