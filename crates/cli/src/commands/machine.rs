//! The commands that need Linux: they run a part of Windlass on this machine, or look at it.

use crate::client::context::Context;
use crate::commands::{compass_import, doctor, gateway, sim, store};
use crate::node::backup::{BackupArgs, backup};
use crate::node::install::{InstallArgs, install};
use crate::node::nix_hook::NixHookArgs;
use crate::node::remote::{self, StartArgs};
use crate::node::serve::{self, ServeOptions};
use crate::node::this_machine::detect;
use crate::node::turn::{self, args::TurnArgs};
use crate::ui::error::{CliError, end_with};
use clap::Subcommand;
use serde_json::Value;
use windlass_api::Worker;
use windlass_gateway_compass::format::{SECTION_ORDER, section_order};

/// Commands of this machine.
#[derive(Subcommand)]
pub enum MachineCommand {
    /// Wait for a command's turn on this machine, and run it in its place
    Turn(TurnArgs),
    /// Diagnose whether this machine can run tasks
    Doctor(doctor::DoctorArgs),
    /// Move a farm from one store to another
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Run the scheduler's side of another system
    #[command(subcommand)]
    Gateway(gateway::GatewayCommand),
    /// Import a laboratory of Compass CI
    #[command(subcommand)]
    Compass(compass_import::CompassCommand),
    /// Be Nix's build hook: 'build-hook = windlass nix-hook' in nix.conf
    NixHook(NixHookArgs),
    /// Replay recorded workloads under several settings, or export a farm's history as one
    #[command(subcommand)]
    Sim(sim::SimCommand),
}

impl MachineCommand {
    /// Runs the command on this machine.
    pub async fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            MachineCommand::Turn(args) => end_with(turn::run(context.server.clone(), &args).await),
            MachineCommand::Doctor(args) => doctor::doctor(context, args).await,
            MachineCommand::Store(command) => store::command(context, command).await,
            MachineCommand::Gateway(command) => gateway::command(command).await,
            MachineCommand::Compass(command) => compass_import::command(context, command).await,
            MachineCommand::NixHook(_) => {
                Err(CliError::usage("give the flags of the hook behind 'nix-hook'"))
            }
            MachineCommand::Sim(command) => sim::command(context, command).await,
        }
    }
}

/// Commands of `windlass server` for the server's machine.
#[derive(Subcommand)]
pub enum ServerHere {
    /// Run a server until it is stopped
    Start(Box<ServeOptions>),
    /// Copy the database to a new file that only you can read; the server may run meanwhile
    Backup(BackupArgs),
    /// Set up one server for all users of this machine, as a unit of systemd
    Install(InstallArgs),
}

impl ServerHere {
    /// Whether it runs a server that may listen on TCP, as far as its flags tell.
    pub fn may_listen_on_tcp(&self) -> bool {
        matches!(self, ServerHere::Start(options) if options.may_listen_on_tcp())
    }

    /// Runs the command on this machine.
    pub async fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            ServerHere::Start(options) => Ok(serve::start(*options).await?),
            ServerHere::Backup(args) => backup(context, args).await,
            ServerHere::Install(args) => install(&args),
        }
    }
}

/// Commands of `windlass worker` for the worker's machine.
#[derive(Subcommand, Debug)]
pub enum WorkerHere {
    /// Run this machine as a worker of a server
    Start(Box<StartArgs>),
    /// Show what this machine would declare as a worker
    Detect,
}

impl WorkerHere {
    /// Runs it; `show` prints a worker.
    pub async fn run(
        self,
        context: &Context,
        show: impl FnOnce(&Context, &Worker) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        match self {
            WorkerHere::Start(args) => remote::start(context.server.as_ref(), *args).await,
            WorkerHere::Detect => show(context, &detect()),
        }
    }
}

/// The field with the order of what a machine runs of a Compass CI job, if its text has one.
pub fn order_of_compass_job(text: &str, is_yaml: bool) -> Result<Option<(String, Value)>, CliError> {
    Ok(section_order(text.as_bytes(), is_yaml).map(|order| (SECTION_ORDER.to_owned(), order)))
}
