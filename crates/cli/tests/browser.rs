//! The board in a real browser: `board/e2e/farm.mjs` in Chromium, beside a server and workers of this machine.

use crate::support::port::Port;
use crate::support::{show, tools};
use std::process::Command;

/// Jobs end before a person's eyes, a log is followed, the reason of a waiting task is read and holds, a worker is drained
/// and a queue paused. No page shows an error, or a serious fault of accessibility, light or dark, small or large.
#[test]
fn a_person_sees_and_steers_the_farm() {
    let Some(board) = tools::of_board("the board in a browser") else { return };
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
