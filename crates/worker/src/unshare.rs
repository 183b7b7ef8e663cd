//! Entering new namespaces. The keeper and the processes that it forks use it.

use rustix::thread::UnshareFlags;
use std::fs;
use std::io;

/// Lets this user and group, and no others, exist in the user namespace that this process has just entered.
pub fn map_own_user((uid, gid): (u32, u32)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Enters these namespaces. The caller must have one thread.
pub fn try_unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: this process has one thread, and shares its table of descriptors with no other process.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}
