//! The benches that need no other program, with little work: each measures something to its end.

use std::process::Command;

const BENCHES: [&[&str]; 6] = [
    &["instant", "--tasks", "200", "--slots", "2"],
    &["array", "--tasks", "1000"],
    &["idle", "--workers", "20", "--submissions", "5"],
    &["score", "--candidates", "50"],
    &["cas", "--blobs", "500", "--large-mib", "1"],
    &["backlog", "--jobs", "300", "--users", "3", "--cache-steps", "50", "--decisions", "20"],
];

#[test]
fn each_bench_of_little_work_prints_figures() {
    let dir = tempfile::tempdir().unwrap();
    for args in BENCHES {
        let bench = Command::new(env!("CARGO_BIN_EXE_windlass-bench"))
            .arg("--dir")
            .arg(dir.path())
            .args(args)
            .output();
        let bench = bench.unwrap();
        let printed = String::from_utf8_lossy(&bench.stdout);
        assert!(
            bench.status.success() && printed.contains(|of: char| of.is_ascii_digit()),
            "{args:?}: {bench:?}"
        );
    }
}
