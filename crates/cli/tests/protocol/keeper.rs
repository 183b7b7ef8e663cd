//! Recorded lines of an agent against today's keeper.

use crate::golden::path;
use crate::support::{PATIENCE, kill, wait_until, windlass};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A keeper without an agent.
struct Keeper {
    dir: tempfile::TempDir,
    stream: BufReader<UnixStream>,
    /// How tasks ended, by job, index and attempt.
    ends: BTreeMap<String, Value>,
}

impl Keeper {
    fn start(later: bool) -> Keeper {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(windlass());
        // Its control groups are named after it.
        let incarnation = (u64::from(std::process::id()) << 1 | u64::from(later)).to_string();
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

/// Says what the recorded agent said; `later` has every message carry an unknown field, and unknown
/// kinds of messages between them.
fn play(later: bool) {
    let mut keeper = Keeper::start(later);
    for mut message in lines("agent.jsonl") {
        if message.get("lease").is_some() {
            // It is counted on another machine's clock.
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
    keeper.say(&json!({"beat": {"sent": 42}}));
    let beat = loop {
        let message = keeper.hear();
        if message["beat"]["sent"] == 42 {
            break message;
        }
    };
    assert_eq!((&beat["beat"]["held"], &beat["beat"]["seq"]), (&json!([]), &json!(28)));
}

#[test]
fn a_recorded_agent_is_obeyed_by_todays_keeper() {
    play(false);
}

#[test]
fn an_agent_of_a_later_release_is_obeyed_by_todays_keeper() {
    play(true);
}
