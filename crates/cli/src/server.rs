//! `windlass server`: start, status, stop.

use crate::Context;
use crate::error::{CliError, Doing};
use crate::output::{count, print_one, talk};
use crate::paths::Paths;
use crate::serve::{self, ServeOptions};
use crate::show::server_grid;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use windlass_api::Version;
use windlass_api::client::{Client, ClientError};
use windlass_core::resources::Bytes;

/// How long a server may take to end in good order.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Runs and manages a server.
#[derive(Subcommand)]
pub enum ServerCommand {
    /// Run a server until it is told to stop
    Start(Box<ServeOptions>),
    /// Show whether a server runs, and what it has
    Status,
    /// Copy the database, of a server that runs or does not, into a new file that only you may read
    Backup(BackupArgs),
    /// Ask the server to end in good order, and wait until it has; running tasks go on
    Stop,
}

/// What to copy, and where to.
#[derive(Args)]
pub struct BackupArgs {
    /// The copy, which must not be there yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The server's state directory
    #[arg(long, env = "WINDLASS_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
    /// Its store, where that is not in the state directory
    #[arg(long, env = "WINDLASS_STORE", value_name = "STORE")]
    store: Option<String>,
}

/// What `server backup` tells.
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
    copied.context("the copy was broken off")?.context("no copy was made")?;
    let bytes = std::fs::metadata(&file).context("cannot look at the copy")?.len();
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

/// Does one of them.
pub async fn command(context: &Context, command: ServerCommand) -> Result<(), CliError> {
    match command {
        ServerCommand::Start(options) => Ok(serve::start(*options).await?),
        ServerCommand::Status => status(context).await,
        ServerCommand::Backup(args) => backup(context, args).await,
        ServerCommand::Stop => stop(context).await,
    }
}

/// What `server status` tells.
#[derive(Serialize)]
struct Status {
    address: String,
    #[serde(flatten)]
    version: Version,
    workers: usize,
    running_tasks: usize,
    queues: usize,
    /// Steps with tasks that could start.
    ready_steps: usize,
}

async fn status(context: &Context) -> Result<(), CliError> {
    let client = serve::connect_running(context.server.as_ref()).await?;
    let status = gather(&client).await.doing("ask the server how it is")?;
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
        // It may be gone before its answer is.
        Ok(()) | Err(ClientError::Unreachable { .. }) => {}
        refused => return refused.doing("stop the server"),
    }
    let begun = Instant::now();
    while begun.elapsed() < STOP_MAX {
        match client.version().await {
            Err(ClientError::Unreachable { .. }) => return said_stopped(&client),
            // Another one was started there meanwhile.
            Ok(version) if version.pid != pid => return said_stopped(&client),
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    Err(CliError::Failed {
        message: format!("the server was told to stop {} s ago and still answers", STOP_MAX.as_secs()),
        hint: Some(format!("see what it does, or end process {pid}: accepted jobs survive that")),
    })
}

fn said_stopped(client: &Client) -> Result<(), CliError> {
    talk!("the server at {} has stopped", client.address());
    Ok(())
}
