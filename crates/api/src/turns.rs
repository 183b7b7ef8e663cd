//! The JSON of turns: commands that wait in a queue for room on the machine where they were started, and run there
//! while the client keeps its request open.

use crate::submit::is_default;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;
use windlass_core::bounds;

/// Bytes of a turn's `worktree` at most.
pub const TURN_WORKTREE_BYTES_MAX: usize = 1_000;
/// Bytes of `command`, and of each text of `shape`, at most.
pub const TURN_TEXT_BYTES_MAX: usize = 200;
/// Texts of `shape` at most.
pub const TURN_SHAPES_MAX: usize = 4;
/// Limits that a turn may name at most.
pub const TURN_LIMITS_MAX: usize = 8;
/// Cpus of a turn at most.
const CPUS_MAX: f64 = 40_000_000.0;

/// A client asks for its turn on its own machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnRequest {
    /// Name of the machine on which the client runs, as the operating system tells it. Only workers there give it room.
    pub machine: String,
    /// The queue; by default the one with the user's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Cpus, in hundredths at the finest; by default 1. A command inside a task with a jobserver asks for 0, because the
    /// task has its cpus already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Bytes of memory. Absent: what earlier turns of the same shape needed, or a part of what is free where nothing is
    /// known of it. Without a shape: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// What the command is, from exact to general, such as `rustc|compile|serde` and `rustc|compile`. Its memory is
    /// that of the first of these texts of which something is known. A client that names one says what the command holds
    /// while it runs; until it does, all that is booked counts as not used yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<String>,
    /// The root of the repository, or another text: turns of one user with different texts take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// The command, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// How long it waits at most. With 0 it gets its turn at once or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_max_ms: Option<u64>,
    /// Limits of which it holds one each while it runs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub limits: BTreeSet<String>,
    /// The turn that the client has had before the server was restarted, or before its connection broke. The command runs
    /// already; `memory` and `cpus` say what it holds. A server that was just started books that at once. Otherwise the
    /// turn waits for its room like others, and the command runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldTurn>,
}

/// Why a turn is not asked for rightly.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum TurnError {
    #[error("cpus must be a number from 0 to {CPUS_MAX}, not {0}")]
    BadCpus(f64),
    #[error("memory must be less than 1 PiB, not {0} bytes")]
    BadMemory(u64),
    #[error("{what} must have 1 to {max} bytes, not {is}")]
    Length { what: &'static str, is: usize, max: usize },
    #[error("{0} contains control characters")]
    Control(&'static str),
    #[error("a turn has at most {max} {what}, not {is}")]
    TooMany { what: &'static str, is: usize, max: usize },
}

impl TurnRequest {
    /// Refuses what no turn can have.
    ///
    /// # Errors
    ///
    /// The first fault that is found.
    pub fn check(&self) -> Result<(), TurnError> {
        if let Some(cpus) = self.cpus.filter(|cpus| !(0.0..=CPUS_MAX).contains(cpus)) {
            return Err(TurnError::BadCpus(cpus));
        }
        if let Some(bytes) = self.memory.filter(|bytes| *bytes >= bounds::PEAK_BYTES_MAX) {
            return Err(TurnError::BadMemory(bytes));
        }
        let names = [("machine", Some(&self.machine)), ("queue", self.queue.as_ref())];
        for (what, name) in names {
            check_text(what, name, bounds::NAME_BYTES_MAX)?;
        }
        self.limits.iter().try_for_each(|name| check_text("a limit", Some(name), bounds::NAME_BYTES_MAX))?;
        check_text("worktree", self.worktree.as_ref(), TURN_WORKTREE_BYTES_MAX)?;
        check_text("command", self.command.as_ref(), TURN_TEXT_BYTES_MAX)?;
        self.shape.iter().try_for_each(|shape| check_text("a shape", Some(shape), TURN_TEXT_BYTES_MAX))?;
        at_most("shapes", self.shape.len(), TURN_SHAPES_MAX)?;
        at_most("limits", self.limits.len(), TURN_LIMITS_MAX)
    }
}

fn check_text(what: &'static str, text: Option<&String>, max: usize) -> Result<(), TurnError> {
    match text {
        None => Ok(()),
        Some(text) if !(1..=max).contains(&text.len()) => {
            Err(TurnError::Length { what, is: text.len(), max })
        }
        Some(text) if text.contains(char::is_control) => Err(TurnError::Control(what)),
        Some(_) => Ok(()),
    }
}

fn at_most(what: &'static str, is: usize, max: usize) -> Result<(), TurnError> {
    if is > max { Err(TurnError::TooMany { what, is, max }) } else { Ok(()) }
}

/// A turn that a client has had before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldTurn {
    /// The turn's number until then.
    pub turn: u64,
}

/// What a client hears while it waits for its turn, and when it has it: one line each. The turn ends with the
/// connection. Empty lines keep an idle connection open, and say nothing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TurnLine {
    /// The turn's number. After a restart of the server it is another one.
    pub turn: u64,
    /// Whether it waits or runs.
    pub state: TurnState,
    /// Why it waits, as a sentence for people; or why it gets no turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Bytes of memory that are booked for it now; absent where none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Name of the worker that holds the room; absent while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Where a turn stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// It waits for its room.
    Waits,
    /// The command may run, or runs.
    Runs,
    /// It gets no turn, or has lost its worker; `why` says for what reason. This is the last line.
    Refused,
}

/// What a client says of a turn while its command runs, at most once a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnHolds {
    /// Bytes of memory that the command and all that it started hold together.
    pub memory: u64,
}

/// What a client says of a turn when its command has ended: the next ones of the shape are sized by it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnEnd {
    /// The most bytes of memory that the command held, with all that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// How long it ran.
    pub wall_ms: u64,
    /// Its exit code, or the code that a shell would report instead, such as 137 for SIGKILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if the kernel killed it because memory was short.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
}

/// A turn that waits or runs. (`Turn` is the place of a step in its queue.)
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ClientTurn {
    /// Its number, which no other turn since the server's start has.
    pub turn: u64,
    /// Whether it waits or runs.
    pub state: TurnState,
    /// The user who asked for it.
    pub user: String,
    /// The queue in which it waits, or that is charged for it.
    pub queue: String,
    /// The machine on which the client runs.
    pub machine: String,
    /// The root of the client's repository, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// The command, if the client told it and the reader may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Since when it waits, or runs.
    pub since_ms: u64,
    /// Cpus that it asks for.
    pub cpus: f64,
    /// Bytes of memory that are booked for it, or will be; absent where none are, and while it waits and nothing is known
    /// of its shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Bytes of memory that its command holds, as its client said last; absent where it has not said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_memory: Option<u64>,
    /// The worker that holds the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Why it waits, as a sentence for people. Only of the first ones of each queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The turns that wait and run now.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TurnList {
    /// Those that run, then those that wait, each from the oldest on.
    pub turns: Vec<ClientTurn>,
    /// How many more there are than the answer lists.
    #[serde(default, skip_serializing_if = "is_default")]
    pub more: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_turn_can_have_is_refused() {
        let right = TurnRequest { machine: "box".to_owned(), ..TurnRequest::default() };
        assert_eq!(right.check(), Ok(()));
        let said = |request: TurnRequest| request.check().unwrap_err().to_string();
        let cases = [
            (TurnRequest::default(), "machine must have 1 to 255 bytes, not 0"),
            (
                TurnRequest { cpus: Some(f64::NAN), ..right.clone() },
                "cpus must be a number from 0 to 40000000, not NaN",
            ),
            (
                TurnRequest { memory: Some(1 << 50), ..right.clone() },
                "memory must be less than 1 PiB, not 1125899906842624 bytes",
            ),
            (
                TurnRequest { worktree: Some("/a\0".to_owned()), ..right.clone() },
                "worktree contains control characters",
            ),
            (
                TurnRequest { command: Some("x".repeat(201)), ..right.clone() },
                "command must have 1 to 200 bytes, not 201",
            ),
            (
                TurnRequest { shape: vec!["cc".to_owned(); 5], ..right.clone() },
                "a turn has at most 4 shapes, not 5",
            ),
            (
                TurnRequest { limits: (0..9).map(|n| n.to_string()).collect(), ..right.clone() },
                "a turn has at most 8 limits, not 9",
            ),
        ];
        for (request, why) in cases {
            assert_eq!(said(request), why);
        }
    }
}
