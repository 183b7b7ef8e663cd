//! Every request of every gateway with the largest body that it takes, in forms that cost most to read: what stays
//! resident afterwards is less than twice the body, and the program is up again at once after a restart.

use crate::site::{Site, free_port, start_until};
use crate::support::port::{KillOnDrop, Port};
use crate::support::{self, Random, peak_mib, resident_bytes, wait_until, windlass};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use windlass_cuebot::served_paths;

/// How soon a server answers after it was started again.
const UP_WITHIN: Duration = Duration::from_secs(2);
/// What the allocator may keep beside, whatever came.
const SLACK_BYTES: u64 = 8 << 20;

/// A path, the bytes that its bodies may have, and fields around what is large.
struct Door {
    path: &'static str,
    bytes_max: usize,
    fields: &'static str,
}

const fn door(path: &'static str, bytes_max: usize, fields: &'static str) -> Door {
    Door { path, bytes_max, fields }
}

const NIX_BYTES_MAX: usize = 4 << 20;
const COMPASS_BYTES_MAX: usize = 24 << 20;
const SMALL_BYTES_MAX: usize = 256 << 10;

const OF_SERVER: [Door; 12] = [
    door(
        "/nix/v1/try",
        NIX_BYTES_MAX,
        r#""in_flight_max":0,"wanted":{"client":"c","system":"s","machines":[],"features":@}"#,
    ),
    door(
        "/nix/v1/builds",
        NIX_BYTES_MAX,
        r#""wanted":{"client":"c","system":"s","machines":@,"features":[]}"#,
    ),
    door("/nix/v1/builds/1/report", NIX_BYTES_MAX, r#""attempt":1,"outcome":{"outcome":"lost","message":@}"#),
    door(
        "/scheduler/v1/jobs/submit",
        COMPASS_BYTES_MAX,
        r#""suite":"x","testbox":"dc-1g","os":"d","os_version":"1","x":@"#,
    ),
    door(
        "/submit_job",
        COMPASS_BYTES_MAX,
        r#""suite":"x","testbox":"dc-1g","os":"d","os_version":"1","x":@"#,
    ),
    door("/scheduler/v1/jobs/wait", COMPASS_BYTES_MAX, r#""jobs":@"#),
    door("/scheduler/v1/jobs/1/update", SMALL_BYTES_MAX, r#""job_stage":@"#),
    door("/scheduler/v1/jobs/1/cancel", SMALL_BYTES_MAX, r#""x":@"#),
    door("/scheduler/v1/jobs/1/terminate", SMALL_BYTES_MAX, r#""x":@"#),
    door("/scheduler/v1/hosts/h1", SMALL_BYTES_MAX, r#""arch":"x86_64","x":@"#),
    door("/scheduler/v1/accounts/a", SMALL_BYTES_MAX, r#""my_email":@"#),
    door("/scheduler/v1/clusters/c", SMALL_BYTES_MAX, r#""nodes":@"#),
];

/// Values whose text is short and whose form in memory is large, or that are deep, or one large text.
const FORMS: [(&str, &str, &str); 6] = [
    ("[", "0,", "0]"),
    ("[", "\"\",", "\"\"]"),
    ("[", "[],", "[]]"),
    ("[", "{\"\":{}},", "{}]"),
    ("", "[", "]"),
    ("\"", "x", "\""),
];

/// A body of the largest size.
fn body(door: &Door, (open, part, close): (&str, &str, &str)) -> Vec<u8> {
    let (before, after) = door.fields.split_once('@').unwrap();
    let ends = before.len() + after.len() + open.len() + close.len() + 2;
    let mut body = format!("{{{before}{open}");
    let room = door.bytes_max - ends;
    body.push_str(&part.repeat(room / part.len()));
    body.push_str(&" ".repeat(room % part.len()));
    body.push_str(&format!("{close}{after}}}"));
    assert_eq!(body.len(), door.bytes_max);
    body.into_bytes()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut random = Random(0x1234_5678_9abc_def1);
    (0..bytes / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Sends a body and waits for the answer. Returns its status; 0 where the connection ended without one.
fn post(host: &str, path: &str, headers: &str, body: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let mut answer = [0; 16];
    let count = stream.read(&mut answer).unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    answer.split(' ').nth(1).and_then(|word| word.get(..3)?.parse().ok()).unwrap_or(0)
}

/// What a program may keep.
struct Kept {
    pid: u32,
    before: u64,
    largest: usize,
}

impl Kept {
    fn of(pid: u32) -> Kept {
        Kept { pid, before: resident_bytes(pid), largest: 0 }
    }

    /// Fails where a program keeps, or ever held, more than twice the largest body that came so far. While a body is read
    /// it is there a second time, and more than once for what is made of it.
    fn check(&mut self, path: &str, bytes: usize) {
        self.largest = self.largest.max(bytes);
        let Kept { pid, before, largest } = *self;
        let (now, peak) = (resident_bytes(pid), peak_mib(pid) << 20);
        let mib = [before, now, peak, largest as u64].map(|bytes| bytes >> 20);
        assert!(
            now < before + 2 * largest as u64 + SLACK_BYTES,
            "{path}: {mib:?} MiB before, now, peak, body"
        );
        assert!(
            peak < before + 4 * largest as u64 + 2 * SLACK_BYTES,
            "{path}: {mib:?} MiB before, now, peak, body"
        );
    }
}

#[test]
fn the_server_keeps_less_than_twice_the_largest_body() {
    let mut port = Port::open(&["--insecure-plaintext", "--nix", "--compass", "--no-worker"]);
    let token = port.token(&["--role", "user", "--user", "ann"]);
    let host = port.host().to_owned();
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    post(&host, OF_SERVER[0].path, &headers, b"{}");
    let mut kept = Kept::of(port.pid());
    for door in &OF_SERVER {
        let bodies = FORMS.map(|form| body(door, form));
        for body in bodies.iter().chain([&noise(door.bytes_max)]) {
            let status = post(&host, door.path, &headers, body);
            assert!(status != 0 && status != 500, "{}: {status}", door.path);
            kept.check(door.path, door.bytes_max);
        }
    }
    let yaml = headers.replace("json", "yaml");
    for form in ["- {a: {}}\n", "- a\n", "- [[]]\n", "a: &a [*a]\n", "\"x\": 'y'\n"] {
        let bytes = COMPASS_BYTES_MAX;
        let status =
            post(&host, "/scheduler/v1/jobs/submit", &yaml, form.repeat(bytes / form.len()).as_bytes());
        assert!(status != 0 && status != 500, "{form}: {status}");
        kept.check("/scheduler/v1/jobs/submit", bytes);
    }
    let clock = Instant::now();
    port.restart_with_limit(4096);
    assert!(clock.elapsed() < UP_WITHIN, "up after {:?}", clock.elapsed());
}

#[test]
fn the_scheduler_of_sccache_keeps_less_than_twice_the_largest_body() {
    const BYTES_MAX: usize = 64 << 10;
    let (dir, host) = (tempfile::tempdir().unwrap(), format!("127.0.0.1:{}", free_port()));
    let text = format!(
        "public_addr = \"{host}\"\nclient_auth = {{ type = \"token\", token = \"client\" }}\n\
         server_auth = {{ type = \"token\", token = \"server\" }}\n"
    );
    std::fs::write(dir.path().join("scheduler.toml"), text).unwrap();
    let mut command = Command::new(windlass());
    command.args(["gateway", "sccache", "--config"]).arg(dir.path().join("scheduler.toml"));
    command.arg("--state").arg(dir.path().join("state")).stdout(Stdio::null()).stderr(Stdio::null());
    let running = KillOnDrop(command.spawn().unwrap());
    wait_until("sccache's scheduler listens", || TcpStream::connect(&host).is_ok());
    let mut kept = Kept::of(running.0.id());
    for (path, token) in [("alloc_job", "client"), ("heartbeat_server", "server"), ("job_state/1", "server")]
    {
        let path = format!("/api/v1/scheduler/{path}");
        let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/octet-stream\r\n");
        for body in [vec![0; BYTES_MAX], vec![0xff; BYTES_MAX], noise(BYTES_MAX)] {
            assert_ne!(post(&host, &path, &headers, &body), 0, "{path}");
            kept.check(&path, BYTES_MAX);
        }
    }
}

#[test]
fn the_gateway_of_opencue_keeps_less_than_twice_the_largest_body() {
    const LAUNCH_BYTES_MAX: usize = 17 << 20;
    const CALL_BYTES_MAX: usize = 1 << 20;
    let Some(site) = Site::new(&[FACILITY]) else { return };
    let host = format!("127.0.0.1:{}", free_port());
    let board = format!("127.0.0.1:{}", free_port());
    let config =
        site.config(&format!("windlass:\n  cuebot: {{listen: '{host}'}}\n  board: {{listen: '{board}'}}"));
    let running = start_until(&config, "the board: http://");
    let mut kept = Kept::of(running.0.id());
    let headers = "Content-Type: application/grpc\r\nTE: trailers\r\n";
    let paths = served_paths();
    assert!(paths.len() > 20, "{paths:?}");
    for path in paths {
        let is_launch = path.starts_with("/job.JobInterface/LaunchSpec");
        let bytes = if is_launch { LAUNCH_BYTES_MAX } else { CALL_BYTES_MAX };
        for form in ["<x>", "<x/>", "&#0;", "x"] {
            let text = form.repeat((bytes - 16) / form.len());
            // A message: not compressed, its length, and one field of text.
            let mut message = vec![0x0a];
            let mut length = text.len();
            while length >= 0x80 {
                message.push(length as u8 | 0x80);
                length >>= 7;
            }
            message.push(length as u8);
            message.extend_from_slice(text.as_bytes());
            let mut framed = vec![0];
            framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
            framed.extend_from_slice(&message);
            assert_ne!(post(&host, path, headers, &framed), 0, "{path}");
            kept.check(path, bytes);
        }
    }
}

/// Facts that OpenCue's tables must have for the gateway to start.
const FACILITY: &str = "
INSERT INTO facility (pk_facility, str_name, b_default) VALUES ('FAC', 'local', true);
INSERT INTO dept (pk_dept, str_name, b_default) VALUES ('DEPT', 'unknown', true);
INSERT INTO alloc (pk_alloc, str_name, str_tag, pk_facility, b_default)
    VALUES ('ALLOC', 'local.general', 'general', 'FAC', true)";
