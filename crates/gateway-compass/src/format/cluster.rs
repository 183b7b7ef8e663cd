//! Jobs on several machines: the specification of a cluster, and the split of a job into one for each node.

use super::bad_job::{BadJob, bad_field};
use super::fields::{Fields, scalar, text_of, texts};
use super::job::CompassJob;
use super::names::{CLUSTER_ROLES, CLUSTER_SPEC, NODES, SECTIONS};
use super::sections::{ENTRIES_MAX, entries_of, in_kept_order};
use super::testbox::Testbox;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use windlass_core::bounds::NAME_BYTES_MAX;

/// Nodes of a cluster.
pub const CLUSTER_NODES_MAX: usize = 64;
/// Roles of one node.
const ROLES_MAX: usize = 16;
/// Bytes of a network address. Those of InfiniBand are the longest.
const MAC_BYTES_MAX: usize = 64;
/// Words of all `depends-on` of a job. Each becomes a wait for every node.
const DEPENDENCIES_MAX: usize = 256;
/// Bytes of the jobs of all nodes of one submission.
const NODES_BYTES_MAX: usize = 32 << 20;
/// The name of a cluster that is the job's only machine. Such a job is not split.
const LOCALHOST: &str = "cs-localhost";
/// The network between the nodes, and its last address.
const DIRECT_NETWORK: &str = "192.168.222";
const DIRECT_HOST_MAX: u32 = 254;
/// Fields that describe one machine. They are removed, because nodes differ.
const OF_ONE_HOST: &str = "hw memory nr_hdd_partitions hdd_partitions ssd_partitions rootfs_disk \
    mac_addr arch nr_node nr_cpu model_name serial_number";

/// The machines of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClusterSpec {
    /// The last part of the first address of the network between the nodes.
    pub ip0: u32,
    /// The nodes, in the order in which they were written.
    pub nodes: Vec<ClusterNode>,
}

/// A machine of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClusterNode {
    /// The name of the node's testbox.
    pub host: String,
    /// The roles that the node may have in a job.
    pub roles: Vec<String>,
    /// The addresses of its interfaces in the network between the nodes.
    pub macs: Vec<String>,
}

/// The cluster that a job names; `None` for a job on one machine.
pub fn cluster_name(fields: &Fields) -> Option<String> {
    text_of(fields, "cluster").filter(|name| !name.is_empty() && name != LOCALHOST)
}

/// Checks the name of a cluster, which is also the name of a file.
pub fn check_cluster_name(name: &str) -> Result<(), String> {
    let bad = |c: char| c == '/' || c.is_control() || c.is_whitespace();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || name.contains(bad) {
        return Err(format!(
            "the name of a cluster is a word of up to {NAME_BYTES_MAX} bytes, without '/' and no '.' first"
        ));
    }
    Ok(())
}

impl ClusterSpec {
    /// Reads a laboratory's file, in YAML or JSON.
    pub fn of_text(text: &str) -> Result<ClusterSpec, String> {
        let read = match serde_json::from_str::<SpecText>(text) {
            Ok(read) => read,
            Err(_) => serde_saphyr::from_str(text).map_err(|error| {
                let error = error.to_string();
                format!("it is not a cluster's YAML: {}", error.lines().next().unwrap_or_default())
            })?,
        };
        ClusterSpec::of(read)
    }

    /// Reads the job's own `cluster_spec`; `None` if it has none.
    pub fn of_job(fields: &Fields) -> Result<Option<ClusterSpec>, BadJob> {
        let Some(value) = fields.get(CLUSTER_SPEC).filter(|value| !value.is_null()) else { return Ok(None) };
        let read = SpecText::deserialize(value).map_err(|error| error.to_string()).and_then(|mut read| {
            in_kept_order(fields, NODES, &mut read.nodes.0);
            ClusterSpec::of(read)
        });
        read.map(Some).map_err(|why| bad_field(CLUSTER_SPEC, why))
    }

    fn of(read: SpecText) -> Result<ClusterSpec, String> {
        let ip0 = match &read.ip0 {
            None | Some(Value::Null) => 1,
            Some(value) => {
                let number = scalar(value).and_then(|text| text.parse().ok());
                let number = number.filter(|number| (1..=DIRECT_HOST_MAX).contains(number));
                number.ok_or_else(|| format!("ip0 must be a number from 1 to {DIRECT_HOST_MAX}"))?
            }
        };
        let (mut nodes, mut known) = (Vec::new(), BTreeSet::new());
        for (host, value) in read.nodes.0 {
            if nodes.len() >= CLUSTER_NODES_MAX {
                return Err(format!("it has more than {CLUSTER_NODES_MAX} nodes"));
            }
            Testbox::parse(&host).map_err(|bad| bad.to_string())?;
            if !known.insert(host.clone()) {
                return Err(format!("node '{host}' is there twice"));
            }
            nodes.push(ClusterNode::of(host, &value)?);
        }
        if nodes.is_empty() {
            return Err("it has no nodes; give nodes: {HOST: {roles: [server]}}".to_owned());
        }
        Ok(ClusterSpec { ip0, nodes })
    }
}

impl ClusterNode {
    fn of(host: String, value: &Value) -> Result<ClusterNode, String> {
        let list = |key: &str| match value.get(key).unwrap_or(&Value::Null) {
            Value::Number(_) | Value::Bool(_) => None,
            value => texts(value).map(|_| words(value)),
        };
        let Some(roles) = list("roles").filter(|_| value.is_object()) else {
            return Err(format!("node '{host}' must be a hash, whose roles are a list of words"));
        };
        let is_role = |role: &String| role.len() <= NAME_BYTES_MAX && !role.contains(char::is_control);
        if roles.len() > ROLES_MAX || !roles.iter().all(is_role) {
            return Err(format!("node '{host}' must have up to {ROLES_MAX} roles, which are words"));
        }
        let is_mac = |mac: &String| {
            mac.len() <= MAC_BYTES_MAX && mac.chars().all(|c| c.is_ascii_hexdigit() || ":-".contains(c))
        };
        match list("macs") {
            Some(macs) if macs.iter().all(is_mac) => Ok(ClusterNode { host, roles, macs }),
            _ => Err(format!("macs of node '{host}' must be a list of addresses such as 44:67:47:d7:6d:14")),
        }
    }
}

/// Splits the jobs of a submission into those of their nodes. A job on one machine stays one.
pub fn nodes_of(
    submitted: Vec<Fields>,
    cluster: Option<&ClusterSpec>,
) -> Result<Vec<Vec<CompassJob>>, BadJob> {
    let Some(cluster) = cluster else {
        return submitted.into_iter().map(|fields| Ok(vec![CompassJob::parse(fields)?])).collect();
    };
    let (mut all, mut bytes) = (Vec::new(), 0usize);
    for fields in submitted {
        let nodes = split(fields, cluster)?;
        let size = |node: &Fields| serde_json::to_string(node).map_or(0, |text| text.len());
        bytes = nodes.iter().map(size).fold(bytes, usize::saturating_add);
        if bytes > NODES_BYTES_MAX {
            let why =
                format!("the jobs of all nodes have more than {NODES_BYTES_MAX} bytes; submit less at once");
            return Err(bad_field("cluster", why));
        }
        let roles: Vec<Value> = nodes.iter().filter_map(|node| node.get("node_roles").cloned()).collect();
        let mut jobs = Vec::with_capacity(nodes.len());
        for node in nodes {
            let mut job = CompassJob::parse(node)?;
            job.fields.insert(CLUSTER_ROLES.to_owned(), Value::from(roles.clone()));
            jobs.push(job);
        }
        all.push(jobs);
    }
    Ok(all)
}

/// Copies a job for each node that has one of the job's roles.
fn split(mut fields: Fields, cluster: &ClusterSpec) -> Result<Vec<Fields>, BadJob> {
    let roles = roles_of(&fields);
    if roles.is_empty() {
        return Err(bad_field("cluster", "no daemon and no program says by if-role on which nodes it runs"));
    }
    let entries = || SECTIONS.iter().filter_map(|section| fields.get(*section)?.as_object());
    if entries().map(Fields::len).sum::<usize>() > ENTRIES_MAX {
        let why = format!("setup, daemon, monitor and program have more than {ENTRIES_MAX} entries together");
        return Err(bad_field("cluster", why));
    }
    let depends = entries().flat_map(Fields::values).filter_map(|config| config.get("depends-on"));
    if depends.map(|on| words(on).len()).sum::<usize>() > DEPENDENCIES_MAX {
        return Err(bad_field("depends-on", format!("there are more than {DEPENDENCIES_MAX} in the job")));
    }
    for key in OF_ONE_HOST.split_whitespace().chain(["tbox_group", "direct_macs", "direct_ips"]) {
        fields.remove(key);
    }
    let (mut nodes, mut host_number) = (Vec::new(), cluster.ip0);
    for node in cluster.nodes.iter().filter(|node| node.roles.iter().any(|role| roles.contains(role))) {
        let mut job = fields.clone();
        let mut put = |key: &str, text: String| _ = job.insert(key.to_owned(), text.into());
        put("testbox", node.host.clone());
        put("node_roles", node.roles.join(" "));
        put("nr_nic", "2".to_owned());
        let mut addresses = Vec::new();
        for _ in &node.macs {
            if host_number > DIRECT_HOST_MAX {
                let why = format!(
                    "there is no address for all macs in {DIRECT_NETWORK}.{} to {DIRECT_NETWORK}.{DIRECT_HOST_MAX}",
                    cluster.ip0
                );
                return Err(bad_field("cluster", why));
            }
            addresses.push(format!("{DIRECT_NETWORK}.{host_number}"));
            host_number += 1;
        }
        if !addresses.is_empty() {
            put("direct_macs", node.macs.join(" "));
            put("direct_ips", addresses.join(" "));
        }
        nodes.push(job);
    }
    if nodes.is_empty() {
        let why = format!(
            "no node of it has one of the roles {}, which the job names by if-role",
            roles.join(", ")
        );
        return Err(bad_field("cluster", why));
    }
    Ok(nodes)
}

/// The roles that a job names, each once.
pub(super) fn roles_of(fields: &Fields) -> Vec<String> {
    let mut roles: Vec<String> = Vec::new();
    for section in ["daemon", "program"] {
        for (_, config) in entries_of(fields, section) {
            for role in config.get("if-role").map(words).unwrap_or_default() {
                if !roles.contains(&role) {
                    roles.push(role);
                }
            }
        }
    }
    roles
}

/// The words of a text or of a list of texts, split at commas and blanks.
pub(super) fn words(value: &Value) -> Vec<String> {
    let texts = match value {
        Value::Array(all) => all.iter().filter_map(scalar).collect(),
        value => scalar(value).into_iter().collect::<Vec<String>>(),
    };
    let words = texts.iter().flat_map(|text| text.split(|c: char| c == ',' || c.is_whitespace()));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// A specification as text has it.
#[derive(Deserialize)]
struct SpecText {
    #[serde(default)]
    ip0: Option<Value>,
    #[serde(default)]
    nodes: NodeList,
}

/// Hosts with their properties, in their order: a hash of hosts, or a list in which each has a field `host`.
#[derive(Default)]
struct NodeList(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for NodeList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Nodes;
        impl<'de> Visitor<'de> for Nodes {
            type Value = NodeList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the nodes of a cluster")
            }

            fn visit_unit<E>(self) -> Result<NodeList, E> {
                Ok(NodeList::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeList, A::Error> {
                let mut nodes = NodeList::default();
                while let Some(node) = map.next_entry()? {
                    nodes.0.push(node);
                }
                Ok(nodes)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<NodeList, A::Error> {
                let mut nodes = NodeList::default();
                while let Some(node) = all.next_element::<Value>()? {
                    let host = node.get("host").and_then(scalar).unwrap_or_default();
                    nodes.0.push((host, node));
                }
                Ok(nodes)
            }
        }
        deserializer.deserialize_any(Nodes)
    }
}

#[cfg(test)]
mod tests;
