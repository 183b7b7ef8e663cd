//! Errors of PostgreSQL: which are tried again, which leave the outcome of a commit open, and what a person is told.

use crate::error::StoreError;
use std::error::Error;
use tokio_postgres::error::SqlState;

/// The driver's words for a connection without the TLS that is asked for, and for a database that offers none. The kind of
/// its errors is not public.
const TLS_FAILED: &str = "error performing TLS handshake";
const TLS_REFUSED: &str = "server does not support TLS";

#[derive(Debug)]
pub enum Trouble {
    /// PostgreSQL or the connection says so.
    Sql(tokio_postgres::Error),
    /// A row has what this version does not know.
    Row(String),
    /// Something around the query failed.
    Store(StoreError),
}

/// What is done about a failed commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// PostgreSQL has taken it back because of another transaction: the same is tried again.
    TryAgain,
    /// The connection is gone, or is of a database that no longer takes writes. Where a commit was asked for, its outcome
    /// is unknown.
    FindOut,
    /// PostgreSQL has refused it for a reason that stays.
    GiveUp,
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Trouble::Sql(error)
    }
}

impl From<serde_json::Error> for Trouble {
    fn from(error: serde_json::Error) -> Self {
        Trouble::Row(error.to_string())
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Trouble::Store(error)
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        trouble.while_it("read")
    }
}

impl Trouble {
    /// The SQLSTATE, if PostgreSQL has answered.
    pub fn code(&self) -> Option<&SqlState> {
        match self {
            Trouble::Sql(error) => error.code(),
            _ => None,
        }
    }

    pub fn remedy(&self) -> Remedy {
        let error = match self {
            Trouble::Sql(error) => error,
            // Of several hosts, or behind a proxy, the next one may have TLS.
            Trouble::Store(
                StoreError::Unreachable { .. }
                | StoreError::TooMany { .. }
                | StoreError::NoTls { .. }
                | StoreError::Tls { .. },
            ) => {
                return Remedy::FindOut;
            }
            _ => return Remedy::GiveUp,
        };
        let Some(code) = error.code() else {
            // A parameter that cannot be written is never sent. All else without an answer leaves the outcome open.
            let text = error.to_string();
            let is_unsent = text.starts_with("error serializing") || text.starts_with("expected ");
            return if is_unsent { Remedy::GiveUp } else { Remedy::FindOut };
        };
        match code {
            code if *code == SqlState::T_R_SERIALIZATION_FAILURE
                || *code == SqlState::T_R_DEADLOCK_DETECTED
                || *code == SqlState::LOCK_NOT_AVAILABLE =>
            {
                Remedy::TryAgain
            }
            code if is_of_the_connection(code) => Remedy::FindOut,
            _ => Remedy::GiveUp,
        }
    }

    /// For a person: `doing` completes "the store failed while it".
    pub fn while_it(self, doing: &'static str) -> StoreError {
        let error = match self {
            Trouble::Store(error) => return error,
            Trouble::Row(why) => return StoreError::Database { doing, source: why.into() },
            Trouble::Sql(error) => error,
        };
        match error.code() {
            Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
                StoreError::Privilege { why: words(&error) }
            }
            Some(code) if *code == SqlState::DISK_FULL => StoreError::Full("the database".to_owned()),
            Some(_) => StoreError::Database { doing, source: words(&error).into() },
            None => StoreError::Database { doing, source: Box::new(error) },
        }
    }
}

/// An unknown end, shutdown, crash, recovery, too many connections, a demoted primary, and the whole class of connection errors.
fn is_of_the_connection(code: &SqlState) -> bool {
    let ends = [
        SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    ends.contains(code) || code.code().starts_with("08")
}

/// PostgreSQL's own words, with its hint. They name tables and users, and never a password.
fn words(error: &tokio_postgres::Error) -> String {
    let Some(db) = error.as_db_error() else { return error.to_string() };
    let detail = [db.detail(), db.hint()].into_iter().flatten().map(|more| format!("; {more}"));
    format!("{}{}", db.message(), detail.collect::<String>())
}

pub fn connecting(error: tokio_postgres::Error, database: &str, connections: usize) -> StoreError {
    let database = database.to_owned();
    match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => StoreError::NoDatabase { database },
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
            StoreError::TooMany { database, needed: connections }
        }
        Some(code) if *code == SqlState::INVALID_PASSWORD || code.code().starts_with("28") => {
            StoreError::Login { database, why: words(&error) }
        }
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::Privilege { why: words(&error) }
        }
        Some(_) => StoreError::Unreachable { database, source: words(&error).into() },
        None if error.to_string() == TLS_FAILED => match error.source() {
            Some(cause) if cause.to_string() == TLS_REFUSED => StoreError::NoTls { database },
            _ => StoreError::Tls { database, source: Box::new(error) },
        },
        None if error.to_string().contains("configuration") => {
            // The only one of these is a password that is asked for and missing.
            let why = error.source().map_or(error.to_string(), |cause| cause.to_string());
            StoreError::Login { database, why }
        }
        None => StoreError::Unreachable { database, source: Box::new(error) },
    }
}
