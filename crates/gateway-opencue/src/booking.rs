//! Frames are booked in batches: one transaction takes them, checks every cap again and counts what they hold.
//!
//! The tables decide, and not the plan. Rules of [`book`]:
//!
//! - A frame is taken only as it was read (`int_version`), while it waits and has no proc.
//! - No host gives more than is idle. No subscription goes over its burst, no folder or job over its maximum, and no
//!   limit over its number of frames or hosts.
//! - Rows are locked in the order that all transactions have (`locks.rs` of the crate `cuebot`), so that any number of
//!   instances may book one show: jobs, frames, the counts of their layers and jobs, then subscriptions, folders,
//!   figures of jobs, hosts, limits and departments. The rows that all frames of a show count in come late: the
//!   schema's triggers do most of the work at the frames, and batches of other jobs go on beside it.
//! - A frame that another writer is changing is not waited for.
//! - A cap is read after its row is locked.
//! - A frame that does not pass is as it was, but for the host and the time of its last start; the others of its batch
//!   are booked.

mod release;
mod rows;

pub use release::release;
pub use rows::{BATCH_FRAMES_MAX, BookingError};

use rows::{
    DEPARTMENTS, FOLDERS, HOSTS, JOB_COUNTS, JOBS, JOBS_OF_FRAMES, LAYER_COUNTS, NOT_LAUNCHED, SUBSCRIPTIONS,
    column,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::{Client, Row, Transaction};
use windlass_cuebot::{Amounts, lock_jobs};

/// A frame that a plan gives to a host.
#[allow(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Booking {
    /// The proc's key, which the caller makes.
    pub proc_id: String,
    pub frame: String,
    /// The version of the frame as it was read.
    pub version: i32,
    pub host: String,
    pub amounts: Amounts,
}

/// What a row may still give: cores and gpus. `None` is without a cap.
type Left = (Option<i64>, Option<i64>);

const FRAMES: &str =
    "SELECT f.pk_frame, f.pk_layer, f.pk_job, j.pk_show, j.pk_folder, h.pk_alloc, f.int_exit_status::bigint,
        f.int_retries::bigint
    FROM unnest($1::text[], $2::int[], $3::text[]) AS w(frame, version, host)
    JOIN frame f ON f.pk_frame = w.frame AND f.str_state = 'WAITING' AND f.int_version = w.version
        AND f.int_depend_count = 0
    JOIN layer l ON l.pk_layer = f.pk_layer AND (l.ts_start_after IS NULL OR l.ts_start_after <= now())
    JOIN job j ON j.pk_job = f.pk_job AND j.str_state = 'PENDING' AND NOT j.b_paused
    JOIN host h ON h.pk_host = w.host AND h.str_lock_state = 'OPEN'
    WHERE NOT EXISTS (SELECT FROM proc p WHERE p.pk_frame = f.pk_frame)
    ORDER BY f.pk_frame FOR UPDATE OF f SKIP LOCKED";
/// Limits of layers. A layer takes one of each of its limits for each frame, or, of a limit of hosts, for each host
/// that runs some.
const LIMITS: &str = "SELECT ll.pk_layer, r.pk_limit_record, r.int_max_value::bigint, r.b_host_limit
    FROM layer_limit ll JOIN limit_record r USING (pk_limit_record)
    WHERE ll.pk_layer = ANY($1::text[]) AND r.int_max_value IS NOT NULL
    ORDER BY r.pk_limit_record FOR UPDATE OF r";
/// Read in a statement of its own, after the lock: an earlier one would not see what others booked meanwhile.
const LIMITED: &str = "SELECT ll.pk_limit_record, p.pk_host, count(*) FROM layer_limit ll
    JOIN proc p USING (pk_layer) WHERE ll.pk_limit_record = ANY($1::text[]) GROUP BY 1, 2";
/// Its statement sees what was committed before the counts were locked: a job may have been killed or paused meanwhile.
const TAKE: &str = "UPDATE frame f SET str_state = 'RUNNING', str_host = h.str_name, int_cores = w.cores,
        int_mem_reserved = w.mem, int_gpus = w.gpus, int_gpu_mem_reserved = w.gpu_mem, ts_updated = now(),
        ts_started = now(), ts_stopped = NULL, int_version = f.int_version + 1,
        int_retries = f.int_retries + (f.int_exit_status NOT IN (-1, 299, 301, 302, 399))::int
    FROM unnest($1::text[], $2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        AS w(frame, version, host, cores, mem, gpus, gpu_mem) JOIN host h ON h.pk_host = w.host
    WHERE f.pk_frame = w.frame AND f.str_state = 'WAITING' AND f.int_version = w.version AND f.int_depend_count = 0
        AND EXISTS (SELECT FROM job j WHERE j.pk_job = f.pk_job AND j.str_state = 'PENDING' AND NOT j.b_paused)
    RETURNING f.pk_frame";
const GIVE_UP: &str =
    "UPDATE frame SET str_state = 'WAITING', int_exit_status = $2, ts_started = NULL, ts_stopped = NULL
    WHERE pk_frame = ANY($1::text[])";
/// Restores a frame as it was before it was taken. The trigger of its history has seen the exit status above by then.
const RESTORE: &str =
    "UPDATE frame f SET int_exit_status = w.status, int_retries = w.retries, int_version = w.version
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::int[]) AS w(frame, status, retries, version)
    WHERE f.pk_frame = w.frame";
/// Every row of counters gets the sum of the procs that are inserted. A job without a maximum would be refused by the
/// trigger that compares its cores with the maximum, which looks only where that is unchanged: so it is moved, and
/// moved back in the same transaction, under the lock.
const HOLD: &str = "WITH w AS (
        SELECT w.*, f.pk_layer, f.pk_job, j.pk_show, j.pk_folder, j.pk_dept, h.pk_alloc
        FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
            AS w(proc, frame, host, cores, mem, gpus, gpu_mem)
        JOIN frame f ON f.pk_frame = w.frame JOIN job j ON j.pk_job = f.pk_job JOIN host h ON h.pk_host = w.host
    ), p AS (
        INSERT INTO proc (pk_proc, pk_host, pk_job, pk_show, pk_layer, pk_frame, int_cores_reserved,
            int_mem_reserved, int_mem_pre_reserved, int_mem_used, int_gpus_reserved, int_gpu_mem_reserved,
            int_gpu_mem_pre_reserved)
        SELECT proc, host, pk_job, pk_show, pk_layer, frame, cores, mem, mem, 0, gpus, gpu_mem, gpu_mem FROM w
    ), h AS (
        UPDATE host t SET int_cores_idle = int_cores_idle - s.cores, int_mem_idle = int_mem_idle - s.mem,
            int_gpus_idle = int_gpus_idle - s.gpus, int_gpu_mem_idle = int_gpu_mem_idle - s.gpu_mem
        FROM (SELECT host, sum(cores) AS cores, sum(mem) AS mem, sum(gpus) AS gpus, sum(gpu_mem) AS gpu_mem
            FROM w GROUP BY host) s WHERE t.pk_host = s.host
    ), s AS (
        UPDATE subscription t SET int_cores = int_cores + s.cores, int_gpus = int_gpus + s.gpus
        FROM (SELECT pk_show, pk_alloc, sum(cores) AS cores, sum(gpus) AS gpus FROM w GROUP BY 1, 2) s
        WHERE t.pk_show = s.pk_show AND t.pk_alloc = s.pk_alloc
    ), f AS (
        UPDATE folder_resource t SET int_cores = int_cores + s.cores, int_gpus = int_gpus + s.gpus
        FROM (SELECT pk_folder, sum(cores) AS cores, sum(gpus) AS gpus FROM w GROUP BY 1) s
        WHERE t.pk_folder = s.pk_folder
    ), l AS (
        UPDATE layer_resource t SET int_cores = int_cores + s.cores, int_gpus = int_gpus + s.gpus
        FROM (SELECT pk_layer, sum(cores) AS cores, sum(gpus) AS gpus FROM w GROUP BY 1) s
        WHERE t.pk_layer = s.pk_layer
    ), d AS (
        UPDATE point t SET int_cores = int_cores + s.cores, int_gpus = int_gpus + s.gpus
        FROM (SELECT pk_show, pk_dept, sum(cores) AS cores, sum(gpus) AS gpus FROM w GROUP BY 1, 2) s
        WHERE t.pk_show = s.pk_show AND t.pk_dept = s.pk_dept
    )
    UPDATE job_resource t SET int_cores = int_cores + s.cores, int_gpus = int_gpus + s.gpus,
        int_max_cores = int_max_cores - 1, int_max_gpus = int_max_gpus - 1
    FROM (SELECT pk_job, sum(cores) AS cores, sum(gpus) AS gpus FROM w GROUP BY 1) s WHERE t.pk_job = s.pk_job";
const MOVE_BACK: &str =
    "UPDATE job_resource SET int_max_cores = int_max_cores + 1, int_max_gpus = int_max_gpus + 1
    WHERE pk_job = ANY($1::text[])";

/// Books a batch. Returns the keys of the frames that run now, as far as the tables say.
///
/// # Errors
///
/// The batch is too large, or PostgreSQL failed. It answers a deadlock with another writer as such a failure.
pub async fn book(client: &mut Client, batch: &[Booking]) -> Result<Vec<String>, BookingError> {
    if batch.len() > BATCH_FRAMES_MAX {
        return Err(BookingError::TooMany(batch.len()));
    }
    let transaction = client.transaction().await?;
    let facts = facts_of(&transaction, batch).await?;
    lock_counts(&transaction, &facts).await?;
    let taken = take(&transaction, batch, &facts).await?;
    let granted = grant(&transaction, &taken, &facts).await?;
    if granted.len() < taken.len() {
        give_up(&transaction, &taken, &granted, &facts).await?;
    }
    if !granted.is_empty() {
        hold(&transaction, &granted, &facts).await?;
    }
    transaction.commit().await?;
    Ok(granted.into_iter().map(|booking| booking.frame.clone()).collect())
}

/// The rows that decide on a frame's caps.
struct Facts {
    layer: String,
    job: String,
    show: String,
    folder: String,
    alloc: String,
    exit_status: i64,
    retries: i64,
}

async fn facts_of(
    transaction: &Transaction<'_>,
    batch: &[Booking],
) -> Result<BTreeMap<String, Facts>, BookingError> {
    let frames = column(batch.iter(), |booking| booking.frame.clone());
    let versions = column(batch.iter(), |booking| booking.version);
    let hosts = column(batch.iter(), |booking| booking.host.clone());
    lock_jobs(transaction, JOBS_OF_FRAMES, &[&frames]).await?;
    let rows = transaction.query(FRAMES, &[&frames, &versions, &hosts]).await?;
    let facts = rows.iter().map(|row| {
        (
            row.get(0),
            Facts {
                layer: row.get(1),
                job: row.get(2),
                show: row.get(3),
                folder: row.get(4),
                alloc: row.get(5),
                exit_status: row.get(6),
                retries: row.get(7),
            },
        )
    });
    Ok(facts.collect())
}

/// Locks the rows in which triggers count the frames.
async fn lock_counts(
    transaction: &Transaction<'_>,
    facts: &BTreeMap<String, Facts>,
) -> Result<(), BookingError> {
    let layers = column(facts.values(), |facts| facts.layer.clone());
    let jobs = column(facts.values(), |facts| facts.job.clone());
    transaction.query(LAYER_COUNTS, &[&layers]).await?;
    transaction.query(JOB_COUNTS, &[&jobs]).await?;
    Ok(())
}

/// Locks the rows that the frames count in, and picks the bookings for which there is enough.
async fn grant<'a>(
    transaction: &Transaction<'_>,
    taken: &[&'a Booking],
    facts: &BTreeMap<String, Facts>,
) -> Result<Vec<&'a Booking>, BookingError> {
    let shows = column(facts.values(), |facts| facts.show.clone());
    let allocs = column(facts.values(), |facts| facts.alloc.clone());
    let folders = column(facts.values(), |facts| facts.folder.clone());
    let jobs = column(facts.values(), |facts| facts.job.clone());
    let hosts = column(taken.iter(), |booking| booking.host.clone());
    let rows = transaction.query(SUBSCRIPTIONS, &[&shows, &allocs]).await?;
    // With a burst of 0 the show gets nothing there. No writer sets one below 0.
    let mut bursts: BTreeMap<String, i64> =
        rows.iter().map(|row| (row.get(0), row.get::<_, i64>(2) - row.get::<_, i64>(1))).collect();
    let mut folders = left(&transaction.query(FOLDERS, &[&folders]).await?);
    let mut jobs = left(&transaction.query(JOBS, &[&jobs]).await?);
    let rows = transaction.query(HOSTS, &[&hosts]).await?;
    let mut idle: BTreeMap<String, [i64; 4]> =
        rows.iter().map(|row| (row.get(0), [row.get(1), row.get(2), row.get(3), row.get(4)])).collect();
    let mut limits = Limits::read(transaction, facts).await?;
    let mut granted = Vec::new();
    for &booking in taken {
        let Some(facts) = facts.get(&booking.frame) else { continue };
        let Amounts { cores, mem_kib, gpus, gpu_mem_kib } = booking.amounts;
        let needs = [cores, mem_kib, gpus, gpu_mem_kib];
        let burst = bursts.get_mut(&format!("{}/{}", facts.show, facts.alloc));
        let (folder, job) = (folders.get_mut(&facts.folder), jobs.get_mut(&facts.job));
        let (Some(burst), Some(folder), Some(job), Some(idle)) =
            (burst, folder, job, idle.get_mut(&booking.host))
        else {
            continue;
        };
        let is_sane = cores > 0 && needs.iter().all(|need| *need >= 0);
        let has_room = idle.iter().zip(needs).all(|(idle, need)| *idle >= need);
        let is_allowed = limits.allow(&facts.layer, &booking.host);
        if is_allowed
            && is_sane
            && has_room
            && *burst >= cores
            && allows(folder, booking.amounts)
            && allows(job, booking.amounts)
        {
            limits.take(&facts.layer, &booking.host);
            *burst -= cores;
            spend(folder, booking.amounts);
            spend(job, booking.amounts);
            idle.iter_mut().zip(needs).for_each(|(idle, need)| *idle -= need);
            granted.push(booking);
        }
    }
    Ok(granted)
}

/// A limit: how many there are, whether each host takes one, and the frames of each host that hold it.
struct Limit {
    max: i64,
    is_of_hosts: bool,
    held: BTreeMap<String, i64>,
}

/// The limits of a batch, and which of them each layer has.
#[derive(Default)]
struct Limits {
    limits: BTreeMap<String, Limit>,
    of_layers: BTreeMap<String, BTreeSet<String>>,
}

impl Limits {
    async fn read(
        transaction: &Transaction<'_>,
        facts: &BTreeMap<String, Facts>,
    ) -> Result<Limits, BookingError> {
        let mut all = Limits::default();
        let layers = column(facts.values(), |facts| facts.layer.clone());
        for row in transaction.query(LIMITS, &[&layers]).await? {
            let id: String = row.get(1);
            all.of_layers.entry(row.get(0)).or_default().insert(id.clone());
            let limit = Limit { max: row.get(2), is_of_hosts: row.get(3), held: BTreeMap::new() };
            all.limits.entry(id).or_insert(limit);
        }
        if all.limits.is_empty() {
            return Ok(all);
        }
        let ids: Vec<&String> = all.limits.keys().collect();
        for row in transaction.query(LIMITED, &[&ids]).await? {
            if let Some(limit) = all.limits.get_mut(&row.get::<_, String>(0)) {
                limit.held.insert(row.get(1), row.get(2));
            }
        }
        Ok(all)
    }

    fn allow(&self, layer: &str, host: &str) -> bool {
        let mut limits = self.of_layers.get(layer).into_iter().flatten().map(|id| &self.limits[id]);
        limits.all(|limit| match limit.is_of_hosts {
            true => limit.held.contains_key(host) || (limit.held.len() as i64) < limit.max,
            false => limit.held.values().sum::<i64>() < limit.max,
        })
    }

    fn take(&mut self, layer: &str, host: &str) {
        for id in self.of_layers.get(layer).into_iter().flatten() {
            if let Some(limit) = self.limits.get_mut(id) {
                *limit.held.entry(host.to_owned()).or_default() += 1;
            }
        }
    }
}

/// What rows of key, cores, their maximum, gpus, their maximum may still give. Below 1 a maximum is none.
fn left(rows: &[Row]) -> BTreeMap<String, Left> {
    let less = |used: i64, max: i64| (max > 0).then_some(max - used);
    rows.iter()
        .map(|row| (row.get(0), (less(row.get(1), row.get(2)), less(row.get(3), row.get(4)))))
        .collect()
}

fn allows(left: &Left, needs: Amounts) -> bool {
    left.0.is_none_or(|cores| cores >= needs.cores)
        && (needs.gpus == 0 || left.1.is_none_or(|gpus| gpus >= needs.gpus))
}

fn spend(left: &mut Left, needs: Amounts) {
    left.0 = left.0.map(|cores| cores - needs.cores);
    left.1 = left.1.map(|gpus| gpus - needs.gpus);
}

/// Sets the frames to running. Another writer may have changed one since it was read.
async fn take<'a>(
    transaction: &Transaction<'_>,
    batch: &'a [Booking],
    facts: &BTreeMap<String, Facts>,
) -> Result<Vec<&'a Booking>, BookingError> {
    let locked: Vec<&Booking> = batch.iter().filter(|booking| facts.contains_key(&booking.frame)).collect();
    let frames = column(locked.iter(), |booking| booking.frame.clone());
    let versions = column(locked.iter(), |booking| booking.version);
    let hosts = column(locked.iter(), |booking| booking.host.clone());
    let [cores, mem, gpus, gpu_mem] = amounts(&locked);
    let rows = transaction.query(TAKE, &[&frames, &versions, &hosts, &cores, &mem, &gpus, &gpu_mem]).await?;
    let taken: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    Ok(locked.into_iter().filter(|booking| taken.contains(&booking.frame)).collect())
}

/// Lets frames that were taken and do not pass wait again.
async fn give_up(
    transaction: &Transaction<'_>,
    taken: &[&Booking],
    granted: &[&Booking],
    facts: &BTreeMap<String, Facts>,
) -> Result<(), BookingError> {
    let granted: BTreeSet<&str> = granted.iter().map(|booking| booking.frame.as_str()).collect();
    let refused = taken.iter().filter(|booking| !granted.contains(booking.frame.as_str()));
    let refused: Vec<(&Booking, &Facts)> =
        refused.filter_map(|booking| Some((*booking, facts.get(&booking.frame)?))).collect();
    let frames = column(refused.iter(), |(booking, _)| booking.frame.clone());
    let versions = column(refused.iter(), |(booking, _)| booking.version);
    let statuses = column(refused.iter(), |(_, facts)| facts.exit_status);
    let retries = column(refused.iter(), |(_, facts)| facts.retries);
    transaction.execute(GIVE_UP, &[&frames, &NOT_LAUNCHED]).await?;
    transaction.execute(RESTORE, &[&frames, &statuses, &retries, &versions]).await?;
    Ok(())
}

async fn hold(
    transaction: &Transaction<'_>,
    taken: &[&Booking],
    facts: &BTreeMap<String, Facts>,
) -> Result<(), BookingError> {
    let procs = column(taken.iter(), |booking| booking.proc_id.clone());
    let frames = column(taken.iter(), |booking| booking.frame.clone());
    let hosts = column(taken.iter(), |booking| booking.host.clone());
    let [cores, mem, gpus, gpu_mem] = amounts(taken);
    transaction.query(DEPARTMENTS, &[&frames]).await?;
    transaction.execute(HOLD, &[&procs, &frames, &hosts, &cores, &mem, &gpus, &gpu_mem]).await?;
    let jobs: Vec<String> =
        taken.iter().filter_map(|booking| facts.get(&booking.frame)).map(|facts| facts.job.clone()).collect();
    transaction.execute(MOVE_BACK, &[&jobs]).await?;
    Ok(())
}

fn amounts(bookings: &[&Booking]) -> [Vec<i64>; 4] {
    [
        column(bookings.iter(), |booking| booking.amounts.cores),
        column(bookings.iter(), |booking| booking.amounts.mem_kib),
        column(bookings.iter(), |booking| booking.amounts.gpus),
        column(bookings.iter(), |booking| booking.amounts.gpu_mem_kib),
    ]
}
