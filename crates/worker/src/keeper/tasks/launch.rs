//! The start of an attempt, from its turn until its program runs. `tasks` launches an attempt when there is
//! room. The new process then reports through a pipe that its program runs or why it does not. A start that
//! failed for a reason that passes is tried again first. The keeper never waits for a process that is still
//! between fork and its program.

use super::attempt::Pause;
use super::marks::Marks;
use super::sizes::TaskSizes;
use super::{Running, SAMPLE_LIMIT, Tasks, Waiting};
use crate::clock::unix_ns;
use crate::keeper::env::{Refused, Started, refuse, refuse_spawn};
use crate::keeper::link::Link;
use crate::keeper::log::write_line;
use crate::keeper::session::TaskSession;
use crate::protocol::{FromKeeper, TaskRef, WireEnd};
use crate::spawn::{Launch, LaunchState};
use std::time::{Duration, Instant};

/// A process, the time limit of its command or action, and the task's state in its session.
pub(super) type Launched = (Started, Option<Duration>, Option<(TaskSession, Option<Duration>)>);

impl Tasks {
    /// Starts the attempt at `place`. `None` if it must wait for its session, whatever the room.
    pub(super) fn launch(&mut self, place: usize) -> Result<Option<Launched>, Refused> {
        let Some(next) = self.waiting.get(place) else { return Ok(None) };
        self.keeper_env.hold(next.task, (next.request.cpu, next.request.gpus), self.capacity.gpus);
        if let Some(nodes) = &next.nodes {
            self.keeper_env
                .nodes
                .write(next.task, nodes)
                .map_err(|e| refuse("write the file of its nodes", e))?;
        }
        if let Some(spec) = next.jobserver {
            let (cpus, now) = (self.capacity.cpu / 100, Instant::now());
            self.keeper_env
                .jobservers
                .open((next.task, next.epoch), spec, &next.body, cpus, now)
                .map_err(|e| refuse("make its jobserver", e))?;
        }
        let memory = next.memory_limit.bytes(&next.request);
        if next.body.session.is_none() {
            let values = (next.value.as_deref(), &*next.chunk_values);
            let started = match &next.place {
                None => self.keeper_env.start(next.task, &next.body, values, memory, None)?,
                Some(place) => {
                    let stdin = place.open_stdin()?;
                    self.keeper_env.start(next.task, &place.body(&next.body), values, memory, stdin)?
                }
            };
            return Ok(Some((started, next.time_limit, None)));
        }
        let Waiting { task, step, body, value, params, time_limit, .. } = next;
        let begun = self.sessions.start(
            &mut self.keeper_env,
            *task,
            *step,
            body,
            value.as_deref(),
            params,
            *time_limit,
            memory,
        )?;
        Ok(begun.map(|(started, task_session, limit)| (started, limit, Some((task_session, *time_limit)))))
    }

    pub(super) fn note_start(&mut self, place: usize, (started, limit, task_session): Launched) {
        let Some(mut waiting) = self.waiting.remove(place) else { return };
        let (task, at) = (waiting.task, Instant::now());
        if !std::mem::take(&mut waiting.parked) {
            self.booked.add(&waiting.request);
        }
        self.by_pid.insert(started.pid, task);
        self.group_kills.begin();
        self.next_sample.get_or_insert(at + SAMPLE_LIMIT);
        let running = Running {
            epoch: waiting.epoch,
            request: waiting.request.clone(),
            memory_limit: waiting.memory_limit,
            started,
            started_ns: unix_ns(),
            time_limit_at: limit.map(|limit| at + limit),
            kill_at: None,
            cause: None,
            exit: None,
            lent: false,
            task_session,
            nodes: waiting.nodes.clone(),
            riders: waiting.riders.clone(),
            peak_bytes: 0,
            held_bytes: None,
            sizes: TaskSizes::default(),
            disk_bytes: None,
            tail: None,
            kept_from: [0; 2],
            marks: Marks::begin(at),
            begun: false,
            place: waiting.place.clone(),
            retry: Some(Box::new(waiting)),
            passing: None,
            job_at_fault: false,
        };
        self.running.insert(task, running);
    }

    /// Processes between fork and their program.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.running.values().filter_map(|running| running.started.launch.as_ref())
    }

    /// Handles the reports of processes that were between fork and their program.
    pub(super) fn hear_launches(&mut self, now: Instant, link: &mut Link) {
        let mut late = Vec::new();
        for (task, running) in &mut self.running {
            let Some(launch) = &mut running.started.launch else { continue };
            if now < launch.listen_from() && running.exit.is_none() {
                continue;
            }
            match launch.look(now) {
                LaunchState::Under => continue,
                LaunchState::Done if !running.begun => {
                    (running.begun, running.retry) = (true, None);
                    link.send(&FromKeeper::Started {
                        task: *task,
                        epoch: running.epoch,
                        at: running.started_ns,
                    });
                }
                LaunchState::Done => {}
                LaunchState::Failed(e) => {
                    let refused = refuse_spawn(e, &launch.texts);
                    running.refuse(refused);
                }
                LaunchState::Late => late.push(*task),
            }
            running.started.launch = None;
        }
        for task in late {
            let what = "the command did not start within 10 s: its directory or a directory in PATH does not answer, or \
                        its process was stopped";
            if let Some(running) = self.running.get_mut(&task) {
                running.refuse(Refused::Job(what.to_owned()));
                self.by_pid.remove(&running.started.pid);
            }
            self.conclude(task, link);
        }
    }

    /// Puts an attempt that did not start, for a reason that passes, back to the front of the queue.
    pub(super) fn put_in_line(&mut self, task: TaskRef, why: &std::io::Error) {
        let Some(running) = self.running.remove(&task) else { return };
        write_line(format_args!("task {}.{} waits: {why}", task.job, task.index));
        self.booked.sub(&running.request);
        self.keeper_env.release(task);
        self.keeper_env.give_back(running.started.slot);
        self.keeper_env.remove_logs(task);
        if let Some((task_session, _)) = &running.task_session {
            self.sessions.undo(task_session);
        }
        self.waiting.extend(running.retry.map(|waiting| *waiting));
        self.waiting.rotate_right(1);
        self.pause = Some(Pause::after(why));
    }
}

impl Running {
    /// Notes why the attempt did not become its program.
    pub(super) fn refuse(&mut self, refused: Refused) {
        let (why, job_at_fault) = match refused {
            Refused::NotNow(e) if self.retry.is_some() => {
                self.passing = Some(e);
                return;
            }
            Refused::NotNow(e) => (format!("cannot go on: {e}"), false),
            Refused::Job(why) => (why, true),
            Refused::Worker(why) => (why, false),
        };
        // A task that is to end anyway keeps that reason.
        if self.cause.is_none() {
            (self.cause, self.job_at_fault) = (Some(WireEnd::NotStarted(why)), job_at_fault);
        }
    }
}
