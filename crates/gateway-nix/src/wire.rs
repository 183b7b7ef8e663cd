//! The messages between hooks and the server: JSON over the server's own HTTP interface.

#![allow(missing_docs, reason = "what has no comment is what its name or its message says")]

use serde::{Deserialize, Serialize};

/// The path at which a hook asks whether a derivation may be accepted.
pub const TRY_PATH: &str = "/nix/v1/try";
/// The path at which a hook asks for a place. The answer has a line of JSON for each [`BuildEvent`], as long as the
/// build lasts.
pub const BUILDS_PATH: &str = "/nix/v1/builds";

/// Input paths that a hook names, which are the largest ones.
pub const INPUTS_MAX: usize = windlass_core::bounds::CACHES_PER_STEP_MAX;
/// Machines that a client names.
pub const MACHINES_MAX: usize = 200;

/// Bytes of a name, a URI, or another text of a request.
pub const TEXT_BYTES_MAX: usize = 1_024;
/// Systems, features or outputs that a request lists in one place.
pub const LISTED_MAX: usize = 128;

/// Why a request is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRequest {
    #[error("{what} has {is} bytes, and at most {TEXT_BYTES_MAX} are allowed")]
    Long { what: &'static str, is: usize },
    #[error("{what}: {is} are more than the limit of {max}")]
    Many { what: &'static str, is: usize, max: usize },
    #[error("{0} contains control characters")]
    Control(&'static str),
}

fn check_text(what: &'static str, text: &str) -> Result<(), BadRequest> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(BadRequest::Long { what, is: text.len() });
    }
    if text.chars().any(char::is_control) { Err(BadRequest::Control(what)) } else { Ok(()) }
}

fn check_list(what: &'static str, texts: &[String]) -> Result<(), BadRequest> {
    if texts.len() > LISTED_MAX {
        return Err(BadRequest::Many { what, is: texts.len(), max: LISTED_MAX });
    }
    texts.iter().try_for_each(|text| check_text(what, text))
}

/// A line of the client's `builders`, without its keys.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The store's URI, such as `ssh://host`.
    pub uri: String,
    pub systems: Vec<String>,
    pub max_jobs: u32,
    /// Its speed, as a multiple of that of a machine with 1.
    pub speed: f64,
    /// Features that derivations may require.
    pub supported: Vec<String>,
    /// Features that derivations must require.
    pub mandatory: Vec<String>,
}

/// The requirements of a derivation for its machine, and the client that asks.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// A name that all hooks of one run of Nix share.
    pub client: String,
    /// The identity of the client's store; empty if unknown.
    #[serde(default)]
    pub store: String,
    /// The derivation's system, such as `x86_64-linux`.
    pub system: String,
    pub features: Vec<String>,
    pub machines: Vec<Machine>,
}

impl Machine {
    fn check(&self) -> Result<(), BadRequest> {
        check_text("the address of a machine", &self.uri)?;
        check_list("systems of a machine", &self.systems)?;
        check_list("features of a machine", &self.supported)?;
        check_list("mandatory features of a machine", &self.mandatory)
    }
}

impl Wanted {
    /// Checks that all texts and lists are within their bounds.
    pub fn check(&self) -> Result<(), BadRequest> {
        check_text("the name of the run of Nix", &self.client)?;
        check_text("the name of the store", &self.store)?;
        check_text("the system", &self.system)?;
        check_list("features", &self.features)?;
        if self.machines.len() > MACHINES_MAX {
            return Err(BadRequest::Many { what: "machines", is: self.machines.len(), max: MACHINES_MAX });
        }
        self.machines.iter().try_for_each(Machine::check)
    }
}

/// A hook's question whether a derivation may be accepted, for Nix's `try`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TryRequest {
    pub wanted: Wanted,
    /// The largest number of this client's builds that wait or run; 0 sets no bound.
    pub in_flight_max: usize,
}

/// The answer to a [`TryRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum TryAnswer {
    /// The hook should accept the derivation.
    Accept,
    /// Too many builds of this client wait. Nix should ask again later.
    Postpone,
    /// The farm has no machine that could ever build it.
    Decline { why: String },
}

/// A hook's request for a place.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BuildRequest {
    pub wanted: Wanted,
    /// A random number of the hook. A hook that lost its connection asks again with it, and gets the same build.
    pub key: String,
    /// The owner of the build, whom only an administrator may name. Builds of other callers are their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub drv: String,
    /// The derivation's name with its version.
    pub name: String,
    /// The name without the version. Builds with the same name are expected to behave alike.
    pub pname: String,
    /// Cpus that the build may use; `None` if the user set no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// True if the build is short and best done where its inputs are.
    #[serde(default)]
    pub prefer_local: bool,
    /// True if the build only downloads something.
    #[serde(default)]
    pub fixed_output: bool,
    /// The largest store paths that it reads, by name, with the bytes of their NARs where known.
    #[serde(default)]
    pub inputs: Vec<(String, Option<u64>)>,
    /// The store paths that it makes, by name.
    #[serde(default)]
    pub outputs: Vec<String>,
}

impl BuildRequest {
    /// Checks that all texts and lists are within their bounds.
    pub fn check(&self) -> Result<(), BadRequest> {
        self.wanted.check()?;
        check_text("the build's number", &self.key)?;
        check_text("the user", self.user.as_deref().unwrap_or_default())?;
        check_text("the derivation's path", &self.drv)?;
        check_text("the derivation's name", &self.name)?;
        check_text("the derivation's name without version", &self.pname)?;
        check_list("outputs", &self.outputs)?;
        if self.inputs.len() > INPUTS_MAX {
            return Err(BadRequest::Many { what: "inputs", is: self.inputs.len(), max: INPUTS_MAX });
        }
        self.inputs.iter().try_for_each(|(name, _)| check_text("an input's name", name))
    }
}

/// The server's messages to a hook about its build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum BuildEvent {
    /// The build has a job.
    Job { job: u64 },
    /// The build waits for a place.
    Waits { why: String },
    /// The build has a place.
    Place { attempt: u32, worker: String, uri: String },
    /// The attempt is over or has to end. Another place may follow.
    Stop { attempt: u32 },
    /// The job has ended. Nothing follows.
    End {
        /// The job's state: `succeeded`, `failed` or `canceled`.
        state: String,
    },
    /// The server refuses the build.
    Refused {
        why: String,
        /// True if the server may accept it later.
        is_temporary: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub attempt: u32,
    pub outcome: Outcome,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The machine is connected and builds.
    Began,
    /// The build succeeded, and its outputs are in the client's store.
    Succeeded,
    /// The builder failed, or the build was cancelled. It is not tried elsewhere.
    Failed {
        /// The exit code: 100, or 101 for a time limit.
        code: i32,
        message: String,
    },
    /// The machine could not be connected.
    NotConnected { message: String },
    /// The machine was lost during the build.
    Lost { message: String },
    /// The server or the user ended the attempt.
    Canceled,
}

impl Outcome {
    /// Shortens the text for people to the size that is stored.
    pub fn cut(&mut self) {
        match self {
            Outcome::Failed { message, .. }
            | Outcome::NotConnected { message }
            | Outcome::Lost { message } => {
                *message = windlass_api::wire::cut(std::mem::take(message));
            }
            Outcome::Began | Outcome::Succeeded | Outcome::Canceled => {}
        }
    }
}

/// The name of a store path: `HASH-NAME` of `/nix/store/HASH-NAME`.
pub fn store_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The host of a store's URI, without user and port; the whole URI if it has no host.
pub fn host(uri: &str) -> &str {
    let uri = uri.split(['?', '#']).next().unwrap_or(uri);
    let Some((_, place)) = uri.split_once("://") else { return uri };
    let place = place.rsplit_once('@').map_or(place, |(_, host)| host);
    place.split(['/', ':']).next().unwrap_or(place)
}
