//! Figures of an engine on PostgreSQL, on a private cluster with `fsync` on: `cargo bench -p windlass-cli
//! --bench postgres`. Each measurement has a database of its own. It takes about five minutes and 6 GB of disk, of which
//! most is for ten million ended tasks; `-- --short` leaves these out.

#[path = "../../store/tests/support/postgres.rs"]
mod database;

use std::process::Command;

/// Each is measured so often.
const RUNS: usize = 3;

fn main() {
    let settings = ["fsync=on", "shared_buffers=256MB", "max_wal_size=4GB"];
    let cluster = match database::Cluster::start(&settings) {
        Ok(cluster) => cluster,
        Err(why) => return println!("SKIP what needs PostgreSQL: {why}"),
    };
    for _ in 0..RUNS {
        bench(&cluster, &["engine", "jobs", "--workers", "1000", "--count", "100"]);
        bench(&cluster, &["engine", "step", "--workers", "1000", "--count", "5000"]);
    }
    bench(&cluster, &["engine", "fill", "--workers", "1553"]);
    if !std::env::args().any(|word| word == "--short") {
        bench(&cluster, &["ended", "--few", "10000", "--many", "10000000"]);
    }
}

fn bench(cluster: &database::Cluster, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let status = command.arg("bench").args(args).args(["--store", &cluster.database()]).status().unwrap();
    assert!(status.success(), "{args:?} ended with {status}");
}
