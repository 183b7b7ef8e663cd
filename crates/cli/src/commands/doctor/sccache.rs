//! Checks of a machine as the scheduler of sccache.

use super::check::Check;
use crate::client::context::Context;
use crate::commands::gateway::SccacheArgs;
use crate::node::gateways::sccache_settings;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use windlass_core::worker::Origin;
use windlass_gateway_sccache::config::{ClientAuth, SchedulerConfig, ServerAuth};

/// How long a build server or a scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Build servers that are tried.
const SERVERS_MAX: usize = 200;

/// Checks the settings, the address, and whether build servers can be reached.
pub async fn checks(context: &Context, args: &SccacheArgs) -> Vec<Check> {
    let config = match sccache_settings(&args.config) {
        Ok(config) => config,
        Err(error) => {
            let advice = "give the file that 'sccache-dist scheduler --config' takes";
            return vec![Check::missing("settings", format!("{error:#}"), advice)];
        }
    };
    let mut checks = vec![Check::ok("settings", args.config.display().to_string())];
    checks.extend(secrecy(args, &config));
    checks.extend(tokens(&config));
    let (check, runs) = address(config.public_addr).await;
    checks.push(check);
    if runs {
        checks.push(servers(context).await);
    }
    checks
}

/// The file has tokens.
fn secrecy(args: &SccacheArgs, config: &SchedulerConfig) -> Option<Check> {
    let secret =
        !matches!((&config.client_auth, &config.server_auth), (ClientAuth::Insecure, ServerAuth::Insecure));
    let open = std::fs::metadata(&args.config).is_ok_and(|file| file.mode() & 0o077 != 0);
    let what = "the file has secrets, and others on this machine may read it".to_owned();
    (secret && open).then(|| Check::note("secrecy", what, "chmod 600 it"))
}

fn tokens(config: &SchedulerConfig) -> Vec<Check> {
    let advice = "set a token: 'sccache-dist auth generate-shared-token' makes one";
    let clients = match &config.client_auth {
        ClientAuth::Insecure => Check::note("clients", "everybody is let in".to_owned(), advice),
        known => Check::ok("clients", format!("let in by {known:?}")),
    };
    let servers = match &config.server_auth {
        ServerAuth::Insecure => Check::note("build servers", "everybody may be one".to_owned(), advice),
        known => Check::ok("build servers", format!("let in by {known:?}")),
    };
    vec![clients, servers]
}

/// Whether something listens at the scheduler's address, and whether that is a scheduler.
async fn address(address: SocketAddr) -> (Check, bool) {
    const WHAT: &str = "address";
    if TcpListener::bind(address).await.is_ok() {
        return (Check::ok(WHAT, format!("{address} is free: no scheduler runs here")), false);
    }
    match windlass_gateway_sccache::probe(address).await {
        Ok(status) => {
            let said = format!(
                "a scheduler runs at {address}: {} build servers, {} cpus, {} compiles",
                status.num_servers, status.num_cpus, status.in_progress
            );
            let advice = "build servers come within 30 s; see their log, and 'scheduler_url' and the token in their settings";
            let check = match status.num_servers {
                0 => Check::note(WHAT, said, advice),
                _ => Check::ok(WHAT, said),
            };
            (check, true)
        }
        Err(error) => {
            let advice = "stop what listens there, or change public_addr";
            (
                Check::missing(
                    WHAT,
                    format!("{address} cannot be used, and does not answer as a scheduler: {error}"),
                    advice,
                ),
                false,
            )
        }
    }
}

/// Whether this machine reaches the build servers that the running server knows.
async fn servers(context: &Context) -> Check {
    const WHAT: &str = "reach";
    let workers = match context.client().await {
        Ok(client) => client.workers(false).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let workers = match workers {
        Ok(workers) => workers,
        Err(why) => {
            let advice = "give --server, or --state of the scheduler's server as WINDLASS_STATE";
            return Check::note(WHAT, format!("cannot ask which build servers there are: {why}"), advice);
        }
    };
    let addresses = workers.iter().filter_map(|worker| Origin::Sccache.own_name(&worker.name));
    let known = addresses.filter_map(|address| address.parse::<SocketAddr>().ok());
    let known: Vec<SocketAddr> = known.take(SERVERS_MAX).collect();
    if known.is_empty() {
        let what = "the server that was asked knows no build servers".to_owned();
        return Check::note(WHAT, what, "give --server of the scheduler's own server");
    }
    let mut unreached = Vec::new();
    for server in &known {
        if !matches!(tokio::time::timeout(PATIENCE, TcpStream::connect(server)).await, Ok(Ok(_))) {
            unreached.push(server.to_string());
        }
    }
    if unreached.is_empty() {
        return Check::ok(WHAT, format!("all {} build servers are reached", known.len()));
    }
    let advice = "a build server must be reached by this machine and by its clients at the public_addr of its settings";
    Check::missing(WHAT, format!("not reached: {}", unreached.join(", ")), advice)
}
