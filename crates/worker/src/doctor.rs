//! Checks of this machine for `windlass doctor`: what a worker needs, what was found, and what to do about
//! the rest. `windlass-cli` prints the findings. A check may start a short process, make a control group or
//! write a file, and removes each again. No check touches a running keeper.

use crate::cgroup::Cgroups;
use crate::detect::{GPUS_TOLD_MAX, ShownGpus, gpus};
use crate::gpu_devices::{AskedGpus, choose};
use crate::keeper::{KeeperFile, tasks_max};
use crate::late::{Late, run_within};
use crate::process::start_ticks;
use crate::users::{BadUser, UserEntry, UserMap};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use windlass_core::resources::Bytes;

/// Size of the trial file that shows whether a file system can punch holes.
const TRIAL_BYTES: u64 = 256 << 10;

/// How long a check may take that asks a program, a file system or the user database.
const CHECK_MAX: Duration = Duration::from_secs(10);

/// Result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Whether the thing works, or is not needed.
    pub ok: bool,
    /// Whether a worker cannot run without it.
    pub needed: bool,
    /// Name of the check.
    pub what: String,
    /// The finding, in words for an administrator.
    pub detail: String,
    /// Advice to the administrator; `None` if the finding is ok.
    pub advice: Option<String>,
}

/// Settings of a worker to be checked.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The worker's directory, which need not exist yet.
    pub state: PathBuf,
    /// The executable that its keeper is to run.
    pub program: PathBuf,
    /// Which submitter's tasks are to run as which user.
    pub users: Vec<UserEntry>,
    /// Whether all tasks may run as root.
    pub as_root: bool,
    /// Cpus that an operator declared; `None` for all.
    pub cpus: Option<f64>,
    /// What an operator and the environment say of its GPUs.
    pub gpus: AskedGpus,
}

/// Checks namespaces, control groups, pressure files and file limits of this machine.
pub fn doctor() -> Vec<Finding> {
    vec![namespaces(), cgroups(), pressure(), descriptors(None)]
}

/// All checks of [`doctor`], and what a worker of a farm needs besides.
pub fn doctor_worker(worker: &Examined) -> Vec<Finding> {
    let Examined { state, program, users: entries, as_root, cpus, gpus: asked } = worker.clone();
    let mut findings = vec![namespaces(), cgroups(), pressure(), descriptors(cpus), clock(), devices(&asked)];
    let dir = state.clone();
    findings.push(in_time("file system", move || holes(&dir)));
    findings.push(in_time("users", move || users(&entries, as_root)));
    findings.push(hiding());
    findings.push(in_time("keeper", move || keeper(&state, &program)));
    findings
}

/// A check that a file system or the user database may hold up for ever.
fn in_time(what: &str, check: impl FnOnce() -> Finding + Send + 'static) -> Finding {
    let late = || {
        let detail = format!("no answer within {} s", CHECK_MAX.as_secs());
        let advice =
            "see whether the file system of --state answers ('df'), and the user database ('getent passwd')";
        needed(false, what, detail, advice)
    };
    Late::ask(check).within(CHECK_MAX).unwrap_or_else(late)
}

fn found(ok: bool, what: &str, detail: impl Into<String>, advice: &str) -> Finding {
    let advice = (!ok).then(|| advice.to_owned());
    Finding { ok, needed: false, what: what.to_owned(), detail: detail.into(), advice }
}

fn needed(ok: bool, what: &str, detail: impl Into<String>, advice: &str) -> Finding {
    Finding { needed: true, ..found(ok, what, detail, advice) }
}

fn namespaces() -> Finding {
    let ok = can_unshare(&["--pid", "--mount", "--fork", "true"])
        || can_unshare(&["-U", "-r", "--pid", "--fork", "true"]);
    found(
        ok,
        "PID namespaces",
        if ok { "available: nothing outlives the keeper" } else { "refused" },
        "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1) or run as root; without them tasks \
         are tied to the keeper by parent-death signals, and a worker has no lease: 'windlass worker forget' \
         says that it is gone",
    )
}

/// Tries it in another process, because `unshare` would change this one.
fn can_unshare(args: &[&str]) -> bool {
    run_within(Command::new("unshare").args(args), CHECK_MAX).is_ok()
}

fn cgroups() -> Finding {
    let advice = "run under systemd with Delegate=yes or as root; without control groups, memory limits are \
                  watched by sampling";
    match Cgroups::open(&format!("windlass-doctor-{}", std::process::id()), false) {
        Ok(groups) if groups.limits_memory() => {
            found(true, "control groups", "kill and memory limits", advice)
        }
        Ok(_) => found(false, "control groups", "kill, but no memory controller", advice),
        Err(why) => found(false, "control groups", why, advice),
    }
}

fn pressure() -> Finding {
    let text = fs::read_to_string("/proc/pressure/cpu");
    let detail =
        text.as_ref().map_or_else(ToString::to_string, |text| text.lines().next().unwrap_or("").to_owned());
    found(
        text.is_ok(),
        "pressure (PSI)",
        detail,
        "boot with psi=1; without it load is known by booking counts alone",
    )
}

/// Checks that a task on each cpu has its open files. A worker raises its soft limit to the hard one.
fn descriptors(cpus: Option<f64>) -> Finding {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let here = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (tasks, slots) =
        (tasks_max(files.unwrap_or(u64::MAX)), cpus.map_or_else(here, |cpus| cpus.ceil() as usize));
    let shown = files.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let detail = match tasks < slots {
        true => format!("{shown}: enough for {tasks} tasks at a time, and there are {slots} cpus"),
        false => shown,
    };
    let ok = tasks >= slots && files.is_none_or(|n| n >= 1024);
    found(
        ok,
        "open files",
        detail,
        "raise the hard limit with LimitNOFILE= of the unit, or as root with 'ulimit -n'",
    )
}

/// Checks the clock of leases, which must go on while the machine sleeps.
fn clock() -> Finding {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC);
    let detail = timer.as_ref().map_or_else(ToString::to_string, |_| "CLOCK_BOOTTIME has timers".to_owned());
    needed(timer.is_ok(), "clock", detail, "a keeper cannot start without such timers: use another kernel")
}

fn devices(asked: &AskedGpus) -> Finding {
    const WHAT: &str = "gpus";
    if asked.count == Some(0) {
        return found(true, WHAT, "not used", "");
    }
    let Some(ShownGpus::Known(shown)) = gpus() else {
        let detail = format!("nvidia-smi has not answered within {} s", GPUS_TOLD_MAX.as_secs());
        let advice = "see whether the driver is stuck (dmesg); a worker starts without gpus, and declares them when it \
                      answers; --gpus 0 asks for none";
        return found(false, WHAT, detail, advice);
    };
    let usable = match choose(&shown, asked) {
        Ok(usable) => usable.unwrap_or_default(),
        Err(bad) => {
            let advice = "a worker does not start like this";
            return needed(false, WHAT, bad.to_string(), advice);
        }
    };
    let bytes = usable.iter().map(|device| device.memory_bytes).sum();
    let names: Vec<&str> = usable.iter().map(|device| device.name.as_str()).collect();
    let mut detail = match usable.len() {
        0 if shown.is_empty() => "none: nvidia-smi is not there or shows none".to_owned(),
        0 => format!("none of the {} that nvidia-smi shows", shown.len()),
        count => format!("{count} ({}), with {} together", names.join(", "), Bytes(bytes)),
    };
    let faulty = shown.iter().filter_map(|device| Some((device.index, device.fault.as_ref()?)));
    for (index, fault) in faulty.clone() {
        detail.push_str(&format!("; {index} is left out: {fault}"));
    }
    match (faulty.count(), asked.count) {
        (0, Some(count)) if count as usize > shown.len() && asked.listed.is_none() => found(
            false,
            WHAT,
            detail,
            "more are declared than the driver shows: correct --gpus or WINDLASS_WORKER_GPUS",
        ),
        (faulty, _) => found(faulty == 0, WHAT, detail, "reset the device, or the machine"),
    }
}

/// Checks whether a hole can be punched into a file, which is how output over its limit loses its middle.
fn holes(state: &Path) -> Finding {
    let dir = state.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let tried = try_holes(dir);
    let detail = match &tried {
        Ok(true) => "files can lose their middle".to_owned(),
        Ok(false) => format!("{}: its holes are not told", dir.display()),
        Err(e) => format!("{}: {e}", dir.display()),
    };
    found(
        matches!(tried, Ok(true)),
        "file system",
        detail,
        "put --state on a local ext4, xfs, btrfs or tmpfs that this user may write to; elsewhere output over \
         --log-bytes-max is kept whole",
    )
}

fn try_holes(dir: &Path) -> io::Result<bool> {
    let path = dir.join(format!(".windlass-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    // Without a name it disappears with this process, whatever happens.
    fs::remove_file(&path)?;
    file.write_all(&vec![1; TRIAL_BYTES as usize])?;
    let (from, bytes) = (TRIAL_BYTES / 4, TRIAL_BYTES / 2);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, bytes)?;
    Ok(seek(&file, SeekFrom::Hole(0))? == from && seek(&file, SeekFrom::Data(from))? == from + bytes)
}

fn users(entries: &[UserEntry], as_root: bool) -> Finding {
    const WHAT: &str = "users";
    if entries.is_empty() && rustix::process::geteuid().is_root() {
        let detail = "the tasks of all submitters run as root".to_owned();
        let advice = "give --map-user SUBMITTER=USER, or --map-user '*=nobody'";
        return if as_root {
            found(false, WHAT, detail, advice)
        } else {
            needed(false, WHAT, detail, advice)
        };
    }
    let map = match UserMap::new(entries.iter().cloned()) {
        Ok(map) => map,
        Err(e) => {
            return needed(false, WHAT, e.to_string(), "start the worker as root, or without --map-user");
        }
    };
    let bad: Vec<String> = entries
        .iter()
        .filter(|e| e.names_one_user())
        .filter_map(|e| map.resolve(e.submitter()).err())
        .map(|e: BadUser| e.to_string())
        .collect();
    if entries.is_empty() {
        let advice = "its tasks reach each other's processes and files: run the worker as root with --map-user, or let \
                      only people who trust each other use it";
        return found(false, WHAT, "the tasks of all submitters run as the worker's own user", advice);
    }
    let detail = match (entries.len(), bad.is_empty()) {
        (n, true) => format!("{n} mapped"),
        (_, false) => bad.join("; "),
    };
    needed(bad.is_empty(), WHAT, detail, "correct --map-user, or make those users")
}

/// Checks whether the worker's token and the output of tasks can be hidden from tasks.
fn hiding() -> Finding {
    let ok = can_unshare(&["--mount", "true"]) || can_unshare(&["-U", "-r", "--mount", "true"]);
    found(
        ok,
        "mount namespaces",
        if ok { "available: the worker's token and directory are hidden from tasks" } else { "refused" },
        "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1) or run as root; without them tasks that run \
         as the worker's own user can read its token and the output of all tasks",
    )
}

/// Checks the worker's current keeper, if it has one.
fn keeper(state: &Path, program: &Path) -> Finding {
    const WHAT: &str = "keeper";
    let Some(file) = KeeperFile::read(state) else { return found(true, WHAT, "none yet", "") };
    let KeeperFile { pid, incarnation, namespaced, .. } = file;
    if start_ticks(pid) != Some(file.start_ticks) {
        return found(true, WHAT, "the last one has ended, and its tasks with it", "");
    }
    let detail = format!("process {pid}, incarnation {incarnation:016x}");
    if let Some(why) = stands_still(pid) {
        let advice = "it cannot answer its agent: let it go on, or end it with 'kill -9'; its tasks end with it and run again";
        return needed(false, WHAT, format!("{detail}, {why}"), advice);
    }
    if !namespaced {
        let detail = format!("{detail}, without a namespace");
        return found(
            false,
            WHAT,
            detail,
            "see PID namespaces; the next keeper gets one where they are allowed",
        );
    }
    if is_program(pid, program) {
        return found(true, WHAT, format!("{detail}, this program"), "");
    }
    let detail = format!("{detail}, another program than {}", program.display());
    found(false, WHAT, detail, "start the worker again: its keeper becomes this program, and its tasks go on")
}

/// Why a process does nothing: it was stopped, or waits in the kernel. `None` if neither can be seen.
fn stands_still(pid: i32) -> Option<&'static str> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    match stat.rsplit(')').next()?.split_whitespace().next()? {
        "T" | "t" => Some("a signal stopped it"),
        "D" => Some("the kernel waits with it for a disk or a file system"),
        _ => None,
    }
}

/// Whether a process runs this very file, by device and inode.
fn is_program(pid: i32, program: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file = |path: &Path| File::open(path).and_then(|f| f.metadata()).map(|m| (m.dev(), m.ino()));
    match (file(Path::new(&format!("/proc/{pid}/exe"))), file(program)) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &[&str]) -> Vec<UserEntry> {
        text.iter().map(|entry| entry.parse().unwrap()).collect()
    }

    #[test]
    fn users_that_are_not_there_are_named() {
        let root = rustix::process::geteuid().is_root();
        // That all tasks run as one user is warned of. As root it must be meant.
        assert!(!users(&[], true).ok && !users(&[], true).needed);
        assert_eq!(users(&[], false).needed, root);
        if !rustix::process::geteuid().is_root() {
            let refused = users(&entries(&["*=nobody"]), false);
            assert!(!refused.ok && refused.needed && refused.detail.contains("root"), "{refused:?}");
            return;
        }
        assert!(users(&entries(&["*=nobody"]), false).ok);
        let bad = users(&entries(&["ann=no-such-user-here", "bob=root"]), false);
        assert!(!bad.ok && bad.needed, "{bad:?}");
        assert!(bad.detail.contains("no-such-user-here") && bad.detail.contains("'bob'"), "{bad:?}");
    }

    #[test]
    fn a_keeper_is_judged_by_its_process_and_program() {
        let dir = tempfile::tempdir().unwrap();
        let (own, program) = (std::process::id() as i32, std::env::current_exe().unwrap());
        assert_eq!(keeper(dir.path(), &program).detail, "none yet");
        let write = |ticks: u64, namespaced: bool| {
            let file = serde_json::json!({
                "pid": own, "start_ticks": ticks, "incarnation": 7, "namespaced": namespaced,
            });
            fs::write(dir.path().join("keeper.json"), serde_json::to_vec(&file).unwrap()).unwrap();
        };
        let ticks = start_ticks(own).unwrap();
        write(ticks + 1, true);
        assert!(keeper(dir.path(), &program).detail.contains("has ended"));
        write(ticks, true);
        assert!(keeper(dir.path(), &program).ok);
        let other = keeper(dir.path(), Path::new("/bin/sh"));
        assert!(!other.ok && other.detail.contains("another program"), "{other:?}");
        write(ticks, false);
        assert!(keeper(dir.path(), &program).detail.contains("without a namespace"));
    }

    #[test]
    fn a_process_that_was_stopped_is_told() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        crate::process::signal(pid, rustix::process::Signal::STOP);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while stands_still(pid).is_none() {
            assert!(std::time::Instant::now() < deadline, "it does not stop");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(stands_still(std::process::id() as i32), None);
    }

    #[test]
    fn a_directory_that_takes_no_file_cannot_let_go_of_any() {
        let refused = holes(Path::new("/proc/self/absent"));
        assert!(!refused.ok && !refused.needed && refused.detail.contains("/proc/self"), "{refused:?}");
        let tried = holes(&std::env::temp_dir().join("windlass-absent"));
        assert_eq!(tried.advice.is_none(), tried.ok);
    }

    #[test]
    fn devices_that_nobody_has_are_told() {
        let asked = |count| AskedGpus { count, ..AskedGpus::default() };
        assert!(devices(&asked(None)).ok && clock().ok);
        for count in [4_000, u32::MAX] {
            let more = devices(&asked(Some(count)));
            assert!(!more.ok && more.advice.is_some());
        }
        assert!(devices(&asked(Some(0))).ok);
    }
}
