//! Servers that share a database, each on a port of its own with tokens, and workers of them.

use super::port::KillOnDrop;
use super::{Farm, kill, show, wait_until};
use serde_json::Value;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A server of the cluster.
pub struct Server {
    pub name: &'static str,
    pub farm: Farm,
    /// `HOST:PORT`, the same after a restart.
    pub address: String,
    store: String,
    lease_s: u32,
    process: Option<KillOnDrop>,
}

impl Server {
    /// Starts one and waits until it answers.
    pub fn start(name: &'static str, store: &str) -> Server {
        Server::start_with_lease(name, store, 20)
    }

    /// Starts one whose leases last `lease_s` seconds.
    pub fn start_with_lease(name: &'static str, store: &str, lease_s: u32) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (farm, store) = (Farm::new(), store.to_owned());
        let mut server = Server { name, farm, address: port.to_string(), store, lease_s, process: None };
        server.start_again();
        server
    }

    pub fn start_again(&mut self) {
        let mut command = self.farm.command(&["server", "start", "--no-worker", "--name"]);
        // All workers are on this machine, so its load says nothing of one of them.
        let settings = self.farm.path().join("server.toml");
        std::fs::write(&settings, "[load]\npressure = false\n").unwrap();
        command.args([self.name, "--config", settings.to_str().unwrap()]);
        command.args(["--listen", &self.address, "--store", &self.store]);
        command.args(["--lease", &self.lease_s.to_string()]);
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.log_path()).unwrap();
        command.stdout(Stdio::null()).stderr(log);
        self.process = Some(KillOnDrop(command.spawn().unwrap()));
        wait_until("the server answers", || self.run(&["version"]).status.success());
    }

    fn log_path(&self) -> PathBuf {
        self.farm.path().join("server.log")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// A command for this server, as its administrator.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.farm.command(args);
        let admin = self.farm.state().join("admin.sock");
        command.env("WINDLASS_SERVER", format!("unix:{}", admin.display()));
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}\n{}", show(&output), self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.ok(&all)).unwrap()
    }

    pub fn process_id(&self) -> i32 {
        self.process.as_ref().unwrap().0.id() as i32
    }

    /// Sends a signal and waits for the end.
    pub fn end(&mut self, signal: &str) {
        let mut process = self.process.take().unwrap();
        kill(process.0.id() as i32, signal);
        process.0.wait().unwrap();
    }

    /// The name of the owner, as this server knows it.
    pub fn owner(&self) -> Option<String> {
        let servers: Value =
            serde_json::from_slice(&self.run(&["scheduler", "list", "-o", "json"]).stdout).ok()?;
        let owner = servers.as_array()?.iter().find(|server| !server["owns"].is_null())?;
        Some(owner["name"].as_str()?.to_owned())
    }

    pub fn await_owner(&self, name: &str) {
        wait_until(&format!("{name} owns the farm"), || self.owner().as_deref() == Some(name));
    }
}

/// A worker of these servers, with two cpus, and a token that `of` makes. Returns once it is up.
pub fn worker(of: &Server, name: &str, servers: &[&Server]) -> KillOnDrop {
    let addresses: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
    worker_by(of, name, &addresses)
}

/// The same, by these addresses of the servers.
pub fn worker_by(of: &Server, name: &str, addresses: &[&str]) -> KillOnDrop {
    let token = of.ok(&["token", "create", "--role", "worker", "--worker", name]);
    let mut command = of.farm.command(&["worker", "start", "--name", name, "--cpus", "2", "--as-root"]);
    command.env("WINDLASS_STATE", of.farm.work().join(name)).env("WINDLASS_TOKEN", token.trim());
    command.env("WINDLASS_SERVER", addresses.join(","));
    let log = std::fs::File::create(of.farm.work().join(format!("{name}.log"))).unwrap();
    let process = KillOnDrop(command.stderr(log).spawn().unwrap());
    wait_until("the worker is up", || {
        let workers = of.json(&["worker", "list"]);
        workers.as_array().unwrap().iter().any(|worker| worker["name"] == name && worker["state"] == "up")
    });
    process
}
