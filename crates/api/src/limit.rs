//! The JSON of limits, such as licences.

use crate::queue::given;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_core::bounds::BACK_OFF_MS_DEFAULT;
use windlass_core::licences::{self, Busy};
use windlass_core::queues::BadSetting;

/// A limit, such as a number of licences. Each task of a step that names it holds one while it runs, and so does each turn
/// of a command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// The limit's name, unique on the farm.
    pub name: String,
    /// Tasks that may hold it at a time over the farm; absent is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Tasks and turns that hold it now.
    pub used: u32,
    /// Tasks that may hold it at a time on one worker; absent is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_worker: Option<u32>,
    /// Exit codes that mean 'no licence was free'.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy_exits: Vec<i32>,
    /// Milliseconds of the first back-off of a task's step after such an exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off_ms: Option<u64>,
    /// Steps that back off now because the limit was busy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub backing_off: usize,
    /// Tasks that hold it now, by id, at most 20; absent in lists and in the answer to a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<LimitHolder>,
    /// Turns of commands that hold it now, by number, at most 20; absent where `holders` is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<LimitTurn>,
}

/// A task that holds a limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitHolder {
    /// The task's id, `JOB.INDEX`.
    pub task: String,
    /// The user who submitted its job.
    pub user: String,
    /// Name of the worker on which it runs.
    pub worker: String,
}

/// A turn of a command that holds a limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitTurn {
    /// The turn's number.
    pub turn: u64,
    /// The user who asked for it.
    pub user: String,
    /// Name of the worker that holds its room.
    pub worker: String,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Changes of a limit: what is absent stays, null removes. Steps that back off because of it are tried again at once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLimit {
    /// Tasks that may hold it at a time over the farm; with 0 none starts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub max: Option<Option<u32>>,
    /// Tasks that may hold it at a time on one worker, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    pub per_worker: Option<Option<u32>>,
    /// Exit codes, from 1 to 255, that mean 'no licence was free': the task is run again without spending a retry, and
    /// is not counted as failed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<Vec<i32>>)]
    pub busy_exits: Option<Option<Vec<i32>>>,
    /// Milliseconds for which the task's step then backs off, 30000 by default; twice as long each time in a row, up to
    /// 16 times as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_off_ms: Option<u64>,
}

impl SetLimit {
    /// The limit after the change; `now` is the limit before it, if there is one.
    pub fn over(&self, now: Option<&licences::Limit>) -> Result<licences::Limit, BadSetting> {
        let now = now.cloned().unwrap_or_default();
        let (exits, back_off_ms) = now.busy.map(|busy| (busy.exits, busy.back_off_ms)).unzip();
        let exits = match &self.busy_exits {
            Some(exits) => exits.iter().flatten().copied().collect(),
            None => exits.unwrap_or_default(),
        };
        let busy = if exits.is_empty() && self.back_off_ms.is_some() {
            return Err(BadSetting::BackOffAlone);
        } else {
            let back_off_ms = self.back_off_ms.or(back_off_ms).unwrap_or(BACK_OFF_MS_DEFAULT);
            Some(Busy { exits, back_off_ms }).filter(|busy| !busy.exits.is_empty())
        };
        Ok(licences::Limit {
            max: self.max.unwrap_or(now.max),
            per_worker: self.per_worker.unwrap_or(now.per_worker),
            busy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(json: &str, now: Option<&licences::Limit>) -> Result<licences::Limit, BadSetting> {
        serde_json::from_str::<SetLimit>(json).unwrap().over(now)
    }

    #[test]
    fn what_is_absent_stays_and_null_takes_away() {
        let busy = Busy { exits: [11, 12].into(), back_off_ms: 5_000 };
        let limit = licences::Limit { max: Some(5), per_worker: Some(1), busy: Some(busy.clone()) };
        let now = Some(&limit);
        assert_eq!(over("{}", now), Ok(limit.clone()));
        assert_eq!(over(r#"{"max":0}"#, now), Ok(licences::Limit { max: Some(0), ..limit.clone() }));
        assert_eq!(over(r#"{"max":null}"#, now), Ok(licences::Limit { max: None, ..limit.clone() }));
        assert_eq!(
            over(r#"{"per_worker":null}"#, now),
            Ok(licences::Limit { per_worker: None, ..limit.clone() })
        );
        for none in [r#"{"busy_exits":null}"#, r#"{"busy_exits":[]}"#] {
            assert_eq!(over(none, now), Ok(licences::Limit { busy: None, ..limit.clone() }));
        }
        let longer = Busy { back_off_ms: 7_000, ..busy.clone() };
        assert_eq!(
            over(r#"{"back_off_ms":7000}"#, now),
            Ok(licences::Limit { busy: Some(longer), ..limit.clone() })
        );
        let other = Busy { exits: [3].into(), ..busy };
        assert_eq!(over(r#"{"busy_exits":[3]}"#, now), Ok(licences::Limit { busy: Some(other), ..limit }));
    }

    #[test]
    fn a_back_off_has_a_default_and_needs_exit_codes() {
        let busy = Some(Busy { exits: [11].into(), back_off_ms: 30_000 });
        assert_eq!(
            over(r#"{"busy_exits":[11]}"#, None),
            Ok(licences::Limit { busy, ..licences::Limit::default() })
        );
        assert_eq!(over(r#"{"max":1,"back_off_ms":9}"#, None), Err(BadSetting::BackOffAlone));
    }
}
