//! The ends of tokens: told ahead of workers, and told by a run that ends with its token.

use crate::support::port::Port;
use crate::support::{show, wait_until};

#[test]
fn a_run_whose_token_expires_says_that_the_job_goes_on() {
    let port = Port::with_tls(&[]);
    let ann = port.token(&["--role", "user", "--user", "ann", "--expires", "6s"]);
    let output = port.run_as(&ann, &["run", "--", "sh", "-c", "while [ ! -e go ]; do :; done"]);
    std::fs::write(port.dir.join("go"), "").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    assert!(said.contains("this token has expired"), "{said}");
    assert!(said.contains("job 1 goes on; with another token 'windlass job wait 1' waits for it"), "{said}");
    port.admin(&["job", "wait", "1"]);
}

#[test]
fn the_end_of_a_workers_token_is_shown() {
    let port = Port::with_tls(&["--no-worker"]);
    let token = port.token(&["--role", "worker", "--worker", "box1", "--expires", "90d"]);
    let _worker = port.worker(&token, "box1");
    let shown = || -> serde_json::Value {
        let text = port.admin(&["workers", "-o", "json"]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()[0].clone()
    };
    wait_until("it is connected", || shown()["connected"] == true && shown()["version"].is_string());
    let worker = shown();
    assert!(worker["token_expires_ms"].is_u64() && worker["token_ends_soon"].is_null(), "{worker}");
    assert!(port.admin(&["worker", "show", "box1"]).contains("expires in 89d"));
    let metrics = port.admin(&["api", "GET", "/metrics"]);
    let line =
        metrics.lines().find(|line| line.starts_with("windlass_worker_token_expires_timestamp_seconds{"));
    let seconds = worker["token_expires_ms"].as_u64().unwrap() / 1000;
    assert!(
        line.is_some_and(|line| line.contains("\"box1\"") && line.contains(&seconds.to_string())),
        "{line:?}"
    );
    // A caller that shows a token is told its end.
    let ann = port.token(&["--role", "viewer", "--expires", "90d"]);
    let head = port.run_as(&ann, &["api", "-i", "GET", "/version"]);
    let head = String::from_utf8_lossy(&head.stdout).into_owned();
    assert!(head.to_lowercase().contains("windlass-token-end-ms: "), "{head}");
}
