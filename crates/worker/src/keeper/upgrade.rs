//! The keeper's upgrade under running tasks: it serializes its state, executes the newer program, and goes on
//! there. The process stays the same, and with it its number, its children, its namespace, and the files that
//! it keeps open on the way. The agent asks for it when the keeper's program is not its own. If the newer
//! program cannot go on, the old one is executed again with the same state.
//!
//! A newer keeper reads the state of an older one, so fields are only added, each with a default. No field is
//! ever removed or changed in meaning.

use super::fuse::Fuse;
use super::lease::Lease;
use super::link::Link;
use super::log::write_line;
use super::run::{Keeper, KeeperOptions};
use super::session::Sessions;
use super::tasks::{SavedTasks, Tasks};
use crate::cgroup::Cgroups;
use crate::kept::{self, KeptFile};
use crate::process;
use crate::protocol::Hidden;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The state that a keeper hands over.
#[derive(Serialize, Deserialize)]
struct Saved {
    tasks: SavedTasks,
    cgroups: Option<Cgroups>,
    lease_until: Option<u64>,
    namespaced: bool,
    notes: Vec<String>,
    listener: KeptFile,
    /// Holds the worker's directory.
    #[serde(default)]
    lock: Option<KeptFile>,
    #[serde(default)]
    fuse: Option<Fuse>,
    /// Soft and hard limit of open files that tasks get; `None` if unknown.
    files_before: Option<(u64, u64)>,
    /// The files that the last agent asked to hide from tasks.
    #[serde(default)]
    hidden: Option<Hidden>,
}

impl Keeper {
    /// Becomes another program. Returns only if that failed, with everything as it was.
    pub fn become_program(&mut self, options: &KeeperOptions, program: &Path) -> io::Error {
        write_line(format_args!("goes on as {}", program.display()));
        let listener = match self.link.listener().try_clone_to_owned() {
            Ok(listener) => KeptFile(File::from(listener)),
            Err(e) => return e,
        };
        let (tasks, cgroups) = self.tasks.save();
        let saved = Saved {
            tasks,
            cgroups,
            lease_until: self.lease.until(),
            namespaced: self.namespaced,
            notes: self.notes.clone(),
            listener,
            lock: self.lock.take().map(KeptFile),
            fuse: self.fuse.take(),
            files_before: process::files_before(),
            hidden: self.hidden.clone(),
        };
        let Err(why) = hand_over(&saved, options, program);
        // Without the new program nothing uses these descriptors, and tasks must not inherit them.
        close_at_exec();
        (self.lock, self.fuse) = (saved.lock.map(|kept| kept.0), saved.fuse);
        self.tasks.put_back(saved.tasks, saved.cgroups);
        why
    }

    /// The keeper with the state that an earlier program handed over.
    pub fn resume(options: &KeeperOptions, memory: RawFd) -> io::Result<Keeper> {
        // SAFETY: the earlier program left this descriptor open, and nothing here closes it.
        let mut memory = ManuallyDrop::new(unsafe { File::from_raw_fd(memory) });
        let mut text = Vec::new();
        memory.seek(SeekFrom::Start(0))?;
        memory.read_to_end(&mut text)?;
        let saved: Saved = serde_json::from_slice(&text)?;
        if let Some(limits) = saved.files_before {
            process::set_files_before(limits);
        }
        let mut lease = Lease::new()?;
        lease.set(saved.lease_until);
        let link = Link::resume(OwnedFd::from(saved.listener.0).into());
        let mut tasks = Tasks::new(Keeper::keeper_env(options, None, saved.namespaced)?, Sessions::default());
        tasks.put_back(saved.tasks, saved.cgroups);
        let mut keeper = Keeper::with(options, (tasks, link, lease), saved.namespaced, saved.notes)?;
        (keeper.lock, keeper.fuse) = (saved.lock.map(|kept| kept.0), saved.fuse);
        close_kept();
        keeper.hide(saved.hidden);
        Ok(keeper)
    }
}

/// Executes the program with the state in a memory file. Returns only if that failed.
fn hand_over(saved: &Saved, options: &KeeperOptions, program: &Path) -> io::Result<Infallible> {
    let old = File::open("/proc/self/exe")?;
    let mut memory = File::from(memfd_create("keeper", MemfdFlags::CLOEXEC)?);
    serde_json::to_writer(&mut memory, saved)?;
    kept::keep_open(&old)?;
    kept::keep_open(&memory)?;
    let mut arguments = arguments(options);
    arguments.extend(["--resume".to_owned(), memory.as_raw_fd().to_string()]);
    arguments.extend(["--fallback".to_owned(), old.as_raw_fd().to_string()]);
    execute(program, &arguments)
}

/// Sets all open descriptors to close at the next exec.
fn close_at_exec() {
    // SAFETY: sets a flag of descriptors and closes none.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Closes the descriptors that the earlier program kept open. This program has duplicates of them by now.
fn close_kept() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect();
    for fd in numbers {
        // SAFETY: this program's descriptors close at exec; one that does not has no owner here.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                libc::close(fd);
            }
        }
    }
}

/// Executes the program before this one, with the state that it handed over. Returns only if that failed.
pub fn fall_back(options: &KeeperOptions, memory: RawFd, old: RawFd) -> io::Result<Infallible> {
    let mut arguments = arguments(options);
    arguments.extend(["--resume".to_owned(), memory.to_string()]);
    execute(Path::new(&format!("/proc/self/fd/{old}")), &arguments)
}

fn arguments(options: &KeeperOptions) -> Vec<String> {
    let mut arguments = vec![
        "keeper".to_owned(),
        "--state".to_owned(),
        options.state.display().to_string(),
        "--incarnation".to_owned(),
        options.incarnation.to_string(),
        "--log-bytes-max".to_owned(),
        options.log_bytes_max.to_string(),
    ];
    arguments.extend(options.plain.then(|| "--plain".to_owned()));
    arguments
}

/// Executes a program with this environment. Returns only if that failed.
fn execute(program: &Path, arguments: &[String]) -> io::Result<Infallible> {
    let program = CString::new(program.as_os_str().as_bytes())?;
    let mut all = vec![program.clone()];
    for argument in arguments {
        all.push(CString::new(argument.as_bytes())?);
    }
    let argv: Vec<*const libc::c_char> =
        all.iter().map(|argument| argument.as_ptr()).chain([std::ptr::null()]).collect();
    // SAFETY: the strings end with NUL, the list ends with a null pointer, and both outlive the call.
    unsafe { libc::execv(program.as_ptr(), argv.as_ptr()) };
    Err(io::Error::last_os_error())
}
