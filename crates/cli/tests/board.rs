//! The board's door: who gets in, as whom, and that no other site's page acts through a person's browser.

use crate::support::browser::Browser;
use crate::support::port::Port;
use crate::support::{Farm, PATIENCE, is_root, show, wait_until};
use std::io::{BufRead, Read};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Message, client};

const SESSION: &str = "/api/v1/board/session";
const ME: &str = "/api/v1/board/me";
const JOB: &str = r#"{"steps": [{"command": ["true"], "cwd": "/"}]}"#;

/// Names and values of headers.
type Headers<'a> = &'a [(&'a str, &'a str)];

fn port() -> (Port, Browser) {
    let port = Port::open(&[]);
    let browser = Browser::new(port.host());
    (port, browser)
}

/// A page's script and the tag that it was given.
fn script(browser: &Browser) -> String {
    let page = browser.ask("GET", "/", &[], "").text();
    let rest = page.split("src=\"").nth(1).unwrap_or_else(|| panic!("no script in {page}"));
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn a_stranger_gets_the_pages_and_no_answer() {
    let (port, browser) = port();
    for path in ["/", "/jobs/12/why", "/workers/box1", "/history"] {
        let page = browser.ask("GET", path, &[], "");
        assert_eq!((page.status, page.header("cache-control")), (200, "no-cache"), "{path}");
        assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self'"));
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    }
    let script = script(&browser);
    let packed = browser.ask("GET", &script, &[("Accept-Encoding", "gzip, zstd")], "");
    assert_eq!((packed.status, packed.header("content-encoding")), (200, "gzip"));
    let tag = packed.header("etag");
    let known = browser.ask("GET", &script, &[("Accept-Encoding", "gzip"), ("If-None-Match", tag)], "");
    assert_eq!((known.status, known.body.len()), (304, 0));
    let head = browser.ask("HEAD", &script, &[("Accept-Encoding", "gzip")], "");
    assert_eq!((head.header("content-length"), head.body.len()), (packed.body.len().to_string().as_str(), 0));
    // A client that takes another form only gets the file as it is, with the tag of that.
    let plain = browser.ask("GET", &script, &[("Accept-Encoding", "zstd")], "");
    assert_eq!((plain.header("content-encoding"), plain.header("etag") == tag), ("", false));
    // Every request of the interface, by its description.
    let document: serde_json::Value = serde_json::from_str(&windlass_server::openapi()).unwrap();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|_| path != "/healthz" && path != SESSION) {
            let path = path.replace("{id}", "1").replace("{name}", "x");
            let answer = browser.ask(&method.to_uppercase(), &path, &[], "");
            assert_eq!(answer.status, 401, "{method} {path}: {}", answer.text());
            asked += 1;
        }
    }
    assert!(asked > 30, "{asked} requests");
    assert_eq!(browser.get("/api/v1/nothing").status, 401);
    assert_eq!(browser.get("/assets/nothing.js").status, 401);
    // Every page that is opened asks whether a user is signed in. It is refused to no user.
    assert!(!port.log().contains("/board/me"), "{}", port.log());
}

#[test]
fn a_session_acts_as_its_token_and_ends_with_it() {
    let (port, mut ann) = port();
    let token = port.token(&["--role", "user", "--user", "ann"]);
    let signed_in = ann.sign_in("token", &token);
    assert_eq!(signed_in.status, 204, "{}", signed_in.text());
    let written = signed_in.header("set-cookie");
    assert!(written.contains("; HttpOnly; SameSite=Strict") && !written.contains("Secure"), "{written}");
    let me = ann.get(ME);
    assert_eq!(me.json()["name"], "ann");
    assert_eq!(
        (me.json()["role"].as_str(), me.json()["signed_in_by"].as_str()),
        (Some("user"), Some("session"))
    );
    assert_eq!(
        (me.header("cache-control"), me.header("cross-origin-resource-policy")),
        ("no-store", "same-origin")
    );
    // As ann, and not as more than ann.
    let job = ann.change("POST", "/api/v1/jobs", JOB);
    assert_eq!(job.status, 201, "{}", job.text());
    port.admin(&["submit", "--cwd", "/", "--", "true"]);
    let others = ann.change("POST", "/api/v1/jobs/2/cancel", "");
    assert_eq!(others.status, 403, "{}", others.text());
    assert_eq!(ann.get("/api/v1/tokens").status, 403);
    assert_eq!(ann.change("POST", "/api/v1/board/codes", "").status, 403);
    let mut viewer = Browser::new(port.host());
    viewer.sign_in("token", &port.token(&["--role", "viewer", "--user", "vera"]));
    assert_eq!(viewer.get("/api/v1/jobs").status, 200);
    assert_eq!(viewer.change("POST", "/api/v1/jobs/1/cancel", "").status, 403);
    assert_eq!(viewer.get("/api/v1/tasks/1.0/log").status, 403, "what a user's task wrote is the user's");
    // The audit log names the person and the session, and nothing has a secret.
    let value = ann.cookie.split_once('=').unwrap().1.to_owned();
    let (id, secret) = value.split_once('_').unwrap();
    wait_until("the audit log has it", || port.audit().contains("/api/v1/jobs/2/cancel"));
    let lines: Vec<serde_json::Value> =
        port.audit().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["path"] == "/api/v1/jobs" && line["session"] == id).unwrap();
    assert_eq!((line["user"].as_str(), line["status"].as_u64()), (Some("ann"), Some(201)));
    let entered = lines.iter().find(|line| line["path"] == SESSION).unwrap();
    assert_eq!((entered["user"].as_str(), entered["status"].as_u64()), (Some("ann"), Some(204)));
    for told in [port.log(), port.audit()] {
        assert!(!told.contains(secret) && !told.contains(token.rsplit('_').next().unwrap()));
    }
    // Signed out here, still signed in elsewhere, until the token is revoked.
    let mut elsewhere = Browser::new(port.host());
    elsewhere.sign_in("token", &token);
    let sessions = |browser: &Browser| {
        let text = browser.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix("windlass_board_sessions "));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    assert_eq!(sessions(&ann), "3", "ann's two and vera's");
    let out = ann.change("DELETE", SESSION, "");
    assert_eq!(sessions(&elsewhere), "2");
    assert_eq!((out.status, out.header("set-cookie").contains("Max-Age=0")), (204, true));
    assert_eq!((ann.get(ME).status, elsewhere.get(ME).status), (401, 200));
    port.admin(&["token", "revoke", token.split('_').nth(1).unwrap()]);
    assert_eq!(elsewhere.get(ME).status, 401);
    assert!(elsewhere.get("/api/v1/jobs").text().contains("session has ended"));
}

/// What tells something of a job's tasks in figures, by how much users may read of each other.
fn figures_of_another(settings: &str) {
    const FIGURES: [&str; 6] = ["overview", "series", "scheduler", "history", "workers", "jobs/pending"];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.toml");
    std::fs::write(&file, settings).unwrap();
    let port = Port::open_in(dir, &["--cpus", "2", "--config", file.to_str().unwrap()]);
    let signed_in = |role: &str, user: &str| {
        let mut browser = Browser::new(port.host());
        browser.sign_in("token", &port.token(&["--role", role, "--user", user]));
        browser
    };
    let (ann, bob, vera) = (signed_in("user", "ann"), signed_in("user", "bob"), signed_in("viewer", "vera"));
    let job = r#"{"name": "film", "steps": [{"command": ["sh", "-c", "sleep 0.1; echo hush-hush"], "cwd": "/",
        "param": {"values": ["hush-1", "hush-2"]}}]}"#;
    let submitted = ann.change("POST", "/api/v1/jobs", job);
    assert_eq!(submitted.status, 201, "{}", submitted.text());
    port.admin(&["job", "wait", "1"]);
    let dearest = |browser: &Browser| {
        let history = browser.get("/api/v1/board/history").json();
        assert_eq!(history["tasks"], 2, "{history}");
        history["expensive"].as_array().unwrap().len()
    };
    let reads_all = settings.contains("all");
    let expected = if reads_all { 2 } else { 0 };
    assert_eq!((dearest(&ann), dearest(&bob), dearest(&vera)), (2, expected, expected));
    for path in FIGURES
        .map(|name| format!("/api/v1/board/{name}"))
        .iter()
        .map(String::as_str)
        .chain(["/api/v1/jobs/1/grid"])
    {
        for browser in [&bob, &vera] {
            let answer = browser.get(path);
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            assert!(!answer.text().contains("hush"), "{path}: {}", answer.text());
        }
    }
    for path in ["/api/v1/tasks/1.0", "/api/v1/jobs/1/tasks", "/api/v1/jobs/1"] {
        assert!(ann.get(path).text().contains("hush"), "{path}");
        assert_eq!(bob.get(path).text().contains("hush"), reads_all, "{path}");
    }
}

#[test]
fn figures_tell_users_nothing_of_others_tasks_by_default() {
    figures_of_another("[auth]\nread = 'own'");
}

#[test]
fn figures_name_the_tasks_of_all_where_all_are_read() {
    figures_of_another("[auth]\nread = 'all'");
}

#[test]
fn a_failed_sign_in_is_refused_and_told() {
    let (port, mut browser) = port();
    let worker = port.token(&["--role", "worker", "--worker", "box1"]);
    let ended = port.token(&["--role", "user", "--user", "ann"]);
    port.admin(&["token", "revoke", ended.split('_').nth(1).unwrap()]);
    let unknown = format!("wl_{}_{}", "0".repeat(12), "0".repeat(64));
    for (what, secret, status, why) in [
        ("token", unknown.as_str(), 401, "not known"),
        ("token", "hunter2", 401, "malformed token"),
        ("token", &ended, 401, "revoked"),
        ("token", &worker, 403, "role does not allow"),
        ("code", &unknown[3..], 401, "this code is not valid"),
        ("cod", "x", 400, "unknown field"),
    ] {
        let answer = browser.sign_in(what, secret);
        assert_eq!((answer.status, answer.header("set-cookie")), (status, ""), "{what} {secret}");
        assert!(answer.text().contains(why), "{why}: {}", answer.text());
        assert!(status == 400 || port.log().contains(why), "{why}: {}", port.log());
    }
    assert_eq!(browser.change("POST", SESSION, "{}").status, 400);
    wait_until("the audit log has it", || {
        port.audit().contains(r#""path":"/api/v1/board/session","status":401"#)
    });
    assert!(!port.log().contains("hunter2") && !port.audit().contains("hunter2"));
}

#[test]
fn no_other_site_acts_through_a_session() {
    let (port, mut browser) = port();
    browser.sign_in("token", &port.token(&["--role", "admin"]));
    let own = format!("http://{}", port.host());
    let (origin, mark, json) =
        (("Origin", own.as_str()), ("X-Windlass-Board", "1"), ("Content-Type", "application/json"));
    let site = |site| ("Sec-Fetch-Site", site);
    let cases: [(&str, &str, Headers<'_>, &str, u16); 17] = [
        ("POST", "/api/v1/jobs", &[origin, mark, json, site("same-origin")], JOB, 201),
        // A form, a script, and a page of another port of this machine, each as browsers send it.
        (
            "POST",
            "/api/v1/jobs",
            &[("Origin", "http://evil.example"), ("Content-Type", "text/plain")],
            JOB,
            403,
        ),
        (
            "POST",
            "/api/v1/jobs",
            &[("Origin", "http://127.0.0.1:1"), site("same-site"), mark, json],
            JOB,
            403,
        ),
        ("POST", "/api/v1/jobs", &[("Origin", "null"), mark, json], JOB, 403),
        ("POST", "/api/v1/jobs", &[origin, json], JOB, 403),
        ("POST", "/api/v1/jobs", &[mark, json], JOB, 403),
        ("POST", "/api/v1/jobs", &[origin, mark, ("Content-Type", "text/plain")], JOB, 403),
        ("POST", "/api/v1/jobs", &[origin, mark], JOB, 403),
        ("POST", "/api/v1/jobs/1/cancel", &[origin], "", 403),
        ("PUT", "/api/v1/queues/q", &[origin, json], "{}", 403),
        ("DELETE", SESSION, &[origin], "", 403),
        ("GET", "/api/v1/jobs", &[site("cross-site")], "", 403),
        ("GET", "/api/v1/events", &[site("same-site")], "", 403),
        ("GET", "/api/v1/jobs", &[site("none")], "", 403),
        ("GET", "/api/v1/jobs", &[("Origin", "http://evil.example")], "", 403),
        ("GET", "/api/v1/jobs", &[("Host", "evil.example")], "", 401),
        ("GET", "/api/v1/jobs", &[site("same-origin")], "", 200),
    ];
    for (method, path, headers, body, status) in cases {
        let answer = browser.ask(method, path, headers, body);
        assert_eq!(answer.status, status, "{method} {path} {headers:?}: {}", answer.text());
        let allows = answer.headers.iter().any(|(name, _)| name.starts_with("access-control"));
        assert!(!allows, "{method} {path} {headers:?}: {:?}", answer.headers);
    }
    // Asked first, as a browser does for another site's script, the server allows nothing.
    let asked = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")];
    let answer = browser.ask("OPTIONS", "/api/v1/jobs", &asked, "");
    assert!(
        answer.status >= 400 && !answer.headers.iter().any(|(name, _)| name.starts_with("access-control"))
    );
    // The pages are no other site's either, but a link leads to them.
    let script = script(&browser);
    let load = [site("cross-site"), ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "script")];
    assert_eq!(browser.ask("GET", &script, &load, "").status, 403);
    let link = [site("cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
    assert_eq!(browser.ask("GET", "/jobs/1", &link, "").status, 200);
    // A name that another owner's DNS led here.
    for path in ["/", script.as_str()] {
        assert_eq!(browser.ask("GET", path, &[("Host", "evil.example")], "").status, 403, "{path}");
    }
    // Nobody is signed in by another site.
    let body = serde_json::json!({ "token": port.token(&["--role", "admin"]) }).to_string();
    let stranger = Browser::new(port.host());
    for headers in [
        [("Origin", "http://evil.example"), json],
        [("Host", "evil.example"), json],
        [origin, ("Content-Type", "text/plain")],
        [site("cross-site"), json],
    ] {
        let answer = stranger.ask("POST", SESSION, &headers, &body);
        assert_eq!((answer.status, answer.header("set-cookie")), (403, ""), "{headers:?}");
    }
}

#[test]
fn events_come_by_a_session_and_end_with_it() {
    let (port, mut browser) = port();
    let token = port.token(&["--role", "user", "--user", "ann"]);
    browser.sign_in("token", &token);
    let (status, mut events) = browser.events();
    assert_eq!(status, 200);
    port.ok_as(&token, &["run", "--cwd", "/", "--", "true"]);
    let mut line = String::new();
    while !line.starts_with("event:") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
    assert_eq!(browser.change("DELETE", SESSION, "").status, 204);
    // The next event finds that nobody may listen any more.
    port.ok_as(&token, &["run", "--cwd", "/", "--", "true"]);
    let mut rest = Vec::new();
    events.read_to_end(&mut rest).unwrap();
}

#[test]
fn a_session_ends_with_the_server() {
    let (mut port, mut browser) = port();
    browser.sign_in("token", &port.token(&["--role", "admin"]));
    let value = browser.cookie.split_once('=').unwrap().1.to_owned();
    assert_eq!(browser.get(ME).status, 200);
    port.restart_with_limit(1024);
    let mut again = Browser::new(port.host());
    again.cookie = format!("windlass_session_{}={value}", port.host().split(':').nth(1).unwrap());
    assert_eq!(again.get(ME).status, 401);
}

#[test]
fn a_remote_server_s_board_is_opened_by_a_code_and_not_by_the_token() {
    let (port, mut browser) = port();
    let token = port.token(&["--role", "user", "--user", "ann"]);
    let url = port.ok_as(&token, &["board", "--print"]);
    let (address, code) = url.trim().split_once("/#code=").unwrap();
    assert_eq!(address, format!("http://{}", port.host()));
    assert!(!url.contains(token.split('_').nth(2).unwrap()));
    assert_eq!(browser.sign_in("code", code).status, 204);
    assert_eq!(browser.get(ME).json()["name"], "ann");
    let again = Browser::new(port.host()).sign_in("code", code);
    assert_eq!(again.status, 401, "a code is good once");
    // The administrator's socket of the same server leads to the same port.
    let url = port.admin(&["board", "--print"]);
    let (address, code) = url.trim().split_once("/#code=").unwrap();
    assert_eq!(address, format!("http://{}", port.host()));
    let mut admin = Browser::new(port.host());
    assert_eq!(admin.sign_in("code", code).status, 204);
    assert_eq!(admin.get(ME).json()["role"], "admin");
    assert!(port.denied("", &["board"]).contains("asks for a token"));
}

#[test]
fn behind_tls_the_session_is_for_encrypted_connections_alone() {
    let port = Port::with_tls(&[]);
    let token = port.token(&["--role", "admin"]);
    let url = format!("https://{}{SESSION}", port.host());
    let body = serde_json::json!({ "token": token }).to_string();
    let output = Command::new("curl")
        .args(["-s", "-i", "--cacert"])
        .arg(port.dir.join("ca/ca.pem"))
        .args(["-H", "Content-Type: application/json", "-d", &body, &url])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(said.starts_with("http/2 204") && said.contains("; secure"), "{}", show(&output));
}

#[test]
fn a_server_may_have_no_board() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    std::fs::write(&config, "[board]\nenabled = false\n").unwrap();
    let port = Port::open(&["--config", config.to_str().unwrap()]);
    let token = port.token(&["--role", "admin"]);
    let mut browser = Browser::new(port.host());
    assert_eq!(browser.get("/").status, 401);
    assert_eq!(browser.sign_in("token", &token).status, 404);
    let output = port.run_as(&token, &["board"]);
    assert_eq!(output.status.code(), Some(3), "{}", show(&output));
    assert!(show(&output).contains("this server has no board"), "{}", show(&output));
}

#[test]
fn the_clients_of_compass_ci_and_browsers_share_the_first_path() {
    let port = Port::open(&["--compass"]);
    let browser = Browser::new(port.host());
    let client = browser.ask("GET", "/", &[], "");
    assert!(client.status == 200 && !client.text().contains("<html"), "{}", client.text());
    let page = browser.ask("GET", "/", &[("Accept", "text/html,*/*;q=0.8")], "");
    assert!(page.header("content-type").starts_with("text/html"));
}

#[test]
fn behind_a_proxy_the_board_has_the_proxy_s_name_and_its_encryption() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    std::fs::write(&config, "[board]\nhosts = ['farm.example']\n").unwrap();
    let port = Port::open(&["--config", config.to_str().unwrap()]);
    let mut browser = Browser::new(port.host());
    let host = ("Host", "farm.example");
    assert_eq!(browser.ask("GET", "/", &[host], "").status, 200);
    let headers = [host, ("Origin", "https://farm.example"), ("Content-Type", "application/json")];
    let body = serde_json::json!({ "token": port.token(&["--role", "admin"]) }).to_string();
    let signed_in = browser.ask("POST", SESSION, &headers, &body);
    let written = signed_in.header("set-cookie");
    assert!(written.starts_with("windlass_session=") && written.ends_with("; Secure"), "{written}");
    browser.cookie = signed_in.cookie();
    assert_eq!(browser.ask("GET", ME, &[host], "").status, 200);
    // Under another name it is not the board's cookie.
    assert_eq!(browser.get(ME).status, 401);
    assert_eq!(browser.ask("GET", "/", &[("Host", "evil.example")], "").status, 403);
}

/// The address that `windlass board` prints, and its code.
fn opened(farm: &Farm) -> (Browser, String) {
    let url = farm.ok(&["board", "--print"]);
    let (address, code) = url.trim().split_once("/#code=").unwrap_or_else(|| panic!("{url}"));
    (Browser::new(address.strip_prefix("http://").unwrap()), code.to_owned())
}

#[test]
fn one_machine_s_server_opens_a_port_for_the_board() {
    let farm = Farm::with_server(&["--nix"]);
    let (mut browser, code) = opened(&farm);
    assert!(browser.host.starts_with("127.0.0.1:"), "{}", browser.host);
    // A client that finds the port gets the pages, and nothing without the code.
    assert_eq!(browser.ask("GET", "/", &[], "").status, 200);
    for path in [ME, "/api/v1/jobs", "/api/v1/events", "/metrics", "/openapi.json"] {
        assert_eq!(browser.get(path).status, 401, "{path}");
    }
    assert_eq!(browser.change("POST", "/api/v1/jobs", JOB).status, 401);
    assert_eq!(browser.change("POST", "/api/v1/shutdown", "").status, 401);
    // The port is for the board alone.
    assert_eq!(browser.change("POST", "/nix/v1/try", "{}").status, 404);
    assert_eq!(browser.change("POST", "/windlass.worker.v1.Workers/Work", "").status, 404);
    assert_eq!(browser.sign_in("code", &code).status, 204);
    let me = browser.get(ME).json();
    assert_eq!((me["role"].as_str(), me["signed_in_by"].as_str()), (Some("admin"), Some("session")));
    assert_eq!(browser.change("POST", "/api/v1/jobs", JOB).status, 201);
    farm.ok(&["job", "wait", "1"]);
    assert_eq!(browser.get("/api/v1/jobs/1").json()["state"], "succeeded");
    for host in ["evil.example", "localhost:1", "localhost"] {
        assert_eq!(browser.ask("GET", "/", &[("Host", host)], "").status, 403, "{host}");
    }
    // Asked again, it is the same port with another code.
    let (same, other) = opened(&farm);
    assert!(same.host == browser.host && other != code);
    assert_eq!(Browser::new(&same.host).sign_in("code", &code).status, 401);
    let log = farm.server_log();
    assert!(!log.contains(code.split('_').nth(1).unwrap()), "{log}");
}

/// The status that a process of that user gets with the session of a browser; 000 without an answer.
fn ask_as(uid: u32, browser: &Browser) -> String {
    let mut command = Command::new("curl");
    std::os::unix::process::CommandExt::uid(&mut command, uid);
    std::os::unix::process::CommandExt::gid(&mut command, uid);
    let cookie = format!("Cookie: {}", browser.cookie);
    command.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &cookie]);
    let output = command.arg(format!("http://{}{ME}", browser.host)).current_dir("/").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A browser sends a cookie to each port of its host, and one of them may be another user's.
#[test]
fn a_session_that_another_user_of_the_machine_got_hold_of_is_of_no_use() {
    if !is_root("a_session_that_another_user_of_the_machine_got_hold_of_is_of_no_use") {
        return;
    }
    let (port, mut browser) = port();
    browser.sign_in("token", &port.token(&["--role", "admin"]));
    assert_eq!((ask_as(0, &browser).as_str(), ask_as(65534, &browser).as_str()), ("200", "401"));
    assert_eq!(browser.get(ME).status, 200);
}

#[test]
fn another_user_of_the_machine_is_not_heard_at_the_board_s_port() {
    if !is_root("another_user_of_the_machine_is_not_heard_at_the_board_s_port") {
        return;
    }
    let farm = Farm::new();
    let (mut browser, code) = opened(&farm);
    assert_eq!(browser.sign_in("code", &code).status, 204);
    let ask = |uid| ask_as(uid, &browser);
    assert_eq!((ask(0).as_str(), ask(65534).as_str()), ("200", "000"));
    let log = || std::fs::read_to_string(farm.state().join("server.log")).unwrap();
    wait_until("the server says so", || log().contains("another user's process asks for the board"));
}

#[test]
fn a_socket_that_a_session_opened_ends_with_it() {
    let port = Port::open(&["--compass"]);
    let mut ann = Browser::new(port.host());
    let token = port.token(&["--role", "user", "--user", "ann"]);
    assert_eq!(ann.sign_in("token", &token).status, 204);
    let url = format!("ws://{}/scheduler/v1/client", port.host());
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("cookie", ann.cookie.parse().unwrap());
    let stream = TcpStream::connect(port.host()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut socket, _) = client(request, stream).unwrap();
    assert!(socket.read().unwrap().to_text().unwrap().contains("welcome"));
    socket.send(Message::text("{}")).unwrap();
    assert!(socket.read().unwrap().to_text().unwrap().contains("Missing message type"));
    assert_eq!(ann.change("DELETE", SESSION, "").status, 204);
    // Its token is still in force.
    socket.send(Message::text("{}")).unwrap();
    assert!(socket.read().unwrap().is_close());
}

#[test]
fn a_browser_is_opened_without_the_code_in_sight_of_others() {
    let farm = Farm::new();
    let bin = farm.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let (opener, said) = (bin.join("xdg-open"), farm.path().join("opened"));
    std::fs::write(&opener, format!("#!/bin/sh\necho \"$*\" > {0}.new\nmv {0}.new {0}\n", said.display()))
        .unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = farm.command(&["board"]);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = command.env("PATH", path).env("DISPLAY", ":0").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", show(&output));
    wait_until("a browser is opened", || said.exists());
    let asked = std::fs::read_to_string(&said).unwrap();
    let page = asked.trim().strip_prefix("file://").unwrap_or_else(|| panic!("{asked}"));
    let text = std::fs::read_to_string(page).unwrap();
    let code = text.split("/#code=").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(!asked.contains(code) && !show(&output).contains(code), "{asked} {}", show(&output));
    let mode = std::fs::metadata(page).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
    let host = text.split("url=http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    assert_eq!(Browser::new(host).sign_in("code", code).status, 204);
    // Without a display the address is printed.
    let plain = farm.ok(&["board"]);
    assert!(plain.starts_with("http://127.0.0.1:"), "{plain}");
    let json = farm.json(&["board"]);
    assert!(json["url"].as_str().unwrap().contains("/#code=") && json["expires_in_ms"] == 60_000);
}
