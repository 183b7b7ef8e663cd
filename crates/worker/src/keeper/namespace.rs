//! PID and mount namespaces of the keeper. It becomes pid 1 of them, so that the kernel kills everything
//! under it when it ends, for whatever reason. [`keeper_main`](super::keeper_main) calls [`enter`] once,
//! before anything else runs. The agent reads the file that is written here to tell a dead keeper from a
//! silent one. Where namespaces are refused, the keeper runs without, and is not given a lease.

use super::fuse::{Fuse, fuse_pipe, watch};
use super::run::KeeperOptions;
use crate::process;
use crate::unshare::{map_own_user, try_unshare};
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The facts by which an agent finds out whether a keeper still lives, and cleans up after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeeperFile {
    /// Number of the keeper's process in the agent's PID namespace.
    pub pid: i32,
    /// Start of that process, in clock ticks since boot.
    pub start_ticks: u64,
    /// Number that tells this keeper from every other.
    pub incarnation: u64,
    /// Whether all processes under the keeper die with it.
    pub namespaced: bool,
    /// The keeper's control groups.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
}

impl KeeperFile {
    /// The last keeper of a worker's directory; `None` if there was none or the file cannot be read.
    pub fn read(state: &Path) -> Option<KeeperFile> {
        serde_json::from_slice(&fs::read(keeper_file(state)).ok()?).ok()
    }

    fn write(&self, state: &Path) -> io::Result<()> {
        let path = keeper_file(state);
        let fresh = path.with_extension("new");
        // The file names the incarnation, which marks processes where there are no control groups. No other
        // user may read it.
        _ = fs::remove_file(&fresh);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(&fresh, &path)
    }
}

/// Which of the two processes after the fork the caller is.
pub enum Side {
    /// The process that the agent started, which has done its part.
    Outside,
    /// The keeper, which owns the tasks from now on.
    Inside {
        /// Why there is no namespace; `None` if there is one.
        refused: Option<String>,
        /// `None` without leases or a namespace.
        fuse: Option<Fuse>,
    },
}

/// Name of a keeper's control groups.
pub fn cgroup_name(incarnation: u64) -> String {
    format!("windlass-{incarnation:016x}")
}

fn keeper_file(state: &Path) -> PathBuf {
    state.join("keeper.json")
}

/// Printed when the directory has another keeper.
pub const TAKEN: &str = "directory-taken";

/// Locks the directory for a keeper, until that and all that it forked are gone. An agent that is killed while it starts
/// a keeper leaves one that its successor does not know. With a second one beside it, a task could run twice.
pub fn lock(state: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    let file =
        options.write(true).create(true).truncate(false).mode(0o600).open(state.join("keeper.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::other(TAKEN)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Printed when namespaces can be entered but not set up. The agent then starts the keeper again without them.
pub const RETRY_WITHOUT: &str = "namespace-refused";

/// Forks the keeper, in new namespaces unless it is to be plain. The caller must have one thread. A keeper that gets leases
/// has its fuse as parent, which goes on beside it: the caller has done its part before that.
pub fn enter(options: &KeeperOptions, cgroups: Vec<PathBuf>) -> io::Result<Side> {
    let KeeperOptions { state, incarnation, plain, leased, .. } = options;
    let is_fused = *leased && !plain;
    if is_fused && fork()? > 0 {
        return Ok(Side::Outside);
    }
    let refused = if *plain { Some("they cannot be set up here".to_owned()) } else { unshare()? };
    let pipe = (is_fused && refused.is_none()).then(fuse_pipe).transpose()?;
    let (renewals, fuse) = pipe.map_or((None, None), |(renewals, fuse)| (Some(renewals), Some(fuse)));
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let pid = fork()?;
    if pid > 0 {
        // The agent reads this file to tell a dead keeper from a silent one, so it must exist before the
        // keeper has any task.
        let file = KeeperFile {
            pid,
            start_ticks: process::start_ticks(pid).ok_or(io::ErrorKind::NotFound)?,
            incarnation: *incarnation,
            namespaced: refused.is_none(),
            cgroups,
        };
        if let Err(e) = file.write(state) {
            process::kill(pid);
            return Err(e);
        }
        drop(theirs);
        ours.write_all(b"1")?;
        // Ends without a byte if the child could not set up its namespaces.
        ours.read_exact(&mut [0]).map_err(|_| io::Error::other(RETRY_WITHOUT))?;
        drop(fuse);
        match renewals {
            Some(renewals) => watch(&renewals, pid),
            None => return Ok(Side::Outside),
        }
    }
    drop((ours, renewals));
    if let Some(fuse) = &fuse {
        fuse.tie()?;
    }
    theirs.read_exact(&mut [0])?;
    _ = rustix::process::setsid();
    if refused.is_some() {
        // Orphaned processes of tasks become the keeper's children, so that it sees their end.
        _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    } else if mount_proc().is_err() {
        // SAFETY: ends this process; the other one reports the failure.
        unsafe { libc::_exit(1) };
    }
    theirs.write_all(b"1")?;
    std::env::set_current_dir("/")?;
    Ok(Side::Inside { refused, fuse })
}

/// Forks: 0 in the child, its number in the parent. The caller must have one thread.
fn fork() -> io::Result<i32> {
    // SAFETY: this process has one thread, so the child may run any code.
    match unsafe { libc::fork() } {
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Enters new namespaces for processes to come. Without the privilege for that it also enters a user
/// namespace, in which only this user and group exist. `Some` says why there are no namespaces. An error
/// means that they were entered and cannot be used, which only another process can undo.
fn unshare() -> io::Result<Option<String>> {
    let spaces = UnshareFlags::NEWPID | UnshareFlags::NEWNS;
    if try_unshare(spaces).is_ok() {
        return Ok(None);
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    if let Err(e) = try_unshare(spaces | UnshareFlags::NEWUSER) {
        return Ok(Some(e.to_string()));
    }
    map_own_user((uid, gid)).map(|()| None).map_err(|_| io::Error::other(RETRY_WITHOUT))
}

/// Mounts `/proc` of the namespace. Later mounts outside are still seen inside.
fn mount_proc() -> io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Hides other users' arguments. Some kernels and machines refuse this option.
    if mount("proc", "/proc", "proc", flags, c"hidepid=2").is_err() {
        mount("proc", "/proc", "proc", flags, None)?;
    }
    Ok(())
}
