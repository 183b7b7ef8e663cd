//! Workers on which tasks fail: the launch breaker and the quarantine.
//!
//! **Launch breaker.** A worker on which launches keep failing gets no work for 30 seconds.
//!
//! **Quarantine.** A worker gets no work for a minute if tasks of different jobs keep failing there while tasks succeed
//! elsewhere, or if more tasks of fewer jobs fail there whose others hardly fail elsewhere. Each further quarantine is
//! twice as long. One success there ends the suspicion.
//!
//! A job that fails everywhere counts as one job, however many of its tasks fail, so it puts no worker into quarantine.
//! Nor do the jobs of one user, while tasks of others succeed: a user who submits failing tasks must not be able to take
//! workers from the others.

use crate::ids::JobId;
use crate::time::{NS_PER_S, Time};
use std::collections::BTreeMap;
use std::fmt;

/// Failed launches in a row, of more than one job, that open the breaker.
const LAUNCHES: u32 = 3;
/// How long the breaker leaves a worker out.
const BREAKER_NS: u64 = 30 * NS_PER_S;
/// Failures in a row that raise suspicion, and of how many jobs they must be.
const FAILURES: u32 = 5;
const JOBS: usize = 3;
/// Failures in a row of tasks whose jobs do well elsewhere, and by how much more these must succeed there.
const FAILURES_HERE: u32 = 10;
const DOES_WELL: u64 = 4;
/// How long the first quarantine lasts, and how often that is doubled.
const QUARANTINE_NS: u64 = 60 * NS_PER_S;
const DOUBLINGS: u32 = 6;

/// How an attempt spoke for its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HealthVerdict {
    /// The task of the attempt succeeded.
    Succeeded,
    /// It ran and failed.
    Failed,
    /// It never began to run, and no user or administrator had stopped it.
    NotStarted,
}

/// How a job's tasks have ended so far, on all workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// The number of tasks that succeeded.
    pub succeeded: u64,
    /// The number of attempts that failed.
    pub failed: u64,
}

/// An attempt that ended, as far as it matters to its worker.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The job of the attempt.
    pub job: JobId,
    /// The user who submitted the job.
    pub user: &'a str,
    /// How the job did so far, this attempt included.
    pub record: Record,
}

/// Tasks of the whole farm that succeeded, and of the two users who had the last ones, when that was.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Successes {
    count: u64,
    /// By user, the count at the last success; the latest user last.
    latest: [(Box<str>, u64); 2],
}

impl Successes {
    /// A task of this user succeeded.
    pub fn count(&mut self, user: &str) {
        self.count += 1;
        if &*self.latest[1].0 != user {
            self.latest.swap(0, 1);
            if &*self.latest[1].0 != user {
                self.latest[1].0 = user.into();
            }
        }
        self.latest[1].1 = self.count;
    }

    /// True if a task of another user succeeded after the count was `since`.
    fn of_others(&self, user: &str, since: u64) -> bool {
        self.latest.iter().any(|(other, count)| &**other != user && *count > since)
    }
}

/// Why a worker is left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// This number of launches in a row failed.
    Launches(u32),
    /// This number of tasks in a row failed, of this number of jobs, while others succeeded elsewhere.
    Failures(u32, u32),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Launches(n) => write!(f, "the last {n} tasks sent to it did not start"),
            Fault::Failures(n, jobs) => {
                write!(f, "the last {n} tasks on it failed, of {jobs} jobs, while others succeeded elsewhere")
            }
        }
    }
}

/// What a worker's tasks say of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Left out until then.
    out: Option<(Time, Fault)>,
    launches: u32,
    failures: u32,
    /// Of which jobs these failures and launches were, as far as it matters, and how these had done before.
    jobs: BTreeMap<JobId, Record>,
    /// The user who submitted the first of them.
    user: Option<Box<str>>,
    /// Other users submitted some of them.
    of_several: bool,
    /// How many tasks had succeeded on the farm when the row of failures began.
    succeeded_then: u64,
    /// Quarantines in a row.
    times: u32,
}

impl Health {
    /// Until when and why it is left out.
    pub fn out(&self) -> Option<(Time, Fault)> {
        self.out
    }

    /// It is tried again.
    pub fn readmit(&mut self) {
        self.out = None;
        (self.launches, self.failures) = (0, 0);
        self.jobs.clear();
        (self.user, self.of_several) = (None, false);
    }

    /// An attempt ended here. `successes` are those of the whole farm so far. True if the worker is left out
    /// from now on.
    pub fn ended(&mut self, now: Time, of: Ended<'_>, verdict: HealthVerdict, successes: &Successes) -> bool {
        let Ended { job, user, record } = of;
        match verdict {
            HealthVerdict::Succeeded => {
                self.readmit();
                self.times = 0;
                return false;
            }
            // What ran there already says nothing new, and must not lengthen the time.
            _ if self.out.is_some() => return true,
            HealthVerdict::Failed => self.launches = 0,
            HealthVerdict::NotStarted => self.launches += 1,
        }
        if self.failures == 0 {
            self.succeeded_then = successes.count;
        }
        match &self.user {
            None => self.user = Some(user.into()),
            Some(first) => self.of_several |= &**first != user,
        }
        self.failures += 1;
        let then = self.jobs.get(&job).copied().unwrap_or(record);
        if self.jobs.len() < JOBS {
            self.jobs.insert(job, then);
        }
        // Of this job, since its first failure in the row: that one is in both. What is not durable may be
        // taken back, and a retry forgets failures.
        let well = record.succeeded.saturating_sub(then.succeeded);
        let badly = record.failed.saturating_sub(then.failed).saturating_sub(u64::from(self.failures));
        let only_here =
            self.failures >= FAILURES_HERE && well >= u64::from(FAILURES_HERE) && well >= DOES_WELL * badly;
        let elsewhere = successes.count - self.succeeded_then;
        let of_many = self.jobs.len() >= JOBS && elsewhere >= u64::from(FAILURES);
        let is_believed = self.of_several || !successes.of_others(user, self.succeeded_then);
        if is_believed && (self.failures >= FAILURES && of_many || only_here) {
            let lasts_ns = QUARANTINE_NS << self.times.min(DOUBLINGS);
            self.times += 1;
            self.out = Some((now.after(lasts_ns), Fault::Failures(self.failures, self.jobs.len() as u32)));
        } else if self.launches >= LAUNCHES && self.jobs.len() > 1 {
            self.out = Some((now.after(BREAKER_NS), Fault::Launches(self.launches)));
        }
        self.out.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000 * NS_PER_S);

    /// A job that has done nothing but fail.
    fn of(job: u64) -> Ended<'static> {
        Ended { job: JobId(job), user: "ann", record: Record::default() }
    }

    /// A farm on which `count` tasks succeeded, all of them Ann's.
    fn so_far(count: u64) -> Successes {
        Successes { count, latest: [(Box::default(), 0), ("ann".into(), count)] }
    }

    /// After how many attempts of one job that fail here the worker is left out. For ten of them, `succeed` tasks of the job
    /// succeed elsewhere, and `fail` fail.
    fn failures_here(succeed: u64, fail: u64) -> Option<u64> {
        let mut health = Health::default();
        (1..=40).find(|n| {
            let record = Record { succeeded: n * succeed / 10, failed: n + n * fail / 10 };
            let of = Ended { record, ..of(1) };
            health.ended(NOW, of, HealthVerdict::Failed, &so_far(record.succeeded))
        })
    }

    #[test]
    fn a_job_that_does_well_elsewhere_speaks_against_the_worker() {
        assert_eq!(failures_here(40, 0), Some(10));
        assert_eq!(failures_here(10, 2), Some(11), "one of six fails elsewhere");
        assert_eq!(failures_here(10, 10), None, "half of them fail everywhere");
        assert_eq!(failures_here(0, 0), None, "there is no elsewhere");
    }

    #[test]
    fn a_poison_job_harms_no_worker() {
        let mut health = Health::default();
        for n in 0..100 {
            assert!(!health.ended(NOW, of(1), HealthVerdict::Failed, &so_far(n)));
            assert!(!health.ended(NOW, of(1), HealthVerdict::NotStarted, &so_far(n)));
        }
    }

    #[test]
    fn failures_of_many_jobs_count_only_while_others_succeed_elsewhere() {
        let mut health = Health::default();
        assert!(
            (0..20).all(|n| !health.ended(NOW, of(n), HealthVerdict::Failed, &so_far(7))),
            "everything fails"
        );
        assert!(health.ended(NOW, of(21), HealthVerdict::Failed, &so_far(12)));
        assert_eq!(health.out(), Some((NOW.after(60 * NS_PER_S), Fault::Failures(21, 3))));
    }

    #[test]
    fn each_quarantine_is_twice_as_long_until_something_succeeds() {
        let mut health = Health::default();
        let spoil = |health: &mut Health| {
            health.readmit();
            let mut out = false;
            for n in 0..5 {
                out = health.ended(NOW, of(n), HealthVerdict::Failed, &so_far(n * 10));
            }
            assert!(out);
            health.out().map(|(until, _)| until.since(NOW) / NS_PER_S)
        };
        let lasts: Vec<_> = (0..8).map(|_| spoil(&mut health)).collect();
        assert_eq!(lasts, [60, 120, 240, 480, 960, 1920, 3840, 3840].map(Some));
        assert!(!health.ended(NOW, of(1), HealthVerdict::Succeeded, &so_far(0)));
        assert_eq!(spoil(&mut health), Some(60));
    }

    #[test]
    fn what_ran_there_already_does_not_lengthen_a_quarantine() {
        let mut health = Health::default();
        let all: Vec<bool> =
            (0..64).map(|n| health.ended(NOW, of(n), HealthVerdict::Failed, &so_far(n * 10))).collect();
        assert_eq!(all.iter().filter(|out| **out).count(), 60);
        assert_eq!(health.out(), Some((NOW.after(60 * NS_PER_S), Fault::Failures(5, 3))));
    }

    #[test]
    fn launches_of_two_jobs_that_come_to_nothing_open_the_breaker() {
        let mut health = Health::default();
        assert!(!health.ended(NOW, of(1), HealthVerdict::NotStarted, &so_far(0)));
        assert!(!health.ended(NOW, of(2), HealthVerdict::NotStarted, &so_far(0)));
        assert!(health.ended(NOW, of(2), HealthVerdict::NotStarted, &so_far(0)));
        assert_eq!(health.out(), Some((NOW.after(30 * NS_PER_S), Fault::Launches(3))));
    }

    #[test]
    fn one_user_alone_takes_no_worker_from_others() {
        let spoil = |others: bool, second: &'static str| {
            let (mut health, mut successes) = (Health::default(), Successes::default());
            (0..40).any(|n| {
                successes.count("bob");
                (0..2).for_each(|_| successes.count(if others { "cyn" } else { "bob" }));
                let user = if n == 9 { second } else { "bob" };
                health.ended(NOW, Ended { user, ..of(n % 5) }, HealthVerdict::Failed, &successes)
            })
        };
        assert!(spoil(false, "bob"), "only bob works here: what is wrong is the worker");
        assert!(!spoil(true, "bob"), "bob's tasks fail where others' succeed");
        assert!(spoil(true, "dan"), "and those of another user fail there too");
    }

    #[test]
    fn of_two_users_the_last_successes_are_known() {
        let mut successes = Successes::default();
        for user in ["ann", "bob", "ann", "ann", "cyn"] {
            successes.count(user);
        }
        assert_eq!(successes.count, 5);
        assert!(
            successes.of_others("ann", 4) && !successes.of_others("cyn", 4) && successes.of_others("cyn", 3)
        );
        assert!(!successes.of_others("bob", 5));
    }
}
