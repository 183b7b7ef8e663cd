//! Dependencies: frames wait in the state DEPEND while their count of open dependencies is above 0.
//!
//! - A dependency is closed once. Its frames are counted down in the same statement, so that a crash or a second
//!   completion cannot count one down twice.
//! - A trigger of the schema lets a frame wait for a host when its count reaches 0.

use super::trouble::CallError;
use tokio_postgres::Transaction;

/// What somebody waited for, and now is done.
#[derive(Clone, Copy)]
pub(crate) enum Done<'a> {
    /// A frame.
    Frame(&'a str),
    /// One frame of a layer, which is enough for dependencies on any frame.
    AnyFrame(&'a str),
    /// All frames of a layer.
    Layer(&'a str),
    /// All frames of a job.
    Job(&'a str),
}

/// Closes the dependencies on what is done. Returns the number of frames that were counted down.
pub(crate) async fn satisfy(tx: &Transaction<'_>, done: Done<'_>) -> Result<u64, CallError> {
    let (which, id) = match done {
        Done::Frame(id) => ("pk_frame_depend_on = $1", id),
        Done::AnyFrame(id) => ("b_any AND pk_frame_depend_on IS NULL AND pk_layer_depend_on = $1", id),
        Done::Layer(id) => ("pk_frame_depend_on IS NULL AND pk_layer_depend_on = $1", id),
        Done::Job(id) => {
            ("pk_frame_depend_on IS NULL AND pk_layer_depend_on IS NULL AND pk_job_depend_on = $1", id)
        }
    };
    let statement = format!(
        "WITH closed AS (
             UPDATE depend SET b_active = false, ts_satisfied = current_timestamp, str_signature = pk_depend
              WHERE b_active AND NOT b_composite AND {which}
             RETURNING pk_job_depend_er AS job, pk_layer_depend_er AS layer, pk_frame_depend_er AS frame
         ), freed AS (
             SELECT frame.pk_frame, count(*) AS times FROM closed JOIN frame ON frame.pk_job = closed.job
                AND (closed.layer IS NULL OR frame.pk_layer = closed.layer)
                AND (closed.frame IS NULL OR frame.pk_frame = closed.frame)
              GROUP BY 1
         )
         UPDATE frame SET int_depend_count = greatest(int_depend_count - freed.times, 0)
           FROM freed WHERE frame.pk_frame = freed.pk_frame"
    );
    Ok(tx.execute(&statement, &[&id]).await?)
}
