//! Paths of calls, and the functions that answer them.

use crate::cuebot::Cuebot;
use crate::spec::SPEC_BYTES_MAX;
use crate::trouble::CallError;
use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::routing::{MethodRouter, post};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Bytes of a request with a job spec. A spec of the greatest size fits.
pub const LAUNCH_BYTES_MAX: usize = SPEC_BYTES_MAX + (1 << 20);
/// Bytes of every other request.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// The beginning of paths whose requests bring job specs.
const LAUNCH_PATHS: &str = "/job.JobInterface/LaunchSpec";

/// Bytes that a request to a path may bring.
pub(crate) fn bytes_max(path: &str) -> usize {
    if path.starts_with(LAUNCH_PATHS) { LAUNCH_BYTES_MAX } else { CALL_BYTES_MAX }
}

/// Calls a function for each request of one path.
struct Unary<F> {
    cuebot: Arc<Cuebot>,
    call: F,
}

impl<Q, A, F, R> UnaryService<Q> for Unary<F>
where
    F: Fn(Arc<Cuebot>, Q) -> R,
    R: Future<Output = Result<A, CallError>> + Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.call)(self.cuebot.clone(), request.into_inner());
        Box::pin(async move {
            match answer.await {
                Ok(answer) => Ok(Response::new(answer)),
                Err(error) => {
                    if let CallError::Database(cause) = &error {
                        tracing::warn!(?cause, "a call of a client or a host failed at the database");
                    }
                    Err(error.status())
                }
            }
        })
    }
}

/// The table of paths, and the calls that answer them.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) router: Router<Arc<Cuebot>>,
    pub(crate) paths: Vec<&'static str>,
}

impl Routes {
    pub(crate) fn route(mut self, path: &'static str, call: MethodRouter<Arc<Cuebot>>) -> Routes {
        self.paths.push(path);
        Routes { router: self.router.route(path, call), paths: self.paths }
    }
}

/// A path that a function answers.
pub(crate) fn unary<Q, A, F, R>(call: F) -> MethodRouter<Arc<Cuebot>>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + 'static,
    F: Fn(Arc<Cuebot>, Q) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<A, CallError>> + Send + 'static,
{
    post(move |State(cuebot): State<Arc<Cuebot>>, request: HttpRequest| {
        let service = Unary { cuebot, call: call.clone() };
        async move {
            let bytes_max = bytes_max(request.uri().path());
            let mut grpc = Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(bytes_max);
            grpc.unary(service, request).await
        }
    })
}
