//! `windlass scheduler`: the servers that share a database, and which of them owns the farm.

use crate::Context;
use crate::ui::error::{CliError, Doing};
use crate::ui::output::{Grid, or_dash, print_list, talk};
use crate::ui::quantity::elapsed;
use clap::{Args, Subcommand};
use windlass_api::{FarmServer, OwnedShard};

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

/// A server.
#[derive(Args, Debug)]
pub struct NameArgs {
    /// The server's name, as in 'scheduler list'
    #[arg(value_name = "NAME")]
    name: String,
}

/// `windlass scheduler …`.
pub async fn command(context: &Context, command: SchedulerCommand) -> Result<(), CliError> {
    let client = context.client().await?;
    match command {
        SchedulerCommand::List => {
            let servers = client.farm_servers().await.doing("list the servers")?;
            print_list(context.format, &servers, |server| server.name.clone(), grid)
        }
        SchedulerCommand::Drain(NameArgs { name }) => {
            client.act_on_server(&name, "drain").await.doing(format_args!("drain server {name}"))?;
            talk!("server {name} gives the farm up as soon as another one can take it");
            Ok(())
        }
        SchedulerCommand::Resume(NameArgs { name }) => {
            client.act_on_server(&name, "resume").await.doing(format_args!("resume server {name}"))?;
            talk!("server {name} may own the farm again");
            Ok(())
        }
    }
}

fn grid(servers: &[FarmServer]) -> Grid {
    let shards = servers.iter().flat_map(|server| &server.shards).map(|shard| shard.shard);
    let is_divided = shards.max().is_some_and(|last| last > 1);
    let row = |server: &FarmServer| {
        let since = server.shards.iter().filter_map(|shard| shard.since_ms).max();
        vec![
            server.name.clone(),
            state(server, is_divided),
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

fn state(server: &FarmServer, is_divided: bool) -> String {
    let does = match server.shards.is_empty() {
        true => "stands by".to_owned(),
        false if is_divided => owned(&server.shards),
        false => "owns the farm".to_owned(),
    };
    let silent = server.silent_ms > SILENT_MS_MAX;
    let does = match (silent, server.draining) {
        (true, _) => format!("{does}, silent for {}", elapsed(server.silent_ms)),
        (false, true) => format!("{does}, drained"),
        (false, false) => does,
    };
    does + &share(server)
}

/// Which shards the server is to have, where an administrator set that.
fn share(server: &FarmServer) -> String {
    let mut text = String::new();
    if let Some(weight) = server.weight.filter(|weight| *weight != 1) {
        text += &format!("; weight {weight}");
    }
    if !server.pins.is_empty() {
        let pins: Vec<String> = server.pins.iter().map(u32::to_string).collect();
        text += &format!("; pins {}", pins.join(", "));
    }
    text
}

/// The shards of a server, each with its epoch and since when it owns it.
fn owned(shards: &[OwnedShard]) -> String {
    let shown = shards.iter().map(|shard| {
        let since = shard.since_ms.map(elapsed).unwrap_or_default();
        format!("{} (epoch {}, {since})", shard.shard, shard.epoch)
    });
    format!("owns shard {}", shown.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_shows_weights_and_pins_that_are_not_the_default() {
        let server = |weight, pins: &[u32]| FarmServer {
            id: 1,
            name: "east".to_owned(),
            addresses: Vec::new(),
            release: "0.1.0".to_owned(),
            is_this: true,
            draining: true,
            up_ms: 1,
            silent_ms: 1,
            shards: vec![OwnedShard { shard: 3, epoch: 2, since_ms: None }],
            weight,
            pins: pins.to_vec(),
        };
        let shown = |weight, pins: &[u32]| state(&server(weight, pins), true);
        assert_eq!(shown(Some(1), &[]), "owns shard 3 (epoch 2, ), drained");
        assert_eq!(shown(None, &[]), "owns shard 3 (epoch 2, ), drained");
        assert_eq!(shown(Some(0), &[3, 5]), "owns shard 3 (epoch 2, ), drained; weight 0; pins 3, 5");
    }
}
