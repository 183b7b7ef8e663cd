//! The order in which frames of a layer are dispatched.
//!
//! - Only frames that the range names change places. With first and last they go beyond all others of their layer.
//!   Otherwise they exchange the places that they have.
//! - Each layer of a job is ordered separately.

use crate::cuebot::Cuebot;
use crate::frames::chunk_starts;
use crate::generated::job::*;
use crate::locks::lock_jobs;
use crate::routes::Routes;
use crate::trouble::CallError;

pub(super) fn routes(routes: Routes) -> Routes {
    changes(routes)
}

/// The frames of the range, with their layer and the turn of their number.
const CHOSEN: &str = "
WITH chosen AS (
    SELECT frame.pk_frame, frame.pk_layer, frame.int_dispatch_order AS place, wanted.turn
      FROM unnest($2::bigint[]) WITH ORDINALITY AS wanted (number, turn)
      JOIN frame ON frame.int_number = wanted.number JOIN job ON job.pk_job = frame.pk_job
     WHERE job.str_state = 'PENDING' AND ";
/// Before all others of their layer, in the order of the range.
const FIRST: &str = "), edge AS (
    SELECT pk_layer, min(int_dispatch_order) AS least FROM frame
     WHERE pk_layer IN (SELECT pk_layer FROM chosen) GROUP BY 1
)
UPDATE frame SET int_dispatch_order = edge.least - cardinality($2::bigint[]) + chosen.turn - 1
  FROM chosen JOIN edge USING (pk_layer) WHERE frame.pk_frame = chosen.pk_frame";
/// After all others of their layer, in the order of the range.
const LAST: &str = "), edge AS (
    SELECT pk_layer, max(int_dispatch_order) AS most FROM frame
     WHERE pk_layer IN (SELECT pk_layer FROM chosen) GROUP BY 1
)
UPDATE frame SET int_dispatch_order = edge.most + chosen.turn
  FROM chosen JOIN edge USING (pk_layer) WHERE frame.pk_frame = chosen.pk_frame";
/// The first of them gets the place of the last.
const REVERSE: &str = "), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY pk_layer ORDER BY place, pk_frame) AS up,
           row_number() OVER (PARTITION BY pk_layer ORDER BY place DESC, pk_frame DESC) AS down FROM chosen
)
UPDATE frame SET int_dispatch_order = other.place
  FROM ranked own JOIN ranked other ON other.pk_layer = own.pk_layer AND other.up = own.down
 WHERE frame.pk_frame = own.pk_frame";
/// Gives the places in the order of the numbers.
const BY_TURN: &str = "), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY pk_layer ORDER BY place, pk_frame) AS rank,
           row_number() OVER (PARTITION BY pk_layer ORDER BY turn) AS wanted FROM chosen
)
UPDATE frame SET int_dispatch_order = other.place
  FROM ranked own JOIN ranked other ON other.pk_layer = own.pk_layer AND other.rank = own.wanted
 WHERE frame.pk_frame = own.pk_frame";

/// Frames of the job or the layer with the key `$1`.
const OF_JOB: &str = "frame.pk_job = $1";
const OF_LAYER: &str = "frame.pk_layer = $1";

/// The numbers of a range, each once.
fn numbers(range: &str) -> Result<Vec<i64>, CallError> {
    Ok(chunk_starts(range, 1)?.into_iter().map(i64::from).collect())
}

/// Every `step`th number goes first, then those halfway between, until none is left.
fn staggered(numbers: &[i64], step: i32) -> Result<Vec<i64>, CallError> {
    let mut step = match usize::try_from(step) {
        Ok(step) if step > 0 => step,
        _ => return Err(CallError::Value(format!("{step} is not a valid step; give 1 or more"))),
    };
    let (mut order, mut seen) = (Vec::new(), vec![false; numbers.len()]);
    while step > 0 {
        for index in (0..numbers.len()).step_by(step) {
            if !std::mem::replace(&mut seen[index], true) {
                order.push(numbers[index]);
            }
        }
        step /= 2;
    }
    Ok(order)
}

async fn order(
    cuebot: &Cuebot,
    (which, id): (&'static str, &str),
    numbers: Vec<i64>,
    places: &'static str,
) -> Result<(), CallError> {
    let statement = format!("{CHOSEN}{which}{places}");
    let jobs = format!("SELECT frame.pk_job FROM frame WHERE {which}");
    cuebot
        .transact((statement, jobs, id, numbers), |tx, (statement, jobs, id, numbers)| {
            Box::pin(async move {
                lock_jobs(tx, jobs, &[id]).await?;
                tx.execute(statement.as_str(), &[id, numbers]).await?;
                Ok(())
            })
        })
        .await
}

fn places(order: i32) -> &'static str {
    match Order::try_from(order) {
        Ok(Order::Last) => LAST,
        Ok(Order::Reverse) => REVERSE,
        _ => FIRST,
    }
}

changes! { |cuebot, ask|
    // Frames of a job go to the front or the end of their layers, or are turned round.
    "/job.JobInterface/ReorderFrames": JobReorderFramesRequest =>
        order(&cuebot, (OF_JOB, key!(ask.job)?), numbers(&ask.range)?, places(ask.order)).await;
    "/job.LayerInterface/ReorderFrames": LayerReorderFramesRequest =>
        order(&cuebot, (OF_LAYER, key!(ask.layer)?), numbers(&ask.range)?, places(ask.order)).await;
    // Coarse frames go before those between them.
    "/job.JobInterface/StaggerFrames": JobStaggerFramesRequest => {
        let numbers = staggered(&numbers(&ask.range)?, ask.stagger)?;
        order(&cuebot, (OF_JOB, key!(ask.job)?), numbers, BY_TURN).await
    };
    "/job.LayerInterface/StaggerFrames": LayerStaggerFramesRequest => {
        let numbers = staggered(&numbers(&ask.range)?, ask.stagger)?;
        order(&cuebot, (OF_LAYER, key!(ask.layer)?), numbers, BY_TURN).await
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_numbers_go_first_and_none_is_lost() {
        let numbers = numbers("1-8,3,20").unwrap();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 20]);
        assert_eq!(staggered(&numbers, 4).unwrap(), [1, 5, 20, 3, 7, 2, 4, 6, 8]);
        assert_eq!(staggered(&numbers, 100).unwrap().len(), numbers.len());
        assert!(staggered(&numbers, 0).is_err());
    }
}
