//! Servers and workers that this program runs, and the user's own server. They need Linux. `elsewhere.rs` stands in for
//! this module on other systems.

pub mod backup;
pub mod browser;
pub mod cookie;
pub mod foreground;
pub mod gateways;
pub mod install;
pub mod last_start;
pub mod life;
pub mod local;
mod local_files;
pub mod log_level;
pub mod log_writer;
pub mod machine_server;
pub mod machine_users;
pub mod member;
pub mod memory;
pub mod nix_hook;
pub mod nix_machine;
pub mod otlp;
pub mod own;
pub mod paths;
pub mod remote;
pub mod serve;
pub mod site;
pub mod telemetry;
pub mod this_machine;
#[cfg(feature = "otlp")]
pub mod traces;
pub mod turn;
pub mod watchdog;

pub use serve::advise_on_flag;

use clap::Parser;
use std::process::ExitCode;
use windlass_server::ListenError;
use windlass_store::StoreError;

/// The hidden command by which the agent starts the keeper.
#[derive(Parser)]
struct Keeper {
    #[command(flatten)]
    flags: serve::KeeperArgs,
}

/// Runs the keeper, a turn or Nix's build hook, if this process is one; `None` if it runs another command of a person.
/// Must be called before anything starts a thread.
pub fn run_instead() -> Option<ExitCode> {
    windlass_worker::heed_children();
    let mut arguments = std::env::args_os().skip(1).peekable();
    // The agent starts the keeper. Flags and variables for the client must not reach it, and it must stay
    // single-threaded.
    if arguments.peek().is_some_and(|first| first == "keeper") {
        return Some(serve::keeper(Keeper::parse_from(arguments).flags));
    }
    if let Some(code) = turn::run_if_asked().or_else(nix_hook::run_if_asked) {
        return Some(ExitCode::from(code as u8));
    }
    if matches!(&serve::words()[..], [who, start, ..] if (who == "server" || who == "worker") && start == "start")
    {
        windlass_worker::close_inherited();
    }
    None
}

/// True if another server has the address or the store.
pub fn is_taken(error: &anyhow::Error) -> bool {
    let store = error.downcast_ref::<StoreError>();
    let listen = error.downcast_ref::<ListenError>();
    matches!(store, Some(StoreError::InUse(_) | StoreError::Owned { .. }))
        || matches!(listen, Some(ListenError::Taken(_)))
}
