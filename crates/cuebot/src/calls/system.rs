//! The call with which every client begins.

use super::fields::Answer;
use crate::cuebot::Cuebot;
use crate::generated::cue::{CueGetSystemStatsRequest, CueGetSystemStatsResponse, SystemStats};
use crate::routes::{Routes, unary};
use std::sync::Arc;

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route("/cue.CueInterface/GetSystemStats", unary(stats))
}

/// Answers, so that clients see that a server is there. The figures of the answer count Cuebot's queues and threads.
/// This server has neither, so all figures are 0.
async fn stats(cuebot: Arc<Cuebot>, _: CueGetSystemStatsRequest) -> Answer<CueGetSystemStatsResponse> {
    // A client that gets an answer expects the next call to work, which it does only with the database.
    cuebot.pool.get().await?.query_one("SELECT 1", &[]).await?;
    Ok(CueGetSystemStatsResponse { stats: Some(SystemStats::default()) })
}
