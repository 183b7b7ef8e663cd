//! A workload in virtual time through the real engine: the events that a server's shell would give it, and
//! workers that start and end tasks as recorded. Nothing fails and commits take no time. `windlass sim run`
//! calls [`replay`] for each set of settings that it compares.

use super::workload::{Estimate, Schedule, Work, Workload};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};
use windlass_core::engine::{Engine, Event, Hello, Pipeline, Reply, Report, Settings, Submit, WorkerCommand};
use windlass_core::explain::expected_start;
use windlass_core::job::{End, Hints, JobSpec, StepSpec, TaskResult};
use windlass_core::queues::{QueueRecord, TurnsBy};
use windlass_core::time::{NS_PER_MS, NS_PER_S};
use windlass_core::{Epoch, JobId, RequestId, Resources, TaskId, Time, WorkerId};

/// Time of the first submission on the engine's clock.
const BEGIN_NS: u64 = NS_PER_S;
/// Bookings of one round at most.
const BUDGET: usize = 1_000;
/// Shortest time between two ticks of an idle engine. A server ticks each second, which over a trace of
/// months would be most of a replay's work.
const TICK_NS: u64 = 10 * NS_PER_S;
/// The queue of all jobs where there are no turns.
const ONE_LINE: &str = "all";
/// How long the engine may still place waiting work after the last submission and the last end.
const PATIENCE_NS: u64 = 24 * 3_600 * NS_PER_S;

/// In whose turns jobs start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turns {
    /// Each queue takes turns by its share, as on a farm.
    Shares,
    /// There are none: all jobs stand in one line, in the order of submission. What is left is the engine's placement.
    Submission,
}

/// Plays a workload through an engine with these settings, but without leases, because nothing fails, and
/// without parking, which needs a store.
pub fn replay(workload: &Workload, settings: Settings, turns: Turns) -> Schedule {
    replay_estimating(workload, settings, turns, None)
}

/// As [`replay`]. Of the jobs that wait after their submission, every Nth is asked when it is expected to start. Each
/// question copies the engine and runs it forward.
pub fn replay_estimating(
    workload: &Workload,
    settings: Settings,
    turns: Turns,
    every: Option<NonZeroUsize>,
) -> Schedule {
    let settings = Settings { lease_ns: None, cache_steps: usize::MAX, ..settings };
    let mut stage = ReplayRun {
        workload,
        turns,
        engine: Engine::new(settings),
        now: Time(BEGIN_NS),
        pipeline: Pipeline::default(),
        accepted: Vec::new(),
        ends: BinaryHeap::new(),
        sent: 0,
        starts_ms: vec![None; workload.tasks()],
        every,
        waited: 0,
        estimates: Vec::new(),
        took: Duration::ZERO,
    };
    stage.connect();
    stage.play();
    Schedule { starts_ms: stage.starts_ms, estimates: stage.estimates, took: stage.took }
}

/// An attempt that will end: when, number of its start, and which.
type Ending = Reverse<(Time, u64, WorkerId, TaskId, u32)>;

struct ReplayRun<'a> {
    workload: &'a Workload,
    turns: Turns,
    engine: Engine,
    now: Time,
    pipeline: Pipeline,
    /// Indexes in the workload of the accepted jobs, by the engine's job numbers from 1.
    accepted: Vec<usize>,
    ends: BinaryHeap<Ending>,
    sent: u64,
    starts_ms: Vec<Option<u64>>,
    /// Each of the jobs that wait with such a number is asked when it is expected to start; `None`: none is.
    every: Option<NonZeroUsize>,
    /// Jobs that waited after their submission.
    waited: usize,
    estimates: Vec<Estimate>,
    took: Duration,
}

impl ReplayRun<'_> {
    fn connect(&mut self) {
        for (number, (name, machine)) in self.workload.farm.each().enumerate() {
            let hello = Hello {
                incarnation: 1,
                attributes: machine.attributes(&name),
                ..Hello::new(
                    &name,
                    number as u64 + 1,
                    Resources::new(machine.cpu, machine.memory.unwrap_or(0)),
                )
            };
            self.tell(Event::Hello(Box::new(hello)));
        }
        if self.turns == Turns::Submission {
            let queue = QueueRecord { turns: TurnsBy::Jobs, ..QueueRecord::named(ONE_LINE) };
            self.tell(Event::SetQueue { request: RequestId(0), queue });
        }
        self.decide();
    }

    /// Handles everything at its time: first ends, because they free room, then submissions, then the clock.
    fn play(&mut self) {
        let mut coming = 0;
        let (mut ticked, mut moved) = (self.now, self.now);
        loop {
            let submit = self.workload.jobs.get(coming).map(|job| at(job.submit_ms));
            let end = self.ends.peek().map(|Reverse((at, ..))| *at);
            let tick = self.engine.next_wakeup().map(|wakes| wakes.max(ticked.after(TICK_NS)));
            let idle = submit.is_none() && end.is_none();
            let tick = tick.filter(|tick| !idle || tick.since(moved) < PATIENCE_NS);
            let Some(next) = [submit, end, tick].into_iter().flatten().min() else { break };
            self.now = self.now.max(next);
            if !idle {
                moved = self.now;
            }
            while let Some(Reverse((_, _, worker, task, attempt))) =
                self.ends.peek().copied().filter(|Reverse((at, ..))| *at <= self.now)
            {
                self.ends.pop();
                self.end(worker, task, attempt);
            }
            let submitted_from = self.accepted.len();
            while self.workload.jobs.get(coming).is_some_and(|job| at(job.submit_ms) <= self.now) {
                self.submit(coming);
                coming += 1;
            }
            if tick.is_some_and(|tick| tick <= self.now) {
                ticked = self.now;
                self.tell(Event::Tick);
            }
            self.decide();
            if let Some(every) = self.every {
                self.estimate(submitted_from, every);
            }
        }
    }

    /// Asks some of the jobs that were accepted since, and wait, when they are expected to start.
    fn estimate(&mut self, accepted_from: usize, every: NonZeroUsize) {
        for number in accepted_from..self.accepted.len() {
            let first = TaskId { job: JobId(number as u64 + 1), index: 0 };
            let (_, task) = self.job_of(first);
            if self.starts_ms[task].is_some() {
                continue;
            }
            self.waited += 1;
            if self.waited.is_multiple_of(every.get()) {
                let expected = expected_start(&self.engine, first);
                let (asked_ms, expected_ms) = (since_begin_ms(self.now), expected.map(since_begin_ms));
                self.estimates.push(Estimate { task, asked_ms, expected_ms });
            }
        }
    }

    fn submit(&mut self, place: usize) {
        let workload = self.workload;
        let mut spec = spec_of(workload, &workload.jobs[place]);
        if self.turns == Turns::Submission {
            ONE_LINE.clone_into(&mut spec.queue);
        }
        let request = RequestId(place as u64);
        let submit = Submit { placeable_only: true, ..Submit::new(request, spec) };
        self.tell(Event::Submit(Box::new(submit)));
    }

    fn end(&mut self, worker: WorkerId, task: TaskId, attempt: u32) {
        let (job, index) = self.job_of(task);
        let (started, part) = (self.starts_ms[index].map(at), job.part_of(task.index));
        let result = TaskResult {
            started,
            finished: Some(self.now),
            cpu_ms: part.cpu_ms,
            peak_memory: part.peak_memory.filter(|_| self.workload.farm.has_memory()),
            ..TaskResult::bare(End::Exited(0))
        };
        self.tell(Event::Finished { by: Report { worker, epoch: Epoch(1), task, attempt }, result });
    }

    /// The job of a task, and the index of the task among those of all jobs.
    fn job_of(&self, task: TaskId) -> (&Work, usize) {
        let job = &self.workload.jobs[self.accepted[task.job.0 as usize - 1]];
        (job, job.first_task + task.index as usize)
    }

    /// Gives the engine an event. Its output is collected until the next decision.
    fn tell(&mut self, event: Event) {
        let clock = Instant::now();
        self.engine.handle(self.now, event, &mut self.pipeline.forming);
        self.took += clock.elapsed();
    }

    /// Runs rounds, each with its commit, until nothing more is booked, and then starts what was sent.
    fn decide(&mut self) {
        loop {
            let clock = Instant::now();
            let booked = self.engine.round(self.now, BUDGET, &mut self.pipeline.forming);
            let out = self.pipeline.commit_at_once(&mut self.engine);
            self.took += clock.elapsed();
            for (request, answer) in out.replies {
                if let Reply::Submitted { .. } = answer {
                    self.accepted.push(request.0 as usize);
                }
            }
            for send in out.sends {
                if let WorkerCommand::Start { task, attempt, .. } = send.command {
                    self.start(send.worker, task, attempt);
                }
            }
            if booked < BUDGET && self.pipeline.is_idle() {
                break;
            }
        }
    }

    fn start(&mut self, worker: WorkerId, task: TaskId, attempt: u32) {
        let (job, index) = self.job_of(task);
        let ends = self.now.after(job.run_ms * NS_PER_MS);
        self.starts_ms[index] = Some(since_begin_ms(self.now));
        self.sent += 1;
        self.ends.push(Reverse((ends, self.sent, worker, task, attempt)));
        let (by, at) = (Report { worker, epoch: Epoch(1), task, attempt }, self.now);
        self.tell(Event::Started { by, at });
    }
}

/// The time `ms` milliseconds after the first submission, on the engine's clock.
fn at(ms: u64) -> Time {
    Time(BEGIN_NS).after(ms.saturating_mul(NS_PER_MS))
}

/// Milliseconds from the first submission to this time.
fn since_begin_ms(time: Time) -> u64 {
    time.since(Time(BEGIN_NS)) / NS_PER_MS
}

/// The job as it is submitted. Several tasks are one gang: its first part leads, and the others start with that.
fn spec_of(workload: &Workload, job: &Work) -> JobSpec {
    let steps = (1..).zip(&job.parts).map(|(number, part)| StepSpec {
        // Steps of one job have different names.
        name: if number == 1 { job.name.clone() } else { format!("{}/{number}", job.name) },
        tasks: part.tasks,
        nodes: (job.tasks > 1).then_some(part.tasks),
        with: (number > 1).then_some(0),
        request: part.request.clone(),
        needs: part.needs.clone(),
        time_limit_ms: job.limit_ms,
        // Jobs with different requested run times are taken for different work, because traces seldom name the program.
        hints: Hints {
            shape: job.limit_ms.map_or_else(String::new, |ms| ms.to_string()),
            ..Hints::default()
        },
        ..StepSpec::default()
    });
    JobSpec {
        name: job.name.clone(),
        queue: job.queue.clone(),
        user: workload.users[job.user].clone(),
        steps: steps.collect(),
        ..JobSpec::default()
    }
}
