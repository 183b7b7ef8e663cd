//! The part of the machine that this process may use: its affinity mask, and the limits of its control groups. A limit
//! holds for all groups below, so the groups are looked at from the worker's own up to the top. `detect` declares what
//! is left, and `load` reports what of that is free. Nothing here changes a group.

use crate::cgroup::field;
use crate::mounts::{Group, Mounts};
use std::fs;
use std::path::Path;

/// The cpus in the affinity mask of this process, by their numbers; empty if the mask cannot be read.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(mask) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect()
}

/// Hundredths of a core that the narrowest quota leaves; `None` without a quota.
pub fn cpu_quota(mounts: &Mounts) -> Option<u32> {
    let v2 = levels(&mounts.v2).filter_map(|dir| {
        let text = read(dir, "cpu.max")?;
        let (quota, period) = text.trim().split_once(' ')?;
        hundredths(quota, period)
    });
    let v1 = levels(&mounts.cpu_v1)
        .filter_map(|dir| hundredths(&read(dir, "cpu.cfs_quota_us")?, &read(dir, "cpu.cfs_period_us")?));
    v2.chain(v1).min()
}

/// Both in microseconds. Without a quota there is a word, or a negative number.
fn hundredths(quota: &str, period: &str) -> Option<u32> {
    let (quota, period) = (quota.trim().parse::<u64>().ok()?, period.trim().parse::<u64>().ok()?);
    quota.saturating_mul(100).checked_div(period)?.try_into().ok()
}

/// Bytes of memory that the narrowest limit leaves; `None` without a limit. In a hierarchy of version 1 a group without
/// a limit has a number that is larger than any machine.
pub fn memory_limit(mounts: &Mounts) -> Option<u64> {
    memory_levels(mounts).filter_map(|(dir, files)| files.limit(dir)).min()
}

/// Bytes that can still be had below the limit that leaves least. `None` if no limit is below the machine's memory of
/// `total` bytes.
fn memory_room(mounts: &Mounts, total: Option<u64>) -> Option<u64> {
    memory_levels(mounts).filter_map(|(dir, files)| files.room(dir, total)).min()
}

/// Memory of this machine, and of it what the worker can still have.
#[derive(Default)]
pub struct AvailableMemory {
    /// Bytes of the machine.
    pub total: Option<u64>,
    /// Bytes that can be allocated below all limits.
    pub available: Option<u64>,
    /// Whether the limit of a control group applies.
    pub limited: bool,
    /// Bytes that cannot be allocated, because something on this machine holds them.
    pub used: Option<u64>,
}

/// Reads the memory of a machine whose `/proc` is below `root`.
pub fn memory_available(root: &Path, mounts: &Mounts) -> AvailableMemory {
    let info = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let bytes = |name| field(&info.replace(" kB", ""), name).and_then(|kib| kib.checked_mul(1024));
    let (total, available) = (bytes("MemTotal:"), bytes("MemAvailable:"));
    let room = memory_room(mounts, total);
    AvailableMemory {
        total,
        available: available.map(|bytes| bytes.min(room.unwrap_or(u64::MAX))),
        limited: room.is_some(),
        used: total.zip(available).map(|(total, available)| total.saturating_sub(available)),
    }
}

fn memory_levels(mounts: &Mounts) -> impl Iterator<Item = (&Path, &'static MemoryFiles)> {
    let v2 = levels(&mounts.v2).map(|dir| (dir, &V2));
    let v1 = levels(&mounts.memory_v1).map(|dir| (dir, &V1));
    v2.chain(v1)
}

fn levels(group: &Option<Group>) -> impl Iterator<Item = &Path> {
    group.iter().flat_map(Group::levels)
}

fn read(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}

/// Names of files in one version of control groups, and of the counters of page cache that can be reclaimed.
struct MemoryFiles {
    /// Beyond the first the kernel kills, and beyond the second it holds processes up.
    limits: &'static [&'static str],
    usage: &'static str,
    cached: [&'static str; 2],
}

static V2: MemoryFiles = MemoryFiles {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    cached: ["inactive_file", "active_file"],
};
static V1: MemoryFiles = MemoryFiles {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};

impl MemoryFiles {
    /// A group's own limit in bytes. `None` where it has none, and of a group at the top, which has no such file.
    fn limit(&self, dir: &Path) -> Option<u64> {
        self.limits.iter().filter_map(|file| read(dir, file)?.trim().parse::<u64>().ok()).min()
    }

    /// Bytes left below a group's limit. `None` without a limit, or with one above the machine's memory.
    fn room(&self, dir: &Path, total: Option<u64>) -> Option<u64> {
        let limit = self.limit(dir).filter(|limit| total.is_none_or(|total| *limit < total))?;
        let used = read(dir, self.usage)?.trim().parse::<u64>().ok()?;
        let stat = read(dir, "memory.stat").unwrap_or_default();
        let cached: u64 =
            self.cached.iter().filter_map(|name| field(&stat, name)).fold(0, u64::saturating_add);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits that a process sees below a directory with files of the names of `/proc` and `/sys`.
    fn seen(files: &[(&str, &str)]) -> (Option<u64>, Option<u32>) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mounts = Mounts::read(dir.path()).unwrap();
        (memory_limit(&mounts), cpu_quota(&mounts))
    }

    const V2_MOUNT: (&str, &str) =
        ("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");

    #[test]
    fn a_slice_of_systemd_limits_the_unit_below_it() {
        let slice = "sys/fs/cgroup/farm.slice";
        let unit = format!("{slice}/windlass-worker.service");
        let of_unit = ["memory.max", "memory.high", "cpu.max", "windlass-agent/memory.max"];
        let [max, high, quota, agent] = of_unit.map(|file| format!("{unit}/{file}"));
        let (slice_max, slice_quota) = (format!("{slice}/memory.max"), format!("{slice}/cpu.max"));
        let files: [(&str, &str); 8] = [
            V2_MOUNT,
            ("proc/self/cgroup", "0::/farm.slice/windlass-worker.service/windlass-agent\n"),
            (max.as_str(), "max\n"),
            (high.as_str(), "8589934592\n"),
            (quota.as_str(), "max 100000\n"),
            // The agent's own part of the unit limits no task.
            (agent.as_str(), "1048576\n"),
            (slice_max.as_str(), "4294967296\n"),
            (slice_quota.as_str(), "350000 100000\n"),
        ];
        assert_eq!(seen(&files), (Some(4 << 30), Some(350)));
        assert_eq!(seen(&files[..6]), (Some(8 << 30), None), "the unit's own");
    }

    #[test]
    fn in_the_namespace_of_a_container_the_mount_has_the_limits() {
        let own = ("proc/self/cgroup", "0::/\n");
        let limits =
            [("sys/fs/cgroup/memory.max", "1073741824\n"), ("sys/fs/cgroup/cpu.max", "50000 100000\n")];
        assert_eq!(seen(&[V2_MOUNT, own, limits[0], limits[1]]), (Some(1 << 30), Some(50)));
        // The group's own path is that of the machine, and its part is mounted.
        let mount = ("proc/self/mountinfo", "41 31 0:38 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
        let own = ("proc/self/cgroup", "0::/docker/ab\n");
        assert_eq!(seen(&[mount, own, limits[0], limits[1]]), (Some(1 << 30), Some(50)));
        // Of a process outside of the namespace the kernel shows a path that leads out of the mount.
        let outside = ("proc/self/cgroup", "0::/../../job\n");
        assert_eq!(seen(&[V2_MOUNT, outside]), (None, None));
    }

    #[test]
    fn of_two_hierarchies_the_narrowest_limit_holds() {
        let mountinfo = "35 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                         36 25 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                         41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let files = [
            ("proc/self/mountinfo", mountinfo),
            ("proc/self/cgroup", "5:memory:/slurm/job_7\n3:cpu,cpuacct:/slurm/job_7\n0::/system.slice\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "200000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/unified/system.slice/memory.max", "536870912\n"),
        ];
        assert_eq!(seen(&files[..8]), (Some(1 << 30), Some(200)));
        assert_eq!(seen(&files), (Some(512 << 20), Some(200)));
    }

    #[test]
    fn of_garbage_no_limit_is_made() {
        let own = ("proc/self/cgroup", "0::/a\n");
        for text in ["", "\n", "-1", "nan", "max", "1 0", "max max", "18446744073709551616"] {
            let files =
                [V2_MOUNT, own, ("sys/fs/cgroup/a/memory.max", text), ("sys/fs/cgroup/a/cpu.max", text)];
            assert_eq!(seen(&files), (None, None), "{text:?}");
        }
    }
}
