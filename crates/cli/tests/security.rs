//! Authentication, and random bytes on every port.

use crate::support::port::{Port, connect_from};
use crate::support::{self, Farm, Random, findings, is_root, show, wait_until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_token_lets_in_as_far_as_its_role_goes() {
    let port = Port::with_tls(&[]);
    let ann = port.token(&["--role", "user", "--user", "ann", "--expires", "30d"]);
    let bob = port.token(&["--role", "user", "--user", "bob"]);
    let viewer = port.token(&["--role", "viewer"]);
    let worker = port.token(&["--role", "worker", "--worker", "box1"]);
    let admin = port.token(&["--role", "admin"]);
    assert_eq!(port.ok_as(&ann, &["run", "--", "echo", "hello"]).trim(), "hello");
    assert_eq!(port.ok_as(&viewer, &["jobs", "--user", "ann", "-o", "name"]).trim(), "1");
    let said = port.denied(&viewer, &["submit", "--", "true"]);
    assert!(said.contains("role does not allow"), "{said}");
    assert!(said.contains("has the role viewer, and this needs the role user or submitter"), "{said}");
    // A run inside a task shows the token of the file that its environment names.
    std::fs::write(port.dir.join("ann.token"), format!("{ann}\n")).unwrap();
    let mut outer = port.farm.command(&["run", "--", support::windlass(), "run", "--", "echo", "inner"]);
    outer.env("WINDLASS_SERVER", &port.address).env("WINDLASS_CA", "ca/ca.pem");
    let outer = outer.env("WINDLASS_TOKEN_FILE", "ann.token").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&outer.stdout).trim(), "inner", "{}", show(&outer));
    let job = port.ok_as(&ann, &["submit", "--", "sleep", "1000"]);
    let said = port.denied(&bob, &["job", "cancel", job.trim()]);
    assert!(said.contains("belongs to another user"), "{said}");
    port.denied(&bob, &["token", "list"]);
    let said = port.denied(&bob, &["worker", "drain", "box"]);
    assert!(said.contains("needs the role admin") && said.contains("ask an administrator"), "{said}");
    port.denied(&bob, &["server", "stop"]);
    port.denied(&worker, &["jobs"]);
    port.ok_as(&ann, &["job", "cancel", "last"]);
    let listed = port.ok_as(&admin, &["token", "list"]);
    let secret = ann.rsplit_once('_').unwrap().1;
    assert!(listed.contains("ann") && !listed.contains(secret), "{listed}");
    for told in [port.log(), port.audit()] {
        assert!(!told.contains(secret), "the secret of a token was written down");
    }
    let database = std::fs::read(port.farm.state().join("windlass.db-wal")).unwrap();
    assert!(!database.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()));
}

#[test]
fn forged_old_and_revoked_tokens_are_refused_with_the_reason() {
    let port = Port::with_tls(&[]);
    let ann = port.token(&["--role", "user", "--user", "ann"]);
    let short = port.token(&["--role", "user", "--user", "ann", "--expires", "1ms"]);
    let (id, _) = ann.trim_start_matches("wl_").split_once('_').unwrap();
    let forged = format!("wl_{id}_{}", "0".repeat(64));
    for (token, why) in
        [(&*forged, "not known"), ("hunter2", "malformed token"), ("", "has none"), (&short, "expired")]
    {
        let said = port.denied(token, &["jobs"]);
        assert!(said.contains(why) && said.contains("hint"), "{token}: {said}");
        assert!(port.log().contains(why), "{}", port.log());
    }
    port.ok_as(&ann, &["jobs"]);
    port.admin(&["token", "revoke", id]);
    assert!(port.denied(&ann, &["jobs"]).contains("revoked"));
    let audit = port.audit();
    let lines: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused = lines.iter().find(|line| line["status"] == 401).unwrap();
    assert!(refused["path"].is_string() && refused["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    let revoked = lines.iter().find(|line| line["method"] == "DELETE").unwrap();
    assert_eq!((revoked["peer"].as_str(), revoked["role"].as_str()), (Some("unix"), Some("admin")));
}

#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_asked() {
    let port = Port::with_tls(&["--tls-client-ca", "ca/ca.pem", "--set", "tls.require_client_cert=true"]);
    let ann = port.token(&["--role", "user", "--user", "ann"]);
    let output = port.run_as(&ann, &["jobs"]);
    assert_eq!(output.status.code(), Some(5), "{}", show(&output));
    wait_until("the server says so", || port.log().contains("no TLS: peer sent no certificates"));
    let with_cert = |token: &str| {
        let mut command = port.farm.command(&["jobs"]);
        command.env("WINDLASS_SERVER", &port.address).env("WINDLASS_CA", "ca/ca.pem");
        command.env("WINDLASS_TOKEN", token);
        command.env("WINDLASS_CERT", "ca/worker-box1.pem").env("WINDLASS_KEY", "ca/worker-box1.key");
        command.output().unwrap()
    };
    let output = with_cert(&ann);
    assert!(output.status.success(), "{}", show(&output));
    // A worker's token is only valid with that worker's certificate.
    let other = with_cert(&port.token(&["--role", "worker", "--worker", "box2"]));
    assert!(String::from_utf8_lossy(&other.stderr).contains("not the one of the worker"), "{}", show(&other));
    let own = with_cert(&port.token(&["--role", "worker", "--worker", "box1"]));
    assert!(String::from_utf8_lossy(&own.stderr).contains("role does not allow"), "{}", show(&own));
}

#[test]
fn the_network_sees_no_server_without_protection() {
    let farm = Farm::new();
    let refused = |flags: &[&str], why: &str| {
        let said = farm.fails(1, &[&["server", "start", "--listen", "0.0.0.0:0"], flags].concat());
        assert!(said.contains(why), "{said}");
    };
    let why = if rustix::process::geteuid().is_root() { "as root" } else { "reached from other machines" };
    refused(&["--trust-this-machine"], why);
    refused(&["--trust-this-machine", "--insecure-plaintext"], why);
    refused(&[], "plain text");
    refused(&["--auth"], "plain text");
    refused(&["--auth", "--tls-cert", "a.pem"], "tls.key");
    refused(&["--auth", "--tls-cert", "a.pem", "--tls-key", "a.key"], "a.key");
    farm.ok(&["ca", "init", "ca"]);
    let again = farm.fails(1, &["ca", "init", "ca"]);
    assert!(again.contains("exists already"), "{again}");
    farm.fails(2, &["ca", "issue", "ca", "--worker", "../../box"]);
    farm.fails(2, &["ca", "issue", "ca", "--worker", "*.farm"]);
    let mode = std::fs::metadata(farm.work().join("ca/ca.key")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}

#[test]
fn a_token_of_the_caller_does_not_become_part_of_the_job() {
    let farm = Farm::with_server(&[]);
    let mut command = farm.command(&["run", "--", "sh", "-c", "echo got ${WINDLASS_TOKEN-nothing}"]);
    let output = command.env("WINDLASS_TOKEN", "wl_secret").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "got nothing", "{}", show(&output));
}

#[test]
fn those_who_connect_and_say_nothing_hold_up_nobody_and_are_let_go() {
    let port = Port::with_tls(&[]);
    let ann = port.token(&["--role", "user", "--user", "ann"]);
    support::raise_file_limit();
    let mut silent: Vec<TcpStream> = (0..1024).map(|_| connect_from("127.0.0.2", port.host())).collect();
    // If its machine opens more connections than the limit, the oldest is closed at once, and others are not.
    let above = connect_from("127.0.0.2", port.host());
    assert_eq!(silent[0].read(&mut [0]).unwrap_or(0), 0);
    wait_until("the server says so", || port.log().contains("its machine has too many connections"));
    port.ok_as(&ann, &["run", "--", "true"]);
    // The others are closed when their time is over.
    assert_eq!(silent[1023].read(&mut [0]).unwrap_or(0), 0);
    drop(above);
    wait_until("the server says so", || port.log().contains("handshake took longer"));
}

/// Frames sent to each of the four ports; a million in all.
const FRAMES: usize = 250_000;
/// Frames on one connection.
const FRAMES_PER_CONNECTION: usize = 250;

impl Random {
    /// A frame of up to 63 random bytes; a third of them look like HTTP/2, a third like TLS.
    fn frame(&mut self) -> Vec<u8> {
        let random = self.next();
        let length = (random % 64) as usize;
        let mut frame: Vec<u8> = (0..length).map(|_| self.next() as u8).collect();
        match random >> 8 & 3 {
            0 => frame.splice(0..0, [0, 0, length as u8, (random >> 16) as u8 % 10, 0, 0, 0, 0, 1]).count(),
            1 => frame.splice(0..0, [22, 3, 1, 0, length as u8]).count(),
            _ => 0,
        };
        frame
    }

    /// The bytes of one connection; some begin like HTTP.
    fn connection(&mut self) -> Vec<u8> {
        let mut bytes = match self.next() % 3 {
            0 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            1 => b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n".to_vec(),
            _ => Vec::new(),
        };
        (0..FRAMES_PER_CONNECTION).for_each(|_| bytes.extend(self.frame()));
        bytes
    }
}

/// Sends all bytes, closes its side, and reads until the server closes the connection.
fn throw<S: Read + Write>(mut stream: S, bytes: &[u8], finish: impl FnOnce(&S)) {
    // The server may close the connection before it has read all bytes.
    _ = stream.write_all(bytes);
    finish(&stream);
    _ = stream.read_to_end(&mut Vec::new());
}

fn throw_at_port(host: &str, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..FRAMES / FRAMES_PER_CONNECTION {
        let stream = TcpStream::connect(host).unwrap();
        throw(stream, &random.connection(), |stream| _ = stream.shutdown(Shutdown::Write));
    }
}

fn throw_at_socket(path: &Path, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..FRAMES / FRAMES_PER_CONNECTION {
        let stream = UnixStream::connect(path).unwrap();
        throw(stream, &random.connection(), |stream| _ = stream.shutdown(Shutdown::Write));
    }
}

/// Goes on working until the others are done; returns how often.
fn work_on(done: &AtomicBool, work: impl Fn()) -> usize {
    let mut rounds = 0;
    while !done.load(Ordering::Relaxed) || rounds == 0 {
        work();
        rounds += 1;
    }
    rounds
}

#[test]
fn a_million_random_frames_disturb_nobody() {
    let (tls, plain) = (Port::with_tls(&[]), Port::open(&["--auth"]));
    let ann = tls.token(&["--role", "user", "--user", "ann"]);
    let bob = plain.token(&["--role", "user", "--user", "bob"]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let at_work = scope.spawn(|| work_on(&done, || _ = tls.ok_as(&ann, &["run", "--", "true"])));
        let garbage = [
            scope.spawn(|| throw_at_port(tls.host(), 0x9e37_79b9)),
            scope.spawn(|| throw_at_port(plain.host(), 0x7f4a_7c15)),
            scope.spawn(|| throw_at_socket(&tls.farm.state().join("admin.sock"), 0xdead_beef)),
            scope.spawn(|| throw_at_socket(&plain.farm.state().join("admin.sock"), 0xcafe_f00d)),
        ];
        let ended = garbage.map(std::thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a server did not take a connection: {}", tls.log());
        assert!(at_work.join().unwrap() > 0);
    });
    plain.ok_as(&bob, &["run", "--", "true"]);
    for port in [&tls, &plain] {
        let log = port.log();
        assert!(log.contains("refused 127.0.0.1:") && log.contains("refused unix:"), "{log}");
        assert!(log.len() < 1 << 20, "garbage filled the log with {} bytes", log.len());
        assert!(!log.contains("panicked"), "{log}");
    }
    assert!(tls.log().contains("no TLS"), "{}", tls.log());
    let jobs = plain.admin(&["jobs", "-o", "name"]);
    assert_eq!(jobs.trim(), "1", "garbage became jobs: {jobs}");
}

#[test]
fn the_doctor_says_why_a_worker_is_not_let_in() {
    if !is_root("doctor of a worker that maps users") {
        return;
    }
    let port = Port::with_tls(&["--no-worker"]);
    let state = port.dir.join("w").display().to_string();
    let unmapped = ["doctor", "worker", "--name", "box1", "--state", &state, "-o", "json"];
    let doctor = [&unmapped[..], &["--map-user", "*=nobody"]].concat();
    let token = port.token(&["--role", "worker", "--worker", "box1"]);
    let well = port.run_as(&token, &doctor);
    assert!(well.status.success(), "{}", show(&well));
    let all = findings(&well);
    for (what, detail) in [
        ("server", env!("CARGO_PKG_VERSION")),
        ("token", "speaks for worker 'box1'"),
        ("keeper", "none yet"),
        ("users", "1 mapped"),
        ("clock", "CLOCK_BOOTTIME"),
    ] {
        assert!(all[what].0 == "ok" && all[what].1.contains(detail), "{what}: {all:?}");
    }
    assert!(!std::path::Path::new(&state).exists(), "it only looks");
    let says = |token: &str, args: &[&str], what: &str, expected: &str| {
        let output = port.run_as(token, &[&doctor[..], args].concat());
        assert_eq!(output.status.code(), Some(1), "{}", show(&output));
        let all = findings(&output);
        assert!(all[what].0 == "missing" && all[what].1.contains(expected), "{what}, {expected}: {all:?}");
    };
    let (other, user) =
        (port.token(&["--role", "worker", "--worker", "box2"]), port.token(&["--role", "viewer"]));
    says(&other, &[], "token", "'windlass token create --role worker --worker box1'");
    says(&user, &[], "token", "of the role viewer");
    says("wl_0_0", &[], "token", "malformed token");
    says(&token, &["--server", "127.0.0.1:1"], "server", "no server listens there");
    says(&token, &["--ca", "ca/none.pem"], "credentials", "none.pem");
    port.farm.ok(&["ca", "init", "other"]);
    says(&token, &["--ca", "other/ca.pem"], "server", "another CA");
    says(&token, &["--map-user", "ann=no-such-user-here"], "users", "no-such-user-here");
    let as_root = findings(&port.run_as(&token, &unmapped));
    assert!(as_root["users"].0 == "missing" && as_root["users"].1.contains("as root"), "{as_root:?}");
    let meant = findings(&port.run_as(&token, &[&unmapped[..], &["--as-root"]].concat()));
    assert_eq!(meant["users"].0, "note", "{meant:?}");
}

#[test]
fn the_doctor_says_that_a_running_server_may_have_other_settings() {
    let port = Port::with_tls(&["--no-worker"]);
    let all = findings(&port.farm.run(&["doctor", "server", "-o", "json"]));
    let (state, said) = &all["settings"];
    assert!(state == "note" && said.contains("give the flags of its 'server start'"), "{all:?}");
    assert!(all["TLS"].1.contains("given here") && all["administrators"].1.contains("given here"), "{all:?}");
    // One that listens where these settings say is the one that they describe.
    let farm = Farm::with_server(&["--no-worker"]);
    let all = findings(&farm.run(&["doctor", "server", "-o", "json"]));
    assert!(!all.contains_key("settings"), "{all:?}");
}

#[test]
fn the_doctor_looks_at_a_server_s_settings() {
    let mut port = Port::with_tls(&["--no-worker"]);
    let listen = port.host().to_owned();
    let flags = ["--no-worker", "--tls-cert", "ca/127.0.0.1.pem", "--tls-key", "ca/127.0.0.1.key"];
    let doctor = |listen: &str, flags: &[&str], more: &[&str]| {
        let args = ["--ca", "ca/ca.pem", "-o", "json", "doctor", "server", "--listen", listen];
        port.farm.run(&[&args[..], flags, more].concat())
    };
    let running = doctor(&listen, &flags, &[]);
    assert!(running.status.success(), "{}", show(&running));
    let all = findings(&running);
    assert!(
        all["store"].1.contains("a server has it open") && all["address"].1.contains("answers"),
        "{all:?}"
    );
    assert!(all["administrators"].0 == "note" && all["certificate"].0 == "ok", "{all:?}");
    assert_eq!(all["certificate's names"].0, "ok", "{all:?}");
    port.token(&["--role", "admin"]);
    assert_eq!(findings(&doctor(&listen, &flags, &[]))["administrators"].0, "ok");
    let says = |listen: &str, flags: &[&str], what: &str, expected: &str| {
        let output = doctor(listen, flags, &[]);
        assert_eq!(output.status.code(), Some(1), "{}", show(&output));
        let all = findings(&output);
        assert!(all[what].0 == "missing" && all[what].1.contains(expected), "{what}, {expected}: {all:?}");
    };
    let other = ["--no-worker", "--tls-cert", "ca/127.0.0.1.pem", "--tls-key", "ca/worker-box1.key"];
    says(&listen, &other, "TLS", "'windlass ca issue' creates both");
    says(&listen, &["--no-worker", "--tls-cert", "none.pem", "--tls-key", "none.key"], "TLS", "none.");
    says("0.0.0.0:0", &["--no-worker"], "address", "plain text");
    if rustix::process::geteuid().is_root() {
        says("127.0.0.1:0", &[], "address", "as root");
        says("127.0.0.1:0", &["--no-worker", "--trust-this-machine"], "address", "as root");
    }
    says(&listen, &["--config", "none.toml"], "settings", "none.toml");
    assert_eq!(findings(&doctor(&listen, &flags, &["--store", "memory"]))["store"].0, "note");
    port.server.kill().unwrap();
    port.server.wait().unwrap();
    let stopped = findings(&port.farm.run(
        &[&["--ca", "ca/ca.pem", "-o", "json", "doctor", "server", "--listen", &listen], &flags[..]].concat(),
    ));
    assert!(
        stopped["address"].1.contains("is free") && stopped["store"].1.contains("sqlite:"),
        "{stopped:?}"
    );
    assert_eq!(stopped["administrators"].0, "ok", "{stopped:?}");
}

/// The status that curl gets without a token.
fn status_without_token(url: &str) -> String {
    let output = Command::new("curl").args(["-s", "-o", "/dev/null", "-w", "%{http_code}", url]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn h3_a_server_as_it_comes_trusts_its_own_user_alone() {
    let farm = Farm::new();
    let log = std::fs::File::create(farm.work().join("log")).unwrap();
    let mut server = farm.command(&["server", "start"]).stderr(log).spawn().unwrap();
    wait_until("the server answers", || farm.run(&["server", "status"]).status.success());
    let said = std::fs::read_to_string(farm.work().join("log")).unwrap();
    assert!(said.contains(&format!("listens on unix:{}", farm.socket().display())), "{said}");
    let mode = std::fs::metadata(farm.socket()).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    farm.ok(&["run", "--", "true"]);
    farm.ok(&["server", "stop"]);
    server.wait().unwrap();
}

#[test]
fn h3_over_tcp_a_token_is_asked_for_which_its_own_user_has() {
    let port = Port::open(&[]);
    let jobs = format!("http://{}/api/v1/jobs", port.host());
    assert_eq!(status_without_token(&jobs), "401");
    // The same user of the same machine needs no configuration.
    let here = ["--server", port.host()];
    assert_eq!(port.farm.ok(&[&here[..], &["run", "--", "echo", "hello"]].concat()).trim(), "hello");
    let path = port.farm.state().join("local.token");
    let mode = std::fs::metadata(&path).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    // HOME is not passed on, because the task may run as another user; the other variables are.
    let mut command = port.farm.command(&[&here[..], &["run", "--", "sh", "-c", "echo $HOME $X"]].concat());
    let output = command.env("HOME", "/elsewhere").env("X", "came").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("came") && !said.contains("/elsewhere"), "{}", show(&output));
    // A client that connects by another way is not on the same machine, although its address may look so.
    let token = port.token(&["--role", "user", "--user", "ann"]);
    let mut command =
        port.farm.command(&[&here[..], &["run", "--cwd", "/", "--", "sh", "-c", "echo got $X"]].concat());
    command.env("WINDLASS_STATE", port.dir.join("elsewhere")).env("WINDLASS_TOKEN", &token).env("X", "came");
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "got", "{}", show(&output));
}

#[test]
fn m2_a_token_is_written_where_only_its_owner_reads_it() {
    let port = Port::open(&[]);
    let path = port.dir.join("ann.token");
    let file = path.to_str().unwrap();
    let create = ["token", "create", "--role", "user", "--user", "ann", "--out", file];
    assert_eq!(port.admin(&create), "");
    let mode =
        || std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions()) & 0o777;
    assert_eq!(mode(), 0o600);
    let admin = format!("unix:{}", port.farm.state().join("admin.sock").display());
    let again = port.farm.fails(1, &[&["--server", &admin], &create[..]].concat());
    assert!(again.contains("exists"), "{again}");
    let ask = ["--server", port.host(), "--token-file", file, "jobs"];
    assert!(!show(&port.farm.run(&ask)).contains("warning"));
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let told = port.farm.run(&ask);
    assert!(told.status.success() && show(&told).contains("others can read"), "{}", show(&told));
}
