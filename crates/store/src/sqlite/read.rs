//! The readers' side.

use super::codes;
use super::foreign;
use super::settings;
use super::tokens;
use super::write::int;
use crate::HISTORY_MAX;
use crate::spec;
use crate::view::{AttemptView, JobFilter, JobView, Snapshot, StoredTask, TokenRecord};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use windlass_core::engine::Ground;
use windlass_core::job::{Counts, End, JobRecord, JobSpec, TaskResult, TaskRow};
use windlass_core::worker::WorkerRecord;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};

const JOB: &str = "SELECT id, spec, created, state, stop, held, ended, counts FROM jobs";
const TASK: &str = "SELECT end, code, why, started, finished, cpu_ms, peak, out_bytes, err_bytes, disk,
     idx, state, attempt, failures, losses, worker, epoch, booked, cpu, memory FROM tasks";
const ATTEMPT: &str = "SELECT end, code, why, started, finished, cpu_ms, peak, out_bytes, err_bytes, disk,
     attempt, worker, epoch, late FROM attempts";

/// A connection that reads.
pub struct Reader {
    db: Connection,
}

impl Reader {
    /// Reads over this connection.
    pub fn new(db: Connection) -> Self {
        Reader { db }
    }

    pub fn load(&self) -> rusqlite::Result<Snapshot> {
        let next = "SELECT value FROM meta WHERE key = 'next_job'";
        let next_job: Option<i64> = self.db.query_row(next, [], |row| row.get(0)).optional()?;
        let mut workers = self.db.prepare_cached(
            "SELECT id, name, epoch, incarnation, draining, capacity, attributes, identity, state, lease_until
             FROM workers ORDER BY id",
        )?;
        let workers = workers.query_map([], worker_from)?.collect::<rusqlite::Result<_>>()?;
        let active: Vec<i64> = self
            .db
            .prepare_cached("SELECT id FROM jobs WHERE state = 0 ORDER BY id")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let ids = active.into_iter().map(|id| JobId(id as u64)).collect();
        let ground = Ground {
            workers,
            jobs: self.records(&ids)?,
            history: settings::history(&self.db, HISTORY_MAX)?,
            queues: settings::queues(&self.db)?,
            limits: settings::limits(&self.db)?,
        };
        Ok(Snapshot { next_job: next_job.unwrap_or(1) as u64, ground })
    }

    pub fn records(&self, ids: &BTreeSet<JobId>) -> rusqlite::Result<Vec<JobRecord>> {
        let mut records = Vec::new();
        for id in ids {
            let Some(view) = self.job(*id)? else { continue };
            let mut spec = JobSpec::clone(&view.spec);
            for (number, step) in spec.steps.iter_mut().enumerate() {
                step.body = self.body(*id, number as u16)?.unwrap_or_default();
            }
            let tasks = self.tasks(*id, 0..u32::MAX)?.into_iter().map(|task| task.row).collect();
            records.push(JobRecord {
                id: *id,
                spec: Arc::new(spec),
                created: view.created,
                state: view.state,
                stop: view.stop,
                held: view.held,
                tasks,
                back_offs: settings::back_offs(&self.db, *id)?,
            });
        }
        Ok(records)
    }

    pub fn job(&self, id: JobId) -> rusqlite::Result<Option<JobView>> {
        let mut one = self.db.prepare_cached(&format!("{JOB} WHERE id = ?1"))?;
        one.query_row([int(id.0)], job_from).optional()
    }

    pub fn foreign_job(&self, id: JobId) -> rusqlite::Result<Option<String>> {
        foreign::job(&self.db, id)
    }

    pub fn foreign_open(&self) -> rusqlite::Result<Vec<(JobId, String)>> {
        foreign::open(&self.db)
    }

    pub fn foreign_hosts(&self) -> rusqlite::Result<Vec<(String, String)>> {
        foreign::hosts(&self.db)
    }

    pub fn held_jobs(&self) -> rusqlite::Result<Vec<JobId>> {
        foreign::held(&self.db)
    }

    pub fn job_by_key(&self, user: &str, key: &str) -> rusqlite::Result<Option<JobId>> {
        let mut one = self.db.prepare_cached("SELECT id FROM jobs WHERE user = ?1 AND key = ?2")?;
        one.query_row((user, key), |row| Ok(JobId(row.get::<_, i64>(0)? as u64))).optional()
    }

    pub fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: usize,
    ) -> rusqlite::Result<Vec<JobView>> {
        let mut sql = format!("{JOB} WHERE id < ?1");
        let before = before.map_or(i64::MAX, |id| int(id.0));
        let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(before)];
        let mut with = |sql: &mut String, clause: &str, value: &Option<String>| {
            if let Some(value) = value {
                values.push(Box::new(value.clone()));
                sql.push_str(&format!(" AND {}", clause.replace('?', &format!("?{}", values.len()))));
            }
        };
        with(&mut sql, "user = ?", &filter.user);
        with(&mut sql, "queue = ?", &filter.queue);
        with(&mut sql, "instr(name, ?) > 0", &filter.name);
        if !filter.states.is_empty() {
            let states: Vec<String> =
                filter.states.iter().map(|s| codes::job_state(*s).to_string()).collect();
            sql.push_str(&format!(" AND state IN ({})", states.join(",")));
        }
        sql.push_str(&format!(" ORDER BY id DESC LIMIT {limit}"));
        let mut many = self.db.prepare_cached(&sql)?;
        many.query_map(rusqlite::params_from_iter(values), job_from)?.collect()
    }

    pub fn tasks(&self, job: JobId, range: Range<u32>) -> rusqlite::Result<Vec<StoredTask>> {
        let sql = format!("{TASK} WHERE job = ?1 AND idx >= ?2 AND idx < ?3 ORDER BY idx");
        let mut many = self.db.prepare_cached(&sql)?;
        many.query_map((int(job.0), range.start, range.end), task_from)?.collect()
    }

    pub fn history(&self, task: TaskId) -> rusqlite::Result<Vec<AttemptView>> {
        let sql = format!("{ATTEMPT} WHERE job = ?1 AND idx = ?2 ORDER BY rowid");
        let mut many = self.db.prepare_cached(&sql)?;
        many.query_map((int(task.job.0), task.index), attempt_from)?.collect()
    }

    pub fn body(&self, job: JobId, step: u16) -> rusqlite::Result<Option<Arc<[u8]>>> {
        let mut one = self.db.prepare_cached("SELECT body FROM bodies WHERE job = ?1 AND step = ?2")?;
        one.query_row((int(job.0), step), |row| Ok(Arc::from(row.get_ref(0)?.as_blob()?))).optional()
    }

    pub fn tokens(&self) -> rusqlite::Result<Vec<TokenRecord>> {
        tokens::all(&self.db)
    }

    pub fn token(&self, id: &str) -> rusqlite::Result<Option<TokenRecord>> {
        tokens::one(&self.db, id)
    }
}

fn bad(
    column: usize,
    kind: Type,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, why.into())
}

fn time_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Time>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(|ns| Time(ns as u64)))
}

fn number_at(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}

fn job_from(row: &Row<'_>) -> rusqlite::Result<JobView> {
    let spec = spec::spec_from_json(row.get_ref(1)?.as_str()?).map_err(|e| bad(1, Type::Text, e))?;
    let state =
        codes::job_state_from(row.get(3)?).ok_or_else(|| bad(3, Type::Integer, "no such job state"))?;
    let counts = match row.get_ref(7)?.as_str_or_null()? {
        Some(json) => Some(counts_from(json).ok_or_else(|| bad(7, Type::Text, "not eight counts"))?),
        None => None,
    };
    Ok(JobView {
        id: JobId(number_at(row, 0)?),
        spec: Arc::new(spec),
        created: Time(number_at(row, 2)?),
        state,
        stop: row.get::<_, Option<i64>>(4)?.map(codes::stop_from),
        held: row.get(5)?,
        ended: time_at(row, 6)?,
        counts,
    })
}

fn counts_from(json: &str) -> Option<Counts> {
    let [total, waiting, ready, active, succeeded, failed, canceled, skipped] =
        serde_json::from_str(json).ok()?;
    Some(Counts { total, waiting, ready, active, succeeded, failed, canceled, skipped })
}

/// The result in the first ten columns; `None` if the attempt has not ended.
fn result_from(row: &Row<'_>) -> rusqlite::Result<Option<TaskResult>> {
    let Some(code) = row.get::<_, Option<i64>>(0)? else { return Ok(None) };
    let why: Option<String> = row.get(2)?;
    let end = codes::end_from(code, row.get(1)?, why.clone());
    let message = why.filter(|_| !matches!(end, Some(End::NotStarted(_))));
    let unsigned = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(|n| n as u64));
    Ok(Some(TaskResult {
        end: end.ok_or_else(|| bad(0, Type::Integer, "no such end"))?,
        started: time_at(row, 3)?,
        finished: time_at(row, 4)?,
        cpu_ms: unsigned(5)?,
        peak_memory: unsigned(6)?,
        disk_bytes: unsigned(9)?,
        out_bytes: unsigned(7)?.unwrap_or(0),
        err_bytes: unsigned(8)?.unwrap_or(0),
        message,
    }))
}

fn task_from(row: &Row<'_>) -> rusqlite::Result<StoredTask> {
    let state =
        codes::task_state_from(row.get(11)?).ok_or_else(|| bad(11, Type::Integer, "no such task state"))?;
    let memory = row.get::<_, Option<i64>>(19)?.map(|bytes| bytes as u64);
    Ok(StoredTask {
        row: TaskRow {
            index: row.get(10)?,
            state,
            attempt: row.get(12)?,
            failures: row.get(13)?,
            losses: row.get(14)?,
            worker: WorkerId(number_at(row, 15)?),
            epoch: Epoch(number_at(row, 16)?),
            booked: Time(number_at(row, 17)?),
            amounts: row.get::<_, Option<u32>>(18)?.zip(memory),
        },
        result: result_from(row)?,
    })
}

fn attempt_from(row: &Row<'_>) -> rusqlite::Result<AttemptView> {
    Ok(AttemptView {
        attempt: row.get(10)?,
        worker: WorkerId(number_at(row, 11)?),
        epoch: Epoch(number_at(row, 12)?),
        late: row.get(13)?,
        result: result_from(row)?.ok_or_else(|| bad(0, Type::Null, "an attempt without an end"))?,
    })
}

fn worker_from(row: &Row<'_>) -> rusqlite::Result<WorkerRecord> {
    let capacity = spec::resources_from_json(row.get_ref(5)?.as_str()?);
    let attributes = spec::attributes_from_json(row.get_ref(6)?.as_str()?);
    let state =
        codes::worker_state_from(row.get(8)?).ok_or_else(|| bad(8, Type::Integer, "no such worker state"))?;
    Ok(WorkerRecord {
        id: WorkerId(number_at(row, 0)?),
        name: row.get(1)?,
        epoch: Epoch(number_at(row, 2)?),
        identity: number_at(row, 7)?,
        incarnation: number_at(row, 3)?,
        state,
        draining: row.get(4)?,
        lease_until: time_at(row, 9)?,
        capacity: capacity.map_err(|e| bad(5, Type::Text, e))?,
        attributes: attributes.map_err(|e| bad(6, Type::Text, e))?,
    })
}
