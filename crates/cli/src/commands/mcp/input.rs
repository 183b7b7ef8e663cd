//! Lines of standard input, each of bounded bytes.

use std::io::{self, BufRead};
use tokio::sync::mpsc;

/// Bytes of one line. A longer one is passed over and refused: the values of a job may be many, but they are no file.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Lines that were read and not yet looked at. The client waits while there are more.
pub const LINES_MAX: usize = 16;

/// A line without its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InputLine {
    /// All of its bytes.
    Whole(Vec<u8>),
    /// It had more than [`LINE_BYTES_MAX`].
    TooLong,
}

/// Hands over all lines of an input, until it ends or the receiver is gone. It blocks, so it has a thread.
pub fn read_lines(mut input: impl BufRead, sender: &mpsc::Sender<InputLine>) {
    // An input that cannot be read has ended, as far as the client's messages go.
    while let Ok(Some(line)) = next_line(&mut input) {
        if sender.blocking_send(line).is_err() {
            return;
        }
    }
}

/// The next line; `None` at the end of the input.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<InputLine>> {
    let (mut line, mut is_too_long, mut has_begun) = (Vec::new(), false, false);
    loop {
        let part = match input.fill_buf() {
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if part.is_empty() {
            break;
        }
        has_begun = true;
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = &part[..end.unwrap_or(part.len())];
        is_too_long |= line.len() + taken.len() > LINE_BYTES_MAX;
        if is_too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(taken);
        }
        let consumed = taken.len() + usize::from(end.is_some());
        input.consume(consumed);
        if end.is_some() {
            break;
        }
    }
    Ok(has_begun.then_some(if is_too_long { InputLine::TooLong } else { InputLine::Whole(line) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all_of(bytes: &[u8], buffer: usize) -> Vec<InputLine> {
        let mut input = io::BufReader::with_capacity(buffer, bytes);
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut input).unwrap() {
            lines.push(line);
        }
        lines
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let mut bytes = vec![b'x'; LINE_BYTES_MAX + 1];
        bytes.extend_from_slice(b"\nnext");
        assert_eq!(all_of(&bytes, 4096), [InputLine::TooLong, InputLine::Whole(b"next".to_vec())]);
        bytes.remove(0);
        assert!(matches!(&all_of(&bytes, 4096)[0], InputLine::Whole(line) if line.len() == LINE_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn lines_are_what_stands_between_newlines(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            buffer in 1usize..9,
        ) {
            let mut expected: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            // What follows the last newline is a line only if there is something.
            if expected.last().is_some_and(|last| last.is_empty()) {
                expected.pop();
            }
            let expected: Vec<InputLine> =
                expected.into_iter().map(|line| InputLine::Whole(line.to_vec())).collect();
            prop_assert_eq!(all_of(&bytes, buffer), expected);
        }
    }
}
