//! The agent's half on this machine: finds or starts the keeper, makes sure that an earlier one is
//! gone before it starts another, and carries messages.

use crate::caches::CacheDir;
use crate::cgroup;
use crate::clock::boot_ns;
use crate::keep;
use crate::keeper::upgrade::program_of_this_process;
use crate::keeper::{KeeperFile, MARKER, RETRY_WITHOUT, socket_path};
use crate::logs::LogDir;
use crate::measure::Measured;
use crate::process;
use crate::protocol::{FromKeeper, Lines, TaskRef, ToKeeper, WireResult, to_line};
use crate::watch::{Due, LOOK_EVERY, Watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use windlass_core::Resources;
use windlass_core::load::pressure::LoadReport;

/// How long a keeper may take to answer before it counts as stuck.
const KEEPER_ANSWER: Duration = Duration::from_secs(10);
/// Between two tries to get a keeper.
const RETRY: Duration = Duration::from_millis(200);

/// How an agent is set up.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The worker's directory; made if it is not there.
    pub state: PathBuf,
    /// The program that becomes the keeper when it is called with `keeper`.
    pub program: PathBuf,
    /// What tasks may hold.
    pub capacity: Resources,
    /// The keeper and all tasks end with this process.
    pub die_with_agent: bool,
    /// Bytes of one output file that are kept.
    pub log_bytes_max: u64,
    /// The number of the store that jobs come from. A keeper, and output, of another store's jobs are
    /// of no use here: the numbers of jobs would mean others.
    pub store: i64,
    /// Caches whose keys are reported.
    pub caches: Vec<CacheDir>,
    /// Bytes that all output may take; `None` is what the disk has room for.
    pub logs_bytes_max: Option<u64>,
    /// End what runs for a server of another store at once.
    pub adopt: bool,
}

/// What the agent tells.
#[derive(Clone, PartialEq, Debug)]
pub enum FromAgent {
    /// A keeper is there. Another incarnation than before says that the earlier one is gone with all
    /// that ran under it.
    Hello {
        /// Which connection this is; what is sent goes to one.
        connection: u64,
        /// The keeper's own number.
        incarnation: u64,
        /// The largest number of a message that it has seen.
        seq: u64,
        /// What it holds.
        held: Vec<crate::protocol::Held>,
        /// What it could not set up.
        notes: Vec<String>,
        /// This machine's clock when it was asked, on the clock that counts from boot.
        sent: u64,
        /// It ends its tasks by itself when its lease runs out.
        fences: bool,
        /// It runs another program than this agent.
        differs: bool,
    },
    /// The answer to [`ToKeeper::Beat`].
    Beat {
        /// As it was asked.
        sent: u64,
        /// The largest number of a message that it has seen.
        seq: u64,
        /// What it holds.
        held: Vec<crate::protocol::Held>,
    },
    /// The keeper does not answer; another is looked for.
    Lost,
    /// An attempt started.
    Started {
        /// The attempt.
        task: TaskRef,
        /// As in its start.
        epoch: u64,
        /// Nanoseconds since the Unix epoch.
        at: u64,
    },
    /// An attempt ended.
    Finished {
        /// The attempt.
        task: TaskRef,
        /// As in its start.
        epoch: u64,
        /// How.
        result: WireResult,
    },
    /// How far an attempt says that it is.
    Progress {
        /// The attempt.
        task: TaskRef,
        /// As in its start.
        epoch: u64,
        /// In percent.
        percent: Option<f64>,
        /// What it does, for people.
        status: Option<String>,
    },
    /// The load of this machine.
    Load(Box<LoadReport>),
    /// All keys of its caches, with their bytes.
    Caches(BTreeMap<String, u64>),
    /// An attempt has its cpus again.
    Reclaimed {
        /// The attempt.
        task: TaskRef,
        /// As in its start.
        epoch: u64,
    },
}

/// Why there is no keeper.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The state directory.
    #[error("cannot use the worker's directory {}", path.display())]
    State {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It did not start.
    #[error("the keeper did not start: {0}")]
    Start(String),
    /// It is alive and does not answer.
    #[error(
        "the keeper (process {pid}) does not answer; its tasks may be running, so no other is started. If it \
         is stuck, end it with 'kill -9 {pid}'"
    )]
    Stuck {
        /// The keeper.
        pid: i32,
    },
    /// Tasks of another server's run here.
    #[error(
        "this worker runs tasks for a server of another database (it was {was}, this one is {is}); they end when \
         their lease is over. 'windlass worker start --adopt' ends them at once"
    )]
    OtherStore {
        /// The store for whose jobs it worked.
        was: String,
        /// The one that this server has.
        is: String,
    },
    /// Something that ran under an earlier keeper cannot be ended.
    #[error("processes of an earlier keeper do not end")]
    Leftovers,
}

/// The agent. Clones share it.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

struct Shared {
    options: AgentOptions,
    writer: Mutex<Writer>,
    stopped: AtomicBool,
    /// A keeper was told to go on as our program.
    upgraded: AtomicBool,
    measured: Measured,
    watch: Watch,
    /// What the keeper holds, as it said last.
    held: Mutex<BTreeSet<TaskRef>>,
}

/// The way to the keeper, and which connection that is.
#[derive(Default)]
struct Writer {
    connection: u64,
    stream: Option<UnixStream>,
}

impl Agent {
    /// Gets a keeper and starts the threads that listen to it and measure this machine. `on` is called
    /// there, by one at a time, with what arrived together.
    pub fn start(
        options: AgentOptions,
        on: impl FnMut(&Agent, Vec<FromAgent>) + Send + 'static,
    ) -> Result<Agent, AgentError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&options.state);
        made.map_err(|source| AgentError::State { path: options.state.clone(), source })?;
        let (stopped, upgraded) = (AtomicBool::new(false), AtomicBool::new(false));
        let measured = Measured::default();
        let (writer, watch) = (Mutex::default(), Watch::default());
        let held = Mutex::default();
        let shared = Shared { options, writer, stopped, upgraded, measured, watch, held };
        let agent = Agent { shared: Arc::new(shared) };
        agent.leave_other_store()?;
        let first = agent.connect()?;
        let on = Arc::new(Mutex::new(on));
        agent.measure(&on)?;
        let this = agent.clone();
        spawn("watch", move || this.watch())?;
        let this = agent.clone();
        spawn("logs", move || this.keep_room())?;
        let this = agent.clone();
        let listen = move || {
            let mut on = |agent: &Agent, messages| lock(&on)(agent, messages);
            let mut stream = Some(first);
            while !this.shared.stopped.load(Ordering::Relaxed) {
                match stream.take().map_or_else(|| this.connect(), Ok) {
                    Ok(stream) => {
                        this.listen(stream, &mut on);
                        this.shared.writer().stream = None;
                        if !this.shared.stopped.load(Ordering::Relaxed) {
                            on(&this, vec![FromAgent::Lost]);
                        }
                    }
                    Err(e) => {
                        tracing::error!("no keeper: {e}");
                        thread::sleep(RETRY);
                    }
                }
            }
        };
        spawn("agent", listen)?;
        Ok(agent)
    }

    /// Starts the threads that tell of this machine by themselves.
    fn measure<F>(&self, on: &Arc<Mutex<F>>) -> Result<(), AgentError>
    where
        F: FnMut(&Agent, Vec<FromAgent>) + Send + 'static,
    {
        let (this, tell) = (self.clone(), on.clone());
        spawn("load", move || {
            this.shared.measured.tell_load(&this, |load| lock(&tell)(&this, vec![load]));
        })?;
        let (this, tell) = (self.clone(), on.clone());
        spawn("caches", move || {
            let dirs = &this.shared.options.caches;
            this.shared.measured.tell_caches(dirs, |caches| lock(&tell)(&this, vec![caches]));
        })
    }

    /// How often the load is told from now on.
    pub fn set_load_every(&self, every: Duration) {
        self.shared.measured.set_load_every(every);
    }

    /// What tasks may hold.
    pub fn capacity(&self) -> &Resources {
        &self.shared.options.capacity
    }

    /// The worker's directory.
    pub fn state(&self) -> &Path {
        &self.shared.options.state
    }

    /// Sends messages in one piece on the connection that they are meant for. They are lost if that is
    /// gone: the keeper says hello on the next one, and what it does not hold is sent again.
    pub fn send(&self, connection: u64, messages: &[ToKeeper]) {
        let mut writer = self.shared.writer();
        if writer.connection != connection {
            return;
        }
        for message in messages {
            match message {
                ToKeeper::Lease { until } => self.shared.watch.leased(*until),
                ToKeeper::Hello { .. } | ToKeeper::Beat { .. } => self.shared.watch.asked(boot_ns()),
                _ => {}
            }
        }
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| to_line(message, &mut bytes));
        if let Some(stream) = &mut writer.stream
            && let Err(e) = stream.write_all(&bytes)
        {
            // Half a message may be written: nothing may follow it.
            tracing::warn!("the keeper does not take messages: {e}");
            _ = stream.shutdown(Shutdown::Both);
            writer.stream = None;
        }
    }

    /// Sees to it that output does not fill the disk, until this agent stops.
    fn keep_room(&self) {
        let mut looked = Instant::now();
        while !self.shared.stopped.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
            if looked.elapsed() < keep::EVERY {
                continue;
            }
            looked = Instant::now();
            let held = lock(&self.shared.held).clone();
            match keep::make_room(&self.logs(), self.shared.options.logs_bytes_max, &held) {
                Ok(0) => {}
                Ok(bytes) => {
                    tracing::warn!(
                        "the disk is full: {bytes} bytes of old output were deleted, all but its beginning"
                    );
                }
                Err(e) => tracing::warn!("cannot look after the output of tasks: {e}"),
            }
        }
    }

    /// Looks after the keeper until this agent stops.
    fn watch(&self) {
        while !self.shared.stopped.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
            match self.shared.watch.look(boot_ns()) {
                Due::Nothing => {}
                Due::Ask => self.ask(),
                Due::Say => {
                    tracing::error!("the keeper does not answer: it stands still, or was stopped");
                }
                Due::End => self.end_keeper(),
            }
        }
    }

    /// Asks the keeper whether it is there, and never waits: one that stands still does not read.
    fn ask(&self) {
        self.shared.watch.asked(boot_ns());
        let Ok(mut writer) = self.shared.writer.try_lock() else { return };
        let mut line = Vec::new();
        to_line(&ToKeeper::Beat { sent: boot_ns() }, &mut line);
        let Some(stream) = &writer.stream else { return };
        // Of half a message the rest cannot be said.
        if send(stream, &line, SendFlags::DONTWAIT).is_ok_and(|sent| sent < line.len()) {
            _ = stream.shutdown(Shutdown::Both);
            writer.stream = None;
        }
    }

    /// Ends a keeper whose lease is over and that cannot end its tasks itself.
    fn end_keeper(&self) {
        let Some(file) = KeeperFile::read(&self.shared.options.state) else { return };
        let Some(fd) = Pid::from_raw(file.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            return;
        };
        // Another process may have got the number since.
        if process::start_ticks(file.pid) != Some(file.start_ticks) {
            return;
        }
        tracing::error!(
            "the lease is over and the keeper (process {}) does not answer: it is killed, and its tasks with it",
            file.pid
        );
        if let Err(e) = pidfd_send_signal(fd, Signal::KILL) {
            tracing::error!("cannot kill the keeper: {e}");
        }
        // The kernel ends them with it; where it waits with the keeper for something, they end at once all the same.
        cgroup::sweep(&file.cgroups);
    }

    /// As [`Agent::send`], on whatever connection there is.
    pub fn send_now(&self, messages: &[ToKeeper]) {
        let connection = self.shared.writer().connection;
        self.send(connection, messages);
    }

    /// Lets a keeper of another program go on as ours: once, for one that cannot stays what it is.
    fn upgrade(&self, connection: u64, messages: &[FromAgent]) {
        let differs = |message: &FromAgent| matches!(message, FromAgent::Hello { differs: true, .. });
        let options = &self.shared.options;
        if options.die_with_agent
            || !messages.iter().any(differs)
            || self.shared.upgraded.swap(true, Ordering::Relaxed)
        {
            return;
        }
        tracing::info!("the keeper goes on as {}", options.program.display());
        self.send(connection, &[ToKeeper::Upgrade { program: options.program.clone() }]);
    }

    /// The message that asks the keeper to say all that it holds.
    pub fn hello(&self) -> ToKeeper {
        ToKeeper::Hello { capacity: self.shared.options.capacity.clone().into(), sent: boot_ns() }
    }

    /// Where tasks' output is.
    pub fn logs(&self) -> LogDir {
        LogDir::new(&self.shared.options.state)
    }

    /// Stops listening. The keeper ends if it holds nothing; with `kill` it ends with all of its tasks.
    pub fn stop(&self, kill: bool) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.shared.measured.end();
        self.send_now(&[if kill { ToKeeper::Shutdown } else { ToKeeper::ShutdownIfIdle }]);
        if let Some(file) = KeeperFile::read(&self.shared.options.state).filter(|_| kill) {
            _ = wait_for_end(&file, KEEPER_ANSWER);
        }
    }

    /// Ends a keeper of another store's jobs once nothing runs there any more, and puts their output aside: the store may
    /// be another by mistake.
    fn leave_other_store(&self) -> Result<(), AgentError> {
        let state = &self.shared.options.state;
        let io = |source| AgentError::State { path: state.clone(), source };
        let (path, ours) = (state.join("store-id"), self.shared.options.store.to_string());
        let theirs = fs::read_to_string(&path).unwrap_or_default();
        if theirs == ours {
            return Ok(());
        }
        if let Some(file) = KeeperFile::read(state).filter(|_| !theirs.is_empty()) {
            if let Ok(mut stream) = dial(state) {
                let mut line = Vec::new();
                let end =
                    if self.shared.options.adopt { ToKeeper::Shutdown } else { ToKeeper::ShutdownIfEnded };
                to_line(&end, &mut line);
                _ = stream.write_all(&line);
                if !wait_for_end(&file, KEEPER_ANSWER) {
                    return Err(match self.shared.options.adopt {
                        true => AgentError::Stuck { pid: file.pid },
                        false => AgentError::OtherStore { was: theirs, is: ours },
                    });
                }
            }
            put_aside(state, &theirs).map_err(io)?;
        }
        crate::identity::write(&path, &ours).map_err(io)
    }

    fn listen(&self, mut stream: UnixStream, on: &mut impl FnMut(&Agent, Vec<FromAgent>)) {
        let connection = self.shared.writer().connection;
        let mut lines = Lines::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(n) => lines.push(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    tracing::warn!("the keeper's connection broke: {e}");
                    return;
                }
            }
            match lines.take::<FromKeeper>() {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => {
                    self.shared.watch.heard();
                    // It answered once; from now on it may be silent for as long as it likes.
                    _ = stream.set_read_timeout(None);
                    messages.iter().for_each(|message| self.shared.measured.hear(message));
                    for message in &messages {
                        if let FromKeeper::State { held, .. } | FromKeeper::Beat { held, .. } = message {
                            *lock(&self.shared.held) = held.iter().map(|held| held.task).collect();
                        }
                    }
                    let messages: Vec<FromAgent> =
                        messages.into_iter().filter_map(|message| from_keeper(message, connection)).collect();
                    self.upgrade(connection, &messages);
                    let greets = messages.iter().any(|message| matches!(message, FromAgent::Hello { .. }));
                    on(self, messages);
                    if greets {
                        self.shared.measured.say_caches();
                    }
                }
                Err(why) => {
                    tracing::error!("the keeper sends what is no message: {why}");
                    return;
                }
            }
        }
    }

    /// A connection to a living keeper, which may be a new one.
    fn connect(&self) -> Result<UnixStream, AgentError> {
        let state = &self.shared.options.state;
        let file = KeeperFile::read(state);
        let deadline = Instant::now() + KEEPER_ANSWER;
        let stream = loop {
            if let Ok(stream) = dial(state) {
                break stream;
            }
            let Some(file) = &file else { break self.start_keeper()? };
            if wait_for_end(file, RETRY) {
                clear_up(file)?;
                break self.start_keeper()?;
            }
            if Instant::now() > deadline {
                return Err(AgentError::Stuck { pid: file.pid });
            }
        };
        let io = |source| AgentError::State { path: state.clone(), source };
        // The keeper answers at once and always reads, unless it stands still: in the kernel with a
        // dead file system, or because somebody stopped it.
        stream.set_read_timeout(Some(KEEPER_ANSWER)).map_err(io)?;
        stream.set_write_timeout(Some(KEEPER_ANSWER)).map_err(io)?;
        let connection = {
            let mut writer = self.shared.writer();
            writer.connection += 1;
            writer.stream = Some(stream.try_clone().map_err(io)?);
            writer.connection
        };
        self.send(connection, &[self.hello()]);
        Ok(stream)
    }

    fn start_keeper(&self) -> Result<UnixStream, AgentError> {
        let incarnation = fresh_number();
        let mut said = self.launch(incarnation, false)?;
        if said.contains(RETRY_WITHOUT) {
            said = self.launch(incarnation, true)?;
        }
        if !said.starts_with("ready") {
            return Err(AgentError::Start(said.trim_start_matches("error: ").trim().to_owned()));
        }
        dial(&self.shared.options.state).map_err(|e| AgentError::Start(e.to_string()))
    }

    /// Runs the keeper; returns the line that it says when it is ready or when it fails.
    fn launch(&self, incarnation: u64, plain: bool) -> Result<String, AgentError> {
        let options = &self.shared.options;
        let mut command = Command::new(&options.program);
        command.arg("keeper").arg("--state").arg(&options.state);
        command.arg("--incarnation").arg(incarnation.to_string());
        command.arg("--log-bytes-max").arg(options.log_bytes_max.to_string());
        for (flag, on) in [("--die-with-agent", options.die_with_agent), ("--plain", plain)] {
            if on {
                command.arg(flag);
            }
        }
        // What marks the task that we may run in must not mark the keeper and its tasks.
        command.env_remove(MARKER).env_remove("WINDLASS_TASK").env_remove("WINDLASS_TOKEN");
        // Its end would come as SIGCHLD to nobody; it is collected right here.
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|e| AgentError::Start(e.to_string()))?;
        let mut said = Vec::new();
        if let Some(mut stdout) = child.stdout.take() {
            let mut byte = [0];
            while stdout.read(&mut byte).is_ok_and(|n| n == 1) && byte != *b"\n" {
                said.push(byte[0]);
            }
        }
        _ = child.wait();
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

impl Shared {
    fn writer(&self) -> std::sync::MutexGuard<'_, Writer> {
        lock(&self.writer)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), AgentError> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map(drop).map_err(|e| AgentError::Start(e.to_string()))
}

/// What the server is told of it, if anything.
fn from_keeper(message: FromKeeper, connection: u64) -> Option<FromAgent> {
    Some(match message {
        FromKeeper::State { incarnation, seq, held, notes, sent, fences, program } => {
            let own = program_of_this_process();
            let differs = program.is_some() && own.is_some() && program != own;
            FromAgent::Hello { connection, incarnation, seq, held, notes, sent, fences, differs }
        }
        FromKeeper::Beat { sent, seq, held } => FromAgent::Beat { sent, seq, held },
        FromKeeper::Started { task, epoch, at } => FromAgent::Started { task, epoch, at },
        FromKeeper::Finished { task, epoch, result } => FromAgent::Finished { task, epoch, result },
        FromKeeper::Progress { task, epoch, percent, status } => {
            FromAgent::Progress { task, epoch, percent, status }
        }
        FromKeeper::Fetched { .. } => return None,
        FromKeeper::Reclaimed { task, epoch } => FromAgent::Reclaimed { task, epoch },
    })
}

/// Puts the output of another store's jobs where it is kept until nobody can want it any more.
fn put_aside(state: &Path, store: &str) -> io::Result<()> {
    let aside = state.join(format!("logs-of-{store}"));
    match fs::remove_dir_all(&aside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    match fs::rename(state.join("logs"), &aside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        Err(_) => Ok(()),
        Ok(()) => {
            tracing::warn!("the output of another server's tasks is kept in {}", aside.display());
            Ok(())
        }
    }
}

fn dial(state: &Path) -> io::Result<UnixStream> {
    let dir = File::open(state)?;
    UnixStream::connect(socket_path(&dir))
}

/// Waits up to `timeout` for the keeper to be gone; true if it is. A pidfd is readable only when the
/// process is dead whole, and the first process of a namespace is dead only when all others are.
fn wait_for_end(file: &KeeperFile, timeout: Duration) -> bool {
    let Some(pid) = Pid::from_raw(file.pid) else { return true };
    let fd = pidfd_open(pid, PidfdFlags::empty());
    // Another process may have got the number since.
    if process::start_ticks(file.pid) != Some(file.start_ticks) {
        return true;
    }
    let fd = match fd {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return true,
        // No pidfd to be had says nothing about the keeper.
        Err(_) => {
            thread::sleep(timeout);
            return process::start_ticks(file.pid) != Some(file.start_ticks);
        }
    };
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).is_ok_and(|n| n > 0)
}

/// Ends what a dead keeper left: its control groups, and, where it had no namespace, its processes.
fn clear_up(file: &KeeperFile) -> Result<(), AgentError> {
    let marker = format!("{MARKER}={}:", file.incarnation);
    let deadline = Instant::now() + KEEPER_ANSWER;
    loop {
        let mut gone = cgroup::sweep(&file.cgroups);
        if !file.namespaced {
            for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
                let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
                if let Some(pid) =
                    pid.filter(|pid| process::environ_has(*pid, |pair| pair.starts_with(marker.as_bytes())))
                {
                    gone = false;
                    process::kill(pid);
                }
            }
        }
        if gone {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(AgentError::Leftovers);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A number that no keeper had before.
pub fn fresh_number() -> u64 {
    let mut bytes = [0; 8];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if random.is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        bytes =
            (now.map_or(0, |since| since.as_nanos() as u64) ^ u64::from(std::process::id())).to_le_bytes();
    }
    // SQL's integers are signed, and 0 is no keeper.
    (u64::from_le_bytes(bytes) >> 1).max(1)
}
