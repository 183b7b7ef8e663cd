//! The request for work that a provider's host sends about once a second.

use super::fields::{Fields, scalar, text_of, texts};
use super::names::EXECUTOR_NAME;
use super::quantity::parse_memory;
use super::testbox::{TboxType, Testbox, group_of};
use serde_json::Value;
use std::collections::BTreeSet;
use windlass_core::bounds::{CACHE_KEY_BYTES_MAX, CACHE_KEYS_MAX, NAME_BYTES_MAX};
use windlass_core::tags::{Attributes, EXECUTOR};

/// The largest memory in a host's request, in mebibytes. More is refused as a mistake.
const MEMORY_MB_MAX: u64 = 1 << 30;
/// Most cores in a host's request.
const CPUS_MAX: u64 = 65_536;
/// Most tags, and most devices, of one host.
const TAGS_MAX: usize = 256;

/// A host that asks for work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRequest {
    /// The name under which the host is known.
    pub hostname: String,
    /// The host's architecture, such as `aarch64`.
    pub arch: String,
    /// The kinds of testboxes that it runs.
    pub tbox_types: BTreeSet<TboxType>,
    /// Cores; `None` if the host does not report them.
    pub nr_cpu: Option<u32>,
    /// Bytes of free memory.
    pub free_memory: u64,
    /// Further tags of the host.
    pub tags: BTreeSet<String>,
    /// Hardware that jobs may ask for.
    pub devices: BTreeSet<String>,
    /// Directories in its caches.
    pub cache_dirs: BTreeSet<String>,
    /// Minutes since it booted; `None` if the host does not report them.
    pub uptime_minutes: Option<u64>,
}

/// Why a host's request is refused: the field, and what it must be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} {what}")]
pub struct BadHost {
    /// The name of the field.
    pub field: &'static str,
    /// What is wrong with it.
    pub what: String,
}

fn bad<T>(field: &'static str, what: impl Into<String>) -> Result<T, BadHost> {
    Err(BadHost { field, what: what.into() })
}

impl HostRequest {
    /// Reads a request. Unknown fields are ignored.
    pub fn parse(fields: &Fields) -> Result<HostRequest, BadHost> {
        let hostname = name(fields, "hostname")?;
        let arch = name(fields, "arch")?;
        let Some(types) = fields.get("tbox_type").and_then(texts) else {
            return bad("tbox_type", "must name its kinds of testboxes: vm, dc or both");
        };
        let mut tbox_types = BTreeSet::new();
        for word in &types {
            match TboxType::of(word) {
                kind if kind.as_str() == word => _ = tbox_types.insert(kind),
                _ => return bad("tbox_type", "must name its kinds of testboxes: vm, dc or both"),
            }
        }
        if tbox_types.is_empty() {
            return bad("tbox_type", "must name its kinds of testboxes: vm, dc or both");
        }
        let Some(free_mb) = whole(fields, "freemem", MEMORY_MB_MAX)? else {
            return bad("freemem", "is missing: give the mebibytes of free memory");
        };
        let metrics = fields.get("metrics").and_then(Value::as_object);
        let uptime = metrics.map(|metrics| whole(metrics, "uptime_minutes", u64::MAX)).transpose()?;
        Ok(HostRequest {
            hostname,
            arch,
            tbox_types,
            nr_cpu: whole(fields, "nr_cpu", CPUS_MAX)?.map(|n| n as u32),
            free_memory: free_mb << 20,
            tags: words(fields, "tags", TAGS_MAX)?,
            devices: words(fields, "devices", TAGS_MAX)?,
            cache_dirs: words(fields, "cache_dirs", CACHE_KEYS_MAX)?,
            uptime_minutes: uptime.flatten(),
        })
    }

    /// The host's attributes, by which jobs ask for it.
    pub fn attributes(&self) -> Attributes {
        let types = self.tbox_types.iter().map(|kind| kind.as_str().to_owned()).collect();
        attributes(&self.hostname, &self.arch, types, &self.tags, &self.devices)
    }

    /// Attributes, cpus and bytes of memory of a bare-metal machine that boots: from its registered `fields`, else from
    /// its name.
    pub fn bare_metal(
        hostname: &str,
        fields: &Fields,
    ) -> Result<(Attributes, Option<u32>, Option<u64>), BadHost> {
        let arch = text_of(fields, "arch").unwrap_or_default();
        let (tags, devices) = (words(fields, "tags", TAGS_MAX)?, words(fields, "devices", TAGS_MAX)?);
        let attributes = attributes(hostname, &arch, BTreeSet::from(["hw".to_owned()]), &tags, &devices);
        let named = Testbox::parse(hostname).ok();
        let cpus = whole(fields, "nr_cpu", CPUS_MAX)?.map(|n| n as u32);
        let cpus = cpus.or(named.as_ref().and_then(|named| named.cpus));
        Ok((attributes, cpus, memory(fields)?.or(named.and_then(|named| named.memory))))
    }
}

/// The registered memory of a host in bytes; `None` if none is registered.
fn memory(fields: &Fields) -> Result<Option<u64>, BadHost> {
    let Some(text) = text_of(fields, "memory") else { return Ok(None) };
    match parse_memory(&text) {
        Some(bytes) => Ok(Some(bytes)),
        None => bad("memory", format!("must be an amount such as 256g, not '{text}'")),
    }
}

fn attributes(
    hostname: &str,
    arch: &str,
    types: BTreeSet<String>,
    tags: &BTreeSet<String>,
    devices: &BTreeSet<String>,
) -> Attributes {
    let one = |text: &str| BTreeSet::from([text.to_owned()]);
    let mut attributes = Attributes::from([
        (EXECUTOR.to_owned(), one(EXECUTOR_NAME)),
        ("tbox_type".to_owned(), types),
        ("tbox_group".to_owned(), one(group_of(hostname))),
    ]);
    if !arch.is_empty() {
        attributes.insert("arch".to_owned(), one(arch));
    }
    for (key, values) in [("tag", tags), ("device", devices)] {
        if !values.is_empty() {
            attributes.insert(key.to_owned(), values.clone());
        }
    }
    attributes
}

/// A required field with one word.
fn name(fields: &Fields, field: &'static str) -> Result<String, BadHost> {
    match text_of(fields, field) {
        Some(text) if is_word(&text, NAME_BYTES_MAX) => Ok(text),
        Some(_) => bad(field, format!("must be a word of up to {NAME_BYTES_MAX} bytes")),
        None => bad(field, "is missing"),
    }
}

fn is_word(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len()) && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// A whole number, which may be written as text. Absent is `None`.
fn whole(fields: &Fields, field: &'static str, max: u64) -> Result<Option<u64>, BadHost> {
    let value = match fields.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let number = value.as_u64().or_else(|| scalar(value)?.parse().ok());
    match number.filter(|n| *n <= max) {
        Some(n) => Ok(Some(n)),
        None => bad(field, format!("must be a whole number from 0 to {max}")),
    }
}

/// A list of words; empty if the field is absent.
fn words(fields: &Fields, field: &'static str, max: usize) -> Result<BTreeSet<String>, BadHost> {
    let Some(all) = fields.get(field).map_or(Some(Vec::new()), texts) else {
        return bad(field, "must be a list of words");
    };
    if all.len() > max {
        return bad(field, format!("has {} entries, more than {max}", all.len()));
    }
    if !all.iter().all(|word| is_word(word, CACHE_KEY_BYTES_MAX)) {
        return bad(field, format!("must be a list of words of up to {CACHE_KEY_BYTES_MAX} bytes"));
    }
    Ok(all.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(value: Value) -> Result<HostRequest, BadHost> {
        HostRequest::parse(value.as_object().unwrap())
    }

    fn whole_request() -> Value {
        json!({
            "type": "host-job-request", "hostname": "taishan200-2280-2s48p-256g--a66", "arch": "aarch64",
            "nr_cpu": 96, "tbox_type": "vm,dc", "is_remote": false, "tags": ["ssd"], "freemem": 20480,
            "cache_dirs": ["1-ccache/redis"], "services": {}, "metrics": {"uptime_minutes": 12},
        })
    }

    #[test]
    fn a_host_says_what_it_is() {
        let host = parse(whole_request()).unwrap();
        assert_eq!(host.free_memory, 20 << 30);
        assert_eq!((host.nr_cpu, host.uptime_minutes), (Some(96), Some(12)));
        let attributes = host.attributes();
        assert!(attributes["tbox_type"].contains("vm") && attributes["tbox_type"].contains("dc"));
        assert!(attributes["tbox_group"].contains("taishan200-2280-2s48p-256g"));
        assert!(attributes["tag"].contains("ssd") && attributes["executor"].contains("compass-ci"));
        assert_eq!(host.cache_dirs.len(), 1);
    }

    #[test]
    fn what_is_bad_is_named() {
        let with = |field: &str, value: Value| {
            let mut all = whole_request();
            all[field] = value;
            parse(all).unwrap_err().field
        };
        assert_eq!(with("freemem", json!(-1)), "freemem");
        assert_eq!(with("freemem", json!(1e300)), "freemem");
        assert_eq!(with("freemem", Value::Null), "freemem");
        assert_eq!(with("hostname", json!("a b")), "hostname");
        assert_eq!(with("arch", json!(["x"])), "arch");
        assert_eq!(with("tbox_type", json!("vm,lxc")), "tbox_type");
        assert_eq!(with("tags", json!({"a": 1})), "tags");
        assert_eq!(with("cache_dirs", json!(vec!["x"; CACHE_KEYS_MAX + 1])), "cache_dirs");
        assert_eq!(with("nr_cpu", json!(1u64 << 40)), "nr_cpu");
    }

    #[test]
    fn bare_metal_is_what_is_registered_or_named() {
        let none = Fields::new();
        let (attributes, cpus, memory) =
            HostRequest::bare_metal("taishan200-2280-2s64p-256g--a61", &none).unwrap();
        assert!(attributes["tbox_type"].contains("hw") && !attributes.contains_key("arch"));
        assert_eq!((cpus, memory), (Some(64), Some(256 << 30)));
        let said = json!({"nr_cpu": 8, "memory": "16g", "arch": "x86_64", "devices": ["hinic"]});
        let (attributes, cpus, memory) = HostRequest::bare_metal("box", said.as_object().unwrap()).unwrap();
        assert_eq!((cpus, memory), (Some(8), Some(16 << 30)));
        assert!(attributes["device"].contains("hinic") && attributes["arch"].contains("x86_64"));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,4}", inner, 0..3)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_in_any_field_is_taken_or_refused(field in 0usize..9, value in any_json()) {
            let mut all = whole_request();
            let name = ["hostname", "arch", "nr_cpu", "tbox_type", "tags", "freemem", "cache_dirs", "metrics",
                "devices"][field];
            all[name] = value;
            if let Ok(host) = parse(all) {
                prop_assert!(host.free_memory <= MEMORY_MB_MAX << 20 && !host.tbox_types.is_empty());
            }
        }
    }
}
