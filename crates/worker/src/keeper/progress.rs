//! The reports of tasks in their output: progress, status, variables of a session, and fetched cache keys. Output goes
//! straight to files, so the keeper reads each file again from the end of its last look. `session` and `tasks` act on
//! the result. Lines in any other form are the task's own, and this module never changes a file.

use crate::kept::KeptFile;
use crate::logs::{LogDir, Stream, read_at};
use crate::protocol::TaskRef;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use windlass_core::bounds::CACHE_KEY_BYTES_MAX;

/// Bytes of each output that one look reads. Of more only the end is read.
const LOOK_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a line that can say something; longer lines are ignored.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a text for people; the rest is cut.
const TEXT_BYTES_MAX: usize = 1024;
/// Lines that one look takes in; the rest of what it reads is ignored.
const SAID_MAX: usize = 1_000;

/// A line that says something.
#[derive(Clone, PartialEq, Debug)]
pub enum Said {
    /// Percent done, 0 to 100.
    Progress(f64),
    /// Status text, for people.
    Status(String),
    /// Reason of a failure, for people.
    Fail(String),
    /// A variable for all later actions and tasks of the session.
    Set(String, String),
    /// A variable that later actions and tasks of the session do not get.
    Unset(String),
    Fetched(Fetch),
}

/// A cache key that a task fetched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    /// The key as jobs name it.
    pub key: String,
    pub bytes: u64,
    /// How long the fetch took, in milliseconds.
    pub ms: u64,
}

/// A reader of a task's output that remembers how far it has read.
#[derive(Serialize, Deserialize)]
pub struct Tail {
    /// Standard output, and standard error if it is read.
    streams: Vec<TailReader>,
}

#[derive(Serialize, Deserialize)]
struct TailReader {
    file: KeptFile,
    at: u64,
    /// Beginning of a line whose end is not yet written.
    line: Vec<u8>,
    /// Whether the current line is too long; its rest is passed over.
    skip: bool,
}

impl Tail {
    /// Reads these outputs of an attempt, whose files must exist. The first is standard output.
    pub fn open(logs: &LogDir, task: TaskRef, streams: &[Stream]) -> io::Result<Tail> {
        let streams = streams.iter().map(|stream| TailReader::open(logs, task, *stream));
        Ok(Tail { streams: streams.collect::<io::Result<_>>()? })
    }

    /// What was said since the last look. With `ended` a last line without a line end counts too.
    pub fn look(&mut self, ended: bool) -> Vec<Said> {
        let mut said = Vec::new();
        for (place, stream) in self.streams.iter_mut().enumerate() {
            // No decision about the task depends on a look, so an error only loses what it would have read.
            _ = stream.look(ended, |line| {
                if said.len() < SAID_MAX {
                    said.extend(parse(line).filter(|said| {
                        // Variables and fetches count on standard output only.
                        place == 0 || !matches!(said, Said::Set(..) | Said::Unset(_) | Said::Fetched(_))
                    }));
                }
            });
        }
        said
    }
}

impl TailReader {
    fn open(logs: &LogDir, task: TaskRef, stream: Stream) -> io::Result<TailReader> {
        let file = KeptFile(File::open(logs.path(task, stream))?);
        Ok(TailReader { file, at: 0, line: Vec::new(), skip: false })
    }

    fn look(&mut self, ended: bool, mut on: impl FnMut(&[u8])) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        if size < self.at {
            // The task truncated its output.
            (self.at, self.skip) = (size, false);
            self.line.clear();
        }
        if size - self.at > LOOK_BYTES_MAX {
            (self.at, self.skip) = (size - LOOK_BYTES_MAX, true);
            self.line.clear();
        }
        while self.at < size {
            let (from, bytes) = read_at(&self.file, self.at, (size - self.at) as usize)?;
            if bytes.is_empty() {
                break;
            }
            self.at = from + bytes.len() as u64;
            for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                self.take(part, &mut on);
            }
        }
        if ended && !self.line.is_empty() {
            on(&std::mem::take(&mut self.line));
        }
        Ok(())
    }

    fn take(&mut self, part: &[u8], on: &mut impl FnMut(&[u8])) {
        let whole = part.strip_suffix(b"\n");
        if !self.skip {
            self.line.extend_from_slice(whole.unwrap_or(part));
            self.skip = self.line.len() > LINE_BYTES_MAX;
        }
        if whole.is_some() {
            if !self.skip {
                on(&self.line);
            }
            self.line.clear();
            self.skip = false;
        } else if self.skip {
            self.line.clear();
        }
    }
}

/// The report in a line; `None` for a line that is not addressed to the keeper.
fn parse(line: &[u8]) -> Option<Said> {
    if !line.starts_with(b"openjd_") && !line.starts_with(b"windlass_") {
        return None;
    }
    let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).ok()?;
    let (word, text) = line.split_once(": ")?;
    if word == "windlass_cache_fetch" {
        return parse_fetch(text).map(Said::Fetched);
    }
    let word = word.strip_prefix("openjd_")?;
    match word {
        "progress" => {
            let percent = text.trim().parse::<f64>().ok()?;
            (0.0..=100.0).contains(&percent).then_some(Said::Progress(percent))
        }
        "status" => Some(Said::Status(cut(text))),
        "fail" => Some(Said::Fail(cut(text))),
        "env" => {
            let (name, value) = text.split_once('=')?;
            (is_variable(name) && !value.contains('\0')).then(|| Said::Set(name.to_owned(), value.to_owned()))
        }
        "unset_env" => is_variable(text.trim()).then(|| Said::Unset(text.trim().to_owned())),
        _ => None,
    }
}

/// Parses `KEY BYTES MILLISECONDS`. The key may contain spaces.
fn parse_fetch(text: &str) -> Option<Fetch> {
    let mut parts = text.trim_end().rsplitn(3, ' ');
    let (ms, bytes) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let key = parts.next().filter(|key| (1..=CACHE_KEY_BYTES_MAX).contains(&key.len()))?.to_owned();
    Some(Fetch { key, bytes, ms })
}

fn is_variable(name: &str) -> bool {
    let first = name.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn lines_are_read_once_whatever_the_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(dir.path());
        let task = TaskRef { job: 1, index: 0, attempt: 1 };
        let mut out = logs.create(task, Stream::Out).unwrap();
        let mut err = logs.create(task, Stream::Err).unwrap();
        let mut tail = Tail::open(&logs, task, &Stream::BOTH).unwrap();
        out.write_all(b"openjd_progress: 4").unwrap();
        assert_eq!(tail.look(false), []);
        out.write_all(b"2.5\nopenjd_env: A=b=c\n").unwrap();
        err.write_all(b"openjd_env: NO=1\nopenjd_status: busy\n").unwrap();
        let set = Said::Set("A".into(), "b=c".into());
        assert_eq!(tail.look(false), [Said::Progress(42.5), set, Said::Status("busy".into())]);
        out.write_all(&[b'x'; LINE_BYTES_MAX + 1]).unwrap();
        assert_eq!(tail.look(false), []);
        out.write_all(b"\nopenjd_unset_env: A\nopenjd_fail: no light").unwrap();
        assert_eq!(tail.look(true), [Said::Unset("A".into()), Said::Fail("no light".into())]);
        assert_eq!(tail.look(true), []);
    }

    #[test]
    fn what_was_fetched_is_heard_on_standard_output_alone_and_not_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(dir.path());
        let task = TaskRef { job: 1, index: 0, attempt: 1 };
        let mut out = logs.create(task, Stream::Out).unwrap();
        let mut err = logs.create(task, Stream::Err).unwrap();
        let mut tail = Tail::open(&logs, task, &Stream::BOTH).unwrap();
        out.write_all(b"windlass_cache_fetch: nix/a b 4096 25\r\n").unwrap();
        err.write_all(b"windlass_cache_fetch: nix/c 1 1\n").unwrap();
        let fetch = Fetch { key: "nix/a b".to_owned(), bytes: 4096, ms: 25 };
        assert_eq!(tail.look(false), [Said::Fetched(fetch.clone())]);
        assert_eq!(Tail::open(&logs, task, &[Stream::Out]).unwrap().look(false), [Said::Fetched(fetch)]);
        out.write_all("windlass_cache_fetch: k 1 1\n".repeat(SAID_MAX + 1).as_bytes()).unwrap();
        assert_eq!(tail.look(false).len(), SAID_MAX);
        let long = format!("windlass_cache_fetch: {} 1 1", "k".repeat(CACHE_KEY_BYTES_MAX + 1));
        assert_eq!(parse(long.as_bytes()), None);
    }

    #[test]
    fn of_very_much_output_the_end_counts() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(dir.path());
        let task = TaskRef { job: 1, index: 0, attempt: 1 };
        let mut out = logs.create(task, Stream::Out).unwrap();
        logs.create(task, Stream::Err).unwrap();
        let mut tail = Tail::open(&logs, task, &Stream::BOTH).unwrap();
        out.write_all(b"openjd_progress: 1\n").unwrap();
        out.write_all(&vec![b'x'; 2 << 20]).unwrap();
        out.write_all(b"\nopenjd_progress: 2\n").unwrap();
        assert_eq!(tail.look(false), [Said::Progress(2.0)]);
    }

    #[test]
    fn what_makes_no_sense_says_nothing() {
        for line in [
            "openjd_progress: 101",
            "openjd_progress: x",
            "openjd_env: =1",
            "openjd_env: A",
            "openjd_x: 1",
            " openjd_status: x",
            "openjd_unset_env: 1A",
            "windlass_progress: 1",
            "openjd_windlass_cache_fetch: a 1 1",
            "windlass_cache_fetch: a 1",
            "windlass_cache_fetch:  1 1",
            "windlass_cache_fetch: a -1 1",
            "windlass_cache_fetch: a 1 1.5",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
