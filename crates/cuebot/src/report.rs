//! What hosts report: that they started, what they run, what ended.

mod complete;
mod host;
mod strays;

use crate::attempts::{pause, random_number};
use crate::cuebot::Cuebot;
use crate::generated::report::{self as wire, FrameCompleteReport, RenderHost};
use crate::kept;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use crate::verdict::EXIT_CLEARED;
use host::Differing;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

pub use complete::Completion;
pub(crate) use complete::{OPEN_FRAMES, complete, finish_job, stop};
pub use host::SYSTEM_KIB as HOST_SYSTEM_KIB;
pub(crate) use host::{YOUNG_S, clear, write_tags};

const HOST_OF: &str = "SELECT h.str_name::text FROM proc p JOIN host h USING (pk_host) WHERE p.pk_proc = $1";

/// Adds the paths of reports.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route("/report.RqdReportInterface/ReportRqdStartup", unary(started))
        .route("/report.RqdReportInterface/ReportStatus", unary(status))
        .route("/report.RqdReportInterface/ReportRunningFrameCompletion", unary(ended))
}

impl Cuebot {
    /// Takes in a Windlass worker, in the form in which RQD reports a host.
    pub async fn share_host(&self, host: RenderHost) -> Result<(), CallError> {
        let known = host::Known::read(host, None)?;
        self.transact(known, |tx, known| Box::pin(host::share(tx, known))).await
    }

    /// Ends a proc that its host does not run, and lets its frame wait again without spending a retry.
    pub async fn clear(&self, proc_id: &str, exit_status: i32) -> Result<(), CallError> {
        let exit_status = i64::from(exit_status);
        self.transact(proc_id, move |tx, proc_id| Box::pin(clear(tx, proc_id, exit_status))).await
    }

    /// Takes in the report of a command that ended.
    pub async fn complete(&self, report: FrameCompleteReport) -> Result<Completion, CallError> {
        self.transact(report, |tx, report| Box::pin(complete(tx, report))).await
    }
}

/// Refuses what RQD reports of a Windlass worker. The gateway reports for workers itself. By a report of RQD, a
/// running frame would be taken for one that has ended, and would run twice.
fn refuse_for_worker(cuebot: &Cuebot, host: &str) -> Result<(), CallError> {
    if !cuebot.hosts.is_worker(host) {
        return Ok(());
    }
    if let Some(left_out) = cuebot.false_reports.tell(Instant::now()) {
        tracing::warn!(host, left_out, "RQD reported in the name of a Windlass worker, and was refused");
    }
    Err(CallError::Value(format!(
        "'{host}' is a Windlass worker, of which the gateway reports; stop RQD there, or take the worker out"
    )))
}

async fn started(cuebot: Arc<Cuebot>, ask: wire::RqdReportRqdStartupRequest) -> Result<(), CallError> {
    let report = ask.boot_report.unwrap_or_default();
    let host = report.host.unwrap_or_default();
    refuse_for_worker(&cuebot, &host.name)?;
    let name = host.name.clone();
    let known = host::Known::read(host, report.core_info)?;
    let differing = cuebot.transact(known, |tx, known| Box::pin(host::started(tx, known))).await;
    settle(&cuebot, name, cuebot.hear(differing)?).await
}

async fn status(cuebot: Arc<Cuebot>, ask: wire::RqdReportStatusRequest) -> Result<(), CallError> {
    let report = ask.host_report.unwrap_or_default();
    let host = report.host.unwrap_or_default();
    refuse_for_worker(&cuebot, &host.name)?;
    let name = host.name.clone();
    let known = host::Known::read(host, report.core_info)?;
    if report.frames.len() > host::FRAMES_MAX {
        return Err(CallError::Value(format!("a host reports more than {} frames", host::FRAMES_MAX)));
    }
    let given = (known, report.frames, &cuebot.ended);
    let differing = cuebot
        .transact(given, |tx, (known, frames, ended)| Box::pin(host::status(tx, known, frames, ended)))
        .await;
    settle(&cuebot, name, cuebot.hear(differing)?).await
}

/// Settles what a host and the tables say differently. What waits for locks of jobs comes after the report's own
/// transaction, which holds the host.
async fn settle(cuebot: &Cuebot, name: String, differing: Differing) -> Result<(), CallError> {
    let Differing { strays, missed, freed } = differing;
    if !strays.is_empty() {
        if let Some(left_out) = cuebot.stray_reports.tell(Instant::now()) {
            let frames = strays.len();
            tracing::warn!(
                host = name,
                frames,
                left_out,
                "a host runs frames that it does not hold; they end there"
            );
        }
        cuebot.hosts.end_strays(name.clone(), strays);
    }
    // A frame whose end waits here runs no longer, and its end counts.
    let missed = missed.into_iter().filter(|run| !cuebot.kept.has(&run.proc_id)).collect();
    cuebot.hosts.ask_about(name, missed);
    for proc_id in freed {
        cuebot.clear(&proc_id, EXIT_CLEARED).await?;
    }
    Ok(())
}

async fn ended(
    cuebot: Arc<Cuebot>,
    ask: wire::RqdReportRunningFrameCompletionRequest,
) -> Result<(), CallError> {
    let report = ask.frame_complete_report.unwrap_or_default();
    if let Some(host) = &report.host {
        refuse_for_worker(&cuebot, &host.name)?;
        if let Some(run) = &report.frame {
            cuebot.ended.note(&host.name, &run.resource_id);
        }
    }
    let Some(end) = kept::essence(report) else { return Ok(()) };
    // A host that hangs up gives up its call, and not the end of its frame.
    let taken = tokio::spawn(async move { cuebot.take_end(end).await });
    taken.await.unwrap_or(Ok(()))
}

impl Cuebot {
    /// Takes in an end that RQD reports: now, or as soon as the tables take it.
    async fn take_end(&self, end: FrameCompleteReport) -> Result<(), CallError> {
        match self.apply_end(&end).await {
            Err(error) if error.is_passing() => {
                let waiting = self.kept.keep(end).await;
                if let Some(left_out) = self.kept_ends.tell(Instant::now()) {
                    tracing::warn!(?error, waiting, left_out, "ends of frames wait for the database");
                }
                Ok(())
            }
            done => done,
        }
    }

    async fn apply_end(&self, end: &FrameCompleteReport) -> Result<(), CallError> {
        if self.hosts.has_workers()
            && let Some(run) = &end.frame
            && let Some(row) = self.pool.get().await?.query_opt(HOST_OF, &[&run.resource_id]).await?
        {
            // The proc decides, whatever host the report names.
            refuse_for_worker(self, row.get(0))?;
        }
        let outcome = self.complete(end.clone()).await?;
        tracing::debug!(?outcome, "a frame's command ended");
        Ok(())
    }

    /// Applies the ends that wait, until none is left.
    pub async fn apply_kept_ends(&self) {
        let _turn = self.kept.turn().await;
        let mut failed = 0_u32;
        while let Some(end) = self.kept.first() {
            match self.apply_end(&end).await {
                Err(error) if error.is_passing() => {
                    self.kept.postpone_first();
                    failed = failed.saturating_add(1);
                    tokio::time::sleep(pause(failed, random_number())).await;
                }
                done => {
                    if let Err(error) = done {
                        tracing::warn!(?error, "the end of a frame had waited, and is refused");
                    }
                    self.kept.settle_first();
                    failed = 0;
                }
            }
        }
    }

    /// Applies each end that has to wait, until it is dropped.
    pub(crate) async fn follow_kept_ends(&self) -> Infallible {
        loop {
            self.kept.added().await;
            self.apply_kept_ends().await;
        }
    }

    /// Notes where a report of a host could not be taken in: its silence is not the host's.
    fn hear<T>(&self, taken: Result<T, CallError>) -> Result<T, CallError> {
        if taken.as_ref().is_err_and(CallError::is_passing) {
            *self.deaf_at.lock() = Instant::now();
        }
        taken
    }
}
