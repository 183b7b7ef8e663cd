//! The caller of a request, and what callers may do.

use crate::local_users::LocalUser;
use std::sync::{Arc, OnceLock};
use windlass_api::{CacheRight, Role, matches_name};
use windlass_core::engine::SERVABLE;

/// The user, worker or system that makes a request. In the extensions of every request that was let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The user's name. The jobs of that name are the caller's.
    pub user: String,
    /// The role of the caller's token, or of a user of this machine.
    pub role: Role,
    /// The worker that the caller speaks for; `None` for callers other than workers.
    pub worker: Option<String>,
    /// The id of the token that was shown; `None` where the request needed none.
    pub token: Option<String>,
    /// What the token gives beyond the role.
    pub rights: Rights,
}

impl Caller {
    /// The systems whose outside clients this caller's worker may serve.
    pub fn may_serve(&self) -> Vec<&'static str> {
        let serves = &self.rights.serves;
        let may = |system: &&str| self.role == Role::Admin || serves.iter().any(|serves| serves == *system);
        SERVABLE.into_iter().filter(may).collect()
    }

    /// True where this caller may act on all that is `user`'s. A submitter may not: see [`Caller::may_act_on`].
    pub fn may_act_for(&self, user: &str) -> bool {
        self.role == Role::Admin || (self.role == Role::User && self.user == user)
    }

    /// True where this caller may submit and manage jobs of a user in a queue.
    pub fn may_act_on(&self, user: &str, queue: &str) -> bool {
        self.may_act_for(user) || self.submits_for(user, queue)
    }

    /// True for the submitter of a user's jobs in a queue.
    pub fn submits_for(&self, user: &str, queue: &str) -> bool {
        self.role == Role::Submitter
            && self.rights.queue.as_deref() == Some(queue)
            && self.rights.for_users.iter().any(|pattern| matches_name(pattern, user))
    }
}

/// What a token gives its holder beyond its role.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// The systems whose outside clients the worker of this token may serve.
    pub serves: Vec<String>,
    /// Patterns of the users whose jobs a submitter submits; empty for all other roles.
    pub for_users: Vec<String>,
    /// The queue of these jobs; `None` for all other roles.
    pub queue: Option<String>,
    /// What the holder may do with the remote cache; `None` is what the role says.
    pub cache: Option<CacheRight>,
}

/// The callers that may make a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Everybody, also without a token; a handler may ask for more.
    Anybody,
    /// Every caller whom the server knows, workers too.
    Known,
    /// Every known caller except workers.
    Viewer,
    /// Users and administrators, but not submitters.
    User,
    /// Users, submitters and administrators.
    Submitter,
    /// Administrators, and no other role.
    Admin,
    /// Workers, and administrators in their place.
    Worker,
}

impl Access {
    /// The words for it in the OpenAPI document: the least role that may, or two where neither is the lesser.
    pub fn as_str(self) -> &'static str {
        match self {
            Access::Anybody => "anybody",
            Access::Known => "any token",
            Access::Viewer => "viewer",
            Access::User => "user",
            Access::Submitter => "user or submitter",
            Access::Admin => "admin",
            Access::Worker => "worker",
        }
    }

    /// True if it is for callers of this role.
    pub fn is_for(self, role: Role) -> bool {
        match (self, role) {
            (Access::Anybody | Access::Known, _) | (_, Role::Admin) => true,
            (Access::Viewer, Role::Viewer | Role::User | Role::Submitter) => true,
            (Access::Submitter, Role::User | Role::Submitter) => true,
            (Access::User, Role::User) | (Access::Worker, Role::Worker) => true,
            (Access::Viewer | Access::User | Access::Submitter | Access::Admin | Access::Worker, _) => false,
        }
    }
}

/// The rights that a session has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Right {
    /// Those of the token of this id, for as long as that is in force.
    Token(String),
    /// Those of the server's own user, the administrator, whom the unix socket let in.
    Own,
    /// Those of a user of this machine, whom the unix socket of a machine's server let in.
    Local(LocalUser),
}

tokio::task_local! {
    /// The caller of the request under way, where its handler finds that out.
    static FOUND: Arc<OnceLock<Caller>>;
}

/// Notes who makes the request under way, where its body showed that.
pub(crate) fn known_as(caller: &Caller) {
    _ = FOUND.try_with(|found| _ = found.set(caller.clone()));
}

/// Awaits a request of an unknown caller. Also returns the caller that its handler has given to [`known_as`].
pub(crate) async fn finding_caller<T>(request: impl Future<Output = T>) -> (T, Option<Caller>) {
    let found = Arc::<OnceLock<Caller>>::default();
    let answer = FOUND.scope(found.clone(), request).await;
    (answer, found.get().cloned())
}
