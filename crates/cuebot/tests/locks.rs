//! The order in which transactions lock rows, on a real PostgreSQL. Bookings lock the counts of layers first, and then
//! the figures of the show.

use crate::farm::host::{Host, host, run};
use crate::farm::{Farm, farm};
use std::time::{Duration, Instant};
use windlass_cuebot::lock_jobs;

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

/// The rows that all frames of a show count in, in the order in which the end of a frame takes them.
const LATE_ROWS: [&str; 6] =
    ["subscription", "folder_resource", "job_resource", "host", "point", "show_stats"];

async fn until_one_waits(farm: &Farm) {
    let began = Instant::now();
    while farm.value(WAITING).await != "1" {
        assert!(began.elapsed() < WAIT_TIME, "nothing waits for a lock");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_end_of_a_frame_takes_the_rows_of_its_show_in_one_order() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 6)], 3).await;
    farm.host("h1").await;
    let rqd = Host::connect(&farm).await;
    for (number, held) in LATE_ROWS.iter().enumerate() {
        let frame = format!("a-{}", number + 1);
        farm.book(&frame, "h1", &frame).await;
        let mut other = farm.pool.get().await.unwrap();
        let other = other.transaction().await.unwrap();
        other.execute(&format!("SELECT FROM {held} FOR UPDATE"), &[]).await.unwrap();
        let end = {
            let (rqd, frame) = (rqd.clone(), frame.clone());
            tokio::spawn(async move { rqd.ended(&frame, &frame, 0).await })
        };
        until_one_waits(&farm).await;
        for late in &LATE_ROWS[number + 1..] {
            let lock = format!("SELECT FROM {late} FOR UPDATE NOWAIT");
            other.execute(&lock, &[]).await.unwrap_or_else(|_| panic!("{late} is taken before {held}"));
        }
        other.commit().await.unwrap();
        end.await.unwrap();
        assert_eq!(farm.state(&frame).await, "SUCCEEDED");
    }
    farm.audit().await;
}

#[tokio::test]
async fn what_changes_a_job_takes_no_row_before_the_lock_of_the_job() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 2)], 3).await;
    farm.host("h1").await;
    let rqd = Host::connect(&farm).await;
    for frame in ["a-1", "a-2"] {
        farm.book(frame, "h1", frame).await;
    }
    let mut other = farm.pool.get().await.unwrap();
    let other = other.transaction().await.unwrap();
    lock_jobs(&other, "SELECT pk_job FROM job", &[]).await.unwrap();
    let (cuebot, told) = (farm.cuebot.clone(), rqd.clone());
    let end = tokio::spawn(async move { told.ended("a-1", "a-1", 0).await });
    until_one_waits(&farm).await;
    let rows =
        "SELECT FROM frame, proc, layer_stat, job_stat, layer, job, host, subscription FOR UPDATE NOWAIT";
    other.execute(rows, &[]).await.unwrap();
    other.commit().await.unwrap();
    end.await.unwrap();
    cuebot.clear("a-2", 399).await.unwrap();
    assert_eq!(
        (farm.state("a-1").await.as_str(), farm.state("a-2").await.as_str()),
        ("SUCCEEDED", "WAITING")
    );
    farm.audit().await;
}

#[tokio::test]
async fn a_report_of_a_host_waits_for_no_frame_and_no_proc() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 2)], 3).await;
    let rqd = Host::connect(&farm).await;
    rqd.boot("h1").await;
    for frame in ["a-1", "a-2"] {
        farm.book(frame, "h1", frame).await;
    }
    let mut other = farm.pool.get().await.unwrap();
    let other = other.transaction().await.unwrap();
    other.execute("SELECT FROM frame WHERE pk_frame = 'a-1' FOR UPDATE", &[]).await.unwrap();
    other.execute("SELECT FROM proc WHERE pk_proc = 'a-2' FOR UPDATE", &[]).await.unwrap();
    rqd.status(host("h1"), vec![run("a-1", "a-1"), run("a-2", "a-2")]).await.unwrap();
    other.commit().await.unwrap();
    let used = "SELECT string_agg(f.int_mem_used || ' ' || p.int_mem_used, ', ' ORDER BY pk_frame)
        FROM frame f JOIN proc p USING (pk_frame)";
    assert_eq!(farm.value(used).await, "0 1000, 1000 0", "what is locked is left out");
    rqd.status(host("h1"), vec![run("a-1", "a-1"), run("a-2", "a-2")]).await.unwrap();
    assert_eq!(farm.value(used).await, "1000 1000, 1000 1000");
    farm.audit().await;
}
