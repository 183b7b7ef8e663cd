//! Several instances book the same show: no frame twice, no cap exceeded, and what is counted is what runs.

use crate::postgres::{self, Cluster};
use tokio_postgres::{Client, NoTls};
use windlass_cuebot::Amounts;
use windlass_gateway_opencue::booking::{BATCH_FRAMES_MAX, Booking, BookingError, book, release};

/// 20 hosts of 4 cores and 120 frames of one core, in two jobs of one folder.
const FARM: &str = "
INSERT INTO facility(pk_facility, str_name) VALUES ('fac', 'f');
INSERT INTO dept(pk_dept, str_name) VALUES ('dept', 'd');
INSERT INTO alloc(pk_alloc, str_name, str_tag, pk_facility) VALUES ('alloc', 'f.general', 'general', 'fac');
INSERT INTO show(pk_show, str_name, b_scheduler_managed) VALUES ('show', 's', true);
INSERT INTO subscription(pk_subscription, pk_alloc, pk_show, int_size, int_burst)
    VALUES ('sub', 'alloc', 'show', 10000, 100000);
INSERT INTO folder(pk_folder, pk_show, str_name, pk_dept) VALUES ('folder', 'show', 's', 'dept');
INSERT INTO point(pk_point, pk_dept, pk_show) VALUES ('point', 'dept', 'show');
INSERT INTO host(pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle)
    SELECT 'host' || n, 'alloc', 'host' || n, 'OPEN', 400, 400, 8000000, 8000000 FROM generate_series(0, 19) n;
INSERT INTO job(pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot, str_user,
    str_state) SELECT 'job' || n, 'folder', 'show', 'fac', 'dept', 'j' || n, 'j' || n, 'x', 'u', 'PENDING'
    FROM generate_series(0, 1) n;
INSERT INTO layer(pk_layer, pk_job, str_name, str_cmd, str_range, str_type)
    SELECT 'layer' || n, 'job' || n, 'l', 'true', '1-60', 'Render' FROM generate_series(0, 1) n;
INSERT INTO frame(pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    SELECT 'frame' || n, 'layer' || n % 2, 'job' || n % 2, to_char(n, 'FM0000') || '-l', 'WAITING', n, n
    FROM generate_series(0, 119) n;
UPDATE layer_stat SET int_waiting_count = 60, int_total_count = 60;
UPDATE job_stat SET int_waiting_count = 60";

async fn connect(address: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn booking(instance: usize, frame: usize, host: usize) -> Booking {
    Booking {
        proc_id: format!("proc{instance}-{frame}"),
        frame: format!("frame{frame}"),
        version: 0,
        host: format!("host{host}"),
        amounts: Amounts { cores: 100, mem_kib: 1_000_000, ..Amounts::default() },
    }
}

/// Books all frames by several instances at a time, each with another plan. Returns how many were booked.
async fn race(address: &str, instances: usize) -> usize {
    let passes = (0..instances).map(|instance| {
        let address = address.to_owned();
        tokio::spawn(async move {
            let mut client = connect(&address).await;
            let mut booked = 0;
            for from in 0..12 {
                let first = (from + instance * 3) % 12 * 10;
                let batch: Vec<Booking> = (first..first + 10)
                    .map(|frame| booking(instance, frame, (frame * 7 + instance * 5) % 20))
                    .collect();
                booked += book(&mut client, &batch).await.unwrap().len();
            }
            booked
        })
    });
    let passes: Vec<_> = passes.collect();
    let mut booked = 0;
    for pass in passes {
        booked += pass.await.unwrap();
    }
    booked
}

/// What the tables count, and what a recount of the procs gives.
const AUDIT: &str = "SELECT
    (SELECT count(*) FROM frame WHERE str_state = 'RUNNING') = (SELECT count(*) FROM proc)
    AND NOT EXISTS (SELECT FROM frame f WHERE str_state = 'RUNNING'
        AND (SELECT count(*) FROM proc p WHERE p.pk_frame = f.pk_frame) <> 1)
    AND NOT EXISTS (SELECT FROM host h WHERE int_cores_idle < 0 OR int_cores - int_cores_idle <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_host = h.pk_host))
    AND NOT EXISTS (SELECT FROM host h WHERE int_mem - int_mem_idle <>
        (SELECT coalesce(sum(int_mem_reserved), 0) FROM proc p WHERE p.pk_host = h.pk_host))
    AND NOT EXISTS (SELECT FROM job_resource j WHERE int_cores <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_job = j.pk_job))
    AND NOT EXISTS (SELECT FROM layer_resource l WHERE int_cores <>
        (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc p WHERE p.pk_layer = l.pk_layer))
    AND NOT EXISTS (SELECT FROM layer_stat l WHERE int_running_count <>
        (SELECT count(*) FROM proc p WHERE p.pk_layer = l.pk_layer))
    AND (SELECT int_cores FROM subscription) = (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc)
    AND (SELECT int_cores FROM folder_resource) = (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc)
    AND (SELECT int_cores FROM point) = (SELECT coalesce(sum(int_cores_reserved), 0) FROM proc)";

/// A database with a farm of which nothing is booked.
fn new_farm() -> Option<(&'static Cluster, String)> {
    let cluster = postgres::cluster()?;
    let name = cluster.database_name();
    cluster.sql(&name, FARM);
    Some((cluster, name))
}

/// Books with these settings by four instances and audits. Returns the frames that run.
fn booked_under(settings: &str) -> Option<(usize, String)> {
    let (cluster, name) = new_farm()?;
    cluster.sql(&name, settings);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let booked = runtime.block_on(race(&cluster.address(&name), 4));
    assert_eq!(cluster.sql(&name, AUDIT), "t", "what is counted is what runs");
    assert_eq!(cluster.sql(&name, "SELECT count(*) FROM proc"), booked.to_string());
    Some((booked, name))
}

#[test]
fn four_instances_fill_the_hosts_and_no_frame_runs_twice() {
    let Some((booked, name)) = booked_under("UPDATE job_resource SET int_max_cores = 100000") else { return };
    let idle = postgres::cluster().unwrap().sql(&name, "SELECT sum(int_cores_idle) FROM host");
    assert!((60..=80).contains(&booked), "{booked} of 80 places");
    assert_eq!(idle, (8000 - booked * 100).to_string());
}

#[test]
fn no_subscription_goes_over_its_burst() {
    let Some((booked, _)) = booked_under("UPDATE subscription SET int_burst = 1750") else { return };
    assert_eq!(booked, 17);
}

#[test]
fn no_folder_and_no_job_goes_over_its_maximum() {
    let folder =
        "UPDATE folder_resource SET int_max_cores = 2300; UPDATE job_resource SET int_max_cores = 9000";
    let Some((booked, _)) = booked_under(folder) else { return };
    assert_eq!(booked, 23);
    let Some((booked, _)) = booked_under("UPDATE job_resource SET int_max_cores = 900") else { return };
    assert_eq!(booked, 18, "nine for each of two jobs");
}

#[test]
fn a_job_whose_maximum_is_0_or_less_has_none_and_keeps_it() {
    for max in ["0", "-1"] {
        let Some((booked, name)) = booked_under(&format!("UPDATE job_resource SET int_max_cores = {max}"))
        else {
            return;
        };
        assert!(booked >= 60, "{booked}");
        let kept = postgres::cluster().unwrap().sql(&name, "SELECT DISTINCT int_max_cores FROM job_resource");
        assert_eq!(kept, max);
    }
}

#[test]
fn what_changed_since_it_was_read_is_left_alone() {
    let Some((cluster, name)) = new_farm() else { return };
    cluster.sql(&name, "UPDATE frame SET int_version = 1 WHERE pk_frame = 'frame0'");
    cluster.sql(&name, "UPDATE job SET b_paused = true WHERE pk_job = 'job1'");
    cluster.sql(&name, "UPDATE host SET str_lock_state = 'LOCKED' WHERE pk_host = 'host4'");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = connect(&cluster.address(&name)).await;
        let batch: Vec<Booking> = (0..5).map(|n| booking(0, n, n)).collect();
        // Another version, a paused job, a locked host, and one that is as it was.
        assert_eq!(book(&mut client, &batch).await.unwrap(), ["frame2"]);
        let many: Vec<Booking> = (0..=BATCH_FRAMES_MAX).map(|n| booking(0, n, 0)).collect();
        assert!(matches!(book(&mut client, &many).await, Err(BookingError::TooMany(_))));
    });
    assert_eq!(cluster.sql(&name, AUDIT), "t");
}

#[test]
fn a_frame_that_a_cap_refuses_is_as_it_was() {
    let Some((cluster, name)) = new_farm() else { return };
    cluster.sql(&name, "UPDATE subscription SET int_burst = 100");
    cluster.sql(&name, "UPDATE frame SET int_exit_status = 1, int_retries = 2 WHERE pk_frame = 'frame1'");
    let read = "SELECT str_state, int_exit_status, int_retries, int_version, ts_started IS NULL FROM frame
        WHERE pk_frame = 'frame1'";
    let before = cluster.sql(&name, read);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = connect(&cluster.address(&name)).await;
        let batch = [booking(0, 0, 0), booking(0, 1, 1)];
        assert_eq!(book(&mut client, &batch).await.unwrap(), ["frame0"], "one core is left");
    });
    assert_eq!(cluster.sql(&name, read), before);
    assert_eq!(cluster.sql(&name, "SELECT pk_frame FROM frame_history"), "frame0");
    assert_eq!(cluster.sql(&name, AUDIT), "t");
}

#[test]
fn a_frame_that_another_writer_changes_is_not_waited_for() {
    let Some((cluster, name)) = new_farm() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, mut other) =
            (connect(&cluster.address(&name)).await, connect(&cluster.address(&name)).await);
        let held = other.transaction().await.unwrap();
        held.query("SELECT 1 FROM frame WHERE pk_frame = 'frame0' FOR UPDATE", &[]).await.unwrap();
        let batch = [booking(0, 0, 0), booking(0, 1, 1)];
        assert_eq!(book(&mut client, &batch).await.unwrap(), ["frame1"]);
        held.rollback().await.unwrap();
        assert_eq!(book(&mut client, &batch).await.unwrap(), ["frame0"]);
    });
    assert_eq!(cluster.sql(&name, AUDIT), "t");
}

#[test]
fn no_limit_goes_over_its_number_of_frames_or_of_hosts() {
    let limit = |hosts: bool| {
        format!(
            "INSERT INTO limit_record(pk_limit_record, str_name, int_max_value, b_host_limit)
                 VALUES ('lic', 'nuke', 7, {hosts});
             INSERT INTO layer_limit(pk_layer_limit, pk_layer, pk_limit_record)
                 SELECT pk_layer, pk_layer, 'lic' FROM layer;
             UPDATE job_resource SET int_max_cores = 9000"
        )
    };
    let Some((booked, _)) = booked_under(&limit(false)) else { return };
    assert_eq!(booked, 7);
    let Some((booked, name)) = booked_under(&limit(true)) else { return };
    let hosts = postgres::cluster().unwrap().sql(&name, "SELECT count(DISTINCT pk_host) FROM proc");
    assert_eq!(hosts, "7");
    assert!((14..=28).contains(&booked), "a host that holds it takes more frames: {booked}");
}

#[test]
fn what_is_released_waits_again_and_gives_back_once() {
    let Some((booked, name)) = booked_under("UPDATE job_resource SET int_max_cores = 9000") else { return };
    let cluster = postgres::cluster().unwrap();
    let procs = cluster.sql(&name, "SELECT pk_proc FROM proc ORDER BY pk_proc");
    let procs: Vec<String> = procs.lines().map(str::to_owned).collect();
    let (some, rest) = procs.split_at(10);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let address = cluster.address(&name);
        let mut client = connect(&address).await;
        assert_eq!(release(&mut client, some).await.unwrap().len(), 10);
        assert_eq!(release(&mut client, some).await.unwrap().len(), 0, "they are gone");
    });
    assert_eq!(cluster.sql(&name, AUDIT), "t");
    assert_eq!(cluster.sql(&name, "SELECT count(*) FROM frame_history"), (booked - 10).to_string());
    // Two at once, each with all that is left.
    runtime.block_on(async {
        let both = (0..2).map(|_| {
            let (address, rest) = (cluster.address(&name), rest.to_vec());
            tokio::spawn(async move { release(&mut connect(&address).await, &rest).await.unwrap().len() })
        });
        let both: Vec<_> = both.collect();
        let mut released = 0;
        for one in both {
            released += one.await.unwrap();
        }
        assert_eq!(released, rest.len());
    });
    assert_eq!(cluster.sql(&name, AUDIT), "t");
    assert_eq!(cluster.sql(&name, "SELECT sum(int_cores_idle) FROM host"), "8000");
    assert_eq!(cluster.sql(&name, "SELECT sum(int_waiting_count) FROM job_stat"), "120");
}
