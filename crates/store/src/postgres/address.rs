//! The address of a PostgreSQL database: a libpq URL, whose options for TLS and for the password file are read here,
//! because the driver does not know them. No error shows a part of the address, which may hold a password.

use super::tls::{Checks, TlsDialer};
use crate::error::StoreError;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation, TargetSessionAttrs};

/// A file that holds the password and nothing else.
pub const PASSWORD_FILE: &str = "WINDLASS_POSTGRES_PASSWORD_FILE";
/// How long a host may take to accept a connection, unless the address says otherwise.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long data may stay unacknowledged by the database's host before the connection counts as lost.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);
/// Where the sockets of a database on this machine are, if the address names no host.
const SOCKETS: &str = "/var/run/postgresql";
/// Options that the driver reads.
const KNOWN: [&str; 18] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
    "sslnegotiation",
];

/// How a database is reached.
#[derive(Clone)]
pub struct Target {
    pub config: Config,
    pub tls: TlsDialer,
    way: Way,
    /// Hosts and database, for messages.
    pub shown: String,
}

/// What lies between this process and a database. Of several hosts the longest way counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Way {
    Socket,
    ThisMachine,
    /// A network, on which other machines may read and answer.
    Network,
}

impl Way {
    fn of(config: &Config) -> Way {
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        let ways = (0..hosts.len().max(addresses.len())).map(|number| {
            match (addresses.get(number), hosts.get(number)) {
                // The driver connects to the address, and takes the name for the certificate alone.
                (Some(address), _) => Way::of_address(*address),
                (None, Some(Host::Tcp(name))) => Way::of_name(name),
                (None, Some(Host::Unix(_))) => Way::Socket,
                (None, None) => Way::Network,
            }
        });
        ways.max().unwrap_or(Way::Socket)
    }

    fn of_address(address: IpAddr) -> Way {
        if address.to_canonical().is_loopback() { Way::ThisMachine } else { Way::Network }
    }

    /// A name is not looked up: what it stands for is another machine's word, and may change.
    fn of_name(name: &str) -> Way {
        match name.parse() {
            Ok(address) => Way::of_address(address),
            Err(_) if name.eq_ignore_ascii_case("localhost") => Way::ThisMachine,
            Err(_) => Way::Network,
        }
    }

    /// What is asked of a connection, where the address says this or nothing. A socket of this machine is not
    /// encrypted, as with libpq. What leaves this machine has TLS with a name that is checked, unless the address says
    /// otherwise.
    fn checks(self, written: Option<Checks>) -> Checks {
        match (self, written) {
            (Way::Socket, _) => Checks::Disable,
            (_, Some(written)) => written,
            (Way::ThisMachine, None) => Checks::Prefer,
            (Way::Network, None) => Checks::VerifyFull,
        }
    }

    /// The same for the driver. With `prefer` it goes on without TLS where the database, or another machine in its
    /// place, says that it has none, and then gives the password in whatever form it is asked for. So a password goes
    /// over a network with TLS alone, unless the address says `disable`.
    fn driver_mode(self, checks: Checks, has_password: bool) -> SslMode {
        match checks {
            Checks::Disable => SslMode::Disable,
            Checks::Prefer if self != Way::Network || !has_password => SslMode::Prefer,
            Checks::Prefer | Checks::Require | Checks::VerifyCa | Checks::VerifyFull => SslMode::Require,
        }
    }
}

/// What the environment says about passwords.
#[derive(Default)]
pub struct Secrets {
    /// The value of `PGPASSWORD`.
    pub password: Option<String>,
    /// The value of [`PASSWORD_FILE`].
    pub file: Option<String>,
}

impl Secrets {
    pub fn of_environment() -> Secrets {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Secrets { password: var("PGPASSWORD"), file: var(PASSWORD_FILE) }
    }
}

impl Target {
    /// Reads an address. The password comes from the address, else from [`PASSWORD_FILE`], `?passfile=` or
    /// `PGPASSWORD`, in this order.
    pub fn parse(address: &str, secrets: &Secrets) -> Result<Target, StoreError> {
        let (base, options) = address.split_once('?').unwrap_or((address, ""));
        let (mut left, mut written, mut root, mut passfile) = (Vec::new(), None, None, None);
        let mut hosts = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match key {
                "sslmode" => written = Some(Checks::parse(value)?),
                "sslrootcert" => root = Some(decoded(value)),
                "passfile" => passfile = Some(decoded(value)),
                // The driver takes a list of names here, and one socket alone.
                "host" => hosts.extend(value.split(',').map(decoded)),
                key if KNOWN.contains(&key) => left.push(option),
                _ => return Err(unknown_option()),
            }
        }
        let url = format!("{base}?{}", left.join("&"));
        let mut config: Config = url.parse().map_err(|e: tokio_postgres::Error| {
            let why = std::error::Error::source(&e).map(|cause| cause.to_string()).unwrap_or_default();
            // The driver names options and never values in this message.
            let named = why.contains("option `");
            let why = if named { why } else { "it is not a valid URL of a database".to_owned() };
            StoreError::Setting(format!("{why}; {FORM}"))
        })?;
        hosts.iter().for_each(|host| _ = config.host(host));
        let (hosts, ports) =
            (config.get_hosts().len().max(config.get_hostaddrs().len()), config.get_ports().len());
        if ports > 1 && ports != hosts {
            return Err(StoreError::Setting(format!(
                "the address names {hosts} hosts and {ports} ports; give one port for all, or one for each host"
            )));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host_path(SOCKETS);
        }
        if config.get_password().is_none()
            && let Some(password) = password(&config, secrets, passfile.as_deref())?
        {
            config.password(password);
        }
        let way = Way::of(&config);
        let checks = way.checks(written);
        let mode = way.driver_mode(checks, config.get_password().is_some());
        let has_socket = config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_)));
        if has_socket && way != Way::Socket && mode == SslMode::Require {
            return Err(StoreError::Setting(
                "it names a socket of this machine, which has no TLS, beside a host that needs it; name hosts alone, \
                 localhost in place of the socket"
                    .to_owned(),
            ));
        }
        config.ssl_mode(mode);
        let is_direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        let tls = TlsDialer::new(checks, root.as_deref(), is_direct)?;
        let has = |option: &str| left.iter().any(|given| given.starts_with(&format!("{option}=")));
        with_defaults(&mut config, has);
        let shown = shown(&config);
        Ok(Target { config, tls, way, shown })
    }
}

/// What an address lets happen on the way to the database, in words that complete a sentence; `None` if nothing, or if
/// the way does not leave this machine.
///
/// # Errors
///
/// The address cannot be used.
pub fn weakness(address: &str) -> Result<Option<&'static str>, StoreError> {
    let target = Target::parse(address, &Secrets::default())?;
    Ok(target.tls.weakness().filter(|_| target.way == Way::Network))
}

const FORM: &str = "write postgres://USER@HOST/DATABASE, and special characters of a password as %XX";

fn unknown_option() -> StoreError {
    let options = [&KNOWN[..], &["sslmode", "sslrootcert", "passfile"]].concat().join(", ");
    StoreError::Setting(format!("it has an option that is not known; there are {options}; {FORM}"))
}

fn with_defaults(config: &mut Config, has: impl Fn(&str) -> bool) {
    if !has("connect_timeout") {
        config.connect_timeout(CONNECT_MAX);
    }
    if !has("tcp_user_timeout") {
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
    }
    if !has("keepalives_idle") {
        config.keepalives_idle(CONNECT_MAX);
        config.keepalives_interval(CONNECT_MAX);
        config.keepalives_retries(3);
    }
    if !has("target_session_attrs") {
        // Of several hosts the one that takes writes, so a promoted standby is found.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if config.get_application_name().is_none() {
        config.application_name("windlass");
    }
}

/// An address without user and password, for messages and for `windlass server status`.
pub fn without_secrets(address: &str) -> String {
    let Ok(target) = Target::parse(address, &Secrets::default()) else { return "postgres://".to_owned() };
    target.shown
}

/// Hosts and database as an address without user and password.
fn shown(config: &Config) -> String {
    let port = |number: usize| config.get_ports().get(number).or(config.get_ports().first()).copied();
    let hosts = config.get_hosts().iter().enumerate().map(|(number, host)| match (host, port(number)) {
        (Host::Tcp(name), None | Some(5432)) => name.clone(),
        (Host::Tcp(name), Some(port)) => format!("{name}:{port}"),
        (Host::Unix(dir), _) => dir.display().to_string(),
    });
    let mut hosts: Vec<String> = hosts.collect();
    if hosts.is_empty() {
        hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
    }
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{}/{database}", hosts.join(","))
}

/// A value of an option, with `%XX` undone.
fn decoded(value: &str) -> String {
    let bytes = value.as_bytes();
    let (mut found, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                found.push(byte);
                at += 3;
            }
            None => {
                found.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&found).into_owned()
}

fn password(
    config: &Config,
    secrets: &Secrets,
    passfile: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let read = |path: &str| {
        let io = |source| StoreError::Io { path: path.into(), source };
        std::fs::read_to_string(Path::new(path)).map_err(io)
    };
    if let Some(file) = &secrets.file {
        return Ok(Some(read(file)?.trim_end_matches(['\n', '\r']).to_owned()));
    }
    if let Some(file) = passfile {
        return Ok(from_passfile(&read(file)?, config));
    }
    Ok(secrets.password.clone())
}

/// The password of the first line that matches, in libpq's form `host:port:database:user:password`, where `*` stands
/// for all and a backslash before `:` and `\`.
fn from_passfile(text: &str, config: &Config) -> Option<String> {
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(_) => "localhost".to_owned(),
        })
        .collect();
    let ports: Vec<String> = match config.get_ports() {
        [] => vec!["5432".to_owned()],
        ports => ports.iter().map(ToString::to_string).collect(),
    };
    let line = text.lines().filter(|line| !line.starts_with('#')).map(fields);
    let fits = |fields: &Vec<String>| {
        let [host, port, to, of, _] = &fields[..] else { return false };
        let is = |field: &String, value: &str| field == "*" || field == value;
        hosts.iter().any(|name| is(host, name))
            && ports.iter().any(|number| is(port, number))
            && is(to, database)
            && is(of, user)
    };
    line.into_iter().find(fits).map(|mut fields| fields.swap_remove(4))
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut chars) = (vec![String::new()], line.chars());
    while let Some(char) = chars.next() {
        match char {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().expect("there is always one").extend(chars.next()),
            char => fields.last_mut().expect("there is always one").push(char),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(address: &str) -> Target {
        Target::parse(address, &Secrets::default()).unwrap_or_else(|e| panic!("{address}: {e}"))
    }

    #[test]
    fn several_hosts_are_tried_for_one_that_takes_writes() {
        let target = parse("postgresql://ann:pw@a:6000,b/farm?sslmode=require");
        assert_eq!(target.shown, "postgres://a:6000,b/farm");
        assert_eq!(target.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let sockets = parse("postgres://ann@/farm?host=/run/a,/run/b&port=5432,5433").config;
        assert_eq!(sockets.get_hosts(), ["/run/a", "/run/b"].map(|dir| Host::Unix(dir.into())));
        assert_eq!(sockets.get_ports(), [5432, 5433]);
        let uneven = Target::parse("postgres:///farm?host=/a,/b&port=1,2,3", &Secrets::default());
        let Err(StoreError::Setting(why)) = uneven else { panic!("three ports of two hosts") };
        assert!(why.contains("2 hosts and 3 ports"), "{why}");
        let any = parse("postgres://a/farm?sslmode=require&target_session_attrs=any");
        assert_eq!(any.config.get_target_session_attrs(), TargetSessionAttrs::Any);
    }

    #[test]
    fn a_socket_is_used_without_tls() {
        let target = parse("postgres:///farm?host=/run/pg&sslmode=verify-full");
        assert_eq!(target.config.get_ssl_mode(), SslMode::Disable);
        assert_eq!(target.shown, "postgres:///run/pg/farm");
        assert_eq!(parse("postgres:///farm").config.get_hosts(), [Host::Unix(SOCKETS.into())]);
    }

    #[test]
    fn what_leaves_this_machine_has_tls_with_a_checked_name_unless_the_address_says_otherwise() {
        use Checks::{Disable, Prefer, Require, VerifyCa, VerifyFull};
        for written in [None, Some(Disable), Some(Prefer), Some(Require), Some(VerifyCa), Some(VerifyFull)] {
            assert_eq!(Way::Socket.checks(written), Disable);
            assert_eq!(Way::ThisMachine.checks(written), written.unwrap_or(Prefer));
            assert_eq!(Way::Network.checks(written), written.unwrap_or(VerifyFull));
        }
        for (checks, has_password, here, elsewhere) in [
            (Disable, true, SslMode::Disable, SslMode::Disable),
            (Disable, false, SslMode::Disable, SslMode::Disable),
            (Prefer, true, SslMode::Prefer, SslMode::Require),
            (Prefer, false, SslMode::Prefer, SslMode::Prefer),
            (Require, true, SslMode::Require, SslMode::Require),
            (VerifyCa, true, SslMode::Require, SslMode::Require),
            (VerifyFull, false, SslMode::Require, SslMode::Require),
        ] {
            assert_eq!(Way::ThisMachine.driver_mode(checks, has_password), here, "{checks:?}");
            assert_eq!(Way::Network.driver_mode(checks, has_password), elsewhere, "{checks:?}");
        }
    }

    #[test]
    fn the_longest_way_of_all_hosts_counts() {
        let way = |address: &str| parse(&format!("{address}sslmode=disable")).way;
        for (address, expected) in [
            ("postgres:///farm?", Way::Socket),
            ("postgres:///farm?host=/run/a,/run/b&", Way::Socket),
            ("postgres://localhost/farm?", Way::ThisMachine),
            ("postgres://LOCALHOST,127.0.0.9/farm?", Way::ThisMachine),
            ("postgres://[::1]/farm?", Way::ThisMachine),
            ("postgres:///farm?host=/run/a,localhost&", Way::ThisMachine),
            ("postgres://localhost.example/farm?", Way::Network),
            ("postgres://localhost,db.example/farm?", Way::Network),
            ("postgres://10.0.0.7/farm?", Way::Network),
            ("postgres://localhost/farm?hostaddr=10.0.0.7&", Way::Network),
            ("postgres://db.example/farm?hostaddr=127.0.0.1&", Way::ThisMachine),
        ] {
            assert_eq!(way(address), expected, "{address}");
        }
        let mixed = Target::parse("postgres:///farm?host=/run/a,db&sslmode=require", &Secrets::default());
        let Err(StoreError::Setting(why)) = mixed else { panic!("a socket has no TLS") };
        assert!(why.contains("localhost in place of the socket"), "{why}");
    }

    #[test]
    fn a_weak_mode_is_told_for_another_machine_alone() {
        let told = |address: &str| weakness(address).unwrap();
        for (mode, word) in [
            ("disable", "nothing is encrypted"),
            ("allow", "TLS may be refused"),
            ("prefer", "TLS may be refused"),
            ("require", "the certificate is not checked"),
        ] {
            let text = told(&format!("postgres://db.example/farm?sslmode={mode}"));
            assert!(text.is_some_and(|text| text.contains(word)), "{mode}: {text:?}");
            assert_eq!(told(&format!("postgres://127.0.0.1/farm?sslmode={mode}")), None);
        }
        assert_eq!(told("postgres:///farm"), None);
    }

    #[test]
    fn a_password_comes_from_the_address_a_file_or_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, passfile) = (dir.path().join("plain"), dir.path().join("pass file"));
        std::fs::write(&plain, "from-file\n").unwrap();
        std::fs::write(&passfile, "# hosts\nb:*:*:*:other\na:5432:farm:ann:p\\:w\\\\d\n").unwrap();
        let of = |address: &str, password: Option<&str>, file: bool| {
            let file = file.then(|| plain.display().to_string());
            let address =
                format!("{address}{}sslmode=require", if address.contains('?') { '&' } else { '?' });
            let secrets = Secrets { password: password.map(str::to_owned), file };
            let target = Target::parse(&address, &secrets).unwrap();
            target.config.get_password().map(|p| String::from_utf8_lossy(p).into_owned())
        };
        assert_eq!(of("postgres://ann:x%2Fy@a/farm", Some("env"), true).as_deref(), Some("x/y"));
        assert_eq!(of("postgres://ann@a/farm", Some("env"), true).as_deref(), Some("from-file"));
        assert_eq!(of("postgres://ann@a/farm", Some("env"), false).as_deref(), Some("env"));
        let with = format!("postgres://ann@a/farm?passfile={}", passfile.display()).replace(' ', "%20");
        assert_eq!(of(&with, Some("env"), false).as_deref(), Some("p:w\\d"));
        assert_eq!(of(&with.replace("@a/", "@b/"), None, false).as_deref(), Some("other"));
        assert_eq!(of("postgres://ann@a/farm", None, false), None);
    }

    #[test]
    fn no_error_shows_a_part_of_a_password() {
        for address in [
            "postgres://ann:sec?ret@a/farm",
            "postgres://ann:sec/ret@a/farm",
            "postgres://ann:sec@ret@a:x/farm",
            "postgres://ann:secret@a:99999999/farm",
            "postgres://ann:secret@a/farm?sslmod=x",
            "postgres://ann:secret@a/farm?sslmode=secret",
            "postgres://ann:secret@a/farm?port=secret",
            "postgres://ann:secret@a/farm?sslrootcert=/nowhere&sslmode=verify-full",
        ] {
            let Err(error) = Target::parse(address, &Secrets::default()) else { continue };
            let text = format!("{error} {error:?}");
            assert!(!text.contains("sec") && !text.contains("ret@"), "{text}");
        }
    }
}
