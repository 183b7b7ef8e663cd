//! The reading side of the PostgreSQL store. A [`PgReader`] is a connection of the pool; its methods are those of
//! [`Store`](crate::Store) with the same names. Nothing here writes.

use super::columns::rank;
use super::parked::{self, PAGE};
use super::trouble::Trouble;
use super::{Postgres, settings, turns};
use crate::codes::{self, FAILED, int, time};
use crate::error::StoreError;
use crate::gather::Gather;
use crate::rows::{self, ATTEMPT, JOB, RESULT, RowError, StoredRow, TASK, WORKER, present};
use crate::spec;
use crate::view::{
    AttemptView, EndedJob, EndedTotals, HISTORY_MAX, JobFilter, JobView, JobsPart, ParkedView, Snapshot,
    StepBodies, StoredTask,
};
use deadpool_postgres::{Object, Transaction};
use futures_util::TryStreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};
use windlass_core::engine::{Fetch, FetchQuery, StoredState};
use windlass_core::job::{JobRecord, Parked};
use windlass_core::residency::subqueues::ParkedCount;
use windlass_core::{JobId, TaskId};

/// Jobs whose records are read together.
const RECORDS_MAX: usize = 500;
/// Bytes of bodies after which a read of several ends.
const BODIES_BYTES: usize = 8 << 20;
/// Rows of jobs that the first part of a list looks at.
const LIST_ROWS_MIN: usize = 500;

pub(crate) struct PgReader {
    client: Object,
}

type Read<T> = Result<T, Trouble>;

impl Postgres {
    pub(crate) async fn reader(&self) -> Result<PgReader, StoreError> {
        Ok(PgReader { client: self.client().await? })
    }

    /// A reader for the engine, which must not see what an earlier commit may still change.
    pub(crate) async fn settled_reader(&self) -> Result<PgReader, StoreError> {
        self.settle().await?;
        self.reader().await
    }
}

impl PgReader {
    /// A transaction whose statements all see one moment.
    async fn moment(&mut self) -> Read<Transaction<'_>> {
        let one = self.client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        Ok(one.read_only(true).start().await?)
    }

    pub async fn load(&mut self) -> Read<Snapshot> {
        let at = self.moment().await?;
        let next = at.query_opt("SELECT value FROM meta WHERE key = 'next_job'", &[]).await?;
        let workers = at.query(&format!("SELECT {WORKER} FROM workers ORDER BY id"), &[]).await?;
        let active = at.query("SELECT id FROM jobs WHERE state = 0 AND NOT parked ORDER BY id", &[]).await?;
        let ids: BTreeSet<JobId> =
            active.iter().map(|row| Ok(JobId(row.number(0)?))).collect::<Result<_, RowError>>()?;
        let ground = StoredState {
            workers: workers.iter().map(rows::worker).collect::<Result<_, _>>()?,
            jobs: records(&at, &ids).await?,
            parked: parked::counts(&at).await?,
            history: settings::history(&at, HISTORY_MAX).await?,
            queues: settings::queues(&at).await?,
            limits: settings::limits(&at).await?,
            turns: turns::load(&at).await?,
        };
        Ok(Snapshot { next_job: next.map_or(Ok(1), |row| row.number(0))?, ground })
    }

    pub async fn records(&mut self, ids: &BTreeSet<JobId>) -> Read<Vec<JobRecord>> {
        records(&self.moment().await?, ids).await
    }

    /// All answers are of one moment.
    pub async fn fetch(&mut self, fetches: &[Fetch]) -> Read<Vec<Vec<JobRecord>>> {
        let at = self.moment().await?;
        let mut answers = Vec::with_capacity(fetches.len());
        for fetch in fetches {
            answers.push(match &fetch.wanted {
                FetchQuery::Jobs(ids) => records(&at, ids).await?,
                FetchQuery::Page { queue, class, from, steps } => {
                    let values: [&(dyn ToSql + Sync); 6] = [
                        queue,
                        &int(*class),
                        &rank(*from),
                        &time(from.ranked),
                        &int(from.job.0),
                        &(*steps as i64),
                    ];
                    page(&at, &values, *steps).await?
                }
            });
        }
        Ok(answers)
    }

    pub async fn parked_counts(&mut self) -> Read<Vec<ParkedCount>> {
        parked::counts(&self.moment().await?).await
    }

    pub async fn parked(&mut self, id: JobId) -> Read<Option<ParkedView>> {
        let at = self.moment().await?;
        let Some(row) = at.query_opt(&format!("{} WHERE p.job = $1", parked::ROW), &[&int(id.0)]).await?
        else {
            return Ok(None);
        };
        let parked = rows::parked(&row, 0)?;
        let Some(job) = at.query_opt(&format!("SELECT {JOB} FROM jobs WHERE id = $1"), &[&int(id.0)]).await?
        else {
            return Ok(None);
        };
        let view = rows::job(&job)?;
        let sql = "SELECT count(*) FROM parked WHERE queue = $1 AND (rank, ranked, job) < ($2, $3, $4)";
        let (position, queue) = (parked.position, super::text(&view.spec.queue));
        let values: [&(dyn ToSql + Sync); 4] =
            [&queue, &rank(position), &time(position.ranked), &int(position.job.0)];
        let ahead = at.query_one(sql, &values).await?.number(0)?;
        Ok(Some(ParkedView { spec: view.spec, parked, ahead }))
    }

    async fn all<T>(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
        from: fn(&Row) -> Result<T, RowError>,
    ) -> Read<Vec<T>> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query(&statement, values).await?.iter().map(from).collect::<Result<_, _>>()?)
    }

    async fn one<T>(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
        from: fn(&Row) -> Result<T, RowError>,
    ) -> Read<Option<T>> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query_opt(&statement, values).await?.as_ref().map(from).transpose()?)
    }

    pub async fn job(&self, id: JobId) -> Read<Option<JobView>> {
        self.one(&format!("SELECT {JOB} FROM jobs WHERE id = $1"), &[&int(id.0)], rows::job).await
    }

    pub async fn job_by_key(&self, user: &str, key: &str) -> Read<Option<JobId>> {
        let sql = "SELECT id FROM jobs WHERE submitter = $1 AND key = $2";
        self.one(sql, &[&super::text(user), &super::text(key)], |row| row.number(0).map(JobId)).await
    }

    pub async fn user_totals(&self, user: &str) -> Read<(u64, u64)> {
        let sql = "SELECT jobs, bytes FROM user_totals WHERE submitter = $1";
        let user = super::text(user);
        let totals = self.one(sql, &[&user], |row| Ok((row.number(0)?, row.number(1)?))).await?;
        Ok(totals.unwrap_or_default())
    }

    pub async fn ended_totals(&self) -> Read<EndedTotals> {
        let sql = "SELECT state, jobs FROM ended_totals";
        let ended = self.all(sql, &[], |row| Ok((row.code(0, codes::job_state_from)?, row.number(1)?)));
        let mut totals = EndedTotals::default();
        for (state, jobs) in ended.await? {
            totals.add(state, jobs);
        }
        Ok(totals)
    }

    pub async fn held_jobs(&self) -> Read<Vec<JobId>> {
        let sql = "SELECT id FROM jobs WHERE state = 0 AND held ORDER BY id";
        self.all(sql, &[], |row| row.number(0).map(JobId)).await
    }

    /// Looks at the rows in parts that grow, so that their number is known, and reads those that pass.
    pub async fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: usize,
        rows_max: usize,
    ) -> Read<JobsPart> {
        let mut below = before.map_or(i64::MAX, |id| int(id.0));
        let states: Vec<i16> = filter.states.iter().map(|state| codes::job_state(*state) as i16).collect();
        let (mut part, mut ids) = (JobsPart::default(), Vec::new());
        let mut rows_asked = limit.max(LIST_ROWS_MIN);
        'rows: loop {
            let most = rows_asked.min(rows_max - part.rows);
            let asked = i64::try_from(most).unwrap_or(i64::MAX);
            let mut values: Vec<&(dyn ToSql + Sync)> = vec![&below, &asked];
            let sql = list_sql(filter, &states, &mut values);
            let rows =
                self.all(&sql, &values, |row| Ok((row.get::<_, i64>(0), row.get::<_, bool>(1)))).await?;
            for (id, passes) in &rows {
                part.rows += 1;
                if *passes {
                    ids.push(*id);
                }
                if ids.len() >= limit || part.rows >= rows_max {
                    part.next = Some(JobId(*id as u64));
                    break 'rows;
                }
            }
            if rows.len() < most {
                break;
            }
            below = rows.last().map_or(below, |(id, _)| *id);
            rows_asked = rows_asked.saturating_mul(4);
        }
        let sql = format!("SELECT {JOB} FROM jobs WHERE id = ANY($1) ORDER BY id DESC");
        part.jobs = self.all(&sql, &[&ids], rows::job).await?;
        Ok(part)
    }

    pub async fn tasks(&self, job: JobId, range: Range<u32>) -> Read<Vec<StoredTask>> {
        let sql = format!(
            "SELECT ending, {RESULT}, {TASK} FROM tasks WHERE job = $1 AND idx >= $2 AND idx < $3 ORDER BY idx"
        );
        let (from, to) = (i64::from(range.start), i64::from(range.end));
        self.all(&sql, &[&int(job.0), &from, &to], rows::task).await
    }

    pub async fn failed_tasks(&self, job: JobId, range: Range<u32>, limit: usize) -> Read<Vec<StoredTask>> {
        let sql = format!(
            "SELECT ending, {RESULT}, {TASK} FROM tasks WHERE job = $1 AND idx >= $2 AND idx < $3 AND state = {FAILED}
             ORDER BY idx LIMIT $4"
        );
        let (from, to, limit) = (i64::from(range.start), i64::from(range.end), int(limit as u64));
        self.all(&sql, &[&int(job.0), &from, &to, &limit], rows::task).await
    }

    pub async fn history(&self, task: TaskId) -> Read<Vec<AttemptView>> {
        let sql = format!(
            "SELECT ending, {RESULT}, {ATTEMPT} FROM attempts WHERE job = $1 AND idx = $2 ORDER BY id"
        );
        let found = self.all(&sql, &[&int(task.job.0), &i64::from(task.index)], rows::attempt).await?;
        Ok(found.into_iter().map(|(_, attempt)| attempt).collect())
    }

    pub async fn last_ended(&mut self, jobs_max: usize, attempts_max: usize) -> Read<Vec<EndedJob>> {
        let at = self.moment().await?;
        let active =
            format!("SELECT {JOB} FROM jobs WHERE state = 0 AND NOT parked ORDER BY id DESC LIMIT $1");
        let ended =
            format!("SELECT {JOB} FROM jobs WHERE ended IS NOT NULL ORDER BY ended DESC, id DESC LIMIT $1");
        let mut views = Vec::new();
        for sql in [active, ended] {
            for row in at.query(&sql, &[&(jobs_max as i64)]).await? {
                views.push(rows::job(&row)?);
            }
        }
        let tasks = format!(
            "SELECT ending, {RESULT}, {TASK} FROM tasks WHERE job = $1 AND state >= 2 AND ending IS NOT NULL
             ORDER BY idx DESC LIMIT $2"
        );
        let earlier = format!(
            "SELECT ending, {RESULT}, {ATTEMPT} FROM attempts WHERE job = $1 AND NOT late ORDER BY idx, id LIMIT $2"
        );
        let (tasks, earlier) = (at.prepare_cached(&tasks).await?, at.prepare_cached(&earlier).await?);
        let (mut left, mut found) = (attempts_max, Vec::new());
        for view in views {
            let (id, most) = (int(view.id.0), left.min(attempts_max / 2));
            let rows = at.query(&tasks, &[&id, &(most as i64)]).await?;
            let tasks: Vec<StoredTask> = rows.iter().map(rows::task).collect::<Result<_, _>>()?;
            let rows = at.query(&earlier, &[&id, &((most - tasks.len()) as i64)]).await?;
            let attempts: Vec<(u32, AttemptView)> =
                rows.iter().map(rows::attempt).collect::<Result<_, _>>()?;
            left -= tasks.len() + attempts.len();
            found.push(EndedJob { view, tasks, attempts });
        }
        Ok(found)
    }

    pub async fn body(&self, job: JobId, step: u16) -> Read<Option<Arc<[u8]>>> {
        let sql = "SELECT body FROM bodies WHERE job = $1 AND step = $2";
        self.one(sql, &[&int(job.0), &i32::from(step)], |row| body(row, 0)).await
    }

    /// Stops after the step with which the bodies reach [`BODIES_BYTES`].
    pub async fn bodies(&self, steps: &[(JobId, u16)]) -> Read<Vec<Option<Arc<[u8]>>>> {
        let sql = "SELECT v.number, b.body
            FROM unnest($1::bigint[], $2::integer[]) WITH ORDINALITY AS v(job, step, number)
                LEFT JOIN bodies AS b ON b.job = v.job AND b.step = v.step ORDER BY v.number";
        let statement = self.client.prepare_cached(sql).await?;
        let (jobs, numbers) = columns(steps);
        let values: [&(dyn ToSql + Sync); 2] = [&jobs, &numbers];
        let mut rows = pin!(self.client.query_raw(&statement, values).await?);
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.try_next().await? {
            let body = row.get::<_, Option<&[u8]>>(1).map(Arc::<[u8]>::from);
            bytes += body.as_ref().map_or(0, |body| body.len());
            found.push(body);
            if bytes >= BODIES_BYTES {
                break;
            }
        }
        Ok(found)
    }

    pub async fn small_bodies(&self, steps: &[(JobId, u16)], bytes_max: usize) -> Read<StepBodies> {
        let sql = "SELECT b.job, b.step, b.body FROM unnest($1::bigint[], $2::integer[]) AS v(job, step)
                JOIN bodies AS b ON b.job = v.job AND b.step = v.step
            WHERE octet_length(b.body) <= $3";
        let (jobs, numbers) = columns(steps);
        let bytes_max = i32::try_from(bytes_max).unwrap_or(i32::MAX);
        let values: [&(dyn ToSql + Sync); 3] = [&jobs, &numbers, &bytes_max];
        let small = |row: &Row| Ok(((JobId(row.number(0)?), row.number(1)? as u16), body(row, 2)?));
        let found: BTreeMap<_, _> = self.all(sql, &values, small).await?.into_iter().collect();
        Ok(steps.iter().filter_map(|step| Some((*step, found.get(step)?.clone()))).collect())
    }
}

fn body(row: &Row, column: usize) -> Result<Arc<[u8]>, RowError> {
    Ok(present(column, row.blob(column)?)?.into())
}

/// The statement of a part of a list: the jobs below `$1`, at most `$2`, and whether each passes the filter.
fn list_sql<'a>(
    filter: &'a JobFilter,
    states: &'a Vec<i16>,
    values: &mut Vec<&'a (dyn ToSql + Sync)>,
) -> String {
    let mut passes = "true".to_owned();
    let texts = [
        ("submitter = ", &filter.user, ""),
        ("queue = ", &filter.queue, ""),
        ("strpos(name, ", &filter.name, ") > 0"),
    ];
    for (head, value, tail) in texts {
        if let Some(value) = value {
            values.push(value);
            passes.push_str(&format!(" AND {head}${}::text{tail}", values.len()));
        }
    }
    if !states.is_empty() {
        values.push(states);
        passes.push_str(&format!(" AND state = ANY(${}::smallint[])", values.len()));
    }
    let half =
        |rows: &str| format!("SELECT id, {passes} FROM jobs WHERE {rows} id < $1 ORDER BY id DESC LIMIT $2");
    if !filter.is_for_active() {
        return half("");
    }
    // Both halves come from the index of active jobs, in order.
    let (held, parked) = (half("state = 0 AND NOT parked AND"), half("state = 0 AND parked AND"));
    format!("({held}) UNION ALL ({parked}) ORDER BY 1 DESC LIMIT $2")
}

fn columns(steps: &[(JobId, u16)]) -> (Vec<i64>, Vec<i32>) {
    steps.iter().map(|(job, step)| (int(job.0), i32::from(*step))).unzip()
}

/// The next parked jobs of a subqueue, until they have made up `steps` steps.
async fn page(at: &Transaction<'_>, values: &[&(dyn ToSql + Sync)], steps: usize) -> Read<Vec<JobRecord>> {
    let statement = at.prepare_cached(&PAGE.replace("{JOB}", &job_columns())).await?;
    let (mut seen, mut found) = (0, Vec::new());
    let mut rows = pin!(at.query_raw(&statement, values.iter().copied()).await?);
    while let Some(row) = rows.try_next().await? {
        if seen >= steps {
            break;
        }
        let view = rows::job(&row)?;
        seen += view.spec.steps.len();
        let parked = Some(rows::parked(&row, 12)?);
        found.push(record(&row, view, parked, Gather::default())?);
    }
    Ok(found)
}

/// The columns of a job's record: those of [`rows::job`], and its steps that back off.
fn job_columns() -> String {
    JOB.split(", ").map(|column| format!("j.{column}, ")).collect::<String>() + "j.back_offs"
}

/// The records of those of these jobs that exist, by id.
async fn records(at: &Transaction<'_>, ids: &BTreeSet<JobId>) -> Read<Vec<JobRecord>> {
    let sql = format!(
        "SELECT {}, p.class, p.rank, p.ranked, p.job, p.ready, p.tasks, p.waiting, j.done
         FROM jobs AS j LEFT JOIN parked AS p ON p.job = j.id WHERE j.id = ANY($1) ORDER BY j.id",
        job_columns()
    );
    let statement = at.prepare_cached(&sql).await?;
    let ids: Vec<i64> = ids.iter().map(|id| int(id.0)).collect();
    let mut found = Vec::with_capacity(ids.len());
    for ids in ids.chunks(RECORDS_MAX) {
        let rows = at.query(&statement, &[&ids]).await?;
        let views: Vec<JobView> = rows.iter().map(rows::job).collect::<Result<_, _>>()?;
        let mut gathered = gather(at, &rows, &views).await?;
        for (row, view) in rows.iter().zip(views) {
            let parked = row.int(15)?.map(|_| rows::parked(row, 12)).transpose()?;
            let tasks = gathered.remove(&view.id).unwrap_or_default();
            found.push(record(row, view, parked, tasks)?);
        }
    }
    Ok(found)
}

fn record(row: &Row, view: JobView, parked: Option<Parked>, gathered: Gather) -> Read<JobRecord> {
    let JobView { id, spec, created, state, stop, held, cancels, first_succeeded, .. } = view;
    let back_offs = row.json(11, spec::back_offs_from_json)?.unwrap_or_default();
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

/// The tasks of jobs. Rows of tasks that a job lists as succeeded are not read.
async fn gather(at: &Transaction<'_>, jobs: &[Row], views: &[JobView]) -> Read<BTreeMap<JobId, Gather>> {
    let sql = format!(
        "SELECT v.number, {TASK} FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
             AS v(job, first, behind, number)
             JOIN tasks ON tasks.job = v.job AND tasks.idx >= v.first AND tasks.idx < v.behind
         ORDER BY v.number, tasks.idx"
    );
    // Between the noted ranges: the job, the first task that is read, the first that is not, and the noted range.
    let mut gaps: Vec<(i64, i64, i64, Range<u32>)> = Vec::new();
    for row in jobs {
        let noted = row.json(19, spec::ranges_from_json)?.unwrap_or_default();
        let mut from = 0;
        for done in noted.ranges().chain(std::iter::once(u32::MAX..u32::MAX)) {
            gaps.push((row.get(0), from, i64::from(done.start), done.clone()));
            from = i64::from(done.end);
        }
    }
    let jobs: Vec<i64> = gaps.iter().map(|gap| gap.0).collect();
    let first: Vec<i64> = gaps.iter().map(|gap| gap.1).collect();
    let behind: Vec<i64> = gaps.iter().map(|gap| gap.2).collect();
    let statement = at.prepare_cached(&sql).await?;
    let values: [&(dyn ToSql + Sync); 3] = [&jobs, &first, &behind];
    let mut rows = pin!(at.query_raw(&statement, values).await?);
    let mut gathered: BTreeMap<JobId, Gather> =
        views.iter().map(|view| (view.id, Gather::of(&view.spec))).collect();
    let mut next = rows.try_next().await?;
    for (number, (job, _, _, done)) in (1i64..).zip(gaps) {
        let gather = gathered.entry(JobId(job as u64)).or_default();
        while let Some(row) = &next
            && row.get::<_, i64>(0) == number
        {
            gather.row(rows::task_row(row, 1)?);
            next = rows.try_next().await?;
        }
        if !done.is_empty() {
            gather.done(done);
        }
    }
    Ok(gathered)
}
