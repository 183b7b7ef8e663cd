//! Compass CI jobs and the job specs made from them.

use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass_core::JobId;
use windlass_gateway_compass::format::{
    BOX, BadJob, CompassJob, Fields, is_compass, public_fields, result_root, text_of,
};

fn fields(more: Value) -> Fields {
    let mut fields = json!({
        "suite": "iperf", "testbox": "vm-2p8g", "os": "openeuler", "os_version": 22.03, "os_arch": "aarch64",
        "my_account": "ann", "my_token": "t", "my_email": "e", "my_name": "n",
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        fields[key] = value.clone();
    }
    fields.as_object().unwrap().clone()
}

fn parse(more: Value) -> CompassJob {
    CompassJob::parse(fields(more)).unwrap()
}

#[test]
fn a_job_asks_for_what_its_testbox_says() {
    let vm = parse(json!({})).into_spec("q".to_owned(), BTreeSet::new()).unwrap();
    assert!(is_compass(&vm));
    assert_eq!((vm.name.as_str(), vm.user.as_str(), vm.queue.as_str()), ("iperf", "ann", "q"));
    let step = &vm.steps[0];
    assert_eq!((step.request.cpu, step.request.memory), (200, 8 << 30));
    let needs: Vec<String> = step.needs.iter().map(ToString::to_string).collect();
    assert_eq!(needs, ["executor=compass-ci", "tbox_type=vm", "arch=aarch64"]);
    assert_eq!(step.time_limit_ms, Some(3_600_000));
    let group = "taishan200-2280-2s64p-256g";
    let metal = parse(json!({"testbox": group, "need_memory": 64, "tags": ["ssd"]}));
    assert!(metal.needs().iter().any(|need| need.to_string() == format!("tbox_group={group}")));
    let request = metal.request().unwrap();
    assert_eq!((request.cpu, request.memory, request.custom[BOX]), (100, 64 << 30, 1));
    let one = parse(json!({"testbox": format!("{group}--a61")}));
    assert_eq!(one.machines, Some(BTreeSet::from([format!("{group}--a61")])));
    let any = parse(json!({"testbox": "hw", "target_machines": ["ANY"]}));
    assert_eq!(any.machines, None);
}

#[test]
fn memory_and_cpus_are_the_most_that_any_field_says() {
    let memory = |more| parse(more).memory >> 20;
    assert_eq!(memory(json!({"need_memory": "16g"})), 16 << 10);
    assert_eq!(memory(json!({"need_memory": "1g", "memory_minimum": 12})), 12 << 10);
    assert_eq!(memory(json!({"testbox": "dc", "hw": {"memory": "512m"}})), 512);
    assert_eq!(memory(json!({"testbox": "dc"})), 0);
    assert_eq!(memory(json!({"testbox": "taishan-2s64p-256g"})), 0, "what it has is not what is needed");
    let cpus = |more| parse(more).request().unwrap().cpu;
    assert_eq!(cpus(json!({"testbox": "dc-8g"})), 100);
    assert_eq!(cpus(json!({"testbox": "dc-8g", "hw": {"nr_cpu": 4}})), 400);
    assert_eq!(cpus(json!({"testbox": "dc-8g", "nr_cpu": "3"})), 300);
}

#[test]
fn a_job_may_run_as_long_as_it_says_or_as_its_run_takes() {
    let seconds = |more| parse(more).timeout_s;
    assert_eq!(seconds(json!({})), 3_600);
    assert_eq!(seconds(json!({"timeout": "2h"})), 7_200);
    assert_eq!(seconds(json!({"runtime": 300})), 300 + 300 + 17);
    assert_eq!(seconds(json!({"runtime": 8_000})), 8_000 + 1_000 + 89);
    assert_eq!(
        seconds(json!({"pp": {"a": {"runtime": 100}, "b": {"runtime": "100"}, "c": null}})),
        200 + 300 + 14
    );
}

#[test]
fn a_machine_is_borrowed_for_thirty_days_whatever_limit_the_client_adds() {
    const DAY: u64 = 86_400;
    let borrow = |mut more: Value| {
        more["ssh_pub_key"] = "ssh-rsa x".into();
        CompassJob::parse(fields(more)).map(|job| job.timeout_s)
    };
    // As the client submits jobs/borrow-30d.yaml: with a limit of twice the run time.
    let thirty = 30 * DAY + 30 * DAY / 8 + (30 * DAY).isqrt();
    let stock = json!({"runtime": "30d", "timeout": "60d", "pp": {"sleep": {"runtime": "30d"}}});
    assert_eq!(borrow(stock), Ok(thirty));
    assert_eq!(borrow(json!({"runtime": "30d"})), Ok(thirty));
    assert_eq!(borrow(json!({"timeout": "30d"})), Ok(30 * DAY));
    assert_eq!(borrow(json!({"runtime": "2d", "timeout": "3h"})), Ok(3 * 3_600));
    for more in [
        json!({"runtime": "31d", "timeout": "1d"}),
        json!({"timeout": "31d"}),
        json!({"pp": {"sleep": {"runtime": "31d"}}}),
    ] {
        let why = borrow(more.clone()).unwrap_err().to_string();
        assert!(why.contains("30 days"), "{more}: {why}");
    }
}

#[test]
fn packages_that_nobody_built_are_refused_by_name() {
    let ss = json!({"linux": {"config": "defconfig"}});
    let why = CompassJob::parse(fields(json!({"ss": ss}))).unwrap_err().to_string();
    assert!(why.contains("ss: is not supported") && why.contains("build linux"), "{why}");
    parse(json!({"ss": ss, "need_file_store": ["ss/pkgbuild/linux/x/vmlinuz"]}));
    parse(json!({"ss": {}}));
}

#[test]
fn secrets_of_the_user_are_not_stored_and_the_rest_stays() {
    let odd = json!({"x": [1, null, {"y": 1.5}], "secrets": {"k": "v"}, "job_health": "fail", "stats": {}});
    let job = parse(odd);
    assert_eq!(job.fields["x"], json!([1, null, {"y": 1.5}]));
    for gone in ["my_token", "my_email", "my_name", "job_health", "stats"] {
        assert!(!job.fields.contains_key(gone), "{gone}");
    }
    assert!(!job.fields.contains_key("secrets"));
    assert_eq!(
        (&job.secrets["k"], &job.secrets["my_email"]),
        (&json!("v"), &json!("e")),
        "its machine needs them"
    );
    for bad in [json!({"a b": "x"}), json!({"k": ["x"]}), json!({"k": "two\nlines"})] {
        assert!(CompassJob::parse(fields(json!({"secrets": bad}))).is_err());
    }
    let private = json!({"secrets": {}, "sealed_secrets": "x", "suite": "s"});
    assert_eq!(public_fields(private.as_object().unwrap().clone(), None).len(), 1);
}

#[test]
fn results_have_a_place_that_no_job_can_leave() {
    let job = parse(json!({"suite": "../../etc", "pp": {"a": {"z": "1/2", "b": true}}}));
    let root = result_root(JobId(7), &job.fields, "2026-01-02");
    assert_eq!(root, "/result/_.._.._etc/2026-01-02/vm-2p8g/openeuler-22.03-aarch64/true-1-2/7");
}

#[test]
fn names_of_fields_are_checked_where_they_are_known() {
    for (field, value) in [
        ("cache_dirs", json!(["1-"])),
        ("cache_dirs", json!(["1-a b"])),
        ("target_machines", json!([""])),
        ("tags", json!(vec!["t"; 65])),
        ("devices", json!(5)),
        ("testbox", json!("vm-2p8g".repeat(40))),
        ("queue", json!("q".repeat(256))),
        ("big", json!("x".repeat(5 << 20))),
    ] {
        let bad = CompassJob::parse(fields(json!({field: value.clone()})));
        if value == json!(["1-"]) {
            assert!(bad.is_ok(), "an empty path is one");
            continue;
        }
        assert!(bad.is_err(), "{field}");
    }
    let missing = CompassJob::parse(Fields::new()).unwrap_err();
    assert_eq!(missing, BadJob::Missing("testbox"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,16}".prop_map(Value::from),
        "[0-9]-[a-z/.]{0,12}".prop_map(Value::from),
        "(vm|dc|hw|tai-2s4p-8g)(-[0-9]{0,3}p?[0-9]{0,3}g?)?(--a[0-9])?".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,8}", inner, 0..4)
                .prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

const KNOWN: [&str; 24] = [
    "suite",
    "testbox",
    "os",
    "os_version",
    "os_arch",
    "my_account",
    "my_token",
    "queue",
    "priority",
    "runtime",
    "timeout",
    "need_memory",
    "memory_minimum",
    "nr_cpu",
    "hw",
    "pp",
    "cache_dirs",
    "target_machines",
    "tags",
    "devices",
    "sched",
    "wait_on",
    "wait_options",
    "ssh_pub_key",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_comes_is_a_job_within_limits_or_an_error(
        odd in prop::collection::vec((0..KNOWN.len(), any_json()), 0..4)
    ) {
        let mut job = fields(json!({}));
        for (field, value) in odd {
            job.insert(KNOWN[field].to_owned(), value);
        }
        let Ok(job) = CompassJob::parse(job) else { return Ok(()) };
        let root = result_root(JobId(1), &job.fields, "2026-01-01");
        prop_assert!(!root.contains("/../") && root.starts_with("/result/"), "{}", root);
        prop_assert!(text_of(&job.fields, "tbox_group").is_some());
        if let Ok(spec) = job.into_spec("q".to_owned(), BTreeSet::new()) {
            prop_assert!(is_compass(&spec) && spec.steps[0].needs.len() <= 64);
            prop_assert!(spec.steps[0].request.memory <= 1 << 50);
        }
    }
}
