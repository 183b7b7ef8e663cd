//! The statement for each kind of write. Its parameters are arrays, one for each column, with a row for each write. A
//! statement whose writes have a guard returns the keys of the rows that it took.

use super::turns;
use crate::codes::int;
use windlass_core::engine::Write;

/// What one statement does for many writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WriteKind {
    Job,
    Held,
    Priority,
    Stop,
    EndOfJob,
    Retry,
    Cancels,
    FirstSucceeded,
    Done,
    BackOffs,
    /// A task's first attempt, which inserts its row.
    First,
    Next,
    End,
    Again,
    Late,
    Worker,
    WorkerGone,
    Lease,
    Park,
    Unpark,
    History,
    Queue,
    QueueGone,
    Limit,
    NoLimit,
    Turns,
}

impl WriteKind {
    pub fn of(write: &Write) -> WriteKind {
        match write {
            Write::Job { .. } => WriteKind::Job,
            Write::JobHeld { .. } => WriteKind::Held,
            Write::JobPriority { .. } => WriteKind::Priority,
            Write::JobStop { .. } => WriteKind::Stop,
            Write::JobEnd { .. } => WriteKind::EndOfJob,
            Write::JobRetry { .. } => WriteKind::Retry,
            Write::TasksCanceled { .. } => WriteKind::Cancels,
            Write::FirstSucceeded { .. } => WriteKind::FirstSucceeded,
            Write::SucceededRanges { .. } => WriteKind::Done,
            Write::LicenceBackoffs { .. } => WriteKind::BackOffs,
            Write::Book { attempt: 1, .. } => WriteKind::First,
            Write::Book { .. } => WriteKind::Next,
            Write::End { .. } => WriteKind::End,
            Write::Requeued { .. } => WriteKind::Again,
            Write::LateResult { .. } => WriteKind::Late,
            Write::Worker(_) => WriteKind::Worker,
            Write::WorkerGone(_) => WriteKind::WorkerGone,
            Write::Lease { .. } => WriteKind::Lease,
            Write::Park { .. } => WriteKind::Park,
            Write::Unpark { .. } => WriteKind::Unpark,
            Write::History { .. } => WriteKind::History,
            Write::Queue(_) => WriteKind::Queue,
            Write::QueueGone(_) => WriteKind::QueueGone,
            Write::Limit { limit: Some(_), .. } => WriteKind::Limit,
            Write::Limit { limit: None, .. } => WriteKind::NoLimit,
            Write::Turns(_) => WriteKind::Turns,
        }
    }

    /// Whether the write says the whole of a thing, so that the last of several is enough.
    pub fn says_all(self) -> bool {
        use WriteKind::*;
        matches!(
            self,
            Held | Priority
                | Stop
                | EndOfJob
                | Cancels
                | FirstSucceeded
                | Done
                | BackOffs
                | Worker
                | WorkerGone
                | Lease
                | History
                | Queue
                | QueueGone
                | Limit
                | NoLimit
        )
    }

    /// Whether a row may refuse the write. The statement then returns the keys of the rows that it took.
    pub fn is_guarded(self) -> bool {
        use WriteKind::*;
        !matches!(
            self,
            Job | Late | Worker | WorkerGone | History | Queue | QueueGone | Limit | NoLimit | Turns
        )
    }

    pub fn sql(self) -> &'static str {
        match self {
            WriteKind::Job => JOB,
            WriteKind::Held => "UPDATE jobs SET held = v.held FROM unnest($1::bigint[], $2::bool[]) AS v(id, held)
                WHERE jobs.id = v.id RETURNING jobs.id",
            WriteKind::Priority => "UPDATE jobs SET priority = v.priority
                FROM unnest($1::bigint[], $2::integer[]) AS v(id, priority) WHERE jobs.id = v.id RETURNING jobs.id",
            WriteKind::Stop => "UPDATE jobs SET stop = v.stop FROM unnest($1::bigint[], $2::bigint[]) AS v(id, stop)
                WHERE jobs.id = v.id RETURNING jobs.id",
            WriteKind::EndOfJob => END_OF_JOB,
            WriteKind::Retry => RETRY,
            WriteKind::Cancels => "UPDATE jobs SET cancels = v.cancels
                FROM unnest($1::bigint[], $2::text[]) AS v(id, cancels) WHERE jobs.id = v.id RETURNING jobs.id",
            WriteKind::FirstSucceeded => "UPDATE jobs SET first_succeeded = v.tasks
                FROM unnest($1::bigint[], $2::text[]) AS v(id, tasks) WHERE jobs.id = v.id RETURNING jobs.id",
            WriteKind::Done => "UPDATE jobs SET done = v.done FROM unnest($1::bigint[], $2::text[]) AS v(id, done)
                WHERE jobs.id = v.id RETURNING jobs.id",
            WriteKind::BackOffs => "UPDATE jobs SET back_offs = v.back_offs
                FROM unnest($1::bigint[], $2::text[]) AS v(id, back_offs) WHERE jobs.id = v.id RETURNING jobs.id",
            WriteKind::First => FIRST,
            WriteKind::Next => NEXT,
            WriteKind::End => END,
            WriteKind::Again => AGAIN,
            WriteKind::Late => LATE,
            WriteKind::Worker => WORKER,
            WriteKind::WorkerGone => "DELETE FROM workers WHERE id = ANY($1::bigint[])",
            WriteKind::Lease => "UPDATE workers SET lease_until = v.until
                FROM unnest($1::bigint[], $2::bigint[]) AS v(id, until) WHERE workers.id = v.id RETURNING workers.id",
            WriteKind::Park => PARK,
            WriteKind::Unpark => UNPARK,
            WriteKind::History => "INSERT INTO history (signature, samples, at)
                SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
                ON CONFLICT (signature) DO UPDATE SET samples = excluded.samples, at = excluded.at",
            WriteKind::Queue => QUEUE,
            WriteKind::Limit => LIMIT,
            WriteKind::QueueGone => "DELETE FROM queues WHERE name = ANY($1::text[])",
            WriteKind::NoLimit => "DELETE FROM limits WHERE name = ANY($1::text[])",
            WriteKind::Turns => turns::TURNS,
        }
    }

    /// The key that a guarded statement returns for a write: its job, worker or task.
    pub fn key(write: &Write) -> (i64, i64) {
        match write {
            Write::Book { task, .. } | Write::End { task, .. } | Write::Requeued { task, .. } => {
                (int(task.job.0), i64::from(task.index))
            }
            _ => (id(write), 0),
        }
    }

    /// Whether the statement returns, after the key, the states of the job before and after it.
    pub fn changes_states(self) -> bool {
        matches!(self, WriteKind::EndOfJob | WriteKind::Retry)
    }

    /// Whether the key that the statement returns is a task's, of two columns.
    pub fn has_two_columns(self) -> bool {
        use WriteKind::*;
        matches!(self, First | Next | End | Again)
    }
}

const JOB: &str = "WITH given AS (
        SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[],
            $8::bigint[]) AS v(id, name, queue, submitter, key, spec, created, bytes)),
    made AS (INSERT INTO jobs (id, name, queue, submitter, key, spec, created, state, bytes)
        SELECT id, name, queue, submitter, key, spec, created, 0, bytes FROM given),
    filled AS (INSERT INTO bodies (job, step, body) SELECT * FROM unnest($9::bigint[], $10::integer[], $11::bytea[]))
    INSERT INTO meta (key, value) SELECT 'next_job', max(id) + 1 FROM given
    ON CONFLICT (key) DO UPDATE SET value = greatest(meta.value, excluded.value)";

/// Returns the states of before and after, too.
const END_OF_JOB: &str = "UPDATE jobs SET state = v.state, ended = v.ended, counts = v.counts
    FROM unnest($1::bigint[], $2::smallint[], $3::bigint[], $4::text[]) AS v(id, state, ended, counts), jobs AS was
    WHERE jobs.id = v.id AND was.id = v.id RETURNING jobs.id, was.state, jobs.state";

/// Returns the states of before and after, too. The last attempts of the tasks are copied into their histories, as all
/// parts of a statement see the rows as they were before it.
const RETRY: &str = "WITH back AS (UPDATE jobs SET state = 0, stop = NULL, ended = NULL, counts = NULL
        FROM jobs AS was WHERE jobs.id = ANY($1::bigint[]) AND was.id = jobs.id
        RETURNING jobs.id, was.state AS was, jobs.state),
    v AS (SELECT job, first, behind FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS r(job, first, behind)
        JOIN back ON back.id = job),
    kept AS (INSERT INTO attempts (job, idx, attempt, worker, epoch, late, ending, code, why, started, finished, cpu_ms,
            peak, out_bytes, err_bytes, disk, booked)
        SELECT t.job, t.idx, t.attempt, t.worker, t.epoch, false, t.ending, t.code, t.why, t.started, t.finished, t.cpu_ms,
            t.peak, t.out_bytes, t.err_bytes, t.disk, t.booked
        FROM v JOIN tasks AS t ON t.job = v.job AND t.idx >= v.first AND t.idx < v.behind
        WHERE t.state IN (3, 4) AND t.ending IS NOT NULL ORDER BY t.job, t.idx),
    ready AS (UPDATE tasks SET state = 0, failures = 0 FROM v
        WHERE tasks.job = v.job AND tasks.idx >= v.first AND tasks.idx < v.behind AND tasks.state IN (0, 3, 4))
    SELECT id, was, state FROM back";

const FIRST: &str = "INSERT INTO tasks (job, idx, state, attempt, worker, epoch, booked, cpu, memory)
    SELECT job, idx, 1, attempt, worker, epoch, booked, cpu, memory
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[]) AS v(job, idx, attempt, worker, epoch, booked, cpu, memory)
    ON CONFLICT DO NOTHING RETURNING job, idx";

const NEXT: &str = "UPDATE tasks SET state = 1, attempt = v.attempt, worker = v.worker, epoch = v.epoch,
        booked = v.booked, cpu = v.cpu, memory = v.memory, ending = NULL
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[]) AS v(job, idx, attempt, worker, epoch, booked, cpu, memory)
    WHERE tasks.job = v.job AND tasks.idx = v.idx AND tasks.state = 0 AND tasks.attempt = v.attempt - 1
    RETURNING tasks.job, tasks.idx";

macro_rules! ending {
    () => {
        "UPDATE tasks SET state = v.state, failures = v.failures, losses = v.losses, ending = v.ending,
            code = v.code, why = v.why, started = v.started, finished = v.finished, cpu_ms = v.cpu_ms,
            peak = v.peak, out_bytes = v.out_bytes, err_bytes = v.err_bytes, disk = v.disk
        FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[],
            $7::smallint[], $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
            $14::bigint[], $15::bigint[], $16::bigint[])
            AS v(job, idx, attempt, state, failures, losses, ending, code, why, started, finished, cpu_ms, peak,
                out_bytes, err_bytes, disk)
        WHERE tasks.job = v.job AND tasks.idx = v.idx AND tasks.attempt = v.attempt AND tasks.state = 1
        RETURNING tasks.job, tasks.idx"
    };
}

const END: &str = ending!();

/// The attempt that has just ended is copied into the task's history.
const AGAIN: &str = concat!(
    "WITH ended AS (",
    ending!(),
    ", tasks.attempt, tasks.worker, tasks.epoch, tasks.ending, tasks.code, tasks.why, tasks.started, tasks.finished,
        tasks.cpu_ms, tasks.peak, tasks.out_bytes, tasks.err_bytes, tasks.disk, tasks.booked),
    kept AS (INSERT INTO attempts (job, idx, attempt, worker, epoch, late, ending, code, why, started, finished, cpu_ms,
            peak, out_bytes, err_bytes, disk, booked)
        SELECT job, idx, attempt, worker, epoch, false, ending, code, why, started, finished, cpu_ms, peak, out_bytes,
            err_bytes, disk, booked FROM ended)
    SELECT job, idx FROM ended"
);

/// Results of attempts that the task really had. Repetitions are dropped: a keeper repeats a result until it is
/// acknowledged.
const LATE: &str = "INSERT INTO attempts (job, idx, attempt, worker, epoch, late, ending, code, why, started, finished,
        cpu_ms, peak, out_bytes, err_bytes, disk)
    SELECT v.job, v.idx, v.attempt, v.worker, v.epoch, true, v.ending, v.code, v.why, v.started, v.finished, v.cpu_ms,
        v.peak, v.out_bytes, v.err_bytes, v.disk
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bigint[],
        $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
        $15::bigint[]) AS v(job, idx, attempt, worker, epoch, ending, code, why, started, finished, cpu_ms, peak,
            out_bytes, err_bytes, disk)
    WHERE EXISTS (SELECT 1 FROM tasks AS t WHERE t.job = v.job AND t.idx = v.idx AND t.attempt >= v.attempt)
        AND NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.job = v.job AND a.idx = v.idx AND a.attempt = v.attempt
            AND a.worker = v.worker AND a.epoch = v.epoch AND a.late)";

const WORKER: &str = "INSERT INTO workers (id, name, epoch, incarnation, draining, capacity, attributes, identity, state,
        lease_until, note)
    SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bool[], $6::text[], $7::text[],
        $8::bigint[], $9::smallint[], $10::bigint[], $11::text[])
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, epoch = excluded.epoch, incarnation = excluded.incarnation,
        draining = excluded.draining, capacity = excluded.capacity, attributes = excluded.attributes,
        identity = excluded.identity, state = excluded.state, lease_until = excluded.lease_until,
        note = excluded.note";

const PARK: &str = "WITH marked AS (UPDATE jobs SET parked = true
        FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[]) AS v(job, queue, class, rank, ranked, ready, tasks, waiting)
        WHERE jobs.id = v.job AND jobs.state = 0 AND NOT jobs.parked RETURNING v.*),
    put AS (INSERT INTO parked (job, queue, class, rank, ranked, ready, tasks, waiting) SELECT * FROM marked)
    SELECT job FROM marked";

const UNPARK: &str = "WITH gone AS (DELETE FROM parked WHERE job = ANY($1::bigint[]) RETURNING job),
    marked AS (UPDATE jobs SET parked = false FROM gone WHERE jobs.id = gone.job)
    SELECT job FROM gone";

const QUEUE: &str = "INSERT INTO queues (name, weight, band, quota_cpu, burst_cpu, paused, users, turns, user_weights,
        jobserver)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
        $8::bool[], $9::text[], $10::bool[])
    ON CONFLICT (name) DO UPDATE SET weight = excluded.weight, band = excluded.band, quota_cpu = excluded.quota_cpu,
        burst_cpu = excluded.burst_cpu, paused = excluded.paused, users = excluded.users, turns = excluded.turns,
        user_weights = excluded.user_weights, jobserver = excluded.jobserver";

const LIMIT: &str = "INSERT INTO limits (name, max, per_worker, busy_exits, back_off_ms)
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[])
    ON CONFLICT (name) DO UPDATE SET max = excluded.max, per_worker = excluded.per_worker,
        busy_exits = excluded.busy_exits, back_off_ms = excluded.back_off_ms";

/// The number of the job or worker of a write that is not of a task.
pub fn id(write: &Write) -> i64 {
    let worker = match write {
        Write::WorkerGone(id) => Some(*id),
        write => write.worker(),
    };
    worker.map(|id| int(id.0)).or(write.job().map(|id| int(id.0))).unwrap_or_default()
}
