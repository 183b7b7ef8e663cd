//! Who a worker is: its name, and a number that tells it from another of that name.

use crate::agent::fresh_number;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The worker's own number, made when its directory is first used.
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

/// The name asked for, or the one that the worker had before: what is booked is booked under it, and a
/// machine's own name may change.
pub fn name(state: &Path, asked: Option<String>, host: Option<String>) -> io::Result<String> {
    let name = expected_name(state, asked, host);
    if before(state).as_ref() != Some(&name) {
        write(&name_file(state), &name)?;
    }
    Ok(name)
}

/// The name that [`name`] would give, without keeping it.
pub fn expected_name(state: &Path, asked: Option<String>, host: Option<String>) -> String {
    asked.or_else(|| before(state)).or(host).unwrap_or_else(|| "local".to_owned())
}

fn name_file(state: &Path) -> PathBuf {
    state.join("worker-name")
}

/// The name that the worker had last.
fn before(state: &Path) -> Option<String> {
    fs::read_to_string(name_file(state)).ok().filter(|name| !name.is_empty())
}

/// Writes a file whole or not at all: half a number would be another worker.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    // The number is what tells this machine from one that claims its name.
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
