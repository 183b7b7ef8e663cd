//! A farm of two workers in network namespaces of their own, through every kind of loss.

use crate::support::{PATIENCE, Random, is_root, kill, names, processes_with, show, windlass};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Each task holds a lock file while it runs, and so does the process that it leaves behind in its own session. Some
/// tasks run for longer than a disconnected worker may go on.
const LOCKED: &str = "exec 9>>locks/{}; \
                      flock -n 9 || { echo $(date +%T.%N) attempt $WINDLASS_ATTEMPT of {} beside \
                      $(cat locks/{}) >> double; exit 1; }; \
                      echo $(date +%T.%N) attempt $WINDLASS_ATTEMPT >> locks/{}; echo x >> ran/{}; \
                      [ $(({} % 20)) != 0 ] || setsid sleep 1000.5{} & \
                      [ $(({} % 40)) != 7 ] || sleep 4; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done";

#[derive(Clone, Copy, Debug)]
enum Loss {
    Server,
    Agent(usize),
    Keeper(usize),
    Both(usize),
    Link(usize, Duration),
}

/// How long the workers of that test may be silent.
const LEASE: Duration = Duration::from_secs(3);

#[test]
fn no_task_runs_twice_whatever_is_lost() {
    const TASKS: usize = 2000;
    let Some(mut farm) = Farm::start("3", 2) else { return };
    for dir in ["locks", "ran"] {
        fs::create_dir(farm.path(dir)).unwrap();
    }
    let job = farm.submit(&["--cpus", "0.5", "--array", &format!("1-{TASKS}"), "--", "sh", "-c", LOCKED]);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for loss in losses(&mut random) {
        let begun = names(&farm.path("ran")).len();
        let more = begun + random.below(60) as usize;
        farm.pause("more tasks began", Duration::from_secs(2), |farm| {
            names(&farm.path("ran")).len() >= more.min(TASKS)
        });
        farm.suffer(loss);
        if let Loss::Link(_, span) = loss
            && span > LEASE
        {
            // Further losses postpone the moment at which the tasks run elsewhere.
            farm.pause("the link is up", span, |farm| farm.down.is_empty());
        }
    }
    assert!(names(&farm.path("ran")).len() < TASKS, "the work ended before the losses did");
    farm.mend();
    let waited = farm.run(&["job", "wait", &job]);
    let double = fs::read_to_string(farm.path("double")).unwrap_or_default();
    assert!(double.is_empty(), "two attempts of a task ran at once:\n{double}\n{}", farm.logs());
    assert!(waited.status.success(), "{}\n{}\n{}", show(&waited), farm.failures(&job), farm.logs());
    let shown = farm.json(&["job", "show", &job]);
    let shown = if shown.is_array() { shown[0].clone() } else { shown };
    assert_eq!(shown["counts"]["succeeded"], TASKS, "{shown}");
    assert_eq!(names(&farm.path("ran")).len(), TASKS);
    let fenced = |worker: &Worker| {
        let log = fs::read_to_string(farm.path(&worker.state).join("keeper.log")).unwrap_or_default();
        log.matches("the lease ran out").count()
    };
    assert!(farm.workers.iter().map(fenced).sum::<usize>() > 0, "no keeper was cut off for long enough");
    let left = processes_with("sleep 1000.5");
    assert!(left.is_empty(), "something outlived its task: {left:?}");
}

/// Nothing of the worker can end its tasks then but the kernel.
#[test]
fn tasks_end_with_their_lease_although_all_that_watch_them_are_stopped() {
    let Some(mut farm) = Farm::start("3", 2) else { return };
    let command = "echo $$ >> ran; [ $(wc -l < ran) = 2 ] || exec sleep 1000.625";
    let job = farm.submit(&["--", "sh", "-c", command]);
    farm.wait("it runs", |_| !processes_with("sleep 1000.625").is_empty());
    let task = farm.json(&["job", "tasks", &job])[0].clone();
    let place = farm.workers.iter().position(|worker| task["worker"] == worker.name.as_str()).unwrap();
    // The agent, the keeper, its launcher and its fuse name the worker's directory.
    let watchers = processes_with(&farm.path(&farm.workers[place].state).display().to_string());
    assert!(watchers.len() >= 4, "{watchers:?}");
    watchers.into_iter().for_each(|pid| kill(pid, "STOP"));
    farm.wait("the task is gone", |_| processes_with("sleep 1000.625").is_empty());
    let waited = farm.run(&["job", "wait", &job]);
    assert!(waited.status.success(), "it ran elsewhere: {}\n{}", show(&waited), farm.logs());
    farm.workers[place].kill_agent();
}

#[test]
fn nodes_start_together_and_know_each_other() {
    let Some(mut farm) = Farm::start("30", 2) else { return };
    // Each waits for the other: one alone would never end.
    let command = "touch up$WINDLASS_NODE; while [ ! -e up0 ] || [ ! -e up1 ]; do :; done; \
                   echo $WINDLASS_NODE of $WINDLASS_NODES: $(cat $WINDLASS_NODE_FILE)";
    let job = farm.submit(&["--nodes", "2", "--", "sh", "-c", command]);
    let waited = farm.run(&["job", "wait", &job]);
    assert!(waited.status.success(), "{}\n{}", show(&waited), farm.logs());
    let (first, second) = (farm.ok(&["logs", &format!("{job}.0")]), farm.ok(&["logs", &format!("{job}.1")]));
    let workers = first.trim().strip_prefix("0 of 2: ").expect("its place and the workers");
    assert_eq!(second, format!("1 of 2: {workers}\n"));
    let all: std::collections::BTreeSet<&str> = workers.split(' ').collect();
    assert_eq!(all.len(), 2, "{workers}");
    let left = |worker: &Worker| names(&farm.path(&worker.state).join("nodes"));
    assert!(farm.workers.iter().all(|worker| left(worker).is_empty()));
    // The server dies with both running: they go on, and end when one of them is killed for good.
    let job = farm.submit(&["--nodes", "2", "--", "sh", "-c", "touch on$WINDLASS_NODE; exec sleep 1000.875"]);
    farm.wait("both run", |farm| farm.path("on0").exists() && farm.path("on1").exists());
    farm.server.kill().unwrap();
    farm.server.wait().unwrap();
    farm.start_server();
    farm.ok(&["job", "cancel", &job]);
    farm.run(&["job", "wait", &job]);
    assert!(processes_with("sleep 1000.875").is_empty());
}

#[test]
fn what_a_task_comes_to_arrives_although_agent_and_server_were_gone() {
    let Some(mut farm) = Farm::start("30", 1) else { return };
    let command = "touch up; while [ ! -e go ]; do :; done; echo kept; exit 9";
    let job = farm.submit(&["--", "sh", "-c", command]);
    farm.wait("it runs", |farm| farm.path("up").exists());
    farm.workers[0].kill_agent();
    farm.server.kill().unwrap();
    farm.server.wait().unwrap();
    fs::write(farm.path("go"), "").unwrap();
    let output = farm.path("w0/logs").join(&job).join("0.1.out");
    farm.wait("its output is there", |_| fs::read_to_string(&output).is_ok_and(|text| text == "kept\n"));
    farm.start_server();
    farm.workers[0].start();
    let waited = farm.run(&["job", "wait", &job]);
    assert_eq!(waited.status.code(), Some(9), "{}", show(&waited));
    let task = farm.json(&["job", "tasks", &job])[0].clone();
    assert_eq!(task["attempt"], 1, "{task}");
    assert_eq!(farm.ok(&["logs", &format!("{job}.0")]), "kept\n");
}

#[test]
fn a_worker_cut_off_ends_its_tasks_before_they_run_elsewhere() {
    let Some(mut farm) = Farm::start("3", 2) else { return };
    let command = "echo $$ >> begun; [ -e second ] || exec sleep 1000.625";
    let job = farm.submit(&["--worker", "w0", "--worker", "w1", "--", "sh", "-c", command]);
    let begun = |farm: &Farm| fs::read_to_string(farm.path("begun")).unwrap_or_default().lines().count();
    farm.wait("it runs", |farm| begun(farm) == 1);
    fs::write(farm.path("second"), "").unwrap();
    let task = farm.json(&["job", "tasks", &job])[0].clone();
    let cut = if task["worker"] == "w0" { 0 } else { 1 };
    farm.link(cut, false);
    let waited = farm.run(&["job", "wait", &job]);
    assert!(waited.status.success(), "{}\n{}", show(&waited), farm.logs());
    assert!(processes_with("sleep 1000.625").is_empty(), "it ran in two places");
    let shown = farm.json(&["worker", "show", &format!("w{cut}")]);
    assert_eq!(shown["state"], "expired", "{shown}");
    let log = fs::read_to_string(farm.path(&format!("w{cut}/keeper.log"))).unwrap();
    assert!(log.contains("the lease ran out"), "{log}");
    farm.link(cut, true);
    farm.wait("the worker is back", |farm| {
        farm.json(&["worker", "show", &format!("w{cut}")])["state"] == "up"
    });
}

/// The keeper that a killed agent was starting goes on. Beside a second one its tasks would run twice.
#[test]
fn an_agent_killed_while_it_starts_a_keeper_leaves_one_keeper() {
    let Some(mut farm) = Farm::start("30", 1) else { return };
    let mut random = Random(0x51ed_270b_73a9_c4d5);
    let text = format!("keeper --state {}", farm.path("w0").display());
    // A keeper's launcher has the same command line.
    let keepers = || {
        let lines = processes_with(&text).into_iter();
        let lines = lines.filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
        lines.filter(|line| !line.is_empty()).collect::<std::collections::BTreeSet<_>>().len()
    };
    for _ in 0..20 {
        kill(farm.workers[0].keeper(), "KILL");
        rest(Duration::from_millis(random.below(60)));
        farm.workers[0].kill_agent();
        farm.workers[0].start();
        farm.wait("the worker is up", |farm| farm.json(&["worker", "show", "w0"])["state"] == "up");
        farm.wait("launches have ended", |_| keepers() == 1);
    }
}

#[test]
fn a_worker_that_claims_another_name_is_refused() {
    let Some(farm) = Farm::start("30", 1) else { return };
    let mut other = farm.worker(0, "w0-copy");
    other.start();
    farm.wait("the other is refused", |_| other.log().contains("'w0'"));
    let workers = farm.json(&["worker", "list"]);
    assert_eq!(workers.as_array().unwrap().len(), 1, "{workers}");
    assert_eq!(workers[0]["state"], "up");
    // A token for another name does not help either.
    let mut stranger = farm.worker(0, "w9");
    stranger.name = "w9".to_owned();
    stranger.start();
    farm.wait("the stranger is refused", |_| stranger.log().contains("speaks for worker 'w0'"));
}

#[test]
fn an_upgraded_agent_upgrades_its_keeper_under_running_tasks() {
    let Some(mut farm) = Farm::start("30", 1) else { return };
    let command = "echo before; touch up; while [ ! -e go ]; do :; done; echo after; exit 7";
    let job = farm.submit(&["--", "sh", "-c", command]);
    farm.wait("it runs", |farm| farm.path("up").exists());
    let keeper = farm.workers[0].keeper();
    // The same program under another path is another program to the keeper.
    let newer = farm.path("windlass-newer");
    fs::copy(windlass(), &newer).unwrap();
    farm.workers[0].kill_agent();
    farm.workers[0].program = newer.clone();
    farm.workers[0].start();
    let exe = PathBuf::from(format!("/proc/{keeper}/exe"));
    farm.wait("the keeper is the newer program", |_| fs::read_link(&exe).is_ok_and(|path| path == newer));
    let second = farm.submit(&["--", "sh", "-c", "echo new"]);
    fs::write(farm.path("go"), "").unwrap();
    assert_eq!(farm.run(&["job", "wait", &job]).status.code(), Some(7), "{}", farm.logs());
    assert_eq!(farm.ok(&["logs", &format!("{job}.0")]), "before\nafter\n");
    assert!(farm.run(&["job", "wait", &second]).status.success());
    assert_eq!(farm.workers[0].keeper(), keeper, "it is the same process");
    let mut another = inside(&farm.workers[0].space, Path::new(windlass()), farm.dir.path());
    another.args(["keeper", "--incarnation", "1", "--log-bytes-max", "1000000", "--state"]);
    let another = another.arg(farm.path("w0")).stdout(Stdio::piped()).output().unwrap();
    assert!(show(&another).contains("taken"), "it still holds its directory: {}", show(&another));
}

#[test]
fn an_operator_sees_what_became_of_a_worker_and_forgets_it() {
    let Some(mut farm) = Farm::start("30", 1) else { return };
    let job = farm.submit(&["--", "sh", "-c", "touch up; exec sleep 1000.9375"]);
    farm.wait("it runs", |farm| farm.path("up").exists());
    let shown = farm.json(&["worker", "show", "w0"]);
    assert_eq!(shown["tasks"], serde_json::json!([format!("{job}.0")]), "{shown}");
    assert_eq!(shown["version"], env!("CARGO_PKG_VERSION"), "{shown}");
    let lease_ms = shown["lease_until_ms"].as_u64().unwrap().checked_sub(shown["heard_ms"].as_u64().unwrap());
    assert!(lease_ms.is_some_and(|ms| ms <= 30_000), "{shown}");
    let refused = farm.run(&["worker", "forget", "w0"]);
    assert!(!refused.status.success() && show(&refused).contains("w0"), "{}", show(&refused));
    farm.workers[0].kill_agent();
    farm.wait("it is missed", |farm| farm.json(&["worker", "show", "w0"])["state"] == "suspect");
    let text = farm.ok(&["worker", "show", "w0"]);
    assert!(
        text.contains("its tasks run elsewhere when its lease has run out") && text.contains(" left"),
        "{text}"
    );
    kill(farm.workers[0].keeper(), "KILL");
    farm.ok(&["worker", "forget", "w0"]);
    assert_eq!(farm.ok(&["workers", "-o", "name"]), "");
    assert_eq!(farm.json(&["worker", "list", "--all"])[0]["state"], "forgotten");
    let task = farm.json(&["job", "tasks", &job])[0].clone();
    assert_eq!(task["state"], "ready", "{task}");
}

#[test]
fn tasks_run_as_the_user_that_their_submitter_is_mapped_to() {
    let Some(mut farm) = Farm::start("30", 1) else { return };
    farm.workers[0].kill_agent();
    kill(farm.workers[0].keeper(), "KILL");
    farm.workers[0].more = vec!["--map-user".to_owned(), "root=nobody".to_owned()];
    farm.workers[0].start();
    let seen = |args: &[&str]| {
        let job = farm.submit(args);
        let waited = farm.run(&["job", "wait", &job]);
        (waited.status.code(), farm.run(&["logs", &format!("{job}.0")]).stdout)
    };
    let shown = "id -un; id -gn; echo $HOME; cat /etc/shadow 2>/dev/null || echo denied";
    let (code, output) = seen(&["--cwd", "/", "--env", "none", "--", "sh", "-c", shown]);
    let text = String::from_utf8(output).unwrap();
    assert_eq!(code, Some(0), "{text}\n{}", farm.logs());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[3]), ("nobody", "denied"), "{text}");
    assert_ne!(lines[1], "root", "{text}");
    // A template's session is its user's, too.
    let template = farm.path("session.yaml");
    fs::write(&template, SESSION).unwrap();
    let (code, output) = seen(&["-f", template.to_str().unwrap()]);
    let text = String::from_utf8(output).unwrap();
    assert_eq!(code, Some(0), "{text}\n{}", farm.logs());
    assert!(text.contains("made by nobody"), "{text}");
    // A submitter who is not mapped gets an error.
    let mut command = farm.as_user("eve");
    let output = command.args(["run", "--cwd", "/", "--", "true"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", show(&output));
    assert!(show(&output).contains("submitter 'eve' is mapped to no user"), "{}", show(&output));
}

/// From the fork on a process belongs to its user, who may stop it before it executes its program.
#[test]
fn c2_a_user_who_stops_what_is_on_its_way_holds_up_nobody() {
    let Some(mut farm) = Farm::start("6", 1) else { return };
    farm.workers[0].kill_agent();
    kill(farm.workers[0].keeper(), "KILL");
    farm.workers[0].more =
        ["--map-user", "root=daemon", "--map-user", "eve=games"].map(str::to_owned).to_vec();
    farm.workers[0].start();
    farm.wait("the worker is up", |farm| farm.json(&["worker", "show", "w0"])["state"] == "up");
    let ours = farm.submit(&["--cwd", "/", "--env", "none", "--cpus", "0.5", "--", "sleep", "20.625"]);
    let as_eve = |args: &[&str], path: &str| {
        let mut command = farm.as_user("eve");
        command.args(["submit", "-o", "name", "--cwd", "/", "--env", "PATH", "--cpus", "0.25", "--"]);
        command.args(args).env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", show(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    as_eve(&["sh", "-c", "echo; while :; do kill -STOP -1; done"], "/usr/bin:/bin");
    farm.wait("eve stops all that is hers", |_| !processes_with("kill -STOP -1").is_empty());
    let long: Vec<String> = (0..300).map(|n| format!("/no/such/directory/{n}")).collect();
    let stopped = as_eve(&["no-such-program"], &format!("{}:/usr/sbin:/usr/bin:/bin", long.join(":")));
    // Two leases pass: the keeper still answers, so the other submitter's task is not lost.
    let deadline = Instant::now() + Duration::from_secs(12);
    while Instant::now() < deadline {
        let clock = Instant::now();
        let job = farm.submit(&["--cwd", "/", "--env", "none", "--cpus", "0.5", "--", "true"]);
        assert!(farm.run(&["job", "wait", &job]).status.success(), "{}", farm.logs());
        assert!(clock.elapsed() < Duration::from_secs(3), "{:?}\n{}", clock.elapsed(), farm.logs());
    }
    assert_eq!(farm.run(&["job", "wait", &stopped]).status.code(), Some(127), "{}", farm.logs());
    assert!(farm.run(&["job", "wait", &ours]).status.success(), "{}", farm.logs());
    let shown = farm.json(&["job", "tasks", &ours]);
    assert_eq!(shown[0]["attempt"], 1, "it ran once: {shown}");
}

/// If the keeper hangs, its agent kills it when the lease runs out, before its tasks run elsewhere.
#[test]
fn c2_a_keeper_that_stands_still_ends_with_its_lease() {
    let Some(farm) = Farm::start("6", 2) else { return };
    fs::create_dir(farm.path("locks")).unwrap();
    let once = "exec 9>locks/one; flock -n 9 || { echo x > double; exit 1; }; exec sleep 9.875";
    let job = farm.submit(&["--", "sh", "-c", once]);
    farm.wait("it runs", |_| !processes_with("sleep 9.875").is_empty());
    let on = farm.json(&["job", "tasks", &job])[0]["worker"].as_str().unwrap().to_owned();
    let first = farm.workers.iter().find(|worker| worker.name == on).unwrap();
    kill(first.keeper(), "STOP");
    let waited = farm.run(&["job", "wait", &job]);
    assert!(waited.status.success(), "{}\n{}", show(&waited), farm.logs());
    assert!(!farm.path("double").exists(), "two attempts ran at once\n{}", farm.logs());
    assert_eq!(farm.json(&["job", "tasks", &job])[0]["attempt"], 2, "{}", farm.logs());
    assert!(first.log().contains("does not answer: it is killed"), "{}", first.log());
}

#[test]
fn a_revoked_token_ends_the_stream_that_it_opened() {
    let Some(mut farm) = Farm::start("30", 1) else { return };
    let tokens = farm.json(&["token", "list"]);
    let token = tokens.as_array().unwrap().iter().find(|token| token["worker"] == "w0").unwrap();
    farm.ok(&["token", "revoke", token["id"].as_str().unwrap()]);
    farm.wait("the worker is let go", |farm| farm.json(&["worker", "show", "w0"])["state"] == "suspect");
    farm.wait("the agent says why", |farm| farm.workers[0].log().contains("was revoked"));
    farm.workers[0].kill_agent();
}

const SESSION: &str = "
specificationVersion: jobtemplate-2023-09
name: session
steps:
- name: one
  script:
    embeddedFiles:
    - {name: Run, type: TEXT, runnable: true, data: \"#!/bin/sh\\necho made by $(id -un) > note; cat note\\n\"}
    actions:
      onRun: {command: sh, args: [-c, 'cd {{Session.WorkingDirectory}} && exec {{Task.File.Run}}']}
";

#[test]
fn each_task_sees_the_devices_that_it_holds() {
    let Some(farm) = Farm::start("30", 1) else { return };
    let command =
        "echo $CUDA_VISIBLE_DEVICES > device{}; while [ ! -s device1 ] || [ ! -s device2 ]; do :; done";
    let job = farm.submit(&["--gpus", "1", "--array", "1-2", "--", "sh", "-c", command]);
    let waited = farm.run(&["job", "wait", &job]);
    assert!(waited.status.success(), "{}\n{}", show(&waited), farm.logs());
    let device = |n: u32| fs::read_to_string(farm.path(&format!("device{n}"))).unwrap().trim().to_owned();
    let mut devices = [device(1), device(2)];
    devices.sort();
    assert_eq!(devices, ["0", "1"]);
    let job = farm.submit(&["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]);
    farm.run(&["job", "wait", &job]);
    assert_eq!(farm.ok(&["logs", &format!("{job}.0")]), "-1\n", "it asked for none");
}

#[test]
fn what_a_caller_s_environment_holds_stays_on_the_caller_s_machine() {
    let Some(farm) = Farm::start("30", 1) else { return };
    let token = farm.json(&["token", "create", "--role", "user", "--user", "ann"]);
    fs::write(farm.path("ann.token"), token["bearer"].as_str().unwrap()).unwrap();
    let run = |env: &[&str]| {
        let mut command = inside(&farm.spaces[1], Path::new(windlass()), farm.dir.path());
        command.args(["--server", "https://10.213.1.1:7117", "--ca"]).arg(farm.path("ca/ca.pem"));
        command.arg("--token-file").arg(farm.path("ann.token")).arg("run").args(env).args(["--", "env"]);
        command.env("SECRET", "hunter2").env("SHOWN", "yes").stdout(Stdio::piped());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}\n{}", show(&output), farm.logs());
        String::from_utf8(output.stdout).unwrap()
    };
    let named = run(&["--env", "SHOWN"]);
    assert!(named.contains("SHOWN=yes\n") && !named.contains("hunter2"), "{named}");
    assert!(run(&["--env", "all"]).contains("SECRET=hunter2\n"));
}

/// All kinds of losses, in random order.
fn losses(random: &mut Random) -> Vec<Loss> {
    let mut all = vec![Loss::Server; 10];
    for worker in 0..2 {
        all.extend([Loss::Agent(worker), Loss::Agent(worker), Loss::Agent(worker)]);
        all.extend([Loss::Keeper(worker), Loss::Keeper(worker), Loss::Both(worker), Loss::Both(worker)]);
        let spans = [200, 700, 1500, 2500, 4000, 4500].map(Duration::from_millis);
        all.extend(spans.map(|span| Loss::Link(worker, span)));
    }
    for place in (1..all.len()).rev() {
        all.swap(place, random.below(place as u64 + 1) as usize);
    }
    all
}

/// A server and workers, each in a network namespace, with TLS and tokens.
struct Farm {
    dir: tempfile::TempDir,
    spaces: Vec<String>,
    lease: String,
    server: Child,
    workers: Vec<Worker>,
    /// Links that are down, and until when.
    down: Vec<(usize, Instant)>,
}

impl Farm {
    /// `None` if this machine cannot create namespaces.
    fn start(lease: &str, workers: usize) -> Option<Farm> {
        let has = |program: &str| {
            let found = Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
            found.is_ok()
        };
        if !is_root("farm") || !has("ip") || !has("nsenter") {
            println!("SKIP farm: needs root, iproute2 and util-linux for network namespaces");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let number = dir.path().file_name().unwrap().to_string_lossy().replace(".tmp", "");
        let spaces: Vec<String> = (0..=workers).map(|n| format!("wl-{number}-{n}")).collect();
        lay_network(&spaces);
        let server = Command::new("true").spawn().unwrap();
        let mut farm =
            Farm { dir, spaces, lease: lease.to_owned(), server, workers: Vec::new(), down: Vec::new() };
        farm.certify(workers);
        farm.start_server();
        for number in 0..workers {
            let token =
                farm.json(&["token", "create", "--role", "worker", "--worker", &format!("w{number}")]);
            fs::write(farm.path(&format!("w{number}.token")), token["bearer"].as_str().unwrap()).unwrap();
            let mut worker = farm.worker(number, &format!("w{number}"));
            worker.start();
            farm.workers.push(worker);
        }
        farm.wait("the workers are up", |farm| {
            let up = farm.json(&["worker", "list"]);
            up.as_array().unwrap().iter().filter(|worker| worker["state"] == "up").count() == workers
        });
        Some(farm)
    }

    fn certify(&self, workers: usize) {
        let hosts: Vec<String> = (1..=workers).map(|n| format!("10.213.{n}.1")).collect();
        let ca = self.path("ca").display().to_string();
        self.ok(&["ca", "init", &ca]);
        self.ok(&["ca", "issue", &ca, "--server", &hosts.join(",")]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The worker of that namespace in that directory.
    fn worker(&self, number: usize, state: &str) -> Worker {
        Worker {
            name: format!("w{number}"),
            program: windlass().into(),
            space: self.spaces[number + 1].clone(),
            url: format!("https://10.213.{}.1:7117", number + 1),
            dir: self.dir.path().to_owned(),
            state: state.to_owned(),
            token: self.path(&format!("w{number}.token")),
            more: vec!["--gpus".to_owned(), "2".to_owned()],
            agent: None,
        }
    }

    fn start_server(&mut self) {
        let mut command = inside(&self.spaces[0], Path::new(windlass()), self.dir.path());
        command.args(["server", "start", "--no-worker", "--listen", "0.0.0.0:7117"]);
        command.arg("--tls-cert").arg(self.path("ca/10.213.1.1.pem"));
        command.arg("--tls-key").arg(self.path("ca/10.213.1.1.key"));
        command.arg("--state").arg(self.path("state")).args(["--lease", &self.lease]);
        self.server = command.stderr(log(&self.path("server.log"))).spawn().unwrap();
        self.wait("the server answers", |farm| farm.run(&["server", "status"]).status.success());
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(windlass());
        command.args(["--server", &format!("unix:{}", self.path("state/admin.sock").display())]).args(args);
        clean(&mut command, self.dir.path());
        command
    }

    fn run(&self, args: &[&str]) -> std::process::Output {
        self.command(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}\n{}", show(&output), self.logs());
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = args.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.ok(&all)).unwrap()
    }

    /// The binary in the first worker's namespace, with a token of that user.
    fn as_user(&self, user: &str) -> Command {
        let file = self.path(&format!("{user}.token"));
        if !file.exists() {
            let token = self.json(&["token", "create", "--role", "user", "--user", user]);
            fs::write(&file, token["bearer"].as_str().unwrap()).unwrap();
        }
        let mut command = inside(&self.spaces[1], Path::new(windlass()), self.dir.path());
        command.args(["--server", "https://10.213.1.1:7117", "--ca"]).arg(self.path("ca/ca.pem"));
        command.arg("--token-file").arg(file);
        command
    }

    /// Submits a job whose tasks work in the farm's directory; returns its id.
    fn submit(&self, args: &[&str]) -> String {
        let cwd = self.dir.path().display().to_string();
        let mut all = vec!["submit", "-o", "name"];
        if !args.contains(&"--cwd") && !args.contains(&"-f") {
            all.extend(["--cwd", &cwd]);
        }
        all.extend(args);
        self.ok(&all).trim().to_owned()
    }

    /// The failed tasks of a job with what they wrote, for messages of tests.
    fn failures(&self, job: &str) -> String {
        let failed = self.json(&["job", "tasks", job, "--state", "failed"]);
        let output =
            |task: &serde_json::Value| show(&self.run(&["logs", &format!("{job}.{}", task["index"])]));
        let lines = failed.as_array().into_iter().flatten().map(|task| format!("{task}\n{}\n", output(task)));
        lines.collect()
    }

    fn logs(&self) -> String {
        let tail = |path: PathBuf| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("{}:\n{}\n", path.display(), lines[lines.len().saturating_sub(40)..].join("\n"))
        };
        let workers = self.workers.iter().map(|worker| tail(self.path(&format!("{}.log", worker.state))));
        tail(self.path("server.log")) + &workers.collect::<String>()
    }

    /// Polls until the condition holds.
    fn wait(&self, what: &str, mut holds: impl FnMut(&Farm) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "waited too long until {what}\n{}", self.logs());
            rest(Duration::from_millis(10));
        }
    }

    /// The same, but gives up after a while, because the next loss may end the wait. Repairs links.
    fn pause(&mut self, _: &str, at_most: Duration, holds: impl Fn(&Farm) -> bool) {
        let deadline = Instant::now() + at_most;
        while !holds(self) && Instant::now() < deadline + Duration::from_millis(100) {
            let due: Vec<usize> = self
                .down
                .iter()
                .filter(|(_, until)| *until <= Instant::now())
                .map(|(link, _)| *link)
                .collect();
            for link in due {
                self.link(link, true);
            }
            rest(Duration::from_millis(5));
        }
    }

    fn suffer(&mut self, loss: Loss) {
        match loss {
            Loss::Server => {
                self.server.kill().unwrap();
                self.server.wait().unwrap();
                self.start_server();
            }
            Loss::Agent(worker) => {
                self.workers[worker].kill_agent();
                self.workers[worker].start();
            }
            Loss::Keeper(worker) => kill(self.workers[worker].keeper(), "KILL"),
            Loss::Both(worker) => {
                kill(self.workers[worker].keeper(), "KILL");
                self.workers[worker].kill_agent();
                self.workers[worker].start();
            }
            Loss::Link(worker, span) => {
                self.link(worker, false);
                self.down.push((worker, Instant::now() + span));
            }
        }
    }

    fn link(&mut self, worker: usize, up: bool) {
        self.down.retain(|(link, _)| *link != worker);
        let state = if up { "up" } else { "down" };
        ip(&["-n", &self.spaces[0], "link", "set", &format!("v{worker}"), state]);
    }

    fn mend(&mut self) {
        for worker in 0..self.workers.len() {
            self.link(worker, true);
        }
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.kill_agent();
            kill(worker.keeper(), "KILL");
        }
        _ = self.server.kill();
        _ = self.server.wait();
        for space in &self.spaces {
            _ = Command::new("ip").args(["netns", "delete", space]).status();
        }
    }
}

/// A worker: its agent's process, and how to start it.
struct Worker {
    name: String,
    program: PathBuf,
    space: String,
    url: String,
    dir: PathBuf,
    state: String,
    token: PathBuf,
    more: Vec<String>,
    agent: Option<Child>,
}

impl Worker {
    fn start(&mut self) {
        let mut command = inside(&self.space, &self.program, &self.dir);
        command.args(["--server", &self.url, "--ca"]).arg(self.dir.join("ca/ca.pem"));
        command.arg("--token-file").arg(&self.token);
        command.args(["worker", "start", "--cpus", "2", "--name", &self.name, "--state"]);
        command.arg(self.dir.join(&self.state)).args(&self.more);
        if !self.more.iter().any(|flag| flag.starts_with("--map-user")) {
            command.arg("--as-root");
        }
        let log = log(&self.dir.join(format!("{}.log", self.state)));
        self.agent = Some(command.stderr(log).spawn().unwrap());
    }

    fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            _ = agent.kill();
            _ = agent.wait();
        }
    }

    fn keeper(&self) -> i32 {
        let json = fs::read(self.dir.join(&self.state).join("keeper.json")).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&json).unwrap();
        i32::try_from(file["pid"].as_i64().unwrap()).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join(format!("{}.log", self.state))).unwrap_or_default()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill_agent();
        if self.dir.join(&self.state).join("keeper.json").exists() {
            kill(self.keeper(), "KILL");
        }
    }
}

/// One namespace for the server, and one for each worker, with a cable from each to the server's.
fn lay_network(spaces: &[String]) {
    for space in spaces {
        ip(&["netns", "add", space]);
        ip(&["-n", space, "link", "set", "lo", "up"]);
    }
    for (number, space) in spaces[1..].iter().enumerate() {
        let (cable, server) = (format!("v{number}"), &spaces[0]);
        let net = format!("10.213.{}", number + 1);
        ip(&["-n", server, "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", space]);
        ip(&["-n", server, "addr", "add", &format!("{net}.1/30"), "dev", &cable]);
        ip(&["-n", space, "addr", "add", &format!("{net}.2/30"), "dev", "eth0"]);
        ip(&["-n", server, "link", "set", &cable, "up"]);
        ip(&["-n", space, "link", "set", "eth0", "up"]);
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", show(&output));
}

/// The program in a network namespace and in no other: `ip netns exec` would hide control groups.
fn inside(space: &str, program: &Path, dir: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{space}")).arg(program);
    clean(&mut command, dir);
    command.stdout(Stdio::null());
    command
}

fn clean(command: &mut Command, dir: &Path) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command.env("WINDLASS_STATE", dir.join("unused")).env("WINDLASS_RUNTIME", dir.join("unused"));
}

fn log(path: &Path) -> fs::File {
    fs::OpenOptions::new().append(true).create(true).open(path).unwrap()
}

/// Leaves the cpu to the processes under test. No assertion depends on how long.
fn rest(span: Duration) {
    let (_keep, nobody) = mpsc::channel::<()>();
    _ = nobody.recv_timeout(span);
}
