//! The entries that a node of a cluster runs, and the lines by which it waits for the others. The lines hold the
//! numbers of all nodes, which are known once the job is stored. They are added when a machine fetches its job, and are
//! not stored. A job that is shown and submitted again has none of them.
//!
//! - An entry with `if-role` runs on the nodes with one of these roles; one without runs on all.
//! - Every node waits for all others once: after its last daemon, or, if it has none, before its first program.
//! - An entry with `depends-on` waits for that entry on all other nodes that run it, and says when it is done.
//! - A node on whose entries others depend stays until those are done. It waits for that after its last entry: earlier,
//!   two nodes that depend on each other would wait for each other for ever.
//! - No node waits for itself.

use super::cluster::{roles_of, words};
use super::fields::{Fields, plain, scalar};
use super::names::{CLUSTER_ROLES, SECTIONS};
use super::sections::entries_of;
use crate::number::{number_of, task_of};
use serde_json::Value;
use std::collections::BTreeSet;
use windlass_core::{JobId, TaskId};

/// Functions of the test programs on the machine.
const WAIT: &str = "wait_peer_jobs";
const UPDATE: &str = "update_job_vars";

/// True if the machine of a job with these fields runs an entry.
pub(crate) fn runs_here(fields: &Fields, config: Option<&Fields>) -> bool {
    if !fields.contains_key(CLUSTER_ROLES) {
        return true;
    }
    let roles = fields.get("node_roles").map(words).unwrap_or_default();
    runs_with(config, &roles)
}

fn runs_with(config: Option<&Fields>, roles: &[String]) -> bool {
    let wanted = config.and_then(|config| config.get("if-role")).map(words).unwrap_or_default();
    wanted.is_empty() || wanted.iter().any(|role| roles.contains(role))
}

/// The numbers of all nodes of a job's cluster, each with the roles that the job gives it; `None` for a job on one
/// machine.
pub(crate) fn cluster_jobs(fields: &Fields, number: JobId) -> Option<Fields> {
    let cluster = Cluster::of(fields, number)?;
    let named = roles_of(fields);
    let job = |(node, roles): (usize, &Vec<String>)| {
        let own: Vec<&str> = roles.iter().filter(|role| named.contains(role)).map(String::as_str).collect();
        (cluster.number(node).to_string(), Value::from(own.join(" ")))
    };
    Some(cluster.roles.iter().enumerate().map(job).collect())
}

/// Adds the lines by which a node waits for the others.
pub(crate) fn add_scripts(fields: &mut Fields, number: JobId) {
    let Some(cluster) = Cluster::of(fields, number) else { return };
    let entries = cluster.entries(fields);
    let mut added = Vec::new();
    let here: Vec<&ClusterEntry> =
        entries.iter().filter(|entry| entry.nodes.contains(&cluster.node)).collect();
    let last_daemon = here.iter().rfind(|entry| entry.section == "daemon");
    let first_program = here.iter().find(|entry| entry.section == "program");
    let meeting = last_daemon.map(|entry| (entry, "post-script"));
    if let Some((entry, key)) = meeting.or(first_program.map(|entry| (entry, "pre-script"))) {
        added.push((*entry, key, cluster.meeting()));
    }
    let mut stays_for = Vec::new();
    for entry in &here {
        let needed = entries.iter().filter(|other| entry.depends_on(other));
        let waits = cluster.waits(needed, "ready");
        if !waits.is_empty() {
            added.push((*entry, "pre-script", format!("{WAIT} {}", waits.join(" "))));
        }
        if entries.iter().any(|other| entry.depends_on(other)) {
            added.push((*entry, "post-script", reached(&entry.name, "done")));
        }
        let dependents: Vec<&ClusterEntry> = entries.iter().filter(|other| other.depends_on(entry)).collect();
        if !dependents.is_empty() {
            added.push((*entry, "post-script", reached(&entry.name, "ready")));
            stays_for.extend(dependents);
        }
    }
    let waits = cluster.waits(stays_for.into_iter(), "done");
    if let Some(last) = here.last().filter(|_| !waits.is_empty()) {
        added.push((*last, "post-script", format!("{WAIT} {}", waits.join(" "))));
    }
    for (entry, key, lines) in added {
        append(fields, entry, key, lines);
    }
}

/// A node, and the other nodes of its cluster.
struct Cluster {
    job: JobId,
    node: u32,
    roles: Vec<Vec<String>>,
}

/// An entry of a section, such as a program.
struct ClusterEntry {
    section: &'static str,
    name: String,
    depends: Vec<String>,
    nodes: BTreeSet<u32>,
}

impl ClusterEntry {
    fn depends_on(&self, other: &ClusterEntry) -> bool {
        self.name != other.name && self.depends.contains(&other.name)
    }
}

impl Cluster {
    fn of(fields: &Fields, number: JobId) -> Option<Cluster> {
        let roles = fields.get(CLUSTER_ROLES)?.as_array()?.iter().map(words).collect();
        let TaskId { job, index } = task_of(number);
        Some(Cluster { job, node: index, roles })
    }

    fn number(&self, node: usize) -> JobId {
        number_of(TaskId { job: self.job, index: node as u32 })
    }

    /// All entries, in the order in which machines run them.
    fn entries(&self, fields: &Fields) -> Vec<ClusterEntry> {
        let mut all = Vec::new();
        for section in SECTIONS {
            for (name, config) in entries_of(fields, section) {
                let runs = |(_, roles): &(u32, &Vec<String>)| runs_with(config.as_object(), roles);
                all.push(ClusterEntry {
                    section,
                    name: name.clone(),
                    depends: config.get("depends-on").map(words).unwrap_or_default(),
                    nodes: (0..).zip(&self.roles).filter(runs).map(|(node, _)| node).collect(),
                });
            }
        }
        all
    }

    /// The lines by which a node reports its addresses and waits for all nodes.
    fn meeting(&self) -> String {
        let all = (0..self.roles.len()).map(|node| format!("{}.job_stage=wait_peer", self.number(node)));
        let all: Vec<String> = all.collect();
        [
            format!(
                "{UPDATE} job_stage=wait_peer ip=$ip direct_macs=\"$direct_macs\" direct_ips=\"$direct_ips\""
            ),
            format!("{WAIT} {}", all.join(" ")),
            format!("{UPDATE} job_stage=running"),
        ]
        .join("\n")
    }

    /// The waits for these entries on all other nodes, each once.
    fn waits<'a>(&self, entries: impl Iterator<Item = &'a ClusterEntry>, what: &str) -> Vec<String> {
        let mut waits: Vec<String> = Vec::new();
        let mut known = BTreeSet::new();
        for entry in entries {
            for node in entry.nodes.iter().filter(|node| **node != self.node) {
                if known.insert((&entry.name, node)) {
                    let number = self.number(*node as usize);
                    waits.push(format!("{number}.milestones={}-{what}", milestone(&entry.name)));
                }
            }
        }
        waits
    }
}

fn reached(entry: &str, what: &str) -> String {
    format!("{UPDATE} milestones={}-{what}", milestone(entry))
}

/// The name of an entry as a part of a milestone, which is one word of a shell.
fn milestone(name: &str) -> String {
    plain(name, "._-")
}

/// Adds lines after those of the job's author.
fn append(fields: &mut Fields, entry: &ClusterEntry, key: &str, lines: String) {
    let config = fields.get_mut(entry.section).and_then(|section| section.get_mut(&entry.name));
    let Some(config) = config else { return };
    if !config.is_object() {
        *config = Value::Object(Fields::new());
    }
    let Some(script) = config.as_object_mut().map(|config| config.entry(key).or_insert(Value::Null)) else {
        return;
    };
    match script {
        Value::Array(all) => all.push(lines.into()),
        other => {
            let before = scalar(other).filter(|text| !text.is_empty());
            *other = Value::from(before.map_or(lines.clone(), |before| format!("{before}\n{lines}")));
        }
    }
}

#[cfg(test)]
mod tests;
