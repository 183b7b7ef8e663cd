//! The guard: every request passes through it.

use super::App;
use super::identity::{self, Identity, SignIn};
use super::paths::{ME_PATH, TURNS_PATH, UPLOAD_PATHS};
use super::routes;
use super::turns::is_stream;
use crate::api_error::ApiError;
use crate::auth::{Access, Caller, Denied, HEALTH_PATH, Peer, WORKER_PATHS};
use crate::caller::finding_caller;
use crate::connections::STRANGERS_REQUESTS_MAX;
use crate::csrf::{Addressed, host_of};
use crate::door::pages;
use crate::listen::body::drain;
use crate::noted_path::NotedPath;
use crate::panics::in_request;
use crate::spans;
use axum::body::Body;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use windlass_api::{CLOCK_HEADER, ErrorCode, TOKEN_END_HEADER};
use windlass_core::Time;

/// Lets in whom the server knows, to where they may go, as [`Caller`] in the request's extensions, and
/// notes who changed something or was refused.
pub async fn admit(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if path == HEALTH_PATH {
        return next.run(request).await;
    }
    let peer = peer_of(request.extensions());
    let pattern = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let gateway = app.shared.gateways.of(&path);
    let access = if gateway.is_some() { Access::Anybody } else { routes::access(&method, &path, pattern) };
    let by_password = gateway.is_some_and(|gateway| gateway.takes_password(&method, &path));
    if peer.is_for_board() && (gateway.is_some() || path.starts_with(WORKER_PATHS)) {
        return ApiError::new(ErrorCode::NotFound, "this port is for the board alone").into_response();
    }
    let is_open = access == Access::Anybody;
    let signs_in = is_open && gateway.is_none();
    let shown = identity::of(&app, &peer, &request, by_password);
    let Identity { caller, by, denied, .. } = shown.shown_by_its_user(&peer).await;
    let strangers_turn = match (&caller, &peer.place) {
        (None, Some(place)) => match place.take_strangers_turn() {
            Some(turn) => Some(turn),
            // Nothing more of it is read.
            None => return too_many_of_strangers(&app),
        },
        _ => None,
    };
    let denied = match (&caller, denied) {
        // There the handlers ask who it is, and the body may show it.
        (None, Some(Denied::Missing | Denied::Session)) if is_open => None,
        (_, Some(denied)) => Some(denied),
        (Some(caller), None) if !access.is_for(caller.role) => Some(Denied::of_role(caller, access)),
        (Some(caller), None) if peer.place.as_ref().is_some_and(|place| !place.admit(caller)) => {
            Some(Denied::Connections)
        }
        (_, None) => None,
    };
    let denied = match denied {
        None if signs_in => identity::check_sign_in(&app, &peer, &request).err().map(Denied::from),
        denied => denied,
    };
    if signs_in {
        let addressed = Addressed::of(&peer, &request);
        request.extensions_mut().insert(addressed);
    }
    let is_report = gateway.is_some_and(|gateway| gateway.is_report(&path));
    let changes = !is_report && changes(&method, &path);
    let asked =
        Asked { app, caller, by, denied, peer, method, path, changes, _strangers_turn: strangers_turn };
    if asked.denied.is_none() && asked.changes {
        // What changes something runs to its end and is noted, whether anybody still listens or not.
        let answered = tokio::spawn(asked.answer(request, next)).await;
        return answered.unwrap_or_else(|_| {
            ApiError::new(ErrorCode::Internal, "internal server error; see the server's log").into_response()
        });
    }
    asked.answer(request, next).await
}

fn too_many_of_strangers(app: &App) -> Response {
    app.shared.refusals.count();
    let why =
        format!("this connection has {STRANGERS_REQUESTS_MAX} requests under way on which nobody was let in");
    ApiError::new(ErrorCode::Unavailable, why).hint("show a token with each request").into_response()
}

/// Shows the board's pages, which hold no data, to everybody but other sites' pages.
pub async fn show_pages(State(app): State<App>, request: Request, next: Next) -> Response {
    match page_of(&app, &request) {
        Some(page) => page,
        None => next.run(request).await,
    }
}

/// The answer, if the request is for one of the board's pages.
fn page_of(app: &App, request: &Request) -> Option<Response> {
    let (method, path) = (request.method(), request.uri().path());
    let looks = method == Method::GET || method == Method::HEAD;
    let file = pages::find(path).filter(|_| looks && app.shared.board.enabled)?;
    // A path of another interface's clients is the board's for browsers.
    let is_browser = text_of(request.headers(), "accept").is_some_and(|kinds| kinds.contains("text/html"));
    if app.shared.gateways.of(path).is_some() && !is_browser {
        return None;
    }
    Some(match identity::check_page(app, &peer_of(request.extensions()), request) {
        Ok(()) => pages::answer(file, method, request.headers()),
        Err(why) => Denied::from(why).into_response(),
    })
}

/// The other end of the connection. A request without one counts as from an unknown address, and not as local.
fn peer_of(extensions: &Extensions) -> Peer {
    let connection = extensions.get::<ConnectInfo<Peer>>();
    connection.map_or_else(Peer::unknown, |ConnectInfo(peer)| peer.clone())
}

/// The client's address, or `unix`, and the id of the session by which the board acted, for the server to which a request
/// is passed on.
pub(crate) fn came_by(extensions: &Extensions) -> (String, Option<String>) {
    let session = extensions.get::<SignIn>().and_then(|by| by.session().map(str::to_owned));
    (peer_of(extensions).to_string(), session)
}

/// The token, or the session that acts as one, by which a caller was let in. Among the extensions of every request that
/// was let in, for conversations that outlast it.
#[derive(Clone)]
pub struct Admission {
    app: App,
    token: Option<String>,
    session: Option<String>,
}

impl Admission {
    /// False once the token was revoked or has expired, or the session has ended.
    pub fn is_in_force(&self) -> bool {
        let Admission { app, token, session } = self;
        let now = app.handle.now();
        token.as_ref().is_none_or(|id| app.shared.front.auth.is_in_force(id))
            && session.as_ref().is_none_or(|id| app.shared.sessions.is_in_force(id, now))
    }
}

/// A request, who makes it, and why not.
struct Asked {
    app: App,
    caller: Option<Caller>,
    by: SignIn,
    denied: Option<Denied>,
    peer: Peer,
    method: Method,
    path: String,
    /// It changes something for people, so it is noted.
    changes: bool,
    /// A request on which nobody was let in has one of few on its connection, until it is answered.
    _strangers_turn: Option<OwnedSemaphorePermit>,
}

impl Asked {
    async fn answer(mut self, mut request: Request, next: Next) -> Response {
        let response = match (&self.denied, &self.caller) {
            (None, Some(caller)) => {
                request.extensions_mut().insert(caller.clone());
                request.extensions_mut().insert(self.by.clone());
                request.extensions_mut().insert(self.admission());
                let response = in_request(next.run(request)).await;
                self.for_page(self.say_token_end(self.until_revoked(response)))
            }
            (None, None) => {
                let (response, found) = finding_caller(in_request(next.run(request))).await;
                self.caller = found;
                response
            }
            (Some(denied), _) => {
                let grpc = text_of(request.headers(), "content-type")
                    .is_some_and(|kind| kind.starts_with("application/grpc"));
                if !grpc {
                    drain(request.into_body()).await;
                }
                let denied = denied.clone();
                if grpc { denied.into_grpc() } else { denied.into_response() }
            }
        };
        self.note(response.status(), response.extensions().get::<Denied>().cloned());
        response
    }

    /// Events and output go on for as long as the client listens, but not longer than the token and the session last.
    fn until_revoked(&self, response: Response) -> Response {
        let admission = self.admission();
        if !is_stream(&self.path) || (admission.token.is_none() && admission.session.is_none()) {
            return response;
        }
        response.map(|body| {
            let parts = body.into_data_stream();
            Body::from_stream(parts.take_while(move |_| std::future::ready(admission.is_in_force())))
        })
    }

    /// Says with an answer when the caller's token ends, so that its holder can tell ahead.
    fn say_token_end(&self, mut response: Response) -> Response {
        let token = self.caller.as_ref().and_then(|caller| caller.token.as_deref());
        let end = token.and_then(|id| self.app.shared.front.auth.end_of(id));
        if let Some(value) = end.and_then(|end| HeaderValue::from_str(&end.header()).ok()) {
            response.headers_mut().insert(HeaderName::from_static(TOKEN_END_HEADER), value);
        }
        response
    }

    fn admission(&self) -> Admission {
        let token = self.caller.as_ref().and_then(|caller| caller.token.clone());
        Admission { app: self.app.clone(), token, session: self.by.session().map(str::to_owned) }
    }

    /// Says with an answer to a session that it is for the board's page alone, and is not kept.
    fn for_page(&self, mut response: Response) -> Response {
        if self.by.session().is_some() {
            pages::harden(response.headers_mut());
            let keep = HeaderValue::from_static("no-store");
            response.headers_mut().entry(header::CACHE_CONTROL).or_insert(keep);
        }
        response
    }

    /// `found` is why the handler did not let anybody in.
    fn note(&self, status: StatusCode, found: Option<Denied>) {
        let Asked { app, caller, by, denied, peer, method, path, changes, .. } = self;
        let note = |path: &NotedPath| {
            let who = (caller.as_ref(), by.session());
            app.shared.audit.note(who, (peer, None), (method.as_str(), path), status.as_u16());
        };
        match status {
            // A page that asks whether a user is signed in was refused nothing.
            StatusCode::UNAUTHORIZED
                if path == ME_PATH && matches!(denied, Some(Denied::Missing | Denied::Session)) => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let user = caller.as_ref().map_or("an unknown client", |caller| &caller.user);
                let why = denied.clone().or(found).unwrap_or(Denied::Rights);
                let path = NotedPath::of(path);
                // What floods the log must not push the past out of the audit log either, known user or not.
                let told = app.shared.refusals.tell(peer, format_args!("{user}, {method} {path:?}: {why}"));
                if told || caller.as_ref().is_some_and(|caller| app.shared.noted.take(&caller.user)) {
                    note(&path);
                }
            }
            // A server that stands by did nothing for a stranger, and strangers must not fill the log.
            StatusCode::SERVICE_UNAVAILABLE if caller.is_none() => {}
            _ if *changes => note(&NotedPath::of(path)),
            _ => {}
        }
    }
}

/// A request that another server let in and passed on.
pub(crate) struct PassedOn<'a> {
    /// The caller; `None` where nothing proves it.
    pub caller: Option<&'a Caller>,
    /// The id of the session by which the board acted there.
    pub session: Option<&'a str>,
    /// The client's address as that server saw it, or `unix`.
    pub peer: &'a str,
    pub server: &'a str,
    pub method: &'a str,
    pub path: &'a str,
}

impl App {
    /// Notes what was done for another server. That one has told its own log of what was refused.
    pub(crate) fn note_passed(&self, passed: &PassedOn, status: StatusCode) {
        let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let method = Method::from_bytes(passed.method.as_bytes()).unwrap_or_default();
        let noted = match is_refused {
            true => passed.caller.is_some_and(|caller| self.shared.noted.take(&caller.user)),
            false => changes(&method, passed.path),
        };
        if noted {
            self.audit_passed(passed, status);
        }
    }

    /// Notes a request that is not served, because nothing proves that another server passed it on.
    pub(crate) fn note_unproven(&self, passed: &PassedOn, why: impl std::fmt::Display) {
        let PassedOn { method, path, .. } = passed;
        let told = self.shared.refusals.tell(
            "a request in the database",
            format_args!("{method:?} {:?}: {why}", NotedPath::of(path).as_str()),
        );
        if told {
            self.audit_passed(passed, StatusCode::FORBIDDEN);
        }
    }

    fn audit_passed(&self, passed: &PassedOn, status: StatusCode) {
        let PassedOn { caller, session, peer, server, method, path } = *passed;
        let path = NotedPath::of(path);
        self.shared.audit.note((caller, session), (&peer, Some(server)), (method, &path), status.as_u16());
    }
}

/// True of requests that change something for people. What workers report is in the store, and of turns, of which a build
/// takes thousands, nothing stays. Files that are uploaded are named by a submission, if they are for anything.
fn changes(method: &Method, path: &str) -> bool {
    let looks = method == Method::GET || method == Method::HEAD;
    let is_of_files = path.starts_with(UPLOAD_PATHS);
    !looks && !path.starts_with(WORKER_PATHS) && !is_of_turns(path) && !is_of_files
}

fn is_of_turns(path: &str) -> bool {
    path.strip_prefix(TURNS_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Denied {
    /// The same for a worker, whose protocol has words of its own for it.
    fn into_grpc(self) -> Response {
        let code = match self.code() {
            ErrorCode::Forbidden => tonic::Code::PermissionDenied,
            ErrorCode::Unavailable => tonic::Code::Unavailable,
            _ => tonic::Code::Unauthenticated,
        };
        tonic::Status::new(code, self.to_string()).into_http()
    }
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let mut response = ApiError::new(self.code(), self.to_string()).hint(self.hint()).into_response();
        // The audit log and the server's log say why.
        response.extensions_mut().insert(self);
        response
    }
}

/// Refuses requests that a web page in a user's browser sends. A browser on this machine reaches the server on behalf of
/// every page, and it repeats a password that a user typed in for every page too. Where nothing was shown, the server is
/// also to be addressed by a name that no other DNS server could answer for.
pub async fn same_origin(request: Request, next: Next) -> Response {
    if request.uri().path() == HEALTH_PATH {
        return next.run(request).await;
    }
    let caller = request.extensions().get::<Caller>();
    let has_session = request.extensions().get::<SignIn>().is_some_and(|by| by.session().is_some());
    // An unknown caller is not trusted either.
    let shown_token = has_session || caller.is_none_or(|caller| caller.token.is_some());
    if is_of_foreign_page(&request) || (!shown_token && !names_this_machine(&host_of(&request))) {
        let error = ApiError::new(ErrorCode::BadRequest, "requests of web pages are refused");
        return error.hint("address the server as 127.0.0.1 or localhost").into_response();
    }
    next.run(request).await
}

/// True where a browser says that another's page sends this.
fn is_of_foreign_page(request: &Request) -> bool {
    let host = host_of(request);
    let foreign = |name: &str, own: &dyn Fn(&str) -> bool| match request.headers().get(name) {
        None => false,
        Some(value) => !value.to_str().is_ok_and(own),
    };
    foreign("origin", &|origin| origin.split("://").nth(1) == Some(host.as_str()))
        || foreign("sec-fetch-site", &|site| site == "none" || site == "same-origin")
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// True of a name that an attacker's DNS could not have answered for.
fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Counts requests under way, so that an idle server can tell that it is. Those whose client hung up are
/// over, too. Says the server's clock with the answer.
pub async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let _open = app.shared.front.activity.begin();
    let span = spans::request(&request);
    let response = next.run(request).await;
    spans::answered(&span, response.status());
    say_clock(response, app.handle.now())
}

/// Says with an answer what the clock of its times is now, where that is not said yet.
pub fn say_clock(mut response: Response, now: Time) -> Response {
    let name = HeaderName::from_static(CLOCK_HEADER);
    response.headers_mut().entry(name).or_insert_with(|| HeaderValue::from(now.as_ms()));
    response
}

/// Closes the server when there was no request and no active job for that long.
pub async fn close_when_idle(app: App, idle: Duration) {
    let mut busy_until = Instant::now();
    let tick = (idle / 10).clamp(Duration::from_millis(20), Duration::from_secs(30));
    let mut closing = app.handle.closing();
    loop {
        tokio::select! {
            () = tokio::time::sleep(tick) => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
        let listeners = app.handle.parts().events.listeners();
        let last = app.shared.front.activity.last_end();
        let active =
            app.handle.query(|engine| engine.jobs().next().is_some() || !engine.subqueues().is_empty()).await;
        if active != Ok(false) || listeners > 0 || app.shared.front.activity.is_busy() {
            busy_until = Instant::now();
        }
        if Instant::now().duration_since(busy_until.max(last)) >= idle {
            tracing::info!("no work and no clients for {} s: ending", idle.as_secs());
            app.handle.close();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values of headers.
    type Headers<'a> = &'a [(&'a str, &'a [u8])];

    fn request(uri: &str, headers: Headers<'_>) -> Request {
        let mut request = axum::http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn a_browser_says_whose_page_asks() {
        let cases: [(&str, Headers<'_>, bool); 8] = [
            ("/", &[("host", b"a:1")], false),
            ("/", &[("host", b"a:1"), ("origin", b"http://a:1")], false),
            ("/", &[("host", b"a:1"), ("sec-fetch-site", b"same-origin")], false),
            ("/", &[("host", b"a:1"), ("origin", b"http://evil.example")], true),
            ("/", &[("host", b"a:1"), ("origin", b"null")], true),
            ("/", &[("host", b"a:1"), ("origin", b"\xff")], true),
            ("/", &[("host", b"a:1"), ("sec-fetch-site", b"cross-site")], true),
            // HTTP/2 carries the name in the request's URI instead of a Host header.
            ("http://a:1/", &[("origin", b"http://b:1")], true),
        ];
        for (uri, headers, foreign) in cases {
            assert_eq!(is_of_foreign_page(&request(uri, headers)), foreign, "{uri} {headers:?}");
        }
        assert_eq!(host_of(&request("http://evil.example/", &[])), "evil.example");
        assert!(!names_this_machine(&host_of(&request("/", &[("host", b"\xff")]))));
    }

    #[test]
    fn only_names_of_this_machine_pass() {
        for host in ["localhost", "localhost:7117", "127.0.0.1:1", "127.8.8.8", "[::1]:7117"] {
            assert!(names_this_machine(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80", "10.0.0.1", "[::2]:1", "", ":7117"] {
            assert!(!names_this_machine(host), "{host}");
        }
    }
}
