//! The identity of a request's caller: by the unix socket, by a token, or by a session of the board.

use super::App;
use crate::auth::{Caller, Denied, Peer};
use crate::csrf::{CrossSite, RequestOrigin, check_host, host_of};
use crate::door::cookie;
use crate::door::sessions::ProcessUser;
use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::header;
use windlass_api::SignedInBy;

/// How a caller is known. In the extensions of every request that was let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SignIn {
    /// By nothing: all of the machine are trusted.
    Nothing,
    /// By the unix socket.
    Socket,
    Token,
    /// By the session of this id.
    Session(String),
}

impl SignIn {
    pub fn session(&self) -> Option<&str> {
        match self {
            SignIn::Session(id) => Some(id),
            SignIn::Nothing | SignIn::Socket | SignIn::Token => None,
        }
    }

    pub fn word(&self) -> SignedInBy {
        match self {
            SignIn::Nothing => SignedInBy::None,
            SignIn::Socket => SignedInBy::Socket,
            SignIn::Token => SignedInBy::Token,
            SignIn::Session(_) => SignedInBy::Session,
        }
    }
}

/// The caller of a request, or why it is not known.
pub(super) struct Identity {
    pub caller: Option<Caller>,
    pub by: SignIn,
    pub denied: Option<Denied>,
    /// The user of this machine for whose processes the session is.
    process_user: ProcessUser,
}

impl Identity {
    fn unknown(denied: Denied) -> Identity {
        Identity { caller: None, by: SignIn::Nothing, denied: Some(denied), process_user: None }
    }

    /// The same, if the session is shown by a process of the user who made it. To find that out takes a while, so it is
    /// asked of sessions in force alone.
    pub async fn shown_by_its_user(self, peer: &Peer) -> Identity {
        match self.process_user {
            Some(_) if self.process_user != peer.process_user().await => Identity::unknown(Denied::Session),
            _ => self,
        }
    }
}

/// Finds out who makes a request. What stands in a header goes before a session, which browsers send by themselves.
pub(super) fn of(app: &App, peer: &Peer, request: &Request, by_password: bool) -> Identity {
    let (auth, headers) = (&app.shared.front.auth, request.headers());
    let host = host_of(request);
    let mut shown = cookie::shown(headers, &host).peekable();
    let has_session = app.shared.board.enabled && shown.peek().is_some();
    if auth.lets_in(peer) || headers.contains_key(header::AUTHORIZATION) || !has_session {
        let by = match peer.address {
            None => SignIn::Socket,
            Some(_) if auth.lets_in(peer) => SignIn::Nothing,
            Some(_) => SignIn::Token,
        };
        return match auth.caller(peer, headers, by_password) {
            Ok(caller) => Identity { caller: Some(caller), by, denied: None, process_user: None },
            Err(denied) => Identity::unknown(denied),
        };
    }
    let (sessions, now) = (&app.shared.sessions, app.handle.now());
    let found = shown.find_map(|shown| {
        let session = sessions.find(shown, now)?;
        let caller = auth.of_right(&session.right);
        if caller.is_none() {
            sessions.end(&session.id);
        }
        Some((caller?, session))
    });
    let Some((caller, session)) = found else { return Identity::unknown(Denied::Session) };
    let checked = origin(request, &host).check_session().and_then(|()| check_name(app, peer, &host));
    Identity {
        caller: Some(caller),
        by: SignIn::Session(session.id),
        denied: checked.err().map(Denied::from),
        process_user: session.process_user,
    }
}

/// Checks a request to sign in or out, which needs no session.
pub(super) fn check_sign_in(app: &App, peer: &Peer, request: &Request) -> Result<(), CrossSite> {
    let host = host_of(request);
    origin(request, &host).check_sign_in()?;
    check_name(app, peer, &host)
}

pub(super) fn check_page(app: &App, peer: &Peer, request: &Request) -> Result<(), CrossSite> {
    let host = host_of(request);
    origin(request, &host).check_page()?;
    check_name(app, peer, &host)
}

fn check_name(app: &App, peer: &Peer, host: &str) -> Result<(), CrossSite> {
    check_host(host, peer.entrance.as_ref(), &app.shared.board.hosts)
}

fn origin<'a>(request: &'a Request, host: &'a str) -> RequestOrigin<'a> {
    let has_body = request.body().size_hint().exact() != Some(0);
    RequestOrigin { method: request.method(), host, headers: request.headers(), has_body }
}
