//! One flood over all ports of all subcommands, at once. Each connection is ended by the program within a minute, in
//! bounded memory, while others are answered.

use crate::flood::{self, Ended, Victim};
use crate::listening;
use crate::percentile;
use crate::site::{Site, free_port, start_until};
use crate::support::port::{KillOnDrop, Port};
use crate::support::{self, Farm, peak_mib, wait_until, windlass};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a connection may last that gives the program nothing to do.
const ENDED_WITHIN: Duration = Duration::from_secs(60);
const MIB_MAX: u64 = 200;
/// How soon others are answered meanwhile.
const P99_MAX: Duration = Duration::from_secs(1);
/// Between two requests of another client.
const BETWEEN: Duration = Duration::from_millis(50);

/// Facts that OpenCue's tables must have for the gateway to start.
const FARM: &str = "
INSERT INTO facility (pk_facility, str_name, b_default) VALUES ('FAC', 'local', true);
INSERT INTO dept (pk_dept, str_name, b_default) VALUES ('DEPT', 'unknown', true);
INSERT INTO alloc (pk_alloc, str_name, str_tag, pk_facility, b_default)
    VALUES ('ALLOC', 'local.general', 'general', 'FAC', true)";

/// A port that is flooded, and what another client asks there meanwhile.
struct Flooded {
    name: &'static str,
    pid: u32,
    victim: Victim,
    /// A whole request, and the first line of its answer.
    request: String,
    answer: &'static str,
}

impl Flooded {
    fn ask(&self) -> Duration {
        let clock = Instant::now();
        let mut stream = TcpStream::connect(&self.victim.host).unwrap();
        stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
        stream.write_all(self.request.as_bytes()).unwrap();
        let mut said = vec![0; self.answer.len()];
        let read = stream.read_exact(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(read.is_ok() && said == self.answer, "{}: {read:?} {said}", self.name);
        clock.elapsed()
    }

    /// Asks until the floods are over.
    fn ask_on(&self, over: &mpsc::Receiver<()>) -> Vec<Duration> {
        let mut took = vec![self.ask()];
        while over.recv_timeout(BETWEEN) == Err(RecvTimeoutError::Timeout) {
            took.push(self.ask());
        }
        took
    }
}

fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// Fails where a process listens elsewhere than where this suite expects it: a new port has to be flooded, too.
fn expect(name: &str, pid: u32, expected: &[String]) {
    let expected: BTreeSet<String> = expected.iter().cloned().collect();
    assert_eq!(listening::of(pid), expected, "the ports of {name}");
}

/// The sockets of `server start` with tokens. The board has no port of its own there.
fn server(from: &str) -> (Port, Flooded) {
    let port = Port::open(&["--insecure-plaintext", "--compass", "--no-worker"]);
    let ann = port.token(&["--role", "user", "--user", "ann"]);
    let admin = port.farm.state().join("admin.sock");
    expect("server", port.pid(), &[format!("tcp {}", port.host()), format!("unix {}", admin.display())]);
    let job = r#"{"steps": [{"command": ["true"]}]}"#;
    let request = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {ann}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{job}",
        port.host(),
        job.len()
    );
    let (path, body_bytes_max) = ("/scheduler/v1/jobs/submit", 64 << 10);
    let victim = Victim { host: port.host().to_owned(), from: from.to_owned(), path, body_bytes_max };
    let flooded =
        Flooded { name: "server", pid: port.pid(), victim, request, answer: "HTTP/1.1 201 Created" };
    (port, flooded)
}

/// The board's port of a server on a unix socket.
fn own_server(from: &str) -> (Farm, Flooded) {
    let farm = Farm::with_server(&["--no-worker"]);
    let socket = format!("unix {}", farm.socket().display());
    expect("a server of one's own", farm.server_pid(), std::slice::from_ref(&socket));
    let made = Command::new("curl")
        .args(["-s", "-X", "POST", "--unix-socket"])
        .arg(farm.socket())
        .arg("http://localhost/api/v1/board/codes")
        .output()
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let host = made["address"].as_str().unwrap().trim_start_matches("http://").to_owned();
    expect("a server with a board", farm.server_pid(), &[socket, format!("tcp {host}")]);
    let flooded = board("board of a server", farm.server_pid(), host, from);
    (farm, flooded)
}

fn board(name: &'static str, pid: u32, host: String, from: &str) -> Flooded {
    let request = get("/", &host);
    let victim =
        Victim { host, from: from.to_owned(), path: "/api/v1/board/session", body_bytes_max: 4 << 10 };
    Flooded { name, pid, victim, request, answer: "HTTP/1.1 200 OK" }
}

/// A server that is the scheduler of sccache and nothing else.
fn sccache(dir: &Path, from: &str) -> (KillOnDrop, Flooded) {
    let host = format!("127.0.0.1:{}", free_port());
    let text = format!(
        "public_addr = \"{host}\"\nclient_auth = {{ type = \"token\", token = \"client\" }}\n\
         server_auth = {{ type = \"token\", token = \"server\" }}\n"
    );
    std::fs::write(dir.join("scheduler.toml"), text).unwrap();
    let mut command = Command::new(windlass());
    command.args(["gateway", "sccache", "--config"]).arg(dir.join("scheduler.toml"));
    command.arg("--state").arg(dir.join("state")).stdout(Stdio::null()).stderr(Stdio::null());
    let running = KillOnDrop(command.spawn().unwrap());
    wait_until("sccache's scheduler listens", || TcpStream::connect(&host).is_ok());
    let (pid, socket) = (running.0.id(), dir.join("state/run/server.sock"));
    expect("gateway sccache", pid, &[format!("tcp {host}"), format!("unix {}", socket.display())]);
    let request = get("/api/v1/scheduler/status", &host);
    let (path, body_bytes_max) = ("/api/v1/scheduler/alloc_job", 64 << 10);
    let victim = Victim { host, from: from.to_owned(), path, body_bytes_max };
    let flooded = Flooded { name: "sccache", pid, victim, request, answer: "HTTP/1.1 200 OK" };
    (running, flooded)
}

/// OpenCue's hosts and clients, counts, and the board. `None` where there is no PostgreSQL.
fn opencue(from: [&str; 3]) -> Option<(Site, KillOnDrop, [Flooded; 3])> {
    let site = Site::new(&[FARM])?;
    let [cuebot, metrics, at_board] = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
    let config = site.config(&format!(
        "windlass:\n  cuebot: {{listen: '{cuebot}'}}\n  metrics_listen: '{metrics}'\n  board: {{listen: '{at_board}'}}"
    ));
    let running = start_until(&config, "the board: http://");
    let pid = running.0.id();
    expect("gateway opencue", pid, &[&cuebot, &metrics, &at_board].map(|host| format!("tcp {host}")));
    // The answer to a call that is not served needs no database.
    let request = get("/none.Interface/Call", &cuebot);
    let (path, body_bytes_max) = ("/job.JobInterface/LaunchSpec", 17 << 20);
    let victim = Victim { host: cuebot, from: from[0].to_owned(), path, body_bytes_max };
    let calls = Flooded { name: "cuebot", pid, victim, request, answer: "HTTP/1.1 200 OK" };
    let request = get("/metrics", &metrics);
    let victim =
        Victim { host: metrics, from: from[1].to_owned(), path: "/metrics", body_bytes_max: 1 << 20 };
    let counts = Flooded { name: "metrics", pid, victim, request, answer: "HTTP/1.1 200 OK" };
    let board = board("board of OpenCue", pid, at_board, from[2]);
    Some((site, running, [calls, counts, board]))
}

#[test]
fn all_ports_of_all_subcommands_withstand_floods_at_once() {
    let _machine = crate::machine();
    windlass_worker::raise_file_limit();
    let dir = tempfile::tempdir().unwrap();
    let (_port, of_server) = server("127.0.1.1");
    let (_farm, of_own_server) = own_server("127.0.1.2");
    let (_sccache, of_sccache) = sccache(dir.path(), "127.0.1.3");
    let mut all = vec![of_server, of_own_server, of_sccache];
    let opencue = opencue(["127.0.1.4", "127.0.1.5", "127.0.1.6"]);
    let _running = opencue.map(|(site, running, flooded)| {
        all.extend(flooded);
        // The gateway ends before its database does.
        (running, site)
    });
    let reports: Vec<(Ended, Vec<Duration>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .iter()
            .map(|flooded| {
                let (over, is_over) = mpsc::channel();
                let asks = scope.spawn(move || flooded.ask_on(&is_over));
                let floods = scope.spawn(move || flood::run(&flooded.victim, ENDED_WITHIN));
                (over, asks, floods)
            })
            .collect();
        let reports = threads.into_iter().map(|(over, asks, floods)| {
            let ended = floods.join();
            drop(over);
            (ended.unwrap(), asks.join().unwrap())
        });
        reports.collect()
    });
    for (flooded, (ended, mut took)) in all.iter().zip(reports) {
        let (p99, mib) = (percentile(&mut took, 0.99), peak_mib(flooded.pid));
        println!("{}: {ended:?}, {} requests of others, p99 {p99:?}, {mib} MiB", flooded.name, took.len());
        assert!(p99 < P99_MAX, "{}: {p99:?}", flooded.name);
        assert!(mib < MIB_MAX, "{}: {mib} MiB", flooded.name);
    }
}
