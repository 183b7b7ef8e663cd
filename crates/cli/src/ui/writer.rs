//! A thread that writes the output of tasks. Standard output may be a pipe whose reader stalls for hours. That must not
//! delay Ctrl-C or the server's events.

use indicatif::ProgressBar;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Most parts that wait to be written; each has at most the bytes of one read from the network.
const WAITING_MAX: usize = 16;

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
    prefix: Option<Arc<Prefix>>,
}

/// A text before each line, and how far the lines of both streams have come.
struct Prefix {
    text: String,
    in_line: Mutex<[bool; 2]>,
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

    /// The same writer, which puts a text before each line of the bytes that it is given.
    pub fn prefixed(&self, text: String) -> Self {
        Writer {
            parts: self.parts.clone(),
            prefix: Some(Arc::new(Prefix { text, in_line: Mutex::default() })),
        }
    }

    /// Queues a part, and waits while the queue is full.
    pub async fn write(&self, sink: Sink, bytes: Vec<u8>) {
        let bytes = match &self.prefix {
            Some(prefix) => prefix.put_before(sink, &bytes),
            None => bytes,
        };
        self.send(sink, bytes).await;
    }

    /// Queues a message for standard error, which is written after the parts queued before it.
    pub async fn say(&self, line: &str) {
        self.send(Sink::Err, format!("{line}\n").into_bytes()).await;
    }

    /// Ends lines that a task left open, where lines have prefixes: the next prefix belongs on a line of its own.
    pub async fn end_lines(&self) {
        let Some(prefix) = &self.prefix else { return };
        let open = std::mem::take(&mut *prefix.in_line.lock().unwrap_or_else(PoisonError::into_inner));
        for (sink, _) in [Sink::Out, Sink::Err].into_iter().zip(open).filter(|(_, open)| *open) {
            self.send(sink, b"\n".to_vec()).await;
        }
    }

    async fn send(&self, sink: Sink, bytes: Vec<u8>) {
        // The thread ends only after every writer is dropped.
        let _ = self.parts.send(Part::Bytes(sink, bytes)).await;
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

impl Prefix {
    /// The bytes with the text before each line that begins in them.
    fn put_before(&self, sink: Sink, bytes: &[u8]) -> Vec<u8> {
        let mut in_line = self.in_line.lock().unwrap_or_else(PoisonError::into_inner);
        let in_line = &mut in_line[sink as usize];
        let mut text = Vec::with_capacity(bytes.len() + self.text.len());
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !*in_line {
                text.extend_from_slice(self.text.as_bytes());
            }
            text.extend_from_slice(line);
            *in_line = !line.ends_with(b"\n");
        }
        text
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
    use proptest::prelude::*;

    fn prefix() -> Prefix {
        Prefix { text: "1.0: ".to_owned(), in_line: Mutex::default() }
    }

    #[test]
    fn the_streams_have_lines_of_their_own() {
        let prefix = prefix();
        assert_eq!(prefix.put_before(Sink::Out, b"a"), b"1.0: a");
        assert_eq!(prefix.put_before(Sink::Err, b"x\n\n"), b"1.0: x\n1.0: \n");
        assert_eq!(prefix.put_before(Sink::Out, b"b\nc"), b"b\n1.0: c");
    }

    proptest! {
        /// Parts are cut anywhere.
        #[test]
        fn a_prefix_stands_before_each_line_however_the_parts_are_cut(
            lines in prop::collection::vec("[ab]{0,5}", 0..20),
            cuts in prop::collection::vec(0usize..120, 0..6),
        ) {
            let output: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(output.len())).collect();
            cuts.extend([0, output.len()]);
            cuts.sort_unstable();
            let prefix = prefix();
            let parts = cuts.windows(2).map(|cut| prefix.put_before(Sink::Out, output[cut[0]..cut[1]].as_bytes()));
            let shown: Vec<u8> = parts.flatten().collect();
            let expected: String = lines.iter().map(|line| format!("1.0: {line}\n")).collect();
            prop_assert_eq!(String::from_utf8(shown).unwrap(), expected);
        }
    }
}
