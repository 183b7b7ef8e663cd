//! This user's own server in the background, which is started when a command needs it. Where the machine has a server for
//! all of its users, and it lets this one in, commands go there.

pub use crate::node::machine_server::{is_at as names_users, is_own_named};

use crate::client::connect::connect_to;
use crate::node::cookie;
use crate::node::last_start::LastStart;
use crate::node::machine_server;
use crate::node::otlp::ENDPOINTS;
use crate::node::paths::Paths;
use crate::ui::error::{CliError, TAKEN};
use crate::ui::message::message;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use windlass_api::client::{Address, Client};
use windlass_worker::ADMIN_SOCKET;

/// True: this system can run a server.
pub const CAN_RUN: bool = true;
/// Bytes of the background server's log after which its next start begins a new file.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// How long the background server may take to answer its first request.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two checks whether it answers.
const START_POLL: Duration = Duration::from_millis(5);
/// Pause between two attempts to start it while another server is ending.
const START_RETRY: Duration = Duration::from_millis(100);
/// Minutes without work or clients after which the background server stops.
const IDLE_MINUTES: f64 = 10.0;

/// A client of the machine's server, or of the per-user server, which is started if needed.
pub async fn client() -> Result<Client, CliError> {
    if machine_server::socket().is_some() {
        return running().await;
    }
    if let Ok(client) = running().await {
        return Ok(client);
    }
    let paths = Paths::for_user()?;
    paths.create()?;
    let socket = paths.socket.clone();
    let launched = tokio::task::spawn_blocking(move || launch(&paths)).await;
    launched.context("the start of the background server failed")??;
    Ok(Client::new(Address::Unix(socket))?)
}

/// A client of the machine's server or of the per-user server, if it answers.
pub async fn running() -> Result<Client, CliError> {
    connect_to(&address()?.into()).await
}

/// Where this user's commands go: to the machine's server if it lets them in, else to their own.
pub fn address() -> Result<Address, CliError> {
    if let Some(socket) = machine_server::socket() {
        return Ok(Address::Unix(socket));
    }
    let paths = Paths::for_user()?;
    paths.check()?;
    Ok(Address::Unix(paths.socket))
}

/// The token of this user's own server, if that server is at the address.
pub fn token_for(address: &Address) -> Option<String> {
    cookie::for_address(address)
}

/// The socket for administrators of the server in this user's state directory. That of a machine's server is for all.
pub fn for_administrators() -> Result<Option<Address>, CliError> {
    if machine_server::socket().is_some() {
        return Ok(None);
    }
    Ok(Some(Address::Unix(Paths::for_user()?.state.join(ADMIN_SOCKET))))
}

/// The process of a server on a unix socket, which is on this machine. It has its store for a moment longer than its
/// socket, and until then no other server can have that store.
pub struct ServerProcess(OwnedFd);

impl ServerProcess {
    /// The process with that number, if the client's server is on this machine.
    pub fn behind(client: &Client, pid: u32) -> Option<Self> {
        let is_here = matches!(client.address(), Address::Unix(_));
        let pid = i32::try_from(pid).ok().filter(|_| is_here).and_then(Pid::from_raw)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok().map(ServerProcess)
    }

    /// True once it has ended.
    pub fn has_ended(&self) -> bool {
        // The descriptor of a process becomes readable when it ends.
        let mut asked = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

/// Starts the per-user server and waits until it answers. If several start at once, one gets the store, the others
/// exit, and all callers connect to that one.
fn launch(paths: &Paths) -> anyhow::Result<()> {
    let log = paths.state.join("server.log");
    if std::fs::metadata(&log).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
        // An older log is replaced.
        _ = std::fs::rename(&log, log.with_extension("log.1"));
    }
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&log);
    let output = opened.with_context(|| format!("cannot write {}", log.display()))?;
    let before = output.metadata().map_or(0, |m| m.len());
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["server", "start", "--set"]).arg(format!("idle_minutes={}", idle_minutes()));
    command.arg("--listen").arg(format!("unix:{}", paths.socket.display()));
    command.arg("--state").arg(&paths.state);
    // Variables for the caller's jobs must not reach the server, which serves other runs too.
    let for_jobs = [
        "WINDLASS_LISTEN",
        "WINDLASS_TRUST_THIS_MACHINE",
        "WINDLASS_AUTH_TRUST_THIS_MACHINE",
        "WINDLASS_TASK",
        "WINDLASS_TURN",
        "WINDLASS_TURN_BOOKED",
        "WINDLASS_SERVER",
        "WINDLASS_MACHINE_SOCKET",
        "WINDLASS_KEEPER",
        "WINDLASS_TOKEN",
    ];
    for name in for_jobs.into_iter().chain(ENDPOINTS) {
        command.env_remove(name);
    }
    as_before(&mut command, LastStart::read(&paths.state));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).current_dir("/");
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().context("cannot start the background server")?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if std::os::unix::net::UnixStream::connect(&paths.socket).is_ok() {
            return Ok(());
        }
        let late = Instant::now() > deadline;
        match child.try_wait()? {
            Some(status) if late || (!status.success() && status.code() != Some(TAKEN)) => {
                anyhow::bail!("the background server did not start: {}", last_line(&log, before));
            }
            // Another server was first, and is found above as soon as it listens; or it is just ending.
            Some(_) => {
                std::thread::sleep(START_RETRY);
                child = command.spawn().context("cannot start the background server")?;
            }
            None => {}
        }
        anyhow::ensure!(!late, "the background server does not answer; see {}", log.display());
        std::thread::sleep(START_POLL);
    }
}

/// Starts a server as the last one was started, which was killed.
fn as_before(command: &mut Command, last: LastStart) {
    match last.config {
        Some(config) if config.exists() => _ = command.arg("--config").arg(config),
        Some(config) => message!(
            "note: the server that was killed had --config {}, which is gone; this one starts without it",
            config.display()
        ),
        None => {}
    }
    if let Some(store) = last.store {
        command.env("WINDLASS_STORE", store);
    }
    command.args(last.flags);
}

fn idle_minutes() -> String {
    std::env::var("WINDLASS_IDLE_MINUTES").unwrap_or_else(|_| IDLE_MINUTES.to_string())
}

/// The last error in the server's log from that byte on, else the last line.
fn last_line(log: &Path, from: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut text = String::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(64 << 10).read_to_string(&mut text)
    });
    let line = text.lines().rfind(|line| line.starts_with("error")).or(text.lines().last());
    match read {
        Ok(_) => line.unwrap_or("it logged nothing").trim_start_matches("error: ").to_owned(),
        Err(e) => format!("its log {} cannot be read: {e}", log.display()),
    }
}
