//! The bytes and files that jobs have uploaded, and their limits.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use windlass_core::JobId;

/// Files that one job may upload.
const RESULT_FILES_MAX: usize = 50_000;
/// Jobs whose uploads are remembered. Those of other jobs are counted again on disk.
const REMEMBERED_MAX: usize = 10_000;

/// The uploads of all jobs, as far as they are remembered.
pub(crate) struct Usage {
    bytes_max: u64,
    used: Mutex<BTreeMap<JobId, Used>>,
}

/// The uploads of one job.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Used {
    bytes: u64,
    files: usize,
}

/// The limit that an upload exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum OverLimit {
    #[error("Results too large: those of the job have more than {0} bytes (results_bytes_max of [compass])")]
    Bytes(u64),
    #[error("Results too large: the job has more than {RESULT_FILES_MAX} files")]
    Files,
}

/// A file that is being uploaded. Its bytes count for the job, and count no longer if the upload is given up.
pub(crate) struct Written<'a> {
    usage: &'a Usage,
    job: JobId,
    bytes: u64,
    kept: bool,
}

impl Usage {
    /// No job is remembered yet. `bytes_max` bounds the bytes of all files of one job.
    pub fn new(bytes_max: u64) -> Usage {
        Usage { bytes_max, used: Mutex::default() }
    }

    /// Counts a job's uploads unless they are remembered. `count` returns bytes and files.
    pub fn remember(&self, job: JobId, count: impl FnOnce() -> (u64, usize)) {
        if self.used.lock().contains_key(&job) {
            return;
        }
        // Counted without the lock, because counting reads the directory.
        let (bytes, files) = count();
        let mut used = self.used.lock();
        if used.len() >= REMEMBERED_MAX {
            used.pop_first();
        }
        used.entry(job).or_insert(Used { bytes, files });
    }

    /// Refuses a further file once the job has the largest number of files.
    pub fn check_files(&self, job: JobId) -> Result<(), OverLimit> {
        let used = self.used.lock();
        match used.get(&job) {
            Some(used) if used.files >= RESULT_FILES_MAX => Err(OverLimit::Files),
            _ => Ok(()),
        }
    }

    /// Begins to count a new file of the job.
    pub fn begin(&self, job: JobId) -> Written<'_> {
        Written { usage: self, job, bytes: 0, kept: false }
    }
}

impl Written<'_> {
    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts further bytes of the file.
    pub fn add(&mut self, bytes: u64) -> Result<(), OverLimit> {
        let max = self.usage.bytes_max;
        let mut used = self.usage.used.lock();
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

    /// Counts the file as one of the job's files: it is whole and has its name.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let mut used = self.usage.used.lock();
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
