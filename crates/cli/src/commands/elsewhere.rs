//! The stand-in for `machine` on systems other than Linux. Its commands refuse, and help does not list them.

use crate::client::context::Context;
use crate::node::needs_linux;
use crate::ui::error::CliError;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::ffi::OsString;
use windlass_api::Worker;

/// All words behind such a command.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Words {
    /// Flags and words of the command
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Commands of this machine.
#[derive(Subcommand)]
pub enum MachineCommand {
    /// A command that needs Linux
    #[command(hide = true)]
    Turn(Words),
    /// A command that needs Linux
    #[command(hide = true)]
    Doctor(Words),
    /// A command that needs Linux
    #[command(hide = true)]
    Gateway(Words),
    /// A command that needs Linux
    #[command(hide = true)]
    Compass(Words),
    /// A command that needs Linux
    #[command(hide = true)]
    NixHook(Words),
    /// A command that needs Linux
    #[command(hide = true)]
    Sim(Words),
}

impl MachineCommand {
    /// Refuses, because the command needs Linux.
    pub async fn run(self, _: &Context) -> Result<(), CliError> {
        Err(needs_linux(match self {
            MachineCommand::Turn(_) => "turn",
            MachineCommand::Doctor(_) => "doctor",
            MachineCommand::Gateway(_) => "gateway",
            MachineCommand::Compass(_) => "compass",
            MachineCommand::NixHook(_) => "nix-hook",
            MachineCommand::Sim(_) => "sim",
        }))
    }
}

/// Commands of `windlass server` for the server's machine.
#[derive(Subcommand)]
pub enum ServerHere {
    /// A command that needs Linux
    #[command(hide = true)]
    Start(Words),
    /// A command that needs Linux
    #[command(hide = true)]
    Backup(Words),
    /// A command that needs Linux
    #[command(hide = true)]
    Install(Words),
}

impl ServerHere {
    /// False: no server listens here.
    pub fn may_listen_on_tcp(&self) -> bool {
        false
    }

    /// Refuses, because the command needs Linux.
    pub async fn run(self, _: &Context) -> Result<(), CliError> {
        Err(needs_linux(match self {
            ServerHere::Start(_) => "server start",
            ServerHere::Backup(_) => "server backup",
            ServerHere::Install(_) => "server install",
        }))
    }
}

/// Commands of `windlass worker` for the worker's machine.
#[derive(Subcommand, Debug)]
pub enum WorkerHere {
    /// A command that needs Linux
    #[command(hide = true)]
    Start(Words),
    /// A command that needs Linux
    #[command(hide = true)]
    Detect(Words),
}

impl WorkerHere {
    /// Refuses, because the command needs Linux.
    pub async fn run(
        self,
        _: &Context,
        _: impl FnOnce(&Context, &Worker) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        Err(needs_linux(match self {
            WorkerHere::Start(_) => "worker start",
            WorkerHere::Detect(_) => "worker detect",
        }))
    }
}

/// Refuses a job of Compass CI: the order of its sections is read by that gateway.
pub fn order_of_compass_job(_: &str, _: bool) -> Result<Option<(String, Value)>, CliError> {
    Err(CliError::usage("jobs of Compass CI are submitted from Linux"))
}
