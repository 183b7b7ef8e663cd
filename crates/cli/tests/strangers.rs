//! Clients without a token must not disturb others.

use crate::support::port::{KillOnDrop, Port, connect_from};
use crate::support::{self, PATIENCE, peak_mib, show, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How soon a user's task starts and ends during an attack.
const SOON: Duration = Duration::from_secs(3);

/// A server with tokens over plain TCP, so that a test can write arbitrary bytes.
fn open(flags: &[&str]) -> Port {
    Port::open(&[&["--insecure-plaintext"], flags].concat())
}

fn connect(port: &Port) -> TcpStream {
    let stream = TcpStream::connect(port.host()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The status of the answer; 0 without one.
fn status(stream: &mut TcpStream) -> u16 {
    let mut answer = [0; 12];
    match stream.read_exact(&mut answer) {
        Ok(()) => String::from_utf8_lossy(&answer[9..]).parse().unwrap_or(0),
        Err(_) => 0,
    }
}

fn head(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
}

#[test]
fn h1_nobody_s_body_is_read_before_it_is_known_whose_it_is() {
    const SUBMIT: &str = "/scheduler/v1/jobs/submit";
    let port = open(&["--compass"]);
    let ann = port.token(&["--role", "user", "--user", "ann"]);
    // With its length in the head: refused by the head.
    let mut stream = connect(&port);
    stream.write_all(head(SUBMIT, "Content-Length: 60000000\r\n").as_bytes()).unwrap();
    assert_eq!(status(&mut stream), 413);
    // Without its length: refused as soon as it is too long for a client without a token.
    let mut stream = connect(&port);
    stream.write_all(head(SUBMIT, "Transfer-Encoding: chunked\r\n").as_bytes()).unwrap();
    let zeros = "0,".repeat(32 << 10);
    let mut part = format!("{:x}\r\n", zeros.len() + 6).into_bytes();
    part.extend_from_slice(b"{\"a\":[");
    part.extend_from_slice(zeros.as_bytes());
    part.truncate(part.len() - 1);
    part.extend_from_slice(b"\r\n10000\r\n");
    _ = stream.write_all(&part);
    _ = stream.write_all(&[b'0'; 1 << 16]);
    assert_eq!(status(&mut stream), 401);
    let floods: Vec<_> = (0..16).map(|_| flood(&port, SUBMIT)).collect();
    let clock = Instant::now();
    port.ok_as(&ann, &["run", "--cwd", "/", "--", "true"]);
    assert!(clock.elapsed() < SOON, "{:?}", clock.elapsed());
    floods.into_iter().for_each(|flood| _ = flood.join());
    assert!(peak_mib(port.pid()) < 300, "{} MiB", peak_mib(port.pid()));
}

/// Sixty megabytes of a body that would have a gigabyte as a tree.
fn flood(port: &Port, path: &str) -> std::thread::JoinHandle<()> {
    let (mut stream, head) = (connect(port), head(path, "Transfer-Encoding: chunked\r\n"));
    std::thread::spawn(move || {
        let part = format!("10000\r\n{}\r\n", "0,".repeat(1 << 15));
        _ = stream.write_all(head.as_bytes());
        for _ in 0..900 {
            if stream.write_all(part.as_bytes()).is_err() {
                return;
            }
        }
    })
}

#[test]
fn h1_slow_bodies_and_idle_connections_of_a_machine_shut_out_nobody_of_it() {
    let port = open(&["--compass"]);
    support::raise_file_limit();
    let ann = port.token(&["--role", "user", "--user", "ann"]);
    // The client comes from the same address.
    let slow: Vec<TcpStream> = (0..1100)
        .map(|_| {
            let mut stream = connect_from("127.0.0.1", port.host());
            let head = head("/scheduler/v1/jobs/submit", "Content-Length: 60000\r\n");
            _ = stream.write_all(head.as_bytes());
            _ = stream.write_all(b"{");
            stream
        })
        .collect();
    let clock = Instant::now();
    port.ok_as(&ann, &["run", "--cwd", "/", "--", "true"]);
    assert!(clock.elapsed() < SOON, "{:?}", clock.elapsed());
    drop(slow);
}

#[test]
fn m3_descriptors_are_left_for_the_administrator_and_for_workers() {
    let mut port = open(&[]);
    port.restart_with_limit(300);
    let token = port.token(&["--role", "worker", "--worker", "box1"]);
    let strangers: Vec<TcpStream> =
        (0..600).map(|n| connect_from(&format!("127.0.1.{}", 1 + n % 200), port.host())).collect();
    let clock = Instant::now();
    port.admin(&["server", "status"]);
    assert!(clock.elapsed() < SOON, "{:?}", clock.elapsed());
    let worker = port.worker(&token, "box1");
    wait_until("the worker is let in", || port.admin(&["workers", "-o", "name"]).contains("box1"));
    drop((strangers, worker));
}

#[test]
fn h1_compass_is_there_only_where_it_is_switched_on() {
    let port = open(&[]);
    let ask = |port: &Port, path: &str| {
        let mut stream = connect(port);
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        status(&mut stream)
    };
    for path in ["/scheduler/v1/health", "/boot.ipxe/mac/00-00-00-00-00-00", "/submit_job"] {
        assert_eq!(ask(&port, path), 401, "{path}");
    }
    assert_eq!(ask(&open(&["--compass"]), "/scheduler/v1/health"), 200);
}

#[test]
fn m5_a_worker_that_is_not_let_in_says_why_in_the_words_of_the_manual() {
    let port = open(&["--no-worker"]);
    let (ended, wrong) = (
        port.token(&["--role", "worker", "--worker", "box1"]),
        port.token(&["--role", "user", "--user", "ann"]),
    );
    let id = ended.split('_').nth(1).unwrap();
    port.admin(&["token", "revoke", id]);
    let unknown = format!("wl_{}_{}", "0".repeat(12), "0".repeat(64));
    let cases = [(&ended, "revoked"), (&wrong, "role does not allow"), (&unknown, "not known")];
    for (token, why) in cases {
        let said = port.refused_worker(token);
        assert!(said.contains("does not let this worker in") && said.contains(why), "{why}: {said}");
    }
}

#[test]
fn m7_a_password_that_a_browser_repeats_changes_nothing() {
    let port = open(&["--compass"]);
    let ann = port.token(&["--role", "user", "--user", "ann"]);
    let curl = |args: &[&str], path: &str| {
        let url = format!("http://{}{path}", port.host());
        let output = Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}"])
            .args(args)
            .arg(url)
            .stderr(Stdio::null())
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let password = format!("ann:{ann}");
    let job = r#"{"steps": [{"command": ["true"]}]}"#;
    assert_eq!(curl(&["-u", &password, "-d", job], "/api/v1/jobs"), "401");
    assert_eq!(curl(&["-u", &password], "/scheduler/v1/dashboard/jobs/pending"), "200");
    let bearer = format!("Authorization: Bearer {ann}");
    let foreign = ["-H", "Origin: http://evil.example", "-H", &bearer, "-d", job];
    assert_eq!(curl(&foreign, "/api/v1/jobs"), "400");
    assert_eq!(curl(&["-H", &bearer, "-d", job], "/api/v1/jobs"), "201");
    // Over HTTP/2 the name is elsewhere, and a request that is refused is answered although it still sends.
    let large = "x".repeat(60_000);
    for _ in 0..6 {
        let args = ["--http2-prior-knowledge", "-d", large.as_str()];
        assert_eq!(curl(&args, "/api/v1/jobs"), "401", "{}", port.log());
    }
}

#[test]
fn l1_a_name_of_another_owner_is_refused_over_http2_too() {
    // A client of the socket needs no token. A page in a browser on this machine is refused by its host name.
    let farm = support::Farm::with_server(&[]);
    let output = Command::new("curl")
        .args(["-s", "--http2-prior-knowledge", "--unix-socket"])
        .arg(farm.socket())
        .arg("http://evil.example:80/api/v1/jobs")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("web pages are refused"), "{}", show(&output));
}

#[test]
fn l3_a_client_that_speaks_plainly_to_a_port_with_tls_is_told() {
    let port = Port::with_tls(&["--no-worker"]);
    let output = port.run_as("", &["--server", port.host(), "jobs"]);
    assert!(show(&output).contains("this port speaks TLS: write https://"), "{}", show(&output));
}

#[test]
fn a_worker_that_speaks_plainly_to_a_port_with_tls_is_told() {
    let port = Port::with_tls(&["--no-worker"]);
    let log = port.dir.join("plain.log");
    let mut command = port.farm.command(&["worker", "start", "--name", "plain", "--as-root"]);
    command.env("WINDLASS_STATE", port.dir.join("plain"));
    command.env("WINDLASS_SERVER", format!("http://{}", port.host()));
    let _worker = KillOnDrop(command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap());
    wait_until("the worker says what to write", || {
        let said = std::fs::read_to_string(&log).unwrap();
        said.contains("if this port speaks TLS, write https://HOST:PORT, and give --ca")
    });
}
