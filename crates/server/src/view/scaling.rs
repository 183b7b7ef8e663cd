//! How many workers are wanted.

use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::job::JobSpec;
use windlass_core::scaling::{Scaling, ScalingSettings, survey};
use windlass_core::{Engine, JobId};

/// The answer for all callers, and of the jobs that it names what says who may read them.
pub struct SeenScaling {
    pub scaling: Scaling,
    pub jobs: BTreeMap<JobId, Arc<JobSpec>>,
}

/// Works out how many workers of each class are wanted.
pub fn scaling(engine: &Engine, settings: &ScalingSettings) -> SeenScaling {
    let scaling = survey(engine, settings);
    let specs = scaling.unrunnable.jobs.iter().filter_map(|id| Some((*id, engine.job(*id)?.spec.clone())));
    let jobs = specs.collect();
    SeenScaling { scaling, jobs }
}
