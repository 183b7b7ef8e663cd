//! The filling in of jobs: when it is asked for, and what follows from it.

use super::filler::Fill;
use super::run::Run;
use super::{Effect, Lab};
use crate::fill::Unfilled;
use crate::format::{Fields, Health, Stage, text_of};
use crate::number::{step_of, task_of};
use std::sync::Arc;
use windlass_api::StepBody;
use windlass_core::JobId;

impl Lab {
    /// The body of a job's step. It is read from the store for runs that were taken over from an earlier server.
    pub(super) async fn body_of(&mut self, job: JobId) -> Option<Arc<StepBody>> {
        if let Some(body) = self.runs.get(job)?.body.clone() {
            return Some(body);
        }
        let task = task_of(job);
        let raw = self.handle.store().body(task.job, step_of(task)).await.ok()??;
        let body = Arc::new(serde_json::from_slice::<StepBody>(&raw).ok()?);
        self.runs.get_mut(job)?.body = Some(body.clone());
        Some(body)
    }

    /// Asks for a job to be filled in. [`Lab::filled`] follows.
    pub(super) async fn fill(&mut self, job: JobId) {
        let Some(body) = self.body_of(job).await else { return };
        let Some(run) = self.runs.get(job) else { return };
        let place = run.place().clone();
        let host = self.hosts.get(run.host());
        let arch = host.and_then(|host| host.attributes.get("arch")?.first().cloned());
        let named = body.compass.as_ref().and_then(|fields| text_of(fields, "testbox")).unwrap_or_default();
        // A guest on a named host has the registered fields of its size: `vm-2p8g.HOST` those of `vm-2p8g`.
        let named = named.split('.').next().unwrap_or_default();
        let testbox = self.hosts.get(named).or(host.filter(|_| place.hw)).map(|host| host.info.clone());
        let fill = Fill { job, body, place, arch, testbox: testbox.unwrap_or_default() };
        // The filler ends only when the laboratory is dropped.
        _ = self.fills.send(fill);
    }

    pub(super) fn filled(&mut self, job: JobId, attempt: u32, filled: Result<Fields, Unfilled>) {
        let waits = |run: &&mut Run| {
            run.place().attempt == attempt
                && run.record.filled.is_none()
                && run.record.stage == Stage::Dispatch
        };
        let Some(run) = self.runs.get_mut(job).filter(waits) else { return };
        if run.kill.is_some() {
            // The host was not told of the job yet.
            return self.end_run(job, Health::Terminate);
        }
        match filled {
            Ok(fields) => {
                run.record.filled = Some(fields);
                self.keep(job);
                self.effects.push(Effect::Boot(job));
            }
            Err(why) => {
                run.record.why = Some(why.to_string());
                self.end_run(job, Health::AbortInvalid);
            }
        }
    }

    /// Fills in jobs of a provider that reconnected: an earlier server gave them to it and ended before it told it.
    pub(super) async fn fill_rest(&mut self, name: &str) {
        let untold = |run: &Run| {
            run.record.filled.is_none()
                && run.record.stage == Stage::Dispatch
                && run.kill.is_none()
                && run.body.is_none()
                && !run.place().reached.server.is_empty()
        };
        let untold: Vec<JobId> =
            self.runs.on(name).filter(|(_, run)| untold(run)).map(|(job, _)| job).collect();
        for job in untold {
            self.fill(job).await;
        }
    }
}
