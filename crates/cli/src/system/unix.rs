//! The functions that commands need of a unix system: files for one user, standard input, signals, and the name of the
//! user. `windows.rs` has the same items.

use crate::ui::error::{HUNG_UP, INTERRUPTED, TERMINATED};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
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
    let out = metadata_of(io::stdout().as_fd()).map(|found| place_of(&found));
    out.is_some() && out == metadata_of(io::stderr().as_fd()).map(|found| place_of(&found))
}

/// What the system says of an open file.
fn metadata_of(fd: BorrowedFd<'_>) -> Option<Metadata> {
    File::from(fd.try_clone_to_owned().ok()?).metadata().ok()
}

/// The device and the number of a file.
fn place_of(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// True if there are bytes to read on a standard input that this command alone was given. One that the program has, too,
/// which started it, is that one's to read: a loop of a shell reads its list there. It waits for nothing.
pub fn has_input() -> bool {
    let stdin = io::stdin();
    let Some(found) = metadata_of(stdin.as_fd()) else { return false };
    let kind = found.file_type();
    let has_bytes = if kind.is_file() {
        rustix::fs::tell(&stdin).is_ok_and(|at| at < found.len())
    } else {
        (kind.is_fifo() || kind.is_socket())
            && rustix::io::ioctl_fionread(&stdin).is_ok_and(|bytes| bytes > 0)
    };
    // A system without /proc does not tell.
    let above = std::fs::metadata(format!("/proc/{}/fd/0", std::os::unix::process::parent_id()));
    has_bytes && !above.is_ok_and(|above| place_of(&above) == place_of(&found))
}

/// The directory for what this program can make again, by the XDG conventions; `None` where there is no home directory.
pub fn cache_dir() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let base = var("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache")));
    base.map(|base| base.join("windlass"))
}

/// Lets those execute a file who may read it.
pub fn make_executable(path: &Path) -> io::Result<()> {
    let mode = std::fs::metadata(path)?.mode() & 0o7777;
    let wanted = mode | ((mode & 0o444) >> 2);
    if mode == wanted { Ok(()) } else { std::fs::set_permissions(path, Permissions::from_mode(wanted)) }
}

/// Creates a symbolic link that leads to `target`.
pub fn new_link(target: &str, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// True if a file here may have this name of a worker's file: any.
pub fn is_name_here(_: &str) -> bool {
    true
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
    fn a_file_is_executed_by_those_who_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::write(&path, "").unwrap();
        for (mode, after) in [(0o644, 0o755), (0o600, 0o700), (0o640, 0o750), (0o755, 0o755)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            make_executable(&path).unwrap();
            assert_eq!(path.metadata().unwrap().mode() & 0o777, after, "{mode:o}");
        }
    }

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
