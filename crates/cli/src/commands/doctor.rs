//! `windlass doctor`: checks whether this machine has what Windlass needs, and advises what to do.

mod certificate;
mod nix;
mod opencue;
mod sccache;
mod server;
mod worker;

use crate::client::connect::connect_running;
use crate::client::context::Context;
use crate::commands::gateway::{OpencueArgs, SccacheArgs};
use crate::node::paths::Paths;
use crate::node::remote::StartArgs;
use crate::node::serve::ServeOptions;
use crate::ui::error::{CliError, FAILED, UNREACHABLE, end_with};
use crate::ui::message::message;
use crate::ui::output::{Grid, print_list};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use windlass_api::Addresses;
use windlass_core::resources::Bytes;
use windlass_worker::Finding;

/// With less free space than this, a burst of output may fill the disk.
const FREE_BYTES_MIN: u64 = 256 << 20;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DoctorArgs {
    #[command(subcommand)]
    role: Option<Role>,
}

/// The machine's role on a farm, with the flags of its start command.
#[derive(Subcommand, Debug)]
enum Role {
    /// Diagnose this machine as a worker of a farm; takes the flags of 'worker start'
    Worker(Box<StartArgs>),
    /// Diagnose this machine as the server of a farm; takes the flags of 'server start'
    Server(Box<ServeOptions>),
    /// Diagnose this machine as a scheduler of sccache; takes the flags of 'gateway sccache'
    Sccache(Box<SccacheArgs>),
    /// Diagnose an OpenCue farm: its database and its Windlass server; takes the flags of 'gateway opencue'
    Opencue(Box<OpencueArgs>),
    /// Diagnose this machine as a client of Nix whose build hook is 'windlass nix-hook'
    Nix,
}

/// The result of one check.
#[derive(Serialize)]
struct Check {
    what: String,
    /// `ok`, `note` where something works less well, `missing` where something needed does not work.
    state: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// Runs the command `windlass doctor`.
pub async fn doctor(context: &Context, args: DoctorArgs) -> Result<(), CliError> {
    let checks = match args.role {
        None => own(context).await,
        Some(Role::Worker(args)) => worker::checks(context, &args).await?,
        Some(Role::Server(options)) => server::checks(*options).await,
        Some(Role::Sccache(args)) => sccache::checks(context, &args).await,
        Some(Role::Opencue(args)) => opencue::checks(&args).await,
        Some(Role::Nix) => nix::checks(context).await,
    };
    show(context, &checks)
}

/// Checks for a user whose server is started by the client.
async fn own(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    match Paths::for_user() {
        Ok(paths) => {
            checks.push(directory("state directory", &paths.state, "set XDG_STATE_HOME to one that is"));
            checks.push(free_space(&paths.state));
            if let Some(runtime) = paths.socket.parent() {
                checks.push(directory("runtime directory", runtime, "set XDG_RUNTIME_DIR to one that is"));
            }
        }
        Err(error) => checks.push(Check::missing(
            "directories",
            format!("{error:#}"),
            "set HOME, or XDG_STATE_HOME and XDG_RUNTIME_DIR",
        )),
    }
    // Each of several, because any may have to take over.
    match context.server.as_ref().filter(|named| named.only().is_none()) {
        None => checks.push(server(context.server.as_ref()).await),
        Some(several) => {
            for address in several.iter() {
                let check = server(Some(&address.clone().into())).await;
                checks.push(Check { detail: format!("{address}: {}", check.detail), ..check });
            }
        }
    }
    checks.extend(windlass_worker::doctor().into_iter().map(Check::from));
    checks
}

fn show(context: &Context, checks: &[Check]) -> Result<(), CliError> {
    print_list(
        context.format,
        checks,
        |check| format!("{} {}", check.state, check.what),
        |checks| {
            let row = |check: &Check| vec![check.what.clone(), check.state.to_owned(), check.detail.clone()];
            let rows = checks.iter().map(row).collect();
            Grid { header: &["CHECK", "STATE", "DETAIL"], rows, empty: "nothing was checked" }
        },
    )?;
    for check in checks {
        if let (Some(advice), false) = (&check.advice, context.format.is_json()) {
            message!("{}: {advice}", check.what);
        }
    }
    end_with(if checks.iter().any(|check| check.state == "missing") { FAILED } else { 0 })
}

impl From<Finding> for Check {
    fn from(finding: Finding) -> Self {
        let Finding { ok, needed, what, detail, advice } = finding;
        let state = match (ok, needed) {
            (true, _) => "ok",
            // A worker runs without it, with weaker guarantees.
            (false, false) => "note",
            (false, true) => "missing",
        };
        Check { what, state, detail, advice }
    }
}

impl Check {
    fn ok(what: &str, detail: String) -> Self {
        Check { what: what.to_owned(), state: "ok", detail, advice: None }
    }

    fn note(what: &str, detail: String, advice: &str) -> Self {
        Check { what: what.to_owned(), state: "note", detail, advice: Some(advice.to_owned()) }
    }

    fn missing(what: &str, detail: String, advice: &str) -> Self {
        Check { what: what.to_owned(), state: "missing", detail, advice: Some(advice.to_owned()) }
    }
}

/// How the way to a database is protected. `weakness` is what it allows.
fn weak_transport(weakness: Option<&str>, advice: &str) -> Check {
    const WHAT: &str = "way to the database";
    match weakness {
        Some(weakness) => Check::note(WHAT, weakness.to_owned(), advice),
        None => Check::ok(WHAT, "on this machine, or with TLS and a name that is checked".to_owned()),
    }
}

async fn server(named: Option<&Addresses>) -> Check {
    let version = match connect_running(named).await {
        Ok(client) => client.version().await.map_err(|source| CliError::Request {
            doing: "ask the server for its version".to_owned(),
            source,
        }),
        Err(error) => Err(error),
    };
    let own = env!("CARGO_PKG_VERSION");
    match version {
        Ok(server) if server.version == own => {
            Check::ok("server", format!("version {own}, process {}", server.pid))
        }
        Ok(server) => Check::note(
            "server",
            format!("version {}; this client is {own}", server.version),
            "run 'windlass server stop'; the next command starts one of this version",
        ),
        Err(error) if error.exit_code() == UNREACHABLE && named.is_none() => {
            Check::ok("server", "not running; it is started when needed".to_owned())
        }
        Err(error) => Check::missing("server", error.message(), "start it, or correct --server"),
    }
}

/// Whether files can be created there, without creating any. A missing directory is judged by its nearest existing
/// ancestor.
fn directory(what: &str, path: &Path, advice: &str) -> Check {
    let shown = path.display();
    let nearest = nearest(path);
    if !nearest.is_dir() {
        return Check::missing(what, format!("{} is not a directory", nearest.display()), advice);
    }
    match writable(nearest) {
        Ok(()) if nearest == path => Check::ok(what, shown.to_string()),
        Ok(()) => Check::ok(what, format!("{shown}, created when needed")),
        Err(error) => {
            let advice = format!("make {} writable, or {advice}", nearest.display());
            Check::missing(what, format!("{shown}: {error}"), &advice)
        }
    }
}

fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"))
}

fn free_space(path: &Path) -> Check {
    const WHAT: &str = "free space";
    let nearest = nearest(path);
    match free_bytes(nearest) {
        Ok(free) if free < FREE_BYTES_MIN => Check::missing(
            WHAT,
            format!("{} for {}", Bytes(free), path.display()),
            "free some space: jobs and output are kept there for 14 days",
        ),
        Ok(free) => Check::ok(WHAT, Bytes(free).to_string()),
        Err(error) => Check::note(WHAT, format!("unknown: {error}"), "see 'df'"),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn writable(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a string that ends with NUL and outlives the call.
    match unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = c_path(path)?;
    // SAFETY: all of its fields are integers, for which zero is a valid value.
    let mut stats: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with NUL, and `stats` is a local statvfs.
    match unsafe { libc::statvfs(path.as_ptr(), &raw mut stats) } {
        0 => Ok(stats.f_bavail.saturating_mul(stats.f_frsize)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_judged_by_the_one_above() {
        let here = std::env::temp_dir();
        assert_eq!(nearest(&here.join("windlass-absent/deep")), here);
        assert_eq!(directory("x", &here.join("windlass-absent"), "y").state, "ok");
        assert_eq!(directory("x", Path::new("/proc/self/cmdline/below"), "y").state, "missing");
    }

    #[test]
    fn free_space_is_a_number() {
        assert!(free_bytes(Path::new("/")).is_ok());
        assert!(free_bytes(Path::new("/nonexistent")).is_err());
    }
}
