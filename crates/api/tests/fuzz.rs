//! Arbitrary input is a value or an error, never a panic.

use proptest::prelude::*;
use windlass_api::{SubmitRequest, fill_in};
use windlass_core::tags::Need;
use windlass_core::{TaskId, bounds};

/// Submissions that are nearly right: the shape holds, the values are anything.
fn nearly() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:e}")),
        Just("null".to_owned()),
        "\"[^\"\\\\]{0,8}\"",
    ];
    let text = prop_oneof!["\"[a-z/={}|.]{0,12}\"", Just("\"\\u0000\"".to_owned()), Just("7".to_owned())];
    (prop::collection::vec(number, 8), prop::collection::vec(text, 8)).prop_map(|(n, t)| {
        format!(
            r#"{{"name":{},"queue":{},"priority":{},"after":[{}],"parent":{},"steps":[{{"name":{},"command":[{},{}],
            "cwd":{},"env":{{"A":{}}},"tags":[{}],"param":{{"range":{{"start":{},"end":{},"step":{}}}}},
            "resources":{{"cpus":{},"memory":{}}},"retries":{},"time_limit_ms":{}}}]}}"#,
            t[0], t[1], n[0], n[1], t[2], t[3], t[4], t[5], t[6], t[7], t[0], n[2], n[3], n[4], n[5], n[6], n[7], n[0]
        )
    })
}

proptest! {
    #[test]
    fn any_bytes_are_no_submission(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(request) = serde_json::from_slice::<SubmitRequest>(&bytes) {
            _ = request.into_spec("u");
        }
    }

    #[test]
    fn a_nearly_right_submission_is_taken_or_refused(text in nearly()) {
        if let Ok(request) = serde_json::from_str::<SubmitRequest>(&text)
            && let Ok(spec) = request.into_spec("u")
        {
            let step = &spec.steps[0];
            prop_assert!(step.tasks > 0 && step.tasks <= bounds::TASKS_PER_JOB_MAX);
            prop_assert!(step.request.cpu <= 4_000_000_000);
            let body: windlass_api::StepBody = serde_json::from_slice(&step.body).unwrap();
            prop_assert!(body.params.value(step.tasks - 1).is_some());
        }
    }

    #[test]
    fn ids_needs_and_replacements_take_any_text(text in ".{0,60}", value in ".{0,60}") {
        if let Ok(id) = text.parse::<TaskId>() {
            prop_assert_eq!(id.to_string().parse::<TaskId>().unwrap(), id);
        }
        let need = Need::parse(&text);
        prop_assert_eq!(Need::parse(&need.to_string()), need);
        _ = fill_in(&text, &value);
    }
}
