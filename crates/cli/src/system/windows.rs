//! The items of `unix.rs` for Windows. A new file has the permissions of its directory there, and a user's own
//! directories are closed to other users.

use crate::ui::error::{HUNG_UP, INTERRUPTED, TERMINATED};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

/// Creates a file that did not exist, with the permissions of its directory.
pub fn new_file(path: &Path, _public: bool) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Creates a directory and its ancestors, with the permissions of the first one that exists.
pub fn new_private_dir(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Always false: the standard library does not say who may read a file.
pub fn is_open_to_others(_: &Permissions) -> bool {
    false
}

/// True if standard output and standard error are both the console, where the order of their lines is seen.
pub fn is_one_place() -> bool {
    io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// Always false: the standard library does not say whether a pipe has something to read.
pub fn has_input() -> bool {
    false
}

/// The user's directory for what this program can make again.
pub fn cache_dir() -> Option<PathBuf> {
    let base = std::env::var_os("LOCALAPPDATA").filter(|value| !value.is_empty());
    base.map(|base| Path::new(&base).join("windlass").join("cache"))
}

/// Nothing: no file is marked as executable.
pub fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Creates a symbolic link that leads to a file, which needs a right that users as a rule do not have.
pub fn new_link(target: &str, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path)
}

/// True if a file here may have this name of a worker's file. Some characters divide paths, or name a part of a file.
pub fn is_name_here(name: &str) -> bool {
    !name.contains(['\\', ':', '*', '?', '"', '<', '>', '|']) && !name.ends_with(['.', ' '])
}

/// The name of the user without the environment.
pub fn account_name() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

/// Always unknown: new files have the permissions of their directory.
pub fn umask() -> Option<String> {
    None
}

/// The kind of the terminal: every console can be drawn on, and no variable says so.
pub fn terminal_kind() -> Option<String> {
    Some("console".to_owned())
}

/// The events of the console that ask this program to end.
pub struct StopSignals {
    interrupt: CtrlC,
    terminate: CtrlBreak,
    hangup: CtrlClose,
}

impl StopSignals {
    /// Catches them from now on.
    pub fn catch() -> io::Result<Self> {
        Ok(StopSignals { interrupt: ctrl_c()?, terminate: ctrl_break()?, hangup: ctrl_close()? })
    }

    /// Waits for the next one, and returns the exit code that stands for it. Dropping the future loses none.
    pub async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
            _ = self.hangup.recv() => HUNG_UP,
        }
    }
}
