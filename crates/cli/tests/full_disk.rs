//! A worker whose disk is full of what its tasks wrote.

use crate::support::tmpfs::Tmpfs;
use crate::support::{Farm, is_root, wait_until};
use std::fs::File;
use std::time::{Duration, SystemTime};

fn farm_on(disk: &Tmpfs) -> Farm {
    Farm::in_dir(tempfile::tempdir_in(disk.path()).unwrap(), &["--cpus", "1"])
}

/// A server that is started under a task hears of it in the inventory of its keeper, and then of its end.
#[test]
fn output_of_a_task_that_ended_under_another_server_is_freed() {
    if !is_root("a disk full of old output") {
        return;
    }
    let Some(disk) = Tmpfs::mount("64m") else { return };
    let mut farm = farm_on(&disk);
    let script = "head -c 40000000 /dev/zero | tr '\\0' x; touch up; while [ ! -e go ]; do :; done";
    farm.ok(&["submit", "--", "sh", "-c", script]);
    wait_until("it has written", || farm.work().join("up").exists());
    farm.kill_server();
    farm.start();
    // Less than the twentieth that is kept free, and more than what ends submissions.
    disk.leave(3 << 20);
    std::fs::write(farm.work().join("go"), "").unwrap();
    farm.ok(&["job", "wait", "1"]);
    let output = farm.state().join("logs/1/0.1.out");
    let bytes = || output.metadata().unwrap().len();
    assert_eq!(bytes(), 40_000_000);
    // As if it had ended an hour ago.
    File::open(&output).unwrap().set_modified(SystemTime::now() - Duration::from_secs(3_600)).unwrap();
    wait_until("its output is cut to its beginning", || bytes() < 10_000);
    assert!(farm.ok(&["logs", "1.0"]).contains("the disk of this worker was full"));
    drop(farm);
}

#[test]
fn a_task_that_fails_on_a_full_disk_says_so() {
    if !is_root("a task on a full disk") {
        return;
    }
    let Some(disk) = Tmpfs::mount("64m") else { return };
    let farm = farm_on(&disk);
    let said = farm.fails(1, &["run", "--", "sh", "-c", "cat /dev/zero > filler"]);
    assert!(said.contains("the disk of its worker was full"), "{said}");
    std::fs::remove_file(farm.work().join("filler")).unwrap();
    wait_until("submissions are taken again", || farm.run(&["run", "--", "true"]).status.success());
    let said = farm.fails(1, &["run", "--", "sh", "-c", "exit 1"]);
    assert!(!said.contains("disk"), "{said}");
    drop(farm);
}

/// It writes twice what the disk has left, at about 5 MB a second.
#[test]
fn output_of_a_running_task_loses_its_middle_before_the_disk_is_full() {
    if !is_root("a task that would fill the disk") {
        return;
    }
    let Some(disk) = Tmpfs::mount("200m") else { return };
    let farm = farm_on(&disk);
    let script = "while [ ! -e go ]; do :; done; echo first; i=0; while [ $i -lt 200 ]; do \
                  head -c 200000 /dev/zero | tr '\\0' x; i=$((i+1)); sleep 0.04; done; echo; echo last";
    farm.ok(&["submit", "--", "sh", "-c", script]);
    disk.leave(20 << 20);
    std::fs::write(farm.work().join("go"), "").unwrap();
    farm.ok(&["job", "wait", "1"]);
    let text = farm.ok(&["logs", "1.0"]);
    assert!(text.starts_with("first\nxxx") && text.ends_with("x\nlast\n"), "{} bytes", text.len());
    assert!(text.contains("bytes are left out here"), "the gap is told");
    drop(farm);
}
