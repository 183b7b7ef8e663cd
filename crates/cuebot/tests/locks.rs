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

/// Transactions that wait for the lock of the job `K`.
const WAITING_FOR_K: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND objid = (hashtext('K') & 4095)::oid
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// While the end waits for its own job, a client eats all other frames of the layer.
#[tokio::test]
async fn the_last_end_of_a_layer_waits_for_a_job_that_waits_for_it_before_it_takes_a_row() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 80)], 3).await;
    farm.run(
        "INSERT INTO job (pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot,
                str_user, str_state, int_uid)
         VALUES ('K', 'FOLDER', 'SHOW', 'FAC', 'DEPT', 'k', 'k', 's', 'u', 'PENDING', 1000);
         INSERT INTO layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type, int_mem_min)
         VALUES ('b', 'K', 'b', 'true', '1', 'Render', 262144);
         INSERT INTO frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order,
                int_depend_count) VALUES ('b-1', 'b', 'K', '0001-b', 'DEPEND', 1, 1, 1);
         UPDATE layer_stat SET int_depend_count = 1, int_total_count = 1 WHERE pk_layer = 'b';
         UPDATE job_stat SET int_depend_count = 1 WHERE pk_job = 'K';
         INSERT INTO depend (pk_depend, pk_job_depend_on, pk_layer_depend_on, pk_job_depend_er, pk_layer_depend_er,
                str_type, str_signature) VALUES ('d', 'J', 'a', 'K', 'b', 'LAYER_ON_LAYER', 'd')",
    )
    .await;
    farm.host("h1").await;
    let rqd = Host::connect(&farm).await;
    farm.book("a-1", "h1", "a-1").await;
    let (mut of_j, mut of_k) = (farm.pool.get().await.unwrap(), farm.pool.get().await.unwrap());
    let (of_j, of_k) = (of_j.transaction().await.unwrap(), of_k.transaction().await.unwrap());
    lock_jobs(&of_j, "SELECT 'J'::text", &[]).await.unwrap();
    lock_jobs(&of_k, "SELECT 'K'::text", &[]).await.unwrap();
    let end = tokio::spawn(async move { rqd.ended("a-1", "a-1", 0).await });
    until_one_waits(&farm).await;
    let eat = "UPDATE frame SET str_state = 'EATEN' WHERE pk_layer = 'a' AND pk_frame <> 'a-1'";
    of_j.execute(eat, &[]).await.unwrap();
    of_j.commit().await.unwrap();
    let began = Instant::now();
    while farm.value(WAITING_FOR_K).await != "1" {
        assert!(began.elapsed() < WAIT_TIME && !end.is_finished(), "the end does not wait for the job K");
        tokio::task::yield_now().await;
    }
    let rows = "SELECT FROM frame, layer_stat, job_stat, depend, proc, host FOR UPDATE NOWAIT";
    of_k.execute(rows, &[]).await.unwrap();
    of_k.commit().await.unwrap();
    end.await.unwrap();
    assert_eq!(
        (farm.state("a-1").await.as_str(), farm.state("b-1").await.as_str()),
        ("SUCCEEDED", "WAITING")
    );
    farm.audit().await;
}
