//! What a token gives its holder beyond its role, and which roles may make a request.

use super::TokenError;
use windlass_api::{CreateToken, NAME_PATTERNS_MAX, Role, is_name_pattern};
use windlass_core::bounds::NAME_BYTES_MAX;
use windlass_core::engine::SERVABLE;

/// What a token gives its holder beyond its role.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// The systems whose outside clients the worker of this token may serve.
    pub serves: Vec<String>,
    /// Patterns of the users whose jobs a submitter submits; empty for all other roles.
    pub for_users: Vec<String>,
    /// The queue of these jobs; `None` for all other roles.
    pub queue: Option<String>,
}

/// Who may make a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Everybody, also without a token; a handler may ask for more.
    Anybody,
    /// Every caller whom the server knows, workers too.
    Known,
    /// All but workers.
    Viewer,
    /// Users and administrators.
    User,
    /// Users, submitters and administrators.
    Submitter,
    /// Administrators.
    Admin,
    /// Workers, and administrators.
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

/// Refuses rights that are not of the role, and a submitter's token that leaves one out.
pub(super) fn check_rights(request: &CreateToken) -> Result<(), TokenError> {
    let bad = |why: &str| Err(TokenError::Bad(why.to_owned()));
    let CreateToken { role, serves, for_users, queue, .. } = request;
    if !serves.is_empty() && *role != Role::Worker {
        return bad(
            "only a token of the role worker has the right that its worker serves other systems' clients",
        );
    }
    if let Some(system) = serves.iter().find(|system| !SERVABLE.contains(&system.as_str())) {
        let why = format!("a worker serves clients of {}, not of '{system}'", SERVABLE.join(" and "));
        return Err(TokenError::Bad(why));
    }
    match (role, for_users.is_empty(), queue) {
        (Role::Submitter, true, _) => {
            return bad("a token of the role submitter needs the users that it submits for, such as film-*");
        }
        (Role::Submitter, false, None) => {
            return bad("a token of the role submitter needs the queue that it submits to");
        }
        (Role::Submitter, false, Some(_)) | (_, true, None) => {}
        _ => return bad("only a token of the role submitter names users and a queue to submit for"),
    }
    if for_users.len() > NAME_PATTERNS_MAX || !for_users.iter().all(|pattern| is_name_pattern(pattern)) {
        let why = format!(
            "a token names {NAME_PATTERNS_MAX} patterns of users at most, each of 1 to {NAME_BYTES_MAX} bytes without blanks"
        );
        return Err(TokenError::Bad(why));
    }
    Ok(())
}
