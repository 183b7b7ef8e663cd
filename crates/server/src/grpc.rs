//! The worker protocol over gRPC: one stream for each worker, on the port of the HTTP interface.

use crate::auth::{self, Auth, Caller, Peer, certificate_names};
use crate::handle::Handle;
use crate::job_files::{FilesTrouble, JobFiles};
use crate::link::{
    BadReport, Delivery, LogChunk, LogFile, LogFuture, LogRequest, SentBodies, WorkerLink, WorkerMessage,
};
use crate::refusals::Refusals;
use crate::spans;
use crate::token_end::TokenEnd;
use axum::extract::ConnectInfo;
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, Streaming};
use windlass_api::wire::{
    BadLoad, BadMessage, Body, DropBody, DropLogs, FromWorker, Greeting, KeptOutputs, LogPart, OUTPUTS_MAX,
    Order, OutputsAreKept, ReadLog, Refused, Report, Task, TaskFiles, ToWorker, order, order_to_wire, report,
    workers_server,
};
use windlass_api::{LogStream, Params, StepBody};
use windlass_core::JobId;
use windlass_core::bounds::HELD_MAX;
use windlass_core::engine::{BadHello, CheckedHello};

/// Streams of workers that may be open at a time.
const LINKS_MAX: usize = 50_000;
/// Parcels that may wait for a worker that does not read; then it is disconnected.
const PARCELS_MAX: usize = 4_096;
/// Orders that may wait for it: what it says it holds may have to be killed.
const ORDERS_MAX: usize = 2 * HELD_MAX;
/// Orders, and bytes of orders, that are sent in one message. An order that is larger goes alone.
const ORDERS_PER_MESSAGE: usize = 4_096;
const SENT_BYTES_MAX: usize = 1 << 20;
/// Bytes of one message of a worker.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Parts of output that may be asked of a worker at a time.
const LOG_READS_MAX: usize = 256;
/// Bytes of the name of an agent's release; a longer one is none.
const VERSION_BYTES_MAX: usize = 64;
/// How long a worker may take to read a part of an output file.
const LOG_PATIENCE: Duration = Duration::from_secs(20);
/// How long an agent may take to find or start its keeper and say hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(60);
/// Beats that may be missing before the link counts as broken.
const BEATS_MISSED: u32 = 3;

/// How workers are met.
#[derive(Clone, Copy, Debug)]
pub struct WorkerTerms {
    /// How long a full lease lasts; `None` is for ever.
    pub lease: Option<Duration>,
    /// Between two reports of load.
    pub report: Duration,
}

/// The longest time between two beats.
const BEAT_MAX: Duration = Duration::from_secs(5);

impl WorkerTerms {
    /// Between two beats of a worker: a tenth of the lease, so that several may be lost.
    pub fn beat(&self) -> Duration {
        self.lease.map_or(BEAT_MAX, |lease| (lease / 10).min(BEAT_MAX))
    }
}

pub(crate) struct Workers {
    handle: Handle,
    terms: WorkerTerms,
    auth: Arc<Auth>,
    refusals: Arc<Refusals>,
    files: Option<JobFiles>,
    open: Arc<Semaphore>,
}

impl Workers {
    /// The service as routes for the HTTP server.
    pub fn routes(
        handle: Handle,
        terms: WorkerTerms,
        (auth, refusals): (Arc<Auth>, Arc<Refusals>),
        files: Option<JobFiles>,
    ) -> axum::Router {
        let open = Arc::new(Semaphore::new(LINKS_MAX));
        let workers = Workers { handle, terms, auth, refusals, files, open };
        let service =
            workers_server::WorkersServer::new(workers).max_decoding_message_size(MESSAGE_BYTES_MAX);
        tonic::service::Routes::new(service).into_axum_router()
    }
}

#[tonic::async_trait]
impl workers_server::Workers for Workers {
    type WorkStream = Pin<Box<dyn Stream<Item = Result<ToWorker, Status>> + Send>>;

    async fn work(
        &self,
        request: Request<Streaming<FromWorker>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let extensions = request.extensions();
        let (Some(caller), Some(ConnectInfo(peer))) =
            (extensions.get::<Caller>(), extensions.get::<ConnectInfo<Peer>>())
        else {
            return Err(Status::unauthenticated("unauthenticated"));
        };
        if !self.handle.is_sure() {
            return Err(Status::unavailable("this server does not reach its database"));
        }
        let Ok(place) = self.open.clone().try_acquire_owned() else {
            let why = "this server has as many workers as it can take";
            self.refusals.tell(peer, why);
            return Err(Status::resource_exhausted(why));
        };
        let token_end = caller.token.as_deref().and_then(|token| self.auth.end_of(token));
        let id = self.handle.next_link();
        let (link, outgoing) = RemoteLink::new(id, peer.clone(), self.refusals.clone(), token_end);
        link.send(vec![Order::plain(order::What::Greeting(Greeting {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store: self.handle.store().id(),
            beat_ms: self.terms.beat().as_millis() as u64,
            lease_ms: self.terms.lease.map(|lease| lease.as_millis() as u64),
            load_ms: Some(self.terms.report.as_millis() as u64),
            now: Some(self.handle.now().0),
        }))]);
        let listener = WorkerReader {
            handle: self.handle.clone(),
            link,
            auth: self.auth.clone(),
            caller: caller.clone(),
            beat: self.terms.beat(),
            name: None,
            disbelieved: BTreeSet::new(),
            told_end: false,
            answering: Arc::default(),
        };
        tokio::spawn(async move {
            listener.run(request.into_inner()).await;
            drop(place);
        });
        Ok(Response::new(Box::pin(stream::unfold(outgoing, WorkerWriter::next))))
    }

    async fn files_of(&self, request: Request<Task>) -> Result<Response<TaskFiles>, Status> {
        let (caller, files) = self.asks_for_files(&request)?;
        let (task, attempt) = request.into_inner().key();
        told(files, "FilesOf", files.state().files_of(Some(&caller), task, attempt).await)
    }

    async fn keep_outputs(&self, request: Request<KeptOutputs>) -> Result<Response<OutputsAreKept>, Status> {
        let (caller, files) = self.asks_for_files(&request)?;
        let kept = files.state().keep_outputs(Some(&caller), request.into_inner()).await;
        told(files, "KeepOutputs", kept.map(|()| OutputsAreKept {}))
    }
}

impl Workers {
    /// The worker that asks, whom the guard has let in, and the files of jobs.
    fn asks_for_files<T>(&self, request: &Request<T>) -> Result<(Caller, &JobFiles), Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Status::unauthenticated("unauthenticated"))?;
        let files = self.files.as_ref();
        files
            .map(|files| (caller, files))
            .ok_or_else(|| Status::unimplemented("this server keeps no files of jobs"))
    }
}

/// An answer, or its trouble in the words of gRPC.
fn told<T>(files: &JobFiles, call: &str, answer: Result<T, FilesTrouble>) -> Result<Response<T>, Status> {
    answer.map(Response::new).map_err(|trouble| {
        files.state().tell(call, &trouble);
        trouble.into_status()
    })
}

struct WorkerWriter {
    parcels: mpsc::Receiver<Vec<Order>>,
    /// Out of the parcels, and not sent.
    orders: VecDeque<Order>,
    /// Leases that came behind these. They go first: on a slow line the bodies before them may take as long as a lease.
    leases: Vec<Order>,
    waiting: Arc<AtomicUsize>,
}

impl WorkerWriter {
    /// The next message: what came together goes together, as far as one message may hold it.
    async fn next(mut self) -> Option<(Result<ToWorker, Status>, Self)> {
        if self.orders.is_empty() {
            self.orders.extend(self.parcels.recv().await?);
        }
        while let Ok(parcel) = self.parcels.try_recv() {
            self.add(parcel);
        }
        let mut bytes = 0;
        let fits = |order: &&Order| {
            bytes += order.bytes();
            bytes <= SENT_BYTES_MAX
        };
        let count = self.orders.iter().take(ORDERS_PER_MESSAGE).take_while(fits).count().max(1);
        let mut orders = std::mem::take(&mut self.leases);
        orders.extend(self.orders.drain(..count));
        self.waiting.fetch_sub(orders.len(), Ordering::Relaxed);
        Some((Ok(ToWorker { orders }), self))
    }

    /// Takes in what came behind other orders. The lease that comes with a welcome stays behind it.
    fn add(&mut self, parcel: Vec<Order>) {
        let welcomes = parcel.iter().any(|order| matches!(order.what, Some(order::What::Welcome(_))));
        for order in parcel {
            match order.what {
                Some(order::What::Lease(_)) if !welcomes => self.leases.push(order),
                _ => self.orders.push_back(order),
            }
        }
    }
}

/// Comes when the flag is set, or nobody is left to set it.
async fn turned(flag: &mut watch::Receiver<bool>) {
    _ = flag.wait_for(|set| *set).await;
}

/// Why a worker's stream is ended.
#[derive(Debug, thiserror::Error)]
enum BadWorker {
    #[error(transparent)]
    Message(#[from] BadMessage),
    #[error(transparent)]
    Hello(#[from] BadHello),
    #[error(
        "its token speaks for worker '{bound}', not for '{name}'; make one for this name, or give --name {bound}"
    )]
    Token { bound: String, name: String },
    #[error("its certificate was not issued to a worker named '{0}'; 'windlass ca issue' makes one")]
    Certificate(String),
    #[error("its token has expired or was revoked")]
    Ended,
    #[error("it spoke for worker '{was}' and now for '{name}'; a stream is one worker's")]
    Renamed { was: String, name: String },
}

/// Whether a message says that the keeper is there: what the agent measures, it says without one.
fn speaks_for_keeper(message: &FromWorker) -> bool {
    use report::What::{Caches, Load, Outputs};
    let measured = |report: &Report| matches!(report.what, Some(Load(_) | Caches(_) | Outputs(_)));
    !message.reports.iter().all(measured)
}

struct WorkerReader {
    handle: Handle,
    link: Arc<RemoteLink>,
    auth: Arc<Auth>,
    /// The client that opened the stream.
    caller: Caller,
    beat: Duration,
    /// For whom it speaks, once it said hello.
    name: Option<String>,
    /// Of what it measured, that which was refused.
    disbelieved: BTreeSet<&'static str>,
    /// Whether the log has the end of its token.
    told_end: bool,
    /// A question about old output is being answered.
    answering: Arc<AtomicBool>,
}

impl WorkerReader {
    async fn run(mut self, mut stream: Streaming<FromWorker>) {
        let mut closing = self.handle.closing();
        let mut ended = self.link.ended.subscribe();
        let mut heard = Instant::now();
        let span = spans::worker_stream();
        let why = loop {
            let patience = if self.name.is_some() { self.beat * BEATS_MISSED } else { HELLO_PATIENCE };
            tokio::select! {
                next = tokio::time::timeout_at(heard + patience, stream.message()) => match next {
                    Err(_) => {
                        self.blame(&format!("it was silent for {} s", patience.as_secs_f64()));
                        break None;
                    }
                    // It sent bytes that are not a message, or too large a one.
                    Ok(Err(status)) if matches!(status.code(), Code::Internal | Code::OutOfRange) => {
                        self.blame(status.message());
                        break None;
                    }
                    Ok(Err(status)) => break Some(status.message().to_owned()),
                    Ok(Ok(None)) => break Some("it hung up".to_owned()),
                    Ok(Ok(Some(message))) => {
                        if speaks_for_keeper(&message) {
                            heard = Instant::now();
                        }
                        if !self.pass_on(message).await {
                            break Some("the server is ending".to_owned());
                        }
                    }
                },
                () = turned(&mut closing) => break Some("the server is ending".to_owned()),
                () = self.handle.doubt() => break Some("the server does not reach its database".to_owned()),
                () = turned(&mut ended) => break None,
            }
        };
        self.link.end();
        spans::stream_ended(&span, self.name.as_deref(), why.as_deref());
        if let Some(name) = &self.name {
            // What it did wrong was told, as far as the log has room for it.
            if let Some(why) = why {
                tracing::info!("the connection of worker '{name}' ended: {why}");
            }
            self.handle.worker_tells(self.link.id, vec![WorkerMessage::Lost]).await;
        }
    }

    /// False once the server has ended.
    async fn pass_on(&mut self, message: FromWorker) -> bool {
        if let Err(bad) = self.check_token() {
            self.link.refuse(&bad.to_string());
            return true;
        }
        self.tell_token_end();
        let mut messages = Vec::with_capacity(message.reports.len());
        for Report { what } in message.reports {
            match what.map(|what| self.take(what)) {
                Some(Ok(message)) => messages.extend(message),
                Some(Err(bad)) => {
                    self.link.refuse(&bad.to_string());
                    break;
                }
                // A kind that a later release added.
                None => {}
            }
        }
        messages.is_empty() || self.handle.worker_tells(self.link.id, messages).await
    }

    /// Logs once that the worker's token ends soon.
    fn tell_token_end(&mut self) {
        let (Some(end), Some(name)) = (self.link.token_end, &self.name) else { return };
        let now = auth::now();
        if !self.told_end && end.is_told(now) {
            self.told_end = true;
            let when = end.text(now);
            tracing::warn!(
                "the token of worker '{name}' {when}; make another one, and start the worker with it"
            );
        }
    }

    /// The worker measured what cannot be. The stream goes on, because the next report is built from scratch. The log
    /// says it once, because the next report may be as bad.
    fn disbelieve(&mut self, what: &'static str, bad: &BadLoad) {
        self.handle.parts().metrics.load_reports_refused.inc();
        if self.disbelieved.insert(what) {
            self.blame(&format!("its {what} is not taken: {bad}"));
        } else {
            self.link.refusals.count();
        }
    }

    /// Logs what the client that opened the stream did wrong.
    fn blame(&self, why: &str) {
        self.link.refusals.tell(&self.link.peer, why);
    }

    /// Whether the client that opened the stream may speak for the worker of that name.
    fn check_name(&self, name: &str) -> Result<(), BadWorker> {
        if let Some(was) = self.name.as_ref().filter(|was| *was != name) {
            return Err(BadWorker::Renamed { was: was.clone(), name: name.to_owned() });
        }
        if let Some(bound) = &self.caller.worker
            && bound != name
        {
            return Err(BadWorker::Token { bound: bound.clone(), name: name.to_owned() });
        }
        match &self.link.peer.certificate {
            Some(certificate) if !certificate_names(certificate, name) => {
                Err(BadWorker::Certificate(name.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// A token that ends, ends the streams that it opened.
    fn check_token(&self) -> Result<(), BadWorker> {
        match &self.caller.token {
            Some(token) if !self.auth.is_in_force(token) => Err(BadWorker::Ended),
            _ => Ok(()),
        }
    }

    /// Lets the worker delete the output of those jobs that the store does not know. What it asks before it said hello, or
    /// before the answer, is passed over: it asks again.
    fn look_for_jobs(&self, jobs: Vec<u64>) {
        let is_asked =
            self.name.is_some() && jobs.len() <= OUTPUTS_MAX && !self.answering.swap(true, Ordering::Relaxed);
        if !is_asked {
            return;
        }
        let (handle, link, answering) = (self.handle.clone(), self.link.clone(), self.answering.clone());
        tokio::spawn(async move {
            let mut gone = Vec::new();
            for job in jobs.into_iter().map(JobId) {
                match handle.store().job(job).await {
                    Ok(Some(_)) => {}
                    Ok(None) => gone.push(job),
                    Err(e) => {
                        tracing::warn!("cannot look for the jobs whose output a worker has: {e}");
                        break;
                    }
                }
            }
            if !gone.is_empty() {
                link.drop_logs(&gone);
            }
            answering.store(false, Ordering::Relaxed);
        });
    }

    fn take(&mut self, what: report::What) -> Result<Option<WorkerMessage>, BadWorker> {
        match what {
            report::What::Hello(hello) => {
                let version = hello.version.clone();
                let hello = hello.into_core()?;
                self.check_name(&hello.name)?;
                let hello = CheckedHello::of_agent(hello, &self.caller.may_serve())?;
                *self.link.version.lock() = Some(version).filter(|v| v.len() <= VERSION_BYTES_MAX);
                self.name = Some(hello.name().to_owned());
                // The keeper may be another than before, which has no bodies.
                self.link.bodies.lock().clear();
                Ok(Some(WorkerMessage::Hello { hello, link: self.link.clone() }))
            }
            report::What::Log(part) => {
                self.link.log_arrives(part);
                Ok(None)
            }
            report::What::Outputs(outputs) => {
                self.look_for_jobs(outputs.jobs);
                Ok(None)
            }
            what => match WorkerMessage::from_report(what) {
                Ok(message) => Ok(message),
                Err(BadReport::Message(bad)) => Err(bad.into()),
                Err(BadReport::Measured(what, bad)) => {
                    self.disbelieve(what, &bad);
                    Ok(None)
                }
            },
        }
    }
}

type LogAnswer = oneshot::Sender<io::Result<Option<LogChunk>>>;

/// A request for a part of an attempt's output that the worker has not answered.
struct LogRead {
    answer: LogAnswer,
    /// Whether marks were asked for.
    times: bool,
}

/// The half that speaks to the worker.
struct RemoteLink {
    id: u64,
    version: Mutex<Option<String>>,
    token_end: Option<TokenEnd>,
    peer: Peer,
    refusals: Arc<Refusals>,
    /// Orders that were not sent yet.
    waiting: Arc<AtomicUsize>,
    parcels: Mutex<Option<mpsc::Sender<Vec<Order>>>>,
    ended: watch::Sender<bool>,
    bodies: Mutex<SentBodies>,
    reads: Mutex<BTreeMap<u64, LogRead>>,
    last_read: AtomicU64,
}

impl RemoteLink {
    fn new(
        id: u64,
        peer: Peer,
        refusals: Arc<Refusals>,
        token_end: Option<TokenEnd>,
    ) -> (Arc<RemoteLink>, WorkerWriter) {
        let (sender, parcels) = mpsc::channel(PARCELS_MAX);
        let waiting: Arc<AtomicUsize> = Arc::default();
        let link = RemoteLink {
            id,
            version: Mutex::default(),
            token_end,
            peer,
            refusals,
            waiting: waiting.clone(),
            parcels: Mutex::new(Some(sender)),
            ended: watch::Sender::new(false),
            bodies: Mutex::default(),
            reads: Mutex::default(),
            last_read: AtomicU64::new(0),
        };
        (Arc::new(link), WorkerWriter { parcels, orders: VecDeque::new(), leases: Vec::new(), waiting })
    }

    fn send(&self, orders: Vec<Order>) {
        let (count, parcels) = (orders.len(), self.parcels.lock().clone());
        let Some(parcels) = parcels.filter(|_| count > 0) else { return };
        let waiting = self.waiting.fetch_add(count, Ordering::Relaxed) + count;
        let sent =
            if waiting > ORDERS_MAX { Err(TrySendError::Full(orders)) } else { parcels.try_send(orders) };
        let Err(why) = sent else { return };
        // A worker that hung up refused nothing.
        if matches!(why, TrySendError::Full(_)) {
            self.refusals.tell(&self.peer, "it does not read what it is sent");
        }
        // What is left out makes all that follows worthless: the worker says hello again.
        self.end();
    }

    fn end(&self) {
        self.parcels.lock().take();
        self.reads.lock().clear();
        self.ended.send_replace(true);
    }

    fn order(&self, delivery: Delivery, into: &mut Vec<Order>) {
        let Delivery { seq, order, start } = delivery;
        let mut wire = order_to_wire(seq, order);
        if let Some(order::What::Start(message)) = &mut wire.what {
            let (Some(start), Some(task)) = (start, &message.task) else { return };
            self.give_body((task.job, message.step as u16), &start.body, &start.job.user, into);
            start.fill_in(message);
        }
        into.push(wire);
    }

    /// Sends a step's body before the first start that needs it.
    fn give_body(&self, key: (u64, u16), body: &StepBody, user: &str, into: &mut Vec<Order>) {
        let mut bodies = self.bodies.lock();
        if bodies.has(key) {
            return;
        }
        let body = StepBody { params: Params::None, ..body.clone() };
        let body = serde_json::to_vec(&body).expect("strings and maps always serialize");
        for (job, step) in bodies.add(key, body.len()) {
            into.push(Order::plain(order::What::DropBody(DropBody { job, step: step.into() })));
        }
        let (job, step) = (key.0, key.1.into());
        into.push(Order::plain(order::What::Body(Body { job, step, body, user: user.to_owned() })));
    }

    fn log_arrives(&self, part: LogPart) {
        let Some(LogRead { answer, times }) = self.reads.lock().remove(&part.id) else { return };
        // The request for it may have been dropped.
        _ = answer.send(chunk_of(part, times));
    }
}

/// The bytes of an answer; `None` if there is no such file. `times` says whether marks were asked for.
fn chunk_of(part: LogPart, times: bool) -> io::Result<Option<LogChunk>> {
    match part.failed {
        Some(why) => Err(io::Error::other(why)),
        // A worker of an earlier release reads output where marks are asked for.
        None if part.absent || part.times != times => Ok(None),
        None => Ok(Some(LogChunk { next: part.next, bytes: part.bytes })),
    }
}

impl WorkerLink for RemoteLink {
    fn id(&self) -> u64 {
        self.id
    }

    fn version(&self) -> Option<String> {
        self.version.lock().clone()
    }

    fn token_end(&self) -> Option<TokenEnd> {
        self.token_end
    }

    fn deliver(&self, parcel: Vec<Delivery>) {
        let mut orders = Vec::with_capacity(parcel.len() + 1);
        for delivery in parcel {
            self.order(delivery, &mut orders);
        }
        self.send(orders);
    }

    fn refuse(&self, why: &str) {
        self.refusals.tell(&self.peer, why);
        self.send(vec![Order::plain(order::What::Refused(Refused { why: why.to_owned() }))]);
        self.end();
    }

    fn begin_again(&self) {
        self.end();
    }

    fn read_log(&self, request: LogRequest) -> LogFuture {
        let (answer, wait) = oneshot::channel();
        let id = self.last_read.fetch_add(1, Ordering::Relaxed) + 1;
        let times = request.file == LogFile::Times;
        {
            let mut reads = self.reads.lock();
            reads.retain(|_, waiting| !waiting.answer.is_closed());
            if reads.len() >= LOG_READS_MAX {
                let busy = io::Error::new(io::ErrorKind::ResourceBusy, "too many read that worker's output");
                return Box::pin(std::future::ready(Err(busy)));
            }
            reads.insert(id, LogRead { answer, times });
        }
        self.send(vec![Order::plain(order::What::ReadLog(ReadLog {
            id,
            task: Some(Task::new(request.task, request.attempt)),
            stderr: request.file == LogFile::Output(LogStream::Stderr),
            offset: request.offset,
            bytes_max: request.bytes_max as u64,
            times,
        }))]);
        Box::pin(async move {
            match tokio::time::timeout(LOG_PATIENCE, wait).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => {
                    Err(io::Error::new(io::ErrorKind::NotConnected, "the worker's connection ended"))
                }
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the worker does not answer")),
            }
        })
    }

    fn drop_logs(&self, jobs: &[JobId]) {
        let jobs = jobs.iter().map(|job| job.0).collect();
        self.send(vec![Order::plain(order::What::DropLogs(DropLogs { jobs }))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_measures_is_no_sign_of_its_keeper() {
        use windlass_api::wire::{Beat, Caches, Load};
        let said = |all: Vec<report::What>| {
            let reports = all.into_iter().map(|what| Report { what: Some(what) }).collect();
            speaks_for_keeper(&FromWorker { reports })
        };
        let measured = || vec![report::What::Load(Load::default()), report::What::Caches(Caches::default())];
        assert!(!said(measured()));
        assert!(said([measured(), vec![report::What::Beat(Beat::default())]].concat()));
    }

    #[test]
    fn output_is_not_read_as_marks() {
        let part = |times| LogPart { next: 3, bytes: b"abc".to_vec(), times, ..LogPart::default() };
        let bytes = |part, times| chunk_of(part, times).unwrap().map(|chunk| chunk.bytes);
        assert_eq!(bytes(part(false), true), None, "its worker is of an earlier release");
        assert_eq!(bytes(part(true), true), Some(b"abc".to_vec()));
        assert_eq!(bytes(part(false), false), Some(b"abc".to_vec()));
        let failed = LogPart { failed: Some("a disk".to_owned()), ..LogPart::default() };
        assert!(chunk_of(failed, true).is_err());
    }

    /// A large body goes alone, and may take long. What waits behind it is not what lets tasks go on.
    #[tokio::test]
    async fn leases_overtake_bodies_that_wait() {
        use windlass_api::wire::{Lease, Welcome};
        let (sender, parcels) = mpsc::channel(PARCELS_MAX);
        let waiting = Arc::new(AtomicUsize::new(6));
        let mut writer =
            WorkerWriter { parcels, orders: VecDeque::new(), leases: Vec::new(), waiting: waiting.clone() };
        let body = |job| {
            let body = Body { job, body: vec![b'x'; 2 * SENT_BYTES_MAX], ..Body::default() };
            Order::plain(order::What::Body(body))
        };
        let lease = |sent| Order::plain(order::What::Lease(Lease { sent, lasts_ns: 9 }));
        let welcome = Order::plain(order::What::Welcome(Welcome { epoch: 1 }));
        for parcel in [vec![body(1), body(2)], vec![lease(5)], vec![welcome, lease(6)], vec![body(3)]] {
            sender.try_send(parcel).unwrap();
        }
        drop(sender);
        let mut messages = Vec::new();
        while let Some((message, rest)) = writer.next().await {
            let words = message.unwrap().orders.into_iter().map(|order| match order.what {
                Some(order::What::Body(body)) => format!("body {}", body.job),
                Some(order::What::Lease(lease)) => format!("lease {}", lease.sent),
                _ => "welcome".to_owned(),
            });
            messages.push(words.collect::<Vec<_>>().join(", "));
            writer = rest;
        }
        assert_eq!(messages, ["lease 5, body 1", "body 2", "welcome, lease 6", "body 3"]);
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
    }
}
