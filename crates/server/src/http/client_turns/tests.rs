//! Turns against an engine, on a server that nobody connects to.

use super::*;
use crate::auth::{Auth, Rights, Role};
use crate::config::Config;
use crate::connections::RoomLimits;
use crate::gateway::Gateways;
use crate::grpc::WorkerTerms;
use crate::http::{ServeOptions, app_for_tests};
use crate::link::{Delivery, WorkerLink, WorkerMessage};
use crate::shell::{self, ShellOptions};
use axum::body::{BodyDataStream, Bytes};
use std::sync::Arc;
use std::time::Duration;
use windlass_api::{ClientTurn, HeldTurn, TurnLine, TurnState};
use windlass_core::engine::{CheckedHello, Hello};
use windlass_store::Store;

const GIB: u64 = 1 << 30;
/// Only a hung test waits for so long.
const PATIENCE: Duration = Duration::from_secs(60);

struct DeafLink(u64);

impl WorkerLink for DeafLink {
    fn id(&self) -> u64 {
        self.0
    }

    fn deliver(&self, _parcel: Vec<Delivery>) {}

    fn refuse(&self, _why: &str) {}
}

async fn app_without_workers() -> App {
    let (store, config) = (Store::open("memory").unwrap(), Config::default());
    let handle =
        shell::start(store.clone(), ShellOptions { settings: config.engine_settings() }).await.unwrap();
    let options = ServeOptions {
        store: "memory".to_owned(),
        auth: Auth::load(&store, true, "root".to_owned()).await.unwrap(),
        audit: None,
        idle: None,
        terms: WorkerTerms { lease: None, report: Duration::from_secs(1) },
        gateways: Gateways::default(),
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
    app_for_tests(&handle, options).0
}

/// A worker of one core comes, on the machine `box`.
async fn join(app: &App) {
    let link = app.handle.next_link();
    let attributes = [("host".to_owned(), ["box".to_owned()].into())].into();
    let hello = Hello { attributes, ..Hello::new("w", 1, Resources::new(100, 8 * GIB)) };
    let hello = CheckedHello::of_agent(hello, &[]).unwrap();
    let said = WorkerMessage::Hello { hello, link: Arc::new(DeafLink(link)) };
    assert!(app.handle.worker_tells(link, vec![said]).await);
}

/// A server with that worker.
async fn app() -> App {
    let app = app_without_workers().await;
    join(&app).await;
    app
}

fn caller(user: &str) -> Extension<Caller> {
    let rights = Rights::default();
    Extension(Caller { user: user.to_owned(), role: Role::User, worker: None, token: None, rights })
}

fn asks() -> TurnRequest {
    TurnRequest { machine: "box".to_owned(), ..TurnRequest::default() }
}

/// The lines of a turn that is held until this is dropped.
struct Lines(BodyDataStream);

impl Lines {
    async fn next(&mut self) -> TurnLine {
        loop {
            let part = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("a line comes");
            let part: Bytes = part.expect("the answer goes on").unwrap();
            if part.as_ref() != b"\n" {
                return serde_json::from_slice(&part).unwrap();
            }
        }
    }

    async fn runs(&mut self) -> TurnLine {
        loop {
            let line = self.next().await;
            if line.state == TurnState::Runs {
                return line;
            }
        }
    }
}

async fn ask(app: &App, user: &str, request: TurnRequest) -> Result<Lines, ErrorCode> {
    let answer = take(State(app.clone()), caller(user), JsonBody(request)).await;
    answer.map(|answer| Lines(answer.into_body().into_data_stream())).map_err(|error| error.code())
}

async fn listed(app: &App, user: &str) -> Vec<ClientTurn> {
    let answer = list(State(app.clone()), Reader::for_user(user, false)).await;
    answer.unwrap_or_else(|error| panic!("{error}")).0.turns
}

async fn until(what: impl AsyncFn() -> bool) {
    let waited = async {
        while !what().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waited).await.is_ok(), "it does not come to that");
}

/// How many places the engine has given.
async fn held(app: &App) -> usize {
    app.handle.query(|engine| engine.places().held().count()).await.unwrap()
}

#[tokio::test]
async fn a_turn_lasts_as_long_as_its_connection_and_leaves_nothing() {
    let app = app().await;
    let mut first = ask(&app, "ann", asks()).await.unwrap();
    let line = first.runs().await;
    assert_eq!((line.worker.as_deref(), line.memory), (Some("w"), None));
    let second = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, "ann", asks()).await }
    });
    until(async || listed(&app, "ann").await.iter().any(|turn| turn.state == TurnState::Waits)).await;
    drop(first);
    let mut second = second.await.unwrap().unwrap();
    assert_ne!(second.runs().await.turn, line.turn);
    drop(second);
    until(async || held(&app).await == 0 && app.shared.client_turns.len() == 0).await;
    // One that is gone while it waits is not given anything.
    let holds = ask(&app, "ann", asks()).await.unwrap();
    let waits = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, "ann", asks()).await }
    });
    until(async || app.shared.client_turns.len() == 2).await;
    waits.abort();
    until(async || app.shared.client_turns.len() == 1).await;
    drop(holds);
    until(async || held(&app).await == 0).await;
    let waiting = app.handle.query(|engine| engine.places().waiting_count()).await.unwrap();
    assert_eq!(waiting, 0);
    app.handle.stop().await;
}

#[tokio::test]
async fn a_server_that_was_just_started_waits_for_its_first_worker() {
    let app = app_without_workers().await;
    let listeners = app.handle.parts().events.listeners();
    let asked = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, "ann", asks()).await }
    });
    until(async || app.handle.parts().events.listeners() > listeners).await;
    join(&app).await;
    assert_eq!(asked.await.unwrap().unwrap().runs().await.worker.as_deref(), Some("w"));
    app.handle.stop().await;
}

#[tokio::test]
async fn a_turn_is_refused_where_its_user_or_its_machine_has_none() {
    let app = app().await;
    let refused = async |user: &str, request| ask(&app, user, request).await.err();
    let queue = |name: &str| TurnRequest { queue: Some(name.to_owned()), ..asks() };
    assert_eq!(refused("bob", queue("ann")).await, Some(ErrorCode::Forbidden));
    let elsewhere = TurnRequest { machine: "other".to_owned(), ..asks() };
    assert_eq!(refused("ann", elsewhere).await, Some(ErrorCode::CannotBePlaced));
    let large = TurnRequest { cpus: Some(2.0), ..asks() };
    assert_eq!(refused("ann", large).await, Some(ErrorCode::CannotBePlaced));
    let bad = TurnRequest { cpus: Some(-1.0), ..asks() };
    assert_eq!(refused("ann", bad).await, Some(ErrorCode::BadRequest));
    let unset = TurnRequest { limits: ["link".to_owned()].into(), ..asks() };
    assert_eq!(refused("ann", unset).await, Some(ErrorCode::BadRequest));
    let _holds = ask(&app, "ann", asks()).await.unwrap();
    let at_once = TurnRequest { wait_max_ms: Some(0), ..asks() };
    assert_eq!(refused("ann", at_once).await, Some(ErrorCode::Conflict));
    app.handle.stop().await;
}

#[tokio::test]
async fn the_end_of_a_turn_sizes_the_next_ones_of_its_shape() {
    let app = app().await;
    let of =
        |shape: &[&str]| TurnRequest { shape: shape.iter().map(ToString::to_string).collect(), ..asks() };
    let mut first = ask(&app, "ann", of(&["rustc|link|app", "rustc|link"])).await.unwrap();
    let number = first.runs().await.turn;
    let ended = TurnEnd { peak_memory: Some(GIB), wall_ms: 900, exit_code: Some(0), out_of_memory: false };
    let say = async |user: &str| {
        let answer = end(State(app.clone()), caller(user), Path(number), JsonBody(ended.clone())).await;
        answer.map_err(|error| error.code())
    };
    assert_eq!(say("bob").await, Err(ErrorCode::Forbidden));
    assert_eq!(say("ann").await, Ok(StatusCode::NO_CONTENT));
    drop(first);
    until(async || app.shared.client_turns.len() == 0).await;
    assert_eq!(say("ann").await, Err(ErrorCode::NotFound));
    let mut known = ask(&app, "ann", of(&["rustc|link|other", "rustc|link"])).await.unwrap();
    let memory = known.runs().await.memory;
    assert!(memory.is_some_and(|bytes| (GIB..2 * GIB).contains(&bytes)), "{memory:?}");
    drop(known);
    // What the client names counts.
    let named = TurnRequest { memory: Some(3 * GIB), ..of(&["rustc|link"]) };
    assert_eq!(ask(&app, "ann", named).await.unwrap().runs().await.memory, Some(3 * GIB));
    app.handle.stop().await;
}

#[test]
fn only_a_whole_run_and_a_kill_for_memory_teach() {
    let ended =
        |exit_code, out_of_memory| TurnEnd { peak_memory: Some(GIB), wall_ms: 900, exit_code, out_of_memory };
    assert_eq!(sample_of(&ended(Some(1), false)), None);
    assert_eq!(sample_of(&ended(None, false)), None);
    let whole = Sample { peak_memory: Some(GIB), wall_ms: Some(900), ..Sample::default() };
    assert_eq!(sample_of(&ended(Some(0), false)), Some(whole));
    let killed = Sample { peak_memory: Some(2 * GIB), oom: true, ..Sample::default() };
    assert_eq!(sample_of(&ended(Some(137), true)), Some(killed));
}

#[tokio::test]
async fn a_turn_of_which_nothing_is_known_is_booked_with_a_part_and_with_what_it_holds() {
    let app = app().await;
    let unknown = TurnRequest { shape: vec!["ld|link|a".to_owned(), "ld|link".to_owned()], ..asks() };
    let mut turn = ask(&app, "ann", unknown.clone()).await.unwrap();
    let line = turn.runs().await;
    assert_eq!(line.memory, Some(4 * GIB), "half of what is free");
    let say = async |user: &str, memory| {
        let held = JsonBody(TurnHolds { memory });
        let answer = holds(State(app.clone()), caller(user), Path(line.turn), held).await;
        answer.map_err(|error| error.code())
    };
    let told = async || {
        let shown = listed(&app, "ann").await.remove(0);
        (shown.memory, shown.held_memory)
    };
    assert_eq!(told().await, (Some(4 * GIB), None));
    assert_eq!(say("bob", GIB).await, Err(ErrorCode::Forbidden));
    assert_eq!(say("ann", 5 * GIB).await, Ok(StatusCode::NO_CONTENT));
    assert_eq!(told().await, (Some(5 * GIB), Some(5 * GIB)));
    // Others of its kind, for which the command has the cpu already.
    let mut next = ask(&app, "ann", TurnRequest { cpus: Some(0.0), ..unknown.clone() }).await.unwrap();
    assert_eq!(next.runs().await.memory, Some(3 * GIB / 2), "half of the rest");
    let mut last = ask(&app, "ann", TurnRequest { cpus: Some(0.0), ..unknown }).await.unwrap();
    assert_eq!(last.runs().await.memory, Some(3 * GIB / 4));
    app.handle.stop().await;
}

#[tokio::test]
async fn a_limit_names_the_turns_that_hold_it() {
    let app = app().await;
    let limit = windlass_core::licences::Limit::of(1);
    let set = |request| Event::SetLimit { request, name: "link".to_owned(), limit: Some(limit) };
    app.handle.request(set).await.unwrap();
    let shown = async || {
        let shown = crate::http::limits::show(State(app.clone()), Path("link".to_owned())).await;
        shown.unwrap_or_else(|error| panic!("{error}")).0
    };
    assert_eq!(shown().await.turns, Vec::new());
    let mut turn =
        ask(&app, "ann", TurnRequest { limits: ["link".to_owned()].into(), ..asks() }).await.unwrap();
    let number = turn.runs().await.turn;
    let limit = shown().await;
    let held = windlass_api::LimitTurn { turn: number, user: "ann".to_owned(), worker: "w".to_owned() };
    assert_eq!((limit.used, limit.turns, limit.holders), (1, vec![held], Vec::new()));
    app.handle.stop().await;
}

#[tokio::test]
async fn a_client_that_comes_again_has_its_turn_once() {
    let app = app().await;
    let mut first = ask(&app, "ann", asks()).await.unwrap();
    let number = first.runs().await.turn;
    let again = |turn| TurnRequest { held: Some(HeldTurn { turn }), ..asks() };
    let mut second = ask(&app, "ann", again(number)).await.unwrap();
    assert_ne!(second.runs().await.turn, number);
    assert_eq!((held(&app).await, app.shared.client_turns.len()), (1, 1));
    drop(first);
    assert_eq!(held(&app).await, 1, "its first connection holds nothing any more");
    // Of before a restart: it runs, whatever room there is.
    let mut other = ask(&app, "bob", again(7)).await.unwrap();
    assert_eq!(other.next().await.state, TurnState::Runs);
    assert_eq!(held(&app).await, 2);
    app.handle.stop().await;
}

#[tokio::test]
async fn a_turn_that_waits_says_why_and_who_has_the_machine() {
    let app = app().await;
    let command = |text: &str| TurnRequest {
        command: Some(text.to_owned()),
        worktree: Some("/src/a".to_owned()),
        ..asks()
    };
    let mut first = ask(&app, "ann", command("cargo test")).await.unwrap();
    let holder = first.runs().await.turn;
    let mut second = ask(&app, "bob", command("make")).await.unwrap();
    let waits = second.next().await;
    assert_eq!(waits.state, TurnState::Waits);
    let told = waits.why.expect("it says why");
    assert!(told.contains("busy"), "{told}");
    let answer = |user: &str| why(State(app.clone()), Reader::for_user(user, false), Path(waits.turn));
    let said = answer("ann").await.unwrap_or_else(|error| panic!("{error}")).0;
    assert_eq!(said.task, format!("turn:{}", waits.turn));
    assert!(said.message.contains(&format!("turn {holder} of ann (cargo test)")), "{}", said.message);
    let said = answer("bob").await.unwrap_or_else(|error| panic!("{error}")).0;
    assert!(said.message.ends_with(&format!("turn {holder} of ann")), "{}", said.message);
    let shown = listed(&app, "bob").await;
    let of_ann = (shown[0].turn, shown[0].state, shown[0].command.as_deref(), shown[0].worktree.as_deref());
    assert_eq!(of_ann, (holder, TurnState::Runs, None, None));
    let of_bob = (shown[1].turn, shown[1].state, shown[1].command.as_deref());
    assert_eq!(of_bob, (waits.turn, TurnState::Waits, Some("make")));
    assert_eq!(shown[1].why.as_ref(), Some(&told));
    app.handle.stop().await;
}
