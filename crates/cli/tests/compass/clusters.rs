//! Jobs on several machines at once, from their submission to their end.

use super::lab::{Lab, Provider, job};
use crate::support::wait_until;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::Read as _;
use std::time::Duration;

/// A server on bare metal, and a client on each of two providers.
const SPEC: &str = "ip0: 3\nnodes:\n  box1: {roles: [server], macs: ['44:67:47:d7:6d:14']}\n  \
    dc-1g.h1: {roles: [client], macs: ['44:67:47:c9:db:38']}\n  dc-1g.h2: {roles: [client]}\n";
const MAC: &str = "aa-bb-cc-dd-ee-01";

fn cluster_job(more: &Value) -> Value {
    let mut fields = json!({
        "cluster": "cs-s1-c2", "secrets": {"password": "sesame"},
        "daemon": {"nfsd": {"if-role": "server"}},
        "program": {"dd": {"if-role": "client", "depends-on": "nfsd"}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        fields[key] = value.clone();
    }
    job("hw", &fields)
}

/// A laboratory with the cluster and its bare machine.
fn lab() -> Lab {
    let lab = Lab::with_files("", &["initrd/osimage/openeuler/aarch64/22.03/current"]);
    let dir = lab.farm.work().join("lab-z9");
    std::fs::create_dir_all(dir.join("cluster")).unwrap();
    std::fs::write(dir.join("cluster/cs-s1-c2"), SPEC).unwrap();
    let told = lab.windlass_json(&["compass", "import", &dir.display().to_string()]);
    assert_eq!(told, json!([{"file": "cluster/cs-s1-c2", "registered": true}]));
    lab.register(&json!({"hostname": "box1", "arch": "aarch64", "mac_addr": [MAC]}));
    lab
}

/// Submits a cluster's job; returns the numbers of its nodes.
fn submit(lab: &Lab, job: &Value) -> Vec<String> {
    let (status, body) = lab.post("/scheduler/v1/jobs/submit", job);
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    answer.as_array().unwrap().iter().map(|one| one["job_id"].as_str().unwrap().to_owned()).collect()
}

/// The bare machine boots until it gets a job.
fn boot_metal(lab: &Lab) -> String {
    let mut script = String::new();
    wait_until("the machine gets its job", || {
        let (status, text) = lab.boot(MAC);
        script = text;
        status == 200
    });
    script
}

/// The path of the archive of which a host was told, which shows the job's token.
fn archive_path(boot: &str) -> String {
    let at = boot.find("/srv/scheduler/pending-jobs/").unwrap_or_else(|| panic!("{boot}"));
    boot[at..].chars().take_while(|c| !c.is_whitespace() && !"\"\\,".contains(*c)).collect()
}

fn token_of(boot: &str) -> String {
    archive_path(boot).split('/').nth(5).unwrap().to_owned()
}

/// The text of an archive.
fn archive(lab: &Lab, boot: &str) -> String {
    let path = archive_path(boot);
    let (status, _, bytes) = lab.ask_bytes("GET", &path, "", b"");
    assert_eq!(status, 200, "{path}");
    let mut text = Vec::new();
    GzDecoder::new(bytes.as_slice()).read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

fn stages(lab: &Lab, nodes: &[String]) -> Vec<String> {
    nodes.iter().map(|id| lab.job(id)["job_stage"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_nodes_of_a_cluster_start_together_and_end_each_by_itself() {
    let mut lab = lab();
    let nodes = submit(&lab, &cluster_job(&Value::Null));
    let expected = [&nodes[0], &format!("1{:0>12}", nodes[0]), &format!("2{:0>12}", nodes[0])];
    assert_eq!(nodes.iter().collect::<Vec<_>>(), expected);
    let mut first = Provider::open(&lab, "h1", 8_000, &Value::Null);
    let (status, text) = lab.boot(MAC);
    assert!(status == 404 && text.contains("No job now"), "{text}");
    assert_eq!(first.socket.within(Duration::from_millis(200)), None, "one host is missing: nothing starts");
    assert_eq!(stages(&lab, &nodes), ["submit"; 3]);
    let why = lab.windlass(&["why", &nodes[0]]);
    assert!(why.contains("connect compass:h2 for step 'dc-1g.h2', which starts together with it"), "{why}");
    let pending = lab.get("/scheduler/v1/dashboard/jobs/pending?output=json&fields=job_id,testbox").1;
    let rows: Value = serde_json::from_str(&pending).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 3, "{rows}");

    let mut second = Provider::open(&lab, "h2", 8_000, &Value::Null);
    let metal = boot_metal(&lab);
    let boots = [metal, first.boot().to_string(), second.boot().to_string()];
    for (id, boot) in nodes.iter().zip(&boots) {
        assert!(boot.contains(id.as_str()), "{id}: {boot}");
        lab.wait_for(id, "dispatch");
    }
    let told = lab.job(&nodes[1]);
    let roles = json!({&nodes[0]: "server", &nodes[1]: "client", &nodes[2]: "client"});
    assert_eq!(told["cluster_jobs"], roles);
    let shown = ["testbox", "node_roles", "direct_macs", "direct_ips", "nr_nic", "host_machine"];
    let shown = shown.map(|key| told[key].as_str().unwrap_or_default());
    assert_eq!(shown, ["dc-1g.h1", "client", "44:67:47:c9:db:38", "192.168.222.4", "2", "h1"]);
    for id in &nodes {
        let told = lab.job(id);
        for secret in ["secrets", "sealed_secrets", "job_token", "cluster_roles"] {
            assert!(told.get(secret).is_none(), "{id} {secret}");
        }
        assert!(!told.to_string().contains("sesame"), "{told}");
    }
    assert!(
        !told.to_string().contains("wait_peer_jobs"),
        "what is submitted again waits for nobody of before"
    );

    for (node, (id, boot)) in nodes.iter().zip(&boots).enumerate() {
        let text = archive(&lab, boot);
        assert!(text.contains("password: sesame") && text.contains(&format!("job_id: \"{id}\"")), "{text}");
        let wait = nodes.iter().map(|id| format!("{id}.job_stage=wait_peer")).collect::<Vec<_>>().join(" ");
        assert_eq!(text.matches(&format!("wait_peer_jobs {wait}\nupdate_job_vars")).count(), 1, "{text}");
        assert_eq!(
            (text.contains("start_daemon 'nfsd'"), text.contains("run_program 'dd'")),
            (node == 0, node > 0)
        );
        lab.wait_for(id, "boot");
    }
    let meet = json!({&nodes[0]: {"job_stage": "wait_peer"}, &nodes[1]: {"job_stage": "wait_peer"}});
    let asked = json!({"wait_on": meet, "wait_options": {"get_fields": {"ip": null}}});
    assert_eq!(lab.update(&nodes[1], "job_stage=wait_peer&ip=10.0.0.2").0, 200);
    let (status, met) = std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            lab.post("/scheduler/v1/jobs/wait", &json!({"wait_on": {&nodes[0]: {"job_stage": "wait_peer"}}}))
        });
        assert_eq!(lab.update(&nodes[0], "job_stage=wait_peer&ip=10.0.0.1").0, 200);
        waits.join().unwrap()
    });
    assert!(status == 200 && met.contains("wait_peer"), "{met}");
    let (_, met) = lab.post("/scheduler/v1/jobs/wait", &asked);
    let met: Value = serde_json::from_str(&met).unwrap();
    let ips = [&nodes[0], &nodes[1]].map(|id| met["waited_jobs"][id]["ip"].as_str().unwrap_or_default());
    assert_eq!(ips, ["10.0.0.1", "10.0.0.2"], "{met}");

    // In the middle of it the server is killed.
    lab.crash();
    assert_eq!(stages(&lab, &nodes), ["wait_peer", "wait_peer", "boot"]);
    let mut first = Provider::open(&lab, "h1", 7_000, &Value::Null);
    let mut second = Provider::open(&lab, "h2", 7_000, &Value::Null);
    assert_eq!(lab.update(&nodes[2], "job_stage=wait_peer").0, 200);
    for id in &nodes {
        assert_eq!(lab.update(id, "job_stage=running").0, 200);
    }
    // One fails, and is not run again; the others go on.
    first.says(&nodes[1], &json!({"job_health": "fail", "job_stage": "finish"}));
    lab.wait_for(&nodes[1], "finish");
    lab.wait_for_state(&nodes[0], "running");
    assert_eq!(second.socket.within(Duration::from_millis(200)), None);
    assert_eq!(stages(&lab, &nodes), ["running", "finish", "running"]);
    for (node, id) in nodes.iter().enumerate() {
        let root = lab.job(id)["result_root"].as_str().unwrap().to_owned();
        assert!(root.ends_with(&format!("/{id}")), "{root}");
        let token = token_of(&boots[node]);
        let put = format!("{root}/out?job_id={id}&job_token={token}");
        let (status, said) = lab.ask("PUT", &put, "", "result");
        assert_eq!(status, 200, "{put}: {said}");
        let other = &nodes[(node + 1) % 3];
        assert_eq!(lab.ask("PUT", &format!("{root}/x?job_id={other}&job_token={token}"), "", "x").0, 401);
        assert_eq!(lab.update(id, "job_stage=finish&job_data_readiness=uploaded").0, 200);
    }
    lab.wait_for_state(&nodes[0], "failed");
    assert_eq!(lab.job(&nodes[0])["job_stage"], "finish");
    assert_eq!(lab.job(&nodes[1])["job_health"], "fail");
    assert_eq!(lab.update(&nodes[2], "job_stage=running").0, 423);
}

#[test]
fn a_node_is_terminated_alone_and_cancelled_with_all() {
    let mut lab = lab();
    let me = json!({"my_account": "ann", "my_token": "x"});
    let ends = |lab: &Lab, id: &str, how: &str| lab.post(&format!("/scheduler/v1/jobs/{id}/{how}"), &me).0;
    let waiting = lab.submit(&job("dc-400g", &Value::Null));
    let held = submit(&lab, &cluster_job(&json!({"wait_on": {&waiting: null}})));
    assert_eq!(ends(&lab, &held[2], "cancel"), 200);
    held.iter().for_each(|id| lab.wait_for(id, "cancel"));

    let nodes = submit(&lab, &cluster_job(&Value::Null));
    let others = lab.submit(&job("dc-1g.h1", &json!({"wait_on": {&nodes[2]: {"job_stage": "finish"}}})));
    let mut first = Provider::open(&lab, "h1", 8_000, &Value::Null);
    let mut second = Provider::open(&lab, "h2", 8_000, &Value::Null);
    boot_metal(&lab);
    assert_eq!((first.boots(), second.boots()), (nodes[1].clone(), nodes[2].clone()));
    nodes.iter().for_each(|id| lab.wait_for(id, "dispatch"));
    assert_eq!((ends(&lab, &nodes[0], "cancel"), ends(&lab, &nodes[2], "terminate")), (403, 200));
    let terminate = json!({"type": "terminate-job", "job_id": nodes[2]});
    assert_eq!(second.socket.next(), terminate);
    // A server that is started again repeats it.
    lab.crash();
    let mut first = Provider::open(&lab, "h1", 7_000, &Value::Null);
    let mut second = Provider::open(&lab, "h2", 7_000, &Value::Null);
    assert_eq!(second.socket.next(), terminate);
    second.says(&nodes[2], &json!({"job_stage": "finish", "job_data_readiness": "incomplete"}));
    lab.wait_for(&nodes[2], "finish");
    assert_eq!(lab.job(&nodes[2])["job_health"], "terminate");
    assert_eq!(first.boots(), others, "who waits for a node waits for no other");
    for id in &nodes[..2] {
        assert_eq!(lab.update(id, "job_stage=finish&job_data_readiness=uploaded").0, 200);
    }
    lab.wait_for_state(&nodes[0], "failed");
}

#[test]
fn all_nodes_start_again_where_a_host_is_lost() {
    let lab = Lab::open(&[]);
    let spec = json!({"nodes": {"dc-1g.h1": {"roles": ["server"]}, "dc-1g.h2": {"roles": ["client"]}}});
    let nodes = submit(&lab, &cluster_job(&json!({"cluster_spec": spec})));
    let mut first = Provider::open(&lab, "h1", 8_000, &Value::Null);
    let mut lost = Provider::open(&lab, "h2", 8_000, &Value::Null);
    assert_eq!((first.boots(), lost.boots()), (nodes[0].clone(), nodes[1].clone()));
    nodes.iter().for_each(|id| lab.wait_for(id, "dispatch"));
    drop(lost);
    wait_until("the host is suspect", || {
        lab.windlass_json(&["worker", "show", "compass:h2"])["state"] == "suspect"
    });
    lab.windlass(&["worker", "forget", "compass:h2"]);
    assert_eq!(first.socket.next(), json!({"type": "terminate-job", "job_id": nodes[0]}));
    first.says(&nodes[0], &json!({"job_stage": "finish", "job_data_readiness": "incomplete"}));
    nodes.iter().for_each(|id| lab.wait_for(id, "submit"));
    assert_eq!(first.socket.within(Duration::from_millis(200)), None, "it waits for the other");
    let mut second = Provider::open(&lab, "h2", 8_000, &Value::Null);
    assert_eq!(first.boots(), nodes[0]);
    let told = [second.socket.next(), second.socket.next()];
    assert_eq!(told.each_ref().map(|one| &one["job_id"]), [nodes[1].as_str(); 2], "{told:?}");
    assert_eq!((&told[0]["type"], &told[1]["type"]), (&json!("terminate-job"), &json!("boot-job")));
    first.done(&nodes[0]);
    second.done(&nodes[1]);
    lab.wait_for_state(&nodes[0], "succeeded");
    assert_eq!(stages(&lab, &nodes), ["finish"; 2]);
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    let lab = lab();
    for (more, why) in [
        (json!({"cluster": "other"}), "cluster: there is no cluster 'other': give cluster_spec in the job"),
        (json!({"cluster_spec": {"nodes": {"a/b": {"roles": ["server"]}}}}), "invalid testbox 'a/b'"),
        (json!({"daemon": null, "program": {"dd": null}}), "no daemon and no program says by if-role"),
        (
            json!({"program": null, "daemon": {"x": {"if-role": "none"}}}),
            "no node of it has one of the roles none",
        ),
    ] {
        let (status, said) = lab.refused(&cluster_job(&more));
        assert!(status == 400 && said.contains(why), "{more}: {status} {said}");
    }
    let once = json!({"max_run": 1, "cluster_spec": {"nodes": {"dc-1g": {"roles": "server"}, "dc-2g": {"roles": "client"}}}});
    assert_eq!(submit(&lab, &cluster_job(&once)).len(), 2);
    let (status, said) = lab.refused(&cluster_job(&once));
    assert!(status == 409 && said.contains("the total number is 1"), "{status} {said}");
    let whole = json!({"matrix": {"os_version": ["a", "b"]}});
    assert_eq!(submit(&lab, &cluster_job(&whole)).len(), 6);
    let (status, spec) = lab.get("/scheduler/v1/clusters/cs-s1-c2");
    assert!(status == 200 && spec.contains(r#""host":"dc-1g.h1""#), "{spec}");
    for (path, status) in [("clusters/none", 404), ("clusters/a%2Fb", 404)] {
        assert_eq!(lab.get(&format!("/scheduler/v1/{path}")).0, status, "{path}");
    }
    let (status, said) = lab.ask("POST", "/scheduler/v1/clusters/bad", "", "nodes: {}");
    assert!(status == 400 && said.contains("cluster 'bad': it has no nodes"), "{status} {said}");
}

#[test]
fn a_node_waits_for_others_with_its_own_token() {
    let lab = Lab::open(&["--auth", "--insecure-plaintext"]);
    let socket = format!("unix:{}", lab.farm.state().join("admin.sock").display());
    let token = |flags: &[&str]| {
        lab.farm.ok(&[&["--server", &socket, "token", "create"], flags].concat()).trim().to_owned()
    };
    let (root, ann) = (token(&["--role", "admin"]), token(&["--role", "user", "--user", "ann"]));
    let box1 = token(&["--role", "worker", "--worker", "box1"]);
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let register =
        |head: &str| lab.ask("POST", "/scheduler/v1/clusters/c1", head, "nodes: {box1: {roles: server}}").0;
    assert_eq!((register(""), register(&bearer(&ann)), register(&bearer(&box1))), (401, 403, 403));
    assert_eq!(register(&bearer(&root)), 200);
    let host = json!({"hostname": "box1", "arch": "aarch64", "mac_addr": [MAC]}).to_string();
    assert_eq!(lab.ask("POST", "/scheduler/v1/hosts/box1", &bearer(&box1), &host).0, 200);
    let nodes = submit(&lab, &cluster_job(&json!({"cluster": "c1", "my_token": ann})));
    let dispatch = format!("/scheduler/v1/jobs/dispatch?mac={MAC}");
    let (status, text) = lab.ask("GET", &dispatch, &bearer(&box1), "");
    assert_eq!(status, 200, "{text}");
    let body = json!({"wait_on": {&nodes[0]: {"job_stage": "dispatch"}}, "job_id": nodes[0]});
    let wait = |query: &str, body: &Value| lab.post(&format!("/scheduler/v1/jobs/wait{query}"), body).0;
    let mut shown = body.clone();
    shown["job_token"] = token_of(&text).into();
    let query = format!("?job_id={}&job_token={}", nodes[0], token_of(&text));
    assert_eq!((wait("", &shown), wait(&query, &body)), (200, 200));
    shown["job_token"] = "00".into();
    assert_ne!(wait("", &shown), 200);
    assert_ne!(wait("", &body), 200);
}
