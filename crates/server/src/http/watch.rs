//! Waiting for what happens: server-sent events, and the end of a job.

use super::App;
use super::extract::{Path, Query};
use super::jobs;
use super::loans::Loan;
use crate::api_error::ApiError;
use crate::auth::Caller;
use crate::events::{BriefEvents, EventStream};
use crate::handle::Handle;
use crate::reader::Reader;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive, Sse as Stream};
use axum::{Extension, Json};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::time::Instant;
use utoipa::IntoParams;
use windlass_api::{ErrorCode, Job, ServerEvent};
use windlass_core::JobId;

/// Which events are told.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only those about this job.
    job: Option<u64>,
    /// Events `tasks` without the list of tasks: a job's counts, at most once a second.
    #[serde(default)]
    brief: bool,
}

/// The header by which a client that comes back says which event it received last.
const LAST_EVENT_ID: &str = "last-event-id";

/// Tells what happens from now on, as server-sent events: each event's name says which it is, its data is a
/// `ServerEvent`. The stream begins with an id. A client that comes back within a minute, with the last id that it
/// received, is told what happened meanwhile, or `lagged` if some of it is gone.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(EventsQuery, ("last-event-id" = Option<String>, Header,
        description = "The last id that was received: events after it are told first")),
    responses((status = 200, description = "The events", body = ServerEvent, content_type = "text/event-stream")))]
pub async fn events(
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<EventsQuery>,
) -> Result<Stream<impl stream::Stream<Item = Result<Sse, Infallible>>>, ApiError> {
    let after = headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
    let reader = EventsReader::new(&app, query.job, after);
    let begin = reader.events.id().map(|id| Ok::<_, Infallible>(Sse::default().id(id)));
    let brief = query.brief.then(BriefEvents::default);
    let events = stream::unfold((reader, brief), |(mut reader, mut brief)| async move {
        let event = match &mut brief {
            Some(brief) => reader.next_brief(brief).await?,
            None => reader.next().await?,
        };
        let data = serde_json::to_string(&*event).unwrap_or_default();
        let told = Sse::default().event(event.name()).data(data);
        // An id says that all before it was told.
        let id = reader.events.id().filter(|_| brief.as_ref().is_none_or(BriefEvents::is_empty));
        let told = match id {
            Some(id) => told.id(id),
            None => told,
        };
        Some((Ok(told), (reader, brief)))
    });
    let events = stream::iter(begin).chain(events);
    Ok(Stream::new(events).keep_alive(KeepAlive::default()))
}

struct EventsReader {
    events: EventStream,
    handle: Handle,
    job: Option<u64>,
}

impl EventsReader {
    /// A reader of events about this job, or of all, after the one of that id or from now on.
    fn new(app: &App, job: Option<u64>, after: Option<&str>) -> EventsReader {
        EventsReader { events: app.handle.parts().events.stream(after), handle: app.handle.clone(), job }
    }

    /// The next event for a listener who wants no single tasks.
    async fn next_brief(&mut self, brief: &mut BriefEvents) -> Option<Arc<ServerEvent>> {
        loop {
            if let Some(event) = brief.next(Instant::now()) {
                return Some(event);
            }
            let due = brief.due();
            let event = tokio::select! {
                event = self.next() => event?,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
            };
            brief.add(event);
        }
    }

    /// Whether all is to be read again, a listener for one job must know, too.
    fn is_wanted(&self, event: &ServerEvent) -> bool {
        self.job.is_none() || event.job() == self.job || matches!(event, ServerEvent::Lagged)
    }

    async fn next(&mut self) -> Option<Arc<ServerEvent>> {
        let mut closing = self.handle.closing();
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                _ = closing.wait_for(|closing| *closing) => return None,
            };
            let event = event?;
            if self.is_wanted(&event) {
                return Some(event);
            }
        }
    }
}

/// Whether a task waits, which lends its cpus.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// A task that waits for the job and lends its cpus meanwhile. The answer comes when it has them
    /// again.
    lend: Option<String>,
}

/// Answers when the job has ended.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/wait", tag = "jobs", params(("id" = u64, Path), WaitQuery), responses(
    (status = 200, body = Job),
    (status = 503, description = "The server ends; ask the next one", body = windlass_api::ErrorBody)))]
pub async fn wait(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    reader: Reader,
    Path(id): Path<u64>,
    Query(query): Query<WaitQuery>,
) -> Result<Json<Job>, ApiError> {
    let lend = query.lend.as_deref().map(super::tasks::parse_id).transpose()?;
    if let Some(task) = lend {
        jobs::check_owner(&app, &caller, task.job).await?;
    }
    let mut listener = EventsReader::new(&app, Some(id), None);
    let mut job = jobs::find(&app.handle, JobId(id)).await?;
    // Even if the job has ended: an earlier wait, cut off with its server, may have lent them.
    let loan = lend.map(|task| Loan::open(&app, task));
    if let Some(loan) = loan.as_ref().filter(|_| !job.state.is_end()) {
        loan.lend().await;
    }
    while !job.state.is_end() {
        let ended = match listener.next().await.as_deref() {
            None => return Err(ApiError::new(ErrorCode::Unavailable, "the server is ending")),
            Some(ServerEvent::Job(event)) => event.state.is_end(),
            Some(ServerEvent::Lagged) => true,
            Some(_) => false,
        };
        if ended {
            job = jobs::find(&app.handle, JobId(id)).await?;
        }
    }
    if let Some(loan) = loan {
        loan.give_back().await?;
    }
    Ok(Json(reader.told(job)))
}
