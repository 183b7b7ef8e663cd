//! The order and the times of the lines of a task's output, as its keeper marks them.

use crate::support::port::Port;
use crate::support::{Farm, show, wait_until};
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;
use windlass_api::LogMarks;

/// Writes a line to one stream, then to the other, each when a file is there.
const IN_TURN: &str = "echo one; while [ ! -e two ]; do :; done; echo two >&2; \
                       while [ ! -e three ]; do :; done; echo three; echo four >&2; \
                       while [ ! -e end ]; do :; done";

/// Both outputs by the marks that are there now: bytes of standard output and standard error.
fn marked(worker_dir: &Path) -> Option<[u64; 2]> {
    let file = std::fs::read(worker_dir.join("logs/1/0.1.times")).ok()?;
    LogMarks::parse(&file).all().last().map(|mark| [mark.out_bytes, mark.err_bytes])
}

/// Lets the task of [`IN_TURN`] in this directory write, each line in an interval of its own. `between` is done after
/// the second line.
fn write_in_turn(dir: &Path, worker_dir: &Path, between: impl FnOnce()) {
    let go = |name: &str| std::fs::write(dir.join(name), "").unwrap();
    wait_until("the first line is marked", || marked(worker_dir) == Some([4, 0]));
    go("two");
    wait_until("the second line is marked", || marked(worker_dir) == Some([4, 4]));
    between();
    go("three");
    wait_until("all lines are marked", || marked(worker_dir) == Some([10, 9]));
}

fn lines(answer: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let lines = answer["lines"].as_array().unwrap().iter();
    lines.map(|line| (text(&line["stream"]), text(&line["text"]))).collect()
}

fn read(farm: &Farm, query: &str) -> Value {
    let text = farm.ok(&["api", "GET", &format!("/api/v1/tasks/1.0/log/lines{query}")]);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// What `windlass logs` shows of the task where both streams go to one pipe.
fn in_one_pipe(farm: &Farm) -> Vec<u8> {
    let (mut out, pipe) = std::io::pipe().unwrap();
    let mut logs = farm.command(&["logs", "1.0"]);
    let status = logs.stderr(pipe.try_clone().unwrap()).stdout(pipe).status().unwrap();
    drop(logs);
    let mut shown = Vec::new();
    out.read_to_end(&mut shown).unwrap();
    assert!(status.success());
    shown
}

fn in_order() -> [(String, String); 4] {
    [("stdout", "one"), ("stderr", "two"), ("stdout", "three"), ("stderr", "four")]
        .map(|(stream, text)| (stream.to_owned(), text.to_owned()))
}

#[test]
fn lines_of_both_streams_have_their_order_and_their_times() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["submit", "--", "sh", "-c", IN_TURN]);
    let written = farm.state().join("logs/1/0.1.out");
    wait_until("the first line is written", || std::fs::metadata(&written).is_ok_and(|file| file.len() == 4));
    let first = read(&farm, "");
    assert_eq!(lines(&first), in_order()[..1], "{first}");
    assert!(first["lines"][0]["at_ms"].is_u64(), "its mark is waited for: {first}");
    write_in_turn(&farm.work(), &farm.state(), || {
        let so_far = read(&farm, "");
        assert_eq!(lines(&so_far), in_order()[..2], "{so_far}");
        assert_eq!((&so_far["next_stdout"], &so_far["next_stderr"]), (&4.into(), &4.into()));
    });
    let rest = read(&farm, "?stdout_offset=4&stderr_offset=4");
    assert_eq!(lines(&rest), in_order()[2..], "a running task's lines come when they are marked: {rest}");
    std::fs::write(farm.work().join("end"), "").unwrap();
    farm.ok(&["job", "wait", "1"]);
    let all = read(&farm, "");
    assert_eq!((lines(&all), &all["more"]), (in_order().to_vec(), &false.into()), "{all}");
    let task = farm.json(&["job", "tasks", "1"])[0].clone();
    let mut before_ms = task["started_ms"].as_u64().unwrap();
    for line in all["lines"].as_array().unwrap() {
        let at_ms = line["at_ms"].as_u64().unwrap();
        assert!(before_ms <= at_ms, "{all}");
        before_ms = at_ms;
    }
    let apart_ms = |one: usize, other: usize| {
        let at = |line: usize| all["lines"][line]["at_ms"].as_u64().unwrap();
        at(other) - at(one)
    };
    assert!(apart_ms(0, 1) >= 200 && apart_ms(1, 2) >= 200, "marks are a quarter of a second apart: {all}");
    assert_eq!(lines(&read(&farm, "?limit=1")).len(), 1);
    assert_eq!(lines(&read(&farm, "?stdout_offset=-6&stderr_offset=-5")), in_order()[2..]);

    // The program shows the order where both streams go to one place, and the bytes as they are elsewhere.
    let both = farm.run(&["logs", "1.0"]);
    assert_eq!((&*both.stdout, &*both.stderr), (&b"one\nthree\n"[..], &b"two\nfour\n"[..]));
    assert_eq!(String::from_utf8_lossy(&in_one_pipe(&farm)), "one\ntwo\nthree\nfour\n");
    let timed = farm.ok(&["logs", "--timestamps", "--stdout", "1.0"]);
    let columns: Vec<Vec<&str>> = timed.lines().map(|line| line.split(' ').collect()).collect();
    assert!(columns.iter().all(|line| line[0].len() == 10 && line[1].len() == 12), "{timed}");
    assert_eq!(columns.iter().map(|line| line[2]).collect::<Vec<_>>(), ["one", "three"]);
    let last = farm.run(&["logs", "-f", "--timestamps", "-n", "1", "1.0"]);
    assert!(last.stdout.ends_with(b" three\n") && last.stderr.ends_with(b" four\n"), "{}", show(&last));
    assert_eq!(
        [&last.stdout, &last.stderr].map(|text| text.iter().filter(|byte| **byte == b'\n').count()),
        [1, 1]
    );
}

#[test]
fn marks_go_on_while_the_agent_is_dead() {
    let mut farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["submit", "--", "sh", "-c", IN_TURN]);
    // The agent of this worker is in the server's process.
    write_in_turn(&farm.work(), &farm.state(), || farm.kill_server());
    std::fs::write(farm.work().join("end"), "").unwrap();
    farm.start();
    farm.ok(&["job", "wait", "1"]);
    let all = read(&farm, "");
    assert_eq!(lines(&all), in_order());
    assert!(all["lines"].as_array().unwrap().iter().all(|line| line["at_ms"].is_u64()), "{all}");
}

#[test]
fn a_worker_of_a_farm_sends_its_marks() {
    let port = Port::open(&["--no-worker"]);
    let token = port.token(&["--role", "worker", "--worker", "box1"]);
    let _worker = port.worker(&token, "box1");
    wait_until("the worker is there", || port.admin(&["workers", "-o", "name"]).trim() == "box1");
    let script = format!("cd '{}'; {IN_TURN}", port.dir.display());
    port.admin(&["submit", "--cwd", "/", "--", "sh", "-c", &script]);
    write_in_turn(&port.dir, &port.dir.join("box1/worker"), || {});
    std::fs::write(port.dir.join("end"), "").unwrap();
    port.admin(&["job", "wait", "1"]);
    let text = port.admin(&["api", "GET", "/api/v1/tasks/1.0/log/lines"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(lines(&all), in_order());
    assert!(all["lines"].as_array().unwrap().iter().all(|line| line["at_ms"].is_u64()), "{all}");
}

#[test]
fn a_short_task_has_the_time_of_its_end() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    assert!(farm.run(&["run", "--", "sh", "-c", "printf '\\377no end'; echo error >&2"]).status.success());
    let all = read(&farm, "");
    let task = farm.json(&["job", "tasks", "1"])[0].clone();
    let expected = [("stdout", "\u{fffd}no end"), ("stderr", "error")];
    assert_eq!(lines(&all), expected.map(|(stream, text)| (stream.to_owned(), text.to_owned())));
    assert_eq!((&all["lines"][0]["lossy"], &all["lines"][0]["bytes"]), (&true.into(), &7.into()));
    if marked(&farm.state()).is_none() {
        assert_eq!(all["lines"][0]["at_ms"], task["finished_ms"], "{all}");
    }
    assert_eq!(in_one_pipe(&farm), b"\xffno enderror\n", "the bytes are those that the task wrote");
}
