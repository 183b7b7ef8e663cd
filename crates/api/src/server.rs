//! The JSON of the servers of a farm.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A server that shares a database with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FarmServer {
    /// Its number; each start has one of its own.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Where clients and workers reach it.
    pub addresses: Vec<String>,
    /// Its release of Windlass.
    pub release: String,
    /// It is the one that answers.
    pub is_this: bool,
    /// It gives up what it owns and takes nothing.
    pub draining: bool,
    /// Time since its start.
    pub up_ms: u64,
    /// Time since the database heard it last.
    pub silent_ms: u64,
    /// The parts of the farm that it owns. Empty if it stands by.
    pub shards: Vec<OwnedShard>,
    /// Its part of the shards, in proportion to the weights of the other servers. Absent of a release without weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The shards that it has before other servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<u32>,
}

/// A part of the farm with its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnedShard {
    /// Its number. 1 is the whole farm, or the first shard of one that is divided.
    pub shard: u32,
    /// Rises with each owner.
    pub epoch: u64,
    /// Time since the owner took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
}
