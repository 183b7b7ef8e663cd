//! The expansion of `matrix`: one submission becomes several jobs.

use super::bad_job::{BadJob, bad_field};
use super::fields::{Fields, scalar};
use serde_json::Value;

/// Jobs of one submission.
pub const MATRIX_JOBS_MAX: usize = 100;
/// Bytes of all jobs of one submission.
const MATRIX_BYTES_MAX: usize = 32 << 20;
/// Names between the dots of a key of `matrix`.
const DEPTH_MAX: usize = 4;
/// Keys of one `matrix`.
const AXES_MAX: usize = 16;
/// Fields that no matrix sets: they are checked before it is expanded, or are secret.
const NOT_IN_MATRIX: [&str; 11] = [
    "matrix",
    "my_account",
    "my_token",
    "my_email",
    "my_name",
    "secrets",
    "cluster",
    "cluster_spec",
    "need_file_store",
    "upload_file_store",
    "pkg_data",
];

/// The jobs for which a submission stands: one for each combination of the lists in `matrix`, in their order. A key
/// names a field, or a field of a hash by dots (`pp.iperf.protocol`), or several by `|`, whose values then come
/// together (`os|os_version: [debian|12, openeuler|22.03]`).
pub fn jobs_of(fields: Fields) -> Result<Vec<Fields>, BadJob> {
    let Some(matrix) = fields.get("matrix").and_then(Value::as_object) else { return Ok(vec![fields]) };
    let axes: Vec<(String, Vec<Value>)> =
        matrix.iter().filter_map(|(key, values)| Some((key.clone(), values.as_array()?.clone()))).collect();
    if axes.len() > AXES_MAX {
        return Err(bad_field("matrix", format!("has more than {AXES_MAX} keys; submit it in parts")));
    }
    let product = axes.iter().try_fold(1usize, |n, (_, values)| n.checked_mul(values.len()));
    match product.unwrap_or(usize::MAX) {
        0 => return Err(bad_field("matrix", "a list of it is empty; give at least one value")),
        n if n <= MATRIX_JOBS_MAX && bytes_of(&fields).saturating_mul(n) > MATRIX_BYTES_MAX => {
            let why =
                format!("stands for jobs of more than {MATRIX_BYTES_MAX} bytes together; submit it in parts");
            return Err(bad_field("matrix", why));
        }
        n if n > MATRIX_JOBS_MAX => {
            let why = format!("stands for more than {MATRIX_JOBS_MAX} jobs; submit it in parts");
            return Err(bad_field("matrix", why));
        }
        _ => {}
    }
    let mut jobs = vec![fields];
    for (key, values) in &axes {
        let mut next = Vec::with_capacity(jobs.len() * values.len());
        for job in &jobs {
            for value in values {
                let mut job = job.clone();
                choose(&mut job, key, value)?;
                next.push(job);
            }
        }
        jobs = next;
    }
    Ok(jobs)
}

fn bytes_of(fields: &Fields) -> usize {
    serde_json::to_string(fields).map_or(usize::MAX, |text| text.len())
}

/// Sets the fields that a key of the matrix names, and notes the chosen value in the job's own matrix.
fn choose(job: &mut Fields, key: &str, value: &Value) -> Result<(), BadJob> {
    let text = scalar(value)
        .ok_or_else(|| bad_field(&format!("matrix.{key}"), "must be a list of single values"))?;
    if let Some(matrix) = job.get_mut("matrix").and_then(Value::as_object_mut) {
        matrix.insert(key.to_owned(), value.clone());
    }
    if !key.contains('|') {
        return set(job, key, value.clone());
    }
    let (names, values): (Vec<&str>, Vec<&str>) = (key.split('|').collect(), text.split('|').collect());
    if names.len() != values.len() {
        let why = format!("'{text}' has {} values for {} names", values.len(), names.len());
        return Err(bad_field(&format!("matrix.{key}"), why));
    }
    names.into_iter().zip(values).try_for_each(|(name, value)| set(job, name, Value::from(value)))
}

fn set(job: &mut Fields, name: &str, value: Value) -> Result<(), BadJob> {
    let names: Vec<&str> = name.split('.').collect();
    if NOT_IN_MATRIX.contains(&names[0]) {
        return Err(bad_field(&format!("matrix.{name}"), "cannot be set by a matrix; give it once, outside"));
    }
    if names.len() > DEPTH_MAX || names.iter().any(|name| name.is_empty()) {
        return Err(bad_field(
            &format!("matrix.{name}"),
            "is not the name of a field such as os or pp.iperf.protocol",
        ));
    }
    // The machine reads a program's parameters from `program`, and results are filed by `pp`.
    if let ["pp", program, ..] = names.as_slice()
        && job.get("program").and_then(|all| all.get(*program)).is_some()
    {
        let same: Vec<&str> = std::iter::once("program").chain(names[1..].iter().copied()).collect();
        set_at(job, &same, value.clone(), name)?;
    }
    set_at(job, &names, value, name)
}

fn set_at(fields: &mut Fields, names: &[&str], value: Value, whole: &str) -> Result<(), BadJob> {
    let (first, rest) = names.split_first().expect("a split text has at least one part");
    if rest.is_empty() {
        fields.insert((*first).to_owned(), value);
        return Ok(());
    }
    let inner = fields.entry(*first).or_insert_with(|| Value::Object(Fields::new()));
    if inner.is_null() {
        *inner = Value::Object(Fields::new());
    }
    match inner {
        Value::Object(inner) => set_at(inner, rest, value, whole),
        _ => Err(bad_field(&format!("matrix.{whole}"), format!("'{first}' of the job is not a hash"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_sets_nothing_that_is_checked_before_it_or_kept_secret() {
        for name in NOT_IN_MATRIX.iter().chain(&["secrets.password", "pkg_data.lkp.md5", "os|my_account"]) {
            let value = if name.contains('|') { "a|b" } else { "a" };
            let job = serde_json::json!({"suite": "x", "matrix": {*name: [value]}});
            let Value::Object(job) = job else { panic!() };
            let refused = jobs_of(job).unwrap_err().to_string();
            assert!(refused.contains("cannot be set by a matrix") && !refused.contains("[\"a"), "{refused}");
        }
    }

    #[test]
    fn a_matrix_has_few_keys() {
        let keys: Fields = (0..=AXES_MAX).map(|n| (format!("a{n}"), serde_json::json!(["x"]))).collect();
        let job = Fields::from_iter([("matrix".to_owned(), Value::Object(keys))]);
        assert!(jobs_of(job).unwrap_err().to_string().contains("more than 16 keys"));
    }
    use proptest::prelude::*;
    use serde_json::json;

    fn jobs(value: Value) -> Result<Vec<Fields>, BadJob> {
        jobs_of(value.as_object().unwrap().clone())
    }

    #[test]
    fn each_combination_is_a_job() {
        let all = jobs(json!({"suite": "x", "program": {"iperf": null}, "matrix": {
            "os|os_version": ["debian|12", "openeuler|22.03"], "pp.iperf.protocol": ["tcp", "udp"], "arch": "aarch64",
        }}));
        let all = all.unwrap();
        let told = |job: &Fields| {
            let at = |pointer| Value::Object(job.clone()).pointer(pointer).cloned().unwrap_or_default();
            format!("{} {} {}", at("/os_version"), at("/pp/iperf/protocol"), at("/program/iperf/protocol"))
        };
        let told: Vec<String> = all.iter().map(told).collect();
        let expected = [
            r#""12" "tcp" "tcp""#,
            r#""12" "udp" "udp""#,
            r#""22.03" "tcp" "tcp""#,
            r#""22.03" "udp" "udp""#,
        ];
        assert_eq!(told, expected);
        assert_eq!(all[3]["matrix"]["pp.iperf.protocol"], "udp");
        assert!(all[0].get("arch").is_none(), "one value is what a client that expands itself leaves behind");
        assert_eq!(jobs(json!({"suite": "x"})).unwrap().len(), 1);
    }

    #[test]
    fn what_makes_no_jobs_is_named() {
        for (job, why) in [
            (json!({"matrix": {"os": []}}), "empty"),
            (json!({"matrix": {"os": vec!["x"; 101]}}), "more than 100"),
            (json!({"x": "y".repeat(4 << 20), "matrix": {"os": vec!["x"; 9]}}), "more than 33554432 bytes"),
            (json!({"matrix": {"os": [["x"]]}}), "single values"),
            (json!({"matrix": {"a|b": ["x"]}}), "1 values for 2 names"),
            (json!({"matrix": {"a..b": ["x"]}}), "not the name"),
            (json!({"suite": "x", "matrix": {"suite.a": ["x"]}}), "not a hash"),
        ] {
            let error = jobs(job.clone()).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_matrix_is_expanded_or_refused(key in "[a-z.|]{0,12}", n in 0usize..200, value in ".{0,8}") {
            let matrix = json!({"suite": "x", "pp": {"a": {}}, "matrix": {key: vec![value; n]}});
            if let Ok(all) = jobs(matrix) {
                prop_assert!(all.len() <= MATRIX_JOBS_MAX);
            }
        }
    }
}
