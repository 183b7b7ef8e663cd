//! The keeper's loop. One thread wakes up for ended children, the agent's connection, the lease's timer and deadlines,
//! and hands each to its owner: `tasks`, `link` or `lease`.

use super::env::KeeperEnv;
use super::fuse::Fuse;
use super::jobserver::Jobservers;
use super::lease::Lease;
use super::link::Link;
use super::log::write_line;
use super::nodes::NodeFiles;
use super::open_files::{files_max, shortage, tasks_max};
use super::session::Sessions;
use super::tasks::Tasks;
use crate::cgroup::Cgroups;
use crate::logs::LogDir;
use crate::process;
use crate::protocol::{FromKeeper, Hidden, NO_CONTROL_GROUPS, ToKeeper};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Options of a keeper, from its command line.
#[derive(Clone, Debug)]
pub struct KeeperOptions {
    /// The worker's directory, which must exist.
    pub state: PathBuf,
    /// The number that tells this keeper from every other.
    pub incarnation: u64,
    /// Whether the keeper ends, with all tasks, when the agent's connection ends.
    pub die_with_agent: bool,
    /// Whether to do without namespaces.
    pub plain: bool,
    /// Whether the server gives leases, so that the keeper needs a fuse.
    pub leased: bool,
    /// Bytes that are kept of one output file.
    pub log_bytes_max: u64,
    /// Descriptor of the state that an earlier program of this process handed over; `None` for a new keeper.
    pub resume: Option<i32>,
    /// Descriptor of that earlier program, which is executed again if this one cannot go on.
    pub fallback: Option<i32>,
}

/// How long a keeper that ends with its agent waits for the first connection.
const FIRST_AGENT: Duration = Duration::from_secs(10);
/// How long a keeper without attempts waits for another agent.
const ALONE_MAX: Duration = Duration::from_secs(600);

pub(super) struct Keeper {
    options: KeeperOptions,
    /// Holds the worker's directory; `None` in a program that took over from one that did not lock it.
    pub(super) lock: Option<File>,
    pub(super) tasks: Tasks,
    pub(super) link: Link,
    children: OwnedFd,
    pub(super) lease: Lease,
    /// `None` of a keeper without leases, and of one that an earlier program started.
    pub(super) fuse: Option<Fuse>,
    /// When the lease ran out, until the last process of the tasks that were ended then is gone.
    fenced: Option<Instant>,
    pub(super) namespaced: bool,
    /// Identifies the executable of this process.
    program: Option<String>,
    pub(super) notes: Vec<String>,
    /// The files that the last agent asked to hide.
    pub(super) hidden: Option<Hidden>,
    /// Since when no agent is connected; `None` while one is.
    alone_since: Option<Instant>,
    /// The program to become, as soon as no process is between fork and its own program.
    upgrade_to: Option<PathBuf>,
    done: bool,
}

/// The events that woke the keeper, besides deadlines.
struct Ready {
    /// At least one child process has ended.
    children: bool,
    /// The agent sent something.
    agent: bool,
    /// An agent waits to be accepted.
    new_agent: bool,
}

impl Keeper {
    pub(super) fn new(
        options: &KeeperOptions,
        cgroups: Result<Cgroups, String>,
        namespaced: bool,
        mut notes: Vec<String>,
    ) -> io::Result<Self> {
        let cgroups = match cgroups {
            Ok(cgroups) => {
                if !cgroups.limits_memory() {
                    notes
                        .push("no memory controller: memory limits are watched by sampling /proc".to_owned());
                }
                Some(cgroups)
            }
            Err(_) if !rustix::process::geteuid().is_root() => {
                notes.push(NO_CONTROL_GROUPS.to_owned());
                None
            }
            Err(why) => {
                notes.push(format!(
                    "no control groups ({why}): memory limits are watched by sampling /proc, and processes that \
                     leave a task's tree are found by their environment"
                ));
                None
            }
        };
        let keeper_env = Keeper::keeper_env(options, cgroups, namespaced)?;
        keeper_env.nodes.clear();
        keeper_env.jobservers.clear();
        let tasks = Tasks::new(keeper_env, Sessions::new(&options.state));
        let link = Link::listen(&options.state)?;
        Keeper::with(options, (tasks, link, Lease::new()?), namespaced, notes)
    }

    pub(super) fn keeper_env(
        options: &KeeperOptions,
        cgroups: Option<Cgroups>,
        namespaced: bool,
    ) -> io::Result<KeeperEnv> {
        let mut keeper_env = KeeperEnv {
            cgroups,
            logs: LogDir::new(&options.state),
            log_bytes_max: options.log_bytes_max,
            null: File::open("/dev/null")?,
            helpers: BTreeMap::new(),
            launcher: None,
            mask: None,
            exposed: None,
            stuck: Vec::new(),
            namespaced,
            incarnation: options.incarnation,
            tasks_max: tasks_max(files_max()),
            cpus: BTreeMap::new(),
            gpu_devices: None,
            devices: BTreeMap::new(),
            nodes: NodeFiles::new(&options.state),
            jobservers: Jobservers::new(&options.state),
        };
        // Started before the keeper has much memory, because this one fork copies its page tables.
        keeper_env.start_launcher();
        Ok(keeper_env)
    }

    pub(super) fn with(
        options: &KeeperOptions,
        (tasks, link, lease): (Tasks, Link, Lease),
        namespaced: bool,
        notes: Vec<String>,
    ) -> io::Result<Self> {
        Ok(Keeper {
            options: options.clone(),
            lock: None,
            tasks,
            link,
            children: block_sigchld()?,
            lease,
            fuse: None,
            fenced: None,
            namespaced,
            program: process::program_of_this_process(),
            notes,
            hidden: None,
            alone_since: Some(Instant::now()),
            upgrade_to: None,
            done: false,
        })
    }

    /// Runs the loop until the keeper ends.
    pub(super) fn live(&mut self) -> ExitCode {
        let result = self.run();
        _ = std::fs::remove_file(self.options.state.join("keeper.sock"));
        if let Err(e) = result {
            write_line(format_args!("{e}"));
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }

    fn run(&mut self) -> io::Result<()> {
        while !self.done {
            if self.upgrade_to.is_some() && self.tasks.launches().next().is_none() {
                self.upgrade();
            }
            if self.lease.holds() && self.upgrade_to.is_none() {
                self.tasks.start_waiting(&mut self.link);
            }
            self.link.flush();
            let ready = self.wait()?;
            if ready.children {
                drain(&self.children);
                while let Some(exit) = process::reap() {
                    self.tasks.exited(exit);
                }
            }
            if self.lease.ran_out() {
                write_line(format_args!(
                    "the lease ran out {} ms ago: all tasks are ended",
                    self.lease.over_ms()
                ));
                self.tasks.fence(&mut self.link);
                self.tell_fuse();
                self.fenced = Some(Instant::now());
            }
            self.tasks.settle(Instant::now(), &mut self.link);
            self.say_when_fenced_tasks_are_gone();
            self.read_agent(&ready);
        }
        self.tasks.kill_all();
        Ok(())
    }

    /// Logs how long the kernel took to end the tasks of a lease that ran out. A process that waits for a disk ends when
    /// the disk answers, and until then it may run beside the next attempt of its task.
    fn say_when_fenced_tasks_are_gone(&mut self) {
        let Some(since) = self.fenced.filter(|_| !self.tasks.has_fenced()) else { return };
        self.fenced = None;
        let ms = since.elapsed().as_millis();
        write_line(format_args!(
            "the last process of the tasks that were ended with the lease is gone after {ms} ms"
        ));
    }

    /// Sleeps until a descriptor is ready or a deadline is due.
    fn wait(&self) -> io::Result<Ready> {
        // Without an agent the keeper checks now and then whether it is still needed and its directory still exists.
        let alone = self.alone_since.map(|_| Instant::now() + FIRST_AGENT);
        let timeout = self.tasks.next_deadline().into_iter().chain(alone).min().map(|at| {
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(100);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let mut fds = vec![
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::from_borrowed_fd(self.link.listener(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.lease.timer(), PollFlags::IN),
        ];
        if let Some(connection) = self.link.connection() {
            let out = if self.link.has_output() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(connection, PollFlags::IN | out));
        }
        let connections = fds.len();
        let now = Instant::now();
        let launches = self.tasks.launches().filter(|launch| launch.listen_from() <= now);
        fds.extend(launches.map(|launch| PollFd::from_borrowed_fd(launch.report(), PollFlags::IN)));
        let awaited = self.tasks.keeper_env.jobservers.awaited();
        fds.extend(awaited.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {
                let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
                let agent = fds[3..connections].iter().any(is_ready);
                Ok(Ready { children: is_ready(&fds[0]), agent, new_agent: is_ready(&fds[1]) })
            }
            Err(rustix::io::Errno::INTR) => Ok(Ready { children: true, agent: true, new_agent: true }),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads the agent's messages, and ends the keeper that no agent needs.
    fn read_agent(&mut self, ready: &Ready) {
        if ready.new_agent {
            self.link.accept();
        }
        if ready.agent || ready.new_agent {
            for message in self.link.read() {
                self.handle(message);
            }
        }
        if self.link.connection().is_some() {
            self.alone_since = None;
            return;
        }
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        let patience = match (self.options.die_with_agent, self.link.had_agent()) {
            (true, true) => Duration::ZERO,
            (true, false) => FIRST_AGENT,
            (false, _) => ALONE_MAX,
        };
        // Without its directory no agent can find the keeper, and the output of its tasks is lost.
        self.done |= !self.options.state.exists();
        // Attempts are kept for the next agent, however late that comes.
        let needed = !self.options.die_with_agent && !self.tasks.held().is_empty();
        self.done |= !needed && since.elapsed() >= patience;
    }

    /// Becomes another program. Returns only if that failed.
    fn upgrade(&mut self) {
        let Some(program) = self.upgrade_to.take() else { return };
        let options = self.options.clone();
        let e = self.become_program(&options, &program);
        write_line(format_args!("cannot go on as {}: {e}", program.display()));
    }

    fn handle(&mut self, message: ToKeeper) {
        match message {
            ToKeeper::Hello { capacity, sent, hide, gpu_devices } => {
                self.tasks.capacity = capacity;
                self.tasks.keeper_env.gpu_devices = gpu_devices;
                self.hide(hide);
                self.link.send(&FromKeeper::State {
                    incarnation: self.options.incarnation,
                    seq: self.tasks.seq,
                    held: self.tasks.held(),
                    notes: self.notes(),
                    sent,
                    fences: self.namespaced,
                    program: self.program.clone(),
                    files: true,
                });
                self.tasks.begin_again(&mut self.link);
            }
            ToKeeper::Beat { sent } => {
                let (seq, held) = (self.tasks.seq, self.tasks.held());
                self.link.send(&FromKeeper::Beat { sent, seq, held });
            }
            ToKeeper::Lease { until } => {
                self.lease.set(until);
                self.tell_fuse();
            }
            // It may have been under way when the lease ran out, and its task may run elsewhere by now. The server sends
            // it again if it does not.
            ToKeeper::Start(start) if !self.lease.holds() => self.tasks.note_seq(start.seq),
            ToKeeper::Upgrade { program } => self.upgrade_to = Some(program),
            ToKeeper::Shutdown => self.done = true,
            ToKeeper::ShutdownIfIdle => self.done |= self.tasks.held().is_empty(),
            ToKeeper::ShutdownIfEnded => self.done |= !self.tasks.runs(),
            other => self.tasks.handle(other, &mut self.link),
        }
    }
}

impl Keeper {
    /// Tells the fuse until when tasks may run. From then on there is nothing left to end.
    fn tell_fuse(&self) {
        if let Some(fuse) = &self.fuse {
            fuse.set(self.lease.until().filter(|_| self.lease.holds()));
        }
    }

    /// Hides the files that the agent names from tasks.
    pub(super) fn hide(&mut self, hidden: Option<Hidden>) {
        if let Some(hidden) = &hidden {
            self.tasks.keeper_env.hide(&self.options.state, hidden);
        }
        self.hidden = hidden;
    }

    /// Restrictions that the keeper found when it was set up, for the log.
    fn notes(&self) -> Vec<String> {
        let exposed = self.tasks.keeper_env.exposed.as_ref().map(|why| {
            format!(
                "nothing is hidden from tasks ({why}): those that run as the worker's own user can read its token \
                 and the output of all tasks"
            )
        });
        let few_files = shortage(files_max(), self.tasks.capacity.cpu);
        self.notes.iter().cloned().chain(exposed).chain(few_files).collect()
    }
}

/// Blocks `SIGCHLD` and returns a descriptor that is readable when it is pending.
fn block_sigchld() -> io::Result<OwnedFd> {
    // SAFETY: a zeroed set is valid storage for sigemptyset, and the new descriptor has no other owner.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

fn drain(fd: &OwnedFd) {
    let mut buffer = [0u8; 1024];
    while rustix::io::read(fd.as_fd(), &mut buffer).is_ok_and(|n| n == buffer.len()) {}
}
