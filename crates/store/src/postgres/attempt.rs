//! One attempt to commit a batch: its statements, sent without waiting for answers in between, then what it changes in
//! sums, the change of the owner's row that only this owner can make, and `COMMIT`.

use super::column::{Column, text};
use super::columns::job_totals;
use super::database::Database;
use super::owed;
use super::plan::{Group, Plan};
use super::statements::WriteKind;
use super::trouble::Trouble;
use crate::codes::int;
use crate::done::{DoneRequest, done_of};
use crate::error::StoreError;
use crate::notices::{Beside, owed_of};
use crate::ownership::Ownership;
use crate::usage;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};
use windlass_core::JobId;
use windlass_core::engine::Write;

/// Fails with a division by zero if the row is not as this owner left it, so that the `COMMIT` that is already on its
/// way commits nothing.
const FENCE: &str =
    "WITH fenced AS (UPDATE shards SET batch = batch + 1, refused = $4, beat = clock_timestamp()
        WHERE id = 0 AND owner = $1 AND epoch = $2 AND batch = $3 RETURNING 1)
    SELECT 1 / count(*) FROM fenced";
const EXISTING: &str = "SELECT id FROM jobs WHERE id = ANY($1) FOR UPDATE";
const TOTALS: &str = "INSERT INTO user_totals (submitter, jobs, bytes)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
    ON CONFLICT (submitter) DO UPDATE SET jobs = user_totals.jobs + excluded.jobs,
        bytes = user_totals.bytes + excluded.bytes";
const COUNTS: &str = "INSERT INTO parked_counts (queue, class, jobs, tasks, waiting)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
    ON CONFLICT (queue, class) DO UPDATE SET jobs = parked_counts.jobs + excluded.jobs,
        tasks = parked_counts.tasks + excluded.tasks, waiting = parked_counts.waiting + excluded.waiting";
const NO_COUNTS: &str = "DELETE FROM parked_counts USING unnest($1::text[], $2::bigint[]) AS v(queue, class)
    WHERE parked_counts.queue = v.queue AND parked_counts.class = v.class AND jobs = 0";

const ENDED: &str =
    "INSERT INTO ended_totals (state, jobs) SELECT * FROM unnest($1::smallint[], $2::bigint[])
    ON CONFLICT (state) DO UPDATE SET jobs = ended_totals.jobs + excluded.jobs";

/// An earlier try of the batch that is still on its way may have the row. The owner's row decides which of them commits.
const DONE: &str = "INSERT INTO done_requests (key, answer, done_by, signature)
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bytea[]) ON CONFLICT DO NOTHING";

/// What the statements of a batch did.
struct Applied {
    /// The writes that rows refused, ascending.
    refused: Vec<usize>,
    /// What is added to the number of ended jobs, by the code of their state.
    ended: BTreeMap<i16, i64>,
}

/// A connection for commits alone.
pub struct Connection {
    pub client: Client,
    driver: JoinHandle<()>,
    prepared: HashMap<&'static str, Statement>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // What was not sent is not sent any more.
        self.driver.abort();
    }
}

impl Connection {
    pub async fn new(database: &Database, deadline: Instant) -> Result<Connection, StoreError> {
        let connected = timeout_at(deadline, database.target.connect(&database.runtime)).await;
        let (client, driver) = connected.map_err(|_| database.did_not_answer())??;
        Ok(Connection { client, driver, prepared: HashMap::new() })
    }

    /// Prepares those of the statements that this connection has not met yet.
    async fn prepare(&mut self, wanted: &[&'static str]) -> Result<(), Trouble> {
        for sql in wanted.iter().copied() {
            if !self.prepared.contains_key(sql) {
                let statement = self.client.prepare(sql).await?;
                self.prepared.insert(sql, statement);
            }
        }
        Ok(())
    }

    fn query<'a>(&'a self, sql: &'static str, columns: &'a [Column<'a>]) -> Step<'a> {
        let statement = &self.prepared[sql];
        async move {
            let columns: Vec<&(dyn ToSql + Sync)> =
                columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect();
            self.client.query(statement, &columns).await
        }
        .boxed()
    }

    fn run<'a>(&'a self, sql: &'static str) -> Step<'a> {
        async move { self.client.batch_execute(sql).await.map(|()| Vec::new()) }.boxed()
    }
}

type Step<'a> = BoxFuture<'a, Result<Vec<Row>, tokio_postgres::Error>>;

/// Sends all statements in their order without waiting for answers in between, and returns the answers. After the first
/// error the others of a transaction fail too, so that one is the cause.
async fn pipelined(steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
    let mut steps: Vec<MaybeDone<Step<'_>>> = steps.into_iter().map(maybe_done).collect();
    // A statement is queued when it is polled for the first time.
    std::future::poll_fn(|cx| {
        let mut is_waiting = false;
        for step in &mut steps {
            is_waiting |= Pin::new(step).poll(cx).is_pending();
        }
        if is_waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    steps.iter_mut().map(|step| Pin::new(step).take_output().expect("each is done")).collect()
}

#[derive(Clone, Copy)]
pub struct Changes<'a> {
    pub writes: &'a [Write],
    /// The requests that these writes do, and the notices that they owe.
    pub beside: &'a Beside,
}

pub struct Attempt<'a> {
    pub database: &'a Database,
    pub ownership: &'a Ownership,
    /// Commits that the owner's row has counted before.
    pub batch: i64,
    /// Whether `COMMIT` may have been sent.
    pub is_asked: bool,
}

impl Attempt<'_> {
    pub async fn run(
        &mut self,
        connection: &mut Connection,
        changes: Changes<'_>,
    ) -> Result<Vec<usize>, Trouble> {
        let writes = changes.writes;
        let retried = retried(writes);
        let mut begun = false;
        let mut existing = BTreeSet::new();
        if !retried.is_empty() {
            connection.prepare(&[EXISTING]).await?;
            let columns: [Column<'_>; 1] = [Box::new(retried)];
            let steps = vec![connection.run("BEGIN"), connection.query(EXISTING, &columns)];
            self.count(steps.len());
            let rows = pipelined(steps).await?.pop().unwrap_or_default();
            existing.extend(rows.iter().map(|row| JobId(row.get::<_, i64>(0) as u64)));
            begun = true;
        }
        let plan = Plan::new(writes, &existing);
        let applied = self.apply(connection, writes, &plan, begun).await?;
        self.finish(connection, changes, &applied).await?;
        Ok(applied.refused)
    }

    fn count(&self, statements: usize) {
        self.database.statements.fetch_add(statements as u64, Ordering::Relaxed);
    }

    /// Runs the statements of the plan.
    async fn apply(
        &mut self,
        connection: &mut Connection,
        writes: &[Write],
        plan: &Plan,
        begun: bool,
    ) -> Result<Applied, Trouble> {
        let wanted: Vec<&'static str> = plan.groups.iter().map(|group| group.kind.sql()).collect();
        connection.prepare(&wanted).await?;
        let sorted: Vec<Vec<usize>> = plan.groups.iter().map(|group| in_key_order(group, writes)).collect();
        let columns: Vec<Vec<Column<'_>>> = plan
            .groups
            .iter()
            .zip(&sorted)
            .map(|(group, rows)| {
                let writes: Vec<&Write> = rows.iter().map(|number| &writes[*number]).collect();
                group.kind.columns(&writes)
            })
            .collect();
        let mut steps = if begun { Vec::new() } else { vec![connection.run("BEGIN")] };
        let first = steps.len();
        steps.extend(
            plan.groups
                .iter()
                .zip(&columns)
                .map(|(group, columns)| connection.query(group.kind.sql(), columns)),
        );
        self.count(steps.len());
        let answers = pipelined(steps).await?;
        let (mut refused, mut ended) = (Vec::new(), BTreeMap::new());
        for (group, rows) in plan.groups.iter().zip(&answers[first..]) {
            if group.kind.is_guarded() && rows.len() < group.rows.len() {
                refused.extend(not_taken(group, rows, writes));
            }
            if group.kind.changes_states() {
                for row in rows {
                    *ended.entry(row.get(1)).or_default() -= 1;
                    *ended.entry(row.get(2)).or_default() += 1;
                }
            }
        }
        // State 0 is that of active jobs.
        ended.retain(|state, jobs| *state != 0 && *jobs != 0);
        Ok(Applied { refused: plan.refused(refused), ended })
    }

    /// Adds what the batch changes in sums, which other transactions wait for, and commits under the owner's epoch.
    async fn finish(
        &mut self,
        connection: &mut Connection,
        changes: Changes<'_>,
        Applied { refused, ended }: &Applied,
    ) -> Result<(), Trouble> {
        let writes = changes.writes;
        let mut last: Vec<(&'static str, Vec<Column<'_>>)> = Vec::new();
        last.extend(totals(writes, refused));
        last.extend(counts(writes, refused));
        last.extend(done_rows(changes, refused));
        last.extend(owed::added(owed_of(&changes.beside.notices, writes, refused)));
        last.extend(super::used::added(usage::added(&changes.beside.used, writes, refused)));
        if !ended.is_empty() {
            let (states, jobs): (Vec<i16>, Vec<i64>) =
                ended.iter().map(|(state, jobs)| (*state, *jobs)).unzip();
            last.push((ENDED, vec![Box::new(states), Box::new(jobs)]));
        }
        let Ownership { server, epoch, .. } = *self.ownership;
        let refused: Vec<i64> = refused.iter().map(|number| *number as i64).collect();
        last.push((
            FENCE,
            vec![Box::new(server.0), Box::new(int(epoch)), Box::new(self.batch), Box::new(refused)],
        ));
        let wanted: Vec<&'static str> = last.iter().map(|(sql, _)| *sql).collect();
        connection.prepare(&wanted).await?;
        let mut steps: Vec<Step<'_>> =
            last.iter().map(|(sql, columns)| connection.query(sql, columns)).collect();
        steps.push(connection.run("COMMIT"));
        self.count(steps.len());
        self.is_asked = true;
        pipelined(steps).await?;
        Ok(())
    }
}

/// The jobs that a batch retries, ascending. They may have been deleted.
fn retried(writes: &[Write]) -> Vec<i64> {
    let retried = writes.iter().filter_map(|write| match write {
        Write::JobRetry { job, .. } => Some(int(job.0)),
        _ => None,
    });
    retried.collect::<BTreeSet<i64>>().into_iter().collect()
}

/// All transactions lock rows in one order, so that few of them wait for each other.
fn in_key_order(group: &Group, writes: &[Write]) -> Vec<usize> {
    let mut rows = group.rows.clone();
    // History is read in the order in which it was written.
    if group.kind != WriteKind::Late {
        rows.sort_by_cached_key(|number| WriteKind::key(&writes[*number]));
    }
    rows
}

fn not_taken(group: &Group, rows: &[Row], writes: &[Write]) -> Vec<usize> {
    let has_two = group.kind.has_two_columns();
    let keys = rows.iter().map(|row| (row.get(0), if has_two { row.get(1) } else { 0 }));
    let taken: HashSet<(i64, i64)> = keys.collect();
    let is_refused = |number: &usize| !taken.contains(&WriteKind::key(&writes[*number]));
    group.rows.iter().copied().filter(is_refused).collect()
}

/// What new jobs add to their users' totals.
fn totals<'a>(writes: &[Write], refused: &[usize]) -> Option<(&'static str, Vec<Column<'a>>)> {
    let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for (number, write) in writes.iter().enumerate() {
        let Some((user, bytes)) = job_totals(write) else { continue };
        if refused.binary_search(&number).is_err() {
            let sum = sums.entry(text(user).into_owned()).or_default();
            *sum = (sum.0 + 1, sum.1 + bytes);
        }
    }
    if sums.is_empty() {
        return None;
    }
    let jobs: Vec<i64> = sums.values().map(|sum| sum.0).collect();
    let bytes: Vec<i64> = sums.values().map(|sum| sum.1).collect();
    Some((TOTALS, vec![Box::new(sums.into_keys().collect::<Vec<_>>()), Box::new(jobs), Box::new(bytes)]))
}

/// The rows of the requests that the batch does.
fn done_rows<'a>(changes: Changes<'a>, refused: &[usize]) -> Option<(&'static str, Vec<Column<'a>>)> {
    let done: Vec<&DoneRequest> = done_of(&changes.beside.done, changes.writes, refused).collect();
    if done.is_empty() {
        return None;
    }
    let keys: Vec<_> = done.iter().map(|request| text(&request.key)).collect();
    let answers: Vec<&[u8]> = done.iter().map(|request| &request.answer[..]).collect();
    let by: Vec<i64> = done.iter().map(|request| request.by.0).collect();
    let signatures: Vec<&[u8]> = done.iter().map(|request| &request.signature[..]).collect();
    Some((DONE, vec![Box::new(keys), Box::new(answers), Box::new(by), Box::new(signatures)]))
}

/// What parking adds to the counts by queue and class: jobs, ready tasks, waiting tasks.
fn counts<'a>(writes: &[Write], refused: &[usize]) -> Vec<(&'static str, Vec<Column<'a>>)> {
    let mut sums: BTreeMap<(String, i64), [i64; 3]> = BTreeMap::new();
    for (number, write) in writes.iter().enumerate() {
        let (queue, parked, sign) = match write {
            Write::Park { queue, parked, .. } => (queue, parked, 1),
            Write::Unpark { queue, parked, .. } => (queue, parked, -1),
            _ => continue,
        };
        if refused.binary_search(&number).is_err() {
            let backlog = parked.backlog;
            let sum = sums.entry((text(queue).into_owned(), int(parked.class))).or_default();
            let more = [backlog.jobs, backlog.ready, backlog.waiting];
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += sign * int(more));
        }
    }
    let mut statements: Vec<(&'static str, Vec<Column<'a>>)> = Vec::new();
    if sums.is_empty() {
        return statements;
    }
    let (mut queues, mut classes, mut columns) = (Vec::new(), Vec::new(), [vec![], vec![], vec![]]);
    let (mut fewer_queues, mut fewer_classes) = (Vec::new(), Vec::new());
    for ((queue, class), sum) in sums {
        if sum[0] < 0 {
            fewer_queues.push(queue.clone());
            fewer_classes.push(class);
        }
        queues.push(queue);
        classes.push(class);
        columns.iter_mut().zip(sum).for_each(|(column, value): (&mut Vec<i64>, i64)| column.push(value));
    }
    let [jobs, tasks, waiting] = columns;
    statements.push((
        COUNTS,
        vec![Box::new(queues), Box::new(classes), Box::new(jobs), Box::new(tasks), Box::new(waiting)],
    ));
    if !fewer_queues.is_empty() {
        statements.push((NO_COUNTS, vec![Box::new(fewer_queues), Box::new(fewer_classes)]));
    }
    statements
}
