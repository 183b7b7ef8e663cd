//! A thread that writes what tasks wrote. Standard output may be a pipe that nobody empties for
//! hours; whoever waits for it there must not keep Ctrl-C and the server's events waiting.

use indicatif::ProgressBar;
use std::io::{self, Write};
use tokio::sync::{mpsc, oneshot};

/// Parts that may wait to be written; each is at most what one read from the network gave.
const WAITING_MAX: usize = 16;

/// Where a part goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Writes in the order in which it is told to; cheap to clone.
#[derive(Clone)]
pub struct Writer {
    parts: mpsc::Sender<Part>,
}

enum Part {
    Bytes(Sink, Vec<u8>),
    /// Answered when everything before is written, with what went wrong first.
    Done(oneshot::Sender<Option<io::Error>>),
}

impl Writer {
    /// Starts the thread. A bar on the same terminal steps aside for each part. `broken` is called
    /// once, when standard output refuses the first part.
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
                        // Where standard error is gone there is nobody to tell.
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

    /// Queues a part, and waits while too many are queued.
    pub async fn write(&self, sink: Sink, bytes: Vec<u8>) {
        // The thread ends only after every writer is gone.
        let _ = self.parts.send(Part::Bytes(sink, bytes)).await;
    }

    /// Queues a line of talk for standard error, so that it comes after what was queued before it.
    pub async fn say(&self, line: &str) {
        self.write(Sink::Err, format!("{line}\n").into_bytes()).await;
    }

    /// Waits until everything is written; the first error of standard output, if there was one.
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
