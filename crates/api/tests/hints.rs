//! Hints of a step: from the submission to the core, and back to the JSON of a job.

use windlass_api::{Job, Step, SubmitRequest, wire};
use windlass_core::job::{Hints, JobSpec, Jobserver, Kind};

fn spec(step: &str) -> Result<JobSpec, String> {
    let text = format!(r#"{{"steps":[{{"command":["/bin/gcc","-c","a.c"]{step}}}]}}"#);
    let request: SubmitRequest = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    request.into_spec("ann").map_err(|e| e.to_string())
}

const ALL: &str = r#","limits":["nuke","maya","nuke"],"kind":"evaluation","network_bound":true,"prefer_local":true,
    "fetches":true,"caches":{"toolchain":2147483648,"assets":null},"deadline_ms":90000,"cpus_auto":true"#;

#[test]
fn everything_reaches_the_core_and_comes_back() {
    let spec = spec(ALL).unwrap();
    let step = &spec.steps[0];
    assert_eq!(step.limits, ["maya".to_owned(), "nuke".to_owned()].into());
    let expected = Hints {
        kind: Kind::Evaluation,
        shape: "gcc -c *.c".to_owned(),
        network_bound: true,
        prefer_local: true,
        fetches: true,
        caches: [("toolchain".to_owned(), Some(1 << 31)), ("assets".to_owned(), None)].into(),
        deadline_ms: Some(90_000),
        cpus_auto: true,
        cpus_max: None,
        jobserver: None,
        prefers: Default::default(),
    };
    assert_eq!(step.hints, expected);
    let shown = serde_json::to_value(&Step::all_from_core(&spec)[0]).unwrap();
    let same = serde_json::from_str::<serde_json::Value>(&format!("{{{}}}", &ALL[1..])).unwrap();
    for (field, value) in same.as_object().unwrap().iter().filter(|(field, _)| *field != "limits") {
        assert_eq!(&shown[field], value, "{field}");
    }
    assert_eq!(shown["limits"], serde_json::json!(["maya", "nuke"]));
    assert_eq!(serde_json::from_value::<Step>(shown).unwrap().hints.shape, "gcc -c *.c");
}

#[test]
fn a_range_of_cpus_has_a_most_that_is_not_less() {
    let with_range = spec(r#","cpus_max":16"#).unwrap();
    assert_eq!(with_range.steps[0].hints.cpus_max, Some(1_600));
    let shown = serde_json::to_value(&Step::all_from_core(&with_range)[0]).unwrap();
    assert_eq!(shown["cpus_max"], 16.0);
    for bad in [r#","cpus_max":0.5"#, r#","cpus_max":1e12"#, r#","cpus_max":16,"cpus_auto":true"#] {
        assert!(spec(bad).unwrap_err().contains("cpus_max must be a number from its cpus, 1,"), "{bad}");
    }
}

#[test]
fn a_jobserver_has_a_form_and_a_most() {
    for (word, form) in [("auto", Jobserver::Auto), ("fifo", Jobserver::Fifo), ("pipes", Jobserver::Pipes)] {
        let spec =
            spec(&format!(r#","jobserver":"{word}","resources":{{"cpus":0.1}},"cpus_max":2.5"#)).unwrap();
        assert_eq!(spec.steps[0].hints.jobserver, Some(form));
        let shown = serde_json::to_value(&Step::all_from_core(&spec)[0]).unwrap();
        assert_eq!(shown["jobserver"], word);
        let sent = wire::Jobserver::of_step(&spec.steps[0].hints).unwrap();
        assert_eq!(sent.processes_max, Some(3), "a part of a core is a process");
    }
    let whole = spec(r#","jobserver":"auto""#).unwrap();
    assert_eq!(wire::Jobserver::of_step(&whole.steps[0].hints).unwrap().processes_max, None);
    assert_eq!(wire::Jobserver::of_step(&spec("").unwrap().steps[0].hints), None);
    assert_eq!(spec(r#","jobserver":"none""#).unwrap().steps[0].hints.jobserver, None);
    let learned = spec(r#","jobserver":"auto","cpus_auto":true"#).unwrap_err();
    assert!(learned.contains("exclude each other"), "{learned}");
    assert!(spec(r#","jobserver":"always""#).unwrap_err().contains("unknown variant `always`"));
}

#[test]
fn steps_that_say_nothing_of_a_jobserver_leave_it_to_their_queue() {
    let text = r#"{"steps":[{"name":"a","command":["x"]},{"name":"b","command":["x"],"jobserver":"none"},
        {"name":"c","command":["make"],"jobserver":"detected"},{"name":"d","command":["x"],"jobserver":"fifo"}]}"#;
    let request: SubmitRequest = serde_json::from_str(text).unwrap();
    assert_eq!(request.jobservers_open(), [0, 2]);
    let steps = request.into_spec("ann").unwrap().steps;
    let of: Vec<_> = steps.iter().map(|step| (step.hints.jobserver, step.request.cpu)).collect();
    let (auto, fifo) = (Some(Jobserver::Auto), Some(Jobserver::Fifo));
    assert_eq!(of, [(None, 100), (None, 100), (auto, 100), (fifo, 100)], "the core books less for a build");
}

#[test]
fn what_is_not_said_is_not_shown() {
    let spec = spec("").unwrap();
    assert_eq!(spec.steps[0].hints, Hints { shape: "gcc -c *.c".to_owned(), ..Hints::default() });
    let shown = serde_json::to_value(&Step::all_from_core(&spec)[0]).unwrap();
    for field in ["limits", "kind", "network_bound", "caches", "deadline_ms", "cpus_auto", "jobserver"] {
        assert!(shown.get(field).is_none(), "{field}");
    }
    // From a server that does not know these fields.
    let old = r#"{"id":1,"name":"n","queue":"q","user":"u","priority":0,"state":"running","created_ms":1,
        "counts":{"total":0,"waiting":0,"ready":0,"running":0,"succeeded":0,"failed":0,"canceled":0,"skipped":0},
        "steps":[{"name":"s","first_task":0,"tasks":1,"resources":{"cpus":1,"memory":0},"retries":0}]}"#;
    let step = serde_json::from_str::<Job>(old).unwrap().steps.remove(0);
    assert_eq!((step.limits.len(), step.hints), (0, windlass_api::Hints::default()));
}

#[test]
fn mistakes_are_named() {
    for (step, says) in [
        (r#","limits":[""]"#, "step 'main' names a limit with an empty name"),
        (r#","caches":{"":1}"#, "step 'main' names a cache with an empty name"),
        (r#","caches":{"a":-1}"#, "invalid value"),
        (r#","kind":"test""#, "unknown variant `test`"),
        (r#","deadline_ms":0"#, "deadline_ms must be more than 0"),
        (r#","prefer_locale":true"#, "unknown field `prefer_locale`"),
    ] {
        let refused = spec(step).unwrap_err();
        assert!(refused.contains(says), "{step}: {refused}");
    }
}
