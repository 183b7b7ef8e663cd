//! What a submission names that the farm may not have: limits, which are refused, and a queue, which is made.

use super::App;
use crate::api_error::ApiError;
use std::collections::BTreeSet;
use windlass_api::{ErrorCode, nearest};
use windlass_core::Engine;
use windlass_core::job::JobSpec;
use windlass_core::queues::band_of;

/// Names of limits that an error lists.
const NAMES_SHOWN_MAX: usize = 10;

/// The names in a submission that are looked up.
#[derive(Default)]
pub(super) struct SubmissionNames {
    limits: BTreeSet<String>,
    /// The queue, unless it is the one of the user's name, which the user's first job makes, or `vip` or `idle`.
    queue: Option<String>,
}

/// A limit that is not set, and those that are.
struct UnsetLimit {
    name: String,
    /// The one that may be meant.
    near: Option<String>,
    /// The names of the first that are set.
    set: Vec<String>,
}

impl SubmissionNames {
    pub fn of(spec: &JobSpec) -> SubmissionNames {
        let limits = spec.steps.iter().flat_map(|step| step.limits.iter().cloned()).collect();
        // The names that mean a band are not mistyped ones either.
        let is_new_name = spec.queue != spec.user && band_of(&spec.queue) == band_of("");
        SubmissionNames { limits, queue: is_new_name.then(|| spec.queue.clone()) }
    }

    /// Those of what waits for limits and makes no job.
    pub fn of_limits(limits: BTreeSet<String>) -> SubmissionNames {
        SubmissionNames { limits, queue: None }
    }

    /// Refuses a limit that is not set, unless `limit_unset_ok`: a mistyped one would let tasks run without a licence. A
    /// limit that is removed later holds nothing back from then on. True if the submission makes its queue.
    pub async fn check(self, app: &App, limit_unset_ok: bool) -> Result<bool, ApiError> {
        let SubmissionNames { limits, queue } = self;
        if limits.is_empty() && queue.is_none() {
            return Ok(false);
        }
        let look = move |engine: &Engine| {
            let unset = if limit_unset_ok { None } else { unset_limit(engine, &limits) };
            (unset, queue.is_some_and(|queue| engine.queues().id(&queue).is_none()))
        };
        let (unset, is_new_queue) = app.handle.query(look).await?;
        match unset {
            Some(unset) => Err(unset.refusal()),
            None => Ok(is_new_queue),
        }
    }
}

fn unset_limit(engine: &Engine, limits: &BTreeSet<String>) -> Option<UnsetLimit> {
    let set = engine.licences().limits();
    let name = limits.iter().find(|name| !set.contains_key(*name))?;
    Some(UnsetLimit {
        name: name.clone(),
        near: nearest(name, set.keys().map(String::as_str)).map(str::to_owned),
        set: set.keys().take(NAMES_SHOWN_MAX).cloned().collect(),
    })
}

impl UnsetLimit {
    fn refusal(&self) -> ApiError {
        let name = &self.name;
        let meant = self.near.as_ref().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        let set = match self.set.as_slice() {
            [] => "no limit is set".to_owned(),
            set => format!("the limits are {}", set.join(", ")),
        };
        ApiError::new(ErrorCode::BadRequest, format!("there is no limit '{name}'{meant}")).hint(format!(
            "{set}; 'windlass limit set {name} N' sets it, and --limit-unset-ok (limit_unset_ok) submits without it"
        ))
    }
}
