//! Servers, providers and hosts that go away, and come back.

use super::lab::{Lab, Provider, job};
use crate::support::wait_until;
use serde_json::{Value, json};
use std::time::Duration;

const NOTHING: Value = Value::Null;

#[test]
fn what_is_known_of_jobs_survives_a_killed_server() {
    let mut lab = Lab::open(&[]);
    lab.register(&json!({"hostname": "box1", "arch": "aarch64", "mac_addr": ["aa-bb-cc-dd-ee-01"]}));
    let running = lab.submit(&job("dc-1g", &NOTHING));
    let ended = lab.submit(&job("dc-1g", &NOTHING));
    let mut provider = Provider::open(&lab, "h1", 8_000, &NOTHING);
    assert_eq!((provider.boots(), provider.boots()), (running.clone(), ended.clone()));
    let waiting = lab.submit(&job("dc-1g", &json!({"wait_on": {&running: {"job_stage": "post_run"}}})));
    let pending = lab.submit(&job("dc-500g", &NOTHING));
    assert_eq!(lab.update(&running, "job_stage=running&milestones=up&job_step=smoke").0, 200);
    // The update is durable when it is answered, even if clients are notified later.
    assert_eq!(lab.update(&ended, "job_health=fail&job_stage=finish").0, 200);
    lab.crash();
    let seen = lab.job(&running);
    assert_eq!((&seen["job_stage"], &seen["host_machine"]), (&json!("running"), &json!("h1")));
    assert_eq!((&seen["milestones"], &seen["job_step"]), (&json!(["up"]), &json!("smoke")));
    assert_eq!(lab.job(&ended)["job_health"], "fail");
    assert_eq!(
        (lab.job(&waiting)["job_stage"].as_str(), lab.job(&pending)["job_stage"].as_str()),
        (Some("submit"), Some("submit"))
    );
    assert_eq!(lab.get("/scheduler/v1/hosts/box1").0, 200);
    // The end is accepted although its host is disconnected, and the running job is not started again.
    lab.wait_for_state(&ended, "failed");
    let mut provider = Provider::open(&lab, "h1", 6_000, &NOTHING);
    assert_eq!(provider.socket.within(Duration::from_millis(500)), None);
    assert_eq!(lab.update(&running, "job_stage=post_run").0, 200);
    assert_eq!(provider.boots(), waiting);
    for id in [&running, &waiting] {
        provider.done(id);
        lab.wait_for_state(id, "succeeded");
    }
}

#[test]
fn a_job_is_given_once_however_often_the_server_is_killed() {
    let mut lab = Lab::open(&[]);
    let jobs: Vec<String> = (0..12).map(|_| lab.submit(&job("dc-1g", &NOTHING))).collect();
    let mut given: Vec<String> = Vec::new();
    for _ in 0..4 {
        let mut provider = Provider::open(&lab, "h1", 3_100, &json!({"nr_cpu": 3}));
        let mut here = Vec::new();
        while here.len() < 3 {
            here.push(provider.boots());
        }
        lab.kill();
        // A message that was sent before the end counts as sent, even if no client received it.
        while let Some(message) = provider.socket.within(Duration::from_millis(20)) {
            here.push(message["job_id"].as_str().unwrap().to_owned());
        }
        lab.restart();
        for id in &here {
            assert_eq!(lab.update(id, "job_stage=finish&job_data_readiness=complete").0, 200);
            lab.wait_for_state(id, "succeeded");
        }
        given.append(&mut here);
    }
    given.sort();
    let mut all = jobs;
    all.sort();
    assert_eq!(given, all);
}

#[test]
fn what_an_operator_says_is_gone_runs_elsewhere_and_ends_where_it_was() {
    let lab = Lab::open(&[]);
    let id = lab.submit(&job("dc-1g", &NOTHING));
    let mut lost = Provider::open(&lab, "h1", 8_000, &NOTHING);
    assert_eq!(lost.boots(), id);
    lab.wait_for(&id, "dispatch");
    drop(lost);
    wait_until("the host is suspect", || {
        lab.windlass_json(&["worker", "show", "compass:h1"])["state"] == "suspect"
    });
    let mut other = Provider::open(&lab, "h2", 8_000, &NOTHING);
    lab.windlass(&["worker", "forget", "compass:h1"]);
    assert_eq!(other.boots(), id);
    assert_eq!(lab.job(&id)["host_machine"], "h2");
    // The host was not gone: it is told to stop, and its reports about the job are refused.
    let mut lost = Provider::open(&lab, "h1", 8_000, &NOTHING);
    assert_eq!(lost.socket.next(), json!({"type": "terminate-job", "job_id": id}));
    lost.says(&id, &json!({"job_stage": "finish", "job_data_readiness": "incomplete"}));
    lost.ask();
    other.says(&id, &json!({"job_stage": "running"}));
    lab.wait_for(&id, "running");
    other.done(&id);
    lab.wait_for_state(&id, "succeeded");
}

#[test]
fn a_job_that_is_too_long_in_a_stage_is_ended_and_may_be_run_again() {
    let lab = Lab::open(&[]);
    lab.register(&json!({"hostname": "box1", "arch": "aarch64", "mac_addr": ["aa-bb-cc-dd-ee-01"]}));
    let short = json!({"timeout": "1s"});
    let (guest, metal) = (lab.submit(&job("dc-1g", &short)), lab.submit(&job("box1", &short)));
    let mut provider = Provider::open(&lab, "h1", 8_000, &NOTHING);
    assert_eq!(provider.boots(), guest);
    assert_eq!(lab.boot("aa-bb-cc-dd-ee-01").0, 200);
    for id in [&guest, &metal] {
        assert_eq!(lab.update(id, "job_stage=running").0, 200);
    }
    assert_eq!(provider.socket.next(), json!({"type": "terminate-job", "job_id": guest}));
    let seen = lab.job(&guest);
    assert_eq!((&seen["job_stage"], &seen["job_health"]), (&json!("running"), &json!("timeout_running")));
    provider.says(&guest, &json!({"job_stage": "finish", "job_data_readiness": "incomplete"}));
    // The server cannot end a job on bare metal: the job counts as ended, and the machine gets no other before it
    // boots.
    for id in [&guest, &metal] {
        lab.wait_for(id, "finish");
        lab.wait_for_state(id, "failed");
        assert_eq!(lab.job(id)["job_health"], "timeout_running");
    }
    lab.windlass(&["job", "retry", &guest]);
    assert_eq!(provider.boots(), guest);
    lab.wait_for(&guest, "dispatch");
    provider.done(&guest);
    lab.wait_for_state(&guest, "succeeded");
}
