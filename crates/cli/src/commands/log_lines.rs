//! The output of tasks by lines: the last of them, and the task before each.

use crate::ui::log_place::LogPlace;
use clap::{Args, ValueEnum};
use futures_util::StreamExt as _;
use std::io::{self, IsTerminal as _};
use windlass_api::client::{Client, ClientError, LogQuery};

/// Bytes that are read first for each line that is wanted. More are read if their lines are longer.
pub const LINE_BYTES_GUESS: u32 = 128;
/// Bytes that are read at least: they take one packet or two.
pub const TAIL_BYTES_MIN: u32 = 4 << 10;
/// Bytes that are read at most, whatever number of lines they have. They are in memory.
pub const TAIL_BYTES_MAX: u32 = 64 << 20;

/// Which lines of the output are shown, and how.
#[derive(Args, Clone, Copy, Debug)]
pub struct LineArgs {
    /// Only the last N lines of each stream
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "tail_bytes")]
    pub lines: Option<u32>,
    /// Put the task before each line; auto does so where the output of several tasks goes to a terminal
    #[arg(
        long, value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true, default_value = "auto",
        default_missing_value = "always"
    )]
    prefix: WhenPrefix,
}

/// When lines of output begin with their task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum WhenPrefix {
    /// If several tasks are shown on a terminal.
    Auto,
    /// Even for one task, and in a pipe.
    Always,
    /// The output stays as it was written.
    Never,
}

impl LineArgs {
    /// True if the lines of that number of tasks begin with their task.
    pub fn has_prefix(&self, tasks: usize) -> bool {
        match self.prefix {
            WhenPrefix::Auto => tasks > 1 && io::stdout().is_terminal(),
            WhenPrefix::Always => true,
            WhenPrefix::Never => false,
        }
    }
}

/// The last lines of a stream, and the place of the byte after them. At most `bytes_max` are read.
pub async fn last_lines(
    client: &Client,
    task: &str,
    mut query: LogQuery,
    lines: u32,
    bytes_max: u32,
) -> Result<(Vec<u8>, LogPlace), ClientError> {
    let mut bytes = lines.saturating_mul(LINE_BYTES_GUESS).max(TAIL_BYTES_MIN).min(bytes_max);
    loop {
        query.offset = Some(-i64::from(bytes));
        let (begins, parts) = client.log(task, &query).await?;
        let (mut parts, mut tail) = (Box::pin(parts), Vec::new());
        while let Some(part) = parts.next().await {
            tail.extend_from_slice(&part?);
        }
        let begin = begin_of_last(&tail, lines as usize);
        // What is shorter than was asked for is the whole output.
        let is_whole = begins == Some(0) || tail.len() < bytes as usize;
        if begin.is_some() || is_whole || bytes == bytes_max {
            // A server of an earlier release does not say where it begins, and what follows may repeat lines.
            let place = LogPlace::at(begins.unwrap_or(0) + tail.len() as u64);
            return Ok((tail.split_off(begin.unwrap_or(0)), place));
        }
        bytes = bytes.saturating_mul(8).min(bytes_max);
    }
}

/// Where that number of lines begins at the end of an output; `None` if the output has fewer.
fn begin_of_last(output: &[u8], lines: usize) -> Option<usize> {
    let Some(before) = lines.checked_sub(1) else { return Some(output.len()) };
    // The end of the last line does not begin another.
    let ends = output.strip_suffix(b"\n").unwrap_or(output);
    let mut begins = ends.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    begins.nth(before).map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found() {
        let last =
            |output: &str, lines| begin_of_last(output.as_bytes(), lines).map(|at| output[at..].to_owned());
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(last("a\nb\nc\n", 2), some("b\nc\n"));
        assert_eq!(last("a\nb\nc", 2), some("b\nc"), "a line without an end is a line");
        assert_eq!(last("a\n\n", 1), some("\n"));
        assert_eq!(last("a\nb\n", 0), some(""));
        assert_eq!(last("a\nb\n", 2), None, "the first line may have begun before");
        assert_eq!(last("", 1), None);
    }
}
