//! Groups: the folders of a show, with caps, and with defaults for their jobs.
//!
//! - A job is in one group, and what it holds counts for that group alone. A job that moves takes its cores along, in
//!   the transaction that moves it.
//! - Groups of a show are a tree below one that has no parent. Moves keep it a tree.

use super::fields::{Answer, ROWS_MAX, cores, few, hundredths_or_none, id, name};
use super::jobs;
use crate::cuebot::Cuebot;
use crate::generated::job::*;
use crate::generated::show::{
    ShowGetGroupsRequest, ShowGetGroupsResponse, ShowGetRootGroupRequest, ShowGetRootGroupResponse,
};
use crate::locks::lock_jobs;
use crate::routes::{Routes, unary};
use crate::trouble::CallError;
use deadpool_postgres::Transaction;
use std::sync::Arc;
use tokio_postgres::Row;

/// Characters of a group's name: its column.
const NAME_CHARS_MAX: usize = 36;

pub(super) fn routes(routes: Routes) -> Routes {
    setters(changes(answers(routes)))
        .route("/job.GroupInterface/FindGroup", unary(find))
        .route("/job.GroupInterface/CreateSubGroup", unary(create))
        .route("/job.GroupInterface/Delete", unary(delete))
        .route("/job.GroupInterface/SetName", unary(set_name))
}

/// Groups with their figures. A condition is appended.
const GROUPS: &str = "
SELECT o.pk_folder, o.str_name, d.str_name AS dept, o.int_job_priority, o.int_job_min_cores, o.int_job_max_cores,
       o.int_job_min_gpus, o.int_job_max_gpus, r.int_min_cores, r.int_max_cores, r.int_min_gpus, r.int_max_gpus,
       r.int_cores, r.int_gpus, coalesce(l.int_level, 0)::int AS level, coalesce(o.pk_parent_folder, '') AS parent,
       coalesce(c.jobs, 0) AS jobs, coalesce(c.running, 0) AS running, coalesce(c.dead, 0) AS dead,
       coalesce(c.depend, 0) AS depend, coalesce(c.waiting, 0) AS waiting
  FROM folder o JOIN folder_resource r USING (pk_folder) JOIN dept d USING (pk_dept)
  LEFT JOIN folder_level l USING (pk_folder)
  LEFT JOIN (SELECT pk_folder, count(*)::int AS jobs, sum(int_running_count)::int AS running,
                    sum(int_dead_count)::int AS dead, sum(int_depend_count)::int AS depend,
                    sum(int_waiting_count)::int AS waiting
               FROM job JOIN job_stat USING (pk_job) WHERE str_state = 'PENDING' GROUP BY 1) c USING (pk_folder)";

fn group(row: &Row) -> Group {
    Group {
        id: row.get("pk_folder"),
        name: row.get("str_name"),
        department: row.get("dept"),
        default_job_priority: row.get("int_job_priority"),
        default_job_min_cores: cores(row.get("int_job_min_cores")),
        default_job_max_cores: cores(row.get("int_job_max_cores")),
        min_cores: cores(row.get("int_min_cores")),
        max_cores: cores(row.get("int_max_cores")),
        level: row.get("level"),
        parent_id: row.get("parent"),
        group_stats: Some(GroupStats {
            running_frames: row.get("running"),
            dead_frames: row.get("dead"),
            depend_frames: row.get("depend"),
            waiting_frames: row.get("waiting"),
            pending_jobs: row.get("jobs"),
            reserved_cores: row.get::<_, i32>("int_cores") as f32 / 100.0,
            reserved_gpus: row.get::<_, i32>("int_gpus") as f32,
        }),
        default_job_min_gpus: row.get::<_, i32>("int_job_min_gpus") as f32,
        default_job_max_gpus: row.get::<_, i32>("int_job_max_gpus") as f32,
        min_gpus: row.get::<_, i32>("int_min_gpus") as f32,
        max_gpus: row.get::<_, i32>("int_max_gpus") as f32,
    }
}

/// Groups that `which` picks, those near the top first. `which` is part of the statement.
pub(super) async fn list(
    cuebot: &Cuebot,
    which: &'static str,
    keys: &[&str],
) -> Result<Vec<Group>, CallError> {
    let statement =
        format!("{GROUPS} WHERE {which} ORDER BY level, o.f_order, o.str_name, o.pk_folder LIMIT {ROWS_MAX}");
    let mut values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = Vec::new();
    for key in keys {
        values.push(key);
    }
    let rows = cuebot.pool.get().await?.query(&statement, &values).await?;
    Ok(rows.iter().map(group).collect())
}

async fn one(cuebot: &Cuebot, which: &'static str, keys: &[&str]) -> Result<Group, CallError> {
    let found = list(cuebot, which, keys).await?.into_iter().next();
    found.ok_or_else(|| CallError::Missing { what: "group", name: keys.join("/") })
}

const BY_ID: &str = "o.pk_folder = $1";

answers! { |cuebot, ask|
    "/job.GroupInterface/GetGroup": GroupGetGroupRequest => GroupGetGroupResponse {
        group: Some(one(&cuebot, BY_ID, &[&ask.id]).await?)
    };
    "/job.GroupInterface/GetGroups": GroupGetGroupsRequest => GroupGetGroupsResponse {
        groups: Some(GroupSeq { groups: list(&cuebot, "o.pk_parent_folder = $1", &[key!(ask.group)?]).await? })
    };
    "/job.GroupInterface/GetJobs": GroupGetJobsRequest => GroupGetJobsResponse {
        jobs: Some(JobSeq { jobs: jobs::pending_jobs(&cuebot, "job.pk_folder = $1", key!(ask.group)?).await? })
    };
    "/show.ShowInterface/GetGroups": ShowGetGroupsRequest => ShowGetGroupsResponse {
        groups: Some(GroupSeq { groups: list(&cuebot, "o.pk_show = $1", &[key!(ask.show)?]).await? })
    };
    // The root group of a show has no parent.
    "/show.ShowInterface/GetRootGroup": ShowGetRootGroupRequest => ShowGetRootGroupResponse {
        group: Some(one(&cuebot, "o.pk_show = $1 AND o.pk_parent_folder IS NULL", &[key!(ask.show)?]).await?)
    };
}

/// A group by the names of its show and its own.
async fn find(cuebot: Arc<Cuebot>, ask: GroupFindGroupRequest) -> Answer<GroupFindGroupResponse> {
    let which = "o.pk_show IN (SELECT pk_show FROM show WHERE str_name = $1) AND o.str_name = $2";
    let group = one(&cuebot, which, &[&ask.show, &ask.name]).await?;
    Ok(GroupFindGroupResponse { group: Some(group) })
}

/// Adds a group to a group. The schema's triggers make its figures.
async fn create(cuebot: Arc<Cuebot>, ask: GroupCreateSubGroupRequest) -> Answer<GroupCreateSubGroupResponse> {
    let key = key!(ask.group)?;
    name("group name", &ask.name, NAME_CHARS_MAX)?;
    let statement = "INSERT INTO folder (pk_folder, pk_parent_folder, pk_show, str_name, pk_dept)
        SELECT gen_random_uuid()::text, pk_folder, pk_show, $2::text, pk_dept FROM folder WHERE pk_folder = $1
        RETURNING pk_folder";
    let client = cuebot.pool.get().await?;
    let made = client.query_opt(statement, &[&key, &ask.name]).await;
    let made = made.map_err(|error| CallError::taken(error, "group", &ask.name))?;
    let made = made.ok_or_else(|| CallError::Missing { what: "group", name: key.to_owned() })?;
    drop(client);
    Ok(GroupCreateSubGroupResponse { group: Some(one(&cuebot, BY_ID, &[made.get(0)]).await?) })
}

async fn set_name(cuebot: Arc<Cuebot>, ask: GroupSetNameRequest) -> Answer<()> {
    let key = key!(ask.group)?;
    name("group name", &ask.name, NAME_CHARS_MAX)?;
    let statement = "UPDATE folder SET str_name = $2 WHERE pk_folder = $1";
    let renamed = cuebot.pool.get().await?.execute(statement, &[&key, &ask.name]).await;
    let renamed = renamed.map_err(|error| CallError::taken(error, "group", &ask.name))?;
    CallError::unless_found(renamed, "group", key)
}

/// A default of a group is set for the jobs that are in it, too, unless it says that there is none.
macro_rules! sets_default {
    ($folder:literal, $resource:literal) => {
        concat!(
            "WITH own AS (UPDATE job_resource SET ",
            $resource,
            " = $2::int WHERE $2::int >= 0 AND pk_job IN (SELECT r.pk_job FROM job_resource r JOIN job j USING (pk_job) \
             WHERE j.pk_folder = $1 AND j.str_state = 'PENDING' ORDER BY r.pk_job FOR UPDATE OF r)) UPDATE folder SET ",
            $folder,
            " = $2::int WHERE pk_folder = $1"
        )
    };
}

setters!("job.GroupInterface", group {
    "SetMinCores": GroupSetMinCoresRequest, |ask| hundredths_or_none(ask.min_cores)?.max(0),
        "UPDATE folder_resource SET int_min_cores = $2 WHERE pk_folder = $1";
    "SetMaxCores": GroupSetMaxCoresRequest, |ask| hundredths_or_none(ask.max_cores)?,
        "UPDATE folder_resource SET int_max_cores = $2 WHERE pk_folder = $1";
    "SetMinGpus": GroupSetMinGpusRequest, |ask| ask.min_gpus.max(0),
        "UPDATE folder_resource SET int_min_gpus = $2 WHERE pk_folder = $1";
    "SetMaxGpus": GroupSetMaxGpusRequest, |ask| ask.max_gpus.max(-1),
        "UPDATE folder_resource SET int_max_gpus = $2 WHERE pk_folder = $1";
    "SetDefaultJobMinCores": GroupSetDefJobMinCoresRequest, |ask| hundredths_or_none(ask.min_cores)?,
        sets_default!("int_job_min_cores", "int_min_cores");
    "SetDefaultJobMaxCores": GroupSetDefJobMaxCoresRequest, |ask| hundredths_or_none(ask.max_cores)?,
        sets_default!("int_job_max_cores", "int_max_cores");
    "SetDefaultJobMinGpus": GroupSetDefJobMinGpusRequest, |ask| ask.min_gpus.max(-1),
        sets_default!("int_job_min_gpus", "int_min_gpus");
    "SetDefaultJobMaxGpus": GroupSetDefJobMaxGpusRequest, |ask| ask.max_gpus.max(-1),
        sets_default!("int_job_max_gpus", "int_max_gpus");
    "SetDefaultJobPriority": GroupSetDefJobPriorityRequest, |ask| ask.priority.max(-1),
        sets_default!("int_job_priority", "int_priority");
});

/// Rows of figures are locked in the order of bookings: groups before jobs.
const LOCK_FIGURES: [&str; 2] = [
    "SELECT 1 FROM folder_resource WHERE pk_folder = $2
        OR pk_folder IN (SELECT pk_folder FROM job WHERE pk_job = ANY($1::text[])) ORDER BY pk_folder FOR UPDATE",
    "SELECT 1 FROM job_resource WHERE pk_job = ANY($1::text[]) AND $2::text <> '' ORDER BY pk_job FOR UPDATE",
];
/// A trigger of the schema takes what the jobs hold from one group to the other.
const MOVE_JOBS: &str = "
WITH moved AS (
    SELECT pk_job FROM job WHERE pk_job = ANY($1::text[]) AND pk_folder <> $2::text
), defaults AS (
    UPDATE job_resource r
       SET int_priority = CASE WHEN o.int_job_priority >= 0 THEN o.int_job_priority ELSE r.int_priority END,
           int_min_cores = CASE WHEN o.int_job_min_cores >= 0 THEN o.int_job_min_cores ELSE r.int_min_cores END,
           int_max_cores = CASE WHEN o.int_job_max_cores >= 0 THEN o.int_job_max_cores ELSE r.int_max_cores END
      FROM moved m CROSS JOIN folder o WHERE r.pk_job = m.pk_job AND o.pk_folder = $2::text
)
UPDATE job SET pk_folder = $2::text FROM moved WHERE job.pk_job = moved.pk_job";

/// Moves jobs to a group of their show. They get the defaults of the group where it has some.
async fn move_jobs(cuebot: &Cuebot, jobs: Vec<String>, group: String) -> Result<(), CallError> {
    few("jobs", jobs.len())?;
    cuebot
        .transact((jobs, group), |tx, (jobs, group)| {
            Box::pin(async move {
                let others = "SELECT str_name FROM job WHERE pk_job = ANY($1::text[])
                    AND pk_show IS DISTINCT FROM (SELECT pk_show FROM folder WHERE pk_folder = $2) LIMIT 1";
                if let Some(row) = tx.query_opt(others, &[jobs, group]).await? {
                    let job: String = row.get(0);
                    let why = format!("group '{group}' is not one of the show of job '{job}'");
                    return Err(CallError::Value(why));
                }
                lock_jobs(tx, "SELECT unnest($1::text[])", &[jobs]).await?;
                for lock in LOCK_FIGURES {
                    tx.query(lock, &[jobs, group]).await?;
                }
                tx.execute(MOVE_JOBS, &[jobs, group]).await?;
                Ok(())
            })
        })
        .await
}

/// The groups from a group up to the top, itself included.
const IS_BELOW: &str = "
WITH RECURSIVE up AS (
    SELECT pk_folder, pk_parent_folder FROM folder WHERE pk_folder = $2
    UNION SELECT o.pk_folder, o.pk_parent_folder FROM folder o JOIN up ON o.pk_folder = up.pk_parent_folder
)
SELECT EXISTS (SELECT 1 FROM up WHERE pk_folder = $1)";
/// Writes how deep each group of a show lies.
const LEVELS: &str = "
WITH RECURSIVE tree AS (
    SELECT pk_folder, 0::bigint AS level FROM folder WHERE pk_show = $1 AND pk_parent_folder IS NULL
    UNION ALL SELECT o.pk_folder, tree.level + 1 FROM folder o JOIN tree ON o.pk_parent_folder = tree.pk_folder
)
UPDATE folder_level l SET int_level = tree.level FROM tree
 WHERE l.pk_folder = tree.pk_folder AND l.int_level <> tree.level";

async fn move_group(tx: &Transaction<'_>, group: &str, parent: &str) -> Result<(), CallError> {
    let facts = "SELECT own.pk_show, own.pk_parent_folder IS NULL, own.pk_show = above.pk_show, own.str_name
        FROM folder own CROSS JOIN folder above WHERE own.pk_folder = $1 AND above.pk_folder = $2";
    let row = tx.query_opt(facts, &[&group, &parent]).await?;
    let row =
        row.ok_or_else(|| CallError::Missing { what: "group", name: format!("{group} or {parent}") })?;
    let (show, is_top, is_of_show): (String, bool, bool) = (row.get(0), row.get(1), row.get(2));
    let name: String = row.get(3);
    // Two moves at a time could close a circle that neither of them sees.
    let lock = "SELECT 1 FROM folder WHERE pk_show = $1 ORDER BY pk_folder FOR UPDATE";
    tx.query(lock, &[&show]).await?;
    let is_below: bool = tx.query_one(IS_BELOW, &[&group, &parent]).await?.get(0);
    if is_top || !is_of_show || is_below {
        let why =
            format!("group '{name}' cannot move there: give it to a group of its show that is not below it");
        return Err(CallError::Value(why));
    }
    let statement = "UPDATE folder SET pk_parent_folder = $2 WHERE pk_folder = $1";
    tx.execute(statement, &[&group, &parent])
        .await
        .map_err(|error| CallError::taken(error, "group", &name))?;
    tx.execute(LEVELS, &[&show]).await?;
    Ok(())
}

async fn move_groups(cuebot: &Cuebot, groups: Vec<String>, parent: String) -> Result<(), CallError> {
    few("groups", groups.len())?;
    cuebot
        .transact((groups, parent), |tx, (groups, parent)| {
            Box::pin(async move {
                for group in groups {
                    move_group(tx, group, parent).await?;
                }
                Ok(())
            })
        })
        .await
}

changes! { |cuebot, ask|
    "/job.JobInterface/SetGroup": JobSetGroupRequest => {
        let job = key!(ask.job)?.to_owned();
        move_jobs(&cuebot, vec![job], id("group", Some(&ask.group_id))?.to_owned()).await
    };
    "/job.GroupInterface/ReparentJobs": GroupReparentJobsRequest => {
        let group = key!(ask.group)?.to_owned();
        let jobs = ask.jobs.map(|seq| seq.jobs).unwrap_or_default();
        move_jobs(&cuebot, jobs.into_iter().map(|job| job.id).collect(), group).await
    };
    "/job.GroupInterface/ReparentGroups": GroupReparentGroupsRequest => {
        let parent = key!(ask.group)?.to_owned();
        let groups = ask.groups.map(|seq| seq.groups).unwrap_or_default();
        move_groups(&cuebot, groups.into_iter().map(|group| group.id).collect(), parent).await
    };
    "/job.GroupInterface/SetGroup": GroupSetGroupRequest => {
        let group = key!(ask.group)?.to_owned();
        let parent = id("parent group", ask.parent_group.as_ref().map(|group| &group.id))?.to_owned();
        move_groups(&cuebot, vec![group], parent).await
    };
}

/// A group that can be deleted: not the root, without pending jobs, procs and groups.
const IS_EMPTY: &str = "
SELECT o.pk_parent_folder FROM folder o WHERE o.pk_folder = $1 AND o.pk_parent_folder IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM folder below WHERE below.pk_parent_folder = o.pk_folder)
   AND NOT EXISTS (SELECT 1 FROM job WHERE job.pk_folder = o.pk_folder AND job.str_state <> 'FINISHED')
   AND NOT EXISTS (SELECT 1 FROM job JOIN proc USING (pk_job) WHERE job.pk_folder = o.pk_folder) FOR UPDATE";

/// Deletes an empty group. Its finished jobs go to its parent.
async fn delete(cuebot: Arc<Cuebot>, ask: GroupDeleteRequest) -> Answer<()> {
    let key = key!(ask.group)?;
    cuebot
        .transact(key, |tx, key| {
            Box::pin(async move {
                let Some(row) = tx.query_opt(IS_EMPTY, &[key]).await? else {
                    let why = "the group is not there, is its show's first, or has pending jobs or groups; move them";
                    return Err(CallError::Value(why.to_owned()));
                };
                let parent: String = row.get(0);
                tx.execute("UPDATE job SET pk_folder = $2 WHERE pk_folder = $1", &[key, &parent]).await?;
                for table in ["folder_level", "folder_resource", "folder"] {
                    tx.execute(&format!("DELETE FROM {table} WHERE pk_folder = $1"), &[key]).await?;
                }
                Ok(())
            })
        })
        .await
}
