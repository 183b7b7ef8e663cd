//! Processes: starting one cheaply, finding out what a tree of them holds, and ending it.

use crate::users::RunAs;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::OnceLock;

/// Where programs are looked for where a task's environment does not say.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Bytes of stack for the moment between clone and exec.
const CHILD_STACK_BYTES: usize = 64 << 10;

/// A process to be started. Everything that allocates is done before the clone.
pub struct Command {
    /// The files to try in turn: the program, or its places in `PATH`.
    programs: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
    /// Whom to become; absent is to stay the keeper's user.
    pub run_as: Option<RunAs>,
}

/// What the new process gets from the keeper.
pub struct Setup {
    /// For standard input.
    pub null: RawFd,
    /// For standard output.
    pub out: RawFd,
    /// For standard error.
    pub err: RawFd,
    /// Files that take a `0` from a process that joins their group.
    pub join: [Option<RawFd>; 2],
    /// Bytes of writable memory that one process may map.
    pub data_limit: Option<u64>,
    /// The keeper to die with; needed where no PID namespace does it.
    pub die_with: Option<i32>,
}

/// How a process ended and what it and those it waited for used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Exit {
    /// Which.
    pub pid: i32,
    /// The exit code, or the negated signal.
    pub status: i32,
    /// Processor time in microseconds.
    pub cpu_us: u64,
    /// Most bytes that one of them held.
    pub peak_bytes: u64,
    /// Bytes that they read from disks and wrote for them; `None` of a kernel that does not count.
    #[serde(default)]
    pub disk_bytes: Option<u64>,
}

/// What could not be done on the way to exec, and the reason.
#[derive(Debug)]
pub struct SpawnError {
    /// The step.
    pub step: &'static str,
    /// The reason.
    pub source: io::Error,
}

impl Command {
    /// A command; `env` is `NAME=value` pairs of which `PATH` serves to find the program. One without it
    /// gets ours. A NUL byte anywhere is an error.
    pub fn new<'a>(
        argv: &[String],
        env: impl Iterator<Item = (&'a str, &'a str)>,
        cwd: &str,
    ) -> Result<Command, SpawnError> {
        let nul = |_| SpawnError { step: "read the command", source: io::ErrorKind::InvalidInput.into() };
        let mut path = None;
        let mut pairs = Vec::new();
        for (name, value) in env {
            if name == "PATH" {
                path = Some(value);
            }
            pairs.push(CString::new(format!("{name}={value}")).map_err(nul)?);
        }
        if path.is_none() {
            pairs.push(CString::new(format!("PATH={PATH}")).map_err(nul)?);
        }
        let path = path.unwrap_or(PATH);
        let program = argv.first().map_or("", String::as_str);
        let programs: Vec<String> = if program.contains('/') {
            vec![program.to_owned()]
        } else {
            path.split(':')
                .map(|dir| format!("{}/{program}", if dir.is_empty() { "." } else { dir }))
                .collect()
        };
        Ok(Command {
            programs: programs.into_iter().map(CString::new).collect::<Result<_, _>>().map_err(nul)?,
            argv: argv.iter().map(|arg| CString::new(arg.as_str())).collect::<Result<_, _>>().map_err(nul)?,
            env: pairs,
            cwd: CString::new(cwd).map_err(nul)?,
            run_as: None,
        })
    }
}

impl Command {
    /// The program as it was named.
    pub fn program(&self) -> std::borrow::Cow<'_, str> {
        self.argv.first().map_or("".into(), |program| program.to_string_lossy())
    }

    /// The working directory.
    pub fn cwd(&self) -> std::borrow::Cow<'_, str> {
        self.cwd.to_string_lossy()
    }
}

/// What the child reads and writes while the keeper's thread stands still.
struct Child<'a> {
    programs: Vec<*const c_char>,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    cwd: *const c_char,
    run_as: Option<&'a RunAs>,
    setup: Setup,
    failed: Option<(&'static str, i32)>,
}

/// Starts processes; keeps the stack that they need for a moment.
pub struct Spawner {
    stack: Vec<u128>,
}

impl Spawner {
    /// A spawner.
    pub fn new() -> Self {
        Spawner { stack: vec![0; CHILD_STACK_BYTES / 16] }
    }

    /// Starts the command in a session of its own. Returns when the new program runs.
    pub fn spawn(&mut self, command: &Command, setup: Setup) -> Result<i32, SpawnError> {
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let mut child = Child {
            programs: pointers(&command.programs),
            argv: pointers(&command.argv),
            env: pointers(&command.env),
            cwd: command.cwd.as_ptr(),
            run_as: command.run_as.as_ref(),
            setup,
            failed: None,
        };
        // SAFETY: one past the end of the vector's allocation, 16-byte aligned, for a stack that
        // grows down.
        let top = unsafe { self.stack.as_mut_ptr().add(self.stack.len()) };
        // SAFETY: CLONE_VFORK holds this thread, the only one, until the child has exec'ed or exited,
        // so `child`, `command` and the stack outlive its use of them. CLONE_VM makes this as cheap as
        // posix_spawn, which cannot join control groups. The child calls nothing that allocates.
        let pid = unsafe {
            libc::clone(
                child_main,
                top.cast::<c_void>(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut child).cast::<c_void>(),
            )
        };
        if pid < 0 {
            return Err(SpawnError { step: "make a process", source: io::Error::last_os_error() });
        }
        match child.failed {
            None => Ok(pid),
            Some((step, errno)) => {
                // SAFETY: waits for the child made above, which has exited.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
                Err(SpawnError { step, source: io::Error::from_raw_os_error(errno) })
            }
        }
    }
}

/// The child between clone and exec.
extern "C" fn child_main(arg: *mut c_void) -> c_int {
    // SAFETY: `arg` is the `Child` of `spawn`, which stands still; no other reference is in use.
    let child = unsafe { &mut *arg.cast::<Child<'_>>() };
    // SAFETY: only async-signal-safe calls follow, on memory that `spawn` prepared.
    let (step, errno) = unsafe { become_task(child) };
    child.failed = Some((step, errno));
    // SAFETY: ends this process without running anything of the keeper's.
    unsafe { libc::_exit(127) }
}

/// Returns only if something failed: what, and the error number.
///
/// # Safety
/// Must run in a child that shares the parent's memory while the parent stands still.
unsafe fn become_task(child: &Child<'_>) -> (&'static str, i32) {
    let errno = || io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let setup = &child.setup;
    // SAFETY: plain system calls on valid descriptors and NUL-terminated strings.
    unsafe {
        libc::setsid();
        if let Some(keeper) = setup.die_with {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != keeper {
                return ("find its keeper", libc::ESRCH);
            }
        }
        if let Some((soft, hard)) = FILES_BEFORE.get() {
            let limit = libc::rlimit { rlim_cur: *soft, rlim_max: *hard };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        for fd in setup.join.iter().flatten() {
            if libc::write(*fd, c"0".as_ptr().cast(), 1) < 0 {
                return ("join the control group", errno());
            }
        }
        // The keeper blocks SIGCHLD and ignores SIGPIPE; the task starts with neither.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for (from, to) in [(setup.null, 0), (setup.out, 1), (setup.err, 2)] {
            if libc::dup2(from, to) < 0 {
                return ("set up its output", errno());
            }
        }
        if let Some(bytes) = setup.data_limit {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            libc::setrlimit(libc::RLIMIT_DATA, &raw const limit);
        }
        if let Some(who) = child.run_as
            && let Err(step) = become_user(who)
        {
            return (step, errno());
        }
        if let Some(keeper) = setup.die_with.filter(|_| child.run_as.is_some()) {
            // Becoming somebody else undid it.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != keeper {
                return ("find its keeper", libc::ESRCH);
            }
        }
        if libc::chdir(child.cwd) < 0 {
            return ("enter its working directory", errno());
        }
        let mut reason = libc::ENOENT;
        for program in child.programs.iter().take_while(|p| !p.is_null()) {
            libc::execve(*program, child.argv.as_ptr(), child.env.as_ptr());
            match errno() {
                // As a shell does: look further, but remember a file that may not be run.
                libc::ENOENT | libc::ENOTDIR => {}
                other => reason = other,
            }
        }
        ("start the command", reason)
    }
}

/// Gives up all that this process may do beyond what that user may.
///
/// # Safety
/// As [`become_task`]. By plain system calls: the C library's functions would look for threads of the
/// keeper's, whose memory this is.
unsafe fn become_user(who: &RunAs) -> Result<(), &'static str> {
    let ids = [(libc::SYS_setresgid, who.gid), (libc::SYS_setresuid, who.uid)];
    // SAFETY: the list of groups is in memory that stands still.
    unsafe {
        if libc::syscall(libc::SYS_setgroups, who.groups.len(), who.groups.as_ptr()) < 0 {
            return Err("join the groups of its user");
        }
        for (call, id) in ids {
            if libc::syscall(call, id, id, id) < 0 {
                return Err("become its user");
            }
        }
    }
    Ok(())
}

/// Bytes of a block in the usage that the kernel tells of ended processes.
const BLOCK_BYTES: u64 = 512;

/// Whether the kernel counts what processes read and write; the usage of ended ones is 0 where it does not.
fn counts_disk_bytes() -> bool {
    static COUNTS: OnceLock<bool> = OnceLock::new();
    *COUNTS.get_or_init(|| fs::exists("/proc/self/io").unwrap_or(false))
}

/// Collects one process that ended, if there is one.
pub fn reap() -> Option<Exit> {
    let mut status = 0;
    // SAFETY: both out-parameters are valid; a zeroed rusage is a valid one.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage), usage)
    };
    if pid <= 0 {
        return None;
    }
    let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    let status = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) };
    Some(Exit {
        pid,
        status,
        cpu_us: us(usage.ru_utime) + us(usage.ru_stime),
        peak_bytes: usage.ru_maxrss as u64 * 1024,
        disk_bytes: counts_disk_bytes().then_some((usage.ru_inblock + usage.ru_oublock) as u64 * BLOCK_BYTES),
    })
}

/// Sends a signal to a process group, or, where the leader left it, to nobody.
pub fn signal_group(leader: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(leader) {
        _ = kill_process_group(pid, signal);
    }
}

/// Sends a signal to one process.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        _ = kill_process(pid, signal);
    }
}

/// Kills one process.
pub fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}

/// Bytes of memory that these processes hold together, by the `/proc` there; shared pages count for each.
pub fn resident_bytes(proc: &Path, pids: &[i32]) -> u64 {
    let page = rustix::param::page_size() as u64;
    let pages = pids.iter().filter_map(|pid| {
        let text = fs::read_to_string(proc.join(format!("{pid}/statm"))).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    });
    pages.sum::<u64>() * page
}

/// The limit of open files that this process was started with, soft and hard.
static FILES_BEFORE: OnceLock<(u64, u64)> = OnceLock::new();

/// Lets this process open as many files as it may; its tasks get the limit that it was started with.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let infinity = libc::RLIM_INFINITY;
    _ = FILES_BEFORE.set((current.unwrap_or(infinity), maximum.unwrap_or(infinity)));
    _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The limit of open files that tasks get, once it is known.
pub fn files_before() -> Option<(u64, u64)> {
    FILES_BEFORE.get().copied()
}

/// Says what limit of open files tasks get, where this process does not know it itself.
pub fn set_files_before(limits: (u64, u64)) {
    _ = FILES_BEFORE.set(limits);
}

/// Closes everything but standard input, output and error: what the caller happened to have open,
/// locks and pipes among it, must not live as long as we do.
pub fn close_inherited() {
    // SAFETY: called before this process has opened anything; no descriptor in use is above 2.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

/// The processes of a task, where no control group tells: descendants of `root`, members of its
/// session, and whoever carries `marker` (`NAME=value`) in its environment, wherever it went. Never
/// this process.
pub fn tree(root: Option<i32>, marker: &str) -> Vec<i32> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in parentheses may hold anything, so fields are counted from behind it.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|text| text.parse::<i32>().ok()).unwrap_or(0);
        if fields.first() != Some(&"Z") {
            all.push((pid, number(1), number(3)));
        }
    }
    let own = std::process::id() as i32;
    all.retain(|(pid, ..)| *pid != own);
    let mut tree: BTreeSet<i32> = root.into_iter().collect();
    let mut grown = true;
    while std::mem::take(&mut grown) {
        for (pid, parent, session) in &all {
            let ours = tree.contains(parent) || tree.contains(session);
            if !tree.contains(pid) && (ours || has_marker(*pid, marker)) {
                grown |= tree.insert(*pid);
            }
        }
    }
    let alive: BTreeSet<i32> = all.iter().map(|(pid, ..)| *pid).collect();
    tree.intersection(&alive).copied().collect()
}

fn has_marker(pid: i32, marker: &str) -> bool {
    environ_has(pid, |pair| pair == marker.as_bytes())
}

/// True if a variable that the process was started with satisfies `is_it`.
pub fn environ_has(pid: i32, is_it: impl Fn(&[u8]) -> bool) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(is_it)
}

/// When a process started, in clock ticks since boot: with its number this names it for good.
pub fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()
}
