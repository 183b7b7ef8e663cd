//! What goes to the server. Reports go first: parts of output, which anybody who looks at a log asks for, must
//! not hold up the beats by which the server knows that this worker lives.

use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use windlass_api::wire::FromWorker;

/// Reports that may wait for the server; then the keeper waits.
const REPORTS_MAX: usize = 1_024;
/// Parts of output that may wait; then whoever reads them waits.
const PARTS_MAX: usize = 8;
/// Bytes of one part.
pub const PART_BYTES_MAX: usize = 256 << 10;

/// Ways in.
#[derive(Clone)]
pub struct Reports {
    /// For what the server must hear soon.
    pub first: mpsc::Sender<FromWorker>,
    /// For parts of output.
    pub parts: mpsc::Sender<FromWorker>,
}

/// What the stream to the server takes from.
pub struct Outgoing {
    first: mpsc::Receiver<FromWorker>,
    parts: mpsc::Receiver<FromWorker>,
}

/// Both ends.
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
            // The other way in says when the stream ends.
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
