//! Jobs from their submission to their end.

use super::lab::{Lab, Provider, job, job_of};
use serde_json::{Value, json};
use std::time::Duration;

const NOTHING: Value = Value::Null;

#[test]
fn a_provider_boots_virtual_machines_and_containers_and_finishes_them() {
    let lab = Lab::open(&[]);
    let vm = lab.submit(&job("vm-2p8g", &NOTHING));
    let dc = lab.submit(&job("dc-8g", &json!({"cache_dirs": ["1-ccache/iperf"], "hw": {"nr_cpu": 4}})));
    assert_eq!(lab.job(&vm)["job_stage"], "submit");
    let mut provider = Provider::open(&lab, "taishan200-2280-2s48p-256g--a66", 32_000, &NOTHING);
    let (first, second) = (provider.boot(), provider.boot());
    assert_eq!((&first["job_id"], &second["job_id"]), (&json!(vm), &json!(dc)), "in the order of submission");
    assert_eq!((&first["tbox_type"], &first["tbox_group"]), (&json!("vm"), &json!("vm-2p8g")));
    let script = first["ipxe_script"].as_str().unwrap();
    assert!(script.starts_with("#!ipxe\n") && script.contains("initrd http://os/initrd.cgz\n"), "{script}");
    assert!(script.contains("kernel http://os/vmlinuz user=lkp initrd=initrd.cgz"), "{script}");
    assert_eq!((&second["tbox_type"], &second["docker_image"]), (&json!("dc"), &json!("openeuler:22.03")));
    assert_eq!((&second["cache_dirs"], &second["nr_cpu"]), (&json!("1-ccache/iperf"), &json!("4")));
    for boot in [&first, &second] {
        assert!(boot["job_token"].as_str().unwrap().len() >= 32);
        assert!(boot["result_root"].as_str().unwrap().starts_with("/result/iperf/"), "{boot}");
    }
    lab.wait_for(&vm, "dispatch");
    // One job reports through its provider, the other by itself.
    provider.says(&vm, &json!({"job_stage": "boot"}));
    lab.wait_for(&vm, "boot");
    provider.done(&vm);
    lab.wait_for(&vm, "finish");
    for stage in ["boot", "running", "post_run"] {
        assert_eq!(lab.update(&dc, &format!("job_stage={stage}")), (200, String::new()));
        assert_eq!(lab.job(&dc)["job_stage"], stage);
    }
    assert_eq!(lab.update(&dc, "job_health=fail&job_stage=finish").0, 200);
    assert_eq!(lab.update(&dc, "job_data_readiness=uploaded").0, 200);
    let seen = lab.job(&dc);
    assert_eq!((&seen["job_stage"], &seen["job_health"]), (&json!("finish"), &json!("fail")));
    assert_eq!((&seen["istage"], &seen["ihealth"]), (&json!(9), &json!(2)));
    assert_eq!(
        (&seen["job_data_readiness"], &seen["last_success_stage"]),
        (&json!("complete"), &json!("post_run"))
    );
    assert_eq!(seen["host_machine"], "taishan200-2280-2s48p-256g--a66");
    lab.wait_for_state(&vm, "succeeded");
    lab.wait_for_state(&dc, "failed");
    let (status, text) = lab.update(&dc, "job_stage=running");
    assert_eq!((status, text.as_str()), (423, "Warning: Job closed, cannot update"));
}

#[test]
fn bare_metal_boots_one_job_at_a_time() {
    let lab = Lab::open(&[]);
    let (machine, mac) = ("taishan200-2280-2s64p-256g--a61", "44-67-47-85-D5-48");
    let (status, text) = lab.boot(mac);
    assert_eq!(status, 404);
    assert!(text.starts_with("#!ipxe\n") && text.contains("No job"), "{text}");
    let again = "chain /boot.ipxe/mac/${mac:hexhyp}";
    assert!(text.contains(again), "{text}");
    lab.register(&json!({"hostname": machine, "arch": "aarch64", "nr_cpu": 64, "memory": "256G",
        "mac_addr": ["44:67:47:85:d5:48"]}));
    let ids: Vec<String> =
        [machine, "taishan200-2280-2s64p-256g", "hw"].map(|t| lab.submit(&job(t, &NOTHING))).into();
    for id in &ids {
        let (status, text) = lab.boot(mac);
        assert_eq!(status, 200, "{text}\n{}", lab.log());
        assert!(text.starts_with("#!ipxe\n") && text.ends_with("\nboot\n"), "{text}");
        assert!(text.contains(&format!("job id={id},")), "{text}");
        lab.wait_for(id, "dispatch");
        // The machine never booted: it gets the same job again, and no other.
        assert_eq!(lab.boot(mac), (200, text));
        for stage in ["boot", "running", "finish"] {
            assert_eq!(lab.update(id, &format!("job_stage={stage}")).0, 200);
        }
        lab.wait_for_state(id, "succeeded");
    }
    // Results come later.
    assert_eq!(lab.update(&ids[0], "job_data_readiness=uploaded").0, 200);
    assert_eq!(lab.update(&ids[0], "job_data_readiness=uploaded").0, 423);
}

#[test]
fn a_machine_that_waits_gets_a_job_that_comes() {
    let lab = Lab::open(&[]);
    lab.register(&json!({"hostname": "box1", "arch": "aarch64", "mac_addr": ["aa-bb-cc-dd-ee-01"]}));
    let waiting = std::thread::scope(|scope| {
        let boot = scope.spawn(|| lab.get("/boot.ipxe/mac/AA-BB-CC-DD-EE-01?arch=aarch64"));
        let id = lab.submit(&job("box1", &NOTHING));
        (boot.join().unwrap(), id)
    });
    let ((status, text), id) = waiting;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(&format!("job id={id},")), "{text}");
    // The machine boots again in the middle of its job: the job has ended.
    assert_eq!(lab.update(&id, "job_stage=boot").0, 200);
    assert_eq!(lab.boot("aa-bb-cc-dd-ee-01").0, 404);
    let seen = lab.job(&id);
    assert_eq!((&seen["job_stage"], &seen["job_health"]), (&json!("finish"), &json!("abort")));
    lab.wait_for_state(&id, "failed");
}

#[test]
fn a_job_is_shown_as_it_was_submitted_but_for_secrets() {
    let lab = Lab::open(&[]);
    let submitted = job(
        "vm-2p8g",
        &json!({
            "unknown": {"deep": [1, {"x": null}]}, "secrets": {"pw": "x"}, "pkg_data": {"lkp": {"tag": "t"}},
            "my_ssh_pubkey": ["ssh-rsa x"], "pp": {"iperf": {"protocol": "tcp"}}, "id": "stale", "job_stage": "finish",
        }),
    );
    let id = lab.submit(&submitted);
    let seen = lab.job(&id);
    assert_eq!((&seen["unknown"], &seen["pp"]), (&submitted["unknown"], &submitted["pp"]));
    assert_eq!((&seen["id"], &seen["my_account"]), (&json!(id), &json!("ann")));
    assert_eq!((&seen["job_stage"], &seen["timeout_seconds"]), (&json!("submit"), &json!(300 + 300 + 17)));
    for secret in ["my_token", "my_email", "secrets", "pkg_data", "my_ssh_pubkey", "job_token"] {
        assert!(seen.get(secret).is_none(), "{secret}: {seen}");
    }
    let (_, some) = lab.get(&format!("/scheduler/v1/jobs/{id}?fields=suite,job_stage,my_token"));
    assert_eq!(
        serde_json::from_str::<Value>(&some).unwrap(),
        json!({"suite": "iperf", "job_stage": "submit"})
    );
    let (status, body) = lab.get("/scheduler/v1/jobs/99999");
    assert_eq!((status, body.as_str()), (404, r#"{"error":"Job not found"}"#));
    assert_eq!(lab.get("/scheduler/v1/jobs/nonsense").0, 404);
}

#[test]
fn jobs_wait_for_jobs() {
    let lab = Lab::open(&[]);
    let first = lab.submit(&job("dc-1g", &NOTHING));
    let on = |condition: Value, options: Value| {
        let more = json!({"wait_on": {&first: condition}, "wait_options": options});
        lab.submit(&job("dc-1g", &more))
    };
    let booted = on(json!({"job_stage": "boot"}), NOTHING);
    let ready = on(json!({"milestones": "db-ready"}), json!({"get_fields": {"milestones": null}}));
    let complete = on(NOTHING, NOTHING);
    let careful = on(json!({"job_stage": "post_run"}), json!({"fail_fast": null}));
    let never = on(json!({"milestones": "never-said"}), NOTHING);
    let last =
        lab.submit(&job("dc-1g", &json!({"wait_on": {&careful: null}, "wait_options": {"fail_fast": null}})));
    let mut provider = Provider::open(&lab, "h1", 64_000, &NOTHING);
    assert_eq!(provider.boots(), first);
    assert_eq!(provider.socket.within(Duration::from_millis(300)), None, "all others wait");
    assert_eq!(lab.update(&first, "job_stage=boot").0, 200);
    assert_eq!(provider.boots(), booted);
    assert_eq!(lab.update(&first, "milestones=x,db-ready").0, 200);
    assert_eq!(provider.boots(), ready);
    let told = lab.job(&ready);
    assert_eq!(told["waited_jobs"][&first]["milestones"], "x db-ready", "{told}");
    // The job fails: a job that waits for it with fail_fast fails, and so does the job that waits for that one.
    assert_eq!(lab.update(&first, "job_health=oom").0, 200);
    lab.wait_for(&careful, "abort_wait");
    lab.wait_for(&last, "abort_wait");
    assert_eq!(lab.update(&first, "job_stage=finish&job_data_readiness=complete").0, 200);
    assert_eq!(provider.boots(), complete);
    lab.wait_for(&never, "abort_wait");
    let seen = lab.job(&never);
    assert_eq!((&seen["job_health"], &seen["job_data_readiness"]), (&json!("abort_wait"), &json!("norun")));
    let (status, why) = lab.refused(&job("dc-1g", &json!({"wait_on": {"4711": null}})));
    assert_eq!((status, why.as_str()), (400, "wait_on: there is no job 4711"));
}

#[test]
fn clients_wait_for_jobs() {
    let lab = Lab::open(&[]);
    let (one, two) = (lab.submit(&job("dc-1g", &NOTHING)), lab.submit(&job("dc-1g", &NOTHING)));
    let mut provider = Provider::open(&lab, "h1", 64_000, &NOTHING);
    assert_eq!((provider.boots(), provider.boots()), (one.clone(), two.clone()));
    let wait = |wait_on: &Value, options: &Value| {
        let body = json!({"wait_on": wait_on, "wait_options": options});
        let (status, body) = lab.post("/scheduler/v1/jobs/wait", &body);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    let spec = json!({&one: {"job_stage": "running"}, &two: null});
    let answer = std::thread::scope(|scope| {
        let waits = scope.spawn(|| wait(&spec, &json!({"get_fields": {"suite": null}})));
        assert_eq!(lab.update(&one, "job_stage=running").0, 200);
        waits.join().unwrap()
    });
    assert_eq!(answer["wait_on"], json!({&two: null}), "{answer}");
    let told = &answer["waited_jobs"][&one];
    assert_eq!((&told["job_stage"], &told["suite"]), (&json!("running"), &json!("iperf")));
    provider.done(&two);
    lab.wait_for(&two, "finish");
    let answer = wait(&answer["wait_on"], &NOTHING);
    assert!(answer.get("wait_on").is_none() && answer["waited_jobs"].get(&two).is_some(), "{answer}");
    // A failed job ends the wait of a client that asked for fail_fast.
    assert_eq!(lab.update(&one, "job_health=kernel_panic").0, 200);
    let answer = wait(&json!({&one: {"job_stage": "finish"}}), &json!({"fail_fast": null}));
    assert_eq!(answer["wait_options"]["fail_fast"], json!({"failed_job": one}), "{answer}");
    assert_eq!(lab.post("/scheduler/v1/jobs/wait", &json!({"wait_on": {"4711": null}})).0, 404);
}

#[test]
fn a_job_is_cancelled_before_it_runs_and_terminated_after() {
    let lab = Lab::open(&[]);
    let whose = json!({"my_account": "ann", "my_token": "secret-token"});
    let act = |id: &str, verb: &str| lab.post(&format!("/scheduler/v1/jobs/{id}/{verb}"), &whose);
    let waiting = lab.submit(&job("dc-1g", &NOTHING));
    assert_eq!(act(&waiting, "terminate"), (403, "Job not running".to_owned()));
    assert_eq!(act(&waiting, "cancel"), (200, "Success".to_owned()));
    let seen = lab.job(&waiting);
    assert_eq!((&seen["job_stage"], &seen["job_health"]), (&json!("cancel"), &json!("cancel")));
    assert_eq!(seen["job_data_readiness"], "norun");
    assert_eq!(act(&waiting, "cancel").0, 403);
    assert_eq!(act("4711", "cancel"), (404, "Job not found".to_owned()));
    let running = lab.submit(&job("vm-2p8g", &NOTHING));
    let mut provider = Provider::open(&lab, "h1", 64_000, &NOTHING);
    assert_eq!(provider.boots(), running, "what is cancelled is given to nobody");
    lab.wait_for(&running, "dispatch");
    assert_eq!(act(&running, "cancel"), (403, "Job already running".to_owned()));
    assert_eq!(act(&running, "terminate").0, 200);
    assert_eq!(provider.socket.next(), json!({"type": "terminate-job", "job_id": running}));
    assert_eq!(lab.job(&running)["job_stage"], "dispatch", "it has not ended before its provider says so");
    provider.says(&running, &json!({"job_health": "terminate", "job_stage": "finish"}));
    lab.wait_for(&running, "finish");
    lab.wait_for_state(&running, "canceled");
}

#[test]
fn clients_watch_jobs_read_what_they_print_and_type_into_them() {
    let lab = Lab::open(&[]);
    let id = lab.submit(&job("vm-2p8g", &NOTHING));
    let mut client = lab.socket("/scheduler/v1/client");
    let welcome = client.next();
    assert_eq!((&welcome["type"], &welcome["status"]), (&json!("welcome"), &json!("connected")));
    let mut say = |kind: &str, more: &str| {
        client.send_text(&format!(r#"{{"type":"{kind}","job_id":"{id}"{more}}}"#));
    };
    say("watch-job-event", "");
    say("watch-job-log", "");
    say("request-console", "");
    let mut provider = Provider::open(&lab, "h1", 64_000, &NOTHING);
    assert_eq!(provider.boots(), id);
    // A request from before the job was dispatched waits for the machine that gets the job.
    let waited =
        [provider.socket.next(), provider.socket.next()].map(|m| m["type"].as_str().unwrap().to_owned());
    assert_eq!(waited, ["watch-job-log", "request-console"]);
    say("console-input", r#","data":"ls""#);
    assert_eq!(provider.socket.next()["data"], "ls");
    for kind in ["job-log", "console-output"] {
        provider.socket.send(&json!({"type": kind, "job_id": id, "data": "aGk="}));
        assert_eq!(client.next(), json!({"type": kind, "job_id": id, "data": "aGk="}));
    }
    assert_eq!(lab.update(&id, "job_stage=running&job_step=smoke").0, 200);
    let event = client.next();
    assert_eq!((&event["job_stage"], &event["job_step"]), (&json!("running"), &json!("smoke")));
    provider.done(&id);
    assert_eq!(client.next()["job_data_readiness"], "uploaded");
    assert_eq!(client.next(), json!({"type": "job-close", "job_id": id}));
    for (bad, why) in [
        ("{", "Invalid JSON format"),
        ("[]", "Invalid message format"),
        ("{}", "Missing message type"),
        (r#"{"type":"watch-job-event"}"#, "Invalid or missing job_id"),
        (r#"{"type":"watch-job-event","job_id":"4711"}"#, "Job 4711 not found"),
    ] {
        client.send_text(bad);
        assert_eq!(client.next(), json!({"type": "error", "message": why}));
    }
}

#[test]
fn lists_are_for_people_and_programs() {
    let lab = Lab::open(&[]);
    for path in ["/", "/scheduler/v1/health"] {
        let (status, text) = lab.get(path);
        assert_eq!(status, 200);
        assert!(
            text.starts_with("Compass CI scheduler is alive. Time: ") && text.contains("Version: "),
            "{text}"
        );
    }
    let one = lab.submit(&job_of("ann", "vm-2p8g", &NOTHING));
    let two = lab.submit(&job_of("bob", "dc-1g", &json!({"suite": "lkp"})));
    let list = |path: &str| lab.get(&format!("/scheduler/v1/dashboard/{path}")).1;
    let text = list("jobs/pending?output=text&fields=job_id,my_account,suite&sort=job_id&order=desc");
    assert_eq!(
        text,
        format!("job_id  my_account  suite\n{two:<6}  bob         lkp\n{one:<6}  ann         iperf\n")
    );
    assert_eq!(list("jobs/pending?output=text&fields=job_id&my_account=bob"), format!("job_id\n{two}\n"));
    assert!(list("jobs/pending").contains("<table>"));
    let mut provider = Provider::open(&lab, "h1", 2_000, &NOTHING);
    assert_eq!(provider.boots(), two);
    lab.wait_for(&two, "dispatch");
    let running = list("jobs/running?output=json&fields=job_id,job_stage");
    assert_eq!(running, json!([{"job_id": two, "job_stage": "dispatch"}]).to_string());
    let hosts: Value = serde_json::from_str(&list("hosts?output=json")).unwrap();
    assert_eq!(
        (&hosts[0]["hostname"], &hosts[0]["freemem"], &hosts[0]["nr_jobs"]),
        (&json!("h1"), &json!(2_000), &json!(1))
    );
    assert!(list("accounts?output=text").contains("\nann "));
    let debug: Value = serde_json::from_str(&lab.get("/scheduler/v1/debug/dispatch").1).unwrap();
    assert_eq!(
        (&debug["hosts"]["h1"]["connected"], &debug["queues"]["ann"]["waiting"]),
        (&json!(true), &json!(1))
    );
    let (status, body) = lab.get("/scheduler/v1/hosts/nobody");
    assert_eq!(
        (status, serde_json::from_str::<Value>(&body).unwrap()),
        (404, json!({"error": "Host not found", "hostname": "nobody"}))
    );
    let (status, body) = lab.get("/scheduler/v1/hosts/h1");
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()["nr_cpu"].clone()), (200, json!(64)));
    lab.submit(&job_of("ann", "vm-2p8g", &json!({"target_machines": ["h1", "h2"]})));
    let debug: Value = serde_json::from_str(&lab.get("/scheduler/v1/debug/dispatch").1).unwrap();
    assert_eq!(debug["waiting_by_host"], json!({"h1": 1, "h2": 1}));
    let host: Value = serde_json::from_str(&lab.get("/scheduler/v1/hosts/h1").1).unwrap();
    assert_eq!(host["nr_waiting"], 1);
    assert_eq!(
        list("hosts?output=text&fields=hostname,nr_jobs,nr_waiting"),
        "hostname  nr_jobs  nr_waiting\nh1        1        1\n"
    );
    // For the rest of the scheduler they are jobs and workers like all others.
    assert!(lab.windlass(&["workers"]).contains("h1"));
    assert!(lab.windlass(&["why", &one]).contains("memory"), "{}", lab.windlass(&["why", &one]));
}

#[test]
fn the_command_line_submits_jobs_in_yaml_and_json() {
    let lab = Lab::open(&[]);
    let dir = lab.farm.work();
    let yaml = "suite: iperf\ntestbox: vm-2p8g\nkernel_uri: http://os/vmlinuz\nos: openeuler\nos_version: '22.03'\nos_arch: aarch64\nmy_account: ann\n\
                cache_dirs: [1-ccache/redis]\nhw: {nr_cpu: 2, memory: 8g}\npp:\n  iperf:\n    runtime: 30\n";
    std::fs::write(dir.join("job.yaml"), yaml).unwrap();
    let id =
        lab.windlass(&["submit", "-f", "job.yaml", "-p", "testbox=dc-1g", "--queue", "vip", "-o", "name"]);
    let seen = lab.job(id.trim());
    assert_eq!(
        (&seen["testbox"], &seen["queue"], &seen["my_account"]),
        (&json!("dc-1g"), &json!("vip"), &json!("ann"))
    );
    assert_eq!(seen["pp"]["iperf"]["runtime"], 30);
    std::fs::write(dir.join("job.json"), job("vm-2p8g", &NOTHING).to_string()).unwrap();
    let id = lab.windlass(&["submit", "-f", "job.json", "-o", "name"]);
    assert_eq!(lab.job(id.trim())["testbox"], "vm-2p8g");
    // Over HTTP too, with the content type of YAML.
    let (status, body) = lab.ask("POST", "/submit_job", "Content-Type: application/yaml\r\n", yaml);
    assert_eq!(status, 200, "{body}");
    std::fs::write(dir.join("bad.yaml"), yaml.replace("vm-2p8g", "vm-0p8g")).unwrap();
    let said = lab.farm.fails(2, &["--server", &lab.address, "submit", "-f", "bad.yaml"]);
    assert!(said.contains("invalid size '0p8g'"), "{said}");
}
