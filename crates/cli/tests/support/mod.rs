//! A server for one test, in its own directory, and the real binary.

pub mod browser;
pub mod cluster;
pub mod nix;
pub mod notices;
pub mod port;
pub mod proxy;
pub mod receiver;
pub mod small_group;
pub mod tmpfs;
pub mod tools;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything in a test may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Lines of a server's log that a failed test shows.
const LOG_LINES_SHOWN: usize = 100;

/// The binary under test.
pub fn windlass() -> &'static str {
    env!("CARGO_BIN_EXE_windlass")
}

/// Lets a server over TCP trust this machine, which is refused to root: then it runs as another user, who becomes the
/// owner of the farm's directory.
pub fn trusting(command: &mut Command, farm: &Farm) {
    command.arg("--trust-this-machine");
    without_root(command, farm);
}

/// Runs a command as a user without rights if the test is root's. That user becomes the owner of the farm's directory.
pub fn without_root(command: &mut Command, farm: &Farm) {
    const NOBODY: u32 = 65534;
    if rustix::process::geteuid().is_root() {
        give(farm.dir.path(), NOBODY);
        std::os::unix::process::CommandExt::uid(command, NOBODY);
        std::os::unix::process::CommandExt::gid(command, NOBODY);
    }
}

fn give(path: &Path, uid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(uid)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), uid));
    }
}

/// The token that a server keeps for its own user in its state directory.
pub fn local_token(state: &Path) -> String {
    let mut token = String::new();
    wait_until("the server says its token", || {
        let text = std::fs::read_to_string(state.join("local.token")).unwrap_or_default();
        token = text.lines().nth(1).unwrap_or_default().to_owned();
        !token.is_empty()
    });
    token
}

/// A per-user server with its state in a directory that is deleted at the end of the test.
pub struct Farm {
    dir: tempfile::TempDir,
    options: Vec<String>,
    server: Option<Child>,
}

impl Farm {
    /// Nothing is started: the first `windlass run` starts a server by itself.
    pub fn new() -> Farm {
        Farm::not_started_in(tempfile::tempdir().unwrap())
    }

    /// The same in a directory of the caller's.
    pub fn not_started_in(dir: tempfile::TempDir) -> Farm {
        Farm { dir, options: Vec::new(), server: None }
    }

    /// A server with these flags, started here.
    pub fn with_server(options: &[&str]) -> Farm {
        Farm::in_dir(tempfile::tempdir().unwrap(), options)
    }

    /// The same in a directory of the caller's.
    pub fn in_dir(dir: tempfile::TempDir, options: &[&str]) -> Farm {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut farm = Farm { dir, options, server: None };
        farm.start();
        farm
    }

    /// The flags of servers that are started from now on.
    pub fn set_options(&mut self, options: &[&str]) {
        self.options = options.iter().map(|option| (*option).to_owned()).collect();
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of files that the test's tasks make.
    pub fn work(&self) -> PathBuf {
        let dir = self.dir.path().join("work");
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// The server's state directory.
    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The address of the server.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("run/server.sock")
    }

    /// Starts the server and waits until it answers.
    pub fn start(&mut self) {
        self.launch();
        wait_until("the server answers", || self.run(&["server", "status"]).status.success());
    }

    /// Starts the server and does not wait.
    pub fn launch(&mut self) {
        let mut log = std::fs::OpenOptions::new();
        let log = log.append(true).create(true).open(self.dir.path().join("server.log")).unwrap();
        let mut command = self.command(&["server", "start"]);
        command.arg("--listen").arg(format!("unix:{}", self.socket().display())).args(&self.options);
        self.server = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// Kills the server at once. Its keeper goes on.
    pub fn kill_server(&mut self) {
        let mut server = self.server.take().expect("the test started one");
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// The process of the server that the test started.
    pub fn server_pid(&self) -> u32 {
        self.server.as_ref().expect("the test started one").id()
    }

    pub fn keeper_pid(&self) -> i32 {
        let json = std::fs::read(self.state().join("keeper.json")).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&json).unwrap();
        i32::try_from(file["pid"].as_i64().unwrap()).unwrap()
    }

    pub fn server_log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    /// The binary with this farm's environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(windlass());
        command.args(args).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("WINDLASS_") {
                command.env_remove(name);
            }
        }
        command.env("WINDLASS_STATE", self.state()).env("WINDLASS_RUNTIME", self.dir.path().join("run"));
        command.env("XDG_CACHE_HOME", self.dir.path().join("cache"));
        command.current_dir(self.work());
        command
    }

    /// Runs the binary to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs it, expects success, and returns its standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}\n{}", show(&output), self.server_log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it, expects this exit code, and returns its standard error.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}\n{}", show(&output), self.server_log());
        String::from_utf8(output.stderr).unwrap()
    }

    /// Its standard output as JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = args.to_vec();
        all.extend(["-o", "json"]);
        let text = self.ok(&all);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
    }

    /// Runs something in the background.
    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The events from now on, line by line.
    pub fn events(&self) -> Events {
        let mut child = self.command(&["events", "-o", "jsonl"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Events { child, lines }
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The directory is deleted, and with it what the servers wrote: the one that the test started, and the one
            // that a command started in the background.
            for log in [self.dir.path().join("server.log"), self.state().join("server.log")] {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
                eprintln!("{} ends with:\n{last}", log.display());
            }
        }
        for job in
            self.run(&["jobs", "--state", "pending,running,held", "-o", "name"]).stdout.split(|b| *b == b'\n')
        {
            if let Some(id) = std::str::from_utf8(job).ok().filter(|id| !id.is_empty()) {
                self.run(&["job", "cancel", id]);
            }
        }
        self.run(&["server", "stop"]);
        if let Some(mut server) = self.server.take() {
            _ = server.kill();
            _ = server.wait();
        }
        if self.state().join("keeper.json").exists() {
            kill(self.keeper_pid(), "KILL");
        }
    }
}

/// Xorshift: the random numbers of a test are the same in every run.
pub struct Random(pub u64);

impl Random {
    /// Any number but 0.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The event stream of a server.
pub struct Events {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Events {
    /// The next event; `None` when the server is gone.
    pub fn next(&mut self) -> Option<serde_json::Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).ok()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Polls without pauses until the condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::yield_now();
    }
}

/// Sends a signal by name.
pub fn kill(pid: i32, signal: &str) {
    _ = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Open files of this process from [`raise_file_limit`] on, if the system allows it.
const FILES: u64 = 8_192;

/// Lets this process have the connections of a flood. Programs that other tests start inherit the limit, and some close
/// every file below it, one by one.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(FILES).min(FILES);
    if current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).unwrap();
    }
}

/// The output of a finished command.
pub fn show(output: &Output) -> String {
    format!(
        "{}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The findings of `doctor -o json` by check: the state, and the detail with the advice.
pub fn findings(output: &Output) -> BTreeMap<String, (String, String)> {
    let text = String::from_utf8_lossy(&output.stdout);
    let all: Vec<serde_json::Value> =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {}", show(output)));
    let word = |finding: &serde_json::Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let each = all
        .iter()
        .map(|f| (word(f, "what"), (word(f, "state"), word(f, "detail") + "; " + &word(f, "advice"))));
    each.collect()
}

/// Processes whose command line, arguments joined by spaces, has `text` in it. Tests run beside each other, so each looks
/// for a number of seconds of its own.
pub fn processes_with(text: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if pid != std::process::id() as i32 && line.contains(text) {
            found.push(pid);
        }
    }
    found
}

/// The peak of a process's own memory in MiB, without the mapped program, which is large here.
pub fn peak_mib(pid: u32) -> u64 {
    own_kib(pid, "VmHWM:") / 1024
}

/// Bytes of a process's own memory that are resident now.
pub fn resident_bytes(pid: u32) -> u64 {
    own_kib(pid, "VmRSS:") * 1024
}

fn own_kib(pid: u32, of: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap_or("x 0");
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    kib(of).saturating_sub(kib("RssFile:"))
}

/// Names in a directory.
pub fn names(dir: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(dir).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let mut names: Vec<String> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// True for root; otherwise prints what is skipped.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::getuid().is_root();
    if !root {
        println!("SKIP {test}: needs root");
    }
    root
}
