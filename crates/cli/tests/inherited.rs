//! What tasks have of the process that started their server, and what they have not.

use crate::support::{Farm, show};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Starts it with SIGHUP, SIGQUIT, SIGPIPE and SIGCHLD ignored and SIGUSR1 blocked, as under nohup and by careless programs.
fn ignoring_signals(command: &mut Command) {
    // SAFETY: between fork and exec these calls change nothing but signals.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE, libc::SIGCHLD] {
                libc::signal(signal, libc::SIG_IGN);
            }
            let mut blocked = std::mem::zeroed();
            libc::sigemptyset(&raw mut blocked);
            libc::sigaddset(&raw mut blocked, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
            Ok(())
        });
    }
}

#[test]
fn tasks_start_with_no_signal_ignored_or_blocked_whoever_started_their_server() {
    let farm = Farm::new();
    let look =
        "grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'; trap 'echo trapped' HUP; kill -HUP $$";
    for how in [&["run"][..], &["run", "--foreground"]] {
        let mut command = farm.command(&[how, &["--", "sh", "-c", look]].concat());
        ignoring_signals(&mut command);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let zeros = "0".repeat(16);
        assert_eq!(said, format!("SigBlk:{zeros}SigIgn:{zeros}trapped\n"), "{how:?}: {}", show(&output));
    }
}

#[test]
fn a_script_without_its_first_line_runs_and_what_cannot_be_executed_ends_with_126() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let file = |name: &str, text: &[u8], mode: u32| {
        let path = farm.work().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    file("script", b"echo $0 \"$1\" $#\nexit 3\n", 0o755);
    let output = farm.run(&["run", "--", "./script", "two words", "b"]);
    assert_eq!(output.status.code(), Some(3), "{}", show(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "./script two words 2\n");
    // By PATH as well, and without arguments.
    let path = format!("PATH={}:/usr/bin:/bin", farm.work().display());
    let output = farm.run(&["run", "--env", &path, "--", "script"]);
    let found = format!("{}/script  0\n", farm.work().display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), found, "{}", show(&output));
    file("notes", b"echo never\n", 0o644);
    let said = farm.fails(126, &["run", "--", "./notes"]);
    assert!(said.contains("Permission denied") && said.contains("chmod +x FILE"), "{said}");
    file("program", b"\x7fELF\x02\x00\x00 of another machine\n", 0o755);
    let said = farm.fails(126, &["run", "--", "./program"]);
    assert!(said.contains("Exec format error"), "{said}");
    farm.fails(127, &["run", "--", "./missing"]);
}
