//! In the place of `node` on systems other than Linux: no server, worker or keeper runs there, so the commands that need
//! one say so. It has the items of `node` that the rest of the program uses.

use std::process::ExitCode;

/// Nothing runs in the place of a command.
pub fn run_instead() -> Option<ExitCode> {
    None
}

/// Never: no server starts here.
pub fn is_taken(_: &anyhow::Error) -> bool {
    false
}

/// The user's own server: there is none.
pub mod own {
    use crate::ui::error::CliError;
    use windlass_api::client::{Address, Client};

    /// False: a server needs Linux.
    pub const CAN_RUN: bool = false;

    /// Refuses: the user has to name a server.
    pub async fn client() -> Result<Client, CliError> {
        Err(CliError::Usage {
            message: "no server is named, and a server on this machine would need Linux".to_owned(),
            hint: Some("give the server's address: --server HOST:PORT, or set WINDLASS_SERVER".to_owned()),
        })
    }

    /// Refuses in the same way.
    pub async fn running() -> Result<Client, CliError> {
        client().await
    }

    /// No server of this machine has written a token.
    pub fn token_for(_: &Address) -> Option<String> {
        None
    }

    /// No server of this machine has a socket for administrators.
    pub fn for_administrators() -> Result<Option<Address>, CliError> {
        Ok(None)
    }

    /// The process of a server on this machine: there is none.
    pub enum ServerProcess {}

    impl ServerProcess {
        /// None: the server is on another machine.
        pub fn behind(_: &Client, _: u32) -> Option<Self> {
            None
        }

        /// Never asked.
        pub fn has_ended(&self) -> bool {
            match *self {}
        }
    }
}

/// The server of `run --foreground`: there is none.
pub mod foreground {
    use crate::ui::error::CliError;
    use windlass_api::client::Client;

    /// A server inside this run, which is never there.
    pub struct Foreground {
        /// A client of it.
        pub client: Client,
    }

    /// Refuses.
    pub async fn start() -> Result<Foreground, CliError> {
        Err(super::machine::needs_linux("run --foreground"))
    }

    impl Foreground {
        /// Never called.
        pub async fn stop(self) {}
    }
}

/// The person's browser: none is opened, and the address is printed.
pub mod browser {
    use std::path::{Path, PathBuf};

    /// None.
    pub fn opener() -> Option<PathBuf> {
        None
    }

    /// Refuses.
    pub fn open(_: &Path, _: &str) -> anyhow::Result<()> {
        anyhow::bail!("it needs Linux")
    }
}

/// The commands that need Linux. Help does not list them.
pub mod machine {
    use crate::Context;
    use crate::ui::error::CliError;
    use clap::{Args, Subcommand};
    use serde_json::Value;
    use std::ffi::OsString;

    /// The answer to a command that needs Linux.
    pub fn needs_linux(command: &str) -> CliError {
        CliError::Usage {
            message: format!("'windlass {command}' needs Linux; on this system the commands of clients work"),
            hint: Some("'windlass help' lists them; run this one on the server or on a worker".to_owned()),
        }
    }

    /// Whatever stands behind such a command.
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
        /// Needs Linux
        #[command(hide = true)]
        Doctor(Words),
        /// Needs Linux
        #[command(hide = true)]
        Gateway(Words),
        /// Needs Linux
        #[command(hide = true)]
        Compass(Words),
        /// Needs Linux
        #[command(hide = true)]
        NixHook(Words),
        /// Needs Linux
        #[command(hide = true)]
        Sim(Words),
    }

    impl MachineCommand {
        /// Refuses.
        pub async fn run(self, _: &Context) -> Result<(), CliError> {
            Err(needs_linux(match self {
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
        /// Needs Linux
        #[command(hide = true)]
        Start(Words),
        /// Needs Linux
        #[command(hide = true)]
        Backup(Words),
    }

    impl ServerHere {
        /// No server listens.
        pub fn may_listen_on_tcp(&self) -> bool {
            false
        }

        /// Refuses.
        pub async fn run(self, _: &Context) -> Result<(), CliError> {
            Err(needs_linux(match self {
                ServerHere::Start(_) => "server start",
                ServerHere::Backup(_) => "server backup",
            }))
        }
    }

    /// Commands of `windlass worker` for the worker's machine.
    #[derive(Subcommand, Debug)]
    pub enum WorkerHere {
        /// Needs Linux
        #[command(hide = true)]
        Start(Words),
        /// Needs Linux
        #[command(hide = true)]
        Detect(Words),
    }

    impl WorkerHere {
        /// Refuses.
        pub async fn run(self, _: &Context) -> Result<(), CliError> {
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
}
