//! The directory of a job's results, and the sum of its parameters.

use super::fields::{Fields, plain, scalar, text_of};
use md5::{Digest, Md5};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::JobId;
use windlass_core::bounds::NAME_BYTES_MAX;

/// Characters of all parameters' values in a path.
const VALUES_CHARS_MAX: usize = 40;
/// Fields besides the parameters that distinguish tests.
const COMMON: [&str; 4] = ["tbox_group", "os", "os_arch", "os_version"];

/// The directory of a job's results, in Compass CI's form. `date` is the day of its submission.
pub fn result_root(id: JobId, fields: &Fields, date: &str) -> String {
    let part = |key: &str| path_part(text_of(fields, key).unwrap_or_default());
    let mut parts = vec![part("suite"), date.to_owned(), part("tbox_group"), path_part(rootfs(fields))];
    let values = values_text(fields);
    if !values.is_empty() {
        parts.push(path_part(values));
    }
    format!("/result/{}/{id}", parts.join("/"))
}

/// The name of a job's root file system: `OS-VERSION-ARCH`, without parts that the job leaves out.
pub fn rootfs(fields: &Fields) -> String {
    let arch = text_of(fields, "os_arch").or_else(|| text_of(fields, "arch"));
    let words = [text_of(fields, "os"), text_of(fields, "os_version"), arch];
    words.into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// A text as one part of a path, without separators and without a dot at its start.
fn path_part(text: String) -> String {
    let mut text = plain(&text, "._-=+@");
    text.truncate(NAME_BYTES_MAX);
    if text.is_empty() || text.starts_with('.') { format!("_{text}") } else { text }
}

/// The values of the programs' parameters, in the order of `PROGRAM.PARAMETER`.
fn values_text(fields: &Fields) -> String {
    let (mut values, mut room) = (Vec::new(), VALUES_CHARS_MAX);
    for value in flat(fields, "pp").into_values() {
        let fits = |c: &char| c.is_ascii_alphanumeric() || "_-.".contains(*c);
        let value: String = value.replace('/', "-").chars().filter(fits).take(room).collect();
        room -= value.chars().count();
        if !value.is_empty() {
            values.push(value);
        }
    }
    values.join("-").trim_matches('-').to_owned()
}

/// Flattens the hash of hashes `key`: `PROGRAM.PARAMETER` to its value. A value that begins with `_` does not influence
/// the result, and is left out.
fn flat(fields: &Fields, key: &str) -> BTreeMap<String, String> {
    let programs = fields.get(key).and_then(Value::as_object).into_iter().flatten();
    let mut all = BTreeMap::new();
    for (program, params) in programs {
        for (name, value) in params.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let value = scalar(value).unwrap_or_else(|| value.to_string());
            if !value.starts_with('_') {
                all.insert(format!("{program}.{name}"), value);
            }
        }
    }
    all
}

/// The MD5 sum of a job's parameters, kind of machine and system. Jobs that test the same have the same sum.
pub fn all_params_md5(fields: &Fields) -> String {
    let mut all = flat(fields, "pp");
    all.extend(flat(fields, "ss"));
    all.extend(COMMON.map(|key| (key.to_owned(), text_of(fields, key).unwrap_or_default())));
    // As JSON, so that a value cannot be read as another key.
    md5_of(Value::from_iter(all).to_string().as_bytes())
}

/// The MD5 sum of bytes, in hexadecimal. Compass CI names files by it.
pub(crate) fn md5_of(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn root(more: Value) -> String {
        let mut fields = json!({"suite": "iperf", "tbox_group": "vm-2p8g", "os": "debian", "os_version": "12",
            "os_arch": "x86_64"});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        result_root(JobId(7), fields.as_object().unwrap(), "2026-01-02")
    }

    #[test]
    fn a_result_root_has_the_values_alone() {
        assert_eq!(root(json!({})), "/result/iperf/2026-01-02/vm-2p8g/debian-12-x86_64/7");
        let pp =
            json!({"pp": {"iperf": {"runtime": 30, "b": "a/b c", "x": null}, "cci": {"_": "_no", "z": 1}}});
        assert_eq!(root(pp), "/result/iperf/2026-01-02/vm-2p8g/debian-12-x86_64/1-a-bc-30/7");
        let long = json!({"pp": {"a": {"x": "y".repeat(35), "z": "123456789"}}});
        assert!(root(long).contains(&format!("/{}-12345/", "y".repeat(35))));
        assert!(root(json!({"os": "..", "os_version": "", "os_arch": "/"})).contains("/_..-_/"));
    }

    #[test]
    fn sums_differ_by_what_matters() {
        let sum = |value: Value| all_params_md5(value.as_object().unwrap());
        let one = json!({"pp": {"a": {"x": 1}}, "os": "debian", "my_account": "ann"});
        let same = json!({"pp": {"a": {"x": "1", "_c": "_quiet"}}, "os": "debian", "my_account": "bob"});
        assert_eq!(sum(one.clone()), sum(same));
        assert_ne!(sum(one), sum(json!({"pp": {"a": {"x": 2}}, "os": "debian"})));
        assert_eq!(md5_of(b"abc"), "900150983cd24fb0d6963f7d28e17f72");
    }

    proptest! {
        #[test]
        fn no_field_leads_out_of_the_results(os in ".*", value in ".*", suite in ".*") {
            let fields = json!({"suite": suite, "os": os, "pp": {"p": {"v": value}}});
            let root = result_root(JobId(1), fields.as_object().unwrap(), "2026-01-02");
            let parts: Vec<&str> = root.split('/').skip(1).collect();
            prop_assert!((6..=7).contains(&parts.len()), "{root}");
            prop_assert!(parts.iter().all(|part| !part.is_empty() && !part.starts_with('.')), "{root}");
        }
    }
}
