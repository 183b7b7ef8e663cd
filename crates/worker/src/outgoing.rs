//! The messages to the server, in two channels that one stream reads. Reports go before parts of output,
//! because any user can ask for output, and that must not hold up the beats by which the server knows that
//! this worker lives. `remote` fills both. A full channel makes its sender wait; nothing is dropped.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use windlass_api::wire::FromWorker;

/// Reports that may wait for the server; above that the keeper's messages wait.
const REPORTS_MAX: usize = 1_024;
/// Parts of output that may wait; above that their readers wait.
const PARTS_MAX: usize = 8;
/// Bytes of one part of output.
pub const PART_BYTES_MAX: usize = 256 << 10;

/// The sending ends of both channels to the server.
#[derive(Clone)]
pub struct Reports {
    /// For reports, which go first.
    pub first: mpsc::Sender<FromWorker>,
    /// For parts of output.
    pub parts: mpsc::Sender<FromWorker>,
}

/// The receiving end, which is the stream to the server.
pub struct Outgoing {
    first: mpsc::Receiver<FromWorker>,
    parts: mpsc::Receiver<FromWorker>,
}

/// The sending and the receiving ends of new channels.
pub fn channel() -> (Reports, Outgoing) {
    let (first, from_first) = mpsc::channel(REPORTS_MAX);
    let (parts, from_parts) = mpsc::channel(PARTS_MAX);
    (Reports { first, parts }, Outgoing { first: from_first, parts: from_parts })
}

impl Stream for Outgoing {
    type Item = FromWorker;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FromWorker>> {
        match self.first.poll_recv(context) {
            Poll::Ready(report) => return Poll::Ready(report),
            Poll::Pending => {}
        }
        match self.parts.poll_recv(context) {
            Poll::Ready(Some(part)) => Poll::Ready(Some(part)),
            // The channel of reports decides when the stream ends.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt as _;
    use windlass_api::wire::{LogPart, Report, report};

    #[tokio::test]
    async fn a_report_overtakes_parts_of_output() {
        let (reports, mut outgoing) = channel();
        let part = |id| {
            let what = Some(report::What::Log(LogPart { id, ..LogPart::default() }));
            FromWorker { reports: vec![Report { what }] }
        };
        for id in 0..PARTS_MAX as u64 {
            reports.parts.try_send(part(id)).unwrap();
        }
        assert!(reports.parts.try_send(part(99)).is_err(), "readers wait");
        reports.first.try_send(FromWorker::default()).unwrap();
        assert_eq!(outgoing.next().await, Some(FromWorker::default()));
        assert_eq!(outgoing.next().await, Some(part(0)));
        drop(reports);
        assert_eq!(outgoing.next().await, None);
    }
}
