//! Submission of jobs by their specs.

use super::fields::Answer;
use super::jobs;
use crate::cuebot::Cuebot;
use crate::generated::job::*;
use crate::launch;
use crate::routes::{Routes, unary};
use crate::spec;
use crate::trouble::CallError;
use std::sync::Arc;

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route("/job.JobInterface/LaunchSpec", unary(launch))
        .route("/job.JobInterface/LaunchSpecAndWait", unary(launch_and_wait))
}

async fn submit(cuebot: &Cuebot, text: &str) -> Result<(Vec<String>, Vec<String>), CallError> {
    let spec = spec::parse(text)?;
    let names = spec.jobs.iter().map(|job| job.name.clone()).collect();
    let given = (spec, &cuebot.settings);
    let ids =
        cuebot.transact(given, |tx, (spec, settings)| Box::pin(launch::launch(tx, spec, settings))).await?;
    Ok((ids, names))
}

/// Makes the jobs of a spec. Cuebot answers before it has made them; here the jobs exist when the answer comes.
async fn launch(cuebot: Arc<Cuebot>, ask: JobLaunchSpecRequest) -> Answer<JobLaunchSpecResponse> {
    let (_, names) = submit(&cuebot, &ask.spec).await?;
    Ok(JobLaunchSpecResponse { names })
}

/// Makes the jobs of a spec, and answers with them.
async fn launch_and_wait(
    cuebot: Arc<Cuebot>,
    ask: JobLaunchSpecAndWaitRequest,
) -> Answer<JobLaunchSpecAndWaitResponse> {
    let (ids, _) = submit(&cuebot, &ask.spec).await?;
    let criteria = JobSearchCriteria { ids, include_finished: true, ..Default::default() };
    let jobs = jobs::search(&cuebot, &criteria).await?;
    Ok(JobLaunchSpecAndWaitResponse { jobs: Some(JobSeq { jobs }) })
}
