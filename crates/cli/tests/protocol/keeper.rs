//! Recorded lines of an agent against today's keeper.

use super::golden::path;
use crate::support::{PATIENCE, kill, wait_until, windlass};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

/// A keeper without an agent.
struct Keeper {
    dir: tempfile::TempDir,
    stream: BufReader<UnixStream>,
    /// How tasks ended, by job, index and attempt.
    ends: BTreeMap<String, Value>,
}

impl Keeper {
    /// `number` differs for each test.
    fn start(number: u64) -> Keeper {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(windlass());
        // Its control groups are named after it.
        let incarnation = (u64::from(std::process::id()) << 4 | number).to_string();
        command.args(["keeper", "--incarnation", &incarnation, "--log-bytes-max", "1000000", "--state"]);
        let started = command.arg(dir.path()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&started.stdout), "ready\n");
        let stream = UnixStream::connect(dir.path().join("keeper.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Keeper { dir, stream: BufReader::new(stream), ends: BTreeMap::new() }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stream.get_mut(), "{message}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        self.ends.extend(end(&message));
        message
    }

    /// The next message of this kind.
    fn hear_of(&mut self, kind: &str) -> Value {
        loop {
            if let Some(message) = self.hear().get(kind) {
                return message.clone();
            }
        }
    }

    /// Another connection, as soon as the keeper has ended this one.
    fn connect_again(&mut self) {
        let mut rest = String::new();
        while self.stream.read_line(&mut rest).is_ok_and(|bytes| bytes > 0) {}
        let stream = UnixStream::connect(self.dir.path().join("keeper.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.stream = BufReader::new(stream);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let json = std::fs::read(self.dir.path().join("keeper.json")).unwrap();
        let file: Value = serde_json::from_slice(&json).unwrap();
        kill(i32::try_from(file["pid"].as_i64().unwrap()).unwrap(), "KILL");
        wait_until("the keeper is gone", || {
            UnixStream::connect(self.dir.path().join("keeper.sock")).is_err()
        });
    }
}

fn end(message: &Value) -> Option<(String, Value)> {
    let finished = message.get("finished")?;
    Some((finished["task"].to_string(), finished["result"]["end"].clone()))
}

fn lines(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path(file)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sends the recorded agent's messages. With `later`, every message has an unknown field, and unknown kinds of messages
/// are sent between them.
fn play(later: bool) {
    let mut keeper = Keeper::start(u64::from(later));
    for mut message in lines("agent.jsonl") {
        if message.get("lease").is_some() {
            // The recorded value is of another machine's clock.
            message["lease"]["until"] = Value::Null;
        }
        if let Some(ack) = message.get("ack") {
            while !keeper.ends.contains_key(&ack["task"].to_string()) {
                keeper.hear();
            }
        }
        if later {
            let fields = message.as_object_mut().unwrap().values_mut();
            fields.for_each(|fields| fields["later"] = json!({"a": [1, "b"]}));
            keeper.say(&json!({"levitate": {"task": {"job": 1, "index": 0, "attempt": 1}, "seq": 900}}));
            keeper.say(&json!("hum"));
        }
        keeper.say(&message);
    }
    let recorded: BTreeMap<String, Value> = lines("keeper.jsonl").iter().filter_map(end).collect();
    assert_eq!(keeper.ends, recorded);
    assert_eq!(inventory(&mut keeper), (json!([]), json!(28)));
}

/// The result of a command that an agent starts with these fields.
fn run(keeper: &mut Keeper, job: u64, command: &[&str], fields: &Value) -> Value {
    let task = json!({"job": job, "index": 0, "attempt": 1});
    let path = BTreeMap::from([("PATH", "/usr/bin:/bin")]);
    keeper.say(&json!({"body": {"job": job, "step": 0, "command": command, "env": path, "cwd": "/"}}));
    let mut start =
        json!({"task": task, "step": 0, "epoch": 1, "seq": job, "time_limit_ms": null, "value": null});
    start.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    keeper.say(&json!({"start": start}));
    loop {
        let message = keeper.hear();
        if message["finished"]["task"] == task {
            return message["finished"]["result"].clone();
        }
    }
}

/// An agent that is killed while it starts a keeper leaves one that the next agent does not know.
#[test]
fn a_directory_has_one_keeper_at_a_time() {
    let mut keeper = Keeper::start(5);
    let named = |keeper: &Keeper| std::fs::read_to_string(keeper.dir.path().join("keeper.json")).unwrap();
    let first = named(&keeper);
    let mut command = Command::new(windlass());
    command.args(["keeper", "--incarnation", "1", "--log-bytes-max", "1000000", "--state"]);
    let second = command.arg(keeper.dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stdout).into_owned();
    // The first one keeps its socket and is still the one that the next agent finds.
    assert_eq!(named(&keeper), first);
    assert_eq!(inventory(&mut keeper), (json!([]), json!(0)));
    assert!(said.contains("taken") && !second.status.success(), "{said}");
}

/// The inventory and the largest number of a message, as the keeper answers a beat.
fn inventory(keeper: &mut Keeper) -> (Value, Value) {
    keeper.say(&json!({"beat": {"sent": 42}}));
    loop {
        let message = keeper.hear();
        if message["beat"]["sent"] == 42 {
            return (message["beat"]["held"].clone(), message["beat"]["seq"].clone());
        }
    }
}

/// Such a start may have been under way while the lease ran out, so that its task runs elsewhere by now. The server
/// sends it again if it does not.
#[test]
fn a_start_that_comes_without_a_lease_is_ignored() {
    let mut keeper = Keeper::start(4);
    let lines = lines("agent.jsonl");
    let hello = lines.iter().find(|line| line.get("hello").is_some()).unwrap();
    keeper.say(hello);
    // Long over.
    keeper.say(&json!({"lease": {"until": 1}}));
    let task = json!({"job": 1, "index": 0, "attempt": 1});
    let path = BTreeMap::from([("PATH", "/usr/bin:/bin")]);
    let start = |seq: u64| {
        json!({"start": {"task": task, "step": 0, "epoch": 1, "seq": seq, "time_limit_ms": null, "value": null,
            "request": {"cpu": 100, "memory": 0, "gpus": 0, "gpu_memory": 0, "custom": {}}}})
    };
    keeper.say(&json!({"body": {"job": 1, "step": 0, "command": ["true"], "env": path, "cwd": "/"}}));
    keeper.say(&start(5));
    assert_eq!(inventory(&mut keeper), (json!([]), json!(5)));
    keeper.say(&json!({"lease": {"until": null}}));
    assert_eq!(inventory(&mut keeper), (json!([]), json!(5)), "nor does it start later");
    keeper.say(&start(6));
    while !keeper.ends.contains_key(&task.to_string()) {
        keeper.hear();
    }
    assert_eq!(keeper.ends[&task.to_string()], json!({"exited": 0}));
}

/// The server repeats a start where it does not know that the first one arrived.
#[test]
fn a_second_start_of_an_attempt_changes_nothing() {
    let mut keeper = Keeper::start(6);
    keeper.say(&json!({"hello": {"capacity": {"cpu": 100}}}));
    let go = keeper.dir.path().join("go");
    let wait = format!("until test -e {}; do sleep 0.05; done", go.display());
    let path = BTreeMap::from([("PATH", "/usr/bin:/bin")]);
    let tasks = [0, 1].map(|index| json!({"job": 1, "index": index, "attempt": 1}));
    let start = |seq: u64, riders: Value| {
        json!({"start": {"task": tasks[0], "step": 0, "epoch": 1, "seq": seq, "time_limit_ms": null, "value": null,
            "request": {"cpu": 100}, "riders": riders}})
    };
    let command = ["sh", "-c", &*wait];
    keeper.say(&json!({"body": {"job": 1, "step": 0, "command": command, "env": path, "cwd": "/"}}));
    keeper.say(&start(1, json!([{"index": 1, "attempt": 1}])));
    // The keeper was told to forget what the step runs, and the tasks that ride with it were left out.
    keeper.say(&json!({"drop_body": {"job": 1, "step": 0}}));
    keeper.say(&start(2, json!([])));
    let (held, seq) = inventory(&mut keeper);
    let held: Vec<Value> = held.as_array().unwrap().iter().map(|held| held["task"].clone()).collect();
    assert_eq!((held, seq), (tasks.to_vec(), json!(2)));
    assert!(keeper.ends.is_empty(), "{:?}", keeper.ends);
    std::fs::write(go, "").unwrap();
    while keeper.ends.len() < tasks.len() {
        keeper.hear();
    }
    assert!(tasks.iter().all(|task| keeper.ends[&task.to_string()] == json!({"exited": 0})));
}

#[test]
fn what_a_task_may_hold_is_its_limit_and_not_what_it_books() {
    const LIMIT: u64 = 48 << 20;
    let mut keeper = Keeper::start(2);
    keeper.say(&json!({"hello": {"capacity": {"cpu": 100, "memory": 1 << 30}}}));
    // `tail` holds the bytes that it must print in memory.
    let hold = ["sh", "-c", "head -c 100000000 /dev/zero | tail -c 100000000 | wc -c"];
    let booked = json!({"cpu": 100, "memory": LIMIT});
    let free = run(&mut keeper, 1, &hold, &json!({"request": booked, "memory_limit": 0}));
    assert_eq!(free["end"], json!({"exited": 0}), "{free}");
    assert!(free["peak_memory"].as_u64().unwrap() > LIMIT, "{free}");
    let grow = ["tail", "/dev/zero"];
    let nothing = json!({"cpu": 100});
    for (job, fields) in [
        (2, json!({"request": nothing, "memory_limit": LIMIT})),
        // An older server does not send it.
        (3, json!({"request": booked})),
    ] {
        let result = run(&mut keeper, job, &grow, &fields);
        assert_eq!(result["end"], "out_of_memory", "{result}");
        assert!(result["peak_memory"].as_u64().unwrap() >= LIMIT, "{result}");
    }
}

#[test]
fn what_a_task_reads_and_writes_is_counted_with_what_it_waited_for() {
    let mut keeper = Keeper::start(3);
    keeper.say(&json!({"hello": {"capacity": {"cpu": 100}}}));
    // The directory for temporary files may be in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("written");
    let write =
        format!("sh -c 'head -c 5000000 /dev/zero > {0}'; head -c 3000000 /dev/zero >> {0}", file.display());
    let request = json!({"request": {"cpu": 100}});
    let result = run(&mut keeper, 1, &["sh", "-c", &write], &request);
    let bytes = result["disk_bytes"].as_u64().unwrap();
    assert!((8_000_000..9_000_000).contains(&bytes), "{result}");
    let result = run(&mut keeper, 2, &["true"], &request);
    assert!(result["disk_bytes"].as_u64().unwrap() < 1_000_000, "{result}");
}

/// Starts an attempt with files, which runs this in a shell.
fn start_with_files(keeper: &mut Keeper, job: u64, script: &str) -> Value {
    let task = json!({"job": job, "index": 0, "attempt": 1});
    let path = BTreeMap::from([("PATH", "/usr/bin:/bin")]);
    let command = ["sh", "-c", script];
    keeper.say(&json!({"body": {"job": job, "step": 0, "command": command, "env": path, "cwd": "sub",
        "files": {"outputs": true}}}));
    keeper.say(&json!({"start": {"task": task, "step": 0, "epoch": 1, "seq": job, "time_limit_ms": null,
        "value": null, "request": {"cpu": 100}}}));
    task
}

/// Makes the directory of an attempt, as an agent does, and says so.
fn prepare(keeper: &mut Keeper, task: &Value) -> PathBuf {
    let dir = keeper.dir.path().join(format!("files/{}.0.1", task["job"]));
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    let stdin = keeper.dir.path().join("stdin");
    std::fs::write(&stdin, "words").unwrap();
    keeper.say(&json!({"prepared": {"task": task, "epoch": 1, "directory": dir, "stdin": stdin}}));
    dir
}

fn hello(keeper: &mut Keeper) {
    keeper.say(&json!({"hello": {"capacity": {"cpu": 200}, "hide": {"files": [], "kept": []}}}));
}

#[test]
fn a_task_with_files_waits_for_its_directory_and_its_result_for_its_outputs() {
    let mut keeper = Keeper::start(7);
    hello(&mut keeper);
    let script = "cat > copied; printf %s $WINDLASS_FILES > where";
    let task = start_with_files(&mut keeper, 1, script);
    assert_eq!(keeper.hear_of("prepare"), json!({"task": task, "epoch": 1, "step": 0}));
    let other = run(&mut keeper, 2, &["true"], &json!({"request": {"cpu": 100}}));
    assert_eq!(other["end"], json!({"exited": 0}), "another one goes on meanwhile");
    assert_eq!(inventory(&mut keeper).0[0], json!({"task": task, "phase": "queued"}));
    let dir = prepare(&mut keeper, &task);
    assert_eq!(keeper.hear_of("collect"), json!({"task": task, "epoch": 1, "directory": dir}));
    let read = |name: &str| std::fs::read_to_string(dir.join("sub").join(name)).unwrap();
    assert_eq!((read("copied"), read("where")), ("words".to_owned(), dir.to_string_lossy().into_owned()));
    let (held, _) = inventory(&mut keeper);
    assert!(held[0]["phase"]["running"].is_u64(), "{held}");
    assert!(!keeper.ends.contains_key(&task.to_string()), "{:?}", keeper.ends);
    keeper.say(&json!({"collected": {"task": task, "epoch": 1}}));
    assert_eq!(keeper.hear_of("discard"), json!({"directory": dir}));
    assert_eq!(keeper.ends[&task.to_string()], json!({"exited": 0}));
}

#[test]
fn a_task_that_is_killed_has_its_outputs_kept() {
    let mut keeper = Keeper::start(8);
    hello(&mut keeper);
    let task = start_with_files(&mut keeper, 1, "echo part > out; exec sleep 600");
    let dir = prepare(&mut keeper, &task);
    keeper.hear_of("started");
    wait_until("it has written something", || dir.join("sub/out").exists());
    keeper.say(&json!({"kill": {"task": task, "seq": 2}}));
    keeper.hear_of("collect");
    keeper.say(&json!({"collected": {"task": task, "epoch": 1, "why": "no room"}}));
    assert_eq!(keeper.hear_of("finished")["result"]["end"], "canceled");
}

/// The agent of a newer program asks for the upgrade, and comes back.
#[test]
fn a_newer_keeper_asks_again_for_what_was_not_answered() {
    let mut keeper = Keeper::start(9);
    hello(&mut keeper);
    let ended = start_with_files(&mut keeper, 1, "true");
    let dir = prepare(&mut keeper, &ended);
    keeper.hear_of("collect");
    let waiting = start_with_files(&mut keeper, 2, "true");
    keeper.hear_of("prepare");
    keeper.say(&json!({"upgrade": {"program": windlass()}}));
    keeper.connect_again();
    hello(&mut keeper);
    assert_eq!(keeper.hear_of("prepare")["task"], waiting);
    assert_eq!(keeper.hear_of("collect"), json!({"task": ended, "epoch": 1, "directory": dir}));
    prepare(&mut keeper, &waiting);
    assert_eq!(keeper.hear_of("collect")["task"], waiting);
    for task in [&ended, &waiting] {
        keeper.say(&json!({"collected": {"task": task, "epoch": 1}}));
    }
    while keeper.ends.len() < 2 {
        keeper.hear();
    }
    assert!(keeper.ends.values().all(|end| *end == json!({"exited": 0})), "{:?}", keeper.ends);
}

#[test]
fn a_recorded_agent_is_obeyed_by_todays_keeper() {
    play(false);
}

#[test]
fn an_agent_of_a_later_release_is_obeyed_by_todays_keeper() {
    play(true);
}
