//! Every table at the widths of terminals, with what is long, wide and many: no line is wider, no header is broken, and
//! each cell is whole or says that it was cut.

use crate::commands::limit::limits_grid;
use crate::commands::list::{jobs_grid, tasks_grid};
use crate::commands::queue::queues_grid;
use crate::commands::scheduler::servers_grid;
use crate::commands::token::tokens_grid;
use crate::commands::turns::turns_grid;
use crate::commands::wanted::classes_grid;
use crate::commands::why::score_table;
use crate::commands::worker::workers_grid;
use crate::ui::table::Grid;
use crate::ui::text::width;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass_api::{Counts, Why};

const COLUMNS: [usize; 5] = [60, 80, 100, 120, 200];
const LONG: &str = "the-name-of-a-thing-that-somehow-has-more-than-a-hundred-characters-because-a-script-made-it-up-0001-of-0002";
const WIDE: &str = "レンダーファームの長い名前のジョブ、二〇二六年十一月版";

/// A moment long ago: its age stays the same while a test runs.
const OLD_MS: u64 = 1_600_000_000_000;

fn of<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap()
}

/// The cells and titles of a line: two spaces are between two of them at least.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    line.split("  ").map(str::trim).filter(|piece| !piece.is_empty())
}

/// Checks that no line is wider than its terminal, and returns the text for each terminal.
pub fn fits(what: &str, render: impl Fn(Option<usize>) -> String) -> Vec<String> {
    let plain = |room| anstream::adapter::strip_str(&render(room)).to_string();
    let all = COLUMNS.map(|columns| (columns, plain(Some(columns))));
    for (columns, text) in &all {
        for line in text.lines() {
            assert!(width(line) <= *columns, "{what} at {columns} columns:\n{text}");
        }
    }
    all.into_iter().map(|(_, text)| text).chain([plain(None)]).collect()
}

/// The same, and that each cell and title is whole or was cut.
fn holds(what: &str, render: impl Fn(Option<usize>) -> String) {
    let mut texts = fits(what, render);
    let whole = texts.pop().unwrap();
    let titles: BTreeSet<&str> = whole.lines().take(1).flat_map(pieces).collect();
    let cells: BTreeSet<&str> = whole.lines().flat_map(pieces).collect();
    for text in &texts {
        assert_eq!(text.lines().count(), whole.lines().count(), "{what}:\n{text}");
        for title in text.lines().take(1).flat_map(pieces) {
            assert!(titles.contains(title), "{what}: the title {title:?} is broken:\n{text}");
        }
        for cell in text.lines().flat_map(pieces) {
            let head = cell.strip_suffix('…').map(str::trim_end);
            let is_cut = head.is_some_and(|head| cells.iter().any(|whole| whole.starts_with(head)));
            assert!(is_cut || cells.contains(cell), "{what}: the cell {cell:?} is broken:\n{text}");
        }
    }
}

fn holds_grid(what: &str, grid: &Grid) {
    holds(what, |room| grid.render(room));
}

#[test]
fn jobs_and_tasks_fit() {
    let counts =
        Counts { total: 1_000_000, succeeded: 499_000, failed: 340, running: 64, ..Counts::default() };
    let job = |id: u64, name: &str, state: &str, ended: Option<u64>| {
        of(json!({"id": id, "name": name, "queue": WIDE, "user": LONG, "priority": -100, "state": state,
            "created_ms": OLD_MS, "ended_ms": ended, "counts": counts, "steps": []}))
    };
    let ended = Some(OLD_MS + 273_600_000);
    holds_grid(
        "jobs",
        &jobs_grid(&[
            job(1_234_567, LONG, "succeeded", ended),
            job(2, WIDE, "running", None),
            job(3, "a", "canceled", ended),
        ]),
    );
    let task = |index: u32, value: &str, worker: &str| {
        of(
            json!({"id": format!("1234567.{index}"), "job": 1_234_567, "index": index, "step": "main", "value": value,
            "state": "failed", "attempt": 12, "worker": worker, "started_ms": OLD_MS, "finished_ms": OLD_MS + 83_000,
            "end": "time_limit", "exit_code": 124, "cpu_ms": 4_000_000, "peak_memory": 51_800_000,
            "out_bytes": 999_999_999, "progress": 42.5, "status": LONG}),
        )
    };
    let bare =
        of(json!({"id": "1.0", "job": 1, "index": 0, "step": "main", "state": "waiting", "attempt": 0}));
    holds_grid(
        "job tasks",
        &tasks_grid(&[task(999_999, LONG, WIDE), task(7, WIDE, LONG), task(8, "b", "box1"), bare]),
    );
}

#[test]
fn workers_and_servers_fit() {
    let worker = |name: &str, site: &str| {
        of(
            json!({"id": 1, "name": name, "state": "draining", "capacity": {"cpus": 256.0, "memory": 1_099_511_627_776u64,
            "gpus": 8}, "booked": {"cpus": 127.5, "memory": 5_368_709_120u64, "gpus": 7}, "attributes": {
            "kernel": ["6.18.44-fc-v669"], "os": ["linux"], "site": [site], "feature": ["avx2", "avx512", "sse4"],
            "ssd": [], WIDE: [LONG]}, "running": 256, "queued": 12, "epoch": 9, "heard_ms": OLD_MS,
            "lease_until_ms": OLD_MS, "version": "0.12.3-rc4"}),
        )
    };
    let workers = [worker(LONG, "here"), worker(WIDE, "there"), worker("box1", LONG)];
    for all_tags in [false, true] {
        holds_grid("workers", &workers_grid(&workers, all_tags));
    }
    let class = |name: &str, work_ms: u64| {
        of(
            json!({"name": name, "wanted": 12, "here": 5, "busy": 4, "spare": 0, "capacity": {"cpus": 8.0}, "tasks": 1_200,
            "unknown_tasks": 3, "work_ms": work_ms, "tasks_at_a_time": 40, "max": 20, "grows": true, "reason": LONG}),
        )
    };
    holds_grid(
        "machine classes",
        &classes_grid(&[class(LONG, 12_000_000), class("cloud", 0), class(WIDE, 1)]),
    );
    let server = |name: &str, owns: bool| {
        of(
            json!({"id": 1, "name": name, "addresses": [format!("https://{name}.example.org:7117")], "release": "0.12.3",
            "is_this": owns, "draining": !owns, "up_ms": 987_654_321, "silent_ms": if owns { 0 } else { 90_000 },
            "owns": if owns { json!({"epoch": 3, "since_ms": 86_399_999}) } else { Value::Null }}),
        )
    };
    holds_grid(
        "scheduler list",
        &servers_grid(&[server(LONG, true), server(WIDE, false), server("one", false)]),
    );
}

#[test]
fn queues_limits_and_tokens_fit() {
    let queue = |name: &str, note: Option<&str>| {
        of(
            json!({"name": name, "band": 3, "weight": 10_000, "quota_cpus": 1024.5, "burst_cpus": 4096, "paused": note,
            "running": 100_000, "waiting": 47_681_000, "ready_steps": 3, "booked": 123_456_789, "share": 0.3333}),
        )
    };
    holds_grid("queues", &queues_grid(&[queue(LONG, Some(WIDE)), queue(WIDE, Some(LONG)), queue("b", None)]));
    let limit = |name: &str| {
        of(json!({"name": name, "max": 1_000_000, "used": 999_999, "per_worker": 100_000,
            "busy_exits": (1..60).collect::<Vec<i32>>(), "back_off_ms": 90_000, "backing_off": 1_000_000}))
    };
    holds_grid("limit list", &limits_grid(&[limit(LONG), limit(WIDE), limit("maya")]));
    let token = |user: &str, note: &str| {
        of(
            json!({"id": "97ddc5411a2b", "role": "submitter", "user": user, "for_users": [LONG, WIDE], "queue": "film",
            "note": note, "created_ms": OLD_MS, "expires_ms": OLD_MS}),
        )
    };
    holds_grid("token list", &tokens_grid(&[token(LONG, WIDE), token(WIDE, LONG), token("ann", "")]));
}

#[test]
fn turns_fit() {
    let turn = |turn: u64, state: &str, worktree: Option<&str>, why: Option<&str>| {
        of(
            json!({"turn": turn, "state": state, "user": LONG, "queue": WIDE, "machine": LONG, "worktree": worktree,
            "command": LONG, "since_ms": OLD_MS, "cpus": 0.25, "memory": 1_288_490_188u64,
            "held_memory": 1_288_490_188u64, "worker": "box1", "why": why}),
        )
    };
    holds_grid(
        "turns",
        &turns_grid(&[
            turn(1_234_567, "runs", Some(LONG), None),
            turn(8, "waits", Some(WIDE), Some(LONG)),
            turn(9, "waits", None, Some("the queue is paused")),
        ]),
    );
}

#[test]
fn scores_fit() {
    let judged = |worker: &str, points: f64| {
        json!({"worker": worker, "score": points, "load": 1.25, "rules": [
            {"rule": "MissingPathsRule", "points": points, "reason": LONG},
            {"rule": "ResourceSaturationRule", "points": -points, "reason": WIDE}]})
    };
    let judged = [
        judged(LONG, 200.0),
        judged(WIDE, -3.5),
        judged("box1", 0.5),
        judged("box2", 0.25),
        judged("c", 1.0),
    ];
    let why: Why =
        of(json!({"task": "12.3", "state": "ready", "reason": "full", "message": "busy", "open_workers": 5,
        "policy": "resource-aware", "judged": judged}));
    holds("why", |room| score_table(&why, room));
}
