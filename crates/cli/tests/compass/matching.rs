//! Matching of jobs to machines.

use super::farm::Farm;
use super::lab::{Lab, Provider, job};
use serde_json::{Value, json};
use windlass_core::queues::Charge;

const NOTHING: Value = Value::Null;

#[test]
fn target_machines_and_the_testbox_are_both_kept_to() {
    let mut farm = Farm::new(Charge::Task);
    let (a61, a66) = ("taishan200-2280-2s64p-256g--a61", "taishan200-2280-2s64p-256g--a66");
    farm.host(a61, 64, &NOTHING);
    farm.host(a66, 32, &NOTHING);
    farm.host("x1", 512, &json!({"arch": "x86_64"}));
    let mut placed = |testbox: &str, more: Value| {
        let job = farm.submit_to("ann", testbox, &more, &[]);
        let booted = farm.booted();
        let host = booted.first().map(|boot| boot.host.clone());
        if host.is_some() {
            farm.end(job);
            farm.booted();
        }
        host
    };
    assert_eq!(placed("vm-2p8g", NOTHING).as_deref(), Some(a61), "the most free of its architecture");
    assert_eq!(placed("vm-2p8g", json!({"target_machines": [a66]})).as_deref(), Some(a66));
    assert_eq!(placed("vm-2p8g", json!({"target_machines": ["ANY", a66]})).as_deref(), Some(a61));
    assert_eq!(placed(&format!("vm-2p8g-1.{a66}"), NOTHING).as_deref(), Some(a66));
    assert_eq!(placed("vm-2p8g", json!({"os_arch": "x86_64"})).as_deref(), Some("x1"));
    assert_eq!(placed("vm-2p8g", json!({"os_arch": "riscv64"})), None);
    assert_eq!(placed("vm-2p8g", json!({"tags": ["ssd"]})), None);
    assert_eq!(placed("dc-1g", json!({"need_memory": "48g"})).as_deref(), Some(a61));
    assert_eq!(placed("dc-1g", json!({"need_memory": "65g"})), None, "more than any of its architecture has");
}

#[test]
fn what_cannot_be_met_is_refused_at_once() {
    let lab = Lab::open(&[]);
    let group = "taishan200-2280-2s64p-256g";
    let (status, why) = lab.refused(&job(group, &json!({"target_machines": ["other--a1"]})));
    assert!(
        status == 400 && why.contains(&format!("target_machines names none that is testbox '{group}'")),
        "{why}"
    );
    let (status, why) =
        lab.refused(&job(&format!("{group}--a61"), &json!({"target_machines": [format!("{group}--a62")]})));
    assert!(status == 400 && why.contains("no machine is left"), "{why}");
    lab.submit(&job(group, &json!({"target_machines": ["other--a1", format!("{group}--a62")]})));
    let devices = |all: Value| job("dc-1g", &json!({"sched": {"devices": all}}));
    let (status, why) = lab.refused(&devices(json!(["hns3", "hinic"])));
    assert!(status == 400 && why.contains("no machine that the job may have has hinic, hns3"), "{why}");
    let one = Provider::open(&lab, "h1", 8_000, &json!({"devices": ["hns3"]}));
    let two = Provider::open(&lab, "h2", 9_000, &json!({"devices": ["hinic"]}));
    crate::support::wait_until("both are known", || {
        ["h1", "h2"].iter().all(|host| lab.windlass(&["workers"]).contains(host))
    });
    assert!(
        lab.refused(&devices(json!(["hns3", "hinic"])))
            .1
            .contains("no machine that the job may have has them all")
    );
    let id = lab.submit(&devices(json!(["hns3"])));
    lab.wait_for(&id, "dispatch");
    assert_eq!(lab.job(&id)["host_machine"], "h1", "although the other has more free");
    drop((one, two));
}

#[test]
fn the_best_cache_is_waited_for_but_not_for_long() {
    let lab = Lab::open(&[]);
    let caches = json!({"cache_dirs": ["1-ccache/redis", "1-git/linux"]});
    let some = json!({"cache_dirs": ["1-git/linux"]});
    let mut most = Provider::open(&lab, "most", 4_000, &caches);
    let _some = Provider::open(&lab, "some", 60_000, &some);
    let _none = Provider::open(&lab, "none", 90_000, &NOTHING);
    crate::support::wait_until("all are known", || {
        ["most", "some", "none"].iter().all(|host| lab.windlass(&["workers"]).contains(host))
    });
    let id = lab.submit(&job("dc-2g", &caches));
    assert_eq!(most.boots(), id);
    // The wait for the preferred machine runs on the engine, in virtual time.
    let mut farm = Farm::new(Charge::Task);
    farm.host("warm", 4, &caches);
    farm.host("cold", 64, &NOTHING);
    let hog = farm.submit_to("bob", "dc-4g", &NOTHING, &["warm"]);
    assert_eq!(farm.booted().first().map(|boot| &*boot.host), Some("warm"), "{}", farm.why(hog));
    let patient = farm.submit_to("ann", "dc-4g", &caches, &["warm"]);
    let late = farm.submit_to("ann", "dc-4g", &caches, &["warm"]);
    farm.pass(10);
    assert_eq!(farm.booted().len(), 0, "the other host has room, and they wait all the same");
    farm.end(hog);
    farm.pass(1);
    let booted = farm.booted();
    assert_eq!((booted.len(), booted[0].job, booted[0].host.as_str()), (1, patient, "warm"));
    farm.pass(15);
    let booted = farm.booted();
    assert_eq!((booted.len(), booted[0].job, booted[0].host.as_str()), (1, late, "cold"));
}

#[test]
fn hosts_of_compass_ci_run_nothing_else_and_its_jobs_run_nowhere_else() {
    let lab = Lab::open(&[]);
    let mut provider = Provider::open(&lab, "h1", 64_000, &NOTHING);
    let submit = lab.farm.run(&["--server", &lab.address, "submit", "-o", "name", "--", "true"]);
    assert_eq!(submit.status.code(), Some(6), "no worker can run it");
    let plain = String::from_utf8(submit.stdout).unwrap();
    let id = lab.submit(&job("dc-1g", &NOTHING));
    assert_eq!(provider.boots(), id);
    let why = lab.windlass(&["why", plain.trim()]);
    assert!(why.contains("takes only the work of another system"), "{why}");
    let submit = ["--server", &lab.address, "submit", "--tag", "executor=compass-ci", "--", "true"];
    let asked = lab.farm.run(&submit);
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(
        !asked.status.success() && said.contains("'executor' is for the work of other systems"),
        "{said}"
    );
}
