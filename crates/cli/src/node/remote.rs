//! `windlass worker start`: runs this machine as a worker of a server elsewhere.

use crate::client::credentials::{credentials, secret_files};
use crate::node::life::stop_signal;
use crate::node::log_level::start_logging;
use crate::node::nix_machine::NixMachine;
use crate::node::own;
use crate::node::paths::{Paths, let_users_in};
use crate::node::this_machine::{attributes, offer};
use crate::node::watchdog;
use crate::ui::error::CliError;
use crate::ui::message::message;
use anyhow::Context as _;
use clap::Args;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use windlass_api::{Address, Addresses};
use windlass_core::tags::{Attributes, CORE_SCORE, EXCLUSIVE, FOR_QUEUE, SERVES};
use windlass_worker::{
    AgentOptions, AskedGpus, CacheDir, Detected, FileCache, GPUS_ARE_LATE, Hidden, MeasureCore, NoGpus,
    RemoteOptions, ServerAddress, UserEntry, UserMap, run_remote,
};

/// The cache of files, where no other directory is given.
const FILES_CACHE: &str = "files-cache";
/// Bytes that are kept of one output file by default.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// Flags of `worker start`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Where --server lists several servers of one farm, the worker goes on with the next one at once when
its server is gone or another one owns the scheduling.

Environment: WINDLASS_TOKEN, the token itself; WINDLASS_CERT and WINDLASS_KEY, the files of
this worker's certificate; WINDLASS_LOG=debug for more log lines."
)]
pub struct StartArgs {
    /// Worker name, unique on the farm [default: the name used before with this directory, else the machine's]
    #[arg(long, env = "WINDLASS_WORKER_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// Cpus that tasks may use [default: all]
    #[arg(long, env = "WINDLASS_WORKER_CPUS", value_name = "N", value_parser = windlass_api::quantity::parse_cpus)]
    pub cpus: Option<f64>,
    /// Memory that tasks may use [default: all]
    #[arg(long, env = "WINDLASS_WORKER_MEMORY", value_name = "SIZE", value_parser = windlass_api::quantity::parse_size)]
    memory: Option<u64>,
    /// Gpus that tasks may use [default: all that nvidia-smi shows]
    #[arg(long, env = "WINDLASS_WORKER_GPUS", value_name = "N")]
    pub gpus: Option<u32>,
    /// Which gpus: indexes, UUIDs or names of MIG devices [default: those of CUDA_VISIBLE_DEVICES, else all that work]
    #[arg(long, env = "WINDLASS_WORKER_GPU_DEVICES", value_name = "LIST")]
    gpu_devices: Option<String>,
    /// Tag of the worker besides the detected ones, KEY or KEY=VALUE; may be repeated
    #[arg(long = "tag", env = "WINDLASS_WORKER_TAGS", value_delimiter = ',', value_name = "TAG")]
    tags: Vec<String>,
    /// Take only the work of this queue, which has all other workers as well; may be repeated
    #[arg(
        long = "for-queue",
        env = "WINDLASS_WORKER_FOR_QUEUE",
        value_delimiter = ',',
        value_name = "QUEUE"
    )]
    for_queues: Vec<String>,
    /// Cache directory: tasks that name an entry as NAME/ENTRY prefer workers that have it; may be repeated
    #[arg(long = "cache", env = "WINDLASS_WORKER_CACHES", value_delimiter = ',', value_name = "NAME=DIR")]
    caches: Vec<CacheDir>,
    /// Run the tasks of a submitter as this user of the machine, SUBMITTER=USER or *=USER; the user * is the one of the
    /// submitter's name; may be repeated [default: all run as the worker's own user]
    #[arg(long = "map-user", env = "WINDLASS_WORKER_USERS", value_delimiter = ',', value_name = "MAP")]
    pub map_user: Vec<UserEntry>,
    /// Run the tasks of all submitters as root, if the worker runs as root without --map-user
    #[arg(long, env = "WINDLASS_AS_ROOT", conflicts_with = "map_user")]
    pub as_root: bool,
    /// Disk space for the output of all tasks; beyond it the oldest output of ended tasks is cut [default: until a
    /// twentieth of the disk, or 1GiB, is left]
    #[arg(long, env = "WINDLASS_LOGS_BYTES_MAX", value_name = "SIZE", value_parser = windlass_api::quantity::parse_size)]
    logs_bytes_max: Option<u64>,
    /// Directory of the cache of files that tasks get from the server. On the disk of --state they cost no copies where
    /// tasks run as other users [default: files-cache in --state]
    #[arg(long, env = "WINDLASS_WORKER_FILES_DIR", value_name = "DIR")]
    files_dir: Option<PathBuf>,
    /// Disk space for that cache [default: 10GiB, or a tenth of what is free if that is less]
    #[arg(long, env = "WINDLASS_WORKER_FILES_BYTES", value_name = "SIZE", value_parser = windlass_api::quantity::parse_size)]
    files_bytes: Option<u64>,
    /// Report the load of this machine for the sccache build server at ADDR, its public_addr: its compiles and tasks
    /// share the cpus
    #[arg(long, env = "WINDLASS_WORKER_OBSERVE", value_name = "ADDR")]
    observe: Option<std::net::SocketAddr>,
    /// Take builds of Nix: clients with the build hook reach this machine's store at URI [default: ssh-ng://HOST]
    #[arg(long, env = "WINDLASS_WORKER_NIX", value_name = "URI", num_args = 0..=1, default_missing_value = "")]
    nix: Option<String>,
    /// Run no tasks, only observe or take builds of Nix
    #[arg(long, env = "WINDLASS_WORKER_NO_TASKS")]
    no_tasks: bool,
    /// End tasks of a server with another database at once, instead of waiting for their lease
    #[arg(long)]
    adopt: bool,
    /// State directory of the worker: its keeper's files, and the output of tasks
    #[arg(long, env = "WINDLASS_WORKER_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
    /// Bytes kept of one output file: its first MiB and its end [default: 1GiB]
    #[arg(long, env = "WINDLASS_LOG_BYTES_MAX", value_name = "SIZE", value_parser = windlass_api::quantity::parse_size)]
    log_bytes_max: Option<u64>,
}

impl StartArgs {
    /// The worker's state directory, absolute.
    pub fn state(&self) -> anyhow::Result<PathBuf> {
        match &self.state {
            Some(state) => std::path::absolute(state).context("cannot use --state"),
            None => Ok(Paths::for_user()?.state.join("worker")),
        }
    }

    /// The cache of files that tasks get. Nothing is made before the first of them.
    fn cache(&self, state: &Path) -> anyhow::Result<FileCache> {
        let dir = match &self.files_dir {
            Some(dir) => std::path::absolute(dir).context("cannot use --files-dir")?,
            None => state.join(FILES_CACHE),
        };
        Ok(FileCache::new(dir, self.files_bytes))
    }

    /// What limits the worker's gpus.
    pub fn asked_gpus(&self) -> AskedGpus {
        AskedGpus::here(self.gpus, self.gpu_devices.clone())
    }

    /// What this machine has, overridden by the flags.
    fn detected(&self) -> Result<Detected, NoGpus> {
        let detected = offer(self.cpus, self.memory, &self.asked_gpus())?;
        if detected.late_gpus.is_some() {
            tracing::warn!("{GPUS_ARE_LATE}");
        }
        Ok(detected)
    }

    /// The attributes of a worker that serves some queues alone, or clients of other systems.
    fn serves(&self, nix: Option<&NixMachine>) -> Attributes {
        let one = |text: &str| [text.to_owned()].into();
        let mut attributes = nix.map_or_else(Attributes::new, NixMachine::attributes);
        if let Some(server) = self.observe {
            attributes.entry(SERVES.to_owned()).or_default().insert("sccache".to_owned());
            attributes.insert(windlass_gateway_sccache::OBSERVES.to_owned(), one(&server.to_string()));
        }
        if self.no_tasks {
            let serves = attributes.get(SERVES).cloned().unwrap_or_default();
            attributes.insert(EXCLUSIVE.to_owned(), serves);
        }
        if !self.for_queues.is_empty() {
            attributes.insert(FOR_QUEUE.to_owned(), self.for_queues.iter().cloned().collect());
        }
        attributes
    }
}

/// Runs the worker until a signal stops it. Running tasks go on under their keeper.
pub async fn start(server: Option<&Addresses>, args: StartArgs) -> Result<(), CliError> {
    let Some(named) = server else {
        return Err(CliError::usage("give the server to work for: --server HOST:PORT"));
    };
    let servers = servers(named)?;
    let is_root = rustix::process::geteuid().is_root();
    if is_root && args.map_user.is_empty() && !args.as_root {
        return Err(CliError::usage(
            "the tasks of all submitters would run as root. Give --map-user SUBMITTER=USER, or --map-user '*=nobody' \
             for all; or --as-root, if that is intended",
        ));
    }
    if args.no_tasks && args.observe.is_none() && args.nix.is_none() {
        return Err(CliError::usage("--no-tasks leaves nothing to do: give --observe ADDR or --nix as well"));
    }
    windlass_worker::raise_file_limit();
    windlass_worker::protect_from_oom();
    _ = start_logging(None);
    windlass_server::end_process_on_panic();
    let state = args.state()?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&state);
    made.with_context(|| format!("cannot create the worker's directory {}", state.display()))?;
    let _only_one = lock(&state)?;
    let mut attributes = attributes(&args.tags);
    let host = attributes.get("host").and_then(|names| names.first().cloned());
    let nix = args.nix.as_deref().map(|uri| NixMachine::detect(uri, host.as_deref())).transpose()?;
    attributes.extend(args.serves(nix.as_ref()));
    if !args.map_user.is_empty() {
        // The directory has the sessions of job templates, which belong to the users of their tasks.
        let_users_in(&state)?;
    }
    let cache = args.cache(&state)?;
    let in_state = || format!("cannot write in the worker's directory {}", state.display());
    let Detected { capacity, gpu_devices, late_gpus } = args.detected().map_err(anyhow::Error::from)?;
    let caches: Vec<CacheDir> =
        args.caches.into_iter().chain(nix.iter().map(|_| NixMachine::store())).collect();
    let is_given = attributes.contains_key(CORE_SCORE);
    let agent = AgentOptions {
        name: windlass_worker::name(&state, args.name, host).with_context(in_state)?,
        identity: windlass_worker::identity(&state).with_context(in_state)?,
        state: state.clone(),
        program: std::env::current_exe().context("cannot find this program")?,
        capacity: nix.iter().fold(capacity, |all, nix| nix.add_to(all)),
        gpu_devices,
        late_gpus,
        die_with_agent: false,
        leased: true,
        log_bytes_max: args.log_bytes_max.unwrap_or(LOG_BYTES_MAX),
        logs_bytes_max: args.logs_bytes_max,
        adopt: args.adopt,
        measure_core: if is_given { MeasureCore::Never } else { MeasureCore::AtOnce },
        attributes,
        // Tasks see these files empty, where the kernel lets that be.
        hide: Some(Hidden {
            files: secret_files(),
            kept: caches.iter().map(|cache| cache.dir.clone()).collect(),
        }),
        caches,
    };
    let users = UserMap::new(args.map_user).map_err(anyhow::Error::from)?;
    message!("windlass worker '{}' works for {named}, state in {}", agent.name, state.display());
    if !is_root && works_for_others(named, &servers) {
        message!("{SHARED_USER}");
    }
    let stop = stop_signal().context("cannot install the signal handlers")?;
    watchdog::ready();
    tokio::spawn(watchdog::watch_runtime());
    let options = RemoteOptions { servers, users, agent: observing(agent, args.observe), cache };
    Ok(run_remote(options, stop).await.map_err(anyhow::Error::from)?)
}

/// The same worker, with places for the compiles of the build server that it observes.
fn observing(mut agent: AgentOptions, server: Option<std::net::SocketAddr>) -> AgentOptions {
    if server.is_some() {
        agent.capacity = windlass_gateway_sccache::with_places(agent.capacity);
    }
    agent
}

/// Said where the tasks of several people have the rights of one user.
const SHARED_USER: &str = "warning: the tasks of all submitters run as this user: each can reach the processes and files \
                           of the others, and whatever this user may read. Run the worker as root with --map-user, or \
                           let only people who trust each other use it";

/// Whether a token lets the worker in, and not only that of this user's own server: others submit there, too.
fn works_for_others(named: &Addresses, servers: &[ServerAddress]) -> bool {
    let mut shown = named.iter().zip(servers);
    shown.any(|(address, server)| server.token.is_some() && server.token != own::token_for(address))
}

/// The servers of the worker's farm, each with what it is shown.
fn servers(named: &Addresses) -> Result<Vec<ServerAddress>, CliError> {
    let mut servers = Vec::new();
    for address in named.iter() {
        let Address::Http(url) = address else {
            return Err(CliError::usage("a worker reaches its server by HOST:PORT, not by a unix socket"));
        };
        let shown = credentials(address)?;
        servers.push(ServerAddress {
            url: url.clone(),
            token: shown.token,
            ca: shown.ca,
            identity: shown.identity,
        });
    }
    Ok(servers)
}

/// Locks the directory for this agent. Two agents would keep taking the keeper from each other.
fn lock(state: &Path) -> anyhow::Result<File> {
    let path = state.join("agent.lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = open.with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => anyhow::bail!(
            "another worker runs in {}; give this one another --state and --name",
            state.display()
        ),
        Err(TryLockError::Error(e)) => Err(e).with_context(|| format!("cannot lock {}", path.display())),
    }
}
