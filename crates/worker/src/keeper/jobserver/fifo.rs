//! The named pipe of one task: a byte in it is a token that nobody has taken.
//!
//! The keeper holds it open for reading and writing, so no client ever meets its end, and opening one end alone never
//! waits. The keeper's descriptor does not wait; clients have descriptors of their own, so what they make of theirs
//! (make 4.3 sets its end not to wait) does not change it. All that is read and written here is a matter of some bytes:
//! a client can take a byte before the keeper does, or the keeper before a client, and neither waits for the other.

use crate::kept::KeptFile;
use crate::users::RunAs;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::io::ioctl_fionread;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Tokens of one task. As many bytes fit into the smallest pipe that the kernel makes.
pub const TOKENS_MAX: u32 = 4_095;
/// The token that the keeper writes. Clients give back whatever they took.
const TOKEN: u8 = b'+';

/// The keeper's end of a task's jobserver.
#[derive(Serialize, Deserialize)]
pub struct Fifo {
    file: KeptFile,
}

impl Fifo {
    /// Makes the pipe. Only its user can open it.
    pub fn create(path: &Path, run_as: Option<&RunAs>) -> io::Result<Fifo> {
        _ = std::fs::remove_file(path);
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if let Some(who) = run_as {
            std::os::unix::fs::chown(path, Some(who.uid), Some(who.gid))?;
        }
        Ok(Fifo { file: KeptFile(file) })
    }

    /// Two more descriptors of the pipe, which a task inherits: one to read and one to write. Each is a file of its own
    /// for the kernel, so the writing end still waits when a client sets the reading end not to.
    pub fn ends(path: &Path) -> io::Result<[File; 2]> {
        let open = || OpenOptions::new().read(true).write(true).open(path);
        Ok([open()?, open()?])
    }

    /// Tokens that nobody has taken.
    pub fn idle(&self) -> u32 {
        // It fails of no pipe.
        let bytes = ioctl_fionread(&*self.file).unwrap_or(0);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Gives tokens, and returns how many. Fewer fit only where something else filled the pipe.
    pub fn give(&self, count: u32) -> u32 {
        let tokens = vec![TOKEN; count.min(TOKENS_MAX) as usize];
        done(rustix::io::write(&*self.file, &tokens))
    }

    /// Takes tokens back that nobody has taken, and returns how many.
    pub fn take(&self, count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        let mut tokens = vec![0; count.min(TOKENS_MAX) as usize];
        done(rustix::io::read(&*self.file, &mut tokens))
    }

    /// Readable when a token comes back.
    pub fn returned(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The bytes that were read or written. A pipe that the keeper holds open at both ends only fails where it would wait.
fn done(result: rustix::io::Result<usize>) -> u32 {
    result.map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;

    fn fifo() -> (tempfile::TempDir, std::path::PathBuf, Fifo) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.0.1");
        let fifo = Fifo::create(&path, None).unwrap();
        (dir, path, fifo)
    }

    #[test]
    fn tokens_go_out_and_come_back() {
        let (_dir, path, fifo) = fifo();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!((fifo.give(3), fifo.idle()), (3, 3));
        let [mut read, mut write] = Fifo::ends(&path).unwrap();
        let mut token = [0];
        read.read_exact(&mut token).unwrap();
        assert_eq!(fifo.idle(), 2);
        assert_eq!((fifo.take(5), fifo.take(1), fifo.idle()), (2, 0, 0));
        write.write_all(&token).unwrap();
        assert_eq!((fifo.take(5), fifo.take(5)), (1, 0));
    }

    #[test]
    fn a_pipe_whose_clients_are_gone_has_no_end() {
        let (_dir, path, fifo) = fifo();
        let ends = Fifo::ends(&path).unwrap();
        fifo.give(1);
        drop(ends);
        assert_eq!((fifo.idle(), fifo.take(2)), (1, 1));
        let mut fds = [PollFd::from_borrowed_fd(fifo.returned(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&at_once)).unwrap(), 0, "neither readable nor hung up");
        let [mut read, _] = Fifo::ends(&path).unwrap();
        fifo.give(1);
        read.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn more_tokens_than_a_task_may_have_are_not_written() {
        let (_dir, _path, fifo) = fifo();
        assert_eq!(fifo.give(u32::MAX), TOKENS_MAX);
        assert_eq!((fifo.idle(), fifo.take(u32::MAX), fifo.idle()), (TOKENS_MAX, TOKENS_MAX, 0));
    }

    #[test]
    fn a_reader_that_waits_gets_what_the_keeper_leaves() {
        let (_dir, path, fifo) = fifo();
        let [mut read, _write] = Fifo::ends(&path).unwrap();
        let waits = std::thread::spawn(move || {
            let mut token = [0];
            read.read_exact(&mut token).unwrap();
            token[0]
        });
        assert_eq!(fifo.take(1), 0, "whatever waits there, the keeper does not");
        fifo.give(1);
        assert_eq!(waits.join().unwrap(), TOKEN);
        assert_eq!(fifo.idle(), 0);
    }
}
