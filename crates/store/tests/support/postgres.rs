//! Databases with the schema of the store, in a private PostgreSQL.

#![allow(dead_code, unused_imports)]

#[path = "cluster.rs"]
mod harness;

pub use harness::{Cluster, LOCKED, USER, cluster, unprivileged};

use windlass_store::Store;

/// The address of a new database of the cluster of this process.
pub fn database() -> Option<String> {
    cluster().map(Cluster::database)
}

impl Cluster {
    /// The address of a new database, which has the schema.
    pub fn database(&self) -> String {
        self.address(&self.database_from(migrate))
    }
}

/// Makes the schema. Each copy of the template gets a number of its own when it is opened first.
fn migrate(cluster: &Cluster, template: &str) {
    let address = cluster.address(template);
    let migrated = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { Store::connect(&address).await.map(|_| ()) })
    });
    migrated.join().unwrap().unwrap();
    cluster.sql(template, "DELETE FROM meta");
}
