//! Workers as told to people and programs.

use crate::load::Load;
use crate::submit::Resources;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;
use windlass_core::{Time, worker as core};

/// A machine with its agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its id.
    pub id: u64,
    /// Unique on the farm.
    pub name: String,
    /// Whether it gets new work.
    pub state: WorkerState,
    /// What it declares.
    pub capacity: Resources,
    /// What is booked on it.
    pub booked: Resources,
    /// What it is; a bare tag has no values.
    pub attributes: BTreeMap<String, BTreeSet<String>>,
    /// Tasks that hold some of it.
    pub running: usize,
    /// Tasks sent ahead, waiting there for room.
    pub queued: usize,
    /// How often its earlier bookings were fenced off.
    pub epoch: u64,
    /// Whether it is reached now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// When it was last heard from; absent of one that does not beat, and since the server started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
    /// When its lease runs out; absent of one that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until_ms: Option<u64>,
    /// Its agent's release; absent while it is not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it said of its load last; absent of one that has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Box<Load>>,
    /// How many keys its caches hold; absent of one that has not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_keys: Option<usize>,
    /// The tasks that hold some of it, the first 1000; only where one worker is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<String>>,
}

/// Tasks that one worker is shown with.
const TASKS_MAX: usize = 1_000;

/// Whether a worker gets new work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Gets work.
    Up,
    /// Told to take nothing new.
    Draining,
    /// Not heard from.
    Suspect,
    /// Its lease ran out: it ended its tasks itself, and they are run elsewhere.
    Expired,
    /// Said to be gone for good.
    Forgotten,
}

impl From<core::WorkerState> for WorkerState {
    fn from(from: core::WorkerState) -> Self {
        match from {
            core::WorkerState::Up => WorkerState::Up,
            core::WorkerState::Draining => WorkerState::Draining,
            core::WorkerState::Suspect => WorkerState::Suspect,
            core::WorkerState::Expired => WorkerState::Expired,
            core::WorkerState::Forgotten => WorkerState::Forgotten,
        }
    }
}

impl Worker {
    /// The worker as the core has it.
    pub fn from_core(from: &core::Worker) -> Self {
        Worker {
            id: from.id.0,
            name: from.name.to_string(),
            state: from.state.into(),
            capacity: Resources::from_core(&from.capacity),
            booked: Resources::from_core(&from.booked),
            attributes: from.attributes.clone(),
            running: from.running.len(),
            queued: from.backlog.len(),
            epoch: from.epoch.0,
            connected: Some(from.connected),
            heard_ms: from.heard.map(Time::as_ms),
            lease_until_ms: from.lease_until.map(Time::as_ms),
            version: None,
            load: from.load.as_ref().map(|(at, report)| Box::new(Load::from_core(*at, report))),
            cache_keys: from.caches.as_ref().map(|keys| keys.len()),
            tasks: None,
        }
    }

    /// The same with its tasks.
    pub fn with_tasks(from: &core::Worker) -> Self {
        let tasks = from.running.iter().take(TASKS_MAX).map(ToString::to_string);
        Worker { tasks: Some(tasks.collect()), ..Worker::from_core(from) }
    }
}
