//! Rows of both databases as the values of the store. A number that this version does not know is an error, never another
//! state.

use crate::codes;
use crate::notices::{NewNotice, OwedNotice};
use crate::spec;
use crate::turns::{clock_of, from_charge, from_flags, join};
use crate::usage::{UsageKey, UsageSum};
use crate::view::{AttemptView, JobView, SeriesRow, StoredTask, TokenRecord};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::job::{BacklogCounts, End, Parked, QueuePos, TaskResult, TaskRow};
use windlass_core::licences::{Busy, Limit};
use windlass_core::queues::{ClockRecord, QueueRecord, QueueTurn, TurnClock, TurnRecord, TurnsBy};
use windlass_core::residency::subqueues::{ParkedCount, ParkedDrift};
use windlass_core::score::history::Sample;
use windlass_core::worker::WorkerRecord;
use windlass_core::{Epoch, JobId, Time, WorkerId};

/// The columns of [`job`].
pub const JOB: &str =
    "id, spec, created, state, stop, held, ended, counts, priority, cancels, first_succeeded";
/// The columns of an attempt's result behind the kind of its end, which is `end` in SQLite and `ending` in PostgreSQL.
pub const RESULT: &str = "code, why, started, finished, cpu_ms, peak, out_bytes, err_bytes, disk";
/// The columns of [`task_row`].
pub const TASK: &str = "idx, state, attempt, failures, losses, worker, epoch, booked, cpu, memory";
/// The columns of an attempt behind those of its result.
pub const ATTEMPT: &str = "attempt, worker, epoch, late, idx, booked";
/// The columns of [`worker`].
pub const WORKER: &str =
    "id, name, epoch, incarnation, draining, capacity, attributes, identity, state, lease_until, note";
/// The columns of [`queue`].
pub const QUEUE: &str =
    "name, weight, band, quota_cpu, burst_cpu, paused, users, turns, user_weights, jobserver";
/// The columns of [`limit`].
pub const LIMIT: &str = "name, max, per_worker, busy_exits, back_off_ms";

/// A column that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("column {column}: {why}")]
pub struct RowError {
    pub column: usize,
    why: String,
}

impl RowError {
    pub fn new(column: usize, why: impl ToString) -> RowError {
        RowError { column, why: why.to_string() }
    }
}

/// A row of a database. Its columns are read by their positions, and `None` is NULL.
pub trait StoredRow {
    /// An integer of any width, or a flag as 1 or 0.
    fn int(&self, column: usize) -> Result<Option<i64>, RowError>;
    fn str(&self, column: usize) -> Result<Option<&str>, RowError>;
    fn blob(&self, column: usize) -> Result<Option<&[u8]>, RowError>;

    /// An unsigned number, by the inverse of the cast that wrote it.
    fn number(&self, column: usize) -> Result<u64, RowError> {
        Ok(present(column, self.int(column)?)? as u64)
    }

    fn optional_number(&self, column: usize) -> Result<Option<u64>, RowError> {
        Ok(self.int(column)?.map(|n| n as u64))
    }

    fn small(&self, column: usize) -> Result<u32, RowError> {
        Ok(self.number(column)? as u32)
    }

    fn optional_small(&self, column: usize) -> Result<Option<u32>, RowError> {
        Ok(self.int(column)?.map(|n| n as u32))
    }

    /// A number that is at least 0 and at most `most`. What is outside of this counts as the nearest.
    fn clamped(&self, column: usize, most: u64) -> Result<u64, RowError> {
        Ok((present(column, self.int(column)?)?.max(0) as u64).min(most))
    }

    fn flag(&self, column: usize) -> Result<bool, RowError> {
        Ok(self.number(column)? != 0)
    }

    fn time(&self, column: usize) -> Result<Option<Time>, RowError> {
        Ok(self.optional_number(column)?.map(Time))
    }

    fn text(&self, column: usize) -> Result<String, RowError> {
        present(column, self.str(column)?).map(str::to_owned)
    }

    fn optional_text(&self, column: usize) -> Result<Option<String>, RowError> {
        Ok(self.str(column)?.map(str::to_owned))
    }

    fn json<T>(
        &self,
        column: usize,
        parse: fn(&str) -> Result<T, serde_json::Error>,
    ) -> Result<Option<T>, RowError> {
        self.str(column)?.map(parse).transpose().map_err(|error| RowError::new(column, error))
    }

    /// A number that stands for a state.
    fn code<T>(&self, column: usize, from: fn(i64) -> Option<T>) -> Result<T, RowError> {
        let code = present(column, self.int(column)?)?;
        let unknown =
            || RowError::new(column, format!("the number {code}, which this version does not know"));
        from(code).ok_or_else(unknown)
    }
}

pub fn present<T>(column: usize, value: Option<T>) -> Result<T, RowError> {
    value.ok_or_else(|| RowError::new(column, "no value"))
}

pub fn job<R: StoredRow>(row: &R) -> Result<JobView, RowError> {
    let mut spec = present(1, row.json(1, spec::spec_from_json)?)?;
    spec.priority = row.int(8)?.map_or(spec.priority, |priority| priority as i32);
    Ok(JobView {
        id: JobId(row.number(0)?),
        spec: Arc::new(spec),
        created: Time(row.number(2)?),
        state: row.code(3, codes::job_state_from)?,
        stop: row.int(4)?.map(codes::stop_from),
        held: row.flag(5)?,
        ended: row.time(6)?,
        counts: row.json(7, spec::counts_from_json)?,
        cancels: row.json(9, spec::ranges_from_json)?.unwrap_or_default(),
        first_succeeded: row.json(10, spec::ranges_from_json)?.unwrap_or_default(),
    })
}

/// The result in the first ten columns; `None` if the attempt has not ended.
fn result<R: StoredRow>(row: &R) -> Result<Option<TaskResult>, RowError> {
    let Some(code) = row.int(0)? else { return Ok(None) };
    let why = row.optional_text(2)?;
    let end = codes::end_from(code, row.int(1)?, why.clone());
    let message = why.filter(|_| !matches!(end, Some(End::NotStarted { .. } | End::OutputsLost { .. })));
    Ok(Some(TaskResult {
        end: end.ok_or_else(|| RowError::new(0, "a kind of end that this version does not know"))?,
        started: row.time(3)?,
        finished: row.time(4)?,
        cpu_ms: row.optional_number(5)?,
        token_cpu_ms: None,
        peak_memory: row.optional_number(6)?,
        process_memory: None,
        disk_bytes: row.optional_number(9)?,
        out_bytes: row.optional_number(7)?.unwrap_or(0),
        err_bytes: row.optional_number(8)?.unwrap_or(0),
        message,
    }))
}

/// The task's row, in the ten columns from `first` on.
pub fn task_row<R: StoredRow>(row: &R, first: usize) -> Result<TaskRow, RowError> {
    Ok(TaskRow {
        index: row.small(first)?,
        state: row.code(first + 1, codes::task_state_from)?,
        attempt: row.small(first + 2)?,
        failures: row.small(first + 3)?,
        losses: row.small(first + 4)?,
        worker: WorkerId(row.number(first + 5)?),
        epoch: Epoch(row.number(first + 6)?),
        booked: Time(row.number(first + 7)?),
        amounts: row.optional_small(first + 8)?.zip(row.optional_number(first + 9)?),
    })
}

/// A task, in the columns of its result and of [`TASK`].
pub fn task<R: StoredRow>(row: &R) -> Result<StoredTask, RowError> {
    Ok(StoredTask { row: task_row(row, 10)?, result: result(row)? })
}

/// The index of the task and the attempt, in the columns of its result and of [`ATTEMPT`].
pub fn attempt<R: StoredRow>(row: &R) -> Result<(u32, AttemptView), RowError> {
    let view = AttemptView {
        attempt: row.small(10)?,
        worker: WorkerId(row.number(11)?),
        epoch: Epoch(row.number(12)?),
        late: row.flag(13)?,
        booked: row.time(15)?,
        result: present(0, result(row)?)?,
    };
    Ok((row.small(14)?, view))
}

pub fn worker<R: StoredRow>(row: &R) -> Result<WorkerRecord, RowError> {
    Ok(WorkerRecord {
        id: WorkerId(row.number(0)?),
        name: row.text(1)?,
        epoch: Epoch(row.number(2)?),
        identity: row.number(7)?,
        incarnation: row.number(3)?,
        state: row.code(8, codes::worker_state_from)?,
        draining: row.flag(4)?,
        note: row.optional_text(10)?,
        lease_until: row.time(9)?,
        capacity: present(5, row.json(5, spec::resources_from_json)?)?,
        attributes: present(6, row.json(6, spec::from_json)?)?,
    })
}

/// A token, in the order of the fields in which it is written.
pub fn token<R: StoredRow>(row: &R) -> Result<TokenRecord, RowError> {
    let hash = present(1, row.blob(1)?)?;
    Ok(TokenRecord {
        id: row.text(0)?,
        hash: hash.try_into().map_err(|_| RowError::new(1, "a hash that is not of 32 bytes"))?,
        role: row.text(2)?,
        user: row.text(3)?,
        worker: row.optional_text(4)?,
        note: row.text(5)?,
        created: Time(row.number(6)?),
        expires: row.time(7)?,
        revoked: row.time(8)?,
        serves: row.json(9, spec::from_json)?.unwrap_or_default(),
        // An empty list gives a submitter no right.
        for_users: row.json(10, spec::from_json)?.unwrap_or_default(),
        queue: row.optional_text(11)?,
        cache: row.optional_text(12)?,
    })
}

pub fn queue<R: StoredRow>(row: &R) -> Result<QueueRecord, RowError> {
    Ok(QueueRecord {
        name: row.text(0)?,
        weight: row.small(1)?,
        band: row.optional_small(2)?.map(|band| band as u8),
        quota_cpu: row.optional_small(3)?,
        burst_cpu: row.optional_small(4)?,
        paused: row.optional_text(5)?,
        // An empty list would open some queues to all users.
        users: row.json(6, spec::from_json)?.unwrap_or_default(),
        turns: if row.flag(7)? { TurnsBy::Jobs } else { TurnsBy::Users },
        user_weights: row.json(8, spec::from_json)?.unwrap_or_default(),
        jobserver: row.optional_small(9)?.map(|flag| flag != 0),
    })
}

/// The name of a limit, and the limit.
pub fn limit<R: StoredRow>(row: &R) -> Result<(String, Limit), RowError> {
    let busy = row.json(3, spec::from_json)?.zip(row.optional_number(4)?);
    let busy = busy.map(|(exits, back_off_ms)| Busy { exits, back_off_ms });
    Ok((row.text(0)?, Limit { max: row.optional_small(1)?, per_worker: row.optional_small(2)?, busy }))
}

/// The signature of a task profile, and its samples.
pub fn history<R: StoredRow>(row: &R) -> Result<(String, Vec<Sample>), RowError> {
    Ok((row.text(0)?, present(1, row.json(1, spec::samples_from_json)?)?))
}

/// A parked job, in the seven columns from `first` on.
pub fn parked<R: StoredRow>(row: &R, first: usize) -> Result<Parked, RowError> {
    let number = |column| row.number(first + column);
    let rank = present(first + 1, row.int(first + 1)?)?;
    let priority = Reverse(i32::try_from(-rank).unwrap_or(i32::MIN));
    Ok(Parked {
        class: number(0)?,
        position: QueuePos { priority, ranked: Time(number(2)?), job: JobId(number(3)?) },
        ready: Time(number(4)?),
        backlog: BacklogCounts { jobs: 1, ready: number(5)?, waiting: number(6)? },
    })
}

/// The count of a queue and a class. A count below 0 is wrong, and appears as 0 until the audit corrects it.
pub fn count<R: StoredRow>(row: &R) -> Result<ParkedCount, RowError> {
    let number = |column| row.clamped(column, u64::MAX);
    let backlog = BacklogCounts { jobs: number(2)?, ready: number(3)?, waiting: number(4)? };
    Ok(ParkedCount { queue: row.text(0)?, class: row.number(1)?, backlog })
}

/// The counts of parked jobs that differ from what their rows add up to.
pub fn drifts(counted: Vec<ParkedCount>, found: Vec<ParkedCount>) -> Vec<ParkedDrift> {
    let mut both: BTreeMap<_, (BacklogCounts, BacklogCounts)> = BTreeMap::new();
    for count in counted {
        both.entry((count.queue, count.class)).or_default().0 = count.backlog;
    }
    for count in found {
        both.entry((count.queue, count.class)).or_default().1 = count.backlog;
    }
    let differ = both.into_iter().filter(|(_, (counted, found))| counted != found);
    differ.map(|((queue, class), (counted, found))| ParkedDrift { queue, class, counted, found }).collect()
}

pub fn turn<R: StoredRow>(row: &R) -> Result<TurnRecord, RowError> {
    let whole = |column| present(column, row.int(column)?);
    let unsigned = |column| row.clamped(column, u64::MAX);
    let small = |column| row.clamped(column, u32::MAX.into()).map(|number| number as u32);
    let (waits, passed, express) = from_flags(whole(10)?);
    let turn = QueueTurn {
        band: row.clamped(3, u8::MAX.into())? as u8,
        start: join(whole(4)?, whole(5)?),
        rest: small(6)?,
        weight: small(7)?,
        task: unsigned(8)?,
        since: unsigned(9)?,
        waits,
        passed,
        express,
        ahead: unsigned(11)?,
        rate: unsigned(12)?,
        at: Time(unsigned(13)?),
    };
    let user = if row.flag(1)? { Some(row.text(2)?) } else { None };
    Ok(TurnRecord { queue: row.text(0)?, user, turn: Some(turn) })
}

pub fn clock<R: StoredRow>(row: &R) -> Result<ClockRecord, RowError> {
    let whole = |column| present(column, row.int(column)?);
    let clock = TurnClock {
        virtual_time: join(whole(2)?, whole(3)?),
        express_in: row.clamped(4, u32::MAX.into())? as u32,
        charge: from_charge(whole(5)?),
    };
    let of = clock_of(whole(0)?, present(1, row.str(1)?)?);
    Ok(ClockRecord { of, clock: Some(clock) })
}

/// Of the columns number, job, user, address, body, time.
pub fn notice<R: StoredRow>(row: &R) -> Result<OwedNotice, RowError> {
    let notice = NewNotice {
        job: row.optional_number(1)?.map(JobId),
        user: row.text(2)?,
        to: row.text(3)?,
        body: row.text(4)?,
        at: Time(row.number(5)?),
    };
    Ok(OwedNotice { number: row.number(0)?, notice })
}

/// Of the columns day, user, queue, cpu time, attempts, failures.
pub fn usage<R: StoredRow>(row: &R) -> Result<(UsageKey, UsageSum), RowError> {
    let key = UsageKey { day: row.number(0)?, user: row.text(1)?, queue: row.text(2)? };
    Ok((key, UsageSum { cpu_ms: row.number(3)?, tasks: row.number(4)?, failed: row.number(5)? }))
}

pub fn series<R: StoredRow>(row: &R) -> Result<SeriesRow, RowError> {
    Ok(SeriesRow {
        part: row.small(0)? as u8,
        step: row.number(1)?,
        data: present(2, row.blob(2)?)?.to_vec(),
    })
}
