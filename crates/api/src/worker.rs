//! The JSON of workers.

use crate::load::Load;
use crate::submit::Resources;
use crate::word::words_of;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;
use windlass_core::{Time, worker as core};

/// A machine with its agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Id of the worker, unique on the farm.
    pub id: u64,
    /// The worker's name, unique on the farm.
    pub name: String,
    /// Whether it gets new work.
    pub state: WorkerState,
    /// Why it is drained, as the operator noted; absent without a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The amounts that it declares.
    pub capacity: Resources,
    /// The amounts that are booked on it.
    pub booked: Resources,
    /// Its attributes; a tag without a value has none here.
    pub attributes: BTreeMap<String, BTreeSet<String>>,
    /// Number of tasks that hold a part of it.
    pub running: usize,
    /// Number of prefetched tasks, which wait there for room.
    pub queued: usize,
    /// The number of its admission: grows each time its earlier bookings are fenced off.
    pub epoch: u64,
    /// Whether it is connected now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// When it was last heard from; absent for a worker without heartbeats, and if that was before the server started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// When its lease runs out; absent without a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until_ms: Option<u64>,
    /// Its agent's version; absent while it is not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When the token with which it is connected expires; absent if it is not connected or the token has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_ms: Option<u64>,
    /// Whether that is soon: in the last tenth of the token's life, a week at most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub token_ends_soon: bool,
    /// Its last load report; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Box<Load>>,
    /// Speed of one of its cores by which workers are compared: its tag `core_score`, else what it measured. 1000 is
    /// the reference core; absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_score: Option<f64>,
    /// Number of keys in its caches; absent if it has not reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_keys: Option<usize>,
    /// The first 1000 of the tasks that hold a part of it; only if one worker is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<String>>,
}

/// How a worker is drained.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Why, for people: at most 1000 bytes. It is shown with the worker and by why until the worker is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Most tasks in the JSON of one worker.
const TASKS_MAX: usize = 1_000;

/// Whether a worker gets new work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It may get new work.
    Up,
    /// It is drained: it gets no new work.
    Draining,
    /// It is silent: it gets no new work.
    Suspect,
    /// Its lease has run out: it has ended its tasks itself, and they run elsewhere.
    Expired,
    /// An operator said that it is gone for good.
    Forgotten,
}

words_of! {
    WorkerState of core::WorkerState:
    Up "up", Draining "draining", Suspect "suspect", Expired "expired", Forgotten "forgotten"
}

impl Worker {
    /// The worker as the core has it.
    pub fn from_core(from: &core::Worker) -> Self {
        Worker {
            id: from.record.id.0,
            name: from.record.name.clone(),
            state: from.record.state.into(),
            note: from.record.note.clone(),
            capacity: Resources::from_core(&from.record.capacity),
            booked: Resources::from_core(from.booked.sum()),
            attributes: from.record.attributes.clone(),
            running: from.booked.running().len(),
            queued: from.booked.backlog().len(),
            epoch: from.record.epoch.0,
            connected: Some(from.link.connected),
            heard_ms: from.link.heard.map(Time::as_ms),
            lease_until_ms: from.record.lease_until.map(Time::as_ms),
            version: None,
            token_expires_ms: None,
            token_ends_soon: false,
            load: from.reported.dated_load().map(|(at, report)| Box::new(Load::from_core(at, report))),
            core_score: from.core_score(),
            cache_keys: from.reported.caches().map(|keys| keys.len()),
            tasks: None,
        }
    }

    /// The same with its tasks.
    pub fn with_tasks(from: &core::Worker) -> Self {
        let tasks = from.booked.running().iter().take(TASKS_MAX).map(ToString::to_string);
        Worker { tasks: Some(tasks.collect()), ..Worker::from_core(from) }
    }
}
