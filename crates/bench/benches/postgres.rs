//! Figures of a farm on PostgreSQL, on a private cluster with `fsync` on:
//! `cargo bench -p windlass-bench --bench postgres`. Each measurement has a database of its own.

#[path = "../../store/tests/support/postgres.rs"]
mod database;

use std::process::Command;

/// Runs of each measurement but the fill.
const RUNS: usize = 3;

fn main() {
    let settings = ["fsync=on", "shared_buffers=256MB", "max_wal_size=8GB"];
    let cluster = match database::Cluster::start(&settings) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIP what needs PostgreSQL: {why}"),
    };
    for _ in 0..RUNS {
        bench(&cluster, &["jobs", "--workers", "1000", "--count", "100"]);
        bench(&cluster, &["step", "--workers", "1000", "--count", "5000"]);
    }
    bench(&cluster, &["fill", "--workers", "1553"]);
}

fn bench(cluster: &database::Cluster, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass-bench"));
    let status = command.arg("postgres").args(args).args(["--store", &cluster.database()]).status().unwrap();
    assert!(status.success(), "{args:?} ended with {status}");
}
