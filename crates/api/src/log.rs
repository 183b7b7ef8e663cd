//! The output of a task in the order in which it was written: the marks that a worker makes of it, and the JSON of
//! lines.
//!
//! A task writes to two files by itself, so nothing sees its lines as they are written. Its keeper looks at the sizes
//! of both files a few times a second, and appends a mark to a third file if they grew. What lies between two marks was
//! written between two looks. So a line has the time of the first mark behind its first byte, and lines of both streams
//! have an order up to that interval.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Least interval between two looks at the sizes, in milliseconds. It is how exact the time of a line is.
pub const LOG_MARK_EVERY_MS: u64 = 250;
/// Marks that a file has at most: an hour of output without a pause. Then marks are merged, and the interval is longer.
pub const LOG_MARKS_MAX: usize = 16_384;
/// Bytes of a mark in the file.
pub const LOG_MARK_BYTES: usize = 24;

/// The sizes of both files of an attempt's output at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogMark {
    /// Milliseconds since the Unix epoch, by the worker's clock.
    pub at_ms: u64,
    /// Bytes of standard output.
    pub out_bytes: u64,
    /// Bytes of standard error.
    pub err_bytes: u64,
}

impl LogMark {
    /// The mark as it is in the file: three numbers of eight bytes, the lowest byte first.
    pub fn to_bytes(self) -> [u8; LOG_MARK_BYTES] {
        let mut bytes = [0; LOG_MARK_BYTES];
        let numbers = [self.at_ms, self.out_bytes, self.err_bytes];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> LogMark {
        let mut numbers = [0; 3];
        for (number, place) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_le_bytes(place.try_into().expect("a chunk has eight bytes"));
        }
        let [at_ms, out_bytes, err_bytes] = numbers;
        LogMark { at_ms, out_bytes, err_bytes }
    }
}

/// The marks of an attempt, oldest first. Neither times nor sizes fall.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogMarks(Vec<LogMark>);

impl LogMarks {
    /// The marks of a file. Any bytes are some marks: a row that is not whole is left out, and so are rows over the
    /// bound.
    pub fn parse(bytes: &[u8]) -> LogMarks {
        let rows = bytes.chunks_exact(LOG_MARK_BYTES).take(LOG_MARKS_MAX);
        let mut marks: Vec<LogMark> = rows.map(LogMark::from_bytes).collect();
        // A clock that was set back does not turn the order.
        let mut at_ms = 0;
        for mark in &mut marks {
            at_ms = mark.at_ms.max(at_ms);
            mark.at_ms = at_ms;
        }
        // A task may truncate its output. The sizes before that are of bytes that are gone.
        let (mut out, mut err) = (Some(u64::MAX), Some(u64::MAX));
        for mark in marks.iter_mut().rev() {
            mark.out_bytes = grown(mark.out_bytes, &mut out);
            mark.err_bytes = grown(mark.err_bytes, &mut err);
        }
        LogMarks(marks)
    }

    /// The marks in their order.
    pub fn all(&self) -> &[LogMark] {
        &self.0
    }

    /// The number of marks that were made before this byte of the stream was written. Bytes with the same number are of
    /// one interval.
    pub fn interval(&self, stream: LogStream, place: u64) -> usize {
        self.0.partition_point(|mark| mark.bytes(stream) <= place)
    }

    /// When the interval ended; `None` if no mark ends it.
    pub fn at_ms(&self, interval: usize) -> Option<u64> {
        self.0.get(interval).map(|mark| mark.at_ms)
    }

    /// Merges marks until at most half of them are left. `every_ms` is the interval so far; returns the new one, which
    /// is a power of two times as long. The last mark stays.
    pub fn thin_out(self, mut every_ms: u64) -> (LogMarks, u64) {
        let most = (self.0.len() / 2).max(1);
        let mut marks = self.0;
        while marks.len() > most {
            every_ms = every_ms.max(1).saturating_mul(2);
            let mut fewer: Vec<LogMark> = Vec::with_capacity(most + 1);
            let mut begun_ms = 0;
            for mark in marks {
                match fewer.last_mut() {
                    Some(last) if mark.at_ms.saturating_sub(begun_ms) <= every_ms => *last = mark,
                    _ => {
                        begun_ms = mark.at_ms;
                        fewer.push(mark);
                    }
                }
            }
            marks = fewer;
        }
        (LogMarks(marks), every_ms)
    }
}

impl LogMark {
    /// The size of one stream's file.
    pub fn bytes(&self, stream: LogStream) -> u64 {
        match stream {
            LogStream::Stdout => self.out_bytes,
            LogStream::Stderr => self.err_bytes,
        }
    }
}

/// The size of a mark, or 0 if the file was truncated later. `later` is the size of the next mark, and `None` from a
/// truncation back.
fn grown(bytes: u64, later: &mut Option<u64>) -> u64 {
    *later = later.filter(|later| bytes <= *later).map(|_| bytes);
    later.unwrap_or(0)
}

/// One of a task's two outputs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogStream {
    /// Both streams, standard output first.
    pub const BOTH: [LogStream; 2] = [LogStream::Stdout, LogStream::Stderr];

    /// The name as it is on the wire.
    pub fn name(self) -> &'static str {
        match self {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
        }
    }
}

/// A line of a task's output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Where the task wrote it.
    pub stream: LogStream,
    /// When it was there, by the worker's clock: up to a quarter of a second after its first byte was written. Absent
    /// where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
    /// The place of its first byte in its stream.
    pub offset: u64,
    /// Bytes that it takes in its stream, with its end. A line without an end has as many bytes as its text.
    pub bytes: u64,
    /// The line without its end.
    pub text: String,
    /// True if the line is not UTF-8, and bytes of it were replaced in the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
}

/// A part of both outputs of an attempt, in the order in which it was written.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LogLines {
    /// The lines, oldest first. Of those that were written in the same quarter of a second, standard output comes
    /// first.
    pub lines: Vec<LogLine>,
    /// The offset of the next line of standard output.
    pub next_stdout: u64,
    /// The offset of the next line of standard error.
    pub next_stderr: u64,
    /// True if more is there now. A running attempt may write more later.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(rows: &[[u64; 3]]) -> Vec<u8> {
        let marks = rows.iter().map(|[at_ms, out_bytes, err_bytes]| LogMark {
            at_ms: *at_ms,
            out_bytes: *out_bytes,
            err_bytes: *err_bytes,
        });
        marks.flat_map(LogMark::to_bytes).collect()
    }

    #[test]
    fn a_byte_is_of_the_first_mark_behind_it() {
        let marks = LogMarks::parse(&file(&[[10, 3, 0], [20, 3, 5], [30, 8, 5]]));
        let at = |stream, place| marks.at_ms(marks.interval(stream, place));
        assert_eq!([0, 2, 3, 7, 8].map(|place| at(LogStream::Stdout, place)), [10, 10, 30, 30, 0].map(known));
        assert_eq!([0, 4, 5].map(|place| at(LogStream::Stderr, place)), [20, 20, 0].map(known));
        assert_eq!(LogMarks::default().at_ms(0), None);
    }

    fn known(at_ms: u64) -> Option<u64> {
        Some(at_ms).filter(|at_ms| *at_ms > 0)
    }

    #[test]
    fn sizes_before_a_truncation_and_clocks_that_are_set_back_do_not_count() {
        let marks = LogMarks::parse(&file(&[[10, 3, 1], [20, 9, 2], [15, 4, 2], [30, 6, 3]]));
        assert_eq!(
            marks.all(),
            LogMarks::parse(&file(&[[10, 0, 1], [20, 0, 2], [20, 4, 2], [30, 6, 3]])).all()
        );
        assert_eq!(marks.at_ms(marks.interval(LogStream::Stdout, 0)), Some(20));
    }

    /// Marks as a keeper makes them: at least the interval apart.
    fn made() -> impl Strategy<Value = Vec<[u64; 3]>> {
        prop::collection::vec((250u64..2_000, 0u64..9, 0u64..9), 0..200).prop_map(|steps| {
            let mut row = [1_000, 0, 0];
            let grow = |(ms, out, err): (u64, u64, u64)| {
                row = [row[0] + ms, row[1] + out, row[2] + err];
                row
            };
            steps.into_iter().map(grow).collect()
        })
    }

    proptest! {
        #[test]
        fn any_bytes_are_marks_in_order(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let marks = LogMarks::parse(&bytes);
            prop_assert_eq!(marks.all().len(), bytes.len() / LOG_MARK_BYTES);
            for pair in marks.all().windows(2) {
                prop_assert!(pair[0].at_ms <= pair[1].at_ms);
                prop_assert!(LogStream::BOTH.iter().all(|stream| pair[0].bytes(*stream) <= pair[1].bytes(*stream)));
            }
            let again: Vec<u8> = marks.all().iter().flat_map(|mark| mark.to_bytes()).collect();
            prop_assert_eq!(LogMarks::parse(&again), marks.clone());
            let (fewer, every_ms) = marks.clone().thin_out(LOG_MARK_EVERY_MS);
            prop_assert!(fewer.all().len() <= 1.max(marks.all().len() / 2) && every_ms >= LOG_MARK_EVERY_MS);
        }

        #[test]
        fn half_of_the_marks_tell_times_within_the_longer_interval(rows in made()) {
            let marks = LogMarks::parse(&file(&rows));
            let (fewer, every_ms) = marks.clone().thin_out(LOG_MARK_EVERY_MS);
            prop_assert_eq!(fewer.all().last(), marks.all().last());
            prop_assert!(fewer.all().len() <= 1.max(rows.len() / 2));
            for stream in LogStream::BOTH {
                for place in 0..marks.all().last().map_or(0, |last| last.bytes(stream)) {
                    let at = |marks: &LogMarks| marks.at_ms(marks.interval(stream, place)).unwrap();
                    let (exact, told) = (at(&marks), at(&fewer));
                    prop_assert!(exact <= told && told < exact + 2 * every_ms, "{exact} {told} {every_ms}");
                }
            }
        }
    }
}
