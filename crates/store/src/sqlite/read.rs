//! The reading side of the SQLite store. Each [`Reader`] has a connection of its own, so reads run beside the
//! writer and see whole batches. The methods are those of [`Store`](crate::Store) with the same names.
//! Nothing here writes.

use super::{parked, settings, turns};
use crate::codes::{self, int};
use crate::gather::Gather;
use crate::rows::{self, ATTEMPT, JOB, RESULT, StoredRow, TASK, WORKER, present};
use crate::spec;
use crate::view::{
    AttemptView, EndedJob, EndedTotals, HISTORY_MAX, JobFilter, JobView, JobsPart, ParkedView, Snapshot,
    StepBodies, StoredTask,
};
use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use windlass_core::engine::{Fetch, FetchQuery, StoredState};
use windlass_core::job::{JobRecord, Parked};
use windlass_core::residency::subqueues::ParkedCount;
use windlass_core::{JobId, TaskId};

/// Bytes of bodies after which a read of several ends.
const BODIES_BYTES: usize = 8 << 20;

pub struct Reader {
    pub db: Connection,
}

impl Reader {
    pub fn load(&self) -> rusqlite::Result<Snapshot> {
        let _moment = self.db.unchecked_transaction()?;
        let next_job = self.number("next_job")?;
        let workers = format!("SELECT {WORKER} FROM workers ORDER BY id");
        let mut workers = self.db.prepare_cached(&workers)?;
        let workers = workers.query_map([], |row| Ok(rows::worker(row)?))?;
        let active = "SELECT id FROM jobs WHERE state = 0 AND parked = 0 ORDER BY id";
        let mut active = self.db.prepare_cached(active)?;
        let active = active.query_map([], |row| Ok(JobId(row.number(0)?)))?;
        let active: BTreeSet<JobId> = active.collect::<rusqlite::Result<_>>()?;
        let ground = StoredState {
            workers: workers.collect::<rusqlite::Result<_>>()?,
            jobs: self.records_now(&active)?,
            parked: self.parked_counts()?,
            history: settings::history(&self.db, HISTORY_MAX)?,
            queues: settings::queues(&self.db)?,
            limits: settings::limits(&self.db)?,
            turns: turns::load(&self.db)?,
        };
        Ok(Snapshot { next_job: next_job.unwrap_or(1), ground })
    }

    pub fn records(&self, ids: &BTreeSet<JobId>) -> rusqlite::Result<Vec<JobRecord>> {
        let _moment = self.db.unchecked_transaction()?;
        self.records_now(ids)
    }

    fn records_now(&self, ids: &BTreeSet<JobId>) -> rusqlite::Result<Vec<JobRecord>> {
        let mut records = Vec::new();
        for id in ids {
            let Some(view) = self.job(*id)? else { continue };
            let gathered = self.gather(&view)?;
            records.push(self.record(view, parked::of(&self.db, *id)?, gathered)?);
        }
        Ok(records)
    }

    /// The tasks of a job. Rows of tasks that the job lists as succeeded are not read.
    fn gather(&self, view: &JobView) -> rusqlite::Result<Gather> {
        let mut noted = self.db.prepare_cached("SELECT done FROM jobs WHERE id = ?1")?;
        let noted = noted
            .query_row([int(view.id.0)], |row| Ok(row.json(0, spec::ranges_from_json)?))?
            .unwrap_or_default();
        let tasks =
            format!("SELECT {TASK} FROM tasks WHERE job = ?1 AND idx >= ?2 AND idx < ?3 ORDER BY idx");
        let mut tasks = self.db.prepare_cached(&tasks)?;
        let (mut gather, mut from) = (Gather::of(&view.spec), 0);
        for done in noted.ranges().chain(std::iter::once(u32::MAX..u32::MAX)) {
            let mut rows = tasks.query((int(view.id.0), from, done.start))?;
            while let Some(row) = rows.next()? {
                gather.row(rows::task_row(row, 0)?);
            }
            from = done.end;
            if !done.is_empty() {
                gather.done(done);
            }
        }
        Ok(gather)
    }

    fn record(&self, view: JobView, parked: Option<Parked>, gathered: Gather) -> rusqlite::Result<JobRecord> {
        let JobView { id, spec, created, state, stop, held, cancels, first_succeeded, .. } = view;
        let back_offs = settings::back_offs(&self.db, id)?;
        let record = JobRecord::new(id, spec, created);
        Ok(gathered.into_record(JobRecord {
            state,
            stop,
            held,
            parked,
            back_offs,
            cancels,
            first_succeeded,
            ..record
        }))
    }

    /// All answers are of one moment, since they are read in one transaction.
    pub fn fetch(&self, fetches: &[Fetch]) -> rusqlite::Result<Vec<Vec<JobRecord>>> {
        let _moment = self.db.unchecked_transaction()?;
        fetches.iter().map(|fetch| self.fetch_one(fetch)).collect()
    }

    fn fetch_one(&self, fetch: &Fetch) -> rusqlite::Result<Vec<JobRecord>> {
        let FetchQuery::Page { queue, class, from, steps } = &fetch.wanted else {
            let FetchQuery::Jobs(ids) = &fetch.wanted else { return Ok(Vec::new()) };
            return self.records_now(ids);
        };
        let sql = format!("SELECT {JOB} FROM jobs WHERE id = ?1");
        let (mut job, mut records, mut seen) = (self.db.prepare_cached(&sql)?, Vec::new(), 0);
        let mut page = self.db.prepare_cached(parked::PAGE)?;
        let mut rows = page.query(parked::page_from(queue, *class, *from, *steps))?;
        while seen < *steps
            && let Some(row) = rows.next()?
        {
            let parked = rows::parked(row, 0)?;
            let view = job.query_row([int(parked.position.job.0)], job_from)?;
            seen += view.spec.steps.len();
            records.push(self.record(view, Some(parked), Gather::default())?);
        }
        Ok(records)
    }

    pub fn parked_counts(&self) -> rusqlite::Result<Vec<ParkedCount>> {
        parked::counts(&self.db)
    }

    pub fn parked(&self, id: JobId) -> rusqlite::Result<Option<ParkedView>> {
        let _moment = self.db.unchecked_transaction()?;
        let Some((view, parked)) = self.job(id)?.zip(parked::of(&self.db, id)?) else { return Ok(None) };
        let ahead = parked::before(&self.db, &view.spec.queue, parked.position)?;
        Ok(Some(ParkedView { spec: view.spec, parked, ahead }))
    }

    pub fn job(&self, id: JobId) -> rusqlite::Result<Option<JobView>> {
        let mut one = self.db.prepare_cached(&format!("SELECT {JOB} FROM jobs WHERE id = ?1"))?;
        one.query_row([int(id.0)], job_from).optional()
    }

    pub fn held_jobs(&self) -> rusqlite::Result<Vec<JobId>> {
        let held = "SELECT id FROM jobs WHERE state = 0 AND held = 1 ORDER BY id";
        self.db.prepare_cached(held)?.query_map([], |row| Ok(JobId(row.number(0)?)))?.collect()
    }

    pub fn user_totals(&self, user: &str) -> rusqlite::Result<(u64, u64)> {
        let mut one = self.db.prepare_cached("SELECT jobs, bytes FROM user_totals WHERE user = ?1")?;
        let found = one.query_row([user], |row| Ok((row.number(0)?, row.number(1)?)));
        Ok(found.optional()?.unwrap_or_default())
    }

    pub fn ended_totals(&self) -> rusqlite::Result<EndedTotals> {
        let mut all = self.db.prepare_cached("SELECT state, jobs FROM ended_totals")?;
        let (mut rows, mut totals) = (all.query([])?, EndedTotals::default());
        while let Some(row) = rows.next()? {
            totals.add(row.code(0, codes::job_state_from)?, row.number(1)?);
        }
        Ok(totals)
    }

    pub fn number(&self, name: &str) -> rusqlite::Result<Option<u64>> {
        let mut one = self.db.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
        one.query_row([name], number_from).optional()
    }

    pub fn job_by_key(&self, user: &str, key: &str) -> rusqlite::Result<Option<JobId>> {
        let mut one = self.db.prepare_cached("SELECT id FROM jobs WHERE user = ?1 AND key = ?2")?;
        Ok(one.query_row((user, key), number_from).optional()?.map(JobId))
    }

    /// Looks at the rows one by one, so that their number is known, and reads those that pass.
    pub fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: usize,
        rows_max: usize,
    ) -> rusqlite::Result<JobsPart> {
        let _moment = self.db.unchecked_transaction()?;
        let (passes, mut values) = passes(filter);
        values.insert(0, Box::new(before.map_or(i64::MAX, |id| int(id.0))));
        let sql = match filter.is_for_active() {
            false => format!("SELECT id, {passes} FROM jobs WHERE id < ?1 ORDER BY id DESC"),
            // Both halves come from the index of active jobs, in order.
            true => {
                let half = |parked| {
                    format!("SELECT id, {passes} FROM jobs WHERE state = 0 AND parked = {parked} AND id < ?1")
                };
                format!("{} UNION ALL {} ORDER BY 1 DESC", half(0), half(1))
            }
        };
        let mut all = self.db.prepare_cached(&sql)?;
        let mut all = all.query(rusqlite::params_from_iter(values))?;
        let mut part = JobsPart::default();
        while let Some(row) = all.next()? {
            let id = JobId(row.number(0)?);
            part.rows += 1;
            if row.flag(1)? {
                part.jobs.extend(self.job(id)?);
            }
            if part.jobs.len() >= limit || part.rows >= rows_max {
                part.next = Some(id);
                break;
            }
        }
        Ok(part)
    }

    pub fn tasks(&self, job: JobId, range: Range<u32>) -> rusqlite::Result<Vec<StoredTask>> {
        let sql = format!(
            "SELECT end, {RESULT}, {TASK} FROM tasks WHERE job = ?1 AND idx >= ?2 AND idx < ?3 ORDER BY idx"
        );
        let mut many = self.db.prepare_cached(&sql)?;
        many.query_map((int(job.0), range.start, range.end), |row| Ok(rows::task(row)?))?.collect()
    }

    pub fn failed_tasks(
        &self,
        job: JobId,
        range: Range<u32>,
        limit: usize,
    ) -> rusqlite::Result<Vec<StoredTask>> {
        let sql = format!(
            "SELECT end, {RESULT}, {TASK} FROM tasks WHERE job = ?1 AND idx >= ?2 AND idx < ?3 AND state = ?4
             ORDER BY idx LIMIT ?5"
        );
        let mut many = self.db.prepare_cached(&sql)?;
        let values = (int(job.0), range.start, range.end, codes::FAILED, int(limit as u64));
        many.query_map(values, |row| Ok(rows::task(row)?))?.collect()
    }

    pub fn history(&self, task: TaskId) -> rusqlite::Result<Vec<AttemptView>> {
        let sql = format!(
            "SELECT end, {RESULT}, {ATTEMPT} FROM attempts WHERE job = ?1 AND idx = ?2 ORDER BY rowid"
        );
        let mut many = self.db.prepare_cached(&sql)?;
        many.query_map((int(task.job.0), task.index), |row| Ok(rows::attempt(row)?.1))?.collect()
    }

    pub fn last_ended(&self, jobs_max: usize, attempts_max: usize) -> rusqlite::Result<Vec<EndedJob>> {
        let _moment = self.db.unchecked_transaction()?;
        let active = "SELECT id FROM jobs WHERE state = 0 AND parked = 0 ORDER BY id DESC LIMIT ?1";
        let ended = "SELECT id FROM jobs WHERE ended IS NOT NULL ORDER BY ended DESC, id DESC LIMIT ?1";
        let mut ids: Vec<u64> = Vec::new();
        for sql in [active, ended] {
            let mut some = self.db.prepare_cached(sql)?;
            for id in some.query_map([jobs_max as i64], number_from)? {
                ids.push(id?);
            }
        }
        let tasks = format!(
            "SELECT end, {RESULT}, {TASK} FROM tasks WHERE job = ?1 AND state >= 2 AND end IS NOT NULL
             ORDER BY idx DESC LIMIT ?2"
        );
        let earlier = format!(
            "SELECT end, {RESULT}, {ATTEMPT} FROM attempts WHERE job = ?1 AND late = 0 ORDER BY idx, rowid LIMIT ?2"
        );
        let (mut tasks, mut earlier) = (self.db.prepare_cached(&tasks)?, self.db.prepare_cached(&earlier)?);
        let (mut left, mut found) = (attempts_max, Vec::new());
        for id in ids {
            let Some(view) = self.job(JobId(id))? else { continue };
            let most = left.min(attempts_max / 2);
            let tasks = tasks.query_map((int(id), most as i64), |row| Ok(rows::task(row)?))?;
            let tasks: Vec<StoredTask> = tasks.collect::<rusqlite::Result<_>>()?;
            let attempts = (int(id), (most - tasks.len()) as i64);
            let attempts = earlier.query_map(attempts, |row| Ok(rows::attempt(row)?))?;
            let attempts: Vec<(u32, AttemptView)> = attempts.collect::<rusqlite::Result<_>>()?;
            left -= tasks.len() + attempts.len();
            found.push(EndedJob { view, tasks, attempts });
        }
        Ok(found)
    }

    pub fn body(&self, job: JobId, step: u16) -> rusqlite::Result<Option<Arc<[u8]>>> {
        let mut one = self.db.prepare_cached("SELECT body FROM bodies WHERE job = ?1 AND step = ?2")?;
        one.query_row((int(job.0), step), body_from).optional()
    }

    /// Stops after the step with which the bodies reach [`BODIES_BYTES`].
    pub fn bodies(&self, steps: &[(JobId, u16)]) -> rusqlite::Result<Vec<Option<Arc<[u8]>>>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (job, step) in steps {
            let body = self.body(*job, *step)?;
            bytes += body.as_ref().map_or(0, |body| body.len());
            found.push(body);
            if bytes >= BODIES_BYTES {
                break;
            }
        }
        Ok(found)
    }

    /// Of a larger body only the page with its length is read.
    pub fn small_bodies(&self, steps: &[(JobId, u16)], bytes_max: usize) -> rusqlite::Result<StepBodies> {
        let sql = "SELECT body FROM bodies WHERE job = ?1 AND step = ?2 AND length(body) <= ?3";
        let (mut one, mut found) = (self.db.prepare_cached(sql)?, Vec::with_capacity(steps.len()));
        for (job, step) in steps {
            let mut rows = one.query((int(job.0), step, int(bytes_max as u64)))?;
            if let Some(row) = rows.next()? {
                found.push(((*job, *step), body_from(row)?));
            }
        }
        Ok(found)
    }
}

/// An expression that is true of jobs that pass the filter, and its values from `?2` on.
fn passes(filter: &JobFilter) -> (String, Vec<Box<dyn ToSql>>) {
    let mut clauses: Vec<String> = Vec::new();
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    let texts =
        [(&filter.user, "user = ?"), (&filter.queue, "queue = ?"), (&filter.name, "instr(name, ?) > 0")];
    for (value, clause) in texts {
        if let Some(value) = value {
            values.push(Box::new(value.clone()));
            clauses.push(clause.replace('?', &format!("?{}", values.len() + 1)));
        }
    }
    if !filter.states.is_empty() {
        let states: Vec<String> =
            filter.states.iter().map(|state| codes::job_state(*state).to_string()).collect();
        clauses.push(format!("state IN ({})", states.join(",")));
    }
    if clauses.is_empty() {
        clauses.push("1".to_owned());
    }
    (clauses.join(" AND "), values)
}

fn job_from(row: &Row<'_>) -> rusqlite::Result<JobView> {
    Ok(rows::job(row)?)
}

fn number_from(row: &Row<'_>) -> rusqlite::Result<u64> {
    Ok(row.number(0)?)
}

fn body_from(row: &Row<'_>) -> rusqlite::Result<Arc<[u8]>> {
    Ok(present(0, row.blob(0)?)?.into())
}
