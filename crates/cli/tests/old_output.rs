//! Output on a worker goes when the server says that its job is gone, however old it seems.

use crate::support::port::Port;
use crate::support::wait_until;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Lets a directory and its files seem as old as those of jobs that ended long ago.
fn age(dir: &Path) {
    let changed = SystemTime::now() - Duration::from_secs(61 * 86_400);
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in files.collect::<Vec<_>>().into_iter().chain([dir.to_owned()]) {
        File::open(path).unwrap().set_modified(changed).unwrap();
    }
}

#[test]
fn old_output_goes_where_the_server_does_not_know_its_job() {
    let port = Port::open(&["--no-worker"]);
    let token = port.token(&["--role", "worker", "--worker", "box1"]);
    let worker = port.worker(&token, "box1");
    wait_until("the worker is there", || port.admin(&["workers", "-o", "name"]).trim() == "box1");
    port.admin(&["run", "--cwd", "/", "--", "echo", "it is kept"]);
    drop(worker);
    let logs = port.dir.join("box1/worker/logs");
    for job in ["900", "901"] {
        fs::create_dir(logs.join(job)).unwrap();
        fs::write(logs.join(job).join("0.1.out"), "of a job that was deleted").unwrap();
    }
    age(&logs.join("1"));
    age(&logs.join("900"));
    let _worker = port.worker(&token, "box1");
    wait_until("what is gone on the server is deleted", || !logs.join("900").exists());
    assert!(logs.join("901").exists(), "it was written to a moment ago");
    assert!(port.admin(&["logs", "1.0"]).contains("it is kept"));
}
