//! The load of this machine, read anew for each report. What cannot be read is `None`.

use crate::cgroup::field;
use crate::mounts::{Group, Mounts};
use crate::process::resident_bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use windlass_core::Resources;
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures};

/// Reads the load, and remembers the last reading: exact windows lie between two.
pub struct Reader {
    /// Below which all files are.
    root: PathBuf,
    mounts: Mounts,
    /// The cpus that the worker may use.
    cpus: Vec<usize>,
    /// A quota leaves it less than these.
    has_quota: bool,
    /// Cores that its tasks may hold.
    declared: f64,
    before: Option<Reading>,
}

/// What the next reading is compared with.
struct Reading {
    at_ns: u64,
    machine: Pressures,
    own: Pressures,
    busy_ticks: Option<u64>,
    tasks_us: Option<u64>,
    /// Whose time that is: another keeper has other groups.
    tasks: Vec<PathBuf>,
}

impl Reader {
    /// Of this machine, for a worker that declares `capacity`.
    pub fn new(capacity: &Resources) -> Reader {
        let mask = rustix::thread::sched_getaffinity(None);
        let cpus = mask.map(|mask| {
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).collect::<Vec<_>>()
        });
        let cpus = cpus.unwrap_or_default();
        let has_quota = std::thread::available_parallelism().is_ok_and(|n| n.get() < cpus.len());
        Reader::below(PathBuf::from("/"), cpus, has_quota, f64::from(capacity.cpu) / 100.0)
    }

    fn below(root: PathBuf, cpus: Vec<usize>, has_quota: bool, declared: f64) -> Reader {
        let mounts = Mounts::read(&root).unwrap_or_default();
        Reader { root, mounts, cpus, has_quota, declared, before: None }
    }

    /// A report. `now_ns` is of a clock that never goes back; `tasks` are the control groups of the keeper,
    /// as [`KeeperFile`](crate::keeper::KeeperFile) has them.
    pub fn read(&mut self, now_ns: u64, tasks: &[PathBuf]) -> LoadReport {
        let before = self.before.take().filter(|before| now_ns > before.at_ns);
        let elapsed_us = before.as_ref().map_or(0, |before| (now_ns - before.at_ns) / 1_000);
        let then = |pick: fn(&Reading) -> &Pressures| Some((pick(before.as_ref()?), elapsed_us));
        let machine = pressures(|name| self.root.join("proc/pressure").join(name), then(|b| &b.machine));
        let own = self
            .mounts
            .v2
            .as_ref()
            .map(Group::home)
            .map(|own| pressures(|name| own.join(format!("{name}.pressure")), then(|b| &b.own)));
        let now = Reading {
            at_ns: now_ns,
            machine,
            own: own.unwrap_or_default(),
            busy_ticks: self.busy_ticks(),
            tasks_us: tasks.first().and_then(|group| number_in(&group.join("cpu.stat"), "usage_usec")),
            tasks: tasks.to_owned(),
        };
        let (cpu_used, cpu_foreign) = before.map_or((None, None), |before| self.cpu_use(&before, &now));
        let memory = self.memory();
        let report = LoadReport {
            confined: self.has_quota || self.has_part_of_cpus() || memory.limited,
            machine: now.machine,
            own: now.own,
            load_average: self.load_average(),
            memory_available: memory.available,
            memory_own: tasks.first().and_then(|group| self.memory_of(group)),
            cpu_used,
            cpu_foreign,
            disk_mb_s: None,
            network_mbit_s: None,
        };
        self.before = Some(now);
        report
    }

    /// Clock ticks that the worker's cpus were not idle. Time stolen by other machines counts: it is not to
    /// be had either.
    fn busy_ticks(&self) -> Option<u64> {
        let stat = fs::read_to_string(self.root.join("proc/stat")).ok()?;
        let mut left = self.cpus.clone();
        let mut busy = 0u64;
        for line in stat.lines() {
            let mut fields = line.split_ascii_whitespace();
            let cpu = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse::<usize>().ok());
            let Some(place) = cpu.and_then(|cpu| left.iter().position(|wanted| *wanted == cpu)) else {
                continue;
            };
            left.swap_remove(place);
            // user nice system idle iowait irq softirq steal; guests are in user.
            let ticks = fields.take(8).map(u64::from_str).collect::<Result<Vec<_>, _>>().ok()?;
            let idle = ticks.get(3)?.saturating_add(*ticks.get(4).unwrap_or(&0));
            busy = busy
                .checked_add(ticks.iter().try_fold(0u64, |sum, n| sum.checked_add(*n))?.checked_sub(idle)?)?;
        }
        (left.is_empty() && !self.cpus.is_empty()).then_some(busy)
    }

    /// Cores in use between two readings, and how many of those that the worker declares something else
    /// takes: what it does not declare is left to others.
    fn cpu_use(&self, before: &Reading, now: &Reading) -> (Option<f64>, Option<f64>) {
        let seconds = (now.at_ns - before.at_ns) as f64 / 1e9;
        let cores = |was: Option<u64>, is: Option<u64>, per_second: f64| {
            Some(is?.saturating_sub(was?) as f64 / per_second / seconds)
        };
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let there_are = self.cpus.len() as f64;
        let used = cores(before.busy_ticks, now.busy_ticks, ticks).map(|used| used.min(there_are));
        let ours = cores(before.tasks_us, now.tasks_us, 1e6).filter(|_| before.tasks == now.tasks);
        let spare = (there_are - self.declared).max(0.0);
        let foreign = used.zip(ours).map(|(used, ours)| (used - ours - spare).max(0.0));
        (used, foreign)
    }

    fn has_part_of_cpus(&self) -> bool {
        let online = fs::read_to_string(self.root.join("sys/devices/system/cpu/online"));
        online.ok().and_then(|text| count_listed(text.trim())).is_some_and(|online| self.cpus.len() < online)
    }

    fn load_average(&self) -> Option<[f64; 3]> {
        let text = fs::read_to_string(self.root.join("proc/loadavg")).ok()?;
        let mut numbers =
            text.split(' ').map(|text| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0));
        Some([numbers.next()??, numbers.next()??, numbers.next()??])
    }

    fn memory(&self) -> Memory {
        let info = fs::read_to_string(self.root.join("proc/meminfo")).unwrap_or_default();
        let bytes = |name| field(&info.replace(" kB", ""), name).and_then(|kib| kib.checked_mul(1024));
        let total = bytes("MemTotal:");
        let mut memory = Memory { available: bytes("MemAvailable:"), limited: false };
        for (group, files) in [(&self.mounts.v2, &V2), (&self.mounts.memory_v1, &V1)] {
            let Some(group) = group else { continue };
            // A limit holds for all groups below.
            for dir in group.home().ancestors().take_while(|dir| dir.starts_with(&group.mount)) {
                let Some(room) = files.room(dir, total) else { continue };
                memory.limited = true;
                memory.available = memory.available.map(|bytes| bytes.min(room));
            }
        }
        memory
    }

    /// Bytes that the processes in the groups of tasks hold.
    fn memory_of(&self, base: &Path) -> Option<u64> {
        let groups = fs::read_dir(base).ok()?.flatten();
        let pids = groups.filter_map(|group| fs::read_to_string(group.path().join("cgroup.procs")).ok());
        let pids: Vec<i32> = pids
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>())
            .collect();
        Some(resident_bytes(&self.root.join("proc"), &pids))
    }
}

/// Memory that can be had.
struct Memory {
    available: Option<u64>,
    /// By the limit of a control group.
    limited: bool,
}

/// How a version of control groups names its files, and what of the page cache can be thrown away.
struct MemoryFiles {
    limit: &'static str,
    usage: &'static str,
    cached: [&'static str; 2],
}

const V2: MemoryFiles =
    MemoryFiles { limit: "memory.max", usage: "memory.current", cached: ["inactive_file", "active_file"] };
const V1: MemoryFiles = MemoryFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};

impl MemoryFiles {
    /// Bytes below a group's limit; `None` where that is none, or above what the machine has.
    fn room(&self, dir: &Path, total: Option<u64>) -> Option<u64> {
        let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let limit = read(self.limit)?
            .trim()
            .parse::<u64>()
            .ok()
            .filter(|limit| total.is_none_or(|total| *limit < total))?;
        let used = read(self.usage)?.trim().parse::<u64>().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let cached: u64 =
            self.cached.iter().filter_map(|name| field(&stat, name)).fold(0, u64::saturating_add);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

fn pressures(path: impl Fn(&str) -> PathBuf, before: Option<(&Pressures, u64)>) -> Pressures {
    let read = |name: &str, pick: fn(&Pressures) -> &Option<Pressure>| {
        let then = before.and_then(|(before, elapsed_us)| Some((pick(before).as_ref()?, elapsed_us)));
        let pressure = Pressure::parse(&fs::read_to_string(path(name)).ok()?, then).ok();
        pressure.filter(|pressure| pressure.some.is_some() || pressure.full.is_some())
    };
    Pressures {
        cpu: read("cpu", |p| &p.cpu),
        memory: read("memory", |p| &p.memory),
        io: read("io", |p| &p.io),
    }
}

fn number_in(path: &Path, name: &str) -> Option<u64> {
    field(&fs::read_to_string(path).ok()?, name)
}

/// How many numbers a list such as `0-3,8` has.
fn count_listed(text: &str) -> Option<usize> {
    text.split(',').try_fold(0usize, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        sum.checked_add(last.checked_sub(first)?)?.checked_add(1)
    })
}
