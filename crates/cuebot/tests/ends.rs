//! Ends of frames, which hosts tell once, while the database is away or ends transactions.

use crate::farm::host::{Host, host, run};
use crate::farm::{Client, Farm, farm};
use crate::postgres;
use std::time::{Duration, Instant};
use windlass_cuebot::generated::job as wire;

/// Only a hung test waits so long.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Statements that write frames, procs, hosts or dependencies fail while their number is in a range. A sequence goes on
/// when a transaction is ended.
const FAULTS: &str = "
CREATE SEQUENCE written;
CREATE TABLE fault (first bigint, last bigint);
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    number bigint := nextval('written');
BEGIN
    IF EXISTS (SELECT FROM fault WHERE number BETWEEN first AND last) THEN
        RAISE EXCEPTION 'fault %', number USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER fails AFTER INSERT OR UPDATE OR DELETE ON frame FOR EACH STATEMENT EXECUTE FUNCTION fail();
CREATE TRIGGER fails AFTER INSERT OR UPDATE OR DELETE ON proc FOR EACH STATEMENT EXECUTE FUNCTION fail();
CREATE TRIGGER fails AFTER INSERT OR UPDATE OR DELETE ON host FOR EACH STATEMENT EXECUTE FUNCTION fail();
CREATE TRIGGER fails AFTER INSERT OR UPDATE OR DELETE ON host_stat FOR EACH STATEMENT EXECUTE FUNCTION fail();
CREATE TRIGGER fails AFTER INSERT OR UPDATE OR DELETE ON depend FOR EACH STATEMENT EXECUTE FUNCTION fail();";

async fn until_state(farm: &Farm, frame: &str, state: &str) {
    let began = Instant::now();
    while farm.state(frame).await != state {
        assert!(began.elapsed() < WAIT_MAX, "{frame} is not {state}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_comes_while_the_database_is_away_counts_when_it_is_back() {
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    rqd.boot("h1").await;
    farm.job(&[("a", 2)], 0).await;
    farm.book("a-1", "h1", "p1").await;
    farm.book("a-2", "h1", "p2").await;
    let (cluster, database) = (postgres::cluster().unwrap(), farm.config.get_dbname().unwrap());
    let allow = |is_there: bool| {
        cluster.sql("postgres", &format!("ALTER DATABASE {database} ALLOW_CONNECTIONS {is_there}"));
        if !is_there {
            let connections = format!("FROM pg_stat_activity WHERE datname = '{database}'");
            cluster.sql("postgres", &format!("SELECT pg_terminate_backend(pid) {connections}"));
        }
    };
    let in_five_minutes = Instant::now() + Duration::from_secs(300);
    assert!(!farm.cuebot.has_heard_hosts(Instant::now()) && farm.cuebot.has_heard_hosts(in_five_minutes));
    allow(false);
    rqd.ended("a-1", "p1", 0).await;
    rqd.ended("a-2", "p2", 1).await;
    rqd.ended("a-1", "p1", 0).await;
    let refused = rqd.status(host("h1"), Vec::new()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "the next report says the same");
    assert!(!farm.cuebot.has_heard_hosts(in_five_minutes), "the silence of hosts says nothing");
    allow(true);
    until_state(&farm, "a-1", "SUCCEEDED").await;
    until_state(&farm, "a-2", "DEAD").await;
    let counted = "SELECT int_frame_success_count || ' ' || int_frame_fail_count FROM job_usage";
    assert_eq!(farm.value(counted).await, "1 1");
    farm.audit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_whose_transaction_is_ended_again_and_again_counts_at_last() {
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    rqd.boot("h1").await;
    farm.job(&[("a", 1)], 0).await;
    farm.book("a-1", "h1", "p1").await;
    farm.run(FAULTS).await;
    farm.run("INSERT INTO fault VALUES (1, 20)").await;
    rqd.ended("a-1", "p1", 0).await;
    until_state(&farm, "a-1", "SUCCEEDED").await;
    assert_eq!(farm.value("SELECT str_state FROM job").await, "FINISHED");
    farm.audit().await;
}

/// Each frame of layer `b` waits for the frame of layer `a` with its number.
async fn let_frames_wait(farm: &Farm, frames: u32) {
    farm.run(&format!(
        "INSERT INTO depend (pk_depend, pk_job_depend_on, pk_layer_depend_on, pk_frame_depend_on, pk_job_depend_er,
                pk_layer_depend_er, pk_frame_depend_er, str_type, str_signature)
         SELECT 'f' || n, 'J', 'a', 'a-' || n, 'J', 'b', 'b-' || n, 'FRAME_ON_FRAME', 'f' || n
           FROM generate_series(1, {frames}) AS n;
         UPDATE frame SET int_depend_count = 1, str_state = 'DEPEND' WHERE pk_layer = 'b'"
    ))
    .await;
}

/// What is left of a farm when one of its statements fails, by its number, and how many there were.
async fn outcome_with_fault(number: u64) -> Option<(String, u64)> {
    let farm = farm().await?;
    let (rqd, client) = (Host::connect(&farm).await, Client::connect(&farm).await);
    rqd.boot("h1").await;
    farm.job(&[("a", 3), ("b", 3)], 3).await;
    let_frames_wait(&farm, 3).await;
    for (frame, proc_id) in [("a-1", "p1"), ("a-2", "p2"), ("a-3", "p3")] {
        farm.book(frame, "h1", proc_id).await;
    }
    farm.run(FAULTS).await;
    farm.run(&format!("INSERT INTO fault VALUES ({number}, {number})")).await;

    let one = |id: &str| Some(wire::Frame { id: id.to_owned(), ..Default::default() });
    rqd.status(host("h1"), vec![run("a-1", "p1"), run("a-2", "p2"), run("a-3", "p3")]).await.unwrap();
    rqd.ended("a-1", "p1", 0).await;
    rqd.ended("a-2", "p2", 1).await;
    let ask = wire::FrameKillRequest { frame: one("a-3"), ..Default::default() };
    let _: wire::FrameKillResponse = client.ok("job.FrameInterface/Kill", ask).await;
    rqd.ended("a-3", "p3", 1).await;
    let _: wire::FrameEatResponse =
        client.ok("job.FrameInterface/Eat", wire::FrameEatRequest { frame: one("a-3") }).await;
    let ask = wire::FrameMarkAsWaitingRequest { frame: one("b-3") };
    let _: wire::FrameMarkAsWaitingResponse = client.ok("job.FrameInterface/MarkAsWaiting", ask).await;
    rqd.boot("h1").await;

    until_state(&farm, "a-1", "SUCCEEDED").await;
    farm.audit().await;
    let states =
        "SELECT string_agg(pk_frame || ' ' || str_state || ' ' || int_retries, ', ' ORDER BY pk_frame)
        || ', procs ' || (SELECT count(*) FROM proc) FROM frame";
    let written = farm.value("SELECT last_value FROM written").await;
    Some((farm.value(states).await, written.parse().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_statement_fails_once_the_outcome_is_the_same() {
    let Some((expected, statements)) = outcome_with_fault(0).await else { return };
    assert_eq!(
        expected,
        "a-1 SUCCEEDED 0, a-2 WAITING 0, a-3 EATEN 0, b-1 WAITING 0, b-2 DEPEND 0, b-3 WAITING 0, procs 0"
    );
    for number in 1..=statements {
        let (outcome, _) = outcome_with_fault(number).await.unwrap();
        assert_eq!(outcome, expected, "the statement with the number {number} failed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_reads_as_many_frames_however_large_its_job_is() {
    const FRAMES: u32 = 2_000;
    const ENDS: u32 = 20;
    let Some(farm) = farm().await else { return };
    let rqd = Host::connect(&farm).await;
    rqd.boot("h1").await;
    farm.job(&[("a", FRAMES), ("b", FRAMES)], 0).await;
    let_frames_wait(&farm, FRAMES).await;
    for n in 1..=ENDS {
        let (frame, proc_id) = (format!("a-{n}"), format!("p{n}"));
        farm.book(&frame, "h1", &proc_id).await;
        rqd.ended(&frame, &proc_id, 0).await;
        until_state(&farm, &frame, "SUCCEEDED").await;
    }
    assert_eq!(farm.state(&format!("b-{ENDS}")).await, "WAITING");
    let read = farm.rows_read("frame").await;
    // Setting up reads each frame of `b` once or twice, and a frame's state is asked for until it has changed.
    assert!(
        read < u64::from(6 * FRAMES),
        "{read} rows of frames were read for {ENDS} ends in a job of {FRAMES}"
    );
}
