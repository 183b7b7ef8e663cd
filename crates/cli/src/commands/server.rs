//! `windlass server`: start, status, backup, stop.

use crate::client::connect::connect_running;
use crate::client::context::Context;
use crate::commands::machine::ServerHere;
use crate::commands::show::server_grid;
use crate::node::own::ServerProcess;
use crate::ui::error::{CliError, Doing};
use crate::ui::message::message;
use crate::ui::output::{count, print_one};
use clap::Subcommand;
use serde::Serialize;
use std::time::{Duration, Instant};
use windlass_api::Version;
use windlass_api::client::{Client, ClientError};

/// How long a server may take to stop cleanly.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Runs and manages a server.
#[derive(Subcommand)]
pub enum ServerCommand {
    /// What is done on the server's machine
    #[command(flatten)]
    Here(ServerHere),
    /// Show whether a server runs, with its workers, tasks and queues
    Status,
    /// Stop the server cleanly, and wait until it has; running tasks go on
    Stop,
}

/// Runs the command `windlass server …`.
pub async fn command(context: &Context, command: ServerCommand) -> Result<(), CliError> {
    match command {
        ServerCommand::Here(command) => command.run(context).await,
        ServerCommand::Status => status(context).await,
        ServerCommand::Stop => stop(context).await,
    }
}

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
    let client = connect_running(context.server.as_ref()).await?;
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
    if context.server.as_ref().is_some_and(|named| named.only().is_none()) {
        let message = "several servers are named, and one is stopped at a time".to_owned();
        return Err(CliError::Usage { message, hint: Some("name it: --server ADDRESS".to_owned()) });
    }
    let client = connect_running(context.server.as_ref()).await?;
    let pid = client.version().await.doing("stop the server")?.pid;
    let process = ServerProcess::behind(&client, pid);
    match client.shutdown().await {
        // It may stop before its answer arrives.
        Ok(()) | Err(ClientError::Unreachable { .. }) => {}
        refused => return refused.doing("stop the server"),
    }
    let begun = Instant::now();
    while begun.elapsed() < STOP_MAX {
        match client.version().await {
            Err(ClientError::Unreachable { .. }) if process.as_ref().is_none_or(ServerProcess::has_ended) => {
                return said_stopped(&client);
            }
            // Another server was started there meanwhile.
            Ok(version) if version.pid != pid => return said_stopped(&client),
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    Err(CliError::Failed {
        message: format!("the server was asked to stop {} s ago and is still there", STOP_MAX.as_secs()),
        hint: Some(format!("see its log, or kill process {pid}: accepted jobs survive that")),
    })
}

fn said_stopped(client: &Client) -> Result<(), CliError> {
    message!("the server at {} has stopped", client.address());
    Ok(())
}
