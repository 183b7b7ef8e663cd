//! The cache on a server that listens, asked over gRPC and over plain HTTP as its clients ask.

use super::places::{MESSAGE_BYTES_MAX, PART_BYTES};
use super::*;
use crate::auth::{Auth, Caller, Rights, Role};
use crate::config::Config;
use crate::connections::RoomLimits;
use crate::gateway::Gateways;
use crate::grpc::WorkerTerms;
use crate::handle::Handle;
use crate::http::{ServeOptions, serve};
use crate::listen::{Listener, Protection};
use crate::shell::{self, ShellOptions};
use base64::Engine as _;
use futures_util::StreamExt as _;
use prost::Message as _;
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use windlass_api::{CacheRight, CreateToken};
use windlass_cas::proto::bytestream::byte_stream_client::ByteStreamClient;
use windlass_cas::proto::bytestream::{QueryWriteStatusRequest, ReadRequest, WriteRequest};
use windlass_cas::proto::re::action_cache_client::ActionCacheClient;
use windlass_cas::proto::re::batch_update_blobs_request::Request as BlobUpdate;
use windlass_cas::proto::re::capabilities_client::CapabilitiesClient;
use windlass_cas::proto::re::content_addressable_storage_client::ContentAddressableStorageClient;
use windlass_cas::proto::re::{self, ActionResult, Directory, DirectoryNode, FileNode, OutputDirectory};
use windlass_cas::proto::re::{OutputFile, Tree};
use windlass_cas::{Digest, Space};
use windlass_store::Store;

/// Only a hung test waits for so long.
const PATIENCE: Duration = Duration::from_secs(60);

struct CacheServer {
    address: String,
    state: Arc<CacheState>,
    auth: Tokens,
    handle: Handle,
    serving: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

/// Tokens by what they are for.
struct Tokens {
    writer: String,
    user: String,
    reader: String,
    viewer: String,
}

impl CacheServer {
    async fn start(upload_bytes_per_day: u64) -> CacheServer {
        let (store, config) = (Store::open("memory").unwrap(), Config::default());
        let settings = ShellOptions { settings: config.engine_settings() };
        let handle = shell::start(store.clone(), settings).await.unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let tokens = Tokens {
            writer: token(&auth, Role::User, Some(CacheRight::Write)).await,
            user: token(&auth, Role::User, None).await,
            reader: token(&auth, Role::Viewer, Some(CacheRight::Read)).await,
            viewer: token(&auth, Role::Viewer, None).await,
        };
        let dir = tempfile::tempdir().unwrap();
        let cache = RemoteCache::new(CacheOptions {
            dir: dir.path().join("cas"),
            bytes_max: Some(256 << 20),
            upload_bytes_per_day,
            is_open: true,
            users_write: false,
            users_share: false,
        });
        let state = cache.0.clone();
        let options = ServeOptions {
            store: "memory".to_owned(),
            auth,
            audit: None,
            idle: None,
            terms: WorkerTerms { lease: None, report: Duration::from_secs(1) },
            gateways: Gateways::new(vec![Arc::new(cache)]),
            files: None,
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
        CacheServer { address, state, auth: tokens, handle, serving, _dir: dir }
    }

    async fn stop(self) {
        self.handle.close();
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap();
        self.handle.stop().await;
    }

    async fn content(&self, token: &str) -> ContentAddressableStorageClient<Shown> {
        ContentAddressableStorageClient::new(shown(&self.address, token).await)
    }

    async fn streams(&self, token: &str) -> ByteStreamClient<Shown> {
        ByteStreamClient::new(shown(&self.address, token).await)
    }

    async fn results(&self, token: &str) -> ActionCacheClient<Shown> {
        ActionCacheClient::new(shown(&self.address, token).await)
    }

    /// A request of HTTP/1.1, and its status, its head and its body.
    async fn http(&self, method: &str, path: &str, token: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("ann:{token}"));
        let head = format!("Authorization: Basic {basic}\r\nContent-Length: {}\r\n", body.len());
        self.raw(method, path, &head, body).await
    }

    async fn raw(&self, method: &str, path: &str, head: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let address = &self.address;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{head}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses it may close before all has come.
        _ = stream.write_all(body).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        read.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head, answer[end + 4..].to_vec())
    }
}

async fn token(auth: &Auth, role: Role, cache: Option<CacheRight>) -> String {
    let rights = Rights::default();
    let admin = Caller { user: "root".to_owned(), role: Role::Admin, worker: None, token: None, rights };
    let request = CreateToken { user: Some("ann".to_owned()), cache, ..CreateToken::of(role) };
    auth.create(request, &admin).await.unwrap().bearer
}

#[derive(Clone)]
struct ShowsToken(MetadataValue<Ascii>);

type Shown = InterceptedService<Channel, ShowsToken>;

impl Interceptor for ShowsToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// A connection on which each call shows a token.
async fn shown(address: &str, token: &str) -> Shown {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let token = ShowsToken(format!("Bearer {token}").parse().unwrap());
    InterceptedService::new(endpoint.connect().await.unwrap(), token)
}

/// Waits until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("{what}"));
}

fn message(digest: Digest) -> re::Digest {
    re::Digest { hash: digest.hex(), size_bytes: digest.size as i64 }
}

fn some_bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The messages of an upload, each with a part of the bytes.
fn upload(name: &str, bytes: &[u8], from: usize) -> Vec<WriteRequest> {
    let mut at = from;
    let mut messages = Vec::new();
    for part in bytes[from..].chunks(50_000) {
        messages.push(WriteRequest {
            resource_name: if at == from { name.to_owned() } else { String::new() },
            write_offset: at as i64,
            finish_write: at + part.len() == bytes.len(),
            data: part.to_vec().into(),
        });
        at += part.len();
    }
    messages
}

async fn written(client: &mut ByteStreamClient<Shown>, messages: Vec<WriteRequest>) -> Result<i64, Status> {
    let answer = client.write(futures_util::stream::iter(messages)).await?;
    Ok(answer.into_inner().committed_size)
}

async fn read(client: &mut ByteStreamClient<Shown>, asked: ReadRequest) -> Result<Vec<u8>, Status> {
    let mut answer = client.read(asked).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(part) = answer.message().await? {
        bytes.extend_from_slice(&part.data);
    }
    Ok(bytes)
}

async fn missing(client: &mut ContentAddressableStorageClient<Shown>, digests: &[Digest]) -> Vec<re::Digest> {
    let blob_digests = digests.iter().copied().map(message).collect();
    let asked = re::FindMissingBlobsRequest { blob_digests, ..Default::default() };
    client.find_missing_blobs(asked).await.unwrap().into_inner().missing_blob_digests
}

/// Uploads small blobs; returns the codes.
async fn put(client: &mut ContentAddressableStorageClient<Shown>, blobs: &[(Digest, &[u8])]) -> Vec<i32> {
    let one = |(digest, bytes): &(Digest, &[u8])| BlobUpdate {
        digest: Some(message(*digest)),
        data: bytes.to_vec().into(),
        compressor: 0,
    };
    let requests = blobs.iter().map(one).collect();
    let asked = re::BatchUpdateBlobsRequest { requests, ..Default::default() };
    let answer = client.batch_update_blobs(asked).await.unwrap().into_inner();
    answer.responses.into_iter().map(|one| one.status.unwrap().code).collect()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test)
}

#[test]
fn blobs_are_written_and_read_over_grpc() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let mut content = server.content(&server.auth.user).await;
        let mut streams = server.streams(&server.auth.user).await;
        let (small, large) = (b"hello".to_vec(), some_bytes(1_000_003));
        let (of_small, of_large) = (Digest::of(&small), Digest::of(&large));
        let all = [of_small, Digest::EMPTY, of_large];
        assert_eq!(missing(&mut content, &all).await, [message(of_small), message(of_large)]);
        assert_eq!(put(&mut content, &[(of_small, &small)]).await, [0]);
        let name = format!("main/uploads/u1/blobs/{of_large}");
        assert_eq!(written(&mut streams, upload(&name, &large, 0)).await.unwrap(), large.len() as i64);
        assert!(missing(&mut content, &all).await.is_empty());
        // The whole, a part, and what another upload of the same is told.
        let resource_name = format!("blobs/{of_large}");
        let whole = ReadRequest { resource_name: resource_name.clone(), ..Default::default() };
        assert_eq!(read(&mut streams, whole).await.unwrap(), large);
        let part = ReadRequest { resource_name, read_offset: 7, read_limit: 200_000 };
        assert_eq!(read(&mut streams, part).await.unwrap(), large[7..200_007]);
        let again = written(&mut streams, upload(&name, &large, 0)).await.unwrap();
        assert_eq!(again, large.len() as i64);
        let asked = re::BatchReadBlobsRequest {
            digests: vec![message(of_small), message(Digest::of(b"none")), message(of_large)],
            acceptable_compressors: vec![1],
            ..Default::default()
        };
        let answers = content.batch_read_blobs(asked).await.unwrap().into_inner().responses;
        let codes: Vec<i32> = answers.iter().map(|one| one.status.as_ref().unwrap().code).collect();
        assert_eq!(codes, [Code::Ok, Code::NotFound, Code::Ok].map(|code| code as i32));
        assert_eq!((&answers[0].data[..], answers[0].compressor), (&small[..], 0));
        server.stop().await;
    });
}

#[test]
fn compressed_blobs_are_the_same_blobs() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let mut streams = server.streams(&server.auth.user).await;
        let bytes: Vec<u8> = (0..400_000_u32).flat_map(|n| (n / 9).to_le_bytes()).collect();
        let (digest, packed) = (Digest::of(&bytes), packing::pack(&bytes).unwrap());
        let name = format!("uploads/u1/compressed-blobs/zstd/{digest}");
        let committed = written(&mut streams, upload(&name, &packed, 0)).await.unwrap();
        assert_eq!(committed, packed.len() as i64);
        assert_eq!(written(&mut streams, upload(&name, &packed, 0)).await.unwrap(), -1, "it is there");
        let plain = ReadRequest { resource_name: format!("blobs/{digest}"), ..Default::default() };
        assert_eq!(read(&mut streams, plain).await.unwrap(), bytes);
        let resource_name = format!("compressed-blobs/zstd/{digest}");
        let asked = ReadRequest { resource_name: resource_name.clone(), read_offset: 5, read_limit: 0 };
        let sent = read(&mut streams, asked).await.unwrap();
        assert!(sent.len() < bytes.len() / 2);
        assert_eq!(packing::unpack(&sent, digest.size).unwrap(), bytes[5..]);
        let asked = ReadRequest { resource_name, read_offset: 0, read_limit: 5 };
        assert_eq!(read(&mut streams, asked).await.unwrap_err().code(), Code::InvalidArgument);
        // What comes out is not what the digest says.
        let other = Digest { size: digest.size - 1, ..digest };
        let name = format!("uploads/u2/compressed-blobs/zstd/{other}");
        let refused = written(&mut streams, upload(&name, &packed, 0)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        server.stop().await;
    });
}

#[test]
fn a_result_is_given_while_all_that_it_names_is_there() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let mut content = server.content(&server.auth.writer).await;
        let mut results = server.results(&server.auth.writer).await;
        let file =
            |digest| FileNode { name: "f".to_owned(), digest: Some(message(digest)), ..Default::default() };
        let (output, inside) = (Digest::of(b"output"), Digest::of(b"inside"));
        let below = Directory { files: vec![file(inside)], ..Default::default() };
        let of_below = Digest::of(&below.encode_to_vec());
        let node = DirectoryNode { name: "d".to_owned(), digest: Some(message(of_below)) };
        let root = Directory { directories: vec![node], ..Default::default() };
        let tree = Tree { root: Some(root.clone()), children: vec![below.clone()] }.encode_to_vec();
        let of_root = Digest::of(&root.encode_to_vec());
        let directory = OutputDirectory {
            tree_digest: Some(message(Digest::of(&tree))),
            root_directory_digest: Some(message(of_root)),
            ..Default::default()
        };
        let output_file = OutputFile { digest: Some(message(output)), ..Default::default() };
        let result = ActionResult {
            output_files: vec![output_file],
            output_directories: vec![directory],
            exit_code: 7,
            ..Default::default()
        };
        let action = Some(message(Digest::of(b"action")));
        let update = re::UpdateActionResultRequest {
            action_digest: action.clone(),
            action_result: Some(result.clone()),
            ..Default::default()
        };
        results.update_action_result(update).await.unwrap();
        let asked = || re::GetActionResultRequest { action_digest: action.clone(), ..Default::default() };
        let (root_bytes, below_bytes) = (root.encode_to_vec(), below.encode_to_vec());
        let blobs: [(Digest, &[u8]); 5] = [
            (Digest::of(&tree), &tree),
            (of_root, &root_bytes),
            (of_below, &below_bytes),
            (output, b"output"),
            (inside, b"inside"),
        ];
        for blob in blobs {
            let refused = results.get_action_result(asked()).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound, "{} is missing", blob.0);
            assert_eq!(put(&mut content, &[blob]).await, [0]);
        }
        assert_eq!(results.get_action_result(asked()).await.unwrap().into_inner(), result);
        // Another instance has results of its own, and the same blobs.
        let elsewhere = re::GetActionResultRequest { instance_name: "other".to_owned(), ..asked() };
        assert_eq!(results.get_action_result(elsewhere).await.unwrap_err().code(), Code::NotFound);
        let asked =
            re::GetTreeRequest { root_digest: Some(message(of_root)), page_size: 1, ..Default::default() };
        let mut pages = content.get_tree(asked).await.unwrap().into_inner();
        let first = pages.message().await.unwrap().unwrap();
        assert_eq!((first.directories, first.next_page_token.as_str()), (vec![root], "1"));
        let second = pages.message().await.unwrap().unwrap();
        assert_eq!((second.directories, second.next_page_token.as_str()), (vec![below.clone()], ""));
        assert!(pages.message().await.unwrap().is_none());
        let asked = re::GetTreeRequest {
            root_digest: Some(message(of_root)),
            page_token: "1".to_owned(),
            ..Default::default()
        };
        let rest = content.get_tree(asked).await.unwrap().into_inner().message().await.unwrap().unwrap();
        assert_eq!(rest.directories, [below]);
        server.stop().await;
    });
}

#[test]
fn plain_http_has_the_same_blobs_and_results() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let (writer, reader) = (&server.auth.writer, &server.auth.reader);
        let bytes = some_bytes(3 * PART_BYTES + 1);
        let digest = Digest::of(&bytes);
        let blob = format!("/cache/main/cas/{}", digest.hex());
        assert_eq!(server.http("GET", &blob, reader, b"").await.0, 404);
        assert_eq!(server.http("PUT", &blob, writer, &bytes).await.0, 200);
        assert_eq!(server.http("PUT", &blob, writer, &bytes).await.0, 200, "again");
        let (status, head, body) = server.http("GET", &blob, reader, b"").await;
        assert!(status == 200 && body == bytes, "{head}");
        assert!(head.contains("application/octet-stream"), "{head}");
        let (status, head, body) = server.http("HEAD", &blob, reader, b"").await;
        assert!(status == 200 && body.is_empty() && head.contains(&bytes.len().to_string()), "{head}");
        let mut streams = server.streams(reader).await;
        let asked = ReadRequest { resource_name: format!("blobs/{digest}"), ..Default::default() };
        assert_eq!(read(&mut streams, asked).await.unwrap(), bytes);
        assert_eq!(
            server.http("PUT", &blob, writer, b"others").await.0,
            400,
            "it is there, but not so short"
        );
        let other = format!("/cache/cas/{}", Digest::of(b"expected").hex());
        let (status, _, body) = server.http("PUT", &other, writer, b"found").await;
        assert!(status == 400 && String::from_utf8_lossy(&body).contains("SHA-256 differs"), "{status}");
        let result = ActionResult { exit_code: 3, ..Default::default() }.encode_to_vec();
        let action = format!("/cache/ac/{}", Digest::of(b"action").hex());
        assert_eq!(server.http("PUT", &action, writer, &result).await.0, 200);
        assert_eq!(server.http("GET", &action, reader, b"").await.2, result);
        let (status, _, body) = server.http("PUT", &action, writer, b"\xff\xff").await;
        assert!(status == 400 && String::from_utf8_lossy(&body).contains("/kv/KEY"), "{status}");
        for (method, path) in [("GET", "/cache/x"), ("GET", "/cache/kv/a%20b"), ("PUT", "/cache/cas/12")] {
            assert_eq!(server.http(method, path, writer, b"").await.0, 400, "{method} {path}");
        }
        assert_eq!(server.http("DELETE", &blob, writer, b"").await.0, 405);
        let no_length = format!("Authorization: Bearer {writer}\r\n");
        assert_eq!(server.raw("PUT", &blob, &no_length, b"").await.0, 400);
        server.stop().await;
    });
}

/// The requests that sccache makes over WebDAV, and ccache over HTTP, in their order.
#[test]
fn ccache_and_sccache_find_what_they_have_put() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let writer = &server.auth.writer;
        let head = format!("Authorization: Bearer {writer}\r\nDepth: 0\r\n");
        let key = "/cache/kv/sccache/0/1/2/0123";
        assert_eq!(server.raw("GET", key, &head, b"").await.0, 404);
        let (status, _, body) = server.raw("PROPFIND", "/cache/kv/sccache/0/1/2/", &head, b"").await;
        assert!(status == 207 && String::from_utf8_lossy(&body).contains("collection"), "{status}");
        assert_eq!(server.raw("MKCOL", "/cache/kv/sccache/0/", &head, b"").await.0, 201);
        let large = some_bytes(2 * PART_BYTES + 5);
        for value in [&b"Hello, World!"[..], &large[..], &b""[..]] {
            assert_eq!(server.http("PUT", key, writer, value).await.0, 200);
            let (status, _, body) = server.http("GET", key, &server.auth.reader, b"").await;
            assert!(status == 200 && body == value, "{status}");
        }
        // A key of another instance is another key.
        assert_eq!(server.http("GET", "/cache/b/kv/sccache/0/1/2/0123", writer, b"").await.0, 404);
        let entry = "/cache/kv/ccache/ab/cdef0123";
        assert_eq!(server.http("HEAD", entry, writer, b"").await.0, 404);
        assert_eq!(server.http("PUT", entry, writer, b"cCrS").await.0, 200);
        assert_eq!(server.http("HEAD", entry, writer, b"").await.0, 200);
        assert_eq!(server.http("DELETE", entry, writer, b"").await.0, 204);
        assert_eq!(server.http("GET", entry, writer, b"").await.0, 404);
        server.stop().await;
    });
}

#[test]
fn each_right_opens_its_part_and_no_more() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let Tokens { writer, user, reader, viewer } = &server.auth;
        let blob = format!("/cache/cas/{}", Digest::of(b"hello").hex());
        let result = ActionResult { exit_code: 3, ..Default::default() }.encode_to_vec();
        let action = format!("/cache/ac/{}", Digest::of(b"action").hex());
        for (token, may) in
            [(writer, [200, 200, 200, 200]), (user, [200, 200, 403, 403]), (reader, [200, 403, 403, 403])]
        {
            let put = server.http("PUT", &blob, token, b"hello").await.0;
            let looked = server.http("GET", &blob, token, b"").await.0;
            let update = server.http("PUT", &action, token, &result).await.0;
            let value = server.http("PUT", "/cache/kv/x", token, b"1").await.0;
            assert_eq!([looked, put, update, value], may);
        }
        assert_eq!(server.http("GET", &blob, viewer, b"").await.0, 403);
        assert_eq!(
            server.http("GET", "/cache/nothing", viewer, b"").await.0,
            403,
            "before the path is judged"
        );
        let code = async |token: &str| {
            let update = re::UpdateActionResultRequest {
                action_digest: Some(message(Digest::of(b"a"))),
                action_result: Some(ActionResult::default()),
                ..Default::default()
            };
            let answer = server.results(token).await.update_action_result(update).await;
            answer.err().map_or(Code::Ok, |status| status.code())
        };
        let codes = [code(writer).await, code(user).await, code(reader).await, code(viewer).await];
        let denied = Code::PermissionDenied;
        assert_eq!(codes, [Code::Ok, denied, denied, denied]);
        let may_write = async |token: &str| {
            let mut client = CapabilitiesClient::new(shown(&server.address, token).await);
            let answer = client.get_capabilities(re::GetCapabilitiesRequest::default()).await.unwrap();
            let cache = answer.into_inner().cache_capabilities.unwrap();
            cache.action_cache_update_capabilities.unwrap().update_enabled
        };
        assert!(may_write(writer).await && !may_write(user).await && !may_write(reader).await);
        assert_eq!(code("wl_000000000000_no").await, Code::Unauthenticated);
        // A stranger is answered before the body comes: of this one nothing ever does.
        let head = "Content-Length: 1000000000\r\nExpect: 100-continue\r\n";
        let (status, head, _) = server.raw("PUT", &blob, head, b"").await;
        assert!(status == 401 && !head.contains("100 Continue"), "{head}");
        server.stop().await;
    });
}

#[test]
fn an_upload_that_broke_off_goes_on() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let mut streams = server.streams(&server.auth.user).await;
        let bytes = some_bytes(400_000);
        let digest = Digest::of(&bytes);
        let name = format!("uploads/u1/blobs/{digest}");
        let mut first = upload(&name, &bytes, 0);
        first.truncate(5);
        assert_eq!(written(&mut streams, first).await.unwrap(), 250_000, "the client ends it early");
        let mut status = async |name: &str| {
            let asked = QueryWriteStatusRequest { resource_name: name.to_owned() };
            let answer = streams.query_write_status(asked).await.unwrap().into_inner();
            (answer.committed_size, answer.complete)
        };
        assert_eq!(status(&name).await, (250_000, false));
        assert_eq!(status(&format!("uploads/u2/blobs/{digest}")).await, (0, false));
        let mut streams = server.streams(&server.auth.user).await;
        let wrong = written(&mut streams, upload(&name, &bytes, 200_000)).await.unwrap_err();
        assert!(wrong.message().contains("goes on at offset 250000"), "{wrong}");
        assert_eq!(written(&mut streams, upload(&name, &bytes, 250_000)).await.unwrap(), 400_000);
        let asked = ReadRequest { resource_name: format!("blobs/{digest}"), ..Default::default() };
        assert_eq!(read(&mut streams, asked).await.unwrap(), bytes);
        server.stop().await;
    });
}

#[test]
fn an_upload_whose_client_vanishes_goes_on() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let bytes = some_bytes(400_000);
        let digest = Digest::of(&bytes);
        let name = format!("uploads/u1/blobs/{digest}");
        let mut first = upload(&name, &bytes, 0);
        first.truncate(3);
        // It says no more, and its process ends once the server has begun to write.
        let client =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (address, token) = (server.address.clone(), server.auth.user.clone());
        client.spawn(async move {
            let mut streams = ByteStreamClient::new(shown(&address, &token).await);
            let silent = futures_util::stream::iter(first).chain(futures_util::stream::pending());
            _ = streams.write(silent).await;
        });
        let reserved = || server.state.store.figures().is_some_and(|figures| figures.reserved_bytes > 0);
        until("the upload begins", reserved).await;
        client.shutdown_background();
        until("what came is kept", || server.state.partials.count() == 1).await;
        let mut streams = server.streams(&server.auth.user).await;
        let asked = QueryWriteStatusRequest { resource_name: name.clone() };
        let kept = streams.query_write_status(asked).await.unwrap().into_inner().committed_size as usize;
        assert!((50_000..=150_000).contains(&kept), "{kept}");
        assert_eq!(written(&mut streams, upload(&name, &bytes, kept)).await.unwrap(), 400_000);
        let asked = ReadRequest { resource_name: format!("blobs/{digest}"), ..Default::default() };
        assert_eq!(read(&mut streams, asked).await.unwrap(), bytes);
        server.stop().await;
    });
}

#[test]
fn what_is_wrong_is_refused_with_the_reason() {
    run(async {
        let server = CacheServer::start(1 << 20).await;
        let mut content = server.content(&server.auth.user).await;
        let mut streams = server.streams(&server.auth.user).await;
        let invalid = Code::InvalidArgument as i32;
        let named = Digest::of(b"expected");
        assert_eq!(put(&mut content, &[(named, b"found"), (Digest::of(b"a"), b"a")]).await, [invalid, 0]);
        let mut refused = async |name: String, bytes: &[u8], change: fn(&mut WriteRequest)| {
            let mut messages = upload(&name, bytes, 0);
            messages.iter_mut().for_each(change);
            written(&mut streams, messages).await.unwrap_err()
        };
        let of = |digest: Digest| format!("uploads/u/blobs/{digest}");
        let same = |_: &mut WriteRequest| {};
        let said = refused(of(named), b"unlooked", same).await;
        assert!(said.code() == Code::InvalidArgument && said.message().contains("differs"), "{said}");
        let said = refused(of(named), b"more than was expected", same).await;
        assert!(said.message().contains("more bytes came"), "{said}");
        let said = refused("blobs/x/1".to_owned(), b"a", same).await;
        assert!(said.message().contains("is not the name of an upload"), "{said}");
        let said = refused(of(named), b"expected", |message| message.write_offset = 9).await;
        assert!(said.message().contains("offset 0"), "{said}");
        let many = some_bytes(120_000);
        let said = refused(of(Digest::of(&many)), &many, |message| {
            message.write_offset += i64::from(message.resource_name.is_empty());
        });
        let said = said.await;
        assert!(said.message().contains("is next"), "{said}");
        let of_other_function = re::FindMissingBlobsRequest { digest_function: 9, ..Default::default() };
        let said = content.find_missing_blobs(of_other_function).await.unwrap_err();
        assert!(said.message().contains("SHA-256"), "{said}");
        let negative = re::Digest { size_bytes: -1, ..message(named) };
        let asked = re::FindMissingBlobsRequest { blob_digests: vec![negative], ..Default::default() };
        assert_eq!(content.find_missing_blobs(asked).await.unwrap_err().code(), Code::InvalidArgument);
        let too_large = re::BatchReadBlobsRequest {
            digests: vec![message(Digest { size: 5 << 20, ..named })],
            ..Default::default()
        };
        assert_eq!(content.batch_read_blobs(too_large).await.unwrap_err().code(), Code::InvalidArgument);
        let blob_digests = vec![message(named); MESSAGE_BYTES_MAX / 60];
        let too_large = re::FindMissingBlobsRequest { blob_digests, ..Default::default() };
        assert_eq!(content.find_missing_blobs(too_large).await.unwrap_err().code(), Code::InvalidArgument);
        // The day's bytes are used up.
        let bytes = some_bytes((1 << 20) + 1);
        let said = refused(of(Digest::of(&bytes)), &bytes, same).await;
        assert!(said.code() == Code::ResourceExhausted && said.message().contains("today"), "{said}");
        server.stop().await;
    });
}

/// Who knows the digest of a job's file does not read it here, and is not told that it is there.
#[test]
fn blobs_of_jobs_are_not_seen_through_the_cache() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let (mut content, mut streams) =
            (server.content(&server.auth.writer).await, server.streams(&server.auth.writer).await);
        let canary = Directory { files: vec![FileNode::default()], ..Default::default() }.encode_to_vec();
        let digest = Digest::of(&canary);
        assert_eq!(missing(&mut content, &[digest]).await.len(), 1);
        let cas = server.state.store.opened().unwrap();
        cas.put(Space::Jobs, digest, &canary, 1).unwrap();
        assert_eq!(missing(&mut content, &[digest]).await.len(), 1);
        let asked = re::BatchReadBlobsRequest { digests: vec![message(digest)], ..Default::default() };
        let answer = content.batch_read_blobs(asked).await.unwrap().into_inner();
        assert_eq!(answer.responses[0].status.as_ref().unwrap().code, Code::NotFound as i32);
        let asked = re::GetTreeRequest { root_digest: Some(message(digest)), ..Default::default() };
        let mut pages = content.get_tree(asked).await.unwrap().into_inner();
        assert_eq!(pages.message().await.unwrap_err().code(), Code::NotFound);
        let asked = ReadRequest { resource_name: format!("blobs/{digest}"), ..Default::default() };
        assert_eq!(read(&mut streams, asked).await.unwrap_err().code(), Code::NotFound);
        let path = format!("/cache/cas/{}", digest.hex());
        for method in ["GET", "HEAD"] {
            assert_eq!(server.http(method, &path, &server.auth.writer, b"").await.0, 404, "{method}");
        }
        // An upload of it is taken like any other.
        assert_eq!(put(&mut content, &[(digest, &canary)]).await, [0]);
        assert_eq!(server.http("GET", &path, &server.auth.writer, b"").await.2, canary);
        server.stop().await;
    });
}

/// Bodies that no client sends, to every door. The server goes on.
#[test]
fn random_bodies_harm_nothing() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let hash = Digest::of(b"x").hex();
        let calls = [
            "build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs",
            "build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs",
            "build.bazel.remote.execution.v2.ContentAddressableStorage/GetTree",
            "build.bazel.remote.execution.v2.ActionCache/UpdateActionResult",
            "google.bytestream.ByteStream/Write",
        ];
        let mut seed = 7_u64;
        for round in 0..100 {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) as usize
            };
            let length = next() % 300;
            let noise: Vec<u8> = (0..length).map(|_| next() as u8).collect();
            let path = format!("/cache/ac/{hash}");
            let (status, ..) = server.http("PUT", &path, &server.auth.writer, &noise).await;
            assert!([200, 400].contains(&status), "{status}");
            // A message of gRPC has its length before it, which may be wrong, too.
            let declared = if round % 3 == 0 { next() as u32 % 400 } else { length as u32 };
            let mut framed = vec![0];
            framed.extend(declared.to_be_bytes());
            framed.extend(&noise);
            let call = calls[next() % calls.len()];
            let head = format!(
                "Authorization: Bearer {}\r\nContent-Type: application/grpc\r\nTE: trailers\r\nContent-Length: {}\r\n",
                server.auth.writer,
                framed.len()
            );
            let (status, ..) = server.raw("POST", &format!("/{call}"), &head, &framed).await;
            assert_eq!(status, 200, "errors of gRPC are in its own headers");
        }
        let (status, ..) = server.http("PUT", "/cache/kv/x", &server.auth.writer, b"1").await;
        assert_eq!(status, 200);
        server.stop().await;
    });
}

#[test]
fn the_metrics_tell_what_was_asked() {
    run(async {
        let server = CacheServer::start(1 << 40).await;
        let writer = &server.auth.writer;
        let metrics = async || String::from_utf8(server.http_bearer("/metrics").await).unwrap();
        assert!(!metrics().await.contains("windlass_cas_bytes "), "a store that was never used has no size");
        server.http("GET", "/cache/kv/x", writer, b"").await;
        server.http("PUT", "/cache/kv/x", writer, b"hello").await;
        server.http("GET", "/cache/kv/x", writer, b"").await;
        let text = metrics().await;
        for line in [
            "windlass_cas_bytes 5",
            "windlass_cas_results_total{answer=\"hit\"} 1",
            "windlass_cas_results_total{answer=\"miss\"} 1",
            "windlass_cas_requests_total{call=\"PUT\"} 1",
            "windlass_cas_upload_bytes_total 5",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        server.stop().await;
    });
}

impl CacheServer {
    async fn http_bearer(&self, path: &str) -> Vec<u8> {
        self.raw("GET", path, &format!("Authorization: Bearer {}\r\n", self.auth.viewer), b"").await.2
    }
}
