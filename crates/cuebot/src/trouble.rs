//! Why a call fails, and what the client is told.

use crate::frames::RangeError;
use crate::names::NameError;
use crate::spec::SpecError;
use tokio_postgres::error::SqlState;
use tonic::{Code, Status};

/// Why a call fails.
#[allow(missing_docs, reason = "the messages say what went wrong")]
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("there is no {what} '{name}'")]
    Missing { what: &'static str, name: String },
    /// A value that the call cannot use. The text says which, and what to do.
    #[error("{0}")]
    Value(String),
    #[error("there is a {what} '{name}' already; choose another name, or end that one")]
    Exists { what: &'static str, name: String },
    /// A part of OpenCue that is not served. The text says what to do instead.
    #[error("{0}")]
    Unserved(String),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Range(#[from] RangeError),
    #[error("the database failed; the client may try again")]
    Database(#[from] tokio_postgres::Error),
    /// The transaction must begin again, and lock these jobs before all else.
    #[error("another call changes jobs that wait for these frames; the client may try again")]
    Crossed,
    #[error("no connection to the database came free; the client may try again")]
    Pool(#[from] deadpool_postgres::PoolError),
}

/// Classes of PostgreSQL's error codes that say nothing of the statement: connection, state of the transaction (a
/// standby), rollback, resources, state of the database, operator, system, internal.
const PASSING: [&str; 8] = ["08", "25", "40", "53", "55", "57", "58", "XX"];

impl CallError {
    /// An error where a statement about one row changed none.
    pub(crate) fn unless_found(rows: u64, what: &'static str, name: &str) -> Result<(), CallError> {
        if rows == 0 { Err(CallError::Missing { what, name: name.to_owned() }) } else { Ok(()) }
    }

    /// True where the same transaction may succeed when it runs again.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            CallError::Database(error) => is_conflict(error),
            CallError::Crossed => true,
            _ => false,
        }
    }

    /// True where the database may take the same later: it is away or overloaded, or it ended the transaction.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            CallError::Pool(_) | CallError::Crossed => true,
            CallError::Database(error) => {
                // Without a code it is the connection that failed.
                error.code().is_none_or(|code| PASSING.iter().any(|class| code.code().starts_with(class)))
            }
            _ => false,
        }
    }

    /// The error of a write that failed: the name is taken, where PostgreSQL says so.
    pub(crate) fn taken(error: tokio_postgres::Error, what: &'static str, name: &str) -> CallError {
        if error.code() == Some(&SqlState::UNIQUE_VIOLATION) {
            return CallError::Exists { what, name: name.to_owned() };
        }
        CallError::Database(error)
    }

    /// The status that the client gets.
    pub(crate) fn status(&self) -> Status {
        let code = match self {
            CallError::Missing { .. } => Code::NotFound,
            CallError::Value(_) | CallError::Spec(_) | CallError::Name(_) | CallError::Range(_) => {
                Code::InvalidArgument
            }
            CallError::Exists { .. } => Code::AlreadyExists,
            CallError::Unserved(_) => Code::Unimplemented,
            CallError::Database(_) | CallError::Pool(_) | CallError::Crossed => Code::Unavailable,
        };
        Status::new(code, self.to_string())
    }
}

/// True where the same transaction may succeed when it runs again, because two transactions waited for each other.
pub fn is_conflict(error: &tokio_postgres::Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::T_R_DEADLOCK_DETECTED) || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}
