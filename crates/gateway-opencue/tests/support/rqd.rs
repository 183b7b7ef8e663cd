//! A double of RQD: it answers for all hosts of 127.0.0.0/8 on one port, and takes, refuses or ignores frames.

#![allow(dead_code)]

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::routing::post;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use windlass_gateway_opencue::generated::report::{HostReport, RunningFrameInfo};
use windlass_gateway_opencue::rqd::{Empty, KILL, KillRequest, LAUNCH, LaunchRequest, RunFrame};

/// What it does with launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    /// It takes them.
    Takes,
    /// It answers that it will not.
    Refuses,
    /// It takes those of users that it knows, as the stock one does.
    RefusesRoot,
    /// It takes them, and never answers.
    TakesSilently,
}

/// What it knows.
pub struct Rqd {
    /// Where it listens.
    pub port: u16,
    mood: Mutex<Mood>,
    running: Mutex<BTreeMap<String, RunFrame>>,
    killed: Mutex<Vec<String>>,
    doubled: Mutex<Vec<String>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    host_report: Option<HostReport>,
}

/// Calls a function for each request.
struct Call<F>(F);

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
    /// Starts it.
    pub async fn start(mood: Mood) -> Arc<Rqd> {
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let rqd = Arc::new(Rqd {
            port,
            mood: Mutex::new(mood),
            running: Mutex::default(),
            killed: Mutex::default(),
            doubled: Mutex::default(),
        });
        let routes = Router::new()
            .route(LAUNCH, post(launch))
            .route(KILL, post(kill))
            .route("/rqd.RqdInterface/ReportStatus", post(status))
            .with_state(rqd.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        rqd
    }

    /// Changes what it does.
    pub fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// It runs a frame, whoever told it.
    pub fn begin(&self, frame: &str) {
        self.running.lock().unwrap().insert(frame.to_owned(), RunFrame::default());
    }

    /// The frames that run.
    pub fn running(&self) -> BTreeMap<String, RunFrame> {
        self.running.lock().unwrap().clone()
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

type Answer = axum::http::Response<tonic::body::Body>;

async fn launch(State(rqd): State<Arc<Rqd>>, request: HttpRequest) -> Answer {
    let call = Call(move |ask: LaunchRequest| {
        let rqd = rqd.clone();
        async move {
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
            rqd.running.lock().unwrap().remove(&ask.frame_id);
            rqd.killed.lock().unwrap().push(ask.frame_id);
            Ok(Empty {})
        }
    });
    Grpc::new(ProstCodec::<Empty, KillRequest>::default()).unary(call, request).await
}

async fn status(State(rqd): State<Arc<Rqd>>, request: HttpRequest) -> Answer {
    let call = Call(move |_: Empty| {
        let frames = rqd.running().into_keys();
        let frames = frames.map(|frame_id| RunningFrameInfo { frame_id, ..Default::default() }).collect();
        async move { Ok(StatusAnswer { host_report: Some(HostReport { frames, ..Default::default() }) }) }
    });
    Grpc::new(ProstCodec::<StatusAnswer, Empty>::default()).unary(call, request).await
}
