//! Tokens: what lets people and workers in, and as whom.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the holder of a token may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Admin,
    /// Look at everything, submit jobs and act on them where they are the user's own.
    User,
    /// Look at everything.
    Viewer,
    /// Speak for one worker.
    Worker,
}

impl Role {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::User => "user",
            Role::Viewer => "viewer",
            Role::Worker => "worker",
        }
    }

    /// The role of a word.
    pub fn parse(word: &str) -> Option<Role> {
        [Role::Admin, Role::User, Role::Viewer, Role::Worker].into_iter().find(|role| role.as_str() == word)
    }
}

/// A token, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its id, which is no secret.
    pub id: String,
    /// What its holder may do.
    pub role: Role,
    /// Who its holder is.
    pub user: String,
    /// The worker that it speaks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// What was noted of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// When it was made.
    pub created_ms: u64,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// When somebody ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_ms: Option<u64>,
}

/// What a new token is to be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// What its holder may do.
    pub role: Role,
    /// Who its holder is; must be given for the role `user`, otherwise it is the caller by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The worker that it speaks for; goes with the role `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Milliseconds after which it ends by itself; absent is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// What to note of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A token that was just made.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// What goes after `Bearer`. The server does not keep it: it is told this once.
    pub bearer: String,
    /// The rest.
    pub token: Token,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("token", &self.token).finish_non_exhaustive()
    }
}
