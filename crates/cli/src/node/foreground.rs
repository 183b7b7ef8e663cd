//! The server inside a single `run --foreground`.

use crate::node::life::Life;
use crate::node::serve::OwnServer;
use crate::node::site::Site;
use anyhow::Context as _;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use windlass_api::client::{Address, Client};
use windlass_server::Config;

/// A server inside this run, whose files are deleted at its end.
pub struct Foreground {
    pub client: Client,
    server: OwnServer,
    dir: PathBuf,
}

/// Starts a server inside this run.
pub async fn start() -> anyhow::Result<Foreground> {
    let dir = private_dir(&std::env::temp_dir())?;
    let config = Config {
        listen: Some(format!("unix:{}", dir.join("server.sock").display())),
        store: Some("memory".to_owned()),
        ..Config::default()
    };
    let mut site = Site::open(&config, &dir, Life::OfThisRun).await?;
    let own_store = site.claim().await?.context("another server owns this run's farm")?;
    let server = OwnServer::start(&mut site, own_store).await?;
    let client = Client::new(Address::parse(&server.address))?;
    Ok(Foreground { client, server, dir })
}

/// Creates a directory for this user alone. Its name is random, so that no other user can create it first.
fn private_dir(parent: &Path) -> anyhow::Result<PathBuf> {
    // The hasher's keys are the one source of randomness that the standard library has.
    let random = RandomState::new().build_hasher().finish();
    let dir = parent.join(format!("windlass-run-{}-{random:016x}", std::process::id()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
    made.with_context(|| format!("cannot create the directory {}", dir.display()))?;
    Ok(dir)
}

impl Foreground {
    /// Stops it, and kills all of its tasks.
    pub async fn stop(self) {
        self.server.stop(true).await;
        _ = std::fs::remove_dir_all(&self.dir);
    }
}
