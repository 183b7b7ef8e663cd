//! The audit log: one JSON line for each request that changes something or was refused.

use crate::auth::Caller;
use crate::noted_path::NotedPath;
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of the file before it becomes an old one.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Lines that may wait to be written.
const QUEUE_MAX: usize = 4096;

/// The audit log. A thread writes it: no request waits for the disk.
pub struct Audit {
    lines: Option<SyncSender<String>>,
    thread: Option<JoinHandle<()>>,
    lost: Counter,
}

#[derive(Serialize)]
struct Line<'a> {
    time_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    /// The id of the session by which the board acted for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    peer: String,
    /// The server that passed the request on; its clients come by `peer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    method: &'a str,
    path: &'a str,
    status: u16,
}

impl Audit {
    /// Writes to the file from now on; to none, nothing. Lines that cannot be written are counted.
    pub fn start(path: Option<PathBuf>, files: u32, lost: Counter) -> Audit {
        let Some(path) = path else { return Audit { lines: None, thread: None, lost } };
        let (lines, queue) = sync_channel(QUEUE_MAX);
        let counter = lost.clone();
        let run = move || write_all(&path, (FILE_BYTES_MAX, files), &queue, &counter);
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(run);
        let thread = thread.map_err(|e| tracing::error!("there is no audit log: {e}")).ok();
        Audit { lines: Some(lines), thread, lost }
    }

    /// Notes a request and its answer's status. `caller` is `None` where nobody was known, `session` where the caller
    /// did not act by the board, and `server` where the client came by no other server.
    pub fn note(
        &self,
        (caller, session): (Option<&Caller>, Option<&str>),
        (peer, server): (&dyn Display, Option<&str>),
        (method, path): (&str, &NotedPath),
        status: u16,
    ) {
        let Some(lines) = &self.lines else { return };
        let line = Line {
            time_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            user: caller.map(|caller| caller.user.as_str()),
            role: caller.map(|caller| caller.role.as_str()),
            token: caller.and_then(|caller| caller.token.as_deref()),
            session,
            peer: peer.to_string(),
            server,
            method,
            path: path.as_str(),
            status,
        };
        let sent = serde_json::to_string(&line).map(|text| lines.try_send(text + "\n"));
        if !matches!(sent, Ok(Ok(()))) {
            self.lost.inc();
        }
    }
}

impl Drop for Audit {
    /// Waits until everything is written.
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Writes lines as they come until nobody can send any.
fn write_all(path: &Path, room: (u64, u32), queue: &Receiver<String>, lost: &Counter) {
    let (mut open, mut told) = (None, false);
    while let Ok(line) = queue.recv() {
        match write_one(path, room, &mut open, &line) {
            Ok(()) => told = false,
            Err(e) => {
                lost.inc();
                open = None;
                if !std::mem::replace(&mut told, true) {
                    tracing::error!("cannot write the audit log {}: {e}", path.display());
                }
            }
        }
    }
}

/// An open log and how many bytes it has.
struct Log {
    file: File,
    bytes: u64,
}

fn write_one(
    path: &Path,
    (bytes_max, files): (u64, u32),
    open: &mut Option<Log>,
    line: &str,
) -> io::Result<()> {
    if open.as_ref().is_some_and(|log| log.bytes >= bytes_max) {
        *open = None;
        let old = |n: u32| path.with_extension(format!("log.{n}"));
        for n in (1..files).rev() {
            match std::fs::rename(old(n), old(n + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        std::fs::rename(path, old(1))?;
    }
    let log = match open {
        Some(log) => log,
        None => {
            let file = OpenOptions::new().append(true).create(true).read(true).mode(0o600).open(path)?;
            let bytes = file.metadata()?.len();
            // A line that broke off, on a full disk or in a crash, must not spoil the next one.
            let mut last = *b"\n";
            if bytes > 0 {
                file.read_exact_at(&mut last, bytes - 1)?;
            }
            if last != *b"\n" {
                (&file).write_all(b"\n")?;
            }
            open.insert(Log { file, bytes })
        }
    };
    log.file.write_all(line.as_bytes())?;
    log.bytes += line.len() as u64;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Peer;

    #[test]
    fn lines_are_json_and_old_files_are_kept_as_many_as_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        std::fs::write(&path, "{\"broken").unwrap();
        let mut open = None;
        for n in 0..10 {
            write_one(&path, (40, 2), &mut open, &format!("{{\"line\":{n}}}\n")).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let (oldest, old, new) = (read("audit.log.2"), read("audit.log.1"), read("audit.log"));
        assert!(!dir.path().join("audit.log.3").exists());
        assert!(new.ends_with("{\"line\":9}\n") && old.len() + new.len() < 120, "{old} {new}");
        assert!(
            oldest
                .lines()
                .chain(old.lines())
                .chain(new.lines())
                .all(|line| line.ends_with('}') || line == "{\"broken")
        );
    }

    #[test]
    fn a_log_that_cannot_be_written_counts_and_harms_nobody() {
        let lost = Counter::default();
        let audit = Audit::start(Some("/dev/null/audit.log".into()), 1, lost.clone());
        audit.note((None, None), (&Peer::LOCAL, None), ("POST", &NotedPath::of("/api/v1/jobs")), 401);
        drop(audit);
        assert_eq!(lost.get(), 1);
    }

    #[test]
    fn a_request_is_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Audit::start(Some(path.clone()), 1, Counter::default());
        audit.note((None, None), (&Peer::LOCAL, None), ("POST", &NotedPath::of("/api/v1/jobs")), 401);
        audit.note((None, None), (&"10.0.0.9:5", Some("two")), ("POST", &NotedPath::of("/")), 201);
        drop(audit);
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let line = lines.next().unwrap();
        assert_eq!((line["peer"].as_str(), line["status"].as_u64()), (Some("unix"), Some(401)));
        assert_eq!(line["path"], "/api/v1/jobs");
        assert!(line["time_ms"].as_u64().is_some() && line.get("user").is_none());
        assert!(line.get("server").is_none());
        let passed = lines.next().unwrap();
        assert_eq!((passed["peer"].as_str(), passed["server"].as_str()), (Some("10.0.0.9:5"), Some("two")));
    }
}
