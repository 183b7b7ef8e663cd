//! What attempts took, by day, user and queue: what a batch adds to the sums of the store, and these as an answer.

use super::ended::Outcome;
use windlass_api::figures::{Usage, UsageRow};
use windlass_core::Time;
use windlass_core::engine::{Engine, Outbox, Write};
use windlass_core::job::{Job, TaskResult, TaskState};
use windlass_core::time::NS_PER_MS;
use windlass_store::{AttemptUse, UsageKey, UsageRows};

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// Days of which the sums are kept, today among them.
pub const USAGE_DAYS_MAX: u64 = 400;
/// Rows of one answer: those of nine days at least, even if each has all that the store keeps of a day.
pub const USAGE_ROWS_MAX: usize = 20_000;

/// Days since the Unix epoch, in UTC.
pub fn usage_day(at: Time) -> u64 {
    at.as_ms() / DAY_MS
}

/// What the attempts took that end with this batch. The engine still has their jobs. They count on the day of the server's
/// clock, because those of workers may be wrong.
pub fn usage_of(engine: &Engine, batch: &Outbox, now: Time) -> Vec<AttemptUse> {
    let mut used = Vec::new();
    for (number, write) in batch.writes.iter().enumerate() {
        let (task, state, result) = match write {
            Write::End { task, state, result, .. } => (*task, *state, result),
            Write::Requeued { task, result, .. } => (*task, TaskState::Ready, result),
            _ => continue,
        };
        let Some(outcome) = Outcome::of(state, &result.end) else { continue };
        let Some(job) = engine.job(task.job) else { continue };
        let (day, user, queue) = (usage_day(now), job.spec.user.clone(), job.spec.queue.clone());
        used.push(AttemptUse {
            write: number,
            key: UsageKey { day, user, queue },
            cpu_ms: cpu_ms(job, task.index, result),
            failed: outcome == Outcome::Failed,
        });
    }
    used
}

/// Cpu time of an attempt, in milliseconds. Where it was not measured, it is how long the attempt ran, times the cpus that
/// its step asks for.
fn cpu_ms(job: &Job, index: u32, result: &TaskResult) -> u64 {
    if let Some(measured) = result.cpu_ms {
        return measured;
    }
    let Some((started, finished)) = result.started.zip(result.finished) else { return 0 };
    let ran_ms = finished.since(started) / NS_PER_MS;
    let cpu = job.spec.steps[usize::from(job.step_of(index))].request.cpu;
    ran_ms.saturating_mul(u64::from(cpu)) / 100
}

/// The rows since a day as an answer. Where there are more than one answer has, the oldest days are left out whole.
/// `found` has one row more than an answer, if there are as many.
pub fn usage_told(found: UsageRows, since: u64, today: u64) -> Usage {
    let UsageRows { first_day, mut rows } = found;
    let mut first = first_day.unwrap_or(today).max(since);
    if let Some((cut, _)) = rows.get(USAGE_ROWS_MAX) {
        first = cut.day + 1;
        rows.retain(|(key, _)| key.day >= first);
    }
    let row = |(key, sum): (UsageKey, windlass_store::UsageSum)| UsageRow {
        day_ms: key.day.saturating_mul(DAY_MS),
        user: key.user,
        queue: key.queue,
        cpu_ms: sum.cpu_ms,
        tasks: sum.tasks,
        failed: sum.failed,
    };
    Usage { since_ms: first.saturating_mul(DAY_MS), rows: rows.into_iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::engine::{Event, Settings, Submit};
    use windlass_core::job::{End, JobSpec, StepSpec};
    use windlass_core::{JobId, RequestId, Resources, TaskId};
    use windlass_store::UsageSum;

    const SECOND: u64 = 1_000_000_000;

    /// An engine with job 1 of ann, whose tasks ask for two cpus.
    fn engine() -> Engine {
        let mut engine = Engine::new(Settings::default());
        let request = Resources::new(200, 0);
        let step = StepSpec { name: "s".to_owned(), tasks: 9, request, ..StepSpec::default() };
        let (user, queue) = ("ann".to_owned(), "films".to_owned());
        let spec = JobSpec { user, queue, steps: vec![step], ..JobSpec::default() };
        let submit = Event::Submit(Box::new(Submit::new(RequestId(1), spec)));
        engine.handle(Time(1), submit, &mut Outbox::default());
        engine
    }

    fn result(end: End, cpu_ms: Option<u64>) -> TaskResult {
        let (started, finished) = (Some(Time(SECOND)), Some(Time(4 * SECOND)));
        TaskResult { started, finished, cpu_ms, ..TaskResult::bare(end) }
    }

    #[test]
    fn each_attempt_takes_its_measured_cpu_time_or_that_of_the_cpus_that_it_asked_for() {
        let task = |job, index| TaskId { job: JobId(job), index };
        let end =
            |task, state, result| Write::End { task, attempt: 1, state, failures: 0, losses: 0, result };
        let again = result(End::Exited(1), None);
        let writes = vec![
            end(task(1, 0), TaskState::Succeeded, result(End::Exited(0), Some(70))),
            Write::Requeued { task: task(1, 1), attempt: 1, failures: 1, losses: 0, result: again },
            Write::QueueGone("films".to_owned()),
            end(task(1, 2), TaskState::Canceled, result(End::Canceled, Some(5))),
            // It never began, and of that job nothing is known.
            end(task(1, 3), TaskState::Canceled, TaskResult::bare(End::Recalled)),
            end(task(2, 0), TaskState::Failed, result(End::Exited(1), Some(5))),
        ];
        let used =
            usage_of(&engine(), &Outbox { writes, ..Outbox::default() }, Time(3 * DAY_MS * NS_PER_MS + 7));
        let key = UsageKey { day: 3, user: "ann".to_owned(), queue: "films".to_owned() };
        let took = |write, cpu_ms, failed| AttemptUse { write, key: key.clone(), cpu_ms, failed };
        assert_eq!(used, [took(0, 70, false), took(1, 6_000, true), took(3, 5, false)]);
    }

    #[test]
    fn an_answer_has_whole_days_and_says_since_when() {
        let sum = UsageSum { cpu_ms: 1, tasks: 2, failed: 0 };
        let key = |day: u64, n: usize| UsageKey { day, user: format!("u{n}"), queue: "q".to_owned() };
        let days = |most: usize| (0..most).map(|n| (key(100 - n as u64 / 1_500, n), sum)).collect();
        let told = usage_told(UsageRows { first_day: Some(90), rows: days(3_000) }, 71, 100);
        assert_eq!((told.since_ms, told.rows.len()), (90 * DAY_MS, 3_000));
        assert_eq!(told.rows[0].day_ms, 100 * DAY_MS);
        let told = usage_told(UsageRows { first_day: Some(20), rows: days(3_000) }, 71, 100);
        assert_eq!(told.since_ms, 71 * DAY_MS);
        let told = usage_told(UsageRows { first_day: Some(20), rows: days(USAGE_ROWS_MAX + 1) }, 71, 100);
        assert_eq!((told.since_ms, told.rows.len()), (88 * DAY_MS, 13 * 1_500));
        assert_eq!(
            usage_told(UsageRows::default(), 71, 100),
            Usage { since_ms: 100 * DAY_MS, rows: Vec::new() }
        );
    }
}
