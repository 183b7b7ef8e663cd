//! A server on a port of this machine, with tokens and certificates.

use super::{Farm, show, wait_until};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A server that listens on a port of this machine.
pub struct Port {
    pub farm: Farm,
    pub server: Child,
    pub address: String,
    pub dir: PathBuf,
    flags: Vec<String>,
}

impl Port {
    /// A server with these flags; the files of a CA are in the directory `ca`.
    pub fn open(flags: &[&str]) -> Port {
        Port::open_in(tempfile::tempdir().unwrap(), flags)
    }

    /// The same in a directory of the caller's.
    pub fn open_in(dir: tempfile::TempDir, flags: &[&str]) -> Port {
        let farm = Farm::not_started_in(dir);
        let dir = farm.work();
        farm.ok(&["ca", "init", "ca"]);
        farm.ok(&["ca", "issue", "ca", "--server", "127.0.0.1,localhost"]);
        farm.ok(&["ca", "issue", "ca", "--worker", "box1"]);
        let server = start(&farm, flags, None);
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut port = Port { farm, server, address: String::new(), dir, flags };
        port.find_address();
        port
    }

    fn find_address(&mut self) {
        wait_until("the server listens", || {
            let log = self.log();
            let line = log.split("windlass server listens on ").nth(1).and_then(|rest| rest.split_once(','));
            self.address = line.map(|(address, _)| address.to_owned()).unwrap_or_default();
            !self.address.is_empty()
        });
    }

    /// Kills the server and starts another, whose limit on open files is `files`.
    pub fn restart_with_limit(&mut self, files: u32) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.server = start(&self.farm, &flags, Some(files));
        self.find_address();
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// The command that runs a worker of this server.
    fn worker_command(&self, dir: &Path, token: &str, name: &str) -> Command {
        let mut command = self.farm.command(&["worker", "start", "--name", name, "--cpus", "1", "--as-root"]);
        command.env("WINDLASS_STATE", dir.join(name)).env("WINDLASS_TOKEN", token);
        command.env("WINDLASS_SERVER", self.url()).env("WINDLASS_CA", "ca/ca.pem");
        command
    }

    /// `http://HOST:PORT`, or with https.
    pub fn url(&self) -> String {
        match self.address.contains("://") {
            true => self.address.clone(),
            false => format!("http://{}", self.address),
        }
    }

    /// A worker of this server.
    pub fn worker(&self, token: &str, name: &str) -> KillOnDrop {
        self.worker_in(&self.dir, token, name)
    }

    /// A worker with its state in that directory.
    pub fn worker_in(&self, dir: &Path, token: &str, name: &str) -> KillOnDrop {
        KillOnDrop(self.worker_command(dir, token, name).stderr(Stdio::null()).spawn().unwrap())
    }

    /// A worker with that number of cores and that `--map-user` map.
    pub fn mapping_worker(&self, token: &str, name: &str, cpus: &str, users: &str) -> KillOnDrop {
        let mut command = self.farm.command(&["worker", "start", "--name", name, "--cpus", cpus]);
        command.args(["--memory", "4GiB", "--map-user", users, "--state"]).arg(self.dir.join(name));
        command.env("WINDLASS_TOKEN", token);
        command.env("WINDLASS_SERVER", self.url()).env("WINDLASS_CA", "ca/ca.pem");
        let log = std::fs::File::create(self.dir.join(format!("{name}.log"))).unwrap();
        KillOnDrop(command.stderr(log).spawn().unwrap())
    }

    /// The keeper of a worker of this server.
    pub fn keeper_pid(&self, name: &str) -> u32 {
        let path = self.dir.join(name).join("keeper.json");
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        u32::try_from(file["pid"].as_u64().unwrap()).unwrap()
    }

    /// Ends the server at once.
    pub fn stop(&mut self) {
        _ = self.server.kill();
        _ = self.server.wait();
    }

    /// The first error of a worker that is refused.
    pub fn refused_worker(&self, token: &str) -> String {
        let path = self.dir.join("worker.log");
        let log = std::fs::File::create(&path).unwrap();
        let _worker = KillOnDrop(self.worker_command(&self.dir, token, "box1").stderr(log).spawn().unwrap());
        let said = || std::fs::read_to_string(&path).unwrap();
        wait_until("the worker says why", || said().contains("trying again"));
        said()
    }

    /// A server with authentication and TLS.
    pub fn with_tls(more: &[&str]) -> Port {
        let tls = ["--tls-cert", "ca/127.0.0.1.pem", "--tls-key", "ca/127.0.0.1.key"];
        Port::open(&[&tls[..], more].concat())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub fn host(&self) -> &str {
        self.address.trim_start_matches("https://")
    }

    /// Runs a command as an administrator on this machine.
    pub fn admin(&self, args: &[&str]) -> String {
        let output = self.admin_output(args);
        assert!(output.status.success(), "{args:?}: {}\n{}", show(&output), self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, and the command may fail.
    pub fn admin_output(&self, args: &[&str]) -> Output {
        let socket = format!("unix:{}", self.farm.state().join("admin.sock").display());
        self.farm.run(&[&["--server", &socket], args].concat())
    }

    pub fn token(&self, flags: &[&str]) -> String {
        self.admin(&[&["token", "create"], flags].concat()).trim().to_owned()
    }

    /// A command over TCP with this token.
    pub fn run_as(&self, token: &str, args: &[&str]) -> Output {
        let mut command = self.farm.command(args);
        command.env("WINDLASS_SERVER", &self.address).env("WINDLASS_CA", "ca/ca.pem");
        // As if on another machine: the token of the server's own user is not found.
        command.env("WINDLASS_STATE", self.dir.join("elsewhere"));
        command.env("WINDLASS_TOKEN", token).output().unwrap()
    }

    pub fn ok_as(&self, token: &str, args: &[&str]) -> String {
        let output = self.run_as(token, args);
        assert!(output.status.success(), "{args:?}: {}\n{}", show(&output), self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn denied(&self, token: &str, args: &[&str]) -> String {
        let output = self.run_as(token, args);
        assert_eq!(output.status.code(), Some(4), "{args:?}: {}\n{}", show(&output), self.log());
        String::from_utf8(output.stderr).unwrap()
    }

    pub fn audit(&self) -> String {
        std::fs::read_to_string(self.farm.state().join("audit.log")).unwrap_or_default()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        for server in
            [format!("unix:{}", self.farm.state().join("admin.sock").display()), self.address.clone()]
        {
            self.farm.run(&["--server", &server, "server", "stop"]);
        }
        _ = self.server.kill();
        _ = self.server.wait();
    }
}

fn start(farm: &Farm, flags: &[&str], files: Option<u32>) -> Child {
    let log = std::fs::File::create(farm.work().join("log")).unwrap();
    let mut command = farm.command(&["server", "start", "--listen", "127.0.0.1:0"]);
    command.args(flags).arg("--as-root").stderr(log);
    if let Some(files) = files {
        let files = Some(u64::from(files));
        let limit = rustix::process::Rlimit { current: files, maximum: files };
        // SAFETY: between fork and exec only this one system call is made.
        unsafe {
            command.pre_exec(move || {
                let nofile = rustix::process::Resource::Nofile;
                rustix::process::setrlimit(nofile, limit).map_err(std::io::Error::from)
            });
        }
    }
    command.spawn().unwrap()
}

/// A process that ends with the test.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A connection from another address of this machine, as if from another machine.
pub fn connect_from(source: &str, host: &str) -> TcpStream {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    // A server that another test starts meanwhile must not inherit it: its limit on descriptors may be small.
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    let address = |text: &str| text.parse::<std::net::SocketAddr>().unwrap();
    bind(&socket, &address(&format!("{source}:0"))).unwrap();
    connect(&socket, &address(host)).unwrap();
    TcpStream::from(socket)
}
