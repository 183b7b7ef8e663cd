//! A worker's name and identity, kept in its directory. The identity is a random number that tells this
//! machine from another that claims the same name. The agent reads both when it starts, and the server
//! decides which machine may have a name. A damaged identity is an error, never replaced by a new number.

use crate::random::fresh_number;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The worker's identity, which is chosen when its directory is first used.
pub fn identity(state: &Path) -> io::Result<u64> {
    let path = state.join("identity");
    match fs::read_to_string(&path) {
        Ok(text) => {
            return text.trim().parse().map_err(|_| io::Error::other("the file 'identity' is damaged"));
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Err(_) => {}
    }
    let number = fresh_number();
    write(&path, &number.to_string())?;
    Ok(number)
}

/// The name that was asked for, else the one that the worker had before, else the host name. The earlier name comes
/// before the host name because bookings are made under it, and a host name may change. The result is remembered.
pub fn name(state: &Path, asked: Option<String>, host: Option<String>) -> io::Result<String> {
    let name = expected_name(state, asked, host);
    if before(state).as_ref() != Some(&name) {
        write(&name_file(state), &name)?;
    }
    Ok(name)
}

/// The name that [`name`] would return, without writing it down.
pub fn expected_name(state: &Path, asked: Option<String>, host: Option<String>) -> String {
    asked.or_else(|| before(state)).or(host).unwrap_or_else(|| "local".to_owned())
}

fn name_file(state: &Path) -> PathBuf {
    state.join("worker-name")
}

/// The name that the worker had last; `None` if there is none.
fn before(state: &Path) -> Option<String> {
    fs::read_to_string(name_file(state)).ok().filter(|name| !name.is_empty())
}

/// Replaces a file by rename, so that a crash leaves the old text or the new one. A truncated number would be
/// another worker's.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    // A process that can read the number can claim to be this machine.
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_stay_what_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let first = identity(dir.path()).unwrap();
        assert_eq!(identity(dir.path()).unwrap(), first);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(identity(other.path()).unwrap(), first);
        assert_eq!(name(dir.path(), None, Some("a".to_owned())).unwrap(), "a");
        assert_eq!(name(dir.path(), None, Some("b".to_owned())).unwrap(), "a");
        assert_eq!(name(dir.path(), Some("c".to_owned()), None).unwrap(), "c");
    }
}
