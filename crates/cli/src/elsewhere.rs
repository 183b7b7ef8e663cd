//! The stand-in for `node` on systems other than Linux. No server, worker or keeper runs there, and the commands that
//! need one say so. It has the items of `node` that the rest of the program uses.

use crate::ui::error::CliError;
use std::process::ExitCode;

/// Nothing runs in the place of a command.
pub fn run_instead() -> Option<ExitCode> {
    None
}

/// Never: no server starts here.
pub fn is_taken(_: &anyhow::Error) -> bool {
    false
}

/// None: no server starts here, so no flag of it is known.
pub fn advise_on_flag(_: &clap::Error) -> Option<CliError> {
    None
}

/// The answer to a command that needs Linux.
pub fn needs_linux(command: &str) -> CliError {
    CliError::Usage {
        message: format!("'windlass {command}' needs Linux; on this system the commands of clients work"),
        hint: Some("'windlass help' lists them; run this one on the server or on a worker".to_owned()),
    }
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

    /// True of the name of the user's own server, which is not here.
    pub fn is_own_named(named: &str) -> bool {
        named == "own"
    }

    /// False: no server of this machine knows its users by itself.
    pub fn names_users(_: &Address) -> bool {
        false
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

        /// Never asked: no such process is known.
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

    /// Refuses, because a server needs Linux.
    pub async fn start() -> Result<Foreground, CliError> {
        Err(super::needs_linux("run --foreground"))
    }

    impl Foreground {
        /// Never called: none is started.
        pub async fn stop(self) {}
    }
}

/// The person's browser: none is opened, and the address is printed.
pub mod browser {
    use std::path::{Path, PathBuf};

    /// None: the person opens the address.
    pub fn opener() -> Option<PathBuf> {
        None
    }

    /// Refuses, because opening needs Linux.
    pub fn open(_: &Path, _: &str) -> anyhow::Result<()> {
        anyhow::bail!("it needs Linux")
    }
}
