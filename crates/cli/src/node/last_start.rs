//! How the server of a state directory was started. A client that starts the user's own server again after it was killed
//! starts it in the same way. A server that ends in good order takes this away, and the next one has defaults.

use crate::system;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The file in the state directory.
const FILE: &str = "start.json";

/// The flags that the next server needs, without those that a client gives.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LastStart {
    /// The config file, as an absolute path.
    pub config: Option<PathBuf>,
    /// Its store. It may hold a password, so it is not among the arguments, which all users of the machine see.
    pub store: Option<String>,
    /// All others, as arguments.
    pub flags: Vec<String>,
}

impl LastStart {
    /// Writes it for the servers after this one. Only the user can read it.
    pub fn write(&self, state: &Path) -> anyhow::Result<()> {
        let path = state.join(FILE);
        let fresh = path.with_extension("json.new");
        _ = fs::remove_file(&fresh);
        let text = serde_json::to_string(self).context("the flags of this server cannot be kept")?;
        let written = system::new_file(&fresh, false).and_then(|mut file| file.write_all(text.as_bytes()));
        let moved = written.and_then(|()| fs::rename(&fresh, &path));
        moved.with_context(|| format!("cannot write {}", path.display()))
    }

    /// The start of the server that was killed; nothing special if none was.
    pub fn read(state: &Path) -> LastStart {
        let text = fs::read_to_string(state.join(FILE)).ok();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// The server ends in good order.
    pub fn forget(state: &Path) {
        _ = fs::remove_file(state.join(FILE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_known_until_its_server_ends() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(LastStart::read(dir.path()), LastStart::default());
        let started = LastStart {
            config: Some("/etc/farm.toml".into()),
            store: None,
            flags: vec!["--set=keep_days=7".to_owned()],
        };
        LastStart::default().write(dir.path()).unwrap();
        started.write(dir.path()).unwrap();
        assert_eq!(LastStart::read(dir.path()), started);
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        LastStart::forget(dir.path());
        assert_eq!(LastStart::read(dir.path()), LastStart::default());
        fs::write(dir.path().join(FILE), "of another release").unwrap();
        assert_eq!(LastStart::read(dir.path()), LastStart::default());
    }
}
