//! The load of this machine, read from `/proc` and the control groups for each report. `measure` asks for a
//! report each second and the agent sends it. What cannot be read is `None`, never 0. Nothing here decides
//! what a load means for placement; the engine does.

use crate::cgroup::{field, held};
use crate::confinement::{allowed_cpus, cpu_quota, memory_available};
use crate::memory::resident_sizes;
use crate::mounts::{Group, Mounts};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use windlass_core::Resources;
use windlass_core::load::pressure::{LoadReport, Pressure, Pressures};

/// Reads the load. It remembers the last reading, because exact means are differences of two readings.
pub struct LoadReader {
    /// `/`, or in tests a directory with files of the same names.
    root: PathBuf,
    mounts: Mounts,
    /// The cpus in the affinity mask of this process.
    cpus: Vec<usize>,
    /// Whether a quota leaves less than these cpus.
    has_quota: bool,
    /// Cores that tasks may use together.
    declared: f64,
    before: Option<Reading>,
}

/// A reading, to compare the next one with.
struct Reading {
    at_ns: u64,
    machine: Pressures,
    own: Pressures,
    busy_ticks: Option<u64>,
    tasks_us: Option<u64>,
    /// The groups of `tasks_us`. Another keeper has other groups.
    tasks: Vec<PathBuf>,
}

impl LoadReader {
    /// A reader for a worker that declares `capacity`.
    pub fn new(capacity: &Resources) -> LoadReader {
        LoadReader::below(PathBuf::from("/"), allowed_cpus(), f64::from(capacity.cpu) / 100.0)
    }

    fn below(root: PathBuf, cpus: Vec<usize>, declared: f64) -> LoadReader {
        let mounts = Mounts::read(&root).unwrap_or_default();
        let has_quota = cpu_quota(&mounts).is_some_and(|quota| (quota as usize) < 100 * cpus.len());
        LoadReader { root, mounts, cpus, has_quota, declared, before: None }
    }

    /// A report. `now_ns` is of a monotonic clock. `tasks` are the keeper's control groups, as in
    /// [`KeeperFile`](crate::keeper::KeeperFile).
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
            tasks_us: tasks
                .first()
                .and_then(|group| field(&fs::read_to_string(group.join("cpu.stat")).ok()?, "usage_usec")),
            tasks: tasks.to_owned(),
        };
        let (cpu_used, cpu_foreign) = before.map_or((None, None), |before| self.cpu_use(&before, &now));
        let memory = memory_available(&self.root, &self.mounts);
        let report = LoadReport {
            confined: self.has_quota || self.has_part_of_cpus() || memory.limited,
            machine: now.machine,
            own: now.own,
            load_average: self.load_average(),
            memory_available: memory.available,
            memory_own: self.memory_of(tasks).map(|bytes| bytes.min(memory.used.unwrap_or(u64::MAX))),
            cpu_used,
            cpu_foreign,
            // The rest is not of files of the kernel.
            ..LoadReport::default()
        };
        self.before = Some(now);
        report
    }

    /// Clock ticks that the worker's cpus were not idle. Time stolen by other virtual machines counts,
    /// because tasks cannot have it either.
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
            // The fields are user, nice, system, idle, iowait, irq, softirq, steal. Guests are in user.
            let ticks = fields.take(8).map(u64::from_str).collect::<Result<Vec<_>, _>>().ok()?;
            let idle = ticks.get(3)?.saturating_add(*ticks.get(4).unwrap_or(&0));
            busy = busy
                .checked_add(ticks.iter().try_fold(0u64, |sum, n| sum.checked_add(*n))?.checked_sub(idle)?)?;
        }
        (left.is_empty() && !self.cpus.is_empty()).then_some(busy)
    }

    /// Cores in use between two readings, and how many of the declared cores processes outside of Windlass
    /// use. Cores that the worker does not declare are left to these processes.
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

    /// Bytes that all processes of tasks hold, as far as groups count them: that of version 2 above all tasks, or that
    /// of version 1 which a task with a memory limit has. Of other tasks resident sizes are added, in which shared
    /// memory counts for each process.
    fn memory_of(&self, tasks: &[PathBuf]) -> Option<u64> {
        let counted = |dir: &Path| {
            let (anonymous, shared) = held(&fs::read_to_string(dir.join("memory.stat")).ok()?)?;
            anonymous.checked_add(shared)
        };
        let pids = |dir: &Path| {
            let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>()
        };
        let base = tasks.first()?;
        if let Some(bytes) = counted(base) {
            return Some(bytes);
        }
        let mut sum = 0u64;
        for slot in fs::read_dir(base).ok()?.flatten() {
            let limited = tasks.get(1).map(|base| base.join(slot.file_name()));
            let limited = limited.filter(|dir| !pids(dir).is_empty()).and_then(|dir| counted(&dir));
            let resident =
                || resident_sizes(&self.root.join("proc"), &pids(&slot.path())).iter().sum::<u64>();
            sum = sum.saturating_add(limited.unwrap_or_else(resident));
        }
        Some(sum)
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

/// How many numbers a list such as `0-3,8` has.
fn count_listed(text: &str) -> Option<usize> {
    text.split(',').try_fold(0usize, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        sum.checked_add(last.checked_sub(first)?)?.checked_add(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::load::pressure::Stall;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A machine of files: four cpus, of which the worker may use two, both hierarchies, one group of tasks.
    struct Machine {
        dir: tempfile::TempDir,
        reader: LoadReader,
    }

    impl Machine {
        /// The files that every machine here has, and `files` by their paths.
        fn with(files: &[(&str, &str)]) -> Machine {
            let machine = Machine::bare();
            files.iter().for_each(|(path, text)| machine.write(path, text));
            machine.reopened(vec![1, 3], 2.0)
        }

        fn bare() -> Machine {
            let dir = tempfile::tempdir().unwrap();
            let reader = LoadReader::below(dir.path().to_owned(), Vec::new(), 0.0);
            let machine = Machine { dir, reader };
            machine.write(
                "proc/self/mountinfo",
                "35 25 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
            );
            machine.write("proc/self/cgroup", "4:memory:/box/a\n0::/slice/windlass-main\n");
            machine.write("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    600 kB\n");
            machine
        }

        fn reopened(mut self, cpus: Vec<usize>, declared: f64) -> Machine {
            self.reader = LoadReader::below(self.dir.path().to_owned(), cpus, declared);
            self
        }

        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn read(&mut self, at_s: u64) -> LoadReport {
            let tasks = [self.path(TASKS)];
            self.reader.read(at_s * SECOND_NS, &tasks)
        }
    }

    const TASKS: &str = "sys/fs/cgroup/unified/slice/windlass-1";

    fn psi(some_us: u64, full_us: u64) -> String {
        format!(
            "some avg10=2.04 avg60=0.75 avg300=0.40 total={some_us}\n\
             full avg10=1.23 avg60=0.58 avg300=0.32 total={full_us}\n"
        )
    }

    /// Lines of `/proc/stat` in which cpus 1 and 3 were busy for `busy` ticks, and the other cpus always.
    fn stat(busy: [u64; 2]) -> String {
        let [one, three] = busy;
        format!(
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 99999 0 0 0 0 0 0 0 0 0\ncpu1 {one} 0 0 7000 300 0 0 0 50 50\n\
             cpu2 99999 0 0 0 0 0 0 0 0 0\ncpu3 0 0 {three} 5000 0 0 0 0 0 0\nintr 1 2 3\n"
        )
    }

    #[test]
    fn pressures_of_the_machine_and_of_the_group_in_which_the_agent_was_started() {
        let mut machine = Machine::with(&[
            ("proc/pressure/cpu", "some avg10=5.00 avg60=1.00 avg300=0.00 total=70\n"),
            ("proc/pressure/memory", &psi(1_000, 500)),
            ("sys/fs/cgroup/unified/slice/io.pressure", &psi(8_000_000, 0)),
            ("sys/fs/cgroup/unified/slice/windlass-main/memory.pressure", &psi(9, 9)),
        ]);
        // As on a kernel that does not count pressure: the file exists and cannot be read.
        fs::create_dir(machine.path("proc/pressure/io")).unwrap();
        let first = machine.read(10);
        let cpu = first.machine.cpu.unwrap();
        assert_eq!((cpu.some.unwrap().avg10, cpu.some.unwrap().window, cpu.full), (5.0, None, None));
        assert_eq!((first.machine.io, first.own.cpu, first.own.memory), (None, None, None));
        machine.write("proc/pressure/memory", &psi(501_000, 125_500));
        machine.write("sys/fs/cgroup/unified/slice/io.pressure", &psi(8_500_000, 0));
        let second = machine.read(12);
        let window = |stall: Option<Stall>| stall.unwrap().window;
        let memory = second.machine.memory.unwrap();
        assert_eq!((window(memory.some), window(memory.full)), (Some(25.0), Some(6.25)));
        assert_eq!(window(second.own.io.unwrap().some), Some(25.0));
        assert_eq!(window(second.own.io.unwrap().full), Some(0.0));
        second.check().unwrap();
    }

    #[test]
    fn cpu_use_is_that_of_the_workers_own_cpus_between_two_readings() {
        let mut machine = Machine::with(&[
            ("proc/stat", &stat([1_000, 4_000])),
            (&format!("{TASKS}/cpu.stat"), "usage_usec 2000000\nuser_usec 1\n"),
        ]);
        let first = machine.read(10);
        assert_eq!((first.cpu_used, first.cpu_foreign), (None, None));
        // In two seconds of 100 ticks each: 0.75 cores and 0.5 cores, of which tasks had one.
        machine.write("proc/stat", &stat([1_150, 4_100]));
        machine.write(&format!("{TASKS}/cpu.stat"), "usage_usec 4000000\n");
        let second = machine.read(12);
        assert_eq!((second.cpu_used, second.cpu_foreign), (Some(1.25), Some(0.25)));
        // Another keeper has another group, of which there is no earlier reading.
        machine.write("proc/stat", &stat([1_250, 4_100]));
        machine.write("sys/fs/cgroup/unified/slice/windlass-2/cpu.stat", "usage_usec 5000000\n");
        let other = [machine.path("sys/fs/cgroup/unified/slice/windlass-2")];
        let third = machine.reader.read(14 * SECOND_NS, &other);
        assert_eq!((third.cpu_used, third.cpu_foreign), (Some(0.5), None));
        // Tasks used more than whole ticks show. A reading without elapsed time has no rates.
        machine.write("sys/fs/cgroup/unified/slice/windlass-2/cpu.stat", "usage_usec 9000000\n");
        let fourth = machine.reader.read(16 * SECOND_NS, &other);
        assert_eq!((fourth.cpu_used, fourth.cpu_foreign), (Some(0.0), Some(0.0)));
        assert_eq!(machine.reader.read(16 * SECOND_NS, &other).cpu_used, None);
    }

    #[test]
    fn others_may_use_what_the_worker_does_not_declare() {
        let mut machine =
            Machine::with(&[("proc/stat", &stat([0, 0])), (&format!("{TASKS}/cpu.stat"), "usage_usec 0\n")])
                .reopened(vec![1, 3], 0.5);
        machine.read(10);
        machine.write("proc/stat", &stat([100, 75]));
        let report = machine.read(11);
        assert_eq!((report.cpu_used, report.cpu_foreign), (Some(1.75), Some(0.25)));
    }

    #[test]
    fn available_memory_is_what_the_narrowest_group_above_leaves() {
        let mut machine = Machine::with(&[]);
        let open = machine.read(1);
        assert_eq!((open.memory_available, open.confined), (Some(600 << 10), false));
        let v1 = "sys/fs/cgroup/memory/box";
        machine.write(&format!("{v1}/a/memory.limit_in_bytes"), "9223372036854771712\n");
        machine.write(&format!("{v1}/a/memory.usage_in_bytes"), "1024\n");
        assert!(!machine.read(2).confined);
        machine.write(&format!("{v1}/memory.limit_in_bytes"), "409600\n");
        machine.write(&format!("{v1}/memory.usage_in_bytes"), "307200\n");
        machine.write(
            &format!("{v1}/memory.stat"),
            "active_file 1\ntotal_inactive_file 4096\ntotal_active_file 4096\n",
        );
        let limited = machine.read(3);
        assert_eq!((limited.memory_available, limited.confined), (Some(409_600 - 307_200 + 8192), true));
        machine.write("sys/fs/cgroup/unified/slice/memory.max", "102400\n");
        machine.write("sys/fs/cgroup/unified/slice/memory.current", "204800\n");
        assert_eq!(machine.read(4).memory_available, Some(0));
        machine.write("sys/fs/cgroup/unified/slice/memory.max", "max\n");
        machine.write("sys/fs/cgroup/unified/slice/memory.high", "307200\n");
        assert_eq!(machine.read(5).memory_available, Some(102_400), "beyond it the kernel holds tasks up");
    }

    #[test]
    fn a_part_of_the_cpus_is_a_part_of_the_machine() {
        let mut machine = Machine::with(&[("sys/devices/system/cpu/online", "0-3\n")]);
        assert!(machine.read(1).confined);
        machine.write("sys/devices/system/cpu/online", "1,3\n");
        assert!(!machine.read(2).confined);
        assert_eq!(count_listed("0-3,8"), Some(5));
        assert_eq!([count_listed(""), count_listed("3-1"), count_listed("0-x")], [None; 3]);
        machine.write("sys/fs/cgroup/unified/slice/cpu.max", "200000 100000\n");
        assert!(
            !machine.reopened(vec![1, 3], 2.0).read(3).confined,
            "the quota is what the cpus have anyway"
        );
        let mut machine = Machine::with(&[
            ("sys/devices/system/cpu/online", "1,3\n"),
            ("sys/fs/cgroup/unified/slice/cpu.max", "150000 100000\n"),
        ]);
        assert!(machine.read(4).confined);
    }

    #[test]
    fn memory_of_tasks_is_what_their_processes_hold() {
        let page = rustix::param::page_size() as u64;
        let mut machine = Machine::with(&[
            (&format!("{TASKS}/slot-0/cgroup.procs"), "11\n12\n"),
            (&format!("{TASKS}/slot-1/cgroup.procs"), "13\n99\n"),
            ("proc/11/statm", "500 3 1 1 0 1 0\n"),
            ("proc/12/statm", "500 4 1 1 0 1 0\n"),
            ("proc/13/statm", "500 5 1 1 0 1 0\n"),
        ]);
        assert_eq!(machine.read(1).memory_own, Some(12 * page));
        assert_eq!(machine.reader.read(2 * SECOND_NS, &[]).memory_own, None);
        assert_eq!(machine.reader.read(3 * SECOND_NS, &["/nonexistent".into()]).memory_own, None);
        // Forks that share most of it hold no more than what is in use.
        machine.write("proc/13/statm", "500 500 1 1 0 1 0\n");
        assert_eq!(machine.read(4).memory_own, Some(400 << 10));
    }

    #[test]
    fn memory_of_tasks_is_what_their_groups_count() {
        let page = rustix::param::page_size() as u64;
        let mut machine = Machine::with(&[
            (&format!("{TASKS}/slot-0/cgroup.procs"), "11\n12\n"),
            (&format!("{TASKS}/slot-1/cgroup.procs"), "13\n"),
            ("proc/11/statm", "500 30 1 1 0 1 0\n"),
            ("proc/12/statm", "500 30 1 1 0 1 0\n"),
            ("proc/13/statm", "500 5 1 1 0 1 0\n"),
        ]);
        let limited = "sys/fs/cgroup/memory/box/windlass-1";
        machine.write(&format!("{limited}/slot-0/cgroup.procs"), "11\n12\n");
        machine.write(&format!("{limited}/slot-0/memory.stat"), "total_rss 4096\ntotal_shmem 100\n");
        machine.write(&format!("{limited}/slot-1/cgroup.procs"), "");
        machine.write(&format!("{limited}/slot-1/memory.stat"), "total_rss 9999\n");
        let groups = [machine.path(TASKS), machine.path(limited)];
        assert_eq!(machine.reader.read(SECOND_NS, &groups).memory_own, Some(4_196 + 5 * page));
        machine.write(&format!("{TASKS}/memory.stat"), "anon 5000\nshmem 10\nfile_mapped 20\n");
        assert_eq!(machine.reader.read(2 * SECOND_NS, &groups).memory_own, Some(5_020));
    }

    #[test]
    fn of_garbage_and_of_nothing_nothing_is_known() {
        let empty = tempfile::tempdir().unwrap();
        let mut reader = LoadReader::below(empty.path().to_owned(), vec![0], 1.0);
        assert_eq!(reader.read(1, &[]), LoadReport::default());
        for text in
            ["", "\n", "nan nan nan", "some", "cpu1 x\ncpu3 -1", "18446744073709551615", "MemTotal: -1 kB"]
        {
            let all = ["proc/stat", "proc/loadavg", "proc/pressure/cpu", "sys/devices/system/cpu/online"];
            let mut machine = Machine::with(&all.map(|path| (path, text)));
            for path in ["proc/meminfo", "proc/self/cgroup", "sys/fs/cgroup/unified/slice/memory.max"] {
                machine.write(path, text);
            }
            machine.read(1);
            assert_eq!(machine.read(2), LoadReport { confined: false, ..LoadReport::default() }, "{text:?}");
        }
        let odd = stat([u64::MAX, 0]);
        let mut machine = Machine::with(&[("proc/stat", &odd), ("proc/loadavg", "0.5 1 -2 1/9 7\n")]);
        machine.read(1);
        let report = machine.read(2);
        assert_eq!((report.cpu_used, report.load_average), (None, None));
        machine.write("proc/loadavg", "0.50 1.25 2.00 1/90 77\n");
        assert_eq!(machine.read(3).load_average, Some([0.5, 1.25, 2.0]));
    }

    #[test]
    fn this_machine_can_be_read() {
        let mut reader = LoadReader::new(&Resources::new(100, 0));
        let report = reader.read(SECOND_NS, &[]);
        report.check().unwrap();
        assert!(report.memory_available.is_some_and(|bytes| bytes > 0) && report.load_average.is_some());
    }
}
