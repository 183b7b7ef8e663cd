//! The lines of both outputs of an attempt in one order.
//!
//! Properties: each byte of both streams is in one line, in the order of its stream. A line stands before all lines of
//! later intervals between two marks, and within an interval standard output stands before standard error.

use crate::link::LogChunk;
use std::collections::VecDeque;
use windlass_api::{LogLine, LogLines, LogMarks, LogStream};

/// Bytes of a line; a longer one is divided.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;
/// Lines of an answer.
const LINES_MAX: usize = 20_000;

/// How a worker's note begins that stands in output in the place of bytes that are gone.
const NOTE: &[u8] = b"\n[windlass: ";

/// A part of one stream, divided into lines.
#[derive(Default)]
pub(super) struct StreamPart {
    lines: VecDeque<PlacedLine>,
    /// The bytes of a line whose end was not read yet.
    open: Vec<u8>,
    /// The place of the first of them; of the next byte if there are none.
    open_at: u64,
    /// No more is there now.
    is_whole: bool,
}

struct PlacedLine {
    offset: u64,
    bytes: u64,
    text: Vec<u8>,
}

/// A worker says that what follows in a file lies before what it gave already.
#[derive(Debug, thiserror::Error)]
#[error("its worker says that the file goes backwards")]
pub(super) struct Backwards;

impl StreamPart {
    /// A part that begins at this byte of its stream.
    pub fn begin(offset: u64) -> StreamPart {
        StreamPart { open_at: offset, ..StreamPart::default() }
    }

    /// The place of the next byte to read.
    pub fn next_byte(&self) -> u64 {
        self.open_at.saturating_add(self.open.len() as u64)
    }

    /// Takes the bytes that were read from [`StreamPart::next_byte`] on, as far as they lie before `end`.
    pub fn push(&mut self, chunk: LogChunk, end: u64) -> Result<(), Backwards> {
        let LogChunk { next, mut bytes } = chunk;
        let place = self.next_byte();
        if place.checked_add(bytes.len() as u64) != Some(next) {
            let note_bytes = note_bytes(&bytes);
            let begins = next.checked_sub((bytes.len() - note_bytes) as u64);
            let begins = begins.filter(|begins| *begins >= place).ok_or(Backwards)?;
            self.close();
            if begins >= end {
                return Ok(());
            }
            if note_bytes > 0 {
                let text = bytes.drain(..note_bytes).collect::<Vec<u8>>();
                let text = text[1..note_bytes - 1].to_vec();
                self.lines.push_back(PlacedLine { offset: place, bytes: begins - place, text });
            }
            self.open_at = begins;
        }
        let room = end.saturating_sub(self.next_byte());
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(piece);
            while self.open.len() - usize::from(self.open.ends_with(b"\n")) > LINE_BYTES_MAX {
                self.take(cut_at(&self.open));
            }
            if self.open.ends_with(b"\n") {
                self.close();
            }
        }
        Ok(())
    }

    /// All that there is was read. Nothing follows what an attempt that `is_over` wrote, so what has no end is a line,
    /// too.
    pub fn end(&mut self, is_over: bool) {
        self.is_whole = true;
        if is_over {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.take(self.open.len());
        }
    }

    /// Makes the first bytes of the open line a line.
    fn take(&mut self, bytes: usize) {
        let mut text: Vec<u8> = self.open.drain(..bytes).collect();
        text.truncate(text.len() - usize::from(text.ends_with(b"\n")));
        self.lines.push_back(PlacedLine { offset: self.open_at, bytes: bytes as u64, text });
        self.open_at = self.open_at.saturating_add(bytes as u64);
    }

    /// The place of the first line that was not given.
    fn place(&self) -> u64 {
        self.lines.front().map_or(self.open_at, |line| line.offset)
    }

    /// Whether a line of it comes, from here or from what was not read.
    fn goes_on(&self) -> bool {
        !self.lines.is_empty() || !self.is_whole
    }
}

/// Where a line that is too long is divided: not within a character.
fn cut_at(line: &[u8]) -> usize {
    let is_begin = |at: &usize| line[*at] & 0b1100_0000 != 0b1000_0000;
    (LINE_BYTES_MAX - 3..=LINE_BYTES_MAX).rev().find(is_begin).unwrap_or(LINE_BYTES_MAX)
}

/// Bytes of the note with which a part begins where output before it is gone; 0 if there is none.
fn note_bytes(bytes: &[u8]) -> usize {
    if !bytes.starts_with(NOTE) {
        return 0;
    }
    let end = bytes[1..].iter().position(|byte| *byte == b'\n');
    end.map_or(0, |at| at + 2)
}

/// The first lines of both parts in their order, with at most `bytes_max` bytes of text and one line more. `rest_ms` is
/// the time of what was written after the last mark, where that is known.
pub(super) fn merge(
    mut parts: [StreamPart; 2],
    marks: &LogMarks,
    rest_ms: Option<u64>,
    bytes_max: usize,
) -> LogLines {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    let more = loop {
        let going = LogStream::BOTH.into_iter().zip(&parts).filter(|(_, part)| part.goes_on());
        let first = going.map(|(stream, part)| (marks.interval(stream, part.place()), stream)).min();
        let Some((interval, stream)) = first else { break false };
        if bytes >= bytes_max || lines.len() >= LINES_MAX {
            break true;
        }
        // The line that comes next was not read, and no line of the other stream stands before it.
        let Some(PlacedLine { offset, bytes: taken, text }) = parts[stream as usize].lines.pop_front() else {
            break true;
        };
        bytes += text.len() + 1;
        let at_ms = marks.at_ms(interval).or(rest_ms);
        let lossy = std::str::from_utf8(&text).is_err();
        let text = String::from_utf8_lossy(&text).into_owned();
        lines.push(LogLine { stream, at_ms, offset, bytes: taken, text, lossy });
    };
    let [next_stdout, next_stderr] = parts.each_ref().map(StreamPart::place);
    LogLines { lines, next_stdout, next_stderr, more }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_api::LogMark;

    fn marks(rows: &[[u64; 3]]) -> LogMarks {
        let rows = rows.iter().map(|[at_ms, out_bytes, err_bytes]| LogMark {
            at_ms: *at_ms,
            out_bytes: *out_bytes,
            err_bytes: *err_bytes,
        });
        LogMarks::parse(&rows.flat_map(LogMark::to_bytes).collect::<Vec<u8>>())
    }

    /// Reads a stream from a place on, in chunks of this size, until `bytes_max` and a line were read.
    fn part(
        stream: &[u8],
        offset: u64,
        (chunk_bytes, bytes_max): (usize, usize),
        is_over: bool,
    ) -> StreamPart {
        let mut part = StreamPart::begin(offset);
        let mut read = 0;
        while read < bytes_max || part.lines.is_empty() {
            let rest = &stream[part.next_byte() as usize..];
            let bytes = rest[..rest.len().min(chunk_bytes)].to_vec();
            if bytes.is_empty() {
                part.end(is_over);
                break;
            }
            read += bytes.len();
            part.push(LogChunk { next: part.next_byte() + bytes.len() as u64, bytes }, u64::MAX).unwrap();
        }
        part
    }

    fn told(lines: &LogLines) -> Vec<(LogStream, Option<u64>, &str)> {
        lines.lines.iter().map(|line| (line.stream, line.at_ms, line.text.as_str())).collect()
    }

    #[test]
    fn lines_of_both_streams_stand_in_the_order_of_their_intervals() {
        use LogStream::{Stderr, Stdout};
        let marks = marks(&[[10, 2, 0], [20, 2, 6], [30, 5, 8]]);
        let parts = || [part(b"a\nbc\nd", 0, (9, 99), true), part(b"error\nx\n", 0, (9, 99), true)];
        let all = merge(parts(), &marks, None, 100);
        let expected = [
            (Stdout, Some(10), "a"),
            (Stderr, Some(20), "error"),
            (Stdout, Some(30), "bc"),
            (Stderr, Some(30), "x"),
            (Stdout, None, "d"),
        ];
        assert_eq!(told(&all), expected);
        assert_eq!((all.next_stdout, all.next_stderr, all.more), (6, 8, false));
        assert_eq!(all.lines[4].bytes, 1, "it has no end");
        assert_eq!(merge(parts(), &marks, Some(40), 100).lines[4].at_ms, Some(40));
        let first = merge(parts(), &marks, None, 3);
        assert_eq!((first.lines.len(), first.next_stdout, first.next_stderr, first.more), (2, 2, 6, true));
        let unmarked = merge(parts(), &LogMarks::default(), None, 100);
        let streams: Vec<_> = unmarked.lines.iter().map(|line| line.stream).collect();
        assert_eq!(streams, [Stdout, Stdout, Stdout, Stderr, Stderr]);
    }

    #[test]
    fn a_line_that_still_grows_is_left_for_later() {
        let parts = [part(b"a\n10%", 0, (9, 99), false), part(b"", 0, (9, 99), false)];
        let lines = merge(parts, &LogMarks::default(), None, 100);
        assert_eq!((lines.lines.len(), lines.next_stdout, lines.more), (1, 2, false));
    }

    #[test]
    fn a_note_stands_in_the_place_of_bytes_that_are_gone() {
        let mut part = StreamPart::begin(0);
        part.push(LogChunk { next: 4, bytes: b"a\nbc".to_vec() }, u64::MAX).unwrap();
        let bytes = b"\n[windlass: 96 bytes are left out here]\nend\n".to_vec();
        part.push(LogChunk { next: 104, bytes }, u64::MAX).unwrap();
        part.end(true);
        let lines = merge([part, StreamPart::default()], &LogMarks::default(), None, 1_000).lines;
        let placed: Vec<_> = lines.iter().map(|line| (line.offset, line.bytes, line.text.as_str())).collect();
        let note = "[windlass: 96 bytes are left out here]";
        assert_eq!(placed, [(0, 2, "a"), (2, 2, "bc"), (4, 96, note), (100, 4, "end")]);
        assert!(StreamPart::begin(50).push(LogChunk { next: 3, bytes: b"abc".to_vec() }, u64::MAX).is_err());
    }

    #[test]
    fn nothing_behind_the_last_mark_of_a_running_attempt_is_taken() {
        let mut part = StreamPart::begin(0);
        part.push(LogChunk { next: 6, bytes: b"a\nb\nc\n".to_vec() }, 4).unwrap();
        assert_eq!(part.next_byte(), 4);
        part.push(LogChunk { next: 900, bytes: b"\n[windlass: 1]\n".to_vec() }, 4).unwrap();
        part.end(false);
        assert_eq!((part.lines.len(), part.place()), (2, 0));
    }

    #[test]
    fn a_long_line_is_divided_between_characters() {
        let text = format!("x{}\nend\n", "ä".repeat(LINE_BYTES_MAX));
        let parts = [part(text.as_bytes(), 0, (100_000, 1 << 20), true), StreamPart::default()];
        let lines = merge(parts, &LogMarks::default(), None, 1 << 20).lines;
        assert!(lines.iter().all(|line| !line.lossy && line.text.len() <= LINE_BYTES_MAX));
        assert_eq!(lines.iter().map(|line| line.text.as_str()).collect::<String>(), text.replace('\n', ""));
    }

    /// Bytes with many ends of lines.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..300)
    }

    proptest! {
        /// Answer after answer, each from the places that the one before gives.
        #[test]
        fn all_bytes_of_both_streams_appear_once_and_in_order(
            (out, err) in (output(), output()),
            rows in prop::collection::vec([0u64..2_000, 0u64..330, 0u64..330], 0..40),
            (chunk_bytes, bytes_max) in (1usize..200, 1usize..400),
        ) {
            let mut rows = rows;
            rows.sort_unstable();
            let (marks, streams) = (marks(&rows), [&out, &err]);
            let (mut places, mut shown) = ([0, 0], [Vec::new(), Vec::new()]);
            let mut last = (0, LogStream::Stdout);
            loop {
                let sizes = (chunk_bytes, 20);
                let parts = [0, 1].map(|which| part(streams[which], places[which], sizes, true));
                let answer = merge(parts, &marks, None, bytes_max);
                for line in &answer.lines {
                    let which = line.stream as usize;
                    prop_assert_eq!(line.offset, shown[which].len() as u64);
                    let bytes = &streams[which][line.offset as usize..][..line.bytes as usize];
                    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
                    prop_assert_eq!(String::from_utf8_lossy(text).into_owned(), line.text.clone());
                    shown[which].extend_from_slice(bytes);
                    let key = (marks.interval(line.stream, line.offset), line.stream);
                    prop_assert!(last <= key, "{last:?} {key:?}");
                    last = key;
                }
                places = [answer.next_stdout, answer.next_stderr];
                prop_assert_eq!(shown.each_ref().map(|shown| shown.len() as u64), places);
                if !answer.more {
                    break;
                }
                prop_assert!(!answer.lines.is_empty());
            }
            prop_assert_eq!(shown, [out, err]);
        }
    }
}
