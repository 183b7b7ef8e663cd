//! Builds with real tools and a jobserver: make, cargo and gcc share the cpus of their worker, whatever is killed.

use crate::support::small_group::SmallGroup;
use crate::support::{Farm, Random, is_root, kill, processes_with, show, wait_until, windlass};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A step of a build. It notes when it begins and when it ends, in a file whose lines are in the order in which that
/// happened. The first steps wait until as many as `MEET` have begun: a build of which fewer may run at a time hangs.
const STEP: &str = r#"#!/bin/sh
case $* in *"${ONLY:-}"*) ;; *) exec "$@" ;; esac
echo + >>"$NOTES"
while [ "$(grep -c + "$NOTES")" -lt "${MEET:-0}" ]; do :; done
"$@"
code=$?
echo - >>"$NOTES"
exit $code
"#;

/// A build that takes longer has hung.
const HUNG: &str = "2m";
/// For how long processes of a build are killed.
const KILLS_FOR: Duration = Duration::from_secs(20);

/// Variables in the environment of the tests that would tell a build how many processes it may run, or where to build.
const FOREIGN: [&str; 7] = [
    "MAKEFLAGS",
    "MFLAGS",
    "CARGO_MAKEFLAGS",
    "CARGO_BUILD_JOBS",
    "CARGO_TARGET_DIR",
    "CARGO_INCREMENTAL",
    "RUSTC_WRAPPER",
];

/// True if all programs are there; otherwise prints what is skipped.
fn has(test: &str, programs: &[&str]) -> bool {
    for program in programs {
        let mut command = Command::new(program);
        let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            println!("SKIP {test}: {program} is not installed");
            return false;
        }
    }
    true
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A directory of a build with the step, a source and a makefile.
fn lay_out(dir: &Path, makefile: &str) {
    fs::create_dir_all(dir).unwrap();
    script(&dir.join("step"), STEP);
    fs::write(dir.join("c.c"), "int f(int x) { return x + 1; }\n").unwrap();
    fs::write(dir.join("Makefile"), makefile.replace("$(DIR)", dir.to_str().unwrap())).unwrap();
}

/// A makefile of `count` compiles.
fn compiles(count: usize) -> String {
    format!("all: {}\no%:\n\t@$(DIR)/step cc -c -o $(DIR)/$@ $(DIR)/c.c\n", objects("o", count))
}

/// Names of `count` targets.
fn objects(prefix: &str, count: usize) -> String {
    (0..count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(" ")
}

/// A command of this farm whose steps write to `notes`, and of which `meet` have to meet.
fn build(farm: &Farm, args: &[&str], notes: &Path, meet: usize) -> Command {
    let (verb, rest) = args.split_at(1);
    let mut command = farm.command(&[verb, &["--time-limit", HUNG], rest].concat());
    for name in FOREIGN {
        command.env_remove(name);
    }
    command.env("NOTES", notes).env("MEET", meet.to_string());
    command
}

/// How many steps began, and how many ran at a time at most.
fn steps(notes: &Path) -> (usize, i32) {
    let (mut began, mut now, mut most) = (0, 0, 0);
    for line in fs::read_to_string(notes).unwrap().lines() {
        if line == "+" {
            began += 1;
            now += 1;
        } else {
            now -= 1;
        }
        most = most.max(now);
    }
    (began, most)
}

fn runs(farm: &Farm, mut command: Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{}", show(&output), farm.server_log());
}

/// The number of a job that was submitted.
fn submitted(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Tokens that lie in the pipe of a job's only task.
fn idle(farm: &Farm, job: &str) -> u64 {
    let pipe = farm.state().join(format!("jobservers/{job}.0.1"));
    let file = OpenOptions::new().read(true).write(true).open(pipe).unwrap();
    rustix::io::ioctl_fionread(&file).unwrap()
}

#[test]
fn make_runs_as_many_processes_as_its_task_has_and_no_more() {
    if !has("make_runs_as_many_processes_as_its_task_has_and_no_more", &["make", "cc"]) {
        return;
    }
    let farm = Farm::with_server(&["--cpus", "3"]);
    // By itself, and in the form that each release of make understands.
    for flag in [None, Some("--jobserver=pipes")] {
        let dir = farm.work().join(flag.unwrap_or("auto"));
        lay_out(&dir, &compiles(24));
        let mut args = vec!["run"];
        args.extend(flag);
        args.extend(["--", "make", "-C", dir.to_str().unwrap()]);
        let notes = dir.join("notes");
        runs(&farm, build(&farm, &args, &notes, 3));
        assert_eq!(steps(&notes), (24, 3), "{args:?}");
    }
    // A range of cpus bounds it.
    let dir = farm.work().join("range");
    lay_out(&dir, &compiles(8));
    let (notes, path) = (dir.join("notes"), dir.to_str().unwrap());
    runs(&farm, build(&farm, &["run", "--jobserver", "--cpus", "1-2", "--", "make", "-C", path], &notes, 2));
    assert_eq!(steps(&notes), (8, 2));
    // make that was started by make has the same jobserver.
    let inner = farm.work().join("inner");
    lay_out(&inner, &format!("a: {}\nb: {}\n{}", objects("oa", 6), objects("ob", 6), compiles(0)));
    let outer = farm.work().join("outer");
    lay_out(&outer, &format!("all: a b\na b:\n\t+@$(MAKE) -C {} $@\n", inner.display()));
    let (notes, path) = (outer.join("notes"), outer.to_str().unwrap());
    runs(&farm, build(&farm, &["run", "--", "make", "-C", path], &notes, 3));
    assert_eq!(steps(&notes), (12, 3));
}

/// What a step says of its jobserver, and what it books.
fn booked(step: &serde_json::Value) -> (serde_json::Value, f64) {
    (step["jobserver"].clone(), step["resources"]["cpus"].as_f64().unwrap())
}

#[test]
fn a_queue_says_which_of_its_tasks_have_a_jobserver() {
    let farm = Farm::with_server(&["--cpus", "2"]);
    let submit = |words: &[&str]| {
        let words = [&["submit", "-o", "name", "--queue", "q"][..], words].concat();
        let job = submitted(build(&farm, &words, Path::new("none"), 0));
        booked(&farm.json(&["job", "show", &job])["steps"][0])
    };
    let (auto, none) = (serde_json::json!("auto"), serde_json::Value::Null);
    let (script, make) = (["--", "./build"], ["--", "make"]);
    assert_eq!((submit(&script), submit(&make)), ((none.clone(), 1.0), (auto.clone(), 0.1)));
    farm.ok(&["queue", "set", "q", "--jobserver", "on"]);
    assert!(farm.ok(&["queue", "show", "q"]).contains("on: tasks have one"));
    assert_eq!((submit(&script), submit(&make)), ((auto.clone(), 1.0), (auto.clone(), 0.1)));
    assert_eq!(submit(&["--no-jobserver", "--", "make"]), (none.clone(), 1.0));
    farm.ok(&["queue", "set", "q", "--jobserver", "off"]);
    assert_eq!((submit(&script), submit(&make)), ((none.clone(), 1.0), (none.clone(), 1.0)));
    assert_eq!(submit(&["--jobserver", "--", "make"]), (auto.clone(), 0.1));
    let dry = ["submit", "--dry-run", "-o", "json", "--queue", "q", "--", "make"];
    let tried: serde_json::Value =
        serde_json::from_str(&submitted(build(&farm, &dry, Path::new("none"), 0))).unwrap();
    assert_eq!(booked(&tried["steps"][0]["step"]), (none, 1.0));
    farm.ok(&["queue", "set", "q", "--jobserver", "auto"]);
    assert_eq!(submit(&make), (auto, 0.1));
}

#[test]
fn builds_together_run_no_more_than_the_cpus_and_one_each() {
    const BUILDS: usize = 4;
    if !has("builds_together_run_no_more_than_the_cpus_and_one_each", &["make", "cc"]) {
        return;
    }
    let farm = Farm::with_server(&["--cpus", "2"]);
    let notes = farm.work().join("notes");
    let mut all: Vec<Child> = Vec::new();
    for n in 0..BUILDS {
        let dir = farm.work().join(format!("b{n}"));
        lay_out(&dir, &compiles(12));
        let args = ["run", "--", "make", "-C", dir.to_str().unwrap()];
        // Each of them has a process of its own, however few the cpus are.
        let mut command = build(&farm, &args, &notes, BUILDS);
        all.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    }
    for child in all {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{}", show(&output), farm.server_log());
    }
    let (began, most) = steps(&notes);
    assert_eq!(began, BUILDS * 12);
    assert!(most <= 2 + BUILDS as i32, "{most} compilers ran at a time");
}

#[test]
fn tokens_of_killed_clients_come_back() {
    if !has("tokens_of_killed_clients_come_back", &["make", "cc"]) {
        return;
    }
    let farm = Farm::with_server(&["--cpus", "4"]);
    let dir = farm.work().join("build");
    lay_out(&dir, &compiles(16));
    // What is killed has this directory in its command line. The script that starts make again has not.
    let marker = format!("{}/", dir.display());
    let again = farm.work().join("again");
    let make = format!("make -s -k -C {marker}.");
    let text = format!(
        "#!/bin/sh\nwhile [ ! -e stop ]; do {make}; rm -f {marker}o*; done 2>/dev/null\n\
         touch stopped\nwhile [ ! -e go ]; do :; done\nrm -f {marker}o*\nNOTES=$PWD/last MEET=4 exec {make}\n"
    );
    script(&again, &text);
    let args = ["submit", "--jobserver", "-o", "name", "--", "./again"];
    let job = submitted(build(&farm, &args, &farm.work().join("notes"), 0));
    let mut random = Random(0x2c5b_93e1_7d04_a86f);
    let (began, mut kills) = (Instant::now(), 0);
    while began.elapsed() < KILLS_FOR || kills < 100 {
        let all = processes_with(&marker);
        if !all.is_empty() {
            kill(all[random.below(all.len() as u64) as usize], "KILL");
            kills += 1;
        }
    }
    println!("{kills} kills");
    fs::write(farm.work().join("stop"), "").unwrap();
    wait_until("the last make has ended", || farm.work().join("stopped").exists());
    wait_until("nothing of a build is left", || processes_with(&marker).is_empty());
    wait_until("all tokens are back", || idle(&farm, &job) == 3);
    wait_until("the server has heard of it", || {
        let task = farm.json(&["job", "tasks", &job])[0].clone();
        task["jobserver"]["share"] == 4 && task["jobserver"]["used"] == 1
    });
    fs::write(farm.work().join("go"), "").unwrap();
    farm.ok(&["job", "wait", &job]);
    assert_eq!(steps(&farm.work().join("last")), (16, 4));
    assert!(!farm.state().join(format!("jobservers/{job}.0.1")).exists(), "the pipe went with its task");
}

/// A server of another program, so that the keeper is upgraded.
fn newer_server(farm: &Farm, program: &Path) -> Child {
    let mut command = Command::new(program);
    let of_farm = farm.command(&[]);
    command.envs(of_farm.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
        .args(["server", "start", "--cpus", "3", "--listen"])
        .arg(format!("unix:{}", farm.socket().display()));
    let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the newer server answers", || farm.run(&["server", "status"]).status.success());
    server
}

#[test]
fn a_build_keeps_its_tokens_while_server_and_keeper_are_replaced() {
    if !has("a_build_keeps_its_tokens_while_server_and_keeper_are_replaced", &["make", "cc"]) {
        return;
    }
    let mut farm = Farm::with_server(&["--cpus", "3"]);
    let dir = farm.work().join("build");
    let (early, late) = (objects("e", 8), objects("l", 8));
    let makefile = format!(
        "all: {late}\n{late}: gate\n\t@NOTES=$(DIR)/late $(DIR)/step cc -c -o $@ c.c\n\
         gate: {early}\n\t@touch at-gate; while [ ! -e go ]; do :; done\n\
         {early}:\n\t@NOTES=$(DIR)/early $(DIR)/step cc -c -o $@ c.c\n.PHONY: gate\n"
    );
    lay_out(&dir, &makefile);
    let args = ["submit", "-o", "name", "--", "make", "-C", dir.to_str().unwrap()];
    let job = submitted(build(&farm, &args, Path::new("none"), 3));
    wait_until("the build is at its gate", || dir.join("at-gate").exists());
    wait_until("its tokens are idle", || idle(&farm, &job) == 2);
    farm.kill_server();
    assert_eq!(idle(&farm, &job), 2, "the keeper needs no server");
    farm.start();
    let share = |farm: &Farm| farm.json(&["job", "tasks", &job])[0]["jobserver"]["share"].clone();
    wait_until("the server knows of it again", || share(&farm) == 3);
    farm.kill_server();
    let newer: PathBuf = farm.path().join("windlass-newer");
    fs::copy(windlass(), &newer).unwrap();
    let keeper = farm.keeper_pid();
    let mut server = newer_server(&farm, &newer);
    let program = PathBuf::from(format!("/proc/{keeper}/exe"));
    wait_until("the keeper is upgraded", || fs::read_link(&program).is_ok_and(|path| path == newer));
    wait_until("it has said what it keeps", || share(&farm) == 3);
    assert_eq!(idle(&farm, &job), 2);
    fs::write(dir.join("go"), "").unwrap();
    farm.ok(&["job", "wait", &job]);
    assert_eq!(steps(&dir.join("early")), (8, 3));
    assert_eq!(steps(&dir.join("late")), (8, 3));
    farm.ok(&["server", "stop"]);
    server.wait().unwrap();
}

#[test]
fn cargo_runs_as_many_compilers_as_its_task_has() {
    if !has("cargo_runs_as_many_compilers_as_its_task_has", &["cargo", "rustc"]) {
        return;
    }
    let farm = Farm::with_server(&["--cpus", "3"]);
    let dir = farm.work().join("workspace");
    for name in ["a", "b", "c", "d", "e", "f"] {
        fs::create_dir_all(dir.join(name).join("src")).unwrap();
        let manifest =
            format!("[package]\nname = \"part-{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        fs::write(dir.join(name).join("Cargo.toml"), manifest).unwrap();
        fs::write(dir.join(name).join("src/lib.rs"), "pub fn f() {}\n").unwrap();
    }
    fs::write(dir.join("Cargo.toml"), "[workspace]\nmembers = [\"?\"]\nresolver = \"2\"\n").unwrap();
    script(&dir.join("step"), STEP);
    // Of a machine with fewer cores cargo would start fewer by itself, and of one with more, more.
    for (range, most) in [("0.1-3", 3_i32), ("0.1-1", 1)] {
        let notes = dir.join(format!("notes-{most}"));
        let args = ["run", "--jobserver", "--cpus", range, "--", "cargo", "build", "--offline"];
        let mut command = build(&farm, &args, &notes, most as usize);
        // cargo also asks the compiler about itself.
        command.env("RUSTC_WRAPPER", dir.join("step")).env("ONLY", "--crate-name part_").current_dir(&dir);
        runs(&farm, command);
        assert_eq!(steps(&notes), (6, most), "{range}");
        fs::remove_dir_all(dir.join("target")).unwrap();
    }
}

#[test]
fn the_linker_of_gcc_finds_the_jobserver() {
    const TEST: &str = "the_linker_of_gcc_finds_the_jobserver";
    if !has(TEST, &["gcc", "make"]) {
        return;
    }
    let farm = Farm::with_server(&["--cpus", "2"]);
    let dir = farm.work();
    fs::write(dir.join("a.c"), "int f(int);\nint main(void) { return f(1) - 2; }\n").unwrap();
    fs::write(dir.join("b.c"), "int f(int x) { return x + 1; }\n").unwrap();
    let compile =
        Command::new("gcc").args(["-flto", "-O2", "-c", "a.c", "b.c"]).current_dir(&dir).output().unwrap();
    if !compile.status.success() {
        return println!("SKIP {TEST}: this gcc does not optimize when it links");
    }
    // It warns of a jobserver that it cannot use.
    let link = "gcc -flto=jobserver -O2 a.o b.o -o out && ./out";
    fs::write(dir.join("Makefile"), format!("out:\n\t+{link}\n.PHONY: out\n")).unwrap();
    for args in [&["run", "--", "make"][..], &["run", "--jobserver", "--", "sh", "-c", link]] {
        let output = build(&farm, args, Path::new("none"), 0).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}\n{}", show(&output), farm.server_log());
        assert!(!show(&output).contains("warning"), "{args:?}: {}", show(&output));
    }
}

/// A linker of 200 MiB. It waits until three have begun, and then until three hold their memory or were killed.
const LINK: &str = "\
import os
notes = os.environ['NOTES']
def note(what):
    with open(notes, 'a') as file:
        file.write(what + '\\n')
def count(of):
    return sum(line.strip() in of for line in open(notes))
note('+')
while count('+') < 3: pass
memory = bytearray(200 << 20)
note('=')
while count('=x') < 3: pass
";

/// Of three links of 200 MiB in 600 MiB the kernel kills one at least.
#[test]
fn a_build_whose_linker_was_killed_for_memory_runs_again() {
    const TEST: &str = "a_build_whose_linker_was_killed_for_memory_runs_again";
    if !is_root(TEST) || !has(TEST, &["make", "python3"]) {
        return;
    }
    let Some(group) = SmallGroup::new("builds", "600M") else {
        return println!("SKIP {TEST}: no control group of memory can be made");
    };
    let farm = Farm::new();
    let mut command = group.joining(&farm.command(&["server", "start", "--cpus", "2", "--listen"]));
    command.arg(format!("unix:{}", farm.socket().display())).stdin(Stdio::null());
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the server answers", || farm.run(&["server", "status"]).status.success());
    let notes = farm.work().join("notes");
    fs::write(farm.work().join("link.py"), LINK).unwrap();
    let makefile = "all:\n\t@python3 link.py || { echo x >>$(NOTES); exit 1; }\n\
                    ignored:\n\t-@python3 -c 'bytearray(900 << 20)'\nfails:\n\t@exit 1\n";
    fs::write(farm.work().join("Makefile"), makefile).unwrap();
    let run = |target: &str| {
        let mut command = build(&farm, &["run", "--", "make", target], &notes, 0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all = [run("all"), run("all"), run("all")].map(|child| child.wait_with_output().unwrap());
    let said: String = all.iter().map(show).collect();
    assert!(all.iter().all(|output| output.status.success()), "{said}");
    let again =
        said.lines().find(|line| line.contains("a process of it was killed because memory was short"));
    let again = again.unwrap_or_else(|| panic!("one was killed: {said}"));
    assert!(again.contains("it held ") && again.contains("; it runs again with "), "{again}");
    // What a build makes nothing of, and what fails by itself, is as before.
    let ignored = run("ignored").wait_with_output().unwrap();
    assert!(ignored.status.success() && show(&ignored).contains("Killed"), "{}", show(&ignored));
    let task = &farm.json(&["job", "tasks", "last"])[0];
    assert_eq!((&task["attempt"], &task["end"]), (&1.into(), &"exited".into()), "{task}");
    assert_eq!(run("fails").wait_with_output().unwrap().status.code(), Some(2));
    farm.ok(&["server", "stop"]);
    server.wait().unwrap();
}

/// A process that holds a token and waits for a cpu would wait for ever.
#[test]
fn turns_inside_builds_on_one_cpu_do_not_wait_for_each_other() {
    if !has("turns_inside_builds_on_one_cpu_do_not_wait_for_each_other", &["make", "cc"]) {
        return;
    }
    let farm = Farm::with_server(&["--cpus", "1"]);
    let notes = farm.work().join("notes");
    let mut all: Vec<Child> = Vec::new();
    for n in 0..2 {
        let dir = farm.work().join(format!("b{n}"));
        let compile = format!("$(DIR)/step {} turn --memory auto --strict -- cc", windlass());
        lay_out(&dir, &compiles(6).replace("$(DIR)/step cc", &compile));
        let args = ["run", "--", "make", "-C", dir.to_str().unwrap()];
        let mut command = build(&farm, &args, &notes, 2);
        all.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    }
    for child in all {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{}", show(&output), farm.server_log());
    }
    let (began, most) = steps(&notes);
    assert_eq!(began, 12);
    assert!(most <= 3, "{most} compilers ran at a time");
    assert_eq!(farm.json(&["turns"]).as_array().unwrap().len(), 0);
}
