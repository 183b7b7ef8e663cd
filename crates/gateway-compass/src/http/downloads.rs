//! Downloads. Anybody may fetch what machines boot, because boot loaders have no token to show. Results are for readers
//! of their job. A job's own archive is for its machine alone.

use super::table::Words;
use crate::access::{check_look, speaks_for_job};
use crate::answer::{Refused, say};
use crate::app::App;
use crate::caller::{MaybePeer, Who, peer_address, who};
use crate::files::{FileError, InnerPath, Turn};
use crate::fill::machine_fields;
use crate::format::{Fields, SEALED_SECRETS, Stage, text_of};
use crate::lab::{Ask, Speaker};
use crate::parcel::job_archive;
use crate::record::Params;
use crate::view::View;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::net::{IpAddr, Ipv4Addr};
use tokio::io::AsyncReadExt as _;
use windlass_core::JobId;
use windlass_server::Unavailable;

/// Bytes that are read of a file at a time.
const PART_BYTES: usize = 256 << 10;
/// The address of all requests over unix sockets.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// The directory beneath which jobs' archives seem to be.
const ARCHIVES: &str = "scheduler/pending-jobs/";
/// The only part of the scheduler's own directory that is served.
const PACKAGES: &str = "scheduler/upload-files";

/// Serves a file of `/srv`, or the archive of a job.
pub(super) async fn get_file(
    State(app): State<App>,
    caller: Who,
    peer: MaybePeer,
    Path(path): Path<String>,
    Query(query): Query<Words>,
) -> Response {
    let address = peer_address(&peer);
    if let Some(archive) = path.strip_prefix(ARCHIVES).and_then(|rest| rest.strip_suffix("/job.cgz")) {
        let (id, token) = archive.split_once('/').unwrap_or((archive, ""));
        let shown =
            Some(token).filter(|token| !token.is_empty()).or(query.get("job_token").map(String::as_str));
        return archive_of(&app, &caller, address, id, shown).await.into_response();
    }
    let Some(inner) = InnerPath::parse(&path) else {
        return say(StatusCode::FORBIDDEN, "Invalid file path");
    };
    if inner.is_in("result")
        && let Err(refused) = may_read_results(&app, &caller, address, &query, &inner).await
    {
        return refused.into_response();
    }
    if inner.is_in("scheduler") && !inner.is_in(PACKAGES) {
        return say(StatusCode::NOT_FOUND, "File not found");
    }
    if app.files.dir().is_none() {
        let text =
            "File not found: this server has no directory of files; set srv of [compass] in its settings";
        return say(StatusCode::NOT_FOUND, text);
    }
    let own = address.unwrap_or(NO_ADDRESS);
    let Some(turn) = app.files.downloads.take(own).await else {
        return say(StatusCode::SERVICE_UNAVAILABLE, "the server is ending");
    };
    let files = app.files.clone();
    let opened = tokio::task::spawn_blocking(move || files.dir().map(|dir| dir.file(&inner))).await;
    match opened {
        Ok(Some(Ok((file, bytes)))) => streamed(tokio::fs::File::from_std(file), bytes, turn),
        Ok(None | Some(Err(FileError::Missing | FileError::Exists))) => {
            say(StatusCode::NOT_FOUND, "File not found")
        }
        Ok(Some(Err(error))) => {
            tracing::warn!("a file is not served: {error}");
            say(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read; see the server's log")
        }
        Err(_) => say(StatusCode::INTERNAL_SERVER_ERROR, "internal server error; see the server's log"),
    }
}

/// A file as a response. The response has no time: machines unpack archives in the order of their files' times, which
/// is then the order in which they fetched them.
fn streamed(file: tokio::fs::File, bytes: u64, turn: Turn) -> Response {
    let parts = stream::try_unfold((file, bytes, turn), |(mut file, left, turn)| async move {
        let mut part = Vec::with_capacity(PART_BYTES.min(usize::try_from(left).unwrap_or(PART_BYTES)));
        if left == 0 || (&mut file).take(left).read_buf(&mut part).await? == 0 {
            return Ok::<_, std::io::Error>(None);
        }
        let left = left - part.len() as u64;
        Ok(Some((Bytes::from(part), (file, left, turn))))
    });
    let kind = (header::CONTENT_TYPE, "application/octet-stream".to_owned());
    let length = (header::CONTENT_LENGTH, bytes.to_string());
    ([kind, length], Body::from_stream(parts)).into_response()
}

/// Admits readers of the job that has these results, and the job itself.
async fn may_read_results(
    app: &App,
    caller: &Who,
    address: Option<IpAddr>,
    query: &Words,
    path: &InnerPath,
) -> Result<(), Refused> {
    let refused = match check_look(who(caller)) {
        Ok(caller) => {
            let reader = app.front.reader(caller);
            let user = user_of_results(app, path).await?;
            if user.as_deref().map_or(reader.reads_all(), |user| reader.may_read(user)) {
                return Ok(());
            }
            let why =
                "these results are another user's, or their job is not kept any more: ask an administrator";
            say(StatusCode::FORBIDDEN, why).into()
        }
        Err(refused) => refused,
    };
    let Some(id) = query.get("job_id").and_then(|id| id.parse().ok()).map(JobId) else { return Err(refused) };
    let token = query.get("job_token").map(String::as_str);
    if !speaks_for_job(&app.handle, id, who(caller), token, address).await? {
        return Err(refused);
    }
    match View::find(&app.handle, id).await? {
        Some(view) if path.is_in(&view.result_root(id)) => Ok(()),
        _ => Err(refused),
    }
}

/// The possible places of the number in `result/SUITE/DATE/GROUP/SYSTEM/[VALUES/]NUMBER`.
const NUMBER_PLACES: std::ops::RangeInclusive<usize> = 5..=6;

/// The user whose job has these results; `None` if no stored job has them.
async fn user_of_results(app: &App, path: &InnerPath) -> Result<Option<String>, Unavailable> {
    for place in NUMBER_PLACES {
        let number = path.as_str().split('/').nth(place).and_then(|name| name.parse().ok()).map(JobId);
        let Some(id) = number else { continue };
        let view = View::find(&app.handle, id).await?;
        if let Some(view) = view.filter(|view| path.is_in(&view.result_root(id))) {
            return Ok(Some(view.spec.user.clone()));
        }
    }
    Ok(None)
}

/// Serves the archive of a job by the path of older clients.
pub(super) async fn get_archive(
    State(app): State<App>,
    caller: Who,
    peer: MaybePeer,
    Path(id): Path<String>,
    Query(query): Query<Words>,
) -> Result<Response, Refused> {
    archive_of(&app, &caller, peer_address(&peer), &id, query.get("job_token").map(String::as_str)).await
}

/// The archive of a job. It is made for each request and not stored. Fetching it brings the job into stage `boot`.
async fn archive_of(
    app: &App,
    caller: &Who,
    address: Option<IpAddr>,
    id: &str,
    token: Option<&str>,
) -> Result<Response, Refused> {
    let denied = || {
        say(StatusCode::UNAUTHORIZED, "Unauthorized - this is neither the job's machine nor its job_token")
    };
    let job = id.parse().map(JobId).map_err(|_| denied())?;
    if !speaks_for_job(&app.handle, job, who(caller), token, address).await? {
        return Err(denied().into());
    }
    let view = View::find(&app.handle, job).await?.ok_or_else(denied)?;
    if !view.record.is_booting() || view.record.filled.is_none() {
        return Err(say(StatusCode::LOCKED, "the job's machine does not boot now").into());
    }
    let secrets = match text_of(&view.submitted, SEALED_SECRETS) {
        None => Fields::new(),
        Some(sealed) => app.files.seal.open(&view.spec.user, &sealed).map_err(|error| {
            tracing::error!("job {job} does not get its secrets: {error}");
            let why = "the job's secrets cannot be opened; see the server's log";
            say(StatusCode::INTERNAL_SERVER_ERROR, why)
        })?,
    };
    let fields = machine_fields(job, &view.submitted, &view.record);
    if view.record.stage == Stage::Dispatch {
        let params = Params::from([("job_stage".to_owned(), Stage::Boot.as_str().to_owned())]);
        let update = Ask::Update { job, params, speaker: Speaker::Trusted, reply: None };
        app.compass.tell(update).await;
    }
    let own = address.unwrap_or(NO_ADDRESS);
    let _turn = app.files.downloads.take(own).await;
    Ok(match tokio::task::spawn_blocking(move || job_archive(&fields, &secrets)).await {
        Ok(archive) => ([(header::CONTENT_TYPE, "application/octet-stream")], archive).into_response(),
        Err(_) => say(StatusCode::INTERNAL_SERVER_ERROR, "internal server error; see the server's log"),
    })
}
