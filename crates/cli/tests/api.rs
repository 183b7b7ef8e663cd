//! `windlass api`, and the HTTP interface as a program without a client of its own sees it.

use crate::support::{Farm, PATIENCE};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

const STEPS: &str = r#"steps=[{"name":"one","command":["true"],"cwd":"/"}]"#;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_request_is_made_as_it_is_written() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    for name in ["a", "b", "c"] {
        let name = format!("name={name}");
        let submitted = json(&farm.ok(&["api", "POST", "/jobs", "-f", &name, "-f", STEPS]));
        let path = format!("/jobs/{}/wait", submitted["job"]);
        assert_eq!(json(&farm.ok(&["api", "get", &path]))["state"], "succeeded");
    }
    let page = json(&farm.ok(&["api", "GET", "/api/v1/jobs?state=succeeded", "-q", "limit=2"]));
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let all = farm.ok(&["api", "GET", "jobs", "-q", "limit=1", "--paginate"]);
    let names: Vec<Value> = all.lines().map(|line| json(line)["name"].clone()).collect();
    assert_eq!(names, ["c", "b", "a"]);
    let answer = farm.ok(&["api", "-i", "GET", "/version"]);
    let (head, body) = answer.split_once("\n\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\n") && head.contains("content-type: application/json"),
        "{head}"
    );
    assert_eq!(json(body)["name"], "windlass");
}

#[test]
fn a_body_comes_from_a_file_or_from_standard_input() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let body = r#"{"weight": 300, "paused": "backup"}"#;
    std::fs::write(farm.work().join("queue.json"), body).unwrap();
    farm.ok(&["api", "PUT", "/queues/night", "--input", "queue.json"]);
    let mut child = farm
        .command(&["api", "PUT", "/queues/day", "--input", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    for queue in ["/queues/night", "/queues/day"] {
        assert_eq!(json(&farm.ok(&["api", "GET", queue]))["paused"], "backup");
        farm.ok(&["api", "PUT", queue, "-f", "paused=null"]);
        assert_eq!(json(&farm.ok(&["api", "GET", queue])).get("paused"), None);
    }
}

#[test]
fn a_refusal_has_the_exit_code_of_all_commands() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let said = farm.fails(3, &["api", "GET", "/jobs/7"]);
    assert!(said.contains("cannot make the request GET /api/v1/jobs/7: there is no job 7"), "{said}");
    let said = farm.fails(2, &["api", "GET", "/jobs", "-q", "limit=0", "--json"]);
    assert_eq!(json(&said)["error"]["code"], "bad_request");
    farm.fails(2, &["api", "GET", "/jobs", "-f", "a=1"]);
    farm.fails(2, &["api", "BREW", "/jobs"]);
    farm.fails(2, &["api", "GET", "/version", "--paginate"]);
    farm.fails(2, &["api", "GET", "http://farm:7117/api/v1/jobs"]);
}

#[test]
fn a_change_acts_on_no_more_than_was_meant() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    farm.fails(6, &["submit", "--cwd", "/", "--cpus", "9", "--", "true"]);
    for given in [["-f", "tasks=[3]"], ["-q", "tasks=3"]] {
        for verb in ["cancel", "retry", "hold", "release"] {
            let path = format!("/jobs/1/{verb}");
            let said = farm.fails(2, &["api", "POST", &path, given[0], given[1]]);
            assert!(said.contains("`tasks`"), "{said}");
        }
    }
    assert_eq!(json(&farm.ok(&["api", "GET", "/jobs/1"]))["state"], "pending");
    assert_eq!(json(&farm.ok(&["api", "POST", "/jobs/1/cancel"]))["state"], "canceled");
}

#[test]
fn events_are_printed_as_they_come() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let mut listening = farm.command(&["api", "GET", "/events"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("id: "));
    farm.ok(&["run", "--cwd", "/", "--", "true"]);
    assert!(lines.any(|line| line == "event: job"));
    listening.kill().unwrap();
    listening.wait().unwrap();
}

/// The ids and kinds of a stream's events, up to the first of that kind. The connection is closed then.
fn stream(farm: &Farm, after: Option<&str>, until: &str) -> Vec<(String, String)> {
    let mut connection = UnixStream::connect(farm.socket()).unwrap();
    let after = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{after}\r\n");
    connection.write_all(request.as_bytes()).unwrap();
    let (mut events, mut id, mut kind) = (Vec::new(), String::new(), String::new());
    for line in BufReader::new(connection).lines() {
        let line = line.unwrap();
        if let Some(given) = line.strip_prefix("id: ") {
            id = given.to_owned();
        } else if let Some(given) = line.strip_prefix("event: ") {
            kind = given.to_owned();
        } else if line.is_empty() && !id.is_empty() {
            events.push((std::mem::take(&mut id), std::mem::take(&mut kind)));
            if events.last().is_some_and(|(_, kind)| kind == until) {
                return events;
            }
        }
    }
    panic!("the stream ended: {events:?}")
}

/// The numbers of events. They rise by one where nothing is left out.
fn numbers(events: &[(String, String)]) -> Vec<u64> {
    events.iter().map(|(id, _)| id.rsplit('-').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn a_stream_of_events_goes_on_where_it_was() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    // An event without a kind is the beginning of the stream.
    let begin = stream(&farm, None, "");
    farm.ok(&["run", "--cwd", "/", "--", "true"]);
    let missed = stream(&farm, Some(&begin[0].0), "tasks");
    let rest = stream(&farm, Some(&missed.last().unwrap().0), "job");
    for (before, events) in [(&begin, &missed), (&missed, &rest)] {
        let (last, told) = (*numbers(before).last().unwrap(), numbers(events));
        let expected: Vec<u64> = (last..).take(told.len()).collect();
        assert!(told == expected && told.len() > 1, "{before:?} {events:?}");
    }
    // Another run of the server had other ids.
    let other = stream(&farm, Some("0-1"), "lagged");
    assert_eq!(other.len(), 1, "{other:?}");
}

#[test]
fn a_client_that_can_connect_finds_its_token() {
    let farm = Farm::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut server = farm.command(&["server", "start", "--no-worker", "--listen", &address]);
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while TcpStream::connect(&address).is_err() && began.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    let token = std::fs::read_to_string(farm.state().join("local.token")).unwrap_or_default();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(token.starts_with(&format!("{address}\nwl_")), "{token}");
}

/// The manual finds the socket like this for programs such as curl.
#[test]
fn the_address_of_the_server_leads_other_programs_to_it() {
    let farm = Farm::with_server(&["--cpus", "1"]);
    let address = farm.json(&["server", "status"])["address"].as_str().unwrap().to_owned();
    let path = address.strip_prefix("unix:").unwrap();
    let mut curl = Command::new("curl");
    let asked = curl.args(["-sS", "--unix-socket", path, "http://localhost/api/v1/version"]).output();
    match asked {
        Ok(output) => assert_eq!(json(&String::from_utf8(output.stdout).unwrap())["name"], "windlass"),
        Err(_) => println!("SKIP the manual's example: curl is missing"),
    }
}
