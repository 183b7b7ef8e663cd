//! `windlass limit`: what there is only so much of over the whole farm, such as licences.

use crate::Context;
use crate::error::{CliError, Doing};
use crate::output::{Format, Grid, print_list, print_one, talk};
use clap::{Args, Subcommand};
use windlass_api::Limit;

/// Looks at limits and sets them.
#[derive(Subcommand, Debug)]
pub enum LimitCommand {
    /// List the limits
    List,
    /// Set how many tasks may hold one of a limit at a time, for administrators
    Set(SetArgs),
    /// Take a limit away: nothing is held back by it, for administrators
    Remove(RemoveArgs),
}

/// A limit as it shall be.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// The limit's name, as in run --limit
    #[arg(value_name = "NAME")]
    name: String,
    /// How many tasks may hold one at a time; 0 lets none start
    #[arg(value_name = "N")]
    max: u32,
}

/// A limit.
#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// The limit's name
    #[arg(value_name = "NAME")]
    name: String,
}

/// `windlass limit …`.
pub async fn command(context: &Context, command: LimitCommand) -> Result<(), CliError> {
    let client = context.client().await?;
    match command {
        LimitCommand::List => {
            let limits = client.limits().await.doing("list the limits")?;
            print_list(context.format, &limits, |limit| limit.name.clone(), grid)
        }
        LimitCommand::Set(SetArgs { name, max }) => {
            let limit = client.set_limit(&name, max).await.doing(format_args!("set limit {name}"))?;
            if context.format == Format::Table {
                talk!("limit {name}: {max} tasks at a time, {} now", limit.used);
                return Ok(());
            }
            print_one(context.format, &limit, |limit| limit.name.clone(), |_| String::new())
        }
        LimitCommand::Remove(RemoveArgs { name }) => {
            client.remove_limit(&name).await.doing(format_args!("remove limit {name}"))?;
            talk!("limit {name} is removed");
            Ok(())
        }
    }
}

fn grid(limits: &[Limit]) -> Grid {
    let row = |limit: &Limit| vec![limit.name.clone(), limit.max.to_string(), limit.used.to_string()];
    Grid {
        header: &["NAME", "MAX", "USED"],
        rows: limits.iter().map(row).collect(),
        empty: "no limits; 'windlass limit set NAME N' makes one",
    }
}
