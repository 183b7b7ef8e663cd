//! The keeper's own log: `keeper.log` in the worker's directory, which is its standard error.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Bytes of the keeper's own log.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Writes a line to the keeper's log. An error, as on a full disk, is ignored, because it must not end the keeper.
pub fn write_line(what: fmt::Arguments<'_>) {
    let log = File::from(match rustix::io::dup(rustix::stdio::stderr()) {
        Ok(stderr) => stderr,
        Err(_) => return,
    });
    if log.metadata().is_ok_and(|found| found.is_file() && found.len() > LOG_BYTES_MAX) {
        _ = log.set_len(0);
        _ = writeln!(io::stderr(), "keeper: this file was too large and begins again here");
    }
    _ = writeln!(io::stderr(), "keeper: {what}");
}

/// Redirects standard output and standard error to the keeper's log.
pub fn detach_output(state: &Path) {
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(state.join("keeper.log"));
    let Ok(target) = log.or_else(|_| OpenOptions::new().write(true).open("/dev/null")) else { return };
    _ = rustix::stdio::dup2_stdout(&target);
    _ = rustix::stdio::dup2_stderr(&target);
}
