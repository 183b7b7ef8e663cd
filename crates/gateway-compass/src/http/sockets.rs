//! Long connections: sockets of providers and clients, and requests of machines that boot and wait for a job.

use super::table::given;
use crate::access::{check_any_host, check_host, check_look};
use crate::answer::{Refused, say};
use crate::app::App;
use crate::boot::BootType;
use crate::caller::{MaybePeer, Who, peer_address, who};
use crate::fill::DEFAULT_SERVER;
use crate::format::{Fields, text_of};
use crate::lab::{Ask, Machine, MachineName, Session, Speaker, UnsentMessages};
use crate::record::{Params, Reached};
use crate::view::View;
use axum::Extension;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{ConnectInfo, FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;
use windlass_core::JobId;
use windlass_core::bounds::NAME_BYTES_MAX;
use windlass_server::auth::{Caller, Peer};
use windlass_server::{Admission, JsonLimits, Unavailable, read_json};

/// Bytes of a message on a socket.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// The interval of pings, which detect peers that are gone.
const PING: Duration = Duration::from_secs(30);
/// How long a peer may take to read a message.
const SEND_PATIENCE: Duration = Duration::from_secs(30);
/// How long a machine that boots waits for a job at a time.
const BOOT_WAIT: Duration = Duration::from_secs(10);

/// The token or session by which a socket was admitted.
type LetIn = Option<Extension<Admission>>;

/// Opens the socket of a provider.
pub(super) async fn provider(
    State(app): State<App>,
    caller: Who,
    let_in: LetIn,
    Path(host): Path<String>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refused> {
    check_host(who(&caller), &host)?;
    let upgrade = upgrade.map_err(|rejection| rejection.into_response())?;
    if host.len() > NAME_BYTES_MAX || host.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let why = format!("a host's name is a word of up to {NAME_BYTES_MAX} bytes");
        return Err(say(StatusCode::BAD_REQUEST, why).into());
    }
    let server = server_of(&headers);
    Ok(open(app.clone(), upgrade, move |socket, session, ear| async move {
        let id = session.id;
        app.compass.tell(Ask::Opened { host: host.clone(), session, server }).await;
        let (to, from) = (app.clone(), host.clone());
        talk(app.clone(), let_in, socket, ear, move |text| {
            let (to, from) = (to.clone(), from.clone());
            async move { provider_says(&to, &from, id, text).await }
        })
        .await;
        app.compass.tell(Ask::Closed { host, session: id }).await;
    }))
}

/// Handles a provider's message. False if the socket has to be closed.
async fn provider_says(app: &App, host: &str, session: u64, text: String) -> bool {
    let read = read_json::<Value>(text.as_bytes(), JsonLimits::GATEWAY);
    let Ok(Value::Object(fields)) = read else { return true };
    let job = text_of(&fields, "job_id").and_then(|id| id.parse().ok()).map(JobId);
    let kind = text_of(&fields, "type").unwrap_or_default();
    let host = host.to_owned();
    let ask = match (kind.as_str(), job) {
        ("host-job-request", _) => Ask::Requested { host, session, fields: Box::new(fields) },
        ("job-update", Some(job)) => {
            let speaker = Speaker::Host(host);
            Ask::Update { job, params: params_of(&fields), speaker, reply: None }
        }
        ("job-log" | "log-exit", Some(job)) => Ask::Passed { host, job, text, console: false },
        ("console-startup" | "console-output" | "console-exit" | "console-error", Some(job)) => {
            Ask::Passed { host, job, text, console: true }
        }
        _ => {
            tracing::debug!("provider '{host}' said something of no known kind");
            return true;
        }
    };
    app.compass.tell(ask).await
}

/// The parameters of an update, from the fields of a message.
fn params_of(fields: &Fields) -> Params {
    let words = fields.keys().filter(|key| !matches!(key.as_str(), "type" | "job_id"));
    words.filter_map(|key| Some((key.clone(), text_of(fields, key)?))).collect()
}

/// Opens the socket of a client.
pub(super) async fn client(
    State(app): State<App>,
    caller: Who,
    let_in: LetIn,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refused> {
    let caller = check_look(who(&caller))?.clone();
    let upgrade = upgrade.map_err(|rejection| rejection.into_response())?;
    Ok(open(app.clone(), upgrade, move |socket, session, ear| async move {
        let id = session.id;
        let version = env!("CARGO_PKG_VERSION");
        let message = format!("Welcome to the Compass CI scheduler of Windlass {version}");
        let welcome = json!({"type": "welcome", "sid": id, "message": message, "status": "connected"});
        _ = session.send(welcome.to_string());
        app.compass.tell(Ask::ClientOpened(session.clone())).await;
        let to = app.clone();
        talk(app.clone(), let_in, socket, ear, move |text| {
            let (to, caller, session) = (to.clone(), caller.clone(), session.clone());
            async move {
                match client_says(&to, &caller, id, text).await {
                    Ok(going) => going,
                    Err(why) => session.send(json!({"type": "error", "message": why}).to_string()),
                }
            }
        })
        .await;
        app.compass.tell(Ask::ClientClosed(id)).await;
    }))
}

/// Handles a client's message. False if the socket has to be closed.
async fn client_says(app: &App, caller: &Caller, session: u64, text: String) -> Result<bool, String> {
    let fields = match read_json::<Value>(text.as_bytes(), JsonLimits::GATEWAY) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Err("Invalid message format".to_owned()),
        Err(_) => return Err("Invalid JSON format".to_owned()),
    };
    let kind = text_of(&fields, "type").ok_or("Missing message type")?;
    let job = text_of(&fields, "job_id").and_then(|id| id.parse().ok()).map(JobId);
    let job = job.ok_or("Invalid or missing job_id")?;
    let view = View::find(&app.handle, job).await.map_err(|e| e.to_string())?;
    let view = view.ok_or_else(|| format!("Job {job} not found"))?;
    // Only the job's user may open its console.
    if kind.contains("console") && !caller.may_act_for(&view.spec.user) {
        return Err(format!("Job {job} belongs to another user"));
    }
    // Events and logs are for readers of the job.
    if kind.starts_with("watch") && !app.front.reader(caller).may_read(&view.spec.user) {
        return Err(format!("Job {job} belongs to another user"));
    }
    if view.record.is_closed() && kind.starts_with("watch") {
        return Err(format!("Job {job} is closed"));
    }
    Ok(app.compass.tell(Ask::ClientSaid { session, kind, job, text }).await)
}

/// Upgrades a request to a socket, unless too many are open.
fn open<F>(
    app: App,
    upgrade: WebSocketUpgrade,
    serve: impl FnOnce(WebSocket, Session, UnsentMessages) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let Ok(place) = app.compass.sockets.clone().try_acquire_owned() else {
        return say(StatusCode::SERVICE_UNAVAILABLE, "this server has as many sockets open as it can take");
    };
    let (session, ear) = Session::new(app.compass.next_id());
    let upgrade = upgrade.max_message_size(MESSAGE_BYTES_MAX).max_frame_size(MESSAGE_BYTES_MAX);
    upgrade
        .on_upgrade(move |socket| async move {
            let _busy = app.front.busy();
            serve(socket, session, ear).await;
            drop(place);
        })
        .into_response()
}

/// Passes messages in both directions until either end closes, or the token or session ends.
async fn talk<F>(
    app: App,
    let_in: LetIn,
    mut socket: WebSocket,
    mut ear: UnsentMessages,
    mut says: impl FnMut(String) -> F,
) where
    F: Future<Output = bool>,
{
    let mut ping = tokio::time::interval(PING);
    ping.tick().await;
    let in_force = || let_in.as_ref().is_none_or(|Extension(admission)| admission.is_in_force());
    loop {
        let message = tokio::select! {
            text = ear.next() => match text {
                Some(text) => Message::Text(text.into()),
                None => break,
            },
            heard = socket.recv() => match heard {
                Some(Ok(Message::Text(text))) => match in_force() && says(text.to_string()).await {
                    true => continue,
                    false => break,
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
            _ = ping.tick() => Message::Ping(Vec::new().into()),
            () = app.handle.ends() => break,
        };
        if !in_force() {
            break;
        }
        match tokio::time::timeout(SEND_PATIENCE, socket.send(message)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
    // The peer may be gone already.
    _ = tokio::time::timeout(SEND_PATIENCE, socket.send(Message::Close(None))).await;
}

/// The parts of a request of a machine that boots.
pub(super) struct Asking {
    caller: Who,
    peer: MaybePeer,
    headers: HeaderMap,
    query: BTreeMap<String, String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Asking {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let query = Query::from_request_parts(parts, state).await.map_err(IntoResponse::into_response)?;
        let caller = parts.extensions.get::<Caller>().cloned().map(Extension);
        let peer = parts.extensions.get::<ConnectInfo<Peer>>().cloned().map(Extension);
        Ok(Asking { caller, peer, headers: parts.headers.clone(), query: query.0 })
    }
}

impl Asking {
    /// The names that the query gives.
    fn name(&self) -> MachineName {
        let of = |key| given(&self.query, key);
        MachineName { mac: of("mac"), hostname: of("hostname"), ip: of("ip") }
    }
}

/// Answers a machine that boots, and names itself in the query.
pub(super) async fn dispatch(State(app): State<App>, asking: Asking) -> Result<Response, Refused> {
    let name = asking.name();
    if name.mac.is_none() && name.hostname.is_none() && name.ip.is_none() {
        return Err(say(StatusCode::BAD_REQUEST, "Missing MAC address").into());
    }
    let Some(boot) = BootType::parse(&given(&asking.query, "boot_type").unwrap_or_else(|| "ipxe".to_owned()))
    else {
        return Err(say(StatusCode::BAD_REQUEST, "boot_type must be ipxe, grub, native or libvirt").into());
    };
    wait_for_job(app, asking, name, boot).await
}

/// Answers a boot loader or a host, which names its machine in the path.
pub(super) async fn boot(
    State(app): State<App>,
    Path((parameter, value)): Path<(String, String)>,
    asking: Asking,
    boot: BootType,
) -> Result<Response, Refused> {
    let mut name = asking.name();
    match parameter.as_str() {
        "hostname" => name.hostname = Some(value),
        "ip" => name.ip = Some(value),
        _ => name.mac = Some(value),
    }
    wait_for_job(app, asking, name, boot).await
}

/// `HOST:PORT`, with only characters that are safe in a script.
fn plain_address(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(*c)).collect()
}

/// The address of this server in the request's header.
fn server_of(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = plain_address(host);
    let port = if host.is_empty() || host.rsplit(']').next().is_some_and(|end| end.contains(':')) {
        ""
    } else {
        ":80"
    };
    match host.as_str() {
        "" => DEFAULT_SERVER.to_owned(),
        host => format!("{host}{port}"),
    }
}

/// Tells the laboratory when dropped that the machine stopped waiting. A broken connection drops it, too.
struct WaitingMachine {
    app: App,
    ticket: u64,
}

impl Drop for WaitingMachine {
    fn drop(&mut self) {
        let (app, ticket) = (self.app.clone(), self.ticket);
        tokio::spawn(async move { app.compass.tell(Ask::Left { ticket }).await });
    }
}

async fn wait_for_job(
    app: App,
    asking: Asking,
    name: MachineName,
    boot: BootType,
) -> Result<Response, Refused> {
    let Asking { caller, peer, headers, query } = asking;
    check_any_host(who(&caller))?;
    let server = given(&query, "sched_host").map(|host| {
        let port = given(&query, "sched_port");
        plain_address(&format!("{host}:{}", port.as_deref().unwrap_or("3000")))
    });
    let address = peer_address(&peer).filter(|_| app.files.options.trust_addresses);
    let reached = Reached {
        server: server.clone().unwrap_or_else(|| server_of(&headers)),
        address,
        ..Reached::default()
    };
    let (ticket, (reply, mut answer)) = (app.compass.next_id(), oneshot::channel());
    let worker = who(&caller).and_then(|caller| caller.worker.clone());
    let machine = Machine { name, arch: given(&query, "arch"), worker, boot, server, reached, ticket, reply };
    let waiting = WaitingMachine { app: app.clone(), ticket };
    if !app.compass.tell(Ask::Booting { machine }).await {
        return Err(say(StatusCode::SERVICE_UNAVAILABLE, "the server is ending").into());
    }
    let answered = match tokio::time::timeout(BOOT_WAIT, &mut answer).await {
        Ok(answered) => answered,
        Err(_) => {
            // The laboratory may decide on a job at this moment. Its decision is the answer.
            drop(waiting);
            answer.await
        }
    };
    let answer = answered.map_err(|_| Unavailable::new("the server is ending"))?;
    let status = if answer.found { StatusCode::OK } else { StatusCode::NOT_FOUND };
    Ok((status, [(header::CONTENT_TYPE, "text/plain")], answer.text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_host_reaches_the_server_where_it_came() {
        let cases: [(&[u8], &str); 7] = [
            (b"10.0.0.1:3000", "10.0.0.1:3000"),
            (b"lab.example", "lab.example:80"),
            (b"[::1]:7117", "[::1]:7117"),
            (b"[::1]", "[::1]:80"),
            (b"a b\tc:1", "abc:1"),
            (b"\xff", DEFAULT_SERVER),
            (b"", DEFAULT_SERVER),
        ];
        for (host, server) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_bytes(host).unwrap());
            assert_eq!(server_of(&headers), server, "{}", String::from_utf8_lossy(host));
        }
        assert_eq!(server_of(&HeaderMap::new()), DEFAULT_SERVER);
    }
}
