//! Both outputs of a task in the order in which they were written, and the times of their lines.

use crate::commands::log_lines::{LINE_BYTES_GUESS, TAIL_BYTES_MAX, TAIL_BYTES_MIN};
use crate::ui::printer::STREAMS;
use crate::ui::quantity::exact_moment;
use crate::ui::writer::Writer;
use futures_util::StreamExt as _;
use std::collections::VecDeque;
use windlass_api::client::{Client, ClientError, LogLinesQuery, LogQuery, log_lines};
use windlass_api::{LogLine, LogLines};

/// What is written in the place of a time that is not known.
const NO_TIME: &str = "-                      ";

/// Which lines of an attempt are shown, and how.
pub struct WantedLines {
    /// Whether standard output and standard error are shown.
    pub streams: [bool; 2],
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Only the last bytes of each stream.
    pub tail_bytes: Option<u32>,
    /// Only the last lines of each stream.
    pub lines: Option<u32>,
}

/// The lines of an attempt, and the place up to which they were shown.
pub struct LinesInOrder {
    wanted: WantedLines,
    /// What is asked for next.
    query: LogLinesQuery,
}

/// The places of the last lines of a stream.
#[derive(Default)]
struct LastPlaces {
    /// That of the first line that was read.
    first: Option<u64>,
    places: VecDeque<u64>,
}

impl LinesInOrder {
    /// The lines of the attempt with this number, from 1 on. Nothing is read yet.
    pub fn new(attempt: u32, wanted: WantedLines) -> Self {
        let offset = wanted.tail_bytes.map_or(0, |bytes| -i64::from(bytes));
        let query = LogLinesQuery { attempt, stdout_offset: offset, stderr_offset: offset };
        LinesInOrder { wanted, query }
    }

    /// Shows the lines that are there now, and were not shown. A server of an earlier release answers that it does not
    /// know the request.
    pub async fn show(&mut self, client: &Client, id: &str, writer: &Writer) -> Result<(), ClientError> {
        if let Some(lines) = self.wanted.lines {
            self.seek_last(client, id, lines).await?;
            self.wanted.lines = None;
        }
        loop {
            let answer = log_lines(client, id, &self.query).await?;
            for lines in answer.lines.chunk_by(|one, next| one.stream == next.stream) {
                let which = lines[0].stream as usize;
                if !self.wanted.streams[which] {
                    continue;
                }
                let mut text = Vec::new();
                for line in lines {
                    self.add(client, id, line, &mut text).await?;
                }
                writer.write(STREAMS[which].1, text).await;
            }
            go_behind(&mut self.query, &answer);
            if !answer.more {
                return Ok(());
            }
        }
    }

    /// Goes to the last lines of each stream.
    async fn seek_last(&mut self, client: &Client, id: &str, lines: u32) -> Result<(), ClientError> {
        let mut bytes = lines.saturating_mul(LINE_BYTES_GUESS).clamp(TAIL_BYTES_MIN, TAIL_BYTES_MAX);
        loop {
            let (offset, attempt) = (-i64::from(bytes), self.query.attempt);
            let mut query = LogLinesQuery { attempt, stdout_offset: offset, stderr_offset: offset };
            let mut last = <[LastPlaces; 2]>::default();
            loop {
                let answer = log_lines(client, id, &query).await?;
                for line in &answer.lines {
                    last[line.stream as usize].add(line.offset, lines as usize);
                }
                go_behind(&mut query, &answer);
                if !answer.more {
                    break;
                }
            }
            if bytes == TAIL_BYTES_MAX || last.iter().all(|last| last.is_enough(lines as usize)) {
                let [out, err] = last.map(|last| last.places.front().copied().map(offset_of));
                query.stdout_offset = out.unwrap_or(query.stdout_offset);
                query.stderr_offset = err.unwrap_or(query.stderr_offset);
                self.query = query;
                return Ok(());
            }
            bytes = bytes.saturating_mul(8).min(TAIL_BYTES_MAX);
        }
    }

    async fn add(
        &self,
        client: &Client,
        id: &str,
        line: &LogLine,
        text: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        if self.wanted.timestamps {
            let time = line.at_ms.map_or_else(|| NO_TIME.to_owned(), exact_moment);
            text.extend_from_slice(format!("{time} {}\n", line.text).as_bytes());
        } else if line.lossy {
            text.extend(self.bytes(client, id, line).await?);
        } else {
            let ends = line.bytes > line.text.len() as u64;
            // A line that stands for more bytes than it has tells that they are gone. The line before it has no end.
            if line.bytes > line.text.len() as u64 + 1 {
                text.push(b'\n');
            }
            text.extend_from_slice(line.text.as_bytes());
            text.extend(ends.then_some(b'\n'));
        }
        Ok(())
    }

    /// The bytes of a line that is not text, with its end.
    async fn bytes(&self, client: &Client, id: &str, line: &LogLine) -> Result<Vec<u8>, ClientError> {
        let query = LogQuery {
            stream: line.stream.name(),
            attempt: Some(self.query.attempt),
            offset: i64::try_from(line.offset).ok(),
            ..LogQuery::default()
        };
        let (_, parts) = client.log(id, &query).await?;
        let (mut parts, mut bytes) = (Box::pin(parts), Vec::new());
        let most = usize::try_from(line.bytes).unwrap_or(usize::MAX);
        while bytes.len() < most
            && let Some(part) = parts.next().await
        {
            bytes.extend(part?);
        }
        bytes.truncate(most);
        Ok(bytes)
    }
}

impl LastPlaces {
    fn add(&mut self, place: u64, most: usize) {
        self.first.get_or_insert(place);
        self.places.push_back(place);
        if self.places.len() > most {
            self.places.pop_front();
        }
    }

    /// True if no more lines are wanted, or no more are there.
    fn is_enough(&self, wanted: usize) -> bool {
        self.places.len() >= wanted || self.first.is_none_or(|first| first == 0)
    }
}

/// The query for what follows an answer.
fn go_behind(query: &mut LogLinesQuery, answer: &LogLines) {
    query.stdout_offset = offset_of(answer.next_stdout);
    query.stderr_offset = offset_of(answer.next_stderr);
}

fn offset_of(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_of_the_last_lines_are_kept() {
        let mut last = LastPlaces::default();
        assert!(last.is_enough(2), "nothing was written");
        [7, 9, 12].into_iter().for_each(|place| last.add(place, 2));
        assert_eq!(last.places, [9, 12]);
        assert!(last.is_enough(2) && !last.is_enough(3), "the first line began before them");
        let mut none = LastPlaces::default();
        none.add(7, 0);
        assert!(none.places.is_empty() && none.is_enough(0));
    }
}
