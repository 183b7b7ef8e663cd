//! The board in a real browser: `board/e2e/farm.mjs` in Chromium, beside a server and workers of this machine.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::port::Port;
use support::show;

/// The board's tools, or a line that says what is missing.
fn tools(test: &str) -> Option<PathBuf> {
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../board").canonicalize().unwrap();
    let has = |program: &str| {
        let command =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        command.is_ok_and(|status| status.success())
    };
    let missing = match () {
        () if !has("node") => "node is missing: install nodejs",
        () if !has("chromium") => "chromium is missing: install chromium",
        () if !board.join("node_modules/playwright-core").is_dir() => "run 'npm ci' in board",
        () => return Some(board),
    };
    println!("SKIP {test}: {missing}");
    None
}

/// Jobs end before a person's eyes, a log is followed, the reason of a waiting task is read and holds, a worker is drained
/// and a queue paused. No page shows an error, or a serious fault of accessibility, light or dark, small or large.
#[test]
fn a_person_sees_and_steers_the_farm() {
    let Some(board) = tools("the board in a browser") else { return };
    let port = Port::open(&["--cpus", "1"]);
    let token = |role: &str| port.token(&["--role", role]);
    let workers: Vec<_> = ["w1", "w2"]
        .map(|name| port.worker(&port.token(&["--role", "worker", "--worker", name]), name))
        .into_iter()
        .collect();
    let output = Command::new("node")
        .arg("e2e/farm.mjs")
        .current_dir(board)
        .env("BASE", format!("http://{}", port.host()))
        .env("TOKEN", token("admin"))
        .env("VIEWER", token("viewer"))
        .output()
        .unwrap();
    drop(workers);
    let said = show(&output);
    assert!(output.status.success(), "{said}\n{}", port.log());
    assert!(said.contains("all passed") && said.matches("ok     ").count() >= 12, "{said}");
}
