//! The directories and files of the per-user server.

use anyhow::Context as _;
use sha2::{Digest, Sha256};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Most bytes of a unix socket's path.
const SOCKET_BYTES_MAX: usize = 107;

#[derive(Clone, Debug)]
pub struct Paths {
    /// The state directory: the store, the output of tasks, the keeper's files.
    pub state: PathBuf,
    /// The per-user server's socket.
    pub socket: PathBuf,
}

impl Paths {
    /// By the XDG conventions; `WINDLASS_STATE` and `WINDLASS_RUNTIME` override them.
    pub fn for_user() -> anyhow::Result<Paths> {
        // Absolute, because the server has another working directory than the client.
        let var = |name: &str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
            std::path::absolute(value).ok()
        };
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
        Ok(Paths { socket: socket_in(&runtime), state })
    }

    /// Of a server with that state directory.
    pub fn for_state(state: PathBuf) -> Paths {
        Paths { socket: socket_in(&state.join("run")), state }
    }

    /// The file with the token for the server's own user.
    pub fn token(&self) -> PathBuf {
        self.state.join("local.token")
    }

    /// Creates both directories, for this user alone.
    pub fn create(&self) -> anyhow::Result<()> {
        let runtime = self.socket.parent().unwrap_or(Path::new("/"));
        for dir in [&self.state, runtime] {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.with_context(|| format!("cannot create the directory {}", dir.display()))?;
        }
        self.check()
    }

    /// Refuses a runtime directory that another user owns or may write to: that user could impersonate the server. A
    /// missing directory is accepted.
    pub fn check(&self) -> anyhow::Result<()> {
        let runtime = self.socket.parent().unwrap_or(Path::new("/"));
        let found = match std::fs::symlink_metadata(runtime) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            found => found.with_context(|| format!("cannot access {}", runtime.display()))?,
        };
        let ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
        anyhow::ensure!(
            ours && found.mode() & 0o022 == 0,
            "{} is not a directory that only you may write to; set XDG_RUNTIME_DIR or WINDLASS_RUNTIME to one \
             that is",
            runtime.display()
        );
        Ok(())
    }
}

/// Lets all users pass through a state directory to the sessions of their tasks. Refuses one that they cannot traverse to.
pub fn let_users_in(state: &Path) -> anyhow::Result<()> {
    let passable = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(state, passable)
        .with_context(|| format!("cannot let users into the directory {}", state.display()))?;
    for dir in state.ancestors() {
        let mode = std::fs::metadata(dir).with_context(|| format!("cannot access {}", dir.display()))?.mode();
        anyhow::ensure!(
            mode & 0o001 != 0,
            "users cannot traverse {} to the worker's directory, where their tasks work; give --state a \
             directory elsewhere, such as /var/lib/windlass/worker",
            dir.display()
        );
    }
    Ok(())
}

fn socket_in(runtime: &Path) -> PathBuf {
    let socket = runtime.join("server.sock");
    if socket.as_os_str().len() <= SOCKET_BYTES_MAX {
        return socket;
    }
    // The path is too long for a socket, so a short one is derived from it. Every release must find it, so the hash
    // function never changes.
    let digest = Sha256::digest(runtime.as_os_str().as_encoded_bytes());
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let uid = rustix::process::getuid().as_raw();
    PathBuf::from(format!("/tmp/windlass-{uid}-{short}/server.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_has_a_short_socket_of_a_name_that_stays() {
        assert_eq!(socket_in(Path::new("/run/w")), Path::new("/run/w/server.sock"));
        let uid = rustix::process::getuid().as_raw();
        let long = format!("/{}", "x".repeat(SOCKET_BYTES_MAX));
        let expected = format!("/tmp/windlass-{uid}-aa9494bcbcc32a53/server.sock");
        assert_eq!(socket_in(Path::new(&long)), Path::new(&expected));
    }
}
