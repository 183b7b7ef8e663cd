//! Checks of a machine as the server of a farm.

use super::certificate::validity;
use super::check::{Check, directory, free_space, weak_transport};
use crate::client::credentials::credentials;
use crate::node::serve::{self, ServeOptions};
use crate::node::site;
use crate::ui::error::CliError;
use crate::ui::quantity::now_ms;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use windlass_api::Role;
use windlass_api::client::{Address, Client, ClientError};
use windlass_server::auth::certificate_names;
use windlass_server::{Config, ListenError, Listener, TlsError};
use windlass_store::{Store, StoreError};
use windlass_worker::ADMIN_SOCKET;

/// Open files that a server of many workers may need.
const FILES_ADVISED: u64 = 65_536;
/// How long a notification of the database may take.
const NOTICE_PATIENCE: Duration = Duration::from_secs(3);
/// A smaller difference of clocks is normal.
const CLOCKS_AGREE_MS: u64 = 2_000;
/// A certificate that expires within this time gets a note.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Checks the settings with which the server would be started.
pub async fn checks(options: ServeOptions) -> Vec<Check> {
    let (config, state) = match serve::settle(options) {
        Ok(settled) => settled,
        Err(error) => {
            let advice = "correct them; 'windlass server start --help' explains each";
            return vec![Check::missing("settings", format!("{error:#}"), advice)];
        }
    };
    let mut checks = vec![directory("state directory", &state, "give another --state"), free_space(&state)];
    checks.extend(other_settings(&config, &state));
    checks.push(open_files(rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum));
    checks.extend(tls(&config));
    checks.push(listening(&config).await);
    checks.extend(store(&config, &state).await);
    checks
}

/// Says that a server runs in the directory with other settings than those that are examined. Otherwise the findings on
/// TLS and tokens are read as if they were of that server.
fn other_settings(config: &Config, state: &Path) -> Option<Check> {
    let socket = config.listen.as_deref()?.strip_prefix("unix:")?;
    let runs = UnixStream::connect(state.join(ADMIN_SOCKET)).is_ok();
    (runs && UnixStream::connect(socket).is_err()).then(|| {
        Check::note(
            "settings",
            "the server that runs here has others than those given to this command".to_owned(),
            "give the flags of its 'server start', such as --config and --listen: only what is given here is examined",
        )
    })
}

fn open_files(limit: Option<u64>) -> Check {
    let shown = limit.map_or_else(|| "unlimited".to_owned(), |limit| format!("up to {limit}"));
    match limit {
        Some(limit) if limit < FILES_ADVISED => {
            let advice =
                "each worker and client needs one: set LimitNOFILE=65536 in its unit, or 'ulimit -Hn 65536'";
            Check::note("open files", shown, advice)
        }
        _ => Check::ok("open files", shown),
    }
}

fn tls(config: &Config) -> Vec<Check> {
    const WHAT: &str = "TLS";
    let (Some(cert), Some(key)) = (&config.tls.cert, &config.tls.key) else {
        return vec![Check::ok(WHAT, "not in the settings given here".to_owned())];
    };
    if let Err(error) = windlass_server::server_config(&config.tls) {
        let advice = match &error {
            TlsError::File { .. } => "correct the path, or let the server's user read it",
            TlsError::Pair(_) => "give the key of this certificate; 'windlass ca issue' creates both",
            TlsError::ClientCa(_) => "give the certificate of a CA, such as ca.pem",
        };
        return vec![Check::missing(WHAT, in_one_line(error), advice)];
    }
    let mut checks = vec![match std::fs::metadata(key) {
        Ok(found) if found.mode() & 0o007 != 0 => Check::note(
            WHAT,
            format!("all users of this machine can read {}", key.display()),
            "make it private: run 'chmod o= FILE'",
        ),
        _ => Check::ok(WHAT, "certificate and key belong together".to_owned()),
    }];
    if let Some(Ok(der)) = CertificateDer::pem_file_iter(cert).ok().and_then(|mut all| all.next()) {
        checks.push(valid(&der, Timestamp::now()));
        checks.push(names(&der, config.listen.as_deref().unwrap_or_default()));
    }
    checks
}

fn valid(der: &CertificateDer<'_>, now: Timestamp) -> Check {
    const WHAT: &str = "certificate";
    const RENEW: &str = "issue another with 'windlass ca issue', and restart the server with it";
    let Some((from, until)) = validity(der) else {
        return Check::note(WHAT, "its validity cannot be read".to_owned(), "inspect it with openssl x509");
    };
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    if now < from {
        return Check::missing(WHAT, format!("not valid before {}", day(from)), "set this machine's clock");
    }
    if now > until {
        return Check::missing(WHAT, format!("it expired on {}", day(until)), RENEW);
    }
    let detail = format!("valid until {}", day(until));
    if until.duration_since(now) < EXPIRES_SOON {
        return Check::note(WHAT, detail, RENEW);
    }
    Check::ok(WHAT, detail)
}

/// Checks that the certificate has the name by which clients call the server.
fn names(der: &CertificateDer<'_>, listen: &str) -> Check {
    const WHAT: &str = "certificate's names";
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host).trim_matches(['[', ']']);
    let all = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    // For the unspecified address, the machine's own name is the best guess.
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = if all { own.as_str() } else { host };
    if certificate_names(der, name) {
        return Check::ok(WHAT, format!("the certificate names {name}"));
    }
    Check::note(
        WHAT,
        format!("the certificate does not name {name}"),
        "clients must use a name that it has; 'windlass ca issue DIR --server NAME,…' creates one with others",
    )
}

async fn listening(config: &Config) -> Check {
    const WHAT: &str = "address";
    let listen = config.listen.as_deref().unwrap_or_default();
    if let Some(path) = listen.strip_prefix("unix:") {
        return match UnixStream::connect(path) {
            Ok(_) => Check::ok(WHAT, format!("a server listens on {listen}")),
            Err(_) => {
                directory(WHAT, Path::new(path).parent().unwrap_or(Path::new("/")), "give another --listen")
            }
        };
    }
    if site::runs_all_as_root(config) {
        return Check::missing(WHAT, "all tasks would run as root".to_owned(), site::ALL_AS_ROOT);
    }
    let protection = match site::protection(config) {
        Ok(protection) => protection,
        Err(error) => return Check::missing(WHAT, format!("{error:#}"), "see TLS"),
    };
    match Listener::bind(listen, &protection) {
        Ok(_) => Check::ok(WHAT, format!("{listen} is free")),
        Err(ListenError::Taken(_)) => answers(config).await,
        Err(error) => {
            Check::missing(WHAT, in_one_line(error), "correct --listen, or the flags that go with it")
        }
    }
}

/// Checks whether a Windlass server listens there.
async fn answers(config: &Config) -> Check {
    const WHAT: &str = "address";
    let listen = config.listen.as_deref().unwrap_or_default();
    let here = listen.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:");
    let scheme = if config.tls.cert.is_some() { "https" } else { "http" };
    let address = Address::Http(format!("{scheme}://{here}"));
    let asked = match credentials(&address).map(|shown| Client::with(address, &shown)) {
        Ok(Ok(client)) => client.version().await,
        Ok(Err(error)) => Err(error),
        Err(error) => return Check::note(WHAT, error.message(), "correct --ca and --token-file"),
    };
    match asked {
        // A refusal is an answer of a server, too.
        Ok(_) | Err(ClientError::Refused(_)) => Check::ok(WHAT, format!("a server answers at {here}")),
        Err(error) => Check::note(
            WHAT,
            CliError::from(error).message(),
            "if another program listens there, give another --listen; if the certificate is refused, give --ca ca.pem \
             and let it name 127.0.0.1 too",
        ),
    }
}

/// Checks the store, and whether administrators have tokens.
async fn store(config: &Config, state: &Path) -> Vec<Check> {
    const WHAT: &str = "store";
    let default = state.join("windlass.db");
    let address = config.store.clone().unwrap_or_else(|| format!("sqlite:{}", default.display()));
    if let Some(path) = address.strip_prefix("sqlite:").map(Path::new) {
        let Ok(found) = std::fs::metadata(path) else {
            return vec![Check::ok(WHAT, format!("{}, created when needed", path.display()))];
        };
        if let Some(tokens) = ask_for_admins(state).await {
            return vec![Check::ok(WHAT, "a server has it open".to_owned()), admins(config, tokens)];
        }
        // Opening it creates files beside it, which the owner of the store could not use.
        if found.uid() != rustix::process::geteuid().as_raw() {
            let detail = format!("not checked: user {} owns {}", found.uid(), path.display());
            return vec![Check::note(WHAT, detail, "run this as that user, with 'sudo -u'")];
        }
    }
    match Store::connect(&address).await {
        Err(StoreError::InUse(_)) => vec![Check::ok(WHAT, "a server has it open".to_owned())],
        Err(error) => {
            vec![Check::missing(WHAT, in_one_line(error), "see 'When something is wrong' in the manual")]
        }
        Ok(Store::Memory(_)) => {
            vec![Check::note(
                WHAT,
                "memory".to_owned(),
                "nothing survives the server: give --store sqlite:PATH",
            )]
        }
        Ok(store) => {
            let mut checks = vec![Check::ok(WHAT, windlass_store::shown_address(&address))];
            checks.extend(database(&store, &address).await);
            let now = now_ms();
            match store.tokens().await {
                Ok(tokens) => {
                    let in_force = tokens.iter().filter(|token| {
                        token.revoked.is_none() && token.expires.is_none_or(|end| end.as_ms() > now)
                    });
                    let admin = in_force.filter(|token| token.role == Role::Admin.as_str());
                    checks.push(admins(config, admin.count()));
                }
                Err(error) => {
                    checks.push(Check::missing(WHAT, in_one_line(error), "restore it from a backup"));
                }
            }
            checks
        }
    }
}

/// Checks what several servers need of a database that they share.
async fn database(store: &Store, address: &str) -> Vec<Check> {
    if !matches!(store, Store::Postgres(_)) {
        return Vec::new();
    }
    let verified = "write sslmode=verify-full in the address; sslrootcert=FILE names the authority that signed the \
                    database's certificate";
    // An address that cannot be used was told before.
    let transport = weak_transport(windlass_store::weak_transport(address).ok().flatten(), verified);
    let lost = "its servers find each other's requests only by looking once a second: connect without a pooler, or by one \
                that keeps a session for each connection";
    let notices = match windlass_store::notices_arrive(store, NOTICE_PATIENCE).await {
        Ok(true) => Check::ok("notifications", "they arrive".to_owned()),
        Ok(false) => Check::note("notifications", "none arrives".to_owned(), lost),
        Err(error) => {
            Check::missing("notifications", in_one_line(error), "see the manual's page on PostgreSQL")
        }
    };
    let clock = match windlass_store::clock_ahead_ms(store).await {
        Ok(Some(ms)) if ms.unsigned_abs() > CLOCKS_AGREE_MS => {
            let apart =
                format!("the database's clock is {} s away from this machine's", ms.unsigned_abs() / 1000);
            Check::note(
                "database's clock",
                apart,
                "set both by NTP; leases go by the database's clock, times of tasks by this one",
            )
        }
        Ok(_) => Check::ok("database's clock", "it agrees with this machine's".to_owned()),
        Err(error) => {
            Check::missing("database's clock", in_one_line(error), "see the manual's page on PostgreSQL")
        }
    };
    vec![transport, notices, clock]
}

/// How many valid tokens of administrators a running server has; `None` if none runs or it refuses the request.
async fn ask_for_admins(state: &Path) -> Option<usize> {
    let client = Client::new(Address::Unix(state.join(ADMIN_SOCKET))).ok()?;
    let (tokens, now) = (client.tokens().await.ok()?, now_ms());
    let in_force = tokens
        .iter()
        .filter(|token| token.revoked_ms.is_none() && token.expires_ms.is_none_or(|end| end > now));
    Some(in_force.filter(|token| token.role == Role::Admin).count())
}

fn admins(config: &Config, tokens: usize) -> Check {
    const WHAT: &str = "administrators";
    let over_tcp = config.listen.as_ref().is_some_and(|listen| !listen.starts_with("unix:"));
    match (over_tcp && !config.auth.trust_this_machine, tokens) {
        (false, _) => {
            Check::ok(WHAT, "all clients: with the settings given here no tokens are asked for".to_owned())
        }
        (true, 0) => Check::note(
            WHAT,
            format!("none has a token; they can only connect to {ADMIN_SOCKET}"),
            "'windlass token create --role admin' on this machine creates one for others",
        ),
        (true, _) => Check::ok(WHAT, crate::ui::output::count(tokens as u64, "token")),
    }
}

fn in_one_line(error: impl Into<anyhow::Error>) -> String {
    CliError::Other(error.into()).message()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn made(names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(2031, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_certificate_is_told_of_before_it_ends() {
        let der = made(&["farm.example"]);
        let at = |day: &str| valid(&der, format!("{day}T12:00:00Z").parse().unwrap());
        assert_eq!(at("2029-12-31").state, "missing");
        assert_eq!(at("2030-06-01").state, "ok");
        assert_eq!(at("2030-12-20").state, "note");
        let ended = at("2031-02-01");
        assert_eq!(ended.state, "missing");
        assert!(ended.detail.contains("2031-01-01"), "{}", ended.detail);
        assert_eq!(valid(&CertificateDer::from(vec![1]), Timestamp::now()).state, "note");
    }

    #[test]
    fn a_certificate_names_the_host_that_is_listened_on() {
        let der = made(&["farm.example", "10.0.0.1", "::1"]);
        for listen in ["farm.example:7117", "10.0.0.1:7117", "[::1]:7117"] {
            assert_eq!(names(&der, listen).state, "ok", "{listen}");
        }
        assert_eq!(names(&der, "10.0.0.2:7117").state, "note");
        assert_eq!(names(&der, "0.0.0.0:7117").state, "note");
    }

    #[test]
    fn few_open_files_are_told() {
        assert_eq!(open_files(Some(1024)).state, "note");
        assert_eq!(open_files(Some(65_536)).state, "ok");
        assert_eq!(open_files(None).state, "ok");
    }

    #[test]
    fn a_server_without_an_administrator_s_token_is_told() {
        let mut config = Config::default();
        assert_eq!(admins(&config, 0).state, "ok");
        config.listen = Some("127.0.0.1:7117".to_owned());
        assert_eq!((admins(&config, 0).state, admins(&config, 1).state), ("note", "ok"));
    }
}
