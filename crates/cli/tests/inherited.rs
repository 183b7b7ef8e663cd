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
    std::fs::create_dir(farm.work().join("films")).unwrap();
    let said = farm.fails(126, &["run", "--", "./films"]);
    assert!(said.contains("Is a directory") && !said.contains("chmod"), "{said}");
    // A script of a machine with another shell, or with line ends of Windows.
    file("crlf", b"#!/bin/sh\r\necho never\r\n", 0o755);
    let said = farm.fails(127, &["run", "--", "./crlf"]);
    assert!(said.contains("its interpreter does not exist") && said.contains("(#!)"), "{said}");
    let said = farm.fails(127, &["run", "--", "./missing"]);
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn the_submitters_umask_travels_with_the_job() {
    let farm = Farm::new();
    // The first one starts the server, whose own umask stays this.
    let under = |mask: &str, args: &[&str]| {
        let line = format!("umask {mask} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        let windlass = farm.command(&[]);
        command.args(["-c", &line, crate::support::windlass()]).args(args).current_dir(farm.work());
        command.envs(windlass.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", show(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let run = ["run", "--", "sh", "-c", "umask"];
    assert_eq!(under("077", &run), "0077\n");
    assert_eq!(under("022", &run), "0022\n");
    assert_eq!(under("022", &["run", "--umask", "7", "--", "sh", "-c", "umask"]), "0007\n");
    let shown = under("022", &["job", "show", "last"]);
    assert!(shown.lines().any(|line| line.starts_with("umask") && line.ends_with(" 0007")), "{shown}");
    let refused = farm.fails(2, &["run", "--umask", "9", "--", "true"]);
    assert!(refused.contains("octal digits"), "{refused}");
}

#[test]
fn pwd_is_the_directory_of_the_task() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let pwd = |args: &[&str]| {
        let mut command = farm.command(&[&["run"], args, &["--", "printenv", "PWD", "OLDPWD"]].concat());
        let output = command.env("PWD", "/tmp").env("OLDPWD", "/etc").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(pwd(&["--cwd", "/usr"]), "/usr\n");
    // A program that changes its directory seldom changes the variable.
    let work = farm.work().canonicalize().unwrap();
    assert_eq!(pwd(&[]), format!("{}\n", work.display()));
}

#[test]
fn tasks_have_the_gpus_that_their_worker_may_use_and_that_work() {
    let farm = Farm::new();
    let smi = farm.work().join("nvidia-smi");
    let text = "#!/bin/sh\necho '0, [GPU is lost], [GPU is lost]'\necho '1, GPU-aa20, 1024'\necho '2, GPU-bb30, 1024'\n\
                echo '3, GPU-cc40, 1024'\nexit 15\n";
    std::fs::write(&smi, text).unwrap();
    std::fs::set_permissions(&smi, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |args: &[&str]| {
        let look = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"];
        let mut command = farm.command(&[&["run"], args, &look].concat());
        let path = format!("{}:{}", farm.work().display(), std::env::var("PATH").unwrap());
        // The first one starts the server, which may use two of the devices.
        let output = command.env("PATH", path).env("CUDA_VISIBLE_DEVICES", "2,GPU-cc40").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["--gpus", "2"]), (Some(0), "GPU-bb30,GPU-cc40 PCI_BUS_ID\n".to_owned()));
    assert_eq!(run(&["--gpus", "1"]), (Some(0), "GPU-bb30 PCI_BUS_ID\n".to_owned()));
    assert_eq!(run(&[]), (Some(0), "-1\n".to_owned()), "whatever the submitter's own shell may use");
    assert_eq!(run(&["--gpus", "3"]).0, Some(6), "two are all that it may use");
}

/// Starts it with this soft and this hard limit of open files.
fn with_files(command: &mut Command, soft: u64, hard: u64) {
    let limit = rustix::process::Rlimit { current: Some(soft), maximum: Some(hard) };
    // SAFETY: between fork and exec only this one system call is made.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).map_err(std::io::Error::from)
        });
    }
}

#[test]
fn a_worker_with_few_open_files_runs_fewer_tasks_at_a_time_and_says_so() {
    let farm = Farm::new();
    let mut command = farm.command(&["run", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn"]);
    command.env("WINDLASS_WORKER_CPUS", "400");
    with_files(&mut command, 200, 256);
    let output = command.output().unwrap();
    assert_eq!(output.stdout, b"200\n256\n", "as the server was started: {}", show(&output));
    let log = std::fs::read_to_string(farm.state().join("server.log")).unwrap();
    assert!(log.contains("at most 18 tasks run at a time") && log.contains("256 open files"), "{log}");
    farm.ok(&["run", "--array", "1-300", "--", "true"]);
    let log = std::fs::read_to_string(farm.state().join("keeper.log")).unwrap();
    assert!(!log.contains("open files"), "no start failed: {log}");
    let mut command = farm.command(&["doctor", "-o", "json"]);
    with_files(&mut command, 64, 64);
    let (state, said) = crate::support::findings(&command.output().unwrap()).remove("open files").unwrap();
    assert!(state != "ok" && said.contains("64"), "{state}: {said}");
}
