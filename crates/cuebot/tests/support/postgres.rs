//! Databases with the schema of a Cuebot, in a private PostgreSQL.

#![allow(dead_code, unused_imports)]

#[path = "../../../store/tests/support/cluster.rs"]
mod harness;

pub use harness::{Cluster, USER, cluster, unprivileged};

use std::path::PathBuf;
use windlass_cuebot::schema;

/// The address of a new database of the cluster of this process.
pub fn database() -> Option<String> {
    cluster().map(Cluster::database)
}

impl Cluster {
    /// The address of a new database, which has the schema.
    pub fn database(&self) -> String {
        self.address(&self.database_name())
    }

    /// The name of a new database, which has the schema.
    pub fn database_name(&self) -> String {
        self.database_from(install)
    }
}

/// OpenCue's own migrations where the operator names their directory, else the compact schema.
fn install(cluster: &Cluster, template: &str) {
    let Some(directory) = std::env::var_os("WINDLASS_OPENCUE_MIGRATIONS") else {
        cluster.sql(template, &schema::COMPACT.concat());
        return;
    };
    let files = std::fs::read_dir(&directory).expect("WINDLASS_OPENCUE_MIGRATIONS is a directory");
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort_by_key(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name[1..].split("__").next().unwrap().parse::<u32>().expect("migrations are called V1__name.sql")
    });
    for file in files {
        cluster.sql(template, &std::fs::read_to_string(file).unwrap());
    }
}
