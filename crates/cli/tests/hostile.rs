//! A hostile submitter, or a broken file server, must not harm another submitter's work.

use crate::support::{self, Farm, is_root, kill, show, wait_until};
use rustix::event::{PollFd, PollFlags, poll};
use std::ffi::CString;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How soon another submitter's task starts and ends during an attack.
const SOON: Duration = Duration::from_secs(3);

/// Runs `true` for another submitter; returns how long that took.
fn other_work(farm: &Farm) -> Duration {
    let clock = Instant::now();
    farm.ok(&["run", "--cwd", "/", "--", "true"]);
    clock.elapsed()
}

#[test]
fn c1_a_step_that_no_worker_could_be_sent_is_refused_and_one_that_can_be_is_sent() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let submit = |bytes: usize| {
        // Variables of a size that a process may have.
        let part = "x".repeat(100_000);
        let env: serde_json::Map<String, serde_json::Value> =
            (0..bytes / part.len()).map(|n| (format!("V{n}"), part.clone().into())).collect();
        let request = serde_json::json!({ "steps": [{ "command": ["true"], "env": env }] });
        let path = farm.work().join("request.json");
        std::fs::write(&path, request.to_string()).unwrap();
        let curl = Command::new("curl")
            .args(["-s", "-w", "%{http_code}", "-H", "content-type: application/json", "--unix-socket"])
            .arg(farm.socket())
            .args(["-d", &format!("@{}", path.display()), "http://localhost/api/v1/jobs"])
            .output();
        String::from_utf8(curl.unwrap().stdout).unwrap()
    };
    let refused = submit(5 << 20);
    assert!(refused.ends_with("400") && refused.contains("more than the limit of 4194304"), "{refused}");
    let taken = submit(3 << 20);
    assert!(taken.ends_with("201"), "{taken}");
    // Its processes cannot start, because the kernel refuses so large an environment. The error says so, and other
    // submitters are not harmed.
    let job = farm.json(&["jobs"])[0]["id"].as_u64().unwrap().to_string();
    assert_eq!(farm.run(&["job", "wait", &job]).status.code(), Some(127), "{}", farm.server_log());
    assert!(other_work(&farm) < SOON);
}

#[test]
fn h4_launches_that_fail_by_their_jobs_fault_take_no_worker_from_others() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let none = farm.work().join("none").display().to_string();
    let commands: [&[&str]; 2] =
        [&["run", "--cwd", &none, "--", "true"], &["run", "--cwd", "/", "--", "no-such-program"]];
    for command in commands {
        for _ in 0..3 {
            let output = farm.run(command);
            assert_eq!(output.status.code(), Some(127), "{}", show(&output));
        }
        let took = other_work(&farm);
        assert!(took < SOON, "{took:?} after {command:?}");
    }
}

/// A file system whose server takes requests and answers none but the first.
struct DeadMount {
    dir: PathBuf,
    /// Closing it ends the server, and with it the processes that wait for it.
    stop: Option<PipeWriter>,
    server: Option<JoinHandle<()>>,
}

impl DeadMount {
    /// `None` if this machine has no FUSE.
    fn at(dir: PathBuf) -> Option<DeadMount> {
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        std::fs::create_dir_all(&dir).unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let text = |text: &str| CString::new(text).unwrap();
        let (source, target, kind, data) = (text("dead"), path_text(&dir), text("fuse"), text(&options));
        // SAFETY: NUL-terminated strings.
        let mounted =
            unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, data.as_ptr().cast()) };
        if mounted < 0 {
            return None;
        }
        let (stopped, stop) = std::io::pipe().unwrap();
        let server = std::thread::spawn(move || serve(device, &stopped));
        Some(DeadMount { dir, stop: Some(stop), server: Some(server) })
    }
}

fn path_text(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

fn serve(mut device: File, stopped: &PipeReader) {
    let mut request = vec![0; 1 << 16];
    loop {
        let mut fds =
            [PollFd::new(&device, PollFlags::IN), PollFd::new(stopped, PollFlags::IN | PollFlags::HUP)];
        poll(&mut fds, None).unwrap();
        if !fds[1].revents().is_empty() {
            return;
        }
        let Ok(bytes) = device.read(&mut request) else { return };
        let is_hello = u32::from_le_bytes(request[4..8].try_into().unwrap()) == 26;
        if bytes >= 16 && is_hello {
            device.write_all(&hello(&request[8..16])).unwrap();
        }
    }
}

/// The answer to FUSE_INIT with this unique number: version 7.31, nothing special.
fn hello(unique: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    answer.extend(80_u32.to_le_bytes());
    answer.extend(0_u32.to_le_bytes());
    answer.extend(unique);
    for word in [7_u32, 31, 1 << 16, 0, 0, 4096] {
        answer.extend(word.to_le_bytes());
    }
    answer.resize(80, 0);
    answer
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        drop(self.stop.take());
        _ = self.server.take().map(JoinHandle::join);
        // SAFETY: a NUL-terminated string.
        unsafe { libc::umount2(path_text(&self.dir).as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn c2_a_task_whose_directory_does_not_answer_holds_up_nobody() {
    if !is_root("hostile") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let Some(dead) = DeadMount::at(place.path().join("dead")) else {
        println!("SKIP hostile: no file systems in user space here");
        return;
    };
    let farm = Farm::with_server(&["--cpus", "2"]);
    let running = farm.spawn(&["run", "--cwd", "/", "--", "sleep", "30.125"]);
    // The client, and the task.
    wait_until("it runs", || support::processes_with("sleep 30.125").len() == 2);
    let inside = dead.dir.join("project").display().to_string();
    let late = farm.spawn(&["run", "--cwd", &inside, "--", "true"]);
    let keeper = farm.keeper_pid();
    // Besides the running task and the process that starts the others. The keeper has helpers now and then, so that alone
    // does not say that the second job is there.
    let jobs = || farm.ok(&["jobs", "-o", "name"]).lines().count();
    wait_until("it is on its way", || jobs() == 2 && children(keeper) > 2);
    let clock = Instant::now();
    // The other core is not free before the first task is given up; a cancel takes effect at once.
    let other = farm.ok(&["submit", "-o", "name", "--cwd", "/", "--", "true"]);
    farm.ok(&["job", "cancel", other.trim()]);
    assert!(clock.elapsed() < SOON, "{:?}", clock.elapsed());
    let late = late.wait_with_output().unwrap();
    assert_eq!(late.status.code(), Some(127), "{}\n{}", show(&late), farm.server_log());
    assert!(show(&late).contains("did not start within 10 s"), "{}", show(&late));
    // Only the task was harmed.
    let took = other_work(&farm);
    assert!(took < SOON, "{took:?}");
    assert_eq!(support::processes_with("sleep 30.125").len(), 2, "what ran goes on");
    assert_eq!(farm.keeper_pid(), keeper);
    drop(dead);
    support::processes_with("sleep 30.125").into_iter().for_each(|pid| kill(pid, "KILL"));
    _ = running.wait_with_output();
}

/// How many processes that one has started.
fn children(pid: i32) -> usize {
    let all = std::fs::read_to_string(Path::new("/proc").join(format!("{pid}/task/{pid}/children")));
    all.unwrap_or_default().split_whitespace().count()
}

#[test]
fn a_keeper_whose_directory_is_gone_ends() {
    let mut farm = Farm::with_server(&["--cpus", "1"]);
    farm.ok(&["submit", "--", "sleep", "77.375"]);
    wait_until("it runs", || !support::processes_with("sleep 77.375").is_empty());
    let keeper = farm.keeper_pid();
    // If it does not end, no test finds it any more.
    let _guard = Killed(keeper);
    farm.kill_server();
    std::fs::remove_dir_all(farm.state()).unwrap();
    wait_until("the keeper ends", || !Path::new("/proc").join(keeper.to_string()).exists());
    assert!(support::processes_with("sleep 77.375").is_empty());
}

/// A process that does not outlive its test.
struct Killed(i32);

impl Drop for Killed {
    fn drop(&mut self) {
        kill(self.0, "KILL");
    }
}
