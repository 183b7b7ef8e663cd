//! The task that fills in jobs. It runs beside the laboratory's own task, because reading the directory of files may be
//! slow. A machine is told of its job once the filled-in fields are durable.

use super::link::Report;
use crate::files::Files;
use crate::fill::Filling;
use crate::format::Fields;
use crate::record::BookedHost;
use std::sync::Arc;
use tokio::sync::mpsc;
use windlass_api::StepBody;
use windlass_core::JobId;

pub(super) struct Fill {
    pub job: JobId,
    pub body: Arc<StepBody>,
    pub place: BookedHost,
    pub arch: Option<String>,
    pub testbox: Fields,
}

/// Fills in one job after the other, so that hosts are told of jobs in the order in which they got them. The queue is
/// no longer than the number of tasks of all hosts.
pub(super) async fn fill_all(
    mut fills: mpsc::UnboundedReceiver<Fill>,
    files: Arc<Files>,
    lab: mpsc::UnboundedSender<Report>,
) {
    while let Some(Fill { job, body, place, arch, testbox }) = fills.recv().await {
        let (files, attempt) = (files.clone(), place.attempt);
        let look = tokio::task::spawn_blocking(move || {
            let fields = body.compass.as_ref()?;
            let (arch, dir, url) = (arch.as_deref(), files.dir(), files.options.url.as_deref());
            Some(Filling { job, fields, place: &place, arch, testbox: &testbox, dir, url }.fill())
        });
        if let Ok(Some(filled)) = look.await
            && lab.send(Report::Filled { job, attempt, filled }).is_err()
        {
            return;
        }
    }
}
