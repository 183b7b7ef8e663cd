//! System calls that bypass the C library. `errno` would be shared with all processes that share this memory, and the
//! library's `clone` refuses flags that the launcher needs where it is musl.

use std::ffi::{c_int, c_void};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;

/// A system call that returns its error. `errno` would be shared with all processes that share this memory.
///
/// # Safety
/// The arguments must be as the system call `number` requires.
#[cfg(target_arch = "x86_64")]
pub unsafe fn system_call(number: libc::c_long, a: usize, b: usize, c: usize) -> isize {
    let result: isize;
    // SAFETY: follows the kernel's calling convention on x86-64; the caller vouches for the arguments.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// As on x86-64.
///
/// # Safety
/// The arguments must be as the system call `number` requires.
#[cfg(target_arch = "aarch64")]
pub unsafe fn system_call(number: libc::c_long, a: usize, b: usize, c: usize) -> isize {
    let result: isize;
    // SAFETY: follows the kernel's calling convention on arm64; the caller vouches for the arguments.
    unsafe {
        std::arch::asm!("svc 0", in("x8") number, inlateout("x0") a => result, in("x1") b, in("x2") c,
            options(nostack));
    }
    result
}

/// The same through the C library, on machines whose convention is not written here. The error may be of
/// another process that shares this memory.
///
/// # Safety
/// The arguments must be as the system call `number` requires.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn system_call(number: libc::c_long, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: promised by the caller.
    match unsafe { libc::syscall(number, a, b, c) } {
        -1 => -(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize),
        result => result as isize,
    }
}

/// Flag of clone3(2), of Linux 5.7.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Where a process that [`clone()`] made begins. It must not return.
pub type Entry = extern "C" fn(*mut c_void) -> !;

/// Makes a process that runs `entry(arg)` on a stack of its own; returns its number, or a negated error number.
///
/// # Safety
/// `stack_top` is the aligned end of a stack, and that and what `arg` and `cleared` point to are reserved for the new
/// process until the kernel sets `cleared` to 0. The flags must neither make a thread nor change the thread's storage.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub unsafe fn clone(
    entry: Entry,
    stack_top: *mut c_void,
    flags: c_int,
    arg: *mut c_void,
    cleared: *mut i32,
) -> c_int {
    // `cleared` is the fourth argument on one machine and the fifth on the other. The kernel does not read the other one
    // of these two, the thread's storage, without CLONE_SETTLS.
    let args = [flags as usize, stack_top as usize, 0, cleared as usize, cleared as usize];
    // SAFETY: the arguments are as clone(2) requires, and the caller vouches for what they point to.
    unsafe { make_process(libc::SYS_clone, args, entry, arg) }
}

/// The same through the C library.
///
/// # Safety
/// As on x86-64.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub unsafe fn clone(
    entry: Entry,
    stack_top: *mut c_void,
    flags: c_int,
    arg: *mut c_void,
    cleared: *mut i32,
) -> c_int {
    // SAFETY: a function that never returns may stand for one that returns a number. The rest is the caller's promise.
    let made = unsafe {
        let entry: extern "C" fn(*mut c_void) -> c_int = std::mem::transmute(entry);
        let (parent_tid, tls) = (std::ptr::null_mut::<i32>(), std::ptr::null_mut::<u8>());
        libc::clone(entry, stack_top, flags, arg, parent_tid, tls, cleared)
    };
    if made < 0 { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN) } else { made }
}

/// The arguments of clone3(2).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_bytes: u64,
    tls: u64,
    set_tid: u64,
    set_tid_count: u64,
    cgroup: u64,
}

/// As [`clone()`], but the process begins in the control group whose directory is `group`. A process that joins its
/// group later makes the kernel wait until nothing forks or ends, which takes longer than the rest of a start.
/// An error where the kernel or a sandbox refuses clone3(2), or the convention of this machine is not written here.
///
/// # Safety
/// As [`clone()`]; `stack` is all of the stack. A process that is to have the parent of this one also gets the signal at
/// its end that this one has.
pub unsafe fn clone_into(
    group: RawFd,
    entry: Entry,
    stack: Range<*mut c_void>,
    flags: c_int,
    arg: *mut c_void,
    cleared: *mut i32,
) -> c_int {
    let request = CloneArgs {
        flags: (flags & !libc::CSIGNAL) as u64 | CLONE_INTO_CGROUP,
        child_tid: cleared as u64,
        exit_signal: if flags & libc::CLONE_PARENT == 0 { (flags & libc::CSIGNAL) as u64 } else { 0 },
        stack: stack.start as u64,
        stack_bytes: stack.end as u64 - stack.start as u64,
        cgroup: group as u64,
        ..CloneArgs::default()
    };
    let args = [std::ptr::from_ref(&request) as usize, size_of::<CloneArgs>(), 0, 0, 0];
    // SAFETY: the arguments are as clone3(2) requires, and the caller vouches for what they point to.
    unsafe { make_process(libc::SYS_clone3, args, entry, arg) }
}

/// Calls `number` with `args`, and lets the process that it made run `entry(arg)`. Returns that process's number, or a
/// negated error number.
///
/// # Safety
/// The system call gives the process a stack. The rest is as [`clone()`].
#[cfg(target_arch = "x86_64")]
unsafe fn make_process(number: libc::c_long, args: [usize; 5], entry: Entry, arg: *mut c_void) -> c_int {
    let result: isize;
    // SAFETY: follows the kernel's calling convention on x86-64. In the new process the result is 0, and the stack is
    // another; the other registers are as before. There the entry is called with an aligned stack, and never returns.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {arg}",
            "call {entry}",
            "ud2",
            "2:",
            arg = in(reg) arg,
            entry = in(reg) entry,
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            out("rcx") _,
            out("r11") _,
        );
    }
    result as c_int
}

/// As on x86-64.
///
/// # Safety
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
unsafe fn make_process(number: libc::c_long, args: [usize; 5], entry: Entry, arg: *mut c_void) -> c_int {
    let result: isize;
    // SAFETY: follows the kernel's calling convention on arm64, and is otherwise as on x86-64.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, {arg}",
            "blr {entry}",
            "brk 1",
            "2:",
            arg = in(reg) arg,
            entry = in(reg) entry,
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
        );
    }
    result as c_int
}

/// Fails: the convention of this machine is not written here.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn make_process(_: libc::c_long, _: [usize; 5], _: Entry, _: *mut c_void) -> c_int {
    -libc::ENOSYS
}

#[cfg(target_pointer_width = "32")]
compile_error!(
    "on 32-bit machines these system calls take 16 bits of a user's number, and 65536 would be root"
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering};

    extern "C" fn exit_with(arg: *mut c_void) -> ! {
        // SAFETY: ends the new process, which shares no memory here, without running any code of the test's.
        unsafe { libc::_exit(arg as c_int) }
    }

    #[test]
    fn a_process_begins_at_its_entry() {
        let (mut stack, number) = (vec![0_u128; 4096], AtomicI32::new(-1));
        let flags = libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        for code in [0, 7, 200] {
            let top = stack.as_mut_ptr_range().end.cast();
            // SAFETY: without CLONE_VM the new process has a copy of all memory.
            let pid = unsafe { clone(exit_with, top, flags, code as *mut c_void, number.as_ptr()) };
            assert!(pid > 0, "{pid}");
            let mut status = 0;
            // SAFETY: the status is valid storage.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == code);
        }
        assert_eq!(number.load(Ordering::Relaxed), -1, "the copy in the new process was cleared");
    }

    #[test]
    fn errors_are_negative() {
        let (mut stack, number) = (vec![0_u128; 16], AtomicI32::new(-1));
        let top = stack.as_mut_ptr_range().end.cast();
        // SAFETY: the kernel refuses these flags: a thread needs shared signal handlers.
        let made =
            unsafe { clone(exit_with, top, libc::CLONE_THREAD, std::ptr::null_mut(), number.as_ptr()) };
        assert_eq!(made, -libc::EINVAL);
        // SAFETY: there is no such descriptor.
        assert_eq!(unsafe { system_call(libc::SYS_close, 1 << 20, 0, 0) }, -(libc::EBADF as isize));
    }

    /// Exits with 0 if this process is in the group of [`a_process_begins_in_its_group`].
    extern "C" fn exit_by_group(_: *mut c_void) -> ! {
        let mut text = [0_u8; 4096];
        // SAFETY: plain system calls on valid storage; this process has a copy of all memory and allocates nothing.
        unsafe {
            let file = libc::open(c"/proc/self/cgroup".as_ptr(), libc::O_RDONLY);
            let n = libc::read(file, text.as_mut_ptr().cast(), text.len());
            let is_there = text[..n.max(0) as usize].windows(GROUP.len()).any(|w| w == GROUP.as_bytes());
            libc::_exit(i32::from(!is_there))
        }
    }

    const GROUP: &str = "windlass-test-of-clone-into";

    #[test]
    fn a_process_begins_in_its_group() {
        let mut groups = match crate::cgroup::Cgroups::open(GROUP, false) {
            Ok(groups) => groups,
            Err(why) => return println!("SKIP no control groups: {why}"),
        };
        let slot = groups.take().unwrap();
        let (mut stack, number) = (vec![0_u128; 4096], AtomicI32::new(-1));
        let ends = stack.as_mut_ptr_range();
        let flags = libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        let begin = |group| {
            let stack = ends.start.cast()..ends.end.cast();
            // SAFETY: without CLONE_VM the new process has a copy of all memory.
            unsafe { clone_into(group, exit_by_group, stack, flags, std::ptr::null_mut(), number.as_ptr()) }
        };
        let pid = begin(slot.group_fd().unwrap());
        if pid == -libc::ENOSYS || pid == -libc::EPERM {
            return println!("SKIP a sandbox refuses clone3");
        }
        assert!(pid > 0, "{pid}");
        let mut status = 0;
        // SAFETY: the status is valid storage.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
        assert_eq!(begin(1 << 20), -libc::EBADF);
    }
}
