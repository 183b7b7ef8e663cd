//! Connections to RQD on the farm's hosts, and the three calls that a scheduler makes. Hosts that are Windlass
//! workers have no RQD; their calls go to the Windlass server.

use crate::rqd::{Empty, KILL, KillRequest, LAUNCH, Launch, LaunchRequest};
use crate::workers::Workers;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use windlass_cuebot::FrameRun;
use windlass_cuebot::generated::report::HostReport;

/// Time for a connection to a host.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Connections that are kept. Beyond that all are opened again as they are needed.
const CONNECTIONS_MAX: usize = 8_192;
const STATUS: &str = "/rqd.RqdInterface/ReportStatus";

/// The answer of RQD to the question what it runs.
#[derive(Clone, PartialEq, prost::Message)]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    host_report: Option<HostReport>,
}

/// The connections to the hosts of a farm.
pub struct Hosts {
    port: u16,
    call_time: Duration,
    channels: Mutex<HashMap<String, Channel>>,
    workers: Option<Workers>,
}

impl Hosts {
    /// Hosts whose RQD listens on this port and may take `call_time` for an answer, with the connection; and workers,
    /// whose server may take the same time.
    pub fn new(port: u16, call_time: Duration, workers: Option<Workers>) -> Hosts {
        Hosts { port, call_time, channels: Mutex::default(), workers }
    }

    /// The time that a host may take for an answer.
    pub fn call_time(&self) -> Duration {
        self.call_time
    }

    /// True if a host is a Windlass worker.
    pub fn is_worker(&self, host: &str) -> bool {
        self.workers_of(host).is_some()
    }

    /// True if Windlass workers are among the hosts.
    pub(super) fn has_workers(&self) -> bool {
        self.workers.is_some()
    }

    /// The workers, where the host is one of them.
    pub(super) fn workers_of(&self, host: &str) -> Option<&Workers> {
        self.workers.as_ref().filter(|workers| workers.has(host))
    }

    fn channel(&self, host: &str) -> Result<Channel, Status> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(host) {
            return Ok(channel.clone());
        }
        let address = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let endpoint = Endpoint::from_shared(format!("http://{address}:{}", self.port)).map_err(|error| {
            Status::invalid_argument(format!("'{host}' is not a valid name of a host: {error}"))
        })?;
        let channel = endpoint.connect_timeout(CONNECT_TIME).connect_lazy();
        if channels.len() >= CONNECTIONS_MAX {
            channels.clear();
        }
        channels.insert(host.to_owned(), channel.clone());
        Ok(channel)
    }

    async fn call<Q, A>(&self, host: &str, path: &'static str, ask: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel(host)?);
        let answer = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            let path = PathAndQuery::from_static(path);
            let answer = grpc.unary(Request::new(ask), path, ProstCodec::<Q, A>::default()).await?;
            Ok(answer.into_inner())
        };
        self.in_time(host, answer).await
    }

    async fn in_time<A>(
        &self,
        host: &str,
        answer: impl Future<Output = Result<A, Status>>,
    ) -> Result<A, Status> {
        match tokio::time::timeout(self.call_time, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(Status::deadline_exceeded(format!("{host} did not answer in {:?}", self.call_time)))
            }
        }
    }

    /// Tells a host to run a frame.
    ///
    /// # Errors
    ///
    /// RQD refused, or its answer did not come and the frame may run.
    pub async fn launch(&self, launch: &Launch) -> Result<(), Status> {
        if let Some(workers) = self.workers_of(&launch.host) {
            return self.in_time(&launch.host, workers.launch(launch)).await;
        }
        let ask = LaunchRequest { run_frame: Some(launch.frame.clone()) };
        self.call::<_, Empty>(&launch.host, LAUNCH, ask).await.map(|_| ())
    }

    /// Tells a host to end a frame, in its proc. False where RQD answers that it does not run the frame: the RQD in
    /// Rust says so, and the one in Python answers the same in both cases.
    ///
    /// # Errors
    ///
    /// The call did not reach the host, or had no answer.
    pub async fn kill(&self, host: &str, run: &FrameRun, why: &str) -> Result<bool, Status> {
        if let Some(workers) = self.workers_of(host) {
            return self.in_time(host, workers.kill(run)).await.map(|()| true);
        }
        let ask = KillRequest { frame_id: run.frame.clone(), message: why.to_owned() };
        match self.call::<_, Empty>(host, KILL, ask).await {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// The runs, of these, that a host does not have. A frame that it runs in another proc is missing in this one.
    ///
    /// # Errors
    ///
    /// The host does not say what it runs.
    pub async fn missing(&self, host: &str, mut runs: Vec<FrameRun>) -> Result<Vec<FrameRun>, Status> {
        let answer: StatusAnswer = self.call(host, STATUS, Empty {}).await?;
        let frames = answer.host_report.unwrap_or_default().frames.into_iter();
        let running: BTreeSet<FrameRun> =
            frames.map(|run| FrameRun { frame: run.frame_id, proc_id: run.resource_id }).collect();
        runs.retain(|run| !running.contains(run));
        Ok(runs)
    }
}

/// True if nothing listens at the host: no RQD is there that could have taken anything.
pub fn is_refused(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// True if RQD itself refused: it was reached, and has not run the frame.
pub fn is_answer(status: &Status) -> bool {
    let lost = [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled];
    // A broken connection has a cause on this side.
    !lost.contains(&status.code()) && status.source().is_none()
}
