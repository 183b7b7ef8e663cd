//! Bookings of a pass over several connections at a time. A lane is one of these connections, with the frames that
//! are booked over it batch by batch.
//!
//! Most of a booking is the work of the schema's triggers: they count each frame in rows of its layer and its job, and
//! PostgreSQL does that in one process for each connection. So jobs are divided among lanes, and no job is in two of
//! them: they would wait for each other's rows.

use super::launcher::Launcher;
use crate::booking::{BATCH_FRAMES_MAX, Booking, BookingError, book};
use crate::rqd::RunFrame;
use deadpool_postgres::Object;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_postgres::Client;
use windlass_cuebot::{Attempts, is_conflict};

/// Connections over which a pass books. It was measured with two, on two cores.
pub const LANES_MAX: usize = 2;

/// A booking, and the launch that follows if it holds.
#[allow(missing_docs, reason = "a field without a comment is what its name says")]
pub struct Planned {
    pub booking: Booking,
    pub run: RunFrame,
    pub show: String,
    /// Since when the frame is ready to run.
    pub ready_since: Instant,
}

/// A batch, and the frames of it that were booked.
pub struct BookedBatch {
    /// All bookings of the batch.
    pub batch: Vec<Planned>,
    /// The keys of the booked frames. An error where it is not known which these are.
    pub booked: Result<BTreeSet<String>, BookingError>,
}

/// Divides bookings among lanes, whole jobs in the order in which they come, each to the lane with fewest frames. Inside
/// a lane the frames of a job follow each other, so that few batches count in its rows.
pub fn divide(planned: Vec<Planned>, lanes_max: usize) -> Vec<Vec<Planned>> {
    let mut jobs: Vec<Vec<Planned>> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for planned in planned {
        let place = *places.entry(planned.run.job_id.clone()).or_insert(jobs.len());
        if place == jobs.len() {
            jobs.push(Vec::new());
        }
        jobs[place].push(planned);
    }
    let mut lanes: Vec<Vec<Planned>> = (0..lanes_max.min(jobs.len())).map(|_| Vec::new()).collect();
    for job in jobs {
        if let Some(lane) = lanes.iter_mut().min_by_key(|lane| lane.len()) {
            lane.extend(job);
        }
    }
    lanes
}

/// Books the frames of a lane batch by batch, and tells of each batch. It ends at the first that failed, and returns
/// true then.
pub async fn book_lane(
    client: &mut Client,
    mut planned: Vec<Planned>,
    launcher: &Launcher,
    outcomes: &mpsc::UnboundedSender<BookedBatch>,
) -> bool {
    while !planned.is_empty() {
        let rest = planned.split_off(planned.len().min(BATCH_FRAMES_MAX));
        let batch = std::mem::replace(&mut planned, rest);
        let booked = book_batch(client, &batch, launcher).await;
        let has_failed = booked.is_err();
        // The receiver is gone only if the pass was given up.
        _ = outcomes.send(BookedBatch { batch, booked });
        if has_failed {
            return true;
        }
    }
    false
}

/// Gives a connection back to its pool, or closes it where a statement failed: what it locked is free then.
pub fn give_back(client: Object, has_failed: bool) {
    if has_failed {
        drop(Object::take(client));
    }
}

async fn book_batch(
    client: &mut Client,
    batch: &[Planned],
    launcher: &Launcher,
) -> Result<BTreeSet<String>, BookingError> {
    let bookings: Vec<Booking> = batch.iter().map(|planned| planned.booking.clone()).collect();
    match book_again(client, &bookings).await {
        Ok(booked) => Ok(booked.into_iter().collect()),
        // PostgreSQL refused it for one of them: the others are booked without that.
        Err(BookingError::Database(error)) if is_refusal(&error) => {
            tracing::warn!(?error, "a batch was refused; its frames are booked one by one");
            book_singly(client, batch, launcher).await
        }
        Err(error) => Err(error),
    }
}

/// A layer whose frame PostgreSQL refuses is left out for a while.
async fn book_singly(
    client: &mut Client,
    batch: &[Planned],
    launcher: &Launcher,
) -> Result<BTreeSet<String>, BookingError> {
    let mut booked = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for Planned { booking, run, .. } in batch {
        if refused.contains(&run.layer_id) {
            continue;
        }
        match book_again(client, std::slice::from_ref(booking)).await {
            Ok(frames) => booked.extend(frames),
            Err(BookingError::Database(error)) if is_refusal(&error) => {
                tracing::error!(
                    ?error,
                    frame = booking.frame,
                    layer = run.layer_id,
                    job = run.job_name,
                    "a frame cannot be booked; its layer is left out for a while"
                );
                let said = error.as_db_error().map_or("", |error| error.message());
                launcher.faults().unbookable(&run.layer_id, said, Instant::now());
                refused.insert(run.layer_id.clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(booked)
}

/// Books a batch, again where PostgreSQL ended it for waiting in a circle with another writer.
async fn book_again(client: &mut Client, bookings: &[Booking]) -> Result<Vec<String>, BookingError> {
    let mut attempts = Attempts::default();
    loop {
        match book(client, bookings).await {
            Err(BookingError::Database(error)) if is_conflict(&error) => {
                if !attempts.again().await {
                    return Err(error.into());
                }
            }
            done => return done,
        }
    }
}

/// True if PostgreSQL answered that it does not take what it was told.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    error.code().is_some() && !is_conflict(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_cuebot::Amounts;

    fn planned(job: u32, frame: u32) -> Planned {
        let booking = Booking {
            proc_id: String::new(),
            frame: format!("{job}-{frame}"),
            version: 0,
            host: String::new(),
            amounts: Amounts { cores: 100, mem_kib: 1, ..Amounts::default() },
        };
        let run = RunFrame { job_id: job.to_string(), ..RunFrame::default() };
        Planned { booking, run, show: String::new(), ready_since: Instant::now() }
    }

    #[test]
    fn a_job_is_in_one_lane_and_lanes_are_even() {
        // Frames of the jobs come in turn, as shares of a queue do.
        let sizes = [5, 1, 4, 2];
        let turns = (0..5).flat_map(|frame| (0..4).map(move |job| (job, frame)));
        let all: Vec<Planned> = turns
            .filter(|(job, frame)| *frame < sizes[*job as usize])
            .map(|(job, frame)| planned(job, frame))
            .collect();
        let lanes = divide(all, 2);
        let frames: Vec<Vec<&str>> = lanes
            .iter()
            .map(|lane| lane.iter().map(|planned| planned.booking.frame.as_str()).collect())
            .collect();
        assert_eq!(
            frames,
            [
                ["0-0", "0-1", "0-2", "0-3", "0-4", "3-0", "3-1"].to_vec(),
                ["1-0", "2-0", "2-1", "2-2", "2-3"].to_vec(),
            ]
        );
        assert_eq!(divide(vec![planned(1, 1), planned(1, 2)], 2).len(), 1, "one job has one lane");
        assert!(divide(Vec::new(), 2).is_empty());
    }
}
