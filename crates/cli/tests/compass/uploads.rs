//! Files that come in and go out, accounts, and submissions that stand for more than one job.

use super::lab::{Lab, Provider, job};
use crate::support::Random;
use serde_json::{Value, json};

const NOTHING: Value = Value::Null;

/// A laboratory whose one provider has a running job: the laboratory, the provider, and the message that started the
/// job.
fn running(settings: &str) -> (Lab, Provider, Value) {
    let lab = Lab::with_files(settings, &["os/public", "result/other/out", "scheduler/serial/log"]);
    lab.submit(&job("dc-1g", &NOTHING));
    let mut provider = Provider::open(&lab, "h1", 8_000, &NOTHING);
    let boot = provider.boot();
    (lab, provider, boot)
}

fn text<'a>(boot: &'a Value, key: &str) -> &'a str {
    boot[key].as_str().unwrap()
}

#[test]
fn nothing_is_read_outside_of_the_directory() {
    let (lab, _provider, _) = running("");
    std::fs::write(lab.farm.path().join("outside"), "outside").unwrap();
    std::os::unix::fs::symlink("../../outside", lab.farm.path().join("srv/os/link")).unwrap();
    assert_eq!(lab.get("/srv/os/public"), (200, "os/public".to_owned()));
    for path in [
        "/srv/../outside",
        "/srv/os/../../outside",
        "/srv/%2e%2e/outside",
        "/srv/os/%2e%2e%2f%2e%2e%2foutside",
        "/srv//etc/passwd",
        "/srv/os/link",
        "/srv/os",
        "/srv/os/",
        "/srv/none",
        "/srv/os/public%00",
        "/srv/scheduler/serial/log",
    ] {
        let (status, said) = lab.get(path);
        assert!([400, 403, 404].contains(&status), "{path}: {status} {said}");
        assert!(!said.contains("outside") && !said.contains("root:"), "{path}: {said}");
    }
    let mut random = Random(0x1234_5678_9abc_def1);
    let parts =
        ["..", "%2e%2e", "os", "result", "scheduler", "pending-jobs", "1", "job.cgz", "%00", "", "%ff", "."];
    for _ in 0..300 {
        let path: Vec<&str> =
            (0..1 + random.below(6)).map(|_| parts[random.below(parts.len() as u64) as usize]).collect();
        for method in ["GET", "HEAD", "POST", "PUT"] {
            let (status, said) =
                lab.ask(method, &format!("/srv/{}?job_id=1&job_token=x", path.join("/")), "", "x");
            assert!((400..500).contains(&status), "{method} {path:?}: {status} {said}");
        }
    }
    assert_eq!(lab.get("/scheduler/v1/health").0, 200);
}

#[test]
fn results_are_taken_of_their_own_job_alone() {
    let (lab, mut provider, boot) = running("upload_bytes_max = 1000\nresults_bytes_max = 1500\n");
    lab.submit(&job("dc-1g", &NOTHING));
    let other = provider.boot();
    let (root, id, token) = (text(&boot, "result_root"), text(&boot, "job_id"), text(&boot, "job_token"));
    let put = |method: &str, path: &str, query: &str, body: &str| {
        lab.ask(method, &format!("{path}?{query}"), "", body)
    };
    let own = format!("job_id={id}&job_token={token}");
    let foreign = format!("job_id={id}&job_token={}", text(&other, "job_token"));
    let file = format!("{root}/out");
    for (query, body) in [("", ""), ("job_token=x", "x"), ("job_id=x", "x"), ("job_id=4711&job_token=x", "x")]
    {
        assert_eq!(put("POST", &file, query, body).0, 401, "{query}");
    }
    assert_eq!(put("POST", &file, &foreign, "x"), (401, "Unauthorized - no job".to_owned()));
    assert_eq!(put("POST", &file, &format!("job_id={id}"), "x").0, 401);
    for (path, status) in [
        (format!("{root}/../../x"), 406),
        (format!("{root}/%2e%2e/x"), 406),
        (format!("{root}/.upload-x"), 406),
        (format!("{root}2/x"), 403),
        (root.to_owned(), 403),
        ("/result/other/x".to_owned(), 403),
        (text(&other, "result_root").to_owned() + "/x", 403),
        ("/srv/os/new".to_owned(), 403),
        ("/srv/file-store/ss/x".to_owned(), 403),
    ] {
        assert_eq!(put("POST", &path, &own, "x").0, status, "{path}");
    }
    assert_eq!(put("POST", &file, &own, ""), (400, "Empty body".to_owned()));
    assert_eq!(put("POST", &file, &own, &"x".repeat(1001)).0, 413);
    assert_eq!(put("POST", &file, &own, "first"), (200, "File uploaded successfully".to_owned()));
    assert_eq!(put("PUT", &format!("/srv{file}"), &own, "second"), (409, "File already exists".to_owned()));
    assert_eq!(put("PUT", &format!("/srv{root}/more/big"), &own, &"x".repeat(1000)).0, 200);
    let (status, said) = put("POST", &format!("{root}/last"), &own, &"x".repeat(600));
    assert!(status == 413 && said.contains("results_bytes_max"), "{said}");
    assert_eq!(
        put("POST", &format!("{root}/small"), &own, &"x".repeat(400)).0,
        200,
        "what failed counts no more"
    );
    assert_eq!(lab.get(&format!("/srv{file}")), (200, "first".to_owned()));
    // What users bring must be neither a script nor a page of the board, whose origin it has.
    for path in [format!("/srv{file}"), "/srv/os/public".to_owned(), "/srv/none".to_owned()] {
        let head = lab.ask_bytes("GET", &path, "", b"").1.to_lowercase();
        let isolated = ["x-content-type-options: nosniff", "content-security-policy: sandbox;"];
        assert!(isolated.iter().all(|line| head.contains(line)), "{path}: {head}");
    }
    // Nothing is left of what was refused.
    let dir = lab.farm.path().join("srv").join(root.trim_start_matches('/'));
    let left: std::collections::BTreeSet<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left.into_iter().collect::<Vec<_>>(), ["more", "out", "small"]);
    provider.done(id);
    lab.wait_for(id, "finish");
    assert_eq!(put("POST", &format!("{root}/late"), &own, "x").0, 423);
}

#[test]
fn packages_for_others_are_taken_where_that_is_allowed() {
    let more = json!({"pp": {"makepkg": {"project": "linux"}}});
    let lab = Lab::with_files("shared_uploads = true\n", &[]);
    lab.submit(&job("dc-1g", &more));
    let mut provider = Provider::open(&lab, "h1", 8_000, &NOTHING);
    let boot = provider.boot();
    let own = format!("job_id={}&job_token={}", text(&boot, "job_id"), text(&boot, "job_token"));
    let put = |path: &str| lab.ask("POST", &format!("{path}?{own}"), "", "kernel").0;
    assert_eq!(put("/srv/file-store/ss/pkgbuild/linux/x/vmlinuz"), 200);
    assert_eq!(put("/srv/file-store/other"), 403);
    let vm = json!({"need_file_store": ["ss/pkgbuild/linux/x/vmlinuz"], "ss": {"linux": {"config": "defconfig"}},
        "kernel_uri": null, "initrds_uri": null});
    lab.submit(&job("vm-2p8g", &vm));
    let none = json!({"need_file_store": ["ss/pkgbuild/gcc/x/gcc.cgz"], "ss": {"gcc": {}}});
    let (status, why) = lab.refused(&job("vm-2p8g", &none));
    assert!(status == 400 && why.contains("ss.gcc") && why.contains("does not build packages"), "{why}");
}

#[test]
fn a_client_brings_what_the_file_store_lacks() {
    let lab = Lab::with_files("", &[]);
    // The sum is that of the content below.
    let path = "lkp_src/delta/2025-02-28/abc-900150983cd24fb0d6963f7d28e17f72.cgz";
    let needs = json!({"need_file_store": [path]});
    let (status, body) = lab.post("/scheduler/v1/jobs/submit", &job("dc-1g", &needs));
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer[0]["error"]), (400, &json!("no_file_store")));
    assert_eq!(answer[0]["no_file_store"], json!([path]));
    let brings = |content: &str| json!({"need_file_store": [path], "upload_file_store": {path: content}});
    assert!(lab.refused(&job("dc-1g", &brings("eHl6"))).1.contains("another MD5 sum"));
    lab.submit(&job("dc-1g", &brings("YWJj")));
    assert_eq!(lab.get(&format!("/srv/file-store/{path}")), (200, "abc".to_owned()));
    let package =
        json!({"pkg_data": {"lkp-tests": {"tag": "v1", "md5": "900150983cd24fb0d6963f7d28e17f72"}}});
    let (status, body) = lab.post("/scheduler/v1/jobs/submit", &job("dc-1g", &package));
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer[0]["errcode"]), (400, &json!("RETRY_UPLOAD")), "{body}");
}

#[test]
fn a_matrix_is_several_jobs_and_a_limit_holds_for_those_that_are_alike() {
    let lab = Lab::open(&[]);
    let matrix = json!({"matrix": {"os_version": ["22.03", "24.03"], "pp.iperf.protocol": ["tcp", "udp"]}, "max_run": 1});
    let (status, body) = lab.post("/scheduler/v1/jobs/submit", &job("dc-1g", &matrix));
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert!(status == 200 && answer.as_array().unwrap().len() == 4, "{body}");
    let last = lab.job(answer[3]["job_id"].as_str().unwrap());
    assert_eq!((&last["os_version"], &last["pp"]["iperf"]["protocol"]), (&json!("24.03"), &json!("udp")));
    let same = json!({"os_version": "24.03", "pp": {"iperf": {"protocol": "udp"}}, "max_run": 1});
    let (status, why) = lab.refused(&job("dc-1g", &same));
    assert!(
        status == 409 && why.contains("has reached the limit of max_run=1, the total number is 1"),
        "{why}"
    );
    lab.submit(&job(
        "dc-1g",
        &json!({"os_version": "24.03", "pp": {"iperf": {"protocol": "udp"}}, "max_run": 2}),
    ));
    for (more, why) in [
        (json!({"max_run": "often"}), "max_run: must be a whole number"),
        (json!({"cluster": "cs-s1-c2"}), "cluster: there is no cluster 'cs-s1-c2'"),
        (json!({"matrix": {"os_version": []}}), "matrix: a list of it is empty"),
        (json!({"custom_bootstrap": "x"}), "custom_bootstrap: is not supported"),
        (json!({"upload_fields": {"ss.linux.config": {}}}), "upload_fields: is not supported"),
        (json!({"os_mount": "floppy"}), "os_mount: 'floppy' is not one of initramfs"),
        (json!({"secrets": {"a b": "c"}}), "secrets: 'a b' is not the name of a variable"),
    ] {
        let (status, said) = lab.refused(&job("vm-2p8g", &more));
        assert!(status == 400 && said.contains(why), "{more}: {status} {said}");
    }
}

#[test]
fn accounts_are_made_by_administrators() {
    let lab = Lab::open(&["--auth", "--insecure-plaintext"]);
    let socket = format!("unix:{}", lab.farm.state().join("admin.sock").display());
    let token = |flags: &[&str]| {
        lab.farm.ok(&[&["--server", &socket, "token", "create"], flags].concat()).trim().to_owned()
    };
    let (root, bob) = (token(&["--role", "admin"]), token(&["--role", "user", "--user", "bob"]));
    let make = |name: &str, body: &Value| lab.post(&format!("/scheduler/v1/accounts/{name}"), body);
    for bad in [json!({}), json!({"admin_token": ""}), json!({"admin_token": bob})] {
        let (status, said) = make("ann", &bad);
        assert_eq!((status, said.as_str()), (401, r#"{"error":"Invalid or missing admin token"}"#), "{bad}");
    }
    assert_eq!(lab.ask("POST", "/scheduler/v1/accounts/ann", "", "{").0, 400);
    assert_eq!(make("ann", &json!({"admin_token": root, "my_account": "eve"})).0, 400);
    let (status, said) =
        make("ann", &json!({"admin_token": root, "my_account": "ann", "my_token": "own", "weight": 5}));
    assert!(said.contains("my_token is not taken") && said.contains("weight is not taken"), "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((status, &said["status"], &said["account_name"]), (200, &json!("success"), &json!("ann")));
    let mut own = job("dc-1g", &NOTHING);
    own["my_token"] = said["my_token"].clone();
    lab.submit(&own);
    let (status, again) = make("ann", &json!({"admin_token": root}));
    assert!(status == 200 && !again.contains("wl_"), "{again}");
    let bearer = format!("Authorization: Bearer {bob}\r\n");
    let list = lab.ask("GET", "/scheduler/v1/dashboard/accounts?output=text", &bearer, "").1;
    assert!(list.contains("ann") && list.contains("bob") && !list.contains("single-build"), "{list}");
}
