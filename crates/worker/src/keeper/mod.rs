//! The keeper: the process that owns running tasks. One thread runs one loop over ended children, the agent's
//! connection, the lease's timer and deadlines. [`keeper_main`] is the whole program; agents start it and send it
//! messages. It starts and ends tasks, holds them to their limits, and keeps results until they are acknowledged. It
//! never waits for an agent or for anything that a user controls, and opens no network connection.

mod env;
mod fuse;
mod jobserver;
mod lease;
mod link;
mod log;
mod namespace;
mod nodes;
mod open_files;
mod progress;
mod run;
mod session;
mod tasks;
mod upgrade;

pub use env::{FILES, MARKER, SESSIONS};
pub use link::socket_path;
pub use namespace::{KeeperFile, RETRY_WITHOUT, TAKEN};
pub use open_files::tasks_max;
pub use run::KeeperOptions;

use crate::cgroup::Cgroups;
use crate::process;
use log::{detach_output, write_line};
use run::Keeper;
use std::process::ExitCode;

/// Runs the keeper. In the process that the agent started it returns as soon as the keeper is ready, after a
/// line on standard output. In the keeper it returns when the keeper ends.
pub fn keeper_main(options: KeeperOptions) -> ExitCode {
    if let Some(memory) = options.resume {
        return resume(options, memory);
    }
    process::close_inherited();
    process::raise_file_limit();
    process::protect_from_oom();
    let lock = match namespace::lock(&options.state) {
        Ok(lock) => lock,
        Err(e) => {
            println!("error: cannot lock the worker's directory: {e}");
            return ExitCode::FAILURE;
        }
    };
    let mut notes = Vec::new();
    // Inside the namespace the processes of the keeper's own group have no numbers.
    let cgroups = Cgroups::open(&namespace::cgroup_name(options.incarnation), true);
    let dirs = cgroups.as_ref().map(Cgroups::dirs).unwrap_or_default();
    let (namespaced, fuse) = match namespace::enter(&options, dirs) {
        Ok(namespace::Side::Outside) => {
            // The keeper removes the groups at its end.
            std::mem::forget(cgroups);
            return ExitCode::SUCCESS;
        }
        Ok(namespace::Side::Inside { refused: None, fuse }) => (true, fuse),
        Ok(namespace::Side::Inside { refused: Some(why), .. }) => {
            notes.push(format!(
                "no PID namespace ({why}): tasks are tied to the keeper by parent-death signals, and those that \
                 leave its tree are found by their environment"
            ));
            (false, None)
        }
        Err(e) => {
            println!("error: cannot start the keeper: {e}");
            return ExitCode::FAILURE;
        }
    };
    match Keeper::new(&options, cgroups, namespaced, notes) {
        Ok(mut keeper) => {
            (keeper.lock, keeper.fuse) = (Some(lock), fuse);
            println!("ready");
            // The agent reads this pipe until the line, and must not wait for the keeper's end.
            detach_output(&options.state);
            keeper.live()
        }
        Err(e) => {
            println!("error: cannot start the keeper: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the keeper with the state that another program of this process handed over.
fn resume(options: KeeperOptions, memory: i32) -> ExitCode {
    process::protect_from_oom();
    match Keeper::resume(&options, memory) {
        Ok(mut keeper) => keeper.live(),
        Err(e) => {
            write_line(format_args!("cannot go on with the state of the earlier program: {e}"));
            if let Some(old) = options.fallback {
                let Err(e) = upgrade::fall_back(&options, memory, old);
                write_line(format_args!("the earlier program cannot be executed again: {e}"));
            }
            ExitCode::FAILURE
        }
    }
}
