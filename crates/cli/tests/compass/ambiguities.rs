//! The points that the founding document of Compass CI's scheduling leaves open, A1 to A15, each as it is resolved.
//! Cases with many turns or much time run on the engine in virtual time, the others on a server.

use super::farm::{Farm, counts};
use super::lab::{Lab, Provider, job, job_of};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::engine::{Outbox, Write};
use windlass_core::job::JobSpec;
use windlass_core::queues::Charge;
use windlass_core::{Epoch, JobId, TaskId, Time, WorkerId};
use windlass_store::Store;

const NOTHING: Value = Value::Null;

/// A farm of one host with room for one job of 1 GiB at a time.
fn one_at_a_time(charge: Charge) -> Farm {
    let mut farm = Farm::new(charge);
    farm.host("h", 1, &NOTHING);
    farm
}

#[test]
fn a1_turns_by_weight_are_within_one_job_of_the_share_at_every_moment() {
    let mut farm = one_at_a_time(Charge::Task);
    let queues = [("admin", 50), ("single-build", 30), ("bisect", 20), ("user1", 10), ("user2", 10)];
    for (queue, weight) in queues {
        farm.weigh(queue, weight);
        (0..300).for_each(|_| _ = farm.submit(queue, "dc-1g"));
    }
    let turns = farm.turns(360);
    for done in 1..=turns.len() {
        for (queue, weight) in queues {
            let (had, share) =
                (counts(&turns[..done], &[queue])[0] as f64, done as f64 * f64::from(weight) / 120.0);
            assert!((had - share).abs() <= 1.0 + 1e-9, "{queue}: {had} of {done}, its share is {share}");
        }
    }
}

#[test]
fn a2_what_is_shared_is_time_on_machines_or_jobs_where_that_is_asked_for() {
    let run = |charge| {
        let mut farm = one_at_a_time(charge);
        farm.lasts("ann", 50);
        farm.lasts("bob", 5);
        (0..100).for_each(|_| _ = farm.submit("ann", "dc-1g"));
        (0..600).for_each(|_| _ = farm.submit("bob", "dc-1g"));
        farm.pass(3_000);
        let turns: Vec<String> = farm.boots.iter().map(|boot| boot.queue.clone()).collect();
        counts(&turns, &["ann", "bob"])
    };
    let jobs = run(Charge::Task);
    assert!(jobs[0].abs_diff(jobs[1]) <= 1, "{jobs:?}");
    let time = run(Charge::Time);
    let (ann, bob) = (time[0] * 50, time[1] * 5);
    // Unknown run times are charged by an estimate: at most two of the long jobs.
    assert!(ann.abs_diff(bob) <= 100, "{ann} s and {bob} s");
}

#[test]
fn a3_single_build_and_bisect_are_projects_with_weights() {
    let mut farm = one_at_a_time(Charge::Task);
    for (queue, weight) in [("admin", 50), ("single-build", 30), ("bisect", 20)] {
        farm.weigh(queue, weight);
        (0..100).for_each(|_| _ = farm.submit(queue, "dc-1g"));
    }
    assert_eq!(counts(&farm.turns(100), &["admin", "single-build", "bisect"]), [50, 30, 20]);
    // Until they are set, the two have their weights by their names.
    let mut farm = one_at_a_time(Charge::Task);
    for queue in ["single-build", "bisect", "ann"] {
        (0..100).for_each(|_| _ = farm.submit(queue, "dc-1g"));
    }
    let had = counts(&farm.turns(60), &["single-build", "bisect", "ann"]);
    let are_fair = had.iter().zip([30, 20, 10]).all(|(had, share)| had.abs_diff(share) <= 1);
    assert!(are_fair, "{had:?}");
}

#[test]
fn a4_vip_goes_first_and_idle_gets_what_nothing_else_fits() {
    let mut farm = Farm::new(Charge::Task);
    farm.host("large", 8, &NOTHING);
    let large = farm.submit("ann", "dc-8g");
    let idle = farm.submit("idle", "dc-1g");
    let vip = farm.submit("vip", "dc-8g");
    assert_eq!(farm.booted()[0].job, vip, "the last to come is first");
    farm.end(vip);
    assert_eq!(farm.booted()[0].job, large, "before what is idle");
    let next = farm.submit("ann", "dc-8g");
    assert!(farm.booted().is_empty());
    // A host on which nothing of a higher band fits does not stand idle for it.
    farm.host("small", 2, &NOTHING);
    let booted = farm.booted();
    assert_eq!((booted.len(), booted[0].job, booted[0].host.as_str()), (1, idle, "small"));
    farm.end(large);
    assert_eq!(farm.booted()[0].job, next);
}

#[test]
fn a5_what_does_not_fit_holds_up_nobody_and_is_not_passed_by_for_ever() {
    let mut farm = Farm::new(Charge::Task);
    farm.host("h", 4, &NOTHING);
    farm.lasts("small", 10);
    // The jobs never end together.
    for _ in 0..4 {
        farm.submit("small", "dc-1g");
        farm.pass(2);
    }
    (0..400).for_each(|_| _ = farm.submit("small", "dc-1g"));
    farm.pass(30);
    // In the same queue and in another one, the next jobs that fit start.
    let large = farm.submit_to("small", "dc-4g", &json!({"priority": 9}), &[]);
    let before = farm.boots.len();
    farm.pass(30);
    assert!(farm.boots.len() >= before + 8, "small jobs went on");
    assert!(farm.boots.iter().all(|boot| boot.job != large));
    // After a minute in which other jobs were placed before it, the host is reserved for it.
    farm.pass(90);
    assert!(farm.boots.iter().any(|boot| boot.job == large), "it was passed by for ever");
}

#[test]
fn a6_a_queue_of_which_nothing_fits_does_not_take_more_than_its_share_later() {
    let mut farm = one_at_a_time(Charge::Task);
    (0..100).for_each(|_| _ = farm.submit("blocked", "dc-2g"));
    (0..300).for_each(|_| _ = farm.submit("free", "dc-1g"));
    assert_eq!(counts(&farm.turns(100), &["blocked"]), [0]);
    // Now the blocked queue gets jobs that fit.
    (0..100).for_each(|_| _ = farm.submit("blocked", "dc-1g"));
    let turns = farm.turns(41);
    let blocked = counts(&turns[1..], &["blocked"])[0];
    assert!((19..=21).contains(&blocked), "{blocked} of 40");
}

#[test]
fn a7_who_comes_late_gets_no_credit_for_having_been_away() {
    let mut farm = one_at_a_time(Charge::Task);
    (0..300).for_each(|_| _ = farm.submit("ann", "dc-1g"));
    farm.turns(100);
    (0..100).for_each(|_| _ = farm.submit("bob", "dc-1g"));
    let turns = farm.turns(40);
    let bob = counts(&turns, &["bob"])[0];
    assert!((19..=21).contains(&bob), "{bob} of 40");
    assert!(turns[..3].contains(&"bob".to_owned()), "and does not wait for the backlog: {turns:?}");
}

#[test]
fn a8_ties_are_settled_by_priority_and_number_and_by_memory_caches_and_name() {
    let mut farm = Farm::new(Charge::Task);
    let more = |priority: i32| json!({"priority": priority, "cache_dirs": ["1-ccache/redis"]});
    let jobs = [0, 5, 0, 5].map(|priority| farm.submit_to("ann", "dc-1g", &more(priority), &[]));
    farm.host("b", 16, &NOTHING);
    farm.host("a", 16, &NOTHING);
    farm.host("c", 16, &json!({"cache_dirs": ["1-ccache/redis"]}));
    farm.host("d", 12, &json!({"cache_dirs": ["1-ccache/redis"]}));
    let booted = farm.booted();
    let order: Vec<u64> = booted.iter().map(|boot| boot.job).collect();
    assert_eq!(order, [jobs[1], jobs[3], jobs[0], jobs[2]]);
    // With equal free memory: the host with the cache, then by name; then again with a gibibyte less on each.
    let hosts: Vec<&str> = booted.iter().map(|boot| boot.host.as_str()).collect();
    assert_eq!(hosts, ["c", "a", "b", "c"]);
}

#[test]
fn a9_the_order_of_jobs_goes_before_that_of_hosts() {
    let mut farm = Farm::new(Charge::Task);
    let first = farm.submit("ann", "dc-8g");
    let suited = farm.submit_to("ann", "dc-8g", &json!({"cache_dirs": ["1-git/linux"]}), &[]);
    farm.host("best", 8, &json!({"cache_dirs": ["1-git/linux"]}));
    let booted = farm.booted();
    assert_eq!((booted.len(), booted[0].job), (1, first), "although the other would suit the host better");
    farm.end(first);
    assert_eq!(farm.booted()[0].job, suited);
}

#[test]
fn a10_the_row_in_the_store_decides_whatever_anybody_counted() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("w.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for address in ["memory", &file] {
        let store = Store::open(address).unwrap();
        let task = TaskId { job: JobId(1), index: 0 };
        let (spec, at, epoch) = (Arc::new(JobSpec::default()), Time(1), Epoch(1));
        let book =
            |worker| Write::Book { task, attempt: 1, worker: WorkerId(worker), epoch, at, amounts: (1, 1) };
        let commit = |writes| {
            runtime.block_on(store.commit(Arc::new(Outbox { writes, ..Outbox::default() }))).unwrap()
        };
        assert!(commit(vec![Write::Job { id: JobId(1), spec, created: at }, book(1)]).is_empty());
        // A second booking, from older knowledge, is refused.
        assert_eq!(commit(vec![book(2)]), [0], "{address}");
        let held = runtime.block_on(store.tasks(JobId(1), 0..1)).unwrap();
        assert_eq!(held[0].row.worker, WorkerId(1));
    }
}

#[test]
fn a11_nothing_of_a_silent_host_is_run_again_before_its_end_is_known() {
    let lab = Lab::open(&[]);
    let id = lab.submit(&job("dc-1g", &NOTHING));
    let mut provider = Provider::open(&lab, "h1", 8_000, &NOTHING);
    assert_eq!(provider.boots(), id);
    drop(provider);
    // The host is disconnected: its job's state is unknown, and the job is not run again, there or elsewhere.
    let mut other = Provider::open(&lab, "h2", 8_000, &NOTHING);
    assert_eq!(other.socket.within(Duration::from_millis(500)), None);
    assert_eq!(lab.job(&id)["job_stage"], "dispatch");
    let mut provider = Provider::open(&lab, "h1", 8_000, &NOTHING);
    assert_eq!(provider.socket.within(Duration::from_millis(300)), None);
    drop(other);
    // Its uptime shows that it was restarted, so all its jobs have ended.
    provider.request["metrics"]["uptime_minutes"] = json!(0);
    provider.ask();
    assert_eq!(provider.boots(), id);
    provider.done(&id);
    lab.wait_for_state(&id, "succeeded");
}

#[test]
fn a12_memory_of_new_jobs_counts_until_the_host_has_seen_it() {
    let lab = Lab::open(&[]);
    // The host has much memory, of which other processes hold all but 10 GiB, and it keeps reporting these as free.
    lab.register(&json!({"hostname": "h1", "memory": "64g"}));
    let ids: Vec<String> = (0..3).map(|_| lab.submit(&job("dc-4g", &NOTHING))).collect();
    let mut provider = Provider::open(&lab, "h1", 10 << 10, &NOTHING);
    assert_eq!([provider.boots(), provider.boots()], ids[..2]);
    let given = Instant::now();
    // Eight are booked, although the host does not report that yet; later its reports are exact.
    let third = loop {
        provider.ask();
        if let Some(message) = provider.socket.within(Duration::from_millis(500)) {
            break message;
        }
        assert!(given.elapsed() < crate::support::PATIENCE, "{}", lab.log());
    };
    assert_eq!(third["job_id"], ids[2]);
    assert!(given.elapsed() >= Duration::from_secs(8), "it was given away twice");
}

#[test]
fn a13_bare_metal_is_one_slot_for_jobs_of_its_architecture() {
    let lab = Lab::open(&[]);
    lab.register(&json!({"hostname": "box1", "arch": "aarch64", "mac_addr": ["aa-bb-cc-dd-ee-01"]}));
    let other = lab.submit(&job("hw", &json!({"os_arch": "x86_64"})));
    let guest = lab.submit(&job("vm-2p8g", &NOTHING));
    let ids = ["hw", "hw"].map(|testbox| lab.submit(&job(testbox, &NOTHING)));
    let (status, text) = lab.boot("aa-bb-cc-dd-ee-01");
    assert!(status == 200 && text.contains(&format!("job id={},", ids[0])), "{text}");
    for id in [&other, &guest, &ids[1]] {
        assert_eq!(lab.job(id)["job_stage"], "submit");
    }
    assert_eq!(lab.update(&ids[0], "job_stage=finish").0, 200);
    assert!(lab.boot("aa-bb-cc-dd-ee-01").1.contains(&format!("job id={},", ids[1])));
}

#[test]
fn a14_an_urgent_job_need_not_wait_for_its_users_own_batch() {
    let lab = Lab::open(&[]);
    let batch: Vec<String> = (0..5).map(|_| lab.submit(&job_of("ann", "dc-1g", &NOTHING))).collect();
    let urgent = lab.submit(&job_of("ann", "dc-1g", &json!({"priority": 9})));
    let vip = lab.submit(&job_of("ann", "dc-1g", &json!({"queue": "vip"})));
    let (_, answer) = lab
        .post("/scheduler/v1/jobs/submit", &job_of("ann", "dc-1g", &json!({"queue": "nobody-set-this-up"})));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let unknown = answer[0]["job_id"].as_str().unwrap();
    assert_eq!(lab.job(unknown)["queue"], "ann", "an unknown queue is none");
    let note = answer[0]["message"].as_str().unwrap();
    assert!(note.contains("'nobody-set-this-up'") && note.contains("own queue 'ann'"), "{note}");
    let mut provider = Provider::open(&lab, "h1", 64_000, &NOTHING);
    assert_eq!([provider.boots(), provider.boots(), provider.boots()], [vip, urgent, batch[0].clone()]);
}

#[test]
fn a15_a_project_has_its_weight_for_all_submitters_and_that_adds_to_no_users_own() {
    let mut farm = one_at_a_time(Charge::Task);
    farm.weigh("project", 100);
    // Many users submit to the project, and one of them also has jobs in her own queue.
    for user in ["ann", "bob", "cid", "dan"] {
        let whose = json!({"my_account": user});
        (0..50).for_each(|_| _ = farm.submit_to("project", "dc-1g", &whose, &[]));
    }
    (0..100).for_each(|_| _ = farm.submit("ann", "dc-1g"));
    (0..100).for_each(|_| _ = farm.submit("zoe", "dc-1g"));
    for (queue, had) in
        ["project", "ann", "zoe"].iter().zip(counts(&farm.turns(90), &["project", "ann", "zoe"]))
    {
        assert!((29..=31).contains(&had), "{queue}: {had} of 90");
    }
}
