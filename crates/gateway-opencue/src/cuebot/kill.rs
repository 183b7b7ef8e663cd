//! Ends commands on hosts, after the tables say that they shall end. On a Windlass worker the job of the frame is
//! cancelled.

use super::server::Cuebot;
use crate::workers::Workers;
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// Where RQD listens.
const RQD_PORT: u16 = 8444;
/// Hosts that are asked at a time.
const HOSTS_AT_A_TIME: usize = 16;
/// For one host, with the connection. A host that does not answer is silent, and its procs are cleared for that.
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

/// RQD's request, with the numbers that it has there.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct KillRunningFrame {
    #[prost(string, tag = "1")]
    frame_id: String,
    #[prost(string, tag = "2")]
    message: String,
}

/// RQD's answer has no fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Killed {}

/// Asks hosts to end commands, beside the call that wants it. RQD reports each ending, which frees its proc.
pub(crate) fn end(cuebot: &Cuebot, victims: Vec<Victim>, why: String) {
    if victims.is_empty() {
        return;
    }
    let workers = cuebot.workers.clone();
    tokio::spawn(async move {
        let mut asked = JoinSet::new();
        for victim in victims {
            if asked.len() >= HOSTS_AT_A_TIME {
                asked.join_next().await;
            }
            let (why, workers) = (why.clone(), workers.clone());
            asked.spawn(async move {
                let answer = tokio::time::timeout(HOST_TIME, tell(workers, &victim, why)).await;
                if !matches!(answer, Ok(Ok(()))) {
                    tracing::warn!(host = victim.host, frame = victim.frame, "a host did not end a frame");
                }
            });
        }
        asked.join_all().await;
    });
}

async fn tell(workers: Option<Workers>, victim: &Victim, why: String) -> Result<(), Status> {
    let Some(workers) = workers.filter(|workers| workers.has(&victim.host)) else {
        return ask(victim, why).await;
    };
    // Without a proc nothing of the frame is on the worker.
    let Some(proc_id) = &victim.proc_id else { return Ok(()) };
    workers.end(&victim.frame, proc_id).await.map_err(|error| Status::unavailable(error.to_string()))
}

async fn ask(victim: &Victim, why: String) -> Result<(), Status> {
    let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let endpoint =
        Endpoint::from_shared(format!("http://{}:{RQD_PORT}", victim.host)).map_err(unreachable)?;
    let mut grpc = Grpc::new(endpoint.connect().await.map_err(unreachable)?);
    grpc.ready().await.map_err(unreachable)?;
    let ask = KillRunningFrame { frame_id: victim.frame.clone(), message: why };
    let path = PathAndQuery::from_static("/rqd.RqdInterface/KillRunningFrame");
    let _: tonic::Response<Killed> =
        grpc.unary(Request::new(ask), path, ProstCodec::<KillRunningFrame, Killed>::default()).await?;
    Ok(())
}
