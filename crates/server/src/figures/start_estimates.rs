//! Expected starts of some waiting tasks, kept until the tasks start, and what they are then worth.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::engine::{Engine, Fact};
use windlass_core::explain::start_error;
use windlass_core::ids::QueueId;
use windlass_core::ranges::RangeSet;
use windlass_core::time::NS_PER_S;
use windlass_core::{JobId, TaskId, Time};

/// Estimates that wait for the start of their task. While there are as many, no task is asked: to drop the oldest would
/// leave only those of short waits.
const ESTIMATES_MAX: usize = 256;
/// An estimate is forgotten when its task has not started for so long.
const KEPT_NS: u64 = 24 * 3_600 * NS_PER_S;
/// In how many parts the ready tasks of a step are divided: now the last is chosen, now that of a part.
const PARTS: u32 = 4;

/// The estimates of waiting tasks. The engine's thread takes those of tasks that start.
#[derive(Debug, Default)]
pub struct StartEstimates(Mutex<EstimateBook>);

#[derive(Debug, Default)]
struct EstimateBook(BTreeMap<TaskId, StartEstimate>);

/// When a task was expected to start, and when that was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StartEstimate {
    pub asked: Time,
    pub starts: Time,
}

impl StartEstimates {
    /// The tasks with an estimate; `None` if there is no room for another one at this time.
    pub fn with_room(&self, now: Time) -> Option<BTreeSet<TaskId>> {
        self.0.lock().with_room(now)
    }

    /// Keeps the estimate of a task that had none.
    pub fn keep(&self, task: TaskId, estimate: StartEstimate) {
        self.0.lock().keep(task, estimate);
    }

    /// Takes in what is durable. Returns the errors of the estimates of tasks that started.
    pub fn take(&self, facts: &[Fact]) -> Vec<f64> {
        let mut book = self.0.lock();
        if book.0.is_empty() { Vec::new() } else { facts.iter().filter_map(|fact| book.take(fact)).collect() }
    }
}

impl EstimateBook {
    fn with_room(&mut self, now: Time) -> Option<BTreeSet<TaskId>> {
        self.0.retain(|_, estimate| now.since(estimate.asked) < KEPT_NS);
        (self.0.len() < ESTIMATES_MAX).then(|| self.0.keys().copied().collect())
    }

    fn keep(&mut self, task: TaskId, estimate: StartEstimate) {
        if self.0.len() < ESTIMATES_MAX {
            self.0.entry(task).or_insert(estimate);
        }
    }

    /// The error of the estimate whose task started with this fact. Those of a job that ended are forgotten.
    fn take(&mut self, fact: &Fact) -> Option<f64> {
        let (task, started) = match fact {
            Fact::Started { task, at, .. } => (*task, *at),
            // Its worker said of a short task only that it has ended.
            Fact::Ended { task, result, .. } => (*task, result.started?),
            Fact::JobEnded { job, .. } => {
                self.forget(*job);
                return None;
            }
            _ => return None,
        };
        let estimate = self.0.remove(&task)?;
        Some(start_error(estimate.asked, estimate.starts, started))
    }

    fn forget(&mut self, job: JobId) {
        let tasks = self.0.range(TaskId { job, index: 0 }..=TaskId { job, index: u32::MAX });
        for task in tasks.map(|(task, _)| *task).collect::<Vec<_>>() {
            self.0.remove(&task);
        }
    }
}

/// A ready task to be asked for its expected start, of a queue and at a place that differ from turn to turn; `None` if
/// nothing is ready, or the task is `known`. Those of chunks are left out: they start when others of their process end.
pub fn choose_task(engine: &Engine, known: &BTreeSet<TaskId>, turn: usize) -> Option<TaskId> {
    let mut queues: BTreeMap<QueueId, Vec<(JobId, &RangeSet)>> = BTreeMap::new();
    for job in engine.jobs().filter(|job| !job.held && job.stop.is_none() && job.after.is_empty()) {
        let steps = job.steps.iter().zip(&job.spec.steps);
        let ready = steps.filter(|(step, spec)| !step.ready.is_empty() && spec.chunks.is_none());
        let queue = engine.queues().whole(job.queue);
        for (step, _) in ready {
            queues.entry(queue).or_default().push((job.id, &step.ready));
        }
    }
    let steps = queues.values().nth(turn.checked_rem(queues.len())?)?;
    let (job, ready) = steps[steps.len() / 2];
    let part = PARTS - (turn / queues.len()) as u32 % PARTS;
    let place = u64::from(ready.len() - 1) * u64::from(part) / u64::from(PARTS);
    let task = TaskId { job, index: ready.iter().nth(place as usize)? };
    (!known.contains(&task)).then_some(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::RequestId;
    use windlass_core::engine::{Event, Pipeline, Settings, Submit};
    use windlass_core::job::{Counts, End, JobSpec, JobState, StepSpec, TaskResult, TaskState};

    const ASKED: Time = Time(1_000 * NS_PER_S);

    fn task(job: u64, index: u32) -> TaskId {
        TaskId { job: JobId(job), index }
    }

    fn after(seconds: u64) -> Time {
        ASKED.after(seconds * NS_PER_S)
    }

    fn estimate(wait_s: u64) -> StartEstimate {
        StartEstimate { asked: ASKED, starts: after(wait_s) }
    }

    fn started(task: TaskId, wait_s: u64) -> Fact {
        Fact::Started { task, attempt: 1, at: after(wait_s) }
    }

    #[test]
    fn an_estimate_is_judged_once_when_its_task_starts() {
        let estimates = StartEstimates::default();
        estimates.keep(task(1, 0), estimate(10));
        estimates.keep(task(1, 0), estimate(99));
        estimates.keep(task(1, 1), estimate(20));
        let ended = |task, started| Fact::Ended {
            task,
            attempt: 1,
            worker: windlass_core::WorkerId(1),
            cpu: 100,
            state: TaskState::Succeeded,
            result: TaskResult { started, ..TaskResult::bare(End::Exited(0)) },
        };
        let facts = [started(task(2, 0), 5), started(task(1, 0), 10), started(task(1, 0), 50)];
        assert_eq!(estimates.take(&facts), [0.0], "the first estimate counts");
        assert!(estimates.take(&[ended(task(1, 1), None)]).is_empty(), "it did not start yet");
        assert_eq!(estimates.take(&[ended(task(1, 1), Some(after(20)))]), [0.0]);
        assert_eq!(estimates.with_room(ASKED), Some(BTreeSet::new()));
    }

    #[test]
    fn estimates_go_with_their_jobs_and_after_a_day() {
        let estimates = StartEstimates::default();
        for kept in [task(1, 7), task(1, u32::MAX), task(2, 0)] {
            estimates.keep(kept, estimate(10));
        }
        let ended = Fact::JobEnded { job: JobId(1), state: JobState::Canceled, counts: Counts::default() };
        assert!(estimates.take(&[ended]).is_empty());
        assert_eq!(estimates.with_room(ASKED), Some([task(2, 0)].into()));
        assert_eq!(estimates.with_room(ASKED.after(KEPT_NS)), Some(BTreeSet::new()));
    }

    #[test]
    fn the_number_of_estimates_is_bounded() {
        let estimates = StartEstimates::default();
        for index in 0..ESTIMATES_MAX as u32 {
            assert_eq!(estimates.with_room(ASKED).map(|tasks| tasks.len()), Some(index as usize));
            estimates.keep(task(1, index), estimate(10));
        }
        estimates.keep(task(2, 0), estimate(10));
        assert_eq!(estimates.with_room(ASKED), None);
        assert_eq!(estimates.take(&[started(task(2, 0), 10), started(task(1, 3), 10)]), [0.0]);
        assert!(estimates.with_room(ASKED).is_some());
    }

    #[test]
    fn each_queue_has_its_turn_and_each_part_of_a_step() {
        let (mut engine, mut pipeline) = (Engine::new(Settings::default()), Pipeline::default());
        assert_eq!(choose_task(&engine, &BTreeSet::new(), 0), None);
        for queue in ["film", "lab"] {
            let step = StepSpec { name: "s".to_owned(), tasks: 9, ..StepSpec::default() };
            let spec = JobSpec { queue: queue.to_owned(), steps: vec![step], ..JobSpec::default() };
            let submit = Submit::new(RequestId(1), spec);
            engine.handle(ASKED, Event::Submit(Box::new(submit)), &mut pipeline.forming);
            _ = pipeline.commit_at_once(&mut engine);
        }
        let chosen: Vec<u32> =
            (0..8).filter_map(|turn| Some(choose_task(&engine, &BTreeSet::new(), turn)?.index)).collect();
        assert_eq!(chosen, [8, 8, 6, 6, 4, 4, 2, 2]);
        let [first, second] = [0, 1].map(|turn| choose_task(&engine, &BTreeSet::new(), turn).unwrap());
        assert_ne!(first.job, second.job);
        assert_eq!(choose_task(&engine, &[first].into(), 0), None, "it has an estimate");
    }
}
