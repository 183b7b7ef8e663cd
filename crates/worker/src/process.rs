//! Processes: how a new one becomes its program, and how the keeper measures, signals and collects a tree of them.
//! `keeper`, `launcher` and `spawn` call this module; it does not know of tasks.

use crate::syscall::system_call;
use crate::users::RunAs;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, dup2, fcntl_dupfd_cloexec};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// `PATH` of a task whose environment has none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The shell that runs a script without `#!`, as execvp(3) has it.
const SHELL: &CStr = c"/bin/sh";
/// Bytes at the beginning of a file that tell a script from a program of another machine. bash reads as many.
const SCRIPT_BEGIN_BYTES: usize = 80;
/// The error that stands for a program that is there, and whose interpreter is not. The kernel does not use its number.
pub const NO_INTERPRETER: Errno = Errno::LIBACC;
/// Number of the last signal of Linux.
const SIGNAL_MAX: i32 = 64;

/// The descriptors by which a task reaches its jobserver. Shells put files of scripts below 10 and their own in any free
/// place above, so these are in nobody's way.
pub const JOBSERVER_FDS: [RawFd; 2] = [40, 41];

/// A command to be executed by a new process.
#[derive(Clone)]
pub struct Command {
    /// The files to try in turn (the program, or its places in `PATH`), the arguments, the environment and the working
    /// directory, each with a NUL byte behind it. This is one block because a launch sends it to another process.
    texts: Vec<u8>,
    /// How many files, arguments and variables there are.
    counts: [usize; 3],
    /// The user to become; `None` to stay the keeper's user.
    pub run_as: Option<RunAs>,
    /// Permissions that files which it makes lack; `None` for the keeper's own umask.
    pub umask: Option<u32>,
    /// Files to write first, in this order.
    pub files: Vec<NewFile>,
    /// Its standard input; `None` for an empty one.
    pub stdin: Option<Rc<File>>,
}

/// The texts of a command in the form in which the kernel takes them. They point into the command.
pub struct TextPointers {
    programs: Vec<*const c_char>,
    /// This and `env` end with a null pointer, as execve(2) wants them.
    argv: Vec<*const c_char>,
    /// The arguments of a shell that runs the program as a script: the shell, a place for the program, the program's own
    /// arguments, and a null pointer.
    script_argv: Vec<Cell<*const c_char>>,
    env: Vec<*const c_char>,
    cwd: *const c_char,
}

/// A file that a process writes before it becomes its program. It is written with its user's rights, because
/// the directory is the user's: whatever the user put there leads nowhere that the user could not write to.
#[derive(Clone)]
pub struct NewFile {
    /// Path of the file. Its directory is created if it does not exist.
    pub path: PathBuf,
    pub text: String,
    /// Whether its user may execute it.
    pub runnable: bool,
    /// Whether a file that exists is kept as it is.
    pub once: bool,
}

/// The keeper's descriptors and limits for a new process.
#[derive(Clone, Copy)]
pub struct Setup {
    pub null: RawFd,
    /// Standard input; `None` for `null`.
    pub stdin: Option<RawFd>,
    pub out: RawFd,
    pub err: RawFd,
    /// Directory of the first of these groups, in which the launcher can make the process.
    pub group: Option<RawFd>,
    /// Files of control groups into which the process writes `0` to join.
    pub join: [Option<RawFd>; 3],
    /// The ends of its jobserver to read and to write, which it inherits as [`JOBSERVER_FDS`].
    pub jobserver: Option<[RawFd; 2]>,
    /// Bytes of writable memory that one process may map.
    pub data_limit: Option<u64>,
    /// The keeper's process, if the new one must die with it because no PID namespace sees to that.
    pub die_with: Option<i32>,
}

/// How a process ended, and what it and the children that it waited for used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Exit {
    pub pid: i32,
    /// Exit code, or the negated signal number.
    pub status: i32,
    pub cpu_us: u64,
    /// Resident bytes of the largest of these processes.
    pub peak_bytes: u64,
    /// Bytes that they read from disks and wrote to them; `None` if the kernel does not count.
    #[serde(default)]
    pub disk_bytes: Option<u64>,
}

/// The step at which a process failed to become its program, and the error.
#[derive(Debug)]
pub struct SpawnError {
    pub step: Step,
    pub source: io::Error,
}

/// A step between fork and exec. A report has its index in [`Step::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Reading the command as a request of the keeper.
    Read,
    /// Making the process, or setting up its session, groups, files and limits.
    Make,
    /// Taking over the numbers and groups of its user.
    BecomeUser,
    /// Writing the files of its session.
    WriteFiles,
    /// Entering its working directory.
    EnterDir,
    /// Executing its program, after all other steps.
    Execute,
}

impl Step {
    /// All steps, in the order of their numbers in a report.
    pub const ALL: [Step; 6] =
        [Step::Read, Step::Make, Step::BecomeUser, Step::WriteFiles, Step::EnterDir, Step::Execute];
}

impl Command {
    /// A command with the environment `env`, whose `PATH` also serves to find the program. Without one it
    /// gets [`PATH`]. A NUL byte in any text is an error.
    pub fn new<'a>(
        argv: &[String],
        env: impl Iterator<Item = (&'a str, &'a str)>,
        cwd: &str,
    ) -> Result<Command, SpawnError> {
        let mut texts = Texts(Vec::with_capacity(4096));
        let program = argv.first().map_or("", String::as_str);
        let env: Vec<(&str, &str)> = env.collect();
        let path = env.iter().rev().find(|(name, _)| *name == "PATH").map(|(_, path)| *path);
        let mut counts = [1, argv.len(), env.len()];
        if program.contains('/') {
            texts.push(&[program])?;
        } else {
            counts[0] = 0;
            for dir in path.unwrap_or(PATH).split(':') {
                texts.push(&[if dir.is_empty() { "." } else { dir }, "/", program])?;
                counts[0] += 1;
            }
        }
        for arg in argv {
            texts.push(&[arg])?;
        }
        for (name, value) in env {
            texts.push(&[name, "=", value])?;
        }
        if path.is_none() {
            texts.push(&["PATH=", PATH])?;
            counts[2] += 1;
        }
        texts.push(&[cwd])?;
        Ok(Command { texts: texts.0, counts, run_as: None, umask: None, files: Vec::new(), stdin: None })
    }

    /// The command with files to write first.
    pub fn writing(self, files: Vec<NewFile>) -> Command {
        Command { files, ..self }
    }

    /// All texts, each with a NUL byte behind it, and how many of them are files to try, arguments and variables. The
    /// last one is the working directory.
    pub fn packed(&self) -> (&[u8], [usize; 3]) {
        (&self.texts, self.counts)
    }

    /// The inverse of [`Command::packed`], with the user to become. `None` if the counts are not those of the texts.
    pub fn from_packed(texts: Vec<u8>, counts: [usize; 3], run_as: Option<RunAs>) -> Option<Command> {
        let found = texts.iter().filter(|byte| **byte == 0).count();
        let counted = counts.iter().try_fold(1_usize, |sum, count| sum.checked_add(*count))?;
        let is_whole = texts.last() == Some(&0) && found == counted;
        is_whole.then_some(Command { texts, counts, run_as, umask: None, files: Vec::new(), stdin: None })
    }

    /// The texts as the kernel takes them. They are valid for as long as the command is not changed; it may be moved.
    pub fn pointers(&self) -> TextPointers {
        let mut rest =
            self.texts.split_inclusive(|byte| *byte == 0).map(|text| text.as_ptr().cast::<c_char>());
        let [programs, argv, env] = self.counts;
        let mut list = |count: usize, end: bool| {
            let mut list = Vec::with_capacity(count + 1);
            list.extend(rest.by_ref().take(count));
            list.extend(end.then_some(std::ptr::null()));
            list
        };
        let (programs, argv, env) = (list(programs, false), list(argv, true), list(env, true));
        // A command always has a last text.
        let cwd = rest.next().unwrap_or(c".".as_ptr());
        let own = argv.iter().skip(1).copied().filter(|text| !text.is_null());
        let script_argv = [SHELL.as_ptr(), SHELL.as_ptr()].into_iter().chain(own).chain([std::ptr::null()]);
        let script_argv = script_argv.map(Cell::new).collect();
        TextPointers { programs, argv, script_argv, env, cwd }
    }

    /// The program as it was named, and the working directory.
    pub fn texts(&self) -> (String, String) {
        let mut all = self.texts.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let [programs, argv, env] = self.counts;
        let program = all.nth(programs).filter(|_| argv > 0).unwrap_or_default().into_owned();
        let cwd = all.nth((argv + env).saturating_sub(1)).unwrap_or_default().into_owned();
        (program, cwd)
    }
}

/// Texts with a NUL byte behind each.
struct Texts(Vec<u8>);

impl Texts {
    /// Adds a text that is made of these parts. A NUL byte in one is an error.
    fn push(&mut self, parts: &[&str]) -> Result<(), SpawnError> {
        for part in parts {
            if part.as_bytes().contains(&0) {
                return Err(SpawnError { step: Step::Read, source: io::ErrorKind::InvalidInput.into() });
            }
            self.0.extend_from_slice(part.as_bytes());
        }
        self.0.push(0);
        Ok(())
    }
}

/// Reports the step at which a process failed and why, and exits without running any code of the keeper's.
pub fn report_and_end(report: RawFd, (step, error): (Step, Errno)) -> ! {
    let [a, b, c, d] = error.raw_os_error().to_le_bytes();
    // SAFETY: the descriptor is open. A write to a pipe without a reader only fails.
    unsafe {
        _ = rustix::io::write(BorrowedFd::borrow_raw(report), &[step as u8, a, b, c, d]);
        libc::_exit(127)
    }
}

/// Turns this process into the launcher. It gets what all tasks are to inherit from it.
pub fn settle_launcher(socket: BorrowedFd<'_>, die_with_keeper: Option<i32>) {
    if die_with(die_with_keeper).is_err() {
        return;
    }
    keep_only(socket);
    take_what_tasks_share();
    OOM_PROTECTED.store(false, Ordering::Relaxed);
    IS_LAUNCHER.store(true, Ordering::Relaxed);
}

/// Closes all descriptors of a new process but this one, and gives it `/dev/null` as its standard files: a reader of the
/// keeper's output must not wait for it.
pub fn keep_only(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd() as u32;
    // SAFETY: this process uses no descriptors but the standard ones and that one.
    unsafe {
        libc::syscall(libc::SYS_close_range, kept + 1, u32::MAX, 0);
        if kept > 3 {
            libc::syscall(libc::SYS_close_range, 3, kept - 1, 0);
        }
    }
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        _ = rustix::stdio::dup2_stdin(&null);
        _ = rustix::stdio::dup2_stdout(&null);
        _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Ignores all signals of this process that can be ignored, but for those of its children's ends.
pub fn ignore_signals() {
    for signal in (1..=SIGNAL_MAX).filter(|signal| *signal != libc::SIGCHLD) {
        // SAFETY: no handler is installed. Those that cannot be ignored are refused.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Waits until this child has ended.
pub fn wait_for(child: i32) {
    // SAFETY: nothing is written without a status.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Sets what all tasks have in common: the effect of signals, the limit of open files that the worker was started with, no
/// core files, and no protection from the kernel's out-of-memory killer.
fn take_what_tasks_share() {
    reset_signals();
    if let Some(limits) = files_before() {
        _ = lower_file_limit(limits);
    }
    if OOM_PROTECTED.load(Ordering::Relaxed) {
        // The namespace may lack this file.
        _ = fs::write("/proc/self/oom_score_adj", "0");
    }
    // Core files would fill the disk of the working directory. A task that wants them may raise the limit.
    let core = rustix::process::getrlimit(rustix::process::Resource::Core);
    _ = rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(0), ..core },
    );
}

/// Gives every signal its default effect and blocks none. A program inherits what was ignored or blocked when the worker was
/// started, such as SIGHUP under nohup, and a shell cannot trap a signal that it inherits ignored.
fn reset_signals() {
    // The kernel's sigaction and its set of signals. Zeros are SIG_DFL and no signal, on every machine.
    let (default, none) = ([0_u64; 4], 0_u64);
    let set_bytes = size_of_val(&none);
    for signal in (1..=SIGNAL_MAX).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        // SAFETY: the kernel reads the action, which is at least as long as its own. The C library would refuse the signals that
        // it keeps for itself.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const default,
                std::ptr::null::<u64>(),
                set_bytes,
            )
        };
    }
    // SAFETY: the kernel reads the set.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null::<u64>(),
            set_bytes,
        )
    };
}

/// Forks a process that acts with a user's rights, and returns its number without waiting for it. Its accesses to the
/// user's files can take for ever.
pub fn aside(who: Option<&RunAs>, act: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: this process has one thread, so its child may run any code.
    match unsafe { libc::fork() } {
        0 => {
            let act = AssertUnwindSafe(|| {
                if who.is_none_or(|who| become_user(who).is_ok()) {
                    act();
                }
            });
            _ = std::panic::catch_unwind(act);
            // SAFETY: ends this process without running any code of the keeper's.
            unsafe { libc::_exit(0) }
        }
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Turns a new process into its program, in memory of its own or in the launcher's. In the launcher's memory
/// it must allocate nothing and leave no error in `errno`. Writing files allocates, so the launcher gets no
/// command with files. Returns only if a step failed.
pub fn become_program(command: &Command, setup: &Setup, texts: &TextPointers) -> (Step, Errno) {
    if let Err(error) = prepare(setup) {
        return (Step::Make, error);
    }
    if let Some(who) = &command.run_as {
        if let Err(error) = become_user(who) {
            return (Step::BecomeUser, error);
        }
        // A change of user clears the parent-death signal.
        if let Err(error) = die_with(setup.die_with) {
            return (Step::Make, error);
        }
    }
    for file in &command.files {
        if let Err(error) = write_file(file) {
            return (Step::WriteFiles, Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
    }
    // SAFETY: the directory is a NUL-terminated string of the command.
    if let Err(error) = rustix::process::chdir(unsafe { CStr::from_ptr(texts.cwd) }) {
        return (Step::EnterDir, error);
    }
    // After the files of its session, which have modes of their own.
    if let Some(umask) = command.umask {
        rustix::process::umask(Mode::from_raw_mode(umask));
    }
    let mut reason = Errno::NOENT;
    for program in &texts.programs {
        // SAFETY: the program is a NUL-terminated string of the command, and the lists end with a null pointer.
        match unsafe { execve(*program, texts.argv.as_ptr(), texts.env.as_ptr()) } {
            // As in a shell: a file that is missing in one place is looked for in the next, but another error
            // is remembered.
            Errno::NOENT | Errno::NOTDIR => {}
            // SAFETY: as above.
            Errno::NOEXEC => return (Step::Execute, unsafe { run_as_script(*program, texts) }),
            other => reason = other,
        }
    }
    // SAFETY: as above.
    (Step::Execute, unsafe { explain(reason, &texts.programs) })
}

/// Sets up a new process: its session, group, limits and standard files.
fn prepare(setup: &Setup) -> rustix::io::Result<()> {
    // A new process leads no group, so this cannot fail.
    _ = rustix::process::setsid();
    die_with(setup.die_with)?;
    // A process that the launcher makes inherits these.
    if !IS_LAUNCHER.load(Ordering::Relaxed) {
        take_what_tasks_share();
    }
    for fd in setup.join.iter().flatten() {
        // SAFETY: this process inherited the descriptor and has not closed it.
        rustix::io::write(unsafe { BorrowedFd::borrow_raw(*fd) }, b"0")?;
    }
    // SAFETY: this process inherited the descriptors and has not closed them.
    unsafe {
        rustix::stdio::dup2_stdin(BorrowedFd::borrow_raw(setup.stdin.unwrap_or(setup.null)))?;
        rustix::stdio::dup2_stdout(BorrowedFd::borrow_raw(setup.out))?;
        rustix::stdio::dup2_stderr(BorrowedFd::borrow_raw(setup.err))?;
    }
    if let Some(ends) = setup.jobserver {
        inherit_jobserver(ends)?;
    }
    if let Some(bytes) = setup.data_limit {
        let limit = rustix::process::Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::setrlimit(rustix::process::Resource::Data, limit)?;
    }
    Ok(())
}

/// Gives a new process the descriptors of its jobserver. Its other descriptors were used before, so one that has such a
/// number may go.
fn inherit_jobserver(ends: [RawFd; 2]) -> rustix::io::Result<()> {
    // Each may have the number of the other, so both are moved out of the way first.
    let above = JOBSERVER_FDS[1] + 1;
    // SAFETY: this process inherited the descriptors and has not closed them.
    let [read, write] = ends.map(|fd| fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, above));
    for (end, number) in [read?, write?].iter().zip(JOBSERVER_FDS) {
        // SAFETY: nothing in this process owns the number, and nothing closes it before the program runs.
        let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        dup2(end, &mut target)?;
    }
    Ok(())
}

/// Makes the kernel kill this process when the keeper ends. An error if the keeper has ended already.
fn die_with(keeper: Option<i32>) -> rustix::io::Result<()> {
    let Some(keeper) = keeper else { return Ok(()) };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    match rustix::process::getppid() {
        Some(parent) if parent.as_raw_pid() == keeper => Ok(()),
        _ => Err(Errno::SRCH),
    }
}

/// Gives up all rights beyond those of that user.
fn become_user(who: &RunAs) -> rustix::io::Result<()> {
    let call = |number: libc::c_long, a: usize, b: usize, c: usize| {
        // SAFETY: the arguments are numbers, or the address and length of a list that outlives the call.
        let result = unsafe { system_call(number, a, b, c) };
        if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(()) }
    };
    let (uid, gid) = (who.uid as usize, who.gid as usize);
    call(libc::SYS_setgroups, who.groups.len(), who.groups.as_ptr() as usize, 0)?;
    call(libc::SYS_setresgid, gid, gid, gid)?;
    call(libc::SYS_setresuid, uid, uid, uid)
}

/// Executes a program; returns only the error.
///
/// # Safety
/// The arguments must be as execve(2) requires.
unsafe fn execve(program: *const c_char, argv: *const *const c_char, env: *const *const c_char) -> Errno {
    // SAFETY: promised by the caller.
    let result = unsafe { system_call(libc::SYS_execve, program as usize, argv as usize, env as usize) };
    Errno::from_raw_os_error(-result as i32)
}

/// The error of a program that could not be executed. Of a directory, and of a file whose interpreter is missing, the
/// kernel says what it says of other files.
///
/// # Safety
/// The programs must be NUL-terminated strings.
unsafe fn explain(error: Errno, programs: &[*const c_char]) -> Errno {
    let found = programs.iter().find_map(|program| {
        // SAFETY: promised by the caller.
        let found = rustix::fs::stat(unsafe { CStr::from_ptr(*program) }).ok()?;
        Some(FileType::from_raw_mode(found.st_mode))
    });
    match (error, found) {
        (Errno::NOENT, Some(FileType::RegularFile)) => NO_INTERPRETER,
        (Errno::ACCESS, Some(FileType::Directory)) => Errno::ISDIR,
        (error, _) => error,
    }
}

/// Lets the shell run a file that the kernel does not know how to execute, as execvp(3) does; returns only the error. A file
/// without a script in it, such as a program of another machine, would only make the shell complain of its bytes.
///
/// # Safety
/// The program must be a NUL-terminated string, and the lists of `texts` as execve(2) requires.
unsafe fn run_as_script(program: *const c_char, texts: &TextPointers) -> Errno {
    // SAFETY: promised by the caller.
    if !is_script(unsafe { CStr::from_ptr(program) }) {
        return Errno::NOEXEC;
    }
    if let Some(place) = texts.script_argv.get(1) {
        place.set(program);
    }
    // SAFETY: promised by the caller; a cell has the layout of what it holds.
    unsafe { execve(SHELL.as_ptr(), texts.script_argv.as_ptr().cast(), texts.env.as_ptr()) }
}

/// Whether the first line of a file has no NUL byte, as bash decides it.
fn is_script(program: &CStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut begin = [0_u8; SCRIPT_BEGIN_BYTES];
    let Ok(file) = rustix::fs::open(program, flags, Mode::empty()) else { return false };
    let Ok(bytes) = rustix::io::read(&file, &mut begin) else { return false };
    begin.iter().take(bytes).take_while(|byte| **byte != b'\n').all(|byte| *byte != 0)
}

/// Writes the file, and creates its directory. It never follows a symbolic link at the file's own name.
pub fn write_file(file: &NewFile) -> io::Result<()> {
    if let Some(dir) = file.path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(if file.runnable { 0o700 } else { 0o600 });
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    if file.once && file.path.exists() {
        return Ok(());
    }
    options.open(&file.path)?.write_all(file.text.as_bytes())
}

/// Unit of the disk traffic that the kernel reports of ended processes, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Whether the kernel counts disk traffic. Where it does not, it reports 0 of ended processes.
fn counts_disk_bytes() -> bool {
    static COUNTS: OnceLock<bool> = OnceLock::new();
    *COUNTS.get_or_init(|| fs::exists("/proc/self/io").unwrap_or(false))
}

/// Collects one child that has ended; `None` if there is none.
pub fn reap() -> Option<Exit> {
    let mut status = 0;
    // SAFETY: both out-parameters are valid, and all zeros are a valid rusage.
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

/// Sends a signal to a process group. Nothing happens if the group is empty.
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

pub fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}

/// Whether the kernel ends this process only after others for want of memory.
static OOM_PROTECTED: AtomicBool = AtomicBool::new(false);

/// Whether this process is the launcher, whose limits all processes that it makes inherit.
static IS_LAUNCHER: AtomicBool = AtomicBool::new(false);

/// Asks the kernel to end this process last for want of memory, as far as this user may ask, because all
/// tasks end with the keeper.
pub fn protect_from_oom() {
    const FILE: &str = "/proc/self/oom_score_adj";
    _ = fs::write(FILE, "-900");
    let now = fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    OOM_PROTECTED.store(now.is_some_and(|now| now < 0), Ordering::Relaxed);
}

/// Soft and hard limit of open files that tasks get: the limit that the keeper was started with.
static FILES_BEFORE: OnceLock<(u64, u64)> = OnceLock::new();

/// Raises this process's limit of open files as far as possible. Its tasks get the limit that it was started with.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let infinity = libc::RLIM_INFINITY;
    _ = FILES_BEFORE.set((current.unwrap_or(infinity), maximum.unwrap_or(infinity)));
    _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Soft and hard limit of open files that tasks get; `None` before [`raise_file_limit`].
pub fn files_before() -> Option<(u64, u64)> {
    FILES_BEFORE.get().copied()
}

/// Takes this process's limit of open files back to that of tasks. For a new process that is to become the keeper: it would
/// take the raised limit for the one that it was started with.
pub fn lower_file_limit((soft, hard): (u64, u64)) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the pointer is to a valid limit.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the limit of open files that tasks get, in a program that did not start this process.
pub fn set_files_before(limits: (u64, u64)) {
    _ = FILES_BEFORE.set(limits);
}

/// Lets this process wait for its children. It could not if it was started with SIGCHLD ignored: the kernel then throws away
/// how they end.
pub fn heed_children() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Closes all descriptors but standard input, output and error. Locks and pipes of the caller must not live
/// as long as this process.
pub fn close_inherited() {
    // SAFETY: called before this process has opened anything, so no descriptor above 2 has an owner here.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
}

/// The processes of a task, where no control group lists them: descendants of `root`, members of its session,
/// and processes with `marker` (`NAME=value`) in their environment, wherever they went. Never this process.
pub fn tree(root: Option<i32>, marker: &str) -> Vec<i32> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name in parentheses may contain anything, so fields are counted from behind it.
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
            if !tree.contains(pid) && (ours || environ_has(*pid, |pair| pair == marker.as_bytes())) {
                grown |= tree.insert(*pid);
            }
        }
    }
    let alive: BTreeSet<i32> = all.iter().map(|(pid, ..)| *pid).collect();
    tree.intersection(&alive).copied().collect()
}

/// How many of these processes and their threads can do work of their own. A process that has children waits for them, so
/// of it only the threads beyond the first count.
pub fn workers(pids: &[i32]) -> u32 {
    let all: Vec<(i32, i32, u32)> = pids.iter().filter_map(|pid| parent_and_threads(*pid)).collect();
    let parents: BTreeSet<i32> = all.iter().map(|(_, parent, _)| *parent).collect();
    let each = all.iter().map(|(pid, _, threads)| threads.saturating_sub(u32::from(parents.contains(pid))));
    each.sum()
}

/// A process with its parent and the number of its threads; `None` if there is no such process.
fn parent_and_threads(pid: i32) -> Option<(i32, i32, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    Some((pid, fields.get(1)?.parse().ok()?, fields.get(17)?.parse().ok()?))
}

/// Whether a variable of the environment that the process was started with satisfies `is_it`.
pub fn environ_has(pid: i32, is_it: impl Fn(&[u8]) -> bool) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(is_it)
}

/// Start of a process, in clock ticks since boot; `None` if there is no such process. Together with the
/// number it names a process for good.
pub fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()
}

/// Identifies the executable of this process by device, inode and modification time, whatever its path is now.
pub fn program_of_this_process() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata("/proc/self/exe").ok()?;
    Some(format!("{}:{}:{}:{}", file.dev(), file.ino(), file.mtime(), file.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead as _;

    #[test]
    fn a_process_that_waits_for_its_children_does_no_work() {
        let script = "sleep 600 & echo $!; wait";
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell.args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        io::BufReader::new(shell.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let child: i32 = said.trim().parse().unwrap();
        let own = shell.id() as i32;
        assert_eq!(workers(&[own, child]), 1, "the shell waits");
        assert_eq!(workers(&[own]), 1, "without children it would work");
        assert_eq!((workers(&[]), workers(&[i32::MAX])), (0, 0));
        kill(child);
        kill(own);
        shell.wait().unwrap();
    }
}
