//! Files that jobs upload: their results, and, where the administrator allows it, packages for other jobs.

use super::dir::NewFile;
use super::{DISK_FREE_BYTES, FileError, Files, InnerPath};
use crate::access::{say, speaks_for_job};
use crate::fill::upload_dirs;
use crate::jobs::{Who, unavailable, who};
use crate::lab::now_s;
use crate::lists::Words;
use crate::view::View;
use crate::{App, MaybePeer, peer_address};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt as _;
use std::fs::File;
use std::net::IpAddr;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;
use windlass_core::JobId;

/// How long a file may take, and how many bytes a second it must bring after that.
const PATIENCE: Duration = Duration::from_secs(30);
const BYTES_PER_S: u64 = 256 << 10;
/// Bytes, and the time, that an upload which is refused may still bring: a client that sends does not hear the answer.
const DRAINED_BYTES_MAX: usize = 1 << 20;
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);
/// Files that one job may upload.
const RESULT_FILES_MAX: usize = 50_000;
/// Jobs of which it is remembered what they uploaded; of others it is counted again.
const REMEMBERED_MAX: usize = 10_000;
/// What a provider uploads when its job is over, also after the job said that its own results are complete.
const CONSOLE: &str = "console.log";

/// What a job has uploaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Used {
    bytes: u64,
    files: usize,
}

/// Why a file is not taken, with the status that clients know.
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
    #[error("Results too large: those of the job have more than {0} bytes (results_bytes_max of [compass])")]
    TooMuch(u64),
    #[error("Results too large: the job has more than {RESULT_FILES_MAX} files")]
    TooMany,
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
            Refusal::TooLarge(_) | Refusal::TooMuch(_) | Refusal::TooMany => StatusCode::PAYLOAD_TOO_LARGE,
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

/// Takes in a file of `/result`.
pub(crate) async fn put_result(
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

/// Takes in a file of `/srv`.
pub(crate) async fn put_file(
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
        Err(response) => return response,
    };
    let taken = match allowed {
        Ok(allowed) => match app.files().uploads.take(allowed.job).await {
            Some(_turn) => take(&app, allowed, announced(&headers), &mut body).await,
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

/// An upload that may be.
struct Allowed {
    job: JobId,
    path: InnerPath,
    /// The directory of the job's results.
    root: String,
}

/// The job that uploads, and the path at which it may; an answer in its place where the server cannot tell.
async fn allowed(
    app: &App,
    caller: &Who,
    address: Option<IpAddr>,
    path: &str,
    query: &Words,
) -> Result<Result<Allowed, Refusal>, Response> {
    let Some(id) = query.get("job_id") else { return Ok(Err(Refusal::NoParams)) };
    let Ok(job) = id.parse().map(JobId) else { return Ok(Err(Refusal::NoJob)) };
    let token = query.get("job_token").map(String::as_str);
    if !speaks_for_job(app, job, who(caller), token, address).await.map_err(unavailable)? {
        return Ok(Err(Refusal::NoJob));
    }
    let Some(view) = View::find(&app.handle, job).await.map_err(unavailable)? else {
        return Ok(Err(Refusal::NoJob));
    };
    let path = allowed_path(app.files(), &view, job, path);
    Ok(path.map(|path| Allowed { job, path, root: view.result_root(job) }))
}

fn allowed_path(files: &Files, view: &View, job: JobId, path: &str) -> Result<InnerPath, Refusal> {
    let (root, record) = (view.result_root(job), &view.record);
    let console = format!("{}/{CONSOLE}", root.trim_start_matches('/'));
    let late_console = path == console && record.takes_console(now_s());
    if record.place.is_none() {
        // It is back in its queue, and whoever had it is late.
        return Err(Refusal::NotRunning);
    }
    if !record.takes_results() && !late_console {
        return Err(Refusal::Uploaded);
    }
    if path.trim_matches('/').is_empty() || path == "result/" {
        return Err(Refusal::EmptyPath);
    }
    let inner = InnerPath::parse(path).ok_or(Refusal::IllegalPath)?;
    let shared =
        || files.options.shared_uploads && upload_dirs(&view.submitted).iter().any(|dir| inner.is_in(dir));
    if (inner.is_in(&root) && inner.as_str() != root.trim_matches('/')) || shared() {
        Ok(inner)
    } else {
        Err(Refusal::ForbiddenPath)
    }
}

/// Writes a file that may be written.
async fn take(
    app: &App,
    allowed: Allowed,
    announced: Option<u64>,
    body: &mut axum::body::BodyDataStream,
) -> Result<(), Refusal> {
    let max = app.files().options.upload_bytes_max;
    if announced.is_some_and(|bytes| bytes > max) {
        return Err(Refusal::TooLarge(max));
    }
    let job = allowed.job;
    let (mut new, file) = begin(app, allowed).await?;
    let mut written = Written { files: app.files(), job, bytes: 0, kept: false };
    let mut file = tokio::fs::File::from_std(file);
    write(&mut file, body, &mut written, max).await?;
    if written.bytes == 0 {
        return Err(Refusal::Empty);
    }
    let file = file.into_std().await;
    let finished = tokio::task::spawn_blocking(move || {
        new.file = None;
        new.finish(file)
    });
    finished.await.map_err(|e| failed(std::io::Error::other(e)))??;
    written.kept = true;
    Ok(())
}

/// Begins the file, and makes sure that it is known what the job has uploaded.
async fn begin(app: &App, Allowed { job, path, root }: Allowed) -> Result<(NewFile, File), Refusal> {
    let files = app.files.clone();
    let begun = tokio::task::spawn_blocking(move || {
        let dir = files.dir().ok_or(Refusal::NoDirectory)?;
        if dir.is_full(DISK_FREE_BYTES) {
            return Err(Refusal::DiskFull);
        }
        files.remember(job, || {
            let (bytes, files) = dir.size_of(&root);
            Used { bytes, files }
        });
        // Before its directories are made, which nothing counts.
        if files.has_all_files(job) {
            return Err(Refusal::TooMany);
        }
        let mut new = dir.create(&path)?;
        let file = new.file.take().ok_or(Refusal::Exists)?;
        Ok((new, file))
    });
    begun.await.map_err(|e| failed(std::io::Error::other(e)))?
}

async fn write(
    file: &mut tokio::fs::File,
    body: &mut axum::body::BodyDataStream,
    written: &mut Written<'_>,
    max: u64,
) -> Result<(), Refusal> {
    let begun = Instant::now();
    loop {
        let grace = Duration::from_secs(written.bytes / BYTES_PER_S);
        let next = tokio::time::timeout_at(begun + PATIENCE + grace, body.next()).await;
        let Some(part) = next.map_err(|_| Refusal::Slow)? else { break };
        let part: Bytes = part.map_err(Refusal::Broken)?;
        if written.bytes + part.len() as u64 > max {
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

/// Bytes of a file that count for its job. Those of a file that is given up count no more.
struct Written<'a> {
    files: &'a Files,
    job: JobId,
    bytes: u64,
    kept: bool,
}

impl Written<'_> {
    fn add(&mut self, bytes: u64) -> Result<(), Refusal> {
        let max = self.files.options.results_bytes_max;
        let mut used = self.files.used.lock().unwrap_or_else(PoisonError::into_inner);
        let used = used.entry(self.job).or_insert(Used { bytes: 0, files: 0 });
        if used.files >= RESULT_FILES_MAX {
            return Err(Refusal::TooMany);
        }
        if used.bytes.saturating_add(bytes) > max {
            return Err(Refusal::TooMuch(max));
        }
        (used.bytes, self.bytes) = (used.bytes + bytes, self.bytes + bytes);
        Ok(())
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let mut used = self.files.used.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(used) = used.get_mut(&self.job) else { return };
        match self.kept {
            true => used.files += 1,
            false => used.bytes = used.bytes.saturating_sub(self.bytes),
        }
    }
}

impl Files {
    /// Counts what a job has uploaded, unless that is known.
    /// True of a job that has as many files as it may.
    fn has_all_files(&self, job: JobId) -> bool {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.get(&job).is_some_and(|used| used.files >= RESULT_FILES_MAX)
    }

    fn remember(&self, job: JobId, count: impl FnOnce() -> Used) {
        let known = |used: &std::collections::BTreeMap<JobId, Used>| used.contains_key(&job);
        if known(&self.used.lock().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        // Counted without the lock, for that may take a while.
        let counted = count();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= REMEMBERED_MAX {
            used.pop_first();
        }
        used.entry(job).or_insert(counted);
    }
}

/// Reads what an upload that is refused still brings, within bounds.
async fn drain(body: &mut axum::body::BodyDataStream) {
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
