//! What one user of a farm can do to another through its gateways: nothing but make them wait.

use crate::support::nix::{Worlds, builders, expression};
use crate::support::port::Port;
use crate::support::{self, Random, resident_bytes, show, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Output;
use std::time::Duration;

/// A user's way to a server: requests over TCP with a token.
struct User<'a> {
    port: &'a Port,
    token: String,
}

impl<'a> User<'a> {
    fn new(port: &'a Port, name: &str) -> User<'a> {
        User { port, token: port.token(&["--role", "user", "--user", name]) }
    }

    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.port.host()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.port.host(),
            self.token,
            body.len()
        );
        // A server that refuses a large body does not read it to its end.
        _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        stream
    }

    /// The status and the body of an answer; status 0 without an answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut answer = Vec::new();
        _ = self.send(method, path, body).read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0), body.to_owned())
    }

    /// Nix's question, with machines that this user names.
    fn try_with(&self, system: &str, machines: &[Value]) -> (u16, String) {
        let wanted = json!({
            "client": "c", "store": "", "system": system, "features": [], "machines": machines
        });
        self.ask("POST", "/nix/v1/try", &json!({ "wanted": wanted, "in_flight_max": 0 }).to_string())
    }

    /// A request for a build, held open.
    fn build(&self, drv: &str, system: &str, machines: &[Value]) -> Events {
        let wanted = json!({
            "client": "c", "store": "", "system": system, "features": [], "machines": machines
        });
        let request = json!({
            "wanted": wanted, "key": format!("{drv}-{system}"), "drv": drv, "name": "hello-1.0", "pname": "hello",
        });
        let mut reader = BufReader::new(self.send("POST", "/nix/v1/builds", &request.to_string()));
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        Events(reader)
    }
}

/// What a hook is told, as it comes.
struct Events(BufReader<TcpStream>);

impl Events {
    /// The next event that is not about waiting; `None` at the end. Chunks' sizes are left out.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            match serde_json::from_str::<Value>(&line) {
                Ok(event) if event.is_object() && event["event"] != "waits" => return Some(event),
                _ => {}
            }
        }
    }
}

fn machine(uri: &str, max_jobs: u32) -> Value {
    json!({
        "uri": uri, "systems": ["x86_64-linux"], "max_jobs": max_jobs, "speed": 1.0, "supported": [], "mandatory": []
    })
}

/// Machines by which a user could try to be everybody's.
fn hostile_machines() -> Vec<Value> {
    let uris = [
        "farm",
        "farm?x=1 x86_64-linux - 64 1 - -\nssh://b2 x86_64-linux - 64 9 - - -\n#",
        "farm?x=1;ssh://b2 x86_64-linux - 64 9 - - -",
        "ssh://b2",
        "ssh://b1?remote-program=/bin/false",
        "ssh://b2#ssh://b1",
        "ssh://b1@b2",
        "b1",
        "nix:ann:b1:0000000000000000",
        "local?root=/tmp/mallory",
        "-oProxyCommand=touch /tmp/mallory",
    ];
    let fast = |uri: &&str| {
        let mut fast = machine(uri, 64);
        fast["speed"] = 99.0.into();
        fast
    };
    uris.iter().map(fast).collect()
}

/// A server with the gateways, without a worker of its own.
fn open() -> Port {
    Port::open(&["--insecure-plaintext", "--nix", "--compass", "--no-worker"])
}

fn realise(worlds: &Worlds, port: &Port, token: &str, derivations: &[String], builders: &str) -> Output {
    let mut nix = worlds.realise("client", derivations, builders, true);
    nix.env("WINDLASS_SERVER", &port.address).env("WINDLASS_TOKEN", token).output().unwrap()
}

#[test]
fn what_one_user_names_reaches_no_other_user_s_store() {
    let Some(worlds) = Worlds::open("what_one_user_names_reaches_no_other_user_s_store") else { return };
    let port = open();
    let (ann, mallory) = (User::new(&port, "ann"), User::new(&port, "mallory"));
    let derivations = worlds.derivations("client", &expression("hello", 4, "", ""));
    for hostile in hostile_machines() {
        mallory.try_with("x86_64-linux", &[hostile]);
    }
    mallory.try_with("x86_64-linux", &hostile_machines());
    let output = realise(&worlds, &port, &ann.token, &derivations, &builders(&["b1"], 1));
    assert!(output.status.success(), "{}", show(&output));
    assert_eq!(worlds.built(), [4, 0, 0], "{}", show(&output));
    assert_eq!(worlds.connections().into_iter().collect::<BTreeSet<_>>(), ["b1".to_owned()].into());
    // Without a machine of her own, there is none for her.
    let derivations = worlds.derivations("client", &expression("none", 1, "", ""));
    let output = realise(&worlds, &port, &ann.token, &derivations, "");
    assert!(!output.status.success() && worlds.built() == [4, 0, 0], "{}", show(&output));
}

#[test]
fn without_the_switch_there_is_no_gateway_for_nix() {
    let port = Port::open(&["--insecure-plaintext", "--no-worker"]);
    let ann = User::new(&port, "ann");
    assert_eq!(ann.try_with("x86_64-linux", &[machine("ssh://b1", 1)]).0, 404);
}

#[test]
fn no_user_takes_a_worker_s_name() {
    let port = open();
    let mallory = User::new(&port, "mallory");
    let names = ["box1", "ssh://box1", "box2", "ssh://box2"];
    let take = |jobs: u32| {
        let machines: Vec<Value> = names.iter().map(|name| machine(name, jobs)).collect();
        mallory.try_with("x86_64-linux", &machines);
    };
    take(1);
    let token = |name: &str| port.token(&["--role", "worker", "--worker", name]);
    let up = |name: &str| {
        let shown = port.admin(&["worker", "show", name, "-o", "json"]);
        serde_json::from_str::<Value>(&shown).is_ok_and(|shown| shown["state"] == "up")
    };
    let tokens = ["box1", "box2"].map(token);
    for (jobs, round) in (2..).zip(0..3) {
        let workers: Vec<_> =
            ["box1", "box2"].iter().zip(&tokens).map(|(name, token)| port.worker(token, name)).collect();
        wait_until(&format!("both workers are there, round {round}"), || {
            port.admin(&["workers", "-o", "name"]).lines().filter(|name| name.starts_with("box")).count() == 2
                && up("box1")
                && up("box2")
        });
        // They are gone for a moment, while their names are asked for.
        drop(workers);
        wait_until("they are not connected", || !up("box1") && !up("box2"));
        take(jobs);
    }
}

#[test]
fn a_worker_builds_for_nix_only_if_its_token_says_so() {
    let Some(worlds) = Worlds::open("a_worker_builds_for_nix_only_if_its_token_says_so") else { return };
    let port = open();
    let start = |flags: &[&str]| {
        let token = port.token(&[&["--role", "worker", "--worker", "b1"], flags].concat());
        let state = worlds.path("b1/worker").display().to_string();
        let command = format!(
            "exec {} worker start --name b1 --cpus 1 --nix ssh://b1 --as-root --state {state}",
            support::windlass()
        );
        let mut command = worlds.run_in("b1", &["sh", "-c", &command]);
        command.env("WINDLASS_SERVER", &port.address).env("WINDLASS_TOKEN", token);
        command
    };
    let log = worlds.path("b1/worker.log");
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let refused = start(&[]).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let refused = support::port::KillOnDrop(refused);
    wait_until("the worker is refused", || said().contains("trying again"));
    let said = said();
    assert!(said.contains("may not declare the attribute 'nix.") && said.contains("--nix"), "{said}");
    assert_eq!(port.admin(&["workers", "-o", "name"]).trim(), "");
    drop(refused);
    let _worker = support::port::KillOnDrop(start(&["--nix"]).spawn().unwrap());
    wait_until("the worker is there", || port.admin(&["workers", "-o", "name"]).trim() == "b1");
}

#[test]
fn one_user_s_machines_take_a_bounded_part_of_the_server() {
    let mut port = open();
    let (ann, mallory) = (User::new(&port, "ann"), User::new(&port, "mallory"));
    let resident = |port: &Port| resident_bytes(port.pid()) >> 20;
    ann.try_with("x86_64-linux", &[machine("ssh://b1", 1)]);
    let before = resident(&port);
    let large = "x".repeat(3 << 20);
    for number in 0..40 {
        let mut many = machine(&format!("ssh://m{number}"), 1);
        many["supported"] = json!([large]);
        let (status, why) = mallory.try_with("x86_64-linux", &[many]);
        assert_eq!(status, 400, "{why}");
        let (status, _) = mallory.try_with("x86_64-linux", &[machine(&large, 1)]);
        assert_eq!(status, 400);
    }
    for part in 0..10 {
        let machines: Vec<Value> = (0..200).map(|n| machine(&format!("ssh://m{part}-{n}"), 1)).collect();
        mallory.try_with("x86_64-linux", &machines);
    }
    let named = port.admin(&["workers", "-o", "name"]);
    assert_eq!(named.lines().filter(|name| name.starts_with("nix:mallory:")).count(), 256);
    let (now, body) = (resident(&port), 4);
    assert!(now < before + 2 * body + 64, "{before} MiB, then {now} MiB");
    // What a client says of its machines is not kept.
    let disk = fs::read(port.farm.state().join("windlass.db")).unwrap_or_default();
    assert!(!disk.windows(10).any(|bytes| bytes == b"ssh://m0-1"), "in the store");
    port.restart_with_limit(4096);
    assert_eq!(port.admin(&["workers", "-o", "name"]).lines().count(), 0);
}

#[test]
fn a_held_request_makes_no_other_user_wait() {
    let port = open();
    let (ann, mallory) = (User::new(&port, "ann"), User::new(&port, "mallory"));
    let drv = "/nix/store/00000000000000000000000000000000-hello-1.0.drv";
    let own = [machine("ssh://b1", 1)];
    // One that no machine could ever build, and one that has a place.
    let mut placed = mallory.build(drv, "x86_64-linux", &own);
    while placed.next().unwrap()["event"] != "place" {}
    let other = drv.replace("hello", "other");
    let _unplaced = mallory.build(&other, "riscv64-linux", &[]);
    for drv in [drv, &other] {
        let mut events = ann.build(drv, "x86_64-linux", &[machine("ssh://b1", 2)]);
        assert_eq!(events.next().unwrap()["event"], "job");
        let place = events.next().unwrap();
        assert_eq!((&place["event"], &place["uri"]), (&json!("place"), &json!("ssh://b1")));
    }
}

/// What a user is told by whatever they may ask, with the numbers of jobs and of attempts left out.
fn conversation(port: &Port, ann: &User<'_>, round: u32) -> Vec<String> {
    let drv = format!("/nix/store/{round:032}-hello-1.0.drv");
    let own = [machine("ssh://b1", 2)];
    let mut told = vec![ann.try_with("x86_64-linux", &own).1, ann.try_with("riscv64-linux", &own).1];
    let mut events = ann.build(&drv, "x86_64-linux", &own);
    let mut job = String::new();
    while let Some(event) = events.next() {
        let name = event["event"].as_str().unwrap().to_owned();
        if name == "job" {
            job = event["job"].to_string();
        } else {
            told.push(event.to_string());
        }
        if name == "place" {
            for outcome in [json!({"outcome": "began"}), json!({"outcome": "succeeded"})] {
                let report = json!({ "attempt": event["attempt"], "outcome": outcome }).to_string();
                let path = format!("/nix/v1/builds/{job}/report");
                told.push(format!("{:?}", ann.ask("POST", &path, &report)));
            }
        }
    }
    // Her task: what its worker was told shows in what it sees.
    let shown = "env | grep -v '^WINDLASS_\\(JOB\\|TASK\\|SESSION\\|ATTEMPT\\|KEEPER\\)' | sort; pwd; id; cat /proc/self/cgroup | wc -l";
    let flags = ["run", "--cwd", "/", "--env", "MARK=1", "--", "sh", "-c", shown];
    told.push(port.ok_as(&ann.token, &flags));
    told
}

/// A request of a hostile user: anything that the interfaces take, with texts that mean something elsewhere.
fn hostile_request(random: &mut Random, mallory: &User<'_>, held: &mut Vec<Events>) {
    let pick = |random: &mut Random, all: &[&str]| all[random.below(all.len() as u64) as usize].to_owned();
    let texts = [
        "farm",
        "ann",
        "box1",
        "ssh://b1",
        "ssh://b2",
        "nix",
        "b1",
        "nix:ann:b1:0",
        "executor=compass-ci",
        "serves=nix",
        "x\nssh://b2 x86_64-linux",
        "../..",
        "admin",
        "root",
        "*",
        "",
    ];
    let text = pick(random, &texts);
    let job = 1 + random.below(30);
    let drv = format!("/nix/store/{:032}-hello-1.0.drv", random.below(8));
    match random.below(12) {
        0 => _ = mallory.try_with("x86_64-linux", &hostile_machines()),
        1 => _ = mallory.try_with(&text, &[machine(&text, 1 + random.below(64) as u32)]),
        2 => {
            let system = pick(random, &["x86_64-linux", "riscv64-linux"]);
            held.push(mallory.build(&drv, &system, &[machine(&pick(random, &["ssh://b1", "farm"]), 1)]));
        }
        3 => {
            let outcome =
                pick(random, &["began", "succeeded", "canceled", "failed", "lost", "not_connected"]);
            let outcome = json!({ "outcome": outcome, "code": 100, "message": text });
            let report = json!({ "attempt": random.below(3), "outcome": outcome });
            mallory.ask("POST", &format!("/nix/v1/builds/{job}/report"), &report.to_string());
        }
        4 => {
            let step = json!({
                "command": ["true"], "cwd": "/", "tags": [text], "workers": [pick(random, &texts)],
                "env": { "PATH": text }, "caches": { "nix/x": 1 }, "limits": [pick(random, &texts)],
            });
            let request =
                json!({ "name": text, "queue": pick(random, &texts), "steps": [step], "priority": 1000 });
            mallory.ask("POST", "/api/v1/jobs", &request.to_string());
        }
        5 => {
            let verb = pick(random, &["cancel", "hold", "release", "retry", "priority"]);
            mallory.ask("POST", &format!("/api/v1/jobs/{job}/{verb}"), r#"{"priority":9}"#);
        }
        6 => {
            let verb = pick(random, &["drain", "resume", "forget"]);
            mallory.ask("POST", &format!("/api/v1/workers/box1/{verb}"), "{}");
        }
        7 => _ = mallory.ask("PUT", "/api/v1/queues/ann", r#"{"quota":0,"paused":true}"#),
        8 => {
            let token = json!({ "role": pick(random, &["admin", "worker", "user"]), "user": "ann", "worker": "box1" });
            mallory.ask("POST", "/api/v1/tokens", &token.to_string());
        }
        9 => {
            let fields = json!({
                "suite": "x", "testbox": "dc-1g", "os": "debian", "os_version": "12", "my_account": text,
                "target_machines": ["box1"], "program": { "x": { "a": text } },
            });
            mallory.ask("POST", "/scheduler/v1/jobs/submit", &fields.to_string());
        }
        10 => {
            let host = json!({ "hostname": "box1", "arch": "x86_64", "nr_cpu": 64, "serves": "nix", "nix.uri": text });
            mallory.ask("POST", "/scheduler/v1/hosts/box1", &host.to_string());
        }
        _ => held.truncate(held.len() / 2),
    }
}

/// Noninterference: whatever one user sends, what another's hook, client and worker are told is the same, but for waiting.
#[test]
fn what_a_user_is_told_does_not_depend_on_what_another_sends() {
    let port = open();
    let (ann, mallory) = (User::new(&port, "ann"), User::new(&port, "mallory"));
    let worker = port.token(&["--role", "worker", "--worker", "box1"]);
    let _box1 = port.worker(&worker, "box1");
    wait_until("the worker is there", || port.admin(&["workers", "-o", "name"]).trim() == "box1");
    let alone = conversation(&port, &ann, 0);
    assert!(alone.iter().any(|told| told.contains(r#""uri":"ssh://b1""#)), "{alone:?}");
    assert!(alone.iter().any(|told| told.contains("MARK=1")), "{alone:?}");
    let seed = std::env::var("WINDLASS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut random = Random(seed);
    let mut held = Vec::new();
    for round in 1..=12 {
        for _ in 0..25 {
            hostile_request(&mut random, &mallory, &mut held);
        }
        assert_eq!(conversation(&port, &ann, round), alone, "seed {seed}, round {round}");
        held.clear();
    }
}
