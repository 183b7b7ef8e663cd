//! Servers in this process, which `server start` and `run --foreground` run.

use crate::node::last_start::LastStart;
use crate::node::life::{Life, stop_signal};
use crate::node::local::{self, LocalWorker};
use crate::node::member::{Lost, OwnStore};
use crate::node::paths::Paths;
use crate::node::site::Site;
use crate::node::{gateways, memory, telemetry, watchdog};
use crate::ui::error::CliError;
use crate::ui::message::message;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use windlass_server::{Config, Handle, JobFiles, Lease, NoticeRules, Retention, ShellOptions};
use windlass_store::StoreError;
use windlass_worker::{KeeperOptions, keeper_main};

/// How long requests in progress may take when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Flags of `server start`; each goes over the config file. Every other setting has [`ServeOptions::set`].
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServeOptions {
    /// Address to listen on: HOST:PORT or unix:PATH [default: a socket of the state directory]
    #[arg(long, env = "WINDLASS_LISTEN", value_name = "ADDR")]
    pub listen: Option<String>,
    /// Store: sqlite:PATH, postgres://HOST/DATABASE or memory [default: sqlite:STATE/windlass.db]
    #[arg(long, env = "WINDLASS_STORE", value_name = "STORE")]
    pub store: Option<String>,
    /// State directory: the store, the output of tasks, the keeper's files
    #[arg(long, env = "WINDLASS_STATE", value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Config file in TOML
    #[arg(long, env = "WINDLASS_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set any setting of the config file, such as keep_days=30 or load.max_cpu_pressure=70; goes over the file, the
    /// variables and all flags; may be repeated
    #[arg(long, value_name = "SETTING=VALUE", value_parser = parse_set)]
    pub set: Vec<(String, String)>,
    /// Cpus that tasks may use on this machine [default: all]
    #[arg(long, env = "WINDLASS_WORKER_CPUS", value_name = "N")]
    pub cpus: Option<f64>,
    /// Memory that tasks may use on this machine [default: all]
    #[arg(long, env = "WINDLASS_WORKER_MEMORY", value_name = "SIZE", value_parser = windlass_api::quantity::parse_size)]
    pub memory: Option<u64>,
    /// The worker's name [default: the machine's]
    #[arg(long, env = "WINDLASS_WORKER_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// Tag of the worker, KEY or KEY=VALUE; may be repeated
    #[arg(long = "tag", env = "WINDLASS_WORKER_TAGS", value_delimiter = ',', value_name = "TAG")]
    pub tags: Vec<String>,
    /// Run no worker on this machine
    #[arg(long, env = "WINDLASS_NO_WORKER")]
    pub no_worker: bool,
    /// Lease: how long a worker's tasks may run without contact: 90s, 5m, or seconds; never waits for an operator
    /// [default: 300]
    #[arg(long, env = "WINDLASS_LEASE", value_name = "TIME|never")]
    pub lease: Option<Lease>,
    /// Accept clients, providers and machines of Compass CI
    #[arg(long, env = "WINDLASS_COMPASS")]
    pub compass: bool,
    /// Take builds of Nix from clients with the build hook
    #[arg(long, env = "WINDLASS_NIX")]
    pub nix: bool,
    /// Run the tasks of all submitters as root, if the server runs as root, listens on TCP and has a worker
    #[arg(long, env = "WINDLASS_AS_ROOT")]
    pub as_root: bool,
    #[command(flatten)]
    pub access: AccessFlags,
}

/// A setting's path and its value. Other users of the machine see command lines, so an address with a password is
/// refused.
pub fn parse_set(text: &str) -> Result<(String, String), String> {
    let (path, value) =
        text.split_once('=').ok_or("write SETTING=VALUE, such as load.max_cpu_pressure=70")?;
    if value.contains("://") && (value.contains('@') || value.contains("password=")) {
        return Err(
            "other users of this machine can read it: a password belongs in the config file".to_owned()
        );
    }
    Config::default().set(path, value)?;
    Ok((path.to_owned(), value.to_owned()))
}

/// The advice on a flag that `server start` does not have, if it is the name of a setting. Earlier releases had a flag for
/// most of them.
pub fn advise_on_flag(error: &clap::Error) -> Option<CliError> {
    if error.kind() != ErrorKind::UnknownArgument || !words().iter().any(|word| word == "server") {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let setting = Config::setting_of_flag(flag.trim_start_matches('-'))?;
    let value = if setting.kind == "true or false" { "true" } else { "VALUE" };
    let hint = Some(format!("give --set {}={value}, or set it in the config file", setting.path));
    Some(CliError::Usage { message: format!("{flag} is a setting of the server, and not a flag"), hint })
}

/// The words of the command line that are not flags.
pub fn words() -> Vec<OsString> {
    let words = std::env::args_os().skip(1);
    words.filter(|word| !word.as_encoded_bytes().starts_with(b"-")).collect()
}

impl ServeOptions {
    /// What a later server needs to be started in the same way, but for where it listens.
    fn last_start(&self) -> anyhow::Result<LastStart> {
        let values = [
            ("cpus", self.cpus.map(|cpus| cpus.to_string())),
            ("memory", self.memory.map(|bytes| bytes.to_string())),
            ("name", self.name.clone()),
        ];
        let values = values.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?)));
        let words = [
            ("--no-worker", self.no_worker),
            ("--compass", self.compass),
            ("--nix", self.nix),
            ("--as-root", self.as_root),
        ];
        let words = words.into_iter().filter(|(_, is_given)| *is_given).map(|(word, _)| word.to_owned());
        let tags = self.tags.iter().map(|tag| format!("--tag={tag}"));
        let set = self.set.iter().filter(|(path, _)| path != "listen");
        let set = set.map(|(path, value)| format!("--set={path}={value}"));
        let lease = self.lease.map(|lease| match lease.duration() {
            Some(duration) => format!("--lease={}", duration.as_secs_f64()),
            None => "--lease=never".to_owned(),
        });
        // The next server has another working directory.
        let store = self.store.as_ref().map(|store| match store.strip_prefix("sqlite:") {
            Some(path) => std::path::absolute(path).map(|path| format!("sqlite:{}", path.display())),
            None => Ok(store.clone()),
        });
        Ok(LastStart {
            config: self.config.as_ref().map(std::path::absolute).transpose()?,
            store: store.transpose()?,
            flags: values.chain(words).chain(tags).chain(lease).chain(set).collect(),
        })
    }

    /// Whether the server may listen on TCP, as far as its flags tell.
    pub fn may_listen_on_tcp(&self) -> bool {
        let is_set = self.set.iter().any(|(path, _)| path == "listen");
        is_set
            || self.config.is_some()
            || self.listen.as_ref().is_some_and(|listen| !listen.starts_with("unix:"))
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
}

impl AccessFlags {
    /// Overrides the settings of the config file.
    fn override_config(self, config: &mut Config) {
        config.auth.trust_this_machine =
            (config.auth.trust_this_machine || self.trust_this_machine) && !self.auth;
        config.auth.insecure_plaintext |= self.insecure_plaintext;
        config.tls.cert = self.tls_cert.or(config.tls.cert.take());
        config.tls.key = self.tls_key.or(config.tls.key.take());
        config.tls.client_ca = self.tls_client_ca.or(config.tls.client_ca.take());
    }
}

/// Runs a server until a signal or a client stops it.
pub async fn start(options: ServeOptions) -> anyhow::Result<()> {
    let last_start = options.last_start()?;
    run(options, |_| {}, Some(last_start)).await
}

/// Runs a server like [`start`], with settings that `change` makes after the config file and the flags.
pub async fn start_with(options: ServeOptions, change: impl FnOnce(&mut Config)) -> anyhow::Result<()> {
    run(options, change, None).await
}

async fn run(
    options: ServeOptions,
    change: impl FnOnce(&mut Config),
    last_start: Option<LastStart>,
) -> anyhow::Result<()> {
    windlass_worker::raise_file_limit();
    let (mut config, state) = settle(options)?;
    change(&mut config);
    // Clients start no server that listens on TCP.
    let is_here = config.listen.as_ref().is_some_and(|listen| listen.starts_with("unix:"));
    let last_start = last_start.filter(|_| is_here);
    // One that stands by would meet a mistake only when it takes over.
    NoticeRules::new(&config.notify)?;
    memory::give_back_large_blocks();
    let (traces, log_level) = telemetry::start(&config.telemetry)?;
    tokio::spawn(log_level.obey_signals()?);
    windlass_server::end_process_on_panic();
    let mut site = Site::open(&config, &state, Life::OfItsOwn).await?;
    tracing::info!("listening on {}", site.address);
    message!("windlass server listens on {}, state in {}", site.address, state.display());
    let stop = stop_signal()?;
    tokio::pin!(stop);
    loop {
        let Some(own_store) = site.own(stop.as_mut()).await? else { break };
        let server = match OwnServer::start(&mut site, own_store).await {
            // The database went away meanwhile, or another server was faster.
            Err(error) if site.is_shared() && error.is::<StoreError>() => {
                tracing::error!("{error:#}; trying again");
                continue;
            }
            started => started?,
        };
        if let Some(Err(error)) = last_start.as_ref().map(|start| start.write(&state)) {
            tracing::warn!("a client that starts this server again starts it with defaults: {error:#}");
        }
        watchdog::ready();
        let watching = tokio::spawn(watchdog::watch_server(server.handle.clone()));
        let mut closing = server.handle.closing();
        let goes_on = tokio::select! {
            () = stop.as_mut() => false,
            _ = closing.wait_for(|closing| *closing) => false,
            _ = server.lost() => true,
        };
        watching.abort();
        if !goes_on {
            site.listen_no_more();
            LastStart::forget(&state);
        }
        server.stop(false).await;
        if !goes_on {
            break;
        }
    }
    site.close().await;
    traces.finish().await;
    Ok(())
}

/// Sets what variables set: each setting has one by its path, such as `WINDLASS_KEEP_DAYS`. Those of flags are read with
/// the flags.
fn set_by_variables(config: &mut Config) -> anyhow::Result<()> {
    let command = <ServeOptions as clap::Args>::augment_args(clap::Command::new("start"));
    let of_flags: Vec<&OsStr> = command.get_arguments().filter_map(clap::Arg::get_env).collect();
    for setting in config.settings().into_iter().filter(|setting| !setting.is_table()) {
        for name in setting.variables() {
            let value = std::env::var(&name).unwrap_or_default();
            if !value.is_empty() && !of_flags.contains(&OsStr::new(&name)) {
                config.set(&setting.path, &value).map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
            }
        }
    }
    Ok(())
}

/// The settings and the state directory. Variables and flags go over the config file, and `--set` over all.
pub fn settle(options: ServeOptions) -> anyhow::Result<(Config, PathBuf)> {
    let mut config = match &options.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    set_by_variables(&mut config)?;
    config.store = options.store.or(config.store);
    config.worker.cpus = options.cpus.or(config.worker.cpus);
    config.worker.memory = options.memory.or(config.worker.memory);
    config.worker.name = options.name.or(config.worker.name);
    config.worker.tags.extend(options.tags);
    config.worker.enabled &= !options.no_worker;
    config.worker.as_root |= options.as_root;
    config.lease = options.lease.unwrap_or(config.lease);
    config.compass.enabled |= options.compass;
    config.gateway.nix.enabled |= options.nix;
    options.access.override_config(&mut config);
    config.listen = options.listen.or(config.listen);
    for (path, value) in &options.set {
        config.set(path, value).map_err(anyhow::Error::msg)?;
    }
    config.check().map_err(anyhow::Error::msg)?;
    let state = options.state.map(std::path::absolute).transpose()?;
    let paths = match (state, Paths::for_user()) {
        (Some(state), Ok(own)) if own.state == state => own,
        (Some(state), _) => Paths::for_state(state),
        (None, own) => own?,
    };
    config.listen.get_or_insert_with(|| format!("unix:{}", paths.socket.display()));
    Ok((config, paths.state))
}

/// A server in this process that owns its farm.
pub struct OwnServer {
    handle: Handle,
    /// Where clients reach it.
    pub address: String,
    http: tokio::task::JoinHandle<()>,
    worker: Option<LocalWorker>,
    own_store: OwnStore,
}

impl OwnServer {
    /// Starts the engine and the worker, and listens once the worker is registered, so that the first request is checked
    /// against this machine's capacity.
    pub async fn start(site: &mut Site, own_store: OwnStore) -> anyhow::Result<OwnServer> {
        let (config, state, life) = (site.config.clone(), site.state.clone(), site.life);
        let options = ShellOptions { settings: config.engine_settings() };
        let rules = NoticeRules::new(&config.notify)?;
        let handle = windlass_server::start_telling(own_store.store.clone(), options, rules).await?;
        own_store.bind(&handle);
        let auth = site.auth().await?;
        let cache = gateways::cache(&config, &state);
        let files = JobFiles::new(&cache, &handle);
        let worker = match config.worker.enabled && !site.is_shared() {
            true => {
                Some(local::start(&handle, &config, &state, &site.address_here, files.clone(), life).await?)
            }
            false => None,
        };
        tokio::spawn(windlass_server::deliver_notices(handle.clone()));
        tokio::spawn(Retention { keep: config.keep() }.run(handle.clone()));
        let options = site.options(auth, gateways::of(&config, &state, cache)?, Some(files));
        let serve = windlass_server::serve(site.listeners()?, handle.clone(), options);
        let address = site.address.clone();
        Ok(OwnServer { handle, address, http: tokio::spawn(serve), worker, own_store })
    }

    /// Returns when this server must cease to own the farm.
    pub async fn lost(&self) -> Lost {
        self.own_store.lost().await
    }

    /// Stops it: requests in progress are answered, and decisions are committed. Tasks go on, unless `kill`.
    pub async fn stop(mut self, kill: bool) {
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
        self.own_store.close().await;
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
    leased: bool,
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
        leased: args.leased,
        log_bytes_max: args.log_bytes_max,
        resume: args.resume,
        fallback: args.fallback,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    #[test]
    fn a_server_is_started_again_with_the_flags_that_it_had() {
        let options = ServeOptions {
            listen: Some("unix:/run/w.sock".to_owned()),
            config: Some("/etc/farm.toml".into()),
            set: vec![
                ("listen".to_owned(), "unix:/run/v.sock".to_owned()),
                ("keep_days".to_owned(), "7".to_owned()),
            ],
            cpus: Some(1.5),
            memory: Some(1 << 30),
            tags: vec!["rack=7".to_owned()],
            no_worker: true,
            lease: Some("never".parse().unwrap()),
            ..ServeOptions::default()
        };
        let last = options.last_start().unwrap();
        assert_eq!(
            last.flags,
            [
                "--cpus=1.5",
                "--memory=1073741824",
                "--no-worker",
                "--tag=rack=7",
                "--lease=never",
                "--set=keep_days=7"
            ]
        );
        let again = Line::try_parse_from(["start".to_owned()].into_iter().chain(last.flags.clone())).unwrap();
        let again = LastStart { config: last.config.clone(), ..again.options.last_start().unwrap() };
        assert_eq!(again, last);
    }
}
