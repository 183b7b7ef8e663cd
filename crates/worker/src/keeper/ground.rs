//! What tasks run on: control groups, logs, the means to start a process.

use crate::cgroup::{Cgroups, Slot};
use crate::keeper::MARKER;
use crate::logs::{LogDir, Stream};
use crate::process::{self, Command, Setup, SpawnError, Spawner};
use crate::protocol::{TaskRef, ToKeeper};
use crate::users::RunAs;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use windlass_api::fill_in;

/// Bytes that one process may map beyond its task's memory limit where we watch that limit ourselves.
const MAPPED_BYTES_MORE: u64 = 4 << 30;

/// What tasks of a step run.
pub struct Body {
    command: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: String,
    run_as: Option<RunAs>,
    refused: Option<String>,
}

impl Body {
    /// The body in a message; `None` if it is another message.
    pub fn from_message(message: ToKeeper) -> Option<Body> {
        match message {
            ToKeeper::Body { command, env, cwd, run_as, refused, .. } => {
                Some(Body { command, env, cwd, run_as, refused })
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
    /// Starts processes.
    pub spawner: Spawner,
    /// The kernel ends everything under us with us.
    pub namespaced: bool,
    /// The keeper's own number.
    pub incarnation: u64,
}

/// A process that was started for a task, with its files and its group.
pub struct Started {
    /// Its process.
    pub pid: i32,
    /// Its group, where there are groups.
    pub slot: Option<Slot>,
    /// Its output: standard output, standard error.
    pub output: [File; 2],
    /// Processor time that the group had used before, in microseconds.
    pub cpu_before_us: u64,
    /// Its memory limit is to be watched by us.
    pub watch_memory: bool,
}

/// Why a task was not started.
pub enum Refused {
    /// It never can be: for people.
    Failed(String),
    /// Not now: the disk is full, or the machine is out of something else. It stays in line.
    NotNow(io::Error),
}

impl Ground {
    /// Starts the task.
    pub fn start(
        &mut self,
        task: TaskRef,
        body: &Body,
        value: Option<&str>,
        memory: Option<u64>,
    ) -> Result<Started, Refused> {
        if let Some(why) = &body.refused {
            return Err(Refused::Failed(why.clone()));
        }
        let command = self.command(task, body, value).map_err(|e| refuse_spawn(e, body))?;
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
        let setup = Setup {
            null: self.null.as_raw_fd(),
            out: out.as_raw_fd(),
            err: err.as_raw_fd(),
            join: slot.as_ref().map_or([None, None], |slot| slot.join_fds(memory.is_some())),
            // A backstop for what grows between two samples; the limit itself is on what the whole
            // tree really holds. Programs map more than they use.
            data_limit: memory.filter(|_| watch_memory).map(|bytes| bytes.saturating_add(MAPPED_BYTES_MORE)),
            run_as: body.run_as.as_ref(),
            die_with: (!self.namespaced).then(|| std::process::id() as i32),
        };
        let cpu_before_us = slot.as_ref().and_then(Slot::cpu_us).unwrap_or(0);
        match self.spawner.spawn(&command, setup) {
            Ok(pid) => Ok(Started { pid, slot, output: [out, err], cpu_before_us, watch_memory }),
            Err(e) => {
                self.give_back(slot);
                self.remove_logs(task);
                Err(refuse_spawn(e, body))
            }
        }
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
    fn command(&self, task: TaskRef, body: &Body, value: Option<&str>) -> Result<Command, SpawnError> {
        let argv: Vec<String> = match value {
            Some(value) => body.command.iter().map(|arg| fill_in(arg, value)).collect(),
            None => body.command.clone(),
        };
        let own = [
            ("WINDLASS_JOB", task.job.to_string()),
            ("WINDLASS_TASK", format!("{}.{}", task.job, task.index)),
            ("WINDLASS_INDEX", task.index.to_string()),
            ("WINDLASS_ATTEMPT", task.attempt.to_string()),
            ("WINDLASS_VALUE", value.unwrap_or("").to_owned()),
            (MARKER, self.marker(task)),
        ];
        let theirs = body.env.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let home = body.run_as.as_ref();
        let home = home.map(|who| [("HOME", &who.home), ("USER", &who.name), ("LOGNAME", &who.name)]);
        let home = home.into_iter().flatten().filter(|(name, _)| !body.env.contains_key(*name));
        let theirs = theirs.chain(home.map(|(name, value)| (name, value.as_str())));
        let theirs = theirs.filter(|(name, _)| own.iter().all(|(ours, _)| ours != name));
        Command::new(&argv, theirs.chain(own.iter().map(|(k, v)| (*k, v.as_str()))), &body.cwd)
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

fn refuse_spawn(e: SpawnError, body: &Body) -> Refused {
    let what = match e.step {
        "start the command" => format!("start '{}'", body.command.first().map_or("", String::as_str)),
        "enter its working directory" => format!("enter the working directory '{}'", body.cwd),
        step => step.to_owned(),
    };
    refuse(&what, e.source)
}

/// What passes by itself is no failure of the task.
fn refuse(what: &str, e: io::Error) -> Refused {
    const PASSING: [i32; 6] =
        [libc::ENOSPC, libc::EDQUOT, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
    match e.raw_os_error() {
        Some(errno) if PASSING.contains(&errno) => Refused::NotNow(e),
        _ => Refused::Failed(format!("cannot {what}: {e}")),
    }
}
