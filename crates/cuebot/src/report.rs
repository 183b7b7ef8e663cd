//! What hosts report: that they started, what they run, what ended.

mod complete;
mod host;
mod strays;

use crate::cuebot::Cuebot;
use crate::generated::report::{self as wire, FrameCompleteReport, RenderHost};
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use crate::verdict::EXIT_CLEARED;
use host::Differing;
use std::sync::Arc;
use std::time::Instant;

pub use complete::Completion;
pub(crate) use complete::{OPEN_FRAMES, complete, finish_job, stop};
pub use host::SYSTEM_KIB as HOST_SYSTEM_KIB;
pub(crate) use host::{clear, write_tags};

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
    let differing = cuebot.transact(known, |tx, known| Box::pin(host::started(tx, known))).await?;
    settle(&cuebot, name, differing).await
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
        .await?;
    settle(&cuebot, name, differing).await
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
    if cuebot.hosts.has_workers()
        && let Some(run) = &report.frame
        && let Some(row) = cuebot.pool.get().await?.query_opt(HOST_OF, &[&run.resource_id]).await?
    {
        // The proc decides, whatever host the report names.
        refuse_for_worker(&cuebot, row.get(0))?;
    }
    let outcome = cuebot.complete(report).await?;
    tracing::debug!(?outcome, "a frame's command ended");
    Ok(())
}
