//! The SQLite file of a store: a row for each blob, bodies of small ones, pins, and results of actions.
//!
//! Changes of several threads share a transaction. Each runs its statements when it gets the connection, and then
//! hands it to the next that waits. Whichever has no one waiting behind it commits for all. A change that fails takes
//! the others of its transaction with it: they are told, and none of them is half done.

pub(crate) mod statements;

use crate::error::CasError;
use crate::faults::{Faults, Step};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, ffi};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The schema that this version writes.
const SCHEMA: i64 = 1;
/// Reading connections that are kept open.
const READERS_MAX: usize = 8;
/// Memory of a connection for pages, in KiB.
const PAGES_KIB: i64 = 4_096;
/// Pages of the write-ahead log after which a commit also moves them into the file: 16 MiB.
const CHECKPOINT_PAGES: i64 = 4_096;

/// Slots number the rows of blobs and bodies, so that each row is found without an index.
const TABLES: &str = "
BEGIN;
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL, size INTEGER NOT NULL, spaces INTEGER NOT NULL,
    used_s INTEGER NOT NULL, written_s INTEGER NOT NULL
) STRICT;
CREATE TABLE bodies (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
CREATE TABLE pins (owner TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (owner, id)) STRICT, WITHOUT ROWID;
CREATE TABLE actions (
    id INTEGER PRIMARY KEY, instance TEXT NOT NULL, hash BLOB NOT NULL, size INTEGER NOT NULL,
    used_s INTEGER NOT NULL, bytes INTEGER NOT NULL, result BLOB NOT NULL, UNIQUE (instance, hash, size)
) STRICT;
CREATE INDEX actions_by_use ON actions (used_s, bytes);
CREATE TABLE users (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE holders (id INTEGER NOT NULL, user INTEGER NOT NULL, PRIMARY KEY (id, user)) STRICT, WITHOUT ROWID;
CREATE TABLE notes (
    owner TEXT NOT NULL, number INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (owner, number)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
COMMIT";

pub(crate) struct Rows {
    path: PathBuf,
    writing: Mutex<Writing>,
    /// Held by the thread that commits, so that the others of its transaction wait for it.
    turn: Mutex<()>,
    readers: Mutex<Vec<Connection>>,
    faults: Faults,
}

struct Writing {
    db: Connection,
    /// The transaction that is open, or the next one.
    batch: Arc<Batch>,
}

/// One transaction, and what became of it.
#[derive(Default)]
struct Batch {
    outcome: OnceLock<Result<(), Arc<rusqlite::Error>>>,
}

impl Rows {
    /// Opens or creates the file.
    pub fn open(path: PathBuf, faults: Faults) -> Result<Rows, CasError> {
        let open = || {
            let db = connect(&path)?;
            let found: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if found == 0 {
                db.execute_batch(TABLES)?;
            }
            Ok((db, found))
        };
        let (db, found) = open().map_err(|e| failure(&path, "opened its file", Arc::new(e)))?;
        if found > SCHEMA {
            return Err(CasError::Newer { path, found, known: SCHEMA });
        }
        let writing = Mutex::new(Writing { db, batch: Arc::default() });
        Ok(Rows { path, writing, turn: Mutex::default(), readers: Mutex::default(), faults })
    }

    /// Runs a change, and returns when it is committed. `doing` completes "the store of files failed while it". A
    /// change only runs statements: it must not wait, and its other effects are not taken back if the commit fails.
    pub fn write<T>(
        &self,
        doing: &'static str,
        change: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CasError> {
        let mut writing = self.writing.lock();
        let batch = writing.batch.clone();
        let value = match writing.run(change) {
            Ok(value) => value,
            Err(error) => {
                let error = Arc::new(error);
                writing.end(Err(error.clone()));
                return Err(failure(&self.path, doing, error));
            }
        };
        // The next that waits gets the connection now, and so takes part in this transaction.
        MutexGuard::unlock_fair(writing);
        self.settle(&batch).map_err(|error| failure(&self.path, doing, error))?;
        Ok(value)
    }

    /// Commits the transaction, unless another thread has.
    fn settle(&self, batch: &Batch) -> Result<(), Arc<rusqlite::Error>> {
        let _turn = self.turn.lock();
        if batch.outcome.get().is_none() {
            let mut writing = self.writing.lock();
            // Another change may have failed while this thread waited, and ended the transaction.
            if batch.outcome.get().is_none() {
                let outcome = self.faults.at(Step::Commit).map_err(as_sql);
                let outcome = outcome.and_then(|()| writing.db.execute_batch("COMMIT"));
                writing.end(outcome.map_err(Arc::new));
            }
        }
        batch.outcome.get().expect("the thread that ended the transaction has noted its outcome").clone()
    }

    /// Asks a reading connection, beside changes.
    pub fn read<T>(
        &self,
        doing: &'static str,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CasError> {
        let idle = self.readers.lock().pop();
        let ask = || {
            let db = match idle {
                Some(db) => db,
                None => connect(&self.path)?,
            };
            let answer = question(&db)?;
            let mut readers = self.readers.lock();
            if readers.len() < READERS_MAX {
                readers.push(db);
            }
            Ok(answer)
        };
        ask().map_err(|error| failure(&self.path, doing, Arc::new(error)))
    }

    /// Notes durably that the store is in use, and says how the last process left it. From now on commits are synced if
    /// `is_synced`; the file is consistent in either case.
    pub fn begin(&self, boot: i64, is_synced: bool) -> Result<Left, CasError> {
        let writing = self.writing.lock();
        let begin = || {
            let number = |key: &str| {
                let select = "SELECT value FROM meta WHERE key = ?1";
                writing.db.query_row(select, [key], |row| row.get::<_, i64>(0)).optional()
            };
            let left = Left {
                is_clean: number("clean")? == Some(1),
                is_same_boot: boot != 0 && number("boot")? == Some(boot),
            };
            writing.db.pragma_update(None, "synchronous", "full")?;
            writing.db.execute("INSERT OR REPLACE INTO meta VALUES ('clean', 0), ('boot', ?1)", [boot])?;
            if !is_synced {
                writing.db.pragma_update(None, "synchronous", "normal")?;
            }
            Ok(left)
        };
        begin().map_err(|error| failure(&self.path, "noted that it is in use", Arc::new(error)))
    }

    /// Notes that the rows are those of the files.
    pub fn end(&self) -> Result<(), CasError> {
        let end = "INSERT OR REPLACE INTO meta VALUES ('clean', 1)";
        self.write("noted its end", |db| db.execute(end, []).map(|_| ()))
    }
}

/// How the last process left a store.
pub(crate) struct Left {
    /// It closed the store.
    pub is_clean: bool,
    /// The machine has run since then, so what was written to files is in them.
    pub is_same_boot: bool,
}

impl Writing {
    fn run<T>(&mut self, change: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        if self.db.is_autocommit() {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
        }
        change(&self.db)
    }

    fn end(&mut self, outcome: Result<(), Arc<rusqlite::Error>>) {
        if !self.db.is_autocommit() {
            // A transaction that SQLite cannot take back would fail the next one, too, which then is told.
            _ = self.db.execute_batch("ROLLBACK");
        }
        _ = std::mem::take(&mut self.batch).outcome.set(outcome);
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(10))?;
    // This setting has an effect only while the file is empty.
    db.pragma_update(None, "auto_vacuum", "incremental")?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    db.pragma_update(None, "journal_size_limit", 64 << 20)?;
    db.pragma_update(None, "cache_size", -PAGES_KIB)?;
    db.set_prepared_statement_cache_capacity(32);
    Ok(db)
}

fn as_sql(error: io::Error) -> rusqlite::Error {
    let is_full = error.kind() == io::ErrorKind::StorageFull;
    let code = if is_full { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR };
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(error.to_string()))
}

fn failure(path: &Path, doing: &'static str, source: Arc<rusqlite::Error>) -> CasError {
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => CasError::DiskFull(path.to_owned()),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            CasError::Damaged { path: path.to_owned(), why: source.to_string() }
        }
        _ => CasError::Database { doing, source },
    }
}
