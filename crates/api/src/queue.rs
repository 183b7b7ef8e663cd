//! The JSON of queues.

use crate::word::words_of;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;
use windlass_core::queues::{self as core, QueueRecord};

/// A queue that has or had work, or that an administrator configured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// The queue's name, unique on the farm.
    pub name: String,
    /// The band, 0 to 9; a higher band is served first.
    pub band: u8,
    /// Its weight in its band.
    pub weight: u32,
    /// Cpus that its tasks may hold while other queues could use them. Absent: the queue has no quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_cpus: Option<f64>,
    /// Cpus that its tasks may hold while no other queue can use them; absent is the quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_cpus: Option<f64>,
    /// The note of an administrator who paused it; absent if it is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Users who may submit to it, besides administrators and the user of its name; `*` is all users.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub users: BTreeSet<String>,
    /// Whether its users take turns, or all its jobs are in one order.
    #[serde(default)]
    pub turns: TurnsBy,
    /// Weights of its users against each other; 100 for a user who is not listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user_weights: BTreeMap<String, u32>,
    /// Whether steps that say nothing of a jobserver have one; absent: builds that a client detected have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobserver: Option<bool>,
    /// Tasks booked or running.
    pub running: u32,
    /// Cpus that these tasks hold.
    #[serde(default)]
    pub running_cpus: f64,
    /// Ready tasks, parked ones included.
    #[serde(default)]
    pub waiting: u64,
    /// Steps with ready tasks that are in memory.
    pub ready_steps: usize,
    /// Parked jobs: their turn is so far off that only the store has them.
    #[serde(default)]
    pub parked_jobs: u64,
    /// Tasks booked since the server started.
    pub booked: u64,
    /// What the queue is charged for a task: `time`, the part of a worker that it holds times its run time, or `task`,
    /// one for each.
    #[serde(default)]
    pub charge: String,
    /// Its part, from 0 to 1, of all charges of the queues of its band since the server started; absent if there were
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Cpus that it holds or could use now, as far as its quota and a pause let it; absent where the server is of an
    /// earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demand_cpus: Option<f64>,
    /// Cpus to which its band and its weight entitle it, of all workers that take work; absent where the server is of
    /// an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entitled_cpus: Option<f64>,
    /// The weight that it counts with: less than its own if its own entitles it to more than it wants. Absent if all
    /// queues of its band get what they want, so that no weight makes a difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_weight: Option<f64>,
}

/// How the jobs of a queue are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TurnsBy {
    /// Its users; the jobs of one user in order of priority and time.
    #[default]
    Users,
    /// All jobs are in one order of priority and time across users.
    Jobs,
}

/// Changes of a queue: what is absent stays, null removes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQueue {
    /// The band, 0 to 9; a higher band is served first. null is the default of its name: 9 for `vip`, 1 for `idle`, 3
    /// for all others.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u8>)]
    pub band: Option<Option<u8>>,
    /// The weight against the other queues of its band, 1 to 10000; 100 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Cpus that its tasks may hold while other queues could use them. Null removes the quota and the burst.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<f64>)]
    pub quota_cpus: Option<Option<f64>>,
    /// Cpus that its tasks may hold while no other queue can use them; null is the quota.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<f64>)]
    pub burst_cpus: Option<Option<f64>>,
    /// Pauses the queue, with a note of the reason; null resumes it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    pub paused: Option<Option<String>>,
    /// Users who may submit to it, besides administrators and the user of its name; `*` is all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<BTreeSet<String>>,
    /// `users`: its users take turns by their weights; `jobs`: all its jobs are in one order of priority and
    /// time. A change is for jobs that are submitted afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<TurnsBy>,
    /// Weights of users inside the queue, 1 to 10000; null is 100 again. Absent users keep theirs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user_weights: BTreeMap<String, Option<u32>>,
    /// true gives a jobserver to each step that says nothing of one and can have one; false gives none to such steps, not
    /// even to builds that a client detected. null: builds that a client detected have one. A change is for jobs that are
    /// submitted afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<bool>)]
    pub jobserver: Option<Option<bool>>,
}

/// Deserializes a field so that null, `Some(None)`, differs from absent, `None`.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A number of cpus that is not valid.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("{field} must be a number from 0.01 to 40000000, or null for none, not {cpus}")]
pub struct BadCpus {
    /// The name of the field.
    pub field: &'static str,
    /// The number that was given.
    pub cpus: f64,
}

impl SetQueue {
    /// The names of the fields that it changes.
    pub fn fields(&self) -> Vec<&'static str> {
        let SetQueue { band, weight, quota_cpus, burst_cpus, paused, users, turns, user_weights, jobserver } =
            self;
        let given = [
            ("band", band.is_some()),
            ("weight", weight.is_some()),
            ("quota_cpus", quota_cpus.is_some()),
            ("burst_cpus", burst_cpus.is_some()),
            ("paused", paused.is_some()),
            ("users", users.is_some()),
            ("turns", turns.is_some()),
            ("user_weights", !user_weights.is_empty()),
            ("jobserver", jobserver.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(field, _)| field).collect()
    }

    /// The queue after the change; `now` is the queue before it, if there is one.
    pub fn over(&self, name: &str, now: Option<&core::Queue>) -> Result<QueueRecord, BadCpus> {
        let mut record = now.map_or_else(|| QueueRecord::named(name), |queue| queue.record.clone());
        put(&mut record.band, self.band);
        put(&mut record.weight, self.weight);
        put(&mut record.paused, self.paused.clone());
        put(&mut record.users, self.users.clone());
        put(&mut record.turns, self.turns.map(TurnsBy::core));
        put(&mut record.jobserver, self.jobserver);
        for (user, weight) in &self.user_weights {
            match weight {
                Some(weight) => _ = record.user_weights.insert(user.clone(), *weight),
                None => _ = record.user_weights.remove(user),
            }
        }
        put(&mut record.quota_cpu, hundredths("quota_cpus", self.quota_cpus)?);
        put(&mut record.burst_cpu, hundredths("burst_cpus", self.burst_cpus)?);
        if self.quota_cpus == Some(None) && self.burst_cpus.is_none() {
            record.burst_cpu = None;
        }
        Ok(record)
    }
}

impl TurnsBy {
    fn core(self) -> core::TurnsBy {
        match self {
            TurnsBy::Users => core::TurnsBy::Users,
            TurnsBy::Jobs => core::TurnsBy::Jobs,
        }
    }
}

words_of! { TurnsBy of core::TurnsBy: Users "users", Jobs "jobs" }

fn put<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}

fn hundredths(field: &'static str, given: Option<Option<f64>>) -> Result<Option<Option<u32>>, BadCpus> {
    match given {
        Some(Some(cpus)) if !(0.01..=40_000_000.0).contains(&cpus) => Err(BadCpus { field, cpus }),
        given => Ok(given.map(|cpus| cpus.map(|cpus| (cpus * 100.0).round() as u32))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_stays_and_null_takes_away() {
        let mut queues = core::Queues::default();
        let record = QueueRecord { weight: 7, quota_cpu: Some(250), ..QueueRecord::named("q") };
        queues.set(&record);
        let now = queues.by_name().next();
        let over = |json: &str, now| serde_json::from_str::<SetQueue>(json).unwrap().over("q", now).unwrap();
        assert_eq!(over("{}", now), record);
        assert_eq!(over(r#"{"weight":9}"#, now), QueueRecord { weight: 9, ..record.clone() });
        assert_eq!(over(r#"{"quota_cpus":null}"#, now), QueueRecord { quota_cpu: None, ..record.clone() });
        assert_eq!(over(r#"{"quota_cpus":0.01}"#, now), QueueRecord { quota_cpu: Some(1), ..record });
        let default = QueueRecord::named("q");
        assert_eq!(over("{}", None), default);
        let kept =
            serde_json::to_string(&SetQueue { quota_cpus: Some(None), ..SetQueue::default() }).unwrap();
        assert_eq!(kept, r#"{"quota_cpus":null}"#);
    }

    #[test]
    fn each_field_changes_its_own() {
        let mut queues = core::Queues::default();
        let record = QueueRecord {
            band: Some(5),
            quota_cpu: Some(250),
            burst_cpu: Some(500),
            paused: Some("later".to_owned()),
            jobserver: Some(true),
            ..QueueRecord::named("q")
        };
        queues.set(&record);
        let now = queues.by_name().next();
        let over = |json: &str| serde_json::from_str::<SetQueue>(json).unwrap().over("q", now).unwrap();
        assert_eq!(over(r#"{"band":0}"#), QueueRecord { band: Some(0), ..record.clone() });
        assert_eq!(over(r#"{"band":null}"#), QueueRecord { band: None, ..record.clone() });
        assert_eq!(over(r#"{"burst_cpus":null}"#), QueueRecord { burst_cpu: None, ..record.clone() });
        assert_eq!(over(r#"{"burst_cpus":9}"#), QueueRecord { burst_cpu: Some(900), ..record.clone() });
        assert_eq!(over(r#"{"paused":null}"#), QueueRecord { paused: None, ..record.clone() });
        let noted = QueueRecord { paused: Some("now".to_owned()), ..record.clone() };
        assert_eq!(over(r#"{"paused":"now"}"#), noted);
        let free = QueueRecord { quota_cpu: None, burst_cpu: None, ..record.clone() };
        assert_eq!(over(r#"{"quota_cpus":null}"#), free, "there is nothing to go beyond");
        let weighed = QueueRecord { user_weights: [("ann".to_owned(), 7)].into(), ..record.clone() };
        assert_eq!(over(r#"{"user_weights":{"ann":7,"bob":null}}"#), weighed);
        assert_eq!(over(r#"{"jobserver":null}"#), QueueRecord { jobserver: None, ..record.clone() });
        assert_eq!(over(r#"{"jobserver":false}"#), QueueRecord { jobserver: Some(false), ..record.clone() });
        assert_eq!(over(r#"{"turns":"jobs"}"#), QueueRecord { turns: core::TurnsBy::Jobs, ..record });
    }

    #[test]
    fn a_quota_that_is_none_is_refused() {
        for cpus in [0.0, -1.0, 0.009, f64::NAN, f64::INFINITY, 40_000_001.0] {
            let set = SetQueue { quota_cpus: Some(Some(cpus)), ..SetQueue::default() };
            let refused = set.over("q", None).unwrap_err();
            assert!(refused.to_string().contains("quota_cpus"), "{refused}");
        }
    }
}
