//! A real server and real agents, each in a directory that goes with the test.

use crate::support::{Farm, kill, trusting, wait_until};
use std::fs;
use std::path::PathBuf;
use std::process::Child;
use tokio::time::{Duration, sleep};
use windlass_api::client::{Address, Client};

/// A server without its own worker.
pub struct Server {
    pub farm: Farm,
    pub url: String,
    pub client: Client,
    process: Child,
}

impl Server {
    pub fn start(flags: &[&str]) -> Server {
        let farm = Farm::new();
        let log = fs::File::create(farm.work().join("server.log")).unwrap();
        let mut command = farm.command(&["server", "start", "--no-worker", "--listen", "127.0.0.1:0"]);
        trusting(command.args(flags), &farm);
        let process = command.stderr(log).spawn().unwrap();
        let mut url = String::new();
        wait_until("the server listens", || {
            let log = fs::read_to_string(farm.work().join("server.log")).unwrap_or_default();
            let line = log.split("windlass server listens on ").nth(1).and_then(|rest| rest.split_once(','));
            url = line.map(|(address, _)| address.to_owned()).unwrap_or_default();
            !url.is_empty()
        });
        if !url.starts_with("http") {
            url = format!("http://{url}");
        }
        let client = Client::new(Address::parse(&url)).unwrap();
        Server { farm, url, client, process }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.farm.work().join("server.log")).unwrap_or_default()
    }

    /// Bytes of memory that it holds.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Polls until the condition holds.
    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Client) -> bool) {
        let deadline = tokio::time::Instant::now() + crate::support::PATIENCE;
        while !holds(&self.client).await {
            assert!(tokio::time::Instant::now() < deadline, "waited too long until {what}\n{}", self.log());
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// An agent with its keeper.
pub struct Agent {
    pub state: PathBuf,
    process: Child,
    _dir: tempfile::TempDir,
}

impl Agent {
    pub fn start(url: &str, name: &str) -> Agent {
        let dir = tempfile::tempdir().unwrap();
        Agent::start_in(dir, url, name)
    }

    pub fn start_in(dir: tempfile::TempDir, url: &str, name: &str) -> Agent {
        let (state, farm) = (dir.path().join("worker"), Farm::new());
        let log = fs::OpenOptions::new().append(true).create(true).open(dir.path().join("log")).unwrap();
        let mut command = farm.command(&["--server", url, "worker", "start", "--cpus", "2", "--name", name]);
        command
            .args(["--memory", "1GiB", "--gpus", "0", "--tag", "site=here", "--as-root", "--state"])
            .arg(&state);
        let process = command.current_dir("/").stderr(log).spawn().unwrap();
        Agent { state, process, _dir: dir }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.state.with_file_name("log")).unwrap_or_default()
    }

    pub fn keeper(&self) -> i32 {
        let json = fs::read(self.state.join("keeper.json")).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&json).unwrap();
        i32::try_from(file["pid"].as_i64().unwrap()).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        if self.state.join("keeper.json").exists() {
            kill(self.keeper(), "KILL");
        }
    }
}
