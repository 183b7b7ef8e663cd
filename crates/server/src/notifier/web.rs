//! Webhooks: one request each, that follows no redirection and reads little of the answer.

use super::backlog::HOST_SENDS_MAX;
use super::undelivered::{OwnNetwork, Undelivered};
use crate::notices::{NoticeRules, host_and_port, is_own_network, leads_inside, sign};
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a webhook may take in all.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read, so that its connection can be used again. Nothing is made of them.
const ANSWER_BYTES_MAX: usize = 16_384;
/// How long a connection is kept for the next notice.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Names that are looked up at a time. Each look keeps a thread for as long as the resolver takes.
const LOOKUPS_MAX: usize = 16;

/// The clients by which webhooks are called, each made when it is needed first.
pub(super) struct Webhooks {
    clients: Mutex<BTreeMap<ClientKind, Client>>,
    lookups: Arc<Semaphore>,
}

/// What a client may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClientKind {
    /// It speaks TLS. Only then the certificates are read that the system trusts, and a system may have none.
    is_https: bool,
    /// It connects only to addresses of the public internet.
    only_public: bool,
}

impl Webhooks {
    /// Nothing was called yet.
    pub fn new() -> Webhooks {
        Webhooks { clients: Mutex::default(), lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }

    /// Calls a webhook. `address` is the URL as its user wrote it.
    pub async fn post(
        &self,
        rules: &NoticeRules,
        (address, url): (&str, Url),
        id: &str,
        body: String,
    ) -> Result<(), Undelivered> {
        let only_public = !rules.trusts(address, &url);
        let host = host_and_port(&url);
        if only_public && leads_inside(&url) {
            return Err(Undelivered::OwnNetwork { host });
        }
        let client = self.client(ClientKind { is_https: url.scheme() == "https", only_public })?;
        let mut request =
            client.post(url).header("content-type", "application/json").header("windlass-notice", id);
        if let Some(key) = &rules.key {
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let signed = sign(key, now_s, &body);
            request = request
                .header("windlass-timestamp", signed.timestamp)
                .header("windlass-signature", signed.signature);
        }
        let answer = request.body(body).send().await;
        let answer = answer.map_err(|error| Undelivered::of_client(&host, error))?;
        let status = answer.status();
        discard(answer).await;
        if status.is_success() { Ok(()) } else { Err(Undelivered::Status { host, status: status.as_u16() }) }
    }

    fn client(&self, kind: ClientKind) -> Result<Client, Undelivered> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&kind) {
            return Ok(client.clone());
        }
        let names = Names { only_public: kind.only_public, lookups: self.lookups.clone() };
        let made = new_client(kind.is_https, names)?;
        clients.insert(kind, made.clone());
        Ok(made)
    }
}

fn new_client(is_https: bool, names: Names) -> Result<Client, Undelivered> {
    // It is installed already if another client was created before.
    _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder();
    let builder = if is_https { builder } else { builder.tls_certs_only([]) };
    let builder = builder
        .dns_resolver(names)
        // A redirection could lead into the server's own network.
        .redirect(Policy::none())
        // A proxy would look names up by itself.
        .no_proxy()
        .referer(false)
        .http1_only()
        .connect_timeout(CONNECT_MAX)
        .timeout(ANSWER_MAX)
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(HOST_SENDS_MAX)
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|error| Undelivered::of_client("this machine", error))
}

/// Reads the beginning of an answer. Where there is more, its connection is closed.
async fn discard(mut answer: Response) {
    let mut bytes = 0;
    while bytes < ANSWER_BYTES_MAX {
        match answer.chunk().await {
            Ok(Some(chunk)) => bytes += chunk.len(),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Looks names up. The addresses that it returns are those that are connected to, so a name cannot lead elsewhere
/// between the check and the connection.
struct Names {
    only_public: bool,
    lookups: Arc<Semaphore>,
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (only_public, lookups) = (self.only_public, self.lookups.clone());
        Box::pin(async move {
            let permit = lookups.acquire_owned().await?;
            let look = move || {
                // The thread goes on when nothing waits for it any more.
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>)
            };
            let found = tokio::task::spawn_blocking(look).await??;
            if only_public && found.iter().any(|address| is_own_network(address.ip())) {
                return Err(OwnNetwork.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    #[tokio::test]
    async fn a_name_that_leads_inside_is_found_when_it_is_looked_up() {
        let lookups = Arc::new(Semaphore::new(1));
        let look = |only_public| {
            let names = Names { only_public, lookups: lookups.clone() };
            names.resolve("localhost".parse().unwrap())
        };
        let refused = look(true).await.err().unwrap();
        assert!(refused.to_string().contains("own network"), "{refused}");
        assert!(look(false).await.unwrap().all(|address| address.ip().is_loopback()));
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_told_without_the_rest_of_its_address() {
        let names = Names { only_public: true, lookups: Arc::new(Semaphore::new(1)) };
        let client = new_client(false, names).unwrap();
        let error = client.post("http://localhost:9/hook?token=secret").send().await.unwrap_err();
        let why = Undelivered::of_client("localhost:9", error).to_string();
        assert!(why.contains("'localhost:9'") && why.contains("notify.allow"), "{why}");
        assert!(!why.contains("hook") && !why.contains("secret"), "{why}");
    }

    /// Answers one request with this text, and returns the request.
    fn answering(listener: TcpListener, answer: String) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            while !request.ends_with(b"{}") {
                let n = stream.read(&mut part).unwrap();
                assert!(n > 0, "the request ended early");
                request.extend(&part[..n]);
            }
            // The client may close before it has read all of a long answer.
            _ = stream.write_all(answer.as_bytes());
            String::from_utf8(request).unwrap()
        })
    }

    async fn post(answer: &str, allowed: bool) -> (Result<(), Undelivered>, Option<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let text = format!("http://{host}/hook");
        let allow = if allowed { vec![host] } else { Vec::new() };
        let config = crate::config::NotifyConfig { allow, ..Default::default() };
        let rules = NoticeRules::new(&config).unwrap();
        let url = Url::parse(&text).unwrap();
        if !allowed {
            return (Webhooks::new().post(&rules, (text.as_str(), url), "7-1", "{}".to_owned()).await, None);
        }
        let request = answering(listener, answer.to_owned());
        let result = Webhooks::new().post(&rules, (text.as_str(), url), "7-1", "{}".to_owned()).await;
        (result, Some(request.join().unwrap()))
    }

    #[tokio::test]
    async fn a_webhook_gets_one_request_and_only_success_counts() {
        let (result, request) = post("HTTP/1.1 204 No Content\r\n\r\n", true).await;
        let request = request.unwrap().to_lowercase();
        assert!(result.is_ok() && request.starts_with("post /hook http/1.1\r\n"), "{result:?} {request}");
        assert!(request.contains("\r\nwindlass-notice: 7-1\r\n"), "{request}");
        assert!(!request.contains("windlass-signature"), "there is no secret: {request}");
        let moved = "HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        let (result, _) = post(moved, true).await;
        assert!(matches!(result, Err(Undelivered::Status { status: 307, .. })), "{result:?}");
        let long = format!("HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n{}", "x".repeat(100_000));
        assert!(post(&long, true).await.0.is_ok(), "the rest of the answer is not waited for");
        let (result, _) = post("", false).await;
        assert!(matches!(result, Err(Undelivered::OwnNetwork { .. })), "{result:?}");
    }
}
