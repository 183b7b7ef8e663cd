//! A server that listens, for the tests of the files of jobs. Its worker takes tasks and runs nothing.

use super::JobFiles;
use crate::auth::{Auth, Caller, Rights, Role};
use crate::cas::{CacheOptions, CacheState, RemoteCache};
use crate::config::Config;
use crate::connections::RoomLimits;
use crate::gateway::Gateways;
use crate::grpc::WorkerTerms;
use crate::handle::Handle;
use crate::http::{ServeOptions, serve};
use crate::link::{Delivery, WorkerLink, WorkerMessage};
use crate::listen::{Listener, Protection};
use crate::shell::{self, ShellOptions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use windlass_api::wire::workers_client::WorkersClient;
use windlass_api::wire::{KeptOutputs, Task, TaskFiles};
use windlass_api::{ATTEMPT_METADATA, CreateToken, JOB_FILES_INSTANCE, JobFiles as JobFilesAnswer};
use windlass_cas::Digest;
use windlass_cas::proto::re::batch_update_blobs_request::Request as BlobUpdate;
use windlass_cas::proto::re::content_addressable_storage_client::ContentAddressableStorageClient;
use windlass_cas::proto::re::{self, BatchReadBlobsRequest, BatchUpdateBlobsRequest};
use windlass_cas::tree::{EncodedTree, EntryKind, TreeEntry, encode};
use windlass_core::engine::{CheckedHello, Hello};
use windlass_core::job::{End, TaskResult};
use windlass_core::{Epoch, JobId, Resources, TaskId};
use windlass_store::Store;

/// Only a hung test waits for so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// The connection of the worker `w`.
const LINK: u64 = 7;

struct IdleLink;

impl WorkerLink for IdleLink {
    fn id(&self) -> u64 {
        LINK
    }

    fn deliver(&self, _parcel: Vec<Delivery>) {}

    fn refuse(&self, _why: &str) {}
}

pub(super) struct FilesServer {
    pub address: String,
    pub files: JobFiles,
    pub handle: Handle,
    serving: JoinHandle<()>,
    /// Bearers of users by their names, of the administrator, and of workers.
    pub tokens: BTreeMap<&'static str, String>,
}

impl FilesServer {
    pub async fn start(dir: &Path, store: &Store, change: impl FnOnce(&mut CacheOptions)) -> FilesServer {
        let config = Config::default();
        let settings = ShellOptions { settings: config.engine_settings() };
        let handle = shell::start(store.clone(), settings).await.unwrap();
        let auth = Auth::load(store, true, "root".to_owned()).await.unwrap();
        let tokens = tokens(&auth).await;
        let mut options = CacheOptions {
            dir: dir.join("cas"),
            bytes_max: Some(1 << 20),
            upload_bytes_per_day: 1 << 40,
            is_open: true,
            users_write: false,
            users_share: false,
        };
        change(&mut options);
        let cache = RemoteCache::new(options);
        let files = JobFiles::new(&cache, &handle);
        let options = ServeOptions {
            store: "memory".to_owned(),
            auth,
            audit: None,
            idle: None,
            terms: WorkerTerms { lease: None, report: Duration::from_secs(1) },
            gateways: Gateways::new(vec![Arc::new(cache)]),
            files: Some(files.clone()),
            room: RoomLimits::new(None, None),
            user_limits: config.users.clone(),
            read_all: false,
            audit_files: 1,
            board: config.board.clone(),
            queues: BTreeMap::new(),
            scaling: windlass_core::scaling::ScalingSettings::default(),
            key: None,
            users: None,
        };
        let protection = Protection { auth: true, ..Protection::default() };
        let listener = Listener::bind("127.0.0.1:0", &protection).unwrap();
        let address = listener.address();
        let serving = tokio::spawn(serve(vec![listener], handle.clone(), options));
        let hello = Hello::new("w", 1, Resources::new(800, 8 << 30));
        let hello = CheckedHello::of_agent(hello, &[]).unwrap();
        let hello = WorkerMessage::Hello { hello, link: Arc::new(IdleLink) };
        assert!(handle.worker_tells(LINK, vec![hello]).await);
        FilesServer { address, files, handle, serving, tokens }
    }

    /// Ends it, and returns once its store is closed.
    pub async fn stop(self) {
        let cache: Weak<CacheState> = Arc::downgrade(&self.files.state().cache);
        self.handle.close();
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap();
        self.handle.stop().await;
        drop((self.files, self.handle));
        until("the store is closed", async || cache.strong_count() == 0).await;
    }

    /// A request, and its status and its body.
    pub async fn http(&self, method: &str, path: &str, who: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        // Answers of HTTP/1.0 end with the connection.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            self.tokens[who],
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses it may close before all has come.
        _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        read.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), answer[end + 4..].to_vec())
    }

    pub async fn json(&self, method: &str, path: &str, who: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (status, answer) = self.http(method, path, who, &body).await;
        (status, serde_json::from_slice(&answer).unwrap_or_default())
    }

    pub async fn missing(&self, who: &str, digests: &[Digest]) -> Vec<String> {
        let blobs: Vec<String> = digests.iter().map(Digest::to_string).collect();
        let (status, answer) = self.json("POST", "/api/v1/files/missing", who, json!({"blobs": blobs})).await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_value(answer["missing"].clone()).unwrap()
    }

    /// Uploads blobs in one batch.
    pub async fn upload(&self, who: &str, blobs: &[&[u8]]) -> u16 {
        let mut body = Vec::new();
        for blob in blobs {
            body.extend(format!("{} {}\n", Digest::of(blob).hex(), blob.len()).into_bytes());
            body.extend(*blob);
        }
        self.http("POST", "/api/v1/files/blobs", who, &body).await.0
    }

    pub async fn upload_tree(&self, who: &str, tree: &EncodedTree, files: &[&[u8]]) {
        let messages = tree.messages.iter().map(|(_, message)| message.as_slice());
        let all: Vec<&[u8]> = messages.chain(files.iter().copied()).collect();
        assert_eq!(self.upload(who, &all).await, 204);
    }

    /// Submits a job of one step; returns its number.
    pub async fn submit(&self, who: &str, files: Value) -> u64 {
        let (status, answer) = self.try_submit(who, files, "").await;
        assert_eq!(status, 201, "{answer}");
        answer["job"].as_u64().unwrap()
    }

    pub async fn try_submit(&self, who: &str, files: Value, query: &str) -> (u16, Value) {
        let job = json!({"steps": [{"name": "main", "command": ["true"], "files": files}]});
        self.json("POST", &format!("/api/v1/jobs{query}"), who, job).await
    }

    /// The number and the epoch of a task's attempt, once it is booked.
    pub async fn booked(&self, job: u64, index: u32) -> (u32, u64) {
        let task = TaskId { job: JobId(job), index };
        let look = async || {
            let look = move |engine: &windlass_core::Engine| {
                engine.attempt(task).map(|attempt| (attempt.number, attempt.epoch.0))
            };
            self.handle.query(look).await.unwrap()
        };
        until("the task is booked", async || look().await.is_some()).await;
        look().await.unwrap()
    }

    pub async fn end(&self, job: u64, index: u32, code: i32) {
        let (attempt, epoch) = self.booked(job, index).await;
        let (task, epoch) = (TaskId { job: JobId(job), index }, Epoch(epoch));
        let at = self.handle.now();
        let result = TaskResult::bare(End::Exited(code));
        let said = vec![
            WorkerMessage::Started { task, attempt, epoch, at },
            WorkerMessage::Finished { task, attempt, epoch, result },
        ];
        assert!(self.handle.worker_tells(LINK, said).await);
    }

    pub async fn content(&self, who: &str, attempt: &str) -> ContentAddressableStorageClient<AsWorker> {
        ContentAddressableStorageClient::new(self.connect(who, attempt).await)
    }

    pub async fn workers(&self, who: &str) -> WorkersClient<AsWorker> {
        WorkersClient::new(self.connect(who, "").await)
    }

    async fn connect(&self, who: &str, attempt: &str) -> AsWorker {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        let shows = Shows {
            token: format!("Bearer {}", self.tokens[who]).parse().unwrap(),
            attempt: (!attempt.is_empty()).then(|| attempt.parse().unwrap()),
        };
        InterceptedService::new(endpoint.connect().await.unwrap(), shows)
    }

    pub async fn files_of(&self, who: &str, job: u64, index: u32) -> Result<TaskFiles, Status> {
        let (attempt, _) = self.booked(job, index).await;
        let answer = self.workers(who).await.files_of(Task { job, index, attempt }).await;
        answer.map(tonic::Response::into_inner)
    }

    /// Keeps these files as the outputs of a task, as its worker does.
    pub async fn keep(&self, job: u64, index: u32, files: &[(&str, &[u8])]) -> Result<(), Status> {
        let (attempt, epoch) = self.booked(job, index).await;
        let tree = tree(files);
        let mut content = self.content("worker", &format!("{job}.{index}.{attempt}")).await;
        let messages = tree.messages.iter().map(|(_, message)| message.as_slice());
        let blobs = messages.chain(files.iter().map(|(_, bytes)| *bytes));
        assert!(put(&mut content, &blobs.collect::<Vec<_>>()).await.iter().all(|code| *code == 0));
        let task = Some(Task { job, index, attempt });
        let root = Some(tree.root.to_string());
        let kept = KeptOutputs {
            task,
            epoch,
            root,
            skipped: vec!["x: a socket".to_owned()],
            ..KeptOutputs::default()
        };
        self.workers("worker").await.keep_outputs(kept).await.map(|_| ())
    }

    pub async fn listed(&self, who: &str, job: u64) -> JobFilesAnswer {
        let (status, answer) = self.json("GET", &format!("/api/v1/jobs/{job}/files"), who, Value::Null).await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_value(answer).unwrap()
    }

    pub fn figures(&self) -> windlass_cas::CasFigures {
        self.files.state().store.figures().unwrap_or_default()
    }
}

async fn tokens(auth: &Auth) -> BTreeMap<&'static str, String> {
    let rights = Rights::default();
    let root = Caller { user: "root".to_owned(), role: Role::Admin, worker: None, token: None, rights };
    let mut tokens = BTreeMap::new();
    for (who, role, user, worker) in [
        ("ann", Role::User, Some("ann"), None),
        ("ann's viewer", Role::Viewer, Some("ann"), None),
        ("bob", Role::User, Some("bob"), None),
        ("root", Role::Admin, None, None),
        ("worker", Role::Worker, None, Some("w")),
        ("other worker", Role::Worker, None, Some("v")),
    ] {
        let (user, worker) = (user.map(str::to_owned), worker.map(str::to_owned));
        let made = auth.create(CreateToken { user, worker, ..CreateToken::of(role) }, &root).await.unwrap();
        tokens.insert(who, made.bearer);
    }
    tokens
}

#[derive(Clone)]
pub(super) struct Shows {
    token: MetadataValue<Ascii>,
    attempt: Option<MetadataValue<Ascii>>,
}

pub(super) type AsWorker = InterceptedService<Channel, Shows>;

impl Interceptor for Shows {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.token.clone());
        if let Some(attempt) = &self.attempt {
            request.metadata_mut().insert(ATTEMPT_METADATA, attempt.clone());
        }
        Ok(request)
    }
}

pub(super) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("{what}"));
}

pub(super) fn message(digest: Digest) -> re::Digest {
    re::Digest { hash: digest.hex(), size_bytes: digest.size as i64 }
}

/// Uploads blobs of jobs; returns the codes.
pub(super) async fn put(
    content: &mut ContentAddressableStorageClient<AsWorker>,
    blobs: &[&[u8]],
) -> Vec<i32> {
    let one = |bytes: &&[u8]| BlobUpdate {
        digest: Some(message(Digest::of(bytes))),
        data: bytes.to_vec().into(),
        compressor: 0,
    };
    let requests = blobs.iter().map(one).collect();
    let instance_name = JOB_FILES_INSTANCE.to_owned();
    let asked = BatchUpdateBlobsRequest { instance_name, requests, ..Default::default() };
    let answer = content.batch_update_blobs(asked).await.unwrap().into_inner();
    answer.responses.into_iter().map(|one| one.status.unwrap().code).collect()
}

pub(super) async fn read(
    content: &mut ContentAddressableStorageClient<AsWorker>,
    instance: &str,
    digest: Digest,
) -> Result<Vec<u8>, Status> {
    let (instance_name, digests) = (instance.to_owned(), vec![message(digest)]);
    let asked = BatchReadBlobsRequest { instance_name, digests, ..Default::default() };
    let answer = content.batch_read_blobs(asked).await?.into_inner().responses.remove(0);
    let status = answer.status.unwrap();
    match status.code {
        0 => Ok(answer.data.to_vec()),
        code => Err(Status::new(Code::from(code), status.message)),
    }
}

pub(super) fn tree(files: &[(&str, &[u8])]) -> EncodedTree {
    let entry = |(path, bytes): &(&str, &[u8])| TreeEntry {
        path: (*path).to_owned(),
        kind: EntryKind::File { digest: Digest::of(bytes), is_executable: path.ends_with(".sh") },
    };
    encode(files.iter().map(entry).collect()).unwrap()
}

pub(super) fn some_bytes(seed: u8, count: usize) -> Vec<u8> {
    (0..count as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect()
}

/// Names, modes and contents of an archive.
pub(super) fn unpacked(archive: &[u8]) -> Vec<(String, u32, String)> {
    let mut archive = ::tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name, entry.header().mode().unwrap(), text)
    });
    entries.collect()
}

pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test)
}

/// A server in a directory of its own, with the usual settings.
pub(super) fn with_server(test: impl AsyncFn(&FilesServer)) {
    with_server_of(|_| {}, test);
}

pub(super) fn with_server_of(change: impl FnOnce(&mut CacheOptions), test: impl AsyncFn(&FilesServer)) {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let server = FilesServer::start(dir.path(), &Store::open("memory").unwrap(), change).await;
        test(&server).await;
        server.stop().await;
    });
}
