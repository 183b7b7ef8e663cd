//! Checks of a machine as a worker of a farm.

use super::check::{Check, directory, free_space};
use crate::client::context::Context;
use crate::client::credentials::credentials;
use crate::node::remote::StartArgs;
use crate::ui::error::{CliError, UNREACHABLE};
use anyhow::Context as _;
use windlass_api::client::{Address, Client, Credentials};
use windlass_api::{Addresses, Role, Version};
use windlass_worker::Examined;

/// Checks the flags with which the worker would be started, the machine, and the connection to its server.
pub async fn checks(context: &Context, args: &StartArgs) -> Result<Vec<Check>, CliError> {
    let state = args.state()?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = windlass_worker::expected_name(&state, args.name.clone(), Some(host));
    let mut checks = vec![Check::ok("name", name.clone())];
    checks.extend(servers(context.server.as_ref(), &name).await);
    checks.push(directory("state directory", &state, "give another --state"));
    checks.push(free_space(&state));
    let examined = Examined {
        state,
        program: std::env::current_exe().context("cannot find this program")?,
        users: args.map_user.clone(),
        as_root: args.as_root,
        cpus: args.cpus,
        gpus: args.asked_gpus(),
    };
    checks.extend(windlass_worker::doctor_worker(&examined).into_iter().map(Check::from));
    Ok(checks)
}

/// Checks each server of the worker's farm: any of them may take over.
async fn servers(named: Option<&Addresses>, name: &str) -> Vec<Check> {
    let mut checks = Vec::new();
    for address in named.into_iter().flat_map(Addresses::iter) {
        checks.extend(server(Some(address), name).await);
    }
    if checks.is_empty() { server(None, name).await } else { checks }
}

/// Checks that the server can be reached and accepts this worker.
async fn server(address: Option<&Address>, name: &str) -> Vec<Check> {
    const WHAT: &str = "server";
    let url = match address {
        Some(Address::Http(url)) => url,
        Some(Address::Unix(_)) | None => {
            let advice = "give --server HOST:PORT, or set WINDLASS_SERVER";
            return vec![Check::missing(WHAT, "a worker reaches its server over TCP".to_owned(), advice)];
        }
    };
    let shown = match credentials(&Address::Http(url.clone())) {
        Ok(shown) => shown,
        Err(error) => {
            let advice = "correct --ca, --token-file, WINDLASS_CERT or WINDLASS_KEY";
            return vec![Check::missing("credentials", error.message(), advice)];
        }
    };
    if url.starts_with("https:") && shown.ca.is_none() {
        let advice = "give --ca FILE, or set WINDLASS_CA: the ca.pem of the farm's CA";
        return vec![Check::missing(WHAT, "https needs a CA certificate".to_owned(), advice)];
    }
    match version(url, &shown).await {
        Ok(version) => vec![compare(url, &version), token(&version, name)],
        Err(error) => vec![explain(&error)],
    }
}

async fn version(url: &str, shown: &Credentials) -> Result<Version, CliError> {
    Ok(Client::with(Address::Http(url.to_owned()), shown)?.version().await?)
}

fn compare(url: &str, server: &Version) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    if server.version == own {
        return Check::ok("server", format!("{url} answers, version {own}"));
    }
    let detail = format!("{url} answers, version {}; this is {own}", server.version);
    Check::note("server", detail, "both versions work together; upgrade the older one when convenient")
}

/// Checks that the token is a token of this worker.
fn token(server: &Version, name: &str) -> Check {
    const WHAT: &str = "token";
    let advice =
        format!("an administrator creates one: 'windlass token create --role worker --worker {name}'");
    match (server.role, &server.worker) {
        (None, _) => Check::ok(WHAT, "the server asks for none".to_owned()),
        (Some(Role::Worker), Some(worker)) if worker == name => {
            Check::ok(WHAT, format!("speaks for worker '{name}'"))
        }
        (Some(Role::Worker), Some(worker)) => Check::missing(
            WHAT,
            format!("speaks for worker '{worker}', and this one is '{name}'"),
            &format!("give --name {worker}, or another token; {advice}"),
        ),
        (Some(Role::Admin), _) => Check::note(
            WHAT,
            "an administrator's: anyone who reads it here may do everything".to_owned(),
            &advice,
        ),
        (Some(role), _) => {
            Check::missing(WHAT, format!("of the role {}, which is not for workers", role.as_str()), &advice)
        }
    }
}

/// The server's refusal, or why it cannot be reached, with advice.
fn explain(error: &CliError) -> Check {
    let message = error.message();
    let what = if error.exit_code() == UNREACHABLE { "server" } else { "token" };
    let advice = error.hint().filter(|_| what == "token").or_else(|| cure(&message).map(str::to_owned));
    let advice = advice.unwrap_or_else(|| {
        "check that it runs ('windlass server status' there), its address, and the network between".to_owned()
    });
    Check::missing(what, message, &advice)
}

/// Advice for the known ways in which a connection fails.
fn cure(message: &str) -> Option<&'static str> {
    const AUTHORITY: &str = "another CA signed its certificate: give the ca.pem of that CA";
    const CURES: [(&str, &str); 9] = [
        // All CAs of 'windlass ca' have the same name, so a certificate of another fails by its signature.
        ("BadSignature", AUTHORITY),
        ("UnknownIssuer", AUTHORITY),
        (
            "NotValidForName",
            "its certificate has other names: use one of them, or issue another with 'windlass ca issue'",
        ),
        (
            "Expired",
            "its certificate has expired: issue another with 'windlass ca issue', and restart the server",
        ),
        ("NotValidYet", "one of the two clocks is wrong: set it"),
        ("CertificateRequired", "it asks for this worker's certificate: set WINDLASS_CERT and WINDLASS_KEY"),
        (
            "InvalidContentType",
            "it does not speak TLS: write http://HOST:PORT, or give the server a certificate",
        ),
        ("Connection refused", "no server listens there: start it, or correct the port"),
        ("failed to lookup", "this machine cannot resolve the host name: correct it, or the machine's DNS"),
    ];
    CURES.iter().find(|(sign, _)| message.contains(sign)).map(|(_, cure)| *cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known_as(role: Option<Role>, worker: Option<&str>) -> Version {
        Version {
            name: "windlass".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store: String::new(),
            pid: 1,
            user: None,
            role,
            worker: worker.map(str::to_owned),
        }
    }

    #[test]
    fn a_token_speaks_for_one_worker() {
        let state = |role, worker| token(&known_as(role, worker), "box1").state;
        assert_eq!(state(None, None), "ok");
        assert_eq!(state(Some(Role::Worker), Some("box1")), "ok");
        assert_eq!(state(Some(Role::Worker), Some("box2")), "missing");
        assert_eq!(state(Some(Role::Admin), None), "note");
        assert_eq!(state(Some(Role::User), None), "missing");
    }

    #[test]
    fn versions_may_differ() {
        assert_eq!(compare("u", &known_as(None, None)).state, "ok");
        let other = Version { version: "0.0.0".to_owned(), ..known_as(None, None) };
        assert_eq!(compare("u", &other).state, "note");
    }
}
