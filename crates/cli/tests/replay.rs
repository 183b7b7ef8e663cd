//! A farm's history is exported as a trace, and a trace is replayed.

use crate::support::Farm;
use std::path::Path;

#[test]
fn a_farms_own_history_is_a_trace_that_can_be_replayed() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    farm.ok(&["run", "--queue", "film", "--array", "1-3", "--memory", "64MiB", "--", "true"]);
    farm.fails(1, &["run", "--time-limit", "1m", "--", "false"]);
    let trace = farm.ok(&["sim", "export"]);
    assert!(trace.contains("; MaxJobs: 4\n") && trace.contains(" film\n"), "{trace}");
    let jobs: Vec<Vec<&str>> =
        trace.lines().filter(|line| !line.starts_with(';')).map(|line| line.split(' ').collect()).collect();
    assert!(jobs.len() == 4 && jobs.iter().all(|job| job.len() == 18), "{trace}");
    // Requested processors, memory and time, then the status.
    let of = |job: usize| [4, 9, 8, 10].map(|field| jobs[job][field]);
    assert_eq!((of(0), of(3)), (["1", "65536", "-1", "1"], ["1", "-1", "60", "0"]));
    let path = farm.work().join("own.swf");
    std::fs::write(&path, &trace).unwrap();
    let path = path.to_str().unwrap();
    let replayed = farm.json(&["sim", "run", path, "--slots", "2", "--queues"]);
    assert_eq!((&replayed["jobs"], &replayed["cpus"]), (&4.into(), &2.0.into()));
    let settings = replayed["settings"].as_array().unwrap();
    let names: Vec<&str> = settings.iter().filter_map(|setting| setting["name"].as_str()).collect();
    assert_eq!(names, ["fifo", "backfill", "time", "task", "order"]);
    for setting in settings {
        assert_eq!((&setting["never_started"], &setting["decisions"]), (&0.into(), &4.into()), "{setting}");
    }
}

#[test]
fn machines_settings_and_errors_are_those_of_the_command_line() {
    let farm = Farm::new();
    let sim = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/tests/swf");
    let (trace, machines) = (sim.join("wagap.swf"), sim.join("wagap.machines"));
    let (trace, machines) = (trace.to_str().unwrap(), machines.to_str().unwrap());
    let args = ["sim", "run", trace, "--workers", machines, "--policy", "packing,simple", "--charge", "time"];
    let table =
        farm.ok(&[&args[..], &["--baseline", "none", "--core-saturation", "--express", "off"]].concat());
    assert!(table.contains("packing/time  simple/time") && !table.contains("fifo"), "{table}");
    assert!(table.contains("68 workers with 2176 cpus"), "{table}");
    let bad = farm.work().join("bad.swf");
    std::fs::write(&bad, "; fine\n1 0 -1 x 1 -1 -1 1 -1 -1 1 1 1 -1 -1 -1 -1 -1\n").unwrap();
    let error = farm.fails(1, &["sim", "run", bad.to_str().unwrap(), "--slots", "4"]);
    assert!(error.contains("bad.swf: line 2: field 4 (run time): 'x'"), "{error}");
    let error = farm.fails(1, &["sim", "run", trace, "--workers", trace]);
    assert!(error.contains("wagap.swf") && error.contains("hint"), "{error}");
    farm.fails(2, &["sim", "run", trace]);
    farm.fails(2, &["sim", "run", trace, "--slots", "0"]);
    farm.fails(2, &["sim", "run", trace, "--slots", "4", "--policy", "best"]);
}
