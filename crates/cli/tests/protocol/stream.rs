//! Streams of the worker protocol whose messages are raw bytes.

use prost::bytes::{Buf as _, BufMut as _};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Service, http};
use tonic::server::{NamedService, StreamingService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

/// Messages that may wait at either end.
const WAITING_MAX: usize = 64;

/// One end of a stream.
pub struct End {
    pub out: mpsc::Sender<Vec<u8>>,
    pub incoming: Streaming<Vec<u8>>,
}

/// Opens a stream as an agent does.
pub async fn open(url: &str) -> End {
    let channel = Endpoint::from_shared(url.to_owned()).unwrap().connect().await.unwrap();
    let (out, messages) = mpsc::channel(WAITING_MAX);
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/windlass.worker.v1.Workers/Work");
    let response = client.streaming(Request::new(ReceiverStream::new(messages)), path, Raw).await;
    End { out, incoming: response.unwrap().into_inner() }
}

/// A server to which agents open streams.
pub struct Door {
    pub url: String,
    pub streams: mpsc::Receiver<End>,
}

impl Door {
    pub fn open() -> Door {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", incoming.local_addr().unwrap());
        let (opened, streams) = mpsc::channel(WAITING_MAX);
        let serve = Server::builder().add_service(Workers(opened)).serve_with_incoming(incoming);
        tokio::spawn(serve);
        Door { url, streams }
    }
}

/// The service of a server, with bytes.
#[derive(Clone)]
struct Workers(mpsc::Sender<End>);

impl NamedService for Workers {
    const NAME: &'static str = "windlass.worker.v1.Workers";
}

type Later<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Service<http::Request<tonic::body::Body>> for Workers {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Later<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let method = self.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).streaming(method, request).await) })
    }
}

impl StreamingService<Vec<u8>> for Workers {
    type Response = Vec<u8>;
    type ResponseStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<Vec<u8>, Status>> + Send>>;
    type Future = Later<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Vec<u8>>>) -> Self::Future {
        let opened = self.0.clone();
        Box::pin(async move {
            let (out, messages) = mpsc::channel(WAITING_MAX);
            // The test that accepted streams may be over.
            _ = opened.send(End { out, incoming: request.into_inner() }).await;
            Ok(Response::new(Box::pin(ReceiverStream::new(messages).map(Ok)) as Self::ResponseStream))
        })
    }
}

/// Passes messages through unchanged.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; from.remaining()];
        from.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}
