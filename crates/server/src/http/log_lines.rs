//! Both outputs of an attempt as lines, in the order in which they were written.

use super::extract::{Path, Query};
use super::lists::within;
use super::log_order::{LINE_BYTES_MAX, StreamPart, merge};
use super::logs::{self, CHUNK_BYTES};
use super::{App, tasks};
use crate::api_error::ApiError;
use crate::link::{LogChunk, LogFile, LogRequest, WorkerLink};
use crate::reader::Reader;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use utoipa::IntoParams;
use windlass_api::{
    ErrorCode, LOG_MARK_BYTES, LOG_MARK_EVERY_MS, LOG_MARKS_MAX, LogLines, LogMarks, LogStream, Task,
};
use windlass_core::TaskId;

/// Bytes of text that an answer has at most, and if the caller does not say: a client asks again for more.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How often the first mark of an attempt that runs is looked for again, an interval of marks apart. After that none is
/// to be expected: a worker of an earlier release makes none.
const FIRST_MARK_LOOKS: u32 = 4;

/// Which part of the output.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LogLinesQuery {
    /// The last attempt by default.
    attempt: Option<u32>,
    /// Bytes of standard output to leave out at the beginning: `next_stdout` of the answer before. A negative number
    /// counts from the end of each stream, and the first line begins behind it.
    #[serde(default)]
    stdout_offset: i64,
    /// The same for standard error: `next_stderr` of the answer before.
    #[serde(default)]
    stderr_offset: i64,
    /// Bytes of text in the answer, up to 1 MiB, which is the default. At least one line is given if there is one.
    limit: Option<usize>,
}

/// Gives the lines of both outputs of an attempt, in the order in which they were written, with their times. A client
/// that wants all of them asks again with the offsets of the answer while `more` is true. Of an attempt that runs, a
/// line comes up to half a second after it is written, once it has its end.
#[utoipa::path(get, path = "/api/v1/tasks/{id}/log/lines", tag = "tasks",
    params(("id" = String, Path), LogLinesQuery),
    responses((status = 200, body = LogLines),
              (status = 403, description = "The job belongs to another user", body = windlass_api::ErrorBody),
              (status = 404, description = "No such task or attempt", body = windlass_api::ErrorBody),
              (status = 503, description = "The worker that has the output is not connected, or the server is ending",
                  body = windlass_api::ErrorBody)))]
pub async fn log_lines(
    State(app): State<App>,
    reader: Reader,
    Path(id): Path<String>,
    Query(query): Query<LogLinesQuery>,
) -> Result<Json<LogLines>, ApiError> {
    let id = tasks::parse_id(&id)?;
    let bytes_max = within("limit", query.limit, ANSWER_BYTES_MAX, ANSWER_BYTES_MAX)?;
    let mut task = logs::readable(&app, &reader, id, query.attempt).await?;
    let attempt = query.attempt.unwrap_or(task.attempt.attempt);
    let Some(name) = logs::worker_of(&task, attempt) else { return Ok(Json(LogLines::default())) };
    let link = app.handle.worker_id(&name).await?.and_then(|worker| app.handle.parts().links.get(worker));
    let attempt_log = AttemptLog { link: link.ok_or_else(|| logs::away(id, &name))?, task: id, attempt };
    let offsets = [query.stdout_offset, query.stderr_offset];
    let mut looks = 0;
    loop {
        let end = AttemptEnd::of(&task, attempt);
        let lines = attempt_log.lines(&end, offsets, bytes_max).await;
        let lines = lines.map_err(|error| ApiError::new(ErrorCode::Unavailable, error.to_string()))?;
        if looks == FIRST_MARK_LOOKS || !end.may_be_marked(&lines) {
            return Ok(Json(lines));
        }
        looks += 1;
        tokio::time::sleep(Duration::from_millis(LOG_MARK_EVERY_MS)).await;
        // It may have ended meanwhile, without a mark.
        task = logs::readable(&app, &reader, id, Some(attempt)).await?;
    }
}

/// What is known of an attempt's end.
struct AttemptEnd {
    /// It writes no more.
    is_over: bool,
    /// When it wrote what it wrote after its last mark: of an attempt that was too short for marks.
    rest_ms: Option<u64>,
}

impl AttemptEnd {
    fn of(task: &Task, number: u32) -> AttemptEnd {
        let mut tried = std::iter::once(&task.attempt).chain(&task.history);
        let attempt = tried.find(|tried| tried.attempt == number);
        let finished_ms = attempt.and_then(|attempt| attempt.finished_ms);
        let ran_ms = attempt.and_then(|attempt| finished_ms?.checked_sub(attempt.started_ms?));
        AttemptEnd {
            is_over: finished_ms.is_some() || number < task.attempt.attempt || task.state.is_end(),
            rest_ms: finished_ms.filter(|_| ran_ms.is_some_and(|ms| ms <= LOG_MARK_EVERY_MS)),
        }
    }

    /// True if the first mark is still to come, which tells when these lines were written.
    fn may_be_marked(&self, lines: &LogLines) -> bool {
        !self.is_over && lines.lines.first().is_some_and(|line| line.at_ms.is_none())
    }
}

/// The files of an attempt, on its worker.
struct AttemptLog {
    link: Arc<dyn WorkerLink>,
    task: TaskId,
    attempt: u32,
}

impl AttemptLog {
    async fn lines(&self, end: &AttemptEnd, offsets: [i64; 2], bytes_max: usize) -> io::Result<LogLines> {
        let marks = self.marks().await?;
        // What a running attempt wrote after its last mark gets its place with the next one.
        let last = marks.all().last().filter(|_| !end.is_over);
        let mut parts = <[StreamPart; 2]>::default();
        for (part, (stream, offset)) in parts.iter_mut().zip(LogStream::BOTH.into_iter().zip(offsets)) {
            let until = last.map_or(u64::MAX, |mark| mark.bytes(stream));
            *part = self.part(stream, offset, until, (bytes_max, end.is_over)).await?;
        }
        Ok(merge(parts, &marks, end.rest_ms, bytes_max))
    }

    async fn marks(&self) -> io::Result<LogMarks> {
        let mut file = Vec::new();
        while file.len() < LOG_MARKS_MAX * LOG_MARK_BYTES {
            let chunk = self.read(LogFile::Times, file.len() as i64).await?;
            if chunk.bytes.is_empty() {
                break;
            }
            file.extend(chunk.bytes);
        }
        Ok(LogMarks::parse(&file))
    }

    /// The lines of a stream from `offset` to `until`: about `bytes_max` bytes, and enough for a whole line.
    async fn part(
        &self,
        stream: LogStream,
        offset: i64,
        until: u64,
        (bytes_max, is_over): (usize, bool),
    ) -> io::Result<StreamPart> {
        let file = LogFile::Output(stream);
        let (mut part, first) = match u64::try_from(offset) {
            Ok(offset) => (StreamPart::begin(offset), None),
            Err(_) => {
                let (begins, chunk) = self.tail(file, offset).await?;
                (StreamPart::begin(begins), Some(chunk))
            }
        };
        let begins = part.next_byte();
        if let Some(chunk) = first {
            part.push(chunk, until).map_err(io::Error::other)?;
        }
        loop {
            let place = part.next_byte();
            let read = place.saturating_sub(begins);
            if read >= bytes_max.max(2 * LINE_BYTES_MAX) as u64 {
                return Ok(part);
            }
            let chunk = match i64::try_from(place) {
                Ok(offset) if place < until => self.read(file, offset).await?,
                _ => LogChunk::default(),
            };
            let is_end = chunk.bytes.is_empty();
            if !is_end {
                part.push(chunk, until).map_err(io::Error::other)?;
            }
            if is_end || part.next_byte() == place {
                part.end(is_over);
                return Ok(part);
            }
        }
    }

    /// The first chunk of the end of a file, from the beginning of a line on, and its place.
    async fn tail(&self, file: LogFile, offset: i64) -> io::Result<(u64, LogChunk)> {
        // The byte before tells whether a line begins there.
        let mut chunk = self.read(file, offset.saturating_sub(1)).await?;
        let begins = chunk.next.saturating_sub(chunk.bytes.len() as u64);
        let line = chunk.bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if begins == 0 || line == 0 {
            return Ok((begins, chunk));
        }
        chunk.bytes.drain(..line);
        Ok((begins + line as u64, chunk))
    }

    /// A chunk of a file, which is empty at its end, and of a file that is not there.
    async fn read(&self, file: LogFile, offset: i64) -> io::Result<LogChunk> {
        let request =
            LogRequest { task: self.task, attempt: self.attempt, file, offset, bytes_max: CHUNK_BYTES };
        Ok(self.link.read_log(request).await?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Delivery, LogFuture};
    use windlass_api::LogMark;

    /// A worker with the output of one attempt. It gives a few bytes at a time.
    struct WorkerWithOutput {
        files: [Vec<u8>; 3],
    }

    impl WorkerLink for WorkerWithOutput {
        fn id(&self) -> u64 {
            1
        }

        fn deliver(&self, _parcel: Vec<Delivery>) {}

        fn refuse(&self, _why: &str) {}

        fn read_log(&self, request: LogRequest) -> LogFuture {
            let file = match request.file {
                LogFile::Output(stream) => &self.files[stream as usize],
                LogFile::Times => &self.files[2],
            };
            let from = match usize::try_from(request.offset) {
                Ok(from) => from.min(file.len()),
                Err(_) => file.len().saturating_sub(request.offset.unsigned_abs() as usize),
            };
            let bytes = file[from..file.len().min(from + 7)].to_vec();
            let chunk = LogChunk { next: (from + bytes.len()) as u64, bytes };
            Box::pin(std::future::ready(Ok(Some(chunk).filter(|_| !file.is_empty()))))
        }
    }

    fn log(out: &[u8], err: &[u8], rows: &[[u64; 3]]) -> AttemptLog {
        let rows = rows.iter().flat_map(|[at_ms, out_bytes, err_bytes]| {
            LogMark { at_ms: *at_ms, out_bytes: *out_bytes, err_bytes: *err_bytes }.to_bytes()
        });
        let link = Arc::new(WorkerWithOutput { files: [out.to_vec(), err.to_vec(), rows.collect()] });
        AttemptLog { link, task: TaskId { job: windlass_core::JobId(1), index: 0 }, attempt: 1 }
    }

    async fn texts(log: &AttemptLog, is_over: bool, offsets: [i64; 2]) -> (Vec<String>, [u64; 2]) {
        let end = AttemptEnd { is_over, rest_ms: None };
        let lines = log.lines(&end, offsets, ANSWER_BYTES_MAX).await.unwrap();
        assert!(!lines.more);
        let texts = lines.lines.into_iter().map(|line| line.text).collect();
        (texts, [lines.next_stdout, lines.next_stderr])
    }

    #[tokio::test]
    async fn lines_are_read_to_the_end_or_to_the_last_mark() {
        let log = log(b"one\ntwo\nthree\n", b"error\nmore", &[[10, 4, 0], [20, 4, 6], [30, 8, 6]]);
        let (all, next) = texts(&log, true, [0, 0]).await;
        assert_eq!(all, ["one", "error", "two", "three", "more"]);
        assert_eq!(next, [14, 10]);
        let (so_far, next) = texts(&log, false, [0, 0]).await;
        assert_eq!(so_far, ["one", "error", "two"]);
        assert_eq!(next, [8, 6]);
        let (rest, _) = texts(&log, true, next.map(|place| place as i64)).await;
        assert_eq!(rest, ["three", "more"]);
    }

    #[tokio::test]
    async fn the_end_begins_with_a_whole_line() {
        let log = log(b"one\ntwo\nthree\n", b"", &[]);
        for (bytes, expected) in
            [(6, vec!["three"]), (7, vec!["three"]), (9, vec!["three"]), (10, vec!["two", "three"])]
        {
            assert_eq!(texts(&log, true, [-bytes, -bytes]).await.0, expected, "{bytes}");
        }
        assert_eq!(texts(&log, true, [-100, -100]).await.0, ["one", "two", "three"]);
    }

    async fn may_be_marked(out: &[u8], rows: &[[u64; 3]], is_over: bool) -> bool {
        let end = AttemptEnd { is_over, rest_ms: None };
        let lines = log(out, b"", rows).lines(&end, [0, 0], ANSWER_BYTES_MAX).await.unwrap();
        end.may_be_marked(&lines)
    }

    #[tokio::test]
    async fn the_first_lines_of_an_attempt_wait_for_their_mark() {
        assert!(may_be_marked(b"one\n", &[], false).await);
        assert!(!may_be_marked(b"", &[], false).await, "nothing was written");
        assert!(!may_be_marked(b"one\ntwo\n", &[[10, 4, 0]], false).await);
        assert!(!may_be_marked(b"one\n", &[], true).await, "no mark comes any more");
    }

    #[test]
    fn a_short_attempt_wrote_at_its_end() {
        let of = |started_ms, finished_ms| {
            let attempt = windlass_api::Attempt { attempt: 2, started_ms, finished_ms, ..Default::default() };
            let task = Task {
                id: "1.0".to_owned(),
                job: 1,
                index: 0,
                step: "main".to_owned(),
                value: None,
                state: windlass_api::TaskState::Running,
                progress: None,
                status: None,
                jobserver: None,
                expected_end_ms: None,
                attempt,
                failure: None,
                history: Vec::new(),
            };
            let end = AttemptEnd::of(&task, 2);
            (end.is_over, end.rest_ms)
        };
        assert_eq!(of(Some(1_000), Some(1_200)), (true, Some(1_200)));
        assert_eq!(of(Some(1_000), Some(1_300)), (true, None), "its worker made no marks");
        assert_eq!(of(None, Some(1_300)), (true, None));
        assert_eq!(of(Some(1_000), None), (false, None));
    }
}
