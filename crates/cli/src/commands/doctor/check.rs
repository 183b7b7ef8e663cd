//! The result of a check, and the checks that several roles share.

use serde::Serialize;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use windlass_core::resources::Bytes;
use windlass_worker::{Finding, Late};

/// With less free space than this, a burst of output may fill the disk.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// How long a file system may take to answer. That of a server which is gone never does.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The result of one check.
#[derive(Clone, Serialize)]
pub struct Check {
    pub what: String,
    /// `ok`, `note` where something works less well, `missing` where something needed does not work.
    pub state: &'static str,
    /// The finding, for people.
    pub detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl From<Finding> for Check {
    fn from(finding: Finding) -> Self {
        let Finding { ok, needed, what, detail, advice } = finding;
        let state = match (ok, needed) {
            (true, _) => "ok",
            // A worker runs without it, with weaker guarantees.
            (false, false) => "note",
            (false, true) => "missing",
        };
        Check { what, state, detail, advice }
    }
}

impl Check {
    pub fn ok(what: &str, detail: String) -> Self {
        Check { what: what.to_owned(), state: "ok", detail, advice: None }
    }

    pub fn note(what: &str, detail: String, advice: &str) -> Self {
        Check { what: what.to_owned(), state: "note", detail, advice: Some(advice.to_owned()) }
    }

    pub fn missing(what: &str, detail: String, advice: &str) -> Self {
        Check { what: what.to_owned(), state: "missing", detail, advice: Some(advice.to_owned()) }
    }
}

/// How the way to a database is protected. `weakness` is what it allows.
pub fn weak_transport(weakness: Option<&str>, advice: &str) -> Check {
    const WHAT: &str = "way to the database";
    match weakness {
        Some(weakness) => Check::note(WHAT, weakness.to_owned(), advice),
        None => Check::ok(WHAT, "on this machine, or with TLS and a name that is checked".to_owned()),
    }
}

/// A check of a path, on a file system that may hold it up for ever.
fn in_time(what: &str, path: &Path, check: impl FnOnce() -> Check + Send + 'static) -> Check {
    let late = || {
        let detail = format!("{}: its file system has not answered within 10 s", path.display());
        Check::missing(what, detail, "see whether the server of that file system answers ('df', 'mount')")
    };
    Late::ask(check).within(ANSWER_MAX).unwrap_or_else(late)
}

/// Whether files can be created there, without creating any. A missing directory is judged by its nearest existing
/// ancestor.
pub fn directory(what: &str, path: &Path, advice: &str) -> Check {
    let (name, dir, advice) = (what.to_owned(), path.to_owned(), advice.to_owned());
    in_time(what, path, move || look_at_directory(&name, &dir, &advice))
}

fn look_at_directory(what: &str, path: &Path, advice: &str) -> Check {
    let shown = path.display();
    let nearest = nearest(path);
    if !nearest.is_dir() {
        return Check::missing(what, format!("{} is not a directory", nearest.display()), advice);
    }
    match writable(nearest) {
        Ok(()) if nearest == path => Check::ok(what, shown.to_string()),
        Ok(()) => Check::ok(what, format!("{shown}, created when needed")),
        Err(error) => {
            let advice = format!("make {} writable, or {advice}", nearest.display());
            Check::missing(what, format!("{shown}: {error}"), &advice)
        }
    }
}

fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"))
}

/// Whether the file system that has the path, or its nearest existing ancestor, has room.
pub fn free_space(path: &Path) -> Check {
    let dir = path.to_owned();
    in_time(FREE_SPACE, path, move || look_at_free_space(&dir))
}

const FREE_SPACE: &str = "free space";

fn look_at_free_space(path: &Path) -> Check {
    let nearest = nearest(path);
    match free_bytes(nearest) {
        Ok(free) if free < FREE_BYTES_MIN => Check::missing(
            FREE_SPACE,
            format!("{} for {}", Bytes(free), path.display()),
            "free some space: jobs and output are kept there for 14 days",
        ),
        Ok(free) => Check::ok(FREE_SPACE, Bytes(free).to_string()),
        Err(error) => Check::note(FREE_SPACE, format!("unknown: {error}"), "see 'df'"),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn writable(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a string that ends with NUL and outlives the call.
    match unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes that are free on the file system of a path.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = c_path(path)?;
    // SAFETY: all of its fields are integers, for which zero is a valid value.
    let mut stats: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with NUL, and `stats` is a local statvfs.
    match unsafe { libc::statvfs(path.as_ptr(), &raw mut stats) } {
        0 => Ok(stats.f_bavail.saturating_mul(stats.f_frsize)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_judged_by_the_one_above() {
        let here = std::env::temp_dir();
        assert_eq!(nearest(&here.join("windlass-absent/deep")), here);
        assert_eq!(directory("x", &here.join("windlass-absent"), "y").state, "ok");
        assert_eq!(directory("x", Path::new("/proc/self/cmdline/below"), "y").state, "missing");
    }

    #[test]
    fn free_space_is_a_number() {
        assert!(free_bytes(Path::new("/")).is_ok());
        assert!(free_bytes(Path::new("/nonexistent")).is_err());
    }
}
