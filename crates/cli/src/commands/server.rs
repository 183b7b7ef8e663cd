//! `windlass server`: start, status, backup, stop.

use crate::Context;
use crate::commands::show::server_grid;
use crate::node::paths::Paths;
use crate::node::serve::{self, ServeOptions};
use crate::ui::error::{CliError, Doing};
use crate::ui::output::{count, print_one, talk};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use windlass_api::Version;
use windlass_api::client::{Client, ClientError};
use windlass_core::resources::Bytes;

/// How long a server may take to stop cleanly.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Runs and manages a server.
#[derive(Subcommand)]
pub enum ServerCommand {
    /// Run a server until it is stopped
    Start(Box<ServeOptions>),
    /// Show whether a server runs, with its workers, tasks and queues
    Status,
    /// Copy the database to a new file that only you can read; the server may run meanwhile
    Backup(BackupArgs),
    /// Stop the server cleanly, and wait until it has; running tasks go on
    Stop,
}

/// The database to copy, and the copy.
#[derive(Args)]
pub struct BackupArgs {
    /// The copy; the file must not exist yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// State directory of the server
    #[arg(long, env = "WINDLASS_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
    /// Store of the server, if it is not in the state directory
    #[arg(long, env = "WINDLASS_STORE", value_name = "STORE")]
    store: Option<String>,
}

/// What `server backup` prints.
#[derive(Serialize)]
struct Copied {
    file: PathBuf,
    bytes: u64,
}

async fn backup(context: &Context, args: BackupArgs) -> Result<(), CliError> {
    let BackupArgs { file, state, store } = args;
    let state = state.map_or_else(|| Paths::for_user().map(|paths| paths.state), Ok)?;
    let store = store.unwrap_or_else(|| format!("sqlite:{}", state.join("windlass.db").display()));
    let to = file.clone();
    let copied = tokio::task::spawn_blocking(move || windlass_store::backup(&store, &to)).await;
    copied.context("the copy was interrupted")?.context("no copy was made")?;
    let bytes = std::fs::metadata(&file).context("cannot access the copy")?.len();
    let told = |copied: &Copied| {
        format!(
            "{} has {}; start a server with it as windlass.db\n",
            copied.file.display(),
            Bytes(copied.bytes)
        )
    };
    let copied = Copied { file, bytes };
    print_one(context.format, &copied, |copied| copied.file.display().to_string(), told)
}

/// `windlass server …`.
pub async fn command(context: &Context, command: ServerCommand) -> Result<(), CliError> {
    match command {
        ServerCommand::Start(options) => Ok(serve::start(*options).await?),
        ServerCommand::Status => status(context).await,
        ServerCommand::Backup(args) => backup(context, args).await,
        ServerCommand::Stop => stop(context).await,
    }
}

/// What `server status` prints.
#[derive(Serialize)]
struct Status {
    address: String,
    #[serde(flatten)]
    version: Version,
    workers: usize,
    running_tasks: usize,
    queues: usize,
    /// Steps with ready tasks.
    ready_steps: usize,
}

async fn status(context: &Context) -> Result<(), CliError> {
    let client = serve::connect_running(context.server.as_ref()).await?;
    let status = gather(&client).await.doing("ask the server for its status")?;
    print_one(
        context.format,
        &status,
        |status| status.address.clone(),
        |status| {
            let rows = vec![
                ("address", status.address.clone()),
                ("workers", count(status.workers as u64, "worker")),
                ("running", count(status.running_tasks as u64, "task")),
                ("queues", format!("{} ({} ready)", status.queues, count(status.ready_steps as u64, "step"))),
            ];
            server_grid(&status.version, rows)
        },
    )
}

async fn gather(client: &Client) -> Result<Status, ClientError> {
    let version = client.version().await?;
    let (workers, queues) = (client.workers(false).await?, client.queues().await?);
    Ok(Status {
        address: client.address().to_string(),
        version,
        workers: workers.len(),
        running_tasks: workers.iter().map(|worker| worker.running).sum(),
        queues: queues.len(),
        ready_steps: queues.iter().map(|queue| queue.ready_steps).sum(),
    })
}

async fn stop(context: &Context) -> Result<(), CliError> {
    let client = serve::connect_running(context.server.as_ref()).await?;
    let pid = client.version().await.doing("stop the server")?.pid;
    match client.shutdown().await {
        // It may stop before its answer arrives.
        Ok(()) | Err(ClientError::Unreachable { .. }) => {}
        refused => return refused.doing("stop the server"),
    }
    let begun = Instant::now();
    while begun.elapsed() < STOP_MAX {
        match client.version().await {
            Err(ClientError::Unreachable { .. }) => return said_stopped(&client),
            // Another server was started there meanwhile.
            Ok(version) if version.pid != pid => return said_stopped(&client),
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    Err(CliError::Failed {
        message: format!("the server was asked to stop {} s ago and still answers", STOP_MAX.as_secs()),
        hint: Some(format!("see its log, or kill process {pid}: accepted jobs survive that")),
    })
}

fn said_stopped(client: &Client) -> Result<(), CliError> {
    talk!("the server at {} has stopped", client.address());
    Ok(())
}
