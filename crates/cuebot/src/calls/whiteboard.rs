//! A show as one tree: its groups, and the pending jobs of each.

use super::fields::Answer;
use super::{groups, jobs};
use crate::cuebot::Cuebot;
use crate::generated::job::*;
use crate::generated::show;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Levels of groups in an answer. Decoders refuse messages that nest more than a hundred times.
const LEVELS_MAX: usize = 40;

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route("/show.ShowInterface/GetJobWhiteboard", unary(tree))
}

/// The groups and pending jobs of a show. The answer has whole jobs, so that a client need not ask for each.
async fn tree(
    cuebot: Arc<Cuebot>,
    ask: show::ShowGetJobWhiteboardRequest,
) -> Answer<show::ShowGetJobWhiteboardResponse> {
    let key = key!(ask.show)?;
    let all = groups::list(&cuebot, "o.pk_show = $1", &[key]).await?;
    let mut jobs_by_group: BTreeMap<String, Vec<Job>> = BTreeMap::new();
    for row in jobs::pending(&cuebot, "job.pk_show = $1", key).await? {
        jobs_by_group.entry(row.get("pk_folder")).or_default().push(jobs::job(&row));
    }
    let mut below: BTreeMap<String, Vec<Group>> = BTreeMap::new();
    for group in all {
        below.entry(group.parent_id.clone()).or_default().push(group);
    }
    // The group without a parent is the first of all.
    let top = below.get_mut("").and_then(Vec::pop);
    let top = top.ok_or_else(|| CallError::Missing { what: "group of show", name: key.to_owned() })?;
    let whiteboard = nested(top, &mut below, &mut jobs_by_group, LEVELS_MAX);
    Ok(show::ShowGetJobWhiteboardResponse { whiteboard: Some(whiteboard) })
}

/// A group with its groups and jobs. Each group is taken once, so that a circle in the tables ends.
fn nested(
    group: Group,
    below: &mut BTreeMap<String, Vec<Group>>,
    jobs: &mut BTreeMap<String, Vec<Job>>,
    levels: usize,
) -> NestedGroup {
    let own_jobs = jobs.remove(&group.id).unwrap_or_default();
    let mut nested_groups = Vec::new();
    if levels > 0 {
        for child in below.remove(&group.id).unwrap_or_default() {
            nested_groups.push(nested(child, below, jobs, levels - 1));
        }
    }
    repeated!(NestedGroup of group {
        id, name, department, default_job_priority, default_job_min_cores, default_job_max_cores, min_cores, max_cores,
        level, default_job_min_gpus, default_job_max_gpus, min_gpus, max_gpus
    } and {
        parent: None,
        groups: Some(NestedGroupSeq { nested_groups }),
        jobs: own_jobs.iter().map(|job| job.id.clone()).collect(),
        stats: group.group_stats,
        inline_jobs: own_jobs
    })
}
