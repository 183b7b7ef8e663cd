//! The server's settings: one TOML file; every setting has a default, and flags go over the file.

mod placement;
mod telemetry;

pub use placement::{Cache, Charge, LoadConfig, Placement, Reservation, Score, Turn};
pub use telemetry::TelemetryConfig;

use crate::door::BoardOptions;
use crate::submission_rights::UserLimits;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use windlass_api::SetQueue;

/// All settings.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where to listen: `HOST:PORT`, or `unix:PATH`; by default a socket that belongs to the state directory.
    pub listen: Option<String>,
    /// `sqlite:PATH`, `postgres://HOST/DATABASE` or `memory`; by default `windlass.db` in the state directory.
    pub store: Option<String>,
    /// Days that ended jobs and their output are kept.
    pub keep_days: f64,
    /// Bytes of one output file that are kept: its beginning and its end.
    pub log_bytes_max: u64,
    /// Minutes without work or clients after which the server ends; absent is never.
    pub idle_minutes: Option<f64>,
    /// How long a worker's tasks may run without a word from it: seconds, or `never`.
    pub lease: Lease,
    /// The worker on this machine.
    pub worker: Worker,
    /// How turns are taken.
    pub turn: Turn,
    /// How places are chosen.
    pub placement: Placement,
    /// How workers with room are ranked.
    pub score: Score,
    /// What the load of workers' machines does.
    pub load: LoadConfig,
    /// What is kept free for work that is hard to place.
    pub reservation: Reservation,
    /// How much of what waits is held in memory.
    pub cache: Cache,
    /// Encryption of connections over TCP.
    pub tls: Tls,
    /// Who is let in.
    pub auth: AuthConfig,
    /// How many connections there may be over TCP.
    pub connections: Connections,
    /// The board in a browser.
    pub board: BoardConfig,
    /// Where traces go.
    pub telemetry: TelemetryConfig,
    /// The interface of Compass CI.
    pub compass: CompassConfig,
    /// What one user may have, administrators excepted.
    pub users: Users,
    /// The interfaces of other systems that listen at addresses of their own.
    pub gateway: GatewayConfig,
    /// Settings of queues, by name. They hold from each start on, and only the file changes them.
    pub queues: BTreeMap<String, SetQueue>,
}

/// The interfaces of other systems that listen at addresses of their own.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// The scheduler's side of sccache; absent: there is none.
    pub sccache: Option<SccacheConfig>,
    /// The server's side of Nix's build hook.
    #[serde(default)]
    pub nix: NixConfig,
}

/// The server's side of Nix's build hook.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NixConfig {
    /// True where it takes builds. Its clients learn addresses of machines from this server.
    pub enabled: bool,
}

/// The scheduler's side of sccache.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SccacheConfig {
    /// The settings of a stock scheduler: its address and tokens.
    pub config: PathBuf,
    /// Seconds that a client may wait for a place.
    #[serde(default = "sccache_wait_s")]
    pub wait_s: f64,
    /// Whether a build server must speak from the address that its token names.
    #[serde(default = "yes")]
    pub check_address: bool,
    /// Proxies whose `X-Real-IP` is believed.
    #[serde(default)]
    pub proxies: Vec<IpAddr>,
}

fn sccache_wait_s() -> f64 {
    30.0
}

fn yes() -> bool {
    true
}

/// What one user may have, administrators excepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Users {
    /// Submissions a minute.
    pub submissions_per_minute: u32,
    /// Jobs, ended ones that are still kept too.
    pub jobs: u64,
    /// Bytes of these jobs in the store.
    pub bytes: u64,
    /// The highest priority of a job.
    pub priority: i32,
}

impl Default for Users {
    fn default() -> Self {
        Users { submissions_per_minute: 6_000, jobs: 1_000_000, bytes: 4 << 30, priority: 1_000 }
    }
}

impl Users {
    /// For the interface.
    pub fn limits(self) -> UserLimits {
        let Users { submissions_per_minute, jobs, bytes, priority } = self;
        UserLimits { submissions_per_minute, jobs, bytes, priority }
    }
}

/// Whose output and commands a user reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// Of their own jobs.
    #[default]
    Own,
    /// Of everybody's.
    All,
}

/// How many connections there may be over TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Connections {
    /// Connections in all: 60000 by default. The limit on open files lowers it, for 512 files stay reserved.
    pub max: Option<usize>,
    /// Of one machine, on which nobody was let in yet; by default 1024.
    pub per_machine_max: Option<usize>,
}

/// The board in a browser.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BoardConfig {
    /// False where the server has no board.
    pub enabled: bool,
    /// Names, `HOST` or `HOST:PORT`, under which browsers reach a server that listens on a loopback address, besides
    /// the machine's own: those of a reverse proxy.
    pub hosts: Vec<String>,
}

impl Default for BoardConfig {
    fn default() -> Self {
        BoardConfig { enabled: true, hosts: Vec::new() }
    }
}

impl BoardConfig {
    /// For the interface.
    pub fn options(&self) -> BoardOptions {
        BoardOptions { enabled: self.enabled, hosts: self.hosts.clone() }
    }

    fn check(&self) -> Result<(), String> {
        let is_bad = |host: &&String| host.is_empty() || host.contains(['/', ' ', '@', '*']);
        match self.hosts.iter().find(is_bad) {
            Some(host) => Err(format!("board.hosts must be HOST or HOST:PORT each, not '{host}'")),
            None => Ok(()),
        }
    }
}

/// The interface of Compass CI.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompassConfig {
    /// True where its clients, providers and machines come to this server.
    pub enabled: bool,
    /// The directory that is served as `/srv` and takes results; absent serves and takes none.
    pub srv: Option<PathBuf>,
    /// The beginning of the URLs that machines get; absent is how each machine reaches the server.
    pub url: Option<String>,
    /// True where packages that users' jobs upload may be what the machines of others boot.
    pub shared_uploads: bool,
    /// True where a bare machine is known by the address from which it booted; not behind a proxy.
    pub trust_addresses: bool,
    /// Bytes of one file that a job uploads: 1 GiB by default.
    pub upload_bytes_max: Option<u64>,
    /// Bytes of all files that one job uploads: 8 GiB by default.
    pub results_bytes_max: Option<u64>,
}

/// How long a worker may be silent before its tasks are run elsewhere.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Lease {
    /// So many seconds.
    Seconds(f64),
    /// Until an operator says that it is gone.
    Never(Never),
}

/// The word `never`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Never {
    /// No lease ends by itself.
    Never,
}

impl Lease {
    /// How long; `None` is for ever.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Lease::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
            Lease::Never(_) => None,
        }
    }

    fn check(self) -> Result<(), String> {
        match self {
            Lease::Seconds(seconds) if !(1.0..=1e7).contains(&seconds) => {
                Err(format!("lease must be a number of seconds from 1 to 10000000 or never, not {seconds}"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Lease {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lease = match text {
            "never" => Lease::Never(Never::Never),
            _ => Lease::Seconds(text.parse().map_err(|_| format!("'{text}' is no number of seconds"))?),
        };
        lease.check().map(|()| lease)
    }
}

/// The worker on this machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    /// False where this machine runs no tasks.
    pub enabled: bool,
    /// Its name; by default the machine's.
    pub name: Option<String>,
    /// Cores that tasks may hold; by default all.
    pub cpus: Option<f64>,
    /// Bytes of memory that tasks may hold; by default all.
    pub memory: Option<u64>,
    /// Devices that tasks may hold; by default all that nvidia-smi shows.
    pub gpus: Option<u32>,
    /// Tags besides what is detected: `key` or `key=value`.
    pub tags: Vec<String>,
    /// Root's worker may run the tasks of all who have a token as root.
    pub as_root: bool,
    /// Directories whose entries are caches, by the first part of their keys.
    pub caches: BTreeMap<String, PathBuf>,
}

/// Encryption of connections over TCP, with files in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate, followed by those that lead to its authority.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Who vouches for clients; with it they are asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// Refuse clients that have none.
    pub require_client_cert: bool,
}

/// Who is let in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// Requests over TCP need no token: every user of this machine is its administrator.
    pub trust_this_machine: bool,
    /// What was said before requests over TCP needed a token by themselves; only `true` is taken.
    pub required: Option<bool>,
    /// Tokens may go over the network in plain text.
    pub insecure_plaintext: bool,
    /// Whose output and commands users and viewers read: `own`, or `all`.
    pub read: Reads,
    /// Old files of the audit log that are kept.
    pub audit_files: Option<u32>,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what a config is.
    #[error("{}: {why}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
}

impl Default for Worker {
    fn default() -> Self {
        Worker {
            enabled: true,
            name: None,
            cpus: None,
            memory: None,
            gpus: None,
            tags: Vec::new(),
            as_root: false,
            caches: BTreeMap::new(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: None,
            store: None,
            keep_days: 14.0,
            log_bytes_max: 1 << 30,
            idle_minutes: None,
            lease: Lease::Seconds(300.0),
            worker: Worker::default(),
            turn: Turn::default(),
            placement: Placement::default(),
            score: Score::default(),
            load: LoadConfig::default(),
            reservation: Reservation::default(),
            cache: Cache::default(),
            tls: Tls::default(),
            auth: AuthConfig::default(),
            connections: Connections::default(),
            board: BoardConfig::default(),
            telemetry: TelemetryConfig::default(),
            compass: CompassConfig::default(),
            users: Users::default(),
            gateway: GatewayConfig::default(),
            queues: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Config::parse(&text).map_err(|why| ConfigError::Parse { path: path.to_owned(), why })
    }

    fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
        config.check()?;
        Ok(config)
    }

    /// Says which setting makes no sense.
    pub fn check(&self) -> Result<(), String> {
        let config = self;
        if let Some(sccache) = &config.gateway.sccache
            && !(0.0..=1_000.0).contains(&sccache.wait_s)
        {
            // Clients give up after 1200 seconds.
            return Err(format!("gateway.sccache.wait_s must be from 0 to 1000, not {}", sccache.wait_s));
        }
        let days = config.keep_days;
        if !days.is_finite() || !(0.0..=36_500.0).contains(&days) {
            return Err(format!("keep_days must be a number from 0 to 36500, not {days}"));
        }
        if config.log_bytes_max < 2 << 20 {
            return Err(format!("log_bytes_max must be at least 2097152, not {}", config.log_bytes_max));
        }
        for (name, queue) in &config.queues {
            check_queue(name, queue).map_err(|why| format!("queues.{name}: {why}"))?;
        }
        config.lease.check()?;
        config.turn.check()?;
        config.score.check()?;
        config.load.check()?;
        config.reservation.check()?;
        config.cache.check()?;
        config.board.check()?;
        config.telemetry.check()?;
        if let Some(minutes) = config.idle_minutes.filter(|m| !m.is_finite() || *m < 0.0 || *m > 1e6) {
            return Err(format!("idle_minutes must be a number from 0 to 1000000, not {minutes}"));
        }
        if let Some(cpus) = config.worker.cpus.filter(|c| !c.is_finite() || *c <= 0.0 || *c > 1e6) {
            return Err(format!("worker.cpus must be a number above 0, not {cpus}"));
        }
        if let Some(max) = config.connections.max.filter(|max| *max < 16) {
            return Err(format!("connections.max must be at least 16, not {max}"));
        }
        if config.connections.per_machine_max == Some(0) {
            return Err("connections.per_machine_max must be at least 1, not 0".to_owned());
        }
        if config.auth.required == Some(false) {
            return Err(
                "auth.required = false is gone: requests over TCP need tokens. Where every user of this \
                        machine is to be trusted, set auth.trust_this_machine = true"
                    .to_owned(),
            );
        }
        if config.auth.required == Some(true) && config.auth.trust_this_machine {
            return Err("auth.required and auth.trust_this_machine contradict each other".to_owned());
        }
        let Tls { cert, key, client_ca, require_client_cert } = &config.tls;
        if cert.is_some() != key.is_some() {
            return Err("tls.cert and tls.key go together: give both or neither".to_owned());
        }
        if client_ca.is_some() && cert.is_none() {
            return Err("tls.client_ca needs tls.cert and tls.key".to_owned());
        }
        if *require_client_cert && client_ca.is_none() {
            return Err("tls.require_client_cert needs tls.client_ca".to_owned());
        }
        Ok(())
    }

    /// How long ended jobs are kept.
    pub fn keep(&self) -> Duration {
        Duration::from_secs_f64(self.keep_days * 86_400.0)
    }

    /// How long the server stays without work or clients; `None` is for ever.
    pub fn idle(&self) -> Option<Duration> {
        self.idle_minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0))
    }
}

fn check_queue(name: &str, queue: &SetQueue) -> Result<(), String> {
    if queue.paused.is_some() {
        return Err(format!("a file pauses no queue; use 'windlass queue pause {name}'"));
    }
    let record = queue.over(name, None).map_err(|e| e.to_string())?;
    record.check().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_set_by_name() {
        let config = Config::parse(
            "[queues.film]\nweight = 50\nquota_cpus = 64\nusers = ['*']\nuser_weights = { ann = 300 }",
        );
        let film = &config.unwrap().queues["film"];
        assert_eq!((film.weight, film.quota_cpus), (Some(50), Some(Some(64.0))));
        assert_eq!(film.fields(), ["weight", "quota_cpus", "users", "user_weights"]);
        for (text, word) in [
            ("[queues.film]\nweight = 0", "queues.film: weight"),
            ("[queues.film]\nweigth = 1", "weigth"),
            ("[queues.film]\npaused = 'x'", "windlass queue pause film"),
            ("[queues.film]\nuser_weights = { ann = 0 }", "weight of 'ann'"),
            ("[queues.film]\nburst_cpus = 3", "burst"),
        ] {
            assert!(Config::parse(text).unwrap_err().contains(word), "{text}");
        }
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(Config::parse("").unwrap(), Config::default());
    }

    #[test]
    fn mistakes_are_named() {
        assert!(Config::parse("lissten = 'x'").unwrap_err().contains("lissten"));
        assert!(Config::parse("keep_days = nan").unwrap_err().contains("keep_days"));
        assert!(Config::parse("[worker]\ncpus = -1").unwrap_err().contains("worker.cpus"));
        assert!(Config::parse("[tls]\ncert = 'a'").unwrap_err().contains("tls.key"));
        assert!(Config::parse("[tls]\nclient_ca = 'a'").unwrap_err().contains("tls.client_ca"));
        assert!(Config::parse("[tls]\nrequire_client_cert = true").unwrap_err().contains("tls.require"));
        assert!(Config::parse("idle_minutes = inf").unwrap_err().contains("idle_minutes"));
        assert!(Config::parse("lease = 0.5").unwrap_err().contains("lease"));
        assert!(Config::parse("[auth]\nrequired = false").unwrap_err().contains("trust_this_machine"));
        assert!(Config::parse("[board]\nhosts = ['https://farm']").unwrap_err().contains("board.hosts"));
        assert!(Config::parse("[telemetry]\notlp = 'farm:4318'").unwrap_err().contains("telemetry.otlp"));
        assert!(Config::parse("[telemetry]\nlog = 'loud'").unwrap_err().contains("telemetry.log"));
        assert!(Config::parse("[telemetry]\nlog = 'info,windlass_store=debug'").is_ok());
        assert!(Config::parse("[connections]\nmax = 1").unwrap_err().contains("connections.max"));
        assert!(Config::parse("[connections]\nper_machine_max = 0").unwrap_err().contains("per_machine"));
        assert!(Config::parse("lease = 'soon'").unwrap_err().contains("lease"));
    }

    #[test]
    fn a_lease_is_seconds_or_never() {
        let lease = |text: &str| Config::parse(text).unwrap().lease.duration();
        assert_eq!(lease(""), Some(Duration::from_secs(300)));
        assert_eq!(lease("lease = 3"), Some(Duration::from_secs(3)));
        assert_eq!(lease("lease = 'never'"), None);
        assert_eq!("2.5".parse::<Lease>().unwrap().duration(), Some(Duration::from_millis(2500)));
    }
}
