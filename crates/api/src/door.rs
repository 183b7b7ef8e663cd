//! The JSON of signing in to the board.

use crate::token::Role;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The header by which the board's own script marks each request that changes something. Another site's page cannot set
/// it without asking the server first, and the server never allows that.
pub const BOARD_HEADER: &str = "x-windlass-board";

/// The credentials of a sign-in. Exactly one of the two fields is given.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BoardSignIn {
    /// A token, as `windlass token create` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A code of `POST /api/v1/board/codes`, which is good for one sign-in within a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl fmt::Debug for BoardSignIn {
    /// Leaves the secrets out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |secret: &Option<String>| secret.as_ref().map(|_| "…");
        f.debug_struct("BoardSignIn")
            .field("token", &shown(&self.token))
            .field("code", &shown(&self.code))
            .finish()
    }
}

/// How the caller is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignedInBy {
    /// By a session of the board.
    Session,
    /// By the server's unix socket, which only its owner can open.
    Socket,
    /// By a token in a header.
    Token,
    /// By nothing: the server trusts everybody on its machine.
    None,
}

/// Who the caller is, for the board.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BoardMe {
    /// Name of the user who is signed in.
    pub name: String,
    /// The rights of the user.
    pub role: Role,
    /// Release of the server, such as `0.1.0`.
    pub version: String,
    /// The server's clock, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// How the caller is known.
    pub signed_in_by: SignedInBy,
}

/// A code that signs in once.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct BoardCode {
    /// The code to put behind `/#code=` of the board's address. It can be used once, and signs in with the caller's
    /// rights.
    pub code: String,
    /// Milliseconds until it expires.
    pub expires_in_ms: u64,
    /// The address of the board, `http://HOST:PORT` or `https://HOST:PORT`. Absent for a caller over TCP, who knows
    /// where the server is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

impl fmt::Debug for BoardCode {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoardCode")
            .field("expires_in_ms", &self.expires_in_ms)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let shown = BoardSignIn { token: Some("hunter2".to_owned()), code: Some("hunter3".to_owned()) };
        let code = BoardCode { code: "hunter4".to_owned(), expires_in_ms: 1, address: None };
        assert!(!format!("{shown:?} {code:?}").contains("hunter"));
    }

    #[test]
    fn a_mistyped_field_is_an_error() {
        assert!(serde_json::from_str::<BoardSignIn>(r#"{"tokn": "x"}"#).is_err());
        assert_eq!(serde_json::from_str::<BoardSignIn>("{}").unwrap(), BoardSignIn::default());
    }
}
