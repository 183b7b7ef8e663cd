//! `max_run`: a job is refused while this number of jobs with the same parameters are stored, in any state and of any
//! user.

use crate::format::{Fields, is_compass, text_of};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use tokio::sync::MutexGuard;
use windlass_api::StepBody;
use windlass_core::JobId;
use windlass_server::{Handle, Unavailable};
use windlass_store::JobFilter;

/// The newest jobs, which are read when the first job with `max_run` is submitted.
const SCANNED_MAX: usize = 50_000;
/// Jobs of one read.
const PAGE: usize = 1_000;
/// Jobs whose parameters are remembered. Beyond that they are forgotten and read again.
const KNOWN_MAX: usize = 500_000;
/// The largest limit that a job may give.
const LIMIT_MAX: u64 = 10_000;

/// Jobs by the sums of their parameters. They are read when the first job with `max_run` is submitted.
#[derive(Default)]
pub(crate) struct MaxRuns {
    /// Held by one submission with a limit at a time. Two could otherwise both take the last place.
    turn: tokio::sync::Mutex<()>,
    known: Mutex<Option<BTreeSet<(u128, u64)>>>,
}

/// Why a submission with a limit is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TooManyRuns {
    #[error(
        "the number of jobs with the same all_params_md5={sum} has reached the limit of max_run={max}, \
         the total number is {total}"
    )]
    Reached { sum: String, max: u64, total: usize },
    #[error("Job Format Error: max_run: must be a whole number from 1 to {LIMIT_MAX}, not '{0}'")]
    Bad(String),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl MaxRuns {
    /// Admits a job that has no limit or has not reached it. Further jobs with a limit wait until the returned guard is
    /// dropped, after the job was added.
    pub async fn enter(
        &self,
        handle: &Handle,
        fields: &Fields,
    ) -> Result<Option<MutexGuard<'_, ()>>, TooManyRuns> {
        let Some(text) = text_of(fields, "max_run").filter(|text| !text.is_empty()) else { return Ok(None) };
        let max =
            text.parse().ok().filter(|max| (1..=LIMIT_MAX).contains(max)).ok_or(TooManyRuns::Bad(text))?;
        let turn = self.turn.lock().await;
        self.look(handle).await?;
        let sum = text_of(fields, "all_params_md5").unwrap_or_default();
        let total = self.count(handle, &sum).await?;
        if total as u64 >= max {
            return Err(TooManyRuns::Reached { sum, max, total });
        }
        Ok(Some(turn))
    }

    /// Counts a stored job. A job on several nodes counts once, by its first node.
    pub fn add(&self, job: JobId, fields: &Fields) {
        let mut known = self.known.lock();
        let Some(all) = known.as_mut() else { return };
        if let Some(sum) = sum_of(fields) {
            all.insert((sum, job.0));
        }
        if all.len() > KNOWN_MAX {
            *known = None;
        }
    }

    /// Reads the stored jobs, unless they were read. Jobs that are added meanwhile count, too.
    async fn look(&self, handle: &Handle) -> Result<(), Unavailable> {
        {
            let mut known = self.known.lock();
            if known.is_some() {
                return Ok(());
            }
            *known = Some(BTreeSet::new());
        }
        let looked = self.look_all(handle).await;
        if looked.is_err() {
            *self.known.lock() = None;
        }
        looked
    }

    async fn look_all(&self, handle: &Handle) -> Result<(), Unavailable> {
        let failed = |error| Unavailable::from_store(&error);
        let (mut before, mut looked) = (None, 0);
        while looked < SCANNED_MAX {
            let part = handle.store().jobs(JobFilter::default(), before, PAGE, PAGE).await.map_err(failed)?;
            for job in part.jobs.iter().filter(|job| is_compass(&job.spec)) {
                let body = handle.store().body(job.id, 0).await.map_err(failed)?;
                let body = body.and_then(|raw| serde_json::from_slice::<StepBody>(&raw).ok());
                if let Some(fields) = body.and_then(|body| body.compass) {
                    self.add(job.id, &fields);
                }
            }
            (before, looked) = (part.next, looked + part.rows);
            if before.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The number of jobs with this sum, without jobs that were deleted meanwhile.
    async fn count(&self, handle: &Handle, sum: &str) -> Result<usize, Unavailable> {
        let Ok(sum) = u128::from_str_radix(sum, 16) else { return Ok(0) };
        let jobs: Vec<u64> = {
            let known = self.known.lock();
            let all = known.iter().flat_map(|all| all.range((sum, 0)..=(sum, u64::MAX)));
            all.map(|(_, job)| *job).take(LIMIT_MAX as usize).collect()
        };
        let mut total = 0;
        for job in jobs {
            let there =
                handle.store().job(JobId(job)).await.map_err(|error| Unavailable::from_store(&error))?;
            match there {
                Some(_) => total += 1,
                None => {
                    let mut known = self.known.lock();
                    known.as_mut().map(|all| all.remove(&(sum, job)));
                }
            }
        }
        Ok(total)
    }
}

fn sum_of(fields: &Fields) -> Option<u128> {
    u128::from_str_radix(&text_of(fields, "all_params_md5")?, 16).ok()
}
