//! Settings and a worker for the tests of several modules.

use super::WorkersSettings;
use std::collections::{BTreeMap, BTreeSet};
use windlass_api::{Addresses, Resources, Worker, WorkerState};
use windlass_core::tags::Need;

/// Settings by which workers with this tag are hosts.
pub(super) fn settings(tag: &str) -> WorkersSettings {
    WorkersSettings {
        server: Addresses::parse("/run/windlass.sock").unwrap(),
        token_file: None,
        ca_file: None,
        tag: Need::parse(tag),
        queue: "opencue".to_owned(),
        users: None,
        allocation: Some("local.general".to_owned()),
        tags: vec!["linux".to_owned()],
        os: "Linux".to_owned(),
    }
}

/// A worker with the tag `opencue`, on which this is booked.
pub(super) fn worker(booked_cpus: f64, booked_bytes: u64) -> Worker {
    let resources = |cpus: f64, memory: u64| Resources { cpus, memory, ..Resources::default() };
    Worker {
        id: 1,
        name: "box1".to_owned(),
        state: WorkerState::Up,
        note: None,
        capacity: resources(8.0, 16 << 30),
        booked: resources(booked_cpus, booked_bytes),
        attributes: BTreeMap::from([("opencue".to_owned(), BTreeSet::new())]),
        running: 0,
        queued: 0,
        epoch: 1,
        connected: Some(true),
        heard_ms: None,
        lease_until_ms: None,
        version: None,
        token_expires_ms: None,
        token_ends_soon: false,
        load: None,
        core_score: None,
        cache_keys: None,
        tasks: None,
    }
}
