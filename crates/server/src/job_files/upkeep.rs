//! What goes on beside requests: jobs end and are forgotten, and so is what belongs to them.

use super::error::FilesTrouble;
use super::state::FilesState;
use crate::job_ends::JobsOver;
use crate::metric_text::MetricFamily;
use std::sync::Arc;
use std::time::Duration;

/// After this what failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Lets go of what belongs to jobs that are over, until the server ends.
pub(crate) async fn keep_up(state: Arc<FilesState>) {
    let ends = state.handle.parts().job_ends.clone();
    let mut over = JobsOver::none();
    // What an earlier process left is read at once, so that inputs of jobs that ended meanwhile do not stay pinned.
    let mut is_behind = state.is_used();
    loop {
        let done = async {
            if is_behind {
                begin(&state).await?;
                is_behind = false;
            }
            over.add(ends.take());
            state.settle(&mut over).await
        };
        if let Err(trouble) = done.await {
            state.tell("the end of jobs with files", &trouble);
        }
        let is_over = over.is_none() && !is_behind;
        tokio::select! {
            () = ends.rung() => {}
            () = tokio::time::sleep(AGAIN_AFTER), if !is_over => {}
            () = state.handle.ends() => return,
        }
    }
}

async fn begin(state: &FilesState) -> Result<(), FilesTrouble> {
    state.jobs().await?;
    state.forget_deleted().await
}

impl FilesState {
    /// The lines of `/metrics`: none before a job had files.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let Some(jobs) = self.known_jobs() else { return text };
        let gauge = |text: &mut String, name, help, value: usize| {
            MetricFamily::gauge(name, help).write_one(text, value as f64);
        };
        gauge(&mut text, "windlass_cas_jobs", "Jobs with files that have not ended", jobs.len());
        gauge(
            &mut text,
            "windlass_cas_job_inputs",
            "Different inputs that these jobs need",
            jobs.inputs.len(),
        );
        text
    }
}
