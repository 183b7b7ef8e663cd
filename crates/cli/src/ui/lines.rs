//! Values read line by line, or up to NUL bytes, from a file that may be anything.

use crate::ui::error::CliError;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use windlass_core::bounds::TASKS_PER_JOB_MAX;

/// The kernel refuses a single argument of this many bytes or more, its final NUL not counted (MAX_ARG_STRLEN).
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024;

/// Bytes of all values together. They travel in one request, whose size servers bound.
const VALUES_BYTES_MAX: usize = 48 << 20;

/// What ends a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Separator {
    /// A newline, so each line is a value.
    Line,
    /// A NUL byte. A value may hold newlines.
    Nul,
}

/// Why the lines of a file cannot be values. A place names one of them: `line 3`.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("cannot be read")]
    Read(#[from] io::Error),
    #[error(
        "{place} is longer than {max} bytes, the most that one argument may have",
        place = .0,
        max = ARGUMENT_BYTES_MAX - 1
    )]
    TooLong(String),
    #[error("{0} holds a NUL byte, which no argument can; -0 reads values that end with one")]
    Nul(String),
    #[error(
        "{0} is not valid UTF-8, and values are sent as text; rename what it names, or pass its place in a list by --array"
    )]
    NotText(String),
    #[error("it has more than {} values, the most tasks that a job may have", TASKS_PER_JOB_MAX)]
    TooMany,
    #[error("its values have more than {} MiB together; submit it in parts", VALUES_BYTES_MAX >> 20)]
    TooMuch,
}

impl Separator {
    fn byte(self) -> u8 {
        match self {
            Separator::Line => b'\n',
            Separator::Nul => 0,
        }
    }

    /// The name of the value with this number, from 1.
    fn place(self, number: usize) -> String {
        match self {
            Separator::Line => format!("line {number}"),
            Separator::Nul => format!("value {number}"),
        }
    }
}

/// The values in a file, or of standard input if `source` is `-`.
pub fn read_values(source: &str, separator: Separator) -> Result<Vec<String>, CliError> {
    let mut gathered = ValueList::default();
    read_source(source, separator, |value| gathered.take(value))?;
    Ok(gathered.values)
}

/// Reads a file, or standard input if `source` is `-`, and gives each value to `take` until that returns false.
pub fn read_source(
    source: &str,
    separator: Separator,
    take: impl FnMut(String) -> Result<bool, LineError>,
) -> Result<(), CliError> {
    let (name, read) = if source == "-" {
        ("standard input", read_each(io::stdin().lock(), separator, take))
    } else {
        let opened = File::open(source).map_err(LineError::from);
        (source, opened.and_then(|file| read_each(BufReader::new(file), separator, take)))
    };
    read.map_err(|error| {
        let message = match error {
            LineError::Read(cause) => format!("--each-line: {name} cannot be read: {cause}"),
            error => format!("--each-line: {name}: {error}"),
        };
        CliError::usage(message)
    })
}

/// The values of one job.
#[derive(Default)]
struct ValueList {
    values: Vec<String>,
    bytes: usize,
}

impl ValueList {
    fn take(&mut self, value: String) -> Result<bool, LineError> {
        if self.values.len() >= TASKS_PER_JOB_MAX as usize {
            return Err(LineError::TooMany);
        }
        self.bytes += value.len();
        if self.bytes > VALUES_BYTES_MAX {
            return Err(LineError::TooMuch);
        }
        self.values.push(value);
        Ok(true)
    }
}

/// One value up to each separator; what follows the last one counts only if it is not empty. A value that is too long
/// is read no further than the limit.
fn read_each(
    mut reader: impl BufRead,
    separator: Separator,
    mut take: impl FnMut(String) -> Result<bool, LineError>,
) -> Result<(), LineError> {
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        let buffer = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if buffer.is_empty() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == separator.byte());
        let part = &buffer[..end.unwrap_or(buffer.len())];
        if line.len() + part.len() >= ARGUMENT_BYTES_MAX {
            return Err(LineError::TooLong(separator.place(number + 1)));
        }
        line.extend_from_slice(part);
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            number += 1;
            if !take(text_of(std::mem::take(&mut line), separator, number)?)? {
                return Ok(());
            }
        }
    }
    if !line.is_empty() {
        take(text_of(line, separator, number + 1)?)?;
    }
    Ok(())
}

fn text_of(line: Vec<u8>, separator: Separator, number: usize) -> Result<String, LineError> {
    if line.contains(&0) {
        return Err(LineError::Nul(separator.place(number)));
    }
    String::from_utf8(line).map_err(|_| LineError::NotText(separator.place(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn values_from(reader: impl BufRead, separator: Separator) -> Result<Vec<String>, LineError> {
        let mut gathered = ValueList::default();
        read_each(reader, separator, |value| gathered.take(value))?;
        Ok(gathered.values)
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>, LineError> {
        // A tiny buffer, so that lines span several.
        values_from(BufReader::with_capacity(3, bytes), Separator::Line)
    }

    #[test]
    fn values_may_end_with_nul_bytes() {
        let read = |bytes: &[u8]| values_from(BufReader::with_capacity(3, bytes), Separator::Nul);
        assert_eq!(read(b"a\nb\0c d\0").unwrap(), ["a\nb", "c d"]);
        assert_eq!(read(b"a\0\0b").unwrap(), ["a", "", "b"]);
        assert!(matches!(read(b"ok\0\xff\0"), Err(LineError::NotText(place)) if place == "value 2"));
    }

    #[test]
    fn lines_become_values() {
        assert_eq!(read(b"").unwrap(), Vec::<String>::new());
        assert_eq!(read(b"one").unwrap(), ["one"]);
        assert_eq!(read(b"one\ntwo words\n").unwrap(), ["one", "two words"]);
        assert_eq!(read(b"a\n\nb").unwrap(), ["a", "", "b"]);
        assert_eq!(read(b"\n").unwrap(), [""]);
        assert_eq!(read(b"dos\r\n").unwrap(), ["dos\r"]);
        assert_eq!(read("größe\n".as_bytes()).unwrap(), ["größe"]);
    }

    #[test]
    fn bad_lines_are_named_by_number() {
        assert!(matches!(read(b"ok\n\xff\n"), Err(LineError::NotText(place)) if place == "line 2"));
        assert!(matches!(read(b"ok\nok\na\0b\n"), Err(LineError::Nul(place)) if place == "line 3"));
    }

    #[test]
    fn a_line_may_be_as_long_as_an_argument() {
        let longest = vec![b'x'; ARGUMENT_BYTES_MAX - 1];
        assert_eq!(read(&longest).unwrap()[0].len(), ARGUMENT_BYTES_MAX - 1);
        let longer = vec![b'x'; ARGUMENT_BYTES_MAX];
        assert!(matches!(read(&longer), Err(LineError::TooLong(place)) if place == "line 1"));
    }

    #[test]
    fn a_line_without_end_is_not_read_to_its_end() {
        let mut endless = io::repeat(b'x').take(1 << 30);
        let error = values_from(BufReader::new(&mut endless), Separator::Line).unwrap_err();
        assert!(matches!(error, LineError::TooLong(place) if place == "line 1"));
        assert!(endless.limit() > (1 << 30) - (1 << 20));
    }

    #[test]
    fn a_file_that_is_not_there_is_a_usage_error() {
        let error = read_values("/nonexistent/list", Separator::Line).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.message().contains("/nonexistent/list"));
    }
}
