//! Memory for further processes: what can still be had on this worker, and whether the kernel already makes processes
//! wait for it.

use crate::confinement::{memory_available, memory_limit};
use crate::mounts::Mounts;
use std::fs;
use std::path::{Path, PathBuf};
use windlass_core::load::pressure::Pressure;

/// One part in this many of the worker's memory stays free.
const RESERVE_PART: u64 = 20;
/// Percent of the last 10 seconds in which a process waited for memory, from which on no process is added.
const PRESSURE_MAX: f64 = 10.0;

/// What can be had, as it was read last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryRoom {
    /// Bytes beyond the reserve; `None` if unknown, and then memory holds nothing back.
    pub free_bytes: Option<u64>,
    /// Bytes of the reserve that are in use.
    pub lacking_bytes: u64,
    /// Whether processes wait for memory.
    pub is_pressed: bool,
}

/// Reads the files of `/proc` and of the worker's control groups.
pub struct MemoryReader {
    /// `/`, or in tests a directory with files of the same names.
    root: PathBuf,
    mounts: Option<Mounts>,
}

impl Default for MemoryReader {
    fn default() -> Self {
        MemoryReader { root: PathBuf::from("/"), mounts: None }
    }
}

impl MemoryReader {
    /// What can be had now.
    pub fn read(&mut self) -> MemoryRoom {
        let root = &self.root;
        let mounts = self.mounts.get_or_insert_with(|| Mounts::read(root).unwrap_or_default());
        let memory = memory_available(root, mounts);
        let all = [memory.total, memory_limit(mounts)].into_iter().flatten().min();
        let reserve = all.map_or(0, |bytes| bytes / RESERVE_PART);
        let own = mounts.v2.as_ref().map(|group| group.home().join("memory.pressure"));
        let files = [Some(root.join("proc/pressure/memory")), own];
        let stalled = files.into_iter().flatten().filter_map(|file| stalled_percent(&file));
        MemoryRoom {
            free_bytes: memory.available.map(|bytes| bytes.saturating_sub(reserve)),
            lacking_bytes: memory.available.map_or(0, |bytes| reserve.saturating_sub(bytes)),
            is_pressed: stalled.fold(0.0, f64::max) >= PRESSURE_MAX,
        }
    }
}

/// Percent of the last 10 seconds in which some process waited; `None` where the kernel does not count it.
fn stalled_percent(file: &Path) -> Option<f64> {
    Some(Pressure::parse(&fs::read_to_string(file).ok()?, None).ok()?.some?.avg10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_stays_free_and_the_groups_limit_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let room = || MemoryReader { root: dir.path().to_owned(), mounts: None }.read();
        assert_eq!(room(), MemoryRoom::default());
        write("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("proc/self/cgroup", "0::/box/windlass-main\n");
        write("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    600 kB\n");
        assert_eq!(room(), MemoryRoom { free_bytes: Some(550 << 10), ..MemoryRoom::default() });
        write("sys/fs/cgroup/box/memory.max", "409600\n");
        write("sys/fs/cgroup/box/memory.current", "307200\n");
        assert_eq!(room().free_bytes, Some(102_400 - 409_600 / 20));
        write("sys/fs/cgroup/box/memory.current", "399600\n");
        let lacking =
            MemoryRoom { free_bytes: Some(0), lacking_bytes: 409_600 / 20 - 10_000, is_pressed: false };
        assert_eq!(room(), lacking, "of the group, whatever the machine has");
        let psi = |avg10| format!("some avg10={avg10} avg60=0.00 avg300=0.00 total=7\n");
        write("proc/pressure/memory", &psi("9.90"));
        assert!(!room().is_pressed);
        write("sys/fs/cgroup/box/memory.pressure", &psi("10.00"));
        assert!(room().is_pressed);
    }
}
