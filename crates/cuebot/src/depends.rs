//! Dependencies: frames wait in the state DEPEND while their count of open dependencies is above 0.
//!
//! - A dependency is closed once. Its frames are counted down in the same statement, so that a crash or a second
//!   completion cannot count one down twice.
//! - A trigger of the schema lets a frame wait for a host when its count reaches 0.

use crate::frames;
use crate::generated::depend::DependType;
use crate::locks::{lock_jobs, try_lock_jobs};
use crate::spec::{DependEnd, DependSpec};
use crate::trouble::CallError;
use deadpool_postgres::Transaction;
use std::collections::{HashMap, HashSet};
use tokio_postgres::types::ToSql;

/// What a dependency waits for, once it is done.
#[derive(Clone, Copy)]
pub(crate) enum Done<'a> {
    /// One frame, and with it dependencies on any frame of its layer.
    Frame { frame: &'a str, layer: &'a str },
    /// All frames of a layer.
    Layer(&'a str),
    /// All frames of a job.
    Job(&'a str),
}

/// Closes the dependencies on what is done.
pub(crate) async fn satisfy(tx: &Transaction<'_>, done: Done<'_>) -> Result<(), CallError> {
    let (which, ids) = match done {
        Done::Frame { frame, layer } => (
            "(pk_frame_depend_on = $1 OR b_any AND pk_frame_depend_on IS NULL AND pk_layer_depend_on = $2)",
            vec![frame, layer],
        ),
        Done::Layer(id) => ("pk_frame_depend_on IS NULL AND pk_layer_depend_on = $1", vec![id]),
        Done::Job(id) => {
            ("pk_frame_depend_on IS NULL AND pk_layer_depend_on IS NULL AND pk_job_depend_on = $1", vec![id])
        }
    };
    let values: Vec<&(dyn ToSql + Sync)> = ids.iter().map(|id| id as &(dyn ToSql + Sync)).collect();
    let which = format!("NOT b_composite AND {which}");
    // The end of a frame does not lock the jobs that wait for a whole layer or job of which many frames are open when
    // it comes. Others may have ended most of them while it waited for the lock of its own job.
    if matches!(done, Done::Layer(_) | Done::Job(_)) {
        let jobs = format!("SELECT pk_job_depend_er FROM depend WHERE b_active AND {which}");
        if !try_lock_jobs(tx, &jobs, &values).await? {
            return Err(CallError::Crossed);
        }
    }
    close(tx, &which, &values).await
}

/// Closes the dependencies that `which` picks, and counts their frames down. `which` is part of the statement and never
/// what a client sent. The jobs that wait must be locked.
///
/// The frames of each kind of dependency are found by the index of that kind. One condition for all kinds would read all
/// frames of the job for each one that ends.
pub(crate) async fn close(
    tx: &Transaction<'_>,
    which: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<(), CallError> {
    let statement = format!(
        "WITH closed AS (
             UPDATE depend SET b_active = false, ts_satisfied = current_timestamp, str_signature = pk_depend
              WHERE b_active AND ({which})
             RETURNING pk_job_depend_er AS job, pk_layer_depend_er AS layer, pk_frame_depend_er AS frame, b_composite
         )
         SELECT CASE WHEN frame IS NOT NULL THEN 'pk_frame' WHEN layer IS NOT NULL THEN 'pk_layer' ELSE 'pk_job' END AS key,
                coalesce(frame, layer, job) AS id, count(*)
           FROM closed WHERE NOT b_composite GROUP BY 1, 2"
    );
    let closed = tx.query(&tx.prepare_cached(&statement).await?, values).await?;
    for key in ["pk_frame", "pk_layer", "pk_job"] {
        let of_key = || closed.iter().filter(|row| row.get::<_, &str>(0) == key);
        let ids: Vec<&str> = of_key().map(|row| row.get(1)).collect();
        if ids.is_empty() {
            continue;
        }
        let times: Vec<i64> = of_key().map(|row| row.get(2)).collect();
        let statement = format!(
            "UPDATE frame SET int_depend_count = greatest(int_depend_count - own.times, 0)
               FROM unnest($1::text[], $2::bigint[]) AS own (id, times) WHERE frame.{key} = own.id"
        );
        tx.execute(&tx.prepare_cached(&statement).await?, &[&ids, &times]).await?;
    }
    Ok(())
}

/// Opens a dependency again that was closed. False where it is open, or stands for those between pairs of frames.
pub(crate) async fn open(tx: &Transaction<'_>, depend: &str) -> Result<bool, CallError> {
    let jobs =
        "SELECT unnest(ARRAY[pk_job_depend_er, pk_job_depend_on]::text[]) FROM depend WHERE pk_depend = $1";
    lock_jobs(tx, jobs, &[&depend]).await?;
    let statement = format!(
        "WITH opened AS (
             UPDATE depend SET b_active = true, ts_satisfied = NULL
              WHERE pk_depend = $1 AND NOT b_active AND NOT b_composite
             RETURNING pk_job_depend_er AS job, pk_layer_depend_er AS layer, pk_frame_depend_er AS frame
         ), counted AS (
             UPDATE frame SET int_depend_count = int_depend_count + 1 FROM opened
              WHERE frame.pk_job = opened.job AND (opened.layer IS NULL OR frame.pk_layer = opened.layer)
                AND (opened.frame IS NULL OR frame.pk_frame = opened.frame) AND {STILL_TO_RUN}
         )
         SELECT 1 FROM opened"
    );
    Ok(tx.query_opt(&statement, &[&depend]).await?.is_some())
}

/// Frames that a new dependency holds up. What is done stays done, and what runs is not stopped.
const STILL_TO_RUN: &str = "frame.str_state NOT IN ('RUNNING', 'SUCCEEDED', 'EATEN')";

/// One side of a dependency, found in the tables.
pub(crate) struct End {
    pub job: String,
    /// Its layer, of a layer or a frame.
    pub layer: Option<String>,
    pub frame: Option<String>,
}

/// Adds a dependency of a new job, whose frames are still in the state SETUP.
pub(crate) async fn add(
    tx: &Transaction<'_>,
    spec: &DependSpec,
    launched: &HashMap<&str, String>,
) -> Result<(), CallError> {
    let Some(job) = launched.get(spec.from.job.as_str()) else {
        let why = format!("job '{}' of a dependency is not in the job spec", spec.from.job);
        return Err(CallError::Value(why));
    };
    let from = find(tx, &spec.from, Some(job)).await?;
    let on = find(tx, &spec.on, launched.get(spec.on.job.as_str())).await?;
    make(tx, &from, &on, (spec.kind, spec.any_frame)).await?;
    Ok(())
}

/// Adds a dependency between what is in the tables. Returns its id; `None` where the same one is there and open. Both
/// jobs must be locked, unless no other transaction sees them: so frames that end at this moment either see the new
/// dependency or are seen as done.
pub(crate) async fn make(
    tx: &Transaction<'_>,
    from: &End,
    on: &End,
    (kind, any_frame): (DependType, bool),
) -> Result<Option<String>, CallError> {
    let name = kind.as_str_name();
    let composite = matches!(kind, DependType::FrameByFrame | DependType::PreviousFrame);
    let target = if from.job == on.job { "INTERNAL" } else { "EXTERNAL" };
    // The signature of OpenCue keeps two dependencies from being one; it is as opaque as an id.
    let made = tx
        .query_opt(
            "INSERT INTO depend (pk_depend, pk_job_depend_er, pk_layer_depend_er, pk_frame_depend_er, pk_job_depend_on,
                    pk_layer_depend_on, pk_frame_depend_on, str_type, b_any, str_target, b_composite, str_signature)
             VALUES (gen_random_uuid()::text, $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8, $9,
                    $10,
                    md5(concat_ws('/', $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text)))
             ON CONFLICT DO NOTHING RETURNING pk_depend",
            &[
                &from.job,
                &from.layer,
                &from.frame,
                &on.job,
                &on.layer,
                &on.frame,
                &name,
                &any_frame,
                &target,
                &composite,
            ],
        )
        .await?;
    let Some(made) = made else { return Ok(None) };
    let depend: String = made.get(0);
    if composite {
        add_pairs(tx, &depend, from, on, kind, target).await?;
        return Ok(Some(depend));
    }
    let done = tx.query_one(IS_DONE, &[&on.job, &on.layer, &on.frame, &any_frame]).await?;
    if done.get(0) {
        let closed = "UPDATE depend SET b_active = false, str_signature = pk_depend WHERE pk_depend = $1";
        tx.execute(closed, &[&depend]).await?;
        return Ok(Some(depend));
    }
    let count = format!(
        "UPDATE frame SET int_depend_count = int_depend_count + 1 WHERE pk_job = $1 AND {STILL_TO_RUN}
            AND ($2::text IS NULL OR pk_layer = $2::text) AND ($3::text IS NULL OR pk_frame = $3::text)"
    );
    tx.execute(&count, &[&from.job, &from.layer, &from.frame]).await?;
    Ok(Some(depend))
}

/// Whether nothing of a job, layer or frame is left to wait for.
const IS_DONE: &str = "
SELECT coalesce(CASE WHEN $4::boolean THEN bool_or(str_state = 'SUCCEEDED')
                     ELSE bool_and(str_state IN ('SUCCEEDED', 'EATEN')) END, true)
  FROM frame WHERE pk_job = $1
   AND ($2::text IS NULL OR pk_layer = $2::text) AND ($3::text IS NULL OR pk_frame = $3::text)";

async fn find(tx: &Transaction<'_>, end: &DependEnd, launched: Option<&String>) -> Result<End, CallError> {
    let missing = |what, name: &str| CallError::Missing { what, name: name.to_owned() };
    let job = match launched {
        Some(job) => job.clone(),
        None => tx
            .query_opt("SELECT pk_job FROM job WHERE str_visible_name = $1", &[&end.job])
            .await?
            .ok_or_else(|| missing("pending job", &end.job))?
            .get(0),
    };
    let mut found = End { job, layer: None, frame: None };
    if let Some(frame) = &end.frame {
        let row = tx
            .query_opt(
                "SELECT pk_layer, pk_frame FROM frame WHERE pk_job = $1 AND str_name = $2",
                &[&found.job, frame],
            )
            .await?
            .ok_or_else(|| missing("frame", frame))?;
        (found.layer, found.frame) = (Some(row.get(0)), Some(row.get(1)));
    } else if let Some(layer) = &end.layer {
        let row = tx
            .query_opt("SELECT pk_layer FROM layer WHERE pk_job = $1 AND str_name = $2", &[&found.job, layer])
            .await?
            .ok_or_else(|| missing("layer", layer))?;
        found.layer = Some(row.get(0));
    }
    Ok(found)
}

/// The frames of a layer by the numbers that each renders.
async fn chunks(tx: &Transaction<'_>, layer: &str) -> Result<Vec<(String, Vec<i32>)>, CallError> {
    let row =
        tx.query_one("SELECT str_range, int_chunk_size FROM layer WHERE pk_layer = $1", &[&layer]).await?;
    let (range, chunk): (String, i64) = (row.get(0), row.get(1));
    let numbers = frames::chunk_starts(&range, 1)?;
    let ids = tx.query("SELECT int_number::int, pk_frame FROM frame WHERE pk_layer = $1", &[&layer]).await?;
    let ids: HashMap<i32, String> = ids.iter().map(|row| (row.get(0), row.get(1))).collect();
    let chunks = numbers.chunks(chunk.max(1) as usize);
    Ok(chunks.filter_map(|chunk| Some((ids.get(chunk.first()?)?.clone(), chunk.to_vec()))).collect())
}

/// Adds one dependency for each pair of frames. A frame whose numbers the other layer does not have waits for none.
async fn add_pairs(
    tx: &Transaction<'_>,
    parent: &str,
    from: &End,
    on: &End,
    kind: DependType,
    target: &str,
) -> Result<(), CallError> {
    let (Some(from_layer), Some(on_layer)) = (&from.layer, &on.layer) else {
        return Err(CallError::Value("a dependency between frames names no layer".to_owned()));
    };
    let (waiting, others) = (chunks(tx, from_layer).await?, chunks(tx, on_layer).await?);
    let mut by_number = HashMap::new();
    for (frame, numbers) in &others {
        by_number.extend(numbers.iter().map(|number| (*number, frame)));
    }
    let (mut from_frames, mut on_frames, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for (index, (frame, numbers)) in waiting.iter().enumerate() {
        let numbers = match kind {
            DependType::PreviousFrame if index == 0 => continue,
            DependType::PreviousFrame => &waiting[index - 1].1,
            _ => numbers,
        };
        for other in numbers.iter().filter_map(|number| by_number.get(number)) {
            if seen.insert((frame, *other)) {
                from_frames.push(frame.as_str());
                on_frames.push(other.as_str());
            }
        }
    }
    let statement = format!(
        "WITH made AS (
             INSERT INTO depend (pk_depend, pk_parent, pk_job_depend_er, pk_layer_depend_er, pk_frame_depend_er,
                    pk_job_depend_on, pk_layer_depend_on, pk_frame_depend_on, str_type, str_target, str_signature)
             SELECT gen_random_uuid()::text, $1::text, $2::text, $3::text, pair.waits, $4::text, $5::text, pair.awaited,
                    'FRAME_ON_FRAME', $6::text, md5($1::text || pair.waits || pair.awaited)
               FROM unnest($7::text[], $8::text[]) AS pair (waits, awaited)
               JOIN frame ON frame.pk_frame = pair.awaited AND frame.str_state NOT IN ('SUCCEEDED', 'EATEN')
             RETURNING pk_frame_depend_er AS waits
         )
         UPDATE frame SET int_depend_count = int_depend_count + own.times
           FROM (SELECT waits, count(*) AS times FROM made GROUP BY waits) AS own
          WHERE pk_frame = own.waits AND {STILL_TO_RUN}"
    );
    let (from_job, on_job) = (&from.job, &on.job);
    tx.execute(
        &statement,
        &[&parent, from_job, from_layer, on_job, on_layer, &target, &from_frames, &on_frames],
    )
    .await?;
    Ok(())
}
