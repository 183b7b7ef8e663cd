//! A frame that was booked and does not run waits again, and its proc gives back what it held.

use super::rows::{BATCH_FRAMES_MAX, BookingError, JOB_COUNTS, LAYER_COUNTS, NOT_LAUNCHED, column};
use tokio_postgres::Client;
use windlass_cuebot::{RELEASE_PROCS, lock_jobs};

const JOBS: &str = "SELECT pk_job FROM proc WHERE pk_proc = ANY($1::text[])";
const FRAMES: &str = "SELECT pk_frame, pk_layer, pk_job FROM frame
    WHERE pk_frame IN (SELECT pk_frame FROM proc WHERE pk_proc = ANY($1::text[])) ORDER BY pk_frame FOR UPDATE";
const RETURN: &str = "UPDATE frame t SET str_state = 'WAITING', int_exit_status = $2, ts_updated = now(),
        ts_started = NULL, ts_stopped = NULL, int_version = int_version + 1
    FROM proc p WHERE p.pk_proc = ANY($1::text[]) AND t.pk_frame = p.pk_frame AND t.str_state = 'RUNNING'
    RETURNING t.pk_frame";

/// Takes bookings back whose frames are known not to run: RQD refused them, or was told to kill them and answered.
/// Returns the frames that wait again. A proc that is gone already gives nothing back a second time.
pub async fn release(client: &mut Client, procs: &[String]) -> Result<Vec<String>, BookingError> {
    if procs.len() > BATCH_FRAMES_MAX {
        return Err(BookingError::TooMany(procs.len()));
    }
    let transaction = client.transaction().await?;
    // The order of `locks.rs` of the crate `cuebot`, which the release of the procs keeps.
    lock_jobs(&transaction, JOBS, &[&procs]).await?;
    let frames = transaction.query(FRAMES, &[&procs]).await?;
    let text = |of: usize| column(frames.iter(), |row| row.get::<_, String>(of));
    transaction.query(LAYER_COUNTS, &[&text(1)]).await?;
    transaction.query(JOB_COUNTS, &[&text(2)]).await?;
    let frames = transaction.query(RETURN, &[&procs, &NOT_LAUNCHED]).await?;
    transaction.execute(&format!("{RELEASE_PROCS} SELECT FROM gone"), &[&procs]).await?;
    transaction.commit().await?;
    Ok(column(frames.iter(), |row| row.get(0)))
}
