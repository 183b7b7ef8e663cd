//! A thread that writes the output of tasks. Standard output may be a pipe whose reader stalls for hours. That must not
//! delay Ctrl-C or the server's events.

use indicatif::ProgressBar;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Most parts that wait to be written; each has at most the bytes of one read from the network.
const WAITING_MAX: usize = 16;
/// Bytes of a line that are kept until its end comes, where lines have a prefix. A longer line is divided.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The stream of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Standard output, for data.
    Out,
    /// Standard error, for messages.
    Err,
}

/// Writes parts in the order in which they are queued; cheap to clone.
#[derive(Clone)]
pub struct Writer {
    parts: mpsc::Sender<Part>,
    prefix: Option<Arc<LinePrefix>>,
}

/// A text before each line. Lines are written when their end has come, so that two streams do not mix in one.
struct LinePrefix {
    text: String,
    /// The beginning of a line of standard output, and of one of standard error.
    unfinished: Mutex<[Vec<u8>; 2]>,
}

impl LinePrefix {
    /// The lines that end with these bytes.
    fn take(&self, sink: Sink, bytes: &[u8]) -> Vec<u8> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let line = &mut unfinished[sink as usize];
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if part.ends_with(b"\n") || line.len() >= LINE_BYTES_MAX {
                self.end(line, &mut lines);
            }
        }
        lines
    }

    /// The line that has no end.
    fn rest(&self, sink: Sink) -> Vec<u8> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let (line, mut lines) = (&mut unfinished[sink as usize], Vec::new());
        if !line.is_empty() {
            self.end(line, &mut lines);
        }
        lines
    }

    fn end(&self, line: &mut Vec<u8>, lines: &mut Vec<u8>) {
        lines.extend_from_slice(self.text.as_bytes());
        lines.append(line);
        if lines.last() != Some(&b'\n') {
            lines.push(b'\n');
        }
    }
}

enum Part {
    Bytes(Sink, Vec<u8>),
    /// Answered when everything before is written, with the first error.
    Done(oneshot::Sender<Option<io::Error>>),
}

impl Writer {
    /// Starts the thread. A bar on the same terminal is hidden while a part is written. `broken` is called once, when
    /// the first write to standard output fails.
    pub fn start(bar: Option<ProgressBar>, broken: impl FnOnce(&io::Error) + Send + 'static) -> Self {
        let (parts, mut receiver) = mpsc::channel(WAITING_MAX);
        std::thread::spawn(move || {
            let mut broken = Some(broken);
            let mut first_error = None;
            let mut refused = false;
            while let Some(part) = receiver.blocking_recv() {
                match part {
                    Part::Done(answer) => drop(answer.send(first_error.take())),
                    Part::Bytes(Sink::Out, _) if refused => {}
                    Part::Bytes(sink, bytes) => {
                        let written = match &bar {
                            Some(bar) => bar.suspend(|| write(sink, &bytes)),
                            None => write(sink, &bytes),
                        };
                        // A failed write to standard error cannot be reported.
                        if let (Sink::Out, Err(error)) = (sink, written) {
                            refused = true;
                            if let Some(broken) = broken.take() {
                                broken(&error);
                            }
                            first_error = Some(error);
                        }
                    }
                }
            }
        });
        Writer { parts, prefix: None }
    }

    /// A writer to the same places that puts a text before each line. [`end_lines`](Self::end_lines) must follow.
    pub fn prefixed(&self, text: String) -> Self {
        let prefix = LinePrefix { text, unfinished: Mutex::default() };
        Writer { parts: self.parts.clone(), prefix: Some(Arc::new(prefix)) }
    }

    /// Writes lines that have no end; an end is added to them.
    pub async fn end_lines(&self) {
        let Some(prefix) = &self.prefix else { return };
        for sink in [Sink::Out, Sink::Err] {
            self.send(sink, prefix.rest(sink)).await;
        }
    }

    /// Queues a part, and waits while the queue is full.
    pub async fn write(&self, sink: Sink, bytes: Vec<u8>) {
        let bytes = match &self.prefix {
            Some(prefix) => prefix.take(sink, &bytes),
            None => bytes,
        };
        self.send(sink, bytes).await;
    }

    async fn send(&self, sink: Sink, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        // The thread ends only after every writer is dropped.
        let _ = self.parts.send(Part::Bytes(sink, bytes)).await;
    }

    /// Queues a message for standard error, which is written after the parts queued before it.
    pub async fn say(&self, line: &str) {
        self.send(Sink::Err, format!("{line}\n").into_bytes()).await;
    }

    /// Waits until everything is written; returns the first error of standard output.
    pub async fn flush(&self) -> Result<(), io::Error> {
        let (answer, answered) = oneshot::channel();
        let _ = self.parts.send(Part::Done(answer)).await;
        match answered.await {
            Ok(Some(error)) => Err(error),
            Ok(None) | Err(_) => Ok(()),
        }
    }
}

fn write(sink: Sink, bytes: &[u8]) -> io::Result<()> {
    match sink {
        Sink::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Sink::Err => io::stderr().lock().write_all(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_prefix() {
        let prefix = LinePrefix { text: "1.2 | ".to_owned(), unfinished: Mutex::default() };
        let take = |sink, bytes: &str| String::from_utf8(prefix.take(sink, bytes.as_bytes())).unwrap();
        assert_eq!(take(Sink::Out, "a\nb"), "1.2 | a\n");
        assert_eq!(take(Sink::Err, "error\n"), "1.2 | error\n", "the other stream does not end the line");
        assert_eq!(take(Sink::Out, "c\n\nd"), "1.2 | bc\n1.2 | \n");
        assert_eq!(prefix.rest(Sink::Out), b"1.2 | d\n");
        assert!(prefix.rest(Sink::Out).is_empty() && prefix.rest(Sink::Err).is_empty());
        let long = "x".repeat(LINE_BYTES_MAX);
        assert_eq!(take(Sink::Out, &long), format!("1.2 | {long}\n"), "no more is kept");
    }
}
