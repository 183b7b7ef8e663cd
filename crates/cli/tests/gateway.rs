//! `windlass gateway sccache` and `windlass doctor sccache`, without the real peers; tests/sccache.rs has these.

use crate::support::{wait_until, windlass};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Gateway {
    child: Child,
    dir: tempfile::TempDir,
    address: SocketAddr,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn write_config(dir: &Path, address: SocketAddr, clients: &str) {
    let text = format!(
        "public_addr = \"{address}\"\nclient_auth = {{ {clients} }}\n\
         server_auth = {{ type = \"token\", token = \"s3cret\" }}\n"
    );
    std::fs::write(dir.join("scheduler.toml"), text).unwrap();
}

impl Gateway {
    fn start() -> Gateway {
        let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
        write_config(dir.path(), address, "type = \"DANGEROUSLY_INSECURE\"");
        let mut command = Command::new(windlass());
        command.args(["gateway", "sccache", "--wait", "5s", "--proxy", "127.0.0.1", "--config"]);
        command.arg(dir.path().join("scheduler.toml")).arg("--state").arg(dir.path().join("state"));
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        wait_until("it listens", || TcpStream::connect(address).is_ok());
        Gateway { child, dir, address }
    }
}

/// What `doctor sccache` prints, and whether all is well.
fn doctor(dir: &Path) -> (bool, String) {
    let mut command = Command::new(windlass());
    command.args(["doctor", "sccache", "--config"]).arg(dir.join("scheduler.toml"));
    let socket = format!("unix:{}", dir.join("state/run/server.sock").display());
    let said = command.env("WINDLASS_SERVER", socket).output().unwrap();
    (said.status.success(), [said.stdout, said.stderr].map(|text| String::from_utf8(text).unwrap()).concat())
}

fn get(mut stream: impl std::io::Read + std::io::Write, path: &str) -> String {
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_scheduler_runs_by_stock_settings_and_the_doctor_knows_it() {
    let gateway = Gateway::start();
    let status = get(TcpStream::connect(gateway.address).unwrap(), "/api/v1/scheduler/status");
    assert!(status.ends_with(r#"{"num_servers":0,"num_cpus":0,"in_progress":0}"#), "{status}");
    let socket = gateway.dir.path().join("state/run/server.sock");
    let metrics = get(UnixStream::connect(&socket).unwrap(), "/metrics");
    assert!(metrics.contains("windlass_sccache_servers 0\n") && metrics.contains("# EOF\n"), "{metrics}");
    assert_eq!(metrics.matches("# EOF").count(), 1);
    let (is_well, said) = doctor(gateway.dir.path());
    assert!(is_well, "{said}");
    for expected in
        ["a scheduler runs at", "0 build servers", "everybody is let in", "others on this machine may read"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn the_doctor_says_what_is_wrong_before_anything_runs() {
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let (is_well, said) = doctor(dir.path());
    assert!(!is_well && said.contains("cannot read"), "{said}");
    std::fs::write(dir.path().join("scheduler.toml"), "public_addr = \"nowhere\"").unwrap();
    let (is_well, said) = doctor(dir.path());
    assert!(!is_well && said.contains("line 1"), "{said}");
    write_config(dir.path(), address, "type = \"token\", token = \"s3cret\"");
    let only_ours = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(dir.path().join("scheduler.toml"), only_ours).unwrap();
    let (is_well, said) = doctor(dir.path());
    assert!(is_well && said.contains("is free") && !said.contains("may read"), "{said}");
    // Something else listens there.
    let _other = TcpListener::bind(address).unwrap();
    let (is_well, said) = doctor(dir.path());
    assert!(!is_well && said.contains("does not answer as a scheduler"), "{said}");
}

#[test]
fn what_cannot_be_is_refused() {
    let run =
        |args: &[&str]| Command::new(windlass()).args(["gateway", "sccache"]).args(args).output().unwrap();
    for (args, why) in [
        (&["--config", "/nowhere/scheduler.toml"][..], "/nowhere/scheduler.toml"),
        (&["--config", "x", "--wait", "2000s"], "at most 1000 s"),
        (&["--config", "x", "--proxy", "nobody"], "invalid value 'nobody'"),
        (&[], "--config"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().display().to_string();
        let said = run(&[args, &["--state", &state]].concat());
        assert!(!said.status.success());
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains(why), "{why}: {said}");
    }
}
