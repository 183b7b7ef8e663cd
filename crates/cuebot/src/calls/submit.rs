//! Submission of jobs by their specs.

use super::jobs;
use crate::cuebot::Cuebot;
use crate::generated::job as wire;
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
    let spec = Arc::new(spec::parse(text)?);
    let names = spec.jobs.iter().map(|job| job.name.clone()).collect();
    let settings = Arc::new(cuebot.settings.clone());
    let ids = cuebot
        .transact(move |tx| {
            let (spec, settings) = (spec.clone(), settings.clone());
            Box::pin(async move { launch::launch(tx, &spec, &settings).await })
        })
        .await?;
    Ok((ids, names))
}

/// Makes the jobs of a spec. Cuebot answers before it has made them; here the jobs exist when the answer comes.
pub(crate) async fn launch(
    cuebot: Arc<Cuebot>,
    ask: wire::JobLaunchSpecRequest,
) -> Result<wire::JobLaunchSpecResponse, CallError> {
    let (_, names) = submit(&cuebot, &ask.spec).await?;
    Ok(wire::JobLaunchSpecResponse { names })
}

/// Makes the jobs of a spec, and answers with them.
pub(crate) async fn launch_and_wait(
    cuebot: Arc<Cuebot>,
    ask: wire::JobLaunchSpecAndWaitRequest,
) -> Result<wire::JobLaunchSpecAndWaitResponse, CallError> {
    let (ids, _) = submit(&cuebot, &ask.spec).await?;
    let criteria = wire::JobSearchCriteria { ids, include_finished: true, ..Default::default() };
    let jobs = jobs::search(&cuebot, &criteria).await?;
    Ok(wire::JobLaunchSpecAndWaitResponse { jobs: Some(wire::JobSeq { jobs }) })
}
