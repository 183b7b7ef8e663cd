//! `windlass worker start`: this machine works for a server elsewhere.

use crate::credentials::credentials;
use crate::error::CliError;
use crate::output::talk;
use crate::paths::Paths;
use crate::serve::{start_logging, stop_signal};
use crate::watchdog;
use anyhow::Context as _;
use clap::Args;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use windlass_api::client::Address;
use windlass_core::tags::Attributes;
use windlass_worker::{CacheDir, RemoteOptions, ServerAddress, UserEntry, UserMap, run_remote};

/// Bytes of one output file that are kept where nobody says otherwise.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// What this machine gives.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Also from the environment: WINDLASS_TOKEN, the token itself; WINDLASS_CERT and WINDLASS_KEY, the files of
this worker's certificate; WINDLASS_LOG=debug, to say more."
)]
pub struct StartArgs {
    /// Unique on the farm [default: the name used before in this directory, else the machine's]
    #[arg(long, env = "WINDLASS_WORKER_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// Cores that tasks may use [default: all]
    #[arg(long, env = "WINDLASS_WORKER_CPUS", value_name = "N", value_parser = crate::quantity::parse_cpus)]
    cpus: Option<f64>,
    /// Memory that tasks may use [default: all]
    #[arg(long, env = "WINDLASS_WORKER_MEMORY", value_name = "SIZE", value_parser = crate::quantity::parse_size)]
    memory: Option<u64>,
    /// Devices that tasks may use [default: all that nvidia-smi shows]
    #[arg(long, env = "WINDLASS_WORKER_GPUS", value_name = "N")]
    pub gpus: Option<u32>,
    /// A tag besides what is detected, KEY or KEY=VALUE; may be given again
    #[arg(long = "tag", env = "WINDLASS_WORKER_TAGS", value_delimiter = ',', value_name = "TAG")]
    tags: Vec<String>,
    /// A directory whose entries are a cache: tasks that name one as NAME/ENTRY run where it is; may be given
    /// again
    #[arg(long = "cache", env = "WINDLASS_WORKER_CACHES", value_delimiter = ',', value_name = "NAME=DIR")]
    caches: Vec<CacheDir>,
    /// Run the tasks of a submitter as this user of the machine, SUBMITTER=USER or *=USER; may be given
    /// again [default: all run as the worker's own user]
    #[arg(long = "map-user", env = "WINDLASS_WORKER_USERS", value_delimiter = ',', value_name = "MAP")]
    pub map_user: Vec<UserEntry>,
    /// Run the tasks of all submitters as root, where this is root and --map-user is not given
    #[arg(long, env = "WINDLASS_AS_ROOT", conflicts_with = "map_user")]
    pub as_root: bool,
    /// How much all output together may take of the disk; then the oldest of ended tasks is cut [default: until a
    /// twentieth of the disk, or 1GiB, is left]
    #[arg(long, env = "WINDLASS_LOGS_BYTES_MAX", value_name = "SIZE", value_parser = crate::quantity::parse_size)]
    logs_bytes_max: Option<u64>,
    /// End what runs for a server of another database, instead of waiting until its lease is over
    #[arg(long)]
    adopt: bool,
    /// The worker's directory: its keeper, and the output of tasks
    #[arg(long, env = "WINDLASS_WORKER_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
    /// How much of one output file is kept: its first MiB and its end [default: 1GiB]
    #[arg(long, env = "WINDLASS_LOG_BYTES_MAX", value_name = "SIZE", value_parser = crate::quantity::parse_size)]
    log_bytes_max: Option<u64>,
}

impl StartArgs {
    /// The worker's directory.
    pub fn state(&self) -> anyhow::Result<PathBuf> {
        match &self.state {
            Some(state) => std::path::absolute(state).context("cannot use --state"),
            None => Ok(Paths::for_user()?.state.join("worker")),
        }
    }
}

/// Works until it is told to end. Running tasks go on under their keeper.
pub async fn start(server: Option<&Address>, args: StartArgs) -> Result<(), CliError> {
    let url = match server {
        Some(Address::Http(url)) => url.clone(),
        Some(Address::Unix(_)) => {
            return Err(CliError::usage("a worker reaches its server by HOST:PORT, not by a unix socket"));
        }
        None => return Err(CliError::usage("say which server to work for: --server HOST:PORT")),
    };
    let shown = credentials(&Address::Http(url.clone()))?;
    let is_root = rustix::process::geteuid().is_root();
    if is_root && args.map_user.is_empty() && !args.as_root {
        return Err(CliError::usage(
            "the tasks of all submitters would run as root. Give --map-user SUBMITTER=USER, or --map-user '*=nobody' \
             for all; or --as-root, if that is meant",
        ));
    }
    windlass_worker::raise_file_limit();
    windlass_worker::protect_from_oom();
    start_logging();
    windlass_server::end_process_on_panic();
    let state = args.state()?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&state);
    made.with_context(|| format!("cannot make the worker's directory {}", state.display()))?;
    let _only_one = lock(&state)?;
    let attributes = attributes(&args.tags);
    let host = attributes.get("host").and_then(|names| names.first().cloned());
    if !args.map_user.is_empty() {
        // Sessions of job templates are in there, and belong to the users of their tasks.
        let passable = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(&state, passable).context("cannot let users into the worker's directory")?;
        check_passable(&state)?;
    }
    let in_state = || format!("cannot write in the worker's directory {}", state.display());
    let options = RemoteOptions {
        server: ServerAddress {
            url: url.clone(),
            token: shown.token,
            ca: shown.ca,
            identity: shown.identity,
        },
        name: windlass_worker::name(&state, args.name, host).with_context(in_state)?,
        identity: windlass_worker::identity(&state).with_context(in_state)?,
        state: state.clone(),
        program: std::env::current_exe().context("cannot find this program")?,
        capacity: capacity(args.cpus, args.memory, args.gpus),
        attributes,
        users: UserMap::new(args.map_user).map_err(anyhow::Error::from)?,
        log_bytes_max: args.log_bytes_max.unwrap_or(LOG_BYTES_MAX),
        caches: args.caches,
        logs_bytes_max: args.logs_bytes_max,
        adopt: args.adopt,
    };
    talk!("windlass worker '{}' works for {url}, state in {}", options.name, state.display());
    let stop = stop_signal().context("cannot hear signals")?;
    watchdog::ready();
    tokio::spawn(watchdog::watch_runtime());
    Ok(run_remote(options, stop).await.map_err(anyhow::Error::from)?)
}

/// What this machine has, with what somebody said in the place of what is detected.
pub fn capacity(cpus: Option<f64>, memory: Option<u64>, gpus: Option<u32>) -> windlass_core::Resources {
    let mut capacity = windlass_worker::capacity();
    if let Some(cpus) = cpus {
        capacity.cpu = (cpus * 100.0).round() as u32;
    }
    capacity.memory = memory.unwrap_or(capacity.memory);
    if let Some(gpus) = gpus.filter(|gpus| *gpus != capacity.gpus) {
        // Of some of the devices nobody knows which.
        capacity.gpu_memory =
            capacity.gpu_memory.checked_div(capacity.gpus.into()).unwrap_or(0) * u64::from(gpus);
        capacity.gpus = gpus;
    }
    capacity
}

/// What this machine is, with tags: `key` or `key=value`.
pub fn attributes(tags: &[String]) -> Attributes {
    let mut attributes = windlass_worker::attributes();
    for tag in tags {
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        let values = attributes.entry(key.to_owned()).or_default();
        values.extend((!value.is_empty()).then(|| value.to_owned()));
    }
    attributes
}

/// Tasks of other users work below the worker's directory.
fn check_passable(state: &Path) -> anyhow::Result<()> {
    for dir in state.ancestors() {
        let mode =
            std::fs::metadata(dir).with_context(|| format!("cannot look at {}", dir.display()))?.mode();
        anyhow::ensure!(
            mode & 0o001 != 0,
            "users cannot come through {} to the worker's directory, where their tasks work; give --state a \
             directory elsewhere, such as /var/lib/windlass/worker",
            dir.display()
        );
    }
    Ok(())
}

/// Two agents of one directory would take the keeper from each other again and again.
fn lock(state: &Path) -> anyhow::Result<File> {
    let path = state.join("agent.lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = open.with_context(|| format!("cannot make {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => anyhow::bail!(
            "another worker runs in {}; give this one another --state and --name",
            state.display()
        ),
        Err(TryLockError::Error(e)) => Err(e).with_context(|| format!("cannot lock {}", path.display())),
    }
}
