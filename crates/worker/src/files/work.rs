//! What the keeper asked for, and the threads that do it: some wait for the server, the others for the disk. One more
//! removes what is needed no more, and keeps room in the cache.

use super::dirs::{FileDirs, STDIN};
use super::input_keys::InputKeys;
use super::inputs::{InputBlobs, Inputs, ReadyInputs};
use super::news::{PhaseNews, Tell, phase_is_over};
use super::outputs;
use super::server::{FileCall, FileServer};
use super::trouble::{FileFault, FileTrouble};
use crate::protocol::{Body, FromKeeper, HeldPhase, TaskRef, ToKeeper};
use crate::users::RunAs;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use windlass_cas::Digest;
use windlass_cas::tree::{
    CollectedTree, EntryKind, MaterialiseOptions, TreeBounds, TreeEntry, TreeOwner, materialise, tree_of,
};

/// Threads that ask the server, and threads that make directories and read outputs.
const NETWORK_THREADS: usize = 2;
const DISK_THREADS: usize = 2;
/// Threads that make the files of one directory.
const MAKERS_MAX: usize = 8;
/// Attempts that have files here at a time, in any phase. Servers book fewer.
const ATTEMPTS_MAX: usize = 65_536;
/// The pause between two sweeps of the cache.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Why a step with files does not start under a keeper of an earlier release.
const KEEPER_WITHOUT_FILES: &str = "the keeper of this worker is of an earlier release, which does not know files of \
                                    tasks; another one takes over, at the latest when its tasks have ended";

/// Where files of tasks come from.
#[derive(Clone)]
pub struct AgentFiles {
    /// Asks the server what an attempt needs, and tells it what was kept.
    pub server: Arc<dyn FileServer>,
    /// Where the blobs of inputs are.
    pub inputs: InputBlobs,
}

/// What the work needs.
pub struct FileParts {
    /// Where files come from.
    pub files: AgentFiles,
    /// The places of directories.
    pub dirs: FileDirs,
    /// Answers the keeper. What is not sent is asked again.
    pub answer: Box<dyn Fn(ToKeeper) + Send + Sync>,
    /// Reports to the server.
    pub tell: Tell,
    /// Takes all cache keys of inputs whenever they change.
    pub tell_keys: TellKeys,
}

/// Takes cache keys, each with its bytes.
pub type TellKeys = Box<dyn Fn(Vec<(String, u64)>) + Send + Sync>;

/// The agent's work on files. Clones share it.
#[derive(Clone)]
pub struct FileWork(Arc<FileDesk>);

struct FileDesk {
    server: Arc<dyn FileServer>,
    inputs: Inputs,
    dirs: FileDirs,
    answer: Box<dyn Fn(ToKeeper) + Send + Sync>,
    tell: Tell,
    tell_keys: TellKeys,
    state: Mutex<DeskState>,
    changed: Condvar,
}

#[derive(Default)]
struct DeskState {
    attempts: BTreeMap<TaskRef, AttemptFiles>,
    network: WorkQueue<NetworkWork>,
    disk: WorkQueue<DiskWork>,
    /// Attempts whose directories are given up.
    discards: VecDeque<TaskRef>,
    /// The attempts that the keeper has, if the directories of all others are to be given up.
    held: Option<BTreeSet<TaskRef>>,
    /// Whether something waits to be emptied.
    has_gone: bool,
    keys: InputKeys,
    /// Whether the keeper runs tasks in directories of their own.
    keeper_has_files: bool,
    has_threads: bool,
    is_over: bool,
}

struct AttemptFiles {
    call: FileCall,
    phase: FilePhase,
    /// Globs of its outputs, once the server has said them.
    outputs: Option<Vec<String>>,
}

enum FilePhase {
    Preparing,
    Prepared(MadeFiles),
    Collecting,
    /// Why its outputs are not kept, and whether that is the job's fault; `None` if they are.
    Collected(Option<(String, bool)>),
}

/// What a keeper is told of an attempt whose files are ready.
#[derive(Clone)]
struct MadeFiles {
    directory: PathBuf,
    stdin: Option<PathBuf>,
}

/// Work in the order in which it came. Outputs come before inputs, because a result waits for them.
struct WorkQueue<W> {
    outputs: VecDeque<W>,
    inputs: VecDeque<W>,
}

enum NetworkWork {
    Get(FileCall, Option<RunAs>),
    Ask(FileCall),
    Keep(FileCall, Box<CollectedTree>),
}

enum DiskWork {
    Make(FileCall, Option<RunAs>, Box<ReadyInputs>),
    Find(FileCall, Vec<String>),
}

impl<W> Default for WorkQueue<W> {
    fn default() -> Self {
        WorkQueue { outputs: VecDeque::new(), inputs: VecDeque::new() }
    }
}

impl<W> WorkQueue<W> {
    fn pop(&mut self) -> Option<W> {
        self.outputs.pop_front().or_else(|| self.inputs.pop_front())
    }
}

impl FileWork {
    /// Starts without any work.
    pub fn new(parts: FileParts) -> FileWork {
        let FileParts { files: AgentFiles { server, inputs }, dirs, answer, tell, tell_keys } = parts;
        let inputs = Inputs::new(server.clone(), inputs);
        let (state, changed) = (Mutex::default(), Condvar::new());
        FileWork(Arc::new(FileDesk { server, inputs, dirs, answer, tell, tell_keys, state, changed }))
    }

    /// Begins to remove what an earlier agent left. The other threads come with the first attempt that has files.
    pub fn start(&self) -> io::Result<()> {
        self.0.state.lock().has_gone = true;
        let desk = self.0.clone();
        thread::Builder::new().name("files".to_owned()).spawn(move || desk.keep_house()).map(drop)
    }

    /// Takes in what the keeper says, in its order. It does not wait.
    pub fn hear(&self, messages: &[FromKeeper]) {
        for message in messages {
            match message {
                FromKeeper::State { held, files, .. } => {
                    let held = held.iter().filter(|held| held.phase != HeldPhase::Ended);
                    self.0.hello(held.map(|held| held.task).collect(), *files);
                }
                FromKeeper::Prepare { task, epoch, user, .. } => {
                    self.0.prepare(*task, *epoch, user.clone());
                    self.start_threads();
                }
                FromKeeper::Collect { task, epoch, .. } => {
                    self.0.collect(*task, *epoch);
                    self.start_threads();
                }
                FromKeeper::Discard { directory } => {
                    if let Some(task) = self.0.dirs.task_at(directory) {
                        self.0.discard(task);
                    }
                }
                FromKeeper::Finished { task, .. } => self.0.finished(*task),
                _ => {}
            }
        }
    }

    /// The same message, with a body refused for now, if the keeper does not know of its files: it would run the command
    /// elsewhere. It is told to become the agent's program, and a later start succeeds.
    pub fn refuse(&self, message: &ToKeeper) -> Option<ToKeeper> {
        let ToKeeper::Body { job, step, body } = message else { return None };
        if body.files.is_none() || self.0.state.lock().keeper_has_files {
            return None;
        }
        let refused = Some(KEEPER_WITHOUT_FILES.to_owned());
        let body = Body { refused, refused_now: true, ..body.clone() };
        Some(ToKeeper::Body { job: *job, step: *step, body })
    }

    /// Ends all work. Threads end when what they wait for answers.
    pub fn stop(&self) {
        let mut state = self.0.state.lock();
        state.is_over = true;
        state.attempts.values().for_each(|attempt| attempt.call.end());
        self.0.changed.notify_all();
    }

    fn start_threads(&self) {
        let mut state = self.0.state.lock();
        if state.has_threads {
            return;
        }
        state.has_threads = true;
        for number in 0..NETWORK_THREADS + DISK_THREADS {
            let desk = self.0.clone();
            let is_network = number < NETWORK_THREADS;
            let name = if is_network { "files-server" } else { "files-disk" };
            let serve = move || if is_network { desk.serve_network() } else { desk.serve_disk() };
            if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(serve) {
                tracing::error!("files of tasks wait, because no thread can be made: {error}");
                // The next question tries again. More threads than are needed do no harm.
                state.has_threads = false;
                return;
            }
        }
    }
}

impl FileDesk {
    /// The keeper said which attempts it has.
    fn hello(&self, held: BTreeSet<TaskRef>, keeper_has_files: bool) {
        let mut state = self.state.lock();
        state.keeper_has_files = keeper_has_files;
        state.attempts.retain(|task, attempt| {
            let is_held = held.contains(task);
            if !is_held {
                attempt.call.end();
            }
            is_held
        });
        state.held = Some(held);
        self.changed.notify_all();
    }

    fn prepare(&self, task: TaskRef, epoch: u64, user: Option<RunAs>) {
        let mut state = self.state.lock();
        let call = FileCall::new(task, epoch);
        match state.attempts.get(&task).map(|attempt| &attempt.phase) {
            Some(FilePhase::Prepared(prepared)) => {
                let answer = prepared_answer(&call, Ok(prepared.clone()));
                drop(state);
                return (self.answer)(answer);
            }
            Some(_) => return,
            None => {}
        }
        if state.attempts.len() >= ATTEMPTS_MAX {
            drop(state);
            return (self.answer)(prepared_answer(&call, Err(&FileTrouble::Crowded)));
        }
        let attempt = AttemptFiles { call: call.clone(), phase: FilePhase::Preparing, outputs: None };
        state.attempts.insert(task, attempt);
        state.network.inputs.push_back(NetworkWork::Get(call, user));
        self.changed.notify_all();
    }

    fn collect(&self, task: TaskRef, epoch: u64) {
        let mut state = self.state.lock();
        let call = FileCall::new(task, epoch);
        let mut outputs = None;
        if let Some(attempt) = state.attempts.get_mut(&task) {
            match &attempt.phase {
                FilePhase::Collecting => return,
                FilePhase::Collected(lost) => {
                    let answer = collected_answer(&call, lost.clone());
                    drop(state);
                    return (self.answer)(answer);
                }
                FilePhase::Preparing | FilePhase::Prepared(_) => {
                    attempt.call.end();
                    outputs = attempt.outputs.take();
                }
            }
        }
        match outputs.clone() {
            Some(globs) => state.disk.outputs.push_back(DiskWork::Find(call.clone(), globs)),
            // An earlier agent made the directory.
            None => state.network.outputs.push_back(NetworkWork::Ask(call.clone())),
        }
        state.attempts.insert(task, AttemptFiles { call, phase: FilePhase::Collecting, outputs });
        self.changed.notify_all();
    }

    /// The keeper has the end of an attempt. Of most there are no files.
    fn finished(&self, task: TaskRef) {
        let has_files = self.state.lock().attempts.contains_key(&task);
        if has_files {
            self.discard(task);
        }
    }

    fn discard(&self, task: TaskRef) {
        let mut state = self.state.lock();
        if let Some(attempt) = state.attempts.remove(&task) {
            attempt.call.end();
        }
        state.discards.push_back(task);
        self.changed.notify_all();
    }

    /// The next work of a kind; `None` at the end.
    fn next<W>(&self, pop: impl Fn(&mut DeskState) -> Option<W>) -> Option<W> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(work) = pop(&mut state) {
                return Some(work);
            }
            self.changed.wait(&mut state);
        }
    }

    fn serve_network(&self) {
        while let Some(work) = self.next(|state| state.network.pop()) {
            match work {
                NetworkWork::Get(call, user) => self.get(call, user),
                NetworkWork::Ask(call) => match self.server.files_of(&call) {
                    Ok(files) => {
                        let mut state = self.state.lock();
                        state.disk.outputs.push_back(DiskWork::Find(call, files.outputs));
                        self.changed.notify_all();
                    }
                    Err(trouble) => self.collected(&call, Err(trouble)),
                },
                NetworkWork::Keep(call, found) => {
                    let news = PhaseNews::new(&self.tell, &call, "keeping its outputs");
                    let kept = outputs::keep(&*self.server, &call, &found, &|done, all| news.say(done, all));
                    self.collected(&call, kept);
                }
            }
        }
    }

    fn serve_disk(&self) {
        while let Some(work) = self.next(|state| state.disk.pop()) {
            match work {
                DiskWork::Make(call, user, ready) => {
                    let made = self.make(&call, user.as_ref(), &ready);
                    // Its blobs may be evicted from now on.
                    drop(ready);
                    self.prepared(&call, made);
                }
                DiskWork::Find(call, globs) => {
                    let found = call.check().and_then(|()| outputs::find(&self.dirs.of(call.task), &globs));
                    match found {
                        Ok(found) => {
                            let mut state = self.state.lock();
                            state.network.outputs.push_back(NetworkWork::Keep(call, Box::new(found)));
                            self.changed.notify_all();
                        }
                        Err(trouble) => self.collected(&call, Err(trouble)),
                    }
                }
            }
        }
    }

    /// Gets all that an attempt needs onto this machine.
    fn get(&self, call: FileCall, user: Option<RunAs>) {
        let news = PhaseNews::new(&self.tell, &call, "preparing its files");
        let got = self.server.files_of(&call).and_then(|files| {
            let ready = self.inputs.get_ready(&call, &files, &|done, all| news.say(done, all))?;
            Ok((files.outputs, ready))
        });
        let (outputs, ready) = match got {
            Ok(got) => got,
            Err(trouble) => return self.prepared(&call, Err(trouble)),
        };
        let mut state = self.state.lock();
        if state.keys.add(&ready.keys) {
            (self.tell_keys)(state.keys.texts());
        }
        if let Some(attempt) = state.attempts.get_mut(&call.task).filter(|attempt| attempt.call.is(&call)) {
            attempt.outputs = Some(outputs);
            state.disk.inputs.push_back(DiskWork::Make(call, user, Box::new(ready)));
            self.changed.notify_all();
        }
    }

    /// Makes the directory of an attempt. Files are links to the cache only where the task cannot change them there.
    fn make(
        &self,
        call: &FileCall,
        user: Option<&RunAs>,
        ready: &ReadyInputs,
    ) -> Result<MadeFiles, FileTrouble> {
        call.check()?;
        let own = rustix::process::geteuid().as_raw();
        let other = user.filter(|user| user.uid != own);
        let owner = other.map(|user| TreeOwner { uid: user.uid, gid: user.gid });
        let options = MaterialiseOptions { may_hardlink: owner.is_some(), owner, threads_max: MAKERS_MAX };
        let directory = self.dirs.make(call, |into| {
            materialise(&ready.tree.tree, &self.inputs, into, &options)?;
            Ok(())
        })?;
        // The keeper opens it, and the task gets it open.
        let options = MaterialiseOptions { owner: None, ..options };
        let stdin = ready.stdin.map(|digest| self.make_stdin(call, digest, &options)).transpose()?;
        Ok(MadeFiles { directory, stdin })
    }

    fn make_stdin(
        &self,
        call: &FileCall,
        digest: Digest,
        options: &MaterialiseOptions,
    ) -> Result<PathBuf, FileTrouble> {
        let kind = EntryKind::File { digest, is_executable: false };
        let tree = tree_of(vec![TreeEntry { path: STDIN.to_owned(), kind }], TreeBounds::default())?;
        self.dirs.make_stdin(call, |into| {
            materialise(&tree, &self.inputs, into, options)?;
            Ok(())
        })?;
        Ok(self.dirs.stdin_of(call.task))
    }

    /// An attempt's files are ready, or cannot be. Nobody is told of one that is over.
    fn prepared(&self, call: &FileCall, made: Result<MadeFiles, FileTrouble>) {
        let mut state = self.state.lock();
        let Some(attempt) = state.attempts.get_mut(&call.task).filter(|attempt| attempt.call.is(call)) else {
            return;
        };
        let answer = prepared_answer(call, made.as_ref().cloned());
        match made {
            Ok(made) => attempt.phase = FilePhase::Prepared(made),
            Err(trouble) => {
                // Other reasons pass, or are the submitter's to read.
                if trouble.fault() == FileFault::Worker {
                    tracing::warn!("the files of {} are not ready: {}", named(call.task), trouble.told());
                }
                // The keeper may ask again.
                state.attempts.remove(&call.task);
                state.discards.push_back(call.task);
                self.changed.notify_all();
            }
        }
        drop(state);
        phase_is_over(&self.tell, call);
        (self.answer)(answer);
    }

    /// An attempt's outputs are kept, or lost.
    fn collected(&self, call: &FileCall, kept: Result<(), FileTrouble>) {
        let lost = kept.err().map(|trouble| (trouble.told(), trouble.fault() == FileFault::Job));
        let mut state = self.state.lock();
        let Some(attempt) = state.attempts.get_mut(&call.task).filter(|attempt| attempt.call.is(call)) else {
            return;
        };
        attempt.phase = FilePhase::Collected(lost.clone());
        drop(state);
        if let Some((why, false)) = &lost {
            tracing::warn!("the outputs of {} are not kept: {why}", named(call.task));
        }
        phase_is_over(&self.tell, call);
        (self.answer)(collected_answer(call, lost));
    }

    /// Removes what is needed no more, and sweeps the cache, until the end.
    fn keep_house(&self) {
        let mut sweep_at = Instant::now() + SWEEP_EVERY;
        loop {
            let mut state = self.state.lock();
            while !state.is_over && !state.has_errands() && !state.has_gone && Instant::now() < sweep_at {
                self.changed.wait_until(&mut state, sweep_at);
            }
            if state.is_over {
                return;
            }
            let (discards, held) = (std::mem::take(&mut state.discards), state.held.take());
            let has_gone = std::mem::take(&mut state.has_gone) || !discards.is_empty() || held.is_some();
            drop(state);
            let mut outcome = Ok(());
            // The keeper may have asked for an attempt again since.
            let is_known = |task: TaskRef| self.state.lock().attempts.contains_key(&task);
            for task in discards {
                outcome = outcome.and(self.dirs.discard(task, &is_known));
            }
            if let Some(held) = held {
                let is_held = |task: TaskRef| held.contains(&task) || is_known(task);
                outcome = outcome.and(self.dirs.discard_others(&is_held));
            }
            if has_gone {
                outcome = outcome.and(self.dirs.remove_gone(&|| self.has_other_work()).map(drop));
            }
            if Instant::now() >= sweep_at {
                outcome = outcome.and(self.sweep());
                sweep_at = Instant::now() + SWEEP_EVERY;
            }
            if let Err(trouble) = outcome {
                tracing::warn!("{}", trouble.told());
            }
        }
    }

    /// Whether more is given up, which comes before what is emptied.
    fn has_other_work(&self) -> bool {
        let state = self.state.lock();
        state.is_over || state.has_errands()
    }

    fn sweep(&self) -> Result<(), FileTrouble> {
        if self.inputs.sweep()? {
            let mut keys = std::mem::take(&mut self.state.lock().keys);
            keys.drop_evicted(&self.inputs);
            let mut state = self.state.lock();
            state.keys.put_behind(keys);
            (self.tell_keys)(state.keys.texts());
        }
        Ok(())
    }
}

impl DeskState {
    fn has_errands(&self) -> bool {
        !self.discards.is_empty() || self.held.is_some()
    }
}

/// An attempt for the log.
fn named(task: TaskRef) -> String {
    format!("task {} of job {}, attempt {}", task.index, task.job, task.attempt)
}

fn prepared_answer(call: &FileCall, made: Result<MadeFiles, &FileTrouble>) -> ToKeeper {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let FileCall { task, epoch, .. } = *call;
    match made {
        Ok(MadeFiles { directory, stdin }) => ToKeeper::Prepared {
            task,
            epoch,
            directory: Some(text(directory)),
            stdin: stdin.map(text),
            why: None,
            job_at_fault: false,
            passing: false,
        },
        Err(trouble) => ToKeeper::Prepared {
            task,
            epoch,
            directory: None,
            stdin: None,
            why: Some(trouble.told()),
            job_at_fault: trouble.fault() == FileFault::Job,
            passing: trouble.fault() == FileFault::Passing,
        },
    }
}

fn collected_answer(call: &FileCall, lost: Option<(String, bool)>) -> ToKeeper {
    let FileCall { task, epoch, .. } = *call;
    let job_at_fault = lost.as_ref().is_some_and(|(_, job_at_fault)| *job_at_fault);
    ToKeeper::Collected { task, epoch, why: lost.map(|(why, _)| why), job_at_fault }
}
