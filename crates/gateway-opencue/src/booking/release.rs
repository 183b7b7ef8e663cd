//! A frame that was booked and does not run waits again, and its proc gives back what it held.

use super::rows::{
    BATCH_FRAMES_MAX, BookingError, FOLDERS, HOSTS, JOB_COUNTS, JOBS, LAYER_COUNTS, NOT_LAUNCHED,
    SUBSCRIPTIONS, column,
};
use tokio_postgres::Client;
use windlass_cuebot::RELEASE_PROCS;

const PROCS: &str = "SELECT p.pk_show, h.pk_alloc, j.pk_folder, p.pk_job, p.pk_host
    FROM proc p JOIN host h USING (pk_host) JOIN job j ON j.pk_job = p.pk_job WHERE p.pk_proc = ANY($1::text[])";
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
    // The order in which bookings lock, so that neither waits for the other in a circle.
    let frames = transaction.query(FRAMES, &[&procs]).await?;
    let text = |of: usize| column(frames.iter(), |row| row.get::<_, String>(of));
    transaction.query(LAYER_COUNTS, &[&text(1)]).await?;
    transaction.query(JOB_COUNTS, &[&text(2)]).await?;
    let held = transaction.query(PROCS, &[&procs]).await?;
    let text = |of: usize| column(held.iter(), |row| row.get::<_, String>(of));
    let frames = transaction.query(RETURN, &[&procs, &NOT_LAUNCHED]).await?;
    transaction.query(SUBSCRIPTIONS, &[&text(0), &text(1)]).await?;
    transaction.query(FOLDERS, &[&text(2)]).await?;
    transaction.query(JOBS, &[&text(3)]).await?;
    transaction.query(HOSTS, &[&text(4)]).await?;
    transaction.execute(&format!("{RELEASE_PROCS} SELECT FROM gone"), &[&procs]).await?;
    transaction.commit().await?;
    Ok(column(frames.iter(), |row| row.get(0)))
}
