//! `POST /api/v1/jobs?dry_run=true`: what a submission would do, tried on a copy of the engine.

use super::App;
use super::stop_words::say_after;
use crate::api_error::ApiError;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use utoipa::IntoParams;
use windlass_api::{DryRun, DryRunStep, StartsOn, Step, Unplaceable, Why};
use windlass_core::engine::Submit;
use windlass_core::explain::{self, Reason, StepTrial};
use windlass_core::job::{JobRecord, JobSpec, Stop};
use windlass_core::{Engine, Time, WorkerId};

/// Whether a submission is only tried.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct SubmitQuery {
    /// Submit nothing: say what would be accepted, where it would run now, and what it would wait for.
    #[serde(default)]
    pub dry_run: bool,
}

/// What the submission would do, which has passed all checks of its caller's rights and bounds.
pub(super) async fn try_submission(app: &App, submit: Submit, makes_queue: bool) -> Result<DryRun, ApiError> {
    let now = app.handle.now();
    let first = match submit.spec.after_tasks {
        Some(first) => app.handle.store().records(BTreeSet::from([first])).await?.pop(),
        None => None,
    };
    app.handle.ask_copy(move |engine| answer(engine.clone(), now, (submit, first), makes_queue)).await?
}

fn answer(
    engine: Engine,
    now: Time,
    (mut submit, first): (Submit, Option<JobRecord>),
    makes_queue: bool,
) -> Result<DryRun, ApiError> {
    submit.settle(engine.queues());
    let spec = submit.spec.clone();
    let names: BTreeMap<WorkerId, String> =
        engine.workers().iter().map(|worker| (worker.record.id, worker.record.name.clone())).collect();
    let policy = engine.planner().policy().name().to_owned();
    let tried = explain::dry_run(engine, now, submit, first)?;
    let steps = Step::all_from_core(&spec).into_iter().zip(tried.steps);
    Ok(DryRun {
        name: spec.name.clone(),
        queue: spec.queue.clone(),
        user: spec.user.clone(),
        priority: spec.priority,
        existing: tried.existing.then_some(tried.job.0),
        queue_created: makes_queue && !tried.existing,
        unplaceable: tried.unplaceable.iter().map(Unplaceable::from_core).collect(),
        steps: steps.map(|(step, tried)| step_answer(step, tried, (&spec, &policy), &names)).collect(),
    })
}

fn step_answer(
    step: Step,
    tried: StepTrial,
    (spec, policy): (&JobSpec, &str),
    names: &BTreeMap<WorkerId, String>,
) -> DryRunStep {
    let name_of = |id: u64| names.get(&WorkerId(id)).cloned().unwrap_or_default();
    let starts =
        tried.starts.iter().map(|(worker, tasks)| StartsOn { worker: name_of(worker.0), tasks: *tasks });
    let starts = starts.collect();
    let why = tried.first_waiting.map(|(task, why)| {
        let skipped = why_skipped(spec, &why.reason);
        let why = Why::from_core(task.to_string(), why, policy, name_of);
        Why { message: skipped.unwrap_or_else(|| why.message.clone()), ..why }
    });
    DryRunStep { step, starts, waiting: tried.waiting, why }
}

/// Why a job would end at once that comes after another one, which has ended.
fn why_skipped(spec: &JobSpec, reason: &Reason) -> Option<String> {
    match (reason, spec.after_tasks) {
        (Reason::Stopped(Stop::After(first)), _) => Some(say_after(spec, *first)),
        (Reason::Ended, Some(first)) => {
            Some(format!("no task of job {first} succeeded, after whose tasks its own come"))
        }
        _ => None,
    }
}
