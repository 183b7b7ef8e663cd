//! Where the per-user server keeps its files.

use anyhow::Context as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The places of one user.
#[derive(Clone, Debug)]
pub struct Paths {
    /// What must survive: the store, logs, the keeper's files.
    pub state: PathBuf,
    /// The per-user server's socket.
    pub socket: PathBuf,
}

impl Paths {
    /// By the XDG conventions, with `WINDLASS_STATE` and `WINDLASS_RUNTIME` before them.
    pub fn for_user() -> anyhow::Result<Paths> {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = var("HOME").or_else(|| std::env::home_dir().filter(|home| !home.as_os_str().is_empty()));
        let state = var("WINDLASS_STATE")
            .or_else(|| var("XDG_STATE_HOME").map(|dir| dir.join("windlass")))
            .or_else(|| home.map(|home| home.join(".local/state/windlass")))
            .context("cannot tell where to keep state: set HOME or WINDLASS_STATE")?;
        // A state directory of its own has a server of its own.
        let runtime = var("WINDLASS_RUNTIME")
            .or_else(|| var("WINDLASS_STATE").map(|dir| dir.join("run")))
            .or_else(|| var("XDG_RUNTIME_DIR").map(|dir| dir.join("windlass")))
            .unwrap_or_else(|| {
                PathBuf::from(format!("/tmp/windlass-{}", rustix::process::getuid().as_raw()))
            });
        Ok(Paths { state, socket: runtime.join("server.sock") })
    }

    /// Makes both directories, for this user alone. Somebody else's directory in a shared place is
    /// refused: whoever owns it could stand in for the server.
    pub fn create(&self) -> anyhow::Result<()> {
        let runtime = self.socket.parent().unwrap_or(Path::new("/"));
        for dir in [&self.state, runtime] {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.with_context(|| format!("cannot make the directory {}", dir.display()))?;
        }
        let owner = std::fs::metadata(runtime).map(|m| m.uid());
        let owner = owner.with_context(|| format!("cannot look at {}", runtime.display()))?;
        anyhow::ensure!(
            owner == rustix::process::getuid().as_raw(),
            "{} belongs to somebody else; set XDG_RUNTIME_DIR or WINDLASS_RUNTIME to a directory of yours",
            runtime.display()
        );
        Ok(())
    }
}
