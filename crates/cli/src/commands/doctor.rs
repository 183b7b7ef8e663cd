//! `windlass doctor`: checks whether this machine has what Windlass needs, and advises what to do.

mod cas;
mod certificate;
mod check;
mod nix;
mod opencue;
mod sccache;
mod server;
mod worker;

use crate::client::connect::connect_running;
use crate::client::context::Context;
use crate::commands::gateway::{OpencueFarmArgs, SccacheArgs};
use crate::node::paths::Paths;
use crate::node::remote::StartArgs;
use crate::node::serve::ServeOptions;
use crate::ui::error::{CliError, FAILED, UNREACHABLE, end_with};
use crate::ui::message::message;
use crate::ui::output::print_list;
use crate::ui::table::{Cell, Column, Grid};
use check::{Check, directory, free_space};
use clap::{Args, Subcommand};
use windlass_api::Addresses;

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
    /// Diagnose the store of files and the remote cache of a server; takes the flags of 'server start'
    Cas(Box<ServeOptions>),
    /// Diagnose this machine as a scheduler of sccache; takes the flags of 'gateway sccache'
    Sccache(Box<SccacheArgs>),
    /// Diagnose an OpenCue farm: its database and its Windlass server; takes the flags of 'gateway
    /// opencue' that say which part of the farm is scheduled
    Opencue(Box<OpencueFarmArgs>),
    /// Diagnose this machine as a client of Nix whose build hook is 'windlass nix-hook'
    Nix,
}

/// Runs the command `windlass doctor`.
pub async fn doctor(context: &Context, args: DoctorArgs) -> Result<(), CliError> {
    let checks = match args.role {
        None => own(context).await,
        Some(Role::Worker(args)) => worker::checks(context, &args).await?,
        Some(Role::Server(options)) => server::checks(*options).await,
        Some(Role::Cas(options)) => cas::checks(context, *options).await,
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
    print_list(context.format, checks, |check| format!("{} {}", check.state, check.what), checks_grid)?;
    for check in checks {
        if let (Some(advice), false) = (&check.advice, context.format.is_json()) {
            message!("{}: {advice}", check.what);
        }
    }
    end_with(if checks.iter().any(|check| check.state == "missing") { FAILED } else { 0 })
}

/// The table of checks, whose details are sentences.
fn checks_grid(checks: &[Check]) -> Grid {
    let row = |check: &Check| -> Vec<Cell> {
        vec![check.what.as_str().into(), check.state.into(), check.detail.as_str().into()]
    };
    Grid {
        columns: vec![
            Column::whole("CHECK", 0),
            Column::whole("STATE", 0),
            Column::text("DETAIL", 0, 20).folded(),
        ],
        rows: checks.iter().map(row).collect(),
        empty: "nothing was checked",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::tables::fits;

    #[test]
    fn details_are_told_whole_at_any_width() {
        let detail = "cgroups v2 are mounted at /sys/fs/cgroup, and the controllers cpu, memory and pids are there \
                      for the groups that this program makes";
        let grid = checks_grid(&[
            Check::ok("control groups", detail.to_owned()),
            Check::note("disk", "full".to_owned(), ""),
        ]);
        for text in fits("doctor", |room| grid.render(room)) {
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(detail.split_whitespace().all(|word| words.contains(&word)), "{text}");
        }
    }
}
