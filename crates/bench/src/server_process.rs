//! A server that is measured: a process of its own, with its own state.

use anyhow::Context as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use windlass_api::client::{Address, Client, Credentials};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the benches of whole processes need.
pub struct Setup {
    /// For files. It is deleted at the end.
    pub dir: PathBuf,
    /// The program that is measured.
    pub windlass: PathBuf,
}

impl Setup {
    /// What to say where that program does not start.
    pub fn not_started(&self) -> String {
        let program = self.windlass.display();
        format!("cannot start {program}; build it by 'cargo build --release', or name one by --windlass")
    }
}

/// A server. It is killed with this value.
pub struct ServerProcess {
    child: Child,
    pub client: Client,
    /// Where clients and workers find it.
    pub listen: String,
    /// Lets workers in; empty on a unix socket.
    pub token: String,
    pub state: PathBuf,
}

impl ServerProcess {
    /// Starts one on a unix socket, with two cpus of its own.
    pub async fn with_worker(setup: &Setup, name: &str) -> anyhow::Result<ServerProcess> {
        let socket = setup.dir.join(format!("{name}.sock"));
        ServerProcess::start(setup, name, format!("unix:{}", socket.display()), &["--cpus", "2"]).await
    }

    /// Starts one without a worker of its own on a free port of the loopback address.
    pub async fn without_worker(setup: &Setup, flags: &[&str]) -> anyhow::Result<ServerProcess> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let flags = [&["--no-worker"][..], flags].concat();
        let listen = format!("http://127.0.0.1:{port}");
        ServerProcess::start(setup, &format!("farm-{port}"), listen, &flags).await
    }

    /// Starts one and waits until it answers.
    async fn start(
        setup: &Setup,
        name: &str,
        listen: String,
        flags: &[&str],
    ) -> anyhow::Result<ServerProcess> {
        let state = setup.dir.join(name);
        let mut command = Command::new(&setup.windlass);
        command.args(["server", "start", "--listen", listen.trim_start_matches("http://")]);
        command.arg("--state").arg(&state).args(flags);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.with_context(|| setup.not_started())?;
        let client = Client::new(Address::parse(&listen))?;
        let mut server = ServerProcess { child, client, listen, token: String::new(), state };
        let deadline = Instant::now() + PATIENCE;
        while server.client.version().await.is_err() {
            anyhow::ensure!(Instant::now() < deadline, "the server does not answer");
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(token) = server.local_token() {
                let shown = Credentials { token: Some(token.clone()), ..Credentials::default() };
                server.client = Client::with(Address::parse(&server.listen), &shown)?;
                server.token = token;
            }
        }
        Ok(server)
    }

    /// The token that a server keeps for its own user in its state directory. A unix socket needs none.
    fn local_token(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.state.join("local.token")).ok()?;
        text.lines().nth(1).filter(|_| !self.listen.starts_with("unix:")).map(str::to_owned)
    }

    /// Processor time that it has used so far.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_secs_f64((ticks(11) + ticks(12)) as f64 / per_second as f64))
    }

    /// Waits until this number of workers has registered.
    pub async fn wait_for_workers(&self, count: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.client.workers(false).await?.len() < count {
            anyhow::ensure!(Instant::now() < deadline, "the workers did not register");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Ends it in order, and returns its directory.
    pub async fn stop(mut self) -> anyhow::Result<PathBuf> {
        self.client.shutdown().await?;
        self.child.wait()?;
        Ok(std::mem::take(&mut self.state))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
