//! The launcher: a small process that makes processes for the keeper. `fork` copies the page tables of its
//! caller, which for a keeper are large. The launcher instead shares its memory with a new process
//! (`CLONE_VM`) until that process executes its program, and waits for none of them. The processes are the
//! keeper's children all the same (`CLONE_PARENT`).
//!
//! The keeper must not share its own memory. If a process exceeds the memory limit of its group, the kernel
//! may end every process that shares its memory, and a task can bring that about on the way to its program.
//! The kernel then ends the launcher, and the keeper starts another. Where there is no launcher, or a command
//! is too large for a request, the keeper forks by itself.
//!
//! A process that shares the launcher's memory allocates nothing. Its system calls bypass the C library where
//! they may fail, because another process would overwrite `errno`.

use crate::mask::Mask;
use crate::process::{
    self, Command, Setup, SpawnError, Step, TextPointers, become_program, report_and_end, settle_launcher,
};
use crate::syscall::{clone, clone_into};
use crate::users::RunAs;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::ffi::c_void;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// Bytes of one request, so that it fits into a socket's buffer.
const REQUEST_BYTES_MAX: usize = 96 << 10;
/// Descriptors of one request: standard output and error, the report, the group to begin in, three groups to join, two of
/// a jobserver, and standard input where it is not the launcher's own, which is `/dev/null`.
const FDS_MAX: usize = 10;
/// How long a launcher may take to cover what its processes are not to see. A file that it covers may be on a file
/// server that does not answer, and the keeper waits.
const MASK_MAX: Duration = Duration::from_secs(5);

/// The keeper's end of the launcher.
pub struct Launcher {
    socket: OwnedFd,
    /// Whether the launcher failed to answer. The kernel may have ended it for want of memory.
    gone: Cell<bool>,
}

impl Launcher {
    /// Starts a launcher, whose processes do not see what `mask` covers. `die_with` is the keeper's process where no
    /// namespace ends the launcher with it.
    ///
    /// # Errors
    /// If there is no launcher, because the covers cannot be laid or for another reason.
    pub fn start(die_with: Option<i32>, mask: Option<&Mask>) -> io::Result<Launcher> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // SAFETY: this process has one thread, so the child may run any code.
        match unsafe { libc::fork() } {
            0 => {
                drop(ours);
                _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    if mask.is_none_or(|mask| lay(mask, &theirs)) {
                        serve(&theirs, die_with);
                    }
                }));
                // SAFETY: ends this process without running any code of the keeper's.
                unsafe { libc::_exit(0) }
            }
            pid if pid < 0 => Err(io::Error::last_os_error()),
            pid => {
                drop(theirs);
                if mask.is_some()
                    && let Err(e) = hear_of_mask(&ours)
                {
                    process::kill(pid);
                    return Err(e);
                }
                Ok(Launcher { socket: ours, gone: Cell::new(false) })
            }
        }
    }

    /// Makes a process that reports through `report` how its start went. `None` if the launcher is gone, or
    /// if [`encode`] refuses the command.
    pub fn spawn(
        &self,
        command: &Command,
        setup: &Setup,
        report: BorrowedFd<'_>,
    ) -> Option<Result<i32, SpawnError>> {
        let request = encode(command, setup)?;
        let answered = self.ask(&request, setup, report);
        self.gone.set(answered.is_none());
        answered
    }

    /// Whether another launcher has to be started.
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    fn ask(&self, request: &[u8], setup: &Setup, report: BorrowedFd<'_>) -> Option<Result<i32, SpawnError>> {
        let raw = [Some(setup.out), Some(setup.err), Some(report.as_raw_fd())];
        let raw = raw.into_iter().chain([setup.group]).chain(setup.join).flatten();
        let raw: Vec<RawFd> = raw.chain(setup.jobserver.into_iter().flatten()).chain(setup.stdin).collect();
        // SAFETY: the keeper keeps all of these descriptors open while this borrows them.
        let fds: Vec<BorrowedFd<'_>> = raw.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&self.socket, &[IoSlice::new(request)], &mut control, SendFlags::NOSIGNAL).ok()?;
        let mut answer = [0; 4];
        // The launcher waits for nothing that a user controls, so it answers at once or is gone.
        let (bytes, _) = recv(&self.socket, &mut answer, RecvFlags::empty()).ok()?;
        match i32::from_le_bytes(answer) {
            _ if bytes != answer.len() => None,
            pid if pid > 0 => Some(Ok(pid)),
            error => {
                let source = io::Error::from_raw_os_error(-error);
                Some(Err(SpawnError { step: Step::Make, source }))
            }
        }
    }
}

/// Covers what the launcher's processes are not to see, and tells the keeper how that went. False if it failed.
fn lay(mask: &Mask, socket: &OwnedFd) -> bool {
    let entered = mask.enter();
    let error = entered.as_ref().map_or_else(|e| e.raw_os_error().unwrap_or(libc::EIO), |()| 0);
    let told = send(socket, &error.to_le_bytes(), SendFlags::NOSIGNAL);
    entered.is_ok() && told.is_ok()
}

/// Receives the launcher's report that [`lay`] sends.
fn hear_of_mask(socket: &OwnedFd) -> io::Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(MASK_MAX))?;
    let mut told = [0; 4];
    let (bytes, _) = recv(socket, &mut told, RecvFlags::empty())?;
    set_socket_timeout(socket, Timeout::Recv, None)?;
    match i32::from_le_bytes(told) {
        _ if bytes != told.len() => Err(io::ErrorKind::UnexpectedEof.into()),
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The launcher's loop, which ends with the keeper.
fn serve(socket: &OwnedFd, die_with: Option<i32>) {
    settle_launcher(socket.as_fd(), die_with);
    let mut request = vec![0; REQUEST_BYTES_MAX];
    // Never freed: a process that is on the way to its program when the launcher ends still uses its slot.
    let mut made = ManuallyDrop::new(Made { slots: Vec::new(), begins_in_groups: true });
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(socket, &mut [IoSliceMut::new(&mut request)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let Ok(received) = received else { return };
        if received.bytes == 0 || received.flags.contains(ReturnFlags::TRUNC) {
            return;
        }
        let mut fds = Vec::with_capacity(FDS_MAX);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                fds.extend(some);
            }
        }
        let answer = match decode(&request[..received.bytes], &fds) {
            Some((command, setup, report)) => made.make(command, setup, report),
            None => -libc::EINVAL,
        };
        // Closed before the keeper hears of the process: the report's pipe must end as soon as that process closes it.
        drop(fds);
        if send(socket, &answer.to_le_bytes(), SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}

/// The launch slots, whose memory the new processes use until they execute their programs.
struct Made {
    #[expect(clippy::vec_box, reason = "the kernel has the address of each")]
    slots: Vec<Box<LaunchSlot>>,
    /// Whether processes can begin in their groups. Where they cannot, they join them.
    begins_in_groups: bool,
}

/// Processes that may be between clone and their program at a time, because each has a stack.
const SLOTS_MAX: usize = 4_096;
/// Bytes of such a stack.
const STACK_BYTES: usize = 64 << 10;

/// Memory of one new process.
struct LaunchSlot {
    /// 0 if the slot is free, -1 while a process uses it. The kernel sets it to 0 when that process stops
    /// sharing this memory (`CLONE_CHILD_CLEARTID`).
    pid: AtomicI32,
    stack: Vec<u128>,
    task: Option<Task>,
}

/// The program of a new process, in the form in which the kernel takes it.
struct Task {
    command: Command,
    setup: Setup,
    report: RawFd,
    texts: TextPointers,
}

impl Made {
    /// Makes a process; returns its number, or a negated error number.
    fn make(&mut self, command: Command, setup: Setup, report: RawFd) -> i32 {
        let free = self.slots.iter().position(|slot| slot.pid.load(Ordering::Acquire) == 0);
        let place = match free {
            Some(place) => place,
            None if self.slots.len() >= SLOTS_MAX => return -libc::EAGAIN,
            None => {
                let stack = vec![0; STACK_BYTES / size_of::<u128>()];
                self.slots.push(Box::new(LaunchSlot { pid: AtomicI32::new(0), stack, task: None }));
                self.slots.len() - 1
            }
        };
        let group = setup.group.filter(|_| self.begins_in_groups);
        let joined = setup.join[0];
        // A process that begins in its group does not join it.
        let [_, memory, cpu] = setup.join;
        let setup = if group.is_some() { Setup { join: [None, memory, cpu], ..setup } } else { setup };
        let slot = &mut *self.slots[place];
        let texts = command.pointers();
        slot.task = Some(Task { command, setup, report, texts });
        if let Some(group) = group {
            let made = slot.make(Some(group));
            if made > 0 || matches!(-made, libc::EAGAIN | libc::ENOMEM) {
                return made;
            }
            // An old kernel, or a sandbox that refuses clone3.
            self.begins_in_groups = false;
            if let Some(task) = &mut slot.task {
                task.setup.join[0] = joined;
            }
        }
        slot.make(None)
    }
}

impl LaunchSlot {
    /// Makes a process of the slot's task, in `group` if one is given; returns its number, or a negated error number.
    fn make(&mut self, group: Option<RawFd>) -> i32 {
        // The slot is in use before the process exists.
        self.pid.store(-1, Ordering::Release);
        let flags = libc::CLONE_VM | libc::CLONE_PARENT | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        let task = self.task.as_mut().map_or(std::ptr::null_mut(), |task| &raw mut *task).cast();
        let stack = self.stack.as_mut_ptr_range();
        let (stack, pid) = (stack.start.cast()..stack.end.cast(), self.pid.as_ptr());
        // SAFETY: the stack, the task and the number stay in place, reserved for the new process, until the
        // kernel sets the number to 0. The ends of the stack are aligned.
        let made = unsafe {
            match group {
                Some(group) => clone_into(group, go, stack, flags, task, pid),
                None => clone(go, stack.end, flags, task, pid),
            }
        };
        if made < 0 {
            self.pid.store(0, Ordering::Release);
        }
        made
    }
}

/// Entry point of a new process, which leads to its program.
extern "C" fn go(task: *mut c_void) -> ! {
    // SAFETY: this is the task that was made for this process. It is not replaced before the kernel frees the slot.
    let Task { command, setup, report, texts } = unsafe { &*task.cast::<Task>() };
    report_and_end(*report, become_program(command, setup, texts))
}

/// The first line of a request, as JSON. The texts of the command stand behind it.
#[derive(Serialize, Deserialize)]
struct LaunchRequest {
    /// How many of the texts are files to try, arguments and variables.
    counts: [usize; 3],
    run_as: Option<RunAs>,
    umask: Option<u32>,
    data_limit: Option<u64>,
    die_with: Option<i32>,
    /// Whether the request has a descriptor of the group to begin in, and of each of the three groups to join.
    groups: [bool; 4],
    /// Whether it has the two descriptors of a jobserver.
    has_jobserver: bool,
    /// Whether it has the descriptor of a standard input.
    has_stdin: bool,
}

/// Encodes a command. `None` if it is too large, or if it writes files first, which allocates memory.
fn encode(command: &Command, setup: &Setup) -> Option<Vec<u8>> {
    let (texts, counts) = command.packed();
    if !command.files.is_empty() || texts.len() > REQUEST_BYTES_MAX {
        return None;
    }
    let request = LaunchRequest {
        counts,
        run_as: command.run_as.clone(),
        umask: command.umask,
        data_limit: setup.data_limit,
        die_with: setup.die_with,
        groups: [setup.group, setup.join[0], setup.join[1], setup.join[2]].map(|fd| fd.is_some()),
        has_jobserver: setup.jobserver.is_some(),
        has_stdin: setup.stdin.is_some(),
    };
    let mut bytes = Vec::with_capacity(texts.len() + 256);
    serde_json::to_writer(&mut bytes, &request).ok()?;
    bytes.push(b'\n');
    bytes.extend_from_slice(texts);
    (bytes.len() <= REQUEST_BYTES_MAX).then_some(bytes)
}

/// Decodes a command, with the descriptors that came with it. The last part of the result is where the
/// process reports.
fn decode(bytes: &[u8], fds: &[OwnedFd]) -> Option<(Command, Setup, RawFd)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let request: LaunchRequest = serde_json::from_slice(&bytes[..end]).ok()?;
    let LaunchRequest { counts, run_as, umask, data_limit, die_with, groups: has_group, .. } = request;
    let mut command = Command::from_packed(bytes[end + 1..].to_vec(), counts, run_as)?;
    command.umask = umask;
    let mut raw = fds.iter().map(AsRawFd::as_raw_fd);
    let (out, err, report) = (raw.next()?, raw.next()?, raw.next()?);
    let mut groups = [None; 4];
    for (group, is_there) in groups.iter_mut().zip(has_group) {
        if is_there {
            *group = Some(raw.next()?);
        }
    }
    let [group, join @ ..] = groups;
    let jobserver = if request.has_jobserver { Some([raw.next()?, raw.next()?]) } else { None };
    let stdin = if request.has_stdin { Some(raw.next()?) } else { None };
    let null = libc::STDIN_FILENO;
    let setup = Setup { null, stdin, out, err, group, join, jobserver, data_limit, die_with };
    Some((command, setup, report))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn command(argument: &str) -> Command {
        let argv = ["prog", argument].map(str::to_owned);
        let env = [("A", "1"), ("PATH", "/bin:/usr/bin")];
        let mut command = Command::new(&argv, env.into_iter(), "/tmp").unwrap();
        let (name, home) = ("ann".to_owned(), "/home/a\nn".to_owned());
        command.run_as = Some(RunAs { uid: 7, gid: u32::MAX - 1, groups: vec![1, 2], name, home });
        command.umask = Some(0o27);
        command
    }

    #[test]
    fn what_is_told_is_what_was_meant() {
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        let fds: Vec<OwnedFd> = (0..8).map(|_| null()).collect();
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let (out, err) = (raw[0], raw[1]);
        let setup = Setup {
            null: 0,
            stdin: Some(raw[7]),
            out,
            err,
            group: Some(raw[3]),
            join: [None, Some(raw[4]), None],
            jobserver: Some([raw[5], raw[6]]),
            data_limit: Some(1 << 40),
            die_with: Some(17),
        };
        let command = command("x y\n");
        let bytes = encode(&command, &setup).unwrap();
        let (told, its, report) = decode(&bytes, &fds).unwrap();
        assert_eq!(told.packed(), command.packed());
        assert_eq!(told.texts(), ("prog".to_owned(), "/tmp".to_owned()));
        assert_eq!((&told.run_as, told.umask), (&command.run_as, Some(0o27)));
        assert_eq!((its.group, its.join), (Some(raw[3]), [None, Some(raw[4]), None]));
        assert_eq!((its.jobserver, its.stdin), (Some([raw[5], raw[6]]), Some(raw[7])));
        assert_eq!((its.data_limit, its.die_with), (Some(1 << 40), Some(17)));
        assert_eq!(report, raw[2]);
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end], &fds).is_none(), "{end}");
        }
        assert!(decode(&bytes, &fds[..2]).is_none());
    }

    #[test]
    fn what_is_too_large_is_not_told() {
        let setup = Setup {
            null: 0,
            stdin: None,
            out: 1,
            err: 2,
            group: None,
            join: [None; 3],
            jobserver: None,
            data_limit: None,
            die_with: None,
        };
        assert!(encode(&command(&"x".repeat(REQUEST_BYTES_MAX)), &setup).is_none());
        assert!(encode(&command(&"x".repeat(REQUEST_BYTES_MAX / 2)), &setup).is_some());
    }

    /// A stand-in for a group that a process can join and not begin in: a directory, and a file to write to.
    #[test]
    fn a_process_that_cannot_begin_in_its_group_joins_it() {
        let dir = tempfile::tempdir().unwrap();
        let joined = dir.path().join("joined");
        let (group, join) = (File::open(dir.path()).unwrap(), File::create(&joined).unwrap());
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let (heard, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let (told, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let setup = Setup {
            null: null.as_raw_fd(),
            stdin: None,
            out: null.as_raw_fd(),
            err: null.as_raw_fd(),
            group: Some(group.as_raw_fd()),
            join: [Some(join.as_raw_fd()), None, None],
            jobserver: None,
            data_limit: None,
            die_with: None,
        };
        let argv = ["true".to_owned()];
        let command = Command::new(&argv, [("PATH", "/bin:/usr/bin")].into_iter(), "/").unwrap();
        // The launcher is a process with one thread, and so is this one.
        // SAFETY: the C library leaves its allocator usable in the child, and nothing else of other threads is used.
        match unsafe { libc::fork() } {
            0 => {
                let mut made = Made { slots: Vec::new(), begins_in_groups: true };
                let pid = made.make(command, setup, report.as_raw_fd());
                let refused = u8::from(!made.begins_in_groups);
                _ = rustix::io::write(&tell, &[&pid.to_le_bytes()[..], &[refused]].concat());
                // The new process shares this memory until it is its program.
                while made.slots[0].pid.load(Ordering::Acquire) != 0 {
                    std::thread::yield_now();
                }
                // SAFETY: ends this process without running any code of the test's.
                unsafe { libc::_exit(0) }
            }
            launcher => {
                drop((report, tell));
                let mut answer = [0; 5];
                assert_eq!(rustix::io::read(&told, &mut answer).unwrap(), 5);
                assert_eq!(answer[4], 1, "the group refused it");
                let pid = i32::from_le_bytes([answer[0], answer[1], answer[2], answer[3]]);
                for (pid, what) in [(launcher, "launcher"), (pid, "program")] {
                    let mut status = 0;
                    // SAFETY: the status is valid storage.
                    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid, "{what}");
                    assert_eq!(status, 0, "{what}");
                }
                assert_eq!(rustix::io::read(&heard, &mut [0; 5]).unwrap(), 0, "it became its program");
                assert_eq!(std::fs::read(joined).unwrap(), b"0");
            }
        }
    }

    #[test]
    fn a_launcher_that_ends_leaves_its_memory_to_what_it_made() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        // SAFETY: the C library leaves its allocator usable in the child, and nothing else of other threads is used.
        let launcher_pid = match unsafe { libc::fork() } {
            0 => {
                drop(ours);
                serve(&theirs, None);
                // SAFETY: ends this process without running any code of the test's.
                unsafe { libc::_exit(0) }
            }
            pid => pid,
        };
        drop(theirs);
        let launcher = Launcher { socket: ours, gone: Cell::new(false) };
        // A process that joins a group waits for it: here until a full pipe has room.
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (room, full) = rustix::pipe::pipe_with(flags).unwrap();
        while rustix::io::write(&full, &[0; 4096]).is_ok() {}
        let join = File::options().write(true).open(format!("/proc/self/fd/{}", full.as_raw_fd())).unwrap();
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let (heard, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let setup = Setup {
            null: libc::STDIN_FILENO,
            stdin: None,
            out: null.as_raw_fd(),
            err: null.as_raw_fd(),
            group: None,
            join: [Some(join.as_raw_fd()), None, None],
            jobserver: None,
            data_limit: None,
            die_with: None,
        };
        let argv = ["true".to_owned()];
        let command = Command::new(&argv, [("PATH", "/bin:/usr/bin")].into_iter(), "/").unwrap();
        let pid = launcher.spawn(&command, &setup, report.as_fd()).unwrap().unwrap();
        drop((launcher, report));
        for (pid, what) in [(launcher_pid, "launcher"), (pid, "program")] {
            let mut status = 0;
            // SAFETY: the status is valid storage.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid, "{what}");
            assert_eq!(status, 0, "{what}");
            _ = rustix::io::read(&room, &mut vec![0; 1 << 20]);
        }
        assert_eq!(rustix::io::read(&heard, &mut [0; 5]).unwrap(), 0, "it became its program");
    }
}
