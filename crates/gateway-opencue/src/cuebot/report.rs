//! What hosts report: that they started, what they run, what ended.

mod complete;
mod ended;
mod host;
mod strays;

use super::server::{Cuebot, Routes, unary};
use super::trouble::CallError;
use crate::generated::report::{self as wire, RenderHost};
use std::sync::Arc;
use std::time::Instant;

pub use complete::{Completion, complete};
pub(crate) use complete::{finish_job, stop};
pub(crate) use ended::EndedProcs;
pub(crate) use host::{SYSTEM_KIB as HOST_SYSTEM_KIB, clear};

const HOST_OF: &str = "SELECT h.str_name::text FROM proc p JOIN host h USING (pk_host) WHERE p.pk_proc = $1";

/// Adds the paths of reports.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route("/report.RqdReportInterface/ReportRqdStartup", unary(started))
        .route("/report.RqdReportInterface/ReportStatus", unary(status))
        .route("/report.RqdReportInterface/ReportRunningFrameCompletion", unary(ended))
}

/// A Windlass worker is there, as what RQD would report of it.
pub(crate) async fn share_host(cuebot: &Cuebot, host: RenderHost) -> Result<(), CallError> {
    let known = Arc::new(host::Known::read(host, None)?);
    cuebot
        .transact(move |tx| {
            let known = known.clone();
            Box::pin(async move { host::share(tx, &known).await })
        })
        .await
}

/// Refuses what RQD reports of a Windlass worker. The gateway reports for workers itself: by a second voice a frame that
/// runs would be taken for one that has ended, and run twice.
fn refuse_for_worker(cuebot: &Cuebot, host: &str) -> Result<(), CallError> {
    if !cuebot.workers.as_ref().is_some_and(|workers| workers.has(host)) {
        return Ok(());
    }
    if let Some(left_out) = cuebot.false_reports.tell(Instant::now()) {
        tracing::warn!(host, left_out, "RQD reported in the name of a Windlass worker, and was refused");
    }
    Err(CallError::Value(format!(
        "'{host}' is a Windlass worker, of which the gateway reports; stop RQD there, or take the worker out"
    )))
}

async fn started(
    cuebot: Arc<Cuebot>,
    ask: wire::RqdReportRqdStartupRequest,
) -> Result<wire::RqdReportRqdStartupResponse, CallError> {
    let report = ask.boot_report.unwrap_or_default();
    let host = report.host.unwrap_or_default();
    refuse_for_worker(&cuebot, &host.name)?;
    let name = host.name.clone();
    let known = Arc::new(host::Known::read(host, report.core_info)?);
    let runs = cuebot
        .transact(move |tx| {
            let known = known.clone();
            Box::pin(async move { host::started(tx, &known).await })
        })
        .await?;
    cuebot.launcher.ask_survivors(name, runs);
    Ok(wire::RqdReportRqdStartupResponse {})
}

async fn status(
    cuebot: Arc<Cuebot>,
    ask: wire::RqdReportStatusRequest,
) -> Result<wire::RqdReportStatusResponse, CallError> {
    let report = ask.host_report.unwrap_or_default();
    let host = report.host.unwrap_or_default();
    refuse_for_worker(&cuebot, &host.name)?;
    let name = host.name.clone();
    let known = Arc::new(host::Known::read(host, report.core_info)?);
    if report.frames.len() > host::FRAMES_MAX {
        return Err(CallError::Value(format!("a host reports more than {} frames", host::FRAMES_MAX)));
    }
    let (frames, ended) = (Arc::new(report.frames), cuebot.ended.clone());
    let strays = cuebot
        .transact(move |tx| {
            let (known, frames, ended) = (known.clone(), frames.clone(), ended.clone());
            Box::pin(async move { host::status(tx, &known, &frames, &ended).await })
        })
        .await?;
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
        cuebot.launcher.end_strays(name, strays);
    }
    Ok(wire::RqdReportStatusResponse {})
}

async fn ended(
    cuebot: Arc<Cuebot>,
    ask: wire::RqdReportRunningFrameCompletionRequest,
) -> Result<wire::RqdReportRunningFrameCompletionResponse, CallError> {
    let report = Arc::new(ask.frame_complete_report.unwrap_or_default());
    if let Some(host) = &report.host {
        refuse_for_worker(&cuebot, &host.name)?;
        if let Some(run) = &report.frame {
            cuebot.ended.note(&host.name, &run.resource_id);
        }
    }
    if cuebot.workers.is_some()
        && let Some(run) = &report.frame
        && let Some(row) = cuebot.pool.get().await?.query_opt(HOST_OF, &[&run.resource_id]).await?
    {
        // Whatever host the report names.
        refuse_for_worker(&cuebot, row.get(0))?;
    }
    let outcome = cuebot
        .transact(move |tx| {
            let report = report.clone();
            Box::pin(async move { complete(tx, &report).await })
        })
        .await?;
    tracing::debug!(?outcome, "a frame's command ended");
    Ok(wire::RqdReportRunningFrameCompletionResponse {})
}
