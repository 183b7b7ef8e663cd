//! The server's settings: one TOML file. Every setting has a default. Variables, flags and `--set` go over the file.

mod cas;
mod engine;
mod lease;
mod notify;
mod placement;
mod scaling;
mod setting;
mod telemetry;

pub use cas::CasSettings;
pub use lease::Lease;
pub use notify::NotifyConfig;
pub use placement::{Cache, LoadConfig, Placement, Reservation, Score, Turn};
pub use scaling::ScalingConfig;
pub use setting::Setting;
pub use telemetry::TelemetryConfig;

use serde::Deserialize;
use setting::{SettingType as _, setting_of_flag, settings, words};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_api::SetQueue;

/// Least bytes kept of one output file: its first MiB and as much of its end.
const LOG_BYTES_MIN: f64 = 2_097_152.0;
/// Longest time that a client of sccache waits for a place, in seconds. Clients give up after 1200.
const SCCACHE_WAIT_MAX_S: f64 = 1_000.0;

settings! {
    /// All settings of the server.
    pub struct Config {
        /// Address to listen on: `HOST:PORT`, or `unix:PATH`. By default a socket of the state directory, which only its
        /// user can open. Other machines reach the server only with TLS.
        listen: Option<String> = None;
        /// Where jobs are kept: `sqlite:PATH`, `postgres://HOST/DATABASE` or `memory`. By default `windlass.db` in the
        /// state directory.
        store: Option<String> = None;
        /// Days that ended jobs and their output are kept.
        keep_days: f64 = 14.0, unit Days, within 0.0..=36_500.0;
        /// Bytes kept of one output file: its first MiB and its end. A note marks the place where something was left
        /// out.
        log_bytes_max: u64 = 1 << 30, unit Bytes, within LOG_BYTES_MIN..=f64::INFINITY;
        /// Minutes without work or clients after which the server ends. Absent: it never does.
        idle_minutes: Option<f64> = None, unit Minutes, within 0.0..=1e6;
        /// Time that a worker's tasks may run without contact to the server. With `never` they wait for an
        /// administrator.
        lease: Lease = Lease::Seconds(300.0), unit Seconds, within 1.0..=1e7;
        /// The worker on this machine.
        worker: Worker = Worker::default();
        /// The queue that is served next.
        turn: Turn = Turn::default();
        /// Bin packing instead of spreading tasks over workers.
        placement: Placement = Placement::default();
        /// How workers with room are ranked.
        score: Score = Score::default();
        /// What the load of a worker's machine does, beyond bookings.
        load: LoadConfig = LoadConfig::default();
        /// Room for wide work in a stream of narrow work.
        reservation: Reservation = Reservation::default();
        /// [How many workers are wanted](../scaling.md), for programs that start and stop them.
        scaling: ScalingConfig = ScalingConfig::default();
        /// Jobs that are kept in memory.
        cache: Cache = Cache::default();
        /// Encryption of connections over TCP, with files in PEM.
        tls: Tls = Tls::default();
        /// Access over TCP, and the audit log.
        auth: AuthConfig = AuthConfig::default();
        /// Bounds on connections over TCP.
        connections: Connections = Connections::default();
        /// The board in a browser.
        board: BoardConfig = BoardConfig::default();
        /// Traces for a collector, and the server's own log.
        telemetry: TelemetryConfig = TelemetryConfig::default();
        /// Who is told of jobs that end and of workers that are lost.
        notify: NotifyConfig = NotifyConfig::default();
        /// The store of files by their content, and [the remote cache](../cache.md) that build tools have in it.
        cas: CasSettings = CasSettings::default();
        /// The interface of Compass CI.
        compass: CompassConfig = CompassConfig::default();
        /// What one user may have, administrators excepted.
        users: UserLimits = UserLimits::default();
        /// [One server for all users of the machine](../builders.md#several-users-of-one-machine), if the table is there.
        machine: Option<MachineConfig> = None;
        /// The interfaces of other systems that listen at addresses of their own.
        gateway: GatewayConfig = GatewayConfig::default();
        /// Settings of queues, by name, with the fields of [SetQueue](requests.md#setqueue). They hold from each start
        /// on, and only the file changes them.
        queues: BTreeMap<String, SetQueue> = BTreeMap::new();
    }
}

settings! {
    /// The interfaces of other systems that listen at addresses of their own.
    pub struct GatewayConfig {
        /// The scheduler's side of sccache, if the table is there.
        sccache: Option<SccacheConfig> = None;
        /// The server's side of Nix's build hook.
        nix: NixConfig = NixConfig::default();
    }
}

settings! {
    /// The server's side of Nix's build hook.
    pub struct NixConfig {
        /// Whether the server takes builds. Its clients learn addresses of machines from this server.
        enabled: bool = false;
    }
}

settings! {
    /// The scheduler's side of sccache.
    pub struct SccacheConfig {
        /// File with the settings of a stock scheduler: its address and tokens.
        config: PathBuf = PathBuf::new();
        /// Seconds that a client may wait for a place.
        wait_s: f64 = 30.0, unit Seconds, within 0.0..=SCCACHE_WAIT_MAX_S;
        /// Whether a build server must speak from the address that its token names.
        check_address: bool = true;
        /// Proxies whose `X-Real-IP` is believed.
        proxies: Vec<IpAddr> = Vec::new();
    }
}

settings! {
    /// What one user may have, administrators excepted.
    pub struct UserLimits {
        /// Submissions a minute.
        submissions_per_minute: u32 = 6_000;
        /// Jobs, including ended ones that are still kept.
        jobs: u64 = 1_000_000;
        /// Size of these jobs in the store: commands, environments, values.
        bytes: u64 = 4 << 30, unit Bytes;
        /// The highest priority of a job.
        priority: i32 = 1_000;
    }
}

settings! {
    /// One server for all users of the machine. Each is known by the process that connects to its unix socket.
    pub struct MachineConfig {
        /// The group of the socket. Its members are the users of the server.
        group: String = "windlass-users".to_owned();
        /// The group whose members are administrators, besides root. It may be missing.
        admins: String = "windlass-admins".to_owned();
        /// Users whose tasks run as another one, and accounts of the system that may have tasks: `SUBMITTER=USER` each.
        map_users: Vec<String> = Vec::new();
    }
}

/// Jobs whose output and commands users and viewers read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// A user reads those of the user's own jobs.
    #[default]
    Own,
    /// Everyone reads those of all jobs.
    All,
}

words!(Reads, "`\"own\"` or `\"all\"`");

settings! {
    /// Bounds on connections over TCP.
    pub struct Connections {
        /// Connections in all: 60000 by default. The limit on open files lowers it, because 512 files stay reserved.
        max: Option<usize> = None, within 16.0..=f64::INFINITY;
        /// Connections of one machine from which no client has shown a token yet: 1024 by default.
        per_machine_max: Option<usize> = None, within 1.0..=f64::INFINITY;
    }
}

settings! {
    /// The board in a browser.
    pub struct BoardConfig {
        /// Whether the server has a board.
        enabled: bool = true;
        /// Names, `HOST` or `HOST:PORT`, under which browsers reach a server that listens on a loopback address, besides
        /// the machine's own: those of a reverse proxy.
        hosts: Vec<String> = Vec::new();
    }
}

impl BoardConfig {
    fn check(&self) -> Result<(), String> {
        for host in &self.hosts {
            if host.is_empty() || host.contains(['/', ' ', '@', '*']) {
                return Err(format!("board.hosts must be HOST or HOST:PORT each, not '{host}'"));
            }
        }
        Ok(())
    }
}

settings! {
    /// The interface of Compass CI.
    pub struct CompassConfig {
        /// Whether its clients, providers and machines come to this server.
        enabled: bool = false;
        /// The directory that is served as `/srv` and takes results. Absent: the server serves and takes none.
        srv: Option<PathBuf> = None;
        /// The beginning of the URLs that machines get. By default how each machine reaches the server.
        url: Option<String> = None;
        /// Whether packages that users' jobs upload may be what the machines of others boot.
        shared_uploads: bool = false;
        /// Whether a bare machine is known by the address from which it booted; not behind a proxy.
        trust_addresses: bool = false;
        /// Bytes of one file that a job uploads: 1 GiB by default.
        upload_bytes_max: Option<u64> = None, unit Bytes;
        /// Bytes of all files that one job uploads: 8 GiB by default.
        results_bytes_max: Option<u64> = None, unit Bytes;
    }
}

settings! {
    /// The worker on this machine.
    pub struct Worker {
        /// Whether this machine runs tasks.
        enabled: bool = true;
        /// The worker's name. By default the machine's.
        name: Option<String> = None;
        /// Cpus that tasks may hold. By default all.
        cpus: Option<f64> = None, within 0.01..=1e6;
        /// Memory that tasks may hold. By default all.
        memory: Option<u64> = None, unit Bytes;
        /// Gpus that tasks may hold. By default all that nvidia-smi shows.
        gpus: Option<u32> = None;
        /// Which gpus: indexes, UUIDs or names of MIG devices, with commas between them. By default those that
        /// `CUDA_VISIBLE_DEVICES` of the server names, else all that work.
        gpu_devices: Option<String> = None;
        /// Tags besides what is detected: `key` or `key=value`.
        tags: Vec<String> = Vec::new();
        /// Whether root's own worker may run the tasks of all users as root.
        as_root: bool = false;
        /// Directories whose [entries are a cache](../farm.md#load-and-caches), by the first part of their keys.
        caches: BTreeMap<String, PathBuf> = BTreeMap::new();
    }
}

settings! {
    /// Encryption of connections over TCP, with files in PEM.
    pub struct Tls {
        /// The server's certificate, followed by those that lead to its authority. `windlass ca` makes one.
        cert: Option<PathBuf> = None;
        /// The key of that certificate.
        key: Option<PathBuf> = None;
        /// Authorities that vouch for clients. With it the server asks clients for a certificate.
        client_ca: Option<PathBuf> = None;
        /// Whether clients without a certificate are refused.
        require_client_cert: bool = false;
    }
}

impl Tls {
    fn check(&self) -> Result<(), String> {
        if self.cert.is_some() != self.key.is_some() {
            return Err("tls.cert and tls.key go together: give both or neither".to_owned());
        }
        if self.client_ca.is_some() && self.cert.is_none() {
            return Err("tls.client_ca needs tls.cert and tls.key".to_owned());
        }
        if self.require_client_cert && self.client_ca.is_none() {
            return Err("tls.require_client_cert needs tls.client_ca".to_owned());
        }
        Ok(())
    }
}

settings! {
    /// Access over TCP, and the audit log.
    pub struct AuthConfig {
        /// Requests over TCP need no token: every user of this machine is its administrator.
        trust_this_machine: bool = false;
        /// A setting of releases in which requests over TCP needed no token by default. Only `true` is taken.
        required: Option<bool> = None;
        /// Whether tokens may go over the network in plain text.
        insecure_plaintext: bool = false;
        /// Jobs whose output and commands users and viewers read: their own, or all.
        read: Reads = Reads::Own;
        /// Old files of the audit log that are kept.
        audit_files: u32 = 8;
    }
}

impl AuthConfig {
    fn check(&self) -> Result<(), String> {
        match self.required {
            Some(false) => {
                Err("auth.required = false is gone: requests over TCP need tokens. Where every user of this \
                 machine is to be trusted, set auth.trust_this_machine = true"
                    .to_owned())
            }
            Some(true) if self.trust_this_machine => {
                Err("auth.required and auth.trust_this_machine contradict each other".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
pub enum ConfigError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {why}", path.display())]
    Parse { path: PathBuf, why: String },
}

impl Config {
    /// Reads the settings of a file. What it does not name has its default.
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

    /// All settings with their values, in the order of the manual. Tables come before what is in them.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        self.list(Setting::default(), &mut settings);
        settings
    }

    /// The setting that a flag of `server start` means, by its name in this release or an earlier one.
    pub fn setting_of_flag(flag: &str) -> Option<Setting> {
        setting_of_flag(Config::default().settings(), flag)
    }

    /// Sets the setting at `path`, such as `load.max_cpu_pressure`, from a text. [`Config::check`] says whether its value is
    /// within its bounds.
    ///
    /// # Errors
    /// If no setting is at that path, or if it does not take such a text.
    pub fn set(&mut self, path: &str, text: &str) -> Result<(), String> {
        let settings = self.settings();
        let found = settings.iter().find(|setting| setting.path == path && !setting.is_table());
        if let Some(unit) = found.map(|setting| setting.unit) {
            return self.assign(path, text, unit).map_err(|why| format!("{path}: {why}"));
        }
        if path.starts_with("queues.") {
            return Err("the file sets queues, and 'windlass queue set' does".to_owned());
        }
        let last = path.rsplit('.').next().unwrap_or(path);
        Err(match setting_of_flag(settings, last) {
            Some(near) => format!("there is no setting '{path}'; did you mean '{}'?", near.path),
            None => format!("there is no setting '{path}'"),
        })
    }

    /// Says which setting makes no sense.
    pub fn check(&self) -> Result<(), String> {
        for setting in self.settings() {
            setting.check()?;
        }
        for (name, queue) in &self.queues {
            check_queue(name, queue).map_err(|why| format!("queues.{name}: {why}"))?;
        }
        if self.gateway.sccache.as_ref().is_some_and(|sccache| sccache.config.as_os_str().is_empty()) {
            return Err("gateway.sccache.config is missing: give the file of a stock scheduler".to_owned());
        }
        let listens_here = self.listen.as_ref().is_none_or(|listen| listen.starts_with("unix:"));
        if self.machine.is_some() && !listens_here {
            return Err(
                "the server of [machine] listens on a unix socket: set listen = \"unix:PATH\"".to_owned()
            );
        }
        self.score.check()?;
        self.scaling.check()?;
        self.board.check()?;
        self.telemetry.check()?;
        self.auth.check()?;
        self.tls.check()
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
        assert!(Config::parse("listen = '127.0.0.1:1'\n[machine]").unwrap_err().contains("[machine]"));
        assert!(Config::parse("listen = 'unix:/run/w.sock'\n[machine]").unwrap().machine.is_some());
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
        assert_eq!("5m".parse::<Lease>().unwrap().duration(), Some(Duration::from_secs(300)));
    }

    #[test]
    fn settings_are_set_by_path() {
        let mut config = Config::default();
        for (path, text) in [
            ("load.max_cpu_pressure", "70"),
            ("load.min_free_bytes", "2GiB"),
            ("keep_days", "12h"),
            ("idle_minutes", "90s"),
            ("lease", "never"),
            ("turn.charge", "task"),
            ("auth.read", "all"),
            ("worker.enabled", "false"),
            ("worker.tags", "ssd,rack=a4"),
            ("worker.tags", "gpu"),
            ("worker.caches", "nix=/nix/store"),
            ("gateway.sccache.config", "/etc/scheduler.toml"),
            ("gateway.sccache.proxies", "10.0.0.1"),
        ] {
            config.set(path, text).unwrap();
        }
        let by_file = Config::parse(
            "keep_days = 0.5\nidle_minutes = 1.5\nlease = 'never'\n\
             [load]\nmax_cpu_pressure = 70\nmin_free_bytes = 2147483648\n[turn]\ncharge = 'task'\n\
             [auth]\nread = 'all'\n[worker]\nenabled = false\ntags = ['ssd', 'rack=a4', 'gpu']\n\
             [worker.caches]\nnix = '/nix/store'\n\
             [gateway.sccache]\nconfig = '/etc/scheduler.toml'\nproxies = ['10.0.0.1']",
        );
        assert_eq!(config, by_file.unwrap());
    }

    #[test]
    fn mistakes_of_what_is_set_are_named() {
        let refused = |path: &str, text: &str| Config::default().set(path, text).unwrap_err();
        assert_eq!(
            refused("max_cpu_pressure", "70"),
            "there is no setting 'max_cpu_pressure'; did you mean 'load.max_cpu_pressure'?"
        );
        assert_eq!(refused("colour", "red"), "there is no setting 'colour'");
        assert_eq!(refused("load", "1"), "there is no setting 'load'");
        assert!(refused("queues.film.weight", "5").contains("windlass queue set"));
        assert!(refused("load.max_cpu_pressure", "hot").contains("load.max_cpu_pressure: 'hot'"));
        assert!(refused("worker.enabled", "perhaps").contains("neither true nor false"));
        assert!(refused("turn.charge", "core").contains("`time` or `task`"));
        assert!(refused("gateway.sccache.proxies", "box1").contains("box1"));
        let mut config = Config::default();
        config.set("load.stale_reports", "61").unwrap();
        assert_eq!(config.check().unwrap_err(), "load.stale_reports must be from 1 to 60, not 61");
        config = Config::default();
        config.set("gateway.sccache.wait_s", "1m").unwrap();
        assert!(config.check().unwrap_err().contains("gateway.sccache.config"));
    }

    #[test]
    fn flags_of_earlier_releases_name_their_settings() {
        for (flag, path) in [
            ("max-cpu-pressure", "load.max_cpu_pressure"),
            ("min-free", "load.min_free_bytes"),
            ("pressure-release", "load.release"),
            ("pressure", "load.pressure"),
            ("scoring-policy", "score.policy"),
            ("reservation-after-s", "reservation.after_s"),
            ("cache-steps", "cache.steps"),
            ("cache", "worker.caches"),
            ("gpus", "worker.gpus"),
            ("keep-days", "keep_days"),
            ("tls-require-client-cert", "tls.require_client_cert"),
        ] {
            assert_eq!(Config::setting_of_flag(flag).unwrap().path, path, "{flag}");
        }
        assert_eq!(Config::setting_of_flag("colour"), None);
    }

    #[test]
    fn variables_of_earlier_releases_set_what_they_did() {
        let words = "CHARGE EXPRESS CORE_SATURATION MEMORY_SATURATION SCORING_POLICY WAIT_DEADLINE_S PRESSURE \
             MAX_CPU_PRESSURE MAX_MEMORY_PRESSURE MAX_IO_PRESSURE MAX_NETWORK_USE MIN_FREE CPU_PRESSURE_WEIGHT \
             MEMORY_PRESSURE_WEIGHT IO_PRESSURE_WEIGHT PRESSURE_RELEASE REPORT_MS STALE_REPORTS RESERVATION_AFTER_S \
             RESERVATION_HOLDERS CACHE_STEPS KEEP_DAYS LOG_BYTES_MAX IDLE_MINUTES WORKER_GPUS WORKER_CACHES \
             TLS_REQUIRE_CLIENT_CERT";
        let settings = Config::default().settings();
        let known: Vec<String> = settings.iter().flat_map(Setting::variables).collect();
        for word in words.split_whitespace() {
            let uses = known.iter().filter(|name| **name == format!("WINDLASS_{word}"));
            assert_eq!(uses.count(), 1, "{word}");
        }
    }

    #[test]
    fn variables_go_by_one_rule() {
        let variables = |flag: &str| Config::setting_of_flag(flag).unwrap().variables().collect::<Vec<_>>();
        assert_eq!(variables("keep-days"), ["WINDLASS_KEEP_DAYS"]);
        assert_eq!(
            variables("max-cpu-pressure"),
            ["WINDLASS_LOAD_MAX_CPU_PRESSURE", "WINDLASS_MAX_CPU_PRESSURE"]
        );
    }
}
