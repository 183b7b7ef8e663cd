//! The order in which transactions lock rows, on a real PostgreSQL. Bookings lock the counts of layers first, and then
//! the figures of the show.

use crate::farm::farm;
use crate::farm::host::Host;
use std::time::{Duration, Instant};

/// Connections that wait for a lock.
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
const WAIT_TIME: Duration = Duration::from_secs(30);

/// If it held one, it and the booking would wait for each other.
#[tokio::test]
async fn what_ends_a_frame_holds_no_figure_of_the_show_while_it_waits_for_the_counts_of_the_layer() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 2)], 3).await;
    farm.host("h1").await;
    let rqd = Host::connect(&farm).await;
    for (frame, is_reported) in [("a-1", false), ("a-2", true)] {
        farm.book(frame, "h1", frame).await;
        let mut booking = farm.pool.get().await.unwrap();
        let booking = booking.transaction().await.unwrap();
        booking.execute("SELECT FROM layer_stat FOR UPDATE", &[]).await.unwrap();
        let (cuebot, rqd) = (farm.cuebot.clone(), rqd.clone());
        let end = tokio::spawn(async move {
            match is_reported {
                true => rqd.ended(frame, frame, 0).await,
                false => cuebot.clear(frame, 399).await.unwrap(),
            }
        });
        let began = Instant::now();
        while farm.value(WAITING).await != "1" {
            assert!(began.elapsed() < WAIT_TIME, "{frame} waits for no lock");
        }
        let figures = "SELECT FROM subscription, folder_resource, job_resource, host, layer_resource, point
            FOR UPDATE NOWAIT";
        booking.execute(figures, &[]).await.unwrap();
        booking.commit().await.unwrap();
        end.await.unwrap();
        assert_eq!(farm.state(frame).await, if is_reported { "SUCCEEDED" } else { "WAITING" });
    }
    farm.audit().await;
}
