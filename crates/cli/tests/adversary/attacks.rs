//! Attacks that are repeated until the test is over. On a real farm they come from other machines, so the threads here
//! have a low priority.

use super::Ended;
use crate::support::port::connect_from;
use crate::support::{Random, windlass};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Message, client};

/// The target of the attacks, and the attacker's credentials.
pub struct Target {
    pub host: String,
    /// A directory that all users can use.
    pub dir: PathBuf,
    /// The token of the hostile submitter, worker and host.
    pub eve: String,
    pub rogue: String,
    pub provider: String,
}

/// One attack: its name, the pause after each attempt, and a function that returns how many attempts were effective.
type Attack = (&'static str, u64, fn(&Target, &mut Random) -> u64);

const ATTACKS: [Attack; 20] = [
    ("bodies of 8 MB from strangers", 200, stranger_s_large_body),
    ("bodies that come a byte at a time", 300, slow_bodies),
    ("connections that say nothing", 500, idle_connections),
    ("garbage on the port", 20, garbage),
    ("floods of HTTP/2 frames", 50, http2_frames),
    ("guesses of accounts", 20, accounts),
    ("guesses of tokens", 10, forged_tokens),
    ("guesses of jobs' tokens", 20, job_tokens),
    ("submissions of 8 MB that are refused", 300, too_large_steps),
    ("large environments", 500, large_environments),
    ("tasks without their directory", 200, no_directory),
    ("tasks without their program", 200, no_program),
    ("tasks that make many processes", 2000, many_processes),
    ("tasks that write much", 2000, much_output),
    ("tasks whose user stops them before they run", 3000, stopped_launches),
    ("urgent jobs in others' queues", 20, others_queues),
    ("submissions without end", 5, many_submissions),
    ("hands on others' jobs", 20, others_jobs),
    ("workers that claim another's name", 1500, false_worker),
    ("hosts that say much and read nothing", 1000, loud_provider),
];

/// Starts all attacks, and counts the effective attempts of each.
pub fn begin<'scope>(
    scope: &'scope Scope<'scope, '_>,
    target: &'scope Target,
    stop: &Arc<AtomicBool>,
) -> Vec<(&'static str, Arc<AtomicU64>)> {
    let begin = |(number, (name, pause_ms, attack)): (usize, Attack)| {
        let (stop, made) = (stop.clone(), Arc::new(AtomicU64::new(0)));
        let counted = made.clone();
        scope.spawn(move || {
            // SAFETY: changes the niceness of this thread alone.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
            let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (number as u64) << 32 | 1);
            while !stop.load(Ordering::Relaxed) {
                counted.fetch_add(attack(target, &mut random), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(pause_ms));
            }
        });
        (name, made)
    };
    ATTACKS.into_iter().enumerate().map(begin).collect()
}

impl Target {
    fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(&self.host).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
        stream.set_write_timeout(Some(Duration::from_secs(60))).ok()?;
        Some(stream)
    }

    /// Sends a request with a token; returns the answer's status and body; status 0 without an answer.
    pub fn ask(&self, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
        let Some(mut stream) = self.connect() else { return (0, String::new()) };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Accept-Encoding: identity\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        (status, body.to_owned())
    }

    /// A submission of the hostile user; 1 if it was answered at all.
    fn submit(&self, step: &Value, more: &Value) -> u64 {
        let mut request = json!({ "steps": [step] });
        if let (Value::Object(request), Value::Object(more)) = (&mut request, more) {
            request.extend(more.clone());
        }
        u64::from(self.ask("POST", "/api/v1/jobs", &self.eve, &request.to_string()).0 != 0)
    }

    /// The same for a command.
    fn run(&self, command: &[&str], cwd: &str) -> u64 {
        let resources = json!({ "cpus": 0.5 });
        let step = json!({ "command": command, "cwd": cwd, "resources": resources, "time_limit_ms": 5000 });
        self.submit(&step, &Value::Null)
    }
}

fn stranger_s_large_body(target: &Target, _: &mut Random) -> u64 {
    let Some(mut stream) = target.connect() else { return 0 };
    let head = "POST /scheduler/v1/jobs/submit HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let part = format!("10000\r\n{}\r\n", "0,".repeat(1 << 15));
    _ = stream.write_all(head.as_bytes());
    // A write fails once the server stops reading.
    for _ in 0..128 {
        if stream.write_all(part.as_bytes()).is_err() {
            break;
        }
    }
    1
}

fn slow_bodies(target: &Target, random: &mut Random) -> u64 {
    let open = |_| {
        let mut stream = connect_from(&format!("127.0.2.{}", 1 + random.below(200)), &target.host);
        let head = "POST /scheduler/v1/jobs/submit HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{";
        stream.write_all(head.as_bytes()).ok().map(|()| stream)
    };
    let all: Vec<TcpStream> = (0..50).filter_map(open).collect();
    for mut stream in &all {
        _ = stream.write_all(b"x");
    }
    all.len() as u64
}

fn idle_connections(target: &Target, random: &mut Random) -> u64 {
    let from = format!("127.0.3.{}", 1 + random.below(200));
    let all: Vec<TcpStream> = (0..300).map(|_| connect_from(&from, &target.host)).collect();
    all.len() as u64
}

fn garbage(target: &Target, random: &mut Random) -> u64 {
    let Some(mut stream) = target.connect() else { return 0 };
    let bytes: Vec<u8> = (0..4096).map(|_| random.below(256) as u8).collect();
    u64::from(stream.write_all(&bytes).is_ok())
}

fn http2_frames(target: &Target, random: &mut Random) -> u64 {
    let Some(mut stream) = target.connect() else { return 0 };
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream_id in 0..200_u32 {
        // Empty headers, settings, resets, and pings.
        let kind = [1_u8, 3, 4, 6][random.below(4) as usize];
        let length =
            [5_u8, 4, 0, 8][usize::from(kind == 3) + 2 * usize::from(kind == 4) + 3 * usize::from(kind == 6)];
        bytes.extend([0, 0, length, kind, random.below(256) as u8]);
        bytes.extend((stream_id * 2 + 1).to_be_bytes());
        bytes.extend((0..length).map(|_| random.below(256) as u8));
    }
    u64::from(stream.write_all(&bytes).is_ok())
}

fn accounts(target: &Target, random: &mut Random) -> u64 {
    let job =
        json!({ "my_account": format!("user{}", random.below(1000)), "my_token": "wl_0_0", "suite": "x" });
    u64::from(target.ask("POST", "/scheduler/v1/jobs/submit", "none", &job.to_string()).0 == 401)
}

fn forged_tokens(target: &Target, random: &mut Random) -> u64 {
    let token = format!("wl_{:012x}_{:064x}", random.below(1 << 40), random.below(1 << 60));
    u64::from(target.ask("GET", "/api/v1/jobs", &token, "").0 == 401)
}

fn job_tokens(target: &Target, random: &mut Random) -> u64 {
    let (job, token) = (random.below(1000), random.below(1 << 60));
    let path = format!("/scheduler/v1/jobs/{job}/update?job_token={token}&job_stage=finish");
    let Some(mut stream) = target.connect() else { return 0 };
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let mut answer = String::new();
    _ = stream.write_all(head.as_bytes());
    _ = stream.read_to_string(&mut answer);
    u64::from(!answer.is_empty() && !answer.contains(" 200 "))
}

fn too_large_steps(target: &Target, _: &mut Random) -> u64 {
    let part = "x".repeat(100_000);
    let env: serde_json::Map<String, Value> =
        (0..80).map(|n| (format!("V{n}"), part.clone().into())).collect();
    target.submit(&json!({ "command": ["true"], "env": env }), &Value::Null)
}

fn large_environments(target: &Target, _: &mut Random) -> u64 {
    let part = "x".repeat(100_000);
    let env: serde_json::Map<String, Value> =
        (0..30).map(|n| (format!("V{n}"), part.clone().into())).collect();
    // One key is one job: the store is not the target here.
    let key = json!({ "key": format!("large-{}", std::process::id()) });
    target.submit(&json!({ "command": ["true"], "cwd": "/", "env": env }), &key)
}

fn no_directory(target: &Target, _: &mut Random) -> u64 {
    target.run(&["true"], "/nonexistent")
}

fn no_program(target: &Target, _: &mut Random) -> u64 {
    target.run(&["/nonexistent/program"], "/")
}

fn many_processes(target: &Target, _: &mut Random) -> u64 {
    target.run(&["sh", "-c", "i=0; while [ $i -lt 200 ]; do i=$((i+1)); setsid sleep 1 & done; wait"], "/")
}

fn much_output(target: &Target, _: &mut Random) -> u64 {
    target.run(&["sh", "-c", "nice -n 19 head -c 20000000 /dev/zero | tr '\\0' x"], "/")
}

fn stopped_launches(target: &Target, _: &mut Random) -> u64 {
    // Its next processes are stopped between the change of user and the execution of the program.
    let stop = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); kill -STOP -1; sleep 0.01; done";
    let stopped = target.run(&["nice", "-n", "19", "sh", "-c", stop], "/");
    let path = (0..300).map(|n| format!("/nonexistent/{n}")).collect::<Vec<_>>().join(":");
    let env = json!({ "PATH": path });
    let step = json!({ "command": ["true"], "cwd": "/", "env": env, "resources": { "cpus": 0.5 } });
    stopped + target.submit(&step, &Value::Null)
}

fn others_queues(target: &Target, random: &mut Random) -> u64 {
    let queue = ["ann", "vip", "film"][random.below(3) as usize];
    let request = json!({ "steps": [{ "command": ["true"] }], "queue": queue, "priority": 1_000_000 });
    u64::from(target.ask("POST", "/api/v1/jobs", &target.eve, &request.to_string()).0 == 403)
}

fn many_submissions(target: &Target, _: &mut Random) -> u64 {
    target.run(&["true"], "/")
}

fn others_jobs(target: &Target, random: &mut Random) -> u64 {
    let verb = ["cancel", "hold", "retry", "release"][random.below(4) as usize];
    // The first job is the other submitter's, and runs all the time.
    u64::from(target.ask("POST", &format!("/api/v1/jobs/1/{verb}"), &target.eve, "").0 == 403)
}

fn false_worker(target: &Target, random: &mut Random) -> u64 {
    let state = target.dir.join(format!("rogue-{}", random.below(1 << 40)));
    let mut command = Command::new(windlass());
    command.args(["--server", &format!("http://{}", target.host), "worker", "start", "--name", "box1"]);
    command.args(["--map-user", "*=nobody", "--cpus", "1", "--state"]).arg(&state);
    command.env("WINDLASS_TOKEN", &target.rogue).current_dir(&target.dir);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(worker) = command.spawn().map(Ended) else { return 0 };
    // As long as a refusal takes, and a while longer.
    std::thread::park_timeout(Duration::from_secs(1));
    drop(worker);
    let keeper = std::fs::read(state.join("keeper.json")).ok();
    let keeper = keeper.and_then(|json| serde_json::from_slice::<Value>(&json).ok()?["pid"].as_i64());
    if let Some(pid) = keeper {
        crate::support::kill(pid as i32, "KILL");
    }
    _ = std::fs::remove_dir_all(state);
    1
}

fn loud_provider(target: &Target, _: &mut Random) -> u64 {
    let Some(stream) = target.connect() else { return 0 };
    let url = format!("ws://{}/scheduler/v1/vm-container-provider/h1", target.host);
    let Ok(mut request) = url.into_client_request() else { return 0 };
    let bearer = format!("Bearer {}", target.provider).parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    let Ok((mut socket, _)) = client(request, stream) else { return 0 };
    let large = json!({ "type": "job-log", "job_id": "1", "message": "x".repeat(1 << 20) }).to_string();
    let sent = (0..8).take_while(|_| socket.send(Message::text(large.clone())).is_ok()).count();
    sent as u64
}
