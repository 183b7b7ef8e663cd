//! Ends commands on hosts, after the tables say that they shall end. On a Windlass worker the job of the frame is
//! cancelled.

use super::server::Cuebot;
use crate::scheduler::{FrameRun, Launcher};
use crate::workers::Workers;
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::Status;

/// Hosts that are asked at a time.
const HOSTS_AT_A_TIME: usize = 16;
/// For one host, with the connection. A host that does not answer is silent, and its procs are cleared for that; one
/// that still reports the frame is asked again.
const HOST_TIME: Duration = Duration::from_secs(10);

/// A command that shall end.
pub(crate) struct Victim {
    /// The host's name.
    pub host: String,
    /// The frame's id.
    pub frame: String,
    /// The id of the proc that it ran in, if it had one.
    pub proc_id: Option<String>,
}

/// Asks hosts to end commands, beside the call that wants it. RQD reports each ending, which frees its proc.
pub(crate) fn end(cuebot: &Cuebot, victims: Vec<Victim>, why: String) {
    if victims.is_empty() {
        return;
    }
    let (workers, launcher) = (cuebot.workers.clone(), cuebot.launcher.clone());
    tokio::spawn(async move {
        let mut asked = JoinSet::new();
        for victim in victims {
            if asked.len() >= HOSTS_AT_A_TIME {
                asked.join_next().await;
            }
            let (why, workers, launcher) = (why.clone(), workers.clone(), launcher.clone());
            asked.spawn(async move {
                let answer = tokio::time::timeout(HOST_TIME, tell(workers, &launcher, &victim, &why)).await;
                if !matches!(answer, Ok(Ok(()))) {
                    tracing::warn!(host = victim.host, frame = victim.frame, "a host did not end a frame");
                }
            });
        }
        asked.join_all().await;
    });
}

async fn tell(
    workers: Option<Workers>,
    launcher: &Launcher,
    victim: &Victim,
    why: &str,
) -> Result<(), Status> {
    let Some(workers) = workers.filter(|workers| workers.has(&victim.host)) else {
        let proc_id = victim.proc_id.clone().unwrap_or_default();
        let run = FrameRun { frame: victim.frame.clone(), proc_id };
        return launcher.kill(&victim.host, &run, why).await;
    };
    // Without a proc nothing of the frame is on the worker.
    let Some(proc_id) = &victim.proc_id else { return Ok(()) };
    workers.end(&victim.frame, proc_id).await.map_err(|error| Status::unavailable(error.to_string()))
}
