//! Both outputs of a task in the order in which they were written, and the times of their lines.

use crate::ui::printer::STREAMS;
use crate::ui::quantity::exact_moment;
use crate::ui::writer::Writer;
use futures_util::StreamExt as _;
use windlass_api::LogLine;
use windlass_api::client::{Client, ClientError, LogLinesQuery, LogQuery, log_lines};

/// What is written in the place of a time that is not known.
const NO_TIME: &str = "-                      ";

/// How the lines of an attempt are shown.
pub struct LinesInOrder {
    /// The attempt's number, from 1 on.
    pub attempt: u32,
    /// Only the last bytes of each stream.
    pub tail_bytes: Option<u32>,
    /// Whether standard output and standard error are shown.
    pub wanted: [bool; 2],
    /// Each line begins with its time.
    pub timestamps: bool,
}

impl LinesInOrder {
    /// Shows the lines that are there now. A server of an earlier release answers that it does not know the request.
    pub async fn show(&self, client: &Client, id: &str, writer: &Writer) -> Result<(), ClientError> {
        let offset = self.tail_bytes.map_or(0, |bytes| -i64::from(bytes));
        let mut query = LogLinesQuery { attempt: self.attempt, stdout_offset: offset, stderr_offset: offset };
        loop {
            let answer = log_lines(client, id, &query).await?;
            for lines in answer.lines.chunk_by(|one, next| one.stream == next.stream) {
                let which = lines[0].stream as usize;
                if !self.wanted[which] {
                    continue;
                }
                let mut text = Vec::new();
                for line in lines {
                    self.add(client, id, line, &mut text).await?;
                }
                writer.write(STREAMS[which].1, text).await;
            }
            if !answer.more {
                return Ok(());
            }
            let place = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
            (query.stdout_offset, query.stderr_offset) =
                (place(answer.next_stdout), place(answer.next_stderr));
        }
    }

    async fn add(
        &self,
        client: &Client,
        id: &str,
        line: &LogLine,
        text: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        if self.timestamps {
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
            attempt: Some(self.attempt),
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
