//! Files of jobs: what is uploaded before a submission, and what was kept of tasks. Blobs are named `HASH/BYTES`.

use super::body_source::BodySource;
use super::servers::{Call, Patience};
use super::{Client, ClientError, parts};
use crate::{AskBlobs, BLOB_BATCH_BYTES_MAX, BLOBS_ASKED_MAX, JobFiles, MissingBlobs, TaskSet};
use futures_util::Stream;
use reqwest::Method;
use std::io::{self, Read};

/// Bytes of the line before a blob in a batch, at most.
const LINE_BYTES_MAX: usize = 100;

/// Of these blobs, those that must be uploaded before a submission names them.
pub async fn ask_missing(client: &Client, blobs: &[String]) -> Result<Vec<String>, ClientError> {
    let mut missing = Vec::new();
    for some in blobs.chunks(BLOBS_ASKED_MAX) {
        let asked = AskBlobs { blobs: some.to_vec() };
        let answer: MissingBlobs = client.post("/api/v1/files/missing", &asked).await?;
        missing.extend(answer.missing);
    }
    Ok(missing)
}

/// Uploads one blob. Its bytes are read while they are sent; `open` gives them from their beginning, once for each server
/// that is tried.
pub async fn upload_blob(
    client: &Client,
    blob: &str,
    open: impl Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync + 'static,
) -> Result<(), ClientError> {
    let request = client.request(Method::PUT, &format!("/api/v1/files/blobs/{blob}"));
    // It takes as long as its bytes do, and may be made twice: it has one content.
    let call = client.call(request, true, Patience::Event)?;
    let call = Call { body: Some(BodySource::new(open)), ..call };
    client.servers.open(&call).await.map(|_| ())
}

/// Uploads blobs that are in memory, several with one request. One of more than [`BLOB_BATCH_BYTES_MAX`] bytes is refused.
pub async fn upload_blobs(client: &Client, blobs: &[(String, Vec<u8>)]) -> Result<(), ClientError> {
    let mut body = Vec::new();
    for (blob, bytes) in blobs {
        if !body.is_empty() && body.len() + LINE_BYTES_MAX + bytes.len() > BLOB_BATCH_BYTES_MAX {
            send_batch(client, std::mem::take(&mut body)).await?;
        }
        body.extend_from_slice(blob.replace('/', " ").as_bytes());
        body.push(b'\n');
        body.extend_from_slice(bytes);
    }
    if body.is_empty() { Ok(()) } else { send_batch(client, body).await }
}

async fn send_batch(client: &Client, body: Vec<u8>) -> Result<(), ClientError> {
    let request = client.request(Method::POST, "/api/v1/files/blobs").body(body);
    let call = client.call(request, true, Patience::Answer)?;
    client.servers.open(&call).await.map(|_| ())
}

/// A page of the files of a job: what its steps say, and what was kept of its tasks from that index on.
pub async fn job_files(client: &Client, job: u64, from: u32) -> Result<JobFiles, ClientError> {
    client.get(&format!("/api/v1/jobs/{job}/files"), &[("from", from)]).await
}

/// The outputs of tasks as a tar archive, as its bytes come: of all, or of those of `tasks`. With `flat`, which is for one
/// task, its outputs are not in a directory of their own.
pub async fn job_files_tar(
    client: &Client,
    job: u64,
    tasks: Option<&TaskSet>,
    flat: bool,
) -> Result<impl Stream<Item = Result<Vec<u8>, ClientError>> + use<>, ClientError> {
    let mut request = client.request(Method::GET, &format!("/api/v1/jobs/{job}/files/tar"));
    if let Some(tasks) = tasks {
        request = request.query(&[("tasks", tasks.to_string())]);
    }
    if flat {
        request = request.query(&[("flat", true)]);
    }
    let (server, response) = client.servers.open(&client.call(request, true, Patience::Answer)?).await?;
    Ok(parts(server.address.clone(), response, None))
}
