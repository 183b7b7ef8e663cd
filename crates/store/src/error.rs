//! Errors of stores.

use std::error::Error;
use std::path::PathBuf;

/// A cause from a library of a database.
pub type Cause = Box<dyn Error + Send + Sync>;

/// The reason why a store failed. No text of it has a password: a database is named by its hosts and its name.
#[allow(missing_docs, reason = "the messages say what the variants and their fields are")]
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("'{0}' is not a store; give sqlite:PATH, postgres://HOST/DATABASE or memory")]
    Address(String),
    #[error("{} is in use by another server; stop that one, or give this one another --state", .0.display())]
    InUse(PathBuf),
    #[error(
        "{store} was written by a later version of Windlass (schema {found}, this version knows {known}); \
         upgrade, or use another store"
    )]
    Newer { store: String, found: i32, known: i32 },
    #[error(
        "{} is damaged or no Windlass database: {why}; move it away to start with an empty one, or \
         bring it back from a backup", path.display()
    )]
    Corrupt { path: PathBuf, why: String },
    #[error("no space is left for {0}; nothing accepted is lost, make room and it goes on")]
    Full(String),
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the store failed while it {doing}")]
    Database { doing: &'static str, source: Cause },
    #[error("the store is closed")]
    Closed,
    #[error("the address of the PostgreSQL database cannot be used: {0}")]
    Setting(String),
    #[error("cannot reach {database}; start it, or correct the address")]
    Unreachable { database: String, source: Cause },
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
    #[error(
        "{database} does not let the user in: {why}; give the password in PGPASSWORD, in the file that \
         WINDLASS_POSTGRES_PASSWORD_FILE names or by ?passfile=, and see pg_hba.conf on the database's host"
    )]
    Login { database: String, why: String },
    #[error(
        "{database} does not exist; create it with 'createdb', owned by the user that the server connects as"
    )]
    NoDatabase { database: String },
    #[error(
        "the database refuses: {why}; make the server's user the owner of the database, or grant it what is missing"
    )]
    Privilege { why: String },
    #[error(
        "{database} has no connection left for this server; raise max_connections, or stop what holds them \
         (this server uses up to {needed})"
    )]
    TooMany { database: String, needed: usize },
    #[error("all {connections} connections to {database} were busy for {seconds} s; try again")]
    Busy { database: String, connections: usize, seconds: u64 },
    /// The farm has an owner that is alive, so the store cannot be copied.
    #[error("{database} is in use by the server '{by}'; stop that one, or wait until its lease has run out")]
    Owned { database: String, by: String },
    /// Another server has taken the farm. This server commits nothing from now on. A batch that a lost connection
    /// committed before belongs to the next owner.
    #[error("another server has taken the farm; this server must stop deciding for it")]
    Superseded,
    #[error("this server does not own the farm; it must claim it before it commits")]
    NotOwner,
    #[error(
        "the connection to {database} was lost during a commit, and for {seconds} s it could not be found out \
         whether it was done; it is found out when the database answers again"
    )]
    Unknown { database: String, seconds: u64, source: Cause },
    #[error("this store has only one server; several servers need a PostgreSQL database")]
    NotShared,
    #[error("{store} is not empty (it has rows in '{table}'); copy into a new store")]
    NotEmpty { store: String, table: &'static str },
    #[error("a PostgreSQL database is copied by pg_dump, or into a file by 'windlass store copy'")]
    NoBackup,
    #[error("a store in memory cannot be copied; give sqlite:PATH or postgres://HOST/DATABASE")]
    NoCopy,
}
