//! `windlass mcp` as its clients have it: a real process that speaks the protocol, before a real server.

use crate::support::port::Port;
use crate::support::{Farm, show, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Bytes of a tool's result, as the documents promise.
const ANSWER_BYTES_MAX: usize = 32 << 10;

/// A client of the protocol, with the server process that it started.
struct Agent {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: i64,
    /// What was told without being asked for.
    notices: Vec<Value>,
    /// Answers that came before the one that was waited for.
    answers: BTreeMap<i64, Value>,
}

impl Agent {
    /// A process that has begun a session.
    fn start(command: &mut Command) -> Agent {
        let mut agent = Agent::silent(command);
        let client = json!({"name": "test", "version": "1"});
        let session = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let begun = agent.ask("initialize", session);
        assert_eq!(begun["result"]["protocolVersion"], "2025-06-18", "{begun}");
        assert_eq!(begun["result"]["serverInfo"]["name"], "windlass", "{begun}");
        agent.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        agent
    }

    fn silent(command: &mut Command) -> Agent {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        Agent { process, input, output, last_id: 0, notices: Vec::new(), answers: BTreeMap::new() }
    }

    fn of(farm: &Farm) -> Agent {
        Agent::start(&mut farm.command(&["mcp"]))
    }

    fn of_port(port: &Port, token: &str) -> Agent {
        let mut command = port.farm.command(&["mcp"]);
        command.env("WINDLASS_SERVER", &port.address).env("WINDLASS_TOKEN", token);
        // As if on another machine: the token of the server's own user is not found.
        command.env("WINDLASS_STATE", port.dir.join("elsewhere"));
        Agent::start(&mut command)
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}").unwrap();
        input.flush().unwrap();
    }

    /// Sends a request; returns its id.
    fn send(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        self.say(&request.to_string());
        self.last_id
    }

    /// The next message, whatever it is.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the process has ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The answer to the request with this id.
    fn answer(&mut self, id: i64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let message = self.next();
            assert_eq!(message["jsonrpc"], "2.0", "{message}");
            match message["id"].as_i64() {
                Some(of) => _ = self.answers.insert(of, message),
                None => self.notices.push(message),
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// The result of a call.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = answer.get("result").unwrap_or_else(|| panic!("{tool}: {answer}")).clone();
        let bytes = result.to_string().len();
        assert!(bytes <= ANSWER_BYTES_MAX, "{tool} answered {bytes} bytes");
        result
    }

    /// The structured content and the text of a call that succeeds.
    fn ok(&mut self, tool: &str, arguments: Value) -> (Value, String) {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{tool}: {result}");
        (result["structuredContent"].clone(), text_of(&result))
    }

    /// The text of a call that fails.
    fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        assert!(result.get("structuredContent").is_none(), "{result}");
        text_of(&result)
    }

    /// Closes the input, and expects the process to end.
    fn end(mut self) {
        self.input = None;
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(rest.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{rest}");
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn text_of(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// True if the value is of the type that a schema names.
fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    }
}

#[test]
fn an_agent_submits_waits_reads_and_cancels() {
    let farm = Farm::with_server(&[]);
    let mut agent = Agent::of(&farm);
    wait_until("its worker is there", || agent.ok("workers", json!({})).0["workers"]["online"] == 1);
    let work =
        json!({"script": "echo $FILM; echo dark >&2; exit 3", "env": {"FILM": "night"}, "name": "film"});
    let (tried, text) = agent.ok("preview", work.clone());
    assert_eq!((&tried["starting"], &tried["waiting"]), (&json!(1), &json!(0)), "{tried}");
    assert!(text.contains("would start now"), "{text}");
    assert_eq!(agent.ok("list", json!({})).0["items"], json!([]), "nothing was submitted");

    let job = agent.ok("submit", work).0["job"].to_string();
    let (ended, text) = agent.ok("wait", json!({"job": job}));
    assert_eq!(
        (&ended["ended"], &ended["state"], &ended["exit_code"]),
        (&json!(true), &json!("failed"), &json!(3))
    );
    assert!(text.contains("exit code 3") && text.contains("dark"), "{text}");
    let (logs, text) = agent.ok("logs", json!({"id": job}));
    assert_eq!(
        (&logs["stdout"], &logs["stderr"], &logs["cut"]),
        (&json!("night\n"), &json!("dark\n"), &json!(false))
    );
    assert!(text.contains(&format!("stdout of task {job}.0:\nnight\n")), "{text}");
    let only = agent.ok("logs", json!({"id": format!("{job}.0"), "stream": "stderr", "lines": 1})).0;
    assert!(only["stderr"] == "dark\n" && only.get("stdout").is_none(), "{only}");
    assert!(agent.ok("why", json!({"id": job})).1.contains("exit code 3"));
    let (shown, text) = agent.ok("show", json!({"job": "last"}));
    assert_eq!((&shown["name"], &shown["failures"]["failed"]), (&json!("film"), &json!(1)), "{shown}");
    assert!(text.contains("film") && text.contains("exit code 3"), "{text}");
    assert_eq!(agent.ok("tasks", json!({"job": job})).0["items"][0]["id"], json!(format!("{job}.0")));
    assert_eq!(agent.ok("workers", json!({})).0["workers"]["online"], 1);

    let job = agent.ok("submit", json!({"command": ["sleep", "3600"]})).0["job"].to_string();
    let waited = agent.ok("wait", json!({"job": job, "seconds": 0}));
    assert!(waited.0["ended"] == false && waited.1.contains("Call wait again"), "{waited:?}");
    assert!(agent.ok("cancel", json!({"job": job})).1.contains("cancel"));
    assert_eq!(agent.ok("wait", json!({"job": job})).0["state"], "canceled");
    let again = json!({"command": ["true"], "key": "once"});
    let first = agent.ok("submit", again.clone()).0;
    let second = agent.ok("submit", again).0;
    assert_eq!((&second["job"], &second["existing"]), (&first["job"], &json!(true)));
    agent.end();
}

#[test]
fn answers_are_as_the_schemas_of_the_tools_say() {
    let farm = Farm::with_server(&[]);
    let mut agent = Agent::of(&farm);
    let listed = agent.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 10);
    let job = agent.ok("submit", json!({"command": ["false"], "each": ["a", "b"]})).0["job"].to_string();
    agent.ok("wait", json!({"job": job}));
    let endless = agent.ok("submit", json!({"command": ["sleep", "3600"]})).0["job"].to_string();
    for tool in tools {
        let arguments = match tool["name"].as_str().unwrap() {
            "submit" | "preview" => json!({"command": ["true"]}),
            "cancel" => json!({"job": endless}),
            "wait" | "show" | "tasks" => json!({"job": job}),
            "why" | "logs" => json!({"id": job}),
            _ => json!({}),
        };
        let answer = agent.ok(tool["name"].as_str().unwrap(), arguments).0;
        let schema = &tool["outputSchema"];
        for name in schema["required"].as_array().unwrap() {
            assert!(answer.get(name.as_str().unwrap()).is_some(), "{}: no {name}: {answer}", tool["name"]);
        }
        for (name, of) in schema["properties"].as_object().unwrap() {
            let kind = of["type"].as_str().unwrap();
            assert!(answer.get(name).is_none_or(|value| is_of_type(value, kind)), "{}: {name}", tool["name"]);
        }
    }
}

#[test]
fn a_viewer_submits_nothing_and_a_user_cancels_only_what_is_his() {
    let port = Port::open(&[]);
    let mut viewer = Agent::of_port(&port, &port.token(&["--role", "viewer", "--user", "vera"]));
    let said = viewer.fails("submit", json!({"command": ["true"], "cwd": "/"}));
    assert!(said.contains("cannot submit the job") && said.contains("has the role viewer"), "{said}");
    assert_eq!(viewer.ok("list", json!({})).0["items"], json!([]), "it may look");
    let mut ann = Agent::of_port(&port, &port.token(&["--role", "user", "--user", "ann"]));
    let work = json!({"command": ["sleep", "3600"], "cwd": "/", "key": "k"});
    let job = ann.ok("submit", work).0["job"].to_string();
    let mut bob = Agent::of_port(&port, &port.token(&["--role", "user", "--user", "bob"]));
    for agent in [&mut viewer, &mut bob] {
        let said = agent.fails("cancel", json!({"job": job}));
        assert!(said.starts_with(&format!("cannot cancel job {job}")), "{said}");
    }
    assert_eq!(ann.ok("list", json!({"user": "ann"})).0["items"][0]["user"], "ann");
    ann.ok("cancel", json!({"job": job}));
    let mut nobody = Agent::of_port(&port, "wl_wrong");
    assert!(nobody.fails("list", json!({})).contains("token"));
}

#[test]
fn a_wait_tells_its_progress_and_is_cancelled_without_an_answer() {
    let farm = Farm::with_server(&[]);
    let mut agent = Agent::of(&farm);
    let job = agent.ok("submit", json!({"command": ["sleep", "3600"]})).0["job"].to_string();
    let arguments = json!({"job": job, "seconds": 3000});
    let wait =
        |token: &str| json!({"name": "wait", "arguments": arguments, "_meta": {"progressToken": token}});
    let id = agent.send("tools/call", wait("p"));
    assert_eq!(agent.ask("ping", json!({}))["result"], json!({}), "others are answered meanwhile");
    let mut told = Vec::new();
    while told.len() < 2 {
        let notice = agent.next();
        assert_eq!(
            (&notice["method"], &notice["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("p"))
        );
        assert_eq!(notice["params"]["total"], 3000, "{notice}");
        told.push(notice["params"]["progress"].as_u64().unwrap());
    }
    assert!(told[0] < told[1], "{told:?}");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    agent.say(&cancel.to_string());
    assert_eq!(agent.ask("ping", json!({}))["result"], json!({}));
    agent.notices.clear();
    let other = agent.send("tools/call", wait("q"));
    agent.ok("cancel", json!({"job": job}));
    assert_eq!(agent.answer(other)["result"]["structuredContent"]["state"], "canceled");
    assert!(!agent.answers.contains_key(&id), "it was cancelled");
    assert!(
        agent.notices.iter().all(|notice| notice["params"]["progressToken"] != "p"),
        "{:?}",
        agent.notices
    );
}

#[test]
fn a_million_tasks_stay_under_the_bound_of_an_answer() {
    let farm = Farm::with_server(&[]);
    farm.ok(&["queue", "pause", "night"]);
    let mut agent = Agent::of(&farm);
    let long = "x".repeat(100);
    let work = json!({"command": ["true", long], "array": "1-1000000", "queue": "night", "name": long});
    let job = agent.ok("submit", work.clone()).0["job"].to_string();
    let mut seen: Vec<String> = Vec::new();
    let mut cursor = Value::Null;
    for _ in 0..5 {
        let page = agent.ok("tasks", json!({"job": job, "limit": 100, "cursor": cursor})).0;
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()),
        );
        cursor = page["next"].clone();
    }
    let expected: Vec<String> = (0..seen.len()).map(|index| format!("{job}.{index}")).collect();
    assert!(seen == expected && seen.len() >= 5, "no task is left out between pages: {seen:?}");
    for (tool, arguments) in [
        ("list", json!({"limit": 100})),
        ("show", json!({"job": job})),
        ("why", json!({"id": job})),
        ("wait", json!({"job": job, "seconds": 0})),
        ("preview", work),
        ("logs", json!({"id": job})),
        ("workers", json!({})),
        ("cancel", json!({"job": job})),
    ] {
        agent.call(tool, arguments);
    }
    let script = "i=0; while [ $i -lt 30000 ]; do printf '%s \\033[1mline\\033[0m\\n' $i; i=$((i+1)); done";
    let job = agent.ok("submit", json!({"script": script})).0["job"].to_string();
    agent.ok("wait", json!({"job": job}));
    let (logs, text) = agent.ok("logs", json!({"id": job, "lines": 1000}));
    assert!(logs["stdout"].as_str().unwrap().ends_with("29999 line\n"), "{logs}");
    assert!(logs["cut"].is_boolean() && text.contains("29999 line"), "{text}");
}

#[test]
fn hostile_lines_are_refused_and_the_next_is_answered() {
    let farm = Farm::with_server(&[]);
    let mut agent = Agent::of(&farm);
    let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}", "x".repeat(2 << 20));
    let deep = "[".repeat(500_000);
    for (line, code) in [
        (long.as_str(), -32_600),
        (deep.as_str(), -32_700),
        ("[]", -32_600),
        ("\u{1}", -32_700),
        ("7", -32_600),
    ] {
        agent.say(line);
        let refused = agent.next();
        assert_eq!(refused["error"]["code"], code, "{refused}");
        assert!(refused.get("id").is_none(), "{refused}");
    }
    agent.input.as_mut().unwrap().write_all(b"\xff\xfe\n\n  \n").unwrap();
    assert_eq!(agent.next()["error"]["code"], -32_700);
    assert_eq!(agent.ask("no/such", json!({}))["error"]["code"], -32_601);
    assert_eq!(agent.ask("tools/call", json!({"name": "rm"}))["error"]["code"], -32_602);
    let said = agent.fails("submit", json!({"command": "make"}));
    assert!(said.contains("command: invalid type") && said.contains("hint: "), "{said}");
    assert!(agent.fails("show", json!({"job": "999"})).contains("999"));
    assert!(agent.fails("cancel", json!({"job": "last"})).contains("number of a job"));
    let waits: Vec<i64> = (0..40)
        .map(|_| agent.send("tools/call", json!({"name": "wait", "arguments": {"job": "999", "seconds": 1}})))
        .collect();
    for id in waits {
        assert_eq!(agent.answer(id)["result"]["isError"], true);
    }
    agent.end();
}

#[test]
fn a_newer_client_needs_no_beginning_and_jobs_outlive_the_connection() {
    let farm = Farm::with_server(&[]);
    let mut agent = Agent::silent(&mut farm.command(&["mcp"]));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    });
    let known = agent.ask("server/discover", json!({"_meta": meta}));
    assert_eq!(known["result"]["supportedVersions"], json!(["2026-07-28"]), "{known}");
    let gate = farm.work().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; echo through", gate.display());
    let call = json!({"name": "submit", "arguments": {"script": script}, "_meta": meta});
    let submitted = agent.ask("tools/call", call);
    assert_eq!(submitted["result"]["resultType"], "complete", "{submitted}");
    let job = submitted["result"]["structuredContent"]["job"].to_string();
    agent.send("tools/call", json!({"name": "wait", "arguments": {"job": job}, "_meta": meta}));
    agent.end();
    std::fs::write(gate, "").unwrap();
    farm.ok(&["job", "wait", &job]);
    assert_eq!(farm.ok(&["logs", &job]), "through\n");
}

#[test]
fn it_starts_the_user_s_own_server_and_reports_one_that_is_gone() {
    let farm = Farm::new();
    let mut agent = Agent::of(&farm);
    assert_eq!(agent.ok("list", json!({})).0["items"], json!([]));
    wait_until("its own server answers", || farm.run(&["server", "status"]).status.success());
    let output = farm.run(&["--server", "127.0.0.1:1", "mcp"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", show(&output));
    let mut lost = Agent::start(&mut farm.command(&["--server", "127.0.0.1:1", "mcp"]));
    assert!(lost.fails("list", json!({})).contains("no server answers"));
}
