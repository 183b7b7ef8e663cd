//! `windlass scheduler`: the servers that share a database, and which of them owns the farm.

use crate::client::context::Context;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::print_list;
use crate::ui::quantity::elapsed;
use crate::ui::table::{Cell, Column, Grid};
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
            print_list(context.format, &servers, |server| server.name.clone(), servers_grid)
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

/// The table of servers.
pub fn servers_grid(servers: &[FarmServer]) -> Grid {
    let duration = |ms: u64| Cell::figure(elapsed(ms), ms as f64);
    let row = |server: &FarmServer| {
        let since = server.owns.as_ref().and_then(|owned| owned.since_ms);
        vec![
            server.name.as_str().into(),
            state(server).into(),
            since.map(duration).into(),
            duration(server.up_ms),
            server.release.as_str().into(),
            server.addresses.first().map(String::as_str).into(),
        ]
    };
    Grid {
        columns: vec![
            Column::text("NAME", 0, 10),
            Column::text("STATE", 1, 13),
            Column::whole("OWNS FOR", 3),
            Column::whole("UP", 4),
            Column::text("RELEASE", 5, 7),
            Column::text("ADDRESS", 2, 16),
        ],
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
