//! Sessions of Open Job Description, which the tasks of one step share on this worker. A session has a directory and
//! environments. They are entered once before the first task, and left after the last one.
//!
//! The first task that needs an environment enters it, in that task's room, under its limits and into its
//! output; other tasks of the step wait for it. A session is over when its step has had no task here for
//! [`LINGER`], or when one of its tasks fails or is killed, because that task may have left anything behind:
//! the next task then begins another session. Leaving takes no room, and writes to output files of its own
//! beside those of the job's tasks. A session never spans two steps or two workers.

use super::env::{EMPTY_POLL, KeeperEnv, Refused, SESSIONS, Started, refuse_spawn};
use super::log::write_line;
use super::progress::{Fetch, Said, Tail};
use crate::clock::unix_ns;
use crate::kept;
use crate::logs::Stream;
use crate::process::{self, Command, Exit, NewFile};
use crate::protocol::{Body, TaskRef};
use crate::spawn::{Launch, LaunchState};
use crate::users::RunAs;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use windlass_api::{
    Action, Cancel, EmbeddedFile, PathFormat, PathRule, Session as Spec, TaskValue, fill_references,
    references,
};

/// How long a session without tasks waits for another one of its step.
const LINGER: Duration = Duration::from_secs(3);
/// Time limit of an action that leaves an environment, where the action sets none.
const LEAVE_MAX: Duration = Duration::from_secs(300);

/// Bytes that all files and arguments of a task may have once their references are filled in.
const FILLED_BYTES_MAX: usize = 64 << 20;
/// Bytes that a path is assumed to have where it replaces a reference.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of the variables that the actions of one environment may set.
const VARIABLES_BYTES_MAX: usize = 1 << 20;
/// Prefix of directories that are being removed.
const GONE: &str = "sessions-gone-";

/// A step: job and the step's index in the job.
pub type Key = (u64, u16);

/// All sessions of this worker, by number.
#[derive(Default, Serialize, Deserialize)]
pub struct Sessions {
    root: PathBuf,
    sessions: BTreeMap<u64, Session>,
    /// The session that takes new tasks, for each step that has one.
    #[serde(with = "kept::pairs")]
    current: BTreeMap<Key, u64>,
    next: u64,
}

#[derive(Serialize, Deserialize)]
struct Session {
    key: Key,
    dir: PathBuf,
    body: Rc<Body>,
    /// For each environment that was begun, the variables that it sets; `None` is a variable that it unsets.
    layers: Vec<BTreeMap<String, Option<String>>>,
    /// Whether a task is entering environments now.
    entering: bool,
    tasks: usize,
    #[serde(with = "kept::moment")]
    idle_since: Instant,
    leaving: Option<Leaving>,
}

/// A running action that leaves an environment.
#[derive(Serialize, Deserialize)]
struct Leaving {
    task: TaskRef,
    started: Started,
    #[serde(with = "kept::moment")]
    kill_at: Instant,
    exit: Option<Exit>,
}

/// A task's progress in its session. It enters the environments that are not yet entered, then runs its command.
#[derive(Serialize, Deserialize)]
pub struct TaskSession {
    session: u64,
    task: TaskRef,
    dir: PathBuf,
    run_as: Option<RunAs>,
    values: Vec<TaskValue>,
    value: Option<String>,
    /// Index of the environment that the task enters now; `None` once its command runs.
    entering: Option<usize>,
    cancel: Option<Cancel>,
    tail: Option<Tail>,
    /// Percent done, as the task last said.
    pub progress: Option<f64>,
    /// Status text, as the task last said.
    pub status: Option<String>,
    fail: Option<String>,
    /// Cache keys that the task said it fetched and that are not yet reported.
    #[serde(default)]
    pub fetched: Vec<Fetch>,
    /// Number of environments that were begun before this task.
    #[serde(default)]
    begun: usize,
}

/// How a process is asked to end before it is killed.
pub enum Notice {
    /// It is killed without notice.
    None,
    /// A file says when it will be killed. The file is written before the signal.
    File(Duration, NewFile),
}

/// An action that is about to start, with its time limit.
struct Next {
    command: Command,
    limit: Option<Duration>,
}

impl Sessions {
    /// No sessions. The directories of earlier keepers' sessions are removed.
    pub fn new(state: &Path) -> Self {
        let root = state.join(SESSIONS);
        remove(&root, &root);
        Sessions { root, sessions: BTreeMap::new(), current: BTreeMap::new(), next: 1 }
    }

    /// Starts what a task does first in the session of its step. `None` while another task enters the
    /// session's environments.
    #[expect(clippy::too_many_arguments, reason = "what a start holds")]
    pub fn start(
        &mut self,
        keeper_env: &mut KeeperEnv,
        task: TaskRef,
        step: u16,
        body: &Rc<Body>,
        value: Option<&str>,
        values: &[TaskValue],
        limit: Option<Duration>,
        memory: Option<u64>,
    ) -> Result<Option<(Started, TaskSession, Option<Duration>)>, Refused> {
        body.check()?;
        let number = self.session_for((task.job, step), body)?;
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(None) };
        if session.entering {
            return Ok(None);
        }
        let mut task_session = TaskSession {
            session: number,
            task,
            dir: session.dir.clone(),
            run_as: body.run_as.clone(),
            values: values.to_vec(),
            value: value.map(str::to_owned),
            entering: None,
            cancel: None,
            tail: None,
            progress: None,
            status: None,
            fail: None,
            fetched: Vec::new(),
            begun: session.layers.len(),
        };
        let next = session.next(keeper_env, &mut task_session, limit);
        let started = next.and_then(|next| Ok((keeper_env.begin(task, &next.command, memory)?, next.limit)));
        match started {
            Ok((started, limit)) => {
                session.tasks += 1;
                session.entering = task_session.entering.is_some();
                task_session.tail = Tail::open(&keeper_env.logs, task, &Stream::BOTH).ok();
                Ok(Some((started, task_session, limit)))
            }
            Err(Refused::NotNow(e)) => {
                session.layers.truncate(task_session.begun);
                session.idle_since = Instant::now();
                Err(Refused::NotNow(e))
            }
            Err(failed) => {
                self.current.remove(&session.key);
                Err(failed)
            }
        }
    }

    fn session_for(&mut self, key: Key, body: &Rc<Body>) -> Result<u64, Refused> {
        if let Some(number) = self.current.get(&key) {
            return Ok(*number);
        }
        let number = self.next;
        let dir = self.root.join(format!("{}.{}-{number}", key.0, key.1));
        let whom = body.run_as.as_ref();
        let made = DirBuilder::new().recursive(true).mode(0o711).create(&self.root);
        let made = made.and_then(|()| DirBuilder::new().mode(0o700).create(&dir));
        let made = made.and_then(|()| {
            whom.map_or(Ok(()), |who| std::os::unix::fs::chown(&dir, Some(who.uid), Some(who.gid)))
        });
        made.map_err(|e| {
            remove(&self.root, &dir);
            super::env::refuse("make the session's directory", e)
        })?;
        let session = Session {
            key,
            dir,
            body: body.clone(),
            layers: Vec::new(),
            entering: false,
            tasks: 0,
            idle_since: Instant::now(),
            leaving: None,
        };
        self.next += 1;
        self.sessions.insert(number, session);
        self.current.insert(key, number);
        Ok(number)
    }

    /// Starts the next action of a task whose last action succeeded, in its place. Returns the action's time
    /// limit; `None` if the task has no further action.
    pub fn go_on(
        &mut self,
        keeper_env: &mut KeeperEnv,
        task_session: &mut TaskSession,
        started: &mut Started,
        limit: Option<Duration>,
        memory: Option<u64>,
    ) -> Result<Option<Option<Duration>>, Refused> {
        if task_session.entering.is_none() {
            return Ok(None);
        }
        let Some(session) = self.sessions.get_mut(&task_session.session) else { return Ok(None) };
        let next = session.next(keeper_env, task_session, limit);
        let next = next.and_then(|next| {
            keeper_env.go_on(task_session.task, &next.command, started, memory)?;
            Ok(next.limit)
        });
        session.entering = task_session.entering.is_some();
        match next {
            Ok(limit) => Ok(Some(limit)),
            Err(Refused::NotNow(e)) => Err(Refused::Worker(format!("cannot go on: {e}"))),
            Err(refused) => Err(refused),
        }
    }

    /// Takes a task back that did not start and will be tried again, as if it had not come to the session.
    pub fn undo(&mut self, task_session: &TaskSession) {
        let Some(session) = self.sessions.get_mut(&task_session.session) else { return };
        session.layers.truncate(task_session.begun);
        session.tasks -= 1;
        session.entering &= task_session.entering.is_none();
        session.idle_since = Instant::now();
    }

    /// Takes in what a task said. True if its progress or status has changed.
    pub fn listen(&mut self, task_session: &mut TaskSession, ended: bool) -> bool {
        let said = task_session.tail.as_mut().map(|tail| tail.look(ended)).unwrap_or_default();
        let changed = said.iter().any(|said| matches!(said, Said::Progress(_) | Said::Status(_)));
        for said in said {
            let layer = task_session
                .entering
                .and_then(|_| self.sessions.get_mut(&task_session.session)?.layers.last_mut());
            match (said, layer) {
                (Said::Progress(percent), _) => task_session.progress = Some(percent),
                (Said::Status(text), _) => task_session.status = Some(text),
                (Said::Fail(text), _) => task_session.fail = Some(text),
                (Said::Fetched(fetch), _) => task_session.fetched.push(fetch),
                (Said::Set(name, value), Some(layer)) => {
                    // If an environment both sets and unsets a variable, the variable is unset.
                    if !matches!(layer.get(&name), Some(None)) && has_room(layer, &name, &value) {
                        layer.insert(name, Some(value));
                    }
                }
                (Said::Unset(name), Some(layer)) if has_room(layer, &name, "") => {
                    layer.insert(name, None);
                }
                (Said::Unset(_), Some(_)) => {}
                (Said::Set(..) | Said::Unset(_), None) => {}
            }
        }
        changed
    }

    /// Takes a task that has ended out of its session. Returns why it failed, where more is known than its exit code.
    pub fn leave(
        &mut self,
        keeper_env: &mut KeeperEnv,
        task_session: TaskSession,
        failed: bool,
    ) -> Option<String> {
        let session = self.sessions.get_mut(&task_session.session)?;
        session.tasks -= 1;
        session.idle_since = Instant::now();
        session.entering &= task_session.entering.is_none();
        if session.spec().is_some_and(|spec| !spec.files.is_empty()) {
            let files = task_session.files_dir();
            keeper_env.help(process::aside(task_session.run_as.as_ref(), || _ = fs::remove_dir_all(files)));
        }
        if !failed {
            return None;
        }
        if self.current.get(&session.key) == Some(&task_session.session) {
            self.current.remove(&session.key);
        }
        let entering = task_session.entering.and_then(|n| Some(&session.spec()?.environments.get(n)?.name));
        let entering = entering.map(|name| format!("entering the environment '{name}' failed"));
        let parts: Vec<String> = entering.into_iter().chain(task_session.fail).collect();
        (!parts.is_empty()).then(|| parts.join(": "))
    }

    /// Ends the session of a step. The next task of the step begins another.
    pub fn end_step(&mut self, key: Key) {
        self.current.remove(&key);
    }

    /// Ends all sessions, for the keeper's own end.
    pub fn end_all(&mut self) {
        self.current.clear();
        self.sessions.values_mut().for_each(|session| session.tasks = 0);
    }

    /// Fences all sessions: no environment is left by an action any more, because other workers may enter the
    /// same environments by now.
    pub fn fence(&mut self) {
        self.current.clear();
        for session in self.sessions.values_mut() {
            session.layers.clear();
            if let Some(leaving) = &mut session.leaving {
                leaving.kill_at = Instant::now();
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Notes the end of a process that belongs to no task.
    pub fn exited(&mut self, exit: Exit) {
        let leaving = self.sessions.values_mut().filter_map(|session| session.leaving.as_mut());
        for leaving in leaving.filter(|leaving| leaving.started.pid == exit.pid) {
            leaving.exit = Some(exit);
        }
    }

    /// Leaves the environments of sessions that are over.
    pub fn settle(&mut self, now: Instant, keeper_env: &mut KeeperEnv) {
        let (root, current) = (&self.root, &mut self.current);
        self.sessions.retain(|number, session| {
            let is_current = current.get(&session.key) == Some(number);
            if session.tasks > 0 || (is_current && now < session.idle_since + LINGER) {
                return true;
            }
            if is_current {
                current.remove(&session.key);
            }
            session.go_out(root, *number, now, keeper_env)
        });
    }

    /// When [`Sessions::settle`] is due although no process ends; `None` if there is nothing to wait for.
    pub fn next_deadline(&self) -> Option<Instant> {
        let each = self.sessions.iter().filter(|(_, session)| session.tasks == 0);
        let each = each.map(|(number, session)| match &session.leaving {
            Some(Leaving { exit: Some(_), .. }) => Instant::now() + EMPTY_POLL,
            Some(leaving) => {
                let due = leaving.started.launch.as_ref().map(Launch::due);
                due.into_iter().chain([leaving.kill_at]).min().unwrap_or(leaving.kill_at)
            }
            None if self.current.get(&session.key) == Some(number) => session.idle_since + LINGER,
            None => Instant::now(),
        });
        each.min()
    }

    /// Kills the running actions that leave environments.
    pub fn kill_all(&mut self, keeper_env: &KeeperEnv) {
        for leaving in self.sessions.values().filter_map(|session| session.leaving.as_ref()) {
            keeper_env.end_tree(leaving.task, &leaving.started, leaving.exit.is_some());
        }
    }
}

impl Session {
    fn spec(&self) -> Option<&Spec> {
        self.body.session.as_ref()
    }

    /// The next action of a task: entering the first environment that is not yet entered, or the task's command.
    fn next(
        &mut self,
        keeper_env: &KeeperEnv,
        task_session: &mut TaskSession,
        limit: Option<Duration>,
    ) -> Result<Next, Refused> {
        let body = self.body.clone();
        let Some(spec) = &body.session else { return Err(Refused::Worker("there is no session".to_owned())) };
        check_size(&body, spec, &task_session.values)?;
        let rules = rules_json(&spec.path_mapping);
        let mut files =
            vec![NewFile { path: self.dir.join(RULES_FILE), text: rules, runnable: false, once: true }];
        while let Some(environment) = spec.environments.get(self.layers.len()) {
            let n = self.layers.len();
            task_session.entering = Some(n);
            self.layers.push(BTreeMap::new());
            let fill = |text: &str| fill(text, &self.dir, spec, Some(n), None);
            let variables =
                environment.variables.iter().map(|(name, value)| (name.clone(), Some(fill(value))));
            let variables = variables.collect();
            files.extend(new_files(&environment.files, &self.dir.join(format!("env-{n}")), fill));
            self.layers[n] = variables;
            if let Some(action) = &environment.on_enter {
                task_session.cancel = Some(action.cancel.unwrap_or(Cancel::Terminate));
                let own = keeper_env.task_variables(task_session.task, task_session.value.as_deref());
                let command = self.action(keeper_env, action, n, task_session.task, &own)?.writing(files);
                return Ok(Next { command, limit: action.timeout_ms.map(Duration::from_millis) });
            }
        }
        task_session.entering = None;
        task_session.cancel = spec.cancel;
        let fill = |text: &str| fill(text, &self.dir, spec, None, Some(task_session));
        files.extend(new_files(&spec.files, &task_session.files_dir(), fill));
        let argv: Vec<String> = body.command.iter().map(|text| fill(text)).collect();
        let env = self.variables(self.layers.len());
        let own = keeper_env.task_variables(task_session.task, task_session.value.as_deref());
        let command = keeper_env.command_of(
            task_session.task,
            &argv,
            &env,
            &own,
            (&fill(&body.cwd), body.umask, body.run_as.as_ref()),
        )?;
        Ok(Next { command: command.writing(files), limit })
    }

    fn action(
        &self,
        keeper_env: &KeeperEnv,
        action: &Action,
        n: usize,
        task: TaskRef,
        own: &[(&'static str, String)],
    ) -> Result<Command, Refused> {
        let Some(spec) = self.spec() else { return Err(Refused::Worker("there is no session".to_owned())) };
        let argv = action.command.iter().map(|text| fill(text, &self.dir, spec, Some(n), None));
        let dir = self.dir.to_string_lossy();
        let how = (&*dir, self.body.umask, self.body.run_as.as_ref());
        keeper_env.command_of(task, &argv.collect::<Vec<_>>(), &self.variables(n + 1), own, how)
    }

    /// The step's variables, as the first environments change them.
    fn variables(&self, environments: usize) -> BTreeMap<String, String> {
        let mut all = self.body.env.clone();
        for (name, value) in self.layers.iter().take(environments).flatten() {
            match value {
                Some(value) => _ = all.insert(name.clone(), value.clone()),
                None => _ = all.remove(name),
            }
        }
        all
    }

    /// Leaves the environments that were begun, the last one first. False once all are left.
    fn go_out(&mut self, root: &Path, number: u64, now: Instant, keeper_env: &mut KeeperEnv) -> bool {
        if let Some(leaving) = &mut self.leaving {
            match leaving.started.launch.as_mut().map_or(LaunchState::Done, |launch| launch.look(now)) {
                LaunchState::Under => {}
                LaunchState::Done => leaving.started.launch = None,
                LaunchState::Failed(e) => {
                    if let Some(launch) = leaving.started.launch.take() {
                        say_refused(self.key, &refuse_spawn(e, &launch.texts));
                    }
                }
                LaunchState::Late => {
                    if let Some(Leaving { task, started, .. }) = self.leaving.take() {
                        say_refused(self.key, &Refused::Worker("it takes too long to start".to_owned()));
                        keeper_env.abandon(task, started);
                    }
                    return self.go_out(root, number, now, keeper_env);
                }
            }
            if leaving.exit.is_none() && now < leaving.kill_at {
                return true;
            }
            let gone = keeper_env.end_tree(leaving.task, &leaving.started, leaving.exit.is_some());
            if !gone || leaving.exit.is_none() {
                leaving.kill_at = now + Duration::from_secs(1);
                return true;
            }
            if let Some(Leaving { task, started, .. }) = self.leaving.take() {
                keeper_env.finish(task, started);
            }
        }
        while let Some(n) = self.layers.len().checked_sub(1) {
            // The action runs with the variables of its own environment, which are dropped with it.
            let body = self.body.clone();
            let action = body.session.as_ref().and_then(|spec| spec.environments.get(n)?.on_exit.as_ref());
            // Output files of such an action are numbered down from the largest index, so that they differ
            // from every task's.
            let task = TaskRef { job: self.key.0, index: u32::MAX - n as u32, attempt: number as u32 };
            let started = action.map(|action| {
                let command = self.action(keeper_env, action, n, task, &[])?;
                keeper_env.begin(task, &command, None)
            });
            self.layers.pop();
            match started {
                None => {}
                Some(Ok(started)) => {
                    let limit = action.and_then(|action| action.timeout_ms).map(Duration::from_millis);
                    self.leaving = Some(Leaving {
                        task,
                        started,
                        kill_at: now + limit.unwrap_or(LEAVE_MAX),
                        exit: None,
                    });
                    return true;
                }
                Some(Err(refused)) => say_refused(self.key, &refused),
            }
        }
        remove(root, &self.dir);
        false
    }
}

impl TaskSession {
    /// Whether the task still enters environments.
    pub fn is_entering(&self) -> bool {
        self.entering.is_some()
    }

    /// How a process is asked to end, by its action. `None` means the way of tasks without a session.
    pub fn notice(&self) -> Option<Notice> {
        match self.cancel? {
            Cancel::Terminate => Some(Notice::None),
            Cancel::NotifyThenTerminate(ms) => {
                let period = Duration::from_millis(ms);
                let end = unix_ns() / 1_000_000_000 + period.as_secs();
                let text = format!("{{\"NotifyEnd\": \"{}\"}}\n", utc(end));
                let path = self.dir.join("cancel_info.json");
                Some(Notice::File(period, NewFile { path, text, runnable: false, once: false }))
            }
        }
    }

    /// The user whose rights its processes have; `None` for the keeper's own user.
    pub fn run_as(&self) -> Option<&RunAs> {
        self.run_as.as_ref()
    }

    fn files_dir(&self) -> PathBuf {
        self.dir.join(format!("task-{}.{}", self.task.index, self.task.attempt))
    }
}

const RULES_FILE: &str = "path_mapping_rules.json";

/// Fills in the references that only a worker knows: to the session, to an environment, to a task.
fn fill(
    text: &str,
    dir: &Path,
    spec: &Spec,
    environment: Option<usize>,
    task: Option<&TaskSession>,
) -> String {
    let path = |path: PathBuf| Some(Cow::Owned(path.to_string_lossy().into_owned()));
    let file = |files: &[EmbeddedFile], dir: PathBuf, name: &str| {
        files.iter().find(|file| file.name == name).and_then(|file| path(dir.join(file.on_disk())))
    };
    fill_references(text, |name| match name {
        "Session.WorkingDirectory" => path(dir.to_owned()),
        "Session.HasPathMappingRules" => Some((!spec.path_mapping.is_empty()).to_string().into()),
        "Session.PathMappingRulesFile" => path(dir.join(RULES_FILE)),
        _ => {
            if let (Some(name), Some(n)) = (name.strip_prefix("Env.File."), environment) {
                return file(&spec.environments.get(n)?.files, dir.join(format!("env-{n}")), name);
            }
            let (what, name) = name.strip_prefix("Task.")?.split_once('.')?;
            let task = task?;
            let value = || task.values.iter().find(|value| value.name == name);
            match what {
                "File" => file(&spec.files, task.files_dir(), name),
                "Param" => value().map(|value| Cow::Owned(value.value.clone())),
                "RawParam" => value().map(|v| Cow::Owned(v.raw.as_ref().unwrap_or(&v.value).clone())),
                _ => None,
            }
        }
    })
}

/// Refuses a task whose texts could fill the keeper's memory once values replace their references.
fn check_size(body: &Body, spec: &Spec, values: &[TaskValue]) -> Result<(), Refused> {
    let longest = values.iter().map(|value| value.value.len().max(value.raw.as_ref().map_or(0, String::len)));
    let longest = longest.max().unwrap_or(0).max(PATH_BYTES_MAX);
    let files = spec.environments.iter().flat_map(|environment| &environment.files).chain(&spec.files);
    let texts = files.map(|file| &file.data).chain(&body.command);
    let most = texts.map(|text| text.len().saturating_add(references(text).count().saturating_mul(longest)));
    if most.fold(0, usize::saturating_add) > FILLED_BYTES_MAX {
        let why = "its files and arguments may be too large once their references are filled in";
        return Err(Refused::Job(why.to_owned()));
    }
    Ok(())
}

/// Whether an environment may set one more variable.
fn has_room(layer: &BTreeMap<String, Option<String>>, name: &str, value: &str) -> bool {
    let held = layer.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, String::len));
    held.sum::<usize>() + name.len() + value.len() <= VARIABLES_BYTES_MAX
}

/// Removes a session's directory in another process, because a task may have made any number of files there,
/// at any depth. What is left when the keeper ends is removed by the next keeper.
fn remove(root: &Path, dir: &Path) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let Some(parent) = root.parent() else { return };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let gone = parent.join(format!("{GONE}{}-{number}", unix_ns()));
    let moved = fs::rename(dir, &gone).is_ok();
    let mut rm = std::process::Command::new("rm");
    rm.args(["-rf", "--"]);
    if dir == root {
        // The first thing that a keeper does: it removes what earlier keepers left.
        let left = fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path());
        rm.args(left.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(GONE))));
    } else if moved {
        rm.arg(gone);
    } else {
        return;
    }
    // Its end is collected like that of any orphan.
    if let Err(e) = rm.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        write_line(format_args!("cannot remove {}: {e}", dir.display()));
    }
}

fn new_files<'a>(
    files: &'a [EmbeddedFile],
    dir: &'a Path,
    fill: impl Fn(&str) -> String + 'a,
) -> impl Iterator<Item = NewFile> + 'a {
    files.iter().map(move |file| NewFile {
        path: dir.join(file.on_disk()),
        text: fill(&file.data),
        runnable: file.runnable,
        once: false,
    })
}

fn say_refused((job, _): Key, refused: &Refused) {
    match refused {
        Refused::Job(why) | Refused::Worker(why) => {
            write_line(format_args!("job {job}: cannot leave an environment: {why}"))
        }
        Refused::NotNow(e) => write_line(format_args!("job {job}: cannot leave an environment: {e}")),
    }
}

/// Path mapping rules in the JSON form of the Open Job Description specification.
fn rules_json(rules: &[PathRule]) -> String {
    let rules = rules.iter().map(|rule| {
        serde_json::json!({
            "source_path_format": match rule.source_format {
                PathFormat::Posix => "POSIX",
                PathFormat::Windows => "WINDOWS",
            },
            "source_path": rule.source,
            "destination_path": rule.destination,
        })
    });
    let rules: Vec<serde_json::Value> = rules.collect();
    serde_json::json!({ "version": "pathmapping-1.0", "path_mapping_rules": rules }).to_string()
}

/// Seconds since the Unix epoch as an ISO 8601 date and time.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March in eras of 400 years, so that a leap day is the last day of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + later;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

impl KeeperEnv {
    /// Finishes an action that belongs to no task: removes empty output files and returns its group.
    fn finish(&mut self, task: TaskRef, started: Started) {
        for (file, stream) in started.output.iter().zip(Stream::BOTH) {
            if file.metadata().is_ok_and(|m| m.len() == 0) {
                self.logs.remove(task, stream);
            }
        }
        self.give_back(started.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn rules_are_written_as_the_specification_says() {
        let rule =
            PathRule { source_format: PathFormat::Windows, source: "Z:".into(), destination: "/z".into() };
        assert_eq!(
            rules_json(&[rule]),
            r#"{"path_mapping_rules":[{"destination_path":"/z","source_path":"Z:","source_path_format":"WINDOWS"}],"version":"pathmapping-1.0"}"#
        );
    }
}
