//! The order of the entries of `setup`, `daemon`, `monitor` and `program`. A machine runs them in the order in which
//! the job's author wrote them, which a map of values loses.

use super::fields::Fields;
use super::names::{CLUSTER_SPEC, NODES, SECTION_ORDER, SECTIONS};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Entries of one section whose order is kept.
pub(super) const ENTRIES_MAX: usize = 1_000;

/// The order of the entries in a job's text, to be stored with its fields; `None` if the text has no section with
/// several entries.
pub fn section_order(text: &[u8], is_yaml: bool) -> Option<Value> {
    let keys: Keys = match is_yaml {
        true => serde_saphyr::from_str(std::str::from_utf8(text).ok()?).ok()?,
        false => serde_json::from_slice(text).ok()?,
    };
    let order: Fields = keys.0.into_iter().filter(|(_, names)| names.len() > 1).map(entry).collect();
    (!order.is_empty()).then_some(Value::Object(order))
}

fn entry((section, names): (String, Vec<String>)) -> (String, Value) {
    (section, Value::from(names))
}

/// The entries of a section: first those whose order is kept, then all others by name.
pub fn entries_of<'a>(fields: &'a Fields, section: &str) -> Vec<(&'a String, &'a Value)> {
    let Some(entries) = fields.get(section).and_then(Value::as_object) else { return Vec::new() };
    let mut all: Vec<(&String, &Value)> = entries.iter().collect();
    in_kept_order(fields, section, &mut all);
    all
}

/// Sorts entries into the kept order. Others follow in their present order.
pub(super) fn in_kept_order<N: AsRef<str>, T>(fields: &Fields, section: &str, entries: &mut [(N, T)]) {
    let kept = fields.get(SECTION_ORDER).and_then(|order| order.get(section)).and_then(Value::as_array);
    let kept = kept.into_iter().flatten().filter_map(Value::as_str).take(ENTRIES_MAX);
    let places: BTreeMap<&str, usize> = kept.enumerate().map(|(place, name)| (name, place)).collect();
    entries.sort_by_key(|(name, _)| places.get(name.as_ref()).copied().unwrap_or(ENTRIES_MAX));
}

/// Sections with the names of their entries.
struct Keys(Vec<(String, Vec<String>)>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sections;
        impl<'de> Visitor<'de> for Sections {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a job")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut all = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if SECTIONS.contains(&key.as_str()) {
                        all.push((key, map.next_value::<EntryNames>()?.0));
                    } else if key == CLUSTER_SPEC {
                        let nodes = map.next_value::<Option<SpecNames>>()?.unwrap_or_default();
                        all.push((NODES.to_owned(), nodes.nodes.0));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Keys(all))
            }
        }
        deserializer.deserialize_map(Sections)
    }
}

/// The hosts of a job's own `cluster_spec`.
#[derive(Default, Deserialize)]
struct SpecNames {
    #[serde(default)]
    nodes: EntryNames,
}

/// The keys of a mapping; none for a list or null.
#[derive(Default)]
struct EntryNames(Vec<String>);

impl<'de> Deserialize<'de> for EntryNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = EntryNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the entries of a section")
            }

            fn visit_unit<E>(self) -> Result<EntryNames, E> {
                Ok(EntryNames(Vec::new()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<EntryNames, A::Error> {
                while all.next_element::<IgnoredAny>()?.is_some() {}
                Ok(EntryNames(Vec::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EntryNames, A::Error> {
                let mut names = Vec::new();
                while let Some((name, _)) = map.next_entry::<String, IgnoredAny>()? {
                    if names.len() < ENTRIES_MAX {
                        names.push(name);
                    }
                }
                Ok(EntryNames(names))
            }
        }
        deserializer.deserialize_any(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_keep_the_order_in_which_they_were_written() {
        let yaml = b"suite: x\nprogram:\n  zeta: {a: 1}\n  alpha:\nsetup: {disk: null}\nmonitor:\n";
        let order = section_order(yaml, true).unwrap();
        assert_eq!(order, json!({"program": ["zeta", "alpha"]}));
        let text = br#"{"program": {"zeta": {"a": [1]}, "alpha": null, "beta": null}, "x": {"y": 1}}"#;
        assert_eq!(section_order(text, false).unwrap(), json!({"program": ["zeta", "alpha", "beta"]}));
        assert_eq!(section_order(b"{\"suite\": 1}", false), None);
        assert_eq!(section_order(b"program: 5", true), None);
        let fields = json!({"program": {"alpha": null, "new": null, "zeta": {}}, "section_order": order});
        let all = entries_of(fields.as_object().unwrap(), "program");
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["zeta", "alpha", "new"]);
    }
}
