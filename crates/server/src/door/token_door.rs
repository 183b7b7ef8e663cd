//! The board's door of a program other than Windlass's server, such as the gateway of another scheduler. Its people
//! have no names here: one token stands for all of them.
//!
//! - Without a token whatever runs on this machine may look, and the port is one of this machine alone.
//! - With one, a browser gets a session for it, and a program shows it as `Authorization: Bearer`.
//! - Pages, sessions, and the rules for requests of browsers are those of the server's own board.

use super::cookie;
use super::pages::{self, EmbeddedFile};
use super::sessions::Sessions;
use crate::api_error::{ApiError, read_body};
use crate::auth::{Denied, Entrance, Peer};
use crate::caller::Right;
use crate::clock::Clock;
use crate::csrf::{Addressed, CrossSite, RequestOrigin, check_host, host_of};
use crate::listen::{PortLimits, serve_port};
use crate::random::hash_of_secret;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::rejection::BytesRejection;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use windlass_api::{BoardSignIn, ErrorCode, SignedInBy};

/// Characters of a token at least. `openssl rand -hex 32` writes 64.
pub const TOKEN_CHARS_MIN: usize = 32;
/// Where the board's page signs in and out.
const SESSION_PATH: &str = "/api/v1/board/session";
/// Bytes of a body, which holds a token at most.
const BODY_BYTES_MAX: usize = 4 << 10;
/// How long a request may take once its body has come.
const REQUEST_TIME: Duration = Duration::from_secs(30);
/// Limits of the port. A browser opens up to six connections, and another where one has lasted too long. A reverse proxy
/// has all of them.
const LIMITS: PortLimits = PortLimits {
    connections_max: 512,
    per_machine_max: 512,
    connection_lasts_max: Some(Duration::from_secs(3_600)),
    body_bytes_max: |_| BODY_BYTES_MAX,
    requests_bytes_max: 4 << 20,
};

/// Why a door is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what went wrong")]
pub enum TokenDoorError {
    #[error("the board at {0} can be reached from other machines, and needs a token file")]
    Open(SocketAddr),
    #[error(
        "the board's token is shorter than {TOKEN_CHARS_MIN} characters; 'openssl rand -hex 32' makes a good one"
    )]
    Short,
}

/// Lets in clients that show the token; without a token, all clients of this machine.
pub struct TokenDoor {
    entrance: Entrance,
    hosts: Vec<String>,
    token_hash: Option<[u8; 32]>,
    sessions: Sessions,
    /// Sign-ins since the door was made.
    sign_ins: AtomicU64,
    clock: Clock,
}

enum Passage {
    /// See a page, which has no data.
    Page(&'static EmbeddedFile),
    Session,
    In(SignedInBy),
}

impl TokenDoor {
    /// A door at the address of a listener. `hosts` are names, `HOST` or `HOST:PORT`, under which browsers reach a
    /// loopback address besides the machine's own: those of a reverse proxy.
    ///
    /// # Errors
    ///
    /// Other machines could look without a token, or the token is short.
    pub fn new(
        listens: SocketAddr,
        hosts: Vec<String>,
        token: Option<&str>,
    ) -> Result<TokenDoor, TokenDoorError> {
        match token {
            None if !listens.ip().is_loopback() => return Err(TokenDoorError::Open(listens)),
            Some(token) if token.chars().count() < TOKEN_CHARS_MIN => return Err(TokenDoorError::Short),
            _ => {}
        }
        Ok(TokenDoor {
            entrance: Entrance { address: listens, is_tls: false, for_board: true },
            hosts,
            token_hash: token.map(hash_of_secret),
            sessions: Sessions::default(),
            sign_ins: AtomicU64::new(0),
            clock: Clock::new(),
        })
    }

    /// Serves the board's pages, sign-in, and `routes` to clients that are let in, until it is dropped. Handlers have a
    /// [`SignedInBy`] among the extensions of their requests.
    pub async fn serve(self, listener: TcpListener, routes: Router) {
        if let Err(error) = serve_port(listener, self.guard(routes), LIMITS, None, None).await {
            tracing::error!("the board's port does not answer: {error}");
        }
    }

    fn guard(self, routes: Router) -> Router {
        let door = Arc::new(self);
        let session: Router =
            Router::new().route(SESSION_PATH, post(sign_in).delete(sign_out)).with_state(door.clone());
        let all = routes.merge(session).fallback(nothing_there);
        all.layer(middleware::from_fn_with_state(door, admit))
    }

    fn check(&self, request: &Request) -> Result<Passage, Denied> {
        let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
        let host = host_of(request);
        check_host(&host, Some(&self.entrance), &self.hosts)?;
        let has_body = request.body().size_hint().exact() != Some(0);
        let origin = RequestOrigin { method, host: &host, headers, has_body };
        let looks = method == Method::GET || method == Method::HEAD;
        if let Some(file) = pages::find(path).filter(|_| looks) {
            origin.check_page()?;
            return Ok(Passage::Page(file));
        }
        if path == SESSION_PATH {
            origin.check_sign_in()?;
            return Ok(Passage::Session);
        }
        let Some(token_hash) = &self.token_hash else {
            origin.check_session()?;
            return Ok(Passage::In(SignedInBy::None));
        };
        if let Some(shown) = headers.get(header::AUTHORIZATION) {
            let shown = shown.to_str().ok().and_then(|shown| shown.strip_prefix("Bearer "));
            let is_it = shown.is_some_and(|shown| is_token(token_hash, shown));
            return if is_it { Ok(Passage::In(SignedInBy::Token)) } else { Err(Denied::Unknown) };
        }
        if self.session(headers, &host).is_none() {
            return Err(Denied::Missing);
        }
        origin.check_session()?;
        Ok(Passage::In(SignedInBy::Session))
    }

    /// The id of the session that a request shows.
    fn session(&self, headers: &HeaderMap, host: &str) -> Option<String> {
        let now = self.clock.now();
        let mut shown = cookie::shown(headers, host);
        shown.find_map(|shown| self.sessions.find(shown, now)).map(|session| session.id)
    }
}

fn is_token(token_hash: &[u8; 32], shown: &str) -> bool {
    bool::from(token_hash.ct_eq(&hash_of_secret(shown.trim())))
}

async fn admit(State(door): State<Arc<TokenDoor>>, mut request: Request, next: Next) -> Response {
    match door.check(&request) {
        Err(denied) => return refusal(denied),
        Ok(Passage::Page(file)) => return pages::answer(file, request.method(), request.headers()),
        Ok(Passage::Session) => {
            let peer = Peer { entrance: Some(door.entrance), ..Peer::LOCAL };
            let addressed = Addressed::of(&peer, &request);
            request.extensions_mut().insert(addressed);
        }
        Ok(Passage::In(by)) => {
            request.extensions_mut().insert(by);
        }
    }
    let mut response = match tokio::time::timeout(REQUEST_TIME, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let why = format!("the answer took longer than {} s", REQUEST_TIME.as_secs());
            ApiError::new(ErrorCode::Unavailable, why).into_response()
        }
    };
    pages::harden(response.headers_mut());
    let keep = HeaderValue::from_static("no-store");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(keep);
    response
}

fn refusal(denied: Denied) -> Response {
    let hint = match denied {
        Denied::CrossSite(CrossSite::Host) => {
            "address it as 127.0.0.1 or localhost with its port; name a reverse proxy in the settings"
        }
        Denied::CrossSite(_) => "a program leaves out the headers by which browsers say where they come from",
        _ => "sign in with the token of the settings; a program sends it as 'Authorization: Bearer TOKEN'",
    };
    let mut response = ApiError::new(denied.code(), denied.to_string()).hint(hint).into_response();
    pages::harden(response.headers_mut());
    response
}

async fn sign_in(
    State(door): State<Arc<TokenDoor>>,
    Extension(addressed): Extension<Addressed>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let shown: BoardSignIn = match read_body(body) {
        Ok(shown) => shown,
        Err(error) => return error.into_response(),
    };
    let Some(token_hash) = &door.token_hash else {
        return ApiError::new(ErrorCode::BadRequest, "this board asks for no token").into_response();
    };
    match shown {
        BoardSignIn { token: Some(token), code: None } if is_token(token_hash, &token) => {}
        BoardSignIn { token: None, code: Some(_) } => return refusal(Denied::Code),
        _ => return refusal(Denied::Unknown),
    }
    // All have the same token. A right of its own for each keeps the bound of one token's sessions from ending others'.
    let right = Right::Token(door.sign_ins.fetch_add(1, Ordering::Relaxed).to_string());
    match door.sessions.begin(right, None, door.clock.now()) {
        Ok(session) => with_cookie(cookie::set(&addressed.host, &session, addressed.is_tls)),
        Err(error) => ApiError::new(ErrorCode::Internal, error.to_string()).into_response(),
    }
}

async fn sign_out(
    State(door): State<Arc<TokenDoor>>,
    Extension(addressed): Extension<Addressed>,
    headers: HeaderMap,
) -> Response {
    if let Some(id) = door.session(&headers, &addressed.host) {
        door.sessions.end(&id);
    }
    with_cookie(cookie::clear(&addressed.host, addressed.is_tls))
}

fn with_cookie(written: String) -> Response {
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, written)]).into_response()
}

async fn nothing_there() -> ApiError {
    ApiError::new(ErrorCode::NotFound, "there is nothing at this path")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    /// A door that serves in the background.
    struct Open {
        address: SocketAddr,
        _serving: JoinSet<()>,
    }

    impl Open {
        async fn new(hosts: &[&str], token: Option<&str>) -> Open {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let door = TokenDoor::new(address, hosts, token).unwrap();
            let routes = Router::new().route(
                "/api/v1/farm",
                get(|Extension(by): Extension<SignedInBy>| async move { format!("by {by:?}") }),
            );
            let mut serving = JoinSet::new();
            serving.spawn(door.serve(listener, routes));
            Open { address, _serving: serving }
        }

        /// The answer to a request, head and body.
        async fn ask(&self, line: &str, headers: &[&str], body: &str) -> String {
            let own = format!("Host: {}", self.address);
            let host =
                if headers.iter().any(|header| header.starts_with("Host:")) { "" } else { own.as_str() };
            let mut head =
                format!("{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
            for header in headers.iter().copied().chain([host]).filter(|header| !header.is_empty()) {
                head.push_str(&format!("{header}\r\n"));
            }
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }
    }

    fn status(answer: &str) -> &str {
        answer.split(' ').nth(1).unwrap_or_default()
    }

    #[test]
    fn other_machines_need_a_token_that_cannot_be_guessed() {
        let at = |address: &str, token| TokenDoor::new(address.parse().unwrap(), Vec::new(), token).err();
        let open: SocketAddr = "0.0.0.0:8448".parse().unwrap();
        assert_eq!(at("0.0.0.0:8448", None), Some(TokenDoorError::Open(open)));
        assert_eq!(at("0.0.0.0:8448", Some("short")), Some(TokenDoorError::Short));
        assert_eq!(at("127.0.0.1:8448", Some("short")), Some(TokenDoorError::Short));
        assert!(at("0.0.0.0:8448", Some(TOKEN)).is_none() && at("[::1]:8448", None).is_none());
    }

    #[tokio::test]
    async fn without_a_token_this_machine_looks_and_no_other_site_s_page_does() {
        let open = Open::new(&["farm.example"], None).await;
        let look = "GET /api/v1/farm";
        let answer = open.ask(look, &[], "").await;
        assert!(answer.ends_with("by None") && answer.contains("cache-control: no-store"), "{answer}");
        assert_eq!(status(&open.ask(look, &["Host: farm.example"], "").await), "200");
        for header in ["Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
            let answer = open.ask(look, &[header], "").await;
            assert!(status(&answer) == "403" && answer.contains("\"hint\""), "{header}: {answer}");
        }
        let page = open.ask("GET /jobs/any", &[], "").await;
        assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
        assert_eq!(status(&open.ask("GET /api/v1/nothing", &[], "").await), "404");
        let json = ["Content-Type: application/json"];
        let body = format!("{{\"token\":\"{TOKEN}\"}}");
        assert_eq!(status(&open.ask("POST /api/v1/board/session", &json, &body).await), "400");
    }

    #[tokio::test]
    async fn with_a_token_only_those_who_show_it_or_a_session_look() {
        let open = Open::new(&[], Some(TOKEN)).await;
        let look = "GET /api/v1/farm";
        assert_eq!(status(&open.ask(look, &[], "").await), "401");
        assert_eq!(status(&open.ask("GET /", &[], "").await), "200", "a page has no data");
        let bearer = format!("Authorization: Bearer {TOKEN}");
        assert!(open.ask(look, &[&bearer], "").await.ends_with("by Token"));
        assert_eq!(status(&open.ask(look, &["Authorization: Bearer 0"], "").await), "401");
        let json = "Content-Type: application/json";
        let (path, body) = ("POST /api/v1/board/session", format!("{{\"token\":\"{TOKEN}\"}}"));
        let cases: [(&[&str], &str, &str); 5] = [
            (&[json], "{\"token\":\"0\"}", "401"),
            (&[json], "{\"code\":\"0\"}", "401"),
            (&[json], "{", "400"),
            (&[json, "Origin: http://evil.example"], body.as_str(), "403"),
            (&["Content-Type: text/plain"], body.as_str(), "403"),
        ];
        for (headers, body, expected) in cases {
            let answer = open.ask(path, headers, body).await;
            assert_eq!(status(&answer), expected, "{headers:?} {body}");
            assert!(!answer.contains("set-cookie"), "{answer}");
        }
        let answer = open.ask(path, &[json], &body).await;
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap().to_owned();
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
        assert!(open.ask(look, &[&cookie], "").await.ends_with("by Session"));
        let foreign = [cookie.as_str(), "Sec-Fetch-Site: same-site"];
        assert_eq!(status(&open.ask(look, &foreign, "").await), "403");
        assert_eq!(status(&open.ask("DELETE /api/v1/board/session", &[&cookie], "").await), "204");
        assert_eq!(status(&open.ask(look, &[&cookie], "").await), "401");
    }

    #[tokio::test]
    async fn what_is_too_long_is_refused() {
        let open = Open::new(&[], Some(TOKEN)).await;
        let body = format!("{{\"token\":\"{}\"}}", "0".repeat(BODY_BYTES_MAX));
        let json = ["Content-Type: application/json"];
        let answer = open.ask("POST /api/v1/board/session", &json, &body).await;
        assert_eq!(status(&answer), "413", "{answer}");
    }
}
