//! Turns of commands on clients' machines. A turn is a place of the engine on a worker of the client's machine. It waits
//! in a queue like a task, and is held for as long as the request that asked for it lasts.

use super::App;
use super::extract::{JsonBody, Path};
use super::submission_names::SubmissionNames;
use super::turn_session::{TurnSession, name_of, said_reason};
use super::turn_table::{OpenTurn, Stands};
use crate::api_error::ApiError;
use crate::auth::Caller;
use crate::reader::Reader;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::StreamExt as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use windlass_api::{ErrorCode, TurnEnd, TurnHolds, TurnList, TurnRequest, Why};
use windlass_core::bounds::PEAK_BYTES_MAX;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::Event;
use windlass_core::explain::{self, Known};
use windlass_core::ids::AllocId;
use windlass_core::resources::Bytes;
use windlass_core::score::history::{Sample, Signature};
use windlass_core::tags::Need;
use windlass_core::{Engine, Resources, WorkerId};

/// Lines of one answer that its client has not read.
const LINES_MAX: usize = 16;
/// The longest wait for a turn, and the one of a request that names none.
const WAIT_MS_MAX: u64 = 7 * 86_400_000;
/// Turns that one answer lists, and how many of those that wait are listed with the reason.
const LISTED_MAX: usize = 1_000;
const REASONS_MAX: usize = 50;
/// Holders of a machine that an explanation names.
const HOLDERS_MAX: usize = 3;
/// The attribute of a worker that says on which machine it is.
const MACHINE: &str = "host";

/// Asks for room on the machine on which the client runs, and holds it for as long as the connection is open. The client
/// runs its command meanwhile. The answer begins when the turn begins, or after a second; each line is a `TurnLine`.
#[utoipa::path(post, path = "/api/v1/turns", tag = "workers", request_body = TurnRequest, responses(
    (status = 200, description = "Lines of JSON (`application/jsonl`) as they come, with `turn`, `state` (`waits`, `runs` \
        or `refused`), and `why`, `memory` and `worker` where these are known"),
    (status = 422, description = "No worker of that machine could ever have room for it",
        body = windlass_api::ErrorBody),
    (status = 503, description = "Too many turns wait or run, or this server stands by and names the owner",
        body = windlass_api::ErrorBody)))]
pub async fn take(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    JsonBody(request): JsonBody<TurnRequest>,
) -> Result<Response, ApiError> {
    request.check().map_err(|why| ApiError::new(ErrorCode::BadRequest, why.to_string()))?;
    if *app.handle.closing().borrow() {
        return Err(ApiError::new(ErrorCode::Unavailable, "the server is ending"));
    }
    let queue = request.queue.clone().unwrap_or_else(|| caller.user.clone());
    app.shared.front.rights.may_use_queue(&caller, &queue).await?;
    SubmissionNames::of_limits(request.limits.clone()).check(&app, false).await?;
    let signatures: Vec<Signature> =
        request.shape.iter().map(|shape| signature(&queue, shape.clone())).collect();
    find_worker(&app, &request.machine).await?;
    let mut place = place_of(&request, &caller.user, &queue, &signatures);
    if let Some(held) = &request.held {
        let is_known = give_back(&app, held.turn, &caller.user).await;
        place.runs = is_known || app.shared.client_turns.takes_up();
    }
    let turn = OpenTurn {
        user: caller.user,
        queue,
        machine: request.machine,
        worktree: request.worktree,
        command: request.command,
        signatures,
        limits: request.limits,
        cpu: place.amounts.cpu,
        since: app.handle.now(),
        stands: Stands::Waits(None),
    };
    let added = app.shared.client_turns.add(turn);
    let number = added.map_err(|why| ApiError::new(ErrorCode::Unavailable, why.to_string()))?;
    let (lines, told) = mpsc::channel(LINES_MAX);
    let (first, begun) = oneshot::channel();
    tokio::spawn(TurnSession::new(app, number, place, lines).run(first));
    begun.await.map_err(|_| ApiError::new(ErrorCode::Unavailable, "the server is ending"))??;
    let body = Body::from_stream(ReceiverStream::new(told).map(Ok::<Vec<u8>, Infallible>));
    Ok(([(header::CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// Work of one shape in a queue. No step has an empty name.
fn signature(queue: &str, shape: String) -> Signature {
    Signature { queue: queue.to_owned(), step: String::new(), shape }
}

fn machine_need(machine: &str) -> Need {
    Need { key: MACHINE.to_owned(), any_of: [machine.to_owned()].into() }
}

/// Finds out that the machine has a worker. A server that was just started waits for its first one, which may be about to
/// come.
async fn find_worker(app: &App, machine: &str) -> Result<(), ApiError> {
    let until = app.shared.client_turns.first_worker_by();
    let mut news = None;
    loop {
        let need = machine_need(machine);
        let look = move |engine: &Engine| {
            let mut here = engine.workers().index().holders(&need).filter_map(|id| engine.workers().get(id));
            (here.any(|worker| worker.is_present()), engine.workers().present().next().is_some())
        };
        let (is_there, has_others) = app.handle.query(look).await?;
        if is_there {
            return Ok(());
        }
        if has_others || Instant::now() >= until {
            return Err(no_worker(machine));
        }
        match &mut news {
            // What came before this is seen by the next look.
            None => news = Some(app.handle.subscribe()),
            Some(news) => _ = tokio::time::timeout_at(until.into(), news.recv()).await,
        }
    }
}

/// There is no worker on the machine, or none that is large enough.
fn no_worker(machine: &str) -> ApiError {
    let why = format!("no worker on the machine '{machine}' could have it");
    ApiError::new(ErrorCode::CannotBePlaced, why)
        .hint("'windlass workers' lists the workers; 'windlass worker start' starts one")
}

fn place_of(request: &TurnRequest, user: &str, queue: &str, signatures: &[Signature]) -> PlaceRequest {
    // In a queue of several users these take turns with each other, however many worktrees each has.
    let turn_of = request.worktree.as_deref().filter(|_| queue == user).unwrap_or(user);
    let cpu = (request.cpus.unwrap_or(1.0) * 100.0).round() as u32;
    // What a command holds that runs already is what it was booked with, by its shape.
    let is_named = request.memory.is_some() && request.held.is_none();
    PlaceRequest {
        queue: queue.to_owned(),
        turn_of: Some(turn_of.to_owned()),
        amounts: Resources::new(cpu, request.memory.unwrap_or(0)),
        shapes: if is_named { Vec::new() } else { signatures.to_vec() },
        needs: vec![machine_need(&request.machine)],
        limits: request.limits.clone(),
        wait_max_ms: request.wait_max_ms.unwrap_or(WAIT_MS_MAX).min(WAIT_MS_MAX),
        ..PlaceRequest::default()
    }
}

/// A client comes again before the loss of its connection was noticed: what it had counts no more. True if it had room.
async fn give_back(app: &App, number: u64, user: &str) -> bool {
    let turns = &app.shared.client_turns;
    if turns.get(number).is_none_or(|turn| turn.user != user) {
        return false;
    }
    let Some(Stands::Runs(alloc, _)) = turns.remove(number).map(|turn| turn.stands) else { return false };
    app.handle.tell(Event::Release { alloc }).await;
    true
}

/// Says what the command of a turn holds while it runs: its turn is booked with that, if it is more, or if nothing was known
/// of the command. At most once a second is enough.
#[utoipa::path(post, path = "/api/v1/turns/{id}/memory", tag = "workers", params(("id" = u64, Path)),
    request_body = TurnHolds, responses((status = 204, description = "Noted")))]
pub async fn holds(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(number): Path<u64>,
    JsonBody(held): JsonBody<TurnHolds>,
) -> Result<StatusCode, ApiError> {
    if let Stands::Runs(alloc, _) = own_turn(&app, &caller, number)?.stands {
        let bytes = held.memory.min(PEAK_BYTES_MAX);
        app.handle.tell(Event::OutsideWorkHolds { alloc, bytes }).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Says how the command of a turn ended: the next ones of its shape are sized by that. The turn itself ends with its
/// connection.
#[utoipa::path(post, path = "/api/v1/turns/{id}/end", tag = "workers", params(("id" = u64, Path)),
    request_body = TurnEnd, responses((status = 204, description = "Learned")))]
pub async fn end(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(number): Path<u64>,
    JsonBody(ended): JsonBody<TurnEnd>,
) -> Result<StatusCode, ApiError> {
    let signatures = own_turn(&app, &caller, number)?.signatures;
    if let Some(sample) = sample_of(&ended)
        && !signatures.is_empty()
    {
        app.handle.tell(Event::OutsideWorkEnded { signatures, sample }).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The turn of that number, for its own client.
fn own_turn(app: &App, caller: &Caller, number: u64) -> Result<OpenTurn, ApiError> {
    let turn = app.shared.client_turns.get(number).ok_or_else(|| no_turn(number))?;
    if !caller.may_act_for(&turn.user) {
        let why = format!("turn {number} belongs to another user");
        return Err(ApiError::new(ErrorCode::Forbidden, why).hint("only its own client says what it does"));
    }
    Ok(turn)
}

/// What an end teaches; `None` of a command that failed by itself, which may have held less than one that does all of its
/// work. A booking limits nothing, so what a killed command held is all that is known of its need.
fn sample_of(ended: &TurnEnd) -> Option<Sample> {
    let peak = ended.peak_memory.filter(|bytes| *bytes > 0).map(|bytes| bytes.min(PEAK_BYTES_MAX));
    if ended.out_of_memory {
        let peak_memory = peak.map(|bytes| bytes.saturating_mul(2));
        return Some(Sample { peak_memory, oom: true, ..Sample::default() });
    }
    let wall_ms = Some(ended.wall_ms);
    (ended.exit_code == Some(0)).then(|| Sample { peak_memory: peak, wall_ms, ..Sample::default() })
}

fn no_turn(number: u64) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is no turn {number}"))
        .hint("it is over; 'windlass turns' lists those that wait and run")
}

/// Lists the turns: those that run, and those that wait. Of another user's turn others read neither the command nor the
/// worktree.
#[utoipa::path(get, path = "/api/v1/turns", tag = "workers", responses((status = 200, body = TurnList)))]
pub async fn list(State(app): State<App>, reader: Reader) -> Result<Json<TurnList>, ApiError> {
    let mut all = app.shared.client_turns.all();
    all.sort_by_key(|(number, turn)| (matches!(turn.stands, Stands::Waits(_)), turn.since, *number));
    let more = all.len().saturating_sub(LISTED_MAX);
    all.truncate(LISTED_MAX);
    let stands: Vec<_> = all.iter().map(|(number, turn)| (*number, turn.stands.clone())).collect();
    let look = move |engine: &Engine| {
        let (mut known, mut waiting) = (Known::default(), 0);
        let seen = stands.into_iter().map(|(number, stands)| {
            waiting += usize::from(matches!(stands, Stands::Waits(_)));
            let known = (waiting <= REASONS_MAX).then_some(&mut known);
            (number, SeenTurn::of(engine, &stands, known))
        });
        seen.collect::<BTreeMap<u64, SeenTurn>>()
    };
    let mut seen = app.handle.query(look).await?;
    let turns = all.iter().map(|(number, turn)| {
        let mut shown = turn.view(*number);
        let SeenTurn { booked, held, why } = seen.remove(number).unwrap_or_default();
        (shown.memory, shown.held_memory, shown.why) = (booked, held, why);
        if !reader.may_read(&turn.user) {
            (shown.command, shown.worktree) = (None, None);
        }
        shown
    });
    Ok(Json(TurnList { turns: turns.collect(), more }))
}

/// What the engine knows of a turn.
#[derive(Default)]
struct SeenTurn {
    /// Bytes that are booked for it, or will be.
    booked: Option<u64>,
    /// Bytes that its command holds.
    held: Option<u64>,
    why: Option<String>,
}

impl SeenTurn {
    /// With the reason for which it waits, where there is something to find that out with.
    fn of(engine: &Engine, stands: &Stands, known: Option<&mut Known>) -> SeenTurn {
        match stands {
            Stands::Waits(None) => SeenTurn::default(),
            Stands::Waits(Some(request)) => SeenTurn {
                booked: engine.places().will_book(*request),
                held: None,
                why: known.and_then(|known| said_reason(engine, *request, known)),
            },
            Stands::Runs(alloc, _) => {
                let place = engine.places().get(*alloc);
                SeenTurn {
                    booked: place.map(|place| place.amounts.memory).filter(|bytes| *bytes > 0),
                    held: place.and_then(|place| place.memory.held_bytes),
                    why: None,
                }
            }
        }
    }
}

/// Says why a turn waits, which turns and tasks hold its machine, and what would help; or where it has its room.
#[utoipa::path(get, path = "/api/v1/turns/{id}/why", tag = "workers", params(("id" = u64, Path)), responses(
    (status = 200, body = Why)))]
pub async fn why(
    State(app): State<App>,
    reader: Reader,
    Path(number): Path<u64>,
) -> Result<Json<Why>, ApiError> {
    let turn = app.shared.client_turns.get(number).ok_or_else(|| no_turn(number))?;
    let holders = match turn.stands {
        Stands::Waits(_) => holding_turns(&app, &reader, &turn.machine),
        Stands::Runs(..) => Vec::new(),
    };
    let need = machine_need(&turn.machine);
    let look = move |engine: &Engine| {
        let (found, unknown) = match turn.stands {
            Stands::Waits(request) => {
                (explain::waiting_request(engine, request?), explain::unknown_memory(engine, request?))
            }
            Stands::Runs(alloc, _) => (explain::held_place(engine, alloc), None),
        };
        let is_of_room = found.as_ref().is_some_and(|found| found.reason.is_of_room());
        let policy = engine.planner().policy().name();
        let named = name_of(engine);
        let by_number = |id: u64| named(WorkerId(id));
        let mut why = Why::from_core(format!("turn:{number}"), found?, policy, by_number);
        unknown.into_iter().for_each(|unknown| why.message.push_str(&format!("; {unknown}")));
        if is_of_room {
            say_holders(engine, &need, holders, &mut why.message);
        }
        Some(why)
    };
    let why = app.handle.ask_copy(look).await?;
    why.map(Json).ok_or_else(|| no_turn(number))
}

/// The turns that hold room on a machine.
fn holding_turns(app: &App, reader: &Reader, machine: &str) -> Vec<(AllocId, String)> {
    let all = app.shared.client_turns.all().into_iter().filter(|(_, turn)| turn.machine == machine);
    let say = |(number, turn): (u64, OpenTurn)| {
        let Stands::Runs(alloc, _) = turn.stands else { return None };
        let command = turn.command.filter(|_| reader.may_read(&turn.user));
        let command = command.map(|command| format!(" ({command})")).unwrap_or_default();
        Some((alloc, format!("turn {number} of {}{command}", turn.user)))
    };
    all.filter_map(say).collect()
}

/// Adds who holds the workers of a machine: some of its tasks, and those of these turns that have most memory.
fn say_holders(engine: &Engine, need: &Need, mut turns: Vec<(AllocId, String)>, message: &mut String) {
    let here = engine.workers().index().holders(need).filter_map(|id| engine.workers().get(id));
    let tasks = here.flat_map(|worker| worker.booked.running().iter().copied());
    let tasks = tasks.filter_map(|task| {
        let job = engine.job(task.job)?;
        Some(format!("task {task} of {}", job.spec.user))
    });
    let booked = |alloc: AllocId| engine.places().get(alloc).map_or(0, |place| place.amounts.memory);
    turns.sort_by_key(|(alloc, _)| Reverse(booked(*alloc)));
    let turns = turns.into_iter().take(HOLDERS_MAX).map(|(alloc, turn)| match booked(alloc) {
        0 => turn,
        bytes => format!("{turn}, {}", Bytes(bytes)),
    });
    let all: Vec<String> = tasks.take(HOLDERS_MAX).chain(turns).collect();
    if !all.is_empty() {
        message.push_str(&format!("; there run {}", all.join("; ")));
    }
}

#[cfg(test)]
mod tests;
