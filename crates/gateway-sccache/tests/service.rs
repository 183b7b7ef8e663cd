//! The scheduler as stock clients and build servers meet it: over HTTP, with build servers that speak TLS.

use crate::wire::with_load;
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use windlass_core::cache_keys::CacheKeys;
use windlass_core::engine::{CheckedHello, Hello, Settings};
use windlass_core::tags::SERVES;
use windlass_core::{Engine, Resources};
use windlass_gateway_sccache::config::SchedulerConfig;
use windlass_gateway_sccache::wire::*;
use windlass_gateway_sccache::{OBSERVES, Options, Scheduler, serve, with_places};
use windlass_server::{Delivery, Handle, ShellOptions, WorkerLink, WorkerMessage};
use windlass_store::Store;

const CONFIG: &str = r#"
    public_addr = "127.0.0.1:0"
    client_auth = { type = "token", token = "client" }
    server_auth = { type = "token", token = "server" }
"#;
const TOOLCHAIN: &str = "d26d9b22bebe507d1bfe65a30ff442e3b055c02d3060ddbb3f6dac8025b41258";

/// How a build server answers when a job is assigned to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Ready,
    Pending,
    Refuses,
    Hangs,
}

/// A build server as far as its scheduler sees it.
struct BuildServer {
    id: ServerId,
    digest: Vec<u8>,
    pem: String,
}

impl BuildServer {
    async fn start(mood: Mood) -> BuildServer {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let id = ServerId(listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if mood == Mood::Hangs {
                        return std::future::pending().await;
                    }
                    let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
                    let service = hyper::service::service_fn(move |_| async move {
                        let mut response = axum::http::Response::new(axum::body::Body::from(match mood {
                            Mood::Pending => vec![0, 0, 0, 0, 1],
                            _ => vec![1, 0, 0, 0, 0],
                        }));
                        if mood == Mood::Refuses {
                            *response.status_mut() = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
                        }
                        Ok::<_, Infallible>(response)
                    });
                    _ = hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
                });
            }
        });
        let digest = Sha256::digest(made.cert.der()).to_vec();
        BuildServer { id, digest, pem: made.cert.pem() }
    }

    fn heartbeat(&self, nonce: u64, num_cpus: u64) -> Heartbeat {
        Heartbeat {
            jwt_key: vec![9; 32],
            num_cpus,
            server_nonce: ServerNonce(nonce),
            cert_digest: self.digest.clone(),
            cert_pem: self.pem.clone().into_bytes(),
        }
    }
}

/// The link of a worker that observes a build server.
struct Observer(u64);

impl WorkerLink for Observer {
    fn id(&self) -> u64 {
        self.0
    }

    fn deliver(&self, _: Vec<Delivery>) {}

    fn refuse(&self, why: &str) {
        panic!("{why}");
    }
}

struct Site {
    handle: Handle,
    scheduler: Scheduler,
    address: SocketAddr,
    http: reqwest::Client,
}

impl Site {
    async fn open(wait_max: Duration) -> Site {
        let proxies = vec![[127, 0, 0, 1].into()];
        Site::with(CONFIG, Options { wait_max, proxies, ..Options::default() }).await
    }

    async fn with(config: &str, options: Options) -> Site {
        let store = Store::open("memory").unwrap();
        let handle =
            windlass_server::start(store, ShellOptions { settings: Settings::default() }).await.unwrap();
        let config = SchedulerConfig::parse(config, false).unwrap();
        // The crypto of clients that speak TLS, should they have to.
        _ = rustls::crypto::ring::default_provider().install_default();
        let scheduler = Scheduler::new(handle.clone(), &config, options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, scheduler.clone()));
        Site { handle, scheduler, address, http: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    async fn post(&self, path: &str, token: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let request = self.http.post(format!("http://{}/api/v1/scheduler/{path}", self.address));
        let request = request.header("Content-Type", "application/octet-stream").bearer_auth(token);
        let response = request.body(body).send().await.unwrap();
        (response.status().as_u16(), response.bytes().await.unwrap().to_vec())
    }

    async fn beat(&self, server: &BuildServer, nonce: u64, num_cpus: u64) -> (u16, Vec<u8>) {
        let token = format!("{} server", server.id);
        self.post("heartbeat_server", &token, write(&server.heartbeat(nonce, num_cpus))).await
    }

    async fn alloc(&self) -> AllocJobResult {
        let body = write(&Toolchain { archive_id: TOOLCHAIN.to_owned() });
        let (status, answer) = self.post("alloc_job", "client", body).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
        read(&answer).unwrap()
    }

    /// Asks as another machine does, through a proxy that is believed.
    async fn alloc_as(&self, machine: &str) -> AllocJobResult {
        let request = self.http.post(format!("http://{}/api/v1/scheduler/alloc_job", self.address));
        let request = request.header("Content-Type", "application/octet-stream").bearer_auth("client");
        let body = write(&Toolchain { archive_id: TOOLCHAIN.to_owned() });
        let response = request.header("X-Real-IP", machine).body(body).send().await.unwrap();
        read(&response.bytes().await.unwrap()).unwrap()
    }

    /// The status of a request for a place with this token.
    async fn let_in(&self, token: &str) -> u16 {
        self.post("alloc_job", token, write(&Toolchain { archive_id: TOOLCHAIN.to_owned() })).await.0
    }

    async fn job(&self) -> JobAlloc {
        match self.alloc().await {
            AllocJobResult::Success { job_alloc, .. } => job_alloc,
            AllocJobResult::Fail { msg } => panic!("{msg}"),
        }
    }

    async fn tell(&self, job: &JobAlloc, server: ServerId, state: JobState) -> (u16, Vec<u8>) {
        let path = format!("job_state/{}", job.job_id.0);
        self.post(&path, &format!("{server} server"), write(&state)).await
    }

    async fn end(&self, job: &JobAlloc) {
        for state in [JobState::Started, JobState::Complete] {
            assert_eq!(self.tell(job, job.server_id, state).await, (200, vec![0; 4]));
        }
    }

    async fn status(&self) -> SchedulerStatus {
        let response = self.http.get(format!("http://{}/api/v1/scheduler/status", self.address));
        let answer = response.send().await.unwrap().bytes().await.unwrap();
        read(&answer).unwrap()
    }

    /// What monitoring reads at a path, with a token.
    async fn read(&self, path: &str, token: &str) -> (u16, String) {
        let request = self.http.get(format!("http://{}{path}", self.address)).bearer_auth(token);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// The load of the only build server.
    async fn load(&self) -> serde_json::Value {
        let (status, text) = self.read("/api/v1/scheduler/server_loads", "client").await;
        assert_eq!(status, 200, "{text}");
        let loads: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(loads["servers"].as_array().unwrap().len(), 1, "{loads}");
        loads["servers"][0].clone()
    }

    /// A worker of Windlass with this number of cores observes the build server from now on.
    async fn observe(&self, server: &BuildServer, cores: u32) {
        let id = self.handle.next_link();
        let one = |text: &str| BTreeSet::from([text.to_owned()]);
        let attributes = [(SERVES, one("sccache")), (OBSERVES, one(&server.id.to_string()))];
        let attributes = attributes.map(|(key, values)| (key.to_owned(), values)).into();
        let capacity = with_places(Resources::new(cores * 100, 8 << 30));
        let hello = Hello { attributes, ..Hello::new("box1", 7, capacity) };
        let hello = CheckedHello::of_agent(hello, &["sccache"]).unwrap();
        let link = Arc::new(Observer(id));
        let caches = WorkerMessage::Caches(CacheKeys::of([].iter()));
        assert!(self.handle.worker_tells(id, vec![WorkerMessage::Hello { hello, link }, caches]).await);
        self.scheduler.look_at_workers().await;
    }

    /// The places that the worker that observes gives.
    async fn places(&self) -> Option<u64> {
        let look = |engine: &Engine| {
            engine.workers().by_name("box1")?.record.capacity.custom.get("sccache_places").copied()
        };
        self.handle.query(look).await.unwrap()
    }

    /// How many clients wait.
    async fn waiting(&self) -> usize {
        self.handle.query(|engine| engine.places().waiting_count()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compile_gets_a_place_and_gives_it_back() {
    let site = Site::open(Duration::from_secs(30)).await;
    let server = BuildServer::start(Mood::Pending).await;
    assert_eq!(site.beat(&server, 1, 4).await, (200, vec![1]));
    assert_eq!(site.beat(&server, 1, 4).await, (200, vec![0]), "known");
    let AllocJobResult::Success { job_alloc, need_toolchain, cert_digest } = site.alloc().await else {
        panic!("no place");
    };
    assert_eq!((job_alloc.server_id, need_toolchain, &cert_digest), (server.id, true, &server.digest));
    let token = windlass_gateway_sccache::tokens::of_job(&[9; 32], job_alloc.job_id);
    assert_eq!(Some(&job_alloc.auth), token.as_ref());
    assert_eq!(site.status().await, SchedulerStatus { num_servers: 1, num_cpus: 4, in_progress: 1 });
    assert_eq!(site.tell(&job_alloc, server.id, JobState::Ready).await, (200, vec![0; 4]));
    assert_eq!(site.tell(&job_alloc, server.id, JobState::Ready).await.0, 200, "told twice");
    site.end(&job_alloc).await;
    assert_eq!(site.status().await.in_progress, 0);
    let url = format!("http://{}/api/v1/scheduler/server_certificate/{}", site.address, server.id);
    let answer = site.http.get(url).send().await.unwrap().bytes().await.unwrap();
    let certificate: ServerCertificate = read(&answer).unwrap();
    assert_eq!(certificate.cert_pem, server.pem.as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_farm_makes_clients_wait_instead_of_compiling_by_themselves() {
    let site = Arc::new(Site::open(Duration::from_secs(30)).await);
    let server = BuildServer::start(Mood::Ready).await;
    site.beat(&server, 1, 1).await;
    // One core has two places.
    let jobs = [site.job().await, site.job().await];
    let waits = tokio::spawn({
        let site = site.clone();
        async move { site.job().await }
    });
    while site.waiting().await == 0 {
        tokio::task::yield_now().await;
    }
    site.end(&jobs[0]).await;
    let job = waits.await.unwrap();
    assert_ne!(job.job_id, jobs[1].job_id);
    assert_eq!(site.status().await.in_progress, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_servers_or_time_a_client_compiles_by_itself() {
    let site = Site::open(Duration::from_millis(200)).await;
    let clock = Instant::now();
    let none = AllocJobResult::Fail { msg: "Insufficient capacity across 0 available servers".to_owned() };
    assert_eq!(site.alloc().await, none);
    assert!(clock.elapsed() < Duration::from_millis(150), "it waited for nothing");
    let server = BuildServer::start(Mood::Ready).await;
    site.beat(&server, 1, 1).await;
    let _jobs = [site.job().await, site.job().await];
    let full = AllocJobResult::Fail { msg: "Insufficient capacity across 1 available servers".to_owned() };
    assert_eq!(site.alloc().await, full);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_build_server_takes_what_the_first_does_not() {
    for mood in [Mood::Refuses, Mood::Hangs] {
        let site = Site::open(Duration::from_secs(30)).await;
        let (bad, good) = (BuildServer::start(mood).await, BuildServer::start(Mood::Ready).await);
        site.beat(&bad, 1, 64).await;
        site.beat(&good, 2, 1).await;
        let clock = Instant::now();
        let asked = tokio::spawn({
            let (http, address) = (site.http.clone(), site.address);
            async move {
                let url = format!("http://{address}/api/v1/scheduler/status");
                let clock = Instant::now();
                http.get(url).send().await.unwrap();
                clock.elapsed()
            }
        });
        let job = site.job().await;
        assert_eq!(job.server_id, good.id);
        assert!(clock.elapsed() < Duration::from_millis(2_500), "{:?}", clock.elapsed());
        assert!(asked.await.unwrap() < Duration::from_millis(500), "others wait for it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_waits_no_more() {
    let site = Arc::new(Site::open(Duration::from_secs(30)).await);
    let server = BuildServer::start(Mood::Ready).await;
    site.beat(&server, 1, 1).await;
    let _jobs = [site.job().await, site.job().await];
    let waits = tokio::spawn({
        let site = site.clone();
        async move { site.alloc().await }
    });
    while site.waiting().await == 0 {
        tokio::task::yield_now().await;
    }
    waits.abort();
    let patience = Instant::now() + Duration::from_secs(20);
    while site.waiting().await > 0 {
        assert!(Instant::now() < patience, "it waits on");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_hang_up_leave_nothing_behind() {
    let site = Arc::new(Site::open(Duration::from_secs(3_600)).await);
    let server = BuildServer::start(Mood::Ready).await;
    site.beat(&server, 1, 1).await;
    let jobs = [site.job().await, site.job().await];
    for _ in 0..5 {
        let many: Vec<_> = (0..200)
            .map(|_| {
                let site = site.clone();
                tokio::spawn(async move { site.alloc_as("10.0.0.1").await })
            })
            .collect();
        while site.waiting().await < many.len() {
            tokio::task::yield_now().await;
        }
        many.iter().for_each(|one| one.abort());
        let patience = Instant::now() + Duration::from_secs(20);
        while site.waiting().await > 0 || site.handle.requests_waiting() > 0 {
            assert!(Instant::now() < patience, "{} requests wait on", site.handle.requests_waiting());
            tokio::task::yield_now().await;
        }
    }
    // None of them has a place.
    site.end(&jobs[0]).await;
    site.end(&jobs[1]).await;
    let _again = [site.job().await, site.job().await];
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_scheduler_takes_up_what_runs() {
    let server = BuildServer::start(Mood::Ready).await;
    let first = Site::open(Duration::from_secs(30)).await;
    first.beat(&server, 1, 1).await;
    let job = first.job().await;
    first.tell(&job, server.id, JobState::Started).await;
    // Another one, that knows nothing.
    let site = Site::open(Duration::from_millis(200)).await;
    assert_eq!(site.beat(&server, 1, 1).await, (200, vec![1]));
    assert_eq!(site.tell(&job, server.id, JobState::Started).await.0, 200);
    assert_eq!(site.status().await.in_progress, 1);
    let other = site.job().await;
    assert_ne!(other.job_id, job.job_id);
    assert!(matches!(site.alloc().await, AllocJobResult::Fail { .. }), "both places are in use");
    assert_eq!(site.tell(&job, server.id, JobState::Complete).await.0, 200);
    site.job().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_refused_as_stock_schedulers_do() {
    let site = Site::open(Duration::from_secs(1)).await;
    let (one, two) = (BuildServer::start(Mood::Ready).await, BuildServer::start(Mood::Ready).await);
    site.beat(&one, 1, 2).await;
    site.beat(&two, 2, 2).await;
    let toolchain = write(&Toolchain { archive_id: TOOLCHAIN.to_owned() });
    assert_eq!(site.post("alloc_job", "wrong", toolchain.clone()).await.0, 401);
    assert_eq!(site.post("alloc_job", "client", vec![1, 2, 3]).await.0, 400);
    assert_eq!(site.post("alloc_job", "client", vec![0; BODY_BYTES_MAX + 1]).await.0, 413);
    let beat = write(&one.heartbeat(1, 2));
    assert_eq!(site.post("heartbeat_server", &format!("{} wrong", one.id), beat.clone()).await.0, 401);
    assert_eq!(site.post("heartbeat_server", "10.0.0.1:10501 server", beat.clone()).await.0, 401, "not its");
    let (status, body) = site.beat(&one, 1, 0).await;
    assert_eq!(status, 500);
    assert!(String::from_utf8_lossy(&body).contains("Invalid number of CPUs (0)"), "{body:?}");
    let job = site.job().await;
    let other = if job.server_id == one.id { two.id } else { one.id };
    assert_eq!(site.tell(&job, other, JobState::Started).await.0, 500);
    site.tell(&job, job.server_id, JobState::Started).await;
    assert_eq!(site.tell(&job, job.server_id, JobState::Ready).await.0, 500, "backwards");
    let base = format!("http://{}/api/v1/scheduler", site.address);
    let request = site.http.post(format!("{base}/alloc_job")).bearer_auth("client").body(toolchain);
    assert_eq!(request.send().await.unwrap().status(), 400, "no Content-Type");
    let response = site.http.post(format!("{base}/alloc_job")).send().await.unwrap();
    assert_eq!(response.headers()["www-authenticate"], "Bearer error=\"no_bearer_auth\"");
    assert_eq!(site.http.get(format!("{base}/nothing")).send().await.unwrap().status(), 404);
    let unknown = site.http.get(format!("{base}/server_certificate/10.0.0.1:1")).send().await.unwrap();
    assert_eq!(unknown.status(), 500);
    let json = site.http.get(format!("{base}/status")).header("Accept", "application/json").send().await;
    let json = json.unwrap().text().await.unwrap();
    assert_eq!(json, r#"{"num_servers":2,"num_cpus":4,"in_progress":1}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_divides_by_capacity() {
    let site = Site::open(Duration::from_secs(30)).await;
    let (small, large) = (BuildServer::start(Mood::Ready).await, BuildServer::start(Mood::Ready).await);
    site.beat(&small, 1, 1).await;
    site.beat(&large, 2, 4).await;
    // Two places and five.
    let mut jobs = Vec::new();
    for count in 1..=7 {
        jobs.push(site.job().await);
        let of_small = jobs.iter().filter(|job| job.server_id == small.id).count();
        let most = (count as f64 * 2.0 / 7.0).ceil() as usize;
        assert!(of_small <= most, "{of_small} of {count} on the small one");
    }
    assert_eq!(jobs.iter().filter(|job| job.server_id == small.id).count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_and_counts_are_read_at_the_scheduler_by_those_that_may_be_clients() {
    let site = Site::open(Duration::from_millis(200)).await;
    let server = BuildServer::start(Mood::Ready).await;
    let load = ServerLoadMetrics { cpu_pressure_avg10: 45.5, ..ServerLoadMetrics::default() };
    let body = with_load(&server.heartbeat(1, 8), &load);
    assert_eq!(site.post("heartbeat_server", &format!("{} server", server.id), body).await.0, 200);
    let idle = site.load().await;
    assert_eq!((idle["num_cpus"].as_f64(), idle["jobs_assigned"].as_u64()), (Some(8.0), Some(0)));
    assert_eq!(
        (idle["server_id"].as_str(), idle["cpu_pressure"].as_f64()),
        (Some(&*server.id.to_string()), Some(45.5))
    );
    assert_eq!(idle["accepting_jobs"], true);
    // One more than cores, and one for each eight.
    for _ in 0..10 {
        site.job().await;
    }
    assert!(matches!(site.alloc().await, AllocJobResult::Fail { .. }));
    let full = site.load().await;
    assert_eq!((full["num_cpus"].as_f64(), full["job_load"].as_f64()), (Some(8.0), Some(1.25)), "{full}");
    assert_eq!((full["jobs_assigned"].as_u64(), full["accepting_jobs"].as_bool()), (Some(10), Some(false)));
    let (status, counts) = site.read("/metrics", "client").await;
    assert_eq!(status, 200);
    assert!(counts.contains("windlass_sccache_jobs 10\n") && counts.ends_with("# EOF\n"), "{counts}");
    // They name machines.
    for path in ["/metrics", "/api/v1/scheduler/server_loads"] {
        assert_eq!(site.read(path, "wrong").await.0, 401, "{path}");
        let bare = site.http.get(format!("http://{}{path}", site.address)).send().await.unwrap();
        assert_eq!(bare.status(), 401, "{path}");
    }
    let open =
        CONFIG.replace(r#"{ type = "token", token = "client" }"#, r#"{ type = "DANGEROUSLY_INSECURE" }"#);
    let site = Site::with(&open, Options::default()).await;
    assert_eq!(site.http.get(format!("http://{}/metrics", site.address)).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observed_build_server_has_slack_and_its_cores_are_told() {
    let site = Site::open(Duration::from_millis(200)).await;
    let server = BuildServer::start(Mood::Ready).await;
    site.beat(&server, 1, 2).await;
    site.observe(&server, 2).await;
    for _ in 0..3 {
        site.job().await;
    }
    assert!(matches!(site.alloc().await, AllocJobResult::Fail { .. }), "two cores have three places");
    let load = site.load().await;
    assert_eq!(load["server_id"].as_str(), Some(&*server.id.to_string()));
    assert_eq!((load["num_cpus"].as_f64(), load["job_load"].as_f64()), (Some(2.0), Some(1.5)), "{load}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observed_build_server_that_takes_no_jobs_gets_none_for_a_while() {
    let site = Site::open(Duration::from_secs(30)).await;
    let (bad, good) = (BuildServer::start(Mood::Refuses).await, BuildServer::start(Mood::Ready).await);
    site.beat(&bad, 1, 64).await;
    site.observe(&bad, 64).await;
    assert_eq!(site.places().await, Some(73));
    site.beat(&good, 2, 1).await;
    assert_eq!(site.job().await.server_id, good.id);
    assert_eq!(site.places().await, Some(0), "it is out for a second");
    // Then it gives some, so that it is noticed when it works again.
    let patience = Instant::now() + Duration::from_secs(20);
    while site.places().await == Some(0) {
        assert!(Instant::now() < patience, "it stays out");
        site.scheduler.adjust_places().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_work_moves_away_from_a_loaded_server_and_back() {
    let site = Site::open(Duration::from_secs(30)).await;
    let (one, two) = (BuildServer::start(Mood::Ready).await, BuildServer::start(Mood::Ready).await);
    site.beat(&two, 2, 2).await;
    let beat_with = async |memory_pressure_avg10: f32| {
        let load = ServerLoadMetrics { memory_pressure_avg10, ..ServerLoadMetrics::default() };
        let token = format!("{} server", one.id);
        let body = with_load(&one.heartbeat(1, 2), &load);
        assert_eq!(site.post("heartbeat_server", &token, body).await.0, 200);
    };
    beat_with(0.0).await;
    // Each has three places, and the toolchain counts: the first is filled before the other gets it.
    let servers = async |count: usize| {
        let mut jobs = Vec::new();
        for _ in 0..count {
            jobs.push(site.job().await);
        }
        for job in &jobs {
            site.end(job).await;
        }
        jobs.iter().map(|job| job.server_id).collect::<Vec<_>>()
    };
    assert!(servers(4).await.contains(&one.id), "both have work");
    beat_with(95.0).await;
    assert_eq!(servers(3).await, [two.id; 3], "all memory of the first is taken");
    beat_with(0.0).await;
    assert!(servers(4).await.contains(&one.id), "both have work again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_compile_does_not_wait_for_two_thousand_of_another_client() {
    let site = Arc::new(Site::open(Duration::from_secs(60)).await);
    let server = BuildServer::start(Mood::Ready).await;
    site.beat(&server, 1, 1).await;
    let jobs = [site.job().await, site.job().await];
    let many: Vec<_> = (0..2_000)
        .map(|_| {
            let site = site.clone();
            tokio::spawn(async move { site.alloc_as("10.0.0.1").await })
        })
        .collect();
    while site.waiting().await < 2_000 {
        tokio::task::yield_now().await;
    }
    let single = tokio::spawn({
        let site = site.clone();
        async move { site.alloc_as("10.0.0.2").await }
    });
    while site.waiting().await < 2_001 {
        tokio::task::yield_now().await;
    }
    // At most one turn of the other client comes before.
    site.end(&jobs[0]).await;
    site.end(&jobs[1]).await;
    let given = tokio::time::timeout(Duration::from_secs(20), single).await.expect("it waits for the others");
    assert!(matches!(given.unwrap(), AllocJobResult::Success { .. }));
    many.iter().for_each(|one| one.abort());
}

/// An issuer of tokens: it publishes its key, and knows one token.
async fn issuer() -> SocketAddr {
    issuer_that_counts(Arc::default()).await
}

/// The same, and it counts the questions.
async fn issuer_that_counts(asked: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let asked = asked.clone();
            let answer = move |request: axum::http::Request<hyper::body::Incoming>| {
                asked.fetch_add(1, Ordering::Relaxed);
                issued(request)
            };
            let service = hyper::service::service_fn(answer);
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(async move { http.serve_connection(TokioIo::new(stream), service).await });
        }
    });
    address
}

async fn issued(
    request: axum::http::Request<hyper::body::Incoming>,
) -> Result<axum::http::Response<axum::body::Body>, Infallible> {
    let shown = request.headers().get("Authorization").and_then(|value| value.to_str().ok());
    let (status, body) = match request.uri().path() {
        "/keys" => (200, include_str!("golden/issuer.jwks.json")),
        "/broken" => (500, ""),
        "/busy" => (429, ""),
        _ if shown == Some("Bearer known") => (200, ""),
        _ => (403, ""),
    };
    let response = axum::http::Response::builder().status(status);
    Ok(response.body(axum::body::Body::from(body)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_may_show_a_jwt() {
    let issuer = issuer().await;
    let config = CONFIG.replace(
        r#"{ type = "token", token = "client" }"#,
        &format!(
            r#"{{ type = "jwt_validate", audience = "us", issuer = "them", jwks_url = "http://{issuer}/keys" }}"#
        ),
    );
    let site = Site::with(&config, Options::default()).await;
    let jwt = |claims: &str, key: &[u8], kid: &str| {
        let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::RS256);
        header.kid = Some(kid.to_owned());
        let claims: serde_json::Value = serde_json::from_str(claims).unwrap();
        let key = jsonwebtoken::EncodingKey::from_rsa_der(key);
        jsonwebtoken::encode(&header, &claims, &key).unwrap()
    };
    let key = include_bytes!("golden/issuer.der");
    let good = r#"{"sub":"ann","aud":"us","iss":"them","exp":4000000000}"#;
    // There are no build servers, so each admitted client is told that there is no place.
    assert_eq!(site.let_in(&jwt(good, key, "one")).await, 200);
    let from = |nbf: &str| good.replace("4000000000", &format!(r#"4000000000,"nbf":{nbf}"#));
    assert_eq!(site.let_in(&jwt(&from("1000000000"), key, "one")).await, 200);
    for (claims, kid, what) in [
        (good, "two", "an unknown key"),
        (&*good.replace("us", "others"), "one", "for others"),
        (&*good.replace("them", "others"), "one", "by others"),
        (&*good.replace("4000000000", "1000000000"), "one", "over"),
        (&*good.replace(r#","exp":4000000000"#, ""), "one", "without an end"),
        (&*from("4000000000"), "one", "not yet valid"),
        (&*from(r#""4000000000""#), "one", "not yet valid, as a text"),
    ] {
        assert_eq!(site.let_in(&jwt(claims, key, kid)).await, 401, "{what}");
    }
    let forged = jwt(good, key, "one");
    assert_eq!(site.let_in(&forged[..forged.len() - 4]).await, 401, "forged");
    assert_eq!(site.let_in("a.b.c").await, 401);
    assert_eq!(site.let_in(&"x".repeat(10_000)).await, 401);
    assert_eq!(site.let_in(&"x".repeat(100_000)).await, 431, "the head is too large");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_may_be_asked_about_tokens() {
    let issuer = issuer().await;
    let config = |path: &str, more: &str| {
        let auth = format!(r#"{{ type = "proxy_token", url = "http://{issuer}/{path}"{more} }}"#);
        CONFIG.replace(r#"{ type = "token", token = "client" }"#, &auth)
    };
    for more in ["", ", cache_secs = 60", ", cache_secs = 9223372036854775807"] {
        let site = Site::with(&config("ask", more), Options::default()).await;
        for _ in 0..2 {
            assert_eq!(site.let_in("known").await, 200);
            assert_eq!(site.let_in("unknown").await, 401);
        }
    }
    // A refusal is remembered.
    let asked = Arc::new(AtomicUsize::new(0));
    let issuer = issuer_that_counts(asked.clone()).await;
    let auth = format!(r#"{{ type = "proxy_token", url = "http://{issuer}/ask" }}"#);
    let counted = CONFIG.replace(r#"{ type = "token", token = "client" }"#, &auth);
    let site = Site::with(&counted, Options::default()).await;
    for _ in 0..5 {
        assert_eq!(site.let_in("unknown").await, 401);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // A client that cannot be asked about compiles by itself: 4xx would fail its compile.
    for path in ["broken", "busy"] {
        let site = Site::with(&config(path, ""), Options::default()).await;
        assert_eq!(site.let_in("known").await, 500, "{path}");
    }
}
