//! What one user's work runs, reads and writes reaches no other caller. Each private part of ann's jobs holds a mark, and
//! all requests that look are made as others: no answer has a mark. Made as ann and as an administrator, the same requests
//! do show them, so the test is not blind.

use crate::support::browser::{Answer, Browser};
use crate::support::port::Port;
use crate::support::{PATIENCE, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

// Without digits, slashes and dots: the shape of a command keeps such words as they are.
const COMMAND: &str = "canary-of-command";
const VALUE: &str = "canary-of-value";
const ENVIRONMENT: &str = "canary-of-environment";
const FILE: &str = "canary-of-file";
const OUTPUT: &str = "canary-of-output";
const STATUS: &str = "canary-of-status";
const FAILURE: &str = "canary-of-failure";
const PATH: &str = "canary-of-path";
const SCRIPT: &str = "canary-of-script";
const ARGUMENT: &str = "canary-of-argument";
const FIELD: &str = "canary-of-field";
const STEP: &str = "canary-of-step";
const RESULT: &str = "canary-of-result";
const LOG: &str = "canary-of-log";
const DERIVATION: &str = "canary-of-derivation";
const INPUT: &str = "canary-of-input";
const REPORT: &str = "canary-of-report";
/// It is kept as what a machine holds, which no request shows.
const MADE: &str = "canary-of-what-is-made";

/// Marks that the requests of the walk show to ann.
const SHOWN: [&str; 16] = [
    COMMAND,
    VALUE,
    ENVIRONMENT,
    FILE,
    OUTPUT,
    STATUS,
    FAILURE,
    PATH,
    SCRIPT,
    ARGUMENT,
    FIELD,
    STEP,
    RESULT,
    DERIVATION,
    INPUT,
    REPORT,
];
/// What every mark begins with, and nothing else does.
const ANY_MARK: &str = "canary-of-";

/// The task of ann's that runs during the first walk.
const RUNNING: u64 = 1;

/// A caller and the token that they show.
struct Someone {
    name: &'static str,
    token: String,
    /// Whether the marks are for them.
    may_read: bool,
}

/// A server with ann's work.
struct Site {
    port: Port,
    callers: Vec<Someone>,
    /// Of the native interface; those of the gateways are among them.
    jobs: Vec<u64>,
    /// The job at a provider, and the one that waits.
    compass: [String; 2],
    /// The path of the running job's results.
    result_root: String,
    job_token: String,
}

fn ask(port: &Port, method: &str, path: &str, token: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("Content-Type", "application/json")];
    if !token.is_empty() {
        headers.push(("Authorization", bearer.as_str()));
    }
    Browser::new(port.host()).ask(method, path, &headers, body)
}

fn posted(port: &Port, path: &str, token: &str, body: &Value) -> Value {
    let answer = ask(port, "POST", path, token, &body.to_string());
    assert!((200..300).contains(&answer.status), "{path}: {}\n{}", answer.text(), port.log());
    answer.json()
}

/// The head and the body.
fn all_of(answer: &Answer) -> String {
    let head = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
    head.chain([answer.text()]).collect()
}

/// A request whose answer may last.
struct Stream {
    stream: TcpStream,
    /// What came of the answer.
    text: String,
}

impl Stream {
    fn open(port: &Port, method: &str, path: &str, token: &str, body: &str) -> Stream {
        let mut stream = TcpStream::connect(port.host()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let shown =
            if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let host = port.host();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{shown}{length}\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        Stream { stream, text: String::new() }
    }

    /// Reads until the answer holds that, or ends.
    fn until(&mut self, wanted: &str) -> &str {
        let mut part = [0; 4096];
        while !self.text.contains(wanted) {
            match self.stream.read(&mut part).unwrap() {
                0 => break,
                bytes => self.text.push_str(&String::from_utf8_lossy(&part[..bytes])),
            }
        }
        &self.text
    }
}

/// A WebSocket of JSON messages.
struct Talk(WebSocket<TcpStream>);

impl Talk {
    fn open(port: &Port, path: &str, token: &str) -> Talk {
        let stream = TcpStream::connect(port.host()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!("ws://{}{path}", port.host()).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        Talk(client(request, stream).unwrap().0)
    }

    fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).unwrap();
    }

    /// The next message of that type, and all that came until then.
    fn until(&mut self, kind: &str) -> (Value, String) {
        let mut all = String::new();
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => {
                    all.push_str(&text);
                    let message: Value = serde_json::from_str(&text).unwrap();
                    if message["type"] == kind {
                        return (message, all);
                    }
                }
                Message::Close(_) => panic!("the server closed the socket"),
                _ => {}
            }
        }
    }
}

/// Ann's jobs of the native interface: one that runs until the file `go-on` is there, one that fails twice, and one that
/// cannot be started.
fn native_jobs(port: &Port, ann: &str) -> Vec<u64> {
    let go_on = port.dir.join("go-on");
    let script = format!(
        "echo {FILE} \"$MARK\"\necho {OUTPUT}\necho openjd_progress: 50\necho openjd_status: {STATUS}\n\
         while ! test -e {}; do sleep 0.1; done\n",
        go_on.display()
    );
    let running = json!({"name": "film", "steps": [{
        "name": "render", "command": ["sh", "{{Task.File.Run}}", COMMAND, "{{Task.Param.Shot}}"],
        "env": {"PATH": "/usr/bin:/bin", "MARK": ENVIRONMENT},
        "param": {"space": {"params": [{"name": "Shot", "values": {"list": [VALUE, "other"]}}]}},
        "session": {"files": [{"name": "Run", "data": script}]}, "resources": {"cpus": 0.1},
    }]});
    let fails = format!("echo openjd_fail: {FAILURE}; exit 3");
    let failing = json!({"name": "broken", "steps": [{
        "command": ["sh", "-c", fails], "env": {"PATH": "/usr/bin:/bin"}, "retries": 1, "session": {},
        "resources": {"cpus": 0.1},
    }]});
    let program = format!("/opt/{PATH}/render");
    let missing =
        json!({"name": "private", "steps": [{"command": [program], "cwd": "/", "resources": {"cpus": 0.1}}]});
    let submit = |job: &Value| posted(port, "/api/v1/jobs", ann, job)["job"].as_u64().unwrap();
    let jobs: Vec<u64> = [running, failing, missing].iter().map(submit).collect();
    assert_eq!(jobs[0], RUNNING);
    for job in &jobs[1..] {
        let ended = ask(port, "GET", &format!("/api/v1/jobs/{job}/wait"), ann, "").json();
        assert_eq!(ended["state"], "failed", "{ended}");
    }
    let tasks = format!("/api/v1/jobs/{RUNNING}/tasks");
    wait_until("the task says its status", || ask(port, "GET", &tasks, ann, "").text().contains(STATUS));
    jobs
}

fn compass_job(ann: &str, arch: &str) -> Value {
    json!({
        "suite": "iperf", "testbox": "dc-1g", "os": "openeuler", "os_version": "22.03", "os_arch": arch,
        "my_account": "ann", "my_email": "ann@example.org", "my_name": "Ann", "my_token": ann, "runtime": 300,
        "docker_image": "openeuler:22.03", "kernel_uri": "http://os/vmlinuz", "initrds_uri": ["http://os/initrd.cgz"],
        "pp": {"iperf": {"protocol": ARGUMENT}}, "program": {"iperf": {"script": SCRIPT}}, "remark": FIELD,
    })
}

/// What a provider says of itself about once a second.
fn host_request() -> Value {
    json!({
        "type": "host-job-request", "hostname": "h1", "arch": "aarch64", "nr_cpu": 64, "nr_node": 2, "nr_disks": 1,
        "nr_vm": 0, "nr_container": 0, "tbox_type": "vm,dc", "is_remote": false, "tags": [], "cache_dirs": [],
        "services": {}, "freemem": 8_000, "disk_max_used_string": "9% /",
        "metrics": {"freemem": 8_000, "freemem_percent": 50, "uptime_minutes": 100},
    })
}

/// Ann's jobs of Compass CI: their numbers, the message by which a host started the first, and that host's socket.
fn compass_jobs(port: &Port, ann: &str) -> ([String; 2], Value, Talk) {
    let submit = |arch: &str| {
        let answer = posted(port, "/scheduler/v1/jobs/submit", "", &compass_job(ann, arch));
        answer[0]["job_id"].as_str().unwrap().to_owned()
    };
    // No host has the other architecture.
    let jobs = [submit("aarch64"), submit("x86_64")];
    let host = port.token(&["--role", "worker", "--worker", "h1"]);
    let mut provider = Talk::open(port, "/scheduler/v1/vm-container-provider/h1", &host);
    provider.say(&host_request());
    let (boot, _) = provider.until("boot-job");
    assert_eq!(boot["job_id"], jobs[0], "{boot}");
    let own = format!("job_token={}", boot["job_token"].as_str().unwrap());
    let update = format!("/scheduler/v1/jobs/{}/update?job_stage=running&job_step={STEP}&{own}", jobs[0]);
    assert_eq!(ask(port, "POST", &update, "", "").status, 200);
    let result = format!("{}/out?job_id={}&{own}", boot["result_root"].as_str().unwrap(), jobs[0]);
    assert_eq!(ask(port, "POST", &result, "", RESULT).status, 200);
    (jobs, boot, provider)
}

/// A build of ann's whose builder failed. Returns its job.
fn nix_build(port: &Port, ann: &str) -> u64 {
    let machine = json!({
        "uri": "ssh://b1", "systems": ["x86_64-linux"], "max_jobs": 1, "speed": 1.0, "supported": [], "mandatory": [],
    });
    let wanted =
        json!({"client": "c", "store": "s", "system": "x86_64-linux", "features": [], "machines": [machine]});
    let hash = "0".repeat(32);
    let build = json!({
        "wanted": wanted, "key": "k", "drv": format!("/nix/store/{hash}-{DERIVATION}.drv"), "name": "hello-1.0",
        "pname": "hello", "inputs": [[format!("{hash}-{INPUT}"), null]], "outputs": [format!("{hash}-{MADE}")],
    });
    let mut lines = Stream::open(port, "POST", "/nix/v1/builds", ann, &build.to_string());
    let text = lines.until(r#""event":"place""#).to_owned();
    let job = text.split(r#""event":"job","job":"#).nth(1).unwrap_or_else(|| panic!("no build: {text}"));
    let job: u64 = job.split('}').next().unwrap().parse().unwrap();
    let report = json!({"attempt": 1, "outcome": {"outcome": "failed", "code": 100, "message": REPORT}});
    let told = ask(port, "POST", &format!("/nix/v1/builds/{job}/report"), ann, &report.to_string());
    assert_eq!(told.status, 204, "{}", told.text());
    lines.until(r#""event":"end""#);
    job
}

impl Site {
    fn open() -> (Site, Value, Talk) {
        let dir = tempfile::tempdir().unwrap();
        let (srv, file) = (dir.path().join("srv"), dir.path().join("server.toml"));
        std::fs::create_dir(&srv).unwrap();
        let settings = format!(
            "[gateway.nix]\nenabled = true\n[compass]\nenabled = true\nsrv = {:?}\n",
            srv.display().to_string()
        );
        std::fs::write(&file, settings).unwrap();
        let port = Port::open_in(dir, &["--cpus", "2", "--config", file.to_str().unwrap()]);
        let ann = port.token(&["--role", "user", "--user", "ann"]);
        let someone = |name, may_read, flags: &[&str]| Someone { name, token: port.token(flags), may_read };
        let callers = vec![
            someone("a viewer", false, &["--role", "viewer", "--user", "vera"]),
            someone("another user", false, &["--role", "user", "--user", "bob"]),
            someone("another worker", false, &["--role", "worker", "--worker", "box9"]),
            Someone { name: "a stranger", token: String::new(), may_read: false },
            Someone { name: "ann", token: ann.clone(), may_read: true },
            someone("an administrator", true, &["--role", "admin"]),
        ];
        port.admin(&["limit", "set", "nuke", "3"]);
        let mut jobs = native_jobs(&port, &ann);
        let (compass, boot, provider) = compass_jobs(&port, &ann);
        jobs.extend(compass.iter().map(|job| job.parse::<u64>().unwrap()));
        jobs.push(nix_build(&port, &ann));
        let word = |key: &str| boot[key].as_str().unwrap().to_owned();
        let (result_root, job_token) = (word("result_root"), word("job_token"));
        (Site { port, callers, jobs, compass, result_root, job_token }, boot, provider)
    }

    /// Looks at these paths as each caller. Returns what ann and an administrator were shown.
    fn walk(&self, paths: &[String]) -> Vec<(&'static str, String)> {
        let mut shown = Vec::new();
        for caller in &self.callers {
            let mut seen = String::new();
            for path in paths {
                let answer = ask(&self.port, "GET", path, &caller.token, "");
                let text = all_of(&answer);
                self.check(caller, path, &text);
                // Packed bytes would hide a mark: a job's archive is for its machine alone.
                assert!(!path.ends_with("/job.cgz") || answer.status == 401, "{}: {path}", caller.name);
                seen.push_str(&text);
            }
            if caller.may_read {
                shown.push((caller.name, seen));
            }
        }
        shown
    }

    fn check(&self, caller: &Someone, path: &str, text: &str) {
        assert!(caller.may_read || !text.contains(ANY_MARK), "{} reads at {path}:\n{text}", caller.name);
    }

    /// The requests of the native interface that look, with real parameters. Streams, and waits for what runs, are left to
    /// [`Site::watch`].
    fn native_paths(&self) -> Vec<String> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/openapi.json");
        let document: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let all = document["paths"].as_object().unwrap().iter();
        let looks = all.filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path.as_str());
        let looks = looks.filter(|path| *path != "/api/v1/events" && !path.ends_with("/wait"));
        let mut paths: Vec<String> = looks.flat_map(|path| self.filled(path)).collect();
        for task in self.tasks() {
            paths.push(format!("/api/v1/tasks/{task}/log?stream=stderr"));
            paths.push(format!("/api/v1/tasks/{task}/log?attempt=1"));
        }
        paths.push("/openapi.json".to_owned());
        paths
    }

    fn tasks(&self) -> Vec<String> {
        self.jobs.iter().map(|job| format!("{job}.0")).chain([format!("{RUNNING}.1")]).collect()
    }

    /// A path of the document with all values that its parameter has here.
    fn filled(&self, path: &str) -> Vec<String> {
        let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
        let (_, after) = rest.split_once('}').unwrap();
        let values: Vec<String> = match before {
            "/api/v1/jobs/" => self.jobs.iter().map(u64::to_string).collect(),
            "/api/v1/tasks/" => self.tasks(),
            "/api/v1/workers/" => self.workers(),
            "/api/v1/queues/" => vec!["ann".to_owned()],
            "/api/v1/limits/" => vec!["nuke".to_owned()],
            "/api/v1/places/" | "/api/v1/turns/" => vec!["1".to_owned()],
            _ => panic!("say what {path} is filled with"),
        };
        values.iter().map(|value| format!("{before}{value}{after}")).collect()
    }

    /// The names of all workers, as a path has them.
    fn workers(&self) -> Vec<String> {
        let admin = self.callers.last().unwrap();
        let list = ask(&self.port, "GET", "/api/v1/workers?limit=1000", &admin.token, "").json();
        let names = list["items"].as_array().unwrap().iter().map(|worker| worker["name"].as_str().unwrap());
        names.map(|name| name.replace('%', "%25").replace('/', "%2F").replace('?', "%3F")).collect()
    }

    /// The requests of Compass CI that look, by the route that answers them.
    fn compass_paths(&self) -> Vec<(&'static str, Vec<String>)> {
        const LISTED: &str =
            "job_id,job_stage,program,pp,remark,job_step,result_root,section_order,all_params_md5";
        let scheduler = |paths: &[&str]| -> Vec<String> {
            paths.iter().map(|path| format!("/scheduler/v1{path}")).collect()
        };
        let list = |name: &str| -> Vec<String> {
            let outputs = ["html", "text", "json"].iter();
            let with = |output: &&str| {
                format!("/scheduler/v1/dashboard/jobs/{name}?output={output}&fields={LISTED}&sort=pp")
            };
            outputs.map(with).chain([format!("/scheduler/v1/dashboard/jobs/{name}")]).collect()
        };
        let jobs = self.compass.iter().flat_map(|job| {
            [format!("/scheduler/v1/jobs/{job}"), format!("/scheduler/v1/jobs/{job}?fields={LISTED}")]
        });
        let boot = |kind: &str| {
            vec![format!("/boot.{kind}/hostname/h1"), format!("/boot.{kind}/mac/aa-bb-cc-dd-ee-01")]
        };
        let first = &self.compass[0];
        vec![
            ("/dispatch", scheduler(&["/jobs/dispatch?mac=aa-bb-cc-dd-ee-01&hostname=h1"])),
            ("/{id}", jobs.collect()),
            ("/jobs/pending", list("pending")),
            ("/jobs/running", list("running")),
            ("/hosts", scheduler(&["/dashboard/hosts?output=json", "/dashboard/hosts"])),
            ("/accounts", scheduler(&["/dashboard/accounts?output=json"])),
            ("/health", scheduler(&["/health"])),
            ("/debug/dispatch", scheduler(&["/debug/dispatch"])),
            ("/hosts/{hostname}", scheduler(&["/hosts/h1"])),
            ("/clusters/{name}", scheduler(&["/clusters/c1"])),
            ("/client", scheduler(&["/client"])),
            ("/vm-container-provider/{host}", scheduler(&["/vm-container-provider/h1"])),
            ("/", vec!["/".to_owned()]),
            ("/boot.ipxe/{parameter}/{value}", boot("ipxe")),
            ("/boot.grub/{parameter}/{value}", boot("grub")),
            ("/boot.native/{parameter}/{value}", boot("native")),
            ("/boot.libvirt/{parameter}/{value}", boot("libvirt")),
            ("/job_initrd_tmpfs/{id}/job.cgz", vec![format!("/job_initrd_tmpfs/{first}/job.cgz")]),
            (
                "/srv/{*path}",
                vec![
                    format!("/srv{}/out", self.result_root),
                    format!("/srv{}", self.result_root),
                    format!("/srv{}/out?job_id={first}", self.result_root),
                    format!("/srv/scheduler/pending-jobs/{first}/job.cgz"),
                ],
            ),
        ]
    }

    fn paths(&self) -> Vec<String> {
        let of_compass = self.compass_paths().into_iter().flat_map(|(_, paths)| paths);
        self.native_paths().into_iter().chain(of_compass).collect()
    }

    /// A URL that machines fetch shows a job's token. Where its refusal is noted, the token is struck out.
    fn check_notes(&self) {
        let other = format!("/srv/scheduler/pending-jobs/{}/{}/job.cgz", self.compass[1], self.job_token);
        assert_eq!(ask(&self.port, "GET", &other, "", "").status, 401);
        let noted = format!("/srv/scheduler/pending-jobs/{}/***/job.cgz", self.compass[1]);
        wait_until("the refusal is noted", || self.port.audit().contains(&noted));
        assert!(self.port.log().contains(&noted), "{}", self.port.log());
        for (log, text) in [("server.log", self.port.log()), ("audit.log", self.port.audit())] {
            assert!(!text.contains(&self.job_token), "{log} has the token of a job");
        }
    }

    /// Watches ann's running task as each caller until it has ended, which it does during this.
    fn watch(&self) {
        const PATHS: [&str; 3] = ["/api/v1/events", "/api/v1/events?job=1", "/api/v1/events?brief=true"];
        let ends =
            [format!("/api/v1/jobs/{RUNNING}/wait"), format!("/api/v1/tasks/{RUNNING}.0/log?follow=true")];
        let open = |caller: &Someone, path: &str| Stream::open(&self.port, "GET", path, &caller.token, "");
        let mut open_streams = Vec::new();
        for caller in &self.callers {
            for path in PATHS {
                let mut stream = open(caller, path);
                // A client that has the head is told what happens from now on.
                stream.until("\r\n\r\n");
                open_streams.push((caller, path.to_owned(), stream));
            }
            open_streams.extend(ends.iter().map(|path| (caller, path.clone(), open(caller, path))));
        }
        std::fs::write(self.port.dir.join("go-on"), "").unwrap();
        let over = format!(r#"{{"job":{{"job":{RUNNING},"state":"succeeded""#);
        for (caller, path, mut stream) in open_streams {
            // A wait and a log end by themselves.
            let wanted =
                if path.starts_with("/api/v1/events") { over.as_str() } else { "no answer has this" };
            let text = stream.until(wanted).to_owned();
            self.check(caller, &path, &text);
            let is_refused = text.starts_with("HTTP/1.1 40");
            assert!(
                is_refused || !path.starts_with("/api/v1/events") || text.contains(wanted),
                "{path}: {text}"
            );
            assert!(!caller.may_read || !is_refused, "{}: {path}: {text}", caller.name);
        }
        // Those that have ended answer at once.
        let waits: Vec<String> =
            self.jobs[..3].iter().map(|job| format!("/api/v1/jobs/{job}/wait")).collect();
        self.walk(&waits);
    }

    /// Watches the job of Compass CI while its host passes on what it prints.
    fn watch_compass(&self, provider: &mut Talk) {
        const CLIENT: &str = "/scheduler/v1/client";
        // A host that is silent for long is not connected any more.
        provider.say(&host_request());
        let job = &self.compass[0];
        let mut talks = Vec::new();
        for caller in &self.callers {
            if ["another worker", "a stranger"].contains(&caller.name) {
                let status = ask(&self.port, "GET", CLIENT, &caller.token, "").status;
                assert!([401, 403].contains(&status), "{}: {status}", caller.name);
                continue;
            }
            let mut talk = Talk::open(&self.port, CLIENT, &caller.token);
            talk.until("welcome");
            for kind in ["watch-job-event", "watch-job-log"] {
                talk.say(&json!({"type": kind, "job_id": job}));
                if !caller.may_read {
                    let (refused, _) = talk.until("error");
                    assert!(
                        refused["message"].as_str().unwrap().contains("belongs to another user"),
                        "{refused}"
                    );
                }
            }
            if caller.may_read {
                // The host hears of it once it counts.
                provider.until("watch-job-log");
            }
            talks.push((caller, talk));
        }
        provider.say(&json!({"type": "job-log", "job_id": job, "message": LOG}));
        for (caller, talk) in talks.iter_mut().filter(|(caller, _)| caller.may_read) {
            let (_, all) = talk.until("job-log");
            assert!(all.contains(LOG), "{}: {all}", caller.name);
        }
        for (caller, talk) in talks.iter_mut().filter(|(caller, _)| !caller.may_read) {
            // All that was said before comes before the answer to this.
            talk.say(&json!({"type": "watch-job-log", "job_id": "none"}));
            let (_, all) = talk.until("error");
            self.check(caller, CLIENT, &all);
        }
    }
}

/// The routes of Compass CI that answer requests which look, as its source has them.
fn looks_of_compass() -> BTreeSet<&'static str> {
    let source = include_str!("../../gateway-compass/src/http/mod.rs");
    let routes = source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")?.split_once('"'));
    let looks = routes.filter(|(_, how)| how.contains("get(") || how.contains("any("));
    looks.map(|(path, _)| path).collect()
}

#[test]
fn no_answer_has_a_part_of_another_user_s_work() {
    let (site, boot, mut provider) = Site::open();
    let walked: BTreeSet<&str> = site.compass_paths().iter().map(|(route, _)| *route).collect();
    assert_eq!(walked, looks_of_compass(), "say what each new route is asked for");
    site.check_notes();
    let mut shown = site.walk(&site.paths());
    site.watch_compass(&mut provider);
    site.watch();
    provider.say(&json!({"type": "job-update", "job_id": boot["job_id"], "job_data_readiness": "uploaded"}));
    let native = format!("/api/v1/jobs/{}", site.compass[0]);
    let ann = site.callers.iter().find(|caller| caller.name == "ann").unwrap();
    wait_until("the job at the host has ended", || {
        ask(&site.port, "GET", &native, &ann.token, "").json()["state"] == "succeeded"
    });
    shown.extend(site.walk(&site.paths()));
    for name in ["ann", "an administrator"] {
        let seen: String =
            shown.iter().filter(|(who, _)| *who == name).map(|(_, seen)| seen.as_str()).collect();
        for mark in SHOWN {
            assert!(seen.contains(mark), "{name} is not shown {mark}: the test is blind there");
        }
    }
    site.check_notes();
}
