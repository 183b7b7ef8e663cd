//! The attempts that a keeper has: waiting for room, running, and ended but not yet acknowledged.
//!
//! Room is given in the order of starts, but a task that wants back the cpus that it lent comes before all
//! starts. The engine promotes attempts by the same rule, so both sides agree on what runs. The keeper's loop
//! calls this module with each message, each ended process and each deadline. It never decides that an
//! attempt is retried, and forgets a result only when the server has acknowledged it.

mod attempt;
mod chunk;
mod ending;
mod files;
mod kills;
mod launch;
mod marks;
mod output_disk;
mod sample;
mod sizes;
mod tokens;

use super::env::{EMPTY_POLL, KeeperEnv, Refused};
use super::jobserver::{Jobservers, MemoryReader};
use super::link::Link;
use super::log::write_line;
use super::progress::{Fetch, Said, Tail};
use super::session::Sessions;
use crate::cgroup::Cgroups;
use crate::clock::unix_ns;
use crate::kept;
use crate::logs::{LogDir, Stream};
use crate::process::Exit;
use crate::protocol::{
    Amounts, Body, FromKeeper, Held, HeldPhase, Rider, StartMessage, TaskCommand, TaskRef, ToKeeper, WireEnd,
    WireResult,
};
use attempt::{EndedAttempt, MemoryLimit, Pause, Running, Waiting};
use kills::GroupKills;
use output_disk::OutputDisk;
use serde::{Deserialize, Serialize};
use sizes::SizeReader;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use windlass_api::LOG_MARK_EVERY_MS;
use windlass_core::Resources;

/// Interval between two samples of memory and output sizes.
const SAMPLE: Duration = Duration::from_millis(LOG_MARK_EVERY_MS);
/// The interval where a memory limit is held by sampling.
const SAMPLE_LIMIT: Duration = Duration::from_millis(50);
/// Longest interval between two checks whether a killed group is empty.
const EMPTY_POLL_MAX: Duration = Duration::from_millis(250);
/// Steps whose body is kept. The server remembers at most 64 bodies as sent on a connection, and sends the
/// others again before a start.
const BODIES_MAX: usize = 256;

/// All attempts of this keeper.
pub struct Tasks {
    /// The capacity that all running attempts may use together.
    pub capacity: Resources,
    /// The largest message number seen.
    pub seq: u64,
    pub(super) keeper_env: KeeperEnv,
    sessions: Sessions,
    booked: Resources,
    /// Bodies by step, the one that was sent last at the end.
    bodies: VecDeque<((u64, u16), Rc<Body>)>,
    waiting: VecDeque<Waiting>,
    running: BTreeMap<TaskRef, Running>,
    by_pid: BTreeMap<i32, TaskRef>,
    /// Attempts that have ended and whose outputs are being kept.
    collecting: BTreeMap<TaskRef, EndedAttempt>,
    ended: BTreeMap<TaskRef, (u64, WireResult)>,
    reclaims: VecDeque<TaskRef>,
    /// When directories are asked for again.
    ask_at: Option<Instant>,
    next_sample: Option<Instant>,
    size_reader: SizeReader,
    memory_reader: MemoryReader,
    group_kills: GroupKills,
    disk: OutputDisk,
    /// No attempt starts meanwhile, because a start failed for a reason that passes.
    pause: Option<Pause>,
}

/// The state that a keeper hands over to a newer program.
#[derive(Serialize, Deserialize)]
pub struct SavedTasks {
    #[serde(with = "Amounts")]
    capacity: Resources,
    seq: u64,
    sessions: Sessions,
    #[serde(with = "Amounts")]
    booked: Resources,
    bodies: VecDeque<((u64, u16), Rc<Body>)>,
    waiting: VecDeque<Waiting>,
    #[serde(with = "kept::pairs")]
    running: BTreeMap<TaskRef, Running>,
    #[serde(default, with = "kept::pairs")]
    collecting: BTreeMap<TaskRef, EndedAttempt>,
    #[serde(with = "kept::pairs")]
    ended: BTreeMap<TaskRef, (u64, WireResult)>,
    reclaims: VecDeque<TaskRef>,
    /// GPUs that attempts hold, by number, as earlier programs know them.
    #[serde(with = "kept::pairs")]
    devices: BTreeMap<TaskRef, Vec<u32>>,
    /// GPUs that attempts hold, by name.
    #[serde(default, with = "kept::pairs")]
    held_gpus: BTreeMap<TaskRef, Vec<String>>,
    /// The names of this worker's GPUs.
    #[serde(default)]
    gpu_devices: Option<Vec<String>>,
    #[serde(default)]
    jobservers: Jobservers,
}

impl Tasks {
    pub fn new(keeper_env: KeeperEnv, sessions: Sessions) -> Self {
        Tasks {
            capacity: Resources::default(),
            seq: 0,
            keeper_env,
            sessions,
            booked: Resources::default(),
            bodies: VecDeque::new(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            collecting: BTreeMap::new(),
            ended: BTreeMap::new(),
            reclaims: VecDeque::new(),
            ask_at: None,
            next_sample: None,
            size_reader: SizeReader::default(),
            memory_reader: MemoryReader::default(),
            group_kills: GroupKills::default(),
            disk: OutputDisk::default(),
            pause: None,
        }
    }

    /// Takes the state out; [`Tasks::put_back`] restores it.
    pub fn save(&mut self) -> (SavedTasks, Option<Cgroups>) {
        let held_gpus = std::mem::take(&mut self.keeper_env.devices);
        let numbers =
            |names: &Vec<String>| -> Vec<u32> { names.iter().filter_map(|name| name.parse().ok()).collect() };
        let saved = SavedTasks {
            capacity: self.capacity.clone(),
            seq: self.seq,
            sessions: std::mem::take(&mut self.sessions),
            booked: self.booked.clone(),
            bodies: std::mem::take(&mut self.bodies),
            waiting: std::mem::take(&mut self.waiting),
            running: std::mem::take(&mut self.running),
            collecting: std::mem::take(&mut self.collecting),
            ended: std::mem::take(&mut self.ended),
            reclaims: std::mem::take(&mut self.reclaims),
            devices: held_gpus.iter().map(|(task, names)| (*task, numbers(names))).collect(),
            held_gpus,
            gpu_devices: self.keeper_env.gpu_devices.clone(),
            jobservers: std::mem::take(&mut self.keeper_env.jobservers),
        };
        (saved, self.keeper_env.cgroups.take())
    }

    /// Restores the state, of this program or of an earlier one.
    pub fn put_back(&mut self, saved: SavedTasks, cgroups: Option<Cgroups>) {
        let SavedTasks { capacity, seq, sessions, booked, bodies, waiting, running, .. } = saved;
        (self.ended, self.reclaims, self.keeper_env.devices) = (saved.ended, saved.reclaims, saved.held_gpus);
        self.keeper_env.gpu_devices = saved.gpu_devices;
        self.keeper_env.jobservers.take_over(saved.jobservers);
        for (task, numbers) in saved.devices {
            let names = || numbers.iter().map(u32::to_string).collect();
            self.keeper_env.devices.entry(task).or_insert_with(names);
        }
        (self.capacity, self.seq, self.sessions, self.booked) = (capacity, seq, sessions, booked);
        (self.bodies, self.waiting, self.running) = (bodies, waiting, running);
        self.collecting = saved.collecting;
        self.keeper_env.cpus =
            self.running.iter().map(|(task, running)| (*task, running.request.cpu)).collect();
        let together =
            self.running.iter().filter_map(|(task, running)| Some((*task, running.nodes.as_ref()?)));
        together.for_each(|(task, nodes)| self.keeper_env.nodes.adopt(task, nodes));
        self.keeper_env.cgroups = cgroups;
        let alive = self.running.iter().filter(|(_, running)| running.exit.is_none());
        self.by_pid = alive.map(|(task, running)| (running.started.pid, *task)).collect();
        self.next_sample = (!self.running.is_empty()).then(|| Instant::now() + SAMPLE_LIMIT);
    }

    /// Whether any process of a task runs or is to be started.
    pub fn runs(&self) -> bool {
        !self.waiting.is_empty() || !self.running.is_empty()
    }

    /// The inventory for the agent.
    pub fn held(&self) -> Vec<Held> {
        let waiting = self.waiting.iter().map(|w| Held { task: w.task, phase: HeldPhase::Queued });
        let running = self.running.iter();
        let running = running.map(|(task, running)| {
            let at = running.started_ns;
            let phase = if running.lent { HeldPhase::Lent(at) } else { HeldPhase::Running(at) };
            Held { task: *task, phase }
        });
        // The engine knows no phase between the end and the result, and has the room booked until that comes.
        let collecting = self.collecting.iter().map(|(task, ended)| {
            let at = ended.started_ns;
            let phase = if ended.lent { HeldPhase::Lent(at) } else { HeldPhase::Running(at) };
            Held { task: *task, phase }
        });
        let ended = self.ended.keys().map(|task| Held { task: *task, phase: HeldPhase::Ended });
        let riding = chunk::riding(&self.waiting, &self.running, &self.collecting)
            .map(|task| Held { task, phase: HeldPhase::Queued });
        waiting.chain(running).chain(collecting).chain(riding).chain(ended).collect()
    }

    /// Repeats all unacknowledged results and questions to an agent that said hello. A task that wants its cpus back is
    /// asked for again by the server.
    pub fn begin_again(&mut self, link: &mut Link) {
        self.reclaims.clear();
        self.keeper_env.jobservers.report_again();
        for (task, (epoch, result)) in &self.ended {
            link.send(&FromKeeper::Finished { task: *task, epoch: *epoch, result: result.clone() });
        }
        self.ask_about_files(link);
    }

    /// Notes that a message with this number came.
    pub fn note_seq(&mut self, seq: u64) {
        self.seq = self.seq.max(seq);
    }

    /// Handles a message that concerns tasks. All other messages are ignored.
    pub fn handle(&mut self, message: ToKeeper, link: &mut Link) {
        let seq = match &message {
            ToKeeper::Start(start) => start.seq,
            ToKeeper::Kill(command)
            | ToKeeper::Recall(command)
            | ToKeeper::Ack(command)
            | ToKeeper::Lend(command)
            | ToKeeper::Reclaim(command) => command.seq,
            _ => 0,
        };
        let fresh = seq > self.seq;
        self.note_seq(seq);
        match message {
            ToKeeper::Body { job, step, mut body } => {
                body.name_user();
                self.forget_body((job, step));
                self.bodies.push_back(((job, step), Rc::new(body)));
                if self.bodies.len() > BODIES_MAX {
                    self.bodies.pop_front();
                }
            }
            ToKeeper::DropBody { job, step } => {
                self.forget_body((job, step));
                self.sessions.end_step((job, step));
            }
            // A late or repeated start may be of an attempt that has ended and is forgotten.
            ToKeeper::Start(_) if !fresh => {}
            ToKeeper::Start(start) => self.enlist(start, link),
            ToKeeper::Kill(TaskCommand { task, .. }) => self.kill(task, link),
            ToKeeper::Recall(TaskCommand { task, .. }) => {
                self.unqueue(task, (WireEnd::Recalled, false), link);
            }
            ToKeeper::Ack(TaskCommand { task, .. }) => _ = self.ended.remove(&task),
            ToKeeper::Lend(TaskCommand { task, .. }) => self.lend(task),
            ToKeeper::Reclaim(TaskCommand { task, .. }) => {
                if self.running.contains_key(&task) && !self.reclaims.contains(&task) {
                    self.reclaims.push_back(task);
                }
            }
            ToKeeper::Prepared { .. } | ToKeeper::Collected { .. } => self.hear_of_files(message, link),
            ToKeeper::ShareCpus { cpu, shares } => self.keeper_env.jobservers.set_shares(cpu, &shares),
            ToKeeper::MakeVersion { version } => self.keeper_env.jobservers.note_make(version),
            ToKeeper::Hello { .. }
            | ToKeeper::Beat { .. }
            | ToKeeper::Upgrade { .. }
            | ToKeeper::Lease { .. }
            | ToKeeper::Shutdown
            | ToKeeper::ShutdownIfIdle
            | ToKeeper::ShutdownIfEnded => {}
        }
    }

    /// Queues the attempt of a start.
    fn enlist(&mut self, start: StartMessage, link: &mut Link) {
        let StartMessage { task, step, epoch, riders, .. } = start;
        // A start is repeated where the server does not know that it arrived. The first one counts, with those that ride with
        // it, and whatever its step's body has become since.
        if self.knows(task) {
            return;
        }
        let Some(body) = self.body((task.job, step)) else {
            let why = WireEnd::NotStarted("the agent did not say what to run".to_owned());
            for task in chunk::tasks(task, &riders) {
                self.end_unstarted(task, epoch, (why.clone(), false), link);
            }
            return;
        };
        let waiting = Waiting {
            task,
            epoch,
            request: start.request,
            memory_limit: MemoryLimit(start.memory_limit),
            time_limit: start.time_limit_ms.map(Duration::from_millis),
            value: start.value,
            params: start.params,
            nodes: start.nodes,
            riders,
            chunk_values: start.chunk_values,
            jobserver: start.jobserver,
            step,
            body,
            parked: false,
            place: None,
        };
        if waiting.awaits_directory() {
            waiting.ask(link);
        }
        self.waiting.push_back(waiting);
    }

    /// The body of a step. The search begins with the one that was sent last, which most starts refer to.
    fn body(&self, key: (u64, u16)) -> Option<Rc<Body>> {
        self.bodies.iter().rev().find(|(known, _)| *known == key).map(|(_, body)| body.clone())
    }

    fn forget_body(&mut self, key: (u64, u16)) {
        self.bodies.retain(|(known, _)| *known != key);
    }

    fn knows(&self, task: TaskRef) -> bool {
        let task = self.head_of(task);
        self.running.contains_key(&task)
            || self.collecting.contains_key(&task)
            || self.ended.contains_key(&task)
            || self.waiting.iter().any(|w| w.task == task)
    }

    /// The task whose process runs this one: itself as a rule.
    fn head_of(&self, task: TaskRef) -> TaskRef {
        if self.running.contains_key(&task) || self.collecting.contains_key(&task) {
            return task;
        }
        let rides =
            |head: TaskRef, riders: &[Rider]| riders.iter().any(|rider| chunk::ridden(head, rider) == task);
        let running = self.running.iter().find(|(head, running)| rides(**head, &running.riders));
        let collecting = || self.collecting.iter().find(|(head, ended)| rides(**head, &ended.riders));
        let waiting = || self.waiting.iter().find(|waiting| rides(waiting.task, &waiting.riders));
        let begun = running.map(|(head, _)| *head).or_else(|| collecting().map(|(head, _)| *head));
        begun.or_else(|| waiting().map(|waiting| waiting.task)).unwrap_or(task)
    }

    fn kill(&mut self, task: TaskRef, link: &mut Link) {
        let task = self.head_of(task);
        match self.running.get_mut(&task) {
            Some(running) => running.ask_to_end(WireEnd::Canceled, &mut self.keeper_env),
            None if self.collecting.contains_key(&task) => self.stop_collecting(task, link),
            None => self.unqueue(task, (WireEnd::Canceled, false), link),
        }
    }

    /// Ends an attempt that has not started; others are left alone. `end` says how, and whether its job is at fault.
    fn unqueue(&mut self, task: TaskRef, end: (WireEnd, bool), link: &mut Link) {
        let Some(place) = self.waiting.iter().position(|w| w.task == task) else { return };
        let Some(waiting) = self.waiting.remove(place) else { return };
        if waiting.parked {
            self.booked.sub(&waiting.request);
        }
        for task in chunk::tasks(task, &waiting.riders) {
            self.end_unstarted(task, waiting.epoch, end.clone(), link);
        }
        if let Some(place) = waiting.place {
            place.discard(link);
        }
    }

    fn end_unstarted(
        &mut self,
        task: TaskRef,
        epoch: u64,
        (end, job_at_fault): (WireEnd, bool),
        link: &mut Link,
    ) {
        let result = WireResult { end, job_at_fault, finished: Some(unix_ns()), ..WireResult::default() };
        self.finish(task, epoch, result, link);
    }

    fn finish(&mut self, task: TaskRef, epoch: u64, result: WireResult, link: &mut Link) {
        link.send(&FromKeeper::Finished { task, epoch, result: result.clone() });
        self.ended.insert(task, (epoch, result));
    }

    /// Frees the cpus of a running task. A task that lends again before it got its cpus back no longer waits for them.
    fn lend(&mut self, task: TaskRef) {
        self.reclaims.retain(|waiting| *waiting != task);
        if let Some(running) = self.running.get_mut(&task)
            && !running.lent
        {
            running.lent = true;
            self.booked.cpu = self.booked.cpu.saturating_sub(running.request.cpu);
        }
    }

    /// Starts waiting attempts in their order, as far as there is room.
    pub fn start_waiting(&mut self, link: &mut Link) {
        while let Some(task) = self.reclaims.front().copied() {
            if let Some(running) = self.running.get_mut(&task) {
                if running.lent {
                    if self.booked.cpu + running.request.cpu > self.capacity.cpu {
                        break;
                    }
                    running.lent = false;
                    self.booked.cpu += running.request.cpu;
                }
                link.send(&FromKeeper::Reclaimed { task, epoch: running.epoch });
            }
            self.reclaims.pop_front();
        }
        if !self.reclaims.is_empty() || self.pause.as_ref().is_some_and(|pause| Instant::now() < pause.until)
        {
            return;
        }
        self.pause = None;
        let mut place = 0;
        while let Some(next) = self.waiting.get(place) {
            if self.running.len() >= self.keeper_env.tasks_max {
                break;
            }
            let task = next.task;
            if !next.request.fits(&self.capacity) {
                // The worker has become smaller. The attempt would block the others for ever.
                self.unqueue(task, (WireEnd::Recalled, false), link);
                continue;
            }
            if !next.parked && !next.request.fits(&self.capacity.less(&self.booked)) {
                break;
            }
            if next.awaits_directory() {
                if !next.parked {
                    next.tell_it_prepares(link);
                }
                self.park(place);
                place += 1;
                continue;
            }
            let launched = self.launch(place);
            if !matches!(launched, Ok(Some(_))) {
                self.keeper_env.release(task);
            }
            match launched {
                Ok(Some(launched)) => self.note_start(place, launched),
                Ok(None) => {
                    self.park(place);
                    place += 1;
                }
                Err(Refused::NotNow(e)) => {
                    write_line(format_args!("task {}.{} waits: {e}", task.job, task.index));
                    self.pause = Some(Pause::after(&e));
                    return;
                }
                Err(Refused::Job(why)) => self.unqueue(task, (WireEnd::NotStarted(why), true), link),
                Err(Refused::Worker(why)) => self.unqueue(task, (WireEnd::NotStarted(why), false), link),
            }
        }
    }

    /// Books the room of an attempt that waits for its session or its directory, so that attempts behind it cannot take
    /// that room.
    fn park(&mut self, place: usize) {
        if let Some(waiting) = self.waiting.get_mut(place)
            && !std::mem::replace(&mut waiting.parked, true)
        {
            self.booked.add(&waiting.request);
        }
    }

    /// Notes that a process ended. It may be a task's first process, an action's, a helper, or an orphan of a task.
    pub fn exited(&mut self, exit: Exit) {
        let task = self.by_pid.remove(&exit.pid);
        match task.and_then(|task| self.running.get_mut(&task)) {
            Some(running) => {
                running.exit = Some((exit, unix_ns()));
                // Several processes of a session's task end, one after the other.
                let bytes = exit.disk_bytes.map(|bytes| bytes + running.disk_bytes.unwrap_or(0));
                running.disk_bytes = bytes.or(running.disk_bytes);
            }
            None => {
                self.keeper_env.exited(exit.pid);
                self.sessions.exited(exit);
            }
        }
    }

    /// Ends tasks that are over their limits, and concludes tasks whose last process is gone.
    pub fn settle(&mut self, now: Instant, link: &mut Link) {
        self.hear_launches(now, link);
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_for_directories(link);
        }
        self.read_sizes(now);
        self.move_tokens(now, link);
        if self.next_sample.is_some_and(|at| at <= now) {
            self.sample(now);
            self.tell_progress(link);
            let watched = self.running.values().any(|running| running.started.watch_memory);
            let interval = if watched || self.disk.is_filling() { SAMPLE_LIMIT } else { SAMPLE };
            self.next_sample = (!self.running.is_empty()).then_some(now + interval);
        }
        let mut over = Vec::new();
        for (task, running) in &mut self.running {
            if running.exit.is_none() && running.time_limit_at.is_some_and(|at| at <= now) {
                running.time_limit_at = None;
                running.ask_to_end(WireEnd::TimeLimit, &mut self.keeper_env);
            }
            if running.exit.is_some() || running.kill_at.is_some_and(|at| at <= now) {
                running.kill_at = None;
                if self.keeper_env.end_tree(*task, &running.started, running.exit.is_some())
                    && running.exit.is_some()
                {
                    over.push(*task);
                }
            }
        }
        for task in over {
            let running = self.running.get_mut(&task).filter(|running| running.cause.is_none());
            if let Some(why) = running.and_then(|running| running.passing.take()) {
                self.put_in_line(task, &why);
            } else if !self.go_on(task, link) {
                self.conclude(task, link);
            }
        }
        self.sessions.settle(now, &mut self.keeper_env);
        self.keeper_env.settle(now);
    }

    /// Reports the progress of tasks in sessions, and the cache keys that any task fetched.
    fn tell_progress(&mut self, link: &mut Link) {
        for (task, running) in &mut self.running {
            if let Some((task_session, _)) = &mut running.task_session
                && self.sessions.listen(task_session, false)
            {
                let (percent, status) = (task_session.progress, task_session.status.clone());
                link.send(&FromKeeper::Progress { task: *task, epoch: running.epoch, percent, status });
            }
            running.tell_fetched(*task, &self.keeper_env.logs, false, link);
        }
    }

    /// Starts the next action of a task whose last action succeeded. False if the task is over.
    fn go_on(&mut self, task: TaskRef, link: &mut Link) -> bool {
        let Some(running) = self.running.get_mut(&task) else { return false };
        let Some((task_session, _)) = &mut running.task_session else { return false };
        self.sessions.listen(task_session, true);
        running.tell_fetched(task, &self.keeper_env.logs, true, link);
        let Some((task_session, limit)) = &mut running.task_session else { return false };
        if running.cause.is_some() || running.exit.is_none_or(|(exit, _)| exit.status != 0) {
            return false;
        }
        let memory = running.memory_limit.bytes(&running.request);
        match self.sessions.go_on(&mut self.keeper_env, task_session, &mut running.started, *limit, memory) {
            Ok(Some(limit)) => {
                running.exit = None;
                running.time_limit_at = limit.map(|limit| Instant::now() + limit);
                self.by_pid.insert(running.started.pid, task);
                let (percent, status) = (task_session.progress, task_session.status.clone());
                link.send(&FromKeeper::Progress { task, epoch: running.epoch, percent, status });
                true
            }
            Ok(None) => false,
            Err(refused) => {
                running.refuse(refused);
                false
            }
        }
    }

    /// Reports a task whose last process is gone, or that never became its program and never will.
    fn conclude(&mut self, task: TaskRef, link: &mut Link) {
        let Some(mut running) = self.running.remove(&task) else { return };
        self.pause.take_if(|pause| pause.ends_with_a_task);
        let finished_ns = running.exit.map_or_else(unix_ns, |(_, at)| at);
        running.tell_fetched(task, &self.keeper_env.logs, true, link);
        let mut held = running.request.clone();
        if running.lent {
            held.cpu = 0;
        }
        let token_cpu_ms = self.keeper_env.jobservers.token_ms(task, Instant::now());
        let process_peak = self.keeper_env.jobservers.process_peak(task);
        let (end, is_at_limit) = self.end_of(task, &mut running);
        self.keeper_env.release(task);
        let slot = running.started.slot.as_ref();
        let exit = running.exit.map(|(exit, _)| exit);
        let largest = exit.map_or(0, |exit| exit.peak_bytes);
        let group_us = slot.and_then(|slot| slot.cpu_us()).map(|us| us - running.started.cpu_before_us);
        let mut bytes = [0; 2];
        for (place, stream) in Stream::BOTH.into_iter().enumerate() {
            bytes[place] = running.started.output[place].metadata().map_or(0, |m| m.len());
            if bytes[place] == 0 {
                self.keeper_env.logs.remove(task, stream);
            }
        }
        running.marks.end(&self.keeper_env.logs, task, bytes, running.started_ns);
        let peak_bytes = running.last_peak(is_at_limit, largest);
        match exit {
            Some(_) => self.keeper_env.give_back(running.started.slot),
            None => self.keeper_env.abandon(task, running.started),
        }
        let failed = end != WireEnd::Exited(0);
        let message = running
            .task_session
            .and_then(|(task_session, _)| self.sessions.leave(&mut self.keeper_env, task_session, failed));
        let ran = Duration::from_nanos(finished_ns.saturating_sub(running.started_ns));
        let message = message.or_else(|| self.disk.blame(&end, ran, &self.keeper_env.logs));
        let cpu_us = group_us.unwrap_or(0).max(exit.map_or(0, |exit| exit.cpu_us));
        let result = WireResult {
            message,
            end,
            started: running.begun.then_some(running.started_ns),
            finished: Some(finished_ns),
            cpu_ms: running.begun.then_some(cpu_us / 1000),
            peak_memory: running.begun.then_some(peak_bytes),
            out_bytes: bytes[0],
            err_bytes: bytes[1],
            disk_bytes: running.disk_bytes.filter(|_| running.begun),
            job_at_fault: running.job_at_fault,
            token_cpu_ms: token_cpu_ms.filter(|_| running.begun),
            process_memory: process_peak.filter(|_| running.begun).map(|bytes| bytes.max(largest)),
        };
        let ended = EndedAttempt {
            epoch: running.epoch,
            held,
            lent: running.lent,
            started_ns: running.started_ns,
            riders: running.riders,
            place: running.place,
            result,
        };
        self.report_end(task, ended, link);
    }

    /// When [`Tasks::settle`] is due although no process ends; `None` if there is nothing to wait for.
    pub fn next_deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let tasks = self.running.values().flat_map(|running| {
            // A task that is slow to end may be so for long, because the kernel waits with it for a file system.
            let emptying = running.exit.map(|(_, at)| now + poll_after(at));
            let launch = running.started.launch.as_ref().map(|launch| launch.next_deadline(now));
            let reading = running.sizes.wanted().and_then(|_| self.size_reader.next_deadline(now));
            [running.time_limit_at, running.kill_at, emptying, launch, reading].into_iter().flatten()
        });
        let space = self.pause.as_ref().filter(|_| !self.waiting.is_empty()).map(|pause| pause.until);
        let jobservers = self.keeper_env.jobservers.next_deadline(now);
        let others = [self.sessions.next_deadline(), self.keeper_env.next_deadline(), jobservers];
        let others = others.into_iter().flatten();
        tasks.chain(self.next_sample).chain(self.ask_at).chain(space).chain(others).min()
    }
}

/// Interval between two checks whether a task's group is empty. It grows with the time since the first
/// process ended, which is given in nanoseconds since the Unix epoch.
fn poll_after(ended_ns: u64) -> Duration {
    let now = Duration::from_nanos(unix_ns());
    (now.saturating_sub(Duration::from_nanos(ended_ns)) / 8).clamp(EMPTY_POLL, EMPTY_POLL_MAX)
}

impl Running {
    /// Reports the cache keys that the task fetched since the last look. The output of a task outside of a
    /// session is read only once there is some.
    fn tell_fetched(&mut self, task: TaskRef, logs: &LogDir, ended: bool, link: &mut Link) {
        let fetched: Vec<Fetch> = if let Some((task_session, _)) = &mut self.task_session {
            std::mem::take(&mut task_session.fetched)
        } else {
            if self.tail.is_none() && self.started.output[0].metadata().is_ok_and(|m| m.len() > 0) {
                self.tail = Tail::open(logs, task, &[Stream::Out]).ok();
            }
            let said = self.tail.as_mut().map(|tail| tail.look(ended)).unwrap_or_default();
            let fetched = said.into_iter().filter_map(|said| match said {
                Said::Fetched(fetch) => Some(fetch),
                _ => None,
            });
            fetched.collect()
        };
        for Fetch { key, bytes, ms } in fetched {
            link.send(&FromKeeper::Fetched { task, key, bytes, ms });
        }
    }
}
