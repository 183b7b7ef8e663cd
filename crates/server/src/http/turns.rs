//! Requests under way of one user: a bounded number at a time, so that one user's reads do not delay all others.
//!
//! - Administrators and workers are excepted, and strangers have bounds of their own.
//! - A request has its turn until its answer begins. Others of its user wait in their order, before their bodies are read.
//! - Requests that last because they wait, and streams, have no turn, and bounds of their own.

use super::paths::{TURNS_PATH, brings_files};
use crate::api_error::ApiError;
use crate::auth::{Caller, Role};
use crate::per_key::PerKey;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_api::ErrorCode;

/// Requests of one user under way at a time.
const UNDER_WAY_MAX: usize = 16;
/// Requests of one user that wait for their turn.
const IN_LINE_MAX: usize = 1_024;
/// How long one may wait for its turn.
const LINE_PATIENCE: Duration = Duration::from_secs(30);
/// Waits for jobs, turns, event streams, outputs that are read, files that come and go, and requests to the cache, of one
/// user at a time.
const LONG_MAX: usize = 4_096;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NoTurn {
    #[error("{UNDER_WAY_MAX} requests of this user are under way, and others waited for {} s", LINE_PATIENCE.as_secs())]
    Waited,
    #[error("{UNDER_WAY_MAX} requests of this user are under way, and {IN_LINE_MAX} wait for their turn")]
    Line,
    #[error(
        "{LONG_MAX} waits for jobs, turns, event streams, outputs, files and requests to the cache are under way"
    )]
    Long,
}

impl IntoResponse for NoTurn {
    fn into_response(self) -> Response {
        let hint = match self {
            NoTurn::Waited | NoTurn::Line => {
                "wait for an answer before you ask again; 'windlass events' tells what changes without asking"
            }
            NoTurn::Long => "one 'windlass events' tells of all jobs",
        };
        ApiError::new(ErrorCode::Unavailable, self.to_string()).hint(hint).into_response()
    }
}

#[derive(Default)]
pub(super) struct Turns {
    users: PerKey<String, TurnsOfUser>,
}

struct TurnsOfUser {
    under_way: Arc<Semaphore>,
    in_line: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// A request that is under way.
pub(super) struct UserTurn {
    _permit: OwnedSemaphorePermit,
    /// Its user is remembered meanwhile.
    _own: Arc<TurnsOfUser>,
}

impl Turns {
    /// Waits for a turn of the caller; `None` where the caller needs none.
    pub async fn take(&self, caller: &Caller) -> Result<Option<UserTurn>, NoTurn> {
        if !is_counted(caller) {
            return Ok(None);
        }
        let own = self.of_user(&caller.user);
        let under_way = own.under_way.clone();
        let permit = match under_way.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _in_line = own.in_line.clone().try_acquire_owned().map_err(|_| NoTurn::Line)?;
                let turn = tokio::time::timeout(LINE_PATIENCE, under_way.acquire_owned()).await;
                // Nobody closes the semaphore.
                turn.map_err(|_| NoTurn::Waited)?.map_err(|_| NoTurn::Waited)?
            }
        };
        Ok(Some(UserTurn { _permit: permit, _own: own }))
    }

    /// Counts a request that lasts; `None` where the caller's are not counted.
    pub fn take_long(&self, caller: &Caller) -> Result<Option<UserTurn>, NoTurn> {
        if !is_counted(caller) {
            return Ok(None);
        }
        let own = self.of_user(&caller.user);
        let permit = own.long.clone().try_acquire_owned().map_err(|_| NoTurn::Long)?;
        Ok(Some(UserTurn { _permit: permit, _own: own }))
    }

    /// Users with requests under way or in line.
    pub fn user_count(&self) -> usize {
        self.users.count()
    }

    fn of_user(&self, user: &str) -> Arc<TurnsOfUser> {
        let of = |max| Arc::new(Semaphore::new(max));
        self.users.of(user.to_owned(), || TurnsOfUser {
            under_way: of(UNDER_WAY_MAX),
            in_line: of(IN_LINE_MAX),
            long: of(LONG_MAX),
        })
    }
}

fn is_counted(caller: &Caller) -> bool {
    !matches!(caller.role, Role::Admin | Role::Worker)
}

/// True of requests that last because they wait, or because files come.
pub(super) fn is_long(path: &str) -> bool {
    path.ends_with("/wait") || brings_files(path)
}

/// True of requests whose answers go on for as long as a client reads them.
pub(super) fn is_stream(path: &str) -> bool {
    let ends = ["/events", "/log", "/files/tar", "/files/blob"];
    ends.iter().any(|end| path.ends_with(end)) || path == TURNS_PATH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Rights;
    use futures_util::FutureExt as _;

    fn caller(user: &str, role: Role) -> Caller {
        Caller { user: user.to_owned(), role, worker: None, token: None, rights: Rights::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_s_requests_wait_for_each_other_and_for_no_other_user() {
        let turns = Turns::default();
        let (ann, bob) = (caller("ann", Role::User), caller("bob", Role::Viewer));
        let taken = |caller: &Caller| turns.take(caller).now_or_never().map(Result::unwrap);
        let mut held: Vec<_> = (0..UNDER_WAY_MAX).map(|_| taken(&ann).unwrap().unwrap()).collect();
        assert!(taken(&ann).is_none() && taken(&bob).is_some());
        assert!(taken(&caller("ann", Role::Admin)).unwrap().is_none(), "an administrator needs no turn");
        // Those in line come in their order.
        let (mut first, mut second) = (Box::pin(turns.take(&ann)), Box::pin(turns.take(&ann)));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        held.pop();
        assert!(second.as_mut().now_or_never().is_none());
        assert!(first.as_mut().now_or_never().unwrap().is_ok());
        drop(first);
        // Its turn came and went before the second was asked again.
        assert!(second.await.is_ok());
        let full: Vec<_> = std::iter::from_fn(|| taken(&ann)).collect();
        assert!(!full.is_empty());
        assert_eq!(turns.take(&ann).await.err(), Some(NoTurn::Waited));
        let mut line: Vec<_> = (0..IN_LINE_MAX).map(|_| Box::pin(turns.take(&ann))).collect();
        assert!(line.iter_mut().all(|waiting| waiting.as_mut().now_or_never().is_none()));
        assert_eq!(turns.take(&ann).await.err(), Some(NoTurn::Line));
        drop((held, full, line));
        drop(taken(&bob));
        assert_eq!(turns.user_count(), 0, "users without requests are forgotten");
    }

    #[test]
    fn what_lasts_has_no_turn_and_a_bound() {
        let turns = Turns::default();
        let ann = caller("ann", Role::User);
        let held: Vec<_> = (0..LONG_MAX).map(|_| turns.take_long(&ann).unwrap()).collect();
        assert_eq!(turns.take_long(&ann).err(), Some(NoTurn::Long));
        assert!(turns.take(&ann).now_or_never().unwrap().is_ok());
        drop(held);
        assert!(is_long("/api/v1/jobs/7/wait") && is_stream("/api/v1/events") && !is_stream("/api/v1/jobs"));
        assert!(is_long("/api/v1/files/blobs") && is_stream("/api/v1/jobs/7/files/tar"));
        assert!(!is_long("/api/v1/files/missing") && !is_stream("/api/v1/jobs/7/files"));
    }
}
