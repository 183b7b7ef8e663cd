//! Queues and limits as told to people and programs, and as administrators set them.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use windlass_core::queues::{self as core, QueueRecord};

/// A queue with work now or earlier, or one that somebody set.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Unique.
    pub name: String,
    /// 0 to 9, higher first, strictly.
    pub band: u8,
    /// Its weight in its band.
    pub weight: u32,
    /// Cores that its tasks may hold together; absent is no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_cpus: Option<f64>,
    /// Tasks booked or running.
    pub running: u32,
    /// Steps with tasks that could start.
    pub ready_steps: usize,
    /// Tasks booked since the server started.
    pub booked: u64,
}

impl Queue {
    /// The queue as the core has it.
    pub fn from_core(from: &core::Queue) -> Self {
        Queue {
            name: from.name().to_owned(),
            band: from.band(),
            weight: from.share().weight(),
            quota_cpus: from.record.quota_cpu.map(|cpu| f64::from(cpu) / 100.0),
            running: from.active,
            ready_steps: from.steps(),
            booked: from.share().tasks(),
        }
    }
}

/// What to change of a queue; what is absent stays.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQueue {
    /// Its share of what its band gets, against others': 1 to 10000. 100 where nobody set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Cores that its tasks may hold together; null is no cap.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<f64>)]
    pub quota_cpus: Option<Option<f64>>,
}

/// Tells null from absent.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A quota that is none.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("quota_cpus must be a number from 0.01 to 40000000, or null for no quota, not {0}")]
pub struct BadQuota(pub f64);

impl SetQueue {
    /// The queue as it is after the change; `now` is as it is before, if there is one.
    pub fn over(&self, name: &str, now: Option<&core::Queue>) -> Result<QueueRecord, BadQuota> {
        let quota_cpu = match self.quota_cpus {
            None => now.and_then(|queue| queue.record.quota_cpu),
            Some(None) => None,
            Some(Some(cpus)) if (0.01..=40_000_000.0).contains(&cpus) => Some((cpus * 100.0).round() as u32),
            Some(Some(cpus)) => return Err(BadQuota(cpus)),
        };
        let weight = self.weight.or(now.map(|queue| queue.share().weight())).unwrap_or(core::WEIGHT_DEFAULT);
        let record = now.map_or_else(|| QueueRecord::named(name), |queue| queue.record.clone());
        Ok(QueueRecord { weight, quota_cpu, ..record })
    }
}

/// A limit: licences, say, of which each task of a step that names it takes one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// Unique.
    pub name: String,
    /// How many tasks may hold one at a time.
    pub max: u32,
    /// How many do.
    pub used: u32,
}

/// A limit as it shall be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLimit {
    /// How many tasks may hold one at a time.
    pub max: u32,
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
        let kept = serde_json::to_string(&SetQueue { weight: None, quota_cpus: Some(None) }).unwrap();
        assert_eq!(kept, r#"{"quota_cpus":null}"#);
    }

    #[test]
    fn a_quota_that_is_none_is_refused() {
        for cpus in [0.0, -1.0, 0.009, f64::NAN, f64::INFINITY, 40_000_001.0] {
            let set = SetQueue { weight: None, quota_cpus: Some(Some(cpus)) };
            let refused = set.over("q", None).unwrap_err();
            assert!(refused.to_string().contains("quota_cpus"), "{refused}");
        }
    }
}
