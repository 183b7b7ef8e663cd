//! The embedded store: one SQLite file in WAL mode with `synchronous=FULL`. One thread writes, with one
//! transaction for a batch, and other connections read beside it. [`Sqlite::open`] locks the file against a
//! second server, and migrates an older schema after it has made a copy. Migrations are numbered and never
//! edited, not even in a comment: a database stores the checksum of each migration's text, and one whose
//! checksums differ is refused.

mod foreign;
mod join;
mod notices;
mod parked;
mod read;
mod rows;
mod series;
mod settings;
mod tokens;
mod turns;
mod usage;
mod write;

use crate::error::StoreError;
use crate::notices::Beside;
use crate::view::{ForeignWrite, SeriesRow, TokenWrite};
use parking_lot::Mutex;
use read::Reader;
use refinery::Target;
use rusqlite::Connection;
use std::fs::{File, OpenOptions, TryLockError};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use tokio::sync::{mpsc, oneshot};
use windlass_core::engine::Outbox;
use windlass_core::residency::subqueues::ParkedDrift;
use windlass_core::{JobId, Time};

mod embedded {
    refinery::embed_migrations!("src/sqlite/migrations");
}

/// Batches and other requests that may wait for the writer.
const WRITER_QUEUE_MAX: usize = 16;
/// The schema version whose new files have `auto_vacuum`. Older files must be rewritten once before they can shrink.
const FIRST_THAT_SHRINKS: i64 = 9;
/// The schema from which on a farm is never divided.
const ONE_ENGINE_SINCE: i32 = 19;
/// Pages that one transaction returns to the file system. The number is small because commits wait meanwhile.
const SHRINK_PAGES: u32 = 1_000;
/// Reading connections that are kept open.
const READERS_MAX: usize = 4;
/// Pages of the write-ahead log after which a commit also moves them into the database file: 32 MiB.
const CHECKPOINT_PAGES: u32 = 8192;

/// An open SQLite store. Clones share it.
#[derive(Clone)]
pub struct Sqlite {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    id: i64,
    writer: mpsc::Sender<Change>,
    readers: Mutex<Vec<Reader>>,
    /// Held as long as the store is open, against a second server.
    _lock: File,
}

/// A change, which also sends its outcome to its caller.
type Change = Box<dyn FnOnce(&mut Connection) + Send>;

impl Sqlite {
    /// Opens or creates the file, migrates its schema and starts the writer.
    pub fn open(path: &Path) -> Result<Sqlite, StoreError> {
        let lock = lock(path)?;
        let mut db = connect(path)?;
        migrate(&mut db, path)?;
        let id = own_number(&db).map_err(|e| sql_error(path, "read its number", e))?;
        let (writer, changes) = mpsc::channel(WRITER_QUEUE_MAX);
        thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_loop(&mut db, changes))
            .map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
        let inner = Inner { path: path.to_owned(), id, writer, readers: Mutex::default(), _lock: lock };
        Ok(Sqlite { inner: Arc::new(inner) })
    }

    pub(crate) fn id(&self) -> i64 {
        self.inner.id
    }

    pub(crate) async fn commit(&self, batch: Arc<Outbox>, beside: Beside) -> Result<Vec<usize>, StoreError> {
        // The batch is freed before the answer, so the engine takes it back as its only owner.
        self.write("committed", move |db| write::commit(db, &batch.writes, &beside)).await
    }

    pub(crate) async fn forget_notices(&self, numbers: Vec<u64>) -> Result<(), StoreError> {
        self.write("deleted notices", move |db| notices::forget(db, &numbers)).await
    }

    pub(crate) async fn forget_usage(&self, before_day: u64) -> Result<usize, StoreError> {
        self.write("deleted sums of days", move |db| usage::forget(db, before_day)).await
    }

    pub(crate) async fn retain(&self, before: Time, rows: usize) -> Result<(Vec<JobId>, bool), StoreError> {
        self.write("deleted", move |db| write::retain(db, before, rows)).await
    }

    /// Compares on a reading connection, which holds up no commit. The writer recounts only if something differs.
    pub(crate) async fn audit_parked(&self) -> Result<Vec<ParkedDrift>, StoreError> {
        if self.read(|reader| parked::drifts(&reader.db)).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.write("counted", parked::recount).await
    }

    pub(crate) async fn keep_number(&self, name: &'static str, number: u64) -> Result<(), StoreError> {
        let set = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.write("kept a number", move |db| db.execute(set, (name, number as i64)).map(|_| ())).await
    }

    pub(crate) async fn keep_series(
        &self,
        rows: Vec<SeriesRow>,
        kept: Vec<(u8, Range<u64>)>,
    ) -> Result<(), StoreError> {
        self.write("kept series", move |db| series::keep(db, &rows, &kept)).await
    }

    pub(crate) async fn shrink(&self) -> Result<bool, StoreError> {
        self.write("shrank", |db| write::shrink(db, SHRINK_PAGES)).await
    }

    pub(crate) async fn write_token(&self, write: TokenWrite) -> Result<bool, StoreError> {
        self.write("changed tokens", move |db| tokens::apply(db, &write)).await
    }

    pub(crate) async fn write_foreign(&self, writes: Vec<ForeignWrite>) -> Result<(), StoreError> {
        self.write("kept what hosts said", move |db| foreign::apply(db, &writes)).await
    }

    pub(crate) fn connection(&self) -> Result<Connection, StoreError> {
        connect(&self.inner.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Runs a change on the writer's thread, after those that wait. `doing` completes "the store failed while it".
    async fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        change: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (done, outcome) = oneshot::channel();
        let path = self.inner.path.clone();
        let change = Box::new(move |db: &mut Connection| {
            _ = done.send(change(db).map_err(|e| sql_error(&path, doing, e)));
        });
        self.inner.writer.send(change).await.map_err(|_| StoreError::Closed)?;
        outcome.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs `question` on a reading connection and a blocking thread.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Reader) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let idle = inner.readers.lock().pop();
            let reader = match idle {
                Some(reader) => reader,
                None => Reader { db: connect(&inner.path)? },
            };
            let answer = question(&reader).map_err(|e| sql_error(&inner.path, "read", e));
            let mut readers = inner.readers.lock();
            if readers.len() < READERS_MAX {
                readers.push(reader);
            }
            answer
        });
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

fn write_loop(db: &mut Connection, mut changes: mpsc::Receiver<Change>) {
    let _guard = AbortOnPanic;
    while let Some(change) = changes.blocking_recv() {
        change(db);
    }
}

/// Ends the process when the writer's thread panics. Without a writer, a server could only refuse requests. The next
/// server goes on with all accepted jobs, which are on disk.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

/// The random number that the file got when it was created.
fn own_number(db: &Connection) -> rusqlite::Result<i64> {
    db.execute("INSERT OR IGNORE INTO meta VALUES ('store_id', random())", [])?;
    db.query_row("SELECT value FROM meta WHERE key = 'store_id'", [], |row| row.get(0))
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let lock_path = path.with_extension("lock");
    let io = |source| StoreError::Io { path: lock_path.clone(), source };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(io)?;
    }
    let mut private = OpenOptions::new();
    private.create(true).truncate(false).write(true).mode(0o600);
    let file = private.open(&lock_path).map_err(io)?;
    // The database contains environments of jobs. SQLite gives its other files the database's permissions.
    private.open(path).map_err(|source| StoreError::Io { path: path.to_owned(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let open = || {
        let db = Connection::open(path)?;
        db.busy_timeout(std::time::Duration::from_secs(10))?;
        // This setting has an effect only while the file is empty.
        db.pragma_update(None, "auto_vacuum", "incremental")?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.pragma_update(None, "synchronous", "full")?;
        db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        db.pragma_update(None, "journal_size_limit", 64 << 20)?;
        db.pragma_update(None, "cache_size", -16_384)?;
        db.set_prepared_statement_cache_capacity(64);
        Ok(db)
    };
    open().map_err(|e| sql_error(path, "opened the file", e))
}

fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let runner = embedded::migrations::runner().set_abort_missing(false);
    let known = runner.get_migrations().iter().map(|m| m.version()).max().unwrap_or(0);
    let corrupt = |e: refinery::Error| StoreError::Corrupt { path: path.to_owned(), why: e.to_string() };
    let table = "SELECT count(*) FROM sqlite_master WHERE name = 'refinery_schema_history'";
    let exists: i64 = db.query_row(table, [], |row| row.get(0)).map_err(|e| sql_error(path, "read", e))?;
    if exists > 0 {
        let newest = "SELECT coalesce(max(version), 0) FROM refinery_schema_history";
        let found = db.query_row(newest, [], |row| row.get(0)).map_err(|e| sql_error(path, "read", e))?;
        if i64::from(known) < found {
            return Err(StoreError::Newer { store: path.display().to_string(), found: found as i32, known });
        }
        if i64::from(known) > found {
            keep_copy(db, path, found)?;
            if found < FIRST_THAT_SHRINKS {
                let change = "PRAGMA auto_vacuum = incremental; VACUUM";
                db.execute_batch(change).map_err(|e| sql_error(path, "made the file able to shrink", e))?;
            }
        }
        if found < i64::from(ONE_ENGINE_SINCE) {
            // The last schema with shards holds the facts from which the missing writes of their engines follow.
            let divided = embedded::migrations::runner().set_abort_missing(false);
            let divided = divided.set_target(Target::Version(ONE_ENGINE_SINCE - 1));
            divided.run(db).map_err(corrupt)?;
            join::join(db).map_err(|e| sql_error(path, "joined the shards of a divided farm", e))?;
        }
    }
    runner.run(db).map(|_| ()).map_err(corrupt)
}

/// Copies a database before its schema changes, so that the earlier release, which does not know the new
/// schema, can go on with the copy. Copies of earlier changes are deleted.
fn keep_copy(db: &Connection, path: &Path, version: i64) -> Result<(), StoreError> {
    let copy = path.with_extension(format!("before-upgrade-{version}.db"));
    let others = path.parent().and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    let stem = format!("{}.before-upgrade-", path.file_stem().unwrap_or_default().to_string_lossy());
    for other in others.filter(|other| other.file_name().to_string_lossy().starts_with(&stem)) {
        _ = std::fs::remove_file(other.path());
    }
    copy_into(db, &copy).map_err(|e| sql_error(path, "copied the file before an upgrade", e))
}

/// Copies a store's database, which a server may have open, into a new file.
pub(crate) fn backup(path: &Path, to: &Path) -> Result<(), StoreError> {
    let io = |path: &Path, source| StoreError::Io { path: path.to_owned(), source };
    // SQLite would create a missing file.
    std::fs::metadata(path).map_err(|source| io(path, source))?;
    if to.exists() {
        return Err(io(to, std::io::ErrorKind::AlreadyExists.into()));
    }
    let db = Connection::open(path).map_err(|e| sql_error(path, "opened the file", e))?;
    db.busy_timeout(std::time::Duration::from_secs(60)).map_err(|e| sql_error(path, "opened the file", e))?;
    copy_into(&db, to).map_err(|e| sql_error(to, "copied the file", e))
}

/// The copy has everything that the database has, so only its owner may read it.
fn copy_into(db: &Connection, to: &Path) -> rusqlite::Result<()> {
    let failed = |e: std::io::Error| rusqlite::Error::ToSqlConversionFailure(e.into());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    made.map_err(failed)?;
    let copied = db.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map(|_| ());
    if copied.is_err() {
        _ = std::fs::remove_file(to);
    }
    copied
}

fn sql_error(path: &Path, doing: &'static str, error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, SystemIoFailure};
    let path = path.to_owned();
    let full = || StoreError::Full(path.display().to_string());
    match error.sqlite_error_code() {
        Some(DiskFull) => full(),
        Some(NotADatabase | DatabaseCorrupt) => StoreError::Corrupt { path, why: error.to_string() },
        // SQLite reports the same when it cannot write its shared-memory file, which is what a full disk
        // looks like to a new connection.
        Some(SystemIoFailure | CannotOpen) if is_full(&path) => full(),
        _ => StoreError::Database { doing, source: Box::new(error) },
    }
}

/// Whether the file's directory has no room for another page.
fn is_full(path: &Path) -> bool {
    let probe = path.with_extension("probe");
    let written = std::fs::write(&probe, [0u8; 65_536]);
    _ = std::fs::remove_file(&probe);
    written.is_err_and(|e| e.kind() == std::io::ErrorKind::StorageFull)
}
