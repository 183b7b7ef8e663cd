//! What hooks and the server tell each other: JSON over the server's own HTTP interface.

use serde::{Deserialize, Serialize};

/// The path at which a hook asks whether a derivation may be accepted.
pub const TRY_PATH: &str = "/nix/v1/try";
/// The path at which a hook asks for a place. The answer is a line of JSON for each [`BuildEvent`], for as long as the build
/// lasts.
pub const BUILDS_PATH: &str = "/nix/v1/builds";

/// The most input paths that a hook names; the largest are named.
pub const INPUTS_MAX: usize = windlass_core::bounds::CACHES_PER_STEP_MAX;
/// The most machines that a client names.
pub const MACHINES_MAX: usize = 200;

/// Bytes of a name, a URI, or another text of a request.
pub const TEXT_BYTES_MAX: usize = 1_024;
/// Systems, features or outputs that a request lists in one place.
pub const LISTED_MAX: usize = 128;

/// Why a request is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadRequest {
    /// A text that is too long.
    #[error("{what} has {is} bytes, and at most {TEXT_BYTES_MAX} are allowed")]
    Long {
        /// Which.
        what: &'static str,
        /// Its bytes.
        is: usize,
    },
    /// A list that is too long.
    #[error("{what}: {is} are more than the limit of {max}")]
    Many {
        /// Of what.
        what: &'static str,
        /// How many there are.
        is: usize,
        /// How many there may be.
        max: usize,
    },
    /// A text with line breaks or other control characters.
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
    /// The systems that it builds for.
    pub systems: Vec<String>,
    /// Builds at a time.
    pub max_jobs: u32,
    /// How much faster than others it is.
    pub speed: f64,
    /// Features that derivations may require.
    pub supported: Vec<String>,
    /// Features that derivations must require.
    pub mandatory: Vec<String>,
}

/// What a derivation needs of a machine, and who asks.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// The same for all hooks of one run of Nix.
    pub client: String,
    /// What tells the client's store from all others; empty where that is unknown.
    #[serde(default)]
    pub store: String,
    /// The derivation's system, such as `x86_64-linux`.
    pub system: String,
    /// All features that it requires.
    pub features: Vec<String>,
    /// The machines of the client's `builders`.
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
    /// Whether all texts and lists are within their bounds.
    ///
    /// # Errors
    ///
    /// What is too long.
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

/// The question of Nix's `try`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TryRequest {
    /// What is needed.
    pub wanted: Wanted,
    /// The most builds of this client that may wait or run; 0 is no bound.
    pub in_flight_max: usize,
}

/// The answer to a [`TryRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum TryAnswer {
    /// Accept it.
    Accept,
    /// Too many builds of this client wait: Nix should ask again later.
    Postpone,
    /// No machine of the farm could ever build it.
    Decline {
        /// Why, for people.
        why: String,
    },
}

/// A derivation that wants a place.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BuildRequest {
    /// What is needed.
    pub wanted: Wanted,
    /// A random number of the hook. A hook that asks again with it, after the connection was lost, gets the same build.
    pub key: String,
    /// Whose build it is. Only administrators may name somebody; the build of anybody else is their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The derivation's path.
    pub drv: String,
    /// Its name with its version.
    pub name: String,
    /// Its name without the version: builds of the same are expected to behave alike.
    pub pname: String,
    /// Cpus that the build may use, where the user said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// It is short, and best built where its inputs are.
    #[serde(default)]
    pub prefer_local: bool,
    /// It only downloads something.
    #[serde(default)]
    pub fixed_output: bool,
    /// The largest store paths that it reads, by their name in the store, with the bytes of their NARs where known.
    #[serde(default)]
    pub inputs: Vec<(String, Option<u64>)>,
    /// The store paths that it makes, by their name in the store.
    #[serde(default)]
    pub outputs: Vec<String>,
}

impl BuildRequest {
    /// Whether all texts and lists are within their bounds.
    ///
    /// # Errors
    ///
    /// What is too long.
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

/// What a hook is told of its build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum BuildEvent {
    /// The build is this job.
    Job {
        /// Its number.
        job: u64,
    },
    /// It waits.
    Waits {
        /// Why, for people.
        why: String,
    },
    /// It has a place.
    Place {
        /// The number of the attempt.
        attempt: u32,
        /// The worker's name.
        worker: String,
        /// The URI of its store.
        uri: String,
    },
    /// This attempt is over or is to end; perhaps another place follows.
    Stop {
        /// The number of the attempt.
        attempt: u32,
    },
    /// The job has ended and nothing follows.
    End {
        /// How, in a word: `succeeded`, `failed` or `canceled`.
        state: String,
    },
    /// The server does not take the build.
    Refused {
        /// Why, for people.
        why: String,
        /// True if it may later.
        is_temporary: bool,
    },
}

/// What a hook says of an attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The number of the attempt.
    pub attempt: u32,
    /// How far it is.
    pub outcome: Outcome,
}

/// How far an attempt is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The machine is connected and builds.
    Began,
    /// Built, and its outputs are in the client's store.
    Succeeded,
    /// Its builder failed, or it was cancelled: it is not tried elsewhere.
    Failed {
        /// The exit code: 100, or 101 for a time limit.
        code: i32,
        /// Why, for people.
        message: String,
    },
    /// The machine could not be connected.
    NotConnected {
        /// Why, for people.
        message: String,
    },
    /// The machine was lost in the middle.
    Lost {
        /// Why, for people.
        message: String,
    },
    /// Ended because the server or the user wanted so.
    Canceled,
}

impl Outcome {
    /// Cuts what is said for people to what is kept.
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

/// The last part of a store path: `/nix/store/HASH-NAME` is `HASH-NAME`.
pub fn store_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The host of a store's URI, without user and port; the whole of one that has none.
pub fn host(uri: &str) -> &str {
    let uri = uri.split(['?', '#']).next().unwrap_or(uri);
    let Some((_, place)) = uri.split_once("://") else { return uri };
    let place = place.rsplit_once('@').map_or(place, |(_, host)| host);
    place.split(['/', ':']).next().unwrap_or(place)
}
