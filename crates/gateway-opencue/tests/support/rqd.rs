//! A double of RQD: it takes, refuses or ignores frames. One answers for all hosts of 127.0.0.0/8 on one port, or each
//! host has its own, which can die.

#![allow(dead_code)]

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::routing::post;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use windlass_cuebot::generated::report::{HostReport, RunningFrameInfo};
use windlass_gateway_opencue::rqd::{Empty, KILL, KillRequest, LAUNCH, LaunchRequest, RunFrame};

/// What it does with launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Takes,
    /// It answers that it will not.
    Refuses,
    /// It takes those of users that it knows, as the stock one does.
    RefusesRoot,
    /// It says so where it is told to kill a frame that it does not run, as the one in Rust does.
    SaysUnknown,
    /// It takes them, and never answers.
    TakesSilently,
    /// It answers nothing at all, as a stopped process, until it gets another mood.
    Hangs,
}

pub struct Rqd {
    pub port: u16,
    mood: Mutex<Mood>,
    changed: Notify,
    begun: Notify,
    running: Mutex<BTreeMap<String, RunFrame>>,
    killed: Mutex<Vec<String>>,
    doubled: Mutex<Vec<String>>,
}

/// What it answers when it is asked what it runs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusAnswer {
    /// The same as it reports by itself.
    #[prost(message, optional, tag = "1")]
    pub host_report: Option<HostReport>,
}

/// Where it is asked that.
pub const STATUS: &str = "/rqd.RqdInterface/ReportStatus";

/// Calls a function for each request.
pub struct Call<F>(pub F);

impl<Q, A, F, R> UnaryService<Q> for Call<F>
where
    F: Fn(Q) -> R,
    R: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async move { answer.await.map(Response::new) })
    }
}

impl Rqd {
    /// Starts one for all hosts.
    pub async fn start(mood: Mood) -> Arc<Rqd> {
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let rqd = Rqd::new(listener.local_addr().unwrap().port(), mood);
        let routes = routes(rqd.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        rqd
    }

    fn new(port: u16, mood: Mood) -> Arc<Rqd> {
        Arc::new(Rqd {
            port,
            mood: Mutex::new(mood),
            changed: Notify::new(),
            begun: Notify::new(),
            running: Mutex::default(),
            killed: Mutex::default(),
            doubled: Mutex::default(),
        })
    }

    /// Changes what it does.
    pub fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
        self.changed.notify_waiters();
    }

    /// Waits while it hangs.
    async fn awake(&self) {
        loop {
            let changed = self.changed.notified();
            let mood = *self.mood.lock().unwrap();
            if mood != Mood::Hangs {
                return;
            }
            changed.await;
        }
    }

    /// It runs a frame in a proc without having been told.
    pub fn begin(&self, frame: &str, proc_id: &str) {
        let run = RunFrame { resource_id: proc_id.to_owned(), ..RunFrame::default() };
        self.running.lock().unwrap().insert(frame.to_owned(), run);
    }

    /// The frames that run.
    pub fn running(&self) -> BTreeMap<String, RunFrame> {
        self.running.lock().unwrap().clone()
    }

    /// Returns when a frame was launched since the last call.
    pub async fn launched(&self) {
        self.begun.notified().await;
    }

    /// The frames that run, which end now.
    pub fn end_running(&self) -> BTreeMap<String, RunFrame> {
        std::mem::take(&mut *self.running.lock().unwrap())
    }

    /// The frames that it was told to kill.
    pub fn killed(&self) -> Vec<String> {
        self.killed.lock().unwrap().clone()
    }

    /// Frames that were launched while they ran.
    pub fn doubled(&self) -> Vec<String> {
        self.doubled.lock().unwrap().clone()
    }
}

/// A host with a double of its own. It runs in a runtime of its own, so that its connections die with it.
pub struct Machine {
    pub rqd: Arc<Rqd>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Machine {
    /// Starts one at an address of this machine, of which port 0 is any.
    pub fn start(address: SocketAddr, mood: Mood) -> std::io::Result<Machine> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let rqd = Rqd::new(address.port(), mood);
        let routes = routes(rqd.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, routes).await
        });
        Ok(Machine { rqd, address, runtime: Some(runtime) })
    }

    /// Its name as a host.
    pub fn host(&self) -> String {
        self.address.ip().to_string()
    }

    pub fn die(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// It starts again, and runs nothing.
    pub fn revive(&mut self) {
        self.die();
        let began = std::time::Instant::now();
        // The old listener is closed by the runtime's threads, a moment later.
        loop {
            match Machine::start(self.address, Mood::Takes) {
                Ok(machine) => {
                    *self = machine;
                    return;
                }
                Err(error) => assert!(began.elapsed().as_secs() < 30, "{}: {error}", self.address),
            }
            std::thread::yield_now();
        }
    }

    /// The frames that run there.
    pub fn running(&self) -> Vec<String> {
        if self.runtime.is_some() { self.rqd.running().into_keys().collect() } else { Vec::new() }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.die();
    }
}

fn routes(rqd: Arc<Rqd>) -> Router {
    Router::new()
        .route(LAUNCH, post(launch))
        .route(KILL, post(kill))
        .route(STATUS, post(status))
        .with_state(rqd)
}

pub type Answer = axum::http::Response<tonic::body::Body>;

async fn launch(State(rqd): State<Arc<Rqd>>, request: HttpRequest) -> Answer {
    let call = Call(move |ask: LaunchRequest| {
        let rqd = rqd.clone();
        async move {
            rqd.awake().await;
            let frame = ask.run_frame.unwrap_or_default();
            let mood = *rqd.mood.lock().unwrap();
            if mood == Mood::RefusesRoot && frame.uid.is_none_or(|uid| uid <= 0) {
                return Err(Status::unknown("Exception calling application: this user cannot run frames"));
            }
            if mood == Mood::Refuses {
                return Err(Status::unknown("Exception calling application: the host is locked"));
            }
            let id = frame.frame_id.clone();
            if rqd.running.lock().unwrap().insert(id.clone(), frame).is_some() {
                rqd.doubled.lock().unwrap().push(id);
            }
            rqd.begun.notify_one();
            if mood == Mood::TakesSilently {
                std::future::pending::<()>().await;
            }
            Ok(Empty {})
        }
    });
    Grpc::new(ProstCodec::<Empty, LaunchRequest>::default()).unary(call, request).await
}

async fn kill(State(rqd): State<Arc<Rqd>>, request: HttpRequest) -> Answer {
    let call = Call(move |ask: KillRequest| {
        let rqd = rqd.clone();
        async move {
            rqd.awake().await;
            let has_run = rqd.running.lock().unwrap().remove(&ask.frame_id).is_some();
            rqd.killed.lock().unwrap().push(ask.frame_id);
            let mood = *rqd.mood.lock().unwrap();
            if mood == Mood::SaysUnknown && !has_run {
                return Err(Status::not_found("could not find the frame to kill"));
            }
            Ok(Empty {})
        }
    });
    Grpc::new(ProstCodec::<Empty, KillRequest>::default()).unary(call, request).await
}

async fn status(State(rqd): State<Arc<Rqd>>, request: HttpRequest) -> Answer {
    let call = Call(move |_: Empty| {
        let rqd = rqd.clone();
        async move {
            rqd.awake().await;
            let frames = rqd.running().into_iter().map(|(frame_id, run)| RunningFrameInfo {
                frame_id,
                resource_id: run.resource_id,
                ..Default::default()
            });
            let frames = frames.collect();
            Ok(StatusAnswer { host_report: Some(HostReport { frames, ..Default::default() }) })
        }
    });
    Grpc::new(ProstCodec::<StatusAnswer, Empty>::default()).unary(call, request).await
}
