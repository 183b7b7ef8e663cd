//! A thread that writes the output of tasks. Standard output may be a pipe whose reader stalls for hours. That must not
//! delay Ctrl-C or the server's events.

use indicatif::ProgressBar;
use std::io::{self, Write};
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
        Writer { parts }
    }

    /// Queues a part, and waits while the queue is full.
    pub async fn write(&self, sink: Sink, bytes: Vec<u8>) {
        // The thread ends only after every writer is dropped.
        let _ = self.parts.send(Part::Bytes(sink, bytes)).await;
    }

    /// Queues a message for standard error, which is written after the parts queued before it.
    pub async fn say(&self, line: &str) {
        self.write(Sink::Err, format!("{line}\n").into_bytes()).await;
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
