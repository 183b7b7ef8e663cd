//! The keeper's end of the unix socket. It has one agent at a time, the newest one that connected. The
//! keeper's loop polls it, reads messages and sends reports, and never blocks on it. Reports to an absent
//! agent are dropped: results are kept in `tasks` and repeated after the next hello.

use super::log::write_line;
use crate::protocol::{FromKeeper, Lines, ToKeeper, to_line};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Bytes that may wait for an agent that does not read; above that the connection is closed. Results are
/// repeated until they are acknowledged, so nothing is lost with it.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

pub struct Link {
    listener: UnixListener,
    connection: Option<UnixStream>,
    had_agent: bool,
    lines: Lines,
    buffer: Box<[u8]>,
    output: Vec<u8>,
}

/// A path of the socket in `dir` that is short enough for any directory, since the address of a socket holds
/// 107 bytes. `dir` must stay open while the path is used.
pub fn socket_path(dir: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/keeper.sock", dir.as_fd().as_raw_fd()))
}

impl Link {
    pub fn listen(state: &Path) -> io::Result<Self> {
        let dir = std::fs::File::open(state)?;
        let path = socket_path(&dir);
        _ = std::fs::remove_file(&path);
        // The socket must never exist with a wider mode, so the mode comes from the umask. This process has
        // one thread, so no other file gets it.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        rustix::process::umask(before);
        let listener = bound?;
        listener.set_nonblocking(true)?;
        Ok(Link::with(listener, false))
    }

    /// Goes on with the listener of the program before; its agent has to connect again.
    pub fn resume(listener: UnixListener) -> Self {
        Link::with(listener, true)
    }

    fn with(listener: UnixListener, had_agent: bool) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Link { listener, connection: None, had_agent, lines: Lines::default(), buffer, output: Vec::new() }
    }

    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }

    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Accepts a new agent in the place of the one before. An agent that connects again has lost its first connection.
    pub fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                self.close();
                self.connection = Some(stream);
                self.had_agent = true;
            }
        }
    }

    /// True once any agent has connected.
    pub fn had_agent(&self) -> bool {
        self.had_agent
    }

    /// Messages that the agent sent.
    pub fn read(&mut self) -> Vec<ToKeeper> {
        let Some(stream) = &mut self.connection else { return Vec::new() };
        let ended = loop {
            match stream.read(&mut self.buffer) {
                Ok(0) => break true,
                Ok(n) => {
                    self.lines.push(&self.buffer[..n]);
                    // What comes now wakes the keeper again.
                    if n < self.buffer.len() {
                        break false;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
        };
        match self.lines.take() {
            Ok(messages) => {
                if ended {
                    self.close();
                }
                messages
            }
            Err(why) => {
                write_line(format_args!("the agent sent an invalid message: {why}"));
                self.close();
                Vec::new()
            }
        }
    }

    /// Queues a message; without an agent it is dropped.
    pub fn send(&mut self, message: &FromKeeper) {
        if self.connection.is_some() {
            to_line(message, &mut self.output);
        }
    }

    /// Writes as much as the agent accepts now.
    pub fn flush(&mut self) {
        let Some(stream) = &mut self.connection else { return };
        while !self.output.is_empty() {
            match stream.write(&self.output) {
                Ok(n) => _ = self.output.drain(..n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.close();
                    return;
                }
            }
        }
        if self.output.len() > OUTPUT_BYTES_MAX {
            self.close();
        }
    }

    fn close(&mut self) {
        self.connection = None;
        self.lines = Lines::default();
        self.output.clear();
    }
}
