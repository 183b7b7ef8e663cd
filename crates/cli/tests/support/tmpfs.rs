//! A small disk for one test.

use std::path::Path;
use std::process::Command;

/// A small file system that is unmounted at the end of the test.
pub struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// `None` if the machine does not let one be mounted, after a line that says so.
    pub fn mount(bytes: &str) -> Option<Tmpfs> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            println!("SKIP the full disk: no tmpfs can be mounted here");
            return None;
        }
        Some(Tmpfs(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file that leaves about that many bytes.
    pub fn leave(&self, bytes: u64) {
        let free = rustix::fs::statvfs(self.path()).map(|found| found.f_bavail * found.f_frsize).unwrap();
        let filler = vec![7; usize::try_from(free.saturating_sub(bytes)).unwrap()];
        std::fs::write(self.path().join("filler"), filler).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
