//! Invalid requests and command lines.

use crate::support::{Farm, show};
use serde_json::json;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

/// Sends a request as bytes; returns the answer's status and body.
fn raw(farm: &Farm, request: &[u8]) -> (u16, String) {
    let mut stream = UnixStream::connect(farm.socket()).unwrap();
    // The server may answer and close the connection before it has read the whole request.
    _ = stream.write_all(request);
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn post(farm: &Farm, body: &str) -> (u16, String) {
    let head = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    raw(farm, &[head.as_bytes(), body.as_bytes()].concat())
}

fn get(farm: &Farm, path: &str, headers: &str) -> (u16, String) {
    raw(farm, format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").as_bytes())
}

#[test]
fn submissions_that_are_wrong_say_what_is() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let step = |more: &str| format!(r#"{{"steps":[{{"command":["true"]{more}}}]}}"#);
    let cases = [
        ("{\"steps\": [", 400, "EOF"),
        ("\u{0}\u{1}", 400, "invalid request body"),
        ("{}", 400, "missing field `steps`"),
        (r#"{"steps":[]}"#, 400, "no step"),
        (r#"{"steps":[{"command":[]}]}"#, 400, "no command"),
        (&step(r#","priorty":1"#), 400, "unknown field `priorty`"),
        (&step(r#","resources":{"cpus":-1}"#), 400, "cpus must be a number"),
        (&step(r#","resources":{"cpus":1e308}"#), 400, "cpus must be a number"),
        (&step(r#","resources":{"memory":-5}"#), 400, "invalid value"),
        (&step(r#","param":{"range":{"start":5,"end":1}}"#), 400, "is empty"),
        (&step(r#","param":{"range":{"start":1,"end":5,"step":0}}"#), 400, "is empty"),
        (&step(r#","param":{"range":{"start":0,"end":9223372036854775807}}"#), 400, "more than the limit"),
        (&step(r#","param":{"values":[]}"#), 400, "no task"),
        (&step(r#","env":{"A=B":"1"}"#), 400, "cannot name an environment variable"),
        (&step(r#","cwd":"relative""#), 400, "not absolute"),
        (&step(r#","retries":1000000"#), 400, "limit"),
        (&step(r#","depends":[{"on":"nobody"}]"#), 400, "no such step"),
        (r#"{"steps":[{"command":["true"]}],"after":[12345]}"#, 404, "no job 12345"),
        (r#"{"steps":[{"command":["true"]}],"parent":"x"}"#, 400, "not a task id"),
    ];
    for (body, status, says) in cases {
        let (got, answer) = post(&farm, body);
        assert_eq!(got, status, "{body}: {answer}");
        assert!(answer.contains(says), "{body}: {answer}");
    }
    let cycle = r#"{"steps":[{"name":"a","command":["true"],"depends":[{"on":"b"}]},
                             {"name":"b","command":["true"],"depends":[{"on":"a"}]}]}"#;
    let (status, answer) = post(&farm, cycle);
    assert!(status == 400 && answer.contains("wait for each other"), "{answer}");
    let (status, answer) =
        post(&farm, r#"{"placeable_only":true,"steps":[{"command":["true"],"tags":["gpu=h900"]}]}"#);
    assert!(status == 422 && answer.contains("lacks gpu=h900") && answer.contains("hint"), "{answer}");
    assert_eq!(farm.ok(&["jobs", "-o", "name"]), "", "none of them was accepted");
    farm.ok(&["run", "--", "true"]);
}

#[test]
fn a_hundred_megabytes_are_refused() {
    let farm = Farm::with_server(&[]);
    let body = format!(r#"{{"steps":[{{"command":["{}"]}}]}}"#, "x".repeat(100 << 20));
    let (status, answer) = post(&farm, &body);
    // Refused as soon as the length is known; a client that goes on sending may miss the answer.
    assert!(status == 413 || answer.is_empty(), "{status} {answer}");
    let head = "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 104857600\r\n\r\n";
    let (status, answer) = raw(&farm, head.as_bytes());
    assert!(status == 413 && answer.contains("larger than 64 MiB"), "{status} {answer}");
    farm.ok(&["run", "--", "true"]);
}

#[test]
fn a_line_without_end_is_refused_before_it_is_read() {
    let farm = Farm::with_server(&[]);
    let mut command = farm.command(&["run", "--each-line", "-", "--", "echo", "{}"]);
    let mut run = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = run.stdin.take().unwrap();
    let block = vec![b'x'; 1 << 20];
    let mut written = 0u64;
    while written < 1 << 30 && stdin.write_all(&block).is_ok() {
        written += block.len() as u64;
    }
    drop(stdin);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(written < 16 << 20, "{written} bytes were read of a line that is too long at 128 KiB");
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1"), "{}", show(&output));
}

#[test]
fn what_is_not_there_is_not_found() {
    let farm = Farm::with_server(&[]);
    for args in [
        &["job", "show", "99"][..],
        &["logs", "99.0"],
        &["why", "99.0"],
        &["job", "wait", "99"],
        &["job", "tasks", "99"],
    ] {
        let said = farm.fails(3, args);
        assert!(said.contains("99"), "{args:?}: {said}");
    }
    farm.ok(&["run", "--", "true"]);
    farm.fails(3, &["logs", "1.5"]);
    farm.fails(2, &["job", "show", "twelve"]);
    let (status, answer) = get(&farm, "/api/v1/nothing", "Host: localhost\r\n");
    assert!(status == 404 && answer.contains("not_found"), "{answer}");
    let (status, answer) = get(&farm, "/api/v1/limits/maya", "Host: localhost\r\n");
    assert!(status == 404 && answer.contains("there is no limit 'maya'"), "{answer}");
    assert_eq!(get(&farm, "/api/v1/jobs/1/cancel", "Host: localhost\r\n").0, 405);
    assert_eq!(get(&farm, "/api/v1/jobs?limit=0", "Host: localhost\r\n").0, 400);
    assert_eq!(get(&farm, "/api/v1/jobs?stat=x", "Host: localhost\r\n").0, 400);
    assert_eq!(get(&farm, "/api/v1/jobs?state=sleepy", "Host: localhost\r\n").0, 400);
    assert_eq!(get(&farm, "/api/v1/jobs/18446744073709551616", "Host: localhost\r\n").0, 400);
}

#[test]
fn nobody_answers_where_nobody_is() {
    let farm = Farm::new();
    let said = farm.fails(5, &["--server", "127.0.0.1:1", "jobs"]);
    assert!(said.contains("127.0.0.1:1"), "{said}");
    farm.fails(2, &["run", "--cpus", "many", "--", "true"]);
    farm.fails(2, &["run", "--array", "9-1", "--", "true"]);
    farm.fails(2, &["frobnicate"]);
}

#[test]
fn servers_refuse_what_is_unsafe_or_unknown() {
    let farm = Farm::new();
    let start = |args: &[&str]| {
        let output = farm.run(&[&["server", "start"], args].concat());
        assert!(!output.status.success(), "{}", show(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let plain = start(&["--no-worker", "--listen", "0.0.0.0:0"]);
    assert!(plain.contains("plain text") && plain.contains("--tls-cert"), "{plain}");
    let open = start(&["--no-worker", "--listen", "0.0.0.0:0", "--trust-this-machine"]);
    assert!(open.contains("reached from other machines") || open.contains("as root"), "{open}");
    if rustix::process::geteuid().is_root() {
        let as_root = start(&["--listen", "127.0.0.1:0"]);
        assert!(as_root.contains("would run as root") && as_root.contains("--map-user"), "{as_root}");
        let worker = farm.fails(2, &["--server", "127.0.0.1:1", "worker", "start"]);
        assert!(worker.contains("would run as root") && worker.contains("--map-user"), "{worker}");
    }
    let postgres = start(&["--store", "postgres://u:hunter2@127.0.0.1:1/d"]);
    assert!(postgres.contains("cannot reach postgres://127.0.0.1:1/d"), "{postgres}");
    assert!(!postgres.contains("hunter2"), "{postgres}");
    assert!(start(&["--listen", "nonsense"]).contains("nonsense"));
    std::fs::write(farm.work().join("bad.toml"), "keep_dayz = 1\n").unwrap();
    assert!(start(&["--config", "bad.toml"]).contains("keep_dayz"));
}

#[test]
fn every_list_comes_in_parts_and_is_filtered() {
    let farm = Farm::with_server(&["--name", "box", "--tag", "ssd"]);
    let items = |path: &str| {
        let (status, answer) = get(&farm, path, "Host: localhost\r\n");
        assert_eq!(status, 200, "{path}: {answer}");
        let page: serde_json::Value = serde_json::from_str(answer.trim()).unwrap();
        (page["items"].as_array().unwrap().len(), page["next"].as_str().map(str::to_owned))
    };
    for queue in ["a", "b", "vip"] {
        farm.ok(&["run", "--queue", queue, "--array", "1-3", "--", "true"]);
    }
    assert_eq!(items("/api/v1/queues?limit=2"), (2, Some("b".to_owned())));
    assert_eq!(items("/api/v1/queues?cursor=b"), (1, None));
    assert_eq!(items("/api/v1/queues?band=9"), (1, None));
    assert_eq!(items("/api/v1/workers?tag=ssd&state=up&name=bo").0, 1);
    assert_eq!(items("/api/v1/workers?tag=hdd").0, 0);
    assert_eq!(items("/api/v1/workers?cursor=1").0, 0);
    assert_eq!(items("/api/v1/jobs?limit=2"), (2, Some("2".to_owned())));
    assert_eq!(items("/api/v1/jobs?limit=2&cursor=2"), (1, None));
    assert_eq!(items("/api/v1/jobs?queue=vip&state=succeeded"), (1, None));
    assert_eq!(items("/api/v1/jobs/1/tasks?limit=2"), (2, Some("2".to_owned())));
    assert_eq!(items("/api/v1/jobs/1/tasks?limit=2&cursor=2&state=succeeded"), (1, None));
    assert_eq!(items("/api/v1/jobs/1/tasks?state=failed"), (0, None));
}

#[test]
fn pages_of_other_origins_are_refused() {
    let farm = Farm::with_server(&[]);
    assert_eq!(get(&farm, "/api/v1/jobs", "Host: localhost\r\n").0, 200);
    assert_eq!(get(&farm, "/api/v1/jobs", "Host: localhost\r\nOrigin: http://evil.example\r\n").0, 400);
    assert_eq!(get(&farm, "/api/v1/jobs", "Host: evil.example\r\n").0, 400);
}

#[test]
fn garbage_on_the_socket_disturbs_nobody() {
    let farm = Farm::with_server(&[]);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..300 {
        let mut bytes = Vec::new();
        for _ in 0..40 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes.extend_from_slice(&random.to_le_bytes());
        }
        let mut stream = UnixStream::connect(farm.socket()).unwrap();
        _ = stream.write_all(&bytes);
        let keeper = std::fs::File::open(farm.state()).unwrap();
        let path = format!("/proc/self/fd/{}/keeper.sock", std::os::fd::AsRawFd::as_raw_fd(&keeper));
        if random.is_multiple_of(10) {
            // It takes the newest connection for its agent; the real one comes back.
            let mut stream = UnixStream::connect(path).unwrap();
            _ = stream.write_all(&bytes);
        }
    }
    farm.ok(&["run", "--", "true"]);
}

/// A server's clock was 15 days off when it was set: an event of five minutes ago is still shown as five minutes old.
#[test]
fn ages_are_by_the_clock_of_the_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    const CREATED_MS: u64 = 1_600_000_000_000;
    let now_ms = CREATED_MS + 300_000;
    let token = json!({"id": "a1", "role": "user", "user": "ann", "created_ms": CREATED_MS, "expires_ms": now_ms + 9});
    let body = json!({"name": "windlass", "version": "0.1.0", "store": "memory", "pid": 1, "items": [token]})
        .to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nWindlass-Clock-Ms: {now_ms}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            _ = stream.read(&mut request);
            _ = stream.write_all(answer.as_bytes());
        }
    });
    let farm = Farm::not_started_in(tempfile::tempdir().unwrap());
    let list = farm.ok(&["--server", &address, "token", "list"]);
    assert!(list.contains(" 5m ") && list.contains("valid"), "{list}");
}

#[test]
fn an_argument_that_is_not_text_is_named() {
    use std::os::unix::ffi::OsStrExt as _;
    let farm = Farm::new();
    let mut command = farm.command(&["run", "--", "echo"]);
    let output = command.arg(std::ffi::OsStr::from_bytes(b"caf\xe9")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(said.contains("argument 4, 'caf\u{fffd}', is not valid UTF-8"), "{said}");
}
