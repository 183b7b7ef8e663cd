//! One turn, from its request to the end of its connection: it waits for its place, holds it, and gives it back.

use super::App;
use super::turn_table::Stands;
use crate::api_error::ApiError;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use windlass_api::{ErrorCode, TurnLine, TurnState};
use windlass_core::client_places::{NoPlace, PlaceRequest};
use windlass_core::engine::{Event, Reply};
use windlass_core::explain::{self, Known};
use windlass_core::ids::AllocId;
use windlass_core::resources::Bytes;
use windlass_core::{Engine, RequestId, WorkerId};

/// After which a client is first told why its turn has not come, and how often the reason is looked at from then on. With
/// many turns it is looked at less often, so that the engine's work for answers stays the same.
const WHY_FIRST: Duration = Duration::from_secs(1);
const WHY_EVERY: Duration = Duration::from_secs(2);
const WHY_EVERY_PER_TURN: Duration = Duration::from_millis(20);
/// How often an empty line is sent, by which a client that is gone without a word is noticed. As often it is looked at
/// whether the place is still there: that of a worker that was lost is not.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The answer to a request for a turn, before its first line.
pub(super) type TurnBegun = oneshot::Sender<Result<(), ApiError>>;

/// A turn whose client is connected.
pub(super) struct TurnSession {
    app: App,
    number: u64,
    place: PlaceRequest,
    lines: mpsc::Sender<Vec<u8>>,
}

/// How the wait for a place ends.
enum Waited {
    Placed(AllocId, WorkerId),
    /// The client is gone, and holds nothing.
    HungUp,
    Refused(ApiError),
}

impl TurnSession {
    pub fn new(app: App, number: u64, place: PlaceRequest, lines: mpsc::Sender<Vec<u8>>) -> TurnSession {
        TurnSession { app, number, place, lines }
    }

    /// Serves the client until its connection ends. `begun` is told when the answer can begin.
    pub async fn run(mut self, begun: TurnBegun) {
        let busy = self.app.shared.front.busy();
        let mut begun = Some(begun);
        let waited = self.wait(&mut begun).await;
        match waited {
            Waited::HungUp => {}
            Waited::Refused(why) => self.refuse(begun, why),
            Waited::Placed(alloc, worker) => {
                let (worker, memory) = self.look_at(alloc, worker).await;
                self.place.amounts.memory = memory.unwrap_or(0);
                self.stands(Stands::Runs(alloc, worker.clone()));
                begin(&mut begun);
                let runs = TurnLine { memory, worker: Some(worker), ..self.line(TurnState::Runs) };
                // Without this line the client would wait for ever. A client that is gone is noticed by what follows.
                _ = self.lines.send(text_of(&runs)).await;
                self.hold(alloc).await;
            }
        }
        drop(busy);
    }

    /// Waits for the place. A client that is gone does not wait any more; what it is given all the same goes back.
    async fn wait(&self, begun: &mut Option<TurnBegun>) -> Waited {
        let handle = &self.app.handle;
        let (tell_number, mut numbered) = oneshot::channel();
        let mut asked = pin!(handle.request(asking(self.place.clone(), tell_number)));
        let (mut is_numbered, mut request) = (false, None);
        let mut why = pin!(tokio::time::sleep(WHY_FIRST));
        let mut told = String::new();
        let answer = loop {
            tokio::select! {
                // The first poll sends the request.
                biased;
                answer = &mut asked => break answer,
                number = &mut numbered, if !is_numbered => {
                    (is_numbered, request) = (true, number.ok());
                    self.stands(Stands::Waits(request));
                }
                () = self.lines.closed() => {
                    if !is_numbered {
                        request = numbered.await.ok();
                    }
                    if let Some(alloc) = request {
                        handle.tell(Event::Unalloc { alloc }).await;
                    }
                    if let Ok(Reply::Placed { alloc, .. }) = asked.await {
                        handle.tell(Event::Release { alloc }).await;
                    }
                    return Waited::HungUp;
                }
                () = handle.ends() => {
                    return Waited::Refused(ApiError::new(ErrorCode::Unavailable, "the server is ending"));
                }
                () = &mut why => {
                    begin(begun);
                    self.tell_why(request, &mut told).await;
                    why.as_mut().reset(tokio::time::Instant::now() + self.why_every());
                }
            }
        };
        match answer {
            Ok(Reply::Placed { alloc, worker }) => Waited::Placed(alloc, worker),
            Ok(Reply::NoPlace(why)) => Waited::Refused(self.no_place(why)),
            Ok(_) => Waited::Refused(ApiError::new(ErrorCode::Internal, "unexpected reply of the engine")),
            Err(why) => Waited::Refused(why.into()),
        }
    }

    fn no_place(&self, why: NoPlace) -> ApiError {
        match why {
            NoPlace::NoWorkers => {
                let (cpus, memory) = (f64::from(self.place.amounts.cpu) / 100.0, self.place.amounts.memory);
                let memory = if memory > 0 { format!(" and {}", Bytes(memory)) } else { String::new() };
                let why = format!("no worker of this machine has {cpus} cpus{memory} for it");
                ApiError::new(ErrorCode::CannotBePlaced, why)
                    .hint("ask for less; 'windlass workers' shows what they have")
            }
            NoPlace::Expired => {
                ApiError::new(ErrorCode::Conflict, "its turn did not come within the time that it may wait")
            }
            NoPlace::TooMany => ApiError::new(ErrorCode::Unavailable, "too many turns wait; try again"),
            NoPlace::Withdrawn => ApiError::new(ErrorCode::Conflict, "it waits no more"),
        }
    }

    fn refuse(&self, begun: Option<TurnBegun>, why: ApiError) {
        match begun {
            // Nobody listens to that where the client is gone.
            Some(begun) => _ = begun.send(Err(why)),
            // The server ends. A stream that only ends has its client ask the next one.
            None if why.code() == ErrorCode::Unavailable => {}
            None => self.tell(&TurnLine { why: Some(why.to_string()), ..self.line(TurnState::Refused) }),
        }
    }

    /// Holds the place until the client's connection ends, or the server does.
    async fn hold(&self, mut alloc: AllocId) {
        let handle = &self.app.handle;
        loop {
            tokio::select! {
                () = self.lines.closed() => break,
                () = handle.ends() => break,
                () = tokio::time::sleep(LOOK_EVERY) => {
                    self.keep_open();
                    alloc = self.held_again(alloc).await.unwrap_or(alloc);
                }
            }
        }
        handle.tell(Event::Release { alloc }).await;
    }

    /// The place in the stead of one that went with its worker, once the machine has a worker again. The command has run
    /// on meanwhile.
    async fn held_again(&self, alloc: AllocId) -> Option<AllocId> {
        let handle = &self.app.handle;
        let is_held = handle.query(move |engine| engine.places().get(alloc).is_some()).await.ok()?;
        if is_held {
            return None;
        }
        // The client may have come again by another connection, which holds the place now.
        self.app.shared.client_turns.get(self.number)?;
        let place = PlaceRequest { runs: true, ..self.place.clone() };
        let ask = move |request| Event::Alloc { request, place: Box::new(place) };
        let Ok(Reply::Placed { alloc, worker }) = handle.request(ask).await else { return None };
        let (worker, _) = self.look_at(alloc, worker).await;
        self.stands(Stands::Runs(alloc, worker));
        Some(alloc)
    }

    fn stands(&self, stands: Stands) {
        self.app.shared.client_turns.stands(self.number, stands, self.app.handle.now());
    }

    /// The name of the worker of a place, and the bytes that are booked for that.
    async fn look_at(&self, alloc: AllocId, worker: WorkerId) -> (String, Option<u64>) {
        let look = move |engine: &Engine| {
            let booked = engine.places().get(alloc).map(|place| place.amounts.memory);
            (name_of(engine)(worker), booked.filter(|bytes| *bytes > 0))
        };
        self.app.handle.query(look).await.unwrap_or_default()
    }

    /// Sends an empty line. Where the connection is broken, this shows it.
    fn keep_open(&self) {
        _ = self.lines.try_send(b"\n".to_vec());
    }

    /// Tells the client why it waits, where that is not what it was `told` before.
    async fn tell_why(&self, request: Option<RequestId>, told: &mut String) {
        let Some(request) = request else { return };
        let say = move |engine: &Engine| said_reason(engine, request, &mut Known::default());
        let now = self.app.handle.query(say).await.ok().flatten();
        match now.filter(|now| now.as_str() != told.as_str()) {
            Some(now) => {
                told.clone_from(&now);
                self.tell(&TurnLine { why: Some(now), ..self.line(TurnState::Waits) });
            }
            None => self.keep_open(),
        }
    }

    fn why_every(&self) -> Duration {
        let turns = u32::try_from(self.app.shared.client_turns.len()).unwrap_or(u32::MAX);
        WHY_EVERY.max(WHY_EVERY_PER_TURN.saturating_mul(turns))
    }

    fn line(&self, state: TurnState) -> TurnLine {
        TurnLine { turn: self.number, state, why: None, memory: None, worker: None }
    }

    /// A client that does not read loses such lines.
    fn tell(&self, line: &TurnLine) {
        _ = self.lines.try_send(text_of(line));
    }
}

impl Drop for TurnSession {
    fn drop(&mut self) {
        self.app.shared.client_turns.remove(self.number);
    }
}

fn text_of(line: &TurnLine) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The event of a request for a place, whose number is told.
fn asking(
    place: PlaceRequest,
    tell_number: oneshot::Sender<RequestId>,
) -> impl FnOnce(RequestId) -> Event + Send + 'static {
    move |request| {
        // Nobody waits for it any more where the answer was not waited for.
        _ = tell_number.send(request);
        Event::Alloc { request, place: Box::new(place) }
    }
}

fn begin(begun: &mut Option<TurnBegun>) {
    if let Some(begun) = begun.take() {
        // The client may be gone.
        _ = begun.send(Ok(()));
    }
}

/// Why a request waits, as a sentence for people.
pub(super) fn said_reason(engine: &Engine, request: RequestId, known: &mut Known) -> Option<String> {
    let mut said = explain::request_reason(engine, request, known)?.say(name_of(engine)).1;
    let unknown = explain::unknown_memory(engine, request);
    unknown.into_iter().for_each(|unknown| said.push_str(&format!("; {unknown}")));
    Some(said)
}

/// The names of workers.
pub(super) fn name_of(engine: &Engine) -> impl Fn(WorkerId) -> String + '_ {
    move |id| engine.workers().get(id).map(|worker| worker.record.name.clone()).unwrap_or_default()
}
