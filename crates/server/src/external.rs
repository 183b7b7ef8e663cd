//! External tasks: the client that submitted one runs it by itself, and its worker only keeps room for it. Here the
//! server stands between both: it takes what the engine tells a worker about such a task, hands it to the client that
//! attends to the job, and adds the task to what the worker says that it holds.
//!
//! Nothing of this is durable. After a restart the engine knows from the store which attempts are booked and starts again
//! those that their workers do not hold; then each waits here for its client to come back.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_core::engine::{Engine, Fact, Held, HeldPhase, Report, Send, WorkerCommand};
use windlass_core::job::{End, JobState, TaskResult};
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

/// A message to the client of an external job.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names and types of the fields say what they are")]
pub enum ExternalOrder {
    /// A task has its place on that worker: run it.
    Start { task: TaskId, attempt: u32, worker: WorkerId },
    /// An attempt is over, or is to end. Its place may be given to others from now on.
    Stop { task: TaskId, attempt: u32 },
    /// The job has ended.
    Ended(JobState),
}

/// An attempt of an external task that is booked.
#[derive(Debug)]
struct Booked {
    report: Report,
    phase: HeldPhase,
    is_stopping: bool,
    /// Told to the engine, and not durable yet.
    result: Option<TaskResult>,
}

#[derive(Debug, Default)]
struct State {
    booked: BTreeMap<TaskId, Booked>,
    by_worker: BTreeMap<WorkerId, BTreeSet<TaskId>>,
    attendants: BTreeMap<JobId, mpsc::UnboundedSender<ExternalOrder>>,
    /// Jobs with booked attempts to which nobody attends, since when.
    unattended: BTreeMap<JobId, Instant>,
    ends: Vec<(Report, TaskResult)>,
}

/// The external tasks that are booked, and the clients that attend to their jobs.
#[derive(Debug, Default)]
pub(crate) struct ExternalTasks {
    state: Mutex<State>,
}

impl ExternalTasks {
    /// Takes a message to a worker if it is about an external task; gives it back otherwise.
    pub fn take(&self, engine: &Engine, message: Send) -> Option<Send> {
        let Some((task, attempt)) = attempt_of(&message.command) else { return Some(message) };
        let is_external = engine.job(task.job).map(|job| {
            let step = job.step_of(task.index);
            job.spec.steps[usize::from(step)].is_external
        });
        // Nearly all messages are about other tasks.
        if is_external == Some(false) {
            return Some(message);
        }
        let mut state = self.state.lock();
        if is_external.is_none() && !state.booked.contains_key(&task) {
            return Some(message);
        }
        match message.command {
            WorkerCommand::Start { .. } => {
                let epoch = engine.attempt(task).map(|booked| booked.epoch);
                if let Some(epoch) = epoch {
                    state.start(Report { worker: message.worker, epoch, task, attempt });
                }
            }
            WorkerCommand::Kill { .. } => {
                let booked = engine.attempt(task).filter(|booked| booked.number == attempt);
                let booked = booked.filter(|booked| booked.worker == message.worker);
                state.kill(task, attempt, booked.map(|booked| (booked.worker, booked.epoch)));
            }
            WorkerCommand::Recall { .. } => state.stop(task, attempt),
            // Ends are dropped when they are durable, and a task that runs elsewhere lends no cpus.
            _ => {}
        }
        None
    }

    /// What is durable: attempts that ended are dropped, and their clients told.
    pub fn settle(&self, notes: &[Fact]) {
        let mut state = self.state.lock();
        if state.booked.is_empty() && state.attendants.is_empty() && state.unattended.is_empty() {
            return;
        }
        for note in notes {
            match note {
                Fact::Ended { task, attempt, .. } => state.ended(*task, *attempt),
                Fact::JobEnded { job, state: how, .. } => {
                    state.tell(*job, ExternalOrder::Ended(*how));
                    state.unattended.remove(job);
                }
                _ => {}
            }
        }
    }

    /// The external attempts that a worker keeps room for, as if it held them.
    pub fn held_on(&self, worker: WorkerId) -> Vec<Held> {
        let state = self.state.lock();
        let tasks = state.by_worker.get(&worker).into_iter().flatten();
        let booked = tasks.filter_map(|task| state.booked.get(task));
        let held = |booked: &Booked| Held {
            task: booked.report.task,
            attempt: booked.report.attempt,
            phase: booked.phase,
        };
        booked.map(held).collect()
    }

    /// Ends on a worker that are not durable are told once more: the commit that had them may have failed.
    pub fn repeat_ends(&self, worker: WorkerId) {
        let mut state = self.state.lock();
        let State { booked, by_worker, ends, .. } = &mut *state;
        for task in by_worker.get(&worker).into_iter().flatten() {
            let told = booked.get(task).and_then(|booked| Some((booked.report, booked.result.clone()?)));
            ends.extend(told);
        }
    }

    pub fn take_ends(&self) -> Vec<(Report, TaskResult)> {
        std::mem::take(&mut self.state.lock().ends)
    }

    /// True if there are ends that the engine is to be told.
    pub fn has_ends(&self) -> bool {
        !self.state.lock().ends.is_empty()
    }

    /// A client attends to a job from now on, in the place of the one before. What is to end it must not begin: if it
    /// runs it, it is told to stop, and if it does not, nobody would say that it has ended.
    pub fn attend(&self, job: JobId) -> mpsc::UnboundedReceiver<ExternalOrder> {
        let (sender, orders) = mpsc::unbounded_channel();
        let mut state = self.state.lock();
        let all = TaskId { job, index: 0 }..=TaskId { job, index: u32::MAX };
        for booked in state.booked.range(all).map(|(_, booked)| booked).filter(|b| b.result.is_none()) {
            let Report { task, attempt, .. } = booked.report;
            _ = sender.send(match booked.is_stopping {
                true => ExternalOrder::Stop { task, attempt },
                false => start_order(booked.report),
            });
        }
        state.end_stopping(job);
        state.unattended.remove(&job);
        state.attendants.insert(job, sender);
        orders
    }

    /// The client that attended to the job by these orders does so no more. True if no other client took over.
    pub fn leave(&self, job: JobId, orders: mpsc::UnboundedReceiver<ExternalOrder>) -> bool {
        drop(orders);
        let mut state = self.state.lock();
        let left = state.attendants.get(&job).is_some_and(mpsc::UnboundedSender::is_closed);
        if left {
            state.attendants.remove(&job);
            state.end_stopping(job);
            if state.booked.keys().any(|task| task.job == job) {
                state.unattended.insert(job, Instant::now());
            }
        }
        left
    }

    /// How many entries its tables have.
    pub fn entries(&self) -> [(&'static str, usize); 4] {
        let state = self.state.lock();
        [
            ("external_tasks", state.booked.len()),
            ("workers_of_external_tasks", state.by_worker.len()),
            ("attendants", state.attendants.len()),
            ("jobs_unattended", state.unattended.len()),
        ]
    }

    /// Jobs with booked attempts to which nobody has attended for the given time.
    pub fn unattended(&self, for_at_least: Duration) -> Vec<JobId> {
        let state = self.state.lock();
        let old = state.unattended.iter().filter(|(_, since)| since.elapsed() >= for_at_least);
        old.map(|(job, _)| *job).collect()
    }

    /// The client says that it began with an attempt. `None` if that is not the booked one.
    pub fn began(&self, task: TaskId, attempt: u32, at: Time) -> Option<Report> {
        let mut state = self.state.lock();
        let booked = state.booked.get_mut(&task).filter(|booked| booked.report.attempt == attempt)?;
        if booked.phase == HeldPhase::Queued {
            booked.phase = HeldPhase::Running(at);
        }
        Some(booked.report)
    }

    /// The client says how an attempt ended. False if that is not the booked one, or it ended before.
    pub fn finish(&self, task: TaskId, attempt: u32, mut result: TaskResult) -> Option<(Report, TaskResult)> {
        let mut state = self.state.lock();
        let booked = state.booked.get_mut(&task).filter(|booked| booked.report.attempt == attempt)?;
        if booked.result.is_some() {
            return None;
        }
        if let HeldPhase::Running(at) = booked.phase {
            result.started = Some(at);
        }
        booked.phase = HeldPhase::Ended;
        booked.result = Some(result.clone());
        Some((booked.report, result))
    }
}

impl State {
    fn start(&mut self, report: Report) {
        let same = |booked: &Booked| booked.report == report;
        if self.booked.get(&report.task).is_some_and(same) {
            // A start that is repeated.
            return;
        }
        self.remove(report.task);
        let job = report.task.job;
        let booked = Booked { report, phase: HeldPhase::Queued, is_stopping: false, result: None };
        self.booked.insert(report.task, booked);
        self.by_worker.entry(report.worker).or_default().insert(report.task);
        if !self.tell(job, start_order(report)) {
            self.unattended.entry(job).or_insert_with(Instant::now);
        }
    }

    /// The attempt is to end. One whose start was lost on its way here, and that the engine has by that number under that
    /// epoch of its worker, has ended.
    fn kill(&mut self, task: TaskId, attempt: u32, engine_has: Option<(WorkerId, Epoch)>) {
        let is_here = self.booked.get(&task).is_some_and(|booked| booked.report.attempt == attempt);
        if let Some((worker, epoch)) = engine_has.filter(|_| !is_here) {
            let report = Report { worker, epoch, task, attempt };
            self.ends.push((report, TaskResult::bare(End::Canceled)));
        }
        self.stop(task, attempt);
    }

    /// The attempt is to end: its client ends it and says so. Without a client it ends here.
    fn stop(&mut self, task: TaskId, attempt: u32) {
        let booked = self.booked.get_mut(&task).filter(|booked| booked.report.attempt == attempt);
        let Some(booked) = booked.filter(|booked| booked.result.is_none()) else { return };
        booked.is_stopping = true;
        if !self.tell(task.job, ExternalOrder::Stop { task, attempt }) {
            self.end_stopping(task.job);
        }
    }

    /// Attempts of a job that are to end do so here: the client that was told is gone.
    fn end_stopping(&mut self, job: JobId) {
        let all = TaskId { job, index: 0 }..=TaskId { job, index: u32::MAX };
        let booked = self.booked.range_mut(all).map(|(_, booked)| booked);
        for booked in booked.filter(|booked| booked.is_stopping && booked.result.is_none()) {
            let result = TaskResult::bare(End::Canceled);
            (booked.phase, booked.result) = (HeldPhase::Ended, Some(result.clone()));
            self.ends.push((booked.report, result));
        }
    }

    fn ended(&mut self, task: TaskId, attempt: u32) {
        let Some(booked) = self.booked.get(&task).filter(|booked| booked.report.attempt == attempt) else {
            return;
        };
        if booked.result.is_none() {
            // Its worker was lost, or forgotten.
            self.tell(task.job, ExternalOrder::Stop { task, attempt });
        }
        self.remove(task);
    }

    fn remove(&mut self, task: TaskId) {
        let Some(booked) = self.booked.remove(&task) else { return };
        if let Some(tasks) = self.by_worker.get_mut(&booked.report.worker) {
            tasks.remove(&task);
            if tasks.is_empty() {
                self.by_worker.remove(&booked.report.worker);
            }
        }
    }

    /// False if nobody attends to the job.
    fn tell(&mut self, job: JobId, order: ExternalOrder) -> bool {
        self.attendants.get(&job).is_some_and(|attendant| attendant.send(order).is_ok())
    }
}

fn start_order(report: Report) -> ExternalOrder {
    ExternalOrder::Start { task: report.task, attempt: report.attempt, worker: report.worker }
}

fn attempt_of(order: &WorkerCommand) -> Option<(TaskId, u32)> {
    match order {
        WorkerCommand::Start { task, attempt, .. }
        | WorkerCommand::Kill { task, attempt }
        | WorkerCommand::Recall { task, attempt }
        | WorkerCommand::Ack { task, attempt }
        | WorkerCommand::Lend { task, attempt }
        | WorkerCommand::Reclaim { task, attempt } => Some((*task, *attempt)),
        WorkerCommand::Registered { .. }
        | WorkerCommand::Lease { .. }
        | WorkerCommand::ShareCpus { .. }
        | WorkerCommand::Resync => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::job::Counts;

    const JOB: JobId = JobId(3);
    const TASK: TaskId = TaskId { job: JOB, index: 0 };

    fn report(attempt: u32) -> Report {
        Report { worker: WorkerId(7), epoch: Epoch(1), task: TASK, attempt }
    }

    fn started(attempt: u32) -> ExternalOrder {
        ExternalOrder::Start { task: TASK, attempt, worker: WorkerId(7) }
    }

    fn ended(attempt: u32) -> Fact {
        let result = TaskResult::bare(End::Lost);
        let state = windlass_core::job::TaskState::Ready;
        Fact::Ended { task: TASK, attempt, worker: WorkerId(7), cpu: 100, state, result }
    }

    #[test]
    fn a_client_is_told_of_its_place_whenever_it_comes() {
        let external = ExternalTasks::default();
        external.state.lock().start(report(1));
        assert_eq!(external.unattended(Duration::ZERO), [JOB]);
        let mut orders = external.attend(JOB);
        assert_eq!(orders.try_recv(), Ok(started(1)));
        assert!(external.unattended(Duration::ZERO).is_empty());
        external.state.lock().start(report(1));
        assert!(orders.try_recv().is_err(), "a start that is repeated is not a new one");
        external.state.lock().start(report(2));
        assert_eq!(orders.try_recv(), Ok(started(2)));
    }

    #[test]
    fn a_job_that_ends_without_a_client_and_without_a_place_leaves_nothing() {
        let external = ExternalTasks::default();
        external.state.lock().start(report(1));
        external.settle(&[ended(1)]);
        assert_eq!(external.unattended(Duration::ZERO), [JOB], "it waits for another place");
        external.settle(&[Fact::JobEnded { job: JOB, state: JobState::Canceled, counts: Counts::default() }]);
        assert!(external.unattended(Duration::ZERO).is_empty());
        assert!(external.entries().iter().all(|(_, count)| *count == 0), "{external:?}");
    }

    #[test]
    fn what_a_client_runs_is_held_by_its_worker_until_the_end_is_durable() {
        let external = ExternalTasks::default();
        let mut orders = external.attend(JOB);
        external.state.lock().start(report(1));
        assert_eq!(external.held_on(WorkerId(7))[0].phase, HeldPhase::Queued);
        assert!(external.began(TASK, 2, Time(5)).is_none(), "that is not the booked one");
        assert_eq!(external.began(TASK, 1, Time(5)), Some(report(1)));
        assert_eq!(external.held_on(WorkerId(7))[0].phase, HeldPhase::Running(Time(5)));
        let (_, result) = external.finish(TASK, 1, TaskResult::bare(End::Exited(0))).unwrap();
        assert_eq!(result.started, Some(Time(5)));
        assert!(external.finish(TASK, 1, TaskResult::bare(End::Exited(0))).is_none(), "it ended before");
        external.repeat_ends(WorkerId(7));
        assert_eq!(external.take_ends().len(), 1, "the commit may have failed");
        assert_eq!(orders.try_recv(), Ok(started(1)));
        external.settle(&[ended(1)]);
        assert!(external.held_on(WorkerId(7)).is_empty() && orders.try_recv().is_err());
    }

    #[test]
    fn a_client_is_told_when_its_attempt_is_over_without_its_doing() {
        let external = ExternalTasks::default();
        let mut orders = external.attend(JOB);
        external.state.lock().start(report(1));
        external.settle(&[ended(1)]);
        external.state.lock().start(report(2));
        external.state.lock().stop(TASK, 1);
        external.state.lock().stop(TASK, 2);
        let job = Fact::JobEnded { job: JOB, state: JobState::Canceled, counts: Counts::default() };
        external.settle(&[job]);
        let stop = |attempt| ExternalOrder::Stop { task: TASK, attempt };
        let told: Vec<_> = std::iter::from_fn(|| orders.try_recv().ok()).collect();
        let all = [started(1), stop(1), started(2), stop(2), ExternalOrder::Ended(JobState::Canceled)];
        assert_eq!(told, all);
    }

    #[test]
    fn a_client_that_comes_to_an_attempt_that_is_to_end_does_not_begin_it() {
        let external = ExternalTasks::default();
        let first = external.attend(JOB);
        external.state.lock().start(report(1));
        external.state.lock().stop(TASK, 1);
        assert!(!external.has_ends(), "its client ends it");
        // That client was cut off, and comes back before the server noticed.
        let mut second = external.attend(JOB);
        assert_eq!(second.try_recv(), Ok(ExternalOrder::Stop { task: TASK, attempt: 1 }));
        assert!(second.try_recv().is_err());
        let ends = external.take_ends();
        assert_eq!((ends.len(), &ends[0].1.end), (1, &End::Canceled));
        assert!(external.finish(TASK, 1, TaskResult::bare(End::Canceled)).is_none(), "it has ended");
        assert!(!external.leave(JOB, first) && external.take_ends().is_empty());
    }

    #[test]
    fn what_is_to_end_does_not_outlive_its_client_nor_its_lost_start() {
        let external = ExternalTasks::default();
        let orders = external.attend(JOB);
        external.state.lock().start(report(1));
        external.state.lock().stop(TASK, 1);
        assert!(external.leave(JOB, orders));
        assert_eq!(external.take_ends().len(), 1, "no other message would say so");
        external.settle(&[ended(1)]);
        let engine_has = (WorkerId(7), Epoch(1));
        external.state.lock().kill(TASK, 2, Some(engine_has));
        assert_eq!(external.take_ends(), [(report(2), TaskResult::bare(End::Canceled))]);
        external.state.lock().kill(TASK, 2, None);
        assert!(external.take_ends().is_empty(), "the engine knows that it has ended");
    }

    #[test]
    fn what_nobody_attends_to_ends_when_it_is_to() {
        let external = ExternalTasks::default();
        let (first, mut second) = (external.attend(JOB), external.attend(JOB));
        assert!(!external.leave(JOB, first), "another took over");
        external.state.lock().start(report(1));
        assert_eq!(second.try_recv(), Ok(started(1)));
        assert!(external.leave(JOB, second));
        assert_eq!(external.unattended(Duration::ZERO), [JOB]);
        external.state.lock().stop(TASK, 1);
        let ends = external.take_ends();
        assert_eq!((ends[0].0, &ends[0].1.end), (report(1), &End::Canceled));
    }
}
