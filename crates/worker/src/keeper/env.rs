//! The environment in which the keeper starts processes: control groups, output files, GPUs, the launcher, and the
//! variables that mark a task's processes. `tasks` uses it for the commands of tasks, and `session` for the actions of
//! environments. It never decides when a task starts, and never waits for a process.

use super::jobserver::{JOBSERVERS, Jobservers};
use super::log::write_line;
use super::nodes::{NODES, NodeFiles};
use crate::cgroup::{Cgroups, Slot};
use crate::gpu_devices;
use crate::kept::KeptFile;
use crate::launcher::Launcher;
use crate::logs::{LogDir, Stream};
use crate::mask::Mask;
use crate::process::{self, Command, NO_INTERPRETER, Setup, SpawnError, Step};
use crate::protocol::{Body, Hidden, TaskRef};
use crate::spawn::{Launch, spawn};
use crate::users::RunAs;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use windlass_api::fill_in;

/// Environment variable that marks every process of a keeper. Processes are found by it where there is no namespace.
pub const MARKER: &str = "WINDLASS_KEEPER";
/// The directory of sessions in the worker's directory.
pub const SESSIONS: &str = "sessions";
/// The directory of tasks' own directories in the worker's directory. The agent makes each, as `JOB.INDEX.ATTEMPT`.
pub const FILES: &str = "files";
/// Interval between two checks whether a killed group is empty.
pub const EMPTY_POLL: Duration = Duration::from_millis(1);
/// Bytes of memory that a process may map beyond its task's memory limit, where the keeper samples that limit.
const MAPPED_BYTES_MORE: u64 = 4 << 30;

/// Bytes that one argument may have once the value replaces every placeholder.
const FILLED_BYTES_MAX: usize = 64 << 20;

impl Body {
    /// An error if the tasks must not run here.
    pub(super) fn check(&self) -> Result<(), Refused> {
        match &self.refused {
            None => Ok(()),
            Some(why) if self.refused_now => Err(Refused::Worker(why.clone())),
            Some(why) => Err(Refused::Job(why.clone())),
        }
    }

    /// Adds `HOME`, and for another user `USER` and `LOGNAME`, where the step does not set them.
    pub(super) fn name_user(&mut self) {
        if let Some(who) = &self.run_as {
            for (name, value) in [("HOME", &who.home), ("USER", &who.name), ("LOGNAME", &who.name)] {
                self.env.entry(name.to_owned()).or_insert_with(|| value.clone());
            }
        } else if let Ok(home) = std::env::var("HOME") {
            // The agent sees to it that the keeper has this variable.
            self.env.entry("HOME".to_owned()).or_insert(home);
        }
    }
}

/// The means with which the keeper starts processes.
pub struct KeeperEnv {
    /// Control groups; `None` where none can be made.
    pub cgroups: Option<Cgroups>,
    /// The directory of output files.
    pub logs: LogDir,
    /// Bytes that are kept of one output file.
    pub log_bytes_max: u64,
    /// `/dev/null`, the standard input of tasks that are given none.
    pub null: File,
    /// Processes that act for the keeper with a user's rights, and when each is killed.
    pub helpers: BTreeMap<i32, Instant>,
    /// The launcher; `None` where it did not start, and the keeper forks by itself.
    pub launcher: Option<Launcher>,
    /// The cover over files that tasks must not see; `None` where nothing is hidden, or cannot be.
    pub mask: Option<Mask>,
    /// Why files that were to be hidden are not.
    pub exposed: Option<String>,
    /// Processes that did not become their program in time and do not end although they were killed, because
    /// the kernel waits with them for a file system. Their program never ran.
    pub stuck: Vec<Started>,
    /// Whether the kernel ends everything under the keeper together with it.
    pub namespaced: bool,
    pub incarnation: u64,
    /// How many tasks may run at a time, by the limit of open files.
    pub tasks_max: usize,
    /// Hundredths of a core that each attempt holds.
    pub cpus: BTreeMap<TaskRef, u32>,
    /// The names of this worker's GPUs; `None` if the agent does not tell them.
    pub gpu_devices: Option<Vec<String>>,
    /// Names of the GPUs that each attempt holds.
    pub devices: BTreeMap<TaskRef, Vec<String>>,
    /// The files that name the workers of tasks that start together.
    pub nodes: NodeFiles,
    /// The jobservers of running attempts, and of those that are about to start.
    pub jobservers: Jobservers,
}

/// A process that was started for a task or an action, with its output files and control group.
#[derive(Serialize, Deserialize)]
pub struct Started {
    /// Number of the process.
    pub pid: i32,
    /// Its control group; `None` without control groups.
    pub slot: Option<Slot>,
    /// Standard output and standard error.
    pub output: [KeptFile; 2],
    /// Processor time that the group had used before, in microseconds.
    pub cpu_before_us: u64,
    /// Whether the memory limit is held by sampling.
    pub watch_memory: bool,
    /// The process while it has not yet become its program. An upgrade of the keeper waits until there is none.
    #[serde(skip)]
    pub launch: Option<Launch>,
}

/// Why a process was not started.
#[derive(Debug)]
pub enum Refused {
    /// The job asks for something impossible; the text is for people.
    Job(String),
    /// The cause is this worker; the text is for people.
    Worker(String),
    /// The cause passes, such as a full disk. The attempt stays in the queue.
    NotNow(io::Error),
}

/// Longest run of a process that acts for the keeper with a user's rights.
const HELPER_MAX: Duration = Duration::from_secs(300);
/// Interval between two checks of processes that do not end.
const STUCK_POLL: Duration = Duration::from_secs(1);

impl KeeperEnv {
    /// Starts a task's command. Without `stdin` its standard input is empty.
    pub fn start(
        &mut self,
        task: TaskRef,
        body: &Body,
        values: (Option<&str>, &[String]),
        memory: Option<u64>,
        stdin: Option<Rc<File>>,
    ) -> Result<Started, Refused> {
        body.check()?;
        let mut command = self.command(task, body, values)?;
        command.stdin = stdin;
        self.begin(task, &command, memory)
    }

    /// Starts a command with output files and a control group of its own.
    pub fn begin(
        &mut self,
        task: TaskRef,
        command: &Command,
        memory: Option<u64>,
    ) -> Result<Started, Refused> {
        let out = self.logs.create(task, Stream::Out).map_err(refuse_log)?;
        let err = self.logs.create(task, Stream::Err).map_err(refuse_log)?;
        let mut slot = self.slot()?;
        let mut enforced = false;
        // Builds share memory that none of them asked for: which of them lost a process to it must be known.
        let joins = self.jobservers.has(task);
        if let Some(some) = &mut slot {
            match some.arm(memory, joins) {
                Ok(kept) => enforced = kept,
                Err(e) => {
                    self.give_back(slot);
                    self.remove_logs(task);
                    return Err(refuse("set its memory limit", e));
                }
            }
        }
        let watch_memory = memory.is_some() && !enforced;
        let cpu_before_us = slot.as_ref().and_then(Slot::cpu_us).unwrap_or(0);
        let mut started = Started {
            pid: 0,
            slot,
            output: [out, err].map(KeptFile),
            cpu_before_us,
            watch_memory,
            launch: None,
        };
        match self.go_on(task, command, &mut started, memory) {
            Ok(()) => Ok(started),
            Err(refused) => {
                self.give_back(started.slot);
                self.remove_logs(task);
                Err(refused)
            }
        }
    }

    /// Starts a command in the place of one that has ended, with the same group, limits and output files.
    pub fn go_on(
        &mut self,
        task: TaskRef,
        command: &Command,
        started: &mut Started,
        memory: Option<u64>,
    ) -> Result<(), Refused> {
        let ends = self.jobservers.ends(task).map_err(|e| refuse("open its jobserver", e))?;
        let cpu_group =
            started.slot.as_ref().filter(|_| self.jobservers.has(task)).and_then(Slot::open_cpu_v1);
        let [out, err] = &started.output;
        let watched = memory.filter(|_| started.watch_memory);
        let setup = Setup {
            null: self.null.as_raw_fd(),
            stdin: command.stdin.as_ref().map(|file| file.as_raw_fd()),
            out: out.as_raw_fd(),
            err: err.as_raw_fd(),
            group: started.slot.as_ref().and_then(Slot::group_fd),
            join: started.slot.as_ref().map_or([None; 3], |slot| {
                let [own, of_memory] = slot.join_fds();
                [own, of_memory, cpu_group.as_ref().map(AsRawFd::as_raw_fd)]
            }),
            jobserver: ends.as_ref().map(|ends| ends.each_ref().map(AsRawFd::as_raw_fd)),
            // A backstop against growth between two samples. The limit itself holds for the resident memory
            // of the whole process tree; programs map more than they use.
            data_limit: watched.map(|bytes| bytes.saturating_add(MAPPED_BYTES_MORE)),
            die_with: self.die_with(),
        };
        if self.launcher.as_ref().is_some_and(Launcher::is_gone) {
            self.start_launcher();
        }
        let (pid, launch) = spawn(command, &setup, self.launcher.as_ref(), self.mask.as_ref())
            .map_err(|e| refuse_spawn(e, &command.texts()))?;
        (started.pid, started.launch) = (pid, Some(launch));
        Ok(())
    }

    /// The keeper's process, where new ones must die with it because no PID namespace sees to that.
    fn die_with(&self) -> Option<i32> {
        (!self.namespaced).then(|| std::process::id() as i32)
    }

    /// Hides the worker's directory and these files from processes to come. The launcher is started again, because its
    /// processes see what it sees: a file that was put in the place of another is covered then, too.
    pub fn hide(&mut self, state: &Path, hidden: &Hidden) {
        let tasks_use: Vec<PathBuf> =
            [SESSIONS, FILES, NODES, JOBSERVERS].map(|name| state.join(name)).to_vec();
        for dir in &tasks_use {
            // It is there from now on, so that what is made in it later is seen through the cover.
            if let Err(e) = DirBuilder::new().recursive(true).mode(0o711).create(dir) {
                self.exposed = Some(e.to_string());
                return;
            }
        }
        self.mask = Some(Mask::new(state, tasks_use, hidden, self.namespaced));
        self.start_launcher();
    }

    /// Starts the launcher, in the place of the one before. Where nothing can be hidden, tasks run all the same.
    pub fn start_launcher(&mut self) {
        let mut started = Launcher::start(self.die_with(), self.mask.as_ref());
        if self.mask.is_some() {
            self.exposed = started.as_ref().err().map(ToString::to_string);
        }
        if started.is_err() && self.mask.take().is_some() {
            started = Launcher::start(self.die_with(), None);
        }
        self.launcher = started.ok();
    }

    /// Notes a process that acts for the keeper with a user's rights; it is killed when it takes too long.
    pub fn help(&mut self, started: io::Result<i32>) {
        match started {
            Ok(pid) => _ = self.helpers.insert(pid, Instant::now() + HELPER_MAX),
            Err(e) => write_line(format_args!("cannot make a process: {e}")),
        }
    }

    /// Notes the end of a process that belongs to no task.
    pub fn exited(&mut self, pid: i32) {
        self.helpers.remove(&pid);
    }

    /// Gives up a process that did not become its program in time. It is killed, so its program never runs,
    /// although it may not end before a file system answers.
    pub fn abandon(&mut self, task: TaskRef, started: Started) {
        process::kill(started.pid);
        if !self.end_tree(task, &started, false) {
            write_line(format_args!(
                "task {}.{}: process {} is killed and does not end: the kernel waits with it for a file system",
                task.job, task.index, started.pid
            ));
        }
        self.stuck.push(started);
    }

    /// Kills what is left of a task; true if nothing is left. `leader_gone` says that its first process has
    /// been collected, so that its number may belong to another process.
    pub fn end_tree(&self, task: TaskRef, started: &Started, leader_gone: bool) -> bool {
        if let Some(slot) = &started.slot {
            if slot.is_empty() {
                return true;
            }
            slot.kill();
            return false;
        }
        let pids = self.pids((!leader_gone).then_some(started.pid), task, None);
        pids.iter().for_each(|pid| process::kill(*pid));
        pids.is_empty()
    }

    /// Kills processes that take too long, and takes back the groups of those that have ended.
    pub fn settle(&mut self, now: Instant) {
        for (pid, until) in &mut self.helpers {
            if *until <= now {
                process::kill(*pid);
                *until = now + STUCK_POLL;
            }
        }
        for started in std::mem::take(&mut self.stuck) {
            let has_ended = match &started.slot {
                Some(slot) => slot.is_empty(),
                None => process::start_ticks(started.pid).is_none(),
            };
            if has_ended {
                self.give_back(started.slot);
            } else {
                self.stuck.push(started);
            }
        }
    }

    /// When [`KeeperEnv::settle`] is due again; `None` if nothing waits for it.
    pub fn next_deadline(&self) -> Option<Instant> {
        let stuck = (!self.stuck.is_empty()).then(|| Instant::now() + STUCK_POLL);
        self.helpers.values().copied().chain(stuck).min()
    }

    fn slot(&mut self) -> Result<Option<Slot>, Refused> {
        let taken = self.cgroups.as_mut().map(Cgroups::take).transpose();
        taken.map_err(|e| refuse("make a control group", e))
    }

    /// Removes the files of an attempt that did not start.
    pub fn remove_logs(&self, task: TaskRef) {
        let files = Stream::BOTH.into_iter().chain([Stream::Times]);
        files.for_each(|stream| self.logs.remove(task, stream));
    }

    /// Returns an empty group to the pool.
    pub fn give_back(&mut self, slot: Option<Slot>) {
        if let (Some(cgroups), Some(slot)) = (&mut self.cgroups, slot) {
            cgroups.give_back(slot);
        }
    }

    /// The command of a task, with its value filled in.
    fn command(
        &self,
        task: TaskRef,
        body: &Body,
        (value, each): (Option<&str>, &[String]),
    ) -> Result<Command, Refused> {
        let argv: Vec<String> = match value {
            Some(_) if !each.is_empty() => {
                let words = body.command.iter();
                words
                    .flat_map(|word| if word == "{}" { each } else { std::slice::from_ref(word) })
                    .cloned()
                    .collect()
            }
            Some(value) => {
                for arg in &body.command {
                    let bytes = arg.len() + arg.matches('{').count().saturating_mul(value.len());
                    if bytes > FILLED_BYTES_MAX {
                        let why = "its arguments may be too long once its value is filled in";
                        return Err(Refused::Job(why.to_owned()));
                    }
                }
                body.command.iter().map(|arg| fill_in(arg, value)).collect()
            }
            None => body.command.clone(),
        };
        self.command_of(
            task,
            &argv,
            &body.env,
            &self.task_variables(task, value),
            (&body.cwd, body.umask, body.run_as.as_ref()),
        )
    }

    /// The variables that describe an attempt to its processes.
    pub fn task_variables(&self, task: TaskRef, value: Option<&str>) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("WINDLASS_JOB", task.job.to_string()),
            ("WINDLASS_TASK", format!("{}.{}", task.job, task.index)),
            ("WINDLASS_INDEX", task.index.to_string()),
            ("WINDLASS_ATTEMPT", task.attempt.to_string()),
            ("WINDLASS_VALUE", value.unwrap_or("").to_owned()),
        ];
        all.extend(self.cpus.get(&task).map(|cpu| ("WINDLASS_CPUS", (f64::from(*cpu) / 100.0).to_string())));
        all.extend(self.nodes.variables(task));
        all.extend(self.jobservers.variables(task));
        match (self.devices.get(&task), &self.gpu_devices) {
            (Some(devices), _) => {
                all.push((gpu_devices::VISIBLE, devices.join(",")));
                all.push((gpu_devices::ORDER.0, gpu_devices::ORDER.1.to_owned()));
            }
            (None, Some(_)) => all.push((gpu_devices::VISIBLE, gpu_devices::NO_DEVICE.to_owned())),
            (None, None) => {}
        }
        all
    }

    /// Frees the GPUs, the file of nodes and the jobserver of an attempt that is over or did not start.
    pub fn release(&mut self, task: TaskRef) {
        self.cpus.remove(&task);
        self.devices.remove(&task);
        self.nodes.remove(task);
        self.jobservers.close(task);
    }

    /// Notes the cpus of an attempt and reserves GPUs for it that no other attempt holds, so that two tasks with one GPU
    /// each do not share the first. `there_are` is the number of GPUs of this worker.
    pub fn hold(&mut self, task: TaskRef, (cpu, count): (u32, u32), there_are: u32) {
        self.cpus.insert(task, cpu);
        let numbered = || (0..there_are).map(|index| index.to_string()).collect();
        let all: Vec<String> =
            if count == 0 { Vec::new() } else { self.gpu_devices.clone().unwrap_or_else(numbered) };
        let held: BTreeSet<&String> = self.devices.values().flatten().collect();
        let free = all.iter().filter(|name| !held.contains(name)).take(count as usize);
        let free: Vec<String> = free.cloned().collect();
        if !free.is_empty() {
            self.devices.insert(task, free);
        }
    }

    /// A command whose processes can be found by the attempt's marker. `own` comes before variables of the
    /// same name in `env`.
    pub fn command_of(
        &self,
        task: TaskRef,
        argv: &[String],
        env: &BTreeMap<String, String>,
        own: &[(&'static str, String)],
        (cwd, umask, run_as): (&str, Option<u32>, Option<&RunAs>),
    ) -> Result<Command, Refused> {
        let marker = self.marker(task);
        let own = own.iter().map(|(k, v)| (*k, v.as_str())).chain([(MARKER, marker.as_str())]);
        let theirs = env.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let theirs = theirs.filter(|(name, _)| own.clone().all(|(ours, _)| ours != *name));
        let command = Command::new(argv, theirs.chain(own.clone()), cwd);
        let mut command =
            command.map_err(|e| Refused::Job(format!("cannot read the command: {}", e.source)))?;
        (command.umask, command.run_as) = (umask, run_as.cloned());
        Ok(command)
    }

    /// Value of [`MARKER`] for the processes of an attempt, unique on this machine.
    fn marker(&self, task: TaskRef) -> String {
        format!("{}:{}.{}.{}", self.incarnation, task.job, task.index, task.attempt)
    }

    /// The processes of a running attempt; `leader` is its first process while that lives.
    pub fn pids(&self, leader: Option<i32>, task: TaskRef, slot: Option<&Slot>) -> Vec<i32> {
        match slot {
            Some(slot) => slot.pids(),
            None => process::tree(leader, &format!("{MARKER}={}", self.marker(task))),
        }
    }
}

fn refuse_log(e: io::Error) -> Refused {
    refuse("open its log", e)
}

/// Why a process did not become its program. `program` and `cwd` are as the job names them, for people.
pub fn refuse_spawn(e: SpawnError, (program, cwd): &(String, String)) -> Refused {
    let what = match e.step {
        Step::Execute => format!("start '{program}'"),
        Step::EnterDir => format!("enter the working directory '{cwd}'"),
        Step::WriteFiles => "write its files".to_owned(),
        Step::Read => "read the command".to_owned(),
        Step::BecomeUser => "become its user".to_owned(),
        Step::Make => "make its process".to_owned(),
    };
    let errno = e.source.raw_os_error();
    if e.step == Step::Execute && errno == Some(NO_INTERPRETER.raw_os_error()) {
        return Refused::Job(format!("cannot {what}: its interpreter does not exist"));
    }
    let is_missing = matches!(errno, Some(libc::ENOENT | libc::ENAMETOOLONG));
    match (refuse(&what, e.source), e.step) {
        (Refused::NotNow(e), _) => Refused::NotNow(e),
        (Refused::Worker(why), Step::Execute) if is_missing && program.contains(is_of_shell) => Refused::Job(
            format!("{why}; it is taken for the name of one program, and a shell line needs sh -c"),
        ),
        (Refused::Worker(why), Step::BecomeUser | Step::Make) => Refused::Worker(why),
        // The submitter's own directory need not exist on a worker, which may be another machine.
        (Refused::Worker(why) | Refused::Job(why), Step::EnterDir) => {
            Refused::Job(format!("{why}; --cwd DIR names one that this worker has"))
        }
        (Refused::Worker(why) | Refused::Job(why), _) => Refused::Job(why),
    }
}

/// True of what a shell line has and the name of a program seldom has.
fn is_of_shell(c: char) -> bool {
    c.is_whitespace() || "|&;<>$*()".contains(c)
}

/// An error that passes by itself, such as a full disk, is not a failure of the task.
pub fn refuse(what: &str, e: io::Error) -> Refused {
    const PASSING: [i32; 6] =
        [libc::ENOSPC, libc::EDQUOT, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
    match e.raw_os_error() {
        Some(errno) if PASSING.contains(&errno) => Refused::NotNow(e),
        _ => Refused::Worker(format!("cannot {what}: {e}")),
    }
}
