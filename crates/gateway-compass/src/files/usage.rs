//! What jobs have uploaded: bytes and files, each within its limit.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use windlass_core::JobId;

/// Files that one job may upload.
const RESULT_FILES_MAX: usize = 50_000;
/// Jobs of which it is remembered what they uploaded; of others it is counted again.
const REMEMBERED_MAX: usize = 10_000;

/// The uploads of all jobs, as far as they are remembered.
pub(crate) struct Usage {
    bytes_max: u64,
    used: Mutex<BTreeMap<JobId, Used>>,
}

/// What a job has uploaded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Used {
    bytes: u64,
    files: usize,
}

/// The limit of a job's results that an upload exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum OverLimit {
    #[error("Results too large: those of the job have more than {0} bytes (results_bytes_max of [compass])")]
    Bytes(u64),
    #[error("Results too large: the job has more than {RESULT_FILES_MAX} files")]
    Files,
}

/// Bytes of a file that count for its job. Those of a file that is given up count no more.
pub(crate) struct Written<'a> {
    usage: &'a Usage,
    job: JobId,
    bytes: u64,
    kept: bool,
}

impl Usage {
    /// Nothing is remembered yet. `bytes_max` are the bytes of all files of one job.
    pub fn new(bytes_max: u64) -> Usage {
        Usage { bytes_max, used: Mutex::default() }
    }

    /// Counts what a job has uploaded, unless that is remembered. `count` gives bytes and files.
    pub fn remember(&self, job: JobId, count: impl FnOnce() -> (u64, usize)) {
        if self.used.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&job) {
            return;
        }
        // Counted without the lock, because it may take a while.
        let (bytes, files) = count();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= REMEMBERED_MAX {
            used.pop_first();
        }
        used.entry(job).or_insert(Used { bytes, files });
    }

    /// Refuses another file of a job that has as many as it may.
    pub fn check_files(&self, job: JobId) -> Result<(), OverLimit> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match used.get(&job) {
            Some(used) if used.files >= RESULT_FILES_MAX => Err(OverLimit::Files),
            _ => Ok(()),
        }
    }

    /// A new file of a job, of which nothing is written yet.
    pub fn begin(&self, job: JobId) -> Written<'_> {
        Written { usage: self, job, bytes: 0, kept: false }
    }
}

impl Written<'_> {
    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts the bytes of the next part.
    pub fn add(&mut self, bytes: u64) -> Result<(), OverLimit> {
        let max = self.usage.bytes_max;
        let mut used = self.usage.used.lock().unwrap_or_else(PoisonError::into_inner);
        let used = used.entry(self.job).or_default();
        if used.files >= RESULT_FILES_MAX {
            return Err(OverLimit::Files);
        }
        if used.bytes.saturating_add(bytes) > max {
            return Err(OverLimit::Bytes(max));
        }
        used.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// The file is whole and has its name: it counts from now on.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let mut used = self.usage.used.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(used) = used.get_mut(&self.job) else { return };
        match self.kept {
            true => used.files += 1,
            false => used.bytes = used.bytes.saturating_sub(self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_given_up_counts_no_more() {
        let (usage, job) = (Usage::new(10), JobId(1));
        usage.remember(job, || (4, 1));
        let mut given_up = usage.begin(job);
        given_up.add(6).unwrap();
        assert_eq!(usage.begin(job).add(1), Err(OverLimit::Bytes(10)));
        drop(given_up);
        let mut whole = usage.begin(job);
        whole.add(6).unwrap();
        whole.keep();
        assert_eq!(usage.begin(job).add(1), Err(OverLimit::Bytes(10)));
    }

    #[test]
    fn a_job_has_a_bounded_number_of_files() {
        let (usage, job) = (Usage::new(10), JobId(1));
        usage.remember(job, || (0, RESULT_FILES_MAX));
        assert_eq!(usage.check_files(job), Err(OverLimit::Files));
        assert_eq!(usage.check_files(JobId(2)), Ok(()));
    }
}
