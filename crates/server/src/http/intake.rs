//! Takes in the bodies of requests: how large one may be is decided by who asks and what for, how long it may
//! take by its size, and how many bytes of them there are at a time by one budget.

use super::App;
use super::error::ApiError;
use crate::auth::{Auth, Caller, WORKER_PATHS};
use crate::gateway::Gateway;
use crate::panics::in_request_here;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use windlass_api::ErrorCode;

/// Bytes of a submission.
const SUBMISSION_BYTES_MAX: usize = 64 << 20;
/// Bytes that are taken from somebody of whom nothing is known yet.
const STRANGER_BYTES_MAX: usize = 64 << 10;
/// Bytes of every other request.
const SMALL_BYTES_MAX: usize = 256 << 10;
/// A body of more bytes is parsed on a thread of its own.
const PARSED_HERE_BYTES_MAX: usize = 256 << 10;
/// Of these, one of more bytes is parsed alone: parsed, it may have several times as many.
const PARSED_ALONE_BYTES: usize = 4 << 20;
/// Bodies that are parsed at a time.
const PARSED_MAX: u32 = 2;

/// Bytes in one part of the budget. Smaller bodies are bounded by the number of connections.
const PART_BYTES: usize = 64 << 10;
/// Bytes of larger bodies that are held at a time, of all and of one user.
const BUDGET_BYTES: usize = 96 << 20;
const BUDGET_OF_USER_BYTES: usize = SUBMISSION_BYTES_MAX;
/// How long a body may wait for its part of the budget.
const BUDGET_PATIENCE: Duration = Duration::from_secs(30);

/// How long a body may take, and how many bytes a second it must bring after that.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
const BODY_BYTES_PER_S: u32 = 256 << 10;
/// Bytes, and the time, that a request which is refused may take to bring its body: who is still sending does
/// not hear the answer.
const DRAINED_BYTES_MAX: usize = 64 << 10;
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);

/// The budgets of bodies.
pub(super) struct Intake {
    all: Arc<Semaphore>,
    users: Mutex<BTreeMap<String, Weak<Semaphore>>>,
    parsers: Semaphore,
}

/// A part of the budget, for as long as the request lasts.
struct Share {
    _user: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// Why a body is not taken.
#[derive(Debug, thiserror::Error)]
enum Bad {
    #[error("the body of the request is larger than {0} bytes")]
    TooLarge(usize),
    #[error(
        "a request of more than {STRANGER_BYTES_MAX} bytes must be authenticated by a header, or by my_token near its start"
    )]
    Stranger,
    #[error("the body of the request comes too slowly")]
    Slow,
    #[error("too many large requests are under way")]
    Full,
    #[error("the body of the request does not come: {0}")]
    Broken(axum::Error),
}

impl IntoResponse for Bad {
    fn into_response(self) -> Response {
        let message = self.to_string();
        let error = match self {
            Bad::TooLarge(SUBMISSION_BYTES_MAX) => ApiError::too_large(SUBMISSION_BYTES_MAX),
            Bad::TooLarge(_) => ApiError::new(ErrorCode::TooLarge, message),
            Bad::Stranger => ApiError::new(ErrorCode::Unauthorized, message).hint(
                "send the token as 'Authorization: Bearer TOKEN', or my_token within the first 65536 bytes",
            ),
            Bad::Slow | Bad::Broken(_) => ApiError::new(ErrorCode::BadRequest, message),
            Bad::Full => ApiError::new(ErrorCode::Unavailable, message).hint("try again later"),
        };
        error.into_response()
    }
}

impl Default for Intake {
    fn default() -> Self {
        Intake {
            all: Arc::new(Semaphore::new(BUDGET_BYTES / PART_BYTES)),
            users: Mutex::default(),
            parsers: Semaphore::new(PARSED_MAX as usize),
        }
    }
}

impl Intake {
    /// Parts of the budget for a body of so many bytes; a small one needs none.
    async fn share(&self, user: &str, bytes: usize) -> Result<Option<Share>, Bad> {
        if bytes <= PART_BYTES {
            return Ok(None);
        }
        let parts = u32::try_from(bytes.div_ceil(PART_BYTES)).unwrap_or(u32::MAX);
        let own = self.budget_of(user);
        let both = async {
            // The user's first: who waits for that must not hold what others could use.
            let user = own.acquire_many_owned(parts).await.ok()?;
            Some(Share { _user: user, _all: self.all.clone().acquire_many_owned(parts).await.ok()? })
        };
        let share = tokio::time::timeout(BUDGET_PATIENCE, both).await.map_err(|_| Bad::Full)?;
        share.ok_or(Bad::Full).map(Some)
    }

    fn budget_of(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = users.get(user).and_then(Weak::upgrade) {
            return own;
        }
        users.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(BUDGET_OF_USER_BYTES / PART_BYTES));
        users.insert(user.to_owned(), Arc::downgrade(&own));
        own
    }

    /// Makes of a body what it says: on a thread of its own where that takes a while.
    pub async fn parse<T: Send + 'static>(
        &self,
        body: Bytes,
        parse: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> T {
        if body.len() <= PARSED_HERE_BYTES_MAX {
            return parse(&body);
        }
        let turns = if body.len() > PARSED_ALONE_BYTES { PARSED_MAX } else { 1 };
        // Nobody closes the semaphore.
        let _turn = self.parsers.acquire_many(turns).await;
        match tokio::task::spawn_blocking(move || in_request_here(|| parse(&body))).await {
            Ok(parsed) => parsed,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Bytes that a request may bring; `None` where it is a stream of its own.
fn limit(
    method: &Method,
    path: &str,
    caller: Option<&Caller>,
    gateway: Option<&dyn Gateway>,
) -> Option<usize> {
    if path.starts_with(WORKER_PATHS) || gateway.is_some_and(|gateway| gateway.reads_body(path)) {
        return None;
    }
    Some(match caller {
        None => STRANGER_BYTES_MAX,
        Some(_) if gateway.is_some() => gateway.map_or(STRANGER_BYTES_MAX, Gateway::body_bytes_max),
        Some(_) if method == Method::POST && path == super::routes::JOBS_PATH => SUBMISSION_BYTES_MAX,
        Some(_) => SMALL_BYTES_MAX,
    })
}

/// Reads the body of a request before its handler runs.
pub(super) async fn take_in(State(app): State<App>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let path = request.uri().path().to_owned();
    let gateway = app.shared.gateways.of(&path);
    let Some(limit) = limit(request.method(), &path, caller.as_ref(), gateway) else {
        return next.run(request).await;
    };
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    let (head, body) = request.into_parts();
    let reading =
        Reading { intake: &app.shared.intake, auth: app.auth(), caller: caller.as_ref(), gateway, limit };
    match reading.run(body, announced).await {
        Ok((body, _share)) => next.run(Request::from_parts(head, Body::from(body))).await,
        Err(bad) => bad.into_response(),
    }
}

/// How a body is read.
struct Reading<'a> {
    intake: &'a Intake,
    auth: &'a Auth,
    caller: Option<&'a Caller>,
    gateway: Option<&'a dyn Gateway>,
    limit: usize,
}

impl Reading<'_> {
    async fn run(mut self, body: Body, announced: Option<usize>) -> Result<(Bytes, Option<Share>), Bad> {
        let stranger = self.caller.is_none();
        // A stranger's body that is too large for one may still show a token.
        let of_gateway = self.gateway.map_or(STRANGER_BYTES_MAX, Gateway::body_bytes_max);
        let most = if stranger { of_gateway } else { self.limit };
        if announced.is_some_and(|bytes| bytes > most) {
            return Err(Bad::TooLarge(most));
        }
        let mut share = match self.caller {
            Some(caller) => self.intake.share(&caller.user, announced.unwrap_or(self.limit)).await?,
            None => None,
        };
        let (begun, mut read) = (Instant::now(), Vec::new());
        let mut parts = body.into_data_stream();
        loop {
            let grace = Duration::from_secs(read.len() as u64) / BODY_BYTES_PER_S;
            let next = tokio::time::timeout_at(begun + BODY_PATIENCE + grace, parts.next()).await;
            let Some(part) = next.map_err(|_| Bad::Slow)? else { break };
            let part = part.map_err(Bad::Broken)?;
            if read.len() + part.len() > self.limit {
                if !stranger || self.limit != STRANGER_BYTES_MAX {
                    return Err(Bad::TooLarge(self.limit));
                }
                let user = self.shown_by(&read).ok_or(Bad::Stranger)?;
                self.limit = of_gateway;
                share = self.intake.share(&user, announced.unwrap_or(self.limit)).await?;
                if read.len() + part.len() > self.limit {
                    return Err(Bad::TooLarge(self.limit));
                }
            }
            read.extend_from_slice(&part);
        }
        Ok((read.into(), share))
    }

    /// Whose token the beginning of a body shows.
    fn shown_by(&self, read: &[u8]) -> Option<String> {
        let token = self.gateway?.token_in(read)?;
        self.auth.of_token(token).map(|caller| caller.user)
    }
}

/// Reads what a request that is refused still sends, within bounds: over HTTP/2 whoever is still sending gets a
/// reset instead of the answer.
pub(super) async fn drain(request: Request) {
    let mut parts = request.into_body().into_data_stream();
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(part)) = parts.next().await {
            bytes += part.len();
            if bytes > DRAINED_BYTES_MAX {
                return;
            }
        }
    };
    _ = tokio::time::timeout(DRAIN_PATIENCE, read).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Rights, Role};
    use futures_util::{FutureExt as _, stream};
    use windlass_api::CreateToken;
    use windlass_store::Store;

    /// Bytes that the gateway of these tests takes.
    const GATE_BYTES_MAX: usize = 2 << 20;

    /// A gateway whose bodies begin with a token.
    struct Gate;

    impl Gateway for Gate {
        fn name(&self) -> &'static str {
            "gate"
        }

        fn start(&self, _: crate::Front) -> crate::Starting<'_> {
            unreachable!("nothing is served here")
        }

        fn owns(&self, path: &str) -> bool {
            path.starts_with("/gate/")
        }

        fn body_bytes_max(&self) -> usize {
            GATE_BYTES_MAX
        }

        fn reads_body(&self, path: &str) -> bool {
            path.starts_with("/gate/files/")
        }

        fn token_in<'a>(&self, start: &'a [u8]) -> Option<&'a str> {
            std::str::from_utf8(start).ok()?.split_once(' ').map(|(token, _)| token)
        }
    }

    fn caller(user: &str) -> Caller {
        let rights = Rights::default();
        Caller { user: user.to_owned(), role: Role::User, worker: None, token: None, rights }
    }

    #[test]
    fn what_may_come_depends_on_who_asks_and_what_for() {
        let ann = caller("ann");
        let limit = |path: &str, caller| {
            let gateway: Option<&dyn Gateway> = Gate.owns(path).then_some(&Gate);
            limit(&Method::POST, path, caller, gateway)
        };
        assert_eq!(limit("/api/v1/jobs", Some(&ann)), Some(SUBMISSION_BYTES_MAX));
        assert_eq!(limit("/api/v1/jobs", None), Some(STRANGER_BYTES_MAX));
        assert_eq!(limit("/api/v1/queues/q", Some(&ann)), Some(SMALL_BYTES_MAX));
        assert_eq!(limit("/gate/x", None), Some(STRANGER_BYTES_MAX));
        assert_eq!(limit("/gate/x", Some(&ann)), Some(GATE_BYTES_MAX));
        assert_eq!(limit("/gate/files/x", None), None);
        assert_eq!(limit("/windlass.worker.v1.Workers/Work", Some(&ann)), None);
    }

    #[tokio::test]
    async fn a_user_s_bodies_leave_room_for_others() {
        let intake = Intake::default();
        let first = intake.share("ann", SUBMISSION_BYTES_MAX).await.unwrap();
        assert!(intake.share("ann", PART_BYTES + 1).now_or_never().is_none());
        assert!(intake.share("ann", PART_BYTES).now_or_never().unwrap().unwrap().is_none());
        assert!(intake.share("bob", 4 << 20).now_or_never().unwrap().unwrap().is_some());
        drop(first);
        assert!(intake.share("ann", SUBMISSION_BYTES_MAX).now_or_never().is_some());
    }

    async fn read(caller: Option<&Caller>, auth: &Auth, parts: Vec<String>) -> Result<Bytes, Bad> {
        let intake = Intake::default();
        let limit = limit(&Method::POST, "/gate/x", caller, Some(&Gate)).unwrap();
        let parts = stream::iter(parts.into_iter().map(Ok::<_, std::io::Error>));
        let reading = Reading { intake: &intake, auth, caller, gateway: Some(&Gate), limit };
        reading.run(Body::from_stream(parts), None).await.map(|(bytes, _)| bytes)
    }

    #[tokio::test]
    async fn a_stranger_shows_a_token_before_a_large_body() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let admin = Caller { role: Role::Admin, ..caller("root") };
        let user = Some("ann".to_owned());
        let request = CreateToken { user, ..CreateToken::of(Role::User) };
        let made = auth.create(request, &admin).await.unwrap();
        let (fill, key) = ("x".repeat(60 << 10), format!("{} ", made.bearer));
        let forged = key.replace("wl_", "wl_0");
        assert!(read(None, &auth, vec![fill.clone()]).await.is_ok());
        let twice = |first: &str| vec![first.to_owned(), fill.clone(), fill.clone()];
        assert!(matches!(read(None, &auth, twice("{")).await, Err(Bad::Stranger)));
        assert!(matches!(read(None, &auth, twice(&forged)).await, Err(Bad::Stranger)));
        assert!(read(None, &auth, twice(&key)).await.is_ok());
        let endless = |first: &str| std::iter::once(first.to_owned()).chain(vec![fill.clone(); 100]);
        assert!(matches!(read(None, &auth, endless(&key).collect()).await, Err(Bad::TooLarge(_))));
        let ann = caller("ann");
        assert!(matches!(read(Some(&ann), &auth, endless("").collect()).await, Err(Bad::TooLarge(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let intake = Intake::default();
        let ann = caller("ann");
        let trickle = |pause: u64| {
            let parts = stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                Some((Ok::<_, std::io::Error>("x".repeat(1 << 20)), ()))
            });
            Body::from_stream(parts.take(3))
        };
        let run = |body| {
            let reading =
                Reading { intake: &intake, auth: &auth, caller: Some(&ann), gateway: None, limit: 4 << 20 };
            reading.run(body, None)
        };
        assert!(run(trickle(3)).await.is_ok());
        assert!(matches!(run(trickle(40)).await, Err(Bad::Slow)));
    }

    #[tokio::test]
    async fn a_large_body_is_parsed_on_another_thread() {
        let intake = Intake::default();
        let here = std::thread::current().id();
        let on = |bytes: usize| intake.parse(vec![0; bytes].into(), |_| std::thread::current().id());
        assert_eq!(on(1000).await, here);
        assert_ne!(on(PARSED_HERE_BYTES_MAX + 1).await, here);
    }
}
