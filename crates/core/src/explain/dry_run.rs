//! What a submission would do now: a copy of the engine does it, and is thrown away. So a dry run says what the engine
//! would do, in the words of its explanations, and there is no second scheduler that could say something else.

use super::explanation::{Explanation, Reason};
use super::task::reason as explain_task;
use crate::engine::{Engine, Event, Fetch, FetchQuery, Outbox, Refusal, Reply, Submit, Unplaceable};
use crate::ids::{JobId, TaskId, WorkerId};
use crate::job::{JobRecord, JobSpec, JobState, TaskState};
use crate::time::Time;
use std::collections::BTreeMap;

/// Bookings of one round of a dry run.
const ROUND_BOOKINGS_MAX: usize = 1024;
/// Rounds of a dry run: tasks that these did not come to count as waiting.
const ROUNDS_MAX: usize = 16;

/// What a submission would do.
#[derive(Clone, PartialEq, Debug)]
pub struct DryRun {
    /// The number that the job would get, or of the job that is there under its key.
    pub job: JobId,
    /// A job is there under its key, so nothing would be submitted.
    pub existing: bool,
    /// Steps that no worker could run even if it were empty.
    pub unplaceable: Vec<Unplaceable>,
    /// The steps in their order; none where nothing would be submitted.
    pub steps: Vec<StepTrial>,
}

/// What would become of one step at once.
#[derive(Clone, PartialEq, Debug)]
pub struct StepTrial {
    /// Tasks that would start, by worker.
    pub starts: BTreeMap<WorkerId, u32>,
    /// Tasks that would wait.
    pub waiting: u32,
    /// Why the first of these would wait; `None` without one, and where the job would wait in the store behind others of
    /// its queue.
    pub first_waiting: Option<(TaskId, Explanation)>,
}

/// Tries a submission on a copy of the engine, which does nothing else afterwards. `first` is what the store has of the
/// job after whose tasks its own come, if it comes after one and the store has that.
///
/// # Errors
/// The engine's refusal of the submission.
pub fn dry_run(
    mut engine: Engine,
    now: Time,
    submit: Submit,
    first: Option<JobRecord>,
) -> Result<DryRun, Refusal> {
    let (request, spec) = (submit.request, submit.spec.clone());
    let is_active = |id: &JobId| submit.outcomes.get(id) == Some(&JobState::Active);
    let after: Vec<JobId> = spec.after.iter().copied().filter(is_active).collect();
    let next = engine.next_job();
    let mut out = Outbox::default();
    engine.handle(now, Event::Submit(Box::new(submit)), &mut out);
    let is_of_first = |fetch: &&Fetch| match &fetch.wanted {
        FetchQuery::Jobs(jobs) => jobs.iter().all(|id| Some(*id) == spec.after_tasks),
        FetchQuery::Page { .. } => false,
    };
    if let Some(number) = out.fetches.iter().find(is_of_first).map(|fetch| fetch.number) {
        let records = Some(first.into_iter().collect());
        engine.handle(now, Event::Fetched { number, records }, &mut out);
    }
    let reply = out.replies.iter().find(|(of, _)| *of == request).map(|(_, reply)| reply.clone());
    match reply {
        Some(Reply::Refused(refusal)) => Err(refusal),
        Some(Reply::Submitted { job, existing: true, unplaceable }) => {
            Ok(DryRun { job, existing: true, unplaceable, steps: Vec::new() })
        }
        Some(Reply::Submitted { job, existing: false, unplaceable }) => {
            for _ in 0..ROUNDS_MAX {
                if engine.round(now, ROUND_BOOKINGS_MAX, &mut out) == 0 {
                    break;
                }
            }
            let steps = steps_of(&engine, job, &spec);
            Ok(DryRun { job, existing: false, unplaceable, steps })
        }
        // The jobs that it comes after are in the store, and would be read first. They are active.
        _ => {
            let steps = steps_after(next, &spec, &after);
            Ok(DryRun { job: next, existing: false, unplaceable: Vec::new(), steps })
        }
    }
}

fn steps_of(engine: &Engine, job: JobId, spec: &JobSpec) -> Vec<StepTrial> {
    let mut steps = Vec::new();
    let mut base = 0;
    for step in &spec.steps {
        let end = base + step.tasks;
        let mut starts: BTreeMap<WorkerId, u32> = BTreeMap::new();
        let (mut started, mut first) = (0, base);
        // What is sent ahead waits at its worker.
        let attempts = engine.attempts_from(job, base).take_while(|(task, _)| task.index < end);
        for (task, attempt) in attempts.filter(|(_, attempt)| !attempt.queued) {
            *starts.entry(attempt.worker).or_default() += 1;
            started += 1;
            first += u32::from(task.index == first);
        }
        let waiting = step.tasks - started;
        let task = Some(TaskId { job, index: first }).filter(|_| waiting > 0);
        let first_waiting = task.and_then(|task| Some((task, explain_task(engine, task)?)));
        steps.push(StepTrial { starts, waiting, first_waiting });
        base = end;
    }
    steps
}

/// All tasks wait for other jobs.
fn steps_after(job: JobId, spec: &JobSpec, after: &[JobId]) -> Vec<StepTrial> {
    let mut base = 0;
    let steps = spec.steps.iter().map(|step| {
        let task = TaskId { job, index: base };
        base += step.tasks;
        let why = Explanation::bare(TaskState::Waiting, Reason::AfterJobs(after.to_vec()));
        StepTrial { starts: BTreeMap::new(), waiting: step.tasks, first_waiting: Some((task, why)) }
    });
    steps.collect()
}
