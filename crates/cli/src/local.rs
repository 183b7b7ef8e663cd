//! The worker of this machine, in the server's process: carries messages between the engine and the
//! agent. The keeper is a process of its own.

use crate::output::talk;
use crate::serve::Life;
use anyhow::Context as _;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use windlass_api::StepBody;
use windlass_core::engine::{Held, HeldPhase, Hello, Inventory, Order};
use windlass_core::tags::Attributes;
use windlass_core::{Epoch, Resources, Time};
use windlass_server::{Config, Deliver, Delivery, Handle, LogChunk, LogRequest, Progress, WorkerMessage};
use windlass_worker::{Agent, AgentOptions, FromAgent, LogDir, Stream, TaskRef, ToKeeper, read_log};

/// Steps whose body the keeper has at a time.
const BODIES_MAX: usize = 64;

/// Steps whose body the keeper has, oldest first.
type Bodies = VecDeque<(u64, u16)>;

/// The worker of this machine.
pub struct LocalWorker {
    agent: Agent,
}

/// What both directions share.
struct Link {
    name: String,
    handle: Handle,
    capacity: Resources,
    attributes: Attributes,
    /// Told when the engine has welcomed the worker for the first time.
    welcomed: Mutex<Option<oneshot::Sender<()>>>,
    /// The epoch of the last welcome: starts carry it, reports bring it back.
    epoch: AtomicU64,
    /// The keeper whose shortcomings were told.
    told: AtomicU64,
    life: Life,
    /// Added to every task's environment.
    env: BTreeMap<String, String>,
}

/// Starts the agent and returns when the engine knows the worker.
pub async fn start(
    handle: &Handle,
    config: &Config,
    state: &Path,
    server: &str,
    life: Life,
) -> anyhow::Result<LocalWorker> {
    let log_bytes_max = config.log_bytes_max;
    let config = &config.worker;
    let (capacity, mut attributes) = (capacity(config), windlass_worker::attributes());
    for tag in &config.tags {
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        let values = attributes.entry(key.to_owned()).or_default();
        values.extend((!value.is_empty()).then(|| value.to_owned()));
    }
    let host = attributes.get("host").and_then(|names| names.first().cloned());
    let name = worker_name(state, config.name.clone(), host)?;
    let (welcomed, welcome) = oneshot::channel();
    let link = Arc::new(Link {
        name,
        handle: handle.clone(),
        capacity: capacity.clone(),
        attributes,
        welcomed: Mutex::new(Some(welcomed)),
        epoch: AtomicU64::new(0),
        told: AtomicU64::new(0),
        life,
        env: BTreeMap::from([("WINDLASS_SERVER".to_owned(), server.to_owned())]),
    });
    let options = AgentOptions {
        state: state.to_owned(),
        program: std::env::current_exe().context("cannot find this program")?,
        capacity,
        die_with_agent: life == Life::OfThisRun,
        log_bytes_max,
        store: handle.store().id(),
    };
    let agent = tokio::task::spawn_blocking(move || {
        Agent::start(options, move |agent, messages| link.pass_up(agent, messages))
    });
    let agent = agent.await.context("the agent failed")??;
    let logs = agent.logs();
    handle.set_logs(Arc::new(move |request| read(&logs, request)));
    welcome.await.context("the engine did not take the worker")?;
    Ok(LocalWorker { agent })
}

impl LocalWorker {
    /// Where tasks' output is.
    pub fn logs(&self) -> LogDir {
        self.agent.logs()
    }

    /// Lets the keeper go: it ends if it holds nothing, or with all of its tasks if `kill`.
    pub async fn stop(self, kill: bool) {
        _ = tokio::task::spawn_blocking(move || self.agent.stop(kill)).await;
    }
}

/// The name asked for, or the one that the worker had before: what is booked is booked under it, and a
/// machine's own name may change.
fn worker_name(state: &Path, asked: Option<String>, host: Option<String>) -> anyhow::Result<String> {
    let path = state.join("worker-name");
    let before = std::fs::read_to_string(&path).ok().filter(|name| !name.is_empty());
    let name = asked.or_else(|| before.clone()).or(host).unwrap_or_else(|| "local".to_owned());
    if before.as_ref() != Some(&name) {
        std::fs::write(&path, &name).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(name)
}

fn capacity(config: &windlass_server::WorkerConfig) -> Resources {
    let mut capacity = windlass_worker::capacity();
    if let Some(cpus) = config.cpus {
        capacity.cpu = (cpus * 100.0).round() as u32;
    }
    capacity.memory = config.memory.unwrap_or(capacity.memory);
    capacity.gpus = config.gpus;
    capacity
}

impl Link {
    /// From agent to engine, on the agent's thread.
    fn pass_up(self: &Arc<Self>, agent: &Agent, messages: Vec<FromAgent>) {
        let messages = messages.into_iter().map(|message| self.message(agent, message)).collect();
        self.handle.worker_says(&self.name, messages);
    }

    fn message(self: &Arc<Self>, agent: &Agent, message: FromAgent) -> WorkerMessage {
        match message {
            FromAgent::Hello { connection, incarnation, seq, held, notes } => {
                self.tell(incarnation, &notes);
                let held = held.into_iter().map(|held| Held {
                    task: held.task.task(),
                    attempt: held.task.attempt,
                    phase: match held.phase {
                        windlass_worker::HeldPhase::Queued => HeldPhase::Queued,
                        windlass_worker::HeldPhase::Running(at) => HeldPhase::Running(Time(at)),
                        windlass_worker::HeldPhase::Lent(at) => HeldPhase::Lent(Time(at)),
                        windlass_worker::HeldPhase::Ended => HeldPhase::Ended,
                    },
                });
                let hello = Hello {
                    name: self.name.clone(),
                    incarnation,
                    capacity: self.capacity.clone(),
                    attributes: self.attributes.clone(),
                    inventory: Inventory { seq, held: held.collect() },
                };
                let (link, agent) = (self.clone(), agent.clone());
                // The keeper may be another than before, which has no bodies.
                let bodies = Mutex::new(Bodies::new());
                let deliver: Deliver = Arc::new(move |parcel| {
                    let messages = link.orders(&agent, &mut lock(&bodies), parcel);
                    agent.send(connection, &messages);
                });
                WorkerMessage::Hello { hello: Box::new(hello), deliver }
            }
            FromAgent::Lost => WorkerMessage::Lost,
            FromAgent::Started { task, epoch, at } => WorkerMessage::Started {
                task: task.task(),
                attempt: task.attempt,
                epoch: Epoch(epoch),
                at: Time(at),
            },
            FromAgent::Finished { task, epoch, result } => WorkerMessage::Finished {
                task: task.task(),
                attempt: task.attempt,
                epoch: Epoch(epoch),
                result: result.into(),
            },
            FromAgent::Progress { task, epoch, percent, status } => WorkerMessage::Progress {
                task: task.task(),
                attempt: task.attempt,
                epoch: Epoch(epoch),
                progress: Progress { percent, status },
            },
            FromAgent::Reclaimed { task, epoch } => {
                WorkerMessage::Reclaimed { task: task.task(), attempt: task.attempt, epoch: Epoch(epoch) }
            }
        }
    }

    /// Says once of each keeper what it could not set up.
    fn tell(&self, incarnation: u64, notes: &[String]) {
        if self.told.swap(incarnation, Ordering::Relaxed) == incarnation {
            return;
        }
        for note in notes {
            match self.life {
                Life::OfItsOwn => tracing::warn!("worker {}: {note}", self.name),
                Life::OfThisRun => talk!("note: {note}"),
            }
        }
    }

    /// From engine to agent, on the engine's thread: what is sent is written to the keeper's socket,
    /// which takes it at once unless the keeper stands still; then for some seconds at most.
    fn orders(&self, agent: &Agent, bodies: &mut Bodies, parcel: Vec<Delivery>) -> Vec<ToKeeper> {
        let mut messages = Vec::with_capacity(parcel.len());
        for delivery in parcel {
            self.order(delivery, agent, bodies, &mut messages);
        }
        messages
    }

    fn order(&self, delivery: Delivery, agent: &Agent, bodies: &mut Bodies, into: &mut Vec<ToKeeper>) {
        let Delivery { seq, order, start } = delivery;
        match order {
            Order::Welcome { epoch } => {
                self.epoch.store(epoch.0, Ordering::Relaxed);
                if let Some(welcomed) = lock(&self.welcomed).take() {
                    _ = welcomed.send(());
                }
            }
            Order::Start { task, step, attempt, request, time_limit_ms } => {
                let Some(start) = start else { return };
                self.give_body(bodies, (task.job.0, step), &start.body, into);
                into.push(ToKeeper::Start {
                    task: TaskRef::new(task, attempt),
                    step,
                    epoch: self.epoch.load(Ordering::Relaxed),
                    seq,
                    request: request.into(),
                    time_limit_ms,
                    value: start.value,
                    params: start.params,
                });
            }
            Order::Kill { task, attempt } => {
                into.push(ToKeeper::Kill { task: TaskRef::new(task, attempt), seq })
            }
            Order::Recall { task, attempt } => {
                into.push(ToKeeper::Recall { task: TaskRef::new(task, attempt), seq });
            }
            Order::Ack { task, attempt } => {
                into.push(ToKeeper::Ack { task: TaskRef::new(task, attempt), seq })
            }
            Order::Lend { task, attempt } => {
                into.push(ToKeeper::Lend { task: TaskRef::new(task, attempt), seq })
            }
            Order::Reclaim { task, attempt } => {
                into.push(ToKeeper::Reclaim { task: TaskRef::new(task, attempt), seq });
            }
            Order::Resync => into.push(agent.hello()),
        }
    }

    /// Sends a step's body before the first start that needs it.
    fn give_body(&self, bodies: &mut Bodies, key: (u64, u16), body: &StepBody, into: &mut Vec<ToKeeper>) {
        if bodies.contains(&key) {
            return;
        }
        if bodies.len() >= BODIES_MAX
            && let Some((job, step)) = bodies.pop_front()
        {
            // Starts that the keeper has already keep theirs.
            into.push(ToKeeper::DropBody { job, step });
        }
        bodies.push_back(key);
        let (job, step) = key;
        let mut env = body.env.clone();
        env.extend(self.env.clone());
        let (command, cwd, session) = (body.command.clone(), body.cwd.clone(), body.session.clone());
        into.push(ToKeeper::Body { job, step, command, env, cwd, session });
    }
}

fn read(logs: &LogDir, request: &LogRequest) -> std::io::Result<Option<LogChunk>> {
    let stream = if request.stderr { Stream::Err } else { Stream::Out };
    let path = logs.path(TaskRef::new(request.task, request.attempt), stream);
    let file = match std::fs::File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let offset = match u64::try_from(request.offset) {
        Ok(offset) => offset,
        Err(_) => file.metadata()?.len().saturating_sub(request.offset.unsigned_abs()),
    };
    let (at, mut bytes) = read_log(&file, offset, request.bytes_max)?;
    let next = at + bytes.len() as u64;
    if at > offset && request.offset >= 0 {
        let note =
            format!("\n[windlass: {} bytes are left out here, the log is over its limit]\n", at - offset);
        bytes.splice(0..0, note.into_bytes());
    }
    Ok(Some(LogChunk { next, bytes }))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
