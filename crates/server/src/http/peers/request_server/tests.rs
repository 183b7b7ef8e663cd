//! Requests of other servers whose answers are lost. The store is in memory, and plays the part of the database.

use super::*;
use crate::auth::{Auth, Role};
use crate::config::Config;
use crate::connections::RoomLimits;
use crate::gateway::Gateways;
use crate::grpc::WorkerTerms;
use crate::handle::Handle;
use crate::http::{self, ServeOptions};
use crate::link::{Delivery, WorkerLink, WorkerMessage};
use crate::peers::ServerKey;
use crate::shell::{self, ShellOptions};
use axum::body::Bytes;
use serde_json::{Value, json};
use windlass_core::engine::{CheckedHello, Hello, Outbox, Write};
use windlass_core::{Resources, WorkerId};
use windlass_store::{DoneRequest, ServerId};

struct QuietLink(u64);

impl WorkerLink for QuietLink {
    fn id(&self) -> u64 {
        self.0
    }

    fn deliver(&self, _parcel: Vec<Delivery>) {}

    fn refuse(&self, _why: &str) {}
}

/// Method, path and body.
type AskedFor = (&'static str, String, Value);

/// A server that owns the farm.
struct TestOwner {
    handle: Handle,
    runner: RequestRunner,
}

impl TestOwner {
    async fn start(store: &Store, key: &ServerKey) -> TestOwner {
        let config = Config::default();
        let options = ShellOptions { settings: config.engine_settings() };
        let handle = shell::start(store.clone(), options).await.unwrap();
        let options = ServeOptions {
            store: "memory".to_owned(),
            auth: Auth::load(store, true, "root".to_owned()).await.unwrap(),
            audit: None,
            idle: None,
            terms: WorkerTerms { lease: None, report: Duration::from_secs(1) },
            gateways: Gateways::default(),
            files: None,
            room: RoomLimits::new(None, None),
            user_limits: config.users.clone(),
            read_all: true,
            audit_files: 1,
            board: config.board.clone(),
            queues: BTreeMap::new(),
            scaling: config.scaling.settings(),
            key: Some(key.clone()),
            users: None,
        };
        let (app, routes) = http::app_for_tests(&handle, options);
        TestOwner { handle, runner: RequestRunner { app, routes, keys: KeysUnderWay::default() } }
    }

    /// The answer to a request of another server; `None` if it is left for later.
    async fn try_ask(&self, key: Option<&str>, (method, uri, body): &AskedFor) -> Option<(u16, Bytes)> {
        let head = RequestHead {
            method: (*method).to_owned(),
            uri: uri.clone(),
            content_type: Some("application/json".to_owned()),
            user: "root".to_owned(),
            role: Role::Admin,
            worker: None,
            token: None,
            session: None,
            peer: "unix".to_owned(),
            key: key.map(str::to_owned),
            one_part: false,
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let asked = Asked {
            id: AskId(1),
            by: ServerId(7),
            server: "two".to_owned(),
            kind: REQUEST_KIND.to_owned(),
            body: request_rows::pack_request(&head, body.as_bytes()),
            signature: None,
            verify_key: None,
        };
        let (status, row) = self.runner.answer(asked).await?;
        let answer = request_rows::unpack_answer(status, row).unwrap();
        Some((answer.status().as_u16(), answer.into_body()))
    }

    async fn ask(&self, key: &str, said: &AskedFor) -> (u16, Bytes) {
        self.try_ask(Some(key), said).await.expect("the store and the engine are there")
    }

    async fn done(&self, key: &str, said: &AskedFor) -> Value {
        let (status, body) = self.ask(key, said).await;
        assert!((200..300).contains(&status), "{said:?}: {status} {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// What the farm says at a place of an answer.
    async fn shown(&self, path: &str, pointer: &str) -> Value {
        let (status, body) = self.try_ask(None, &("GET", path.to_owned(), Value::Null)).await.unwrap();
        assert_eq!(status, 200, "{path}");
        serde_json::from_slice::<Value>(&body).unwrap().pointer(pointer).cloned().unwrap_or_default()
    }

    async fn worker_says_hello(&self, name: &str) {
        let link = self.handle.next_link();
        let hello = CheckedHello::of_agent(Hello::new(name, 1, Resources::new(100, 0)), &[]).unwrap();
        let said = WorkerMessage::Hello { hello, link: Arc::new(QuietLink(link)) };
        assert!(self.handle.worker_tells(link, vec![said]).await);
    }

    async fn jobs(&self) -> usize {
        self.shown("/api/v1/jobs", "/items").await.as_array().unwrap().len()
    }
}

fn submit() -> AskedFor {
    ("POST", "/api/v1/jobs".to_owned(), json!({ "steps": [{ "command": ["true"], "cwd": "/" }] }))
}

fn post(path: String) -> AskedFor {
    ("POST", path, Value::Null)
}

/// A request whose answer is lost.
struct Case {
    /// What makes it possible.
    before: Option<AskedFor>,
    lost: AskedFor,
    /// What another client asks before the lost one comes again.
    then: AskedFor,
    /// Where it shows that the lost one was not done again: a path, and a place in the answer.
    shown: (String, &'static str),
}

/// A case for each kind of request about a job, a queue or a limit. `jobs` are jobs that wait.
fn cases(jobs: &[u64]) -> Vec<Case> {
    let of = |n: usize, verb: &str| format!("/api/v1/jobs/{}/{verb}", jobs[n]);
    let job = |n: usize, place: &'static str| (format!("/api/v1/jobs/{}", jobs[n]), place);
    let case = |before, lost, then, shown| Case { before, lost, then, shown };
    let (queue, limit) = ("/api/v1/queues/q".to_owned(), |name: &str| format!("/api/v1/limits/{name}"));
    vec![
        case(None, post(of(0, "cancel")), post(of(0, "retry")), job(0, "/state")),
        case(Some(post(of(1, "cancel"))), post(of(1, "retry")), post(of(1, "cancel")), job(1, "/state")),
        case(None, post(of(2, "hold")), post(of(2, "release")), job(2, "/state")),
        case(Some(post(of(3, "hold"))), post(of(3, "release")), post(of(3, "hold")), job(3, "/state")),
        case(
            None,
            ("POST", of(4, "priority"), json!({ "priority": 5 })),
            ("POST", of(4, "priority"), json!({ "priority": 7 })),
            job(4, "/priority"),
        ),
        case(
            None,
            ("PUT", queue.clone(), json!({ "weight": 50 })),
            ("PUT", queue.clone(), json!({ "weight": 60 })),
            (queue, "/weight"),
        ),
        case(
            None,
            ("PUT", limit("set"), json!({ "max": 3 })),
            ("PUT", limit("set"), json!({ "max": 4 })),
            (limit("set"), "/max"),
        ),
        case(
            Some(("PUT", limit("removed"), json!({ "max": 3 }))),
            ("DELETE", limit("removed"), Value::Null),
            ("PUT", limit("removed"), json!({ "max": 9 })),
            (limit("removed"), "/max"),
        ),
    ]
}

/// The same of a worker.
fn worker_cases() -> Vec<Case> {
    let of = |verb: &str| post(format!("/api/v1/workers/w/{verb}"));
    let shown = ("/api/v1/workers/w".to_owned(), "/state");
    vec![
        Case { before: None, lost: of("drain"), then: of("resume"), shown: shown.clone() },
        Case { before: Some(of("drain")), lost: of("resume"), then: of("drain"), shown },
    ]
}

/// Asks all that the cases say, and asks again for what was lost. Returns what the farm shows after each.
async fn lose_answers(owner: &TestOwner, name: &str, cases: &[Case]) -> Vec<Value> {
    let mut shown = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let key = |which: &str| format!("{name}-{which}-{number}");
        if let Some(before) = &case.before {
            owner.done(&key("before"), before).await;
        }
        let (status, _) = owner.ask(&key("lost"), &case.lost).await;
        assert!((200..300).contains(&status), "{:?}: {status}", case.lost);
        owner.done(&key("then"), &case.then).await;
        let (path, place) = &case.shown;
        let before = owner.shown(path, place).await;
        let (again, body) = owner.ask(&key("lost"), &case.lost).await;
        let said = String::from_utf8_lossy(&body);
        assert_eq!(again, status, "{:?} answers as if it had not been lost: {said}", case.lost);
        let after = owner.shown(path, place).await;
        assert_eq!(after, before, "{:?} was done again", case.lost);
        shown.push(after);
    }
    shown
}

#[tokio::test]
async fn each_kind_of_request_is_done_once_although_its_answer_is_lost() {
    let (store, key) = (Store::open("memory").unwrap(), ServerKey::new().unwrap());
    let owner = TestOwner::start(&store, &key).await;
    let mut jobs = Vec::new();
    for number in 0..5 {
        let submission = format!("submission-{number}");
        let (status, first) = owner.ask(&submission, &submit()).await;
        assert_eq!(status, 201);
        assert_eq!(owner.ask(&submission, &submit()).await, (201, first.clone()), "it is not there before");
        jobs.push(serde_json::from_slice::<Value>(&first).unwrap()["job"].as_u64().unwrap());
    }
    let cases = cases(&jobs);
    let shown = lose_answers(&owner, "farm", &cases).await;
    let expected = [
        json!("pending"),
        json!("canceled"),
        json!("pending"),
        json!("held"),
        json!(7),
        json!(60),
        json!(4),
        json!(9),
    ];
    assert_eq!(shown, expected);
    // Jobs that wait would be started on the worker.
    for (number, job) in jobs.iter().enumerate().filter(|(number, _)| *number != 1) {
        owner.done(&format!("end-{number}"), &post(format!("/api/v1/jobs/{job}/cancel"))).await;
    }
    owner.worker_says_hello("w").await;
    assert_eq!(lose_answers(&owner, "worker", &worker_cases()).await, [json!("up"), json!("draining")]);
    let forget = post("/api/v1/workers/w/forget?force=true".to_owned());
    let forgotten = owner.ask("forget", &forget).await;
    assert_eq!((forgotten.0, owner.ask("forget", &forget).await), (200, forgotten.clone()));
    assert_eq!(owner.ask("forget-2", &forget).await.0, 404, "another request is not that one");
    // The next owner has the database alone.
    owner.handle.stop().await;
    let next = TestOwner::start(&store, &key).await;
    for (number, case) in cases.iter().enumerate() {
        let (path, place) = &case.shown;
        let before = next.shown(path, place).await;
        let again = next.ask(&format!("farm-lost-{number}"), &case.lost).await.0;
        assert!((200..300).contains(&again), "{:?}: {again}", case.lost);
        assert_eq!(next.shown(path, place).await, before, "{:?} was done again", case.lost);
    }
    assert_eq!(next.ask("forget", &forget).await, forgotten);
    assert_eq!(next.ask("submission-0", &submit()).await.0, 201);
    assert_eq!(next.jobs().await, jobs.len());
    next.handle.stop().await;
}

#[tokio::test]
async fn a_submission_with_a_key_of_its_client_says_whether_that_was_there_before() {
    let (store, key) = (Store::open("memory").unwrap(), ServerKey::new().unwrap());
    let owner = TestOwner::start(&store, &key).await;
    let (method, path, mut body) = submit();
    body["key"] = json!("the client's");
    let submission = (method, path, body);
    let existing = async |key: &str| {
        let (status, body) = owner.ask(key, &submission).await;
        (status, serde_json::from_slice::<Value>(&body).unwrap()["existing"].clone())
    };
    assert_eq!(existing("one").await, (201, json!(false)));
    assert_eq!(existing("one").await, (201, json!(false)), "its answer was lost");
    assert_eq!(existing("two").await, (200, json!(true)), "the client asks again");
    assert_eq!(owner.jobs().await, 1);
    owner.handle.stop().await;
}

#[tokio::test]
async fn a_request_that_was_refused_has_done_nothing_and_may_be_done_later() {
    let (store, key) = (Store::open("memory").unwrap(), ServerKey::new().unwrap());
    let owner = TestOwner::start(&store, &key).await;
    let job = owner.done("submission", &submit()).await["job"].clone();
    let retry = post(format!("/api/v1/jobs/{job}/retry"));
    assert_eq!(owner.ask("retry", &retry).await.0, 409, "nothing failed");
    assert_eq!(owner.ask("retry", &retry).await.0, 409);
    owner.done("cancel", &post(format!("/api/v1/jobs/{job}/cancel"))).await;
    assert_eq!(owner.ask("retry", &retry).await.0, 200);
    owner.handle.stop().await;
}

#[tokio::test]
async fn a_request_waits_while_one_of_its_key_is_being_done() {
    let (store, key) = (Store::open("memory").unwrap(), ServerKey::new().unwrap());
    let owner = TestOwner::start(&store, &key).await;
    let turn = owner.runner.keys.take("submission").unwrap();
    assert_eq!(owner.try_ask(Some("submission"), &submit()).await, None);
    assert_eq!(owner.ask("another", &submit()).await.0, 201);
    drop(turn);
    assert_eq!(owner.ask("submission", &submit()).await.0, 201);
    assert_eq!(owner.jobs().await, 2);
    owner.handle.stop().await;
}

#[tokio::test]
async fn a_row_that_no_server_signed_does_not_pass_for_a_request_that_was_done() {
    let (store, key) = (Store::open("memory").unwrap(), ServerKey::new().unwrap());
    let owner = TestOwner::start(&store, &key).await;
    let other = ServerKey::new().unwrap();
    let answer = b"\"done\"".to_vec();
    let signature = other.sign_done(store.id(), ServerId(0), "cancel", &answer);
    let forged = DoneRequest { key: "cancel".to_owned(), job: None, answer, by: ServerId(0), signature };
    let batch = Outbox { writes: vec![Write::WorkerGone(WorkerId(99))], ..Outbox::default() };
    store.commit_with(Arc::new(batch), vec![forged]).await.unwrap();
    let job = owner.done("submission", &submit()).await["job"].clone();
    let cancel = post(format!("/api/v1/jobs/{job}/cancel"));
    let (status, body) = owner.ask("cancel", &cancel).await;
    let said = String::from_utf8_lossy(&body);
    assert!(status == 403 && said.contains("is not signed by the server"), "{status} {said}");
    assert_eq!(owner.shown(&format!("/api/v1/jobs/{job}"), "/state").await, json!("pending"));
    assert_eq!(owner.ask("another", &cancel).await.0, 200);
    owner.handle.stop().await;
}
