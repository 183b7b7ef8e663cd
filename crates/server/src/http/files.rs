//! Files of jobs: what is uploaded before a submission, and what was kept of tasks.

use super::App;
use super::extract::{JsonBody, Path, Query};
use crate::api_error::ApiError;
use crate::auth::Caller;
use crate::cas::{CacheTrouble, Cut, parts_of};
use crate::job_files::{FilesState, FilesTrouble, TarAsked, digest_of, tar_of};
use crate::listen::body::drain;
use crate::reader::Reader;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::StreamExt as _;
use serde::Deserialize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use utoipa::IntoParams;
use windlass_api::{AskBlobs, BLOBS_ASKED_MAX, ErrorCode, JobFiles, MissingBlobs, TaskSet};
use windlass_cas::Digest;
use windlass_core::job::JobSpec;
use windlass_core::{JobId, TaskId};

/// Tasks of one page of outputs.
const PAGE: usize = 1_000;
/// Characters of the name under which a browser saves a file.
const NAME_CHARS_MAX: usize = 100;
/// Characters of a text that an error repeats.
const SHOWN_CHARS_MAX: usize = 80;

/// Says which files must be uploaded before a submission names them: those that the caller has not uploaded before, or
/// that are gone.
#[utoipa::path(post, path = "/api/v1/files/missing", tag = "files", request_body = AskBlobs, responses(
    (status = 200, description = "Those that must be uploaded", body = MissingBlobs)))]
pub async fn missing(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(AskBlobs { blobs }): JsonBody<AskBlobs>,
) -> Result<Json<MissingBlobs>, ApiError> {
    if blobs.len() > BLOBS_ASKED_MAX {
        let why = format!("{} files are asked for, and at most {BLOBS_ASKED_MAX} at a time", blobs.len());
        return Err(ApiError::new(ErrorCode::BadRequest, why).hint("ask for the others in another request"));
    }
    let digest = |text: &String| digest_of(text, format!("'{}'", shown(text)));
    let digests: Result<Vec<Digest>, FilesTrouble> = blobs.iter().map(digest).collect();
    let digests = digests.map_err(FilesTrouble::into_api_error)?;
    let files = files(&app)?;
    let missing = files.missing_of(&caller, digests).await;
    let missing = missing.map_err(|trouble| told(files, "files that are missing", trouble))?;
    Ok(Json(MissingBlobs { missing: missing.iter().map(Digest::to_string).collect() }))
}

/// Uploads one file. The body is its bytes, of any size that the store takes.
#[utoipa::path(put, path = "/api/v1/files/blobs/{hash}/{bytes}", tag = "files",
    params(("hash" = String, Path), ("bytes" = u64, Path)),
    request_body(content_type = "application/octet-stream", description = "The bytes of the file"),
    responses((status = 204, description = "The server has the file, and the caller may name it in submissions")))]
pub async fn put_blob(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path((hash, bytes)): Path<(String, u64)>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let digest = digest_of(&format!("{hash}/{bytes}"), "the end of the path");
    let digest = digest.map_err(FilesTrouble::into_api_error)?;
    let files = files(&app)?;
    let (head, body) = request.into_parts();
    let mut body = Some(body);
    let taken = files.take_blob(&caller, digest, &mut body).await;
    uploaded(files, taken, (head, body)).await
}

/// Uploads several small files. Before the bytes of each stands a line with its SHA-256 and its size: `HASH BYTES`.
#[utoipa::path(post, path = "/api/v1/files/blobs", tag = "files",
    request_body(content_type = "application/octet-stream", description = "Up to 8 MiB of lines and files"),
    responses((status = 204, description = "The server has the files, and the caller may name them in submissions")))]
pub async fn put_blobs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let files = files(&app)?;
    let (head, body) = request.into_parts();
    let mut body = Some(body);
    let taken = files.take_batch(&caller, &mut body).await;
    uploaded(files, taken, (head, body)).await
}

async fn uploaded(
    files: &FilesState,
    taken: Result<(), FilesTrouble>,
    (head, body): (Parts, Option<Body>),
) -> Result<StatusCode, ApiError> {
    let Err(trouble) = taken else { return Ok(StatusCode::NO_CONTENT) };
    // A client that is still sending does not hear the answer. One that waits to be asked sends nothing.
    if let Some(body) = body.filter(|_| !head.headers.contains_key(header::EXPECT)) {
        drain(body).await;
    }
    Err(told(files, "an upload of a file", trouble))
}

/// Which page of outputs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct FilesQuery {
    /// The index of the task with which it begins: `next` of the page before.
    #[serde(default)]
    from: u32,
}

/// Lists the files of a job: what its steps say, and what was kept of its tasks.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/files", tag = "files", params(("id" = u64, Path), FilesQuery),
    responses((status = 200, description = "A page of up to 1,000 tasks", body = JobFiles),
    (status = 403, description = "The job belongs to another user", body = windlass_api::ErrorBody)))]
pub async fn list(
    State(app): State<App>,
    reader: Reader,
    Path(id): Path<u64>,
    Query(query): Query<FilesQuery>,
) -> Result<Json<JobFiles>, ApiError> {
    let (job, files) = (JobId(id), files(&app)?);
    let spec = readable(&app, &reader, job).await?;
    let refused = |trouble| told(files, "the files of a job", trouble);
    let steps = files.steps(job, &spec).await.map_err(refused)?;
    let mut outputs = files.outputs(job, query.from, PAGE + 1).await.map_err(refused)?;
    let next = outputs.get(PAGE).map(|outputs| outputs.index);
    outputs.truncate(PAGE);
    Ok(Json(JobFiles { steps, outputs, next }))
}

/// Of which tasks the outputs are wanted.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct TarQuery {
    /// Their indexes in the job, from 0: `6`, `3-9` or `1,4-6`; all by default.
    tasks: Option<String>,
    /// Without a directory for the task, of which there is one then. Otherwise each task has one: `STEP.INDEX`.
    #[serde(default)]
    flat: bool,
}

/// Gives the outputs of tasks as a tar archive.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/files/tar", tag = "files", params(("id" = u64, Path), TarQuery),
    responses((status = 200, description = "The archive", content_type = "application/x-tar"),
    (status = 403, description = "The job belongs to another user", body = windlass_api::ErrorBody),
    (status = 404, description = "No such job, or none of these tasks has outputs", body = windlass_api::ErrorBody)))]
pub async fn tar(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    reader: Reader,
    Path(id): Path<u64>,
    Query(query): Query<TarQuery>,
) -> Result<Response, ApiError> {
    let (job, files) = (JobId(id), files(&app)?);
    let spec = readable(&app, &reader, job).await?;
    let tasks = query.tasks.as_deref().map(str::parse::<TaskSet>).transpose();
    let tasks = tasks.map_err(|bad| ApiError::new(ErrorCode::BadRequest, bad.to_string()))?;
    if query.flat && tasks.as_ref().and_then(TaskSet::only).is_none() {
        let why = "flat is for the outputs of one task: those of several may have the same names";
        return Err(ApiError::new(ErrorCode::BadRequest, why).hint("give tasks=INDEX, or leave out flat"));
    }
    let tasks = tasks.map(TaskSet::into_ranges);
    let asked = TarAsked { job, spec, tasks, has_directories: !query.flat };
    let has_some = asked.has_some(files).await;
    if !has_some.map_err(|trouble| told(files, "an archive of outputs", trouble))? {
        let why = format!("job {job} has no outputs of these tasks");
        let hint =
            "outputs are kept when a task ends whose step names some: --outputs GLOB, or files.outputs";
        return Err(ApiError::new(ErrorCode::NotFound, why).hint(hint));
    }
    let place = files.cache.places.download(&caller.user).await.map_err(CacheTrouble::into_api_error)?;
    let head = attached("application/x-tar", &format!("job-{job}.tar"), None);
    Ok((head, Body::from_stream(tar_of(files.clone(), asked, place))).into_response())
}

/// One file among the outputs of a task.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct OutputQuery {
    /// The task's index in its job.
    task: u32,
    /// The file's path below the task's directory.
    path: String,
}

/// Gives one file of the outputs of a task.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/files/blob", tag = "files", params(("id" = u64, Path), OutputQuery),
    responses((status = 200, description = "The file", content_type = "application/octet-stream"),
    (status = 403, description = "The job belongs to another user", body = windlass_api::ErrorBody),
    (status = 404, description = "No such job, task or file", body = windlass_api::ErrorBody)))]
pub async fn blob(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    reader: Reader,
    Path(id): Path<u64>,
    Query(OutputQuery { task, path }): Query<OutputQuery>,
) -> Result<Response, ApiError> {
    let (job, files) = (JobId(id), files(&app)?);
    readable(&app, &reader, job).await?;
    let found = files.output_file(TaskId { job, index: task }, path.clone()).await;
    let found = found.map_err(|trouble| told(files, "a file of outputs", trouble))?;
    let Some((digest, blob)) = found else {
        let why = format!("task {job}.{task} has no output at '{}'", shown(&path));
        return Err(ApiError::new(ErrorCode::NotFound, why).hint("'windlass job fetch' gets all outputs"));
    };
    let refused = CacheTrouble::into_api_error;
    let place = files.cache.places.download(&caller.user).await.map_err(refused)?;
    let parts = parts_of(blob, Cut::WHOLE, place).await.map_err(refused)?;
    files.cache.counts.read_bytes.fetch_add(digest.size, Ordering::Relaxed);
    let name = path.rsplit('/').next().unwrap_or_default();
    let head = attached("application/octet-stream", name, Some(digest.size));
    // A body that breaks off is shorter than its head said, which clients notice.
    Ok((head, Body::from_stream(parts.map(|part| part.map_err(io::Error::other)))).into_response())
}

/// The head of an answer that a browser saves and does not show: what tasks have written is not a page of this server.
fn attached(kind: &str, name: &str, bytes: Option<u64>) -> HeaderMap {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._+".contains(c) { c } else { '_' };
    let name: String = name.chars().take(NAME_CHARS_MAX).map(plain).collect();
    let all = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    let bytes = bytes.map(|bytes| (header::CONTENT_LENGTH, bytes.to_string()));
    let mut head = HeaderMap::new();
    for (name, text) in all.into_iter().chain(bytes) {
        if let Ok(value) = text.parse() {
            head.insert(name, value);
        }
    }
    head
}

/// The files of jobs, on a server that keeps some.
fn files(app: &App) -> Result<&Arc<FilesState>, ApiError> {
    let why = "this server keeps no files of jobs";
    app.files().ok_or_else(|| ApiError::new(ErrorCode::Unavailable, why))
}

/// The job's, for a caller who may read what its tasks wrote.
async fn readable(app: &App, reader: &Reader, id: JobId) -> Result<Arc<JobSpec>, ApiError> {
    let job = app.handle.store().job(id).await?.ok_or_else(|| ApiError::no_job(id))?;
    if reader.may_read_job(&job.spec) {
        return Ok(job.spec);
    }
    let message = format!("the files of job {id} belong to another user");
    Err(ApiError::new(ErrorCode::Forbidden, message).hint("ask its user or an administrator"))
}

/// An error of a request, of which the log is told what an administrator has to see to.
fn told(files: &FilesState, call: &str, trouble: FilesTrouble) -> ApiError {
    files.tell(call, &trouble);
    trouble.into_api_error()
}

/// The beginning of a text that an error repeats.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_add_nothing_to_the_head() {
        let head = attached("application/octet-stream", "a\"\r\nX: y; ä.txt", Some(5));
        let told = |name: &str| head[name].to_str().unwrap();
        assert_eq!(told("content-disposition"), "attachment; filename=\"a___X__y___.txt\"");
        assert_eq!((told("content-length"), told("x-content-type-options")), ("5", "nosniff"));
    }
}
