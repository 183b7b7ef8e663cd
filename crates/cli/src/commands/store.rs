//! `windlass store`: actions on a farm's store while no server runs.

use crate::client::context::Context;
use crate::ui::error::CliError;
use crate::ui::output::{count, print_one};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use windlass_store::shown_address;

/// Moves a farm from one store to another.
#[derive(Subcommand)]
pub enum StoreCommand {
    /// Copy a farm into a new store, from SQLite to PostgreSQL or back; no server may use either meanwhile
    Copy(CopyArgs),
}

#[derive(Args)]
#[command(
    after_help = "A password is better in PGPASSWORD than in an address, which other users of this machine can see."
)]
pub struct CopyArgs {
    /// The store that has the farm: sqlite:PATH or postgres://HOST/DATABASE
    #[arg(value_name = "FROM")]
    from: String,
    /// The new store, which must be empty: sqlite:PATH or postgres://HOST/DATABASE
    #[arg(value_name = "TO")]
    to: String,
}

/// The output of `store copy`.
#[derive(Serialize)]
struct Moved {
    from: String,
    to: String,
    tables: Vec<MovedTable>,
}

#[derive(Serialize)]
struct MovedTable {
    table: &'static str,
    rows: u64,
}

/// Runs the command `windlass store …`.
pub async fn command(context: &Context, command: StoreCommand) -> Result<(), CliError> {
    let StoreCommand::Copy(CopyArgs { from, to }) = command;
    let tables = windlass_store::copy(&from, &to).await.context("nothing was copied")?;
    let tables =
        tables.into_iter().map(|table| MovedTable { table: table.table, rows: table.rows }).collect();
    let moved = Moved { from: shown_address(&from), to: shown_address(&to), tables };
    let told = |moved: &Moved| {
        let rows =
            |name: &str| moved.tables.iter().find(|table| table.table == name).map_or(0, |table| table.rows);
        format!(
            "{} has {} and {} booked; start the server with --store {}\n",
            moved.to,
            count(rows("jobs"), "job"),
            count(rows("tasks"), "task"),
            moved.to
        )
    };
    print_one(context.format, &moved, |moved| moved.to.clone(), told)
}
