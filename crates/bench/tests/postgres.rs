//! The benches on a PostgreSQL database, with few workers.

use crate::database;
use std::process::{Command, Output};

fn bench(address: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass-bench"));
    command.arg("postgres").args(args).args(["--store", address]).output().unwrap()
}

fn measured(address: &str, args: &[&str]) -> String {
    let output = bench(address, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The number before a word in a text.
fn number_before(text: &str, word: &str) -> f64 {
    let before = text.split(word).next().unwrap().trim_end();
    let number = before.rsplit(' ').next().unwrap();
    number.parse().unwrap_or_else(|_| panic!("no number before {word} in\n{text}"))
}

#[test]
fn a_booking_costs_a_small_part_of_a_statement() {
    let Some(address) = database::database() else { return };
    let jobs = measured(&address, &["jobs", "--workers", "50", "--count", "5"]);
    let statements = number_before(&jobs, " statements/task");
    assert!(statements > 0.0 && statements <= 0.2, "{jobs}");
    // The baseline leaves the tasks of the jobs and none of its own.
    assert_eq!(jobs.matches("ratio").count(), 2, "{jobs}");
    let cluster = database::cluster().unwrap();
    let name = address.split_once("@/").unwrap().1.split_once('?').unwrap().0;
    assert_eq!(cluster.sql(name, "SELECT count(*) FROM tasks"), "5000");
    // A farm in use is not measured in.
    let again = bench(&address, &["step"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("the database has a farm"), "{again:?}");
    let Some(address) = database::database() else { return };
    let step = measured(&address, &["step", "--workers", "100", "--count", "1000"]);
    assert!(number_before(&step, " statements/task") <= 0.2, "{step}");
}
