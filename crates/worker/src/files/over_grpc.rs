//! Files from and to a server elsewhere, by the Remote Execution API and two calls of the worker protocol.
//!
//! The connection is another one than that of the worker's stream, with a runtime of its own: however large files are,
//! they hold up no beat. It goes to the server of the current stream. While there is none, calls wait.

use super::server::{
    BATCH_BYTES_MAX, BlobReader, FileCall, FileServer, TakeBlob, TakePart, UploadBytes, batches, patiently,
};
use super::trouble::FileTrouble;
use crate::call_error::{chain, is_said};
use crate::random::fresh_number;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::{self, Read as _, SeekFrom};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use windlass_api::wire::workers_client::WorkersClient;
use windlass_api::wire::{KeptOutputs, Task, TaskFiles};
use windlass_api::{ATTEMPT_METADATA, JOB_FILES_INSTANCE};
use windlass_cas::Digest;
use windlass_cas::proto::bytestream::byte_stream_client::ByteStreamClient;
use windlass_cas::proto::bytestream::{
    QueryWriteStatusRequest, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use windlass_cas::proto::re::content_addressable_storage_client::ContentAddressableStorageClient;
use windlass_cas::proto::re::{
    self, BatchReadBlobsRequest, BatchReadBlobsResponse, BatchUpdateBlobsRequest, FindMissingBlobsRequest,
    batch_update_blobs_request,
};

/// How long a call, or a part of a long one, may take.
const CALL_PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of one message of the server, which is a batch with what is around it.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// Bytes of one message of an upload, and messages that wait for the connection.
const PART_BYTES: usize = 256 << 10;
const PARTS_WAITING_MAX: usize = 4;

/// The server of the current stream, as the place of files.
pub struct RemoteFiles {
    /// `None` only while this is dropped.
    runtime: Option<Runtime>,
    session: Mutex<Option<FileSession>>,
}

struct FileSession {
    endpoint: Endpoint,
    token: Option<MetadataValue<Ascii>>,
    /// Made at the first call.
    channel: Option<Channel>,
}

/// The calls of an attempt over the current connection.
struct FileCalls {
    content: ContentAddressableStorageClient<Channel>,
    bytes: ByteStreamClient<Channel>,
    workers: WorkersClient<Channel>,
    token: Option<MetadataValue<Ascii>>,
    attempt: MetadataValue<Ascii>,
}

impl RemoteFiles {
    /// The files of a server that is not known yet.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new() -> io::Result<RemoteFiles> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("files-net").enable_all().build()?;
        Ok(RemoteFiles { runtime: Some(runtime), session: Mutex::default() })
    }

    /// A stream to this server began. Nothing is connected before the first call.
    pub fn begin(&self, endpoint: Endpoint, token: Option<MetadataValue<Ascii>>) {
        *self.session.lock() = Some(FileSession { endpoint, token, channel: None });
    }

    /// Takes note that the stream to the server has ended.
    pub fn end(&self) {
        *self.session.lock() = None;
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is taken by the drop alone")
    }

    fn calls(&self, call: &FileCall) -> Result<FileCalls, FileTrouble> {
        let mut session = self.session.lock();
        let none = || FileTrouble::Passing("there is no connection to the server".to_owned());
        let FileSession { endpoint, token, channel } = session.as_mut().ok_or_else(none)?;
        let channel = channel.get_or_insert_with(|| {
            // Its tasks run there.
            let _inside = self.runtime().enter();
            endpoint.connect_lazy()
        });
        let task = call.task;
        let attempt = format!("{}.{}.{}", task.job, task.index, task.attempt);
        let content = ContentAddressableStorageClient::new(channel.clone());
        Ok(FileCalls {
            content: content.max_decoding_message_size(MESSAGE_BYTES_MAX),
            bytes: ByteStreamClient::new(channel.clone()),
            workers: WorkersClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            token: token.clone(),
            attempt: MetadataValue::try_from(attempt).expect("numbers and dots are ASCII"),
        })
    }
}

impl Drop for RemoteFiles {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last owner may be a task of another runtime, which must not wait.
            runtime.shutdown_background();
        }
    }
}

impl FileCalls {
    fn ask<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request.metadata_mut().insert(ATTEMPT_METADATA, self.attempt.clone());
        request
    }

    async fn read_batch(
        &mut self,
        digests: &BTreeSet<Digest>,
    ) -> Result<BatchReadBlobsResponse, FileTrouble> {
        let digests = digests.iter().copied().map(to_message).collect();
        let request = self.ask(BatchReadBlobsRequest {
            instance_name: JOB_FILES_INSTANCE.to_owned(),
            digests,
            ..BatchReadBlobsRequest::default()
        });
        within(self.content.batch_read_blobs(request)).await
    }

    /// Begins to read a blob from an offset on.
    async fn read(&mut self, digest: Digest, offset: u64) -> Result<Streaming<ReadResponse>, FileTrouble> {
        let resource_name = format!("{JOB_FILES_INSTANCE}/blobs/{digest}");
        let read = ReadRequest { resource_name, read_offset: offset as i64, read_limit: 0 };
        let request = self.ask(read);
        within(self.bytes.read(request)).await
    }

    /// How much of an upload the server has.
    async fn written(&mut self, name: &str) -> Result<(u64, bool), FileTrouble> {
        let request = self.ask(QueryWriteStatusRequest { resource_name: name.to_owned() });
        let answer = within(self.bytes.query_write_status(request)).await?;
        Ok((u64::try_from(answer.committed_size).unwrap_or(0), answer.complete))
    }

    /// Writes a blob from an offset on.
    async fn write(
        &mut self,
        digest: Digest,
        name: &str,
        offset: u64,
        from: &mut dyn UploadBytes,
    ) -> Result<(), FileTrouble> {
        let (parts, sent) = mpsc::channel(PARTS_WAITING_MAX);
        let request = self.ask(ReceiverStream::new(sent));
        let write = self.bytes.write(request);
        tokio::pin!(write);
        let fed = tokio::select! {
            // The server may answer early, because another upload brought the blob.
            answer = &mut write => return taken(digest, answer),
            fed = feed(digest, name, offset, from, parts) => fed,
        };
        fed?;
        let answer = timeout(CALL_PATIENCE, write).await.map_err(|_| no_answer())?;
        taken(digest, answer)
    }
}

/// Sends the bytes of an upload, as fast as the connection takes them.
async fn feed(
    digest: Digest,
    name: &str,
    mut offset: u64,
    from: &mut dyn UploadBytes,
    parts: mpsc::Sender<WriteRequest>,
) -> Result<(), FileTrouble> {
    let unreadable = |error: io::Error| FileTrouble::Job(format!("an output cannot be read: {error}"));
    from.seek(SeekFrom::Start(offset)).map_err(unreadable)?;
    let mut resource_name = name.to_owned();
    loop {
        let mut data = Vec::with_capacity(PART_BYTES);
        (&mut *from).take(PART_BYTES as u64).read_to_end(&mut data).map_err(unreadable)?;
        let end = offset + data.len() as u64;
        if end > digest.size || (data.is_empty() && end < digest.size) {
            return Err(FileTrouble::Job("an output changed while it was uploaded".to_owned()));
        }
        let finish_write = end == digest.size;
        let part = WriteRequest {
            resource_name: std::mem::take(&mut resource_name),
            write_offset: offset as i64,
            finish_write,
            data: data.into(),
        };
        match timeout(CALL_PATIENCE, parts.send(part)).await {
            Err(_) => return Err(no_answer()),
            // The call ended, and says why.
            Ok(Err(_)) => return Ok(()),
            Ok(Ok(())) if finish_write => return Ok(()),
            Ok(Ok(())) => offset = end,
        }
    }
}

/// The next part of a blob; `None` at its end.
async fn next_part(stream: &mut Streaming<ReadResponse>) -> Result<Option<ReadResponse>, FileTrouble> {
    let next = timeout(CALL_PATIENCE, stream.message()).await.map_err(|_| no_answer())?;
    next.map_err(|status| trouble_of(&status))
}

/// Passes on what came of a batch, and takes it out of `left`.
fn take_batch(
    answer: BatchReadBlobsResponse,
    left: &mut BTreeSet<Digest>,
    take: TakeBlob<'_>,
) -> Result<(), FileTrouble> {
    for response in answer.responses {
        let digest = from_message(response.digest.as_ref())?;
        if left.contains(&digest) {
            checked(response.status.as_ref())?;
            take(digest, &response.data)?;
            left.remove(&digest);
        }
    }
    match left.first() {
        Some(digest) => Err(FileTrouble::Server(format!("it did not answer for {digest}"))),
        None => Ok(()),
    }
}

impl FileServer for RemoteFiles {
    fn files_of(&self, call: &FileCall) -> Result<TaskFiles, FileTrouble> {
        patiently(call, |_| {
            let mut calls = self.calls(call)?;
            let request = calls.ask(Task::from(call.task));
            self.runtime().block_on(within(calls.workers.files_of(request)))
        })
    }

    fn missing(&self, call: &FileCall, digests: &[Digest]) -> Result<Vec<Digest>, FileTrouble> {
        patiently(call, |_| {
            let mut calls = self.calls(call)?;
            let blob_digests = digests.iter().copied().map(to_message).collect();
            let instance_name = JOB_FILES_INSTANCE.to_owned();
            let request = calls.ask(FindMissingBlobsRequest {
                instance_name,
                blob_digests,
                ..FindMissingBlobsRequest::default()
            });
            let answer = self.runtime().block_on(within(calls.content.find_missing_blobs(request)))?;
            answer.missing_blob_digests.iter().map(|digest| from_message(Some(digest))).collect()
        })
    }

    fn upload_many(&self, call: &FileCall, blobs: &[(Digest, Vec<u8>)]) -> Result<(), FileTrouble> {
        debug_assert!(blobs.iter().map(|(_, blob)| blob.len() as u64).sum::<u64>() <= BATCH_BYTES_MAX);
        patiently(call, |_| {
            let mut calls = self.calls(call)?;
            let requests = blobs.iter().map(|(digest, blob)| batch_update_blobs_request::Request {
                digest: Some(to_message(*digest)),
                data: blob.clone().into(),
                ..batch_update_blobs_request::Request::default()
            });
            let request = calls.ask(BatchUpdateBlobsRequest {
                instance_name: JOB_FILES_INSTANCE.to_owned(),
                requests: requests.collect(),
                ..BatchUpdateBlobsRequest::default()
            });
            let answer = self.runtime().block_on(within(calls.content.batch_update_blobs(request)))?;
            if answer.responses.len() != blobs.len() {
                return Err(FileTrouble::Server("it did not answer for all blobs of a batch".to_owned()));
            }
            answer.responses.iter().try_for_each(|response| checked(response.status.as_ref()))
        })
    }

    fn upload(&self, call: &FileCall, digest: Digest, from: &mut dyn UploadBytes) -> Result<(), FileTrouble> {
        let name = format!("{JOB_FILES_INSTANCE}/uploads/{:016x}/blobs/{digest}", fresh_number());
        let (mut tries, mut reached) = (0, 0);
        patiently(call, |patience| {
            let mut calls = self.calls(call)?;
            tries += 1;
            self.runtime().block_on(async {
                let (offset, is_complete) =
                    if tries == 1 { (0, false) } else { calls.written(&name).await? };
                if is_complete {
                    return Ok(());
                }
                if offset > reached {
                    reached = offset;
                    patience.went_on();
                }
                calls.write(digest, &name, offset, &mut *from).await
            })
        })
    }

    fn keep_outputs(&self, call: &FileCall, kept: KeptOutputs) -> Result<(), FileTrouble> {
        patiently(call, |_| {
            let mut calls = self.calls(call)?;
            let request = calls.ask(kept.clone());
            self.runtime().block_on(within(calls.workers.keep_outputs(request))).map(|_| ())
        })
    }
}

/// What takes bytes waits for the disk, and for the stream on which it says how far it is. So it is called outside of the
/// runtime, where nothing may wait.
impl BlobReader for RemoteFiles {
    fn read_many(&self, call: &FileCall, digests: &[Digest], take: TakeBlob<'_>) -> Result<(), FileTrouble> {
        for batch in batches(digests) {
            let mut left: BTreeSet<Digest> = batch.iter().copied().collect();
            patiently(call, |_| {
                let mut calls = self.calls(call)?;
                let answer = self.runtime().block_on(calls.read_batch(&left))?;
                take_batch(answer, &mut left, &mut *take)
            })?;
        }
        Ok(())
    }

    fn read(&self, call: &FileCall, digest: Digest, take: TakePart<'_>) -> Result<(), FileTrouble> {
        let mut got = 0;
        patiently(call, |patience| {
            let mut calls = self.calls(call)?;
            let mut stream = self.runtime().block_on(calls.read(digest, got))?;
            while let Some(part) = self.runtime().block_on(next_part(&mut stream))? {
                if got + part.data.len() as u64 > digest.size {
                    return Err(FileTrouble::Server(format!("it gave more bytes than {digest} has")));
                }
                take(&part.data)?;
                got += part.data.len() as u64;
                patience.went_on();
            }
            match got < digest.size {
                true => Err(FileTrouble::Passing(format!("it gave {got} bytes of {digest}"))),
                false => Ok(()),
            }
        })
    }
}

async fn within<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, FileTrouble> {
    match timeout(CALL_PATIENCE, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(trouble_of(&status)),
        Err(_) => Err(no_answer()),
    }
}

fn no_answer() -> FileTrouble {
    FileTrouble::Passing("the server does not answer".to_owned())
}

/// The answer to an upload.
fn taken(digest: Digest, answer: Result<Response<WriteResponse>, Status>) -> Result<(), FileTrouble> {
    let taken = answer.map_err(|status| trouble_of(&status))?.into_inner().committed_size;
    match u64::try_from(taken) == Ok(digest.size) {
        true => Ok(()),
        false => Err(FileTrouble::Passing(format!("the server took {taken} bytes of {digest}"))),
    }
}

/// What a failed call means.
fn trouble_of(status: &Status) -> FileTrouble {
    if !is_said(status) {
        return FileTrouble::Passing(chain(status));
    }
    trouble_said(status.code(), status.message())
}

fn trouble_said(code: Code, message: &str) -> FileTrouble {
    let why = if message.is_empty() { code.to_string() } else { message.to_owned() };
    match code {
        Code::PermissionDenied => FileTrouble::NotBooked(why),
        Code::NotFound | Code::InvalidArgument | Code::OutOfRange => FileTrouble::Job(why),
        Code::FailedPrecondition => FileTrouble::Outputs(why),
        Code::ResourceExhausted => FileTrouble::Full(why),
        // A token that ended may be replaced, and then another stream begins. What is unknown was not said by the server.
        Code::Unavailable
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Aborted
        | Code::Unauthenticated => FileTrouble::Passing(why),
        _ => FileTrouble::Server(why),
    }
}

/// What became of one blob of a batch.
fn checked(status: Option<&windlass_cas::proto::rpc::Status>) -> Result<(), FileTrouble> {
    match status {
        None => Ok(()),
        Some(status) if status.code == Code::Ok as i32 => Ok(()),
        Some(status) => Err(trouble_said(Code::from_i32(status.code), &status.message)),
    }
}

fn to_message(digest: Digest) -> re::Digest {
    re::Digest { hash: digest.hex(), size_bytes: digest.size as i64 }
}

fn from_message(digest: Option<&re::Digest>) -> Result<Digest, FileTrouble> {
    let read = digest.and_then(|digest| Digest::parse(&digest.hash, digest.size_bytes).ok());
    read.ok_or_else(|| FileTrouble::Server("it names a blob by what is not a digest".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::trouble::FileFault;
    use crate::protocol::TaskRef;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;
    use windlass_cas::proto::bytestream::QueryWriteStatusResponse;
    use windlass_cas::proto::bytestream::byte_stream_server::{ByteStream, ByteStreamServer};
    use windlass_cas::proto::re::content_addressable_storage_server::{
        ContentAddressableStorage, ContentAddressableStorageServer,
    };
    use windlass_cas::proto::re::{
        BatchUpdateBlobsResponse, FindMissingBlobsResponse, GetTreeRequest, GetTreeResponse,
        batch_read_blobs_response,
    };

    /// A server that has one blob, and gives it in parts of 1,000 bytes.
    #[derive(Clone)]
    struct OneBlob(Vec<u8>);

    type Parts<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

    fn none<T>() -> Result<T, Status> {
        Err(Status::unimplemented("it has one blob"))
    }

    #[tonic::async_trait]
    impl ByteStream for OneBlob {
        type ReadStream = Parts<ReadResponse>;

        async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
            let from = request.into_inner().read_offset as usize;
            let parts = self.0[from..].chunks(1_000);
            let parts = parts.map(|part| Ok(ReadResponse { data: part.to_vec().into() }));
            Ok(Response::new(tokio_stream::iter(parts.collect::<Vec<_>>())))
        }

        async fn write(
            &self,
            _: Request<Streaming<WriteRequest>>,
        ) -> Result<Response<WriteResponse>, Status> {
            none()
        }

        async fn query_write_status(
            &self,
            _: Request<QueryWriteStatusRequest>,
        ) -> Result<Response<QueryWriteStatusResponse>, Status> {
            none()
        }
    }

    #[tonic::async_trait]
    impl ContentAddressableStorage for OneBlob {
        type GetTreeStream = Parts<GetTreeResponse>;

        async fn find_missing_blobs(
            &self,
            _: Request<FindMissingBlobsRequest>,
        ) -> Result<Response<FindMissingBlobsResponse>, Status> {
            none()
        }

        async fn batch_update_blobs(
            &self,
            _: Request<BatchUpdateBlobsRequest>,
        ) -> Result<Response<BatchUpdateBlobsResponse>, Status> {
            none()
        }

        async fn batch_read_blobs(
            &self,
            request: Request<BatchReadBlobsRequest>,
        ) -> Result<Response<BatchReadBlobsResponse>, Status> {
            let one = |digest| batch_read_blobs_response::Response {
                digest: Some(digest),
                data: self.0.clone().into(),
                ..batch_read_blobs_response::Response::default()
            };
            let responses = request.into_inner().digests.into_iter().map(one).collect();
            Ok(Response::new(BatchReadBlobsResponse { responses }))
        }

        async fn get_tree(
            &self,
            _: Request<GetTreeRequest>,
        ) -> Result<Response<Self::GetTreeStream>, Status> {
            none()
        }
    }

    /// The agent waits for room on its stream when it says how far a fetch is.
    #[test]
    fn what_takes_the_bytes_of_a_blob_may_wait() {
        let blob = vec![7; 10_500];
        let (digest, serving) = (Digest::of(&blob), Runtime::new().unwrap());
        let _inside = serving.enter();
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", incoming.local_addr().unwrap());
        let (bytes, content) = (OneBlob(blob.clone()), OneBlob(blob.clone()));
        let server = Server::builder().add_service(ByteStreamServer::new(bytes));
        let server = server.add_service(ContentAddressableStorageServer::new(content));
        serving.spawn(server.serve_with_incoming(incoming));
        let read = std::thread::spawn(move || {
            let files = RemoteFiles::new().unwrap();
            files.begin(Endpoint::from_shared(url).unwrap(), None);
            let call = FileCall::new(TaskRef { job: 1, index: 0, attempt: 1 }, 1);
            let (sender, mut told) = mpsc::channel(100);
            let mut whole = Vec::new();
            let one = files.read(&call, digest, &mut |part| {
                whole.extend_from_slice(part);
                sender.blocking_send(part.len()).expect("it is heard");
                Ok(())
            });
            one.unwrap();
            let many = files.read_many(&call, &[digest], &mut |_, bytes| {
                sender.blocking_send(bytes.len()).expect("it is heard");
                Ok(())
            });
            many.unwrap();
            drop(sender);
            let heard: Vec<usize> = std::iter::from_fn(|| told.blocking_recv()).collect();
            (whole, heard.iter().sum::<usize>())
        });
        let (whole, heard) = read.join().unwrap();
        assert!(whole == blob && heard == 2 * blob.len(), "{} bytes were told", heard);
    }

    #[test]
    fn what_a_server_says_decides_whether_it_is_asked_again_and_whose_fault_it_is() {
        let said = |code: Code| {
            let trouble = trouble_of(&Status::new(code, "why"));
            (trouble.is_worth_another_try(), trouble.fault())
        };
        assert_eq!(said(Code::Unavailable), (true, FileFault::Passing));
        // A user's quota is the same at all workers.
        assert_eq!(said(Code::ResourceExhausted), (true, FileFault::Job));
        assert_eq!(said(Code::PermissionDenied), (true, FileFault::Passing));
        assert_eq!(said(Code::NotFound), (false, FileFault::Job));
        assert_eq!(said(Code::InvalidArgument), (false, FileFault::Job));
        assert_eq!(said(Code::Internal), (false, FileFault::Worker));
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)));
        assert!(trouble_of(&broken).is_worth_another_try());
        assert!(matches!(trouble_said(Code::FailedPrecondition, ""), FileTrouble::Outputs(_)));
    }

    #[test]
    fn one_blob_of_a_batch_may_fail() {
        let status = |code: Code| windlass_cas::proto::rpc::Status {
            code: code as i32,
            message: "why".to_owned(),
            ..windlass_cas::proto::rpc::Status::default()
        };
        assert!(checked(None).is_ok() && checked(Some(&status(Code::Ok))).is_ok());
        assert!(matches!(checked(Some(&status(Code::NotFound))), Err(FileTrouble::Job(_))));
        assert!(matches!(checked(Some(&status(Code::Unavailable))), Err(FileTrouble::Passing(_))));
    }
}
