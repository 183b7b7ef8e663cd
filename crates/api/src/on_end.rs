//! The addresses that a job names to be told of its end.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::job as core;

/// An address that is told when a job has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OnEnd {
    /// A URL that begins with `https://` or `http://`, or `mailto:` and a mail address.
    pub url: String,
    /// It is told only of a job that fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_failures: bool,
}

/// An address that could not be told of a job's end so far.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct NoticeFailure {
    /// Why the last try failed. It names the host, never the whole address.
    pub why: String,
    /// How often it was tried since the server started.
    pub tries: u32,
    /// It is not tried any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
}

impl OnEnd {
    /// As the engine keeps it.
    pub(crate) fn into_core(self) -> core::OnEnd {
        core::OnEnd { to: self.url, only_failures: self.only_failures }
    }

    /// As the engine has kept it.
    pub fn from_core(from: &core::OnEnd) -> OnEnd {
        OnEnd { url: from.to.clone(), only_failures: from.only_failures }
    }
}
