//! Wait conditions. A job or a client waits for other jobs until each meets its condition.

use super::bad_job::{BadJob, bad_type};
use super::fields::{Fields, scalar, text_of};
use super::stage::{Health, Readiness, Stage};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::bounds::AFTER_MAX;

/// A condition on another job. All its parts must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Condition {
    stage: Option<Stage>,
    readiness: Option<Readiness>,
    milestone: Option<String>,
    fields: BTreeMap<String, String>,
}

/// Whether a job has met the condition that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The job may still meet it.
    Open,
    /// The job has met it.
    Met,
    /// The job failed, and the waiter asked to fail fast.
    Failed,
    /// The job has ended, and can never meet the condition.
    Never,
}

/// All conditions of one waiter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WaitSpec {
    /// The condition for each job id.
    pub wait_on: BTreeMap<u64, Condition>,
    /// Give up as soon as one of the jobs fails.
    pub fail_fast: bool,
    /// Fields of the jobs to return.
    pub get_fields: BTreeSet<String>,
}

impl WaitSpec {
    /// Reads the fields `wait_on` and `wait_options`.
    pub fn parse(fields: &Fields) -> Result<WaitSpec, BadJob> {
        let mut spec = WaitSpec::default();
        match fields.get("wait_on") {
            None | Some(Value::Null) => {}
            Some(Value::Object(all)) if all.len() > AFTER_MAX => {
                let why = format!("names {} jobs, more than {AFTER_MAX}", all.len());
                return Err(BadJob::Field { field: "wait_on".to_owned(), why });
            }
            Some(Value::Object(all)) => {
                for (id, condition) in all {
                    let Ok(job) = id.parse() else {
                        let why = format!("'{id}' is not a job id");
                        return Err(BadJob::Field { field: "wait_on".to_owned(), why });
                    };
                    spec.wait_on.insert(job, Condition::parse(condition)?);
                }
            }
            Some(other) => return Err(bad_type("wait_on", "hash", other)),
        }
        match fields.get("wait_options") {
            None | Some(Value::Null) => {}
            Some(Value::Object(options)) => {
                spec.fail_fast = options.get("fail_fast").is_some_and(|value| *value != Value::Bool(false));
                spec.get_fields = match options.get("get_fields") {
                    None | Some(Value::Null) => BTreeSet::new(),
                    Some(Value::Object(fields)) => fields.keys().cloned().collect(),
                    Some(other) => return Err(bad_type("wait_options.get_fields", "hash", other)),
                };
            }
            Some(other) => return Err(bad_type("wait_options", "hash", other)),
        }
        Ok(spec)
    }

    /// Whether the job with these fields meets its condition; `closed` if the fields cannot change any more.
    pub fn look(&self, job: u64, fields: &Fields, closed: bool) -> Waited {
        let Some(condition) = self.wait_on.get(&job) else { return Waited::Met };
        let health = text_of(fields, "job_health").as_deref().and_then(Health::parse);
        let readiness = text_of(fields, "job_data_readiness").as_deref().and_then(Readiness::parse);
        let bad = readiness >= Some(Readiness::Incomplete) || health >= Some(Health::Cancel);
        if self.fail_fast && bad {
            Waited::Failed
        } else if condition.met_by(fields) {
            Waited::Met
        } else if closed {
            Waited::Never
        } else {
            Waited::Open
        }
    }

    /// The fields that are returned of a job that was waited for.
    pub fn tell(&self, fields: &Fields) -> Fields {
        let always = ["job_stage", "job_health", "job_data_readiness"];
        let always = always.into_iter().filter_map(|key| Some((key.to_owned(), fields.get(key)?.clone())));
        let asked = self.get_fields.iter().map(|key| {
            let text = match fields.get(key) {
                None => String::new(),
                Some(Value::Array(all)) => all.iter().filter_map(scalar).collect::<Vec<_>>().join(" "),
                Some(value) => scalar(value).unwrap_or_else(|| value.to_string()),
            };
            (key.clone(), Value::from(text))
        });
        always.chain(asked).collect()
    }
}

impl Condition {
    fn parse(value: &Value) -> Result<Condition, BadJob> {
        let all = match value {
            Value::Null => return Ok(Condition::default()),
            Value::Object(all) => all,
            other => return Err(bad_type("wait_on", "hash of hash", other)),
        };
        let mut condition = Condition::default();
        for (field, wanted) in all {
            let bad = |why: String| BadJob::Field { field: format!("wait_on: {field}"), why };
            let wanted = scalar(wanted).ok_or_else(|| bad("must be one word".to_owned()))?;
            let unknown = |_: ()| bad(format!("there is no '{wanted}'"));
            match field.as_str() {
                "job_stage" => condition.stage = Some(Stage::parse(&wanted).ok_or(()).map_err(unknown)?),
                "job_data_readiness" => {
                    condition.readiness = Some(Readiness::parse(&wanted).ok_or(()).map_err(unknown)?);
                }
                "milestones" => condition.milestone = Some(wanted),
                _ => _ = condition.fields.insert(field.clone(), wanted),
            }
        }
        Ok(condition)
    }

    /// True if a job with these fields meets the condition. The default condition is that its results are complete.
    fn met_by(&self, fields: &Fields) -> bool {
        let stage = text_of(fields, "job_stage").as_deref().and_then(Stage::parse);
        let readiness = text_of(fields, "job_data_readiness").as_deref().and_then(Readiness::parse);
        if *self == Condition::default() {
            return readiness >= Some(Readiness::Complete);
        }
        let reached = fields.get("milestones").and_then(Value::as_array);
        self.stage.is_none_or(|wanted| stage >= Some(wanted))
            && self.readiness.is_none_or(|wanted| readiness >= Some(wanted))
            && self.milestone.as_ref().is_none_or(|wanted| {
                reached.is_some_and(|all| all.iter().any(|m| m.as_str() == Some(wanted)))
            })
            && self
                .fields
                .iter()
                .all(|(key, wanted)| text_of(fields, key).as_deref() == Some(wanted.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn spec(value: Value) -> Result<WaitSpec, BadJob> {
        WaitSpec::parse(value.as_object().unwrap())
    }

    fn look(wait_on: Value, options: Value, fields: Value, closed: bool) -> Waited {
        let spec = spec(json!({"wait_on": {"7": wait_on}, "wait_options": options})).unwrap();
        spec.look(7, fields.as_object().unwrap(), closed)
    }

    #[test]
    fn a_job_is_waited_for_until_it_is_so_far() {
        let running =
            json!({"job_stage": "running", "job_data_readiness": "N/A", "milestones": ["db-ready"]});
        let at = |wait_on: Value| look(wait_on, json!({}), running.clone(), false);
        assert_eq!(at(Value::Null), Waited::Open);
        assert_eq!(at(json!({"job_stage": "boot"})), Waited::Met);
        assert_eq!(at(json!({"job_stage": "finish"})), Waited::Open);
        assert_eq!(at(json!({"milestones": "db-ready"})), Waited::Met);
        assert_eq!(at(json!({"job_stage": "boot", "milestones": "other"})), Waited::Open);
        assert_eq!(at(json!({"job_data_readiness": "uploaded"})), Waited::Open);
        assert_eq!(at(json!({"suite": "lkp"})), Waited::Open);
        let done = json!({"job_stage": "finish", "job_data_readiness": "complete", "job_health": "fail"});
        assert_eq!(look(Value::Null, json!({}), done.clone(), true), Waited::Met);
        assert_eq!(look(json!({"milestones": "x"}), json!({}), done, true), Waited::Never);
    }

    #[test]
    fn who_asks_to_fail_fast_hears_of_a_bad_end_at_once() {
        let oom = json!({"job_stage": "running", "job_data_readiness": "N/A", "job_health": "oom"});
        assert_eq!(look(Value::Null, json!({"fail_fast": null}), oom.clone(), false), Waited::Failed);
        assert_eq!(look(Value::Null, json!({}), oom, false), Waited::Open);
        let failed = json!({"job_stage": "finish", "job_data_readiness": "complete", "job_health": "fail"});
        assert_eq!(look(Value::Null, json!({"fail_fast": null}), failed, true), Waited::Met);
    }

    #[test]
    fn fields_that_were_asked_for_are_told_as_text() {
        let wait =
            spec(json!({"wait_on": {}, "wait_options": {"get_fields": {"milestones": null, "x": null}}}));
        let fields = json!({"job_stage": "boot", "milestones": ["a", "b"]});
        let told = wait.unwrap().tell(fields.as_object().unwrap());
        assert_eq!(Value::Object(told), json!({"job_stage": "boot", "milestones": "a b", "x": ""}));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            json!({"wait_on": {"x": null}}),
            json!({"wait_on": [1]}),
            json!({"wait_on": {"1": {"job_stage": "later"}}}),
            json!({"wait_on": {"1": {"job_data_readiness": 3}}}),
            json!({"wait_on": {"1": 5}}),
            json!({"wait_on": {"1": {"os": ["a"]}}}),
            json!({"wait_options": []}),
            json!({"wait_options": {"get_fields": ["a"]}}),
        ] {
            assert!(spec(bad.clone()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_wait_is_read_or_refused(text in "\\{\"wait_on\":\\{(\"[0-9a-z]{0,22}\":(null|\\{\\}|1|\"x\"))?\\}\\}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                _ = spec(value);
            }
        }
    }
}
