//! Unix sockets: of several servers that would listen on one path, one does.

use super::listen_error::ListenError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The file of a unix socket. It is removed when nobody has the socket any more.
pub struct SocketFile {
    path: PathBuf,
    /// Held for as long as this server listens; `None` where the file system knows no locks.
    _lock: Option<File>,
}

impl SocketFile {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

/// What the file system of a lock says if it knows none.
const NO_LOCKS: [Errno; 3] = [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS];

/// Listens on that path, for the user of this process alone.
///
/// A socket that nobody answers on is left from a server that was killed, and is deleted. A server that has just made
/// its socket must not lose it that way, so a server that looks at the path holds the lock of `PATH.lock`. That file stays:
/// if it were removed, two servers could each lock a file of that name.
///
/// # Errors
/// [`ListenError::Taken`] if another server listens there or is about to.
pub fn bind(path: PathBuf) -> Result<(UnixListener, SocketFile), ListenError> {
    let address = || format!("unix:{}", path.display());
    let io = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::Taken(address()),
        _ => ListenError::Io { address: address(), source },
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(io)?;
    }
    let lock = match lock(&path) {
        Ok(lock) => lock,
        Err(TryLockError::WouldBlock) => return Err(ListenError::Taken(address())),
        Err(TryLockError::Error(source)) => {
            return Err(ListenError::Lock { path: lock_path(&path), source });
        }
    };
    // A server of a version before this lock, or another program.
    if UnixStream::connect(&path).is_ok() {
        return Err(ListenError::Taken(address()));
    }
    _ = std::fs::remove_file(&path);
    // No other user may connect between its making and the change of its mode.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(&path);
    rustix::process::umask(before);
    let listener = bound.map_err(io)?;
    listener.set_nonblocking(true).map_err(io)?;
    Ok((listener, SocketFile { path, _lock: lock }))
}

fn lock_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

fn lock(socket: &Path) -> Result<Option<File>, TryLockError> {
    // In a directory of others a link could lead to any file, and a pipe would be waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(lock_path(socket)).map_err(TryLockError::Error)?;
    match file.try_lock() {
        Err(TryLockError::Error(error)) if has_no_locks(&error) => Ok(None),
        locked => locked.map(|()| Some(file)),
    }
}

fn has_no_locks(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| NO_LOCKS.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Between a look whether a server listens and the making of the socket, another server may have made its own. That
    /// one was deleted then, and its server went on where nobody could reach it.
    #[test]
    fn of_servers_that_listen_at_once_one_has_the_socket() {
        const ROUNDS: usize = 300;
        let dir = tempfile::tempdir().unwrap();
        let (start, end) = (Barrier::new(2), Barrier::new(2));
        let path = dir.path().join("server.sock");
        let rounds = || {
            let mut seen = Vec::new();
            for _ in 0..ROUNDS {
                start.wait();
                let bound = bind(path.clone());
                end.wait();
                seen.push((bound.is_ok(), UnixStream::connect(&path).is_ok()));
                // Nobody deletes its socket before both have looked.
                end.wait();
            }
            seen
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(rounds);
            (rounds(), other.join().unwrap())
        });
        for (one, other) in one.into_iter().zip(other) {
            assert!(one.0 != other.0 && one.1 && other.1, "{one:?}, {other:?}");
        }
    }

    #[test]
    fn the_socket_of_a_killed_server_is_made_again_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made/server.sock");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, _file) = bind(path.clone()).unwrap();
        assert!(matches!(bind(path.clone()), Err(ListenError::Taken(_))));
        let foreign = dir.path().join("foreign.sock");
        let _other_program = UnixListener::bind(&foreign).unwrap();
        assert!(matches!(bind(foreign), Err(ListenError::Taken(_))));
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        std::os::unix::fs::symlink(&target, dir.path().join("server.sock.lock")).unwrap();
        let error = bind(dir.path().join("server.sock")).map(|_| ()).unwrap_err();
        assert!(matches!(error, ListenError::Lock { .. }) && error.to_string().contains("server.sock.lock"));
        assert!(!target.exists());
    }
}
