//! A farm of build servers that compile nothing, beside a stock scheduler where `sccache-dist` is installed:
//! `cargo build --release && cargo bench -p windlass-gateway-sccache`.
//!
//! Every build server has an address of its own in 127.0.0.0/8, a certificate of its own, and answers each job at once.
//! A cycle is what a compile asks of its scheduler: a client asks for a place, the scheduler asks the build server over
//! TLS, and the build server says that the job has started and that it is complete. As from stock peers, each request has
//! a connection of its own.

use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use windlass_gateway_sccache::wire::{
    AllocJobResult, Heartbeat, JobState, SchedulerStatus, ServerId, ServerNonce, Toolchain, read, write,
};

const CLIENT_TOKEN: &str = "client";
const SERVER_TOKEN: &str = "server";
const ADDRESS: &str = "127.0.0.1:10677";
const SERVERS: usize = 1_000;
const CYCLES: usize = 6_000;
/// Cycles beside build servers that never answer.
const SILENT_CYCLES: usize = 1_000;
const CONCURRENCIES: [usize; 3] = [16, 100, 400];
/// Places enough for every cycle at a time.
const CPUS: u64 = 8;
const ARCHIVE: &str = "d26d9b22bebe507d1bfe65a30ff442e3b055c02d3060ddbb3f6dac8025b41258";

/// A build server as far as its scheduler sees it.
struct BuildServer {
    id: ServerId,
    digest: Vec<u8>,
    pem: String,
}

fn address_of(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, (number / 250) as u8, (number % 250 + 1) as u8)
}

/// All build servers, behind one listener that knows them by the address that was called.
async fn build_servers(count: usize) -> Vec<BuildServer> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([0, 0, 0, 0], 0).into()).expect("a free port");
    let listener = socket.listen(4_096).expect("it listens");
    let port = listener.local_addr().expect("its address").port();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (mut servers, mut acceptors) = (Vec::new(), BTreeMap::new());
    for number in 0..count {
        let address = address_of(number);
        let made = rcgen::generate_simple_self_signed(vec![address.to_string()]).expect("a certificate");
        let key = made.signing_key.serialize_der().try_into().expect("a key");
        let config = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("its own key");
        acceptors.insert(IpAddr::from(address), TlsAcceptor::from(Arc::new(config)));
        let digest = Sha256::digest(made.cert.der()).to_vec();
        servers.push(BuildServer { id: ServerId((address, port).into()), digest, pem: made.cert.pem() });
    }
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let called = stream.local_addr().expect("its address").ip();
            let Some(acceptor) = acceptors.get(&called).cloned() else { continue };
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let ready = hyper::service::service_fn(|_| async {
                    Ok::<_, Infallible>(axum::http::Response::new(axum::body::Body::from(vec![
                        1, 0, 0, 0, 0,
                    ])))
                });
                _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), ready)
                    .await;
            });
        }
    });
    servers
}

/// One request over a connection of its own; the status and the body.
async fn ask(
    method: &str,
    path: &str,
    token: &str,
    from: IpAddr,
    body: &[u8],
) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(ADDRESS).await?;
    let mut request = format!(
        "{method} /api/v1/scheduler/{path} HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\nX-Real-IP: {from}\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    stream.write_all(&request).await?;
    let mut answer = Vec::with_capacity(1024);
    stream.read_to_end(&mut answer).await?;
    let bad = || std::io::Error::other("the answer is not HTTP");
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(bad)?;
    let status =
        std::str::from_utf8(answer.get(9..12).ok_or_else(bad)?).ok().and_then(|text| text.parse().ok());
    Ok((status.ok_or_else(bad)?, answer.split_off(head + 4)))
}

async fn register(server: &BuildServer, num_cpus: u64) {
    let beat = Heartbeat {
        jwt_key: vec![9; 32],
        num_cpus,
        server_nonce: ServerNonce(7),
        cert_digest: server.digest.clone(),
        cert_pem: server.pem.clone().into_bytes(),
    };
    let token = format!("{} {SERVER_TOKEN}", server.id);
    let answer = ask("POST", "heartbeat_server", &token, server.id.0.ip(), &write(&beat)).await;
    let (status, body) = answer.expect("the scheduler answers");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
}

/// One compile as its scheduler sees it. Returns how long the client waited for its place; `None` if it got none.
async fn cycle() -> Option<Duration> {
    let clock = Instant::now();
    let here = IpAddr::from([127, 0, 0, 1]);
    let body = write(&Toolchain { archive_id: ARCHIVE.to_owned() });
    let (status, answer) = ask("POST", "alloc_job", CLIENT_TOKEN, here, &body).await.ok()?;
    let waited = clock.elapsed();
    if status != 200 {
        return None;
    }
    let AllocJobResult::Success { job_alloc, .. } = read(&answer).ok()? else { return None };
    let (server, path) = (job_alloc.server_id, format!("job_state/{}", job_alloc.job_id.0));
    for state in [JobState::Started, JobState::Complete] {
        let token = format!("{server} {SERVER_TOKEN}");
        let (status, _) = ask("POST", &path, &token, server.0.ip(), &write(&state)).await.ok()?;
        assert_eq!(status, 200);
    }
    Some(waited)
}

struct Scheduler {
    name: &'static str,
    child: Child,
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Scheduler {
    async fn start(name: &'static str, program: &Path, args: &[&str], dir: &Path) -> Scheduler {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join(format!("{name}.log")));
        let log = log.expect("a log");
        let mut command = Command::new(program);
        command.args(args).env("SCCACHE_NO_DAEMON", "1").env("WINDLASS_STATE", dir.join("state"));
        command.stdout(Stdio::null()).stderr(log);
        let scheduler = Scheduler { name, child: command.spawn().expect("it starts") };
        let patience = Instant::now() + Duration::from_secs(20);
        while status().await.is_none() {
            assert!(Instant::now() < patience, "{name} does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        scheduler
    }

    /// Processor time that the process has used.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }

    async fn measure(&self, servers: &[BuildServer]) {
        let clock = Instant::now();
        let next = AtomicUsize::new(0);
        let register_some = || async {
            while let Some(server) = servers.get(next.fetch_add(1, Ordering::Relaxed)) {
                register(server, CPUS).await;
            }
        };
        futures(16, register_some).await;
        let name = self.name;
        say(format_args!(
            "{name}: {} build servers registered in {:.2} s",
            servers.len(),
            clock.elapsed().as_secs_f64()
        ));
        for concurrency in CONCURRENCIES {
            let (clock, cpu, left) = (Instant::now(), self.cpu(), AtomicUsize::new(CYCLES));
            let waits = std::sync::Mutex::new(Vec::with_capacity(CYCLES));
            let some = || async {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    let waited = cycle().await;
                    waits.lock().expect("no cycle panics").push(waited);
                }
            };
            futures(concurrency, some).await;
            let (seconds, waits) =
                (clock.elapsed().as_secs_f64(), waits.into_inner().expect("no cycle panics"));
            let mut placed: Vec<Duration> = waits.iter().flatten().copied().collect();
            placed.sort_unstable();
            let ms = |part: usize| {
                placed.get(placed.len() * part / 100).map_or(0.0, |wait| wait.as_secs_f64() * 1e3)
            };
            let cpu_ms = (self.cpu() - cpu).as_secs_f64() * 1e3 / CYCLES as f64;
            say(format_args!(
                "{name}: {concurrency} at a time: {:.0} cycles/s, a place after p50 {:.1} ms, p99 {:.1} ms, \
                 scheduler {cpu_ms:.2} ms of cpu a cycle, {} without a place",
                placed.len() as f64 / seconds,
                ms(50),
                ms(99),
                CYCLES - placed.len()
            ));
        }
    }

    /// A few build servers, and two more that take connections and never answer.
    async fn with_silent_servers(&self, servers: &[BuildServer]) {
        for server in servers {
            register(server, CPUS).await;
        }
        let mut silent = Vec::new();
        for number in [60_000, 60_001] {
            let address = address_of(number);
            let listener = TcpListener::bind((address, 0)).await.expect("a free port");
            let id = ServerId(listener.local_addr().expect("its address"));
            // Large, so that it is chosen.
            register(&BuildServer { id, digest: vec![1; 32], pem: pem() }, 8 * CPUS).await;
            silent.push(listener);
        }
        let (slowest, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let some = || async {
            while asked.fetch_add(1, Ordering::Relaxed) < SILENT_CYCLES {
                let clock = Instant::now();
                _ = cycle().await;
                slowest.fetch_max(clock.elapsed().as_millis() as usize, Ordering::Relaxed);
            }
        };
        let slowest_status = async {
            let mut slowest = Duration::ZERO;
            while asked.load(Ordering::Relaxed) < SILENT_CYCLES {
                let clock = Instant::now();
                assert!(status().await.is_some(), "it answers");
                slowest = slowest.max(clock.elapsed());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            slowest
        };
        let ((), slowest_status) = tokio::join!(futures(100, some), slowest_status);
        say(format_args!(
            "{}: beside two that never answer, 100 at a time: slowest cycle {} ms, slowest status {:.0} ms",
            self.name,
            slowest.into_inner(),
            slowest_status.as_secs_f64() * 1e3
        ));
        drop(silent);
    }
}

fn pem() -> String {
    rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate").cert.pem()
}

async fn status() -> Option<SchedulerStatus> {
    let (_, body) = ask("GET", "status", "", IpAddr::from([127, 0, 0, 1]), &[]).await.ok()?;
    read(&body).ok()
}

/// Runs `count` of these futures at the same time.
async fn futures<F: Future<Output = ()>>(count: usize, make: impl Fn() -> F) {
    futures_util::future::join_all((0..count).map(|_| make())).await;
}

fn say(what: std::fmt::Arguments<'_>) {
    _ = writeln!(std::io::stdout(), "{what}");
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

async fn run(name: &'static str, program: &Path, args: &[&str], dir: &Path, servers: &[BuildServer]) {
    Scheduler::start(name, program, args, dir).await.measure(servers).await;
    _ = std::fs::remove_dir_all(dir.join("state"));
    Scheduler::start(name, program, args, dir).await.with_silent_servers(&servers[..10]).await;
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = std::env::temp_dir().join(format!("sccache-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let config = dir.join("scheduler.toml");
    let text = format!(
        "public_addr = \"{ADDRESS}\"\nclient_auth = {{ type = \"token\", token = \"{CLIENT_TOKEN}\" }}\n\
         server_auth = {{ type = \"token\", token = \"{SERVER_TOKEN}\" }}\n"
    );
    std::fs::write(&config, text).expect("a file");
    let config = config.display().to_string();
    let servers = build_servers(SERVERS).await;
    let own = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.parent()?.join("windlass")));
    let own = own.filter(|own| own.is_file()).expect("build it first: cargo build --release");
    let args = ["gateway", "sccache", "--config", &config, "--proxy", "127.0.0.1"];
    run("windlass", &own, &args, &dir, &servers).await;
    match found("sccache-dist") {
        Some(stock) => {
            let args = ["scheduler", "--config", &config];
            run("stock", &stock, &args, &dir, &servers).await;
        }
        None => say(format_args!("stock: sccache-dist is not in PATH")),
    }
    if std::env::var_os("KEEP_LOGS").is_none() {
        _ = std::fs::remove_dir_all(&dir);
    }
}
