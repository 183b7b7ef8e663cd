//! The agent's connection to the keeper of this machine. It finds the keeper or starts one, and starts
//! another only when the earlier one is known to be dead. It carries messages both ways, measures the
//! machine, and keeps output from filling the disk. The server's process uses it for its own worker, and
//! `remote` for a worker of a farm. It never starts a task's process and keeps no result: the keeper repeats
//! results until they are acknowledged.

use crate::caches::CacheDir;
use crate::cgroup;
use crate::clock::boot_ns;
use crate::detect::{LateGpus, declare};
use crate::files::{AgentFiles, FileDirs, FileParts, FileWork};
use crate::keep::{self, Writers};
use crate::keeper::{FILES, KeeperFile, MARKER, RETRY_WITHOUT, TAKEN, socket_path};
use crate::late::Late;
use crate::logs::{ASIDE, LogDir};
use crate::make_version::make_version;
use crate::measure::{MeasureCore, Measured};
use crate::process;
use crate::protocol::{FromKeeper, Hidden, Lines, ToKeeper, to_line};
use crate::random::fresh_number;
use crate::watch::{Due, LOOK_EVERY, Watch};
use crate::wire::{inventory, report_of};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use windlass_api::wire::{Hello, Lost, attributes_to_wire, report};
use windlass_core::Resources;
use windlass_core::tags::{Attributes, GPUS_LATE};

/// How long a keeper may take to answer before it counts as stuck.
const KEEPER_ANSWER: Duration = Duration::from_secs(10);
/// How long the user database may take to tell this user's home directory, where no variable does.
const HOME_WAIT: Duration = Duration::from_secs(2);
/// Pause between two attempts to get a keeper.
const RETRY: Duration = Duration::from_millis(200);

/// Options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The worker's directory. It is created if it does not exist.
    pub state: PathBuf,
    /// The executable that the agent runs as the keeper, with the argument `keeper`.
    pub program: PathBuf,
    /// The worker's name, unique on the farm.
    pub name: String,
    /// Number that tells this machine from another with the same name.
    pub identity: u64,
    /// The capacity that all tasks may use together.
    pub capacity: Resources,
    /// The GPUs, if their driver has not answered yet. They are added to the capacity when it does.
    pub late_gpus: Option<LateGpus>,
    /// The GPUs that tasks may use, as `CUDA_VISIBLE_DEVICES` names them, one for each of the capacity; `None` if nothing is
    /// known of any.
    pub gpu_devices: Option<Vec<String>>,
    /// Detected attributes and the tags of the operator.
    pub attributes: Attributes,
    /// Whether the keeper and all tasks end with this process.
    pub die_with_agent: bool,
    /// Whether the server gives leases.
    pub leased: bool,
    /// Bytes that are kept of one output file; the middle of a longer one is dropped.
    pub log_bytes_max: u64,
    /// Directories whose entries are reported as cache keys.
    pub caches: Vec<CacheDir>,
    /// Bytes that all output files may take together. `None` leaves it to the free space of the disk.
    pub logs_bytes_max: Option<u64>,
    /// Whether tasks of another store's jobs are ended at once, instead of when their lease is over.
    pub adopt: bool,
    /// When the speed of a core is measured.
    pub measure_core: MeasureCore,
    /// Files to hide from tasks besides the worker's directory; `None` hides nothing, not even the directory.
    pub hide: Option<Hidden>,
}

/// What an agent tells its server, in the messages of the worker protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum FromAgent {
    /// The keeper's answer to a hello. An incarnation other than the previous one means that the earlier
    /// keeper is dead, and every task under it.
    Hello {
        /// The worker, and every attempt that its keeper has.
        hello: Box<Hello>,
        /// Number of the connection to the keeper. Messages are sent on one connection only.
        connection: u64,
        /// Restrictions that the keeper found when it started, for the log.
        notes: Vec<String>,
    },
    /// Any other report. After `Lost` the agent looks for a keeper again.
    Report(Box<report::What>),
}

impl FromAgent {
    fn report(what: report::What) -> FromAgent {
        FromAgent::Report(Box::new(what))
    }
}

/// Why an agent has no keeper.
#[allow(missing_docs, reason = "the texts of the errors show what each field is")]
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot use the worker's directory {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error("the keeper did not start: {0}")]
    Start(String),
    #[error(
        "the keeper (process {pid}) does not answer; its tasks may be running, so no other is started. If it \
         is stuck, end it with 'kill -9 {pid}'"
    )]
    Stuck { pid: i32 },
    #[error("another keeper starts or ends in the worker's directory; trying again")]
    Taken,
    #[error(
        "this worker runs tasks for a server of another database (it was {was}, this one is {is}); they end when \
         their lease is over. 'windlass worker start --adopt' ends them at once"
    )]
    OtherStore { was: String, is: String },
    #[error("processes of an earlier keeper do not end")]
    Leftovers,
}

/// The agent. Clones share one connection and its threads.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

struct Shared {
    options: AgentOptions,
    offered: Mutex<Offered>,
    writer: Mutex<Writer>,
    stopped: AtomicBool,
    /// Whether a keeper was told to become this agent's program. It is told once.
    upgraded: AtomicBool,
    measured: Measured,
    watch: Watch,
    /// The release of GNU make here, once it is known; `None` inside where there is none.
    make: OnceLock<Option<[u32; 2]>>,
    /// Set before there is a keeper.
    files: OnceLock<FileWork>,
}

/// What tasks may use: that of the options, and GPUs that were found since.
#[derive(Clone)]
struct Offered {
    capacity: Resources,
    gpu_devices: Option<Vec<String>>,
    /// Whether their driver has not answered yet.
    gpus_late: bool,
}

/// The sending side of the connection to the keeper, and the number of that connection.
#[derive(Default)]
struct Writer {
    connection: u64,
    stream: Option<UnixStream>,
}

impl Agent {
    /// Connects to a keeper, or starts one, and starts the agent's threads. `on` is called on these threads,
    /// never by two at a time, with all messages that arrived together. `store` is the id of the store that the jobs
    /// come from. A keeper and output of another store's jobs are not taken over, because the same job number means
    /// another job there.
    pub fn start(
        options: AgentOptions,
        store: i64,
        files: AgentFiles,
        on: impl FnMut(&Agent, Vec<FromAgent>) + Send + 'static,
    ) -> Result<Agent, AgentError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&options.state);
        made.map_err(|source| AgentError::State { path: options.state.clone(), source })?;
        let (stopped, upgraded) = (AtomicBool::new(false), AtomicBool::new(false));
        let measured = Measured::default();
        let (writer, watch) = (Mutex::default(), Watch::default());
        let (capacity, gpu_devices) = (options.capacity.clone(), options.gpu_devices.clone());
        let gpus_late = options.late_gpus.is_some();
        let offered = Mutex::new(Offered { capacity, gpu_devices, gpus_late });
        let make = OnceLock::new();
        let shared = Shared {
            options,
            offered,
            writer,
            stopped,
            upgraded,
            measured,
            watch,
            make,
            files: OnceLock::new(),
        };
        let agent = Agent { shared: Arc::new(shared) };
        agent.leave_other_store(store)?;
        let on = Arc::new(Mutex::new(on));
        let work = agent.work_on_files(files, &on)?;
        let first = agent.connect()?;
        work.start().map_err(|e| AgentError::Start(e.to_string()))?;
        agent.measure(&on)?;
        let this = agent.clone();
        spawn("watch", move || this.watch())?;
        let this = agent.clone();
        spawn("logs", move || this.keep_room())?;
        let this = agent.clone();
        spawn("make", move || this.find_make())?;
        if let Some(late) = agent.shared.options.late_gpus.clone() {
            let this = agent.clone();
            spawn("gpus", move || this.await_gpus(&late))?;
        }
        let this = agent.clone();
        let listen = move || {
            let mut on = |agent: &Agent, messages| on.lock()(agent, messages);
            let mut stream = Some(first);
            while !this.shared.stopped.load(Ordering::Relaxed) {
                match stream.take().map_or_else(|| this.connect(), Ok) {
                    Ok(stream) => {
                        this.listen(stream, &mut on);
                        this.shared.writer.lock().stream = None;
                        if !this.shared.stopped.load(Ordering::Relaxed) {
                            on(&this, vec![FromAgent::report(report::What::Lost(Lost {}))]);
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

    /// Prepares the work on files. Its directories are there before a keeper may hide the worker's directory.
    fn work_on_files<F>(&self, files: AgentFiles, on: &Arc<Mutex<F>>) -> Result<FileWork, AgentError>
    where
        F: FnMut(&Agent, Vec<FromAgent>) + Send + 'static,
    {
        let state = &self.shared.options.state;
        let dirs = FileDirs::new(state, FILES);
        dirs.create().map_err(|source| AgentError::State { path: state.clone(), source })?;
        let agent = Arc::downgrade(&self.shared);
        let (answering, telling, on) = (agent.clone(), agent.clone(), on.clone());
        let work = FileWork::new(FileParts {
            files,
            dirs,
            answer: Box::new(move |message: ToKeeper| {
                if let Some(shared) = answering.upgrade() {
                    Agent { shared }.send_now(&[message]);
                }
            }),
            tell: Box::new(move |what: report::What| {
                if let Some(shared) = telling.upgrade() {
                    on.lock()(&Agent { shared }, vec![FromAgent::report(what)]);
                }
            }),
            tell_keys: Box::new(move |keys: Vec<(String, u64)>| {
                if let Some(shared) = agent.upgrade() {
                    shared.measured.set_inputs(keys);
                }
            }),
        });
        _ = self.shared.files.set(work.clone());
        Ok(work)
    }

    /// Starts the threads that report load and caches, and the one that finds the speed of a core.
    fn measure<F>(&self, on: &Arc<Mutex<F>>) -> Result<(), AgentError>
    where
        F: FnMut(&Agent, Vec<FromAgent>) + Send + 'static,
    {
        let (this, tell) = (self.clone(), on.clone());
        spawn("load", move || {
            let AgentOptions { capacity, state, .. } = &this.shared.options;
            this.shared.measured.tell_load(capacity, state, |load| {
                tell.lock()(&this, vec![FromAgent::report(report::What::Load(load.into()))]);
            });
        })?;
        if self.shared.options.measure_core != MeasureCore::Never {
            let this = self.clone();
            spawn("core", move || {
                let options = &this.shared.options;
                this.shared.measured.find_core_score(&options.state, options.measure_core);
            })?;
        }
        let (this, tell) = (self.clone(), on.clone());
        spawn("caches", move || {
            let dirs = &this.shared.options.caches;
            this.shared.measured.tell_caches(dirs, |keys| {
                tell.lock()(&this, vec![FromAgent::report(report::What::Caches(keys.into()))]);
            });
        })
    }

    /// Sets the interval between two reports of load.
    pub fn set_load_every(&self, every: Duration) {
        self.shared.measured.set_load_every(every);
    }

    /// Sends messages on one connection, all in one write. They are lost if that connection is gone. The next
    /// connection begins with a hello, and the server sends again what is missing from its inventory.
    pub fn send(&self, connection: u64, messages: &[ToKeeper]) {
        let mut writer = self.shared.writer.lock();
        if writer.connection != connection {
            return;
        }
        for message in messages {
            match message {
                ToKeeper::Lease { until } => self.shared.watch.leased(*until),
                ToKeeper::Start(start) if start.network_bound => {
                    self.shared.measured.expect_fetches(start.task);
                }
                ToKeeper::Hello { .. } | ToKeeper::Beat { .. } => self.shared.watch.asked(boot_ns()),
                _ => {}
            }
        }
        let mut bytes = Vec::new();
        for message in messages {
            let refused = self.shared.files.get().and_then(|files| files.refuse(message));
            to_line(refused.as_ref().unwrap_or(message), &mut bytes);
        }
        if let Some(stream) = &mut writer.stream
            && let Err(e) = stream.write_all(&bytes)
        {
            // Half a message may have been written, so nothing may follow it.
            tracing::warn!("the keeper does not take messages: {e}");
            _ = stream.shutdown(Shutdown::Both);
            writer.stream = None;
        }
    }

    /// Looks at the space of the worker's directories, and trims output while it takes too much of the disk, until this
    /// agent stops. A disk that does not answer holds up this thread alone.
    fn keep_room(&self) {
        let mut looked = Instant::now();
        while !self.shared.stopped.load(Ordering::Relaxed) {
            let space = self.shared.measured.look_at_space(&self.shared.options.state);
            thread::sleep(LOOK_EVERY);
            if looked.elapsed() < keep::interval(space) {
                continue;
            }
            // Before the keeper's first answer any output may be that of a task that runs.
            let Some(running) = self.shared.measured.running() else { continue };
            looked = Instant::now();
            let writers = Writers { running, ended: self.shared.measured.ended_last() };
            match keep::make_room(&self.logs(), self.shared.options.logs_bytes_max, &writers) {
                Ok(0) => {}
                Ok(bytes) => {
                    tracing::warn!(
                        "the disk is full: {bytes} bytes of old output were deleted, all but its beginning"
                    );
                }
                Err(e) => tracing::warn!("cannot trim the output of tasks: {e}"),
            }
        }
    }

    /// Declares the GPUs as soon as their driver answers, or is taken for stuck: another hello tells keeper and server. A
    /// hello on a connection that begins just then tells them, too.
    fn await_gpus(&self, late: &LateGpus) {
        while !self.shared.stopped.load(Ordering::Relaxed) {
            let Some(shown) = late.within(LOOK_EVERY) else { continue };
            let mut offered = self.shared.offered.lock().clone();
            offered.gpus_late = false;
            match late.usable(shown) {
                Ok(devices) => {
                    offered.gpu_devices = declare(devices, &mut offered.capacity);
                    tracing::info!("nvidia-smi has answered: the worker has {} gpus", offered.capacity.gpus);
                }
                Err(e) => tracing::error!("the worker has no gpus until it is started again: {e}"),
            }
            *self.shared.offered.lock() = offered;
            self.send_now(&[self.hello()]);
            return;
        }
    }

    /// Tells the keeper the release of make as soon as that is known. Connections that begin later tell it, too.
    fn find_make(&self) {
        if let Some(version) = make_version() {
            _ = self.shared.make.set(version);
            self.send_now(&self.tools());
        }
    }

    /// What the keeper is told of the machine's tools; empty while nothing is known.
    fn tools(&self) -> Vec<ToKeeper> {
        let version = self.shared.make.get().copied();
        version.map(|version| ToKeeper::MakeVersion { version }).into_iter().collect()
    }

    /// Watches over the keeper until this agent stops.
    fn watch(&self) {
        while !self.shared.stopped.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
            match self.shared.watch.look(boot_ns()) {
                Due::Nothing => {}
                Due::Ask => self.ask(),
                Due::Say => {
                    tracing::error!("the keeper does not answer: it was stopped, or is stuck in the kernel");
                }
                Due::End => self.end_keeper(),
            }
        }
    }

    /// Asks the keeper whether it is alive. Never waits, because a stopped keeper does not read.
    fn ask(&self) {
        self.shared.watch.asked(boot_ns());
        let Some(mut writer) = self.shared.writer.try_lock() else { return };
        let mut line = Vec::new();
        to_line(&ToKeeper::Beat { sent: boot_ns() }, &mut line);
        let Some(stream) = &writer.stream else { return };
        // A message that was sent in part cannot be completed, so the connection is given up.
        if send(stream, &line, SendFlags::DONTWAIT).is_ok_and(|sent| sent < line.len()) {
            _ = stream.shutdown(Shutdown::Both);
            writer.stream = None;
        }
    }

    /// Kills a keeper that is silent and whose lease is over, because it cannot end its tasks itself.
    fn end_keeper(&self) {
        let Some(file) = KeeperFile::read(&self.shared.options.state) else { return };
        let Some(fd) = Pid::from_raw(file.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            return;
        };
        // The number may belong to another process by now.
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
        // The kernel ends the tasks with the keeper. If the keeper's end is held up in the kernel, the tasks
        // still end at once by this.
        cgroup::sweep(&file.cgroups);
    }

    /// As [`Agent::send`], on the current connection.
    pub fn send_now(&self, messages: &[ToKeeper]) {
        let connection = self.shared.writer.lock().connection;
        self.send(connection, messages);
    }

    /// Tells a keeper of another program to become this one. It is told once, because a keeper that failed
    /// would fail again.
    fn upgrade(&self, connection: u64, messages: &[FromKeeper]) {
        let differs = messages.iter().any(|message| match message {
            FromKeeper::State { program: Some(theirs), .. } => {
                process::program_of_this_process().is_some_and(|own| own != *theirs)
            }
            _ => false,
        });
        let options = &self.shared.options;
        if options.die_with_agent || !differs || self.shared.upgraded.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::info!("the keeper goes on as {}", options.program.display());
        self.send(connection, &[ToKeeper::Upgrade { program: options.program.clone() }]);
    }

    /// A hello, which the keeper answers with its inventory.
    pub fn hello(&self) -> ToKeeper {
        let options = &self.shared.options;
        let Offered { capacity, gpu_devices, .. } = self.shared.offered.lock().clone();
        ToKeeper::Hello { capacity, sent: boot_ns(), hide: options.hide.clone(), gpu_devices }
    }

    /// The directory of the tasks' output files.
    pub fn logs(&self) -> LogDir {
        LogDir::new(&self.shared.options.state)
    }

    /// Stops listening. With `kill` the keeper ends with all of its tasks, and this waits up to 10 s for
    /// that. Without, the keeper ends only if it has no attempts.
    pub fn stop(&self, kill: bool) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.shared.measured.end();
        self.shared.files.get().iter().for_each(|files| files.stop());
        self.send_now(&[if kill { ToKeeper::Shutdown } else { ToKeeper::ShutdownIfIdle }]);
        if let Some(file) = KeeperFile::read(&self.shared.options.state).filter(|_| kill) {
            _ = wait_for_end(&file, KEEPER_ANSWER);
        }
    }

    /// Ends a keeper that has only finished attempts of another store's jobs, or with `adopt` any, and moves
    /// the output of those jobs aside. The output is kept because the server may have been started with the
    /// wrong store.
    fn leave_other_store(&self, store: i64) -> Result<(), AgentError> {
        let state = &self.shared.options.state;
        let io = |source| AgentError::State { path: state.clone(), source };
        let (path, ours) = (state.join("store-id"), store.to_string());
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
        let connection = self.shared.writer.lock().connection;
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
                    // The first answer came. From now on silence is not an error.
                    _ = stream.set_read_timeout(None);
                    messages.iter().for_each(|message| self.shared.measured.hear(message));
                    self.shared.files.get().iter().for_each(|files| files.hear(&messages));
                    self.upgrade(connection, &messages);
                    let greets = messages.iter().any(|message| matches!(message, FromKeeper::State { .. }));
                    let messages = messages.into_iter();
                    on(self, messages.filter_map(|message| self.pass_up(message, connection)).collect());
                    if greets {
                        self.shared.measured.say_caches();
                    }
                }
                Err(why) => {
                    tracing::error!("the keeper sent an invalid message: {why}");
                    return;
                }
            }
        }
    }

    /// The report of a keeper's message, if it has one.
    fn pass_up(&self, message: FromKeeper, connection: u64) -> Option<FromAgent> {
        let (incarnation, seq, held, notes, sent, fences) = match message {
            FromKeeper::State { incarnation, seq, held, notes, sent, fences, .. } => {
                (incarnation, seq, held, notes, sent, fences)
            }
            other => return report_of(other).map(FromAgent::report),
        };
        let options = &self.shared.options;
        let Offered { capacity, gpus_late, .. } = self.shared.offered.lock().clone();
        let mut attributes = options.attributes.clone();
        if gpus_late {
            attributes.insert(GPUS_LATE.to_owned(), BTreeSet::new());
        }
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: options.name.clone(),
            identity: options.identity,
            incarnation,
            fences,
            sent,
            capacity: Some(capacity.into()),
            attributes: attributes_to_wire(&attributes),
            inventory: Some(inventory(seq, held)),
        };
        Some(FromAgent::Hello { hello: Box::new(hello), connection, notes })
    }

    /// A connection to a living keeper, which is started if there is none.
    fn connect(&self) -> Result<UnixStream, AgentError> {
        let state = &self.shared.options.state;
        let deadline = Instant::now() + KEEPER_ANSWER;
        let stream = loop {
            if let Ok(stream) = dial(state) {
                break stream;
            }
            let file = KeeperFile::read(state);
            if file.as_ref().is_none_or(|file| wait_for_end(file, RETRY)) {
                file.as_ref().map_or(Ok(()), clear_up)?;
                if let Some(stream) = self.start_keeper()? {
                    break stream;
                }
                thread::sleep(RETRY);
            }
            if Instant::now() > deadline {
                return Err(file.map_or(AgentError::Taken, |file| AgentError::Stuck { pid: file.pid }));
            }
        };
        let io = |source| AgentError::State { path: state.clone(), source };
        // A keeper always reads and answers at once, unless it is stopped by a signal or stuck in the kernel
        // on a dead file system.
        stream.set_read_timeout(Some(KEEPER_ANSWER)).map_err(io)?;
        stream.set_write_timeout(Some(KEEPER_ANSWER)).map_err(io)?;
        let connection = {
            let mut writer = self.shared.writer.lock();
            writer.connection += 1;
            writer.stream = Some(stream.try_clone().map_err(io)?);
            writer.connection
        };
        self.send(connection, &[self.hello()]);
        self.send(connection, &self.tools());
        Ok(stream)
    }

    /// Starts a keeper; `None` if the directory has one, which an agent before this one started.
    fn start_keeper(&self) -> Result<Option<UnixStream>, AgentError> {
        let incarnation = fresh_number();
        let mut said = self.launch(incarnation, false)?;
        if said.contains(RETRY_WITHOUT) {
            said = self.launch(incarnation, true)?;
        }
        if said.contains(TAKEN) {
            return Ok(None);
        }
        if !said.starts_with("ready") {
            return Err(AgentError::Start(said.trim_start_matches("error: ").trim().to_owned()));
        }
        dial(&self.shared.options.state).map(Some).map_err(|e| AgentError::Start(e.to_string()))
    }

    /// Runs the keeper's program. Returns its first line of output, which says that it is ready or why it
    /// failed.
    fn launch(&self, incarnation: u64, plain: bool) -> Result<String, AgentError> {
        let options = &self.shared.options;
        let mut command = Command::new(&options.program);
        command.arg("keeper").arg("--state").arg(&options.state);
        command.arg("--incarnation").arg(incarnation.to_string());
        command.arg("--log-bytes-max").arg(options.log_bytes_max.to_string());
        let flags =
            [("--die-with-agent", options.die_with_agent), ("--plain", plain), ("--leased", options.leased)];
        for (flag, on) in flags {
            if on {
                command.arg(flag);
            }
        }
        // The agent may itself run inside a task. The variables that mark that task must not mark the keeper
        // and its tasks.
        command.env_remove(MARKER).env_remove("WINDLASS_TASK").env_remove("WINDLASS_TOKEN");
        // The user database may never answer, and the keeper waits for nothing.
        if std::env::var_os("HOME").is_none_or(|home| home.is_empty())
            && let Some(home) = Late::ask(std::env::home_dir).within(HOME_WAIT).flatten()
        {
            command.env("HOME", home);
        }
        if let Some(limits) = process::files_before() {
            // SAFETY: between fork and exec only this one system call is made.
            unsafe { command.pre_exec(move || process::lower_file_limit(limits)) };
        }
        // `SIGCHLD` of this child may be unhandled in the caller, so the child is collected here.
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.map_err(|e| AgentError::Start(e.to_string()))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            // What cannot be read says nothing, and then the keeper did not start.
            _ = BufReader::new(stdout).read_line(&mut said);
        }
        _ = child.wait();
        Ok(said)
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), AgentError> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map(drop).map_err(|e| AgentError::Start(e.to_string()))
}

/// Renames the directory of output to `logs-of-STORE`, in the place of what was put aside for that store
/// before. Only an operator deletes it; where the disk fills, it is cut as other output of ended tasks.
fn put_aside(state: &Path, store: &str) -> io::Result<()> {
    let aside = state.join(format!("{ASIDE}{store}"));
    match fs::remove_dir_all(&aside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    match fs::rename(LogDir::new(state).root(), &aside) {
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

/// Waits up to `timeout` for the keeper's end; true if it has ended. A pidfd is readable only when the whole
/// process is dead, and pid 1 of a namespace is dead only when all of the namespace's processes are.
fn wait_for_end(file: &KeeperFile, timeout: Duration) -> bool {
    let Some(pid) = Pid::from_raw(file.pid) else { return true };
    let fd = pidfd_open(pid, PidfdFlags::empty());
    // The number may belong to another process by now.
    if process::start_ticks(file.pid) != Some(file.start_ticks) {
        return true;
    }
    let fd = match fd {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return true,
        // Without a pidfd only the process number tells whether the keeper lives.
        Err(_) => {
            thread::sleep(timeout);
            return process::start_ticks(file.pid) != Some(file.start_ticks);
        }
    };
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).is_ok_and(|n| n > 0)
}

/// Ends what a dead keeper left behind: its control groups, and its processes where it had no namespace.
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
