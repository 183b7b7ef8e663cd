//! Takes in the bodies of requests. The caller and the path decide how large a body may be, its size how long it may take,
//! and budgets how many bytes of bodies there are at a time. Every byte is in one of three budgets:
//!
//! - that of strangers, which is small, and in which the oldest request makes room for a new one;
//! - that of small bodies of known users, and that of large ones. Each user has a part of either at most, so a large body
//!   waits for others of its kind, and a small one never waits for a large one.

use super::paths::{JOBS_PATH, MISSING_PATH, brings_files};
use super::turns::{NoTurn, Turns, UserTurn};
use crate::api_error::ApiError;
use crate::auth::{Auth, Caller, WORKER_PATHS};
use crate::gateway::Gateway;
use crate::listen::body::{BodyError, BodyReader};
use crate::listen::budget::{RequestBudget, RequestShare, head_bytes};
use crate::user_budget::{UserBudget, UserShare};
use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use windlass_api::ErrorCode;

/// Bytes of a submission.
const SUBMISSION_BYTES_MAX: usize = 64 << 20;
/// Bytes that are taken from an unknown client, where the body may show a token.
const STRANGER_BYTES_MAX: usize = 64 << 10;
/// Bytes of a request that signs in.
const SIGN_IN_BYTES_MAX: usize = 4 << 10;
/// Bytes of a question which files are missing: of 10,000 digests.
const ASKED_BYTES_MAX: usize = 1 << 20;
/// Bytes of every other request.
const SMALL_BYTES_MAX: usize = 256 << 10;

/// Bytes of strangers' requests that are held at a time.
const STRANGERS_BYTES_MAX: usize = 8 << 20;
/// A body of more bytes is a large one.
const SMALL_BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes of large bodies that are held at a time, of all and of one user, and bytes in one part of these.
const LARGE_BYTES_MAX: usize = 96 << 20;
const LARGE_BYTES_OF_USER_MAX: usize = SUBMISSION_BYTES_MAX;
const LARGE_PART_BYTES: usize = 64 << 10;
/// The same of small bodies.
const SMALL_BODIES_BYTES_MAX: usize = 32 << 20;
const SMALL_BODIES_BYTES_OF_USER_MAX: usize = 4 << 20;
const SMALL_PART_BYTES: usize = 1 << 10;
/// How many bytes a second a body must bring after its first half minute.
const BODY_BYTES_PER_S: u32 = 256 << 10;

pub(super) struct Intake {
    large: UserBudget,
    small: UserBudget,
    strangers: Arc<RequestBudget>,
}

/// The shares of budgets and the turn that a request has for as long as it lasts.
#[derive(Default)]
pub(super) struct Holding {
    _of_user: Option<UserShare>,
    _of_strangers: Option<RequestShare>,
    _turn: Option<UserTurn>,
}

/// Why a body is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Bad {
    #[error("the body of the request is larger than {0} bytes")]
    TooLarge(usize),
    #[error(
        "a request of more than {STRANGER_BYTES_MAX} bytes must be authenticated by a header, or by my_token near its start"
    )]
    Stranger,
    #[error("too many bytes of requests are held")]
    Full,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Turn(#[from] NoTurn),
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
            Bad::Body(BodyError::Slow | BodyError::Broken(_)) => {
                ApiError::new(ErrorCode::BadRequest, message)
            }
            Bad::Full | Bad::Body(BodyError::GaveWay) => {
                ApiError::new(ErrorCode::Unavailable, message).hint("try again later")
            }
            Bad::Turn(why) => return why.into_response(),
        };
        error.into_response()
    }
}

impl Default for Intake {
    fn default() -> Self {
        Intake {
            large: UserBudget::new(LARGE_BYTES_MAX, LARGE_BYTES_OF_USER_MAX, LARGE_PART_BYTES),
            small: UserBudget::new(SMALL_BODIES_BYTES_MAX, SMALL_BODIES_BYTES_OF_USER_MAX, SMALL_PART_BYTES),
            strangers: RequestBudget::new(STRANGERS_BYTES_MAX),
        }
    }
}

impl Intake {
    /// Room for a body of that number of bytes; where it has none, there is nothing to hold.
    async fn share(&self, user: &str, bytes: usize) -> Result<Option<UserShare>, Bad> {
        let budget = match bytes {
            0 => return Ok(None),
            1..=SMALL_BODY_BYTES_MAX => &self.small,
            _ => &self.large,
        };
        budget.share(user, bytes).await.map(Some).ok_or(Bad::Full)
    }

    /// Users whose bodies are held, or wait for that; one that has small and large ones counts twice.
    pub fn user_count(&self) -> usize {
        self.large.user_count() + self.small.user_count()
    }

    /// Strangers' requests whose bodies are coming.
    pub fn stranger_count(&self) -> usize {
        self.strangers.coming_count()
    }
}

/// Bytes that a request may bring; `None` where it is a stream of its own.
pub(super) fn limit(
    method: &Method,
    path: &str,
    caller: Option<&Caller>,
    gateway: Option<&dyn Gateway>,
) -> Option<usize> {
    if path.starts_with(WORKER_PATHS) || gateway.is_some_and(|gateway| gateway.reads_body(path)) {
        return None;
    }
    if caller.is_some() && brings_files(path) {
        return None;
    }
    Some(match (caller, gateway) {
        (None, Some(gateway)) if gateway.takes_token_in_body(path) => STRANGER_BYTES_MAX,
        // Nothing in the body could say whose it is.
        (None, Some(_)) => 0,
        (None, None) => SIGN_IN_BYTES_MAX,
        (Some(_), Some(gateway)) => gateway.body_bytes_max(),
        (Some(_), None) if method == Method::POST && path == JOBS_PATH => SUBMISSION_BYTES_MAX,
        (Some(_), None) if path == MISSING_PATH => ASKED_BYTES_MAX,
        (Some(_), None) => SMALL_BYTES_MAX,
    })
}

pub(super) struct Reading<'a> {
    pub intake: &'a Intake,
    pub turns: &'a Turns,
    pub auth: &'a Auth,
    pub gateway: Option<&'a dyn Gateway>,
    /// Bytes that the body may have, as its head and its caller say.
    pub limit: usize,
}

impl Reading<'_> {
    pub async fn of_user(&self, user: &str, body: Body) -> Result<(Bytes, Holding), Bad> {
        let bytes = announced(&body, self.limit)?.unwrap_or(self.limit);
        let share = self.intake.share(user, bytes).await?;
        let read = fill(BodyReader::new(body, BODY_BYTES_PER_S), Vec::new(), self.limit).await?;
        Ok((read, Holding { _of_user: share, ..Holding::default() }))
    }

    /// A body that may show whose it is. What is too large for a stranger is taken once its beginning has shown a token.
    pub async fn of_stranger(&self, head: &Parts, body: Body) -> Result<(Bytes, Holding), Bad> {
        let shows = self.limit == STRANGER_BYTES_MAX;
        let most = self.gateway.filter(|_| shows).map_or(self.limit, Gateway::body_bytes_max);
        let announced = announced(&body, most)?;
        let mut share = self.intake.strangers.begin(head_bytes(head)).ok_or(BodyError::GaveWay)?;
        let (mut reader, mut read) = (BodyReader::new(body, BODY_BYTES_PER_S), Vec::new());
        while let Some(part) = reader.next_within(&mut share).await? {
            let fits = read.len() + part.len() <= self.limit;
            if !fits && !shows {
                return Err(Bad::TooLarge(self.limit));
            }
            let known = if fits { None } else { Some(self.shown_by(&read).ok_or(Bad::Stranger)?) };
            read.extend_from_slice(&part);
            let Some(caller) = known else { continue };
            // It is this user's from here on, and gives way to no stranger while it waits for room.
            if !share.complete() {
                return Err(BodyError::GaveWay.into());
            }
            let holding = self.held_by(&caller, announced.unwrap_or(most)).await?;
            drop(share);
            return Ok((fill(reader, read, most).await?, holding));
        }
        if !share.complete() {
            return Err(BodyError::GaveWay.into());
        }
        let holding = match self.shown_by(&read) {
            Some(caller) => self.held_by(&caller, read.len()).await?,
            None => Holding { _of_strangers: Some(share), ..Holding::default() },
        };
        Ok((read.into(), holding))
    }

    async fn held_by(&self, caller: &Caller, bytes: usize) -> Result<Holding, Bad> {
        let turn = self.turns.take(caller).await?;
        let share = self.intake.share(&caller.user, bytes).await?;
        Ok(Holding { _of_user: share, _turn: turn, ..Holding::default() })
    }

    /// The caller whose token the beginning of a body shows.
    fn shown_by(&self, read: &[u8]) -> Option<Caller> {
        self.auth.of_token(self.gateway?.token_in(read)?)
    }
}

/// Bytes that a body has, where its head says that.
fn announced(body: &Body, bytes_max: usize) -> Result<Option<usize>, Bad> {
    let bytes = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    match bytes {
        Some(bytes) if bytes > bytes_max => Err(Bad::TooLarge(bytes_max)),
        bytes => Ok(bytes),
    }
}

/// Reads a body to its end, after what was read of it before.
async fn fill(mut reader: BodyReader, mut read: Vec<u8>, bytes_max: usize) -> Result<Bytes, Bad> {
    if read.len() > bytes_max {
        return Err(Bad::TooLarge(bytes_max));
    }
    while let Some(part) = reader.next().await? {
        if read.len() + part.len() > bytes_max {
            return Err(Bad::TooLarge(bytes_max));
        }
        read.extend_from_slice(&part);
    }
    Ok(read.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Rights, Role};
    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use std::time::Duration;
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

        fn takes_token_in_body(&self, path: &str) -> bool {
            path == "/gate/x"
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
        assert_eq!(limit("/api/v1/board/session", None), Some(SIGN_IN_BYTES_MAX));
        assert_eq!(limit("/api/v1/queues/q", Some(&ann)), Some(SMALL_BYTES_MAX));
        assert_eq!(limit("/api/v1/files/missing", Some(&ann)), Some(ASKED_BYTES_MAX));
        assert_eq!(limit("/api/v1/files/blobs", Some(&ann)), None);
        assert_eq!(limit("/api/v1/files/blobs", None), Some(SIGN_IN_BYTES_MAX));
        assert_eq!(limit("/gate/x", None), Some(STRANGER_BYTES_MAX));
        assert_eq!(limit("/gate/y", None), Some(0));
        assert_eq!(limit("/gate/x", Some(&ann)), Some(GATE_BYTES_MAX));
        assert_eq!(limit("/gate/files/x", None), None);
        assert_eq!(limit("/windlass.worker.v1.Workers/Work", Some(&ann)), None);
    }

    #[tokio::test]
    async fn a_user_s_bodies_leave_room_for_others() {
        let intake = Intake::default();
        // Without the budget of polls, which one task would use up.
        let share = |user, bytes| tokio::task::unconstrained(intake.share(user, bytes));
        let taken = |user, bytes| share(user, bytes).now_or_never().map(Result::unwrap);
        let first = taken("ann", SUBMISSION_BYTES_MAX).unwrap();
        assert!(taken("ann", SMALL_BODY_BYTES_MAX + 1).is_none());
        assert!(taken("bob", 4 << 20).is_some());
        // Small ones have room of their own, and count, too.
        let small = || taken("ann", SMALL_BODY_BYTES_MAX);
        let fit = SMALL_BODIES_BYTES_OF_USER_MAX / SMALL_BODY_BYTES_MAX;
        let held: Vec<_> = (0..fit).map(|_| small().unwrap()).collect();
        assert!(small().is_none() && taken("ann", 1).is_none());
        assert!(taken("ann", 0).unwrap().is_none(), "a request without a body holds nothing");
        assert!(taken("bob", SMALL_BODY_BYTES_MAX).is_some());
        drop((first, held));
        assert!(taken("ann", SUBMISSION_BYTES_MAX).is_some());
    }

    #[tokio::test]
    async fn strangers_bodies_have_a_small_budget_in_which_the_oldest_makes_room() {
        let store = Store::open("memory").unwrap();
        let auth = Auth::load(&store, true, "root".to_owned()).await.unwrap();
        let (intake, turns) = (Intake::default(), Turns::default());
        let limit = STRANGER_BYTES_MAX;
        let reading = Reading { intake: &intake, turns: &turns, auth: &auth, gateway: Some(&Gate), limit };
        let head = axum::http::Request::builder().uri("/gate/x").body(()).unwrap().into_parts().0;
        let held = || {
            let begun = stream::iter([Ok::<_, std::io::Error>("x".repeat(limit - 1))]);
            let body = Body::from_stream(begun.chain(stream::pending()));
            Box::pin(reading.of_stranger(&head, body))
        };
        let mut floods: Vec<_> = (0..2 * STRANGERS_BYTES_MAX / limit).map(|_| held()).collect();
        let mut refused = 0;
        for _ in 0..2 {
            for flood in &mut floods {
                if let Some(answer) = flood.as_mut().now_or_never() {
                    assert!(matches!(answer, Err(Bad::Body(BodyError::GaveWay))));
                    refused += 1;
                    *flood = held();
                }
            }
        }
        assert!(refused > STRANGERS_BYTES_MAX / limit, "{refused} gave way");
        let quick = reading.of_stranger(&head, Body::from("x".repeat(1000)));
        assert!(quick.await.is_ok(), "a request that comes at once is taken");
    }

    async fn read(caller: Option<&Caller>, auth: &Auth, parts: Vec<String>) -> Result<Bytes, Bad> {
        let (intake, turns) = (Intake::default(), Turns::default());
        let limit = limit(&Method::POST, "/gate/x", caller, Some(&Gate)).unwrap();
        let parts = stream::iter(parts.into_iter().map(Ok::<_, std::io::Error>));
        let reading = Reading { intake: &intake, turns: &turns, auth, gateway: Some(&Gate), limit };
        let head = axum::http::Request::builder().uri("/gate/x").body(()).unwrap().into_parts().0;
        let body = Body::from_stream(parts);
        let read = match caller {
            Some(caller) => reading.of_user(&caller.user, body).await,
            None => reading.of_stranger(&head, body).await,
        };
        read.map(|(bytes, _)| bytes)
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
        let (intake, turns) = (Intake::default(), Turns::default());
        let trickle = |pause: u64, parts: usize| {
            let parts = stream::repeat(()).take(parts).then(move |()| async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                Ok::<_, std::io::Error>("x".repeat(1 << 20))
            });
            Body::from_stream(parts)
        };
        let limit = 4 << 20;
        let reading = Reading { intake: &intake, turns: &turns, auth: &auth, gateway: None, limit };
        assert!(reading.of_user("ann", trickle(3, 3)).await.is_ok());
        // Within its time, but with a long pause.
        let paused = reading.of_user("ann", trickle(25, 1)).await;
        assert!(matches!(paused, Err(Bad::Body(BodyError::Slow))));
        let slow = reading.of_user("ann", trickle(18, 3)).await;
        assert!(matches!(slow, Err(Bad::Body(BodyError::Slow))));
    }
}
