//! `windlass turn` with real processes: the command in the place of its caller, and turns that wait, last and end.

use crate::support::small_group::SmallGroup;
use crate::support::{Farm, is_root, kill, processes_with, show, wait_until, windlass};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A loop of the shell that waits until a file is there.
fn until(file: &str) -> String {
    format!("while [ ! -e {file} ]; do sleep 0.01; done")
}

/// The turns that wait and run.
fn turns(farm: &Farm) -> Vec<serde_json::Value> {
    farm.json(&["turns"]).as_array().unwrap().clone()
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// The letter by which the kernel tells how a process is.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn streams_and_exit_codes_are_the_command_s() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let mut command = farm.command(&["turn", "--", "sh", "-c", "cat; pwd; echo err >&2; exit 7"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"all\nof it\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", show(&output));
    assert_eq!(output.stdout, format!("all\nof it\n{}\n", farm.work().display()).as_bytes());
    assert_eq!(output.stderr, b"err\n", "nothing is said of a turn that comes at once");
    let missing = farm.fails(127, &["turn", "--", "/no/such/program"]);
    assert!(missing.contains("cannot run '/no/such/program'"), "{missing}");
    std::fs::write(farm.work().join("notes"), "text").unwrap();
    farm.fails(126, &["turn", "--", "./notes"]);
    // A shell sees what it would see of the command itself.
    for (signal, name) in [(libc::SIGTERM, "TERM"), (libc::SIGKILL, "KILL"), (libc::SIGPIPE, "PIPE")] {
        let output = farm.run(&["turn", "--", "sh", "-c", &format!("kill -{name} $$")]);
        assert_eq!(output.status.signal(), Some(signal), "{}", show(&output));
    }
    // Flags behind the command are its own, and those of every command stand before it or behind 'turn'.
    assert_eq!(farm.ok(&["turn", "echo", "--memory", "-v"]), "--memory -v\n");
    assert_eq!(farm.ok(&["--color", "never", "turn", "--cpus", "0.5", "--", "echo", "-o"]), "-o\n");
    assert!(farm.ok(&["turn", "--help"]).contains("windlass-turn"));
    farm.fails(2, &["turn", "--memory", "lots", "--", "true"]);
    assert_eq!(turns(&farm).len(), 0);
}

#[test]
fn a_signal_is_passed_on_once_and_the_command_ends_by_itself() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let line = "n=0; trap 'n=$((n+1)); echo got$n' USR1; trap 'echo end$n; exit 5' TERM; echo ready; \
                while :; do sleep 0.01; done";
    let mut child = farm.spawn(&["turn", "--", "sh", "-c", line]);
    assert_eq!(first_line(&mut child), "ready\n");
    kill(child.id() as i32, "USR1");
    assert_eq!(first_line(&mut child), "got1\n");
    kill(child.id() as i32, "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(5), &b"end1\n"[..]), "{}", show(&output));
    // A command that signals its parent means no signal for itself.
    assert_eq!(farm.ok(&["turn", "--", "sh", "-c", "kill -USR1 $PPID; sleep 0.05; echo lives"]), "lives\n");
}

#[test]
fn a_command_that_stops_stops_its_turn_and_goes_on_with_it() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let child = farm.spawn(&["turn", "--", "sh", "-c", "kill -STOP $$; echo on; exit 3"]);
    wait_until("the turn has stopped", || state_of(child.id()) == Some('T'));
    assert_eq!(turns(&farm).len(), 1, "it keeps its turn");
    kill(child.id() as i32, "CONT");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"on\n"[..]), "{}", show(&output));
}

/// Signals as a careless program leaves them.
fn with_odd_signals(command: &mut Command) -> Output {
    // SAFETY: between fork and exec these calls change nothing but signals.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGPIPE, libc::SIGCHLD] {
                libc::signal(signal, libc::SIG_IGN);
            }
            let mut blocked = std::mem::zeroed();
            libc::sigemptyset(&raw mut blocked);
            libc::sigaddset(&raw mut blocked, libc::SIGUSR1);
            libc::sigaddset(&raw mut blocked, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
            Ok(())
        });
    }
    command.output().unwrap()
}

#[test]
fn signals_and_descriptors_are_as_the_caller_had_them() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let words = ["sh", "-c", "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ls /proc/self/fd | wc -l"];
    let mut plain = Command::new(words[0]);
    plain.args(&words[1..]).stdin(Stdio::null());
    let turn = || farm.command(&[&["turn", "--"], &words[..]].concat());
    let (odd, odd_in_turn) = (with_odd_signals(&mut plain), with_odd_signals(&mut turn()));
    assert!(odd_in_turn.status.success(), "{}", show(&odd_in_turn));
    assert_eq!(String::from_utf8_lossy(&odd_in_turn.stdout), String::from_utf8_lossy(&odd.stdout));
    let mut plain = Command::new(words[0]);
    let usual = plain.args(&words[1..]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(turn().output().unwrap().stdout, usual.stdout);
    // A compiler that is only asked about itself is run without a turn, and has them as well.
    script(&farm.work().join("gcc"), words[2]);
    let mut asked = farm.command(&["turn", "--", "./gcc", "--version"]);
    assert_eq!(with_odd_signals(&mut asked).stdout, odd.stdout);
}

#[test]
fn a_killed_turn_leaves_no_command_and_no_turn() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let mut child = farm.spawn(&["turn", "--", "sleep", "1000.03125"]);
    wait_until("the command runs", || processes_with("sleep 1000.03125").len() == 2);
    assert_eq!(turns(&farm).len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the command has ended", || processes_with("sleep 1000.03125").is_empty());
    wait_until("the turn is over", || turns(&farm).is_empty());
    assert_eq!(farm.ok(&["turn", "--", "echo", "free"]), "free\n");
    // One that waits ends at once.
    let holder = farm.spawn(&["turn", "--", "sh", "-c", &until("go")]);
    wait_until("it runs", || turns(&farm).len() == 1);
    let mut waiting = farm.spawn(&["turn", "--", "touch", "ran"]);
    wait_until("another one waits", || turns(&farm).len() == 2);
    kill(waiting.id() as i32, "TERM");
    assert_eq!(waiting.wait().unwrap().signal(), Some(libc::SIGTERM));
    wait_until("it waits no more", || turns(&farm).len() == 1);
    File::create(farm.work().join("go")).unwrap();
    assert!(holder.wait_with_output().unwrap().status.success());
    assert!(!farm.work().join("ran").exists());
}

#[test]
fn a_thousand_turns_leave_nothing() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let line =
        format!("i=0; while [ $i -lt 1000 ]; do {} turn -- true || exit 1; i=$((i+1)); done", windlass());
    let mut shell = Command::new("sh");
    let command = farm.command(&[]);
    shell.args(["-c", &line]).current_dir(farm.work()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    assert!(output.stderr.is_empty(), "{}", show(&output));
    wait_until("the last turn is over", || turns(&farm).is_empty());
    assert_eq!(farm.ok(&["jobs", "-o", "name"]), "");
}

#[test]
fn two_turns_on_one_cpu_wait_for_each_other_with_a_reason() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let first = farm.spawn(&["turn", "--", "sh", "-c", &format!("touch a; {}", until("go"))]);
    wait_until("the first one runs", || farm.work().join("a").exists());
    let said = farm.work().join("said");
    let mut second = farm.command(&["turn", "--", "sh", "-c", "[ -e go ] && touch b"]);
    let second = second.stdout(Stdio::null()).stderr(File::create(&said).unwrap()).spawn().unwrap();
    let waits = || turns(&farm).into_iter().find(|turn| turn["state"] == "waits");
    wait_until("the second one waits", || waits().is_some_and(|turn| turn["why"].is_string()));
    let turn = waits().unwrap();
    assert!(turn["command"].as_str().unwrap().contains("touch b"), "{turn}");
    let why = farm.ok(&["why", &format!("turn:{}", turn["turn"])]);
    assert!(why.starts_with(&format!("turn {} is ", turn["turn"])), "{why}");
    assert!(farm.ok(&["turns"]).contains("waiting"));
    let text = || std::fs::read_to_string(&said).unwrap();
    wait_until("it is said why", || text().contains('\n'));
    File::create(farm.work().join("go")).unwrap();
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", show(&output));
    }
    assert!(farm.work().join("b").exists());
    let text = text();
    let expected = format!("windlass: turn {} waits: ", turn["turn"]);
    assert!(text.starts_with(&expected) && text.lines().count() == 1, "{text}");
}

#[test]
fn without_a_server_the_command_runs_at_once_and_says_so() {
    let farm = Farm::new();
    let nowhere = format!("unix:{}", farm.path().join("none.sock").display());
    let output = farm.run(&["turn", "--server", &nowhere, "--", "echo", "hi"]);
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(output.stdout, b"hi\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("'echo' runs without waiting for its turn") && said.contains("none.sock"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let said = farm.fails(5, &["turn", "--strict", "--server", &nowhere, "--", "touch", "ran"]);
    assert!(said.contains("no server answers") && !farm.work().join("ran").exists(), "{said}");
    // The user's own server is started.
    assert_eq!(farm.ok(&["turn", "--strict", "--", "echo", "own"]), "own\n");
    farm.ok(&["server", "status"]);
    // Room that no worker here has is not waited for.
    let said = farm.fails(6, &["turn", "--strict", "--memory", "900TiB", "--", "touch", "ran"]);
    assert!(!farm.work().join("ran").exists(), "{said}");
}

#[test]
fn a_turn_outlives_the_server() {
    let mut farm = Farm::with_server(&["--cpus", "1"]);
    // A server that is named is not started by its clients: the test starts it again.
    let named = format!("unix:{}", farm.socket().display());
    let turn = ["turn", "--server", &named, "--"];
    let child =
        farm.spawn(&[&turn[..], &["sh", "-c", &format!("touch a; {}; exit 4", until("go"))]].concat());
    wait_until("it runs", || farm.work().join("a").exists());
    let mut waiting = farm.spawn(&[&turn[..], &["touch", "b"]].concat());
    wait_until("another one waits", || turns(&farm).len() == 2);
    farm.kill_server();
    farm.start();
    let states = || {
        let mut states: Vec<String> =
            turns(&farm).iter().map(|turn| turn["state"].as_str().unwrap().to_owned()).collect();
        states.sort();
        states
    };
    wait_until("both are back", || states() == ["runs", "waits"]);
    assert!(!farm.work().join("b").exists());
    File::create(farm.work().join("go")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    assert!(waiting.wait().unwrap().success());
    assert!(farm.work().join("b").exists());
}

#[test]
fn a_turn_inside_a_turn_or_a_task_waits_for_no_cpu() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let inner = [windlass(), "turn", "--strict", "--memory", "auto", "--", "echo", "in"];
    assert_eq!(farm.ok(&[&["turn", "--strict", "--"], &inner[..]].concat()), "in\n");
    assert_eq!(farm.ok(&[&["turn", "--memory", "10M", "--"], &inner[..]].concat()), "in\n");
    assert_eq!(farm.ok(&[&["run", "-q", "--"], &inner[..]].concat()), "in\n");
    // A job that a turn submits is not inside it.
    let submits = format!("{} run -q --cpus 0.5 -- printenv WINDLASS_TURN || echo none", windlass());
    let line = format!("echo $WINDLASS_TURN; {submits}");
    let output = farm.ok(&["turn", "--cpus", "0.5", "--", "sh", "-c", &line]);
    let (turn, rest) = output.split_once('\n').unwrap();
    assert!(turn.parse::<u64>().is_ok(), "{output}");
    assert_eq!(rest, "none\n");
}

#[test]
fn a_link_of_another_name_is_a_wrapper() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let bin = farm.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let made = farm.ok(&["turn", "--install", bin.to_str().unwrap()]);
    assert_eq!(made, format!("{}\n", bin.join("windlass-turn").display()));
    farm.ok(&["turn", "--install", bin.to_str().unwrap()]);
    script(&farm.work().join("rustc"), "echo \"$@\"; case $1 in -*) ;; *) exit 2;; esac");
    let wrapped = |flags: &str, words: &[&str]| {
        let mut command = Command::new(bin.join("windlass-turn"));
        let of_farm = farm.command(&[]);
        command.args(words).stdin(Stdio::null()).current_dir(farm.work());
        command.envs(of_farm.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("WINDLASS_TURN_ARGS", flags).output().unwrap()
    };
    let words = ["./rustc", "--crate-name", "w", "--memory", "x", "a.rs"];
    let output = wrapped("", &words);
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(output.stdout, b"--crate-name w --memory x a.rs\n");
    assert!(output.stderr.is_empty(), "{}", show(&output));
    // Cargo keeps what a compiler says. So nothing is said there, and a compiler that tells of itself needs no server.
    let nowhere = format!("--server unix:{}", farm.path().join("none.sock").display());
    let output = wrapped(&nowhere, &words);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", show(&output));
    let strict = format!("{nowhere} --strict");
    assert_eq!(wrapped(&strict, &words).status.code(), Some(5));
    assert!(wrapped(&strict, &["./rustc", "-vV"]).status.success());
    assert_eq!(wrapped("--no-such-flag", &words).status.code(), Some(2));
}

#[test]
fn turns_are_told_with_their_worktree() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let tree = farm.work().join("tree");
    std::fs::create_dir_all(tree.join("src/deep")).unwrap();
    std::fs::write(tree.join(".git"), "gitdir: elsewhere\n").unwrap();
    let go = farm.work().join("go");
    let mut command = farm.command(&["turn", "--", "sh", "-c", &until(go.to_str().unwrap())]);
    let mut child = command.current_dir(tree.join("src/deep")).spawn().unwrap();
    wait_until("it runs", || turns(&farm).len() == 1);
    let turn = turns(&farm).remove(0);
    assert_eq!(turn["worktree"].as_str(), tree.to_str(), "{turn}");
    assert_eq!((turn["state"].as_str(), turn["cpus"].as_f64()), (Some("runs"), Some(1.0)), "{turn}");
    File::create(go).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_command_that_was_killed_for_memory_runs_once_more_with_more() {
    const TEST: &str = "a_command_that_was_killed_for_memory_runs_once_more_with_more";
    if !is_root(TEST) {
        return;
    }
    let Some(group) = SmallGroup::new("turns", "200M") else {
        return println!("SKIP {TEST}: no control group of memory can be made");
    };
    let farm = Farm::with_server(&["--cpus", "2"]);
    // The second time less is needed: the group has no more than the first time.
    script(
        &farm.work().join("build"),
        "echo try >> tries; [ $(wc -l < tries) = 2 ] && exit 0\nexec dd if=/dev/zero of=/dev/null bs=1G count=1",
    );
    let run = |flags: &[&str]| {
        let mut command = group.joining(&farm.command(&["turn"]));
        command.args(flags).args(["--", "./build"]).stdin(Stdio::null()).output().unwrap()
    };
    let tries = || {
        let mut text = String::new();
        File::open(farm.work().join("tries")).unwrap().read_to_string(&mut text).unwrap();
        text.lines().count()
    };
    let output = run(&[]);
    assert_eq!((output.status.signal(), tries()), (Some(libc::SIGKILL), 1), "{}", show(&output));
    std::fs::remove_file(farm.work().join("tries")).unwrap();
    let output = run(&["--memory", "auto"]);
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(tries(), 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("'./build' was killed because memory was short"), "{said}");
    assert!(said.contains("it runs again with"), "{said}");
    // A kill by a person is none for memory.
    script(&farm.work().join("build"), "echo try >> tries; kill -KILL $$");
    let output = run(&["--memory", "auto"]);
    assert_eq!((output.status.signal(), tries()), (Some(libc::SIGKILL), 3), "{}", show(&output));
}

#[test]
fn a_long_turn_is_listed_with_what_it_holds_and_the_next_one_is_booked_with_that() {
    let farm = Farm::with_server(&["--cpus", "2", "--memory", "2GiB"]);
    // A process of 200 MB that waits, and one that waits for it: what both hold counts.
    let line =
        format!("dd if=/dev/zero bs=200M count=1 2>/dev/null | {{ {}; cat >/dev/null; }}", until("go"));
    let child = farm.spawn(&["turn", "--memory", "auto", "--", "sh", "-c", &line]);
    let of = |name: &str| turns(&farm).first().and_then(|turn| turn[name].as_u64());
    wait_until("the turn runs", || of("memory").is_some());
    assert_eq!(of("memory"), Some(1 << 30), "half of what is free, because nothing is known");
    wait_until("it is measured", || of("held_memory") >= Some(200 << 20));
    assert!(of("held_memory") < Some(300 << 20), "{:?}", turns(&farm));
    wait_until("it is booked with a quarter more", || of("memory") < Some(400 << 20));
    assert!(of("memory") >= of("held_memory"));
    File::create(farm.work().join("go")).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    let booked = farm.ok(&["turn", "--memory", "auto", "--", "sh", "-c", "echo $WINDLASS_TURN_BOOKED"]);
    let booked: u64 = booked.trim().parse().unwrap();
    assert!((220 << 20..330 << 20).contains(&booked), "{booked}");
}

#[test]
fn six_links_of_which_nothing_is_known_have_room_and_none_is_killed() {
    const TEST: &str = "six_links_of_which_nothing_is_known_have_room_and_none_is_killed";
    if !is_root(TEST) {
        return;
    }
    let Some(group) = SmallGroup::new("links", "1G") else {
        return println!("SKIP {TEST}: no control group of memory can be made");
    };
    let farm = Farm::with_server(&["--cpus", "8", "--memory", "1GiB"]);
    // Two parts in five of the memory each, so that two have room and three have not.
    script(
        &farm.work().join("ld"),
        "echo try >> tries\ndd if=/dev/zero bs=400M count=1 2>/dev/null | { sleep 1; cat >/dev/null; }",
    );
    let link = |n: usize| {
        let line = format!("turn --strict --cpus 0 --memory auto -- ./ld -o t{n} a.o");
        let args: Vec<&str> = line.split(' ').collect();
        let mut command = group.joining(&farm.command(&args));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<Child> = (0..6).map(link).collect();
    for child in all {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", show(&output));
    }
    let tries = std::fs::read_to_string(farm.work().join("tries")).unwrap();
    assert_eq!(tries.lines().count(), 6, "each runs once");
}

#[test]
fn a_limit_is_shown_with_the_turns_that_hold_it() {
    let farm = Farm::with_server(&["--cpus", "2", "--name", "box"]);
    farm.ok(&["limit", "set", "link", "1"]);
    let child = farm.spawn(&["turn", "--limit", "link", "--", "sh", "-c", &until("go")]);
    wait_until("it is held", || farm.json(&["limit", "show", "link"])["turns"][0]["turn"].is_u64());
    let turn = turns(&farm).remove(0);
    let shown = farm.ok(&["limit", "show", "link"]);
    let holder = format!("turn {} of {} on box", turn["turn"], turn["user"].as_str().unwrap());
    assert!(shown.contains("1 task at a time, 1 in use") && shown.contains(&holder), "{shown}");
    File::create(farm.work().join("go")).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert!(farm.fails(3, &["limit", "show", "none"]).contains("there is no limit 'none'"));
}
