//! The mask hides files of a worker from its tasks: its directory, which has the output of all tasks, and the files of
//! its token and key. The launcher enters a mount namespace once, in which an empty directory and empty files cover
//! them. All processes that it makes inherit the covers. A process that the keeper forks by itself enters a namespace
//! of its own.
//!
//! Tasks of one user still reach each other while they run, and a task that is root can remove the covers. Only
//! different users keep tasks apart. The covers keep the token and the output of other tasks out of casual reach.

use crate::protocol::Hidden;
use crate::unshare::{map_own_user, try_unshare};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Options of the empty directory: anyone passes through it to what is kept, and it has room for nothing else.
const COVER: &std::ffi::CStr = c"mode=711,size=64k,nr_inodes=64";

/// The directory and the files that are covered, and the exceptions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mask {
    /// The directory in whose place tasks see an empty one.
    state: PathBuf,
    /// Directories below it that tasks use, and see.
    kept: Vec<PathBuf>,
    /// Files that tasks see empty.
    files: Vec<PathBuf>,
    /// Whether a user namespace may be entered for it: where the tasks of this keeper are in one anyway.
    may_nest: bool,
}

impl Mask {
    /// Covers the worker's directory but for `tasks_use`, and the files that the agent names. `may_nest` is true of a
    /// keeper in namespaces.
    pub fn new(state: &Path, tasks_use: Vec<PathBuf>, hidden: &Hidden, may_nest: bool) -> Mask {
        let below = |path: &&PathBuf| path.starts_with(state) && *path != state;
        let kept = tasks_use.into_iter().chain(hidden.kept.iter().filter(below).cloned()).collect();
        Mask { state: state.to_owned(), kept, files: hidden.files.clone(), may_nest }
    }

    /// Moves this process into a mount namespace with the covers. After an error the process may be in a namespace with
    /// some of them, so it must not go on.
    ///
    /// # Errors
    /// If the kernel refuses the namespace or a mount.
    pub fn enter(&self) -> io::Result<()> {
        self.unshare()?;
        // Mounts of the machine that come later are still seen, and these are seen nowhere else.
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        for file in &self.files {
            match mount_bind("/dev/null", file.as_path()) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // Opened before the cover hides them.
        let mut kept: Vec<(OwnedFd, &Path)> = Vec::new();
        for path in &self.kept {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match open(path.as_path(), flags, Mode::empty()) {
                Ok(dir) => kept.push((dir, path.as_path())),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("tmpfs", self.state.as_path(), "tmpfs", flags, COVER)?;
        for (dir, path) in kept {
            DirBuilder::new().recursive(true).mode(0o711).create(path)?;
            mount_bind_recursive(format!("/proc/self/fd/{}", dir.as_raw_fd()), path)?;
        }
        Ok(mount_remount(self.state.as_path(), flags | MountFlags::RDONLY, "")?)
    }

    fn unshare(&self) -> io::Result<()> {
        let refused = match try_unshare(UnshareFlags::NEWNS) {
            Ok(()) => return Ok(()),
            Err(e) => e,
        };
        // A keeper that became another program lost the rights that it had in its own user namespace.
        if !self.may_nest || geteuid().is_root() {
            return Err(refused);
        }
        let own = (geteuid().as_raw(), getegid().as_raw());
        try_unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUSER)?;
        map_own_user(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What a process that entered the mask finds, as its exit status; `None` where the kernel refuses it.
    fn inside(mask: &Mask, look: impl FnOnce() -> bool) -> Option<bool> {
        const REFUSED: i32 = 77;
        // SAFETY: the child uses nothing of other threads but the allocator, which the C library leaves usable.
        match unsafe { libc::fork() } {
            0 => {
                let entered = mask.enter();
                let code = match entered {
                    Ok(()) => i32::from(!look()),
                    Err(e) if e.raw_os_error() == Some(libc::EPERM) => REFUSED,
                    Err(e) => e.raw_os_error().unwrap_or(1),
                };
                // SAFETY: ends the child without running any code of the test's.
                unsafe { libc::_exit(code) }
            }
            pid => {
                let mut status = 0;
                // SAFETY: the status is valid storage.
                assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                assert!(libc::WIFEXITED(status), "{status}");
                match libc::WEXITSTATUS(status) {
                    REFUSED => None,
                    code @ (0 | 1) => Some(code == 0),
                    code => panic!("{}", io::Error::from_raw_os_error(code)),
                }
            }
        }
    }

    #[test]
    fn what_tasks_use_is_there_and_the_rest_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (state, token) = (dir.path().join("state"), dir.path().join("token"));
        for name in ["logs/1", "sessions/1.0-1", "cache"] {
            fs::create_dir_all(state.join(name)).unwrap();
        }
        fs::write(state.join("logs/1/0.1.out"), "output").unwrap();
        fs::write(state.join("cache/entry"), "cached").unwrap();
        fs::write(&token, "secret").unwrap();
        let hidden = Hidden {
            files: vec![token.clone(), dir.path().join("absent")],
            kept: vec![state.join("cache"), state.clone(), "/elsewhere".into()],
        };
        let mask = Mask::new(&state, vec![state.join("sessions"), state.join("absent")], &hidden, true);
        let seen = inside(&mask, || {
            let names = fs::read_dir(&state).into_iter().flatten().flatten();
            let mut names: Vec<String> =
                names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names == ["cache", "sessions"]
                && fs::read(&token).is_ok_and(|text| text.is_empty())
                && fs::read(state.join("cache/entry")).is_ok_and(|text| text == b"cached")
                && fs::write(state.join("sessions/1.0-1/made"), "by a task").is_ok()
                && fs::write(state.join("logs"), "x").is_err()
        });
        let Some(seen) = seen else {
            println!("SKIP mask: the kernel refuses mount namespaces");
            return;
        };
        assert!(seen, "a process inside sees something else");
        assert_eq!(fs::read(&token).unwrap(), b"secret", "outside nothing changed");
        assert!(state.join("sessions/1.0-1/made").exists() && state.join("logs/1/0.1.out").exists());
    }
}
