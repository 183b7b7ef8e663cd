//! Errors of stores.

use std::error::Error;
use std::path::PathBuf;

/// A cause from a library of a database.
pub type Cause = Box<dyn Error + Send + Sync>;

/// The reason why a store failed. No text of it has a password: a database is named by its hosts and its name.
// The messages say what the fields are.
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is not of a known form.
    #[error("'{0}' is not a store; give sqlite:PATH, postgres://HOST/DATABASE or memory")]
    Address(String),
    /// Another process has the file open.
    #[error("{} is in use by another server; stop that one, or give this one another --state", .0.display())]
    InUse(PathBuf),
    /// A later version of Windlass wrote the store.
    #[error(
        "{store} was written by a later version of Windlass (schema {found}, this version knows {known}); \
         upgrade, or use another store"
    )]
    Newer {
        store: String,
        found: i32,
        /// The newest version that this program knows.
        known: i32,
    },
    /// The file is damaged, or not a database.
    #[error(
        "{} is damaged or no Windlass database: {why}; move it away to start with an empty one, or \
         bring it back from a backup", path.display()
    )]
    Corrupt {
        path: PathBuf,
        /// The error of SQLite or of the migrations.
        why: String,
    },
    /// The disk of the file or of the database is full.
    #[error("no space is left for {0}; nothing accepted is lost, make room and it goes on")]
    Full(String),
    /// The operating system refused access to the file.
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// Any other error of the database.
    #[error("the store failed while it {doing}")]
    Database {
        /// What the store was doing, for the message.
        doing: &'static str,
        source: Cause,
    },
    /// The store's writer has ended.
    #[error("the store is closed")]
    Closed,
    /// The address of a PostgreSQL database cannot be used.
    #[error("the address of the PostgreSQL database cannot be used: {0}")]
    Setting(String),
    /// No host of the database answers, or none that takes writes.
    #[error("cannot reach {database}; start it, or correct the address")]
    Unreachable { database: String, source: Cause },
    /// The database offers no TLS.
    #[error(
        "{database} does not offer TLS, so neither user nor password was sent to it; set 'ssl = on' in its \
         postgresql.conf, or write ?sslmode=disable in the address if every machine on the way is trusted"
    )]
    NoTls { database: String },
    /// TLS with the database failed: as a rule its certificate is not trusted, or is for another host.
    #[error(
        "cannot reach {database} by TLS; give the certificate of the authority that signed its certificate by \
         ?sslrootcert=FILE, and name its host as the certificate does"
    )]
    Tls { database: String, source: Cause },
    /// The database does not let the user in.
    #[error(
        "{database} does not let the user in: {why}; give the password in PGPASSWORD, in the file that \
         WINDLASS_POSTGRES_PASSWORD_FILE names or by ?passfile=, and see pg_hba.conf on the database's host"
    )]
    Login { database: String, why: String },
    /// The database does not exist.
    #[error(
        "{database} does not exist; create it with 'createdb', owned by the user that the server connects as"
    )]
    NoDatabase { database: String },
    /// The user may not do what the store needs.
    #[error(
        "the database refuses: {why}; make the server's user the owner of the database, or grant it what is missing"
    )]
    Privilege { why: String },
    /// The database has no connection left.
    #[error(
        "{database} has no connection left for this server; raise max_connections, or stop what holds them \
         (this server uses up to {needed})"
    )]
    TooMany {
        database: String,
        /// Connections that one server uses at most.
        needed: usize,
    },
    /// All connections of this server's pool are in use.
    #[error("all {connections} connections to {database} were busy for {seconds} s; try again")]
    Busy {
        database: String,
        connections: usize,
        /// How long a connection was waited for.
        seconds: u64,
    },
    /// The farm has an owner that is alive, so the store cannot be copied.
    #[error("{database} is in use by the server '{by}'; stop that one, or wait until its lease has run out")]
    Owned { database: String, by: String },
    /// Another server has taken the farm. This server commits nothing from now on. A batch that a lost connection
    /// committed before belongs to the next owner.
    #[error("another server has taken the farm; this server must stop deciding for it")]
    Superseded,
    /// The handle does not own the farm, so its batch may not be committed.
    #[error("this server does not own the farm; it must claim it before it commits")]
    NotOwner,
    /// The connection was lost during a commit, whose outcome is unknown.
    #[error(
        "the connection to {database} was lost during a commit, and for {seconds} s it could not be found out \
         whether it was done; it is found out when the database answers again"
    )]
    Unknown {
        database: String,
        /// Seconds for which the outcome was asked for.
        seconds: u64,
        source: Cause,
    },
    /// The request needs a store that several servers share.
    #[error("this store has only one server; several servers need a PostgreSQL database")]
    NotShared,
    /// The target of a copy is not empty.
    #[error("{store} is not empty (it has rows in '{table}'); copy into a new store")]
    NotEmpty {
        store: String,
        /// The first table that has rows.
        table: &'static str,
    },
    /// A PostgreSQL database is not a file.
    #[error("a PostgreSQL database is copied by pg_dump, or into a file by 'windlass store copy'")]
    NoBackup,
    /// A store in memory can be neither copied nor the target of a copy.
    #[error("a store in memory cannot be copied; give sqlite:PATH or postgres://HOST/DATABASE")]
    NoCopy,
}
