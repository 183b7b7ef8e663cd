//! Helpers of the suites that run on every store.

use std::sync::Arc;
use windlass_core::engine::{Outbox, Write};
use windlass_store::Store;

/// Runs the test on every store.
pub fn on_all(test: impl AsyncFn(Store)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("w.db").display());
    for address in ["memory", &file] {
        runtime.block_on(test(Store::open(address).unwrap()));
    }
}

/// Commits one batch; returns the indexes of the refused writes.
pub async fn commit(store: &Store, writes: Vec<Write>) -> Vec<usize> {
    store.commit(Arc::new(Outbox { writes, ..Outbox::default() })).await.unwrap()
}
