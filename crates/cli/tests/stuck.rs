//! Programs that are asked about this machine and do not answer.

use crate::support::port::{KillOnDrop, Port};
use crate::support::{Farm, processes_with, show, wait_until};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Puts an `nvidia-smi` first in a command's `PATH`, which tells two devices once a file `answers` is in `dir`.
fn with_driver(command: &mut Command, dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(dir).unwrap();
    let (program, answers) = (dir.join("nvidia-smi"), dir.join("answers"));
    let waits = format!("until [ -e {} ]; do sleep 0.05; done", answers.display());
    std::fs::write(&program, format!("#!/bin/sh\n{waits}\necho 0, GPU-aa, 1024\necho 1, GPU-bb, 1024\n"))
        .unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", dir.display()));
}

#[test]
fn a_driver_that_is_stuck_holds_up_no_run_and_declares_its_gpus_later() {
    let farm = Farm::new();
    let driver = farm.path().join("driver");
    let mut command = farm.command(&["run", "--", "echo", "hi"]);
    with_driver(&mut command, &driver);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it has run", || run.try_wait().unwrap().is_some());
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"hi\n", "{}", show(&output));
    let log = std::fs::read_to_string(farm.state().join("server.log")).unwrap();
    assert_eq!(log.matches("nvidia-smi has not answered within 3 s").count(), 1, "{log}");
    let gpus = || farm.json(&["workers"])[0]["capacity"]["gpus"].as_u64().unwrap_or(0);
    assert_eq!(gpus(), 0);
    // What is not known yet refuses nothing, and is told.
    farm.ok(&["submit", "--gpus", "2", "--", "true"]);
    let why = farm.ok(&["why", "2.0"]);
    assert!(why.contains("does not know its gpus yet"), "{why}");
    std::fs::write(driver.join("answers"), "").unwrap();
    wait_until("its gpus are declared", || gpus() == 2);
    farm.ok(&["job", "wait", "2"]);
    farm.fails(6, &["run", "--gpus", "3", "--", "true"]);
    let held = farm.ok(&["run", "--gpus", "2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    assert_eq!(held, "0,1\n");
}

#[test]
fn a_worker_of_a_farm_starts_without_its_driver_and_tells_the_server_of_its_gpus_later() {
    let port = Port::open(&["--no-worker"]);
    let token = port.token(&["--role", "worker", "--worker", "box1"]);
    let driver = port.dir.join("driver");
    let mut command = port.farm.command(&["worker", "start", "--name", "box1", "--cpus", "1", "--as-root"]);
    command.env("WINDLASS_STATE", port.dir.join("box1")).env("WINDLASS_TOKEN", token);
    command.env("WINDLASS_SERVER", port.url()).env("WINDLASS_CA", "ca/ca.pem");
    with_driver(&mut command, &driver);
    let _worker = KillOnDrop(command.stderr(Stdio::null()).spawn().unwrap());
    wait_until("the worker is there", || port.admin(&["workers", "-o", "name"]).trim() == "box1");
    let gpus = || {
        let workers: Value = serde_json::from_str(&port.admin(&["workers", "-o", "json"])).unwrap();
        workers[0]["capacity"]["gpus"].as_u64().unwrap_or(0)
    };
    assert_eq!(gpus(), 0);
    // A task that runs meanwhile is not disturbed by the second hello.
    let hold = port.dir.join("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; exit 7", hold.display());
    port.admin(&["submit", "--cwd", "/", "--", "sh", "-c", &script]);
    std::fs::write(driver.join("answers"), "").unwrap();
    wait_until("its gpus are declared", || gpus() == 2);
    std::fs::write(hold, "").unwrap();
    assert_eq!(port.admin_output(&["job", "wait", "1"]).status.code(), Some(7));
}

#[test]
fn a_command_that_shows_the_machine_says_what_is_not_known() {
    let farm = Farm::new();
    let mut command = farm.command(&["worker", "detect", "-o", "json"]);
    let driver = farm.path().join("driver");
    with_driver(&mut command, &driver);
    // A script around the real program, which the kernel does not kill with it.
    std::fs::write(driver.join("nvidia-smi"), "#!/bin/sh\nsleep 4321.5 &\nwait\n").unwrap();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nvidia-smi has not answered within 10 s"));
    wait_until("what nvidia-smi started is gone", || processes_with("sleep 4321.5").is_empty());
}
