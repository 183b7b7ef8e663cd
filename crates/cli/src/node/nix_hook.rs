//! `windlass nix-hook`: the program that Nix runs in the place of its own build hook.

use crate::client::connect::client_of;
use crate::client::credentials::{self, CredentialFlags};
use crate::client::user::user_name;
use crate::node::paths::Paths;
use crate::node::{machine_server, own};
use clap::{Args, Parser};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_api::Addresses;
use windlass_api::client::{Address, Client};
use windlass_gateway_nix::hook::{self, CONNECT_MAX, HookOptions, IN_FLIGHT_MAX};

/// The name under which this program is a build hook without arguments, for Nix before 2.11.
const NAME: &str = "windlass-nix-hook";

/// Flags of the command `nix-hook`.
#[derive(Args, Clone, Debug)]
pub struct NixHookArgs {
    /// Most builds of one run of Nix that may wait or run; 200 if its limit on open files allows
    #[arg(long, env = "WINDLASS_NIX_BUILDS_MAX", value_name = "N", default_value_t = IN_FLIGHT_MAX, hide_default_value = true)]
    builds_max: usize,
    /// Time that connecting a machine may take: 10s, or seconds [default: 5]
    #[arg(long, env = "WINDLASS_NIX_CONNECT_MAX", value_name = "TIME", value_parser = windlass_api::quantity::parse_seconds)]
    connect_max: Option<f64>,
    /// Nix's own build hook [default: the Nix that runs this one]
    #[arg(long, env = "WINDLASS_NIX_BUILD_REMOTE", value_name = "FILE")]
    build_remote: Option<PathBuf>,
    /// The verbosity, which Nix adds
    #[arg(value_name = "VERBOSITY")]
    verbosity: Option<OsString>,
}

/// The hook as a program of its own: only the flags that it has.
#[derive(Parser)]
#[command(name = NAME)]
struct Alone {
    #[arg(long, env = "WINDLASS_SERVER")]
    server: Option<String>,
    #[command(flatten)]
    credentials: CredentialFlags,
    #[command(flatten)]
    hook: NixHookArgs,
}

/// Runs the hook if this process is one; then the result is its exit code. Nix waits for its answer, so nothing else of the
/// program is set up before.
pub fn run_if_asked() -> Option<i32> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    let by_name = Path::new(&program).file_name() == Some(OsStr::new(NAME));
    let mut words: Vec<OsString> = words.collect();
    if !by_name {
        if words.first().is_none_or(|word| word != "nix-hook")
            || words.iter().any(|word| word == "--help" || word == "-h")
        {
            return None;
        }
        words.remove(0);
    }
    let verbosity = words.last().cloned();
    let parsed = Alone::try_parse_from(std::iter::once(OsString::from(NAME)).chain(words));
    let (args, client) = match parsed {
        Ok(Alone { server, credentials, hook }) => {
            credentials::set(credentials);
            (hook, client(server.as_deref()))
        }
        // A flag that is none must not fail the whole run of Nix.
        Err(error) => {
            let why = error.to_string().lines().next().unwrap_or_default().to_owned();
            let none =
                NixHookArgs { builds_max: IN_FLIGHT_MAX, connect_max: None, build_remote: None, verbosity };
            (none, Err(why))
        }
    };
    Some(hook::run(HookOptions {
        client,
        user: Some(user_name()),
        stock: args.build_remote,
        in_flight_max: args.builds_max,
        connect_max: args.connect_max.map_or(CONNECT_MAX, Duration::from_secs_f64),
        verbosity: args.verbosity.unwrap_or_else(|| "0".into()),
    }))
}

/// The named servers, else the machine's if it lets this user in, else this user's own if it runs. The hook starts none, and
/// waits for none: Nix does nothing else until it has the answer.
pub fn client(server: Option<&str>) -> Result<Client, String> {
    let addresses = match server.filter(|server| !server.is_empty() && !own::is_own_named(server)) {
        Some(server) => Addresses::parse(server).map_err(|e| e.to_string())?,
        None => Address::Unix(socket()?).into(),
    };
    client_of(&addresses).map_err(|e| e.message())
}

fn socket() -> Result<PathBuf, String> {
    if let Some(socket) = machine_server::socket_at_once() {
        return Ok(socket);
    }
    let paths = Paths::for_user().map_err(|e| e.to_string())?;
    if !paths.socket.exists() {
        return Err("no server is named, and none of this machine or of this user runs".to_owned());
    }
    paths.check().map_err(|e| e.to_string())?;
    Ok(paths.socket)
}
