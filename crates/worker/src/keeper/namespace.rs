//! Making the keeper pid 1 of its own PID and mount namespace: when it ends, for whatever reason, the
//! kernel kills everything under it, so nothing outlives the keeper that knew of it.

use crate::process;
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// What the agent must know of a keeper to find out later whether it is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeeperFile {
    /// Its process, as the agent numbers it.
    pub pid: i32,
    /// When that started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its own number.
    pub incarnation: u64,
    /// Everything under it dies with it.
    pub namespaced: bool,
    /// Its control groups.
    #[serde(default)]
    pub cgroups: Vec<PathBuf>,
}

impl KeeperFile {
    /// The keeper of a state directory, if there ever was one.
    pub fn read(state: &Path) -> Option<KeeperFile> {
        serde_json::from_slice(&fs::read(keeper_file(state)).ok()?).ok()
    }

    fn write(&self, state: &Path) -> io::Result<()> {
        let path = keeper_file(state);
        let fresh = path.with_extension("new");
        // It names the marker by which processes are found where there are no control groups.
        _ = fs::remove_file(&fresh);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(&fresh, &path)
    }
}

/// Which of the two processes the caller is.
pub enum Side {
    /// The one that the agent started: it has done its part.
    Outside,
    /// The keeper.
    Inside {
        /// Why there is no namespace.
        refused: Option<String>,
    },
}

/// The name of a keeper's control groups.
pub fn cgroup_name(incarnation: u64) -> String {
    format!("windlass-{incarnation:016x}")
}

fn keeper_file(state: &Path) -> PathBuf {
    state.join("keeper.json")
}

/// What an agent sees when namespaces can be entered but not be set up: it starts the keeper without.
pub const RETRY_WITHOUT: &str = "namespace-refused";

/// Splits off the keeper, in namespaces unless `plain`. The caller must have one thread.
pub fn enter(state: &Path, incarnation: u64, plain: bool, cgroups: Vec<PathBuf>) -> io::Result<Side> {
    let refused = if plain { Some("they cannot be set up here".to_owned()) } else { unshare()? };
    let (mut ours, mut theirs) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so the child may go on as it likes.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid > 0 {
        // The agent reads this file to tell a dead keeper from a silent one, so it must be there
        // before the keeper takes any task.
        let file = KeeperFile {
            pid,
            start_ticks: process::start_ticks(pid).ok_or(io::ErrorKind::NotFound)?,
            incarnation,
            namespaced: refused.is_none(),
            cgroups,
        };
        if let Err(e) = file.write(state) {
            process::kill(pid);
            return Err(e);
        }
        drop(theirs);
        ours.write_all(b"1")?;
        // Ends without a byte where the child could not set its namespaces up.
        ours.read_exact(&mut [0]).map_err(|_| io::Error::other(RETRY_WITHOUT))?;
        return Ok(Side::Outside);
    }
    drop(ours);
    theirs.read_exact(&mut [0])?;
    _ = rustix::process::setsid();
    if refused.is_some() {
        // Orphans of tasks become our children, so that their end is seen.
        _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    } else if mount_proc().is_err() {
        // SAFETY: ends this process; the one outside says why.
        unsafe { libc::_exit(1) };
    }
    theirs.write_all(b"1")?;
    std::env::set_current_dir("/")?;
    Ok(Side::Inside { refused })
}

/// Enters new namespaces for the processes to come. Without the privilege a user namespace gives it,
/// with our own user and group and no others in it. `Some` says why there are none; an error, that
/// they were entered and cannot be used, which only another process can undo.
fn unshare() -> io::Result<Option<String>> {
    let spaces = UnshareFlags::NEWPID | UnshareFlags::NEWNS;
    if try_unshare(spaces).is_ok() {
        return Ok(None);
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    if let Err(e) = try_unshare(spaces | UnshareFlags::NEWUSER) {
        return Ok(Some(e.to_string()));
    }
    let mapped = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")));
    mapped.map(|()| None).map_err(|_| io::Error::other(RETRY_WITHOUT))
}

fn try_unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: this process has one thread and shares no descriptors table.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Gives the namespace its own `/proc`; mounts made outside later are still seen inside.
fn mount_proc() -> io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Users do not see each other's arguments. A kernel or a machine may not have it.
    if mount("proc", "/proc", "proc", flags, c"hidepid=2").is_err() {
        mount("proc", "/proc", "proc", flags, None)?;
    }
    Ok(())
}
