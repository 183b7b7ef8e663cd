//! Invalid requests, and access rights.

use super::lab::{Lab, Provider, job};
use crate::support::{Random, wait_until};
use serde_json::{Value, json};

const NOTHING: Value = Value::Null;

#[test]
fn jobs_that_are_wrong_say_what_is() {
    let lab = Lab::open(&[]);
    let (status, body) = lab.ask("POST", "/scheduler/v1/jobs/submit", "", "{not json");
    assert_eq!((status, body.as_str()), (400, r#"{"message":"Invalid JSON in request body"}"#));
    let yaml = "Content-Type: application/yaml\r\n";
    let (status, body) = lab.ask("POST", "/scheduler/v1/jobs/submit", yaml, "a: [b");
    assert!(status == 400 && body.contains("Invalid YAML in request body"), "{body}");
    let nobody = json!({"suite": "x"});
    let (status, body) = lab.post("/scheduler/v1/jobs/submit", &nobody);
    assert!(status == 400 && body.starts_with("Missing required job key: my_account"), "{body}");
    for (field, value, why) in [
        ("testbox", NOTHING, "Missing required job key: 'testbox'."),
        ("suite", NOTHING, "Missing required job key: 'suite'."),
        ("os_version", json!(""), "Missing required job key: 'os_version'."),
        ("testbox", json!("vm-0p8g"), "invalid size '0p8g'"),
        ("testbox", json!("../x"), "invalid testbox '../x'"),
        ("suite", json!(["a"]), "invalid type, expect string: Job[suite]"),
        ("priority", json!("high"), "invalid type, expect integer: Job[priority] = high"),
        ("cache_dirs", json!("1-ccache/a"), "invalid type, expect array: Job[cache_dirs]"),
        ("cache_dirs", json!(["ccache/a"]), "must begin with a prefix"),
        ("cache_dirs", json!(["1-a/../b"]), "must not contain '..'"),
        ("cache_dirs", json!(["1-a/"]), "must not end with a '/'"),
        ("cache_dir", json!(["1-a"]), "did you mean cache_dirs"),
        ("hw", json!([1]), "invalid type, expect hash: Job[hw]"),
        ("pp", json!(["a"]), "invalid type, expect hash of hash: Job[pp]"),
        ("pp", json!({"sleep": 1}), "invalid type, expect hash: Job[pp.sleep] = 1"),
        ("need_memory", json!("much"), "is not an amount"),
        ("need_memory", json!(-3), "is not an amount"),
        ("nr_cpu", json!(0), "is not a valid number of processors"),
        ("runtime", json!("soon"), "is not a time"),
        ("timeout", json!(0), "must be more than 0"),
        ("wait_on", json!({"x": null}), "is not a job id"),
        ("my_account", json!("a".repeat(300)), "must be a word"),
    ] {
        let (status, said) = lab.refused(&job("vm-2p8g", &json!({field: value})));
        assert!(status == 400 && said.contains(why), "{field}: {status} {said}");
    }
    let built = json!({"ss": {"linux": {"config": "defconfig"}}, "kernel_uri": null});
    assert!(lab.refused(&job("vm-2p8g", &built)).1.contains("ss: is not supported"));
    let borrowed = json!({"ssh_pub_key": "ssh-rsa x", "runtime": "31d"});
    assert!(lab.refused(&job("hw", &borrowed)).1.contains("30 days"));
    assert_eq!(lab.get("/scheduler/v1/jobs/dispatch").0, 400);
    assert_eq!(lab.get("/scheduler/v1/jobs/dispatch?mac=a&boot_type=lilo").0, 400);
    assert_eq!(lab.post("/scheduler/v1/hosts/a", &json!({"hostname": "b"})).0, 400);
    assert_eq!(lab.post("/scheduler/v1/hosts/a", &json!({"hostname": "a", "memory": "lots"})).0, 400);
    let id = lab.submit(&job("vm-2p8g", &NOTHING));
    assert_eq!(lab.update(&id, "job_stage=boot").0, 400, "no machine has it");
    assert_eq!(lab.update("4711", "job_stage=boot"), (404, "Error: Job not found".to_owned()));
}

#[test]
fn stages_do_not_go_back() {
    let lab = Lab::open(&[]);
    let id = lab.submit(&job("dc-1g", &NOTHING));
    let mut provider = Provider::open(&lab, "h1", 8_000, &NOTHING);
    assert_eq!(provider.boots(), id);
    assert_eq!(lab.update(&id, "job_stage=running").0, 200);
    let (status, why) = lab.update(&id, "job_stage=boot");
    assert_eq!((status, why.as_str()), (400, "Error: job_stage cannot go back from running to boot"));
    assert_eq!(lab.update(&id, "job_stage=dancing"), (400, "Error: Unknown job_stage=dancing".to_owned()));
    let (status, until) = lab.update(&id, "renew_seconds=7200");
    assert!(status == 200 && until.contains('T'), "{until}");
    assert_eq!(lab.update(&id, "renew_seconds=-1").0, 400);
    assert_eq!(lab.job(&id)["job_stage"], "running");
}

#[test]
fn nonsense_of_providers_and_clients_disturbs_nobody() {
    let lab = Lab::open(&[]);
    let mut provider = Provider::open(&lab, "h1", 8_000, &NOTHING);
    let mut random = Random(0x1234_5678_9abc_def1);
    let words = ["host-job-request", "job-update", "job-log", "console-output", "", "x", "watch-job-log"];
    for _ in 0..2_000 {
        let mut noise = provider.request.to_string().into_bytes();
        for _ in 0..random.below(4) {
            let at = random.below(noise.len() as u64) as usize;
            noise[at] = b"{}[]\",:-0e9x"[random.below(12) as usize];
        }
        let ids = [json!("1"), json!(-1), json!([]), NOTHING, json!("999999999999999999999")];
        let id = ids[random.below(5) as usize].clone();
        let odd = json!({"type": words[random.below(7) as usize], "job_id": id, "job_stage": ["boot"], "x": NOTHING});
        provider.socket.send_text(&String::from_utf8_lossy(&noise));
        provider.socket.send(&odd);
    }
    let mut client = lab.socket("/scheduler/v1/client");
    assert_eq!(client.next()["type"], "welcome");
    for n in 0..500u64 {
        let id = if n % 3 == 0 { json!("1") } else { json!(random.next()) };
        client.send(&json!({"type": words[random.below(7) as usize], "job_id": id}));
        assert_eq!(client.next()["type"], "error");
    }
    let bad = [
        json!({"freemem": -1}),
        json!({"hostname": "h2"}),
        json!({"arch": "a b"}),
        json!({"tbox_type": "x"}),
    ];
    let mut other = Provider::open(&lab, "h9", 1_000, &json!({"freemem": "many"}));
    assert!(other.socket.next()["message"].as_str().unwrap().starts_with("freemem must be"));
    for wrong in bad {
        let mut request = other.request.clone();
        request["freemem"] = json!(1_000);
        for (key, value) in wrong.as_object().unwrap() {
            request[key] = value.clone();
        }
        other.socket.send(&request);
        let why = other.socket.next();
        assert_eq!(why["type"], "error", "{wrong}: {why}");
    }
    // No connection was closed, and work goes on.
    let id = lab.submit(&job("dc-1g", &NOTHING));
    provider.ask();
    let booted =
        std::iter::repeat_with(|| provider.socket.next()).find(|message| message["type"] == "boot-job");
    assert_eq!(booted.unwrap()["job_id"], id);
}

#[test]
fn a_name_is_one_providers_at_a_time() {
    let lab = Lab::open(&[]);
    let mut first = Provider::open(&lab, "h1", 8_000, &NOTHING);
    let mut second = Provider::open(&lab, "h1", 8_000, &NOTHING);
    assert!(first.socket.is_closed());
    let id = lab.submit(&job("dc-1g", &NOTHING));
    assert_eq!(second.boots(), id);
}

#[test]
fn where_tokens_are_asked_for_all_ways_to_show_them_are_checked() {
    let lab = Lab::open(&["--auth", "--insecure-plaintext"]);
    let socket = format!("unix:{}", lab.farm.state().join("admin.sock").display());
    let token = |flags: &[&str]| {
        lab.farm.ok(&[&["--server", &socket, "token", "create"], flags].concat()).trim().to_owned()
    };
    let (ann, bob) =
        (token(&["--role", "user", "--user", "ann"]), token(&["--role", "user", "--user", "bob"]));
    let (h1, box1) =
        (token(&["--role", "worker", "--worker", "h1"]), token(&["--role", "worker", "--worker", "box1"]));
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let submit = |account: &str, token: &str| {
        let mut job = job("dc-1g", &NOTHING);
        (job["my_account"], job["my_token"]) = (account.into(), token.into());
        lab.post("/scheduler/v1/jobs/submit", &job)
    };
    assert_eq!(submit("ann", "wrong").0, 401);
    assert_eq!(submit("ann", &bob).0, 401);
    assert_eq!(submit("zoe", &ann), (404, "Account zoe not found".to_owned()));
    assert_eq!(submit("ann", &h1).0, 401, "a host submits nothing");
    let (status, body) = submit("ann", &ann);
    assert_eq!(status, 200, "{body}");
    let id = serde_json::from_str::<Value>(&body).unwrap()[0]["job_id"].as_str().unwrap().to_owned();
    // Reading, hosting and ending need a token; a health check of the scheduler does not.
    let path = format!("/scheduler/v1/jobs/{id}");
    assert_eq!(lab.get("/scheduler/v1/health").0, 200);
    for path in [path.as_str(), "/scheduler/v1/dashboard/jobs/pending", "/scheduler/v1/debug/dispatch"] {
        assert_eq!(lab.get(path).0, 401, "{path}");
        assert_eq!(lab.ask("GET", path, &bearer(&bob), "").0, 200, "{path}");
    }
    assert_eq!(lab.boot("aa-bb-cc-dd-ee-01").0, 401);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let provider = |token: &str| {
        let head = format!("{upgrade}{token}");
        lab.ask("GET", "/scheduler/v1/vm-container-provider/h1", &head, "").0
    };
    assert_eq!(provider(""), 401);
    assert_eq!(provider(&bearer(&ann)), 403);
    assert_eq!(provider(&bearer(&box1)), 403, "another host's");
    // A machine registers itself, and boots with its token as a password.
    let host = json!({"hostname": "box1", "arch": "aarch64", "mac_addr": ["aa-bb-cc-dd-ee-01"]}).to_string();
    assert_eq!(lab.ask("POST", "/scheduler/v1/hosts/box1", &bearer(&h1), &host).0, 403);
    assert_eq!(lab.ask("POST", "/scheduler/v1/hosts/box1", &bearer(&box1), &host).0, 200);
    let metal = json!({"my_account": "ann", "my_token": ann});
    let (status, body) = lab.post("/scheduler/v1/jobs/submit", &job("box1", &metal));
    assert_eq!(status, 200, "{body}");
    let metal = serde_json::from_str::<Value>(&body).unwrap()[0]["job_id"].as_str().unwrap().to_owned();
    let basic = format!("Authorization: Basic {}\r\n", base64(&format!("box1:{box1}")));
    let dispatch = "/scheduler/v1/jobs/dispatch?mac=aa-bb-cc-dd-ee-01";
    let (status, text) = lab.ask("GET", dispatch, &basic, "");
    assert!(status == 200 && text.contains(&format!("job id={metal},")), "{status} {text}");
    // A machine may report about its own job, and others may not.
    let update = format!("/scheduler/v1/jobs/{metal}/update?job_stage=boot");
    assert_eq!(lab.ask("POST", &update, "", "").0, 401);
    assert_eq!(lab.ask("POST", &format!("{update}&job_token=00"), "", "").0, 401);
    assert_eq!(lab.ask("POST", &update, &bearer(&h1), "").0, 401);
    assert_eq!(lab.ask("POST", &update, &bearer(&box1), "").0, 200);
    let end = |id: &str, account: &str, token: &str| {
        let whose = json!({"my_account": account, "my_token": token});
        lab.post(&format!("/scheduler/v1/jobs/{id}/cancel"), &whose).0
    };
    assert_eq!(end(&id, "bob", &bob), 403, "another user's");
    assert_eq!(end(&id, "ann", "wrong"), 401);
    assert_eq!(end(&id, "ann", &ann), 200);
}

#[test]
fn others_are_told_the_outline_of_a_job_however_they_ask() {
    let lab = Lab::open(&["--auth", "--insecure-plaintext"]);
    let socket = format!("unix:{}", lab.farm.state().join("admin.sock").display());
    let token = |user: &str| {
        let create = ["--server", &socket, "token", "create", "--role", "user", "--user", user];
        lab.farm.ok(&create).trim().to_owned()
    };
    let (ann, bob) = (token("ann"), token("bob"));
    let more = json!({"my_token": ann, "program": {"iperf": {"script": "hush"}}, "pp": {"iperf": {"v": "hush"}},
        "remark": "hush"});
    let id = lab.submit(&job("dc-1g", &more));
    let path = format!("/scheduler/v1/jobs/{id}");
    let get =
        |token: &str, path: &str| lab.ask("GET", path, &format!("Authorization: Bearer {token}\r\n"), "").1;
    let of = |token: &str| serde_json::from_str::<Value>(&get(token, &path)).unwrap();
    assert_eq!(of(&ann)["program"]["iperf"]["script"], "hush");
    let shown = of(&bob);
    assert!(!shown.to_string().contains("hush") && shown.get("result_root").is_none(), "{shown}");
    assert_eq!(
        (&shown["suite"], &shown["my_account"], &shown["job_stage"]),
        (&json!("iperf"), &json!("ann"), &json!("submit"))
    );
    let list = "/scheduler/v1/dashboard/jobs/pending?output=json&fields=job_id,program,pp,remark";
    for asked in [format!("{path}?fields=program,pp,remark"), list.to_owned()] {
        assert!(get(&ann, &asked).contains("hush") && !get(&bob, &asked).contains("hush"), "{asked}");
    }
    // A field that is not shown is in no answer to a wait for the job, and a wait cannot be for its value.
    let options = json!({"get_fields": {"remark": null, "suite": null}});
    let wait = |token: &str| {
        let body = json!({"wait_on": {&id: {"job_stage": "submit"}}, "wait_options": options}).to_string();
        let head = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        let (status, said) = lab.ask("POST", "/scheduler/v1/jobs/wait", &head, &body);
        assert_eq!(status, 200, "{said}");
        serde_json::from_str::<Value>(&said).unwrap()["waited_jobs"][&id].clone()
    };
    assert_eq!((&wait(&ann)["remark"], &wait(&bob)["remark"]), (&json!("hush"), &json!("")));
    assert_eq!(wait(&bob)["suite"], "iperf");
    let waiting = |condition: Value| {
        let mut waits = job("dc-1g", &json!({"wait_on": {&id: condition}, "wait_options": options}));
        (waits["my_account"], waits["my_token"]) = ("bob".into(), bob.as_str().into());
        format!("/scheduler/v1/jobs/{}", lab.submit(&waits))
    };
    let (told, guessed) = (waiting(json!({"job_stage": "submit"})), waiting(json!({"remark": "hush"})));
    let of_bob = |path: &str| serde_json::from_str::<Value>(&get(&bob, path)).unwrap();
    wait_until("the job is told of the other", || of_bob(&told).get("waited_jobs").is_some());
    assert_eq!(of_bob(&told)["waited_jobs"][&id]["remark"], "");
    assert!(of_bob(&guessed).get("waited_jobs").is_none());
}

/// Base64 by RFC 4648, for ASCII.
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let parts = text.as_bytes().chunks(3).map(|part| {
        let bits =
            part.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        let digit = |n: usize| match n <= part.len() {
            true => char::from(DIGITS[(bits >> (18 - 6 * n) & 63) as usize]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    });
    parts.collect()
}
