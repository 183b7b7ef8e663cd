//! Which server decides. Several servers may use one PostgreSQL database, and one of them owns the farm at a time. An
//! epoch rises with each owner. A commit of an owner that was superseded changes nothing. A store in memory or in a
//! file has one server, which owns it.

use std::time::Duration;

/// One run of a server, by the number that the store gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub i64);

/// The proof that a server owns the farm. Each claim makes one value, so that two handles cannot commit under one
/// epoch.
#[derive(PartialEq, Eq, Debug)]
pub struct Ownership {
    /// The server that owns the farm.
    pub server: ServerId,
    /// Rises with each owner.
    pub epoch: u64,
    /// Commits that the owner's row has counted so far.
    pub(crate) batch: i64,
}

/// A server that uses the store.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerRow {
    /// The number of its run.
    pub id: ServerId,
    /// Its name, as people see it.
    pub name: String,
    /// The addresses at which clients reach it.
    pub addresses: Vec<String>,
    /// Its release of Windlass.
    pub release: String,
    /// It does not take the farm, and gives it up if another server can take it.
    pub is_draining: bool,
    /// How long it has been running, by the database's clock.
    pub age: Duration,
    /// Time since its last heartbeat, by the database's clock.
    pub silent: Duration,
}

/// The row of the farm's owner.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnerRow {
    /// The owner; `None` once it has released the farm.
    pub server: Option<ServerId>,
    /// Rises with each owner.
    pub epoch: u64,
    /// Commits of all owners.
    pub batch: u64,
    /// How long the owner has had the farm; `None` before the first owner.
    pub age: Option<Duration>,
    /// How long until another server may take the farm; 0 if it may now.
    pub left: Duration,
    /// When the owner renewed its lease last, in microseconds since the Unix epoch by the database's clock. Compared
    /// with another look's, it tells whether the owner renewed meanwhile.
    pub renewed_us: i64,
}

/// The state of a server in the store's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerState {
    /// The list has it.
    pub is_listed: bool,
    /// An administrator asked it to give up the farm.
    pub is_draining: bool,
}
