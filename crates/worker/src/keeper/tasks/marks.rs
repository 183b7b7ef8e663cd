//! The marks of an attempt: when its output grew. The task writes to its files by itself, so the sizes of both are
//! compared a few times a second, and a row is appended to a third file where they differ. From the rows follow the
//! times of lines, and the order of lines of both streams. A row that cannot be written is left out: the task goes on,
//! and its lines get the time of the next row.

use crate::clock::unix_ns;
use crate::logs::{LogDir, Stream};
use crate::protocol::TaskRef;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::time::{Duration, Instant};
use windlass_api::{LOG_MARK_BYTES, LOG_MARK_EVERY_MS, LOG_MARKS_MAX, LogMark, LogMarks};

/// How far the marks of an attempt are. An older keeper hands over none: what was written until then gets the time of
/// the first mark.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Marks {
    /// Rows of the file.
    rows: usize,
    /// The last row; zeros if there is none.
    last_ms: u64,
    last_bytes: [u64; 2],
    /// Interval between two looks in milliseconds; 0 for the shortest.
    every_ms: u64,
    /// When the sizes were compared last; `None` just after an upgrade of the keeper.
    #[serde(skip)]
    looked_at: Option<Instant>,
}

impl Marks {
    /// No marks yet, of an attempt that starts now.
    pub(super) fn begin(now: Instant) -> Marks {
        Marks { looked_at: Some(now), ..Marks::default() }
    }

    /// Marks the sizes of standard output and standard error if they have changed since the last look, and that was
    /// long enough ago.
    pub(super) fn look(&mut self, logs: &LogDir, task: TaskRef, bytes: [u64; 2], now: Instant) {
        let every = Duration::from_millis(self.every_ms());
        if self.looked_at.is_some_and(|at| now.saturating_duration_since(at) < every) {
            return;
        }
        self.looked_at = Some(now);
        self.note(logs, task, bytes);
    }

    /// Makes the last mark. An attempt that took less than an interval needs none: its end says when it wrote.
    pub(super) fn end(&mut self, logs: &LogDir, task: TaskRef, bytes: [u64; 2], started_ns: u64) {
        let ran_ms = unix_ns().saturating_sub(started_ns) / 1_000_000;
        if self.rows > 0 && bytes == [0; 2] {
            // It truncated all that it wrote.
            logs.remove(task, Stream::Times);
        } else if self.rows > 0 || ran_ms > LOG_MARK_EVERY_MS {
            self.note(logs, task, bytes);
        }
    }

    fn note(&mut self, logs: &LogDir, task: TaskRef, bytes: [u64; 2]) {
        if bytes == self.last_bytes {
            return;
        }
        let at_ms = (unix_ns() / 1_000_000).max(self.last_ms);
        // The next look tries again.
        if self.append(logs, task, LogMark { at_ms, out_bytes: bytes[0], err_bytes: bytes[1] }).is_ok() {
            (self.last_ms, self.last_bytes) = (at_ms, bytes);
            self.rows += 1;
        }
    }

    fn append(&mut self, logs: &LogDir, task: TaskRef, mark: LogMark) -> io::Result<()> {
        let path = logs.path(task, Stream::Times);
        if self.rows >= LOG_MARKS_MAX {
            let (fewer, every_ms) = LogMarks::parse(&fs::read(&path)?).thin_out(self.every_ms());
            let rows: Vec<u8> = fewer.all().iter().flat_map(|mark| mark.to_bytes()).collect();
            // A reader finds the old rows or the new ones, and never a mixture.
            let made = path.with_extension("times-new");
            fs::write(&made, rows).and_then(|()| fs::rename(&made, &path)).inspect_err(|_| {
                _ = fs::remove_file(&made);
            })?;
            (self.rows, self.every_ms) = (fewer.all().len(), every_ms);
        }
        let mut options = OpenOptions::new();
        // A file that is there at the first row is of an earlier try to start the attempt.
        options.write(true).create(self.rows == 0).truncate(self.rows == 0).mode(0o600);
        // A row that was written in part is written over.
        options.open(&path)?.write_all_at(&mark.to_bytes(), (self.rows * LOG_MARK_BYTES) as u64)
    }

    fn every_ms(&self) -> u64 {
        self.every_ms.max(LOG_MARK_EVERY_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_api::LogStream;

    const TASK: TaskRef = TaskRef { job: 1, index: 0, attempt: 1 };

    fn dir() -> (tempfile::TempDir, LogDir) {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(dir.path());
        drop(logs.create(TASK, Stream::Out).unwrap());
        (dir, logs)
    }

    fn read(logs: &LogDir) -> LogMarks {
        LogMarks::parse(&fs::read(logs.path(TASK, Stream::Times)).unwrap_or_default())
    }

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn a_row_is_written_when_the_output_grew_and_at_most_once_in_an_interval() {
        let (_dir, logs) = dir();
        let start = Instant::now();
        fs::write(logs.path(TASK, Stream::Times), b"of an earlier try to start it").unwrap();
        let mut marks = Marks::begin(start);
        for (ms, bytes) in
            [(50, [3, 0]), (300, [5, 0]), (350, [5, 7]), (600, [5, 7]), (900, [5, 7]), (1200, [5, 9])]
        {
            marks.look(&logs, TASK, bytes, after(start, ms));
        }
        let sizes =
            |marks: LogMarks| marks.all().iter().map(|m| [m.out_bytes, m.err_bytes]).collect::<Vec<_>>();
        assert_eq!(sizes(read(&logs)), [[5, 0], [5, 7], [5, 9]]);
        marks.end(&logs, TASK, [6, 9], unix_ns());
        assert_eq!(sizes(read(&logs)), [[5, 0], [5, 7], [5, 9], [6, 9]]);
        marks.end(&logs, TASK, [0, 0], unix_ns());
        assert!(!logs.path(TASK, Stream::Times).exists(), "nothing is left of the output");
    }

    #[test]
    fn an_attempt_of_less_than_an_interval_has_no_file() {
        let (_dir, logs) = dir();
        Marks::begin(Instant::now()).end(&logs, TASK, [5, 0], unix_ns());
        assert!(!logs.path(TASK, Stream::Times).exists());
        Marks::begin(Instant::now()).end(&logs, TASK, [5, 0], unix_ns() - 1_000_000_000);
        assert_eq!(read(&logs).all().len(), 1);
    }

    #[test]
    fn a_full_file_is_thinned_out_and_goes_on_with_longer_intervals() {
        let (_dir, logs) = dir();
        let rows = (1..=LOG_MARKS_MAX as u64).map(|n| LogMark { at_ms: n * 250, out_bytes: n, err_bytes: 0 });
        let file: Vec<u8> = rows.flat_map(LogMark::to_bytes).collect();
        fs::write(logs.path(TASK, Stream::Times), file).unwrap();
        let (last_ms, last_bytes) = (LOG_MARKS_MAX as u64 * 250, [LOG_MARKS_MAX as u64, 0]);
        let mut marks = Marks { rows: LOG_MARKS_MAX, last_ms, last_bytes, every_ms: 0, looked_at: None };
        let start = Instant::now();
        marks.look(&logs, TASK, [last_bytes[0] + 10, 0], start);
        let found = read(&logs);
        assert_eq!(found.all().len(), marks.rows);
        assert!(marks.rows <= LOG_MARKS_MAX / 2 + 1 && marks.every_ms > LOG_MARK_EVERY_MS);
        assert_eq!(found.all().last().unwrap().out_bytes, last_bytes[0] + 10);
        let told = found.at_ms(found.interval(LogStream::Stdout, 999)).unwrap();
        assert!((250_000..250_000 + 2 * marks.every_ms).contains(&told), "{told}");
        marks.look(&logs, TASK, [last_bytes[0] + 20, 0], after(start, LOG_MARK_EVERY_MS));
        assert_eq!(read(&logs), found, "the interval is longer now");
    }

    #[test]
    fn what_cannot_be_written_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let logs = LogDir::new(dir.path());
        let start = Instant::now();
        let mut marks = Marks::begin(start);
        marks.look(&logs, TASK, [5, 0], after(start, 300));
        drop(logs.create(TASK, Stream::Out).unwrap());
        marks.look(&logs, TASK, [9, 2], after(start, 600));
        assert_eq!(read(&logs).all().len(), 1, "the directory was not there at first");
    }
}
