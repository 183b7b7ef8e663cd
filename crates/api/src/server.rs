//! The JSON of the servers of a farm.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A server that shares a database with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FarmServer {
    /// Its number; each start has one of its own.
    pub id: i64,
    /// Its name, for people.
    pub name: String,
    /// Where clients and workers reach it.
    pub addresses: Vec<String>,
    /// Its release of Windlass.
    pub release: String,
    /// It is the one that answers.
    pub is_this: bool,
    /// It gives up the farm, and does not take it.
    pub draining: bool,
    /// Time since its start.
    pub up_ms: u64,
    /// Time since its last heartbeat in the database.
    pub silent_ms: u64,
    /// Present if it owns the farm; absent if it stands by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owns: Option<FarmOwnership>,
}

/// Since when a server owns the farm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FarmOwnership {
    /// Rises with each owner.
    pub epoch: u64,
    /// Time since the owner took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}
