//! Jobs that come after other jobs, as a submission lists them.

use std::collections::BTreeMap;
use windlass_core::JobId;
use windlass_core::job::AfterEnd;

/// The jobs that a job comes after, and how those of them must end that need not succeed.
pub type After = (Vec<JobId>, BTreeMap<JobId, AfterEnd>);

/// The jobs that must succeed, those that must end, and those that must not succeed. The error is a job that is in two
/// of these lists.
pub fn after_of(ok: Vec<u64>, any: Vec<u64>, not_ok: Vec<u64>) -> Result<After, u64> {
    let mut all: BTreeMap<JobId, AfterEnd> = BTreeMap::new();
    for (jobs, end) in [(ok, AfterEnd::Ok), (any, AfterEnd::Any), (not_ok, AfterEnd::NotOk)] {
        for job in jobs {
            if all.insert(JobId(job), end).is_some_and(|before| before != end) {
                return Err(job);
            }
        }
    }
    let jobs = all.keys().copied().collect();
    all.retain(|_, end| *end != AfterEnd::Ok);
    Ok((jobs, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_in_one_list() {
        let (jobs, ends) = after_of(vec![3, 1, 3], vec![2], vec![5]).unwrap();
        assert_eq!(jobs, [1, 2, 3, 5].map(JobId));
        assert_eq!(ends, [(JobId(2), AfterEnd::Any), (JobId(5), AfterEnd::NotOk)].into());
        assert_eq!(after_of(vec![3], vec![], vec![3]), Err(3));
    }
}
