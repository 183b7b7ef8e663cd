//! What hosts report, on a real PostgreSQL: hosts, endings of frames, and the races between them.

use crate::farm::host::{Host, host};
use crate::farm::{Farm, Unreached, farm};
use proptest::prelude::*;
use prost::Message;
use std::sync::Arc;
use tonic::{Code, Status};
use windlass_cuebot::generated::report::{
    FrameCompleteReport, HostReport, RenderHost, RqdReportStatusRequest, RqdReportStatusResponse,
    RunningFrameInfo,
};
use windlass_cuebot::verdict::{Ending, Terms, Verdict, decide};
use windlass_cuebot::{Cuebot, Settings, served_paths};

const SERVICE: &str = "/report.RqdReportInterface";

#[tokio::test]
async fn a_host_is_registered_once() {
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    let both = (rqd.clone(), rqd.clone());
    tokio::join!(both.0.boot("h1"), both.1.boot("h1"));
    let query = "SELECT str_name || ' ' || int_cores || ' ' || int_mem_idle || ' ' || str_tags FROM host";
    assert_eq!(farm.value(query).await, "h1 400 7864320 general linux h1");
    farm.audit().await;
}

#[tokio::test]
async fn a_status_keeps_what_an_operator_decided_and_says_what_frames_use() {
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    rqd.boot("h1").await;
    farm.job(&[("a", 1)], 0).await;
    farm.book("a-1", "h1", "p1").await;
    farm.run("UPDATE host_stat SET str_state = 'REPAIR'").await;
    let run = RunningFrameInfo {
        resource_id: "p1".to_owned(),
        frame_id: "a-1".to_owned(),
        rss: 500,
        max_rss: 900,
        ..RunningFrameInfo::default()
    };
    let stranger = RunningFrameInfo { resource_id: "p9".to_owned(), ..run.clone() };
    let locked = RenderHost { nimby_locked: true, num_procs: 8, ..host("h1") };
    rqd.status(locked, vec![run, stranger]).await.unwrap();
    assert_eq!(farm.value("SELECT int_mem_used || ' ' || int_mem_max_used FROM frame").await, "500 900");
    assert_eq!(farm.value("SELECT str_state FROM host_stat").await, "REPAIR");
    assert_eq!(farm.value("SELECT str_lock_state FROM host").await, "NIMBY_LOCKED");
    assert_eq!(farm.value("SELECT int_cores FROM host").await, "400", "a proc holds some of the old size");
    let hostile = RenderHost { name: "../etc".to_owned(), ..host("h1") };
    assert!(rqd.status(hostile, Vec::new()).await.unwrap_err().message().contains("not a valid host name"));
    farm.audit().await;
}

#[tokio::test]
async fn rqd_reports_nothing_of_a_windlass_worker() {
    let Some(farm) = farm().await else { return };
    farm.host("box1").await;
    let hosts = Arc::new(Unreached { workers: &["box1"] });
    let cuebot = Cuebot::new(farm.pool.clone(), Settings::default(), hosts);
    let farm = Farm { cuebot: Arc::new(cuebot), ..farm };
    let rqd = Host::connect(&farm).await;
    farm.job(&[("a", 1)], 1).await;
    farm.book("a-1", "box1", "p1").await;
    let frame = RunningFrameInfo {
        resource_id: "p1".to_owned(),
        frame_id: "a-1".to_owned(),
        max_rss: 9,
        ..RunningFrameInfo::default()
    };
    let reports = [
        rqd.try_boot("box1").await,
        rqd.status(host("box1"), vec![frame]).await,
        rqd.try_ended("box1", ("a-1", "p1"), 0).await,
        rqd.try_ended("h1", ("a-1", "p1"), 0).await,
    ];
    for report in reports {
        let refused = report.unwrap_err();
        assert!(refused.message().contains("'box1' is a Windlass worker"), "{refused:?}");
    }
    assert_eq!(
        served_paths().iter().filter(|path| path.starts_with(SERVICE)).count(),
        3,
        "each is asked here"
    );
    let left = "SELECT str_state || ' ' || int_mem_max_used || ' ' || (SELECT count(*) FROM proc) FROM frame";
    assert_eq!(farm.value(left).await, "RUNNING 0 1");
    farm.audit().await;
    // Other hosts are heard.
    rqd.boot("h1").await;
    rqd.status(host("h1"), Vec::new()).await.unwrap();
}

#[tokio::test]
async fn callers_from_other_networks_are_refused() {
    let Some(farm) = farm().await else { return };
    let open_to = |network: &str| {
        let networks = vec![network.parse().unwrap()];
        let hosts = Arc::new(Unreached { workers: &[] });
        let cuebot = Cuebot::new(farm.pool.clone(), Settings::default(), hosts).for_clients(Some(networks));
        Farm { pool: farm.pool.clone(), config: farm.config.clone(), cuebot: Arc::new(cuebot) }
    };
    let refused = Host::connect(&open_to("10.0.0.0/8")).await.try_boot("h1").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("windlass.cuebot.clients"), "{refused:?}");
    assert_eq!(farm.value("SELECT count(*) FROM host").await, "0");
    Host::connect(&open_to("127.0.0.0/8")).await.boot("h1").await;
    assert_eq!(farm.value("SELECT count(*) FROM host").await, "1");
}

#[tokio::test]
async fn an_ending_counts_once_and_only_from_the_proc_that_holds_the_frame() {
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    rqd.boot("h1").await;
    farm.job(&[("a", 2)], 1).await;
    farm.book("a-1", "h1", "p1").await;
    rqd.ended("a-1", "p9", 0).await;
    rqd.ended("a-9", "p9", 0).await;
    rqd.ended("a-2", "p1", 0).await;
    assert_eq!(farm.state("a-1").await, "RUNNING", "another proc's report says nothing of it");
    assert_eq!(farm.state("a-2").await, "WAITING");
    let twice = (rqd.clone(), rqd.clone());
    tokio::join!(twice.0.ended("a-1", "p1", 0), twice.1.ended("a-1", "p1", 0));
    assert_eq!(farm.state("a-1").await, "SUCCEEDED");
    assert_eq!(farm.value("SELECT int_frame_success_count FROM job_usage").await, "1");
    farm.audit().await;

    // A client retried the frame while it ran: its proc holds nothing that runs, and ends with its report.
    farm.book("a-2", "h1", "p2").await;
    farm.run("UPDATE frame SET str_state = 'WAITING' WHERE pk_frame = 'a-2'").await;
    rqd.ended("a-2", "p2", 1).await;
    assert_eq!(farm.state("a-2").await, "WAITING");
    assert_eq!(farm.value("SELECT count(*) FROM proc").await, "0");
    farm.audit().await;

    // The proc is gone, and no other has the frame: the ending still counts.
    farm.book("a-2", "h1", "p3").await;
    farm.run("DELETE FROM proc").await;
    rqd.ended("a-2", "p3", 0).await;
    assert_eq!(farm.state("a-2").await, "SUCCEEDED");
    assert_eq!(farm.value("SELECT str_state || coalesce(str_visible_name, '') FROM job").await, "FINISHED");
}

#[tokio::test]
async fn a_failing_frame_retries_as_its_job_says_and_one_without_memory_gets_more() {
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    rqd.boot("h1").await;
    farm.job(&[("a", 1), ("b", 1)], 1).await;
    farm.book("a-1", "h1", "p1").await;
    rqd.ended("a-1", "p1", 1).await;
    assert_eq!(farm.state("a-1").await, "WAITING");
    farm.book("a-1", "h1", "p2").await;
    rqd.ended("a-1", "p2", 1).await;
    assert_eq!(farm.state("a-1").await, "DEAD");
    for (proc, memory_kib) in [("p3", 2_359_296), ("p4", 4_456_448)] {
        farm.book("b-1", "h1", proc).await;
        rqd.ended("b-1", proc, 33).await;
        assert_eq!(farm.state("b-1").await, "WAITING");
        let asked = farm.value("SELECT int_mem_min FROM layer WHERE pk_layer = 'b'").await;
        assert_eq!(asked, memory_kib.to_string());
    }
    assert_eq!(farm.value("SELECT str_state FROM job").await, "PENDING", "a dead frame keeps its job");
    farm.audit().await;
}

#[tokio::test]
async fn frames_that_end_together_free_what_waits_for_frame_layer_and_job_exactly_once() {
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    rqd.boot("h1").await;
    farm.job(&[("a", 4), ("b", 4), ("c", 1)], 0).await;
    farm.run(
        "INSERT INTO depend (pk_depend, pk_job_depend_on, pk_layer_depend_on, pk_frame_depend_on, pk_job_depend_er,
                pk_layer_depend_er, pk_frame_depend_er, str_type, str_signature)
         SELECT 'f' || n, 'J', 'a', 'a-' || n, 'J', 'b', 'b-' || n, 'FRAME_ON_FRAME', 'f' || n
           FROM generate_series(1, 4) AS n
         UNION ALL SELECT 'lb', 'J', 'b', NULL, 'J', 'c', NULL, 'LAYER_ON_LAYER', 'lb'
         UNION ALL SELECT 'la', 'J', 'a', NULL, 'J', 'c', NULL, 'LAYER_ON_LAYER', 'la';
         UPDATE frame SET int_depend_count = 1, str_state = 'DEPEND' WHERE pk_layer = 'b';
         UPDATE frame SET int_depend_count = 2, str_state = 'DEPEND' WHERE pk_layer = 'c'",
    )
    .await;
    for n in 1..=4 {
        farm.book(&format!("a-{n}"), "h1", &format!("p{n}")).await;
    }
    let end = async |layer: &str, proc: &str| {
        let ends = (1..=4).map(|n| {
            let (rqd, frame, proc) = (rqd.clone(), format!("{layer}-{n}"), format!("{proc}{n}"));
            tokio::spawn(async move { rqd.ended(&frame, &proc, 0).await })
        });
        for end in ends.collect::<Vec<_>>() {
            end.await.unwrap();
        }
    };
    end("a", "p").await;
    farm.audit().await;
    let states = "SELECT string_agg(str_state, ' ' ORDER BY pk_frame) FROM frame WHERE pk_layer <> 'a'";
    assert_eq!(farm.value(states).await, "WAITING WAITING WAITING WAITING DEPEND");
    for n in 1..=4 {
        farm.book(&format!("b-{n}"), "h1", &format!("q{n}")).await;
    }
    end("b", "q").await;
    assert_eq!(farm.state("c-1").await, "WAITING");
    farm.book("c-1", "h1", "r1").await;
    rqd.ended("c-1", "r1", 0).await;
    assert_eq!(farm.value("SELECT str_state FROM job").await, "FINISHED");
    farm.audit().await;
}

#[tokio::test]
async fn a_call_that_is_not_served_says_its_name() {
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    let refused: Result<RqdReportStatusResponse, Status> =
        rqd.call("job.JobInterface/RunFilters", RqdReportStatusRequest::default()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    assert!(
        refused.message().contains("does not serve job.JobInterface/RunFilters"),
        "{}",
        refused.message()
    );
}

#[test]
fn what_becomes_of_a_frame_follows_the_rules() {
    let one = Terms { retries_max: 1, ..Terms::default() };
    let spent = Terms { retries: 1, ..one };
    let failed = Ending { exit_status: 1, ..Ending::default() };
    assert_eq!(decide(&Ending::default(), &spent), Verdict::Succeeded);
    assert_eq!(decide(&failed, &one), Verdict::Waiting);
    assert_eq!(decide(&failed, &spent), Verdict::Dead);
    assert_eq!(decide(&failed, &Terms { auto_eat: true, ..one }), Verdict::Eaten);
    assert_eq!(decide(&Ending { exit_status: 286, ..failed }, &spent), Verdict::Waiting);
    assert_eq!(decide(&Ending { exit_status: 256, ..failed }, &one), Verdict::Waiting);
    assert_eq!(decide(&Ending { exit_status: 256, ..failed }, &spent), Verdict::Dead);
    assert_eq!(decide(&Ending { exit_status: 137, ..failed }, &spent), Verdict::Waiting);
    let nimby = Ending { exit_signal: 15, nimby_locked: true, ..failed };
    assert_eq!(decide(&nimby, &spent), Verdict::Waiting);
    let late = Ending { run_s: 3600, ..failed };
    assert_eq!(decide(&late, &Terms { timeout_min: 60, ..one }), Verdict::Dead);
    let silent = Ending { silent_s: Some(600), ..failed };
    assert_eq!(decide(&silent, &Terms { timeout_llu_min: 10, ..one }), Verdict::Dead);
    assert_eq!(
        decide(&Ending { silent_s: None, ..failed }, &Terms { timeout_llu_min: 10, ..one }),
        Verdict::Waiting
    );
}

proptest! {
    /// Bytes of hosts decode to a report or to an error, and no figure of a report makes the decision panic.
    #[test]
    fn reports_of_any_bytes_and_figures_end_in_a_decision(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        figures in proptest::array::uniform4(any::<i32>()),
        times in proptest::array::uniform3(any::<i64>()),
    ) {
        let _ = FrameCompleteReport::decode(bytes.as_slice());
        let _ = HostReport::decode(bytes.as_slice());
        let ending = Ending {
            exit_status: figures[0],
            exit_signal: figures[1],
            run_s: times[0],
            silent_s: Some(times[1]),
            ..Ending::default()
        };
        let terms = Terms { retries: figures[2].into(), retries_max: figures[3].into(), timeout_min: times[2],
            ..Terms::default() };
        let verdict = decide(&ending, &terms);
        prop_assert_eq!(verdict == Verdict::Succeeded, ending.exit_status == 0);
    }
}

#[tokio::test]
async fn a_host_that_fell_silent_is_down_and_its_frames_wait_again() {
    let Some(farm) = farm().await else { return };
    farm.job(&[("a", 2)], 3).await;
    let hosts = Host::connect(&farm).await;
    hosts.boot("h1").await;
    hosts.boot("h2").await;
    farm.book("a-1", "h1", "P1").await;
    farm.book("a-2", "h2", "P2").await;
    assert_eq!(farm.cuebot.clear_silent_hosts().await.unwrap(), 0);
    farm.run(
        "UPDATE host_stat SET ts_ping = now() - interval '6 minutes' FROM host
        WHERE host.pk_host = host_stat.pk_host AND str_name = 'h1'",
    )
    .await;
    assert_eq!(farm.cuebot.clear_silent_hosts().await.unwrap(), 1);
    assert_eq!((farm.state("a-1").await.as_str(), farm.state("a-2").await.as_str()), ("WAITING", "RUNNING"));
    assert_eq!(farm.value("SELECT int_exit_status FROM frame WHERE pk_frame = 'a-1'").await, "399");
    let state = "SELECT str_state FROM host_stat JOIN host USING (pk_host) WHERE str_name = 'h1'";
    assert_eq!(farm.value(state).await, "DOWN");
    farm.audit().await;
}
