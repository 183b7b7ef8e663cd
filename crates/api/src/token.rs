//! The JSON of tokens.

use crate::word::words_of;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The role of the holder of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May do everything, also what changes the farm.
    Admin,
    /// Read everything, and submit and manage jobs of the users and in the queue that the token names.
    Submitter,
    /// Read everything, submit jobs, and manage the user's own jobs.
    User,
    /// Read everything, and change nothing.
    Viewer,
    /// Connect as one worker.
    Worker,
}

words_of! { Role: Admin "admin", Submitter "submitter", User "user", Viewer "viewer", Worker "worker" }

impl Role {
    /// The role of a word; `None` if there is none.
    pub fn parse(word: &str) -> Option<Role> {
        Role::ALL.iter().copied().find(|role| role.as_str() == word)
    }
}

/// What the holder of a token may do with the remote cache, where that is not what the role says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheRight {
    /// Read it, and nothing else.
    Read,
    /// Also write results of actions, which others then take for true.
    Write,
}

words_of! { CacheRight: Read "read", Write "write" }

impl CacheRight {
    /// The right of a word; `None` if there is none.
    pub fn parse(word: &str) -> Option<CacheRight> {
        CacheRight::ALL.iter().copied().find(|right| right.as_str() == word)
    }
}

/// A token, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// The token's id, which is not secret.
    pub id: String,
    /// The role of its holder.
    pub role: Role,
    /// The user that its holder is known as.
    pub user: String,
    /// The worker that its holder may connect as, for the role `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The systems whose outside clients that worker may serve: `nix`, `sccache`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<String>,
    /// The users whose jobs its holder submits, for the role `submitter`: names, in which `*` stands for any
    /// characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_users: Vec<String>,
    /// The queue of these jobs, for the role `submitter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What its holder may do with the remote cache; absent is what the role says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheRight>,
    /// A note by its creator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// When it was created.
    pub created_ms: u64,
    /// When it expires; absent is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_ms: Option<u64>,
}

/// A token to be created.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// The role of its holder.
    pub role: Role,
    /// The user that its holder is known as; required for the role `user`, otherwise the caller by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The worker that its holder may connect as; required for the role `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The systems whose outside clients that worker may serve: `nix`, `sccache`. For the role `worker` alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<String>,
    /// The users whose jobs its holder submits: names, in which `*` stands for any characters. Required for the role
    /// `submitter`, and refused for others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_users: Vec<String>,
    /// The queue of these jobs. Required for the role `submitter`, and refused for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What its holder may do with the remote cache: `read` or `write` for the role `user`, `read` for the role `viewer`.
    /// Absent, a user reads it and uploads blobs, and a viewer does neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheRight>,
    /// Milliseconds after which it expires; absent is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// A note of its creator for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl CreateToken {
    /// A token of a role that says nothing else.
    pub fn of(role: Role) -> CreateToken {
        CreateToken {
            role,
            user: None,
            worker: None,
            serves: Vec::new(),
            for_users: Vec::new(),
            queue: None,
            cache: None,
            expires_in_ms: None,
            note: String::new(),
        }
    }
}

/// A token that was just created.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The secret that goes after `Bearer`. The server does not keep it, and returns it only here.
    pub bearer: String,
    /// The token without its secret.
    pub token: Token,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("token", &self.token).finish_non_exhaustive()
    }
}
