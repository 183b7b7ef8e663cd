//! Control groups: a pool of v2 groups, one for each running task. On a hybrid machine, where memory is still
//! a v1 controller, each has a v1 memory group beside it.
//!
//! A v2 group without controllers still kills a whole process tree in one write, tells when the last process
//! is gone, and counts processor time. The keeper makes the parent of its groups before it enters its
//! namespace. Where no group can be made, [`Cgroups::open`] says why, and the keeper uses process groups and
//! `/proc` instead. Only [`sweep`] touches the groups of another keeper.

use crate::kept::KeptFile;
use crate::mounts::{AGENT_GROUP, MAIN_GROUP, Mounts};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The keeper's part of the hierarchies.
#[derive(Serialize, Deserialize)]
pub struct Cgroups {
    /// The keeper's v2 group.
    base: PathBuf,
    /// The keeper's v1 memory group, on a hybrid machine.
    memory_v1: Option<PathBuf>,
    /// Whether the tasks' v2 groups have the memory controller.
    memory_v2: bool,
    /// Whether the tasks' v2 groups have the pids controller. The v1 pids controller is not used: joining one
    /// more group would cost a start more than the rest of it.
    #[serde(default)]
    pids_v2: bool,
    /// The keeper's group of the v1 cpu controller, which tasks with a jobserver join.
    #[serde(default)]
    cpu_v1: Option<PathBuf>,
    /// Whether the tasks' v2 groups have the cpu controller; `None` until the first task with a jobserver, because other
    /// tasks are better off without one.
    #[serde(default)]
    cpu_v2: Option<bool>,
    /// Hundredths of a core for which the keeper's group counts; `None` if nothing was written.
    #[serde(default)]
    weight: Option<u32>,
    free: Vec<Slot>,
    made: u32,
}

/// A pooled group, for one task at a time.
#[derive(Serialize, Deserialize)]
pub struct Slot {
    dir: PathBuf,
    /// The directory, in which processes are made; `None` in a program that took over.
    #[serde(skip)]
    group: Option<File>,
    /// Whether the group was ever killed. Linux then also kills each process that is made in it, up to 6.18 at least,
    /// because it compares the group's kills with those of the group of the maker. Processes that join it live.
    #[serde(skip)]
    was_killed: Cell<bool>,
    procs: KeptFile,
    events: KeptFile,
    kill: KeptFile,
    cpu: KeptFile,
    /// Its group of the v1 cpu controller, which is made when a task joins it.
    #[serde(default)]
    cpu_v1: Option<PathBuf>,
    /// Hundredths of a core for which it counts; `None` if nothing was written.
    #[serde(default)]
    weight: Option<u32>,
    memory: Option<SlotMemory>,
}

/// Processes and threads that one task may have, more on a machine with very many cores. A fork bomb then
/// ends only its own task.
fn processes_max() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    4096.max(64 * cores)
}

#[derive(Serialize, Deserialize)]
struct SlotMemory {
    dir: PathBuf,
    v1: bool,
    /// File of a v1 group that a process writes to in order to join; `None` on v2, where the slot's group has
    /// the limit.
    procs: Option<KeptFile>,
    /// Kills that the group had counted when its task began.
    ooms: u64,
    limit: Option<u64>,
    /// Whether the task's processes join the group although the task has no limit.
    #[serde(default)]
    joins: bool,
    /// Bytes that the task before left charged to the group, in files of a tmpfs.
    #[serde(default)]
    left_behind: u64,
    /// Whether memory was seen in the group that can outlive its processes.
    #[serde(skip)]
    saw_shared: Cell<bool>,
}

impl Cgroups {
    /// Makes the keeper's groups below the group of this process. `name` must be unique to this keeper. With
    /// `step_aside` this process and its parent may be moved one group down, which the memory controller of
    /// v2 can need.
    ///
    /// # Errors
    /// Says for people why there can be no groups.
    pub fn open(name: &str, step_aside: bool) -> Result<Cgroups, String> {
        let mounts = Mounts::read(Path::new("/"))?;
        let own = mounts.v2.ok_or("no cgroup v2 is mounted")?.own;
        let (own, may_step_aside) = place(own);
        let base = make(&own, name)?;
        if !base.join("cgroup.kill").exists() {
            _ = fs::remove_dir(&base);
            return Err("the kernel's cgroups have no cgroup.kill (Linux 5.14)".to_owned());
        }
        let memory_v2 = enable("memory", &own, &base, step_aside && may_step_aside);
        // A parent group may pass on either controller without the other.
        let pids_v2 = enable("pids", &own, &base, false);
        let memory_v1 = match mounts.memory_v1 {
            Some(group) if !memory_v2 => make(&group.own, name).ok(),
            _ => None,
        };
        let cpu_v1 = mounts.cpu_v1.and_then(|group| make(&group.own, name).ok());
        let (cpu_v2, weight, free) = (None, None, Vec::new());
        Ok(Cgroups { base, memory_v1, memory_v2, pids_v2, cpu_v1, cpu_v2, weight, free, made: 0 })
    }

    fn bases(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.base), self.memory_v1.as_ref(), self.cpu_v1.as_ref()].into_iter().flatten()
    }

    /// The keeper's groups, which [`sweep`] can remove after its end.
    pub fn dirs(&self) -> Vec<PathBuf> {
        self.bases().cloned().collect()
    }

    /// Whether the kernel enforces memory limits.
    pub fn limits_memory(&self) -> bool {
        self.memory_v2 || self.memory_v1.is_some()
    }

    /// An empty group for one task, from the pool if it has one.
    pub fn take(&mut self) -> io::Result<Slot> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let name = format!("slot-{}", self.made);
        self.made += 1;
        let dir = self.base.join(&name);
        make_dir(&dir)?;
        let memory = match &self.memory_v1 {
            Some(base) => Some(SlotMemory::v1(base.join(&name))?),
            None => self.memory_v2.then(|| SlotMemory::new(dir.clone(), None)),
        };
        if self.pids_v2 {
            fs::write(dir.join("pids.max"), processes_max().to_string())?;
        }
        Ok(Slot {
            group: Some(File::open(&dir)?),
            was_killed: Cell::new(false),
            procs: KeptFile(OpenOptions::new().write(true).open(dir.join("cgroup.procs"))?),
            events: KeptFile(File::open(dir.join("cgroup.events"))?),
            kill: KeptFile(OpenOptions::new().write(true).open(dir.join("cgroup.kill"))?),
            cpu: KeptFile(File::open(dir.join("cpu.stat"))?),
            cpu_v1: self.cpu_v1.as_ref().map(|base| base.join(&name)),
            weight: None,
            memory,
            dir,
        })
    }

    /// Returns an empty group to the pool.
    pub fn give_back(&mut self, mut slot: Slot) {
        // The next task may have no jobserver, and counts as any other.
        if slot.weight.take().is_some() && slot.cpu_v1.is_none() {
            _ = fs::write(slot.dir.join("cpu.weight"), "100");
        }
        self.free.push(slot);
    }

    /// Lets all tasks together count for as many cpus as they have, in hundredths of a core: `shared` of them are those of
    /// tasks with a jobserver. False where cpu time cannot be weighed.
    pub fn weigh(&mut self, capacity: u32, shared: u32) -> bool {
        if self.cpu_v1.is_none() && self.cpu_v2.is_none() {
            self.cpu_v2 = Some(self.base.parent().is_some_and(|own| enable("cpu", own, &self.base, false)));
        }
        // In the group of version 1 are only the tasks that share.
        let (dir, cpu) = match &self.cpu_v1 {
            Some(dir) => (dir, shared),
            None if self.cpu_v2 == Some(true) => (&self.base, capacity),
            None => return false,
        };
        if self.weight != Some(cpu) && write_weight(dir, cpu, self.cpu_v1.is_some()).is_ok() {
            self.weight = Some(cpu);
        }
        true
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.bases().for_each(|base| remove(base));
    }
}

impl Slot {
    /// Sets the memory limit in bytes, or lifts it, and counts out-of-memory kills from now on. With `joins` the memory
    /// of the next task is counted although it has no limit, also where that costs its start one more group. Returns
    /// false if the limit is not enforced here.
    pub fn arm(&mut self, limit: Option<u64>, joins: bool) -> io::Result<bool> {
        let Some(memory) = &mut self.memory else { return Ok(limit.is_none()) };
        if memory.limit != limit {
            memory.set(limit)?;
            memory.limit = limit;
        }
        memory.joins = joins;
        if memory.has_processes() {
            memory.ooms = memory.oom_kills().unwrap_or(0);
        }
        // Most tasks leave nothing behind, and need no look.
        memory.left_behind = if memory.saw_shared.take() { memory.held().unwrap_or(0) } else { 0 };
        Ok(true)
    }

    /// Bytes that the group's processes hold together, as the kernel counts them: a page that several share counts
    /// once, and page cache that can be taken back does not count. `None` where no group counts the processes.
    pub fn held_bytes(&self) -> Option<u64> {
        let memory = self.memory.as_ref().filter(|memory| memory.has_processes())?;
        Some(memory.held()?.saturating_sub(memory.left_behind))
    }

    /// The group's directory, if a process can be made in it.
    pub fn group_fd(&self) -> Option<RawFd> {
        self.group.as_ref().filter(|_| !self.was_killed.get()).map(AsRawFd::as_raw_fd)
    }

    /// Files into which a process writes `0` to join the slot's groups. Only tasks with a limit join the v1 memory
    /// group, and those for which [`Slot::arm`] was told so.
    pub fn join_fds(&self) -> [Option<RawFd>; 2] {
        let memory = self.memory.as_ref().filter(|m| m.has_processes()).and_then(|m| m.procs.as_ref());
        [Some(self.procs.as_raw_fd()), memory.map(|file| file.as_raw_fd())]
    }

    /// File of its group of the v1 cpu controller, into which a process writes `0` to join it; `None` where there is none.
    /// It is open while a task starts, because most tasks never join it.
    pub fn open_cpu_v1(&self) -> Option<File> {
        let dir = self.cpu_v1.as_ref()?;
        make_dir(dir).ok()?;
        OpenOptions::new().write(true).open(dir.join("cgroup.procs")).ok()
    }

    /// Lets the task count for that many hundredths of a core where it competes with others for cpu time.
    pub fn weigh(&mut self, cpu: u32) {
        let dir = self.cpu_v1.as_ref().unwrap_or(&self.dir);
        // A task that is not in a group of version 1 has none.
        if self.weight != Some(cpu) && write_weight(dir, cpu, self.cpu_v1.is_some()).is_ok() {
            self.weight = Some(cpu);
        }
    }

    /// Kills all processes of the group in one write.
    pub fn kill(&self) {
        self.was_killed.set(true);
        _ = (&*self.kill).write(b"1");
    }

    /// Whether no process is left, including zombies that the kernel still tears down.
    pub fn is_empty(&self) -> bool {
        let mut text = [0; 64];
        match self.events.read_at(&mut text, 0) {
            Ok(n) => text[..n].windows(11).any(|w| w == b"populated 0"),
            // A group can be removed only when it is empty.
            Err(_) => !self.dir.exists(),
        }
    }

    /// Processor time of all processes that ever ran in the group, in microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        let mut text = [0; 512];
        let n = self.cpu.read_at(&mut text, 0).ok()?;
        field(std::str::from_utf8(&text[..n]).ok()?, "usage_usec")
    }

    /// Whether the kernel killed a process of the group for its memory limit since [`Slot::arm`].
    pub fn was_oom_killed(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.limit.is_some())
            && self.lost_to_memory() == Some(true)
    }

    /// Whether the kernel killed a process of the group because memory was short, here or in a group above, since
    /// [`Slot::arm`]. `None` where no group counts the task's processes.
    pub fn lost_to_memory(&self) -> Option<bool> {
        let memory = self.memory.as_ref().filter(|memory| memory.has_processes())?;
        Some(memory.oom_kills()? > memory.ooms)
    }

    /// Process numbers of the group, in this process's PID namespace.
    pub fn pids(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl SlotMemory {
    fn v1(dir: PathBuf) -> io::Result<SlotMemory> {
        make_dir(&dir)?;
        let procs = OpenOptions::new().write(true).open(dir.join("cgroup.procs"))?;
        Ok(SlotMemory::new(dir, Some(KeptFile(procs))))
    }

    /// A group of version 1 if it has a file with which processes join it.
    fn new(dir: PathBuf, procs: Option<KeptFile>) -> SlotMemory {
        let (v1, saw_shared) = (procs.is_some(), Cell::new(false));
        SlotMemory { dir, v1, procs, ooms: 0, limit: None, joins: false, left_behind: 0, saw_shared }
    }

    /// Whether the task's processes are in the group. A task without a limit joins no group of version 1: one more
    /// would cost its start more than the rest of it.
    fn has_processes(&self) -> bool {
        !self.v1 || self.limit.is_some() || self.joins
    }

    fn held(&self) -> Option<u64> {
        let (anonymous, shared) = held(&fs::read_to_string(self.dir.join("memory.stat")).ok()?)?;
        self.saw_shared.set(self.saw_shared.get() || shared > 0);
        Some(anonymous.saturating_add(shared))
    }

    fn set(&mut self, limit: Option<u64>) -> io::Result<()> {
        let text = limit.map_or(if self.v1 { "-1" } else { "max" }.to_owned(), |bytes| bytes.to_string());
        if !self.v1 {
            fs::write(self.dir.join("memory.max"), &text)?;
            _ = fs::write(self.dir.join("memory.swap.max"), if limit.is_some() { "0" } else { "max" });
            _ = fs::write(self.dir.join("memory.oom.group"), "1");
            return Ok(());
        }
        // The limit of memory and swap together, where swap is accounted. It may never be below the memory limit.
        _ = fs::write(self.dir.join("memory.memsw.limit_in_bytes"), "-1");
        if fs::write(self.dir.join("memory.limit_in_bytes"), &text).is_err() {
            // Pages of an earlier task are still charged to the group, so a new group takes its place.
            self.procs = None;
            fs::remove_dir(&self.dir)?;
            *self = SlotMemory::v1(self.dir.clone())?;
            fs::write(self.dir.join("memory.limit_in_bytes"), &text)?;
        }
        _ = fs::write(self.dir.join("memory.memsw.limit_in_bytes"), &text);
        Ok(())
    }

    fn oom_kills(&self) -> Option<u64> {
        oom_kills_of(&self.dir.join(if self.v1 { "memory.oom_control" } else { "memory.events" }))
    }
}

/// Writes the weight of a group that counts for that many hundredths of a core. A whole core is the kernel's default in
/// either version, so a group counts as much as that many threads beside it.
fn write_weight(dir: &Path, cpu: u32, is_v1: bool) -> io::Result<()> {
    match is_v1 {
        true => {
            let shares = (u64::from(cpu) * 1_024 / 100).clamp(2, 262_144);
            fs::write(dir.join("cpu.shares"), shares.to_string())
        }
        false => fs::write(dir.join("cpu.weight"), cpu.clamp(1, 10_000).to_string()),
    }
}

/// How often the kernel has killed a process of this process's own group because memory was short; `None` where no group
/// counts that.
pub fn own_oom_kills() -> Option<u64> {
    oom_kills_of(&own_oom_file()?)
}

/// The file with that count; `None` where there is none. In version 2 it counts for the groups below, too, and is that
/// of the group in which the worker was started. In version 1 tasks without a group of their own are in this process's.
pub fn own_oom_file() -> Option<PathBuf> {
    let mounts = Mounts::read(Path::new("/")).ok()?;
    let v2 = mounts.v2.map(|group| group.home().join("memory.events"));
    // On a hybrid machine the group of version 2 has no memory controller.
    let v1 = mounts.memory_v1.map(|group| group.own.join("memory.oom_control"));
    [v2, v1].into_iter().flatten().find(|file| oom_kills_of(file).is_some())
}

/// How often the kernel has killed a process for memory, by such a file.
pub fn oom_kills_of(file: &Path) -> Option<u64> {
    field(&fs::read_to_string(file).ok()?, "oom_kill")
}

/// Kills all that is left in the groups of a dead keeper and removes the groups. Returns false if a group is
/// still there.
pub fn sweep(dirs: &[PathBuf]) -> bool {
    for dir in dirs.iter().filter(|dir| dir.exists()) {
        _ = fs::write(dir.join("cgroup.kill"), "1");
        remove(dir);
    }
    dirs.iter().all(|dir| !dir.exists())
}

/// The parent of the keeper's groups, and whether processes may be moved down inside it. In the group of a
/// systemd service they may not: systemd restarts the agent in that group, and the kernel admits no process
/// to a group that passes controllers on.
fn place(own: PathBuf) -> (PathBuf, bool) {
    match own.parent() {
        Some(unit) if own.ends_with(AGENT_GROUP) => (unit.to_owned(), false),
        _ => {
            let is_service = own.extension().is_some_and(|kind| kind == "service");
            (own, !is_service)
        }
    }
}

/// Passes a controller on to the tasks' groups; false if that is not possible. A group that has processes
/// cannot pass a controller on, unless it is the root. So where only this process and its parent are in it,
/// they are moved down.
fn enable(controller: &str, own: &Path, base: &Path, step_aside: bool) -> bool {
    let has = |file: &str| {
        let text = fs::read_to_string(own.join(file));
        text.is_ok_and(|text| text.split_whitespace().any(|name| name == controller))
    };
    let plus = format!("+{controller}");
    let enable = || fs::write(own.join("cgroup.subtree_control"), &plus).is_ok();
    if !has("cgroup.controllers") {
        return false;
    }
    let passed_on = has("cgroup.subtree_control") || enable() || (step_aside && make_way(own, enable));
    passed_on && fs::write(base.join("cgroup.subtree_control"), &plus).is_ok()
}

/// Moves this process and its parent one group down if no other process is in theirs. Moves them back if the
/// controller still cannot be passed on.
fn make_way(own: &Path, enable: impl Fn() -> bool) -> bool {
    let ours = [std::process::id(), std::os::unix::process::parent_id()];
    let pids = fs::read_to_string(own.join("cgroup.procs")).unwrap_or_default();
    let pids: Vec<u32> = pids.lines().filter_map(|pid| pid.parse().ok()).collect();
    let aside = own.join(MAIN_GROUP);
    if pids.iter().any(|pid| !ours.contains(pid)) || make_dir(&aside).is_err() {
        return false;
    }
    let to = |dir: &Path| pids.iter().all(|pid| fs::write(dir.join("cgroup.procs"), pid.to_string()).is_ok());
    if to(&aside) && enable() {
        return true;
    }
    to(own);
    _ = fs::remove_dir(aside);
    false
}

fn make(own: &Path, name: &str) -> Result<PathBuf, String> {
    let dir = own.join(name);
    make_dir(&dir).map_err(|e| format!("cannot make the cgroup {}: {e}", dir.display()))?;
    Ok(dir)
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes a group and the groups below it, as far as they are empty.
fn remove(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    _ = fs::remove_dir(base);
}

/// Bytes of `memory.stat` that the processes of a group hold, by either version of control groups: anonymous memory,
/// and what they share, in a tmpfs or by mapping files. Pages of a mapped tmpfs are in both of the latter counters, so
/// the larger one counts. The peak that the kernel keeps by itself is not used: it counts all of the page cache.
pub fn held(stat: &str) -> Option<(u64, u64)> {
    let v1 = ["total_rss", "total_shmem", "total_mapped_file"];
    let names = if field(stat, v1[0]).is_some() { v1 } else { ["anon", "shmem", "file_mapped"] };
    let [anonymous, shmem, mapped] = names.map(|name| field(stat, name));
    Some((anonymous?, shmem.unwrap_or(0).max(mapped.unwrap_or(0))))
}

/// The number after a name, in a file of lines `NAME NUMBER`.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_can_be_started_again_under_its_tasks() {
        let of = |own: &str| place(PathBuf::from(own));
        let unit = PathBuf::from("/sys/fs/cgroup/system.slice/windlass-worker.service");
        assert_eq!(
            of("/sys/fs/cgroup/system.slice/windlass-worker.service/windlass-agent"),
            (unit.clone(), false)
        );
        assert_eq!(place(unit.clone()), (unit, false));
        assert_eq!(of("/sys/fs/cgroup/session-1.scope"), ("/sys/fs/cgroup/session-1.scope".into(), true));
    }

    /// Linux up to 6.18 kills what is made in a group that was killed before, so a process has to join such a group.
    #[test]
    fn a_process_lives_in_a_group_that_was_killed_before() {
        let mut groups = match Cgroups::open("windlass-test-of-killed-groups", false) {
            Ok(groups) => groups,
            Err(why) => return println!("SKIP no control groups: {why}"),
        };
        let slot = groups.take().unwrap();
        assert!(slot.group_fd().is_some(), "a process can be made in a new group");
        slot.kill();
        groups.give_back(slot);
        let slot = groups.take().unwrap();
        assert_eq!(slot.group_fd(), None);
        // A shell that joins the group as tasks do, and only then becomes its program.
        let joins = format!("echo 0 > {}/cgroup.procs && echo joined && exec sleep 600", slot.dir.display());
        let mut shell = std::process::Command::new("sh");
        let mut child = shell.args(["-c", &joins]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut said = [0; 7];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(&said, b"joined\n");
        assert_eq!(slot.pids(), [child.id() as i32]);
        slot.kill();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }

    #[test]
    fn page_cache_that_can_be_taken_back_is_not_held() {
        let v2 = "anon 1000\nfile 900000\nkernel 5\nshmem 300\nfile_mapped 200\ninactive_file 899000\n";
        assert_eq!(held(v2), Some((1000, 300)));
        let v1 = "cache 9\nrss 7\nshmem 1\ntotal_cache 9\ntotal_rss 8\ntotal_shmem 1\ntotal_mapped_file 2\n";
        assert_eq!(held(v1), Some((8, 2)));
        assert_eq!([held(""), held("anon\n"), held("rss x")], [None; 3]);
    }

    /// A slot whose memory group is this directory; of version 1 if a process joins it by a file.
    fn slot_with_memory(dir: &Path, joined_by: Option<KeptFile>) -> Slot {
        let file = || KeptFile(File::open("/dev/null").unwrap());
        Slot {
            dir: dir.to_owned(),
            group: None,
            was_killed: Cell::new(false),
            procs: file(),
            events: file(),
            kill: file(),
            cpu: file(),
            cpu_v1: None,
            weight: None,
            memory: Some(SlotMemory::new(dir.to_owned(), joined_by)),
        }
    }

    #[test]
    fn what_a_task_leaves_in_its_group_is_not_held_by_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let stat = |anon: u64, shmem: u64| {
            fs::write(dir.path().join("memory.stat"), format!("anon {anon}\nshmem {shmem}\n")).unwrap();
        };
        let mut slot = slot_with_memory(dir.path(), None);
        stat(100, 50);
        slot.arm(None, false).unwrap();
        assert_eq!(slot.held_bytes(), Some(150));
        stat(0, 50);
        slot.arm(None, false).unwrap();
        stat(30, 50);
        assert_eq!(slot.held_bytes(), Some(30));
        stat(30, 0);
        assert_eq!(slot.held_bytes(), Some(0), "another task deleted it");
    }

    #[test]
    fn a_kill_counts_for_the_task_whose_process_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let kills = |file: &str, count: u64| {
            fs::write(dir.path().join(file), format!("max 3\noom 2\noom_kill {count}\n")).unwrap();
        };
        let mut v2 = slot_with_memory(dir.path(), None);
        assert_eq!(v2.lost_to_memory(), None, "nothing is counted there");
        kills("memory.events", 4);
        v2.arm(None, false).unwrap();
        assert_eq!(v2.lost_to_memory(), Some(false), "those were of tasks before it");
        kills("memory.events", 5);
        assert_eq!((v2.lost_to_memory(), v2.was_oom_killed()), (Some(true), false), "it has no limit");
        // In version 1 it is in the group only if it joins it.
        let mut v1 = slot_with_memory(dir.path(), Some(KeptFile(File::open("/dev/null").unwrap())));
        kills("memory.oom_control", 1);
        v1.arm(None, false).unwrap();
        assert_eq!((v1.lost_to_memory(), v1.join_fds()[1]), (None, None));
        v1.arm(None, true).unwrap();
        assert!(v1.join_fds()[1].is_some());
        kills("memory.oom_control", 2);
        assert_eq!((v1.lost_to_memory(), v1.was_oom_killed()), (Some(true), false));
        v1.arm(None, true).unwrap();
        assert_eq!(v1.lost_to_memory(), Some(false));
    }

    #[test]
    fn a_weight_of_one_core_is_the_kernels_default() {
        let dir = tempfile::tempdir().unwrap();
        let written = |cpu, is_v1, file: &str| {
            write_weight(dir.path(), cpu, is_v1).unwrap();
            fs::read_to_string(dir.path().join(file)).unwrap()
        };
        assert_eq!(
            [100, 150, 0, u32::MAX].map(|cpu| written(cpu, false, "cpu.weight")),
            ["100", "150", "1", "10000"]
        );
        assert_eq!(
            [100, 150, 0, u32::MAX].map(|cpu| written(cpu, true, "cpu.shares")),
            ["1024", "1536", "2", "262144"]
        );
    }

    #[test]
    fn tasks_are_weighed_by_the_version_that_has_the_controller() {
        let (v2, v1) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let base = v2.path().join("keeper");
        fs::create_dir(&base).unwrap();
        fs::write(v2.path().join("cgroup.controllers"), "cpu memory").unwrap();
        let groups = |cpu_v1: Option<&Path>| Cgroups {
            base: base.clone(),
            memory_v1: None,
            memory_v2: false,
            pids_v2: false,
            cpu_v1: cpu_v1.map(Path::to_owned),
            cpu_v2: None,
            weight: None,
            free: Vec::new(),
            made: 0,
        };
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        // These are no groups, and must not be removed as such.
        let mut of_v1 = std::mem::ManuallyDrop::new(groups(Some(v1.path())));
        assert!(of_v1.weigh(400, 200));
        assert_eq!(read(v1.path().join("cpu.shares")), "2048");
        assert!(!v2.path().join("cgroup.subtree_control").exists());
        let mut of_v2 = std::mem::ManuallyDrop::new(groups(None));
        assert!(of_v2.weigh(400, 200));
        assert_eq!(read(base.join("cpu.weight")), "400");
        assert_eq!(read(base.join("cgroup.subtree_control")), "+cpu");
        fs::write(v2.path().join("cgroup.controllers"), "memory").unwrap();
        assert!(!std::mem::ManuallyDrop::new(groups(None)).weigh(400, 200));
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        assert_eq!(field("oom_kill_disable 0\noom_kill 3", "oom_kill"), Some(3));
    }
}
