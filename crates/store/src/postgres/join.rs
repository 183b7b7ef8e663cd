//! Brings a database that releases with shards left to where its farm can have one engine; see [`join`](crate::join). The
//! statements are those of the last schema with shards.

use super::trouble::Trouble;
use crate::codes::{self, int, time};
use crate::error::StoreError;
use crate::join::{IS_DIVIDED, OpenJob, Predecessors, now, unwritten};
use crate::spec;
use futures_util::TryStreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Transaction};
use windlass_core::JobId;
use windlass_core::engine::Write;

/// Takes every shard from its owner, as another owner would. A server that runs still finds no row of the number of its shard
/// when it commits, so it is superseded; and the constraint refuses the claims of its release. The migration has the constraint,
/// too, for databases that are new.
const FENCE: &str = "LOCK TABLE shards IN EXCLUSIVE MODE;
    DELETE FROM shards WHERE id > 1;
    UPDATE shards SET id = 0, owner = NULL, epoch = epoch + 1, batch = batch + 1, refused = '{}' WHERE id = 1;
    ALTER TABLE shards DROP CONSTRAINT IF EXISTS shards_have_one_row;
    ALTER TABLE shards ADD CONSTRAINT shards_have_one_row CHECK (id = 0)";
/// A job that waits for others is never parked.
const OPEN: &str = "SELECT id, home, stop, spec FROM jobs
    WHERE state = 0 AND NOT parked AND (spec LIKE '%\"after\":%' OR id IN (SELECT job FROM delegated))";
const TASKS: &str = "SELECT idx, state FROM tasks WHERE job = $1 ORDER BY idx";
const PREDECESSORS: &str = "SELECT id, home, state FROM jobs WHERE id = ANY($1::bigint[])";
const STOP: &str = "UPDATE jobs SET stop = $2 WHERE id = $1";
const END: &str =
    "WITH ended AS (UPDATE jobs SET state = $2, ended = $3, counts = $4 WHERE id = $1 RETURNING state)
    INSERT INTO ended_totals (state, jobs) SELECT state, 1 FROM ended
    ON CONFLICT (state) DO UPDATE SET jobs = ended_totals.jobs + 1";

/// Fences servers of earlier releases off, and writes what engines of shards had still to write.
pub async fn join(client: &mut Client) -> Result<(), StoreError> {
    let joined = join_shards(client).await;
    joined.map_err(|trouble| trouble.while_it("joined the shards of a divided farm"))
}

async fn join_shards(client: &mut Client) -> Result<(), Trouble> {
    let at = client.transaction().await?;
    at.batch_execute(FENCE).await?;
    let is_divided: bool = at.query_one(IS_DIVIDED, &[]).await?.get(0);
    if is_divided {
        let open = open_jobs(&at).await?;
        let predecessors = predecessors(&at, &open).await?;
        for write in unwritten(open, predecessors, now()) {
            apply(&at, &write).await?;
        }
    }
    Ok(at.commit().await?)
}

async fn open_jobs(at: &Transaction<'_>) -> Result<BTreeMap<JobId, OpenJob>, Trouble> {
    let tasks = at.prepare(TASKS).await?;
    let mut open = BTreeMap::new();
    for row in at.query(OPEN, &[]).await? {
        let (id, home, stop): (i64, i32, Option<i64>) = (row.get(0), row.get(1), row.get(2));
        let spec = spec::spec_from_json(row.get(3))?;
        let mut job = OpenJob::new(home.into(), spec, stop.map(codes::stop_from));
        let key: [&(dyn ToSql + Sync); 1] = [&id];
        let mut rows = pin!(at.query_raw(&tasks, key).await?);
        while let Some(row) = rows.try_next().await? {
            let state = codes::task_state_from(row.get::<_, i16>(1).into());
            let state = state.ok_or_else(|| Trouble::Row("a task is in no known state".to_owned()))?;
            job.add_task(row.get::<_, i64>(0) as u32, state);
        }
        open.insert(JobId(id as u64), job);
    }
    Ok(open)
}

async fn predecessors(
    at: &Transaction<'_>,
    open: &BTreeMap<JobId, OpenJob>,
) -> Result<Predecessors, Trouble> {
    let ids: BTreeSet<i64> = open.values().flat_map(OpenJob::after).map(|id| int(id.0)).collect();
    let ids: Vec<i64> = ids.into_iter().collect();
    let mut found = Predecessors::new();
    for row in at.query(PREDECESSORS, &[&ids]).await? {
        let state = codes::job_state_from(row.get::<_, i16>(2).into());
        let state = state.ok_or_else(|| Trouble::Row("a job is in no known state".to_owned()))?;
        found.insert(JobId(row.get::<_, i64>(0) as u64), (row.get::<_, i32>(1).into(), state));
    }
    Ok(found)
}

async fn apply(at: &Transaction<'_>, write: &Write) -> Result<(), Trouble> {
    match write {
        Write::JobStop { job, stop } => {
            at.execute(STOP, &[&int(job.0), &codes::stop(*stop)]).await?;
        }
        Write::JobEnd { job, state, at: ended, counts } => {
            let (state, counts) = (codes::job_state(*state) as i16, spec::counts_to_json(counts));
            at.execute(END, &[&int(job.0), &state, &time(*ended), &counts]).await?;
        }
        _ => {}
    }
    Ok(())
}
