//! What tasks run on: control groups, logs, the means to start a process.

use crate::cgroup::{Cgroups, Slot};
use crate::keeper::MARKER;
use crate::launcher::Launcher;
use crate::logs::{LogDir, Stream};
use crate::process::{self, Command, Launch, Setup, SpawnError, Step};
use crate::protocol::{TaskRef, ToKeeper};
use crate::users::RunAs;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use windlass_api::{Session, fill_in};

/// Bytes that one process may map beyond its task's memory limit where we watch that limit ourselves.
const MAPPED_BYTES_MORE: u64 = 4 << 30;

/// Bytes that one argument may have with a value in every place.
const FILLED_BYTES_MAX: usize = 64 << 20;

/// What tasks of a step run.
#[derive(Serialize, Deserialize)]
pub struct Body {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: String,
    /// What its tasks share here.
    pub session: Option<Session>,
    /// As whom they run; absent is the keeper's own user.
    pub run_as: Option<RunAs>,
    /// Why they must not run here.
    refused: Option<String>,
    /// That is a matter of this worker.
    #[serde(default)]
    refused_now: bool,
}

impl Body {
    /// Whether its tasks may run here.
    pub fn check(&self) -> Result<(), Refused> {
        match &self.refused {
            None => Ok(()),
            Some(why) if self.refused_now => Err(Refused::Worker(why.clone())),
            Some(why) => Err(Refused::Job(why.clone())),
        }
    }

    /// The body in a message; `None` if it is another message.
    pub fn from_message(message: ToKeeper) -> Option<Body> {
        match message {
            ToKeeper::Body { command, mut env, cwd, session, run_as, refused, refused_now, .. } => {
                if let Some(who) = &run_as {
                    for (name, value) in [("HOME", &who.home), ("USER", &who.name), ("LOGNAME", &who.name)] {
                        env.entry(name.to_owned()).or_insert_with(|| value.clone());
                    }
                } else if let Some(home) =
                    std::env::home_dir().and_then(|home| home.to_str().map(str::to_owned))
                {
                    env.entry("HOME".to_owned()).or_insert(home);
                }
                Some(Body { command, env, cwd, session, run_as, refused, refused_now })
            }
            _ => None,
        }
    }
}

/// What the keeper has to run tasks on.
pub struct Ground {
    /// Control groups, where they can be had.
    pub cgroups: Option<Cgroups>,
    /// Where output goes.
    pub logs: LogDir,
    /// Bytes of one output file that are kept.
    pub log_bytes_max: u64,
    /// `/dev/null`.
    pub null: File,
    /// Processes that do something for the keeper in a user's name, and when they are killed.
    pub helpers: BTreeMap<i32, Instant>,
    /// What makes processes, where it is there.
    pub launcher: Option<Launcher>,
    /// What did not come to its program in time and does not end when it is killed: the kernel waits with it for
    /// a file system. None of it ever ran.
    pub stuck: Vec<Started>,
    /// The kernel ends everything under us with us.
    pub namespaced: bool,
    /// The keeper's own number.
    pub incarnation: u64,
    /// The devices that tasks hold, by their places in the machine.
    pub devices: BTreeMap<TaskRef, Vec<u32>>,
}

/// A process that was started for a task, with its files and its group.
#[derive(Serialize, Deserialize)]
pub struct Started {
    /// Its process.
    pub pid: i32,
    /// Its group, where there are groups.
    pub slot: Option<Slot>,
    /// Its output: standard output, standard error.
    #[serde(with = "super::upgrade::kept_files")]
    pub output: [File; 2],
    /// Processor time that the group had used before, in microseconds.
    pub cpu_before_us: u64,
    /// Its memory limit is to be watched by us.
    pub watch_memory: bool,
    /// Its process is on the way to its program. A keeper that goes on as another program waits for it first.
    #[serde(skip)]
    pub launch: Option<Launch>,
}

/// Why a task was not started.
#[derive(Debug)]
pub enum Refused {
    /// It never can be, by what its job asks for: for people.
    Job(String),
    /// It cannot be, by no fault of its job: for people.
    Worker(String),
    /// Not now: the disk is full, or the machine is out of something else. It stays in line.
    NotNow(io::Error),
}

/// How long a process that does something in a user's name may take.
const HELPER_MAX: Duration = Duration::from_secs(300);
/// How often processes that do not end are looked at.
const STUCK_POLL: Duration = Duration::from_secs(1);

impl Ground {
    /// Starts the task.
    pub fn start(
        &mut self,
        task: TaskRef,
        body: &Body,
        value: Option<&str>,
        memory: Option<u64>,
    ) -> Result<Started, Refused> {
        body.check()?;
        let command = self.command(task, body, value)?;
        self.begin(task, &command, memory)
    }

    /// Starts a command with output files and a group of its own.
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
        if let Some(some) = &mut slot {
            match some.arm(memory) {
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
        let mut started =
            Started { pid: 0, slot, output: [out, err], cpu_before_us, watch_memory, launch: None };
        match self.go_on(command, &mut started, memory) {
            Ok(()) => Ok(started),
            Err(refused) => {
                self.give_back(started.slot);
                self.remove_logs(task);
                Err(refused)
            }
        }
    }

    /// Starts a command where another has ended: the same group, limits and output.
    pub fn go_on(
        &mut self,
        command: &Command,
        started: &mut Started,
        memory: Option<u64>,
    ) -> Result<(), Refused> {
        let [out, err] = &started.output;
        let watched = memory.filter(|_| started.watch_memory);
        let setup = Setup {
            null: self.null.as_raw_fd(),
            out: out.as_raw_fd(),
            err: err.as_raw_fd(),
            join: started.slot.as_ref().map_or([None; 2], |slot| slot.join_fds(memory.is_some())),
            // A backstop for what grows between two samples; the limit itself is on what the whole
            // tree really holds. Programs map more than they use.
            data_limit: watched.map(|bytes| bytes.saturating_add(MAPPED_BYTES_MORE)),
            die_with: (!self.namespaced).then(|| std::process::id() as i32),
        };
        if self.launcher.as_ref().is_some_and(Launcher::is_gone) {
            self.launcher = Launcher::start(setup.die_with).ok();
        }
        let (pid, launch) = process::spawn(command, &setup, self.launcher.as_ref())
            .map_err(|e| refuse_spawn(e, &command.texts()))?;
        (started.pid, started.launch) = (pid, Some(launch));
        Ok(())
    }

    /// A process does something in a user's name; it is killed where that takes too long.
    pub fn help(&mut self, started: io::Result<i32>) {
        match started {
            Ok(pid) => _ = self.helpers.insert(pid, Instant::now() + HELPER_MAX),
            Err(e) => super::say(format_args!("cannot make a process: {e}")),
        }
    }

    /// A process ended that is no task's.
    pub fn exited(&mut self, pid: i32) {
        self.helpers.remove(&pid);
    }

    /// Gives up on what did not come to its program in time. Killed, it never will, though it may not end before a
    /// file system answers.
    pub fn abandon(&mut self, task: TaskRef, started: Started) {
        process::kill(started.pid);
        if !self.end_tree(task, &started, false) {
            super::say(format_args!(
                "task {}.{}: process {} is killed and does not end: the kernel waits with it for a file system",
                task.job, task.index, started.pid
            ));
        }
        self.stuck.push(started);
    }

    /// Looks after processes that take long to end.
    pub fn settle(&mut self, now: Instant) {
        for (pid, until) in &mut self.helpers {
            if *until <= now {
                process::kill(*pid);
                *until = now + STUCK_POLL;
            }
        }
        let ended = |started: &mut Started| match &started.slot {
            Some(slot) => slot.is_empty(),
            None => process::start_ticks(started.pid).is_none(),
        };
        let over: Vec<Started> = self.stuck.extract_if(.., ended).collect();
        over.into_iter().for_each(|started| self.give_back(started.slot));
    }

    /// When that is to be done again.
    pub fn next_deadline(&self) -> Option<Instant> {
        let stuck = (!self.stuck.is_empty()).then(|| Instant::now() + STUCK_POLL);
        self.helpers.values().copied().chain(stuck).min()
    }

    fn slot(&mut self) -> Result<Option<Slot>, Refused> {
        let taken = self.cgroups.as_mut().map(Cgroups::take).transpose();
        taken.map_err(|e| refuse("make a control group", e))
    }

    fn remove_logs(&self, task: TaskRef) {
        self.logs.remove(task, Stream::Out);
        self.logs.remove(task, Stream::Err);
    }

    /// Takes back an empty group.
    pub fn give_back(&mut self, slot: Option<Slot>) {
        if let (Some(cgroups), Some(slot)) = (&mut self.cgroups, slot) {
            cgroups.give_back(slot);
        }
    }

    /// The command with its values filled in and the variables that name the task.
    fn command(&self, task: TaskRef, body: &Body, value: Option<&str>) -> Result<Command, Refused> {
        let argv: Vec<String> = match value {
            Some(value) => {
                let most = |arg: &String| arg.len() + arg.matches('{').count().saturating_mul(value.len());
                if body.command.iter().any(|arg| most(arg) > FILLED_BYTES_MAX) {
                    let why = "its arguments may be too long once its value is filled in";
                    return Err(Refused::Job(why.to_owned()));
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
            (&body.cwd, body.run_as.as_ref()),
        )
    }

    /// The variables that name a task.
    pub fn task_variables(&self, task: TaskRef, value: Option<&str>) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("WINDLASS_JOB", task.job.to_string()),
            ("WINDLASS_TASK", format!("{}.{}", task.job, task.index)),
            ("WINDLASS_INDEX", task.index.to_string()),
            ("WINDLASS_ATTEMPT", task.attempt.to_string()),
            ("WINDLASS_VALUE", value.unwrap_or("").to_owned()),
        ];
        if let Some(devices) = self.devices.get(&task) {
            let places: Vec<String> = devices.iter().map(u32::to_string).collect();
            all.push(("CUDA_VISIBLE_DEVICES", places.join(",")));
        }
        all
    }

    /// Gives a task devices that no other holds, of those that there are. Two tasks that each asked for
    /// one must not both take the first.
    pub fn hold_devices(&mut self, task: TaskRef, count: u32, there_are: u32) {
        let held: BTreeSet<u32> = self.devices.values().flatten().copied().collect();
        let free = (0..there_are).filter(|place| !held.contains(place)).take(count as usize);
        let free: Vec<u32> = free.collect();
        if !free.is_empty() {
            self.devices.insert(task, free);
        }
    }

    /// A command whose processes are known for the attempt's.
    pub fn command_of(
        &self,
        task: TaskRef,
        argv: &[String],
        env: &BTreeMap<String, String>,
        own: &[(&'static str, String)],
        (cwd, run_as): (&str, Option<&RunAs>),
    ) -> Result<Command, Refused> {
        let marker = self.marker(task);
        let own = own.iter().map(|(k, v)| (*k, v.as_str())).chain([(MARKER, marker.as_str())]);
        let theirs = env.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let theirs = theirs.filter(|(name, _)| own.clone().all(|(ours, _)| ours != *name));
        let command = Command::new(argv, theirs.chain(own.clone()), cwd);
        let mut command =
            command.map_err(|e| Refused::Job(format!("cannot read the command: {}", e.source)))?;
        command.run_as = run_as.cloned();
        Ok(command)
    }

    /// What marks the processes of an attempt, and no other's on this machine.
    fn marker(&self, task: TaskRef) -> String {
        format!("{}:{}.{}.{}", self.incarnation, task.job, task.index, task.attempt)
    }

    /// The processes of a task that runs; `leader` is its first one while that lives.
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

/// Why a process did not come to its program. `program` and `cwd` are as its job names them.
pub fn refuse_spawn(e: SpawnError, (program, cwd): &(String, String)) -> Refused {
    let what = match e.step {
        Step::Execute => format!("start '{program}'"),
        Step::EnterDir => format!("enter the working directory '{cwd}'"),
        Step::WriteFiles => "write its files".to_owned(),
        Step::Read => "read the command".to_owned(),
        Step::BecomeUser => "become its user".to_owned(),
        Step::Make => "make its process".to_owned(),
    };
    match (refuse(&what, e.source), e.step) {
        (Refused::NotNow(e), _) => Refused::NotNow(e),
        (Refused::Worker(why), Step::BecomeUser | Step::Make) => Refused::Worker(why),
        // The caller's own directory need not be on a worker that is another machine.
        (Refused::Worker(why) | Refused::Job(why), Step::EnterDir) => {
            Refused::Job(format!("{why}; --cwd DIR names one that this worker has"))
        }
        (Refused::Worker(why) | Refused::Job(why), _) => Refused::Job(why),
    }
}

/// What passes by itself is no failure of the task.
pub fn refuse(what: &str, e: io::Error) -> Refused {
    const PASSING: [i32; 6] =
        [libc::ENOSPC, libc::EDQUOT, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
    match e.raw_os_error() {
        Some(errno) if PASSING.contains(&errno) => Refused::NotNow(e),
        _ => Refused::Worker(format!("cannot {what}: {e}")),
    }
}
