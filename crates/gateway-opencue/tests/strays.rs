//! What hosts run and do not hold: frames that go on after a host was cut off, and reports that are older than the
//! tables. PostgreSQL is real, and a double of RQD answers for all hosts.

use crate::farm::host::{Host, host, run};
use crate::farm::{Farm, farm};
use crate::rqd::{Mood, Rqd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_cuebot::{Cuebot, Settings};
use windlass_gateway_opencue::scheduler::Instance;
use windlass_gateway_opencue::scheduler::config::Config;

const H1: &str = "127.0.3.1";
const H2: &str = "127.0.3.2";
/// Only a hung test waits so long.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A farm of two hosts whose RQD is the double, with a job of this number of frames.
async fn farm_of(rqd: &Rqd, frames: u32) -> Option<(Farm, Host)> {
    let farm = farm().await?;
    let text =
        format!("rqd: {{grpc_port: {}}}\nwindlass: {{shows: [testing], rqd_call_timeout: 500ms}}", rqd.port);
    let settings = Config::parse(&text).unwrap().instance;
    let instance = Instance::new(farm.pool.clone(), farm.config.clone(), settings);
    let cuebot = Cuebot::new(farm.pool.clone(), Settings::default(), Arc::new(instance.launcher()));
    let farm = Farm { cuebot: Arc::new(cuebot), ..farm };
    let hosts = Host::connect(&farm).await;
    hosts.boot(H1).await;
    hosts.boot(H2).await;
    farm.job(&[("a", frames)], 3).await;
    Some((farm, hosts))
}

/// Polls until it holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < WAIT_MAX, "{what}");
        tokio::task::yield_now().await;
    }
}

/// Idle cores of a host, and memory that counts as held there.
async fn room(farm: &Farm, name: &str) -> String {
    let room = "SELECT int_cores_idle || ' ' || (int_mem - int_mem_idle) FROM host WHERE str_name =";
    farm.value(&format!("{room} '{name}'")).await
}

/// The host has been silent for six minutes.
async fn silence(farm: &Farm, name: &str) {
    farm.run(&format!(
        "UPDATE host_stat SET ts_ping = now() - interval '6 minutes' FROM host
          WHERE host.pk_host = host_stat.pk_host AND str_name = '{name}'"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_a_host_that_comes_back_are_killed_there_and_hold_its_cores_until_then() {
    let rqd = Rqd::start(Mood::Takes).await;
    let Some((farm, hosts)) = farm_of(&rqd, 2).await else { return };
    for (frame, proc_id) in [("a-1", "p1"), ("a-2", "p2")] {
        farm.book(frame, H1, proc_id).await;
        rqd.begin(frame, proc_id);
    }
    silence(&farm, H1).await;
    assert_eq!(farm.cuebot.clear_silent_hosts().await.unwrap(), 2);
    farm.book("a-1", H2, "p3").await;

    // It is heard again, and does not hear itself at first.
    rqd.set(Mood::Hangs);
    let before = vec![run("a-1", "p1"), run("a-2", "p2")];
    hosts.status(host(H1), before.clone()).await.unwrap();
    assert_eq!(room(&farm, H1).await, "200 2000", "what runs there is not handed out");
    assert_eq!(rqd.killed(), Vec::<String>::new());
    rqd.set(Mood::Takes);
    until("each report asks again", async || {
        hosts.status(host(H1), before.clone()).await.unwrap();
        rqd.running().is_empty()
    })
    .await;
    assert_eq!(room(&farm, H1).await, "200 2000", "it has not said that they ended");
    hosts.status(host(H1), Vec::new()).await.unwrap();
    assert_eq!(room(&farm, H1).await, "400 0");
    assert_eq!((farm.state("a-1").await.as_str(), farm.state("a-2").await.as_str()), ("RUNNING", "WAITING"));
    // What comes of the kill says nothing of the run elsewhere.
    hosts.try_ended(H1, ("a-1", "p1"), 1).await.unwrap();
    assert_eq!(farm.state("a-1").await, "RUNNING");
    farm.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_is_older_than_an_end_or_a_later_proc_kills_nothing() {
    let rqd = Rqd::start(Mood::Takes).await;
    let Some((farm, hosts)) = farm_of(&rqd, 2).await else { return };
    farm.book("a-1", H1, "p1").await;
    hosts.try_ended(H1, ("a-1", "p1"), 1).await.unwrap();
    assert_eq!(farm.state("a-1").await, "WAITING");
    // Strays of one host are killed in their order: what comes before this one was left out.
    let report_late = async |reported: &str| {
        let before = rqd.killed().len();
        hosts.status(host(H1), vec![run("a-1", reported), run("a-2", "p9")]).await.unwrap();
        until("the stray is killed", async || rqd.killed().len() > before).await;
    };
    report_late("p1").await;
    assert_eq!(room(&farm, H1).await, "300 1000", "the run that ended holds nothing");
    farm.book("a-1", H1, "p2").await;
    rqd.begin("a-1", "p2");
    report_late("p0").await;
    assert_eq!(rqd.killed(), ["a-2", "a-2"]);
    assert_eq!(rqd.running().len(), 1, "the later run goes on");
    hosts.status(host(H1), vec![run("a-1", "p2")]).await.unwrap();
    farm.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_speaks_for_itself_alone() {
    let rqd = Rqd::start(Mood::Takes).await;
    let Some((farm, hosts)) = farm_of(&rqd, 2).await else { return };
    farm.book("a-1", H1, "p1").await;
    farm.run("UPDATE proc SET ts_ping = now() - interval '6 minutes'").await;
    hosts.status(host(H2), vec![run("a-1", "p1")]).await.unwrap();
    let is_heard = "SELECT ts_ping > now() - interval '1 minute' FROM proc";
    assert_eq!(farm.value(is_heard).await, "false");
    hosts.try_ended(H2, ("a-1", "p1"), 0).await.unwrap();
    assert_eq!(farm.state("a-1").await, "RUNNING");
    hosts.status(host(H1), vec![run("a-1", "p1")]).await.unwrap();
    assert_eq!(farm.value(is_heard).await, "true");
    hosts.try_ended(H1, ("a-1", "p1"), 0).await.unwrap();
    assert_eq!(farm.state("a-1").await, "SUCCEEDED");
    hosts.status(host(H2), Vec::new()).await.unwrap();
    farm.audit().await;
    // The same holds where the proc is gone.
    farm.book("a-2", H1, "p2").await;
    farm.run("DELETE FROM proc").await;
    hosts.try_ended(H2, ("a-2", "p2"), 0).await.unwrap();
    assert_eq!(farm.state("a-2").await, "RUNNING");
    hosts.try_ended(H1, ("a-2", "p2"), 0).await.unwrap();
    assert_eq!(farm.state("a-2").await, "SUCCEEDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_is_asked_which_of_its_frames_it_has() {
    let rqd = Rqd::start(Mood::Takes).await;
    let Some((farm, hosts)) = farm_of(&rqd, 3).await else { return };
    for (frame, proc_id) in [("a-1", "p1"), ("a-2", "p2"), ("a-3", "p3")] {
        farm.book(frame, H1, proc_id).await;
    }
    // RQD took a launch before its report of the start was handled. Of another frame it runs an earlier launch, and the
    // last one was killed by a client.
    rqd.begin("a-1", "p1");
    rqd.begin("a-2", "p0");
    farm.run(
        "UPDATE frame SET str_state = 'WAITING' WHERE pk_frame = 'a-3';
         UPDATE proc SET pk_frame = NULL WHERE pk_proc = 'p3'",
    )
    .await;
    hosts.boot(H1).await;
    until("the frame that it has not got waits again", async || farm.state("a-2").await == "WAITING").await;
    assert_eq!(farm.state("a-1").await, "RUNNING");
    assert_eq!(farm.value("SELECT string_agg(pk_proc, ' ') FROM proc").await, "p1");
    assert_eq!(farm.value("SELECT int_exit_status FROM frame WHERE pk_frame = 'a-2'").await, "299");
    assert_eq!(rqd.killed(), ["a-2"]);
    farm.audit().await;
}

/// No launch is under way.
async fn launched_long_ago(farm: &Farm) {
    farm.run("UPDATE proc SET ts_booked = now() - interval '1 minute'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_asked_about_a_frame_that_two_reports_in_a_row_leave_out() {
    let rqd = Rqd::start(Mood::Takes).await;
    let Some((farm, hosts)) = farm_of(&rqd, 3).await else { return };
    for (frame, proc_id) in [("a-1", "p1"), ("a-2", "p2")] {
        farm.book(frame, H1, proc_id).await;
    }
    launched_long_ago(&farm).await;
    // The end of the second one was lost. The launch of the third one is under way.
    farm.book("a-3", H1, "p3").await;
    rqd.begin("a-1", "p1");
    let report = async |runs| hosts.status(host(H1), runs).await.unwrap();
    report(vec![run("a-1", "p1"), run("a-2", "p2")]).await;
    report(Vec::new()).await;
    assert_eq!(farm.value("SELECT count(*) FROM frame WHERE str_state = 'RUNNING'").await, "3");
    // What it does not say is not guessed. It is asked again after each report.
    rqd.set(Mood::Hangs);
    report(Vec::new()).await;
    assert_eq!(farm.state("a-2").await, "RUNNING");
    rqd.set(Mood::Takes);
    until("the frame that it has not got waits again", async || {
        report(Vec::new()).await;
        farm.state("a-2").await == "WAITING"
    })
    .await;
    let others = (farm.state("a-1").await, farm.state("a-3").await);
    assert_eq!((others.0.as_str(), others.1.as_str()), ("RUNNING", "RUNNING"));
    let spent = "SELECT int_exit_status || ' ' || int_retries FROM frame WHERE pk_frame = 'a-2'";
    assert_eq!(farm.value(spent).await, "299 0");
    assert!(rqd.killed().iter().all(|frame| frame == "a-2"), "{:?}", rqd.killed());
    farm.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_start_hosts_are_asked_at_once_and_need_no_report() {
    let rqd = Rqd::start(Mood::Takes).await;
    let Some((farm, hosts)) = farm_of(&rqd, 4).await else { return };
    for (frame, host, proc_id) in [("a-1", H1, "p1"), ("a-2", H1, "p2"), ("a-3", H2, "p3")] {
        farm.book(frame, host, proc_id).await;
    }
    launched_long_ago(&farm).await;
    // The launch of the fourth one is under way. The ends of the second and the third one came while no gateway ran.
    farm.book("a-4", H2, "p4").await;
    rqd.begin("a-1", "p1");
    farm.cuebot.ask_hosts().await.unwrap();
    until("the frames whose ends were lost wait again", async || {
        farm.state("a-2").await == "WAITING" && farm.state("a-3").await == "WAITING"
    })
    .await;
    let others = (farm.state("a-1").await, farm.state("a-4").await);
    assert_eq!((others.0.as_str(), others.1.as_str()), ("RUNNING", "RUNNING"));
    let spent = "SELECT string_agg(DISTINCT int_exit_status || ' ' || int_retries, ', ') FROM frame
        WHERE pk_frame IN ('a-2', 'a-3')";
    assert_eq!(farm.value(spent).await, "299 0");
    hosts.status(host(H1), vec![run("a-1", "p1")]).await.unwrap();
    farm.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_a_host_keeps_until_it_is_heard_counts_after_a_start() {
    let rqd = Rqd::start(Mood::SaysUnknown).await;
    let Some((farm, hosts)) = farm_of(&rqd, 1).await else { return };
    farm.book("a-1", H1, "p1").await;
    launched_long_ago(&farm).await;
    farm.cuebot.ask_hosts().await.unwrap();
    until("the host says what it knows of the frame", async || rqd.killed() == ["a-1"]).await;
    hosts.try_ended(H1, ("a-1", "p1"), 0).await.unwrap();
    assert_eq!(farm.state("a-1").await, "SUCCEEDED");
    assert_eq!(rqd.killed(), ["a-1"], "it was not taken back");
    farm.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_a_client_killed_is_killed_again_while_its_host_reports_it() {
    let rqd = Rqd::start(Mood::Takes).await;
    let Some((farm, hosts)) = farm_of(&rqd, 1).await else { return };
    farm.book("a-1", H1, "p1").await;
    rqd.begin("a-1", "p1");
    // The host did not hear it, and the frame runs elsewhere by now.
    farm.run(
        "UPDATE frame SET str_state = 'WAITING' WHERE pk_frame = 'a-1';
         UPDATE proc SET pk_frame = NULL WHERE pk_proc = 'p1'",
    )
    .await;
    farm.book("a-1", H2, "p2").await;
    hosts.status(host(H1), vec![run("a-1", "p1")]).await.unwrap();
    assert_eq!(
        room(&farm, H1).await,
        "300 262144",
        "its proc still holds what it uses, and nothing else does"
    );
    until("it is killed again", async || rqd.killed() == ["a-1"]).await;
    // The end is lost. One report without it may be older than it, two are not.
    launched_long_ago(&farm).await;
    let procs = "SELECT string_agg(pk_proc, ' ' ORDER BY pk_proc) FROM proc";
    hosts.status(host(H1), Vec::new()).await.unwrap();
    assert_eq!(farm.value(procs).await, "p1 p2");
    hosts.status(host(H1), Vec::new()).await.unwrap();
    assert_eq!(farm.value(procs).await, "p2");
    assert_eq!(farm.state("a-1").await, "RUNNING");
    farm.audit().await;
}
