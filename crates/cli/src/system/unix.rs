//! The functions that commands need of a unix system: files for one user, signals, and the name of the user.
//! `windows.rs` has the same items.

use crate::ui::error::{HUNG_UP, INTERRUPTED, TERMINATED};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Creates a file that did not exist. Only this user can read it, unless it is `public`.
pub fn new_file(path: &Path, public: bool) -> io::Result<File> {
    let mode = if public { 0o644 } else { 0o600 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Creates a directory and its ancestors, for this user alone.
pub fn new_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// True if the permissions let other users of this machine read the file.
pub fn is_open_to_others(permissions: &Permissions) -> bool {
    permissions.mode() & 0o077 != 0
}

/// True if standard output and standard error are one file, pipe or terminal, where the order of their lines is seen.
pub fn is_one_place() -> bool {
    let out = place_of(io::stdout().as_fd());
    out.is_some() && out == place_of(io::stderr().as_fd())
}

/// The device and the number of an open file.
fn place_of(fd: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let found = File::from(fd.try_clone_to_owned().ok()?).metadata().ok()?;
    Some((found.dev(), found.ino()))
}

/// The user's name without the environment: the one in /etc/passwd, else the user's number.
pub fn account_name() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    for line in passwd.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(of_name)) = (fields.next(), fields.nth(1))
            && of_name == uid
        {
            return name.to_owned();
        }
    }
    uid
}

/// The umask of this process, in octal digits. The system tells them only where others take their place, for a
/// moment in which a file of another thread would be private.
pub fn umask() -> Option<String> {
    let own = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(own);
    Some(format!("{:04o}", own.as_raw_mode()))
}

/// The kind of the terminal, if there is one to be told.
pub fn terminal_kind() -> Option<String> {
    std::env::var("TERM").ok()
}

/// The signals that ask this program to end.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Catches them from now on.
    pub fn catch() -> io::Result<Self> {
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (secret, public) = (dir.path().join("secret"), dir.path().join("public"));
        let is_open = |file: File| is_open_to_others(&file.metadata().unwrap().permissions());
        assert!(!is_open(new_file(&secret, false).unwrap()));
        assert!(is_open(new_file(&public, true).unwrap()));
        assert!(new_file(&public, true).is_err(), "it exists");
        let own = dir.path().join("a/b");
        new_private_dir(&own).unwrap();
        assert!(!is_open_to_others(&own.metadata().unwrap().permissions()));
    }
}
