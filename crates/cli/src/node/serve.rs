//! Servers: the one that `server start` runs, the per-user one in the background, and the one inside a single
//! `run --foreground`.

use crate::commands::placement::PlacementFlags;
use crate::commands::select::user_name;
use crate::node::cookie;
use crate::node::credentials::credentials;
use crate::node::local::{self, LocalWorker};
use crate::node::paths::Paths;
use crate::node::watchdog;
use crate::ui::error::{CliError, TAKEN};
use crate::ui::output::talk;
use anyhow::Context as _;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::IsTerminal;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use windlass_api::client::{Address, Client};
use windlass_gateway_compass::{CompassGateway, CompassOptions};
use windlass_gateway_sccache::config::SchedulerConfig;
use windlass_gateway_sccache::{Options, SccacheGateway};
use windlass_server::auth::Auth;
use windlass_server::{
    CompassConfig, Config, Handle, Lease, Listener, Protection, Reads, Retention, RoomLimits, SccacheConfig,
    ShellOptions, WorkerTerms,
};
use windlass_store::Store;
use windlass_worker::{CacheDir, KeeperOptions, keeper_main};

/// The socket for administrators, in the state directory of a server that asks for tokens.
pub const ADMIN_SOCKET: &str = "admin.sock";
/// Old files of the audit log that are kept by default.
const AUDIT_FILES: u32 = 8;
/// Bytes of the background server's log after which its next start begins a new file.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// The key of Compass CI's secrets, in the state directory.
const COMPASS_KEY: &str = "compass.key";
/// The audit log, in the state directory.
const AUDIT_LOG: &str = "audit.log";
/// How long the background server may take to answer its first request.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two checks whether it answers.
const START_POLL: Duration = Duration::from_millis(5);
/// Pause between two attempts to start it while another server is ending.
const START_RETRY: Duration = Duration::from_millis(100);
/// How long requests in progress may take when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Minutes without work or clients after which the background server stops.
const IDLE_MINUTES: f64 = 10.0;

/// Flags of `server start`; each overrides the config file.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServeOptions {
    /// Address to listen on: HOST:PORT or unix:PATH [default: a socket of the state directory]
    #[arg(long, env = "WINDLASS_LISTEN", value_name = "ADDR")]
    pub listen: Option<String>,
    /// Store: sqlite:PATH or memory [default: sqlite:STATE/windlass.db]
    #[arg(long, env = "WINDLASS_STORE", value_name = "STORE")]
    pub store: Option<String>,
    /// State directory: the store, the output of tasks, the keeper's files
    #[arg(long, env = "WINDLASS_STATE", value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Config file
    #[arg(long, env = "WINDLASS_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Cpus that tasks may use on this machine [default: all]
    #[arg(long, env = "WINDLASS_WORKER_CPUS", value_name = "N")]
    pub cpus: Option<f64>,
    /// Memory that tasks may use on this machine [default: all]
    #[arg(long, env = "WINDLASS_WORKER_MEMORY", value_name = "SIZE", value_parser = crate::ui::quantity::parse_size)]
    pub memory: Option<u64>,
    /// Gpus that tasks may use on this machine [default: all that nvidia-smi shows]
    #[arg(long, env = "WINDLASS_WORKER_GPUS", value_name = "N")]
    pub gpus: Option<u32>,
    /// The worker's name [default: the machine's]
    #[arg(long, env = "WINDLASS_WORKER_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// Tag of the worker, KEY or KEY=VALUE; may be repeated
    #[arg(long = "tag", env = "WINDLASS_WORKER_TAGS", value_delimiter = ',', value_name = "TAG")]
    pub tags: Vec<String>,
    /// Cache directory of the worker; may be repeated
    #[arg(long = "cache", env = "WINDLASS_WORKER_CACHES", value_delimiter = ',', value_name = "NAME=DIR")]
    pub caches: Vec<CacheDir>,
    /// Time that ended jobs and their output are kept: 12h, 30d, or days [default: 14]
    #[arg(long, env = "WINDLASS_KEEP_DAYS", value_name = "TIME", value_parser = crate::ui::quantity::parse_days)]
    pub keep_days: Option<f64>,
    /// Bytes kept of one output file: its first MiB and its end [default: 1GiB]
    #[arg(long, env = "WINDLASS_LOG_BYTES_MAX", value_name = "SIZE", value_parser = crate::ui::quantity::parse_size)]
    pub log_bytes_max: Option<u64>,
    /// Run no worker on this machine
    #[arg(long, env = "WINDLASS_NO_WORKER")]
    pub no_worker: bool,
    /// Lease: how long a worker's tasks may run without contact: 90s, 5m, or seconds; never waits for an operator
    /// [default: 300]
    #[arg(long, env = "WINDLASS_LEASE", value_name = "TIME|never", value_parser = parse_lease)]
    pub lease: Option<Lease>,
    /// Time without work or clients after which the server stops: 90s, 1h, or minutes [default: never]
    #[arg(long, env = "WINDLASS_IDLE_MINUTES", value_name = "TIME", value_parser = crate::ui::quantity::parse_minutes)]
    pub idle_minutes: Option<f64>,
    /// Accept clients, providers and machines of Compass CI
    #[arg(long, env = "WINDLASS_COMPASS")]
    pub compass: bool,
    /// Run the tasks of all submitters as root, if the server runs as root, listens on TCP and has a worker
    #[arg(long, env = "WINDLASS_AS_ROOT")]
    pub as_root: bool,
    #[command(flatten)]
    pub access: AccessFlags,
    #[command(flatten)]
    pub placement: PlacementFlags,
}

/// A lease from a duration, or `never`.
fn parse_lease(text: &str) -> Result<Lease, String> {
    match text {
        "never" => text.parse(),
        _ => crate::ui::quantity::parse_seconds(text)?.to_string().parse(),
    }
}

impl ServeOptions {
    /// Whether the server may listen on TCP, as far as its flags tell.
    pub fn may_listen_on_tcp(&self) -> bool {
        self.config.is_some() || self.listen.as_ref().is_some_and(|listen| !listen.starts_with("unix:"))
    }
}

/// Flags for authentication and TLS.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AccessFlags {
    /// Ask for tokens over TCP, which is the default
    #[arg(long, env = "WINDLASS_AUTH", hide = true, conflicts_with = "trust_this_machine")]
    pub auth: bool,
    /// Ask for no tokens from this machine: each of its users is an administrator; not as root
    #[arg(long, env = "WINDLASS_TRUST_THIS_MACHINE")]
    pub trust_this_machine: bool,
    /// Allow tokens in plain text over the network, without TLS
    #[arg(long, env = "WINDLASS_INSECURE_PLAINTEXT")]
    pub insecure_plaintext: bool,
    /// TLS certificate; 'windlass ca' creates one
    #[arg(long, env = "WINDLASS_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the TLS certificate
    #[arg(long, env = "WINDLASS_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// CA certificates: ask clients for a certificate that one of these signed
    #[arg(long, env = "WINDLASS_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Refuse clients without a certificate by --tls-client-ca
    #[arg(long, env = "WINDLASS_TLS_REQUIRE_CLIENT_CERT")]
    pub tls_require_client_cert: bool,
}

impl AccessFlags {
    /// Overrides the settings of the config file.
    fn put_over(self, config: &mut Config) {
        config.auth.trust_this_machine =
            (config.auth.trust_this_machine || self.trust_this_machine) && !self.auth;
        config.auth.insecure_plaintext |= self.insecure_plaintext;
        config.tls.cert = self.tls_cert.or(config.tls.cert.take());
        config.tls.key = self.tls_key.or(config.tls.key.take());
        config.tls.client_ca = self.tls_client_ca.or(config.tls.client_ca.take());
        config.tls.require_client_cert |= self.tls_require_client_cert;
    }
}

/// Runs a server until a signal or a client stops it.
pub async fn start(options: ServeOptions) -> anyhow::Result<()> {
    start_with(options, |_| {}).await
}

/// The same, with settings that `change` makes after the config file and the flags.
pub async fn start_with(options: ServeOptions, change: impl FnOnce(&mut Config)) -> anyhow::Result<()> {
    windlass_worker::raise_file_limit();
    start_logging();
    windlass_server::end_process_on_panic();
    let (mut config, state) = settle(options)?;
    change(&mut config);
    let server = OwnServer::start(&config, &state, Life::OfItsOwn).await?;
    tracing::info!("listening on {}", server.address);
    talk!("windlass server listens on {}, state in {}", server.address, state.display());
    watchdog::ready();
    tokio::spawn(watchdog::watch_server(server.handle.clone()));
    let mut closing = server.handle.closing();
    tokio::select! {
        () = stop_signal()? => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
    server.stop(false).await;
    Ok(())
}

/// Writes log lines to standard error, filtered by `WINDLASS_LOG`.
pub fn start_logging() {
    let filter = EnvFilter::try_from_env("WINDLASS_LOG");
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new("info,refinery_core=warn")))
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_writer(std::io::stderr)
        // Otherwise it reports failed writes on standard error, and panics if that fails too, as on a full disk.
        .log_internal_errors(false)
        .init();
}

/// Resolves on SIGTERM or SIGINT.
pub fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// The settings, from the config file overridden by flags, and the state directory.
pub fn settle(options: ServeOptions) -> anyhow::Result<(Config, PathBuf)> {
    let mut config = match &options.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    config.store = options.store.or(config.store);
    config.worker.cpus = options.cpus.or(config.worker.cpus);
    config.worker.memory = options.memory.or(config.worker.memory);
    config.worker.name = options.name.or(config.worker.name);
    config.worker.tags.extend(options.tags);
    config.worker.caches.extend(options.caches.into_iter().map(|CacheDir { name, dir }| (name, dir)));
    config.idle_minutes = options.idle_minutes.or(config.idle_minutes);
    config.worker.enabled &= !options.no_worker;
    config.worker.as_root |= options.as_root;
    config.lease = options.lease.unwrap_or(config.lease);
    config.worker.gpus = options.gpus.or(config.worker.gpus);
    config.keep_days = options.keep_days.unwrap_or(config.keep_days);
    config.log_bytes_max = options.log_bytes_max.unwrap_or(config.log_bytes_max);
    config.compass.enabled |= options.compass;
    options.access.put_over(&mut config);
    options.placement.put_over(&mut config);
    config.check().map_err(anyhow::Error::msg)?;
    let state = options.state.map(std::path::absolute).transpose()?;
    let paths = match (state, Paths::for_user()) {
        (Some(state), Ok(own)) if own.state == state => own,
        (Some(state), _) => Paths::for_state(state),
        (None, own) => own?,
    };
    let listen = options.listen.or(config.listen.take());
    let listen = listen.unwrap_or_else(|| format!("unix:{}", paths.socket.display()));
    config.listen = Some(listen);
    Ok((config, paths.state))
}

/// Whether tasks outlive the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Tasks outlive the server.
    OfItsOwn,
    /// Tasks end with this process.
    OfThisRun,
}

/// A server in this process.
struct OwnServer {
    handle: Handle,
    address: String,
    http: tokio::task::JoinHandle<()>,
    worker: Option<LocalWorker>,
}

impl OwnServer {
    /// Opens the store, starts the worker, and listens once the worker is registered, so that the first request is
    /// checked against this machine's capacity.
    async fn start(config: &Config, state: &Path, life: Life) -> anyhow::Result<OwnServer> {
        let address = config.store.clone();
        let address = address.unwrap_or_else(|| format!("sqlite:{}", state.join("windlass.db").display()));
        let protection = protection(config)?;
        let listen = config.listen.as_deref().unwrap_or_default();
        let over_tcp = !listen.starts_with("unix:");
        let mut listeners = vec![Listener::bind(listen, &protection).await?];
        anyhow::ensure!(!over_tcp || !runs_all_as_root(config), "{ALL_AS_ROOT}");
        let (address_for_clients, address_here) = (listeners[0].address(), listeners[0].address_here());
        let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(state);
        made.with_context(|| format!("cannot create the state directory {}", state.display()))?;
        let store = Store::open(&address)?;
        let options = ShellOptions { settings: config.engine_settings() };
        let handle = windlass_server::start(store, options).await?;
        let auth = Auth::load(handle.store(), protection.auth, user_name()).await?;
        let asks = over_tcp && protection.auth;
        if asks {
            let path = Paths::for_state(state.to_owned()).token();
            cookie::write(&path, &address_here, &auth.create_for_this_process()?)?;
            let socket = format!("unix:{}", state.join(ADMIN_SOCKET).display());
            listeners.push(Listener::bind(&socket, &Protection::default()).await?);
            talk!("administrators connect to {socket}");
        }
        let worker = match config.worker.enabled {
            true => Some(local::start(&handle, config, state, &address_here, life).await?),
            false => None,
        };
        tokio::spawn(Retention { keep: config.keep() }.run(handle.clone()));
        let audit = (life == Life::OfItsOwn).then(|| state.join(AUDIT_LOG));
        let terms = WorkerTerms { lease: config.lease.duration(), report: config.load.report() };
        let nix = windlass_gateway_nix::NixGateway::default();
        let mut gateways: Vec<Arc<dyn windlass_server::Gateway>> = vec![Arc::new(nix)];
        if config.compass.enabled {
            gateways.push(Arc::new(compass_gateway(&config.compass, state)?));
        }
        if let Some(sccache) = &config.gateway.sccache {
            gateways.push(Arc::new(sccache_gateway(sccache)?));
        }
        let room = RoomLimits::new(config.connections.max, config.connections.per_machine_max);
        let options = windlass_server::ServeOptions {
            store: address,
            auth,
            audit,
            idle: config.idle(),
            terms,
            gateways: windlass_server::Gateways::new(gateways),
            room,
            user_limits: config.users.limits(),
            read_all: config.auth.read == Reads::All,
            audit_files: config.auth.audit_files.unwrap_or(AUDIT_FILES),
            queues: config.queues.clone(),
        };
        let serve = windlass_server::serve(listeners, handle.clone(), options);
        Ok(OwnServer { handle, address: address_for_clients, http: tokio::spawn(serve), worker })
    }

    /// Stops it: requests in progress are answered, and decisions are committed. Tasks go on, unless `kill`.
    async fn stop(mut self, kill: bool) {
        self.handle.close();
        match tokio::time::timeout(STOP_TIMEOUT, &mut self.http).await {
            Ok(Err(e)) => tracing::warn!("the HTTP server failed: {e}"),
            Ok(_) => {}
            // Some client does not read its answer.
            Err(_) => self.http.abort(),
        }
        if let Some(worker) = self.worker {
            worker.stop(kill).await;
        }
        self.handle.stop().await;
    }
}

/// The settings of a stock scheduler of sccache.
pub fn sccache_settings(path: &Path) -> anyhow::Result<SchedulerConfig> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    SchedulerConfig::parse(&text, is_json).with_context(|| path.display().to_string())
}

/// The key of secrets is made in the state directory, never in the database.
fn compass_gateway(config: &CompassConfig, state: &Path) -> anyhow::Result<CompassGateway> {
    if let Some(srv) = &config.srv
        && let (Ok(srv), Ok(state)) = (srv.canonicalize(), state.canonicalize())
    {
        // Whatever is beneath srv is served, the key of secrets and the database too.
        let apart = !srv.starts_with(&state) && !state.starts_with(&srv);
        anyhow::ensure!(
            apart,
            "srv of [compass], {}, and the state directory, {}, must not be inside each other: all files of srv are \
             served to machines",
            srv.display(),
            state.display()
        );
    }
    let defaults = CompassOptions::new(state.join(COMPASS_KEY));
    let options = CompassOptions {
        srv: config.srv.clone(),
        url: config.url.clone(),
        shared_uploads: config.shared_uploads,
        trust_addresses: config.trust_addresses,
        upload_bytes_max: config.upload_bytes_max.unwrap_or(defaults.upload_bytes_max),
        results_bytes_max: config.results_bytes_max.unwrap_or(defaults.results_bytes_max),
        ..defaults
    };
    Ok(CompassGateway::new(options)?)
}

fn sccache_gateway(settings: &SccacheConfig) -> anyhow::Result<SccacheGateway> {
    let config = sccache_settings(&settings.config)?;
    let options = Options {
        wait_max: Duration::from_secs_f64(settings.wait_s),
        check_address: settings.check_address,
        proxies: settings.proxies.clone(),
    };
    Ok(SccacheGateway::new(config, options))
}

/// Why a server that root runs, with a worker and on TCP, is refused.
pub const ALL_AS_ROOT: &str = "the tasks of all who have a token would run as root. Give --no-worker, and let \
     'windlass worker start --map-user SUBMITTER=USER' run them; or --as-root, if that is intended";

/// True if the server's own worker would run all users' tasks as root without --as-root.
pub fn runs_all_as_root(config: &Config) -> bool {
    config.worker.enabled && !config.worker.as_root && rustix::process::geteuid().is_root()
}

/// Authentication and TLS of the server's port.
pub fn protection(config: &Config) -> anyhow::Result<Protection> {
    let tls = windlass_server::server_config(&config.tls)?;
    let (trust, insecure_plaintext) = (config.auth.trust_this_machine, config.auth.insecure_plaintext);
    anyhow::ensure!(
        !trust || !rustix::process::geteuid().is_root(),
        "refusing to trust this machine as root: each of its users could do everything on it. Leave out \
         --trust-this-machine: root's own clients need no token anyway"
    );
    let auth = !trust;
    if insecure_plaintext && tls.is_none() {
        talk!("warning: tokens cross the network in plain text; anyone who sees one can use it");
    }
    Ok(Protection { auth, tls, insecure_plaintext })
}

/// A server inside this run, whose files are deleted at its end.
pub struct Foreground {
    /// A client of it.
    pub client: Client,
    server: OwnServer,
    dir: PathBuf,
}

/// Starts a server inside this run.
pub async fn foreground() -> anyhow::Result<Foreground> {
    let dir = private_dir(&std::env::temp_dir())?;
    let config = Config {
        listen: Some(format!("unix:{}", dir.join("server.sock").display())),
        store: Some("memory".to_owned()),
        ..Config::default()
    };
    let server = OwnServer::start(&config, &dir, Life::OfThisRun).await?;
    let client = Client::new(Address::parse(&server.address))?;
    Ok(Foreground { client, server, dir })
}

/// Creates a directory for this user alone. Its name is random, so that no other user can create it first.
fn private_dir(parent: &Path) -> anyhow::Result<PathBuf> {
    // The hasher's keys are the one source of randomness that the standard library has.
    let random = RandomState::new().build_hasher().finish();
    let dir = parent.join(format!("windlass-run-{}-{random:016x}", std::process::id()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
    made.with_context(|| format!("cannot create the directory {}", dir.display()))?;
    Ok(dir)
}

impl Foreground {
    /// Stops it, and kills all of its tasks.
    pub async fn stop(self) {
        self.server.stop(true).await;
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A client of the named server, or of the per-user one, which is started if needed.
pub async fn connect(server: Option<&Address>) -> Result<Client, CliError> {
    if let Some(address) = server {
        return connect_running(Some(address)).await;
    }
    if let Ok(client) = connect_running(None).await {
        return Ok(client);
    }
    let paths = Paths::for_user()?;
    paths.create()?;
    let socket = paths.socket.clone();
    let launched = tokio::task::spawn_blocking(move || launch(&paths)).await;
    launched.context("the start of the background server failed")??;
    Ok(Client::new(Address::Unix(socket))?)
}

/// A client of the named server, or of the per-user one, if it answers.
pub async fn connect_running(server: Option<&Address>) -> Result<Client, CliError> {
    let address = match server {
        Some(address) => address.clone(),
        None => {
            let paths = Paths::for_user()?;
            paths.check()?;
            Address::Unix(paths.socket)
        }
    };
    let shown = credentials(&address)?;
    let client = Client::with(address, &shown)?;
    client.version().await?;
    Ok(client)
}

/// Starts the per-user server and waits until it answers. If several start at once, one gets the store, the others
/// exit, and all callers connect to that one.
fn launch(paths: &Paths) -> anyhow::Result<()> {
    let log = paths.state.join("server.log");
    if std::fs::metadata(&log).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
        // An older log is replaced.
        _ = std::fs::rename(&log, log.with_extension("log.1"));
    }
    let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&log);
    let output = open().with_context(|| format!("cannot write {}", log.display()))?;
    let before = output.metadata().map_or(0, |m| m.len());
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["server", "start", "--idle-minutes"]).arg(idle_minutes());
    command.arg("--listen").arg(format!("unix:{}", paths.socket.display()));
    command.arg("--state").arg(&paths.state);
    // Variables for the caller's jobs must not reach the server, which serves other runs too.
    for name in [
        "WINDLASS_LISTEN",
        "WINDLASS_TRUST_THIS_MACHINE",
        "WINDLASS_TASK",
        "WINDLASS_SERVER",
        "WINDLASS_KEEPER",
        "WINDLASS_TOKEN",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).current_dir("/");
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().context("cannot start the background server")?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if std::os::unix::net::UnixStream::connect(&paths.socket).is_ok() {
            return Ok(());
        }
        let late = Instant::now() > deadline;
        match child.try_wait()? {
            Some(status) if late || (!status.success() && status.code() != Some(TAKEN)) => {
                anyhow::bail!("the background server did not start: {}", last_line(&log, before));
            }
            // Another server was first, and is found above as soon as it listens; or it is just ending.
            Some(_) => {
                std::thread::sleep(START_RETRY);
                child = command.spawn().context("cannot start the background server")?;
            }
            None => {}
        }
        anyhow::ensure!(!late, "the background server does not answer; see {}", log.display());
        std::thread::sleep(START_POLL);
    }
}

fn idle_minutes() -> String {
    std::env::var("WINDLASS_IDLE_MINUTES").unwrap_or_else(|_| IDLE_MINUTES.to_string())
}

/// The last error in the server's log from that byte on, else the last line.
fn last_line(log: &Path, from: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut text = String::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(64 << 10).read_to_string(&mut text)
    });
    let line = text.lines().rfind(|line| line.starts_with("error")).or(text.lines().last());
    match read {
        Ok(_) => line.unwrap_or("it logged nothing").trim_start_matches("error: ").to_owned(),
        Err(e) => format!("its log {} cannot be read: {e}", log.display()),
    }
}

/// Flags of the hidden command by which the agent starts the keeper.
#[derive(clap::Args, Clone, Debug)]
pub struct KeeperArgs {
    #[arg(long)]
    state: PathBuf,
    #[arg(long)]
    incarnation: u64,
    #[arg(long)]
    die_with_agent: bool,
    #[arg(long)]
    plain: bool,
    #[arg(long)]
    log_bytes_max: u64,
    #[arg(long)]
    resume: Option<i32>,
    #[arg(long)]
    fallback: Option<i32>,
}

/// Becomes the keeper. Must be called before anything starts a thread.
pub fn keeper(args: KeeperArgs) -> ExitCode {
    keeper_main(KeeperOptions {
        state: args.state,
        incarnation: args.incarnation,
        die_with_agent: args.die_with_agent,
        plain: args.plain,
        log_bytes_max: args.log_bytes_max,
        resume: args.resume,
        fallback: args.fallback,
    })
}
