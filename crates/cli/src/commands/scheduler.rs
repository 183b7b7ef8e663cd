//! `windlass scheduler`: the servers that share a database, and which of them owns the farm.

use crate::client::context::Context;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::{Grid, or_dash, print_list};
use crate::ui::quantity::elapsed;
use clap::{Args, Subcommand};
use windlass_api::FarmServer;

/// A server that was silent for this long is probably gone.
const SILENT_MS_MAX: u64 = 6_000;

/// Shows and drains servers that share a database.
#[derive(Subcommand, Debug)]
pub enum SchedulerCommand {
    /// List the servers of the farm, and which of them owns it
    List,
    /// Make a server give the farm up to another one, and take it no more (administrators)
    Drain(NameArgs),
    /// Let a drained server own the farm again (administrators)
    Resume(NameArgs),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    /// The server's name, as in 'scheduler list'
    #[arg(value_name = "NAME")]
    name: String,
}

/// Runs the command `windlass scheduler …`.
pub async fn command(context: &Context, command: SchedulerCommand) -> Result<(), CliError> {
    let client = context.client().await?;
    match command {
        SchedulerCommand::List => {
            let servers = client.farm_servers().await.doing("list the servers")?;
            print_list(context.format, &servers, |server| server.name.clone(), grid)
        }
        SchedulerCommand::Drain(NameArgs { name }) => {
            client.act_on_server(&name, "drain").await.doing(format_args!("drain server {name}"))?;
            message!("server {name} gives the farm up as soon as another one can take it");
            Ok(())
        }
        SchedulerCommand::Resume(NameArgs { name }) => {
            client.act_on_server(&name, "resume").await.doing(format_args!("resume server {name}"))?;
            message!("server {name} may own the farm again");
            Ok(())
        }
    }
}

fn grid(servers: &[FarmServer]) -> Grid {
    let row = |server: &FarmServer| {
        let since = server.owns.as_ref().and_then(|owned| owned.since_ms);
        vec![
            server.name.clone(),
            state(server),
            or_dash(since.map(elapsed)),
            elapsed(server.up_ms),
            server.release.clone(),
            or_dash(server.addresses.first().cloned()),
        ]
    };
    Grid {
        header: &["NAME", "STATE", "OWNS FOR", "UP", "RELEASE", "ADDRESS"],
        rows: servers.iter().map(row).collect(),
        empty: "one server has this farm, with a store of its own",
    }
}

fn state(server: &FarmServer) -> String {
    let does = if server.owns.is_some() { "owns the farm" } else { "stands by" };
    let silent = server.silent_ms > SILENT_MS_MAX;
    match (silent, server.draining) {
        (true, _) => format!("{does}, silent for {}", elapsed(server.silent_ms)),
        (false, true) => format!("{does}, drained"),
        (false, false) => does.to_owned(),
    }
}
