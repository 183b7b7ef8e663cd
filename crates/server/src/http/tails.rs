//! The last lines that a failed task wrote to standard error, read from its worker.

use super::App;
use crate::link::{LogFile, LogRequest};
use crate::reader::{Reader, Whole};
use std::time::Duration;
use windlass_api::{Attempt, LogStream, Task};
use windlass_core::{JobId, TaskId};

/// Lines, and bytes of them, that a failure has of its task's standard error.
const LINES_MAX: usize = 10;
const BYTES_MAX: usize = 4 << 10;
/// How long a worker may take to answer. An answer about failures does not wait longer for output.
const PATIENCE: Duration = Duration::from_secs(1);

/// Adds the last lines of a failed task's standard error to its failure, for a reader who may read them. It adds nothing
/// while the worker is away.
pub(super) async fn add(app: &App, reader: &Reader, task: &mut Whole<Task>) {
    if task.failure.is_none() || task.attempt.err_bytes == 0 || !reader.may_read_job(task.spec()) {
        return;
    }
    let id = TaskId { job: JobId(task.job), index: task.index };
    let read = tokio::time::timeout(PATIENCE, tail(app, id, &task.attempt)).await;
    if let (Ok(Some(bytes)), Some(failure)) = (read, &mut task.failure) {
        failure.stderr = last_lines(&bytes);
    }
}

/// The end of what an attempt wrote to standard error; `None` if its worker cannot be asked.
async fn tail(app: &App, task: TaskId, attempt: &Attempt) -> Option<Vec<u8>> {
    let worker = app.handle.worker_id(attempt.worker.as_deref()?).await.ok()??;
    let link = app.handle.parts().links.get(worker)?;
    let request = LogRequest {
        task,
        attempt: attempt.attempt,
        file: LogFile::Output(LogStream::Stderr),
        offset: -(BYTES_MAX as i64),
        bytes_max: BYTES_MAX,
    };
    Some(link.read_log(request).await.ok()??.bytes)
}

/// The last lines of the end of a stream. A line of which the beginning is not in it is left out, and of a line that was
/// written over, as progress is, the last state is left.
fn last_lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let is_cut = bytes.len() >= BYTES_MAX;
    let whole = text.split_once('\n').filter(|(_, rest)| is_cut && !rest.trim().is_empty());
    let text = whole.map_or(&*text, |(_, rest)| rest).trim_end();
    if text.is_empty() {
        return Vec::new();
    }
    let shown = |line: &str| line.rsplit('\r').find(|state| !state.is_empty()).unwrap_or_default().to_owned();
    let lines: Vec<String> = text.split('\n').map(shown).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole() {
        assert_eq!(last_lines(b"cc: error: a.c\r\n  no such file\n\n"), ["cc: error: a.c", "  no such file"]);
        assert_eq!(last_lines(b"1%\r2%\rfailed"), ["failed"]);
        assert_eq!(last_lines(b"\xff\n"), ["\u{fffd}"]);
        assert!(last_lines(b"").is_empty() && last_lines(b"\n \n").is_empty());
        let many: String = (0..30).map(|n| format!("{n}\n")).collect();
        assert_eq!(last_lines(many.as_bytes()).first().unwrap(), "20");
    }

    #[test]
    fn a_line_without_its_beginning_is_left_out() {
        let long = "x".repeat(BYTES_MAX - 4);
        assert_eq!(last_lines(format!("{long}\nend").as_bytes()), ["end"]);
        assert_eq!(last_lines("y".repeat(BYTES_MAX).as_bytes()), ["y".repeat(BYTES_MAX)]);
    }
}
