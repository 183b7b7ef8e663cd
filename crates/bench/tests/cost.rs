//! Costs that must not grow: counted in instructions, not timed.

use std::process::Command;

const BENCH: &str = env!("CARGO_BIN_EXE_windlass-bench");

/// Instructions of `windlass-bench` with these arguments; `None` if they cannot be counted.
fn instructions(args: &[&str]) -> Option<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", BENCH])
        .args(args)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.contains("Collected")).unwrap_or_else(|| panic!("{text}"));
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_round_costs_the_same_with_ten_and_with_a_million_pending() {
    let run = |rounds, pending| instructions(&["rounds", "--count", rounds, "--pending", pending]);
    let cost = |pending| Some(run("8", pending)? - run("0", pending)?);
    let (Some(few), Some(many)) = (cost("10"), cost("1000000")) else {
        println!("SKIP the cost of a round: valgrind is not installed");
        return;
    };
    assert!(few > 0.0 && many < 2.0 * few, "{few} instructions with ten pending, {many} with a million");
}

#[test]
fn an_end_on_a_full_farm_costs_the_same_on_a_small_and_on_a_large_one() {
    let run =
        |ends, workers| instructions(&["place", "--workers", workers, "--classes", "200", "--count", ends]);
    let cost = |workers| Some(run("100", workers)? - run("0", workers)?);
    let (Some(small), Some(large)) = (cost("50"), cost("500")) else {
        println!("SKIP the cost of an end on a full farm: valgrind is not installed");
        return;
    };
    assert!(small > 0.0 && large < 2.0 * small, "{small} instructions on 50 workers, {large} on 500");
}

#[test]
fn how_many_workers_are_wanted_costs_the_same_whatever_waits() {
    let run = |surveys, pending, classes| {
        instructions(&["rounds", "--surveys", surveys, "--pending", pending, "--classes", classes])
    };
    let cost = |pending, classes| Some(run("8", pending, classes)? - run("0", pending, classes)?);
    let costs =
        [("2", "256"), ("1000000", "256"), ("2", "2000")].map(|(pending, classes)| cost(pending, classes));
    let [Some(few), Some(tasks), Some(classes)] = costs else {
        println!("SKIP the cost of scaling: valgrind is not installed");
        return;
    };
    let most = 2.0 * few;
    assert!(
        few > 0.0 && tasks < most,
        "{few} instructions for two tasks of each class, {tasks} for a million"
    );
    assert!(classes < most, "{few} instructions for 256 classes, {classes} for 2000");
}

#[test]
fn a_decision_costs_the_same_over_a_backlog_that_memory_does_not_hold() {
    let over = ["backlog", "--users", "20", "--cache-steps", "100"];
    let run = |decisions, jobs| instructions(&[&over[..], &["--count", decisions, "--jobs", jobs]].concat());
    let cost = |jobs| Some(run("80", jobs)? - run("0", jobs)?);
    let (Some(few), Some(many)) = (cost("100"), cost("2000")) else {
        println!("SKIP the cost of a decision: valgrind is not installed");
        return;
    };
    assert!(few > 0.0 && many < 2.0 * few, "{few} instructions over 100 jobs, {many} over 2000");
}

#[test]
fn a_decision_costs_the_same_with_few_and_with_many_queues() {
    let over = ["backlog", "--jobs", "600", "--cache-steps", "1000"];
    let run =
        |decisions, users| instructions(&[&over[..], &["--count", decisions, "--users", users]].concat());
    let cost = |users| Some(run("80", users)? - run("0", users)?);
    let (Some(few), Some(many)) = (cost("6"), cost("200")) else {
        println!("SKIP the cost of a decision among many queues: valgrind is not installed");
        return;
    };
    assert!(few > 0.0 && many < 2.0 * few, "{few} instructions with 6 queues, {many} with 200");
}

#[test]
fn every_user_of_a_backlog_is_served_by_a_small_cache() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(BENCH)
        .args(["backlog", "--jobs", "6000", "--users", "100", "--cache-steps", "300"])
        .args(["--decisions", "500", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let number = |line: &str, before: &str| -> u64 {
        let line = text.lines().find(|text| text.contains(line)).unwrap_or_else(|| panic!("{text}"));
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let place = words.iter().position(|word| *word == before).unwrap();
        words[place + 1].parse().unwrap()
    };
    assert_eq!(number("users served", "served:"), 100, "{text}");
    let held = number("steps held", "ms");
    // Jobs of one step: besides the cache, the server has those that run or ended a moment ago.
    assert!((1..=300 + 2 * 64).contains(&held), "{held} steps are held: {text}");
}
