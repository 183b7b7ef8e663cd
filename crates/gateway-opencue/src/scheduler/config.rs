//! The config file: that of OpenCue's own scheduler, with a section `windlass` for further settings.

mod error;
mod values;

pub use error::{CONFIG_BYTES_MAX, ConfigError};
pub use values::log_setting;

use super::amounts::AmountRules;
use super::command::MemoryFactors;
use super::instance::InstanceSettings;
use super::order::{JobOrder, Order};
use super::planning::PlanningRules;
use super::snapshot::Scope;
use crate::workers::WorkersSettings;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio_postgres::config::SslMode;
use values::Values;
use windlass_core::tags::Need;
use windlass_core::worker::Saturation;
use windlass_cuebot::Network;

/// The time for a connection to the database.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// What libpq's `sslmode` may be.
const TLS_MODES: [(&str, &str); 6] = [
    ("disable", "disable"),
    ("allow", "prefer"),
    ("prefer", "prefer"),
    ("require", "require"),
    ("verify-ca", "verify-ca"),
    ("verify-full", "verify-full"),
];
const TLS_MODES_TEXT: &str = "'disable', 'allow', 'prefer', 'require', 'verify-ca' or 'verify-full'";
/// The port of counts, which is that of OpenCue's own scheduler.
const COUNTS_PORT: u16 = 9090;
const MIB_KIB: i64 = 1 << 10;
const GIB_KIB: i64 = 1 << 20;

/// Keys of OpenCue's own scheduler, present and past, that change nothing here.
const UNUSED: &str = "sentry_dsn logging.path logging.file_appender accounting queue.monitor_interval queue.worker_threads \
    queue.job_back_off_duration queue.cluster_empty_sleep \
    queue.cluster_reload_interval queue.active_scan_interval queue.cluster_saturated_sleep queue.stream \
    queue.max_jobs_per_cluster_pass queue.manual_tags_chunk_size queue.hostname_tags_chunk_size \
    queue.host_candidate_attempts_per_layer queue.mem_reserved_min queue.allocation_refresh_interval \
    queue.host_booking_strategy.weights queue.host_booking_strategy.max_candidates \
    queue.host_booking_strategy.type queue.core_multiplier database.core_multiplier \
    host_cache.concurrent_groups host_cache.memory_key_divisor host_cache.checkout_timeout \
    host_cache.monitoring_interval host_cache.clean_up_interval host_cache.group_idle_timeout \
    host_cache.concurrent_fetch_permit host_cache.concurrent_groups_max host_cache.update_stat_on_book \
    scheduler.cluster_buffer_size";

/// The connection to the database, as the file says it.
#[allow(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// A host, or a directory with a socket.
    pub host: String,
    pub port: u16,
    pub name: String,
    pub user: String,
    /// The password, as the config file has it.
    pub password: Option<String>,
    /// A file with the password, which goes before the other.
    pub password_file: Option<PathBuf>,
    /// Connections of the gateway at most.
    pub connections_max: usize,
    /// The file's word for encryption, one of libpq's `sslmode`; `None` if the file has none.
    pub tls_mode: Option<&'static str>,
    /// A file with certificates of the authorities that sign the database's, or `system`.
    pub tls_root: Option<String>,
}

impl std::fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DatabaseSettings { host, port, name, user, .. } = self;
        write!(f, "{user}@{host}:{port}/{name}")
    }
}

/// Settings of the part that stands in for Cuebot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CuebotSettings {
    /// The address that hosts and clients call.
    pub listen: SocketAddr,
    /// The networks that they may call from; `None` is all.
    pub clients: Option<Vec<Network>>,
    /// The directory for logs of frames; `None` is the default.
    pub log_root: Option<String>,
    /// The greatest number of retries that a job may ask for; `None` is the default.
    pub retries_max: Option<i32>,
}

/// Settings of the board for browsers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardSettings {
    /// The address that browsers call.
    pub listen: SocketAddr,
    /// A file with the token of the board's users. Without one the address must be a loopback one.
    pub token_file: Option<PathBuf>,
    /// Names, `HOST` or `HOST:PORT`, under which a reverse proxy serves it.
    pub hosts: Vec<String>,
}

/// Settings of the port of counts and health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountsSettings {
    /// The address that Prometheus calls.
    pub listen: SocketAddr,
    /// True if the file names it. Where the usual one is taken, the gateway goes on without counts.
    pub is_asked: bool,
}

/// A whole config file.
#[derive(Clone, Debug)]
pub struct Config {
    /// The connection to the database.
    pub database: DatabaseSettings,
    /// Settings of the scheduler.
    pub instance: InstanceSettings,
    /// Cuebot's calls; `None` where they are not served.
    pub cuebot: Option<CuebotSettings>,
    /// Counts and health; `None` where they are not served.
    pub metrics: Option<CountsSettings>,
    /// What is logged, in the words of OpenCue's own scheduler; `None` is the usual.
    pub log: Option<String>,
    /// Windlass workers among the hosts; `None` without any.
    pub workers: Option<WorkersSettings>,
    /// The board; `None` where it is not served.
    pub board: Option<BoardSettings>,
    /// Keys of the file that change nothing here: those of OpenCue's own scheduler, and unknown ones.
    pub unused: Vec<String>,
}

impl DatabaseSettings {
    /// The encryption of a connection, in libpq's words. As with libpq, a socket of this machine is not encrypted. A
    /// connection that leaves this machine has TLS with a checked name, unless the file says otherwise.
    pub fn tls_mode(&self) -> &'static str {
        match self.tls_mode {
            _ if self.host.starts_with('/') => "disable",
            Some(written) => written,
            None if self.is_here() => "prefer",
            None => "verify-full",
        }
    }

    /// True if connections do not leave this machine: those to a socket, a loopback address and `localhost`. Another
    /// name is not looked up, because another machine would say what it stands for.
    pub fn is_here(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => self.host.starts_with('/') || self.host.eq_ignore_ascii_case("localhost"),
        }
    }

    /// The settings of a connection. The password file goes before the config file, and that before `PGPASSWORD`.
    pub fn connection(&self) -> std::io::Result<tokio_postgres::Config> {
        let mut config = tokio_postgres::Config::new();
        config.host(&self.host).port(self.port).dbname(&self.name).user(&self.user);
        config.application_name("windlass").connect_timeout(CONNECT_TIME);
        let from_file = match &self.password_file {
            Some(path) => Some(std::fs::read_to_string(path)?.trim_end().to_owned()),
            None => None,
        };
        let of_environment = || std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty());
        let password = from_file.or_else(|| self.password.clone()).or_else(of_environment);
        config.ssl_mode(match self.tls_mode() {
            "disable" => SslMode::Disable,
            // Where the server says that it has no TLS, the driver goes on without it, and gives the password in the
            // form that it is asked for. A password goes over a network with TLS alone, unless the file says
            // 'disable'.
            "prefer" if self.is_here() || password.is_none() => SslMode::Prefer,
            _ => SslMode::Require,
        });
        if let Some(password) = password {
            config.password(password);
        }
        Ok(config)
    }
}

impl Config {
    /// Reads a config file.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        if text.len() > CONFIG_BYTES_MAX {
            return Err(ConfigError::Long(text.len()));
        }
        let mut values = Values::parse(text)?;
        let mut config = Config {
            database: database(&mut values)?,
            instance: instance(&mut values)?,
            cuebot: cuebot(&mut values)?,
            metrics: metrics(&mut values)?,
            log: values.log_setting("logging.level")?,
            workers: workers(&mut values)?,
            board: board(&mut values)?,
            unused: Vec::new(),
        };
        config.instance.is_alone = config.cuebot.is_some();
        config.instance.scope.worker_users =
            config.workers.as_ref().and_then(|workers| workers.users.clone());
        check_workers(&config)?;
        let unused = values.rest().into_iter().map(|key| {
            let mut known = UNUSED.split_whitespace().filter_map(|known| key.strip_prefix(known));
            let is_known = known.any(|rest| rest.is_empty() || rest.starts_with('.'));
            if is_known { key } else { format!("{key} (unknown)") }
        });
        Ok(Config { unused: unused.collect(), ..config })
    }
}

/// Workers need the part that stands in for Cuebot, and its callers must be known, because each chooses the user of
/// frames.
fn check_workers(config: &Config) -> Result<(), ConfigError> {
    match (&config.workers, &config.cuebot) {
        (Some(workers), None) => Err(ConfigError::Value {
            key: "windlass.workers.server".to_owned(),
            value: workers.server.to_string(),
            expected: "beside 'windlass.cuebot.listen', because the gateway reports for the workers itself",
        }),
        (Some(_), Some(CuebotSettings { listen, clients: None, .. })) if !listen.ip().is_loopback() => {
            Err(ConfigError::Value {
                key: "windlass.cuebot.listen".to_owned(),
                value: listen.to_string(),
                expected: "a loopback address, or beside 'windlass.cuebot.clients' with the networks that may call \
                           it: its callers choose the users that frames on Windlass workers run as",
            })
        }
        _ => Ok(()),
    }
}

fn database(values: &mut Values) -> Result<DatabaseSettings, ConfigError> {
    let host = values.text("database.db_host")?.unwrap_or_else(|| "localhost".to_owned());
    Ok(DatabaseSettings {
        // A directory with a socket is written so there.
        host: host.replace("%2F", "/").replace("%2f", "/"),
        port: values.number("database.db_port")?.unwrap_or(5432),
        name: values.text("database.db_name")?.unwrap_or_else(|| "cuebot".to_owned()),
        user: values.text("database.db_user")?.unwrap_or_else(|| "cue".to_owned()),
        password: values.text("database.db_pass")?,
        password_file: values.text("windlass.db_pass_file")?.map(PathBuf::from),
        connections_max: values.number("database.pool_size")?.unwrap_or(20).max(2),
        tls_mode: values.choice("windlass.db_sslmode", &TLS_MODES, TLS_MODES_TEXT)?,
        tls_root: values.text("windlass.db_sslrootcert")?,
    })
}

fn instance(values: &mut Values) -> Result<InstanceSettings, ConfigError> {
    let mut facility = values.text("scheduler.facility")?;
    facility = facility.filter(|facility| !facility.is_empty());
    let scope = Scope {
        shows: values.texts("windlass.shows")?,
        permitted: None,
        worker_users: None,
        facility,
        ignore_tags: values.texts("scheduler.ignore_tags")?.unwrap_or_default(),
        alloc_tags: values.pairs("scheduler.alloc_tags", "show", "tag")?,
        manual_tags: values.texts("scheduler.manual_tags")?.unwrap_or_default(),
        host_stale_s: values.seconds("host_cache.host_staleness_threshold")?.unwrap_or(120.0),
    };
    let default = MemoryFactors::default();
    let memory = MemoryFactors {
        soft: values.number("queue.frame_memory_soft_limit")?.unwrap_or(default.soft),
        hard: values.number("queue.frame_memory_hard_limit")?.unwrap_or(default.hard),
    };
    let look_s = values.seconds("windlass.look_interval")?.unwrap_or(1.0).clamp(0.05, 60.0);
    let call_s = values.seconds("windlass.rqd_call_timeout")?.unwrap_or(10.0).clamp(0.1, 12.0);
    Ok(InstanceSettings {
        scope,
        rules: rules(values)?,
        memory,
        rqd_port: values.number("rqd.grpc_port")?.unwrap_or(crate::rqd::PORT),
        call_time: Duration::from_secs_f64(call_s),
        is_alone: false,
        is_dry: values.flag("rqd.dry_run_mode")?.unwrap_or(false),
        idle_passes_max: values.number("queue.empty_job_cycles_before_quiting")?,
        look_time: Duration::from_secs_f64(look_s),
    })
}

fn rules(values: &mut Values) -> Result<PlanningRules, ConfigError> {
    let saturation = Saturation {
        cores: values.flag("queue.host_booking_strategy.core_saturation")?.unwrap_or(true),
        memory: values.flag("queue.host_booking_strategy.memory_saturation")?.unwrap_or(false),
    };
    let amounts = AmountRules {
        stranded_mem_kib: values.kib("queue.memory_stranded_threshold")?.unwrap_or(2 * GIB_KIB).max(MIB_KIB),
        selfish_services: values.texts("queue.selfish_services")?.unwrap_or_default(),
    };
    let shows = [("share", false), ("strict", true)];
    let is_strict = values.choice("windlass.shows_by", &shows, "'share' or 'strict'")?.unwrap_or(false);
    let jobs =
        [("priority_only", JobOrder::Priority), ("fifo", JobOrder::Fifo), ("balanced", JobOrder::Balanced)];
    let jobs = values.choice("windlass.jobs_by", &jobs, "'priority_only', 'fifo' or 'balanced'")?;
    let layer_frames_max: Option<u32> = values.number("queue.dispatch_frames_per_layer_limit")?;
    let order = Order { is_strict, jobs: jobs.unwrap_or_default() };
    Ok(PlanningRules {
        amounts,
        saturation,
        order,
        layer_frames_max: layer_frames_max.filter(|max| *max > 0),
    })
}

fn cuebot(values: &mut Values) -> Result<Option<CuebotSettings>, ConfigError> {
    let listen = values.address("windlass.cuebot.listen")?;
    let clients = values.networks("windlass.cuebot.clients")?;
    let log_root = values.text("windlass.cuebot.log_root")?;
    let retries_max = values.number("windlass.cuebot.retries_max")?;
    Ok(listen.map(|listen| CuebotSettings { listen, clients, log_root, retries_max }))
}

/// The other keys are taken only with a server: without it they are named as unknown.
fn workers(values: &mut Values) -> Result<Option<WorkersSettings>, ConfigError> {
    let Some(server) = values.servers("windlass.workers.server")? else { return Ok(None) };
    let word = |given: Option<String>, default: &str| given.unwrap_or_else(|| default.to_owned());
    Ok(Some(WorkersSettings {
        server,
        token_file: values.text("windlass.workers.token_file")?.map(PathBuf::from),
        ca_file: values.text("windlass.workers.ca_file")?.map(PathBuf::from),
        tag: Need::parse(&word(values.text("windlass.workers.tag")?, "opencue")),
        queue: word(values.text("windlass.workers.queue")?, "opencue"),
        users: values.name_patterns("windlass.workers.users")?,
        allocation: values.text("windlass.workers.allocation")?,
        tags: values.texts("windlass.workers.tags")?.unwrap_or_default(),
        os: word(values.text("windlass.workers.os")?, "Linux"),
    }))
}

/// OpenCue's own scheduler serves its counts on all addresses; here a port alone means this machine. The port 0 serves
/// none.
fn metrics(values: &mut Values) -> Result<Option<CountsSettings>, ConfigError> {
    let port: Option<u16> = values.number("queue.metrics_port")?;
    let address = values.address("windlass.metrics_listen")?;
    let is_asked = address.is_some() || port.is_some();
    let of_port = (port != Some(0)).then(|| SocketAddr::from(([127, 0, 0, 1], port.unwrap_or(COUNTS_PORT))));
    Ok(address.or(of_port).map(|listen| CountsSettings { listen, is_asked }))
}

fn board(values: &mut Values) -> Result<Option<BoardSettings>, ConfigError> {
    let listen = values.address_or_port("windlass.board.listen")?;
    let token_file = values.text("windlass.board.token_file")?.map(PathBuf::from);
    let hosts = values.texts("windlass.board.hosts")?.unwrap_or_default();
    Ok(listen.map(|listen| BoardSettings { listen, token_file, hosts }))
}

#[cfg(test)]
mod tests;
