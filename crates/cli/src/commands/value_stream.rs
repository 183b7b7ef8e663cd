//! `submit --stream`: a list of values that is still being written, in parts that become one job each.

use crate::ui::error::CliError;
use crate::ui::lines::{Separator, read_source};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// Values, and bytes of values, from which on a part is full.
const PART_VALUES_MAX: usize = 10_000;
const PART_BYTES_MAX: usize = 16 << 20;
/// How long the first value of the first part waits for others.
const GATHER_FIRST: Duration = Duration::from_secs(1);
/// How long that of later ones waits at most. Each waits twice as long as the one before: a slow list is few jobs.
const GATHER_MAX: Duration = Duration::from_secs(16);
/// Values that are read before they are asked for.
const READ_AHEAD_MAX: usize = 256;

/// A list that is read as it is written.
pub struct ValueStream {
    values: mpsc::Receiver<Result<String, CliError>>,
    gather: Duration,
    /// Why the list cannot be read further. The values before come first.
    failed: Option<CliError>,
}

impl ValueStream {
    /// Begins to read a file, or standard input if `source` is `-`, on a thread of its own.
    pub fn open(source: &str, separator: Separator) -> Result<ValueStream, CliError> {
        let (sender, values) = mpsc::channel(READ_AHEAD_MAX);
        let source = source.to_owned();
        let read = move || {
            let read = read_source(&source, separator, |value| Ok(sender.blocking_send(Ok(value)).is_ok()));
            if let Err(error) = read {
                // If the receiver is gone, the command has ended.
                _ = sender.blocking_send(Err(error));
            }
        };
        std::thread::Builder::new().name("values".to_owned()).spawn(read).map_err(anyhow::Error::from)?;
        Ok(ValueStream { values, gather: GATHER_FIRST, failed: None })
    }

    /// The values that came until a part is full, or until its first one has waited for long enough; none at the end of
    /// the list.
    pub async fn next_part(&mut self) -> Result<Vec<String>, CliError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut part = Vec::new();
        let Some(first) = self.values.recv().await else { return Ok(part) };
        part.push(first?);
        let mut bytes = part[0].len();
        let end = Instant::now() + self.gather;
        self.gather = (self.gather * 2).min(GATHER_MAX);
        while part.len() < PART_VALUES_MAX && bytes < PART_BYTES_MAX {
            match timeout_at(end, self.values.recv()).await {
                Ok(Some(Ok(value))) => {
                    bytes += value.len();
                    part.push(value);
                }
                Ok(Some(Err(error))) => {
                    self.failed = Some(error);
                    break;
                }
                Ok(None) | Err(_) => break,
            }
        }
        Ok(part)
    }
}
