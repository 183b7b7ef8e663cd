//! A farm whose workers run what they are sent, each task for as long as the body of its step says.

use super::Farm;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use windlass_core::engine::{Event, Report, WorkerCommand, Write};
use windlass_core::job::{End, JobSpec, StepSpec, TaskResult};
use windlass_core::time::NS_PER_MS;
use windlass_core::{JobId, TaskId, Time, WorkerId};

/// A start that went out: when, of which queue, and where.
#[derive(Debug)]
pub struct Start {
    pub at: Time,
    pub queue: String,
    pub task: TaskId,
    pub worker: WorkerId,
}

/// An attempt that runs.
pub struct Running {
    pub by: Report,
    pub began: Time,
    pub exit: i32,
    pub is_killed: bool,
    /// The other tasks that its process runs.
    pub riders: Vec<TaskId>,
}

/// It hears and answers as the farm that it has. What it is sent starts when a test lets it settle or lets time pass.
pub struct LiveFarm {
    farm: Farm,
    /// What runs, by when it ends.
    pub ends: BTreeMap<(Time, TaskId), Running>,
    pub starts: Vec<Start>,
    /// Whether workers say when a task starts, and not only when it ends.
    pub says_start: bool,
    /// What workers say of the start and the end of each task, in the place of what is true.
    pub lie: Option<(Time, Time)>,
    /// Bytes that workers say each task held at most.
    pub peak_memory: Option<u64>,
    /// Milliseconds that the start of a chunk takes, and each of its tasks.
    pub chunk_ms: (u64, u64),
    /// Up to this number of milliseconds more for each start, by chance: those of the same quarter of a second meet the same load.
    pub chunk_noise_ms: u64,
    /// How long how much was booked: hundredths of a core times nanoseconds.
    pub busy_ns: u128,
    /// With the bodies of their steps, which the engine does not keep.
    specs: BTreeMap<JobId, Arc<JobSpec>>,
}

impl LiveFarm {
    pub fn of(farm: Farm) -> LiveFarm {
        LiveFarm {
            farm,
            ends: BTreeMap::new(),
            starts: Vec::new(),
            says_start: true,
            lie: None,
            peak_memory: None,
            chunk_ms: (0, 0),
            chunk_noise_ms: 0,
            busy_ns: 0,
            specs: BTreeMap::new(),
        }
    }

    /// Rounds until one books nothing. What one books, and what was sent before, starts before the next.
    pub fn settle(&mut self) {
        loop {
            let booked = self.round();
            self.run_sent();
            for worker in self.engine.workers().iter() {
                assert!(
                    worker.booked.sum().fits(&worker.record.capacity),
                    "{} is booked beyond its capacity",
                    worker.record.name
                );
            }
            if booked == 0 {
                return;
            }
        }
    }

    fn run_sent(&mut self) {
        let out = self.take();
        for write in out.writes {
            if let Write::Job { id, spec, .. } = write {
                self.specs.insert(id, spec);
            }
        }
        for send in out.sends {
            if let WorkerCommand::Kill { task, .. } = send.command {
                self.kill(task);
            }
            let WorkerCommand::Start { task, step, riders, .. } = send.command else { continue };
            let (by, began) = (self.report(task), self.now);
            let spec = &self.specs[&task.job];
            let step = &spec.steps[usize::from(step)];
            let (mut ms, exit) = run_of(step, task);
            if step.chunks.is_some() {
                let noise_ms = scattered(began.as_ms() / 250) % (self.chunk_noise_ms + 1);
                ms = self.chunk_ms.0 + noise_ms + self.chunk_ms.1 * (riders.len() as u64 + 1);
            }
            let riders = riders.into_iter().map(|(index, _)| TaskId { index, ..task }).collect();
            self.starts.push(Start { at: began, queue: spec.queue.clone(), task, worker: send.worker });
            self.ends.insert(
                (began.after(ms * NS_PER_MS), task),
                Running { by, began, exit, is_killed: false, riders },
            );
            if self.says_start {
                let at = self.lie.map_or(began, |(started, _)| started);
                self.hear(Event::Started { by, at });
            }
        }
    }

    /// What was killed ends at once.
    fn kill(&mut self, task: TaskId) {
        let Some((due, _)) = self.ends.keys().find(|(_, running)| *running == task).copied() else { return };
        if let Some(running) = self.ends.remove(&(due, task)) {
            self.ends.insert((self.farm.now, task), Running { is_killed: true, ..running });
        }
    }

    /// Lets time pass, in which tasks end, timers are due and others start.
    pub fn advance(&mut self, seconds: u64) {
        self.advance_ms(seconds * 1_000);
    }

    /// The same for milliseconds.
    pub fn advance_ms(&mut self, ms: u64) {
        self.settle();
        let until = self.now.after(ms * NS_PER_MS);
        loop {
            let wakes = self.engine.next_wakeup().map(|at| at.max(self.now));
            let ends = self.ends.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = [wakes, ends].into_iter().flatten().min().filter(|at| *at <= until) else { break };
            self.stand_at(at);
            if wakes == Some(at) {
                self.hear(Event::Tick);
            }
            while self.ends.first_key_value().is_some_and(|((due, _), _)| *due <= at) {
                for (by, result) in self.end_chunk() {
                    self.hear(Event::Finished { by, result });
                }
            }
            self.settle();
        }
        self.stand_at(until);
    }

    fn stand_at(&mut self, now: Time) {
        let booked: u64 = self.engine.workers().iter().map(|worker| u64::from(worker.booked.sum().cpu)).sum();
        self.busy_ns += u128::from(booked) * u128::from(now.since(self.now));
        self.now = now;
    }

    /// Ends the process that ends first. Each of its tasks has its part of the time.
    fn end_chunk(&mut self) -> Vec<(Report, TaskResult)> {
        let ((at, _), run) = self.ends.first_key_value().expect("something runs");
        let (at, began, riders) = (*at, run.began, run.riders.clone());
        let (by, result) = self.end_first();
        let part_ns = at.since(began) / (riders.len() as u64 + 1);
        let others: Vec<_> = riders.into_iter().map(|task| (self.report(task), result.clone())).collect();
        let mut told = vec![(by, result)];
        told.extend(others);
        for (place, (_, result)) in told.iter_mut().enumerate().filter(|_| part_ns < at.since(began)) {
            let started = began.after(place as u64 * part_ns);
            (result.started, result.finished) = (Some(started), Some(started.after(part_ns)));
        }
        told
    }

    /// Ends what ends first, and returns what its worker has to say of it.
    pub fn end_first(&mut self) -> (Report, TaskResult) {
        let ((at, _), run) = self.ends.pop_first().expect("something runs");
        let (started, finished) = self.lie.unwrap_or((run.began, at));
        let bare = TaskResult::bare(if run.is_killed { End::Canceled } else { End::Exited(run.exit) });
        let peak_memory = self.peak_memory;
        (run.by, TaskResult { started: Some(started), finished: Some(finished), peak_memory, ..bare })
    }

    /// Of the starts from the `from`th on, those of the queue.
    pub fn starts_of(&self, from: usize, queue: &str) -> impl Iterator<Item = &Start> {
        self.starts[from..].iter().filter(move |start| start.queue == queue)
    }
}

impl Deref for LiveFarm {
    type Target = Farm;

    fn deref(&self) -> &Farm {
        &self.farm
    }
}

impl DerefMut for LiveFarm {
    fn deref_mut(&mut self) -> &mut Farm {
        &mut self.farm
    }
}

/// The body of a step whose tasks exit with this code. They run for the least and the most of these seconds, or any
/// time between without order.
pub fn run((least_s, most_s): (u64, u64), exit: i32) -> Arc<[u8]> {
    format!("{least_s} {most_s} {exit}").into_bytes().into()
}

/// Milliseconds that the task runs, and its exit code.
fn run_of(step: &StepSpec, task: TaskId) -> (u64, i32) {
    let body = str::from_utf8(&step.body).expect("it was a string");
    let said: Vec<u64> = body.split(' ').map(|number| number.parse().expect("a number")).collect();
    let [least_s, most_s, exit] = said[..] else { panic!("'{body}' does not say how long its tasks run") };
    let mixed = (task.job.0 << 32 ^ u64::from(task.index)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (least, most) = (least_s * 1_000, most_s * 1_000);
    (least + (mixed >> 33) % (most - least + 1), exit as i32)
}

/// A number that looks random, always the same for a seed (the finalizer of SplitMix64).
fn scattered(seed: u64) -> u64 {
    let mut bits = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
