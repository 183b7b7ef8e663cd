//! Job and task selectors: `12`, `1-5`, `1,3`, `last`, `12.3`.

use crate::client::user::user_on;
use crate::ui::error::{CliError, Doing, NOT_FOUND};
use std::str::FromStr;
use windlass_api::Job;
use windlass_api::client::{Client, JobsQuery};
use windlass_api::quantity::digits;

/// Jobs of one request to the server.
const JOBS_PAGE: usize = 1000;

/// Most jobs in one range: more is taken for a typing error.
const RANGE_MAX: u64 = 100_000;

/// A selector that names one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobRef {
    Id(u64),
    /// The user's job that was submitted last.
    Last,
}

/// One or more jobs, separated by commas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Jobs(Vec<SelectedEntry>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SelectedEntry {
    One(JobRef),
    Range(u64, u64),
}

/// A task, or a job as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskOrJob {
    /// A task by its job and its index there.
    Task(JobRef, u32),
    Job(JobRef),
}

/// A job that a selector named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Number of the job on its server.
    pub id: u64,
    /// True if it was in a range, where a missing job is not an error.
    pub in_range: bool,
}

impl FromStr for JobRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "last" => Ok(JobRef::Last),
            _ => digits(text)
                .map(JobRef::Id)
                .ok_or_else(|| format!("invalid job id '{text}': write 12, or last")),
        }
    }
}

impl FromStr for Jobs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(|part| match part.split_once('-') {
            None => part.parse().map(SelectedEntry::One),
            Some((first, last)) => match (digits::<u64>(first), digits::<u64>(last)) {
                (Some(first), Some(last)) if first <= last && last - first < RANGE_MAX => {
                    Ok(SelectedEntry::Range(first, last))
                }
                _ => Err(format!("invalid range of job ids '{part}': write 1-5")),
            },
        });
        entries.collect::<Result<_, _>>().map(Jobs)
    }
}

impl FromStr for TaskOrJob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is neither a task id (12.3) nor a job id (12, or 'last')");
        match text.split_once('.') {
            None => text.parse().map(TaskOrJob::Job).map_err(|_| bad()),
            Some((job, index)) => {
                let index = digits(index).ok_or_else(bad)?;
                Ok(TaskOrJob::Task(job.parse().map_err(|_| bad())?, index))
            }
        }
    }
}

impl JobRef {
    /// The job's id; asks the server for `last`.
    pub async fn resolve(self, client: &Client) -> Result<u64, CliError> {
        if let JobRef::Id(id) = self {
            return Ok(id);
        }
        let query = JobsQuery { user: Some(user_on(client).await?), ..Default::default() };
        let (jobs, _) = jobs_of(client, query, 1).await?;
        jobs.first().map(|job| job.id).ok_or_else(|| CliError::NotFound {
            message: "there is no last job: you have not submitted any".to_owned(),
            hint: Some("'windlass run -- COMMAND' submits one".to_owned()),
        })
    }
}

/// The ids of all selected jobs, in the order given, each once.
pub async fn resolve_all(client: &Client, selectors: &[Jobs]) -> Result<Vec<Named>, CliError> {
    let mut named: Vec<Named> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for entry in selectors.iter().flat_map(|jobs| &jobs.0) {
        let (first, last, in_range) = match *entry {
            SelectedEntry::Range(first, last) => (first, last, true),
            SelectedEntry::One(one) => {
                let id = one.resolve(client).await?;
                (id, id, false)
            }
        };
        named.extend((first..=last).filter(|id| seen.insert(*id)).map(|id| Named { id, in_range }));
    }
    Ok(named)
}

/// Collects the errors of an action on many jobs. Jobs of a range may be missing, but not all of them.
#[derive(Default)]
pub struct Outcomes {
    done: usize,
    holes: usize,
    first: Option<i32>,
}

impl Outcomes {
    /// Counts one result and returns its value. Errors are printed at once.
    pub fn take<T>(&mut self, named: Named, result: Result<T, CliError>, json: bool) -> Option<T> {
        match result {
            Ok(value) => {
                self.done += 1;
                Some(value)
            }
            Err(error) if named.in_range && error.exit_code() == NOT_FOUND => {
                self.holes += 1;
                None
            }
            Err(error) => {
                error.print(json);
                self.first.get_or_insert(error.exit_code());
                None
            }
        }
    }

    /// The code of the first error as the end of the command.
    pub fn finish(self) -> Result<(), CliError> {
        match self.first {
            Some(code) => Err(CliError::Exit(code)),
            None if self.done == 0 && self.holes > 0 => {
                Err(CliError::NotFound { message: "no job of the range exists".to_owned(), hint: None })
            }
            None => Ok(()),
        }
    }
}

/// Up to `limit` jobs that a query finds, newest first, and whether there are more.
pub async fn jobs_of(client: &Client, query: JobsQuery, limit: usize) -> Result<(Vec<Job>, bool), CliError> {
    jobs_since(client, query, limit, 0).await
}

/// The same of those submitted at `since_ms` or later by the server's clock. No page is read after one that has only
/// older jobs: a clock that was set may have put some jobs out of order.
pub async fn jobs_since(
    client: &Client,
    mut query: JobsQuery,
    limit: usize,
    since_ms: u64,
) -> Result<(Vec<Job>, bool), CliError> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut more = limit > 0;
    while more && jobs.len() < limit {
        query.limit = Some(JOBS_PAGE.min(limit - jobs.len()));
        let page = client.jobs(&query).await.doing("list the jobs")?;
        let is_older = !page.items.is_empty() && page.items.iter().all(|job| job.created_ms < since_ms);
        jobs.extend(page.items.into_iter().filter(|job| job.created_ms >= since_ms));
        query.cursor = page.next;
        more = query.cursor.is_some() && !is_older;
    }
    jobs.truncate(limit);
    Ok((jobs, more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_selectors() {
        let one = |id| SelectedEntry::One(JobRef::Id(id));
        assert_eq!("12".parse(), Ok(Jobs(vec![one(12)])));
        assert_eq!("1,3".parse(), Ok(Jobs(vec![one(1), one(3)])));
        assert_eq!(
            "1-5,last".parse(),
            Ok(Jobs(vec![SelectedEntry::Range(1, 5), SelectedEntry::One(JobRef::Last)]))
        );
        assert_eq!("7-7".parse(), Ok(Jobs(vec![SelectedEntry::Range(7, 7)])));
    }

    #[test]
    fn odd_job_selectors_are_refused() {
        for text in
            ["", ",", "1,", "a", "-1", "1-", "5-1", "1-2-3", "+1", " 1", "0-99999999999", "1.5", "LAST"]
        {
            assert!(text.parse::<Jobs>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn tasks_and_jobs() {
        assert_eq!("12".parse(), Ok(TaskOrJob::Job(JobRef::Id(12))));
        assert_eq!("12.3".parse(), Ok(TaskOrJob::Task(JobRef::Id(12), 3)));
        assert_eq!("last.0".parse(), Ok(TaskOrJob::Task(JobRef::Last, 0)));
        for text in ["", ".", "12.", ".3", "1.2.3", "12.-1", "12.4294967296", "x.1", "1-5"] {
            assert!(text.parse::<TaskOrJob>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_hole_in_a_range_is_no_error_but_a_range_of_holes_is() {
        let missing = || CliError::NotFound { message: "no such job".to_owned(), hint: None };
        let mut outcomes = Outcomes::default();
        assert_eq!(outcomes.take::<()>(Named { id: 1, in_range: true }, Err(missing()), false), None);
        assert_eq!(outcomes.take(Named { id: 2, in_range: true }, Ok(7), false), Some(7));
        assert!(outcomes.finish().is_ok());
        let mut outcomes = Outcomes::default();
        outcomes.take::<()>(Named { id: 1, in_range: true }, Err(missing()), false);
        assert_eq!(outcomes.finish().unwrap_err().exit_code(), 3);
    }
}
