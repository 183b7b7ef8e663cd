//! Uploads of jobs: their results, and packages for other jobs if the settings allow these.

use super::table::Words;
use crate::access::speaks_for_job;
use crate::answer::{Refused, say};
use crate::app::App;
use crate::caller::{MaybePeer, Who, peer_address, who};
use crate::files::{FileError, Files, InnerPath, NewFile, OverLimit, Written};
use crate::fill::upload_dirs;
use crate::time::now_s;
use crate::view::View;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use std::fs::File;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;
use windlass_core::JobId;

/// The time within which a file must arrive, and the rate, in bytes a second, that prolongs it.
const PATIENCE: Duration = Duration::from_secs(30);
const BYTES_PER_S: u64 = 256 << 10;
/// Bytes that are still read of a refused upload, and for how long. A client that is sending does not read the answer.
const DRAINED_BYTES_MAX: usize = 1 << 20;
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);
/// The file that a provider uploads when its job is over. The job may have completed its own results before.
const CONSOLE: &str = "console.log";

/// Why an upload is refused. Clients know the statuses.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("Unauthorized - no job params")]
    NoParams,
    #[error("Unauthorized - no job")]
    NoJob,
    #[error("Job not running")]
    NotRunning,
    #[error("Job data already uploaded")]
    Uploaded,
    #[error("Empty path")]
    EmptyPath,
    #[error("Illegal path")]
    IllegalPath,
    #[error(
        "Forbidden path: a job uploads to its own result_root; shared_uploads of [compass] allows its upload_dirs"
    )]
    ForbiddenPath,
    #[error("this server keeps no results: set srv of [compass] in its settings")]
    NoDirectory,
    #[error("File already exists")]
    Exists,
    #[error("Empty body")]
    Empty,
    #[error("File too large: it has more than {0} bytes (upload_bytes_max of [compass])")]
    TooLarge(u64),
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    #[error("the file comes too slowly")]
    Slow,
    #[error("the file does not come: {0}")]
    Broken(axum::Error),
    #[error("the disk of the server's directory of files is full")]
    DiskFull,
    #[error("the file cannot be written; see the server's log")]
    Io(#[source] FileError),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::NoParams | Refusal::NoJob => StatusCode::UNAUTHORIZED,
            Refusal::Uploaded => StatusCode::LOCKED,
            Refusal::EmptyPath => StatusCode::PAYMENT_REQUIRED,
            Refusal::IllegalPath => StatusCode::NOT_ACCEPTABLE,
            Refusal::NotRunning | Refusal::ForbiddenPath => StatusCode::FORBIDDEN,
            Refusal::NoDirectory => StatusCode::NOT_FOUND,
            Refusal::Exists => StatusCode::CONFLICT,
            Refusal::Empty | Refusal::Slow | Refusal::Broken(_) => StatusCode::BAD_REQUEST,
            Refusal::TooLarge(_) | Refusal::OverLimit(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
            Refusal::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<FileError> for Refusal {
    fn from(error: FileError) -> Refusal {
        match error {
            FileError::Exists => Refusal::Exists,
            FileError::Missing => Refusal::ForbiddenPath,
            error => Refusal::Io(error),
        }
    }
}

/// Stores a file of `/result`.
pub(super) async fn put_result(
    state: State<App>,
    caller: Who,
    peer: MaybePeer,
    Path(path): Path<String>,
    query: Query<Words>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    put_file(state, caller, peer, Path(format!("result/{path}")), query, headers, body).await
}

/// Stores a file of `/srv`.
pub(super) async fn put_file(
    State(app): State<App>,
    caller: Who,
    peer: MaybePeer,
    Path(path): Path<String>,
    Query(query): Query<Words>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let mut body = body.into_data_stream();
    let allowed = match allowed(&app, &caller, peer_address(&peer), &path, &query).await {
        Ok(allowed) => allowed,
        Err(refused) => return refused.into_response(),
    };
    let taken = match allowed {
        Ok(allowed) => match app.files.uploads.take(allowed.job).await {
            Some(_turn) => take(&app.files, allowed, announced(&headers), &mut body).await,
            None => Err(Refusal::Slow),
        },
        Err(refusal) => Err(refusal),
    };
    match taken {
        Ok(()) => say(StatusCode::OK, "File uploaded successfully"),
        Err(refusal) => {
            if let Refusal::Io(error) = &refusal {
                tracing::warn!("a file is not taken: {error}");
            }
            drain(&mut body).await;
            say(refusal.status(), refusal.to_string())
        }
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

struct Allowed {
    job: JobId,
    path: InnerPath,
    /// The directory of the job's results.
    root: String,
}

/// The job that uploads and its path, or a refusal. The outer error is the response where the server cannot tell.
async fn allowed(
    app: &App,
    caller: &Who,
    address: Option<IpAddr>,
    path: &str,
    query: &Words,
) -> Result<Result<Allowed, Refusal>, Refused> {
    let Some(id) = query.get("job_id") else { return Ok(Err(Refusal::NoParams)) };
    let Ok(job) = id.parse().map(JobId) else { return Ok(Err(Refusal::NoJob)) };
    let token = query.get("job_token").map(String::as_str);
    if !speaks_for_job(&app.handle, job, who(caller), token, address).await? {
        return Ok(Err(Refusal::NoJob));
    }
    let Some(view) = View::find(&app.handle, job).await? else {
        return Ok(Err(Refusal::NoJob));
    };
    let path = allowed_path(&app.files, &view, job, path);
    Ok(path.map(|path| Allowed { job, path, root: view.result_root(job) }))
}

fn allowed_path(files: &Files, view: &View, job: JobId, path: &str) -> Result<InnerPath, Refusal> {
    let (root, record) = (view.result_root(job), &view.record);
    let console = format!("{}/{CONSOLE}", root.trim_start_matches('/'));
    let late_console = path == console && record.takes_console(now_s());
    if record.place.is_none() {
        // The job is back in its queue. Its former host is late.
        return Err(Refusal::NotRunning);
    }
    if !record.takes_results() && !late_console {
        return Err(Refusal::Uploaded);
    }
    if path.trim_matches('/').is_empty() || path == "result/" {
        return Err(Refusal::EmptyPath);
    }
    let inner = InnerPath::parse(path).ok_or(Refusal::IllegalPath)?;
    if inner.is_in(&root) && inner.as_str() != root.trim_matches('/') {
        return Ok(inner);
    }
    if files.options.shared_uploads && upload_dirs(&view.submitted).iter().any(|dir| inner.is_in(dir)) {
        return Ok(inner);
    }
    Err(Refusal::ForbiddenPath)
}

/// Writes the file of an allowed upload.
async fn take(
    files: &Arc<Files>,
    allowed: Allowed,
    announced: Option<u64>,
    body: &mut BodyDataStream,
) -> Result<(), Refusal> {
    let max = files.options.upload_bytes_max;
    if announced.is_some_and(|bytes| bytes > max) {
        return Err(Refusal::TooLarge(max));
    }
    let job = allowed.job;
    let (mut new, file) = begin(files, allowed).await?;
    let mut written = files.usage.begin(job);
    let mut file = tokio::fs::File::from_std(file);
    write(&mut file, body, &mut written, max).await?;
    if written.bytes() == 0 {
        return Err(Refusal::Empty);
    }
    let file = file.into_std().await;
    let finished = tokio::task::spawn_blocking(move || {
        new.file = None;
        new.finish(file)
    });
    finished.await.map_err(|e| failed(std::io::Error::other(e)))??;
    written.keep();
    Ok(())
}

/// Begins the file, after the job's earlier uploads are counted.
async fn begin(files: &Arc<Files>, Allowed { job, path, root }: Allowed) -> Result<(NewFile, File), Refusal> {
    let files = files.clone();
    let begun = tokio::task::spawn_blocking(move || {
        let dir = files.dir().ok_or(Refusal::NoDirectory)?;
        if files.is_disk_full() {
            return Err(Refusal::DiskFull);
        }
        files.usage.remember(job, || dir.size_of(&root));
        // Checked before directories are made, because these are not counted.
        files.usage.check_files(job)?;
        let mut new = dir.create(&path)?;
        let file = new.file.take().ok_or(Refusal::Exists)?;
        Ok((new, file))
    });
    begun.await.map_err(|e| failed(std::io::Error::other(e)))?
}

async fn write(
    file: &mut tokio::fs::File,
    body: &mut BodyDataStream,
    written: &mut Written<'_>,
    max: u64,
) -> Result<(), Refusal> {
    let begun = Instant::now();
    loop {
        let grace = Duration::from_secs(written.bytes() / BYTES_PER_S);
        let next = tokio::time::timeout_at(begun + PATIENCE + grace, body.next()).await;
        let Some(part) = next.map_err(|_| Refusal::Slow)? else { break };
        let part: Bytes = part.map_err(Refusal::Broken)?;
        if written.bytes() + part.len() as u64 > max {
            return Err(Refusal::TooLarge(max));
        }
        written.add(part.len() as u64)?;
        file.write_all(&part).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)
}

fn failed(source: std::io::Error) -> Refusal {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Refusal::DiskFull,
        _ => Refusal::Io(FileError::Io { path: "a result".to_owned(), source }),
    }
}

/// Reads the rest of a refused upload, within bounds.
async fn drain(body: &mut BodyDataStream) {
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(part)) = body.next().await {
            bytes += part.len();
            if bytes > DRAINED_BYTES_MAX {
                return;
            }
        }
    };
    _ = tokio::time::timeout(DRAIN_PATIENCE, read).await;
}
