//! Helpers of the suites that run on every store.

pub mod postgres;
pub mod tls;

use std::sync::Arc;
use std::time::Duration;
use windlass_core::engine::{Outbox, Write};
use windlass_store::{AskId, Store};

/// A lease that no test outlives.
pub const LONG: Duration = Duration::from_secs(3600);

/// Runs the test on every store. Where PostgreSQL is missing, it says so.
pub fn on_all(test: impl AsyncFn(Store)) {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("w.db").display());
    let database = postgres::database();
    for address in ["memory", &file].into_iter().chain(database.as_deref()) {
        block_on(async { test(owned(address).await).await });
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(future)
}

/// The store at an address, as the owner of the farm.
pub async fn owned(address: &str) -> Store {
    let store = Store::connect(address).await.unwrap();
    let server = store.register_server("test", &[], "0", None).await.unwrap();
    let ownership = store.claim(server, LONG).await.unwrap().expect("no other server has it");
    store.as_owner(ownership)
}

/// The signature of a server that has no key.
pub fn unsigned(_: AskId, _: &[u8]) -> Vec<u8> {
    Vec::new()
}

/// Commits one batch; returns the indexes of the refused writes.
pub async fn commit(store: &Store, writes: Vec<Write>) -> Vec<usize> {
    store.commit(Arc::new(Outbox { writes, ..Outbox::default() })).await.unwrap()
}
